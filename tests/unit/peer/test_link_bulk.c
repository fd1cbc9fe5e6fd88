/* link, bulk connections: DATA has its own connection, is never read too early, and is not lost by
 * a connection that is closed for want of use. */
#include "tests/unit/peer/link_world.h"

enum { BODY = 64 * 1024, SMALL = 100 };

static struct link *link_of(const struct side *side)
{
    struct link *link;

    TAILQ_FOREACH (link, &side->links->all, siblings) {
        if (link->is_current) return link;
    }
    fail_msg("no link: %s", side->why);
    return NULL;
}

/* Whoever begins, there is one bulk connection, dialled by the side that dialled the link. */
static void data_has_a_connection_of_its_own(void **state)
{
    (void)state;
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct side *from = is_dialler ? a : b, *to = is_dialler ? b : a;
        uint64_t control = link_of(from)->number, sent, received;
        struct link_view link;

        assert_int_equal(side_send_bulk(from, to, DATA_OFFER, 1, 1, BODY), RC_OK);
        assert_int_equal(side_send_bulk(from, to, DATA_OFFER, 1, 2, SMALL), RC_OK);
        world_run(world, NS_PER_S);
        assert_int_equal(side_send_bulk(to, from, DATA_OFFER, 1, 3, BODY), RC_OK);
        world_run(world, NS_PER_S);
        assert_true(to->records_count == 2 && to->records[0].number == 1);
        assert_int_equal(from->records_count, 1);
        assert_true(a->links->bulks_count == 1 && b->links->bulks_count == 1);
        assert_true(TAILQ_FIRST(&a->links->bulks)->is_dialled);
        assert_false(TAILQ_FIRST(&b->links->bulks)->is_dialled);
        from->env->ops->link_bytes(from->env, control, &sent, &received);
        assert_true(sent < BODY && received < BODY);
        assert_true(links_peer(from->links, to->id, &link));
        assert_true(link.bytes_sent > BODY && link.bytes_received > BODY);
        assert_true(from->drained == 1);
        world_destroy(world);
    }
}

/* DATA is read after every message that was sent before it, although it is on another connection
 * that may be faster. */
static void data_is_not_read_before_what_announces_it(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 30) {
        struct link_world *world = world_create(seed, 0);
        struct side *a = world_peer(world, 1), *b = world_peer(world, 2);
        uint32_t data = 0, message = 0;

        side_dial(a, b);
        world_run(world, NS_PER_S);
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, 0, SMALL), RC_OK);
        world_run(world, NS_PER_S);
        b->records_count = 0;
        for (uint32_t i = 0; i < 40; i++) {
            assert_int_equal(side_send(a, b, i), RC_OK);
            assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, i, i % 3 == 0 ? BODY : SMALL),
                             RC_OK);
            if (i % 7 == 0) world_run(world, NS_PER_MS);
        }
        world_run(world, NS_PER_S);
        check_seed(seed, b->records_count == 80);
        for (unsigned i = 0; i < b->records_count; i++) {
            if (b->records[i].type != MESSAGE_DATA) {
                check_seed(seed, b->records[i].number == message++);
            } else {
                check_seed(seed, b->records[i].number == data++);
                check_seed(seed, data <= message);
            }
        }
        check_seed(seed, a->links->jobs_count == 0 && b->links->jobs_count == 0);
        world_destroy(world);
    }
}

/* A bulk connection nobody uses is closed after a minute, and the link knows nothing of it. */
static void an_idle_bulk_connection_is_closed(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(side_send_bulk(b, a, DATA_OFFER, 1, i, SMALL), RC_OK);
        world_run(world, LINK_BULK_IDLE_NS - NS_PER_S);
        assert_true(a->links->bulks_count == 1 && b->links->bulks_count == 1);
        world_run(world, 3 * NS_PER_S);
        assert_true(a->links->bulks_count == 0 && b->links->bulks_count == 0);
        assert_true(links_peer(a->links, b->id, NULL) && a->closed == 0 && b->closed == 0);
        assert_int_equal(a->records_count, i + 1);
    }
    world_destroy(world);
}

/* DATA sent by either side around the moment when the connection is closed arrives. */
static void nothing_is_lost_where_a_connection_is_left(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 60) {
        struct link_world *world = world_create(seed, 0);
        struct side *a = world_peer(world, 1), *b = world_peer(world, 2);

        side_dial(a, b);
        world_run(world, NS_PER_S);
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, 0, SMALL), RC_OK);
        world_run(world, LINK_BULK_IDLE_NS - 20 * NS_PER_MS);
        for (uint32_t i = 1; i <= 30; i++) {
            (void)sim_run(world->sim, sim_now_ns(world->sim) + seed * NS_PER_MS / 40);
            links_tick(a->links, sim_now_ns(world->sim));
            links_tick(b->links, sim_now_ns(world->sim));
            if (i % 30 == seed % 30) {
                assert_int_equal(side_send_bulk(b, a, DATA_OFFER, 1, i, BODY), RC_OK);
                assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, i, BODY), RC_OK);
            }
        }
        world_run(world, 10 * NS_PER_S);
        check_seed(seed, a->records_count == 1 && b->records_count == 2);
        check_seed(seed, a->closed == 0 && b->closed == 0);
        world_destroy(world);
    }
}

/* A bulk connection that breaks may have swallowed DATA: the link goes too. */
static void a_lost_bulk_connection_ends_the_link(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];

    (void)state;
    assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, 0, SMALL), RC_OK);
    world_run(world, NS_PER_S);
    b->env->ops->hangup(b->env, TAILQ_FIRST(&b->links->bulks)->number);
    world_run(world, NS_PER_S / 2);
    assert_true(a->closed == 0);
    world_run(world, NS_PER_S);
    assert_true(a->closed == 1 && b->closed == 1);
    assert_true(a->links->bulks_count == 0 && b->links->bulks_count == 0);
    world_destroy(world);
}

/* The end of a link is the end of its bulk connections, also with records under way. */
static void a_link_takes_its_bulk_connections_along(void **state)
{
    uint64_t blocks = mem_blocks();
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];

    (void)state;
    assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, 0, SMALL), RC_OK);
    world_run(world, NS_PER_S);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, i, BODY), RC_OK);
    }
    assert_true(links_jobs(a->links) > 0);
    links_hangup(a->links, b->id, "it is enough");
    world_run(world, 2 * NS_PER_S);
    assert_true(a->closed == 1 && b->closed == 1);
    assert_true(a->links->bulks_count == 0 && b->links->bulks_count == 0);
    assert_true(links_jobs(a->links) == 0 && links_jobs(b->links) == 0);
    world_destroy(world);
    assert_int_equal(mem_blocks(), blocks);
}

/* Where no bulk connection can be opened, DATA takes the control connection. */
static void data_falls_back_on_the_control_connection(void **state)
{
    (void)state;
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct side *from = is_dialler ? a : b, *to = is_dialler ? b : a;

        snprintf(link_of(a)->address, ADDRESS_BYTES_MAX, "sim:3"); /* nobody is there */
        for (uint32_t i = 0; i < 30; i++) {
            assert_int_equal(side_send_bulk(from, to, DATA_OFFER, 1, i, BODY), RC_OK);
        }
        world_run(world, LINK_ATTACH_NS + NS_PER_S);
        assert_int_equal(to->records_count, 30);
        assert_true(a->links->bulks_count == 0 && b->links->bulks_count == 0);
        assert_true(a->closed == 0 && from->drained == 1);
        if (is_dialler) { /* it can be reached again, and is */
            snprintf(link_of(a)->address, ADDRESS_BYTES_MAX, "%s", b->address);
            world_run(world, LINK_BULK_RETRY_NS);
            assert_int_equal(side_send_bulk(from, to, DATA_OFFER, 1, 30, BODY), RC_OK);
            world_run(world, NS_PER_S);
            assert_int_equal(to->records_count, 31);
            assert_int_equal(a->links->bulks_count, 1);
        }
        world_destroy(world);
    }
}

/* An ATTACH of no session here, of another session, or sent again is hung up without an answer. */
static void an_attach_of_somebody_else_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct side *stranger = world_stranger(world);
        struct attach attach = {.number = 0};
        uint8_t frame[ATTACH_BYTES], key[SECRET_BYTES] = {7};
        const struct secure *secure = link_of(a)->secure;

        memcpy(attach.session_id, secure_session(secure)->session_id, SESSION_ID_BYTES);
        if (i == 0) attach.session_id[3] ^= 1;
        attach_ask(&attach, i == 1 ? key : secure_exporter(secure, 0), true, frame);
        for (int time = 0; time <= (i == 2 ? 1 : 0); time++) {
            stranger_dial(stranger, b);
            world_run(world, NS_PER_S / 10);
            stranger_send(stranger, frame, sizeof frame);
            world_run(world, NS_PER_S / 10);
        }
        /* The session's own request, made by a thief of the exporter, is answered once. */
        assert_int_equal(stranger->frames, i == 2 ? 1 : 0);
        assert_int_equal(b->links->bulks_count, i == 2 ? 1 : 0);
        assert_int_equal(stranger->lost, 1);
        assert_int_equal(b->closed, 0);
        world_destroy(world);
    }
}

/* Who holds the session's keys may attach two connections, and keep them for as long as they are
 * used. */
static void a_member_cannot_hold_many_connections(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct side *stranger = world_stranger(world);
    const struct secure *secure = link_of(a)->secure;

    (void)state;
    for (uint32_t i = 0; i < LINK_BULKS_OF_ONE + 1; i++) {
        struct attach attach = {.number = 2 * i};
        uint8_t frame[ATTACH_BYTES];

        memcpy(attach.session_id, secure_session(secure)->session_id, SESSION_ID_BYTES);
        attach_ask(&attach, secure_exporter(secure, 0), true, frame);
        stranger_dial(stranger, b);
        world_run(world, NS_PER_S / 10);
        stranger_send(stranger, frame, sizeof frame);
        world_run(world, NS_PER_S / 10);
    }
    assert_int_equal(stranger->frames, LINK_BULKS_OF_ONE);
    assert_int_equal(b->links->bulks_count, LINK_BULKS_OF_ONE);
    assert_int_equal(stranger->lost, 1);
    world_run(world, LINK_BULK_STALE_NS - 2 * NS_PER_S);
    assert_true(b->links->bulks_count == LINK_BULKS_OF_ONE && b->closed == 0);
    world_run(world, 4 * NS_PER_S);
    assert_int_equal(b->links->bulks_count, 0);
    assert_int_equal(stranger->lost, LINK_BULKS_OF_ONE + 1);
    assert_int_equal(b->closed, 1);
    world_destroy(world);
}

/* With the memory for records of all links in use, each link has room for one record: slow, but
 * nobody is shut out, and what was counted is given back. */
static void links_share_the_memory_for_records(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct bulk *bulk;

    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        size_t others = is_full ? LINK_HELD_BYTES_MAX : 0;

        b->links->held_bytes += others;
        link_of(b)->control_received -= 1000; /* the announcements seem to be missing */
        for (uint32_t i = 0; i < 30; i++) {
            assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, i, BODY), RC_OK);
        }
        world_run(world, 2 * NS_PER_S);
        bulk = TAILQ_FIRST(&b->links->bulks);
        assert_true(bulk->is_paused);
        /* What was under way when reading stopped still comes. */
        assert_in_range(bulk->waiting_count, is_full ? 1 : LINK_OPENING_MAX,
                        is_full ? 4 : LINK_OPENING_MAX + 3);
        assert_in_range(b->links->held_bytes - others, (size_t)bulk->waiting_count * BODY,
                        (size_t)bulk->waiting_count * (BODY + 100));
        link_of(b)->control_received += 1000;
        assert_int_equal(side_send(a, b, 1), RC_OK);
        world_run(world, 2 * NS_PER_S);
        assert_int_equal(b->records_count, (is_full + 1) * 31);
        assert_int_equal(b->links->held_bytes, others);
        b->links->held_bytes -= others;
    }
    link_of(b)->control_received -= 1000;
    for (uint32_t i = 0; i < 30; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, i, BODY), RC_OK);
    }
    world_run(world, 2 * NS_PER_S);
    assert_true(b->links->held_bytes > 0);
    world_run(world, LINK_ORDER_NS + LINK_CUT_NS); /* nothing announces them */
    assert_int_equal(b->closed, 1);
    assert_int_equal(b->links->held_bytes, 0);
    world_destroy(world);
}

/* Averaging gets the larger part of a narrow link, and a download is not starved. */
static void averaging_comes_before_downloads_in_parts(void **state)
{
    struct link_world *world = world_of_two(4 * 1024 * 1024);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    unsigned state_records = 0, half;

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_STATE, 2, i, BODY), RC_OK);
    }
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, i, BODY), RC_OK);
    }
    world_run(world, 12 * NS_PER_S);
    assert_int_equal(b->records_count, 400);
    half = 240; /* by then nearly all of the averaging has passed */
    for (unsigned i = 0; i < half; i++) {
        state_records += b->records[i].flags == DATA_STATE;
    }
    assert_in_range(state_records, 60, 110);
    world_destroy(world);
}

/* ---- epochs ---- */

static struct link_world *world_of_rekeying(struct link_rekey first, struct link_rekey second)
{
    struct link_world *world = world_create(1, 0);

    for (uint8_t i = 0; i < 2; i++) {
        struct side *side = world_stranger(world);

        side_describe(side, (uint8_t)(i + 1));
        side->rekey = i == 0 ? first : second;
        side_start(side);
    }
    side_dial(&world->sides[0], &world->sides[1]);
    world_run(world, NS_PER_S);
    return world;
}

/* With keys renewed every few records, every so many bytes or seconds, nothing is lost, and old
 * bulk connections make room for new ones. */
static void keys_are_renewed_under_traffic(void **state)
{
    static const struct link_rekey limits[] = {
        {.records = 40}, {.bytes = 300 * 1024}, {.ns = NS_PER_S / 2}};

    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct link_world *world = world_of_rekeying(limits[i], limits[i]);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        uint32_t epoch;

        for (uint32_t k = 0; k < 300; k++) {
            assert_int_equal(side_send(a, b, k), RC_OK);
            assert_int_equal(side_send(b, a, k), RC_OK);
            if (k % 10 == 0) {
                assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, k, BODY), RC_OK);
                assert_int_equal(side_send_bulk(b, a, DATA_MEAN, 1, k, SMALL), RC_OK);
            }
            world_run(world, TICK_NS);
        }
        world_run(world, 2 * NS_PER_S);
        assert_true(a->records_count == 330 && b->records_count == 330);
        epoch = secure_session(link_of(a)->secure)->epoch;
        assert_int_equal(epoch, secure_session(link_of(b)->secure)->epoch);
        assert_in_range(epoch, 5, 40);
        assert_true(a->closed == 0 && a->opened == 1);
        assert_true(a->links->bulks_count <= 1 && b->links->bulks_count <= 1);
        assert_int_equal(b->links->counts.frames_refused, 0); /* two of a link are enough */
        world_destroy(world);
    }
}

/* Who dialled does not renew: at twice the limit the other side ends the link. */
static void keys_that_nobody_renews_end_the_link(void **state)
{
    static const struct link_rekey limits[] = {
        {.records = 40}, {.bytes = 300 * 1024}, {.ns = 2 * NS_PER_S}};

    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct link_world *world = world_of_rekeying((struct link_rekey){0}, limits[i]);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        uint32_t k = 0;

        while (b->closed == 0 && k < 1000) {
            (void)side_send(a, b, k++);
            if (i == 1) (void)side_send_bulk(a, b, DATA_OFFER, 1, k, BODY);
            world_run(world, TICK_NS);
        }
        assert_true(b->closed == 1);
        if (i == 0) assert_in_range(k, 60, 100);
        if (i == 2) assert_in_range(k, 120, 220);
        world_destroy(world);
    }
}

/* REKEY out of turn is no way to confuse a session: it ends. */
static void a_rekey_out_of_turn_ends_the_link(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct message message = {.type = i == 0 ? MESSAGE_REKEY : MESSAGE_REKEY_ACK};

        message.as.rekey.epoch = 1;
        message.as.rekey.key[0] = 9;
        if (i == 2) { /* by the dialler, but of an epoch far away */
            message.type = MESSAGE_REKEY;
            message.as.rekey.epoch = 7;
        }
        assert_int_equal(links_send(i == 2 ? a->links : b->links, i == 2 ? b->id : a->id, &message),
                         RC_OK);
        world_run(world, NS_PER_S);
        assert_true(a->closed == 1 && b->closed == 1);
        world_destroy(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_has_a_connection_of_its_own),
        cmocka_unit_test(data_is_not_read_before_what_announces_it),
        cmocka_unit_test(an_idle_bulk_connection_is_closed),
        cmocka_unit_test(nothing_is_lost_where_a_connection_is_left),
        cmocka_unit_test(a_lost_bulk_connection_ends_the_link),
        cmocka_unit_test(a_link_takes_its_bulk_connections_along),
        cmocka_unit_test(data_falls_back_on_the_control_connection),
        cmocka_unit_test(an_attach_of_somebody_else_is_refused),
        cmocka_unit_test(a_member_cannot_hold_many_connections),
        cmocka_unit_test(links_share_the_memory_for_records),
        cmocka_unit_test(averaging_comes_before_downloads_in_parts),
        cmocka_unit_test(keys_are_renewed_under_traffic),
        cmocka_unit_test(keys_that_nobody_renews_end_the_link),
        cmocka_unit_test(a_rekey_out_of_turn_ends_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

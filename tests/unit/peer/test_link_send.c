/* link, sending: order, back pressure, what overtakes what, and what is given up. */
#include "tests/unit/peer/link_world.h"

enum { BODY = 64 * 1024, SLOW = 4 * 1024 * 1024 /* bytes a second */ };

/* Far more bulk than the env takes at once arrives whole and in order, and the sender hears once
 * that all of it is on its way. */
static void bulk_waits_for_room_and_keeps_its_order(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 3, i, BODY), RC_OK);
    }
    assert_true(bulk_queued(a->links, b->id) > 100);
    world_run(world, 10 * NS_PER_S);
    assert_int_equal(b->records_count, 200);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(b->records[i].number, i);
        assert_true(b->records[i].stream == 3 && b->records[i].count == BODY);
    }
    assert_int_equal(a->drained, 1);
    assert_int_equal(a->queued_at_drain, 0);
    assert_int_equal(bulk_queued(a->links, b->id), 0);
    world_destroy(world);
}

/* The one frame that the env had no room for counts as waiting: when it goes, that is told. */
static void the_last_frame_refused_is_told_when_it_goes(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    uint32_t sent = 0;

    (void)state;
    while (sent < 40) {
        assert_int_equal(side_send_bulk(a, b, DATA_STATE, 1, sent++, BODY), RC_OK);
    }
    while (bulk_queued(a->links, b->id) > 0 || TAILQ_FIRST(&a->links->bulks)->jobs > 0) {
        world_run(world, TICK_NS);
    }
    assert_true(TAILQ_FIRST(&a->links->bulks)->sealed.count > 0);
    assert_int_equal(a->drained, 0);
    world_run(world, 5 * NS_PER_S);
    assert_int_equal(a->drained, 1);
    assert_int_equal(b->records_count, sent);
    world_destroy(world);
}

/* A control message sent behind a queue of bulk arrives before most of it. */
static void control_overtakes_bulk(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    unsigned place = 0;

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 3, i, BODY), RC_OK);
    }
    assert_int_equal(side_send(a, b, 1), RC_OK);
    assert_int_equal(side_send(a, b, 2), RC_OK);
    world_run(world, 10 * NS_PER_S);
    assert_int_equal(b->records_count, 202);
    while (b->records[place].type == MESSAGE_DATA) {
        place++;
    }
    assert_true(place < 100); /* behind what the env had already taken */
    assert_int_equal(b->records[place].number, 1);
    assert_int_equal(b->records[place + 1].number, 2);
    world_destroy(world);
}

/* Bulk of a round that was given up is not sent any more; all else is, in order. */
static void dropped_bulk_is_not_sent(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    unsigned dropped = 0, kept = 0, mean = 0;

    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        enum data_kind kind = i % 3 == 2 ? DATA_MEAN : DATA_OFFER;

        assert_int_equal(side_send_bulk(a, b, kind, i % 3 == 0 ? 7 : 8, i, BODY), RC_OK);
    }
    links_drop_bulk(a->links, DATA_OFFER, 8);
    world_run(world, 15 * NS_PER_S);
    for (unsigned i = 0; i < b->records_count; i++) {
        if (i > 0) assert_true(b->records[i].number > b->records[i - 1].number);
        kept += b->records[i].stream == 7;
        mean += b->records[i].flags == DATA_MEAN;
        dropped += b->records[i].flags == DATA_OFFER && b->records[i].stream == 8;
    }
    assert_int_equal(kept, 100);
    assert_int_equal(mean, 100);
    assert_true(dropped < 40); /* those the env had taken already */
    assert_int_equal(a->drained, 1);
    world_destroy(world);
}

/* When everything that waited is dropped, whoever waits for room is told all the same. */
static void dropping_all_that_waits_is_told_as_drained(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 8, i, BODY), RC_OK);
    }
    links_drop_bulk(a->links, DATA_OFFER, 8);
    assert_int_equal(bulk_queued(a->links, b->id), 0);
    world_run(world, 15 * NS_PER_S);
    assert_int_equal(a->drained, 1);
    assert_true(b->records_count < 50);
    assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 9, 1, BODY), RC_OK);
    world_run(world, NS_PER_S);
    assert_int_equal(b->records[b->records_count - 1].stream, 9);
    world_destroy(world);
}

/* A peer that reads nothing gets only so many control messages; then its link is closed. */
static void a_full_control_queue_closes_the_link(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    uint32_t sent = 0;
    enum rc rc = RC_OK;

    (void)state;
    sim_host_freeze(world->sim, b->host, true);
    for (; rc == RC_OK; sent++) {
        rc = side_send(a, b, sent % 100);
        if (TAILQ_FIRST(&a->links->all)->sealed == NULL) sent = 0; /* the env's own queue first */
    }
    assert_int_equal(rc, RC_LIMIT);
    assert_in_range(sent, LINK_CONTROL_QUEUE_MAX, LINK_CONTROL_QUEUE_MAX + 4);
    assert_int_equal(a->closed, 0);
    world_run(world, NS_PER_S);
    assert_int_equal(a->closed, 1);
    assert_int_equal(side_send(a, b, 1), RC_CLOSED);
    world_destroy(world);
}

/* The queue of bulk ends at its limit, and the link lives on. */
static void a_full_bulk_queue_refuses_more(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_OFFER, .stream = 1};
    struct blob *body = blob_create(BODY);
    size_t queued = 0;

    (void)state;
    memset(body->bytes, 0xb0, BODY);
    sim_host_freeze(world->sim, b->host, true);
    while (links_send_bulk(a->links, b->id, &header, body) == RC_OK) {
        queued++;
    }
    assert_in_range(queued, LINK_BULK_QUEUE_MAX, LINK_BULK_QUEUE_MAX + 100);
    assert_int_equal(links_send_bulk(a->links, b->id, &header, body), RC_LIMIT);
    links_drop_bulk(a->links, DATA_OFFER, 1);
    assert_int_equal(links_send_bulk(a->links, b->id, &header, body), RC_OK);
    assert_int_equal(links_send_bulk(a->links, a->id, &header, body), RC_CLOSED);
    sim_host_freeze(world->sim, b->host, false);
    world_run(world, 5 * NS_PER_S);
    assert_true(a->closed == 0 && a->drained == 1);
    assert_int_equal(body->references, 1);
    blob_unref(body);
    world_destroy(world);
}

/* A peer that lets more bulk pile up than its swarm can need has stopped reading: the link ends. */
static void bulk_beyond_what_a_round_needs_ends_the_link(void **state)
{
    struct link_world *world = world_of_two(SLOW);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_OFFER, .stream = 1};
    struct blob *body = blob_create(BODY);
    size_t queued = 0;

    (void)state;
    memset(body->bytes, 0xb0, BODY);
    a->links->options.bulk_records_max = 200;
    sim_host_freeze(world->sim, b->host, true);
    while (links_send_bulk(a->links, b->id, &header, body) == RC_OK) {
        queued++;
    }
    assert_in_range(queued, 200, 300);
    assert_int_equal(a->closed, 0);
    world_run(world, NS_PER_S);
    assert_int_equal(a->closed, 1);
    assert_int_equal(body->references, 1);
    blob_unref(body);
    world_destroy(world);
}

/* A body no record can hold is our own mistake: nothing unsealed leaves, and the link ends. */
static void a_body_too_large_sends_no_unsealed_bytes(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct links_counts counts;

    (void)state;
    assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, 0, BULK_BYTES_MAX), RC_OK);
    assert_null(TAILQ_FIRST(&a->links->all)->sealed);
    world_run(world, NS_PER_S);
    assert_true(a->closed == 1 && b->closed == 1);
    links_counts(b->links, &counts);
    assert_int_equal(counts.frames_refused, 0);
    world_destroy(world);
}

/* What could not be sealed for want of memory is tried again before long, without another send. */
static void short_of_memory_is_only_a_delay(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_OFFER, .stream = 1};
    struct blob *body = blob_create(BODY);

    (void)state;
    memset(body->bytes, 0xb0, BODY);
    assert_int_equal(links_send_bulk(a->links, b->id, &header, body), RC_OK); /* makes the queue */
    world_run(world, NS_PER_S);
    mem_fail_after(0);
    assert_int_equal(links_send_bulk(a->links, b->id, &header, body), RC_OK);
    mem_fail_after(UINT64_MAX);
    assert_int_equal(bulk_queued(a->links, b->id), 1);
    assert_true(links_next_ns(a->links) != UINT64_MAX);
    world_run(world, NS_PER_S);
    assert_int_equal(b->records_count, 2);
    assert_true(links_next_ns(a->links) > sim_now_ns(world->sim) + NS_PER_S);
    blob_unref(body);
    world_destroy(world);
}

static const struct env_ops *world_ops;
static unsigned refusals; /* so many sends from now on */

static enum rc send_or_not(struct env *env, uint64_t link, struct blob *frame)
{
    if (refusals > 0) {
        refusals--;
        return RC_NOMEM;
    }
    return world_ops->send(env, link, frame);
}

/* A frame for which the env has no memory is not lost: the records after it would be taken for
 * forged ones, and the link would end. */
static void a_frame_that_the_env_has_no_memory_for_is_sent_later(void **state)
{
    (void)state;
    for (unsigned times = 1; times <= 4; times++) {
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct env_ops ops = *a->env->ops;
        uint32_t number = 0;

        assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, number++, BODY), RC_OK);
        world_run(world, NS_PER_S);
        world_ops = a->env->ops;
        ops.send = send_or_not;
        a->env->ops = &ops;
        for (int is_control = 0; is_control < 2; is_control++) {
            refusals = times;
            if (is_control) assert_int_equal(side_send(a, b, 7), RC_OK);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(side_send_bulk(a, b, DATA_OFFER, 1, number++, BODY), RC_OK);
            }
            world_run(world, 2 * NS_PER_S);
            assert_int_equal(refusals, 0);
            assert_true(links_peer(a->links, b->id, NULL) && links_peer(b->links, a->id, NULL));
            assert_int_equal(b->records_count, is_control ? 8 : 4);
        }
        a->env->ops = world_ops;
        world_destroy(world);
    }
}

/* When memory fails on the way of a control message, it is refused whole or arrives whole. */
static void a_message_is_sent_or_refused(void **state)
{
    (void)state;
    for (uint64_t after = 0; after < 6; after++) {
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        enum rc rc;

        mem_fail_after(after);
        rc = side_send(a, b, 1);
        mem_fail_after(UINT64_MAX);
        assert_true(rc == RC_OK || rc == RC_NOMEM);
        world_run(world, NS_PER_S);
        assert_int_equal(b->records_count, rc == RC_OK ? 1 : 0);
        world_destroy(world);
    }
}

/* A message to all reaches every open link, and one is enough for each. */
static void a_message_to_all_reaches_each_once(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1], *c = world_peer(world, 3);
    struct message message = {.type = MESSAGE_SYNC_REQ};

    (void)state;
    side_dial(c, a);
    world_run(world, NS_PER_S);
    links_send_all(a->links, &message);
    world_run(world, NS_PER_S);
    assert_true(b->records_count == 1 && c->records_count == 1);
    assert_int_equal(a->records_count, 0);
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bulk_waits_for_room_and_keeps_its_order),
        cmocka_unit_test(the_last_frame_refused_is_told_when_it_goes),
        cmocka_unit_test(control_overtakes_bulk),
        cmocka_unit_test(dropped_bulk_is_not_sent),
        cmocka_unit_test(dropping_all_that_waits_is_told_as_drained),
        cmocka_unit_test(a_full_control_queue_closes_the_link),
        cmocka_unit_test(a_full_bulk_queue_refuses_more),
        cmocka_unit_test(bulk_beyond_what_a_round_needs_ends_the_link),
        cmocka_unit_test(a_body_too_large_sends_no_unsealed_bytes),
        cmocka_unit_test(short_of_memory_is_only_a_delay),
        cmocka_unit_test(a_frame_that_the_env_has_no_memory_for_is_sent_later),
        cmocka_unit_test(a_message_is_sent_or_refused),
        cmocka_unit_test(a_message_to_all_reaches_each_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* link: who gets in, who is told why not, and that two peers keep one link. */
#include "tests/unit/peer/link_world.h"

/* A dial ends in one open link; both sides know who the other is, and both can talk. */
static void two_peers_open_a_link_and_talk(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct link_view link;

    (void)state;
    assert_true(a->is_dialled && !b->is_dialled);
    assert_int_equal(a->opened + b->opened, 2);
    assert_true(peer_id_is_equal(a->peer, b->id) && peer_id_is_equal(b->peer, a->id));
    assert_string_equal(a->remote.spec, "mlp");
    assert_true(links_peer(a->links, b->id, &link));
    assert_true(boot_id_is_equal(link.boot, b->hello.boot));
    assert_false(links_peer(a->links, a->id, NULL));
    assert_int_equal(side_send(a, b, 5), RC_OK);
    assert_int_equal(side_send(b, a, 6), RC_OK);
    assert_int_equal(side_send(a, a, 7), RC_CLOSED);
    world_run(world, NS_PER_S);
    assert_int_equal(b->records_count, 1);
    assert_int_equal(b->records[0].number, 5);
    assert_int_equal(a->records[0].number, 6);
    assert_true(b->heard == 1 && a->heard == 1);
    assert_true(links_peer(a->links, b->id, &link) && link.bytes_sent > 0);
    assert_true(link.bytes_received > 0);
    assert_true(links_next_ns(a->links) > sim_now_ns(world->sim) + LINK_REKEY_NS / 2);
    world_destroy(world);
}

/* Hanging up is no event inside the call; afterwards both sides hear that the link is closed. */
static void a_hangup_is_told_to_both(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct links_counts counts;

    (void)state;
    a->is_calling = true;
    links_hangup(a->links, b->id, "it is enough");
    a->is_calling = false;
    assert_int_equal(links_next_ns(a->links), 0);
    world_run(world, NS_PER_S);
    assert_true(a->closed == 1 && b->closed == 1);
    assert_string_equal(a->why, "it is enough");
    assert_true(a->rc == RC_CLOSED && a->links->count == 0 && b->links->count == 0);
    links_counts(a->links, &counts);
    assert_true(counts.bytes_sent > 0 && counts.bytes_received > 0);
    world_destroy(world);
}

static void check_shut_out(struct side *dialler, struct side *other)
{
    struct links_counts counts;

    assert_int_equal(dialler->failed, 1);
    assert_int_equal(dialler->rc, RC_AUTH);
    assert_non_null(strstr(dialler->why, "--swarm-key"));
    assert_non_null(strstr(dialler->why, "--swarm-name"));
    assert_int_equal(dialler->opened + other->opened + other->failed, 0);
    links_counts(other->links, &counts);
    assert_int_equal(counts.handshakes_refused, 1);
    assert_true(dialler->links->count == 0 && other->links->count == 0);
}

/* Whoever has another swarm key or name is shut out at the gate, and told what may be wrong. */
static void another_swarm_is_shut_out(void **state)
{
    static const uint8_t key[SECRET_BYTES] = "some other key, of another swarm";

    (void)state;
    for (int has_key = 0; has_key < 2; has_key++) {
        struct link_world *world = world_create(1, 0);
        struct side *a = world_stranger(world), *b = world_peer(world, 2);

        side_describe(a, 1);
        swarm_secret_derive(has_key ? "test" : "other", has_key ? key : NULL, &a->swarm);
        side_start(a);
        side_dial(a, b);
        world_run(world, NS_PER_S);
        check_shut_out(a, b);
        world_destroy(world);
    }
}

/* A peer with another model is refused, and the sentence it gets names both models. */
static void another_model_is_refused_by_name(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_stranger(world), *b = world_peer(world, 2);

    (void)state;
    side_describe(a, 1);
    a->hello.schema = hash_of("cnn", 3);
    snprintf(a->hello.spec, sizeof a->hello.spec, "conv3x3:8 linear:classes");
    side_start(a);
    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_int_equal(a->failed, 1);
    assert_int_equal(a->rc, RC_MISMATCH);
    assert_non_null(strstr(a->why, "'mlp'"));
    assert_non_null(strstr(a->why, "'conv3x3:8 linear:classes'"));
    assert_int_equal(a->opened + b->opened + b->failed, 0);
    world_destroy(world);
}

static void count_line(void *context, enum log_level level, const char *line)
{
    unsigned *counts = context;

    (void)level;
    counts[strncmp(line, "refused ", 8) == 0 ? 0 : 1]++;
    if (strstr(line, "more connections were refused") != NULL)
        counts[2] = (unsigned)strtoul(line, NULL, 10);
}

/* Who is refused again and again, holder of the key that it is, does not fill the log; how often it
 * was is told, and counted. */
static void not_every_refusal_has_a_line(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_stranger(world), *b = world_peer(world, 2);
    unsigned counts[3] = {0};
    const struct log log = {LOG_DEBUG, count_line, counts};

    (void)state;
    b->links->options.log = &log;
    side_describe(a, 1);
    a->hello.schema = hash_of("cnn", 3);
    side_start(a);
    for (unsigned i = 1; i <= 40; i++) {
        side_dial(a, b);
        world_run(world, NS_PER_S / 2);
        assert_int_equal(a->failed, i);
    }
    assert_int_equal(counts[0], 10);
    assert_int_equal(counts[1], 0);
    world_run(world, 60 * NS_PER_S);
    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_int_equal(counts[0], 11);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 30);
    world_destroy(world);
}

/* One that could never average with the others is told so by both, with what each does. */
static void another_method_is_refused_by_name(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_stranger(world), *b = world_peer(world, 2);

    (void)state;
    side_describe(a, 1);
    snprintf(a->hello.method, sizeof a->hello.method,
             "wire 2, exchange pair, codec f32, rule mean");
    side_start(a);
    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_int_equal(a->failed, 1);
    assert_int_equal(a->rc, RC_MISMATCH);
    assert_non_null(strstr(a->why, "this swarm averages with 'wire 2, exchange group, codec f32"));
    assert_non_null(strstr(a->why, "you with 'wire 2, exchange pair, codec f32, rule mean'"));
    assert_int_equal(a->opened + b->opened + b->failed, 0);
    world_destroy(world);
}

/* So is one of a build that says other things over links, be it older or newer. */
static void another_version_of_the_wire_is_refused_by_name(void **state)
{
    static const struct {
        const char *method, *why;
    } builds[] = {
        {"exchange group, codec f32, rule mean", "this swarm speaks version 2 of the wire, you "
                                                 "version 1: these are unlike builds"},
        {"wire 3, none", "this swarm speaks version 2 of the wire, you version 3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++) {
        struct link_world *world = world_create(1, 0);
        struct side *a = world_stranger(world), *b = world_peer(world, 2);

        side_describe(a, 1);
        snprintf(a->hello.method, sizeof a->hello.method, "%s", builds[i].method);
        side_start(a);
        side_dial(a, b);
        world_run(world, NS_PER_S);
        assert_int_equal(a->rc, RC_MISMATCH);
        assert_non_null(strstr(a->why, builds[i].why));
        assert_int_equal(a->opened + b->opened, 0);
        world_destroy(world);
    }
}

/* One whose model looks alike, but is for other symbols, reads that its data differ. */
static void the_same_model_of_other_data_is_refused(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_stranger(world), *b = world_peer(world, 2);

    (void)state;
    side_describe(a, 1);
    a->hello.schema = hash_of("other symbols", 13);
    side_start(a);
    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_true(a->failed == 1 && a->opened + b->opened == 0);
    assert_int_equal(a->rc, RC_MISMATCH);
    assert_non_null(strstr(a->why, "'mlp' on data of another shape, or with other columns"));
    world_destroy(world);
}

/* A peer that lets everybody in is not linked with either, if its model is another. */
static void a_dialler_refuses_another_model_too(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_stranger(world), *b = world_peer(world, 2);
    const struct link *link = NULL;

    (void)state;
    side_describe(a, 1);
    a->hello.schema = hash_of("cnn", 3);
    side_start(a);
    side_dial(a, b);
    while (link == NULL || link->state != LINK_PROVING) {
        assert_true(sim_step(world->sim));
        link = TAILQ_FIRST(&b->links->all);
    }
    b->links->options.hello.schema = a->hello.schema; /* it has said who it is, and now forgets */
    world_run(world, NS_PER_S);
    assert_true(a->failed == 1 && a->opened == 0 && a->links->count == 0);
    assert_int_equal(a->rc, RC_MISMATCH);
    world_destroy(world);
}

/* An observer has no model, so none can be wrong; its role is known. */
static void an_observer_gets_in_without_a_model(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_stranger(world), *b = world_peer(world, 2);

    (void)state;
    side_describe(a, 1);
    a->hello.role = HELLO_OBSERVER;
    a->hello.schema = (struct digest){{0}};
    a->hello.spec[0] = '\0';
    side_start(a);
    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_true(a->opened == 1 && b->opened == 1);
    assert_int_equal(b->remote.role, HELLO_OBSERVER);
    assert_int_equal(side_send(b, a, 1), RC_OK);
    world_run(world, NS_PER_S);
    assert_int_equal(a->records_count, 1);
    world_destroy(world);
}

/* A peer that reaches itself learns that, with its own id, and keeps no link. */
static void dialling_oneself_is_noticed(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_peer(world, 1);

    (void)state;
    side_dial(a, a);
    world_run(world, NS_PER_S);
    assert_int_equal(a->failed, 1);
    assert_int_equal(a->rc, RC_REPLAY);
    assert_true(a->has_failed_peer && peer_id_is_equal(a->failed_peer, a->id));
    assert_true(a->opened == 0 && a->links->count == 0);
    world_destroy(world);
}

/* Nobody listens there: the dial fails with a sentence, and it may work later. */
static void a_dial_to_nowhere_fails(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *a = world_peer(world, 1);

    (void)state;
    if (links_dial(a->links, "sim:3") == RC_OK) world_run(world, 10 * NS_PER_S);
    assert_int_equal(a->failed, 1);
    assert_true(a->rc == RC_IO || a->rc == RC_TIMEOUT);
    assert_non_null(strstr(a->why, "sim:3 cannot be reached"));
    assert_int_not_equal(links_dial(a->links, "nonsense"), RC_OK);
    assert_int_equal(a->links->count, 0);
    world_destroy(world);
}

/* Two peers that dial each other at once keep one link: the one the smaller id dialled. */
static void simultaneous_dials_keep_one_link(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 40) {
        struct link_world *world = world_create(seed, 0);
        struct side *a = world_peer(world, 1), *b = world_peer(world, 2);
        struct side *small = peer_id_compare(a->id, b->id) < 0 ? a : b;

        side_dial(a, b);
        if (seed % 2 == 0) (void)sim_run(world->sim, sim_now_ns(world->sim) + NS_PER_MS * seed / 5);
        side_dial(b, a);
        world_run(world, NS_PER_S);
        check_seed(seed, a->links->count == 1 && b->links->count == 1);
        check_seed(seed, links_peer(a->links, b->id, NULL) && links_peer(b->links, a->id, NULL));
        check_seed(seed, TAILQ_FIRST(&a->links->all)->is_dialled == (small == a));
        check_seed(seed, TAILQ_FIRST(&b->links->all)->is_dialled == (small == b));
        check_seed(seed, (a->failed == 0 || a->rc == RC_REPLAY));
        check_seed(seed, (b->failed == 0 || b->rc == RC_REPLAY));
        check_seed(seed, side_send(a, b, 1) == RC_OK && side_send(b, a, 2) == RC_OK);
        world_run(world, NS_PER_S);
        check_seed(seed, a->records_count == 1 && b->records_count == 1);
        world_destroy(world);
    }
}

/* Another start of peer 2 on a host of its own. */
static struct side *another_start_of(struct link_world *world, const struct side *old,
                                     uint64_t incarnation)
{
    struct side *side = world_stranger(world);

    side_describe(side, 2);
    assert_true(peer_id_is_equal(side->id, old->id));
    side->hello.boot.bytes[0] ^= 1;
    side->hello.incarnation = incarnation;
    side_start(side);
    return side;
}

/* A second process with one identity is refused, whoever dials and whatever incarnation it claims:
 * the first one answers, so its link stays. */
static void a_duplicate_identity_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool is_dialled = i % 2 == 1;
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct side *copy = another_start_of(world, b, i < 2 ? 1 : 9);
        struct side *dialler = is_dialled ? a : copy;
        struct link_view link;

        side_dial(dialler, is_dialled ? copy : a);
        world_run(world, NS_PER_S);
        assert_int_equal(dialler->failed, 1);
        assert_int_equal(dialler->rc, RC_REFUSED);
        assert_non_null(strstr(dialler->why, "same identity"));
        assert_true(a->closed == 0 && a->opened == 1 && a->links->count == 1);
        assert_true(links_peer(a->links, b->id, &link));
        assert_true(boot_id_is_equal(link.boot, b->hello.boot));
        assert_int_equal(copy->links->count, 0);
        assert_int_equal(side_send(a, b, 1), RC_OK);
        world_run(world, NS_PER_S);
        assert_int_equal(b->records_count, 1);
        world_destroy(world);
    }
}

/* A peer that was started again takes the place of its former life, whoever dials. */
static void a_restarted_peer_replaces_its_former_life(void **state)
{
    (void)state;
    for (int is_dialled = 0; is_dialled < 2; is_dialled++) {
        struct link_world *world = world_of_two(0);
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct side *again = another_start_of(world, b, 2);
        struct link_view link;

        b->is_deaf = true; /* its machine lost power, nobody has noticed */
        side_dial(is_dialled ? a : again, is_dialled ? again : a);
        world_run(world, NS_PER_S);
        assert_int_equal(a->closed + again->opened, is_dialled); /* a dialled one is let in */
        world_run(world, LINK_DUEL_NS);
        assert_true(a->closed == 1 && a->opened == 2 && a->failed == 0 && again->opened == 1);
        assert_non_null(strstr(a->why, "started again"));
        assert_true(links_peer(a->links, b->id, &link));
        assert_true(boot_id_is_equal(link.boot, again->hello.boot));
        assert_true(a->links->count == 1 && b->links->count == 0 && b->closed == 1);
        world_destroy(world);
    }
}

/* A reconnect of the same life replaces the link: the other side had not noticed its end. */
static void a_second_dial_of_one_side_replaces_the_first(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];

    (void)state;
    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_true(a->links->count == 1 && b->links->count == 1);
    assert_true(links_peer(a->links, b->id, NULL) && links_peer(b->links, a->id, NULL));
    assert_int_equal(side_send(b, a, 1), RC_OK);
    world_run(world, NS_PER_S);
    assert_int_equal(a->records_count, 1);
    world_destroy(world);
}

/* ---- strangers ---- */

/* The first message of a dialler that belongs to the swarm, as it stands on the wire. */
static void first_message(struct side *side, uint8_t *out, size_t *count)
{
    struct static_key key;
    struct swarm_secret swarm;
    struct secure_options options = {.is_initiator = true,
                                     .swarm = &swarm,
                                     .key = &key,
                                     .payload = (const uint8_t *)"x",
                                     .payload_bytes = 1};
    struct secure *secure;

    swarm_secret_derive("test", NULL, &swarm);
    side->env->ops->entropy(side->env, options.ephemeral_seed, SECRET_BYTES);
    static_key_from_seed(options.ephemeral_seed, &key);
    secure = secure_create(&options);
    assert_non_null(secure);
    assert_int_equal(secure_greet(secure, out, count), RC_OK);
    secure_destroy(secure);
}

/* Who says nothing is hung up after the gate's time, without having been sent a byte. */
static void a_silent_stranger_is_hung_up(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *b = world_peer(world, 2), *stranger = world_stranger(world);
    uint64_t begun = sim_now_ns(world->sim);

    (void)state;
    stranger_dial(stranger, b);
    world_run(world, LINK_GATE_NS - TICK_NS);
    assert_int_equal(b->links->count, 1);
    world_run(world, NS_PER_S);
    assert_true(stranger->lost == 1 && stranger->frames == 0 && b->links->count == 0);
    assert_true(stranger->lost_ns >= begun + LINK_GATE_NS);
    assert_int_equal(b->opened + b->failed + b->closed, 0);
    world_destroy(world);
}

/* Who passes the gate and falls silent has the time of a handshake, and no more. */
static void a_handshake_that_stops_is_hung_up(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *b = world_peer(world, 2), *stranger = world_stranger(world);
    uint8_t first[HANDSHAKE_BYTES_MAX];
    size_t count;

    (void)state;
    first_message(stranger, first, &count);
    stranger_dial(stranger, b);
    world_run(world, NS_PER_S / 10);
    stranger_send(stranger, first, count);
    world_run(world, LINK_HANDSHAKE_NS - NS_PER_S);
    assert_true(stranger->frames == 1 && stranger->lost == 0 && b->links->count == 1);
    world_run(world, 2 * NS_PER_S);
    assert_true(stranger->lost == 1 && b->links->count == 0);
    world_destroy(world);
}

/* Strangers that hold connections open do not use up the links: the host that has most of them
 * loses its oldest, so that a slow one from elsewhere can still greet, and members come in. */
static void many_silent_strangers_keep_nobody_out(void **state)
{
    enum { STRANGERS = 2 * GATE_WAITING_MAX };
    const uint64_t first = UINT64_C(1) << 60; /* numbers no real connection has here */
    struct link_world *world = world_create(1, 0);
    struct side *b = world_peer(world, 2), *a = world_peer(world, 1);
    struct links_counts counts;
    char remote[ADDRESS_BYTES_MAX];

    (void)state;
    links_on_accepted(b->links, first, "198.51.100.9:1000");
    for (uint64_t i = 1; i <= STRANGERS; i++) {
        snprintf(remote, sizeof remote, "192.0.2.1:%u", (unsigned)i);
        links_on_accepted(b->links, first + i, remote);
    }
    assert_int_equal(b->links->count, GATE_WAITING_MAX);
    assert_non_null(link_find(b->links, first));
    assert_null(link_find(b->links, first + 1));
    assert_non_null(link_find(b->links, first + STRANGERS));
    side_dial(a, b);
    world_run(world, NS_PER_S);
    assert_true(links_peer(a->links, b->id, NULL) && links_peer(b->links, a->id, NULL));
    world_run(world, 2 * NS_PER_S);
    assert_int_equal(b->links->count, 1);
    links_counts(b->links, &counts);
    assert_int_equal(counts.handshakes_refused, STRANGERS + 1);
    world_destroy(world);
}

/* A first message that was overheard and sent again gets no answer. */
static void a_replayed_first_message_is_refused(void **state)
{
    struct link_world *world = world_create(1, 0);
    struct side *b = world_peer(world, 2);
    struct side *honest = world_stranger(world), *thief = world_stranger(world);
    uint8_t first[HANDSHAKE_BYTES_MAX];
    struct links_counts counts;
    size_t count;

    (void)state;
    first_message(honest, first, &count);
    stranger_dial(honest, b);
    stranger_dial(thief, b);
    world_run(world, NS_PER_S / 10);
    stranger_send(honest, first, count);
    world_run(world, NS_PER_S / 10);
    assert_int_equal(honest->frames, 1);
    stranger_send(thief, first, count);
    world_run(world, NS_PER_S);
    assert_true(thief->frames == 0 && thief->lost == 1 && honest->lost == 0);
    links_counts(b->links, &counts);
    assert_int_equal(counts.gate.replayed, 1);
    world_destroy(world);
}

/* Bytes of another protocol, or of none, end the connection without an answer. */
static void garbage_is_not_answered(void **state)
{
    static const char *const greetings[] = {
        "GET / HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\x01\xfc\x03\x03 a client of TLS, more or less",
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        "GRPV\x01\x01\x40\x7f the right beginning, and then 64 bytes that no gate will let in....",
    };

    (void)state;
    for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
        struct link_world *world = world_create(1, 0);
        struct side *b = world_peer(world, 2), *stranger = world_stranger(world);
        struct links_counts counts;

        stranger->greeting = greetings[i];
        stranger_dial(stranger, b);
        world_run(world, 3 * NS_PER_S);
        assert_true(stranger->lost == 1 && stranger->frames == 0 && b->links->count == 0);
        links_counts(b->links, &counts);
        assert_int_equal(counts.handshakes_refused, 1);
        world_destroy(world);
    }
}

/* A dial that reaches something else says so, whether that speaks or is silent. */
static void dialling_something_else_says_so(void **state)
{
    static const char *const greetings[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", NULL};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct link_world *world = world_create(1, 0);
        struct side *a = world_peer(world, 1), *stranger = world_stranger(world);

        stranger->greeting = greetings[i];
        side_dial(a, stranger);
        world_run(world, LINK_HANDSHAKE_NS + NS_PER_S);
        assert_int_equal(a->failed, 1);
        assert_int_equal(a->rc, RC_AUTH);
        assert_non_null(strstr(a->why, "not a grapevine peer"));
        assert_true(a->links->count == 0 && stranger->lost == 1);
        world_destroy(world);
    }
}

/* A record nobody of this session sealed ends the link, on both sides. */
static void a_forged_record_ends_the_link(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    uint8_t forged[RECORD_HEADER_BYTES + 32 + RECORD_TAG_BYTES] = {32};
    struct links_counts counts;

    (void)state;
    links_on_frame(b->links, TAILQ_FIRST(&b->links->all)->number, forged, sizeof forged);
    world_run(world, NS_PER_S);
    assert_true(b->closed == 1 && b->rc == RC_AUTH && a->closed == 1);
    assert_int_equal(b->violations, 0); /* it may be anybody's on the path */
    assert_int_equal(b->records_count, 0);
    links_counts(b->links, &counts);
    assert_int_equal(counts.frames_refused, 1);
    links_on_frame(b->links, 12345, forged, sizeof forged); /* of a link long gone: nothing */
    world_destroy(world);
}

/* A record that opens and is against the protocol is its sender's doing, and is told. */
static void a_violation_is_its_senders(void **state)
{
    struct link_world *world = world_of_two(0);
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct blob *inner = blob_create(INNER_HEADER_BYTES + 5);

    (void)state;
    assert_non_null(inner);
    memset(inner->bytes, 0, inner->count);
    inner->bytes[0] = MESSAGE_PING;
    memcpy(inner->bytes + INNER_HEADER_BYTES, "\xdd\xff\xff\xff\xff", 5);
    assert_int_equal(CALL(a, links_send_inner(a->links, b->id, inner)), RC_OK);
    blob_unref(inner);
    world_run(world, NS_PER_S);
    assert_true(b->closed == 1 && a->closed == 1 && b->violations == 1 && a->violations == 0);
    world_destroy(world);
}

/* When memory fails anywhere on the way to a link, both sides agree whether there is one, and the
 * next dial makes it. */
static void no_memory_is_a_refused_link_not_a_crash(void **state)
{
    (void)state;
    for (uint64_t after = 0; after < 24; after++) {
        struct link_world *world = world_create(1, 0);
        struct side *a = world_peer(world, 1), *b = world_peer(world, 2);

        mem_fail_after(after);
        if (links_dial(a->links, b->address) == RC_OK) world_run(world, 7 * NS_PER_S);
        mem_fail_after(UINT64_MAX);
        world_run(world, NS_PER_S);
        assert_int_equal(links_peer(a->links, b->id, NULL), links_peer(b->links, a->id, NULL));
        if (!links_peer(a->links, b->id, NULL)) {
            side_dial(a, b);
            world_run(world, NS_PER_S);
        }
        assert_true(links_peer(a->links, b->id, NULL) && links_peer(b->links, a->id, NULL));
        assert_true(a->links->count == 1 && b->links->count == 1);
        world_destroy(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_peers_open_a_link_and_talk),
        cmocka_unit_test(a_hangup_is_told_to_both),
        cmocka_unit_test(another_swarm_is_shut_out),
        cmocka_unit_test(another_model_is_refused_by_name),
        cmocka_unit_test(not_every_refusal_has_a_line),
        cmocka_unit_test(another_method_is_refused_by_name),
        cmocka_unit_test(another_version_of_the_wire_is_refused_by_name),
        cmocka_unit_test(the_same_model_of_other_data_is_refused),
        cmocka_unit_test(a_dialler_refuses_another_model_too),
        cmocka_unit_test(an_observer_gets_in_without_a_model),
        cmocka_unit_test(dialling_oneself_is_noticed),
        cmocka_unit_test(a_dial_to_nowhere_fails),
        cmocka_unit_test(simultaneous_dials_keep_one_link),
        cmocka_unit_test(a_duplicate_identity_is_refused),
        cmocka_unit_test(a_restarted_peer_replaces_its_former_life),
        cmocka_unit_test(a_second_dial_of_one_side_replaces_the_first),
        cmocka_unit_test(a_silent_stranger_is_hung_up),
        cmocka_unit_test(many_silent_strangers_keep_nobody_out),
        cmocka_unit_test(a_handshake_that_stops_is_hung_up),
        cmocka_unit_test(a_replayed_first_message_is_refused),
        cmocka_unit_test(garbage_is_not_answered),
        cmocka_unit_test(dialling_something_else_says_so),
        cmocka_unit_test(a_forged_record_ends_the_link),
        cmocka_unit_test(a_violation_is_its_senders),
        cmocka_unit_test(no_memory_is_a_refused_link_not_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

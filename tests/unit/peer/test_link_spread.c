/* link, several bulk connections beside each other: more is carried over a long way with loss,
 * order is kept where it is promised, nothing is lost or comes twice, and the places are shared. */
#include "tests/unit/peer/link_world.h"

#include "gossip/wire/limits.h"

enum { BODY = 64 * 1024, SMALL = 1000, RECORDS = 100, MANY = 400, CIRCUIT = 7 };
#define FAR_NS (50 * NS_PER_MS)

/* Two peers far from each other, the first has dialled. Which of them has no BBR: bits. */
static struct link_world *world_far(uint64_t seed, double loss, unsigned without_bbr,
                                    struct link_rekey rekey)
{
    struct link_world *world = world_create(seed, 0);
    struct sim_path path = {.latency_ns = FAR_NS, .jitter_ns = NS_PER_MS, .loss = loss};

    for (unsigned i = 0; i < 2; i++) {
        struct side *side = world_stranger(world);

        side_describe(side, (uint8_t)(i + 1));
        side->rekey = rekey;
        side_start(side);
        sim_host_faults(world->sim, side->host)->refuses_bbr = (without_bbr >> i & 1) != 0;
    }
    sim_path_set(world->sim, world->sides[0].host, world->sides[1].host, &path);
    sim_path_set(world->sim, world->sides[1].host, world->sides[0].host, &path);
    side_dial(&world->sides[0], &world->sides[1]);
    while (!links_peer(world->sides[1].links, world->sides[0].id, NULL)) {
        check_seed(seed, sim_now_ns(world->sim) < 60 * NS_PER_S);
        world_run(world, NS_PER_S);
    }
    return world;
}

/* Chunks, and among them the bytes of a circuit, both numbered from `first`. */
static void send_mixed(struct side *from, const struct side *to, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        assert_int_equal(side_send_bulk(from, to, DATA_OFFER, 1, i, BODY), RC_OK);
        assert_int_equal(side_send_bulk(from, to, DATA_RELAY, CIRCUIT, i, SMALL), RC_OK);
    }
}

/* Every record of send_mixed() up to `count` once; those of the circuit in order. How many chunks
 * came before one that was sent earlier: */
static unsigned check_mixed(uint64_t seed, const struct side *side, uint32_t count)
{
    bool has_come[MANY] = {false};
    uint32_t chunks = 0, next = 0;
    unsigned overtaken = 0;
    uint64_t last = 0;

    check_seed(seed, count <= MANY);
    for (unsigned i = 0; i < side->records_count; i++) {
        const struct noted_record *record = &side->records[i];

        if (record->flags == DATA_RELAY) {
            check_seed(seed, record->number == next++);
            continue;
        }
        check_seed(seed, record->number < count && !has_come[record->number]);
        has_come[record->number] = true;
        overtaken += record->number < last;
        last = record->number;
        chunks++;
    }
    check_seed(seed, chunks == count && next == count);
    return overtaken;
}

static uint64_t time_to_carry(uint64_t seed, unsigned without_bbr, bool is_dialler,
                              uint32_t *connections, unsigned *overtaken)
{
    struct link_world *world = world_far(seed, 0.01, without_bbr, (struct link_rekey){0});
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct side *from = is_dialler ? a : b, *to = is_dialler ? b : a;
    uint64_t began_ns = sim_now_ns(world->sim), took_ns;

    *connections = 0;
    send_mixed(from, to, 0, MANY);
    while (to->records_count < 2 * MANY) {
        check_seed(seed, sim_now_ns(world->sim) < began_ns + 600 * NS_PER_S);
        world_run(world, NS_PER_S / 10);
        check_seed(seed, a->links->bulks_count <= LINK_BULKS_SPREAD);
        if (b->links->bulks_count > *connections) *connections = b->links->bulks_count;
    }
    took_ns = sim_now_ns(world->sim) - began_ns;
    *overtaken = check_mixed(seed, to, MANY);
    check_seed(seed, a->closed == 0 && b->closed == 0);
    world_run(world, 3 * LINK_BULK_IDLE_NS); /* and all of them are given back */
    check_seed(seed, a->links->bulks_count == 0 && b->links->bulks_count == 0);
    check_seed(seed, a->closed == 0 && b->closed == 0);
    world_destroy(world);
    return took_ns;
}

/* Over all seeds: single ones meet with a first connection that comes too late, see
 * peer/link/bulk.c. */
static void four_carry_more_where_one_loss_halves_the_rate(void **state)
{
    (void)state;
    for (int is_dialler = 0; is_dialler < 2; is_dialler++) {
        unsigned sender = is_dialler ? 1 : 2, overtaken;
        uint64_t one_ns = 0, four_ns = 0;
        uint32_t connections;

        FOR_EACH_SEED (seed, 2) {
            /* That the receiver has no BBR does not count. */
            one_ns += time_to_carry(seed, 3 - sender, is_dialler, &connections, &overtaken);
            check_seed(seed, connections == 1 && overtaken == 0);
            four_ns += time_to_carry(seed, sender, is_dialler, &connections, &overtaken);
            check_seed(seed, connections == LINK_BULKS_SPREAD && overtaken > 0);
        }
        assert_true(2 * four_ns < one_ns);
    }
}

/* Keys are renewed, so all connections are left and others opened, while both sides send. */
static void nothing_is_lost_where_connections_are_renewed(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct link_world *world = world_far(seed, 0.001, 3, (struct link_rekey){.records = 40});
        struct side *a = &world->sides[0], *b = &world->sides[1];

        for (uint32_t i = 0; i < RECORDS; i += 10) {
            send_mixed(a, b, i, 10);
            send_mixed(b, a, i, 10);
            world_run(world, 2 * NS_PER_S);
            check_seed(seed, a->links->bulks_count <= LINK_BULKS_OF_ONE);
        }
        world_run(world, 30 * NS_PER_S);
        check_seed(seed, secure_session(TAILQ_FIRST(&a->links->all)->secure)->epoch >= 2);
        (void)check_mixed(seed, a, RECORDS);
        (void)check_mixed(seed, b, RECORDS);
        check_seed(seed, a->closed == 0 && b->closed == 0);
        world_destroy(world);
    }
}

/* What a dying connection carried may be lost, so the link ends at both sides; nothing comes twice,
 * and the next link is spread again. */
static void a_lost_one_of_several_ends_the_link(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 12) {
        struct link_world *world = world_far(seed, 0.0, 3, (struct link_rekey){0});
        struct side *a = &world->sides[0], *b = &world->sides[1];
        struct side *side = seed % 2 == 0 ? a : b;
        struct bulk *victim;
        bool has_come[RECORDS] = {false};

        send_mixed(a, b, 0, 10);
        world_run(world, NS_PER_S);
        check_seed(seed, b->links->bulks_count == LINK_BULKS_SPREAD);
        b->records_count = 0;
        for (uint32_t i = 0; i < RECORDS; i++) {
            check_seed(seed, side_send_bulk(a, b, DATA_OFFER, 2, i, BODY) == RC_OK);
        }
        world_run(world, (20 + seed) * NS_PER_MS);
        victim = TAILQ_FIRST(&side->links->bulks);
        for (uint64_t i = 0; i < seed / 2 % LINK_BULKS_SPREAD; i++) {
            victim = TAILQ_NEXT(victim, siblings);
        }
        side->env->ops->hangup(side->env, victim->number);
        links_on_lost(side->links, victim->number, RC_IO, "reset");
        world_run(world, 5 * NS_PER_S);
        check_seed(seed, a->closed == 1 && b->closed == 1);
        check_seed(seed, a->links->bulks_count == 0 && b->links->bulks_count == 0);
        for (unsigned i = 0; i < b->records_count; i++) {
            check_seed(seed, !has_come[b->records[i].number]);
            has_come[b->records[i].number] = true;
        }
        side_dial(a, b);
        world_run(world, NS_PER_S);
        b->records_count = 0;
        send_mixed(a, b, 0, RECORDS);
        world_run(world, 5 * NS_PER_S);
        (void)check_mixed(seed, b, RECORDS);
        check_seed(seed, b->links->bulks_count == LINK_BULKS_SPREAD);
        world_destroy(world);
    }
}

static uint32_t connections_after(struct link_world *world)
{
    struct side *a = &world->sides[0], *b = &world->sides[1];
    uint32_t count;

    for (uint32_t i = 0; i < 60; i += 20) {
        send_mixed(a, b, i, 20);
        send_mixed(b, a, i, 20);
        world_run(world, 8 * NS_PER_S);
    }
    (void)check_mixed(1, a, 60);
    (void)check_mixed(1, b, 60);
    assert_true(a->closed == 0 && b->closed == 0);
    count = b->links->bulks_count;
    world_destroy(world);
    return count;
}

static void one_is_enough_on_a_short_way_or_with_bbr(void **state)
{
    struct link_world *world = world_of_two(0);

    (void)state;
    sim_host_faults(world->sim, world->sides[0].host)->refuses_bbr = true;
    sim_host_faults(world->sim, world->sides[1].host)->refuses_bbr = true;
    assert_int_equal(connections_after(world), 1);
    assert_int_equal(connections_after(world_far(1, 0.0, 0, (struct link_rekey){0})), 1);
    assert_int_equal(connections_after(world_far(1, 0.0, 3, (struct link_rekey){0})),
                     LINK_BULKS_SPREAD);
}

/* Half of the places are for those who have one: there a neighbour cannot take more than two,
 * whichever side is short of them, and DATA flows. */
static void where_places_are_few_nobody_has_four(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct link_world *world = world_far(1, 0.0, 3, (struct link_rekey){0});
        struct links *links = world->sides[i].links;
        uint32_t taken = LINK_BULKS_MAX / 2, most = LINK_BULKS_PLAIN;

        links->bulks_count += taken;
        send_mixed(&world->sides[0], &world->sides[1], 0, RECORDS);
        world_run(world, 20 * NS_PER_S);
        (void)check_mixed(1, &world->sides[1], RECORDS);
        assert_true(links->bulks_count >= taken + 1 && links->bulks_count <= taken + most);
        assert_true(world->sides[0].closed == 0 && world->sides[1].closed == 0);
        assert_true(links->counts.frames_refused == 0 || i == 1);
        links->bulks_count -= taken;
        world_destroy(world);
    }
}

/* The bytes of a circuit would all take one: they are no reason to open more. */
static void a_circuit_takes_one(void **state)
{
    struct link_world *world = world_far(1, 0.0, 3, (struct link_rekey){0});
    struct side *a = &world->sides[0], *b = &world->sides[1];

    (void)state;
    for (uint32_t i = 0; i < RECORDS; i++) {
        assert_int_equal(side_send_bulk(a, b, DATA_RELAY, CIRCUIT, i, SMALL), RC_OK);
    }
    world_run(world, 2 * NS_PER_S);
    assert_int_equal(b->records_count, RECORDS);
    assert_int_equal(b->links->bulks_count, 1);
    world_destroy(world);
}

/* Asking again and again, and for more than there may be, brings no more. */
static void asking_for_more_brings_four(void **state)
{
    struct link_world *world = world_far(1, 0.0, 0, (struct link_rekey){0});
    struct side *a = &world->sides[0], *b = &world->sides[1];
    struct message message = {.type = MESSAGE_OPEN_REQ};

    (void)state;
    message.as.open_req.count = BULK_CONNECTIONS_MAX;
    assert_int_equal(CALL(b, links_send(b->links, a->id, &message)), RC_OK);
    world_run(world, NS_PER_S);
    assert_int_equal(b->links->bulks_count, 1); /* the first one alone */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(CALL(b, links_send(b->links, a->id, &message)), RC_OK);
        world_run(world, 30 * NS_PER_MS);
        assert_true(a->links->bulks_count <= LINK_BULKS_SPREAD);
    }
    world_run(world, NS_PER_S);
    assert_int_equal(b->links->bulks_count, LINK_BULKS_SPREAD);
    assert_true(a->closed == 0 && b->closed == 0);
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_carry_more_where_one_loss_halves_the_rate),
        cmocka_unit_test(nothing_is_lost_where_connections_are_renewed),
        cmocka_unit_test(a_lost_one_of_several_ends_the_link),
        cmocka_unit_test(one_is_enough_on_a_short_way_or_with_bbr),
        cmocka_unit_test(where_places_are_few_nobody_has_four),
        cmocka_unit_test(a_circuit_takes_one),
        cmocka_unit_test(asking_for_more_brings_four),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* link_observer: observers take no neighbour's place, and what they may ask for is bounded. */
#include "tests/unit/peer/link_world.h"

enum { ALL = LINK_OBSERVERS_MAX };

static struct side *world_observer(struct link_world *world, uint8_t number)
{
    struct side *side = world_stranger(world);

    side_describe(side, number);
    side->hello.role = HELLO_OBSERVER;
    side_start(side);
    return side;
}

/* Side 0 is a peer, and those that follow are observers that have a link with it. */
static struct link_world *world_observed(unsigned count)
{
    struct link_world *world = world_create(1, 0);
    struct side *peer = world_peer(world, 1);

    for (unsigned i = 0; i < count; i++) {
        side_dial(world_observer(world, (uint8_t)(10 + i)), peer);
    }
    world_run(world, NS_PER_S);
    assert_int_equal(peer->opened, count);
    return world;
}

static void ask(struct link_world *world, struct side *side, unsigned times)
{
    struct message message = {.type = MESSAGE_STATUS_REQ};

    world->sides[0].peer = side->id; /* who is heard next */
    for (unsigned i = 0; i < times; i++) {
        assert_int_equal(CALL(side, links_send(side->links, world->sides[0].id, &message)), RC_OK);
    }
    world_run(world, 40 * NS_PER_MS);
}

/* One too many is told so while all others are fresh; neighbours have room all the same. */
static void there_are_only_so_many_observers(void **state)
{
    struct link_world *world = world_observed(ALL);
    struct side *peer = &world->sides[0], *late = world_observer(world, 99);
    struct side *neighbour = world_peer(world, 2);

    (void)state;
    side_dial(late, peer);
    world_run(world, NS_PER_S);
    assert_true(late->failed == 1 && late->opened == 0 && late->rc == RC_BUSY);
    assert_non_null(strstr(late->why, "as many observers"));
    side_dial(neighbour, peer);
    world_run(world, NS_PER_S);
    assert_true(neighbour->opened == 1 && peer->opened == ALL + 1);
    world_destroy(world);
}

/* The one that has asked nothing for longest makes room, and all that ask nothing go in the end. */
static void an_idle_observer_goes(void **state)
{
    struct link_world *world = world_observed(ALL);
    struct side *peer = &world->sides[0], *late = world_observer(world, 99);
    struct side *neighbour = world_peer(world, 2);

    (void)state;
    side_dial(neighbour, peer);
    world_run(world, 6 * NS_PER_S);
    for (unsigned i = 1; i <= ALL; i++) {
        if (i != 5) ask(world, &world->sides[i], 1);
    }
    side_dial(late, peer);
    world_run(world, NS_PER_S);
    assert_true(late->opened == 1 && peer->closed == 1 && world->sides[5].closed == 1);
    world_run(world, 40 * NS_PER_S);
    ask(world, &world->sides[3], 1);
    world_run(world, 30 * NS_PER_S);
    assert_int_equal(peer->closed, ALL);
    assert_true(links_peer(peer->links, world->sides[3].id, NULL));
    world_run(world, 40 * NS_PER_S);
    assert_int_equal(peer->closed, ALL + 1);
    assert_true(links_peer(peer->links, neighbour->id, NULL));
    world_destroy(world);
}

/* Four questions a second of one, twenty of all; the rest is not passed on. */
static void who_asks_too_often_is_not_answered(void **state)
{
    struct link_world *world = world_observed(10);
    struct side *peer = &world->sides[0];

    (void)state;
    ask(world, &world->sides[1], 40);
    assert_int_equal(peer->records_count, 4);
    world_run(world, NS_PER_S);
    ask(world, &world->sides[1], 40);
    assert_int_equal(peer->records_count, 8);
    world_run(world, 2 * NS_PER_S);
    peer->records_count = 0;
    for (unsigned i = 1; i <= 10; i++) {
        ask(world, &world->sides[i], 4);
    }
    assert_in_range(peer->records_count, 20, 28); /* some time passes meanwhile: 0.4 s */
    world_destroy(world);
}

/* Who was a neighbour and comes back as an observer is a neighbour no more: the node hears it. */
static void a_change_of_role_is_told(void **state)
{
    struct link_world *world = world_observed(0);
    struct side *peer = &world->sides[0], *a = world_peer(world, 2), *b;

    (void)state;
    side_dial(a, peer);
    world_run(world, NS_PER_S);
    b = world_observer(world, 2); /* of the same identity and boot */
    side_dial(b, peer);
    world_run(world, NS_PER_S);
    assert_true(peer->opened == 2 && peer->closed == 1);
    assert_int_equal(peer->remote.role, HELLO_OBSERVER);
    world_destroy(world);
}

/* As if its other end were there. */
static void place_at(struct side *peer, const struct side *observer, const char *address)
{
    struct link *link = link_find_peer(peer->links, observer->id);

    assert_non_null(link);
    snprintf(link->address, sizeof link->address, "%s", address);
}

static bool is_let_in(struct side *peer, const char *address, bool is_dialled)
{
    struct link late = {.remote.role = HELLO_OBSERVER, .is_dialled = is_dialled};

    snprintf(late.address, sizeof late.address, "%s", address);
    return link_has_room(peer->links, &late);
}

/* Whoever holds all places, and asks on and on, keeps out nobody at another host, nor who sits at
 * this machine. */
static void nobody_keeps_other_observers_out(void **state)
{
    struct link_world *world = world_observed(ALL);
    struct side *peer = &world->sides[0];

    (void)state;
    for (unsigned i = 1; i <= ALL; i++) {
        place_at(peer, &world->sides[i], i == 1 ? "127.0.0.1:9" : "203.0.113.9:1024");
    }
    assert_false(is_let_in(peer, "203.0.113.9:2000", false)); /* its own are fresh */
    assert_false(is_let_in(peer, "[::ffff:203.0.113.9]:2000", false));
    assert_int_equal(peer->closed, 0);
    assert_true(is_let_in(peer, "203.0.113.10:2000", false));
    assert_int_equal(peer->closed, 1);
    assert_true(links_peer(peer->links, world->sides[1].id, NULL)); /* not at the owner's cost */
    world_destroy(world);

    world = world_observed(ALL);
    peer = &world->sides[0];
    for (unsigned i = 1; i <= ALL; i++) {
        char address[ADDRESS_BYTES_MAX];

        snprintf(address, sizeof address, "203.0.113.%u:1", i);
        place_at(peer, &world->sides[i], address);
    }
    assert_false(is_let_in(peer, "203.0.113.5:2000", false));
    assert_true(is_let_in(peer, "203.0.113.77:2000", false));
    world_destroy(world);

    world = world_observed(ALL);
    peer = &world->sides[0]; /* all of one host, as far as can be told */
    assert_false(is_let_in(peer, "127.0.0.1.example:5", false));
    assert_true(is_let_in(peer, "127.0.0.1:5", false));
    assert_int_equal(peer->closed, 1);
    world_destroy(world);
}

/* However much others ask, an observer's first question is answered, and one a second. */
static void nobody_uses_up_all_answers(void **state)
{
    struct link_world *world = world_observed(12);
    struct side *peer = &world->sides[0];

    (void)state;
    for (int second = 0; second < 3; second++) {
        for (unsigned i = 1; i < 12; i++) {
            ask(world, &world->sides[i], 4);
        }
        peer->records_count = 0;
        ask(world, &world->sides[12], 1);
        assert_int_equal(peer->records_count, 1);
        world_run(world, NS_PER_S);
    }
    world_destroy(world);
}

/* While two processes with one identity are told apart, the place of the first may be taken. */
static void a_duel_is_won_only_for_a_place(void **state)
{
    struct link_world *world = world_observed(ALL);
    struct side *peer = &world->sides[0], *first = &world->sides[1];
    struct side *second = world_stranger(world), *late = world_observer(world, 99);

    (void)state;
    for (unsigned i = 1; i <= ALL; i++) {
        ask(world, &world->sides[i], 1);
    }
    peer->peer = first->id;
    first->is_deaf = true;
    side_describe(second, 10);
    second->hello.role = HELLO_OBSERVER;
    memset(second->hello.boot.bytes, 77, BOOT_ID_BYTES);
    side_start(second);
    side_dial(second, peer);
    world_run(world, 100 * NS_PER_MS);
    assert_int_equal(peer->opened, ALL); /* it waits */
    links_destroy(first->links);
    first->links = NULL;
    side_dial(late, peer);
    world_run(world, 4 * NS_PER_S);
    assert_true(peer->opened == ALL + 1 && late->opened == 1 && second->opened == 0);
    assert_true(second->failed == 1 && second->rc == RC_BUSY);
    world_destroy(world);
}

/* Whatever it is asked to, an observer opens no bulk connection, so that none of its jobs is under
 * way when it leaves. */
static void an_observer_has_no_bulk_connections(void **state)
{
    struct link_world *world = world_observed(1);
    struct side *peer = &world->sides[0], *observer = &world->sides[1];

    (void)state;
    assert_int_equal(side_send_bulk(peer, observer, DATA_STATE, 1, 0, 100000), RC_OK);
    for (unsigned i = 0; i < 50; i++) {
        world_run(world, 100 * NS_PER_MS);
        assert_true(TAILQ_EMPTY(&observer->links->bulks) && TAILQ_EMPTY(&peer->links->bulks));
    }
    assert_int_equal(observer->records_count, 1);
    assert_true(links_peer(peer->links, observer->id, NULL));
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_only_so_many_observers),
        cmocka_unit_test(an_idle_observer_goes),
        cmocka_unit_test(nobody_keeps_other_observers_out),
        cmocka_unit_test(nobody_uses_up_all_answers),
        cmocka_unit_test(who_asks_too_often_is_not_answered),
        cmocka_unit_test(a_change_of_role_is_told),
        cmocka_unit_test(a_duel_is_won_only_for_a_place),
        cmocka_unit_test(an_observer_has_no_bulk_connections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

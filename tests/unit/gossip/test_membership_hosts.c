/* Whom others can have dialled by a peer that they tell of members, and how often. */
#include "tests/unit/gossip/membership_scene.h"

enum { TOLD = OTHERS - 1 };

/* One is linked and tells of all the others; `format` gets each one's number. */
static void told_of_all(struct scene *scene, const char *format)
{
    char address[ADDRESS_BYTES_MAX];

    for (uint8_t i = 1; i <= TOLD; i++) {
        snprintf(address, sizeof address, format, i);
        tell(scene, &scene->others[0], &scene->others[i], 1, false, address);
    }
}

static void linked_with_one(struct scene *scene)
{
    scene_create(scene, 256);
    link_up(scene, &scene->others[0], "198.51.100.1:7077");
}

/* All dials fail at once; who is linked goes on to be heard. */
static uint32_t dials_in(struct scene *scene, uint64_t duration_ns)
{
    uint64_t end_ns = scene->now_ns + duration_ns;
    uint32_t dials = 0;

    while (scene->now_ns < end_ns) {
        membership_on_heard(scene->membership, scene->others[0].id, scene->now_ns);
        run(scene, scene->now_ns + 250 * NS_PER_MS, &dials, NULL);
    }
    return dials;
}

/* Invented members that all live at one host, at any port and however it is written: the host is
 * dialled once a second, eight times, and then each ten minutes. New ones change nothing. */
static void a_third_party_is_left_in_peace(void **state)
{
    static const char *const spellings[] = {"203.0.113.9:%d", "[2001:DB8:0:0::9]:%d",
                                            "[::ffff:203.0.113.9]:%d"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(spellings); i++) {
        struct scene scene;

        linked_with_one(&scene);
        told_of_all(&scene, spellings[i]);
        assert_in_range(dials_in(&scene, 4 * NS_PER_S), 3, 5);
        assert_in_range(dials_in(&scene, 60 * NS_PER_S), 3, 5);
        if (i == 0) { /* the same host, written in another way */
            for (uint8_t k = 1; k <= TOLD; k++) {
                tell(&scene, &scene.others[0], &scene.others[k], 2, false, "[::FFFF:CB00:7109]:5");
            }
        }
        assert_in_range(dials_in(&scene, 500 * NS_PER_S), 0, 0);
        assert_in_range(dials_in(&scene, 600 * NS_PER_S), 0, 2);
        scene_destroy(&scene);
    }
}

/* A name can lead to anybody, and different ones to the same. Those where nobody answered are
 * dialled once a second in all, and never two at a time. */
static void names_are_looked_up_one_at_a_time(void **state)
{
    char address[ADDRESS_BYTES_MAX];
    struct scene scene;

    (void)state;
    linked_with_one(&scene);
    told_of_all(&scene, "v%d.example:80");
    scene.now_ns += NS_PER_S;
    assert_true(membership_next_dial(scene.membership, scene.now_ns, address));
    scene.now_ns += 2 * NS_PER_S;
    membership_on_heard(scene.membership, scene.others[0].id, scene.now_ns);
    assert_false(membership_next_dial(scene.membership, scene.now_ns, address));
    membership_on_dial_failed(scene.membership, address, scene.now_ns);
    assert_in_range(dials_in(&scene, 10 * NS_PER_S), 8, 12);
    scene_destroy(&scene);
}

/* But a swarm whose members have names, and answer, is linked at once. */
static void names_that_answer_cost_nothing(void **state)
{
    char address[ADDRESS_BYTES_MAX];
    struct scene scene;
    uint32_t linked = 0;
    uint64_t end_ns;

    (void)state;
    linked_with_one(&scene);
    told_of_all(&scene, "v%d.example:80");
    end_ns = scene.now_ns + 4 * NS_PER_S;
    while (scene.now_ns < end_ns) {
        unsigned number;

        scene.now_ns += 10 * NS_PER_MS;
        membership_tick(scene.membership, scene.now_ns, &scene.out);
        if (!membership_next_dial(scene.membership, scene.now_ns, address)) continue;
        scene.now_ns += 10 * NS_PER_MS; /* it answers */
        assert_int_equal(sscanf(address, "v%u.example:80", &number), 1);
        link_up(&scene, &scene.others[number], address);
        linked++;
        outbox_clear(&scene.out);
    }
    assert_int_equal(linked, TOLD);
    scene_destroy(&scene);
}

/* Hosts that the user named, where a member was met, and our own: as many swarms live on one
 * machine, all dials go there as fast as ever. */
static void hosts_of_members_are_dialled_freely(void **state)
{
    enum { BOOTSTRAP, MET, OWN, WAYS };

    (void)state;
    for (int way = 0; way < WAYS; way++) {
        struct scene scene;

        linked_with_one(&scene);
        if (way == BOOTSTRAP) membership_add_bootstrap(scene.membership, "named.example:9");
        if (way == MET) membership_met_at(scene.membership, "192.0.2.44:50123", scene.now_ns);
        told_of_all(&scene, way == BOOTSTRAP ? "named.example:%d"
                            : way == MET     ? "192.0.2.44:%d"
                                             : "self.example:%d");
        assert_true(dials_in(&scene, NS_PER_S) >= TOLD - 10);
        scene_destroy(&scene);
    }
}

/* Dials to a host that was given up begin again when this peer has lost all its links: it may have
 * been its own network. */
static void who_was_cut_off_tries_again(void **state)
{
    struct scene scene;

    (void)state;
    linked_with_one(&scene);
    told_of_all(&scene, "203.0.113.9:%d");
    (void)dials_in(&scene, 30 * NS_PER_S);
    assert_int_equal(dials_in(&scene, 30 * NS_PER_S), 0);
    membership_on_link_lost(scene.membership, scene.others[0].id, scene.now_ns);
    assert_in_range(dials_in(&scene, 300 * NS_PER_S), 8, 300 + 8); /* and to the lost one */
    scene_destroy(&scene);
}

/* Dead ports of one host, as behind a router, spend what dials may cost it; who is there all the
 * same dials us, from any port, and then all who say that they live there are dialled again. */
static void who_comes_from_a_host_that_was_given_up_vouches_for_it(void **state)
{
    struct scene scene;

    (void)state;
    linked_with_one(&scene);
    told_of_all(&scene, "203.0.113.9:%d");
    (void)dials_in(&scene, 30 * NS_PER_S);
    assert_int_equal(dials_in(&scene, 30 * NS_PER_S), 0);
    membership_met_at(scene.membership, "203.0.113.9:50123", scene.now_ns);
    assert_true(dials_in(&scene, 90 * NS_PER_S) >= TOLD); /* a minute is the longest back-off */
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_third_party_is_left_in_peace),
        cmocka_unit_test(names_are_looked_up_one_at_a_time),
        cmocka_unit_test(names_that_answer_cost_nothing),
        cmocka_unit_test(hosts_of_members_are_dialled_freely),
        cmocka_unit_test(who_was_cut_off_tries_again),
        cmocka_unit_test(who_comes_from_a_host_that_was_given_up_vouches_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

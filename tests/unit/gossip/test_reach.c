/* Dial-back as a pure machine: who is asked, what counts, what others may ask of us. Whole peers
 * are in tests/sim/test_reach.c. */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/reach/reach.h"

struct scene {
    struct reach *reach;
    struct outbox out;
    uint64_t now_ns;
};

static struct peer_id peer(uint8_t number)
{
    return (struct peer_id){{number, 1}};
}

static void scene_create(struct scene *scene)
{
    struct reach_options options = {.seed = 1, .ask_after_ns = NS_PER_S};

    *scene = (struct scene){.reach = reach_create(&options), .now_ns = 50 * NS_PER_S};
    assert_non_null(scene->reach);
    outbox_init(&scene->out);
}

static void scene_destroy(struct scene *scene)
{
    reach_destroy(scene->reach);
    outbox_deinit(&scene->out);
}

static void link_up_in(struct scene *scene, const char *network, uint8_t number, bool is_dialled,
                       const char *observed)
{
    struct reach_link link = {
        .peer = peer(number), .listen_port = 7077, .is_dialled = is_dialled, .is_asked = true};

    snprintf(link.remote, sizeof link.remote, "%s.%u:%u", network, number,
             is_dialled ? 7077 : 50000);
    snprintf(link.observed, sizeof link.observed, "%s", observed);
    reach_on_link(scene->reach, &link, scene->now_ns);
}

static void link_up(struct scene *scene, uint8_t number, bool is_dialled, const char *observed)
{
    link_up_in(scene, "198.51.100", number, is_dialled, observed);
}

/* The next message to `number`, taken out of the outbox; false: none. */
static bool take(struct scene *scene, uint8_t number, struct message *message)
{
    for (uint32_t i = 0; i < scene->out.count; i++) {
        struct outbox_entry *entry = &scene->out.entries[i];
        const struct blob *inner = entry->inner;

        if (!peer_id_is_equal(entry->to, peer(number))) continue;
        assert_int_equal(message_decode((enum message_type)inner->bytes[0],
                                        inner->bytes + INNER_HEADER_BYTES,
                                        inner->count - INNER_HEADER_BYTES, message),
                         RC_OK);
        entry->to = peer(255);
        return true;
    }
    return false;
}

static void run(struct scene *scene, uint64_t for_ns)
{
    uint64_t end_ns = scene->now_ns + for_ns;
    uint32_t ticks = 0;

    for (;;) {
        uint64_t next_ns = reach_next_ns(scene->reach);

        reach_tick(scene->reach, scene->now_ns, &scene->out);
        assert_true(reach_next_ns(scene->reach) > scene->now_ns);
        next_ns = reach_next_ns(scene->reach);
        if (next_ns >= end_ns) break;
        scene->now_ns = next_ns;
        assert_true(++ticks < 10000);
    }
    scene->now_ns = end_ns;
}

static void say(struct scene *scene, uint8_t from, enum message_type type, uint64_t nonce,
                enum dialback_code code)
{
    struct message message = {.type = type};

    message.as.dialback.nonce = nonce;
    message.as.dialback.code = code;
    reach_on_message(scene->reach, peer(from), &message, scene->now_ns, &scene->out);
}

static uint64_t asked(struct scene *scene, uint8_t number)
{
    struct message message;

    if (!take(scene, number, &message)) return 0;
    assert_int_equal(message.type, MESSAGE_DIALBACK_REQ);
    return message.as.dialback.nonce;
}

/* One witness is not enough, two are; and only the nonce itself counts, not the word of the other.
 */
static void two_witnesses_make_a_peer_public(void **state)
{
    struct scene scene;
    uint64_t first, second;

    (void)state;
    scene_create(&scene);
    link_up(&scene, 1, true, "203.0.113.5:40000");
    link_up(&scene, 2, true, "203.0.113.5:40001");
    run(&scene, 5 * NS_PER_S);
    first = asked(&scene, 1);
    second = asked(&scene, 2);
    assert_true(first != 0 && second != 0 && first != second);
    say(&scene, 1, MESSAGE_DIALBACK, first, DIALBACK_REACHED);
    say(&scene, 2, MESSAGE_DIALBACK, second, DIALBACK_REACHED);
    assert_int_equal(reach_class(scene.reach), NAT_UNKNOWN);
    reach_on_arrived(scene.reach, peer(2), first, scene.now_ns); /* another's nonce */
    reach_on_arrived(scene.reach, peer(1), first + 1, scene.now_ns);
    reach_on_arrived(scene.reach, peer(1), first, scene.now_ns);
    reach_on_arrived(scene.reach, peer(1), first, scene.now_ns); /* twice is once */
    assert_int_equal(reach_class(scene.reach), NAT_UNKNOWN);
    reach_on_arrived(scene.reach, peer(2), second, scene.now_ns);
    assert_int_equal(reach_class(scene.reach), NAT_PUBLIC);
    scene_destroy(&scene);
}

static void two_failures_make_a_peer_outbound_only(void **state)
{
    struct scene scene;
    struct reach_view view;

    (void)state;
    scene_create(&scene);
    link_up(&scene, 1, true, "203.0.113.5:40000");
    link_up(&scene, 2, true, "203.0.113.5:40001");
    link_up(&scene, 3, true, "192.0.2.7:40001");
    run(&scene, 5 * NS_PER_S);
    say(&scene, 1, MESSAGE_DIALBACK, asked(&scene, 1), DIALBACK_FAILED);
    say(&scene, 1, MESSAGE_DIALBACK, 77, DIALBACK_FAILED); /* not asked: no second voice */
    assert_int_equal(reach_class(scene.reach), NAT_UNKNOWN);
    say(&scene, 2, MESSAGE_DIALBACK, asked(&scene, 2), DIALBACK_FAILED);
    assert_int_equal(reach_class(scene.reach), NAT_OUTBOUND);
    reach_view(scene.reach, &view);
    assert_int_equal(view.failed, 2);
    assert_string_equal(view.observed, "203.0.113.5");
    scene_destroy(&scene);
}

/* Where there is only one to ask, it can say that we cannot be dialled; not that we can. What it
 * said ends with the first who reaches us, and holds if the next one says the same. */
static void the_only_witness_is_believed_for_a_while(void **state)
{
    struct scene scene;

    (void)state;
    for (int next_fails = 0; next_fails < 2; next_fails++) {
        scene_create(&scene);
        link_up(&scene, 1, true, "203.0.113.5:40000");
        run(&scene, 5 * NS_PER_S);
        say(&scene, 1, MESSAGE_DIALBACK, asked(&scene, 1), DIALBACK_FAILED);
        assert_int_equal(reach_class(scene.reach), NAT_OUTBOUND);
        link_up(&scene, 2, true, "203.0.113.5:40001");
        assert_int_equal(reach_class(scene.reach), NAT_OUTBOUND);
        run(&scene, 5 * NS_PER_S);
        if (next_fails) {
            say(&scene, 2, MESSAGE_DIALBACK, asked(&scene, 2), DIALBACK_FAILED);
            link_up(&scene, 3, false, ""); /* and now one is not enough to say otherwise */
        } else {
            reach_on_arrived(scene.reach, peer(2), asked(&scene, 2), scene.now_ns);
        }
        assert_int_equal(reach_class(scene.reach), next_fails ? NAT_OUTBOUND : NAT_UNKNOWN);
        scene_destroy(&scene);
    }
    scene_create(&scene);
    link_up(&scene, 1, true, "203.0.113.5:40000");
    link_up(&scene, 2, true, "203.0.113.5:40001"); /* it never says anything, and leaves */
    run(&scene, 5 * NS_PER_S);
    say(&scene, 1, MESSAGE_DIALBACK, asked(&scene, 1), DIALBACK_FAILED);
    assert_int_equal(reach_class(scene.reach), NAT_UNKNOWN);
    reach_on_link_lost(scene.reach, peer(2));
    assert_int_equal(reach_class(scene.reach), NAT_OUTBOUND);
    scene_destroy(&scene);

    scene_create(&scene);
    link_up(&scene, 1, false, "203.0.113.5:40000");
    assert_int_equal(reach_class(scene.reach), NAT_UNKNOWN);
    scene_destroy(&scene);
}

/* Whoever dials in may be one and the same, under many names: it has no say in where we are. */
static void those_who_dial_in_do_not_name_us(void **state)
{
    struct scene scene;
    struct reach_view view;

    (void)state;
    scene_create(&scene);
    for (uint8_t i = 4; i < 8; i++) {
        link_up(&scene, i, false, "192.0.2.7:7077");
    }
    link_up(&scene, 1, true, "203.0.113.5:40000");
    reach_view(scene.reach, &view);
    assert_string_equal(view.observed, "");
    link_up(&scene, 2, true, "203.0.113.5:40001");
    reach_view(scene.reach, &view);
    assert_string_equal(view.observed, "203.0.113.5");
    scene_destroy(&scene);
}

/* Neighbours of one's own network can dial in; what those outside say outweighs them. */
static void a_peer_reachable_in_its_own_network_only_is_outbound(void **state)
{
    struct scene scene;

    (void)state;
    scene_create(&scene);
    link_up(&scene, 1, false, "192.168.1.5:7077");
    assert_int_equal(reach_class(scene.reach), NAT_UNKNOWN);
    link_up(&scene, 2, false, "[fe80::1]:7077");
    assert_int_equal(reach_class(scene.reach), NAT_PUBLIC); /* as far as anybody knows */
    link_up(&scene, 3, true, "203.0.113.5:40000");
    link_up(&scene, 4, true, "203.0.113.5:40000");
    run(&scene, 5 * NS_PER_S);
    say(&scene, 3, MESSAGE_DIALBACK, asked(&scene, 3), DIALBACK_FAILED);
    say(&scene, 4, MESSAGE_DIALBACK, asked(&scene, 4), DIALBACK_FAILED);
    assert_int_equal(reach_class(scene.reach), NAT_OUTBOUND);
    scene_destroy(&scene);
}

/* A neighbour in our private network says that it sees us at a public address, where it cannot
 * reach us: it is no witness from outside, and does not outweigh those that do reach us. */
static void a_neighbour_next_door_is_no_witness_from_outside(void **state)
{
    struct scene scene;

    (void)state;
    scene_create(&scene);
    link_up_in(&scene, "10.0.0", 2, false, "10.0.0.9:7077");
    link_up_in(&scene, "10.0.0", 1, true, "203.0.113.5:40000");
    run(&scene, 5 * NS_PER_S);
    say(&scene, 1, MESSAGE_DIALBACK, asked(&scene, 1), DIALBACK_FAILED);
    assert_int_equal(reach_class(scene.reach), NAT_UNKNOWN);
    link_up_in(&scene, "10.0.0", 3, false, "10.0.0.9:7077");
    assert_int_equal(reach_class(scene.reach), NAT_PUBLIC);
    scene_destroy(&scene);
}

/* Who dialled us of its own accord is a witness and need not be asked. */
static void those_who_dialled_us_are_not_asked(void **state)
{
    struct scene scene;

    (void)state;
    scene_create(&scene);
    link_up(&scene, 1, false, "203.0.113.5:7077");
    link_up(&scene, 2, false, "203.0.113.5:7077");
    assert_int_equal(reach_class(scene.reach), NAT_PUBLIC);
    run(&scene, 3600 * NS_PER_S);
    assert_int_equal(asked(&scene, 1), 0);
    assert_int_equal(asked(&scene, 2), 0);
    scene_destroy(&scene);
}

/* A silent or busy neighbour is asked again later, and never more than every half second. */
static void questions_are_few(void **state)
{
    struct scene scene;
    uint32_t questions = 0;

    (void)state;
    scene_create(&scene);
    for (uint8_t i = 1; i <= 100; i++) {
        link_up(&scene, i, true, "203.0.113.5:40000");
    }
    run(&scene, 60 * NS_PER_S);
    questions = scene.out.count;
    assert_in_range(questions, 4, 30); /* four at a time, each given 15 s to answer */
    scene_destroy(&scene);
}

/* We dial the address we see and the port of the hello, nothing else; and not often. */
static void a_dial_back_goes_to_the_observed_address(void **state)
{
    struct scene scene;
    struct reach_probe probe;
    struct message message;

    (void)state;
    scene_create(&scene);
    link_up(&scene, 9, false, "");
    say(&scene, 9, MESSAGE_DIALBACK_REQ, 5, DIALBACK_REACHED);
    assert_true(reach_next_probe(scene.reach, &probe));
    assert_string_equal(probe.address, "198.51.100.9:7077");
    assert_true(probe.nonce == 5 && peer_id_is_equal(probe.peer, peer(9)));
    assert_false(reach_next_probe(scene.reach, &probe));
    reach_on_probe_ended(scene.reach, peer(9), 5, true, &scene.out);
    assert_true(take(&scene, 9, &message) && message.as.dialback.code == DIALBACK_REACHED);
    say(&scene, 9, MESSAGE_DIALBACK_REQ, 6, DIALBACK_REACHED);
    assert_true(take(&scene, 9, &message) && message.as.dialback.code == DIALBACK_BUSY);
    assert_false(reach_next_probe(scene.reach, &probe));
    scene.now_ns += 30 * NS_PER_S;
    say(&scene, 9, MESSAGE_DIALBACK_REQ, 7, DIALBACK_REACHED);
    assert_true(reach_next_probe(scene.reach, &probe));
    reach_on_probe_ended(scene.reach, peer(9), 7, false, &scene.out);
    assert_true(take(&scene, 9, &message) && message.as.dialback.code == DIALBACK_FAILED);
    scene.now_ns += 30 * NS_PER_S;
    say(&scene, 9, MESSAGE_DIALBACK_REQ, 10, DIALBACK_REACHED);
    assert_true(reach_next_probe(scene.reach, &probe));
    reach_on_probe_unmade(scene.reach, peer(9), 10, &scene.out); /* no fault of its */
    assert_true(take(&scene, 9, &message) && message.as.dialback.code == DIALBACK_BUSY);
    link_up(&scene, 8, true, ""); /* we dialled it: its own port is not what we see */
    say(&scene, 8, MESSAGE_DIALBACK_REQ, 8, DIALBACK_REACHED);
    assert_true(take(&scene, 8, &message) && message.as.dialback.code == DIALBACK_NO_PORT);
    scene_destroy(&scene);
}

/* However many ask, four dials are in the air, and no more than two a second begin. */
static void dials_for_others_are_capped(void **state)
{
    struct scene scene;
    struct reach_probe probe;
    uint32_t dials = 0, in_the_air = 0;

    (void)state;
    scene_create(&scene);
    for (uint8_t i = 1; i <= 100; i++) {
        link_up(&scene, i, false, "");
        say(&scene, i, MESSAGE_DIALBACK_REQ, i, DIALBACK_REACHED);
    }
    while (reach_next_probe(scene.reach, &probe)) {
        in_the_air++;
    }
    assert_int_equal(in_the_air, 4);
    for (uint8_t i = 1; i <= 100; i++) {
        reach_on_probe_ended(scene.reach, peer(i), i, true, &scene.out);
    }
    for (uint32_t second = 0; second < 60; second++) {
        for (uint8_t i = 1; i <= 100; i++) {
            say(&scene, i, MESSAGE_DIALBACK_REQ, i, DIALBACK_REACHED);
            if (!reach_next_probe(scene.reach, &probe)) continue;
            dials++;
            reach_on_probe_ended(scene.reach, probe.peer, probe.nonce, true, &scene.out);
        }
        scene.now_ns += NS_PER_S;
    }
    assert_in_range(dials, 60, 2 * 60 + 10);
    scene_destroy(&scene);
}

/* Evidence of one who left is kept, and its slot given up when others need it. */
static void slots_are_reused(void **state)
{
    struct scene scene;

    (void)state;
    scene_create(&scene);
    link_up(&scene, 1, false, "203.0.113.5:7077");
    reach_on_link_lost(scene.reach, peer(1));
    link_up(&scene, 2, false, "203.0.113.5:7077");
    assert_int_equal(reach_class(scene.reach), NAT_PUBLIC);
    for (uint32_t i = 0; i < 1000; i++) {
        struct reach_link link = {.peer = {{(uint8_t)i, (uint8_t)(i >> 8), 9}}, .is_dialled = true};

        reach_on_link(scene.reach, &link, scene.now_ns);
        if (i % 3 != 0) reach_on_link_lost(scene.reach, link.peer);
    }
    run(&scene, NS_PER_S);
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_witnesses_make_a_peer_public),
        cmocka_unit_test(two_failures_make_a_peer_outbound_only),
        cmocka_unit_test(the_only_witness_is_believed_for_a_while),
        cmocka_unit_test(those_who_dial_in_do_not_name_us),
        cmocka_unit_test(a_peer_reachable_in_its_own_network_only_is_outbound),
        cmocka_unit_test(a_neighbour_next_door_is_no_witness_from_outside),
        cmocka_unit_test(those_who_dialled_us_are_not_asked),
        cmocka_unit_test(questions_are_few),
        cmocka_unit_test(a_dial_back_goes_to_the_observed_address),
        cmocka_unit_test(dials_for_others_are_capped),
        cmocka_unit_test(slots_are_reused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

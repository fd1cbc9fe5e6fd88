/* gate: what strangers may hold and spend, and that others do not feel it. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "gossip/door/gate.h"

#include <stdio.h>

struct scene {
    struct gate *gate;
    uint64_t number, messages, now_ns;
};

static void scene_init(struct scene *scene)
{
    *scene = (struct scene){.gate = gate_create(), .now_ns = 100 * NS_PER_S};
    assert_int_equal(secure_start(), RC_OK);
    assert_non_null(scene->gate);
}

/* A connection; returns who had to go for it. */
static uint64_t come(struct scene *scene, const char *address)
{
    return gate_enter(scene->gate, ++scene->number, address, scene->now_ns);
}

static enum gate_verdict greet(struct scene *scene, uint64_t number, bool is_known,
                               uint64_t *evicted)
{
    uint8_t ephemeral[PUBLIC_KEY_BYTES] = {0};

    store_le64(ephemeral, 2 * ++scene->messages);
    return gate_answer(scene->gate, number, ephemeral, is_known, scene->now_ns, evicted);
}

/* One that comes, greets, and proves itself or falls silent; was it answered? */
static bool visit(struct scene *scene, const char *address, bool is_known, bool proves)
{
    uint64_t evicted = 0, number;
    bool is_answered;

    (void)come(scene, address);
    number = scene->number;
    is_answered = greet(scene, number, is_known, &evicted) == GATE_PASS;
    gate_leave(scene->gate, number, is_answered && proves, scene->now_ns);
    return is_answered;
}

static uint32_t visits(struct scene *scene, const char *address, bool is_known, uint32_t count)
{
    uint32_t answered = 0;

    for (uint32_t i = 0; i < count; i++) {
        answered += visit(scene, address, is_known, false);
    }
    return answered;
}

/* Neighbours share a prefix: an IPv4 /24, an IPv6 /56; what is no address is one by itself. */
static void prefixes_are_neighbourhoods(void **state)
{
    static const struct {
        const char *a, *b;
        bool is_same;
    } cases[] = {{"192.0.2.1:7000", "192.0.2.200:1", true},
                 {"192.0.2.1:7000", "192.0.3.1:7000", false},
                 {"1.0.0.6:1", "[100:0:0:6::]:1", false},
                 {"[2001:db8:0:12::1]:7", "[2001:db8:0:1f::9]:8", true},
                 {"[2001:db8:0:112::1]:7", "[2001:db8:0:212::1]:7", false},
                 {"[2001:db8:1::1]:7", "[2001:db8:2::1]:7", false},
                 {"[::1]:7", "[::1]:9", true},
                 {"unknown", "unknown", true},
                 {"unknown", "sim:1", false},
                 {"256.0.0.1:1", "256.0.0.2:1", false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool is_same = gate_prefix(cases[i].a) == gate_prefix(cases[i].b);

        if (is_same != cases[i].is_same) fail_msg("%s, %s", cases[i].a, cases[i].b);
        assert_true(gate_prefix(cases[i].a) != 0);
    }
}

/* Ten thousand idle strangers hold 256 slots; the oldest of them goes for each new one, and who
 * came from elsewhere keeps his. */
static void idle_strangers_evict_each_other(void **state)
{
    struct scene scene;
    struct gate_counts counts;
    uint64_t evicted = 0;

    (void)state;
    scene_init(&scene);
    assert_int_equal(come(&scene, "198.51.100.1:1"), 0);
    for (uint32_t i = 0; i < 10000; i++) {
        scene.now_ns += NS_PER_MS;
        evicted = come(&scene, i % 2 == 0 ? "192.0.2.1:5" : "192.0.2.77:5");
        if (i < GATE_WAITING_MAX - 1) assert_int_equal(evicted, 0);
        if (i >= GATE_WAITING_MAX - 1) assert_int_equal(evicted, i + 3 - GATE_WAITING_MAX);
    }
    gate_counts(scene.gate, &counts);
    assert_int_equal(counts.waiting, GATE_WAITING_MAX);
    assert_int_equal(counts.waiting_max, GATE_WAITING_MAX);
    assert_int_equal(counts.entered, 10001);
    assert_int_equal(counts.evicted, 10001 - GATE_WAITING_MAX);
    assert_int_equal(greet(&scene, 1, false, &evicted), GATE_PASS);
    gate_leave(scene.gate, 1, true, scene.now_ns);
    gate_leave(scene.gate, 1, true, scene.now_ns);         /* once is enough */
    gate_leave(scene.gate, 12345678, false, scene.now_ns); /* never seen */
    gate_counts(scene.gate, &counts);
    assert_true(counts.proved == 1 && counts.answering == 0);
    assert_int_equal(counts.waiting, GATE_WAITING_MAX - 1);
    gate_destroy(scene.gate);
}

/* No first message is answered twice, as long as it is among the last 4096. */
static void a_first_message_is_answered_once(void **state)
{
    struct scene scene;
    uint64_t evicted;

    (void)state;
    scene_init(&scene);
    for (uint32_t i = 0; i < GATE_REPLAY_MARKS; i++) {
        scene.now_ns += NS_PER_S;
        assert_true(visit(&scene, "192.0.2.1:5", false, true));
    }
    scene.messages = 0;
    for (uint32_t i = 0; i < GATE_REPLAY_MARKS; i += 97) {
        scene.messages = i;
        (void)come(&scene, "198.51.100.1:5");
        assert_int_equal(greet(&scene, scene.number, true, &evicted), GATE_REPLAYED);
        gate_leave(scene.gate, scene.number, false, scene.now_ns);
    }
    gate_destroy(scene.gate);
}

/* Who never proves anything gets a burst and then a rate; other prefixes do not feel it. */
static void a_prefix_has_a_ration(void **state)
{
    struct scene scene;
    struct gate_counts counts;

    (void)state;
    scene_init(&scene);
    assert_int_equal(visits(&scene, "192.0.2.1:5", false, 1000), GATE_PREFIX_BURST);
    assert_true(visit(&scene, "192.0.3.1:5", false, false));
    scene.now_ns += NS_PER_S;
    assert_int_equal(visits(&scene, "192.0.2.9:5", false, 1000), GATE_PREFIX_RATE);
    scene.now_ns += 3600 * NS_PER_S;
    assert_int_equal(visits(&scene, "192.0.2.1:5", false, 1000), GATE_PREFIX_BURST);
    gate_counts(scene.gate, &counts);
    assert_true(counts.spent_prefix > 2000);
    gate_destroy(scene.gate);
}

/* A laboratory behind one address, all at once and again and again, never feels it. */
static void who_proves_himself_pays_nothing(void **state)
{
    struct scene scene;
    uint64_t evicted;

    (void)state;
    scene_init(&scene);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_true(visit(&scene, "127.0.0.1:5", false, true));
    }
    for (uint32_t round = 0; round < 20; round++) { /* 64 begin before the first is done */
        uint64_t first = scene.number + 1;

        for (uint32_t i = 0; i < GATE_ANSWERING_MAX; i++) {
            assert_int_equal(come(&scene, "127.0.0.1:5"), 0);
            assert_int_equal(greet(&scene, scene.number, false, &evicted), GATE_PASS);
            assert_int_equal(evicted, 0);
        }
        for (uint64_t i = first; i <= scene.number; i++) {
            gate_leave(scene.gate, i, true, scene.now_ns);
        }
    }
    gate_destroy(scene.gate);
}

/* However many prefixes attack, known addresses have half of all handshakes to themselves, and a
 * prefix that took nothing yet comes before those that did. */
static void known_addresses_have_their_share(void **state)
{
    struct scene scene;
    char address[ADDRESS_BYTES_MAX];
    uint32_t answered = 0;

    (void)state;
    scene_init(&scene);
    for (uint32_t i = 0; i < 2000; i++) {
        snprintf(address, sizeof address, "10.%u.%u.1:5", i % 4, i % 2);
        answered += visit(&scene, address, false, false);
    }
    assert_true(answered <= GATE_HALF_RATE && answered >= 3 * GATE_HALF_RATE / 4);
    assert_true(visit(&scene, "192.0.2.1:5", false, false)); /* new here */
    assert_int_equal(visits(&scene, "198.51.100.1:5", true, 50), 50);
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(address, sizeof address, "11.%u.%u.1:5", i >> 8, i & 255);
        answered += visit(&scene, address, false, false);
    }
    assert_true(answered < GATE_HALF_RATE);
    assert_int_equal(visits(&scene, "198.51.101.1:5", true, 50), 50);
    gate_destroy(scene.gate);
}

/* Who passes the gate and stalls makes room, after a second, for those who come later. */
static void stalled_handshakes_make_room(void **state)
{
    struct scene scene;
    struct gate_counts counts;
    uint64_t evicted;

    (void)state;
    scene_init(&scene);
    for (uint32_t i = 0; i < GATE_ANSWERING_MAX; i++) {
        scene.now_ns += NS_PER_MS;
        (void)come(&scene, i == 0 ? "198.51.100.1:5" : "192.0.2.1:5");
        assert_int_equal(greet(&scene, scene.number, false, &evicted), GATE_PASS);
    }
    (void)come(&scene, "203.0.113.1:5");
    assert_int_equal(greet(&scene, scene.number, true, &evicted), GATE_SPENT);
    scene.now_ns += NS_PER_S;
    assert_int_equal(greet(&scene, scene.number, true, &evicted), GATE_PASS);
    assert_int_equal(evicted, 2); /* the oldest of those who are many */
    gate_counts(scene.gate, &counts);
    assert_int_equal(counts.answering, GATE_ANSWERING_MAX);
    assert_int_equal(counts.answering_max, GATE_ANSWERING_MAX);
    gate_destroy(scene.gate);
}

/* Whatever happens in whatever order, nothing is held that is not counted, and the numbers that are
 * told to go are such as are here. */
static void the_books_balance(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        struct scene scene;
        struct gate_counts counts;
        uint64_t random = seed + 1;
        bool is_here[4001] = {false}, is_greeted[4001] = {false};
        uint32_t here = 0;

        scene_init(&scene);
        for (uint32_t i = 0; i < 4000; i++) {
            uint64_t number, evicted = 0;
            char address[ADDRESS_BYTES_MAX];

            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            snprintf(address, sizeof address, "10.0.%u.1:5", (unsigned)(random >> 60));
            scene.now_ns += random >> 38;
            evicted = come(&scene, address);
            is_here[scene.number] = true;
            number = 1 + (random >> 20) % scene.number;
            if (evicted != 0) is_here[evicted] = false;
            if (is_here[number] && !is_greeted[number]) {
                is_greeted[number] = true;
                if (greet(&scene, number, random >> 63, &evicted) == GATE_PASS && evicted != 0) {
                    check_seed(seed, is_here[evicted]);
                    is_here[evicted] = false;
                }
            } else {
                gate_leave(scene.gate, number, random >> 62 & 1, scene.now_ns);
                is_here[number] = false;
            }
        }
        for (uint32_t i = 1; i <= 4000; i++) {
            here += is_here[i];
        }
        gate_counts(scene.gate, &counts);
        check_seed(seed, counts.waiting + counts.answering == here);
        check_seed(seed, counts.waiting_max <= GATE_WAITING_MAX);
        gate_destroy(scene.gate);
    }
}

static void short_memory_is_survived(void **state)
{
    (void)state;
    mem_fail_after(0);
    assert_null(gate_create());
    mem_fail_after(UINT64_MAX);
    gate_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_are_neighbourhoods),
        cmocka_unit_test(idle_strangers_evict_each_other),
        cmocka_unit_test(a_first_message_is_answered_once),
        cmocka_unit_test(a_prefix_has_a_ration),
        cmocka_unit_test(who_proves_himself_pays_nothing),
        cmocka_unit_test(known_addresses_have_their_share),
        cmocka_unit_test(stalled_handshakes_make_room),
        cmocka_unit_test(the_books_balance),
        cmocka_unit_test(short_memory_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A relay as a pure machine: whom it connects, what it carries and how fast, when it says no. */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/reach/relay.h"

enum { SOURCE = 1, TARGET = 2, RELAY = 9 };

struct scene {
    struct relay *relay;
    struct relay_options options;
    struct outbox out;
    uint64_t now_ns;
    uint64_t granted;        /* to the source, when the circuit was opened */
    uint32_t target_circuit; /* the relay's number for the last circuit with TARGET */
};

static struct peer_id peer(unsigned number)
{
    return (struct peer_id){{(uint8_t)number, (uint8_t)(number >> 8), 1}};
}

static void scene_create(struct scene *scene, uint64_t bytes_per_s)
{
    *scene = (struct scene){.options = relay_options_default(), .now_ns = 1000 * NS_PER_S};
    scene->options.bytes_per_s = bytes_per_s;
    scene->relay = relay_create(&scene->options, peer(RELAY));
    assert_non_null(scene->relay);
    outbox_init(&scene->out);
    relay_set_open(scene->relay, true, &scene->out);
}

static void scene_destroy(struct scene *scene)
{
    relay_destroy(scene->relay);
    outbox_deinit(&scene->out);
}

/* The next message to `number`, in order; false: none. */
static bool take(struct scene *scene, unsigned number, struct message *message)
{
    for (uint32_t i = 0; i < scene->out.count; i++) {
        struct outbox_entry *entry = &scene->out.entries[i];
        const struct blob *inner = entry->inner;

        if (!peer_id_is_equal(entry->to, peer(number))) continue;
        assert_int_equal(message_decode((enum message_type)inner->bytes[0],
                                        inner->bytes + INNER_HEADER_BYTES,
                                        inner->count - INNER_HEADER_BYTES, message),
                         RC_OK);
        entry->to = peer(0xffff);
        return true;
    }
    return false;
}

static void drop_all(struct scene *scene)
{
    outbox_clear(&scene->out);
}

static enum relay_code reserve(struct scene *scene, unsigned who, bool is_direct)
{
    struct message message = {.type = MESSAGE_RELAY_RESERVE};

    relay_on_message(scene->relay, peer(who), is_direct, &message, scene->now_ns, &scene->out);
    assert_true(take(scene, who, &message));
    assert_int_equal(message.type, MESSAGE_RELAY_LEASE);
    assert_true((message.as.relay_lease.code == RELAY_GRANTED) ==
                (message.as.relay_lease.lease_ms == 600 * 1000));
    return (enum relay_code)message.as.relay_lease.code;
}

static void say_window(struct scene *scene, unsigned who, uint32_t circuit, uint64_t bytes)
{
    struct message message = {.type = MESSAGE_RELAY_WINDOW};

    message.as.relay_window.circuit = circuit;
    message.as.relay_window.bytes = bytes;
    relay_on_message(scene->relay, peer(who), true, &message, scene->now_ns, &scene->out);
}

/* GRANTED: the target was asked, under `scene->target_circuit`. */
static enum relay_code connect_as(struct scene *scene, unsigned from, uint32_t circuit,
                                  unsigned target, bool is_direct)
{
    struct message message = {.type = MESSAGE_RELAY_CONNECT};

    message.as.relay_connect.circuit = circuit;
    message.as.relay_connect.peer = peer(target);
    relay_on_message(scene->relay, peer(from), is_direct, &message, scene->now_ns, &scene->out);
    if (take(scene, from, &message)) {
        assert_int_equal(message.type, MESSAGE_RELAY_STOP);
        assert_int_equal(message.as.relay_stop.circuit, circuit);
        return (enum relay_code)message.as.relay_stop.code;
    }
    assert_true(take(scene, target, &message));
    assert_int_equal(message.type, MESSAGE_RELAY_CONNECT);
    assert_true(message.as.relay_connect.is_from_relay);
    assert_true(peer_id_is_equal(message.as.relay_connect.peer, peer(from)));
    scene->target_circuit = message.as.relay_connect.circuit;
    return RELAY_GRANTED;
}

static bool data(struct scene *scene, unsigned from, uint32_t circuit, size_t count,
                 struct peer_id *to, struct inner_header *onward)
{
    struct inner_header header = {
        .type = MESSAGE_DATA, .flags = DATA_RELAY, .arg = circuit, .offset = 77};

    return relay_on_data(scene->relay, peer(from), &header, count, to, onward, &scene->out);
}

static uint32_t circuits(const struct scene *scene)
{
    struct relay_view view;

    relay_view(scene->relay, &view);
    return view.circuits;
}

/* Both ends have offered a whole window and were granted something. */
static void open_circuit(struct scene *scene)
{
    struct message message;

    assert_int_equal(reserve(scene, TARGET, true), RELAY_GRANTED);
    assert_int_equal(connect_as(scene, SOURCE, 5, TARGET, true), RELAY_GRANTED);
    say_window(scene, SOURCE, 5, RELAY_WINDOW_BYTES);
    scene->now_ns += NS_PER_S;
    relay_tick(scene->relay, scene->now_ns, &scene->out);
    assert_false(take(scene, SOURCE, &message)); /* the target has not said yes */
    say_window(scene, TARGET, scene->target_circuit, RELAY_WINDOW_BYTES);
    scene->now_ns += NS_PER_S;
    relay_tick(scene->relay, scene->now_ns, &scene->out);
    scene->now_ns += NS_PER_S;
    relay_tick(scene->relay, scene->now_ns, &scene->out);
    while (take(scene, SOURCE, &message)) {
        assert_int_equal(message.type, MESSAGE_RELAY_WINDOW);
        scene->granted = message.as.relay_window.bytes;
    }
    assert_true(scene->granted > 0);
    assert_true(take(scene, TARGET, &message) && message.type == MESSAGE_RELAY_WINDOW);
}

/* Bytes come out at the other end, under that end's number, whichever end sent them. */
static void bytes_are_passed_on(void **state)
{
    struct scene scene;
    struct inner_header onward;
    struct peer_id to;

    (void)state;
    scene_create(&scene, 2500000);
    open_circuit(&scene);
    assert_true(data(&scene, SOURCE, 5, 1000, &to, &onward));
    assert_true(peer_id_is_equal(to, peer(TARGET)) && onward.arg == scene.target_circuit);
    assert_true(onward.stream == 1 && onward.flags == DATA_RELAY && onward.offset == 77);
    assert_true(data(&scene, TARGET, scene.target_circuit, 1000, &to, &onward));
    assert_true(peer_id_is_equal(to, peer(SOURCE)) && onward.arg == 5);
    assert_false(data(&scene, TARGET, 5, 1000, &to, &onward)); /* the other end's number */
    assert_false(data(&scene, 3, 5, 1000, &to, &onward));      /* a stranger */
    assert_int_equal(circuits(&scene), 1);
    scene_destroy(&scene);
}

/* Loops, third hops, targets that keep no reservation, closed relays: refused, each by its name. */
static void what_a_relay_refuses(void **state)
{
    struct scene scene;

    (void)state;
    scene_create(&scene, 2500000);
    assert_int_equal(connect_as(&scene, SOURCE, 1, TARGET, true), RELAY_UNRESERVED);
    assert_int_equal(reserve(&scene, TARGET, false), RELAY_FORBIDDEN); /* over another relay */
    assert_int_equal(reserve(&scene, TARGET, true), RELAY_GRANTED);
    assert_int_equal(connect_as(&scene, SOURCE, 1, TARGET, false), RELAY_FORBIDDEN);
    assert_int_equal(connect_as(&scene, TARGET, 1, TARGET, true), RELAY_FORBIDDEN);
    assert_int_equal(connect_as(&scene, SOURCE, 1, RELAY, true), RELAY_FORBIDDEN);
    assert_int_equal(connect_as(&scene, SOURCE, 1U << 31 | 1, TARGET, true), RELAY_BROKEN);
    assert_int_equal(connect_as(&scene, SOURCE, 1, TARGET, true), RELAY_GRANTED);
    assert_int_equal(connect_as(&scene, SOURCE, 1, TARGET, true), RELAY_BROKEN);
    assert_int_equal(circuits(&scene), 1);
    relay_set_open(scene.relay, false, &scene.out);
    assert_int_equal(circuits(&scene), 0);
    drop_all(&scene);
    assert_int_equal(reserve(&scene, TARGET, true), RELAY_FORBIDDEN);
    assert_int_equal(connect_as(&scene, SOURCE, 2, TARGET, true), RELAY_FORBIDDEN);
    scene_destroy(&scene);
    scene_create(&scene, 0); /* --relay 0 */
    assert_int_equal(reserve(&scene, TARGET, true), RELAY_FORBIDDEN);
    scene_destroy(&scene);
}

/* Reservations and circuits are counted: in all, and of one peer. */
static void places_are_limited(void **state)
{
    struct scene scene;
    uint32_t granted = 0;

    (void)state;
    scene_create(&scene, 2500000);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(reserve(&scene, 100 + i, true), RELAY_GRANTED);
    }
    assert_int_equal(reserve(&scene, 500, true), RELAY_FULL);
    assert_int_equal(reserve(&scene, 100, true), RELAY_GRANTED); /* renewed */
    for (uint32_t i = 0; i < 10; i++) {
        granted += connect_as(&scene, SOURCE, i, 100 + i, true) == RELAY_GRANTED;
    }
    assert_int_equal(granted, RELAY_CIRCUITS_PER_PEER);
    for (unsigned i = 0; i < 30; i++) {
        granted += connect_as(&scene, 300 + i, 0, 120 + i, true) == RELAY_GRANTED;
    }
    assert_int_equal(granted, 16);
    assert_int_equal(circuits(&scene), 16);
    scene.now_ns += 6 * NS_PER_S; /* no target has answered */
    relay_tick(scene.relay, scene.now_ns, &scene.out);
    assert_int_equal(circuits(&scene), 0);
    scene_destroy(&scene);
}

/* A lease runs out after ten minutes, unless it is renewed, and its circuits with it. */
static void leases_run_out(void **state)
{
    struct scene scene;
    struct message message;
    struct relay_view view;

    (void)state;
    scene_create(&scene, 2500000);
    open_circuit(&scene);
    scene.now_ns += 500 * NS_PER_S;
    assert_int_equal(reserve(&scene, TARGET, true), RELAY_GRANTED);
    scene.now_ns += 500 * NS_PER_S;
    relay_tick(scene.relay, scene.now_ns, &scene.out);
    assert_int_equal(circuits(&scene), 1);
    drop_all(&scene);
    scene.now_ns += 101 * NS_PER_S;
    relay_tick(scene.relay, scene.now_ns, &scene.out);
    relay_view(scene.relay, &view);
    assert_true(view.circuits == 0 && view.reservations == 0);
    assert_true(take(&scene, SOURCE, &message) && message.as.relay_stop.code == RELAY_SPENT);
    assert_true(take(&scene, TARGET, &message) && message.as.relay_stop.code == RELAY_SPENT);
    scene_destroy(&scene);
}

/* Who sends more than it was granted loses the circuit; the other end hears of it. */
static void a_window_is_kept(void **state)
{
    struct scene scene;
    struct message message;
    struct inner_header onward;
    struct peer_id to;

    (void)state;
    scene_create(&scene, 25000000);
    open_circuit(&scene);
    for (uint32_t sent = 0; sent < RELAY_WINDOW_BYTES; sent += RELAY_SEGMENT_BYTES) {
        assert_true(data(&scene, SOURCE, 5, RELAY_SEGMENT_BYTES, &to, &onward));
    }
    assert_false(data(&scene, SOURCE, 5, 1, &to, &onward));
    assert_int_equal(circuits(&scene), 0);
    assert_true(take(&scene, TARGET, &message) && message.as.relay_stop.code == RELAY_BROKEN);
    scene_destroy(&scene);
}

/* Nobody takes more than a window beyond what was sent to it. */
static void a_window_too_wide_ends_the_circuit(void **state)
{
    struct scene scene;
    struct message message;
    struct inner_header onward;
    struct peer_id to;

    (void)state;
    scene_create(&scene, 2500000);
    open_circuit(&scene);
    drop_all(&scene);
    assert_true(data(&scene, SOURCE, 5, 1000, &to, &onward));
    say_window(&scene, TARGET, scene.target_circuit, RELAY_WINDOW_BYTES + 1000);
    assert_int_equal(circuits(&scene), 1);
    say_window(&scene, TARGET, scene.target_circuit, RELAY_WINDOW_BYTES + 1001);
    assert_int_equal(circuits(&scene), 0);
    assert_true(take(&scene, SOURCE, &message) && message.as.relay_stop.code == RELAY_BROKEN);
    assert_true(take(&scene, TARGET, &message) && message.as.relay_stop.code == RELAY_BROKEN);
    scene_destroy(&scene);
}

/* The sum of what is granted follows the rate, and a receiver that takes everything at once cannot
 * make it more. */
static void the_rate_is_kept(void **state)
{
    enum { RATE = 100000, SECONDS = 60 };
    struct scene scene;
    struct inner_header onward;
    struct message message;
    struct peer_id to;
    uint64_t granted, sent = 0;

    (void)state;
    scene_create(&scene, RATE);
    open_circuit(&scene);
    granted = scene.granted;
    drop_all(&scene);
    for (uint32_t step = 0; step < SECONDS * 50; step++) {
        scene.now_ns += NS_PER_S / 50;
        say_window(&scene, TARGET, scene.target_circuit, sent + RELAY_WINDOW_BYTES);
        relay_tick(scene.relay, scene.now_ns, &scene.out);
        while (take(&scene, SOURCE, &message)) {
            assert_int_equal(message.type, MESSAGE_RELAY_WINDOW);
            granted = message.as.relay_window.bytes;
        }
        drop_all(&scene);
        while (sent < granted) {
            size_t count = granted - sent < RELAY_SEGMENT_BYTES ? (size_t)(granted - sent)
                                                                : (size_t)RELAY_SEGMENT_BYTES;

            assert_true(data(&scene, SOURCE, 5, count, &to, &onward));
            sent += count;
        }
    }
    assert_in_range(sent, (uint64_t)RATE * SECONDS * 9 / 10,
                    (uint64_t)RATE * SECONDS + 3 * RELAY_WINDOW_BYTES);
    scene_destroy(&scene);
}

/* A circuit carries so much, and no more. */
static void bytes_are_limited(void **state)
{
    struct scene scene;
    struct message message;
    struct inner_header onward;
    struct peer_id to;
    uint64_t sent = 0;

    (void)state;
    scene_create(&scene, 2500000);
    relay_destroy(scene.relay);
    scene.options.circuit_bytes_max = 100000;
    scene.relay = relay_create(&scene.options, peer(RELAY));
    relay_set_open(scene.relay, true, &scene.out);
    open_circuit(&scene);
    drop_all(&scene);
    while (sent < scene.granted && data(&scene, SOURCE, 5, 1000, &to, &onward)) {
        sent += 1000;
    }
    assert_int_equal(sent, 100000);
    assert_true(take(&scene, SOURCE, &message) && message.as.relay_stop.code == RELAY_SPENT);
    assert_true(take(&scene, TARGET, &message) && message.as.relay_stop.code == RELAY_SPENT);
    scene_destroy(&scene);
}

/* An end that is lost takes its circuits and its reservation with it. */
static void a_lost_end_ends_its_circuits(void **state)
{
    struct scene scene;
    struct message message;

    (void)state;
    scene_create(&scene, 2500000);
    open_circuit(&scene);
    drop_all(&scene);
    relay_on_link_lost(scene.relay, peer(TARGET), &scene.out);
    assert_true(take(&scene, SOURCE, &message) && message.as.relay_stop.code == RELAY_CLOSED);
    assert_false(take(&scene, TARGET, &message));
    assert_int_equal(connect_as(&scene, SOURCE, 6, TARGET, true), RELAY_UNRESERVED);
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_passed_on),
        cmocka_unit_test(what_a_relay_refuses),
        cmocka_unit_test(places_are_limited),
        cmocka_unit_test(leases_run_out),
        cmocka_unit_test(a_window_is_kept),
        cmocka_unit_test(the_rate_is_kept),
        cmocka_unit_test(a_window_too_wide_ends_the_circuit),
        cmocka_unit_test(bytes_are_limited),
        cmocka_unit_test(a_lost_end_ends_its_circuits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

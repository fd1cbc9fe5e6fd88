/* The promises of peer/env/env.h about links, on both worlds; test_env_host.c has the others. */
#include "tests/contract/env_worlds.h"

#include "gossip/wire/limits.h"

#include <sys/resource.h>

static void frames_arrive_whole_and_in_order_both_ways(void **state)
{
    /* Frames of all sizes come out of the other end unchanged, in order, once. */
    static const size_t sizes[] = {16, 17, 100, 1000, 4096, 16360, 16361, 65536, 131072, 700000};
    struct world *world = *state;
    uint64_t ends[2]; /* of side 1 (dialler), of side 0 */

    world_connect(world, &ends[1], &ends[0]);
    world_grow(world, ends[1], ends[0]);
    for (uint32_t n = 0; n < 300; n++) {
        size_t inner = sizes[n % ARRAY_COUNT(sizes)] + n / 10;

        for (int i = 0; i < 2; i++) {
            struct side *side = &world->sides[i];

            while (side_send(side, ends[i], inner, n) == RC_LIMIT) {
                world_turn(world);
            }
        }
    }
    wait_until(world, world->sides[0].frames_count == 300 && world->sides[1].frames_count == 300);
    world_settle(world);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world->sides[i].frames_count, 300);
        assert_int_equal(world->sides[i].lost_count, 0);
        for (uint32_t n = 0; n < 300; n++) {
            assert_int_equal(world->sides[i].frames[n].number, n);
            assert_int_equal(world->sides[i].frames[n].link, ends[i]);
        }
    }
}

static void frames_sent_before_the_connection_stands_arrive_after_it(void **state)
{
    /* What is sent right after dial() waits for the connection and is not lost. */
    struct world *world = *state;
    struct side *from = &world->sides[1];
    uint64_t link;

    assert_int_equal(CALL(from, dial(from->env, world->address, &link)), RC_OK);
    assert_int_equal(side_send(from, link, 40, 7), RC_OK);
    wait_until(world, world->sides[0].frames_count == 1);
    assert_int_equal(world->sides[0].frames[0].number, 7);
    assert_int_equal(from->connected, link);
}

static void frames_split_and_joined_by_the_network_come_out_whole(void **state)
{
    /* The borders of frames do not depend on how their bytes were handed over. */
    struct world *world = *state;
    uint64_t dialled, accepted;
    uint8_t bytes[3 * 200];
    size_t each = secure_record_bytes(100);

    world_connect(world, &dialled, &accepted);
    for (uint32_t i = 0; i < 3; i++) {
        frame_fill(bytes + i * each, 100, i);
    }
    side_send_bytes(&world->sides[1], dialled, bytes, 3);
    world_settle(world);
    side_send_bytes(&world->sides[1], dialled, bytes + 3, each + 50);
    wait_until(world, world->sides[0].frames_count == 1);
    side_send_bytes(&world->sides[1], dialled, bytes + 53 + each, 2 * each - 53);
    wait_until(world, world->sides[0].frames_count == 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(world->sides[0].frames[i].number, i);
    }
}

static uint64_t received_by(struct side *side, uint64_t link)
{
    uint64_t sent, received;

    DO(side, link_bytes(side->env, link, &sent, &received));
    return received;
}

/* None of those that came while nobody read; the one after them again. */
static void lain_frames_tell_nothing(struct world *world, uint64_t dialled, uint64_t accepted)
{
    struct side *from = &world->sides[1], *to = &world->sides[0];
    unsigned count = to->frames_count;

    to->must_pause = true;
    for (uint8_t i = 0; i < 4; i++) {
        assert_int_equal(side_send(from, dialled, 10000, i), RC_OK);
    }
    wait_until(world, to->frames_count == count + 1);
    world_settle(world);
    to->tells = 0;
    DO(to, link_pause(to->env, accepted, false));
    wait_until(world, to->frames_count == count + 4);
    assert_int_equal(to->tells, 0);
    world_settle(world);
    assert_int_equal(side_send(from, dialled, 10000, 9), RC_OK);
    wait_until(world, to->frames_count == count + 5);
    assert_int_equal(to->tells, 1);
}

static void a_frame_tells_how_long_it_took_to_come_in(void **state)
{
    /* From its first bytes to its last; not while nobody read. */
    struct world *world = *state;
    struct side *from = &world->sides[1], *to = &world->sides[0];
    struct blob *frame = frame_make(100000, 7);
    uint64_t dialled, accepted, spent_ns, before, begun_ns, now_ns;
    size_t half = frame->count / 2;

    world_connect(world, &dialled, &accepted);
    world_grow(world, dialled, accepted);
    assert_int_equal(side_send(from, dialled, 20, 6), RC_OK);
    wait_until(world, to->frames_count == 1);
    begun_ns = to->env->ops->now_ns(to->env);
    before = received_by(to, accepted);
    side_send_bytes(from, dialled, frame->bytes, half);
    wait_until(world, received_by(to, accepted) >= before + half);
    now_ns = to->env->ops->now_ns(to->env);
    wait_until(world, to->env->ops->now_ns(to->env) > now_ns + 2 * NS_PER_MS);
    side_send_bytes(from, dialled, frame->bytes + half, frame->count - half);
    wait_until(world, to->frames_count == 2);
    now_ns = to->env->ops->now_ns(to->env);
    assert_true(to->knows_spent && to->spent_ns > 0 && to->spent_ns < now_ns - begun_ns);
    if (world->sim == NULL) assert_true(to->spent_ns >= 2 * NS_PER_MS); /* there lines tell */
    to->must_pause = true;
    assert_int_equal(side_send(from, dialled, 100000, 8), RC_OK);
    assert_int_equal(side_send(from, dialled, 100000, 9), RC_OK);
    wait_until(world, to->frames_count == 3);
    assert_true(to->knows_spent);
    world_settle(world);
    DO(to, link_pause(to->env, accepted, false));
    wait_until(world, to->frames_count == 4);
    assert_false(to->knows_spent);
    lain_frames_tell_nothing(world, dialled, accepted);
    assert_false(CALL(from, frame_spent_ns(from->env, 12345, &spent_ns)));
    blob_unref(frame);
}

static void a_stranger_is_held_to_the_handshake_limit(void **state)
{
    /* Before link_set_frame_max() a frame above HANDSHAKE_BYTES_MAX ends the link with RC_LIMIT. */
    struct world *world = *state;
    struct side *side = &world->sides[0];
    uint64_t dialled, accepted;

    world_connect(world, &dialled, &accepted);
    assert_int_equal(
        side_send(&world->sides[1], dialled, HANDSHAKE_BYTES_MAX - secure_record_bytes(0), 1),
        RC_OK);
    wait_until(world, side->frames_count == 1);
    assert_int_equal(
        side_send(&world->sides[1], dialled, HANDSHAKE_BYTES_MAX - secure_record_bytes(0) + 1, 2),
        RC_OK);
    wait_until(world, side->lost_count == 1);
    assert_int_equal(side->lost, accepted);
    assert_int_equal(side->lost_rc, RC_LIMIT);
    assert_int_equal(side->frames_count, 1);
    wait_until(world, world->sides[1].lost_count == 1);
}

static void other_protocols_are_hung_up_on(void **state)
{
    /* An HTTP request, zeros with a reserved byte set, and noise all end the link, reported once.
     */
    static const struct {
        const char *bytes;
        size_t count;
    } greetings[] = {{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
                     {"\x10\0\0\0\0\0\0\1 sixteen bytes..", 25},
                     {"\xff\xff\xff\xff\0\0\0\0", 8},
                     {"GRPV\1\1\xff\xff and more", 17}};
    struct world *world = *state;
    struct side *side = &world->sides[0];

    for (unsigned i = 0; i < ARRAY_COUNT(greetings); i++) {
        uint64_t dialled, accepted;

        world_connect(world, &dialled, &accepted);
        side_send_bytes(&world->sides[1], dialled, greetings[i].bytes, greetings[i].count);
        wait_until(world, side->lost_count == i + 1);
        assert_int_equal(side->lost, accepted);
        assert_true(side->lost_rc == RC_FORMAT || side->lost_rc == RC_LIMIT);
        wait_until(world, world->sides[1].lost_count == i + 1);
    }
    assert_int_equal(side->frames_count, 0);
}

static void a_refused_dial_is_reported_once_with_its_reason(void **state)
{
    /* Nobody listens there: on_lost with RC_REFUSED and words, never from inside dial(). */
    struct world *world = *state;
    struct side *side = &world->sides[0];
    char nobody[ADDRESS_BYTES_MAX] = "sim:1"; /* side 1 does not listen */
    uint64_t link;

    if (world->sim == NULL) { /* a port that was just given back */
        struct env *other = uv_side_create(NULL);
        struct fault why;

        assert_int_equal(other->ops->listen(other, "127.0.0.1:0", nobody, sizeof nobody, &why),
                         RC_OK);
        uv_env_destroy(other);
    }
    assert_int_equal(CALL(side, dial(side->env, nobody, &link)), RC_OK);
    wait_until(world, side->lost_count == 1);
    assert_int_equal(side->lost, link);
    assert_int_equal(side->lost_rc, RC_REFUSED);
    assert_string_equal(side->lost_why, "connection refused");
    world_settle(world);
    assert_int_equal(side->lost_count, 1);
    assert_int_equal(side->connected_count, 0);
}

static void addresses_that_are_none_are_refused_at_once(void **state)
{
    /* A malformed address is an error code of dial(), and nothing follows. */
    static const char *const wrong[] = {"",           "host",     "host:",  ":80",
                                        "host:99999", "ho st:80", "::1:80", "[::1]80",
                                        "[::1:80",    "host:0",   "a:b:1"};
    struct world *world = *state;
    struct side *side = &world->sides[0];
    uint64_t link;

    for (unsigned i = 0; i < ARRAY_COUNT(wrong); i++) {
        assert_int_equal(CALL(side, dial(side->env, wrong[i], &link)), RC_PARSE);
    }
    world_settle(world);
    assert_int_equal(side->lost_count, 0);
}

static void above_the_queue_limit_send_refuses_and_drain_follows(void **state)
{
    /* A receiver that stops reading fills the queue to its limit and no further; nothing is lost.
     */
    struct world *world = *state;
    struct side *from = &world->sides[1], *to = &world->sides[0];
    uint64_t dialled, accepted;
    uint32_t sent = 0;
    enum rc rc = RC_OK;

    world_connect(world, &dialled, &accepted);
    world_grow(world, dialled, accepted);
    DO(to, link_pause(to->env, accepted, true));
    for (int quiet = 0; quiet < 50;) {
        rc = side_send(from, dialled, 100000, sent);
        if (rc == RC_OK) {
            sent++;
            quiet = 0;
        } else {
            assert_int_equal(rc, RC_LIMIT);
            world_turn(world);
            quiet++;
        }
        assert_true(sent < 1000); /* 100 MB: no limit at all */
    }
    assert_int_equal(to->frames_count, 0);
    from->drain_count = 0;
    DO(to, link_pause(to->env, accepted, false));
    wait_until(world, from->drain_count == 1 && to->frames_count == sent);
    for (uint32_t n = 0; n < sent; n++) {
        assert_int_equal(to->frames[n].number, n);
    }
    assert_int_equal(side_send(from, dialled, 100000, sent), RC_OK);
    wait_until(world, to->frames_count == sent + 1);
    assert_int_equal(from->drain_count, 1);
}

static void a_frame_above_the_queue_limit_is_never_queued(void **state)
{
    /* LINK_QUEUE_BYTES_MAX holds even for one frame in an empty queue. */
    struct world *world = *state;
    uint64_t dialled, accepted;
    struct blob *blob = blob_create(LINK_QUEUE_BYTES_MAX + 1);

    world_connect(world, &dialled, &accepted);
    assert_int_equal(CALL(&world->sides[1], send(world->sides[1].env, dialled, blob)), RC_LIMIT);
    assert_int_equal(blob->references, 1);
    blob_unref(blob);
}

static void hangup_flushes_and_tells_only_the_other_side(void **state)
{
    /* What was queued before hangup() arrives, then the other side sees the end; we hear nothing.
     */
    struct world *world = *state;
    struct side *from = &world->sides[1], *to = &world->sides[0];
    uint64_t dialled, accepted;

    world_connect(world, &dialled, &accepted);
    world_grow(world, dialled, accepted);
    for (uint32_t n = 0; n < 10; n++) {
        assert_int_equal(side_send(from, dialled, 100000, n), RC_OK);
        assert_int_equal(side_send(to, accepted, 1000, n), RC_OK); /* unread when it closes */
    }
    DO(from, hangup(from->env, dialled));
    assert_int_equal(side_send(from, dialled, 100, 11), RC_CLOSED);
    wait_until(world, to->lost_count == 1);
    assert_int_equal(to->frames_count, 10);
    assert_int_equal(to->lost, accepted);
    assert_int_equal(to->lost_rc, RC_CLOSED);
    world_settle(world);
    assert_int_equal(from->lost_count, 0);
    assert_int_equal(from->frames_count, 0);
}

static void hangup_from_inside_on_frame_ends_the_frames(void **state)
{
    /* Ten frames come in one piece; the node hangs up at the first and hears of no other. */
    struct world *world = *state;
    uint64_t dialled, accepted;

    world_connect(world, &dialled, &accepted);
    world->sides[0].must_hang_up = true;
    for (uint32_t n = 0; n < 10; n++) {
        assert_int_equal(side_send(&world->sides[1], dialled, 100, n), RC_OK);
    }
    wait_until(world, world->sides[1].lost_count == 1);
    assert_int_equal(world->sides[0].frames_count, 1);
    assert_int_equal(world->sides[0].lost_count, 0);
}

static void a_paused_link_delivers_nothing_until_it_goes_on(void **state)
{
    /* Pausing inside on_frame holds even frames that were read already; resuming loses none. */
    struct world *world = *state;
    struct side *to = &world->sides[0];
    uint64_t dialled, accepted;

    world_connect(world, &dialled, &accepted);
    to->must_pause = true;
    for (uint32_t n = 0; n < 10; n++) {
        assert_int_equal(side_send(&world->sides[1], dialled, 100, n), RC_OK);
    }
    wait_until(world, to->frames_count == 1);
    world_settle(world);
    assert_int_equal(to->frames_count, 1);
    DO(to, link_pause(to->env, accepted, false));
    assert_int_equal(to->frames_count, 1);
    wait_until(world, to->frames_count == 10);
    for (uint32_t n = 0; n < 10; n++) {
        assert_int_equal(to->frames[n].number, n);
    }
}

static void link_numbers_rise_and_are_never_used_again(void **state)
{
    /* Thirty links one after another: each number is larger than all before, on both sides. */
    struct world *world = *state;
    uint64_t before[2] = {0, 0};

    for (unsigned i = 0; i < 30; i++) {
        uint64_t ends[2];

        world_connect(world, &ends[1], &ends[0]);
        assert_true(ends[0] > before[0] && ends[1] > before[1]);
        DO(&world->sides[i % 2], hangup(world->sides[i % 2].env, ends[i % 2]));
        wait_until(world, world->sides[0].lost_count + world->sides[1].lost_count == i + 1);
        for (int j = 0; j < 2; j++) {
            assert_int_equal(side_send(&world->sides[j], ends[j], 20, 1), RC_CLOSED);
            before[j] = ends[j];
        }
    }
}

static void calls_on_links_that_are_gone_do_nothing(void **state)
{
    /* A late call with an old or invented number is harmless. */
    struct world *world = *state;
    struct side *side = &world->sides[0];
    static const uint64_t numbers[] = {LINK_NONE, 1, 77, 256, UINT64_MAX};
    uint64_t sent = 9, received = 9;

    for (unsigned i = 0; i < ARRAY_COUNT(numbers); i++) {
        assert_int_equal(side_send(side, numbers[i], 20, 1), RC_CLOSED);
        DO(side, hangup(side->env, numbers[i]));
        DO(side, link_set_frame_max(side->env, numbers[i], 5000));
        DO(side, link_pause(side->env, numbers[i], true));
        DO(side, link_bytes(side->env, numbers[i], &sent, &received));
        assert_int_equal(sent + received, 0);
    }
}

static void a_peer_that_vanishes_is_reported_once(void **state)
{
    /* The other side dies with the link open: one on_lost, then silence and RC_CLOSED. */
    struct world *world = *state;
    struct side *side = &world->sides[1];
    uint64_t dialled, accepted;

    world_connect(world, &dialled, &accepted);
    assert_int_equal(side_send(side, dialled, 40, 1), RC_OK);
    if (world->sim != NULL) {
        sim_host_crash(world->sim, world->hosts[0]);
    } else {
        uv_env_destroy(world->sides[0].env);
        world->sides[0].env = NULL;
    }
    wait_until(world, side->lost_count == 1);
    assert_int_equal(side->lost, dialled);
    world_settle(world);
    assert_int_equal(side->lost_count, 1);
    assert_int_equal(side_send(side, dialled, 40, 2), RC_CLOSED);
}

static void bytes_of_a_link_are_counted_alike_on_both_ends(void **state)
{
    /* What one side sent the other received, framing included. */
    struct world *world = *state;
    uint64_t dialled, accepted, sent[2], received[2];

    world_connect(world, &dialled, &accepted);
    for (uint32_t n = 0; n < 5; n++) {
        assert_int_equal(side_send(&world->sides[1], dialled, 100 + n, n), RC_OK);
    }
    assert_int_equal(side_send(&world->sides[0], accepted, 500, 0), RC_OK);
    wait_until(world, world->sides[0].frames_count == 5 && world->sides[1].frames_count == 1);
    world_settle(world);
    DO(&world->sides[0], link_bytes(world->sides[0].env, accepted, &sent[0], &received[0]));
    DO(&world->sides[1], link_bytes(world->sides[1].env, dialled, &sent[1], &received[1]));
    assert_int_equal(sent[1], 5 * secure_record_bytes(100) + 10);
    assert_int_equal(received[0], sent[1]);
    assert_int_equal(sent[0], secure_record_bytes(500));
    assert_int_equal(received[1], sent[0]);
}

static void there_is_one_listener_and_it_needs_an_address(void **state)
{
    /* A second listen() is refused, and so is nonsense, with words for a person. */
    struct world *world = *state;
    char bound[ADDRESS_BYTES_MAX];
    struct fault why = {.text = ""};
    struct side *side = &world->sides[0];

    assert_int_equal(CALL(side, listen(side->env, "127.0.0.1:0", bound, sizeof bound, &why)),
                     RC_BUSY);
    assert_string_not_equal(why.text, "");
    side = &world->sides[1];
    assert_int_equal(CALL(side, listen(side->env, "nonsense", bound, sizeof bound, &why)),
                     RC_PARSE);
    assert_non_null(strstr(why.text, "host:port"));
}

static void the_longest_waiting_stranger_makes_room_for_the_next(void **state)
{
    /* With all CONNECTIONS_MAX links taken, a grown link stays and the oldest stranger goes. */
    struct world *world = *state;
    struct side *to = &world->sides[0], *from = &world->sides[1];
    uint64_t dialled, grown, oldest = 0, taken, link;

    world_connect(world, &dialled, &grown);
    world_grow(world, dialled, grown);
    for (unsigned i = 1; i < CONNECTIONS_MAX; i++) {
        world_connect(world, &dialled, &taken);
        if (i == 1) oldest = taken;
    }
    assert_int_equal(CALL(from, dial(from->env, world->address, &link)), RC_LIMIT);
    DO(from, hangup(from->env, dialled)); /* room at the dialler; the other end hears later */
    assert_int_equal(CALL(from, dial(from->env, world->address, &link)), RC_OK);
    wait_until(world, from->connected == link);
    wait_until(world, to->accepted_count == CONNECTIONS_MAX + 1);
    /* Either the farewell came first, or the oldest stranger had to go. */
    assert_true(to->lost_count >= 1);
    assert_true(to->lost == oldest || to->lost == taken);
    assert_int_equal(side_send(to, grown, 1000, 3), RC_OK);
    wait_until(world, from->frames_count == 1);
}

static void after_stop_nothing_is_delivered_and_the_others_see_the_end(void **state)
{
    /* stop() closes gracefully: what was queued still arrives. */
    struct world *world = *state;
    struct side *from = &world->sides[1], *to = &world->sides[0];
    uint64_t dialled, accepted;

    world_connect(world, &dialled, &accepted);
    assert_int_equal(side_send(from, dialled, 100, 5), RC_OK);
    DO(from, wake_at(from->env, 0));
    DO(from, stop(from->env));
    wait_until(world, to->lost_count == 1);
    assert_int_equal(to->frames_count, 1);
    world_settle(world);
    assert_int_equal(from->wake_count, 0);
    assert_int_equal(from->lost_count, 0);
    assert_int_equal(CALL(from, dial(from->env, world->address, &dialled)), RC_CLOSED);
    if (world->sim == NULL) uv_env_run(from->env); /* all is closed: it returns at once */
}

/* One process holds both ends of all its connections. */
static void allow_many_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* then the test that needs it says what is short */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BOTH(frames_arrive_whole_and_in_order_both_ways),
        BOTH(frames_sent_before_the_connection_stands_arrive_after_it),
        BOTH(frames_split_and_joined_by_the_network_come_out_whole),
        BOTH(a_frame_tells_how_long_it_took_to_come_in),
        BOTH(a_stranger_is_held_to_the_handshake_limit),
        BOTH(other_protocols_are_hung_up_on),
        BOTH(a_refused_dial_is_reported_once_with_its_reason),
        BOTH(addresses_that_are_none_are_refused_at_once),
        BOTH(above_the_queue_limit_send_refuses_and_drain_follows),
        BOTH(a_frame_above_the_queue_limit_is_never_queued),
        BOTH(hangup_flushes_and_tells_only_the_other_side),
        BOTH(hangup_from_inside_on_frame_ends_the_frames),
        BOTH(a_paused_link_delivers_nothing_until_it_goes_on),
        BOTH(link_numbers_rise_and_are_never_used_again),
        BOTH(calls_on_links_that_are_gone_do_nothing),
        BOTH(a_peer_that_vanishes_is_reported_once),
        BOTH(bytes_of_a_link_are_counted_alike_on_both_ends),
        BOTH(there_is_one_listener_and_it_needs_an_address),
        BOTH(the_longest_waiting_stranger_makes_room_for_the_next),
        BOTH(after_stop_nothing_is_delivered_and_the_others_see_the_end),
    };

    if (argc > 1) cmocka_set_test_filter(argv[1]); /* such as "sim: *" */
    allow_many_files();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

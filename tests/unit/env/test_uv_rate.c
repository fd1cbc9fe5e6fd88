/*
 * uv_rate: a peer's cap over real sockets. All verdicts hold however slow the machine is: bytes are
 * counted against the time that really passed, and what goes first is seen by order alone. LONG=1:
 * four seconds of each, and what share of the cap was used is printed.
 */
#include "tests/contract/env_worlds.h"

#include "peer/env/rate.h"

enum { LINKS = 4, FRAME_BYTES = 50000, MOST_TURNS = 60000 };

struct scene {
    struct world *world;
    struct side *from, *to; /* from dials, and sends */
    uint64_t dialled[LINKS], accepted[LINKS];
    uint64_t arrived[LINKS]; /* bytes of frames */
    uint32_t number;
};

static struct scene *noting;

static void on_scene_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    (void)context, (void)frame;
    for (int i = 0; i < LINKS; i++) {
        if (noting->accepted[i] == link) noting->arrived[i] += count;
    }
}

static struct env *limited(const char *folder, uint64_t bytes_per_s)
{
    struct uv_env_options options = {.folder = folder, .bytes_per_s = bytes_per_s};
    struct env *env = NULL;
    struct fault why;

    assert_int_equal(uv_env_create(&options, &env, &why), RC_OK);
    return env;
}

/* Link 0 talks, the others carry bulk; the first `bulk` of those. */
static void scene_open(struct scene *scene, uint64_t send_per_s, uint64_t receive_per_s)
{
    struct world *world = calloc(1, sizeof *world);
    struct env_events events = {.on_accepted = note_accepted,
                                .on_connected = note_connected,
                                .on_frame = on_scene_frame,
                                .on_drain = note_drain,
                                .on_lost = note_lost,
                                .on_wake = note_wake};

    assert_non_null(world);
    *scene = (struct scene){.world = world, .from = &world->sides[1], .to = &world->sides[0]};
    noting = scene;
    world->name = "uv";
    snprintf(world->folder, sizeof world->folder, "/tmp/env-test-XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    side_begin(scene->to, limited(world->folder, receive_per_s));
    side_begin(scene->from, limited(world->folder, send_per_s));
    for (int i = 0; i < 2; i++) {
        events.context = &world->sides[i];
        world->sides[i].env->ops->set_events(world->sides[i].env, &events);
    }
    world_listen(world);
    for (int i = 0; i < LINKS; i++) {
        world_connect(world, &scene->dialled[i], &scene->accepted[i]);
        world_grow(world, scene->dialled[i], scene->accepted[i]);
        if (i == 0) continue;
        DO(scene->from, link_set_bulk(scene->from->env, scene->dialled[i]));
        DO(scene->to, link_set_bulk(scene->to->env, scene->accepted[i]));
    }
}

static void scene_close(struct scene *scene)
{
    world_destroy(scene->world);
    assert_int_equal(mem_blocks(), 0);
}

/* Queue as much as will go, on bulk links 1 to `last`. */
static void send_all_it_takes(struct scene *scene, int last)
{
    for (int i = 1; i <= last; i++) {
        while (side_send(scene->from, scene->dialled[i], FRAME_BYTES, scene->number) == RC_OK) {
            scene->number++;
        }
    }
}

static uint64_t socket_bytes(struct side *side, const uint64_t *links, bool is_sent)
{
    uint64_t sum = 0;

    for (int i = 0; i < LINKS; i++) {
        uint64_t sent, received;

        DO(side, link_bytes(side->env, links[i], &sent, &received));
        sum += is_sent ? sent : received;
    }
    return sum;
}

static void run_against_the_cap(uint64_t send_per_s, uint64_t receive_per_s)
{
    struct scene scene;
    uint64_t rate = send_per_s > 0 ? send_per_s : receive_per_s, begun_ns = uv_clock_ns(), bytes;
    double most;
    int turns = 0;

    scene_open(&scene, send_per_s, receive_per_s);
    do {
        send_all_it_takes(&scene, 2);
        world_turn(scene.world);
        bytes = send_per_s > 0 ? socket_bytes(scene.from, scene.dialled, true)
                               : socket_bytes(scene.to, scene.accepted, false);
        most = (double)rate * (double)(uv_clock_ns() - begun_ns) / 1e9 + 2 * (double)rate / 20;
        if ((double)bytes > most) fail_msg("%llu of %.0f", (unsigned long long)bytes, most);
        assert_true(++turns < MOST_TURNS);
    } while (getenv("LONG") != NULL ? uv_clock_ns() - begun_ns < 4 * NS_PER_S : bytes < rate / 2);
    if (getenv("LONG") != NULL) {
        printf("%s at %llu B/s: %.3f of the cap\n", send_per_s > 0 ? "sending" : "receiving",
               (unsigned long long)rate,
               (double)bytes * 1e9 / ((double)rate * (double)(uv_clock_ns() - begun_ns)));
    }
    /* Both links had their turns. */
    assert_true(scene.arrived[1] > bytes / 10 && scene.arrived[2] > bytes / 10);
    scene_close(&scene);
}

static void what_is_sent_keeps_below_the_cap(void **state)
{
    /* Two links that always have something to send, at 6 MB/s and at 300 kB/s. */
    (void)state;
    run_against_the_cap(6000000, 0);
    run_against_the_cap(300000, 0);
}

static void what_is_received_keeps_below_the_cap(void **state)
{
    /* The same from senders without any limit: it is the reader that holds back. */
    (void)state;
    run_against_the_cap(0, 6000000);
    run_against_the_cap(0, 300000);
}

static void conversation_does_not_wait_for_bulk(void **state)
{
    /* Three links full of bulk and no token left: what is said on the fourth is written at once. */
    struct scene scene;
    uint64_t sent, received;

    (void)state;
    scene_open(&scene, 100000, 0);
    for (int i = 0; i < 20; i++) {
        send_all_it_takes(&scene, LINKS - 1);
        uv_env_poll(scene.from->env, 0);
    }
    DO(scene.from, link_bytes(scene.from->env, scene.dialled[0], &sent, &received));
    assert_int_equal(sent, 0);
    assert_int_equal(side_send(scene.from, scene.dialled[0], 2000, 1), RC_OK);
    for (int i = 0; i < 3; i++) {
        uv_env_poll(scene.from->env, 0);
    }
    DO(scene.from, link_bytes(scene.from->env, scene.dialled[0], &sent, &received));
    assert_int_equal(sent, secure_record_bytes(2000));
    assert_int_equal(side_send(scene.from, scene.dialled[1], FRAME_BYTES, 1), RC_LIMIT);
    scene_close(&scene);
}

static void a_throttled_link_can_be_paused_hung_up_and_lost(void **state)
{
    /* Whatever ends a link that waits for tokens leaves nothing behind. */
    struct scene scene;

    (void)state;
    scene_open(&scene, 0, 20000);
    for (int i = 0; i < 20; i++) {
        send_all_it_takes(&scene, LINKS - 1);
        world_turn(scene.world);
    }
    DO(scene.to, link_pause(scene.to->env, scene.accepted[1], true));
    world_turn(scene.world);
    DO(scene.to, link_pause(scene.to->env, scene.accepted[1], false));
    DO(scene.to, hangup(scene.to->env, scene.accepted[2]));
    DO(scene.from, hangup(scene.from->env, scene.dialled[3]));
    wait_until(scene.world, scene.from->lost_count == 1); /* the end, or the linger's reset */
    scene_close(&scene);
}

static void a_large_frame_goes_in_pieces_and_arrives_whole(void **state)
{
    /* 1 MiB through a cap whose burst is a twentieth of it. */
    struct scene scene;

    (void)state;
    scene_open(&scene, 1000000, 1000000);
    assert_int_equal(side_send(scene.from, scene.dialled[1], 1024 * 1024, 7), RC_OK);
    wait_until(scene.world, scene.arrived[1] == secure_record_bytes(1024 * 1024));
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_keeps_below_the_cap),
        cmocka_unit_test(what_is_received_keeps_below_the_cap),
        cmocka_unit_test(conversation_does_not_wait_for_bulk),
        cmocka_unit_test(a_throttled_link_can_be_paused_hung_up_and_lost),
        cmocka_unit_test(a_large_frame_goes_in_pieces_and_arrives_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

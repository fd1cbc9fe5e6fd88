/*
 * env_worlds: two peers' envs side by side, for the contract suite: real ones over loopback, or two
 * hosts of one simulated world. Each side notes what it is told and checks that it is never told
 * anything from inside a call of its own.
 */
#ifndef GRAPEVINE_TESTS_CONTRACT_ENV_WORLDS_H
#define GRAPEVINE_TESTS_CONTRACT_ENV_WORLDS_H

#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"
#include "peer/env/env.h"
#include "peer/env/sim/env.h"

#include <unistd.h>

enum { NOTED_FRAMES_MAX = 4096, WAIT_TURNS = 20000, PATTERN_BYTES = 256 };

struct noted_frame {
    uint64_t link;
    size_t count;
    uint32_t number; /* of the frame, see frame_make() */
};

struct side {
    struct env *env;
    bool is_calling;
    uint64_t accepted, connected, lost; /* link numbers, newest */
    unsigned accepted_count, connected_count, lost_count, drain_count, wake_count, signal_count;
    int signal;
    enum rc lost_rc;
    char lost_why[128];
    struct noted_frame frames[NOTED_FRAMES_MAX];
    unsigned frames_count;
    uint64_t frame_bytes_sum;
    bool knows_spent; /* of the last frame, and how long it took to come in */
    uint64_t spent_ns;
    unsigned tells;                /* frames of which it is known */
    bool must_hang_up, must_pause; /* at the next frame, from inside on_frame */
    bool must_fail_on_content;     /* frames are not ours: do not look inside */
    uint64_t wake_ns;              /* when on_wake came */
};

struct world {
    const char *name; /* "uv" or "sim" */
    struct side sides[2];
    char address[ADDRESS_BYTES_MAX]; /* of side 0, which listens */
    char folder[64];
    struct sim_world *sim;
    uint32_t hosts[2];
};

/* Every call into an env goes through this. */
#define CALL(side, call)                                                                           \
    __extension__({                                                                                \
        assert_false((side)->is_calling);                                                          \
        (side)->is_calling = true;                                                                 \
        __typeof__((side)->env->ops->call) result_ = (side)->env->ops->call;                       \
        (side)->is_calling = false;                                                                \
        result_;                                                                                   \
    })
#define DO(side, call)                                                                             \
    do {                                                                                           \
        assert_false((side)->is_calling);                                                          \
        (side)->is_calling = true;                                                                 \
        (side)->env->ops->call;                                                                    \
        (side)->is_calling = false;                                                                \
    } while (0)

/* What records are filled with, again and again: in large pieces, as sanitizers are slow with
 * bytes. */
static inline void pattern_make(uint8_t pattern[PATTERN_BYTES], uint32_t number)
{
    for (size_t i = 0; i < PATTERN_BYTES; i++) {
        pattern[i] = (uint8_t)(number + i * 7);
    }
}

static inline size_t pattern_part(size_t at, size_t count)
{
    size_t end = (at / PATTERN_BYTES + 1) * PATTERN_BYTES;

    return (end < count ? end : count) - at;
}

/* A record of `inner` bytes that carries a number and a pattern. */
static inline void frame_fill(uint8_t *bytes, size_t inner, uint32_t number)
{
    uint8_t pattern[PATTERN_BYTES];
    size_t count = inner + RECORD_TAG_BYTES;

    memset(bytes, 0, RECORD_HEADER_BYTES);
    store_le32(bytes, (uint32_t)inner);
    pattern_make(pattern, number);
    for (size_t i = 0; i < count; i += PATTERN_BYTES) {
        memcpy(bytes + RECORD_HEADER_BYTES + i, pattern, pattern_part(i, count));
    }
    store_le32(bytes + RECORD_HEADER_BYTES, number);
}

static inline void frame_check(const uint8_t *frame, size_t inner, uint32_t number)
{
    uint8_t pattern[PATTERN_BYTES];
    size_t count = inner + RECORD_TAG_BYTES;

    pattern_make(pattern, number);
    for (size_t i = 4, part; i < count; i += part) {
        part = pattern_part(i, count);
        if (memcmp(frame + RECORD_HEADER_BYTES + i, pattern + i % PATTERN_BYTES, part) != 0) {
            fail_msg("frame %u is damaged within %zu bytes from %zu", number, part, i);
        }
    }
}

static inline struct blob *frame_make(size_t inner, uint32_t number)
{
    struct blob *frame = blob_create(secure_record_bytes(inner));

    assert_non_null(frame);
    assert_true(inner >= INNER_HEADER_BYTES);
    frame_fill(frame->bytes, inner, number);
    return frame;
}

static inline enum rc side_send(struct side *side, uint64_t link, size_t inner, uint32_t number)
{
    struct blob *frame = frame_make(inner, number);
    enum rc rc = CALL(side, send(side->env, link, frame));

    blob_unref(frame);
    return rc;
}

static inline void side_send_bytes(struct side *side, uint64_t link, const void *bytes,
                                   size_t count)
{
    struct blob *blob = blob_copy(bytes, count);

    assert_non_null(blob);
    assert_int_equal(CALL(side, send(side->env, link, blob)), RC_OK);
    blob_unref(blob);
}

static inline void note_accepted(void *context, uint64_t link, const char *remote)
{
    struct side *side = context;

    assert_false(side->is_calling);
    assert_true(link > side->accepted && link > side->connected); /* numbers rise */
    assert_non_null(strchr(remote, ':'));
    side->accepted = link;
    side->accepted_count++;
}

static inline void note_connected(void *context, uint64_t link)
{
    struct side *side = context;

    assert_false(side->is_calling);
    side->connected = link;
    side->connected_count++;
}

static inline void note_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    struct side *side = context;
    struct noted_frame *noted = &side->frames[side->frames_count];

    assert_false(side->is_calling);
    assert_true(side->frames_count < NOTED_FRAMES_MAX);
    assert_int_not_equal(link, side->lost);
    noted->link = link;
    noted->count = count;
    if (!side->must_fail_on_content) {
        size_t inner = count - RECORD_HEADER_BYTES - RECORD_TAG_BYTES;

        noted->number = load_le32(frame + RECORD_HEADER_BYTES);
        assert_int_equal(load_le32(frame), inner);
        frame_check(frame, inner, noted->number);
    }
    memset(frame, 0xee, count); /* it is ours to change */
    side->frames_count++;
    side->frame_bytes_sum += count;
    side->knows_spent = CALL(side, frame_spent_ns(side->env, link, &side->spent_ns));
    side->tells += side->knows_spent;
    if (side->must_hang_up) DO(side, hangup(side->env, link));
    if (side->must_pause) DO(side, link_pause(side->env, link, true));
    side->must_hang_up = side->must_pause = false;
}

static inline void note_drain(void *context, uint64_t link)
{
    struct side *side = context;

    assert_false(side->is_calling);
    assert_int_not_equal(link, side->lost);
    side->drain_count++;
}

static inline void note_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    struct side *side = context;

    assert_false(side->is_calling);
    assert_int_not_equal(rc, RC_OK);
    assert_int_not_equal(link, side->lost); /* once */
    side->lost = link;
    side->lost_rc = rc;
    side->lost_count++;
    snprintf(side->lost_why, sizeof side->lost_why, "%s", why);
    assert_true(side->lost_why[0] != '\0');
}

static inline void note_wake(void *context)
{
    struct side *side = context;

    assert_false(side->is_calling);
    side->wake_count++;
    side->wake_ns = side->env->ops->now_ns(side->env);
}

static inline void note_signal(void *context, int number)
{
    struct side *side = context;

    assert_false(side->is_calling);
    side->signal = number;
    side->signal_count++;
}

static inline void side_begin(struct side *side, struct env *env)
{
    struct env_events events = {.context = side,
                                .on_accepted = note_accepted,
                                .on_connected = note_connected,
                                .on_frame = note_frame,
                                .on_drain = note_drain,
                                .on_lost = note_lost,
                                .on_wake = note_wake,
                                .on_signal = note_signal};

    memset(side, 0, sizeof *side);
    side->env = env;
    DO(side, set_events(env, &events));
}

static inline struct env *uv_side_create(const char *folder)
{
    struct uv_env_options options = {.folder = folder};
    struct env *env = NULL;
    struct fault why;

    assert_int_equal(uv_env_create(&options, &env, &why), RC_OK);
    return env;
}

static inline void world_listen(struct world *world)
{
    struct side *side = &world->sides[0];
    struct fault why;

    assert_int_equal(
        CALL(side, listen(side->env, "127.0.0.1:0", world->address, sizeof world->address, &why)),
        RC_OK);
}

static inline struct world *world_create(const char *name, uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);

    assert_non_null(world);
    world->name = name;
    if (strcmp(name, "sim") == 0) {
        struct sim_options options = {.seed = seed,
                                      .latency_ns = NS_PER_MS,
                                      .jitter_ns = NS_PER_MS,
                                      .bytes_per_s = 100 * 1000 * 1000,
                                      .hosts_max = 2};

        world->sim = sim_world_create(&options);
        assert_non_null(world->sim);
        for (int i = 0; i < 2; i++) {
            side_begin(&world->sides[i], sim_host_create(world->sim, &world->hosts[i]));
        }
    } else {
        snprintf(world->folder, sizeof world->folder, "/tmp/env-test-XXXXXX");
        assert_non_null(mkdtemp(world->folder));
        for (int i = 0; i < 2; i++) {
            side_begin(&world->sides[i], uv_side_create(world->folder));
        }
    }
    world_listen(world);
    return world;
}

static inline void world_destroy(struct world *world)
{
    char command[128];

    if (world->sim != NULL) {
        sim_world_destroy(world->sim);
    } else {
        for (int i = 0; i < 2; i++) {
            uv_env_destroy(world->sides[i].env);
        }
        snprintf(command, sizeof command, "rm -rf %s", world->folder);
        assert_int_equal(system(command), 0);
    }
    free(world);
}

/* Let a little time pass. */
static inline void world_turn(struct world *world)
{
    if (world->sim != NULL) {
        (void)sim_run(world->sim, sim_now_ns(world->sim) + NS_PER_MS / 4);
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (world->sides[i].env != NULL) {
            uv_env_poll(world->sides[i].env, i == 1 ? NS_PER_MS : 0);
        }
    }
}

#define wait_until(world, condition)                                                               \
    do {                                                                                           \
        for (int turns_ = 0; !(condition); turns_++) {                                             \
            if (turns_ == WAIT_TURNS) fail_msg("%s: waited in vain: " #condition, (world)->name);  \
            world_turn(world);                                                                     \
        }                                                                                          \
    } while (0)

/* Enough for anything that must not happen to happen. */
static inline void world_settle(struct world *world)
{
    for (int i = 0; i < 50; i++) {
        world_turn(world);
    }
}

/* Side 1 dials side 0; the link numbers of both ends. */
static inline void world_connect(struct world *world, uint64_t *dialled, uint64_t *accepted)
{
    struct side *to = &world->sides[0], *from = &world->sides[1];
    unsigned connected = from->connected_count, taken = to->accepted_count;

    assert_int_equal(CALL(from, dial(from->env, world->address, dialled)), RC_OK);
    wait_until(world, from->connected_count > connected && to->accepted_count > taken);
    assert_int_equal(from->connected, *dialled);
    *accepted = to->accepted;
}

static inline void world_grow(struct world *world, uint64_t dialled, uint64_t accepted)
{
    DO(&world->sides[0], link_set_frame_max(world->sides[0].env, accepted, 2 * 1024 * 1024));
    DO(&world->sides[1], link_set_frame_max(world->sides[1].env, dialled, 2 * 1024 * 1024));
}

/* cmocka's set-up and tear-down. */
static inline int create_uv(void **state)
{
    *state = world_create("uv", 1);
    return 0;
}

static inline int create_sim(void **state)
{
    *state = world_create("sim", 1);
    return 0;
}

static inline int destroy_world(void **state)
{
    world_destroy(*state);
    return 0;
}

/* One test, run on both. */
#define BOTH(test)                                                                                 \
    {"uv: " #test, test, create_uv, destroy_world, NULL},                                          \
    {                                                                                              \
        "sim: " #test, test, create_sim, destroy_world, NULL                                       \
    }

#endif

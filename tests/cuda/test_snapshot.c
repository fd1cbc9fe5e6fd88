/* Snapshots: what leaves the device, what comes back, and that training goes on meanwhile. */
#include "tests/cuda/parity.h"

#include "base/check.h"

#include <pthread.h>

enum { CHUNK = 4 * CODEC_BLOCK };

/* What another thread does with a snapshot: fetch it, or put a difference. */
struct errand {
    struct snapshot *snapshot;
    const float *difference; /* NULL: fetch */
    size_t values;
    enum rc rc;
    pthread_t thread;
};

static void *run_errand(void *context)
{
    struct errand *errand = context;
    const struct snapshot_ops *ops = errand->snapshot->ops;

    errand->rc = errand->difference == NULL
                     ? ops->fetch(errand->snapshot)
                     : ops->put(errand->snapshot, errand->difference, errand->values);
    return NULL;
}

static void errand_begin(struct errand *errand)
{
    assert_int_equal(pthread_create(&errand->thread, NULL, run_errand, errand), 0);
}

static void errand_end(struct parity *p, struct errand *errand)
{
    assert_int_equal(pthread_join(errand->thread, NULL), 0);
    parity_ok(p, errand->rc);
}

static struct snapshot *created(struct parity *p, enum codec_format format, size_t values)
{
    const struct snapshot_options options = {values, CHUNK, format};
    struct snapshot *snapshot = NULL;

    parity_ok(p, p->device->ops->snapshot_create(p->device, &options, &snapshot));
    return snapshot;
}

static bool holds(struct snapshot *snapshot, enum codec_format format, const float *values,
                  size_t n)
{
    static uint8_t wanted[4 * CHUNK];

    for (size_t i = 0; i * CHUNK < n; i++) {
        size_t count = n - i * CHUNK < CHUNK ? n - i * CHUNK : CHUNK, bytes = 0;
        const uint8_t *got = snapshot->ops->chunk(snapshot, i, &bytes);

        codec_encode(format, values + i * CHUNK, count, wanted);
        if (bytes != codec_bytes(format, count) || memcmp(got, wanted, bytes) != 0) return false;
    }
    return true;
}

/* Steps of training: y += x, a number of times. */
static void train(struct parity *p, const float *x, float *y, size_t n, int steps)
{
    for (int i = 0; i < steps; i++) {
        parity_ok(p, p->device->ops->axpy(p->device, 0.01F, x, y, n));
    }
}

static void train_host(const float *x, float *y, size_t n, int steps)
{
    for (int i = 0; i < steps; i++) {
        for (size_t k = 0; k < n; k++) {
            y[k] += 0.01F * x[k];
        }
    }
}

/* The plane leaves as it was when it was taken, behind the steps before and untouched by those
 * after it, which run while it is fetched. */
static void what_leaves_is_the_plane_as_it_was_when_taken(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);

    for (unsigned f = 0; f < CODEC_FORMATS; f++) {
        enum codec_format format = (enum codec_format)f;
        size_t n = 20 * CHUNK + rng_below(&p->rng, CHUNK);
        float *x = parity_values(p, n, 1.0), *y = parity_values(p, n, 1.0);
        float *x_there = parity_put_values(p, x, n), *y_there = parity_put_values(p, y, n);
        struct errand errand = {.snapshot = created(p, format, n)};

        train(p, x_there, y_there, n, 3);
        train_host(x, y, n, 3);
        parity_ok(p, errand.snapshot->ops->take(errand.snapshot, 0, y_there, n));
        parity_ok(p, errand.snapshot->ops->seal(errand.snapshot));
        train(p, x_there, y_there, n, 3);
        errand_begin(&errand);
        train(p, x_there, y_there, n, 5);
        errand_end(p, &errand);
        check_seed(seed, holds(errand.snapshot, format, y, n));
        train_host(x, y, n, 8);
        check_seed(seed, memcmp(parity_get_values(p, y_there, n), y, n * sizeof(float)) == 0);
        p->checks += 2;
        errand.snapshot->ops->destroy(errand.snapshot);
    }
    parity_end(p);
}

/* A plane is put together from ranges of any length, of the device and of the host. */
static void a_plane_may_be_taken_in_parts(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);
    size_t n = 3 * CHUNK + 77, first = 0;
    float *y = parity_values(p, n, 1.0), *y_there = parity_put_values(p, y, n);
    struct snapshot *snapshot = created(p, CODEC_BF16, n);

    while (first < n) {
        size_t count = 1 + rng_below(&p->rng, 2000);

        if (count > n - first) count = n - first;
        if (rng_below(&p->rng, 3) == 0) {
            float *few = parity_copy(p, y + first, count);
            parity_ok(p, snapshot->ops->take_host(snapshot, first, few, count));
            memset(few, 0xFF, count * sizeof(float)); /* it was waited for */
        } else {
            parity_ok(p, snapshot->ops->take(snapshot, first, y_there + first, count));
        }
        first += count;
    }
    parity_ok(p, snapshot->ops->seal(snapshot));
    parity_ok(p, snapshot->ops->fetch(snapshot));
    check_seed(seed, holds(snapshot, CODEC_BF16, y, n));
    p->checks++;
    snapshot->ops->destroy(snapshot);
    parity_end(p);
}

/* Chunks stay until the fetch after the next one: two buffers take turns. */
static void chunks_outlive_the_next_fetch(void **state)
{
    enum { N = 2 * CHUNK + 5, ROUNDS = 5 };
    struct parity *p = parity_begin(false, 1);
    struct snapshot *snapshot = created(p, CODEC_F32, N);
    const uint8_t *chunks[ROUNDS];
    float *planes[ROUNDS];
    size_t bytes = 0;

    (void)state;
    for (int r = 0; r < ROUNDS; r++) {
        planes[r] = parity_values(p, N, 1.0);
        parity_ok(p, snapshot->ops->take(snapshot, 0, parity_put_values(p, planes[r], N), N));
        parity_ok(p, snapshot->ops->seal(snapshot));
        parity_ok(p, snapshot->ops->fetch(snapshot));
        chunks[r] = snapshot->ops->chunk(snapshot, 1, &bytes);
        assert_int_equal(bytes, CHUNK * sizeof(float));
        assert_memory_equal(chunks[r], planes[r] + CHUNK, bytes);
        if (r == 0) continue;
        assert_ptr_not_equal(chunks[r], chunks[r - 1]);
        assert_memory_equal(chunks[r - 1], planes[r - 1] + CHUNK, bytes);
        p->checks += 2;
    }
    snapshot->ops->destroy(snapshot);
    parity_end(p);
}

/* What was put is added bit by bit as the host adds, also in parts; and the caller's memory may be
 * changed as soon as put() has returned. */
static void a_difference_is_added_as_the_host_adds(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);
    size_t n = 9 * CHUNK + rng_below(&p->rng, 1000) + 1, part = n / 3 + seed;
    float *y = parity_values(p, n, 1.0), *y_there = parity_put_values(p, y, n);
    struct errand errand = {.snapshot = created(p, CODEC_INT8, n), .values = n};

    for (int round = 0; round < 4; round++) {
        float *difference = parity_values(p, n, 1e-3), *kept = parity_copy(p, difference, n);
        bool skips = round % 2 == 1;

        errand.difference = difference;
        errand_begin(&errand);
        errand_end(p, &errand);
        memset(difference, 0xFF, n * sizeof(float));
        parity_ok(p, errand.snapshot->ops->apply(errand.snapshot, 0, y_there, part));
        if (!skips) {
            parity_ok(p,
                      errand.snapshot->ops->apply(errand.snapshot, part, y_there + part, n - part));
        }
        for (size_t i = 0; i < (skips ? part : n); i++) {
            y[i] = y[i] + kept[i];
        }
        if (round % 2 == 0) continue; /* the next put must wait for this apply by itself */
        check_seed(seed, memcmp(parity_get_values(p, y_there, n), y, n * sizeof(float)) == 0);
        p->checks++;
    }
    errand.snapshot->ops->destroy(errand.snapshot);
    parity_end(p);
}

/* Round after round as a peer makes them: taken, fetched and put beside training steps, applied
 * between them; nothing waits for anything but what it needs, and all bits are those of the host.
 */
static void rounds_beside_training_lose_nothing(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);
    size_t n = 5 * CHUNK + 3;
    float *x = parity_values(p, n, 1.0), *y = parity_values(p, n, 1.0);
    float *x_there = parity_put_values(p, x, n), *y_there = parity_put_values(p, y, n);
    struct snapshot *snapshot = created(p, CODEC_F16, n);

    for (int round = 0; round < 6; round++) {
        float *difference = parity_values(p, n, 1e-3);
        struct errand fetch = {.snapshot = snapshot};
        struct errand put = {.snapshot = snapshot, .difference = difference, .values = n};

        parity_ok(p, snapshot->ops->take(snapshot, 0, y_there, n));
        parity_ok(p, snapshot->ops->seal(snapshot));
        errand_begin(&fetch);
        train(p, x_there, y_there, n, 2);
        errand_end(p, &fetch);
        check_seed(seed, holds(snapshot, CODEC_F16, y, n));
        errand_begin(&put);
        train(p, x_there, y_there, n, 2);
        errand_end(p, &put);
        parity_ok(p, snapshot->ops->apply(snapshot, 0, y_there, n));
        train(p, x_there, y_there, n, 1);
        train_host(x, y, n, 4);
        for (size_t i = 0; i < n; i++) {
            y[i] = y[i] + difference[i];
        }
        train_host(x, y, n, 1);
        p->checks++;
    }
    check_seed(seed, memcmp(parity_get_values(p, y_there, n), y, n * sizeof(float)) == 0);
    snapshot->ops->destroy(snapshot);
    parity_end(p);
}

/* More than four of the largest pieces: the staging memory is used again and again. */
static void large_planes_travel_in_pieces(void **state)
{
    enum { N = 18 * 1024 * 1024 + 77 };
    struct parity *p = parity_begin(false, 1);
    struct snapshot *snapshot = created(p, CODEC_F32, N);
    float *y = parity_host(p, N * sizeof(float)), *there, *back;

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        y[i] = (float)(i * 2654435761u >> 8) * 0x1p-24F - 0.5F;
    }
    there = parity_put_values(p, y, N);
    parity_ok(p, snapshot->ops->take(snapshot, 0, there, N));
    parity_ok(p, snapshot->ops->seal(snapshot));
    parity_ok(p, snapshot->ops->fetch(snapshot));
    assert_true(holds(snapshot, CODEC_F32, y, N));
    parity_ok(p, snapshot->ops->put(snapshot, y, N));
    parity_ok(p, snapshot->ops->apply(snapshot, 0, there, N));
    back = parity_get_values(p, there, N);
    for (uint32_t i = 0; i < N; i++) {
        if (back[i] != y[i] + y[i]) fail_msg("value %u is not doubled", i);
    }
    p->checks += 2;
    snapshot->ops->destroy(snapshot);
    parity_end(p);
}

/* Nothing to send is no mistake; too much is, and leaves the backend as it was. */
static void planes_may_be_empty_but_not_endless(void **state)
{
    struct parity *p = parity_begin(false, 1);
    struct snapshot_options options = {(size_t)1 << 44, CHUNK, CODEC_F32};
    struct snapshot *snapshot = created(p, CODEC_INT8, 0), *none = NULL;
    float one = 1.0F, *there = parity_put_values(p, &one, 1);

    (void)state;
    parity_ok(p, snapshot->ops->take(snapshot, 0, there, 0));
    parity_ok(p, snapshot->ops->seal(snapshot));
    parity_ok(p, snapshot->ops->fetch(snapshot));
    parity_ok(p, snapshot->ops->put(snapshot, &one, 0));
    parity_ok(p, snapshot->ops->apply(snapshot, 0, there, 0));
    snapshot->ops->destroy(snapshot);
    assert_int_equal(p->device->ops->snapshot_create(p->device, &options, &none), RC_NOMEM);
    assert_null(none);
    assert_true(p->device->ops->why(p->device)[0] != '\0');
    parity_ok(p, p->device->ops->axpy(p->device, 1.0F, there, there, 1));
    assert_true(parity_get_values(p, there, 1)[0] == 2.0F);
    p->checks += 2;
    parity_end(p);
}

/* All of it is float32, whatever activations are. */
#define SEEDED(f)                                                                                  \
    static void f##_seeded(void **state)                                                           \
    {                                                                                              \
        (void)state;                                                                               \
        FOR_EACH_SEED (seed, 6)                                                                    \
            f(seed);                                                                               \
    }
SEEDED(what_leaves_is_the_plane_as_it_was_when_taken)
SEEDED(a_plane_may_be_taken_in_parts)
SEEDED(a_difference_is_added_as_the_host_adds)
SEEDED(rounds_beside_training_lose_nothing)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_leaves_is_the_plane_as_it_was_when_taken_seeded),
    cmocka_unit_test(a_plane_may_be_taken_in_parts_seeded),
    cmocka_unit_test(a_difference_is_added_as_the_host_adds_seeded),
    cmocka_unit_test(rounds_beside_training_lose_nothing_seeded),
    cmocka_unit_test(chunks_outlive_the_next_fetch),
    cmocka_unit_test(large_planes_travel_in_pieces),
    cmocka_unit_test(planes_may_be_empty_but_not_endless),
};

PARITY_MAIN("snapshot", tests)

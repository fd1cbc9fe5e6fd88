/*
 * Optimizer steps on the device against the processor's twins: the methods that work value by value
 * give the same bits, those with norms and products of a layer agree closely.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"

enum { STEPS = 3 };

/* A span somewhere in planes of values and moments, on both sides. */
struct scene {
    size_t n, at, plane; /* values of the span, before it, and of a moment plane */
    float *gradient, *moments, *values;
    float *gradient_there, *moments_there, *values_there;
    size_t moments_count;
    struct update update, update_there; /* they differ in the workspace */
};

static size_t planes_of(enum update_kind kind)
{
    if (kind == UPDATE_SGD) return 0;
    return kind == UPDATE_ADAM || kind == UPDATE_ADAMW || kind == UPDATE_LAMB ? 2 : 1;
}

static struct update numbers_of(enum update_kind kind, struct rng *rng)
{
    struct update update = {.kind = kind,
                            .rate = 0.05F * (float)(1.0 + rng_unit(rng)),
                            .beta = 0.9F,
                            .beta2 = 0.99F,
                            .epsilon = 1e-8F,
                            .decay = rng_below(rng, 2) == 0 ? 0.0F : 0.013F,
                            .correction = 0.7F,
                            .trust = kind == UPDATE_LARS ? 0.02F : 1.0F};

    return update;
}

static float *spread_values(struct parity *p, size_t n)
{
    float *values = parity_values(p, n, 1.0);

    for (size_t i = 0; i < n; i++) { /* also tiny and denormal ones */
        values[i] = ldexpf(values[i], -(int)(rng_below(&p->rng, 20) == 0 ? rng_below(&p->rng, 140)
                                                                         : rng_below(&p->rng, 10)));
    }
    return values;
}

static struct scene scene_of(struct parity *p, enum update_kind kind, size_t n, size_t at)
{
    struct scene s = {.n = n, .at = at, .plane = n + at + rng_below(&p->rng, 6)};

    s.update = numbers_of(kind, &p->rng);
    s.update.plane = s.plane;
    s.moments_count = planes_of(kind) * s.plane;
    s.values = spread_values(p, s.plane);
    s.gradient = spread_values(p, s.plane);
    s.moments = parity_host(p, s.moments_count * sizeof(float));
    memset(s.moments, 0, s.moments_count * sizeof(float));
    s.values_there = parity_put_values(p, s.values, s.plane);
    s.gradient_there = parity_put_values(p, s.gradient, s.plane);
    s.moments_there = NULL;
    if (s.moments_count > 0) s.moments_there = parity_put_values(p, s.moments, s.moments_count);
    s.update_there = s.update;
    return s;
}

static void scene_matrix(struct parity *p, struct scene *s, size_t rows)
{
    size_t values = update_workspace(rows, s->n / rows);

    s->update.rows = s->update_there.rows = rows;
    s->update.workspace = parity_host(p, values * sizeof(float));
    s->update_there.workspace = parity_block(p, values * sizeof(float));
}

static float *moments_of(const struct scene *s, float *moments)
{
    return moments == NULL ? NULL : moments + s->at;
}

static void step_there(struct parity *p, const struct scene *s)
{
    parity_ok(p, p->device->ops->update(p->device, &s->update_there, s->gradient_there + s->at,
                                        moments_of(s, s->moments_there), s->values_there + s->at,
                                        s->n));
}

static void step_here(struct parity *p, const struct scene *s)
{
    parity_ok(p, p->host->ops->update(p->host, &s->update, s->gradient + s->at,
                                      moments_of(s, s->moments), s->values + s->at, s->n));
}

/* Another gradient for the next step. */
static void scene_turn(struct parity *p, struct scene *s)
{
    for (size_t i = 0; i < s->plane; i++) {
        s->gradient[i] = 0.5F * s->gradient[s->plane - 1 - i] - 0.1F * s->values[i];
    }
    parity_ok(p, p->device->ops->upload(p->device, s->gradient_there, s->gradient,
                                        s->plane * sizeof(float)));
}

static void scene_check(struct parity *p, uint64_t seed, const char *what, const struct scene *s,
                        double limit)
{
    parity_check_values(p, seed, what, s->values_there, s->values, s->plane, limit, limit);
    if (s->moments_count == 0) return;
    parity_check_values(p, seed, what, s->moments_there, s->moments, s->moments_count, limit,
                        limit);
}

static bool are_equal_bits(struct parity *p, const float *device, const float *wanted, size_t n)
{
    return memcmp(parity_get_values(p, device, n), wanted, n * sizeof(float)) == 0;
}

static const char *const names[UPDATE_COUNT] = {
    "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "lars", "lamb", "muon"};

/* Bit by bit, values outside of the span included, which stay. */
static void flat_methods_give_the_processors_bits(uint64_t seed)
{
    static const size_t sizes[] = {1, 7, 1000, 4099};
    struct parity *p = parity_begin(false, seed);
    int kind = (int)(seed % 2) * 3; /* some each time: blocks of a scene are limited */

    for (int last = kind + 4; kind < last && kind < UPDATE_LARS; kind++) {
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            size_t at = rng_below(&p->rng, 3) == 0 ? 1 + rng_below(&p->rng, 5) : 0;
            struct scene s = scene_of(p, (enum update_kind)kind, sizes[i], at);

            for (int step = 0; step < STEPS; step++) {
                step_there(p, &s);
                step_here(p, &s);
                if (step + 1 < STEPS) scene_turn(p, &s);
            }
            if (!are_equal_bits(p, s.values_there, s.values, s.plane) ||
                (s.moments_count > 0 &&
                 !are_equal_bits(p, s.moments_there, s.moments, s.moments_count))) {
                fail_msg("SEED=%llu %s of %zu values behind %zu: other bits",
                         (unsigned long long)seed, names[kind], s.n, at);
            }
            p->checks += 2;
        }
    }
    parity_end(p);
}

/* One tensor at a time, also tiny ones, and larger ones than a block of threads takes. */
static void layerwise_methods_agree(uint64_t seed)
{
    static const size_t sizes[] = {1, 5, 1000, 70001};
    struct parity *p = parity_begin(false, seed);

    for (int kind = UPDATE_LARS; kind <= UPDATE_LAMB; kind++) {
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            size_t at = rng_below(&p->rng, 2) == 0 ? 1 + rng_below(&p->rng, 5) : 0;
            struct scene s = scene_of(p, (enum update_kind)kind, sizes[i], at);

            for (int step = 0; step < STEPS; step++) {
                step_there(p, &s);
                step_here(p, &s);
                if (step + 1 < STEPS) scene_turn(p, &s);
            }
            scene_check(p, seed, names[kind], &s, 2e-6);
        }
    }
    parity_end(p);
}

/* Without trust, or where a norm is 0, the ratio is 1. */
static void ratios_of_nothing_are_one(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);

    for (int kind = UPDATE_LARS; kind <= UPDATE_LAMB; kind++) {
        for (int what = 0; what < 3; what++) {
            struct scene s = scene_of(p, (enum update_kind)kind, 300, 0);

            if (what == 0) s.update.trust = s.update_there.trust = 0.0F;
            if (what == 1) memset(s.values, 0, s.plane * sizeof(float));
            if (what == 2) memset(s.gradient, 0, s.plane * sizeof(float));
            if (what == 2) s.update.decay = s.update_there.decay = 0.0F;
            parity_ok(p, p->device->ops->upload(p->device, s.values_there, s.values,
                                                s.plane * sizeof(float)));
            parity_ok(p, p->device->ops->upload(p->device, s.gradient_there, s.gradient,
                                                s.plane * sizeof(float)));
            step_there(p, &s);
            step_here(p, &s);
            scene_check(p, seed, names[kind], &s, 1e-6);
        }
    }
    parity_end(p);
}

/* Wide, tall and square matrices, down to a row. */
static void muon_agrees(uint64_t seed)
{
    static const size_t shapes[][2] = {{8, 24}, {24, 8},  {16, 16}, {1, 9},
                                       {9, 1},  {33, 70}, {65, 7}};
    struct parity *p = parity_begin(false, seed);

    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        size_t rows = shapes[i][0], columns = shapes[i][1], at = i % 2 == 0 ? 0 : 3;
        struct scene s = scene_of(p, UPDATE_MUON, rows * columns, at);

        scene_matrix(p, &s, rows);
        for (int step = 0; step < 2; step++) {
            step_there(p, &s);
            step_here(p, &s);
            if (step == 0) scene_turn(p, &s);
        }
        scene_check(p, seed, names[UPDATE_MUON], &s, 2e-5);
    }
    parity_end(p);
}

/* All methods: the same calls on the same numbers leave the same bits. */
static void equal_steps_give_equal_bits(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);

    for (int kind = 0; kind < UPDATE_COUNT; kind++) {
        struct scene s = scene_of(p, (enum update_kind)kind, 60 * 90, 0);
        float *values = parity_copy(p, s.values, s.plane), *first[2];
        size_t bytes = s.plane * sizeof(float), moments_bytes = s.moments_count * sizeof(float);

        if (kind == UPDATE_MUON) scene_matrix(p, &s, 60);
        for (int run = 0; run < 2; run++) {
            parity_ok(p, p->device->ops->upload(p->device, s.values_there, values, bytes));
            if (s.moments_count > 0) {
                parity_ok(p, p->device->ops->zero(p->device, s.moments_there, moments_bytes));
            }
            for (int step = 0; step < 2; step++) {
                step_there(p, &s);
            }
            first[run] = parity_get_values(p, s.values_there, s.plane);
        }
        check_seed(seed, memcmp(first[0], first[1], bytes) == 0);
        check_seed(seed, memcmp(first[0], values, bytes) != 0);
        p->checks++;
    }
    parity_end(p);
}

/* Steps can be recorded and replayed, as training does it. */
static void replayed_steps_are_steps(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);

    for (int kind = 0; kind < UPDATE_COUNT; kind++) {
        struct scene s = scene_of(p, (enum update_kind)kind, 20 * 35, 0);
        struct recording *recording = NULL;

        if (kind == UPDATE_MUON) scene_matrix(p, &s, 20);
        step_there(p, &s);
        parity_ok(p, p->device->ops->record_begin(p->device));
        step_there(p, &s);
        parity_ok(p, p->device->ops->record_end(p->device, &recording));
        for (int step = 0; step < STEPS; step++) {
            if (step > 0) parity_ok(p, p->device->ops->replay(p->device, recording));
            step_here(p, &s);
        }
        scene_check(p, seed, names[kind], &s, kind == UPDATE_MUON ? 2e-5 : 2e-6);
        p->device->ops->recording_destroy(p->device, recording);
    }
    parity_end(p);
}

/* All of it is float32, whatever activations are. */
#define SEEDED(f)                                                                                  \
    static void f##_seeded(void **state)                                                           \
    {                                                                                              \
        (void)state;                                                                               \
        FOR_EACH_SEED (seed, 4)                                                                    \
            f(seed);                                                                               \
    }
SEEDED(flat_methods_give_the_processors_bits)
SEEDED(layerwise_methods_agree)
SEEDED(ratios_of_nothing_are_one)
SEEDED(muon_agrees)
SEEDED(equal_steps_give_equal_bits)
SEEDED(replayed_steps_are_steps)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(flat_methods_give_the_processors_bits_seeded),
    cmocka_unit_test(layerwise_methods_agree_seeded),
    cmocka_unit_test(ratios_of_nothing_are_one_seeded),
    cmocka_unit_test(muon_agrees_seeded),
    cmocka_unit_test(equal_steps_give_equal_bits_seeded),
    cmocka_unit_test(replayed_steps_are_steps_seeded),
};

PARITY_MAIN("optimizer", tests)

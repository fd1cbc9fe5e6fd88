/*
 * Losses on the device: sums, hits and gradients are those of the processor, for a handful of
 * classes and for a vocabulary; and nothing that is not a number is hidden.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"

static const uint32_t shapes[][2] = {{1, 1},    {1, 2},    {3, 10},    {70, 10},
                                     {33, 73},  {9, 128},  {5, 1000},  {5, 1001},
                                     {3, 1024}, {3, 1025}, {4, 50257}, {2, 65536}};

struct scene {
    struct parity *p;
    uint32_t rows, outputs, counted;
    float *logits, *targets;
    uint32_t *labels; /* NULL: squared error */
};

static size_t values_of(const struct scene *s)
{
    return (size_t)s->rows * s->outputs;
}

static struct scene scene_create(bool is_bf16, uint64_t seed, const uint32_t *shape)
{
    struct scene s = {.p = parity_begin(is_bf16, seed), .rows = shape[0], .outputs = shape[1]};
    struct rng *rng = &s.p->rng;

    s.counted = s.rows;
    s.logits = parity_activations(s.p, values_of(&s), 3.0);
    s.targets = parity_values(s.p, values_of(&s), 1.0);
    s.labels = parity_host(s.p, s.rows * sizeof(*s.labels));
    for (uint32_t r = 0; r < s.rows; r++) {
        size_t at = (size_t)r * s.outputs, other = (size_t)rng_below(rng, s.outputs);
        s.labels[r] = (uint32_t)rng_below(rng, s.outputs);
        if (rng_below(rng, 2) == 0) s.logits[at + s.labels[r]] = 16.0F; /* some are right */
        if (rng_below(rng, 3) == 0) s.logits[at + other] = 16.0F;       /* some of those tie */
    }
    return s;
}

/* Where logits and gradient begin, in values behind an aligned address. */
struct layout {
    size_t logits, gradient;
    bool is_in_place;
    size_t between; /* values from the end of a row to the next */
};

struct outcome {
    struct loss_sums sums;
    float *gradient;
};

/* The logits in rows that are `stride` apart, with NaN between. */
static float *spread(const struct scene *s, size_t stride)
{
    float *apart = parity_host(s->p, s->rows * stride * sizeof(*apart));

    for (uint32_t r = 0; r < s->rows; r++) {
        memcpy(apart + r * stride, s->logits + (size_t)r * s->outputs, s->outputs * sizeof(*apart));
    }
    return apart;
}

/* `calls` of them, each adding to the sums. layout NULL: without a gradient. */
static struct outcome run(const struct scene *s, const struct layout *layout, int calls)
{
    static const struct loss_sums none;
    static const struct layout aligned;
    const struct layout *at = layout != NULL ? layout : &aligned;
    struct parity *p = s->p;
    const struct backend_ops *ops = p->device->ops;
    size_t stride = s->outputs + at->between, n = s->rows * stride;
    float *values = parity_put_values(p, spread(s, stride), n);
    float *logits = backend_at(p->device, parity_room(p, n + 8), at->logits);
    float *gradient = backend_at(p->device, parity_room(p, n + 8), at->gradient);
    struct device_loss loss = {
        .rows = s->rows,
        .outputs = s->outputs,
        .logits = logits,
        .stride = at->between > 0 ? (uint32_t)stride : 0,
        .targets = parity_put_values(p, s->targets, values_of(s)),
        .counted = parity_put(p, &s->counted, sizeof(s->counted)),
        .gradient = layout == NULL        ? NULL
                    : layout->is_in_place ? logits
                                          : gradient,
        .sums = parity_put(p, &none, sizeof(none)),
    };
    struct outcome outcome = {.gradient = NULL};

    if (s->labels != NULL) loss.labels = parity_put(p, s->labels, s->rows * sizeof(*s->labels));
    for (int i = 0; i < calls; i++) {
        parity_ok(p, ops->to_activations(p->device, values, logits, n));
        parity_ok(p, s->labels != NULL ? ops->cross_entropy(p->device, &loss)
                                       : ops->squared_error(p->device, &loss));
    }
    parity_ok(p, ops->download(p->device, &outcome.sums, loss.sums, sizeof(outcome.sums)));
    if (layout == NULL) return outcome;
    outcome.gradient = parity_get_activations(p, loss.gradient, n);
    for (uint32_t r = 0; r < s->rows; r++) {
        memmove(outcome.gradient + (size_t)r * s->outputs, outcome.gradient + r * stride,
                s->outputs * sizeof(float));
        for (size_t i = r * stride + s->outputs; i < (r + 1) * stride; i++) {
            assert_true(outcome.gradient[i] == 0.0F);
        }
    }
    return outcome;
}

static struct outcome run_on_host(const struct scene *s)
{
    const struct backend_ops *host = s->p->host->ops;
    struct outcome outcome = {.gradient =
                                  parity_host(s->p, values_of(s) * sizeof(*outcome.gradient))};
    struct device_loss loss = {.rows = s->rows,
                               .outputs = s->outputs,
                               .logits = s->logits,
                               .labels = s->labels,
                               .targets = s->targets,
                               .counted = &s->counted,
                               .gradient = outcome.gradient,
                               .sums = &outcome.sums};

    assert_int_equal(s->labels != NULL ? host->cross_entropy(s->p->host, &loss)
                                       : host->squared_error(s->p->host, &loss),
                     RC_OK);
    return outcome;
}

static void check_sums(const struct scene *s, uint64_t seed, struct loss_sums got,
                       struct loss_sums wanted, double calls)
{
    double apart = fabs(got.loss - calls * wanted.loss);

    s->p->checks++;
    check_seed(seed, got.hits == (uint64_t)calls * wanted.hits);
    check_seed(seed, apart <= 2e-6 * (calls * wanted.loss + 1.0));
}

/* Where a label is all but certain its gradient is the rounding of 1 - p: errors count against
 * gradients of the size that an uncertain row has. */
static void check_gradient(const struct scene *s, uint64_t seed, const float *got,
                           const float *wanted)
{
    double limit = s->p->is_bf16 ? 4e-3 : 1e-6, difference = 0.0, size = 0.0;

    for (size_t v = 0; v < values_of(s); v++) {
        double apart = (double)got[v] - (double)wanted[v];
        difference += apart * apart;
        size += (double)wanted[v] * (double)wanted[v];
    }
    s->p->checks++;
    check_seed(seed, sqrt(difference) <= limit * sqrt(size) + 1e-6 / s->counted);
}

static void check_same(const struct scene *s, uint64_t seed, const struct outcome *a,
                       const struct outcome *b)
{
    s->p->checks++;
    check_seed(seed, memcmp(&a->sums, &b->sums, sizeof(a->sums)) == 0);
    check_seed(seed, memcmp(a->gradient, b->gradient, values_of(s) * sizeof(float)) == 0);
}

/* Sums, hits and gradients are the processor's; in place, apart, aligned or not, or without a
 * gradient; and equal calls give equal bits. */
static void check_scene(const struct scene *s, uint64_t seed)
{
    const struct layout aligned = {0}, in_place = {.is_in_place = true}, odd = {3, 3, false, 0};
    const struct layout apart = {1, 2, false, 0}, odd_in_place = {5, 0, true, 0};
    const struct layout padded = {0, 0, true, (64 - s->outputs % 64) % 64 + 8};
    struct outcome wanted = run_on_host(s), got = run(s, &aligned, 1), again = run(s, &aligned, 1);

    check_sums(s, seed, got.sums, wanted.sums, 1.0);
    check_gradient(s, seed, got.gradient, wanted.gradient);
    check_same(s, seed, &got, &again);
    again = run(s, &in_place, 1);
    check_same(s, seed, &got, &again);
    got = run(s, &odd, 1);
    again = run(s, &odd_in_place, 1);
    check_sums(s, seed, got.sums, wanted.sums, 1.0);
    check_sums(s, seed, again.sums, wanted.sums, 1.0);
    check_gradient(s, seed, got.gradient, wanted.gradient);
    check_gradient(s, seed, again.gradient, wanted.gradient);
    got = run(s, &apart, 3);
    check_sums(s, seed, got.sums, wanted.sums, 3.0);
    check_gradient(s, seed, got.gradient, wanted.gradient);
    got = run(s, &padded, 1);
    check_sums(s, seed, got.sums, wanted.sums, 1.0);
    check_gradient(s, seed, got.gradient, wanted.gradient);
    got = run(s, NULL, 2);
    check_sums(s, seed, got.sums, wanted.sums, 2.0);
}

/* The cross-entropy of rows of any length is the processor's. */
static void cross_entropy_is_the_processors(bool is_bf16, uint64_t seed)
{
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct scene s = scene_create(is_bf16, seed, shapes[i]);
        check_scene(&s, seed);
        parity_end(s.p);
    }
}

/* Rows to be ignored have no loss and no gradient, and of a batch on several devices each has its
 * share. */
static void ignored_rows_take_part_in_nothing(bool is_bf16, uint64_t seed)
{
    for (size_t i = 2; i < ARRAY_COUNT(shapes); i++) {
        struct scene s = scene_create(is_bf16, seed, shapes[i]);
        uint32_t ignored = (uint32_t)rng_below(&s.p->rng, s.rows - 1) + 1;

        for (uint32_t r = 0; r < ignored; r++) {
            s.labels[(r + (uint32_t)seed) % s.rows] = LABEL_IGNORE;
            s.logits[(size_t)((r + (uint32_t)seed) % s.rows) * s.outputs] = NAN;
        }
        s.counted = s.rows - ignored;
        if (s.counted == 0) s.labels[0] = 0;
        s.counted += s.counted == 0 ? 1 : (uint32_t)seed % 2 * 100;
        if (s.labels[0] != LABEL_IGNORE) s.logits[0] = 1.0F;
        check_scene(&s, seed);
        parity_end(s.p);
    }
}

/* The squared error is the processor's. */
static void squared_error_is_the_processors(bool is_bf16, uint64_t seed)
{
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct scene s = scene_create(is_bf16, seed, shapes[i]);
        s.labels = NULL;
        if (seed % 2 == 0) s.counted += 5;
        check_scene(&s, seed);
        parity_end(s.p);
    }
}

/* One logit that is no number, or an infinite one, wherever it is, makes the loss and all of the
 * row's gradient NaN, but for those of other rows. */
static void no_bad_logit_is_hidden(bool is_bf16, uint64_t seed)
{
    static const float bad[] = {NAN, INFINITY};
    const struct layout layout = {.is_in_place = true};

    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        for (size_t b = 0; b < ARRAY_COUNT(bad); b++) {
            struct scene s = scene_create(is_bf16, seed, shapes[i]);
            uint32_t row = (uint32_t)rng_below(&s.p->rng, s.rows);
            struct outcome got, wanted;

            s.logits[(size_t)row * s.outputs + rng_below(&s.p->rng, s.outputs)] = bad[b];
            got = run(&s, &layout, 1);
            wanted = run_on_host(&s);
            check_seed(seed, isnan(got.sums.loss) && isnan(wanted.sums.loss));
            check_seed(seed, got.sums.hits == wanted.sums.hits);
            for (size_t v = 0; v < values_of(&s); v++) {
                check_seed(seed, isnan(got.gradient[v]) == (v / s.outputs == row));
            }
            s.p->checks++;
            parity_end(s.p);
        }
    }
}

/* Logits of minus infinity are probabilities of 0, also where a thread sees no others; a row of
 * them alone is no distribution. */
static void impossible_classes_have_no_gradient(bool is_bf16, uint64_t seed)
{
    const struct layout layout = {0};

    for (size_t i = 1; i < ARRAY_COUNT(shapes); i++) {
        struct scene s = scene_create(is_bf16, seed, shapes[i]);
        struct outcome got, wanted;

        for (size_t v = 0; v < values_of(&s); v++) {
            bool is_label = v % s.outputs == s.labels[v / s.outputs];
            if (!is_label && rng_below(&s.p->rng, 50) > 0) s.logits[v] = -INFINITY;
        }
        wanted = run_on_host(&s);
        got = run(&s, &layout, 1);
        check_sums(&s, seed, got.sums, wanted.sums, 1.0);
        check_gradient(&s, seed, got.gradient, wanted.gradient);
        for (size_t v = 0; v < s.outputs; v++) {
            s.logits[v] = -INFINITY;
        }
        got = run(&s, &layout, 1);
        wanted = run_on_host(&s);
        check_seed(seed, isnan(got.sums.loss) && isnan(got.gradient[0]));
        check_seed(seed, got.sums.hits == wanted.sums.hits);
        parity_end(s.p);
    }
}

PARITY_TEST(cross_entropy_is_the_processors)
PARITY_TEST(ignored_rows_take_part_in_nothing)
PARITY_TEST(squared_error_is_the_processors)
PARITY_TEST(no_bad_logit_is_hidden)
PARITY_TEST(impossible_classes_have_no_gradient)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(cross_entropy_is_the_processors),
    PARITY_BOTH(ignored_rows_take_part_in_nothing),
    PARITY_BOTH(squared_error_is_the_processors),
    PARITY_BOTH(no_bad_logit_is_hidden),
    PARITY_BOTH(impossible_classes_have_no_gradient),
};

PARITY_MAIN("loss", tests)

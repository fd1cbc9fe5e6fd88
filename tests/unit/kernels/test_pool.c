/* Pooling, means over images, shortcuts, layouts: against their twins for every layout. */
#include "tests/unit/kernels/norm_values.h"

#include "kernels/cpu/reference/reference.h"

static double dot(const float *a, const float *b, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* |<a, b> - <c, d>| as far as float32 goes. */
static bool is_same(double a, double b)
{
    return fabs(a - b) <= 1e-4 * (1.0 + fabs(a));
}

static struct pool_options random_pool(struct rng *rng, enum pool_kind kind)
{
    static const uint32_t blocks[] = {1, 4, 8, 16, 24, 48};
    struct pool_options o = {.kind = kind, .size = between(rng, 2, 4)};

    o.stride = rng_below(rng, 2) == 0 ? o.size : between(rng, 1, 5);
    o.padding = rng_below(rng, 2) == 0 ? 0 : between(rng, 0, o.size / 2);
    if (rng_below(rng, 20) == 0) o.size = POOL_SIZE_MAX;
    o.in = (struct image_shape){48, between(rng, o.size, 20), between(rng, o.size, 40),
                                blocks[rng_below(rng, ARRAY_COUNT(blocks))]};
    o.out = (struct image_shape){48, windows_fit(o.in.height, o.size, o.padding, o.stride, 1),
                                 windows_fit(o.in.width, o.size, o.padding, o.stride, 1),
                                 blocks[rng_below(rng, ARRAY_COUNT(blocks))]};
    o.with_relu = kind == POOL_MAX && rng_below(rng, 2) == 0;
    return o;
}

/* What a pooling of random values gives. */
struct pooled {
    float *x, *dy, *y, *dx;
    uint8_t *winner;
};

static void pooled_destroy(struct pooled *p)
{
    mem_free(p->x);
    mem_free(p->dy);
    mem_free(p->y);
    mem_free(p->dx);
    mem_free(p->winner);
}

static struct pooled pool_random_values(struct backend *backend, const struct pool_options *o,
                                        uint32_t images, uint64_t seed)
{
    size_t ins = images * image_values(o->in), outs = images * image_values(o->out);
    struct rng rng;
    struct pooled p;

    rng_init(&rng, seed, 30);
    p = (struct pooled){random_values(&rng, ins, 0.0, 1.0), random_values(&rng, outs, 0.0, 1.0),
                        poisoned(outs), poisoned(ins), mem_alloc(outs)};
    memset(p.winner, 77, outs);
    assert_int_equal(backend->ops->pool_forward(backend, o, images, p.x, p.y, p.winner), RC_OK);
    assert_int_equal(backend->ops->pool_backward(backend, o, images, p.dy, p.winner, p.dx), RC_OK);
    return p;
}

static void maxima_equal_their_twins_for_every_layout(void **state)
{
    (void)state;
    struct backend *cpu = backend_of(false), *oracle = backend_of(true);
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 31);
        struct pool_options o = random_pool(&rng, POOL_MAX);
        uint32_t images = between(&rng, 1, 2);
        size_t ins = images * image_values(o.in), outs = images * image_values(o.out);
        struct pooled got = pool_random_values(cpu, &o, images, seed);
        struct pooled twin = pool_random_values(oracle, &o, images, seed);

        check_seed(seed, memcmp(got.y, twin.y, outs * sizeof(float)) == 0);
        check_seed(seed, memcmp(got.winner, twin.winner, outs) == 0);
        if (o.stride >= o.size) { /* otherwise there are sums */
            check_seed(seed, memcmp(got.dx, twin.dx, ins * sizeof(float)) == 0);
        }
        check_seed(seed, distance(got.dx, twin.dx, ins) < 1e-6);
        check_seed(seed, is_same(dot(got.y, got.dy, outs), dot(got.x, got.dx, ins)));
        memset(got.y, 0xff, outs * sizeof(float));
        assert_int_equal(cpu->ops->pool_forward(cpu, &o, images, got.x, got.y, NULL), RC_OK);
        check_seed(seed, memcmp(got.y, twin.y, outs * sizeof(float)) == 0);
        pooled_destroy(&got);
        pooled_destroy(&twin);
    }
    backend_destroy(cpu);
    backend_destroy(oracle);
}

static void averages_equal_their_twins_for_every_layout(void **state)
{
    (void)state;
    struct backend *cpu = backend_of(false), *oracle = backend_of(true);
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 32);
        struct pool_options o = random_pool(&rng, POOL_AVERAGE);
        uint32_t images = between(&rng, 1, 2);
        size_t ins = images * image_values(o.in), outs = images * image_values(o.out);
        struct pooled got = pool_random_values(cpu, &o, images, seed);
        struct pooled twin = pool_random_values(oracle, &o, images, seed);

        check_seed(seed, distance(got.y, twin.y, outs) < 1e-6);
        check_seed(seed, distance(got.dx, twin.dx, ins) < 1e-6);
        check_seed(seed, is_same(dot(got.y, got.dy, outs), dot(got.x, got.dx, ins)));
        pooled_destroy(&got);
        pooled_destroy(&twin);
    }
    backend_destroy(cpu);
    backend_destroy(oracle);
}

/* Four pixels in a row, windows of three with a zero on each side. */
static void padding_is_no_maximum_but_a_zero_of_an_average(void **state)
{
    (void)state;
    struct pool_options o = {
        .in = {1, 3, 4, 1}, .out = {1, 2, 2, 1}, .size = 3, .stride = 2, .padding = 1};
    const float x[] = {-9, -8, -7, -6, -5, -4, -3, -2, -9, -8, -7, -1};

    for (int twin = 0; twin < 2; twin++) {
        struct backend *backend = backend_of(twin == 1);
        float y[4];
        uint8_t winner[4];
        o.kind = POOL_MAX;
        assert_int_equal(backend->ops->pool_forward(backend, &o, 1, x, y, winner), RC_OK);
        assert_true(y[0] == -4.0F && y[1] == -2.0F && y[3] == -1.0F);
        assert_int_equal(winner[0], 8);
        o.kind = POOL_AVERAGE;
        assert_int_equal(backend->ops->pool_forward(backend, &o, 1, x, y, NULL), RC_OK);
        assert_float_equal(y[0], (-9 - 8 - 5 - 4) / 9.0F, 1e-6F);
        backend_destroy(backend);
    }
}

static void a_nan_reaches_the_output(void **state)
{
    (void)state;
    struct backend *cpu = backend_of(false);
    struct pool_options o = {.in = {16, 2, 2, 16}, .out = {16, 1, 1, 16}, .size = 2, .stride = 2};
    float x[64], y[16];

    for (int i = 0; i < 64; i++) {
        x[i] = i < 16 ? NAN : 1.0F;
    }
    for (int with_relu = 0; with_relu < 2; with_relu++) {
        o.with_relu = with_relu == 1;
        assert_int_equal(cpu->ops->pool_forward(cpu, &o, 1, x, y, NULL), RC_OK);
        assert_true(isnan(y[0]) && isnan(y[15]));
    }
    backend_destroy(cpu);
}

static void relayout_there_and_back_changes_nothing(void **state)
{
    (void)state;
    struct backend *both[] = {backend_of(false), backend_of(true)};
    const uint32_t blocks[] = {1, 8, 16, 32};
    FOR_EACH_SEED (seed, 30) {
        struct rng rng;
        rng_init(&rng, seed, 33);
        struct image_shape from = {32, between(&rng, 1, 9), between(&rng, 1, 20),
                                   blocks[rng_below(&rng, 4)]};
        struct image_shape to = from;
        uint32_t images = between(&rng, 1, 3);
        size_t count = images * image_values(from);
        float *x = random_values(&rng, count, 0.0, 1.0), *y = poisoned(count);
        float *y2 = poisoned(count);

        to.block = blocks[rng_below(&rng, 4)];
        assert_int_equal(both[0]->ops->relayout(both[0], from, to.block, images, x, y), RC_OK);
        assert_int_equal(both[1]->ops->relayout(both[1], from, to.block, images, x, y2), RC_OK);
        check_seed(seed, memcmp(y, y2, count * sizeof(*y)) == 0);
        memset(y2, 0xff, count * sizeof(*y2));
        assert_int_equal(both[0]->ops->relayout(both[0], to, from.block, images, y, y2), RC_OK);
        check_seed(seed, memcmp(x, y2, count * sizeof(*x)) == 0);
        mem_free(x);
        mem_free(y);
        mem_free(y2);
    }
    backend_destroy(both[0]);
    backend_destroy(both[1]);
}

static void means_over_images_equal_their_twins(void **state)
{
    (void)state;
    struct backend *cpu = backend_of(false);
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 34);
        struct image_shape in = random_shape(&rng);
        uint32_t images = between(&rng, 1, 3);
        size_t ins = images * image_values(in), outs = (size_t)images * in.channels;
        float *x = random_values(&rng, ins, 0.5, 1.0), *dy = random_values(&rng, outs, 0.0, 1.0);
        float *y = poisoned(outs), *y2 = poisoned(outs), *dx = poisoned(ins), *dx2 = poisoned(ins);

        assert_int_equal(cpu->ops->global_average_forward(cpu, in, images, x, y), RC_OK);
        assert_int_equal(cpu->ops->global_average_backward(cpu, in, images, dy, dx), RC_OK);
        reference_global_average_forward(in, images, x, y2);
        reference_global_average_backward(in, images, dy, dx2);
        check_seed(seed, distance(y, y2, outs) < 1e-7);
        check_seed(seed, distance(dx, dx2, ins) < 1e-7);
        check_seed(seed, is_same(dot(y2, dy, outs), dot(x, dx2, ins)));
        float *all[] = {x, dy, y, y2, dx, dx2};
        for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
            mem_free(all[i]);
        }
    }
    backend_destroy(cpu);
}

static void shortcuts_equal_their_twins_for_every_layout(void **state)
{
    (void)state;
    struct backend *both[] = {backend_of(false), backend_of(true)};
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 35);
        struct subsample o = {.in = random_shape(&rng), .stride = between(&rng, 1, 3)};
        o.out = (struct image_shape){.channels = o.in.channels * between(&rng, 1, 2),
                                     .height = (o.in.height - 1) / o.stride + 1,
                                     .width = (o.in.width - 1) / o.stride + 1,
                                     .block = 1};
        if (rng_below(&rng, 2) == 0) o.out.block = o.out.channels;
        if (o.out.channels % 16 == 0 && rng_below(&rng, 2) == 0) o.out.block = 16;
        uint32_t images = between(&rng, 1, 3);
        size_t ins = images * image_values(o.in), outs = images * image_values(o.out);
        float *x = random_values(&rng, ins, 0.0, 1.0), *dy = random_values(&rng, outs, 0.0, 1.0);
        float *y[2] = {poisoned(outs), poisoned(outs)}, *dx[2] = {poisoned(ins), poisoned(ins)};

        for (int i = 0; i < 2; i++) {
            assert_int_equal(both[i]->ops->subsample_forward(both[i], &o, images, x, y[i]), RC_OK);
            assert_int_equal(both[i]->ops->subsample_backward(both[i], &o, images, dy, dx[i]),
                             RC_OK);
        }
        check_seed(seed, memcmp(y[0], y[1], outs * sizeof(float)) == 0);
        check_seed(seed, memcmp(dx[0], dx[1], ins * sizeof(float)) == 0);
        check_seed(seed, is_same(dot(y[1], dy, outs), dot(x, dx[1], ins)));
        float *all[] = {x, dy, y[0], y[1], dx[0], dx[1]};
        for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
            mem_free(all[i]);
        }
    }
    backend_destroy(both[0]);
    backend_destroy(both[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maxima_equal_their_twins_for_every_layout),
        cmocka_unit_test(averages_equal_their_twins_for_every_layout),
        cmocka_unit_test(padding_is_no_maximum_but_a_zero_of_an_average),
        cmocka_unit_test(a_nan_reaches_the_output),
        cmocka_unit_test(relayout_there_and_back_changes_nothing),
        cmocka_unit_test(means_over_images_equal_their_twins),
        cmocka_unit_test(shortcuts_equal_their_twins_for_every_layout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Batch normalisation against its plain C twins: any layout, any slices, slopes by differences. */
#include "tests/check.h"

#include "tests/unit/kernels/norm_values.h"

/* A layer with everything its passes touch. */
struct layer {
    struct batch_norm norm;
    uint32_t images;
    uint64_t count; /* values per channel */
    size_t values;
    float *x, *y, *dy, *dx, *gamma, *beta, *mean, *rstd;
    double *sums;
};

static struct layer layer_create(struct rng *rng, double centre, double spread)
{
    struct layer layer = {.norm = {.shape = random_shape(rng), .epsilon = 1e-5F}};
    struct image_shape shape = layer.norm.shape;

    layer.norm.with_relu = rng_below(rng, 2) == 0;
    /* Of two values per channel the gradient is nothing but rounding. */
    layer.images = between(rng, 5, 8);
    layer.count = (uint64_t)layer.images * shape.height * shape.width;
    layer.values = layer.images * image_values(shape);
    layer.x = random_values(rng, layer.values, centre, spread);
    layer.dy = random_values(rng, layer.values, 0.2, 1.0);
    layer.dx = random_values(rng, layer.values, 0.0, 1.0);
    layer.gamma = random_values(rng, shape.channels, 1.0, 0.5);
    layer.beta = random_values(rng, shape.channels, 0.0, 0.5);
    layer.y = poisoned(layer.values);
    layer.mean = poisoned(shape.channels);
    layer.rstd = poisoned(shape.channels);
    layer.sums = mem_alloc(2 * shape.channels * sizeof(*layer.sums));
    assert_non_null(layer.sums);
    return layer;
}

static void layer_destroy(struct layer *layer)
{
    float *all[] = {layer->x,     layer->y,    layer->dy,   layer->dx,
                    layer->gamma, layer->beta, layer->mean, layer->rstd};

    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        mem_free(all[i]);
    }
    mem_free(layer->sums);
}

/* Mean and rstd, from slices of at most `slice` images. */
static void layer_collect(struct backend *on, struct layer *layer, uint32_t slice)
{
    size_t channels = layer->norm.shape.channels, values = image_values(layer->norm.shape);
    struct batch_norm_close close = {.count = layer->count, .sums = layer->sums};

    memset(layer->sums, 0, 2 * channels * sizeof(*layer->sums));
    for (uint32_t n = 0; n < layer->images; n += slice) {
        uint32_t left = layer->images - n;
        assert_int_equal(on->ops->batch_norm_collect(on, &layer->norm, left < slice ? left : slice,
                                                     layer->x + n * values, layer->sums),
                         RC_OK);
    }
    close.mean = layer->mean;
    close.rstd = layer->rstd;
    assert_int_equal(on->ops->batch_norm_close(on, &layer->norm, &close), RC_OK);
}

static void layer_apply(struct backend *on, struct layer *layer, const float *x, float *y)
{
    struct channel_affine affine = {layer->mean, layer->rstd, layer->gamma, layer->beta};

    assert_int_equal(on->ops->batch_norm_apply(on, &layer->norm, layer->images, x, &affine, y),
                     RC_OK);
}

/* dy is masked; dx may be dy. */
static struct batch_norm_backward layer_backward(struct backend *on, struct layer *layer, float *dy,
                                                 float *dx, bool adds)
{
    struct batch_norm_backward pass = {
        .x = layer->x,
        .y = layer->y,
        .dy = dy,
        .dx = dx,
        .adds_to_dx = adds,
        .mean = layer->mean,
        .rstd = layer->rstd,
        .gamma = layer->gamma,
        .sums = layer->sums,
        .count = layer->count,
    };

    memset(layer->sums, 0, 2 * layer->norm.shape.channels * sizeof(*layer->sums));
    assert_int_equal(on->ops->batch_norm_backward_collect(on, &layer->norm, layer->images, &pass),
                     RC_OK);
    assert_int_equal(on->ops->batch_norm_backward_apply(on, &layer->norm, layer->images, &pass),
                     RC_OK);
    return pass;
}

static void sums_are_those_of_the_twin_in_slices_of_any_size(void **state)
{
    /* Collecting in one go, by slices, and as the twin does gives one mean and one variance. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        struct layer layer = layer_create(&rng, 0.5, 2.0);
        size_t channels = layer.norm.shape.channels;
        layer_collect(plain, &layer, layer.images);
        float *mean = copy_of(layer.mean, channels), *rstd = copy_of(layer.rstd, channels);

        for (uint32_t slice = 1; slice <= layer.images; slice++) {
            layer_collect(fast, &layer, slice);
            check_seed(seed, distance(layer.mean, mean, channels) < 1e-6);
            check_seed(seed, distance(layer.rstd, rstd, channels) < 1e-6);
        }
        mem_free(mean);
        mem_free(rstd);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static void small_variances_survive_large_means(void **state)
{
    /* A deviation of 0.01 around 1000 is found to within 1e-4 of itself, in every layout. */
    (void)state;
    struct backend *fast = backend_of(false);

    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 2);
        struct layer layer = layer_create(&rng, 1000.0, 0.01);
        struct image_shape shape = layer.norm.shape;
        size_t pixels = (size_t)shape.height * shape.width;
        layer.norm.epsilon = 0.0F;
        layer_collect(fast, &layer, 1);

        for (uint32_t c = 0; c < shape.channels && layer.count > 20; c++) {
            double mean = 0.0, squares = 0.0;
            for (int pass = 0; pass < 2; pass++) {
                for (size_t n = 0; n < layer.count; n++) {
                    size_t at = n / pixels * image_values(shape) +
                                (c / shape.block * pixels + n % pixels) * shape.block +
                                c % shape.block;
                    double d = (double)layer.x[at] - mean;
                    if (pass == 0) mean += (double)layer.x[at] / (double)layer.count;
                    if (pass == 1) squares += d * d;
                }
            }
            double rstd = 1.0 / sqrt(squares / (double)layer.count);
            check_seed(seed, fabs((double)layer.mean[c] - mean) < 1e-4);
            check_seed(seed, fabs((double)layer.rstd[c] - rstd) < 1e-4 * rstd);
        }
        layer_destroy(&layer);
    }
    backend_destroy(fast);
}

static void results_and_gradients_are_those_of_the_twin(void **state)
{
    /* Forward and backward agree with the twin, whether outputs replace inputs or not. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 100) {
        struct rng rng;
        rng_init(&rng, seed, 3);
        struct layer layer = layer_create(&rng, 0.5, 2.0);
        size_t n = layer.values;
        layer_collect(plain, &layer, layer.images);
        float *expected = poisoned(n), *in_place = copy_of(layer.x, n);

        layer_apply(plain, &layer, layer.x, expected);
        layer_apply(fast, &layer, layer.x, layer.y);
        layer_apply(fast, &layer, in_place, in_place);
        check_seed(seed, distance(layer.y, expected, n) < 1e-6);
        check_seed(seed, memcmp(in_place, layer.y, n * sizeof(float)) == 0);

        for (int adds = 0; adds < 2; adds++) {
            float *dx = copy_of(layer.dx, n), *dx_expected = copy_of(layer.dx, n);
            float *dy = copy_of(layer.dy, n), *dy_expected = copy_of(layer.dy, n);
            (void)layer_backward(plain, &layer, dy_expected, dx_expected, adds == 1);
            (void)layer_backward(fast, &layer, dy, dx, adds == 1);
            check_seed(seed, memcmp(dy, dy_expected, n * sizeof(float)) == 0);
            check_seed(seed, distance(dx, dx_expected, n) < 3e-6);
            if (adds == 0) {
                memcpy(in_place, layer.dy, n * sizeof(float));
                (void)layer_backward(fast, &layer, in_place, in_place, false);
                check_seed(seed, memcmp(in_place, dx, n * sizeof(float)) == 0);
            }
            mem_free(dx);
            mem_free(dx_expected);
            mem_free(dy);
            mem_free(dy_expected);
        }
        mem_free(expected);
        mem_free(in_place);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static void parameters_get_their_gradients_once_or_on_top(void **state)
{
    /* dgamma and dbeta are those of the twin; only the first call overwrites. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 4);
        struct layer layer = layer_create(&rng, 0.5, 2.0);
        size_t channels = layer.norm.shape.channels;
        struct backend *both[] = {plain, fast};
        float *dgamma[2], *dbeta[2];
        layer_collect(plain, &layer, layer.images);
        layer_apply(plain, &layer, layer.x, layer.y);

        for (int b = 0; b < 2; b++) {
            dgamma[b] = poisoned(channels);
            dbeta[b] = poisoned(channels);
            float *dy = copy_of(layer.dy, layer.values);
            (void)layer_backward(both[b], &layer, dy, dy, false);
            for (int pass = 0; pass < 2 + b; pass++) {
                assert_int_equal(both[b]->ops->batch_norm_backward_close(both[b], &layer.norm,
                                                                         layer.sums, pass == b,
                                                                         dgamma[b], dbeta[b]),
                                 RC_OK);
            }
            mem_free(dy);
        }
        check_seed(seed, distance(dgamma[1], dgamma[0], channels) < 3e-6);
        check_seed(seed, distance(dbeta[1], dbeta[0], channels) < 3e-6);
        for (int b = 0; b < 2; b++) {
            mem_free(dgamma[b]);
            mem_free(dbeta[b]);
        }
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

/* What the slopes are taken of: the loss is the product of y and the weights. */
struct problem {
    struct backend *on;
    struct layer *layer;
    const float *weights;
};

static double weighted_output(void *context)
{
    struct problem *problem = context;
    double loss = 0.0;

    layer_collect(problem->on, problem->layer, 2);
    layer_apply(problem->on, problem->layer, problem->layer->x, problem->layer->y);
    for (size_t i = 0; i < problem->layer->values; i++) {
        loss += (double)problem->layer->y[i] * (double)problem->weights[i];
    }
    return loss;
}

static void gradients_are_slopes(void **state)
{
    /* The twins' gradients are what central differences of the twins' results say. */
    (void)state;
    struct backend *plain = backend_of(true);

    FOR_EACH_SEED (seed, 3) {
        struct rng rng;
        rng_init(&rng, seed, 5);
        struct layer layer = layer_create(&rng, 0.5, 2.0);
        layer.norm.shape = (struct image_shape){.channels = 4, .height = 3, .width = 5, .block = 2};
        layer.norm.with_relu = false; /* it has no slope where it bends */
        layer_destroy(&layer);
        layer.images = 3;
        layer.count = 45;
        layer.values = 180;
        layer.x = random_values(&rng, layer.values, 0.5, 2.0);
        layer.dy = random_values(&rng, layer.values, 0.1, 1.0);
        layer.dx = poisoned(layer.values);
        layer.y = poisoned(layer.values);
        layer.gamma = random_values(&rng, 4, 1.0, 0.5);
        layer.beta = random_values(&rng, 4, 0.0, 0.5);
        layer.mean = poisoned(4);
        layer.rstd = poisoned(4);
        layer.sums = mem_alloc(8 * sizeof(double));
        struct problem problem = {.on = plain, .layer = &layer, .weights = layer.dy};
        struct slope slope = {weighted_output, &problem};
        float dgamma[4], dbeta[4];

        (void)weighted_output(&problem);
        (void)layer_backward(plain, &layer, layer.dy, layer.dx, false);
        assert_int_equal(plain->ops->batch_norm_backward_close(plain, &layer.norm, layer.sums, true,
                                                               dgamma, dbeta),
                         RC_OK);
        check_seed(seed, slope_is(&slope, layer.x, layer.dx, layer.values));
        check_seed(seed, slope_is(&slope, layer.gamma, dgamma, 4));
        check_seed(seed, slope_is(&slope, layer.beta, dbeta, 4));
        layer_destroy(&layer);
    }
    backend_destroy(plain);
}

static void running_statistics_are_those_of_pytorch(void **state)
{
    /* BatchNorm1d(1) after [1, 2, 3, 4]: running mean 0.25, running variance 1.06667, and the
     * biased 1.25 in rstd; what is NULL stays away, and one value alone has no unbiased variance.
     */
    (void)state;
    struct backend *fast = backend_of(false);
    struct batch_norm norm = {.shape = {1, 1, 1, 1}, .epsilon = 1e-5F, .momentum = 0.1F};
    const float x[] = {1.0F, 2.0F, 3.0F, 4.0F};
    double sums[2] = {0.0, 0.0};
    float mean, rstd, running_mean = 0.0F, running_variance = 1.0F;
    struct batch_norm_close close = {.count = 4, .sums = sums, .mean = &mean, .rstd = &rstd};

    assert_int_equal(fast->ops->batch_norm_collect(fast, &norm, 4, x, sums), RC_OK);
    assert_int_equal(fast->ops->batch_norm_close(fast, &norm, &close), RC_OK);
    close.running_mean = &running_mean;
    close.running_variance = &running_variance;
    assert_int_equal(fast->ops->batch_norm_close(fast, &norm, &close), RC_OK);
    assert_float_equal(mean, 2.5, 1e-6);
    assert_float_equal(rstd, 0.8944236, 1e-6);
    assert_float_equal(running_mean, 0.25, 1e-6);
    assert_float_equal(running_variance, 1.0666667, 1e-6);

    assert_int_equal(fast->ops->batch_norm_rstd(fast, &norm, &running_variance, &rstd), RC_OK);
    assert_true(fabs((double)rstd - 1.0 / sqrt(1.0666667 + 1e-5)) < 1e-6);

    sums[0] = 3.0;
    sums[1] = 9.0;
    close.count = 1;
    assert_int_equal(fast->ops->batch_norm_close(fast, &norm, &close), RC_OK);
    assert_true(isfinite(running_variance));
    backend_destroy(fast);
}

static void what_is_no_number_stays_none(void **state)
{
    /* A NaN survives relu, in vectors and in what is left over, and an infinite x is not hidden. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 20) {
        struct rng rng;
        rng_init(&rng, seed, 6);
        struct layer layer = layer_create(&rng, 0.0, 1.0);
        size_t at = (size_t)rng_below(&rng, layer.values);
        layer.norm.with_relu = true;
        layer_collect(plain, &layer, layer.images);
        layer.x[at] = NAN;
        layer_apply(fast, &layer, layer.x, layer.y);
        check_seed(seed, isnan(layer.y[at]));
        layer_apply(plain, &layer, layer.x, layer.y);
        check_seed(seed, isnan(layer.y[at]));

        bool is_found = false;
        layer.x[at] = INFINITY;
        layer_collect(fast, &layer, layer.images);
        for (uint32_t c = 0; c < layer.norm.shape.channels; c++) {
            if (!isfinite(layer.mean[c])) is_found = true;
        }
        check_seed(seed, is_found);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static void equal_calls_give_equal_bits(void **state)
{
    /* Wherever the values lie in memory, the sums and results of a repeat are the same. */
    (void)state;
    struct backend *fast = backend_of(false);

    FOR_EACH_SEED (seed, 20) {
        struct rng rng;
        rng_init(&rng, seed, 7);
        struct layer layer = layer_create(&rng, 3.0, 2.0);
        size_t channels = layer.norm.shape.channels;
        float *x = layer.x, *shifted = poisoned(layer.values + 3);
        layer_collect(fast, &layer, layer.images);
        layer_apply(fast, &layer, layer.x, layer.y);
        float *y = copy_of(layer.y, layer.values);
        float *rstd = copy_of(layer.rstd, channels);

        memcpy(shifted + 3, x, layer.values * sizeof(*x));
        layer.x = shifted + 3;
        layer_collect(fast, &layer, layer.images);
        layer_apply(fast, &layer, layer.x, layer.y);
        check_seed(seed, memcmp(rstd, layer.rstd, channels * sizeof(*rstd)) == 0);
        check_seed(seed, memcmp(y, layer.y, layer.values * sizeof(*y)) == 0);
        layer.x = x;
        mem_free(shifted);
        mem_free(y);
        mem_free(rstd);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_twin_in_slices_of_any_size),
        cmocka_unit_test(small_variances_survive_large_means),
        cmocka_unit_test(results_and_gradients_are_those_of_the_twin),
        cmocka_unit_test(parameters_get_their_gradients_once_or_on_top),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(running_statistics_are_those_of_pytorch),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(equal_calls_give_equal_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Group normalisation against its plain C twin: groups that straddle blocks and span them. */
#include "tests/check.h"

#include "tests/unit/kernels/norm_values.h"

struct layer {
    struct group_norm norm;
    uint32_t images;
    size_t values, statistics;
    float *x, *y, *dy, *gamma, *beta, *mean, *rstd;
};

static struct layer layer_create(struct rng *rng, struct image_shape shape)
{
    struct layer layer = {.norm = {.shape = shape, .epsilon = 1e-5F}};

    do {
        layer.norm.groups = between(rng, 1, shape.channels);
    } while (shape.channels % layer.norm.groups != 0);
    layer.images = between(rng, 1, 4);
    layer.values = layer.images * image_values(shape);
    layer.statistics = (size_t)layer.images * layer.norm.groups;
    layer.x = random_values(rng, layer.values, 0.5, 2.0);
    layer.dy = random_values(rng, layer.values, 0.2, 1.0);
    layer.gamma = random_values(rng, shape.channels, 1.0, 0.5);
    layer.beta = random_values(rng, shape.channels, 0.0, 0.5);
    layer.y = poisoned(layer.values);
    layer.mean = poisoned(layer.statistics);
    layer.rstd = poisoned(layer.statistics);
    return layer;
}

static void layer_destroy(struct layer *layer)
{
    float *all[] = {layer->x,    layer->y,    layer->dy,  layer->gamma,
                    layer->beta, layer->mean, layer->rstd};

    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        mem_free(all[i]);
    }
}

static void layer_forward(struct backend *on, struct layer *layer)
{
    assert_int_equal(on->ops->group_norm_forward(on, &layer->norm, layer->images, layer->x,
                                                 layer->gamma, layer->beta, layer->y, layer->mean,
                                                 layer->rstd),
                     RC_OK);
}

/* Results of one backward pass. */
struct gradients {
    float *dx, *dgamma, *dbeta;
};

static struct gradients gradients_create(const struct layer *layer)
{
    size_t channels = layer->norm.shape.channels;

    return (struct gradients){poisoned(layer->values), poisoned(channels), poisoned(channels)};
}

static void gradients_destroy(struct gradients *gradients)
{
    mem_free(gradients->dx);
    mem_free(gradients->dgamma);
    mem_free(gradients->dbeta);
}

static struct norm_backward pass_of(const struct layer *layer, const struct gradients *gradients)
{
    return (struct norm_backward){
        .x = layer->x,
        .mean = layer->mean,
        .rstd = layer->rstd,
        .gamma = layer->gamma,
        .dy = layer->dy,
        .dx = gradients->dx,
        .is_first = true,
        .dgamma = gradients->dgamma,
        .dbeta = gradients->dbeta,
    };
}

static void layer_backward(struct backend *on, struct layer *layer,
                           const struct norm_backward *pass)
{
    assert_int_equal(on->ops->group_norm_backward(on, &layer->norm, layer->images, pass), RC_OK);
}

static void results_are_those_of_the_twin_in_any_layout(void **state)
{
    /* Statistics and results agree, whether groups straddle blocks or span them. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 150) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        struct layer layer = layer_create(&rng, random_shape(&rng));
        layer_forward(plain, &layer);
        float *y = copy_of(layer.y, layer.values), *mean = copy_of(layer.mean, layer.statistics);
        float *rstd = copy_of(layer.rstd, layer.statistics);
        memset(layer.y, 0xff, layer.values * sizeof(float)); /* NaNs again */

        layer_forward(fast, &layer);
        check_seed(seed, distance(layer.mean, mean, layer.statistics) < 1e-6);
        check_seed(seed, distance(layer.rstd, rstd, layer.statistics) < 3e-6);
        check_seed(seed, distance(layer.y, y, layer.values) < 3e-6);
        mem_free(y);
        mem_free(mean);
        mem_free(rstd);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static void gradients_are_those_of_the_twin_in_every_form(void **state)
{
    /* dx apart, in place of dy, on top of what is there, or not wanted; parameters added to. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 100) {
        struct rng rng;
        rng_init(&rng, seed, 2);
        struct layer layer = layer_create(&rng, random_shape(&rng));
        size_t channels = layer.norm.shape.channels, n = layer.values;
        struct gradients want = gradients_create(&layer), got = gradients_create(&layer);
        struct norm_backward expected = pass_of(&layer, &want), pass = pass_of(&layer, &got);
        double scale = 0.0;

        layer_forward(plain, &layer);
        layer_backward(plain, &layer, &expected);
        layer_backward(fast, &layer, &pass);
        /* Small groups leave little of dy rstd, of which the rounding is. */
        for (size_t i = 0; i < layer.statistics; i++) {
            if ((double)layer.rstd[i] > scale) scale = (double)layer.rstd[i];
        }
        for (size_t i = 0; i < n; i++) {
            check_seed(seed, fabs((double)got.dx[i] - (double)want.dx[i]) < 1e-5 * (1.0 + scale));
        }
        check_seed(seed, distance(got.dgamma, want.dgamma, channels) < 1e-5);
        check_seed(seed, distance(got.dbeta, want.dbeta, channels) < 1e-5);

        expected.adds_to_dx = pass.adds_to_dx = true;
        expected.is_first = pass.is_first = false;
        memcpy(want.dx, layer.x, n * sizeof(float));
        memcpy(want.dgamma, got.dgamma, channels * sizeof(float));
        memcpy(want.dbeta, got.dbeta, channels * sizeof(float));
        float *alone = copy_of(got.dx, n);
        memcpy(got.dx, layer.x, n * sizeof(float));
        layer_backward(plain, &layer, &expected);
        layer_backward(fast, &layer, &pass);
        for (size_t i = 0; i < n; i++) {
            check_seed(seed, fabs((double)got.dx[i] - (double)want.dx[i]) < 1e-5 * (1.0 + scale));
        }
        check_seed(seed, distance(got.dgamma, want.dgamma, channels) < 1e-5);
        check_seed(seed, distance(got.dbeta, want.dbeta, channels) < 1e-5);

        pass.adds_to_dx = false;
        pass.dx = NULL;
        layer_backward(fast, &layer, &pass);
        pass.dx = layer.dy;
        layer_backward(fast, &layer, &pass);
        check_seed(seed, memcmp(layer.dy, alone, n * sizeof(float)) == 0);
        mem_free(alone);
        gradients_destroy(&want);
        gradients_destroy(&got);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

/* What the slopes are taken of: the loss is the product of y and dy. */
struct problem {
    struct backend *on;
    struct layer *layer;
};

static double weighted_output(void *context)
{
    struct problem *problem = context;
    double loss = 0.0;

    layer_forward(problem->on, problem->layer);
    for (size_t i = 0; i < problem->layer->values; i++) {
        loss += (double)problem->layer->y[i] * (double)problem->layer->dy[i];
    }
    return loss;
}

static void gradients_are_slopes(void **state)
{
    /* The twin's gradients are what central differences of the twin's results say. */
    (void)state;
    struct backend *plain = backend_of(true);

    FOR_EACH_SEED (seed, 4) {
        struct rng rng;
        rng_init(&rng, seed, 3);
        struct layer layer = layer_create(
            &rng, (struct image_shape){.channels = 6, .height = 4, .width = 5, .block = 2});
        struct gradients gradients = gradients_create(&layer);
        struct norm_backward pass = pass_of(&layer, &gradients);
        struct problem problem = {plain, &layer};
        struct slope slope = {weighted_output, &problem};

        (void)weighted_output(&problem);
        layer_backward(plain, &layer, &pass);
        check_seed(seed, slope_is(&slope, layer.x, gradients.dx, layer.values));
        check_seed(seed, slope_is(&slope, layer.gamma, gradients.dgamma, 6));
        check_seed(seed, slope_is(&slope, layer.beta, gradients.dbeta, 6));
        gradients_destroy(&gradients);
        layer_destroy(&layer);
    }
    backend_destroy(plain);
}

static void as_many_groups_as_allowed_are_as_good_as_few(void **state)
{
    /* One channel a group, up to the limit: each channel of each image has mean beta. */
    (void)state;
    struct backend *fast = backend_of(false);
    struct rng rng;
    rng_init(&rng, 1, 4);
    struct layer layer = layer_create(
        &rng, (struct image_shape){GROUP_NORM_GROUPS_MAX, 3, 3, GROUP_NORM_GROUPS_MAX});
    size_t statistics = (size_t)layer.images * GROUP_NORM_GROUPS_MAX;
    struct gradients gradients = gradients_create(&layer);
    struct norm_backward pass;

    mem_free(layer.mean);
    mem_free(layer.rstd);
    layer.mean = poisoned(statistics);
    layer.rstd = poisoned(statistics);
    layer.norm.groups = GROUP_NORM_GROUPS_MAX;
    pass = pass_of(&layer, &gradients);
    layer_forward(fast, &layer);
    layer_backward(fast, &layer, &pass);
    for (size_t c = 0; c < GROUP_NORM_GROUPS_MAX; c++) {
        double sum = 0.0, slope = 0.0;
        for (size_t i = 0; i < 9; i++) {
            sum += (double)layer.y[i * GROUP_NORM_GROUPS_MAX + c];
            slope += (double)gradients.dx[i * GROUP_NORM_GROUPS_MAX + c];
        }
        assert_true(fabs(sum / 9.0 - (double)layer.beta[c]) < 1e-5);
        assert_true(fabs(slope) < 1e-4);
    }
    gradients_destroy(&gradients);
    layer_destroy(&layer);
    backend_destroy(fast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_twin_in_any_layout),
        cmocka_unit_test(gradients_are_those_of_the_twin_in_every_form),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(as_many_groups_as_allowed_are_as_good_as_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

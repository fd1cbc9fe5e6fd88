/* Layer and weight normalisation of rows against their plain C twins. */
#include "tests/check.h"

#include "tests/unit/kernels/norm_values.h"

struct layer {
    struct layer_norm norm;
    size_t values;
    float *x, *y, *dy, *gamma, *beta, *mean, *rstd;
};

static struct layer layer_create(struct rng *rng, size_t rows, size_t columns, double centre)
{
    return (struct layer){
        .norm = {.rows = rows, .columns = columns, .epsilon = 1e-5F},
        .values = rows * columns,
        .x = random_values(rng, rows * columns, centre, 2.0),
        .dy = random_values(rng, rows * columns, 0.2, 1.0),
        .gamma = random_values(rng, columns, 1.0, 0.5),
        .beta = random_values(rng, columns, 0.0, 0.5),
        .y = poisoned(rows * columns),
        .mean = poisoned(rows),
        .rstd = poisoned(rows),
    };
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
    assert_int_equal(on->ops->layer_norm_forward(on, &layer->norm, layer->x, layer->gamma,
                                                 layer->beta, layer->y, layer->mean, layer->rstd),
                     RC_OK);
}

/* Results of one backward pass. */
struct gradients {
    float *dx, *dgamma, *dbeta;
};

static struct gradients gradients_create(const struct layer *layer)
{
    size_t columns = layer->norm.columns;

    return (struct gradients){poisoned(layer->values), poisoned(columns), poisoned(columns)};
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
    assert_int_equal(on->ops->layer_norm_backward(on, &layer->norm, pass), RC_OK);
}

/* Short rows, ragged ones, and such as do not fit into one pass. */
static size_t random_columns(struct rng *rng)
{
    switch (rng_below(rng, 4)) {
    case 0:
        return 16U * between(rng, 1, 12);
    case 1:
        return between(rng, 2, 15);
    case 2:
        return between(rng, 1000, 2300);
    default:
        return between(rng, 17, 200);
    }
}

static void rows_are_normalised_as_by_the_twin(void **state)
{
    /* Mean, rstd and result agree for rows of any length. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        size_t columns = random_columns(&rng);
        struct layer layer = layer_create(&rng, between(&rng, 1, 40), columns, 0.5);
        layer_forward(plain, &layer);
        float *y = copy_of(layer.y, layer.values), *mean = copy_of(layer.mean, layer.norm.rows);
        float *rstd = copy_of(layer.rstd, layer.norm.rows);
        memset(layer.y, 0xff, layer.values * sizeof(float)); /* NaNs again */

        layer_forward(fast, &layer);
        check_seed(seed, distance(layer.mean, mean, layer.norm.rows) < 1e-6);
        check_seed(seed, distance(layer.rstd, rstd, layer.norm.rows) < 1e-6);
        /* Two values close to each other: the rounding of the mean, times rstd. */
        check_seed(seed, distance(layer.y, y, layer.values) < 1e-5);
        mem_free(y);
        mem_free(mean);
        mem_free(rstd);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static void small_deviations_survive_large_means(void **state)
{
    /* Values 1000 +- 0.5, 2^-6 apart, are normalised like the same values around 0. */
    (void)state;
    struct backend *fast = backend_of(false);
    struct rng rng;
    rng_init(&rng, 1, 2);
    struct layer near = layer_create(&rng, 1, 128, 0.0), far = layer_create(&rng, 1, 128, 0.0);

    for (size_t i = 0; i < 128; i++) {
        near.x[i] = (float)rng_below(&rng, 64) / 64.0F - 0.5F;
        far.x[i] = near.x[i] + 1000.0F; /* exactly */
    }
    layer_forward(fast, &near);
    layer_forward(fast, &far);
    assert_true(fabs((double)far.rstd[0] / (double)near.rstd[0] - 1.0) < 1e-5);
    layer_destroy(&near);
    layer_destroy(&far);
    backend_destroy(fast);
}

static void gradients_are_those_of_the_twin_in_every_form(void **state)
{
    /* dx apart, in place of dy, on top of what is there, or not wanted; parameters added to. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 3);
        size_t columns = random_columns(&rng) + 3; /* of two values nothing is left */
        struct layer layer = layer_create(&rng, between(&rng, 1, 40), columns, 0.5);
        size_t n = layer.values;
        struct gradients want = gradients_create(&layer), got = gradients_create(&layer);
        struct norm_backward expected = pass_of(&layer, &want), pass = pass_of(&layer, &got);

        layer_forward(plain, &layer);
        for (int form = 0; form < 2; form++) {
            layer_backward(plain, &layer, &expected);
            layer_backward(fast, &layer, &pass);
            check_seed(seed, distance(got.dx, want.dx, n) < 3e-6);
            check_seed(seed, distance(got.dgamma, want.dgamma, columns) < 3e-6);
            check_seed(seed, distance(got.dbeta, want.dbeta, columns) < 3e-6);
            if (form == 1) break;
            memcpy(layer.y, got.dx, n * sizeof(float));
            memcpy(want.dx, layer.x, n * sizeof(float));
            memcpy(got.dx, layer.x, n * sizeof(float));
            expected.adds_to_dx = pass.adds_to_dx = true;
            expected.is_first = pass.is_first = false;
        }
        pass.adds_to_dx = false;
        pass.is_first = true;
        pass.dx = NULL;
        float *dgamma = copy_of(got.dgamma, columns);
        layer_backward(fast, &layer, &pass);
        pass.dx = layer.dy;
        memcpy(dgamma, got.dgamma, columns * sizeof(float));
        layer_backward(fast, &layer, &pass);
        check_seed(seed, memcmp(layer.dy, layer.y, n * sizeof(float)) == 0);
        check_seed(seed, memcmp(dgamma, got.dgamma, columns * sizeof(float)) == 0);
        mem_free(dgamma);
        gradients_destroy(&want);
        gradients_destroy(&got);
        layer_destroy(&layer);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

/* What the slopes are taken of: the loss is the product of y and dy. */
struct layer_problem {
    struct backend *on;
    struct layer *layer;
};

static double layer_loss(void *context)
{
    struct layer_problem *problem = context;
    double loss = 0.0;

    layer_forward(problem->on, problem->layer);
    for (size_t i = 0; i < problem->layer->values; i++) {
        loss += (double)problem->layer->y[i] * (double)problem->layer->dy[i];
    }
    return loss;
}

static void gradients_of_layer_norm_are_slopes(void **state)
{
    /* The twin's gradients are what central differences of the twin's results say. */
    (void)state;
    struct backend *plain = backend_of(true);

    FOR_EACH_SEED (seed, 4) {
        struct rng rng;
        rng_init(&rng, seed, 4);
        struct layer layer = layer_create(&rng, 5, 12, 0.5);
        struct gradients gradients = gradients_create(&layer);
        struct norm_backward pass = pass_of(&layer, &gradients);
        struct layer_problem problem = {plain, &layer};
        struct slope slope = {layer_loss, &problem};

        (void)layer_loss(&problem);
        layer_backward(plain, &layer, &pass);
        check_seed(seed, slope_is(&slope, layer.x, gradients.dx, layer.values));
        check_seed(seed, slope_is(&slope, layer.gamma, gradients.dgamma, 12));
        check_seed(seed, slope_is(&slope, layer.beta, gradients.dbeta, 12));
        gradients_destroy(&gradients);
        layer_destroy(&layer);
    }
    backend_destroy(plain);
}

/* A dense layer's weights in the polar form. */
struct polar {
    size_t rows, columns;
    float *v, *g, *w, *dw, *norms, *dv, *dg;
};

static struct polar polar_create(struct rng *rng, size_t rows, size_t columns)
{
    return (struct polar){
        .rows = rows,
        .columns = columns,
        .v = random_values(rng, rows * columns, 0.1, 1.0),
        .g = random_values(rng, rows, 1.0, 0.5),
        .dw = random_values(rng, rows * columns, 0.2, 1.0),
        .w = poisoned(rows * columns),
        .norms = poisoned(rows),
        .dv = poisoned(rows * columns),
        .dg = poisoned(rows),
    };
}

static void polar_destroy(struct polar *polar)
{
    float *all[] = {polar->v, polar->g, polar->w, polar->dw, polar->norms, polar->dv, polar->dg};

    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        mem_free(all[i]);
    }
}

static void polar_pass(struct backend *on, struct polar *p, float *dv)
{
    struct weight_norm_backward pass = {p->rows,  p->columns, p->v, p->g,
                                        p->norms, p->dw,      dv,   p->dg};

    assert_int_equal(
        on->ops->weight_norm_forward(on, p->rows, p->columns, p->v, p->g, p->w, p->norms), RC_OK);
    assert_int_equal(on->ops->weight_norm_backward(on, &pass), RC_OK);
}

static void weights_and_their_gradients_are_those_of_the_twin(void **state)
{
    /* w, norms, dg and dv agree; dv may take the place of dw. */
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);

    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 5);
        struct polar p = polar_create(&rng, between(&rng, 1, 20), random_columns(&rng));
        size_t n = p.rows * p.columns;
        polar_pass(plain, &p, p.dv);
        float *w = copy_of(p.w, n), *dv = copy_of(p.dv, n), *dg = copy_of(p.dg, p.rows);

        polar_pass(fast, &p, p.dv);
        check_seed(seed, distance(p.w, w, n) < 1e-6);
        check_seed(seed, distance(p.dv, dv, n) < 3e-6);
        check_seed(seed, distance(p.dg, dg, p.rows) < 3e-6);
        memcpy(dv, p.dv, n * sizeof(float));
        polar_pass(fast, &p, p.dw);
        check_seed(seed, memcmp(p.dw, dv, n * sizeof(float)) == 0);
        mem_free(w);
        mem_free(dv);
        mem_free(dg);
        polar_destroy(&p);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static void a_row_of_zeros_is_nan_and_nothing_else_is(void **state)
{
    /* It has no direction, which somebody has to notice; the rows beside it are as they were. */
    (void)state;
    struct backend *both[] = {backend_of(false), backend_of(true)};
    struct rng rng;
    rng_init(&rng, 1, 7);
    struct polar p = polar_create(&rng, 3, 40);

    memset(p.v + 40, 0, 40 * sizeof(float));
    for (size_t b = 0; b < ARRAY_COUNT(both); b++) {
        polar_pass(both[b], &p, p.dv);
        for (size_t i = 0; i < 120; i++) {
            assert_int_equal(isnan(p.w[i]) != 0, i / 40 == 1);
            assert_int_equal(isnan(p.dv[i]) != 0, i / 40 == 1);
        }
        backend_destroy(both[b]);
    }
    polar_destroy(&p);
}

struct polar_problem {
    struct backend *on;
    struct polar *polar;
};

static double polar_loss(void *context)
{
    struct polar_problem *problem = context;
    struct polar *p = problem->polar;
    double loss = 0.0;

    assert_int_equal(problem->on->ops->weight_norm_forward(problem->on, p->rows, p->columns, p->v,
                                                           p->g, p->w, p->norms),
                     RC_OK);
    for (size_t i = 0; i < p->rows * p->columns; i++) {
        loss += (double)p->w[i] * (double)p->dw[i];
    }
    return loss;
}

static void gradients_of_weight_norm_are_slopes(void **state)
{
    /* The twin's gradients are what central differences of the twin's results say. */
    (void)state;
    struct backend *plain = backend_of(true);

    FOR_EACH_SEED (seed, 4) {
        struct rng rng;
        rng_init(&rng, seed, 6);
        struct polar p = polar_create(&rng, 4, 9);
        struct polar_problem problem = {plain, &p};
        struct slope slope = {polar_loss, &problem};

        polar_pass(plain, &p, p.dv);
        check_seed(seed, slope_is(&slope, p.v, p.dv, 36));
        check_seed(seed, slope_is(&slope, p.g, p.dg, 4));
        polar_destroy(&p);
    }
    backend_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_normalised_as_by_the_twin),
        cmocka_unit_test(small_deviations_survive_large_means),
        cmocka_unit_test(gradients_are_those_of_the_twin_in_every_form),
        cmocka_unit_test(gradients_of_layer_norm_are_slopes),
        cmocka_unit_test(weights_and_their_gradients_are_those_of_the_twin),
        cmocka_unit_test(a_row_of_zeros_is_nan_and_nothing_else_is),
        cmocka_unit_test(gradients_of_weight_norm_are_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

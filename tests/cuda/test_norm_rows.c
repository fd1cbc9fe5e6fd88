/* Group, layer and weight normalisation on the device against their twins. */
#include "tests/cuda/images.h"

static float *parameters(struct parity *p, size_t n, double centre)
{
    float *values = parity_values(p, n, 0.5);

    for (size_t i = 0; i < n; i++) {
        values[i] += (float)centre;
    }
    return values;
}

static float *put_parameters(struct parity *p, size_t offset, const float *from, size_t n)
{
    float *to = (float *)parity_block(p, (n + offset) * 4) + offset;

    parity_ok(p, p->device->ops->upload(p->device, to, from, n * 4));
    return to;
}

static float *around(struct parity *p, size_t n, double centre, double spread)
{
    float *values = parity_values(p, n, spread);

    for (size_t i = 0; i < n; i++) {
        values[i] += (float)centre;
        if (p->is_bf16) values[i] = parity_to_bf16(values[i]);
    }
    return values;
}

/* One layer of either kind: `statistics` means of `channels` parameters over `values`. */
struct layer {
    struct group_norm group;
    struct layer_norm rows;
    uint32_t images; /* 0: rows */
    size_t values, channels, statistics;
    size_t offset, parameters_offset;
    float *x, *gamma, *beta;
    float *on_x, *on_gamma, *on_beta;
};

static void layer_fill(struct parity *p, struct layer *layer, double centre, double spread)
{
    layer->offset = random_offset(p);
    layer->parameters_offset = random_offset(p);
    layer->x = around(p, layer->values, centre, spread);
    layer->gamma = parameters(p, layer->channels, 1.0);
    layer->beta = parameters(p, layer->channels, 0.0);
    layer->on_x = image_put(p, layer->offset, layer->x, layer->values);
    layer->on_gamma = put_parameters(p, layer->parameters_offset, layer->gamma, layer->channels);
    layer->on_beta = put_parameters(p, layer->parameters_offset, layer->beta, layer->channels);
}

/* The large images first. Of two or three values per group the gradient is nothing but rounding. */
static struct layer group_create(struct parity *p, uint32_t number, double centre, double spread)
{
    struct layer layer = {.group = {.epsilon = 1e-5F}, .images = between(p, 1, 5)};
    struct image_shape shape;
    uint32_t groups;

    do {
        shape = number < ARRAY_COUNT(images_large) ? images_large[number] : random_image(p);
        groups = between(p, 1, shape.channels);
    } while (shape.channels % groups != 0 || image_values(shape) / groups < 8);
    layer.group.shape = shape;
    layer.group.groups = groups;
    layer.values = layer.images * image_values(shape);
    layer.channels = shape.channels;
    layer.statistics = (size_t)layer.images * groups;
    layer_fill(p, &layer, centre, spread);
    return layer;
}

static struct layer rows_create(struct parity *p, struct layer_norm rows, double centre,
                                double spread)
{
    struct layer layer = {.rows = rows,
                          .values = rows.rows * rows.columns,
                          .channels = rows.columns,
                          .statistics = rows.rows};

    layer_fill(p, &layer, centre, spread);
    return layer;
}

static void layer_forward(struct backend *on, const struct layer *layer, const float *x,
                          const float *const affine[2], float *y, float *const statistics[2])
{
    if (layer->images > 0) {
        image_check_host(on->ops->group_norm_forward(on, &layer->group, layer->images, x, affine[0],
                                                     affine[1], y, statistics[0], statistics[1]));
    } else {
        image_check_host(on->ops->layer_norm_forward(on, &layer->rows, x, affine[0], affine[1], y,
                                                     statistics[0], statistics[1]));
    }
}

static void layer_backward(struct backend *on, const struct layer *layer,
                           const struct norm_backward *pass)
{
    if (layer->images > 0) {
        image_check_host(on->ops->group_norm_backward(on, &layer->group, layer->images, pass));
    } else {
        image_check_host(on->ops->layer_norm_backward(on, &layer->rows, pass));
    }
}

/* Forward: on the device twice, by the twin once; mean and rstd of the device stay. */
static void check_forward(struct parity *p, uint64_t seed, const struct layer *layer,
                          float *statistics[2])
{
    const float *affine[2] = {layer->gamma, layer->beta};
    const float *on_affine[2] = {layer->on_gamma, layer->on_beta};
    size_t n = layer->values, few = layer->statistics;
    float *wanted = parity_host(p, n * 4),
          *y[2] = {image_room(p, layer->offset, n), image_room(p, layer->offset, n)};
    float *twin[2] = {parity_host(p, few * 4), parity_host(p, few * 4)};

    layer_forward(p->host, layer, layer->x, affine, wanted, twin);
    for (int i = 0; i < 2; i++) {
        statistics[0] = parity_block(p, few * 4);
        statistics[1] = parity_block(p, few * 4);
        layer_forward(p->device, layer, layer->on_x, on_affine, y[i], statistics);
    }
    parity_check_values(p, seed, "mean", statistics[0], twin[0], few, 1e-6, 1e-6);
    parity_check_values(p, seed, "rstd", statistics[1], twin[1], few, 1e-6, 1e-6);
    parity_check_activations(p, seed, "y", y[0], wanted, n, 2e-6, 4e-3);
    image_check_bits(p, seed, y[0], y[1], n * p->device->value_bytes);
}

enum target { TARGET_OWN, TARGET_IN_PLACE, TARGET_ADDS, TARGET_NONE, TARGETS };

/* A pass on the device with memory of its own for what it writes. */
static struct norm_backward device_backward(struct parity *p, const struct layer *layer,
                                            const struct norm_backward *host, enum target target,
                                            float *const statistics[2])
{
    size_t n = layer->values;
    struct norm_backward pass = *host;
    float *dy = image_put(p, layer->offset, host->dy, n);

    pass.x = layer->on_x;
    pass.dy = dy;
    pass.mean = statistics[0];
    pass.rstd = statistics[1];
    pass.gamma = layer->on_gamma;
    pass.dgamma = put_parameters(p, layer->parameters_offset, host->dgamma, layer->channels);
    pass.dbeta = put_parameters(p, layer->parameters_offset, host->dbeta, layer->channels);
    pass.dx = NULL;
    if (target == TARGET_OWN) pass.dx = image_room(p, layer->offset, n);
    if (target == TARGET_IN_PLACE) pass.dx = dy;
    if (target == TARGET_ADDS) pass.dx = image_put(p, layer->offset, host->dx, n);
    layer_backward(p->device, layer, &pass);
    return pass;
}

static void check_backward(struct parity *p, uint64_t seed, const struct layer *layer,
                           float *const statistics[2], enum target target)
{
    size_t n = layer->values, few = layer->statistics;
    struct norm_backward got, again,
        host = {
            .x = layer->x,
            .mean = parity_get_values(p, statistics[0], few),
            .rstd = parity_get_values(p, statistics[1], few),
            .gamma = layer->gamma,
            .dy = parity_activations(p, n, 1.0),
            .dx = parity_activations(p, n, 1.0),
            .adds_to_dx = target == TARGET_ADDS,
            .is_first = between(p, 0, 1) == 1,
            .dgamma = parameters(p, layer->channels, 0.0),
            .dbeta = parameters(p, layer->channels, 0.0),
        };

    got = device_backward(p, layer, &host, target, statistics);
    again = device_backward(p, layer, &host, target, statistics);
    layer_backward(p->host, layer, &host);
    if (target != TARGET_NONE) {
        parity_check_activations(p, seed, "dx", got.dx, host.dx, n, 5e-6, 4e-3);
        image_check_bits(p, seed, got.dx, again.dx, n * p->device->value_bytes);
    }
    parity_check_values(p, seed, "dgamma", got.dgamma, host.dgamma, layer->channels, 2e-5, 2e-5);
    parity_check_values(p, seed, "dbeta", got.dbeta, host.dbeta, layer->channels, 2e-5, 2e-5);
    image_check_bits(p, seed, got.dgamma, again.dgamma, layer->channels * 4);
    image_check_bits(p, seed, got.dbeta, again.dbeta, layer->channels * 4);
}

/* Groups that straddle blocks and groups that span them: results and gradients are the twin's. */
static void groups_equal_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (uint32_t i = 0; i < 12; i++) {
        struct layer layer = group_create(p, i, 3.0, 2.0);
        float *statistics[2];
        check_forward(p, seed, &layer, statistics);
        check_backward(p, seed, &layer, statistics, (enum target)(i % TARGETS));
        image_clear(p);
    }
    parity_end(p);
}

/* Rows of all lengths: held by a warp, by a block, by none; fewer and more than a block has. */
static void rows_equal_their_twins(bool is_bf16, uint64_t seed)
{
    static const struct layer_norm shapes[] = {
        {1, 5, 1e-5F},     {700, 8, 1e-5F},  {300, 24, 1e-5F}, {3, 33, 1e-5F},
        {130, 64, 1e-5F},  {67, 256, 1e-5F}, {9, 1000, 1e-5F}, {40, 1024, 1e-5F},
        {7, 1031, 1e-5F},  {5, 2048, 1e-5F}, {3, 3000, 1e-5F}, {3, 4096, 1e-5F},
        {70, 1025, 1e-5F}, {2, 8192, 1e-5F}, {2, 8200, 1e-5F}, {1100, 17, 1e-5F},
    };
    struct parity *p = parity_begin(is_bf16, seed);

    for (uint32_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct layer layer = rows_create(p, shapes[i], 3.0, 2.0);
        float *statistics[2];
        check_forward(p, seed, &layer, statistics);
        check_backward(p, seed, &layer, statistics, (enum target)((i + seed) % TARGETS));
        image_clear(p);
    }
    parity_end(p);
}

/* Sums of rows, in a place of their own or in that of what is added, and their norms in one: the
 * bits of both passes. */
static void rows_are_added_up_on_the_way(bool is_bf16, uint64_t seed)
{
    static const struct layer_norm shapes[] = {
        {1, 5, 1e-5F},     {700, 8, 1e-5F},  {3, 33, 1e-5F},   {130, 64, 1e-5F},  {9, 1000, 1e-5F},
        {40, 1024, 1e-5F}, {5, 2048, 1e-5F}, {3, 4096, 1e-5F}, {70, 1025, 1e-5F}, {2, 8200, 1e-5F},
    };
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    size_t bytes = p->device->value_bytes;

    for (uint32_t i = 0; i < 3 * ARRAY_COUNT(shapes); i++) {
        struct layer layer = rows_create(p, shapes[i / 3], 3.0, 2.0);
        size_t n = layer.values, few = layer.statistics;
        float *b = image_put(p, layer.offset, parity_activations(p, n, 2.0), n);
        void *places[] = {image_room(p, layer.offset, n), layer.on_x, b};
        float *x = image_room(p, layer.offset, n), *y = image_room(p, layer.offset, n);
        float *statistics[2] = {parity_block(p, few * 4), parity_block(p, few * 4)};
        struct layer_norm_sum sum = {.a = layer.on_x,
                                     .b = b,
                                     .x = places[i % 3],
                                     .gamma = layer.on_gamma,
                                     .beta = layer.on_beta,
                                     .y = image_room(p, layer.offset, n),
                                     .mean = parity_block(p, few * 4),
                                     .rstd = parity_block(p, few * 4)};

        parity_ok(p, ops->add(p->device, layer.on_x, b, false, x, n));
        parity_ok(p, ops->layer_norm_forward(p->device, &layer.rows, x, layer.on_gamma,
                                             layer.on_beta, y, statistics[0], statistics[1]));
        parity_ok(p, ops->layer_norm_sum_forward(p->device, &layer.rows, &sum));
        image_check_bits(p, seed, sum.x, x, n * bytes);
        image_check_bits(p, seed, sum.y, y, n * bytes);
        image_check_bits(p, seed, sum.mean, statistics[0], few * 4);
        image_check_bits(p, seed, sum.rstd, statistics[1], few * 4);
        image_clear(p);
    }
    parity_end(p);
}

/* A row of one column is its beta, and has no gradient. */
static void a_row_of_one_is_its_beta(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct layer layer = rows_create(p, (struct layer_norm){9, 1, 1e-5F}, 0.5, 2.0);
    const float *on_affine[2] = {layer.on_gamma, layer.on_beta};
    float *statistics[2] = {parity_block(p, 9 * 4), parity_block(p, 9 * 4)};
    float *y = image_room(p, layer.offset, 9), wanted[9];

    layer_forward(p->device, &layer, layer.on_x, on_affine, y, statistics);
    for (int i = 0; i < 9; i++) {
        wanted[i] = is_bf16 ? parity_to_bf16(layer.beta[0]) : layer.beta[0];
    }
    parity_check_activations(p, seed, "y", y, wanted, 9, 0.0, 0.0);
    parity_check_values(p, seed, "mean", statistics[0], layer.x, 9, 0.0, 0.0);
    parity_end(p);
}

/* A deviation of 0.01 around 1000 is found to within 1e-4 of itself. */
static void small_variances_survive_large_means(bool is_bf16, uint64_t seed)
{
    static const struct layer_norm shapes[] = {{5, 256, 0.0F}, {3, 1031, 0.0F}, {2, 8200, 0.0F}};
    struct parity *p = parity_begin(is_bf16, seed);

    for (uint32_t i = 0; i < 6; i++) {
        double spread = is_bf16 ? 20.0 : 0.01;
        struct layer layer =
            i < 3 ? rows_create(p, shapes[i], 1000.0, spread) : group_create(p, i, 1000.0, spread);
        float *twin[2], *got[2], *y = image_room(p, layer.offset, layer.values);
        const float *affine[2] = {layer.gamma, layer.beta};
        const float *on_affine[2] = {layer.on_gamma, layer.on_beta};
        layer.group.epsilon = 0.0F;
        for (int k = 0; k < 2; k++) {
            twin[k] = parity_host(p, layer.statistics * 4);
            got[k] = parity_block(p, layer.statistics * 4);
        }
        layer_forward(p->host, &layer, layer.x, affine, parity_host(p, layer.values * 4), twin);
        layer_forward(p->device, &layer, layer.on_x, on_affine, y, got);
        parity_check_values(p, seed, "mean", got[0], twin[0], layer.statistics, 1e-7, 1e-7);
        parity_check_values(p, seed, "rstd", got[1], twin[1], layer.statistics, 1e-4, 1e-4);
        image_clear(p);
    }
    parity_end(p);
}

/* Weights, norms and both gradients are the twin's, dv beside dw or in its place. */
static void check_weights(struct parity *p, uint64_t seed, size_t rows, size_t columns)
{
    size_t n = rows * columns;
    float *v = parity_values(p, n, 0.3), *g = parameters(p, rows, 1.0);
    float *dw = parity_values(p, n, 1.0), *w = parity_host(p, n * 4),
          *norms = parity_host(p, rows * 4);
    float *on_v = parity_put_values(p, v, n), *on_g = parity_put_values(p, g, rows);
    float *on_dw = parity_put_values(p, dw, n), *on_w = parity_block(p, n * 4);
    float *on_norms = parity_block(p, rows * 4);
    struct weight_norm_backward pass = {
        rows, columns, v, g, norms, dw, parity_host(p, n * 4), parity_host(p, rows * 4)};
    struct weight_norm_backward on_pass = {rows,     columns, on_v,  on_g,
                                           on_norms, on_dw,   on_dw, parity_block(p, rows * 4)};

    if (between(p, 0, 1) == 0) on_pass.dv = parity_block(p, n * 4);
    image_check_host(p->host->ops->weight_norm_forward(p->host, rows, columns, v, g, w, norms));
    parity_ok(p, p->device->ops->weight_norm_forward(p->device, rows, columns, on_v, on_g, on_w,
                                                     on_norms));
    image_check_host(p->host->ops->weight_norm_backward(p->host, &pass));
    parity_ok(p, p->device->ops->weight_norm_backward(p->device, &on_pass));
    parity_check_values(p, seed, "w", on_w, w, n, 1e-6, 1e-6);
    parity_check_values(p, seed, "norms", on_norms, norms, rows, 1e-6, 1e-6);
    parity_check_values(p, seed, "dv", on_pass.dv, pass.dv, n, 2e-6, 2e-6);
    parity_check_values(p, seed, "dg", on_pass.dg, pass.dg, rows, 5e-6, 5e-6);
}

static void weights_equal_their_twins(bool is_bf16, uint64_t seed)
{
    static const size_t shapes[][2] = {{1, 2}, {10, 27}, {64, 576}, {7, 1000}, {3, 4609}};
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        check_weights(p, seed, shapes[i][0], shapes[i][1]);
    }
    parity_end(p);
}

PARITY_TEST(groups_equal_their_twins)
PARITY_TEST(rows_equal_their_twins)
PARITY_TEST(rows_are_added_up_on_the_way)
PARITY_TEST(a_row_of_one_is_its_beta)
PARITY_TEST(small_variances_survive_large_means)
PARITY_TEST(weights_equal_their_twins)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(groups_equal_their_twins),  PARITY_BOTH(rows_equal_their_twins),
    PARITY_BOTH(a_row_of_one_is_its_beta),  PARITY_BOTH(small_variances_survive_large_means),
    PARITY_BOTH(weights_equal_their_twins), PARITY_BOTH(rows_are_added_up_on_the_way),
};

PARITY_MAIN("group, layer and weight norm", tests)

/* Batch normalisation on the device against its twin: any layout, any slices, ghost batches. */
#include "tests/cuda/images.h"

/* A layer with all that its passes touch; sums, mean and rstd once for each ghost batch. */
struct layer {
    struct batch_norm norm;
    uint32_t images, ghost; /* images of a ghost batch, but for the last */
    size_t values, channels, each, offset;
    float *x, *gamma, *beta;          /* of the host */
    float *on_x, *on_gamma, *on_beta; /* of the device */
};

static uint32_t ghosts(const struct layer *layer)
{
    return (layer->images - 1) / layer->ghost + 1;
}

/* Images [from, from + count) of ghost batch g. */
static uint32_t ghost_images(const struct layer *layer, uint32_t g)
{
    uint32_t left = layer->images - g * layer->ghost;

    return left < layer->ghost ? left : layer->ghost;
}

static uint64_t ghost_values(const struct layer *layer, uint32_t g)
{
    struct image_shape shape = layer->norm.shape;

    return (uint64_t)ghost_images(layer, g) * shape.height * shape.width;
}

static float *parameters(struct parity *p, size_t n, double centre)
{
    float *values = parity_values(p, n, 0.5);

    for (size_t i = 0; i < n; i++) {
        values[i] += (float)centre;
    }
    return values;
}

static struct layer layer_create(struct parity *p, struct image_shape shape, double centre,
                                 double spread)
{
    struct layer layer = {.norm = {shape, 1e-5F, 0.1F, between(p, 0, 1) == 0}};

    /* Of two values per channel the gradient is nothing but rounding. */
    layer.images = between(p, 5, 8);
    layer.ghost = layer.images;
    layer.offset = random_offset(p);
    layer.channels = layer.norm.shape.channels;
    layer.each = image_values(layer.norm.shape);
    layer.values = layer.images * layer.each;
    layer.x = parity_values(p, layer.values, spread);
    for (size_t i = 0; i < layer.values; i++) {
        layer.x[i] += (float)centre;
        if (p->is_bf16) layer.x[i] = parity_to_bf16(layer.x[i]);
    }
    layer.gamma = parameters(p, layer.channels, 1.0);
    layer.beta = parameters(p, layer.channels, 0.0);
    layer.on_x = image_put(p, layer.offset, layer.x, layer.values);
    layer.on_gamma = parity_put_values(p, layer.gamma, layer.channels);
    layer.on_beta = parity_put_values(p, layer.beta, layer.channels);
    return layer;
}

/* What a forward pass leaves, on either side. */
struct forward {
    double *sums;
    float *mean, *rstd, *running_mean, *running_variance, *y;
};

static struct forward forward_create(struct parity *p, const struct layer *layer, bool on_device)
{
    size_t all = ghosts(layer) * layer->channels, bytes = 2 * all * sizeof(double);
    struct forward f;

    if (!on_device) {
        f = (struct forward){parity_host(p, bytes),
                             parity_host(p, all * 4),
                             parity_host(p, all * 4),
                             parity_host(p, layer->channels * 4),
                             parity_host(p, layer->channels * 4),
                             parity_host(p, layer->values * 4)};
        memset(f.sums, 0, bytes);
        memset(f.running_mean, 0, layer->channels * 4);
        memset(f.running_variance, 0, layer->channels * 4);
        return f;
    }
    f = (struct forward){parity_block(p, bytes),
                         parity_block(p, all * 4),
                         parity_block(p, all * 4),
                         parity_block(p, layer->channels * 4),
                         parity_block(p, layer->channels * 4),
                         image_room(p, layer->offset, layer->values)};
    parity_ok(p, p->device->ops->zero(p->device, f.sums, bytes));
    parity_ok(p, p->device->ops->zero(p->device, f.running_mean, layer->channels * 4));
    parity_ok(p, p->device->ops->zero(p->device, f.running_variance, layer->channels * 4));
    return f;
}

/* Collect in slices of at most `slice` images, close, apply: each ghost batch on its own. */
static void forward_run(struct backend *on, const struct layer *layer, const float *x,
                        const struct channel_affine *parameters, uint32_t slice, struct forward *f)
{
    const struct backend_ops *ops = on->ops;

    for (uint32_t g = 0; g < ghosts(layer); g++) {
        size_t first = (size_t)g * layer->ghost, at = g * layer->channels;
        uint32_t images = ghost_images(layer, g);
        struct batch_norm_close close = {ghost_values(layer, g), f->sums + 2 * at,
                                         f->mean + at,           f->rstd + at,
                                         f->running_mean,        f->running_variance};
        struct channel_affine affine = {f->mean + at, f->rstd + at, parameters->gamma,
                                        parameters->beta};
        for (uint32_t n = 0; n < images; n += slice) {
            const float *from = backend_at(on, x, (first + n) * layer->each);
            uint32_t count = images - n < slice ? images - n : slice;
            image_check_host(ops->batch_norm_collect(on, &layer->norm, count, from, close.sums));
        }
        image_check_host(ops->batch_norm_close(on, &layer->norm, &close));
        image_check_host(ops->batch_norm_apply(on, &layer->norm, images,
                                               backend_at(on, x, first * layer->each), &affine,
                                               backend_at(on, f->y, first * layer->each)));
    }
}

static struct forward device_forward(struct parity *p, const struct layer *layer, uint32_t slice)
{
    struct forward f = forward_create(p, layer, true);
    struct channel_affine parameters = {.gamma = layer->on_gamma, .beta = layer->on_beta};

    forward_run(p->device, layer, layer->on_x, &parameters, slice, &f);
    return f;
}

static void check_forward(struct parity *p, uint64_t seed, struct image_shape shape)
{
    struct layer layer = layer_create(p, shape, 0.5, 2.0);
    struct channel_affine parameters = {.gamma = layer.gamma, .beta = layer.beta};
    struct forward twin, got, again;
    size_t channels = layer.channels, all;

    layer.ghost = between(p, 2, layer.images); /* of one pixel there is no variance */
    all = ghosts(&layer) * channels;
    twin = forward_create(p, &layer, false);
    forward_run(p->host, &layer, layer.x, &parameters, layer.images, &twin);
    got = device_forward(p, &layer, between(p, 1, layer.images));
    parity_check_values(p, seed, "mean", got.mean, twin.mean, all, 1e-6, 1e-6);
    parity_check_values(p, seed, "rstd", got.rstd, twin.rstd, all, 1e-6, 1e-6);
    parity_check_values(p, seed, "running mean", got.running_mean, twin.running_mean, channels,
                        1e-6, 1e-6);
    parity_check_values(p, seed, "running variance", got.running_variance, twin.running_variance,
                        channels, 1e-6, 1e-6);
    parity_check_activations(p, seed, "y", got.y, twin.y, layer.values, 2e-6, 4e-3);

    got = device_forward(p, &layer, 2);
    again = device_forward(p, &layer, 2);
    image_check_bits(p, seed, got.sums, again.sums, 2 * all * sizeof(double));
    image_check_bits(p, seed, got.y, again.y, layer.values * p->device->value_bytes);
}

/* Statistics and results of every ghost batch are the twin's, whatever the slices. */
static void slices_and_ghost_batches_equal_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 12; i++) {
        check_forward(p, seed, i < ARRAY_COUNT(images_large) ? images_large[i] : random_image(p));
        image_clear(p);
    }
    parity_end(p);
}

/* --- the way back ------------------------------------------------------------------------------*/

enum target { TARGET_OWN, TARGET_IN_PLACE, TARGET_ADDS, TARGETS };

/* A pass over all images in slices; dy is masked, sums are zeroed first. */
static void backward_run(struct backend *on, const struct layer *layer, uint32_t slice,
                         const struct batch_norm_backward *pass)
{
    for (uint32_t step = 0; step < 2; step++) {
        for (uint32_t n = 0; n < layer->images; n += slice) {
            uint32_t count = layer->images - n < slice ? layer->images - n : slice;
            struct batch_norm_backward part = *pass;
            part.x = backend_at(on, pass->x, n * layer->each);
            part.y = backend_at(on, pass->y, n * layer->each);
            part.dy = backend_at(on, pass->dy, n * layer->each);
            part.dx = backend_at(on, pass->dx, n * layer->each);
            image_check_host(
                step == 0 ? on->ops->batch_norm_backward_collect(on, &layer->norm, count, &part)
                          : on->ops->batch_norm_backward_apply(on, &layer->norm, count, &part));
        }
    }
}

/* The device's pass with its own memory for what it writes. */
static struct batch_norm_backward device_backward(struct parity *p, const struct layer *layer,
                                                  const struct forward *f, const float *dy,
                                                  const float *dx, enum target target,
                                                  uint32_t slice)
{
    size_t bytes = 2 * layer->channels * sizeof(double);
    struct batch_norm_backward pass = {.x = layer->on_x,
                                       .y = f->y,
                                       .dy = image_put(p, layer->offset, dy, layer->values),
                                       .adds_to_dx = target == TARGET_ADDS,
                                       .mean = f->mean,
                                       .rstd = f->rstd,
                                       .gamma = layer->on_gamma,
                                       .sums = parity_block(p, bytes),
                                       .count = ghost_values(layer, 0)};

    pass.dx = target == TARGET_IN_PLACE ? pass.dy : image_put(p, layer->offset, dx, layer->values);
    parity_ok(p, p->device->ops->zero(p->device, pass.sums, bytes));
    backward_run(p->device, layer, slice, &pass);
    return pass;
}

static void check_parameters(struct parity *p, uint64_t seed, const struct layer *layer,
                             const double *host_sums, const double *sums)
{
    size_t n = layer->channels;
    float *dgamma = parameters(p, n, 0.0), *dbeta = parameters(p, n, 0.0);

    for (int is_first = 0; is_first < 2; is_first++) {
        float *on_dgamma = is_first ? parity_block(p, n * 4) : parity_put_values(p, dgamma, n);
        float *on_dbeta = is_first ? parity_block(p, n * 4) : parity_put_values(p, dbeta, n);
        parity_ok(p, p->device->ops->batch_norm_backward_close(p->device, &layer->norm, sums,
                                                               is_first, on_dgamma, on_dbeta));
        image_check_host(p->host->ops->batch_norm_backward_close(p->host, &layer->norm, host_sums,
                                                                 is_first, dgamma, dbeta));
        parity_check_values(p, seed, "dgamma", on_dgamma, dgamma, n, 5e-6, 5e-6);
        parity_check_values(p, seed, "dbeta", on_dbeta, dbeta, n, 5e-6, 5e-6);
    }
}

static void check_backward(struct parity *p, uint64_t seed, struct image_shape shape)
{
    struct layer layer = layer_create(p, shape, 0.5, 2.0);
    struct forward f = device_forward(p, &layer, layer.images);
    enum target target = (enum target)between(p, 0, TARGETS - 1);
    uint32_t slice = between(p, 1, layer.images);
    size_t n = layer.values, sums_bytes = 2 * layer.channels * sizeof(double);
    float *dy = parity_activations(p, n, 1.0), *dx = parity_activations(p, n, 1.0);
    float *masked = parity_copy(p, dy, n), *wanted = parity_copy(p, dx, n);
    struct batch_norm_backward got, again,
        twin = {
            .x = layer.x,
            .y = parity_get_activations(p, f.y, n),
            .dy = masked,
            .dx = wanted,
            .adds_to_dx = target == TARGET_ADDS,
            .mean = parity_get_values(p, f.mean, layer.channels),
            .rstd = parity_get_values(p, f.rstd, layer.channels),
            .gamma = layer.gamma,
            .sums = parity_host(p, sums_bytes),
            .count = ghost_values(&layer, 0),
        };

    memset(twin.sums, 0, sums_bytes);
    backward_run(p->host, &layer, layer.images, &twin);
    got = device_backward(p, &layer, &f, dy, dx, target, slice);
    again = device_backward(p, &layer, &f, dy, dx, target, slice);
    parity_check_activations(p, seed, "dx", got.dx, wanted, n, 5e-6, 4e-3);
    if (target != TARGET_IN_PLACE) {
        parity_check_activations(p, seed, "masked dy", got.dy, masked, n, 0.0, 0.0);
    }
    image_check_bits(p, seed, got.sums, again.sums, sums_bytes);
    image_check_bits(p, seed, got.dx, again.dx, n * p->device->value_bytes);
    check_parameters(p, seed, &layer, twin.sums, got.sums);
}

/* Gradients are the twin's, wherever they go, and what relu cut off has none. */
static void gradients_equal_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 12; i++) {
        check_backward(p, seed, i < ARRAY_COUNT(images_large) ? images_large[i] : random_image(p));
        image_clear(p);
    }
    parity_end(p);
}

/* --- numbers -----------------------------------------------------------------------------------*/

/* Variance of channel `c`, from its definition. */
static double variance_of(const struct layer *layer, uint32_t c, double *mean)
{
    struct image_shape shape = layer->norm.shape;
    size_t pixels = (size_t)shape.height * shape.width, n = layer->images * pixels;
    double squares = 0.0;

    *mean = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            size_t at = i / pixels * layer->each +
                        (c / shape.block * pixels + i % pixels) * shape.block + c % shape.block;
            double d = (double)layer->x[at] - *mean;
            if (pass == 0) squares += (double)layer->x[at] / (double)n;
            if (pass == 1) squares += d * d;
        }
        if (pass == 0) *mean = squares;
        if (pass == 0) squares = 0.0;
    }
    return squares / (double)n;
}

/* A deviation of 0.01 around 1000 is found to within 1e-4 of itself. */
static void small_variances_survive_large_means(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 8; i++) {
        struct layer layer =
            layer_create(p, i < ARRAY_COUNT(images_large) ? images_large[i] : random_image(p),
                         1000.0, is_bf16 ? 20.0 : 0.01);
        struct forward f;
        const float *mean, *rstd;
        layer.norm.epsilon = 0.0F;
        f = device_forward(p, &layer, between(p, 1, layer.images));
        mean = parity_get_values(p, f.mean, layer.channels);
        rstd = parity_get_values(p, f.rstd, layer.channels);
        for (uint32_t c = 0; c < layer.channels && ghost_values(&layer, 0) > 20; c++) {
            double centre, deviation = sqrt(variance_of(&layer, c, &centre));
            check_seed(seed, fabs((double)mean[c] - centre) < 1e-4);
            check_seed(seed, fabs((double)rstd[c] * deviation - 1.0) < 1e-4);
        }
        p->checks++;
        image_clear(p);
    }
    parity_end(p);
}

/* BatchNorm1d(1) of PyTorch after [1, 2, 3, 4]: running mean 0.25, running variance 1.06667, and
 * the biased 1.25 in rstd; one value alone has no unbiased variance. */
static void running_statistics_are_those_of_pytorch(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    struct batch_norm norm = {.shape = {1, 1, 1, 1}, .epsilon = 1e-5F, .momentum = 0.1F};
    const float x[] = {1.0F, 2.0F, 3.0F, 4.0F}, running[] = {0.0F, 1.0F};
    const double zeros[2] = {0.0, 0.0}, lone[2] = {3.0, 9.0};
    double *sums = parity_put(p, zeros, sizeof(zeros));
    float *out = parity_block(p, 2 * 4), *on_running = parity_put_values(p, running, 2);
    struct batch_norm_close close = {.count = 4, .sums = sums, .mean = out, .rstd = out + 1};
    const float *got;

    parity_ok(p, ops->batch_norm_collect(p->device, &norm, 4, image_put(p, 0, x, 4), sums));
    parity_ok(p, ops->batch_norm_close(p->device, &norm, &close));
    close.running_mean = on_running;
    close.running_variance = on_running + 1;
    parity_ok(p, ops->batch_norm_close(p->device, &norm, &close));
    parity_compare(p, seed, "mean, rstd", parity_get_values(p, out, 2),
                   (const float[]){2.5F, 0.8944236F}, 2, 1e-6);
    parity_compare(p, seed, "running", parity_get_values(p, on_running, 2),
                   (const float[]){0.25F, 1.0666667F}, 2, 1e-6);
    parity_ok(p, ops->batch_norm_rstd(p->device, &norm, on_running + 1, out));
    got = parity_get_values(p, out, 1);
    check_seed(seed, fabs((double)got[0] - 1.0 / sqrt(1.0666667 + 1e-5)) < 1e-6);
    parity_ok(p, ops->upload(p->device, sums, lone, sizeof(lone)));
    close.count = 1;
    parity_ok(p, ops->batch_norm_close(p->device, &norm, &close));
    check_seed(seed, isfinite(parity_get_values(p, on_running, 2)[1]));
    parity_end(p);
}

/* A NaN survives relu, and an infinite value is seen in the statistics. */
static void what_is_no_number_stays_none(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 6; i++) {
        struct layer layer = layer_create(p, random_image(p), 0.0, 1.0);
        size_t at = (size_t)rng_below(&p->rng, layer.values);
        struct forward f;
        bool is_found = false;
        layer.norm.with_relu = true;
        f = device_forward(p, &layer, layer.images);
        struct channel_affine affine = {f.mean, f.rstd, layer.on_gamma, layer.on_beta};
        layer.x[at] = i % 2 == 0 ? NAN : INFINITY;
        layer.on_x = image_put(p, layer.offset, layer.x, layer.values);
        parity_ok(p, p->device->ops->batch_norm_apply(p->device, &layer.norm, layer.images,
                                                      layer.on_x, &affine, layer.on_x));
        if (i % 2 == 0) {
            check_seed(seed, isnan(parity_get_activations(p, layer.on_x, layer.values)[at]));
        }
        layer.on_x = image_put(p, layer.offset, layer.x, layer.values);
        f = device_forward(p, &layer, layer.images);
        const float *mean = parity_get_values(p, f.mean, layer.channels);
        for (size_t c = 0; c < layer.channels; c++) {
            if (!isfinite(mean[c])) is_found = true;
        }
        check_seed(seed, is_found);
        p->checks++;
        image_clear(p);
    }
    parity_end(p);
}

PARITY_TEST(slices_and_ghost_batches_equal_their_twins)
PARITY_TEST(gradients_equal_their_twins)
PARITY_TEST(small_variances_survive_large_means)
PARITY_TEST(running_statistics_are_those_of_pytorch)
PARITY_TEST(what_is_no_number_stays_none)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(slices_and_ghost_batches_equal_their_twins),
    PARITY_BOTH(gradients_equal_their_twins),
    PARITY_BOTH(small_variances_survive_large_means),
    PARITY_BOTH(running_statistics_are_those_of_pytorch),
    PARITY_BOTH(what_is_no_number_stays_none),
};

PARITY_MAIN("batch norm", tests)

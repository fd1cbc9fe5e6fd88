/*
 * 3x3 convolutions of stride 1 by Winograd's algorithm (winograd.h) in float32. oneDNN 2.x has that
 * for AVX-512 only, and takes 1.2 to 1.5 times as long there. A call goes through blocks of tiles
 * small enough that transformed inputs and outputs stay in second-level cache. The gradient of the
 * inputs is the same convolution of the output's gradient with filters turned by half a turn.
 * Filters are transformed once a training step, in prepare(). Every sum is taken in an order that
 * neither blocks nor threads change.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/image/winograd.h"
#include "kernels/cpu/split.h"

#if !defined(__x86_64__)

enum rc conv_winograd_create(struct cpu_backend *backend, const struct conv_options *options,
                             struct conv **conv)
{
    (void)backend;
    (void)options;
    (void)conv;
    return RC_UNSUPPORTED;
}

#else

/* Tiles of a block: whole tiles of the product, and so many that the transformed filters, which
 * each block reads, are not what takes the time. The gradient of the weights adds to them in each.
 */
enum { BLOCK_TILES = 24, WEIGHTS_BLOCK_TILES = 48 };

enum { TILES_MIN = 16, FILTERS_MAX = 1 << 20 /* transformed ones take 144 MiB each way */ };

struct conv_winograd {
    struct conv base;
    struct cpu_backend *backend;
    struct conv_options options;
    const struct winograd_ops *ops;
    struct winograd_filters filters;
    size_t plane;            /* of transformed filters */
    float *forward, *turned; /* transformed filters; turned: NULL without that pass */
    const float *bias;       /* borrowed from prepare() */
};

/* One pass over the tiles of a grid: what is read, multiplied and written. */
struct sweep {
    const struct conv_winograd *conv;
    struct winograd_grid in, out;
    size_t ins, outs, tiles;
    const float *filters, *bias;
    bool with_relu;
    const float *x;
    float *y;
};

/* The gradient of the weights, a block at a time. */
struct gathering {
    const struct conv_winograd *conv;
    struct winograd_grid x_grid, dy_grid;
    const float *x, *dy;
    struct winograd_planes inputs, gradients; /* of the block */
    float *sums;                              /* planes [ins][outs] */
    size_t first, count;                      /* tiles of the block */
    bool is_first;
    float *dweight, *dbias;
};

static struct conv_winograd *winograd_of(struct conv *conv)
{
    return (struct conv_winograd *)conv;
}

static size_t divided_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Tiles of images `to` with what they read of `from`, `padding` further up and left. */
static struct winograd_grid grid_of(struct image_shape shape, struct image_shape tiled, int64_t top,
                                    int64_t left)
{
    return (struct winograd_grid){
        .shape = shape,
        .top = top,
        .left = left,
        .down = divided_up(tiled.height, WINOGRAD_OUTS),
        .across = divided_up(tiled.width, WINOGRAD_OUTS),
    };
}

static size_t tiles_of(struct image_shape shape, uint32_t images)
{
    return images * divided_up(shape.height, WINOGRAD_OUTS) *
           divided_up(shape.width, WINOGRAD_OUTS);
}

static size_t planes_values(size_t tiles, size_t channels)
{
    return WINOGRAD_POINTS * winograd_plane_stride(tiles, channels);
}

static struct winograd_planes planes_at(float *values, size_t tiles, size_t channels)
{
    return (struct winograd_planes){values, winograd_plane_stride(tiles, channels), channels};
}

/* Threads share the blocks of the gradient of the weights. */
static size_t weights_block(const struct conv_winograd *conv)
{
    return WEIGHTS_BLOCK_TILES * (size_t)conv->backend->base.threads;
}

/* --- forward, and the gradient of the inputs ---------------------------------------------------*/

/* Scratch memory of a part. */
static size_t sweep_values(const struct conv_winograd *conv)
{
    return planes_values(BLOCK_TILES, conv->filters.ins) +
           planes_values(BLOCK_TILES, conv->filters.outs);
}

static void sweep_block(const struct sweep *s, size_t first, size_t count, float *scratch)
{
    struct winograd_planes in = planes_at(scratch, BLOCK_TILES, s->ins);
    struct winograd_planes out =
        planes_at(scratch + planes_values(BLOCK_TILES, s->ins), BLOCK_TILES, s->outs);
    struct winograd_product product = {
        .rows = count,
        .inner = s->ins,
        .columns = s->outs,
        .a_stride = s->ins,
        .b_stride = WINOGRAD_COLUMNS,
        .b_panel = s->ins * WINOGRAD_COLUMNS,
        .c_stride = s->outs,
    };

    s->conv->ops->inputs(&s->in, s->x, first, count, &in);
    for (size_t point = 0; point < WINOGRAD_POINTS; point++) {
        product.a = in.values + point * in.stride;
        product.b = s->filters + point * s->conv->plane;
        product.c = out.values + point * out.stride;
        s->conv->ops->multiply(&product);
    }
    s->conv->ops->outputs(&s->out, &out, first, count, s->bias, s->with_relu, s->y);
}

/* Blocks [from, to). */
static void sweep_run(void *data, size_t part, size_t from, size_t to)
{
    const struct sweep *s = data;
    float *scratch = s->conv->backend->scratch + part * sweep_values(s->conv);

    for (size_t i = from; i < to; i++) {
        size_t first = i * BLOCK_TILES, left = s->tiles - first;
        sweep_block(s, first, left < BLOCK_TILES ? left : BLOCK_TILES, scratch);
    }
}

static enum rc sweep_all(struct sweep *s)
{
    cpu_split(&s->conv->backend->base, divided_up(s->tiles, BLOCK_TILES), 1, sweep_run, s);
    return RC_OK;
}

static enum rc winograd_forward(struct conv *conv, const void *x, void *y)
{
    struct conv_winograd *self = winograd_of(conv);
    const struct conv_options *o = &self->options;
    struct sweep s = {
        .conv = self,
        .in = grid_of(o->in, conv->out, -(int64_t)o->padding_height, -(int64_t)o->padding_width),
        .out = grid_of(conv->out, conv->out, 0, 0),
        .ins = o->in.channels,
        .outs = o->out_channels,
        .tiles = tiles_of(conv->out, o->images),
        .filters = self->forward,
        .bias = o->with_bias ? self->bias : NULL,
        .with_relu = o->with_relu,
        .x = x,
        .y = y,
    };

    return sweep_all(&s);
}

static enum rc winograd_backward_data(struct conv *conv, const void *dy, void *dx)
{
    struct conv_winograd *self = winograd_of(conv);
    const struct conv_options *o = &self->options;
    const int64_t most = WINOGRAD_TAPS - 1;
    struct sweep s = {
        .conv = self,
        .in = grid_of(conv->out, o->in, o->padding_height - most, o->padding_width - most),
        .out = grid_of(o->in, o->in, 0, 0),
        .ins = o->out_channels,
        .outs = o->in.channels,
        .tiles = tiles_of(o->in, o->images),
        .filters = self->turned,
        .x = dy,
        .y = dx,
    };

    CHECK(self->turned != NULL);
    return sweep_all(&s);
}

/* --- the gradient of the weights ---------------------------------------------------------------*/

/* Tiles [from, to) of the block. */
static void transform_run(void *data, size_t part, size_t from, size_t to)
{
    const struct gathering *g = data;
    struct winograd_planes inputs = g->inputs, gradients = g->gradients;

    (void)part;
    inputs.values += from * inputs.channels;
    gradients.values += from * gradients.channels;
    g->conv->ops->inputs(&g->x_grid, g->x, g->first + from, to - from, &inputs);
    g->conv->ops->gradients(&g->dy_grid, g->dy, g->first + from, to - from, &gradients);
}

/* Planes [from, to) of the sums. */
static void multiply_run(void *data, size_t part, size_t from, size_t to)
{
    const struct gathering *g = data;
    const struct winograd_filters *f = &g->conv->filters;
    struct winograd_product product = {
        .rows = f->ins,
        .inner = g->count,
        .columns = f->outs,
        .a_stride = f->ins,
        .is_a_transposed = true,
        .b_stride = f->outs,
        .b_panel = WINOGRAD_COLUMNS,
        .c_stride = f->outs,
        .adds = g->first > 0,
    };

    (void)part;
    for (size_t point = from; point < to; point++) {
        product.a = g->inputs.values + point * g->inputs.stride;
        product.b = g->gradients.values + point * g->gradients.stride;
        product.c = g->sums + point * g->conv->plane;
        g->conv->ops->multiply(&product);
    }
}

/* Inputs [from, to) of the filters. */
static void filters_run(void *data, size_t part, size_t from, size_t to)
{
    const struct gathering *g = data;

    (void)part;
    g->conv->ops->filters_backward(&g->conv->filters, g->sums, from, to, !g->is_first, g->dweight);
}

/* Channels in groups [from, to). */
static void bias_run(void *data, size_t part, size_t from, size_t to)
{
    const struct gathering *g = data;

    (void)part;
    g->conv->ops->bias(&g->dy_grid, g->conv->options.images, g->dy, from * g->conv->ops->lanes,
                       to * g->conv->ops->lanes, !g->is_first, g->dbias);
}

static enum rc winograd_backward_weights(struct conv *conv, const void *x, const void *dy,
                                         bool is_first, float *dweight, float *dbias)
{
    struct conv_winograd *self = winograd_of(conv);
    struct backend *backend = &self->backend->base;
    const struct conv_options *o = &self->options;
    size_t tiles = tiles_of(conv->out, o->images), block = weights_block(self);
    struct gathering g = {
        .conv = self,
        .x_grid =
            grid_of(o->in, conv->out, -(int64_t)o->padding_height, -(int64_t)o->padding_width),
        .dy_grid = grid_of(conv->out, conv->out, 0, 0),
        .x = x,
        .dy = dy,
        .inputs = planes_at(self->backend->scratch, block, o->in.channels),
        .is_first = is_first,
        .dweight = dweight,
        .dbias = dbias,
    };

    CHECK(o->with_gradients);
    g.gradients =
        planes_at(g.inputs.values + planes_values(block, o->in.channels), block, o->out_channels);
    g.sums = g.gradients.values + planes_values(block, o->out_channels);
    for (g.first = 0; g.first < tiles; g.first += block) {
        g.count = tiles - g.first < block ? tiles - g.first : block;
        cpu_split(backend, g.count, 1, transform_run, &g);
        cpu_split(backend, WINOGRAD_POINTS, 1, multiply_run, &g);
    }
    cpu_split(backend, o->in.channels, 1, filters_run, &g);
    if (dbias != NULL) cpu_split(backend, o->out_channels / self->ops->lanes, 1, bias_run, &g);
    return RC_OK;
}

/* --- making one --------------------------------------------------------------------------------*/

static enum rc winograd_prepare(struct conv *conv, const float *weight, const float *bias)
{
    struct conv_winograd *self = winograd_of(conv);

    self->bias = bias;
    self->ops->filters_forward(&self->filters, false, weight, self->forward);
    if (self->turned != NULL) {
        self->ops->filters_forward(&self->filters, true, weight, self->turned);
    }
    return RC_OK;
}

static void winograd_destroy(struct conv *conv)
{
    struct conv_winograd *self = winograd_of(conv);

    mem_free(self->forward);
    mem_free(self->turned);
    mem_free(self);
}

static const struct conv_ops winograd_ops = {
    .name = "winograd",
    .destroy = winograd_destroy,
    .prepare = winograd_prepare,
    .forward = winograd_forward,
    .backward_data = winograd_backward_data,
    .backward_weights = winograd_backward_weights,
};

static bool is_supported(const struct conv_options *o, size_t lanes)
{
    return o->kernel_height == WINOGRAD_TAPS && o->kernel_width == WINOGRAD_TAPS &&
           o->padding_height < WINOGRAD_TAPS && o->padding_width < WINOGRAD_TAPS &&
           o->stride == 1 && o->dilation == 1 && o->groups == 1 && !o->is_local &&
           o->in.block % lanes == 0 && o->in.channels % WINOGRAD_COLUMNS == 0 &&
           o->out_channels % WINOGRAD_COLUMNS == 0 &&
           (uint64_t)o->in.channels * o->out_channels <= FILTERS_MAX;
}

/* Transforming the filters is paid once a step or slice, and multiplying what hangs over the images
 * at their borders is in vain: below these bounds oneDNN's direct convolution was faster. */
static bool pays(const struct conv_options *o)
{
    struct image_shape out = conv_out_shape(o);
    size_t tiles = tiles_of(out, o->images);
    size_t pixels = (size_t)o->images * out.height * out.width;

    return tiles >= TILES_MIN && 2 * pixels >= tiles * WINOGRAD_OUTS * WINOGRAD_OUTS;
}

/* Scratch memory of all passes. */
static enum rc reserve(struct conv_winograd *c)
{
    size_t ins = c->filters.ins, outs = c->filters.outs, block = weights_block(c);
    size_t most = sweep_values(c) * c->backend->base.threads;
    size_t weights =
        planes_values(block, ins) + planes_values(block, outs) + WINOGRAD_POINTS * c->plane;

    if (c->options.with_gradients && weights > most) most = weights;
    return cpu_scratch_reserve(c->backend, most * sizeof(float));
}

static enum rc filters_create(struct conv_winograd *c)
{
    size_t bytes = WINOGRAD_POINTS * c->plane * sizeof(float);

    c->forward = mem_aligned(bytes);
    if (c->forward == NULL) return RC_NOMEM;
    if (!c->options.with_gradients || !c->options.with_input_gradient) return RC_OK;
    c->turned = mem_aligned(bytes);
    return c->turned != NULL ? RC_OK : RC_NOMEM;
}

enum rc conv_winograd_create(struct cpu_backend *backend, const struct conv_options *options,
                             struct conv **conv)
{
    const struct winograd_ops *ops = cpu_has(CPU_AVX512) ? &winograd_avx512 : &winograd_avx2;
    struct conv_winograd *c;
    enum rc rc;

    if (!cpu_has(CPU_AVX2) || !is_supported(options, ops->lanes) || !pays(options)) {
        return RC_UNSUPPORTED;
    }
    c = mem_alloc(sizeof(*c));
    if (c == NULL) return RC_NOMEM;
    c->backend = backend;
    c->options = *options;
    c->ops = ops;
    c->base.ops = &winograd_ops;
    c->base.out = conv_out_shape(options);
    c->base.out.block = (uint32_t)ops->lanes;
    c->filters = (struct winograd_filters){options->in.channels, options->out_channels};
    c->plane = winograd_plane_stride(c->filters.ins, c->filters.outs);
    rc = filters_create(c);
    if (rc == RC_OK) rc = reserve(c);
    if (rc != RC_OK) {
        winograd_destroy(&c->base);
        return rc;
    }
    *conv = &c->base;
    return RC_OK;
}

#endif

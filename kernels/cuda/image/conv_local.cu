/*
 * Convolutions by kernels of our own: locally connected layers (LeCun 1989; weights of their own at
 * each output pixel), and whatever shape cuDNN has nothing for. Outputs are plain; inputs may have
 * any block.
 *
 * All passes are products of matrices whose values are gathered where they lie (implicit matrix
 * multiplication; Chetlur et al. 2014, arXiv:1410.0759, section 3), one product for each pixel of a
 * local layer or each group of another:
 *
 *              products       rows                   columns        inner
 *     forward  output pixel   images                 out channels   window values
 *              group          images, output pixels
 *     dx       input pixel    images                 in channels    out channels, taps
 *              group          images, input pixels
 *     dW       output pixel   out channels           window values  images
 *              group                                                images, output pixels
 *
 * A block of threads makes a tile of a product, reading SIDE inner values at a time into shared
 * memory; sums are float32 for RUN of them, then float64. Nothing here is split over blocks, so
 * equal calls give equal bits.
 */
#include "kernels/cuda/image/image.cuh"

extern "C" {
#include "base/mem.h"
}

#include <stdio.h>

enum { SIDE = 32, LINES = THREADS / SIDE, HALF = SIDE / 2, RUN = 64 };

/* The numbers of a convolution. "each": of one group. */
struct frame {
    uint32_t images, in_channels, in_height, in_width, block, out_channels, out_height, out_width;
    uint32_t in_each, out_each, taps, in_pixels, out_pixels;
    int32_t padding_height, padding_width, dilation;
    bool is_local;
    struct divisor by_stride, by_taps, by_kernel_width, by_in_pixels, by_in_width, by_out_pixels,
        by_out_width, by_block;
};

struct spot {
    uint32_t image, pixel;
    int32_t row, column;
};

/* Row `at` of a product whose rows are images at a pixel, or images and all their pixels. */
__device__ static inline struct spot spot_at(uint32_t product, uint32_t at, bool is_local,
                                             struct divisor by_pixels, struct divisor by_width)
{
    struct spot spot = {at, product, 0, 0};
    uint32_t row;

    if (!is_local) spot.pixel = divide(&spot.image, by_pixels);
    row = spot.pixel;
    spot.column = static_cast<int32_t>(divide(&row, by_width));
    spot.row = static_cast<int32_t>(row);
    return spot;
}

__device__ static inline struct spot output_at(const struct frame &f, uint32_t product, uint32_t at)
{
    return spot_at(product, at, f.is_local, f.by_out_pixels, f.by_out_width);
}

__device__ static inline struct spot input_at(const struct frame &f, uint32_t product, uint32_t at)
{
    return spot_at(product, at, f.is_local, f.by_in_pixels, f.by_in_width);
}

/* A channel of a group and how far from the window's corner. */
struct tap {
    uint32_t channel, index;
    int32_t down, right;
};

__device__ static inline struct tap tap_at(const struct frame &f, uint32_t at)
{
    struct tap tap = {at, 0, 0, 0};
    uint32_t row;

    tap.index = divide(&tap.channel, f.by_taps);
    row = tap.index;
    tap.right = static_cast<int32_t>(divide(&row, f.by_kernel_width)) * f.dilation;
    tap.down = static_cast<int32_t>(row) * f.dilation;
    return tap;
}

__device__ static inline uint32_t group_of(const struct frame &f, uint32_t product)
{
    return f.is_local ? 0 : product;
}

/* The filter of output channel `o` of a product's group at an output pixel. */
__device__ static inline size_t filter_at(const struct frame &f, uint32_t product, uint32_t pixel,
                                          uint32_t o)
{
    size_t filter = f.is_local ? pixel * static_cast<size_t>(f.out_channels) + o
                               : product * static_cast<size_t>(f.out_each) + o;

    return filter * f.in_each * f.taps;
}

__device__ static inline size_t input_index(const struct frame &f, uint32_t image, uint32_t channel,
                                            int32_t row, int32_t column)
{
    uint32_t inside = divide(&channel, f.by_block);
    uint32_t pixel = static_cast<uint32_t>(row) * f.in_width + static_cast<uint32_t>(column);

    return image * static_cast<size_t>(f.in_pixels) * f.in_channels +
           (channel * static_cast<size_t>(f.in_pixels) + pixel) * f.block + inside;
}

__device__ static inline size_t output_index(const struct frame &f, uint32_t product,
                                             uint32_t image, uint32_t o, uint32_t pixel)
{
    uint32_t channel = group_of(f, product) * f.out_each + o;

    return (image * static_cast<size_t>(f.out_channels) + channel) * f.out_pixels + pixel;
}

/* The input under a tap of the window of an output pixel; 0 in the padding. */
template <typename T>
__device__ static inline float window_value(const struct frame &f, const T *x, uint32_t product,
                                            const struct spot &output, const struct tap &tap)
{
    int32_t stride = static_cast<int32_t>(f.by_stride.by);
    int32_t row = output.row * stride + tap.down - f.padding_height;
    int32_t column = output.column * stride + tap.right - f.padding_width;
    uint32_t channel = group_of(f, product) * f.in_each + tap.channel;

    if (static_cast<uint32_t>(row) >= f.in_height) return 0.0F;
    if (static_cast<uint32_t>(column) >= f.in_width) return 0.0F;
    return load(x + input_index(f, output.image, channel, row, column));
}

/* The output pixel whose window has an input pixel under a tap; false if there is none. */
__device__ static inline bool output_over(const struct frame &f, const struct spot &input,
                                          const struct tap &tap, uint32_t *pixel)
{
    int32_t down = input.row + f.padding_height - tap.down;
    int32_t right = input.column + f.padding_width - tap.right;
    uint32_t row = static_cast<uint32_t>(down), column = static_cast<uint32_t>(right);

    if (down < 0 || right < 0) return false;
    if (divide(&row, f.by_stride) != 0 || divide(&column, f.by_stride) != 0) return false;
    *pixel = row * f.out_width + column;
    return row < f.out_height && column < f.out_width;
}

/* --- what the products are of ------------------------------------------------------------------*/

template <typename T> struct forward_product {
    struct frame f;
    const T *x;
    const float *weight, *bias;
    bool with_relu;
    T *y;

    typedef spot row_type;
    typedef size_t column_type;
    typedef tap inner_type;

    __device__ row_type row_at(uint32_t product, uint32_t row) const
    {
        return output_at(f, product, row);
    }

    __device__ column_type column_at(uint32_t product, uint32_t column) const
    {
        return filter_at(f, product, product, column);
    }

    __device__ inner_type inner_at(uint32_t, uint32_t k) const
    {
        return tap_at(f, k);
    }

    __device__ float left(uint32_t product, const row_type &row, const inner_type &k) const
    {
        return window_value(f, x, product, row, k);
    }

    __device__ float right(uint32_t, const inner_type &k, const column_type &filter) const
    {
        return weight[filter + k.channel * f.taps + k.index];
    }

    __device__ void put(uint32_t product, uint32_t row, uint32_t column, double sum) const
    {
        struct spot to = output_at(f, product, row);
        size_t at = f.is_local ? to.pixel * static_cast<size_t>(f.out_channels) + column
                               : product * f.out_each + column;

        if (bias != NULL) sum += static_cast<double>(bias[at]);
        if (with_relu && sum < 0.0) sum = 0.0;
        store(y + output_index(f, product, to.image, column, to.pixel), static_cast<float>(sum));
    }
};

template <typename T> struct data_product {
    struct frame f;
    const T *dy;
    const float *weight;
    T *dx;

    typedef spot row_type;
    typedef uint32_t column_type;
    typedef tap inner_type; /* whose channel is one of the output */

    __device__ row_type row_at(uint32_t product, uint32_t row) const
    {
        return input_at(f, product, row);
    }

    __device__ column_type column_at(uint32_t, uint32_t column) const
    {
        return column;
    }

    __device__ inner_type inner_at(uint32_t, uint32_t k) const
    {
        return tap_at(f, k);
    }

    __device__ float left(uint32_t product, const row_type &row, const inner_type &k) const
    {
        uint32_t pixel;

        if (!output_over(f, row, k, &pixel)) return 0.0F;
        return load(dy + output_index(f, product, row.image, k.channel, pixel));
    }

    /* Of a local layer, the weights of the output pixel that the tap leads to. */
    __device__ float right(uint32_t product, const inner_type &k, const column_type &column) const
    {
        uint32_t pixel = 0;

        if (f.is_local && !output_over(f, input_at(f, product, 0), k, &pixel)) return 0.0F;
        return weight[filter_at(f, product, pixel, k.channel) + column * f.taps + k.index];
    }

    __device__ void put(uint32_t product, uint32_t row, uint32_t column, double sum) const
    {
        struct spot to = input_at(f, product, row);
        uint32_t channel = group_of(f, product) * f.in_each + column;

        store(dx + input_index(f, to.image, channel, to.row, to.column), static_cast<float>(sum));
    }
};

template <typename T> struct weight_product {
    struct frame f;
    const T *x, *dy;
    bool adds;
    float *dweight;

    typedef uint32_t row_type;
    typedef tap column_type;
    typedef spot inner_type;

    __device__ row_type row_at(uint32_t, uint32_t row) const
    {
        return row;
    }

    __device__ column_type column_at(uint32_t, uint32_t column) const
    {
        return tap_at(f, column);
    }

    __device__ inner_type inner_at(uint32_t product, uint32_t k) const
    {
        return output_at(f, product, k);
    }

    __device__ float left(uint32_t product, const row_type &row, const inner_type &k) const
    {
        return load(dy + output_index(f, product, k.image, row, k.pixel));
    }

    __device__ float right(uint32_t product, const inner_type &k, const column_type &column) const
    {
        return window_value(f, x, product, k, column);
    }

    __device__ void put(uint32_t product, uint32_t row, uint32_t column, double sum) const
    {
        float *to = dweight + filter_at(f, product, product, row) + column;

        *to = static_cast<float>(adds ? static_cast<double>(*to) + sum : sum);
    }
};

/* --- the product -------------------------------------------------------------------------------*/

struct extent {
    uint32_t products, rows, columns, inner;
};

/* One tile, from shared memory that nobody reads any more. Thread (t / HALF, t % HALF) makes four
 * values of it. */
template <typename P>
__device__ static void make_tile(const P &p, const struct extent &e, uint32_t product,
                                 uint32_t first_row, uint32_t first_column, float (*left)[SIDE + 1],
                                 float (*right)[SIDE + 1])
{
    uint32_t lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    uint32_t down = threadIdx.x / HALF, across = threadIdx.x % HALF;
    typename P::row_type rows[SIDE / LINES];
    typename P::column_type columns[SIDE / LINES];
    float runs[4] = {0.0F};
    double sums[4] = {0.0};

    for (uint32_t i = 0; i < SIDE / LINES; i++) { /* those beyond the edge are not asked for */
        rows[i] = p.row_at(product, min(first_row + line + i * LINES, e.rows - 1));
        columns[i] = p.column_at(product, min(first_column + line + i * LINES, e.columns - 1));
    }
    for (uint32_t begin = 0; begin < e.inner; begin += SIDE) {
        bool is_there = begin + lane < e.inner;
        typename P::inner_type k = p.inner_at(product, min(begin + lane, e.inner - 1));

        for (uint32_t i = 0; i < SIDE / LINES; i++) {
            uint32_t at = line + i * LINES;
            bool has_row = is_there && first_row + at < e.rows;
            bool has_column = is_there && first_column + at < e.columns;

            left[at][lane] = has_row ? p.left(product, rows[i], k) : 0.0F;
            right[at][lane] = has_column ? p.right(product, k, columns[i]) : 0.0F;
        }
        __syncthreads();
        for (uint32_t i = 0; i < SIDE; i++) {
            runs[0] += left[down][i] * right[across][i];
            runs[1] += left[down][i] * right[across + HALF][i];
            runs[2] += left[down + HALF][i] * right[across][i];
            runs[3] += left[down + HALF][i] * right[across + HALF][i];
        }
        if ((begin + SIDE) % RUN == 0 || begin + SIDE >= e.inner) {
            for (int i = 0; i < 4; i++) {
                sums[i] += static_cast<double>(runs[i]);
                runs[i] = 0.0F;
            }
        }
        __syncthreads();
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t row = first_row + down + i / 2 * HALF;
        uint32_t column = first_column + across + i % 2 * HALF;
        if (row < e.rows && column < e.columns) p.put(product, row, column, sums[i]);
    }
}

template <typename P>
__global__ void multiply_tiles(P p, struct extent e, uint32_t row_tiles, uint32_t column_tiles)
{
    __shared__ float left[SIDE][SIDE + 1], right[SIDE][SIDE + 1];
    size_t tiles = static_cast<size_t>(row_tiles) * column_tiles;

    for (size_t t = blockIdx.x; t < tiles * e.products; t += gridDim.x) {
        uint32_t product = static_cast<uint32_t>(t / tiles);
        uint32_t tile = static_cast<uint32_t>(t % tiles);

        make_tile(p, e, product, tile / column_tiles * SIDE, tile % column_tiles * SIDE, left,
                  right);
    }
}

template <typename P>
static enum rc multiply(struct cuda_backend *cuda, const P &p, const struct extent &e)
{
    uint32_t row_tiles = (e.rows + SIDE - 1) / SIDE, column_tiles = (e.columns + SIDE - 1) / SIDE;
    size_t tiles = static_cast<size_t>(row_tiles) * column_tiles * e.products;
    unsigned blocks = static_cast<unsigned>(tiles < INT32_MAX ? tiles : INT32_MAX);

    return CUDA_CHECK(cuda, launch(multiply_tiles<P>, blocks, THREADS, 0, cuda->stream, p, e,
                                   row_tiles, column_tiles));
}

/* dbias[pixel][channel] of a local layer: over the images. */
template <typename T>
__global__ void add_images(const T *dy, uint32_t images, uint32_t channels, uint32_t pixels,
                           bool adds, float *dbias)
{
    size_t values = static_cast<size_t>(channels) * pixels;

    GRID_STRIDE(i, values)
    {
        float *to = dbias + i % pixels * channels + i / pixels;
        double sum = adds ? static_cast<double>(*to) : 0.0;

        for (uint32_t n = 0; n < images; n++) {
            sum += static_cast<double>(load(dy + n * values + i));
        }
        *to = static_cast<float>(sum);
    }
}

/* --- the layer ---------------------------------------------------------------------------------*/

struct conv_local {
    struct conv base;
    struct cuda_backend *cuda;
    struct conv_options options;
    struct frame frame;
    const float *weight, *bias; /* borrowed from prepare() */
};

static struct conv_local *local_of(struct conv *conv)
{
    return reinterpret_cast<struct conv_local *>(conv);
}

static void local_destroy(struct conv *conv)
{
    mem_free(conv);
}

static enum rc local_prepare(struct conv *conv, const float *weight, const float *bias)
{
    CHECK((bias != NULL) == local_of(conv)->options.with_bias);
    local_of(conv)->weight = weight;
    local_of(conv)->bias = bias;
    return RC_OK;
}

/* Rows of a product: images at one pixel, or at all `pixels`. */
static uint32_t rows_of(const struct frame &f, uint32_t pixels)
{
    return f.is_local ? f.images : f.images * pixels;
}

static uint32_t products_of(const struct frame &f, uint32_t pixels)
{
    return f.is_local ? pixels : f.in_channels / f.in_each;
}

template <typename T> static enum rc forward(const struct conv_local *c, const T *x, T *y)
{
    const struct frame &f = c->frame;
    forward_product<T> p = {f, x, c->weight, c->bias, c->options.with_relu, y};

    return multiply(
        c->cuda, p,
        {products_of(f, f.out_pixels), rows_of(f, f.out_pixels), f.out_each, f.in_each * f.taps});
}

static enum rc local_forward(struct conv *conv, const void *x, void *y)
{
    const struct conv_local *c = local_of(conv);
    enum rc rc;

    WITH_ACTIVATIONS(c->cuda, rc = forward(c, as<T>(x), as<T>(y)));
    return rc;
}

template <typename T> static enum rc backward_data(const struct conv_local *c, const T *dy, T *dx)
{
    const struct frame &f = c->frame;
    data_product<T> p = {f, dy, c->weight, dx};

    return multiply(
        c->cuda, p,
        {products_of(f, f.in_pixels), rows_of(f, f.in_pixels), f.in_each, f.out_each * f.taps});
}

static enum rc local_backward_data(struct conv *conv, const void *dy, void *dx)
{
    const struct conv_local *c = local_of(conv);
    enum rc rc;

    WITH_ACTIVATIONS(c->cuda, rc = backward_data(c, as<T>(dy), as<T>(dx)));
    return rc;
}

template <typename T>
static enum rc backward_weights(const struct conv_local *c, const T *x, const T *dy, bool adds,
                                float *dweight)
{
    const struct frame &f = c->frame;
    weight_product<T> p = {f, x, dy, adds, dweight};

    return multiply(
        c->cuda, p,
        {products_of(f, f.out_pixels), f.out_each, f.in_each * f.taps, rows_of(f, f.out_pixels)});
}

template <typename T>
static enum rc backward_bias(const struct conv_local *c, const T *dy, bool adds, float *dbias)
{
    const struct frame &f = c->frame;
    size_t values = static_cast<size_t>(f.out_channels) * f.out_pixels;

    return CUDA_CHECK(c->cuda, launch(add_images<T>, blocks_for(c->cuda, values), THREADS, 0,
                                      c->cuda->stream, dy, f.images, f.out_channels, f.out_pixels,
                                      adds, dbias));
}

static enum rc local_backward_weights(struct conv *conv, const void *x, const void *dy,
                                      bool is_first, float *dweight, float *dbias)
{
    const struct conv_local *c = local_of(conv);
    struct cuda_backend *cuda = c->cuda;
    enum rc rc;

    WITH_ACTIVATIONS(cuda, rc = backward_weights(c, as<T>(x), as<T>(dy), !is_first, dweight));
    if (rc != RC_OK || dbias == NULL) return rc;
    if (!c->options.is_local) {
        return cuda_channel_sums(cuda, c->base.out, c->options.images, dy, !is_first, dbias);
    }
    WITH_ACTIVATIONS(cuda, rc = backward_bias(c, as<T>(dy), !is_first, dbias));
    return rc;
}

static const struct conv_ops local_ops = {
    "local",       local_destroy,       local_prepare,
    local_forward, local_backward_data, local_backward_weights,
};

static struct frame frame_of(const struct conv_options *o)
{
    struct image_shape out = conv_out_shape(o);
    struct frame f = {};

    f.images = o->images;
    f.in_channels = o->in.channels;
    f.in_height = o->in.height;
    f.in_width = o->in.width;
    f.block = o->in.block;
    f.out_channels = o->out_channels;
    f.out_height = out.height;
    f.out_width = out.width;
    f.in_each = o->in.channels / o->groups;
    f.out_each = o->out_channels / o->groups;
    f.taps = o->kernel_height * o->kernel_width;
    f.in_pixels = o->in.height * o->in.width;
    f.out_pixels = out.height * out.width;
    f.padding_height = static_cast<int32_t>(o->padding_height);
    f.padding_width = static_cast<int32_t>(o->padding_width);
    f.dilation = static_cast<int32_t>(o->dilation);
    f.is_local = o->is_local;
    f.by_stride = divisor_of(o->stride);
    f.by_taps = divisor_of(f.taps);
    f.by_kernel_width = divisor_of(o->kernel_width);
    f.by_in_pixels = divisor_of(f.in_pixels);
    f.by_in_width = divisor_of(o->in.width);
    f.by_out_pixels = divisor_of(f.out_pixels);
    f.by_out_width = divisor_of(out.width);
    f.by_block = divisor_of(o->in.block);
    return f;
}

/* Rows, columns and inner values are counted in 32 bits. */
static bool is_too_large(const struct conv_options *o)
{
    struct image_shape out = conv_out_shape(o);
    size_t pixels = (size_t)o->in.height * o->in.width, outs = (size_t)out.height * out.width;
    size_t taps = (size_t)o->kernel_height * o->kernel_width;

    return o->images * pixels > INT32_MAX || o->images * outs > INT32_MAX ||
           o->in.channels * pixels > INT32_MAX || o->out_channels * outs > INT32_MAX ||
           o->in.channels * taps > INT32_MAX || o->out_channels * taps > INT32_MAX;
}

enum rc cuda_conv_local_create(struct cuda_backend *cuda, const struct conv_options *options,
                               struct conv **conv)
{
    struct conv_local *c;
    enum rc rc = RC_OK;

    CHECK(!options->is_local || options->groups == 1);
    if (is_too_large(options)) {
        snprintf(cuda->why, sizeof(cuda->why), "GPU %d: a convolution of %u images is too large",
                 cuda->device, options->images);
        return RC_UNSUPPORTED;
    }
    c = static_cast<struct conv_local *>(mem_alloc(sizeof(*c)));
    if (c == NULL) return RC_NOMEM;
    c->base.ops = &local_ops;
    c->base.out = conv_out_shape(options);
    c->cuda = cuda;
    c->options = *options;
    c->frame = frame_of(options);
    if (options->with_gradients && !options->is_local) {
        rc = cuda_scratch_reserve(cuda,
                                  cuda_channel_sums_scratch(cuda, c->base.out, options->images));
    }
    if (rc != RC_OK) {
        mem_free(c);
        return rc;
    }
    *conv = &c->base;
    return RC_OK;
}

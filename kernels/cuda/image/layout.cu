/*
 * Rewriting layouts: of images, between any two blocks, and of filters, between the plain order and
 * channels-last.
 *
 * Plain images to channels-last and back is a transposition of each image's [channels][pixels]: by
 * tiles through shared memory, so that both sides are read and written in order. Few channels or
 * pixels would leave such tiles empty; there, and between other blocks, a thread has one value (or
 * 16 bytes) of the result and fetches it from where it was.
 */
#include "kernels/cuda/image/image.cuh"

enum { TILE = 32, TILE_LINES = 8, TILED_FROM = 16, GRID_MAX = 65535 };

/* y[columns][rows] = x[rows][columns], for each image; blocks of TILE x TILE_LINES threads. */
template <typename T>
static __global__ void __launch_bounds__(TILE *TILE_LINES)
    transpose_tiles(uint32_t images, uint32_t rows, uint32_t columns, uint32_t tiles_across,
                    const T *x, T *y)
{
    __shared__ T tile[TILE][TILE + 1]; /* one more: its columns lie in different banks */
    uint32_t row = blockIdx.x / tiles_across * TILE, column = blockIdx.x % tiles_across * TILE;
    size_t values = static_cast<size_t>(rows) * columns;

    for (size_t image = blockIdx.y; image < images; image += gridDim.y) {
        const T *from = x + image * values;
        T *to = y + image * values;
        for (uint32_t line = threadIdx.y; line < TILE; line += TILE_LINES) {
            if (row + line >= rows || column + threadIdx.x >= columns) continue;
            tile[line][threadIdx.x] =
                from[static_cast<size_t>(row + line) * columns + column + threadIdx.x];
        }
        __syncthreads();
        for (uint32_t line = threadIdx.y; line < TILE; line += TILE_LINES) {
            if (column + line >= columns || row + threadIdx.x >= rows) continue;
            to[static_cast<size_t>(column + line) * rows + row + threadIdx.x] =
                tile[threadIdx.x][line];
        }
        __syncthreads();
    }
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    fetch_values(struct image_layout from, struct image_layout to, uint32_t items, const T *x, T *y)
{
    if (THREAD_ITEM >= items) return;
    struct image_position position = image_position_of(&to, THREAD_ITEM * N);
    uint32_t at = image_channel_at(&from, position.image, position.channel) +
                  image_pixel_at(&from, position.row, position.column);

    *reinterpret_cast<access<T, N> *>(y + THREAD_ITEM * N) =
        *reinterpret_cast<const access<T, N> *>(x + at);
}

template <typename T>
static enum rc transpose(struct cuda_backend *cuda, uint32_t images, uint32_t rows,
                         uint32_t columns, const T *x, T *y)
{
    unsigned across = (columns - 1) / TILE + 1, down = (rows - 1) / TILE + 1;
    unsigned most = GRID_MAX;
    dim3 grid(across * down, images < most ? images : most);

    return CUDA_CHECK(cuda, launch(transpose_tiles<T>, grid, dim3(TILE, TILE_LINES), 0,
                                   cuda->stream, images, rows, columns, across, x, y));
}

template <typename T, int N>
static enum rc fetch(struct cuda_backend *cuda, struct image_shape from, struct image_shape to,
                     uint32_t images, const T *x, T *y)
{
    struct image_layout in = image_layout_of(from), out = image_layout_of(to);
    uint32_t part = images_per_launch(in.values);
    enum rc rc = RC_OK;

    for (size_t n = 0; rc == RC_OK && n < images; n += part) {
        size_t count = images - n < part ? images - n : part, items = count * (in.values / N);
        rc = CUDA_CHECK(cuda,
                        launch(fetch_values<T, N>, blocks_of_items(items), THREADS, 0, cuda->stream,
                               in, out, items, x + n * in.values, y + n * in.values));
    }
    return rc;
}

template <typename T>
static enum rc relayout(struct cuda_backend *cuda, struct image_shape from, struct image_shape to,
                        uint32_t images, const T *x, T *y)
{
    constexpr int N = access_values<T>();
    uint32_t pixels = from.height * from.width, channels = from.channels;
    bool is_tiled = channels >= TILED_FROM && pixels >= TILED_FROM;

    if (is_tiled && from.block == 1 && to.block == channels) {
        return transpose(cuda, images, channels, pixels, x, y);
    }
    if (is_tiled && from.block == channels && to.block == 1) {
        return transpose(cuda, images, pixels, channels, x, y);
    }
    if (from.block % N == 0 && to.block % N == 0 && is_aligned(x) && is_aligned(y)) {
        return fetch<T, N>(cuda, from, to, images, x, y);
    }
    return fetch<T, 1>(cuda, from, to, images, x, y);
}

enum rc cuda_relayout(struct backend *backend, struct image_shape from, uint32_t to_block,
                      uint32_t images, const void *x, void *y)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct image_shape to = from;
    size_t values = images * image_values(from);
    enum rc rc;

    CHECK(from.channels % from.block == 0 && to_block > 0 && from.channels % to_block == 0);
    to.block = to_block;
    if (values == 0) return RC_OK;
    if (from.block == to_block || from.height * from.width == 1) {
        return backend->ops->copy(backend, y, x, values * backend->value_bytes);
    }
    WITH_ACTIVATIONS(cuda, rc = relayout(cuda, from, to, images, as<T>(x), as<T>(y)));
    return rc;
}

/* --- filters -----------------------------------------------------------------------------------*/

/* Filters [in][pixels] in tiles of some channels times some pixels, which a block holds at once. */
struct filter_tiles {
    size_t in, pixels;
    uint32_t channels, depth; /* of a tile */
    uint32_t across, along;   /* tiles over the channels, over the pixels */
};

enum { FILTER_TILE_VALUES = 4096 };

static struct filter_tiles filter_tiles_of(size_t in, size_t pixels)
{
    struct filter_tiles t = {in, pixels, 0, 0, 0, 0};
    size_t depth = pixels < FILTER_TILE_VALUES ? pixels : static_cast<size_t>(FILTER_TILE_VALUES);
    size_t channels = FILTER_TILE_VALUES / depth;

    if (channels > WARP) channels -= channels % WARP;
    if (channels > in) channels = in;
    t.channels = static_cast<uint32_t>(channels);
    t.depth = static_cast<uint32_t>(depth);
    t.across = static_cast<uint32_t>((in + channels - 1) / channels);
    t.along = static_cast<uint32_t>((pixels + depth - 1) / depth);
    return t;
}

/* What one block has: the values from `plain` on in the plain order, from `last` on in the other.
 */
struct filter_tile {
    size_t plain, last;
    uint32_t channels, depth;
};

__device__ static inline struct filter_tile filter_tile_of(const struct filter_tiles *t,
                                                           uint32_t block)
{
    struct filter_tile tile;
    size_t channel = block % t->across * t->channels;
    size_t pixel = block / t->across % t->along * t->depth;
    size_t filter = block / t->across / t->along * t->in * t->pixels;

    tile.channels = static_cast<uint32_t>(min(static_cast<size_t>(t->channels), t->in - channel));
    tile.depth = static_cast<uint32_t>(min(static_cast<size_t>(t->depth), t->pixels - pixel));
    tile.plain = filter + channel * t->pixels + pixel;
    tile.last = filter + pixel * t->in + channel;
    return tile;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    filters_to_last(struct filter_tiles tiles, const float *plain, T *last)
{
    __shared__ float values[FILTER_TILE_VALUES];
    struct filter_tile tile = filter_tile_of(&tiles, blockIdx.x);
    uint32_t n = tile.channels * tile.depth;

    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        values[i] = plain[tile.plain + i / tile.depth * tiles.pixels + i % tile.depth];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t pixel = i / tile.channels, channel = i % tile.channels;
        store(&last[tile.last + pixel * tiles.in + channel], values[channel * tile.depth + pixel]);
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    filters_from_last(struct filter_tiles tiles, const T *last, bool adds, float *plain)
{
    __shared__ float values[FILTER_TILE_VALUES];
    struct filter_tile tile = filter_tile_of(&tiles, blockIdx.x);
    uint32_t n = tile.channels * tile.depth;

    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t pixel = i / tile.channels, channel = i % tile.channels;
        values[channel * tile.depth + pixel] = load(&last[tile.last + pixel * tiles.in + channel]);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        float *to = &plain[tile.plain + i / tile.depth * tiles.pixels + i % tile.depth];
        *to = adds ? *to + values[i] : values[i];
    }
}

static unsigned blocks_of_filters(const struct filter_tiles *t, size_t out)
{
    return static_cast<unsigned>(out * t->across * t->along);
}

enum rc cuda_filters_to_last(struct cuda_backend *cuda, size_t out, size_t in, size_t pixels,
                             const float *plain, void *last)
{
    struct filter_tiles tiles = filter_tiles_of(in, pixels);
    enum rc rc;

    WITH_ACTIVATIONS(
        cuda,
        rc = CUDA_CHECK(cuda, launch(filters_to_last<T>, blocks_of_filters(&tiles, out), THREADS, 0,
                                     cuda->stream, tiles, plain, static_cast<T *>(last))));
    return rc;
}

enum rc cuda_filters_from_last(struct cuda_backend *cuda, size_t out, size_t in, size_t pixels,
                               const void *last, bool adds, float *plain)
{
    struct filter_tiles tiles = filter_tiles_of(in, pixels);
    enum rc rc;

    WITH_ACTIVATIONS(
        cuda, rc = CUDA_CHECK(cuda, launch(filters_from_last<T>, blocks_of_filters(&tiles, out),
                                           THREADS, 0, cuda->stream, tiles,
                                           static_cast<const T *>(last), adds, plain)));
    return rc;
}

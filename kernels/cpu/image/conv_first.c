/*
 * The gradient of the weights of a net's first layer. It reads one channel or three, which fill no
 * block, so with AVX2 oneDNN 2.x takes as long for it as for 25 times the arithmetic elsewhere.
 * Here each tap of the filters has its sum in a register of eight output channels, and goes over
 * the pixels:
 *
 *     dw[o][c][i][j] = sum over images and pixels of dy[o][y][x] * x[c][y stride + i][x stride + j]
 *
 * on a copy of the image with its padding around it. Sums are of an image first and then of the
 * batch.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "kernels/cpu/image/winograd.h"
#include "kernels/cpu/split.h"

#include <string.h>

enum { LANES = 8, CHANNELS_MAX = 4, TAPS_MAX = 9 /* at a time; more find no registers */ };

/* One call. */
struct first {
    const struct conv_options *options;
    struct image_shape out;
    const float *x, *dy;
    bool adds;
    float *dweight, *dbias;
    float *scratch;
};

/* Of the copy. */
static size_t padded_width(const struct conv_options *o)
{
    return (size_t)o->in.width + 2 * (size_t)o->padding_width;
}

static size_t padded_height(const struct conv_options *o)
{
    return (size_t)o->in.height + 2 * (size_t)o->padding_height;
}

static size_t padded_values(const struct conv_options *o)
{
    return o->in.channels * padded_height(o) * padded_width(o);
}

/* The copy, and the sums of a block of filters. */
static size_t scratch_values(const struct conv_options *o)
{
    return padded_values(o) + conv_filter_values(o) * LANES;
}

size_t conv_first_scratch(const struct cpu_backend *backend, const struct conv_options *o)
{
    return backend->base.threads * scratch_values(o) * sizeof(float);
}

#if defined(__x86_64__)

#include <immintrin.h>

bool conv_first_serves(const struct conv_options *o, struct image_shape out)
{
    return cpu_has(CPU_AVX2) && !cpu_has(CPU_AVX512) && o->in.channels <= CHANNELS_MAX &&
           o->in.block == 1 && o->groups == 1 && out.block == LANES;
}

static void copy_padded(const struct conv_options *o, const float *image, float *to)
{
    size_t width = padded_width(o);

    memset(to, 0, padded_values(o) * sizeof(*to));
    for (uint32_t c = 0; c < o->in.channels; c++) {
        float *row = to + (c * padded_height(o) + o->padding_height) * width + o->padding_width;
        for (uint32_t y = 0; y < o->in.height; y++, row += width, image += o->in.width) {
            memcpy(row, image, o->in.width * sizeof(*row));
        }
    }
}

/* Where tap `f` of the pixel at the upper left reads in the copy. */
static size_t tap_at(const struct conv_options *o, size_t f)
{
    size_t taps = (size_t)o->kernel_height * o->kernel_width, tap = f % taps;
    size_t row = tap / o->kernel_width * o->dilation, column = tap % o->kernel_width * o->dilation;

    return (f / taps * padded_height(o) + row) * padded_width(o) + column;
}

/* sums[tap] += those of one image; `count` is a constant where this is inlined. */
static inline __attribute__((always_inline, target("avx2,fma"))) void
sum_taps(const struct first *f, const float *copy, const float *dy, size_t tap, size_t count,
         float *sums)
{
    const struct conv_options *o = f->options;
    size_t stride = o->stride, row_step = stride * padded_width(o), at[TAPS_MAX];
    __m256 sum[TAPS_MAX];

    for (size_t t = 0; t < count; t++) {
        at[t] = tap_at(o, tap + t);
        sum[t] = _mm256_setzero_ps();
    }
    for (uint32_t y = 0; y < f->out.height; y++, copy += row_step) {
        const float *x = copy;
        for (uint32_t i = 0; i < f->out.width; i++, x += stride, dy += LANES) {
            __m256 gradient = _mm256_loadu_ps(dy);
            for (size_t t = 0; t < count; t++) {
                sum[t] = _mm256_fmadd_ps(gradient, _mm256_broadcast_ss(x + at[t]), sum[t]);
            }
        }
    }
    for (size_t t = 0; t < count; t++) {
        float *to = sums + (tap + t) * LANES;
        _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), sum[t]));
    }
}

__attribute__((target("avx2,fma"))) static void sum_image(const struct first *f, const float *copy,
                                                          const float *dy, float *sums)
{
    size_t taps = conv_filter_values(f->options), tap = 0;

    for (; tap + TAPS_MAX <= taps; tap += TAPS_MAX) {
        sum_taps(f, copy, dy, tap, TAPS_MAX, sums);
    }
    for (; tap + 4 <= taps; tap += 4) {
        sum_taps(f, copy, dy, tap, 4, sums);
    }
    for (; tap < taps; tap++) {
        sum_taps(f, copy, dy, tap, 1, sums);
    }
}

static void give(const struct first *f, size_t block, const float *sums)
{
    size_t taps = conv_filter_values(f->options);
    float *filters = f->dweight + block * LANES * taps;

    for (size_t i = 0; i < LANES * taps; i++) {
        float sum = sums[i % taps * LANES + i / taps];
        filters[i] = f->adds ? filters[i] + sum : sum;
    }
}

/* Blocks [from, to) of output channels. */
static void run_blocks(void *data, size_t part, size_t from, size_t to)
{
    const struct first *f = data;
    const struct conv_options *o = f->options;
    size_t plane = (size_t)f->out.height * f->out.width * LANES;
    float *copy = f->scratch + part * scratch_values(o), *sums = copy + padded_values(o);
    struct winograd_grid grid = {.shape = f->out};

    for (size_t block = from; block < to; block++) {
        memset(sums, 0, conv_filter_values(o) * LANES * sizeof(*sums));
        for (uint32_t n = 0; n < o->images; n++) {
            copy_padded(o, f->x + n * image_values(o->in), copy);
            sum_image(f, copy, f->dy + n * image_values(f->out) + block * plane, sums);
        }
        give(f, block, sums);
    }
    if (f->dbias != NULL) {
        winograd_avx2.bias(&grid, o->images, f->dy, from * LANES, to * LANES, f->adds, f->dbias);
    }
}

void conv_first_weights(struct cpu_backend *backend, const struct conv_options *options,
                        const struct conv_gradients *gradients)
{
    struct first f = {
        .options = options,
        .out = gradients->out,
        .x = gradients->x,
        .dy = gradients->dy,
        .adds = !gradients->is_first,
        .dweight = gradients->dweight,
        .dbias = gradients->dbias,
        .scratch = backend->scratch,
    };

    CHECK(conv_first_serves(options, f.out));
    cpu_split(&backend->base, f.out.channels / LANES, 1, run_blocks, &f);
}

#else

bool conv_first_serves(const struct conv_options *o, struct image_shape out)
{
    (void)o;
    (void)out;
    return false;
}

void conv_first_weights(struct cpu_backend *backend, const struct conv_options *options,
                        const struct conv_gradients *gradients)
{
    (void)backend;
    (void)options;
    (void)gradients;
    CHECK(false);
}

#endif

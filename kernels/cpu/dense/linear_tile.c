/*
 * The forward product of few rows, y = x W^T + b. A library's sgemm copies W into an
 * order of its own at each call, which for the 64 rows of a usual batch costs a tenth of the time.
 * Here x is transposed instead, which is smaller: y^T = W x^T, where the rows of W are read as they
 * are, value by value, each multiplied with 64 (or 16, 32) samples side by side. Sums of 6 outputs
 * live in registers; the inner index ascends. y^T is transposed back block by block in the first
 * cache. With AVX-512 by tiles of its own, with AVX2 by those of panels.h. Runs on any thread.
 */
#include "kernels/cpu/dense/linear_internal.h"

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/cpu/dense/panels.h"
#include "kernels/cpu/transpose.h"

#if defined(__x86_64__)

enum { VECTORS = 4, SAMPLES = VECTORS * LANES, OUTPUTS = 6 };
_Static_assert(LINEAR_TILE_OUTPUTS % OUTPUTS == 0 && LINEAR_TILE_OUTPUTS % LANES == 0,
               "a block is whole tiles, and is transposed whole");

/* to[inner][width] from `rows` rows of x; lanes without a row are zeros. */
AVX512 static void transpose_rows(const float *x, size_t rows, size_t inner, size_t width,
                                  float *to)
{
    for (size_t r = 0; r < width; r += LANES) {
        for (size_t k = 0; k < inner; k += LANES) {
            __mmask16 mask = lanes_first(inner - k);
            __m512 block[LANES];

            for (size_t i = 0; i < LANES; i++) {
                block[i] = r + i < rows ? _mm512_maskz_loadu_ps(mask, x + (r + i) * inner + k)
                                        : _mm512_setzero_ps();
            }
            transpose_square(block);
            for (size_t i = 0; i < LANES && k + i < inner; i++) {
                _mm512_storeu_ps(to + (k + i) * width + r, block[i]);
            }
        }
    }
}

/* `outputs` and `vectors` are constants wherever this is inlined. */
INLINE AVX512 void multiply(const struct linear_tile *t, size_t outputs, size_t vectors,
                            size_t output, const float *samples, float *to)
{
    const float *w = t->weight + output * t->in;
    size_t in = t->in, width = vectors * LANES;
    __m512 sums[OUTPUTS][VECTORS];

    for (size_t o = 0; o < outputs; o++) {
        for (size_t v = 0; v < vectors; v++) {
            sums[o][v] = _mm512_set1_ps(t->bias != NULL ? t->bias[output + o] : 0.0F);
        }
    }
    for (size_t k = 0; k < in; k++) {
        __m512 x[VECTORS];
        for (size_t v = 0; v < vectors; v++) {
            x[v] = _mm512_loadu_ps(samples + k * width + v * LANES);
        }
        for (size_t o = 0; o < outputs; o++) {
            __m512 factor = _mm512_set1_ps(w[o * in + k]);
            for (size_t v = 0; v < vectors; v++) {
                sums[o][v] = _mm512_fmadd_ps(factor, x[v], sums[o][v]);
            }
        }
    }
    for (size_t o = 0; o < outputs; o++) {
        for (size_t v = 0; v < vectors; v++) {
            /* The second operand is what a NaN comes out as. */
            __m512 sum = t->with_relu ? _mm512_max_ps(_mm512_setzero_ps(), sums[o][v]) : sums[o][v];
            _mm512_storeu_ps(to + o * width + v * LANES, sum);
        }
    }
}

INLINE AVX512 void multiply_block(const struct linear_tile *t, size_t vectors, size_t from,
                                  size_t to, const float *samples, float *block)
{
    size_t width = vectors * LANES, output = from;

    for (; output + OUTPUTS <= to; output += OUTPUTS) {
        multiply(t, OUTPUTS, vectors, output, samples, block + (output - from) * width);
    }
    for (; output + 2 <= to; output += 2) {
        multiply(t, 2, vectors, output, samples, block + (output - from) * width);
    }
    if (output < to) multiply(t, 1, vectors, output, samples, block + (output - from) * width);
}

/* Not inlined: each of these three keeps its registers to itself. */
AVX512 static void multiply_16(const struct linear_tile *t, size_t from, size_t to,
                               const float *samples, float *block)
{
    multiply_block(t, 1, from, to, samples, block);
}

AVX512 static void multiply_32(const struct linear_tile *t, size_t from, size_t to,
                               const float *samples, float *block)
{
    multiply_block(t, 2, from, to, samples, block);
}

AVX512 static void multiply_64(const struct linear_tile *t, size_t from, size_t to,
                               const float *samples, float *block)
{
    multiply_block(t, VECTORS, from, to, samples, block);
}

/* Columns [from, to) of `rows` rows of y from their transposed block. */
AVX512 static void transpose_back(const float *block, size_t width, size_t rows, size_t from,
                                  size_t to, size_t out, float *y)
{
    for (size_t r = 0; r < rows; r += LANES) {
        for (size_t c = from; c < to; c += LANES) {
            __mmask16 mask = lanes_first(to - c);
            __m512 square[LANES];

            for (size_t i = 0; i < LANES; i++) {
                square[i] = c + i < to ? _mm512_loadu_ps(block + (c + i - from) * width + r)
                                       : _mm512_setzero_ps();
            }
            transpose_square(square);
            for (size_t i = 0; i < LANES && r + i < rows; i++) {
                _mm512_mask_storeu_ps(y + (r + i) * out + c, mask, square[i]);
            }
        }
    }
}

static void forward_avx512(const struct linear_tile *tile, size_t from, size_t to, float *scratch)
{
    _Alignas(64) float block[LINEAR_TILE_OUTPUTS * SAMPLES];

    for (size_t row = 0; row < tile->rows; row += SAMPLES) {
        size_t rows = tile->rows - row < SAMPLES ? tile->rows - row : SAMPLES;
        size_t width = rows <= LANES ? LANES : rows <= 2 * LANES ? 2 * LANES : SAMPLES;

        transpose_rows(tile->x + row * tile->in, rows, tile->in, width, scratch);
        for (size_t first = from; first < to; first += LINEAR_TILE_OUTPUTS) {
            size_t last = to - first < LINEAR_TILE_OUTPUTS ? to : first + LINEAR_TILE_OUTPUTS;
            if (width == SAMPLES) {
                multiply_64(tile, first, last, scratch, block);
            } else if (width == 2 * LANES) {
                multiply_32(tile, first, last, scratch, block);
            } else {
                multiply_16(tile, first, last, scratch, block);
            }
            transpose_back(block, width, rows, first, last, tile->out, tile->y + row * tile->out);
        }
    }
}

/* One value of y from its sum. */
static float finished(const struct linear_tile *tile, float sum, size_t output)
{
    if (tile->bias != NULL) sum += tile->bias[output];
    return tile->with_relu && sum < 0.0F ? 0.0F : sum;
}

/* Columns [from, to) of the rows [row, row + rows) of y from their transposed block. */
AVX2 static void finish_block(const struct linear_tile *tile, const float *block, size_t row,
                              size_t rows, size_t from, size_t to)
{
    float *y = tile->y + row * tile->out;
    size_t whole_rows = rows - rows % LANES_AVX2, c = from;
    __m256 zero = _mm256_setzero_ps();

    for (; c + LANES_AVX2 <= to; c += LANES_AVX2) {
        __m256 bias = tile->bias != NULL ? _mm256_loadu_ps(tile->bias + c) : zero;

        for (size_t r = 0; r < whole_rows; r += LANES_AVX2) {
            __m256 square[LANES_AVX2];

            UNROLLED for (size_t i = 0; i < LANES_AVX2; i++)
            {
                square[i] = _mm256_loadu_ps(block + (c + i - from) * SAMPLES + r);
            }
            transpose_square_avx2(square);
            UNROLLED for (size_t i = 0; i < LANES_AVX2; i++)
            {
                __m256 sum = _mm256_add_ps(square[i], bias);
                if (tile->with_relu) sum = _mm256_max_ps(zero, sum);
                _mm256_storeu_ps(y + (r + i) * tile->out + c, sum);
            }
        }
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = r < whole_rows ? c : from; i < to; i++) {
            y[r * tile->out + i] = finished(tile, block[(i - from) * SAMPLES + r], i);
        }
    }
}

static void forward_avx2(const struct linear_tile *tile, size_t from, size_t to, float *scratch)
{
    _Alignas(64) float block[LINEAR_TILE_OUTPUTS * SAMPLES];

    for (size_t row = 0; row < tile->rows; row += SAMPLES) {
        size_t rows = tile->rows - row < SAMPLES ? tile->rows - row : SAMPLES;
        struct panels samples = panels_in(PANELS_AVX2, tile->in, rows, scratch);
        struct panels_source x = {tile->x + row * tile->in, tile->in, .is_transposed = true};

        panels_pack_all(&samples, &x);
        for (size_t first = from; first < to; first += LINEAR_TILE_OUTPUTS) {
            size_t last = to - first < LINEAR_TILE_OUTPUTS ? to : first + LINEAR_TILE_OUTPUTS;
            struct panels_product product = {
                .rows = last - first,
                .a = tile->weight + first * tile->in,
                .a_stride = tile->in,
                .c = block,
                .c_stride = SAMPLES,
            };

            panels_multiply_all(&samples, &product);
            finish_block(tile, block, row, rows, first, last);
        }
    }
}

bool linear_tile_is_here(void)
{
    return cpu_has(CPU_AVX2);
}

void linear_tile_forward(const struct linear_tile *tile, size_t from, size_t to, float *scratch)
{
    CHECK(from <= to && to <= tile->out);
    if (cpu_has(CPU_AVX512)) {
        forward_avx512(tile, from, to, scratch);
    } else {
        forward_avx2(tile, from, to, scratch);
    }
}

size_t linear_tile_scratch(size_t in)
{
    return in * SAMPLES;
}

#else

bool linear_tile_is_here(void)
{
    return false;
}

void linear_tile_forward(const struct linear_tile *tile, size_t from, size_t to, float *scratch)
{
    (void)tile;
    (void)from;
    (void)to;
    (void)scratch;
    CHECK(false);
}

size_t linear_tile_scratch(size_t in)
{
    (void)in;
    return 0;
}

#endif

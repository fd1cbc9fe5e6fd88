/* Conversion and packing of bfloat16 operands. See bf16.h. Runs on any thread. */
#include "kernels/cpu/dense/bf16.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/dense/linear_internal.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/transpose.h"

/* The upper half of the sum is the nearest: half a unit of the last place kept, and one more where
 * that is odd and the rest is just a half. A NaN must not be rounded up to infinity. */
CPU_INLINE uint32_t bf16_bits(uint32_t bits)
{
    uint32_t rounded = (bits + UINT32_C(0x7fff) + ((bits >> 16) & 1U)) >> 16;
    uint32_t is_nan = (UINT32_C(0x7f800000) - (bits & UINT32_C(0x7fffffff))) >> 31;

    return is_nan != 0 ? (bits >> 16) | UINT32_C(0x40) : rounded;
}

FOR_EACH_CPU(extern, void, bf16_from_float, (const float *x, uint16_t *restrict y, size_t n),
             (x, y, n))
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (uint16_t)bf16_bits(float_bits(x[i]));
    }
}

/* Two rows side by side; `second` may be NULL. */
FOR_EACH_CPU(static, void, pack_pair,
             (const float *first, const float *second, size_t n, uint32_t *restrict to),
             (first, second, n, to))
{
    if (second != NULL) {
        for (size_t i = 0; i < n; i++) {
            to[i] = bf16_bits(float_bits(first[i])) | bf16_bits(float_bits(second[i])) << 16;
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            to[i] = bf16_bits(float_bits(first[i]));
        }
    }
}

void bf16_pack(const struct product_form *f, const float *b, size_t from, size_t to,
               uint16_t *packed)
{
    for (size_t block = from; block < to; block++) {
        uint32_t *row = (uint32_t *)(void *)packed + block * f->words * f->block;
        size_t first = block * f->block, left = f->columns - first;
        size_t n = left < f->block ? left : f->block;

        for (size_t pair = 0; pair < f->words; pair++, row += f->block) {
            const float *at = b + 2 * pair * f->columns + first;
            size_t done = 2 * pair < f->inner ? n : 0;

            if (done > 0) {
                pack_pair(at, 2 * pair + 1 < f->inner ? at + f->columns : NULL, n, row);
            }
            memset(row + done, 0, (f->block - done) * sizeof(*row));
        }
    }
}

#if defined(__x86_64__)

/* The upper halves, rounded as above, in the lower ones. */
INLINE AVX512 __m512i round_lanes(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    return _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, is_nan, quiet), 16);
}

/* 32 values, of which `count` are there, as 16 pairs: the first of a pair in the lower half. */
INLINE AVX512 __m512 pairs_of(const float *x, size_t count)
{
    __mmask16 low_mask = lanes_first(count);
    __mmask16 high_mask = count > LANES ? lanes_first(count - LANES) : (__mmask16)0;
    __m256i low = _mm512_cvtepi32_epi16(round_lanes(_mm512_maskz_loadu_ps(low_mask, x)));
    __m256i high = _mm512_cvtepi32_epi16(round_lanes(
        count > LANES ? _mm512_maskz_loadu_ps(high_mask, x + LANES) : _mm512_setzero_ps()));

    return _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

/* 16 columns from `column` on, all their pairs, to words `row[pair * block]`. */
AVX512 static void transpose_columns(const struct product_form *f, const float *b, size_t column,
                                     uint32_t *row)
{
    for (size_t pair = 0; pair < f->words; pair += LANES) {
        __m512 square[LANES];

        for (size_t i = 0; i < LANES; i++) {
            bool is_there = column + i < f->columns && 2 * pair < f->inner;
            square[i] = is_there
                            ? pairs_of(b + (column + i) * f->inner + 2 * pair, f->inner - 2 * pair)
                            : _mm512_setzero_ps();
        }
        transpose_square(square);
        for (size_t i = 0; i < LANES && pair + i < f->words; i++) {
            _mm512_storeu_ps((float *)(void *)(row + (pair + i) * f->block), square[i]);
        }
    }
}

/* The same of float32, where a word is a value. */
AVX512 static void transpose_float_columns(const struct product_form *f, const float *b,
                                           size_t column, float *row)
{
    for (size_t word = 0; word < f->words; word += LANES) {
        __m512 square[LANES];

        for (size_t i = 0; i < LANES; i++) {
            bool is_there = column + i < f->columns && word < f->inner;
            square[i] = is_there ? _mm512_maskz_loadu_ps(lanes_first(f->inner - word),
                                                         b + (column + i) * f->inner + word)
                                 : _mm512_setzero_ps();
        }
        transpose_square(square);
        for (size_t i = 0; i < LANES && word + i < f->words; i++) {
            _mm512_storeu_ps(row + (word + i) * f->block, square[i]);
        }
    }
}

void float_pack_transposed(const struct product_form *f, const float *b, size_t from, size_t to,
                           float *packed)
{
    CHECK(f->block % LANES == 0);
    for (size_t block = from; block < to; block++) {
        float *words = packed + block * f->words * f->block;

        for (size_t column = 0; column < f->block; column += LANES) {
            transpose_float_columns(f, b, block * f->block + column, words + column);
        }
    }
}

void bf16_pack_transposed(const struct product_form *f, const float *b, size_t from, size_t to,
                          uint16_t *packed)
{
    CHECK(f->block % LANES == 0);
    for (size_t block = from; block < to; block++) {
        uint32_t *words = (uint32_t *)(void *)packed + block * f->words * f->block;

        for (size_t column = 0; column < f->block; column += LANES) {
            transpose_columns(f, b, block * f->block + column, words + column);
        }
    }
}

#else

void bf16_pack_transposed(const struct product_form *f, const float *b, size_t from, size_t to,
                          uint16_t *packed)
{
    (void)f;
    (void)b;
    (void)from;
    (void)to;
    (void)packed;
    CHECK(false); /* nobody multiplies these here */
}

void float_pack_transposed(const struct product_form *f, const float *b, size_t from, size_t to,
                           float *packed)
{
    (void)f;
    (void)b;
    (void)from;
    (void)to;
    (void)packed;
    CHECK(false);
}

#endif

#ifndef GRAPEVINE_HAS_DNNL

void bf16_decide(struct cpu_backend *backend)
{
    backend->is_bf16 = false;
    backend->precision_reason = "float32: this build has no oneDNN, which multiplies bfloat16";
}

#else

#include "kernels/cpu/onednn.h"

enum { TRIAL_ROWS = 256, TRIAL_WIDTH = 256, TRIAL_RUNS = 5 };

/* One training step of a layer in [values]: x, dx, dy, y, then W and dW. */
static enum rc trial_step(struct linear *layer, float *values)
{
    const size_t rows = (size_t)TRIAL_ROWS * TRIAL_WIDTH;
    struct linear_backward pass = {
        .rows = TRIAL_ROWS,
        .x = values,
        .dx = values + rows,
        .dy = values + 2 * rows,
        .y = values + 3 * rows,
        .dweight = values + 4 * rows + (size_t)TRIAL_WIDTH * TRIAL_WIDTH,
        .is_first = true,
    };
    enum rc rc = layer->ops->prepare(layer, values + 4 * rows, NULL);

    if (rc == RC_OK) rc = layer->ops->forward(layer, pass.rows, pass.x, NULL, values + 3 * rows);
    return rc == RC_OK ? layer->ops->backward(layer, &pass) : rc;
}

/* The shortest of a few steps after one that warms up; UINT64_MAX: it does not work at all. */
static uint64_t trial_ns(struct cpu_backend *backend, bool is_bf16, float *values)
{
    const struct linear_options options = {.in = TRIAL_WIDTH,
                                           .out = TRIAL_WIDTH,
                                           .rows_max = TRIAL_ROWS,
                                           .with_gradients = true,
                                           .with_input_gradient = true};
    struct linear *layer = NULL;
    uint64_t shortest = UINT64_MAX;

    backend->is_bf16 = is_bf16;
    if (cpu_linear_create(&backend->base, &options, &layer) != RC_OK) return UINT64_MAX;
    for (int i = 0; i <= TRIAL_RUNS; i++) {
        uint64_t begin = backend->options.now_ns(), took;
        enum rc rc = trial_step(layer, values);

        took = backend->options.now_ns() - begin;
        if (rc != RC_OK) break;
        if (i > 0 && took < shortest) shortest = took;
    }
    layer->ops->destroy(layer);
    return shortest;
}

static bool is_faster(struct cpu_backend *backend)
{
    size_t count = (4 * (size_t)TRIAL_ROWS + 2 * (size_t)TRIAL_WIDTH) * TRIAL_WIDTH;
    float *values = mem_aligned(count * sizeof(*values));
    bool is = false;

    if (values == NULL) return false;
    backend_bind_thread(&backend->base);
    is = trial_ns(backend, true, values) < trial_ns(backend, false, values);
    mem_free(values);
    return is;
}

void bf16_decide(struct cpu_backend *backend)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    bool has_amx = (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    bool has_bf16 = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;

    if (backend->onednn == NULL) {
        backend->precision_reason = "float32: oneDNN, which multiplies bfloat16, is not used";
    } else if (!has_bf16) {
        backend->precision_reason = "float32: this CPU does not multiply bfloat16";
    } else if (backend->options.forces_bf16) {
        backend->is_bf16 = true;
        backend->precision_reason = "bf16: it was forced";
    } else if (has_amx) {
        backend->is_bf16 = true;
        backend->precision_reason = "bf16: this CPU has AMX";
    } else if (backend->options.now_ns == NULL) {
        backend->precision_reason =
            "float32: no AMX here, and no clock to measure AVX512-BF16 with";
    } else if (is_faster(backend)) {
        backend->is_bf16 = true;
        backend->precision_reason = "bf16: AVX512-BF16 was measured to be faster here";
    } else {
        backend->is_bf16 = false;
        backend->precision_reason = "float32: AVX512-BF16 was measured to be slower here";
    }
}

#endif

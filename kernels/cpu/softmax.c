/*
 * Softmax and its losses, with the usual shift by the largest logit, so that no exponential
 * overflows. Rows go through in blocks of LANES values, the last one filled up, so that ten classes
 * and fifty thousand both run as vectors. Each lane adds up SPAN / LANES float32 values before its
 * sum goes on in float64, always in the same order. Rows of few classes with labels, where most
 * lanes would idle, are transposed: a block is then one class of LANES rows.
 *
 * A block is copied in, worked on and copied out: input and output may be the same memory, and
 * loops over what may overlap do not become vectors.
 */
#include "kernels/softmax.h"

#include "base/check.h"
#include "kernels/cpu/internal.h"
#include "kernels/cpu/math.h"

#include <math.h>
#include <stdbool.h>

enum { LANES = 16, SPAN = 1024, NARROW_MAX = 32 };

CPU_INLINE void block_load(float *block, const float *from, size_t left, float fill)
{
    if (left >= LANES) {
        memcpy(block, from, LANES * sizeof(*block));
        return;
    }
    for (size_t l = 0; l < LANES; l++) {
        block[l] = fill;
    }
    memcpy(block, from, left * sizeof(*block));
}

CPU_INLINE void block_store(float *to, const float *block, size_t left)
{
    if (left >= LANES) {
        memcpy(to, block, LANES * sizeof(*block)); /* of a constant size: one store */
    } else {
        memcpy(to, block, left * sizeof(*block));
    }
}

/* In pairs: a chain of additions would take as long as the row of ten classes before it. */
CPU_INLINE double lanes_sum(const float *lanes)
{
    double sums[LANES];

    for (size_t l = 0; l < LANES; l++) {
        sums[l] = (double)lanes[l];
    }
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            sums[l] += sums[half + l];
        }
    }
    return sums[0];
}

/* ln x of a finite x > 0; some finite number for 0. x = 2^n m with m in [0.70, 1.41), and ln m =
 * 2 artanh((m - 1) / (m + 1)), whose series ends below float32 after five terms. */
CPU_INLINE float natural_log(float x)
{
    uint32_t bits = float_bits(x) + (UINT32_C(0x3f800000) - UINT32_C(0x3f3504f3));
    float n = (float)((int32_t)(bits >> 23) - 127);
    float m = float_of_bits((bits & UINT32_C(0x007fffff)) + UINT32_C(0x3f3504f3));
    float s = (m - 1.0F) / (m + 1.0F), z = s * s;
    float series = (((z / 9.0F + 1.0F / 7.0F) * z + 0.2F) * z + 1.0F / 3.0F) * z;

    return n * 0.693359375F + (n * -2.12194440e-4F + 2.0F * (s + s * series));
}

/* NaNs are passed over. */
FOR_EACH_CPU(static, float, largest_of, (const float *x, size_t n), (x, n))
{
    float lanes[LANES], block[LANES];

    for (size_t l = 0; l < LANES; l++) {
        lanes[l] = -INFINITY;
    }
    for (size_t c = 0; c < n; c += LANES) {
        block_load(block, x + c, n - c, -INFINITY);
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            lanes[l] = block[l] > lanes[l] ? block[l] : lanes[l];
        }
    }
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            lanes[l] = lanes[half + l] > lanes[l] ? lanes[half + l] : lanes[l];
        }
    }
    return lanes[0];
}

/* The first of the values that equal `wanted`; n if none does. */
FOR_EACH_CPU(static, size_t, find, (const float *x, size_t n, float wanted), (x, n, wanted))
{
    size_t c = 0;

    for (; c + LANES <= n; c += LANES) {
        uint32_t found = 0;
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            found |= x[c + l] == wanted;
        }
        if (found != 0) break;
    }
    while (c < n && x[c] != wanted) {
        c++;
    }
    return c;
}

/* out[c] = exp(x[c] * inverse - max), where out is not NULL; returns the sum. */
FOR_EACH_CPU(static, double, exponentials,
             (const float *x, size_t n, float inverse, float max, float *out),
             (x, n, inverse, max, out))
{
    double sum = 0.0;

    for (size_t first = 0; first < n; first += SPAN) {
        size_t end = n - first < SPAN ? n : first + SPAN;
        float lanes[LANES] = {0.0F}, block[LANES];

        for (size_t c = first; c < end; c += LANES) {
            block_load(block, x + c, end - c, -INFINITY);
#pragma GCC unroll 1
            for (size_t l = 0; l < LANES; l++) {
                block[l] = cpu_exp(block[l] * inverse - max);
                lanes[l] += block[l];
            }
            if (out != NULL) block_store(out + c, block, end - c);
        }
        sum += lanes_sum(lanes);
    }
    return sum;
}

FOR_EACH_CPU(static, void, scale, (float *x, size_t n, float factor), (x, n, factor))
{
    for (size_t c = 0; c < n; c++) {
        x[c] *= factor;
    }
}

/* The largest first: what is left is small, and rounded once. */
FOR_EACH_CPU(static, void, shift_row,
             (const float *x, size_t n, float max, float shift, float *out),
             (x, n, max, shift, out))
{
    for (size_t c = 0; c < n; c++) {
        out[c] = (x[c] - max) - shift;
    }
}

/* What the targets of a row make of its logits z = x * inverse - max. */
struct target_sums {
    double mass;    /* of the targets */
    double product; /* of targets and z */
    double entropy; /* -sum of t ln t */
};

FOR_EACH_CPU(static, struct target_sums, weigh_targets,
             (const float *x, const float *targets, size_t n, float inverse, float max),
             (x, targets, n, inverse, max))
{
    struct target_sums sums = {0.0, 0.0, 0.0};

    for (size_t first = 0; first < n; first += SPAN) {
        size_t end = n - first < SPAN ? n : first + SPAN;
        float mass[LANES] = {0.0F}, product[LANES] = {0.0F}, entropy[LANES] = {0.0F};
        float block[LANES], target[LANES];

        for (size_t c = first; c < end; c += LANES) {
            block_load(block, x + c, end - c, 0.0F);
            block_load(target, targets + c, end - c, 0.0F);
#pragma GCC unroll 1
            for (size_t l = 0; l < LANES; l++) {
                float share = target[l] * (block[l] * inverse - max);
                mass[l] += target[l];
                /* 0 for a target of 0, also where the logit is infinite. */
                uint32_t is_some = (float_bits(target[l]) + UINT32_C(0x7fffffff)) >> 31;
                product[l] += float_of_bits(float_bits(share) & (0U - is_some));
                entropy[l] -= target[l] * natural_log(target[l]);
            }
        }
        sums.mass += lanes_sum(mass);
        sums.product += lanes_sum(product);
        sums.entropy += lanes_sum(entropy);
    }
    return sums;
}

/* gradient[c] = hard exp(x - max) + soft exp(x inverse - max inverse) - target targets[c]. */
struct gradient_row {
    float max, inverse;
    float hard, soft, target; /* factors */
};

CPU_INLINE void mix_row(const struct gradient_row *row, const float *x, const float *targets,
                        size_t n, float *gradient, bool is_hard)
{
    const struct gradient_row r = *row;
    float block[LANES], target[LANES];

    for (size_t c = 0; c < n; c += LANES) {
        block_load(block, x + c, n - c, 0.0F);
        block_load(target, targets + c, n - c, 0.0F);
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            float soft = r.soft * cpu_exp(block[l] * r.inverse - r.max * r.inverse);
            float hard = is_hard ? r.hard * cpu_exp(block[l] - r.max) : 0.0F;
            block[l] = hard + (soft - r.target * target[l]);
        }
        block_store(gradient + c, block, n - c);
    }
}

FOR_EACH_CPU(static, void, mix_gradient,
             (const struct gradient_row *row, const float *x, const float *targets, size_t n,
              float *gradient),
             (row, x, targets, n, gradient))
{
    if (row->hard != 0.0F) {
        mix_row(row, x, targets, n, gradient, true);
    } else {
        mix_row(row, x, targets, n, gradient, false);
    }
}

/* ln(exp(a) + exp(b)); NaN where one is. Both may be -infinity: their distance, a NaN, then counts
 * as far. */
CPU_INLINE float add_logarithms(float a, float b)
{
    float apart = float_of_bits(float_bits(cpu_limit(a - b, 89.0F)) | UINT32_C(0x80000000));
    float high = a > b ? a : b;

    return cpu_keep_nan(a, high + natural_log(1.0F + cpu_exp(apart)));
}

/* merged = ln(exp(merged) + exp(x - max - shift)). */
FOR_EACH_CPU(static, void, merge_row,
             (const float *x, size_t n, float max, float shift, float *merged),
             (x, n, max, shift, merged))
{
    float block[LANES], sum[LANES];

    for (size_t c = 0; c < n; c += LANES) {
        block_load(block, x + c, n - c, 0.0F);
        block_load(sum, merged + c, n - c, 0.0F);
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            sum[l] = add_logarithms((block[l] - max) - shift, sum[l]);
        }
        block_store(merged + c, sum, n - c);
    }
}

/* LANES rows of few classes, transposed. */
struct narrow {
    float e[NARROW_MAX][LANES]; /* exp(logit - max) */
    float max[LANES], sum[LANES], ln_sum[LANES];
};

/* The rows past `rows` repeat the first. */
FOR_EACH_CPU(static, void, narrow_load,
             (struct narrow * narrow, const float *x, size_t rows, size_t classes),
             (narrow, x, rows, classes))
{
    float high[LANES], sum[LANES];

    for (size_t l = 0; l < LANES; l++) {
        const float *row = l < rows ? x + l * classes : x;
        for (size_t c = 0; c < classes; c++) {
            narrow->e[c][l] = row[c];
        }
        high[l] = -INFINITY;
        sum[l] = 0.0F;
    }
    for (size_t c = 0; c < classes; c++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            high[l] = narrow->e[c][l] > high[l] ? narrow->e[c][l] : high[l];
        }
    }
    for (size_t c = 0; c < classes; c++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            narrow->e[c][l] = cpu_exp(narrow->e[c][l] - high[l]);
            sum[l] += narrow->e[c][l];
        }
    }
#pragma GCC unroll 1
    for (size_t l = 0; l < LANES; l++) {
        narrow->max[l] = high[l];
        narrow->sum[l] = sum[l];
        narrow->ln_sum[l] = cpu_keep_nan(sum[l], natural_log(sum[l]));
    }
}

uint32_t softmax_argmax(const float *values, uint32_t classes)
{
    size_t at;

    CHECK(classes > 0);
    if (isnan(values[0])) return 0;
    at = find(values, classes, largest_of(values, classes));
    return at < classes ? (uint32_t)at : 0;
}

uint32_t softmax_counted(const uint32_t *labels, uint32_t rows)
{
    uint32_t counted = 0;

    for (uint32_t r = 0; r < rows; r++) {
        counted += labels[r] != LABEL_IGNORE ? 1U : 0U;
    }
    return counted;
}

float softmax_row(const float *logits, uint32_t classes, float temperature, float *probabilities,
                  float *largest)
{
    float inverse = 1.0F / temperature, max;
    double sum;

    CHECK(classes > 0 && temperature > 0.0F);
    max = largest_of(logits, classes) * inverse;
    sum = exponentials(logits, classes, inverse, max, probabilities);
    if (probabilities != NULL) scale(probabilities, classes, (float)(1.0 / sum));
    *largest = max;
    return (float)log(sum);
}

/* Whether the label is the argmax of a row whose largest value is known. */
static bool is_hit(const float *z, uint32_t label, float max)
{
    if (isnan(z[0])) return label == 0;
    return z[label] == max && find(z, label, max) == label;
}

/* Row `row`; returns whether it is a hit. */
static bool wide_row(const struct softmax_rows *r, size_t row)
{
    const float *z = r->logits + row * r->classes;
    float *gradient = r->gradient != NULL ? r->gradient + row * r->classes : NULL;
    uint32_t label = r->labels[row];
    float chosen, max;
    double sum, hit;
    bool is_right;

    r->losses[row] = 0.0;
    if (label == LABEL_IGNORE) {
        if (gradient != NULL) memset(gradient, 0, r->classes * sizeof(*gradient));
        return false;
    }
    chosen = z[label];
    max = largest_of(z, r->classes);
    is_right = is_hit(z, label, max);
    sum = exponentials(z, r->classes, 1.0F, max, gradient);
    r->losses[row] = log(sum) - ((double)chosen - (double)max);
    if (gradient == NULL) return is_right;
    hit = ((double)gradient[label] / sum - 1.0) / r->counted; /* not rounded twice */
    scale(gradient, r->classes, (float)(1.0 / sum / r->counted));
    gradient[label] = (float)hit;
    return is_right;
}

/* Rows [first, first + rows), LANES at the most; returns the hits. */
static uint32_t narrow_rows(const struct softmax_rows *r, size_t first, size_t rows)
{
    struct narrow narrow;
    uint32_t hits = 0;

    narrow_load(&narrow, r->logits + first * r->classes, rows, r->classes);
    for (size_t l = 0; l < rows; l++) {
        const float *z = r->logits + (first + l) * r->classes;
        float *out = r->gradient != NULL ? r->gradient + (first + l) * r->classes : NULL;
        float share = 1.0F / (narrow.sum[l] * (float)r->counted);
        uint32_t label = r->labels[first + l];

        r->losses[first + l] = 0.0;
        if (label != LABEL_IGNORE) {
            hits += is_hit(z, label, narrow.max[l]);
            r->losses[first + l] =
                (double)narrow.ln_sum[l] - ((double)z[label] - (double)narrow.max[l]);
        }
        if (out == NULL) continue;
        for (uint32_t c = 0; c < r->classes; c++) {
            out[c] = label != LABEL_IGNORE ? narrow.e[c][l] * share : 0.0F;
        }
        if (label != LABEL_IGNORE) {
            out[label] = (narrow.e[label][l] / narrow.sum[l] - 1.0F) / (float)r->counted;
        }
    }
    return hits;
}

uint32_t softmax_label_losses(const struct softmax_rows *rows)
{
    const struct softmax_rows *r = rows;
    uint32_t hits = 0;

    CHECK(r->classes > 0);
    for (uint32_t i = 0; i < r->rows; i++) {
        CHECK(r->labels[i] < r->classes || r->labels[i] == LABEL_IGNORE);
    }
    for (size_t i = 0; r->classes <= NARROW_MAX && i < r->rows; i += LANES) {
        hits += narrow_rows(r, i, r->rows - i < LANES ? r->rows - i : LANES);
    }
    for (size_t i = 0; r->classes > NARROW_MAX && i < r->rows; i++) {
        hits += wide_row(r, i);
    }
    return hits;
}

double softmax_cross_entropy(const float *logits, const uint32_t *labels, uint32_t rows,
                             uint32_t classes, float *gradient, uint32_t *correct)
{
    enum { PART = 4 * LANES };
    const uint32_t counted = softmax_counted(labels, rows);
    double losses[PART], sum = 0.0;

    *correct = 0;
    for (uint32_t first = 0; first < rows; first += PART) {
        const size_t at = (size_t)first * classes;
        const struct softmax_rows part = {
            .logits = logits + at,
            .labels = labels + first,
            .rows = rows - first < PART ? rows - first : PART,
            .classes = classes,
            .counted = counted,
            .gradient = gradient != NULL ? gradient + at : NULL,
            .losses = losses,
        };

        *correct += softmax_label_losses(&part);
        for (uint32_t r = 0; r < part.rows; r++) {
            sum += losses[r];
        }
    }
    return sum;
}

/* One row that counts; adds to `sums`, writes its gradient. */
static void mix(const struct softmax_mixture *m, uint32_t row, struct softmax_sums *sums)
{
    size_t at = (size_t)row * m->classes;
    const float *z = m->logits + at, *targets = m->targets + at;
    float inverse = (float)(1.0 / m->temperature), max = largest_of(z, m->classes);
    struct target_sums target = weigh_targets(z, targets, m->classes, inverse, max * inverse);
    double soft = exponentials(z, m->classes, inverse, max * inverse, NULL), hard = 1.0;
    uint32_t label = m->labels != NULL ? m->labels[row] : 0;
    struct gradient_row gradient = {.max = max, .inverse = inverse};

    sums->soft += target.mass * log(soft) - target.product;
    sums->entropy += target.entropy;
    if (m->labels != NULL) {
        CHECK(label < m->classes);
        hard = exponentials(z, m->classes, 1.0F, max, NULL);
        sums->hard += log(hard) - ((double)z[label] - (double)max);
        sums->correct += softmax_argmax(z, m->classes) == label;
    }
    if (m->gradient == NULL) return;
    gradient.hard = (float)(m->hard_share / hard / sums->counted);
    gradient.target = (float)(m->soft_share / m->temperature / sums->counted);
    gradient.soft = (float)(m->soft_share / m->temperature / sums->counted * target.mass / soft);
    mix_gradient(&gradient, z, targets, m->classes, m->gradient + at);
    if (m->labels != NULL) m->gradient[at + label] -= (float)(m->hard_share / sums->counted);
}

struct softmax_sums softmax_mixture(const struct softmax_mixture *mixture)
{
    const struct softmax_mixture *m = mixture;
    struct softmax_sums sums = {.counted = m->rows};

    CHECK(m->classes > 0 && m->temperature > 0.0);
    CHECK(m->labels != NULL || m->hard_share == 0.0);
    if (m->labels != NULL) sums.counted = softmax_counted(m->labels, m->rows);
    if (m->counted > 0) sums.counted = m->counted;
    for (uint32_t r = 0; r < m->rows; r++) {
        if (m->labels == NULL || m->labels[r] != LABEL_IGNORE) {
            mix(m, r, &sums);
        } else if (m->gradient != NULL) {
            memset(m->gradient + (size_t)r * m->classes, 0, m->classes * sizeof(float));
        }
    }
    return sums;
}

void softmax_merge(const float *logits, uint32_t heads, uint32_t classes, float *merged)
{
    float ln_heads = (float)log((double)heads), max, ln_sum;

    CHECK(heads > 0 && classes > 0);
    for (uint32_t h = 0; h < heads; h++) {
        const float *head = logits + (size_t)h * classes;
        ln_sum = softmax_row(head, classes, 1.0F, NULL, &max);
        if (h > 0) {
            merge_row(head, classes, max, ln_sum + ln_heads, merged);
        } else {
            shift_row(head, classes, max, ln_sum + ln_heads, merged);
        }
    }
}

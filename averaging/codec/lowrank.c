/*
 * lowrank:R: a chunk as a matrix M with rows of 256 values, and of that the nearest of rank R,
 * about: M ~ P Q^T. P spans what M makes of R directions, found by subspace iteration, and Q = M^T
 * P. For differences, where what is left out comes later. After PowerSGD (Vogels, Karimireddy,
 * Jaggi 2019, arXiv:1905.13727), which differs:
 *
 * - There P and Q are summed over all peers, so all begin with one Q and none can use another's
 *   alone. Here each peer sends both factors of its own matrix: whoever gets them needs no state.
 * - There a pass costs a sum over all peers, so each round makes one, from the Q of the last (warm
 *   start). Here a pass costs the sender's time alone. Two from random directions find more than
 * one from the last Q: with error feedback that is what was just sent, and the rest is what has to
 * be found (docs/methods.md has it measured). So nothing is kept between rounds.
 * - There M is a layer's own matrix. A chunk knows no layers. Rows of a power of two divide those
 * of most, or are divided by them, and then a layer of rank r is one of r or a few times r here.
 *
 * With V an orthonormal base of the random directions, E V V^T is R / columns times the identity,
 * as no column and no sign is preferred. |P^T M| is |M V| at least, and no pass makes it less. So
 * of |x|^2 no less than R / 256 is said in the mean over the seeds.
 *
 * Bytes: the R columns of P, then those of Q, each as the codec after `|` has them, float32 without
 * one; where that would be no fewer numbers, the values themselves. Q is taken from P as it is
 * decoded, so it makes up for some of what P lost. Whatever P is told, values are sums of products.
 * Sums of the encoder are float64 in a fixed order. Pure; any thread.
 */
#include "averaging/codec/codec.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/floats.h"
#include "base/rng.h"
#include "base/units.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    COLUMNS_MAX = 256,
    ROWS_MAX = CODEC_VALUES_MAX / COLUMNS_MAX,
    RANK_MAX = 32,
    PASSES = 2,
    LANES = 8
};

/* Sums of products stay finite, whatever the next codec does to their factors. */
static const double largest = (double)FLT_MAX / 4096;

/* Of a column's squared length; what is left of it beyond those before it is rounding. */
static const double dependent = 1e-24;

struct shape {
    size_t values, rows, columns; /* the last row may be shorter */
    size_t rank;                  /* 0: the values go as they are */
};

static bool lowrank_parse(const char *text, struct codec_settings *settings)
{
    uint64_t rank;

    if (!units_parse_count(text, &rank) || rank < 1 || rank > RANK_MAX) return false;
    settings->rank = (uint32_t)rank;
    return true;
}

static void lowrank_print(const struct codec_settings *settings, char *text)
{
    snprintf(text, CODEC_NAME_BYTES, "lowrank:%u", settings->rank);
}

/* With another codec behind it no more than the half is promised, as P is not quite what was found.
 */
static struct codec_traits lowrank_traits(const struct codec *self)
{
    const struct codec_traits rest = codec_rest(self).traits;
    const float share = (float)self->settings.rank / COLUMNS_MAX;

    return (struct codec_traits){
        .is_random = true,
        .is_difference = true,
        .contraction = rest.is_lossless ? share : share * rest.contraction / 2,
        .kept = 1,
        .step = 2 * share * rest.step,
    };
}

static struct shape shape_of(const struct codec *self, size_t values)
{
    struct shape shape = {.values = values, .columns = 1, .rank = self->settings.rank};

    while (shape.columns < COLUMNS_MAX && shape.columns * shape.columns < values) {
        shape.columns *= 2;
    }
    shape.rows = (values + shape.columns - 1) / shape.columns;
    if (shape.rank * (shape.rows + shape.columns) >= values) shape.rank = 0;
    return shape;
}

static size_t lowrank_bytes(const struct codec *self, size_t values)
{
    const struct codec rest = codec_rest(self);
    const struct shape shape = shape_of(self, values);

    if (shape.rank == 0) return rest.ops->bytes_max(&rest, values);
    return rest.ops->bytes_max(&rest, shape.rank * shape.rows) +
           rest.ops->bytes_max(&rest, shape.rank * shape.columns);
}

/* ---- the factors ---- */

/* Column k of P at p + k rows, of Q at q + k COLUMNS_MAX, 0 where there are no columns. */
struct factors {
    double p[RANK_MAX * ROWS_MAX], q[RANK_MAX * COLUMNS_MAX];
};

/* Row i, and zeros up to a multiple of LANES. Returns that. */
CPU_LOOP size_t take_row(const struct shape *shape, const float *in, size_t i,
                         double row[COLUMNS_MAX])
{
    const size_t first = i * shape->columns, left = shape->values - first;
    const size_t n = left < shape->columns ? left : shape->columns;
    const size_t width = (shape->columns + LANES - 1) / LANES * LANES;

    for (size_t j = 0; j < n; j++) {
        row[j] = (double)in[first + j];
    }
    for (size_t j = n; j < width; j++) {
        row[j] = 0;
    }
    return width;
}

/* P = M Q */
FOR_EACH_CPU(static, void, apply,
             (const struct shape *shape, const float *restrict in, struct factors *restrict f),
             (shape, in, f))
{
    double row[COLUMNS_MAX];

    for (size_t i = 0; i < shape->rows; i++) {
        const size_t width = take_row(shape, in, i, row);

        for (size_t k = 0; k < shape->rank; k++) {
            const double *q = f->q + k * COLUMNS_MAX;
            double sums[LANES] = {0}, sum = 0;

            for (size_t j = 0; j < width; j += LANES) {
                UNROLLED
                for (size_t lane = 0; lane < LANES; lane++) {
                    sums[lane] += row[j + lane] * q[j + lane];
                }
            }
            for (size_t lane = 0; lane < LANES; lane++) {
                sum += sums[lane];
            }
            f->p[k * shape->rows + i] = sum;
        }
    }
}

/* Q = M^T P */
FOR_EACH_CPU(static, void, apply_transposed,
             (const struct shape *shape, const float *restrict in, struct factors *restrict f),
             (shape, in, f))
{
    double row[COLUMNS_MAX];

    memset(f->q, 0, sizeof f->q);
    for (size_t i = 0; i < shape->rows; i++) {
        const size_t width = take_row(shape, in, i, row);

        for (size_t k = 0; k < shape->rank; k++) {
            const double by = f->p[k * shape->rows + i];
            double *q = f->q + k * COLUMNS_MAX;

            for (size_t j = 0; j < width; j++) {
                q[j] += by * row[j];
            }
        }
    }
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* The columns of P become orthonormal, or 0 where they depend on those before them: modified
 * Gram-Schmidt, twice, as once leaves what rounding puts back (Giraud, Langou, Rozloznik 2005). */
static void orthonormalise(const struct shape *shape, struct factors *f)
{
    const size_t rows = shape->rows;

    for (size_t k = 0; k < shape->rank; k++) {
        double *column = f->p + k * rows, before = dot(column, column, rows), length;

        for (size_t turn = 0; turn < 2 * k; turn++) {
            const double *other = f->p + turn % k * rows;
            const double by = dot(column, other, rows);

            for (size_t i = 0; i < rows; i++) {
                column[i] -= by * other[i];
            }
        }
        length = dot(column, column, rows);
        for (size_t i = 0; i < rows; i++) {
            column[i] = length > dependent * before ? column[i] / sqrt(length) : 0;
        }
    }
}

/* Orthonormal columns of P that say much of M. */
static void find_columns(const struct shape *shape, uint64_t seed, const float *in,
                         struct factors *f)
{
    struct rng rng;

    rng_init(&rng, seed, 0);
    memset(f->q, 0, sizeof f->q);
    for (size_t k = 0; k < shape->rank; k++) {
        for (size_t j = 0; j < shape->columns; j++) {
            f->q[k * COLUMNS_MAX + j] = 2 * rng_unit(&rng) - 1;
        }
    }
    for (int pass = 0; pass < PASSES; pass++) {
        if (pass > 0) apply_transposed(shape, in, f);
        apply(shape, in, f);
        orthonormalise(shape, f);
    }
}

/* ---- bytes ---- */

static size_t lowrank_encode(const struct codec *self, uint64_t seed, const float *in,
                             size_t values, uint8_t *out)
{
    const struct codec rest = codec_rest(self);
    const struct shape shape = shape_of(self, values);
    const size_t count = shape.rank * shape.rows;
    float numbers[RANK_MAX * COLUMNS_MAX];
    struct factors f;
    size_t bytes;

    CHECK(values <= CODEC_VALUES_MAX);
    if (shape.rank == 0) return rest.ops->encode(&rest, seed, in, values, out);
    find_columns(&shape, seed, in, &f);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (float)f.p[i];
    }
    bytes = rest.ops->encode(&rest, rng_mix(seed, 1), numbers, count, out);
    CHECK(rest.ops->decode(&rest, out, bytes, numbers, count) == RC_OK); /* our own */
    for (size_t i = 0; i < count; i++) {
        f.p[i] = (double)numbers[i];
    }
    apply_transposed(&shape, in, &f);
    for (size_t k = 0; k < shape.rank; k++) {
        for (size_t j = 0; j < shape.columns; j++) {
            double number = f.q[k * COLUMNS_MAX + j];

            numbers[k * shape.columns + j] = (float)fmin(fmax(number, -largest), largest);
        }
    }
    return bytes + rest.ops->encode(&rest, rng_mix(seed, 2), numbers, shape.rank * shape.columns,
                                    out + bytes);
}

FOR_EACH_CPU(static, void, multiply,
             (const struct shape *shape, const float *restrict p, const float *restrict q,
              float *restrict out),
             (shape, p, q, out))
{
    memset(out, 0, shape->values * sizeof *out);
    for (size_t i = 0; i < shape->rows; i++) {
        const size_t first = i * shape->columns, left = shape->values - first;
        const size_t n = left < shape->columns ? left : shape->columns;

        for (size_t k = 0; k < shape->rank; k++) {
            const float by = p[k * shape->rows + i];

            for (size_t j = 0; j < n; j++) {
                out[first + j] += by * q[k * shape->columns + j];
            }
        }
    }
}

static enum rc lowrank_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                              size_t values)
{
    const struct codec rest = codec_rest(self);
    float p[RANK_MAX * ROWS_MAX], q[RANK_MAX * COLUMNS_MAX];
    struct shape shape;
    size_t bytes;
    enum rc rc;

    if (values > CODEC_VALUES_MAX || !codec_is_size(self, count, values)) return RC_FORMAT;
    shape = shape_of(self, values);
    if (shape.rank == 0) return rest.ops->decode(&rest, in, count, out, values);
    bytes = rest.ops->bytes_max(&rest, shape.rank * shape.rows);
    rc = rest.ops->decode(&rest, in, bytes, p, shape.rank * shape.rows);
    if (rc != RC_OK) return rc;
    rc = rest.ops->decode(&rest, in + bytes, count - bytes, q, shape.rank * shape.columns);
    if (rc != RC_OK) return rc;
    multiply(&shape, p, q, out);
    return floats_are_finite(out, values) ? RC_OK : RC_NONFINITE;
}

const struct codec_ops codec_ops_lowrank = {
    .word = "lowrank",
    .usage = "lowrank:RANK, from 1 to 32",
    .format = CODEC_FORMATS,
    .is_sparse = true,
    .parse = lowrank_parse,
    .print = lowrank_print,
    .traits = lowrank_traits,
    .bytes_max = lowrank_bytes,
    .encode = lowrank_encode,
    .decode = lowrank_decode,
};

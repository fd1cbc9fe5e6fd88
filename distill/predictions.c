/* predictions: see predictions.h. */
#include "distill/predictions.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "kernels/codec.h"

#include <math.h>
#include <string.h>

enum { IDS_SHORT = 65536, HALF = 2 };
/* Logarithms: the least that is told, and how far above 0 rounding can lead. What probabilities add
 * up to may be off by their rounding; anything further away is not one. */
static const float least = -64, most = 1e-3F;
static const double sum_least = 0.9, sum_most = 1.1;

static bool tells_all(const struct predictions_shape *shape)
{
    return shape->top == 0 || shape->top >= shape->outputs;
}

static size_t id_bytes(const struct predictions_shape *shape)
{
    return shape->outputs <= IDS_SHORT ? 2 : 4;
}

static size_t row_bytes(const struct predictions_shape *shape)
{
    if (shape->is_real) return shape->outputs * sizeof(float);
    if (tells_all(shape)) return (size_t)shape->outputs * HALF;
    return shape->top * (id_bytes(shape) + HALF);
}

size_t predictions_bytes(const struct predictions_shape *shape)
{
    return shape->rows * row_bytes(shape);
}

static void put_logarithm(float probability, uint8_t *out)
{
    const float logarithm = probability > 0 ? fminf(fmaxf(logf(probability), least), 0) : least;

    codec_encode(CODEC_F16, &logarithm, 1, out);
}

/* The likeliest classes in their order, the first of equals first: a heap would win only for a
 * `top` far larger than is of use. */
static void encode_top(const struct predictions_shape *shape, const float *row, uint8_t *out)
{
    const size_t ids = id_bytes(shape);
    float last = INFINITY;
    uint32_t last_class = 0;

    for (uint32_t k = 0; k < shape->top; k++, out += ids + HALF) {
        uint32_t best = shape->outputs;
        for (uint32_t c = 0; c < shape->outputs; c++) {
            const bool is_after = row[c] < last || (row[c] == last && k > 0 && c > last_class);
            if (is_after && (best == shape->outputs || row[c] > row[best])) best = c;
        }
        CHECK(best < shape->outputs);
        last = row[best];
        last_class = best;
        if (ids == 2) store_le16(out, (uint16_t)best);
        if (ids == 4) store_le32(out, best);
        put_logarithm(row[best], out + ids);
    }
}

void predictions_encode(const struct predictions_shape *shape, const float *values, size_t samples,
                        uint8_t *out)
{
    const size_t rows = samples * shape->rows, each = row_bytes(shape);

    for (size_t r = 0; r < rows; r++, values += shape->outputs, out += each) {
        if (shape->is_real) {
            for (uint32_t c = 0; c < shape->outputs; c++) {
                store_le_float(out + 4 * c, values[c]);
            }
        } else if (tells_all(shape)) {
            for (uint32_t c = 0; c < shape->outputs; c++) {
                put_logarithm(values[c], out + HALF * (size_t)c);
            }
        } else {
            encode_top(shape, values, out);
        }
    }
}

static enum rc get_logarithm(const uint8_t *bytes, float *logarithm)
{
    const enum rc rc = codec_decode(CODEC_F16, bytes, logarithm, 1);

    if (rc != RC_OK) return RC_NONFINITE;
    return *logarithm >= least && *logarithm <= most ? RC_OK : RC_FORMAT;
}

/* exp(logarithm / T), over their sum. */
static void soften(float *row, uint32_t count, double temperature)
{
    float largest = -INFINITY;
    double sum = 0;

    for (uint32_t c = 0; c < count; c++) {
        largest = fmaxf(largest, row[c]);
    }
    for (uint32_t c = 0; c < count; c++) {
        row[c] = (float)exp((double)(row[c] - largest) / temperature);
        sum += (double)row[c];
    }
    for (uint32_t c = 0; c < count; c++) {
        row[c] = (float)((double)row[c] / sum);
    }
}

static enum rc decode_all(const struct predictions_shape *shape, const uint8_t *bytes,
                          double temperature, float *row)
{
    double sum = 0;

    for (uint32_t c = 0; c < shape->outputs; c++) {
        const enum rc rc = get_logarithm(bytes + HALF * (size_t)c, &row[c]);
        if (rc != RC_OK) return rc;
        sum += exp((double)row[c]);
    }
    if (sum < sum_least || sum > sum_most) return RC_FORMAT;
    soften(row, shape->outputs, temperature);
    return RC_OK;
}

static enum rc decode_top(const struct predictions_shape *shape, const uint8_t *bytes,
                          double temperature, float *row)
{
    const size_t ids = id_bytes(shape);
    const uint32_t others = shape->outputs - shape->top;
    double sum = 0, left;

    for (uint32_t c = 0; c < shape->outputs; c++) {
        row[c] = INFINITY; /* not told */
    }
    for (uint32_t k = 0; k < shape->top; k++, bytes += ids + HALF) {
        const uint32_t class = ids == 2 ? load_le16(bytes) : load_le32(bytes);
        float logarithm;
        const enum rc rc = get_logarithm(bytes + ids, &logarithm);

        if (rc != RC_OK) return rc;
        if (class >= shape->outputs || row[class] != INFINITY) return RC_FORMAT;
        row[class] = logarithm;
        sum += exp((double)logarithm);
    }
    if (sum > sum_most) return RC_FORMAT;
    left = fmax((1 - sum) / others, exp((double)least));
    for (uint32_t c = 0; c < shape->outputs; c++) {
        if (row[c] == INFINITY) row[c] = (float)log(left);
    }
    soften(row, shape->outputs, temperature);
    return RC_OK;
}

static enum rc decode_real(const struct predictions_shape *shape, const uint8_t *bytes, float *row)
{
    for (uint32_t c = 0; c < shape->outputs; c++) {
        row[c] = load_le_float(bytes + 4 * (size_t)c);
        if (!isfinite(row[c])) return RC_NONFINITE;
    }
    return RC_OK;
}

enum rc predictions_decode(const struct predictions_shape *shape, const uint8_t *bytes,
                           size_t samples, double temperature, float *values)
{
    const size_t rows = samples * shape->rows, each = row_bytes(shape);
    enum rc rc = RC_OK;

    for (size_t r = 0; rc == RC_OK && r < rows; r++, values += shape->outputs, bytes += each) {
        if (shape->is_real) {
            rc = decode_real(shape, bytes, values);
        } else if (tells_all(shape)) {
            rc = decode_all(shape, bytes, temperature, values);
        } else {
            rc = decode_top(shape, bytes, temperature, values);
        }
    }
    return rc;
}

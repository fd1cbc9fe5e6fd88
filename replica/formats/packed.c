/* packed: see packed.h. Commands. */
#include "replica/formats/packed.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/plane/store_safetensors.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PART_NAME_BYTES = TENSOR_NAME_BYTES + 8 };

/* The entries that make one weight. */
struct packed {
    const struct tensor_view *mask; /* NULL: every value is there */
    const struct tensor_view *values, *scale;
    bool is_int8;
};

bool packed_may(const struct tensor *tensor)
{
    return tensor->section == SECTION_PARAMETERS && tensor->rank >= 2;
}

uint64_t packed_values_max(const struct tensor_view *view)
{
    const uint64_t each = strcmp(view->dtype, "U8") == 0 ? 8 : 1; /* bits of a mask, or int8 */

    return each * view->bytes_count;
}

static size_t mask_bytes(size_t count)
{
    return count / 8 + (count % 8 != 0);
}

static bool has_bit(const uint8_t *mask, size_t i)
{
    return (mask[i / 8] >> i % 8 & 1) != 0;
}

/* ---- writing ---- */

static float scale_of(const float *values, size_t count)
{
    float most = 0.0F, scale;

    for (size_t i = 0; i < count; i++) {
        CHECK(isfinite(values[i]));
        most = fmaxf(most, fabsf(values[i]));
    }
    scale = most / PACKED_MOST;
    if (scale < FLT_MIN) return 1.0F; /* all of them are 0, or may as well be */
    if (!isfinite(scale * PACKED_MOST)) scale = nextafterf(scale, 0.0F);
    return scale;
}

/* q and s of all channels. */
static void quantise(const struct tensor *tensor, const float *values, int8_t *q, float *scales)
{
    const size_t each = tensor->count / tensor->shape[0];

    for (size_t c = 0; c < tensor->shape[0]; c++) {
        scales[c] = scale_of(values + c * each, each);
        for (size_t i = c * each; i < (c + 1) * each; i++) {
            const float rounded = rintf(values[i] / scales[c]);
            q[i] = (int8_t)fmaxf(-PACKED_MOST, fminf(rounded, PACKED_MOST));
        }
    }
}

static enum rc add_part(struct tensor_file *file, const struct tensor *tensor, const char *part,
                        const char *dtype, size_t width, size_t count, const void *bytes)
{
    char name[PART_NAME_BYTES];
    struct tensor_view view = {.name = name, .dtype = dtype, .rank = 1, .bytes = bytes};

    snprintf(name, sizeof name, "%s%s", tensor->name, part);
    view.shape[0] = count;
    view.bytes_count = count * width;
    return tensor_file_add_copy(file, &view);
}

static enum rc add_dense(struct tensor_file *file, const struct tensor *tensor, const char *dtype,
                         size_t width, const void *values)
{
    struct tensor_view view = {.name = tensor->name,
                               .dtype = dtype,
                               .rank = tensor->rank,
                               .bytes = values,
                               .bytes_count = tensor->count * width};

    for (uint32_t d = 0; d < tensor->rank; d++) {
        view.shape[d] = tensor->shape[d];
    }
    return tensor_file_add_copy(file, &view);
}

/* Those that are not 0, by their bytes: a negative zero of a float is 0, too. */
static enum rc add_sparse(struct tensor_file *file, const struct tensor *tensor, bool is_int8,
                          const void *values, size_t kept)
{
    const size_t width = is_int8 ? sizeof(int8_t) : sizeof(float),
                 bytes = mask_bytes(tensor->count);
    uint8_t *mask = mem_array(bytes, 1), *there = mem_array(kept > 0 ? kept : 1, width);
    size_t at = 0;
    enum rc rc = mask == NULL || there == NULL ? RC_NOMEM : RC_OK;

    for (size_t i = 0; rc == RC_OK && i < tensor->count; i++) {
        const uint8_t *value = (const uint8_t *)values + i * width;
        const bool is_zero =
            is_int8 ? *(const int8_t *)value == 0 : !(fabsf(((const float *)values)[i]) > 0.0F);
        if (is_zero) continue;
        mask[i / 8] = (uint8_t)(mask[i / 8] | 1U << i % 8);
        memcpy(there + at++ * width, value, width);
    }
    CHECK(rc != RC_OK || at == kept);
    if (rc == RC_OK) rc = add_part(file, tensor, ".mask", "U8", 1, bytes, mask);
    if (rc == RC_OK) {
        rc = add_part(file, tensor, ".values", is_int8 ? "I8" : "F32", width, kept, there);
    }
    mem_free(mask);
    mem_free(there);
    return rc;
}

enum rc packed_add(struct tensor_file *file, const struct tensor *tensor, const float *values,
                   bool is_int8)
{
    const size_t width = is_int8 ? sizeof(int8_t) : sizeof(float), count = tensor->count;
    int8_t *q = is_int8 ? mem_array(count, sizeof *q) : NULL;
    float *scales = is_int8 ? mem_array(tensor->shape[0], sizeof *scales) : NULL;
    const void *from = is_int8 ? (const void *)q : values;
    size_t kept = 0;
    enum rc rc = is_int8 && (q == NULL || scales == NULL) ? RC_NOMEM : RC_OK;

    CHECK(packed_may(tensor));
    if (rc == RC_OK && is_int8) quantise(tensor, values, q, scales);
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        kept += is_int8 ? q[i] != 0 : fabsf(values[i]) > 0.0F;
    }
    if (rc == RC_OK && mask_bytes(count) + kept * width < count * width) {
        rc = add_sparse(file, tensor, is_int8, from, kept);
    } else if (rc == RC_OK) {
        rc = add_dense(file, tensor, is_int8 ? "I8" : "F32", width, from);
    }
    if (rc == RC_OK && is_int8) {
        rc = add_part(file, tensor, ".scale", "F32", sizeof(float), tensor->shape[0], scales);
    }
    mem_free(q);
    mem_free(scales);
    return rc;
}

/* ---- reading ---- */

static const struct tensor_view *part_of(const struct tensor_file *file,
                                         const struct tensor *tensor, const char *part)
{
    char name[PART_NAME_BYTES];

    snprintf(name, sizeof name, "%s%s", tensor->name, part);
    return tensor_file_find(file, name);
}

static bool is_of(const struct tensor_view *view, const char *dtype)
{
    return strcmp(view->dtype, dtype) == 0;
}

bool packed_is(const struct tensor_file *file, const struct tensor *tensor)
{
    const struct tensor_view *view = tensor_file_find(file, tensor->name);

    if (!packed_may(tensor)) return false;
    return view != NULL ? is_of(view, "I8") : part_of(file, tensor, ".mask") != NULL;
}

static struct packed find(const struct tensor_file *file, const struct tensor *tensor)
{
    struct packed p = {.values = tensor_file_find(file, tensor->name),
                       .scale = part_of(file, tensor, ".scale")};

    if (p.values == NULL) {
        p.mask = part_of(file, tensor, ".mask");
        p.values = part_of(file, tensor, ".values");
    }
    p.is_int8 = p.values != NULL && is_of(p.values, "I8");
    return p;
}

static bool has_shape(const struct tensor_view *view, const uint32_t *shape, uint32_t rank)
{
    bool is_so = view->rank == rank;

    for (uint32_t d = 0; is_so && d < rank; d++) {
        is_so = view->shape[d] == shape[d];
    }
    return is_so;
}

static bool is_row(const struct tensor_view *view, const char *dtype, uint64_t count)
{
    return view != NULL && is_of(view, dtype) && view->rank == 1 && view->shape[0] == count;
}

static uint64_t count_bits(const uint8_t *mask, size_t bytes)
{
    uint64_t bits = 0;

    for (size_t i = 0; i < bytes; i++) {
        bits += (uint64_t)__builtin_popcount(mask[i]);
    }
    return bits;
}

/* What is wrong with the values; NULL: nothing. */
static const char *judge_values(const struct packed *p, const struct tensor *tensor)
{
    const size_t bytes = mask_bytes(tensor->count);
    const uint8_t *mask;

    if (p->mask == NULL) {
        return has_shape(p->values, tensor->shape, tensor->rank)
                   ? NULL
                   : "has another shape than its layer list says";
    }
    if (!is_row(p->mask, "U8", bytes)) return "has a mask of another size or type";
    if (p->values == NULL) return "has a mask and no values";
    mask = p->mask->bytes;
    if (tensor->count % 8 != 0 && mask[bytes - 1] >> tensor->count % 8 != 0) {
        return "has a mask with bits behind its end";
    }
    if (!is_row(p->values, p->is_int8 ? "I8" : "F32", count_bits(mask, bytes))) {
        return "has other values than its mask says";
    }
    return NULL;
}

static enum rc judge(const struct packed *p, const char *name, const struct tensor *tensor,
                     struct fault *why)
{
    const char *wrong = judge_values(p, tensor);
    const int8_t *q;
    const float *scales;

    if (wrong == NULL && p->is_int8 && !is_row(p->scale, "F32", tensor->shape[0])) {
        wrong = "has no scale for each of its channels";
    }
    if (wrong != NULL) {
        return fault_set(why, RC_SHAPE, "cannot use %s: tensor '%s' %s", name, tensor->name, wrong);
    }
    if (!p->is_int8) return RC_OK;
    q = p->values->bytes;
    scales = p->scale->bytes;
    for (size_t c = 0; c < tensor->shape[0]; c++) {
        if (isfinite(scales[c]) && scales[c] > 0.0F) continue;
        return fault_set(why, RC_NONFINITE,
                         "cannot use %s: tensor '%s.scale' holds what is no number above 0", name,
                         tensor->name);
    }
    for (size_t i = 0; i < p->values->bytes_count; i++) {
        if (q[i] >= -PACKED_MOST) continue;
        return fault_set(why, RC_FORMAT,
                         "cannot use %s: tensor '%s' holds -128, which its form does not have",
                         name, tensor->name);
    }
    return RC_OK;
}

/* All values, of `width` bytes each, those that are left out as 0. */
static void spread(const struct packed *p, size_t count, size_t width, void *to)
{
    const uint8_t *from = p->values->bytes, *mask = p->mask != NULL ? p->mask->bytes : NULL;
    uint8_t *out = to;

    if (mask == NULL) {
        memcpy(out, from, count * width);
        return;
    }
    memset(out, 0, count * width);
    for (size_t i = 0; i < count; i++) {
        if (!has_bit(mask, i)) continue;
        memcpy(out + i * width, from, width);
        from += width;
    }
}

enum rc packed_read(const struct tensor_file *file, const char *name, const struct tensor *tensor,
                    float *values, struct fault *why)
{
    const struct packed p = find(file, tensor);
    const size_t each = tensor->count / tensor->shape[0];
    const float *scales;
    int8_t *q;
    enum rc rc;

    CHECK(packed_is(file, tensor));
    rc = judge(&p, name, tensor, why);
    if (rc != RC_OK) return rc;
    if (!p.is_int8) {
        spread(&p, tensor->count, sizeof *values, values);
        return RC_OK;
    }
    q = mem_array(tensor->count, sizeof *q);
    if (q == NULL) return fault_set(why, RC_NOMEM, "cannot use %s: out of memory", name);
    spread(&p, tensor->count, sizeof *q, q);
    scales = p.scale->bytes;
    for (size_t i = 0; i < tensor->count; i++) {
        values[i] = (float)q[i] * scales[i / each];
    }
    mem_free(q);
    return RC_OK;
}

bool packed_int8(const struct tensor_file *file, const struct tensor *tensor, int8_t *values,
                 const float **scales)
{
    const struct packed p = find(file, tensor);

    if (!packed_may(tensor) || !p.is_int8) return false;
    spread(&p, tensor->count, sizeof *values, values);
    *scales = p.scale->bytes;
    return true;
}

bool packed_has_int8(const struct tensor_file *file)
{
    for (size_t i = 0; i < tensor_file_count(file); i++) {
        if (is_of(tensor_file_at(file, i), "I8")) return true;
    }
    return false;
}

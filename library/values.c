/*
 * Between the tensors of a program, in their own dtypes, and flat float32 vectors. What is added is
 * added in float32 and rounded once. Halves are converted as codecs of the same name convert.
 */
#include "library/member.h"

#include "kernels/codec.h"

#include <string.h>

enum { PIECE = 1024 }; /* values that are added at a time */

static enum codec_format format_of(const struct member_tensor *tensor)
{
    if (tensor->of.dtype == GV_F16) return CODEC_F16;
    return tensor->of.dtype == GV_BF16 ? CODEC_BF16 : CODEC_F32;
}

static uint8_t *values_at(const struct member_tensor *tensor, size_t first)
{
    return (uint8_t *)tensor->of.values + codec_bytes(format_of(tensor), first);
}

static enum rc read_piece(const struct member_tensor *tensor, size_t first, size_t count,
                          float *out)
{
    return codec_decode(format_of(tensor), values_at(tensor, first), out, count);
}

static void write_piece(const struct member_tensor *tensor, size_t first, size_t count,
                        const float *from)
{
    codec_encode(format_of(tensor), from, count, values_at(tensor, first));
}

bool values_are_here(const struct gv_member *member)
{
    for (size_t i = 0; i < member->tensors_count; i++) {
        if (member->tensors[i].of.values == NULL) return false;
    }
    return true;
}

enum rc values_read(const struct gv_member *member, float *parameters, float *buffers)
{
    enum rc rc = RC_OK;

    for (size_t i = 0; i < member->tensors_count && rc == RC_OK; i++) {
        const struct member_tensor *tensor = &member->tensors[i];
        float *out = tensor->of.kind == GV_PARAMETER ? parameters : buffers;

        if (out != NULL) rc = read_piece(tensor, 0, tensor->count, out + tensor->at);
    }
    return rc;
}

void values_write(const struct gv_member *member, const float *parameters, const float *buffers)
{
    for (size_t i = 0; i < member->tensors_count; i++) {
        const struct member_tensor *tensor = &member->tensors[i];
        const float *from = tensor->of.kind == GV_PARAMETER ? parameters : buffers;

        if (from != NULL) write_piece(tensor, 0, tensor->count, from + tensor->at);
    }
}

enum rc values_add(const struct gv_member *member, const float *difference)
{
    float values[PIECE];
    enum rc rc = RC_OK;

    for (size_t i = 0; i < member->tensors_count; i++) {
        const struct member_tensor *tensor = &member->tensors[i];

        if (tensor->of.kind != GV_PARAMETER) continue;
        for (size_t at = 0; at < tensor->count && rc == RC_OK; at += PIECE) {
            const size_t count = tensor->count - at < PIECE ? tensor->count - at : PIECE;

            rc = read_piece(tensor, at, count, values);
            for (size_t k = 0; k < count && rc == RC_OK; k++) {
                values[k] += difference[tensor->at + at + k];
            }
            if (rc == RC_OK) write_piece(tensor, at, count, values);
        }
    }
    return rc;
}

/*
 * The list of codecs, and the test every float from outside must pass. What the formats are, and
 * the loops, is in kernels/codec.h, because devices write the same bytes. Pure; any thread.
 */
#include "averaging/codec/codec.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/words.h"
#include "gossip/wire/limits.h"

#include <string.h>

_Static_assert(CHUNK_VALUES % CODEC_BLOCK == 0, "chunk by chunk is the same as all at once");
_Static_assert(CHUNK_VALUES * sizeof(float) + 16 <= BULK_BYTES_MAX, "a chunk of any codec fits");

/* No format takes more than 5 bytes a value. */
static bool is_size(enum codec_format format, size_t count, size_t values)
{
    return values <= SIZE_MAX / 8 && count == codec_bytes(format, values);
}

/* One table with its three functions. */
#define CODEC(text, FORMAT, lossless)                                                              \
    static size_t text##_encoded_bytes(size_t values)                                              \
    {                                                                                              \
        return codec_bytes(FORMAT, values);                                                        \
    }                                                                                              \
    static void text##_encode(const float *in, size_t values, uint8_t *out)                        \
    {                                                                                              \
        codec_encode(FORMAT, in, values, out);                                                     \
    }                                                                                              \
    static enum rc text##_decode(const uint8_t *in, size_t count, float *out, size_t values)       \
    {                                                                                              \
        return is_size(FORMAT, count, values) ? codec_decode(FORMAT, in, out, values) : RC_FORMAT; \
    }                                                                                              \
    const struct codec_ops codec_##text = {                                                        \
        .name = #text,                                                                             \
        .format = FORMAT,                                                                          \
        .is_lossless = lossless,                                                                   \
        .encoded_bytes = text##_encoded_bytes,                                                     \
        .encode = text##_encode,                                                                   \
        .decode = text##_decode,                                                                   \
    }

CODEC(f32, CODEC_F32, true);
CODEC(f16, CODEC_F16, false);
CODEC(bf16, CODEC_BF16, false);
CODEC(int8, CODEC_INT8, false);

static const struct codec_ops *const codecs[] = {&codec_f32, &codec_f16, &codec_bf16, &codec_int8};
_Static_assert(ARRAY_COUNT(codecs) == CODEC_FORMATS, "a table for each format");

const struct codec_ops *codec_at(size_t index)
{
    return index < ARRAY_COUNT(codecs) ? codecs[index] : NULL;
}

enum rc codec_find(const char *name, const struct codec_ops **codec, struct fault *why)
{
    static const struct word_synonym synonyms[] = {
        {"fp32", "f32"},   {"float32", "f32"},   {"fp16", "f16"},  {"float16", "f16"},
        {"half", "f16"},   {"bfloat16", "bf16"}, {"8bit", "int8"}, {"q8", "int8"},
        {"uint8", "int8"}, {"fp8", "int8"},      {NULL, NULL},
    };
    const char *names[ARRAY_COUNT(codecs)];
    char hint[WORD_HINT_BYTES];

    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        names[i] = codecs[i]->name;
        if (strcmp(names[i], name) == 0) {
            *codec = codecs[i];
            return RC_OK;
        }
    }
    for (size_t i = 0; codec_topk_at(i) != NULL; i++) {
        if (strcmp(codec_topk_at(i)->name, name) != 0) continue;
        *codec = codec_topk_at(i);
        return RC_OK;
    }
    if (strncmp(name, "topk:", 5) == 0) {
        return fault_set(why, RC_PARSE,
                         "--codec %s: there is no such share; known: topk:0.01, topk:0.02, "
                         "topk:0.05, topk:0.1 and topk:0.25",
                         name);
    }
    return fault_set(why, RC_PARSE, "--codec %s: unknown codec%s, and topk:SHARE", name,
                     word_hint(name, names, ARRAY_COUNT(codecs), synonyms, hint));
}

size_t codec_plane_bytes(const struct codec_ops *codec, size_t values)
{
    const size_t whole = values / CHUNK_VALUES, rest = values % CHUNK_VALUES;

    return whole * codec->encoded_bytes(CHUNK_VALUES) + codec->encoded_bytes(rest);
}

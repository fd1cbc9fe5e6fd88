/*
 * The list of codecs and the parser of their names. The formats of the processor's and devices' own
 * loops are in kernels/codec.h; the others have a file each.
 */
#include "averaging/codec/codec.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/hash.h"
#include "base/words.h"
#include "gossip/wire/limits.h"

#include <stdio.h>
#include <string.h>

_Static_assert(CHUNK_VALUES % CODEC_BLOCK == 0, "chunk by chunk is the same as all at once");
_Static_assert((int)CHUNK_VALUES <= (int)CODEC_VALUES_MAX, "every codec takes a chunk");
_Static_assert(CHUNK_VALUES * sizeof(float) + 16 <= BULK_BYTES_MAX, "a chunk of any codec fits");

/* ---- formats of kernels/codec.h ---- */

static struct codec_traits format_traits(const struct codec *self)
{
    return codec_at(self->ops->format)->traits;
}

static size_t format_bytes(const struct codec *self, size_t values)
{
    return codec_bytes(self->ops->format, values);
}

static size_t format_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                            uint8_t *out)
{
    (void)seed;
    codec_encode(self->ops->format, in, values, out);
    return codec_bytes(self->ops->format, values);
}

static enum rc format_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                             size_t values)
{
    if (!codec_is_size(self, count, values)) return RC_FORMAT;
    return codec_decode(self->ops->format, in, out, values);
}

/* f16 has a smallest number of 6e-8, so of small values nothing need be left. With int8 no value is
 * off by more than a 254th of the largest of 256, with bf16 by more than a 256th of its own. */
#define FORMAT(text, FORMAT_NAME)                                                                  \
    static const struct codec_ops text##_ops = {                                                   \
        .word = #text,                                                                             \
        .format = FORMAT_NAME,                                                                     \
        .traits = format_traits,                                                                   \
        .bytes_max = format_bytes,                                                                 \
        .encode = format_encode,                                                                   \
        .decode = format_decode,                                                                   \
    };                                                                                             \
    const struct codec codec_##text = {                                                            \
        .ops = &text##_ops,                                                                        \
        .name = #text,                                                                             \
        .traits = {.is_lossless = (FORMAT_NAME) == CODEC_F32,                                      \
                   .is_idempotent = true,                                                          \
                   .is_fine = (FORMAT_NAME) != CODEC_INT8,                                         \
                   .contraction = (FORMAT_NAME) == CODEC_F32   ? 1                                 \
                                  : (FORMAT_NAME) == CODEC_F16 ? 0                                 \
                                                               : 0.99f,                            \
                   .kept = 1,                                                                      \
                   .step = (FORMAT_NAME) == CODEC_INT8 ? 0.8f : 1},                                \
    }

FORMAT(f32, CODEC_F32);
FORMAT(f16, CODEC_F16);
FORMAT(bf16, CODEC_BF16);
FORMAT(int8, CODEC_INT8);

const struct codec *codec_at(size_t index)
{
    static const struct codec *const formats[] = {&codec_f32, &codec_f16, &codec_bf16, &codec_int8};

    _Static_assert(ARRAY_COUNT(formats) == CODEC_FORMATS, "one of each");
    return index < ARRAY_COUNT(formats) ? formats[index] : NULL;
}

/* ---- names ---- */

enum { SPEC_MAX = 64 };

/* Of two with one word each has settings that the other has not. */
static const struct codec_ops *const codecs[] = {&f32_ops,
                                                 &f16_ops,
                                                 &bf16_ops,
                                                 &int8_ops,
                                                 &codec_ops_int4,
                                                 &codec_ops_int2,
                                                 &codec_ops_qsgd,
                                                 &codec_ops_ternary,
                                                 &codec_ops_sign,
                                                 &codec_ops_topk,
                                                 &codec_ops_tiles,
                                                 &codec_ops_randk,
                                                 &codec_ops_threshold,
                                                 &codec_ops_lowrank};

const char *codec_example(size_t index)
{
    static const char *const examples[] = {"int4",
                                           "int2",
                                           "qsgd:1",
                                           "qsgd:16",
                                           "qsgd:127",
                                           "ternary",
                                           "sign",
                                           "topk:0.01",
                                           "topk:0.1",
                                           "topk:64/4096",
                                           "randk:0.01",
                                           "randk:0.1",
                                           "threshold:2",
                                           "lowrank:1",
                                           "lowrank:4",
                                           "topk:0.013|f16",
                                           "topk:0.25|int8",
                                           "topk:64/4096|int2",
                                           "topk:33/4096|int4",
                                           "topk:0.1|sign",
                                           "randk:0.1|qsgd:7",
                                           "threshold:1|ternary",
                                           "lowrank:4|int8",
                                           "lowrank:16|int8",
                                           "lowrank:8|int4"};

    return index < ARRAY_COUNT(examples) ? examples[index] : NULL;
}

static enum rc unknown(const char *spec, const char *word, struct fault *why)
{
    static const struct word_synonym synonyms[] = {
        {"fp32", "f32"},         {"float32", "f32"},    {"fp16", "f16"},   {"float16", "f16"},
        {"half", "f16"},         {"bfloat16", "bf16"},  {"8bit", "int8"},  {"q8", "int8"},
        {"uint8", "int8"},       {"fp8", "int8"},       {"4bit", "int4"},  {"q4", "int4"},
        {"2bit", "int2"},        {"q2", "int2"},        {"1bit", "sign"},  {"signsgd", "sign"},
        {"terngrad", "ternary"}, {"random-k", "randk"}, {"top-k", "topk"}, {"powersgd", "lowrank"},
        {"low-rank", "lowrank"}, {NULL, NULL},
    };
    const char *words[ARRAY_COUNT(codecs)];
    char hint[WORD_HINT_BYTES];
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        if (count > 0 && strcmp(words[count - 1], codecs[i]->word) == 0) continue;
        words[count++] = codecs[i]->word;
    }
    return fault_set(why, RC_PARSE, "--codec %s: unknown codec%s", spec,
                     word_hint(word, words, count, synonyms, hint));
}

/* `text`: WORD[:SETTINGS], cut where the colon is. */
static enum rc find_one(const char *spec, char *text, const struct codec_ops **ops,
                        struct codec_settings *settings, struct fault *why)
{
    char *colon = strchr(text, ':');
    const char *usage = NULL;

    *settings = (struct codec_settings){0};
    if (text[0] == '\0') {
        return fault_set(why, RC_PARSE,
                         "--codec %s: a codec is missing; use one as in int8+ef or topk:0.01|int8",
                         spec);
    }
    if (colon != NULL) *colon = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        *ops = codecs[i];
        if (strcmp((*ops)->word, text) != 0) continue;
        if ((*ops)->usage == NULL && colon == NULL) return RC_OK;
        if ((*ops)->usage == NULL) {
            return fault_set(why, RC_PARSE, "--codec %s: %s takes no settings", spec, text);
        }
        if (colon != NULL && (*ops)->parse(colon + 1, settings)) return RC_OK;
        usage = (*ops)->usage;
    }
    if (usage == NULL) return unknown(spec, text, why);
    return fault_set(why, RC_PARSE, "--codec %s: expected %s", spec, usage);
}

static void print_one(const struct codec_ops *ops, const struct codec_settings *settings,
                      char text[CODEC_NAME_BYTES])
{
    if (ops->usage == NULL) {
        snprintf(text, CODEC_NAME_BYTES, "%s", ops->word);
    } else {
        ops->print(settings, text);
    }
}

/* How two peers know that they mean the same: each part as its own numbers print. */
static enum rc name_it(const char *spec, struct codec *codec, struct fault *why)
{
    char first[CODEC_NAME_BYTES], rest[CODEC_NAME_BYTES] = "";
    int count;

    print_one(codec->ops, &codec->settings, first);
    if (codec->rest != NULL) print_one(codec->rest, &codec->rest_settings, rest);
    count = snprintf(codec->name, sizeof codec->name, "%s%s%s", first,
                     codec->rest != NULL ? "|" : "", rest);
    if (count > 0 && (size_t)count < sizeof codec->name) return RC_OK;
    return fault_set(why, RC_PARSE, "--codec %s: longer than %d characters", spec,
                     CODEC_NAME_BYTES - 1);
}

enum rc codec_find(const char *name, struct codec *codec, struct fault *why)
{
    struct codec found = {.rest = NULL};
    char text[SPEC_MAX];
    char *bar;
    enum rc rc;

    if (strlen(name) >= sizeof text) {
        return fault_set(why, RC_PARSE, "--codec: longer than %d characters", SPEC_MAX - 1);
    }
    memcpy(text, name, strlen(name) + 1);
    bar = strchr(text, '|');
    if (bar != NULL && strchr(bar + 1, '|') != NULL) {
        return fault_set(why, RC_PARSE, "--codec %s: one | at the most: what A of A|B leaves, by B",
                         name);
    }
    if (bar != NULL) *bar = '\0';
    rc = find_one(name, text, &found.ops, &found.settings, why);
    if (rc == RC_OK && bar != NULL) {
        rc = find_one(name, bar + 1, &found.rest, &found.rest_settings, why);
    }
    if (rc != RC_OK) return rc;
    if (bar != NULL && (!found.ops->is_sparse || found.rest->is_sparse)) {
        return fault_set(why, RC_PARSE,
                         "--codec %s: A|B sends the numbers that A leaves by B, so A must be one "
                         "that makes them fewer, such as topk, and B one that does not",
                         name);
    }
    if (found.rest == codec_f32.ops) found.rest = NULL;
    rc = name_it(name, &found, why);
    if (rc != RC_OK) return rc;
    found.traits = found.ops->traits(&found);
    *codec = found;
    return RC_OK;
}

void codec_contract(struct codec *codec)
{
    codec->contracts = true;
    codec->traits = codec->ops->traits(codec);
}

void codec_short_name(const struct codec *codec, char *text, size_t cap)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    enum { DIGITS = 4 };
    struct digest hash;
    size_t count = strlen(codec->name);

    CHECK(cap > DIGITS + 2);
    if (count >= cap) {
        hash = hash_of(codec->name, count);
        count = cap - DIGITS - 2;
        for (size_t i = 0; i < DIGITS; i++) {
            text[count + 1 + i] = digits[hash.bytes[i] & 63];
        }
        text[count] = '~';
        text[cap - 1] = '\0';
    } else {
        text[count] = '\0';
    }
    memcpy(text, codec->name, count);
}

/* ---- what they have in common ---- */

struct codec codec_rest(const struct codec *codec)
{
    struct codec rest = {
        .ops = codec->rest, .settings = codec->rest_settings, .contracts = codec->contracts};

    if (codec->rest == NULL) return codec_f32;
    rest.traits = rest.ops->traits(&rest);
    return rest;
}

bool codec_is_size(const struct codec *codec, size_t count, size_t values)
{
    if (values > SIZE_MAX / 8) return false; /* no format takes more than 6 bytes a value */
    if (codec->ops->varies) return count <= codec->ops->bytes_max(codec, values);
    return count == codec->ops->bytes_max(codec, values);
}

size_t codec_plane_bytes(const struct codec *codec, size_t values)
{
    const size_t whole = values / CHUNK_VALUES, rest = values % CHUNK_VALUES;

    return whole * codec->ops->bytes_max(codec, CHUNK_VALUES) + codec->ops->bytes_max(codec, rest);
}

/*
 * Codec speed: whole passes over normally distributed values, in chunks as rounds use them; the
 * median pass counts, so a busy machine does not. One thread, the caller's.
 */
#include "peer/bench/codecs.h"

#include "averaging/codec/codec.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"

#include <math.h>

enum { VALUES_DEFAULT = 4194304, PASSES_DEFAULT = 15, PASSES_MAX = 1000 };

struct bench {
    struct bench_clock clock;
    size_t values;
    uint32_t passes;
    size_t chunks;
    float *in, *out;  /* [values] */
    uint8_t *encoded; /* [chunks] of the largest encoding */
    size_t *counts;   /* [chunks]: bytes of each */
    double *seconds;  /* [passes] */
};

static uint64_t now_ns(const struct bench *bench)
{
    return bench->clock.now_ns(bench->clock.context);
}

static size_t chunk_values(const struct bench *bench, size_t chunk)
{
    size_t left = bench->values - chunk * CHUNK_VALUES;

    return left < CHUNK_VALUES ? left : CHUNK_VALUES;
}

static uint8_t *place_of(const struct bench *bench, const struct codec *codec, size_t chunk)
{
    return bench->encoded + chunk * codec->ops->bytes_max(codec, CHUNK_VALUES);
}

static void pass_encode(const struct bench *bench, const struct codec *codec)
{
    for (size_t i = 0; i < bench->chunks; i++) {
        bench->counts[i] = codec->ops->encode(codec, i, bench->in + i * CHUNK_VALUES,
                                              chunk_values(bench, i), place_of(bench, codec, i));
    }
}

static void pass_decode(const struct bench *bench, const struct codec *codec)
{
    for (size_t i = 0; i < bench->chunks; i++) {
        enum rc rc = codec->ops->decode(codec, place_of(bench, codec, i), bench->counts[i],
                                        bench->out + i * CHUNK_VALUES, chunk_values(bench, i));

        CHECK(rc == RC_OK); /* we encoded it ourselves */
    }
}

/* Gigabytes of float32 a second of the median pass. */
static double rate(const struct bench *bench, const struct codec *codec,
                   void (*pass)(const struct bench *, const struct codec *))
{
    pass(bench, codec); /* pages are there, clocks are up */
    for (uint32_t i = 0; i < bench->passes; i++) {
        uint64_t begun = now_ns(bench);

        pass(bench, codec);
        bench->seconds[i] = (double)(now_ns(bench) - begun) * 1e-9;
    }
    return (double)bench->values * sizeof(float) * 1e-9 /
           fmax(bench_spread_of(bench->seconds, bench->passes).median, 1e-9);
}

static double relative_error(const struct bench *bench)
{
    double error = 0, norm = 0;

    for (size_t i = 0; i < bench->values; i++) {
        double apart = (double)bench->out[i] - (double)bench->in[i];

        error += apart * apart;
        norm += (double)bench->in[i] * (double)bench->in[i];
    }
    return sqrt(error / norm);
}

static struct json *row_of(const struct bench *bench, const struct codec *codec)
{
    struct json *row = json_object_create();
    double encoded = 0;

    json_set_text(row, "codec", codec->name);
    json_set_count(row, "values", bench->values);
    json_set_real(row, "encode_gb_per_s", rate(bench, codec, pass_encode));
    json_set_real(row, "decode_gb_per_s", rate(bench, codec, pass_decode));
    for (size_t i = 0; i < bench->chunks; i++) {
        encoded += (double)bench->counts[i];
    }
    json_set_real(row, "ratio", (double)bench->values * sizeof(float) / fmax(encoded, 1));
    json_set_real(row, "relative_error", relative_error(bench));
    return row;
}

/* Those for models, then the others. False: past the end. */
static bool codec_number(size_t index, struct codec *codec)
{
    const char *name;

    if (codec_at(index) != NULL) {
        *codec = *codec_at(index);
        return true;
    }
    name = codec_example(index - CODEC_FORMATS);
    if (name == NULL) return false;
    CHECK(codec_find(name, codec, NULL) == RC_OK);
    return true;
}

static size_t largest_encoding(size_t chunks)
{
    struct codec codec;
    size_t largest = 0;

    for (size_t i = 0; codec_number(i, &codec); i++) {
        size_t bytes = codec.ops->bytes_max(&codec, CHUNK_VALUES);

        if (bytes > largest) largest = bytes;
    }
    return chunks * largest;
}

enum rc bench_codecs(const struct bench_codecs_options *options, struct json **rows,
                     struct fault *why)
{
    struct bench bench = {.clock = options->clock,
                          .values = options->values == 0 ? VALUES_DEFAULT : options->values,
                          .passes = options->passes == 0 ? PASSES_DEFAULT : options->passes};
    struct codec codec;
    enum rc rc = RC_OK;
    struct rng rng;

    if (bench.values > UINT32_MAX || bench.passes > PASSES_MAX) {
        return fault_set(why, RC_LIMIT, "bench codecs: too many values or passes");
    }
    bench.in = mem_aligned(bench.values * sizeof(float));
    bench.out = mem_aligned(bench.values * sizeof(float));
    bench.chunks = (bench.values + CHUNK_VALUES - 1) / CHUNK_VALUES;
    bench.encoded = mem_aligned(largest_encoding(bench.chunks));
    bench.counts = mem_array(bench.chunks, sizeof(size_t));
    bench.seconds = mem_array(bench.passes, sizeof(double));
    if (bench.in == NULL || bench.out == NULL || bench.encoded == NULL || bench.counts == NULL ||
        bench.seconds == NULL) {
        rc = fault_set(why, RC_NOMEM, "bench codecs: not enough memory for %zu values",
                       bench.values);
        goto out;
    }
    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < bench.values; i++) {
        bench.in[i] = (float)rng_normal(&rng);
    }
    *rows = json_array_create();
    for (size_t i = 0; codec_number(i, &codec); i++) {
        json_append(*rows, row_of(&bench, &codec));
    }
out:
    mem_free(bench.in);
    mem_free(bench.out);
    mem_free(bench.encoded);
    mem_free(bench.counts);
    mem_free(bench.seconds);
    return rc;
}

/*
 * The device encodes as the processor does, bit by bit, seen through snapshots. Memory of the
 * device has no decoder: what comes back is added to parameters as float32.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"

#include <float.h>

static const char *const names[CODEC_FORMATS] = {"f32", "f16", "bf16", "int8"};

/* One plane through the device: RC_OK or RC_NONFINITE. */
static enum rc fetched(struct parity *p, struct snapshot *snapshot, const float *values, size_t n)
{
    parity_ok(p, snapshot->ops->take(snapshot, 0, values, n));
    parity_ok(p, snapshot->ops->seal(snapshot));
    return snapshot->ops->fetch(snapshot);
}

static struct snapshot *snapshot_of_size(struct parity *p, enum codec_format format, size_t n,
                                         size_t chunk_values)
{
    const struct snapshot_options options = {n, chunk_values, format};
    struct snapshot *snapshot = NULL;

    parity_ok(p, p->device->ops->snapshot_create(p->device, &options, &snapshot));
    return snapshot;
}

static void check_chunks(struct parity *p, uint64_t seed, struct snapshot *snapshot,
                         enum codec_format format, const float *values, size_t n,
                         size_t chunk_values)
{
    uint8_t *wanted = malloc(codec_bytes(format, chunk_values) + 1);

    assert_non_null(wanted);
    for (size_t first = 0, i = 0; first < n; first += chunk_values, i++) {
        size_t count = n - first < chunk_values ? n - first : chunk_values, bytes = 0;
        const uint8_t *got = snapshot->ops->chunk(snapshot, i, &bytes);

        codec_encode(format, values + first, count, wanted);
        assert_int_equal(bytes, codec_bytes(format, count));
        p->checks++;
        for (size_t k = 0; k < bytes; k++) {
            if (got[k] == wanted[k]) continue;
            fail_msg("SEED=%llu %s, chunk %zu of %zu values: byte %zu is %u, not %u",
                     (unsigned long long)seed, names[format], i, count, k, got[k], wanted[k]);
        }
    }
    free(wanted);
}

static void check_encoding(struct parity *p, uint64_t seed, const float *values, size_t n,
                           size_t chunk_values)
{
    float *device = parity_put_values(p, values, n);

    for (unsigned f = 0; f < CODEC_FORMATS; f++) {
        enum codec_format format = (enum codec_format)f;
        struct snapshot *snapshot = snapshot_of_size(p, format, n, chunk_values);

        parity_ok(p, fetched(p, snapshot, device, n));
        check_chunks(p, seed, snapshot, format, values, n, chunk_values);
        snapshot->ops->destroy(snapshot);
    }
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Any bits of finite numbers: blocks of large and small ones, denormals, zeros of both signs. */
static void any_finite_bits_are_encoded_as_on_the_processor(uint64_t seed)
{
    static const size_t chunks[] = {CODEC_BLOCK, 4096, 1000, 7};
    struct parity *p = parity_begin(false, seed);

    for (size_t c = 0; c < ARRAY_COUNT(chunks); c++) {
        size_t n = 5 * CODEC_BLOCK * (1 + seed % 4) + rng_below(&p->rng, 600) + 1;
        float *values = parity_host(p, n * sizeof(float));

        for (size_t i = 0; i < n; i++) {
            uint32_t span = 1 + (uint32_t)(i / CODEC_BLOCK * 29) % 255;
            uint32_t bits = (uint32_t)rng_u64(&p->rng);
            values[i] = float_of((bits & 0x807fffffu) | (bits >> 23 & 255u) % span << 23);
        }
        check_encoding(p, seed, values, n, chunks[c]);
    }
    parity_end(p);
}

/* Ordinary values, as parameters are. */
static void parameters_are_encoded_as_on_the_processor(uint64_t seed)
{
    struct parity *p = parity_begin(false, seed);
    size_t n = 32768 + 4097 + rng_below(&p->rng, 1000);

    check_encoding(p, seed, parity_values(p, n, 0.02), n, 32768);
    parity_end(p);
}

/* Between neighbours of f16 and of bf16: the middle and what is beside it, both signs. */
static void ties_are_broken_as_on_the_processor(void **state)
{
    enum { HALVES = 0x7c00, STEP = 7, SIDES = 6 };
    struct parity *p = parity_begin(false, 1);
    size_t n = (size_t)SIDES * HALVES / STEP;
    float *values = parity_host(p, n * sizeof(float));

    (void)state;
    for (unsigned shift = 13; shift <= 16; shift += 3) { /* bits that f16 and bf16 leave out */
        for (size_t i = 0; i < n; i++) {
            uint32_t upper = (uint32_t)(i / SIDES * STEP), side = (uint32_t)(i % SIDES);
            uint32_t base = shift == 13 ? 0x33000000u + (upper << 13) : upper << 16;
            uint32_t bits = base + (1u << (shift - 1)) + side % 3 - 1;
            values[i] = float_of(bits | (side >= 3 ? 0x80000000u : 0));
        }
        check_encoding(p, shift, values, n, 8192);
    }
    parity_end(p);
}

/* Where formats end: largest and smallest numbers, and blocks whose scale hardly is one. */
static void the_ends_of_the_formats_are_as_on_the_processor(void **state)
{
    static const float edges[] = {
        65504.0F,    65519.996F,      65520.0F,      65536.0F, 1e30F,    FLT_MAX, 0x1.fep127F,
        0x1.ffp127F, 0x1.fefffep127F, 5.9604645e-8F, 2.98e-8F, 2.99e-8F, 6.1e-5F, FLT_MIN,
        1e-45F,      1e-40F,          127.0F,        0.5F,     1.5F,     2.5F,    126.5F,
        125.5F,      -126.5F,         -0.0F,         0.0F};
    static const float largest[] = {
        FLT_MAX, 127.0F * FLT_MIN, 0x1.fbfffep-120F, 126.9F * FLT_MIN, 1e-45F, 127.0F,
        1.27F,   0x1.fcp120F};
    enum { EDGES = ARRAY_COUNT(edges), N = CODEC_BLOCK * ARRAY_COUNT(largest) };
    struct parity *p = parity_begin(false, 1);
    float *values = parity_host(p, N * sizeof(float));

    (void)state;
    for (size_t i = 0; i < N; i++) {
        float top = largest[i / CODEC_BLOCK], value = edges[i % EDGES];
        values[i] = i % 3 == 0 ? -value : value;
        if (fabsf(value) > top) values[i] = top * (float)((int)(i % 255) - 127) / 127.0F;
        if (i % CODEC_BLOCK == 100) values[i] = i % 2 == 0 ? top : -top;
    }
    check_encoding(p, 1, values, N, N);
    check_encoding(p, 2, edges, EDGES, EDGES);
    for (size_t n = 1; n <= CODEC_BLOCK + 2; n += n < 9 || n > 252 ? 1 : 61) {
        check_encoding(p, n, values, n, n);
    }
    parity_end(p);
}

/* Wherever it stands, in any format; and the next plane, which is fine, is fine. */
static void what_is_not_finite_is_noticed(void **state)
{
    enum { N = 3 * CODEC_BLOCK + 11, CHUNK = 2 * CODEC_BLOCK };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 1, 255, 256, 511, 512, N - 12, N - 1};
    struct parity *p = parity_begin(false, 1);
    float *values = parity_values(p, N, 1.0), *device = parity_put_values(p, values, N);

    (void)state;
    for (unsigned f = 0; f < CODEC_FORMATS; f++) {
        enum codec_format format = (enum codec_format)f;
        struct snapshot *snapshot = snapshot_of_size(p, format, N, CHUNK);

        for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
            const float *at = &bad[i % ARRAY_COUNT(bad)], *good = &values[places[i]];

            parity_ok(p, p->device->ops->upload(p->device, device + places[i], at, sizeof(*at)));
            assert_int_equal(fetched(p, snapshot, device, N), RC_NONFINITE);
            parity_ok(p,
                      p->device->ops->upload(p->device, device + places[i], good, sizeof(*good)));
            p->checks++;
        }
        parity_ok(p, fetched(p, snapshot, device, N));
        check_chunks(p, 1, snapshot, format, values, N, CHUNK);
        snapshot->ops->destroy(snapshot);
    }
    parity_end(p);
}

/* All of it is float32, whatever activations are. */
#define SEEDED(f)                                                                                  \
    static void f##_seeded(void **state)                                                           \
    {                                                                                              \
        (void)state;                                                                               \
        FOR_EACH_SEED (seed, 5)                                                                    \
            f(seed);                                                                               \
    }
SEEDED(any_finite_bits_are_encoded_as_on_the_processor)
SEEDED(parameters_are_encoded_as_on_the_processor)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_finite_bits_are_encoded_as_on_the_processor_seeded),
    cmocka_unit_test(parameters_are_encoded_as_on_the_processor_seeded),
    cmocka_unit_test(ties_are_broken_as_on_the_processor),
    cmocka_unit_test(the_ends_of_the_formats_are_as_on_the_processor),
    cmocka_unit_test(what_is_not_finite_is_noticed),
};

PARITY_MAIN("codec", tests)

/* Codecs of a few bits and of a few values, against numbers calculated by hand. */
#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "base/bytes.h"
#include "base/floats.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>

enum { V = 5, CHUNK = 1300 };

static const float v[V] = {0.1f, -0.4f, 1.27f, 0.0f, -1.0f};

static struct codec codec_of(const char *name)
{
    struct codec codec = {.ops = NULL};
    struct fault why = {""};

    if (codec_find(name, &codec, &why) != RC_OK) fail_msg("%s", why.text);
    return codec;
}

static size_t encode(const char *name, const float *in, size_t n, uint8_t *bytes)
{
    const struct codec codec = codec_of(name);

    return codec.ops->encode(&codec, 1, in, n, bytes);
}

static enum rc decode(const char *name, const uint8_t *bytes, size_t count, float *out, size_t n)
{
    const struct codec codec = codec_of(name);

    return codec.ops->decode(&codec, bytes, count, out, n);
}

static void check_values(const float *out, const double *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)out[i] - wanted[i]) < 1e-4) continue;
        fail_msg("value %zu is %g, not %g", i, (double)out[i], wanted[i]);
    }
}

static void int4_has_its_golden_values(void **state)
{
    (void)state;
    /* Scale 0.181429 (17 bits of it), integers 1, -2, 7, 0, -6, the first in the lower half. */
    static const uint8_t integers[3] = {0xe1, 0x07, 0x0a};
    uint8_t bytes[7], bad[7];
    float out[V];

    assert_int_equal(encode("int4", v, V, bytes), 7);
    assert_true(fabsf(load_le_float(bytes) - 0.181429f) < 4e-6f);
    assert_int_equal(load_le32(bytes) & 0x7f, 0);
    assert_memory_equal(bytes + 4, integers, 3);
    assert_int_equal(decode("int4", bytes, 7, out, V), RC_OK);
    check_values(out, (double[]){0.181429, -0.362858, 1.27, 0, -1.088574}, V);
    memcpy(bad, bytes, 7);
    bad[6] |= 0x10; /* beyond the last value */
    assert_int_equal(decode("int4", bad, 7, out, V), RC_FORMAT);
    memcpy(bad, bytes, 7);
    bad[5] = 0x08; /* -8 */
    assert_int_equal(decode("int4", bad, 7, out, V), RC_FORMAT);
    bad[5] = 0x06; /* nothing at the scale's end */
    assert_int_equal(decode("int4", bad, 7, out, V), RC_FORMAT);
    memcpy(bad, bytes, 7);
    store_le32(bad, 0); /* integers without a scale */
    assert_int_equal(decode("int4", bad, 7, out, V), RC_FORMAT);
    for (size_t i = 0; i < 5; i++) { /* infinite, NaN, negative, denormal, not cut */
        static const uint32_t scales[5] = {0x7f800000, 0x7fc00000, 0xbf800000, 0x80, 0x3f800001};

        store_le32(bad, scales[i]);
        assert_int_equal(decode("int4", bad, 7, out, V), RC_NONFINITE);
    }
}

static void sign_has_its_golden_values(void **state)
{
    (void)state;
    /* The mean of |v| is 0.554; the second and the last are negative. */
    uint8_t bytes[5];
    float out[V];

    assert_int_equal(encode("sign", v, V, bytes), 5);
    assert_true(fabsf(load_le_float(bytes) - 0.554f) < 1e-6f);
    assert_int_equal(bytes[4], 0x12);
    assert_int_equal(decode("sign", bytes, 5, out, V), RC_OK);
    check_values(out, (double[]){0.554, -0.554, 0.554, 0.554, -0.554}, V);
    bytes[4] = 0x32;
    assert_int_equal(decode("sign", bytes, 5, out, V), RC_FORMAT);
}

static void int2_has_its_golden_values(void **state)
{
    (void)state;
    /* Mean -0.006, sigma 0.74602: bins 2, 2, 3, 2, 1, with means -0.1, 1.27 and -1. */
    uint8_t bytes[18];
    float out[V];

    assert_int_equal(encode("int2", v, V, bytes), 18);
    assert_int_equal(bytes[16], 0xba);
    assert_int_equal(bytes[17], 1);
    assert_int_equal(load_le32(bytes), 0);
    assert_int_equal(decode("int2", bytes, 18, out, V), RC_OK);
    check_values(out, (double[]){-0.1, -0.1, 1.27, -0.1, -1}, V);
    store_le_float(bytes, 1); /* a mean of none */
    assert_int_equal(decode("int2", bytes, 18, out, V), RC_FORMAT);
    store_le32(bytes, 0x7fc00000);
    assert_int_equal(decode("int2", bytes, 18, out, V), RC_NONFINITE);
    store_le32(bytes, 0);
    bytes[17] = 5;
    assert_int_equal(decode("int2", bytes, 18, out, V), RC_FORMAT);
}

static void qsgd_has_its_golden_values(void **state)
{
    (void)state;
    /* Norm 1.6682026: with four levels 0.24, 0.96, 3.05, 0 and 2.4 of them, one of the two beside
     * it each; which, says the seed. */
    static const double levels[V] = {0.239779, -0.959116, 3.04519, 0, -2.39779};
    const struct codec codec = codec_of("qsgd:4");
    uint8_t bytes[7];
    float out[V];
    size_t upper = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        assert_int_equal(codec.ops->encode(&codec, seed, v, V, bytes), 7);
        assert_true(fabsf(4 * load_le_float(bytes) - 1.6682026f) < 1e-5f);
        assert_int_equal(codec.ops->decode(&codec, bytes, 7, out, V), RC_OK);
        for (size_t i = 0; i < V; i++) {
            double level = (double)(out[i] / load_le_float(bytes));

            assert_true(fabs(level - levels[i]) < 1 && fabs(level - nearbyint(level)) < 1e-4);
        }
        upper += fabs((double)(out[4] / load_le_float(bytes))) > 2.5;
    }
    assert_in_range(upper, 60, 100); /* 0.398 of 200 */
    bytes[4] = 0x05;                 /* the levels are four, though the bits have room for more */
    assert_int_equal(codec.ops->decode(&codec, bytes, 7, out, V), RC_FORMAT);
}

static void ternary_has_five_trits_a_byte(void **state)
{
    (void)state;
    /* s is 1.27; the third is 1 whatever chance says, the others their sign or 0. */
    const struct codec codec = codec_of("ternary");
    uint8_t bytes[5];
    float out[V];

    assert_int_equal(codec.ops->encode(&codec, 3, v, V, bytes), 5);
    assert_true(load_le_float(bytes) == 1.27f);
    assert_int_equal(bytes[4] / 9 % 3, 1);
    assert_int_equal(bytes[4] / 27 % 3, 0);
    bytes[4] = 1 + 3 * 2 + 9 * 1 + 81 * 2;
    assert_int_equal(codec.ops->decode(&codec, bytes, 5, out, V), RC_OK);
    check_values(out, (double[]){1.27, -1.27, 1.27, 0, -1.27}, V);
    assert_int_equal(codec.ops->decode(&codec, bytes, 5, out, V - 1), RC_FORMAT); /* a fifth */
    bytes[4] = 243;
    assert_int_equal(codec.ops->decode(&codec, bytes, 5, out, V), RC_FORMAT);
}

static void what_contracts_says_what_is_nearest(void **state)
{
    (void)state;
    /* One large value does not make zeros of the others: s is 2.5 root mean squares, and the scale
     * that of least squares. */
    struct codec plain = codec_of("ternary"), near = plain;
    static float in[CHUNK], out[CHUNK];
    static uint8_t bytes[8 * CHUNK];
    double error[2] = {0, 0};

    for (size_t i = 0; i < CHUNK; i++) {
        in[i] = i % 640 == 7 ? 20.0f : i % 2 == 0 ? 1.0f : -1.0f;
    }
    codec_contract(&near);
    for (int form = 0; form < 2; form++) {
        const struct codec *codec = form == 0 ? &plain : &near;
        size_t count = codec->ops->encode(codec, 5, in, CHUNK, bytes);

        assert_int_equal(codec->ops->decode(&plain, bytes, count, out, CHUNK), RC_OK);
        for (size_t i = 0; i < CHUNK; i++) {
            error[form] += ((double)out[i] - (double)in[i]) * ((double)out[i] - (double)in[i]);
        }
    }
    assert_true(error[0] > 10 * CHUNK && error[1] < 2 * CHUNK);
}

static void tiles_have_places_of_12_bits(void **state)
{
    (void)state;
    /* A quarter of five: the third and the last. Places are within the tile. */
    static float in[4100], out[4100];
    static uint8_t bytes[8192];
    float few[V];

    assert_int_equal(encode("topk:1024/4096", v, V, bytes), 3 + 8);
    assert_memory_equal(bytes, ((uint8_t[]){2, 0x40, 0}), 3);
    assert_int_equal(decode("topk:1024/4096", bytes, 11, few, V), RC_OK);
    check_values(few, (double[]){0, 0, 1.27, 0, -1}, V);
    bytes[0] = 4; /* does not rise */
    assert_int_equal(decode("topk:1024/4096", bytes, 11, few, V), RC_FORMAT);
    bytes[0] = 2;
    bytes[1] = 0x50; /* outside */
    assert_int_equal(decode("topk:1024/4096", bytes, 11, few, V), RC_FORMAT);

    in[4095] = 7;
    in[17] = -8;
    in[4096] = 0.5f;
    in[4099] = 0.25f;
    assert_int_equal(encode("topk:2/4096", in, 4100, bytes), 5 + 12);
    assert_memory_equal(bytes, ((uint8_t[]){17, 0xf0, 0xff, 0, 0}), 5);
    assert_int_equal(decode("topk:2/4096", bytes, 17, out, 4100), RC_OK);
    assert_true(out[17] == -8 && out[4095] == 7 && out[4096] == 0.5f && out[4099] == 0);
    bytes[4] = 0x10; /* beyond the last place */
    assert_int_equal(decode("topk:2/4096", bytes, 17, out, 4100), RC_FORMAT);
}

static void a_chain_is_as_small_as_it_says(void **state)
{
    (void)state;
    /* 512 places of 12 bits, four means, 512 times 2 bits: 144 times smaller than 32,768 float32.
     */
    const struct codec codec = codec_of("topk:64/4096|int2");

    assert_int_equal(codec.ops->bytes_max(&codec, 32768), 768 + 16 + 128);
}

static void random_places_are_those_of_the_seed(void **state)
{
    (void)state;
    /* Floyd's sample of 13 of 1,300: seed, then the values at its places. Of all seeds each place
     * is drawn as often as any. */
    static float in[CHUNK], out[CHUNK];
    static uint32_t drawn[CHUNK];
    static uint8_t bytes[8 * CHUNK];
    struct codec codec = codec_of("randk:0.01");
    bool is_in[CHUNK] = {false};
    size_t n = 0;

    for (size_t i = 0; i < CHUNK; i++) {
        in[i] = (float)(i + 1);
    }
    for (size_t j = CHUNK - 13; j < CHUNK; j++) {
        size_t t = (size_t)(rng_mix(99, j) % (j + 1));

        is_in[is_in[t] ? j : t] = true;
    }
    codec_contract(&codec);
    assert_int_equal(codec.ops->encode(&codec, 99, in, CHUNK, bytes), 8 + 4 * 13);
    assert_int_equal(load_le64(bytes), 99);
    for (size_t i = 0; i < CHUNK; i++) {
        if (is_in[i]) assert_true(load_le_float(bytes + 8 + 4 * n++) == in[i]);
    }
    assert_int_equal(n, 13);
    for (uint64_t seed = 0; seed < 2000; seed++) {
        size_t count = codec.ops->encode(&codec, seed, in, CHUNK, bytes);

        assert_int_equal(codec.ops->decode(&codec, bytes, count, out, CHUNK), RC_OK);
        for (size_t i = 0; i < CHUNK; i++) {
            drawn[i] += out[i] != 0;
        }
    }
    for (size_t i = 0; i < CHUNK; i++) { /* 20 in the mean, deviation 4.4 */
        assert_in_range(drawn[i], 1, 45);
    }
}

static void thresholds_send_what_is_larger(void **state)
{
    (void)state;
    /* Nothing larger than T stays behind, but for more than a quarter; and of nothing two bytes say
     * so. */
    static float in[CHUNK], out[CHUNK];
    static uint8_t bytes[8 * CHUNK];
    struct rng rng;
    size_t count;

    assert_int_equal(encode("threshold:1.1", v, V, bytes), 2 + 2 + 4);
    assert_int_equal(load_le16(bytes), 1);
    assert_int_equal(load_le16(bytes + 2), 2);
    assert_int_equal(encode("threshold:1.27", v, V, bytes), 2);
    assert_int_equal(encode("threshold:1e-3", v, V, bytes), 2 + 2 * 6);
    assert_int_equal(decode("threshold:1e-3", bytes, 14, out, V), RC_OK);
    check_values(out, (double[]){0, 0, 1.27, 0, -1}, V);
    assert_int_equal(decode("threshold:1.1", bytes, 14, out, V), RC_FORMAT); /* not all are above */
    store_le16(bytes, 3);
    assert_int_equal(decode("threshold:1e-3", bytes, 20, out, V), RC_FORMAT); /* over a quarter */
    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < CHUNK; i++) {
        in[i] = (float)rng_normal(&rng);
    }
    count = encode("threshold:1.5", in, CHUNK, bytes);
    assert_int_equal(decode("threshold:1.5", bytes, count, out, CHUNK), RC_OK);
    for (size_t i = 0; i < CHUNK; i++) {
        assert_true(fabsf(in[i] - out[i]) <= 1.5f && (out[i] == 0 || out[i] == in[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int4_has_its_golden_values),
        cmocka_unit_test(sign_has_its_golden_values),
        cmocka_unit_test(int2_has_its_golden_values),
        cmocka_unit_test(qsgd_has_its_golden_values),
        cmocka_unit_test(ternary_has_five_trits_a_byte),
        cmocka_unit_test(what_contracts_says_what_is_nearest),
        cmocka_unit_test(tiles_have_places_of_12_bits),
        cmocka_unit_test(a_chain_is_as_small_as_it_says),
        cmocka_unit_test(random_places_are_those_of_the_seed),
        cmocka_unit_test(thresholds_send_what_is_larger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What every codec must do, run on all of them. */
#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "base/rng.h"

#include <math.h>

enum { VALUES_MAX = 3000 };

#define FOR_EACH_CODEC(codec) for (size_t index = 0; (codec = codec_at(index)) != NULL; index++)

static void sizes_are_known_and_anything_else_is_refused(void **state)
{
    (void)state;
    /* T12: lengths 0, 1, block - 1, block, block + 1; one byte less or more is RC_FORMAT. */
    static const size_t counts[] = {0, 1, 7, 8, 9, 255, 256, 257, 511, 512, 513, 1025, VALUES_MAX};
    static float in[VALUES_MAX], out[VALUES_MAX];
    static uint8_t bytes[4 * VALUES_MAX + 1];
    const struct codec *codec;

    FOR_EACH_CODEC(codec)
    {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            size_t n = counts[i], encoded = codec->ops->bytes_max(codec, n);

            codec->ops->encode(codec, 0, in, n, bytes);
            assert_int_equal(codec->ops->decode(codec, bytes, encoded, out, n), RC_OK);
            assert_int_equal(codec->ops->decode(codec, bytes, encoded + 1, out, n), RC_FORMAT);
            if (n > 0)
                assert_int_equal(codec->ops->decode(codec, bytes, encoded - 1, out, n), RC_FORMAT);
        }
        assert_int_equal(codec->ops->decode(codec, bytes, 4, out, SIZE_MAX), RC_FORMAT);
    }
}

/* How far a value may be off: half a unit in the last place, of a block's scale with int8. */
static double error_limit(const struct codec *codec, const float *in, size_t i)
{
    size_t first = i - i % CODEC_BLOCK;
    double value = fabs((double)in[i]), largest = 0.0;

    switch (codec->ops->format) {
    case CODEC_F16:
        return fmax(value * 0x1p-11, 0x1p-25);
    case CODEC_BF16:
        return fmax(value * 0x1p-8, 0x1p-134);
    case CODEC_INT8:
        for (size_t k = first; k < first + CODEC_BLOCK && k < VALUES_MAX; k++) {
            largest = fmax(largest, fabs((double)in[k]));
        }
        /* value / scale is rounded once before it is rounded to an integer. */
        return fmax(largest / 127.0 * (0.5 + 0x1p-16), 127.0 * 0x1p-126);
    case CODEC_F32:
    default:
        return 0.0;
    }
}

/* Sizes over many orders of magnitude, from block to block. */
static void draw(struct rng *rng, float *in)
{
    int size = 0;

    for (size_t i = 0; i < VALUES_MAX; i++) {
        if (i % CODEC_BLOCK == 0) size = (int)rng_below(rng, 40) - 28;
        in[i] = (float)ldexp(rng_normal(rng), size - (int)rng_below(rng, 12));
    }
    in[0] = 0.0f;
    in[1] = -0.0f;
    in[2] = 1e-40f;
}

static void values_come_back_within_the_formats_error(void **state)
{
    (void)state;
    /* T12: lossless means bit for bit; else half of the last place. Encoding what was decoded gives
     * the same bytes, so a value can be passed on. */
    static float in[VALUES_MAX], out[VALUES_MAX];
    static uint8_t bytes[4 * VALUES_MAX], again[4 * VALUES_MAX];
    const struct codec *codec;
    struct rng rng;

    FOR_EACH_CODEC(codec)
    {
        size_t encoded = codec->ops->bytes_max(codec, VALUES_MAX);

        FOR_EACH_SEED (seed, 50) {
            rng_init(&rng, seed, 0);
            draw(&rng, in);
            codec->ops->encode(codec, 0, in, VALUES_MAX, bytes);
            assert_int_equal(codec->ops->decode(codec, bytes, encoded, out, VALUES_MAX), RC_OK);
            for (size_t i = 0; i < VALUES_MAX; i++) {
                double error = fabs((double)out[i] - (double)in[i]);

                check_seed(seed, error <= error_limit(codec, in, i));
            }
            check_seed(seed, !codec->traits.is_lossless || memcmp(out, in, sizeof out) == 0);
            codec->ops->encode(codec, 0, out, VALUES_MAX, again);
            check_seed(seed, memcmp(bytes, again, encoded) == 0);
        }
    }
}

static void any_bits_of_a_float_survive_a_second_time(void **state)
{
    (void)state;
    /* Every exponent there is, up to the largest number: what comes back is finite and stays as it
     * is from then on. */
    static float in[VALUES_MAX], out[VALUES_MAX];
    static uint8_t bytes[4 * VALUES_MAX], again[4 * VALUES_MAX];
    const struct codec *codec;
    struct rng rng;

    FOR_EACH_CODEC(codec)
    {
        size_t encoded = codec->ops->bytes_max(codec, VALUES_MAX);

        FOR_EACH_SEED (seed, 100) {
            rng_init(&rng, seed, 1);
            for (size_t i = 0; i < VALUES_MAX; i++) {
                uint32_t span = (uint32_t)(i / CODEC_BLOCK * 23 + seed % 23 + 1);
                uint32_t bits = (uint32_t)rng_u64(&rng);

                if (span > 255) span = 255; /* up to the largest exponent of a number */
                bits = (bits & 0x807fffffu) | (bits >> 23 & 255u) % span << 23;
                memcpy(&in[i], &bits, sizeof bits);
            }
            in[seed % VALUES_MAX] = seed % 2 == 0 ? 3.40282347e38f : -3.40282347e38f;
            codec->ops->encode(codec, 0, in, VALUES_MAX, bytes);
            check_seed(seed, codec->ops->decode(codec, bytes, encoded, out, VALUES_MAX) == RC_OK);
            codec->ops->encode(codec, 0, out, VALUES_MAX, again);
            check_seed(seed, memcmp(bytes, again, encoded) == 0);
        }
    }
}

static enum rc int8_decode(const uint8_t *in, size_t count, float *out, size_t values)
{
    return codec_int8.ops->decode(&codec_int8, in, count, out, values);
}

static void int8_is_as_it_was_calculated_by_hand(void **state)
{
    (void)state;
    /* The scale is that of the largest, in its first 17 bits, and stands before the bytes. */
    static const float in[5] = {0.1f, -0.4f, 1.27f, 0.0f, -1.0f};
    static const int8_t codes[5] = {10, -40, 127, 0, -100};
    uint8_t bytes[9];
    float out[5], scale;
    uint32_t word;

    assert_int_equal(codec_bytes(CODEC_INT8, 5), 9);
    codec_encode(CODEC_INT8, in, 5, bytes);
    word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
    assert_int_equal(word, 0x3c23d700); /* 0.01 is 0x3c23d70a */
    assert_memory_equal(bytes + 4, codes, 5);
    assert_int_equal(int8_decode(bytes, 9, out, 5), RC_OK);
    memcpy(&scale, &word, sizeof scale);
    for (int i = 0; i < 5; i++) {
        assert_true(out[i] == (float)codes[i] * scale);
    }
}

static void halves_of_int8_go_to_the_even_byte(void **state)
{
    (void)state;
    /* With a largest value of 127 the scale is 1: 0.5, 1.5, 2.5... are ties. A block of its own for
     * what follows; zeros, and values too small for a scale, are zeros. */
    static float in[3 * CODEC_BLOCK], out[3 * CODEC_BLOCK];
    static uint8_t bytes[3 * CODEC_BLOCK + 12];

    for (int i = 0; i < CODEC_BLOCK; i++) {
        in[i] = ((float)i - 128.0f) / 2.0f;
    }
    in[0] = -127.0f;
    in[2 * CODEC_BLOCK] = 1e-37f; /* a 127th of it is denormal */
    codec_encode(CODEC_INT8, in, 3 * CODEC_BLOCK, bytes);
    assert_int_equal(int8_decode(bytes, sizeof bytes, out, 3 * CODEC_BLOCK), RC_OK);
    for (int i = 0; i < CODEC_BLOCK; i++) {
        assert_true(out[i] == rintf(in[i]));
    }
    for (int i = CODEC_BLOCK; i < 3 * CODEC_BLOCK; i++) {
        assert_true(out[i] == 0.0f);
    }
    for (size_t i = 4; i < 12; i++) {
        assert_int_equal(bytes[i], 0);
    }
}

static void what_no_encoder_writes_is_refused(void **state)
{
    (void)state;
    /* int8: scales that are negative, denormal, too long, too large or none, -128, and blocks that
     * could have had another scale. */
    static const uint32_t scales[] = {0x80000000u,                           /* -0 */
                                      0xbf800000u,                           /* -1 */
                                      0x00000080u,                           /* denormal */
                                      0x007fff80u, 0x3f800001u, 0x3f800040u, /* longer than cut */
                                      0x7c810280u, /* a unit above the largest one's */
                                      0x7f000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u};
    static const uint8_t fine[12] = {0, 0, 0x80, 0x3f, 127, 0x81, 1, 0, 0xff, 2, 3, 126};
    uint8_t bytes[12];
    float out[8];

    assert_int_equal(int8_decode(fine, 12, out, 8), RC_OK);
    assert_true(out[0] == 127.0f && out[1] == -127.0f && out[4] == -1.0f);
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        memcpy(bytes, fine, 12);
        for (int k = 0; k < 4; k++) {
            bytes[k] = (uint8_t)(scales[i] >> 8 * k);
        }
        assert_int_equal(int8_decode(bytes, 12, out, 8), RC_NONFINITE);
    }
    for (size_t at = 4; at < 12; at++) {
        memcpy(bytes, fine, 12);
        bytes[at] = 0x80; /* -128 */
        assert_int_equal(int8_decode(bytes, 12, out, 8), RC_NONFINITE);
    }
    memcpy(bytes, fine, 12);
    bytes[4] = 126;
    bytes[5] = 0x82;
    assert_int_equal(int8_decode(bytes, 12, out, 8), RC_NONFINITE);
    memset(bytes, 0, 12);
    assert_int_equal(int8_decode(bytes, 12, out, 8), RC_OK);
    bytes[11] = 127; /* with a scale of 0 */
    assert_int_equal(int8_decode(bytes, 12, out, 8), RC_NONFINITE);
}

static void chunk_by_chunk_is_all_at_once(void **state)
{
    (void)state;
    /* What is decoded does not depend on the cuts, as long as they are between blocks. */
    static float in[VALUES_MAX], whole[VALUES_MAX], part[VALUES_MAX];
    static uint8_t bytes[4 * VALUES_MAX];
    const struct codec *codec;
    struct rng rng;

    FOR_EACH_CODEC(codec)
    {
        rng_init(&rng, 7, 0);
        draw(&rng, in);
        codec->ops->encode(codec, 0, in, VALUES_MAX, bytes);
        assert_int_equal(codec->ops->decode(codec, bytes, codec->ops->bytes_max(codec, VALUES_MAX),
                                            whole, VALUES_MAX),
                         RC_OK);
        for (size_t i = 0; i < VALUES_MAX; i += 3 * CODEC_BLOCK) {
            size_t n = VALUES_MAX - i < 3 * CODEC_BLOCK ? VALUES_MAX - i : 3 * CODEC_BLOCK;

            codec->ops->encode(codec, 0, in + i, n, bytes + 1); /* of any alignment */
            assert_int_equal(
                codec->ops->decode(codec, bytes + 1, codec->ops->bytes_max(codec, n), part + i, n),
                RC_OK);
        }
        assert_memory_equal(whole, part, sizeof whole);
    }
}

static void what_is_not_finite_is_refused_wherever_it_stands(void **state)
{
    (void)state;
    /* T19: a float's exponent of all ones, in each codec; every position is looked at. */
    static float in[40], out[40];
    const struct codec *codec;

    FOR_EACH_CODEC(codec)
    {
        size_t each = codec->ops->format == CODEC_INT8 ? 1 : codec->ops->bytes_max(codec, 1);
        size_t encoded = codec->ops->bytes_max(codec, 40);

        for (size_t at = 0; at < 40; at++) {
            uint8_t bytes[4 * 40];

            codec->ops->encode(codec, 0, in, 40, bytes);
            memset(bytes + encoded - (40 - at) * each,
                   codec->ops->format == CODEC_INT8 ? 0x80 : 0xff, each);
            assert_int_equal(codec->ops->decode(codec, bytes, encoded, out, 40), RC_NONFINITE);
        }
    }
}

static void names_are_found_and_misspelt_ones_explained(void **state)
{
    (void)state;
    /* Each by its name; another is RC_PARSE and the text has the nearest one. */
    const struct codec *codec;
    struct codec found = {.ops = NULL};
    struct fault why = {""};

    FOR_EACH_CODEC(codec)
    {
        assert_int_equal(codec_find(codec->name, &found, &why), RC_OK);
        assert_ptr_equal(found.ops, codec->ops);
    }
    assert_int_equal(codec_find("g16", &found, &why), RC_PARSE);
    assert_non_null(strstr(why.text, "did you mean f16"));
    assert_int_equal(codec_find("int9", &found, &why), RC_PARSE);
    assert_non_null(strstr(why.text, "did you mean int8? known: f32, f16, bf16, int8"));
    assert_int_equal(codec_find("", &found, NULL), RC_PARSE);
}

static void names_are_one_for_each_codec(void **state)
{
    (void)state;
    /* However it is written, a codec has one name, by which peers know that they mean the same. */
    static const struct {
        const char *spec, *name, *wrong;
    } cases[] = {
        {"topk:0.0130", "topk:0.013", NULL},
        {"topk:5%", "topk:0.05", NULL},
        {"topk:1e-4", "topk:0.0001", NULL},
        {"topk:0.123456", "topk:0.123456", NULL},
        {"topk:0.1|f32", "topk:0.1", NULL},
        {"topk:0.1|int8", "topk:0.1|int8", NULL},
        {"topk:0.1234567", NULL, "expected topk:SHARE"},
        {"topk:0.00001", NULL, "expected topk:SHARE"},
        {"topk:0.26", NULL, "expected topk:SHARE"},
        {"topk", NULL, "expected topk:SHARE"},
        {"topk:", NULL, "expected topk:SHARE"},
        {"f16:2", NULL, "f16 takes no settings"},
        {"int8|topk:0.1", NULL, "A must be one that makes them fewer"},
        {"topk:0.1|topk:0.1", NULL, "B one that does not"},
        {"topk:064/4096|int2", "topk:64/4096|int2", NULL},
        {"threshold:0.00100000001", "threshold:0.001", NULL},
        {"qsgd:016", "qsgd:16", NULL},
        {"topk:0/4096", NULL, "or topk:K/4096"},
        {"topk:1025/4096", NULL, "or topk:K/4096"},
        {"topk:64/1024", NULL, "or topk:K/4096"},
        {"qsgd:0", NULL, "expected qsgd:LEVELS"},
        {"qsgd:128", NULL, "expected qsgd:LEVELS"},
        {"lowrank:04|int8", "lowrank:4|int8", NULL},
        {"lowrank:0", NULL, "expected lowrank:RANK"},
        {"lowrank:33", NULL, "expected lowrank:RANK"},
        {"lowrank:4|topk:0.1", NULL, "B one that does not"},
        {"threshold:0", NULL, "expected threshold:T"},
        {"threshold:1e31", NULL, "expected threshold:T"},
        {"sign|int8", NULL, "A must be one that makes them fewer"},
        {"topk:0.1|", NULL, "a codec is missing"},
        {"topk:0.1|int8|int8", NULL, "one | at the most"},
        {"topk:0.1111111111111111111111111111111111111111111111111111111111", NULL, "longer than"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct codec codec = {.ops = NULL}, again;
        struct fault why = {""};
        enum rc rc = codec_find(cases[i].spec, &codec, &why);

        if (cases[i].wrong != NULL) {
            assert_int_equal(rc, RC_PARSE);
            if (strstr(why.text, cases[i].wrong) == NULL) fail_msg("%s", why.text);
            continue;
        }
        assert_int_equal(rc, RC_OK);
        assert_string_equal(codec.name, cases[i].name);
        assert_int_equal(codec_find(codec.name, &again, &why), RC_OK);
        assert_string_equal(again.name, codec.name);
    }
}

static void short_names_are_still_names(void **state)
{
    (void)state;
    /* Where there is little room: the name itself if it fits, else one that differs as it does. */
    static const char *const specs[] = {"topk:0.01", "topk:0.011", "topk:0.012", "topk:0.1|f16",
                                        "topk:0.1|int8"};
    char names[5][10];

    for (size_t i = 0; i < 5; i++) {
        struct codec codec;

        assert_int_equal(codec_find(specs[i], &codec, NULL), RC_OK);
        codec_short_name(&codec, names[i], sizeof names[i]);
        assert_int_equal(strlen(names[i]), 9);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(names[i], names[k]);
        }
    }
    assert_string_equal(names[0], "topk:0.01");
    assert_memory_equal(names[3], "topk~", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_known_and_anything_else_is_refused),
        cmocka_unit_test(values_come_back_within_the_formats_error),
        cmocka_unit_test(any_bits_of_a_float_survive_a_second_time),
        cmocka_unit_test(int8_is_as_it_was_calculated_by_hand),
        cmocka_unit_test(halves_of_int8_go_to_the_even_byte),
        cmocka_unit_test(what_no_encoder_writes_is_refused),
        cmocka_unit_test(chunk_by_chunk_is_all_at_once),
        cmocka_unit_test(what_is_not_finite_is_refused_wherever_it_stands),
        cmocka_unit_test(names_are_found_and_misspelt_ones_explained),
        cmocka_unit_test(names_are_one_for_each_codec),
        cmocka_unit_test(short_names_are_still_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

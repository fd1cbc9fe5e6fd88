/* What every codec must do, run on all of them. */
#include "tests/check.h"

#include "averaging/codec.h"
#include "base/rng.h"

#include <math.h>

enum { VALUES_MAX = 3000 };

#define FOR_EACH_CODEC(codec) for (size_t index = 0; (codec = codec_at(index)) != NULL; index++)

static void sizes_are_known_and_anything_else_is_refused(void **state)
{
    (void)state;
    /* T12: lengths 0, 1, block - 1, block, block + 1; one byte less or more is RC_FORMAT. */
    static const size_t counts[] = {0, 1, 7, 8, 9, 511, 512, 513, 1025, VALUES_MAX};
    static float in[VALUES_MAX], out[VALUES_MAX];
    static uint8_t bytes[4 * VALUES_MAX + 1];
    const struct codec_ops *codec;

    FOR_EACH_CODEC(codec)
    {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            size_t n = counts[i], encoded = codec->encoded_bytes(n);

            codec->encode(in, n, bytes);
            assert_int_equal(codec->decode(bytes, encoded, out, n), RC_OK);
            assert_int_equal(codec->decode(bytes, encoded + 1, out, n), RC_FORMAT);
            if (n > 0) assert_int_equal(codec->decode(bytes, encoded - 1, out, n), RC_FORMAT);
        }
        assert_int_equal(codec->decode(bytes, 4, out, SIZE_MAX), RC_FORMAT);
    }
}

static void values_come_back_within_the_formats_error(void **state)
{
    (void)state;
    /* T12: lossless means bit for bit; else 2^-11 relative, or 2^-25 near zero; encoding what was
     * decoded changes nothing more, so a value can be passed on. */
    static float in[VALUES_MAX], out[VALUES_MAX], again[VALUES_MAX];
    static uint8_t bytes[4 * VALUES_MAX];
    const struct codec_ops *codec;
    struct rng rng;

    FOR_EACH_CODEC(codec)
    {
        FOR_EACH_SEED (seed, 20) {
            rng_init(&rng, seed, 0);
            for (size_t i = 0; i < VALUES_MAX; i++) {
                in[i] = (float)ldexp(rng_normal(&rng), (int)rng_below(&rng, 40) - 28);
            }
            in[0] = 0.0f;
            in[1] = -0.0f;
            in[2] = 1e-40f;
            codec->encode(in, VALUES_MAX, bytes);
            assert_int_equal(
                codec->decode(bytes, codec->encoded_bytes(VALUES_MAX), out, VALUES_MAX), RC_OK);
            for (size_t i = 0; i < VALUES_MAX; i++) {
                double error = fabs((double)out[i] - (double)in[i]);
                double limit = fmax(fabs((double)in[i]) * 0x1p-11, 0x1p-25);

                check_seed(seed,
                           codec->is_lossless ? memcmp(&out[i], &in[i], 4) == 0 : error <= limit);
            }
            codec->encode(out, VALUES_MAX, bytes);
            assert_int_equal(
                codec->decode(bytes, codec->encoded_bytes(VALUES_MAX), again, VALUES_MAX), RC_OK);
            assert_memory_equal(out, again, sizeof out);
        }
    }
}

static void what_is_not_finite_is_refused_wherever_it_stands(void **state)
{
    (void)state;
    /* T19: bytes of all ones are a NaN in each codec; every position is looked at. */
    static float in[40], out[40];
    const struct codec_ops *codec;

    FOR_EACH_CODEC(codec)
    {
        for (size_t at = 0; at < 40; at++) {
            uint8_t bytes[4 * 40];
            size_t each = codec->encoded_bytes(1);

            codec->encode(in, 40, bytes);
            memset(bytes + at * each, 0xff, each);
            assert_int_equal(codec->decode(bytes, codec->encoded_bytes(40), out, 40), RC_NONFINITE);
        }
    }
}

static void names_are_found_and_misspelt_ones_explained(void **state)
{
    (void)state;
    /* Each by its name; another is RC_PARSE and the text has the nearest one. */
    const struct codec_ops *codec, *found = NULL;
    struct fault why = {""};

    FOR_EACH_CODEC(codec)
    {
        assert_int_equal(codec_find(codec->name, &found, &why), RC_OK);
        assert_ptr_equal(found, codec);
    }
    assert_int_equal(codec_find("g16", &found, &why), RC_PARSE);
    assert_non_null(strstr(why.text, "did you mean f16"));
    assert_int_equal(codec_find("", &found, NULL), RC_PARSE);
}

static void only_exponents_of_all_ones_are_not_finite(void **state)
{
    (void)state;
    /* NaN and infinities of both signs, alone among many; the largest number is fine. */
    float values[33] = {3.4e38f, -3.4e38f, 1e-45f};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};

    assert_true(floats_are_finite(values, 33));
    assert_true(floats_are_finite(NULL, 0));
    for (size_t at = 0; at < 33; at++) {
        for (int i = 0; i < 4; i++) {
            float was = values[at];

            values[at] = bad[i];
            assert_false(floats_are_finite(values, 33));
            values[at] = was;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_known_and_anything_else_is_refused),
        cmocka_unit_test(values_come_back_within_the_formats_error),
        cmocka_unit_test(what_is_not_finite_is_refused_wherever_it_stands),
        cmocka_unit_test(names_are_found_and_misspelt_ones_explained),
        cmocka_unit_test(only_exponents_of_all_ones_are_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

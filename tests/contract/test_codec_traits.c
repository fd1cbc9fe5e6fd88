/* What each codec says of itself (averaging/codec/codec.h, traits), tested on all of them. */
#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "base/floats.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"

#include <math.h>

enum { VALUES = 4096 + 640 + 7, BYTES = 8 * VALUES };

/* Those for models first. False: past the end. */
static bool codec_number(size_t index, struct codec *codec)
{
    const char *name =
        index < CODEC_FORMATS ? codec_at(index)->name : codec_example(index - CODEC_FORMATS);

    if (name == NULL) return false;
    assert_int_equal(codec_find(name, codec, NULL), RC_OK);
    assert_string_equal(codec->name, name);
    return true;
}

#define FOR_EACH_CODEC(codec) for (size_t index = 0; codec_number(index, codec); index++)

static size_t encode(const struct codec *codec, uint64_t seed, const float *in, size_t n,
                     uint8_t *out)
{
    return codec->ops->encode(codec, seed, in, n, out);
}

static enum rc decode(const struct codec *codec, const uint8_t *in, size_t count, float *out,
                      size_t n)
{
    return codec->ops->decode(codec, in, count, out, n);
}

/* Chunks as unlike as they come: `kind` of KINDS. */
enum { KINDS = 9 };

static void draw(uint64_t seed, size_t kind, float *in, size_t n)
{
    struct rng rng;

    rng_init(&rng, seed, kind);
    for (size_t i = 0; i < n; i++) {
        double normal = rng_normal(&rng);

        switch (kind) {
        case 0: /* as differences are */
            in[i] = (float)normal;
            break;
        case 1: /* a few are far larger */
            in[i] = (float)(normal * exp(4 * rng_normal(&rng)));
            break;
        case 2: /* one says it all */
            in[i] = i == seed % n ? -3.0f : 0;
            break;
        case 3: /* all alike, but for the sign */
            in[i] = rng_below(&rng, 2) == 0 ? -0.25f : 0.25f;
            break;
        case 4: /* about a mean that is not 0 */
            in[i] = (float)(5 + 0.1 * normal);
            break;
        case 5: /* from block to block of other sizes */
            in[i] = (float)(normal * pow(10, (double)(i / 100 * 7 % 20) - 10));
            break;
        case 6:
            in[i] = 0;
            break;
        case 7: /* mostly zeros */
            in[i] = rng_below(&rng, 50) == 0 ? (float)normal : -0.0f;
            break;
        default: /* few sizes, many ties */
            in[i] = (float)rng_below(&rng, 3) - 1;
            break;
        }
    }
}

static void sizes_are_bounded_by_the_count_and_others_refused(void **state)
{
    (void)state;
    /* T12: lengths around the borders of blocks and tiles; a byte less or more is RC_FORMAT. */
    static const size_t counts[] = {0,   1,   2,   4,   5,   7,   8,    9,    255,  256,
                                    257, 511, 512, 513, 639, 640, 4095, 4096, 4097, VALUES};
    static float in[VALUES], out[VALUES];
    static uint8_t bytes[BYTES + 1];
    struct codec codec;

    FOR_EACH_CODEC(&codec)
    {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            size_t n = counts[i], most = codec.ops->bytes_max(&codec, n), count;

            draw(i, i % KINDS, in, n);
            count = encode(&codec, i, in, n, bytes);
            if (codec.ops->varies ? count > most : count != most) {
                fail_msg("%s: %zu bytes of %zu values, not %zu", codec.name, count, n, most);
            }
            assert_true(codec_is_size(&codec, count, n));
            assert_true(n == 0 || most >= codec.ops->bytes_max(&codec, n - 1));
            assert_int_equal(decode(&codec, bytes, count, out, n), RC_OK);
            bytes[count] = 0;
            assert_int_equal(decode(&codec, bytes, count + 1, out, n), RC_FORMAT);
            if (count > 0) {
                assert_int_equal(decode(&codec, bytes, count - 1, out, n), RC_FORMAT);
            }
        }
        assert_int_equal(decode(&codec, bytes, 4, out, SIZE_MAX), RC_FORMAT);
        assert_int_equal(decode(&codec, bytes, 4, out, SIZE_MAX / 8), RC_FORMAT);
        assert_int_equal(decode(&codec, bytes, 4, out, CODEC_VALUES_MAX + 1), RC_FORMAT);
        assert_true(codec.ops->bytes_max(&codec, CHUNK_VALUES) <= CHUNK_VALUES * sizeof(float));
    }
}

static void bytes_follow_from_values_and_seed(void **state)
{
    (void)state;
    /* Equal runs give equal bytes; another seed gives others where the codec says so, and nowhere
     * else. */
    static float in[VALUES];
    static uint8_t bytes[3][BYTES];
    struct codec codec;

    draw(1, 0, in, VALUES);
    FOR_EACH_CODEC(&codec)
    {
        size_t count = encode(&codec, 7, in, VALUES, bytes[0]);

        assert_int_equal(encode(&codec, 7, in, VALUES, bytes[1]), count);
        assert_memory_equal(bytes[0], bytes[1], count);
        assert_int_equal(encode(&codec, 8, in, VALUES, bytes[2]), count);
        if ((memcmp(bytes[0], bytes[2], count) != 0) != codec.traits.is_random) {
            fail_msg("%s: random or not?", codec.name);
        }
    }
}

static void what_is_said_of_decoded_values_holds(void **state)
{
    (void)state;
    /* Lossless, idempotent, and how many are kept; of any finite bits what comes back is finite,
     * and zeros come back as zeros. */
    static float in[VALUES], out[VALUES], again[VALUES];
    static uint8_t bytes[2][BYTES];
    struct codec codec;

    FOR_EACH_CODEC(&codec)
    {
        FOR_EACH_SEED (seed, 3 * KINDS) {
            size_t count, kept = 0, most = (size_t)(codec.traits.kept * VALUES) + 2;

            draw(seed, seed % KINDS, in, VALUES);
            if (seed >= KINDS && seed < 2 * KINDS) codec_contract(&codec);
            for (size_t i = 0; i < VALUES && seed >= 2 * KINDS; i++) {
                uint32_t bits = float_bits(in[i]) ^ (uint32_t)(i * 2654435761u);

                in[i] =
                    float_of_bits((bits & 0x7f800000u) == 0x7f800000u ? bits ^ 0x800000u : bits);
            }
            count = encode(&codec, seed, in, VALUES, bytes[0]);
            check_seed(seed, decode(&codec, bytes[0], count, out, VALUES) == RC_OK);
            check_seed(seed, floats_are_finite(out, VALUES));
            for (size_t i = 0; i < VALUES; i++) {
                kept += out[i] != 0;
                if (seed % KINDS == 6 && seed < 2 * KINDS) check_seed(seed, out[i] == 0);
            }
            check_seed(seed, kept <= most);
            if (codec.traits.is_lossless) check_seed(seed, memcmp(in, out, sizeof in) == 0);
            if (!codec.traits.is_idempotent) continue;
            if (encode(&codec, seed, out, VALUES, bytes[1]) != count ||
                memcmp(bytes[0], bytes[1], count) != 0 ||
                decode(&codec, bytes[1], count, again, VALUES) != RC_OK) {
                fail_msg("SEED=%llu %s is not idempotent", (unsigned long long)seed, codec.name);
            }
        }
    }
}

static double squared(const float *x, const float *y, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double apart = (double)x[i] - (y == NULL ? 0 : (double)y[i]);

        sum += apart * apart;
    }
    return sum;
}

static void differences_draw_near_by_what_is_promised(void **state)
{
    (void)state;
    /* |x - C(x)|^2 <= (1 - d) |x|^2: for any x, or in the mean over seeds, four standard errors
     * granted. With codec_contract() only thresholds and f16 promise nothing. */
    enum { SEEDS = 500, CHUNK = 1300 };
    static float in[CHUNK], out[CHUNK];
    static uint8_t bytes[BYTES];
    struct codec codec;

    FOR_EACH_CODEC(&codec)
    {
        for (size_t form = 0; form < 2; form++) {
            if (form == 1) codec_contract(&codec);
            if (codec.traits.contraction <= 0) {
                assert_true(form == 0 || codec.ops == codec_f16.ops ||
                            codec.rest == codec_f16.ops || codec.ops == &codec_ops_threshold);
                continue;
            }
            for (size_t kind = 0; kind < KINDS; kind++) {
                size_t seeds = codec.traits.is_random ? SEEDS : 1;
                double limit, sum = 0, squares = 0, error;

                draw(index, kind, in, CHUNK);
                limit = (1 - (double)codec.traits.contraction) * squared(in, NULL, CHUNK);
                for (size_t seed = 0; seed < seeds; seed++) {
                    size_t count = encode(&codec, rng_mix(seed, index), in, CHUNK, bytes);

                    assert_int_equal(decode(&codec, bytes, count, out, CHUNK), RC_OK);
                    error = squared(in, out, CHUNK);
                    sum += error;
                    squares += error * error;
                }
                sum /= (double)seeds;
                error = sqrt(fmax(squares / (double)seeds - sum * sum, 0) / (double)seeds);
                if (!(sum <= limit + 1e-6 * squared(in, NULL, CHUNK) + 4 * error)) {
                    fail_msg("%s, chunk %zu: %g is left of %g", codec.name, kind, sum,
                             squared(in, NULL, CHUNK));
                }
            }
        }
    }
}

static void the_mean_over_seeds_is_the_value(void **state)
{
    (void)state;
    /* Each value's mean over 4,000 seeds, within five standard errors of it; the seeds are always
     * the same, so that chance decides once and for all. */
    enum { SEEDS = 4000, CHUNK = 700 };
    static float in[CHUNK], out[CHUNK];
    static double sums[CHUNK], squares[CHUNK];
    static uint8_t bytes[BYTES];
    struct codec codec;
    size_t tried = 0;

    FOR_EACH_CODEC(&codec)
    {
        if (!codec.traits.is_unbiased) continue;
        tried++;
        draw(index, 0, in, CHUNK);
        memset(sums, 0, sizeof sums);
        memset(squares, 0, sizeof squares);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            size_t count = encode(&codec, rng_mix(seed, index), in, CHUNK, bytes);

            assert_int_equal(decode(&codec, bytes, count, out, CHUNK), RC_OK);
            for (size_t i = 0; i < CHUNK; i++) {
                sums[i] += (double)out[i];
                squares[i] += (double)out[i] * (double)out[i];
            }
        }
        for (size_t i = 0; i < CHUNK; i++) {
            double mean = sums[i] / SEEDS, most = fabs((double)in[i]),
                   variance = fmax(squares[i] / SEEDS - mean * mean, 0);

            if (fabs(mean - (double)in[i]) <= 5 * sqrt(variance / SEEDS) + 1e-6 * most) continue;
            if (sums[i] == 0 && most < 0.02) continue; /* so small that no seed has chosen it */
            fail_msg("%s: value %zu is %g in the mean, not %g", codec.name, i, mean, (double)in[i]);
        }
        codec_contract(&codec);
        assert_false(codec.traits.is_unbiased);
    }
    assert_true(tried >= 6);
}

static void bytes_of_strangers_are_refused_or_finite(void **state)
{
    (void)state;
    /* Noise, and encodings with a byte changed: nothing is read past the end (sanitizers), and
     * whatever is taken is a chunk of numbers. */
    enum { CHUNK = 300 };
    static float in[CHUNK], out[CHUNK];
    static uint8_t bytes[8 * CHUNK];
    struct codec codec;
    struct rng rng;

    FOR_EACH_CODEC(&codec)
    {
        FOR_EACH_SEED (seed, 300) {
            size_t n, count;
            enum rc rc;

            rng_init(&rng, seed, index);
            n = 1 + (size_t)rng_below(&rng, CHUNK);
            draw(seed, seed % KINDS, in, n);
            count = encode(&codec, seed, in, n, bytes);
            if (seed % 3 == 0) {
                for (size_t i = 0; i < count; i++) {
                    bytes[i] = (uint8_t)rng_u64(&rng);
                }
            } else if (count > 0) {
                bytes[rng_below(&rng, count)] ^= (uint8_t)(1u << rng_below(&rng, 8));
            }
            rc = decode(&codec, bytes, count, out, n);
            check_seed(seed, rc == RC_OK || rc == RC_FORMAT || rc == RC_NONFINITE);
            check_seed(seed, rc != RC_OK || floats_are_finite(out, n));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_bounded_by_the_count_and_others_refused),
        cmocka_unit_test(bytes_follow_from_values_and_seed),
        cmocka_unit_test(what_is_said_of_decoded_values_holds),
        cmocka_unit_test(differences_draw_near_by_what_is_promised),
        cmocka_unit_test(the_mean_over_seeds_is_the_value),
        cmocka_unit_test(bytes_of_strangers_are_refused_or_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

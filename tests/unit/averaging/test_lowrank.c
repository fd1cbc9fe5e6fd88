/* Codec lowrank: numbers calculated by hand, what is exact, how near it comes to the nearest matrix
 * of its rank there is, what strangers may send. */
#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/floats.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { ROWS = 128, COLUMNS = 256, VALUES = ROWS * COLUMNS, SHORT = 5770, BYTES = 4 * VALUES };

_Static_assert((int)VALUES == (int)CHUNK_VALUES, "the shape of a whole chunk");

static struct codec codec_of(const char *name)
{
    struct codec codec = {.ops = NULL};
    struct fault why = {""};

    if (codec_find(name, &codec, &why) != RC_OK) fail_msg("%s", why.text);
    return codec;
}

/* |x - C(x)|^2 / |x|^2 */
static double left_of(const struct codec *codec, uint64_t seed, const float *x, size_t n)
{
    static uint8_t bytes[BYTES];
    static float out[VALUES];
    size_t count = codec->ops->encode(codec, seed, x, n, bytes);
    double all = 0, left = 0;

    check_seed(seed, codec->ops->decode(codec, bytes, count, out, n) == RC_OK);
    for (size_t i = 0; i < n; i++) {
        all += (double)x[i] * (double)x[i];
        left += ((double)x[i] - (double)out[i]) * ((double)x[i] - (double)out[i]);
    }
    return left / all;
}

/* The sum of `rank` outer products, the k-th as large as falls^k, and noise. */
static void draw(uint64_t seed, size_t columns, size_t rank, double falls, double noise, float *x,
                 size_t n)
{
    static double sums[VALUES];
    const size_t rows = (n + columns - 1) / columns;
    double left[ROWS], right[COLUMNS], size = 1;
    struct rng rng;

    rng_init(&rng, seed, rank);
    for (size_t i = 0; i < n; i++) {
        sums[i] = noise * rng_normal(&rng);
    }
    for (size_t k = 0; k < rank; k++, size *= falls) {
        for (size_t i = 0; i < rows; i++) {
            left[i] = size * rng_normal(&rng);
        }
        for (size_t j = 0; j < columns; j++) {
            right[j] = rng_normal(&rng);
        }
        for (size_t i = 0; i < n; i++) {
            sums[i] += left[i / columns] * right[i % columns];
        }
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)sums[i];
    }
}

static void a_matrix_of_16_is_as_it_was_calculated_by_hand(void **state)
{
    (void)state;
    /* Rows of 4: (1 2 2 4)^T (3 0 -4 12), with lengths 5 and 13. P is (.2 .4 .4 .8) or its
     * negative, Q then 5 times the row, or its negative. */
    static const double p[4] = {0.2, 0.4, 0.4, 0.8}, q[4] = {15, 0, -20, 60};
    const struct codec codec = codec_of("lowrank:1");
    uint8_t bytes[33];
    float in[16], out[16], sign;

    for (size_t i = 0; i < 16; i++) {
        in[i] = (float)(5 * p[i / 4] * q[i % 4] / 5);
    }
    assert_int_equal(codec.ops->encode(&codec, 1, in, 16, bytes), 32);
    sign = load_le_float(bytes) < 0 ? -1 : 1;
    for (size_t i = 0; i < 4; i++) {
        assert_true(fabs((double)(sign * load_le_float(bytes + 4 * i)) - p[i]) < 1e-7);
        assert_true(fabs((double)(sign * load_le_float(bytes + 16 + 4 * i)) - q[i]) < 1e-5);
    }
    for (size_t i = 0; i < 4; i++) { /* what decodes follows from the bytes alone */
        store_le_float(bytes + 4 * i, (float)(i + 1));
        store_le_float(bytes + 16 + 4 * i, (float)i - 1.5f);
    }
    assert_int_equal(codec.ops->decode(&codec, bytes, 32, out, 16), RC_OK);
    for (size_t i = 0; i < 16; i++) {
        float wanted = (float)(i / 4 + 1) * ((float)(i % 4) - 1.5f);

        assert_true(out[i] == wanted);
    }
    assert_int_equal(codec.ops->decode(&codec, bytes, 31, out, 16), RC_FORMAT);
    assert_int_equal(codec.ops->decode(&codec, bytes, 33, out, 16), RC_FORMAT);
}

static void sizes_are_those_of_the_factors_or_of_the_values(void **state)
{
    (void)state;
    /* A chunk has 128 rows of 256, 5,770 values 46 of 128 (the last one shorter). Where factors
     * would be no fewer numbers the values go as they are. */
    static const float values[4] = {1, -2, 3e-7f, 4};
    const struct codec four = codec_of("lowrank:4"), bytes8 = codec_of("lowrank:16|int8");
    uint8_t bytes[16];
    float out[4];

    assert_int_equal(four.ops->bytes_max(&four, VALUES), 4 * 4 * (128 + 256));
    assert_int_equal(four.ops->bytes_max(&four, SHORT), 4 * 4 * (46 + 128));
    assert_int_equal(bytes8.ops->bytes_max(&bytes8, VALUES),
                     16 * (128 + 256) + 4 * (16 * 128 / 256 + 16));
    assert_int_equal(four.ops->bytes_max(&four, 64), 4 * 64); /* 4 (8 + 8) are as many */
    assert_int_equal(four.ops->bytes_max(&four, 256), 4 * 4 * (16 + 16));
    assert_int_equal(four.ops->encode(&four, 1, values, 4, bytes), 16);
    assert_int_equal(four.ops->decode(&four, bytes, 16, out, 4), RC_OK);
    assert_memory_equal(out, values, sizeof values);
}

static void what_has_the_rank_comes_back(void **state)
{
    (void)state;
    /* To rounding, whatever its size and however many rows and columns; with bytes for numbers to
     * what these round. A short last row counts as one rank more. Of rank 6 four do not say all. */
    static const float sizes[] = {1, 1e-18f, 1e30f};
    static float x[VALUES];

    FOR_EACH_SEED (seed, 6) {
        const size_t n = seed % 2 == 0 ? VALUES : SHORT, columns = n == VALUES ? 256 : 128,
                     rank = seed / 2 + 1;
        const struct codec four = codec_of("lowrank:4"), bytes8 = codec_of("lowrank:4|int8"),
                           one = codec_of("lowrank:1");

        draw(seed, columns, rank, 0.7, 0, x, n);
        for (size_t i = 0; i < n; i++) {
            x[i] *= sizes[seed % 3];
        }
        check_seed(seed, left_of(&four, seed, x, n) < 1e-12);
        check_seed(seed, left_of(&bytes8, seed, x, n) < 1e-3);
        check_seed(seed, (left_of(&one, seed, x, n) < 1e-12) == (rank == 1 && n == VALUES));
        draw(seed, columns, 6, 1, 0, x, n);
        check_seed(seed, left_of(&four, seed, x, n) > 0.01);
    }
}

/* Of |x|^2 what the nearest matrix of that rank leaves: the largest eigenvalues of M M^T taken
 * away one by one, each by 300 steps of the power method. */
static double least_left(const float *x, size_t rank)
{
    static double gram[ROWS][ROWS];
    double all = 0, said = 0, vector[ROWS], next[ROWS], length = 0;

    for (size_t i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < ROWS; k++) {
            gram[i][k] = 0;
            for (size_t j = 0; j < COLUMNS; j++) {
                gram[i][k] += (double)x[i * COLUMNS + j] * (double)x[k * COLUMNS + j];
            }
        }
        all += gram[i][i];
    }
    for (size_t turn = 0; turn < rank; turn++, said += length) {
        for (size_t i = 0; i < ROWS; i++) {
            vector[i] = 1 + (double)(i * 7 % 13);
        }
        for (int step = 0; step <= 300; step++) {
            length = 0;
            for (size_t i = 0; i < ROWS; i++) {
                next[i] = 0;
                for (size_t k = 0; k < ROWS; k++) {
                    next[i] += gram[i][k] * vector[k];
                }
                length += next[i] * next[i];
            }
            length = sqrt(length);
            for (size_t i = 0; i < ROWS; i++) {
                vector[i] = next[i] / length;
            }
        }
        for (size_t i = 0; i < ROWS; i++) {
            for (size_t k = 0; k < ROWS; k++) {
                gram[i][k] -= length * vector[i] * vector[k];
            }
        }
    }
    return 1 - said / all;
}

static void it_is_nearly_the_nearest_of_its_rank(void **state)
{
    (void)state;
    /* |x - C(x)|^2 <= (1 - d) |x|^2, with d of R / 256 at least, also for noise, which has no
     * directions that matter; where some do, as in gradients, nearly what is possible (Eckart,
     * Young 1936), and never more. */
    static const struct {
        const char *text;
        size_t rank;
        double falls, noise, of_best; /* of what the nearest says, with a rank of 4 or more */
    } chunks[] = {
        {"noise", 0, 0, 1, 0.7},
        {"rank 4 and noise", 4, 1, 0.5, 0.99},
        {"gradients: sizes fall by 0.8", 60, 0.8, 0.05, 0.95},
        {"gradients: sizes fall by 0.95", 100, 0.95, 0.05, 0.8},
    };
    static const char *const names[] = {"lowrank:1", "lowrank:4", "lowrank:16", "lowrank:16|int8"};
    static const size_t ranks[] = {1, 4, 16, 16};
    static float x[VALUES];

    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        draw(c, COLUMNS, chunks[c].rank, chunks[c].falls, chunks[c].noise, x, VALUES);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            const struct codec codec = codec_of(names[i]);
            double best = 1 - least_left(x, ranks[i]), said = 1 - left_of(&codec, c, x, VALUES);

            print_message("%s, %s: d %.4f, the nearest %.4f, promised %.4f\n", chunks[c].text,
                          names[i], said, best, (double)codec.traits.contraction);
            assert_true(said >= (double)codec.traits.contraction);
            assert_true(ranks[i] < 4 || said >= chunks[c].of_best * best);
            assert_true(said <= best + 1e-6);
        }
    }
}

static void what_is_left_is_said_in_later_rounds(void **state)
{
    (void)state;
    /* A matrix of full rank, and then nothing new: each round's directions are new ones, so that
     * the rest gets smaller by more than a sixteenth of it a round. One that began from the last
     * round's would find again what it has just said. */
    static float x[VALUES], out[VALUES];
    static uint8_t bytes[BYTES];
    const struct codec codec = codec_of("lowrank:16|int8");
    double before = 0, after = 0;

    draw(5, COLUMNS, 100, 0.95, 0.05, x, VALUES);
    for (size_t i = 0; i < VALUES; i++) {
        before += (double)x[i] * (double)x[i];
    }
    for (uint64_t round = 0; round < 20; round++) {
        size_t count = codec.ops->encode(&codec, round, x, VALUES, bytes);

        assert_int_equal(codec.ops->decode(&codec, bytes, count, out, VALUES), RC_OK);
        for (size_t i = 0; i < VALUES; i++) {
            x[i] -= out[i];
        }
    }
    for (size_t i = 0; i < VALUES; i++) {
        after += (double)x[i] * (double)x[i];
    }
    assert_true(after < pow(1 - 1.0 / 16, 20) * before);
}

static void all_processors_write_and_read_alike(void **state)
{
    (void)state;
    static uint8_t bytes[2][BYTES];
    static float x[VALUES], out[2][VALUES];
    const enum cpu_set best = cpu_used;
    const struct codec codec = codec_of("lowrank:4");
    const size_t count = codec.ops->bytes_max(&codec, SHORT);

    draw(3, 128, 60, 0.8, 0.05, x, SHORT);
    for (int set = best; set >= CPU_BASELINE; set--) {
        const size_t at = set != (int)best;

        cpu_used = (enum cpu_set)set;
        codec.ops->encode(&codec, 3, x, SHORT, bytes[at]);
        assert_int_equal(codec.ops->decode(&codec, bytes[at], count, out[at], SHORT), RC_OK);
        if (at == 0) continue;
        assert_memory_equal(bytes[0], bytes[1], count);
        assert_memory_equal(out[0], out[1], SHORT * sizeof(float));
    }
    cpu_used = best;
}

static void strangers_send_numbers_or_nothing(void **state)
{
    (void)state;
    /* Factors that are no numbers, and such whose products are none. The largest values there are
     * come back as numbers. */
    static uint8_t good[BYTES], bad[BYTES];
    static float x[VALUES], out[VALUES];
    const struct codec codec = codec_of("lowrank:4");
    const size_t count = codec.ops->bytes_max(&codec, SHORT), q = 4 * 4 * 46;
    struct rng rng;

    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < SHORT; i++) {
        x[i] = rng_below(&rng, 2) == 0 ? FLT_MAX : -FLT_MAX;
    }
    assert_int_equal(codec.ops->encode(&codec, 1, x, SHORT, good), count);
    assert_int_equal(codec.ops->decode(&codec, good, count, out, SHORT), RC_OK);
    for (size_t at = 0; at < count; at += 4 * 37) {
        static const uint32_t words[] = {0x7f800000, 0xff800000, 0x7fc00000};

        memcpy(bad, good, count);
        store_le32(bad + at, words[at / 4 % 3]);
        assert_int_equal(codec.ops->decode(&codec, bad, count, out, SHORT), RC_NONFINITE);
    }
    memcpy(bad, good, count);
    store_le_float(bad, 1e30f);
    store_le_float(bad + q, 1e30f);
    assert_int_equal(codec.ops->decode(&codec, bad, count, out, SHORT), RC_NONFINITE);
    assert_int_equal(codec.ops->decode(&codec, good, count, out, SHORT + 200), RC_FORMAT);
    assert_int_equal(codec.ops->decode(&codec, good, count - 1, out, SHORT), RC_FORMAT);
    assert_int_equal(codec.ops->decode(&codec, good, count, out, CODEC_VALUES_MAX + 1), RC_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_of_16_is_as_it_was_calculated_by_hand),
        cmocka_unit_test(sizes_are_those_of_the_factors_or_of_the_values),
        cmocka_unit_test(what_has_the_rank_comes_back),
        cmocka_unit_test(it_is_nearly_the_nearest_of_its_rank),
        cmocka_unit_test(what_is_left_is_said_in_later_rounds),
        cmocka_unit_test(all_processors_write_and_read_alike),
        cmocka_unit_test(strangers_send_numbers_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

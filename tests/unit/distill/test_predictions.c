/* predictions: what is said comes back near enough, at any temperature, and foreign bytes that no
 * model says are refused. */
#include "tests/check.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "base/rng.h"
#include "distill/predictions.h"
#include "kernels/codec.h"
#include "kernels/softmax.h"

#include <math.h>
#include <string.h>

enum { OUTPUTS = 300, TOP = 16 };

static void random_row(struct rng *rng, float *row, uint32_t outputs, float spread)
{
    float largest;

    for (uint32_t c = 0; c < outputs; c++) {
        row[c] = spread * (float)rng_normal(rng);
    }
    (void)softmax_row(row, outputs, 1.0F, row, &largest);
}

/* p ^ (1 / T), over their sum. */
static void soften(const float *row, uint32_t outputs, double temperature, double *out)
{
    double sum = 0;

    for (uint32_t c = 0; c < outputs; c++) {
        out[c] = pow((double)row[c], 1 / temperature);
        sum += out[c];
    }
    for (uint32_t c = 0; c < outputs; c++) {
        out[c] /= sum;
    }
}

static void probabilities_come_back_at_any_temperature(void **state)
{
    static const double temperatures[] = {1, 3, 20};
    const struct predictions_shape shape = {.rows = 2, .outputs = 10};

    (void)state;
    assert_int_equal(predictions_bytes(&shape), 2 * 10 * 2);
    FOR_EACH_SEED (seed, 100) {
        struct rng rng;
        float said[20], back[20];
        uint8_t bytes[40];

        rng_init(&rng, seed, 1);
        random_row(&rng, said, 10, 6);
        random_row(&rng, said + 10, 10, 0.1F);
        predictions_encode(&shape, said, 1, bytes);
        for (size_t t = 0; t < ARRAY_COUNT(temperatures); t++) {
            double wanted[20];
            soften(said, 10, temperatures[t], wanted);
            soften(said + 10, 10, temperatures[t], wanted + 10);
            assert_int_equal(predictions_decode(&shape, bytes, 1, temperatures[t], back), RC_OK);
            for (int i = 0; i < 20; i++) {
                check_seed(seed, fabs((double)back[i] - wanted[i]) < 2e-3);
            }
        }
    }
}

/* A class that is all but impossible, and one that is certain. */
static void extremes_are_said_as_far_as_they_can_be(void **state)
{
    const struct predictions_shape shape = {.rows = 1, .outputs = 3};
    const float said[3] = {1, 0, 1e-30F};
    float back[3];
    uint8_t bytes[6];

    (void)state;
    predictions_encode(&shape, said, 1, bytes);
    assert_int_equal(predictions_decode(&shape, bytes, 1, 1.0, back), RC_OK);
    assert_true(back[0] > 0.999F && back[1] < 1e-20F && back[2] < 1e-20F);
    assert_true(back[1] > 0 && back[2] > 0);
}

static void the_likeliest_are_told_and_the_rest_is_spread(void **state)
{
    const struct predictions_shape shape = {.rows = 1, .outputs = OUTPUTS, .top = TOP};

    (void)state;
    assert_int_equal(predictions_bytes(&shape), TOP * 4);
    FOR_EACH_SEED (seed, 50) {
        float said[OUTPUTS], back[OUTPUTS];
        uint8_t bytes[TOP * 4];
        double sum = 0, smallest = 1;
        struct rng rng;
        uint32_t exact = 0;

        rng_init(&rng, seed, 1);
        random_row(&rng, said, OUTPUTS, 3);
        if (seed % 2 == 1) { /* equals: each once */
            const float each = (said[7] + said[8] + said[9]) / 3;
            said[7] = said[8] = said[9] = each;
        }
        predictions_encode(&shape, said, 1, bytes);
        assert_int_equal(predictions_decode(&shape, bytes, 1, 1.0, back), RC_OK);
        for (int c = 0; c < OUTPUTS; c++) {
            sum += (double)back[c];
            exact += fabsf(back[c] - said[c]) <= 0.02F * said[c];
            smallest = fmin(smallest, (double)back[c]);
        }
        check_seed(seed, fabs(sum - 1) < 1e-5 && exact >= TOP);
        check_seed(seed, smallest > 0);
        check_seed(seed, softmax_argmax(back, OUTPUTS) == softmax_argmax(said, OUTPUTS));
    }
}

static void real_values_come_back_as_they_are(void **state)
{
    const struct predictions_shape shape = {.rows = 1, .outputs = 3, .is_real = true};
    const float said[3] = {-1e20F, 0.1F, 3};
    float back[3];
    uint8_t bytes[12];

    (void)state;
    assert_int_equal(predictions_bytes(&shape), sizeof bytes);
    predictions_encode(&shape, said, 1, bytes);
    assert_int_equal(predictions_decode(&shape, bytes, 1, 3.0, back), RC_OK);
    assert_memory_equal(said, back, sizeof said);
    memcpy(bytes + 4, "\x00\x00\xc0\x7f", 4);
    assert_int_equal(predictions_decode(&shape, bytes, 1, 3.0, back), RC_NONFINITE);
}

static void put(uint8_t *bytes, float value)
{
    codec_encode(CODEC_F16, &value, 1, bytes);
}

static void bytes_that_no_model_says_are_refused(void **state)
{
    const struct predictions_shape all = {.rows = 1, .outputs = 4};
    const struct predictions_shape top = {.rows = 1, .outputs = 100, .top = 2};
    const float even[4] = {0.25F, 0.25F, 0.25F, 0.25F};
    uint8_t bytes[8], told[8] = {0};
    float out[100];

    (void)state;
    predictions_encode(&all, even, 1, bytes);
    assert_int_equal(predictions_decode(&all, bytes, 1, 1.0, out), RC_OK);
    memcpy(bytes + 2, "\x00\x7e", 2); /* NaN */
    assert_int_equal(predictions_decode(&all, bytes, 1, 1.0, out), RC_NONFINITE);
    memcpy(bytes + 2, "\x00\xfc", 2); /* -infinity */
    assert_int_equal(predictions_decode(&all, bytes, 1, 1.0, out), RC_NONFINITE);
    put(bytes + 2, 1); /* a probability of e */
    assert_int_equal(predictions_decode(&all, bytes, 1, 1.0, out), RC_FORMAT);
    put(bytes + 2, -1000);
    assert_int_equal(predictions_decode(&all, bytes, 1, 1.0, out), RC_FORMAT);
    put(bytes + 2, 0); /* together 1.75 */
    assert_int_equal(predictions_decode(&all, bytes, 1, 1.0, out), RC_FORMAT);
    memset(bytes, 0, sizeof bytes);
    for (int c = 0; c < 4; c++) {
        put(bytes + 2 * c, -9); /* next to nothing together */
    }
    assert_int_equal(predictions_decode(&all, bytes, 1, 1.0, out), RC_FORMAT);

    told[0] = 3;
    told[4] = 4;
    put(told + 2, -1);
    put(told + 6, -2);
    assert_int_equal(predictions_decode(&top, told, 1, 1.0, out), RC_OK);
    told[4] = 100; /* no such class */
    assert_int_equal(predictions_decode(&top, told, 1, 1.0, out), RC_FORMAT);
    told[4] = 3; /* twice */
    assert_int_equal(predictions_decode(&top, told, 1, 1.0, out), RC_FORMAT);
    told[4] = 4;
    put(told + 2, 0);
    put(told + 6, 0); /* together 2 */
    assert_int_equal(predictions_decode(&top, told, 1, 1.0, out), RC_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_come_back_at_any_temperature),
        cmocka_unit_test(extremes_are_said_as_far_as_they_can_be),
        cmocka_unit_test(the_likeliest_are_told_and_the_rest_is_spread),
        cmocka_unit_test(real_values_come_back_as_they_are),
        cmocka_unit_test(bytes_that_no_model_says_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

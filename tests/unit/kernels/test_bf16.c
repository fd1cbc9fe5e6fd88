/* bfloat16: rounding, packing, and who decides whether it is used. */
#include "tests/check.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dense/bf16.h"
#include "kernels/cpu/math.h"

#include <math.h>

static float widened(uint16_t half)
{
    return float_of_bits((uint32_t)half << 16);
}

static uint16_t rounded(float x)
{
    uint16_t y = 0;

    bf16_from_float(&x, &y, 1);
    return y;
}

static void rounding_is_to_the_nearest_and_to_even_between(void **state)
{
    (void)state;
    assert_int_equal(rounded(1.0F), 0x3f80);
    assert_int_equal(rounded(float_of_bits(0x3f808000)), 0x3f80); /* a tie, to even: down */
    assert_int_equal(rounded(float_of_bits(0x3f818000)), 0x3f82); /* a tie, to even: up */
    assert_int_equal(rounded(float_of_bits(0x3f808001)), 0x3f81);
    assert_int_equal(rounded(float_of_bits(0x7f7fffff)), 0x7f80); /* too large: infinity */
    assert_int_equal(rounded(-INFINITY), 0xff80);
    assert_int_equal(rounded(-0.0F), 0x8000);
    assert_true(isnan(widened(rounded(NAN))));
    assert_true(isnan(widened(rounded(float_of_bits(0x7f800001))))); /* not cut to infinity */
    assert_true(isnan(widened(rounded(float_of_bits(0xffffffff)))));
    FOR_EACH_SEED (seed, 20) {
        struct rng rng;
        float x[67];
        uint16_t y[67];

        rng_init(&rng, seed, 1);
        for (size_t i = 0; i < ARRAY_COUNT(x); i++) {
            x[i] = (float)(rng_normal(&rng) * pow(10.0, rng_unit(&rng) * 20.0 - 10.0));
        }
        bf16_from_float(x, y, ARRAY_COUNT(x));
        for (size_t i = 0; i < ARRAY_COUNT(x); i++) {
            float is = fabsf(widened(y[i]) - x[i]);
            check_seed(seed, is <= fabsf(widened((uint16_t)(y[i] + 1)) - x[i]));
            check_seed(seed, is <= fabsf(widened((uint16_t)(y[i] - 1)) - x[i]));
        }
    }
}

static void packed_forms_are_the_matrix_from_rows_or_columns_and_zeros_behind(void **state)
{
    (void)state;
    if (!cpu_has(CPU_AVX512)) {
        print_message("skipped: without AVX-512 nobody multiplies bfloat16\n");
        skip();
    }
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 2);
        struct product_form f = {.inner = 1 + (size_t)rng_below(&rng, 80),
                                 .columns = 1 + (size_t)rng_below(&rng, 150),
                                 .block = 16 * (1 + (size_t)rng_below(&rng, 4))};
        f.words = (f.inner + 31) / 32 * 16;
        size_t blocks = (f.columns + f.block - 1) / f.block, n = blocks * f.block * f.words * 2;
        float *b = mem_array(f.inner * f.columns, sizeof(*b));
        float *turned = mem_array(f.inner * f.columns, sizeof(*b));
        uint16_t *first = mem_array(n, sizeof(*first)), *second = mem_array(n, sizeof(*second));
        struct product_form whole = f; /* of float32: a word is a value */
        float *third = mem_array(n, sizeof(*third));

        memset(first, 0xff, n * sizeof(*first));
        memset(second, 0xff, n * sizeof(*second));
        for (size_t i = 0; i < f.inner * f.columns; i++) {
            b[i] = (float)rng_normal(&rng);
            turned[i % f.columns * f.inner + i / f.columns] = b[i];
        }
        whole.words = 2 * f.words;
        memset(third, 0xff, n * sizeof(*third));
        float_pack_transposed(&whole, turned, 0, blocks, third);
        bf16_pack(&f, b, 0, blocks, first);
        bf16_pack_transposed(&f, turned, 0, blocks / 2, second);
        bf16_pack_transposed(&f, turned, blocks / 2, blocks, second);
        for (size_t i = 0; i < n; i++) {
            size_t column = i / (f.block * f.words * 2) * f.block + i / 2 % f.block;
            size_t row = i / (2 * f.block) % f.words * 2 + i % 2;
            bool is_there = column < f.columns && row < f.inner;
            uint16_t expected = is_there ? rounded(b[row * f.columns + column]) : 0;

            check_seed(seed, first[i] == expected);
            check_seed(seed, second[i] == expected);
            row = i / f.block % whole.words;
            column = i / (f.block * whole.words) * f.block + i % f.block;
            is_there = column < f.columns && row < f.inner;
            check_seed(seed, third[i] == (is_there ? b[row * f.columns + column] : 0.0F));
        }
        mem_free(b);
        mem_free(turned);
        mem_free(first);
        mem_free(second);
        mem_free(third);
    }
}

/* Clocks under which everything, or what is measured first, takes no time at all. */
static uint64_t ticks_;

static uint64_t slowing_clock(void)
{
    ticks_++;
    return ticks_ * ticks_;
}

static uint64_t standing_clock(void)
{
    return 7;
}

static bool is_bf16_with(const struct cpu_backend_options *options, const char *reason)
{
    struct backend *cpu = cpu_backend_create(options);
    bool is;

    assert_non_null(cpu);
    is = cpu_backend_is_bf16(cpu);
    assert_non_null(strstr(cpu_backend_precision_reason(cpu), reason));
    assert_non_null(strstr(cpu_backend_precision_reason(cpu), is ? "bf16" : "float32"));
    backend_destroy(cpu);
    return is;
}

static void the_backend_uses_bf16_if_asked_and_faster_and_says_why(void **state)
{
    (void)state;
    struct cpu_backend_options options = {.threads = 1};
    assert_false(is_bf16_with(&options, "asked for"));
    options.precision = PRECISION_BF16;
    options.convolution = CPU_CONVOLUTION_IM2COL;
    assert_false(is_bf16_with(&options, "oneDNN"));
    options.convolution = CPU_CONVOLUTION_AUTO;
    options.forces_bf16 = true;
    if (!is_bf16_with(&options, "")) {
        print_message("skipped: oneDNN multiplies no bfloat16 on this processor\n");
        skip();
    }
    options.forces_bf16 = false;
    if (is_bf16_with(&options, "")) return; /* AMX: always */
    assert_false(is_bf16_with(&options, "clock"));
    options.now_ns = standing_clock;
    assert_false(is_bf16_with(&options, "slower"));
    options.now_ns = slowing_clock;
    assert_true(is_bf16_with(&options, "faster"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_to_the_nearest_and_to_even_between),
        cmocka_unit_test(packed_forms_are_the_matrix_from_rows_or_columns_and_zeros_behind),
        cmocka_unit_test(the_backend_uses_bf16_if_asked_and_faster_and_says_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

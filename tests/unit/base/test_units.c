/* Quantities as people write them. */
#include "tests/check.h"

#include "base/units.h"

#include <math.h>

struct example {
    const char *text;
    uint64_t value;
};

typedef bool (*parse_fn)(const char *text, uint64_t *value);

static void check_all(parse_fn parse, const struct example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = 12345;

        if (!parse(examples[i].text, &value)) fail_msg("%s is refused", examples[i].text);
        if (value != examples[i].value) {
            fail_msg("%s gives %llu", examples[i].text, (unsigned long long)value);
        }
    }
}

/* Each is refused and leaves the output alone. */
static void refuse_all(parse_fn parse, const char *const *texts, size_t count)
{
    uint64_t value = 12345;

    for (size_t i = 0; i < count; i++) {
        if (parse(texts[i], &value)) fail_msg("%s is taken", texts[i]);
        assert_int_equal(value, 12345);
    }
    assert_false(parse(NULL, &value));
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Counts are plain digits up to 2^64 - 1. */
static void counts_are_digits(void **state)
{
    static const struct example good[] = {
        {"0", 0}, {"16", 16}, {"60000", 60000}, {"007", 7}, {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.5",
                                      "0x10",
                                      "1e3",
                                      "1,0",
                                      "18446744073709551616",
                                      "16x",
                                      "1s",
                                      "99999999999999999999999"};

    (void)state;
    check_all(units_parse_count, good, COUNT(good));
    refuse_all(units_parse_count, bad, COUNT(bad));
}

/* Durations take a unit or mean seconds; fractions are exact to the nanosecond. */
static void durations_become_nanoseconds(void **state)
{
    static const struct example good[] = {{"10s", UINT64_C(10000000000)},
                                          {"250ms", 250000000},
                                          {"5m", UINT64_C(300000000000)},
                                          {"5min", UINT64_C(300000000000)},
                                          {"2h", UINT64_C(7200000000000)},
                                          {"50us", 50000},
                                          {"7ns", 7},
                                          {"0", 0},
                                          {"3", UINT64_C(3000000000)},
                                          {"0.5", 500000000},
                                          {"1.5s", 1500000000},
                                          {"0.1ms", 100000},
                                          {"0.0000000015s", 2},
                                          {"0.123456789s", 123456789}};
    static const char *const bad[] = {"",
                                      "s",
                                      "-1s",
                                      "1 s",
                                      "1sec",
                                      "1d",
                                      ".5s",
                                      "1.s",
                                      "1.5ns",
                                      "1S",
                                      "inf",
                                      "nan",
                                      "1e3s",
                                      "1s1",
                                      "18446744073709551615s",
                                      "5124095576h",
                                      "0.1234567890123456789s"};

    (void)state;
    check_all(units_parse_duration, good, COUNT(good));
    refuse_all(units_parse_duration, bad, COUNT(bad));
}

/* Rates are bits a second in steps of 1000; a bare number would be a guess. */
static void rates_become_bits_a_second(void **state)
{
    static const struct example good[] = {{"10mbit", 10000000},    {"1gbit", 1000000000},
                                          {"64kbit", 64000},       {"8bit", 8},
                                          {"2.5gbit", 2500000000}, {"0", 0}};
    static const char *const bad[] = {"",       "10",      "10mb",   "mbit",
                                      "-1mbit", "10 mbit", "10MBIT", "18446744073709551615kbit",
                                      "0.5bit"};

    (void)state;
    check_all(units_parse_rate, good, COUNT(good));
    refuse_all(units_parse_rate, bad, COUNT(bad));
}

/* Shares are decimal numbers, with an exponent or a per cent sign, and finite. */
static void shares_are_finite_numbers(void **state)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0.05", 0.05}, {"1e-3", 1e-3}, {"5%", 0.05}, {"0", 0.0},     {"1", 1.0},
                {"0.1%", 1e-3}, {"2E2", 200.0}, {"12", 12.0}, {"1e+2", 100.0}};
    static const char *const bad[] = {
        "",
        "-0.1",
        "+1",
        " 1",
        "1 ",
        ".5",
        "5.",
        "1e",
        "1e+",
        "0x1",
        "inf",
        "nan",
        "1%%",
        "1,5",
        "1e999",
        "%",
        "1.2.3",
        "0.5x",
        "0.0000000000000000000000000000000000000000000000000000000000000001"};
    double value = -7.0;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        if (units_parse_share(bad[i], &value)) fail_msg("%s is taken", bad[i]);
        assert_true(value == -7.0);
    }
    assert_false(units_parse_share(NULL, &value));
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_true(units_parse_share(good[i].text, &value));
        assert_true(fabs(value - good[i].value) <= 1e-15 * good[i].value);
    }
}

/* Numbers for people are short, change unit in time, and fit the space they get. */
static void quantities_read_well(void **state)
{
    char text[32], tight[5];

    (void)state;
    assert_string_equal(units_format_bytes(0, text, sizeof text), "0 B");
    assert_string_equal(units_format_bytes(1023, text, sizeof text), "1023 B");
    assert_string_equal(units_format_bytes(1024, text, sizeof text), "1.0 KiB");
    assert_string_equal(units_format_bytes(1677722, text, sizeof text), "1.6 MiB");
    assert_string_equal(units_format_bytes((1 << 20) - 1, text, sizeof text), "1.0 MiB");
    assert_string_equal(units_format_bytes(UINT64_MAX, text, sizeof text), "16.0 EiB");
    assert_string_equal(units_format_count(0, text, sizeof text), "0");
    assert_string_equal(units_format_count(999, text, sizeof text), "999");
    assert_string_equal(units_format_count(1000, text, sizeof text), "1,000");
    assert_string_equal(units_format_count(1625866, text, sizeof text), "1,625,866");
    assert_string_equal(units_format_count(UINT64_MAX, text, sizeof text),
                        "18,446,744,073,709,551,615");
    assert_string_equal(units_format_count(1625866, tight, sizeof tight), "1,62");
    assert_string_equal(units_format_seconds(0, text, sizeof text), "0.0 s");
    assert_string_equal(units_format_seconds(99.4, text, sizeof text), "99 s");
    assert_string_equal(units_format_seconds(200, text, sizeof text), "3 min 20 s");
    assert_string_equal(units_format_seconds(7500, text, sizeof text), "2 h 5 min");
    assert_string_equal(units_format_seconds(-1, text, sizeof text), "very long");
    assert_string_equal(units_format_seconds(1e300, text, sizeof text), "very long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_digits),
        cmocka_unit_test(durations_become_nanoseconds),
        cmocka_unit_test(rates_become_bits_a_second),
        cmocka_unit_test(shares_are_finite_numbers),
        cmocka_unit_test(quantities_read_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

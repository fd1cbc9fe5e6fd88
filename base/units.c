/*
 * Quantities as people write them. Numbers are read digit by digit, in integers, because strtod()
 * takes signs, hexadecimal, "inf" and the user's decimal comma, and rounds. Pure; any thread.
 */
#include "base/units.h"

#include "base/bytes.h"
#include "base/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRACTION_DIGITS_MAX = 18, NUMBER_TEXT_MAX = 64 };

struct unit {
    const char *name;
    uint64_t scale;
};

static const struct unit durations[] = {{"", NS_PER_S},         {"ns", 1},
                                        {"us", NS_PER_US},      {"ms", NS_PER_MS},
                                        {"s", NS_PER_S},        {"m", 60 * NS_PER_S},
                                        {"min", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S}};
static const struct unit rates[] = {
    {"bit", 1}, {"kbit", 1000}, {"mbit", 1000000}, {"gbit", UINT64_C(1000000000)}};
static const struct unit counts[] = {{"", 1}};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* DIGITS[.DIGITS]UNIT, rounded to the nearest whole number of the smallest unit. */
static bool parse_quantity(const char *text, const struct unit *units, size_t units_count,
                           uint64_t *value)
{
    uint64_t whole = 0, fraction = 0, tens = 1, total;
    int digits = 0;

    if (text == NULL || !is_digit(*text)) return false;
    for (; is_digit(*text); text++) {
        if (__builtin_mul_overflow(whole, 10, &whole)) return false;
        if (__builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole)) return false;
    }
    if (*text == '.') {
        for (text++; is_digit(*text) && digits < FRACTION_DIGITS_MAX; text++, digits++) {
            fraction = fraction * 10 + (uint64_t)(*text - '0');
            tens *= 10;
        }
        if (digits == 0) return false;
    }
    for (size_t i = 0; i < units_count; i++) {
        unsigned __int128 part = (unsigned __int128)fraction * units[i].scale + tens / 2;

        if (strcmp(text, units[i].name) != 0) continue;
        if (digits > 0 && units[i].scale == 1) return false; /* there is no half a byte */
        if (__builtin_mul_overflow(whole, units[i].scale, &total)) return false;
        if (__builtin_add_overflow(total, (uint64_t)(part / tens), &total)) return false;
        *value = total;
        return true;
    }
    return false;
}

bool units_parse_count(const char *text, uint64_t *count)
{
    return parse_quantity(text, counts, ARRAY_COUNT(counts), count);
}

bool units_parse_duration(const char *text, uint64_t *ns)
{
    return parse_quantity(text, durations, ARRAY_COUNT(durations), ns);
}

bool units_parse_rate(const char *text, uint64_t *bits_per_s)
{
    if (text != NULL && strcmp(text, "0") == 0) {
        *bits_per_s = 0;
        return true;
    }
    return parse_quantity(text, rates, ARRAY_COUNT(rates), bits_per_s);
}

/* DIGITS[.DIGITS][e[+-]DIGITS][%]: the shape is checked here, the value is strtod()'s. */
bool units_parse_share(const char *text, double *value)
{
    char number[NUMBER_TEXT_MAX];
    size_t length = 0;
    const char *at = text;
    double parsed;

    if (text == NULL || !is_digit(*at)) return false;
    while (is_digit(*at)) {
        at++;
    }
    if (*at == '.') {
        if (!is_digit(*++at)) return false;
        while (is_digit(*at)) {
            at++;
        }
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '+' || *at == '-') at++;
        if (!is_digit(*at)) return false;
        while (is_digit(*at)) {
            at++;
        }
    }
    length = (size_t)(at - text);
    if (length >= sizeof number || (strcmp(at, "") != 0 && strcmp(at, "%") != 0)) return false;
    memcpy(number, text, length);
    number[length] = '\0';
    parsed = strtod(number, NULL);
    if (*at == '%') parsed /= 100.0;
    if (!isfinite(parsed)) return false;
    *value = parsed;
    return true;
}

char *units_format_bytes(uint64_t bytes, char *text, size_t cap)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024.0;
    size_t i = 0;

    if (bytes < 1024) {
        snprintf(text, cap, "%" PRIu64 " B", bytes);
        return text;
    }
    while (value >= 1023.95 && i + 1 < ARRAY_COUNT(names)) { /* never print "1024.0 KiB" */
        value /= 1024.0;
        i++;
    }
    snprintf(text, cap, "%.1f %s", value, names[i]);
    return text;
}

char *units_format_count(uint64_t count, char *text, size_t cap)
{
    char digits[24], grouped[32];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    size_t at = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) grouped[at++] = ',';
        grouped[at++] = digits[i];
    }
    grouped[at] = '\0';
    snprintf(text, cap, "%s", grouped);
    return text;
}

char *units_format_seconds(double seconds, char *text, size_t cap)
{
    const unsigned long long whole = seconds < 1e9 ? (unsigned long long)(seconds + 0.5) : 0;

    if (!(seconds >= 0 && seconds < 1e9))
        snprintf(text, cap, "very long");
    else if (whole < 10)
        snprintf(text, cap, "%.1f s", seconds);
    else if (whole < 100)
        snprintf(text, cap, "%llu s", whole);
    else if (whole < 6000)
        snprintf(text, cap, "%llu min %llu s", whole / 60, whole % 60);
    else
        snprintf(text, cap, "%llu h %llu min", whole / 3600, whole / 60 % 60);
    return text;
}

/*
 * units: quantities as people write them. All parsers take the whole string (no trailing junk, no
 * sign where none makes sense, no overflow) and return false otherwise.
 */
#ifndef GRAPEVINE_BASE_UNITS_H
#define GRAPEVINE_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool units_parse_count(const char *text, uint64_t *count); /* "16", "60000" */
bool units_parse_share(const char *text, double *value);   /* "0.05", "1e-3", "5%"; finite */
bool units_parse_duration(
    const char *text, uint64_t *ns); /* "10s", "250ms", "5m", "2h", "50us"; bare number: seconds */
bool units_parse_rate(const char *text,
                      uint64_t *bits_per_s); /* "10mbit", "1gbit", "64kbit"; bare: only "0" */
/** Short human forms into `text`: "1.6 MiB", "1,625,866". Return `text`. */
char *units_format_bytes(uint64_t bytes, char *text, size_t cap);
char *units_format_count(uint64_t count, char *text, size_t cap);
/** "4.2 s", "12 s", "3 min 20 s", "2 h 5 min"; "very long" where it is no number. */
char *units_format_seconds(double seconds, char *text, size_t cap);

#endif

/*
 * fields: a C struct as a msgpack map with small integer keys, described by a table with one row a
 * field. The same row writes and reads, so what we send is what we accept.
 */
#ifndef GRAPEVINE_GOSSIP_WIRE_FIELDS_H
#define GRAPEVINE_GOSSIP_WIRE_FIELDS_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FIELD_KEY_MAX = 63 };

/* How a field lies in memory, and in the map. */
enum field_kind {
    FIELD_UINT,  /* uint8_t to uint64_t (`bytes` says which), in [low, high] */
    FIELD_BOOL,  /* bool */
    FIELD_FLOAT, /* float, finite, in [least, most], float32 in the map */
    FIELD_FIXED, /* exactly `bytes` bytes in place; bin */
    FIELD_TEXT,  /* char[bytes] with NUL, printable ASCII; str */
    FIELD_BLOB, /* const uint8_t *, uint32_t count: borrowed, whole `unit`s, at most `bytes`; bin */
    FIELD_STRING,   /* const char *, uint32_t count: borrowed, at most `bytes`, any content; str */
    FIELD_ROUND,    /* struct round_key; bin of id, boot, counter (little-endian) */
    FIELD_RECORDS,  /* struct record_ref[high], uint32_t count: borrowed; array of bin */
    FIELD_MEMBERS,  /* struct member_ref[high], uint32_t count; bin of id, boot each */
    FIELD_SECTIONS, /* uint8_t[high] at `at`, uint64_t[high] at `second_at`, uint32_t count; bin of
                     * section u8, values u64 each */
    FIELD_TEXTS     /* char[high][bytes] with NUL, uint32_t count, printable; array of str */
};

struct field {
    uint8_t key;         /* at most FIELD_KEY_MAX; a table's keys rise */
    bool is_above_least; /* FLOAT: `least` itself is refused */
    bool is_optional;    /* may be missing: the caller's value stays. BLOB, UINT and FIXED: not
                          * written when empty or all zero */
    uint16_t at, count_at, second_at; /* offsets in the struct */
    uint32_t bytes, unit;
    enum field_kind kind;
    float least, most;
    uint64_t low, high;
};

/* Rows of a table. AT(member) and SIZE(member), of its struct, are the including file's. */
#define ROW(number, member, of_kind, ...)                                                          \
    {                                                                                              \
        .key = (number), .kind = FIELD_##of_kind, .at = AT(member), __VA_ARGS__                    \
    }
#define UINT(number, member, from, to)                                                             \
    ROW(number, member, UINT, .bytes = SIZE(member), .low = (from), .high = (to))
#define ANY(number, member) UINT(number, member, 0, UINT64_MAX >> (64 - 8 * SIZE(member)))
/* Of later versions: not written while it is 0. */
#define LATER(number, member)                                                                      \
    ROW(number, member, UINT, .bytes = SIZE(member), .is_optional = true,                          \
        .high = UINT64_MAX >> (64 - 8 * SIZE(member)))
#define BOOL(number, member)  ROW(number, member, BOOL, .low = 0)
#define FIXED(number, member) ROW(number, member, FIXED, .bytes = SIZE(member))
#define TEXT(number, member)  ROW(number, member, TEXT, .bytes = SIZE(member))
#define BLOB(number, member, max, whole, may_be_missing)                                           \
    ROW(number, member, BLOB, .count_at = AT(member##_bytes), .bytes = (max), .unit = (whole),     \
        .is_optional = (may_be_missing))

/** Write `from` as a map into `out`. RC_LIMIT: `cap` is short. Values that break their row are
 *  CHECKed, but for unprintable characters, which become '?'. */
MUST_USE enum rc fields_encode(const struct field *fields, size_t fields_count, const void *from,
                               uint8_t *out, size_t cap, size_t *count);
/** Scan `body`, then fill the struct `to`; borrowed parts point into `body`. Keys nobody knows are
 *  skipped; a key twice, a missing one, a value that breaks its row are RC_FORMAT, a float that is
 *  not finite RC_NONFINITE, too deep or too many objects RC_LIMIT. `to` is then unspecified. */
MUST_USE enum rc fields_decode(const struct field *fields, size_t fields_count, const uint8_t *body,
                               size_t count, void *to);

#endif

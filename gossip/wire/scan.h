/*
 * scan: is this byte string exactly one msgpack object of bounded shape? Walked without allocating
 * and without recursion, before anything else looks at it.
 */
#ifndef GRAPEVINE_GOSSIP_WIRE_SCAN_H
#define GRAPEVINE_GOSSIP_WIRE_SCAN_H

#include "base/rc.h"
#include "gossip/wire/limits.h"

#include <stddef.h>
#include <stdint.h>

enum scan_kind {
    SCAN_NIL,
    SCAN_BOOL,    /* value: 0 or 1 */
    SCAN_UINT,    /* value */
    SCAN_INT,     /* a signed type; value: the bits, sign-extended */
    SCAN_FLOAT32, /* value: the bits */
    SCAN_FLOAT64, /* value: the bits */
    SCAN_TEXT,    /* value: bytes that follow the head */
    SCAN_BYTES,   /* value: bytes that follow the head */
    SCAN_ARRAY,   /* value: objects that follow */
    SCAN_MAP      /* value: pairs of objects that follow */
};

/* The head of one object: everything but the bytes or objects it announces. */
struct scan_item {
    enum scan_kind kind;
    uint64_t value;
    size_t head_bytes;
};

/** Parse one head. RC_FORMAT: cut off, an extension type, or the unused code 0xc1. What the head
 *  announces is checked against the bytes that are left only by scan_check() and scan_skip(). */
MUST_USE enum rc scan_head(const uint8_t *bytes, size_t count, struct scan_item *item);
/** How many bytes the one object at `bytes` has. RC_FORMAT: cut off, or a count larger than the
 * bytes left; RC_LIMIT: nested deeper than SCAN_DEPTH_MAX or more than SCAN_OBJECTS_MAX objects. */
MUST_USE enum rc scan_skip(const uint8_t *bytes, size_t count, size_t *object_bytes);
/** Exactly one object, of exactly `count` bytes. Errors as scan_skip(). */
MUST_USE enum rc scan_check(const uint8_t *bytes, size_t count);

#endif

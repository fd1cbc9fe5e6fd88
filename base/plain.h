/*
 * plain: bytes of files and of other peers, made harmless to whoever reads them on a terminal. What
 * a terminal obeys instead of showing it is written out, each of its bytes as \xNN: control
 * characters (C0, DEL, C1), marks that turn the direction of writing, ends of lines and paragraphs,
 * and what is no UTF-8. Everything else stays as it is. Pure.
 */
#ifndef GRAPEVINE_BASE_PLAIN_H
#define GRAPEVINE_BASE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAIN_STEP_BYTES = 4 * 4 + 1 }; /* what one step writes at most, with its NUL */

/** Bytes of the character of UTF-8 that `text`, of `left` > 0 bytes, begins with; 0: it is none. */
size_t utf8_character(const uint8_t *text, size_t left);
/** Nothing of it would be written out. */
bool plain_is_so(const char *text);
/** `text` ends with a NUL; `to` gets one, and no half of a character where `cap` > 0 is short.
 * `text` may not be in `to`. Returns `to`. */
const char *plain_text(const char *text, char *to, size_t cap);
/** The same for `count` bytes, which may hold NULs. */
const char *plain_bytes(const void *bytes, size_t count, char *to, size_t cap);

/* Text that comes byte by byte: a character may be cut between two of them. Its lines and tabs
 * stay. All zero at first. */
struct plain_stream {
    uint8_t held[4]; /* the beginning of a character */
    uint8_t count;
};

/** What can be shown now, of PLAIN_STEP_BYTES with its NUL. */
void plain_stream_take(struct plain_stream *stream, uint8_t byte, char *to);
/** What is left of a character that never ended. */
void plain_stream_end(struct plain_stream *stream, char *to);

#endif

/*
 * sealer: one direction of one connection in one epoch: a record cipher with its key and IV. It
 * counts nothing: the owner of the connection hands out the numbers, so that records can be sealed
 * and opened by several threads in any order, and no number can be used twice by accident.
 *
 *   record  len u32 | epoch u8 | zero u8[3] | sealed inner | tag 16; the first 8 are the AAD
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_SEALER_H
#define GRAPEVINE_GOSSIP_SECURE_SEALER_H

#include "base/rc.h"
#include "gossip/secure/aes_gcm.h"
#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bit mask of ciphers; preference: AES if both have it. SUITE_CLEAR seals nothing at all: it is for
 * benchmarks over loopback, and never part of secure_suites(). */
enum { SUITE_CHACHA20POLY1305 = 1, SUITE_AES256GCM = 2, SUITE_CLEAR = 4 };
enum { SEALER_ROOT_BYTES = 32 };

struct sealer;

/** Without a key; NULL: no memory. `fast`: what does AES-256-GCM here, must outlive the sealer;
 * NULL: libsodium. */
struct sealer *sealer_create(const struct aes_gcm *fast);
/** Wipes; NULL is fine. */
void sealer_destroy(struct sealer *sealer);
/** Take key and IV from the direction's `root`. `suite`: exactly one. Again: another epoch. */
void sealer_set(struct sealer *sealer, uint32_t suite, const uint8_t root[SEALER_ROOT_BYTES],
                uint8_t epoch);
/** Forget the key; sealer_set() may follow. */
void sealer_wipe(struct sealer *sealer);
/** Does it leave bytes as they are? */
bool sealer_is_clear(const struct sealer *sealer);

/** Of a sealer that leaves bytes as they are: what comes before the inner part of `inner_count`
 *  bytes, and after it. */
void sealer_frame_clear(const struct sealer *sealer, size_t inner_count,
                        uint8_t header[RECORD_HEADER_BYTES], uint8_t tag[RECORD_TAG_BYTES]);
/** Record `number`, its inner part given in two pieces, into `out` of record bytes
 *  (secure_record_bytes()). Pieces may not overlap `out`; together BULK_BYTES_MAX at most
 * (CHECKed). Any thread. */
void sealer_seal(const struct sealer *sealer, uint64_t number, const void *head, size_t head_count,
                 const void *tail, size_t tail_count, uint8_t *out);
/** Open a whole record in place; `inner` points into `frame`. RC_FORMAT, RC_AUTH. Any thread. */
MUST_USE enum rc sealer_open(const struct sealer *sealer, uint64_t number, uint8_t *frame,
                             size_t count, const uint8_t **inner, size_t *inner_count);

/** Keyed BLAKE2b of label || context: every key is bound to its purpose. `out_count`: 16 to 32. */
void sealer_derive(const uint8_t key[SEALER_ROOT_BYTES], const char *label, const void *context,
                   size_t count, uint8_t *out, size_t out_count);

#endif

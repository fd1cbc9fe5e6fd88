/*
 * attach: a further connection of a session that is open already, for bulk. One frame each way, of
 * fixed size and without a second DH: a MAC under the session's exporter shows that who connects is
 * one end of the session, and the reply's MAC covers both, so neither frame can be replayed.
 *
 *   ATTACH     prefix 8 | session id 16 | number u32 | epoch u32 | nonce 16 | MAC 16      64 bytes
 *   ATTACH_OK  the same with the other side's nonce
 *
 * Pure; loop thread.
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_ATTACH_H
#define GRAPEVINE_GOSSIP_SECURE_ATTACH_H

#include "gossip/secure/secure.h"

enum {
    ATTACH_BYTES = 64,
    ATTACH_NONCE_BYTES = 16,
    ATTACH_WINDOW = 64 /* numbers below the highest seen that may still come */
};

/* What is known of a connection from its two frames. Numbers are even when the session's initiator
 * asks, odd when the responder does; each is accepted once in an epoch. */
struct attach {
    uint32_t number, epoch;
    uint8_t session_id[SESSION_ID_BYTES];
    uint8_t nonces[2][ATTACH_NONCE_BYTES]; /* of who asks, of who answers */
};

/** ATTACH with the first nonce of `attach`. `is_initiator`: the sender is the session's. */
void attach_ask(const struct attach *attach, const uint8_t exporter[SECRET_BYTES],
                bool is_initiator, uint8_t out[ATTACH_BYTES]);
/** Is this frame an ATTACH by its form? Then number, epoch, session id and first nonce, none of
 *  them proven, are in `attach`. */
bool attach_parse(const uint8_t *frame, size_t count, struct attach *attach);
/** Is the MAC of the session's? RC_AUTH; RC_FORMAT: a number of the wrong side. */
MUST_USE enum rc attach_verify(const uint8_t frame[ATTACH_BYTES],
                               const uint8_t exporter[SECRET_BYTES], bool is_from_initiator);
/** ATTACH_OK with the second nonce, to the request `asked`. */
void attach_answer(const struct attach *attach, const uint8_t asked[ATTACH_BYTES],
                   const uint8_t exporter[SECRET_BYTES], bool is_initiator,
                   uint8_t out[ATTACH_BYTES]);
/** The answer to what attach_ask() wrote: fills in the second nonce. RC_FORMAT, RC_AUTH. */
MUST_USE enum rc attach_finish(struct attach *attach, const uint8_t *frame, size_t count,
                               const uint8_t exporter[SECRET_BYTES], bool is_initiator);
/** The root keys of the two directions of the connection, see sealer_set(). */
void attach_roots(const struct attach *attach, const uint8_t exporter[SECRET_BYTES],
                  uint8_t of_initiator[SECRET_BYTES], uint8_t of_responder[SECRET_BYTES]);

/* Numbers seen from the other side in one epoch; all zero is empty. */
struct attach_window {
    uint32_t epoch;
    uint32_t next; /* one above the highest, halved */
    uint64_t seen; /* bit i: next - 1 - i */
};
/** False: it was there before, or is too old; then nothing changed. */
bool attach_window_accept(struct attach_window *window, uint32_t epoch, uint32_t number);

#endif

/*
 * secure: who may read and write what. Noise_XXpsk3_25519_ChaChaPoly_SHA512 (Noise revision 34)
 * behind a keyed-BLAKE2b gate, then AEAD records with counter nonces. Maps message to message and
 * knows no socket, clock or msgpack. Payloads of the handshake are opaque here
 * (gossip/signed/hello.h).
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_SECURE_H
#define GRAPEVINE_GOSSIP_SECURE_SECURE_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/peer_id.h"
#include "base/rc.h"
#include "gossip/secure/sealer.h"
#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SECRET_BYTES = 32, PUBLIC_KEY_BYTES = 32, SIGNATURE_BYTES = 64, SIGN_SECRET_BYTES = 64 };
enum {
    H1_BYTES = 72, /* the whole first frame: prefix, e, tag, gate */
    SESSION_ID_BYTES = 16,
    SIGNED_BYTES_MAX = 1024, /* label, its NUL, run id and what is signed */
    KEY_TEXT_MAX = 96        /* a key file, NUL included */
};
/* Records one key may seal, either way. */
#define SECURE_RECORDS_MAX (UINT64_C(1) << 32)

/** Once per process, before anything else here. RC_UNSUPPORTED if libsodium cannot start. */
MUST_USE enum rc secure_start(void);

/* An Ed25519 key pair: a peer's lasting identity. */
struct identity {
    uint8_t public_key[PUBLIC_KEY_BYTES];
    uint8_t secret_key[SIGN_SECRET_BYTES];
};
/** From 32 bytes of entropy (a seed). */
void identity_from_seed(const uint8_t seed[SECRET_BYTES], struct identity *identity);
struct peer_id identity_peer_id(const uint8_t public_key[PUBLIC_KEY_BYTES]);
/** Key file text: one line "grapevine-identity-1 <64 hex digits of the seed>"; parse is strict
 *  (RC_PARSE) and takes one line end or none. Format writes the line, its end and NUL; cap is
 *  CHECKed: KEY_TEXT_MAX is enough. */
MUST_USE enum rc identity_parse(const char *text, size_t bytes, struct identity *identity,
                                struct fault *why);
void identity_format(const uint8_t seed[SECRET_BYTES], char *text, size_t cap);
/** Ed25519 over label || 0x00 || run id || bytes, at most SIGNED_BYTES_MAX in all (CHECKed; longer
 *  texts never verify). What is signed for one purpose or one run proves nothing for another. */
void identity_sign(const struct identity *identity, const char *label, struct digest run_id,
                   const void *bytes, size_t count, uint8_t signature[SIGNATURE_BYTES]);
bool identity_verify(const uint8_t public_key[PUBLIC_KEY_BYTES], const char *label,
                     struct digest run_id, const void *bytes, size_t count,
                     const uint8_t signature[SIGNATURE_BYTES]);

struct agreed;

/* What isolates one swarm from another. */
struct swarm_secret {
    struct digest run_id;         /* BLAKE2b-256("run/1" || swarm name) */
    uint8_t secret[SECRET_BYTES]; /* from the swarm key file, or derived from run_id ("public") */
    bool is_public;
    struct agreed *agreed; /* of simulations: gossip/secure/agreed.h; else NULL */
};
/** `key`: NULL for a public swarm. */
void swarm_secret_derive(const char *name, const uint8_t *key, struct swarm_secret *secret);
/** Swarm key file text: "grapevine-swarm-key-1 <64 hex digits>"; as strict as identity_parse(). */
MUST_USE enum rc swarm_key_parse(const char *text, size_t bytes, uint8_t key[SECRET_BYTES],
                                 struct fault *why);
void swarm_key_format(const uint8_t key[SECRET_BYTES], char *text, size_t cap);

/* The per-process X25519 static key of the handshake. */
struct static_key {
    uint8_t public_key[PUBLIC_KEY_BYTES];
    uint8_t secret_key[SECRET_BYTES];
};
void static_key_from_seed(const uint8_t seed[SECRET_BYTES], struct static_key *key);

enum secure_state {
    SECURE_START,   /* nothing sent or received */
    SECURE_WAITING, /* in the middle of the handshake */
    SECURE_OPEN,    /* records may flow */
    SECURE_FAILED   /* hang up */
};

struct secure_options {
    bool is_initiator;
    const struct swarm_secret *swarm; /* borrowed for the life of the session */
    const struct static_key *key;     /* likewise */
    uint8_t ephemeral_seed[SECRET_BYTES];
    const uint8_t *payload; /* our handshake payload, copied; at most HELLO_BYTES_MAX */
    size_t payload_bytes;
    uint64_t records_max;       /* 0: SECURE_RECORDS_MAX; less lets tests reach it */
    const struct aes_gcm *fast; /* borrowed, see sealer_create(); NULL will do */
};

struct secure;
/* What is known of a session so far: zeros where it is too early. */
struct secure_session {
    enum secure_state state;
    uint32_t epoch;   /* the newest whose keys are known */
    uint32_t suite;   /* 0: not chosen yet */
    bool is_rekeying; /* initiator: between secure_rekey_start() and secure_rekey_finish() */
    size_t remote_payload_bytes;
    uint8_t remote_payload[HELLO_BYTES_MAX]; /* proven, as is the rest, once OPEN */
    uint8_t remote_key[PUBLIC_KEY_BYTES];    /* the other side's X25519 static key */
    uint8_t session_id[SESSION_ID_BYTES];
};

struct secure *secure_create(const struct secure_options *options); /* NULL: no memory */
void secure_destroy(struct secure *secure);                         /* wipes; NULL is fine */
const struct secure_session *secure_session(const struct secure *secure);

/** Cheap test of a stranger's first H1_BYTES bytes: prefix and gate MAC, no DH. RC_FORMAT, RC_AUTH.
 */
MUST_USE enum rc secure_gate_check(const struct swarm_secret *swarm, const uint8_t *frame,
                                   size_t count);
/** Initiator: H1 into `out` (HANDSHAKE_BYTES_MAX). */
MUST_USE enum rc secure_greet(struct secure *secure, uint8_t *out, size_t *out_count);
/** Feed one whole handshake frame; an answer, if one is due, goes to `out` (HANDSHAKE_BYTES_MAX),
 *  else *out_count is 0. The initiator is OPEN after H2 (its H3 is the answer), the responder after
 *  H3. Any failure: state FAILED and RC_AUTH or RC_FORMAT. */
MUST_USE enum rc secure_answer(struct secure *secure, const uint8_t *frame, size_t count,
                               uint8_t *out, size_t *out_count);
/** Once OPEN, before the first record and exactly once: fix the record cipher, the best one both
 *  masks have. */
void secure_choose_suite(struct secure *secure, uint32_t remote_suites);
uint32_t secure_suites(void); /* this machine's mask */

/** Frame bytes of a record with `inner_count` inner bytes. */
static inline size_t secure_record_bytes(size_t inner_count)
{
    return RECORD_HEADER_BYTES + inner_count + RECORD_TAG_BYTES;
}
/** Seal `head` then `tail` (one inner record given in two parts, tail may be empty) into `out` of
 *  secure_record_bytes(head + tail); `out` may not overlap them. Counts up the sending nonce.
 *  RC_LIMIT when the key is used up (SECURE_RECORDS_MAX: dial again) or the inner is larger than
 *  BULK_BYTES_MAX, RC_CLOSED once the session has failed. */
MUST_USE enum rc secure_seal(struct secure *secure, const void *head, size_t head_count,
                             const void *tail, size_t tail_count, uint8_t *out);
/** Open one whole record frame in place; `inner` points into `frame`. RC_FORMAT (also before OPEN),
 *  RC_AUTH, RC_LIMIT (key used up); any of them ends the session: state FAILED. */
MUST_USE enum rc secure_open(struct secure *secure, uint8_t *frame, size_t count,
                             const uint8_t **inner, size_t *inner_count);

/* The next epoch of a session, which only its initiator can begin. Keys of the old one are wiped at
 * the first record of the new one, either way. Errors end the session. */
/** Records of the epoch in force, of the direction that has more of them. */
uint64_t secure_records(const struct secure *secure);
/** What keys of further connections of the session come from; borrowed. NULL: neither the newest
 *  epoch nor one that the other side may still be in. */
const uint8_t *secure_exporter(const struct secure *secure, uint32_t epoch);
bool secure_may_rekey(const struct secure *secure);
/** Initiator: the ephemeral key for REKEY {epoch + 1, key}. */
void secure_rekey_start(struct secure *secure, const uint8_t seed[SECRET_BYTES],
                        uint8_t key[PUBLIC_KEY_BYTES]);
/** Responder: a REKEY came; `key` is for REKEY_ACK, which must be the last record sealed before
 *  secure_rekey_send(). RC_FORMAT: out of turn; RC_AUTH: a point of low order. */
MUST_USE enum rc secure_rekey_answer(struct secure *secure, uint32_t epoch,
                                     const uint8_t remote[PUBLIC_KEY_BYTES],
                                     const uint8_t seed[SECRET_BYTES],
                                     uint8_t key[PUBLIC_KEY_BYTES]);
/** Initiator: REKEY_ACK came; the next record is sealed in the new epoch. Errors as above. */
MUST_USE enum rc secure_rekey_finish(struct secure *secure, uint32_t epoch,
                                     const uint8_t remote[PUBLIC_KEY_BYTES]);
void secure_rekey_send(struct secure *secure);

/**
 * How many bytes the frame that starts with `head` (PREFIX_BYTES == RECORD_HEADER_BYTES of it) has
 * in all: a handshake frame if it begins with the magic, else a record. RC_FORMAT when reserved
 * bytes are set, RC_LIMIT when it would exceed `frame_max`, HANDSHAKE_BYTES_MAX or the largest
 * record. The framers of all envs use it.
 */
MUST_USE enum rc frame_bytes(const uint8_t head[PREFIX_BYTES], size_t frame_max, size_t *count);

#endif

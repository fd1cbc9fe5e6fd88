/*
 * certificate: the swarm owner's word that a key may be a member: whose key, in which role, from
 * when until when. Signed over a label and the run id, so that it is good for one swarm only.
 *
 *   wire   version u8 (1) | role u8 | not_before u64 | not_after u64 | serial u64 | signature 64
 *          (little-endian; whose key it is for is not said: it is the one that shows it)
 *   file   one line: grapevine-certificate-1 KEY ROLE NOT_BEFORE NOT_AFTER SERIAL SIGNATURE
 *          (keys and signature in hexadecimal, times in seconds since 1970)
 */
#ifndef GRAPEVINE_GOSSIP_SIGNED_CERTIFICATE_H
#define GRAPEVINE_GOSSIP_SIGNED_CERTIFICATE_H

#include "gossip/signed/hello.h"

enum {
    CERTIFICATE_WIRE_BYTES = 2 + 3 * 8 + SIGNATURE_BYTES,
    CERTIFICATE_TEXT_MAX = 384,   /* of a file, NUL included */
    CERTIFICATE_SLACK_S = 15 * 60 /* clocks may differ by so much */
};

struct certificate {
    uint8_t public_key[PUBLIC_KEY_BYTES]; /* whom it is for */
    uint32_t role;                        /* enum hello_role: the most it may come as */
    uint64_t not_before_s, not_after_s;   /* since 1970, both included */
    uint64_t serial;                      /* the owner's own count; for people */
    uint8_t signature[SIGNATURE_BYTES];
};

void certificate_sign(struct certificate *certificate, const struct identity *authority,
                      struct digest run_id);
bool certificate_verify(const struct certificate *certificate,
                        const uint8_t authority[PUBLIC_KEY_BYTES], struct digest run_id);
/** RC_REFUSED and why, if it is not yet or no longer good at `wall_s`. */
MUST_USE enum rc certificate_check_time(const struct certificate *certificate, uint64_t wall_s,
                                        struct fault *why);

void certificate_encode(const struct certificate *certificate, uint8_t out[CERTIFICATE_WIRE_BYTES]);
/** The certificate that `public_key` shows. RC_FORMAT; nothing is verified yet. */
MUST_USE enum rc certificate_decode(const uint8_t *bytes, size_t count,
                                    const uint8_t public_key[PUBLIC_KEY_BYTES],
                                    struct certificate *certificate);

void certificate_format(const struct certificate *certificate, char text[CERTIFICATE_TEXT_MAX]);
/** Strict; one line end or none. RC_PARSE and what is wrong. Nothing is verified yet. */
MUST_USE enum rc certificate_parse(const char *text, size_t bytes, struct certificate *certificate,
                                   struct fault *why);

/* Public keys and signatures as people see them: lower-case hexadecimal. */
enum { PUBLIC_KEY_TEXT = 2 * PUBLIC_KEY_BYTES + 1, SIGNATURE_TEXT = 2 * SIGNATURE_BYTES + 1 };
void public_key_format(const uint8_t key[PUBLIC_KEY_BYTES], char text[PUBLIC_KEY_TEXT]);
/** `text` need not end after the 64 digits. False: they are not all hexadecimal. */
bool public_key_parse(const char *text, size_t bytes, uint8_t key[PUBLIC_KEY_BYTES]);
void signature_format(const uint8_t signature[SIGNATURE_BYTES], char text[SIGNATURE_TEXT]);
bool signature_parse(const char *text, size_t bytes, uint8_t signature[SIGNATURE_BYTES]);

#endif

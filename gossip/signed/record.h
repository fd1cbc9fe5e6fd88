/* record: what a member says of itself, signed by itself, carried by anybody. */
#ifndef GRAPEVINE_GOSSIP_SIGNED_RECORD_H
#define GRAPEVINE_GOSSIP_SIGNED_RECORD_H

#include "gossip/secure/secure.h"

/* What a peer has found out about itself: can others dial it? */
enum nat_class {
    NAT_UNKNOWN,
    NAT_PUBLIC,
    NAT_OUTBOUND /* it can only dial out: behind a NAT or a firewall */
};

/** "unknown", "public" or "outbound-only". */
const char *nat_class_name(enum nat_class nat);

/* Bits of `features`, here and in hellos; those that a reader does not know say nothing to it. */
enum {
    FEATURE_KEEPER = 1 /* it keeps the model for others and does not train: no shard, no rounds */
};

/* Where a peer says it is: one to 15 letters, digits, '.', '_' and '-', padded with NUL. "": it
 * does not say. */
enum { SITE_BYTES = 16 };
/** It has that form, or is all NUL. */
bool site_is_valid(const char site[SITE_BYTES]);
/** `text` as such. RC_PARSE. */
MUST_USE enum rc site_parse(const char *text, char site[SITE_BYTES], struct fault *why);

struct member_record {
    uint8_t public_key[PUBLIC_KEY_BYTES];
    struct boot_id boot;
    uint64_t incarnation; /* persisted counter, + 1 per start, + 1 per refutation or change */
    uint32_t features;
    uint32_t nat;                                            /* enum nat_class */
    bool has_left;                                           /* a signed farewell */
    char addresses[RECORD_ADDRESSES_MAX][ADDRESS_BYTES_MAX]; /* "host:port", numeric or name */
    uint32_t addresses_count;
    char site[SITE_BYTES];
};

/** Signed bytes into `out`. RC_LIMIT: longer than SIGNED_RECORD_BYTES_MAX (the addresses have some
 *  190 characters together) or than `cap`; RC_FORMAT: an address or a site of another form. A
 * public key that is not `identity`'s is CHECKed. */
MUST_USE enum rc record_sign(const struct member_record *record, const struct identity *identity,
                             struct digest run_id, uint8_t *out, size_t cap, size_t *count);
/** Parse alone: what the record claims, with nothing verified. RC_FORMAT. Addresses and site
 *  are checked for form. */
MUST_USE enum rc record_peek(const uint8_t *bytes, size_t count, struct member_record *record);
/** Verify alone, for the key that record_peek() found. RC_FORMAT, RC_AUTH. */
MUST_USE enum rc record_verify(const uint8_t *bytes, size_t count, struct digest run_id,
                               const uint8_t public_key[PUBLIC_KEY_BYTES]);

#endif

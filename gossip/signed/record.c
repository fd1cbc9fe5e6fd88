/*
 * A member record on the wire: signature (64 bytes), then one msgpack map. The signature covers
 * "record/1", the run id and the map as it stands, so carriers cannot change a byte, and a record
 * of one run means nothing in another. A record that names nobody's key cannot verify, so whoever
 * holds it need not know from whom it came. Runs on the loop thread.
 */
#include "gossip/signed/record.h"

#include "base/check.h"
#include "gossip/wire/address.h"
#include "gossip/wire/fields.h"

static const char label[] = "record/1";

#define AT(member) offsetof(struct member_record, member)

static const struct field fields[] = {
    {.key = 0, .kind = FIELD_FIXED, .at = AT(public_key), .bytes = PUBLIC_KEY_BYTES},
    {.key = 1, .kind = FIELD_FIXED, .at = AT(boot), .bytes = BOOT_ID_BYTES},
    {.key = 2, .kind = FIELD_UINT, .at = AT(incarnation), .bytes = 8, .high = UINT64_MAX},
    {.key = 3, .kind = FIELD_UINT, .at = AT(features), .bytes = 4, .high = UINT32_MAX},
    {.key = 4, .kind = FIELD_BOOL, .at = AT(has_left)},
    {.key = 5,
     .kind = FIELD_TEXTS,
     .at = AT(addresses),
     .count_at = AT(addresses_count),
     .bytes = ADDRESS_BYTES_MAX,
     .high = RECORD_ADDRESSES_MAX},
    {.key = 6, .kind = FIELD_UINT, .at = AT(nat), .bytes = 4, .high = NAT_OUTBOUND},
};

const char *nat_class_name(enum nat_class nat)
{
    static const char *const names[] = {
        [NAT_UNKNOWN] = "unknown", [NAT_PUBLIC] = "public", [NAT_OUTBOUND] = "outbound-only"};

    return names[nat];
}

/* Room for the run id in front of a map, which is what is signed. */
struct claim {
    uint8_t bytes[DIGEST_BYTES + SIGNED_RECORD_BYTES_MAX];
};

_Static_assert(sizeof label + sizeof(struct claim) <= SIGNED_BYTES_MAX, "it can be signed");

static bool addresses_are_valid(const struct member_record *record)
{
    for (uint32_t i = 0; i < record->addresses_count; i++) {
        if (!address_is_valid(record->addresses[i])) return false;
    }
    return true;
}

enum rc record_sign(const struct member_record *record, const struct identity *identity,
                    struct digest run_id, uint8_t *out, size_t cap, size_t *count)
{
    struct claim claim;
    uint8_t *map = claim.bytes + DIGEST_BYTES;
    size_t map_bytes = 0;
    enum rc rc;

    CHECK(memcmp(record->public_key, identity->public_key, PUBLIC_KEY_BYTES) == 0);
    CHECK(record->addresses_count <= RECORD_ADDRESSES_MAX);
    if (!addresses_are_valid(record)) return RC_FORMAT;
    if (cap > SIGNED_RECORD_BYTES_MAX) cap = SIGNED_RECORD_BYTES_MAX;
    if (cap < SIGNATURE_BYTES) return RC_LIMIT;
    memcpy(claim.bytes, run_id.bytes, DIGEST_BYTES);
    rc = fields_encode(fields, ARRAY_COUNT(fields), record, map, cap - SIGNATURE_BYTES, &map_bytes);
    if (rc != RC_OK) return rc;
    identity_sign(identity, label, claim.bytes, DIGEST_BYTES + map_bytes, out);
    memcpy(out + SIGNATURE_BYTES, map, map_bytes);
    *count = SIGNATURE_BYTES + map_bytes;
    return RC_OK;
}

enum rc record_peek(const uint8_t *bytes, size_t count, struct member_record *record)
{
    struct member_record parsed;

    if (count <= SIGNATURE_BYTES || count > SIGNED_RECORD_BYTES_MAX) return RC_FORMAT;
    memset(&parsed, 0, sizeof parsed);
    if (fields_decode(fields, ARRAY_COUNT(fields), bytes + SIGNATURE_BYTES, count - SIGNATURE_BYTES,
                      &parsed) != RC_OK ||
        !addresses_are_valid(&parsed)) {
        return RC_FORMAT;
    }
    *record = parsed;
    return RC_OK;
}

enum rc record_verify(const uint8_t *bytes, size_t count, struct digest run_id,
                      const uint8_t public_key[PUBLIC_KEY_BYTES])
{
    struct claim claim;
    size_t map_bytes;

    if (count <= SIGNATURE_BYTES || count > SIGNED_RECORD_BYTES_MAX) return RC_FORMAT;
    map_bytes = count - SIGNATURE_BYTES;
    memcpy(claim.bytes, run_id.bytes, DIGEST_BYTES);
    memcpy(claim.bytes + DIGEST_BYTES, bytes + SIGNATURE_BYTES, map_bytes);
    if (!identity_verify(public_key, label, claim.bytes, DIGEST_BYTES + map_bytes, bytes)) {
        return RC_AUTH;
    }
    return RC_OK;
}

enum rc record_open(const uint8_t *bytes, size_t count, struct digest run_id,
                    struct member_record *record)
{
    struct member_record parsed;
    enum rc rc = record_peek(bytes, count, &parsed);

    if (rc == RC_OK) rc = record_verify(bytes, count, run_id, parsed.public_key);
    if (rc == RC_OK) *record = parsed;
    return rc;
}

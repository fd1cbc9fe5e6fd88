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

#define AT(member)   offsetof(struct member_record, member)
#define SIZE(member) ((uint32_t)sizeof(((struct member_record *)0)->member))

static const struct field fields[] = {
    FIXED(0, public_key),
    FIXED(1, boot),
    ANY(2, incarnation),
    ANY(3, features),
    BOOL(4, has_left),
    ROW(5, addresses, TEXTS, .count_at = AT(addresses_count), .bytes = ADDRESS_BYTES_MAX,
        .high = RECORD_ADDRESSES_MAX),
    UINT(6, nat, 0, NAT_OUTBOUND),
    ROW(7, site, FIXED, .bytes = SITE_BYTES, .is_optional = true),
};

bool site_is_valid(const char site[SITE_BYTES])
{
    size_t length = strnlen(site, SITE_BYTES);

    if (length == SITE_BYTES) return false;
    for (size_t i = 0; i < SITE_BYTES; i++) {
        bool is_letter = (site[i] >= 'a' && site[i] <= 'z') || (site[i] >= 'A' && site[i] <= 'Z');
        bool is_other = (site[i] >= '0' && site[i] <= '9') || site[i] == '.' || site[i] == '_' ||
                        site[i] == '-';

        if (i < length ? !is_letter && !is_other : site[i] != '\0') return false;
    }
    return true;
}

enum rc site_parse(const char *text, char site[SITE_BYTES], struct fault *why)
{
    char parsed[SITE_BYTES] = {0};
    size_t length = strlen(text);

    if (length < SITE_BYTES) memcpy(parsed, text, length);
    if (length == 0 || length >= SITE_BYTES || !site_is_valid(parsed)) {
        return fault_set(why, RC_PARSE,
                         "--site \"%.40s\": a site is one to %d letters, digits, '.', '_' and '-'",
                         text, SITE_BYTES - 1);
    }
    memcpy(site, parsed, SITE_BYTES);
    return RC_OK;
}

const char *nat_class_name(enum nat_class nat)
{
    static const char *const names[] = {
        [NAT_UNKNOWN] = "unknown", [NAT_PUBLIC] = "public", [NAT_OUTBOUND] = "outbound-only"};

    return names[nat];
}

_Static_assert(sizeof label + DIGEST_BYTES + SIGNED_RECORD_BYTES_MAX <= SIGNED_BYTES_MAX,
               "it can be signed");

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
    uint8_t *map = out + SIGNATURE_BYTES;
    size_t map_bytes = 0;
    enum rc rc;

    CHECK(memcmp(record->public_key, identity->public_key, PUBLIC_KEY_BYTES) == 0);
    CHECK(record->addresses_count <= RECORD_ADDRESSES_MAX);
    if (!addresses_are_valid(record) || !site_is_valid(record->site)) return RC_FORMAT;
    if (cap > SIGNED_RECORD_BYTES_MAX) cap = SIGNED_RECORD_BYTES_MAX;
    if (cap < SIGNATURE_BYTES) return RC_LIMIT;
    rc = fields_encode(fields, ARRAY_COUNT(fields), record, map, cap - SIGNATURE_BYTES, &map_bytes);
    if (rc != RC_OK) return rc;
    identity_sign(identity, label, run_id, map, map_bytes, out);
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
        !addresses_are_valid(&parsed) || !site_is_valid(parsed.site)) {
        return RC_FORMAT;
    }
    *record = parsed;
    return RC_OK;
}

enum rc record_verify(const uint8_t *bytes, size_t count, struct digest run_id,
                      const uint8_t public_key[PUBLIC_KEY_BYTES])
{
    if (count <= SIGNATURE_BYTES || count > SIGNED_RECORD_BYTES_MAX) return RC_FORMAT;
    return identity_verify(public_key, label, run_id, bytes + SIGNATURE_BYTES,
                           count - SIGNATURE_BYTES, bytes)
               ? RC_OK
               : RC_AUTH;
}

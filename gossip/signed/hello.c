/*
 * The handshake payload as one msgpack map. Noise proves that the other side holds its static key;
 * the signature in here ("static/1", run id, static key, boot id) ties that key to an identity for
 * this run and this start of the process. The rest needs no signature of its own: the payload is
 * sealed under keys only those two have. Key 6 is a
 * certificate, opaque here; key 7 is kept for limits.
 * Runs on the loop thread.
 */
#include "gossip/signed/hello.h"

#include "base/check.h"
#include "gossip/wire/address.h"
#include "gossip/wire/fields.h"

static const char label[] = "static/1";

/* A hello and what travels with it only. */
struct signed_hello {
    struct hello hello;
    uint8_t signature[SIGNATURE_BYTES];
    const uint8_t *certificate; /* borrowed; copied into the hello */
    uint32_t certificate_bytes;
};

#define AT(member)   offsetof(struct signed_hello, member)
#define SIZE(member) ((uint32_t)sizeof(((struct signed_hello *)0)->member))

static const struct field fields[] = {
    {.key = 0, .kind = FIELD_FIXED, .at = AT(hello.public_key), .bytes = PUBLIC_KEY_BYTES},
    {.key = 1, .kind = FIELD_FIXED, .at = AT(signature), .bytes = SIGNATURE_BYTES},
    {.key = 2, .kind = FIELD_FIXED, .at = AT(hello.boot), .bytes = BOOT_ID_BYTES},
    {.key = 3, .kind = FIELD_UINT, .at = AT(hello.incarnation), .bytes = 8, .high = UINT64_MAX},
    {.key = 4, .kind = FIELD_UINT, .at = AT(hello.features), .bytes = 4, .high = UINT32_MAX},
    {.key = 5, .kind = FIELD_UINT, .at = AT(hello.suites), .bytes = 4, .high = UINT32_MAX},
    {.key = 6,
     .kind = FIELD_BLOB,
     .is_optional = true,
     .at = AT(certificate),
     .count_at = AT(certificate_bytes),
     .bytes = CERTIFICATE_BYTES_MAX,
     .unit = 1},
    {.key = 8, .kind = FIELD_UINT, .at = AT(hello.listen_port), .bytes = 2, .high = UINT16_MAX},
    {.key = 9, .kind = FIELD_TEXT, .at = AT(hello.observed), .bytes = SIZE(hello.observed)},
    {.key = 10, .kind = FIELD_FIXED, .at = AT(hello.schema), .bytes = DIGEST_BYTES},
    {.key = 11, .kind = FIELD_TEXT, .at = AT(hello.spec), .bytes = SIZE(hello.spec)},
    {.key = 12, .kind = FIELD_UINT, .at = AT(hello.role), .bytes = 4, .high = HELLO_OBSERVER},
    {.key = 13, .kind = FIELD_TEXT, .at = AT(hello.method), .bytes = SIZE(hello.method)},
    {.key = 14, .kind = FIELD_UINT, .at = AT(hello.dialback), .bytes = 8, .high = UINT64_MAX},
};

enum { CLAIM_BYTES = DIGEST_BYTES + PUBLIC_KEY_BYTES + BOOT_ID_BYTES };

static void claim(struct digest run_id, const uint8_t key[PUBLIC_KEY_BYTES], struct boot_id boot,
                  uint8_t bytes[CLAIM_BYTES])
{
    memcpy(bytes, run_id.bytes, DIGEST_BYTES);
    memcpy(bytes + DIGEST_BYTES, key, PUBLIC_KEY_BYTES);
    memcpy(bytes + DIGEST_BYTES + PUBLIC_KEY_BYTES, boot.bytes, BOOT_ID_BYTES);
}

void hello_sign(const struct hello *hello, const struct identity *identity, struct digest run_id,
                const uint8_t key[PUBLIC_KEY_BYTES], uint8_t signature[SIGNATURE_BYTES])
{
    uint8_t bytes[CLAIM_BYTES];

    CHECK(memcmp(hello->public_key, identity->public_key, PUBLIC_KEY_BYTES) == 0);
    claim(run_id, key, hello->boot, bytes);
    identity_sign(identity, label, bytes, sizeof bytes, signature);
}

enum rc hello_write(const struct hello *hello, const uint8_t signature[SIGNATURE_BYTES],
                    uint8_t *out, size_t cap, size_t *count)
{
    struct signed_hello with = {.hello = *hello,
                                .certificate = hello->certificate,
                                .certificate_bytes = hello->certificate_bytes};

    memcpy(with.signature, signature, SIGNATURE_BYTES);
    if (!address_is_valid(with.hello.observed)) with.hello.observed[0] = '\0';
    if (cap > HELLO_BYTES_MAX) cap = HELLO_BYTES_MAX;
    return fields_encode(fields, ARRAY_COUNT(fields), &with, out, cap, count);
}

enum rc hello_encode(const struct hello *hello, const struct identity *identity,
                     struct digest run_id, const uint8_t key[PUBLIC_KEY_BYTES], uint8_t *out,
                     size_t cap, size_t *count)
{
    uint8_t signature[SIGNATURE_BYTES];

    hello_sign(hello, identity, run_id, key, signature);
    return hello_write(hello, signature, out, cap, count);
}

enum rc hello_read(const uint8_t *bytes, size_t count, struct hello *hello,
                   uint8_t signature[SIGNATURE_BYTES])
{
    struct signed_hello with;
    enum rc rc;

    if (count > HELLO_BYTES_MAX) return RC_FORMAT;
    memset(&with, 0, sizeof with);
    rc = fields_decode(fields, ARRAY_COUNT(fields), bytes, count, &with);
    if (rc != RC_OK) return RC_FORMAT;
    if (with.hello.observed[0] != '\0' && !address_is_valid(with.hello.observed)) return RC_FORMAT;
    if (with.certificate_bytes > 0) {
        memcpy(with.hello.certificate, with.certificate, with.certificate_bytes);
    }
    with.hello.certificate_bytes = with.certificate_bytes;
    *hello = with.hello;
    memcpy(signature, with.signature, SIGNATURE_BYTES);
    return RC_OK;
}

enum rc hello_verify(const struct hello *hello, struct digest run_id,
                     const uint8_t key[PUBLIC_KEY_BYTES], const uint8_t signature[SIGNATURE_BYTES])
{
    uint8_t bytes[CLAIM_BYTES];

    claim(run_id, key, hello->boot, bytes);
    return identity_verify(hello->public_key, label, bytes, sizeof bytes, signature) ? RC_OK
                                                                                     : RC_AUTH;
}

enum rc hello_decode(const uint8_t *bytes, size_t count, struct digest run_id,
                     const uint8_t key[PUBLIC_KEY_BYTES], struct hello *hello)
{
    uint8_t signature[SIGNATURE_BYTES];
    struct hello said;
    enum rc rc = hello_read(bytes, count, &said, signature);

    if (rc == RC_OK) rc = hello_verify(&said, run_id, key, signature);
    if (rc == RC_OK) *hello = said;
    return rc;
}

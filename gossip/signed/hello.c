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
    FIXED(0, hello.public_key),
    FIXED(1, signature),
    FIXED(2, hello.boot),
    ANY(3, hello.incarnation),
    ANY(4, hello.features),
    ANY(5, hello.suites),
    BLOB(6, certificate, CERTIFICATE_BYTES_MAX, 1, true),
    ANY(8, hello.listen_port),
    TEXT(9, hello.observed),
    FIXED(10, hello.schema),
    TEXT(11, hello.spec),
    UINT(12, hello.role, 0, HELLO_OBSERVER),
    TEXT(13, hello.method),
    ANY(14, hello.dialback),
};

enum { CLAIM_BYTES = PUBLIC_KEY_BYTES + BOOT_ID_BYTES };

static void claim(const uint8_t key[PUBLIC_KEY_BYTES], struct boot_id boot,
                  uint8_t bytes[CLAIM_BYTES])
{
    memcpy(bytes, key, PUBLIC_KEY_BYTES);
    memcpy(bytes + PUBLIC_KEY_BYTES, boot.bytes, BOOT_ID_BYTES);
}

void hello_sign(const struct hello *hello, const struct identity *identity, struct digest run_id,
                const uint8_t key[PUBLIC_KEY_BYTES], uint8_t signature[SIGNATURE_BYTES])
{
    uint8_t bytes[CLAIM_BYTES];

    CHECK(memcmp(hello->public_key, identity->public_key, PUBLIC_KEY_BYTES) == 0);
    claim(key, hello->boot, bytes);
    identity_sign(identity, label, run_id, bytes, sizeof bytes, signature);
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

    claim(key, hello->boot, bytes);
    return identity_verify(hello->public_key, label, run_id, bytes, sizeof bytes, signature)
               ? RC_OK
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

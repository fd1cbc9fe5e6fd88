/* A direct-mapped table of hashes over all that a signature check depends on. Loop thread. */
#include "gossip/membership/verified.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

struct verified {
    uint32_t mask;
    struct shelf *shelf; /* of `run_id`; NULL: not asked for yet */
    struct digest run_id;
    struct digest slots[];
};

struct verified *verified_create(uint32_t slots)
{
    struct verified *verified = mem_alloc(sizeof *verified + slots * sizeof verified->slots[0]);

    CHECK(slots > 0 && (slots & (slots - 1)) == 0);
    if (verified != NULL) verified->mask = slots - 1;
    return verified;
}

void verified_destroy(struct verified *verified)
{
    if (verified == NULL) return;
    shelf_destroy(verified->shelf);
    mem_free(verified);
}

/* Where this signature is, or would be; `digest` names it. */
static struct digest *slot_of(struct verified *verified, const uint8_t *bytes, size_t count,
                              struct digest run_id, const uint8_t *public_key,
                              struct digest *digest)
{
    uint8_t all[DIGEST_BYTES + PUBLIC_KEY_BYTES + SIGNED_RECORD_BYTES_MAX];

    memcpy(all, run_id.bytes, DIGEST_BYTES);
    memcpy(all + DIGEST_BYTES, public_key, PUBLIC_KEY_BYTES);
    memcpy(all + DIGEST_BYTES + PUBLIC_KEY_BYTES, bytes, count);
    *digest = hash_of(all, DIGEST_BYTES + PUBLIC_KEY_BYTES + count);
    return &verified->slots[load_le32(digest->bytes) & verified->mask];
}

struct shelf *verified_shelf(struct verified *verified, struct digest run_id)
{
    if (verified == NULL) return NULL;
    if (verified->shelf == NULL) {
        verified->shelf = shelf_create(0); /* nobody in a simulation chooses records */
        verified->run_id = run_id;
    }
    return digest_is_equal(verified->run_id, run_id) ? verified->shelf : NULL;
}

enum rc verified_accusation(struct verified *verified, const uint8_t bytes[ACCUSATION_BYTES],
                            struct digest run_id, const uint8_t public_key[PUBLIC_KEY_BYTES])
{
    struct digest digest, *slot;
    enum rc rc;

    if (verified == NULL) return accusation_verify(bytes, public_key, run_id);
    slot = slot_of(verified, bytes, ACCUSATION_BYTES, run_id, public_key, &digest);
    if (digest_is_equal(*slot, digest)) return RC_OK;
    rc = accusation_verify(bytes, public_key, run_id);
    if (rc == RC_OK) *slot = digest;
    return rc;
}

enum rc verified_hello(struct verified *verified, const uint8_t *bytes, size_t count,
                       struct digest run_id, const uint8_t key[PUBLIC_KEY_BYTES],
                       struct hello *hello)
{
    uint8_t all[5 + PUBLIC_KEY_BYTES + BOOT_ID_BYTES + SIGNATURE_BYTES] = "hello";
    struct digest digest, *slot;
    struct hello said;
    enum rc rc;

    if (verified == NULL) return hello_decode(bytes, count, run_id, key, hello);
    rc = hello_read(bytes, count, &said, all + sizeof all - SIGNATURE_BYTES);
    if (rc != RC_OK) return rc;
    memcpy(all + 5, key, PUBLIC_KEY_BYTES);
    memcpy(all + 5 + PUBLIC_KEY_BYTES, said.boot.bytes, BOOT_ID_BYTES);
    slot = slot_of(verified, all, sizeof all, run_id, said.public_key, &digest);
    if (!digest_is_equal(*slot, digest)) {
        rc = hello_verify(&said, run_id, key, all + sizeof all - SIGNATURE_BYTES);
        if (rc != RC_OK) return rc;
        *slot = digest;
    }
    *hello = said;
    return RC_OK;
}

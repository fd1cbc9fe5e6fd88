/*
 * What is signed: "manifest/2", the run id, then the members in a fixed order and little-endian, so
 * that it does not depend on how the map was written. Pure.
 */
#include "gossip/signed/manifest.h"

#include "base/bytes.h"
#include "base/check.h"

static const char label[] = "manifest/2";

enum { CLAIM_BYTES_MAX = 5 * DIGEST_BYTES + 4 * 8 + 5 * 4 + STATE_SECTIONS_MAX * 9 };

_Static_assert(sizeof label + DIGEST_BYTES + CLAIM_BYTES_MAX <= SIGNED_BYTES_MAX,
               "it can be signed");
_Static_assert(MANIFEST_PROOF_BYTES == PUBLIC_KEY_BYTES + SIGNATURE_BYTES, "a key and a signature");

struct claim {
    uint8_t bytes[CLAIM_BYTES_MAX];
    size_t count;
};

static void add(struct claim *claim, const void *bytes, size_t count)
{
    CHECK(count <= sizeof claim->bytes - claim->count);
    memcpy(claim->bytes + claim->count, bytes, count);
    claim->count += count;
}

static void add_number(struct claim *claim, uint64_t value, size_t bytes)
{
    uint8_t number[8];

    store_le64(number, value);
    add(claim, number, bytes);
}

static void claim_make(struct claim *claim, const struct message_state_manifest *manifest)
{
    claim->count = 0;
    add_number(claim, manifest->lease, 4);
    add_number(claim, manifest->step, 8);
    add_number(claim, manifest->samples, 8);
    add_number(claim, manifest->round, 8);
    add_number(claim, manifest->updates, 8);
    add(claim, manifest->schema.bytes, DIGEST_BYTES);
    add(claim, manifest->lineage.bytes, DIGEST_BYTES);
    add(claim, manifest->moments.bytes, DIGEST_BYTES);
    add(claim, manifest->rule.bytes, DIGEST_BYTES);
    add(claim, manifest->root.bytes, DIGEST_BYTES);
    add_number(claim, manifest->lease_ms, 4);
    add_number(claim, manifest->pages, 4);
    add_number(claim, manifest->buckets, 4);
    add_number(claim, manifest->sections_count, 4);
    for (uint32_t i = 0; i < manifest->sections_count; i++) {
        add_number(claim, manifest->sections[i], 1);
        add_number(claim, manifest->values[i], 8);
    }
}

void manifest_sign(struct message_state_manifest *manifest, const struct identity *identity,
                   struct digest run_id)
{
    struct claim claim;

    CHECK(manifest->sections_count <= STATE_SECTIONS_MAX);
    claim_make(&claim, manifest);
    memcpy(manifest->proof, identity->public_key, PUBLIC_KEY_BYTES);
    identity_sign(identity, label, run_id, claim.bytes, claim.count,
                  manifest->proof + PUBLIC_KEY_BYTES);
}

bool manifest_is_signed_by(const struct message_state_manifest *manifest, struct peer_id from,
                           struct digest run_id)
{
    struct claim claim;

    if (manifest->sections_count > STATE_SECTIONS_MAX) return false;
    if (!peer_id_is_equal(identity_peer_id(manifest->proof), from)) return false;
    claim_make(&claim, manifest);
    return identity_verify(manifest->proof, label, run_id, claim.bytes, claim.count,
                           manifest->proof + PUBLIC_KEY_BYTES);
}

/*
 * A member record as it stands, then as a liar would make it: the input as the map, signed with a
 * key the liar has, so that everything behind the signature is reached. Then the input as an
 * address.
 */
#include "tests/signed.h"

#include "base/check.h"
#include "gossip/wire/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_signed(const uint8_t *map, size_t count, struct digest run_id)
{
    static const uint8_t seed[SECRET_BYTES] = {9};
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    struct member_record record, again;
    struct identity identity;
    size_t again_count = 0;

    identity_from_seed(seed, &identity);
    identity_sign(&identity, "record/1", run_id, map, count, bytes);
    memcpy(bytes + SIGNATURE_BYTES, map, count);
    if (record_open(bytes, SIGNATURE_BYTES + count, run_id, &record) != RC_OK) return;
    CHECK(record.addresses_count <= RECORD_ADDRESSES_MAX);
    CHECK(record_sign(&record, &identity, run_id, bytes, sizeof bytes, &again_count) == RC_OK);
    CHECK(record_open(bytes, again_count, run_id, &again) == RC_OK);
    CHECK(memcmp(&record, &again, sizeof record) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct digest run_id = {{1, 2, 3}};
    struct member_record record;
    char address[2 * ADDRESS_BYTES_MAX] = "";

    if (secure_start() != RC_OK) return 0;
    if (record_open(data, size, run_id, &record) == RC_OK) {
        CHECK(record.addresses_count <= RECORD_ADDRESSES_MAX);
    }
    if (size > SIGNATURE_BYTES && size <= SIGNED_RECORD_BYTES_MAX) {
        open_signed(data + SIGNATURE_BYTES, size - SIGNATURE_BYTES, run_id);
    }
    memcpy(address, data, size < sizeof address ? size : sizeof address - 1);
    if (address_is_valid(address)) CHECK(strlen(address) < ADDRESS_BYTES_MAX);
    return 0;
}

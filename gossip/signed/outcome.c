/*
 * An outcome on the wire, fixed layout, little-endian:
 *   initiator 20 | its boot 16 | counter u64 | participant 20 | state u8
 *   | initiator's public key 32 | signature 64
 * The signature covers "outcome/2", the run id and all before the key. Any thread.
 */
#include "gossip/signed/outcome.h"

#include "base/bytes.h"
#include "base/check.h"

enum {
    AT_BOOT = PEER_ID_BYTES,
    AT_COUNTER = AT_BOOT + BOOT_ID_BYTES,
    AT_PARTICIPANT = AT_COUNTER + 8,
    AT_STATE = AT_PARTICIPANT + PEER_ID_BYTES,
    AT_KEY = AT_STATE + 1,
    AT_SIGNATURE = AT_KEY + PUBLIC_KEY_BYTES
};

_Static_assert(AT_SIGNATURE + SIGNATURE_BYTES == OUTCOME_BYTES, "the layout adds up");

static const char label[] = "outcome/2";

void outcome_sign(const struct outcome_word *word, const struct identity *identity,
                  struct digest run_id, uint8_t out[OUTCOME_BYTES])
{
    CHECK(peer_id_is_equal(identity_peer_id(identity->public_key), word->key.initiator));
    memcpy(out, word->key.initiator.bytes, PEER_ID_BYTES);
    memcpy(out + AT_BOOT, word->key.boot.bytes, BOOT_ID_BYTES);
    store_le64(out + AT_COUNTER, word->key.counter);
    memcpy(out + AT_PARTICIPANT, word->participant.bytes, PEER_ID_BYTES);
    out[AT_STATE] = (uint8_t)word->state;
    memcpy(out + AT_KEY, identity->public_key, PUBLIC_KEY_BYTES);
    identity_sign(identity, label, run_id, out, AT_KEY, out + AT_SIGNATURE);
}

enum rc outcome_verify(const uint8_t bytes[OUTCOME_BYTES], struct digest run_id,
                       struct outcome_word *word)
{
    memset(word, 0, sizeof *word);
    memcpy(word->key.initiator.bytes, bytes, PEER_ID_BYTES);
    memcpy(word->key.boot.bytes, bytes + AT_BOOT, BOOT_ID_BYTES);
    word->key.counter = load_le64(bytes + AT_COUNTER);
    memcpy(word->participant.bytes, bytes + AT_PARTICIPANT, PEER_ID_BYTES);
    if (!peer_id_is_equal(identity_peer_id(bytes + AT_KEY), word->key.initiator)) return RC_AUTH;
    if (!identity_verify(bytes + AT_KEY, label, run_id, bytes, AT_KEY, bytes + AT_SIGNATURE)) {
        return RC_AUTH;
    }
    if (bytes[AT_STATE] != OUTCOME_COMMITTED && bytes[AT_STATE] != OUTCOME_ABORTED) {
        return RC_FORMAT;
    }
    word->state = (enum outcome_state)bytes[AT_STATE];
    return RC_OK;
}

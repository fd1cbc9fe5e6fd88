/*
 * An accusation on the wire, fixed layout, little-endian:
 *   accuser 20 | accuser's incarnation u64 | subject 20 | boot 16 | incarnation u64 | signature 64
 * The signature covers "accuse/1", the run id and all before it. Any thread.
 */
#include "gossip/signed/accusation.h"

#include "base/bytes.h"
#include "base/check.h"

enum {
    AT_ACCUSER_INCARNATION = PEER_ID_BYTES,
    AT_SUBJECT = AT_ACCUSER_INCARNATION + 8,
    AT_BOOT = AT_SUBJECT + PEER_ID_BYTES,
    AT_INCARNATION = AT_BOOT + BOOT_ID_BYTES,
    AT_SIGNATURE = AT_INCARNATION + 8
};

_Static_assert(AT_SIGNATURE + SIGNATURE_BYTES == ACCUSATION_BYTES, "the layout adds up");

static const char label[] = "accuse/1";

void accusation_sign(const struct accusation *accusation, const struct identity *identity,
                     struct digest run_id, uint8_t out[ACCUSATION_BYTES])
{
    CHECK(peer_id_is_equal(identity_peer_id(identity->public_key), accusation->accuser));
    memcpy(out, accusation->accuser.bytes, PEER_ID_BYTES);
    store_le64(out + AT_ACCUSER_INCARNATION, accusation->accuser_incarnation);
    memcpy(out + AT_SUBJECT, accusation->subject.bytes, PEER_ID_BYTES);
    memcpy(out + AT_BOOT, accusation->boot.bytes, BOOT_ID_BYTES);
    store_le64(out + AT_INCARNATION, accusation->incarnation);
    identity_sign(identity, label, run_id, out, AT_SIGNATURE, out + AT_SIGNATURE);
}

void accusation_read(const uint8_t bytes[ACCUSATION_BYTES], struct accusation *accusation)
{
    memcpy(accusation->accuser.bytes, bytes, PEER_ID_BYTES);
    accusation->accuser_incarnation = load_le64(bytes + AT_ACCUSER_INCARNATION);
    memcpy(accusation->subject.bytes, bytes + AT_SUBJECT, PEER_ID_BYTES);
    memcpy(accusation->boot.bytes, bytes + AT_BOOT, BOOT_ID_BYTES);
    accusation->incarnation = load_le64(bytes + AT_INCARNATION);
}

enum rc accusation_verify(const uint8_t bytes[ACCUSATION_BYTES],
                          const uint8_t public_key[PUBLIC_KEY_BYTES], struct digest run_id)
{
    struct accusation accusation;

    accusation_read(bytes, &accusation);
    if (!peer_id_is_equal(identity_peer_id(public_key), accusation.accuser)) return RC_AUTH;
    return identity_verify(public_key, label, run_id, bytes, AT_SIGNATURE, bytes + AT_SIGNATURE)
               ? RC_OK
               : RC_AUTH;
}

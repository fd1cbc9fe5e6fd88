/*
 * Frames and keys of further connections. The MAC is keyed BLAKE2b-128 under a key of the sender's
 * role, so a frame cannot be reflected; the reply's covers the whole request and with it the nonce
 * that only this connection has. The keys come from both nonces: a request replayed once its number
 * is forgotten would lead to an answer nobody can use.
 */
#include "gossip/secure/attach.h"

#include "base/bytes.h"
#include "base/check.h"

#include <sodium.h>

enum { KIND_ATTACH = 4, KIND_ATTACH_OK = 5 };
enum {
    AT_SESSION = PREFIX_BYTES,
    AT_NUMBER = AT_SESSION + SESSION_ID_BYTES,
    AT_EPOCH = AT_NUMBER + 4,
    AT_NONCE = AT_EPOCH + 4,
    AT_MAC = AT_NONCE + ATTACH_NONCE_BYTES,
    MAC_BYTES = 16
};
_Static_assert(AT_MAC + MAC_BYTES == ATTACH_BYTES, "64 bytes, always");

static const uint8_t magic[WIRE_MAGIC_BYTES] = {'G', 'R', 'P', 'V'};

static void mac_of(const uint8_t *frame, const uint8_t *asked, const uint8_t exporter[SECRET_BYTES],
                   bool is_initiator, uint8_t mac[MAC_BYTES])
{
    uint8_t key[SECRET_BYTES];
    crypto_generichash_state state;

    sealer_derive(exporter, is_initiator ? "attach/1 initiator" : "attach/1 responder", NULL, 0,
                  key, sizeof key);
    CHECK(crypto_generichash_init(&state, key, sizeof key, MAC_BYTES) == 0);
    if (asked != NULL) CHECK(crypto_generichash_update(&state, asked, ATTACH_BYTES) == 0);
    CHECK(crypto_generichash_update(&state, frame, AT_MAC) == 0);
    CHECK(crypto_generichash_final(&state, mac, MAC_BYTES) == 0);
    sodium_memzero(key, sizeof key);
    sodium_memzero(&state, sizeof state);
}

static bool is_kind(const uint8_t *frame, size_t count, uint8_t kind)
{
    return count == ATTACH_BYTES && memcmp(frame, magic, sizeof magic) == 0 &&
           frame[4] == WIRE_MAJOR && frame[5] == kind &&
           load_le16(frame + 6) == ATTACH_BYTES - PREFIX_BYTES;
}

static void frame_write(const struct attach *attach, uint8_t kind, const uint8_t *nonce,
                        uint8_t *out)
{
    memcpy(out, magic, sizeof magic);
    out[4] = WIRE_MAJOR;
    out[5] = kind;
    store_le16(out + 6, ATTACH_BYTES - PREFIX_BYTES);
    memcpy(out + AT_SESSION, attach->session_id, SESSION_ID_BYTES);
    store_le32(out + AT_NUMBER, attach->number);
    store_le32(out + AT_EPOCH, attach->epoch);
    memcpy(out + AT_NONCE, nonce, ATTACH_NONCE_BYTES);
}

void attach_ask(const struct attach *attach, const uint8_t exporter[SECRET_BYTES],
                bool is_initiator, uint8_t out[ATTACH_BYTES])
{
    CHECK(attach->number % 2 == (is_initiator ? 0 : 1));
    frame_write(attach, KIND_ATTACH, attach->nonces[0], out);
    mac_of(out, NULL, exporter, is_initiator, out + AT_MAC);
}

bool attach_parse(const uint8_t *frame, size_t count, struct attach *attach)
{
    if (!is_kind(frame, count, KIND_ATTACH)) return false;
    memset(attach, 0, sizeof *attach);
    memcpy(attach->session_id, frame + AT_SESSION, SESSION_ID_BYTES);
    attach->number = load_le32(frame + AT_NUMBER);
    attach->epoch = load_le32(frame + AT_EPOCH);
    memcpy(attach->nonces[0], frame + AT_NONCE, ATTACH_NONCE_BYTES);
    return true;
}

enum rc attach_verify(const uint8_t frame[ATTACH_BYTES], const uint8_t exporter[SECRET_BYTES],
                      bool is_from_initiator)
{
    uint8_t mac[MAC_BYTES];

    mac_of(frame, NULL, exporter, is_from_initiator, mac);
    if (sodium_memcmp(mac, frame + AT_MAC, MAC_BYTES) != 0) return RC_AUTH;
    return load_le32(frame + AT_NUMBER) % 2 == (is_from_initiator ? 0 : 1) ? RC_OK : RC_FORMAT;
}

void attach_answer(const struct attach *attach, const uint8_t asked[ATTACH_BYTES],
                   const uint8_t exporter[SECRET_BYTES], bool is_initiator,
                   uint8_t out[ATTACH_BYTES])
{
    frame_write(attach, KIND_ATTACH_OK, attach->nonces[1], out);
    mac_of(out, asked, exporter, is_initiator, out + AT_MAC);
}

enum rc attach_finish(struct attach *attach, const uint8_t *frame, size_t count,
                      const uint8_t exporter[SECRET_BYTES], bool is_initiator)
{
    uint8_t asked[ATTACH_BYTES], expected[ATTACH_BYTES], mac[MAC_BYTES];

    if (!is_kind(frame, count, KIND_ATTACH_OK)) return RC_FORMAT;
    frame_write(attach, KIND_ATTACH_OK, frame + AT_NONCE, expected);
    if (memcmp(frame, expected, AT_MAC) != 0) return RC_FORMAT;
    attach_ask(attach, exporter, is_initiator, asked);
    mac_of(frame, asked, exporter, !is_initiator, mac);
    if (sodium_memcmp(mac, frame + AT_MAC, MAC_BYTES) != 0) return RC_AUTH;
    memcpy(attach->nonces[1], frame + AT_NONCE, ATTACH_NONCE_BYTES);
    return RC_OK;
}

void attach_roots(const struct attach *attach, const uint8_t exporter[SECRET_BYTES],
                  uint8_t of_initiator[SECRET_BYTES], uint8_t of_responder[SECRET_BYTES])
{
    uint8_t context[8 + sizeof attach->nonces];

    store_le32(context, attach->number);
    store_le32(context + 4, attach->epoch);
    memcpy(context + 8, attach->nonces, sizeof attach->nonces);
    sealer_derive(exporter, "bulk/1 initiator", context, sizeof context, of_initiator,
                  SECRET_BYTES);
    sealer_derive(exporter, "bulk/1 responder", context, sizeof context, of_responder,
                  SECRET_BYTES);
}

bool attach_window_accept(struct attach_window *window, uint32_t epoch, uint32_t number)
{
    uint32_t half = number / 2; /* the parity is the side's */
    bool is_new_epoch = epoch > window->epoch;
    uint32_t next = is_new_epoch ? 0 : window->next;
    uint64_t seen = is_new_epoch ? 0 : window->seen;

    if (epoch < window->epoch) return false;
    if (half >= next) {
        uint32_t shift = half + 1 - next;

        seen = shift >= ATTACH_WINDOW ? 0 : seen << shift;
        seen |= 1;
        next = half + 1;
    } else {
        uint32_t behind = next - 1 - half;

        if (behind >= ATTACH_WINDOW || (seen >> behind & 1) != 0) return false;
        seen |= UINT64_C(1) << behind;
    }
    *window = (struct attach_window){epoch, next, seen};
    return true;
}

/*
 * The XXpsk3 handshake with X25519, ChaCha20-Poly1305 and SHA-512, from libsodium's primitives.
 * Source: T. Perrin, "The Noise Protocol Framework", revision 34; names in comments are the
 * paper's. One pattern and one suite, so tokens are a table and there is nothing to negotiate.
 * A read or write that fails leaves the state unusable: everything is wiped at once.
 * Runs on the loop thread.
 */
#include "gossip/secure/noise.h"

#include "base/bytes.h"
#include "base/check.h"
#include "gossip/secure/agreed.h"

#include <sodium.h>

_Static_assert(NOISE_KEY_BYTES == crypto_scalarmult_BYTES, "X25519");
_Static_assert(NOISE_HASH_BYTES == crypto_hash_sha512_BYTES, "SHA-512");
_Static_assert(NOISE_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES, "Poly1305");

enum token { TOKEN_END, TOKEN_E, TOKEN_S, TOKEN_EE, TOKEN_ES, TOKEN_SE, TOKEN_PSK };
enum { TOKENS_MAX = 5 };

static const uint8_t pattern[NOISE_MESSAGES][TOKENS_MAX] = {
    {TOKEN_E, TOKEN_END},
    {TOKEN_E, TOKEN_EE, TOKEN_S, TOKEN_ES, TOKEN_END},
    {TOKEN_S, TOKEN_SE, TOKEN_PSK, TOKEN_END},
};
static const uint8_t overhead[NOISE_MESSAGES] = {NOISE_OVERHEAD_1, NOISE_OVERHEAD_2,
                                                 NOISE_OVERHEAD_3};

/* MixHash(data): h = HASH(h || data). */
static void mix_hash(struct noise *noise, const uint8_t *data, size_t count)
{
    crypto_hash_sha512_state state;

    CHECK(data != NULL || count == 0);
    crypto_hash_sha512_init(&state);
    crypto_hash_sha512_update(&state, noise->hash, sizeof noise->hash);
    if (count > 0) crypto_hash_sha512_update(&state, data, count);
    crypto_hash_sha512_final(&state, noise->hash);
    sodium_memzero(&state, sizeof state);
}

/* HKDF(ck, input, outputs_count): the k-th output is HMAC(temp, previous output || k). What the key
 * makes of the state is the same for all of them. */
static void hkdf(const uint8_t chaining_key[NOISE_HASH_BYTES], const uint8_t *input, size_t count,
                 uint8_t outputs[][NOISE_HASH_BYTES], unsigned outputs_count)
{
    crypto_auth_hmacsha512_state keyed, state;
    uint8_t temp[NOISE_HASH_BYTES];

    CHECK(outputs_count >= 1 && outputs_count <= 3);
    crypto_auth_hmacsha512_init(&state, chaining_key, NOISE_HASH_BYTES);
    if (count > 0) crypto_auth_hmacsha512_update(&state, input, count);
    crypto_auth_hmacsha512_final(&state, temp);
    crypto_auth_hmacsha512_init(&keyed, temp, sizeof temp);
    for (unsigned i = 0; i < outputs_count; i++) {
        uint8_t number = (uint8_t)(i + 1);

        state = keyed;
        if (i > 0) crypto_auth_hmacsha512_update(&state, outputs[i - 1], NOISE_HASH_BYTES);
        crypto_auth_hmacsha512_update(&state, &number, 1);
        crypto_auth_hmacsha512_final(&state, outputs[i]);
    }
    sodium_memzero(temp, sizeof temp);
    sodium_memzero(&keyed, sizeof keyed);
    sodium_memzero(&state, sizeof state);
}

/* InitializeKey(k), k cut from 64 to 32 bytes as the suite asks. */
static void set_key(struct noise *noise, const uint8_t key[NOISE_HASH_BYTES])
{
    memcpy(noise->key, key, NOISE_KEY_BYTES);
    noise->nonce = 0;
}

/* MixKey(input). */
static void mix_key(struct noise *noise, const uint8_t *input, size_t count)
{
    uint8_t outputs[2][NOISE_HASH_BYTES];

    hkdf(noise->chaining_key, input, count, outputs, 2);
    memcpy(noise->chaining_key, outputs[0], NOISE_HASH_BYTES);
    set_key(noise, outputs[1]);
    sodium_memzero(outputs, sizeof outputs);
}

/* MixKeyAndHash(psk). */
static void mix_key_and_hash(struct noise *noise, const uint8_t psk[NOISE_KEY_BYTES])
{
    uint8_t outputs[3][NOISE_HASH_BYTES];

    hkdf(noise->chaining_key, psk, NOISE_KEY_BYTES, outputs, 3);
    memcpy(noise->chaining_key, outputs[0], NOISE_HASH_BYTES);
    mix_hash(noise, outputs[1], NOISE_HASH_BYTES);
    set_key(noise, outputs[2]);
    sodium_memzero(outputs, sizeof outputs);
}

static void next_nonce(struct noise *noise,
                       uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES])
{
    memset(nonce, 0, 4);
    store_le64(nonce + 4, noise->nonce++);
}

/* EncryptAndHash(plain). Every use here comes after the first `e`, which set a key. */
static size_t seal(struct noise *noise, const uint8_t *plain, size_t count, uint8_t *out)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];

    next_nonce(noise, nonce);
    CHECK(crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, plain, count, noise->hash,
                                                    sizeof noise->hash, NULL, nonce,
                                                    noise->key) == 0);
    mix_hash(noise, out, count + NOISE_TAG_BYTES);
    return count + NOISE_TAG_BYTES;
}

/* DecryptAndHash(sealed); `count` includes the tag. */
static enum rc open_sealed(struct noise *noise, const uint8_t *sealed, size_t count, uint8_t *plain)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];

    CHECK(count >= NOISE_TAG_BYTES);
    next_nonce(noise, nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(plain, NULL, NULL, sealed, count, noise->hash,
                                                  sizeof noise->hash, nonce, noise->key) != 0) {
        return RC_AUTH;
    }
    mix_hash(noise, sealed, count);
    return RC_OK;
}

/* MixKey(DH(pair, remote)). It fails when the shared point is zero: a key of low order, sent by
 * somebody who wants the result to be known. */
static enum rc mix_dh(struct noise *noise, const struct noise_pair *pair,
                      const uint8_t remote[NOISE_KEY_BYTES])
{
    uint8_t shared[NOISE_KEY_BYTES];
    enum rc rc = agreed_compute(noise->agreed, pair, remote, shared);

    if (rc == RC_OK) mix_key(noise, shared, sizeof shared);
    sodium_memzero(shared, sizeof shared);
    return rc;
}

/* The tokens that are the same for writer and reader. */
static enum rc mix_token(struct noise *noise, enum token token)
{
    bool is_own_static = (token == TOKEN_SE) == noise->is_initiator;

    switch (token) {
    case TOKEN_EE:
        return mix_dh(noise, &noise->own_ephemeral, noise->remote_ephemeral);
    case TOKEN_ES: /* the initiator's e with the responder's s */
    case TOKEN_SE: /* the initiator's s with the responder's e */
        if (is_own_static) return mix_dh(noise, &noise->own_static, noise->remote_ephemeral);
        return mix_dh(noise, &noise->own_ephemeral, noise->remote_static);
    case TOKEN_PSK:
        mix_key_and_hash(noise, noise->psk);
        return RC_OK;
    case TOKEN_E:
    case TOKEN_S:
    case TOKEN_END:
        break;
    }
    CHECK(false); /* the caller keeps these to itself */
    return RC_FORMAT;
}

/* `e`: in a psk handshake the ephemeral key is mixed into the key as well as into the hash. */
static void mix_ephemeral(struct noise *noise, const uint8_t key[NOISE_KEY_BYTES])
{
    mix_hash(noise, key, NOISE_KEY_BYTES);
    mix_key(noise, key, NOISE_KEY_BYTES);
}

void noise_init(struct noise *noise, const struct noise_options *options)
{
    static const char name[] = "Noise_XXpsk3_25519_ChaChaPoly_SHA512";

    _Static_assert(sizeof name - 1 <= NOISE_HASH_BYTES, "a name that fits is padded, not hashed");
    CHECK(options->psk != NULL && options->static_secret != NULL &&
          options->ephemeral_secret != NULL);
    memset(noise, 0, sizeof *noise);
    noise->is_initiator = options->is_initiator;
    noise->agreed = options->agreed;
    memcpy(noise->psk, options->psk, NOISE_KEY_BYTES);
    memcpy(noise->own_static.secret_key, options->static_secret, NOISE_KEY_BYTES);
    memcpy(noise->own_ephemeral.secret_key, options->ephemeral_secret, NOISE_KEY_BYTES);
    if (options->static_public != NULL) {
        memcpy(noise->own_static.public_key, options->static_public, NOISE_KEY_BYTES);
    } else {
        CHECK(crypto_scalarmult_base(noise->own_static.public_key, noise->own_static.secret_key) ==
              0);
    }
    CHECK(crypto_scalarmult_base(noise->own_ephemeral.public_key,
                                 noise->own_ephemeral.secret_key) == 0);
    memcpy(noise->hash, name, sizeof name - 1);
    memcpy(noise->chaining_key, noise->hash, NOISE_HASH_BYTES);
    mix_hash(noise, options->prologue, options->prologue_bytes);
}

void noise_deinit(struct noise *noise)
{
    sodium_memzero(noise, sizeof *noise);
    noise->is_failed = true;
}

bool noise_is_done(const struct noise *noise)
{
    return !noise->is_failed && noise->messages_done == NOISE_MESSAGES;
}

/* Messages 0 and 2 are the initiator's. */
static bool is_our_turn(const struct noise *noise)
{
    return (noise->messages_done % 2 == 0) == noise->is_initiator;
}

static enum rc fail(struct noise *noise, enum rc rc)
{
    noise_deinit(noise);
    return rc;
}

enum rc noise_write(struct noise *noise, const uint8_t *payload, size_t payload_bytes, uint8_t *out,
                    size_t cap, size_t *count)
{
    const uint8_t *tokens;
    size_t at = 0;

    CHECK(!noise->is_failed && noise->messages_done < NOISE_MESSAGES && is_our_turn(noise));
    if (cap < overhead[noise->messages_done] ||
        payload_bytes > cap - overhead[noise->messages_done]) {
        return fail(noise, RC_LIMIT);
    }
    tokens = pattern[noise->messages_done];
    for (size_t i = 0; tokens[i] != TOKEN_END; i++) {
        if (tokens[i] == TOKEN_E) {
            memcpy(out + at, noise->own_ephemeral.public_key, NOISE_KEY_BYTES);
            mix_ephemeral(noise, noise->own_ephemeral.public_key);
            at += NOISE_KEY_BYTES;
        } else if (tokens[i] == TOKEN_S) {
            at += seal(noise, noise->own_static.public_key, NOISE_KEY_BYTES, out + at);
        } else {
            enum rc rc = mix_token(noise, (enum token)tokens[i]);

            if (rc != RC_OK) return fail(noise, rc);
        }
    }
    at += seal(noise, payload, payload_bytes, out + at);
    CHECK(at == payload_bytes + overhead[noise->messages_done]);
    noise->messages_done++;
    *count = at;
    return RC_OK;
}

enum rc noise_read(struct noise *noise, const uint8_t *message, size_t count, uint8_t *payload,
                   size_t cap, size_t *payload_bytes)
{
    const uint8_t *tokens, *at = message;
    enum rc rc = RC_OK;

    CHECK(!noise->is_failed && noise->messages_done < NOISE_MESSAGES && !is_our_turn(noise));
    if (count < overhead[noise->messages_done]) return fail(noise, RC_FORMAT);
    if (count - overhead[noise->messages_done] > cap) return fail(noise, RC_LIMIT);
    tokens = pattern[noise->messages_done];
    for (size_t i = 0; tokens[i] != TOKEN_END && rc == RC_OK; i++) {
        if (tokens[i] == TOKEN_E) {
            memcpy(noise->remote_ephemeral, at, NOISE_KEY_BYTES);
            mix_ephemeral(noise, noise->remote_ephemeral);
            at += NOISE_KEY_BYTES;
        } else if (tokens[i] == TOKEN_S) {
            rc = open_sealed(noise, at, NOISE_KEY_BYTES + NOISE_TAG_BYTES, noise->remote_static);
            at += NOISE_KEY_BYTES + NOISE_TAG_BYTES;
        } else {
            rc = mix_token(noise, (enum token)tokens[i]);
        }
    }
    if (rc == RC_OK) rc = open_sealed(noise, at, count - (size_t)(at - message), payload);
    if (rc != RC_OK) return fail(noise, rc);
    *payload_bytes = count - overhead[noise->messages_done];
    noise->messages_done++;
    return RC_OK;
}

void noise_split(const struct noise *noise, uint8_t initiator_key[NOISE_KEY_BYTES],
                 uint8_t responder_key[NOISE_KEY_BYTES], uint8_t exporter[NOISE_KEY_BYTES])
{
    uint8_t outputs[3][NOISE_HASH_BYTES];

    CHECK(noise_is_done(noise));
    hkdf(noise->chaining_key, NULL, 0, outputs, 3);
    memcpy(initiator_key, outputs[0], NOISE_KEY_BYTES);
    memcpy(responder_key, outputs[1], NOISE_KEY_BYTES);
    memcpy(exporter, outputs[2], NOISE_KEY_BYTES);
    sodium_memzero(outputs, sizeof outputs);
}

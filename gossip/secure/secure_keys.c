/*
 * Keys outside of any session: identities (Ed25519, RFC 8032), static keys (X25519, RFC 7748), the
 * swarm secret, and the two one-line files people keep them in.
 * Runs on the loop thread; reading and writing files is the caller's.
 */
#include "gossip/secure/secure.h"

#include "base/check.h"

#include <sodium.h>
#include <string.h>

_Static_assert(SECRET_BYTES == crypto_sign_SEEDBYTES && SECRET_BYTES == crypto_scalarmult_BYTES,
               "one seed size for both curves");
_Static_assert(PUBLIC_KEY_BYTES == crypto_sign_PUBLICKEYBYTES &&
                   SIGN_SECRET_BYTES == crypto_sign_SECRETKEYBYTES &&
                   SIGNATURE_BYTES == crypto_sign_BYTES,
               "Ed25519");

static const char identity_word[] = "grapevine-identity-1";
static const char swarm_word[] = "grapevine-swarm-key-1";
static const char identity_advice[] =
    "restore it, or remove it and a new identity is made at the next start";
static const char swarm_advice[] =
    "copy it again from a peer of the swarm, or make a new one with `grapevine keygen`";

_Static_assert(sizeof swarm_word + 2 * SECRET_BYTES + 2 <= KEY_TEXT_MAX, "a key file is one line");

enum rc secure_start(void)
{
    return sodium_init() >= 0 ? RC_OK : RC_UNSUPPORTED;
}

void identity_from_seed(const uint8_t seed[SECRET_BYTES], struct identity *identity)
{
    CHECK(crypto_sign_seed_keypair(identity->public_key, identity->secret_key, seed) == 0);
}

struct peer_id identity_peer_id(const uint8_t public_key[PUBLIC_KEY_BYTES])
{
    struct digest digest = hash_of(public_key, PUBLIC_KEY_BYTES);
    struct peer_id id;

    memcpy(id.bytes, digest.bytes, sizeof id.bytes);
    return id;
}

void static_key_from_seed(const uint8_t seed[SECRET_BYTES], struct static_key *key)
{
    memcpy(key->secret_key, seed, SECRET_BYTES);
    CHECK(crypto_scalarmult_base(key->public_key, key->secret_key) == 0);
}

/* label || 0x00 || run id || bytes; 0 if that is more than SIGNED_BYTES_MAX. */
static size_t signed_text(const char *label, struct digest run_id, const void *bytes, size_t count,
                          uint8_t text[SIGNED_BYTES_MAX])
{
    size_t label_bytes = strlen(label) + 1, head_bytes = label_bytes + DIGEST_BYTES;

    if (head_bytes > SIGNED_BYTES_MAX || count > SIGNED_BYTES_MAX - head_bytes) return 0;
    memcpy(text, label, label_bytes);
    memcpy(text + label_bytes, run_id.bytes, DIGEST_BYTES);
    memcpy(text + head_bytes, bytes, count);
    return head_bytes + count;
}

void identity_sign(const struct identity *identity, const char *label, struct digest run_id,
                   const void *bytes, size_t count, uint8_t signature[SIGNATURE_BYTES])
{
    uint8_t text[SIGNED_BYTES_MAX];
    size_t text_bytes = signed_text(label, run_id, bytes, count, text);

    CHECK(text_bytes > 0);
    CHECK(crypto_sign_detached(signature, NULL, text, text_bytes, identity->secret_key) == 0);
}

bool identity_verify(const uint8_t public_key[PUBLIC_KEY_BYTES], const char *label,
                     struct digest run_id, const void *bytes, size_t count,
                     const uint8_t signature[SIGNATURE_BYTES])
{
    uint8_t text[SIGNED_BYTES_MAX];
    size_t text_bytes = signed_text(label, run_id, bytes, count, text);

    if (text_bytes == 0) return false;
    return crypto_sign_verify_detached(signature, text, text_bytes, public_key) == 0;
}

/* "WORD <64 hex digits>" and at most one line end. The value itself never goes into a message. */
static enum rc key_line_parse(const char *word, const char *what, const char *advice,
                              const char *text, size_t bytes, uint8_t key[SECRET_BYTES],
                              struct fault *why)
{
    size_t word_bytes = strlen(word), digits = 2 * (size_t)SECRET_BYTES, key_bytes = 0;

    if (bytes > 0 && text[bytes - 1] == '\n') bytes--;
    if (bytes > 0 && text[bytes - 1] == '\r') bytes--;
    if (bytes == 0) return fault_set(why, RC_PARSE, "the %s file is empty; %s", what, advice);
    if (bytes <= word_bytes || memcmp(text, word, word_bytes) != 0 || text[word_bytes] != ' ') {
        return fault_set(why, RC_PARSE, "not a %s file: it does not begin with \"%s \"; %s", what,
                         word, advice);
    }
    if (bytes != word_bytes + 1 + digits) {
        return fault_set(why, RC_PARSE,
                         "damaged %s file: %zu characters follow \"%s \" where %zu hexadecimal "
                         "digits must; %s",
                         what, bytes - word_bytes - 1, word, digits, advice);
    }
    if (sodium_hex2bin(key, SECRET_BYTES, text + word_bytes + 1, digits, NULL, &key_bytes, NULL) !=
            0 ||
        key_bytes != SECRET_BYTES) {
        sodium_memzero(key, SECRET_BYTES);
        return fault_set(why, RC_PARSE,
                         "damaged %s file: what follows \"%s \" is not all hexadecimal digits; %s",
                         what, word, advice);
    }
    return RC_OK;
}

static void key_line_format(const char *word, const uint8_t key[SECRET_BYTES], char *text,
                            size_t cap)
{
    size_t word_bytes = strlen(word);

    CHECK(cap >= word_bytes + 1 + 2 * SECRET_BYTES + 2);
    memcpy(text, word, word_bytes);
    text[word_bytes] = ' ';
    sodium_bin2hex(text + word_bytes + 1, cap - word_bytes - 1, key, SECRET_BYTES);
    memcpy(text + word_bytes + 1 + 2 * SECRET_BYTES, "\n", 2);
}

enum rc identity_parse(const char *text, size_t bytes, struct identity *identity, struct fault *why)
{
    uint8_t seed[SECRET_BYTES];
    enum rc rc = key_line_parse(identity_word, "identity", identity_advice, text, bytes, seed, why);

    if (rc == RC_OK) identity_from_seed(seed, identity);
    sodium_memzero(seed, sizeof seed);
    return rc;
}

void identity_format(const uint8_t seed[SECRET_BYTES], char *text, size_t cap)
{
    key_line_format(identity_word, seed, text, cap);
}

enum rc swarm_key_parse(const char *text, size_t bytes, uint8_t key[SECRET_BYTES],
                        struct fault *why)
{
    uint8_t parsed[SECRET_BYTES];
    enum rc rc = key_line_parse(swarm_word, "swarm key", swarm_advice, text, bytes, parsed, why);

    if (rc == RC_OK) memcpy(key, parsed, SECRET_BYTES);
    sodium_memzero(parsed, sizeof parsed);
    return rc;
}

void swarm_key_format(const uint8_t key[SECRET_BYTES], char *text, size_t cap)
{
    key_line_format(swarm_word, key, text, cap);
}

void swarm_secret_derive(const char *name, const uint8_t *key, struct swarm_secret *secret)
{
    static const char run_label[] = "run/1", public_label[] = "public/1";
    struct digest derived;
    struct hash hash;

    hash_init(&hash);
    hash_update(&hash, run_label, sizeof run_label - 1);
    hash_update(&hash, name, strlen(name));
    secret->run_id = hash_final(&hash);
    secret->is_public = key == NULL;
    secret->agreed = NULL;
    if (key != NULL) {
        memcpy(secret->secret, key, SECRET_BYTES);
        return;
    }
    /* Anybody who knows the name can compute it: it keeps swarms apart and nothing else. */
    hash_init(&hash);
    hash_update(&hash, public_label, sizeof public_label - 1);
    hash_update(&hash, secret->run_id.bytes, DIGEST_BYTES);
    derived = hash_final(&hash);
    memcpy(secret->secret, derived.bytes, SECRET_BYTES);
}

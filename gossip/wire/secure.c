/*
 * One session between two peers: the gate and our framing around the Noise handshake, then sealed
 * records.
 *
 *   H1  prefix 8 | e 32 | tag 16 | gate 16      H2  prefix | noise message 2     H3  prefix | 3
 *   prefix  "GRPV" | wire_major u8 | kind u8 (1, 2, 3) | length u16 of what follows
 *   gate    BLAKE2b-128 keyed with KDF(swarm secret, "gate") over all before it
 *   record  len u32 | epoch u8 | zero u8[3] | sealed inner | tag 16; the first 8 are the AAD
 *
 * The gate is what a stranger must pass before any curve arithmetic is spent on it. It stands in
 * front of Noise, not inside: the Noise messages are those of the paper, byte for byte. The
 * prologue is magic || wire_major || run id, so another swarm or another major version fails in the
 * crypto even where the framing agrees.
 *
 * Record keys are KDF(direction key of Noise's Split, label with the suite's name); the nonce is
 * the derived IV with the record's number XORed into its last 8 bytes. The number is implicit: a
 * record replayed, dropped, reordered, reflected or of another session fails its tag. One failure
 * ends the session. Epochs are reserved (always 0): a key is used for SECURE_RECORDS_MAX records at
 * most, which for full-size records is 2^48 AES blocks and leaves an advantage below 2^-32 to who
 * would tell GCM from chance; then the link has to be dialled again. Runs on the loop thread.
 */
#include "gossip/wire/secure.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/noise.h"

#include <sodium.h>

enum { KIND_H1 = 1, KIND_H2 = 2, KIND_H3 = 3 };
enum { NONCE_BYTES = 12, GATE_BYTES = 16, PROLOGUE_BYTES = WIRE_MAGIC_BYTES + 1 + DIGEST_BYTES };

static const uint8_t magic[WIRE_MAGIC_BYTES] = {'G', 'R', 'P', 'V'};

_Static_assert(H1_BYTES == PREFIX_BYTES + NOISE_OVERHEAD_1 + GATE_BYTES, "H1 is fixed");
_Static_assert(PREFIX_BYTES + NOISE_OVERHEAD_2 + HELLO_BYTES_MAX <= HANDSHAKE_BYTES_MAX, "H2 fits");
_Static_assert(PREFIX_BYTES == RECORD_HEADER_BYTES, "a framer needs as many bytes for either");
_Static_assert(RECORD_TAG_BYTES == crypto_aead_aes256gcm_ABYTES &&
                   RECORD_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES &&
                   NONCE_BYTES == crypto_aead_aes256gcm_NPUBBYTES &&
                   NONCE_BYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES &&
                   SECRET_BYTES == crypto_aead_aes256gcm_KEYBYTES &&
                   SECRET_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES,
               "the suites have equal sizes");
_Static_assert(RECORD_HEADER_BYTES + BULK_BYTES_MAX + RECORD_TAG_BYTES < 0x56505247,
               "no record length reads as the magic");

/* What is sent one way. */
struct direction {
    crypto_aead_aes256gcm_state aes; /* the key expanded; unused with ChaCha20 */
    uint8_t key[SECRET_BYTES];       /* of Split until the suite is chosen, then of the records */
    uint8_t iv[NONCE_BYTES];
    uint64_t records; /* sealed or opened so far: the next one's number */
};

/*  START --greet (initiator) / H1 (responder)--> WAITING --H2 / H3--> OPEN
 *    '------------------- anything wrong ----------'---------------'--> FAILED  */
struct secure {
    struct direction send, receive; /* first: their alignment is the library's */
    struct noise noise;
    const struct swarm_secret *swarm;
    enum secure_state state;
    bool is_initiator;
    uint32_t suite; /* 0: not chosen yet */
    uint64_t records_max;
    size_t payload_bytes, remote_payload_bytes;
    uint8_t payload[HELLO_BYTES_MAX], remote_payload[HELLO_BYTES_MAX];
    uint8_t remote_key[PUBLIC_KEY_BYTES];
    uint8_t session_id[SESSION_ID_BYTES];
};

/* Keyed BLAKE2b of a label: every key is bound to its purpose. */
static void kdf(const uint8_t key[SECRET_BYTES], const char *label, uint8_t *out, size_t count)
{
    CHECK(count >= crypto_generichash_BYTES_MIN && count <= SECRET_BYTES);
    CHECK(crypto_generichash(out, count, (const uint8_t *)label, strlen(label), key,
                             SECRET_BYTES) == 0);
}

static void gate_mac(const struct swarm_secret *swarm, const uint8_t *frame,
                     uint8_t mac[GATE_BYTES])
{
    uint8_t key[SECRET_BYTES];

    kdf(swarm->secret, "gate", key, sizeof key);
    CHECK(crypto_generichash(mac, GATE_BYTES, frame, H1_BYTES - GATE_BYTES, key, sizeof key) == 0);
    sodium_memzero(key, sizeof key);
}

static void prefix_encode(uint8_t *out, uint8_t kind, size_t length)
{
    CHECK(length <= HANDSHAKE_BYTES_MAX - PREFIX_BYTES);
    memcpy(out, magic, sizeof magic);
    out[4] = WIRE_MAJOR;
    out[5] = kind;
    store_le16(out + 6, (uint16_t)length);
}

static bool prefix_is(const uint8_t *frame, size_t count, uint8_t kind)
{
    return count >= PREFIX_BYTES && memcmp(frame, magic, sizeof magic) == 0 &&
           frame[4] == WIRE_MAJOR && frame[5] == kind &&
           load_le16(frame + 6) == count - PREFIX_BYTES;
}

enum rc secure_gate_check(const struct swarm_secret *swarm, const uint8_t *frame, size_t count)
{
    uint8_t mac[GATE_BYTES];

    if (count != H1_BYTES || !prefix_is(frame, count, KIND_H1)) return RC_FORMAT;
    gate_mac(swarm, frame, mac);
    return sodium_memcmp(mac, frame + H1_BYTES - GATE_BYTES, GATE_BYTES) == 0 ? RC_OK : RC_AUTH;
}

struct secure *secure_create(const struct secure_options *options)
{
    uint8_t prologue[PROLOGUE_BYTES];
    struct secure *secure;

    CHECK(options->swarm != NULL && options->key != NULL);
    CHECK(options->payload_bytes <= HELLO_BYTES_MAX);
    secure = mem_aligned(sizeof *secure);
    if (secure == NULL) return NULL;
    secure->swarm = options->swarm;
    secure->is_initiator = options->is_initiator;
    secure->records_max = options->records_max > 0 ? options->records_max : SECURE_RECORDS_MAX;
    CHECK(secure->records_max <= SECURE_RECORDS_MAX);
    secure->payload_bytes = options->payload_bytes;
    if (options->payload_bytes > 0) {
        memcpy(secure->payload, options->payload, options->payload_bytes);
    }
    memcpy(prologue, magic, sizeof magic);
    prologue[WIRE_MAGIC_BYTES] = WIRE_MAJOR;
    memcpy(prologue + WIRE_MAGIC_BYTES + 1, options->swarm->run_id.bytes, DIGEST_BYTES);
    noise_init(&secure->noise, &(struct noise_options){
                                   .is_initiator = options->is_initiator,
                                   .prologue = prologue,
                                   .prologue_bytes = sizeof prologue,
                                   .psk = options->swarm->secret,
                                   .static_secret = options->key->secret_key,
                                   .ephemeral_secret = options->ephemeral_seed,
                               });
    secure->state = SECURE_START;
    return secure;
}

void secure_destroy(struct secure *secure)
{
    if (secure == NULL) return;
    sodium_memzero(secure, sizeof *secure);
    mem_free(secure);
}

enum secure_state secure_state(const struct secure *secure)
{
    return secure->state;
}

/* The session ends here, and its keys with it. */
static enum rc fail(struct secure *secure, enum rc rc)
{
    CHECK(rc != RC_OK);
    noise_deinit(&secure->noise);
    sodium_memzero(&secure->send, sizeof secure->send);
    sodium_memzero(&secure->receive, sizeof secure->receive);
    secure->state = SECURE_FAILED;
    return rc;
}

/* Our next handshake message, framed. Message 1 carries no payload: nothing hides it yet. */
static enum rc write_message(struct secure *secure, uint8_t kind, uint8_t *out, size_t *out_count)
{
    size_t payload_bytes = kind == KIND_H1 ? 0 : secure->payload_bytes;
    size_t count = 0;
    enum rc rc = noise_write(&secure->noise, secure->payload, payload_bytes, out + PREFIX_BYTES,
                             HANDSHAKE_BYTES_MAX - PREFIX_BYTES, &count);

    if (rc != RC_OK) return rc;
    if (kind == KIND_H1) count += GATE_BYTES;
    prefix_encode(out, kind, count);
    *out_count = PREFIX_BYTES + count;
    if (kind == KIND_H1) gate_mac(secure->swarm, out, out + H1_BYTES - GATE_BYTES);
    CHECK(*out_count <= HANDSHAKE_BYTES_MAX);
    return RC_OK;
}

enum rc secure_greet(struct secure *secure, uint8_t *out, size_t *out_count)
{
    enum rc rc;

    CHECK(secure->is_initiator && secure->state == SECURE_START);
    rc = write_message(secure, KIND_H1, out, out_count);
    if (rc != RC_OK) return fail(secure, rc);
    CHECK(*out_count == H1_BYTES);
    secure->state = SECURE_WAITING;
    return RC_OK;
}

/* Both sides have everything: take the keys out of the handshake and forget it. */
static void become_open(struct secure *secure)
{
    CHECK(noise_is_done(&secure->noise));
    if (secure->is_initiator) {
        noise_split(&secure->noise, secure->send.key, secure->receive.key);
    } else {
        noise_split(&secure->noise, secure->receive.key, secure->send.key);
    }
    memcpy(secure->remote_key, secure->noise.remote_static, PUBLIC_KEY_BYTES);
    memcpy(secure->session_id, secure->noise.hash, SESSION_ID_BYTES);
    noise_deinit(&secure->noise);
    secure->state = SECURE_OPEN;
}

static enum rc answer_h1(struct secure *secure, const uint8_t *frame, size_t count, uint8_t *out,
                         size_t *out_count)
{
    uint8_t nothing[1];
    size_t nothing_bytes = 0;
    enum rc rc = secure_gate_check(secure->swarm, frame, count);

    if (rc != RC_OK) return rc;
    rc = noise_read(&secure->noise, frame + PREFIX_BYTES, NOISE_OVERHEAD_1, nothing, 0,
                    &nothing_bytes);
    if (rc != RC_OK) return rc;
    rc = write_message(secure, KIND_H2, out, out_count);
    if (rc == RC_OK) secure->state = SECURE_WAITING;
    return rc;
}

static enum rc read_payload(struct secure *secure, uint8_t kind, const uint8_t *frame, size_t count)
{
    enum rc rc;

    if (!prefix_is(frame, count, kind)) return RC_FORMAT;
    rc = noise_read(&secure->noise, frame + PREFIX_BYTES, count - PREFIX_BYTES,
                    secure->remote_payload, sizeof secure->remote_payload,
                    &secure->remote_payload_bytes);
    return rc == RC_LIMIT ? RC_FORMAT : rc;
}

enum rc secure_answer(struct secure *secure, const uint8_t *frame, size_t count, uint8_t *out,
                      size_t *out_count)
{
    enum rc rc = RC_FORMAT;

    *out_count = 0;
    if (secure->state == SECURE_START && !secure->is_initiator) {
        rc = answer_h1(secure, frame, count, out, out_count);
    } else if (secure->state == SECURE_WAITING && secure->is_initiator) {
        rc = read_payload(secure, KIND_H2, frame, count);
        if (rc == RC_OK) rc = write_message(secure, KIND_H3, out, out_count);
        if (rc == RC_OK) become_open(secure);
    } else if (secure->state == SECURE_WAITING) {
        rc = read_payload(secure, KIND_H3, frame, count);
        if (rc == RC_OK) become_open(secure);
    }
    if (rc == RC_OK) return RC_OK;
    *out_count = 0;
    return fail(secure, rc);
}

const uint8_t *secure_remote_payload(const struct secure *secure, size_t *bytes)
{
    CHECK(secure->state == SECURE_OPEN);
    *bytes = secure->remote_payload_bytes;
    return secure->remote_payload;
}

const uint8_t *secure_remote_key(const struct secure *secure)
{
    CHECK(secure->state == SECURE_OPEN);
    return secure->remote_key;
}

const uint8_t *secure_session_id(const struct secure *secure)
{
    CHECK(secure->state == SECURE_OPEN);
    return secure->session_id;
}

uint32_t secure_suites(void)
{
    return SUITE_CHACHA20POLY1305 |
           (crypto_aead_aes256gcm_is_available() != 0 ? (uint32_t)SUITE_AES256GCM : 0);
}

static void direction_choose(struct direction *direction, uint32_t suite)
{
    bool is_aes = suite == SUITE_AES256GCM;
    uint8_t root[SECRET_BYTES], iv[SECRET_BYTES];

    memcpy(root, direction->key, sizeof root);
    kdf(root, is_aes ? "record/1 aes256gcm key" : "record/1 chacha20poly1305 key", direction->key,
        SECRET_BYTES);
    kdf(root, is_aes ? "record/1 aes256gcm iv" : "record/1 chacha20poly1305 iv", iv, sizeof iv);
    memcpy(direction->iv, iv, NONCE_BYTES);
    if (is_aes) CHECK(crypto_aead_aes256gcm_beforenm(&direction->aes, direction->key) == 0);
    direction->records = 0;
    sodium_memzero(root, sizeof root);
    sodium_memzero(iv, sizeof iv);
}

void secure_choose_suite(struct secure *secure, uint32_t remote_suites)
{
    CHECK(secure->state == SECURE_OPEN && secure->suite == 0);
    /* ChaCha20 is mandatory: who does not list it gets it all the same. */
    secure->suite = (secure_suites() & remote_suites & SUITE_AES256GCM) != 0
                        ? SUITE_AES256GCM
                        : SUITE_CHACHA20POLY1305;
    direction_choose(&secure->send, secure->suite);
    direction_choose(&secure->receive, secure->suite);
}

static void direction_nonce(const struct direction *direction, uint8_t nonce[NONCE_BYTES])
{
    memcpy(nonce, direction->iv, NONCE_BYTES);
    store_le64(nonce + 4, load_le64(nonce + 4) ^ direction->records);
}

static void record_header(uint8_t *out, size_t inner_count)
{
    memset(out, 0, RECORD_HEADER_BYTES);
    store_le32(out, (uint32_t)inner_count);
}

enum rc secure_seal(struct secure *secure, const void *head, size_t head_count, const void *tail,
                    size_t tail_count, uint8_t *out)
{
    struct direction *send = &secure->send;
    uint8_t nonce[NONCE_BYTES], *inner = out + RECORD_HEADER_BYTES;
    size_t inner_count = head_count + tail_count;
    int failed;

    if (secure->state == SECURE_FAILED) return RC_CLOSED;
    CHECK(secure->state == SECURE_OPEN && secure->suite != 0);
    if (head_count > BULK_BYTES_MAX || tail_count > BULK_BYTES_MAX - head_count) return RC_LIMIT;
    if (send->records >= secure->records_max) return RC_LIMIT;
    record_header(out, inner_count);
    if (head_count > 0) memcpy(inner, head, head_count);
    if (tail_count > 0) memcpy(inner + head_count, tail, tail_count);
    direction_nonce(send, nonce);
    send->records++;
    if (secure->suite == SUITE_AES256GCM) {
        failed = crypto_aead_aes256gcm_encrypt_afternm(
            inner, NULL, inner, inner_count, out, RECORD_HEADER_BYTES, NULL, nonce, &send->aes);
    } else {
        failed = crypto_aead_chacha20poly1305_ietf_encrypt(
            inner, NULL, inner, inner_count, out, RECORD_HEADER_BYTES, NULL, nonce, send->key);
    }
    CHECK(failed == 0);
    return RC_OK;
}

enum rc secure_open(struct secure *secure, uint8_t *frame, size_t count, const uint8_t **inner,
                    size_t *inner_count)
{
    struct direction *receive = &secure->receive;
    uint8_t nonce[NONCE_BYTES], expected[RECORD_HEADER_BYTES],
        *sealed = frame + RECORD_HEADER_BYTES;
    size_t sealed_count;
    int failed;

    if (secure->state != SECURE_OPEN) return fail(secure, RC_FORMAT);
    CHECK(secure->suite != 0);
    if (count < secure_record_bytes(0) || count > secure_record_bytes(BULK_BYTES_MAX)) {
        return fail(secure, RC_FORMAT);
    }
    sealed_count = count - RECORD_HEADER_BYTES;
    /* The whole header is known from the frame's size, so it is compared, not read. */
    record_header(expected, sealed_count - RECORD_TAG_BYTES);
    if (memcmp(frame, expected, sizeof expected) != 0) return fail(secure, RC_FORMAT);
    if (receive->records >= secure->records_max) return fail(secure, RC_LIMIT);
    direction_nonce(receive, nonce);
    if (secure->suite == SUITE_AES256GCM) {
        failed =
            crypto_aead_aes256gcm_decrypt_afternm(sealed, NULL, NULL, sealed, sealed_count, frame,
                                                  RECORD_HEADER_BYTES, nonce, &receive->aes);
    } else {
        failed = crypto_aead_chacha20poly1305_ietf_decrypt(sealed, NULL, NULL, sealed, sealed_count,
                                                           frame, RECORD_HEADER_BYTES, nonce,
                                                           receive->key);
    }
    if (failed != 0) return fail(secure, RC_AUTH);
    receive->records++;
    *inner = sealed;
    *inner_count = sealed_count - RECORD_TAG_BYTES;
    return RC_OK;
}

enum rc frame_bytes(const uint8_t head[PREFIX_BYTES], size_t frame_max, size_t *count)
{
    size_t total;

    if (memcmp(head, magic, sizeof magic) == 0) {
        total = PREFIX_BYTES + (size_t)load_le16(head + 6);
        if (total > HANDSHAKE_BYTES_MAX) return RC_LIMIT;
    } else {
        if (head[5] != 0 || head[6] != 0 || head[7] != 0) return RC_FORMAT;
        total = secure_record_bytes(load_le32(head));
        if (load_le32(head) > BULK_BYTES_MAX) return RC_LIMIT;
    }
    if (total > frame_max) return RC_LIMIT;
    *count = total;
    return RC_OK;
}

/*
 * One session between two peers: the gate and our framing around the Noise handshake, then sealed
 * records.
 *
 *   H1  prefix 8 | e 32 | tag 16 | gate 16      H2  prefix | noise message 2     H3  prefix | 3
 *   prefix  "GRPV" | wire_major u8 | kind u8 (1, 2, 3) | length u16 of what follows
 *   gate    BLAKE2b-128 keyed with KDF(swarm secret, "gate") over all before it
 *   record  see gossip/secure/sealer.h
 *
 * The gate is what a stranger must pass before any curve arithmetic is spent on it. It stands in
 * front of Noise, not inside: the Noise messages are those of the paper, byte for byte. The
 * prologue is magic || wire_major || run id, so another swarm or another major version fails in the
 * crypto even where the framing agrees.
 *
 * Record keys are derived from the direction key of Noise's Split. A session has epochs: REKEY and
 * REKEY_ACK bring an ephemeral key of each side, and what both make of them is mixed into the
 * session's exporter, from which the next epoch's keys come. The answer is the last record of the
 * responder's old epoch, so the initiator changes both directions when it has read it; the
 * responder changes the other one at the first record that says so.
 *
 *   initiator  rekey_start: REKEY ->              <- REKEY_ACK: rekey_finish, and sends anew
 *   responder                -> rekey_answer, REKEY_ACK sealed, rekey_send: and sends anew
 *
 * Runs on the loop thread.
 */
#include "gossip/secure/secure.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/noise.h"
#include "gossip/secure/sealer.h"

#include <sodium.h>

enum { KIND_H1 = 1, KIND_H2 = 2, KIND_H3 = 3 };
enum { GATE_BYTES = 16, PROLOGUE_BYTES = WIRE_MAGIC_BYTES + 1 + DIGEST_BYTES };

static const uint8_t magic[WIRE_MAGIC_BYTES] = {'G', 'R', 'P', 'V'};

_Static_assert(H1_BYTES == PREFIX_BYTES + NOISE_OVERHEAD_1 + GATE_BYTES, "H1 is fixed");
_Static_assert(PREFIX_BYTES + NOISE_OVERHEAD_2 + HELLO_BYTES_MAX <= HANDSHAKE_BYTES_MAX, "H2 fits");
_Static_assert(PREFIX_BYTES == RECORD_HEADER_BYTES, "a framer needs as many bytes for either");
_Static_assert(RECORD_HEADER_BYTES + BULK_BYTES_MAX + RECORD_TAG_BYTES < 0x56505247,
               "no record length reads as the magic");

/*  START --greet (initiator) / H1 (responder)--> WAITING --H2 / H3--> OPEN
 *    '------------------- anything wrong ----------'---------------'--> FAILED  */
struct secure {
    struct secure_session now;
    struct sealer *send, *receive;
    uint64_t sent, received;        /* records of the epoch of each: the next one's number */
    uint8_t roots[2][SECRET_BYTES]; /* of sending and receiving, until they are in use */
    uint8_t exporter[SECRET_BYTES], old_exporter[SECRET_BYTES];
    uint8_t rekey_secret[SECRET_BYTES]; /* initiator, while is_rekeying */
    bool is_receive_due, is_send_due;   /* a direction has yet to change to `epoch` */
    struct noise noise;
    const struct swarm_secret *swarm;
    uint64_t records_max;
    bool is_initiator;
    size_t payload_bytes;
    uint8_t payload[HELLO_BYTES_MAX];
};

static void gate_mac(const struct swarm_secret *swarm, const uint8_t *frame,
                     uint8_t mac[GATE_BYTES])
{
    uint8_t key[SECRET_BYTES];

    sealer_derive(swarm->secret, "gate", NULL, 0, key, sizeof key);
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
    secure = mem_alloc(sizeof *secure);
    if (secure == NULL) return NULL;
    secure->send = sealer_create(options->fast);
    secure->receive = sealer_create(options->fast);
    if (secure->send == NULL || secure->receive == NULL) {
        secure_destroy(secure);
        return NULL;
    }
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
                                   .static_public = options->key->public_key,
                                   .ephemeral_secret = options->ephemeral_seed,
                                   .agreed = options->swarm->agreed,
                               });
    secure->now.state = SECURE_START;
    return secure;
}

void secure_destroy(struct secure *secure)
{
    if (secure == NULL) return;
    sealer_destroy(secure->send);
    sealer_destroy(secure->receive);
    sodium_memzero(secure, sizeof *secure);
    mem_free(secure);
}

const struct secure_session *secure_session(const struct secure *secure)
{
    return &secure->now;
}

/* The session ends here, and its keys with it. */
static enum rc fail(struct secure *secure, enum rc rc)
{
    CHECK(rc != RC_OK);
    noise_deinit(&secure->noise);
    sealer_wipe(secure->send);
    sealer_wipe(secure->receive);
    sodium_memzero(secure->roots, sizeof secure->roots);
    sodium_memzero(secure->exporter, sizeof secure->exporter);
    sodium_memzero(secure->old_exporter, sizeof secure->old_exporter);
    sodium_memzero(secure->rekey_secret, sizeof secure->rekey_secret);
    secure->now.state = SECURE_FAILED;
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

    CHECK(secure->is_initiator && secure->now.state == SECURE_START);
    rc = write_message(secure, KIND_H1, out, out_count);
    if (rc != RC_OK) return fail(secure, rc);
    CHECK(*out_count == H1_BYTES);
    secure->now.state = SECURE_WAITING;
    return RC_OK;
}

/* Both sides have everything: take the keys out of the handshake and forget it. */
static void become_open(struct secure *secure)
{
    CHECK(noise_is_done(&secure->noise));
    noise_split(&secure->noise, secure->roots[secure->is_initiator ? 0 : 1],
                secure->roots[secure->is_initiator ? 1 : 0], secure->exporter);
    memcpy(secure->now.remote_key, secure->noise.remote_static, PUBLIC_KEY_BYTES);
    memcpy(secure->now.session_id, secure->noise.hash, SESSION_ID_BYTES);
    noise_deinit(&secure->noise);
    secure->now.state = SECURE_OPEN;
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
    if (rc == RC_OK) secure->now.state = SECURE_WAITING;
    return rc;
}

static enum rc read_payload(struct secure *secure, uint8_t kind, const uint8_t *frame, size_t count)
{
    enum rc rc;

    if (!prefix_is(frame, count, kind)) return RC_FORMAT;
    rc = noise_read(&secure->noise, frame + PREFIX_BYTES, count - PREFIX_BYTES,
                    secure->now.remote_payload, sizeof secure->now.remote_payload,
                    &secure->now.remote_payload_bytes);
    return rc == RC_LIMIT ? RC_FORMAT : rc;
}

enum rc secure_answer(struct secure *secure, const uint8_t *frame, size_t count, uint8_t *out,
                      size_t *out_count)
{
    enum rc rc = RC_FORMAT;

    *out_count = 0;
    if (secure->now.state == SECURE_START && !secure->is_initiator) {
        rc = answer_h1(secure, frame, count, out, out_count);
    } else if (secure->now.state == SECURE_WAITING && secure->is_initiator) {
        rc = read_payload(secure, KIND_H2, frame, count);
        if (rc == RC_OK) rc = write_message(secure, KIND_H3, out, out_count);
        if (rc == RC_OK) become_open(secure);
    } else if (secure->now.state == SECURE_WAITING) {
        rc = read_payload(secure, KIND_H3, frame, count);
        if (rc == RC_OK) become_open(secure);
    }
    if (rc == RC_OK) return RC_OK;
    *out_count = 0;
    return fail(secure, rc);
}

uint32_t secure_suites(void)
{
    return SUITE_CHACHA20POLY1305 |
           (crypto_aead_aes256gcm_is_available() != 0 ? (uint32_t)SUITE_AES256GCM : 0);
}

void secure_choose_suite(struct secure *secure, uint32_t remote_suites)
{
    CHECK(secure->now.state == SECURE_OPEN && secure->now.suite == 0);
    /* ChaCha20 is mandatory: who does not list it gets it all the same. */
    secure->now.suite = (secure_suites() & remote_suites & SUITE_AES256GCM) != 0
                            ? SUITE_AES256GCM
                            : SUITE_CHACHA20POLY1305;
    sealer_set(secure->send, secure->now.suite, secure->roots[0], 0);
    sealer_set(secure->receive, secure->now.suite, secure->roots[1], 0);
    sodium_memzero(secure->roots, sizeof secure->roots);
}

enum rc secure_seal(struct secure *secure, const void *head, size_t head_count, const void *tail,
                    size_t tail_count, uint8_t *out)
{
    if (secure->now.state == SECURE_FAILED) return RC_CLOSED;
    CHECK(secure->now.state == SECURE_OPEN && secure->now.suite != 0);
    if (head_count > BULK_BYTES_MAX || tail_count > BULK_BYTES_MAX - head_count) return RC_LIMIT;
    if (secure->sent >= secure->records_max) return RC_LIMIT;
    sealer_seal(secure->send, secure->sent++, head, head_count, tail, tail_count, out);
    return RC_OK;
}

/* The other side's records are of the new epoch from here on. */
static void receive_next(struct secure *secure)
{
    sealer_set(secure->receive, secure->now.suite, secure->roots[1], (uint8_t)secure->now.epoch);
    sodium_memzero(secure->roots[1], SECRET_BYTES);
    sodium_memzero(secure->old_exporter, sizeof secure->old_exporter);
    secure->received = 0;
    secure->is_receive_due = false;
}

enum rc secure_open(struct secure *secure, uint8_t *frame, size_t count, const uint8_t **inner,
                    size_t *inner_count)
{
    enum rc rc;

    if (secure->now.state != SECURE_OPEN) return fail(secure, RC_FORMAT);
    CHECK(secure->now.suite != 0);
    if (count < secure_record_bytes(0)) return fail(secure, RC_FORMAT);
    if (secure->is_receive_due && frame[4] == (uint8_t)secure->now.epoch) receive_next(secure);
    if (secure->received >= secure->records_max) return fail(secure, RC_LIMIT);
    rc = sealer_open(secure->receive, secure->received, frame, count, inner, inner_count);
    if (rc != RC_OK) return fail(secure, rc);
    secure->received++;
    return RC_OK;
}

/* ---- the next epoch ---- */

uint64_t secure_records(const struct secure *secure)
{
    return secure->sent > secure->received ? secure->sent : secure->received;
}

const uint8_t *secure_exporter(const struct secure *secure, uint32_t epoch)
{
    if (secure->now.state != SECURE_OPEN) return NULL;
    if (epoch == secure->now.epoch) return secure->exporter;
    return secure->is_receive_due && epoch + 1 == secure->now.epoch ? secure->old_exporter : NULL;
}

bool secure_may_rekey(const struct secure *secure)
{
    return secure->now.state == SECURE_OPEN && secure->is_initiator && !secure->now.is_rekeying &&
           !secure->is_receive_due && !secure->is_send_due;
}

void secure_rekey_start(struct secure *secure, const uint8_t seed[SECRET_BYTES],
                        uint8_t key[PUBLIC_KEY_BYTES])
{
    CHECK(secure_may_rekey(secure));
    secure->now.is_rekeying = true;
    memcpy(secure->rekey_secret, seed, SECRET_BYTES);
    CHECK(crypto_scalarmult_base(key, secure->rekey_secret) == 0);
}

/* Mix the two ephemeral keys into the exporter, and take the next epoch's keys out of it. */
static enum rc next_epoch(struct secure *secure, const uint8_t own_secret[SECRET_BYTES],
                          const uint8_t own[PUBLIC_KEY_BYTES],
                          const uint8_t remote[PUBLIC_KEY_BYTES])
{
    uint8_t context[4 + 2 * PUBLIC_KEY_BYTES + SECRET_BYTES];
    uint8_t *ours = context + 4 + (secure->is_initiator ? 0 : PUBLIC_KEY_BYTES);
    uint8_t *theirs = context + 4 + (secure->is_initiator ? PUBLIC_KEY_BYTES : 0);

    if (crypto_scalarmult(context + 4 + 2 * PUBLIC_KEY_BYTES, own_secret, remote) != 0) {
        return RC_AUTH;
    }
    store_le32(context, ++secure->now.epoch);
    memcpy(ours, own, PUBLIC_KEY_BYTES);
    memcpy(theirs, remote, PUBLIC_KEY_BYTES);
    memcpy(secure->old_exporter, secure->exporter, SECRET_BYTES);
    sealer_derive(secure->old_exporter, "rekey/1", context, sizeof context, secure->exporter,
                  SECRET_BYTES);
    sealer_derive(secure->exporter, "epoch/1 initiator", NULL, 0,
                  secure->roots[secure->is_initiator ? 0 : 1], SECRET_BYTES);
    sealer_derive(secure->exporter, "epoch/1 responder", NULL, 0,
                  secure->roots[secure->is_initiator ? 1 : 0], SECRET_BYTES);
    secure->is_send_due = secure->is_receive_due = true;
    sodium_memzero(context, sizeof context);
    return RC_OK;
}

enum rc secure_rekey_answer(struct secure *secure, uint32_t epoch,
                            const uint8_t remote[PUBLIC_KEY_BYTES],
                            const uint8_t seed[SECRET_BYTES], uint8_t key[PUBLIC_KEY_BYTES])
{
    enum rc rc;

    if (secure->now.state != SECURE_OPEN || secure->is_initiator ||
        epoch != secure->now.epoch + 1 || secure->is_receive_due || secure->is_send_due) {
        return fail(secure, RC_FORMAT);
    }
    CHECK(crypto_scalarmult_base(key, seed) == 0);
    rc = next_epoch(secure, seed, key, remote);
    return rc == RC_OK ? RC_OK : fail(secure, rc);
}

enum rc secure_rekey_finish(struct secure *secure, uint32_t epoch,
                            const uint8_t remote[PUBLIC_KEY_BYTES])
{
    uint8_t key[PUBLIC_KEY_BYTES];
    enum rc rc;

    if (secure->now.state != SECURE_OPEN || !secure->now.is_rekeying ||
        epoch != secure->now.epoch + 1) {
        return fail(secure, RC_FORMAT);
    }
    CHECK(crypto_scalarmult_base(key, secure->rekey_secret) == 0);
    rc = next_epoch(secure, secure->rekey_secret, key, remote);
    sodium_memzero(secure->rekey_secret, sizeof secure->rekey_secret);
    if (rc != RC_OK) return fail(secure, rc);
    secure->now.is_rekeying = false;
    receive_next(secure); /* REKEY_ACK was the last record of the old epoch */
    secure_rekey_send(secure);
    return RC_OK;
}

void secure_rekey_send(struct secure *secure)
{
    if (secure->now.state != SECURE_OPEN || !secure->is_send_due) return;
    sealer_set(secure->send, secure->now.suite, secure->roots[0], (uint8_t)secure->now.epoch);
    sodium_memzero(secure->roots[0], SECRET_BYTES);
    secure->sent = 0;
    secure->is_send_due = false;
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

/*
 * Two real ends and an attacker between them: each step of the input delivers the last frame of one
 * end as it is, changed, cut, sent back or sent again, or delivers bytes of the input's own, or has
 * an end seal a record. Whatever opens must be the other end's next record, in order, unchanged;
 * and no end may open before the other end has spoken to it.
 */
#include "base/check.h"
#include "gossip/secure/secure.h"

#include <string.h>

enum { STEPS_MAX = 64, INNER_BYTES = 24, ENDS = 2 };

struct end {
    struct static_key key;
    struct secure *secure;
    uint8_t frame[HANDSHAKE_BYTES_MAX]; /* the last one it sent */
    size_t frame_count;
    uint32_t sealed, opened;
    bool has_chosen;
};

struct input {
    const uint8_t *at;
    size_t left;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t next_byte(struct input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->at++;
}

/* The `number`-th record of end `who`. */
static void inner_make(uint8_t who, uint32_t number, uint8_t inner[INNER_BYTES])
{
    memset(inner, who, INNER_BYTES);
    memcpy(inner, &number, sizeof number);
}

static void end_create(struct end *end, uint8_t who, const struct swarm_secret *swarm)
{
    uint8_t seed[SECRET_BYTES] = {(uint8_t)(who + 1)};
    struct secure_options options = {.is_initiator = who == 0,
                                     .swarm = swarm,
                                     .key = &end->key,
                                     .ephemeral_seed = {(uint8_t)(who + 5)},
                                     .payload = &who,
                                     .payload_bytes = 1};

    memset(end, 0, sizeof *end);
    static_key_from_seed(seed, &end->key);
    end->secure = secure_create(&options);
    CHECK(end->secure != NULL);
}

static void choose_when_open(struct end *end, const struct end *other, uint8_t other_who)
{
    const struct secure_session *session = secure_session(end->secure);

    if (session->state != SECURE_OPEN || end->has_chosen) return;
    CHECK(session->remote_payload_bytes == 1 && session->remote_payload[0] == other_who);
    CHECK(memcmp(session->remote_key, other->key.public_key, PUBLIC_KEY_BYTES) == 0);
    secure_choose_suite(end->secure, SUITE_AES256GCM);
    end->has_chosen = true;
}

static void deliver(struct end *ends, uint8_t to, const uint8_t *bytes, size_t count)
{
    struct end *end = &ends[to];
    const struct end *other = &ends[1 - to];
    uint8_t frame[HANDSHAKE_BYTES_MAX], expected[INNER_BYTES], out[HANDSHAKE_BYTES_MAX];
    const uint8_t *inner = NULL;
    size_t inner_count = 0, out_count = 0;

    CHECK(count <= sizeof frame);
    memcpy(frame, bytes, count);
    if (count >= 4 && memcmp(frame, "GRPV", 4) == 0) {
        if (secure_answer(end->secure, frame, count, out, &out_count) == RC_OK) {
            CHECK(other->frame_count > 0 || other->sealed > 0);
            choose_when_open(end, other, 1 - to);
        }
        if (out_count > 0) {
            memcpy(end->frame, out, out_count);
            end->frame_count = out_count;
        }
        return;
    }
    if (secure_open(end->secure, frame, count, &inner, &inner_count) != RC_OK) {
        CHECK(secure_session(end->secure)->state == SECURE_FAILED);
        return;
    }
    inner_make(1 - to, end->opened++, expected);
    CHECK(end->opened <= other->sealed);
    CHECK(inner_count == INNER_BYTES && memcmp(inner, expected, INNER_BYTES) == 0);
}

static void seal(struct end *ends, uint8_t who)
{
    struct end *end = &ends[who];
    uint8_t inner[INNER_BYTES];

    if (secure_session(end->secure)->state != SECURE_OPEN) return;
    inner_make(who, end->sealed++, inner);
    CHECK(secure_seal(end->secure, inner, 16, inner + 16, INNER_BYTES - 16, end->frame) == RC_OK);
    end->frame_count = secure_record_bytes(INNER_BYTES);
}

static void deliver_changed(struct end *ends, uint8_t to, struct input *input)
{
    struct end *from = &ends[1 - to];
    uint8_t frame[HANDSHAKE_BYTES_MAX];
    size_t count = from->frame_count, at = next_byte(input) + 256U * next_byte(input);
    uint8_t flip = next_byte(input);

    if (count == 0) return;
    memcpy(frame, from->frame, count);
    if (flip == 0) {
        count = at % count;
    } else {
        frame[at % count] ^= flip;
    }
    deliver(ends, to, frame, count);
    CHECK(secure_session(ends[to].secure)->state == SECURE_FAILED);
}

static void step(struct end *ends, struct input *input)
{
    uint8_t operation = next_byte(input), to = operation >> 7;
    size_t count;

    switch (operation & 7) {
    case 0:
        if (secure_session(ends[0].secure)->state != SECURE_START) break;
        CHECK(secure_greet(ends[0].secure, ends[0].frame, &ends[0].frame_count) == RC_OK);
        break;
    case 1:
    case 2:
        if (ends[1 - to].frame_count > 0) {
            deliver(ends, to, ends[1 - to].frame, ends[1 - to].frame_count);
        }
        break;
    case 3:
        deliver_changed(ends, to, input);
        break;
    case 4: /* back to where it came from */
        if (ends[to].frame_count > 0) deliver(ends, to, ends[to].frame, ends[to].frame_count);
        break;
    case 5: /* the attacker's own */
        count = next_byte(input);
        if (count > input->left) count = input->left;
        deliver(ends, to, input->at, count);
        input->at += count;
        input->left -= count;
        break;
    default:
        seal(ends, to);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[SECRET_BYTES] = "fuzz";
    struct input input = {data, size};
    struct swarm_secret swarm;
    struct end ends[ENDS];

    if (secure_start() != RC_OK) return 0;
    swarm_secret_derive("fuzz", key, &swarm);
    for (uint8_t who = 0; who < ENDS; who++) {
        end_create(&ends[who], who, &swarm);
    }
    for (int i = 0; i < STEPS_MAX && input.left > 0; i++) {
        step(ends, &input);
    }
    for (uint8_t who = 0; who < ENDS; who++) {
        secure_destroy(ends[who].secure);
    }
    return 0;
}

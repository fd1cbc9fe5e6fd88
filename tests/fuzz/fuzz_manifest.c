/*
 * What a donor sends to a joiner, made by the fuzzer from the first byte on: manifests it signs
 * whatever they say, pages, denials, sketches and buckets, in any order. Nothing it says may
 * complete a download unless all of it fits together, nor cost more memory than the model has.
 */
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/signed/manifest.h"
#include "peer/download/joiner.h"
#include "peer/download/sketch.h"

#include <math.h>

enum { VALUES = CHUNK_VALUES + 8, BUFFER_VALUES = 4 };

static struct schema schema;
static struct identity identity;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void make_world(void)
{
    const uint32_t shape[] = {VALUES}, buffer[] = {BUFFER_VALUES};
    const uint8_t seed[SECRET_BYTES] = {1};

    if (schema.tensors_count > 0) return;
    CHECK(secure_start() == RC_OK);
    identity_from_seed(seed, &identity);
    schema_init(&schema);
    CHECK(schema_add(&schema, "w", SECTION_PARAMETERS, shape, 1) == RC_OK);
    CHECK(schema_add(&schema, "b", SECTION_BUFFERS, buffer, 1) == RC_OK);
}

/* A judgement of numbers that a member chose is never a NaN's. */
static void judge(const struct message_sketch *message)
{
    struct sketch_answer answers[SKETCH_ANSWERS_MAX] = {{.round = 1}, {.moved = 1}};
    struct sketch own = {{1}};
    struct sketch_opinion opinion;

    memcpy(answers[2].sketch.values, message->values, sizeof answers[2].sketch.values);
    answers[2].round = message->round;
    answers[2].moved = (double)message->moved;
    opinion = sketch_judge(&own, 0, answers, SKETCH_ANSWERS_MAX);
    CHECK(opinion.verdict != SKETCH_UNCHECKED);
    CHECK(!isnan(opinion.distance) && !isnan(opinion.allowed));
}

static void say(struct joiner *joiner, struct peer_id donor, enum message_type type,
                const uint8_t *body, size_t count, struct outbox *out)
{
    struct message message;
    enum rc rc = message_decode(type, body, count, &message);

    if (rc != RC_OK) return;
    if (type == MESSAGE_SKETCH) {
        judge(&message.as.sketch);
        return;
    }
    if (type == MESSAGE_STATE_MANIFEST) {
        manifest_sign(&message.as.state_manifest, &identity, hash_of("run", 3));
        CHECK(manifest_is_signed_by(&message.as.state_manifest, donor, hash_of("run", 3)));
    }
    rc = joiner_on_message(joiner, donor, &message, NS_PER_S, out);
    CHECK(rc != RC_NOMEM);
}

/* Pieces of a type byte, two bytes of length and a body. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const enum message_type types[] = {MESSAGE_STATE_MANIFEST, MESSAGE_MANIFEST_PAGE,
                                              MESSAGE_STATE_DENY, MESSAGE_SKETCH};
    struct joiner *joiner;
    struct peer_id donor;
    struct outbox out;
    uint64_t blocks;
    enum rc rc;

    make_world();
    donor = identity_peer_id(identity.public_key);
    blocks = mem_blocks();
    joiner = joiner_create(&schema, hash_of("run", 3), 1);
    outbox_init(&out);
    while (count > 3) {
        uint8_t type = bytes[0];
        size_t length = load_le16(bytes + 1);

        bytes += 3;
        count -= 3;
        if (length > count) length = count;
        rc = joiner_begin(joiner, &donor, 1, (struct digest){{0}}, type, NS_PER_S, &out);
        CHECK(rc == RC_OK || rc == RC_BUSY);
        if (type % 5 < ARRAY_COUNT(types)) {
            say(joiner, donor, types[type % 5], bytes, length, &out);
        } else {
            rc =
                joiner_on_bucket(joiner, donor, type / 5, type / 64, bytes, length, NS_PER_S, &out);
            CHECK(rc != RC_NOMEM);
        }
        CHECK(joiner_state(joiner) != JOINER_COMPLETE); /* a bucket is larger than an input */
        outbox_clear(&out);
        bytes += length;
        count -= length;
    }
    joiner_destroy(joiner);
    outbox_deinit(&out);
    CHECK(mem_blocks() == blocks);
    return 0;
}

/*
 * One tensor's journey, as a program: read this first.
 *
 * Two peers train the same small network on the ten digits. We follow one tensor, the weights of
 * the first layer, `dense1.weight`, from one peer's training step to its neighbour's, through the
 * real functions of every layer, and look at its values after each step:
 *
 *    1 train        local steps change the tensor                              replica/
 *    2 export       the replica's numbers, as one flat plane                   replica/, kernels/
 *    3 offer        what the neighbour is told ...                             averaging/
 *    4 encode       ... in bytes, 16 or 32 bits a value                        averaging/
 *    5 seal         a header, and encryption                                   gossip/wire/
 *    6 send         over a link                                                peer/env/
 *    7 open         the neighbour's side of 5                                  gossip/wire/
 *    8 decode       the neighbour's side of 4, into staging                    averaging/
 *    9 absorb       what arrived and what was told give a difference           averaging/
 *   10 import       the difference is added to the replica, at a step border   replica/
 *
 * In a real peer these calls are spread over a loop and its jobs: peer/round/round.c makes them, in
 * this order, and an exchange (averaging/core/exchange.h) decides when. Here they follow each other
 * in one thread, so that nothing hides them. The network is the simulated one.
 */
#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "averaging/rule/rule.h"
#include "base/blob.h"
#include "base/bytes.h"
#include "base/floats.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"
#include "gossip/wire/messages.h"
#include "kernels/cpu/cpu_backend.h"
#include "peer/env/sim/env.h"
#include "replica/learners/replica.h"

#include <float.h>
#include <math.h>

#define THE_TENSOR "dense1.weight"
#define THE_MODEL  "linear:32 relu linear:classes"

enum { STREAM = 7 }; /* names the round in the headers of its chunks; any number will do here */

struct traveller {
    /* the model in training, and where our tensor lies in its plane */
    struct learner *replica;
    size_t values;
    struct tensor tensor;
    /* what one round works on: [values] each */
    float *snapshot, *own, *staging, *difference;
    struct rule *rule;
    /* what goes out and what came in */
    struct blob *encoded, *received;
    /* the way to the neighbour */
    struct env *env;
    uint64_t link;
    struct static_key key;
    struct secure *secure;
};

struct story {
    struct backend *cpu;
    struct sim_world *world;
    struct swarm_secret swarm;
    const struct codec *codec;
    struct traveller ann, bob;
};

/* ---- the tensor, wherever it is ---- */

/* Where the tensor's values lie in a plane. */
static const float *in_plane(const struct traveller *peer, const float *plane)
{
    return plane + peer->tensor.offset;
}

/* The tensor as it is in the replica right now. Release with mem_free(). */
static float *in_replica(const struct traveller *peer)
{
    float *plane = mem_array(peer->values, sizeof(float));
    float *tensor = mem_array(peer->tensor.count, sizeof(float));

    assert_true(plane != NULL && tensor != NULL);
    assert_int_equal(
        peer->replica->ops->export_section(peer->replica, SECTION_PARAMETERS, plane, peer->values),
        RC_OK);
    memcpy(tensor, in_plane(peer, plane), peer->tensor.count * sizeof(float));
    mem_free(plane);
    return tensor;
}

static bool is_same(const struct traveller *peer, const float *a, const float *b)
{
    return memcmp(a, b, peer->tensor.count * sizeof(float)) == 0;
}

/* ---- step 1 ---- */

/* Local steps change the tensor, each peer's in its own way: they see different halves of the data.
 */
static void train(struct traveller *peer, uint32_t steps)
{
    float *before = in_replica(peer), *after;
    struct train_report report;

    assert_int_equal(peer->replica->ops->train(peer->replica, steps, NULL, &report), RC_OK);
    assert_int_equal(report.steps, steps);
    after = in_replica(peer);
    assert_false(is_same(peer, before, after));
    mem_free(before);
    mem_free(after);
}

/* ---- step 2 ---- */

/* All parameters become one flat plane; the tensor is a stretch of it. */
static void export_snapshot(struct traveller *peer)
{
    float *live = in_replica(peer);

    assert_int_equal(peer->replica->ops->export_section(peer->replica, SECTION_PARAMETERS,
                                                        peer->snapshot, peer->values),
                     RC_OK);
    assert_true(is_same(peer, in_plane(peer, peer->snapshot), live));
    mem_free(live);
}

/* ---- steps 3 and 4 ---- */

/* What the neighbour will know of us is the plane after encoding: that is what counts as ours when
 * the two are mixed (`own`), or two peers would not mean the same thing by "the difference". The
 * exact snapshot stays beside it. */
static void offer_and_encode(const struct story *story, struct traveller *peer)
{
    const struct codec *codec = story->codec;
    struct rule_view view = {peer->own, peer->values};
    const float *exact = in_plane(peer, peer->snapshot), *told = in_plane(peer, peer->own);

    blob_unref(peer->encoded);
    peer->encoded = blob_create(codec->ops->bytes_max(codec, peer->values));
    assert_non_null(peer->encoded);
    codec->ops->encode(codec, 0, peer->snapshot, peer->values, peer->encoded->bytes);
    assert_int_equal(codec->ops->decode(codec, peer->encoded->bytes, peer->encoded->count,
                                        peer->own, peer->values),
                     RC_OK);
    rule_mean.begin(peer->rule, &view);

    assert_int_equal(is_same(peer, exact, told), codec->traits.is_lossless);
    for (size_t i = 0; i < peer->tensor.count; i++) { /* f16 keeps 11 bits of each value */
        assert_true(fabsf(told[i] - exact[i]) <= fabsf(exact[i]) / 2048 + 0x1p-24f);
    }
}

/* ---- steps 5 and 6 ---- */

static bool holds(const struct blob *frame, const uint8_t *bytes, size_t count)
{
    return memmem(frame->bytes, frame->count, bytes, count) != NULL;
}

/* A header says what the bytes are; then both are encrypted and leave as one frame. The plane is
 * smaller than a chunk here, so there is one frame; a large model is sent chunk by chunk. */
static void seal_and_send(struct traveller *peer, enum data_kind kind)
{
    struct inner_header header = {
        .type = MESSAGE_DATA, .flags = (uint8_t)kind, .stream = STREAM, .arg = 0};
    uint8_t head[INNER_HEADER_BYTES];
    struct blob *frame = blob_create(secure_record_bytes(sizeof head + peer->encoded->count));

    assert_non_null(frame);
    inner_header_encode(&header, head);
    assert_int_equal(secure_seal(peer->secure, head, sizeof head, peer->encoded->bytes,
                                 peer->encoded->count, frame->bytes),
                     RC_OK);
    assert_false(holds(frame, peer->encoded->bytes, 16)); /* nobody can read it on the way */
    assert_int_equal(peer->env->ops->send(peer->env, peer->link, frame), RC_OK);
    blob_unref(frame);
}

/* ---- steps 7 and 8 ---- */

/* The frame is opened: whoever wrote it knows the keys of this connection. What it claims to be is
 * compared with what we expect, and only then decoded; the result may hold no NaN. */
static void open_and_decode(const struct story *story, struct traveller *peer,
                            const struct traveller *from, enum data_kind kind)
{
    struct inner_header header;
    const uint8_t *inner;
    size_t count;

    assert_non_null(peer->received);
    assert_int_equal(
        secure_open(peer->secure, peer->received->bytes, peer->received->count, &inner, &count),
        RC_OK);
    assert_int_equal(inner_header_decode(inner, count, &header), RC_OK);
    assert_int_equal(header.type, MESSAGE_DATA);
    assert_int_equal(header.flags, kind);
    assert_int_equal(header.stream, STREAM); /* the right round */
    assert_int_equal(header.arg, 0);         /* the right range, and in the next line its length */
    assert_int_equal(count - INNER_HEADER_BYTES,
                     story->codec->ops->bytes_max(story->codec, peer->values));
    assert_memory_equal(inner + INNER_HEADER_BYTES, from->encoded->bytes, from->encoded->count);
    assert_int_equal(story->codec->ops->decode(story->codec, inner + INNER_HEADER_BYTES,
                                               count - INNER_HEADER_BYTES, peer->staging,
                                               peer->values),
                     RC_OK);
    assert_true(floats_are_finite(peer->staging, peer->values));
    blob_unref(peer->received);
    peer->received = NULL;
}

/* ---- step 9, between two peers ---- */

static const uint8_t committed[] = {1}; /* one bit a chunk: the one chunk counts */

/* Half the way to the other: 0.5 * (theirs - ours). */
static void absorb_and_settle(struct traveller *peer, const struct traveller *other)
{
    struct range all = {0, peer->values};
    const float *ours = in_plane(peer, peer->own), *theirs = in_plane(peer, peer->staging);
    const float *difference = in_plane(peer, peer->difference);

    assert_true(is_same(peer, theirs, in_plane(other, other->own))); /* as the other meant it */
    assert_int_equal(rule_mean.absorb(peer->rule, all, 1.0f, peer->staging), RC_OK);
    rule_mean.settle(peer->rule, committed, CHUNK_VALUES, 0.5f, peer->difference);
    for (size_t i = 0; i < peer->tensor.count; i++) {
        assert_true(difference[i] == 0.5f * (theirs[i] - ours[i]));
    }
}

/* What one peer gains the other gives, to the bit: averaging loses nothing of the pair's sum. */
static void check_differences_cancel(const struct story *story)
{
    const float *ann = in_plane(&story->ann, story->ann.difference);
    const float *bob = in_plane(&story->bob, story->bob.difference);
    size_t nonzero = 0;

    for (size_t i = 0; i < story->ann.tensor.count; i++) {
        assert_true(ann[i] == -bob[i]);
        nonzero += ann[i] != 0.0f;
    }
    assert_true(nonzero > story->ann.tensor.count / 2);
}

/* ---- step 10 ---- */

/* The replica may have trained on since the snapshot. Adding a difference keeps those steps;
 * writing the mixture over the parameters would undo them. */
static void import_difference(struct traveller *peer)
{
    float *before = in_replica(peer), *after;
    const float *difference = in_plane(peer, peer->difference);

    assert_int_equal(peer->replica->ops->import_section(peer->replica, SECTION_PARAMETERS,
                                                        peer->difference, peer->values),
                     RC_OK);
    after = in_replica(peer);
    for (size_t i = 0; i < peer->tensor.count; i++) {
        assert_true(after[i] == before[i] + difference[i]);
    }
    mem_free(before);
    mem_free(after);
}

/* How far the tensor went by local training between its snapshot and now, as a plane would hold it
 * if nobody had been averaged with. */
static void check_local_steps_survived(const struct traveller *peer, const float *trained_on)
{
    const float *snapshot = in_plane(peer, peer->snapshot);
    const float *difference = in_plane(peer, peer->difference);
    float *now = in_replica(peer);
    size_t moved = 0;

    for (size_t i = 0; i < peer->tensor.count; i++) {
        float local = trained_on[i] - snapshot[i];
        float left = now[i] - (snapshot[i] + difference[i]);

        assert_true(fabsf(left - local) <= 4 * FLT_EPSILON * (fabsf(now[i]) + 1.0f));
        moved += local != 0.0f;
    }
    assert_true(moved > 0);
    mem_free(now);
}

/* ---- setting the scene: replicas ---- */

static void replica_begin(struct story *story, struct traveller *peer, const char *half,
                          uint64_t stream_seed)
{
    struct replica_options options = {.model = THE_MODEL,
                                      .data = "digits",
                                      .shard_of = half,
                                      .seed = 1, /* both begin with the same weights */
                                      .stream_seed = stream_seed};
    const struct schema *schema;
    const struct tensor *tensor;
    struct fault why = {""};

    if (replica_create(story->cpu, &options, &peer->replica, &why) != RC_OK) {
        fail_msg("%s", why.text);
    }
    schema = peer->replica->ops->schema(peer->replica);
    tensor = schema_find(schema, THE_TENSOR);
    assert_non_null(tensor);
    assert_int_equal(tensor->section, SECTION_PARAMETERS);
    assert_int_equal(tensor->count, 8 * 8 * 32); /* from each pixel to each hidden unit */
    peer->tensor = *tensor;
    peer->values = schema->values[SECTION_PARAMETERS];
    assert_in_range(peer->values, 1, CHUNK_VALUES);
    peer->snapshot = mem_array(peer->values, sizeof(float));
    peer->own = mem_array(peer->values, sizeof(float));
    peer->staging = mem_array(peer->values, sizeof(float));
    peer->difference = mem_array(peer->values, sizeof(float));
    peer->rule = rule_mean.create(peer->values, NULL);
    assert_true(peer->snapshot != NULL && peer->own != NULL && peer->staging != NULL);
    assert_true(peer->difference != NULL && peer->rule != NULL);
}

/* ---- setting the scene: a connection ---- */

static void session_begin(struct story *story, struct traveller *peer, bool is_initiator)
{
    struct secure_options options = {.is_initiator = is_initiator,
                                     .swarm = &story->swarm,
                                     .key = &peer->key,
                                     .payload = (const uint8_t *)"hello",
                                     .payload_bytes = 5};
    uint8_t seed[SECRET_BYTES];

    peer->env->ops->entropy(peer->env, seed, sizeof seed);
    static_key_from_seed(seed, &peer->key);
    peer->env->ops->entropy(peer->env, options.ephemeral_seed, sizeof options.ephemeral_seed);
    peer->secure = secure_create(&options);
    assert_non_null(peer->secure);
}

static void send_handshake(struct traveller *peer, const uint8_t *bytes, size_t count)
{
    struct blob *frame = blob_copy(bytes, count);

    assert_non_null(frame);
    assert_int_equal(peer->env->ops->send(peer->env, peer->link, frame), RC_OK);
    blob_unref(frame);
}

static void on_accepted(void *context, uint64_t link, const char *remote)
{
    (void)remote;
    ((struct traveller *)context)->link = link;
}

static void on_connected(void *context, uint64_t link)
{
    struct traveller *peer = context;
    uint8_t greeting[HANDSHAKE_BYTES_MAX];
    size_t count;

    assert_int_equal(link, peer->link);
    assert_int_equal(secure_greet(peer->secure, greeting, &count), RC_OK);
    send_handshake(peer, greeting, count);
}

/* A frame of the handshake is answered; later ones wait for step 7. */
static void on_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    struct traveller *peer = context;
    uint8_t answer[HANDSHAKE_BYTES_MAX];
    size_t answer_count = 0;

    assert_int_equal(link, peer->link);
    if (secure_session(peer->secure)->state == SECURE_OPEN) {
        assert_null(peer->received);
        peer->received = blob_copy(frame, count);
        return;
    }
    assert_int_equal(secure_answer(peer->secure, frame, count, answer, &answer_count), RC_OK);
    if (answer_count > 0) send_handshake(peer, answer, answer_count);
    if (secure_session(peer->secure)->state != SECURE_OPEN) return;
    secure_choose_suite(peer->secure, secure_suites());
    peer->env->ops->link_set_frame_max(peer->env, link, secure_record_bytes(BULK_BYTES_MAX));
}

static void on_drain(void *context, uint64_t link)
{
    (void)context, (void)link;
}

static void on_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    (void)context, (void)link;
    fail_msg("the link was lost: %s (%s)", why, rc_text(rc));
}

static void let_the_network_work(struct story *story)
{
    (void)sim_run(story->world, sim_now_ns(story->world) + NS_PER_S);
}

static void connect_peers(struct story *story)
{
    struct traveller *peers[2] = {&story->ann, &story->bob};
    struct fault why = {""};
    char bound[ADDRESS_BYTES_MAX];

    for (int i = 0; i < 2; i++) {
        struct env_events events = {.context = peers[i],
                                    .on_accepted = on_accepted,
                                    .on_connected = on_connected,
                                    .on_frame = on_frame,
                                    .on_drain = on_drain,
                                    .on_lost = on_lost};
        uint32_t host;

        peers[i]->env = sim_host_create(story->world, &host);
        assert_non_null(peers[i]->env);
        peers[i]->env->ops->set_events(peers[i]->env, &events);
        session_begin(story, peers[i], i == 0);
    }
    assert_int_equal(
        story->bob.env->ops->listen(story->bob.env, "sim:1", bound, sizeof bound, &why), RC_OK);
    assert_int_equal(story->ann.env->ops->dial(story->ann.env, bound, &story->ann.link), RC_OK);
    let_the_network_work(story);
    assert_int_equal(secure_session(story->ann.secure)->state, SECURE_OPEN);
    assert_int_equal(secure_session(story->bob.secure)->state, SECURE_OPEN);
    assert_memory_equal(secure_session(story->ann.secure)->session_id,
                        secure_session(story->bob.secure)->session_id, SESSION_ID_BYTES);
}

static void story_begin(struct story *story, const struct codec *codec)
{
    struct cpu_backend_options cpu = {.threads = 1};
    struct sim_options sim = {.seed = 1, .latency_ns = NS_PER_MS, .hosts_max = 2};
    float *ann, *bob;

    *story = (struct story){.codec = codec};
    assert_int_equal(secure_start(), RC_OK);
    swarm_secret_derive("story", NULL, &story->swarm);
    story->cpu = cpu_backend_create(&cpu);
    story->world = sim_world_create(&sim);
    assert_true(story->cpu != NULL && story->world != NULL);
    replica_begin(story, &story->ann, "0/2", 1);
    replica_begin(story, &story->bob, "1/2", 2);
    ann = in_replica(&story->ann);
    bob = in_replica(&story->bob);
    assert_true(is_same(&story->ann, ann, bob));
    mem_free(ann);
    mem_free(bob);
    connect_peers(story);
}

static void traveller_end(struct traveller *peer)
{
    peer->replica->ops->destroy(peer->replica);
    rule_mean.destroy(peer->rule);
    secure_destroy(peer->secure);
    blob_unref(peer->encoded);
    blob_unref(peer->received);
    mem_free(peer->snapshot);
    mem_free(peer->own);
    mem_free(peer->staging);
    mem_free(peer->difference);
}

static void story_end(struct story *story)
{
    traveller_end(&story->ann);
    traveller_end(&story->bob);
    sim_world_destroy(story->world);
    backend_destroy(story->cpu);
}

/* ---- the journeys ---- */

/* Both tell each other their plane, and each goes half the way to the other. Training does not
 * wait: both take more steps between snapshot and import. */
static void tell_of_a_pair(const struct codec *codec)
{
    struct story story;
    float *ann_trained, *bob_trained;

    story_begin(&story, codec);
    train(&story.ann, 5);
    train(&story.bob, 5);
    export_snapshot(&story.ann);
    export_snapshot(&story.bob);
    train(&story.ann, 3); /* meanwhile */
    train(&story.bob, 2);
    ann_trained = in_replica(&story.ann);
    bob_trained = in_replica(&story.bob);

    offer_and_encode(&story, &story.ann);
    offer_and_encode(&story, &story.bob);
    seal_and_send(&story.ann, DATA_OFFER);
    seal_and_send(&story.bob, DATA_OFFER);
    let_the_network_work(&story);
    open_and_decode(&story, &story.ann, &story.bob, DATA_OFFER);
    open_and_decode(&story, &story.bob, &story.ann, DATA_OFFER);
    absorb_and_settle(&story.ann, &story.bob);
    absorb_and_settle(&story.bob, &story.ann);
    check_differences_cancel(&story);
    import_difference(&story.ann);
    import_difference(&story.bob);
    check_local_steps_survived(&story.ann, ann_trained);
    check_local_steps_survived(&story.bob, bob_trained);
    train(&story.ann, 1); /* the next step trains on the mixture */
    mem_free(ann_trained);
    mem_free(bob_trained);
    story_end(&story);
}

/* Step 9 in a group: Bob, to whom this part of the plane belongs in this round, averages what he
 * was told and what he holds. The mean goes through the codec too, and Bob takes the decoded form
 * himself: so all hold the same. It leaves as his next chunk. */
static void reduce_to_the_mean(const struct story *story, struct traveller *owner)
{
    struct range all = {0, owner->values};

    assert_int_equal(rule_mean.absorb(owner->rule, all, 1.0f, owner->own), RC_OK);
    assert_int_equal(rule_mean.absorb(owner->rule, all, 1.0f, owner->staging), RC_OK);
    assert_int_equal(rule_mean.reduce(owner->rule, all, owner->staging), RC_OK);
    story->codec->ops->encode(story->codec, 0, owner->staging, owner->values,
                              owner->encoded->bytes);
    assert_int_equal(story->codec->ops->decode(story->codec, owner->encoded->bytes,
                                               owner->encoded->count, owner->staging,
                                               owner->values),
                     RC_OK);
}

/* Everybody who took part goes the whole way to what was agreed. */
static void agree_and_settle(struct traveller *peer)
{
    struct range all = {0, peer->values};

    assert_int_equal(rule_mean.agree(peer->rule, all, peer->staging), RC_OK);
    rule_mean.settle(peer->rule, committed, CHUNK_VALUES, 1.0f, peer->difference);
}

static void check_both_hold_the_mean(const struct story *story)
{
    const struct traveller *ann = &story->ann, *bob = &story->bob;
    const float *a = in_plane(ann, ann->snapshot), *b = in_plane(bob, bob->snapshot);
    float *at_ann = in_replica(ann), *at_bob = in_replica(bob);

    for (size_t i = 0; i < ann->tensor.count; i++) {
        float rounding =
            FLT_EPSILON * (fabsf(a[i]) + fabsf(b[i])); /* x + (mean - x) is not exact */

        assert_true(fabsf(at_ann[i] - at_bob[i]) <= rounding);
        assert_true(fabsf(at_ann[i] - (a[i] + b[i]) / 2) <= rounding);
    }
    mem_free(at_ann);
    mem_free(at_bob);
}

/* Of a pair that tells exact values, the differences are exact negatives, and what each learned
 * meanwhile stays. */
static void a_tensor_goes_half_the_way_to_its_neighbour(void **state)
{
    (void)state;
    tell_of_a_pair(&codec_f32);
}

/* The same holds, to the bit, when half of the bits are left out on the way. */
static void a_tensor_in_sixteen_bits_goes_half_the_way_too(void **state)
{
    (void)state;
    tell_of_a_pair(&codec_f16);
}

/* After a group's mean, both replicas hold the same values: the mean of what they had. */
static void after_a_group_mean_both_hold_the_same_tensor(void **state)
{
    struct story story;

    (void)state;
    story_begin(&story, &codec_f32);
    train(&story.ann, 5);
    train(&story.bob, 5);
    export_snapshot(&story.ann);
    export_snapshot(&story.bob);
    offer_and_encode(&story, &story.ann);
    offer_and_encode(&story, &story.bob);
    seal_and_send(&story.ann, DATA_OFFER); /* to the owner of the part, who is Bob */
    let_the_network_work(&story);
    open_and_decode(&story, &story.bob, &story.ann, DATA_OFFER);
    reduce_to_the_mean(&story, &story.bob);
    seal_and_send(&story.bob, DATA_MEAN);
    let_the_network_work(&story);
    open_and_decode(&story, &story.ann, &story.bob, DATA_MEAN);
    assert_true(is_same(&story.ann, in_plane(&story.ann, story.ann.staging),
                        in_plane(&story.bob, story.bob.staging)));
    agree_and_settle(&story.ann);
    agree_and_settle(&story.bob);
    import_difference(&story.ann);
    import_difference(&story.bob);
    check_both_hold_the_mean(&story);
    story_end(&story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_goes_half_the_way_to_its_neighbour),
        cmocka_unit_test(a_tensor_in_sixteen_bits_goes_half_the_way_too),
        cmocka_unit_test(after_a_group_mean_both_hold_the_same_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Differences with error feedback, and what members of a group send each other of them. */
#include "tests/check.h"

#include "averaging/codec/delta.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>

enum { VALUES = 700, MEMBERS = 5, BYTES_MAX = 8 * VALUES };

/* The same place each time: a test looks at one codec at a time. */
static const struct codec *codec_of(const char *name)
{
    static struct codec codec;

    assert_int_equal(codec_find(name, &codec, NULL), RC_OK);
    codec_contract(&codec); /* as the strategy has it */
    return &codec;
}

static enum rc decode(const struct codec *codec, const uint8_t *bytes, size_t count, float *out)
{
    return codec->ops->decode(codec, bytes, count, out, VALUES);
}

static void fill(struct rng *rng, float *plane, float by)
{
    for (size_t i = 0; i < VALUES; i++) {
        plane[i] = by * (float)rng_normal(rng);
    }
}

/* What was sent and what is left add up to all differences, whatever the codec loses, and nothing
 * is left for ever. */
static void sent_and_left_add_up_to_all_differences(void **state)
{
    static const char *const names[] = {
        "topk:0.01",   "topk:0.1",  "int8",          "f16",  "f32",       "int4",
        "sign",        "qsgd:16",   "ternary",       "int2", "randk:0.1", "topk:64/4096|int2",
        "threshold:1", "lowrank:4", "lowrank:4|int8"};
    static float anchor[VALUES], x[VALUES], residual[VALUES], left[VALUES], scratch[VALUES];
    static double sum[VALUES], sent[VALUES];
    static uint8_t bytes[BYTES_MAX];

    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(names); c++) {
        const struct codec *codec = codec_of(names[c]);
        double apart = 0, total = 0, most = 0;
        struct rng rng;

        rng_init(&rng, c, 1);
        memset(residual, 0, sizeof residual);
        memset(sum, 0, sizeof sum);
        memset(sent, 0, sizeof sent);
        for (int round = 0; round < 1000; round++) {
            const struct feedback how = {codec, 1, (uint64_t)round};
            size_t count = 0;

            fill(&rng, anchor, 1);
            fill(&rng, x, 1);
            assert_int_equal(
                feedback_encode(&how, anchor, x, residual, VALUES, left, scratch, bytes, &count),
                RC_OK);
            assert_int_equal(decode(codec, bytes, count, scratch), RC_OK);
            for (size_t i = 0; i < VALUES; i++) {
                sum[i] += (double)anchor[i] - (double)x[i];
                sent[i] += (double)scratch[i];
            }
            memcpy(residual, left, sizeof residual);
        }
        for (size_t i = 0; i < VALUES; i++) {
            apart += pow(sent[i] + (double)residual[i] - sum[i], 2);
            total += pow(sum[i], 2);
            most = fmax(most, fabs((double)residual[i]));
        }
        if (!(sqrt(apart) <= 1e-4 * sqrt(total))) fail_msg("%s: %g", names[c], sqrt(apart / total));
        /* A coordinate's turn comes once it is the largest: 1000 rounds of 1 % send each ten
         * times. */
        if (!(most < 100)) fail_msg("%s: %g is left", names[c], most);
    }
}

static void what_did_not_count_is_left_whole(void **state)
{
    const struct feedback how = {codec_of("topk:0.02"), 0.5f, 1};
    size_t count = 0;
    static float anchor[VALUES], x[VALUES], residual[VALUES], left[VALUES], scratch[VALUES];
    static uint8_t bytes[BYTES_MAX];
    struct rng rng;

    (void)state;
    rng_init(&rng, 3, 3);
    fill(&rng, anchor, 1);
    fill(&rng, x, 1);
    fill(&rng, residual, 3);
    assert_int_equal(
        feedback_encode(&how, anchor, x, residual, VALUES, left, scratch, bytes, &count), RC_OK);
    assert_int_equal(feedback_take_back(how.codec, bytes, count, VALUES, left, scratch), RC_OK);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(left[i] == 0.5f * residual[i] + (anchor[i] - x[i]));
    }
    x[7] = INFINITY;
    assert_int_equal(
        feedback_encode(&how, anchor, x, residual, VALUES, left, scratch, bytes, &count),
        RC_NONFINITE);
}

/* ---- what is sent ---- */

struct member {
    float difference[VALUES];
    uint8_t bytes[DELTA_OFFER_HEAD + BYTES_MAX];
    size_t count;
    struct delta_offer offer;
};

/* An anchor, and a momentum beside it. */
#define BESIDE(anchor, momentum) ((uint64_t)(momentum) << 32 | (anchor))

/* `anchor` 0: the values themselves. */
static void offer(struct member *member, const struct codec *codec, uint64_t anchor, uint32_t round)
{
    const struct delta_offer offered = {
        .anchor = (uint32_t)anchor, .momentum = (uint32_t)(anchor >> 32), .round = round};

    if (anchor == 0) codec = &codec_f32;
    delta_offer_write(&offered, member->bytes);
    member->count = DELTA_OFFER_HEAD + codec->ops->encode(codec, round, member->difference, VALUES,
                                                          member->bytes + DELTA_OFFER_HEAD);
}

static void parse(struct member *member, const struct codec *codec)
{
    assert_true(delta_is_offer(codec, VALUES, member->count));
    assert_int_equal(delta_offer_parse(codec, member->bytes, member->count, VALUES, &member->offer),
                     RC_OK);
}

static void swarm_fill(struct member *members, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed, 9);
    for (int i = 0; i < MEMBERS; i++) {
        fill(&rng, members[i].difference, (float)(i + 1));
    }
}

static struct delta_set set_of(struct member *members, const struct codec *codec)
{
    struct delta_set set = {.members = 0};

    for (int i = 0; i < MEMBERS; i++) {
        parse(&members[i], codec);
        set.offers[i] = &members[i].offer;
    }
    return set;
}

/* The mean as a member takes it, from what it is sent and its own. */
static void mean_at(const struct codec *codec, struct member *members, struct blob *kept,
                    uint32_t place, struct delta_how how, float *out)
{
    static float scratch[VALUES], senders[VALUES];
    const struct delta_body own = {members[place].offer.body, members[place].offer.body_bytes};
    struct blob *blob = delta_for(VALUES, kept, place);
    struct delta_body bodies[GROUP_MEMBERS_MAX];
    struct delta_mean mean;
    uint32_t count;

    assert_non_null(blob);
    assert_true(delta_is_mean(codec, VALUES, blob->count));
    assert_int_equal(delta_mean_parse(codec, blob->bytes, blob->count, VALUES, place, &mean),
                     RC_OK);
    count = delta_bodies(&mean, place, own, bodies);
    assert_int_equal(delta_mean_of(codec, bodies, count, VALUES, how, out, scratch, senders),
                     RC_OK);
    blob_unref(blob);
}

/* Everybody gets the same bits of what one owner gathered, though nobody is sent its own. */
static void all_members_take_the_same_mean(void **state)
{
    static const char *const names[] = {"topk:0.05", "int8"};
    static struct member members[MEMBERS];
    static float first[VALUES], other[VALUES];
    uint64_t blocks = mem_blocks();

    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(names); c++) {
        const struct codec *codec = codec_of(names[c]);
        struct delta_set set;
        struct blob *kept;

        swarm_fill(members, c);
        for (int i = 0; i < MEMBERS; i++) {
            offer(&members[i], codec, 77, 3);
        }
        set = set_of(members, codec);
        delta_choose(VALUES, 2, &set);
        assert_int_equal(set.members, 31);
        assert_int_equal(set.astray, 0);
        set.far = 5; /* as many as are right, but for these; if all are far the owner's alone */
        delta_choose(VALUES, 2, &set);
        assert_int_equal(set.members, 26);
        set.far = 31;
        delta_choose(VALUES, 2, &set);
        assert_int_equal(set.members, 4);
        set.far = 0;
        delta_choose(VALUES, 2, &set);
        kept = delta_keep(VALUES, &set, NULL, 0);
        for (uint32_t how = 0; how < 4; how++) {
            const struct delta_how as = {.by_sender = how % 2 != 0, .clips = how / 2 != 0};

            mean_at(codec, members, kept, 0, as, first);
            for (uint32_t place = 1; place < MEMBERS; place++) {
                mean_at(codec, members, kept, place, as, other);
                assert_memory_equal(first, other, sizeof first);
            }
        }
        blob_unref(kept);
    }
    assert_int_equal(mem_blocks(), blocks);
}

/* Of a coordinate that two of five sent the mean of the two counts, or of all five; and who sends
 * a thousand times as much is cut to what is usual. */
static void values_are_shared_by_those_who_sent_them(void **state)
{
    static struct member members[MEMBERS];
    static float out[VALUES];
    const struct codec *codec = codec_of("topk:0.01"); /* 7 of 700 */
    struct delta_set set;
    struct blob *kept;

    (void)state;
    for (int i = 0; i < MEMBERS; i++) {
        memset(members[i].difference, 0, sizeof members[i].difference);
        for (int k = 0; k < 7; k++) { /* one in common with the next */
            members[i].difference[6 * i + k] = k == 6 ? 4 : 2;
        }
        offer(&members[i], codec, 5, 1);
    }
    set = set_of(members, codec);
    delta_choose(VALUES, 0, &set);
    kept = delta_keep(VALUES, &set, NULL, 0);
    mean_at(codec, members, kept, 1, (struct delta_how){.by_sender = true}, out);
    assert_true(out[1] == 2 && out[6] == 3 && out[30] == 4 && out[31] == 0);
    mean_at(codec, members, kept, 1, (struct delta_how){.by_sender = false}, out);
    assert_true(out[1] == 0.4f && out[6] == 1.2f && out[30] == 0.8f);
    blob_unref(kept);

    for (int k = 0; k < 7; k++) {
        members[3].difference[18 + k] *= -1000;
    }
    offer(&members[3], codec, 5, 1);
    set = set_of(members, codec);
    delta_choose(VALUES, 0, &set);
    kept = delta_keep(VALUES, &set, NULL, 0);
    mean_at(codec, members, kept, 1, (struct delta_how){.by_sender = true, .clips = true}, out);
    assert_true(out[1] == 2 && fabsf(out[19] + 2) < 1e-5f && fabsf(out[24] + 1) < 1e-5f);
    blob_unref(kept);
}

/* ---- unlike anchors ---- */

static void check_choice(const uint64_t *anchors, const uint32_t *rounds, uint32_t self,
                         uint64_t wanted, uint64_t astray)
{
    static struct member members[MEMBERS];
    const struct codec *codec = codec_of("topk:0.01");
    struct delta_set set;

    for (int i = 0; i < MEMBERS; i++) {
        offer(&members[i], codec, anchors[i], rounds[i]);
    }
    set = set_of(members, codec);
    delta_choose(VALUES, self, &set);
    assert_int_equal(set.members, wanted);
    assert_int_equal(set.astray, astray);
}

static void most_say_what_the_anchor_is(void **state)
{
    static const uint32_t rounds[] = {1, 1, 1, 1, 1}, later[] = {1, 9, 1, 1, 3};

    (void)state;
    check_choice((const uint64_t[]){4, 4, 6, 4, 0}, rounds, 0, 11, 20);
    check_choice((const uint64_t[]){4, 4, 6, 4, 0}, later, 2, 11, 0);  /* the owner is astray */
    check_choice((const uint64_t[]){4, 4, 6, 4, 0}, rounds, 4, 11, 0); /* and knows nothing */
    check_choice((const uint64_t[]){4, 6, 6, 4, 8}, rounds, 0, 9, 22); /* the owner's own */
    check_choice((const uint64_t[]){4, 6, 6, 4, 8}, later, 0, 6, 0);   /* 6 is of round 9 */
    check_choice((const uint64_t[]){4, 6, 6, 4, 8}, later, 2, 6, 25);
    check_choice((const uint64_t[]){4, 6, 7, 9, 8}, later, 1, 2, 29);
    check_choice((const uint64_t[]){0, 0, 0, 0, 0}, rounds, 0, 0, 0);
    /* Another momentum is put right, but the difference is as good as any. */
    check_choice((const uint64_t[]){4, BESIDE(4, 1), 4, 6, 6}, rounds, 0, 7, 26);
    check_choice((const uint64_t[]){4, BESIDE(4, 1), 4, 6, 6}, rounds, 1, 7, 0);
    check_choice((const uint64_t[]){4, BESIDE(4, 1), 6, 6, 8}, rounds, 1, 3, 29);
    check_choice((const uint64_t[]){4, BESIDE(4, 1), 6, 6, 8}, later, 0, 3, 0);
}

/* Who is astray gets what the owner's rule keeps, and nobody else does. */
static void who_is_astray_gets_the_anchor(void **state)
{
    static struct member members[MEMBERS];
    static float anchor[VALUES], momentum[VALUES];
    const float *const planes[] = {anchor, momentum};
    const struct codec *codec = codec_of("topk:0.05");
    struct delta_set set;
    struct delta_mean mean;
    struct blob *kept;
    struct rng rng;

    (void)state;
    rng_init(&rng, 1, 1);
    fill(&rng, anchor, 1);
    fill(&rng, momentum, 1);
    for (int i = 0; i < MEMBERS; i++) {
        offer(&members[i], codec, i == 3 ? 0 : 8, 1);
    }
    set = set_of(members, codec);
    delta_choose(VALUES, 1, &set);
    kept = delta_keep(VALUES, &set, planes, 2);
    for (uint32_t place = 0; place < MEMBERS; place++) {
        struct blob *blob = delta_for(VALUES, kept, place);

        assert_int_equal(delta_mean_parse(codec, blob->bytes, blob->count, VALUES, place, &mean),
                         RC_OK);
        assert_int_equal(mean.members, 23);
        assert_int_equal(mean.planes, place == 3 ? 2 : 0);
        for (size_t i = 0; i < VALUES && place == 3; i++) {
            assert_true(load_le_float(mean.state + 4 * i) == anchor[i]);
            assert_true(load_le_float(mean.state + 4 * (VALUES + i)) == momentum[i]);
        }
        blob_unref(blob);
    }
    blob_unref(kept);
    kept = delta_keep_whole(anchor, VALUES, 31);
    for (uint32_t place = 0; place < MEMBERS; place++) {
        struct blob *blob = delta_for(VALUES, kept, place);

        assert_int_equal(delta_mean_parse(codec, blob->bytes, blob->count, VALUES, place, &mean),
                         RC_OK);
        assert_true(mean.is_whole && mean.planes == 0 && mean.members == 31);
        assert_true(load_le_float(mean.bodies + 4 * 9) == anchor[9]);
        blob_unref(blob);
    }
    blob_unref(kept);
}

/* As many as fit one record count; the others' differences stay with them. */
static void one_record_holds_what_is_sent(void **state)
{
    static float values[CHUNK_VALUES];
    static uint8_t bytes[DELTA_OFFER_HEAD + 4 * CHUNK_VALUES];
    const float *const planes[] = {values, values};
    struct delta_offer same;
    struct delta_set set = {.members = 0};
    struct blob *kept, *blob;

    (void)state;
    delta_offer_write(&(struct delta_offer){.anchor = 3}, bytes);
    assert_int_equal(delta_offer_parse(&codec_f32, bytes, sizeof bytes, CHUNK_VALUES, &same),
                     RC_OK);
    for (int i = 0; i < GROUP_MEMBERS_MAX; i++) {
        set.offers[i] = &same;
    }
    delta_choose(CHUNK_VALUES, 0, &set);
    assert_int_equal(set.members, 31); /* five of 128 KiB, two planes, of 1 MiB */
    set.astray = UINT64_C(1) << 63;
    kept = delta_keep(CHUNK_VALUES, &set, planes, 2);
    blob = delta_for(CHUNK_VALUES, kept, 63);
    assert_true(blob->count + INNER_HEADER_BYTES <= BULK_BYTES_MAX);
    assert_true(delta_is_mean(&codec_f32, CHUNK_VALUES, blob->count));
    blob_unref(blob);
    blob_unref(kept);
}

static void other_bytes_are_refused(void **state)
{
    static struct member member;
    static uint8_t bytes[DELTA_MEAN_HEAD + BYTES_MAX];
    const struct codec *codec = codec_of("topk:0.05");
    const size_t each = codec->ops->bytes_max(codec, VALUES), body = DELTA_BODY_HEAD + each;
    struct delta_mean mean = {.members = 99};

    (void)state;
    offer(&member, codec, 1, 1);
    for (size_t count = 0; count < member.count + 20; count++) {
        if (count == member.count) continue;
        assert_int_equal(delta_offer_parse(codec, member.bytes, count, VALUES, &member.offer),
                         RC_FORMAT);
    }
    store_le64(bytes, 0x15); /* three, of which the reader is one */
    for (size_t i = 0; i < 3; i++) {
        store_le32(bytes + DELTA_MEAN_HEAD + i * body, (uint32_t)each);
    }
    for (size_t count = 0; count < DELTA_MEAN_HEAD + 3 * body; count++) {
        bool is_right = count == DELTA_MEAN_HEAD + 2 * body;

        assert_int_equal(delta_mean_parse(codec, bytes, count, VALUES, 2, &mean),
                         is_right ? RC_OK : RC_FORMAT);
        if (is_right) assert_true(delta_is_mean(codec, VALUES, count));
    }
    store_le32(bytes + DELTA_MEAN_HEAD + body, UINT32_MAX); /* longer than there is */
    assert_int_equal(delta_mean_parse(codec, bytes, DELTA_MEAN_HEAD + 2 * body, VALUES, 2, &mean),
                     RC_FORMAT);
    store_le32(bytes + DELTA_MEAN_HEAD + body, (uint32_t)each);
    bytes[8] = 3; /* no rule keeps so many planes */
    assert_int_equal(delta_mean_parse(codec, bytes, DELTA_MEAN_HEAD + 2 * body, VALUES, 2, &mean),
                     RC_FORMAT);
    bytes[8] = 0;
    assert_int_equal(delta_mean_parse(codec, bytes, DELTA_MEAN_HEAD + 2 * body, VALUES, 64, &mean),
                     RC_FORMAT);
    store_le64(bytes, 0);
    assert_int_equal(delta_mean_parse(codec, bytes, DELTA_MEAN_HEAD, VALUES, 2, &mean), RC_FORMAT);
    assert_false(delta_is_mean(codec, VALUES, BULK_BYTES_MAX));
    assert_false(delta_is_mean(codec, VALUES, DELTA_MEAN_HEAD - 1));
    assert_false(delta_is_offer(codec, VALUES, DELTA_OFFER_HEAD + each + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sent_and_left_add_up_to_all_differences),
        cmocka_unit_test(what_did_not_count_is_left_whole),
        cmocka_unit_test(all_members_take_the_same_mean),
        cmocka_unit_test(values_are_shared_by_those_who_sent_them),
        cmocka_unit_test(most_say_what_the_anchor_is),
        cmocka_unit_test(who_is_astray_gets_the_anchor),
        cmocka_unit_test(one_record_holds_what_is_sent),
        cmocka_unit_test(other_bytes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

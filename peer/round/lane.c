/*
 * What a round's jobs do in the exchange lane, in the order of a tensor's journey; round.c submits
 * them and goes on from what they did. They touch the buffers that the round's phase gives them,
 * and nothing that the loop looks at meanwhile.
 */
#include "peer/round/internal.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/crash_point.h"
#include "base/floats.h"
#include "base/hash_wide.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stream.h"

#include <math.h>

/* ---- 3, 4: what the neighbours are told, encoded ---- */

uint64_t round_seed(const struct round *round, enum data_kind kind, uint32_t chunk)
{
    uint64_t peer = rng_mix(load_le64(round->options.self.bytes),
                            load_le64(round->options.boot.bytes)),
             run = rng_mix(round->options.seed, round->snapshots);

    return rng_mix(rng_mix(peer, run), (uint64_t)kind << 32 | chunk);
}

struct blob *round_blob_for(struct round *round, uint32_t chunk)
{
    size_t most = round->codec->ops->bytes_max(round->codec, round_chunk_range(round, chunk).count);
    struct blob *blob = round->spare[chunk];

    round->spare[chunk] = NULL; /* chunks keep their sizes, where rounds all carry the same */
    if (blob != NULL && round->options.masks != NULL) {
        blob_unref(blob);
        blob = NULL;
    }
    if (blob == NULL) return blob_create(most);
    blob->count = most;
    return blob;
}

/* A chunk that the device has encoded; `own` is what others will decode. */
static enum rc encoded_there(struct round *round, uint32_t chunk, struct blob *blob)
{
    struct snapshot *snapshot = round->options.snapshot;
    struct range range = round_chunk_range(round, chunk);
    size_t count = 0;
    const uint8_t *bytes = snapshot->ops->chunk(snapshot, chunk, &count);

    CHECK(count == blob->count);
    memcpy(blob->bytes, bytes, count);
    if (!round_keeps_own(round)) return RC_OK;
    return round->codec->ops->decode(round->codec, bytes, count, round->own + range.first,
                                     range.count);
}

enum { HALF_VALUES = 4096 };

static bool is_half(const struct codec *codec)
{
    return codec->ops->format == CODEC_F16 || codec->ops->format == CODEC_BF16;
}

static enum rc encode_here(struct round *round, uint32_t chunk, const float *from,
                           struct blob *blob)
{
    struct range range = round_chunk_range(round, chunk);
    size_t step =
        is_half(round->codec) ? HALF_VALUES : range.count; /* what was looked at is at hand */
    size_t count = 0;

    for (size_t first = 0; first < range.count; first += step) {
        size_t n = range.count - first < step ? range.count - first : step;

        if (!floats_are_finite(from + first, n)) return RC_NONFINITE;
        count += round->codec->ops->encode(round->codec, round_seed(round, DATA_OFFER, chunk),
                                           from + first, n, blob->bytes + count);
    }
    blob->count = count;
    if (round->codec->traits.is_lossless || !round_keeps_own(round)) return RC_OK;
    return round->codec->ops->decode(round->codec, blob->bytes, count, round->own + range.first,
                                     range.count);
}

/* With its own memory, that of the last round if there is any. */
static enum rc encode_chunk(struct round *round, uint32_t chunk, const float *from)
{
    struct blob *blob = round_blob_for(round, chunk);

    if (blob == NULL) return RC_NOMEM;
    CHECK(round->offer[chunk] == NULL);
    round->offer[chunk] = blob;
    return round->options.snapshot != NULL ? encoded_there(round, chunk, blob)
                                           : encode_here(round, chunk, from, blob);
}

/* As quick as a copy, or one, and what was exact is not asked for again. */
bool round_encodes_live(const struct round *round)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (round->options.masks != NULL) return true;
    if (round->ops->has_mirrors || rule->prepare != NULL) return false;
    if (round->feedback != NULL) return false;
    return round_offers_snapshot(round) || (is_half(round->codec) && rule->set_sent == NULL);
}

/* What is sent as it is, looked at on its way into the buffer, if it is not there. */
static enum rc copy_checked(struct round *round, const float *from, struct range range)
{
    bool streams = stream_is_worth_it(round->layout.values), is_finite;
    float *to = round->snapshot + range.first;

    is_finite = from == to ? floats_are_finite(from, range.count)
                           : stream_copy_finite(to, from, range.count, streams);
    return is_finite ? RC_OK : RC_NONFINITE;
}

/* A chunk of which a part is elsewhere is put together in the buffer. */
enum rc round_encode(struct round *round, const float *live, size_t count)
{
    enum rc rc = RC_OK;

    CHECK(live == round->snapshot || round_encodes_live(round));
    CHECK(count <= round->layout.values);
    for (uint32_t chunk = 0; chunk < round->chunks && rc == RC_OK; chunk++) {
        struct range range = round_chunk_range(round, chunk);
        const float *from = live + range.first;

        if (range.first + range.count > count) {
            from = round->snapshot + range.first;
            if (range.first < count) {
                memcpy(round->snapshot + range.first, live + range.first,
                       (count - range.first) * sizeof(float));
            }
        }
        rc = round_offers_snapshot(round) ? copy_checked(round, from, range)
                                          : encode_chunk(round, chunk, from);
        crash_point(CRASH_ROUND_CHUNK_ENCODED);
    }
    round->is_encoded = rc == RC_OK;
    return rc;
}

void round_rule_begin_anew(struct round *round, float *const adopted[RULE_STATE_MAX])
{
    const struct rule_ops *rule = round->options.strategy->rule;
    const float *planes[RULE_STATE_MAX];
    size_t count = 0;

    rule->forget(round->rule);
    while (count < RULE_STATE_MAX && adopted[count] != NULL) {
        planes[count] = adopted[count];
        count++;
    }
    round_part_forget(round);
    if (round_part_restore(round, planes, count) != RC_OK) rule->forget(round->rule);
    round_residual_forget(round);
    round->has_centre = false;
}

/* Where chunks are clipped each has a radius of its own. */
static void bounds_measure(const struct round *round, struct round_job *job)
{
    if (!round->options.strategy->clips || round->ops->clips_chunks) return;
    job->bounds = robust_bounds(round->robust, round->own != NULL ? round->own : round->snapshot,
                                round->layout.values);
}

static void run_encode(struct round *round, struct round_job *job)
{
    struct rule_view view = {round->own, round->layout.values};
    struct snapshot *snapshot = round->options.snapshot;

    if (job->replaced != round->forgotten) round_rule_begin_anew(round, job->adopted);
    if (round->gather != NULL) gather_begin(round->gather);
    robust_note_gradient(round->robust, job->gradient);
    if (round->ops->has_mean) robust_begin(round->robust, job->steps, job->is_last);
    round_meet_begin(round);
    round_edge_prepare(round, job);
    if (round->ops->has_mirrors) {
        round_mirror_encode(round, job);
        round->options.strategy->rule->begin(round->rule, &view);
        if (job->rc == RC_OK) audit_told(round->options.audit, round->own, &round->layout);
        bounds_measure(round, job);
        return;
    }
    if (snapshot != NULL) job->rc = snapshot->ops->fetch(snapshot);
    if (round->feedback != NULL) {
        round_feedback_encode(round, job);
    } else if (job->rc == RC_OK && !round->is_encoded) {
        job->rc = round_encode(round, round->snapshot, round->layout.values);
    }
    audit_told(round->options.audit, round->own, &round->layout);
    bounds_measure(round, job);
    round->options.strategy->rule->begin(round->rule, &view);
    if (job->rc != RC_OK) return;
    round_part_begin(round);
    round_centre_begin(round);
}

/* ---- 8: decoded, checked, and taken in or kept apart ---- */

/* Refused when it is absurdly far from ours. `distance`: from `own`, if it is known. */
static enum rc judge(struct round *round, struct round_job *job, struct range range,
                     const float *own, const float *in, const float *distance, float *weight)
{
    const struct robust_chunk chunk = {.from = job->chunk.from,
                                       .chunk = job->chunk.chunk,
                                       .own = round_centre(round, range, own),
                                       .ours = round->centre != NULL ? own : NULL,
                                       .in = in,
                                       .count = range.count,
                                       .is_centred = round->centre != NULL,
                                       .is_mean = job->chunk.kind == DATA_MEAN,
                                       .may_clip = round->ops->clips_chunks};
    struct robust_verdict verdict;
    enum rc rc = distance != NULL && chunk.own == own
                     ? robust_judge(round->robust, &chunk, *distance, &verdict)
                     : robust_check(round->robust, &chunk, &verdict);

    if (!isfinite(verdict.distance) && !floats_are_finite(in, range.count)) return RC_NONFINITE;
    job->distance = verdict.distance * verdict.distance;
    *weight = verdict.weight;
    return rc;
}

enum rc round_judge(struct round *round, struct round_job *job, struct range range, const float *in)
{
    float weight;

    return judge(round, job, range, round->own + range.first, in, NULL, &weight);
}

static enum rc absorb(struct round *round, struct round_job *job, struct range range,
                      const float *in, float weight)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (round->gather != NULL) {
        return round_guard_add(round, job, job->chunk.from, job->chunk.chunk, in, weight);
    }
    if (round->options.strategy->clips && round->ops->clips_chunks) {
        job->guarded = (struct gather_count){1, weight < 1};
    }
    if (rule->keeps_weight && weight < 1) {
        robust_draw_near(round->own + range.first, in, range.count, weight, round->scratch);
        return rule->absorb(round->rule, range, job->weight, round->scratch);
    }
    return weight > 0 ? rule->absorb(round->rule, range, weight * job->weight, in) : RC_OK;
}

static enum rc take_in(struct round *round, struct round_job *job, struct range range,
                       const float *in, float weight)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (job->chunk.kind == DATA_MEAN) return rule->agree(round->rule, range, in);
    if (!job->is_staged) return absorb(round, job, range, in, weight);
    if (round->gather != NULL) {
        return gather_stage(round->gather, job->slot, range.first, round->own + range.first, in,
                            range.count, &job->distance);
    }
    return rule->stage(round->rule, job->slot, range, in, &job->distance);
}

static void decode(struct round *round, struct round_job *job, struct range range)
{
    bool meets = round_meets(round, job->chunk.kind);
    float *in = round->scratch, weight = 1, distance = 0;
    const float *own;
    double apart = 0;

    job->rc = round_own(round, job->chunk.chunk, job->told, &own);
    if (job->rc == RC_OK && round->ops->has_mirrors) {
        round_mirror_decode(round, job, range);
    } else if (job->rc == RC_OK) {
        job->rc = round_values_of(round, job, range, &in);
    }
    if (job->rc != RC_OK) return;
    if (meets) {
        apart = round_apart(round, range, job->scale, in, own);
        distance = (float)sqrt(apart);
    }
    job->rc = isfinite(apart) ? judge(round, job, range, own, in, meets ? &distance : NULL, &weight)
                              : RC_NONFINITE;
    if (job->rc != RC_OK) return;
    audit_heard(round->options.audit, job->chunk.kind, range, in);
    job->rc = meets ? round_meet(round, job->chunk.chunk, job->scale, apart)
                    : take_in(round, job, range, in, weight);
}

static void run_decode(struct round *round, struct round_job *job)
{
    /* Only of means that others passed on is it asked whether they are what their owner said. */
    if (job->wants_hash) job->hash = hash_wide_of(job->body, job->body_count);
    if (round->feedback != NULL) {
        round_feedback_decode(round, job, round_chunk_range(round, job->chunk.chunk));
    } else {
        decode(round, job, round_chunk_range(round, job->chunk.chunk));
    }
    if (job->rc != RC_OK) return;
    if (job->chunk.kind == DATA_MEAN) {
        crash_point(CRASH_GROUP_MEAN_AGREED);
    } else if (!job->is_staged) {
        crash_point(CRASH_ROUND_CHUNK_ABSORBED);
    }
}

/* ---- 9: part owners ---- */

static void run_own(struct round *round, struct round_job *job)
{
    if (round->feedback != NULL) return; /* differences are added up at the end, in order */
    for (uint32_t chunk = job->first; chunk < job->first + job->count; chunk++) {
        struct range range = round_chunk_range(round, chunk);
        const float *own = round->own + range.first;

        job->rc = round->gather != NULL
                      ? round_guard_add(round, job, round->options.self, chunk, own, 1)
                      : round->options.strategy->rule->absorb(round->rule, range, job->weight, own);
        if (job->rc != RC_OK) return;
    }
}

/* What the owner installs is the decoded form of what it sends, so that all hold the same. */
static void run_reduce(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    struct range range = round_chunk_range(round, job->first);
    float *out = round->scratch;

    if (round->feedback != NULL) {
        round_feedback_reduce(round, job);
        return;
    }
    if (round_sums_are_sent(round)) {
        out = (float *)(void *)job->blob->bytes;
    }
    job->rc = round->gather != NULL ? round_guard_reduce(round, job, out)
                                    : rule->reduce(round->rule, range, out);
    if (job->rc != RC_OK) return;
    if (out == round->scratch) {
        job->blob->count =
            round->codec->ops->encode(round->codec, round_seed(round, DATA_MEAN, job->first), out,
                                      range.count, job->blob->bytes);
    }
    if (job->is_partial) return; /* not the mean yet */
    if (job->wants_hash) job->hash = hash_wide_of(job->blob->bytes, job->blob->count);
    if (out == round->scratch) {
        job->rc = round->codec->ops->decode(round->codec, job->blob->bytes, job->blob->count, out,
                                            range.count);
        if (job->rc != RC_OK) return;
    }
    audit_reduced(round->options.audit, range, out);
    job->rc = round_meets(round, DATA_MEAN) ? round_meet_agreed(round, job->first, out)
                                            : rule->agree(round->rule, range, out);
}

/* ---- 9: settled ---- */

/* On its way to the device while training goes on. */
static enum rc put_difference(struct round *round)
{
    struct snapshot *snapshot = round->options.snapshot;

    if (snapshot == NULL) return RC_OK;
    return snapshot->ops->put(snapshot, round->difference, round->options.values);
}

/* For whoever joins: without memory for it they get another plane. */
static void copy_agreed(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (!job->keeps_agreed || rule->agreed == NULL) return;
    job->agreed = mem_aligned(round->options.values * sizeof(float));
    if (job->agreed == NULL ||
        rule->agreed(round->rule, job->bitmap, round->layout.chunk_values, job->agreed)) {
        return;
    }
    mem_free(job->agreed);
    job->agreed = NULL;
}

static void run_settle(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    crash_point(CRASH_ROUND_SETTLING);
    copy_agreed(round, job);
    if (round->feedback != NULL) round_feedback_settle(round, job->bitmap);
    rule->set_members(round->rule, job->members);
    if (rule->set_sent != NULL) {
        rule->set_sent(round->rule, job->sent,
                       round->options.snapshot == NULL ? round->snapshot : NULL);
    }
    if (job->doubt != NULL && rule->doubt != NULL) {
        rule->doubt(round->rule, job->bitmap, round->layout.chunk_values, job->to);
    } else {
        rule->settle(round->rule, job->bitmap, round->layout.chunk_values, job->scale, job->to);
        round_guard_settle(round, job, job->to);
    }
    job->squared = round_meet_squared(round, job->bitmap, job->scale, job->to);
    round_centre_move(round, job->bitmap, job->to);
    if (round->ops->has_mean || round->ops->is_of_two) {
        audit_settled(
            round->options.audit,
            &(struct audit_round){.key = round->ops->has_mean ? NULL : &job->key,
                                  .number = job->number,
                                  .bitmap = job->bitmap,
                                  .scale = job->doubt != NULL ? job->doubt->weight : job->scale,
                                  .members = job->members,
                                  .is_doubt = job->doubt != NULL,
                                  .is_mean = rule == &rule_mean,
                                  .own = round->own,
                                  .difference = job->to});
    }
    if (job->doubt != NULL) return;
    round_part_end(round);
    job->rc = put_difference(round);
}

/* A late commit: the kept difference of its chunks. */
static void run_doubt(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    const struct round_doubt *doubt = job->doubt;

    memcpy(round->difference, doubt->difference, doubt->layout.values * sizeof(float));
    rule_commit_late(round->difference, doubt->layout.values, doubt->bitmap,
                     doubt->layout.chunk_values, doubt->scale / doubt->weight);
    audit_late(round->options.audit, &doubt->key, doubt->scale);
    if (round->options.strategy->tracks && !job->is_current) { /* of a tracker that is void */
        size_t first = round->options.values - round->options.parameters;

        memset(round->difference + first, 0, round->options.parameters * sizeof(float));
    }
    if (rule->late != NULL && job->is_current) rule->late(round->rule, round->difference);
    round_part_late(round, doubt->mask);
    job->rc = put_difference(round);
}

/* ---- all of them ---- */

void round_job_run(struct job *base)
{
    struct round_job *job = (struct round_job *)base;
    struct round *round = job->round;

    switch (job->work) {
    case WORK_ENCODE:
        run_encode(round, job);
        break;
    case WORK_DECODE:
        run_decode(round, job);
        break;
    case WORK_OWN:
        run_own(round, job);
        break;
    case WORK_REDUCE:
        run_reduce(round, job);
        break;
    case WORK_EDGE:
        round_edge_run(round, job);
        break;
    case WORK_SETTLE:
        run_settle(round, job);
        break;
    case WORK_CANCEL:
        if (round->gather != NULL) gather_begin(round->gather);
        round->options.strategy->rule->cancel(round->rule);
        break;
    case WORK_DOUBT:
        run_doubt(round, job);
        break;
    case WORK_HOLD:
    case WORK_ABSORB_HELD:
        round_held_run(round, job);
        break;
    }
}

/*
 * Rounds of a group in which differences to the rule's anchor travel, where they differ from the
 * journey of round.c: what is sent, what an owner makes of it, and what a member keeps of what the
 * codec left out (averaging/codec/delta.h). `own` is the snapshot itself: a member's model goes to
 * where the round leads, and what of its steps was not told is in the residual.
 *
 * The residual changes when a round is settled, chunk by chunk with the bitmap, and at no other
 * time. A chunk that does not count, an abort and a crash leave residual, anchor and model as they
 * were, so its difference is sent again, whole. A member that an owner left out of a chunk that
 * counts has gone with it to the new anchor: what it sent is back in its residual, as much of it as
 * may count a round later.
 */
#include "peer/round/internal.h"

#include "averaging/codec/delta.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/hash_wide.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Of eight members whose data are unlike each difference is about sqrt(8) times as long as their
 * mean. */
enum { BACK_TIMES = 4 };

struct round_feedback {
    float *residual; /* [values] not told yet, as of the last round that counted */
    float *left;     /* [values] of the exchange lane: what becomes of it if this one counts */
    float *mean, *senders, *base;     /* [CHUNK_VALUES] of the exchange lane */
    struct round_gathered **gathered; /* [chunks] of our part; NULL: nothing has come */
    struct blob **state;              /* [chunks] what came of their owners' state, or NULL */
};

/* Offers for a chunk of our part, by their senders' places. */
struct round_gathered {
    struct blob *offers[GROUP_MEMBERS_MAX];
    uint64_t far; /* struct delta_set */
};

_Static_assert((int)DELTA_PLANES_MAX == (int)RULE_STATE_MAX, "what a rule keeps fits a record");

bool round_feedback_allocate(struct round *round)
{
    struct round_feedback *feedback;
    size_t bytes = round->options.values * sizeof(float);

    if (!round->options.strategy->has_feedback) return true;
    feedback = round->feedback = mem_alloc(sizeof *feedback);
    if (feedback == NULL) return false;
    feedback->residual = mem_aligned(bytes);
    feedback->left = mem_aligned(bytes);
    feedback->mean = mem_aligned(CHUNK_VALUES * sizeof(float));
    feedback->senders = mem_aligned(CHUNK_VALUES * sizeof(float));
    feedback->base = mem_aligned(CHUNK_VALUES * sizeof(float));
    feedback->gathered = mem_array(round->chunks, sizeof *feedback->gathered);
    feedback->state = mem_array(round->chunks, sizeof *feedback->state);
    if (feedback->residual != NULL) memset(feedback->residual, 0, bytes);
    return feedback->residual != NULL && feedback->left != NULL && feedback->mean != NULL &&
           feedback->senders != NULL && feedback->base != NULL && feedback->gathered != NULL &&
           feedback->state != NULL;
}

void round_gathered_free(struct round_gathered *gathered)
{
    if (gathered == NULL) return;
    round_blobs_clear(gathered->offers, GROUP_MEMBERS_MAX);
    mem_free(gathered);
}

void round_feedback_clear(struct round *round)
{
    struct round_feedback *feedback = round->feedback;

    if (feedback == NULL) return;
    for (uint32_t chunk = 0; feedback->gathered != NULL && chunk < round->chunks; chunk++) {
        round_gathered_free(feedback->gathered[chunk]);
        feedback->gathered[chunk] = NULL;
    }
    round_blobs_clear(feedback->state, round->chunks);
}

void round_feedback_deinit(struct round *round)
{
    struct round_feedback *feedback = round->feedback;

    if (feedback == NULL) return;
    round_feedback_clear(round);
    mem_free(feedback->residual);
    mem_free(feedback->left);
    mem_free(feedback->mean);
    mem_free(feedback->senders);
    mem_free(feedback->base);
    mem_free(feedback->gathered);
    mem_free(feedback->state);
    mem_free(feedback);
    round->feedback = NULL;
}

const float *round_residual(const struct round *round)
{
    if (round->feedback == NULL || round->replaced != round->forgotten) return NULL;
    return round->feedback->residual;
}

enum rc round_residual_restore(struct round *round, const float *residual)
{
    if (round->feedback == NULL) return residual == NULL ? RC_OK : RC_SHAPE;
    if (residual == NULL) return RC_OK; /* saved by a method that keeps none */
    if (!floats_are_finite(residual, round->options.values)) return RC_NONFINITE;
    memcpy(round->feedback->residual, residual, round->options.values * sizeof(float));
    return RC_OK;
}

void round_residual_forget(struct round *round)
{
    if (round->feedback == NULL) return;
    memset(round->feedback->residual, 0, round->options.values * sizeof(float));
}

bool round_feedback_is_size(const struct round *round, enum data_kind kind, size_t values,
                            size_t count)
{
    return kind == DATA_MEAN ? delta_is_mean(round->codec, values, count)
                             : delta_is_offer(round->codec, values, count);
}

/* ---- 3, 4: what the others are told ---- */

static size_t rule_planes(const struct round *round, const float *planes[RULE_STATE_MAX])
{
    return round->options.strategy->rule->state(round->rule, planes);
}

/* Of what the rule keeps of these values: who has the same comes to the same. The anchor's is never
 * 0. */
static void hash_state(const float *const *planes, size_t count, struct range range,
                       struct delta_offer *offer)
{
    uint32_t hash[DELTA_PLANES_MAX] = {0};

    CHECK(count <= DELTA_PLANES_MAX);
    for (size_t i = 0; i < count; i++) {
        hash[i] =
            load_le32(hash_wide_of(planes[i] + range.first, range.count * sizeof(float)).bytes);
    }
    offer->anchor = hash[0] == 0 ? 1 : hash[0];
    offer->momentum = hash[1];
}

/* Float32 to bytes and back: models and anchors are sent so. */
static void put_values(const float *values, size_t count, uint8_t *bytes)
{
    (void)codec_f32.ops->encode(&codec_f32, 0, values, count, bytes);
}

static enum rc get_values(const uint8_t *bytes, float *values, size_t count)
{
    return codec_f32.ops->decode(&codec_f32, bytes, count * sizeof(float), values, count);
}

/* Memory for `most` bytes behind the head. What the last round had may be of another size. */
static struct blob *offer_blob(struct round *round, uint32_t chunk, size_t most)
{
    blob_unref(round->spare[chunk]); /* nobody else holds it */
    round->spare[chunk] = NULL;
    return blob_create(DELTA_OFFER_HEAD + most);
}

static enum rc tell_chunk(struct round *round, const struct round_job *job, uint32_t chunk,
                          const float *const *planes, size_t count)
{
    const struct feedback how = {.codec = round->codec,
                                 .decay = round->options.strategy->feedback_decay,
                                 .seed = round_seed(round, DATA_OFFER, chunk)};
    struct round_feedback *feedback = round->feedback;
    struct range range = round_chunk_range(round, chunk);
    const float *x = round->snapshot + range.first, *residual = feedback->residual + range.first;
    float *left = feedback->left + range.first;
    struct delta_offer offer = {.round = (uint32_t)job->number};
    size_t bytes = range.count * sizeof(float);
    struct blob *blob;
    enum rc rc = RC_OK;

    if (count > 0) {
        hash_state(planes, count, range, &offer);
        bytes = round->codec->ops->bytes_max(round->codec, range.count);
    }
    blob = offer_blob(round, chunk, bytes);
    if (blob == NULL) return RC_NOMEM;
    CHECK(round->offer[chunk] == NULL);
    round->offer[chunk] = blob;
    delta_offer_write(&offer, blob->bytes);
    if (count > 0) {
        rc = feedback_encode(&how, planes[0] + range.first, x, residual, range.count, left,
                             round->scratch, blob->bytes + DELTA_OFFER_HEAD, &bytes);
    } else {
        put_values(x, range.count, blob->bytes + DELTA_OFFER_HEAD);
        memcpy(left, residual, range.count * sizeof(float));
    }
    blob->count = DELTA_OFFER_HEAD + bytes;
    return rc;
}

void round_feedback_encode(struct round *round, struct round_job *job)
{
    const float *planes[RULE_STATE_MAX];
    size_t count = rule_planes(round, planes);

    job->rc = floats_are_finite(round->snapshot, round->options.values) ? RC_OK : RC_NONFINITE;
    for (uint32_t chunk = 0; chunk < round->chunks && job->rc == RC_OK; chunk++) {
        job->rc = tell_chunk(round, job, chunk, planes, count);
    }
}

/* ---- 7, 8: what others send ---- */

/* Where a difference leads that is taken from our anchor: as far from our model as any member's is.
 * NULL: there is no saying. */
static const float *values_of(struct round *round, const struct delta_offer *offer,
                              struct range range)
{
    const float *planes[RULE_STATE_MAX];
    float *out = round->feedback->mean;

    if (offer->anchor == 0) return round->scratch;
    if (rule_planes(round, planes) == 0) return NULL;
    for (size_t i = 0; i < range.count; i++) {
        out[i] = planes[0][range.first + i] - round->scratch[i];
    }
    return out;
}

/* From the anchor that we have? */
static bool is_ours(const struct round *round, const struct delta_offer *offer, struct range range)
{
    const float *planes[RULE_STATE_MAX];
    const size_t count = rule_planes(round, planes);
    struct delta_offer ours = {.anchor = 0};

    if (count > 0) hash_state(planes, count, range, &ours);
    return ours.anchor == offer->anchor;
}

static void check_offer(struct round *round, struct round_job *job, struct range range)
{
    struct delta_offer offer;
    const float *values;

    job->rc = delta_offer_parse(round->codec, job->body, job->body_count, range.count, &offer);
    if (job->rc != RC_OK) return;
    job->rc = offer.anchor == 0
                  ? get_values(offer.body, round->scratch, range.count)
                  : round->codec->ops->decode(round->codec, offer.body, offer.body_bytes,
                                              round->scratch, range.count);
    if (job->rc != RC_OK) return;
    values = values_of(round, &offer, range);
    if (values != NULL) job->rc = round_judge(round, job, range, values);
    /* Who is astray may be far from all, and is to be brought back. */
    job->is_far = job->rc == RC_LIMIT && offer.anchor != 0 && !is_ours(round, &offer, range);
    if (job->is_far) job->rc = RC_OK;
}

/* The mean of those in it, ours in its place, from `base`: where an outer step would see it. */
static enum rc mean_of(struct round *round, const struct delta_mean *mean, const struct blob *told,
                       uint32_t self, const float *base, struct range range)
{
    struct round_feedback *feedback = round->feedback;
    const struct delta_how how = {.by_sender = round->options.strategy->rule->by_sender,
                                  .clips = round->options.strategy->clips};
    const struct delta_body own = {told->bytes + DELTA_OFFER_HEAD, told->count - DELTA_OFFER_HEAD};
    struct delta_body bodies[GROUP_MEMBERS_MAX];
    uint32_t count = delta_bodies(mean, self, own, bodies);
    enum rc rc;

    rc = delta_mean_of(round->codec, bodies, count, range.count, how, feedback->mean,
                       round->scratch, feedback->senders);
    for (size_t i = 0; i < range.count && rc == RC_OK; i++) {
        feedback->mean[i] = base[i] - feedback->mean[i];
    }
    return rc;
}

/* The anchor that came along, into `base`, and what the rule keeps beside it. An owner may lie
 * about them as about means, and a mean may be right only because it is taken from a wrong anchor:
 * so the anchor must be where a mean may be, and momentum must not lead farther in its next step,
 * else ours stays. */
static enum rc check_state(struct round *round, struct round_job *job,
                           const struct delta_mean *mean, struct range range)
{
    const size_t bytes = range.count * sizeof(float);
    float *base = round->feedback->base, *ahead = round->feedback->mean;
    const struct rule_ops *rule = round->options.strategy->rule;
    enum rc rc = get_values(mean->state, base, range.count);

    if (rc == RC_OK) rc = round_judge(round, job, range, base);
    job->planes = rc == RC_OK;
    for (uint32_t i = 1; i < mean->planes && rc == RC_OK; i++) {
        const float lead = rule->lead(round->rule);

        rc = get_values(mean->state + i * bytes, ahead, range.count);
        if (rc != RC_OK) return rc;
        for (size_t k = 0; k < range.count; k++) {
            ahead[k] = base[k] - lead * ahead[k];
        }
        if (round_judge(round, job, range, ahead) != RC_OK) return RC_OK;
        job->planes++;
    }
    return rc;
}

/* What a difference is taken from: what came along, else ours. *base NULL: there is nothing. */
static enum rc find_base(struct round *round, struct round_job *job, const struct delta_mean *mean,
                         struct range range, const float **base)
{
    const float *planes[RULE_STATE_MAX];

    *base = rule_planes(round, planes) > 0 ? planes[0] + range.first : NULL;
    if (mean->planes == 0) return RC_OK;
    *base = round->feedback->base;
    return check_state(round, job, mean, range);
}

/* What did not count comes in a later round, but as work on an older anchor: it counts as long as
 * the mean of this round at most, times BACK_TIMES. Where a member was away for some rounds it
 * would lead all others farther than they have gone. `mean`: where the mean led from `base`. */
static enum rc take_back(struct round *round, const uint8_t *bytes, size_t count,
                         struct range range, const float *base)
{
    float *left = round->feedback->left + range.first;
    const double most = BACK_TIMES * robust_distance(base, round->feedback->mean, range.count);
    enum rc rc = feedback_take_back(round->codec, bytes, count, range.count, left, round->scratch);
    const double length = rc == RC_OK ? robust_distance(left, NULL, range.count) : 0;
    const float share = length > most ? (float)(most / length) : 1;

    for (size_t i = 0; i < range.count && share < 1; i++) {
        left[i] *= share;
    }
    return rc;
}

static bool is_in(const struct delta_mean *mean, uint32_t place)
{
    return !mean->is_whole && (mean->members >> place & 1) != 0;
}

static void agree(struct round *round, struct round_job *job, struct range range)
{
    struct round_feedback *feedback = round->feedback;
    struct delta_mean mean;
    struct delta_offer told;
    const float *base = NULL;

    job->rc =
        delta_mean_parse(round->codec, job->body, job->body_count, range.count, job->slot, &mean);
    if (job->rc != RC_OK) return;
    job->rc =
        delta_offer_parse(round->codec, job->told->bytes, job->told->count, range.count, &told);
    CHECK(job->rc == RC_OK); /* it is ours */
    if (is_in(&mean, job->slot) && told.anchor == 0) {
        job->rc = RC_FORMAT; /* we sent no difference */
        return;
    }
    if (mean.is_whole) {
        job->rc = get_values(mean.bodies, feedback->mean, range.count);
    } else {
        job->rc = find_base(round, job, &mean, range, &base);
        if (job->rc == RC_OK && base == NULL) { /* the next owner may have one: we stay */
            audit_heard(round->options.audit, DATA_MEAN, range, round->own + range.first);
        }
        if (job->rc != RC_OK || base == NULL) return;
        job->rc = mean_of(round, &mean, job->told, job->slot, base, range);
    }
    if (job->rc == RC_OK) job->rc = round_judge(round, job, range, feedback->mean);
    if (job->rc != RC_OK) return;
    if (told.anchor != 0 && !is_in(&mean, job->slot)) {
        job->rc = take_back(round, told.body, told.body_bytes, range,
                            base != NULL ? base : round->own + range.first);
    }
    audit_heard(round->options.audit, DATA_MEAN, range, feedback->mean);
    if (job->rc == RC_OK) {
        job->rc = round->options.strategy->rule->agree(round->rule, range, feedback->mean);
    }
}

void round_feedback_decode(struct round *round, struct round_job *job, struct range range)
{
    if (job->chunk.kind == DATA_MEAN) {
        agree(round, job, range);
    } else {
        check_offer(round, job, range);
    }
}

/* On the loop: what came whole and may count is kept. */
void round_feedback_decoded(struct round *round, struct round_job *job)
{
    struct round_feedback *feedback = round->feedback;
    struct round_gathered **gathered = &feedback->gathered[job->chunk.chunk];
    size_t at = (size_t)(job->body - job->blob->bytes);
    size_t values = round_chunk_range(round, job->chunk.chunk).count;
    struct delta_mean mean;

    if (job->rc != RC_OK) return;
    if (job->chunk.kind == DATA_MEAN) {
        CHECK(delta_mean_parse(round->codec, job->body, job->body_count, values, job->slot,
                               &mean) == RC_OK);
        if (job->planes == 0) return;
        feedback->state[job->chunk.chunk] = blob_slice(
            job->blob, at + (size_t)(mean.state - job->body), job->planes * values * sizeof(float));
        if (feedback->state[job->chunk.chunk] == NULL) job->rc = RC_NOMEM;
        return;
    }
    CHECK(job->slot < GROUP_MEMBERS_MAX);
    if (*gathered == NULL) *gathered = mem_alloc(sizeof **gathered);
    if (*gathered == NULL) {
        job->rc = RC_NOMEM;
        return;
    }
    blob_unref((*gathered)->offers[job->slot]);
    (*gathered)->offers[job->slot] = blob_slice(job->blob, at, job->body_count);
    (*gathered)->far &= ~(UINT64_C(1) << job->slot);
    (*gathered)->far |= (uint64_t)job->is_far << job->slot;
    if ((*gathered)->offers[job->slot] == NULL) job->rc = RC_NOMEM;
}

/* ---- 9: part owners ---- */

void round_feedback_gather(struct round *round, struct round_job *job)
{
    job->gathered = round->feedback->gathered[job->first];
    round->feedback->gathered[job->first] = NULL;
    job->told = blob_ref(round->offer[job->first]);
}

/* Nobody has an anchor: the mean of models will be it. */
static enum rc reduce_whole(struct round *round, struct round_job *job, const struct delta_set *set,
                            struct range range)
{
    float *mean = round->feedback->mean;
    uint64_t members = 0;
    float count = 0;

    memset(mean, 0, range.count * sizeof *mean);
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        enum rc rc;

        if (set->offers[i] == NULL) continue;
        rc = get_values(set->offers[i]->body, round->scratch, range.count);
        if (rc != RC_OK) return rc;
        for (size_t k = 0; k < range.count; k++) {
            mean[k] += round->scratch[k];
        }
        members |= UINT64_C(1) << i;
        count++;
    }
    for (size_t k = 0; k < range.count; k++) {
        mean[k] /= count;
    }
    if (!floats_are_finite(mean, range.count)) return RC_NONFINITE;
    job->blob = delta_keep_whole(mean, range.count, members);
    return job->blob == NULL ? RC_NOMEM : RC_OK;
}

/* Of those who sent one; *has_mean: and we have what to take it from. */
static enum rc reduce_differences(struct round *round, struct round_job *job,
                                  const struct delta_set *set, struct range range, bool *has_mean)
{
    const float *planes[RULE_STATE_MAX], *state[RULE_STATE_MAX];
    size_t count = rule_planes(round, planes);
    struct delta_mean mean = {.members = set->members};
    struct blob *all;
    enum rc rc = RC_OK;

    for (size_t i = 0; i < count; i++) {
        state[i] = planes[i] + range.first;
    }
    job->blob = delta_keep(range.count, set, state, count);
    *has_mean = count > 0;
    if (job->blob == NULL) return RC_NOMEM;
    if (count == 0) return RC_OK;
    all = delta_for(range.count, job->blob, job->slot);
    if (all == NULL) return RC_NOMEM;
    mean.bodies = all->bytes + DELTA_MEAN_HEAD;
    rc = mean_of(round, &mean, job->told, job->slot, state[0], range);
    blob_unref(all); /* nobody else has seen it */
    if (rc == RC_OK && !is_in(&mean, job->slot)) {
        rc = take_back(round, job->told->bytes + DELTA_OFFER_HEAD,
                       job->told->count - DELTA_OFFER_HEAD, range, state[0]);
    }
    return rc;
}

void round_feedback_reduce(struct round *round, struct round_job *job)
{
    struct range range = round_chunk_range(round, job->first);
    struct delta_offer offers[GROUP_MEMBERS_MAX];
    struct delta_set set = {.members = 0};
    bool has_mean = true;

    CHECK(job->slot < GROUP_MEMBERS_MAX);
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        const struct blob *blob = i == job->slot          ? job->told
                                  : job->gathered != NULL ? job->gathered->offers[i]
                                                          : NULL;

        if (blob == NULL) continue;
        job->rc =
            delta_offer_parse(round->codec, blob->bytes, blob->count, range.count, &offers[i]);
        if (job->rc != RC_OK) return;
        /* Nobody has stepped in this round, or later: who says so would have the anchor that
         * counts. */
        if (offers[i].round >= job->number) offers[i].round = 0;
        set.offers[i] = &offers[i];
    }
    if (job->gathered != NULL) set.far = job->gathered->far;
    delta_choose(range.count, job->slot, &set);
    job->rc = set.is_whole ? reduce_whole(round, job, &set, range)
                           : reduce_differences(round, job, &set, range, &has_mean);
    if (job->rc != RC_OK) return;
    audit_reduced(round->options.audit, range,
                  has_mean ? round->feedback->mean : round->own + range.first);
    if (!has_mean) return;
    job->rc = round->options.strategy->rule->agree(round->rule, range, round->feedback->mean);
}

struct blob *round_feedback_for(struct round *round, uint32_t chunk, uint32_t member)
{
    struct blob *blob;

    if (round->mean[chunk] == NULL) return NULL;
    blob = delta_for(round_chunk_range(round, chunk).count, round->mean[chunk], member);
    if (blob == NULL) round->commands.is_short_of_memory = true;
    return blob;
}

/* ---- 9: settled ---- */

static void adopt_state(struct round *round, struct range range, const struct blob *state)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    const float *planes[RULE_STATE_MAX];
    size_t bytes = range.count * sizeof(float), count = rule_planes(round, planes);

    for (size_t i = 0; i < count && (i + 1) * bytes <= state->count; i++) {
        CHECK(get_values(state->bytes + i * bytes, round->feedback->base, range.count) ==
              RC_OK); /* it was when it came */
        rule->replace(round->rule, i, range, round->feedback->base);
    }
}

void round_feedback_settle(struct round *round, const uint8_t *bitmap)
{
    struct round_feedback *feedback = round->feedback;

    for (uint32_t chunk = 0; chunk < round->chunks; chunk++) {
        struct range range = round_chunk_range(round, chunk);

        if ((bitmap[chunk / 8] >> chunk % 8 & 1) == 0) continue;
        if (feedback->state[chunk] != NULL) adopt_state(round, range, feedback->state[chunk]);
        memcpy(feedback->residual + range.first, feedback->left + range.first,
               range.count * sizeof(float));
    }
}

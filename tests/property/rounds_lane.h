/* rounds_lane: the job lane of rounds.h: snapshots, absorption, means, settling, in order. */
#ifndef GRAPEVINE_TESTS_ROUNDS_LANE_H
#define GRAPEVINE_TESTS_ROUNDS_LANE_H

#include "tests/property/rounds.h"

static inline struct event *lane_submit(struct rounds *r, uint32_t index, enum lane_job job)
{
    struct round_peer *p = &r->peers[index];
    uint64_t start = p->lane_free_ns > r->now_ns ? p->lane_free_ns : r->now_ns;
    uint64_t took = 1 + rng_below(&r->rng, job == LANE_SNAPSHOT ? 30 * NS_PER_MS : NS_PER_MS);
    struct event *event = event_new(EVENT_JOB, index, start + took);

    p->lane_free_ns = start + took;
    event->job = job;
    event->epoch = p->life;
    event->generation = p->generation;
    rounds_push(r, event);
    return event;
}

static inline struct round_trace *trace_of(struct rounds *r, const struct round_key *key,
                                           uint32_t other)
{
    for (uint32_t i = 0; i < r->traces_count; i++) {
        struct round_trace *trace = &r->traces[i];

        if (trace->key.counter == key->counter && trace->other == other &&
            peer_id_is_equal(trace->key.initiator, key->initiator) &&
            boot_id_is_equal(trace->key.boot, key->boot)) {
            return trace;
        }
    }
    assert_true(r->traces_count < ROUND_KEYS_MAX);
    r->traces[r->traces_count].key = *key;
    r->traces[r->traces_count].other = other;
    return &r->traces[r->traces_count++];
}

/* It counts at this end; the two ends must be exact negatives of each other, where both
 * clip alike. */
static inline void rounds_note(struct rounds *r, uint32_t index, const struct round_key *key,
                               uint32_t other, const float *difference)
{
    struct round_trace *trace = trace_of(r, key, other);

    assert_true(trace->ends < 2); /* never twice at one end, or a third one */
    trace->peers[trace->ends] = index;
    if (trace->ends == 1) assert_int_not_equal(trace->peers[0], trace->peers[1]);
    trace->ends++;
    if (trace->difference == NULL) {
        trace->difference = malloc((r->values + 1) * sizeof(float));
        assert_non_null(trace->difference);
        memcpy(trace->difference, difference, r->values * sizeof(float));
        return;
    }
    for (size_t i = 0; i < r->values && r->is_even; i++) {
        check_seed(r->seed, trace->difference[i] == -difference[i]);
    }
}

/* The difference goes to the live model. */
static inline void rounds_apply(struct rounds *r, uint32_t index, const struct round_key *key,
                                const float *difference)
{
    struct round_peer *p = &r->peers[index];

    for (size_t i = 0; i < r->values; i++) {
        p->model[i] += difference[i];
    }
    p->committed++;
    if (!r->ops->is_group && !r->ops->is_graph) rounds_note(r, index, key, 0, difference);
}

static inline struct round_doubt *doubt_of(struct round_peer *p, const struct round_key *key)
{
    for (int i = 0; i < 4; i++) {
        struct round_doubt *doubt = &p->doubts[i];

        if (key == NULL ? !doubt->is_used
                        : doubt->is_used && doubt->key.counter == key->counter &&
                              peer_id_is_equal(doubt->key.initiator, key->initiator)) {
            return doubt;
        }
    }
    fail_msg("no such doubt");
    return NULL;
}

/* What an owner, in one of its lives, formed in a round lately. */
static inline struct digest *ledger_at(struct rounds *r, uint32_t owner, uint64_t life,
                                       uint64_t round, uint32_t chunk)
{
    size_t slot = (size_t)(round + 113 * life) % ROUND_LEDGER_SLOTS;

    return &r->ledger[((size_t)owner * ROUND_LEDGER_SLOTS + slot) * (r->chunks + 1) + chunk];
}

/* Committed chunks are what their owner formed, bit for bit. */
static inline void check_agreed(struct rounds *r, struct round_peer *p, const struct event *job)
{
    for (uint32_t c = 0; c < r->chunks; c++) {
        const struct digest *formed;

        if ((job->bytes[c / 8] >> c % 8 & 1) == 0) continue;
        formed = ledger_at(r, p->agreed_from[c], p->agreed_life[c], job->over.round, c);
        check_seed(r->seed, digest_is_equal(p->agreed[c], *formed));
    }
}

static inline void lane_snapshot(struct rounds *r, struct round_peer *p)
{
    struct rule_view view = {p->own, r->values};

    for (size_t i = 0; i < r->values && r->trains > 0; i++) {
        float was = p->model[i];

        p->model[i] += (float)(r->trains * rng_normal(&r->rng));
        p->local += (double)p->model[i] - (double)was;
    }
    memcpy(p->snapshot, p->model, r->values * sizeof(float));
    chunks_free(p->offers, r->chunks);
    chunks_free(p->means, r->chunks);
    chunks_free(p->partials, r->chunks);
    for (uint32_t c = 0; c < r->chunks; c++) {
        struct range range = chunk_range(r, c);
        size_t bytes = r->codec->ops->bytes_max(r->codec, range.count);

        p->offers[c] = malloc(bytes + 1);
        assert_non_null(p->offers[c]);
        r->codec->ops->encode(r->codec, 0, p->snapshot + range.first, range.count, p->offers[c]);
        assert_int_equal(
            r->codec->ops->decode(r->codec, p->offers[c], bytes, p->own + range.first, range.count),
            RC_OK);
    }
    rule_mean.begin(p->rule, &view);
}

/* A sum that is passed on: nothing is agreed yet. */
static inline enum rc lane_partial(struct rounds *r, struct round_peer *p, uint32_t c)
{
    struct range range = chunk_range(r, c);
    enum rc rc = rule_mean.reduce(p->rule, range, r->scratch);

    if (rc != RC_OK) return rc;
    assert_null(p->partials[c]);
    p->partials[c] = malloc(r->codec->ops->bytes_max(r->codec, range.count) + 1);
    assert_non_null(p->partials[c]);
    r->codec->ops->encode(r->codec, 0, r->scratch, range.count, p->partials[c]);
    return RC_OK;
}

static inline enum rc lane_reduce(struct rounds *r, struct round_peer *p, uint32_t index,
                                  uint64_t round, uint32_t c, struct digest *hash)
{
    struct range range = chunk_range(r, c);
    size_t bytes = r->codec->ops->bytes_max(r->codec, range.count);
    enum rc rc = rule_mean.reduce(p->rule, range, r->scratch);

    if (rc != RC_OK) return rc;
    assert_null(p->means[c]);
    p->means[c] = malloc(bytes + 1);
    assert_non_null(p->means[c]);
    r->codec->ops->encode(r->codec, 0, r->scratch, range.count, p->means[c]);
    *hash = hash_of(p->means[c], bytes);
    assert_int_equal(r->codec->ops->decode(r->codec, p->means[c], bytes, r->scratch, range.count),
                     RC_OK);
    p->agreed[c] = *hash;
    p->agreed_from[c] = index;
    p->agreed_life[c] = p->life;
    *ledger_at(r, index, p->life, round, c) = *hash;
    return rule_mean.agree(p->rule, range, r->scratch);
}

static inline enum rc lane_check(struct rounds *r, struct round_peer *p, const struct event *job,
                                 struct digest *hash, float *distance)
{
    struct range range = chunk_range(r, job->chunk.chunk);
    enum rc rc =
        r->codec->ops->decode(r->codec, job->bytes, job->bytes_count, r->scratch, range.count);

    if (rc != RC_OK) return rc;
    if (r->ops->is_group) *hash = hash_of(job->bytes, job->bytes_count);
    if (job->chunk.kind == DATA_MEAN) {
        p->agreed[job->chunk.chunk] = *hash;
        p->agreed_from[job->chunk.chunk] = job->from; /* who brings it may not be its owner */
        p->agreed_life[job->chunk.chunk] = job->first;
        if (job->is_partial) {
            assert_null(p->means[job->chunk.chunk]);
            p->means[job->chunk.chunk] = malloc(job->bytes_count + 1);
            assert_non_null(p->means[job->chunk.chunk]);
            memcpy(p->means[job->chunk.chunk], job->bytes, job->bytes_count);
        }
        return rule_mean.agree(p->rule, range, r->scratch);
    }
    if (r->ops->is_graph) {
        return rule_mean.stage(p->rule, job->edge.slot, range, r->scratch, distance);
    }
    rc = rule_mean.absorb(p->rule, range, job->weight, r->scratch);
    if (rc == RC_OK) *distance = rule_mean.squared_distance(p->rule, range);
    return rc;
}

static inline void rounds_obey(struct rounds *r, uint32_t index);

static inline void lane_settle(struct rounds *r, uint32_t index, const struct event *job)
{
    struct round_peer *p = &r->peers[index];
    struct round_doubt *doubt;

    p->is_settling = false;
    if (r->ops->is_group) check_agreed(r, p, job);
    rule_mean.settle(p->rule, job->bytes, ROUND_CHUNK, job->over.scale, p->difference);
    if (job->over.result == OVER_COMMITTED) {
        rounds_apply(r, index, &job->over.key, p->difference);
        return;
    }
    doubt = doubt_of(p, NULL);
    doubt->is_used = true;
    doubt->key = job->over.key;
    doubt->difference = malloc((r->values + 1) * sizeof(float));
    assert_non_null(doubt->difference);
    memcpy(doubt->difference, p->difference, r->values * sizeof(float));
}

/* A neighbour's plane counts, or is kept until it is known whether it does. */
static inline void lane_edge(struct rounds *r, uint32_t index, const struct event *job)
{
    struct round_peer *p = &r->peers[index];
    bool is_decider = peer_id_is_equal(job->edge.key.initiator, p->id);
    float *difference = malloc((r->values + 1) * sizeof(float));

    assert_non_null(difference);
    rule_mean.keep(p->rule, job->edge.slot, job->edge.weight, difference);
    if (job->edge.is_in_doubt) {
        struct round_doubt *doubt = doubt_of(p, NULL);

        doubt->is_used = true;
        doubt->key = job->edge.key;
        doubt->difference = difference;
        return;
    }
    rounds_note(r, index, &job->edge.key, is_decider ? job->from : index, difference);
    rule_mean.take(p->rule, job->edge.slot, job->edge.weight);
    free(difference);
}

static inline void lane_late(struct rounds *r, uint32_t index, const struct event *job)
{
    struct round_doubt *doubt = doubt_of(&r->peers[index], &job->over.key);

    if (job->over.result == OVER_COMMITTED) {
        rule_commit_late(doubt->difference, r->values, job->bytes, ROUND_CHUNK, job->over.scale);
        rounds_apply(r, index, &job->over.key, doubt->difference);
        if (r->ops->is_graph) rounds_note(r, index, &job->over.key, index, doubt->difference);
    }
    free(doubt->difference);
    memset(doubt, 0, sizeof *doubt);
}

static inline void rounds_job(struct rounds *r, const struct event *job)
{
    struct round_peer *p = &r->peers[job->to];
    struct digest hash = {{0}};
    float distance = 0;
    enum rc rc = RC_OK;

    switch (job->job) {
    case LANE_SNAPSHOT:
        lane_snapshot(r, p);
        if (job->generation != p->generation) return;
        r->ops->on_job_done(p->exchange, JOB_SNAPSHOT, 0, RC_OK, hash, r->now_ns, &r->commands);
        break;
    case LANE_OWN:
        for (uint32_t c = job->first; c < job->first + job->count; c++) {
            struct range range = chunk_range(r, c);

            if (rc == RC_OK) rc = rule_mean.absorb(p->rule, range, 1, p->own + range.first);
        }
        if (job->generation != p->generation) return;
        r->ops->on_job_done(p->exchange, JOB_ABSORB_OWN, job->first, rc, hash, r->now_ns,
                            &r->commands);
        break;
    case LANE_REDUCE:
        rc = job->is_partial ? lane_partial(r, p, job->first)
                             : lane_reduce(r, p, job->to, job->over.round, job->first, &hash);
        if (job->generation != p->generation) return;
        r->ops->on_job_done(p->exchange, JOB_REDUCE, job->first, rc, hash, r->now_ns, &r->commands);
        break;
    case LANE_CHECK:
        rc = lane_check(r, p, job, &hash, &distance);
        if (job->generation != p->generation) return;
        r->ops->on_chunk_checked(p->exchange, &job->chunk, rc, hash, distance, r->now_ns,
                                 &r->commands);
        break;
    case LANE_EDGE:
        lane_edge(r, job->to, job);
        return;
    case LANE_SETTLE:
        lane_settle(r, job->to, job);
        return;
    case LANE_CANCEL:
        rule_mean.cancel(p->rule);
        return;
    case LANE_LATE:
        lane_late(r, job->to, job);
        return;
    }
    rounds_obey(r, job->to);
}

#endif

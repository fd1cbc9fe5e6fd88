/*
 * The round is over: what was committed is settled in the lane, at once or, where the other end's
 * word is not there yet, when that comes. Then there is a difference, or none, and the next may
 * begin.
 */
#include "peer/round/internal.h"

#include "base/check.h"
#include "base/crash_point.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Everything that was exchanged counts. */
static bool is_full(const uint8_t *bitmap, uint32_t chunks)
{
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        if ((bitmap[chunk / 8] >> (chunk % 8) & 1) == 0) return false;
    }
    return true;
}

static void settle(struct round *round, const struct command_over *over, struct round_doubt *doubt)
{
    struct round_job *job = round_job_promised(round, WORK_SETTLE, round->layout.values);

    if (job == NULL) { /* nothing is applied: as if the round had been cut */
        log_warn(round->options.log, "averaging round aborted: out of memory");
        if (doubt != NULL) round_doubt_clear(round, doubt); /* it holds no difference */
        round->phase = PHASE_IDLE;
        return;
    }
    round_bitmap_take(round, over, round->settled);
    round->is_settling_whole = !round->has_refused && is_full(round->settled, round->chunks);
    job->bitmap = round->settled;
    job->scale = over->scale;
    job->key = over->key;
    job->number = over->round;
    job->sent = over->sent;
    job->members = over->members > 0 ? over->members : 1;
    job->keeps_agreed = round->copies_agreed && !round->has_refused && round_wants_agreed(round);
    job->to = doubt != NULL ? doubt->difference : round->difference;
    job->doubt = doubt;
    if (doubt != NULL) doubt->is_settling = true;
    round->phase = PHASE_SETTLING;
    round_settle_submit(round, job);
}

static void cancel(struct round *round)
{
    struct round_job *job = round_job_create(round, WORK_CANCEL, 1);

    if (job != NULL) round_job_submit(round, job); /* without it the next begin does the same */
}

static void round_cleared(struct round *round)
{
    round->generation++;
    round->is_snapshot_wanted = false;
    round_blobs_clear(round->mean, round->chunks);
    round_blobs_clear(round->partial, round->chunks);
    round_blobs_clear(round->whole, round->chunks);
    if (round->phase != PHASE_SNAPSHOT) round_keep_offers(round);
    round_jobs_clear(&round->held);
}

static const char *failure_of(const struct command_over *over)
{
    if (over->result == OVER_COMMITTED) return NULL;
    if (over->result == OVER_IN_DOUBT) return "its outcome is not known yet";
    return over->reason != NULL ? over->reason : "given up";
}

static const enum crash_point over_points[] = {[OVER_COMMITTED] = CRASH_ROUND_COMMITTED,
                                               [OVER_ABORTED] = CRASH_ROUND_ABORTED,
                                               [OVER_IN_DOUBT] = CRASH_PAIR_IN_DOUBT};

/* A share left, and nothing came in. */
static bool moves_nothing(const struct round *round, const struct command_over *over)
{
    return over->scale == 0 && (over->sent == 0 || round->codec->traits.is_lossless) &&
           round->options.strategy->rule->keeps_weight; /* else it may be clipped to nothing */
}

void round_over(struct round *round, const struct command_over *over)
{
    bool had_snapshot = round->phase == PHASE_RUNNING;
    bool had_stream = round->has_stream;
    struct round_doubt *doubt;

    if (over->is_late) {
        round_doubt_over(round, over);
        return;
    }
    round_trace_over(round, over);
    round->has_taken = false; /* it is settled next, or with it nothing counts */
    crash_point(over_points[over->result]);
    recorder_add(&round->recorder,
                 (struct round_record){
                     .ended_ns = round_now(round),
                     .length_ns = round_now(round) - round->begun_ns,
                     .members = over->result == OVER_COMMITTED ? over->members
                                                               : round->failures.partners_count + 1,
                     .reason = failure_of(over),
                 });
    failures_round_over(&round->failures, failure_of(over), round_now(round));
    round_cleared(round);
    round->has_stream = false; /* what a committed round queued is still owed to the slower ones */
    if (had_stream && (over->result == OVER_ABORTED || over->drops_queued)) {
        links_drop_bulk(round->options.links, DATA_OFFER, round->stream);
        links_drop_bulk(round->options.links, DATA_FULL, round->stream);
        links_drop_bulk(round->options.links, DATA_MEAN, round->stream);
    }
    if (over->result == OVER_COMMITTED) round->stats.last_members = over->members;
    if (over->result == OVER_COMMITTED && had_snapshot) {
        round->settling_round = over->round;
        round->stats.last_ns = round_now(round) - round->begun_ns;
        if (!moves_nothing(round, over)) {
            settle(round, over, NULL);
            return;
        }
    }
    if (over->result == OVER_ABORTED) {
        log_debug(round->options.log, "round aborted: %s",
                  over->reason == NULL ? "no reason given" : over->reason);
    }
    doubt =
        over->result == OVER_IN_DOUBT && had_snapshot ? round_doubt_add(round, &over->key) : NULL;
    if (doubt != NULL) {
        if (round_meets(round, DATA_OFFER)) doubt->weight = round->likely_scale;
        settle(round, over, doubt);
    } else if (had_snapshot) {
        round->phase = PHASE_IDLE;
        cancel(round);
    }
}

/* The device has failed: training will not go on either. */
static void not_settled(struct round *round, enum rc rc)
{
    log_warn(round->options.log, "a round's result did not reach the device: %s", rc_text(rc));
}

/* Without memory for it there is none. */
static void keep_last(struct round *round, struct round_job *job)
{
    const size_t bytes = round->options.values * sizeof(float);

    if (!round->options.keeps_last) return;
    if (round->last == NULL) round->last = mem_aligned(bytes);
    round->last_round = 0;
    if (round->last == NULL || job->agreed == NULL) return;
    memcpy(round->last, job->agreed, bytes);
    round->last_round = round->settling_round;
}

const float *round_last_agreed(const struct round *round, uint64_t number)
{
    return number > 0 && round->last_round == number ? round->last : NULL;
}

void round_settle_done(struct round *round, struct round_job *job)
{
    CHECK(round->phase == PHASE_SETTLING);
    round_feedback_clear(round);
    if (job->doubt != NULL) {
        job->doubt->is_settling = false;
        if (job->doubt->is_dropped) round_doubt_clear(round, job->doubt);
    }
    if (job->doubt != NULL || round->is_discarding || job->rc != RC_OK) {
        if (job->rc != RC_OK) not_settled(round, job->rc);
        round->is_discarding = false;
        round->phase = PHASE_IDLE;
        return;
    }
    keep_last(round, job);
    if (job->agreed != NULL && round_wants_fresh(round)) {
        mem_free(round->agreed);
        round->agreed = job->agreed;
        round->agreed_round = round->settling_round;
        job->agreed = NULL;
    }
    round->stats.distance = sqrt(job->squared * round_part_scale(round));
    round->stats.has_distance = true;
    if (!round->has_refused) {
        round->has_settled = true;
        round->parts[round->mask.part].has_settled = true;
        round->parts[round->mask.part].agreed_step = round->step;
    }
    round->settled_step = round->step;
    if (round->ramp < ROUND_RAMP) round_set_ramp(round, round->ramp + 1);
    round->phase = PHASE_READY;
    crash_point(CRASH_ROUND_SETTLED);
}

void round_doubt_done(struct round *round, struct round_job *job)
{
    CHECK(round->phase == PHASE_SETTLING);
    crash_point(CRASH_PAIR_DOUBT_SETTLED);
    round_doubt_clear(round, job->doubt);
    if (job->rc != RC_OK) not_settled(round, job->rc);
    round->phase = round->is_discarding || job->rc != RC_OK ? PHASE_IDLE : PHASE_READY;
    round->is_discarding = false;
}

void round_resolve_doubts(struct round *round)
{
    for (int i = 0; i < ROUND_DOUBTS_MAX && round->phase == PHASE_IDLE; i++) {
        struct round_job *job;

        if (!round->doubts[i].is_used || !round->doubts[i].is_resolved) continue;
        if (round->doubts[i].is_settling) continue; /* its end brings us back */
        job = round_job_create(round, WORK_DOUBT, round->doubts[i].layout.values);
        if (job == NULL) return; /* tried again at the next event */
        job->doubt = &round->doubts[i];
        job->doubt->is_settling = true;
        job->is_current = job->doubt->replaced == round->replaced;
        round->phase = PHASE_SETTLING;
        round_settle_submit(round, job); /* the rule's state may change with it */
    }
}

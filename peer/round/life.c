/*
 * Around the journey of round.c: a round's memory, the plumbing of its jobs
 * and what the exchange is told from outside. Nothing here looks at a value. Loop thread.
 */
#include "peer/round/internal.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { COST_NS_PER_KILOVALUE = 1000 };
/* With the longest rule and its settings the method fits what messages have for it. */
enum { CODEC_SHORT_BYTES = 10 };
/* What one event makes an exchange say, until it has said what counts; more is asked for then. */
enum { COMMANDS = 32, COMMANDS_EACH = 4 };

uint64_t round_now(const struct round *round)
{
    return round->options.env->ops->now_ns(round->options.env);
}

struct range round_chunk_range(const struct round *round, uint32_t chunk)
{
    size_t most = round->layout.chunk_values, first = (size_t)chunk * most;
    size_t left = round->layout.values - first;

    CHECK(first < round->layout.values);
    return (struct range){first, left < most ? left : most};
}

static void drop_adopted(struct round *round)
{
    for (size_t i = 0; i < RULE_STATE_MAX; i++) {
        mem_free(round->adopted[i]);
        round->adopted[i] = NULL;
    }
}

/* ---- life ---- */

/* float32 travels as little-endian words. */
bool round_offers_snapshot(const struct round *round)
{
    return round->codec->ops->format == CODEC_F32 && round->options.snapshot == NULL &&
           !round->ops->has_mirrors && !round->options.strategy->has_feedback &&
           __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
}

bool round_plane_renew(struct round *round)
{
    struct blob *plane = blob_aligned(round->capacity * sizeof(float));

    if (plane == NULL) return false;
    blob_unref(round->plane);
    round->plane = plane;
    round->snapshot = (float *)(void *)plane->bytes;
    if (round->options.strategy->has_feedback ||
        (round->codec->traits.is_lossless && !round->ops->has_mirrors)) {
        round->own = round->snapshot;
    }
    return true;
}

/* What a round carries, or when momentum moves (of a rule for which rounds carry all of the model):
 * where that is unlike, so is this. */
static float part_number(const struct strategy *strategy)
{
    if (strategy->rule_settings.delay > 0) return (float)strategy->rule_settings.delay;
    if (strategy->fragments > 0) return (float)strategy->fragments;
    if (strategy->slots > 0) return -(float)strategy->slots;
    return 0.5f + (float)strategy->first_rounds + 1024 * (float)strategy->second_rounds;
}

/* Rate, momentum and pull of a step that several take together, and what a round carries, in four
 * digits of base 64: with unlike ones their anchors would part in every round, though each did as
 * it was told. "": it is a plain mean of all. */
static void settings_print(const struct strategy *strategy, char text[8])
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    const struct rule_settings *settings = &strategy->rule_settings;
    const bool is_by_share = settings->share > 0 && !settings->has_momentum;
    const bool is_part = strategy_has_masks(strategy) || settings->delay > 0;
    const bool is_step = strategy_steps(strategy);
    const float steps[] = {is_by_share ? 0 : settings->rate, settings->share,
                           settings->has_momentum ? settings->momentum : -1, part_number(strategy)};
    uint8_t bytes[sizeof steps];
    struct digest digest;
    uint32_t bits;

    text[0] = '\0';
    if (!is_step && !is_part) return;
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        store_le_float(bytes + 4 * i, steps[i]);
    }
    /* The last one only where there is one: who knows nothing of it says the same without. */
    digest = hash_of(bytes, is_part ? sizeof bytes : sizeof bytes - sizeof(float));
    bits = load_le32(digest.bytes);
    snprintf(text, 8, "/%c%c%c%c", digits[bits & 63], digits[bits >> 6 & 63],
             digits[bits >> 12 & 63], digits[bits >> 18 & 63]);
}

/* '.' after the codec: means are hashed with hash_wide(), and not at all where they come from their
 * owner; peers of versions that hashed in another way say ':', ';' or nothing there. */
void round_method(const struct strategy *strategy, const char *moments,
                  char text[ROUND_METHOD_BYTES])
{
    const char *rule = strategy->tracks ? "tracking" : strategy->rule->name;
    bool is_mean = strategy->rule == &rule_mean && !strategy->tracks;
    char settings[8], codec[CODEC_SHORT_BYTES];
    int count;

    if (moments == NULL) moments = "";
    settings_print(strategy, settings);
    codec_short_name(&strategy->codec, codec, sizeof codec);
    count = snprintf(text, ROUND_METHOD_BYTES, "%s%c%s%s%s%s", codec,
                     strategy->has_feedback ? '+' : '.', is_mean ? "" : rule, settings,
                     moments[0] == '\0' ? "" : ";", moments);
    CHECK(count > 0 && count < ROUND_METHOD_BYTES);
}

/* What a promise needs that is small, for good. */
static bool allocate_promised(struct round *round)
{
    size_t bytes = (round->chunks + 7) / 8;

    round->settled = mem_alloc(bytes);
    if (round->settled == NULL) return false;
    for (int i = 0; i < ROUND_DOUBTS_MAX; i++) {
        round->doubts[i].bitmap = mem_alloc(bytes);
        if (round->doubts[i].bitmap == NULL) return false;
    }
    return commands_reserve(&round->commands, COMMANDS + COMMANDS_EACH * round->ops->promises_max);
}

/* Of each part, with what is usual of it. */
static bool create_gates(struct round *round)
{
    const struct strategy *strategy = round->options.strategy;

    for (uint32_t i = 0; i < round->parts_count; i++) {
        struct robust *robust = robust_create(round->chunks, strategy->clips);

        round->parts[i].robust = robust;
        if (robust == NULL) return false;
        if (strategy->tracks) robust_set_trackers(robust, round->options.model);
        robust_set_distributions(robust, round->options.outputs);
    }
    round_part_choose(round, &(struct round_key){.counter = 0});
    return true;
}

static bool round_allocate(struct round *round)
{
    size_t bytes = round->capacity * sizeof(float);
    const struct strategy *strategy = round->options.strategy;
    struct rule_settings settings = strategy->rule_settings;
    struct exchange_options options = {
        .self = round->options.self,
        .boot = round->options.boot,
        .schema = round->options.schema,
        .chunks = round->chunks,
        .alpha = &round->alpha,
        .has_memory = strategy->rule->sums_to_zero || strategy->tracks,
        .mirror = round->ops->has_mirrors ? &round->mirror_before : NULL,
        .clips = strategy->clips,
        .bounds = &round->bounds,
        .schedule = strategy->schedule,
        .is_patient = strategy_is_patient(strategy),
        .quorum = strategy->quorum,
        .is_busy = &round->is_busy,
        .goes_on = !strategy->waits,
        .may_relay = strategy_may_relay(strategy),
        .chunk_bytes = (uint32_t)strategy->codec.ops->bytes_max(
            &strategy->codec, round->capacity < CHUNK_VALUES ? round->capacity : CHUNK_VALUES),
        .rate_max = round->options.rate_max,
        .standing = round->options.standing,
        .credit = round->options.credit,
        .line = round->options.line,
        .answer_ns = round->options.answer_ns,
        .context = round->options.context};

    round_method(strategy, round->options.moments, options.codec);
    round->exchange = round->ops->create(&options);
    settings.memory = round->options.parameters;
    settings.stepped = round->options.masks != NULL ? 0 : round->options.model;
    round->rule = strategy->rule->create(round->capacity, &settings);
    (void)round_plane_renew(round);
    if (round_keeps_own(round) && round->own == NULL) round->own = mem_aligned(bytes);
    if (round_keeps_centre(round)) round->centre = mem_aligned(bytes);
    round->told = mem_aligned(CHUNK_VALUES * sizeof(float));
    round->difference = mem_aligned(bytes);
    round->squares = mem_array(round->chunks, sizeof(double));
    if (!round_part_create(round) || !create_gates(round)) return false;
    round->scratch = mem_aligned(CHUNK_VALUES * sizeof(float));
    if (!allocate_promised(round)) return false;
    round->offer = mem_array(round->chunks, sizeof(struct blob *));
    round->mean = mem_array(round->chunks, sizeof(struct blob *));
    round->partial = mem_array(round->chunks, sizeof(struct blob *));
    round->spare = mem_array(round->chunks, sizeof(struct blob *));
    return round_guard_allocate(round) && round_mirror_allocate(round) &&
           round_feedback_allocate(round) && round->exchange != NULL && round->rule != NULL &&
           round->snapshot != NULL && (round->own != NULL || !round_keeps_own(round)) &&
           (round->centre != NULL || !round_keeps_centre(round)) && round->told != NULL &&
           round->squares != NULL && round->difference != NULL && round->scratch != NULL &&
           round->offer != NULL && round->mean != NULL && round->partial != NULL &&
           round->spare != NULL;
}

struct round *round_create(const struct round_options *options)
{
    struct round *round = mem_alloc(sizeof *round);

    if (round == NULL) return NULL;
    CHECK(options->strategy->is_averaging && options->values > 0);
    CHECK(options->parameters <= options->values);
    CHECK(options->strategy->rule->prepare == NULL || options->snapshot == NULL);
    round->options = *options;
    round->codec = &options->strategy->codec;
    round->ops = options->strategy->exchange;
    round->chunks = (uint32_t)((options->values + CHUNK_VALUES - 1) / CHUNK_VALUES);
    round->capacity = options->values;
    if (options->masks != NULL) {
        round->chunks = masks_chunks(options->masks);
        round->capacity = masks_values(options->masks);
    }
    round->ramp = ROUND_RAMP;
    round->partners = 1;
    round->alpha = ROUND_ALPHA;
    round->likely_scale = 1;
    TAILQ_INIT(&round->jobs);
    TAILQ_INIT(&round->held);
    TAILQ_INIT(&round->reserve.jobs);
    commands_init(&round->commands);
    if (!round_allocate(round)) {
        round_destroy(round);
        return NULL;
    }
    return round;
}

void round_blobs_clear(struct blob **blobs, uint32_t count)
{
    for (uint32_t i = 0; blobs != NULL && i < count; i++) {
        blob_unref(blobs[i]);
        blobs[i] = NULL;
    }
}

void round_job_free(struct round_job *job)
{
    blob_unref(job->blob);
    blob_unref(job->told);
    round_gathered_free(job->gathered);
    mem_free(job->agreed);
    for (size_t i = 0; i < RULE_STATE_MAX; i++) {
        mem_free(job->adopted[i]);
    }
    mem_free(job);
}

void round_jobs_clear(struct round_jobs_list *jobs)
{
    struct round_job *job;

    while ((job = TAILQ_FIRST(jobs)) != NULL) {
        TAILQ_REMOVE(jobs, job, siblings);
        round_job_free(job);
    }
}

void round_destroy(struct round *round)
{
    if (round == NULL) return;
    round_jobs_clear(&round->jobs);
    round_jobs_clear(&round->held);
    if (round->deferred != NULL) round_job_free(round->deferred);
    for (int i = 0; i < ROUND_DOUBTS_MAX; i++) {
        round_doubt_clear(round, &round->doubts[i]);
        mem_free(round->doubts[i].bitmap);
    }
    round_held_deinit(round);
    round_reserve_deinit(round);
    round_blobs_clear(round->offer, round->chunks);
    round_blobs_clear(round->mean, round->chunks);
    round_blobs_clear(round->partial, round->chunks);
    round_blobs_clear(round->spare, round->chunks);
    commands_deinit(&round->commands);
    if (round->exchange != NULL) round->ops->destroy(round->exchange);
    if (round->rule != NULL) round->options.strategy->rule->destroy(round->rule);
    if (round->own != round->snapshot) mem_free(round->own);
    blob_unref(round->plane);
    mem_free(round->centre);
    mem_free(round->difference);
    mem_free(round->agreed);
    mem_free(round->last);
    drop_adopted(round);
    round_mirror_deinit(round);
    round_feedback_deinit(round);
    round_part_destroy(round);
    gather_destroy(round->gather);
    mem_free(round->scratch);
    mem_free(round->told);
    mem_free(round->squares);
    mem_free(round->settled);
    mem_free(round->offer);
    mem_free(round->mean);
    mem_free(round->partial);
    mem_free(round->spare);
    mem_free(round);
}

/* ---- jobs ---- */

struct round_job *round_job_create(struct round *round, enum round_work work, size_t values)
{
    struct round_job *job = mem_alloc(sizeof *job);

    if (job != NULL) round_job_init(round, job, work, values);
    return job;
}

void round_job_init(struct round *round, struct round_job *job, enum round_work work, size_t values)
{
    uint64_t per_kilo = round->options.cost_ns_per_value * 1000;

    if (per_kilo == 0) per_kilo = COST_NS_PER_KILOVALUE;
    job->round = round;
    job->work = work;
    job->generation = round->generation;
    job->job.run = round_job_run;
    job->job.done = round_job_done;
    job->job.cost_ns = values * per_kilo / 1000 + 1;
}

static const char *const work_names[] = {
    [WORK_ENCODE] = "encode",    [WORK_DECODE] = "decode", [WORK_OWN] = "absorb own",
    [WORK_REDUCE] = "reduce",    [WORK_EDGE] = "merge",    [WORK_SETTLE] = "settle",
    [WORK_CANCEL] = "cancel",    [WORK_DOUBT] = "settle",  [WORK_HOLD] = "hold",
    [WORK_ABSORB_HELD] = "merge"};

void round_job_submit(struct round *round, struct round_job *job)
{
    job->job.name = work_names[job->work];
    if (job->work == WORK_DECODE) job->job.partner = trace_partner(job->chunk.from);
    TAILQ_INSERT_TAIL(&round->jobs, job, siblings);
    round->jobs_count++;
    round->options.env->ops->submit(round->options.env, LANE_EXCHANGE, &job->job);
}

/* ---- what happens to a round from outside ---- */

MUST_USE enum rc round_begin(struct round *round, const struct round_members *members,
                             uint64_t samples)
{
    struct round_members all = *members;
    bool was_active;
    enum rc rc;

    if (!round_may_begin(round)) return RC_BUSY;
    round->partners = members->count;
    was_active = exchange_is_active(round->exchange);
    all.begins_anew = round->begins_anew;
    rc = round->ops->begin(round->exchange, &all, samples, round_now(round), &round->commands);
    if (rc == RC_OK) {
        round->begins_anew = false;
        if (!was_active) round->begun_ns = round_now(round);
        if (round->ops->promises_max == 1) failures_partner(&round->failures, members->ids[0]);
    }
    round_obey(round);
    return rc;
}

void round_cancel(struct round *round, const char *reason)
{
    round->ops->cancel(round->exchange, reason, round_now(round), &round->commands);
    round_obey(round);
}

void round_restart(struct round *round)
{
    round->begins_anew = true;
}

void round_discard(struct round *round)
{
    round_cancel(round, "the model was replaced");
    round_restart(round);
    for (int i = 0; i < ROUND_DOUBTS_MAX; i++) {
        if (round->doubts[i].is_used) round_doubt_drop(round, &round->doubts[i]);
    }
    if (round->phase == PHASE_READY) round->phase = PHASE_IDLE;
    round->is_discarding = round->phase == PHASE_SETTLING;
    round->replaced++;
    round->has_settled = false;
    for (uint32_t i = 0; i < round->parts_count; i++) {
        round->parts[i].has_settled = false;
    }
    drop_adopted(round);
    mem_free(round->agreed);
    round->agreed = NULL;
}

struct credit_use round_credit_use(const struct round *round)
{
    uint32_t chunks = 0, streams = 0;

    round->ops->allowed(round->exchange, &chunks, &streams);
    return (struct credit_use){(uint64_t)chunks * strategy_chunk_bytes(round->options.strategy),
                               streams};
}

/* ---- what outlives rounds ---- */

void round_hold(struct round *round, bool is_held)
{
    struct round_job *job = round->deferred;

    round->is_held = is_held;
    if (!is_held) round_held_sweep(round);
    if (is_held || job == NULL) return;
    round->deferred = NULL;
    round_job_submit(round, job);
}

void round_settle_submit(struct round *round, struct round_job *job)
{
    if (round->is_held) {
        CHECK(round->deferred == NULL); /* one settles at a time */
        round->deferred = job;
    } else {
        round_job_submit(round, job);
    }
}

size_t round_rule_state(const struct round *round, const float *planes[RULE_STATE_MAX])
{
    if (round->replaced != round->forgotten) return 0;
    return round_part_state(round, planes);
}

void round_set_ramp(struct round *round, uint32_t rounds)
{
    if (!round->ops->is_of_two || strategy_steps(round->options.strategy)) return;
    round->ramp = rounds;
    round->alpha = ROUND_ALPHA * (float)(rounds + 1) / (float)(ROUND_RAMP + 1);
}

void round_begin_ramp(struct round *round)
{
    round_set_ramp(round, 0);
}

void round_rule_adopt(struct round *round, float *const *planes, size_t count, size_t values)
{
    CHECK(count <= RULE_STATE_MAX);
    drop_adopted(round);
    for (size_t i = 0; i < count; i++) {
        round->adopted[i] = planes[i];
    }
    if (values != round->options.values) drop_adopted(round); /* it would be read past its end */
}

void round_rule_adopt_now(struct round *round)
{
    CHECK(round->phase == PHASE_IDLE && TAILQ_EMPTY(&round->jobs));
    round_rule_begin_anew(round, round->adopted);
    round->forgotten = round->replaced;
    drop_adopted(round);
}

MUST_USE enum rc round_rule_restore(struct round *round, const float *const *planes, size_t count)
{
    return round_part_restore(round, planes, count);
}

void round_keep_agreed(struct round *round, bool wants, uint64_t until)
{
    round->wants_agreed = wants;
    round->agreed_until = until;
    if (wants) return;
    mem_free(round->agreed);
    round->agreed = NULL;
}

float *round_take_agreed(struct round *round, uint64_t least, uint64_t *number)
{
    float *agreed = round->agreed;

    if (agreed == NULL || round->agreed_round < least) return NULL;
    *number = round->agreed_round;
    round->agreed = NULL;
    return agreed;
}

uint64_t round_restarts(const struct round *round)
{
    return round->replaced;
}

bool round_is_settling(const struct round *round)
{
    return round->phase == PHASE_SETTLING || round->has_taken;
}

bool round_is_active(const struct round *round)
{
    return round->phase != PHASE_IDLE || round->is_snapshot_wanted ||
           exchange_is_active(round->exchange);
}

bool round_is_forming(const struct round *round)
{
    if (!round->ops->has_mean || round->phase == PHASE_RUNNING) return false;
    return round->ops->state(round->exchange) == EXCHANGE_RUNS;
}

bool round_is_invited(const struct round *round)
{
    struct exchange_counts counts;

    if (!round_may_begin(round)) return false;
    round->ops->counts(round->exchange, &counts);
    return round_now(round) <= counts.invited_until_ns;
}

struct peer_id round_inviter(const struct round *round)
{
    struct exchange_counts counts;

    round->ops->counts(round->exchange, &counts);
    return counts.inviter;
}

bool round_has_started(const struct round *round)
{
    return round->is_snapshot_wanted;
}

void round_set_busy(struct round *round, bool is_busy)
{
    round->is_busy = is_busy;
    if (is_busy) round_tick(round);
}

bool round_may_begin(const struct round *round)
{
    bool is_idle = round->phase == PHASE_IDLE && !round->is_snapshot_wanted;
    bool is_settled = round->phase == PHASE_SETTLING || round->phase == PHASE_READY;

    switch (round->ops->state(round->exchange)) {
    case EXCHANGE_IDLE:
        return is_idle;
    case EXCHANGE_OPEN:
        return !is_settled;
    default:
        return false;
    }
}

bool round_has_snapshot(const struct round *round)
{
    return round->phase != PHASE_IDLE;
}

void round_set_lineage(struct round *round, struct digest lineage)
{
    round->ops->set_lineage(round->exchange, lineage, &round->commands);
    round_obey(round);
}

void round_set_number(struct round *round, uint64_t number)
{
    if (round->ops->set_round != NULL) round->ops->set_round(round->exchange, number);
}

void round_on_message(struct round *round, struct peer_id from, const struct message *message)
{
    struct link_view link;
    enum rc rc;

    if (!links_peer(round->options.links, from, &link)) return;
    rc = round->ops->on_message(round->exchange, from, link.boot, message, round_now(round),
                                &round->commands);
    if (rc != RC_OK) {
        log_debug(round->options.log, "%s refused: %s", message_type_name(message->type),
                  rc_text(rc));
    }
    round_obey(round);
}

void round_on_link_up(struct round *round, struct peer_id peer, struct boot_id boot)
{
    round->ops->on_link_up(round->exchange, peer, boot, round_now(round), &round->commands);
    round_obey(round);
}

void round_on_link_lost(struct round *round, struct peer_id peer)
{
    failures_link_lost(&round->failures, peer, round_now(round));
    round->ops->on_link_lost(round->exchange, peer, round_now(round), &round->commands);
    round_obey(round);
}

void round_tick(struct round *round)
{
    round->ops->tick(round->exchange, round_now(round), &round->commands);
    round_obey(round);
}

uint64_t round_next_ns(const struct round *round)
{
    return round->ops->next_ns(round->exchange);
}

uint32_t round_jobs(const struct round *round)
{
    return round->jobs_count;
}

void round_stats(const struct round *round, struct round_stats *stats)
{
    *stats = round->stats;
    round->ops->counts(round->exchange, &stats->counts);
    if (round->gather != NULL || !round->options.strategy->clips) return;
    stats->guard.judged += stats->counts.judged;
    stats->guard.reduced += stats->counts.clipped;
}

const struct recorder *round_recorder(const struct round *round)
{
    return &round->recorder;
}

const char *round_last_failure(const struct round *round, struct peer_id peer)
{
    const struct failure *failure = failures_find(&round->failures, peer);

    return failure == NULL ? NULL : failure->reason;
}

bool round_outcome(const struct round *round, const struct round_key *key,
                   struct peer_id participant, enum outcome_state *state)
{
    if (round->ops->outcome == NULL) return false;
    return round->ops->outcome(round->exchange, key, participant, state);
}

MUST_USE enum rc round_told(struct round *round, const struct round_key *key,
                            enum outcome_state state)
{
    enum rc rc = RC_STALE;

    if (round->ops->told != NULL) {
        rc = round->ops->told(round->exchange, key, state, round_now(round), &round->commands);
    }
    round_obey(round);
    return rc;
}

MUST_USE enum rc round_save(const struct round *round, uint8_t **bytes, size_t *count)
{
    return round->ops->save(round->exchange, bytes, count);
}

MUST_USE enum rc round_load(struct round *round, const uint8_t *bytes, size_t count)
{
    return round->ops->load(round->exchange, bytes, count);
}

bool round_pull(const struct round *round, const float *own, float *difference)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    /* a model that was replaced has no centre before the next snapshot */
    return rule->pull != NULL && round->replaced == round->forgotten &&
           rule->pull(round->rule, own, difference);
}

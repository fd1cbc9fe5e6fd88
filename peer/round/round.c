/*
 * Rounds: the functions below stand in the order of a tensor's journey (snapshot, encode, send,
 * receive, decode, absorb, settle, apply). Heavy stages are jobs of the exchange lane, which is a
 * queue: a job submitted later sees what an earlier one did, and that alone orders snapshot,
 * absorption and settlement. Each job resumes in the function named for what was done.
 *
 *  IDLE --exchange wants one--> SNAPSHOT --exported, encoded--> RUNNING
 *   ^                                                              |
 *   '--applied-- READY <--difference computed-- SETTLING <--over---'      aborted: back to IDLE
 *
 * The phase says what the buffers hold. The exchange may already form the next round while this
 * one settles; its snapshot then waits for IDLE, and what arrives meanwhile is held.
 *
 * From the end of a round until its difference is there is over.c. What the jobs compute is in
 * lane.c. Memory, job plumbing and rounds in doubt are in life.c: they look at no value.
 */
#include "peer/round/internal.h"

#include "base/check.h"
#include "base/crash_point.h"
#include "base/mem.h"

/* ---- 2: the snapshot ---- */

bool round_wants_snapshot(const struct round *round)
{
    /* Jobs of a round given up may still be reading the buffer. */
    return round->is_snapshot_wanted && round->phase == PHASE_IDLE && round->jobs_count == 0;
}

float *round_snapshot_buffer(struct round *round)
{
    CHECK(round_wants_snapshot(round));
    round->phase = PHASE_SNAPSHOT;
    round->snapshot_generation = round->generation;
    round->is_encoded = false;
    round->snapshots++;
    round_part_choose(round, &round->wanted);
    if (round->plane->references > 1 && !round_plane_renew(round)) return NULL;
    return round->options.masks != NULL ? round->exported : round->snapshot;
}

static void snapshot_failed(struct round *round, enum rc rc)
{
    round->phase = PHASE_IDLE;
    round->ops->on_job_done(round->exchange, JOB_SNAPSHOT, 0, rc, (struct digest){{0}},
                            round_now(round), &round->commands);
    round_obey(round);
}

void round_keep_offers(struct round *round)
{
    for (uint32_t i = 0; i < round->chunks; i++) {
        struct blob *blob = round->offer[i];

        if (blob != NULL && blob->whole == NULL && blob->references == 1 &&
            round->spare[i] == NULL) {
            round->spare[i] = blob;
            round->offer[i] = NULL;
        }
    }
    round_blobs_clear(round->offer, round->chunks);
}

void round_on_gradient(struct round *round, float largest)
{
    if (largest > round->gradient) round->gradient = largest;
}

void round_on_step(struct round *round, uint64_t step, bool is_last)
{
    round->step = step;
    round->is_last = is_last;
}

void round_on_snapshot(struct round *round, enum rc rc)
{
    struct round_job *job;

    CHECK(round->phase == PHASE_SNAPSHOT);
    crash_point(CRASH_ROUND_SNAPSHOT_TAKEN);
    if (round->snapshot_generation != round->generation) { /* its round was given up meanwhile */
        round_keep_offers(round);
        round->phase = PHASE_IDLE;
        return;
    }
    round->is_snapshot_wanted = false;
    job = rc == RC_OK && round_reserve(round)
              ? round_job_create(round, WORK_ENCODE, round->layout.values)
              : NULL;
    if (job == NULL) {
        round_keep_offers(round);
        snapshot_failed(round, rc == RC_OK ? RC_NOMEM : rc);
        return;
    }
    round_feedback_clear(round);
    job->replaced = round->replaced;
    job->number = round->has_settled ? round->settling_round : 0;
    job->has_moved = !round->has_settled || round->step != round->settled_step;
    if (round->parts[round->mask.part].has_settled) {
        job->steps = round->step - round->parts[round->mask.part].agreed_step;
    }
    job->is_last = round->is_last;
    job->gradient = round->gradient;
    round->gradient = 0;
    for (size_t i = 0; i < RULE_STATE_MAX; i++) {
        job->adopted[i] = round->adopted[i];
        round->adopted[i] = NULL;
    }
    round_job_submit(round, job);
}

/* ---- 3, 4: what the neighbours are told, encoded ---- */

/* What is sent is the snapshot itself, a slice a chunk. False: no memory. */
static bool offer_snapshot(struct round *round)
{
    for (uint32_t chunk = 0; chunk < round->chunks; chunk++) {
        struct range range = round_chunk_range(round, chunk);

        CHECK(round->offer[chunk] == NULL);
        round->offer[chunk] =
            blob_slice(round->plane, range.first * sizeof(float), range.count * sizeof(float));
        if (round->offer[chunk] != NULL) continue;
        round_blobs_clear(round->offer, round->chunks);
        return false;
    }
    return true;
}

bool round_wants_agreed(const struct round *round)
{
    if (!round->ops->has_mean) return false;
    if (round->options.masks != NULL) return false; /* it is never of the whole */
    return round->options.keeps_last || round_wants_fresh(round);
}

/* Of those that are kept until somebody takes them. */
bool round_wants_fresh(const struct round *round)
{
    if (!round->wants_agreed) return false;
    return round->agreed == NULL || round->agreed_round < round->agreed_until;
}

static void encode_done(struct round *round, struct round_job *job)
{
    struct round_job *held;

    CHECK(round->phase == PHASE_SNAPSHOT);
    round->bounds = job->bounds;
    round->forgotten = job->replaced;           /* not sooner: until here the lane was at it */
    if (job->generation != round->generation) { /* aborted meanwhile */
        round_blobs_clear(round->offer, round->chunks);
        round->phase = PHASE_IDLE;
        return;
    }
    if (job->rc != RC_OK) {
        round_blobs_clear(round->offer, round->chunks);
        snapshot_failed(round, job->rc);
        return;
    }
    if (round_offers_snapshot(round) && !offer_snapshot(round)) {
        snapshot_failed(round, RC_NOMEM);
        return;
    }
    round->phase = PHASE_RUNNING;
    round->copies_agreed = round_wants_agreed(round);
    round->has_refused = false;
    crash_point(CRASH_ROUND_ENCODED);
    while ((held = TAILQ_FIRST(&round->held)) != NULL) { /* what came before we were ready */
        TAILQ_REMOVE(&round->held, held, siblings);
        round_meet_prepare(round, held);
        round_job_submit(round, held);
    }
    round->mirror_before = job->before;
    round->ops->on_job_done(round->exchange, JOB_SNAPSHOT, 0, RC_OK, job->hash, round_now(round),
                            &round->commands);
}

/* ---- 5, 6: to a neighbour ---- */

static void send_range(struct round *round, const struct command *command)
{
    struct blob **blobs = command->is_partial            ? round->partial
                          : command->buffer == DATA_MEAN ? round->mean
                                                         : round->offer;
    bool is_whole = command->buffer == DATA_FULL;

    CHECK(command->first + command->count <= round->chunks);
    round->stream = command->stream;
    round->has_stream = true;
    failures_partner(&round->failures, command->to);
    for (uint32_t chunk = command->first; chunk < command->first + command->count; chunk++) {
        struct inner_header header = {
            .type = MESSAGE_DATA, .flags = (uint8_t)command->buffer, .arg = chunk};

        bool is_gathered = round->feedback != NULL && command->buffer == DATA_MEAN;
        struct blob *blob = is_whole      ? round_mirror_whole(round, chunk)
                            : is_gathered ? round_feedback_for(round, chunk, command->member)
                                          : blobs[chunk];
        enum rc rc;

        inner_header_set_stream(&header, command->stream);
        if (blob == NULL) continue; /* the round was given up: nothing to send */
        rc = links_send_bulk(round->options.links, command->to, &header, blob);
        if (is_gathered) blob_unref(blob);
        if (rc != RC_OK) return; /* the link is gone, and the exchange hears of that */
        if (!command->is_last) continue;
        blob_unref(blob); /* the link has its own reference */
        blobs[chunk] = NULL;
    }
}

/* ---- 7, 8: from a neighbour; decoded into scratch, checked, absorbed ---- */

static bool is_size(const struct round *round, const struct chunk_ref *chunk, size_t count)
{
    size_t values = round_chunk_range(round, chunk->chunk).count;

    if (round->feedback != NULL) return round_feedback_is_size(round, chunk->kind, values, count);
    return round_mirror_is_size(round, chunk->kind, count, values);
}

static void refuse_chunk(struct round *round, const struct chunk_ref *chunk, enum rc rc)
{
    round->ops->on_chunk_checked(round->exchange, chunk, rc, (struct digest){{0}}, 0.0f,
                                 round_now(round), &round->commands);
    round_obey(round);
}

/* A chunk of a round that is over may have had another size, where rounds carry parts: the exchange
 * knows whether it is one. */
static enum rc let_in(struct round *round, const struct chunk_ref *chunk, size_t count,
                      struct chunk_use *use)
{
    bool fits;
    enum rc rc;

    if (chunk->chunk >= round->chunks) return RC_FORMAT;
    fits = is_size(round, chunk, count);
    if (!fits && round->options.masks == NULL) return RC_FORMAT;
    rc = round->ops->on_chunk(round->exchange, chunk, use);
    if (rc != RC_OK || fits) return rc;
    refuse_chunk(round, chunk, RC_FORMAT);
    return RC_FORMAT;
}

enum rc round_on_data(struct round *round, struct peer_id from, const struct inner_header *header,
                      const uint8_t *body, size_t count)
{
    struct chunk_ref chunk = {from, (enum data_kind)header->flags, inner_header_stream(header),
                              header->arg};
    struct round_job *job;
    struct chunk_use use = {.weight = 0};
    enum rc rc = let_in(round, &chunk, count, &use);

    if (rc != RC_OK) {
        round->stats.chunks_refused++;
        log_debug(round->options.log, "chunk %u refused: %s", header->arg, rc_text(rc));
        return rc;
    }
    failures_partner(&round->failures, from);
    job = round_job_create(round, WORK_DECODE, round_chunk_range(round, header->arg).count);
    if (job != NULL) {
        job->blob = links_data_keep(round->options.links);
        job->body = body;
        if (job->blob == NULL) job->blob = blob_copy(body, count);
        if (job->blob != NULL && job->blob->count == count) job->body = job->blob->bytes;
    }
    if (job == NULL || job->blob == NULL) {
        mem_free(job);
        refuse_chunk(round, &chunk, RC_NOMEM);
        return RC_OK;
    }
    job->body_count = count;
    job->chunk = chunk;
    job->weight = use.weight;
    job->scale = use.likely_scale;
    job->wants_hash = use.wants_hash;
    job->is_passed_on = use.is_passed_on;
    job->is_staged = use.is_staged;
    job->slot = use.slot;
    job->mirror = use.mirror;
    if (round->phase == PHASE_RUNNING) {
        round_meet_prepare(round, job);
        round_job_submit(round, job);
    } else {
        TAILQ_INSERT_TAIL(&round->held, job, siblings); /* until our own snapshot is encoded */
    }
    return RC_OK;
}

/* A mean that we pass on goes as it came. */
static void keep_mean(struct round *round, struct round_job *job)
{
    struct blob **mean = &round->mean[job->chunk.chunk];

    CHECK(*mean == NULL);
    *mean = blob_slice(job->blob, (size_t)(job->body - job->blob->bytes), job->body_count);
    if (*mean == NULL) job->rc = RC_NOMEM;
}

static void decode_done(struct round *round, struct round_job *job)
{
    round->has_refused |= job->rc == RC_REFUSED;
    if (job->generation != round->generation) return;
    if (job->is_passed_on && job->rc == RC_OK) {
        keep_mean(round, job);
        crash_point(CRASH_SCHEDULE_MEAN_KEPT);
    }
    if (round->feedback != NULL) round_feedback_decoded(round, job);
    round->ops->on_chunk_checked(round->exchange, &job->chunk, job->rc, job->hash, job->distance,
                                 round_now(round), &round->commands);
    crash_point(CRASH_ROUND_CHUNK_CHECKED);
}

/* ---- 9: part owners absorb their own chunks and reduce ---- */

static void absorb_own(struct round *round, const struct command *command)
{
    struct round_job *job =
        round_job_create(round, WORK_OWN, (size_t)command->count * round->layout.chunk_values);

    if (job == NULL) {
        round->commands.is_short_of_memory = true;
        return;
    }
    job->first = command->first;
    job->count = command->count;
    job->weight = command->weight;
    round_job_submit(round, job);
}

static void own_done(struct round *round, struct round_job *job)
{
    crash_point(CRASH_GROUP_OWN_ABSORBED);
    if (job->generation != round->generation) return;
    round->ops->on_job_done(round->exchange, JOB_ABSORB_OWN, job->first, job->rc, job->hash,
                            round_now(round), &round->commands);
}

static void reduce(struct round *round, const struct command *command)
{
    struct range range = round_chunk_range(round, command->first);
    struct round_job *job = round_job_create(round, WORK_REDUCE, range.count);
    size_t most = round->codec->ops->bytes_max(round->codec, range.count);

    if (job != NULL && round->feedback == NULL) job->blob = blob_create(most);
    if (job == NULL || (job->blob == NULL && round->feedback == NULL)) {
        mem_free(job);
        round->commands.is_short_of_memory = true;
        return;
    }
    job->first = command->first;
    job->slot = command->member;
    job->number = command->round;
    if (round->feedback != NULL) round_feedback_gather(round, job);
    job->is_partial = command->is_partial;
    job->wants_hash = command->wants_hash;
    round_job_submit(round, job);
}

static void reduce_done(struct round *round, struct round_job *job)
{
    struct blob **blobs = job->is_partial ? round->partial : round->mean;

    crash_point(job->is_partial ? CRASH_SCHEDULE_ADDED_UP : CRASH_GROUP_REDUCED);
    if (job->generation != round->generation) return;
    if (job->rc == RC_OK) {
        CHECK(blobs[job->first] == NULL);
        blobs[job->first] = job->blob;
        job->blob = NULL;
    }
    round->ops->on_job_done(round->exchange, JOB_REDUCE, job->first, job->rc, job->hash,
                            round_now(round), &round->commands);
}

/* ---- 10: the apply step is the node's ---- */

bool round_has_difference(const struct round *round)
{
    return round->phase == PHASE_READY;
}

void round_applied(struct round *round)
{
    CHECK(round->phase == PHASE_READY);
    round->stats.mixed++;
    round->stats.last_round = round->settling_round;
    round->stats.is_last_whole = round->is_settling_whole;
    round->stats.unagreed += round->has_refused;
    round->phase = PHASE_IDLE;
    crash_point(CRASH_ROUND_DONE);
    round_resolve_doubts(round);
}

/* ---- what the exchange says, done ---- */

void round_job_done(struct job *base)
{
    struct round_job *job = (struct round_job *)base;
    struct round *round = job->round;

    TAILQ_REMOVE(&round->jobs, job, siblings);
    CHECK(round->jobs_count > 0);
    round->jobs_count--;
    round_guard_note(round, job);
    switch (job->work) {
    case WORK_ENCODE:
        encode_done(round, job);
        break;
    case WORK_DECODE:
        decode_done(round, job);
        break;
    case WORK_OWN:
        own_done(round, job);
        break;
    case WORK_REDUCE:
        reduce_done(round, job);
        break;
    case WORK_EDGE:
        round_edge_done(job);
        break;
    case WORK_SETTLE:
        round_settle_done(round, job);
        break;
    case WORK_CANCEL:
        break;
    case WORK_DOUBT:
        round_doubt_done(round, job);
        break;
    case WORK_HOLD:
    case WORK_ABSORB_HELD:
        round_held_done(round, job);
        break;
    }
    round_job_free(job);
    round_obey(round);
    round->options.on_change(round->options.context);
}

static void obey(struct round *round, const struct command *command)
{
    char id[PEER_ID_TEXT];

    switch (command->type) {
    case COMMAND_SEND:
        (void)links_send(round->options.links, command->to, &command->message);
        break; /* a closed link is reported as such */
    case COMMAND_SNAPSHOT:
        round->is_snapshot_wanted = true;
        round_trace_formed(round);
        round->wanted = command->key;
        crash_point(CRASH_ROUND_SNAPSHOT_WANTED);
        break;
    case COMMAND_SEND_RANGE:
        send_range(round, command);
        break;
    case COMMAND_STOP_RANGE:
        links_drop_bulk(round->options.links, command->buffer, command->stream);
        break;
    case COMMAND_ABSORB_OWN:
        absorb_own(round, command);
        break;
    case COMMAND_REDUCE:
        reduce(round, command);
        break;
    case COMMAND_EDGE:
        round_edge(round, command);
        break;
    case COMMAND_FORGET:
        round->replaced++;
        break;
    case COMMAND_OVER:
        round_over(round, &command->over);
        break;
    case COMMAND_HOLD:
        round_hold_plane(round, &command->key);
        break;
    case COMMAND_RELEASE:
        round_release_plane(round, &command->key);
        break;
    case COMMAND_ABSORB_HELD:
        round_absorb_plane(round, &command->key);
        break;
    case COMMAND_SCORE:
        if (score_is_fault(command->score)) {
            peer_id_format(command->to, id);
            log_warn(round->options.log, "peer %.8s %s", id, command->reason);
            failures_note(&round->failures, command->to, command->reason, round_now(round));
        }
        round->options.on_score(round->options.context, command->to, command->score);
        break;
    }
}

/* Commands are obeyed in order; none of them calls the exchange, so what they borrow stays valid.
 * When memory ran out on the way the round is given up, and cancel()'s own commands are obeyed. */
void round_obey(struct round *round)
{
    bool is_short;

    do {
        is_short = false;
        for (uint32_t i = 0; i < round->commands.count; i++) {
            obey(round, &round->commands.items[i]);
        }
        is_short = round->commands.is_short_of_memory;
        commands_clear(&round->commands);
        if (!is_short) break;
        log_warn(round->options.log, "averaging round aborted: out of memory");
        round->ops->cancel(round->exchange, "out of memory", round_now(round), &round->commands);
    } while (round->commands.count > 0);
    round_trace(round);
    round_resolve_doubts(round);
}

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
 */
#include "peer/round.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <sys/queue.h>

enum round_phase { PHASE_IDLE, PHASE_SNAPSHOT, PHASE_RUNNING, PHASE_SETTLING, PHASE_READY };

enum { DOUBTS_MAX = 2, COST_NS_PER_KILOVALUE = 1000 };

enum work { WORK_ENCODE, WORK_DECODE, WORK_OWN, WORK_REDUCE, WORK_SETTLE, WORK_CANCEL, WORK_DOUBT };

struct round_job {
    struct job job;
    TAILQ_ENTRY(round_job) siblings; /* of all jobs, or of the held ones */
    struct round *round;
    enum work work;
    uint64_t generation; /* of the round it belongs to */
    struct chunk_ref chunk;
    uint32_t first, count;
    float weight, scale;
    uint8_t *bytes; /* DECODE: the encoded chunk; SETTLE: the bitmap. From mem_*, owned */
    size_t bytes_count;
    float *to; /* SETTLE: where the difference goes */
    enum rc rc;
    struct digest hash;
    float distance;
    double squared;    /* SETTLE: norm of the difference */
    struct blob *blob; /* REDUCE: the encoded mean */
    struct doubt *doubt;
};

TAILQ_HEAD(round_jobs_list, round_job);

/* A pair round whose partner vanished between READY and COMMIT. */
struct doubt {
    bool is_used, is_resolved;
    struct round_key key;
    float *difference; /* with scale 1, over the chunks READY promised */
    uint8_t *bitmap;   /* once resolved */
    float scale;
};

struct round {
    struct round_options options;
    const struct codec_ops *codec;
    const struct exchange_ops *ops;
    struct exchange *exchange;
    struct rule *rule;
    struct commands commands;
    uint32_t chunks;
    enum round_phase phase;
    bool is_snapshot_wanted;
    uint64_t generation;          /* counts rounds begun or given up: old jobs are told apart */
    uint64_t snapshot_generation; /* of the round the running snapshot is for */
    uint16_t stream;              /* of what was last queued, to take it back on an abort */
    uint64_t begun_ns;
    float *snapshot;     /* [values] exact parameters at the border */
    float *own;          /* [values] what we told the others; == snapshot for lossless codecs */
    float *difference;   /* [values] */
    float *scratch;      /* [CHUNK_VALUES] of the exchange lane */
    struct blob **offer; /* [chunks] encoded snapshot while RUNNING */
    struct blob **mean;  /* [chunks] encoded means of our part */
    struct doubt doubts[DOUBTS_MAX];
    struct round_jobs_list jobs, held;
    uint32_t jobs_count;
    struct round_stats stats;
};

static uint64_t now_of(const struct round *round)
{
    return round->options.env->ops->now_ns(round->options.env);
}

static struct range chunk_range(const struct round *round, uint32_t chunk)
{
    size_t first = (size_t)chunk * CHUNK_VALUES;
    size_t left = round->options.values - first;

    CHECK(first < round->options.values);
    return (struct range){first, left < CHUNK_VALUES ? left : CHUNK_VALUES};
}

/* ---- life ---- */

static bool round_allocate(struct round *round)
{
    size_t bytes = round->options.values * sizeof(float);
    const struct strategy *strategy = round->options.strategy;
    struct exchange_options options = {.self = round->options.self,
                                       .boot = round->options.boot,
                                       .run_id = round->options.run_id,
                                       .schema = round->options.schema,
                                       .chunks = round->chunks,
                                       .seed = round->options.seed,
                                       .alpha = 0.5f};

    memcpy(options.codec, strategy->codec->name, strlen(strategy->codec->name) + 1);
    round->exchange = round->ops->create(&options);
    round->rule = strategy->rule->create(round->options.values);
    round->snapshot = mem_aligned(bytes);
    round->own = strategy->codec->is_lossless ? round->snapshot : mem_aligned(bytes);
    round->difference = mem_aligned(bytes);
    round->scratch = mem_aligned(CHUNK_VALUES * sizeof(float));
    round->offer = mem_array(round->chunks, sizeof(struct blob *));
    round->mean = mem_array(round->chunks, sizeof(struct blob *));
    return round->exchange != NULL && round->rule != NULL && round->snapshot != NULL &&
           round->own != NULL && round->difference != NULL && round->scratch != NULL &&
           round->offer != NULL && round->mean != NULL;
}

struct round *round_create(const struct round_options *options)
{
    struct round *round = mem_alloc(sizeof *round);

    if (round == NULL) return NULL;
    CHECK(options->strategy->is_averaging && options->values > 0);
    CHECK(strlen(options->strategy->codec->name) < sizeof(((struct exchange_options *)0)->codec));
    round->options = *options;
    round->codec = options->strategy->codec;
    round->ops = options->strategy->exchange;
    round->chunks = (uint32_t)((options->values + CHUNK_VALUES - 1) / CHUNK_VALUES);
    TAILQ_INIT(&round->jobs);
    TAILQ_INIT(&round->held);
    commands_init(&round->commands);
    if (!round_allocate(round)) {
        round_destroy(round);
        return NULL;
    }
    return round;
}

static void blobs_clear(struct blob **blobs, uint32_t count)
{
    for (uint32_t i = 0; blobs != NULL && i < count; i++) {
        blob_unref(blobs[i]);
        blobs[i] = NULL;
    }
}

static void job_free(struct round_job *job)
{
    blob_unref(job->blob);
    mem_free(job->bytes);
    mem_free(job);
}

static void jobs_clear(struct round_jobs_list *jobs)
{
    struct round_job *job;

    while ((job = TAILQ_FIRST(jobs)) != NULL) {
        TAILQ_REMOVE(jobs, job, siblings);
        job_free(job);
    }
}

static void doubt_clear(struct doubt *doubt)
{
    mem_free(doubt->difference);
    mem_free(doubt->bitmap);
    *doubt = (struct doubt){0};
}

void round_destroy(struct round *round)
{
    if (round == NULL) return;
    jobs_clear(&round->jobs);
    jobs_clear(&round->held);
    for (int i = 0; i < DOUBTS_MAX; i++) {
        doubt_clear(&round->doubts[i]);
    }
    blobs_clear(round->offer, round->chunks);
    blobs_clear(round->mean, round->chunks);
    commands_deinit(&round->commands);
    if (round->exchange != NULL) round->ops->destroy(round->exchange);
    if (round->rule != NULL) round->options.strategy->rule->destroy(round->rule);
    if (round->own != round->snapshot) mem_free(round->own);
    mem_free(round->snapshot);
    mem_free(round->difference);
    mem_free(round->scratch);
    mem_free(round->offer);
    mem_free(round->mean);
    mem_free(round);
}

/* ---- jobs ---- */

static void round_obey(struct round *round);
static void run_work(struct job *job);
static void work_done(struct job *job);

static struct round_job *job_create(struct round *round, enum work work, size_t values)
{
    struct round_job *job = mem_alloc(sizeof *job);
    uint64_t per_kilo = round->options.cost_ns_per_value * 1000;

    if (job == NULL) return NULL;
    if (per_kilo == 0) per_kilo = COST_NS_PER_KILOVALUE;
    job->round = round;
    job->work = work;
    job->generation = round->generation;
    job->job.run = run_work;
    job->job.done = work_done;
    job->job.cost_ns = values * per_kilo / 1000 + 1;
    return job;
}

static void job_submit(struct round *round, struct round_job *job)
{
    TAILQ_INSERT_TAIL(&round->jobs, job, siblings);
    round->jobs_count++;
    round->options.env->ops->submit(round->options.env, LANE_EXCHANGE, &job->job);
}

/* ---- 2: the snapshot ---- */

bool round_wants_snapshot(const struct round *round)
{
    return round->is_snapshot_wanted && round->phase == PHASE_IDLE;
}

float *round_snapshot_buffer(struct round *round)
{
    CHECK(round_wants_snapshot(round));
    round->phase = PHASE_SNAPSHOT;
    round->snapshot_generation = round->generation;
    return round->snapshot;
}

static void snapshot_failed(struct round *round, enum rc rc)
{
    round->phase = PHASE_IDLE;
    round->ops->on_job_done(round->exchange, JOB_SNAPSHOT, 0, rc, (struct digest){{0}},
                            now_of(round), &round->commands);
    round_obey(round);
}

void round_on_snapshot(struct round *round, enum rc rc)
{
    struct round_job *job;

    CHECK(round->phase == PHASE_SNAPSHOT);
    if (round->snapshot_generation != round->generation) { /* its round was given up meanwhile */
        round->phase = PHASE_IDLE;
        return;
    }
    round->is_snapshot_wanted = false;
    job = rc == RC_OK ? job_create(round, WORK_ENCODE, round->options.values) : NULL;
    if (job == NULL) {
        snapshot_failed(round, rc == RC_OK ? RC_NOMEM : rc);
        return;
    }
    job_submit(round, job);
}

/* ---- 3, 4: what the neighbours are told, encoded ---- */

static void run_encode(struct round *round, struct round_job *job)
{
    struct rule_view view = {round->own, round->options.values};

    job->rc = floats_are_finite(round->snapshot, round->options.values) ? RC_OK : RC_NONFINITE;
    for (uint32_t chunk = 0; chunk < round->chunks && job->rc == RC_OK; chunk++) {
        struct range range = chunk_range(round, chunk);
        struct blob *blob = blob_create(round->codec->encoded_bytes(range.count));

        if (blob == NULL) {
            job->rc = RC_NOMEM;
            break;
        }
        round->codec->encode(round->snapshot + range.first, range.count, blob->bytes);
        if (!round->codec->is_lossless) {
            job->rc = round->codec->decode(blob->bytes, blob->count, round->own + range.first,
                                           range.count);
        }
        CHECK(round->offer[chunk] == NULL);
        round->offer[chunk] = blob;
    }
    round->options.strategy->rule->begin(round->rule, &view);
}

static void encode_done(struct round *round, struct round_job *job)
{
    struct round_job *held;

    CHECK(round->phase == PHASE_SNAPSHOT);
    if (job->generation != round->generation) { /* aborted meanwhile */
        blobs_clear(round->offer, round->chunks);
        round->phase = PHASE_IDLE;
        return;
    }
    if (job->rc != RC_OK) {
        blobs_clear(round->offer, round->chunks);
        snapshot_failed(round, job->rc);
        return;
    }
    round->phase = PHASE_RUNNING;
    while ((held = TAILQ_FIRST(&round->held)) != NULL) { /* what came before we were ready */
        TAILQ_REMOVE(&round->held, held, siblings);
        job_submit(round, held);
    }
    round->ops->on_job_done(round->exchange, JOB_SNAPSHOT, 0, RC_OK, job->hash, now_of(round),
                            &round->commands);
}

/* ---- 5, 6: to a neighbour ---- */

static void send_range(struct round *round, const struct command *command)
{
    struct blob **blobs = command->buffer == DATA_MEAN ? round->mean : round->offer;

    CHECK(command->first + command->count <= round->chunks);
    round->stream = command->stream;
    for (uint32_t chunk = command->first; chunk < command->first + command->count; chunk++) {
        struct inner_header header = {.type = MESSAGE_DATA,
                                      .flags = (uint8_t)command->buffer,
                                      .stream = command->stream,
                                      .arg = chunk};

        if (blobs[chunk] == NULL) continue; /* the round was given up: nothing to send */
        if (links_send_bulk(round->options.links, command->to, &header, blobs[chunk]) != RC_OK) {
            return; /* the link is gone, and the exchange hears of that */
        }
    }
}

/* ---- 7, 8: from a neighbour; decoded into scratch, checked, absorbed ---- */

void round_on_data(struct round *round, struct peer_id from, const struct inner_header *header,
                   const uint8_t *body, size_t count)
{
    struct chunk_ref chunk = {from, (enum data_kind)header->flags, header->stream, header->arg};
    struct round_job *job;
    float weight = 0.0f;
    enum rc rc = RC_FORMAT;

    if (header->offset == 0 && header->arg < round->chunks &&
        count == round->codec->encoded_bytes(chunk_range(round, header->arg).count)) {
        rc = round->ops->on_chunk(round->exchange, &chunk, &weight);
    }
    if (rc != RC_OK) {
        round->stats.chunks_refused++;
        log_debug(round->options.log, "chunk %u refused: %s", header->arg, rc_text(rc));
        return;
    }
    job = job_create(round, WORK_DECODE, chunk_range(round, header->arg).count);
    if (job != NULL) job->bytes = mem_alloc(count);
    if (job == NULL || job->bytes == NULL) {
        mem_free(job);
        round->ops->on_chunk_checked(round->exchange, &chunk, RC_NOMEM, (struct digest){{0}}, 0.0f,
                                     now_of(round), &round->commands);
        round_obey(round);
        return;
    }
    memcpy(job->bytes, body, count);
    job->bytes_count = count;
    job->chunk = chunk;
    job->weight = weight;
    if (round->phase == PHASE_RUNNING) {
        job_submit(round, job);
    } else {
        TAILQ_INSERT_TAIL(&round->held, job, siblings); /* until our own snapshot is encoded */
    }
}

static void run_decode(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    struct range range = chunk_range(round, job->chunk.chunk);

    job->hash = hash_of(job->bytes, job->bytes_count);
    job->rc = round->codec->decode(job->bytes, job->bytes_count, round->scratch, range.count);
    if (job->rc != RC_OK) return;
    if (job->chunk.kind == DATA_MEAN) {
        job->rc = rule->agree(round->rule, range, round->scratch);
        return;
    }
    job->rc = rule->absorb(round->rule, range, job->weight, round->scratch);
    if (job->rc == RC_OK && !round->ops->is_group) {
        job->distance = rule->squared_distance(round->rule, range);
    }
}

static void decode_done(struct round *round, struct round_job *job)
{
    if (job->generation != round->generation) return;
    round->ops->on_chunk_checked(round->exchange, &job->chunk, job->rc, job->hash, job->distance,
                                 now_of(round), &round->commands);
}

/* ---- 9: part owners absorb their own chunks and reduce ---- */

static void absorb_own(struct round *round, const struct command *command)
{
    struct round_job *job = job_create(round, WORK_OWN, (size_t)command->count * CHUNK_VALUES);

    if (job == NULL) {
        round->commands.is_short_of_memory = true;
        return;
    }
    job->first = command->first;
    job->count = command->count;
    job->weight = command->weight;
    job_submit(round, job);
}

static void run_own(struct round *round, struct round_job *job)
{
    for (uint32_t chunk = job->first; chunk < job->first + job->count; chunk++) {
        struct range range = chunk_range(round, chunk);

        job->rc = round->options.strategy->rule->absorb(round->rule, range, job->weight,
                                                        round->own + range.first);
        if (job->rc != RC_OK) return;
    }
}

static void own_done(struct round *round, struct round_job *job)
{
    if (job->generation != round->generation) return;
    round->ops->on_job_done(round->exchange, JOB_ABSORB_OWN, job->first, job->rc, job->hash,
                            now_of(round), &round->commands);
}

static void reduce(struct round *round, const struct command *command)
{
    struct range range = chunk_range(round, command->first);
    struct round_job *job = job_create(round, WORK_REDUCE, range.count);

    if (job != NULL) job->blob = blob_create(round->codec->encoded_bytes(range.count));
    if (job == NULL || job->blob == NULL) {
        mem_free(job);
        round->commands.is_short_of_memory = true;
        return;
    }
    job->first = command->first;
    job_submit(round, job);
}

/* What the owner installs is the decoded form of what it sends, so that all hold the same. */
static void run_reduce(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    struct range range = chunk_range(round, job->first);

    job->rc = rule->reduce(round->rule, range, round->scratch);
    if (job->rc != RC_OK) return;
    round->codec->encode(round->scratch, range.count, job->blob->bytes);
    job->hash = hash_of(job->blob->bytes, job->blob->count);
    job->rc = round->codec->decode(job->blob->bytes, job->blob->count, round->scratch, range.count);
    if (job->rc == RC_OK) job->rc = rule->agree(round->rule, range, round->scratch);
}

static void reduce_done(struct round *round, struct round_job *job)
{
    if (job->generation != round->generation) return;
    if (job->rc == RC_OK) {
        CHECK(round->mean[job->first] == NULL);
        round->mean[job->first] = job->blob;
        job->blob = NULL;
    }
    round->ops->on_job_done(round->exchange, JOB_REDUCE, job->first, job->rc, job->hash,
                            now_of(round), &round->commands);
}

/* ---- 9: the round is over: settle what was committed ---- */

static struct doubt *doubt_find(struct round *round, const struct round_key *key)
{
    for (int i = 0; i < DOUBTS_MAX; i++) {
        struct doubt *doubt = &round->doubts[i];

        if (doubt->is_used && doubt->key.counter == key->counter &&
            peer_id_is_equal(doubt->key.initiator, key->initiator) &&
            boot_id_is_equal(doubt->key.boot, key->boot)) {
            return doubt;
        }
    }
    return NULL;
}

static struct doubt *doubt_add(struct round *round, const struct round_key *key)
{
    for (int i = 0; i < DOUBTS_MAX; i++) {
        struct doubt *doubt = &round->doubts[i];

        if (doubt->is_used) continue;
        doubt->difference = mem_aligned(round->options.values * sizeof(float));
        if (doubt->difference == NULL) return NULL;
        doubt->is_used = true;
        doubt->key = *key;
        return doubt;
    }
    return NULL;
}

static void settle(struct round *round, const struct command_over *over, struct doubt *doubt)
{
    size_t bitmap_bytes = (round->chunks + 7) / 8;
    struct round_job *job = job_create(round, WORK_SETTLE, round->options.values);

    if (job != NULL) job->bytes = mem_alloc(bitmap_bytes);
    if (job == NULL || job->bytes == NULL) { /* nothing is applied: as if the round had been cut */
        mem_free(job);
        log_warn(round->options.log, "round given up: out of memory");
        round->phase = PHASE_IDLE;
        return;
    }
    memcpy(job->bytes, over->bitmap,
           over->bitmap_bytes < bitmap_bytes ? over->bitmap_bytes : bitmap_bytes);
    job->scale = over->scale;
    job->to = doubt != NULL ? doubt->difference : round->difference;
    job->doubt = doubt;
    round->phase = PHASE_SETTLING;
    job_submit(round, job);
}

static void cancel(struct round *round)
{
    struct round_job *job = job_create(round, WORK_CANCEL, 1);

    if (job != NULL) job_submit(round, job); /* without it the next begin does the same */
}

static void round_cleared(struct round *round)
{
    round->generation++;
    round->is_snapshot_wanted = false;
    blobs_clear(round->mean, round->chunks);
    if (round->phase != PHASE_SNAPSHOT) blobs_clear(round->offer, round->chunks);
    jobs_clear(&round->held);
}

static void late_over(struct round *round, const struct command_over *over)
{
    struct doubt *doubt = doubt_find(round, &over->key);

    if (doubt == NULL) return;
    if (over->result == OVER_COMMITTED) {
        size_t bytes = (round->chunks + 7) / 8;

        doubt->bitmap = mem_alloc(bytes);
        if (doubt->bitmap != NULL) {
            memcpy(doubt->bitmap, over->bitmap,
                   over->bitmap_bytes < bytes ? over->bitmap_bytes : bytes);
            doubt->scale = over->scale;
            doubt->is_resolved = true;
            return;
        }
    }
    doubt_clear(doubt);
}

static void round_over(struct round *round, const struct command_over *over)
{
    bool had_snapshot = round->phase == PHASE_RUNNING;
    struct doubt *doubt;

    if (over->is_late) {
        late_over(round, over);
        return;
    }
    round_cleared(round);
    round->stats.last_members = over->members;
    if (over->result == OVER_COMMITTED && had_snapshot) {
        round->stats.last_ns = now_of(round) - round->begun_ns;
        settle(round, over, NULL);
        return;
    }
    if (over->result == OVER_ABORTED) {
        links_drop_bulk(round->options.links, DATA_OFFER, round->stream);
        links_drop_bulk(round->options.links, DATA_MEAN, round->stream);
        log_debug(round->options.log, "round aborted: %s",
                  over->reason == NULL ? "no reason given" : over->reason);
    }
    doubt = over->result == OVER_IN_DOUBT && had_snapshot ? doubt_add(round, &over->key) : NULL;
    if (doubt != NULL) {
        settle(round, over, doubt);
    } else if (had_snapshot) {
        round->phase = PHASE_IDLE;
        cancel(round);
    }
}

static void run_settle(struct round *round, struct round_job *job)
{
    round->options.strategy->rule->settle(round->rule, job->bytes, CHUNK_VALUES, job->scale,
                                          job->to);
    for (size_t i = 0; i < round->options.values; i++) {
        job->squared += (double)job->to[i] * (double)job->to[i];
    }
}

static void settle_done(struct round *round, struct round_job *job)
{
    CHECK(round->phase == PHASE_SETTLING);
    if (job->doubt != NULL) {
        round->phase = PHASE_IDLE;
        return;
    }
    round->stats.distance = sqrt(job->squared);
    round->stats.has_distance = true;
    round->phase = PHASE_READY;
}

/* A late commit: the kept difference of its chunks. */
static void run_doubt(struct round *round, struct round_job *job)
{
    const struct doubt *doubt = job->doubt;

    memcpy(round->difference, doubt->difference, round->options.values * sizeof(float));
    rule_commit_late(round->difference, round->options.values, doubt->bitmap, CHUNK_VALUES,
                     doubt->scale);
}

static void doubt_done(struct round *round, struct round_job *job)
{
    CHECK(round->phase == PHASE_SETTLING);
    doubt_clear(job->doubt);
    round->phase = PHASE_READY;
}

static void resolve_doubts(struct round *round)
{
    for (int i = 0; i < DOUBTS_MAX && round->phase == PHASE_IDLE; i++) {
        struct round_job *job;

        if (!round->doubts[i].is_used || !round->doubts[i].is_resolved) continue;
        job = job_create(round, WORK_DOUBT, round->options.values);
        if (job == NULL) return; /* tried again at the next event */
        job->doubt = &round->doubts[i];
        round->phase = PHASE_SETTLING;
        job_submit(round, job);
    }
}

/* ---- 10: the apply step is the node's ---- */

bool round_has_difference(const struct round *round)
{
    return round->phase == PHASE_READY;
}

const float *round_difference(const struct round *round)
{
    CHECK(round->phase == PHASE_READY);
    return round->difference;
}

void round_applied(struct round *round)
{
    CHECK(round->phase == PHASE_READY);
    round->stats.mixed++;
    round->phase = PHASE_IDLE;
    resolve_doubts(round);
}

/* ---- what the exchange says, done ---- */

static void run_work(struct job *base)
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
    case WORK_SETTLE:
        run_settle(round, job);
        break;
    case WORK_CANCEL:
        round->options.strategy->rule->cancel(round->rule);
        break;
    case WORK_DOUBT:
        run_doubt(round, job);
        break;
    }
}

static void work_done(struct job *base)
{
    struct round_job *job = (struct round_job *)base;
    struct round *round = job->round;

    TAILQ_REMOVE(&round->jobs, job, siblings);
    CHECK(round->jobs_count > 0);
    round->jobs_count--;
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
    case WORK_SETTLE:
        settle_done(round, job);
        break;
    case WORK_CANCEL:
        break;
    case WORK_DOUBT:
        doubt_done(round, job);
        break;
    }
    job_free(job);
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
        break;
    case COMMAND_SEND_RANGE:
        send_range(round, command);
        break;
    case COMMAND_ABSORB_OWN:
        absorb_own(round, command);
        break;
    case COMMAND_REDUCE:
        reduce(round, command);
        break;
    case COMMAND_OVER:
        round_over(round, &command->over);
        break;
    case COMMAND_SCORE:
        peer_id_format(command->to, id);
        log_warn(round->options.log, "peer %.8s: %s", id, command->reason);
        break;
    }
}

/* Commands are obeyed in order; none of them calls the exchange, so what they borrow stays valid.
 * When memory ran out on the way the round is given up, and cancel()'s own commands are obeyed. */
static void round_obey(struct round *round)
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
        log_warn(round->options.log, "round given up: out of memory");
        round->ops->cancel(round->exchange, "out of memory", now_of(round), &round->commands);
    } while (round->commands.count > 0);
    resolve_doubts(round);
}

/* ---- what happens to a round from outside ---- */

MUST_USE enum rc round_begin(struct round *round, const struct round_members *members,
                             uint64_t samples)
{
    enum rc rc;

    if (round->phase != PHASE_IDLE || round->is_snapshot_wanted) return RC_BUSY;
    rc = round->ops->begin(round->exchange, members, samples, now_of(round), &round->commands);
    if (rc == RC_OK) round->begun_ns = now_of(round);
    round_obey(round);
    return rc;
}

void round_cancel(struct round *round, const char *reason)
{
    round->ops->cancel(round->exchange, reason, now_of(round), &round->commands);
    round_obey(round);
}

bool round_is_active(const struct round *round)
{
    return round->phase != PHASE_IDLE || round->is_snapshot_wanted ||
           round->ops->is_active(round->exchange);
}

void round_set_lineage(struct round *round, struct digest lineage)
{
    round->ops->set_lineage(round->exchange, lineage, &round->commands);
    round_obey(round);
}

void round_set_number(struct round *round, uint64_t number)
{
    round->ops->set_round(round->exchange, number);
}

void round_on_message(struct round *round, struct peer_id from, const struct message *message)
{
    struct boot_id boot;
    enum rc rc;

    if (!links_boot(round->options.links, from, &boot)) return;
    rc = round->ops->on_message(round->exchange, from, boot, message, now_of(round),
                                &round->commands);
    if (rc != RC_OK) {
        log_debug(round->options.log, "%s refused: %s", message_type_name(message->type),
                  rc_text(rc));
    }
    round_obey(round);
}

void round_on_link_up(struct round *round, struct peer_id peer, struct boot_id boot)
{
    round->ops->on_link_up(round->exchange, peer, boot, now_of(round), &round->commands);
    round_obey(round);
}

void round_on_link_lost(struct round *round, struct peer_id peer)
{
    round->ops->on_link_lost(round->exchange, peer, now_of(round), &round->commands);
    round_obey(round);
}

void round_tick(struct round *round)
{
    round->ops->tick(round->exchange, now_of(round), &round->commands);
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
}

MUST_USE enum rc round_save(const struct round *round, uint8_t **bytes, size_t *count)
{
    return round->ops->save(round->exchange, bytes, count);
}

MUST_USE enum rc round_load(struct round *round, const uint8_t *bytes, size_t count)
{
    return round->ops->load(round->exchange, bytes, count);
}

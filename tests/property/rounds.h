/*
 * rounds: a swarm in memory for property tests of the exchanges: real exchanges, rules, codecs and
 * float planes over pretend links and job lanes with seeded delays. Links deliver whole and in
 * order and are reported lost once; peers can be cut off, killed and started again. One heap of
 * events ordered by (time, sequence): a run is a function of its seed.
 */
#ifndef GRAPEVINE_TESTS_ROUNDS_H
#define GRAPEVINE_TESTS_ROUNDS_H

#include "tests/check.h"

#include "averaging/codec.h"
#include "averaging/exchange.h"
#include "averaging/rule.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

enum { ROUND_PEERS_MAX = 8, ROUND_CHUNK = 64, ROUND_KEYS_MAX = 4096, ROUND_LEDGER_MAX = 8192 };

enum event_type { EVENT_MESSAGE, EVENT_DATA, EVENT_JOB, EVENT_BEGIN, EVENT_LOST, EVENT_UP };

enum lane_job {
    LANE_SNAPSHOT,
    LANE_OWN,
    LANE_REDUCE,
    LANE_CHECK,
    LANE_SETTLE,
    LANE_CANCEL,
    LANE_LATE
};

struct event {
    uint64_t at_ns, sequence;
    enum event_type type;
    uint32_t to, from;
    uint64_t epoch; /* of the link, or of the peer's life for its own events */
    struct message message;
    uint8_t *bytes; /* what the message borrows, or the chunk; owned */
    size_t bytes_count;
    struct chunk_ref chunk;
    enum lane_job job;
    uint64_t generation;
    uint32_t first, count;
    float weight;
    struct command_over over; /* SETTLE, LATE: its bitmap is in `bytes` */
};

/* What a pair round did at its two ends. */
struct round_trace {
    struct round_key key;
    uint32_t ends;     /* that applied it */
    float *difference; /* of the first end */
    bool is_exempt;    /* one end was killed while it mattered */
    uint32_t peers[2];
};

struct round_doubt {
    bool is_used;
    struct round_key key;
    float *difference;
};

struct round_peer {
    struct peer_id id;
    struct boot_id boot;
    bool is_alive, is_settling;
    uint64_t life, generation, lane_free_ns;
    struct exchange *exchange;
    struct rule *rule;
    float *model, *snapshot, *own, *difference;
    uint8_t **offers, **means; /* encoded chunks */
    struct digest *agreed;     /* hash of the encoded chunk that was agreed */
    uint32_t *agreed_from;     /* its owner, and in which life */
    uint64_t *agreed_life;
    struct round_doubt doubts[4];
    double local; /* sum of all local updates ever made */
    uint64_t committed;
    bool poisons; /* sends NaN in its chunks */
};

struct round_link {
    bool is_up;
    uint64_t epoch, last_ns;
};

struct rounds {
    const struct exchange_ops *ops;
    const struct codec_ops *codec;
    uint32_t peers_count, chunks;
    size_t values;
    struct rng rng;
    uint64_t now_ns, sequence, pace_ns;
    struct round_peer peers[ROUND_PEERS_MAX];
    struct round_link links[ROUND_PEERS_MAX][ROUND_PEERS_MAX]; /* [from][to]; epochs are equal */
    struct event **heap;
    uint32_t heap_count, heap_max;
    struct round_trace *traces;
    uint32_t traces_count;
    struct digest *ledger; /* see ledger_at(): the mean its owner formed */
    uint64_t scores, refused;
    double trains; /* size of the local updates made at each snapshot */
    uint64_t seed;
    bool is_learning; /* begins are scheduled */
    struct commands commands;
    float *scratch;
};

/* ---- the heap ---- */

static inline bool event_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

static inline void rounds_push(struct rounds *r, struct event *event)
{
    uint32_t i = r->heap_count++;

    if (i == r->heap_max) {
        r->heap_max = r->heap_max == 0 ? 256 : 2 * r->heap_max;
        r->heap = realloc(r->heap, r->heap_max * sizeof(struct event *));
        assert_non_null(r->heap);
    }
    event->sequence = r->sequence++;
    for (; i > 0 && event_before(event, r->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        r->heap[i] = r->heap[(i - 1) / 2];
    }
    r->heap[i] = event;
}

static inline struct event *rounds_pop(struct rounds *r)
{
    struct event *top = r->heap[0], *last = r->heap[--r->heap_count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= r->heap_count) break;
        if (child + 1 < r->heap_count && event_before(r->heap[child + 1], r->heap[child])) child++;
        if (!event_before(r->heap[child], last)) break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    if (r->heap_count > 0) r->heap[i] = last;
    return top;
}

static inline struct event *event_new(enum event_type type, uint32_t to, uint64_t at_ns)
{
    struct event *event = calloc(1, sizeof *event);

    assert_non_null(event);
    event->type = type;
    event->to = to;
    event->at_ns = at_ns;
    return event;
}

static inline void event_free(struct event *event)
{
    free(event->bytes);
    free(event);
}

/* ---- peers ---- */

static inline size_t chunk_count(const struct rounds *r, uint32_t chunk)
{
    size_t first = (size_t)chunk * ROUND_CHUNK;

    return r->values - first < ROUND_CHUNK ? r->values - first : ROUND_CHUNK;
}

static inline struct range chunk_range(const struct rounds *r, uint32_t chunk)
{
    return (struct range){(size_t)chunk * ROUND_CHUNK, chunk_count(r, chunk)};
}

static inline uint32_t peer_of(const struct rounds *r, struct peer_id id)
{
    for (uint32_t i = 0; i < r->peers_count; i++) {
        if (peer_id_is_equal(r->peers[i].id, id)) return i;
    }
    fail_msg("a command names an unknown peer");
    return 0;
}

static inline void peer_start(struct rounds *r, uint32_t index, const uint8_t *saved,
                              size_t saved_count)
{
    struct round_peer *p = &r->peers[index];
    struct exchange_options options = {.self = p->id, .chunks = r->chunks, .alpha = 0.5f};
    struct digest lineage = {{7}};

    p->life++;
    p->generation++;
    store_le64(p->boot.bytes, p->life);
    store_le64(p->boot.bytes + 8, index + 1);
    options.boot = p->boot;
    options.seed = r->seed + index;
    snprintf(options.codec, sizeof options.codec, "%s", r->codec->name);
    p->exchange = r->ops->create(&options);
    p->rule = rule_mean.create(r->values);
    assert_non_null(p->exchange);
    assert_non_null(p->rule);
    r->ops->set_lineage(p->exchange, lineage, &r->commands);
    commands_clear(&r->commands);
    if (saved != NULL) assert_int_equal(r->ops->load(p->exchange, saved, saved_count), RC_OK);
    p->is_alive = true;
    p->is_settling = false;
    p->lane_free_ns = r->now_ns;
}

static inline void chunks_free(uint8_t **chunks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(chunks[i]);
        chunks[i] = NULL;
    }
}

static inline void peer_stop(struct rounds *r, uint32_t index)
{
    struct round_peer *p = &r->peers[index];

    if (p->is_alive) {
        r->ops->destroy(p->exchange);
        rule_mean.destroy(p->rule);
    }
    chunks_free(p->offers, r->chunks);
    chunks_free(p->means, r->chunks);
    for (int i = 0; i < 4; i++) {
        free(p->doubts[i].difference);
        memset(&p->doubts[i], 0, sizeof p->doubts[i]);
    }
    p->is_alive = false;
}

static inline struct rounds *rounds_create(const struct exchange_ops *ops,
                                           const struct codec_ops *codec, uint32_t peers,
                                           uint32_t chunks, uint64_t seed)
{
    struct rounds *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->ops = ops;
    r->codec = codec;
    r->peers_count = peers;
    r->chunks = chunks;
    r->values = (size_t)chunks * ROUND_CHUNK - (chunks > 0 ? 5 : 0);
    r->seed = seed;
    r->pace_ns = 150 * NS_PER_MS;
    r->now_ns = NS_PER_S;
    r->is_learning = true;
    rng_init(&r->rng, seed, 1);
    commands_init(&r->commands);
    r->scratch = calloc(ROUND_CHUNK, sizeof(float));
    r->traces = calloc(ROUND_KEYS_MAX, sizeof *r->traces);
    r->ledger = calloc((size_t)peers * 64 * (chunks + 1), sizeof *r->ledger);
    for (uint32_t i = 0; i < peers; i++) {
        struct round_peer *p = &r->peers[i];

        store_le64(p->id.bytes, rng_u64(&r->rng));
        p->id.bytes[PEER_ID_BYTES - 1] = (uint8_t)i;
        p->model = calloc(r->values + 1, sizeof(float));
        p->snapshot = calloc(r->values + 1, sizeof(float));
        p->own = calloc(r->values + 1, sizeof(float));
        p->difference = calloc(r->values + 1, sizeof(float));
        p->offers = calloc(chunks + 1, sizeof(uint8_t *));
        p->means = calloc(chunks + 1, sizeof(uint8_t *));
        p->agreed = calloc(chunks + 1, sizeof *p->agreed);
        p->agreed_from = calloc(chunks + 1, sizeof *p->agreed_from);
        p->agreed_life = calloc(chunks + 1, sizeof *p->agreed_life);
        for (size_t j = 0; j < r->values; j++) {
            p->model[j] = (float)rng_unit(&r->rng);
        }
    }
    for (uint32_t i = 0; i < peers; i++) {
        struct event *begin = event_new(EVENT_BEGIN, i, r->now_ns + rng_below(&r->rng, r->pace_ns));

        peer_start(r, i, NULL, 0);
        rounds_push(r, begin);
        for (uint32_t j = 0; j < peers; j++) {
            r->links[i][j].is_up = i != j;
        }
    }
    for (uint32_t i = 0; i < peers; i++) {
        for (uint32_t j = 0; j < peers; j++) {
            if (i == j) continue;
            ops->on_link_up(r->peers[i].exchange, r->peers[j].id, r->peers[j].boot, r->now_ns,
                            &r->commands);
            commands_clear(&r->commands);
        }
    }
    return r;
}

static inline void rounds_destroy(struct rounds *r)
{
    while (r->heap_count > 0) {
        event_free(rounds_pop(r));
    }
    for (uint32_t i = 0; i < r->peers_count; i++) {
        struct round_peer *p = &r->peers[i];

        peer_stop(r, i);
        free(p->model);
        free(p->snapshot);
        free(p->own);
        free(p->difference);
        free(p->offers);
        free(p->means);
        free(p->agreed);
        free(p->agreed_from);
        free(p->agreed_life);
    }
    for (uint32_t i = 0; i < r->traces_count; i++) {
        free(r->traces[i].difference);
    }
    commands_deinit(&r->commands);
    free(r->scratch);
    free(r->traces);
    free(r->ledger);
    free(r->heap);
    free(r);
}

/* ---- links ---- */

/* When what is sent now arrives: in order on each link. */
static inline uint64_t arrival_ns(struct rounds *r, uint32_t from, uint32_t to)
{
    struct round_link *link = &r->links[from][to];
    uint64_t at = r->now_ns + NS_PER_MS / 10 + rng_below(&r->rng, 20 * NS_PER_MS);

    if (at <= link->last_ns) at = link->last_ns + 1;
    link->last_ns = at;
    return at;
}

static inline void message_keep(struct event *event)
{
    struct message *m = &event->message;
    const uint8_t **first = NULL, **second = NULL;
    uint32_t first_count = 0, second_count = 0;

    if (m->type == MESSAGE_READY) {
        first = &m->as.ready.bitmap;
        first_count = m->as.ready.bitmap_bytes;
        second = &m->as.ready.norms;
        second_count = m->as.ready.norms_bytes;
    } else if (m->type == MESSAGE_COMMIT) {
        first = &m->as.commit.bitmap;
        first_count = m->as.commit.bitmap_bytes;
    } else if (m->type == MESSAGE_OUTCOME) {
        first = &m->as.outcome.bitmap;
        first_count = m->as.outcome.bitmap_bytes;
    }
    if (first == NULL) return;
    event->bytes = malloc((size_t)first_count + second_count + 1);
    assert_non_null(event->bytes);
    if (first_count > 0) memcpy(event->bytes, *first, first_count);
    *first = event->bytes;
    if (second == NULL) return;
    if (second_count > 0) memcpy(event->bytes + first_count, *second, second_count);
    *second = event->bytes + first_count;
}

static inline void rounds_send(struct rounds *r, uint32_t from, const struct command *command)
{
    uint32_t to = peer_of(r, command->to);
    struct event *event;

    if (!r->links[from][to].is_up) return;
    event = event_new(EVENT_MESSAGE, to, arrival_ns(r, from, to));
    event->from = from;
    event->epoch = r->links[from][to].epoch;
    event->message = command->message;
    message_keep(event);
    rounds_push(r, event);
}

static inline void rounds_send_range(struct rounds *r, uint32_t from, const struct command *command)
{
    struct round_peer *p = &r->peers[from];
    uint32_t to = peer_of(r, command->to);

    assert_true(command->first + command->count <= r->chunks);
    for (uint32_t c = command->first; c < command->first + command->count; c++) {
        uint8_t *encoded = command->buffer == DATA_MEAN ? p->means[c] : p->offers[c];
        struct event *event;

        assert_non_null(encoded);
        if (!r->links[from][to].is_up) continue;
        event = event_new(EVENT_DATA, to, arrival_ns(r, from, to));
        event->from = from;
        event->epoch = r->links[from][to].epoch;
        event->chunk = (struct chunk_ref){p->id, command->buffer, command->stream, c};
        event->generation = p->life;
        event->bytes_count = r->codec->encoded_bytes(chunk_count(r, c));
        event->bytes = malloc(event->bytes_count + 1);
        assert_non_null(event->bytes);
        memcpy(event->bytes, encoded, event->bytes_count);
        if (p->poisons && command->buffer == DATA_OFFER) {
            memset(event->bytes, 0xff, r->codec->encoded_bytes(1));
        }
        rounds_push(r, event);
    }
}

/* Both ends hear of it, each in its own time. */
static inline void rounds_cut(struct rounds *r, uint32_t a, uint32_t b)
{
    if (a == b || !r->links[a][b].is_up) return;
    for (int side = 0; side < 2; side++) {
        uint32_t to = side == 0 ? a : b, from = side == 0 ? b : a;
        struct event *event =
            event_new(EVENT_LOST, to, r->now_ns + 1 + rng_below(&r->rng, 10 * NS_PER_MS));

        r->links[from][to].is_up = false;
        r->links[from][to].epoch++;
        event->from = from;
        event->epoch = r->peers[to].life;
        rounds_push(r, event);
    }
}

static inline void rounds_heal(struct rounds *r, uint32_t a, uint32_t b)
{
    if (a == b || r->links[a][b].is_up || !r->peers[a].is_alive || !r->peers[b].is_alive) return;
    for (int side = 0; side < 2; side++) {
        uint32_t to = side == 0 ? a : b, from = side == 0 ? b : a;
        struct event *event = event_new(EVENT_UP, to, r->now_ns + 10 * NS_PER_MS);

        r->links[from][to].is_up = true;
        r->links[from][to].last_ns = r->now_ns + 10 * NS_PER_MS; /* first the news of it */
        event->from = from;
        event->epoch = r->peers[to].life;
        rounds_push(r, event);
    }
}

static inline void rounds_kill(struct rounds *r, uint32_t index)
{
    if (!r->peers[index].is_alive) return;
    for (uint32_t i = 0; i < r->peers_count; i++) {
        rounds_cut(r, index, i);
    }
    for (uint32_t i = 0; i < r->traces_count; i++) {
        r->traces[i].is_exempt |= r->traces[i].peers[0] == index || r->traces[i].peers[1] == index;
    }
    peer_stop(r, index);
}

static inline void rounds_restart(struct rounds *r, uint32_t index, const uint8_t *saved,
                                  size_t count)
{
    struct event *begin;

    if (r->peers[index].is_alive) return;
    peer_start(r, index, saved, count);
    begin = event_new(EVENT_BEGIN, index, r->now_ns + r->pace_ns);
    begin->epoch = r->peers[index].life;
    rounds_push(r, begin);
    for (uint32_t i = 0; i < r->peers_count; i++) {
        rounds_heal(r, index, i);
    }
}

/* ---- the job lane ---- */

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

static inline struct round_trace *trace_of(struct rounds *r, const struct round_key *key)
{
    for (uint32_t i = 0; i < r->traces_count; i++) {
        struct round_trace *trace = &r->traces[i];

        if (trace->key.counter == key->counter &&
            peer_id_is_equal(trace->key.initiator, key->initiator) &&
            boot_id_is_equal(trace->key.boot, key->boot)) {
            return trace;
        }
    }
    assert_true(r->traces_count < ROUND_KEYS_MAX);
    r->traces[r->traces_count].key = *key;
    return &r->traces[r->traces_count++];
}

/* The difference goes to the live model; the two ends of a pair must be exact negatives. */
static inline void rounds_apply(struct rounds *r, uint32_t index, const struct round_key *key,
                                const float *difference)
{
    struct round_peer *p = &r->peers[index];
    struct round_trace *trace;

    for (size_t i = 0; i < r->values; i++) {
        p->model[i] += difference[i];
    }
    p->committed++;
    if (r->ops->is_group) return;
    trace = trace_of(r, key);
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
    for (size_t i = 0; i < r->values; i++) {
        check_seed(r->seed, trace->difference[i] == -difference[i]);
    }
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
    size_t slot = (size_t)(round + 29 * life) % 64;

    return &r->ledger[((size_t)owner * 64 + slot) * (r->chunks + 1) + chunk];
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
    for (uint32_t c = 0; c < r->chunks; c++) {
        struct range range = chunk_range(r, c);
        size_t bytes = r->codec->encoded_bytes(range.count);

        p->offers[c] = malloc(bytes + 1);
        assert_non_null(p->offers[c]);
        r->codec->encode(p->snapshot + range.first, range.count, p->offers[c]);
        assert_int_equal(r->codec->decode(p->offers[c], bytes, p->own + range.first, range.count),
                         RC_OK);
    }
    rule_mean.begin(p->rule, &view);
}

static inline enum rc lane_reduce(struct rounds *r, struct round_peer *p, uint32_t index,
                                  uint64_t round, uint32_t c, struct digest *hash)
{
    struct range range = chunk_range(r, c);
    size_t bytes = r->codec->encoded_bytes(range.count);
    enum rc rc = rule_mean.reduce(p->rule, range, r->scratch);

    if (rc != RC_OK) return rc;
    assert_null(p->means[c]);
    p->means[c] = malloc(bytes + 1);
    assert_non_null(p->means[c]);
    r->codec->encode(r->scratch, range.count, p->means[c]);
    *hash = hash_of(p->means[c], bytes);
    assert_int_equal(r->codec->decode(p->means[c], bytes, r->scratch, range.count), RC_OK);
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
    enum rc rc = r->codec->decode(job->bytes, job->bytes_count, r->scratch, range.count);

    if (rc != RC_OK) return rc;
    *hash = hash_of(job->bytes, job->bytes_count);
    if (job->chunk.kind == DATA_MEAN) {
        p->agreed[job->chunk.chunk] = *hash;
        p->agreed_from[job->chunk.chunk] = peer_of(r, job->chunk.from);
        p->agreed_life[job->chunk.chunk] = job->first;
        return rule_mean.agree(p->rule, range, r->scratch);
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

static inline void lane_late(struct rounds *r, uint32_t index, const struct event *job)
{
    struct round_doubt *doubt = doubt_of(&r->peers[index], &job->over.key);

    if (job->over.result == OVER_COMMITTED) {
        rule_commit_late(doubt->difference, r->values, job->bytes, ROUND_CHUNK, job->over.scale);
        rounds_apply(r, index, &job->over.key, doubt->difference);
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
        rc = lane_reduce(r, p, job->to, job->over.round, job->first, &hash);
        if (job->generation != p->generation) return;
        r->ops->on_job_done(p->exchange, JOB_REDUCE, job->first, rc, hash, r->now_ns, &r->commands);
        break;
    case LANE_CHECK:
        rc = lane_check(r, p, job, &hash, &distance);
        if (job->generation != p->generation) return;
        r->ops->on_chunk_checked(p->exchange, &job->chunk, rc, hash, distance, r->now_ns,
                                 &r->commands);
        break;
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

/* ---- commands ---- */

static inline void rounds_over(struct rounds *r, uint32_t index, const struct command_over *over)
{
    struct round_peer *p = &r->peers[index];
    enum lane_job kind = over->is_late                  ? LANE_LATE
                         : over->result == OVER_ABORTED ? LANE_CANCEL
                                                        : LANE_SETTLE;
    struct event *job = lane_submit(r, index, kind);

    job->over = *over;
    job->bytes = malloc(over->bitmap_bytes + 1u);
    assert_non_null(job->bytes);
    if (over->bitmap_bytes > 0) memcpy(job->bytes, over->bitmap, over->bitmap_bytes);
    if (over->is_late) return;
    p->generation++;
    p->is_settling = kind == LANE_SETTLE;
    if (over->result == OVER_ABORTED) assert_non_null(over->reason);
}

static inline void rounds_obey(struct rounds *r, uint32_t index)
{
    assert_false(r->commands.is_short_of_memory);
    for (uint32_t i = 0; i < r->commands.count; i++) {
        const struct command *command = &r->commands.items[i];
        struct event *job;

        switch (command->type) {
        case COMMAND_SEND:
            rounds_send(r, index, command);
            break;
        case COMMAND_SEND_RANGE:
            rounds_send_range(r, index, command);
            break;
        case COMMAND_SNAPSHOT:
            (void)lane_submit(r, index, LANE_SNAPSHOT);
            break;
        case COMMAND_ABSORB_OWN:
            job = lane_submit(r, index, LANE_OWN);
            job->first = command->first;
            job->count = command->count;
            break;
        case COMMAND_REDUCE:
            job = lane_submit(r, index, LANE_REDUCE);
            job->first = command->first;
            job->over.round = command->stream;
            break;
        case COMMAND_OVER:
            rounds_over(r, index, &command->over);
            break;
        case COMMAND_SCORE:
            r->scores++;
            break;
        }
    }
    commands_clear(&r->commands);
}

/* ---- events ---- */

static inline uint64_t order_of(struct peer_id id, uint64_t round)
{
    return rng_mix(load_le64(id.bytes), round);
}

/* Self and all linked peers in the order of the round. */
static inline uint32_t rounds_members(struct rounds *r, uint32_t index, uint64_t round,
                                      struct peer_id *ids, struct boot_id *boots)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        uint32_t at = count;

        if (i != index && !r->links[i][index].is_up) continue;
        for (; at > 0 && order_of(ids[at - 1], round) > order_of(r->peers[i].id, round); at--) {
            ids[at] = ids[at - 1];
            boots[at] = boots[at - 1];
        }
        ids[at] = r->peers[i].id;
        boots[at] = r->peers[i].boot;
        count++;
    }
    return count;
}

static inline void rounds_begin(struct rounds *r, uint32_t index)
{
    struct round_peer *p = &r->peers[index];
    struct peer_id ids[ROUND_PEERS_MAX];
    struct boot_id boots[ROUND_PEERS_MAX];
    struct round_members members = {ids, boots, 0};
    struct exchange_counts counts;
    struct event *again =
        event_new(EVENT_BEGIN, index, r->now_ns + r->pace_ns / 2 + rng_below(&r->rng, r->pace_ns));
    enum rc rc;

    again->epoch = p->life;
    rounds_push(r, again);
    if (p->is_settling || !r->is_learning) return;
    r->ops->counts(p->exchange, &counts);
    members.count = rounds_members(r, index, counts.next_round, ids, boots);
    if (!r->ops->is_group) {
        uint32_t partner = (uint32_t)rng_below(&r->rng, r->peers_count);

        if (partner == index || !r->links[partner][index].is_up) return;
        ids[0] = r->peers[partner].id;
        boots[0] = r->peers[partner].boot;
        members.count = 1;
    }
    rc = r->ops->begin(p->exchange, &members, 100, r->now_ns, &r->commands);
    assert_true(rc == RC_OK || rc == RC_BUSY || rc == RC_NOT_FOUND);
    rounds_obey(r, index);
}

static inline void rounds_data(struct rounds *r, struct event *event)
{
    struct round_peer *p = &r->peers[event->to];
    float weight = 1;
    struct event *job;

    if (r->ops->on_chunk(p->exchange, &event->chunk, &weight) != RC_OK) {
        r->refused++;
        return;
    }
    job = lane_submit(r, event->to, LANE_CHECK);
    job->chunk = event->chunk;
    job->weight = weight;
    job->first = (uint32_t)event->generation;
    job->bytes = event->bytes;
    job->bytes_count = event->bytes_count;
    event->bytes = NULL;
}

static inline void rounds_event(struct rounds *r, struct event *event)
{
    struct round_peer *p = &r->peers[event->to], *from = &r->peers[event->from];

    if (!p->is_alive) return;
    if (event->type == EVENT_MESSAGE || event->type == EVENT_DATA) {
        if (event->epoch != r->links[event->from][event->to].epoch) return;
    } else if (event->epoch != p->life && event->epoch != 0) {
        return;
    }
    switch (event->type) {
    case EVENT_MESSAGE:
        r->refused += r->ops->on_message(p->exchange, from->id, from->boot, &event->message,
                                         r->now_ns, &r->commands) != RC_OK;
        rounds_obey(r, event->to);
        break;
    case EVENT_DATA:
        rounds_data(r, event);
        break;
    case EVENT_JOB:
        rounds_job(r, event);
        break;
    case EVENT_BEGIN:
        rounds_begin(r, event->to);
        break;
    case EVENT_LOST:
        r->ops->on_link_lost(p->exchange, from->id, r->now_ns, &r->commands);
        rounds_obey(r, event->to);
        break;
    case EVENT_UP:
        if (!r->links[event->from][event->to].is_up) break;
        r->ops->on_link_up(p->exchange, from->id, from->boot, r->now_ns, &r->commands);
        rounds_obey(r, event->to);
        break;
    }
}

/* One event or one tick, whichever is due first; false past `until_ns`. */
static inline bool rounds_step(struct rounds *r, uint64_t until_ns)
{
    uint64_t due = r->heap_count > 0 ? r->heap[0]->at_ns : UINT64_MAX;
    uint32_t ticks = UINT32_MAX;
    struct event *event;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        uint64_t next = r->peers[i].is_alive ? r->ops->next_ns(r->peers[i].exchange) : UINT64_MAX;

        if (next < due) {
            due = next;
            ticks = i;
        }
    }
    if (due > until_ns) {
        r->now_ns = until_ns;
        return false;
    }
    if (due > r->now_ns) r->now_ns = due;
    if (ticks != UINT32_MAX) {
        r->ops->tick(r->peers[ticks].exchange, r->now_ns, &r->commands);
        rounds_obey(r, ticks);
        return true;
    }
    event = rounds_pop(r);
    rounds_event(r, event);
    event_free(event);
    return true;
}

static inline void rounds_run(struct rounds *r, uint64_t for_ns)
{
    uint64_t until = r->now_ns + for_ns;

    while (rounds_step(r, until)) {
    }
}

/* ---- what can be measured ---- */

static inline double rounds_sum(const struct rounds *r)
{
    double sum = 0;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        for (size_t j = 0; j < r->values; j++) {
            sum += (double)r->peers[i].model[j];
        }
    }
    return sum;
}

static inline double rounds_local(const struct rounds *r)
{
    double sum = 0;

    for (uint32_t i = 0; i < r->peers_count; i++) {
        sum += r->peers[i].local;
    }
    return sum;
}

/* The largest distance of two live peers in one coordinate. */
static inline double rounds_spread(const struct rounds *r)
{
    double spread = 0;

    for (size_t j = 0; j < r->values; j++) {
        float least = INFINITY, most = -INFINITY;

        for (uint32_t i = 0; i < r->peers_count; i++) {
            if (!r->peers[i].is_alive) continue;
            least = fminf(least, r->peers[i].model[j]);
            most = fmaxf(most, r->peers[i].model[j]);
        }
        spread = fmax(spread, (double)most - (double)least);
    }
    return spread;
}

static inline bool rounds_is_inside(const struct rounds *r, double least, double most)
{
    for (uint32_t i = 0; i < r->peers_count; i++) {
        for (size_t j = 0; j < r->values; j++) {
            double x = (double)r->peers[i].model[j];

            if (!(x >= least && x <= most)) return false;
        }
    }
    return true;
}

static inline struct exchange_counts rounds_counts(const struct rounds *r, uint32_t index)
{
    struct exchange_counts counts;

    r->ops->counts(r->peers[index].exchange, &counts);
    return counts;
}

#endif

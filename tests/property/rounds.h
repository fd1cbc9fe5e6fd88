/*
 * rounds: a swarm in memory for property tests of the exchanges: real exchanges, rules, codecs and
 * float planes over pretend links and job lanes with seeded delays. Links deliver whole and in
 * order and are reported lost once; peers can be cut off, killed and started again. One heap of
 * events ordered by (time, sequence): a run is a function of its seed.
 */
#ifndef GRAPEVINE_TESTS_ROUNDS_H
#define GRAPEVINE_TESTS_ROUNDS_H

#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "averaging/core/exchange.h"
#include "averaging/rule/rule.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

enum { ROUND_PEERS_MAX = 8, ROUND_CHUNK = 64, ROUND_KEYS_MAX = 4096, ROUND_LEDGER_SLOTS = 256 };

enum event_type { EVENT_MESSAGE, EVENT_DATA, EVENT_JOB, EVENT_BEGIN, EVENT_LOST, EVENT_UP };

enum lane_job {
    LANE_SNAPSHOT,
    LANE_OWN,
    LANE_REDUCE,
    LANE_CHECK,
    LANE_EDGE,
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
    bool is_partial;
    float weight;
    struct command_over over; /* SETTLE, LATE: its bitmap is in `bytes` */
    struct command_edge edge; /* EDGE: with peer `from`; CHECK: its slot */
};

/* What a pair round, or an edge of a round, did at its two ends. */
struct round_trace {
    struct round_key key;
    uint32_t other;    /* of an edge: the end that does not decide */
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
    uint8_t **offers, **means, **partials; /* encoded chunks */
    struct digest *agreed;                 /* hash of the encoded chunk that was agreed */
    uint32_t *agreed_from;                 /* its owner, and in which life */
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
    const struct codec *codec;
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
    bool is_ring; /* neighbours: those next by number; else all */
    enum schedule schedule;
    bool clips;    /* --robust clip, of pairs and neighbours: one seed of four */
    bool is_even;  /* both ends of a swap move by exact negatives */
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
    struct exchange_options options = {.self = p->id,
                                       .chunks = r->chunks,
                                       .schedule = r->schedule,
                                       .may_relay = true,
                                       .clips = r->clips,
                                       .chunk_bytes = 4 * ROUND_CHUNK};
    struct digest lineage = {{7}};

    p->life++;
    p->generation++;
    store_le64(p->boot.bytes, p->life);
    store_le64(p->boot.bytes + 8, index + 1);
    options.boot = p->boot;
    snprintf(options.codec, sizeof options.codec, "%s", r->codec->name);
    p->exchange = r->ops->create(&options);
    p->rule = rule_mean.create(r->values, NULL);
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
    chunks_free(p->partials, r->chunks);
    for (int i = 0; i < 4; i++) {
        free(p->doubts[i].difference);
        memset(&p->doubts[i], 0, sizeof p->doubts[i]);
    }
    p->is_alive = false;
}

static inline struct rounds *rounds_create_with(const struct exchange_ops *ops,
                                                const struct codec *codec, enum schedule schedule,
                                                uint32_t peers, uint32_t chunks, uint64_t seed)
{
    struct rounds *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->ops = ops;
    r->codec = codec;
    r->schedule = schedule;
    r->peers_count = peers;
    r->chunks = chunks;
    r->values = (size_t)chunks * ROUND_CHUNK - (chunks > 0 ? 5 : 0);
    r->seed = seed;
    r->pace_ns = 150 * NS_PER_MS;
    r->now_ns = NS_PER_S;
    r->is_learning = true;
    r->clips = !ops->is_group && seed % 4 == 1;
    r->is_even = !r->clips; /* by its own radius each */
    rng_init(&r->rng, seed, 1);
    commands_init(&r->commands);
    r->scratch = calloc(ROUND_CHUNK, sizeof(float));
    r->traces = calloc(ROUND_KEYS_MAX, sizeof *r->traces);
    r->ledger = calloc((size_t)peers * ROUND_LEDGER_SLOTS * (chunks + 1), sizeof *r->ledger);
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
        p->partials = calloc(chunks + 1, sizeof(uint8_t *));
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

static inline struct rounds *rounds_create(const struct exchange_ops *ops,
                                           const struct codec *codec, uint32_t peers,
                                           uint32_t chunks, uint64_t seed)
{
    return rounds_create_with(ops, codec, SCHEDULE_AUTO, peers, chunks, seed);
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
        free(p->partials);
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
    uint32_t count = m->as.form.statements_bytes;

    if (m->type != MESSAGE_START) return;
    event->bytes = malloc((size_t)count + 1);
    assert_non_null(event->bytes);
    if (count > 0) memcpy(event->bytes, m->as.form.statements, count);
    m->as.form.statements = event->bytes;
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
        uint8_t *encoded = command->is_partial            ? p->partials[c]
                           : command->buffer == DATA_MEAN ? p->means[c]
                                                          : p->offers[c];
        struct event *event;

        assert_non_null(encoded);
        if (!r->links[from][to].is_up) continue;
        event = event_new(EVENT_DATA, to, arrival_ns(r, from, to));
        event->from = from;
        event->epoch = r->links[from][to].epoch;
        event->chunk = (struct chunk_ref){p->id, command->buffer, command->stream, c};
        event->first = command->buffer == DATA_MEAN ? p->agreed_from[c] : from; /* the owner */
        event->generation = command->buffer == DATA_MEAN ? p->agreed_life[c] : p->life;
        event->bytes_count = r->codec->ops->bytes_max(r->codec, chunk_count(r, c));
        event->bytes = malloc(event->bytes_count + 1);
        assert_non_null(event->bytes);
        memcpy(event->bytes, encoded, event->bytes_count);
        if (p->poisons && command->buffer == DATA_OFFER) {
            memset(event->bytes, 0xff, r->codec->ops->bytes_max(r->codec, 1));
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

#endif

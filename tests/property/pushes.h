/*
 * pushes: a swarm of bare push exchanges with rules and planes, and nothing that orders events but
 * a seed: each step delivers the head of some link (or loses it), runs some peer's next job, begins
 * a round, cuts or heals a link, lets time pass, or kills a peer that starts again at once from a
 * checkpoint of that instant. The ledger is looked at after each step.
 */
#ifndef GRAPEVINE_TESTS_PUSHES_H
#define GRAPEVINE_TESTS_PUSHES_H

#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "averaging/push/push.h"
#include "averaging/rule/rule.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

enum { PUSH_PEERS = 16, PUSH_CHUNKS = 2, PUSH_VALUES = 100, QUEUE = 256, APPLIED = 4096 };

struct parcel {
    bool is_chunk;
    struct message message;
    struct chunk_ref chunk;
    float values[64];
};

struct pipe {
    struct parcel *items[QUEUE];
    uint32_t first, count;
    bool is_up;
    bool is_doomed; /* a chunk was lost on it, as happens to chunks only with their link */
};

struct push_job {
    enum { PUSH_SNAPSHOT, PUSH_CHECK, PUSH_ABSORB } work;
    uint64_t generation;
    struct parcel *parcel;
    float weight;
    struct round_key key;
};

struct push_plane {
    bool is_used;
    struct round_key key;
    float values[PUSH_VALUES];
};

struct push_peer {
    struct peer_id id;
    struct boot_id boot;
    struct exchange *exchange;
    struct rule *rule;
    uint64_t generation, life, pushed;
    float model[PUSH_VALUES], snapshot[PUSH_VALUES], own[PUSH_VALUES];
    struct push_plane held[SHARES_MAX + 1];
    struct round_key applied[APPLIED]; /* shares of others that are in the model */
    uint32_t applied_count;
    struct push_job jobs[QUEUE];
    uint32_t jobs_count;
    bool is_running; /* a snapshot is there */
};

struct pushes {
    const struct codec *codec;
    uint32_t peers_count;
    uint64_t seed, now_ns, lost, killed;
    double loss; /* of what is sent */
    struct rng rng;
    struct push_peer peers[PUSH_PEERS];
    struct pipe pipes[PUSH_PEERS][PUSH_PEERS]; /* [from][to] */
    struct commands commands;
};

static inline struct push *push_at(struct pushes *p, uint32_t index)
{
    return push_of(p->peers[index].exchange);
}

static inline uint32_t push_index(const struct pushes *p, struct peer_id id)
{
    for (uint32_t i = 0; i < p->peers_count; i++) {
        if (peer_id_is_equal(p->peers[i].id, id)) return i;
    }
    fail_msg("an unknown peer");
    return 0;
}

static inline struct range push_range(uint32_t chunk)
{
    return chunk == 0 ? (struct range){0, 64} : (struct range){64, PUSH_VALUES - 64};
}

/* ---- the ledger ---- */

static inline bool was_applied(const struct push_peer *peer, const struct round_key *key)
{
    for (uint32_t i = 0; i < peer->applied_count; i++) {
        if (round_key_is_equal(&peer->applied[i], key)) return true;
    }
    return false;
}

static inline const float *held_values(const struct push_peer *peer, const struct round_key *key)
{
    for (uint32_t i = 0; i < ARRAY_COUNT(peer->held); i++) {
        if (peer->held[i].is_used && round_key_is_equal(&peer->held[i].key, key)) {
            return peer->held[i].values;
        }
    }
    return NULL;
}

struct ledger {
    double weight, mass; /* mass: of all values, each times its weight */
};

static inline void ledger_share(struct pushes *p, struct ledger *ledger, uint32_t to,
                                const struct round_key *key, float weight, const float *values)
{
    if (was_applied(&p->peers[to], key)) return;
    ledger->weight += (double)weight;
    for (size_t k = 0; k < PUSH_VALUES; k++) {
        ledger->mass += (double)weight * (double)values[k];
    }
}

static inline struct ledger pushes_ledger(struct pushes *p)
{
    struct ledger ledger = {0, 0};

    for (uint32_t i = 0; i < p->peers_count; i++) {
        struct push *push = push_at(p, i);
        const struct push_peer *peer = &p->peers[i];

        ledger.weight += push->weight;
        for (size_t k = 0; k < PUSH_VALUES; k++) {
            ledger.mass += push->weight * (double)peer->model[k];
        }
        for (uint32_t c = 0; c < SHARES_MAX; c++) {
            const struct push_custody *custody = &push->custody[c];

            if (!custody->is_used) continue;
            assert_non_null(held_values(peer, &custody->key));
            ledger_share(p, &ledger, push_index(p, custody->to), &custody->key, custody->weight,
                         held_values(peer, &custody->key));
        }
        if (push->out == OUT_SENDING || push->out == OUT_SENT) {
            ledger_share(p, &ledger, push_index(p, push->to.id), &push->out_key, push->out_weight,
                         peer->own);
        }
    }
    return ledger;
}

/* ---- what the exchange says ---- */

static inline void pipe_put(struct pushes *p, uint32_t from, uint32_t to, struct parcel parcel)
{
    struct pipe *pipe = &p->pipes[from][to];

    if (!pipe->is_up) return;
    if (rng_unit(&p->rng) < p->loss) {
        p->lost++;
        pipe->is_doomed |= parcel.is_chunk;
        return;
    }
    assert_true(pipe->count < QUEUE);
    pipe->items[(pipe->first + pipe->count) % QUEUE] = malloc(sizeof parcel);
    assert_non_null(pipe->items[(pipe->first + pipe->count) % QUEUE]);
    *pipe->items[(pipe->first + pipe->count) % QUEUE] = parcel;
    pipe->count++;
}

static inline void job_put(struct push_peer *peer, struct push_job job)
{
    assert_true(peer->jobs_count < QUEUE);
    job.generation = peer->generation;
    peer->jobs[peer->jobs_count++] = job;
}

static inline void over(struct pushes *p, uint32_t index, const struct command_over *over)
{
    struct push_peer *peer = &p->peers[index];
    static const uint8_t all[PUSH_CHUNKS] = {0xff};
    const uint8_t *bitmap = over->bitmap == NULL ? all : over->bitmap;
    float difference[PUSH_VALUES];

    peer->generation++;
    if (over->result == OVER_COMMITTED) {
        bool is_others = over->scale > 0 && !peer_id_is_equal(over->key.initiator, peer->id);

        assert_true(peer->is_running);
        rule_push.set_sent(peer->rule, over->sent, peer->snapshot);
        rule_push.settle(peer->rule, bitmap, 64, over->scale, difference);
        for (size_t k = 0; k < PUSH_VALUES; k++) {
            peer->model[k] += difference[k];
        }
        if (is_others) {
            assert_false(was_applied(peer, &over->key)); /* never twice */
            assert_true(peer->applied_count < APPLIED);
            peer->applied[peer->applied_count++] = over->key;
        }
        peer->pushed += over->sent > 0;
    } else {
        rule_push.cancel(peer->rule);
    }
    peer->is_running = false;
}

static inline void send_range(struct pushes *p, uint32_t from, const struct command *command)
{
    for (uint32_t c = command->first; c < command->first + command->count; c++) {
        struct parcel parcel = {.is_chunk = true};
        struct range range = push_range(c);

        assert_true(p->peers[from].is_running);
        parcel.chunk = (struct chunk_ref){p->peers[from].id, command->buffer, command->stream, c};
        memcpy(parcel.values, p->peers[from].own + range.first, range.count * sizeof(float));
        pipe_put(p, from, push_index(p, command->to), parcel);
    }
}

static inline void hold(struct push_peer *peer, const struct round_key *key)
{
    uint32_t i = 0;

    while (peer->held[i].is_used) {
        assert_true(++i < ARRAY_COUNT(peer->held));
    }
    peer->held[i].is_used = true;
    peer->held[i].key = *key;
    memcpy(peer->held[i].values, peer->own, sizeof peer->own);
}

static inline void release(struct push_peer *peer, const struct round_key *key)
{
    for (uint32_t i = 0; i < ARRAY_COUNT(peer->held); i++) {
        if (round_key_is_equal(&peer->held[i].key, key)) peer->held[i].is_used = false;
    }
}

static inline void pushes_obey(struct pushes *p, uint32_t index)
{
    struct push_peer *peer = &p->peers[index];

    assert_false(p->commands.is_short_of_memory);
    for (uint32_t i = 0; i < p->commands.count; i++) {
        const struct command *command = &p->commands.items[i];

        switch (command->type) {
        case COMMAND_SEND:
            pipe_put(p, index, push_index(p, command->to),
                     (struct parcel){.message = command->message});
            break;
        case COMMAND_SEND_RANGE:
            send_range(p, index, command);
            break;
        case COMMAND_SNAPSHOT:
            job_put(peer, (struct push_job){.work = PUSH_SNAPSHOT});
            break;
        case COMMAND_HOLD:
            hold(peer, &command->key);
            break;
        case COMMAND_RELEASE:
            release(peer, &command->key);
            break;
        case COMMAND_ABSORB_HELD:
            job_put(peer, (struct push_job){.work = PUSH_ABSORB, .key = command->key});
            break;
        case COMMAND_OVER:
            over(p, index, &command->over);
            break;
        case COMMAND_SCORE:
        case COMMAND_STOP_RANGE: /* nothing is queued here */
            break;
        default:
            fail_msg("a command of another exchange");
        }
    }
    commands_clear(&p->commands);
}

/* ---- events ---- */

static inline void snapshot(struct pushes *p, struct push_peer *peer)
{
    struct rule_view view = {peer->own, PUSH_VALUES};
    uint8_t encoded[PUSH_VALUES * 4 + 64];

    memcpy(peer->snapshot, peer->model, sizeof peer->model);
    for (uint32_t c = 0; c < PUSH_CHUNKS; c++) {
        struct range range = push_range(c);

        p->codec->ops->encode(p->codec, 0, peer->snapshot + range.first, range.count, encoded);
        assert_int_equal(p->codec->ops->decode(p->codec, encoded,
                                               p->codec->ops->bytes_max(p->codec, range.count),
                                               peer->own + range.first, range.count),
                         RC_OK);
    }
    rule_push.begin(peer->rule, &view);
    peer->is_running = true;
}

static inline void pushes_job(struct pushes *p, uint32_t index)
{
    struct push_peer *peer = &p->peers[index];
    struct push_job job = peer->jobs[0];
    const struct exchange_ops *ops = peer->exchange->ops;
    struct digest hash = {{0}};
    enum rc rc = RC_OK;

    if (peer->jobs_count == 0) return;
    memmove(&peer->jobs[0], &peer->jobs[1], --peer->jobs_count * sizeof job);
    if (job.generation != peer->generation) {
        free(job.parcel);
        return;
    }
    switch (job.work) {
    case PUSH_SNAPSHOT:
        snapshot(p, peer);
        ops->on_job_done(peer->exchange, JOB_SNAPSHOT, 0, RC_OK, hash, p->now_ns, &p->commands);
        break;
    case PUSH_CHECK: {
        struct range range = push_range(job.parcel->chunk.chunk);

        assert_true(peer->is_running);
        rc = rule_push.absorb(peer->rule, range, job.weight, job.parcel->values);
        assert_int_equal(rc, RC_OK);
        ops->on_chunk_checked(peer->exchange, &job.parcel->chunk, rc, hash, 1, p->now_ns,
                              &p->commands);
        free(job.parcel);
        break;
    }
    case PUSH_ABSORB:
        for (uint32_t c = 0; c < PUSH_CHUNKS; c++) {
            const float *values = held_values(peer, &job.key);

            assert_non_null(values);
            rc = rule_push.absorb(peer->rule, push_range(c), 1, values + push_range(c).first);
            assert_int_equal(rc, RC_OK);
        }
        ops->on_job_done(peer->exchange, JOB_ABSORB_HELD, 0, rc, hash, p->now_ns, &p->commands);
        break;
    }
    pushes_obey(p, index);
}

static inline void pushes_deliver(struct pushes *p, uint32_t from, uint32_t to)
{
    struct pipe *pipe = &p->pipes[from][to];
    struct push_peer *peer = &p->peers[to];
    struct parcel *parcel;
    struct chunk_use use = {.weight = 1};

    if (pipe->count == 0) return;
    parcel = pipe->items[pipe->first];
    pipe->first = (pipe->first + 1) % QUEUE;
    pipe->count--;
    if (parcel->is_chunk) {
        if (peer->exchange->ops->on_chunk(peer->exchange, &parcel->chunk, &use) == RC_OK) {
            job_put(peer,
                    (struct push_job){.work = PUSH_CHECK, .parcel = parcel, .weight = use.weight});
            return;
        }
    } else {
        (void)!peer->exchange->ops->on_message(peer->exchange, p->peers[from].id,
                                               p->peers[from].boot, &parcel->message, p->now_ns,
                                               &p->commands);
        pushes_obey(p, to);
    }
    free(parcel);
}

static inline void pushes_begin(struct pushes *p, uint32_t index)
{
    uint32_t to = (uint32_t)rng_below(&p->rng, p->peers_count);
    struct push_peer *peer = &p->peers[index];
    struct round_members members = {
        .ids = &p->peers[to].id, .boots = &p->peers[to].boot, .count = 1};

    if (to == index || !p->pipes[index][to].is_up) return;
    (void)!peer->exchange->ops->begin(peer->exchange, &members, 1, p->now_ns, &p->commands);
    pushes_obey(p, index);
}

static inline void pushes_time(struct pushes *p, uint64_t for_ns)
{
    p->now_ns += for_ns;
    for (uint32_t i = 0; i < p->peers_count; i++) {
        struct exchange *exchange = p->peers[i].exchange;

        if (exchange->ops->next_ns(exchange) > p->now_ns) continue;
        exchange->ops->tick(exchange, p->now_ns, &p->commands);
        pushes_obey(p, i);
    }
}

static inline void pipe_clear(struct pipe *pipe)
{
    while (pipe->count > 0) {
        free(pipe->items[pipe->first]);
        pipe->first = (pipe->first + 1) % QUEUE;
        pipe->count--;
    }
}

static inline void pushes_cut(struct pushes *p, uint32_t a, uint32_t b)
{
    if (a == b || !p->pipes[a][b].is_up) return;
    for (int side = 0; side < 2; side++) {
        uint32_t from = side == 0 ? a : b, to = side == 0 ? b : a;
        struct exchange *exchange = p->peers[from].exchange;

        p->pipes[from][to].is_up = p->pipes[to][from].is_up = false;
        pipe_clear(&p->pipes[from][to]);
        exchange->ops->on_link_lost(exchange, p->peers[to].id, p->now_ns, &p->commands);
        pushes_obey(p, from);
    }
}

static inline void pushes_heal(struct pushes *p, uint32_t a, uint32_t b)
{
    if (a == b || p->pipes[a][b].is_up) return;
    p->pipes[a][b].is_up = p->pipes[b][a].is_up = true;
    for (int side = 0; side < 2; side++) {
        uint32_t from = side == 0 ? a : b, to = side == 0 ? b : a;
        struct exchange *exchange = p->peers[from].exchange;

        exchange->ops->on_link_up(exchange, p->peers[to].id, p->peers[to].boot, p->now_ns,
                                  &p->commands);
        pushes_obey(p, from);
    }
}

static inline void pushes_start(struct pushes *p, uint32_t index, const uint8_t *saved,
                                size_t count)
{
    struct push_peer *peer = &p->peers[index];
    struct digest lineage = {{7}};
    struct exchange_options options = {.self = peer->id, .chunks = PUSH_CHUNKS};

    store_le64(peer->boot.bytes, ++peer->life);
    options.boot = peer->boot;
    snprintf(options.codec, sizeof options.codec, "%s", p->codec->name);
    peer->exchange = exchange_push.create(&options);
    peer->rule = rule_push.create(PUSH_VALUES, NULL);
    assert_non_null(peer->exchange);
    assert_non_null(peer->rule);
    exchange_push.set_lineage(peer->exchange, lineage, &p->commands);
    assert_int_equal(p->commands.count, 0);
    if (saved != NULL) {
        assert_int_equal(exchange_push.load(peer->exchange, saved, count), RC_OK);
    }
}

static inline void peer_end(struct push_peer *peer)
{
    for (uint32_t i = 0; i < peer->jobs_count; i++) {
        free(peer->jobs[i].parcel);
    }
    peer->jobs_count = 0;
    peer->is_running = false;
    peer->generation++;
    exchange_push.destroy(peer->exchange);
    rule_push.destroy(peer->rule);
}

/* Killed with a checkpoint of this instant, and started again from it. */
static inline void pushes_kill(struct pushes *p, uint32_t index)
{
    struct push_peer *peer = &p->peers[index];
    struct push_plane kept[SHARES_MAX + 1] = {{0}};
    struct exchange_counts counts;
    uint8_t *saved = NULL;
    size_t count = 0;

    p->killed++;
    assert_int_equal(exchange_push.save(peer->exchange, &saved, &count), RC_OK);
    exchange_push.counts(peer->exchange, &counts);
    for (uint32_t i = 0; i < counts.custody; i++) {
        const float *values = held_values(peer, &counts.held[i]);

        assert_true(i < ARRAY_COUNT(kept));
        kept[i].is_used = true;
        kept[i].key = counts.held[i];
        memcpy(kept[i].values, values == NULL ? peer->own : values, sizeof peer->own);
    }
    peer_end(peer);
    memcpy(peer->held, kept, sizeof kept);
    pushes_start(p, index, saved, count);
    mem_free(saved);
    for (uint32_t i = 0; i < p->peers_count; i++) { /* the others hear of it */
        struct exchange *other = p->peers[i].exchange;

        if (i == index || !p->pipes[i][index].is_up) continue;
        p->pipes[i][index].is_up = p->pipes[index][i].is_up = false;
        pipe_clear(&p->pipes[i][index]);
        pipe_clear(&p->pipes[index][i]);
        other->ops->on_link_lost(other, peer->id, p->now_ns, &p->commands);
        pushes_obey(p, i);
        pushes_heal(p, i, index);
    }
}

static inline struct pushes *pushes_create(const struct codec *codec, uint32_t peers, uint64_t seed)
{
    struct pushes *p = calloc(1, sizeof *p);

    assert_non_null(p);
    assert_true(peers <= PUSH_PEERS);
    p->codec = codec;
    p->peers_count = peers;
    p->seed = seed;
    p->now_ns = NS_PER_S;
    rng_init(&p->rng, seed, 3);
    commands_init(&p->commands);
    for (uint32_t i = 0; i < peers; i++) {
        store_le64(p->peers[i].id.bytes, rng_u64(&p->rng));
        p->peers[i].id.bytes[PEER_ID_BYTES - 1] = (uint8_t)i;
        pushes_start(p, i, NULL, 0);
        for (size_t k = 0; k < PUSH_VALUES; k++) {
            p->peers[i].model[k] = (float)i + (float)rng_unit(&p->rng);
        }
    }
    for (uint32_t i = 0; i < peers; i++) {
        for (uint32_t j = 0; j < i; j++) {
            pushes_heal(p, i, j);
        }
    }
    return p;
}

static inline void pushes_destroy(struct pushes *p)
{
    for (uint32_t i = 0; i < p->peers_count; i++) {
        peer_end(&p->peers[i]);
        for (uint32_t j = 0; j < p->peers_count; j++) {
            pipe_clear(&p->pipes[i][j]);
        }
    }
    commands_deinit(&p->commands);
    free(p);
}

/* Something that can happen does. `faults`: links and peers may fail as well. */
static inline void pushes_step(struct pushes *p, bool begins, bool faults)
{
    uint64_t what = rng_below(&p->rng, 1000);
    uint32_t a = (uint32_t)rng_below(&p->rng, p->peers_count);
    uint32_t b = (uint32_t)rng_below(&p->rng, p->peers_count);

    if (p->pipes[a][b].is_doomed) {
        p->pipes[a][b].is_doomed = false;
        pushes_cut(p, a, b);
    } else if (what < 300) {
        pushes_job(p, a);
    } else if (what < 330 && begins) {
        pushes_begin(p, a);
    } else if (what < 335) {
        pushes_time(p, rng_below(&p->rng, 100 * NS_PER_MS));
    } else if (what < 338 && faults) {
        pushes_cut(p, a, b);
    } else if (what < 346) {
        pushes_heal(p, a, b);
    } else if (what < 347 && faults) {
        pushes_kill(p, a);
    } else if (a != b) {
        pushes_deliver(p, a, b);
    }
}

#endif

/*
 * exchange_scene: three endpoints of one exchange with the fuzzer as network, clock and job lane.
 * It chooses what is delivered, twice or never, which links are cut and come back, how jobs end,
 * when time passes and what of a message is changed on the way. Whatever it does: nothing crashes,
 * no round of a pair, edge of a round or share counts twice at one end, and without changed
 * messages an initiator that aborted never has a participant that committed, and no share that was
 * applied comes back. In the end every round ends by itself.
 */
#ifndef GRAPEVINE_TESTS_EXCHANGE_SCENE_H
#define GRAPEVINE_TESTS_EXCHANGE_SCENE_H

#include "averaging/core/exchange.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

enum { ENDS = 3, SCENE_CHUNKS = 5, QUEUE_MAX = 64, KEYS_MAX = 256, BORROWED_MAX = 64 };

struct parcel {
    bool is_chunk;
    struct message message;
    uint8_t borrowed[BORROWED_MAX];
    struct chunk_ref chunk;
};

struct scene_queue {
    struct parcel items[QUEUE_MAX];
    uint32_t first, count;
};

struct scene_job {
    bool is_check;
    enum exchange_job job;
    uint32_t first;
    struct chunk_ref chunk;
};

struct scene_key {
    struct round_key key;
    uint32_t participant;        /* of an edge: who does not decide */
    unsigned committed, aborted; /* one bit an endpoint */
};

struct scene {
    const struct exchange_ops *ops;
    const uint8_t *bytes;
    size_t left;
    uint64_t now_ns;
    bool is_hostile; /* a message was changed: only memory safety and termination hold */
    struct exchange *ends[ENDS];
    struct peer_id ids[ENDS];
    struct boot_id boots[ENDS];
    bool is_up[ENDS][ENDS];
    struct scene_queue links[ENDS][ENDS]; /* [from][to] */
    struct scene_job jobs[ENDS][QUEUE_MAX];
    uint32_t jobs_count[ENDS];
    struct scene_key keys[KEYS_MAX];
    uint32_t keys_count;
    struct commands out;
};

static inline uint8_t scene_next(struct scene *s)
{
    if (s->left == 0) return 0;
    s->left--;
    return *s->bytes++;
}

static inline uint32_t scene_end_of(const struct scene *s, struct peer_id id)
{
    for (uint32_t i = 0; i < ENDS; i++) {
        if (peer_id_is_equal(s->ids[i], id)) return i;
    }
    return ENDS;
}

static inline void parcel_borrow(struct parcel *p)
{
    struct message *m = &p->message;
    uint32_t count = m->as.form.statements_bytes;

    if (m->type != MESSAGE_START) return;
    CHECK(count <= BORROWED_MAX);
    if (count > 0) memcpy(p->borrowed, m->as.form.statements, count);
    m->as.form.statements = p->borrowed;
}

/* A full queue is a cut link would be; here what does not fit is lost, which may only cost time. */
static inline struct parcel *scene_enqueue(struct scene *s, uint32_t from, uint32_t to)
{
    struct scene_queue *queue = &s->links[from][to];
    struct parcel *parcel;

    if (!s->is_up[from][to] || queue->count == QUEUE_MAX) return NULL;
    parcel = &queue->items[(queue->first + queue->count++) % QUEUE_MAX];
    memset(parcel, 0, sizeof *parcel);
    return parcel;
}

/* An edge counts at one end: not twice, and at who did not decide only after who did. */
static inline void scene_edge_counts(struct scene *s, uint32_t end, uint32_t participant,
                                     const struct round_key *key)
{
    uint32_t decider = scene_end_of(s, key->initiator);
    struct scene_key *entry = NULL;

    for (uint32_t i = 0; i < s->keys_count && entry == NULL; i++) {
        if (s->keys[i].key.counter == key->counter && s->keys[i].participant == participant &&
            peer_id_is_equal(s->keys[i].key.initiator, key->initiator)) {
            entry = &s->keys[i];
        }
    }
    if (entry == NULL) {
        if (s->keys_count == KEYS_MAX) return;
        entry = &s->keys[s->keys_count++];
        *entry = (struct scene_key){.key = *key, .participant = participant};
    }
    CHECK((entry->committed & 1u << end) == 0);
    entry->committed |= 1u << end;
    if (!s->is_hostile) CHECK(decider < ENDS && (entry->committed & 1u << decider) != 0);
}

static inline void scene_edge(struct scene *s, uint32_t end, const struct command *c)
{
    bool is_decider = peer_id_is_equal(c->edge.key.initiator, s->ids[end]);

    CHECK(c->edge.weight >= 0 && c->edge.weight <= 1);
    if (c->edge.is_in_doubt) return;
    scene_edge_counts(s, end, is_decider ? scene_end_of(s, c->to) : end, &c->edge.key);
}

/* A share counts once: at its receiver, or at its sender, to which it came back. */
static inline void scene_share_counts(struct scene *s, uint32_t end, struct scene_key *entry)
{
    CHECK((entry->committed & 1u << end) == 0);
    CHECK(s->is_hostile || entry->committed == 0);
    entry->committed |= 1u << end;
}

static inline void scene_over(struct scene *s, uint32_t end, const struct command_over *over)
{
    struct scene_key *entry = NULL;

    if (!over->is_late) s->jobs_count[end] = 0; /* reports of a round that is over are not made */
    if (s->ops->is_group || over->result == OVER_IN_DOUBT) return;
    if (s->ops->is_graph) {
        if (over->is_late && over->result == OVER_COMMITTED) {
            scene_edge_counts(s, end, end, &over->key);
        }
        return;
    }
    if (s->ops == &exchange_push) { /* whatever left, is another's round */
        if (over->result != OVER_COMMITTED || over->bitmap != NULL) return;
    }
    for (uint32_t i = 0; i < s->keys_count && entry == NULL; i++) {
        if (s->keys[i].key.counter == over->key.counter &&
            peer_id_is_equal(s->keys[i].key.initiator, over->key.initiator)) {
            entry = &s->keys[i];
        }
    }
    if (entry == NULL) {
        if (s->keys_count == KEYS_MAX) return;
        entry = &s->keys[s->keys_count++];
        memset(entry, 0, sizeof *entry);
        entry->key = over->key;
    }
    if (s->ops == &exchange_push) {
        scene_share_counts(s, end, entry);
        return;
    }
    if (over->result == OVER_COMMITTED) {
        CHECK((entry->committed & 1u << end) == 0);
        entry->committed |= 1u << end;
    } else {
        entry->aborted |= 1u << end;
    }
    if (!s->is_hostile && scene_end_of(s, over->key.initiator) < ENDS) {
        unsigned initiator = 1u << scene_end_of(s, over->key.initiator);

        CHECK((entry->aborted & initiator) == 0 || entry->committed == 0);
    }
}

static inline void scene_job_add(struct scene *s, uint32_t end, struct scene_job job)
{
    CHECK(s->jobs_count[end] < QUEUE_MAX);
    s->jobs[end][s->jobs_count[end]++] = job;
}

static inline void scene_obey(struct scene *s, uint32_t end)
{
    for (uint32_t i = 0; i < s->out.count; i++) {
        const struct command *c = &s->out.items[i];
        uint32_t to = scene_end_of(s, c->to);
        struct parcel *parcel;

        switch (c->type) {
        case COMMAND_SEND:
            parcel = to < ENDS ? scene_enqueue(s, end, to) : NULL;
            if (parcel == NULL) break;
            parcel->message = c->message;
            parcel_borrow(parcel);
            break;
        case COMMAND_SEND_RANGE:
            CHECK(c->first + c->count <= SCENE_CHUNKS);
            for (uint32_t chunk = c->first; chunk < c->first + c->count; chunk++) {
                parcel = to < ENDS ? scene_enqueue(s, end, to) : NULL;
                if (parcel == NULL) continue;
                parcel->is_chunk = true;
                parcel->chunk = (struct chunk_ref){s->ids[end], c->buffer, c->stream, chunk};
            }
            break;
        case COMMAND_SNAPSHOT:
            scene_job_add(s, end, (struct scene_job){.job = JOB_SNAPSHOT});
            break;
        case COMMAND_ABSORB_OWN:
            scene_job_add(s, end, (struct scene_job){.job = JOB_ABSORB_OWN, .first = c->first});
            break;
        case COMMAND_REDUCE:
            scene_job_add(s, end, (struct scene_job){.job = JOB_REDUCE, .first = c->first});
            break;
        case COMMAND_EDGE:
            scene_edge(s, end, c);
            break;
        case COMMAND_FORGET:
        case COMMAND_STOP_RANGE:
            break;
        case COMMAND_OVER:
            scene_over(s, end, &c->over);
            break;
        case COMMAND_HOLD:
        case COMMAND_RELEASE:
            break;
        case COMMAND_ABSORB_HELD:
            scene_job_add(s, end, (struct scene_job){.job = JOB_ABSORB_HELD});
            break;
        case COMMAND_SCORE:
            CHECK(c->score == SCORE_COMMITTED || c->reason != NULL);
            break;
        }
    }
    commands_clear(&s->out);
}

/* Change some bytes of the fixed part of a message; pointers and their counts stay. */
static inline void scene_change(struct scene *s, struct message *m)
{
    uint8_t *bytes = (uint8_t *)&m->as;
    uint32_t at = scene_next(s);

    s->is_hostile = true;
    if (m->type == MESSAGE_READY || m->type == MESSAGE_COMMIT || m->type == MESSAGE_OUTCOME) {
        at %= sizeof(struct round_key);
    }
    if (m->type == MESSAGE_FORM || m->type == MESSAGE_START) {
        at %= 80; /* round, ballot, the first members */
        if (at == 79) m->as.form.schedule ^= (uint8_t)(1u << scene_next(s) % 8);
    }
    bytes[at] ^= (uint8_t)(1u << scene_next(s) % 8);
}

static inline void scene_deliver(struct scene *s, uint32_t from, uint32_t to, bool is_kept)
{
    struct scene_queue *queue = &s->links[from][to];
    struct parcel parcel;
    struct chunk_use use;

    if (queue->count == 0) return;
    parcel = queue->items[queue->first];
    parcel_borrow(&parcel); /* points into the copy */
    if (is_kept) {
        s->is_hostile = true; /* links do not repeat; a peer may */
    } else {
        queue->first = (queue->first + 1) % QUEUE_MAX;
        queue->count--;
    }
    if (!parcel.is_chunk) {
        if (s->left > 0 && scene_next(s) >= 250) scene_change(s, &parcel.message);
        (void)!s->ops->on_message(s->ends[to], s->ids[from], s->boots[from], &parcel.message,
                                  s->now_ns, &s->out);
        scene_obey(s, to);
    } else if (s->ops->on_chunk(s->ends[to], &parcel.chunk, &use) == RC_OK) {
        CHECK(use.weight > 0 || use.is_staged || parcel.chunk.kind == DATA_MEAN);
        scene_job_add(s, to, (struct scene_job){.is_check = true, .chunk = parcel.chunk});
    }
}

static inline void scene_job_run(struct scene *s, uint32_t end, enum rc rc)
{
    struct scene_job job = s->jobs[end][0];
    struct digest hash = {{7}};

    if (s->jobs_count[end] == 0) return;
    memmove(&s->jobs[end][0], &s->jobs[end][1], --s->jobs_count[end] * sizeof job);
    if (job.is_check) {
        s->ops->on_chunk_checked(s->ends[end], &job.chunk, rc, hash, 1, s->now_ns, &s->out);
    } else {
        s->ops->on_job_done(s->ends[end], job.job, job.first, rc, hash, s->now_ns, &s->out);
    }
    scene_obey(s, end);
}

static inline void scene_cut(struct scene *s, uint32_t a, uint32_t b)
{
    if (a == b || !s->is_up[a][b]) return;
    for (int side = 0; side < 2; side++) {
        uint32_t from = side == 0 ? a : b, to = side == 0 ? b : a;

        s->is_up[from][to] = false;
        s->links[from][to].count = 0;
    }
    s->ops->on_link_lost(s->ends[a], s->ids[b], s->now_ns, &s->out);
    scene_obey(s, a);
    s->ops->on_link_lost(s->ends[b], s->ids[a], s->now_ns, &s->out);
    scene_obey(s, b);
}

static inline void scene_heal(struct scene *s, uint32_t a, uint32_t b)
{
    if (a == b || s->is_up[a][b]) return;
    s->is_up[a][b] = s->is_up[b][a] = true;
    s->ops->on_link_up(s->ends[a], s->ids[b], s->boots[b], s->now_ns, &s->out);
    scene_obey(s, a);
    s->ops->on_link_up(s->ends[b], s->ids[a], s->boots[a], s->now_ns, &s->out);
    scene_obey(s, b);
}

static inline void scene_begin(struct scene *s, uint32_t end, uint32_t other)
{
    struct peer_id ids[ENDS];
    struct boot_id boots[ENDS];
    float weights[ENDS] = {0.25f, 0.3f, 0.5f};
    struct round_members members = {
        .ids = ids, .boots = boots, .weights = s->ops->is_graph ? weights : NULL};

    if (!s->ops->is_group && !s->ops->is_graph && (end == other || !s->is_up[end][other])) return;
    for (uint32_t k = 0; k < ENDS; k++) {
        uint32_t i = (k + other) % ENDS; /* any order */

        if (s->ops->is_graph && i == end) continue;
        if (s->ops->is_group || s->ops->is_graph ? i != end && !s->is_up[end][i] : i != other) {
            continue;
        }
        ids[members.count] = s->ids[i];
        boots[members.count++] = s->boots[i];
    }
    (void)!s->ops->begin(s->ends[end], &members, 1, s->now_ns, &s->out);
    scene_obey(s, end);
}

static inline void scene_tick(struct scene *s, uint64_t pass_ns)
{
    s->now_ns += pass_ns;
    for (uint32_t i = 0; i < ENDS; i++) {
        if (s->ops->next_ns(s->ends[i]) > s->now_ns) continue;
        s->ops->tick(s->ends[i], s->now_ns, &s->out);
        scene_obey(s, i);
    }
}

static inline void scene_step(struct scene *s)
{
    uint8_t what = scene_next(s), who = scene_next(s);
    uint32_t a = who % ENDS, b = who / ENDS % ENDS;
    static const enum rc failures[] = {RC_NONFINITE, RC_FORMAT, RC_NOMEM, RC_MISMATCH};

    switch (what % 16) {
    case 0:
        scene_begin(s, a, b);
        break;
    case 1:
        scene_cut(s, a, b);
        break;
    case 2:
        scene_heal(s, a, b);
        break;
    case 3:
        scene_job_run(s, a, failures[who / 9 % 4]);
        break;
    case 4:
        scene_tick(s, (uint64_t)who * 20 * NS_PER_MS);
        break;
    case 5:
        scene_deliver(s, a, b, true);
        break;
    case 6:
        if (who >= 240) {
            s->ops->cancel(s->ends[a], "cancelled", s->now_ns, &s->out);
            scene_obey(s, a);
        }
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        scene_job_run(s, a, RC_OK);
        break;
    default:
        scene_deliver(s, a, b, false);
        break;
    }
}

/* Nothing more is delivered: deadlines end whatever runs. */
static inline void scene_end(struct scene *s)
{
    for (int pass = 0; pass < 400; pass++) {
        bool is_active = false;

        for (uint32_t i = 0; i < ENDS; i++) {
            while (s->jobs_count[i] > 0) {
                scene_job_run(s, i, RC_OK);
            }
        }
        scene_tick(s, 10 * NS_PER_S);
        for (uint32_t i = 0; i < ENDS; i++) {
            is_active |= exchange_is_active(s->ends[i]);
        }
        if (!is_active) break;
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        CHECK(!exchange_is_active(s->ends[i]));
        CHECK(s->ops->next_ns(s->ends[i]) > s->now_ns);
    }
}

static inline void scene_run(const struct exchange_ops *ops, const uint8_t *bytes, size_t count)
{
    struct scene *s = mem_alloc(sizeof *s);
    static const struct digest none;
    struct digest lineage = {{1}};
    enum schedule schedule = SCHEDULE_AUTO; /* of a group; the last byte says which */
    uint8_t *saved;
    size_t saved_count;

    CHECK(s != NULL);
    s->ops = ops;
    s->bytes = bytes;
    s->left = count;
    s->now_ns = NS_PER_S;
    if (count > 0) schedule = (enum schedule)(bytes[count - 1] % (SCHEDULE_AUTO + 1));
    commands_init(&s->out);
    for (uint32_t i = 0; i < ENDS; i++) {
        struct exchange_options options = {.chunks = SCENE_CHUNKS,
                                           .mirror = ops->has_mirrors ? &none : NULL,
                                           .has_memory = ops->is_graph && count % 2 == 1,
                                           .clips = count % 3 == 1,
                                           .codec = "f32",
                                           .schedule = schedule,
                                           .may_relay = true,
                                           .chunk_bytes = 1000};

        s->ids[i].bytes[0] = s->boots[i].bytes[0] = (uint8_t)(i + 1);
        options.self = s->ids[i];
        options.boot = s->boots[i];
        s->ends[i] = ops->create(&options);
        CHECK(s->ends[i] != NULL);
        ops->set_lineage(s->ends[i], lineage, &s->out);
    }
    for (uint32_t a = 0; a < ENDS; a++) {
        for (uint32_t b = 0; b < a; b++) {
            scene_heal(s, a, b);
        }
    }
    while (s->left > 0) {
        scene_step(s);
    }
    if (count > 0 && ops->load(s->ends[0], bytes, count) == RC_OK) { /* hostile checkpoints */
        CHECK(ops->save(s->ends[0], &saved, &saved_count) == RC_OK);
        mem_free(saved);
        s->is_hostile = true;
        s->keys_count = 0;
    }
    scene_end(s);
    for (uint32_t i = 0; i < ENDS; i++) {
        ops->destroy(s->ends[i]);
    }
    commands_deinit(&s->out);
    mem_free(s);
}

#endif

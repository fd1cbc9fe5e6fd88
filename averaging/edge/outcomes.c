/*
 * What outlives a round of neighbours: the last round that we committed with each of those for whom
 * we decide, also in checkpoints, and promises of ours whose decision is not known. A peer in doubt
 * about an edge opens none to the same neighbour before it knows, so the last round is all that can
 * be asked for. Who is in doubt asks whenever there is a link, at most every two seconds, and
 * presumes abort after T_doubt. Loop thread; pure.
 */
#include "averaging/edge/edges.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <string.h>

static const uint64_t doubt_ns = 30 * NS_PER_S; /* T_doubt */
static const uint64_t ask_every_ns = 2 * NS_PER_S;

enum {
    SAVE_VERSION = 2, /* 1: without scales */
    SAVE_HEAD = 24,
    SAVE_ENTRY = PEER_ID_BYTES + BOOT_ID_BYTES + 12,
    SCORE_VIOLATION = -100
};

/* ---- decisions of ours ---- */

static struct edge_outcome *outcome_find(struct edges *edges, struct peer_id peer)
{
    for (uint32_t i = 0; i < edges->outcomes_count; i++) {
        if (peer_id_is_equal(edges->outcomes[i].peer, peer)) return &edges->outcomes[i];
    }
    return NULL;
}

/* With the table full, the one of longest ago gives way: more peers than can be linked. */
static struct edge_outcome *outcome_oldest(struct edges *edges)
{
    struct edge_outcome *oldest = &edges->outcomes[0];

    for (uint32_t i = 1; i < edges->outcomes_count; i++) {
        if (edges->outcomes[i].round < oldest->round) oldest = &edges->outcomes[i];
    }
    return oldest;
}

void edges_outcome_keep(struct edges *edges, struct peer_id peer, float scale)
{
    struct edge_outcome *outcome = outcome_find(edges, peer);

    if (outcome == NULL) {
        outcome = edges->outcomes_count < EDGES_OUTCOMES_MAX
                      ? &edges->outcomes[edges->outcomes_count++]
                      : outcome_oldest(edges);
    }
    *outcome = (struct edge_outcome){peer, edges->options.boot, edges->round, scale};
}

static enum outcome_state state_of(struct edges *edges, struct peer_id from,
                                   const struct round_key *key, float *scale)
{
    const struct edge_outcome *outcome = outcome_find(edges, from);
    struct edge *edge = edges_find(edges, from);
    struct round_key running;

    if (outcome != NULL && outcome->round == key->counter &&
        boot_id_is_equal(outcome->boot, key->boot)) {
        *scale = outcome->scale;
        return OUTCOME_COMMITTED;
    }
    if (edge != NULL && edge->state < EDGE_COMMITTED) {
        running = edges_key(edges, edge);
        if (edge_key_is_equal(&running, key)) return OUTCOME_UNKNOWN;
    }
    return OUTCOME_ABORTED; /* of another life: it came back without it */
}

enum rc edges_on_ask(struct edges *edges, struct member_ref from, const struct round_key *key,
                     struct commands *out)
{
    struct message *message;

    if (!peer_id_is_equal(key->initiator, edges->options.self)) return RC_MISMATCH;
    message = edges_send(from.id, MESSAGE_EDGE_TELL, out);
    if (message == NULL) return RC_NOMEM;
    message->as.edge_tell.key = *key;
    message->as.edge_tell.state = state_of(edges, from.id, key, &message->as.edge_tell.scale);
    return RC_OK;
}

/* ---- doubts of ours ---- */

bool edges_is_in_doubt_with(const struct edges *edges, struct peer_id id)
{
    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        const struct edge_doubt *doubt = &edges->doubts[i];

        if (doubt->is_used && peer_id_is_equal(doubt->key.initiator, id)) return true;
    }
    return false;
}

uint32_t edges_doubts_free(const struct edges *edges)
{
    uint32_t taken = 0;

    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        taken += edges->doubts[i].is_used;
    }
    for (uint32_t i = 0; i < edges->edges_count && edges->is_active; i++) {
        taken += edges->edges[i].state == EDGE_PREPARED;
    }
    CHECK(taken <= EDGES_DOUBTS_MAX);
    return EDGES_DOUBTS_MAX - taken;
}

static void doubt_ask(struct edges *edges, struct edge_doubt *doubt, struct commands *out)
{
    struct message *message;

    doubt->ask_ns = deadline_after(edges->now_ns, ask_every_ns);
    if (edges_link_find(edges, doubt->key.initiator) == NULL) return;
    message = edges_send(doubt->key.initiator, MESSAGE_EDGE_ASK, out);
    if (message != NULL) message->as.edge_ask.key = doubt->key;
}

void edges_enter_doubt(struct edges *edges, struct edge *edge, struct commands *out)
{
    struct edge_doubt *doubt = NULL;
    struct command *keep = commands_add(out, COMMAND_EDGE);

    CHECK(edge->state == EDGE_PREPARED && !edge->is_decider);
    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        if (!edges->doubts[i].is_used) doubt = &edges->doubts[i];
    }
    CHECK(doubt != NULL); /* no promise is made without one */
    *doubt = (struct edge_doubt){.is_used = true,
                                 .key = edges_key(edges, edge),
                                 .weight = edge->weight,
                                 .expected_scale = edges_clip_scale(edge),
                                 .until_ns = deadline_after(edges->now_ns, doubt_ns)};
    if (keep != NULL) {
        keep->to = edge->ref.id;
        keep->edge = (struct command_edge){edge->slot, 1, true, doubt->key};
    }
    edges_slot_free(edges, edge);
    edges_wait_over(edges, edge);
    edge->state = EDGE_IN_DOUBT;
    edges->last_drop = "a neighbour did not say what it decided";
    doubt_ask(edges, doubt, out);
}

static void doubt_over(struct edges *edges, struct edge_doubt *doubt, enum over_result result,
                       float scale, const char *reason, struct commands *out)
{
    struct command *over = commands_add(out, COMMAND_OVER);

    doubt->is_used = false;
    if (over == NULL) return;
    over->over.result = result;
    over->over.is_late = true;
    over->over.key = doubt->key;
    over->over.bitmap = edges->bitmap;
    over->over.bitmap_bytes = edges->bitmap_bytes;
    over->over.scale = doubt->weight * scale;
    over->over.members = result == OVER_COMMITTED ? 2 : 0;
    over->over.reason = reason;
}

enum rc edges_doubt_resolve(struct edges *edges, struct peer_id from, const struct round_key *key,
                            enum outcome_state state, float scale, struct commands *out)
{
    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        struct edge_doubt *doubt = &edges->doubts[i];

        if (!doubt->is_used || !edge_key_is_equal(&doubt->key, key)) continue;
        if (!peer_id_is_equal(from, key->initiator)) return RC_REFUSED;
        if (state == OUTCOME_UNKNOWN) return RC_OK; /* it has not decided yet */
        if (state == OUTCOME_COMMITTED && !robust_scale_agrees(scale, doubt->expected_scale)) {
            edges_score(from, SCORE_VIOLATION, "decided what was not agreed", out);
            return RC_FORMAT;
        }
        edges->counts.in_doubt_resolved++;
        doubt_over(edges, doubt, state == OUTCOME_COMMITTED ? OVER_COMMITTED : OVER_ABORTED, scale,
                   state == OUTCOME_COMMITTED ? NULL : "the neighbour had not committed", out);
        edges_advance(edges, out); /* its edge of this round may open */
        return RC_OK;
    }
    return RC_STALE;
}

enum rc edges_on_tell(struct edges *edges, struct member_ref from,
                      const struct message_edge_tell *tell, struct commands *out)
{
    if (!peer_id_is_equal(tell->key.initiator, from.id)) return RC_FORMAT;
    return edges_doubt_resolve(edges, from.id, &tell->key, (enum outcome_state)tell->state,
                               tell->scale, out);
}

static void doubt_lose(struct edges *edges, struct edge_doubt *doubt, const char *reason,
                       struct commands *out)
{
    edges->counts.in_doubt_lost++;
    edges->counts.last_abort = reason;
    edges->wants_restart = true; /* the other end may have what we have not */
    doubt_over(edges, doubt, OVER_ABORTED, 0, reason, out);
}

void edges_doubts_drop(struct edges *edges, struct commands *out)
{
    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        if (!edges->doubts[i].is_used) continue;
        doubt_lose(edges, &edges->doubts[i], "the model was replaced", out);
    }
}

void edges_doubts_ask(struct edges *edges, struct peer_id peer, struct commands *out)
{
    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        struct edge_doubt *doubt = &edges->doubts[i];

        if (doubt->is_used && peer_id_is_equal(doubt->key.initiator, peer)) {
            doubt_ask(edges, doubt, out);
        }
    }
}

void edges_doubts_tick(struct edges *edges, struct commands *out)
{
    bool was_lost = false;

    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        struct edge_doubt *doubt = &edges->doubts[i];

        if (!doubt->is_used) continue;
        if (edges->now_ns >= doubt->until_ns) {
            doubt_lose(edges, doubt, "the outcome could not be learned in time", out);
            was_lost = true;
        } else if (edges->now_ns >= doubt->ask_ns) {
            doubt_ask(edges, doubt, out);
        }
    }
    if (was_lost) edges_advance(edges, out);
}

uint64_t edges_doubts_next_ns(const struct edges *edges)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; i < EDGES_DOUBTS_MAX; i++) {
        const struct edge_doubt *doubt = &edges->doubts[i];

        if (!doubt->is_used) continue;
        if (doubt->ask_ns < next) next = doubt->ask_ns;
        if (doubt->until_ns < next) next = doubt->until_ns;
    }
    return next;
}

/* ---- in checkpoints: version u32 | round u64 | recursion u64 | count u32 | entries ---- */

enum rc edges_save(const struct edges *edges, uint8_t **bytes, size_t *count)
{
    size_t total = SAVE_HEAD + (size_t)edges->outcomes_count * SAVE_ENTRY;
    uint8_t *saved = mem_alloc(total);

    if (saved == NULL) return RC_NOMEM;
    store_le32(saved, SAVE_VERSION);
    store_le64(saved + 4, edges->counts.next_round);
    store_le64(saved + 12, edges->recursion);
    store_le32(saved + 20, edges->outcomes_count);
    for (uint32_t i = 0; i < edges->outcomes_count; i++) {
        const struct edge_outcome *outcome = &edges->outcomes[i];
        uint8_t *to = saved + SAVE_HEAD + (size_t)i * SAVE_ENTRY;
        uint32_t scale;

        memcpy(to, outcome->peer.bytes, PEER_ID_BYTES);
        memcpy(to + PEER_ID_BYTES, outcome->boot.bytes, BOOT_ID_BYTES);
        store_le64(to + PEER_ID_BYTES + BOOT_ID_BYTES, outcome->round);
        memcpy(&scale, &outcome->scale, sizeof scale);
        store_le32(to + PEER_ID_BYTES + BOOT_ID_BYTES + 8, scale);
    }
    *bytes = saved;
    *count = total;
    return RC_OK;
}

static struct edge_outcome outcome_load(const uint8_t *from)
{
    struct edge_outcome outcome;
    uint32_t scale = load_le32(from + PEER_ID_BYTES + BOOT_ID_BYTES + 8);

    memcpy(outcome.peer.bytes, from, PEER_ID_BYTES);
    memcpy(outcome.boot.bytes, from + PEER_ID_BYTES, BOOT_ID_BYTES);
    outcome.round = load_le64(from + PEER_ID_BYTES + BOOT_ID_BYTES);
    memcpy(&outcome.scale, &scale, sizeof scale);
    return outcome;
}

enum rc edges_load(struct edges *edges, const uint8_t *bytes, size_t count)
{
    uint64_t round, recursion;
    uint32_t entries;

    if (count >= SAVE_HEAD && load_le32(bytes) == SAVE_VERSION - 1) return RC_MISMATCH;
    if (count < SAVE_HEAD || load_le32(bytes) != SAVE_VERSION) return RC_FORMAT;
    round = load_le64(bytes + 4);
    recursion = load_le64(bytes + 12);
    entries = load_le32(bytes + 20);
    if (round > UINT64_MAX / 2 || recursion > UINT64_MAX / 2) return RC_FORMAT;
    if (entries > EDGES_OUTCOMES_MAX || count != SAVE_HEAD + (size_t)entries * SAVE_ENTRY) {
        return RC_FORMAT;
    }
    for (uint32_t i = 0; i < entries; i++) {
        float scale = outcome_load(bytes + SAVE_HEAD + (size_t)i * SAVE_ENTRY).scale;

        if (!(scale >= 0 && scale <= 1)) return RC_FORMAT;
    }
    for (uint32_t i = 0; i < entries; i++) {
        edges->outcomes[i] = outcome_load(bytes + SAVE_HEAD + (size_t)i * SAVE_ENTRY);
    }
    edges->outcomes_count = entries;
    if (round > edges->counts.next_round) edges->counts.next_round = round;
    edges->recursion = recursion;
    edges->wants_restart = true; /* the others have gone on since */
    return RC_OK;
}

/*
 * What outlives a pair round: decisions its participant has not acknowledged, kept for ten minutes
 * and in checkpoints, and promises of ours whose decision is not known. Who is in doubt asks the
 * initiator whenever there is a link, at most every two seconds; where there is none, or no answer
 * came over it, three other neighbours at a time, one after the other, to ask for it. After T_doubt
 * it presumes abort. An initiator that has no record of a key of its present life never committed
 * it. Loop thread.
 */
#include "averaging/pair/pair.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

static const uint64_t outcome_kept_ns = 600 * NS_PER_S;
static const uint64_t doubt_ns = 30 * NS_PER_S; /* T_doubt */
static const uint64_t ask_every_ns = 2 * NS_PER_S;

enum { ASK_OTHERS = 3 }; /* at a time */
enum { SAVE_VERSION = 1, SAVE_HEAD = 16, SAVE_ENTRY = 68, SCORE_SILENT = -20 };

/* ---- decisions of ours ---- */

static struct pair_outcome *outcome_find(struct pair *pair, const struct round_key *key)
{
    for (uint32_t i = 0; i < pair->outcomes_count; i++) {
        if (round_key_is_equal(&pair->outcomes[i].key, key)) return &pair->outcomes[i];
    }
    return NULL;
}

void pair_outcome_keep(struct pair *pair, float scale)
{
    CHECK(pair->outcomes_count < PAIR_OUTCOMES_MAX); /* begin() saw to it */
    pair->outcomes[pair->outcomes_count++] =
        (struct pair_outcome){.key = pair->key,
                              .partner = pair->partner.id,
                              .scale = scale,
                              .until_ns = deadline_after(pair->now_ns, outcome_kept_ns)};
}

static void outcome_forget(struct pair *pair, struct pair_outcome *outcome)
{
    *outcome = pair->outcomes[--pair->outcomes_count];
}

static void outcome_send(struct pair *pair, struct peer_id to, const struct round_key *key,
                         enum outcome_state state, float scale, struct commands *out)
{
    struct message *message = pair_send(to, MESSAGE_OUTCOME, out);

    if (message == NULL) return;
    message->as.outcome.key = *key;
    message->as.outcome.state = state;
    message->as.outcome.scale = scale;
    if (state != OUTCOME_COMMITTED) return;
    message->as.outcome.bitmap = pair->bitmap;
    message->as.outcome.bitmap_bytes = pair->bitmap_bytes;
}

enum rc pair_on_outcome_req(struct pair *pair, struct peer_id from, const struct round_key *key,
                            struct commands *out)
{
    const struct pair_outcome *outcome = outcome_find(pair, key);
    enum outcome_state state = OUTCOME_UNKNOWN;

    if (!peer_id_is_equal(key->initiator, pair->options.self)) return RC_MISMATCH;
    if (outcome != NULL) {
        if (!peer_id_is_equal(outcome->partner, from)) return RC_REFUSED;
        outcome_send(pair, from, key, OUTCOME_COMMITTED, outcome->scale, out);
        return RC_OK;
    }
    if (boot_id_is_equal(key->boot, pair->options.boot)) {
        bool is_undecided = pair->state != PAIR_IDLE && round_key_is_equal(key, &pair->key);

        if (!is_undecided) state = OUTCOME_ABORTED;
    }
    outcome_send(pair, from, key, state, 0, out);
    return RC_OK;
}

/* An abort is said of no round that is still to come: the word is kept by others, and would be true
 * of it as well. */
bool pair_outcome(const struct pair *pair, const struct round_key *key, struct peer_id participant,
                  enum outcome_state *state, float *scale)
{
    bool is_of_this_life = boot_id_is_equal(key->boot, pair->options.boot);

    if (!peer_id_is_equal(key->initiator, pair->options.self)) return false;
    for (uint32_t i = 0; i < pair->outcomes_count; i++) {
        const struct pair_outcome *kept = &pair->outcomes[i];

        if (!round_key_is_equal(&kept->key, key)) continue;
        *state = OUTCOME_COMMITTED;
        *scale = kept->scale;
        return peer_id_is_equal(kept->partner, participant);
    }
    if (is_of_this_life && key->counter > pair->counter) return false;
    if (pair->state != PAIR_IDLE && round_key_is_equal(key, &pair->key)) return false;
    *state = OUTCOME_ABORTED;
    *scale = 0;
    return true;
}

enum rc pair_on_done(struct pair *pair, struct peer_id from, const struct round_key *key)
{
    struct pair_outcome *outcome = outcome_find(pair, key);

    if (outcome == NULL) return RC_STALE;
    if (!peer_id_is_equal(outcome->partner, from)) return RC_REFUSED;
    outcome_forget(pair, outcome);
    return RC_OK;
}

/* ---- doubts of ours ---- */

struct pair_doubt *pair_doubt_free(struct pair *pair)
{
    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        if (!pair->doubts[i].is_used) return &pair->doubts[i];
    }
    return NULL;
}

bool pair_is_in_doubt_with(const struct pair *pair, struct peer_id partner)
{
    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        const struct pair_doubt *doubt = &pair->doubts[i];

        if (doubt->is_used && peer_id_is_equal(doubt->key.initiator, partner)) return true;
    }
    return false;
}

const struct pair_doubt *pair_doubt_find(const struct pair *pair, const struct round_key *key)
{
    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        const struct pair_doubt *doubt = &pair->doubts[i];

        if (doubt->is_used && round_key_is_equal(&doubt->key, key)) return doubt;
    }
    return NULL;
}

static void doubt_ask_others(struct pair *pair, struct pair_doubt *doubt, struct commands *out)
{
    for (uint32_t i = 0; i < ASK_OTHERS && i < pair->links_count; i++) {
        struct peer_id other = pair->links[doubt->asked++ % pair->links_count].id;
        struct message *message;

        if (peer_id_is_equal(other, doubt->key.initiator)) continue;
        message = pair_send(other, MESSAGE_OUTCOME_ASK, out);
        if (message == NULL) return;
        message->as.outcome_ask.key = doubt->key;
        message->as.outcome_ask.participant = pair->options.self;
    }
}

static void doubt_ask(struct pair *pair, struct pair_doubt *doubt, struct commands *out)
{
    bool is_linked = pair_is_linked(pair, doubt->key.initiator);
    struct message *message;

    doubt->ask_ns = deadline_after(pair->now_ns, ask_every_ns);
    if (!is_linked || doubt->was_asked) doubt_ask_others(pair, doubt, out);
    doubt->was_asked = is_linked;
    if (!is_linked) return;
    message = pair_send(doubt->key.initiator, MESSAGE_OUTCOME_REQ, out);
    if (message != NULL) message->as.outcome_req.key = doubt->key;
}

void pair_doubt_add(struct pair *pair, float expected_scale, struct commands *out)
{
    struct pair_doubt *doubt = pair_doubt_free(pair);

    CHECK(doubt != NULL); /* no offer is accepted without one */
    *doubt = (struct pair_doubt){.is_used = true,
                                 .key = pair->key,
                                 .alpha = pair->alpha,
                                 .expected_scale = expected_scale,
                                 .until_ns = deadline_after(pair->now_ns, doubt_ns)};
    doubt_ask(pair, doubt, out);
}

static void doubt_over(struct pair *pair, struct pair_doubt *doubt, enum over_result result,
                       float scale, const char *reason, struct commands *out)
{
    struct command *over = commands_add(out, COMMAND_OVER);

    doubt->is_used = false;
    if (over == NULL) return;
    over->over.result = result;
    over->over.is_late = true;
    over->over.key = doubt->key;
    over->over.bitmap = pair->bitmap;
    over->over.bitmap_bytes = pair->bitmap_bytes;
    over->over.scale = doubt->alpha * scale;
    over->over.members = result == OVER_COMMITTED ? 2 : 0;
    over->over.reason = reason;
}

bool pair_doubt_resolve(struct pair *pair, struct peer_id from, const struct round_key *key,
                        enum outcome_state state, float scale, struct commands *out)
{
    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        struct pair_doubt *doubt = &pair->doubts[i];

        if (!doubt->is_used || !round_key_is_equal(&doubt->key, key)) continue;
        if (!peer_id_is_equal(from, key->initiator)) return false;
        doubt->was_answered = true;
        if (state == OUTCOME_UNKNOWN) return true; /* it has not decided yet */
        pair->counts.in_doubt_resolved++;
        if (state == OUTCOME_COMMITTED) {
            pair->counts.rounds_ok++;
            doubt_over(pair, doubt, OVER_COMMITTED, scale, NULL, out);
        } else {
            pair->counts.rounds_aborted++;
            pair->counts.last_abort = "the initiator aborted";
            doubt_over(pair, doubt, OVER_ABORTED, 0, "the initiator aborted", out);
        }
        return true;
    }
    return false;
}

static void doubt_lose(struct pair *pair, struct pair_doubt *doubt, const char *reason,
                       struct commands *out)
{
    pair->counts.in_doubt_lost++;
    pair->counts.rounds_aborted++;
    pair->counts.last_abort = reason;
    doubt_over(pair, doubt, OVER_ABORTED, 0, reason, out);
}

void pair_doubts_drop(struct pair *pair, struct commands *out)
{
    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        if (!pair->doubts[i].is_used) continue;
        doubt_lose(pair, &pair->doubts[i], "the model was replaced", out);
    }
}

/* ---- links and time ---- */

void pair_outcomes_on_link_up(struct pair *pair, struct peer_id peer, struct commands *out)
{
    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        struct pair_doubt *doubt = &pair->doubts[i];

        if (doubt->is_used && peer_id_is_equal(doubt->key.initiator, peer)) {
            doubt_ask(pair, doubt, out);
        }
    }
    for (uint32_t i = 0; i < pair->outcomes_count;
         i++) { /* it may have missed COMMIT, or we DONE */
        const struct pair_outcome *kept = &pair->outcomes[i];

        if (!peer_id_is_equal(kept->partner, peer)) continue;
        outcome_send(pair, peer, &kept->key, OUTCOME_COMMITTED, kept->scale, out);
    }
}

static void doubt_tick(struct pair *pair, struct pair_doubt *doubt, struct commands *out)
{
    if (pair->now_ns >= doubt->until_ns) {
        if (doubt->was_answered && !doubt->was_scored) { /* "not yet", for all this time */
            pair_score(doubt->key.initiator, SCORE_SILENT, "never said what it decided", out);
        }
        doubt_lose(pair, doubt, "the outcome could not be learned in time", out);
        return;
    }
    if (pair->now_ns < doubt->ask_ns) return;
    if (!doubt->was_answered && !doubt->was_scored && pair_is_linked(pair, doubt->key.initiator)) {
        doubt->was_scored = true;
        pair_score(doubt->key.initiator, SCORE_SILENT, "does not say what it decided", out);
    }
    doubt_ask(pair, doubt, out);
}

void pair_outcomes_tick(struct pair *pair, struct commands *out)
{
    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        if (pair->doubts[i].is_used) doubt_tick(pair, &pair->doubts[i], out);
    }
    for (uint32_t i = pair->outcomes_count; i > 0; i--) {
        struct pair_outcome *kept = &pair->outcomes[i - 1];

        if (kept->until_ns == 0) {
            kept->until_ns = deadline_after(pair->now_ns, outcome_kept_ns);
        } else if (pair->now_ns >= kept->until_ns) {
            outcome_forget(pair, kept);
        }
    }
}

uint64_t pair_outcomes_next_ns(const struct pair *pair)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; i < PAIR_DOUBTS_MAX; i++) {
        const struct pair_doubt *doubt = &pair->doubts[i];

        if (!doubt->is_used) continue;
        if (doubt->ask_ns < next) next = doubt->ask_ns;
        if (doubt->until_ns < next) next = doubt->until_ns;
    }
    for (uint32_t i = 0; i < pair->outcomes_count; i++) {
        if (pair->outcomes[i].until_ns < next) next = pair->outcomes[i].until_ns;
    }
    return next;
}

/* ---- in checkpoints: version u32 | counter u64 | count u32 | entries ---- */

static void entry_store(const struct pair_outcome *kept, uint8_t *to)
{
    uint32_t scale;

    memcpy(to, kept->key.initiator.bytes, PEER_ID_BYTES);
    memcpy(to + 20, kept->key.boot.bytes, BOOT_ID_BYTES);
    store_le64(to + 36, kept->key.counter);
    memcpy(to + 44, kept->partner.bytes, PEER_ID_BYTES);
    memcpy(&scale, &kept->scale, sizeof scale);
    store_le32(to + 64, scale);
}

static struct pair_outcome entry_load(const uint8_t *from)
{
    struct pair_outcome kept = {.until_ns = 0};
    uint32_t scale = load_le32(from + 64);

    memcpy(kept.key.initiator.bytes, from, PEER_ID_BYTES);
    memcpy(kept.key.boot.bytes, from + 20, BOOT_ID_BYTES);
    kept.key.counter = load_le64(from + 36);
    memcpy(kept.partner.bytes, from + 44, PEER_ID_BYTES);
    memcpy(&kept.scale, &scale, sizeof scale);
    return kept;
}

enum rc pair_save(const struct pair *pair, uint8_t **bytes, size_t *count)
{
    size_t total = SAVE_HEAD + (size_t)pair->outcomes_count * SAVE_ENTRY;
    uint8_t *saved = mem_alloc(total);

    if (saved == NULL) return RC_NOMEM;
    store_le32(saved, SAVE_VERSION);
    store_le64(saved + 4, pair->counter);
    store_le32(saved + 12, pair->outcomes_count);
    for (uint32_t i = 0; i < pair->outcomes_count; i++) {
        entry_store(&pair->outcomes[i], saved + SAVE_HEAD + (size_t)i * SAVE_ENTRY);
    }
    *bytes = saved;
    *count = total;
    return RC_OK;
}

enum rc pair_load(struct pair *pair, const uint8_t *bytes, size_t count)
{
    uint32_t entries;

    if (count < SAVE_HEAD || load_le32(bytes) != SAVE_VERSION) return RC_FORMAT;
    entries = load_le32(bytes + 12);
    if (entries > PAIR_OUTCOMES_MAX || count != SAVE_HEAD + (size_t)entries * SAVE_ENTRY) {
        return RC_FORMAT;
    }
    for (uint32_t i = 0; i < entries; i++) {
        struct pair_outcome kept = entry_load(bytes + SAVE_HEAD + (size_t)i * SAVE_ENTRY);

        if (!peer_id_is_equal(kept.key.initiator, pair->options.self)) return RC_FORMAT;
        if (!isfinite(kept.scale) || kept.scale < 0 || kept.scale > 1) return RC_FORMAT;
    }
    for (uint32_t i = 0; i < entries; i++) {
        pair->outcomes[i] = entry_load(bytes + SAVE_HEAD + (size_t)i * SAVE_ENTRY);
    }
    pair->outcomes_count = entries;
    if (load_le64(bytes + 4) > pair->counter && load_le64(bytes + 4) <= UINT64_MAX / 2) {
        pair->counter = load_le64(bytes + 4);
    }
    return RC_OK;
}

/* promise: see promise.h. */
#include "averaging/core/promise.h"

#include "averaging/core/times.h"
#include "base/check.h"
#include "base/mem.h"

#include <string.h>

enum {
    ASK_OTHERS = 3,   /* at a time */
    SAVE_VERSION = 4, /* 1 and 2: pairs and edges apart; 3: with what clipping had left */
    SAVE_HEAD = 24,
    SAVE_ENTRY = PEER_ID_BYTES + BOOT_ID_BYTES + 8
};

/* ---- decisions of ours ---- */

static uint32_t kept_find(const struct promises *promises, struct peer_id peer)
{
    for (uint32_t i = 0; i < promises->kept_count; i++) {
        if (peer_id_is_equal(promises->kept[i].peer, peer)) return i;
    }
    return promises->kept_count;
}

/* More peers than can be linked: the lowest counter is about the oldest. */
static uint32_t kept_oldest(const struct promises *promises)
{
    uint32_t oldest = 0;

    for (uint32_t i = 1; i < promises->kept_count; i++) {
        if (promises->kept[i].counter < promises->kept[oldest].counter) oldest = i;
    }
    return oldest;
}

void promise_keep(struct promises *promises, struct peer_id peer, const struct round_key *key)
{
    uint32_t at = kept_find(promises, peer);

    if (at == ARRAY_COUNT(promises->kept)) {
        at = kept_oldest(promises);
    } else if (at == promises->kept_count) {
        promises->kept_count++;
    }
    promises->kept[at] = (struct promise_kept){peer, key->boot, key->counter};
}

static enum outcome_state promise_state(const struct promises *promises, struct peer_id peer,
                                        const struct round_key *key,
                                        const struct round_key *undecided)
{
    uint32_t at = kept_find(promises, peer);

    if (at < promises->kept_count && promises->kept[at].counter == key->counter &&
        boot_id_is_equal(promises->kept[at].boot, key->boot)) {
        return OUTCOME_COMMITTED;
    }
    if (undecided != NULL && round_key_is_equal(undecided, key)) return OUTCOME_UNKNOWN;
    return OUTCOME_ABORTED;
}

/* An abort is said of no round that is still to come: the word is kept by others, and would be true
 * of it as well. */
bool promise_outcome(const struct promises *promises, struct peer_id peer,
                     const struct round_key *key, const struct round_key *undecided, uint64_t next,
                     enum outcome_state *state)
{
    bool is_of_this_life = boot_id_is_equal(key->boot, promises->options->boot);

    if (!peer_id_is_equal(key->initiator, promises->options->self)) return false;
    if (is_of_this_life && key->counter >= next) return false;
    *state = promise_state(promises, peer, key, undecided);
    return *state != OUTCOME_UNKNOWN;
}

enum rc promise_on_req(const struct promises *promises, struct peer_id from,
                       const struct round_key *key, const struct round_key *undecided,
                       struct commands *out)
{
    struct message *message;

    if (!peer_id_is_equal(key->initiator, promises->options->self)) return RC_MISMATCH;
    message = commands_send(out, from, MESSAGE_OUTCOME);
    if (message == NULL) return RC_NOMEM;
    message->as.outcome.key = *key;
    message->as.outcome.state = promise_state(promises, from, key, undecided);
    return RC_OK;
}

/* ---- doubts of ours ---- */

bool promise_is_in_doubt_with(const struct promises *promises, struct peer_id decider)
{
    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        const struct promise_doubt *doubt = &promises->doubts[i];

        if (doubt->is_used && peer_id_is_equal(doubt->key.initiator, decider)) return true;
    }
    return false;
}

uint32_t promise_free(const struct promises *promises)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        count += !promises->doubts[i].is_used;
    }
    return count;
}

static void ask_others(struct promises *promises, struct promise_doubt *doubt, struct commands *out)
{
    const struct roster *roster = promises->roster;

    for (uint32_t i = 0; i < ASK_OTHERS && i < roster->count; i++) {
        struct peer_id other = roster->refs[doubt->asked++ % roster->count].id;
        struct message *message;

        if (peer_id_is_equal(other, doubt->key.initiator)) continue;
        message = commands_send(out, other, MESSAGE_OUTCOME_ASK);
        if (message == NULL) return;
        message->as.outcome_ask.key = doubt->key;
        message->as.outcome_ask.participant = promises->options->self;
    }
}

static void ask(struct promises *promises, struct promise_doubt *doubt, uint64_t now_ns,
                struct commands *out)
{
    bool is_linked = roster_has(promises->roster, doubt->key.initiator);
    struct message *message;

    doubt->ask_ns = deadline_after(now_ns, ASK_AFTER_NS);
    if (!is_linked || doubt->was_asked) ask_others(promises, doubt, out);
    doubt->was_asked = is_linked;
    if (!is_linked) return;
    message = commands_send(out, doubt->key.initiator, MESSAGE_OUTCOME_REQ);
    if (message != NULL) message->as.outcome_req.key = doubt->key;
}

void promise_doubt(struct promises *promises, const struct promise_doubt *doubt, uint64_t now_ns,
                   struct commands *out)
{
    struct promise_doubt *free = NULL;

    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        if (!promises->doubts[i].is_used) free = &promises->doubts[i];
    }
    CHECK(free != NULL); /* no promise is made without one */
    *free = *doubt;
    free->is_used = true;
    free->until_ns = deadline_after(now_ns, DOUBT_NS);
    ask(promises, free, now_ns, out);
}

static void doubt_over(struct promise_doubt *doubt, enum over_result result, const char *reason,
                       struct commands *out)
{
    struct command *over = commands_add(out, COMMAND_OVER);

    doubt->is_used = false;
    if (over == NULL) return;
    over->over.result = result;
    over->over.is_late = true;
    over->over.key = doubt->key;
    over->over.scale = result == OVER_COMMITTED ? doubt->weight : 0;
    over->over.members = result == OVER_COMMITTED ? 2 : 0;
    over->over.reason = reason;
}

enum rc promise_resolve(struct promises *promises, struct peer_id from, const struct round_key *key,
                        enum outcome_state state, struct commands *out)
{
    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        struct promise_doubt *doubt = &promises->doubts[i];
        bool is_committed = state == OUTCOME_COMMITTED;

        if (!doubt->is_used || !round_key_is_equal(&doubt->key, key)) continue;
        if (!peer_id_is_equal(from, key->initiator)) return RC_REFUSED;
        doubt->was_answered = true;
        if (state == OUTCOME_UNKNOWN) return RC_OK; /* it has not decided yet */
        promises->counts->in_doubt_resolved++;
        doubt_over(doubt, is_committed ? OVER_COMMITTED : OVER_ABORTED,
                   is_committed ? NULL : "the other end had not committed", out);
        return RC_OK;
    }
    return RC_STALE;
}

static void lose(struct promises *promises, struct promise_doubt *doubt, const char *reason,
                 struct commands *out)
{
    promises->counts->in_doubt_lost++;
    promises->counts->last_abort = reason;
    doubt_over(doubt, OVER_ABORTED, reason, out);
}

bool promise_give_up(struct promises *promises, struct commands *out)
{
    bool was_lost = false;

    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        if (!promises->doubts[i].is_used) continue;
        lose(promises, &promises->doubts[i], "the model was replaced", out);
        was_lost = true;
    }
    return was_lost;
}

void promise_ask(struct promises *promises, struct peer_id peer, uint64_t now_ns,
                 struct commands *out)
{
    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        struct promise_doubt *doubt = &promises->doubts[i];

        if (doubt->is_used && peer_id_is_equal(doubt->key.initiator, peer)) {
            ask(promises, doubt, now_ns, out);
        }
    }
}

/* A decider that is linked and says nothing, or only "not yet", is charged once. */
static void charge(const struct promises *promises, struct promise_doubt *doubt, bool is_over,
                   struct commands *out)
{
    bool is_silent = !doubt->was_answered && roster_has(promises->roster, doubt->key.initiator);

    if (doubt->was_scored || !(is_silent || (is_over && doubt->was_answered))) return;
    doubt->was_scored = true;
    commands_score(out, doubt->key.initiator, SCORE_SILENT,
                   is_over ? "never said what it decided" : "does not say what it decided");
}

bool promise_tick(struct promises *promises, uint64_t now_ns, struct commands *out)
{
    bool was_lost = false;

    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        struct promise_doubt *doubt = &promises->doubts[i];
        bool is_over = now_ns >= doubt->until_ns;

        if (!doubt->is_used || (!is_over && now_ns < doubt->ask_ns)) continue;
        charge(promises, doubt, is_over, out);
        if (is_over) {
            lose(promises, doubt, "the outcome could not be learned in time", out);
            was_lost = true;
        } else {
            ask(promises, doubt, now_ns, out);
        }
    }
    return was_lost;
}

uint64_t promise_next_ns(const struct promises *promises)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; i < PROMISE_DOUBTS_MAX; i++) {
        const struct promise_doubt *doubt = &promises->doubts[i];

        if (!doubt->is_used) continue;
        if (doubt->ask_ns < next) next = doubt->ask_ns;
        if (doubt->until_ns < next) next = doubt->until_ns;
    }
    return next;
}

/* ---- in checkpoints: version u32 | two numbers u64 | count u32 | entries ---- */

static void kept_store(const struct promise_kept *kept, uint8_t *to)
{
    memcpy(to, kept->peer.bytes, PEER_ID_BYTES);
    memcpy(to + PEER_ID_BYTES, kept->boot.bytes, BOOT_ID_BYTES);
    store_le64(to + PEER_ID_BYTES + BOOT_ID_BYTES, kept->counter);
}

static struct promise_kept kept_load(const uint8_t *from)
{
    struct promise_kept kept;

    memcpy(kept.peer.bytes, from, PEER_ID_BYTES);
    memcpy(kept.boot.bytes, from + PEER_ID_BYTES, BOOT_ID_BYTES);
    kept.counter = load_le64(from + PEER_ID_BYTES + BOOT_ID_BYTES);
    return kept;
}

enum rc promise_save(const struct promises *promises, const uint64_t numbers[2], uint8_t **bytes,
                     size_t *count)
{
    size_t total = SAVE_HEAD + (size_t)promises->kept_count * SAVE_ENTRY;
    uint8_t *saved = mem_alloc(total);

    if (saved == NULL) return RC_NOMEM;
    store_le32(saved, SAVE_VERSION);
    store_le64(saved + 4, numbers[0]);
    store_le64(saved + 12, numbers[1]);
    store_le32(saved + 20, promises->kept_count);
    for (uint32_t i = 0; i < promises->kept_count; i++) {
        kept_store(&promises->kept[i], saved + SAVE_HEAD + (size_t)i * SAVE_ENTRY);
    }
    *bytes = saved;
    *count = total;
    return RC_OK;
}

enum rc promise_load(struct promises *promises, const uint8_t *bytes, size_t count,
                     uint64_t numbers[2])
{
    uint32_t entries, version;

    if (count < 4) return RC_FORMAT;
    version = load_le32(bytes);
    if (version > 0 && version < SAVE_VERSION) return RC_MISMATCH;
    if (count < SAVE_HEAD || version != SAVE_VERSION) return RC_FORMAT;
    entries = load_le32(bytes + 20);
    if (entries > ARRAY_COUNT(promises->kept) ||
        count != SAVE_HEAD + (size_t)entries * SAVE_ENTRY ||
        load_le64(bytes + 4) > UINT64_MAX / 2 || load_le64(bytes + 12) > UINT64_MAX / 2) {
        return RC_FORMAT;
    }
    for (uint32_t i = 0; i < entries; i++) {
        promises->kept[i] = kept_load(bytes + SAVE_HEAD + (size_t)i * SAVE_ENTRY);
    }
    promises->kept_count = entries;
    numbers[0] = load_le64(bytes + 4);
    numbers[1] = load_le64(bytes + 12);
    return RC_OK;
}

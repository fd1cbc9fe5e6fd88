/*
 * What outlives a push round: shares sent and not acknowledged, and which shares of others were
 * applied. A share leaves custody by an acknowledgement, or by the receiver's word that it will
 * never count: then it is ours again and a round of its own adds it back. The receiver answers for
 * every share it remembers, also after a restart from a checkpoint: what the checkpoint does not
 * list, the model in it does not hold. So a share counts once, however often links break, and
 * whoever starts again; only a receiver that is gone for good takes what was under way along, as
 * it took its own weight. Loop thread.
 *
 * This is no promise (core/promise.h). Who promises a swap has not moved yet, so it can presume
 * abort at no cost, and its checkpoints need not know. A share has left: it is in neither model
 * until its receiver, not the initiator, has decided, so checkpoints hold it, to presume anything
 * loses weight, and a "no" takes a round that adds it back. All they have in common is to ask.
 */
#include "averaging/push/push.h"

#include "averaging/core/times.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    SAVE_VERSION = 2, /* 1: said only whether any was forgotten, not whom */
    SAVE_HEAD = 32,
    SAVE_CUSTODY = 72,
    SAVE_MARK = 56 + 8 * PUSH_MARK_DEPTH,
    SAVE_GONE = 8,
    MARKS_OF_ONE_MAX = 16, /* starts of one peer */
    LINKED_PATIENCE = 4
};

/* ---- ours ---- */

static bool is_under_way(const struct push_custody *custody)
{
    return custody->is_used && !custody->is_returned;
}

struct push_custody *push_custody_find(struct push *push, const struct round_key *key)
{
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        struct push_custody *custody = &push->custody[i];

        if (custody->is_used && round_key_is_equal(&custody->key, key)) return custody;
    }
    return NULL;
}

void push_custody_drop(struct push *push, struct push_custody *custody, struct commands *out)
{
    struct command *release = commands_add(out, COMMAND_RELEASE);

    (void)push;
    if (release != NULL) release->key = custody->key;
    *custody = (struct push_custody){0};
}

static void custody_lose(struct push *push, struct push_custody *custody, struct commands *out)
{
    push->counts.in_doubt_lost++;
    push_custody_drop(push, custody, out);
}

void push_custody_lose_all(struct push *push, struct commands *out)
{
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        if (push->custody[i].is_used) custody_lose(push, &push->custody[i], out);
    }
}

/* Who is linked will say; who never does is no better than gone. */
static uint64_t patience_ns(const struct push *push, const struct push_custody *custody)
{
    return roster_has(&push->roster, custody->to) ? LINKED_PATIENCE * DOUBT_NS : DOUBT_NS;
}

struct push_custody *push_custody_free(struct push *push, struct peer_id to, struct commands *out)
{
    struct push_custody *unused = NULL, *oldest = NULL;

    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        struct push_custody *custody = &push->custody[i];

        if (!custody->is_used) {
            unused = custody;
        } else if (is_under_way(custody) && peer_id_is_equal(custody->to, to)) {
            return NULL; /* one at a time, so that it can say which it has */
        } else if (is_under_way(custody) && custody->since_ns != 0 &&
                   (oldest == NULL || custody->since_ns < oldest->since_ns)) {
            oldest = custody;
        }
    }
    if (unused != NULL) return unused;
    if (oldest == NULL ||
        push->now_ns < deadline_after(oldest->since_ns, patience_ns(push, oldest))) {
        return NULL;
    }
    custody_lose(push, oldest, out);
    return oldest;
}

void push_custody_keep(struct push *push, struct commands *out)
{
    struct command *hold = commands_add(out, COMMAND_HOLD);
    struct push_custody *custody = NULL;

    for (uint32_t i = 0; i < SHARES_MAX && custody == NULL; i++) {
        if (!push->custody[i].is_used) custody = &push->custody[i];
    }
    CHECK(custody != NULL); /* begin() saw to it */
    if (hold != NULL) hold->key = push->out_key;
    *custody = (struct push_custody){.is_used = true,
                                     .key = push->out_key,
                                     .to = push->to.id,
                                     .weight = push->out_weight,
                                     .since_ns = push->now_ns,
                                     .ask_ns = deadline_after(push->now_ns, ASK_AFTER_NS)};
}

static void custody_return(struct push *push, struct push_custody *custody)
{
    custody->is_returned = true;
    custody->ask_ns = push->now_ns;
}

enum rc push_on_ack(struct push *push, struct peer_id from, const struct round_key *key,
                    struct commands *out)
{
    struct push_custody *custody = push_custody_find(push, key);

    if (push->out == OUT_SENT && peer_id_is_equal(push->to.id, from) &&
        round_key_is_equal(&push->out_key, key)) {
        push_out_become(push, OUT_ACKED);
        push_account_had(push, from, (double)push->out_weight);
        commands_score(out, from, SCORE_COMMITTED, NULL);
        return RC_OK;
    }
    if (custody == NULL || !is_under_way(custody) || !peer_id_is_equal(custody->to, from)) {
        return RC_STALE;
    }
    commands_score(out, from, SCORE_COMMITTED, NULL);
    push_account_had(push, from, (double)custody->weight);
    push_custody_drop(push, custody, out);
    return RC_OK;
}

bool push_custody_refused(struct push *push, struct peer_id from, const struct round_key *key)
{
    struct push_custody *custody = push_custody_find(push, key);

    if (custody == NULL || !is_under_way(custody) || !peer_id_is_equal(custody->to, from)) {
        return false;
    }
    custody_return(push, custody);
    return true;
}

enum rc push_on_applied(struct push *push, struct peer_id from,
                        const struct message_applied *applied, struct commands *out)
{
    struct push_custody *custody = push_custody_find(push, &applied->key);

    if (custody == NULL || !is_under_way(custody) || !peer_id_is_equal(custody->to, from)) {
        return RC_STALE;
    }
    custody->was_asked = false;
    switch (applied->state) {
    case APPLIED_YES:
        push->counts.in_doubt_resolved++;
        push_account_had(push, from, (double)custody->weight);
        push_custody_drop(push, custody, out);
        break;
    case APPLIED_NO:
        push->counts.in_doubt_resolved++;
        custody_return(push, custody);
        break;
    case APPLIED_FORGOTTEN: /* rather lost than counted twice */
        custody_lose(push, custody, out);
        break;
    default:
        break; /* asked again later */
    }
    return RC_OK;
}

static void custody_ask(struct push *push, struct push_custody *custody, struct commands *out)
{
    struct message *message;

    custody->ask_ns = deadline_after(push->now_ns, ASK_AGAIN_NS);
    if (!roster_has(&push->roster, custody->to)) return;
    if (custody->was_asked && !custody->was_scored) {
        commands_score(out, custody->to, SCORE_SILENT, "does not say what it took");
        custody->was_scored = true;
    }
    message = commands_send(out, custody->to, MESSAGE_APPLIED_REQ);
    if (message == NULL) return;
    message->as.outcome_req.key = custody->key;
    custody->was_asked = true;
}

void push_custody_on_link_up(struct push *push, struct peer_id peer, struct commands *out)
{
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        struct push_custody *custody = &push->custody[i];

        if (!is_under_way(custody) || !peer_id_is_equal(custody->to, peer)) continue;
        custody->was_asked = false; /* what it was asked may not have arrived */
        custody_ask(push, custody, out);
        custody->was_asked = false; /* and a peer that has just started may not hear the answer */
    }
}

/* One that came back is added like one that came in. */
static void add_back(struct push *push, struct push_custody *custody, struct commands *out)
{
    custody->ask_ns = deadline_after(push->now_ns, RETRY_MOST_NS);
    push_in_become(push, IN_RETURN);
    push->in_key = custody->key;
    push->from = (struct member_ref){push->options.self, push->options.boot};
    push->in_weight = custody->weight;
    push_snapshot_want(push, out);
}

void push_custody_tick(struct push *push, struct commands *out)
{
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        struct push_custody *custody = &push->custody[i];

        if (!custody->is_used) continue;
        if (custody->since_ns == 0) custody->since_ns = custody->ask_ns = push->now_ns;
        if (custody->is_returned) {
            if (!push->is_running && push->now_ns >= custody->ask_ns) add_back(push, custody, out);
        } else if (push->now_ns >= deadline_after(custody->since_ns, CUSTODY_NS)) {
            custody_lose(push, custody, out);
        } else if (push->now_ns >= custody->ask_ns) {
            custody_ask(push, custody, out);
        }
    }
}

uint64_t push_custody_next_ns(const struct push *push)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        const struct push_custody *custody = &push->custody[i];

        if (!custody->is_used || (custody->is_returned && push->is_running)) continue;
        if (custody->ask_ns < next) next = custody->ask_ns;
    }
    return next;
}

/* ---- others' ---- */

static struct push_mark *mark_find(const struct push *push, const struct round_key *key)
{
    for (uint32_t i = 0; i < push->marks_count; i++) {
        struct push_mark *mark = &push->marks[i];

        if (peer_id_is_equal(mark->id, key->initiator) && boot_id_is_equal(mark->boot, key->boot)) {
            return mark;
        }
    }
    return NULL;
}

/* The slot that gives way: of one that started again and again its own oldest, else the oldest. */
static struct push_mark *mark_victim(struct push *push, struct peer_id id)
{
    struct push_mark *own = NULL, *oldest = NULL;
    uint32_t owned = 0;

    for (uint32_t i = 0; i < push->marks_count; i++) {
        struct push_mark *mark = &push->marks[i];

        if (oldest == NULL || mark->used < oldest->used) oldest = mark;
        if (!peer_id_is_equal(mark->id, id)) continue;
        owned++;
        if (own == NULL || mark->used < own->used) own = mark;
    }
    if (owned >= MARKS_OF_ONE_MAX) return own;
    if (push->marks_count < PUSH_MARKS_MAX) return &push->marks[push->marks_count++];
    return oldest;
}

/* One start of a peer in 64 bits. Both ids are random; who chooses its own so that they look like
 * another's makes that one lose a share that is lost already. */
static uint64_t start_print(struct peer_id id, struct boot_id boot)
{
    return load_le64(id.bytes) ^ load_le64(boot.bytes) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t gone_kept(const struct push *push)
{
    return push->gone_count < PUSH_GONE_MAX ? push->gone_count : (uint32_t)PUSH_GONE_MAX;
}

static struct push_mark *mark_of(struct push *push, const struct round_key *key)
{
    struct push_mark *mark = mark_find(push, key);
    bool is_heir;

    if (mark == NULL) {
        mark = mark_victim(push, key->initiator);
        is_heir = mark->used != 0 && peer_id_is_equal(mark->id, key->initiator);
        if (mark->used != 0 && !is_heir) {
            push->gone[push->gone_count++ % PUSH_GONE_MAX] = start_print(mark->id, mark->boot);
        }
        *mark = (struct push_mark){.id = key->initiator, .boot = key->boot, .is_heir = is_heir};
    }
    mark->used = ++push->marks_clock;
    return mark;
}

bool push_mark_is_old(const struct push *push, const struct round_key *key)
{
    const struct push_mark *mark = mark_find(push, key);

    return mark != NULL && key->counter <= mark->high;
}

void push_mark_applied(struct push *push, const struct round_key *key)
{
    struct push_mark *mark = mark_of(push, key);

    mark->applied[mark->applied_count % PUSH_MARK_DEPTH] = key->counter;
    mark->applied_count++;
    if (key->counter > mark->high) mark->high = key->counter;
}

/* There was a mark for it, perhaps, which gave way to another. Of those that did longer ago than
 * the ring reaches, no sender has a share in custody any more: it gives up after CUSTODY_NS, and
 * hundreds have sent since. Without that end a swarm with more peers than marks would lose every
 * share that a broken link swallows. */
static bool may_be_forgotten(const struct push *push, const struct round_key *key)
{
    for (uint32_t i = 0; i < push->marks_count; i++) {
        const struct push_mark *mark = &push->marks[i];

        if (mark->is_heir && peer_id_is_equal(mark->id, key->initiator)) return true;
    }
    for (uint32_t i = 0; i < gone_kept(push); i++) {
        if (push->gone[i] == start_print(key->initiator, key->boot)) return true;
    }
    return false;
}

static enum applied_state mark_state(const struct push *push, const struct round_key *key)
{
    const struct push_mark *mark = mark_find(push, key);
    uint64_t oldest = UINT64_MAX;
    uint32_t remembered;

    if (mark == NULL) return may_be_forgotten(push, key) ? APPLIED_FORGOTTEN : APPLIED_NO;
    remembered =
        mark->applied_count < PUSH_MARK_DEPTH ? mark->applied_count : (uint32_t)PUSH_MARK_DEPTH;
    for (uint32_t i = 0; i < remembered; i++) {
        if (mark->applied[i] == key->counter) return APPLIED_YES;
        if (mark->applied[i] < oldest) oldest = mark->applied[i];
    }
    if (mark->applied_count > PUSH_MARK_DEPTH && key->counter < oldest) return APPLIED_FORGOTTEN;
    return APPLIED_NO;
}

/* "No" is a promise: the number is never taken afterwards. A start that is over sends nothing any
 * more, so only of the present one a mark has to be made for that. */
enum rc push_on_applied_req(struct push *push, struct member_ref from, const struct round_key *key,
                            struct commands *out)
{
    bool is_arriving =
        (push->in == IN_OPEN || push->in == IN_DONE) && round_key_is_equal(&push->in_key, key);
    enum applied_state state = is_arriving ? APPLIED_PENDING : mark_state(push, key);
    struct message *message;

    if (!peer_id_is_equal(key->initiator, from.id)) return RC_FORMAT;
    if (state == APPLIED_NO && boot_id_is_equal(key->boot, from.boot)) {
        struct push_mark *mark = mark_of(push, key);

        if (key->counter > mark->high) mark->high = key->counter;
    }
    message = commands_send(out, from.id, MESSAGE_APPLIED);
    if (message == NULL) return RC_NOMEM;
    message->as.applied.key = *key;
    message->as.applied.state = state;
    return RC_OK;
}

/* ---- in checkpoints ----
 * version u32 | custody u32 | marks u32 | gone u32 | counter u64 | weight f64
 * custody: id, boot, counter | receiver | weight f32 | returned u32
 * marks:   id, boot, high, applied in all u64, heir u32, applied u64[]
 * gone:    u64 */

static void key_store(const struct round_key *key, uint8_t *to)
{
    memcpy(to, key->initiator.bytes, PEER_ID_BYTES);
    memcpy(to + 20, key->boot.bytes, BOOT_ID_BYTES);
    store_le64(to + 36, key->counter);
}

static struct round_key key_load(const uint8_t *from)
{
    struct round_key key = {.counter = load_le64(from + 36)};

    memcpy(key.initiator.bytes, from, PEER_ID_BYTES);
    memcpy(key.boot.bytes, from + 20, BOOT_ID_BYTES);
    return key;
}

static void custody_store(const struct push_custody *custody, uint8_t *to)
{
    key_store(&custody->key, to);
    memcpy(to + 44, custody->to.bytes, PEER_ID_BYTES);
    store_le_float(to + 64, custody->weight);
    store_le32(to + 68, custody->is_returned);
}

static struct push_custody custody_load(const uint8_t *from)
{
    struct push_custody custody = {
        .is_used = true, .key = key_load(from), .weight = load_le_float(from + 64)};

    memcpy(custody.to.bytes, from + 44, PEER_ID_BYTES);
    custody.is_returned = load_le32(from + 68) != 0;
    return custody;
}

static void mark_store(const struct push_mark *mark, uint8_t *to)
{
    key_store(&(struct round_key){mark->id, mark->boot, mark->high}, to);
    store_le64(to + 44, mark->applied_count);
    store_le32(to + 52, mark->is_heir);
    for (uint32_t i = 0; i < PUSH_MARK_DEPTH; i++) {
        store_le64(to + 56 + 8 * (size_t)i, mark->applied[i]);
    }
}

static struct push_mark mark_load(const uint8_t *from)
{
    struct round_key key = key_load(from);
    struct push_mark mark = {.id = key.initiator, .boot = key.boot, .high = key.counter};

    mark.applied_count = (uint32_t)load_le64(from + 44);
    mark.is_heir = load_le32(from + 52) != 0;
    for (uint32_t i = 0; i < PUSH_MARK_DEPTH; i++) {
        mark.applied[i] = load_le64(from + 56 + 8 * (size_t)i);
    }
    return mark;
}

/* The share on its way out may have been applied, so it is in custody for whoever starts again. */
static bool is_out_of_hands(const struct push *push)
{
    return push->out == OUT_SENDING || push->out == OUT_SENT;
}

static void hold(struct exchange_counts *counts, const struct round_key *key, float weight)
{
    counts->held[counts->custody++] = *key;
    counts->custody_weight += (double)weight;
}

void push_custody_count(const struct push *push, struct exchange_counts *counts)
{
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        const struct push_custody *custody = &push->custody[i];

        if (custody->is_used) hold(counts, &custody->key, custody->weight);
    }
    if (is_out_of_hands(push)) hold(counts, &push->out_key, push->out_weight);
}

double push_held_weight(const struct push *push)
{
    struct exchange_counts counts = {.custody = 0};

    push_custody_count(push, &counts);
    return push->weight + counts.custody_weight;
}

enum rc push_save(const struct exchange *exchange, uint8_t **bytes, size_t *count)
{
    const struct push *push = push_seen_of(exchange);
    struct push_custody leaving = {
        .is_used = true, .key = push->out_key, .to = push->to.id, .weight = push->out_weight};
    struct exchange_counts counts = {.custody = 0};
    uint32_t at = SAVE_HEAD;
    uint64_t weight;
    uint8_t *saved;
    size_t total;

    push_custody_count(push, &counts);
    total = SAVE_HEAD + (size_t)counts.custody * SAVE_CUSTODY +
            (size_t)push->marks_count * SAVE_MARK + (size_t)gone_kept(push) * SAVE_GONE;
    saved = mem_alloc(total);
    if (saved == NULL) return RC_NOMEM;
    memcpy(&weight, &push->weight, sizeof weight);
    store_le32(saved, SAVE_VERSION);
    store_le32(saved + 4, counts.custody);
    store_le32(saved + 8, push->marks_count);
    store_le32(saved + 12, gone_kept(push));
    store_le64(saved + 16, push->counter);
    store_le64(saved + 24, weight);
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        if (!push->custody[i].is_used) continue;
        custody_store(&push->custody[i], saved + at);
        at += SAVE_CUSTODY;
    }
    if (is_out_of_hands(push)) {
        custody_store(&leaving, saved + at);
        at += SAVE_CUSTODY;
    }
    for (uint32_t i = 0; i < push->marks_count; i++) {
        mark_store(&push->marks[i], saved + at);
        at += SAVE_MARK;
    }
    for (uint32_t i = 0; i < gone_kept(push); i++, at += SAVE_GONE) {
        uint32_t oldest = push->gone_count - gone_kept(push);

        store_le64(saved + at, push->gone[(oldest + i) % PUSH_GONE_MAX]);
    }
    CHECK(at == total);
    *bytes = saved;
    *count = total;
    return RC_OK;
}

enum rc push_load(struct exchange *exchange, const uint8_t *bytes, size_t count)
{
    struct push *push = push_of(exchange);
    uint32_t custody, marks, gone, at = SAVE_HEAD;
    uint64_t bits;
    double weight, held;

    if (count < SAVE_HEAD) return RC_FORMAT;
    if (load_le32(bytes) == SAVE_VERSION - 1) return RC_MISMATCH;
    if (load_le32(bytes) != SAVE_VERSION) return RC_FORMAT;
    custody = load_le32(bytes + 4);
    marks = load_le32(bytes + 8);
    gone = load_le32(bytes + 12);
    if (custody > SHARES_MAX || marks > PUSH_MARKS_MAX || gone > PUSH_GONE_MAX) {
        return RC_FORMAT;
    }
    if (count != SAVE_HEAD + (size_t)custody * SAVE_CUSTODY + (size_t)marks * SAVE_MARK +
                     (size_t)gone * SAVE_GONE) {
        return RC_FORMAT;
    }
    bits = load_le64(bytes + 24);
    memcpy(&weight, &bits, sizeof weight);
    held = weight;
    if (!(weight > 0)) return RC_FORMAT;
    for (uint32_t i = 0; i < custody; i++) {
        struct push_custody kept = custody_load(bytes + SAVE_HEAD + (size_t)i * SAVE_CUSTODY);

        if (!peer_id_is_equal(kept.key.initiator, push->options.self)) return RC_FORMAT;
        held += (double)kept.weight;
        if (!(kept.weight > 0)) return RC_FORMAT;
        for (uint32_t j = 0; j < i; j++) { /* each share once */
            struct push_custody other = custody_load(bytes + SAVE_HEAD + (size_t)j * SAVE_CUSTODY);

            if (other.key.counter == kept.key.counter &&
                boot_id_is_equal(other.key.boot, kept.key.boot)) {
                return RC_FORMAT;
            }
        }
    }
    /* Twice that is what peers came to hold before all of it was bounded; halves can be given. */
    if (!(held <= 2 * WEIGHT_MOST)) return RC_FORMAT;
    memset(push->custody, 0, sizeof push->custody);
    for (uint32_t i = 0; i < custody; i++, at += SAVE_CUSTODY) {
        push->custody[i] = custody_load(bytes + at);
    }
    for (uint32_t i = 0; i < marks; i++, at += SAVE_MARK) {
        push->marks[i] = mark_load(bytes + at);
        push->marks[i].used = i + 1;
    }
    push->marks_count = marks;
    push->marks_clock = marks;
    push->gone_count = gone;
    for (uint32_t i = 0; i < gone; i++, at += SAVE_GONE) {
        push->gone[i] = load_le64(bytes + at);
    }
    push->weight = weight;
    if (load_le64(bytes + 16) > push->counter && load_le64(bytes + 16) <= UINT64_MAX / 2) {
        push->counter = load_le64(bytes + 16);
    }
    return RC_OK;
}

/*
 * The data phase of a group round: contributions to owners, means back, each part on its own. The
 * picture is in group.c; how long it waits for whom, in data_wait.c; what is otherwise where sums
 * are passed on, in relay.c. Loop thread; pure.
 */
#include "averaging/group/group.h"

#include "averaging/core/transfer.h"

#include "base/bytes.h"
#include "base/check.h"

#include <string.h>

static struct party *own_part(struct group *group)
{
    return &group->parties[group->self];
}

static bool has_bit(uint64_t bits, uint32_t index)
{
    return (bits >> index & 1) != 0;
}

/* ---- the beginning ---- */

static void parties_fill(struct group *group, const struct message_form *start)
{
    memset(group->parties, 0, sizeof group->parties);
    group->parties_count = start->members_count;
    for (uint32_t i = 0; i < start->members_count; i++) {
        struct party *party = &group->parties[i];

        party->ref = start->members[i];
        party->is_linked = roster_has(&group->roster, party->ref.id);
        if (peer_id_is_equal(party->ref.id, group->options.self)) {
            group->self = i;
            party->is_linked = true;
        }
    }
    group_plan_begin(group, start);
}

void group_data_begin(struct group *group, const struct message_form *start, struct commands *out)
{
    struct command *snapshot;

    group->stream = group_stream(group->proposer, start->round);
    group->start = group_start_digest(start);
    group->has_charged = false;
    parties_fill(group, start);
    group_start_heard(group, out);
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (!group->parties[i].is_linked) {
            group_party_lose(group, i);
        } else if (i != group->self && group_leaves_out(group, group->parties[i].ref.id)) {
            group->parties[i].is_out = true; /* it has our values all the same */
            group_party_lose(group, i);
        }
    }
    memset(group->arrived, 0, group->options.chunks * sizeof *group->arrived);
    memset(group->absorbed, 0, group->options.chunks * sizeof *group->absorbed);
    memset(group->partials, CHUNK_NONE, group->options.chunks);
    memset(group->means, CHUNK_NONE, group->options.chunks);
    memset(group->bitmap, 0, group->bitmap_bytes);
    group->round = start->round;
    group->form = *start;
    group->form.statements = NULL; /* was the message's */
    group->form.statements_bytes = 0;
    group_become(group, GROUP_SNAPSHOT);
    group->snapshot_ns = group->now_ns;
    snapshot = commands_add(out, COMMAND_SNAPSHOT);
    if (snapshot != NULL) snapshot->key.counter = start->round;
}

/* ---- sending ---- */

struct command *group_send_range(struct group *group, struct peer_id to, enum data_kind kind,
                                 uint32_t first, uint32_t count, struct commands *out)
{
    struct command *send = commands_add(out, COMMAND_SEND_RANGE);

    if (send == NULL) return NULL;
    send->to = to;
    send->buffer = kind;
    send->stream = group->stream;
    send->first = first;
    send->count = count;
    return send;
}

/* What the credit of `to` allows and it does not have yet. */
static void send_offers(struct group *group, uint32_t index, struct commands *out)
{
    struct party *to = &group->parties[index];
    uint32_t allowed = (uint32_t)deadline_least(to->credit, to->owed);

    if (group_relays(group)) {
        group_relay_offers(group, index, out);
        return;
    }
    if (!to->is_linked || to->sent >= allowed || (to->part != PART_OPEN && !to->is_out)) return;
    (void)group_send_range(group, to->ref.id, DATA_OFFER, to->first + to->sent, allowed - to->sent,
                           out);
    to->sent = allowed;
}

static bool send_credit(const struct group *group, const struct party *party, uint32_t chunks,
                        struct commands *out)
{
    struct message *message = commands_send(out, party->ref.id, MESSAGE_CREDIT);

    if (message == NULL) return false;
    message->as.credit.stream = group->stream;
    message->as.credit.chunks = chunks;
    message->as.credit.start = group->start;
    return true;
}

static void grant(struct group *group, struct party *party, struct commands *out)
{
    uint32_t more;

    if (party->is_dropped) return;
    more = transfer_grantable(&group->options, party->granted, party->done, party->awaited);
    if (more > 0 && send_credit(group, party, more, out)) party->granted += more;
}

/* Whoever has a part is waited for. If it has another START it says so, but to whom we allow
 * nothing that would not be known. */
static void show_start(struct group *group, const struct party *party, struct commands *out)
{
    if (own_part(group)->count == 0 && party->part == PART_OPEN) {
        send_credit(group, party, 0, out);
    }
}

void group_grant_all(struct group *group, struct commands *out)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (i != group->self) grant(group, &group->parties[i], out);
    }
}

void group_allowed(const struct exchange *exchange, uint32_t *chunks, uint32_t *streams)
{
    const struct group *group = (const struct group *)(const void *)exchange;

    *chunks = *streams = 0;
    for (uint32_t i = 0; group->state == GROUP_DATA && i < group->parties_count; i++) {
        const struct party *party = &group->parties[i];

        if (i == group->self || party->is_dropped) continue;
        *streams += party->done < party->awaited;
        *chunks += party->granted - party->done;
    }
}

/* ---- the mean of our part ---- */

bool group_is_complete(const struct group *group, uint32_t part, uint32_t chunk)
{
    uint64_t missing = group->parties[part].children & ~group->absorbed[chunk];

    return group->parties[part].has_own &&
           (missing & (group->arrived[chunk] | ~group->dropped)) == 0;
}

static void reduce_if_complete(struct group *group, uint32_t part, uint32_t chunk,
                               struct commands *out)
{
    struct command *reduce;

    if (part != group->self) {
        group_relay_sum(group, part, chunk, out);
        return;
    }
    if (group->means[chunk] != CHUNK_NONE || !group_is_complete(group, part, chunk)) return;
    group->means[chunk] = CHUNK_REDUCING;
    reduce = commands_add(out, COMMAND_REDUCE);
    if (reduce == NULL) return;
    reduce->stream = group->stream;
    reduce->first = chunk;
    reduce->count = 1;
    reduce->member = group->self;
    reduce->round = group->round;
    reduce->wants_hash = group_relays(group); /* see group_on_chunk() */
}

static void reduce_part(struct group *group, uint32_t index, struct commands *out)
{
    const struct party *part = &group->parties[index];

    if (group->state != GROUP_DATA || group->has_failed) return;
    for (uint32_t chunk = part->first; chunk < part->first + part->count; chunk++) {
        reduce_if_complete(group, index, chunk, out);
    }
}

/* Members that are in the mean of every chunk of our part. */
static uint64_t contributors(struct group *group)
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < group->parties_count; i++) {
        bool is_all = i == group->self || group_relays(group) ||
                      group->parties[i].done == own_part(group)->count;

        if (is_all) bits |= UINT64_C(1) << i;
    }
    return bits;
}

static struct digest part_hash(const struct group *group, const struct party *part)
{
    return hash_of(group->hashes + part->first, part->count * sizeof *group->hashes);
}

/* To all who gave us theirs. */
static void send_mean(struct group *group, const struct party *part, uint32_t chunk,
                      bool is_relayed, struct commands *out)
{
    struct command *send = NULL;

    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (!has_bit(part->children, i) || !group->parties[i].is_linked) continue;
        send = group_send_range(group, group->parties[i].ref.id, DATA_MEAN, chunk, 1, out);
        if (send != NULL) send->member = i;
    }
    if (send != NULL) send->is_last = is_relayed;
}

/* The hash goes to each from us, whoever brings it the chunks: so nobody else can change them. */
static void send_means(struct group *group, uint32_t chunk, struct commands *out)
{
    struct party *own = own_part(group);
    bool is_last = own->staged == own->count;

    send_mean(group, own, chunk, false, out);

    for (uint32_t i = 0; i < group->parties_count; i++) {
        const struct party *to = &group->parties[i];
        struct message *message;

        if (i == group->self || !to->is_linked || !is_last) continue;
        message = commands_send(out, to->ref.id, MESSAGE_MEAN);
        if (message == NULL) continue;
        message->as.mean.stream = group->stream;
        message->as.mean.part = group->self;
        message->as.mean.contributors = contributors(group);
        message->as.mean.hash = part_hash(group, own);
        message->as.mean.rate = group_rate_of(group, i);
    }
    if (is_last) own->part = PART_COMMITTED;
}

/* ---- the end ---- */

static void bitmap_fill(struct group *group)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        const struct party *part = &group->parties[i];

        if (part->part != PART_COMMITTED) continue;
        for (uint32_t chunk = part->first; chunk < part->first + part->count; chunk++) {
            group->bitmap[chunk / 8] |= (uint8_t)(1u << chunk % 8);
        }
    }
}

/* Did anything of anyone else come in? Else "the mean" is our own part alone. */
static bool has_mixed(const struct group *group)
{
    if (group_relays(group)) return group_relay_has_mixed(group);
    for (uint32_t i = 0; i < group->parties_count; i++) {
        const struct party *party = &group->parties[i];

        if (i == group->self) continue;
        if (party->done > 0 || (party->part == PART_COMMITTED && party->count > 0)) return true;
    }
    return false;
}

/* Did anyone but us come this far? Else all had turned to another proposal before START came. */
static bool has_met_anyone(const struct group *group)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (i != group->self && (group->parties[i].credit > 0 || group->parties[i].received > 0)) {
            return true;
        }
    }
    return false;
}

static void over_if_all_ended(struct group *group, struct commands *out)
{
    if (group->state != GROUP_DATA) return;
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (group->parties[i].part == PART_OPEN) return;
    }
    if (group->has_failed) group_data_cancel(group, ABORT_PROTOCOL, out);
    if (has_mixed(group) || group->has_refused) {
        conduct_came_about(&group->conduct, group->proposer.id);
        bitmap_fill(group);
        group_over(group, OVER_COMMITTED, NULL, false, out);
    } else if (has_met_anyone(group) && group->has_failed) {
        group_over(group, OVER_ABORTED, "a member of the schedule was lost", false, out);
    } else {
        bool has_met = has_met_anyone(group);

        group_came_to_nothing(group, out);
        group_over(group, OVER_ABORTED,
                   has_met ? "all other members were lost" : "the others took up another proposal",
                   !has_met, out);
    }
}

void group_data_advance(struct group *group, struct commands *out)
{
    reduce_part(group, group->self, out);
    over_if_all_ended(group, out);
}

void group_data_cancel(struct group *group, enum abort_code code, struct commands *out)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (i == group->self || !group->parties[i].is_linked) continue;
        group_send_abort(group->parties[i].ref.id, group->proposer, group->round, code, out);
    }
}

/* ---- our own jobs ---- */

static void fail(struct group *group, enum rc rc, const char *reason, struct commands *out)
{
    group_data_cancel(group, rc == RC_NONFINITE ? ABORT_NONFINITE : ABORT_LOCAL, out);
    group_over(group, OVER_ABORTED, reason, false, out);
}

/* Our values of a part are added to those of others. */
static void absorb_own(struct group *group, uint32_t index, struct commands *out)
{
    const struct party *part = &group->parties[index];
    struct command *absorb = part->count == 0 ? NULL : commands_add(out, COMMAND_ABSORB_OWN);

    if (absorb == NULL) return;
    absorb->first = part->first;
    absorb->count = part->count;
    absorb->weight = own_part(group)->weight;
}

static void snapshot_done(struct group *group, enum rc rc, struct commands *out)
{
    if (rc != RC_OK) {
        fail(group, rc,
             rc == RC_NONFINITE ? "the local model is not finite" : "the snapshot failed", out);
        return;
    }
    group_become(group, GROUP_DATA);
    group->data_ns = group->now_ns;
    group_wait_begin(group);
    for (uint32_t i = 0; i < group->parties_count && !group->has_failed; i++) {
        if (i == group->self || group_relay_passes(group, i)) absorb_own(group, i, out);
        if (i == group->self) continue;
        grant(group, &group->parties[i], out);
        show_start(group, &group->parties[i], out);
        send_offers(group, i, out);
    }
    over_if_all_ended(group, out); /* everyone may have left before our snapshot was there */
}

static void own_done(struct group *group, uint32_t first, enum rc rc, struct commands *out)
{
    uint32_t index;

    if (first >= group->options.chunks) return;
    index = schedule_part(&group->plan, first);
    if (group->parties[index].has_own || group->has_failed) return;
    if (rc != RC_OK) {
        fail(group, rc, "the own part could not be absorbed", out);
        return;
    }
    group->parties[index].has_own = true;
    reduce_part(group, index, out);
    over_if_all_ended(group, out);
}

static void reduce_done(struct group *group, uint32_t chunk, enum rc rc, struct digest hash,
                        struct commands *out)
{
    struct party *own = own_part(group);

    if (chunk >= group->options.chunks || group->has_failed) return;
    if (group->partials[chunk] != CHUNK_REDUCING && group->means[chunk] != CHUNK_REDUCING) return;
    if (rc != RC_OK) {
        fail(group, rc, "a mean could not be formed", out);
        return;
    }
    if (group_relay_summed(group, chunk, out)) return;
    group->means[chunk] = CHUNK_DONE;
    group->hashes[chunk] = hash;
    own->staged++;
    send_means(group, chunk, out);
    over_if_all_ended(group, out);
}

void group_on_job_done(struct group *group, enum exchange_job job, uint32_t first, enum rc rc,
                       struct digest hash, struct commands *out)
{
    group->progress_ns = group->now_ns;
    if (job == JOB_SNAPSHOT && group->state == GROUP_SNAPSHOT) {
        snapshot_done(group, rc, out);
    } else if (job == JOB_ABSORB_OWN && group->state == GROUP_DATA) {
        own_done(group, first, rc, out);
    } else if (job == JOB_REDUCE && group->state == GROUP_DATA) {
        reduce_done(group, first, rc, hash, out);
    }
}

/* ---- what others send ---- */

int group_party_of(const struct group *group, struct member_ref from)
{
    int index = group_party_find(group, from.id);

    if (group->state != GROUP_SNAPSHOT && group->state != GROUP_DATA) return -1;
    if (index < 0 || (uint32_t)index == group->self) return -1;
    return boot_id_is_equal(group->parties[index].ref.boot, from.boot) ? index : -1;
}

enum rc group_on_credit(struct group *group, struct member_ref from,
                        const struct message_credit *credit, struct commands *out)
{
    int index = group_party_of(group, from);
    struct party *to;

    if (index < 0 || credit->stream != group->stream) return RC_STALE;
    to = &group->parties[index];
    if (!digest_is_equal(credit->start, group->start)) {
        if (!to->is_unlike) group_send_cancel(from.id, group->stream, out);
        group_part_ways(group, (uint32_t)index, out);
        group_data_advance(group, out);
        return RC_MISMATCH;
    }
    if (!to->is_linked) { /* its link is newer than START: we do without each other */
        group_send_abort(from.id, group->proposer, group->round, ABORT_LINK, out);
        return RC_STALE;
    }
    if (credit->chunks == 0) return RC_OK; /* see show_start() */
    if (group_relays(group) ? group->has_failed : to->part != PART_OPEN && !to->is_out) {
        return RC_STALE;
    }
    if (to->credit > to->owed || credit->chunks > to->owed - to->credit) return RC_FORMAT;
    to->credit += credit->chunks;
    group->progress_ns = group->now_ns;
    if (group->state == GROUP_DATA) send_offers(group, (uint32_t)index, out);
    return RC_OK;
}

static void part_close_if_complete(struct group *group, struct party *part, struct commands *out)
{
    if (part->part != PART_OPEN || !part->has_mean || part->staged < part->count) return;
    if (digest_is_equal(part_hash(group, part), part->mean)) {
        part->part = PART_COMMITTED;
        group_wait_second_over(group, (uint32_t)(part - group->parties));
    } else if (group_relays(group)) {
        /* Of those who brought it, or the owner: who it was shows in a direct round. */
        group_relay_fail(group);
    } else {
        part->part = PART_LOST;
        commands_score(out, part->ref.id, SCORE_BROKE, "sent a MEAN with a wrong hash");
    }
    over_if_all_ended(group, out);
}

enum rc group_on_mean(struct group *group, struct member_ref from, const struct message_mean *mean,
                      struct commands *out)
{
    int index = group_party_of(group, from);
    struct party *part;

    if (index < 0 || mean->stream != group->stream) return RC_STALE;
    if (group->state != GROUP_SNAPSHOT && group->state != GROUP_DATA) return RC_STALE;
    part = &group->parties[index];
    if (part->is_unlike) return RC_STALE;
    if (mean->part != (uint32_t)index) return RC_FORMAT;
    if (group->state == GROUP_SNAPSHOT) { /* closed without us, and not sent a second time */
        group_party_lose(group, (uint32_t)index);
        return RC_STALE;
    }
    if (group->parties_count < 64 && mean->contributors >> group->parties_count != 0) {
        return RC_FORMAT;
    }
    if (part->part != PART_OPEN) return RC_STALE;
    if (part->has_mean) return RC_REPLAY;
    part->has_mean = true;
    part->mean = mean->hash;
    group_wait_returned(group, mean->contributors);
    part->rate = mean->rate;
    group->progress_ns = group->now_ns;
    part_close_if_complete(group, part, out);
    return RC_OK;
}

enum rc group_on_abort(struct group *group, struct member_ref from,
                       const struct message_abort *abort, struct commands *out)
{
    int index = group_party_of(group, from);

    if (index < 0 || !group_abort_fits(group, abort)) return RC_STALE;
    group_party_left(group, (uint32_t)index, out);
    group_data_advance(group, out);
    return RC_OK;
}

static enum rc on_offer_chunk(struct group *group, uint32_t index, uint32_t chunk, float *weight)
{
    struct party *party = &group->parties[index];
    uint32_t part;

    if (chunk >= group->options.chunks) return RC_FORMAT;
    part = schedule_part(&group->plan, chunk);
    if (party->is_dropped) return RC_STALE;
    if (!has_bit(group->parties[part].children, index)) return RC_FORMAT;
    if (has_bit(group->arrived[chunk], index)) return RC_REPLAY;
    if (party->received >= party->granted) return RC_LIMIT;
    group->arrived[chunk] |= UINT64_C(1) << index;
    party->received++;
    *weight = group_weight_below(group, part, index);
    return RC_OK;
}

static enum rc on_mean_chunk(struct group *group, uint32_t index, uint32_t chunk)
{
    const struct party *part;

    if (chunk >= group->options.chunks) return RC_FORMAT;
    part = &group->parties[schedule_part(&group->plan, chunk)];
    if (group->parties[index].is_unlike) return RC_STALE;
    if (part == own_part(group) || part->parent != index) return RC_FORMAT;
    if (group_relay_is_early(group, part, chunk)) return RC_FORMAT;
    if (part->part != PART_OPEN) return RC_STALE;
    if (group->means[chunk] != CHUNK_NONE) return RC_REPLAY;
    group->means[chunk] = CHUNK_CHECKING;
    return RC_OK;
}

enum rc group_on_chunk(struct group *group, const struct chunk_ref *chunk, struct chunk_use *use)
{
    int index = group_party_find(group, chunk->from);
    uint32_t part;

    if (group->state != GROUP_DATA || chunk->stream != group->stream) return RC_STALE;
    if (index < 0 || (uint32_t)index == group->self) return RC_STALE;
    if (chunk->kind == DATA_OFFER) {
        *use = (struct chunk_use){.likely_scale = 1, .slot = (uint32_t)index};
        return on_offer_chunk(group, (uint32_t)index, chunk->chunk, &use->weight);
    }
    if (chunk->kind != DATA_MEAN || chunk->chunk >= group->options.chunks) return RC_FORMAT;
    part = schedule_part(&group->plan, chunk->chunk);
    /* Where a mean comes from its owner itself, over a connection that vouches for every byte, its
     * hash would be one more word of the same peer. */
    *use = (struct chunk_use){.likely_scale = 1,
                              .slot = group->self,
                              .is_passed_on = group_relay_passes(group, part),
                              .wants_hash = group_relays(group)};
    return on_mean_chunk(group, (uint32_t)index, chunk->chunk);
}

/* A chunk that cannot be used. What fails for our own reasons is not held against the sender. */
static void chunk_failed(struct group *group, uint32_t index, enum rc rc, struct commands *out)
{
    struct peer_id id = group->parties[index].ref.id;

    (void)transfer_fault(rc, id, out);
    if (rc == RC_FORMAT) commands_score(out, id, SCORE_BROKE, "sent a malformed chunk");
    group_party_lose(group, index);
    group_data_advance(group, out);
}

static void offer_checked(struct group *group, uint32_t index, uint32_t chunk, enum rc rc,
                          struct commands *out)
{
    struct party *party = &group->parties[index];
    const uint64_t bit = UINT64_C(1) << index;

    if (chunk >= group->options.chunks) return;
    if ((group->arrived[chunk] & ~group->absorbed[chunk] & bit) == 0) return;
    if (rc != RC_OK) {
        group->arrived[chunk] &= ~bit;
        chunk_failed(group, index, rc, out);
        return;
    }
    group->absorbed[chunk] |= bit;
    if (party->done++ == 0) party->since_ns = group->now_ns;
    party->until_ns = group->now_ns;
    if (party->done == party->awaited && !party->is_dropped) group_wait_first_over(group, index);
    grant(group, party, out);
    if (!group->has_failed) {
        reduce_if_complete(group, schedule_part(&group->plan, chunk), chunk, out);
    }
}

static void mean_checked(struct group *group, uint32_t index, uint32_t chunk, enum rc rc,
                         struct digest hash, struct commands *out)
{
    struct party *part;

    if (chunk >= group->options.chunks || group->means[chunk] != CHUNK_CHECKING) return;
    part = &group->parties[schedule_part(&group->plan, chunk)];
    if (part->parent != index) return;
    group->means[chunk] = rc == RC_OK ? CHUNK_DONE : CHUNK_NONE;
    if (rc == RC_REFUSED && !group_relays(group)) {
        group_part_refuse(group, index);
        over_if_all_ended(group, out);
        return;
    }
    if (rc != RC_OK) {
        chunk_failed(group, index, rc, out);
        return;
    }
    group->hashes[chunk] = hash;
    part->staged++;
    if (!group->has_failed) send_mean(group, part, chunk, true, out);
    part_close_if_complete(group, part, out);
}

void group_on_chunk_checked(struct group *group, const struct chunk_ref *chunk, enum rc rc,
                            struct digest hash, struct commands *out)
{
    int index = group_party_find(group, chunk->from);

    if (group->state != GROUP_DATA || chunk->stream != group->stream) return;
    if (index < 0 || (uint32_t)index == group->self) return;
    group->progress_ns = group->now_ns;
    if (chunk->kind == DATA_OFFER) {
        offer_checked(group, (uint32_t)index, chunk->chunk, rc, out);
    } else if (chunk->kind == DATA_MEAN) {
        mean_checked(group, (uint32_t)index, chunk->chunk, rc, hash, out);
    }
}

/* ---- links and time ---- */

void group_data_on_link_lost(struct group *group, struct peer_id peer, struct commands *out)
{
    int index = group_party_find(group, peer);

    if (index < 0 || (uint32_t)index == group->self) return;
    group->parties[index].is_linked = false;
    group->parties[index].is_cut = true;
    group_party_left(group, (uint32_t)index, out);
    group_data_advance(group, out);
}

/*
 * The node as a donor: when a snapshot for joiners is taken and of what, how fast they are served,
 * and what members answer who wants to know whether a donor lies.
 *
 * A snapshot costs the training lane one copy; hashing runs in the store lane. Parameters are taken
 * as a group round agreed on them where a joiner asks for that: those bits are the same at every
 * member, so a joiner can load from several. While a round runs, and just before one, all joiners
 * together get a small share of what the round itself sends. Loop thread, but for the run
 * functions.
 */
#include "peer/node/models/internal.h"

#include "averaging/codec/codec.h"
#include "base/crash_point.h"

#include "base/floats.h"
#include "peer/download/buckets.h"
#include "peer/times.h"

#include <math.h>

enum { SKETCHES_A_MINUTE = 8, ROUNDS_AHEAD_MAX = 64 };
/* What can be on its way to one joiner when a bucket is queued for it: that, and two being written.
 */
#define UNDER_WAY   (3.0 * CHUNK_VALUES * sizeof(float))
#define ROUND_SHARE 0.25 /* of what a round sends, for joiners meanwhile */
#define BURST_SHARE 0.01 /* the same, at once */
#define PACE_LEAST  (CHUNK_VALUES * sizeof(float) / 8) /* bytes a second */

/* ---- snapshots ---- */

/* Somebody who has no model yet is linked, and may ask for ours. */
static bool is_joiner_near(const struct node *node)
{
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!other->has_progress || !other->progress.is_serving) return true;
    }
    return donor_leases(node->models->donor) > 0;
}

/* What a round agreed on is kept for joiners that are near, and stays when somebody waits for it.
 * Small models are not asked of several donors, and are not worth the memory. */
static void keep_agreed(struct node *node, const struct donor_wish *wish)
{
    uint64_t until =
        wish != NULL && wish->base == NULL && wish->round > 0 ? wish->round : UINT64_MAX;

    if (node->round == NULL || !rounds_are_common(node)) return;
    if (node->options.strategy->rule->agreed == NULL || !lane_shares_all(node)) return;
    round_keep_agreed(node->round, joiner_is_wide(node->models->joiner) && is_joiner_near(node),
                      until);
}

/* Outer methods keep an anchor between rounds, which is what the last one agreed on. */
static bool keeps_anchor(const struct node *node)
{
    return node->round != NULL && node->options.strategy->rule->is_outer;
}

/* What an anchor was agreed on with counts for who is to be in rounds with this peer. Where nobody
 * else trains, who asks is to have the model as it is, with all that came since the last round. */
static bool gives_anchor(const struct node *node)
{
    if (!keeps_anchor(node) || node->options.is_keeper) return keeps_anchor(node);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        if (!node->neighbours[i].is_keeper) return true;
    }
    return false;
}

/* Is what is wanted there, or no longer worth waiting for? */
static bool is_due(struct node *node, const struct donor_wish *wish)
{
    struct models_donation *donation = &node->models->donation;
    const struct round_stats stats = rounds_stats(node);

    if (keeps_anchor(node) && round_is_settling(node->round)) return false;
    if (wish->round == 0 || wish->base != NULL || node->round == NULL) return true;
    if (!rounds_are_common(node) || !lane_shares_all(node)) return true;
    if (wish->round > stats.counts.next_round + ROUNDS_AHEAD_MAX) return true; /* it never comes */
    if (keeps_anchor(node)) {
        if (stats.counts.next_round > wish->round) return true;
    } else {
        mem_free(donation->agreed);
        donation->agreed = round_take_agreed(node->round, wish->round, &donation->agreed_round);
        if (donation->agreed != NULL) return true;
    }
    return node_now(node) >=
           wish->since_ns + (stats.last_members > 1 ? MODELS_AGREED_NS : MODELS_ALONE_NS);
}

static bool donation_is_due(struct node *node)
{
    struct donor_wish wish;

    if (node->models->donation.is_running) {
        keep_agreed(node, NULL);
        return false;
    }
    if (!donor_wants_snapshot(node->models->donor, &wish)) { /* or who waited for it has gone */
        keep_agreed(node, NULL);
        return false;
    }
    keep_agreed(node, &wish);
    return is_due(node, &wish);
}

static enum border_next donation_begin(struct node *node, struct border_job *job)
{
    struct models_donation *donation = &node->models->donation;
    struct donor_snapshot *snapshot = &donation->snapshot;
    const struct round_stats stats = rounds_stats(node);
    struct donor_wish wish;
    bool is_wanted = donor_wants_snapshot(node->models->donor, &wish);

    (void)job;
    CHECK(is_wanted && !donation->is_running);
    donor_begin_snapshot(node->models->donor);
    *snapshot = (struct donor_snapshot){.step = node->step,
                                        .samples = node->model_samples,
                                        .round = stats.counts.next_round,
                                        .lineage = node->lineage};
    if (donation->agreed != NULL) {
        snapshot->round = donation->agreed_round + 1;
        snapshot->is_agreed = true;
    }
    if (gives_anchor(node)) {
        round_hold(node->round, true); /* until it is copied */
        donation->rule_count = round_rule_state(node->round, donation->rule);
        snapshot->is_agreed = donation->rule_count > 0;
    }
    donation->node = node;
    donation->base = wish.base;
    donation->is_running = true;
    return BORDER_SUBMIT;
}

static void donation_run(struct border_job *job)
{
    job->rc = models_copy(&job->node->models->donation);
}

/* In the store lane: the slow part. */
static void run_hash(struct job *base)
{
    struct models_donation *donation = (struct models_donation *)base;

    if (donation->base != NULL) {
        donation->rc = donor_snapshot_change(&donation->snapshot, donation->base);
        if (donation->rc != RC_OK) return;
    }
    donation->rc = donor_snapshot_hash(&donation->snapshot);
}

static void donation_done(struct node *node)
{
    struct models_donation *donation = &node->models->donation;

    donation->is_running = false;
    donor_on_snapshot(node->models->donor, donation->rc, &donation->snapshot, node_now(node),
                      &node->outbox);
}

static void hash_done(struct job *base)
{
    struct models_donation *donation = (struct models_donation *)base;

    donation_done(donation->node);
    node_continue(donation->node);
}

static void donation_copied(struct node *node, struct border_job *job)
{
    struct models_donation *donation = &node->models->donation;

    crash_point(CRASH_JOIN_SNAPSHOT_COPIED);
    donation->rc = job->rc;
    donation->rule_count = 0;
    if (keeps_anchor(node)) round_hold(node->round, false);
    if (job->rc != RC_OK) {
        donation_done(node);
        return;
    }
    donation->job = (struct job){
        .run = run_hash, .done = hash_done, .cost_ns = node->values + 1, .name = "hash"};
    node->env->ops->submit(node->env, LANE_STORE, &donation->job);
}

const struct border_work border_donate = {.name = "donate",
                                          .states = BORDER_ALIVE,
                                          .when = donation_is_due,
                                          .prepare = donation_begin,
                                          .run = donation_run,
                                          .done = donation_copied};

bool models_are_donated(const struct node *node)
{
    return node->models->donation.is_running;
}

void models_forget_agreed(struct node *node)
{
    mem_free(node->models->donation.agreed);
    node->models->donation.agreed = NULL;
}

void models_adopt_rule(struct node *node)
{
    float *planes[RULE_STATE_MAX];
    size_t count = 0, values = node->mixed;

    while (count < RULE_STATE_MAX) {
        uint32_t section = (uint32_t)(SECTION_RULE + count);
        size_t held;

        if (joiner_section(node->models->joiner, section, &held) == NULL) break;
        if (held != node->mixed) values = held;
        planes[count++] = joiner_take_section(node->models->joiner, section);
    }
    round_rule_adopt(node->round, planes, count, values);
}

void models_donation_deinit(struct node *node)
{
    donor_snapshot_deinit(
        &node->models->donation.snapshot); /* an env that died kept it from the donor */
    mem_free(node->models->donation.agreed);
}

/* ---- serving ---- */

/* What this peer sends in a round. */
static double round_bytes(const struct node *node, const struct round_stats *stats)
{
    double bytes = (double)codec_plane_bytes(&node->options.strategy->codec, node->mixed);

    if (!rounds_are_common(node) || stats->last_members < 2) return bytes;
    return bytes * 2.0 * (stats->last_members - 1) / stats->last_members;
}

/* How fast, and how much at once, for all joiners together. Where rounds have a rate, joiners get a
 * share of it while one runs, and already when one is so near that it would find what is queued
 * for them in its way. */
struct upload {
    uint64_t bytes_per_s, burst_bytes; /* 0: no limit */
    size_t queue_max;                  /* buckets queued for one of them */
};

static struct upload upload_now(struct node *node)
{
    struct upload upload = {.queue_max = NODE_DONOR_QUEUE};
    const struct round_stats stats = rounds_stats(node);
    double bytes, rate;

    if (node->round == NULL) return upload;
    if (stats.last_ns == 0) { /* no round has told yet what the line can do */
        if (round_is_active(node->round)) upload.bytes_per_s = CHUNK_VALUES * sizeof(float);
        return upload;
    }
    bytes = round_bytes(node, &stats);
    rate = bytes * 1e9 / (double)stats.last_ns;
    if (!rounds_are_near(node, 1e9 * UNDER_WAY * donor_leases(node->models->donor) / rate))
        return upload;
    upload.bytes_per_s = (uint64_t)fmin(fmax(ROUND_SHARE * rate, PACE_LEAST), 1e15);
    upload.burst_bytes = (uint64_t)(BURST_SHARE * bytes);
    return upload;
}

void models_donate(struct node *node, struct peer_id to)
{
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_STATE};
    struct upload upload = upload_now(node);
    uint64_t now_ns = node_now(node);
    struct link_view link;
    const uint8_t *bytes;
    size_t count;

    donor_set_pace(node->models->donor, upload.bytes_per_s, upload.burst_bytes, now_ns);
    while (links_peer(node->links, to, &link) && link.bulk_queued < upload.queue_max &&
           donor_next_bucket(node->models->donor, to, now_ns, &header.stream, &header.arg, &bytes,
                             &count)) {
        struct blob *body = blob_copy(bytes, count);

        if (body == NULL) return; /* the joiner asks again */
        (void)links_send_bulk(node->links, to, &header, body);
        blob_unref(body);
    }
}

/* Who was first last time is last this time. */
void models_donate_all(struct node *node)
{
    struct models *models = node->models;
    struct peer_id to;

    if (donor_leases(models->donor) == 0) return;
    models->donation.turn++;
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        if (donor_owes(models->donor, (models->donation.turn + i) % DONOR_LEASES_MAX, &to)) {
            models_donate(node, to);
        }
    }
}

/* ---- sketches for others ---- */

static void write_sketch(const struct sketch *sketch, uint8_t *bytes)
{
    for (size_t i = 0; i < SKETCH_VALUES; i++) {
        store_le_float(bytes + 4 * i, sketch->values[i]);
    }
}

void models_on_sketch_req(struct node *node, struct peer_id from,
                          const struct message_sketch_req *request)
{
    struct models_sketching *sketching = &node->models->sketching;
    struct ration *ration = &door_neighbour(node, from)->sketches;

    if (node->state != NODE_TRAINING || sketching->count == MODELS_SKETCHES_MAX ||
        !door_ration(ration, node_now(node), MODELS_SKETCHES_NS, SKETCHES_A_MINUTE)) {
        return; /* who is not answered asks others */
    }
    sketching->asks[sketching->count].from = from;
    sketching->asks[sketching->count++].seed = request->seed;
}

static bool sketch_is_due(struct node *node)
{
    return node->models->sketching.count > 0;
}

static void sketch_done(struct node *node, struct border_job *job)
{
    struct models_sketching *sketching = &node->models->sketching;
    const struct sketch_answer *answer = &sketching->answer;
    struct message message = {.type = MESSAGE_SKETCH};
    struct peer_id to = sketching->asks[0].from;
    uint8_t values[SKETCH_BYTES];
    const struct round_stats stats = rounds_stats(node);

    message.as.sketch.seed = sketching->asks[0].seed;
    sketching->count--;
    memmove(sketching->asks, sketching->asks + 1, sketching->count * sizeof sketching->asks[0]);
    if (job->rc != RC_OK) return;
    write_sketch(&answer->sketch, values);
    write_sketch(&answer->buffers, values + SKETCH_BYTES / 2);
    message.as.sketch.round = stats.counts.next_round;
    message.as.sketch.moved = (float)fmin(lane_moved(node), 1e30);
    message.as.sketch.moments = (float)fmin(answer->moments, 1e30);
    message.as.sketch.values = values;
    message.as.sketch.values_bytes = sizeof values;
    (void)links_send(node->links, to, &message); /* who is gone asks no more */
}

const struct border_work border_sketch = {.name = "sketch",
                                          .states = BORDER_ALIVE,
                                          .when = sketch_is_due,
                                          .run = models_sketch,
                                          .done = sketch_done};

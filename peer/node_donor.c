/*
 * The node as a donor: when a snapshot for joiners is taken and of what, how fast they are served,
 * and what members answer who wants to know whether a donor lies.
 *
 * A snapshot costs the training lane one copy; hashing runs in the store lane. Parameters are taken
 * as a group round agreed on them where one ends soon: those bits are the same at every member, so
 * a joiner can load from several. While a round runs joiners get a small share of what the round
 * itself sends, at least one bucket a second. Loop thread, but for the run functions.
 */
#include "peer/node_internal.h"

#include "base/crash_point.h"

#include "peer/buckets.h"

#include <math.h>

enum { QUEUE_WHILE_AVERAGING = 2, SKETCHES_A_MINUTE = 4 };
#define AGREED_WAIT_NS (2 * NS_PER_S) /* for the end of a round; then as it is */
#define ROUND_SHARE    0.04           /* of what a round sends, for joiners meanwhile */
#define PACE_LEAST     (CHUNK_VALUES * sizeof(float)) /* bytes a second */
#define MINUTE_NS      (60 * NS_PER_S)

/* ---- snapshots ---- */

/* Is what is wanted there, or no longer worth waiting for? */
static bool is_due(struct node *node, const struct donor_wish *wish)
{
    struct node_donation *donation = &node->donation;

    if (wish->round == 0 || wish->base != NULL || node->round == NULL) return true;
    if (!node->options.strategy->exchange->is_group) return true;
    round_keep_agreed(node->round, true);
    mem_free(donation->agreed);
    donation->agreed = round_take_agreed(node->round, wish->round, &donation->agreed_round);
    if (donation->agreed != NULL) return true;
    return node_now(node) >= wish->since_ns + AGREED_WAIT_NS;
}

bool node_donation_is_due(struct node *node)
{
    struct donor_wish wish;

    if (node->donation.is_running) return false;
    if (!donor_wants_snapshot(node->donor, &wish)) { /* or who waited for it has gone */
        if (node->round != NULL) round_keep_agreed(node->round, false);
        return false;
    }
    return is_due(node, &wish);
}

void node_donation_begin(struct node *node)
{
    struct node_donation *donation = &node->donation;
    struct donor_snapshot *snapshot = &donation->snapshot;
    struct round_stats stats = {0};
    struct donor_wish wish;
    bool is_wanted = donor_wants_snapshot(node->donor, &wish);

    CHECK(is_wanted && !donation->is_running);
    donor_begin_snapshot(node->donor);
    if (node->round != NULL) {
        round_stats(node->round, &stats);
        round_keep_agreed(node->round, false);
    }
    *snapshot = (struct donor_snapshot){.step = node->step,
                                        .samples = node->model_samples,
                                        .round = stats.counts.next_round,
                                        .lineage = node->lineage};
    if (donation->agreed != NULL) snapshot->round = donation->agreed_round + 1;
    donation->node = node;
    donation->base = wish.base;
    donation->is_running = true;
}

/* In the training lane: copies. */
enum rc node_donation_copy(struct node_donation *donation)
{
    static const enum section all[] = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_MOMENTS};
    struct learner *learner = donation->node->learner;
    struct donor_snapshot *snapshot = &donation->snapshot;
    enum rc rc = RC_OK;

    for (size_t i = 0; i < ARRAY_COUNT(all) && rc == RC_OK; i++) {
        size_t count = donation->node->schema->values[all[i]];
        uint32_t at = snapshot->sections_count;

        if (count == 0) continue;
        if (all[i] == SECTION_PARAMETERS && donation->agreed != NULL) {
            snapshot->values[at] = donation->agreed; /* parameters come first in it */
            donation->agreed = NULL;
        } else {
            snapshot->values[at] = mem_aligned(count * sizeof(float));
            if (snapshot->values[at] == NULL) return RC_NOMEM;
            rc = learner->ops->export_section(learner, all[i], snapshot->values[at], count);
        }
        snapshot->sections[at] = all[i];
        snapshot->counts[at] = count;
        snapshot->sections_count++;
    }
    return rc;
}

/* In the store lane: the slow part. */
static void run_hash(struct job *base)
{
    struct node_donation *donation = (struct node_donation *)base;

    if (donation->base != NULL) {
        donation->rc = donor_snapshot_change(&donation->snapshot, donation->base);
        if (donation->rc != RC_OK) return;
    }
    donation->rc = donor_snapshot_hash(&donation->snapshot);
}

static void donation_done(struct node *node)
{
    struct node_donation *donation = &node->donation;

    donation->is_running = false;
    donor_on_snapshot(node->donor, donation->rc, &donation->snapshot, node_now(node),
                      &node->outbox);
}

static void hash_done(struct job *base)
{
    struct node_donation *donation = (struct node_donation *)base;

    donation_done(donation->node);
    node_continue(donation->node);
}

void node_donation_copied(struct node *node, enum rc rc)
{
    struct node_donation *donation = &node->donation;

    crash_point(CRASH_JOIN_SNAPSHOT_COPIED);
    donation->rc = rc;
    if (rc != RC_OK) {
        donation_done(node);
        return;
    }
    donation->job = (struct job){.run = run_hash, .done = hash_done, .cost_ns = node->values + 1};
    node->env->ops->submit(node->env, LANE_STORE, &donation->job);
}

void node_donation_forget(struct node *node)
{
    mem_free(node->donation.agreed);
    node->donation.agreed = NULL;
}

void node_donation_deinit(struct node *node)
{
    donor_snapshot_deinit(&node->donation.snapshot); /* an env that died kept it from the donor */
    mem_free(node->donation.agreed);
}

/* ---- serving ---- */

/* Bytes a second for all joiners together; 0: no round runs. */
static uint64_t pace(const struct node *node)
{
    struct round_stats stats;
    double sent, share;

    if (node->round == NULL || !round_is_active(node->round)) return 0;
    round_stats(node->round, &stats);
    if (stats.last_ns == 0) return PACE_LEAST;
    sent = (double)node->options.strategy->codec->encoded_bytes(node->mixed);
    if (node->options.strategy->exchange->is_group && stats.last_members > 0) {
        sent *= 2.0 * (stats.last_members - 1) / stats.last_members;
    }
    share = ROUND_SHARE * sent * 1e9 / (double)stats.last_ns;
    if (share < (double)PACE_LEAST) return PACE_LEAST;
    return share > 1e15 ? 0 : (uint64_t)share;
}

void node_donate(struct node *node, struct peer_id to)
{
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_STATE};
    size_t queue_max = node->round != NULL ? QUEUE_WHILE_AVERAGING : NODE_DONOR_QUEUE;
    uint64_t now_ns = node_now(node);
    const uint8_t *bytes;
    size_t count;

    donor_set_pace(node->donor, pace(node), now_ns);
    while (
        links_bulk_queued(node->links, to) < queue_max &&
        donor_next_bucket(node->donor, to, now_ns, &header.stream, &header.arg, &bytes, &count)) {
        struct blob *body = blob_copy(bytes, count);

        if (body == NULL) return; /* the joiner asks again */
        (void)links_send_bulk(node->links, to, &header, body);
        blob_unref(body);
    }
}

/* Who was first last time is last this time. */
void node_donate_all(struct node *node)
{
    uint32_t count = node->neighbours_count;

    if (count == 0 || donor_leases(node->donor) == 0) return;
    node->donation.turn++;
    for (uint32_t i = 0; i < count; i++) {
        node_donate(node, node->neighbours[(node->donation.turn + i) % count].id);
    }
}

/* ---- sketches for others ---- */

static void answer_sketch(struct node *node, struct peer_id to, const struct sketch *sketch)
{
    struct message message = {.type = MESSAGE_SKETCH};
    uint8_t values[SKETCH_VALUES * 4];
    struct round_stats stats = {0};

    for (size_t i = 0; i < SKETCH_VALUES; i++) {
        uint32_t bits;

        memcpy(&bits, &sketch->values[i], sizeof bits);
        store_le32(values + 4 * i, bits);
    }
    if (node->round != NULL) round_stats(node->round, &stats);
    message.as.sketch.seed = node->sketching.seed;
    message.as.sketch.round = stats.counts.next_round;
    message.as.sketch.moved = (float)fmin(node->moved, 1e30);
    message.as.sketch.values = values;
    message.as.sketch.values_bytes = sizeof values;
    (void)links_send(node->links, to, &message); /* who is gone asks no more */
}

void node_on_sketch_req(struct node *node, struct peer_id from,
                        const struct message_sketch_req *request)
{
    struct node_sketching *sketching = &node->sketching;
    struct neighbour *neighbour = node_neighbour(node, from);
    uint64_t now_ns = node_now(node);

    if (request->section != SECTION_PARAMETERS || node->state != NODE_TRAINING) return;
    if (now_ns >= neighbour->sketch_minute_ns + MINUTE_NS) {
        neighbour->sketch_minute_ns = now_ns;
        neighbour->sketches = 0;
    }
    if (sketching->is_wanted || neighbour->sketches >= SKETCHES_A_MINUTE) return;
    neighbour->sketches++; /* one at a time: who is not answered asks others */
    sketching->is_wanted = true;
    sketching->asker = from;
    sketching->seed = request->seed;
}

enum rc node_sketch_run(struct node *node)
{
    float *plane = mem_aligned(node->values * sizeof(float));
    enum rc rc;

    if (plane == NULL) return RC_NOMEM;
    rc = node->learner->ops->export_section(node->learner, SECTION_PARAMETERS, plane, node->values);
    if (rc == RC_OK && !bucket_is_finite(plane, node->values)) rc = RC_NONFINITE;
    if (rc == RC_OK) {
        sketch_make(plane, node->values, node->sketching.seed, &node->sketching.sketch);
    }
    mem_free(plane);
    return rc;
}

void node_sketch_done(struct node *node, enum rc rc)
{
    node->sketching.is_wanted = false;
    if (rc == RC_OK) answer_sketch(node, node->sketching.asker, &node->sketching.sketch);
}

/*
 * Does the donor lie? While a download runs, other members are asked for sketches of what they
 * hold; before anything is loaded, the sketch of what was downloaded is compared with theirs. And
 * how a download is told about to people. Loop thread, but for node_check_run().
 */
#include "peer/node_internal.h"

#include "peer/buckets.h"

#include <math.h>

#define ANSWER_NS   (3 * NS_PER_S) /* after the question, so long is an answer waited for */
#define LINES_NS    (5 * NS_PER_S) /* between two lines of progress */
#define SNAPSHOT_NS (4 * NS_PER_S) /* how old a snapshot can be when its manifest comes */

enum { MEGABYTE = 1000000, MOMENTUM_MOST = 10 };

/* ---- rounds, as others tell of them ---- */

static bool holds(const struct neighbour *neighbour, struct digest lineage)
{
    return neighbour->has_progress && neighbour->progress.is_serving &&
           digest_is_equal(neighbour->progress.lineage, lineage);
}

/* ...and is what is being downloaded: of one lineage there may be another that has just begun. */
static bool holds_loading(const struct node *node, const struct neighbour *neighbour)
{
    return holds(neighbour, node->loading) && neighbour->progress.samples >= node->loading_least;
}

void node_hear_progress(struct node *node, struct neighbour *neighbour,
                        const struct message_progress *progress)
{
    uint64_t now_ns = node_now(node), gap_ns = now_ns - neighbour->progress_ns;

    if (neighbour->has_progress && progress->round >= neighbour->progress.round &&
        gap_ns > NODE_PROGRESS_NS / 4) {
        neighbour->rounds_per_s =
            (double)(progress->round - neighbour->progress.round) * 1e9 / (double)gap_ns;
    }
    if (neighbour->has_progress && neighbour->progress.samples < node->model_samples / 2 &&
        progress->samples >= node->model_samples / 2) { /* it took another model */
        node_far_is_over(node, neighbour);
    }
    neighbour->progress = *progress;
    neighbour->has_progress = true;
    neighbour->progress_ns = now_ns;
    if (node->state == NODE_LOADING && holds_loading(node, neighbour)) {
        joiner_offer(node->joiner, neighbour->id, now_ns, &node->outbox);
    }
}

/* Sorted; how many. */
static uint32_t rounds_said(const struct node *node, struct digest lineage,
                            uint64_t rounds[LINKS_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        uint32_t at = count;

        if (!holds(other, lineage)) continue;
        while (at > 0 && rounds[at - 1] > other->progress.round) {
            rounds[at] = rounds[at - 1];
            at--;
        }
        rounds[at] = other->progress.round;
        count++;
    }
    return count;
}

/* The median, so that one who boasts does not make every donor wait for what will not come. */
uint64_t node_round_now(const struct node *node, struct digest lineage)
{
    uint64_t rounds[LINKS_MAX];
    uint32_t count = rounds_said(node, lineage, rounds);

    return count == 0 ? 0 : rounds[count / 2];
}

/* Of two the lower. With an allowance on top, those who follow would draw each other on. */
uint64_t node_round_believed(const struct node *node)
{
    uint64_t rounds[LINKS_MAX];
    uint32_t count = rounds_said(node, node->lineage, rounds);

    return count == 0 ? 0 : rounds[(count - 1) / 2];
}

/* The round before which no honest snapshot of now was taken, by what others than the donor said.
 * The median would be better with many liars; the least allows the most. */
static uint64_t round_floor(const struct node *node, struct peer_id donor)
{
    double least = -1;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        double back = other->rounds_per_s * (double)SNAPSHOT_NS / 1e9 + 2;
        double round = (double)other->progress.round - back;

        if (!holds_loading(node, other) || peer_id_is_equal(other->id, donor)) continue;
        if (least < 0 || round < least) least = round;
    }
    return least > 0 ? (uint64_t)least : 0;
}

/* ---- asking ---- */

/* A listing is there that nobody was asked about yet. */
static void ask(struct node *node, struct peer_id donor, uint32_t lease)
{
    struct node_check *check = &node->check;
    struct message message = {.type = MESSAGE_SKETCH_REQ};
    uint32_t first = 0;

    *check = (struct node_check){.donor = donor,
                                 .lease = lease,
                                 .seed = rng_u64(&node->rng),
                                 .floor = round_floor(node, donor),
                                 .until_ns = node_now(node) + ANSWER_NS};
    message.as.sketch_req.seed = check->seed;
    message.as.sketch_req.section = SECTION_PARAMETERS;
    if (node->neighbours_count > 0) first = (uint32_t)rng_below(&node->rng, node->neighbours_count);
    for (uint32_t i = 0; i < node->neighbours_count && check->asked < SKETCH_ANSWERS_MAX; i++) {
        const struct neighbour *other = &node->neighbours[(first + i) % node->neighbours_count];

        if (!holds_loading(node, other) || peer_id_is_equal(other->id, donor)) continue;
        check->asked_of[check->asked++] = other->id;
        (void)links_send(node->links, other->id, &message); /* no answer is one fewer */
    }
}

void node_on_sketch(struct node *node, struct peer_id from, const struct message_sketch *message)
{
    struct node_check *check = &node->check;
    struct sketch_answer *answer = &check->answers[check->answered];

    if (node->state != NODE_LOADING || message->seed != check->seed) return;
    for (uint32_t i = check->answered; i < check->asked; i++) {
        if (!peer_id_is_equal(check->asked_of[i], from)) continue;
        check->asked_of[i] = check->asked_of[check->answered]; /* once each */
        check->asked_of[check->answered++] = from;
        answer->round = message->round;
        answer->moved = (double)message->moved;
        for (size_t k = 0; k < SKETCH_VALUES; k++) {
            uint32_t bits = load_le32(message->values + 4 * k);

            memcpy(&answer->sketch.values[k], &bits, sizeof bits);
        }
        return;
    }
}

bool node_check_is_pending(const struct node *node)
{
    const struct node_check *check = &node->check;

    /* One other cannot convict anybody, so there is no use in waiting for it. */
    return check->asked >= 2 && check->answered < check->asked && node_now(node) < check->until_ns;
}

/* ---- judging ---- */

/* Others are not asked for sketches of it. It moves the model as far as the last rounds did, or
 * would have done without the gradients against it: what is much more is not the swarm's. */
static enum rc check_momentum(struct node *node)
{
    const double rate = (double)node->options.strategy->rule_settings.rate;
    struct node_check *check = &node->check;
    double squares = 0;
    size_t count = 0;
    const float *values = joiner_section(node->joiner, SECTION_RULE_SECOND, &count);

    if (values == NULL) return RC_OK;
    for (size_t i = 0; i < count; i++) {
        squares += (double)values[i] * (double)values[i];
    }
    if (rate * sqrt(squares) <= MOMENTUM_MOST * check->opinion.allowed) return RC_OK;
    check->opinion.verdict = SKETCH_REFUSED;
    check->opinion.distance = rate * sqrt(squares);
    check->opinion.allowed *= MOMENTUM_MOST;
    return RC_AUTH;
}

enum rc node_check_run(struct node *node)
{
    struct node_check *check = &node->check;
    const struct message_state_manifest *manifest = joiner_manifest(node->joiner);
    uint64_t round = manifest->round > check->floor ? manifest->round : check->floor;
    struct sketch own;
    size_t count = 0;
    const float *values = joiner_section(node->joiner, SECTION_PARAMETERS, &count);

    CHECK(values != NULL);
    check->opinion = (struct sketch_opinion){.verdict = SKETCH_UNCHECKED};
    if (check->answered < 2) return RC_OK;
    for (uint32_t section = SECTION_PARAMETERS; values != NULL; section = SECTION_RULE) {
        sketch_make(values, node->values, check->seed, &own);
        check->opinion = sketch_judge(&own, round, check->answers, check->answered);
        if (check->opinion.verdict == SKETCH_REFUSED) return RC_AUTH;
        if (section == SECTION_RULE) break;
        values = joiner_section(node->joiner, SECTION_RULE, &count); /* an anchor is as near them */
    }
    return check_momentum(node);
}

void node_check_told(struct node *node)
{
    const struct node_check *check = &node->check;
    char id[PEER_ID_TEXT];

    peer_id_format(check->donor, id);
    switch (check->opinion.verdict) {
    case SKETCH_UNCHECKED:
        log_info(node->options.log,
                 "the downloaded model was not checked against other members: %u answered, two "
                 "are needed",
                 check->answered);
        break;
    case SKETCH_FITS:
        log_info(node->options.log, "the downloaded model is what %u other members hold",
                 check->answered);
        break;
    case SKETCH_REFUSED:
        log_warn(node->options.log,
                 "peer %.8s gave a model that is not the swarm's (%.3g away from what %u members "
                 "hold, at most %.3g is plausible): refused",
                 id, check->opinion.distance, check->answered, check->opinion.allowed);
        break;
    }
}

/* ---- telling ---- */

static void tell(struct node *node, uint64_t now_ns)
{
    struct joiner_stats stats;
    double rate, left_s;

    joiner_stats(node->joiner, &stats);
    if (stats.total_bytes == 0) return;
    rate = (double)(stats.received_bytes - node->told_bytes) * 1e9 /
           (double)(now_ns - node->told_ns + 1);
    left_s = rate > 0 ? (double)(stats.total_bytes - stats.held_bytes) / rate : 0;
    node->told_bytes = stats.received_bytes;
    if (rate > 0) {
        log_info(node->options.log,
                 "downloading the model: %.0f %% of %.1f MB, %.2f MB/s from %u donor%s, about "
                 "%.0f s left",
                 100 * joiner_progress(node->joiner), (double)stats.total_bytes / MEGABYTE,
                 rate / MEGABYTE, stats.sources, stats.sources == 1 ? "" : "s", left_s);
    } else {
        log_warn(node->options.log,
                 "downloading the model: %.0f %% of %.1f MB, nothing came in the last %.0f s",
                 100 * joiner_progress(node->joiner), (double)stats.total_bytes / MEGABYTE,
                 (double)(now_ns - node->told_ns) / 1e9);
    }
}

void node_check_tick(struct node *node, uint64_t now_ns)
{
    struct peer_id donor;
    uint32_t lease;

    if (node->state != NODE_LOADING) return;
    if (joiner_listing(node->joiner, &donor, &lease) &&
        (lease != node->check.lease || !peer_id_is_equal(donor, node->check.donor))) {
        ask(node, donor, lease);
    }
    if (now_ns < node->told_ns + LINES_NS) return;
    tell(node, now_ns);
    node->told_ns = now_ns;
}

uint64_t node_check_next_ns(const struct node *node)
{
    uint64_t next_ns = node->told_ns + LINES_NS;

    if (node->state != NODE_LOADING) return UINT64_MAX;
    if (node_check_is_pending(node) && node->check.until_ns < next_ns) {
        next_ns = node->check.until_ns;
    }
    return next_ns;
}

/*
 * This peer's shard of the data, cut anew when members have come or gone. Loop thread, but for the
 * run function.
 */
#include "peer/node/lane/internal.h"

#include "peer/times.h"

/* Cut when training begins, among all who are there by then. */
static bool has_no_shard(struct node *node)
{
    return node->lane->shard_among == 0 && !node->options.is_keeper && !rounds_wait_for_peers(node);
}

/* It was cut among less than half as many as there are, or twice as many: who has just come knows
 * hardly anybody yet. */
static bool is_far_off(const struct node *node)
{
    struct membership_counts counts;
    size_t members;

    membership_counts(node->membership, &counts);
    members = counts.likely + 1;
    return 2 * members < node->lane->shard_among || members > 2 * node->lane->shard_among;
}

/* Members have stopped coming and going, or never do. */
static bool is_due(struct node *node)
{
    uint64_t now_ns = node_now(node);
    uint64_t most_ns = is_far_off(node) ? SHARD_FAR_NS : SHARD_MAX_NS;

    if (node->lane->reshard_since_ns == 0 || node->lane->shard_among == 0) return false;
    return now_ns >=
               node->lane->members_changed_ns + SHARD_STABLE_NS + rounds_busy_put_off_ns(node) ||
           now_ns >= node->lane->reshard_since_ns + most_ns;
}

/* Shares are cut among all, linked or not: in a swarm too large for a full mesh those that are
 * linked are few of them, and others at every peer. */
static enum border_next prepare(struct node *node, struct border_job *job)
{
    node->lane->reshard_since_ns = 0;
    job->members = door_everyone(node, &job->members_count);
    node->lane->shard_among = job->members == NULL ? 1 : job->members_count;
    /* Without memory the old shard stays; the next change tries again. */
    return job->members == NULL ? BORDER_AGAIN : BORDER_SUBMIT;
}

static void run(struct border_job *job)
{
    struct node *node = job->node;

    job->rc = node->lane->learner->ops->reshard(node->lane->learner, node->self, job->members,
                                                job->members_count, &job->why);
}

static void done(struct node *node, struct border_job *job)
{
    mem_free(job->members);
    job->members = NULL;
    if (job->rc != RC_OK && node->goal.steps == 0) {
        node_fail(node, job->rc, job->why.text); /* no data at all */
    } else if (job->rc != RC_OK) {
        log_warn(node->options.log, "cannot load the data of the new shard, keeping the old: %s",
                 job->why.text);
    }
}

const struct border_work border_first_shard = {.name = "shard",
                                               .states = BORDER_TRAINING,
                                               .kind = BORDER_RESHARD,
                                               .when = has_no_shard,
                                               .prepare = prepare,
                                               .run = run,
                                               .done = done};

const struct border_work border_reshard = {.name = "shard",
                                           .states = BORDER_TRAINING,
                                           .kind = BORDER_RESHARD,
                                           .when = is_due,
                                           .prepare = prepare,
                                           .run = run,
                                           .done = done};

void lane_tick(struct node *node, uint64_t now_ns)
{
    uint64_t changes = membership_changes(node->membership);

    if (changes == node->lane->members_changes) return;
    node->lane->members_changes = changes;
    node->lane->members_changed_ns = now_ns;
    if (node->lane->reshard_since_ns == 0) node->lane->reshard_since_ns = now_ns;
}

/*
 * Who keeps the model for others and does not train (--no-train): when it fetches what they have
 * made of it since, as a joiner would; choice.c says which model, and from whom it may come. And
 * the other side of it: who trains and is the last to leave waits until it has the model.
 *
 * A keeper is in no round, so nobody waits for it and its values count for nothing. What it costs
 * the others is a snapshot and the upload of a model, from one of them at a time, for a share of
 * the time; beside rounds donors serve slowly anyway (donor.c). Loop thread only.
 */
#include "peer/node/models/internal.h"

#include "peer/times.h"

enum { FOLLOW_LENGTHS = 4 /* of a download, to the next: it takes a fifth of the time at most */ };

static bool has_ours(const struct node *node, const struct neighbour *other)
{
    return other->has_progress && digest_is_equal(other->progress.lineage, node->lineage);
}

/* At its goal, with all rounds behind it: it has nothing to add, and will not wait for long. */
static bool is_leaving(const struct neighbour *other)
{
    return !other->is_keeper && other->progress.is_done && other->progress.is_settled;
}

/* All who train it are leaving, and there are some. */
static bool are_all_leaving(const struct node *node)
{
    bool is_one = false;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->is_keeper || !has_ours(node, other)) continue;
        if (!is_leaving(other)) return false;
        is_one = true;
    }
    return is_one;
}

uint64_t models_follow_least(const struct node *node)
{
    const struct models_following *following = &node->models->following;
    uint64_t now_ns = node_now(node);

    if (now_ns >= following->took_ns + NODE_PROGRESS_NS && are_all_leaving(node)) {
        /* What the last round made of it counts no step. */
        return following->has_last ? node->step + 1 : node->step;
    }
    return now_ns >= following->next_ns ? node->step + 1 : UINT64_MAX;
}

void models_follow(struct node *node)
{
    struct models_following *following = &node->models->following;

    following->begun_ns = node_now(node);
    following->takes_last = are_all_leaving(node);
    following->has_last = false;
}

void models_followed(struct node *node)
{
    struct models_following *following = &node->models->following;
    uint64_t pause_ns;

    following->took_ns = node_now(node);
    following->has_last = following->takes_last;
    pause_ns = FOLLOW_LENGTHS * (following->took_ns - following->begun_ns);
    following->next_ns = following->took_ns + (pause_ns > FOLLOW_NS ? pause_ns : FOLLOW_NS);
}

/* Somebody who keeps this model does not have it as it is now, and nobody else goes on with it. */
static bool is_last(const struct node *node)
{
    bool is_wanted = false;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!other->is_keeper) {
            if (models_holds(other, node->lineage) && !other->progress.is_done) return false;
        } else if (has_ours(node, other) || !other->progress.is_serving) {
            is_wanted =
                is_wanted || !other->progress.is_settled || other->progress.step < node->step;
        }
    }
    return is_wanted;
}

bool models_are_last(const struct node *node)
{
    return node->options.is_keeper ? node->models->following.has_last
                                   : node->models->hand_over_ns != 0;
}

bool models_stay(struct node *node)
{
    struct models *models = node->models;
    uint64_t now_ns = node_now(node), most_ns = HAND_OVER_NS;

    if (!is_last(node)) return false;
    if (models->hand_over_ns == 0) {
        models->hand_over_ns = now_ns;
        log_info(node->options.log, "goal reached: handing the model over to who keeps it");
        models_tell(node, NULL);
    }
    if (donor_leases(models->donor) > 0) most_ns = HAND_OVER_MAX_NS; /* it is on its way */
    return now_ns < models->hand_over_ns + most_ns;
}

/* How far it is to the goal, as neighbours are told. Loop thread only. */
#include "peer/node/lane/internal.h"

#include <math.h>

enum { WALL_RISE = 4 }; /* at most: in one look, whatever held us up */

void lane_left_stepped(struct node *node)
{
    struct lane_left *left = &node->lane->left;
    uint64_t now_ns = node_now(node), steps = node->own_steps - left->mark_steps;
    uint64_t each_ns;

    if (left->mark_ns != 0 && now_ns < left->mark_ns + NODE_PROGRESS_NS) return;
    if (left->mark_ns != 0 && steps > 0) {
        each_ns = (now_ns - left->mark_ns) / steps;
        if (left->wall_ns == 0) left->wall_ns = each_ns;
        if (each_ns > WALL_RISE * left->wall_ns) each_ns = WALL_RISE * left->wall_ns;
        left->wall_ns = (3 * left->wall_ns + each_ns) / 4;
    }
    left->mark_ns = now_ns;
    left->mark_steps = node->own_steps;
}

/* From one step to the next, with all that is waited for in between. */
static uint64_t wall_ns(const struct node *node)
{
    const struct lane_left *left = &node->lane->left;

    return left->wall_ns > 0 ? left->wall_ns : node->step_ns;
}

uint32_t lane_left_ms(const struct node *node)
{
    const struct node_goal *goal = &node->options.goal;
    double left_ns = HUGE_VAL, time_ns;

    if (node->goal.is_reached || node->state != NODE_TRAINING) return 0;
    if (node->goal.steps > 0 && node->goal.steps != UINT64_MAX && wall_ns(node) > 0) {
        left_ns = (double)(node->goal.steps - node->own_steps) * (double)wall_ns(node);
    }
    if (goal->time_ns > 0) {
        time_ns = (double)goal->time_ns - (double)(node_now(node) - node->begun_ns);
        if (time_ns < left_ns) left_ns = time_ns;
    }
    if (left_ns / NS_PER_MS >= UINT32_MAX) return 0;
    return left_ns < NS_PER_MS ? 1 : (uint32_t)(left_ns / NS_PER_MS);
}

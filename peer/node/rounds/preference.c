/*
 * Whom a node meets the more often: where it chooses partners by itself, those whose lines were
 * seen to carry more. Loop thread.
 */
#include "peer/node/rounds/internal.h"
#include "peer/node/preference.h"

#include <math.h>

uint64_t rounds_line_rate(const struct node *node, struct peer_id peer)
{
    struct link_view link;

    return links_peer(node->links, peer, &link) && !link.is_rate_least ? link.rate : 0;
}

double rounds_odds(const struct node *node, struct peer_id peer)
{
    const struct neighbour *neighbour = door_neighbour(node, peer);

    return neighbour != NULL && neighbour->odds > 0 ? neighbour->odds : (double)NAN;
}

static void set_odds(struct node *node, struct neighbour *neighbour, double odds)
{
    if (odds == neighbour->odds) return;
    neighbour->odds = odds;
    membership_set_slow(node->membership, neighbour->id, odds < 1);
}

/* What was measured long ago says nothing of lines any more. */
static void forget_odds(struct node *node)
{
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        if (node->neighbours[i].odds > 0) set_odds(node, &node->neighbours[i], 1);
    }
}

const uint8_t *rounds_preference(struct node *node, const struct peer_id *ids, size_t count,
                                 uint8_t *rarity)
{
    static const double odds[] = {4, 1, 1.0 / 4, 1.0 / 16};
    struct preference_line lines[PREFERENCE_LINES_MAX];
    struct neighbour *neighbours[PREFERENCE_LINES_MAX];
    uint8_t rarities[PREFERENCE_LINES_MAX];
    size_t others = 0;
    bool are_unlike, is_least;
    struct link_view link;
    uint64_t rate;

    CHECK(count <= PREFERENCE_LINES_MAX);
    if (node->options.strategy->topology.is_uniform) return NULL;
    /* Nothing has ever taken long enough to be measured. */
    if (!links_rate(node->links, &rate, &is_least) || is_least) {
        forget_odds(node);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        struct neighbour *neighbour = door_neighbour(node, ids[i]);
        struct preference_line *line = &lines[others];

        rarity[i] = 0;
        if (neighbour == NULL) continue; /* this peer */
        (void)links_peer(node->links, ids[i], &link);
        *line = (struct preference_line){
            .rate = link.rate, .is_least = link.is_rate_least, .step = neighbour->line_step};
        neighbours[others++] = neighbour;
    }
    if (others == 0) return NULL;
    are_unlike = preference_weigh(lines, others, rarities);
    for (size_t i = 0, k = 0; i < count && k < others; i++) {
        if (!peer_id_is_equal(ids[i], neighbours[k]->id)) continue;
        neighbours[k]->line_step = lines[k].step;
        set_odds(node, neighbours[k], are_unlike ? odds[rarities[k]] : 1);
        if (are_unlike) rarity[i] = rarities[k];
        k++;
    }
    return are_unlike ? rarity : NULL;
}

/*
 * What others may send us, out of one budget (gossip/flow/credit.h): rounds and downloads share
 * what the circuits through relays leave, whose windows are small and set apart. And who sends what
 * it was not allowed to: a little may be on its way when a round or a download ends, more than
 * STRAY_BYTES_MAX is sent on purpose. Means need no credit, so of rounds that are over more may
 * come: of each what one member may own, no more than a plane. Loop thread.
 */
#include "peer/node/door/internal.h"

#include "gossip/flow/credit.h"
#include "peer/env/relay/env.h"

#define STRAY_BYTES_MAX   (UINT64_C(32) << 20)
#define STRAY_BYTES_PER_S (UINT64_C(1) << 20) /* are forgotten */
#define LATE_PLANES       4                   /* until another round of ours ends */
#define CIRCUIT_BYTES     ((uint64_t)RELAY_ENV_CIRCUITS_MAX * RELAY_WINDOW_BYTES)
#define SHARED_BYTES      (CREDIT_BUDGET_BYTES - CIRCUIT_BYTES)

static uint32_t credit_of(const struct node *node, uint64_t unit, uint32_t out, uint32_t wanted)
{
    struct credit_use all;

    if (node->round == NULL) return wanted; /* it is being made, or a download is all there is */
    all = credit_sum(round_credit_use(node->round), models_credit_use(node));
    return (uint32_t)(credit_room(SHARED_BYTES, all, out * unit, wanted * unit, unit) / unit);
}

uint32_t door_chunk_credit(void *context, uint32_t out, uint32_t wanted)
{
    const struct node *node = context;

    return credit_of(node, strategy_chunk_bytes(node->options.strategy), out, wanted);
}

uint32_t door_bucket_credit(void *context, uint32_t out, uint32_t wanted)
{
    const struct node *node = context;

    return credit_of(node, CHUNK_VALUES * sizeof(float), out, wanted);
}

bool door_ration(struct ration *ration, uint64_t now_ns, uint64_t while_ns, uint32_t most)
{
    if (now_ns - ration->since_ns >= while_ns) *ration = (struct ration){.since_ns = now_ns};
    return ration->used < most && ++ration->used > 0;
}

void door_stray(struct node *node, struct peer_id from, size_t count)
{
    struct neighbour *neighbour = door_neighbour(node, from);
    uint64_t now_ns = node_now(node), forgotten;
    char id[PEER_ID_TEXT];

    if (neighbour == NULL) return;
    forgotten = (now_ns - neighbour->stray_ns) / NS_PER_MS * STRAY_BYTES_PER_S / 1000;
    neighbour->stray_bytes -=
        forgotten < neighbour->stray_bytes ? forgotten : neighbour->stray_bytes;
    neighbour->stray_bytes += count;
    neighbour->stray_ns = now_ns;
    if (neighbour->stray_bytes <= STRAY_BYTES_MAX) return;
    neighbour->stray_bytes = 0;
    peer_id_format(from, id);
    log_warn(node->options.log, "peer %.8s sends far more than it was allowed to", id);
    door_score(node, from, SCORE_BROKE);
}

/* Of no round that runs: no harm, unless there is no end of it. */
static bool is_late_no_more(struct node *node, struct peer_id from, size_t count)
{
    struct neighbour *neighbour = door_neighbour(node, from);
    const struct round_stats stats = rounds_stats(node);
    uint64_t after;

    if (neighbour == NULL) return false;
    after = stats.counts.rounds_ok + stats.counts.rounds_aborted;
    if (neighbour->late_after != after) neighbour->late_bytes = 0;
    neighbour->late_after = after;
    neighbour->late_bytes += count;
    return neighbour->late_bytes > LATE_PLANES * (uint64_t)node->mixed * sizeof(float);
}

void door_on_chunk(struct node *node, struct peer_id from, const struct inner_header *header,
                   const uint8_t *body, size_t count)
{
    enum rc rc = round_on_data(node->round, from, header, body, count);

    if (rc == RC_OK || (rc == RC_STALE && !is_late_no_more(node, from, count))) return;
    door_stray(node, from, count);
}

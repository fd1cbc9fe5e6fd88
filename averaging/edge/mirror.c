/*
 * What an exchange of neighbours does beside the rest when it keeps mirrors: whose copy is of what,
 * and whether a neighbour gets the block of this round or our whole copy. Rounds, edges and
 * decisions are those of edges.c.
 *
 *   MIRROR  at the begin of a round, after OPEN: the digest of the copy we hold of you
 *   BLOCK   (DATA_OFFER) the encoded step of our copy, to who holds it as it was before the step
 *   FULL    (DATA_FULL) our copy after the step as float32, to everybody else
 *
 * A digest is over the hashes of all chunks of the values themselves, so copies that differ for
 * whatever reason are told apart before anything is built on them, and the word that does so is the
 * request for the whole: nothing is ever silently apart. A copy counts as nobody's from its first
 * chunk in a round to its last; if the round is cut between the two the next one brings all of it.
 * At the start of a peer, and when its model was replaced, its copy of itself is the model, and
 * everybody gets all of it.
 *
 * Memory: MIRRORS_MAX planes. Who has more neighbours keeps copies of the first KEPT of them by id;
 * each of the others is told every round that we hold nothing of it, and so sends all of its copy,
 * into a plane that belongs to the slot its edge has: the lane is a queue, so the slot's next owner
 * writes there only after this one's was read. Places are given at the begin of a round, before
 * anybody is told what we hold, and none changes hands in it. Loop thread; pure.
 */
#include "averaging/edge/edges.h"

#include "base/check.h"
#include "base/hash.h"

#include <string.h>

static const struct digest none;

enum { KEPT = MIRRORS_MAX - EDGES_SLOTS }; /* where there are more neighbours than places */
_Static_assert((int)KEPT > 0, "slots leave places");

static struct edge_mirror *mirror_find(struct edges *edges, struct peer_id peer)
{
    for (uint32_t i = 0; i < MIRRORS_MAX; i++) {
        struct edge_mirror *mirror = &edges->mirrors[i];

        if (mirror->is_used && peer_id_is_equal(mirror->peer, peer)) return mirror;
    }
    return NULL;
}

/* Of the first `count` places a free one, or that of the copy that was not needed for the longest
 * time, of a peer that is no neighbour in this round. */
static struct edge_mirror *mirror_make(struct edges *edges, uint32_t count, struct peer_id peer)
{
    struct edge_mirror *oldest = NULL;

    for (uint32_t i = 0; i < count; i++) {
        struct edge_mirror *mirror = &edges->mirrors[i];

        if (mirror->is_used && mirror->round == edges->round) continue;
        if (oldest == NULL || (oldest->is_used && !mirror->is_used) ||
            (oldest->is_used == mirror->is_used && mirror->round < oldest->round)) {
            oldest = mirror;
        }
    }
    CHECK(oldest != NULL); /* no more are asked for than there are */
    *oldest = (struct edge_mirror){.is_used = true, .peer = peer, .round = edges->round};
    return oldest;
}

void edges_mirror_begin(struct edges *edges)
{
    uint32_t kept = edges->edges_count;

    if (edges->options.mirror == NULL) return;
    if (kept > MIRRORS_MAX) {
        kept = KEPT;
        memset(&edges->mirrors[KEPT], 0, EDGES_SLOTS * sizeof edges->mirrors[0]);
    }
    for (uint32_t i = 0; i < kept; i++) { /* first those that have one, so that it stays theirs */
        struct edge_mirror *mirror = mirror_find(edges, edges->edges[i].swap.other.id);

        if (mirror != NULL) mirror->round = edges->round;
    }
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        struct edge *edge = &edges->edges[i];
        struct edge_mirror *mirror = mirror_find(edges, edge->swap.other.id);

        edge->has_mirror = i < kept;
        if (!edge->has_mirror) continue;
        if (mirror == NULL) {
            mirror = mirror_make(edges, kept == KEPT ? KEPT : MIRRORS_MAX, edge->swap.other.id);
        }
        edge->mirror = (uint32_t)(mirror - edges->mirrors);
    }
}

void edges_mirror_say(struct edges *edges, const struct edge *edge, struct commands *out)
{
    struct message *message;

    if (edges->options.mirror == NULL) return;
    message = commands_send(out, edge->swap.other.id, MESSAGE_MIRROR);
    if (message == NULL) return; /* then it sends all of it */
    message->as.mirror.round = edges->round;
    message->as.mirror.held = edge->has_mirror ? edges->mirrors[edge->mirror].digest : none;
}

enum rc edges_on_mirror(struct edges *edges, struct peer_id from,
                        const struct message_mirror *mirror)
{
    struct edge_link *link = edges_link_find(edges, from);

    if (edges->options.mirror == NULL || link == NULL) return RC_FORMAT;
    if (!link->has_open || mirror->round != link->round) return RC_STALE;
    link->mirror_round = mirror->round;
    link->mirror = mirror->held;
    return RC_OK;
}

enum data_kind edges_mirror_kind(struct edges *edges, struct peer_id to)
{
    const struct edge_link *link = edges_link_find(edges, to);

    if (edges->options.mirror == NULL) return DATA_OFFER;
    if (link == NULL || !link->has_open || link->mirror_round != edges->round) return DATA_FULL;
    if (digest_is_equal(link->mirror, none)) return DATA_FULL;
    return digest_is_equal(link->mirror, *edges->options.mirror) ? DATA_OFFER : DATA_FULL;
}

enum rc edges_mirror_receive(struct edges *edges, struct edge *edge, const struct chunk_ref *chunk)
{
    struct edge_mirror *mirror;

    if (edge->swap.in.received > 0) return edge->kind == chunk->kind ? RC_OK : RC_FORMAT;
    CHECK(edge->slot < EDGES_SLOTS);
    if (!edge->has_mirror) edge->mirror = KEPT + edge->slot;
    mirror = &edges->mirrors[edge->mirror];
    if (chunk->kind == DATA_OFFER && digest_is_equal(mirror->digest, none)) {
        return RC_FORMAT; /* a step from what we said we do not have */
    }
    mirror->digest = none;
    edge->kind = chunk->kind;
    return RC_OK;
}

void edges_mirror_checked(struct edges *edges, struct edge *edge, uint32_t chunk,
                          struct digest hash)
{
    if (edges->options.mirror == NULL || !edge->has_mirror) return;
    edges->hashes[edge->slot][chunk] = hash;
    if (!transfer_is_whole(&edge->swap.in)) return;
    edges->mirrors[edge->mirror].digest =
        mirror_digest(edges->hashes[edge->slot], edges->options.chunks);
}

struct digest mirror_digest(const struct digest *chunks, uint32_t count)
{
    return hash_of(chunks, count * sizeof *chunks);
}

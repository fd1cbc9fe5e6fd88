/*
 * swap: two peers each take the other's plane into account, or neither does.
 *
 * Both planes travel under credit (transfer.h). The end that does not decide promises with READY as
 * soon as it has all of the other's plane, and says how far apart the two planes are as it measured
 * that. The end that decides, the initiator of the swap's key, compares this with its own measure
 * once it has all, too: both must have seen the same two planes. Then it says COMMIT. Both add
 * weight * (theirs - ours), exact negatives of each other, so the mean over all peers stays
 * (AD-PSGD: Lian et al. 2018, arXiv:1710.06952; D-PSGD: Lian et al. 2017, arXiv:1705.09056). An end
 * that clips (robust.h) takes less of what is farther away than usual, by its own radius: whoever
 * was alone comes to the others, and they do not go to it. The terms are no longer negatives then,
 * and what rules may keep of them is what both ends have in common.
 *
 *   decides   both planes here --READY: COMMIT--> committed
 *   promises  their plane here: READY --> prepared --COMMIT--> committed
 *
 * What becomes of a promise that is not answered: promise.h. Pure.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_SWAP_H
#define GRAPEVINE_AVERAGING_CORE_SWAP_H

#include "averaging/core/promise.h"
#include "averaging/core/transfer.h"

struct swap {
    struct member_ref other;
    struct round_key key; /* its initiator decides */
    bool is_decider;
    float weight;      /* of the other's plane, before it is clipped */
    float radius;      /* exchange_radius() */
    float radius_kept; /* the smaller one of both ends, with `keeps` */
    bool keeps;        /* rules keep something of it */
    struct transfer_out out;
    struct transfer_in in;
    bool has_ready;
    float squared_heard; /* READY's */
};

/** What clipping leaves of 1, by the distance that we measured. */
float swap_scale(const struct swap *swap);
/** What both ends leave of 1. */
float swap_shared(const struct swap *swap);
/** Rules keep something of it, and one of the two ends clips. */
bool swap_passes(const struct swap *swap);
/** Distance of the two planes as we measured it, squared, finite. */
float swap_squared(const struct swap *swap);
/** Both names of `key` are this swap's. */
bool swap_is(const struct swap *swap, const struct round_key *key);

/** Their plane is here: READY. From now on the other end decides. */
void swap_promise(const struct swap *swap, struct commands *out);
/** RC_FORMAT: not now, or not from them. */
MUST_USE enum rc swap_on_ready(struct swap *swap, const struct message_ready *ready);
/** Both planes are here, and READY: COMMIT, which `promises` keep. False: the two ends measured
 * different distances, which the other was scored for; abort with ABORT_NORMS. */
MUST_USE bool swap_decide(const struct swap *swap, struct promises *promises, struct commands *out);
/** A promise was not decided in time. */
void swap_doubt(const struct swap *swap, struct promises *promises, uint64_t now_ns,
                struct commands *out);
/** The other end aborted; `has_values`: it has seen some of ours. It is scored if that says
 * something about it. */
void swap_on_abort(const struct swap *swap, enum abort_code code, bool has_values,
                   struct commands *out);

#endif

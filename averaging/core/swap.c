/* swap: see swap.h. */
#include "averaging/core/swap.h"

#include "base/check.h"

#include <float.h>
#include <math.h>

static const float norms_tolerance = 1e-3f; /* relative: two processors add up in unlike orders */

float swap_scale(const struct swap *swap)
{
    return robust_weight(sqrtf(swap_squared(swap)), swap->radius);
}

float swap_shared(const struct swap *swap)
{
    return robust_weight(sqrtf(swap_squared(swap)), swap->radius_kept);
}

bool swap_passes(const struct swap *swap)
{
    return swap->keeps && sqrtf(swap_squared(swap)) > swap->radius_kept;
}

float swap_squared(const struct swap *swap)
{
    return swap->in.squared < (double)FLT_MAX ? (float)swap->in.squared : FLT_MAX;
}

bool swap_is(const struct swap *swap, const struct round_key *key)
{
    return round_key_is_equal(&swap->key, key);
}

/* Without memory for it the deadline makes the promise a doubt, and the answer to that an abort. */
void swap_promise(const struct swap *swap, struct commands *out)
{
    struct message *message = commands_send(out, swap->other.id, MESSAGE_READY);

    CHECK(!swap->is_decider && transfer_is_whole(&swap->in));
    if (message == NULL) return;
    message->as.ready.key = swap->key;
    message->as.ready.squared = swap_squared(swap);
}

enum rc swap_on_ready(struct swap *swap, const struct message_ready *ready)
{
    if (!swap->is_decider || !transfer_is_sent(&swap->out)) return RC_FORMAT;
    if (swap->has_ready) return RC_REPLAY;
    swap->has_ready = true;
    swap->squared_heard = ready->squared;
    return RC_OK;
}

bool swap_decide(const struct swap *swap, struct promises *promises, struct commands *out)
{
    float ours = swap_squared(swap), theirs = swap->squared_heard;
    float larger = ours > theirs ? ours : theirs;
    struct message *message;

    CHECK(swap->is_decider && swap->has_ready && transfer_is_whole(&swap->in));
    if (!(fabsf(ours - theirs) <= norms_tolerance * larger)) {
        commands_score(out, swap->other.id, SCORE_LATE, "measured another distance than we");
        return false;
    }
    message = commands_send(out, swap->other.id, MESSAGE_COMMIT);
    if (message != NULL) message->as.commit.key = swap->key;
    promise_keep(promises, swap->other.id, &swap->key);
    return true;
}

/* Nothing is to be kept of an edge that one end clips, and a late difference is: so nothing of it
 * counts here. A tracker then lacks what the other end took
 * into its own, until all begin anew. */
void swap_doubt(const struct swap *swap, struct promises *promises, uint64_t now_ns,
                struct commands *out)
{
    struct promise_doubt doubt = {.key = swap->key};

    CHECK(!swap->is_decider);
    if (!swap_passes(swap)) doubt.weight = swap->weight * swap_scale(swap);
    promise_doubt(promises, &doubt, now_ns, out);
}

void swap_on_abort(const struct swap *swap, enum abort_code code, bool has_values,
                   struct commands *out)
{
    if (code == ABORT_NORMS) { /* one of us lies, and it is not we */
        commands_score(out, swap->other.id, SCORE_LATE, "says our distances differ");
    }
    if (code == ABORT_FAR && has_values)
        commands_score(out, swap->other.id, SCORE_NO_FAULT, EXCHANGE_SAYS_FAR);
}

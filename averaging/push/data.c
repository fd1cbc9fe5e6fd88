/*
 * The data of a push round: our share's chunks under the receiver's credit, another's chunks under
 * ours. The picture is in push.c. Loop thread; pure.
 */
#include "averaging/push/push.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

/* ---- out ---- */

void push_stop_sending(struct push *push, struct commands *out)
{
    transfer_stop(&push->sending, DATA_OFFER, out);
}

static void send_chunks(struct push *push, struct commands *out)
{
    if (push->out != OUT_SENDING) return;
    transfer_send(&push->sending, DATA_OFFER, out);
    if (transfer_is_sent(&push->sending)) push_out_become(push, OUT_SENT);
}

/* The weight leaves at the instant of the snapshot: that is the model it is a share of. */
void push_start_sending(struct push *push, struct commands *out)
{
    CHECK(push->out == OUT_ACCEPTED && push->snapshot == SNAPSHOT_HERE);
    if (!((double)push->out_weight < push->weight)) { /* cannot be: it only grew since */
        push_out_fail(push, ABORT_LOCAL, "there is not that much to give", out);
        return;
    }
    push->weight -= (double)push->out_weight;
    push_out_become(push, OUT_SENDING);
    send_chunks(push, out);
}

enum rc push_on_credit(struct push *push, struct member_ref from,
                       const struct message_credit *credit, struct commands *out)
{
    if ((push->out != OUT_ACCEPTED && push->out != OUT_SENDING) ||
        !peer_id_is_equal(push->to.id, from.id) || !boot_id_is_equal(push->to.boot, from.boot) ||
        credit->stream != push->sending.stream) {
        return RC_STALE;
    }
    if (transfer_allow(&push->sending, credit->chunks) != RC_OK) return RC_FORMAT;
    send_chunks(push, out);
    push_advance(push, out);
    return RC_OK;
}

/* ---- in ---- */

void push_grant(struct push *push, struct commands *out)
{
    bool is_first = push->receiving.granted == 0;

    if (!transfer_grant(&push->receiving, &push->options, out)) return;
    if (is_first) push->in_granted_ns = push->now_ns;
}

enum rc push_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                      struct chunk_use *use)
{
    struct push *push = push_of(exchange);
    enum rc rc = push->in == IN_OPEN ? transfer_receive(&push->receiving, chunk) : RC_STALE;

    if (rc == RC_OK && chunk->kind != DATA_OFFER) rc = RC_FORMAT;
    if (rc != RC_OK) return rc;
    transfer_received(&push->receiving, chunk);
    *use = (struct chunk_use){.weight = 1, .likely_scale = 1};
    return RC_OK;
}

static void staged(struct push *push, struct commands *out)
{
    if (push->receiving.done == 1) push->in_first_ns = push->now_ns - push->in_granted_ns;
    if (transfer_is_whole(&push->receiving)) {
        push_in_become(push, IN_DONE);
    } else {
        push_grant(push, out);
    }
}

void push_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                           struct digest hash, float squared_distance, uint64_t now_ns,
                           struct commands *out)
{
    struct push *push = push_of(exchange);
    const struct transfer_fault *fault;

    (void)hash; /* the link's seal says that it is what was sent */
    push->now_ns = now_ns;
    if (push->in != IN_OPEN) return;
    if (rc == RC_OK && !isfinite(squared_distance)) rc = RC_NONFINITE;
    if (!transfer_checked(&push->receiving, chunk, rc, squared_distance)) return;
    if (rc == RC_OK) {
        staged(push, out);
    } else {
        fault = transfer_fault(rc, chunk->from, out);
        push_in_fail(push, fault->code, fault->reason, out);
    }
    push_advance(push, out);
}

/* ---- jobs ---- */

static void snapshot_failed(struct push *push, enum rc rc, struct commands *out)
{
    enum abort_code code = rc == RC_NONFINITE ? ABORT_NONFINITE : ABORT_LOCAL;
    const char *reason =
        rc == RC_NONFINITE ? "the local model is not finite" : "the snapshot failed";

    push_snapshot_become(push, SNAPSHOT_NONE);
    if (push->in == IN_OPEN) push_in_fail(push, code, reason, out);
    /* It stays in custody, and is tried again. */
    if (push->in == IN_RETURN) push_in_become(push, IN_FAILED);
    if (push->out != OUT_NONE) push_out_fail(push, code, reason, out);
    push->counts.last_abort = reason;
}

static void snapshot_done(struct push *push, struct commands *out)
{
    struct command *absorb;

    push_snapshot_become(push, SNAPSHOT_HERE);
    if (push->out == OUT_ACCEPTED) push_start_sending(push, out);
    if (push->in == IN_OPEN) push_grant(push, out);
    if (push->in != IN_RETURN) return;
    absorb = commands_add(out, COMMAND_ABSORB_HELD);
    if (absorb != NULL) absorb->key = push->in_key;
}

void push_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first, enum rc rc,
                      struct digest hash, uint64_t now_ns, struct commands *out)
{
    struct push *push = push_of(exchange);

    (void)first;
    (void)hash;
    push->now_ns = now_ns;
    if (job == JOB_SNAPSHOT && push->snapshot == SNAPSHOT_WANTED) {
        if (rc == RC_OK)
            snapshot_done(push, out);
        else
            snapshot_failed(push, rc, out);
    } else if (job == JOB_ABSORB_HELD && push->in == IN_RETURN) {
        struct push_custody *custody = push_custody_find(push, &push->in_key);

        CHECK(custody != NULL);
        push_in_become(push, rc == RC_OK ? IN_DONE : IN_FAILED);
        if (rc != RC_OK) { /* what it held is gone */
            push->counts.in_doubt_lost++;
            push_custody_drop(push, custody, out);
        }
    } else {
        return;
    }
    push_advance(push, out);
}

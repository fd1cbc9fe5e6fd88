/*
 * The data of a push round: our share's chunks under the receiver's credit, another's chunks under
 * ours. The picture is in push.c. Loop thread; pure.
 */
#include "averaging/push/push.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

enum { SCORE_FAR = -2, SCORE_NONFINITE = -50 };
enum { CHUNK_NONE, CHUNK_CHECKING, CHUNK_STAGED };

/* ---- out ---- */

void push_stop_sending(struct push *push, struct commands *out)
{
    struct command *stop = push->sent > 0 ? commands_add(out, COMMAND_STOP_RANGE) : NULL;

    if (stop == NULL) return;
    stop->buffer = DATA_OFFER;
    stop->stream = push->out_stream;
}

static void send_chunks(struct push *push, struct commands *out)
{
    struct command *send;

    if (push->out != OUT_SENDING) return;
    if (push->sent < push->credit) {
        send = commands_add(out, COMMAND_SEND_RANGE);
        if (send == NULL) return;
        send->to = push->to.id;
        send->buffer = DATA_OFFER;
        send->stream = push->out_stream;
        send->first = push->sent;
        send->count = push->credit - push->sent;
        push->sent = push->credit;
    }
    if (push->sent == push->options.chunks) push->out = OUT_SENT;
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
    push->out = OUT_SENDING;
    send_chunks(push, out);
}

enum rc push_on_credit(struct push *push, struct member_ref from,
                       const struct message_credit *credit, struct commands *out)
{
    if (!push->is_running || (push->out != OUT_ACCEPTED && push->out != OUT_SENDING) ||
        !peer_id_is_equal(push->to.id, from.id) || !boot_id_is_equal(push->to.boot, from.boot) ||
        credit->stream != push->out_stream) {
        return RC_STALE;
    }
    if (credit->chunks > push->options.chunks - push->credit) return RC_FORMAT;
    push->credit += credit->chunks;
    send_chunks(push, out);
    push_advance(push, out);
    return RC_OK;
}

/* ---- in ---- */

void push_grant(struct push *push, struct commands *out)
{
    uint32_t wanted = push->done + PUSH_CREDIT_CHUNKS, count = push->options.chunks;
    struct message *message;

    if (wanted > count) wanted = count;
    if (wanted <= push->granted) return;
    if (wanted < push->granted + PUSH_CREDIT_CHUNKS / 2 && wanted != count) return;
    wanted = push->granted +
             exchange_credit(&push->options, push->granted - push->done, wanted - push->granted);
    if (wanted == push->granted) return;
    message = push_send(push->from.id, MESSAGE_CREDIT, out);
    if (message == NULL) return;
    message->as.credit.stream = push->in_stream;
    message->as.credit.chunks = wanted - push->granted;
    if (push->granted == 0) push->in_granted_ns = push->now_ns;
    push->granted = wanted;
}

static bool is_incoming(const struct push *push, const struct chunk_ref *chunk)
{
    return push->is_running && push->in == IN_OPEN &&
           peer_id_is_equal(chunk->from, push->from.id) && chunk->stream == push->in_stream;
}

enum rc push_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk, float *weight)
{
    struct push *push = push_of(exchange);

    if (!is_incoming(push, chunk)) return RC_STALE;
    if (chunk->kind != DATA_OFFER || chunk->chunk >= push->options.chunks) return RC_FORMAT;
    if (push->chunks[chunk->chunk] != CHUNK_NONE) return RC_REPLAY;
    if (push->received >= push->granted) return RC_LIMIT;
    push->chunks[chunk->chunk] = CHUNK_CHECKING;
    push->received++;
    *weight = 1;
    return RC_OK;
}

void push_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                           struct digest hash, float squared_distance, uint64_t now_ns,
                           struct commands *out)
{
    struct push *push = push_of(exchange);

    (void)hash; /* the link's seal says that it is what was sent */
    push->now_ns = now_ns;
    if (!is_incoming(push, chunk) || chunk->chunk >= push->options.chunks ||
        push->chunks[chunk->chunk] != CHUNK_CHECKING) {
        return;
    }
    if (rc == RC_OK && !isfinite(squared_distance)) rc = RC_NONFINITE;
    if (rc == RC_NONFINITE) {
        push_score(chunk->from, SCORE_NONFINITE, "sent a chunk that is not finite", out);
        push_in_fail(push, ABORT_NONFINITE, "the sender's model is not finite", out);
    } else if (rc == RC_LIMIT) {
        push_score(chunk->from, SCORE_FAR, "sent values too far from ours", out);
        push_in_fail(push, ABORT_FAR, "the sender's model is too far away", out);
    } else if (rc != RC_OK) {
        push_in_fail(push, ABORT_LOCAL, "a chunk could not be taken in", out);
    } else {
        push->chunks[chunk->chunk] = CHUNK_STAGED;
        push->squared += (double)squared_distance;
        push->done++;
        if (push->done == 1) push->in_first_ns = push->now_ns - push->in_granted_ns;
        if (push->done == push->options.chunks)
            push->in = IN_DONE;
        else
            push_grant(push, out);
    }
    push_advance(push, out);
}

/* ---- jobs ---- */

static void snapshot_failed(struct push *push, enum rc rc, struct commands *out)
{
    enum abort_code code = rc == RC_NONFINITE ? ABORT_NONFINITE : ABORT_LOCAL;
    const char *reason =
        rc == RC_NONFINITE ? "the local model is not finite" : "the snapshot failed";

    push->snapshot = SNAPSHOT_NONE;
    if (push->in == IN_OPEN) push_in_fail(push, code, reason, out);
    if (push->in == IN_RETURN) push->in = IN_FAILED; /* it stays in custody, and is tried again */
    if (push->out != OUT_NONE) push_out_fail(push, code, reason, out);
    push->counts.last_abort = reason;
}

static void snapshot_done(struct push *push, struct commands *out)
{
    struct command *absorb;

    push->snapshot = SNAPSHOT_HERE;
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
    if (!push->is_running) return;
    if (job == JOB_SNAPSHOT && push->snapshot == SNAPSHOT_WANTED) {
        if (rc == RC_OK)
            snapshot_done(push, out);
        else
            snapshot_failed(push, rc, out);
    } else if (job == JOB_ABSORB_HELD && push->in == IN_RETURN) {
        struct push_custody *custody = push_custody_find(push, &push->in_key);

        CHECK(custody != NULL);
        push->in = rc == RC_OK ? IN_DONE : IN_FAILED;
        if (rc != RC_OK) { /* what it held is gone */
            push->counts.in_doubt_lost++;
            push_custody_drop(push, custody, out);
        }
    } else {
        return;
    }
    push_advance(push, out);
}

/* transfer: see transfer.h. */
#include "averaging/core/transfer.h"

#include "base/check.h"

#include <string.h>

enum { CHUNK_NONE, CHUNK_CHECKING, CHUNK_STAGED };

/* ---- out ---- */

void transfer_out_begin(struct transfer_out *out, struct peer_id to, uint64_t stream,
                        uint32_t chunks)
{
    *out = (struct transfer_out){.to = to, .stream = stream, .chunks = chunks};
}

enum rc transfer_allow(struct transfer_out *out, uint32_t chunks)
{
    if (chunks > out->chunks - out->credit) return RC_FORMAT;
    out->credit += chunks;
    return RC_OK;
}

void transfer_send(struct transfer_out *out, enum data_kind kind, struct commands *commands)
{
    struct command *send;

    if (out->sent >= out->credit) return;
    send = commands_add(commands, COMMAND_SEND_RANGE);
    if (send == NULL) return;
    send->to = out->to;
    send->buffer = kind;
    send->stream = out->stream;
    send->first = out->sent;
    send->count = out->credit - out->sent;
    out->sent = out->credit;
}

void transfer_stop(const struct transfer_out *out, enum data_kind kind, struct commands *commands)
{
    struct command *stop = out->sent > 0 ? commands_add(commands, COMMAND_STOP_RANGE) : NULL;

    if (stop == NULL) return;
    stop->buffer = kind;
    stop->stream = out->stream;
}

bool transfer_is_sent(const struct transfer_out *out)
{
    return out->sent == out->chunks;
}

/* ---- in ---- */

void transfer_in_begin(struct transfer_in *in, struct peer_id from, uint64_t stream,
                       uint32_t chunks, uint8_t *states)
{
    *in = (struct transfer_in){.from = from, .stream = stream, .chunks = chunks, .states = states};
    memset(states, CHUNK_NONE, chunks);
}

uint32_t transfer_grantable(const struct exchange_options *options, uint32_t granted, uint32_t done,
                            uint32_t chunks)
{
    uint32_t wanted = done + TRANSFER_AHEAD < chunks ? done + TRANSFER_AHEAD : chunks;

    if (wanted <= granted) return 0;
    if (wanted < granted + TRANSFER_AHEAD / 2 && wanted != chunks) return 0;
    return exchange_credit(options, granted - done, wanted - granted);
}

bool transfer_grant(struct transfer_in *in, const struct exchange_options *options,
                    struct commands *commands)
{
    uint32_t more = transfer_grantable(options, in->granted, in->done, in->chunks);
    struct message *message = more == 0 ? NULL : commands_send(commands, in->from, MESSAGE_CREDIT);

    if (message == NULL) return false;
    message->as.credit.stream = in->stream;
    message->as.credit.chunks = more;
    in->granted += more;
    return true;
}

enum rc transfer_receive(const struct transfer_in *in, const struct chunk_ref *chunk)
{
    if (chunk->stream != in->stream || !peer_id_is_equal(chunk->from, in->from)) return RC_STALE;
    if (chunk->chunk >= in->chunks) return RC_FORMAT;
    if (in->states[chunk->chunk] != CHUNK_NONE) return RC_REPLAY;
    return in->received < in->granted ? RC_OK : RC_LIMIT;
}

void transfer_received(struct transfer_in *in, const struct chunk_ref *chunk)
{
    CHECK(in->states[chunk->chunk] == CHUNK_NONE);
    in->states[chunk->chunk] = CHUNK_CHECKING;
    in->received++;
}

bool transfer_checked(struct transfer_in *in, const struct chunk_ref *chunk, enum rc rc,
                      float squared_distance)
{
    if (chunk->stream != in->stream || !peer_id_is_equal(chunk->from, in->from) ||
        chunk->chunk >= in->chunks || in->states[chunk->chunk] != CHUNK_CHECKING) {
        return false;
    }
    if (rc != RC_OK) return true;
    in->states[chunk->chunk] = CHUNK_STAGED;
    in->squared += (double)squared_distance;
    in->done++;
    return true;
}

bool transfer_is_whole(const struct transfer_in *in)
{
    return in->done == in->chunks;
}

uint32_t transfer_open(const struct transfer_in *in)
{
    return in->granted - in->done;
}

const struct transfer_fault *transfer_fault(enum rc rc, struct peer_id from,
                                            struct commands *commands)
{
    static const struct transfer_fault nonfinite = {
        ABORT_NONFINITE, "the other end's model is not finite", SCORE_NOT_FINITE,
        "sent a chunk that is not finite"};
    static const struct transfer_fault far = {ABORT_FAR, "the other end's model is too far away",
                                              SCORE_CLIPPED, "sent values too far from ours"};
    static const struct transfer_fault local = {ABORT_LOCAL, "a chunk could not be taken in",
                                                SCORE_NO_FAULT, NULL};
    const struct transfer_fault *fault = rc == RC_NONFINITE ? &nonfinite
                                         : rc == RC_LIMIT   ? &far
                                                            : &local;

    CHECK(rc != RC_OK);
    if (fault->charge != NULL) commands_score(commands, from, fault->score, fault->charge);
    return fault;
}

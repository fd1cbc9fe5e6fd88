/*
 * transfer: one directed stream of the chunks of a plane, under credit.
 *
 * The receiver allows chunks with CREDIT; the sender sends them in order and no others. About
 * TRANSFER_AHEAD chunks are allowed and not dealt with at any time; half of that is renewed at
 * once, so few messages travel and the sender never runs dry. Every chunk is let in once, checked
 * by a job, and staged; a chunk that does not fit is refused and changes nothing.
 *
 * A transfer knows nothing of rounds: the exchange that owns it says when it runs. Pure; the states
 * of the chunks are in memory of the owner.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_TRANSFER_H
#define GRAPEVINE_AVERAGING_CORE_TRANSFER_H

#include "averaging/core/exchange.h"

enum { TRANSFER_AHEAD = 32 };

/* What we send. */
struct transfer_out {
    struct peer_id to;
    uint64_t stream;
    uint32_t chunks;       /* in all */
    uint32_t credit, sent; /* of them: allowed by the receiver, handed to the link */
};

/* What we receive. */
struct transfer_in {
    struct peer_id from;
    uint64_t stream;
    uint32_t chunks;
    uint32_t granted, received, done; /* of them: allowed by us, begun to arrive, staged */
    double squared;                   /* distance of what is staged from our own values */
    uint8_t *states;                  /* [chunks] enum of transfer.c; the owner's memory */
};

void transfer_out_begin(struct transfer_out *out, struct peer_id to, uint64_t stream,
                        uint32_t chunks);
/** CREDIT came: RC_FORMAT if it allows more than there is. */
MUST_USE enum rc transfer_allow(struct transfer_out *out, uint32_t chunks);
/** Everything that is allowed leaves, from the buffer of `kind`. */
void transfer_send(struct transfer_out *out, enum data_kind kind, struct commands *commands);
/** What is still queued of it stays here. */
void transfer_stop(const struct transfer_out *out, enum data_kind kind, struct commands *commands);
bool transfer_is_sent(const struct transfer_out *out);

/** `states`: memory for `chunks` bytes, which is cleared. */
void transfer_in_begin(struct transfer_in *in, struct peer_id from, uint64_t stream,
                       uint32_t chunks, uint8_t *states);
/** CREDIT to the sender, if it is worth a message and the peer has memory for it; false: not. */
bool transfer_grant(struct transfer_in *in, const struct exchange_options *options,
                    struct commands *commands);
/** How many more of `chunks` may be allowed to a sender that has `granted` of them allowed and
 * `done` dealt with: the arithmetic of transfer_grant(). 0: none, or not worth a message. */
uint32_t transfer_grantable(const struct exchange_options *options, uint32_t granted, uint32_t done,
                            uint32_t chunks);
/** May this chunk, of a kind that fits, be decoded? RC_STALE: it is of another stream; RC_FORMAT:
 * there is no such chunk; RC_REPLAY: it came before; RC_LIMIT: it was not allowed. */
MUST_USE enum rc transfer_receive(const struct transfer_in *in, const struct chunk_ref *chunk);
/** RC_OK was said: it is being decoded. */
void transfer_received(struct transfer_in *in, const struct chunk_ref *chunk);
/** It is decoded. False: this transfer waits for no such chunk. With RC_OK the chunk is staged. */
bool transfer_checked(struct transfer_in *in, const struct chunk_ref *chunk, enum rc rc,
                      float squared_distance);
bool transfer_is_whole(const struct transfer_in *in);
/** Chunks that are allowed and not dealt with. */
uint32_t transfer_open(const struct transfer_in *in);

/* What a chunk that could not be taken in means. */
struct transfer_fault {
    enum abort_code code;
    const char *reason;      /* what the round is aborted for */
    enum score_reason score; /* of the sender */
    const char *charge;      /* what for */
};
/** `rc` is not RC_OK. `from` is scored, if it is its fault. */
const struct transfer_fault *transfer_fault(enum rc rc, struct peer_id from,
                                            struct commands *commands);

#endif

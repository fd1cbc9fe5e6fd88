/*
 * failures: why the last round with each peer failed, for people to read. A round's partners are
 * named as they come to light; when it is over, each of them either failed, for the round's reason
 * or one of its own, or is fine again. Bounded: with the table full the oldest failure is
 * forgotten. Loop thread; pure.
 */
#ifndef GRAPEVINE_PEER_ROUND_FAILURES_H
#define GRAPEVINE_PEER_ROUND_FAILURES_H

#include "averaging/core/exchange.h"

#include <stdbool.h>
#include <stdint.h>

enum { FAILURES_MAX = 256, FAILURE_PARTNERS_MAX = 64 };

struct failure {
    struct peer_id peer;
    const char *reason; /* a string literal; NULL: a free entry */
    uint64_t at_ns;
    bool is_fresh; /* of the round that runs: its end does not clear it */
};

struct failures { /* all zero is an empty one */
    struct failure entries[FAILURES_MAX];
    struct peer_id partners[FAILURE_PARTNERS_MAX]; /* of the round that runs */
    uint32_t partners_count;
};

/** `peer` takes part in the round that runs. */
void failures_partner(struct failures *failures, struct peer_id peer);
/** Something with `peer` failed. `reason`: a string literal. */
void failures_note(struct failures *failures, struct peer_id peer, const char *reason,
                   uint64_t now_ns);
/** Its link is gone: a failure if a round with it runs. */
void failures_link_lost(struct failures *failures, struct peer_id peer, uint64_t now_ns);
/** The round is over; `reason`: of an abort, NULL if it was committed. */
void failures_round_over(struct failures *failures, const char *reason, uint64_t now_ns);
/** NULL: the last round with it, if there was one, went well. */
const struct failure *failures_find(const struct failures *failures, struct peer_id peer);

#endif

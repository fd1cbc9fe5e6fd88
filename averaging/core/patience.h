/*
 * patience: for how long one member may have the others wait.
 *
 * A round waits for all its members, but no single one may make rounds as long as it likes. So a
 * member has credit. Time that a round waits for it after most others are there is charged to it;
 * what that is, and since when, each exchange says. An eighth of the time that passes is given
 * back; to those that are new together a sixty-fourth. A member whose credit is used up rests: it
 * is not waited for, and takes part where it is there when the others are. If it had come to the
 * round and then had others wait, being there says nothing: it is barred, and there are no rounds
 * with it meanwhile. A rest lasts four credits, one soon after another twice as long, and then a
 * quarter of the credit is there.
 *
 * So a stumble is waited for, again and again; a member that is always slower, frozen, or wants
 * others to wait costs them its credit once, and then next to nothing.
 *
 * Those that are new have a common credit besides their own, or a new name would be new credit. A
 * peer that is linked again is the same peer. Pure; no allocation.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_PATIENCE_H
#define GRAPEVINE_AVERAGING_CORE_PATIENCE_H

#include "base/peer_id.h"

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_PEERS_MAX = 64 };

/* What a member has had us wait beyond what is free. */
struct patience_debt {
    struct peer_id peer;
    uint64_t ns, since_ns;           /* so much then; from then on something is given back */
    uint64_t until_ns;               /* time before this is paid for */
    uint64_t rest_ns, rest_until_ns; /* how long the last rest was, and when it is over */
    bool is_barred;                  /* in it */
    bool is_common;                  /* of several */
    bool is_spent;                   /* nearly all of its credit was; less than half is back */
};

struct patience_wait {
    struct peer_id peer;
    bool is_new;
    bool has_come; /* to the round, but had us wait in it */
    uint64_t free_ns;
    uint32_t times; /* one in so many of its waits is seen by us: it counts for all; 0: 1 */
};

/* Zeroed: nobody owes anything. patience_begin() before anything is asked. */
struct patience {
    struct patience_debt debts[PATIENCE_PEERS_MAX]; /* by id */
    struct patience_debt of_new;                    /* of all that are new together */
    uint64_t pace_ns;                               /* what we need ourselves a round */
    uint64_t credit_ns; /* the longest that one member is waited for at once: three paces, between
                           500 ms and 4 s, or a sixteenth of a long pace, up to 30 s */
};

/** A round begins. `pace_ns` 0: it is not known. */
void patience_begin(struct patience *patience, uint64_t pace_ns);
/** Until when being late costs nothing: twice as long as half of the others took now (`half_ns` 0:
 * they are not there yet), or `usual_ns` if that is longer, and at least an eighth of a pace beyond
 * that. */
uint64_t patience_free_ns(const struct patience *patience, uint64_t since_ns, uint64_t half_ns,
                          uint64_t usual_ns);
/** How long `peer` may be waited for beyond that now. */
uint64_t patience_left_ns(const struct patience *patience, struct peer_id peer, bool is_new,
                          uint64_t now_ns);
/** It is not waited for just now, and others are not measured beside it. */
bool patience_rests(const struct patience *patience, struct peer_id peer, uint64_t now_ns);
/** ...and there are no rounds with it. */
bool patience_bars(const struct patience *patience, struct peer_id peer, uint64_t now_ns);
/** A wait for one member is over: it is there, or given up. It is charged if this is later than
 * `free_ns`; the same time once, also of several that are new. */
void patience_charge(struct patience *patience, const struct patience_wait *wait, uint64_t now_ns);

#endif

/*
 * survey: visits all members of a swarm, as an observer (no membership, no rounds), with an inquiry
 * (peer/download/inquiry.h): a poll of what their models say, or a fetch of the models. Blocking,
 * on a loop of its own.
 */
#ifndef GRAPEVINE_PEER_WATCH_SURVEY_H
#define GRAPEVINE_PEER_WATCH_SURVEY_H

#include "base/fault.h"
#include "gossip/secure/secure.h"
#include "gossip/wire/limits.h"
#include "peer/download/inquiry.h"
#include "peer/env/way.h"

#include <signal.h>

enum { SURVEY_MEMBERS_MAX = 64 };

struct survey_options {
    char (*addresses)[ADDRESS_BYTES_MAX]; /* of each member; borrowed */
    uint32_t members;                     /* at most SURVEY_MEMBERS_MAX */
    struct inquiry *inquiry;              /* made a moment ago, by uv_clock_ns() */
    const struct swarm_secret *swarm;
    const char *identity, *certificate; /* as of struct observer_options */
    struct way_flags way;               /* likewise */
    const volatile sig_atomic_t *stop;  /* likewise */
    /** As it goes: the share done, and how many members are there. */
    void (*on_progress)(void *context, double share, uint32_t there);
    void *context;
};

/** Until the inquiry is over. RC_CANCELLED, RC_NOMEM, or what it fails with. */
MUST_USE enum rc survey_run(const struct survey_options *options, struct fault *why);

#endif

/*
 * survey: visits all members of a swarm at once, as an observer (no membership, no rounds), and has
 * each asked what its model says of a probe set: a poll (peer/download/poll.h) with links.
 * Blocking, on a loop of its own.
 */
#ifndef GRAPEVINE_PEER_WATCH_SURVEY_H
#define GRAPEVINE_PEER_WATCH_SURVEY_H

#include "base/fault.h"
#include "gossip/secure/secure.h"
#include "gossip/wire/limits.h"
#include "peer/download/poll.h"

struct survey_options {
    char (*addresses)[ADDRESS_BYTES_MAX]; /* of each member; borrowed */
    struct poll_options poll;             /* its `members` are as many */
    const struct swarm_secret *swarm;
    const char *identity, *certificate; /* as of struct observer_options */
    /** As it goes: the share done, and how many members answer. */
    void (*on_progress)(void *context, double share, uint32_t there);
    void *context;
};

struct survey_result {
    struct poll_view members[PANEL_MEMBERS_MAX];
    uint32_t usable; /* samples, from the first on: poll_usable() */
};

/** Until enough was waited for. RC_CANCELLED after SIGINT or SIGTERM; RC_IO, RC_DISK_FULL,
 *  RC_NOMEM. */
MUST_USE enum rc survey_run(const struct survey_options *options, struct survey_result *result,
                            struct fault *why);

#endif

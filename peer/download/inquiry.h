/*
 * inquiry: what a survey (peer/watch/survey.h) puts to the members of a swarm, each known by its
 * number: poll.h asks what their models say, fetch.h for the models. Pure machines: dials, messages
 * and the end are asked for.
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_INQUIRY_H
#define GRAPEVINE_PEER_DOWNLOAD_INQUIRY_H

#include "base/fault.h"
#include "gossip/flow/outbox.h"
#include "gossip/wire/messages.h"

enum inquiry_state {
    INQUIRY_DIALLING,
    INQUIRY_ASKING,
    INQUIRY_DONE,
    INQUIRY_LOST,    /* its link is gone, or there never was one; what it said before counts */
    INQUIRY_LATE,    /* not waited for any longer; likewise */
    INQUIRY_REFUSED, /* it has nothing for us */
    INQUIRY_BAD      /* what it said cannot be, and counts no more */
};

struct inquiry {
    const struct inquiry_ops *ops;
};

struct inquiry_ops {
    void (*on_open)(struct inquiry *inquiry, uint32_t member, struct peer_id id, uint64_t now_ns);
    /** Its link is gone, or could not be made: `why` is static text. */
    void (*on_lost)(struct inquiry *inquiry, uint32_t member, const char *why, uint64_t now_ns);
    /** It is another one of the members, under a second address. */
    void (*drop)(struct inquiry *inquiry, uint32_t member);
    /** What a member sent. Errors are ours (RC_DISK_FULL, RC_IO, RC_NOMEM), told in `why`, and end
     *  the survey. */
    MUST_USE enum rc (*on_message)(struct inquiry *inquiry, uint32_t member,
                                   const struct message *message, uint64_t now_ns,
                                   struct fault *why);
    /** A record of a download; NULL: there are none. */
    MUST_USE enum rc (*on_data)(struct inquiry *inquiry, uint32_t member,
                                const struct inner_header *header, const uint8_t *body,
                                size_t count, uint64_t now_ns, struct fault *why);
    /** Time has passed; messages to members, whose ids are `ids`, are appended to `out`. */
    void (*tick)(struct inquiry *inquiry, const struct peer_id *ids, uint64_t now_ns,
                 struct outbox *out);
    /** The next member to be dialled; false: none now. */
    bool (*next_dial)(struct inquiry *inquiry, uint64_t now_ns, uint32_t *member);
    bool (*is_over)(const struct inquiry *inquiry);
    /** The share done of what those who are there will give. */
    double (*progress)(const struct inquiry *inquiry);
};

#endif

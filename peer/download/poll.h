/*
 * poll: the asking side of predictions (peer/node/lane/answer.c is the other): which member is
 * asked what next, what is kept of its answers, and when enough was waited for. Members are asked
 * for one slice at a time, each goes at its own pace, and who falls away keeps its say. An inquiry
 * (inquiry.h).
 *
 *   DIALLING --open--> ASKING --all answered--> DONE
 *      ^                 |  \--rubbish--> BAD (its answers count no more)   --refused--> REFUSED
 *      '--after a while--LOST <--link lost    --the others are done for long--> LATE
 *
 * How long: when half of those who are there are done, the others have as long again, POLL_LEAST_NS
 * at least; eight times as long where without them a sample would have fewer answers than a lie
 * needs to be bounded, for who lies may well be the first. Where nobody says anything new for
 * `silence_ns`, that is the end, too.
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_POLL_H
#define GRAPEVINE_PEER_DOWNLOAD_POLL_H

#include "distill/panel.h"
#include "peer/download/inquiry.h"

struct poll_options {
    struct predictions_shape shape;
    uint64_t seed;
    uint32_t samples, window;     /* of the probe set; of a window, the last may be shorter */
    const struct digest *digests; /* [windows], borrowed */
    uint32_t members;             /* at most PANEL_MEMBERS_MAX */
    uint32_t trim;                /* the panel's */
    uint64_t silence_ns;
    struct panel *panel; /* that answers go to */
};

struct poll_view {
    enum inquiry_state state;
    const char *why; /* for people; static text. NULL: DONE */
    uint32_t answered;
    uint64_t step; /* of its model, when it answered last */
};

struct poll;

/** NULL: no memory. */
struct poll *poll_create(const struct poll_options *options, uint64_t now_ns);
void poll_destroy(struct poll *poll);
struct inquiry *poll_inquiry(struct poll *poll);
void poll_on_open(struct poll *poll, uint32_t member, uint64_t now_ns);
/** Its link is gone, or could not be made: `why` is static text. */
void poll_on_lost(struct poll *poll, uint32_t member, const char *why, uint64_t now_ns);
/** It is another one of the members, under a second address. */
void poll_drop(struct poll *poll, uint32_t member);
/** What a member sent. RC_DISK_FULL, RC_IO: its answers cannot be kept; told in `why`. */
MUST_USE enum rc poll_on_answer(struct poll *poll, uint32_t member,
                                const struct message_predictions *answer, uint64_t now_ns,
                                struct fault *why);
/** The next question to be sent; false: none now. */
bool poll_next_question(struct poll *poll, uint64_t now_ns, uint32_t *member,
                        struct message *message);
/** The next member to be dialled again; false: none now. */
bool poll_next_dial(struct poll *poll, uint64_t now_ns, uint32_t *member);
void poll_tick(struct poll *poll, uint64_t now_ns);
bool poll_is_over(const struct poll *poll);
/** The share done of what those who are there will answer. */
double poll_progress(const struct poll *poll);
void poll_view(const struct poll *poll, uint32_t member, struct poll_view *view);
/** Samples, from the first on, that enough members answered to learn from: 2 trim + 1 of them.
 * Where fewer than that were there to the end (or have answered half of all): half of these. */
uint32_t poll_usable(const struct poll *poll);

#endif

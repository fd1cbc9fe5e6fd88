/*
 * fetch: the models of a swarm's members, each as it is, by who is no member: an inquiry
 * (inquiry.h). Each is asked for its status, by which the caller knows of what layers its model is,
 * and then gives it, bucket by bucket, as to who joins (joiner.h, with one donor): what does not
 * have the hash that the member signed for does not count. A few at a time, so memory holds a few
 * models, however many there are; the caller puts each away when it is here.
 *
 *   WAITING --its turn--> DIALLING --open--> ASKING --all of it here--> DONE
 *                            ^                 |  \--refused--> REFUSED   --lies--> BAD
 *                            '--in a while---LOST <--link lost    --far too slow--> LATE
 *
 * What came of a model whose member is lost is of no use: it went on training, and has another one.
 * Who is busy is asked again. The end: nobody is left, or nothing came for `silence_ns`.
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_FETCH_H
#define GRAPEVINE_PEER_DOWNLOAD_FETCH_H

#include "peer/download/inquiry.h"
#include "peer/download/joiner.h"

enum { FETCH_MEMBERS_MAX = 64, FETCH_WHY_BYTES = 240 };

struct fetch_options {
    uint32_t members; /* at most FETCH_MEMBERS_MAX */
    struct digest run_id;
    uint64_t silence_ns;
    /** A member's status, as it says: of what schema is its model, and which sections of it are
     *  wanted (as of struct joiner_options)? Not RC_OK: it cannot be used here, told in `why`. The
     *  schema stays until on_model() or on_gone(). */
    MUST_USE enum rc (*on_status)(void *context, uint32_t member, const char *text, size_t bytes,
                                  const struct schema **schema, uint32_t *want, struct fault *why);
    /** Its model is here: take it from a joiner that is COMPLETE. RC_FORMAT, RC_NONFINITE: it
     * cannot be one; any other error is ours, and ends the fetch. */
    MUST_USE enum rc (*on_model)(void *context, uint32_t member, const struct joiner *joiner,
                                 struct fault *why);
    /** What was made in on_status() is of no more use. */
    void (*on_gone)(void *context, uint32_t member);
    void *context;
};

struct fetch_view {
    enum inquiry_state state;
    const char *why; /* for people, as long as the fetch; NULL: DONE */
    uint64_t step;   /* of its model; DONE */
};

struct fetch;

/** NULL: no memory. */
struct fetch *fetch_create(const struct fetch_options *options, uint64_t now_ns);
void fetch_destroy(struct fetch *fetch);
struct inquiry *fetch_inquiry(struct fetch *fetch);
void fetch_view(const struct fetch *fetch, uint32_t member, struct fetch_view *view);

#endif

/*
 * joiner: how a peer gets the swarm's model from others (donor.h), in hash-checked buckets, while
 * they go on training and averaging. A pure machine: messages go to the outbox. A bucket is
 * CHUNK_VALUES float32 of the sections one after another, each section starting a new bucket.
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_JOINER_H
#define GRAPEVINE_PEER_DOWNLOAD_JOINER_H

#include "gossip/flow/credit.h"
#include "gossip/flow/outbox.h"
#include "gossip/wire/messages.h"
#include "replica/plane/plane.h"

enum joiner_state {
    JOINER_IDLE,     /* nothing to do */
    JOINER_ASKING,   /* STATE_REQ sent */
    JOINER_LISTING,  /* manifest here, pages coming */
    JOINER_LOADING,  /* buckets coming */
    JOINER_COMPLETE, /* all buckets verified: take the planes, then joiner_finish() */
    JOINER_FAILED    /* no donor could be used, or no memory; begin again later: what was
                        verified is kept for then */
};

enum {
    JOINER_DONORS_MAX = 16, /* of joiner_begin(); more are not tried */
    JOINER_SOURCES_MAX = 4  /* asked at the same time */
};

struct joiner;

/* Whatever is set later is for the next request. */
struct joiner_options {
    uint32_t want; /* as in message_state_req; PARAMETERS and BUFFERS at first; the former always */
    uint32_t width; /* how many donors to ask at once, up to JOINER_SOURCES_MAX; 0: by the model */
    /* Of the method that our MOMENTS are of, as in the manifest: others' are left out. */
    struct digest moments;
    /* Of the averaging rule, whose state is left out where another made it, or its planes do not
     * have `rule_values` values each (those of SECTION_MIXED at first). */
    struct digest rule;
    size_t rule_values;
    /* Where no two members hold the same values, what a donor gave whose link was lost, or that
     * stalled, stays, and the next one gives the rest. Such a mixture is as near the others as each
     * of its parts, if they are of about the same time: the caller is to have it confirmed, or to
     * refuse it. */
    bool mixes;
    /** How many of `wanted` buckets more may be asked of a donor that owes `out`. NULL: all. */
    uint32_t (*credit)(void *context, uint32_t out, uint32_t wanted);
    void *context;
};

struct joiner_stats {
    double progress; /* share done in [0, 1] */
    bool is_mixed;   /* COMPLETE, of several donors' models */
    bool has_donor;  /* `donor`: whose listing is loaded, who is being asked, or who gave it */
    struct peer_id donor;
    struct credit_use use;            /* what donors were asked for */
    uint64_t held_bytes, total_bytes; /* of the download of now, verified */
    uint64_t received_bytes;          /* buckets since joiner_begin(), also useless ones */
    uint32_t sources;                 /* donors that give buckets now */
    uint32_t donors;                  /* that gave any since joiner_begin() */
    uint64_t manifest_ns;             /* when the listing that is loaded was asked for */
};

/** `schema`: what we expect, copied; a manifest that differs is refused, as is one that its donor
 *  has not signed for `run_id`. Allocates nothing large yet. NULL: no memory. `seed`: which bucket
 *  to ask for first, so that joiners differ. */
struct joiner *joiner_create(const struct schema *schema, struct digest run_id, uint64_t seed);
void joiner_destroy(struct joiner *joiner);
enum joiner_state joiner_state(const struct joiner *joiner);
/** To be read and changed. */
struct joiner_options *joiner_options(struct joiner *joiner);
/** Start a download of `lineage` (all zero: any) from `donors` (tried in order, several at once
 *  where their buckets agree). `round`: donors hold the same parameters as a group round left
 *  them, and that round, or one after it, will do; 0: as they are. Who turns out to have given
 *  those of an older round than others is asked again. */
MUST_USE enum rc joiner_begin(struct joiner *joiner, const struct peer_id *donors,
                              size_t donors_count, struct digest lineage, uint64_t round,
                              uint64_t now_ns, struct outbox *out);
/** STATE_MANIFEST, MANIFEST_PAGE, STATE_DENY. RC_STALE: not from a donor asked, or not waited
 *  for; RC_MISMATCH: another model or lineage; RC_AUTH: not signed by the donor, or the root does
 *  not cover the pages; RC_FORMAT: sizes that contradict each other; RC_NOMEM. All but RC_STALE and
 *  RC_NOMEM make the donor unusable and the next one is asked. */
MUST_USE enum rc joiner_on_message(struct joiner *joiner, struct peer_id from,
                                   const struct message *message, uint64_t now_ns,
                                   struct outbox *out);
/** A DATA_STATE record (arg: bucket): length, then hash, then finiteness are checked before it
 *  counts. A wrong one makes the donor unusable: RC_AUTH / RC_NONFINITE. */
MUST_USE enum rc joiner_on_bucket(struct joiner *joiner, struct peer_id from, uint16_t stream,
                                  uint32_t bucket, const uint8_t *bytes, size_t count,
                                  uint64_t now_ns, struct outbox *out);
/** Another member that could give it appeared. */
void joiner_offer(struct joiner *joiner, struct peer_id donor, uint64_t now_ns, struct outbox *out);
/** A donor is gone: go on with the others or the next one, keeping buckets whose hashes agree. */
void joiner_on_link_lost(struct joiner *joiner, struct peer_id peer, uint64_t now_ns,
                         struct outbox *out);
void joiner_tick(struct joiner *joiner, uint64_t now_ns, struct outbox *out);
uint64_t joiner_next_ns(const struct joiner *joiner);
/** COMPLETE: the values of a section (NULL if it did not travel) and the manifest. */
const float *joiner_section(const struct joiner *joiner, uint32_t section, size_t *count);
/** Before joiner_finish(): the caller's from now on, free it with mem_free(). NULL: it did not
 *  travel. */
float *joiner_take_section(struct joiner *joiner, uint32_t section);
const struct message_state_manifest *joiner_manifest(const struct joiner *joiner);
/** COMPLETE, but what it says cannot be the swarm's model: forget it, and ask another donor; of a
 *  mixture forget what others gave than the last donor, who is asked for that, too. */
void joiner_refuse(struct joiner *joiner, uint64_t now_ns, struct outbox *out);
/** COMPLETE, but old by now: fetch what changed since, int8-encoded, from the same donor. Ends in
 *  COMPLETE again, with the newer model or, if the donor cannot or does not, the one of before.
 *  RC_NOT_FOUND: the donor is gone, or
 *  it is a mixture. */
MUST_USE enum rc joiner_catch_up(struct joiner *joiner, uint64_t now_ns, struct outbox *out);
/** Which listing is loaded, or was, and of which round: false before there is one. */
bool joiner_listing(const struct joiner *joiner, struct peer_id *donor, uint32_t *lease,
                    uint64_t *round);
/** The model is so large that it is asked of several donors. */
bool joiner_is_wide(const struct joiner *joiner);
/** How many donors a download asks at once. */
uint32_t joiner_width(const struct joiner *joiner);
/** Free the downloaded planes, back to IDLE. Donors are told that they are done with; `out` may be
 * NULL. */
void joiner_finish(struct joiner *joiner, struct outbox *out);
struct joiner_stats joiner_stats(const struct joiner *joiner);

#endif

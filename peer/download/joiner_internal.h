/*
 * joiner_internal: what the files of a joiner share; private to peer/download/joiner*.c. Loop
 * thread.
 *
 *   joiner.c          life, candidates and sources, the result
 *   joiner_listing.c  manifests and pages: what a donor says it has
 *   joiner_loading.c  buckets: whom to ask for which, and what came
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_JOINER_INTERNAL_H
#define GRAPEVINE_PEER_DOWNLOAD_JOINER_INTERNAL_H

#include "peer/download/joiner.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "peer/download/buckets.h"
#include "peer/times.h"

enum {
    JOINER_WINDOW_BUCKETS = 8, /* under way from one donor */
    JOINER_LITTLE_SHARE = 32   /* so little of the buckets may be given up for a better listing */
};
#define JOINER_NONE UINT32_MAX /* instead of the number of a source */

enum candidate_state {
    CANDIDATE_UNTRIED,
    CANDIDATE_ASKED, /* is a source */
    CANDIDATE_USED   /* had its turn */
};

struct candidate {
    struct peer_id id;
    enum candidate_state state;
};

enum source_state {
    SOURCE_FREE,
    SOURCE_ASKED,   /* STATE_REQ sent */
    SOURCE_LISTING, /* manifest here, pages coming */
    SOURCE_READY,   /* `listed` is complete and proved by the root */
    SOURCE_PARKED   /* READY, but another, which may be faster, is tried in its place */
};

/* A donor that was asked. */
struct source {
    enum source_state state;
    struct peer_id id;
    uint32_t left_out; /* as in message_state_req: another optimizer's, or another rule's */
    bool is_relieved;  /* what it owed at the end was asked of another */
    bool has_given;
    uint64_t round;   /* as agreed in this group round, or a later one; 0: as it is */
    uint32_t reasked; /* because others listed what a later round left */
    struct message_state_manifest manifest; /* from LISTING on */
    struct bucket_map map;
    struct digest *listed;
    uint32_t listed_count;
    struct hash root;
    uint64_t deadline_ns;
    uint64_t asked_ns;    /* when STATE_REQ was sent */
    uint32_t asked;       /* buckets under way */
    uint32_t cursor;      /* where to look for the next missing one */
    bool is_drained;      /* it has nothing more that is missing */
    uint64_t bucket_ns;   /* when the last one came, or the first was asked for */
    uint64_t interval_ns; /* between buckets, smoothed */
    uint64_t since_ns;    /* since when `got` buckets came, the first of them at `first_ns` */
    uint64_t first_ns;
    uint32_t got;
};

struct joiner {
    size_t expected[STATE_SECTIONS_MAX]; /* values of each section, by our schema */
    struct digest schema, run_id;
    struct joiner_options options;
    enum joiner_state state;
    struct rng rng;

    struct candidate candidates[JOINER_DONORS_MAX];
    uint32_t candidates_count;
    struct digest lineage; /* all zero: any */
    uint64_t round;        /* of the first requests */
    struct source sources[JOINER_SOURCES_MAX];
    uint32_t primary; /* the source whose listing is loaded, or JOINER_NONE */
    bool is_sole;     /* donors do not agree: one at a time */
    uint32_t trials;  /* of other donors, because the one of then was slow */

    /* What is here; outlives sources. */
    bool has_data;
    struct bucket_map map;
    uint8_t sections[STATE_SECTIONS_MAX];
    float *planes[STATE_SECTIONS_MAX];
    struct digest *hashes; /* [buckets] of what is in the planes */
    bool *is_here;         /* [buckets] */
    uint8_t *asked_of;     /* [buckets] number of the source + 1, or 0 */
    uint32_t held;         /* buckets that are as the primary lists them, or mixed in */
    bool may_mix;          /* the last primary has gone while it gave */
    bool is_mixed;         /* and what is here counts, whoever listed it */
    struct peer_id giver;  /* the last primary: what is here is as it listed it */

    /* Catching up: encoded changes wait until all are here, so that a model is never a mixture. */
    bool is_catching_up;
    uint8_t **changes; /* [buckets] or NULL */
    float *scratch;    /* [2 * CHUNK_VALUES] */

    /* Of what is COMPLETE. */
    struct message_state_manifest manifest;
    struct peer_id donor;
    uint64_t manifest_ns;

    uint64_t received_bytes;
    uint32_t donors_given;
};

static inline struct source *joiner_primary(struct joiner *joiner)
{
    return joiner->primary == JOINER_NONE ? NULL : &joiner->sources[joiner->primary];
}

/* joiner.c */
/** Done with a source, for good (`is_bad`) or until it is its turn again; others take its place. */
void joiner_drop(struct joiner *joiner, struct source *source, bool is_bad, uint64_t now_ns,
                 struct outbox *out);
/** Only that: who loads from it or waits for it is the caller's matter. */
void joiner_let_go(struct joiner *joiner, struct source *source, bool is_bad, struct outbox *out);
void joiner_ask(struct joiner *joiner, struct source *source, uint64_t now_ns, struct outbox *out);
/** The next candidate nobody has asked becomes a source. False: there is none, or no room. */
bool joiner_ask_next(struct joiner *joiner, uint64_t now_ns, struct outbox *out);
void joiner_complete(struct joiner *joiner, struct outbox *out);

/* joiner_listing.c */
uint32_t joiner_wanted(const struct joiner *joiner, const struct source *source);
MUST_USE enum rc joiner_on_manifest(struct joiner *joiner, struct source *source,
                                    const struct message_state_manifest *manifest, uint64_t now_ns,
                                    struct outbox *out);
MUST_USE enum rc joiner_on_page(struct joiner *joiner, struct source *source,
                                const struct message_manifest_page *page, uint64_t now_ns,
                                struct outbox *out);

/* joiner_loading.c */
/** A source has become READY: it is loaded from, helps, is tried, or is let go. RC_NOMEM. */
MUST_USE enum rc joiner_on_listed(struct joiner *joiner, struct source *source, uint64_t now_ns,
                                  struct outbox *out);
/** Load what `source` lists from here on. RC_NOMEM. */
MUST_USE enum rc joiner_set_primary(struct joiner *joiner, struct source *source, uint64_t now_ns,
                                    struct outbox *out);
/** Of what is here, what is as `source` lists it. */
uint32_t joiner_count_held(const struct joiner *joiner, const struct source *source);
/** Of what is here forget the rest: it came of an earlier download. */
void joiner_keep_held(struct joiner *joiner, const struct source *source);
/** Free all that is here. */
void joiner_drop_data(struct joiner *joiner);
/** Forget encoded changes that wait. */
void joiner_drop_changes(struct joiner *joiner);
/** LOADING: ask everyone whose window has room for what is missing. */
void joiner_ask_all(struct joiner *joiner, uint64_t now_ns, struct outbox *out);
/** Nobody owes the buckets that were asked of `source` any more. */
void joiner_release(struct joiner *joiner, struct source *source);
MUST_USE enum rc joiner_take(struct joiner *joiner, struct source *source, uint32_t bucket,
                             const uint8_t *bytes, size_t count, uint64_t now_ns,
                             struct outbox *out);
/** Is it time to try another donor, or to judge the one that is tried? */
void joiner_judge(struct joiner *joiner, uint64_t now_ns, struct outbox *out);
uint64_t joiner_judge_ns(const struct joiner *joiner);

#endif

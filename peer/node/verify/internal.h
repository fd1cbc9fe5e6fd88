/* verify_internal: what the files of node/verify share. Nobody else includes it. */
#ifndef GRAPEVINE_PEER_NODE_VERIFY_INTERNAL_H
#define GRAPEVINE_PEER_NODE_VERIFY_INTERNAL_H

#include "peer/node/internal.h"
#include "replica/learners/repeat/repeat.h"

/* What this peer claims: claim.c. States are the training lane's while a job runs. */
struct verify_claims {
    struct repeat_state states[2]; /* at the last two snapshots */
    uint32_t last;                 /* which of them is the younger */
    struct digest digest;          /* of that */
    enum rc rc;                    /* of the last copy */
    uint64_t took_ns;              /* likewise */
    uint64_t number;               /* of the last claim */
    bool has_interval;             /* between the two states, by steps and a round alone */
    bool is_void;                  /* since the last snapshot something else changed the model */
    bool has_round;                /* ...or a round did */
    uint64_t round;                /* which; 0: one that cannot be claimed */
    struct digest agreed;          /* what it came to here */
    uint32_t before;               /* steps, when it did */
};

/* What is shown of it to one that asks: reveal.c. */
struct verify_showing {
    bool is_wanted; /* the bytes are to be made, at the next border */
    struct peer_id to;
    uint64_t number;   /* of the claim */
    uint8_t *bytes;    /* NULL: nothing is shown */
    size_t count, at;  /* the next slice to be asked for */
    uint64_t until_ns; /* then it is forgotten */
};

/* What is asked of another: check.c. */
struct verify_check {
    bool is_on, is_ready, is_running;
    struct peer_id peer;
    struct message_claim from, to; /* the claims that the interval is between */
    float *agreed;                 /* [mixed]: what came in on the way; NULL: nothing */
    uint8_t *bytes;
    size_t count, at;           /* that are here of them; 0: the first slice is to come */
    uint64_t until_ns, ends_ns; /* for the next slice, and for all */
    struct digest end;
    enum rc rc;
};

struct verify {
    const char *why_not; /* this peer cannot; NULL: it can */
    bool has_recipe;
    struct digest recipe;
    struct verify_claims claims;
    struct verify_showing showing;
    struct verify_check check;
    struct rng rng;
    double dearness; /* what a repeat takes, in steps as they are taken here, a step; 1 at first */
    uint64_t repeat_ns; /* spent on all of them */
    uint64_t take_ns;   /* and on claims */
    uint64_t equal, unlike, refused, missed, unclear;
};

/* repeat.h's states as bytes: five words (step, updates, passes, stream, samples), numbers of
 * samples, and the planes; all little-endian. */
enum { VERIFY_WORDS = 5, VERIFY_HEAD = VERIFY_WORDS * 8 };

/** So many, of a learner of this schema. */
size_t verify_bytes(const struct schema *schema, uint32_t samples);
/** How many samples the head says, if `total` is what follows from it; false: not. */
bool verify_head(const struct schema *schema, const uint8_t *head, uint64_t total,
                 uint32_t *samples);

/** What such bytes say, once their head is sound; planes of `state` and numbers of `way` point into
 * `bytes`, and are none of their own. */
void verify_read(const struct schema *schema, uint8_t *bytes, struct repeat_state *state,
                 struct repeat_way *way);

/* claim.c */
void verify_claims_deinit(struct verify_claims *claims);
/** Of what a round came to here; zeros: it was not the last one. */
struct digest verify_agreed_digest(const struct node *node, uint64_t round);
/* reveal.c */
void verify_on_reveal_req(struct node *node, struct peer_id from,
                          const struct message_reveal_req *request);
void verify_showing_end(struct verify *verify);
/** The bytes are there, and the rest of them may be asked for. */
bool verify_is_showing(const struct verify *verify);
/* check.c */
void verify_consider(struct node *node, struct neighbour *from, const struct message_claim *claim);
void verify_on_reveal(struct node *node, struct peer_id from, const struct message_reveal *reveal);
void verify_check_end(struct verify *verify);

#endif

/*
 * audit: a second pair of eyes on a replica, for tests (`peer --audit FILE`). Before and after each
 * job at a step border it reads the whole plane: it may only have changed by training, a download
 * or a rollback, or by exactly the difference of a round; and that difference must follow from what
 * was told and heard in the round, chunk by chunk. It computes all of this again by itself, shares
 * no code with what it watches, and writes what it saw as lines of text, each before the peer goes
 * on, so that a kill loses none. Files of several peers can then be held against each other
 * (tests/e2e/audit.awk).
 *
 *   begun PLANE              the plane this life of the peer begins with
 *   kept PLANE               a checkpoint of it is about to be written
 *   told CHUNK VALUES        snapshot of a round, as others decode it
 *   mean CHUNK VALUES        a part owner's mean, as others decode it
 *   settled KIND ROUND MEMBERS SCALE CHUNK=OWN:HEARD ...      committed chunks
 *   doubt pair ROUND ...     the same, while the outcome is not known
 *   late pair ROUND SCALE    it was committed after all
 *   applied PLANE            after the difference of a round was added
 *   violation TEXT           what must never be
 *
 * PLANE, VALUES, OWN and HEARD are hashes. NULL for an audit is fine everywhere: nothing is done.
 */
#ifndef GRAPEVINE_PEER_ROUND_AUDIT_H
#define GRAPEVINE_PEER_ROUND_AUDIT_H

#include "averaging/codec/mask.h"
#include "averaging/rule/rule.h"
#include "gossip/wire/messages.h"
#include "replica/learners/learner.h"

struct audit;

/** `path` NULL: NULL, which is fine. RC_NOMEM, or why the file cannot be written. */
MUST_USE enum rc audit_open(const char *path, size_t values, struct audit **audit,
                            struct fault *why);
void audit_close(struct audit *audit);

/* In the training lane, around each job. */
enum audit_change { AUDIT_NOTHING, AUDIT_ANYTHING, AUDIT_DIFFERENCE };
void audit_enter(struct audit *audit, struct learner *learner, bool is_checkpoint);
/** `difference`: [values], of AUDIT_DIFFERENCE. */
void audit_leave(struct audit *audit, struct learner *learner, enum audit_change change,
                 const float *difference);

/* In the exchange lane. */
struct audit_round {
    const struct round_key *key; /* pair rounds; NULL: a group round of this number */
    uint64_t number;
    const uint8_t *bitmap;
    float scale;
    uint32_t members;
    bool is_doubt;
    bool is_mean;            /* the rule is the plain mean: the difference can be checked */
    const float *own;        /* [layout.values] what was told */
    const float *difference; /* [layout.values] */
};
/** `layout`: of the planes of this round, up to the next call; borrowed for the call. */
void audit_told(struct audit *audit, const float *own, const struct mask_layout *layout);
void audit_heard(struct audit *audit, enum data_kind kind, struct range range, const float *values);
/** The same, of this peer's own part: it is what the others hear. */
void audit_reduced(struct audit *audit, struct range range, const float *values);
void audit_settled(struct audit *audit, const struct audit_round *round);
void audit_late(struct audit *audit, const struct round_key *key, float scale);

#endif

/*
 * conduct: what others have made of the group rounds that this peer was in, or was asked to, by
 * their ids: a new link is no new account. One such thing may happen to anybody; each function that
 * notes one says whether it has become a habit, which is then charged (peer/node/trust.h).
 *
 * Rounds begun and left. A member that is given a part and leaves has that part averaged by nobody.
 * Whether it left, or was told something else by who proposed the round, nobody else can see. So of
 * the rounds of one proposer in a row only the first counts against it: who leaves as it pleases
 * does so whoever proposes, and no single proposer can have it charged. All who are in a round see
 * the same of it, so they come to leave it out at about the same time.
 *
 * Rounds in vain. A proposer whose rounds begin without us, who had joined, or come to nothing with
 * us, again and again, keeps us from all others.
 *
 * Proposals that never start, but for those long ago.
 *
 * Loop thread; pure.
 */
#ifndef GRAPEVINE_AVERAGING_GROUP_CONDUCT_H
#define GRAPEVINE_AVERAGING_GROUP_CONDUCT_H

#include "base/peer_id.h"

#include <stdbool.h>
#include <stdint.h>

enum { CONDUCT_MAX = 128 };

struct conduct_of {
    struct peer_id peer;     /* all zero: not used */
    uint32_t left;           /* parts that it left, in quarters, less those it returned */
    struct peer_id proposer; /* of the latest of these rounds */
    uint32_t vain;           /* rounds of its own in a row */
    uint32_t forms;          /* proposals since its last START */
    uint64_t forms_ns;       /* since when the oldest of them counts */
};

/** All zero: nothing is known of anybody. Full, it forgets whoever did least. */
struct conduct {
    struct conduct_of of[CONDUCT_MAX];
};

enum conduct_way {
    CONDUCT_WORD, /* it said so */
    CONDUCT_CUT   /* its link was lost: that may be our own fault */
};

/** `member` left a part that it was given; the round is of `proposer`, or ours. */
bool conduct_left(struct conduct *conduct, struct peer_id member, enum conduct_way way,
                  struct peer_id proposer, bool is_ours);
/** It returned a part. */
void conduct_returned(struct conduct *conduct, struct peer_id member);
/** A round of `proposer` began without us, who had joined it, or has come to nothing. */
bool conduct_vain(struct conduct *conduct, struct peer_id proposer, bool is_proven);
/** ...or it has not. */
void conduct_came_about(struct conduct *conduct, struct peer_id proposer);
/** It sent a FORM; a START. */
bool conduct_form(struct conduct *conduct, struct peer_id proposer, bool is_proven,
                  uint64_t now_ns);
void conduct_start(struct conduct *conduct, struct peer_id proposer);

#endif

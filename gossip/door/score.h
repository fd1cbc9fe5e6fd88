/*
 * score: what we think of a neighbour, from what it did to us: points by reason, decaying with a
 * half-life of ten minutes. Local, never told to others. Only what is sealed with its keys counts:
 * a record that does not open may be anybody's on the path. Pure.
 */
#ifndef GRAPEVINE_GOSSIP_DOOR_SCORE_H
#define GRAPEVINE_GOSSIP_DOOR_SCORE_H

#include <stdbool.h>
#include <stdint.h>

enum score_reason {
    SCORE_COMMITTED,  /* a round with it went well: +1, up to SCORE_BEST */
    SCORE_LATE,       /* it missed a deadline: -1 */
    SCORE_CLIPPED,    /* its values were too far from ours: -2 */
    SCORE_SILENT,     /* it does not say what it decided: -20 */
    SCORE_NOT_FINITE, /* it sent NaN or infinity: -50 */
    SCORE_UNREPEATED, /* it has not taken the steps that it claims: -50 */
    SCORE_BROKE,      /* it broke the protocol: -100 */
    SCORE_REASONS,
    SCORE_NO_FAULT = SCORE_REASONS /* nothing that counts: what is said of us, say */
};

enum { SCORE_BEST = 20, SCORE_MIX_LEAST = -50, SCORE_LINK_LEAST = -100 };

struct score_sum {
    double points; /* as of `at_ns` */
    uint64_t at_ns;
    uint32_t counts[SCORE_REASONS]; /* these do not decay */
};

void score_note(struct score_sum *score, enum score_reason reason, uint64_t now_ns);
double score_now(const struct score_sum *score, uint64_t now_ns);
int32_t score_points(enum score_reason reason);
/** A key for JSON, a word for people: "committed", "late", ... */
const char *score_reason_name(enum score_reason reason);
/** It is held against the neighbour. */
bool score_is_fault(enum score_reason reason);

#endif

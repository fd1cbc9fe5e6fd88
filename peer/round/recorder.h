/*
 * recorder: the last rounds of this peer, and how often each reason ended one, for people to read
 * (status, the page, SIGUSR1). Bounded: the oldest round goes, and reasons beyond REASONS_MAX are
 * not counted. Loop thread; pure.
 */
#ifndef GRAPEVINE_PEER_ROUND_RECORDER_H
#define GRAPEVINE_PEER_ROUND_RECORDER_H

#include <stdint.h>

enum { RECORDER_ROUNDS = 64, RECORDER_REASONS = 32 };

struct round_record {
    uint64_t ended_ns;
    uint64_t length_ns; /* from its begin here */
    uint32_t members;   /* that took part, this peer included; 0: not known */
    const char *reason; /* why it failed, a string literal; NULL: it was committed */
};

struct recorder { /* all zero is an empty one */
    struct round_record rounds[RECORDER_ROUNDS];
    uint64_t count; /* of all rounds ever: the last is at (count - 1) % RECORDER_ROUNDS */
    struct {
        const char *reason;
        uint64_t count;
    } reasons[RECORDER_REASONS]; /* reason NULL: free */
};

void recorder_add(struct recorder *recorder, struct round_record record);
/** The last but `back`; NULL: no such round, or it is forgotten. */
const struct round_record *recorder_at(const struct recorder *recorder, uint64_t back);

#endif

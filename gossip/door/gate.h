/*
 * gate: what strangers may cost. Everybody who connects holds one of 256 slots until a first
 * message passed the MAC, and one of 64 more until the handshake is over; behind the MAC, key
 * agreement is rationed by address prefix (IPv4 /24, IPv6 /56) and in all, and no first message is
 * answered twice. Whoever proves to be who they say gets what it cost back, so that a laboratory
 * behind one address never feels it. Pure: time and connections' numbers come in; fixed memory.
 * Loop thread.
 *
 * When slots are short, the oldest of the prefix that holds most of them goes: who opens many keeps
 * out others of his own kind, and no one else.
 */
#ifndef GRAPEVINE_GOSSIP_DOOR_GATE_H
#define GRAPEVINE_GOSSIP_DOOR_GATE_H

#include "gossip/secure/secure.h"

enum {
    GATE_WAITING_MAX = 256,   /* connections without a first message yet */
    GATE_ANSWERING_MAX = 64,  /* handshakes under way */
    GATE_REPLAY_MARKS = 4096, /* first messages remembered */
    GATE_PREFIXES_MAX = 1024, /* of which tokens are counted at once */
    GATE_PREFIX_RATE = 20,    /* answers a second to one prefix ... */
    GATE_PREFIX_BURST = 128,
    GATE_HALF_RATE = 250 /* ... and in all; as many again are kept for known addresses */
};

enum gate_verdict {
    GATE_PASS,     /* answer it */
    GATE_REPLAYED, /* its first message was here before */
    GATE_SPENT     /* not now: the prefix's ration, or that of all, is used up */
};

struct gate;

struct gate_counts {
    uint64_t entered;  /* connections */
    uint64_t evicted;  /* to make room for others */
    uint64_t answered; /* first messages that cost a key agreement */
    uint64_t proved;   /* handshakes that succeeded */
    uint64_t replayed, spent_prefix, spent_all;
    uint32_t waiting, answering;         /* now */
    uint32_t waiting_max, answering_max; /* at most, so far */
};

struct gate *gate_create(void); /* NULL: no memory */
void gate_destroy(struct gate *gate);

/** Connection `number` (not 0) came in from `address`, "host:port". Returns the number of another
 *  one that has to go, or 0. */
MUST_USE uint64_t gate_enter(struct gate *gate, uint64_t number, const char *address,
                             uint64_t now_ns);
/** The first message of `number` passed the MAC; `ephemeral` is its key. `is_known`: the address is
 *  a member's. On GATE_PASS `evicted` is another one that has to go, or 0. */
MUST_USE enum gate_verdict gate_answer(struct gate *gate, uint64_t number,
                                       const uint8_t ephemeral[PUBLIC_KEY_BYTES], bool is_known,
                                       uint64_t now_ns, uint64_t *evicted);
/** It proved who it is, or is gone. Numbers that are not here are fine. */
void gate_leave(struct gate *gate, uint64_t number, bool has_proved, uint64_t now_ns);
void gate_counts(const struct gate *gate, struct gate_counts *counts);

/** What counts as one neighbourhood: a hash of the IPv4 /24, the IPv6 /56, or the text. Never 0. */
uint64_t gate_prefix(const char *address);

#endif

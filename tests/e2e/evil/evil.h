/*
 * evil: an attacker as a program, for tests of real peers: it speaks the wire protocol through our
 * own library, on plain sockets, and breaks one rule at a time. Strangers stay outside the gate;
 * members hold the swarm's key, so what they send is sealed, and wrong inside.
 */
#ifndef GRAPEVINE_TESTS_E2E_EVIL_H
#define GRAPEVINE_TESTS_E2E_EVIL_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/signed/hello.h"
#include "gossip/wire/messages.h"
#include "peer/env/framer.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { EVIL_HOLD_MAX = 16384 };

struct evil {
    struct sockaddr_in target, victim; /* victim: a listener of ours; port 0: none */
    char target_text[ADDRESS_BYTES_MAX];
    int victim_fd;
    struct swarm_secret swarm;
    struct identity identity; /* of --identity, else fresh for each connection */
    bool has_identity;
    uint32_t count;  /* connections to hold */
    uint64_t end_ns; /* then it was not dropped */
    /* what came of it */
    uint64_t connections, refused, dropped, sent;
};

/* A connection of a member. */
struct member {
    struct evil *evil;
    int fd;
    struct framer framer;
    struct secure *secure;
    struct static_key key;
    struct identity identity;
    struct boot_id boot;
    struct hello remote;
    struct peer_id remote_id;
    struct message_form form; /* the latest FORM or START heard */
    struct message_progress progress;
    bool has_form;
    char refusal[ERROR_TEXT_MAX]; /* why we were not let in; "": we were, or nobody said */
    uint64_t acts;
};

struct behaviour {
    const char *name;
    void (*stranger)(struct evil *evil);   /* runs until evil->end_ns */
    void (*member)(struct member *member); /* said again and again */
    bool is_dropped;                       /* the other side can tell, and must hang up */
};

extern const struct behaviour behaviours[];
extern const size_t behaviours_count;

/* wire.c */
uint64_t evil_now(void);
bool evil_is_over(const struct evil *evil);
void evil_entropy(void *out, size_t count);
void evil_pause(uint64_t ns);
/** A connection, or -1. */
int evil_connect(struct evil *evil);
/** All of it, or false: the other side is gone. */
bool evil_write(int fd, const void *bytes, size_t count);
/** Some bytes; 0: it is gone, -1: none in `timeout_ns`. */
long evil_read(int fd, void *bytes, size_t cap, uint64_t timeout_ns);
/** A valid first message. */
void evil_first_message(const struct evil *evil, uint8_t out[H1_BYTES]);
/** Handshake and admission. False: refused. Close with member_close() either way. */
bool member_open(struct evil *evil, struct member *member);
void member_close(struct member *member);
/** Seal and send a record of `type`, whatever the body is. False: the link is gone. */
bool member_raw(struct member *member, uint8_t type, const void *body, size_t count);
bool member_say(struct member *member, const struct message *message);
bool member_data(struct member *member, enum data_kind kind, uint16_t stream, uint32_t chunk,
                 size_t count);
/** Read what comes for `ns`, answer pings, note FORMs. False: the link is gone. */
bool member_listen(struct member *member, uint64_t ns);

/* strangers.c */
void hold_idle(struct evil *evil);
void drip_slowly(struct evil *evil);
void send_garbage(struct evil *evil);
void knock_without_key(struct evil *evil);
void replay_first(struct evil *evil);
void greet_and_wait(struct evil *evil);
void send_oversized(struct evil *evil);
void reflect(struct evil *evil);
void greet_with_low_order(struct evil *evil);
void greet_in_old_version(struct evil *evil);

/* abuse.c */
void abuse_relay(struct member *member);
void hoard_bulks(struct member *member);
void forge_bulk(struct evil *evil);
void flood_status(struct member *member);
void flood_dialbacks(struct member *member);

#endif

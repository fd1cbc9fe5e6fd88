/*
 * door: who is linked with a node, as the node sees it: links and what they bring, who may be
 * linked, who can dial whom, relays, how much others may send.
 */
#ifndef GRAPEVINE_PEER_NODE_DOOR_H
#define GRAPEVINE_PEER_NODE_DOOR_H

#include "base/fault.h"
#include "base/peer_id.h"
#include "gossip/door/score.h"
#include "gossip/signed/hello.h"
#include "gossip/wire/messages.h"
#include "peer/node/verify.h"

struct node;

/* What may be asked of us so often in a while. */
struct ration {
    uint64_t since_ns;
    uint32_t used;
};

/* How far it is, where steps go by that: see node/rounds/lead.c. */
struct lead_of {
    bool counts, is_out;   /* it is reckoned with; it had us wait too long, and moves no more */
    uint64_t step, missed; /* as it said; what it is credited with, and need not make up */
    uint64_t since_ns, until_ns; /* it is waited for; 0: it is not */
};

/* A peer with an open link. */
struct neighbour {
    struct peer_id id;
    struct boot_id boot;
    bool has_progress;
    struct message_progress progress;
    bool has_score;
    struct message_score score; /* of `--averaging pbt`, or of `adacomm` */
    bool is_relayed;            /* linked through a relay */
    bool is_keeper;             /* it does not train */
    uint64_t place;             /* the host that it is on, as far as its address tells */
    bool has_met;               /* it took part in a round of ours that came to something */
    bool has_met_last;          /* in one of the last, see node/rounds/finish.c */
    uint8_t line_step;          /* of preference.h; 0: none yet */
    double odds; /* at the last draw, of meeting it, 1 being usual; 0: none was made */
    uint64_t linked_ns;
    uint64_t progress_ns;   /* when it was heard */
    uint64_t first_step;    /* of the model, when it was first heard over this link */
    uint64_t moved_ns;      /* when it was last heard at another step than before */
    double rounds_per_s;    /* between its last two */
    struct ration outcomes; /* questions about outcomes, and answers */
    struct ration sketches; /* asked for */
    struct ration requests; /* for the model */
    struct verify_heard verify;
    uint64_t avoid_ns; /* until then its model is not wanted: a download just failed */
    uint64_t far_ns; /* when one of us last refused the other's values as too far away; 0: never */
    uint64_t stray_bytes,
        stray_ns; /* DATA it was not allowed to send, and when the last of it came */
    struct lead_of lead;
    uint64_t late_bytes, late_after; /* DATA of no round that runs, after so many of our rounds */
};

/* node/door/door.c */
/** The env's events come in here from now on, and others may dial. RC_IO, RC_NOMEM: not. */
MUST_USE enum rc door_listen(struct node *node, struct fault *why);
/** After the lane, which knows what the model is: links, and whom to trust. */
MUST_USE enum rc door_create(struct node *node);
MUST_USE enum rc door_membership_create(struct node *node);
void door_destroy(struct node *node);
void door_tick(struct node *node, uint64_t now_ns);
uint64_t door_next_ns(const struct node *node);
/** No address of --bootstrap leads to somebody else, as far as is known. */
bool door_has_no_bootstrap(const struct node *node);
/** Is this peer one that others are to find by --bootstrap? Who names nobody is, too, and so is who
 *  looked for others on the local network. */
bool door_is_bootstrap(const struct node *node);

/* node/door/reach.c */
/** Where others may find this peer, as far as it knows. */
void door_own_address(const struct node *node, char address[ADDRESS_BYTES_MAX]);

/* node/door/links.c */
/** NULL: there is no open link with it. */
struct neighbour *door_neighbour(const struct node *node, struct peer_id id);
/** Everyone to reckon with, linked or not, this peer included, sorted by id; the caller frees it.
 *  NULL: no memory. */
struct peer_id *door_everyone(const struct node *node, size_t *count);
/** Dial whom membership wants dialled. */
void door_dial_due(struct node *node, uint64_t now_ns);

/* node/door/reach.c: who can dial us, and whom we dial back */
/** Append what was tried to reach the swarm, and why it failed. */
void door_tell_tried(const struct node *node, char *text, size_t cap);

/* node/door/admission.c: who may be linked */
/** `peer` failed us or misbehaved: no rounds with it for a while, or no link. */
void door_score(struct node *node, struct peer_id peer, enum score_reason reason);
/** By the lists, could who says this of itself be a member? Observers need not be. */
bool door_may_join(const struct node *node, const struct hello *hello);
/** What counts as one host of an address: see struct neighbour. */
uint64_t door_place(const char *address);

/* node/door/credit.c */
/** One more, of at most `most` in `while_ns`? */
bool door_ration(struct ration *ration, uint64_t now_ns, uint64_t while_ns, uint32_t most);
uint32_t door_chunk_credit(void *node, uint32_t out, uint32_t wanted);
uint32_t door_bucket_credit(void *node, uint32_t out, uint32_t wanted);
/** DATA came that nobody had allowed. */
void door_stray(struct node *node, struct peer_id from, size_t count);

#endif

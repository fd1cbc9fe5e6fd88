/*
 * donor: the giving side of a model download (joiner.h is the other). Joiners hold leases on
 * snapshots; a few snapshots serve many joiners, and what they are sent while an averaging round
 * runs is a small share of what the round itself sends. A pure machine: messages go to the outbox,
 * snapshots and the sending of buckets are asked for by return values.
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_DONOR_H
#define GRAPEVINE_PEER_DOWNLOAD_DONOR_H

#include "gossip/flow/outbox.h"
#include "gossip/secure/secure.h"
#include "gossip/wire/messages.h"
#include "peer/times.h"
#include "replica/plane/plane.h"

struct donor;

enum { DONOR_LEASES_MAX = 8, DONOR_SNAPSHOTS_MAX = 2, DONOR_VISITORS_MAX = 2 };

/* A pinned snapshot: values per section and its bucket hashes, computed off the loop. */
struct donor_snapshot {
    uint64_t step, samples, round;
    uint64_t updates; /* that the optimizer's buffers are of */
    bool is_agreed;   /* parameters as the group round before `round` left them, equal everywhere */
    struct digest lineage;
    uint32_t sections_count;
    uint32_t sections[STATE_SECTIONS_MAX]; /* enum section, or SECTION_RULE... of buckets.h */
    float *values[STATE_SECTIONS_MAX];     /* from mem_*, owned by the donor afterwards */
    size_t counts[STATE_SECTIONS_MAX];
    uint8_t *changes[STATE_SECTIONS_MAX]; /* int8-encoded, bucket by bucket, each taking
                                             donor_change_bytes(); NULL unless it has a base */
    struct digest *hashes; /* of each bucket, from mem_*, owned by the donor afterwards */
    uint32_t buckets;
};

/* A snapshot that is wanted. */
struct donor_wish {
    uint64_t since_ns;                 /* when it was asked for first */
    uint64_t round;                    /* parameters as agreed in this group round, or after; 0 */
    const struct donor_snapshot *base; /* NULL: whole. Else donor_snapshot_change() is for it; it
                                          stays until donor_on_snapshot() */
};

/** Borrows `identity`, which signs manifests for `run_id`. NULL: no memory. */
struct donor *donor_create(const struct schema *schema, const struct identity *identity,
                           struct digest run_id);
void donor_destroy(struct donor *donor);
/** Of the method that MOMENTS are of, and of the averaging rule, for what it keeps between rounds:
 *  for manifests. Zero unless set. */
void donor_set_methods(struct donor *donor, struct digest moments, struct digest rule);
/** STATE_REQ. RC_BUSY sends STATE_DENY: all leases or snapshots are taken by joiners that get on,
 * or the base is gone. RC_OK: a young snapshot is shared, one will be wanted, or, after its link
 * was lost, the joiner goes on with the one it had. */
MUST_USE enum rc donor_on_request(struct donor *donor, struct peer_id from,
                                  const struct message_state_req *request, uint64_t now_ns,
                                  struct outbox *out);
/** The same of who is no member, and makes way for those who are: DONOR_VISITORS_MAX of them have a
 *  lease, where one is free and nobody else's snapshot is in the way. Otherwise, RC_BUSY sends
 *  STATE_DENY. RC_FORMAT: it wants a change, which is not for it. */
MUST_USE enum rc donor_on_visit(struct donor *donor, struct peer_id from,
                                const struct message_state_req *request, uint64_t now_ns,
                                struct outbox *out);
/** Someone waits for a snapshot and none is being taken. */
bool donor_wants_snapshot(const struct donor *donor, struct donor_wish *wish);
/** The caller is taking it; donor_on_snapshot() will follow. */
void donor_begin_snapshot(struct donor *donor);
/** What the change of a bucket takes, encoded. */
size_t donor_change_bytes(void);
/** For the snapshot job, with a base: make `changes`, and put into `values` what a joiner will
 *  have, which is near them. RC_MISMATCH: other sections than the base; RC_NOMEM. */
MUST_USE enum rc donor_snapshot_change(struct donor_snapshot *snapshot,
                                       const struct donor_snapshot *base);
/** For the snapshot job: fill hashes and buckets from values. RC_NOMEM, RC_NONFINITE. */
MUST_USE enum rc donor_snapshot_hash(struct donor_snapshot *snapshot);
void donor_snapshot_deinit(struct donor_snapshot *snapshot);
/** Takes the snapshot; manifests go to everyone waiting for it. rc != RC_OK: they are denied. */
void donor_on_snapshot(struct donor *donor, enum rc rc, struct donor_snapshot *snapshot,
                       uint64_t now_ns, struct outbox *out);
/** MANIFEST_REQ, BUCKET_REQ, STATE_DONE. For BUCKET_REQ the buckets to send are returned by
 *  donor_next_bucket(). RC_STALE: no such lease, which the joiner is told; RC_FORMAT: out of
 *  range. RC_LIMIT: more at once than any joiner needs; what was asked for before and is still not
 *  sent makes room for what is asked for now, as its joiner has changed its mind. */
MUST_USE enum rc donor_on_message(struct donor *donor, struct peer_id from,
                                  const struct message *message, uint64_t now_ns,
                                  struct outbox *out);
/** While a round runs: all joiners together get `bytes_per_s` at most, beyond a burst of
 *  `burst_bytes`, but one bucket. 0: no limit. The first burst of a donor is larger, so that a
 * small model travels at once whatever runs. */
void donor_set_pace(struct donor *donor, uint64_t bytes_per_s, uint64_t burst_bytes,
                    uint64_t now_ns);
/** Take one bucket that should be sent to `to` now; false: none. Bytes borrowed until the next
 * call. */
bool donor_next_bucket(struct donor *donor, struct peer_id to, uint64_t now_ns, uint16_t *stream,
                       uint32_t *bucket, const uint8_t **bytes, size_t *count);
/** What it was being given stays for a while, if it is a member. */
void donor_on_link_lost(struct donor *donor, struct peer_id peer, uint64_t now_ns);
void donor_tick(struct donor *donor, uint64_t now_ns);
/** When a lease runs out, or the pace lets the next bucket go. */
uint64_t donor_next_ns(const struct donor *donor);
/** The holder of lease number `lease` waits for buckets. */
bool donor_owes(const struct donor *donor, uint32_t lease, struct peer_id *to);
/** Leases that are taken. */
uint32_t donor_leases(const struct donor *donor);

#endif

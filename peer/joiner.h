/*
 * joiner and donor: how a peer gets the swarm's model, in hash-checked buckets, while the donor
 * goes on training and averaging. Both are pure machines: messages go to the outbox, bucket bytes
 * and snapshots are asked for by return values. A bucket is CHUNK_VALUES float32 of the sections
 * one after another, each section starting a new bucket.
 */
#ifndef GRAPEVINE_PEER_JOINER_H
#define GRAPEVINE_PEER_JOINER_H

#include "gossip/outbox.h"
#include "gossip/wire/messages.h"
#include "replica/plane.h"

enum joiner_state {
    JOINER_IDLE,     /* nothing to do */
    JOINER_ASKING,   /* STATE_REQ sent */
    JOINER_LISTING,  /* manifest here, pages coming */
    JOINER_LOADING,  /* buckets coming */
    JOINER_COMPLETE, /* all buckets verified: take the planes, then joiner_finish() */
    JOINER_FAILED    /* no donor could be used, or no memory; begin again later: what was
                        verified is kept for then */
};

enum { JOINER_DONORS_MAX = 16 }; /* of joiner_begin(); more are not tried */

struct joiner;

/** `schema`: what we expect, copied; a manifest that differs is refused. Allocates nothing large
 *  yet. NULL: no memory. `seed`: which bucket to ask for first, so that joiners differ. */
struct joiner *joiner_create(const struct schema *schema, uint64_t seed);
void joiner_destroy(struct joiner *joiner);
enum joiner_state joiner_state(const struct joiner *joiner);
/** What to ask for, as in message_state_req; PARAMETERS and BUFFERS unless set. PARAMETERS always.
 */
void joiner_set_want(struct joiner *joiner, uint32_t want);
/** Of the method that our MOMENTS are of, as in the manifest: others' are left out. Zero unless
 * set.
 */
void joiner_set_moments(struct joiner *joiner, struct digest moments);
/** Start a download of `lineage` (all zero: any) from one of `donors` (tried in order). */
MUST_USE enum rc joiner_begin(struct joiner *joiner, const struct peer_id *donors,
                              size_t donors_count, struct digest lineage, uint64_t now_ns,
                              struct outbox *out);
/** STATE_MANIFEST, MANIFEST_PAGE, STATE_DENY. RC_STALE: not from the donor of now, or not waited
 *  for; RC_MISMATCH: another model or lineage; RC_AUTH: the root does not cover the pages;
 *  RC_FORMAT: sizes that contradict each other; RC_NOMEM. All but RC_STALE and RC_NOMEM make the
 *  donor unusable and the next one is asked. */
MUST_USE enum rc joiner_on_message(struct joiner *joiner, struct peer_id from,
                                   const struct message *message, uint64_t now_ns,
                                   struct outbox *out);
/** A DATA_STATE record (arg: bucket): length, then hash, then finiteness are checked before it
 *  counts. A wrong one makes the donor unusable: RC_AUTH / RC_NONFINITE. */
MUST_USE enum rc joiner_on_bucket(struct joiner *joiner, struct peer_id from, uint16_t stream,
                                  uint32_t bucket, const uint8_t *bytes, size_t count,
                                  uint64_t now_ns, struct outbox *out);
/** The donor is gone: go on with the next one, keeping buckets whose hashes agree. */
void joiner_on_link_lost(struct joiner *joiner, struct peer_id peer, uint64_t now_ns,
                         struct outbox *out);
void joiner_tick(struct joiner *joiner, uint64_t now_ns, struct outbox *out);
uint64_t joiner_next_ns(const struct joiner *joiner);
/** COMPLETE: the values of a section (NULL if it did not travel) and the manifest. */
const float *joiner_section(const struct joiner *joiner, enum section section, size_t *count);
const struct message_state_manifest *joiner_manifest(const struct joiner *joiner);
/** Who is being asked or gave the model. */
bool joiner_donor(const struct joiner *joiner, struct peer_id *donor);
/** Free the downloaded planes, back to IDLE. */
void joiner_finish(struct joiner *joiner);
/** Share done in [0, 1], for progress. */
double joiner_progress(const struct joiner *joiner);

/* The giving side. */
struct donor;
enum { DONOR_LEASES_MAX = 2, DONOR_LEASE_MS = 120000 };

struct donor *donor_create(const struct schema *schema);
/** Of the method that MOMENTS are of, for manifests. Zero unless set. */
void donor_set_moments(struct donor *donor, struct digest moments);
void donor_destroy(struct donor *donor);
/** STATE_REQ: RC_BUSY sends STATE_DENY (both leases taken); RC_OK with *wants_snapshot set: the
 *  caller takes a snapshot of the sections asked for and calls donor_on_snapshot(). A snapshot
 *  younger than 2 s with an open lease is shared. */
MUST_USE enum rc donor_on_request(struct donor *donor, struct peer_id from,
                                  const struct message_state_req *request, uint64_t now_ns,
                                  bool *wants_snapshot, struct outbox *out);
/* A pinned snapshot: values per section and its bucket hashes, computed off the loop. */
struct donor_snapshot {
    uint64_t step, samples, round;
    struct digest lineage;
    uint32_t sections_count;
    enum section sections[STATE_SECTIONS_MAX];
    float *values[STATE_SECTIONS_MAX]; /* from mem_*, owned by the donor afterwards */
    size_t counts[STATE_SECTIONS_MAX];
    struct digest *hashes; /* of each bucket, from mem_*, owned by the donor afterwards */
    uint32_t buckets;
};
/** For the snapshot job: fill hashes and buckets from values. RC_NOMEM, RC_NONFINITE. */
MUST_USE enum rc donor_snapshot_hash(struct donor_snapshot *snapshot);
void donor_snapshot_deinit(struct donor_snapshot *snapshot);
/** Takes the snapshot; manifests go to everyone waiting for it. rc != RC_OK: they are denied. */
void donor_on_snapshot(struct donor *donor, enum rc rc, struct donor_snapshot *snapshot,
                       uint64_t now_ns, struct outbox *out);
/** MANIFEST_REQ, BUCKET_REQ. For BUCKET_REQ the run of buckets to send is returned by
 *  donor_next_bucket(). RC_STALE: no such lease. */
MUST_USE enum rc donor_on_message(struct donor *donor, struct peer_id from,
                                  const struct message *message, uint64_t now_ns,
                                  struct outbox *out);
/** Take one bucket that should be sent to `to` now; false: none. Bytes borrowed until the next
 * call. */
bool donor_next_bucket(struct donor *donor, struct peer_id to, uint16_t *stream, uint32_t *bucket,
                       const uint8_t **bytes, size_t *count);
void donor_on_link_lost(struct donor *donor, struct peer_id peer);
void donor_tick(struct donor *donor, uint64_t now_ns);
uint64_t donor_next_ns(const struct donor *donor);

#endif

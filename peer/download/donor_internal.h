/*
 * donor_internal: what the files of a donor share; private to peer/download/donor*.c. Loop thread.
 *
 *   donor.c        leases and snapshots: who has what, and who makes way
 *   donor_serve.c  listings and buckets: what is sent, and how fast
 */
#ifndef GRAPEVINE_PEER_DOWNLOAD_DONOR_INTERNAL_H
#define GRAPEVINE_PEER_DOWNLOAD_DONOR_INTERNAL_H

#include "peer/download/donor.h"

#include "peer/download/buckets.h"

enum { DONOR_RUNS_MAX = 16, DONOR_GUESTS_MAX = 32 };
enum { DONOR_BUCKET_BYTES = CHUNK_VALUES * 4, DONOR_BURST_BYTES = 8 * DONOR_BUCKET_BYTES };
enum lease_state { LEASE_FREE, LEASE_WAITING, LEASE_OPEN, LEASE_LEFT };

struct pinned {
    struct donor_snapshot snapshot;
    struct bucket_map map; /* of all sections of the snapshot */
    uint64_t taken_ns;
    uint32_t leases; /* 0: empty */
};

struct run {
    uint32_t index, count;
};

struct lease {
    enum lease_state state;
    struct peer_id to;
    bool is_visitor; /* no member */
    uint32_t number, want;
    uint64_t asked_ns, until_ns, round;
    uint64_t first_ns;     /* its joiner's, see struct guest */
    uint64_t moved_ns;     /* when a page or bucket was sent that had not been sent before */
    uint64_t ends_ns;      /* whatever is sent */
    uint32_t pages, sent;  /* such */
    uint8_t *is_sent;      /* a bit for each bucket */
    struct pinned *pinned; /* WAITING: its base, or NULL */
    struct bucket_map map; /* of the sections this joiner wants */
    uint32_t sections[STATE_SECTIONS_MAX]; /* their numbers in the snapshot */
    struct run runs[DONOR_RUNS_MAX];       /* asked for, oldest first */
    uint32_t runs_count, queued;
};

/* A joiner with a lease, now or a while ago. */
struct guest {
    struct peer_id id;
    uint64_t first_ns, last_ns; /* its first request, its latest; 0: nobody */
};

struct donor {
    const struct identity *identity;
    struct guest guests[DONOR_GUESTS_MAX];
    struct digest schema, moments, rule, run_id;
    struct pinned pinned[DONOR_SNAPSHOTS_MAX];
    struct lease leases[DONOR_LEASES_MAX];
    bool has_leases; /* false: they are all free */
    uint32_t lease_number;
    bool is_taking;      /* the caller is taking a snapshot */
    uint32_t taking_for; /* the lease it is a change for, or 0 */
    struct pinned *taking_base;
    uint64_t pace; /* bytes a second; 0: no limit */
    uint64_t burst, tokens, tokens_ns;
};

static inline uint32_t donor_lease_buckets(const struct lease *lease)
{
    return bucket_map_count(&lease->map);
}

/* donor.c */
struct lease *donor_lease_of(struct donor *donor, struct peer_id to);
void donor_lease_end(struct lease *lease);
/** Something was sent that had not been sent before. */
void donor_lease_moved(struct lease *lease, uint64_t now_ns);
void donor_deny(struct peer_id to, enum reject_code code, struct outbox *out);

/* donor_serve.c */
/** The hash of bucket number `bucket` of a lease; the lease may hold only some of the sections. */
const struct digest *donor_lease_hash(const struct lease *lease, uint32_t bucket);

#endif

/*
 * The giving side of a model download. A lease pins a snapshot for one joiner; leases share
 * snapshots, of which there are two at most. Everything a joiner can ask for is bounded: a run
 * outside its lease's buckets is refused, and of a longer queue than a window would ever make the
 * oldest is forgotten: a joiner whose listing changed has asked anew for what it wants. A lease
 * ends when its joiner says that it is done or goes away, or unrenewed after DONOR_LEASE_MS.
 *
 *   free --STATE_REQ--> WAITING --snapshot--> OPEN --STATE_DONE, link lost, time--> free
 *                          '--fresh snapshot there--^
 *
 * A joiner that has become slow asks for the change since its lease's snapshot: a WAITING lease
 * then keeps the old snapshot as its base until the new one is there.
 *
 * Pace: while a round runs, buckets are paid for from a token bucket that all joiners draw on. It
 * starts very full, so that a small model travels at once whatever runs. Whose turn it is, the
 * caller knows, who sees whose link has room: a joiner that does not read must not hold up the
 * others.
 *
 * Loop thread.
 */
#include "peer/donor.h"

#include "averaging/codec.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/manifest.h"
#include "peer/buckets.h"

enum { RUNS_MAX = 16, QUEUE_BUCKETS_MAX = 64, RETRY_MS = 2000 };
enum { BUCKET_BYTES = CHUNK_VALUES * 4, BURST_BYTES = 8 * BUCKET_BYTES };
enum lease_state { LEASE_FREE, LEASE_WAITING, LEASE_OPEN };

#define LEASE_NS  (DONOR_LEASE_MS * NS_PER_MS)
#define SHARED_NS (2 * NS_PER_S)  /* a snapshot younger than this is good enough for the next */
#define CROWD_NS  (60 * NS_PER_S) /* and so is this where there is no room for another */

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
    uint32_t number, want;
    uint64_t asked_ns, until_ns, round;
    struct pinned *pinned;                 /* WAITING: its base, or NULL */
    struct bucket_map map;                 /* of the sections this joiner wants */
    uint32_t sections[STATE_SECTIONS_MAX]; /* their numbers in the snapshot */
    struct run runs[RUNS_MAX];             /* asked for, oldest first */
    uint32_t runs_count, queued;
};

struct donor {
    const struct identity *identity;
    struct digest schema, moments, rule, run_id;
    struct pinned pinned[DONOR_SNAPSHOTS_MAX];
    struct lease leases[DONOR_LEASES_MAX];
    uint32_t lease_number;
    bool is_taking;      /* the caller is taking a snapshot */
    uint32_t taking_for; /* the lease it is a change for, or 0 */
    struct pinned *taking_base;
    uint64_t pace; /* bytes a second; 0: no limit */
    uint64_t burst, tokens, tokens_ns;
};

struct donor *donor_create(const struct schema *schema, const struct identity *identity,
                           struct digest run_id)
{
    struct donor *donor = mem_alloc(sizeof(*donor));

    if (donor == NULL) return NULL;
    donor->schema = schema_digest(schema);
    donor->identity = identity;
    donor->run_id = run_id;
    donor->tokens = BURST_BYTES;
    return donor;
}

void donor_set_moments(struct donor *donor, struct digest moments)
{
    donor->moments = moments;
}

void donor_set_rule(struct donor *donor, struct digest rule)
{
    donor->rule = rule;
}

void donor_destroy(struct donor *donor)
{
    if (donor == NULL) return;
    for (uint32_t i = 0; i < DONOR_SNAPSHOTS_MAX; i++) {
        donor_snapshot_deinit(&donor->pinned[i].snapshot);
    }
    mem_free(donor);
}

static void unpin(struct pinned *pinned)
{
    CHECK(pinned->leases > 0);
    if (--pinned->leases == 0) donor_snapshot_deinit(&pinned->snapshot);
}

/* --- leases ---------------------------------------------------------------------------------- */

static void lease_end(struct lease *lease)
{
    if (lease->pinned != NULL) unpin(lease->pinned);
    *lease = (struct lease){.state = LEASE_FREE};
}

static struct lease *lease_of(struct donor *donor, struct peer_id to)
{
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && peer_id_is_equal(lease->to, to)) return lease;
    }
    return NULL;
}

static void deny(struct peer_id to, enum reject_code code, struct outbox *out)
{
    struct message message = {.type = MESSAGE_STATE_DENY};

    message.as.state_deny.code = code;
    message.as.state_deny.retry_ms = RETRY_MS;
    outbox_add(out, to, &message);
}

/* The hash of bucket number `bucket` of a lease; the lease may hold only some of the sections. */
static const struct digest *lease_hash(const struct lease *lease, uint32_t bucket)
{
    uint32_t section = bucket_map_span(&lease->map, bucket).section;
    uint32_t first = lease->pinned->map.first[lease->sections[section]];

    return &lease->pinned->snapshot.hashes[first + bucket - lease->map.first[section]];
}

static void send_manifest(const struct donor *donor, const struct lease *lease, struct outbox *out)
{
    const struct donor_snapshot *snapshot = &lease->pinned->snapshot;
    struct message message = {.type = MESSAGE_STATE_MANIFEST};
    struct message_state_manifest *manifest = &message.as.state_manifest;
    struct hash root;

    manifest->lease = lease->number;
    manifest->step = snapshot->step;
    manifest->samples = snapshot->samples;
    manifest->round = snapshot->round;
    manifest->schema = donor->schema;
    manifest->moments = donor->moments;
    manifest->rule = donor->rule;
    manifest->lineage = snapshot->lineage;
    manifest->sections_count = lease->map.sections;
    for (uint32_t i = 0; i < lease->map.sections; i++) {
        manifest->sections[i] = (uint8_t)snapshot->sections[lease->sections[i]];
        manifest->values[i] = lease->map.values[i];
    }
    manifest->buckets = bucket_map_count(&lease->map);
    manifest->pages = (manifest->buckets + MANIFEST_HASHES_MAX - 1) / MANIFEST_HASHES_MAX;
    manifest->lease_ms = DONOR_LEASE_MS;
    hash_init(&root);
    for (uint32_t i = 0; i < manifest->buckets; i++) {
        hash_update(&root, lease_hash(lease, i)->bytes, DIGEST_BYTES);
    }
    manifest->root = hash_final(&root);
    manifest_sign(manifest, donor->identity, donor->run_id);
    outbox_add(out, lease->to, &message);
}

/* Give a waiting lease its snapshot, or only the sections of it that were asked for. */
static void lease_open(const struct donor *donor, struct lease *lease, struct pinned *pinned,
                       uint64_t now_ns, struct outbox *out)
{
    size_t values[STATE_SECTIONS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < pinned->snapshot.sections_count; i++) {
        if ((bucket_section_bit(pinned->snapshot.sections[i]) & lease->want) == 0) continue;
        lease->sections[count] = i;
        values[count++] = pinned->snapshot.counts[i];
    }
    if (!bucket_map_init(&lease->map, values, count)) { /* none of what it wants is in there */
        deny(lease->to, REJECT_BUSY, out);
        lease_end(lease);
        return;
    }
    pinned->leases++;
    if (lease->pinned != NULL) unpin(lease->pinned);
    lease->state = LEASE_OPEN;
    lease->pinned = pinned;
    lease->until_ns = now_ns + LEASE_NS;
    send_manifest(donor, lease, out);
}

/* As agreed in group round `round` or later; 0: any will do. */
static bool is_of_round(const struct donor_snapshot *snapshot, uint64_t round)
{
    return round == 0 || (snapshot->is_agreed && snapshot->round > round);
}

/* The youngest that is whole and younger than `age_ns`. */
static struct pinned *young_snapshot(struct donor *donor, uint64_t round, uint64_t age_ns,
                                     uint64_t now_ns)
{
    struct pinned *best = NULL;

    for (uint32_t i = 0; i < DONOR_SNAPSHOTS_MAX; i++) {
        struct pinned *pinned = &donor->pinned[i];

        if (pinned->leases == 0 || pinned->snapshot.changes[0] != NULL) continue;
        if (now_ns - pinned->taken_ns >= age_ns) continue;
        if (!is_of_round(&pinned->snapshot, round)) continue;
        if (best == NULL || pinned->taken_ns > best->taken_ns) best = pinned;
    }
    return best;
}

static uint32_t room(const struct donor *donor)
{
    uint32_t free = 0;

    for (uint32_t i = 0; i < DONOR_SNAPSHOTS_MAX; i++) {
        free += donor->pinned[i].leases == 0;
    }
    return free;
}

/* Its old lease becomes a waiting one that keeps the snapshot to compare with. */
static enum rc request_change(struct donor *donor, struct lease *lease,
                              const struct message_state_req *request, uint64_t now_ns)
{
    if (lease == NULL || lease->state != LEASE_OPEN || lease->number != request->base) {
        return RC_BUSY;
    }
    if (donor->is_taking || room(donor) == 0) return RC_BUSY;
    *lease = (struct lease){.state = LEASE_WAITING,
                            .to = lease->to,
                            .number = ++donor->lease_number,
                            .want = lease->want,
                            .asked_ns = now_ns,
                            .pinned = lease->pinned,
                            .until_ns = now_ns + LEASE_NS};
    return RC_OK;
}

static bool is_anyone_waiting(const struct donor *donor)
{
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        const struct lease *lease = &donor->leases[i];

        if (lease->state == LEASE_WAITING && lease->pinned == NULL) return true;
    }
    return false;
}

/* What a new lease will be of: a snapshot that is there, or one that will be. */
static enum rc find_snapshot(struct donor *donor, struct lease *old, uint64_t round,
                             uint64_t now_ns, struct pinned **pinned)
{
    *pinned = young_snapshot(donor, round, SHARED_NS, now_ns);
    if (*pinned != NULL || is_anyone_waiting(donor)) return RC_OK;
    if (old != NULL && old->pinned != NULL && old->pinned->leases == 1) return RC_OK; /* its own */
    if (room(donor) > (donor->is_taking ? 1U : 0U)) return RC_OK;
    *pinned = young_snapshot(donor, 0, CROWD_NS, now_ns);
    return *pinned != NULL ? RC_OK : RC_BUSY;
}

enum rc donor_on_request(struct donor *donor, struct peer_id from,
                         const struct message_state_req *request, uint64_t now_ns,
                         struct outbox *out)
{
    struct lease *lease = NULL;
    struct pinned *pinned;
    enum rc rc;

    donor_tick(donor, now_ns);
    if ((request->want & 1) == 0) return RC_FORMAT;
    lease = lease_of(donor, from);
    if (request->base != 0) {
        rc = request_change(donor, lease, request, now_ns);
        if (rc != RC_OK) deny(from, REJECT_STALE, out);
        return rc;
    }
    for (uint32_t i = 0; i < DONOR_LEASES_MAX && lease == NULL; i++) {
        if (donor->leases[i].state == LEASE_FREE) lease = &donor->leases[i];
    }
    if (lease == NULL || find_snapshot(donor, lease, request->round, now_ns, &pinned) != RC_OK) {
        deny(from, REJECT_BUSY, out);
        return RC_BUSY;
    }
    if (pinned != NULL) pinned->leases++; /* not to lose it with the lease that is replaced */
    lease_end(lease);
    *lease = (struct lease){.state = LEASE_WAITING,
                            .to = from,
                            .number = ++donor->lease_number,
                            .want = request->want,
                            .round = request->round,
                            .asked_ns = now_ns,
                            .until_ns = now_ns + LEASE_NS};
    if (pinned == NULL) return RC_OK;
    lease_open(donor, lease, pinned, now_ns, out);
    unpin(pinned);
    return RC_OK;
}

/* Changes come last: those who have nothing wait first. */
static const struct lease *next_waiting(const struct donor *donor)
{
    const struct lease *best = NULL;

    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        const struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_WAITING) continue;
        if (best == NULL || (best->pinned != NULL && lease->pinned == NULL)) best = lease;
    }
    return best;
}

bool donor_wants_snapshot(const struct donor *donor, struct donor_wish *wish)
{
    const struct lease *lease = donor->is_taking ? NULL : next_waiting(donor);

    if (lease == NULL || room(donor) == 0) return false;
    *wish = (struct donor_wish){.since_ns = lease->asked_ns, .round = lease->round};
    if (lease->pinned != NULL) {
        wish->base = &lease->pinned->snapshot;
        return true;
    }
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) { /* it is for all who wait */
        const struct lease *other = &donor->leases[i];

        if (other->state != LEASE_WAITING || other->pinned != NULL) continue;
        if (other->round > wish->round) wish->round = other->round;
        if (other->asked_ns < wish->since_ns) wish->since_ns = other->asked_ns;
    }
    return true;
}

void donor_begin_snapshot(struct donor *donor)
{
    const struct lease *lease = next_waiting(donor);

    CHECK(!donor->is_taking && lease != NULL);
    donor->is_taking = true;
    donor->taking_for = lease->pinned == NULL ? 0 : lease->number;
    donor->taking_base = lease->pinned;
    if (lease->pinned != NULL) lease->pinned->leases++; /* the job reads it */
}

static struct pinned *pin(struct donor *donor, struct donor_snapshot *snapshot, uint64_t now_ns)
{
    struct bucket_map map;
    bool is_whole = bucket_map_init(&map, snapshot->counts, snapshot->sections_count);

    CHECK(is_whole && snapshot->hashes != NULL && snapshot->buckets == bucket_map_count(&map));
    for (uint32_t i = 0; i < DONOR_SNAPSHOTS_MAX; i++) {
        struct pinned *pinned = &donor->pinned[i];

        if (pinned->leases > 0) continue;
        *pinned = (struct pinned){.snapshot = *snapshot, .map = map, .taken_ns = now_ns};
        *snapshot = (struct donor_snapshot){0};
        return pinned;
    }
    return NULL;
}

void donor_on_snapshot(struct donor *donor, enum rc rc, struct donor_snapshot *snapshot,
                       uint64_t now_ns, struct outbox *out)
{
    struct pinned *pinned = NULL;

    CHECK(donor->is_taking);
    donor->is_taking = false;
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_WAITING) continue;
        if (donor->taking_for != 0 ? lease->number != donor->taking_for : lease->pinned != NULL) {
            continue; /* another kind of snapshot is for it */
        }
        if (rc == RC_OK && pinned == NULL) pinned = pin(donor, snapshot, now_ns);
        if (pinned == NULL) {
            deny(lease->to, REJECT_BUSY, out);
            lease_end(lease);
            continue;
        }
        lease_open(donor, lease, pinned, now_ns, out);
    }
    if (pinned != NULL && pinned->leases == 0) donor_snapshot_deinit(&pinned->snapshot);
    if (donor->taking_base != NULL) unpin(donor->taking_base);
    donor->taking_base = NULL;
    donor_snapshot_deinit(snapshot); /* empty if it was taken */
}

/* --- serving --------------------------------------------------------------------------------- */

static enum rc on_manifest_req(struct lease *lease, uint32_t page, struct outbox *out)
{
    uint8_t hashes[MANIFEST_HASHES_MAX * DIGEST_BYTES];
    struct message message = {.type = MESSAGE_MANIFEST_PAGE};
    uint32_t buckets = bucket_map_count(&lease->map), count = 0;
    uint64_t first = (uint64_t)page * MANIFEST_HASHES_MAX;

    if (first >= buckets) return RC_FORMAT;
    while (count < MANIFEST_HASHES_MAX && first + count < buckets) {
        memcpy(hashes + count * DIGEST_BYTES, lease_hash(lease, (uint32_t)first + count)->bytes,
               DIGEST_BYTES);
        count++;
    }
    message.as.manifest_page.lease = lease->number;
    message.as.manifest_page.page = page;
    message.as.manifest_page.hashes = hashes;
    message.as.manifest_page.hashes_bytes = count * DIGEST_BYTES;
    outbox_add(out, lease->to, &message);
    return RC_OK;
}

static void drop_first_run(struct lease *lease)
{
    CHECK(lease->runs_count > 0);
    lease->runs_count--;
    memmove(lease->runs, lease->runs + 1, lease->runs_count * sizeof(lease->runs[0]));
}

static enum rc on_bucket_req(struct lease *lease, uint32_t index, uint32_t count)
{
    uint32_t buckets = bucket_map_count(&lease->map);

    if (count == 0 || index >= buckets || count > buckets - index) return RC_FORMAT;
    if (count > QUEUE_BUCKETS_MAX) return RC_LIMIT;
    while (lease->runs_count == RUNS_MAX || count > QUEUE_BUCKETS_MAX - lease->queued) {
        lease->queued -= lease->runs[0].count;
        drop_first_run(lease);
    }
    lease->runs[lease->runs_count++] = (struct run){.index = index, .count = count};
    lease->queued += count;
    return RC_OK;
}

/* RC_UNSUPPORTED: no message to a donor. */
static enum rc lease_named(const struct message *message, uint32_t *lease)
{
    switch (message->type) {
    case MESSAGE_MANIFEST_REQ:
        *lease = message->as.manifest_req.lease;
        return RC_OK;
    case MESSAGE_BUCKET_REQ:
        *lease = message->as.bucket_req.lease;
        return RC_OK;
    case MESSAGE_STATE_DONE:
        *lease = message->as.state_done.lease;
        return RC_OK;
    default:
        return RC_UNSUPPORTED;
    }
}

enum rc donor_on_message(struct donor *donor, struct peer_id from, const struct message *message,
                         uint64_t now_ns, struct outbox *out)
{
    struct lease *lease;
    uint32_t number = 0;
    enum rc rc = lease_named(message, &number);

    if (rc != RC_OK) return rc;
    donor_tick(donor, now_ns);
    lease = lease_of(donor, from);
    if (lease == NULL || lease->state != LEASE_OPEN || number != lease->number) {
        if (message->type != MESSAGE_STATE_DONE && lease == NULL) deny(from, REJECT_STALE, out);
        return RC_STALE;
    }
    if (message->type == MESSAGE_STATE_DONE) {
        lease_end(lease);
        return RC_OK;
    }
    if (message->type == MESSAGE_MANIFEST_REQ) {
        rc = on_manifest_req(lease, message->as.manifest_req.page, out);
    } else {
        rc = on_bucket_req(lease, message->as.bucket_req.index, message->as.bucket_req.count);
    }
    if (rc == RC_OK) lease->until_ns = now_ns + LEASE_NS;
    return rc;
}

/* --- pace ------------------------------------------------------------------------------------ */

/* Earn what the time since the last call is worth. More than a burst is not saved up, but what is
 * left of the first, larger one stays. */
static void earn(struct donor *donor, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - donor->tokens_ns, room, earned;

    if (donor->pace == 0) {
        donor->tokens_ns = now_ns;
        return;
    }
    room = donor->tokens < donor->burst ? donor->burst - donor->tokens : 0;
    earned = gap_ns >= 1000 * NS_PER_S
                 ? room
                 : (uint64_t)((double)gap_ns * (double)donor->pace / (double)NS_PER_S);
    if (earned == 0 && room > 0) return; /* keep the time until it is worth something */
    donor->tokens += earned < room ? earned : room;
    donor->tokens_ns = now_ns;
}

void donor_set_pace(struct donor *donor, uint64_t bytes_per_s, uint64_t burst_bytes,
                    uint64_t now_ns)
{
    earn(donor, now_ns);
    donor->pace = bytes_per_s;
    donor->burst = burst_bytes > BUCKET_BYTES ? burst_bytes : BUCKET_BYTES;
}

/* What a bucket travels as. */
static const uint8_t *bucket_bytes(const struct lease *lease, uint32_t bucket, size_t *count)
{
    struct bucket_span span = bucket_map_span(&lease->map, bucket);
    const struct donor_snapshot *snapshot = &lease->pinned->snapshot;
    uint32_t section = lease->sections[span.section];

    if (snapshot->changes[section] != NULL) {
        *count = codec_int8.encoded_bytes(span.count);
        return snapshot->changes[section] + span.offset / CHUNK_VALUES * donor_change_bytes();
    }
    *count = span.count * sizeof(float);
    return (const uint8_t *)(snapshot->values[section] + span.offset);
}

bool donor_next_bucket(struct donor *donor, struct peer_id to, uint64_t now_ns, uint16_t *stream,
                       uint32_t *bucket, const uint8_t **bytes, size_t *count)
{
    struct lease *lease = lease_of(donor, to);

    if (lease == NULL || lease->state != LEASE_OPEN || lease->queued == 0) return false;
    earn(donor, now_ns);
    if (donor->pace > 0 && donor->tokens < BUCKET_BYTES) return false;
    *stream = (uint16_t)lease->number;
    *bucket = lease->runs[0].index;
    *bytes = bucket_bytes(lease, *bucket, count);
    if (donor->pace > 0) donor->tokens -= *count;
    lease->until_ns = now_ns + LEASE_NS;
    lease->queued--;
    lease->runs[0].index++;
    if (--lease->runs[0].count == 0) drop_first_run(lease);
    return true;
}

void donor_on_link_lost(struct donor *donor, struct peer_id peer)
{
    struct lease *lease = lease_of(donor, peer);

    if (lease != NULL) lease_end(lease);
}

void donor_tick(struct donor *donor, uint64_t now_ns)
{
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && now_ns >= lease->until_ns) lease_end(lease);
    }
}

uint64_t donor_next_ns(const struct donor *donor)
{
    uint64_t next_ns = UINT64_MAX;
    uint32_t queued = 0;

    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        const struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && lease->until_ns < next_ns) next_ns = lease->until_ns;
        queued += lease->queued;
    }
    if (queued > 0 && donor->pace > 0 && donor->tokens < BUCKET_BYTES) {
        uint64_t wait_ns = (uint64_t)((double)(BUCKET_BYTES - donor->tokens) * (double)NS_PER_S /
                                      (double)donor->pace) +
                           1;

        if (donor->tokens_ns + wait_ns < next_ns) next_ns = donor->tokens_ns + wait_ns;
    }
    return next_ns;
}

uint32_t donor_leases(const struct donor *donor)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        count += donor->leases[i].state != LEASE_FREE;
    }
    return count;
}

/*
 * The giving side of a model download. A lease pins a snapshot for one joiner; two leases at most,
 * which may share a snapshot. Everything a joiner can ask for is bounded: a run outside its lease's
 * buckets is refused, and so is a longer queue than a window would ever make. A lease ends when all
 * its buckets are handed out, when its joiner goes away, or unrenewed after DONOR_LEASE_MS.
 *
 *   free --STATE_REQ--> WAITING --snapshot--> OPEN --all handed out, link lost, time--> free
 *                          '--fresh snapshot there--^
 *
 * Loop thread, but for donor_snapshot_hash(), which is for the job that takes the snapshot.
 */
#include "peer/joiner.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "peer/buckets.h"

enum { RUNS_MAX = 16, QUEUE_BUCKETS_MAX = 64, RETRY_MS = 2000 };
enum lease_state { LEASE_FREE, LEASE_WAITING, LEASE_OPEN };

#define LEASE_NS  (DONOR_LEASE_MS * NS_PER_MS)
#define SHARED_NS (2 * NS_PER_S) /* a snapshot younger than this is good enough for the next */

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
    uint64_t until_ns;
    struct pinned *pinned;
    struct bucket_map map;                 /* of the sections this joiner wants */
    uint32_t sections[STATE_SECTIONS_MAX]; /* their numbers in the snapshot */
    struct run runs[RUNS_MAX];             /* asked for, oldest first */
    uint32_t runs_count, queued;
    uint32_t handed_out;
};

struct donor {
    struct digest schema, moments;
    struct pinned pinned[DONOR_LEASES_MAX];
    struct lease leases[DONOR_LEASES_MAX];
    uint32_t lease_number;
    bool is_taking; /* the caller is taking a snapshot */
};

struct donor *donor_create(const struct schema *schema)
{
    struct donor *donor = mem_alloc(sizeof(*donor));

    if (donor != NULL) donor->schema = schema_digest(schema);
    return donor;
}

void donor_set_moments(struct donor *donor, struct digest moments)
{
    donor->moments = moments;
}

void donor_destroy(struct donor *donor)
{
    if (donor == NULL) return;
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        donor_snapshot_deinit(&donor->pinned[i].snapshot);
    }
    mem_free(donor);
}

/* --- snapshots ------------------------------------------------------------------------------- */

enum rc donor_snapshot_hash(struct donor_snapshot *snapshot)
{
    struct bucket_map map;
    struct digest *hashes;

    CHECK(snapshot->hashes == NULL);
    if (!bucket_map_init(&map, snapshot->counts, snapshot->sections_count)) return RC_LIMIT;
    for (uint32_t i = 0; i < snapshot->sections_count; i++) {
        if (!bucket_is_finite(snapshot->values[i], snapshot->counts[i])) return RC_NONFINITE;
    }
    hashes = mem_array(bucket_map_count(&map), sizeof(hashes[0]));
    if (hashes == NULL) return RC_NOMEM;
    for (uint32_t i = 0; i < bucket_map_count(&map); i++) {
        struct bucket_span span = bucket_map_span(&map, i);

        hashes[i] =
            hash_of(snapshot->values[span.section] + span.offset, span.count * sizeof(float));
    }
    snapshot->hashes = hashes;
    snapshot->buckets = bucket_map_count(&map);
    return RC_OK;
}

void donor_snapshot_deinit(struct donor_snapshot *snapshot)
{
    for (uint32_t i = 0; i < STATE_SECTIONS_MAX; i++) {
        mem_free(snapshot->values[i]);
    }
    mem_free(snapshot->hashes);
    *snapshot = (struct donor_snapshot){0};
}

/* --- leases ---------------------------------------------------------------------------------- */

static void lease_end(struct lease *lease)
{
    if (lease->state == LEASE_OPEN) {
        CHECK(lease->pinned->leases > 0);
        if (--lease->pinned->leases == 0) donor_snapshot_deinit(&lease->pinned->snapshot);
    }
    *lease = (struct lease){.state = LEASE_FREE};
}

/* A lease whose last bucket was handed out is over once that bucket is no longer borrowed, that is
 * at the next call. */
static void sweep(struct donor *donor)
{
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_OPEN || lease->queued > 0) continue;
        if (lease->handed_out >= bucket_map_count(&lease->map)) lease_end(lease);
    }
}

static struct lease *lease_of(struct donor *donor, struct peer_id to)
{
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && peer_id_is_equal(lease->to, to)) return lease;
    }
    return NULL;
}

static void deny(struct peer_id to, struct outbox *out)
{
    struct message message = {.type = MESSAGE_STATE_DENY};

    message.as.state_deny.code = REJECT_BUSY;
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
        deny(lease->to, out);
        lease_end(lease);
        return;
    }
    lease->state = LEASE_OPEN;
    lease->pinned = pinned;
    lease->until_ns = now_ns + LEASE_NS;
    pinned->leases++;
    send_manifest(donor, lease, out);
}

static struct pinned *fresh_snapshot(struct donor *donor, uint64_t now_ns)
{
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct pinned *pinned = &donor->pinned[i];

        if (pinned->leases > 0 && now_ns - pinned->taken_ns < SHARED_NS) return pinned;
    }
    return NULL;
}

enum rc donor_on_request(struct donor *donor, struct peer_id from,
                         const struct message_state_req *request, uint64_t now_ns,
                         bool *wants_snapshot, struct outbox *out)
{
    struct lease *lease;
    struct pinned *pinned;

    *wants_snapshot = false;
    sweep(donor);
    donor_tick(donor, now_ns);
    if ((request->want & 1) == 0) return RC_FORMAT;
    pinned = fresh_snapshot(donor, now_ns);
    lease = lease_of(donor, from);
    for (uint32_t i = 0; i < DONOR_LEASES_MAX && lease == NULL; i++) {
        if (donor->leases[i].state == LEASE_FREE) lease = &donor->leases[i];
    }
    if (lease == NULL) {
        deny(from, out);
        return RC_BUSY;
    }
    if (pinned != NULL) pinned->leases++; /* not to lose it with the lease that is replaced */
    lease_end(lease);
    *lease = (struct lease){.state = LEASE_WAITING,
                            .to = from,
                            .number = ++donor->lease_number,
                            .want = request->want,
                            .until_ns = now_ns + LEASE_NS};
    if (pinned != NULL) {
        lease_open(donor, lease, pinned, now_ns, out);
        if (--pinned->leases == 0) donor_snapshot_deinit(&pinned->snapshot);
        return RC_OK;
    }
    *wants_snapshot = !donor->is_taking;
    donor->is_taking = true;
    return RC_OK;
}

static struct pinned *pin(struct donor *donor, struct donor_snapshot *snapshot, uint64_t now_ns)
{
    struct bucket_map map;
    bool is_whole = bucket_map_init(&map, snapshot->counts, snapshot->sections_count);

    CHECK(is_whole && snapshot->hashes != NULL && snapshot->buckets == bucket_map_count(&map));
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
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

    sweep(donor);
    donor->is_taking = false;
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_WAITING) continue;
        if (rc != RC_OK) {
            deny(lease->to, out);
            lease_end(lease);
            continue;
        }
        if (pinned == NULL) pinned = pin(donor, snapshot, now_ns);
        CHECK(pinned != NULL); /* a waiting lease pins nothing, so a place is free */
        lease_open(donor, lease, pinned, now_ns, out);
    }
    if (pinned != NULL && pinned->leases == 0) donor_snapshot_deinit(&pinned->snapshot);
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

static enum rc on_bucket_req(struct lease *lease, uint32_t index, uint32_t count)
{
    uint32_t buckets = bucket_map_count(&lease->map);

    if (count == 0 || index >= buckets || count > buckets - index) return RC_FORMAT;
    if (lease->runs_count == RUNS_MAX || count > QUEUE_BUCKETS_MAX - lease->queued) return RC_LIMIT;
    lease->runs[lease->runs_count++] = (struct run){.index = index, .count = count};
    lease->queued += count;
    return RC_OK;
}

enum rc donor_on_message(struct donor *donor, struct peer_id from, const struct message *message,
                         uint64_t now_ns, struct outbox *out)
{
    const struct message_bucket_req *run = &message->as.bucket_req;
    struct lease *lease;
    enum rc rc;

    if (message->type != MESSAGE_MANIFEST_REQ && message->type != MESSAGE_BUCKET_REQ) {
        return RC_UNSUPPORTED;
    }
    sweep(donor);
    donor_tick(donor, now_ns);
    lease = lease_of(donor, from);
    if (lease == NULL || lease->state != LEASE_OPEN) return RC_STALE;
    if (message->type == MESSAGE_MANIFEST_REQ) {
        if (message->as.manifest_req.lease != lease->number) return RC_STALE;
        rc = on_manifest_req(lease, message->as.manifest_req.page, out);
    } else {
        if (run->lease != lease->number) return RC_STALE;
        rc = on_bucket_req(lease, run->index, run->count);
    }
    if (rc == RC_OK) lease->until_ns = now_ns + LEASE_NS;
    return rc;
}

bool donor_next_bucket(struct donor *donor, struct peer_id to, uint16_t *stream, uint32_t *bucket,
                       const uint8_t **bytes, size_t *count)
{
    struct lease *lease;
    struct bucket_span span;
    const float *values;

    sweep(donor);
    lease = lease_of(donor, to);
    if (lease == NULL || lease->state != LEASE_OPEN || lease->queued == 0) return false;
    span = bucket_map_span(&lease->map, lease->runs[0].index);
    values = lease->pinned->snapshot.values[lease->sections[span.section]];
    *stream = (uint16_t)lease->number;
    *bucket = lease->runs[0].index;
    *bytes = (const uint8_t *)(values + span.offset);
    *count = span.count * sizeof(float);
    lease->queued--;
    lease->handed_out++;
    lease->runs[0].index++;
    if (--lease->runs[0].count == 0) {
        lease->runs_count--;
        memmove(lease->runs, lease->runs + 1, lease->runs_count * sizeof(lease->runs[0]));
    }
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

    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        const struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && lease->until_ns < next_ns) next_ns = lease->until_ns;
    }
    return next_ns;
}

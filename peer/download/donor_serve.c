/*
 * What a donor sends: pages of its listing, and buckets, at a pace.
 *
 * Pace: while a round runs, buckets are paid for from a token bucket that all joiners draw on. It
 * starts very full, so that a small model travels at once whatever runs. Whose turn it is, the
 * caller knows, who sees whose link has room: a joiner that does not read must not hold up the
 * others.
 *
 * Loop thread.
 */
#include "peer/download/donor_internal.h"

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/codec.h"

enum { QUEUE_BUCKETS_MAX = 64 };

const struct digest *donor_lease_hash(const struct lease *lease, uint32_t bucket)
{
    uint32_t section = bucket_map_span(&lease->map, bucket).section;
    uint32_t first = lease->pinned->map.first[lease->sections[section]];

    return &lease->pinned->snapshot.hashes[first + bucket - lease->map.first[section]];
}

/* --- serving --------------------------------------------------------------------------------- */

static enum rc on_manifest_req(struct lease *lease, uint32_t page, uint64_t now_ns,
                               struct outbox *out)
{
    uint8_t hashes[MANIFEST_HASHES_MAX * DIGEST_BYTES];
    struct message message = {.type = MESSAGE_MANIFEST_PAGE};
    uint32_t buckets = bucket_map_count(&lease->map), count = 0;
    uint64_t first = (uint64_t)page * MANIFEST_HASHES_MAX;

    if (first >= buckets) return RC_FORMAT;
    if (page >= lease->pages) {
        lease->pages = page + 1;
        donor_lease_moved(lease, now_ns);
    }
    while (count < MANIFEST_HASHES_MAX && first + count < buckets) {
        memcpy(hashes + count * DIGEST_BYTES,
               donor_lease_hash(lease, (uint32_t)first + count)->bytes, DIGEST_BYTES);
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
    while (lease->runs_count == DONOR_RUNS_MAX || count > QUEUE_BUCKETS_MAX - lease->queued) {
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

    if (lease_named(message, &number) != RC_OK) return RC_UNSUPPORTED;
    donor_tick(donor, now_ns);
    lease = donor_lease_of(donor, from);
    if (lease == NULL || lease->state != LEASE_OPEN || number != lease->number) {
        if (message->type != MESSAGE_STATE_DONE && lease == NULL)
            donor_deny(from, REJECT_STALE, out);
        return RC_STALE;
    }
    if (message->type == MESSAGE_STATE_DONE) {
        donor_lease_end(lease);
        return RC_OK;
    }
    if (message->type == MESSAGE_MANIFEST_REQ) {
        return on_manifest_req(lease, message->as.manifest_req.page, now_ns, out);
    }
    return on_bucket_req(lease, message->as.bucket_req.index, message->as.bucket_req.count);
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
    donor->burst = burst_bytes > DONOR_BUCKET_BYTES ? burst_bytes : DONOR_BUCKET_BYTES;
}

/* What a bucket travels as. */
static const uint8_t *bucket_bytes(const struct lease *lease, uint32_t bucket, size_t *count)
{
    struct bucket_span span = bucket_map_span(&lease->map, bucket);
    const struct donor_snapshot *snapshot = &lease->pinned->snapshot;
    uint32_t section = lease->sections[span.section];

    if (snapshot->changes[section] != NULL) {
        *count = codec_bytes(CODEC_INT8, span.count);
        return snapshot->changes[section] + span.offset / CHUNK_VALUES * donor_change_bytes();
    }
    *count = span.count * sizeof(float);
    return (const uint8_t *)(snapshot->values[section] + span.offset);
}

bool donor_next_bucket(struct donor *donor, struct peer_id to, uint64_t now_ns, uint16_t *stream,
                       uint32_t *bucket, const uint8_t **bytes, size_t *count)
{
    struct lease *lease = donor_lease_of(donor, to);

    if (lease == NULL || lease->state != LEASE_OPEN || lease->queued == 0) return false;
    earn(donor, now_ns);
    if (donor->pace > 0 && donor->tokens < DONOR_BUCKET_BYTES) return false;
    *stream = (uint16_t)lease->number;
    *bucket = lease->runs[0].index;
    *bytes = bucket_bytes(lease, *bucket, count);
    if (donor->pace > 0) donor->tokens -= *count;
    if ((lease->is_sent[*bucket / 8] & 1U << *bucket % 8) == 0) {
        lease->is_sent[*bucket / 8] |= (uint8_t)(1U << *bucket % 8);
        lease->sent++;
        donor_lease_moved(lease, now_ns);
    }
    lease->queued--;
    lease->runs[0].index++;
    if (--lease->runs[0].count == 0) drop_first_run(lease);
    return true;
}

uint64_t donor_next_ns(const struct donor *donor)
{
    uint64_t next_ns = UINT64_MAX;
    uint32_t queued = 0;

    for (uint32_t i = 0; i < DONOR_LEASES_MAX && donor->has_leases; i++) {
        const struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && lease->until_ns < next_ns) next_ns = lease->until_ns;
        queued += lease->queued;
    }
    if (queued > 0 && donor->pace > 0 && donor->tokens < DONOR_BUCKET_BYTES) {
        uint64_t wait_ns = (uint64_t)((double)(DONOR_BUCKET_BYTES - donor->tokens) *
                                      (double)NS_PER_S / (double)donor->pace) +
                           1;

        if (donor->tokens_ns + wait_ns < next_ns) next_ns = donor->tokens_ns + wait_ns;
    }
    return next_ns;
}

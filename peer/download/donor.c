/*
 * The giving side of a model download. A lease pins a snapshot for one joiner; leases share
 * snapshots, of which there are two at most. Everything a joiner can ask for is bounded: a run
 * outside its lease's buckets is refused, and of a longer queue than a window would ever make the
 * oldest is forgotten: a joiner whose listing changed has asked anew for what it wants. A lease
 * ends when its joiner says that it is done, DONOR_LEASE_MS after the last page or bucket that it
 * had not been sent before, and in any case when the slowest download worth the name would be over.
 *
 *   free --STATE_REQ--> WAITING --snapshot--> OPEN --STATE_DONE, time, put out--> free
 *                          '--fresh snapshot there--^ |
 *                                  ^--STATE_REQ-- LEFT <--link lost
 *
 * LEFT: the snapshot stays for a minute, and whoever comes back goes on where it was. A newcomer
 * for whom there is no place, or no snapshot, puts the least advanced out of those that stand still
 * or have had their fair time, which counts for each joiner, not for each lease: so nobody pins
 * both snapshots by asking again.
 *
 * A joiner that has become slow asks for the change since its lease's snapshot: a WAITING lease
 * then keeps the old snapshot as its base until the new one is there.
 *
 * Loop thread.
 */
#include "peer/download/donor_internal.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/signed/manifest.h"
#include "peer/times.h"

struct donor *donor_create(const struct schema *schema, const struct identity *identity,
                           struct digest run_id)
{
    struct donor *donor = mem_alloc(sizeof(*donor));

    if (donor == NULL) return NULL;
    donor->schema = schema_digest(schema);
    donor->identity = identity;
    donor->run_id = run_id;
    donor->tokens = DONOR_BURST_BYTES;
    return donor;
}

void donor_set_methods(struct donor *donor, struct digest moments, struct digest rule)
{
    donor->moments = moments;
    donor->rule = rule;
}

void donor_destroy(struct donor *donor)
{
    if (donor == NULL) return;
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        mem_free(donor->leases[i].is_sent);
    }
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

void donor_lease_end(struct lease *lease)
{
    if (lease->pinned != NULL) unpin(lease->pinned);
    mem_free(lease->is_sent);
    *lease = (struct lease){.state = LEASE_FREE};
}

void donor_lease_moved(struct lease *lease, uint64_t now_ns)
{
    lease->moved_ns = now_ns;
    lease->until_ns =
        now_ns + DONOR_LEASE_NS < lease->ends_ns ? now_ns + DONOR_LEASE_NS : lease->ends_ns;
}

struct lease *donor_lease_of(struct donor *donor, struct peer_id to)
{
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && peer_id_is_equal(lease->to, to)) return lease;
    }
    return NULL;
}

void donor_deny(struct peer_id to, enum reject_code code, struct outbox *out)
{
    struct message message = {.type = MESSAGE_STATE_DENY};

    message.as.state_deny.code = code;
    message.as.state_deny.retry_ms = DONOR_RETRY_MS;
    outbox_add(out, to, &message);
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
    manifest->updates = snapshot->updates;
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
        hash_update(&root, donor_lease_hash(lease, i)->bytes, DIGEST_BYTES);
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
    if (bucket_map_init(&lease->map, values, count)) {
        lease->is_sent = mem_array(donor_lease_buckets(lease) / 8 + 1, 1);
    }
    if (lease->is_sent == NULL) { /* no memory, or none of what it wants is in there */
        donor_deny(lease->to, REJECT_BUSY, out);
        donor_lease_end(lease);
        return;
    }
    pinned->leases++;
    if (lease->pinned != NULL) unpin(lease->pinned);
    lease->state = LEASE_OPEN;
    lease->pinned = pinned;
    lease->ends_ns = now_ns + DONOR_LIFE_NS + 8 * NS_PER_S * donor_lease_buckets(lease);
    donor_lease_moved(lease, now_ns);
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
    mem_free(lease->is_sent);
    *lease = (struct lease){.state = LEASE_WAITING,
                            .to = lease->to,
                            .number = ++donor->lease_number,
                            .want = lease->want,
                            .asked_ns = now_ns,
                            .first_ns = lease->first_ns,
                            .moved_ns = now_ns,
                            .pinned = lease->pinned,
                            .until_ns = now_ns + DONOR_LEASE_NS};
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
    *pinned = young_snapshot(donor, round, DONOR_SHARED_NS, now_ns);
    if (*pinned != NULL || is_anyone_waiting(donor)) return RC_OK;
    if (old != NULL && old->pinned != NULL && old->pinned->leases == 1) return RC_OK; /* its own */
    if (room(donor) > (donor->is_taking ? 1U : 0U)) return RC_OK;
    *pinned = young_snapshot(donor, 0, DONOR_CROWD_NS, now_ns);
    return *pinned != NULL ? RC_OK : RC_BUSY;
}

/* ---- who makes way ---- */

/* When it came first, of late. */
static uint64_t guest_first_ns(struct donor *donor, struct peer_id id, uint64_t now_ns)
{
    struct guest *guest = &donor->guests[0];

    for (uint32_t i = 0; i < DONOR_GUESTS_MAX; i++) {
        struct guest *other = &donor->guests[i];

        if (peer_id_is_equal(other->id, id) && other->last_ns != 0) {
            guest = other;
            break;
        }
        if (other->last_ns < guest->last_ns) guest = other;
    }
    if (!peer_id_is_equal(guest->id, id) || guest->last_ns == 0 ||
        now_ns >= guest->last_ns + DONOR_GUEST_NS) {
        *guest = (struct guest){.id = id, .first_ns = now_ns};
    }
    guest->last_ns = now_ns;
    return guest->first_ns;
}

static bool makes_way(const struct lease *lease, uint64_t now_ns)
{
    uint64_t fair_ns = DONOR_FAIR_NS;

    if (lease->state == LEASE_FREE) return false;
    if (lease->is_visitor) return true;
    if (lease->state != LEASE_WAITING) fair_ns += NS_PER_S * donor_lease_buckets(lease);
    return now_ns >= lease->moved_ns + DONOR_STILL_NS || now_ns >= lease->first_ns + fair_ns;
}

static double share_sent(const struct lease *lease)
{
    return lease->state == LEASE_WAITING ? 0 : (double)lease->sent / donor_lease_buckets(lease);
}

static void put_out(struct lease *lease, struct outbox *out)
{
    if (lease->state != LEASE_LEFT) donor_deny(lease->to, REJECT_STALE, out);
    donor_lease_end(lease);
}

/* The least advanced of those that make way, for another joiner; NULL: none does. */
static struct lease *make_place(struct donor *donor, uint64_t now_ns, struct outbox *out)
{
    struct lease *least = NULL;

    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *lease = &donor->leases[i];

        if (!makes_way(lease, now_ns)) continue;
        if (least == NULL || share_sent(lease) < share_sent(least)) least = lease;
    }
    if (least != NULL) put_out(least, out);
    return least;
}

/* How far the most advanced of its joiners is; false: not all of them make way. */
static bool pinned_share(const struct donor *donor, const struct pinned *pinned, uint64_t now_ns,
                         double *share)
{
    *share = 0;
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        const struct lease *lease = &donor->leases[i];

        if (lease->pinned != pinned) continue;
        if (!makes_way(lease, now_ns)) return false;
        if (share_sent(lease) > *share) *share = share_sent(lease);
    }
    return pinned != donor->taking_base;
}

/* The same of snapshots. */
static bool make_room(struct donor *donor, uint64_t now_ns, struct outbox *out)
{
    struct pinned *least = NULL;
    double least_share = 2, share;

    for (uint32_t i = 0; i < DONOR_SNAPSHOTS_MAX; i++) {
        struct pinned *pinned = &donor->pinned[i];

        if (!pinned_share(donor, pinned, now_ns, &share) || share >= least_share) continue;
        least = pinned;
        least_share = share;
    }
    for (uint32_t i = 0; i < DONOR_LEASES_MAX && least != NULL; i++) {
        if (donor->leases[i].pinned == least) put_out(&donor->leases[i], out);
    }
    return least != NULL;
}

/* It was cut off half-way, and is back: what it has is still of use. */
static bool goes_on(const struct lease *lease, const struct message_state_req *request)
{
    return lease != NULL && lease->state == LEASE_LEFT && lease->want == request->want &&
           (request->round == 0 || is_of_round(&lease->pinned->snapshot, request->round) ||
            lease->sent > donor_lease_buckets(lease) / 32);
}

static struct lease lease_for(struct donor *donor, struct peer_id to,
                              const struct message_state_req *request, uint64_t now_ns)
{
    return (struct lease){.state = LEASE_WAITING,
                          .to = to,
                          .number = ++donor->lease_number,
                          .want = request->want,
                          .round = request->round,
                          .asked_ns = now_ns,
                          .first_ns = now_ns,
                          .moved_ns = now_ns,
                          .until_ns = now_ns + DONOR_LEASE_NS};
}

static void replace_lease(struct donor *donor, struct lease *lease, const struct lease *by,
                          struct pinned *pinned, uint64_t now_ns, struct outbox *out)
{
    if (pinned != NULL) pinned->leases++; /* not to lose it with the lease that is replaced */
    donor_lease_end(lease);
    *lease = *by;
    if (pinned == NULL) return;
    lease_open(donor, lease, pinned, now_ns, out);
    unpin(pinned);
}

enum rc donor_on_request(struct donor *donor, struct peer_id from,
                         const struct message_state_req *request, uint64_t now_ns,
                         struct outbox *out)
{
    struct lease *lease = NULL, wanted;
    struct pinned *pinned;
    enum rc rc;

    donor_tick(donor, now_ns);
    if ((request->want & 1) == 0) return RC_FORMAT;
    lease = donor_lease_of(donor, from);
    if (request->base != 0) {
        rc = request_change(donor, lease, request, now_ns);
        if (rc != RC_OK) donor_deny(from, REJECT_STALE, out);
        return rc;
    }
    if (goes_on(lease, request)) {
        lease->state = LEASE_OPEN;
        lease->number = ++donor->lease_number;
        lease->pages = 0;
        donor_lease_moved(lease, now_ns);
        send_manifest(donor, lease, out);
        return RC_OK;
    }
    donor->has_leases = true;
    for (uint32_t i = 0; i < DONOR_LEASES_MAX && lease == NULL; i++) {
        if (donor->leases[i].state == LEASE_FREE) lease = &donor->leases[i];
    }
    if (lease == NULL) lease = make_place(donor, now_ns, out);
    rc = lease == NULL ? RC_BUSY : find_snapshot(donor, lease, request->round, now_ns, &pinned);
    if (lease != NULL && rc != RC_OK && make_room(donor, now_ns, out)) {
        rc = find_snapshot(donor, lease, request->round, now_ns, &pinned);
    }
    if (rc != RC_OK) {
        donor_deny(from, REJECT_BUSY, out);
        return RC_BUSY;
    }
    wanted = lease_for(donor, from, request, now_ns);
    wanted.first_ns = guest_first_ns(donor, from, now_ns);
    replace_lease(donor, lease, &wanted, pinned, now_ns, out);
    return RC_OK;
}

enum rc donor_on_visit(struct donor *donor, struct peer_id from,
                       const struct message_state_req *request, uint64_t now_ns, struct outbox *out)
{
    struct lease *lease, wanted;
    struct pinned *pinned;
    uint32_t others = 0;

    donor_tick(donor, now_ns);
    if ((request->want & 1) == 0 || request->base != 0) return RC_FORMAT;
    lease = donor_lease_of(donor, from);
    for (uint32_t i = 0; i < DONOR_LEASES_MAX; i++) {
        struct lease *other = &donor->leases[i];

        if (lease == NULL && other->state == LEASE_FREE) lease = other;
        others += other != lease && other->is_visitor;
    }
    if (lease == NULL || others >= DONOR_VISITORS_MAX ||
        find_snapshot(donor, lease, request->round, now_ns, &pinned) != RC_OK) {
        donor_deny(from, REJECT_BUSY, out);
        return RC_BUSY;
    }
    donor->has_leases = true;
    wanted = lease_for(donor, from, request, now_ns);
    wanted.is_visitor = true;
    replace_lease(donor, lease, &wanted, pinned, now_ns, out);
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
            donor_deny(lease->to, REJECT_BUSY, out);
            donor_lease_end(lease);
            continue;
        }
        lease_open(donor, lease, pinned, now_ns, out);
    }
    if (pinned != NULL && pinned->leases == 0) donor_snapshot_deinit(&pinned->snapshot);
    if (donor->taking_base != NULL) unpin(donor->taking_base);
    donor->taking_base = NULL;
    donor_snapshot_deinit(snapshot); /* empty if it was taken */
}

void donor_on_link_lost(struct donor *donor, struct peer_id peer, uint64_t now_ns)
{
    struct lease *lease = donor_lease_of(donor, peer);

    if (lease == NULL) return;
    if (lease->state != LEASE_OPEN || lease->sent == 0 || lease->is_visitor) {
        donor_lease_end(lease);
        return;
    }
    lease->state = LEASE_LEFT;
    lease->runs_count = lease->queued = 0;
    if (lease->until_ns > now_ns + DONOR_LEFT_NS) lease->until_ns = now_ns + DONOR_LEFT_NS;
}

void donor_tick(struct donor *donor, uint64_t now_ns)
{
    bool has_leases = false;

    for (uint32_t i = 0; i < DONOR_LEASES_MAX && donor->has_leases; i++) {
        struct lease *lease = &donor->leases[i];

        if (lease->state != LEASE_FREE && now_ns >= lease->until_ns) donor_lease_end(lease);
        has_leases |= lease->state != LEASE_FREE;
    }
    donor->has_leases = has_leases;
}

bool donor_owes(const struct donor *donor, uint32_t lease, struct peer_id *to)
{
    CHECK(lease < DONOR_LEASES_MAX);
    *to = donor->leases[lease].to;
    return donor->leases[lease].state == LEASE_OPEN && donor->leases[lease].queued > 0;
}

uint32_t donor_leases(const struct donor *donor)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < DONOR_LEASES_MAX && donor->has_leases; i++) {
        count += donor->leases[i].state != LEASE_FREE;
    }
    return count;
}

/*
 * message_examples: one message of each type with a different value in every member, and random
 * ones. What they borrow lives in the caller's `struct example_bytes`.
 */
#ifndef GRAPEVINE_TESTS_UNIT_GOSSIP_MESSAGE_EXAMPLES_H
#define GRAPEVINE_TESTS_UNIT_GOSSIP_MESSAGE_EXAMPLES_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "gossip/wire/messages.h"

static const enum message_type example_types[] = {
    MESSAGE_HELLO_OK,      MESSAGE_ERROR,       MESSAGE_GOAWAY,         MESSAGE_FIN,
    MESSAGE_PING,          MESSAGE_ACK,         MESSAGE_PING_REQ,       MESSAGE_NACK,
    MESSAGE_GOSSIP,        MESSAGE_SYNC_REQ,    MESSAGE_SYNC,           MESSAGE_ACCUSE,
    MESSAGE_PRUNE,         MESSAGE_PROGRESS,    MESSAGE_DIALBACK_REQ,   MESSAGE_DIALBACK,
    MESSAGE_RELAY_RESERVE, MESSAGE_RELAY_LEASE, MESSAGE_RELAY_CONNECT,  MESSAGE_RELAY_WINDOW,
    MESSAGE_RELAY_STOP,    MESSAGE_OFFER,       MESSAGE_ACCEPT,         MESSAGE_REJECT,
    MESSAGE_READY,         MESSAGE_COMMIT,      MESSAGE_ABORT,          MESSAGE_OUTCOME_REQ,
    MESSAGE_OUTCOME,       MESSAGE_FORM,        MESSAGE_JOIN,           MESSAGE_START,
    MESSAGE_EDGE_OPEN,     MESSAGE_MIRROR,      MESSAGE_MEAN,           MESSAGE_CREDIT,
    MESSAGE_CANCEL,        MESSAGE_STATE_REQ,   MESSAGE_STATE_MANIFEST, MESSAGE_MANIFEST_REQ,
    MESSAGE_MANIFEST_PAGE, MESSAGE_BUCKET_REQ,  MESSAGE_STATE_DENY,     MESSAGE_SKETCH_REQ,
    MESSAGE_SKETCH,        MESSAGE_STATE_DONE,  MESSAGE_STATUS_REQ,     MESSAGE_STATUS,
    MESSAGE_REKEY,         MESSAGE_REKEY_ACK,   MESSAGE_OPEN_REQ,       MESSAGE_SHARE,
    MESSAGE_SHARE_ACK,     MESSAGE_APPLIED_REQ, MESSAGE_APPLIED,        MESSAGE_OUTCOME_ASK,
    MESSAGE_OUTCOME_TOLD,  MESSAGE_SCORE,       MESSAGE_CLAIM,          MESSAGE_REVEAL_REQ,
    MESSAGE_REVEAL,        MESSAGE_PROBE,       MESSAGE_PREDICTIONS};

struct example_bytes {
    uint8_t measured[MEASURED_BYTES_MAX];
    uint8_t records[SYNC_RECORDS_MAX][SIGNED_RECORD_BYTES_MAX];
    uint8_t blob[CHUNKS_MAX / 8], norms[SKETCH_BYTES], hashes[MANIFEST_HASHES_MAX * DIGEST_BYTES];
    char text[STATUS_BYTES_MAX];
};

/* Where the numbers come from: a seed, or in small steps from 1. */
struct source {
    struct rng rng;
    struct example_bytes *bytes;
    bool is_random;
    uint8_t next;
};

static inline uint64_t any(struct source *s, uint64_t low, uint64_t high)
{
    uint64_t value = s->is_random ? rng_u64(&s->rng) >> rng_below(&s->rng, 64) : s->next++;

    if (high - low == UINT64_MAX) return value;
    return low + value % (high - low + 1);
}

static inline uint32_t any32(struct source *s, uint32_t low, uint32_t high)
{
    return (uint32_t)any(s, low, high);
}

static inline uint32_t few(struct source *s, uint32_t max, uint32_t shown)
{
    return s->is_random ? any32(s, 0, max) : shown;
}

static inline void fill(struct source *s, void *to, size_t count)
{
    uint8_t *bytes = to, step = s->next++;

    for (size_t i = 0; i < count; i++) {
        bytes[i] = s->is_random ? (uint8_t)rng_u64(&s->rng) : step;
    }
}

static inline float fraction(struct source *s, float most)
{
    if (!s->is_random) return most / 4;
    return most * (float)(1.0 - rng_unit(&s->rng));
}

static inline void word(struct source *s, char *to, size_t cap, const char *shown)
{
    size_t count = s->is_random ? rng_below(&s->rng, cap) : strlen(shown);

    memset(to, 0, cap);
    memcpy(to, shown, s->is_random ? 0 : count);
    for (size_t i = 0; s->is_random && i < count; i++) {
        to[i] = (char)(' ' + rng_below(&s->rng, 95));
    }
}

static inline struct round_key round_key_any(struct source *s)
{
    struct round_key key;

    memset(&key, 0, sizeof key);
    fill(s, key.initiator.bytes, PEER_ID_BYTES);
    fill(s, key.boot.bytes, BOOT_ID_BYTES);
    key.counter = any(s, 0, UINT64_MAX);
    return key;
}

static inline uint32_t records_any(struct source *s, struct record_ref *records, uint32_t max)
{
    uint32_t count = few(s, max, 2);

    for (uint32_t i = 0; i < count; i++) {
        records[i].bytes = s->bytes->records[i];
        records[i].bytes_count =
            (uint16_t)(s->is_random ? any32(s, 1, SIGNED_RECORD_BYTES_MAX) : 3);
        fill(s, s->bytes->records[i], records[i].bytes_count);
    }
    return count;
}

static inline void form_any(struct source *s, struct message_form *form)
{
    form->round = any(s, 0, UINT64_MAX);
    form->ballot = any32(s, 0, UINT32_MAX);
    form->members_count = s->is_random ? any32(s, 1, GROUP_MEMBERS_MAX) : 2;
    for (uint32_t i = 0; i < form->members_count; i++) {
        fill(s, form->members[i].id.bytes, PEER_ID_BYTES);
        fill(s, form->members[i].boot.bytes, BOOT_ID_BYTES);
        form->members[i].id.bytes[0] = (uint8_t)i; /* all different */
    }
    fill(s, &form->schema, DIGEST_BYTES);
    fill(s, &form->lineage, DIGEST_BYTES);
    word(s, form->codec, sizeof form->codec, "f16");
    form->chunks = any32(s, 1, CHUNKS_MAX);
    form->deadline_ms = any32(s, 0, UINT32_MAX);
}

static inline void manifest_any(struct source *s, struct message_state_manifest *manifest)
{
    manifest->lease = any32(s, 0, UINT32_MAX);
    manifest->step = any(s, 0, UINT64_MAX);
    manifest->samples = any(s, 0, UINT64_MAX);
    manifest->round = any(s, 0, UINT64_MAX);
    fill(s, &manifest->schema, DIGEST_BYTES);
    fill(s, &manifest->lineage, DIGEST_BYTES);
    fill(s, &manifest->root, DIGEST_BYTES);
    manifest->sections_count = few(s, STATE_SECTIONS_MAX, 2);
    for (uint32_t i = 0; i < manifest->sections_count && i < STATE_SECTIONS_MAX; i++) {
        manifest->sections[i] = (uint8_t)(STATE_SECTIONS_MAX - 1 - i);
        manifest->values[i] = any(s, 0, (uint64_t)CHUNKS_MAX * CHUNK_VALUES);
    }
    manifest->lease_ms = any32(s, 0, UINT32_MAX);
    manifest->buckets = any32(s, 0, CHUNKS_MAX);
    manifest->pages = (manifest->buckets + MANIFEST_HASHES_MAX - 1) / MANIFEST_HASHES_MAX;
    fill(s, &manifest->moments, DIGEST_BYTES);
    fill(s, &manifest->rule, DIGEST_BYTES);
    manifest->updates = any(s, 0, UINT64_MAX);
}

/* Session and liveness. */
static inline bool example_session(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_HELLO_OK:
    case MESSAGE_FIN:
    case MESSAGE_STATUS_REQ:
        return true;
    case MESSAGE_ERROR:
        m->as.error.code = any32(s, ERROR_DUPLICATE_ID, ERROR_METHOD);
        word(s, m->as.error.text, sizeof m->as.error.text, "another model");
        return true;
    case MESSAGE_GOAWAY:
        m->as.goaway.reason = any32(s, GOAWAY_LEAVING, GOAWAY_FAILED);
        m->as.goaway.retry_ms = any32(s, 0, UINT32_MAX);
        return true;
    case MESSAGE_REKEY:
    case MESSAGE_REKEY_ACK:
        m->as.rekey.epoch = any32(s, 0, UINT32_MAX);
        fill(s, m->as.rekey.key, sizeof m->as.rekey.key);
        return true;
    case MESSAGE_OPEN_REQ:
        m->as.open_req.count = any32(s, 1, BULK_CONNECTIONS_MAX);
        return true;
    case MESSAGE_PING:
    case MESSAGE_ACK:
        m->as.ping.seq = any(s, 0, UINT64_MAX);
        m->as.ping.updates_count = records_any(s, m->as.ping.updates, PING_UPDATES_MAX);
        return true;
    case MESSAGE_PING_REQ:
        m->as.ping_req.seq = any(s, 0, UINT64_MAX);
        fill(s, &m->as.ping_req.target, PEER_ID_BYTES);
        return true;
    case MESSAGE_NACK:
        m->as.nack.seq = any(s, 0, UINT64_MAX);
        return true;
    case MESSAGE_PROGRESS:
        fill(s, &m->as.progress.lineage, DIGEST_BYTES);
        m->as.progress.samples = any(s, 0, UINT64_MAX);
        m->as.progress.step = any(s, 0, UINT64_MAX);
        m->as.progress.round = any(s, 0, UINT64_MAX);
        m->as.progress.is_serving = any(s, 0, 1) != 0;
        m->as.progress.is_done = any(s, 0, 1) != 0;
        m->as.progress.busy = (uint8_t)any32(s, 1, UINT8_MAX);
        m->as.progress.left_ms = any32(s, 1, UINT32_MAX);
        m->as.progress.is_settled = any(s, 0, 1) != 0;
        m->as.progress.measured_samples = any(s, 1, UINT64_MAX);
        m->as.progress.measured = s->bytes->measured;
        m->as.progress.measured_bytes = 8 * few(s, MEASURED_BYTES_MAX / 8, 1);
        fill(s, s->bytes->measured, sizeof s->bytes->measured);
        return true;
    default:
        return false;
    }
}

/* Membership. */
static inline bool example_membership(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_ACCUSE:
        m->as.accuse.accusations = s->bytes->hashes;
        m->as.accuse.accusations_bytes = few(s, ACCUSATIONS_MAX, 1) * ACCUSATION_BYTES;
        fill(s, s->bytes->hashes, m->as.accuse.accusations_bytes);
        return true;
    case MESSAGE_OUTCOME_ASK:
        m->as.outcome_ask.key = round_key_any(s);
        fill(s, &m->as.outcome_ask.participant, PEER_ID_BYTES);
        return true;
    case MESSAGE_OUTCOME_TOLD:
        fill(s, m->as.outcome_told.word, OUTCOME_BYTES);
        return true;
    case MESSAGE_PRUNE:
        m->as.prune.wait_ms = any32(s, 0, UINT32_MAX);
        return true;
    case MESSAGE_GOSSIP:
        m->as.gossip.updates_count = records_any(s, m->as.gossip.updates, GOSSIP_UPDATES_MAX);
        return true;
    case MESSAGE_SYNC_REQ:
        m->as.sync_req.digest = s->bytes->hashes;
        m->as.sync_req.digest_bytes =
            s->is_random ? SYNC_DIGEST_BYTES * any32(s, 0, 1) : SYNC_DIGEST_BYTES;
        fill(s, s->bytes->hashes, m->as.sync_req.digest_bytes);
        m->as.sync_req.page = any32(s, 0, MEMBERS_MAX);
        return true;
    case MESSAGE_SYNC:
        m->as.sync.page = any32(s, 0, 8);
        m->as.sync.pages = any32(s, 9, MEMBERS_MAX);
        m->as.sync.records_count = records_any(s, m->as.sync.records, SYNC_RECORDS_MAX);
        return true;
    default:
        return false;
    }
}

/* Reachability. */
static inline bool example_reach(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_DIALBACK_REQ:
    case MESSAGE_DIALBACK:
        m->as.dialback.nonce = any(s, 1, UINT64_MAX);
        if (m->type == MESSAGE_DIALBACK) {
            m->as.dialback.code = any32(s, DIALBACK_REACHED, DIALBACK_NO_PORT);
        }
        return true;
    case MESSAGE_RELAY_LEASE:
        m->as.relay_lease.code = any32(s, RELAY_GRANTED, RELAY_BROKEN);
        m->as.relay_lease.lease_ms = any32(s, 0, UINT32_MAX);
        return true;
    case MESSAGE_RELAY_CONNECT:
        m->as.relay_connect.circuit = any32(s, 0, UINT32_MAX);
        fill(s, m->as.relay_connect.peer.bytes, PEER_ID_BYTES);
        m->as.relay_connect.is_from_relay = any(s, 0, 1) != 0;
        return true;
    case MESSAGE_RELAY_WINDOW:
        m->as.relay_window.circuit = any32(s, 0, UINT32_MAX);
        m->as.relay_window.bytes = any(s, 0, UINT64_MAX);
        m->as.relay_window.is_from_relay = any(s, 0, 1) != 0;
        return true;
    case MESSAGE_RELAY_STOP:
        m->as.relay_stop.circuit = any32(s, 0, UINT32_MAX);
        m->as.relay_stop.code = any32(s, RELAY_FULL, RELAY_BROKEN);
        m->as.relay_stop.is_from_relay = any(s, 0, 1) != 0;
        return true;
    default:
        return m->type == MESSAGE_RELAY_RESERVE;
    }
}

/* Pair rounds. */
static inline bool example_pair(struct source *s, struct message *m)
{
    if (m->type >= MESSAGE_OFFER && m->type <= MESSAGE_OUTCOME) {
        m->as.outcome_req.key = round_key_any(s); /* the first member of all of them */
    }
    switch (m->type) {
    case MESSAGE_OFFER:
        m->as.offer.step = any(s, 0, UINT64_MAX);
        fill(s, &m->as.offer.schema, DIGEST_BYTES);
        word(s, m->as.offer.codec, sizeof m->as.offer.codec, "f32");
        m->as.offer.chunks = any32(s, 1, CHUNKS_MAX);
        m->as.offer.alpha = fraction(s, 0.5F);
        m->as.offer.deadline_ms = any32(s, 0, UINT32_MAX);
        fill(s, &m->as.offer.lineage, DIGEST_BYTES);
        return true;
    case MESSAGE_ACCEPT:
        m->as.accept.alpha = fraction(s, 0.5F);
        m->as.accept.credit = any32(s, 0, CHUNKS_MAX);
        return true;
    case MESSAGE_REJECT:
        m->as.reject.code = any32(s, REJECT_BUSY, REJECT_CODEC);
        m->as.reject.retry_ms = any32(s, 0, UINT32_MAX);
        return true;
    case MESSAGE_READY:
        m->as.ready.squared = fraction(s, 1e30F);
        return true;
    case MESSAGE_COMMIT:
        return true;
    case MESSAGE_ABORT:
        m->as.abort.code = any32(s, ABORT_DEADLINE, ABORT_PROTOCOL);
        return true;
    case MESSAGE_OUTCOME:
        m->as.outcome.state = any32(s, OUTCOME_UNKNOWN, OUTCOME_ABORTED);
        return true;
    default:
        return m->type == MESSAGE_OUTCOME_REQ;
    }
}

/* Shares, which go one way. */
static inline bool example_push(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_SHARE:
        m->as.share.step = any(s, 0, UINT64_MAX);
        fill(s, &m->as.share.schema, DIGEST_BYTES);
        fill(s, &m->as.share.lineage, DIGEST_BYTES);
        word(s, m->as.share.codec, sizeof m->as.share.codec, "f32");
        m->as.share.chunks = any32(s, 1, CHUNKS_MAX);
        m->as.share.weight = fraction(s, 100);
        return true;
    case MESSAGE_APPLIED:
        m->as.applied.state = any32(s, APPLIED_NO, APPLIED_FORGOTTEN);
        return true;
    case MESSAGE_SHARE_ACK:
    case MESSAGE_APPLIED_REQ:
        return true;
    default:
        return false;
    }
}

/* How models came to be what they are. */
static inline bool example_claims(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_CLAIM:
        m->as.claim.number = any(s, 1, UINT64_MAX);
        fill(s, &m->as.claim.state, DIGEST_BYTES);
        fill(s, &m->as.claim.recipe, DIGEST_BYTES);
        m->as.claim.steps = any32(s, 0, CLAIM_STEPS_MAX);
        m->as.claim.before = any32(s, 0, CLAIM_STEPS_MAX);
        m->as.claim.round = any(s, 0, UINT64_MAX);
        fill(s, &m->as.claim.agreed, DIGEST_BYTES);
        return true;
    case MESSAGE_REVEAL_REQ:
        m->as.reveal_req.number = any(s, 1, UINT64_MAX);
        m->as.reveal_req.at = any(s, 0, UINT64_MAX);
        return true;
    case MESSAGE_REVEAL:
        m->as.reveal.code = any32(s, REVEAL_HERE, REVEAL_BUSY);
        m->as.reveal.number = any(s, 1, UINT64_MAX);
        m->as.reveal.at = any(s, 0, UINT64_MAX);
        m->as.reveal.total = any(s, 0, UINT64_MAX);
        m->as.reveal.bytes = s->bytes->hashes;
        m->as.reveal.bytes_bytes = few(s, sizeof s->bytes->hashes, 4);
        fill(s, s->bytes->hashes, sizeof s->bytes->hashes);
        return true;
    default:
        return false;
    }
}

/* What models say. */
static inline bool example_predictions(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_PROBE:
        m->as.probe.seed = any(s, 0, UINT64_MAX);
        m->as.probe.first = any32(s, 0, UINT32_MAX);
        m->as.probe.count = any32(s, 1, UINT32_MAX);
        fill(s, &m->as.probe.digest, DIGEST_BYTES);
        m->as.probe.at = any32(s, 0, UINT32_MAX);
        m->as.probe.most = any32(s, 1, UINT32_MAX);
        m->as.probe.top = any32(s, 0, UINT32_MAX);
        return true;
    case MESSAGE_PREDICTIONS:
        m->as.predictions.code = any32(s, PREDICTIONS_HERE, PREDICTIONS_LATER);
        m->as.predictions.first = any32(s, 0, UINT32_MAX);
        m->as.predictions.at = any32(s, 0, UINT32_MAX);
        m->as.predictions.count = any32(s, 0, UINT32_MAX);
        m->as.predictions.step = any(s, 0, UINT64_MAX);
        m->as.predictions.wait_ms = any32(s, 0, UINT32_MAX);
        m->as.predictions.values = s->bytes->hashes;
        m->as.predictions.values_bytes = few(s, sizeof s->bytes->hashes, 4);
        fill(s, s->bytes->hashes, sizeof s->bytes->hashes);
        return true;
    default:
        return false;
    }
}

/* State download and status. */
static inline void example_state(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_STATE_REQ:
        m->as.state_req.want = any32(s, 1, 63);
        m->as.state_req.round = any(s, 0, UINT64_MAX);
        m->as.state_req.base = any32(s, 0, UINT32_MAX);
        break;
    case MESSAGE_STATE_MANIFEST:
        manifest_any(s, &m->as.state_manifest);
        break;
    case MESSAGE_MANIFEST_REQ:
        m->as.manifest_req.lease = any32(s, 0, UINT32_MAX);
        m->as.manifest_req.page = any32(s, 0, CHUNKS_MAX / MANIFEST_HASHES_MAX - 1);
        break;
    case MESSAGE_MANIFEST_PAGE:
        m->as.manifest_page.lease = any32(s, 0, UINT32_MAX);
        m->as.manifest_page.page = any32(s, 0, CHUNKS_MAX / MANIFEST_HASHES_MAX - 1);
        m->as.manifest_page.hashes = s->bytes->hashes;
        m->as.manifest_page.hashes_bytes = DIGEST_BYTES * few(s, MANIFEST_HASHES_MAX, 1);
        fill(s, s->bytes->hashes, sizeof s->bytes->hashes);
        break;
    case MESSAGE_BUCKET_REQ:
        m->as.bucket_req.lease = any32(s, 0, UINT32_MAX);
        m->as.bucket_req.index = any32(s, 0, CHUNKS_MAX - 1);
        m->as.bucket_req.count = any32(s, 1, CHUNKS_MAX - m->as.bucket_req.index);
        break;
    case MESSAGE_STATE_DENY:
        m->as.state_deny.code = any32(s, REJECT_BUSY, REJECT_CODEC);
        m->as.state_deny.retry_ms = any32(s, 0, UINT32_MAX);
        break;
    case MESSAGE_SKETCH_REQ:
        m->as.sketch_req.seed = any(s, 0, UINT64_MAX);
        break;
    case MESSAGE_SKETCH:
        m->as.sketch.seed = any(s, 0, UINT64_MAX);
        m->as.sketch.round = any(s, 0, UINT64_MAX);
        m->as.sketch.moved = fraction(s, 100);
        m->as.sketch.moments = fraction(s, 100);
        m->as.sketch.values = s->bytes->norms;
        m->as.sketch.values_bytes = SKETCH_BYTES;
        for (uint32_t i = 0; i < SKETCH_BYTES; i += 4) {
            store_le32(s->bytes->norms + i, 0x3f800000U + i);
        }
        break;
    case MESSAGE_SCORE:
        m->as.score.loss = fraction(s, 100);
        m->as.score.step = any(s, 0, UINT64_MAX);
        fill(s, m->as.score.part.bytes, sizeof m->as.score.part.bytes);
        m->as.score.rate = 1 + fraction(s, 100);
        m->as.score.decay = fraction(s, 100);
        m->as.score.line = any(s, 0, UINT64_MAX);
        break;
    case MESSAGE_STATE_DONE:
        m->as.state_done.lease = any32(s, 0, UINT32_MAX);
        break;
    default:
        CHECK(m->type == MESSAGE_STATUS);
        m->as.status.text = s->bytes->text;
        m->as.status.text_bytes = few(s, STATUS_BYTES_MAX, 2);
        fill(s, s->bytes->text, sizeof s->bytes->text);
        if (!s->is_random) memcpy(s->bytes->text, "{}", 2);
    }
}

/* Rounds of neighbours. */
static inline bool example_edge(struct source *s, struct message *m)
{
    switch (m->type) {
    case MESSAGE_EDGE_OPEN:
        m->as.edge_open.round = any(s, 0, UINT64_MAX);
        m->as.edge_open.weight = fraction(s, 1);
        m->as.edge_open.generation = any(s, 0, UINT64_MAX);
        m->as.edge_open.chunks = any32(s, 1, CHUNKS_MAX);
        fill(s, &m->as.edge_open.schema, DIGEST_BYTES);
        fill(s, &m->as.edge_open.lineage, DIGEST_BYTES);
        word(s, m->as.edge_open.codec, sizeof m->as.edge_open.codec, "f32");
        m->as.edge_open.radius = fraction(s, 1e30F);
        return true;
    case MESSAGE_MIRROR:
        m->as.mirror.round = any(s, 0, UINT64_MAX);
        fill(s, &m->as.mirror.held, DIGEST_BYTES);
        return true;
    default:
        return false;
    }
}

/* Group rounds, flow, and all the others. */
static inline void example_make(struct source *s, enum message_type type, struct message *m)
{
    memset(m, 0, sizeof *m);
    m->type = type;
    if (example_session(s, m) || example_membership(s, m) || example_reach(s, m)) return;
    if (example_pair(s, m) || example_push(s, m) || example_edge(s, m)) return;
    switch (type) {
    case MESSAGE_FORM:
    case MESSAGE_START:
        form_any(s, &m->as.form);
        if (m->type == MESSAGE_START) { /* at least one: none are not written */
            m->as.form.statements = s->bytes->blob;
            m->as.form.statements_bytes =
                STATEMENT_BYTES * (s->is_random ? any32(s, 1, GROUP_MEMBERS_MAX) : 2);
            fill(s, s->bytes->blob, m->as.form.statements_bytes);
            m->as.form.schedule = (uint8_t)any32(s, 1, UINT8_MAX);
        }
        break;
    case MESSAGE_JOIN:
        m->as.join.round = any(s, 0, UINT64_MAX);
        m->as.join.ballot = any32(s, 0, UINT32_MAX);
        m->as.join.samples = any(s, 0, UINT64_MAX);
        m->as.join.rate = any(s, 1, UINT64_MAX);
        m->as.join.only_direct = (uint8_t)any32(s, 1, UINT8_MAX);
        break;
    case MESSAGE_MEAN:
        m->as.mean.stream = any(s, 0, STREAM_MAX);
        m->as.mean.part = any32(s, 0, GROUP_MEMBERS_MAX - 1);
        m->as.mean.contributors = any(s, 0, UINT64_MAX);
        fill(s, &m->as.mean.hash, DIGEST_BYTES);
        m->as.mean.rate = any(s, 1, UINT64_MAX);
        break;
    case MESSAGE_CREDIT:
        m->as.credit.stream = any(s, 0, STREAM_MAX);
        m->as.credit.chunks = any32(s, 1, CHUNKS_MAX);
        fill(s, &m->as.credit.start, DIGEST_BYTES);
        break;
    case MESSAGE_CANCEL:
        m->as.cancel.stream = any(s, 0, STREAM_MAX);
        m->as.cancel.code = any32(s, CANCEL_START, CANCEL_START);
        break;
    default:
        if (!example_predictions(s, m) && !example_claims(s, m)) example_state(s, m);
    }
}

#endif

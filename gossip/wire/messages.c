/*
 * The message set as tables: which key of a message's map is which member of its struct, and in
 * what range. fields_encode.c and fields_decode.c write and read by them; only what ties several
 * members together is code here. Gaps in the keys are numbers kept for what the protocol has
 * planned.
 * Runs on any thread.
 */
#include "gossip/wire/messages.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "gossip/wire/fields.h"

#include <float.h>
#include <math.h>

enum {
    PAGES_MAX = MEMBERS_MAX, /* of SYNC: a page has at least one member */
    MANIFEST_PAGES_MAX = CHUNKS_MAX / MANIFEST_HASHES_MAX,
    WANT_ALL = 63,
    SECTION_KINDS_MAX = 8
};

#define AT(member)   offsetof(struct message, as.member)
#define SIZE(member) ((uint32_t)sizeof(((struct message *)0)->as.member))

#define ROUND(number, member) ROW(number, member, ROUND, .low = 0)
#define STRING(number, member, max)                                                                \
    ROW(number, member, STRING, .count_at = AT(member##_bytes), .bytes = (max))
#define RECORDS(number, member, max)                                                               \
    ROW(number, member, RECORDS, .count_at = AT(member##_count), .high = (max))
#define MEMBERS(number, member)                                                                    \
    ROW(number, member, MEMBERS, .count_at = AT(member##_count), .high = GROUP_MEMBERS_MAX)
#define FLOAT(number, member, to)   ROW(number, member, FLOAT, .most = (to))
#define ABOVE_0(number, member, to) ROW(number, member, FLOAT, .is_above_least = true, .most = (to))

_Static_assert(sizeof(float) == 4, "float32 travels");
_Static_assert(sizeof(struct message) <= UINT16_MAX, "offsets fit a row");

static const struct field error_fields[] = {
    UINT(0, error.code, ERROR_DUPLICATE_ID, ERROR_METHOD),
    TEXT(1, error.text),
};
static const struct field goaway_fields[] = {
    UINT(0, goaway.reason, GOAWAY_LEAVING, GOAWAY_FAILED),
    ANY(1, goaway.retry_ms),
};
static const struct field rekey_fields[] = {
    ANY(0, rekey.epoch),
    FIXED(1, rekey.key),
};
static const struct field ping_fields[] = {
    ANY(0, ping.seq),
    RECORDS(2, ping.updates, PING_UPDATES_MAX),
};
static const struct field gossip_fields[] = {
    RECORDS(0, gossip.updates, GOSSIP_UPDATES_MAX),
};
static const struct field ping_req_fields[] = {
    ANY(0, ping_req.seq),
    FIXED(1, ping_req.target),
};
static const struct field nack_fields[] = {
    ANY(0, nack.seq),
};
static const struct field accuse_fields[] = {
    BLOB(0, accuse.accusations, ACCUSATIONS_MAX *ACCUSATION_BYTES, ACCUSATION_BYTES, false),
};
static const struct field prune_fields[] = {
    ANY(0, prune.wait_ms),
};
static const struct field sync_req_fields[] = {
    BLOB(0, sync_req.digest, SYNC_DIGEST_BYTES, SYNC_DIGEST_BYTES, false),
    UINT(1, sync_req.page, 0, PAGES_MAX),
};
static const struct field sync_fields[] = {
    UINT(0, sync.page, 0, PAGES_MAX),
    RECORDS(1, sync.records, SYNC_RECORDS_MAX),
    UINT(2, sync.pages, 0, PAGES_MAX),
};
static const struct field progress_fields[] = {
    FIXED(0, progress.lineage),
    ANY(1, progress.samples),
    ANY(2, progress.step),
    ANY(3, progress.round),
    BOOL(4, progress.is_serving),
    BOOL(5, progress.is_done),
    LATER(6, progress.busy),
    LATER(7, progress.left_ms),
    BOOL(8, progress.is_settled),
    LATER(9, progress.measured_samples),
    BLOB(10, progress.measured, MEASURED_BYTES_MAX, 8, true),
};
static const struct field score_fields[] = {
    FLOAT(0, score.loss, FLT_MAX),  ANY(1, score.step),
    FIXED(2, score.part),           ABOVE_0(3, score.rate, FLT_MAX),
    FLOAT(4, score.decay, FLT_MAX), ANY(5, score.line),
};
static const struct field dialback_req_fields[] = {
    UINT(0, dialback.nonce, 1, UINT64_MAX),
};
static const struct field dialback_fields[] = {
    UINT(0, dialback.nonce, 1, UINT64_MAX),
    UINT(1, dialback.code, DIALBACK_REACHED, DIALBACK_NO_PORT),
};
static const struct field relay_lease_fields[] = {
    UINT(0, relay_lease.code, RELAY_GRANTED, RELAY_BROKEN),
    ANY(1, relay_lease.lease_ms),
};
static const struct field relay_connect_fields[] = {
    ANY(0, relay_connect.circuit),
    FIXED(1, relay_connect.peer),
    BOOL(2, relay_connect.is_from_relay),
};
static const struct field relay_window_fields[] = {
    ANY(0, relay_window.circuit),
    ANY(1, relay_window.bytes),
    BOOL(2, relay_window.is_from_relay),
};
static const struct field relay_stop_fields[] = {
    ANY(0, relay_stop.circuit),
    UINT(1, relay_stop.code, RELAY_FULL, RELAY_BROKEN),
    BOOL(2, relay_stop.is_from_relay),
};
static const struct field offer_fields[] = {
    ROUND(0, offer.key),
    ANY(1, offer.step),
    FIXED(2, offer.schema),
    TEXT(3, offer.codec),
    UINT(4, offer.chunks, 1, CHUNKS_MAX),
    ABOVE_0(5, offer.alpha, 0.5F),
    ANY(6, offer.deadline_ms),
    FIXED(7, offer.lineage),
};
static const struct field accept_fields[] = {
    ROUND(0, accept.key),
    ABOVE_0(1, accept.alpha, 0.5F),
    UINT(2, accept.credit, 0, CHUNKS_MAX),
};
static const struct field reject_fields[] = {
    ROUND(0, reject.key),
    UINT(1, reject.code, REJECT_BUSY, REJECT_CODEC),
    ANY(2, reject.retry_ms),
};
static const struct field ready_fields[] = {
    ROUND(0, ready.key),
    FLOAT(1, ready.squared, FLT_MAX),
};
static const struct field abort_fields[] = {
    ROUND(0, abort.key),
    UINT(1, abort.code, ABORT_DEADLINE, ABORT_FAR),
};
static const struct field outcome_req_fields[] = {
    ROUND(0, outcome_req.key),
};
static const struct field outcome_fields[] = {
    ROUND(0, outcome.key),
    UINT(1, outcome.state, OUTCOME_UNKNOWN, OUTCOME_ABORTED),
};
static const struct field share_fields[] = {
    ROUND(0, share.key),
    ANY(1, share.step),
    FIXED(2, share.schema),
    FIXED(3, share.lineage),
    TEXT(4, share.codec),
    UINT(5, share.chunks, 1, CHUNKS_MAX),
    ABOVE_0(6, share.weight, FLT_MAX),
};
static const struct field applied_fields[] = {
    ROUND(0, applied.key),
    UINT(1, applied.state, APPLIED_NO, APPLIED_FORGOTTEN),
};
static const struct field outcome_ask_fields[] = {
    ROUND(0, outcome_ask.key),
    FIXED(1, outcome_ask.participant),
};
static const struct field outcome_told_fields[] = {
    FIXED(0, outcome_told.word),
};
static const struct field form_fields[] = {
    ANY(0, form.round),
    ANY(1, form.ballot),
    MEMBERS(2, form.members),
    FIXED(3, form.schema),
    FIXED(4, form.lineage),
    TEXT(5, form.codec),
    UINT(6, form.chunks, 1, CHUNKS_MAX),
    ANY(7, form.deadline_ms),
    LATER(10, form.schedule),
    BLOB(11, form.statements, GROUP_MEMBERS_MAX *STATEMENT_BYTES, STATEMENT_BYTES, true),
};
static const struct field join_fields[] = {
    ANY(0, join.round),  ANY(1, join.ballot),        ANY(2, join.samples),
    LATER(3, join.rate), LATER(4, join.only_direct),
};
static const struct field mean_fields[] = {
    UINT(0, mean.stream, 0, STREAM_MAX),
    UINT(1, mean.part, 0, GROUP_MEMBERS_MAX - 1),
    ANY(2, mean.contributors),
    FIXED(3, mean.hash),
    LATER(4, mean.rate),
};
static const struct field edge_open_fields[] = {
    ANY(0, edge_open.round),      ABOVE_0(1, edge_open.weight, 1),
    ANY(2, edge_open.generation), UINT(3, edge_open.chunks, 1, CHUNKS_MAX),
    FIXED(4, edge_open.schema),   FIXED(5, edge_open.lineage),
    TEXT(6, edge_open.codec),     FLOAT(7, edge_open.radius, FLT_MAX),
};
static const struct field mirror_fields[] = {
    ANY(0, mirror.round),
    FIXED(1, mirror.held),
};
static const struct field credit_fields[] = {
    UINT(0, credit.stream, 0, STREAM_MAX),
    UINT(1, credit.chunks, 0, CHUNKS_MAX),
    ROW(2, credit.start, FIXED, .bytes = SIZE(credit.start), .is_optional = true),
};
static const struct field cancel_fields[] = {
    UINT(0, cancel.stream, 0, STREAM_MAX),
    UINT(1, cancel.code, CANCEL_START, CANCEL_START),
};
static const struct field open_req_fields[] = {
    UINT(0, open_req.count, 1, BULK_CONNECTIONS_MAX),
};
static const struct field state_req_fields[] = {
    UINT(0, state_req.want, 1, WANT_ALL),
    ANY(1, state_req.round),
    ANY(2, state_req.base),
};
static const struct field state_manifest_fields[] = {
    ANY(0, state_manifest.step),
    FIXED(1, state_manifest.schema),
    ROW(2, state_manifest.sections, SECTIONS, .second_at = AT(state_manifest.values),
        .count_at = AT(state_manifest.sections_count), .high = STATE_SECTIONS_MAX),
    FIXED(3, state_manifest.root),
    ANY(4, state_manifest.lease_ms),
    UINT(5, state_manifest.pages, 0, MANIFEST_PAGES_MAX),
    FIXED(6, state_manifest.proof),
    ANY(7, state_manifest.lease),
    ANY(8, state_manifest.samples),
    ANY(9, state_manifest.round),
    FIXED(10, state_manifest.lineage),
    UINT(11, state_manifest.buckets, 0, CHUNKS_MAX),
    FIXED(12, state_manifest.moments),
    FIXED(13, state_manifest.rule),
    ANY(14, state_manifest.updates),
};
static const struct field manifest_req_fields[] = {
    UINT(0, manifest_req.page, 0, MANIFEST_PAGES_MAX - 1),
    ANY(1, manifest_req.lease),
};
static const struct field manifest_page_fields[] = {
    UINT(0, manifest_page.page, 0, MANIFEST_PAGES_MAX - 1),
    BLOB(1, manifest_page.hashes, MANIFEST_HASHES_MAX *DIGEST_BYTES, DIGEST_BYTES, false),
    ANY(2, manifest_page.lease),
};
static const struct field bucket_req_fields[] = {
    UINT(0, bucket_req.index, 0, CHUNKS_MAX - 1),
    UINT(2, bucket_req.count, 1, CHUNKS_MAX),
    ANY(3, bucket_req.lease),
};
static const struct field state_deny_fields[] = {
    UINT(0, state_deny.code, REJECT_BUSY, REJECT_CLOSED),
    ANY(1, state_deny.retry_ms),
};
static const struct field sketch_req_fields[] = {
    ANY(0, sketch_req.seed),
};
static const struct field sketch_fields[] = {
    BLOB(0, sketch.values, SKETCH_BYTES, SKETCH_BYTES, false),
    ANY(1, sketch.seed),
    ANY(2, sketch.round),
    FLOAT(3, sketch.moved, FLT_MAX),
    FLOAT(4, sketch.moments, FLT_MAX),
};
static const struct field claim_fields[] = {
    UINT(0, claim.number, 1, UINT64_MAX),
    FIXED(1, claim.state),
    FIXED(2, claim.recipe),
    UINT(3, claim.steps, 0, CLAIM_STEPS_MAX),
    UINT(4, claim.before, 0, CLAIM_STEPS_MAX),
    ANY(5, claim.round),
    FIXED(6, claim.agreed),
};
static const struct field reveal_req_fields[] = {
    UINT(0, reveal_req.number, 1, UINT64_MAX),
    ANY(1, reveal_req.at),
};
static const struct field reveal_fields[] = {
    UINT(0, reveal.code, REVEAL_HERE, REVEAL_BUSY),
    UINT(1, reveal.number, 1, UINT64_MAX),
    ANY(2, reveal.at),
    ANY(3, reveal.total),
    BLOB(4, reveal.bytes, REVEAL_BYTES_MAX, 1, true),
};
static const struct field state_done_fields[] = {
    ANY(0, state_done.lease),
};
static const struct field status_fields[] = {
    STRING(0, status.text, STATUS_BYTES_MAX),
};

static const struct field probe_fields[] = {
    ANY(0, probe.seed),     ANY(1, probe.first), UINT(2, probe.count, 1, UINT32_MAX),
    FIXED(3, probe.digest), ANY(4, probe.at),    UINT(5, probe.most, 1, UINT32_MAX),
    ANY(6, probe.top),
};
static const struct field predictions_fields[] = {
    UINT(0, predictions.code, PREDICTIONS_HERE, PREDICTIONS_LATER),
    ANY(1, predictions.first),
    ANY(2, predictions.at),
    ANY(3, predictions.count),
    ANY(4, predictions.step),
    BLOB(5, predictions.values, PREDICTIONS_BYTES_MAX, 1, true),
    ANY(6, predictions.wait_ms),
};

/* One message type. */
struct shape {
    const char *name;
    const struct field *fields;
    size_t fields_count;
};

#define SHAPE(text, table)                                                                         \
    {                                                                                              \
        (text), (table), ARRAY_COUNT(table)                                                        \
    }

static const struct shape shapes[MESSAGE_DATA + 1] = {
    [MESSAGE_HELLO_OK] = {"HELLO_OK", NULL, 0},
    [MESSAGE_ERROR] = SHAPE("ERROR", error_fields),
    [MESSAGE_GOAWAY] = SHAPE("GOAWAY", goaway_fields),
    [MESSAGE_REKEY] = SHAPE("REKEY", rekey_fields),
    [MESSAGE_REKEY_ACK] = SHAPE("REKEY_ACK", rekey_fields),
    [MESSAGE_FIN] = {"FIN", NULL, 0},
    [MESSAGE_PING] = SHAPE("PING", ping_fields),
    [MESSAGE_ACK] = SHAPE("ACK", ping_fields),
    [MESSAGE_PING_REQ] = SHAPE("PING_REQ", ping_req_fields),
    [MESSAGE_NACK] = SHAPE("NACK", nack_fields),
    [MESSAGE_GOSSIP] = SHAPE("GOSSIP", gossip_fields),
    [MESSAGE_SYNC_REQ] = SHAPE("SYNC_REQ", sync_req_fields),
    [MESSAGE_SYNC] = SHAPE("SYNC", sync_fields),
    [MESSAGE_ACCUSE] = SHAPE("ACCUSE", accuse_fields),
    [MESSAGE_PRUNE] = SHAPE("PRUNE", prune_fields),
    [MESSAGE_PROGRESS] = SHAPE("PROGRESS", progress_fields),
    [MESSAGE_OUTCOME_ASK] = SHAPE("OUTCOME_ASK", outcome_ask_fields),
    [MESSAGE_OUTCOME_TOLD] = SHAPE("OUTCOME_TOLD", outcome_told_fields),
    [MESSAGE_DIALBACK_REQ] = SHAPE("DIALBACK_REQ", dialback_req_fields),
    [MESSAGE_DIALBACK] = SHAPE("DIALBACK", dialback_fields),
    [MESSAGE_RELAY_RESERVE] = {"RELAY_RESERVE", NULL, 0},
    [MESSAGE_RELAY_LEASE] = SHAPE("RELAY_LEASE", relay_lease_fields),
    [MESSAGE_RELAY_CONNECT] = SHAPE("RELAY_CONNECT", relay_connect_fields),
    [MESSAGE_RELAY_WINDOW] = SHAPE("RELAY_WINDOW", relay_window_fields),
    [MESSAGE_RELAY_STOP] = SHAPE("RELAY_STOP", relay_stop_fields),
    [MESSAGE_OFFER] = SHAPE("OFFER", offer_fields),
    [MESSAGE_ACCEPT] = SHAPE("ACCEPT", accept_fields),
    [MESSAGE_REJECT] = SHAPE("REJECT", reject_fields),
    [MESSAGE_READY] = SHAPE("READY", ready_fields),
    [MESSAGE_COMMIT] = SHAPE("COMMIT", outcome_req_fields),
    [MESSAGE_ABORT] = SHAPE("ABORT", abort_fields),
    [MESSAGE_OUTCOME_REQ] = SHAPE("OUTCOME_REQ", outcome_req_fields),
    [MESSAGE_OUTCOME] = SHAPE("OUTCOME", outcome_fields),
    [MESSAGE_SHARE] = SHAPE("SHARE", share_fields),
    [MESSAGE_SHARE_ACK] = SHAPE("SHARE_ACK", outcome_req_fields),
    [MESSAGE_APPLIED_REQ] = SHAPE("APPLIED_REQ", outcome_req_fields),
    [MESSAGE_APPLIED] = SHAPE("APPLIED", applied_fields),
    [MESSAGE_FORM] = SHAPE("FORM", form_fields),
    [MESSAGE_JOIN] = SHAPE("JOIN", join_fields),
    [MESSAGE_START] = SHAPE("START", form_fields),
    [MESSAGE_MEAN] = SHAPE("MEAN", mean_fields),
    [MESSAGE_EDGE_OPEN] = SHAPE("EDGE_OPEN", edge_open_fields),
    [MESSAGE_MIRROR] = SHAPE("MIRROR", mirror_fields),
    [MESSAGE_CREDIT] = SHAPE("CREDIT", credit_fields),
    [MESSAGE_CANCEL] = SHAPE("CANCEL", cancel_fields),
    [MESSAGE_OPEN_REQ] = SHAPE("OPEN_REQ", open_req_fields),
    [MESSAGE_STATE_REQ] = SHAPE("STATE_REQ", state_req_fields),
    [MESSAGE_STATE_MANIFEST] = SHAPE("STATE_MANIFEST", state_manifest_fields),
    [MESSAGE_MANIFEST_REQ] = SHAPE("MANIFEST_REQ", manifest_req_fields),
    [MESSAGE_MANIFEST_PAGE] = SHAPE("MANIFEST_PAGE", manifest_page_fields),
    [MESSAGE_BUCKET_REQ] = SHAPE("BUCKET_REQ", bucket_req_fields),
    [MESSAGE_STATE_DENY] = SHAPE("STATE_DENY", state_deny_fields),
    [MESSAGE_SKETCH_REQ] = SHAPE("SKETCH_REQ", sketch_req_fields),
    [MESSAGE_SCORE] = SHAPE("SCORE", score_fields),
    [MESSAGE_SKETCH] = SHAPE("SKETCH", sketch_fields),
    [MESSAGE_CLAIM] = SHAPE("CLAIM", claim_fields),
    [MESSAGE_REVEAL_REQ] = SHAPE("REVEAL_REQ", reveal_req_fields),
    [MESSAGE_REVEAL] = SHAPE("REVEAL", reveal_fields),
    [MESSAGE_STATE_DONE] = SHAPE("STATE_DONE", state_done_fields),
    [MESSAGE_STATUS_REQ] = {"STATUS_REQ", NULL, 0},
    [MESSAGE_STATUS] = SHAPE("STATUS", status_fields),
    [MESSAGE_PROBE] = SHAPE("PROBE", probe_fields),
    [MESSAGE_PREDICTIONS] = SHAPE("PREDICTIONS", predictions_fields),
    [MESSAGE_DATA] = {"DATA", NULL, 0},
};

/* NULL: no such type. */
static const struct shape *shape_of(unsigned type)
{
    if (type >= ARRAY_COUNT(shapes) || shapes[type].name == NULL) return NULL;
    return &shapes[type];
}

const struct field *message_fields(enum message_type type, size_t *count)
{
    const struct shape *shape = shape_of((unsigned)type);

    *count = shape == NULL ? 0 : shape->fields_count;
    return shape == NULL ? NULL : shape->fields;
}

const char *message_type_name(enum message_type type)
{
    const struct shape *shape = shape_of((unsigned)type);

    return shape != NULL ? shape->name : "unknown";
}

uint64_t inner_header_stream(const struct inner_header *header)
{
    return header->stream | (uint64_t)header->offset << 16;
}

void inner_header_set_stream(struct inner_header *header, uint64_t stream)
{
    header->stream = (uint16_t)stream;
    header->offset = (uint32_t)(stream >> 16);
}

void inner_header_encode(const struct inner_header *header, uint8_t *out)
{
    CHECK(shape_of(header->type) != NULL);
    out[0] = header->type;
    out[1] = header->flags;
    store_le16(out + 2, header->stream);
    store_le32(out + 4, header->arg);
    store_le32(out + 8, header->offset);
    store_le32(out + 12, header->after);
}

enum rc inner_header_decode(const uint8_t *bytes, size_t count, struct inner_header *header)
{
    if (count < INNER_HEADER_BYTES || shape_of(bytes[0]) == NULL) return RC_FORMAT;
    if (bytes[1] > (bytes[0] == MESSAGE_DATA ? (unsigned)DATA_FULL : 0)) return RC_FORMAT;
    header->type = bytes[0];
    header->flags = bytes[1];
    header->stream = load_le16(bytes + 2);
    header->arg = load_le32(bytes + 4);
    header->offset = load_le32(bytes + 8);
    header->after = load_le32(bytes + 12);
    return RC_OK;
}

/* A list with a member twice would give one peer two parts of a round. */
static enum rc members_check(const struct message_form *form)
{
    if (form->members_count == 0) return RC_FORMAT;
    for (uint32_t i = 1; i < form->members_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (peer_id_is_equal(form->members[i].id, form->members[j].id)) return RC_FORMAT;
        }
    }
    return RC_OK;
}

static enum rc sections_check(const struct message_state_manifest *manifest)
{
    uint64_t needed = ((uint64_t)manifest->buckets + MANIFEST_HASHES_MAX - 1) / MANIFEST_HASHES_MAX;
    unsigned seen = 0;

    for (uint32_t i = 0; i < manifest->sections_count; i++) {
        unsigned section = manifest->sections[i];

        if (section >= SECTION_KINDS_MAX || (seen & 1U << section) != 0) return RC_FORMAT;
        if (manifest->values[i] > (uint64_t)CHUNKS_MAX * CHUNK_VALUES) return RC_FORMAT;
        seen |= 1U << section;
    }
    return manifest->pages >= needed ? RC_OK : RC_FORMAT;
}

static enum rc sketch_check(const struct message_sketch *sketch)
{
    if (sketch->values_bytes != SKETCH_BYTES) return RC_FORMAT;
    for (uint32_t at = 0; at < sketch->values_bytes; at += 4) {
        if (!isfinite(load_le_float(sketch->values + at))) return RC_NONFINITE;
    }
    return RC_OK;
}

/* What no row can say by itself. */
static enum rc message_check(const struct message *message)
{
    switch (message->type) {
    case MESSAGE_FORM:
    case MESSAGE_START:
        return members_check(&message->as.form);
    case MESSAGE_SKETCH:
        return sketch_check(&message->as.sketch);
    case MESSAGE_STATE_MANIFEST:
        return sections_check(&message->as.state_manifest);
    case MESSAGE_BUCKET_REQ:
        return message->as.bucket_req.count <= CHUNKS_MAX - message->as.bucket_req.index
                   ? RC_OK
                   : RC_FORMAT;
    case MESSAGE_SYNC:
        return message->as.sync.page <= message->as.sync.pages ? RC_OK : RC_FORMAT;
    default:
        return RC_OK;
    }
}

enum rc message_encode(const struct message *message, uint8_t *out, size_t cap, size_t *count)
{
    const struct shape *shape = shape_of((unsigned)message->type);
    struct inner_header header = {.type = (uint8_t)message->type};
    size_t body_count = 0;
    enum rc rc;

    CHECK(shape != NULL && message->type != MESSAGE_DATA);
    CHECK(message_check(message) == RC_OK);
    if (cap > CONTROL_BYTES_MAX) cap = CONTROL_BYTES_MAX;
    if (cap < INNER_HEADER_BYTES) return RC_LIMIT;
    rc = fields_encode(shape->fields, shape->fields_count, message, out + INNER_HEADER_BYTES,
                       cap - INNER_HEADER_BYTES, &body_count);
    if (rc != RC_OK) return rc;
    inner_header_encode(&header, out);
    *count = INNER_HEADER_BYTES + body_count;
    return RC_OK;
}

enum rc message_decode(enum message_type type, const uint8_t *body, size_t count,
                       struct message *message)
{
    const struct shape *shape = shape_of((unsigned)type);
    struct message parsed;
    enum rc rc;

    if (shape == NULL || type == MESSAGE_DATA) return RC_FORMAT;
    if (count > CONTROL_BYTES_MAX - INNER_HEADER_BYTES) return RC_LIMIT;
    memset(&parsed, 0, sizeof parsed);
    rc = fields_decode(shape->fields, shape->fields_count, body, count, &parsed);
    if (rc != RC_OK) return rc;
    parsed.type = type;
    rc = message_check(&parsed);
    if (rc != RC_OK) return rc;
    *message = parsed;
    return RC_OK;
}

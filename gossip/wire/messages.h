/*
 * messages: what the bodies of sealed records mean. A control body is one msgpack map with small
 * integer keys: unknown keys are skipped, missing required ones are an error, numbers are never
 * reused. DATA bodies are raw. Decoding allocates nothing outside the caller's struct: variable
 * parts are pointers into the body ("borrowed"), valid as long as the body is.
 */
#ifndef GRAPEVINE_GOSSIP_WIRE_MESSAGES_H
#define GRAPEVINE_GOSSIP_WIRE_MESSAGES_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/peer_id.h"
#include "base/rc.h"
#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_type {
    /* session */
    MESSAGE_HELLO_OK = 1,
    MESSAGE_ERROR = 2,
    MESSAGE_GOAWAY = 3,
    MESSAGE_REKEY = 4,     /* the next epoch, from the session's initiator */
    MESSAGE_REKEY_ACK = 5, /* the last record of the responder's old epoch */
    MESSAGE_FIN = 6,       /* on a bulk connection: no record follows */
    /* liveness and membership */
    MESSAGE_PING = 16,
    MESSAGE_ACK = 17,
    MESSAGE_PING_REQ = 18, /* ask a third whether it reaches the target */
    MESSAGE_NACK = 19,     /* it does not, or not in time */
    MESSAGE_GOSSIP = 20,
    MESSAGE_SYNC_REQ = 21,
    MESSAGE_SYNC = 22,
    MESSAGE_ACCUSE = 23, /* signed suspicions, see gossip/signed/accusation.h */
    MESSAGE_PRUNE = 24,  /* I keep fewer links: this one ends, I do not */
    MESSAGE_PROGRESS =
        25, /* which model I hold and how far it is: see network docs, "which model wins" */
    /* swaps in doubt, through a common neighbour: see gossip/signed/outcome.h */
    MESSAGE_OUTCOME_ASK = 26,
    MESSAGE_OUTCOME_TOLD = 27,
    /* reachability: see gossip/reach/reach.h and gossip/reach/relay.h */
    MESSAGE_DIALBACK_REQ = 32,
    MESSAGE_DIALBACK = 33,
    MESSAGE_RELAY_RESERVE = 34,
    MESSAGE_RELAY_LEASE = 35,
    MESSAGE_RELAY_CONNECT = 36,
    MESSAGE_RELAY_WINDOW = 37,
    MESSAGE_RELAY_STOP = 38,
    /* pair rounds */
    MESSAGE_OFFER = 40,
    MESSAGE_ACCEPT = 41,
    MESSAGE_REJECT = 42,
    MESSAGE_READY = 43,
    MESSAGE_COMMIT = 44,
    MESSAGE_ABORT = 45,
    MESSAGE_OUTCOME_REQ = 46,
    MESSAGE_OUTCOME = 47,
    /* rounds of neighbours; they also have READY, COMMIT, ABORT and OUTCOME. 48, 54, 55 and 60 to
       62 were of earlier builds */
    MESSAGE_EDGE_OPEN = 53,
    MESSAGE_MIRROR = 69, /* the copy I hold of you */
    /* push rounds; they also have ACCEPT, REJECT, CREDIT and ABORT */
    MESSAGE_SHARE = 49,
    MESSAGE_SHARE_ACK = 50,   /* it counts here from now on */
    MESSAGE_APPLIED_REQ = 51, /* does it? */
    MESSAGE_APPLIED = 52,
    /* group rounds */
    MESSAGE_FORM = 56,
    MESSAGE_JOIN = 57,
    MESSAGE_START = 58,
    MESSAGE_MEAN = 59,
    /* flow */
    MESSAGE_CREDIT = 80,
    MESSAGE_CANCEL = 81,
    MESSAGE_OPEN_REQ = 82, /* open bulk connections to me: you are the one that dialled */
    /* state download */
    MESSAGE_STATE_REQ = 96,
    MESSAGE_STATE_MANIFEST = 97,
    MESSAGE_MANIFEST_REQ = 98,
    MESSAGE_MANIFEST_PAGE = 99,
    MESSAGE_BUCKET_REQ = 100,
    MESSAGE_STATE_DENY = 101,
    MESSAGE_SKETCH_REQ = 102,
    MESSAGE_SKETCH = 103,
    MESSAGE_STATE_DONE = 104, /* the joiner needs this lease no longer */
    MESSAGE_SCORE = 105,      /* of population-based training: how good my model is, and by what */
    /* --verify */
    MESSAGE_CLAIM = 106,      /* what my state is, and how I came to it */
    MESSAGE_REVEAL_REQ = 107, /* show me where that began */
    MESSAGE_REVEAL = 108,
    /* observer */
    MESSAGE_STATUS_REQ = 112,
    MESSAGE_STATUS = 113,
    MESSAGE_PROBE = 114, /* what does your model say of these samples? */
    MESSAGE_PREDICTIONS = 115,
    /* bulk, raw body */
    MESSAGE_DATA = 128
};

enum data_kind {
    DATA_OFFER = 0,
    DATA_MEAN = 1,
    DATA_STATE = 2,
    DATA_RELAY = 3,
    DATA_FULL = 4 /* a copy of the sender's model, float32; else as DATA_OFFER */
};                /* inner header `flags` of DATA */

/* The inner header of every record. */
struct inner_header {
    uint8_t type;    /* enum message_type */
    uint8_t flags;   /* enum data_kind for DATA, else 0 */
    uint16_t stream; /* low 16 bits of the round's stream or of the download's lease */
    uint32_t arg;    /* chunk or bucket index */
    uint32_t offset; /* of a round: the other 32 bits of its stream; relayed: bytes before */
    uint32_t after;  /* on a bulk connection: control records that were sent before this one, modulo
                        2^32; it may not be read before them. Else 0 */
};

/* A signed member record as it travels: opaque bytes, see gossip/signed/record.h. Borrowed. */
struct record_ref {
    const uint8_t *bytes;
    uint16_t bytes_count;
};

/* Keys a pair round is known by everywhere: who began it, in which life, its how-manyeth. */
struct round_key {
    struct peer_id initiator;
    struct boot_id boot;
    uint64_t counter; /* rises per (initiator, boot) */
};

struct member_ref {
    struct peer_id id;
    struct boot_id boot;
};

enum error_code {
    ERROR_DUPLICATE_ID = 1,
    ERROR_MODEL = 2, /* another model: the text names both specs */
    ERROR_PROTOCOL = 3,
    ERROR_FULL = 4,
    ERROR_DENIED = 5,
    ERROR_METHOD = 6 /* it averages in another way: the text names both */
};

enum goaway_reason {
    GOAWAY_LEAVING = 1,  /* stopped on request */
    GOAWAY_FINISHED = 2, /* goal reached */
    GOAWAY_FAILED = 3    /* device or disk lost */
};

enum dialback_code {
    DIALBACK_REACHED = 0, /* and the nonce went over the new connection */
    DIALBACK_FAILED = 1,
    DIALBACK_BUSY = 2,   /* asked too often, or too many dial-backs at once */
    DIALBACK_NO_PORT = 3 /* we cannot tell where you listen */
};

enum relay_code {
    RELAY_GRANTED = 0,
    RELAY_FULL = 1,       /* no more reservations or circuits */
    RELAY_UNRESERVED = 2, /* the target keeps no reservation here, or is not linked */
    RELAY_FORBIDDEN = 3,  /* a loop, or a third hop; or this peer relays nothing */
    RELAY_SPENT = 4,      /* the circuit has carried what one may carry, or its lease ran out */
    RELAY_CLOSED = 5,     /* the other end hung up, or its link is gone */
    RELAY_BROKEN = 6      /* the protocol of relays was broken */
};

/* What a peer does between two steps, if that is long. */
enum progress_busy {
    BUSY_NOT = 0,
    BUSY_EVALUATING = 1, /* it takes part in no round, as with what is none of these */
    BUSY_LONG = 2,       /* the same, with something else */
    BUSY_SHORTLY = 3     /* it evaluates, and a round may wait for it */
};

enum reject_code {
    REJECT_BUSY = 1,
    REJECT_STALE = 2,
    REJECT_SCHEMA = 3,
    REJECT_LINEAGE = 4,
    REJECT_NOT_READY = 5,
    REJECT_CODEC = 6,
    REJECT_CLOSED = 7 /* STATE_DENY: not to who is no member (--serve-models no), or a model that
                         its method keeps at home */
};

enum abort_code {
    ABORT_DEADLINE = 1,
    ABORT_NONFINITE = 2,
    ABORT_NORMS = 3,
    ABORT_LINK = 4,
    ABORT_LOCAL = 5,
    ABORT_PROTOCOL = 6,
    ABORT_FAR = 7 /* the values are too far from ours to be mixed in */
};

enum cancel_code {
    CANCEL_START = 1 /* of a group round: I have no START of it, or another than you, or one that
                        says of me what I never said: you and I do not exchange in it */
};

enum reveal_code {
    REVEAL_HERE = 0,
    REVEAL_GONE = 1, /* that is no longer kept, or never was */
    REVEAL_BUSY = 2  /* with another that asks */
};

enum predictions_code {
    PREDICTIONS_HERE = 0,
    PREDICTIONS_OTHER_DATA = 1, /* what these samples are here is not what the asker has */
    PREDICTIONS_CLOSED = 2,     /* this member gives none (--serve-predictions no), or its model has
                                   no such data */
    PREDICTIONS_BUSY = 3,       /* with others that ask */
    PREDICTIONS_TOO_LARGE = 4,  /* more at once than a member keeps in memory, or has */
    PREDICTIONS_LATER = 5       /* the samples are the same, and are loaded; answers follow */
};

enum outcome_state { OUTCOME_UNKNOWN = 0, OUTCOME_COMMITTED = 1, OUTCOME_ABORTED = 2 };

enum applied_state {
    APPLIED_NO = 0, /* nor will it ever be */
    APPLIED_YES = 1,
    APPLIED_PENDING = 2,  /* it is just coming in */
    APPLIED_FORGOTTEN = 3 /* too long ago to say */
};

struct message_ping { /* PING and ACK */
    uint64_t seq;
    struct record_ref updates[PING_UPDATES_MAX];
    uint32_t updates_count;
};
struct message_ping_req {
    uint64_t seq; /* of the ACK or NACK; its highest bit is set */
    struct peer_id target;
};
struct message_nack {
    uint64_t seq;
};
struct message_accuse {
    const uint8_t *accusations; /* ACCUSATION_BYTES each; borrowed, unchecked */
    uint32_t accusations_bytes;
};
struct message_prune {
    uint32_t wait_ms; /* before dialling again */
};
struct message_gossip {
    struct record_ref updates[GOSSIP_UPDATES_MAX];
    uint32_t updates_count;
};
struct message_sync_req {
    const uint8_t *digest; /* of the asker's book: 64 buckets, u32 little-endian each; borrowed */
    uint32_t digest_bytes; /* 0: whatever there is */
    uint32_t page;
};
struct message_sync {
    uint32_t page, pages;
    struct record_ref records[SYNC_RECORDS_MAX];
    uint32_t records_count;
};
struct message_progress {
    struct digest lineage; /* BLAKE2b of the initial plane; all zero: none yet */
    uint64_t samples;      /* behind the model, over all who trained it as far as known */
    uint64_t step;         /* shared step counter */
    uint64_t round;        /* number of the next group round */
    bool is_serving;       /* holds a full model and can give it away */
    bool is_done;          /* has reached its goal and waits for the others */
    uint8_t busy;          /* enum progress_busy */
    uint32_t left_ms;      /* until it expects to have reached its goal; 0: not known, or it has */
    bool is_settled;       /* done, and has had its last round; see peer/node/rounds/finish.c */
    /* Before the first step, where peers agree on how to normalise: this peer's training samples,
     * and their means and deviations by channel, float32; borrowed. None: 0. */
    uint64_t measured_samples;
    const uint8_t *measured;
    uint32_t measured_bytes;
};
struct message_score {  /* see averaging/core/population.h */
    float loss;         /* on the samples of `part` */
    uint64_t step;      /* of the model, when it was scored */
    struct digest part; /* of the data */
    float rate, decay;  /* with which it is trained */
    uint64_t line;
};
struct message_claim {    /* at a snapshot for a round; see replica/learners/repeat/repeat.h */
    uint64_t number;      /* of this boot's claims, from 1 */
    struct digest state;  /* as it is now */
    struct digest recipe; /* by which steps are taken */
    uint32_t steps;       /* from the state of the claim before to this one; 0: it was not by steps
                             and a round alone, and nothing is claimed of it */
    uint32_t before;      /* of these, before the result of `round` came in */
    uint64_t round;       /* a group round; 0: none came in */
    struct digest agreed; /* of what came in there; zeros: nothing did */
};
struct message_reveal_req {
    uint64_t number; /* of the claim before: of what its state was */
    uint64_t at;     /* bytes: the slice from here on */
};
struct message_reveal {
    uint64_t number, at;  /* as asked */
    uint64_t total;       /* bytes in all; HERE */
    uint32_t code;        /* enum reveal_code */
    const uint8_t *bytes; /* borrowed; HERE */
    uint32_t bytes_bytes;
};
struct message_dialback { /* also DIALBACK_REQ, without the code */
    uint64_t nonce;       /* not 0 */
    uint32_t code;        /* enum dialback_code */
};
struct message_relay_lease {
    uint32_t code; /* enum relay_code */
    uint32_t lease_ms;
};
struct message_relay_connect { /* to the relay: connect me with `peer`; from it: `peer` wants you */
    uint32_t circuit;
    struct peer_id peer;
    bool is_from_relay;
};
struct message_relay_window { /* the first one from a target accepts the circuit */
    uint32_t circuit;
    uint64_t bytes; /* that may be sent on it in all since it was opened */
    bool is_from_relay;
};
struct message_relay_stop {
    uint32_t circuit;
    uint32_t code; /* enum relay_code, but GRANTED */
    bool is_from_relay;
};
struct message_error {
    uint32_t code; /* enum error_code */
    char text[ERROR_TEXT_MAX];
};
struct message_goaway {
    uint32_t reason; /* enum goaway_reason */
    uint32_t retry_ms;
};
struct message_rekey { /* also REKEY_ACK */
    uint32_t epoch;    /* the one to come */
    uint8_t key[32];   /* X25519, made for this */
};
struct message_open_req {
    uint32_t count;
};
struct message_offer {
    struct round_key key;
    uint64_t step;
    struct digest schema;
    char codec[32];
    uint32_t chunks;
    float alpha; /* (0, 0.5] */
    uint32_t deadline_ms;
    struct digest lineage;
};
struct message_accept {
    struct round_key key;
    float alpha;
    uint32_t credit; /* chunks that may be sent at once */
};
struct message_reject {
    struct round_key key;
    uint32_t code; /* enum reject_code */
    uint32_t retry_ms;
};
struct message_ready { /* I hold all of your plane, and you decide */
    struct round_key key;
    float squared; /* distance of our planes, as measured here */
};
struct message_commit {
    struct round_key key;
};
struct message_abort {
    struct round_key key;
    uint32_t code; /* enum abort_code */
};
struct message_outcome_req { /* what did you decide? Also SHARE_ACK, APPLIED_REQ */
    struct round_key key;
};
struct message_outcome {
    struct round_key key;
    uint32_t state; /* enum outcome_state */
};
struct message_share {
    struct round_key key;
    uint64_t step;
    struct digest schema, lineage;
    char codec[32];
    uint32_t chunks;
    float weight; /* that the sender would give, above 0 */
};
struct message_applied {
    struct round_key key;
    uint32_t state; /* enum applied_state */
};
struct message_outcome_ask { /* from the participant, then once more from who passes it on */
    struct round_key key;
    struct peer_id participant;
};
struct message_outcome_told {
    uint8_t word[OUTCOME_BYTES]; /* unchecked */
};
struct message_form { /* FORM and START: FORM lists who is invited, START who takes part; the
                         proposer first */
    uint64_t round;
    uint32_t ballot;
    struct member_ref members[GROUP_MEMBERS_MAX];
    uint32_t members_count;
    struct digest schema, lineage;
    char codec[32];
    uint32_t chunks;
    uint32_t deadline_ms;
    const uint8_t *statements; /* START: what each member said in its JOIN, STATEMENT_BYTES each; */
    uint32_t statements_bytes; /* of the proposer: what it would have said; borrowed */
    uint8_t schedule;          /* START: enum schedule, see averaging/core/schedule.h */
};
struct message_join {
    uint64_t round;
    uint32_t ballot;
    uint64_t samples;    /* since the last round this member took part in */
    uint64_t rate;       /* bytes a second that it can take in and send out; 0: not measured */
    uint8_t only_direct; /* not 0: takes part in the direct schedule only */
};
struct message_mean {
    uint64_t stream;       /* of the round, as in CREDIT */
    uint32_t part;         /* index of the owner in START's list */
    uint64_t contributors; /* one bit a member of START's list */
    struct digest hash;    /* BLAKE2b over the encoded chunk hashes of the part, in chunk order */
    uint64_t rate; /* bytes a second at which the reader's own chunks came in; 0: too few to tell */
};
struct message_edge_open { /* I am in this round, and you are a neighbour of mine */
    uint64_t round;
    float weight; /* of the edge as the sender sees it, in (0, 1]; the smaller of two counts */
    uint64_t generation; /* see averaging/edge/edges.c */
    uint32_t chunks;
    struct digest schema, lineage;
    char codec[32];
    float radius; /* clip radius, finite and >= 0; 0: nothing is to be taken yet */
};
struct message_mirror { /* after EDGE_OPEN, where neighbours keep copies of each other's models */
    uint64_t round;
    struct digest held; /* see averaging/edge/mirror.c; all zero: none */
};
struct message_credit {
    uint64_t stream; /* up to STREAM_MAX */
    uint32_t chunks;
    struct digest start; /* group rounds: of the START that the sender has; else zero */
};
struct message_cancel { /* nothing will come of what CREDIT allowed */
    uint64_t stream;
    uint32_t code; /* enum cancel_code */
};
struct message_state_req {
    uint32_t want;  /* bit set: 1 PARAMETERS, 2 BUFFERS, 4 MOMENTS, 8 and 16 RULE, 32 INPUT */
    uint64_t round; /* PARAMETERS as agreed at the end of this group round or a later one, if one
                       ends soon; 0: as they are now */
    uint32_t base;  /* a lease with this donor whose snapshot the asker holds: only the change since
                       then, int8-encoded, and hashes of the sums; 0: everything */
};
struct message_state_manifest {
    uint32_t lease; /* names this snapshot in later requests */
    uint64_t step, samples, round;
    uint64_t updates; /* that MOMENTS are of: fewer than steps where they were begun anew */
    struct digest schema, lineage;
    struct digest moments; /* of the name of the method that MOMENTS are of; zero: any */
    struct digest rule;    /* the same of what the averaging rule keeps */
    uint32_t sections_count;
    uint8_t sections[STATE_SECTIONS_MAX]; /* enum section as in the plane */
    uint64_t values[STATE_SECTIONS_MAX];
    struct digest root; /* BLAKE2b over all bucket hashes in order */
    uint32_t lease_ms;
    uint32_t pages;
    uint32_t buckets; /* chunks of CHUNK_VALUES float32, sections one after another */
    uint8_t proof[MANIFEST_PROOF_BYTES]; /* the donor's identity key and its signature over all of
                                           the above: see gossip/signed/manifest.h */
};
struct message_manifest_req {
    uint32_t lease, page;
};
struct message_manifest_page {
    uint32_t lease, page;
    const uint8_t *hashes; /* DIGEST_BYTES each; borrowed */
    uint32_t hashes_bytes;
};
struct message_bucket_req {
    uint32_t lease, index, count; /* a run of buckets */
};
struct message_state_deny {
    uint32_t code; /* enum reject_code */
    uint32_t retry_ms;
};
struct message_sketch_req {
    uint64_t seed;
};
struct message_sketch {
    uint64_t seed;
    uint64_t round;        /* the member's next group round */
    float moved;           /* norm of what its last round changed; 0: not known */
    float moments;         /* norm of its optimizer's buffers; 0: it has none */
    const uint8_t *values; /* little-endian float32; borrowed: SKETCH_VALUES of the parameters, as
                              many of the buffers */
    uint32_t values_bytes; /* SKETCH_BYTES */
};
struct message_state_done {
    uint32_t lease;
};
struct message_status {
    const char *text; /* JSON, not NUL-terminated; borrowed */
    uint32_t text_bytes;
};

/* Samples are named by their place in the seeded order of all training samples, which everybody who
 * has the data can draw: see dataset_order(). A window of it is loaded and compared at once;
 * answers come slice by slice, and each slice is asked for. */
struct message_probe {
    uint64_t seed;
    uint32_t first, count; /* of the window */
    struct digest digest;  /* of its samples: samples_digest() */
    uint32_t at, most;     /* the slice: from this sample of the window on, so many at most */
    uint32_t top;          /* of each prediction the likeliest so many classes; 0: all */
};
struct message_predictions {
    uint32_t code;         /* enum predictions_code; of others than HERE only first and at count */
    uint32_t first, at;    /* as asked */
    uint32_t count;        /* samples answered; may be fewer than asked for */
    uint64_t step;         /* of the model */
    uint32_t wait_ms;      /* LATER: after about so long */
    const uint8_t *values; /* see distill/predictions.h; borrowed */
    uint32_t values_bytes;
};

struct message {
    enum message_type type; /* which member of `as` counts; HELLO_OK, FIN, RELAY_RESERVE,
                               STATUS_REQ have none */
    union {
        struct message_ping ping; /* also ACK */
        struct message_ping_req ping_req;
        struct message_nack nack;
        struct message_gossip gossip;
        struct message_sync_req sync_req;
        struct message_sync sync;
        struct message_accuse accuse;
        struct message_prune prune;
        struct message_progress progress;
        struct message_score score;
        struct message_claim claim;
        struct message_reveal_req reveal_req;
        struct message_reveal reveal;
        struct message_dialback dialback; /* also DIALBACK_REQ */
        struct message_relay_lease relay_lease;
        struct message_relay_connect relay_connect;
        struct message_relay_window relay_window;
        struct message_relay_stop relay_stop;
        struct message_error error;
        struct message_goaway goaway;
        struct message_rekey rekey; /* also REKEY_ACK */
        struct message_open_req open_req;
        struct message_offer offer;
        struct message_accept accept;
        struct message_reject reject;
        struct message_ready ready;
        struct message_commit commit;
        struct message_abort abort;
        struct message_outcome_req outcome_req; /* also DONE, SHARE_ACK, APPLIED_REQ */
        struct message_outcome outcome;
        struct message_share share;
        struct message_applied applied;
        struct message_outcome_ask outcome_ask;
        struct message_outcome_told outcome_told;
        struct message_form form; /* also START */
        struct message_join join;
        struct message_mean mean;
        struct message_edge_open edge_open;
        struct message_mirror mirror;
        struct message_credit credit;
        struct message_cancel cancel;
        struct message_state_req state_req;
        struct message_state_manifest state_manifest;
        struct message_manifest_req manifest_req;
        struct message_manifest_page manifest_page;
        struct message_bucket_req bucket_req;
        struct message_state_deny state_deny;
        struct message_sketch_req sketch_req;
        struct message_sketch sketch;
        struct message_state_done state_done;
        struct message_status status;
        struct message_probe probe;
        struct message_predictions predictions;
    } as;
};

/** Write the inner header (INNER_HEADER_BYTES). */
/** The stream of a round that DATA belongs to: `stream` and, above it, `offset`. */
uint64_t inner_header_stream(const struct inner_header *header);
void inner_header_set_stream(struct inner_header *header, uint64_t stream);
void inner_header_encode(const struct inner_header *header, uint8_t *out);
/** RC_FORMAT on fewer than INNER_HEADER_BYTES, an unknown type or flags the type does not have. */
MUST_USE enum rc inner_header_decode(const uint8_t *bytes, size_t count,
                                     struct inner_header *header);
/** Inner header and body of a control message into `out` (cap >= CONTROL_BYTES_MAX is always
 *  enough). RC_LIMIT if it does not fit. Numbers out of range are CHECKed: they are ours.
 *  Unprintable characters of texts are written as '?'. */
MUST_USE enum rc message_encode(const struct message *message, uint8_t *out, size_t cap,
                                size_t *count);
/** Scan, then decode a control body (after the inner header). Checks every number's range and that
 *  floats are finite. RC_FORMAT, RC_NONFINITE, RC_LIMIT; `message` is written only on RC_OK. Codes
 *  are within their enums, texts printable, members of one list different. Counters may be any
 *  uint64_t: compare them, do not add. STATUS text and record bytes are unchecked. */
MUST_USE enum rc message_decode(enum message_type type, const uint8_t *body, size_t count,
                                struct message *message);
struct field;
/** The rows of a message's body, see fields.h; NULL and 0 if it is empty or there is no such type.
 */
const struct field *message_fields(enum message_type type, size_t *count);
/** A short name for logs; never NULL. */
const char *message_type_name(enum message_type type);

#endif

/*
 * exchange: by which pattern chunks travel and when they count. A pure protocol machine on the loop
 * side that never touches a float: it is told what happened and answers with commands.
 * peer/round/round.c turns the commands into messages, jobs and sends, and reports back. One
 * machine lives as long as its peer; it keeps what must outlive a round (outcomes, in-doubt rounds,
 * arrival statistics).
 *
 * What a peer can send is hostile: anything that does not fit the state is refused with an RC_* and
 * changes nothing.
 *
 * Jobs: every SNAPSHOT, ABSORB_OWN and REDUCE is answered by on_job_done() and every chunk that
 * on_chunk() let in by on_chunk_checked(), also when they fail, unless OVER (not a late one) was
 * given meanwhile: reports of a round that is over are not made.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_EXCHANGE_H
#define GRAPEVINE_AVERAGING_CORE_EXCHANGE_H

#include "averaging/core/deadline.h"
#include "averaging/core/robust.h"
#include "averaging/core/schedule.h"
#include "base/fault.h"
#include "base/rc.h"
#include "base/rng.h"
#include "gossip/door/score.h"
#include "gossip/overlay/matching.h"
#include "gossip/wire/messages.h"

#include <stdbool.h>
#include <stdint.h>

enum command_type {
    COMMAND_SEND,       /* `message` to `to` */
    COMMAND_SNAPSHOT,   /* take a snapshot at the next step border and encode it; report
                           on_job_done(JOB_SNAPSHOT) */
    COMMAND_SEND_RANGE, /* encoded chunks [first, first + count) of `buffer` to `to` as DATA */
    COMMAND_STOP_RANGE, /* forget what of `stream` and `buffer` is still queued */
    COMMAND_ABSORB_OWN, /* owner: absorb the own snapshot's chunks [first, first + count);
                           report on_job_done(JOB_ABSORB_OWN, first) */
    COMMAND_REDUCE,     /* owner: reduce chunk `first`, encode it into the MEAN buffer, agree on the
                           decoded form; report on_job_done(JOB_REDUCE, first, hash). `is_partial`:
                           into the partial buffer instead, and agree on nothing */
    COMMAND_EDGE,       /* neighbours: what is staged in `slot` counts; see `edge` */
    COMMAND_FORGET,     /* before SNAPSHOT: what the rule keeps between rounds is void */
    COMMAND_OVER,       /* the round is over: settle or cancel; see `over` */
    COMMAND_HOLD,       /* keep what was sent in this round, decoded, under `key` */
    COMMAND_RELEASE,    /* what is held under `key` is needed no longer */
    COMMAND_ABSORB_HELD, /* absorb what is held under `key`; report on_job_done(JOB_ABSORB_HELD),
                            RC_NOT_FOUND if it is not there */
    COMMAND_SCORE        /* `to` misbehaved or failed us, kept its word in a committed round, or
                            refused our values in a round that ran as too far from its own
                            (SCORE_NO_FAULT) */
};

enum exchange_job { JOB_SNAPSHOT, JOB_ABSORB_OWN, JOB_REDUCE, JOB_ABSORB_HELD };

enum over_result {
    OVER_COMMITTED, /* settle the chunks of `bitmap` with `scale`, apply the difference */
    OVER_ABORTED,   /* cancel: nothing changed */
    OVER_IN_DOUBT   /* pair only: keep the staged difference of all chunks under `key`; a later OVER
                       with the same key and is_late says what became of it */
};

/* An edge to one neighbour, all of whose plane is staged in `slot`. The slot is free afterwards. */
struct command_edge {
    uint32_t slot;
    float weight;
    float whole;      /* the weight before it is clipped */
    float radius;     /* how far away it may be to count whole */
    bool passes;      /* the other end may weigh it otherwise */
    float shared;     /* what it weighs at both ends, if so */
    bool is_in_doubt; /* not yet: keep weight * (theirs - own) under `key`, with weight 1; a late
                         OVER follows, and brings the rest of it as its scale */
    struct round_key key; /* of the edge: who decides, in which life, the round */
};

struct command_over {
    enum over_result result;
    bool is_late;          /* resolves an earlier IN_DOUBT; the current round is not touched */
    struct round_key key;  /* pair rounds */
    uint64_t round;        /* group rounds: its number */
    const uint8_t *bitmap; /* one bit a chunk, valid until the next call into the exchange; NULL:
                              all of them */
    uint32_t bitmap_bytes;
    float scale;        /* of settle(): pair: alpha times the clip scale (IN_DOUBT: 1, and the late
                           OVER brings the scale, see rule_commit_late()); group: 1; push: weight
                           that came in, of what we have after it */
    float sent;         /* push: weight that left in the round, of what we have after it */
    bool drops_queued;  /* what is still queued counts for nobody, as when it is aborted */
    uint32_t members;   /* that took part, this peer included */
    const char *reason; /* of an abort: a string literal; else NULL */
};

struct command {
    enum command_type type;
    struct peer_id to;
    struct message message; /* SEND; what it borrows is valid until the next call */
    enum data_kind buffer;  /* SEND_RANGE, STOP_RANGE: DATA_OFFER, DATA_MEAN or DATA_FULL */
    bool
        is_partial; /* REDUCE; SEND_RANGE of DATA_OFFER: of several members, not our values alone */
    bool is_last;   /* SEND_RANGE: these chunks of the buffer are needed no longer */
    bool wants_hash;       /* REDUCE: the hash that it is reported with is looked at */
    uint64_t stream;       /* SEND_RANGE, STOP_RANGE, REDUCE: of the DATA records */
    uint32_t first, count; /* chunks */
    uint64_t round;        /* group, REDUCE: the number of this round */
    float weight;          /* ABSORB_OWN */
    uint32_t member; /* group: place in START; SEND_RANGE of DATA_MEAN: of `to`; REDUCE: our own */
    struct command_edge edge;
    struct round_key key; /* HOLD, RELEASE, ABSORB_HELD; SNAPSHOT: of its round, the same at all
                             members, pairs and groups (whose key is the number alone) */
    struct command_over over;
    enum score_reason score;
    const char *reason; /* SCORE: a string literal; NULL of SCORE_COMMITTED */
};

/* Grows as needed, is reset by the consumer after each call. */
struct commands {
    struct command *items;
    uint32_t count, max;
    bool is_short_of_memory; /* an append failed: the consumer calls cancel() and, if even the OVER
                                did not fit, cancels the rule itself */
};

void commands_init(struct commands *commands);
void commands_deinit(struct commands *commands);
void commands_clear(struct commands *commands);
/** From now on so many fit without memory being asked for. */
MUST_USE bool commands_reserve(struct commands *commands, uint32_t count);
/** A zeroed command at the end, or NULL (then is_short_of_memory is set). */
struct command *commands_add(struct commands *commands, enum command_type type);
/** A zeroed message to `to`, which the caller fills in before it adds another command; or NULL. */
struct message *commands_send(struct commands *commands, struct peer_id to, enum message_type type);
/** `reason`: a string literal; NULL of SCORE_COMMITTED. */
void commands_score(struct commands *commands, struct peer_id of, enum score_reason score,
                    const char *reason);
/** ABORT of the round `key` to `to`. */
void commands_abort(struct commands *commands, struct peer_id to, const struct round_key *key,
                    enum abort_code code);

bool round_key_is_equal(const struct round_key *a, const struct round_key *b);

enum standing {
    STANDING_OUT,   /* no rounds with it just now */
    STANDING_NEW,   /* waited for little longer than rounds usually take */
    STANDING_PROVEN /* it has kept its word for many rounds: worth more patience */
};

struct exchange_options {
    struct peer_id self;
    struct boot_id boot;
    struct digest schema;
    uint32_t chunks;    /* of the plane, CHUNK_VALUES float32 each, the last one shorter */
    char codec[32];     /* how values travel and what is made of them: who differs is refused */
    const float *alpha; /* pair: the most weight that a partner gets, in (0, 0.5], as it is just
                           now. NULL: 0.5 */
    bool has_memory; /* edges: the rule keeps something between rounds that adds up to zero over the
                        swarm, so that all who hold it must begin anew when the graph changes */
    const struct digest *mirror; /* edges: of our own copy before its last step; all zero: there was
                                    none. NULL: no copies are kept */
    bool clips; /* pair, edges: what is farther than usual counts less (robust.h) */
    const struct robust_bounds *bounds; /* with that, as they are just now. NULL: none */
    enum schedule schedule;             /* group: of the rounds it proposes */
    bool may_relay;  /* group: sums of several members may be encoded again and passed on, so other
                        schedules than direct can be taken */
    bool is_patient; /* group: nobody stands still while a group forms, so a proposal that nobody
                        has joined when its window is over stays open for about a pace */
    uint32_t quorum; /* group: what it proposes begins with no fewer; below 2: two */
    const bool *is_busy; /* group: no snapshot can be taken for a while, as it is just now: what
                            others propose is declined, so that they do not wait. NULL: never */
    bool goes_on; /* edges: training does while a round runs, so that one as long as a pace is free
                   */
    uint32_t chunk_bytes; /* of an encoded chunk; 0: nothing is measured */
    uint64_t rate_max;    /* bytes a second that this peer is held to; 0: no limit is known */
    /** Pairs, push: bytes a second that the line of `peer` was seen to carry this way; 0: not
     * known. NULL: never. */
    uint64_t (*line)(void *context, struct peer_id peer);
    /** How long an answer of `peer` takes over its line, but for rare ones, as was measured beside
     * the rounds: what takes an answer is waited for at least so long. ns; 0: not known. NULL:
     * never. */
    uint64_t (*answer_ns)(void *context, struct peer_id peer);
    /** How `peer` stands with us: what we saw of it ourselves, never what others say
     * (peer/node/trust.h). In a round that another proposed, who is OUT counts as lost from the
     * start. NULL: everyone is PROVEN. */
    enum standing (*standing)(void *context, struct peer_id peer);
    /** How many of `wanted` chunks more may be allowed now to whoever has `out` of them allowed and
     * not dealt with. What is refused is asked for again by tick(). NULL: all. */
    uint32_t (*credit)(void *context, uint32_t out, uint32_t wanted);
    void *context;
};

/* A reason to abort, and to give to people. */
#define EXCHANGE_SAYS_FAR "says that our values are too far from its own"

/** The name of a round's chunks and of their CREDIT: 48 bits of the hash of its key (id, boot,
 * counter as a little-endian word), so that what comes late of one never counts in another. Of
 * rounds that nobody's key names, edges: of who sends, in which life, and the round. */
uint64_t exchange_stream(const struct round_key *key);

/** As options->standing says; everyone is PROVEN without one. */
enum standing exchange_standing(const struct exchange_options *options, struct peer_id id);
bool exchange_is_proven(const struct exchange_options *options, struct peer_id id);

/** As options->credit says; all of them without one. */
uint32_t exchange_credit(const struct exchange_options *options, uint32_t out, uint32_t wanted);

/** The clip radius of a plane; FLT_MAX: we do not clip; 0: not known yet. */
float exchange_radius(const struct exchange_options *options,
                      const struct robust_history *distances);

/** How long to wait for `chunks` over the line of `peer` at least, by what it was seen to carry:
 * four times what they take, at most `most_ns`; 0: nothing is known of it. Rounds are waited for as
 * long as rounds use to take, and most of these may be with others. */
uint64_t exchange_line_wait_ns(const struct exchange_options *options, struct peer_id peer,
                               uint32_t chunks, uint64_t most_ns);

/** How long an answer over the lines of half of `peers` takes: one that is far away, or says so, is
 * left out as any slow one. 0: nothing is known. */
uint64_t exchange_answer_ns(const struct exchange_options *options, const struct peer_id *peers,
                            uint32_t count);

/** How long to wait at least for what takes `trips` answers of `peer`, by its line; at most
 * `most_ns`, for how soon it answers is up to it. 0: nothing is known. */
uint64_t exchange_trips_ns(const struct exchange_options *options, struct peer_id peer,
                           uint32_t trips, uint64_t most_ns);

/** How long so many chunks take over the slowest line that is waited for (times.h). */
uint64_t exchange_slow_ns(const struct exchange_options *options, uint32_t chunks);

/* What is waited for. */
struct awaited {
    const struct deadline_bounds *bounds; /* of it, see times.h */
    const struct deadline *usual;         /* how long it took */
    uint32_t trips, chunks;               /* answers of the peer, and chunks, that it takes */
};

/** How long to wait for it of `peer`. */
uint64_t exchange_wait_ns(const struct exchange_options *options, struct peer_id peer,
                          const struct awaited *awaited);

/* Who could take part in the round that begins. */
struct round_members {
    const struct peer_id *ids; /* pair: the chosen partner alone; group: all, self included, in
                                  proposing order (topology_group()); edges: all neighbours */
    const struct boot_id *boots;
    uint32_t count;
    const float *weights;                /* edges: of each, in (0, 1]; else NULL */
    const struct matchings *matchings;   /* edges: of which a round has those that are active, and
                                            weights by it; NULL: all. Valid until the next call */
    const struct matching_edge *matched; /* with that: of each */
    struct digest epoch; /* edges: name of the set of members that the graph is of; else zero */
    uint64_t
        period_ns; /* group, edges: until this peer begins the next, as far as is known; 0: not */
    bool begins_anew; /* edges: what the rule keeps is not worth going on from: the model was
                         replaced */
};

/* A chunk that arrived. */
struct chunk_ref {
    struct peer_id from;
    enum data_kind kind;
    uint64_t stream;
    uint32_t chunk;
};

/* What is to become of a chunk that was let in. */
struct chunk_use {
    float weight;       /* DATA_OFFER: to be absorbed with; DATA_MEAN is for rule->agree */
    float likely_scale; /* that OVER_COMMITTED will most likely have; 1 if distances decide */
    bool is_passed_on;  /* DATA_MEAN: keep the encoded chunk in the MEAN buffer */
    bool wants_hash;    /* the hash that it is reported with is looked at: else zeros will do */
    bool is_staged;     /* it counts only by COMMAND_EDGE; until then it is in `slot` */
    uint32_t slot;      /* group: place in START, of who sent it; DATA_MEAN: our own */
    uint32_t mirror;    /* has_mirrors: in which of MIRRORS_MAX places the sender's copy is */
};

enum { SHARES_MAX = 4 }; /* push: under way at once, at most one a receiver */

enum exchange_state {
    EXCHANGE_IDLE,    /* no round runs */
    EXCHANGE_OPEN,    /* one does, and begin() would add something to it */
    EXCHANGE_LINGERS, /* what we proposed is open, but nobody has joined: it keeps nobody from
                         anything, and cancel() would be noticed by nobody */
    EXCHANGE_RUNS     /* begin() would be RC_BUSY */
};

/* Numbers for `status`, metrics and summary. */
struct exchange_counts {
    uint64_t rounds_ok, rounds_aborted, in_doubt_resolved, in_doubt_lost;
    uint64_t rounds_idle;    /* edges: no own edge was active in them */
    uint64_t rounds_skipped; /* nobody else was ready, or the partner was busy: nothing was lost */
    uint64_t next_round;     /* group: number of the round to begin next */
    uint64_t invited_until_ns; /* group: until then begin() would join what `inviter` has proposed
                                  and holds open; 0: nothing */
    struct peer_id inviter;
    uint64_t rate;                      /* group: bytes a second that were measured; 0: not yet */
    uint64_t scheduled[SCHEDULE_COUNT]; /* group: committed rounds of each schedule */
    enum schedule schedule;             /* of the last of them */
    uint64_t retry_ns;                  /* pair, push: when who was busy may be free; push: or 0 */
    const char *last_abort;             /* string literal or NULL */
    uint64_t judged, clipped; /* pair, edges: planes that counted; of these, for less than whole */
    bool has_weight;          /* push, and the next four with it */
    double weight;            /* of the live model; 1 is an equal part */
    uint32_t custody;         /* shares sent and not acknowledged ... */
    struct round_key held[SHARES_MAX]; /* ... and their keys, in the order of save() */
    double custody_weight;             /* of these together */
    uint64_t returned;                 /* shares that came back */
    uint64_t received;                 /* shares of others that count */
};

struct exchange {
    const struct exchange_ops *ops;
};

struct exchange_ops {
    const char *name;
    bool is_group, is_graph; /* with whom, for strategies and paces: members that meet; the
                                neighbours in a fixed graph, by weight */
    /* What its rounds are, for the one that runs them. */
    bool has_mean;         /* they come to one mean for all members, in chunks of DATA_MEAN */
    bool is_of_two;        /* they come to what the one partner sends */
    bool has_mirrors;      /* blocks are steps of copies that others hold, see edge/mirror.c */
    bool clips_chunks;     /* one that is too far away weighs less by itself, not with its plane */
    uint32_t promises_max; /* of one round: that may be in doubt when it ends */
    struct exchange *(*create)(const struct exchange_options *options); /* NULL: no memory */
    void (*destroy)(struct exchange *exchange);
    /** The lineage rounds are for; changes when the peer adopts another model. Aborts what runs. */
    void (*set_lineage)(struct exchange *exchange, struct digest lineage, struct commands *out);
    /** The pace says a round is due. RC_BUSY while one runs (not an error), RC_NOT_FOUND when
     *  nobody else is there or this peer has no lineage yet: nothing was begun or counted. Members
     *  are linked. Group: `samples` since the last round travels in JOIN. */
    MUST_USE enum rc (*begin)(struct exchange *exchange, const struct round_members *members,
                              uint64_t samples, uint64_t now_ns, struct commands *out);
    /** A message of the pair or group family, CREDIT or ABORT. RC_STALE, RC_MISMATCH, RC_FORMAT...:
     * refused. */
    MUST_USE enum rc (*on_message)(struct exchange *exchange, struct peer_id from,
                                   struct boot_id boot, const struct message *message,
                                   uint64_t now_ns, struct commands *out);
    /** A DATA chunk arrived: may it be decoded? RC_OK marks it as being checked (a second one is
     *  RC_REPLAY), and says what for. RC_STALE: of a round that is over, drop it quietly. */
    MUST_USE enum rc (*on_chunk)(struct exchange *exchange, const struct chunk_ref *chunk,
                                 struct chunk_use *use);
    /** The decode job is done: rc (RC_OK: absorbed or agreed), hash of the encoded bytes (mirrors:
     *  of the copy's values), and for
     *  pairs and edges the squared distance to our own chunk. */
    void (*on_chunk_checked)(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                             struct digest hash, float squared_distance, uint64_t now_ns,
                             struct commands *out);
    /** A job asked for by a command is done. `first`: its chunk; `hash`: of the encoded chunk
     *  (JOB_REDUCE); for JOB_SNAPSHOT rc RC_NONFINITE means the local model is not fit to send. */
    void (*on_job_done)(struct exchange *exchange, enum exchange_job job, uint32_t first,
                        enum rc rc, struct digest hash, uint64_t now_ns, struct commands *out);
    void (*on_link_up)(struct exchange *exchange, struct peer_id peer, struct boot_id boot,
                       uint64_t now_ns, struct commands *out);
    void (*on_link_lost)(struct exchange *exchange, struct peer_id peer, uint64_t now_ns,
                         struct commands *out);
    void (*tick)(struct exchange *exchange, uint64_t now_ns, struct commands *out);
    uint64_t (*next_ns)(const struct exchange *exchange); /* UINT64_MAX: nothing pending */
    /** Give up what runs, for a local `reason` (a string literal): stopping, short of memory.
     * Others are told; OVER_ABORTED follows if a round ran. A pair round that was promised (READY
     * sent) goes IN_DOUBT instead. */
    void (*cancel)(struct exchange *exchange, const char *reason, uint64_t now_ns,
                   struct commands *out);
    enum exchange_state (*state)(const struct exchange *exchange);
    void (*counts)(const struct exchange *exchange, struct exchange_counts *counts);
    /** What it has allowed others to send and was not dealt with yet, and to how many. */
    void (*allowed)(const struct exchange *exchange, uint32_t *chunks, uint32_t *streams);
    /** Adopt a later round number heard from others (PROGRESS, manifest). NULL: each peer numbers
     *  its own. */
    void (*set_round)(struct exchange *exchange, uint64_t round);
    /** What this peer, who began the round `key`, can say for good of it to its `participant`;
     * false: nothing, it is not decided or was never begun with that peer. NULL: this exchange has
     * no rounds in doubt, as for told. */
    bool (*outcome)(const struct exchange *exchange, const struct round_key *key,
                    struct peer_id participant, enum outcome_state *state);
    /** The initiator of `key` has decided so, by its own signature, whoever brought it. */
    MUST_USE enum rc (*told)(struct exchange *exchange, const struct round_key *key,
                             enum outcome_state state, uint64_t now_ns, struct commands *out);
    /** What a checkpoint must hold of it (unacknowledged outcomes): bytes into fresh memory. */
    MUST_USE enum rc (*save)(const struct exchange *exchange, uint8_t **bytes, size_t *count);
    /** Hostile bytes: RC_FORMAT changes nothing. */
    MUST_USE enum rc (*load)(struct exchange *exchange, const uint8_t *bytes, size_t count);
};

static inline bool exchange_is_active(const struct exchange *exchange)
{
    return exchange->ops->state(exchange) != EXCHANGE_IDLE;
}

extern const struct exchange_ops exchange_pair;
extern const struct exchange_ops exchange_group;
extern const struct exchange_ops exchange_edges;
extern const struct exchange_ops exchange_mirror;

enum { MIRRORS_MAX = 16 };
/** Of a plane, from the hashes of its chunks' values. */
struct digest mirror_digest(const struct digest *chunks, uint32_t count);
extern const struct exchange_ops exchange_push;

#endif

/*
 * round_internal: what the files of a round share; private to peer/round.
 *
 *   round.c       the journey of a tensor: every stage, in order
 *   over.c  from its end to the difference
 *   edges.c the same for rounds of neighbours, where it differs
 *   lane.c  what the stages' jobs do, in the exchange lane
 *   guard.c what --robust keeps apart, and what guards did
 *   feedback.c the same for rounds of differences, where it differs
 *   meet.c  what comes in, made a difference at once
 *   held.c  planes of shares in custody
 *   promises.c memory for what was promised, rounds in doubt
 *   trace.c rounds in a trace
 *   part.c  which values a round carries, where these are not all
 *   life.c  memory, job plumbing, what the exchange is told from outside
 */
#ifndef GRAPEVINE_PEER_ROUND_INTERNAL_H
#define GRAPEVINE_PEER_ROUND_INTERNAL_H

#include "averaging/aggregate/gather.h"
#include "averaging/core/promise.h"
#include "averaging/core/robust.h"
#include "peer/round/failures.h"
#include "peer/round/round.h"

#include <sys/queue.h>

enum round_phase { PHASE_IDLE, PHASE_SNAPSHOT, PHASE_RUNNING, PHASE_SETTLING, PHASE_READY };

/* Twice what an exchange has open: those that it has resolved are here until they are applied. */
enum { ROUND_DOUBTS_MAX = 2 * PROMISE_DOUBTS_MAX };
enum { ROUND_RAMP = 3 };
enum { ROUND_METHOD_BYTES = sizeof(((struct exchange_options *)0)->codec) };
#define ROUND_ALPHA 0.5f /* of pairs, once ROUND_RAMP rounds with less of it are over */

enum round_work {
    WORK_ENCODE,
    WORK_DECODE,
    WORK_OWN,
    WORK_REDUCE,
    WORK_EDGE,
    WORK_SETTLE,
    WORK_CANCEL,
    WORK_DOUBT,
    WORK_HOLD,
    WORK_ABSORB_HELD
};

struct round_job {
    struct job job;
    TAILQ_ENTRY(round_job) siblings; /* of all jobs, or of the held ones */
    struct round *round;
    enum round_work work;
    uint64_t generation; /* of the round it belongs to */
    struct chunk_ref chunk;
    bool is_staged;  /* DECODE: it counts with its plane */
    uint32_t slot;   /* DECODE, EDGE: of a neighbour; of differences: see chunk_use; REDUCE: ours */
    uint32_t mirror; /* DECODE: where its copy is */
    struct digest before; /* ENCODE: our own copy, as it was; `hash`: as it is */
    uint32_t first, count;
    float weight, sent;
    bool passes; /* EDGE, as the next: see exchange.h */
    float shared;
    float whole, radius;         /* EDGE: see exchange.h */
    struct gather_count guarded; /* DECODE, REDUCE, SETTLE: by --robust */
    uint32_t planes;  /* DECODE of differences: what is taken over of what the owner's rule keeps */
    float scale;      /* SETTLE; DECODE: what it will most likely be */
    uint32_t members; /* SETTLE, as the next two: which round it was */
    struct round_key key;
    uint64_t number; /* ENCODE: of the last that was settled; 0: there is none. REDUCE: this one */
    float gradient;  /* ENCODE: of the round */
    bool has_moved;  /* ENCODE: there were steps since the last settled round */
    bool is_last;    /* ENCODE: there will be no more */
    struct robust_bounds bounds; /* ENCODE: where planes are clipped */
    uint64_t steps;    /* ENCODE: since the last round that was agreed; 0: there was none */
    uint64_t replaced; /* ENCODE: how often the model had been, when it was submitted */
    float *adopted[RULE_STATE_MAX]; /* ENCODE: for the rule, or NULL; owned */
    const uint8_t *bitmap;          /* SETTLE: the round's */
    const uint8_t *body;            /* DECODE: the encoded chunk, in `blob` */
    size_t body_count;
    float *to; /* SETTLE: where the difference goes */
    enum rc rc;
    struct digest hash;
    float distance;
    bool wants_hash;   /* DECODE and REDUCE of a mean */
    bool is_passed_on; /* DECODE of a mean: what came is kept as it is */
    bool is_partial;   /* REDUCE */
    bool is_far;       /* DECODE of a difference: struct delta_set */
    double squared;    /* SETTLE: norm of the difference */
    bool keeps_agreed; /* SETTLE */
    float *agreed;     /* SETTLE: [values], or NULL; owned */
    struct blob *blob; /* REDUCE: the encoded mean; DECODE: what holds the body */
    struct blob *told; /* DECODE: our own chunk, where there is no plane of what we told; or NULL */
    struct round_gathered *gathered; /* REDUCE: what came of differences, or NULL; owned */
    struct round_doubt *doubt;
    bool is_current;         /* DOUBT: the rule has not begun anew since */
    struct round_held *held; /* HOLD, ABSORB_HELD; NULL: there is none */
};

TAILQ_HEAD(round_jobs_list, round_job);

/* Memory for what a promise may lead to: nothing after one may fail for lack of it. */
struct round_reserve {
    struct round_jobs_list jobs;
    uint32_t jobs_count;
    float
        *planes[PROMISE_DOUBTS_MAX]; /* [values] each; untouched, they are no more than addresses */
    uint32_t planes_count;
};

/* A pair round, or an edge of a round, whose partner vanished between READY and COMMIT. */
struct round_doubt {
    bool is_used, is_resolved;
    bool is_settling; /* a job writes its difference */
    bool is_dropped;  /* to be cleared once that job is done */
    struct round_key key;
    struct mask mask; /* of its round, as the next */
    struct mask_layout layout;
    float *difference; /* with scale 1, over the chunks READY promised */
    uint8_t *bitmap;   /* once resolved; of the slot, not of the doubt */
    float scale;
    float weight;      /* that `difference` has already, see rule->meet() */
    uint64_t replaced; /* see struct round, when it began */
};

/* A share that was sent and not acknowledged. */
struct round_held {
    bool is_used;
    bool is_dropped; /* to be cleared once nobody reads it */
    bool is_copying; /* a job writes it */
    struct round_key key;
    float *plane;  /* [values]; NULL: there was no memory for it */
    uint32_t jobs; /* that write or read it */
};

/* What is learned apart for each part of the plane that rounds carry. One, where they carry all. */
struct round_part {
    struct robust *robust;
    bool has_settled;     /* a round of it, of this model */
    uint64_t agreed_step; /* in the last one in which no mean was refused */
    bool has_state;       /* the rule keeps something of it */
};

struct round {
    struct round_options options;
    const struct codec *codec; /* the strategy's */
    const struct exchange_ops *ops;
    struct exchange *exchange;
    struct rule *rule;
    struct gather *gather; /* of the exchange lane: in place of the rule's sums; NULL: these are */
    struct commands commands;
    uint32_t chunks;
    size_t capacity;           /* the most values that a round has */
    struct round_key wanted;   /* of the round that wants a snapshot */
    struct mask mask;          /* of the round that took the last one, as the next */
    struct mask_layout layout; /* of snapshot, own, centre, difference */
    struct round_part *parts;  /* [parts_count] */
    uint32_t parts_count;
    enum round_phase phase;
    bool is_snapshot_wanted;
    bool is_busy, begins_anew;    /* as the exchange is told: see exchange.h */
    bool is_discarding;           /* what is being settled is for a model that was replaced */
    uint64_t generation;          /* counts rounds begun or given up: old jobs are told apart */
    uint64_t snapshot_generation; /* of the round the running snapshot is for */
    uint64_t snapshots;           /* taken since the start, this one included */
    bool is_encoded;              /* round_encode() has done it; whose job runs says so */
    bool has_taken;               /* an edge of this round counts, and the model lacks it yet */
    bool has_stream;              /* something was queued in this round */
    uint64_t stream;              /* of it, to take it back on an abort */
    uint64_t begun_ns;
    struct blob *plane; /* what holds the snapshot, and is sent as it stands by a codec that loses
                           nothing; who still sends of an old one keeps it */
    float *snapshot;    /* [capacity], as are the next; exact, at the border */
    float *own;         /* what we told the others; == snapshot for lossless codecs. NULL:
                           round_own() decodes it */
    float *centre;      /* what all held when the last round ended, which what comes is
                           judged by; NULL: `own` is. Of the exchange lane */
    bool has_centre;
    float *difference;  /* while RUNNING of the chunks that met, see meet.c */
    double *squares;    /* [chunks] of the exchange lane: squared norms of these, of parameters
                           alone; < 0: did not meet */
    float likely_scale; /* of them all */
    struct round_feedback *feedback; /* NULL: no differences travel */
    /* Where a round carries a part: see part.c. NULL: it never does. */
    float *exported; /* [values] where the learner exports to; also where we blend */
    float *gathered; /* [capacity] where we blend */
    float *spread;   /* [values] `difference`, where it belongs; -0 elsewhere */
    bool has_spread; /* of `spread_mask` */
    struct mask spread_mask;
    float *whole_centre;               /* [values]; NaN: no round has been there */
    float *state[RULE_STATE_MAX];      /* [values] of the rule */
    float *state_part[RULE_STATE_MAX]; /* [capacity] */
    size_t state_count;
    float *mirrors[MIRRORS_MAX]; /* [values] each, or NULL: copies of neighbours */
    struct digest mirror_digest; /* of `own`, which is then our copy; all zero: there is none */
    struct digest mirror_before; /* of it before its last step; the exchange's options point here */
    struct digest *mirror_hashes; /* [chunks] */
    struct blob **whole;          /* [chunks] of `own` that were asked for while RUNNING; or NULL */
    struct robust *robust;        /* that of the part; of the exchange lane */
    float *scratch, *told;        /* [CHUNK_VALUES] of the exchange lane */
    struct blob **offer;          /* [chunks] encoded snapshot while RUNNING */
    struct blob **spare;   /* [chunks] of the last round, to be written again: new memory is slow */
    struct blob **mean;    /* [chunks] encoded means of our part, and those we pass on */
    struct blob **partial; /* [chunks] encoded sums that we pass on; NULL: we never do */
    struct round_doubt doubts[ROUND_DOUBTS_MAX];
    struct round_held planes[ROUND_HELD_MAX];
    bool wants_agreed;  /* round_keep_agreed() */
    bool copies_agreed; /* in this round: then means are kept beside the difference */
    bool has_refused;   /* in this round a mean: others may have taken it */
    float *agreed;      /* [values] or NULL */
    uint64_t agreed_round, agreed_until, settling_round;
    float *last; /* [values], of round `last_round`; NULL: none, or options.keeps_last is not set */
    uint64_t last_round;
    bool is_settling_whole; /* every chunk of it counts, and as the owner returned it */
    struct round_jobs_list jobs, held;
    struct round_job *deferred; /* a settlement that waits for a checkpoint to be written */
    bool is_held;
    struct round_reserve reserve;
    uint8_t *settled;  /* bitmap of what is being settled */
    uint32_t partners; /* of the round that we began last */
    /* How often the model was replaced, and how much of that the rule has been told: it begins anew
     * with the next snapshot. */
    uint64_t replaced, forgotten;
    uint64_t step, settled_step; /* of the model: in the last snapshot, in the last settled one */
    uint64_t snapshot_ns, settled_ns; /* when they were taken */
    bool has_settled;                 /* there is one, of this model */
    bool is_last;                     /* no more steps come */
    float gradient;                   /* the largest norm of a chunk of our own */
    struct robust_bounds bounds;      /* the exchange's options point to it */
    float *adopted[RULE_STATE_MAX];   /* round_rule_adopt(), or NULL */
    float alpha;                      /* the most weight that a partner of a pair gets */
    uint32_t ramp;                    /* rounds mixed since round_begin_ramp(), up to ROUND_RAMP */
    uint32_t jobs_count;
    struct round_stats stats;
    struct failures failures;
    struct recorder recorder;
    uint64_t traced_ns; /* of a trace: when the round that is not over began; 0: there is none */
    uint64_t traced;    /* rounds seen, of exchanges that do not number them alike */
};

/* round.c */
/** Do what the exchange said; after every call into it. */
void round_obey(struct round *round);
/** A job is done: back on the loop. */
void round_job_done(struct job *job);

/** The encoded chunks that nobody sends any more are written again by the next round. */
void round_keep_offers(struct round *round);
/** Does somebody want what all agreed on, whole? */
bool round_wants_agreed(const struct round *round);
bool round_wants_fresh(const struct round *round);

/* over.c */
void round_over(struct round *round, const struct command_over *over);
void round_settle_done(struct round *round, struct round_job *job);
void round_doubt_done(struct round *round, struct round_job *job);
/** Those of which the outcome has come. */
void round_resolve_doubts(struct round *round);

/* edges.c */
/** All of a neighbour's plane is staged, and counts or may count later. */
void round_edge(struct round *round, const struct command *command);
void round_edge_run(struct round *round, struct round_job *job);
void round_edge_done(struct round_job *job);
/** Before encoding: what the rule adds to the snapshot. */
void round_edge_prepare(struct round *round, const struct round_job *job);

/* lane.c */
/** In the lane, or while no job runs: the model was replaced, and what the rule kept was of the old
 * one. `adopted`: what it begins with, NULL behind the last. */
void round_rule_begin_anew(struct round *round, float *const adopted[RULE_STATE_MAX]);
void round_job_run(struct job *job);
/** For the encoded chunk: the memory that the last round had for it, or new. NULL: there is none.
 */
struct blob *round_blob_for(struct round *round, uint32_t chunk);
/** Of what is encoded of a chunk in this round: of peers, starts, rounds and chunks each has its
 *  own, and in a run that is repeated the same. */
uint64_t round_seed(const struct round *round, enum data_kind kind, uint32_t chunk);
/** In the lane: are these values, of a chunk that came, near enough to be taken? */
MUST_USE enum rc round_judge(struct round *round, struct round_job *job, struct range range,
                             const float *in);
/** The first `count` values of the snapshot are at `live`, the others in its buffer. */
MUST_USE enum rc round_encode(struct round *round, const float *live, size_t count);

/* part.c */
bool round_part_create(struct round *round);
void round_part_destroy(struct round *round);
/** On the loop, before a snapshot: what the round of this key carries. */
void round_part_choose(struct round *round, const struct round_key *key);
/** In the lane, once ours is encoded and the rule has begun. */
void round_part_begin(struct round *round);
/** In the lane, after settle(). */
void round_part_end(struct round *round);
/** In the lane: `difference` is that of an earlier round, of `mask`. */
void round_part_late(struct round *round, struct mask mask);
/** The model was replaced. */
void round_part_forget(struct round *round);
/** See round_rule_state() and round_rule_restore(). */
size_t round_part_state(const struct round *round, const float *planes[RULE_STATE_MAX]);
MUST_USE enum rc round_part_restore(struct round *round, const float *const *planes, size_t count);
/** Parameters of the plane for each that the round carries. */
double round_part_scale(const struct round *round);

/* centre.c */
/** Is there such a plane? */
bool round_keeps_centre(const struct round *round);
/** In the lane, once ours is encoded: without a centre yet it is the first one. */
void round_centre_begin(struct round *round);
/** In the lane: what is agreed of the chunks of `bitmap` is our own and `difference`. */
void round_centre_move(struct round *round, const uint8_t *bitmap, const float *difference);
/** What a chunk is judged around; `own`: what we told the others of it. */
const float *round_centre(const struct round *round, struct range range, const float *own);

/* guard.c */
/** False: no memory. */
MUST_USE bool round_guard_allocate(struct round *round);
/** In the lane: what comes of a chunk of ours or of another's, of which clip leaves `share`, is
 * kept for the aggregate. */
MUST_USE enum rc round_guard_add(struct round *round, struct round_job *job, struct peer_id from,
                                 uint32_t chunk, const float *values, float share);
/** In the lane, in place of the rule's reduce(). */
MUST_USE enum rc round_guard_reduce(struct round *round, struct round_job *job, float *out);
/** In the lane: a neighbour's plane counts. */
void round_guard_take(struct round *round, const struct round_job *job);
/** In the lane, after the rule's settle(): of neighbours' planes, into `difference`. */
void round_guard_settle(struct round *round, struct round_job *job, float *difference);
/** On the loop: a job is done. */
void round_guard_note(struct round *round, const struct round_job *job);

/* meet.c */
/** Is there a plane of what we told the others? */
bool round_keeps_own(const struct round *round);
/** In the lane: chunk `chunk` of what we told the others, encoded in `told` where it is kept
 *  nowhere else; valid until the next call. RC_DEVICE: a device has encoded it wrongly. */
MUST_USE enum rc round_own(struct round *round, uint32_t chunk, const struct blob *told,
                           const float **own);
/** Before DECODE is submitted while RUNNING. */
void round_meet_prepare(struct round *round, struct round_job *job);
/** Does what this job decodes become a difference at once? */
bool round_meets(const struct round *round, enum data_kind kind);
/** `difference` of a chunk becomes scale * (in - own). Returns |in - own|^2, not finite if `in` is
 *  not. */
double round_apart(struct round *round, struct range range, float scale, const float *in,
                   const float *own);
/** It is checked, and may count: `apart` is what round_apart() returned. */
MUST_USE enum rc round_meet(struct round *round, uint32_t chunk, float scale, double apart);
/** `mean` is what was agreed for a chunk of our own part: the rule hears of it. */
MUST_USE enum rc round_meet_agreed(struct round *round, uint32_t chunk, const float *mean);
/** The values of a chunk that came, decoded into scratch or, float32, where they lie: then it shows
 *  in their distance to ours whether all are finite. */
MUST_USE enum rc round_values_of(struct round *round, struct round_job *job, struct range range,
                                 float **values);
/** Sums are sent as they are, so they may be made where they are sent from. */
bool round_sums_are_sent(const struct round *round);
/** Nothing has met. */
void round_meet_begin(struct round *round);
/** After settle() with `scale`: the squared norm of `difference`, of parameters. */
double round_meet_squared(const struct round *round, const uint8_t *bitmap, float scale,
                          const float *difference);

/* mirror.c */
bool round_mirror_allocate(struct round *round);
void round_mirror_deinit(struct round *round);
/** In the lane: our copy takes a step towards the snapshot, and the offer is that step. */
void round_mirror_encode(struct round *round, struct round_job *job);
/** A chunk of our copy, borrowed: one for all neighbours of the round. NULL: the round was given
 *  up, or there was no memory, and then it is given up by what obeys commands. */
struct blob *round_mirror_whole(struct round *round, uint32_t chunk);
/** May a chunk of so many values have `count` bytes? */
bool round_mirror_is_size(const struct round *round, enum data_kind kind, size_t count,
                          size_t values);
/** In the lane: into scratch comes the neighbour's copy. */
void round_mirror_decode(struct round *round, struct round_job *job, struct range range);

/* feedback.c: all but the first three only where differences travel */
bool round_feedback_allocate(struct round *round);
void round_feedback_deinit(struct round *round);
/** Before a round, and after it: what came is needed no longer. */
void round_feedback_clear(struct round *round);
/** In the lane: the model was replaced. */
void round_residual_forget(struct round *round);
/** May a chunk of `values` be so long? */
bool round_feedback_is_size(const struct round *round, enum data_kind kind, size_t values,
                            size_t count);
/** In the lane: the offer, and what becomes of the residual if it counts. */
void round_feedback_encode(struct round *round, struct round_job *job);
/** In the lane: what came is checked, and a mean agreed on. */
void round_feedback_decode(struct round *round, struct round_job *job, struct range range);
/** It is kept as far as it is needed. `job->rc` may become RC_NOMEM. */
void round_feedback_decoded(struct round *round, struct round_job *job);
/** Before REDUCE is submitted. */
void round_feedback_gather(struct round *round, struct round_job *job);
void round_gathered_free(struct round_gathered *gathered);
/** In the lane: a chunk of our part. */
void round_feedback_reduce(struct round *round, struct round_job *job);
/** Of the chunk that was reduced, what is for the member at this place. NULL: the round was given
 *  up, or there was no memory, and then it is given up by what obeys commands. */
struct blob *round_feedback_for(struct round *round, uint32_t chunk, uint32_t member);
/** In the lane, before the rule settles: of the chunks that count the residual is what was left. */
void round_feedback_settle(struct round *round, const uint8_t *bitmap);

/* life.c */
/** What an exchange's peers compare, so that those whose rounds mean different things do not meet:
 *  codec, rule and its settings, `moments` (the optimizer they are of, or NULL). */
void round_method(const struct strategy *strategy, const char *moments,
                  char text[ROUND_METHOD_BYTES]);
/** Is the snapshot sent as it stands, without being encoded into other memory? */
bool round_offers_snapshot(const struct round *round);
/** Another plane for the next snapshot: somebody still sends of this one. False: no memory. */
bool round_plane_renew(struct round *round);
uint64_t round_now(const struct round *round);
struct range round_chunk_range(const struct round *round, uint32_t chunk);
void round_blobs_clear(struct blob **blobs, uint32_t count);
/** NULL: no memory. `values` is what it works through, for its modelled cost. */
struct round_job *round_job_create(struct round *round, enum round_work work, size_t values);
/** The same where there is memory for it: zeroed. */
void round_job_init(struct round *round, struct round_job *job, enum round_work work,
                    size_t values);
void round_job_submit(struct round *round, struct round_job *job);
/** The same for a settlement, which waits while the round is held. */
void round_settle_submit(struct round *round, struct round_job *job);
/** So many rounds of the ramp are over. */
void round_set_ramp(struct round *round, uint32_t rounds);
void round_job_free(struct round_job *job);
void round_jobs_clear(struct round_jobs_list *jobs);

/* promises.c */
/** Before anything is promised in the round that begins. False: no memory. */
MUST_USE bool round_reserve(struct round *round);
/** As round_job_create(), for what follows from a promise. */
struct round_job *round_job_promised(struct round *round, enum round_work work, size_t values);
/** [values]; NULL: more than was promised, and no memory. */
float *round_plane_promised(struct round *round);
void round_plane_back(struct round *round, float *plane);
void round_reserve_deinit(struct round *round);
/** A slot for a pair round in doubt; NULL: all are taken, or no memory. */
struct round_doubt *round_doubt_add(struct round *round, const struct round_key *key);
/** What became of it: committed ones wait to be applied, the others are forgotten. */
void round_doubt_over(struct round *round, const struct command_over *over);
/** The chunks that count, one bit each, into memory for all of the plane's. */
void round_bitmap_take(const struct round *round, const struct command_over *over, uint8_t *bitmap);
void round_doubt_clear(struct round *round, struct round_doubt *doubt);
/** Its difference may be in the hands of a job: that job's end then clears it. */
void round_doubt_drop(struct round *round, struct round_doubt *doubt);

/* trace.c */
/** After what the exchange said was done: has a round begun, or come to nothing? */
void round_trace(struct round *round);
/** All know who takes part. */
void round_trace_formed(struct round *round);
void round_trace_over(struct round *round, const struct command_over *over);

/* held.c */
void round_hold_plane(struct round *round, const struct round_key *key);
void round_release_plane(struct round *round, const struct round_key *key);
/** Clear what was released, once nobody reads it. */
void round_held_sweep(struct round *round);
void round_absorb_plane(struct round *round, const struct round_key *key);
void round_held_run(struct round *round, struct round_job *job);
void round_held_done(struct round *round, struct round_job *job);
void round_held_deinit(struct round *round);

#endif

/*
 * round: the journey of a tensor from this replica to its neighbours and back. It is the only place
 * that composes the stages: snapshot, codec, links, rule, apply. The exchange (a pure machine)
 * decides; this module does what it says and reports.
 *
 * Loop thread; the heavy parts run as jobs of the exchange lane. After any call, and on
 * on_change, the node asks round_wants_snapshot() and round_has_difference().
 */
#ifndef GRAPEVINE_PEER_ROUND_ROUND_H
#define GRAPEVINE_PEER_ROUND_ROUND_H

#include "kernels/snapshot.h"
#include "averaging/codec/mask.h"
#include "averaging/strategy/strategy.h"
#include "gossip/flow/credit.h"
#include "base/log.h"
#include "peer/round/audit.h"
#include "peer/round/recorder.h"
#include "peer/env/env.h"
#include "peer/link/link.h"

struct round;

enum { ROUND_HELD_MAX = 8 };

struct round_options {
    struct env *env; /* borrowed, as are the next two */
    struct links *links;
    const struct strategy *strategy;
    const struct log *log;
    size_t values;     /* of the plane */
    size_t parameters; /* of these, in front: what the consensus distance is of */
    size_t model;      /* of these, in front: parameters and statistics; the rest is the optimizer's
                          or a tracker's. 0: all */
    size_t outputs;    /* the plane holds distributions of so many values; 0: it does not */
    const struct masks *masks; /* what a round carries; borrowed. NULL: all of the plane */
    const char *moments; /* whose moments these are: others' do not mix. NULL: there are none */
    struct peer_id self;
    struct boot_id boot;
    struct digest schema;
    uint64_t seed;
    uint64_t cost_ns_per_value; /* of modelled jobs; 0: default */
    uint64_t rate_max;          /* bytes a second that the user allows; 0: no limit */
    struct snapshot *snapshot;  /* of a learner on a device, sealed by the caller in place of
                                   exporting; borrowed. NULL: there is none */
    struct audit *audit;        /* NULL: nobody watches */
    bool keeps_last;            /* for round_last_agreed() */
    void *context;
    void (*on_change)(void *context); /* a job was done: ask again what is wanted */
    /** A member failed us or misbehaved (negative), kept its word in a round (positive), or refused
     * our values in a round that ran, as too far from its own (0). */
    void (*on_score)(void *context, struct peer_id peer, enum score_reason score);
    enum standing (*standing)(void *context,
                              struct peer_id peer); /* see exchange.h; NULL is fine */
    uint32_t (*credit)(void *context, uint32_t out, uint32_t wanted); /* likewise */
    uint64_t (*line)(void *context, struct peer_id peer);             /* likewise */
    uint64_t (*answer_ns)(void *context, struct peer_id peer);        /* likewise */
};

/* What guards did (averaging/core/robust.h, averaging/aggregate): chunks in groups and pushes,
 * planes in rounds of two and of neighbours. */
struct round_guard {
    uint64_t judged;  /* contributions; of an aggregate our own, too */
    uint64_t reduced; /* of these, clipped or left out */
    uint64_t refused; /* chunks that the gate let in to nothing, as absurd or not finite */
    uint64_t means, means_refused; /* of parts that others own; of these, not taken over */
};

struct round_stats {
    struct round_guard guard;
    struct exchange_counts counts;
    double distance; /* last norm of (agreed - own), an estimate of the consensus distance */
    bool has_distance;
    uint64_t last_ns; /* length of the last committed round */
    uint64_t chunks_refused;
    uint32_t last_members;
    uint64_t last_round; /* groups: number of the last whose difference was applied */
    bool is_last_whole;  /* of it nothing was lost */
    uint64_t mixed;      /* rounds whose difference was applied */
    uint64_t unagreed;   /* of these: with a mean that we did not take over */
};

/** NULL when out of memory. Copies `options`. */
struct round *round_create(const struct round_options *options);
/** No job may be running in a thread; jobs a dead env never finished are freed here. */
void round_destroy(struct round *round);

/** Begin a round with `members` (see exchange.h). RC_BUSY while one is under way. */
MUST_USE enum rc round_begin(struct round *round, const struct round_members *members,
                             uint64_t samples);
/** Between rounds, in the training lane: what a pull of the model `own` [values] towards the rule's
 *  centre adds to it. False: there is no centre. */
bool round_pull(const struct round *round, const float *own, float *difference);
/** Give up what runs; the others are told. `reason`: a string literal. */
void round_cancel(struct round *round, const char *reason);
bool round_is_active(const struct round *round);
/** Others count on a snapshot of ours that is not taken yet, or may do so in a moment. */
bool round_is_forming(const struct round *round);
/** A round begun now would join what another peer proposes. */
bool round_is_invited(const struct round *round);
/** While it is: who that is. */
struct peer_id round_inviter(const struct round *round);
/** Its members are settled and it waits for this peer's snapshot. */
bool round_has_started(const struct round *round);
/** Between two of the node's jobs: see exchange.h, is_busy. */
void round_set_busy(struct round *round, bool is_busy);
/** round_begin() may do something. */
bool round_may_begin(const struct round *round);
/** A snapshot was taken whose result is not applied yet. */
bool round_has_snapshot(const struct round *round);
/** Rounds are for models of this lineage from here on. */
void round_set_lineage(struct round *round, struct digest lineage);
void round_set_number(struct round *round, uint64_t number);

void round_on_message(struct round *round, struct peer_id from, const struct message *message);
/** RC_STALE: of a round that is over. Other errors: it was not allowed to send this. */
enum rc round_on_data(struct round *round, struct peer_id from, const struct inner_header *header,
                      const uint8_t *body, size_t count);
/** What others have been allowed to send for rounds. */
struct credit_use round_credit_use(const struct round *round);
void round_on_link_up(struct round *round, struct peer_id peer, struct boot_id boot);
void round_on_link_lost(struct round *round, struct peer_id peer);
void round_tick(struct round *round);
uint64_t round_next_ns(const struct round *round);

/** A snapshot is due at the next step border. The caller exports SECTION_MIXED into
 *  round_snapshot_buffer(), or takes and seals options.snapshot, in a job of the training lane,
 * then calls round_on_snapshot(). */
bool round_wants_snapshot(const struct round *round);
/** NULL: no memory; then round_on_snapshot() with RC_NOMEM follows all the same. */
float *round_snapshot_buffer(struct round *round);
void round_on_snapshot(struct round *round, enum rc rc);
/** Before that, where a tracker is exchanged: the largest norm of a chunk of our gradients since.
 */
void round_on_gradient(struct round *round, float largest);
/** Before that: of which step of the model it is. `is_last`: there will be no other. */
void round_on_step(struct round *round, uint64_t step, bool is_last);
/** It is worth no copy: with a codec that is as quick, the values are encoded where they lie, or
 *  those that the round carries are gathered from there. */
bool round_encodes_live(const struct round *round);
/** In that job, after the export: the first `count` values are not in the buffer, but at `live`.
 *  Only of a round that encodes live may count be above 0. Errors are for round_on_snapshot(). */
MUST_USE enum rc round_take(struct round *round, const float *live, size_t count);

/** Keep what group rounds agree on, the same bits for all members, until the next is settled; but
 *  once there is one of round `until` or later, that one stays. False: forget it. Pair rounds agree
 *  on nothing. */
void round_keep_agreed(struct round *round, bool wants, uint64_t until);
/** Hands over the plane [values] (free it with mem_free()) and its round's number; NULL: none yet,
 *  or none of round `least` or later. */
float *round_take_agreed(struct round *round, uint64_t least, uint64_t *number);

/** What the last group round agreed on, as of round_take_agreed(), if that was round `number`;
 * NULL: it was not. Only with options.keeps_last. */
const float *round_last_agreed(const struct round *round, uint64_t number);

/** A settled difference [values] waits for the apply step; after it, round_applied(). Where the
 *  round did not go it is -0. */
bool round_has_difference(const struct round *round);
/** In the apply step, before the difference is taken: the model as it is now goes there, and then
 *  to round_blend(), as for round_take(). NULL: what steps added meanwhile counts whole. */
float *round_blend_buffer(struct round *round);
void round_blend(struct round *round, const float *live, size_t count);
const float *round_difference(const struct round *round);
void round_applied(struct round *round);

/** The model was replaced at a step border: what was computed for the old one must not touch it.
 *  Nothing may be applied at this moment. */
void round_discard(struct round *round);
/** What this peer kept between rounds is lost: methods whose sum over the swarm is then not zero
 * begin anew, everywhere. */
void round_restart(struct round *round);
/** How often what a method keeps between rounds became void, so far. */
uint64_t round_restarts(const struct round *round);
/** Something counts, as the exchange keeps for those who ask, and the model lacks it: a checkpoint
 *  taken now would say that it was applied. */
bool round_is_settling(const struct round *round);

/** While held, nothing is settled, so what the rule keeps between rounds stands still: for a
 *  checkpoint, which reads it from another thread. */
void round_hold(struct round *round, bool is_held);
/** See rule.h: state and restore. The planes may be read while the round is held; restore before
 *  the first round. */
size_t round_rule_state(const struct round *round, const float *planes[RULE_STATE_MAX]);
/** After round_discard(): the model is a copy, and may be old: the first pair rounds give little
 *  weight, to this peer's model at its partners and to theirs here, so that means stay. */
void round_begin_ramp(struct round *round);
/** After round_discard(): what the rule begins the next round with, planes of `values` each, of
 *  another member. Takes them; where they do not fit the rule or the plane it begins anew. */
void round_rule_adopt(struct round *round, float *const *planes, size_t count, size_t values);
/** The same, and no next round is waited for: of who is in none. */
void round_rule_adopt_now(struct round *round);
/** What this peer has not told yet of its differences, [values], with what round_rule_state()
 * gives; NULL: there is no such thing. restore: NULL is fine; RC_SHAPE: this method has none. */
const float *round_residual(const struct round *round);
MUST_USE enum rc round_residual_restore(struct round *round, const float *residual);
MUST_USE enum rc round_rule_restore(struct round *round, const float *const *planes, size_t count);

/** Planes [values] of the shares that round_save() lists, in its order. They may be read while the
 *  round is held. False: one is not at hand, and the shares must not be saved. */
bool round_held_planes(const struct round *round, const float *planes[ROUND_HELD_MAX],
                       size_t *count);
/** After round_load(). RC_SHAPE: not as many as it listed. */
MUST_USE enum rc round_held_restore(struct round *round, const float *const *planes, size_t count);

/** Jobs submitted and not yet done: an env may stop only at 0. */
uint32_t round_jobs(const struct round *round);
void round_stats(const struct round *round, struct round_stats *stats);
const struct recorder *round_recorder(const struct round *round);
/** Why the last round with `peer` failed, a string literal; NULL: it did not. */
const char *round_last_failure(const struct round *round, struct peer_id peer);
/** See exchange.h: outcome and told. False, or RC_STALE: this exchange has nothing to say. */
bool round_outcome(const struct round *round, const struct round_key *key,
                   struct peer_id participant, enum outcome_state *state);
MUST_USE enum rc round_told(struct round *round, const struct round_key *key,
                            enum outcome_state state);
/** What a checkpoint keeps of the exchange. */
MUST_USE enum rc round_save(const struct round *round, uint8_t **bytes, size_t *count);
MUST_USE enum rc round_load(struct round *round, const uint8_t *bytes, size_t count);

#endif

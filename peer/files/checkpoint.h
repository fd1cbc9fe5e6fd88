/*
 * checkpoint: what a peer keeps of itself on disk. `state.safetensors` holds everything needed to
 * go on to the bit (parameters, optimizer, random streams, data position, lineage, unacknowledged
 * outcomes); `model.safetensors` is for people and for eval. Each is replaced atomically. What is
 * given up for another model goes into `state.before.safetensors` and `model.before.safetensors`.
 */
#ifndef GRAPEVINE_PEER_FILES_CHECKPOINT_H
#define GRAPEVINE_PEER_FILES_CHECKPOINT_H

#include "averaging/rule/rule.h"
#include "averaging/strategy/period.h"
#include "peer/env/env.h"
#include "peer/round/round.h"
#include "replica/learners/learner.h"
#include "replica/plane/store_safetensors.h"

#define CHECKPOINT_STATE_FILE "state.safetensors"
#define CHECKPOINT_MODEL_FILE "model.safetensors"
/* What was given up for another model, until a later one is. */
#define CHECKPOINT_STATE_BEFORE "state.before.safetensors"
#define CHECKPOINT_MODEL_BEFORE "model.before.safetensors"

enum { CHECKPOINT_METHOD_BYTES = 32 };

/* Of population-based training. */
struct checkpoint_population {
    bool is_there;
    double rate, decay;
    uint64_t line, copies;
};

/* What belongs to the peer rather than to its learner. */
struct checkpoint {
    struct digest lineage;
    char method[CHECKPOINT_METHOD_BYTES]; /* strategy.h's name of who averages; "": not said */
    uint64_t model_samples;               /* behind the model, before and with us */
    uint64_t round;                       /* next group round */
    uint64_t own_steps;  /* taken by this peer itself, over restarts: what goals count */
    bool is_given_up;    /* for a save: another model takes its place */
    bool has_input;      /* after a load: how the input is normalised was in it */
    uint64_t once_steps; /* one-shot: own_steps when its one average was made; 0: it was not */
    struct checkpoint_population population;
    bool has_period; /* a period that follows the loss */
    struct period period;
    uint8_t *exchange; /* exchange_ops.save, from mem_*; may be NULL */
    size_t exchange_bytes;
    /* What the averaging rule keeps between rounds, planes of rule_values each (rule.h). */
    const float *rule[RULE_STATE_MAX];
    float *rule_owned; /* after a load: the memory of all of them, from mem_*; else NULL */
    size_t rule_count, rule_values;
    /* What its differences lack still (round_residual()), likewise; one plane or none. */
    const float *residual[1];
    float *residual_owned;
    size_t residual_count;
    /* Shares under way that `exchange` lists (round_held_planes()), of rule_values each. */
    const float *held[ROUND_HELD_MAX];
    float *held_owned; /* after a load, as rule_owned */
    size_t held_count;
};

/** Writes the model file's tensors and card into `file`; NULL hook: no model file. */
typedef enum rc (*checkpoint_model_fn)(void *context, struct learner *learner,
                                       struct tensor_file *file);

/** Training lane (or before the loop runs): both files through the env's store. */
MUST_USE enum rc checkpoint_save(struct env *env, struct learner *learner,
                                 const struct checkpoint *checkpoint, checkpoint_model_fn model,
                                 void *context, struct fault *why);
/** RC_NOT_FOUND: nothing there, a fresh start. Anything else: damaged or of another model; `why`
 *  says what to do. On RC_OK the learner goes on where the checkpoint was taken. */
MUST_USE enum rc checkpoint_load(struct env *env, struct learner *learner,
                                 struct checkpoint *checkpoint, struct fault *why);
/** The bytes of the state file, from mem_*, for who keeps them elsewhere. Training lane, likewise.
 *  RC_NONFINITE, RC_NOMEM, what the learner says. */
MUST_USE enum rc checkpoint_encode(struct learner *learner, const struct checkpoint *checkpoint,
                                   uint8_t **bytes, size_t *count, struct fault *why);
/** What these bytes say, decoded: as checkpoint_load(), RC_FORMAT if they are of something else. */
MUST_USE enum rc checkpoint_take(const struct tensor_file *file, struct learner *learner,
                                 struct checkpoint *checkpoint, struct fault *why);
void checkpoint_deinit(struct checkpoint *checkpoint);

#endif

/* member: what the files of the library share: a member, its tensors and its trainer. */
#ifndef GRAPEVINE_LIBRARY_MEMBER_H
#define GRAPEVINE_LIBRARY_MEMBER_H

#include "include/grapevine.h"
#include "peer/session/session.h"
#include "library/external.h"

#include <pthread.h>
#include <sys/types.h>

/* What the trainer's thread asks of the loop's. */
enum member_call { CALL_NONE, CALL_STATUS, CALL_JSON, CALL_LEAVE, CALL_STATE, CALL_STOP };

/* A tensor as it was described, at its place in the flat vector. */
struct member_tensor {
    gv_tensor of; /* its name is the caller's, and gone */
    size_t at, count;
};

struct gv_member {
    struct session session; /* first: the trainer's functions cast back */
    struct options *options;
    struct fault why;
    pid_t process;
    pthread_t caller, loop;
    struct member_tensor *tensors; /* parameters and buffers in the schema's order */
    size_t tensors_count, parameters, buffers_count;
    struct schema schema; /* until the learner has it */
    float *buffers;       /* [buffers_count]: scratch of an apply step */
    int bell;             /* rung for the loop: there is a call */
    pthread_mutex_t lock; /* covers the rest */
    pthread_cond_t answered;
    enum member_call call;
    struct node_report report; /* the answers */
    char *json;
    uint8_t *state; /* of GV_STATE; NULL: it cannot be had, and why */
    size_t state_bytes;
    struct fault state_why;
    bool is_started, has_loop, loop_is_over, has_failed;
};

/* library/member.c */
/** 0, or why the call `name` may not be made now: it is in gv_last_error(). */
MUST_USE int member_enter(struct gv_member *member, const char *name);
/** `error`, which is what the call `name` says, with `what` for gv_last_error(). */
int member_refuse(struct gv_member *member, int error, const char *name, const char *what);
int member_error(enum rc rc);
/** What of an event is an error. */
int member_event(struct gv_member *member, enum external_event event);
/** From the trainer's thread: the answer is there on return. */
void member_call(struct gv_member *member, enum member_call call);

/* library/state.c: of struct node_events. */
void member_on_state(void *context, uint8_t *bytes, size_t count, const struct fault *why);

/* library/trainer.c */
extern const struct session_trainer member_trainer;
/** Settings that the program decides itself. RC_USAGE names the first that was given. */
MUST_USE enum rc member_check_options(const struct options *options, struct fault *why);
/** member->schema, the meaning of which is that of native peers with --model, and the tensors in
 *  its order. RC_USAGE, RC_NOMEM, and what opening the data may say. */
MUST_USE enum rc member_describe(struct gv_member *member, const gv_tensor *tensors, size_t count,
                                 struct fault *why);

/* library/values.c: between tensors and flat vectors. Those below need values_are_here(). */
/** Every tensor has memory of the host's. */
bool values_are_here(const struct gv_member *member);
/** A NULL vector: not that part. RC_NONFINITE: a half is no number. */
MUST_USE enum rc values_read(const struct gv_member *member, float *parameters, float *buffers);
/** Overwrite with what is not NULL. */
void values_write(const struct gv_member *member, const float *parameters, const float *buffers);
/** parameters += difference. RC_NONFINITE likewise: what comes behind is as it was. */
MUST_USE enum rc values_add(const struct gv_member *member, const float *difference);

#endif

/* member: what the files of the library share: a member, its tensors and its trainer. */
#ifndef GRAPEVINE_LIBRARY_MEMBER_H
#define GRAPEVINE_LIBRARY_MEMBER_H

#include "include/grapevine.h"
#include "peer/session/session.h"
#include "library/external.h"

#include <pthread.h>
#include <sys/types.h>

/* What the trainer's thread asks of the loop's. */
enum member_call { CALL_NONE, CALL_STATUS, CALL_JSON, CALL_LEAVE, CALL_STOP };

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
    bool is_started, has_loop, loop_is_over, has_failed;
};

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

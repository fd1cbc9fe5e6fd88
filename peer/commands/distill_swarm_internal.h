/* distill_swarm_internal: what the files share that ask a swarm for teachers. Nobody else includes
 * it. */
#ifndef GRAPEVINE_PEER_COMMANDS_DISTILL_SWARM_INTERNAL_H
#define GRAPEVINE_PEER_COMMANDS_DISTILL_SWARM_INTERNAL_H

#include "peer/commands/distill_swarm.h"

#include "base/json.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"
#include "peer/watch/survey.h"

/* All of one run. */
struct asking {
    struct options *options;
    struct backend *backend;
    struct progress *progress;
    struct distill_swarm *out;
    struct fault *why;
    const char *out_path;              /* the student's */
    const volatile sig_atomic_t *stop; /* the signal to stop, once it came */
    struct swarm_secret secret;
    struct json *status;
    uint32_t *order; /* of all training samples */
};

/* distill_swarm.c */
enum rc asking_no_memory(struct asking *a);
/** Visit all members with an inquiry. */
MUST_USE enum rc asking_survey(struct asking *a, struct inquiry *inquiry);
/** Samples of a window of those that are asked about, which fits into memory. */
uint32_t asking_window(const struct asking *a);
/** RC_CANCELLED once a signal to stop came. */
MUST_USE enum rc asking_go_on(struct asking *a);
/** Load the window from sample `first` on of the asked ones. As asking_go_on(). */
MUST_USE enum rc asking_load(struct asking *a, uint64_t first, struct samples *samples);
/** Nobody has given what was asked for; `what` is that, `advice` what to do. */
enum rc asking_in_vain(struct asking *a, const char *what, const char *advice);
/** "." where there is none. */
void asking_folder(const struct asking *a, char *folder, size_t cap);

/* distill_predictions.c: what their models say */
MUST_USE enum rc asking_predictions(struct asking *a);
/* distill_models.c: their models */
MUST_USE enum rc asking_models(struct asking *a);

#endif

/* distill_swarm: the teachers of `distill --swarm`: members of a running swarm, asked for what
 * their models say of the training samples that the student is to learn from, or for the models. */
#ifndef GRAPEVINE_PEER_COMMANDS_DISTILL_SWARM_H
#define GRAPEVINE_PEER_COMMANDS_DISTILL_SWARM_H

#include "distill/distill.h"
#include "gossip/wire/limits.h"
#include "peer/cli/progress.h"
#include "peer/download/fetch.h"

#include <signal.h>

enum { DISTILL_LABELS_BYTES = 4096, DISTILL_PATH_BYTES = 4096 };

/* A member, and how good its model was on the samples that the student learns from. */
struct distill_member {
    char address[ADDRESS_BYTES_MAX];
    enum inquiry_state state;
    char why[FETCH_WHY_BYTES]; /* its part is not all there; "": it is */
    uint32_t answered;         /* samples */
    uint64_t step;             /* of its model */
    double accuracy;           /* by their labels; NaN: there are none, or it gave nothing */
    double distance; /* from what all say together: mean total variation, in [0, 1]; NaN: likewise,
                        or there is its model */
};

struct distill_swarm {
    struct distill_panel panel; /* predictions; of models only how the data are opened */
    struct dataset *dataset;
    char labels[DISTILL_LABELS_BYTES];
    struct distill_member *members;      /* [members_count] */
    uint32_t members_count, passed_over; /* of a swarm too large to ask all */
    uint32_t answered;                   /* members whose answers, or models, count */
    uint64_t asked;                      /* samples */
    uint64_t bounded; /* of those learned from: with 2 trim + 1 answers or more */
    uint32_t trim;
    double accuracy; /* of all together, as above */
    /* The models, in a passing folder that goes with all of this. */
    bool has_models;
    char folder[DISTILL_PATH_BYTES]; /* "": there is none */
    char **paths;                    /* [answered] */
    const char **names;              /* [answered]: addresses of their members */
};

/** Ask the swarm at --swarm, once it is known that the student can be built: with `swarm->trim`,
 * all else in it is set here. Sets what was not given of --data, --seed as the swarm has it.
 * Answers are kept in a file without a name beside `out`, models in a folder there. On an error
 * nothing is left. */
MUST_USE enum rc distill_swarm_ask(struct options *options, struct backend *backend,
                                   const char *out, struct progress *progress,
                                   const volatile sig_atomic_t *stop, struct distill_swarm *swarm,
                                   struct fault *why);
void distill_swarm_deinit(struct distill_swarm *swarm);
/** What --json says of it. */
struct json *distill_swarm_json(const struct distill_swarm *swarm);
/** The same as lines. */
void distill_swarm_print(const struct distill_swarm *swarm);

#endif

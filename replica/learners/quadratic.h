/*
 * quadratic: a learner with a known optimum, so that the simulator can run thousands of peers and
 * say exactly how far they are. Peer i minimises f_i(x) = h/2 ||x - c_i||^2 by gradient steps with
 * Gaussian noise. The optimum of the mean of all f_i is the mean of their centres c_i, which are
 * drawn around 0: by the loss h/2 ||x||^2 all validate alike.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_QUADRATIC_H
#define GRAPEVINE_REPLICA_LEARNERS_QUADRATIC_H

#include "replica/learners/learner.h"
#include "replica/learners/mutual.h"

#include <stddef.h>
#include <stdint.h>

struct quadratic_options {
    size_t values;        /* length of x, one tensor named "x"; > 0 */
    double curvature;     /* h > 0; steps converge while learning_rate * h < 2 */
    double noise;         /* deviation of each value of the gradient, nearly normal */
    double learning_rate; /* > 0 */
    uint64_t seed;        /* x at the start, standard normal: the same for all peers of a swarm */
    uint64_t stream_seed; /* this peer's centre and noise */
    double centre_spread; /* standard deviation of each value of the centre; 0: all peers agree */
    const struct mutual_options *mutual; /* see below; NULL: rounds mix x. Copied */
};

/* With `mutual` rounds mix answers (mutual.h), which here are x itself: peer i then minimises
 * f_i(x)
 * + weight/2 ||x - t||^2, or with `relabels` (1 - weight) f_i(x) + weight/2 ||x - t||^2 for some
 * steps after each round, t being the mean of all x in that round. Its SECTION_MIXED is x, and
 * SECTION_PARAMETERS is t. */

/** RC_NOMEM. No MOMENTS, no BUFFERS; accuracy is NaN; a shard is always QUADRATIC_SHARD_SAMPLES. */
MUST_USE enum rc quadratic_create(const struct quadratic_options *options,
                                  struct learner **learner);
/** Where it is, x [values], also where its sections are others. */
const float *quadratic_point(const struct learner *learner);
/** The centre c_i [values], for tests that want to know the optimum. */
const float *quadratic_centre(const struct learner *learner);

enum { QUADRATIC_SHARD_SAMPLES = 256 };

#endif

/* spy: learners of a cluster's peers with some operations of the test's own in front of theirs. */
#ifndef GRAPEVINE_TESTS_SIM_SPY_H
#define GRAPEVINE_TESTS_SIM_SPY_H

#include "tests/check.h"

#include "base/check.h"
#include "replica/learners/quadratic.h"

enum { SPY_PEERS_MAX = 8 };

struct spy {
    struct learner_ops originals, ops; /* `ops`: replace in it what is to be seen or done */
    struct learner *learners[SPY_PEERS_MAX];
};

static inline uint32_t spy_number(const struct spy *spy, const struct learner *learner)
{
    uint32_t i = 0;

    while (spy->learners[i] != learner) {
        i++;
    }
    return i;
}

/** All learners of one spy are of one kind. */
static inline struct learner *spy_on(struct spy *spy, uint32_t peer, struct learner *learner)
{
    CHECK(peer < SPY_PEERS_MAX);
    spy->originals = spy->ops = *learner->ops;
    spy->learners[peer] = learner;
    learner->ops = &spy->ops;
    return learner;
}

/** The toy. */
static inline struct learner *spy_on_toy(struct spy *spy, uint32_t peer, size_t values, double rate)
{
    const struct quadratic_options options = {.values = values,
                                              .curvature = 1,
                                              .learning_rate = rate,
                                              .noise = 0.1,
                                              .seed = 1,
                                              .stream_seed = peer};
    struct learner *learner;

    assert_int_equal(quadratic_create(&options, &learner), RC_OK);
    return spy_on(spy, peer, learner);
}

#endif

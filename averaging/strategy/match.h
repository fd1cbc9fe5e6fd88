/* strategy_match: what of a strategy goes together; private to averaging/strategy. */
#ifndef GRAPEVINE_AVERAGING_STRATEGY_MATCH_H
#define GRAPEVINE_AVERAGING_STRATEGY_MATCH_H

#include "averaging/strategy/methods.h"

static inline bool strategy_is_given(const char *spec)
{
    return spec != NULL && spec[0] != '\0';
}

/** The topology of `specs`, or the one that suits method and exchange; an exchange that was not
 *  given follows the topology. RC_PARSE, RC_USAGE with the reason. */
MUST_USE enum rc strategy_match_topology(const struct strategy_specs *specs,
                                         const struct method *method, struct strategy *strategy,
                                         struct fault *why);
/** The rule, where none was given, follows the exchange. */
void strategy_follow_exchange(const struct strategy_specs *specs, struct strategy *strategy);
/** Everything else, once all coordinates are known. RC_USAGE: two do not go together. */
MUST_USE enum rc strategy_match(const struct strategy_specs *specs, const struct method *method,
                                struct strategy *strategy, struct fault *why);

#endif

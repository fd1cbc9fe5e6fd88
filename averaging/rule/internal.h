/* rule_internal: what the outer rules take from the mean; private to averaging/rule. */
#ifndef GRAPEVINE_AVERAGING_RULE_INTERNAL_H
#define GRAPEVINE_AVERAGING_RULE_INTERNAL_H

#include "averaging/rule/rule.h"

/** The agreed values of the grain at `first`, a multiple of RULE_GRAIN; NULL: nothing is agreed
 *  there. They stay readable after settle(), until the next begin(). */
const float *rule_mean_agreed(const struct rule *rule, size_t first);

#endif

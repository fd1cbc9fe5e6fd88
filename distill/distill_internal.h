/* The inside of distill.c, distill_lineup.c and distill_result.c. Nobody else includes it. */
#ifndef GRAPEVINE_DISTILL_DISTILL_INTERNAL_H
#define GRAPEVINE_DISTILL_DISTILL_INTERNAL_H

#include "distill/distill.h"

/** One row a model into `out->lineup`. */
MUST_USE enum rc distill_make_lineup(struct judge *judge, const struct distill_options *options,
                                     struct distill_result *out, struct fault *why);
/** By accuracy, or by loss where there is none. */
bool distill_is_better(const struct evaluation *a, const struct evaluation *b);

#endif

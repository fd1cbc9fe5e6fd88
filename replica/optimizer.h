/*
 * optimizer: how a gradient changes the parameters: `sgd`, `momentum`, `nesterov`, `adam` with
 * `name:key=value,...`. The arithmetic is the backend's; here are the names, the defaults and the
 * numbers of one step. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_OPTIMIZER_H
#define GRAPEVINE_REPLICA_OPTIMIZER_H

#include "base/fault.h"
#include "base/rc.h"
#include "kernels/backend.h"

struct optimizer {
    enum update_kind kind;
    double lr;      /* base rate, > 0; the schedule scales it */
    double beta;    /* momentum; adam's beta1 */
    double beta2;   /* adam */
    double epsilon; /* adam */
    double decay;   /* coupled weight decay */
};

/** RC_PARSE with the column. */
MUST_USE enum rc optimizer_parse(const char *text, struct optimizer *optimizer, struct fault *why);
const char *optimizer_name(enum update_kind kind);
/** Moment planes of the parameters' size that it keeps: 0, 1 or 2. */
uint32_t optimizer_planes(enum update_kind kind);
/** The update number `count` (from 1) at `rate`. */
struct update optimizer_update(const struct optimizer *optimizer, double rate, uint64_t count);

#endif

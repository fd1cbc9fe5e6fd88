/* lazy: a replica that says that it takes steps, and does something else. One at a time. */
#ifndef GRAPEVINE_TESTS_SIM_LAZY_H
#define GRAPEVINE_TESTS_SIM_LAZY_H

#include "replica/learners/learner.h"

enum lie { HONEST, SLEEPS, NOISE, ONE_IN_TEN, OLD_STEP, OTHER_DATA, LIES };

/** From here on it does so; HONEST: it stays as it is. */
void lazy_make(struct learner *learner, enum lie lie);
/** What is kept of the last one. */
void lazy_forget(void);
const char *lazy_name(enum lie lie);

#endif

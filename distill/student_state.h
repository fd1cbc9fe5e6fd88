/*
 * student_state: what a student in training keeps on disk beside its file to be, so that who is
 * killed or stopped goes on where it was, to the bit: parameters, statistics, optimizer, random
 * streams, the place in the data (replica.h's save), and the digest of the question, of all that
 * the training hangs on. A state of another question is no state. Replaced as one, as every file.
 * Blocking file access: commands only.
 */
#ifndef GRAPEVINE_DISTILL_STUDENT_STATE_H
#define GRAPEVINE_DISTILL_STUDENT_STATE_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/rc.h"
#include "replica/learners/learner.h"

/** Between steps. RC_DISK_FULL, RC_IO, RC_NOMEM: what was there before still is. */
MUST_USE enum rc student_state_save(const char *path, struct learner *student,
                                    struct digest question, struct fault *why);
/** On RC_OK the student goes on where the state was taken; on anything else it is as it was:
 *  RC_NOT_FOUND, RC_MISMATCH (another question), RC_FORMAT and others (damaged). */
MUST_USE enum rc student_state_load(const char *path, struct learner *student,
                                    struct digest question, struct fault *why);
void student_state_remove(const char *path);

#endif

/*
 * answers: what an ensemble of teachers says about training samples. Each teacher is asked about
 * each sample once and the answers are kept, as long as they fit into a limit; then the teachers
 * are gone before the student starts. Answers to long texts do not fit (a probability per symbol at
 * each step): there the teachers stay in memory and answer batch by batch, as often as a sample
 * comes.
 */
#ifndef GRAPEVINE_DISTILL_ANSWERS_H
#define GRAPEVINE_DISTILL_ANSWERS_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/ensemble.h"
#include "distill/work.h"
#include "replica/data/dataset.h"

struct backend;

enum {
    ANSWERS_BYTES_MAX = 256 << 20, /* of kept answers */
    ANSWERS_TEACHERS_MAX = 16      /* that stay in memory instead */
};

struct answers_options {
    const char *const *teachers;
    size_t teachers_count;
    const double *weights; /* [teachers_count], borrowed; NULL: equal ones */
    const struct dataset_info *info;
    const struct samples *samples; /* that may be asked about */
    enum vote vote;                /* real values: VOTE_MEAN */
    double temperature;
    uint32_t batch;   /* samples asked about at a time, at most */
    size_t bytes_max; /* instead of ANSWERS_BYTES_MAX; 0: that */
    /** As it goes: samples that teachers answered, or, where these are not kept, teachers in
     *  memory; of how many. May be NULL. */
    work_told on_progress;
    void *context;
};

struct answers;

/** RC_LIMIT: too many teachers for answers too large; else as comparison_load(). Keeps what
 *  `options` points to. */
MUST_USE enum rc answers_create(struct backend *backend, const struct answers_options *options,
                                struct answers **answers, struct fault *why);
void answers_destroy(struct answers *answers);
/** [pick.rows, rows, classes]: probabilities at the temperature, or real values, for the picked
 *  samples. RC_NONFINITE, RC_DEVICE: a teacher failed. */
MUST_USE enum rc answers_get(struct answers *answers, struct pick pick, float *out);
/** Whether the answers are kept. */
bool answers_are_kept(const struct answers *answers);

#endif

/*
 * answers: what an ensemble of teachers says about training samples. Each teacher is asked about
 * each sample once, and what they say together is kept in a file (answer_file.h), however much it
 * is: by the time the student starts the teachers are gone. A file that answers the same question
 * (the teachers' bytes, the samples', how answers become one) is used again.
 *
 * Where the student sees augmented samples and teachers are to see the same (is_live), nothing can
 * be kept: teachers stay in memory and answer each batch as it comes, which costs a pass of each of
 * them for every pass of the student.
 */
#ifndef GRAPEVINE_DISTILL_ANSWERS_H
#define GRAPEVINE_DISTILL_ANSWERS_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/rc.h"
#include "distill/ensemble.h"
#include "distill/work.h"
#include "replica/data/dataset.h"

struct backend;

enum {
    ANSWERS_BYTES_MAX = 256 << 20, /* of sums over teachers while they are asked */
    ANSWERS_TEACHERS_MAX = 16,     /* that stay in memory at once */
    ANSWERS_TOP = 64,              /* of more than ANSWERS_ALL_MAX outputs so many are kept */
    ANSWERS_ALL_MAX = 256
};

struct answers_options {
    const char *const *teachers;
    size_t teachers_count;
    const double *weights; /* [teachers_count], borrowed; NULL: equal ones */
    bool by_confidence;    /* as of ensemble_options, with the next one */
    uint32_t trim;
    const struct dataset_info *info;
    const struct samples *samples; /* that may be asked about */
    enum vote vote;                /* real values: VOTE_MEAN */
    double temperature;
    bool is_hard;     /* the class they decide for, in place of probabilities; no real values */
    uint32_t top;     /* answers kept of each row, up to ANSWER_TOP_MAX; 0: as above */
    uint32_t batch;   /* samples asked about at a time, at most */
    bool is_live;     /* teachers see the batch's values, not the samples' */
    const char *path; /* the file; NULL: one that goes when the answers do */
    size_t bytes_max; /* instead of ANSWERS_BYTES_MAX; 0: that */
    /** As it goes: samples that teachers answered, or, where they stay, teachers in memory; of how
     *  many. May be NULL. */
    work_told on_progress;
    void *context;
    /** Whether to stop, RC_CANCELLED: what is there of the file stays, for a next try. NULL: no. */
    bool (*is_stopped)(void *context);
};

struct answers;

/** Of all that the answers hang on: teachers, samples, how many become one. Reads the teachers'
 *  files. */
MUST_USE enum rc answers_question(const struct answers_options *options, struct digest *question,
                                  struct fault *why);
/** RC_LIMIT: too many teachers to stay in memory; RC_DISK_FULL before any is asked; RC_USAGE:
 *  `path` is a file of another kind; else as comparison_load(). Keeps what `options` points to. */
MUST_USE enum rc answers_create(struct backend *backend, const struct answers_options *options,
                                struct answers **answers, struct fault *why);
void answers_destroy(struct answers *answers);
/** [pick.rows, rows, outputs]: probabilities at the temperature (of hard answers 1 and 0), or real
 *  values, for the picked samples. Not of live ones. RC_FORMAT: the file is damaged. */
MUST_USE enum rc answers_get(struct answers *answers, struct pick pick, float *out);
/** The same for a batch of these samples, of live answers by its values as they are. RC_NONFINITE,
 *  RC_DEVICE: a teacher failed. */
MUST_USE enum rc answers_of_batch(struct answers *answers, const struct batch *batch, float *out);
/** Whether they are of a file that was there already. */
bool answers_were_there(const struct answers *answers);

#endif

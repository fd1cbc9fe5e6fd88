/*
 * distill: train a student on what an ensemble of teachers says (Hinton, Vinyals, Dean 2015,
 * arXiv:1503.02531): a replica with this loss in place of its own. The teachers answer in
 * evaluation mode, with probabilities at temperature T; distill/answers.h says which answers are
 * kept. Loss, a sample or step of a text: (1 - a) CE(labels) + a T^2 KL(teacher_T || student_T).
 * Real values: the squared error against (1 - a) target + a mean(teachers), whose gradient is that
 * of the two errors mixed; T has no say. On request the same student, from the same weights, in the
 * same steps and order, is also trained on the labels alone (a = 0): what distilling has to be
 * better than. Labels may want another learning rate than teachers: it is trained at the student's
 * and at 1 / DISTILL_RATE_RATIO and DISTILL_RATE_RATIO times that, and the one that does best on
 * the test part counts.
 */
#ifndef GRAPEVINE_DISTILL_DISTILL_H
#define GRAPEVINE_DISTILL_DISTILL_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/comparison.h"
#include "replica/learners/learner.h"

struct backend;
struct json;

#define DISTILL_RATE_RATIO 2.5

enum distill_phase {
    DISTILL_JUDGING,  /* teachers on the test part: samples done */
    DISTILL_TEACHING, /* teachers on the training part: samples done */
    DISTILL_LEARNING, /* the student: steps done */
    DISTILL_BASELINE  /* the same on labels alone: steps done, of all its rates */
};

struct distill_progress {
    enum distill_phase phase;
    uint64_t done, total;
    double loss; /* mean of the batches since the last call; NaN where nothing is trained */
    uint32_t generation, generations; /* distill/generations.h: of so many; 0: it is none */
};

struct distill_options {
    const char *const *teachers;
    size_t teachers_count; /* at least 1 */
    enum vote vote;        /* real values: VOTE_MEAN, anything else is RC_USAGE */
    bool weighs_scores;    /* as of comparison_options */
    double temperature;    /* > 0 */
    double alpha;          /* in [0, 1] */
    const char *student;   /* preset or layer list */
    const char *data;      /* --data spec; NULL: what the first teacher was trained on */
    const char *tokenizer; /* file; NULL: as the first teacher states it */
    uint64_t samples_max;  /* of the training part, drawn by `seed`; 0: all */
    double epochs;         /* over these samples */
    uint32_t batch;
    const char *optimizer, *schedule; /* NULL: momentum (texts: as --model would), cosine */
    double lr;                        /* > 0 overrides the optimizer's */
    uint64_t seed;
    uint64_t student_seed; /* of its first weights and the order of samples; 0: `seed` */
    bool with_baseline;
    size_t answers_bytes_max; /* instead of ANSWERS_BYTES_MAX; 0: that */
    const char *out_path;     /* the student's file; NULL: not written */
    void (*on_progress)(void *context, const struct distill_progress *progress); /* may be NULL */
    void *context;
};

struct distill_result {
    struct comparison teachers; /* on the test part */
    enum vote vote;
    struct evaluation student;
    bool has_baseline;
    struct evaluation labels_only;
    double lr, labels_only_lr;
    uint64_t student_parameters, teacher_parameters; /* of the smallest teacher */
    uint64_t steps, samples, samples_all; /* taken; training samples used, and there are */
    double temperature, alpha;
    char student_spec[2048];
};

/** On an error nothing needs to be released, and no file was changed. Errors name the file or the
 *  flag. RC_NONFINITE: the student's loss ran away, or it gives all classes one answer though the
 *  teachers tell them apart; lower the learning rate. */
MUST_USE enum rc distill_run(struct backend *backend, const struct distill_options *options,
                             struct distill_result *out, struct fault *why);
void distill_result_deinit(struct distill_result *result);
/** Whether labels alone make a better student than the teachers, as far as was tried. */
bool distill_labels_win(const struct distill_result *result);
/** As printed by `distill --json`, without `wall_s`, which is the caller's. */
struct json *distill_json(const struct distill_result *result);

#endif

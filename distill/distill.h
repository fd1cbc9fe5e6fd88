/*
 * distill: train a student on what an ensemble of teachers says (Hinton, Vinyals, Dean 2015,
 * arXiv:1503.02531): a replica with this loss in place of its own, and all that training has
 * (threads, schedules, clipping, augmentation). The teachers answer in evaluation mode, with
 * probabilities at temperature T, once for each sample (distill/answers.h); or with the class they
 * decide for (hard targets), where T is 1. Loss, a sample or step of a text:
 * (1 - a) CE(labels) + a T^2 KL(teacher_T || student_T). Real values: the squared error against
 * (1 - a) target + a mean(teachers), whose gradient is that of the two errors mixed; T has no say.
 *
 * The samples may be those of another data set, without its labels (transfer; a = 1): the test part
 * and the labels of `data` then only judge. Where the student's images are augmented, teachers see
 * the same ones unless they are to see them plain (Beyer et al. 2022, arXiv:2106.05237).
 *
 * On request the same student, from the same weights and in as many steps, is also trained on the
 * labels alone (a = 0), all that there are: what distilling has to be better than. Labels may want
 * another learning rate than teachers: it is trained at the student's and at 1 / DISTILL_RATE_RATIO
 * and DISTILL_RATE_RATIO times that, and the one that does best on the test part counts.
 *
 * Beside OUT lie, until it is done, OUT.answers and OUT.state (of labels alone OUT.state.1 and so
 * on): who is stopped or killed goes on from there when asked for the same again.
 */
#ifndef GRAPEVINE_DISTILL_DISTILL_H
#define GRAPEVINE_DISTILL_DISTILL_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/comparison.h"
#include "distill/lineup.h"
#include "distill/panel.h"
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

/* Teachers that are not here: what members of a swarm said of the first training samples of the
 * seed's order (dataset_order()). They were not judged on the test part. */
struct distill_panel {
    struct panel *panel;         /* distill/panel.h */
    const char *data;            /* spec */
    struct dataset_options open; /* as the panel's samples were opened, with `seed` */
    const struct dataset_info *info;
    uint64_t samples; /* of the panel that are learned from */
};

struct distill_options {
    const char *const *teachers;
    size_t teachers_count;                 /* at least 1; 0 with a panel */
    const struct distill_panel *panel;     /* instead of teachers; NULL: there are those */
    enum vote vote;                        /* real values: VOTE_MEAN, anything else is RC_USAGE */
    bool weighs_scores, weighs_confidence; /* as of comparison_options, with the next one */
    uint32_t trim;                         /* of teachers that are files */
    double temperature;                    /* > 0 */
    double alpha;                          /* in [0, 1]; with `transfer`: 1 */
    bool is_hard;                          /* targets are the classes that teachers decide for */
    const char *student;                   /* preset or layer list */
    const char *data;      /* --data spec; NULL: what the first teacher was trained on */
    const char *transfer;  /* --data spec whose samples are used, without labels; NULL: of `data` */
    const char *tokenizer; /* file; NULL: as the first teacher states it */
    uint64_t samples_max;  /* of the training part, drawn by `seed`; 0: all */
    double epochs;         /* over these samples */
    uint32_t batch;
    const char *optimizer, *schedule; /* NULL: momentum (texts: as --model would), cosine */
    double lr;                        /* > 0 overrides the optimizer's */
    double clip;                      /* as of replica_options, with the next two */
    uint32_t accumulate;
    const char *augment;
    bool sees_plain; /* teachers: images as they are, whatever the student sees */
    uint64_t seed;
    const char *student_name;         /* in the table of all models; NULL: "student" */
    const char *const *teacher_names; /* likewise, [teachers_count]; NULL: by number */
    uint64_t student_seed;            /* of its first weights and the order of samples; 0: `seed` */
    bool with_baseline;
    uint32_t answers_top;      /* as of answers_options */
    const char *answers_path;  /* a file that is kept and used again; NULL: OUT.answers, removed */
    size_t answers_bytes_max;  /* instead of ANSWERS_BYTES_MAX; 0: that */
    const char *out_path;      /* the student's file; NULL: not written, and nothing kept */
    bool keeps_nothing;        /* to go on with: the same teachers are not to be had again */
    const char *const *others; /* further files for the table, NAME=FILE or FILE */
    size_t others_count;
    const char *command;      /* what makes the student again, for the table; NULL: not known */
    uint64_t (*now_ns)(void); /* for latencies and when to keep a state; NULL: no clock */
    bool (*is_stopped)(void *context);
    void (*on_progress)(void *context, const struct distill_progress *progress); /* may be NULL */
    void (*on_note)(void *context, const char *text); /* a line for people; may be NULL */
    void *context;
};

struct distill_result {
    struct comparison teachers; /* on the test part */
    enum vote vote;
    uint32_t trim;
    struct evaluation student;
    struct judged student_judged;
    bool has_baseline;
    struct evaluation labels_only;
    struct judged labels_only_judged;
    struct lineup lineup; /* of all models */
    bool answers_were_there;
    uint64_t resumed_steps; /* of the student's, taken by an earlier try */
    /* Seconds that it took to ask the teachers, to train the student, and on labels alone at one
     * rate; NaN without a clock. */
    double answering_s, learning_s, labels_only_s;
    bool is_hard;
    char transfer[256]; /* "": none */
    double lr, labels_only_lr;
    uint64_t student_parameters, teacher_parameters; /* of the smallest teacher */
    uint64_t steps, samples, samples_all; /* taken; training samples used, and there are */
    double temperature, alpha;
    char student_spec[2048];
};

/** Can a student of these layers be built for the data? Before its teachers are asked for hours.
 *  RC_USAGE, RC_PARSE, RC_SHAPE, RC_LIMIT, RC_NOMEM. */
MUST_USE enum rc distill_check_student(struct backend *backend, const char *student,
                                       const struct dataset_info *info, struct fault *why);
/** On an error nothing needs to be released, and no file was changed; RC_CANCELLED: stopped, with
 *  what was done kept beside OUT. Errors name the file or the flag. RC_NONFINITE: the student's
 * loss ran away, or it gives all classes one answer though the teachers tell them apart; lower the
 * learning rate. */
MUST_USE enum rc distill_run(struct backend *backend, const struct distill_options *options,
                             struct distill_result *out, struct fault *why);
void distill_result_deinit(struct distill_result *result);
/** Whether labels alone make a better student than the teachers, as far as was tried. */
bool distill_labels_win(const struct distill_result *result);
/** As printed by `distill --json`, without `wall_s`, which is the caller's. */
struct json *distill_json(const struct distill_result *result);

#endif

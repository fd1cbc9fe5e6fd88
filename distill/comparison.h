/*
 * comparison: how good a set of model files is on the test part of a data set: each model, the
 * average of their parameters (soup), and their ensemble. The files are read one after another, so
 * one model and a few numbers per test sample are in memory, however many files there are. Models
 * of different specs make an ensemble but no average; then it is said why there is none.
 */
#ifndef GRAPEVINE_DISTILL_COMPARISON_H
#define GRAPEVINE_DISTILL_COMPARISON_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/ensemble.h"
#include "distill/outputs.h"
#include "replica/dataset.h"
#include "replica/model.h"

struct backend;
struct json;

struct comparison_options {
    const char *const *paths;
    size_t paths_count;       /* at least 1 */
    const char *data;         /* --data spec; NULL: what the first file was trained on */
    uint64_t seed;            /* of the data set's order; the test part does not depend on it */
    uint64_t samples_max;     /* of the test part; 0: all */
    const char *average_path; /* the parameter average is written there; NULL: nowhere */
    /** After each model: how many of how many. May be NULL. */
    void (*on_model)(void *context, size_t done, size_t count);
    void *context;
};

struct comparison {
    size_t count;
    char **paths;           /* owned copies */
    struct score *models;   /* [count] */
    uint64_t *parameters;   /* [count] */
    struct model_card card; /* of the first file */
    char data[DATASET_NAME_BYTES];
    uint64_t samples; /* of the test part */
    bool has_average;
    struct score average;
    char average_missing[200];      /* why there is none */
    double distance;                /* consensus distance, NaN without an average */
    struct score votes[VOTE_COUNT]; /* the ensemble; a vote has no loss: its loss_sum is NaN */
};

/** On an error nothing needs to be released. Errors name the file: RC_MISMATCH (other input shape
 *  or classes than the data), RC_NONFINITE, RC_FORMAT, ... */
MUST_USE enum rc comparison_run(struct backend *backend, const struct comparison_options *options,
                                struct comparison *out, struct fault *why);
void comparison_deinit(struct comparison *comparison);
/** As printed by `eval --json`: files, accuracy, loss, average_model, ensemble, samples. */
struct json *comparison_json(const struct comparison *comparison);

/** Read a model file and check that it fits the data: input shape, classes, finite parameters. */
MUST_USE enum rc comparison_load(struct backend *backend, const char *path,
                                 const struct dataset_info *info, uint32_t batch_max,
                                 struct model **model, struct model_card *card, struct fault *why);

#endif

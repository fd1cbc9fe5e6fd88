/*
 * comparison: how good a set of model files is on the test part of a data set: each model, the
 * average of their parameters (soup), and their ensemble. Models of different specs make an
 * ensemble but no average; then it is said why there is none.
 *
 * The files are read one after another, so one model is in memory however many there are, and the
 * sums of the ensemble, whose size is that of the answers. Where these would take more than
 * COMPARISON_BYTES_MAX (long texts), the test part is gone through in pieces, each with all files:
 * memory stays, and files are read once for each piece.
 */
#ifndef GRAPEVINE_DISTILL_COMPARISON_H
#define GRAPEVINE_DISTILL_COMPARISON_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/ensemble.h"
#include "distill/outputs.h"
#include "replica/data/dataset.h"
#include "replica/formats/model_file.h"

struct backend;
struct json;
struct team;

enum { COMPARISON_BYTES_MAX = 64 << 20 }; /* of the ensemble; at least one sample's */

struct comparison_options {
    const char *const *paths;
    size_t paths_count;       /* at least 1 */
    const char *data;         /* --data spec; NULL: what the first file was trained on */
    const char *tokenizer;    /* file; NULL: as the first file states it */
    uint64_t seed;            /* of the data set's order; the test part does not depend on it */
    uint64_t samples_max;     /* of the test part; 0: all */
    const char *average_path; /* the parameter average is written there; NULL: nowhere */
    bool is_greedy;           /* the average: of models that make it better, distill/selection.h */
    bool with_alignment;      /* hidden channels are matched first: distill/align.h */
    bool weighs_scores;       /* members of the ensemble: by selection_weigh(); otherwise equally */
    bool weighs_confidence;   /* ...or, in each row, by how sure they are (ensemble_options) */
    uint32_t trim;            /* of the ensemble's mean, instead of weights; 0: none */
    bool with_soup;           /* beside the average of all a greedy one */
    size_t bytes_max;         /* instead of COMPARISON_BYTES_MAX; 0: that */
    /** As it goes: samples that models have run over, of how many about. May be NULL. */
    work_told on_progress;
    void *context;
};

struct comparison {
    size_t count;
    char **paths;           /* owned copies */
    struct score *models;   /* [count] */
    uint64_t *parameters;   /* [count] */
    double *weights;        /* [count], in the ensemble; their mean is 1 */
    bool *is_in;            /* [count], whether it is in the average */
    double selection;       /* a greedy soup's accuracy (real values: loss) where it was chosen */
    struct model_card card; /* of the first file */
    char data[DATASET_NAME_BYTES];
    uint64_t samples;       /* of the test part */
    uint64_t train_samples; /* of the training part */
    bool is_text;           /* predictions are next tokens */
    double most_frequent; /* class: its share of the samples, which one answer for all gets right */
    bool has_average;
    struct score average; /* of several: with statistics estimated anew (distill/statistics.h) */
    char average_missing[200]; /* why there is none */
    double distance;           /* consensus distance, NaN without an average */
    bool has_soup;             /* options.with_soup, and several models of one spec */
    struct score soup;
    bool *in_soup; /* [count] */
    /* The ensemble. A vote has no loss: its loss_sum is NaN; real values have VOTE_MEAN alone. */
    struct score votes[VOTE_COUNT];
};

/** On an error nothing needs to be released. Errors name the file: RC_MISMATCH (the model does not
 *  fit the data), RC_NONFINITE, RC_FORMAT, ... */
MUST_USE enum rc comparison_run(struct backend *backend, const struct comparison_options *options,
                                struct comparison *out, struct fault *why);
void comparison_deinit(struct comparison *comparison);
/** How many files are in the average. */
size_t comparison_members(const struct comparison *comparison);
/** Paths of the models in the average, as a list. */
struct json *comparison_members_json(const struct comparison *comparison);
/** As printed by `eval --json`; docs/json.md names the keys. */
struct json *comparison_json(const struct comparison *comparison);

/* A model file that is to work on some data. */
struct comparison_file {
    const char *path;
    const struct dataset_info *info;
    uint32_t batch_max;
    bool with_gradients;
};

/** Read a model file and check that it fits the data: kind and shape of the input, what is asked,
 *  classes, the symbols of a text; finite parameters. */
MUST_USE enum rc comparison_load(struct backend *backend, const struct comparison_file *file,
                                 struct model **model, struct model_card *card, struct fault *why);
/** The same for all threads of the backend, for passes forward alone; a model with gradients is
 * one, and its products share the threads. */
MUST_USE enum rc comparison_open(struct backend *backend, const struct comparison_file *file,
                                 struct team **team, struct model_card *card, struct fault *why);
/** Just the card. */
MUST_USE enum rc comparison_card(const char *path, struct model_card *card, struct fault *why);
/** What a dataset must be opened with so that the model of this card can use it. */
struct dataset_options comparison_data(const struct model_card *card, uint64_t seed);

#endif

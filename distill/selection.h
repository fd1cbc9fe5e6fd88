/*
 * selection: choosing between models by a part of the training data that is held apart for it, so
 * that the test part stays unseen until the end. It is the end of the data's seeded order: a tenth
 * of the training samples, at most SELECTION_SAMPLES. Statistics of normalisation are estimated
 * from the beginning of that order (statistics.h). Members may have been trained on some of these
 * samples, each on those of its own shard: what they know by heart they know unequally, so their
 * scores here are a little high, and that of one with more of the data more so.
 *
 * Two things are chosen by it: which members go into a greedy soup (Wortsman et al. 2022,
 * arXiv:2203.05482, recipe 1), and what each weighs in an ensemble.
 */
#ifndef GRAPEVINE_DISTILL_SELECTION_H
#define GRAPEVINE_DISTILL_SELECTION_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/outputs.h"
#include "distill/soup.h"
#include "replica/formats/model_file.h"

struct backend;
struct team;

enum { SELECTION_SAMPLES = 2000, SELECTION_SHARE = 10 };

struct selection_options {
    struct backend *backend;
    struct dataset *dataset;
    const char *const *paths;
    size_t count; /* at least 1 */
};

struct selection {
    struct selection_options options;
    struct samples samples;
    struct outputs_part part; /* of these samples */
    struct score *scores;     /* [count], of each file on the part */
};

/** Load the part and run every file on it. On an error nothing needs to be released; errors name
 *  the file. */
MUST_USE enum rc selection_init(struct selection *selection,
                                const struct selection_options *options, struct fault *why);
void selection_deinit(struct selection *selection);

/** Weights [count] of members by their scores, with a mean of 1. Classes: by how much a member's
 *  accuracy is above chance, 1 / classes; a share of its answers is luck, and the rest is what it
 *  knows. Who is below chance weighs nearly nothing, and all are equal where all are. Real values:
 *  the inverse of the squared error, which is the best there is for independent errors. */
void selection_weigh(const struct score *scores, size_t count, uint32_t classes, double *weights);

/* What came of a greedy soup. */
struct selection_soup {
    struct soup *soup; /* owned by the caller then */
    struct score score;
    uint64_t step, samples; /* the most of a member's steps; of all members together */
};

/** Members are tried in the order of their scores; one stays if the mean of all that stayed, with
 *  statistics estimated anew, is not worse for it. So the soup is never worse on the part than its
 *  best single member. `is_in` [count] says who stayed. RC_MISMATCH where specs differ. */
MUST_USE enum rc selection_soup(const struct selection *selection, bool with_alignment, bool *is_in,
                                struct selection_soup *out, struct fault *why);

/** A team with the model in which an average of files like `path` can be tried: of several members
 *  that keep statistics it can estimate them. */
MUST_USE enum rc selection_open(const struct selection_options *options, const char *path,
                                bool with_statistics, struct team **team, struct fault *why);

#endif

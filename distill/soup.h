/*
 * soup: the plain average of the parameters of models with one spec (Wortsman et al. 2022,
 * arXiv:2203.05482, uniform soup), and how far its members lie from it.
 *
 * Members are added one at a time, so memory is one float64 plane whatever their number. Mean and
 * spread are running ones (Welford 1962): equal members give a spread of exactly 0, where a
 * difference of two large sums of squares would give noise. Only models that grew from one start
 * lie in one basin, which is what makes their average a good model.
 *
 * Running statistics of batch normalisation are pooled (replica/plane/mixture.h): what all members
 * saw together. The average computes other activations than they do, so whoever evaluates it
 * estimates them anew (distill/statistics.h).
 */
#ifndef GRAPEVINE_DISTILL_SOUP_H
#define GRAPEVINE_DISTILL_SOUP_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/model/model.h"

#include <stdbool.h>

struct soup;

/** NULL only when out of memory. */
struct soup *soup_create(void);
void soup_destroy(struct soup *soup);
/** The same members; NULL only when out of memory. */
struct soup *soup_copy(const struct soup *soup);
/** Bring the hidden channels of a model into the order of the members' mean (distill/align.h), for
 *  members that did not start together. Without members nothing happens. Errors as of soup_add()
 *  and align_model(). */
MUST_USE enum rc soup_align(const struct soup *soup, struct model *model, struct fault *why);
/** Mix a model in; the first one decides what the others must look like. RC_MISMATCH (another spec
 *  or other tensors; the soup is unchanged), RC_NONFINITE, RC_NOMEM. */
MUST_USE enum rc soup_add(struct soup *soup, struct model *model, struct fault *why);
size_t soup_members(const struct soup *soup);
/** Whether the members keep running statistics; false without members. */
bool soup_has_statistics(const struct soup *soup);
/** Overwrite parameters and buffers of `model`, which looks like the members, by the mean.
 *  There is at least one member. RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc soup_pour(const struct soup *soup, struct model *model);
/** sqrt(1/n sum ||x_i - mean||^2) over parameters; 0 without members. */
double soup_distance(const struct soup *soup);

#endif

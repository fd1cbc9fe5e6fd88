/* selection: see selection.h. One file is in memory at a time, beside the mean and the model in
 * which it is tried. Thread: whichever evaluates, one at a time; models are run by a team. */
#include "distill/selection.h"

#include "base/check.h"
#include "base/mem.h"
#include "distill/comparison.h"
#include "distill/statistics.h"
#include "replica/learners/team.h"

#include <math.h>
#include <stdlib.h>

/* The last blocks of the data's order. */
static enum rc load(struct selection *s, struct fault *why)
{
    const struct dataset_info *info = dataset_info(s->options.dataset);
    uint64_t wanted = info->train_samples / SELECTION_SHARE;
    bool *blocks = mem_array(info->blocks, sizeof *blocks);

    if (blocks == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    if (wanted > SELECTION_SAMPLES) wanted = SELECTION_SAMPLES;
    if (wanted == 0) wanted = 1;
    for (uint32_t b = info->blocks - dataset_last_blocks(info, wanted); b < info->blocks; b++) {
        blocks[b] = true;
    }
    const enum rc rc = dataset_load_blocks(s->options.dataset, blocks, &s->samples, why);
    mem_free(blocks);
    if (rc != RC_OK) return rc;
    s->part.samples = &s->samples;
    s->part.count = s->samples.count < wanted ? s->samples.count : wanted;
    s->part.first = s->samples.count - s->part.count;
    return RC_OK;
}

static enum rc run(const struct selection *s, struct team *team, const char *what,
                   struct score *score, struct fault *why)
{
    const struct dataset_info info =
        outputs_info(dataset_info(s->options.dataset), team_model(team));

    *score = (struct score){0};
    const enum rc rc = outputs_run(team, &info, &s->part, NULL, score);
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot evaluate %s: %s", what, rc_text(rc));
}

static struct comparison_file file_of(const struct selection *s, size_t i)
{
    const struct dataset_info *info = dataset_info(s->options.dataset);

    return (struct comparison_file){s->options.paths[i], info, outputs_batch(info), false};
}

enum rc selection_init(struct selection *selection, const struct selection_options *options,
                       struct fault *why)
{
    struct selection s = {.options = *options,
                          .scores = mem_array(options->count, sizeof *s.scores)};
    enum rc rc = s.scores != NULL ? load(&s, why) : fault_set(why, RC_NOMEM, "out of memory");

    for (size_t i = 0; rc == RC_OK && i < options->count; i++) {
        const struct comparison_file file = file_of(&s, i);
        struct team *team = NULL;
        struct model_card card;
        rc = comparison_open(options->backend, &file, &team, &card, why);
        if (rc == RC_OK) rc = run(&s, team, file.path, &s.scores[i], why);
        team_destroy(team);
    }
    if (rc != RC_OK) {
        selection_deinit(&s);
        return rc;
    }
    *selection = s;
    selection->part.samples = &selection->samples; /* not those of the copy */
    return RC_OK;
}

void selection_deinit(struct selection *selection)
{
    mem_free(selection->scores);
    samples_deinit(&selection->samples);
    *selection = (struct selection){.scores = NULL};
}

void selection_weigh(const struct score *scores, size_t count, uint32_t classes, double *weights)
{
    const double least = 1e-6; /* of the mean */
    double sum = 0;

    CHECK(count > 0 && classes > 0);
    for (size_t i = 0; i < count; i++) {
        const double above = score_accuracy(&scores[i]) - 1 / (double)classes;
        weights[i] = scores[i].is_real ? 1 / fmax(score_loss(&scores[i]), 1e-12) : fmax(above, 0);
        sum += weights[i];
    }
    for (size_t i = 0; i < count; i++) {
        weights[i] = sum > 0 ? fmax(weights[i] * (double)count / sum, least) : 1;
    }
}

/* > 0: a is better. */
static int compare(const struct score *a, const struct score *b)
{
    const double mine = a->is_real ? -score_loss(a) : score_accuracy(a);
    const double theirs = b->is_real ? -score_loss(b) : score_accuracy(b);

    return (mine > theirs) - (mine < theirs);
}

struct ranked {
    size_t file;
    const struct score *score;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    const int is_better = compare(x->score, y->score);

    if (is_better != 0) return -is_better;
    return (x->file > y->file) - (x->file < y->file);
}

enum rc selection_open(const struct selection_options *options, const char *path,
                       bool with_statistics, struct team **team, struct fault *why)
{
    const struct dataset_info *info = dataset_info(options->dataset);
    struct comparison_file file = {path, info, outputs_batch(info), with_statistics};
    struct model_card card;

    if (file.with_gradients && file.batch_max > STATISTICS_BATCH) {
        file.batch_max = STATISTICS_BATCH; /* training passes take more memory */
    }
    return comparison_open(options->backend, &file, team, &card, why);
}

/* A greedy soup in the making. */
struct greedy {
    const struct selection *selection;
    struct team *trial; /* NULL until the second member */
    bool with_alignment;
    struct selection_soup best;
};

/* Score a mean of several members. */
static enum rc score_mean(struct greedy *c, const struct soup *soup, struct score *score,
                          struct fault *why)
{
    const struct selection_options *o = &c->selection->options;
    enum rc rc = RC_OK;

    if (c->trial == NULL) {
        rc = selection_open(o, o->paths[0], soup_has_statistics(soup), &c->trial, why);
    }
    if (rc != RC_OK) return rc;
    struct model *model = team_model(c->trial);
    rc = soup_pour(soup, model);
    if (rc != RC_OK) return fault_set(why, rc, "cannot average: %s", rc_text(rc));
    rc = statistics_estimate(model, o->dataset, NULL, why);
    return rc == RC_OK ? run(c->selection, c->trial, "a parameter average", score, why) : rc;
}

static enum rc try_member(struct greedy *c, size_t file, bool *is_in, struct fault *why)
{
    const struct comparison_file opened = file_of(c->selection, file);
    struct soup *soup = soup_copy(c->best.soup);
    struct score score = c->selection->scores[file];
    struct fault reason = {""};
    struct team *team = NULL;
    struct model_card card;
    enum rc rc = soup != NULL ? RC_OK : fault_set(why, RC_NOMEM, "cannot average: out of memory");

    if (rc == RC_OK)
        rc = comparison_open(c->selection->options.backend, &opened, &team, &card, why);
    if (rc == RC_OK) {
        if (c->with_alignment) rc = soup_align(soup, team_model(team), &reason);
        if (rc == RC_OK) rc = soup_add(soup, team_model(team), &reason);
        if (rc != RC_OK) rc = fault_set(why, rc, "cannot average %s: %s", opened.path, reason.text);
    }
    team_destroy(team);
    bool is_good = rc == RC_OK;
    if (rc == RC_OK && soup_members(soup) > 1) {
        rc = score_mean(c, soup, &score, why);
        is_good = rc == RC_OK && compare(&score, &c->best.score) >= 0;
        if (rc == RC_NONFINITE) rc = RC_OK; /* a mean may compute what no member does */
    }
    if (is_good) {
        soup_destroy(c->best.soup);
        c->best.soup = soup;
        c->best.score = score;
        if (c->best.step < card.step) c->best.step = card.step;
        c->best.samples += card.samples;
        *is_in = true;
        return rc;
    }
    soup_destroy(soup);
    return rc;
}

enum rc selection_soup(const struct selection *selection, bool with_alignment, bool *is_in,
                       struct selection_soup *out, struct fault *why)
{
    const size_t count = selection->options.count;
    struct greedy c = {selection, NULL, with_alignment, {.soup = soup_create()}};
    struct ranked *ranked = mem_array(count, sizeof *ranked);
    enum rc rc = RC_OK;

    if (ranked == NULL || c.best.soup == NULL) rc = fault_set(why, RC_NOMEM, "out of memory");
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        ranked[i] = (struct ranked){i, &selection->scores[i]};
        is_in[i] = false;
    }
    if (rc == RC_OK) qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        rc = try_member(&c, ranked[i].file, &is_in[ranked[i].file], why);
    }
    mem_free(ranked);
    team_destroy(c.trial);
    if (rc == RC_OK) {
        *out = c.best;
    } else {
        soup_destroy(c.best.soup);
    }
    return rc;
}

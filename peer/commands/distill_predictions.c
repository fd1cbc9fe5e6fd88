/* distill_predictions: members of a swarm are asked for what their models say (poll.h), and what
 * that is worth. Thread: the command's. */
#include "peer/commands/distill_swarm_internal.h"

#include "kernels/softmax.h"
#include "peer/download/poll.h"
#include "peer/env/env.h"
#include "replica/data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TOP_ABOVE = 64, /* more classes: the likeliest TOP of each prediction are told */
    TOP = 16,
    JUDGED_MAX = 2000 /* samples on which members are compared */
};

/* ---- the probe set ---- */

static enum rc shape_answers(struct asking *a, struct predictions_shape *shape)
{
    const struct dataset_info *info = a->out->panel.info;

    *shape = (struct predictions_shape){
        .rows = info->labels_per_sample > 1 ? info->labels_per_sample : 1,
        .outputs = info->outputs,
        .top = info->target != DATA_REALS && info->outputs > TOP_ABOVE ? TOP : 0,
        .is_real = info->target == DATA_REALS};
    if (predictions_bytes(shape) <= PREDICTIONS_BYTES_MAX) return RC_OK;
    return fault_set(a->why, RC_LIMIT,
                     "answers to one sample of %s do not fit into a message; ask for the models "
                     "(--models), or distil from files of them (--teachers)",
                     info->name);
}

/* Names of what is asked about: the digest of each window of samples. */
static enum rc draw_probe(struct asking *a, struct digest **digests)
{
    const uint32_t window = asking_window(a);
    const size_t windows = (size_t)((a->out->asked + window - 1) / window);
    enum rc rc = RC_OK;

    *digests = mem_array(windows, sizeof **digests);
    if (*digests == NULL) return asking_no_memory(a);
    for (size_t w = 0; rc == RC_OK && w < windows; w++) {
        struct samples samples = {0};

        rc = asking_load(a, (uint64_t)w * window, &samples);
        if (rc == RC_OK) rc = samples_digest(&samples, a->out->panel.info, &(*digests)[w]);
        samples_deinit(&samples);
        progress_tell(a->progress, "drawing the probe set", (double)(w + 1) / (double)windows, "");
    }
    return rc;
}

/* ---- asking ---- */

static enum rc take_views(struct asking *a, const struct poll *poll)
{
    struct distill_swarm *s = a->out;
    const uint32_t usable = poll_usable(poll);

    for (uint32_t i = 0; i < s->members_count; i++) {
        struct distill_member *m = &s->members[i];
        struct poll_view view;

        poll_view(poll, i, &view);
        m->state = view.state;
        m->answered = view.answered;
        m->step = view.step;
        snprintf(m->why, sizeof m->why, "%s", view.why != NULL ? view.why : "");
        s->answered += view.answered > 0;
    }
    s->panel.samples = usable;
    if (usable == 0) {
        return asking_in_vain(a, "answered",
                              "if it has other data, pass the swarm's own --data and --seed, or "
                              "distil from model files (--teachers)");
    }
    if (2 * (uint64_t)usable >= s->asked) return RC_OK;
    return fault_set(a->why, RC_NOT_FOUND,
                     "only %u of %llu samples were answered: the members are slow, or fell silent; "
                     "give them longer (--join-timeout), or ask for fewer (--samples)",
                     (unsigned)usable, (unsigned long long)s->asked);
}

static enum rc ask(struct asking *a, const struct predictions_shape *shape,
                   const struct digest *digests)
{
    struct distill_swarm *s = a->out;
    char folder[DISTILL_PATH_BYTES];
    const struct panel_options panel = {.shape = *shape,
                                        .samples = (size_t)s->asked,
                                        .members = s->members_count,
                                        .trim = s->trim,
                                        .folder = folder};
    struct poll_options options = {.shape = *shape,
                                   .seed = s->panel.open.seed,
                                   .samples = (uint32_t)s->asked,
                                   .window = asking_window(a),
                                   .digests = digests,
                                   .members = s->members_count,
                                   .trim = s->trim,
                                   .silence_ns = options_ns(a->options, "join-timeout")};
    struct poll *poll = NULL;
    enum rc rc;

    asking_folder(a, folder, sizeof folder);
    rc = panel_create(&panel, &s->panel.panel, a->why);
    options.panel = s->panel.panel;
    if (rc == RC_OK) poll = poll_create(&options, uv_clock_ns());
    if (rc == RC_OK && poll == NULL) rc = asking_no_memory(a);
    if (rc == RC_OK) rc = asking_survey(a, poll_inquiry(poll));
    if (rc == RC_OK) rc = take_views(a, poll);
    poll_destroy(poll);
    if (rc != RC_OK) return rc;
    s->bounded = panel_covered(s->panel.panel, 2 * s->trim + 1);
    if (s->bounded > s->panel.samples) s->bounded = s->panel.samples;
    return RC_OK;
}

/* ---- how good the answers are ---- */

struct judging {
    const uint32_t *labels;  /* of all training samples, in file order; NULL: they have none */
    float *together, *alone; /* a sample's answers */
    size_t values;
    uint32_t outputs; /* of a prediction */
};

static double total_variation(const struct judging *j)
{
    double sum = 0;

    for (size_t i = 0; i < j->values; i++) {
        sum += fabs((double)j->together[i] - (double)j->alone[i]);
    }
    return sum / 2 / (double)(j->values / j->outputs);
}

static enum rc judge_sample(struct asking *a, struct judging *j, size_t sample, uint32_t *counts)
{
    struct distill_swarm *s = a->out;
    const struct pick pick = {NULL, sample, 1};
    enum rc rc = panel_get(s->panel.panel, pick, 1.0, j->together);
    const uint32_t label = j->labels != NULL ? j->labels[a->order[sample]] : 0;

    if (rc != RC_OK) return rc;
    if (j->labels != NULL) s->accuracy += softmax_argmax(j->together, j->outputs) == label;
    for (uint32_t m = 0; rc == RC_OK && m < s->members_count; m++) {
        if (panel_answered(s->panel.panel, m) <= sample) continue;
        rc = panel_said(s->panel.panel, m, sample, j->alone);
        counts[m]++;
        s->members[m].distance += total_variation(j);
        if (j->labels != NULL) {
            s->members[m].accuracy += softmax_argmax(j->alone, j->outputs) == label;
        }
    }
    return rc;
}

/* Members answer from the first sample on, so what one answered is a beginning. */
static enum rc judge(struct asking *a, const struct predictions_shape *shape)
{
    struct distill_swarm *s = a->out;
    const size_t every = (size_t)s->panel.samples / JUDGED_MAX + 1;
    uint32_t counts[PANEL_MEMBERS_MAX] = {0}, all = 0, *labels = NULL;
    struct judging j = {.values = (size_t)shape->rows * shape->outputs, .outputs = shape->outputs};
    enum rc rc = RC_OK;

    if (s->panel.info->target == DATA_CLASS) rc = dataset_load_labels(s->dataset, &labels, a->why);
    j.labels = labels;
    j.together = mem_array(2 * j.values, sizeof(float));
    if (rc == RC_OK && j.together == NULL) rc = asking_no_memory(a);
    if (rc == RC_OK) j.alone = j.together + j.values;
    for (size_t i = 0; rc == RC_OK && i < s->panel.samples; i += every, all++) {
        rc = judge_sample(a, &j, i, counts);
        if (rc != RC_OK) rc = fault_set(a->why, rc, "cannot read the answers: %s", rc_text(rc));
    }
    for (uint32_t m = 0; m < s->members_count; m++) {
        struct distill_member *member = &s->members[m];
        member->distance = counts[m] > 0 ? member->distance / counts[m] : (double)NAN;
        member->accuracy =
            counts[m] > 0 && labels != NULL ? member->accuracy / counts[m] : (double)NAN;
    }
    s->accuracy = labels != NULL && all > 0 ? s->accuracy / all : (double)NAN;
    mem_free(labels);
    mem_free(j.together);
    return rc;
}

static void tell_few(const struct asking *a)
{
    const struct distill_swarm *s = a->out;
    const struct log *log = &a->progress->log;

    progress_clear(a->progress);
    if (s->panel.samples < s->asked) {
        log_warn(log, "%llu of %llu samples have enough answers: the student learns from these",
                 (unsigned long long)s->panel.samples, (unsigned long long)s->asked);
    }
    if (s->trim > 0 && s->bounded < s->panel.samples) {
        log_warn(log,
                 "%llu of %llu samples have fewer than %u answers: what a member that lies says "
                 "of these is not bounded",
                 (unsigned long long)(s->panel.samples - s->bounded),
                 (unsigned long long)s->panel.samples, 2 * s->trim + 1);
    }
}

enum rc asking_predictions(struct asking *a)
{
    struct predictions_shape shape;
    struct digest *digests = NULL;
    enum rc rc = shape_answers(a, &shape);

    if (rc == RC_OK) rc = draw_probe(a, &digests);
    if (rc == RC_OK) rc = ask(a, &shape, digests);
    if (rc == RC_OK) rc = judge(a, &shape);
    if (rc == RC_OK) tell_few(a);
    mem_free(digests);
    return rc;
}

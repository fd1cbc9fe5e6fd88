/*
 * distill_models: the models of a swarm's members (fetch.h) as files, in a passing folder beside
 * --out: teachers as any other files. What a member tells of its model decides how it is built
 * here, so layers that do not fit the data, or are too large, are refused; one whose bytes are in
 * order may still be made to break: each is run over the samples that it will be asked about, and
 * one that says what is no number is left out. Thread: the command's.
 */
#include "peer/commands/distill_swarm_internal.h"

#include "base/file.h"
#include "base/plain.h"
#include "distill/comparison.h"
#include "distill/outputs.h"
#include "peer/env/env.h"
#include "replica/data/dataset.h"
#include "replica/learners/task.h"
#include "replica/learners/team.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALUES_MAX (UINT64_C(1) << 28) /* of a model: 1 GiB */

struct models {
    struct asking *asking;
    struct model *model[SURVEY_MEMBERS_MAX]; /* of those on their way */
    char *path[SURVEY_MEMBERS_MAX];          /* of those that are here */
};

/* ---- what comes ---- */

/* As its peer made it, but for the values. */
static enum rc build(struct models *m, const char *spec, struct model **model, struct fault *why)
{
    const struct dataset_info *info = m->asking->out->panel.info;
    struct model_options options = {.spec = spec, .batch_max = 1, .file_values = VALUES_MAX};
    struct fault reason = {""};
    char plain[160];
    enum rc rc;

    task_describe(info, &options);
    rc = model_create(m->asking->backend, &options, model, &reason);
    if (rc != RC_OK) {
        return fault_set(why, rc, "its model cannot be built here: %s",
                         plain_text(reason.text, plain, sizeof plain));
    }
    if (model_rows(*model) != outputs_rows(info) || model_classes(*model) != info->outputs) {
        model_destroy(*model);
        return fault_set(why, RC_MISMATCH, "its model answers something else than the data ask");
    }
    model_set_normalisation(*model, info->mean, info->scale);
    if (info->measured != NULL) model_keep_normalisation(*model);
    model_set_meaning(*model, task_meaning(info, *model));
    return RC_OK;
}

static enum rc on_status(void *context, uint32_t member, const char *text, size_t bytes,
                         const struct schema **schema, uint32_t *want, struct fault *why)
{
    struct models *m = context;
    struct json *status = NULL;
    const struct json *settings;
    const char *spec;
    enum rc rc = json_parse(text, bytes, &status, NULL);

    settings = rc == RC_OK ? json_get(status, "settings") : NULL;
    spec = settings != NULL ? json_get_text(settings, "model") : NULL;
    rc = spec != NULL ? build(m, spec, &m->model[member], why)
                      : fault_set(why, RC_FORMAT, "it does not tell of what layers its model is");
    json_destroy(status);
    if (rc != RC_OK) return rc;
    *schema = model_schema(m->model[member]);
    *want = 1 | 2;
    if ((*schema)->values[SECTION_INPUT] > 0) *want |= 32;
    return RC_OK;
}

static void on_gone(void *context, uint32_t member)
{
    struct models *m = context;

    model_destroy(m->model[member]);
    m->model[member] = NULL;
}

/* Where its data's own numbers normalise the input, the model brings them along. */
static enum rc take_input(struct model *model, const struct joiner *joiner, struct model_card *card)
{
    const uint32_t channels = model_channels(model);
    size_t count;
    const float *input = joiner_section(joiner, SECTION_INPUT, &count);

    if (model_schema(model)->values[SECTION_INPUT] == 0) return RC_OK;
    if (input == NULL || !input_is_sound(input, channels)) return RC_FORMAT;
    model_set_normalisation(model, input, input + channels);
    card->input_members = (uint64_t)input[2 * channels + INPUT_MEMBERS];
    card->input_samples = (uint64_t)input[2 * channels + INPUT_SAMPLES];
    return RC_OK;
}

static char *path_of(const struct asking *a, uint32_t member)
{
    char path[DISTILL_PATH_BYTES + ADDRESS_BYTES_MAX + 16];
    size_t at = (size_t)snprintf(path, sizeof path, "%s/", a->out->folder);

    for (const char *c = a->out->members[member].address; *c != '\0'; c++) {
        path[at++] = isalnum((unsigned char)*c) || *c == '.' || *c == '-' ? *c : '_';
    }
    snprintf(path + at, sizeof path - at, ".%u.safetensors", member);
    return mem_string(path);
}

static enum rc on_model(void *context, uint32_t member, const struct joiner *joiner,
                        struct fault *why)
{
    struct models *m = context;
    struct model *model = m->model[member];
    const struct distill_panel *panel = &m->asking->out->panel;
    size_t count;
    const float *parameters = joiner_section(joiner, SECTION_PARAMETERS, &count);
    const float *buffers = joiner_section(joiner, SECTION_BUFFERS, &count);
    struct model_card card;
    enum rc rc;

    task_card(panel->info, model, &card);
    card.step = joiner_manifest(joiner)->step;
    card.samples = joiner_manifest(joiner)->samples;
    snprintf(card.data, sizeof card.data, "%s", panel->data);
    rc = take_input(model, joiner, &card);
    if (rc != RC_OK) return rc;
    rc = model_set_plane(model, SECTION_PARAMETERS, parameters);
    if (rc == RC_OK && buffers != NULL) rc = model_set_plane(model, SECTION_BUFFERS, buffers);
    if (rc != RC_OK) return fault_set(why, rc, "cannot keep a model: %s", rc_text(rc));
    m->path[member] = path_of(m->asking, member);
    if (m->path[member] == NULL) return fault_set(why, RC_NOMEM, "cannot keep a model: no memory");
    rc = model_save_as(model, &card, m->path[member], why);
    return rc == RC_FORMAT || rc == RC_NONFINITE ? RC_IO : rc; /* ours, not the member's */
}

/* ---- is each of use? ---- */

static void leave_out(struct models *m, uint32_t member, const char *why)
{
    struct distill_member *out = &m->asking->out->members[member];

    out->state = INQUIRY_BAD;
    snprintf(out->why, sizeof out->why, "%s", why);
    (void)unlink(m->path[member]);
    mem_free(m->path[member]);
    m->path[member] = NULL;
}

/* One member's model on some samples. */
static enum rc try_one(struct models *m, uint32_t member, const struct samples *samples,
                       struct score *score)
{
    struct asking *a = m->asking;
    const struct comparison_file file = {.path = m->path[member],
                                         .info = a->out->panel.info,
                                         .batch_max = outputs_batch(a->out->panel.info)};
    const struct outputs_part part = {samples, 0, samples->count, NULL};
    struct fault reason = {""};
    struct model_card card;
    struct team *team = NULL;
    enum rc rc = comparison_open(a->backend, &file, &team, &card, &reason);

    if (rc == RC_OK) {
        const struct dataset_info info = outputs_info(file.info, team_model(team));
        rc = outputs_run(team, &info, &part, NULL, score);
    }
    team_destroy(team);
    if (rc == RC_NONFINITE) {
        leave_out(m, member, "its model says what is no number");
        return RC_OK;
    }
    return rc == RC_OK ? rc
                       : fault_set(a->why, rc, "cannot use the model of %s: %s",
                                   a->out->members[member].address,
                                   reason.text[0] != '\0' ? reason.text : rc_text(rc));
}

static enum rc try_all(struct models *m, const struct samples *samples, struct score *scores)
{
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < m->asking->out->members_count; i++) {
        rc = asking_go_on(m->asking);
        if (rc == RC_OK && m->path[i] != NULL) rc = try_one(m, i, samples, &scores[i]);
    }
    return rc;
}

/* The scores that are told are of the samples that the student learns from. */
static enum rc try_models(struct models *m)
{
    struct asking *a = m->asking;
    struct distill_swarm *s = a->out;
    struct score scores[SURVEY_MEMBERS_MAX] = {{0}}, unused[SURVEY_MEMBERS_MAX] = {{0}};
    struct samples samples = {0};
    enum rc rc = dataset_load_test(s->dataset, 0, &samples, a->why);

    if (rc == RC_OK) rc = try_all(m, &samples, unused);
    samples_deinit(&samples);
    for (uint64_t at = 0; rc == RC_OK && at < s->asked; at += asking_window(a)) {
        progress_tell(a->progress, "trying the models", (double)at / (double)s->asked, "");
        rc = asking_load(a, at, &samples);
        if (rc == RC_OK) rc = try_all(m, &samples, scores);
        samples_deinit(&samples);
    }
    for (uint32_t i = 0; i < s->members_count; i++) {
        s->members[i].accuracy = score_accuracy(&scores[i]);
        s->members[i].distance = (double)NAN;
    }
    return rc;
}

/* ---- the whole ---- */

static enum rc make_folder(struct asking *a)
{
    char *folder = a->out->folder;
    size_t at;

    asking_folder(a, folder, DISTILL_PATH_BYTES);
    at = strlen(folder);
    if (snprintf(folder + at, DISTILL_PATH_BYTES - at, "/.grapevine-models-XXXXXX") >=
        (int)(DISTILL_PATH_BYTES - at)) {
        folder[0] = '\0';
        return fault_set(a->why, RC_USAGE, "--out: the path is too long");
    }
    if (mkdtemp(folder) != NULL) return RC_OK;
    const enum rc rc = file_fault(a->why, "keep models in", folder, errno);
    folder[0] = '\0';
    return rc;
}

static void take_views(struct asking *a, const struct fetch *fetch)
{
    for (uint32_t i = 0; i < a->out->members_count; i++) {
        struct distill_member *member = &a->out->members[i];
        struct fetch_view view;

        fetch_view(fetch, i, &view);
        member->state = view.state;
        member->step = view.step;
        snprintf(member->why, sizeof member->why, "%s", view.why != NULL ? view.why : "");
    }
}

/* From here on they are the swarm's, which removes them; also what is there after an error. */
static enum rc hand_over(struct models *m)
{
    struct distill_swarm *s = m->asking->out;

    s->paths = mem_array(s->members_count, sizeof *s->paths);
    s->names = mem_array(s->members_count, sizeof *s->names);
    for (uint32_t i = 0; i < s->members_count; i++) {
        if (m->path[i] == NULL) continue;
        if (s->paths != NULL && s->names != NULL) {
            s->names[s->answered] = s->members[i].address;
            s->paths[s->answered++] = m->path[i];
        } else {
            (void)unlink(m->path[i]);
            mem_free(m->path[i]);
        }
    }
    return s->paths != NULL && s->names != NULL ? RC_OK : asking_no_memory(m->asking);
}

enum rc asking_models(struct asking *a)
{
    struct models m = {.asking = a};
    const struct fetch_options options = {.members = a->out->members_count,
                                          .run_id = a->secret.run_id,
                                          .silence_ns = options_ns(a->options, "join-timeout"),
                                          .on_status = on_status,
                                          .on_model = on_model,
                                          .on_gone = on_gone,
                                          .context = &m};
    struct fetch *fetch = NULL;
    enum rc rc = make_folder(a), handed;

    if (rc != RC_OK) return rc;
    fetch = fetch_create(&options, uv_clock_ns());
    rc = fetch != NULL ? asking_survey(a, fetch_inquiry(fetch)) : asking_no_memory(a);
    if (rc == RC_OK) take_views(a, fetch);
    fetch_destroy(fetch);
    if (rc == RC_OK) rc = try_models(&m);
    handed = hand_over(&m);
    if (rc == RC_OK) rc = handed;
    if (rc != RC_OK || a->out->answered > 0) return rc;
    return asking_in_vain(a, "given its model",
                          "leave --models out to ask for predictions, or distil from model files "
                          "(--teachers)");
}

/* distill_swarm: see distill_swarm.h. Thread: the command's. */
#include "peer/commands/distill_swarm.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"
#include "gossip/wire/address.h"
#include "kernels/softmax.h"
#include "peer/files/keys.h"
#include "peer/session/settings.h"
#include "peer/watch/observer.h"
#include "replica/data/dataset.h"
#include "replica/learners/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TOP_ABOVE = 64, /* more classes: the likeliest TOP of each prediction are told */
    TOP = 16,
    JUDGED_MAX = 2000 /* samples on which members are compared */
};

/* All of one run. */
struct asking {
    struct options *options;
    struct progress *progress;
    struct distill_swarm *out;
    struct fault *why;
    struct swarm_secret secret;
    struct json *status;
    struct digest *digests; /* of the windows */
    uint32_t *order;        /* of all training samples */
    uint32_t window;        /* samples */
    struct predictions_shape shape;
};

static enum rc no_memory(struct asking *a)
{
    return fault_set(a->why, RC_NOMEM, "cannot ask the swarm: out of memory");
}

/* ---- what the swarm is ---- */

static enum rc ask_status(struct asking *a)
{
    const char *address = options_text(a->options, "swarm");
    const struct observer_options observer = {.address = address,
                                              .swarm = &a->secret,
                                              .identity = options_text(a->options, "identity"),
                                              .certificate =
                                                  options_text(a->options, "certificate"),
                                              .timeout_ns = options_ns(a->options, "join-timeout")};
    char *text = NULL;
    enum rc rc = secure_start();

    if (rc != RC_OK) return fault_set(a->why, rc, "libsodium does not start; reinstall it");
    if (!address_is_valid(address)) {
        return fault_set(a->why, RC_USAGE,
                         "--swarm %.80s: not HOST:PORT; write it like 192.0.2.7:7077, the address "
                         "that a member listens on",
                         address);
    }
    rc = keys_swarm(options_text(a->options, "swarm-name"), options_text(a->options, "swarm-key"),
                    &a->secret, a->why);
    if (rc == RC_OK) rc = observer_status(&observer, &text, a->why);
    if (rc == RC_OK) rc = json_parse(text, strlen(text), &a->status, a->why);
    mem_free(text);
    return rc == RC_PARSE ? RC_FORMAT : rc;
}

/* What was not given is as the swarm has it; all of that was said by somebody else. */
static enum rc take_settings(struct asking *a)
{
    static const char *const names[] = {"data", "seed"};
    const struct json *settings = json_get(a->status, "settings");
    const char *labels = settings != NULL ? json_get_text(settings, "labels") : NULL;
    char *to = a->out->labels;
    struct fault wrong;

    for (size_t i = 0; settings != NULL && i < 2; i++) {
        const char *text = json_get_text(settings, names[i]);
        if (text == NULL || options_is_set(a->options, names[i])) continue;
        if (i == 0 && !settings_is_everywhere(text)) continue; /* no file of this machine */
        if (options_suppose(a->options, names[i], text, &wrong) != RC_OK) {
            return fault_set(a->why, RC_FORMAT, "the swarm tells what is no setting: --%s",
                             wrong.text);
        }
    }
    if (!options_has(a->options, "data")) {
        return fault_set(a->why, RC_USAGE,
                         "--data is missing: the swarm's data are files of its members; name the "
                         "same data here");
    }
    if (labels == NULL || labels[0] == '\0' || strlen(labels) + 2 > sizeof a->out->labels) {
        return RC_OK;
    }
    for (; *labels != '\0'; labels++) {
        *to++ = *labels == ',' ? '\n' : *labels;
    }
    memcpy(to, "\n", 2);
    return RC_OK;
}

static void add_member(struct distill_swarm *s, const char *address)
{
    if (address == NULL || !address_is_valid(address)) return;
    for (uint32_t i = 0; i < s->members_count; i++) {
        if (strcmp(s->members[i].address, address) == 0) return;
    }
    if (s->members_count == PANEL_MEMBERS_MAX) {
        s->passed_over++;
        return;
    }
    snprintf(s->members[s->members_count++].address, ADDRESS_BYTES_MAX, "%s", address);
}

/* The one at --swarm, and whom it knows. */
static enum rc list_members(struct asking *a)
{
    const struct json *members = json_get(a->status, "members");
    struct distill_swarm *s = a->out;

    s->members = mem_array(PANEL_MEMBERS_MAX, sizeof *s->members);
    if (s->members == NULL) return no_memory(a);
    add_member(s, options_text(a->options, "swarm"));
    for (size_t i = 0; members != NULL && i < json_count(members); i++) {
        const struct json *member = json_at(members, i);
        const char *state = json_get_text(member, "state");

        if (state != NULL && strcmp(state, "alive") == 0) {
            add_member(s, json_get_text(member, "address"));
        }
    }
    return RC_OK;
}

/* ---- the probe set ---- */

static enum rc open_data(struct asking *a)
{
    struct distill_swarm *s = a->out;
    const struct json *settings = json_get(a->status, "settings");
    const char *model = settings != NULL ? json_get_text(settings, "model") : NULL;
    struct distill_panel *panel = &s->panel;
    enum rc rc;

    panel->data = options_text(a->options, "data");
    panel->open = (struct dataset_options){.seed = options_count(a->options, "seed"),
                                           .context = model != NULL ? task_context(model) : 0,
                                           .tokenizer = options_text(a->options, "tokenizer"),
                                           .labels = s->labels,
                                           .labels_of = "the swarm's classes"};
    rc = dataset_open(panel->data, &panel->open, &s->dataset, a->why);
    if (rc != RC_OK) return rc;
    panel->info = dataset_info(s->dataset);
    s->asked = options_count(a->options, "samples");
    if (s->asked == 0 || s->asked > panel->info->train_samples) {
        s->asked = panel->info->train_samples;
    }
    a->shape = (struct predictions_shape){
        .rows = panel->info->labels_per_sample > 1 ? panel->info->labels_per_sample : 1,
        .outputs = panel->info->outputs,
        .top = panel->info->target != DATA_REALS && panel->info->outputs > TOP_ABOVE ? TOP : 0,
        .is_real = panel->info->target == DATA_REALS};
    if (predictions_bytes(&a->shape) > PREDICTIONS_BYTES_MAX) {
        return fault_set(a->why, RC_LIMIT,
                         "answers to one sample of %s do not fit into a message; distil from the "
                         "model files instead (--teachers)",
                         panel->info->name);
    }
    return RC_OK;
}

/* Names of what is asked about: the digest of each window of samples. */
static enum rc draw_probe(struct asking *a)
{
    struct distill_swarm *s = a->out;
    const struct dataset_info *info = s->panel.info;
    const uint64_t fits = PROBE_BYTES_MAX / samples_bytes(info);
    size_t windows;
    enum rc rc = RC_OK;

    a->window = (uint32_t)(s->asked < fits ? s->asked : fits > 0 ? fits : 1);
    windows = (size_t)((s->asked + a->window - 1) / a->window);
    a->order = mem_array((size_t)info->train_samples, sizeof *a->order);
    a->digests = mem_array(windows, sizeof *a->digests);
    if (a->order == NULL || a->digests == NULL) return no_memory(a);
    dataset_order(s->panel.open.seed, a->order, (size_t)info->train_samples);
    for (size_t w = 0; rc == RC_OK && w < windows; w++) {
        const uint64_t first = (uint64_t)w * a->window, left = s->asked - first;
        struct samples samples = {0};

        rc = dataset_load_list(s->dataset, a->order + first,
                               (size_t)(left < a->window ? left : a->window), &samples, a->why);
        if (rc == RC_OK) rc = samples_digest(&samples, info, &a->digests[w]);
        samples_deinit(&samples);
        progress_tell(a->progress, "drawing the probe set", (double)(w + 1) / (double)windows, "");
    }
    return rc;
}

/* ---- asking ---- */

static void on_progress(void *context, double share, uint32_t there)
{
    const struct asking *a = context;
    char detail[32];

    snprintf(detail, sizeof detail, "%u member%s", there, there == 1 ? "" : "s");
    progress_tell(a->progress, "asking the swarm", share < 1 ? share : 0.999, detail);
}

/* "." where there is none. */
static void folder_of(const char *path, char *folder, size_t cap)
{
    const char *slash = strrchr(path, '/');

    snprintf(folder, cap, "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
             slash == NULL ? "." : path);
}

/* Why there is nothing to learn from: what most members have in common. */
static enum rc nothing_came(struct asking *a)
{
    const struct distill_swarm *s = a->out;
    const char *why = NULL;

    for (uint32_t i = 0; i < s->members_count; i++) {
        if (s->members[i].poll.state == POLL_REFUSED || why == NULL) why = s->members[i].poll.why;
    }
    return fault_set(a->why, RC_NOT_FOUND,
                     "no member of the swarm at %.80s has answered: of %u asked, %s: %s; if it has "
                     "other data, pass the swarm's own --data and --seed, or distil from model "
                     "files (--teachers)",
                     options_text(a->options, "swarm"), s->members_count,
                     s->members_count == 1 ? "it" : "the last", why != NULL ? why : "silence");
}

static enum rc survey(struct asking *a, const char *out)
{
    struct distill_swarm *s = a->out;
    char folder[ADDRESS_BYTES_MAX + 1024], addresses[PANEL_MEMBERS_MAX][ADDRESS_BYTES_MAX];
    const struct panel_options panel = {.shape = a->shape,
                                        .samples = (size_t)s->asked,
                                        .members = s->members_count,
                                        .trim = s->trim,
                                        .folder = folder};
    struct survey_options options = {.addresses = addresses,
                                     .poll = {.shape = a->shape,
                                              .seed = s->panel.open.seed,
                                              .samples = (uint32_t)s->asked,
                                              .window = a->window,
                                              .digests = a->digests,
                                              .members = s->members_count,
                                              .trim = s->trim,
                                              .silence_ns = options_ns(a->options, "join-timeout")},
                                     .swarm = &a->secret,
                                     .identity = options_text(a->options, "identity"),
                                     .certificate = options_text(a->options, "certificate"),
                                     .on_progress = on_progress,
                                     .context = a};
    struct survey_result result;
    enum rc rc;

    folder_of(out, folder, sizeof folder);
    for (uint32_t i = 0; i < s->members_count; i++) {
        memcpy(addresses[i], s->members[i].address, ADDRESS_BYTES_MAX);
    }
    rc = panel_create(&panel, &s->panel.panel, a->why);
    if (rc != RC_OK) return rc;
    options.poll.panel = s->panel.panel;
    rc = survey_run(&options, &result, a->why);
    if (rc != RC_OK) return rc;
    for (uint32_t i = 0; i < s->members_count; i++) {
        s->members[i].poll = result.members[i];
        s->answered += result.members[i].answered > 0;
    }
    s->panel.samples = result.usable;
    if (result.usable == 0) return nothing_came(a);
    if (2 * (uint64_t)result.usable < s->asked) {
        return fault_set(a->why, RC_NOT_FOUND,
                         "only %u of %llu samples were answered: the members are slow, or fell "
                         "silent; give them longer (--join-timeout), or ask for fewer (--samples)",
                         (unsigned)result.usable, (unsigned long long)s->asked);
    }
    s->bounded = panel_covered(s->panel.panel, 2 * s->trim + 1);
    if (s->bounded > s->panel.samples) s->bounded = s->panel.samples;
    return RC_OK;
}

/* ---- how good the answers are ---- */

struct judging {
    const uint32_t *labels;  /* of all training samples, in file order; NULL: they have none */
    float *together, *alone; /* a sample's answers */
    size_t values;
};

static double total_variation(const struct judging *j, uint32_t outputs)
{
    double sum = 0;

    for (size_t i = 0; i < j->values; i++) {
        sum += fabs((double)j->together[i] - (double)j->alone[i]);
    }
    return sum / 2 / (double)(j->values / outputs);
}

static enum rc judge_sample(struct asking *a, struct judging *j, size_t sample, uint32_t *counts)
{
    struct distill_swarm *s = a->out;
    const struct pick pick = {NULL, sample, 1};
    enum rc rc = panel_get(s->panel.panel, pick, 1.0, j->together);
    const uint32_t label = j->labels != NULL ? j->labels[a->order[sample]] : 0;

    if (rc != RC_OK) return rc;
    if (j->labels != NULL) s->accuracy += softmax_argmax(j->together, a->shape.outputs) == label;
    for (uint32_t m = 0; rc == RC_OK && m < s->members_count; m++) {
        if (panel_answered(s->panel.panel, m) <= sample) continue;
        rc = panel_said(s->panel.panel, m, sample, j->alone);
        counts[m]++;
        s->members[m].distance += total_variation(j, a->shape.outputs);
        if (j->labels != NULL) {
            s->members[m].accuracy += softmax_argmax(j->alone, a->shape.outputs) == label;
        }
    }
    return rc;
}

/* Members answer from the first sample on, so what one answered is a beginning. */
static enum rc judge(struct asking *a)
{
    struct distill_swarm *s = a->out;
    const size_t every = (size_t)s->panel.samples / JUDGED_MAX + 1;
    uint32_t counts[PANEL_MEMBERS_MAX] = {0}, all = 0, *labels = NULL;
    struct judging j = {.values = (size_t)a->shape.rows * a->shape.outputs};
    enum rc rc = RC_OK;

    if (s->panel.info->target == DATA_CLASS) rc = dataset_load_labels(s->dataset, &labels, a->why);
    j.labels = labels;
    j.together = mem_array(2 * j.values, sizeof(float));
    if (rc == RC_OK && j.together == NULL) rc = no_memory(a);
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

static const char *const states[] = {
    [POLL_DIALLING] = "silent", [POLL_ASKING] = "silent", [POLL_DONE] = "done",
    [POLL_LOST] = "lost",       [POLL_LATE] = "late",     [POLL_REFUSED] = "refused",
    [POLL_BAD] = "bad"};

/* One line for each whose answers are not all there. */
static void warn(const struct asking *a)
{
    const struct distill_swarm *s = a->out;
    const struct log *log = &a->progress->log;

    progress_clear(a->progress);
    if (s->passed_over > 0) {
        log_warn(log, "the swarm has more members than are asked at once: %u were passed over",
                 s->passed_over);
    }
    for (uint32_t i = 0; i < s->members_count; i++) {
        const struct poll_view *view = &s->members[i].poll;
        if (view->state == POLL_DONE || view->why == NULL) continue;
        log_warn(log, "member at %s: %s; of its answers %u of %llu count", s->members[i].address,
                 view->why, view->answered, (unsigned long long)s->asked);
    }
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

enum rc distill_swarm_ask(struct options *options, struct backend *backend, const char *out,
                          struct progress *progress, struct distill_swarm *swarm, struct fault *why)
{
    struct asking a = {.options = options,
                       .progress = progress,
                       .out = swarm,
                       .why = why,
                       .secret = {.is_public = true}};
    enum rc rc;

    *swarm = (struct distill_swarm){.trim = (uint32_t)options_count(options, "trim")};
    rc = ask_status(&a);
    if (rc == RC_OK) rc = take_settings(&a);
    if (rc == RC_OK) rc = list_members(&a);
    if (rc == RC_OK) rc = open_data(&a);
    if (rc == RC_OK) {
        rc = distill_check_student(backend, options_text(options, "student"), swarm->panel.info,
                                   why);
    }
    if (rc == RC_OK) rc = draw_probe(&a);
    if (rc == RC_OK) rc = survey(&a, out);
    mem_wipe(&a.secret, sizeof a.secret);
    if (swarm->members != NULL && swarm->answered > 0) warn(&a);
    if (rc == RC_OK) rc = judge(&a);
    json_destroy(a.status);
    mem_free(a.digests);
    mem_free(a.order);
    if (rc != RC_OK) distill_swarm_deinit(swarm);
    return rc;
}

void distill_swarm_deinit(struct distill_swarm *swarm)
{
    panel_destroy(swarm->panel.panel);
    dataset_close(swarm->dataset);
    mem_free(swarm->members);
    *swarm = (struct distill_swarm){0};
}

/* ---- what is told of it ---- */

struct json *distill_swarm_json(const struct distill_swarm *swarm)
{
    struct json *json = json_object_create(), *members = json_array_create();

    for (uint32_t i = 0; i < swarm->members_count; i++) {
        const struct distill_member *member = &swarm->members[i];
        struct json *row = json_object_create();

        json_set_text(row, "address", member->address);
        json_set_text(row, "state", states[member->poll.state]);
        json_set_text(row, "why", member->poll.why);
        json_set_count(row, "answered", member->poll.answered);
        json_set_count(row, "step", member->poll.step);
        json_set_real(row, "accuracy", member->accuracy);
        json_set_real(row, "distance", member->distance);
        json_append(members, row);
    }
    json_set(json, "members", members);
    json_set_count(json, "answered", swarm->answered);
    json_set_count(json, "samples_asked", swarm->asked);
    json_set_count(json, "samples_bounded", swarm->bounded);
    json_set_count(json, "trim", swarm->trim);
    json_set_real(json, "accuracy", swarm->accuracy);
    return json;
}

static void share_text(double share, char text[16])
{
    snprintf(text, 16, "-");
    if (!isnan(share)) snprintf(text, 16, "%.2f %%", 100 * share);
}

void distill_swarm_print(const struct distill_swarm *swarm)
{
    char accuracy[16], distance[16];

    printf("%-24s %-8s %10s %10s %10s %10s\n", "member", "state", "answered", "at step", "accuracy",
           "distance");
    for (uint32_t i = 0; i < swarm->members_count; i++) {
        const struct distill_member *member = &swarm->members[i];

        share_text(member->accuracy, accuracy);
        share_text(member->distance, distance);
        printf("%-24s %-8s %10u %10llu %10s %10s\n", member->address, states[member->poll.state],
               member->poll.answered, (unsigned long long)member->poll.step, accuracy, distance);
    }
    share_text(swarm->accuracy, accuracy);
    printf("%-24s %-8s %10llu %10s %10s   (on the student's training samples)\n", "all together",
           "", (unsigned long long)swarm->panel.samples, "", accuracy);
}

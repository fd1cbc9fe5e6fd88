/* distill_swarm: see distill_swarm.h: what the swarm is, whom to ask, and what came of it. Thread:
 * the command's. */
#include "peer/commands/distill_swarm_internal.h"

#include "gossip/wire/address.h"
#include "peer/files/keys.h"
#include "peer/session/settings.h"
#include "peer/cli/command.h"
#include "peer/watch/observer.h"
#include "replica/data/dataset.h"
#include "replica/learners/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum rc asking_no_memory(struct asking *a)
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
                                              .way = command_way(a->options),
                                              .timeout_ns = options_ns(a->options, "join-timeout"),
                                              .stop = a->stop};
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
    if (s->members_count == SURVEY_MEMBERS_MAX) {
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

    s->members = mem_array(SURVEY_MEMBERS_MAX, sizeof *s->members);
    if (s->members == NULL) return asking_no_memory(a);
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
    a->order = mem_array((size_t)panel->info->train_samples, sizeof *a->order);
    if (a->order == NULL) return asking_no_memory(a);
    dataset_order(panel->open.seed, a->order, (size_t)panel->info->train_samples);
    return RC_OK;
}

/* ---- for both ways of asking ---- */

uint32_t asking_window(const struct asking *a)
{
    const uint64_t fits = PROBE_BYTES_MAX / samples_bytes(a->out->panel.info);

    return (uint32_t)(a->out->asked < fits ? a->out->asked : fits > 0 ? fits : 1);
}

enum rc asking_go_on(struct asking *a)
{
    return *a->stop == 0 ? RC_OK : fault_set(a->why, RC_CANCELLED, "stopped");
}

enum rc asking_load(struct asking *a, uint64_t first, struct samples *samples)
{
    const uint64_t left = a->out->asked - first, window = asking_window(a);

    const enum rc rc = asking_go_on(a);

    if (rc != RC_OK) return rc;
    return dataset_load_list(a->out->dataset, a->order + first,
                             (size_t)(left < window ? left : window), samples, a->why);
}

void asking_folder(const struct asking *a, char *folder, size_t cap)
{
    const char *slash = strrchr(a->out_path, '/');

    snprintf(folder, cap, "%.*s", slash == NULL ? 1 : (int)(slash - a->out_path + 1),
             slash == NULL ? "." : a->out_path);
}

static void on_progress(void *context, double share, uint32_t there)
{
    const struct asking *a = context;
    char detail[32];

    snprintf(detail, sizeof detail, "%u member%s", there, there == 1 ? "" : "s");
    progress_tell(a->progress, "asking the swarm", share < 1 ? share : 0.999, detail);
}

enum rc asking_survey(struct asking *a, struct inquiry *inquiry)
{
    const struct distill_swarm *s = a->out;
    char addresses[SURVEY_MEMBERS_MAX][ADDRESS_BYTES_MAX];
    const struct survey_options options = {.addresses = addresses,
                                           .members = s->members_count,
                                           .inquiry = inquiry,
                                           .swarm = &a->secret,
                                           .identity = options_text(a->options, "identity"),
                                           .certificate = options_text(a->options, "certificate"),
                                           .way = command_way(a->options),
                                           .stop = a->stop,
                                           .on_progress = on_progress,
                                           .context = a};

    for (uint32_t i = 0; i < s->members_count; i++) {
        memcpy(addresses[i], s->members[i].address, ADDRESS_BYTES_MAX);
    }
    return survey_run(&options, a->why);
}

/* The reason is what most members have in common. */
enum rc asking_in_vain(struct asking *a, const char *what, const char *advice)
{
    const struct distill_swarm *s = a->out;
    const char *why = "";

    for (uint32_t i = 0; i < s->members_count; i++) {
        if (s->members[i].state == INQUIRY_REFUSED || why[0] == '\0') why = s->members[i].why;
    }
    return fault_set(
        a->why, RC_NOT_FOUND, "no member of the swarm at %.80s has %s: of %u asked, %s: %s; %s",
        options_text(a->options, "swarm"), what, s->members_count,
        s->members_count == 1 ? "it" : "the last", why[0] != '\0' ? why : "silence", advice);
}

/* One line for each whose part is not all there. */
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
        const struct distill_member *m = &s->members[i];
        if (m->state == INQUIRY_DONE || m->why[0] == '\0') continue;
        if (s->has_models) {
            log_warn(log, "member at %s: %s; its model is left out", m->address, m->why);
        } else {
            log_warn(log, "member at %s: %s; of its answers %u of %llu count", m->address, m->why,
                     m->answered, (unsigned long long)s->asked);
        }
    }
}

enum rc distill_swarm_ask(struct options *options, struct backend *backend, const char *out,
                          struct progress *progress, const volatile sig_atomic_t *stop,
                          struct distill_swarm *swarm, struct fault *why)
{
    struct asking a = {.options = options,
                       .backend = backend,
                       .progress = progress,
                       .out = swarm,
                       .why = why,
                       .out_path = out,
                       .stop = stop,
                       .secret = {.is_public = true}};
    enum rc rc;

    *swarm =
        (struct distill_swarm){.trim = swarm->trim, .has_models = options_flag(options, "models")};
    rc = ask_status(&a);
    if (rc == RC_OK) rc = take_settings(&a);
    if (rc == RC_OK) rc = list_members(&a);
    if (rc == RC_OK) rc = open_data(&a);
    if (rc == RC_OK) {
        rc = distill_check_student(backend, options_text(options, "student"), swarm->panel.info,
                                   why);
    }
    if (rc == RC_OK) rc = swarm->has_models ? asking_models(&a) : asking_predictions(&a);
    mem_wipe(&a.secret, sizeof a.secret);
    if (swarm->answered > 0) warn(&a);
    json_destroy(a.status);
    mem_free(a.order);
    if (rc != RC_OK) distill_swarm_deinit(swarm);
    return rc;
}

void distill_swarm_deinit(struct distill_swarm *swarm)
{
    for (uint32_t i = 0; swarm->paths != NULL && i < swarm->answered; i++) {
        (void)unlink(swarm->paths[i]);
        mem_free(swarm->paths[i]);
    }
    if (swarm->folder[0] != '\0') (void)rmdir(swarm->folder);
    mem_free(swarm->paths);
    mem_free(swarm->names);
    panel_destroy(swarm->panel.panel);
    dataset_close(swarm->dataset);
    mem_free(swarm->members);
    *swarm = (struct distill_swarm){0};
}

/* ---- what is told of it ---- */

static const char *const states[] = {
    [INQUIRY_DIALLING] = "silent", [INQUIRY_ASKING] = "silent", [INQUIRY_DONE] = "done",
    [INQUIRY_LOST] = "lost",       [INQUIRY_LATE] = "late",     [INQUIRY_REFUSED] = "refused",
    [INQUIRY_BAD] = "bad"};

struct json *distill_swarm_json(const struct distill_swarm *swarm)
{
    struct json *json = json_object_create(), *members = json_array_create();

    for (uint32_t i = 0; i < swarm->members_count; i++) {
        const struct distill_member *member = &swarm->members[i];
        struct json *row = json_object_create();

        json_set_text(row, "address", member->address);
        json_set_text(row, "state", states[member->state]);
        json_set_text(row, "why", member->why[0] != '\0' ? member->why : NULL);
        json_set_count(row, "step", member->step);
        json_set_real(row, "accuracy", member->accuracy);
        if (!swarm->has_models) {
            json_set_count(row, "answered", member->answered);
            json_set_real(row, "distance", member->distance);
        }
        json_append(members, row);
    }
    json_set(json, "members", members);
    json_set_count(json, "answered", swarm->answered);
    if (!swarm->has_models) {
        json_set_count(json, "samples_asked", swarm->asked);
        json_set_count(json, "samples_bounded", swarm->bounded);
    }
    json_set_count(json, "trim", swarm->trim);
    if (!swarm->has_models) json_set_real(json, "accuracy", swarm->accuracy);
    return json;
}

static void share_text(double share, char text[16])
{
    snprintf(text, 16, "-");
    if (!isnan(share)) snprintf(text, 16, "%.2f %%", 100 * share);
}

/* Of models, what is said of their answers is in the table of all models. */
void distill_swarm_print(const struct distill_swarm *swarm)
{
    static const char about[] = "   (on the student's training samples)";
    char accuracy[16], distance[16], answers[32] = "";

    if (!swarm->has_models) snprintf(answers, sizeof answers, " %10s %10s", "answered", "distance");
    printf("%-24s %-8s %10s %10s%s\n", "member", "state", "at step", "accuracy",
           swarm->has_models ? about : answers);
    for (uint32_t i = 0; i < swarm->members_count; i++) {
        const struct distill_member *member = &swarm->members[i];

        share_text(member->accuracy, accuracy);
        share_text(member->distance, distance);
        if (!swarm->has_models) {
            snprintf(answers, sizeof answers, " %10u %10s", member->answered, distance);
        }
        printf("%-24s %-8s %10llu %10s%s\n", member->address, states[member->state],
               (unsigned long long)member->step, accuracy, answers);
    }
    if (swarm->has_models) return;
    share_text(swarm->accuracy, accuracy);
    printf("%-24s %-8s %10s %10s %10llu%s\n", "all together", "", "", accuracy,
           (unsigned long long)swarm->panel.samples, about);
}

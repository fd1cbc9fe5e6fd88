/* command_distill: a compact student out of the predictions of several models. */
#include "peer/cli/command.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/shell.h"
#include "base/units.h"
#include "distill/generations.h"
#include "distill/teachers.h"
#include "kernels/backend.h"
#include "peer/cli/progress.h"
#include "peer/commands/distill_swarm.h"
#include "peer/env/env.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    PATH_BYTES = GENERATIONS_PATH_BYTES,
    COMMAND_BYTES = 1 << 16,
    OTHERS_MAX = 64,
    WORDS_MAX = 256
};

/* What is in hand while the student is made. */
struct working {
    struct progress progress;
    const volatile sig_atomic_t *stop; /* the signal to stop, once it came */
    char *others_text;                 /* of --compare, cut into `others` */
    const char *others[OTHERS_MAX];
    char *command; /* what the user typed */
};

static bool is_stopped(void *context)
{
    const struct working *working = context;

    return *working->stop != 0;
}

static void on_progress(void *context, const struct distill_progress *p)
{
    struct working *working = context;
    static const char *const phases[] = {[DISTILL_JUDGING] = "judging the teachers",
                                         [DISTILL_TEACHING] = "asking the teachers",
                                         [DISTILL_LEARNING] = "training the student",
                                         [DISTILL_BASELINE] = "training on labels alone"};
    char loss[64] = "";

    if (isfinite(p->loss)) snprintf(loss, sizeof loss, "loss %.4f", p->loss);
    if (p->generations > 1) {
        const size_t length = strlen(loss);
        snprintf(loss + length, sizeof loss - length, "%sgeneration %u of %u",
                 length > 0 ? ", " : "", p->generation, p->generations);
    }
    progress_tell(&working->progress, phases[p->phase], (double)p->done / (double)p->total, loss);
}

static void on_note(void *context, const char *text)
{
    struct working *working = context;

    progress_clear(&working->progress);
    log_warn(&working->progress.log, "%s", text);
}

static void print_scores(const char *name, const struct score *score)
{
    const double accuracy = score_accuracy(score), loss = score_loss(score);
    const double calibration = score_calibration(score);
    char share[32] = "", nats[32] = "", error[32] = "";

    if (!isnan(accuracy)) snprintf(share, sizeof share, "%.2f %%", 100 * accuracy);
    if (!isnan(loss)) snprintf(nats, sizeof nats, "%.4f", loss);
    if (!isnan(calibration)) snprintf(error, sizeof error, "%.2f %%", 100 * calibration);
    printf("%-34s %9s  %8s  %12s", name, share, nats, error);
}

static void print_row(const struct lineup_row *row)
{
    const struct judged *j = &row->judged;
    char latency[32] = "", parameters[32], bytes[32], flops[32];

    if (!isnan(j->latency_us)) {
        snprintf(latency, sizeof latency, "%.*f us", j->latency_us < 100, j->latency_us);
    }
    print_scores(row->name, &j->score);
    printf("  %12s  %10s  %8s  %9s\n",
           units_format_count(j->parameters, parameters, sizeof parameters),
           units_format_bytes(j->bytes, bytes, sizeof bytes),
           units_format_count(j->flops, flops, sizeof flops), latency);
}

/* FLOPs and time are of a sample, forward. */
static void print_words(const struct distill_result *r)
{
    const struct lineup *t = &r->lineup;
    const size_t teachers = r->teachers.count;

    printf("%-34s %9s  %8s  %12s  %12s  %10s  %8s  %9s\n", "", "accuracy", "loss", "calib. error",
           "parameters", "file", "FLOPs", "latency");
    for (size_t i = 0; i < t->count; i++) {
        if (i == 16 && teachers > 16) printf("... and %zu more\n", teachers - 16);
        if (i < 16 || i >= teachers) print_row(&t->rows[i]);
    }
    printf("%llu of %llu training samples, %llu steps, lr %.4g", (unsigned long long)r->samples,
           (unsigned long long)r->samples_all, (unsigned long long)r->steps, r->lr);
    if (r->transfer[0] != '\0') printf(", of %s without labels", r->transfer);
    if (r->resumed_steps > 0) {
        printf(", %llu of them by an earlier try", (unsigned long long)r->resumed_steps);
    }
    if (r->has_baseline) {
        printf("; labels alone: as many steps on all samples, best at lr %.4g of three%s",
               r->labels_only_lr,
               distill_labels_win(r) ? ", and better than the teachers' student" : "");
    }
    putchar('\n');
}

/* All of them together, and where those before the last one are. */
static void print_generations(const struct comparison *students)
{
    print_scores("ensemble of the generations", &students->votes[VOTE_MEAN]);
    putchar('\n');
    for (size_t i = 0; i + 1 < students->count; i++) {
        puts(students->paths[i]);
    }
}

/* A file beside those of the testnet. */
static enum rc path_in(const char *folder, const char *name, char path[PATH_BYTES],
                       struct fault *why)
{
    const int length = snprintf(path, PATH_BYTES, "%s/%s", folder, name);

    if (length >= 0 && length < PATH_BYTES) return RC_OK;
    return fault_set(why, RC_USAGE, "--report: the path is too long");
}

/* For `grapevine report DIR`. */
static enum rc result_path(const char *folder, char path[PATH_BYTES], struct fault *why)
{
    return path_in(folder, "distill.json", path, why);
}

/* Where the student goes: beside its result, if nobody says otherwise. */
static enum rc student_path(const struct options *options, char path[PATH_BYTES], struct fault *why)
{
    const char *out = options_text(options, "out"), *folder = options_text(options, "report");

    if (folder != NULL && !options_is_set(options, "out")) return path_in(folder, out, path, why);
    if (snprintf(path, PATH_BYTES, "%s", out) < PATH_BYTES) return RC_OK;
    return fault_set(why, RC_USAGE, "--out: the path is too long");
}

/* The student's file, or one of its states. */
static bool is_beside(const char *answers, const char *out)
{
    const size_t length = strlen(out);

    if (strncmp(answers, out, length) != 0) return false;
    return answers[length] == '\0' || strncmp(answers + length, ".state", 6) == 0;
}

/* Before hours of training, not after. */
static enum rc check_writable(const struct options *options, const struct teachers *teachers,
                              const char *out, struct fault *why)
{
    const char *folder = options_text(options, "report");
    const char *const *from = (const char *const *)teachers->paths;
    const size_t count = (size_t)options_count(options, "generations");
    const char *answers = options_text(options, "answers");
    char path[PATH_BYTES];
    enum rc rc = RC_OK;

    if (folder != NULL) rc = file_make_folder(folder, why);
    for (size_t i = 1; rc == RC_OK && i <= count; i++) {
        rc = generations_path(out, i, count, path, why);
        if (rc == RC_OK && answers != NULL && is_beside(answers, path)) {
            rc = fault_set(why, RC_USAGE, "--answers %s is a file of --out's own; choose another",
                           answers);
        }
        if (rc == RC_OK) rc = command_check_out(path, from, teachers->count, why);
        if (rc == RC_OK) rc = file_check_replace(path, why);
    }
    if (rc != RC_OK || folder == NULL) return rc;
    rc = result_path(folder, path, why);
    return rc == RC_OK ? file_check_replace(path, why) : rc;
}

static enum rc save_result(const char *folder, const struct json *json, struct fault *why)
{
    char path[PATH_BYTES];
    char *text = json_format_pretty(json);

    if (text == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    const struct piece pieces[] = {{text, strlen(text)}, {"\n", 1}};
    enum rc rc = result_path(folder, path, why);
    if (rc == RC_OK) rc = file_replace(path, pieces, ARRAY_COUNT(pieces), 0644, why);
    mem_free(text);
    return rc;
}

/* --compare NAME=FILE,FILE,... */
static enum rc read_others(const struct options *options, struct working *working, size_t *count,
                           struct fault *why)
{
    const char *text = options_text(options, "compare");

    *count = 0;
    if (text == NULL) return RC_OK;
    working->others_text = mem_string(text);
    if (working->others_text == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    for (char *at = working->others_text, *next; at != NULL; at = next) {
        next = strchr(at, ',');
        if (next != NULL) *next++ = '\0';
        const char *equals = strchr(at, '='), *file = equals != NULL ? equals + 1 : at;
        if (*file == '\0' || equals == at) {
            return fault_set(why, RC_USAGE, "--compare: '%s' is no FILE and no NAME=FILE", at);
        }
        if (*count == OTHERS_MAX) {
            return fault_set(why, RC_USAGE, "--compare: at most %d files", OTHERS_MAX);
        }
        if (!file_is_there(file)) {
            return fault_set(why, RC_NOT_FOUND, "--compare: there is no %s", file);
        }
        working->others[(*count)++] = at;
    }
    return RC_OK;
}

/* What was given, in flags; NULL: not known. */
static char *command_line(const struct options *options)
{
    static const char *const passing[] = {"json", "quiet", "verbose", NULL};
    char *words[WORDS_MAX];
    const size_t count = options_forward(options, COMMAND_DISTILL, passing, words, WORDS_MAX);
    char *text = count != SIZE_MAX ? mem_alloc(COMMAND_BYTES) : NULL;
    size_t at = text != NULL ? shell_add(text, COMMAND_BYTES, 0, "grapevine") : 0;

    if (text != NULL) at = shell_add(text, COMMAND_BYTES, at, "distill");
    for (size_t i = 0; count != SIZE_MAX && i < count; i++) {
        if (text != NULL) at = shell_add(text, COMMAND_BYTES, at, words[i]);
        mem_free(words[i]);
    }
    if (at < COMMAND_BYTES) return text;
    mem_free(text); /* too long to be of use */
    return NULL;
}

/* Who is asked over the network may lie. */
static uint32_t trim_of(const struct options *options)
{
    if (options_is_set(options, "trim")) return (uint32_t)options_count(options, "trim");
    return options_text(options, "swarm") != NULL ? 1 : 0;
}

static enum rc check_trim(const struct options *options, const struct distill_options *request,
                          struct fault *why)
{
    const char *flag = request->vote != VOTE_MEAN                             ? "teachers-vote"
                       : request->weighs_scores || request->weighs_confidence ? "weights"
                                                                              : NULL;

    if (flag == NULL || request->trim == 0) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--%s does not go with a trimmed mean (--trim %u%s), in which all weigh the "
                     "same; leave it out, or pass --trim 0",
                     flag, request->trim,
                     options_is_set(options, "trim") ? "" : ", the default of --swarm");
}

static enum rc request_of(const struct options *options, const struct teachers *teachers,
                          const char *out, struct working *working, struct distill_options *request,
                          struct fault *why)
{
    const char *student = options_text(options, "student"), *transfer;
    size_t others = 0;
    const enum rc rc = read_others(options, working, &others, why);

    if (rc != RC_OK) return rc;
    transfer = options_text(options, "transfer");

    if (student == NULL) {
        return fault_set(why, RC_USAGE,
                         "--student is required: a preset or a layer list as for --model");
    }
    *request = (struct distill_options){
        .teachers = (const char *const *)teachers->paths,
        .teachers_count = teachers->count,
        .weighs_scores = strcmp(options_text(options, "weights"), "score") == 0,
        .weighs_confidence = strcmp(options_text(options, "weights"), "confidence") == 0,
        .trim = trim_of(options),
        .temperature = options_real(options, "temperature"),
        .alpha = transfer != NULL && !options_is_set(options, "alpha")
                     ? 1
                     : options_real(options, "alpha"),
        .is_hard = strcmp(options_text(options, "targets"), "hard") == 0,
        .student = student,
        .data = options_is_set(options, "data") ? options_text(options, "data") : NULL,
        .transfer = transfer,
        .tokenizer = options_text(options, "tokenizer"),
        .samples_max = options_count(options, "samples"),
        .epochs = options_real(options, "epochs"),
        .batch = (uint32_t)options_count(options, "batch"),
        .optimizer = options_text(options, "optimizer"),
        .schedule = options_text(options, "schedule"),
        .lr = options_real(options, "lr"),
        .clip = options_real(options, "clip"),
        .accumulate = (uint32_t)options_count(options, "accumulate"),
        .augment = options_text(options, "augment"),
        .sees_plain = strcmp(options_text(options, "teachers-view"), "plain") == 0,
        .seed = options_count(options, "seed"),
        .with_baseline = options_flag(options, "baseline"),
        .answers_top = (uint32_t)options_count(options, "answers-top"),
        .answers_path = options_text(options, "answers"),
        .out_path = out,
        .others = working->others,
        .others_count = others,
        .command = working->command,
        .now_ns = uv_clock_ns,
        .is_stopped = is_stopped,
        .on_progress = on_progress,
        .on_note = on_note,
        .context = working,
    };
    const bool is_known = vote_parse(options_text(options, "teachers-vote"), &request->vote);
    CHECK(is_known); /* the table of options lists the same names */
    return RC_OK;
}

/* What is there only where the teachers are files, also of models that were fetched. */
static enum rc check_swarm_flags(const struct options *options,
                                 const struct distill_options *request, struct fault *why)
{
    const char *flag = request->vote != VOTE_MEAN                             ? "teachers-vote"
                       : request->weighs_scores || request->weighs_confidence ? "weights"
                       : request->is_hard                                     ? "targets"
                       : request->transfer != NULL                            ? "transfer"
                       : options_is_set(options, "answers-top")               ? "answers-top"
                       : options_is_set(options, "teachers-view")             ? "teachers-view"
                                                                              : NULL;

    if (request->answers_path != NULL) {
        return fault_set(why, RC_USAGE,
                         "--answers does not go with --swarm, whose models go on changing: there "
                         "will be no use for the file; leave it out");
    }
    if (flag == NULL || options_flag(options, "models")) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--%s does not go with --swarm, whose members say probabilities of the "
                     "training samples, combined by a trimmed mean; leave it out, or fetch their "
                     "models (--models)",
                     flag);
}

/* Members of a swarm in place of files: what of the request is then otherwise. */
static enum rc request_swarm(struct options *options, struct backend *backend,
                             struct working *working, struct distill_swarm *swarm,
                             struct distill_options *request, struct fault *why)
{
    enum rc rc;

    swarm->trim = request->trim;
    rc = distill_swarm_ask(options, backend, request->out_path, &working->progress, working->stop,
                           swarm, why);
    if (rc != RC_OK) return rc;
    request->data = swarm->panel.data;
    request->seed = swarm->panel.open.seed;
    request->keeps_nothing = true;
    if (swarm->has_models) {
        request->teachers = (const char *const *)swarm->paths;
        request->teacher_names = swarm->names;
        request->teachers_count = swarm->answered;
    } else {
        request->panel = &swarm->panel;
        request->samples_max = swarm->panel.samples;
    }
    return RC_OK;
}

static enum rc show(const struct options *options, const struct generations *done,
                    const struct distill_swarm *swarm, const char *out, double wall_s,
                    struct fault *why)
{
    const char *folder = options_text(options, "report");
    struct json *json =
        done->students.count > 1 ? generations_json(done) : distill_json(&done->result);
    char summary[PATH_BYTES];
    bool has_summary = false;
    enum rc rc = RC_OK;

    if (folder != NULL) rc = path_in(folder, "summary.json", summary, why);
    if (folder != NULL && rc == RC_OK) has_summary = file_is_there(summary);
    json_set_real(json, "wall_s", wall_s);
    if (swarm->members != NULL) {
        json_set_count(json, "teachers", swarm->answered);
        json_set(json, "swarm", distill_swarm_json(swarm));
    }
    if (folder != NULL && rc == RC_OK) rc = save_result(folder, json, why);
    if (rc == RC_OK && options_flag(options, "json")) {
        command_print_json(json);
        return rc;
    }
    /* In a testnet's folder the table comes from `grapevine report`, beside the testnet's own. */
    if (rc == RC_OK && swarm->members != NULL) distill_swarm_print(swarm);
    if (rc == RC_OK && has_summary) {
        printf("student: %s\ntable: grapevine report %s\n", out, folder);
    } else if (rc == RC_OK) {
        print_words(&done->result);
        if (done->students.count > 1) print_generations(&done->students);
        puts(out);
    }
    json_destroy(json);
    return rc;
}

int command_distill(struct options *options)
{
    struct working working = {.stop = command_watch_stop()};
    uint64_t begin_ns = 0;
    const char *from = options_text(options, "teachers");
    const bool has_swarm = options_text(options, "swarm") != NULL;
    struct teachers teachers = {NULL, 0};
    struct distill_swarm swarm = {.members = NULL};
    struct distill_options request;
    struct generations done;
    struct backend *backend = NULL;
    struct fault why = {""};
    char out[PATH_BYTES];
    enum rc rc;

    progress_init(&working.progress, options);
    working.command = command_line(options);
    if (from == NULL && !has_swarm) {
        rc = fault_set(&why, RC_USAGE,
                       "which teachers? say --teachers DIR or FILE,FILE..., or --swarm HOST:PORT");
    } else if (from != NULL && has_swarm) {
        rc = fault_set(&why, RC_USAGE, "--teachers and --swarm: one of them, please");
    } else if (!has_swarm && options_flag(options, "models")) {
        rc = fault_set(&why, RC_USAGE, "--models: whose? it goes with --swarm HOST:PORT");
    } else {
        rc = has_swarm ? RC_OK : teachers_find(from, &teachers, &why);
    }
    if (rc == RC_OK) rc = student_path(options, out, &why);
    if (rc == RC_OK) rc = request_of(options, &teachers, out, &working, &request, &why);
    if (rc == RC_OK && has_swarm) rc = check_swarm_flags(options, &request, &why);
    if (rc == RC_OK) rc = check_trim(options, &request, &why);
    if (rc == RC_OK) rc = check_writable(options, &teachers, out, &why);
    if (rc == RC_OK) rc = command_backend(options, &backend, &why);
    if (rc == RC_OK && has_swarm) {
        rc = request_swarm(options, backend, &working, &swarm, &request, &why);
    }
    if (rc == RC_OK) {
        if (command_wants_bf16(options)) command_tell_precision(backend, &working.progress.log);
        begin_ns = uv_clock_ns();
        rc = generations_run(backend, &request, (size_t)options_count(options, "generations"),
                             &done, &why);
        progress_clear(&working.progress);
    }
    if (rc == RC_OK) {
        progress_end(&working.progress);
        rc = show(options, &done, &swarm, out, (double)(uv_clock_ns() - begin_ns) / 1e9, &why);
        generations_deinit(&done);
    }
    backend_destroy(backend);
    distill_swarm_deinit(&swarm);
    teachers_deinit(&teachers);
    mem_free(working.others_text);
    mem_free(working.command);
    if (rc == RC_CANCELLED) return command_stopped((int)*working.stop, &why);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

/* command_distill: a compact student out of the predictions of several models. */
#include "peer/cli/command.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/units.h"
#include "distill/generations.h"
#include "distill/teachers.h"
#include "kernels/backend.h"
#include "peer/cli/progress.h"
#include "peer/env/env.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = GENERATIONS_PATH_BYTES };

static void on_progress(void *context, const struct distill_progress *p)
{
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
    progress_tell(context, phases[p->phase], (double)p->done / (double)p->total, loss);
}

/* What a student is trained with has no calibration: NaN. */
static void print_row(const char *name, const struct evaluation *score, double calibration,
                      uint64_t parameters)
{
    char share[32] = "", nats[32] = "", error[32] = "", count[32];

    if (!isnan(score->accuracy)) snprintf(share, sizeof share, "%.2f %%", 100 * score->accuracy);
    if (!isnan(score->loss)) snprintf(nats, sizeof nats, "%.4f", score->loss);
    if (!isnan(calibration)) snprintf(error, sizeof error, "%.2f %%", 100 * calibration);
    printf("%-34s %9s  %8s  %12s  %12s\n", name, share, nats, error,
           units_format_count(parameters, count, sizeof count));
}

static void print_score(const char *name, const struct score *score, uint64_t parameters)
{
    const struct evaluation said = {.accuracy = score_accuracy(score), .loss = score_loss(score)};

    print_row(name, &said, score_calibration(score), parameters);
}

static void print_words(const struct distill_result *r, const char *path)
{
    const struct comparison *c = &r->teachers;
    uint64_t all = 0;

    printf("%-34s %9s  %8s  %12s  %12s\n", "", "accuracy", "loss", "calib. error", "parameters");
    for (size_t i = 0; i < c->count; i++) {
        char name[40];
        snprintf(name, sizeof name, "teacher %zu", i);
        all += c->parameters[i];
        if (i < 16) print_score(name, &c->models[i], c->parameters[i]);
    }
    if (c->count > 16) printf("... and %zu more\n", c->count - 16);
    if (c->has_average) {
        print_score("average of their parameters", &c->average, c->parameters[0]);
    }
    print_score("ensemble", &c->votes[r->vote], all);
    print_row("student", &r->student, (double)NAN, r->student_parameters);
    if (r->has_baseline) {
        print_row("the same student on labels alone", &r->labels_only, (double)NAN,
                  r->student_parameters);
    }
    printf("%llu of %llu training samples, %llu steps, lr %.4g", (unsigned long long)r->samples,
           (unsigned long long)r->samples_all, (unsigned long long)r->steps, r->lr);
    if (r->has_baseline) {
        printf("; labels alone: the same, best at lr %.4g of three%s", r->labels_only_lr,
               distill_labels_win(r) ? ", and better than the teachers' student" : "");
    }
    printf("\n%s\n", path);
}

/* Each student, and all of them together. */
static void print_generations(const struct generations *g)
{
    const struct comparison *c = &g->students;

    for (size_t i = 0; i < c->count; i++) {
        char name[40];
        snprintf(name, sizeof name, "generation %zu", i + 1);
        print_score(name, &c->models[i], c->parameters[i]);
    }
    print_score("ensemble of the generations", &c->votes[VOTE_MEAN],
                c->parameters[0] * (uint64_t)c->count);
    for (size_t i = 0; i + 1 < c->count; i++) {
        puts(c->paths[i]);
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

/* Before hours of training, not after. */
static enum rc check_writable(const struct options *options, const struct teachers *teachers,
                              const char *out, struct fault *why)
{
    const char *folder = options_text(options, "report");
    char path[PATH_BYTES];
    const size_t count = (size_t)options_count(options, "generations");
    enum rc rc = RC_OK;

    for (size_t i = 1; rc == RC_OK && i <= count; i++) {
        rc = generations_path(out, i, count, path, why);
        if (rc == RC_OK) {
            rc =
                command_check_out(path, (const char *const *)teachers->paths, teachers->count, why);
        }
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

static enum rc request_of(const struct options *options, const struct teachers *teachers,
                          const char *out, struct progress *progress,
                          struct distill_options *request, struct fault *why)
{
    const char *student = options_text(options, "student");

    if (student == NULL) {
        return fault_set(why, RC_USAGE,
                         "--student is required: a preset or a layer list as for --model");
    }
    *request = (struct distill_options){
        .teachers = (const char *const *)teachers->paths,
        .teachers_count = teachers->count,
        .weighs_scores = strcmp(options_text(options, "weights"), "score") == 0,
        .temperature = options_real(options, "temperature"),
        .alpha = options_real(options, "alpha"),
        .student = student,
        .data = options_is_set(options, "data") ? options_text(options, "data") : NULL,
        .tokenizer = options_text(options, "tokenizer"),
        .samples_max = options_count(options, "samples"),
        .epochs = options_real(options, "epochs"),
        .batch = (uint32_t)options_count(options, "batch"),
        .optimizer = options_text(options, "optimizer"),
        .schedule = options_text(options, "schedule"),
        .lr = options_real(options, "lr"),
        .seed = options_count(options, "seed"),
        .with_baseline = options_flag(options, "baseline"),
        .out_path = out,
        .on_progress = on_progress,
        .context = progress,
    };
    const bool is_known = vote_parse(options_text(options, "teachers-vote"), &request->vote);
    CHECK(is_known); /* the table of options lists the same names */
    return RC_OK;
}

static enum rc show(const struct options *options, const struct generations *done, const char *out,
                    double wall_s, struct fault *why)
{
    const char *folder = options_text(options, "report");
    const struct distill_result *result = &done->result;
    struct json *json = done->students.count > 1 ? generations_json(done) : distill_json(result);
    enum rc rc = RC_OK;

    json_set_real(json, "wall_s", wall_s);
    if (folder != NULL) rc = save_result(folder, json, why);
    if (rc == RC_OK && options_flag(options, "json")) {
        command_print_json(json);
        return rc;
    }
    /* With --report the table comes from `grapevine report`, beside the testnet's own. */
    if (rc == RC_OK && folder == NULL) {
        print_words(result, out);
        if (done->students.count > 1) print_generations(done);
    }
    if (rc == RC_OK && folder != NULL) {
        printf("student: %s\ntable: grapevine report %s\n", out, folder);
    }
    json_destroy(json);
    return rc;
}

int command_distill(struct options *options)
{
    struct progress progress;
    uint64_t begin_ns = 0;
    const char *from = options_text(options, "teachers");
    struct teachers teachers = {NULL, 0};
    struct distill_options request;
    struct generations done;
    struct backend *backend = NULL;
    struct fault why = {""};
    char out[PATH_BYTES];
    enum rc rc;

    progress_init(&progress, options);
    if (from == NULL) {
        rc = fault_set(&why, RC_USAGE, "which teachers? say --teachers DIR or FILE,FILE...");
    } else {
        rc = teachers_find(from, &teachers, &why);
    }
    if (rc == RC_OK) rc = student_path(options, out, &why);
    if (rc == RC_OK) rc = request_of(options, &teachers, out, &progress, &request, &why);
    if (rc == RC_OK) rc = check_writable(options, &teachers, out, &why);
    if (rc == RC_OK) rc = command_backend(options, &backend, &why);
    if (rc == RC_OK) {
        if (command_wants_bf16(options)) command_tell_precision(backend, &progress.log);
        begin_ns = uv_clock_ns();
        rc = generations_run(backend, &request, (size_t)options_count(options, "generations"),
                             &done, &why);
        progress_clear(&progress);
    }
    if (rc == RC_OK) {
        progress_end(&progress);
        rc = show(options, &done, out, (double)(uv_clock_ns() - begin_ns) / 1e9, &why);
        generations_deinit(&done);
    }
    backend_destroy(backend);
    teachers_deinit(&teachers);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

/* generations: see generations.h. Thread: the command's, one at a time. */
#include "distill/generations.h"

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum { PURPOSE_GENERATION = 0x626f726e, NAME_BYTES = 48 };

/* What is told goes on with which generation it is about. */
struct telling {
    const struct distill_options *options;
    uint32_t generation, generations;
};

static void tell(void *context, const struct distill_progress *progress)
{
    const struct telling *telling = context;
    struct distill_progress told = *progress;

    told.generation = telling->generation;
    told.generations = telling->generations;
    telling->options->on_progress(telling->options->context, &told);
}

static void note(void *context, const char *text)
{
    const struct telling *telling = context;

    telling->options->on_note(telling->options->context, text);
}

static bool is_stopped(void *context)
{
    const struct telling *telling = context;

    return telling->options->is_stopped(telling->options->context);
}

enum rc generations_path(const char *out_path, size_t number, size_t count,
                         char path[GENERATIONS_PATH_BYTES], struct fault *why)
{
    static const char ending[] = ".safetensors";
    const size_t length = strlen(out_path), end = sizeof ending - 1;
    const bool has_ending = length > end && strcmp(out_path + length - end, ending) == 0;
    const int stem = (int)(has_ending ? length - end : length);

    CHECK(number >= 1 && number <= count && count <= GENERATIONS_MAX);
    if (length + 8 >= GENERATIONS_PATH_BYTES) {
        return fault_set(why, RC_USAGE, "--out: the path is too long");
    }
    if (number == count) {
        memcpy(path, out_path, length + 1);
        return RC_OK;
    }
    snprintf(path, GENERATIONS_PATH_BYTES, "%.*s.%zu%s", stem, out_path, number,
             has_ending ? ending : "");
    return RC_OK;
}

static void name_student(size_t number, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "student, generation %zu", number);
}

static enum rc add_student(struct lineup *lineup, size_t number,
                           const struct distill_options *options, const struct judged *judged,
                           struct fault *why)
{
    char name[NAME_BYTES];

    name_student(number, name);
    const enum rc rc = lineup_add(lineup, name, options->out_path, options->command, judged);
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot distil: out of memory");
}

/* A generation that learns from the one before. Weights and order are other ones, or the second
 * student would repeat what the first did; the samples are the same. */
static enum rc run_later(struct backend *backend, const struct distill_options *options,
                         const char *teacher, size_t number, struct generations *all,
                         struct fault *why)
{
    struct distill_options request = *options;
    struct distill_result result;

    request.teachers = &teacher;
    request.teachers_count = 1;
    request.panel = NULL;
    request.weighs_scores = false;
    request.weighs_confidence = false;
    request.trim = 0;
    request.teacher_names = NULL;
    request.with_baseline = false;
    request.answers_path = NULL; /* of the first teachers */
    request.others_count = 0;
    request.vote = VOTE_MEAN;
    request.student_seed = rng_mix(rng_mix(options->seed, PURPOSE_GENERATION), number);
    enum rc rc = distill_run(backend, &request, &result, why);
    if (rc != RC_OK) return rc;
    all->result.student = result.student;
    all->result.student_judged = result.student_judged;
    rc = add_student(&all->result.lineup, number, options, &result.student_judged, why);
    distill_result_deinit(&result);
    return rc;
}

static enum rc judge(struct backend *backend, const struct distill_options *options,
                     char paths[][GENERATIONS_PATH_BYTES], size_t count, struct generations *all,
                     struct fault *why)
{
    const char *files[GENERATIONS_MAX];
    const struct comparison_options request = {.paths = files,
                                               .paths_count = count,
                                               .data = options->data,
                                               .tokenizer = options->tokenizer,
                                               .seed = options->seed};

    for (size_t i = 0; i < count; i++) {
        files[i] = paths[i];
    }
    return comparison_run(backend, &request, &all->students, why);
}

enum rc generations_run(struct backend *backend, const struct distill_options *options,
                        size_t count, struct generations *out, struct fault *why)
{
    char paths[GENERATIONS_MAX][GENERATIONS_PATH_BYTES];
    struct telling telling = {.options = options, .generations = (uint32_t)count};
    struct distill_options request = *options;
    struct generations all = {.students = {.count = 0}};
    char name[NAME_BYTES];
    enum rc rc = RC_OK;

    CHECK(count >= 1 && count <= GENERATIONS_MAX && options->out_path != NULL);
    request.context = &telling;
    if (options->on_progress != NULL) request.on_progress = tell;
    if (options->on_note != NULL) request.on_note = note;
    if (options->is_stopped != NULL) request.is_stopped = is_stopped;
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        rc = generations_path(options->out_path, i + 1, count, paths[i], why);
    }
    if (rc != RC_OK) return rc;
    telling.generation = 1;
    request.out_path = paths[0];
    name_student(1, name);
    if (count > 1) request.student_name = name;
    rc = distill_run(backend, &request, &all.result, why);
    if (rc != RC_OK) return rc;
    for (size_t i = 1; rc == RC_OK && i < count; i++) {
        telling.generation = (uint32_t)i + 1;
        request.out_path = paths[i];
        rc = run_later(backend, &request, paths[i - 1], i + 1, &all, why);
    }
    if (rc == RC_OK && count > 1) rc = judge(backend, options, paths, count, &all, why);
    if (rc != RC_OK) {
        distill_result_deinit(&all.result);
        return rc;
    }
    *out = all;
    return RC_OK;
}

void generations_deinit(struct generations *generations)
{
    distill_result_deinit(&generations->result);
    comparison_deinit(&generations->students);
}

struct json *generations_json(const struct generations *generations)
{
    const struct comparison *students = &generations->students;
    struct json *json = distill_json(&generations->result), *list = json_array_create();

    for (size_t i = 0; i < students->count; i++) {
        struct json *row = score_json(&students->models[i]);

        json_set_text(row, "file", students->paths[i]);
        json_append(list, row);
    }
    json_set(json, "generations", list);
    json_set(json, "generations_ensemble", score_json(&students->votes[VOTE_MEAN]));
    return json;
}

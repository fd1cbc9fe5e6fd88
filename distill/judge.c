/* judge: see judge.h. */
#include "distill/judge.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "distill/comparison.h"
#include "kernels/backend.h"
#include "replica/learners/team.h"
#include "replica/plane/store_safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { WARM_PASSES = 3 };
#define LATENCY_NS UINT64_C(500000000) /* spent on it, about */

struct judge {
    struct backend *backend;
    struct dataset *dataset;
    struct samples test;
    uint64_t (*now_ns)(void);
};

enum rc judge_open(struct backend *backend, const struct judge_options *options,
                   struct judge **judge, struct fault *why)
{
    struct dataset_options opening = comparison_data(options->card, options->seed);
    const char *data = options->data != NULL ? options->data : options->card->data;
    struct judge *j = mem_alloc(sizeof *j);
    char tokenizer[MODEL_PATH_BYTES];

    if (j == NULL) return fault_set(why, RC_NOMEM, "cannot judge models: out of memory");
    j->backend = backend;
    j->now_ns = options->now_ns;
    if (model_tokenizer_find(options->card, options->card_path, options->tokenizer, tokenizer)) {
        opening.tokenizer = tokenizer;
    }
    enum rc rc = dataset_open(data, &opening, &j->dataset, why);
    if (rc == RC_OK) rc = dataset_load_test(j->dataset, 0, &j->test, why);
    if (rc != RC_OK) {
        judge_close(j);
        return rc;
    }
    *judge = j;
    return RC_OK;
}

void judge_close(struct judge *judge)
{
    if (judge == NULL) return;
    samples_deinit(&judge->test);
    dataset_close(judge->dataset);
    mem_free(judge);
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* By the calling thread, as one who has just one sample would have it. */
static enum rc time_passes(struct judge *j, struct model *model, const struct batch *batch,
                           float *logits, double *latency_us)
{
    uint64_t times[JUDGE_PASSES];
    const uint64_t begin = j->now_ns();
    size_t count = 0;
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < WARM_PASSES + JUDGE_PASSES; i++) {
        const uint64_t from = j->now_ns();
        rc = model_forward(model, batch->values, 1, false, logits);
        const uint64_t to = j->now_ns();
        if (i >= WARM_PASSES) times[count++] = to - from;
        if (count > 0 && to - begin > LATENCY_NS) break;
    }
    if (rc != RC_OK) return rc;
    qsort(times, count, sizeof *times, compare_times);
    *latency_us = (double)times[count / 2] / 1e3;
    return RC_OK;
}

static enum rc measure(struct judge *j, struct model *model, struct judged *out)
{
    const struct dataset_info info = outputs_info(dataset_info(j->dataset), model);
    const size_t each = (size_t)model_rows(model) * model_classes(model);
    float *logits = mem_aligned(each * sizeof *logits);
    struct batch batch = {0};
    enum rc rc = logits != NULL ? batch_init(&batch, &info, 1) : RC_NOMEM;

    out->parameters = model_schema(model)->values[SECTION_PARAMETERS];
    out->flops = model_flops(model);
    out->latency_us = (double)NAN;
    if (rc == RC_OK && j->now_ns != NULL && j->test.count > 0) {
        rc = samples_gather(&j->test, &info, (struct pick){NULL, 0, 1}, &batch);
        if (rc == RC_OK) rc = time_passes(j, model, &batch, logits, &out->latency_us);
    }
    batch_deinit(&batch);
    mem_free(logits);
    return rc;
}

static enum rc judge_team(struct judge *j, struct team *team, const char *name, bool with_score,
                          struct judged *out, struct fault *why)
{
    const struct dataset_info info = outputs_info(dataset_info(j->dataset), team_model(team));
    const struct outputs_part all = {&j->test, 0, j->test.count, NULL};
    enum rc rc = measure(j, team_model(team), out);

    if (rc == RC_OK && with_score) rc = outputs_run(team, &info, &all, NULL, &out->score);
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot evaluate %s: %s", name, rc_text(rc));
}

static enum rc judge_path(struct judge *j, const char *path, bool with_score, struct judged *judged,
                          struct fault *why)
{
    const struct dataset_info *info = dataset_info(j->dataset);
    const struct comparison_file file = {
        .path = path, .info = info, .batch_max = outputs_batch(info)};
    struct judged made = {.latency_us = (double)NAN};
    struct team *team = NULL;
    struct model_card card;
    struct stat status;
    enum rc rc = comparison_open(j->backend, &file, &team, &card, why);

    if (rc != RC_OK) return rc;
    rc = judge_team(j, team, path, with_score, &made, why);
    if (rc == RC_OK && stat(path, &status) != 0) rc = file_fault(why, "read", path, errno);
    if (rc == RC_OK) {
        made.bytes = (uint64_t)status.st_size;
        *judged = made;
    }
    team_destroy(team);
    return rc;
}

enum rc judge_file(struct judge *judge, const char *path, struct judged *judged, struct fault *why)
{
    return judge_path(judge, path, true, judged, why);
}

enum rc judge_costs(struct judge *judge, const char *path, struct judged *judged, struct fault *why)
{
    return judge_path(judge, path, false, judged, why);
}

static enum rc reload(struct judge *j, const struct tensor_file *file, struct team **team,
                      struct fault *why)
{
    struct team_around around = {.threads = 1};
    struct backend *backend = team_around_begin(j->backend, &around);
    struct model_card card;

    if (backend == NULL) return fault_set(why, RC_NOMEM, "cannot judge models: out of memory");
    const enum rc rc =
        model_load(backend, file, "the student", outputs_batch(dataset_info(j->dataset)), false,
                   &around.model, &card, why);
    if (rc == RC_OK) return team_around(&around, team, why);
    backend_destroy(around.backend);
    return rc;
}

enum rc judge_model(struct judge *judge, struct model *model, const struct model_card *card,
                    struct judged *judged, struct fault *why)
{
    struct tensor_file *file = tensor_file_create();
    struct judged made = {.latency_us = (double)NAN};
    const struct piece *pieces = NULL;
    struct team *team = NULL;
    size_t count = 0;
    enum rc rc = file != NULL ? model_save(model, card, file) : RC_NOMEM;

    if (rc == RC_OK) rc = tensor_file_encode(file, &pieces, &count);
    if (rc != RC_OK) rc = fault_set(why, rc, "cannot judge the student: %s", rc_text(rc));
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        made.bytes += pieces[i].count;
    }
    if (rc == RC_OK) rc = reload(judge, file, &team, why);
    if (rc == RC_OK) rc = judge_team(judge, team, "the student", true, &made, why);
    if (rc == RC_OK) *judged = made;
    team_destroy(team);
    tensor_file_destroy(file);
    return rc;
}

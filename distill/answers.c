/* answers: see answers.h. Thread: the command's, one at a time. */
#include "distill/answers.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "distill/comparison.h"
#include "distill/outputs.h"
#include "replica/learners/team.h"

struct answers {
    struct answers_options options;
    uint32_t rows;             /* a sample */
    size_t each;               /* values a sample */
    struct ensemble *ensemble; /* of all samples, or of one batch */
    bool is_kept;
    /* Where they are not: */
    struct team **teachers; /* [teachers_count] */
    struct batch batch;
    float *logits;
};

static enum rc load(struct answers *a, struct backend *backend, size_t i, uint32_t batch,
                    struct team **team, struct fault *why)
{
    const struct comparison_file file = {
        .path = a->options.teachers[i], .info = a->options.info, .batch_max = batch};
    struct model_card card;

    return comparison_open(backend, &file, team, &card, why);
}

static void on_answer(void *context, size_t first, uint32_t samples, const float *logits)
{
    struct answers *a = context;

    ensemble_absorb(a->ensemble, first * a->rows, (size_t)samples * a->rows, logits);
}

static void weigh(struct answers *a, size_t teacher)
{
    if (a->options.weights != NULL) ensemble_weigh(a->ensemble, a->options.weights[teacher]);
}

static enum rc ask_all(struct answers *a, struct backend *backend, struct fault *why)
{
    const struct answers_options *o = &a->options;
    struct work work = {0, o->teachers_count * o->samples->count, o->on_progress, o->context};
    const struct outputs_part all = {o->samples, 0, o->samples->count, &work};
    const struct outputs_sink sink = {a, on_answer};
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < o->teachers_count; i++) {
        struct score score = {0};
        struct team *team = NULL;
        rc = load(a, backend, i, outputs_batch(o->info), &team, why);
        if (rc != RC_OK) break;
        const struct dataset_info as_trained = outputs_info(o->info, team_model(team));
        weigh(a, i);
        rc = outputs_run(team, &as_trained, &all, &sink, &score);
        if (rc != RC_OK) fault_set(why, rc, "cannot ask %s: %s", o->teachers[i], rc_text(rc));
        team_destroy(team);
    }
    return rc;
}

static enum rc load_all(struct answers *a, struct backend *backend, struct fault *why)
{
    const struct answers_options *o = &a->options;
    struct work work = {0, o->teachers_count, o->on_progress, o->context};
    enum rc rc;

    if (o->teachers_count > ANSWERS_TEACHERS_MAX) {
        return fault_set(why, RC_LIMIT,
                         "the answers of %zu teachers on %zu samples take too much memory, and so "
                         "do more than %d teachers at once; name fewer, or give fewer --samples",
                         o->teachers_count, o->samples->count, ANSWERS_TEACHERS_MAX);
    }
    a->teachers = mem_array(o->teachers_count, sizeof *a->teachers);
    a->logits = mem_aligned(o->batch * a->each * sizeof(float));
    rc = batch_init(&a->batch, o->info, o->batch);
    if (rc != RC_OK || a->teachers == NULL || a->logits == NULL) {
        return fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    }
    for (size_t i = 0; rc == RC_OK && i < o->teachers_count; i++) {
        rc = load(a, backend, i, o->batch, &a->teachers[i], why);
        if (rc == RC_OK) work_add(&work, 1);
    }
    return rc;
}

enum rc answers_create(struct backend *backend, const struct answers_options *options,
                       struct answers **answers, struct fault *why)
{
    CHECK(options->teachers_count > 0 && options->batch > 0);
    struct answers *a = mem_alloc(sizeof *a);
    struct ensemble_options ensemble = {.classes = options->info->outputs,
                                        .temperature = options->temperature,
                                        .is_real = options->info->target == DATA_REALS};
    const size_t bytes_max = options->bytes_max > 0 ? options->bytes_max : ANSWERS_BYTES_MAX;
    enum rc rc;

    if (a == NULL) return fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    a->options = *options;
    a->rows = outputs_rows(options->info);
    a->each = (size_t)a->rows * options->info->outputs;
    ensemble.wants[options->vote] = true;
    const size_t fits = bytes_max / (a->rows * ensemble_row_bytes(&ensemble));
    a->is_kept = options->samples->count <= fits;
    ensemble.rows = a->rows * (a->is_kept ? options->samples->count : options->batch);
    a->ensemble = ensemble_create(&ensemble);
    rc = a->ensemble != NULL ? RC_OK : fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    if (rc == RC_OK) rc = a->is_kept ? ask_all(a, backend, why) : load_all(a, backend, why);
    if (rc != RC_OK) {
        answers_destroy(a);
        return rc;
    }
    *answers = a;
    return RC_OK;
}

void answers_destroy(struct answers *answers)
{
    if (answers == NULL) return;
    for (size_t i = 0; answers->teachers != NULL && i < answers->options.teachers_count; i++) {
        team_destroy(answers->teachers[i]);
    }
    mem_free(answers->teachers);
    mem_free(answers->logits);
    batch_deinit(&answers->batch);
    ensemble_destroy(answers->ensemble);
    mem_free(answers);
}

bool answers_are_kept(const struct answers *answers)
{
    return answers->is_kept;
}

static enum rc ask(struct answers *a, struct pick pick)
{
    const struct answers_options *o = &a->options;
    enum rc rc = RC_OK;

    ensemble_clear(a->ensemble);
    for (size_t i = 0; rc == RC_OK && i < o->teachers_count; i++) {
        const struct dataset_info as_trained = outputs_info(o->info, team_model(a->teachers[i]));
        rc = samples_gather(o->samples, &as_trained, pick, &a->batch);
        if (rc != RC_OK) break;
        rc = team_forward(a->teachers[i], a->batch.values, pick.rows, false, a->logits);
        if (rc == RC_OK && !floats_are_finite(a->logits, pick.rows * a->each)) rc = RC_NONFINITE;
        if (rc == RC_OK) {
            weigh(a, i);
            ensemble_absorb(a->ensemble, 0, (size_t)pick.rows * a->rows, a->logits);
        }
    }
    return rc;
}

enum rc answers_get(struct answers *answers, struct pick pick, float *out)
{
    const enum vote vote = answers->options.vote;
    const uint32_t rows = answers->rows;

    CHECK(pick.rows <= answers->options.batch);
    if (!answers->is_kept) {
        const enum rc rc = ask(answers, pick);
        if (rc == RC_OK) ensemble_settle(answers->ensemble, vote, 0, (size_t)pick.rows * rows, out);
        return rc;
    }
    for (uint32_t i = 0; i < pick.rows; i++) {
        const size_t at = pick.first + i, sample = pick.order != NULL ? pick.order[at] : at;
        ensemble_settle(answers->ensemble, vote, sample * rows, rows, out + i * answers->each);
    }
    return RC_OK;
}

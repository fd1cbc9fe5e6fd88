/*
 * distill: see distill.h. Blocks of training data come in an order drawn by the seed, so the first
 * ones are a fair sample of the whole. Each epoch is a fresh shuffle; batches are full, what is
 * left over at its end waits for the next shuffle. Thread: the command's, one at a time.
 */
#include "distill/distill.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "distill/answers.h"
#include "kernels/backend.h"
#include "replica/learners/task.h"
#include "replica/model/layers.h"
#include "replica/model/loss.h"
#include "replica/optimizer/optimizer.h"
#include "replica/optimizer/schedule.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PURPOSE_ORDER = 0x64697374, PROGRESS_EVERY = 64 };

static const char default_optimizer[] = "momentum:lr=0.02,beta=0.9";
static const char default_schedule[] = "cosine:warmup=0.05";

/* Everything both trainings share. */
struct lesson {
    struct backend *backend;
    const struct distill_options *options;
    struct distill_result *out;
    struct dataset *dataset;
    struct samples train, test;
    struct answers *answers; /* of the teachers on `train` */
    uint32_t batch;
    uint64_t steps;
    struct optimizer optimizer;
    struct schedule schedule;
};

/* One student in training. */
struct pupil {
    struct model *model;
    struct model_card card;
    struct task task;
    float *moments, *logits, *gradient, *teacher;
    float *workspace; /* the optimizer's, behind the moments */
    struct batch batch;
    uint32_t *labels; /* of each head; NULL: no labels */
    uint32_t *order;  /* of the training samples */
    size_t next;      /* in `order` */
    struct rng rng;
};

static void tell(const struct lesson *l, enum distill_phase phase, uint64_t done, uint64_t total,
                 double loss)
{
    const struct distill_progress progress = {phase, done, total, loss};

    if (l->options->on_progress != NULL) l->options->on_progress(l->options->context, &progress);
}

/* ---- the teachers ---- */

static void on_judged(void *context, size_t done, size_t count)
{
    tell(context, DISTILL_JUDGING, done, count, NAN);
}

static enum rc judge_teachers(struct lesson *l, struct fault *why)
{
    const struct comparison_options options = {
        .paths = l->options->teachers,
        .paths_count = l->options->teachers_count,
        .data = l->options->data,
        .seed = l->options->seed,
        .on_model = on_judged,
        .context = l,
    };
    const enum rc rc = comparison_run(l->backend, &options, &l->out->teachers, why);

    for (size_t i = 0; rc == RC_OK && i < l->out->teachers.count; i++) {
        const uint64_t parameters = l->out->teachers.parameters[i];
        if (i == 0 || parameters < l->out->teacher_parameters) {
            l->out->teacher_parameters = parameters;
        }
    }
    return rc;
}

static enum rc load_data(struct lesson *l, struct fault *why)
{
    const char *data = l->options->data != NULL ? l->options->data : l->out->teachers.card.data;
    const struct dataset_options dataset =
        comparison_data(&l->out->teachers.card, l->options->seed);
    enum rc rc = dataset_open(data, &dataset, &l->dataset, why);

    if (rc != RC_OK) return rc;
    const struct dataset_info *info = dataset_info(l->dataset);
    const uint64_t most = l->options->samples_max > 0 ? l->options->samples_max : UINT64_MAX;
    bool *wanted = mem_array(info->blocks, sizeof *wanted);
    if (wanted == NULL) return fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    for (uint64_t b = 0; b < info->blocks && b * info->block_samples < most; b++) {
        wanted[b] = true;
    }
    rc = dataset_load_blocks(l->dataset, wanted, &l->train, why);
    mem_free(wanted);
    if (rc == RC_OK && l->train.count > most) l->train.count = (size_t)most;
    if (rc == RC_OK) rc = dataset_load_test(l->dataset, 0, &l->test, why);
    return rc;
}

static void on_asked(void *context, size_t done, size_t count)
{
    tell(context, DISTILL_TEACHING, done, count, (double)NAN);
}

static enum rc ask_teachers(struct lesson *l, struct fault *why)
{
    const struct answers_options options = {
        .teachers = l->options->teachers,
        .teachers_count = l->options->teachers_count,
        .info = dataset_info(l->dataset),
        .samples = &l->train,
        .vote = l->options->vote,
        .temperature = l->options->temperature,
        .batch = l->batch,
        .bytes_max = l->options->answers_bytes_max,
        .on_teacher = on_asked,
        .context = l,
    };

    return answers_create(l->backend, &options, &l->answers, why);
}

/* ---- the student ---- */

static void pupil_deinit(struct pupil *p, struct backend *backend)
{
    if (p->moments != NULL) backend->ops->free(backend, p->moments);
    mem_free(p->logits);
    mem_free(p->gradient);
    mem_free(p->teacher);
    mem_free(p->labels);
    batch_deinit(&p->batch);
    mem_free(p->order);
    task_deinit(&p->task);
    model_destroy(p->model);
    *p = (struct pupil){.model = NULL};
}

static void pupil_card(struct pupil *p, const struct lesson *l)
{
    const struct dataset_info *info = dataset_info(l->dataset);
    const struct model_card *teacher = &l->out->teachers.card;

    task_card(info, p->model, &p->card);
    p->card.step = l->steps;
    p->card.samples = l->steps * l->batch;
    snprintf(p->card.data, sizeof p->card.data, "%s",
             l->options->data != NULL ? l->options->data : teacher->data);
}

static enum rc pupil_buffers(struct pupil *p, const struct lesson *l)
{
    const struct schema *schema = model_schema(p->model);
    const size_t planes = optimizer_planes(l->optimizer.kind);
    const size_t values = planes * schema->values[SECTION_PARAMETERS];
    const size_t scratch = optimizer_workspace(&l->optimizer, schema);
    const size_t outputs = task_logits(&p->task, l->batch);
    enum rc rc = batch_init(&p->batch, dataset_info(l->dataset), l->batch);

    p->moments = l->backend->ops->alloc(l->backend, (values + scratch + 1) * sizeof(float));
    p->workspace = p->moments == NULL ? NULL : p->moments + values;
    p->logits = mem_aligned(outputs * sizeof(float));
    p->gradient = mem_aligned(outputs * sizeof(float));
    p->teacher = mem_aligned(outputs * sizeof(float));
    p->order = mem_array(l->train.count, sizeof *p->order);
    if (p->task.target != DATA_REALS) {
        p->labels = mem_array(outputs / p->task.outputs, sizeof *p->labels);
        if (p->labels == NULL) return RC_NOMEM;
    }
    if (p->moments == NULL || p->logits == NULL || p->gradient == NULL || p->teacher == NULL ||
        p->order == NULL) {
        return RC_NOMEM;
    }
    return rc;
}

/* The layers came by --student. */
static void name_flag(struct fault *why)
{
    const struct fault was = *why;

    if (strncmp(was.text, "--model", 7) == 0) {
        (void)fault_set(why, RC_USAGE, "--student%s", was.text + 7);
    }
}

static enum rc pupil_init(struct pupil *p, struct lesson *l, struct fault *why)
{
    const struct dataset_info *info = dataset_info(l->dataset);
    const uint32_t judging = outputs_batch(info);
    struct model_options options = {
        .spec = l->options->student,
        .batch_max = l->batch > judging ? l->batch : judging,
        .seed = l->options->seed,
        .with_gradients = true,
    };

    task_describe(info, &options);
    enum rc rc = model_create(l->backend, &options, &p->model, why);
    if (rc != RC_OK && why != NULL) name_flag(why);
    if (rc == RC_OK) rc = task_init(&p->task, info, p->model, 1, why);
    if (rc != RC_OK) return rc;
    model_set_normalisation(p->model, info->mean, info->scale);
    rc = pupil_buffers(p, l);
    if (rc != RC_OK) {
        return fault_set(why, rc, "cannot train the student: out of memory");
    }
    for (size_t i = 0; i < l->train.count; i++) {
        p->order[i] = (uint32_t)i;
    }
    p->next = l->train.count; /* shuffle before the first batch */
    rng_init(&p->rng, l->options->seed, PURPOSE_ORDER);
    pupil_card(p, l);
    return RC_OK;
}

/* Each head of the student is asked the same: spread what there is once a row. */
static void spread_over_heads(struct pupil *p, size_t rows)
{
    const uint32_t heads = p->task.heads, outputs = p->task.outputs;

    for (size_t i = rows * heads; i-- > 0;) { /* from behind: in place */
        const size_t row = i / heads;
        if (p->labels != NULL) p->labels[i] = p->batch.labels[row];
        if (row == i) continue;
        memmove(p->teacher + i * outputs, p->teacher + row * outputs, outputs * sizeof(float));
    }
}

static enum rc next_batch(struct pupil *p, struct lesson *l)
{
    if (p->next + l->batch > l->train.count) {
        rng_shuffle(&p->rng, p->order, l->train.count);
        p->next = 0;
    }
    const struct pick pick = {p->order, p->next, l->batch};
    samples_gather(&l->train, dataset_info(l->dataset), pick, &p->batch);
    p->next += l->batch;
    return answers_get(l->answers, pick, p->teacher);
}

/* Loss and gradient of the batch in hand. */
static double judge(struct pupil *p, const struct lesson *l, double alpha)
{
    const size_t rows = (size_t)l->batch * p->task.rows, values = rows * p->task.outputs;
    const uint32_t all = (uint32_t)(rows * p->task.heads);
    uint32_t correct = 0;

    if (p->task.target == DATA_REALS) {
        for (size_t i = 0; i < values; i++) {
            p->teacher[i] =
                (float)((1 - alpha) * p->batch.targets[i] + alpha * (double)p->teacher[i]);
        }
        spread_over_heads(p, rows);
        return loss_squared(p->logits, p->teacher, all, p->task.outputs, p->gradient);
    }
    spread_over_heads(p, rows);
    return loss_distillation(p->logits, p->teacher, p->labels, all, p->task.outputs,
                             l->options->temperature, alpha, p->gradient, &correct);
}

static enum rc take_step(struct pupil *p, struct lesson *l, double alpha, uint64_t step,
                         double *loss)
{
    const struct optimizer_step update = {
        .gradient = model_plane(p->model, SECTION_GRADIENT),
        .moments = p->moments,
        .values = model_plane(p->model, SECTION_PARAMETERS),
        .workspace = p->workspace,
        .factor = schedule_factor(&l->schedule, step),
        .count = step + 1,
    };

    enum rc rc = next_batch(p, l);
    if (rc != RC_OK) return rc;
    rc = model_forward(p->model, p->batch.values, l->batch, true, p->logits);
    if (rc != RC_OK) return rc;
    *loss = judge(p, l, alpha);
    if (!isfinite(*loss)) return RC_NONFINITE;
    rc = model_backward(p->model, p->gradient);
    if (rc != RC_OK) return rc;
    return optimizer_step(&l->optimizer, l->backend, model_schema(p->model), &update);
}

/* The share of test samples that are of the most frequent class: what is right without learning. */
static double luckiest(const struct lesson *l)
{
    const struct dataset_info *info = dataset_info(l->dataset);
    uint64_t *counts = mem_array(info->classes, sizeof *counts), most = 0;

    if (counts == NULL) return 0;
    for (size_t i = 0; i < l->test.count; i++) {
        const uint32_t label =
            l->test.small_labels != NULL ? l->test.small_labels[i] : l->test.large_labels[i];
        if (++counts[label] > most) most = counts[label];
    }
    mem_free(counts);
    return (double)most / (double)l->test.count;
}

/* A rate that is too large may leave a student that says the same of everything, with a loss that
 * is finite. Texts are left out: to know how frequent their symbols are is a beginning. */
static enum rc check_learnt(const struct lesson *l, const struct score *student, struct fault *why)
{
    const struct dataset_info *info = dataset_info(l->dataset);
    const double ensemble = score_accuracy(&l->out->teachers.votes[l->options->vote]);
    double luck;

    if (info->target != DATA_CLASS || info->input == DATA_TOKENS) return RC_OK;
    luck = luckiest(l);
    if (score_accuracy(student) > luck || ensemble < 1.5 * luck) return RC_OK;
    return fault_set(
        why, RC_NONFINITE,
        "the student has learnt nothing: its %.2f %% on the test part are no more than "
        "one answer for all gives, and its teachers have %.2f %%; use a smaller --lr",
        100 * score_accuracy(student), 100 * ensemble);
}

static enum rc train(struct pupil *p, struct lesson *l, double alpha, enum distill_phase phase,
                     struct score *score, struct fault *why)
{
    double sum = 0, loss = 0;
    uint64_t summed = 0;
    enum rc rc = RC_OK;

    for (uint64_t step = 0; rc == RC_OK && step < l->steps; step++) {
        rc = take_step(p, l, alpha, step, &loss);
        sum += loss;
        summed++;
        if (summed == PROGRESS_EVERY || step + 1 == l->steps) {
            tell(l, phase, step + 1, l->steps, sum / (double)summed);
            sum = 0;
            summed = 0;
        }
    }
    if (rc == RC_OK) rc = outputs_score_one(p->model, dataset_info(l->dataset), &l->test, score);
    if (rc == RC_NONFINITE) {
        return fault_set(why, rc, "the student's loss is no longer finite; use a smaller --lr");
    }
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot train the student: %s", rc_text(rc));
}

static enum rc save_student(struct pupil *p, const char *path, struct fault *why)
{
    struct tensor_file *file = tensor_file_create();
    enum rc rc = file != NULL ? model_save(p->model, &p->card, file) : RC_NOMEM;

    if (rc == RC_OK) {
        rc = tensor_file_save(file, path, why);
    } else {
        fault_set(why, rc, "cannot write %s: %s", path, rc_text(rc));
    }
    tensor_file_destroy(file);
    return rc;
}

/* ---- the whole ---- */

/* Batch, steps, optimizer and schedule, once the amount of data is known. */
static enum rc plan(struct lesson *l, struct fault *why)
{
    const struct distill_options *o = l->options;
    const bool is_text = dataset_info(l->dataset)->input == DATA_TOKENS;
    const struct layers_training usual = layers_training(o->student);
    const char *optimizer = is_text ? usual.optimizer : default_optimizer;
    uint32_t batch = is_text ? usual.batch : 64;

    if (l->train.count == 0) return fault_set(why, RC_SHAPE, "the data has no training samples");
    if (dataset_info(l->dataset)->target == DATA_REALS && o->vote != VOTE_MEAN) {
        return fault_set(why, RC_USAGE,
                         "--teachers-vote %s is for classes; real values have only 'mean'",
                         vote_name(o->vote));
    }
    if (o->batch > 0) batch = o->batch;
    if (o->optimizer != NULL) optimizer = o->optimizer;
    l->batch = l->train.count < batch ? (uint32_t)l->train.count : batch;
    const double steps = ceil(o->epochs * (double)(l->train.count / l->batch));
    if (!(steps < 1e15)) return fault_set(why, RC_LIMIT, "--epochs is too large");
    l->steps = steps < 1 ? 1 : (uint64_t)steps;
    enum rc rc = optimizer_parse(optimizer, &l->optimizer, why);
    if (rc == RC_OK) {
        rc = schedule_parse(o->schedule != NULL ? o->schedule : default_schedule, l->steps,
                            &l->schedule, why);
    }
    if (rc == RC_OK && l->schedule.kind == SCHEDULE_GROW) {
        rc = fault_set(why, RC_USAGE, "--schedule grow: not for distilling; use step or cosine");
    }
    if (rc == RC_OK && optimizer_is_full_batch(&l->optimizer)) {
        rc = fault_set(why, RC_USAGE, "--optimizer lbfgs: not for distilling; use adamw");
    }
    if (rc == RC_OK && o->lr > 0) l->optimizer.lr = o->lr;
    return rc;
}

static bool is_better(const struct score *a, const struct score *b)
{
    const double x = score_accuracy(a), y = score_accuracy(b);

    return isnan(x) || isnan(y) ? score_loss(a) < score_loss(b) : x > y;
}

bool distill_labels_win(const struct distill_result *result)
{
    return result->has_baseline && is_better(&result->labels_only, &result->student);
}

/* The same student on labels alone, at its best rate; one at which it runs away is none. */
static enum rc train_baseline(struct lesson *l, struct fault *why)
{
    static const double factors[] = {1.0, DISTILL_RATE_RATIO, 1.0 / DISTILL_RATE_RATIO};
    struct distill_result *out = l->out;
    const double lr = l->optimizer.lr;
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(factors); i++) {
        struct pupil other = {.model = NULL};
        struct score score;

        l->optimizer.lr = factors[i] * lr;
        rc = pupil_init(&other, l, why);
        if (rc == RC_OK) rc = train(&other, l, 0, DISTILL_BASELINE, &score, why);
        if (rc == RC_OK && (!out->has_baseline || is_better(&score, &out->labels_only))) {
            out->has_baseline = true;
            out->labels_only = score;
            out->labels_only_lr = l->optimizer.lr;
        }
        if (rc == RC_NONFINITE) rc = RC_OK;
        pupil_deinit(&other, l->backend);
    }
    l->optimizer.lr = lr;
    return rc;
}

static enum rc teach(struct lesson *l, struct fault *why)
{
    struct distill_result *out = l->out;
    struct pupil pupil = {.model = NULL};
    enum rc rc = pupil_init(&pupil, l, why);

    /* A student that cannot be built is found out before the teachers are asked. */
    if (rc == RC_OK) rc = ask_teachers(l, why);
    if (rc == RC_OK) {
        rc = train(&pupil, l, l->options->alpha, DISTILL_LEARNING, &out->student, why);
    }
    if (rc == RC_OK) rc = check_learnt(l, &out->student, why);
    if (rc != RC_OK) goto out;
    out->lr = l->optimizer.lr;
    out->student_parameters = model_schema(pupil.model)->values[SECTION_PARAMETERS];
    snprintf(out->student_spec, sizeof out->student_spec, "%s", pupil.card.spec);
    if (l->options->with_baseline) rc = train_baseline(l, why);
    if (rc == RC_OK && l->options->out_path != NULL) {
        rc = save_student(&pupil, l->options->out_path, why);
    }
out:
    pupil_deinit(&pupil, l->backend);
    return rc;
}

enum rc distill_run(struct backend *backend, const struct distill_options *options,
                    struct distill_result *out, struct fault *why)
{
    CHECK(options->teachers_count > 0 && options->temperature > 0);
    CHECK(options->alpha >= 0 && options->alpha <= 1 && (unsigned)options->vote < VOTE_COUNT);
    struct distill_result result = {
        .vote = options->vote, .temperature = options->temperature, .alpha = options->alpha};
    struct lesson l = {.backend = backend, .options = options, .out = &result};
    enum rc rc = judge_teachers(&l, why);

    if (rc == RC_OK) rc = load_data(&l, why);
    if (rc == RC_OK) rc = plan(&l, why);
    if (rc == RC_OK) rc = teach(&l, why);
    result.steps = l.steps;
    result.samples = l.train.count;
    if (rc == RC_OK) result.samples_all = dataset_info(l.dataset)->train_samples;
    answers_destroy(l.answers);
    samples_deinit(&l.test);
    samples_deinit(&l.train);
    dataset_close(l.dataset);
    if (rc == RC_OK) {
        *out = result;
    } else {
        distill_result_deinit(&result);
    }
    return rc;
}

void distill_result_deinit(struct distill_result *result)
{
    comparison_deinit(&result->teachers);
}

struct json *distill_json(const struct distill_result *r)
{
    struct json *json = json_object_create(), *accuracy = json_array_create();
    struct json *loss = json_array_create();

    for (size_t i = 0; i < r->teachers.count; i++) {
        json_append_real(accuracy, score_accuracy(&r->teachers.models[i]));
        json_append_real(loss, score_loss(&r->teachers.models[i]));
    }
    json_set_count(json, "teachers", r->teachers.count);
    json_set(json, "teacher_accuracy", accuracy);
    json_set(json, "teacher_loss", loss);
    json_set_real(json, "ensemble_accuracy", score_accuracy(&r->teachers.votes[r->vote]));
    json_set_real(json, "ensemble_loss", score_loss(&r->teachers.votes[r->vote]));
    json_set_real(json, "average_model_accuracy", score_accuracy(&r->teachers.average));
    json_set_real(json, "average_model_loss", score_loss(&r->teachers.average));
    json_set_real(json, "student_accuracy", score_accuracy(&r->student));
    json_set_real(json, "student_loss", score_loss(&r->student));
    if (r->has_baseline) {
        json_set_real(json, "labels_only_accuracy", score_accuracy(&r->labels_only));
        json_set_real(json, "labels_only_loss", score_loss(&r->labels_only));
        json_set_real(json, "labels_only_lr", r->labels_only_lr);
        json_set_bool(json, "labels_only_wins", distill_labels_win(r));
    }
    json_set_count(json, "student_parameters", r->student_parameters);
    json_set_count(json, "teacher_parameters", r->teacher_parameters);
    json_set_real(json, "compression",
                  (double)r->teacher_parameters / (double)r->student_parameters);
    json_set_text(json, "student", r->student_spec);
    json_set_text(json, "vote", vote_name(r->vote));
    json_set_real(json, "temperature", r->temperature);
    json_set_real(json, "alpha", r->alpha);
    json_set_count(json, "steps", r->steps);
    json_set_count(json, "samples", r->samples);
    json_set_count(json, "samples_all", r->samples_all);
    json_set_real(json, "lr", r->lr);
    return json;
}

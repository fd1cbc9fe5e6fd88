/*
 * distill: see distill.h. The student is a replica (replica/learners/replica.h) that learns from
 * soft targets; what is here asks the teachers, compares with labels alone, and tells what came
 * out. Thread: the command's, one at a time.
 */
#include "distill/distill.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "distill/answers.h"
#include "kernels/backend.h"
#include "replica/learners/replica.h"
#include "replica/learners/task.h"
#include "replica/model/layers.h"
#include "replica/model/loss.h"
#include "replica/model/model.h"
#include "replica/optimizer/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROGRESS_EVERY = 64, BATCH_DEFAULT = 64 };

static const char default_optimizer[] = "momentum:lr=0.02,beta=0.9";
static const char default_schedule[] = "cosine:warmup=0.05";

/* What all trainings share. */
struct lesson {
    struct backend *backend;
    uint32_t part, parts; /* of a phase, being trained */
    uint32_t threads;     /* of the backend, of which a replica makes threads of its own */
    const struct distill_options *options;
    struct distill_result *out;
    struct dataset_options dataset;
    char tokenizer[MODEL_PATH_BYTES]; /* of the data, or "" */
    struct replica_options student;
    struct answers *answers; /* of the teachers on the student's samples */
    float *targets;          /* their answers to a batch: [batch][rows][heads][outputs] */
};

static void tell(const struct lesson *l, enum distill_phase phase, uint64_t done, uint64_t total,
                 double loss)
{
    const struct distill_progress progress = {phase, done, total, loss, 0, 0};

    if (l->options->on_progress != NULL) l->options->on_progress(l->options->context, &progress);
}

/* ---- the teachers ---- */

static void on_judged(void *context, uint64_t done, uint64_t count)
{
    tell(context, DISTILL_JUDGING, done, count, NAN);
}

static enum rc judge_teachers(struct lesson *l, struct fault *why)
{
    const struct comparison_options options = {
        .paths = l->options->teachers,
        .paths_count = l->options->teachers_count,
        .data = l->options->data,
        .tokenizer = l->options->tokenizer,
        .seed = l->options->seed,
        .weighs_scores = l->options->weighs_scores,
        .on_progress = on_judged,
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

static void on_asked(void *context, uint64_t done, uint64_t count)
{
    tell(context, DISTILL_TEACHING, done, count, (double)NAN);
}

/* Teachers run with all threads, the student's team is idle meanwhile. */
static enum rc ask_teachers(struct lesson *l, struct learner *student, struct fault *why)
{
    struct answers_options options = {
        .teachers = l->options->teachers,
        .teachers_count = l->options->teachers_count,
        .info = replica_data(student),
        .vote = l->options->vote,
        .weights = l->out->teachers.weights,
        .temperature = l->options->temperature,
        .batch = l->student.batch,
        .bytes_max = l->options->answers_bytes_max,
        .on_progress = on_asked,
        .context = l,
    };
    const struct model *model = replica_model(student);
    const uint32_t own = l->backend->threads;
    enum rc rc = replica_samples(student, &options.samples, why);

    l->targets = mem_array((size_t)options.batch * model_rows(model) * model_heads(model) *
                               model_classes(model),
                           sizeof *l->targets);
    if (rc == RC_OK && l->targets == NULL) {
        rc = fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    }
    if (rc != RC_OK) return rc;
    l->backend->threads = l->threads;
    rc = answers_create(l->backend, &options, &l->answers, why);
    l->backend->threads = own;
    return rc;
}

/* What the teachers say to this batch, the same for each head; of real values, mixed with the
 * answers. */
static enum rc ask(void *context, struct task *task, const struct batch *batch)
{
    struct lesson *l = context;
    const double alpha = l->options->alpha;
    const size_t rows = (size_t)batch->rows * task->rows, outputs = task->outputs;
    const enum rc rc =
        answers_get(l->answers, (struct pick){batch->picked, 0, batch->rows}, l->targets);

    for (size_t i = rows * task->heads; task->heads > 1 && i-- > 0;) { /* from behind: in place */
        memmove(l->targets + i * outputs, l->targets + i / task->heads * outputs,
                outputs * sizeof(float));
    }
    for (size_t i = 0; task->target == DATA_REALS && i < rows * outputs; i++) {
        l->targets[i] =
            (float)((1 - alpha) * (double)batch->targets[i] + alpha * (double)l->targets[i]);
    }
    return rc;
}

static enum rc on_loss(void *context, const struct task *task, const struct batch *batch,
                       size_t first, const struct loss_rows *rows, uint64_t *hits)
{
    const struct lesson *l = context;
    const uint32_t *labels = task->heads > 1 ? task->labels : batch->labels;
    struct loss_teaching teaching = {.teacher = l->targets + first * task->outputs,
                                     .temperature = l->options->temperature,
                                     .a = l->options->alpha};

    if (task->target == DATA_REALS) {
        loss_rows_squared(rows, teaching.teacher);
        return RC_OK;
    }
    teaching.labels = labels + first;
    *hits += loss_rows_distillation(rows, &teaching);
    return RC_OK;
}

/* ---- the student ---- */

/* The layers came by --student. */
static void name_flag(struct fault *why)
{
    const struct fault was = *why;

    if (strncmp(was.text, "--model", 7) == 0) {
        (void)fault_set(why, RC_USAGE, "--student%s", was.text + 7);
    }
}

/* Without `objective`: on labels alone. */
static enum rc create_student(struct lesson *l, const struct task_objective *objective, double lr,
                              struct learner **student, struct fault *why)
{
    struct replica_options options = l->student;

    options.objective = objective;
    options.lr = lr;
    const enum rc rc = replica_create(l->backend, &options, student, why);
    if (rc != RC_OK && why != NULL) name_flag(why);
    return rc;
}

/* A rate that is too large may leave a student that says the same of everything, with a loss that
 * is finite. Texts are left out: to know how frequent their symbols are is a beginning. */
static enum rc check_learnt(const struct lesson *l, const struct evaluation *student,
                            struct fault *why)
{
    const struct comparison *teachers = &l->out->teachers;
    const double ensemble = score_accuracy(&teachers->votes[l->options->vote]);
    const double luck = teachers->most_frequent;

    if (teachers->card.is_regression || teachers->card.input == MODEL_INPUT_TOKENS) return RC_OK;
    if (student->accuracy > luck || ensemble < 1.5 * luck) return RC_OK;
    return fault_set(
        why, RC_NONFINITE,
        "the student has learnt nothing in %llu steps: its %.2f %% on the test part are no more "
        "than one answer for all gives, and its teachers have %.2f %%; use more --epochs or "
        "another --lr",
        (unsigned long long)l->out->steps, 100 * student->accuracy, 100 * ensemble);
}

static enum rc train(struct lesson *l, struct learner *student, enum distill_phase phase,
                     struct evaluation *score, struct fault *why)
{
    const uint64_t steps = student->ops->steps_of(student, l->options->epochs);
    enum rc rc = RC_OK;

    for (uint64_t done = 0; rc == RC_OK && done < steps;) {
        const uint64_t left = steps - done;
        struct train_report report;
        rc = student->ops->train(student, left < PROGRESS_EVERY ? (uint32_t)left : PROGRESS_EVERY,
                                 NULL, &report);
        if (rc != RC_OK) break;
        done += report.steps;
        tell(l, phase, l->part * steps + done, l->parts * steps, report.loss_sum / report.steps);
    }
    l->out->steps = steps;
    if (rc == RC_OK) rc = student->ops->evaluate(student, 0, score);
    if (rc == RC_OK && !isfinite(score->loss)) rc = RC_NONFINITE;
    if (rc == RC_NONFINITE) {
        return fault_set(why, rc, "the student's loss is no longer finite; use a smaller --lr");
    }
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot train the student: %s", rc_text(rc));
}

/* ---- the whole ---- */

/* What the flags say, in the terms of a replica. A batch is no more than the samples: each once. */
static enum rc plan(struct lesson *l, struct fault *why)
{
    const struct distill_options *o = l->options;
    const struct model_card *teacher = &l->out->teachers.card;
    const bool is_text = teacher->input == MODEL_INPUT_TOKENS;
    const struct layers_training usual = layers_training(o->student);
    uint64_t samples = l->out->teachers.train_samples;
    struct optimizer optimizer;

    if (teacher->is_regression && o->vote != VOTE_MEAN) {
        return fault_set(why, RC_USAGE,
                         "--teachers-vote %s is for classes; real values have only 'mean'",
                         vote_name(o->vote));
    }
    if (o->samples_max > 0 && o->samples_max < samples) samples = o->samples_max;
    l->dataset = comparison_data(teacher, o->seed);
    if (model_tokenizer_find(teacher, o->teachers[0], o->tokenizer, l->tokenizer)) {
        l->dataset.tokenizer = l->tokenizer;
    }
    l->student = (struct replica_options){
        .model = o->student,
        .data = o->data != NULL ? o->data : teacher->data,
        .dataset = &l->dataset,
        .optimizer = is_text ? usual.optimizer : default_optimizer,
        .schedule = o->schedule != NULL ? o->schedule : default_schedule,
        .epochs_total = o->epochs,
        .batch = is_text ? usual.batch : BATCH_DEFAULT,
        .shard = "all",
        .samples_max = o->samples_max,
        .seed = o->student_seed != 0 ? o->student_seed : o->seed,
        .stream_seed = o->student_seed != 0 ? o->student_seed : o->seed,
        .threads = l->threads,
    };
    if (o->optimizer != NULL) l->student.optimizer = o->optimizer;
    if (o->batch > 0) l->student.batch = o->batch;
    if (l->student.batch > samples) l->student.batch = (uint32_t)samples;
    const enum rc rc = optimizer_parse(l->student.optimizer, &optimizer, why);
    if (rc != RC_OK) return rc;
    if (optimizer_is_full_batch(&optimizer)) {
        return fault_set(why, RC_USAGE, "--optimizer lbfgs: not for distilling; use adamw");
    }
    l->out->lr = o->lr > 0 ? o->lr : optimizer.lr;
    return RC_OK;
}

static bool is_better(const struct evaluation *a, const struct evaluation *b)
{
    return isnan(a->accuracy) || isnan(b->accuracy) ? a->loss < b->loss : a->accuracy > b->accuracy;
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
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(factors); i++) {
        const double lr = factors[i] * out->lr;
        struct learner *other = NULL;
        struct evaluation score;

        l->part = (uint32_t)i;
        l->parts = ARRAY_COUNT(factors);
        rc = create_student(l, NULL, lr, &other, why);
        if (rc != RC_OK) break;
        rc = train(l, other, DISTILL_BASELINE, &score, why);
        if (rc == RC_OK && (!out->has_baseline || is_better(&score, &out->labels_only))) {
            out->has_baseline = true;
            out->labels_only = score;
            out->labels_only_lr = lr;
        }
        if (rc == RC_NONFINITE) rc = RC_OK;
        other->ops->destroy(other);
    }
    return rc;
}

static enum rc teach(struct lesson *l, struct fault *why)
{
    const struct task_objective objective = {ask, on_loss, l};
    struct distill_result *out = l->out;
    struct learner *student = NULL;
    enum rc rc = create_student(l, &objective, out->lr, &student, why);

    if (rc != RC_OK) return rc;
    /* A student that cannot be built is found out before the teachers are asked. */
    rc = ask_teachers(l, student, why);
    if (rc == RC_OK) rc = train(l, student, DISTILL_LEARNING, &out->student, why);
    if (rc == RC_OK) rc = check_learnt(l, &out->student, why);
    if (rc == RC_OK) {
        struct model_card card;
        replica_card(student, &card);
        out->student_parameters = student->ops->schema(student)->values[SECTION_PARAMETERS];
        out->samples = student->ops->shard_samples(student);
        out->samples_all = replica_data(student)->train_samples;
        snprintf(out->student_spec, sizeof out->student_spec, "%s", card.spec);
        if (l->options->with_baseline) rc = train_baseline(l, why);
        if (rc == RC_OK && l->options->out_path != NULL) {
            rc = model_save_as(replica_model(student), &card, l->options->out_path, why);
        }
    }
    answers_destroy(l->answers);
    mem_free(l->targets);
    student->ops->destroy(student);
    return rc;
}

enum rc distill_run(struct backend *backend, const struct distill_options *options,
                    struct distill_result *out, struct fault *why)
{
    CHECK(options->teachers_count > 0 && options->temperature > 0);
    CHECK(options->alpha >= 0 && options->alpha <= 1 && (unsigned)options->vote < VOTE_COUNT);
    struct distill_result result = {
        .vote = options->vote, .temperature = options->temperature, .alpha = options->alpha};
    struct lesson l = {.backend = backend,
                       .threads = backend->threads,
                       .options = options,
                       .out = &result,
                       .parts = 1};
    enum rc rc = judge_teachers(&l, why);

    if (rc == RC_OK) rc = plan(&l, why);
    if (rc == RC_OK) rc = teach(&l, why);
    backend->threads = l.threads;
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
    struct json *loss = json_array_create(), *calibration = json_array_create();

    for (size_t i = 0; i < r->teachers.count; i++) {
        json_append_real(accuracy, score_accuracy(&r->teachers.models[i]));
        json_append_real(loss, score_loss(&r->teachers.models[i]));
        json_append_real(calibration, score_calibration(&r->teachers.models[i]));
    }
    json_set_count(json, "teachers", r->teachers.count);
    json_set(json, "teacher_accuracy", accuracy);
    json_set(json, "teacher_loss", loss);
    json_set(json, "teacher_calibration_error", calibration);
    json_set_real(json, "ensemble_accuracy", score_accuracy(&r->teachers.votes[r->vote]));
    json_set_real(json, "ensemble_loss", score_loss(&r->teachers.votes[r->vote]));
    json_set_real(json, "ensemble_calibration_error",
                  score_calibration(&r->teachers.votes[r->vote]));
    json_set_real(json, "average_model_accuracy", score_accuracy(&r->teachers.average));
    json_set_real(json, "average_model_loss", score_loss(&r->teachers.average));
    json_set_real(json, "average_model_calibration_error", score_calibration(&r->teachers.average));
    json_set_real(json, "student_accuracy", r->student.accuracy);
    json_set_real(json, "student_loss", r->student.loss);
    if (r->has_baseline) {
        json_set_real(json, "labels_only_accuracy", r->labels_only.accuracy);
        json_set_real(json, "labels_only_loss", r->labels_only.loss);
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

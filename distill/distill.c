/*
 * distill: see distill.h. The student is a replica (replica/learners/replica.h) that learns from
 * its teachers' targets; what is here asks the teachers, compares with labels alone, and tells what
 * came out. Thread: the command's, one at a time.
 */
#include "distill/distill_internal.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "distill/answer_file.h"
#include "distill/answers.h"
#include "distill/student_state.h"
#include "distill/training.h"
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

enum { BATCH_DEFAULT = 64, PATH_BYTES = 4096, RATES = 3 };

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
    double temperature;      /* of hard targets 1 */
    struct answers *answers; /* of the teachers on the student's samples */
    float *targets;          /* their answers to a batch: [batch][rows][heads][outputs] */
    struct judge *judge;
    enum distill_phase phase;
    struct digest question;                                /* of all that the student hangs on */
    char answers_path[PATH_BYTES], state_path[PATH_BYTES]; /* "": none */
};

static void tell(const struct lesson *l, enum distill_phase phase, uint64_t done, uint64_t total,
                 double loss)
{
    const struct distill_progress progress = {phase, done, total, loss, 0, 0};

    if (l->options->on_progress != NULL) l->options->on_progress(l->options->context, &progress);
}

static double seconds(const struct lesson *l)
{
    return l->options->now_ns != NULL ? (double)l->options->now_ns() / NS_PER_S : (double)NAN;
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
        .weighs_confidence = l->options->weighs_confidence,
        .trim = l->options->trim,
        .with_soup = true,
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

/* Of teachers that are elsewhere: what the student needs to know of them. */
static void know_panel(struct comparison *teachers, const struct distill_panel *panel)
{
    const struct dataset_info *info = panel->info;
    struct model_card *card = &teachers->card;

    card->is_regression = info->target == DATA_REALS;
    card->input = info->input == DATA_TOKENS ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE;
    card->channels = info->channels;
    card->height = info->height;
    card->width = info->width;
    card->classes = info->outputs;
    task_words(info, card->class_words);
    task_columns(info, card->column_words);
    snprintf(card->data, sizeof card->data, "%s", panel->data);
    teachers->train_samples = info->train_samples;
}

static bool is_stopped(void *context)
{
    const struct lesson *l = context;

    return l->options->is_stopped != NULL && l->options->is_stopped(l->options->context);
}

static void on_asked(void *context, uint64_t done, uint64_t count)
{
    tell(context, DISTILL_TEACHING, done, count, (double)NAN);
}

static struct answers_options answers_wanted(struct lesson *l, struct learner *student)
{
    const struct distill_options *o = l->options;

    return (struct answers_options){
        .teachers = o->teachers,
        .teachers_count = o->teachers_count,
        .info = replica_data(student),
        .vote = o->vote,
        .weights = l->out->teachers.weights,
        .by_confidence = o->weighs_confidence,
        .trim = o->trim,
        .temperature = l->temperature,
        .is_hard = o->is_hard,
        .top = o->answers_top,
        .batch = l->student.batch,
        .is_live = l->student.augment != NULL && !o->sees_plain,
        .path = l->answers_path[0] != '\0' ? l->answers_path : NULL,
        .bytes_max = o->answers_bytes_max,
        .on_progress = on_asked,
        .context = l,
        .is_stopped = o->is_stopped != NULL ? is_stopped : NULL,
    };
}

/* --data; labels alone are of these, also with --transfer. */
static const char *judged_by(const struct lesson *l)
{
    return l->options->data != NULL ? l->options->data : l->out->teachers.card.data;
}

/* Which teachers are not shown. */
static void hash_labels(struct hash *hash, const struct samples *s, const struct dataset_info *info)
{
    if (s->small_labels != NULL) hash_update(hash, s->small_labels, s->count);
    if (s->large_labels != NULL) {
        hash_update(hash, s->large_labels, s->count * sizeof *s->large_labels);
    }
    if (s->targets != NULL) {
        hash_update(hash, s->targets, s->count * info->outputs * sizeof *s->targets);
    }
}

/* All that decides which student comes out, but for the number of threads. */
static enum rc ask_question(struct lesson *l, const struct answers_options *answers,
                            struct fault *why)
{
    const struct distill_options *o = l->options;
    const struct replica_options *r = &l->student;
    struct digest asked;
    struct hash hash;
    char text[8192];
    enum rc rc = answers_question(answers, &asked, why);

    if (rc != RC_OK) return rc;
    const int length = snprintf(
        text, sizeof text,
        "%s\n%s\n%s\n%s\n%s\n%s\nepochs %.17g lr %.17g batch %u seed %llu clip %.17g accumulate %u "
        "alpha %.17g T %.17g live %d top %u",
        r->model, r->data, judged_by(l), r->optimizer, r->schedule,
        r->augment != NULL ? r->augment : "", r->epochs_total, l->out->lr, r->batch,
        (unsigned long long)r->seed, r->clip, r->accumulate, o->alpha, l->temperature,
        answers->is_live, answers->top);
    if (length < 0 || (size_t)length >= sizeof text) {
        return fault_set(why, RC_LIMIT, "--student or --data is too long");
    }
    hash_init(&hash);
    hash_update(&hash, asked.bytes, DIGEST_BYTES);
    hash_update(&hash, text, (size_t)length);
    hash_labels(&hash, answers->samples, answers->info);
    l->question = hash_final(&hash);
    return RC_OK;
}

/* Teachers run with all threads, the student's team is idle meanwhile. */
static enum rc ask_teachers(struct lesson *l, struct learner *student, struct fault *why)
{
    const struct model *model = replica_model(student);
    const uint32_t own = l->backend->threads;
    struct answers_options options = answers_wanted(l, student);
    enum rc rc = replica_samples(student, &options.samples, why);

    l->targets = mem_array((size_t)options.batch * model_rows(model) * model_heads(model) *
                               model_classes(model),
                           sizeof *l->targets);
    if (rc == RC_OK && l->targets == NULL) {
        rc = fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    }
    if (rc == RC_OK && l->options->panel == NULL) rc = ask_question(l, &options, why);
    if (rc != RC_OK || l->options->panel != NULL) return rc;
    const double begin = seconds(l);
    l->backend->threads = l->threads;
    rc = answers_create(l->backend, &options, &l->answers, why);
    l->backend->threads = own;
    l->out->answering_s = seconds(l) - begin;
    if (rc == RC_OK) l->out->answers_were_there = answers_were_there(l->answers);
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
        l->options->panel != NULL
            ? panel_get(l->options->panel->panel, (struct pick){batch->picked, 0, batch->rows},
                        l->temperature, l->targets)
            : answers_of_batch(l->answers, batch, l->targets);

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
                                     .temperature = l->temperature,
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

enum rc distill_check_student(struct backend *backend, const char *student,
                              const struct dataset_info *info, struct fault *why)
{
    struct model_options options = {.spec = student, .batch_max = 1};
    struct model *model = NULL;
    enum rc rc;

    task_describe(info, &options);
    rc = model_create(backend, &options, &model, why);
    model_destroy(model);
    if (rc != RC_OK) name_flag(why);
    return rc;
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

    if (l->options->panel != NULL) return RC_OK; /* its teachers were not judged */
    if (teachers->card.is_regression || teachers->card.input == MODEL_INPUT_TOKENS) return RC_OK;
    if (student->accuracy > luck || ensemble < 1.5 * luck) return RC_OK;
    return fault_set(
        why, RC_NONFINITE,
        "the student has learnt nothing in %llu steps: its %.2f %% on the test part are no more "
        "than one answer for all gives, and its teachers have %.2f %%; use more --epochs or "
        "another --lr",
        (unsigned long long)l->out->steps, 100 * student->accuracy, 100 * ensemble);
}

static void on_steps(void *context, uint64_t done, double loss)
{
    const struct lesson *l = context;
    const uint64_t steps = l->out->steps;

    tell(l, l->phase, l->part * steps + done, l->parts * steps, loss);
}

static void on_other(void *context)
{
    const struct lesson *l = context;
    char text[PATH_BYTES + 128];

    if (l->options->on_note == NULL) return;
    snprintf(text, sizeof text,
             "%s is of another training, with other flags or teachers: beginning anew",
             l->state_path);
    l->options->on_note(l->options->context, text);
}

/* As its file will say: of the data that it is judged by, whatever it has learned from. */
static void student_card(const struct lesson *l, struct learner *student, struct model_card *card)
{
    const struct model_card *teacher = &l->out->teachers.card;

    replica_card(student, card);
    if (l->options->transfer == NULL) return;
    snprintf(card->data, sizeof card->data, "%s", judged_by(l));
    memcpy(card->class_words, teacher->class_words, sizeof card->class_words);
}

static enum rc judge_student(struct lesson *l, struct learner *student, struct judged *judged,
                             struct evaluation *score, struct fault *why)
{
    const uint32_t own = l->backend->threads;
    struct model_card card;

    student_card(l, student, &card);
    l->backend->threads = l->threads;
    const enum rc rc = judge_model(l->judge, replica_model(student), &card, judged, why);
    l->backend->threads = own;
    *score = (struct evaluation){.samples = judged->score.count,
                                 .loss = score_loss(&judged->score),
                                 .accuracy = score_accuracy(&judged->score)};
    return rc;
}

/* Its state lies at `state_path`, of labels alone with the number of the rate. */
static enum rc train(struct lesson *l, struct learner *student, enum distill_phase phase,
                     struct judged *judged, struct evaluation *score, struct fault *why)
{
    char path[PATH_BYTES + 16];
    struct training training = {.student = student,
                                .steps = l->out->steps,
                                .state_path = l->state_path[0] != '\0' ? path : NULL,
                                .question = l->question,
                                .now_ns = l->options->now_ns,
                                .is_stopped = is_stopped,
                                .on_steps = on_steps,
                                .on_other = on_other,
                                .context = l};
    const uint32_t number = phase == DISTILL_BASELINE ? l->part + 1 : 0;

    snprintf(path, sizeof path, number > 0 ? "%s.%u" : "%s", l->state_path, number);
    l->phase = phase;
    const double begin = seconds(l);
    enum rc rc = training_run(&training, why);
    if (phase == DISTILL_LEARNING) {
        l->out->learning_s = seconds(l) - begin;
    } else {
        l->out->labels_only_s += (seconds(l) - begin) / RATES;
    }
    if (rc == RC_OK) rc = judge_student(l, student, judged, score, why);
    if (rc == RC_OK && !isfinite(score->loss)) rc = RC_NONFINITE;
    if (phase == DISTILL_LEARNING) l->out->resumed_steps = training.resumed;
    if (rc != RC_NONFINITE) return rc;
    return fault_set(why, rc, "the student's loss is no longer finite; use a smaller --lr");
}

/* ---- the whole ---- */

/* Flags that the teachers' answers do not go with. */
static enum rc check_targets(const struct lesson *l, struct fault *why)
{
    const struct distill_options *o = l->options;
    const bool is_real = l->out->teachers.card.is_regression;

    if (is_real && o->vote != VOTE_MEAN) {
        return fault_set(why, RC_USAGE,
                         "--teachers-vote %s is for classes; real values have only 'mean'",
                         vote_name(o->vote));
    }
    if (is_real && o->is_hard) {
        return fault_set(why, RC_USAGE, "--targets hard is for classes, not for real values");
    }
    if (o->transfer != NULL && o->alpha < 1) {
        return fault_set(why, RC_USAGE,
                         "--alpha %g with --transfer: its samples have no labels to learn from; "
                         "leave --alpha out",
                         o->alpha);
    }
    return RC_OK;
}

/* The other data are opened to see that teachers can read them, and how many samples they have. */
static enum rc plan_transfer(struct lesson *l, uint64_t *samples, struct fault *why)
{
    const struct model_card *teacher = &l->out->teachers.card;
    const char *spec = l->options->transfer;
    struct dataset *dataset = NULL;

    l->dataset.labels = l->dataset.labels_of = NULL;
    if (!teacher->is_regression) l->dataset.unlabelled = teacher->classes;
    struct fault reason = {""};
    const enum rc rc = dataset_open(spec, &l->dataset, &dataset, &reason);
    if (rc != RC_OK) return fault_set(why, rc, "--transfer: %s", reason.text);
    const struct dataset_info info = *dataset_info(dataset);
    dataset_close(dataset);
    *samples = info.train_samples;
    snprintf(l->out->transfer, sizeof l->out->transfer, "%s", spec);
    const bool is_text = info.input == DATA_TOKENS;
    if (is_text == (teacher->input == MODEL_INPUT_TOKENS) && info.channels == teacher->channels &&
        info.height == teacher->height && info.width == teacher->width) {
        return RC_OK;
    }
    return fault_set(
        why, RC_MISMATCH,
        "--transfer %s: its samples are %s of %ux%ux%u, and the teachers read %ux%ux%u "
        "%s; take data of their form",
        spec, is_text ? "tokens" : "values", info.channels, info.height, info.width,
        teacher->channels, teacher->height, teacher->width,
        teacher->input == MODEL_INPUT_TOKENS ? "tokens" : "values");
}

/* What the flags say, in the terms of a replica. A batch is no more than the samples: each once. */
static enum rc plan(struct lesson *l, struct fault *why)
{
    const struct distill_options *o = l->options;
    const struct model_card *teacher = &l->out->teachers.card;
    const bool is_text = teacher->input == MODEL_INPUT_TOKENS;
    const struct layers_training usual = layers_training(o->student);
    const uint32_t batch = is_text ? usual.batch : BATCH_DEFAULT;
    uint64_t samples = l->out->teachers.train_samples;
    struct optimizer optimizer;
    enum rc rc = check_targets(l, why);

    if (rc != RC_OK) return rc;
    l->dataset = o->panel != NULL ? o->panel->open : comparison_data(teacher, o->seed);
    if (o->panel == NULL &&
        model_tokenizer_find(teacher, o->teachers[0], o->tokenizer, l->tokenizer)) {
        l->dataset.tokenizer = l->tokenizer;
    }
    if (o->transfer != NULL) rc = plan_transfer(l, &samples, why);
    if (rc != RC_OK) return rc;
    if (o->samples_max > 0 && o->samples_max < samples) samples = o->samples_max;
    l->student = (struct replica_options){
        .model = o->student,
        .data = o->transfer != NULL ? o->transfer : judged_by(l),
        .dataset = &l->dataset,
        .optimizer = is_text ? usual.optimizer : default_optimizer,
        .schedule = o->schedule != NULL ? o->schedule : default_schedule,
        .epochs_total = o->epochs,
        .batch = o->batch > 0 ? o->batch : batch,
        .shard = "all",
        .samples_max = o->samples_max,
        .seed = o->student_seed != 0 ? o->student_seed : o->seed,
        .stream_seed = o->student_seed != 0 ? o->student_seed : o->seed,
        .threads = l->threads,
        .clip = o->clip,
        .accumulate = o->accumulate,
        .augment = o->augment,
        .prefetch = PREFETCH_AUTO,
    };
    if (o->optimizer != NULL) l->student.optimizer = o->optimizer;
    if (l->student.batch > samples) l->student.batch = (uint32_t)samples;
    rc = optimizer_parse(l->student.optimizer, &optimizer, why);
    if (rc != RC_OK) return rc;
    if (optimizer_is_full_batch(&optimizer)) {
        return fault_set(why, RC_USAGE, "--optimizer lbfgs: not for distilling; use adamw");
    }
    l->out->lr = o->lr > 0 ? o->lr : optimizer.lr;
    if (o->lr <= 0 && o->optimizer == NULL) {
        const uint64_t batches = o->accumulate > 0 ? o->accumulate : 1;

        l->out->lr = optimizer_usual_rate(l->student.optimizer, batches * l->student.batch, batch);
    }
    return RC_OK;
}

/* The same student on labels alone, all of them, at its best rate; one at which it runs away is
 * none. */
static enum rc train_baseline(struct lesson *l, struct fault *why)
{
    static const double factors[RATES] = {1.0, DISTILL_RATE_RATIO, 1.0 / DISTILL_RATE_RATIO};
    const struct distill_options *o = l->options;
    struct distill_result *out = l->out;
    enum rc rc = RC_OK;

    l->student.data = judged_by(l);
    l->student.samples_max = 0;
    l->student.steps_total = out->steps;
    if (o->transfer != NULL) l->dataset = comparison_data(&out->teachers.card, o->seed);
    if (l->tokenizer[0] != '\0') l->dataset.tokenizer = l->tokenizer;

    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(factors); i++) {
        const double lr = factors[i] * out->lr;
        struct learner *other = NULL;
        struct evaluation score;
        struct judged judged;

        l->part = (uint32_t)i;
        l->parts = ARRAY_COUNT(factors);
        rc = create_student(l, NULL, lr, &other, why);
        if (rc != RC_OK) break;
        rc = train(l, other, DISTILL_BASELINE, &judged, &score, why);
        if (rc == RC_OK && (!out->has_baseline || distill_is_better(&score, &out->labels_only))) {
            out->has_baseline = true;
            out->labels_only = score;
            out->labels_only_judged = judged;
            out->labels_only_lr = lr;
        }
        if (rc == RC_NONFINITE) rc = RC_OK;
        other->ops->destroy(other);
    }
    return rc;
}

static enum rc tabulate(struct lesson *l, struct fault *why)
{
    const uint32_t own = l->backend->threads;

    l->backend->threads = l->threads;
    const enum rc rc = distill_make_lineup(l->judge, l->options, l->out, why);
    l->backend->threads = own;
    return rc;
}

static enum rc open_judge(struct lesson *l, struct fault *why)
{
    const struct distill_options *o = l->options;

    return judge_open(l->backend,
                      &(struct judge_options){.data = o->data,
                                              .tokenizer = o->tokenizer,
                                              .card = &l->out->teachers.card,
                                              .card_path = o->panel != NULL ? "" : o->teachers[0],
                                              .seed = o->seed,
                                              .now_ns = o->now_ns},
                      &l->judge, why);
}

/* Where answers and states lie, if anything is to be kept. */
static enum rc name_files(struct lesson *l, struct fault *why)
{
    const struct distill_options *o = l->options;
    int answers = 0, state = 0;

    if (o->panel != NULL) return RC_OK; /* what members said is kept elsewhere */
    if (o->out_path != NULL) {
        answers = snprintf(l->answers_path, PATH_BYTES, "%s.answers", o->out_path);
    }
    if (o->out_path != NULL && !o->keeps_nothing) {
        state = snprintf(l->state_path, PATH_BYTES, "%s.state", o->out_path);
    }
    if (o->answers_path != NULL) {
        answers = snprintf(l->answers_path, PATH_BYTES, "%s", o->answers_path);
    }
    if (answers < PATH_BYTES && state < PATH_BYTES) return RC_OK;
    return fault_set(why, RC_USAGE, "--out or --answers: the path is too long");
}

/* What was kept to go on with is of no more use. */
static void remove_files(const struct lesson *l)
{
    char path[PATH_BYTES + 16];

    if (l->options->answers_path == NULL && l->answers_path[0] != '\0') {
        answer_file_remove(l->answers_path);
    }
    const int states = l->options->with_baseline ? 1 + RATES : 1;
    for (int i = 0; l->state_path[0] != '\0' && i < states; i++) {
        snprintf(path, sizeof path, i > 0 ? "%s.%d" : "%s", l->state_path, i);
        student_state_remove(path);
    }
}

static enum rc teach(struct lesson *l, struct fault *why)
{
    const struct task_objective objective = {ask, on_loss, l};
    struct distill_result *out = l->out;
    struct learner *student = NULL;
    enum rc rc = create_student(l, &objective, out->lr, &student, why);

    if (rc != RC_OK) return rc;
    /* A student that cannot be built is found out before the teachers are asked. */
    out->steps = student->ops->steps_of(student, l->options->epochs);
    rc = ask_teachers(l, student, why);
    if (rc == RC_OK) {
        rc = train(l, student, DISTILL_LEARNING, &out->student_judged, &out->student, why);
    }
    if (rc == RC_OK) rc = check_learnt(l, &out->student, why);
    if (rc == RC_OK) {
        struct model_card card;
        student_card(l, student, &card);
        out->student_parameters = student->ops->schema(student)->values[SECTION_PARAMETERS];
        out->samples = student->ops->shard_samples(student);
        out->samples_all = replica_data(student)->train_samples;
        snprintf(out->student_spec, sizeof out->student_spec, "%s", card.spec);
        if (l->options->with_baseline) rc = train_baseline(l, why);
        if (rc == RC_OK) rc = tabulate(l, why);
        if (rc == RC_OK && l->options->out_path != NULL) {
            rc = model_save_as(replica_model(student), &card, l->options->out_path, why);
        }
    }
    answers_destroy(l->answers);
    mem_free(l->targets);
    student->ops->destroy(student);
    /* After other errors, a full disk say, the same command goes on. */
    if (rc == RC_OK || rc == RC_NONFINITE || l->options->keeps_nothing) remove_files(l);
    return rc;
}

enum rc distill_run(struct backend *backend, const struct distill_options *options,
                    struct distill_result *out, struct fault *why)
{
    CHECK((options->teachers_count > 0) != (options->panel != NULL) && options->temperature > 0);
    CHECK(options->alpha >= 0 && options->alpha <= 1 && (unsigned)options->vote < VOTE_COUNT);
    const double temperature = options->is_hard ? 1 : options->temperature;
    struct distill_result result = {.vote = options->vote,
                                    .trim = options->panel == NULL ? options->trim : 0,
                                    .temperature = temperature,
                                    .alpha = options->alpha,
                                    .is_hard = options->is_hard};
    struct lesson l = {.backend = backend,
                       .threads = backend->threads,
                       .options = options,
                       .out = &result,
                       .temperature = temperature,
                       .parts = 1};
    enum rc rc = name_files(&l, why);

    if (rc == RC_OK && options->panel != NULL) know_panel(&result.teachers, options->panel);
    if (rc == RC_OK && options->panel == NULL) rc = judge_teachers(&l, why);
    if (rc == RC_OK) rc = plan(&l, why);
    if (rc == RC_OK) rc = open_judge(&l, why);
    if (rc == RC_OK) rc = teach(&l, why);
    judge_close(l.judge);
    backend->threads = l.threads;
    if (rc == RC_OK) {
        *out = result;
    } else {
        distill_result_deinit(&result);
    }
    return rc;
}

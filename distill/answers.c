/* answers: see answers.h. Thread: the command's, one at a time. */
#include "distill/answers.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/floats.h"
#include "base/mem.h"
#include "distill/answer_file.h"
#include "distill/comparison.h"
#include "distill/outputs.h"
#include "kernels/backend.h"
#include "replica/learners/team.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_SAMPLES = 4096, READ_BYTES = 1 << 20 };

struct answers {
    struct answers_options options;
    struct answer_form form;
    uint32_t rows; /* a sample */
    size_t each;   /* values a sample */
    struct answer_file *file;
    bool was_there;
    /* While teachers are asked, or for as long as they are live: */
    struct ensemble *ensemble; /* of a piece of the samples, or of one batch */
    struct team **teachers;    /* [teachers_count]; NULL, or of them: not in memory */
    size_t piece;              /* samples */
    struct batch batch;
    float *logits;
};

static enum rc no_memory(struct fault *why)
{
    return fault_set(why, RC_NOMEM, "cannot distil: out of memory");
}

/* ---- the question ---- */

static enum rc hash_file(struct hash *hash, const char *path, struct fault *why)
{
    uint8_t *bytes = mem_alloc(READ_BYTES);
    FILE *file = bytes != NULL ? fopen(path, "rbe") : NULL;
    enum rc rc = RC_OK;
    size_t got;

    if (bytes == NULL) return no_memory(why);
    if (file == NULL) {
        rc = file_fault(why, "read", path, errno);
    } else {
        while ((got = fread(bytes, 1, READ_BYTES, file)) > 0) {
            hash_update(hash, bytes, got);
        }
        if (ferror(file)) rc = file_fault(why, "read", path, errno);
        fclose(file);
    }
    mem_free(bytes);
    return rc;
}

enum rc answers_question(const struct answers_options *o, struct digest *question,
                         struct fault *why)
{
    static const char purpose[] = "grapevine answers 3";
    const uint32_t how[] = {(uint32_t)o->vote, o->is_hard, o->by_confidence, o->trim};
    struct digest samples;
    struct hash hash;
    enum rc rc = samples_digest(o->samples, o->info, &samples);

    if (rc != RC_OK) return fault_set(why, rc, "cannot read the samples: %s", rc_text(rc));
    hash_init(&hash);
    hash_update(&hash, purpose, sizeof purpose);
    hash_update(&hash, how, sizeof how);
    hash_update(&hash, &o->temperature, sizeof o->temperature);
    for (size_t i = 0; rc == RC_OK && i < o->teachers_count; i++) {
        struct hash one;
        hash_init(&one);
        rc = hash_file(&one, o->teachers[i], why);
        const struct digest digest = hash_final(&one);
        const double weight = o->weights != NULL ? o->weights[i] : 1;
        hash_update(&hash, digest.bytes, DIGEST_BYTES);
        hash_update(&hash, &weight, sizeof weight);
    }
    if (rc != RC_OK) return rc;
    hash_update(&hash, samples.bytes, DIGEST_BYTES);
    *question = hash_final(&hash);
    return RC_OK;
}

/* ---- the teachers ---- */

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

static bool is_stopped(const struct answers *a)
{
    return a->options.is_stopped != NULL && a->options.is_stopped(a->options.context);
}

/* What all teachers say of the part, into the ensemble. Few of them stay in memory for the next. */
static enum rc ask_piece(struct answers *a, struct backend *backend,
                         const struct outputs_part *part, struct fault *why)
{
    const struct answers_options *o = &a->options;
    const struct outputs_sink sink = {a, on_answer};
    enum rc rc = RC_OK;

    ensemble_clear(a->ensemble);
    for (size_t i = 0; rc == RC_OK && i < o->teachers_count; i++) {
        struct team *team = a->teachers != NULL ? a->teachers[i] : NULL;
        struct score score = {0};
        if (is_stopped(a)) return RC_CANCELLED;
        if (team == NULL) rc = load(a, backend, i, outputs_batch(o->info), &team, why);
        if (rc != RC_OK) break;
        const struct dataset_info as_trained = outputs_info(o->info, team_model(team));
        weigh(a, i);
        rc = outputs_run(team, &as_trained, part, &sink, &score);
        if (rc != RC_OK) fault_set(why, rc, "cannot ask %s: %s", o->teachers[i], rc_text(rc));
        if (a->teachers != NULL) {
            a->teachers[i] = team;
        } else {
            team_destroy(team);
        }
    }
    return rc;
}

/* What they say together of a row of the ensemble. */
static void settle(const struct answers *a, size_t row, float *out)
{
    const struct answers_options *o = &a->options;

    if (!o->is_hard) {
        ensemble_settle(a->ensemble, o->vote, row, 1, out);
        return;
    }
    memset(out, 0, a->form.outputs * sizeof *out);
    out[ensemble_winner(a->ensemble, o->vote, row)] = 1;
}

static void forget_teachers(struct answers *a)
{
    for (size_t i = 0; a->teachers != NULL && i < a->options.teachers_count; i++) {
        team_destroy(a->teachers[i]);
    }
    mem_free(a->teachers);
    a->teachers = NULL;
}

/* ---- answers in a file ---- */

static enum rc write_pieces(struct answers *a, struct backend *backend,
                            struct answer_writer *writer, uint64_t done, struct fault *why)
{
    const struct answers_options *o = &a->options;
    const size_t count = o->samples->count;
    struct work work = {0, o->teachers_count * count, o->on_progress, o->context};
    float *row = mem_array(a->form.outputs, sizeof *row);
    enum rc rc = row != NULL ? RC_OK : no_memory(why);

    /* A try that was given up had whole pieces, maybe of another size. */
    for (size_t first = (size_t)(done / a->rows); rc == RC_OK && first < count;) {
        const size_t left = count - first, samples = left < a->piece ? left : a->piece;
        const struct outputs_part part = {o->samples, first, samples, &work};
        if (work.done == 0) work.done = first * o->teachers_count;
        rc = ask_piece(a, backend, &part, why);
        for (size_t i = 0; rc == RC_OK && i < samples * a->rows; i++) {
            settle(a, i, row);
            rc = answer_writer_add(writer, row, why);
        }
        first += samples;
        if (rc == RC_OK && first < count) rc = answer_writer_keep(writer, why);
    }
    mem_free(row);
    return rc;
}

static enum rc write_file(struct answers *a, struct backend *backend,
                          const struct answer_file_options *file, struct fault *why)
{
    const struct answers_options *o = &a->options;
    struct answer_writer *writer = NULL;
    uint64_t done = 0;
    enum rc rc = answer_writer_open(file, &writer, &done, why);

    if (rc != RC_OK) return rc;
    if (o->teachers_count <= ANSWERS_TEACHERS_MAX && o->samples->count > a->piece) {
        a->teachers = mem_array(o->teachers_count, sizeof *a->teachers);
        if (a->teachers == NULL) rc = no_memory(why);
    }
    if (rc == RC_OK) rc = write_pieces(a, backend, writer, done, why);
    forget_teachers(a);
    if (rc == RC_OK) return answer_writer_finish(writer, why);
    answer_writer_abandon(writer, rc == RC_CANCELLED);
    return rc == RC_CANCELLED ? fault_set(why, rc, "stopped while the teachers were asked") : rc;
}

/* A name that nobody else has, for a file that is to go. */
static enum rc passing_path(char path[PATH_MAX], struct fault *why)
{
    const char *folder = getenv("TMPDIR");
    int fd = -1;

    if (snprintf(path, PATH_MAX, "%s/grapevine-answers-XXXXXX", folder != NULL ? folder : "/tmp") <
        PATH_MAX) {
        fd = mkstemp(path);
    }
    if (fd < 0) return file_fault(why, "write", path, errno);
    close(fd);
    return RC_OK;
}

/* Damaged and other answers are asked for anew; what is no file of answers stays as it is. */
static enum rc make_file(struct answers *a, struct backend *backend,
                         const struct answer_file_options *file, struct fault *why)
{
    enum rc rc = answer_file_open(file, &a->file, why);

    a->was_there = rc == RC_OK;
    if (rc != RC_NOT_FOUND && rc != RC_FORMAT && rc != RC_MISMATCH) return rc;
    rc = write_file(a, backend, file, why);
    return rc == RC_OK ? answer_file_open(file, &a->file, why) : rc;
}

static enum rc keep_answers(struct answers *a, struct backend *backend, struct fault *why)
{
    const struct answers_options *o = &a->options;
    char passing[PATH_MAX];
    struct answer_file_options file = {
        .path = o->path, .form = a->form, .rows = (uint64_t)o->samples->count * a->rows};
    enum rc rc = answers_question(o, &file.question, why);

    if (rc == RC_OK && o->path == NULL) {
        rc = passing_path(passing, why);
        file.path = passing;
    }
    if (rc != RC_OK) return rc;
    rc = make_file(a, backend, &file, why);
    if (o->path == NULL) answer_file_remove(passing); /* what is mapped stays readable */
    ensemble_destroy(a->ensemble);
    a->ensemble = NULL;
    return rc;
}

/* ---- teachers that stay ---- */

static enum rc load_all(struct answers *a, struct backend *backend, struct fault *why)
{
    const struct answers_options *o = &a->options;
    struct work work = {0, o->teachers_count, o->on_progress, o->context};
    enum rc rc;

    if (o->teachers_count > ANSWERS_TEACHERS_MAX) {
        return fault_set(why, RC_LIMIT,
                         "--augment: %zu teachers are too many to see what the student sees, at "
                         "most %d are; name fewer, or pass --teachers-view plain",
                         o->teachers_count, ANSWERS_TEACHERS_MAX);
    }
    a->teachers = mem_array(o->teachers_count, sizeof *a->teachers);
    a->logits = mem_aligned(o->batch * a->each * sizeof(float));
    rc = batch_init(&a->batch, o->info, o->batch);
    if (rc != RC_OK || a->teachers == NULL || a->logits == NULL) return no_memory(why);
    for (size_t i = 0; rc == RC_OK && i < o->teachers_count; i++) {
        rc = load(a, backend, i, o->batch, &a->teachers[i], why);
        if (rc == RC_OK) work_add(&work, 1);
    }
    return rc;
}

/* Values normalised for the student, as this teacher was trained on them. */
static void normalise(const struct dataset_info *info, const struct model *teacher,
                      const struct batch *batch, float *out)
{
    const size_t area = (size_t)info->height * info->width;
    const float *mean = model_mean(teacher), *scale = model_scale(teacher);
    const float *in = batch->values;

    for (uint32_t i = 0; i < batch->rows; i++) {
        for (uint32_t c = 0; c < info->channels; c++, in += area, out += area) {
            for (size_t k = 0; k < area; k++) {
                out[k] = (in[k] / info->scale[c] + info->mean[c] - mean[c]) * scale[c];
            }
        }
    }
}

static enum rc ask_live(struct answers *a, const struct batch *batch)
{
    const struct answers_options *o = &a->options;
    const size_t rows = (size_t)batch->rows * a->rows;
    enum rc rc = RC_OK;

    ensemble_clear(a->ensemble);
    for (size_t i = 0; rc == RC_OK && i < o->teachers_count; i++) {
        const struct model *model = team_model(a->teachers[i]);
        const float *values = batch->values;
        if (o->info->input != DATA_TOKENS) {
            normalise(o->info, model, batch, a->batch.values);
            values = a->batch.values;
        }
        rc = team_forward(a->teachers[i], values, batch->rows, false, a->logits);
        if (rc == RC_OK && !floats_are_finite(a->logits, batch->rows * a->each)) rc = RC_NONFINITE;
        if (rc != RC_OK) break;
        weigh(a, i);
        ensemble_absorb(a->ensemble, 0, rows, a->logits);
    }
    return rc;
}

/* ---- the whole ---- */

static struct answer_form form_of(const struct answers_options *o)
{
    struct answer_form form = {.outputs = o->info->outputs, .top = o->top};

    form.is_real = o->info->target == DATA_REALS;
    if (form.top == 0) form.top = form.outputs > ANSWERS_ALL_MAX ? ANSWERS_TOP : form.outputs;
    if (o->is_hard) form.top = 1;
    if (form.is_real || form.top > form.outputs) form.top = form.outputs;
    return form;
}

static enum rc make_ensemble(struct answers *a, uint32_t threads, struct fault *why)
{
    const struct answers_options *o = &a->options;
    struct ensemble_options ensemble = {.classes = o->info->outputs,
                                        .temperature = o->temperature,
                                        .is_real = a->form.is_real,
                                        .by_confidence = o->by_confidence,
                                        .trim = o->trim};
    const size_t bytes_max = o->bytes_max > 0 ? o->bytes_max : ANSWERS_BYTES_MAX;

    ensemble.wants[o->vote] = true;
    a->piece = bytes_max / (a->rows * ensemble_row_bytes(&ensemble));
    if (a->piece > PIECE_SAMPLES) a->piece = PIECE_SAMPLES;
    if (a->piece < threads) a->piece = threads; /* each is busy, with logits of its own anyway */
    ensemble.rows = a->rows * (o->is_live ? o->batch : a->piece);
    a->ensemble = ensemble_create(&ensemble);
    return a->ensemble != NULL ? RC_OK : no_memory(why);
}

enum rc answers_create(struct backend *backend, const struct answers_options *options,
                       struct answers **answers, struct fault *why)
{
    CHECK(options->teachers_count > 0 && options->batch > 0);
    struct answers *a = mem_alloc(sizeof *a);
    enum rc rc;

    if (a == NULL) return no_memory(why);
    a->options = *options;
    a->form = form_of(options);
    a->rows = outputs_rows(options->info);
    a->each = (size_t)a->rows * options->info->outputs;
    rc = make_ensemble(a, backend->threads, why);
    if (rc == RC_OK)
        rc = options->is_live ? load_all(a, backend, why) : keep_answers(a, backend, why);
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
    forget_teachers(answers);
    answer_file_close(answers->file);
    mem_free(answers->logits);
    batch_deinit(&answers->batch);
    ensemble_destroy(answers->ensemble);
    mem_free(answers);
}

bool answers_were_there(const struct answers *answers)
{
    return answers->was_there;
}

enum rc answers_get(struct answers *answers, struct pick pick, float *out)
{
    const uint32_t rows = answers->rows;
    enum rc rc = RC_OK;

    CHECK(answers->file != NULL);
    for (uint32_t i = 0; rc == RC_OK && i < pick.rows * rows; i++, out += answers->form.outputs) {
        const size_t at = pick.first + i / rows, sample = pick.order != NULL ? pick.order[at] : at;
        rc = answer_file_get(answers->file, (uint64_t)sample * rows + i % rows, out);
    }
    return rc;
}

enum rc answers_of_batch(struct answers *answers, const struct batch *batch, float *out)
{
    const size_t rows = (size_t)batch->rows * answers->rows;

    CHECK(batch->rows <= answers->options.batch);
    if (!answers->options.is_live) {
        return answers_get(answers, (struct pick){batch->picked, 0, batch->rows}, out);
    }
    const enum rc rc = ask_live(answers, batch);
    for (size_t i = 0; rc == RC_OK && i < rows; i++) {
        settle(answers, i, out + i * answers->form.outputs);
    }
    return rc;
}

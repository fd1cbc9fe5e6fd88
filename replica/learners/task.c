/* See task.h. */
#include "replica/learners/task.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/softmax.h"
#include "replica/learners/workers.h"
#include "replica/model/layers.h"
#include "replica/model/loss.h"
#include "replica/model/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

uint32_t task_context(const char *spec)
{
    return layers_context(spec);
}

void task_describe(const struct dataset_info *info, struct model_options *options)
{
    options->channels = info->channels;
    options->height = info->height;
    options->width = info->width;
    options->classes = info->outputs;
    options->input = info->input == DATA_TOKENS ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE;
    options->symbols = info->symbols;
}

static bool is_plain(const char *word)
{
    for (; *word != '\0'; word++) {
        if ((unsigned char)*word < 0x20 || *word == 0x7F) return false;
    }
    return true;
}

/* Words that do not fit, or would break the form, are left out all together. */
static void join(const char *const *words, uint32_t count, char *text, size_t cap)
{
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        if (is_plain(words[i]) && at < cap) {
            at += (size_t)snprintf(text + at, cap - at, "%s\n", words[i]);
            if (at < cap) continue;
        }
        text[0] = '\0';
        return;
    }
}

void task_words(const struct dataset_info *info, char text[MODEL_WORDS_BYTES])
{
    const bool has_words = info->target == DATA_CLASS && info->class_words != NULL;

    join(info->class_words, has_words ? info->classes : 0, text, MODEL_WORDS_BYTES);
}

void task_columns(const struct dataset_info *info, char text[MODEL_COLUMNS_BYTES])
{
    const bool has_names = info->input == DATA_VECTORS && info->column_names != NULL;

    join(info->column_names, has_names ? info->channels : 0, text, MODEL_COLUMNS_BYTES);
}

void task_card(const struct dataset_info *info, const struct model *model, struct model_card *card)
{
    *card = (struct model_card){
        .input = info->input == DATA_TOKENS ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE,
        .is_regression = info->target == DATA_REALS,
        .channels = info->channels,
        .height = info->height,
        .width = info->width,
        .classes = info->outputs,
        .symbols = info->symbols,
    };
    _Static_assert(sizeof(card->symbol_bytes) == sizeof(info->symbol_bytes), "the same table");
    memcpy(card->symbol_bytes, info->symbol_bytes, sizeof(card->symbol_bytes));
    card->has_tokenizer = info->has_tokenizer;
    card->tokenizer_digest = info->tokenizer_digest;
    _Static_assert(sizeof(card->tokenizer) == sizeof(info->tokenizer), "the same name");
    memcpy(card->tokenizer, info->tokenizer, sizeof(card->tokenizer));
    task_words(info, card->class_words);
    task_columns(info, card->column_words);
    snprintf(card->spec, sizeof(card->spec), "%s", model_spec(model));
}

struct digest task_meaning(const struct dataset_info *info, const struct model *model)
{
    static const char purpose[] = "grapevine meaning 1";
    const char *spec = model_spec(model);
    uint8_t kinds[] = {(uint8_t)info->input, (uint8_t)info->target};
    bool has_words = info->input == DATA_VECTORS && info->class_words != NULL;
    uint32_t words = has_words ? info->classes : 0;
    struct hash hash;

    hash_init(&hash);
    hash_update(&hash, purpose, sizeof(purpose));
    hash_update(&hash, spec, strlen(spec) + 1);
    hash_update(&hash, kinds, sizeof(kinds));
    hash_update(&hash, info->symbol_bytes, sizeof(info->symbol_bytes));
    if (info->has_tokenizer) {
        hash_update(&hash, info->tokenizer_digest.bytes, DIGEST_BYTES);
    }
    /* Tables number their classes by the words; elsewhere words are names of given numbers. */
    for (uint32_t i = 0; i < words; i++) {
        hash_update(&hash, info->class_words[i], strlen(info->class_words[i]) + 1);
    }
    /* And they have their numbers by the columns' names. */
    for (uint32_t i = 0; info->column_names != NULL && i < info->channels; i++) {
        hash_update(&hash, info->column_names[i], strlen(info->column_names[i]) + 1);
    }
    return hash_final(&hash);
}

enum rc task_init(struct task *task, const struct dataset_info *info, const struct model *model,
                  uint32_t batch, struct fault *why)
{
    uint32_t rows = model_rows(model), wanted = info->labels_per_sample;
    size_t predictions = (size_t)batch * rows * model_heads(model);

    *task = (struct task){.target = info->target,
                          .rows = rows,
                          .heads = model_heads(model),
                          .outputs = model_classes(model)};
    if (info->target == DATA_REALS) wanted = 1;
    if (info->input == DATA_TOKENS && !layers_read_tokens(model_spec(model))) {
        return fault_set(why, RC_SHAPE,
                         "--model: token data needs an embedding layer first: take lstm or "
                         "gpt-nano, or begin the list with embed:N");
    }
    if (rows > 1 && wanted == 1) {
        return fault_set(why, RC_SHAPE,
                         "--model: it gives %u answers a sample, and the data asks for one; put "
                         "'last' before the last layer",
                         rows);
    }
    if (rows != wanted) {
        return fault_set(why, RC_SHAPE,
                         "--model: it gives one answer a sample, and the data asks for the next "
                         "token at each of %u steps; leave 'last' out",
                         wanted);
    }
    if (task->heads > 1 && info->target == DATA_REALS) {
        return fault_set(why, RC_SHAPE,
                         "--model: heads answer with probabilities, and the data ask for real "
                         "values; end with one linear:classes");
    }
    task->losses = mem_raw(predictions * sizeof(*task->losses));
    if (task->heads > 1) task->labels = mem_raw(predictions * sizeof(*task->labels));
    if (task->losses != NULL && (task->heads == 1 || task->labels != NULL)) return RC_OK;
    return fault_set(why, RC_NOMEM, "cannot set up training: out of memory; try a smaller --batch");
}

void task_deinit(struct task *task)
{
    mem_free(task->labels);
    mem_free(task->losses);
    *task = (struct task){0};
}

size_t task_logits(const struct task *task, uint32_t batch)
{
    return (size_t)batch * task->rows * task->heads * task->outputs;
}

static struct task_score score_of(const struct task *task, const uint32_t *labels,
                                  const float *targets, uint32_t rows, const float *logits,
                                  float *gradient)
{
    struct task_score score = {.count = rows};
    uint32_t correct = 0;

    if (task->target == DATA_REALS) {
        score.loss = loss_squared(logits, targets, rows, task->outputs, gradient);
    } else {
        score.loss = loss_cross_entropy(logits, labels, rows, task->outputs, gradient, &correct);
        score.hits = correct;
    }
    return score;
}

const uint32_t *task_labels(struct task *task, const struct batch *batch)
{
    if (task->heads == 1) return batch->labels;
    for (uint32_t i = 0; i < batch->rows * task->rows * task->heads; i++) {
        task->labels[i] = batch->labels[i / task->heads];
    }
    return task->labels;
}

struct task_score task_loss(struct task *task, const struct batch *batch, const float *logits,
                            float *gradient)
{
    uint32_t rows = batch->rows * task->rows * task->heads;

    return score_of(task, task_labels(task, batch), batch->targets, rows, logits, gradient);
}

/* A pass, and what its threads add to it. */
struct judging {
    struct task *task;
    const struct task_pass *pass;
    const uint32_t *labels; /* of all predictions */
    uint32_t each, counted; /* predictions of a sample; of the batch, those that count */
    uint64_t hits[WORKERS_MAX];
};

static enum rc judge_part(void *context, const struct team_outputs *outputs)
{
    struct judging *j = context;
    const struct task_pass *pass = j->pass;
    const struct task_objective *objective = pass->is_training ? pass->objective : NULL;
    const struct task *task = j->task;
    struct model_profiler *profiler = outputs->lane == 0 ? pass->profiler : NULL;
    uint64_t begin = model_profiler_now(profiler);
    size_t first = (size_t)outputs->first * j->each;
    const struct loss_rows rows = {.logits = outputs->logits,
                                   .gradient = outputs->gradient,
                                   .rows = outputs->samples * j->each,
                                   .outputs = task->outputs,
                                   .counted = j->counted,
                                   .losses = task->losses + first};
    enum rc rc = RC_OK;

    if (objective != NULL) {
        rc = objective->loss(objective->context, task, pass->batch, first, &rows,
                             &j->hits[outputs->lane]);
    } else if (task->target == DATA_REALS) {
        loss_rows_squared(&rows, pass->batch->targets + first * task->outputs);
    } else {
        j->hits[outputs->lane] = loss_rows_cross_entropy(&rows, j->labels + first);
    }
    model_profiler_add_inside(profiler, PROFILE_LOSS, begin);
    return rc;
}

static enum rc prepare_heads(void *context, struct task *task, const struct batch *batch)
{
    (void)context, (void)task, (void)batch; /* labels are there */
    return RC_OK;
}

static enum rc judge_ensemble(void *context, const struct task *task, const struct batch *batch,
                              size_t first, const struct loss_rows *rows, uint64_t *hits)
{
    (void)context, (void)batch;
    *hits += loss_rows_heads(rows, task->labels + first, task->heads, HEADS_ENSEMBLE);
    return RC_OK;
}

static enum rc judge_oracle(void *context, const struct task *task, const struct batch *batch,
                            size_t first, const struct loss_rows *rows, uint64_t *hits)
{
    (void)context, (void)batch;
    *hits += loss_rows_heads(rows, task->labels + first, task->heads, HEADS_ORACLE);
    return RC_OK;
}

const struct task_objective *task_heads_objective(enum heads_loss loss)
{
    static const struct task_objective ensemble = {prepare_heads, judge_ensemble, NULL};
    static const struct task_objective oracle = {prepare_heads, judge_oracle, NULL};

    if (loss == HEADS_MEAN) return NULL;
    return loss == HEADS_ENSEMBLE ? &ensemble : &oracle;
}

enum rc task_forward(struct task *task, const struct task_pass *pass, struct task_score *score)
{
    const struct batch *batch = pass->batch;
    struct judging j = {.task = task, .pass = pass};
    const struct team_pass forward = {
        batch->values, batch->rows, pass->is_training, pass->logits, pass->gradient,
        judge_part,    &j};
    enum rc rc = RC_OK;

    j.each = task->rows * (pass->is_training ? task->heads : 1);
    j.counted = batch->rows * j.each;
    *score = (struct task_score){.count = j.counted};
    if (task->target != DATA_REALS) {
        j.labels = pass->is_training ? task_labels(task, batch) : batch->labels;
        j.counted = softmax_counted(j.labels, j.counted);
    }
    if (pass->is_training && pass->objective != NULL) {
        uint64_t begin = model_profiler_now(pass->profiler);
        rc = pass->objective->prepare(pass->objective->context, task, batch);
        model_profiler_add_inside(pass->profiler, PROFILE_LOSS, begin);
    }
    if (rc == RC_OK) rc = team_judge(pass->team, &forward);
    if (rc != RC_OK) return rc;
    for (uint64_t i = 0; i < score->count; i++) {
        score->loss += task->losses[i];
    }
    if (j.counted > 0) score->loss /= j.counted;
    for (uint32_t l = 0; l < team_threads(pass->team); l++) {
        score->hits += j.hits[l];
    }
    return RC_OK;
}

void task_feed(struct task *task, const struct batch *batch, struct model_feed *feed)
{
    uint32_t rows = batch->rows * task->rows;

    *feed = (struct model_feed){.input = batch->values, .batch = batch->rows, .counted = rows};
    if (task->target == DATA_REALS) {
        feed->targets = batch->targets;
        return;
    }
    feed->labels = task_labels(task, batch);
    feed->counted = softmax_counted(feed->labels, rows * task->heads);
    if (feed->counted == 0) feed->counted = 1; /* of nothing the sum is 0 anyway */
}

struct task_score task_judge(const struct task *task, const struct batch *batch,
                             const float *logits)
{
    return score_of(task, batch->labels, batch->targets, batch->rows * task->rows, logits, NULL);
}

double task_accuracy(const struct task *task, uint64_t hits, uint64_t count)
{
    if (task->target == DATA_REALS || count == 0) return (double)NAN;
    return (double)hits / (double)count;
}

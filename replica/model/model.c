/*
 * A model: forward and backward passes over its stages (stage.h), segment by segment and slice by
 * slice, on one backend. Rows that pad a last slice are zeros and take part in nothing. Thread: one
 * at a time, the training lane's.
 */
#include "replica/model/plan.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/model/loss.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RNG_PURPOSE_WEIGHTS = 0x77656967 }; /* + number of the tensor */

static void fill(struct rng *rng, struct init init, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        switch (init.kind) {
        case INIT_UNIFORM:
            values[i] = init.size * (float)(2.0 * rng_unit(rng) - 1.0);
            break;
        case INIT_NORMAL:
            values[i] = init.size * (float)rng_normal(rng);
            break;
        case INIT_CONSTANT:
        default:
            values[i] = init.size;
            break;
        }
    }
}

/* Each tensor from its own stream. */
static enum rc initialise(struct model *model)
{
    float values[1024];
    const struct schema *schema = &model->schema;

    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        const struct tensor *tensor = &schema->tensors[t];
        struct rng rng;

        rng_init(&rng, model->seed, (uint64_t)RNG_PURPOSE_WEIGHTS + t);
        for (size_t i = 0; i < tensor->count; i += ARRAY_COUNT(values)) {
            size_t count = tensor->count - i;
            enum rc rc;
            if (count > ARRAY_COUNT(values)) count = ARRAY_COUNT(values);
            fill(&rng, model->inits[t], values, count);
            rc = model->backend->ops->upload(model->backend,
                                             model->planes[tensor->section] + tensor->offset + i,
                                             values, count * sizeof(float));
            if (rc != RC_OK) return rc;
        }
    }
    for (uint32_t s = 0; s < model->stages_count; s++) {
        struct stage *stage = &model->stages[s];
        enum rc rc = stage->ops->start == NULL ? RC_OK : stage->ops->start(model, stage);
        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}

static enum rc check_options(const struct model_options *options, struct fault *why)
{
    uint64_t values = (uint64_t)options->channels * options->height;

    if (options->classes == 0 || options->classes > MODEL_CLASSES_MAX) {
        return fault_set(why, RC_SHAPE, "a model needs 1 to %u classes, the data has %u",
                         MODEL_CLASSES_MAX, options->classes);
    }
    if (values == 0 || options->width == 0 || values > UINT32_MAX / options->width) {
        return fault_set(why, RC_SHAPE, "a model cannot read samples of %ux%ux%u values",
                         options->channels, options->height, options->width);
    }
    if (options->batch_max == 0 || options->batch_max > 1u << 20) {
        return fault_set(why, RC_USAGE, "--batch must be from 1 to %u, not %u", 1u << 20,
                         options->batch_max);
    }
    CHECK(!options->is_stepwise ||
          (options->input == MODEL_INPUT_TOKENS && !options->with_gradients));
    return RC_OK;
}

static enum rc take_tables(struct model *m)
{
    m->inits_max = STAGES_MAX * STAGE_TENSORS_MAX;
    m->inits = mem_array(m->inits_max, sizeof(*m->inits));
    m->stages = mem_array(STAGES_MAX, sizeof(*m->stages));
    m->values = mem_array(STAGES_MAX + 1, sizeof(*m->values));
    m->segments = mem_array(STAGES_MAX, sizeof(*m->segments));
    m->saved = mem_array(STAGES_MAX, sizeof(*m->saved));
    m->mean = mem_array(m->input.image.channels, sizeof(*m->mean));
    m->scale = mem_array(m->input.image.channels, sizeof(*m->scale));
    if (m->inits == NULL || m->stages == NULL || m->values == NULL || m->segments == NULL ||
        m->saved == NULL || m->mean == NULL || m->scale == NULL) {
        return RC_NOMEM;
    }
    for (uint32_t c = 0; c < m->input.image.channels; c++) {
        m->scale[c] = 1.0F;
    }
    return RC_OK;
}

static enum rc set_up(struct model *m, const char *spec, struct fault *why)
{
    enum rc rc = take_tables(m);

    if (rc != RC_OK) return fault_set(why, rc, "cannot set up the model: out of memory");
    rc = layers_parse(spec, m->classes, &m->layers, why);
    if (rc != RC_OK) return rc;
    rc = layers_format(&m->layers, m->spec, sizeof(m->spec));
    if (rc != RC_OK) {
        return fault_set(why, rc, "--model: written out it is longer than %zu letters",
                         sizeof(m->spec) - 1);
    }
    rc = model_build(m, why);
    if (rc == RC_OK) rc = model_place(m, why);
    if (rc != RC_OK) return rc;
    if (!m->backend->is_host) rc = model_device_create(m);
    if (rc != RC_OK) {
        return fault_set(why, rc, "cannot set up the model: %s; try a smaller --batch",
                         model_device_why(m)[0] != '\0' ? model_device_why(m) : rc_text(rc));
    }
    rc = m->leader == NULL && m->file_values == 0 ? initialise(m) : RC_OK;
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, rc, "cannot write the initial weights: %s", rc_text(rc));
}

static enum rc create(struct backend *backend, const struct model_options *options,
                      bool is_unshared, struct model **model, struct fault *why)
{
    struct model *m;
    enum rc rc = check_options(options, why);

    if (rc != RC_OK) return rc;
    m = mem_alloc(sizeof(*m));
    if (m == NULL) return fault_set(why, RC_NOMEM, "cannot set up the model: out of memory");
    backend_bind_thread(backend);
    schema_init(&m->schema);
    m->backend = backend;
    m->version = 1;
    m->written = 1;
    m->input_kind = options->input;
    m->input.image = (struct image_shape){options->channels, options->height, options->width, 1};
    m->input.is_vector = shape_is_flat(m->input);
    if (options->input == MODEL_INPUT_TOKENS) {
        m->context = options->is_stepwise ? options->width : 0;
        m->input = (struct shape){{1, 1, 1, 1}, options->is_stepwise ? 1 : options->width, true};
    }
    m->classes = options->classes;
    m->symbols = options->symbols == 0 ? options->classes : options->symbols;
    m->batch_max = options->batch_max;
    m->seed = options->seed;
    m->file_values = options->file_values;
    m->with_gradients = options->with_gradients;
    m->leader = options->leader;
    m->meeting = options->meeting;
    m->lane = options->lane;
    m->is_unshared = is_unshared;
    rc = set_up(m, options->spec, why);
    if (rc != RC_OK) {
        model_destroy(m);
        return rc;
    }
    *model = m;
    return RC_OK;
}

enum rc model_create(struct backend *backend, const struct model_options *options,
                     struct model **model, struct fault *why)
{
    return create(backend, options, false, model, why);
}

enum rc model_create_unshared(struct backend *backend, const struct model_options *options,
                              struct model **model, struct fault *why)
{
    return create(backend, options, true, model, why);
}

void model_destroy(struct model *model)
{
    if (model == NULL) return;
    model_release(model);
    mem_free(model);
}

/* One walk over the stages, forward or backward. */
struct run {
    struct model *model;
    const float *input;
    uint32_t batch;
    bool is_training, is_backward;
    bool adds;     /* backward: to the gradients of parameters that are there */
    bool sums_up;  /* ... and over the backend's siblings, */
    size_t summed; /* which is done, or on its way, from this value of the plane on; */
    size_t whole;  /* from this one on it could be */
};

/* Gradients are summed up in parts of an eighth, but not so little that a part's start takes longer
 * than itself, nor so much that the last one keeps the update waiting. */
enum { PARTS = 8, PART_VALUES_MIN = 1 << 14, PART_VALUES_MAX = 1 << 22 };

static float *value_at(const struct model *model, uint32_t v, uint32_t first)
{
    const struct value *home = &model->values[model->values[v].home];

    if (!home->is_whole) return home->data;
    return backend_at(model->backend, home->data,
                      (size_t)first * shape_values(model->values[v].shape));
}

static float *gradient_at(const struct model *model, uint32_t v, uint32_t first)
{
    const struct value *home = &model->values[model->values[v].gradient_home];

    if (!model->values[v].has_gradient) return NULL;
    if (!home->is_gradient_whole) return home->gradient;
    return backend_at(model->backend, home->gradient,
                      (size_t)first * shape_values(model->values[v].shape));
}

/* The rows of a padded stage's memory that no sample fills become zeros. */
static enum rc clear_rows(struct model *model, float *values, size_t each, uint32_t samples,
                          uint32_t slice)
{
    if (samples == slice || values == NULL) return RC_OK;
    return model->backend->ops->zero(model->backend,
                                     backend_at(model->backend, values, samples * each),
                                     (slice - samples) * each * model->backend->value_bytes);
}

/* The input of a padded stage at the end of a batch. The caller's is not ours to pad: a copy. */
static enum rc pad_input(struct run *run, uint32_t slice, struct stage_pass *pass)
{
    struct model *model = run->model;
    size_t each = shape_values(model->input);
    enum rc rc;

    if (pass->samples == slice) return RC_OK;
    if (model->device != NULL) {
        return clear_rows(model, model->device->input, each, pass->samples, slice);
    }
    rc = model->backend->ops->zero(model->backend, model->tail, slice * each * sizeof(float));
    if (rc == RC_OK) {
        rc = model->backend->ops->copy(model->backend, model->tail, pass->x[0],
                                       pass->samples * each * sizeof(float));
    }
    pass->x[0] = model->tail;
    return rc;
}

static enum rc pad(struct run *run, const struct stage *stage, struct stage_pass *pass)
{
    struct model *model = run->model;
    const struct value *x = &model->values[stage->inputs[0]];
    enum rc rc;

    if (x->home == 0) {
        rc = pad_input(run, stage->slice, pass);
    } else {
        rc = clear_rows(model, value_at(model, stage->inputs[0], pass->first),
                        shape_values(stage->in), pass->samples, stage->slice);
    }
    if (rc != RC_OK || !run->is_backward) return rc;
    return clear_rows(model, pass->dy, shape_values(stage->out), pass->samples, stage->slice);
}

static void *saved_at(const struct model *model, uint32_t s, uint32_t first)
{
    if (model->saved[s] == NULL) return NULL;
    return (char *)model->saved[s] + (size_t)first * model->stages[s].saved_bytes;
}

/* What a stage reads as value `v`. */
static const float *input_at(const struct run *run, uint32_t v, uint32_t first)
{
    const struct model *model = run->model;

    if (model->values[v].home != 0) return value_at(model, v, first);
    return run->input + (size_t)first * shape_values(model->values[v].shape);
}

/* Where everything of stage `s` is for the slice that begins at sample `first`. */
static struct stage_pass pass_of(const struct run *run, uint32_t s, uint32_t first)
{
    const struct model *model = run->model;
    const struct stage *stage = &model->stages[s];
    uint32_t rest = run->batch - first;
    struct stage_pass pass = {
        .first = first,
        .batch_first = model->first,
        .samples = rest < stage->slice ? rest : stage->slice,
        .batch = run->batch,
        .is_training = run->is_training,
        .is_first = first == 0 && !run->adds,
        .scratch = model->scratch,
    };

    for (uint32_t i = 0; i < stage->inputs_count; i++) {
        uint32_t x = stage->inputs[i];
        pass.x[i] = input_at(run, x, first);
        if (!run->is_backward) continue;
        pass.dx[i] = gradient_at(model, x, first);
        pass.adds[i] = model_adds(model, s, i);
    }
    for (uint32_t i = 0; stage->adds_up && i < 2; i++) {
        pass.terms[i] = input_at(run, model->stages[s - 1].inputs[i], first);
    }
    if (model->values[stage->output].home != 0) pass.y = value_at(model, stage->output, first);
    if (run->is_backward) pass.dy = gradient_at(model, stage->output, first);
    if (run->is_training) pass.saved = saved_at(model, s, first);
    if (run->is_backward && stage->joins != NO_STAGE) {
        pass.joined = saved_at(model, stage->joins, first);
    }
    return pass;
}

static uint64_t profile_clock(const struct model *model)
{
    if (model->profile == NULL) return 0;
    if (model->device != NULL) model_device_wait(model);
    return model->profile->clock(model->profile->context);
}

static enum rc run_stage(struct run *run, uint32_t s, uint32_t first)
{
    struct model *model = run->model;
    struct stage *stage = &model->stages[s];
    struct stage_pass pass = pass_of(run, s, first);
    uint64_t begin = profile_clock(model);
    enum rc rc = RC_OK;

    if (run->is_backward && !model->values[stage->output].has_gradient) return RC_OK;
    if (stage->is_padded) rc = pad(run, stage, &pass);
    if (rc != RC_OK) return rc;
    rc = run->is_backward ? stage->ops->backward(model, stage, &pass)
                          : stage->ops->forward(model, stage, &pass);
    if (model->profile != NULL) {
        model->profile->ns[s][run->is_backward ? 1 : 0] += profile_clock(model) - begin;
    }
    return rc;
}

static enum rc close_segment(struct run *run, const struct segment *segment)
{
    struct model *model = run->model;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < segment->count; i++) {
        uint32_t s = segment->first + i;
        struct stage *stage = &model->stages[s];
        struct stage_pass pass;
        uint64_t begin = profile_clock(model);

        model->closed++;
        if ((run->is_backward ? stage->ops->close_backward : stage->ops->close) == NULL) continue;
        pass = pass_of(run, s, 0);
        rc = run->is_backward ? stage->ops->close_backward(model, stage, &pass)
                              : stage->ops->close(model, stage, &pass);
        if (model->profile != NULL) {
            model->profile->ns[s][run->is_backward ? 1 : 0] += profile_clock(model) - begin;
        }
    }
    return rc;
}

/* A step of a large model takes longer than people wait. */
static bool is_stopped(const struct run *run)
{
    return run->is_training && run->model->stop != NULL && atomic_load(run->model->stop);
}

static size_t part_values(size_t all)
{
    size_t part = all / PARTS;

    if (part < PART_VALUES_MIN) return PART_VALUES_MIN;
    return part < PART_VALUES_MAX ? part : PART_VALUES_MAX;
}

/* Backward, stage `s` is through, as are those behind it. Tensors lie in the order of the stages
 * that have them; one that others use as well is that of the first. */
static enum rc sum_behind(struct run *run, uint32_t s)
{
    struct model *model = run->model;
    const struct stage *stage = &model->stages[s];
    size_t count;

    if (!run->sums_up) return RC_OK;
    for (uint32_t t = 0; t < stage->tensors_count; t++) {
        const struct tensor *tensor = &model->schema.tensors[stage->tensors[t]];
        if (tensor->section != SECTION_PARAMETERS) continue;
        if (tensor->offset < run->whole) run->whole = tensor->offset;
    }
    count = run->summed - run->whole;
    if (count == 0) return RC_OK;
    if (run->whole > 0 && count < part_values(model->schema.values[SECTION_GRADIENT])) return RC_OK;
    run->summed = run->whole;
    return model->backend->ops->all_reduce_begin(
        model->backend, model->planes[SECTION_GRADIENT] + run->whole, count);
}

/* Whether some stage's gradients are not whole before the segment is closed. */
static bool is_late(const struct model *model, const struct segment *segment)
{
    for (uint32_t i = 0; i < segment->count; i++) {
        if (model->stages[segment->first + i].is_late) return true;
    }
    return false;
}

static enum rc run_stages(struct run *run, const struct segment *segment, uint32_t first)
{
    bool sums_up = run->sums_up && !is_late(run->model, segment);
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < segment->count; i++) {
        uint32_t back = segment->first + segment->count - 1 - i;
        rc = run_stage(run, run->is_backward ? back : segment->first + i, first);
        if (rc == RC_OK && sums_up) rc = sum_behind(run, back);
    }
    return rc;
}

static enum rc run_segment(struct run *run, const struct segment *segment)
{
    enum rc rc = RC_OK;

    for (uint32_t first = 0; rc == RC_OK && first < run->batch; first += segment->slice) {
        if (is_stopped(run)) return RC_CANCELLED;
        rc = run_stages(run, segment, first);
    }
    if (rc == RC_OK) rc = close_segment(run, segment);
    for (uint32_t s = segment->first + segment->count; rc == RC_OK && s-- > segment->first;) {
        rc = sum_behind(run, s); /* what is done already is left out */
    }
    return rc;
}

enum rc model_fill_copies(struct model *model)
{
    uint64_t now = atomic_load(&model_owner(model)->written);
    enum rc rc = RC_OK;

    if (model->device == NULL || model->copied == now) return RC_OK;
    for (uint32_t s = 0; rc == RC_OK && s < model->stages_count; s++) {
        struct stage *stage = &model->stages[s];
        if (stage->has_copies) rc = stage->ops->prepare(model, stage, true);
    }
    if (rc == RC_OK) model->copied = now;
    return rc;
}

/* In evaluation only what changed since the last time. A training pass changes running statistics,
 * and what it prepared is no good for evaluation. */
static enum rc prepare(struct model *model, bool is_training)
{
    _Atomic(uint64_t) *version = &model_owner(model)->version;
    uint64_t now = atomic_fetch_add(version, is_training ? 1 : 0);
    enum rc rc = RC_OK;

    if (!is_training && model->prepared == now) return RC_OK;
    model->prepared = 0;
    rc = model_fill_copies(model);
    for (uint32_t s = 0; rc == RC_OK && s < model->stages_count; s++) {
        struct stage *stage = &model->stages[s];
        uint64_t begin = profile_clock(model);
        if (stage->ops->prepare == NULL || stage->has_copies) continue;
        rc = stage->ops->prepare(model, stage, is_training);
        if (model->profile != NULL) {
            model->profile->ns[s][0] += profile_clock(model) - begin;
        }
    }
    if (rc == RC_OK && !is_training) model->prepared = now;
    return rc;
}

/* Outputs stay where they are; several heads become one prediction unless they are to learn. */
static void keep(const struct run *run)
{
    struct model *model = run->model;
    bool is_input = model->values[model->values_count - 1].home == 0; /* as of `rows` alone */
    size_t rows = (size_t)run->batch * model_rows(model);

    CHECK(model->backend->is_host);
    model->logits = is_input ? run->input : model_output(model);
    if (model->heads == 1 || run->is_training) return;
    loss_merge_heads(model->logits, rows, model->heads, model->classes, model_output(model));
}

/* The same, to the host. */
static enum rc fetch(const struct run *run, float *logits)
{
    struct model *model = run->model;
    uint32_t output = model->values_count - 1;
    bool is_input = model->values[output].home == 0;
    size_t rows = (size_t)run->batch * model_rows(model);
    bool is_merged = model->heads > 1 && !run->is_training;
    float *to = is_merged ? model->merged : logits;
    const float *from = is_input ? run->input : value_at(model, output, 0);
    size_t count = rows * model->heads * model->classes;
    enum rc rc;

    if (is_merged && model->backend->is_host) {
        loss_merge_heads(from, rows, model->heads, model->classes, logits);
        return RC_OK;
    }
    if (model->device != NULL) {
        rc = model_device_fetch(model, from, rows, to);
    } else {
        rc = model->backend->ops->download(model->backend, to, from, count * sizeof(float));
    }
    if (rc == RC_OK && is_merged) {
        loss_merge_heads(to, rows, model->heads, model->classes, logits);
    }
    return rc;
}

enum rc model_run_forward(struct model *model, const float *input, uint32_t batch, bool is_training)
{
    struct run run = {.model = model, .input = input, .batch = batch, .is_training = is_training};
    enum rc rc = prepare(model, is_training);

    model->closed = 0;
    for (uint32_t i = 0; rc == RC_OK && i < model->segments_count; i++) {
        rc = run_segment(&run, &model->segments[i]);
    }
    return rc;
}

/* What is on its way comes to its end before what follows. */
static enum rc end_sums(const struct run *run)
{
    const struct model *model = run->model;

    if (!run->sums_up || model->schema.values[SECTION_GRADIENT] == 0) return RC_OK;
    CHECK(run->summed == 0);
    return model->backend->ops->all_reduce_end(model->backend);
}

enum rc model_run_backward(struct model *model, const float *input, uint32_t batch, bool adds,
                           bool sums_up)
{
    struct run run = {.model = model,
                      .input = input,
                      .batch = batch,
                      .is_training = true,
                      .is_backward = true,
                      .adds = adds,
                      .sums_up = sums_up,
                      .summed = model->schema.values[SECTION_GRADIENT],
                      .whole = model->schema.values[SECTION_GRADIENT]};
    enum rc rc = RC_OK;

    CHECK(!sums_up || model->device != NULL); /* where a batch is one slice */
    model->closed = 0;
    for (uint32_t i = model->segments_count; rc == RC_OK && i-- > 0;) {
        rc = run_segment(&run, &model->segments[i]);
    }
    return rc == RC_OK ? end_sums(&run) : rc;
}

enum rc model_sum_up(struct model *model)
{
    size_t all = model->schema.values[SECTION_GRADIENT];
    struct run run = {.model = model, .sums_up = true, .summed = all, .whole = all};
    enum rc rc = RC_OK;

    for (uint32_t s = model->stages_count; rc == RC_OK && s-- > 0;) {
        rc = sum_behind(&run, s);
    }
    return rc == RC_OK ? end_sums(&run) : rc;
}

float *model_output(const struct model *model)
{
    return value_at(model, model->values_count - 1, 0);
}

float *model_output_gradient(const struct model *model)
{
    return gradient_at(model, model->values_count - 1, 0);
}

enum rc model_forward(struct model *model, const float *input, uint32_t batch, bool is_training,
                      float *logits)
{
    struct run run = {.model = model, .input = input, .batch = batch, .is_training = is_training};
    enum rc rc = RC_OK;

    CHECK(batch > 0 && batch <= model->batch_max);
    CHECK(!is_training || model->with_gradients);
    CHECK(model->context == 0 || (!is_training && model->position + batch <= model->context));
    backend_bind_thread(model->backend);
    model->batch = 0;
    model->logits = NULL;
    if (model->device != NULL) {
        rc = model_device_feed(model, input, batch);
        run.input = model->device->input;
    }
    if (rc == RC_OK) rc = model_run_forward(model, run.input, batch, is_training);
    if (rc != RC_OK) model_attend(model, is_training, false); /* the others must not wait */
    if (rc == RC_OK && logits == NULL) keep(&run);
    if (rc == RC_OK && logits != NULL) rc = fetch(&run, logits);
    if (rc == RC_OK && model->context > 0) model->position += batch;
    if (rc != RC_OK || !is_training) return rc;
    model->batch = batch;
    model->input_values = run.input;
    return RC_OK;
}

enum rc model_backward(struct model *model, const float *logits_gradient)
{
    size_t count = (size_t)model->batch * model_rows(model) * model->heads * model->classes;
    float *gradient = model_output_gradient(model);
    enum rc rc = RC_OK;

    CHECK(model->batch > 0);
    backend_bind_thread(model->backend);
    model->closed = 0;
    if (gradient == NULL) return RC_OK; /* a model without parameters */
    if (logits_gradient == NULL) {
        CHECK(model->backend->is_host); /* it is there */
    } else if (model->device != NULL) {
        rc = model_device_give(model, logits_gradient, (size_t)model->batch * model_rows(model),
                               gradient);
    } else {
        rc = model->backend->ops->upload(model->backend, gradient, logits_gradient,
                                         count * sizeof(float));
    }
    if (rc == RC_OK) {
        rc = model_run_backward(model, model->input_values, model->batch, false, false);
    }
    if (rc != RC_OK) model_attend(model, true, true);
    model->batch = 0; /* activations are partly overwritten now */
    model->passes++;
    return rc;
}

const float *model_logits(const struct model *model)
{
    CHECK(model->logits != NULL);
    return model->logits;
}

float *model_logits_gradient(const struct model *model)
{
    CHECK(model->backend->is_host);
    return model_output_gradient(model);
}

/* The stage that is closed as number `i` of a pass. */
static uint32_t closing_order(const struct model *model, uint32_t i, bool is_backward)
{
    uint32_t segment = is_backward ? model->segments_count - 1 : 0;

    while (i >= model->segments[segment].count) {
        i -= model->segments[segment].count;
        segment = is_backward ? segment - 1 : segment + 1;
    }
    return model->segments[segment].first + i;
}

void model_attend(struct model *model, bool is_training, bool is_backward)
{
    if (!is_training || model->meeting == NULL) return; /* only training asks for the whole batch */
    for (; model->closed < model->stages_count; model->closed++) {
        struct stage *stage = &model->stages[closing_order(model, model->closed, is_backward)];
        if (stage->ops->attend != NULL) stage->ops->attend(model, stage, is_backward);
    }
}

/*
 * A model on a device whose memory is not the host's: how inputs get there and outputs come back,
 * and training passes that stay there: forward, loss and backward without an answer in between,
 * which from the third pass of a kind on are one recorded launch (the first may still choose
 * algorithms and take memory). Of the batches of a step the first overwrites the gradients, the
 * others add to them, and the last sums them up over several devices: recordings of their own. The
 * number of the pass, from which dropout draws, is kept on the device, as a recording repeats its
 * arguments. Thread: the training lane's.
 */
#include "replica/model/plan.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { PASSES_BEFORE_RECORDING = 2 };

static size_t rows_max(const struct model *model)
{
    return (size_t)model->batch_max * model_rows(model) * model->heads;
}

static bool is_converted(const struct model *model)
{
    return model->backend->value_bytes != sizeof(float) && model->input_kind != MODEL_INPUT_TOKENS;
}

/* Of models that learn: others have their parameters written once. */
static enum rc create_copies(struct model *model)
{
    size_t most = (size_t)model->stages_count * STAGE_COPIES_MAX;
    struct parameter_copy *copies;
    uint32_t count = 0;
    enum rc rc = RC_OK;

    if (!model->with_gradients) return RC_OK;
    copies = mem_array(most + 1, sizeof(*copies));
    if (copies == NULL) return RC_NOMEM;
    for (uint32_t s = 0; s < model->stages_count; s++) {
        struct stage *stage = &model->stages[s];
        uint32_t mine =
            stage->ops->copies == NULL ? 0 : stage->ops->copies(model, stage, copies + count);
        stage->has_copies = mine > 0;
        count += mine;
    }
    if (count > 0) {
        rc = model->backend->ops->copies_create(model->backend, copies, count,
                                                &model->device->copies);
    }
    mem_free(copies);
    return rc;
}

enum rc model_device_create(struct model *model)
{
    struct backend *backend = model->backend;
    struct model_device *d = mem_alloc(sizeof(*d));
    size_t inputs = model->batch_max * shape_values(model->input);
    size_t labels = (rows_max(model) + 1) * sizeof(uint32_t);

    if (d == NULL) return RC_NOMEM;
    for (uint32_t i = 0; i < model->segments_count; i++) {
        CHECK(model->segments[i].slice >= model->batch_max); /* offsets into slices are not made */
    }
    model->device = d;
    d->labels_host = mem_raw(labels);
    d->labels = backend->ops->alloc(backend, labels);
    d->passes = backend->ops->alloc(backend, sizeof(*d->passes));
    d->sums = backend->ops->alloc(backend, sizeof(*d->sums));
    if (is_converted(model)) d->floats = backend->ops->alloc(backend, inputs * sizeof(float));
    d->input = backend->ops->alloc(backend, inputs * sizeof(float));
    if (d->labels_host == NULL || d->labels == NULL || d->passes == NULL || d->sums == NULL ||
        d->input == NULL || (is_converted(model) && d->floats == NULL)) {
        return RC_NOMEM;
    }
    return create_copies(model);
}

static void forget_pass(struct model *model, struct recorded_pass *pass)
{
    if (pass->recording != NULL) {
        model->backend->ops->recording_destroy(model->backend, pass->recording);
    }
    *pass = (struct recorded_pass){NULL, 0};
}

static void forget_recordings(struct model *model)
{
    for (size_t i = 0; i < ARRAY_COUNT(model->device->recorded); i++) {
        forget_pass(model, &model->device->recorded[i]);
    }
}

void model_device_destroy(struct model *model)
{
    struct backend *backend = model->backend;
    struct model_device *d = model->device;

    if (d == NULL) return;
    forget_recordings(model);
    if (d->copies != NULL) backend->ops->copies_destroy(backend, d->copies);
    backend->ops->free(backend, d->labels);
    backend->ops->free(backend, d->passes);
    backend->ops->free(backend, d->sums);
    backend->ops->free(backend, d->floats);
    backend->ops->free(backend, d->input);
    backend->ops->free(backend, d->targets);
    for (int s = 0; s < SECTION_COUNT; s++) {
        mem_free(d->read[s]);
    }
    mem_free(d->outputs);
    mem_free(d->labels_host);
    mem_free(d);
    model->device = NULL;
}

const char *model_device_why(const struct model *model)
{
    struct backend *backend = model->backend;

    return backend->is_host ? "" : backend->ops->why(backend);
}

const uint64_t *model_device_passes(const struct model *model)
{
    return model->device == NULL ? NULL : model->device->passes;
}

/* To where the conversion reads, or where the first stages do. */
static enum rc upload_input(struct model *model, const float *input, uint32_t batch)
{
    struct model_device *d = model->device;
    size_t bytes = batch * shape_values(model->input) * sizeof(float);

    return model->backend->ops->upload(model->backend, is_converted(model) ? d->floats : d->input,
                                       input, bytes);
}

static enum rc convert_input(struct model *model, uint32_t batch)
{
    struct model_device *d = model->device;

    if (!is_converted(model)) return RC_OK;
    return model->backend->ops->to_activations(model->backend, d->floats, d->input,
                                               batch * shape_values(model->input));
}

/* A device makes NaN of a token that is none, without a word; the host has them at hand. */
static bool are_tokens(const struct model *model, const float *input, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_inside = input[i] >= 0.0F && (double)input[i] < (double)model->symbols;
        if (!is_inside || floorf(input[i]) != input[i]) return false; /* NaN is not inside */
    }
    return true;
}

enum rc model_device_feed(struct model *model, const float *input, uint32_t batch)
{
    const struct backend_ops *ops = model->backend->ops;
    bool is_text = model->input_kind == MODEL_INPUT_TOKENS;
    enum rc rc;

    if (is_text && !are_tokens(model, input, batch * shape_values(model->input))) {
        return RC_NONFINITE;
    }
    rc = ops->store(model->backend, model->device->passes, model->passes);
    if (rc == RC_OK) rc = upload_input(model, input, batch);
    return rc == RC_OK ? convert_input(model, batch) : rc;
}

/* Values of a row of outputs, and from one to the next. */
static size_t output_columns(const struct model *model)
{
    return (size_t)model->heads * model->classes;
}

static size_t output_stride(const struct model *model)
{
    const struct value *output = &model->values[model->values_count - 1];
    uint32_t stride = output->home == 0 ? 0 : model->stages[output->producer].out_stride;

    return stride > 0 ? stride : output_columns(model);
}

/* To nearest even; a NaN stays one. */
static uint16_t to_bf16(float value)
{
    uint32_t bits = float_bits(value);

    if (isnan(value)) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/* Outputs of bfloat16 cross the bus as such. */
static enum rc take_outputs(struct model *model)
{
    size_t rows = (size_t)model->batch_max * model_rows(model);

    CHECK(model->backend->value_bytes == sizeof(uint16_t));
    if (model->device->outputs == NULL) {
        model->device->outputs = mem_raw(rows * output_stride(model) * sizeof(uint16_t));
    }
    return model->device->outputs == NULL ? RC_NOMEM : RC_OK;
}

enum rc model_device_fetch(struct model *model, const void *outputs, size_t rows, float *logits)
{
    struct backend *backend = model->backend;
    size_t columns = output_columns(model), stride = output_stride(model);
    const uint16_t *from;
    enum rc rc;

    if (backend->value_bytes == sizeof(float)) {
        return backend->ops->download(backend, logits, outputs, rows * columns * sizeof(float));
    }
    rc = take_outputs(model);
    if (rc != RC_OK) return rc;
    from = model->device->outputs;
    rc = backend->ops->download(backend, model->device->outputs, outputs,
                                rows * stride * sizeof(*from));
    for (size_t r = 0; rc == RC_OK && r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            logits[r * columns + c] = float_of_bits((uint32_t)from[r * stride + c] << 16);
        }
    }
    return rc;
}

enum rc model_device_give(struct model *model, const float *gradient, size_t rows, void *to)
{
    struct backend *backend = model->backend;
    size_t columns = output_columns(model), stride = output_stride(model);
    uint16_t *here;
    enum rc rc;

    if (backend->value_bytes == sizeof(float)) {
        return backend->ops->upload(backend, to, gradient, rows * columns * sizeof(float));
    }
    rc = take_outputs(model);
    if (rc != RC_OK) return rc;
    here = model->device->outputs;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            here[r * stride + c] = to_bf16(gradient[r * columns + c]);
        }
        memset(here + r * stride + columns, 0, (stride - columns) * sizeof(*here));
    }
    return backend->ops->upload(backend, to, here, rows * stride * sizeof(*here));
}

enum rc model_device_read(struct model *model, enum section section, const float **values)
{
    float **copy = &model->device->read[section];
    size_t bytes = model->schema.values[section] * sizeof(float);

    *values = NULL;
    if (bytes == 0) return RC_OK;
    backend_bind_thread(model->backend);
    if (*copy == NULL) *copy = mem_raw(bytes);
    if (*copy == NULL) return RC_NOMEM;
    *values = *copy;
    return model->backend->ops->download(model->backend, *copy, model->planes[section], bytes);
}

void model_device_wait(const struct model *model)
{
    struct loss_sums sums;
    enum rc rc =
        model->backend->ops->download(model->backend, &sums, model->device->sums, sizeof(sums));

    (void)rc; /* an error stays with the backend and comes to light in the next call */
}

static enum rc upload_answers(struct model *model, const struct model_feed *feed)
{
    struct model_device *d = model->device;
    struct backend *backend = model->backend;
    size_t rows = (size_t)feed->batch * model_rows(model) * model->heads;
    size_t labels = feed->labels != NULL ? rows : 0;
    enum rc rc;

    d->labels_host[0] = feed->counted;
    if (labels > 0) memcpy(d->labels_host + 1, feed->labels, labels * sizeof(*feed->labels));
    rc = backend->ops->upload(backend, d->labels, d->labels_host, (1 + labels) * sizeof(uint32_t));
    if (rc != RC_OK || feed->labels != NULL) return rc;
    if (d->targets == NULL) {
        d->targets = backend->ops->alloc(backend, rows_max(model) * model->classes * sizeof(float));
        if (d->targets == NULL) return RC_NOMEM;
    }
    return backend->ops->upload(backend, d->targets, feed->targets,
                                rows * model->classes * sizeof(float));
}

static enum rc add_loss(struct model *model, uint32_t batch, bool with_targets, void *gradient)
{
    struct model_device *d = model->device;
    const struct backend_ops *ops = model->backend->ops;
    bool is_input = model->values[model->values_count - 1].home == 0;
    struct device_loss loss = {
        .rows = (uint32_t)((size_t)batch * model_rows(model) * model->heads),
        .outputs = model->classes,
        .stride = model->heads == 1 ? (uint32_t)output_stride(model) : 0,
        .logits = is_input ? d->input : model_output(model),
        .labels = with_targets ? NULL : d->labels + 1,
        .targets = with_targets ? d->targets : NULL,
        .counted = d->labels,
        .gradient = gradient,
        .sums = d->sums,
    };

    return with_targets ? ops->squared_error(model->backend, &loss)
                        : ops->cross_entropy(model->backend, &loss);
}

/* What is recorded: all that happens on the device. */
static enum rc run_pass(struct model *model, const struct model_feed *feed)
{
    struct model_device *d = model->device;
    void *gradient = model_output_gradient(model);
    enum rc rc = convert_input(model, feed->batch);

    if (rc == RC_OK) rc = model_run_forward(model, d->input, feed->batch, true);
    if (rc == RC_OK) rc = add_loss(model, feed->batch, feed->labels == NULL, gradient);
    if (rc != RC_OK || gradient == NULL) return rc;
    return model_run_backward(model, d->input, feed->batch, feed->adds, feed->sums_up);
}

/* Nothing of it has run when this returns with RC_OK. */
static enum rc record(struct model *model, const struct model_feed *feed,
                      struct recording **recording)
{
    const struct backend_ops *ops = model->backend->ops;
    enum rc rc = ops->record_begin(model->backend), rc_end;

    if (rc != RC_OK) return rc;
    rc = run_pass(model, feed);
    rc_end = ops->record_end(model->backend, rc == RC_OK ? recording : NULL);
    return rc == RC_OK ? rc_end : rc;
}

static enum rc run_or_replay(struct model *model, const struct model_feed *feed)
{
    struct model_device *d = model->device;
    struct recorded_pass *pass = &d->recorded[(feed->adds ? 1 : 0) + (feed->sums_up ? 2 : 0)];
    bool records = pass->recording == NULL && !d->is_unrecordable && model->profile == NULL &&
                   pass->equal_passes >= PASSES_BEFORE_RECORDING;
    enum rc rc = RC_OK;

    if (records) {
        rc = record(model, feed, &pass->recording);
        d->is_unrecordable = rc == RC_UNSUPPORTED || rc == RC_NOMEM; /* which recordings take */
        if (rc != RC_OK && !d->is_unrecordable) return rc;
    }
    if (pass->recording != NULL) {
        rc = model->backend->ops->replay(model->backend, pass->recording);
        if (rc != RC_STALE) return rc;
        forget_pass(model, pass);
    }
    rc = run_pass(model, feed);
    if (rc == RC_OK) pass->equal_passes++;
    return rc;
}

/* What a pass reads goes up. */
static enum rc upload_feed(struct model *model, const struct model_feed *feed)
{
    struct model_device *d = model->device;
    enum rc rc;

    CHECK(d != NULL && feed->counted > 0);
    CHECK(feed->batch > 0 && feed->batch <= model->batch_max);
    backend_bind_thread(model->backend);
    model->batch = 0;
    rc = model->backend->ops->store(model->backend, d->passes, model->passes);
    if (rc == RC_OK) rc = upload_input(model, feed->input, feed->batch);
    return rc == RC_OK ? upload_answers(model, feed) : rc;
}

enum rc model_judge_pass(struct model *model, const struct model_feed *feed)
{
    enum rc rc = upload_feed(model, feed);

    CHECK(model->heads == 1);
    if (rc == RC_OK) rc = convert_input(model, feed->batch);
    if (rc == RC_OK) rc = model_run_forward(model, model->device->input, feed->batch, false);
    return rc == RC_OK ? add_loss(model, feed->batch, feed->labels == NULL, NULL) : rc;
}

enum rc model_train_pass(struct model *model, const struct model_feed *feed)
{
    struct model_device *d = model->device;
    bool with_targets = feed->labels == NULL;
    enum rc rc = upload_feed(model, feed);

    CHECK(model->with_gradients);
    if (rc != RC_OK) return rc;
    if (feed->batch != d->recorded_batch || model->first != d->recorded_first ||
        with_targets != d->with_targets) {
        forget_recordings(model);
        d->recorded_batch = feed->batch;
        d->recorded_first = model->first;
        d->with_targets = with_targets;
    }
    model->prepared = 0;           /* a replay changes running statistics without a word */
    rc = model_fill_copies(model); /* is not recorded */
    if (rc == RC_OK) rc = run_or_replay(model, feed);
    if (rc == RC_OK) model->passes++;
    return rc;
}

enum rc model_take_sums(struct model *model, struct loss_sums *sums)
{
    struct backend *backend = model->backend;
    enum rc rc = backend->ops->download(backend, sums, model->device->sums, sizeof(*sums));

    return rc == RC_OK ? backend->ops->zero(backend, model->device->sums, sizeof(*sums)) : rc;
}

/*
 * The memory of a model. Stages are cut into segments that run slice by slice. A value, or its
 * gradient, exists for the whole batch if it crosses segments or the backward pass reads it, and
 * for one slice otherwise. Values that a stage may compute in place share a home, and so do
 * gradients along the identity of a residual block. What is alive at different times shares memory:
 * buffers are placed largest first at the lowest offset that is free during their life (greedy by
 * size, as in Pisarchyk, Lee 2020, arXiv:2001.03288). The loss leaves the gradient of the logits in
 * their place.
 */
#include "replica/model/plan.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static uint32_t time_back(const struct model *model, uint32_t stage)
{
    return 2 * model->stages_count - 1 - stage;
}

static bool is_kept(const struct model *model, const struct value *value, uint32_t number)
{
    if (!model->with_gradients) return false;
    if (value->producer != NO_STAGE && model->stages[value->producer].keeps_output) return true;
    for (uint32_t s = 0; s < model->stages_count; s++) {
        const struct stage *stage = &model->stages[s];
        for (uint32_t i = 0; stage->keeps_input && i < stage->inputs_count; i++) {
            if (stage->inputs[i] == number) return true;
        }
    }
    return false;
}

static void cut_segments(struct model *model)
{
    struct segment *segment = NULL;

    for (uint32_t s = 0; s < model->stages_count; s++) {
        struct stage *stage = &model->stages[s];
        if (segment == NULL || segment->slice != stage->slice ||
            model->stages[s - 1].ends_segment) {
            segment = &model->segments[model->segments_count++];
            *segment = (struct segment){.first = s, .slice = stage->slice};
        }
        segment->count++;
        stage->segment = model->segments_count - 1;
    }
}

/* Whether nobody will miss what is in the memory of value `v` once its only reader has run. */
static bool is_free_to_overwrite(const struct model *model, const bool *kept, uint32_t v)
{
    for (uint32_t other = 0; other < model->values_count; other++) {
        const struct value *value = &model->values[other];
        if (value->home != model->values[v].home) continue;
        if (other == 0 || kept[other] || value->consumers > 1) return false;
    }
    return true;
}

/* Of what a sum `s` adds up, each has its gradient: `term`, which a branch ends in, and `v`, which
 * the branch begins with. They may have it in one memory if whoever made the term leaves it as it
 * is, and if who made or reads `v` came before: then it is added to after it was read. */
static bool is_free_to_add(const struct model *model, uint32_t s, uint32_t term, uint32_t v)
{
    const struct value *value = &model->values[v];
    uint32_t maker = model->values[term].producer;

    if (value->last_consumer != s || !value->has_gradient) return false;
    if (!model->stages[maker].leaves_dy || value->producer > maker) return false;
    for (uint32_t other = maker; other < s; other++) {
        const struct stage *stage = &model->stages[other];
        for (uint32_t i = 0; i < stage->inputs_count; i++) {
            if (stage->inputs[i] == v) return false;
        }
    }
    return true;
}

/* The inputs whose gradients are where that of the output is: one that nobody else reads, and after
 * that one those that may be there, too. */
static void share_gradient(struct model *model, uint32_t s)
{
    const struct stage *stage = &model->stages[s];
    uint32_t home = model->values[stage->output].gradient_home, term = UINT32_MAX;

    for (uint32_t i = 0; i < stage->inputs_count; i++) {
        struct value *x = &model->values[stage->inputs[i]];
        bool is_alone = x->consumers == 1 && x->has_gradient;
        if (term == UINT32_MAX && is_alone) {
            term = stage->inputs[i];
        } else if (term == UINT32_MAX || !is_free_to_add(model, s, term, stage->inputs[i])) {
            continue;
        }
        x->gradient_home = home;
    }
}

static void find_homes(struct model *model, const bool *kept)
{
    for (uint32_t v = 0; v < model->values_count; v++) {
        model->values[v].home = v;
        model->values[v].gradient_home = v;
    }
    for (uint32_t s = 0; s < model->stages_count; s++) {
        const struct stage *stage = &model->stages[s];
        uint32_t x = stage->inputs[0];
        bool is_same_size = shape_values(model->values[x].shape) == shape_values(stage->out);
        bool in_place = stage->is_in_place && is_same_size && !model->is_unshared &&
                        is_free_to_overwrite(model, kept, x);
        if (stage->is_identity || in_place) {
            model->values[stage->output].home = model->values[x].home;
        }
    }
    for (uint32_t s = model->stages_count; s-- > 0;) {
        const struct stage *stage = &model->stages[s];
        bool in_place = stage->is_in_place_back &&
                        (!model->is_unshared || stage->ops == &stage_batch_apply_ops);
        if (in_place) share_gradient(model, s);
    }
}

/* When the memory of a value, or of its gradient, is in use. */
static void span_value(const struct model *model, uint32_t v, bool is_kept_value,
                       struct buffer *data, struct buffer *gradient)
{
    const struct value *value = &model->values[v];
    uint32_t n = model->stages_count;
    uint32_t made = value->producer, read = value->consumers > 0 ? value->last_consumer : n - 1;

    data->from = made;
    data->to = value->consumers > 0 ? read : n; /* the last one waits for the loss */
    if (value->consumers > 0 && model->stages[read].is_left) data->to++;
    gradient->from = value->consumers > 0 ? time_back(model, read) : n;
    gradient->to = time_back(model, made);
    if (!is_kept_value) return;
    if (model->stages[made].keeps_output) data->to = time_back(model, made);
    for (uint32_t s = made; s <= read; s++) {
        const struct stage *stage = &model->stages[s];
        for (uint32_t i = 0; stage->keeps_input && i < stage->inputs_count; i++) {
            if (stage->inputs[i] == v && time_back(model, s) > data->to) {
                data->to = time_back(model, s);
            }
        }
    }
}

/* Whole buffers live as long as the segments in which they are used. */
static void widen(const struct model *model, struct buffer *buffer)
{
    uint32_t n = model->stages_count;
    uint32_t ends[2] = {buffer->from, buffer->to};

    for (int e = 0; e < 2; e++) {
        bool is_back = ends[e] >= n;
        uint32_t s = is_back ? 2 * n - 1 - ends[e] : ends[e];
        const struct segment *segment = &model->segments[model->stages[s].segment];
        uint32_t last = segment->first + segment->count - 1;
        if (e == 0) {
            ends[e] = is_back ? time_back(model, last) : segment->first;
        } else {
            ends[e] = is_back ? time_back(model, segment->first) : last;
        }
    }
    buffer->from = ends[0];
    buffer->to = ends[1];
}

static void merge(struct buffer *buffer, const struct buffer *more)
{
    if (buffer->bytes == 0) {
        *buffer = *more;
        return;
    }
    if (more->from < buffer->from) buffer->from = more->from;
    if (more->to > buffer->to) buffer->to = more->to;
    if (more->bytes > buffer->bytes) buffer->bytes = more->bytes;
    buffer->is_whole |= more->is_whole;
}

/* Whether value `v` is read in another segment than the one that makes it. */
static bool crosses(const struct model *model, uint32_t v)
{
    const struct value *value = &model->values[v];

    if (value->consumers == 0) return true; /* the output */
    for (uint32_t s = 0; s < model->stages_count; s++) {
        const struct stage *stage = &model->stages[s];
        for (uint32_t i = 0; i < stage->inputs_count; i++) {
            if (stage->inputs[i] == v && stage->segment != model->stages[value->producer].segment) {
                return true;
            }
        }
    }
    return false;
}

/* Of one sample. */
static size_t value_bytes(const struct model *model, uint32_t v)
{
    const struct value *value = &model->values[v];
    uint32_t stride = model->stages[value->producer].out_stride;
    size_t values = stride > 0 ? stride * shape_rows(value->shape) : shape_values(value->shape);

    return values * model->backend->value_bytes;
}

/* Unless a stage keeps it, nobody reads the output again once its gradient is there: one buffer for
 * both, which is the value's. */
static void join_output(struct model *model, struct buffer *buffers)
{
    const struct value *output = &model->values[model->values_count - 1];
    struct buffer *data = &buffers[output->home];
    struct buffer *gradient = &buffers[model->values_count + output->gradient_home];

    if (model->is_unshared || output->home == 0) return;
    if (model->stages[output->producer].keeps_output || data->to > gradient->from) return;
    if (gradient->bytes == 0) return;
    merge(data, gradient);
    *gradient = (struct buffer){.bytes = 0};
}

/* All buffers of the model, by home; `bytes` is of one sample yet. Returns how many. */
static uint32_t list_buffers(struct model *model, const bool *kept, struct buffer *buffers)
{
    uint32_t n = model->values_count, count = 2 * n;

    for (uint32_t v = 1; v < n; v++) {
        const struct value *value = &model->values[v];
        size_t bytes = value_bytes(model, v);
        struct buffer data = {.kind = BUFFER_VALUE, .owner = value->home, .bytes = bytes};
        struct buffer gradient = {
            .kind = BUFFER_GRADIENT, .owner = value->gradient_home, .bytes = bytes};
        span_value(model, v, kept[v], &data, &gradient);
        gradient.is_whole = model->is_unshared || crosses(model, v);
        data.is_whole = kept[v] || gradient.is_whole;
        if (value->home != 0) merge(&buffers[value->home], &data);
        if (value->has_gradient) merge(&buffers[n + value->gradient_home], &gradient);
    }
    join_output(model, buffers);
    for (uint32_t s = 0; s < model->stages_count && model->with_gradients; s++) {
        if (model->stages[s].saved_bytes == 0) continue;
        buffers[count++] = (struct buffer){.kind = BUFFER_SAVED,
                                           .owner = s,
                                           .is_whole = true,
                                           .from = s,
                                           .to = time_back(model, s),
                                           .bytes = model->stages[s].saved_bytes};
    }
    return count;
}

static int by_size(const void *a, const void *b)
{
    const struct buffer *x = *(const struct buffer *const *)a;
    const struct buffer *y = *(const struct buffer *const *)b;

    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->owner < y->owner ? -1 : x->owner > y->owner;
}

/* The lowest offset that is free while `buffer` lives; `placed` is in order of offsets. */
static size_t find_room(struct buffer *const *placed, uint32_t count, const struct buffer *buffer,
                        bool is_unshared)
{
    size_t offset = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct buffer *other = placed[i];
        bool is_apart = other->to < buffer->from || other->from > buffer->to;
        if (is_apart && !is_unshared) continue;
        if (other->offset >= offset + buffer->bytes) break;
        if (other->offset + other->bytes > offset) offset = other->offset + other->bytes;
    }
    return offset;
}

/* Give the buffers of one arena their offsets; returns its size. */
static size_t place(const struct model *model, bool is_whole, struct buffer **order,
                    struct buffer **placed)
{
    struct buffer *buffers = model->buffers;
    uint32_t chosen = 0, count = model->buffers_count;
    size_t size = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].bytes > 0 && buffers[i].is_whole == is_whole) order[chosen++] = &buffers[i];
    }
    qsort(order, chosen, sizeof(void *), by_size);
    for (uint32_t i = 0; i < chosen; i++) {
        uint32_t at = i;
        order[i]->offset = find_room(placed, i, order[i], model->is_unshared);
        while (at > 0 && placed[at - 1]->offset > order[i]->offset) {
            placed[at] = placed[at - 1];
            at--;
        }
        placed[at] = order[i];
        if (order[i]->offset + order[i]->bytes > size) size = order[i]->offset + order[i]->bytes;
    }
    return size;
}

/* Samples that whole buffers have room for: full slices of every segment. */
static size_t padded_batch(const struct model *model)
{
    size_t most = model->batch_max;

    for (uint32_t i = 0; i < model->segments_count; i++) {
        size_t slice = model->segments[i].slice;
        size_t padded = (model->batch_max + slice - 1) / slice * slice;
        if (padded > most) most = padded;
    }
    return most;
}

static uint32_t slice_max(const struct model *model)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < model->segments_count; i++) {
        if (model->segments[i].slice > most) most = model->segments[i].slice;
    }
    return most;
}

/* The slice of the segment in which a buffer that never leaves it lives. */
static uint32_t slice_of(const struct model *model, const struct buffer *buffer)
{
    uint32_t n = model->stages_count;
    uint32_t s = buffer->from >= n ? 2 * n - 1 - buffer->from : buffer->from;

    return model->segments[model->stages[s].segment].slice;
}

static void scale_buffers(struct model *model)
{
    size_t whole = padded_batch(model);

    for (uint32_t i = 0; i < model->buffers_count; i++) {
        struct buffer *buffer = &model->buffers[i];
        if (buffer->bytes == 0) continue;
        buffer->bytes *= buffer->is_whole ? whole : slice_of(model, buffer);
        buffer->bytes = (buffer->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (buffer->is_whole) widen(model, buffer);
    }
}

static void assign(struct model *model)
{
    const struct value *output = &model->values[model->values_count - 1];
    struct value *gradient = &model->values[output->gradient_home];

    for (uint32_t i = 0; i < model->buffers_count; i++) {
        const struct buffer *buffer = &model->buffers[i];
        char *arena = buffer->is_whole ? model->whole_arena : model->slice_arena;
        void *memory;

        if (buffer->bytes == 0) continue;
        memory = arena + buffer->offset;
        if (buffer->kind == BUFFER_SAVED) {
            model->saved[buffer->owner] = memory;
        } else if (buffer->kind == BUFFER_VALUE) {
            model->values[buffer->owner].data = memory;
            model->values[buffer->owner].is_whole = buffer->is_whole;
        } else {
            model->values[buffer->owner].gradient = memory;
            model->values[buffer->owner].is_gradient_whole = buffer->is_whole;
        }
    }
    if (!output->has_gradient || gradient->gradient != NULL) return;
    gradient->gradient = model->values[output->home].data; /* join_output() */
    gradient->is_gradient_whole = true;
}

static void *take(struct model *model, size_t bytes)
{
    return model->backend->ops->alloc(model->backend, bytes == 0 ? ALIGNMENT : bytes);
}

/* Largest input among stages that cannot add: room for a gradient that has to be added. */
static size_t scratch_values(const struct model *model)
{
    size_t most = 0;

    for (uint32_t s = 0; s < model->stages_count; s++) {
        const struct stage *stage = &model->stages[s];
        size_t values = shape_values(stage->in) * stage->slice;
        if (stage->uses_scratch && stage->has_input_gradient && model_adds(model, s, 0) &&
            values > most) {
            most = values;
        }
    }
    return most;
}

/* Parameters and buffers: of its own, or the leader's. */
static enum rc take_shared_planes(struct model *model)
{
    const size_t *values = model->schema.values;
    float **planes = model->planes;

    if (model->leader != NULL) {
        planes[SECTION_PARAMETERS] = model->leader->planes[SECTION_PARAMETERS];
        planes[SECTION_BUFFERS] = model->leader->planes[SECTION_BUFFERS];
        return RC_OK;
    }
    planes[SECTION_PARAMETERS] = take(model, values[SECTION_PARAMETERS] * sizeof(float));
    if (planes[SECTION_PARAMETERS] == NULL) return RC_NOMEM;
    if (values[SECTION_BUFFERS] == 0) return RC_OK;
    planes[SECTION_BUFFERS] = take(model, values[SECTION_BUFFERS] * sizeof(float));
    return planes[SECTION_BUFFERS] == NULL ? RC_NOMEM : RC_OK;
}

static enum rc take_planes(struct model *model)
{
    const size_t *values = model->schema.values;
    size_t scratch = scratch_values(model);
    bool has_padded = false;

    for (uint32_t s = 0; s < model->stages_count; s++) {
        has_padded |= model->stages[s].is_padded && model->stages[s].inputs[0] == 0 &&
                      model->backend->is_host;
    }
    if (take_shared_planes(model) != RC_OK) return RC_NOMEM;
    if (has_padded) {
        model->tail = take(model, shape_values(model->input) * slice_max(model) * sizeof(float));
        if (model->tail == NULL) return RC_NOMEM;
    }
    if (scratch > 0 &&
        (model->scratch = take(model, scratch * model->backend->value_bytes)) == NULL) {
        return RC_NOMEM;
    }
    if (model->heads > 1 && !model->backend->is_host) {
        model->merged = mem_raw((size_t)model->batch_max * model_rows(model) * model->heads *
                                model->classes * sizeof(float));
        if (model->merged == NULL) return RC_NOMEM;
    }
    if (!model->with_gradients) return RC_OK;
    model->planes[SECTION_GRADIENT] = take(model, values[SECTION_GRADIENT] * sizeof(float));
    return model->planes[SECTION_GRADIENT] == NULL ? RC_NOMEM : RC_OK;
}

static void plan_buffers(struct model *model, bool *kept, struct buffer **lists,
                         uint32_t buffers_max)
{
    for (uint32_t v = 0; v < model->values_count; v++) {
        kept[v] = is_kept(model, &model->values[v], v);
    }
    find_homes(model, kept);
    model->buffers_count = list_buffers(model, kept, model->buffers);
    CHECK(model->buffers_count <= buffers_max);
    scale_buffers(model);
    for (uint32_t i = 0; i < model->buffers_count; i++) {
        model->unshared_bytes += model->buffers[i].bytes;
    }
    model->whole_bytes = place(model, true, lists, lists + buffers_max);
    model->slice_bytes = place(model, false, lists, lists + buffers_max);
}

static enum rc take_arenas(struct model *model)
{
    model->whole_arena = take(model, model->whole_bytes);
    model->slice_arena = take(model, model->slice_bytes);
    if (model->whole_arena == NULL || model->slice_arena == NULL) return RC_NOMEM;
    assign(model);
    return RC_OK;
}

bool model_adds(const struct model *model, uint32_t s, uint32_t i)
{
    const struct stage *stage = &model->stages[s];
    uint32_t x = stage->inputs[i];

    if (model->values[x].last_consumer != s) return true;
    for (uint32_t earlier = 0; earlier < i; earlier++) {
        if (stage->inputs[earlier] == x) return true;
    }
    return false;
}

/* What the model takes must be there now: the kernel hands out more than it has, and would end some
 * process later. Devices of their own hand out what they have. */
static enum rc check_room(const struct model *model, struct fault *why)
{
    const size_t *values = model->schema.values;
    uint64_t parameters = (uint64_t)values[SECTION_PARAMETERS] * sizeof(float);
    uint64_t activations = (uint64_t)model->whole_bytes + model->slice_bytes;
    uint64_t there = mem_available();
    const double mega = 1048576.0;

    if (!model->backend->is_host) return RC_OK;
    if (model->leader != NULL) parameters = 0;
    if (model->with_gradients) parameters += (uint64_t)values[SECTION_GRADIENT] * sizeof(float);
    if (parameters + activations <= there) return RC_OK;
    return fault_set(why, RC_NOMEM,
                     "cannot set up the model: it takes %.0f MB for parameters and %.0f MB for "
                     "batches of %u, and %.0f MB are free; try a smaller --batch or --model",
                     (double)parameters / mega, (double)activations / mega, model->batch_max,
                     (double)there / mega);
}

enum rc model_place(struct model *model, struct fault *why)
{
    uint32_t buffers_max = 2 * model->values_count + model->stages_count;
    bool *kept = mem_alloc(model->values_count * sizeof(*kept));
    struct buffer **lists = mem_alloc(2 * (size_t)buffers_max * sizeof(void *));
    bool is_planned;
    enum rc rc;

    model->buffers = mem_alloc(buffers_max * sizeof(*model->buffers));
    cut_segments(model);
    is_planned = kept != NULL && model->buffers != NULL && lists != NULL;
    if (is_planned) plan_buffers(model, kept, lists, buffers_max);
    mem_free(kept);
    mem_free(lists);
    if (is_planned) {
        rc = check_room(model, why);
        if (rc != RC_OK) return rc;
    }
    rc = is_planned ? take_arenas(model) : RC_NOMEM;
    if (rc == RC_OK) rc = take_planes(model);
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, rc, "cannot set up the model: %s; try a smaller --batch or --model",
                     model_device_why(model)[0] != '\0' ? model_device_why(model) : rc_text(rc));
}

void model_release(struct model *model)
{
    struct backend *backend = model->backend;

    model_device_destroy(model);
    for (uint32_t s = 0; s < model->stages_count; s++) {
        struct stage *stage = &model->stages[s];
        if (stage->ops->destroy != NULL) stage->ops->destroy(model, stage);
    }
    backend->ops->free(backend, model->whole_arena);
    backend->ops->free(backend, model->slice_arena);
    backend->ops->free(backend, model->tail);
    backend->ops->free(backend, model->scratch);
    if (model->leader != NULL) {
        model->planes[SECTION_PARAMETERS] = NULL;
        model->planes[SECTION_BUFFERS] = NULL;
    }
    for (int i = 0; i < SECTION_COUNT; i++) {
        backend->ops->free(backend, model->planes[i]);
    }
    mem_free(model->merged);
    mem_free(model->mean);
    mem_free(model->scale);
    mem_free(model->buffers);
    mem_free(model->saved);
    mem_free(model->stages);
    mem_free(model->values);
    mem_free(model->segments);
    mem_free(model->inits);
    schema_deinit(&model->schema);
}

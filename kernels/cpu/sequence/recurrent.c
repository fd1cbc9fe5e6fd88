/*
 * Recurrent layers. The samples are split among the threads once a pass, because they meet only in
 * the gradients of the weights: each thread takes its own through all the steps without waiting.
 * Its states lie in rows of their own (samples of one step side by side, strides that do not fall
 * on one cache set), and one packed product per step serves all of them. Products that span all
 * steps (with the inputs, for the gradients) are one product each, by the libraries. With bfloat16
 * operands a step's product is the library's, too, and all samples stay on one thread between them.
 *
 * Saved for the way back, sample-major: the gates [samples][steps][gates hidden] and, behind them,
 * [samples][steps][hidden] of what else is needed: lstm's cells, gru's candidate parts of the
 * hidden product. rnn needs only its output. Back-propagation through time (Werbos 1990, Proc. IEEE
 * 78(10)), truncated at fixed steps. Job thread.
 */
#include "kernels/cpu/sequence/recurrent.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/split.h"

#include <limits.h>
#include <string.h>

enum { VALUES_MAX = 1 << 20, ROW_PADDING = 16, SAMPLES_GRAIN = 4 };

/* The states of all samples between two steps: rows of several parts, `stride` apart. */
struct states {
    float *wide;   /* forward: hidden product; backward: gradients of the gates */
    float *narrow; /* h; backward: gradient that comes through the product */
    float *third;  /* c; backward: gradient that comes past the product */
    size_t wide_stride, narrow_stride;
};

struct recurrent_cpu {
    struct recurrent base;
    struct cpu_backend *cpu;
    struct recurrent_options options;
    struct recurrent_weights weights;
    size_t gates;         /* values of a gate row, hidden times their count */
    size_t dgates;        /* and of a row of gradients: gru keeps two of the candidate */
    size_t dgates_stride; /* of all the rows of a batch */
    struct panels hidden, hidden_back; /* hidden weights for the way forward and back */
    struct recurrent_bf16 *bf16;       /* NULL: products are float32, by panels and libraries */
    struct states states;
    float *blocks;    /* these rows and the vectors below */
    float *work;      /* NULL: the backend's scratch memory, which bf16's products use */
    float *bias;      /* [gates] both; gru: the candidate's of the input only */
    float *candidate; /* [hidden]; gru: the candidate's of the hidden product */
    float *zeros;     /* [hidden]: the state before the first step */
    float *sums;      /* [dgates_stride] */
};

/* One pass over the samples, as the threads share it. */
struct pass {
    struct recurrent_cpu *layer;
    void (*run)(struct pass *pass, size_t from, size_t to);
    enum rc rc; /* of bf16's products; the others cannot fail */
    size_t samples;
    const float *x;
    float *y;
    float *gates, *extra; /* forward: extra NULL where it is not saved */
    const struct recurrent_backward *back;
    const float *saved_gates, *saved_extra;
    float *dgates; /* [samples][steps][dgates_stride] */
};

static struct recurrent_cpu *cpu_recurrent_of(struct recurrent *recurrent)
{
    return (struct recurrent_cpu *)recurrent;
}

static void recurrent_destroy(struct recurrent *recurrent)
{
    struct recurrent_cpu *l = cpu_recurrent_of(recurrent);

    panels_deinit(&l->hidden);
    panels_deinit(&l->hidden_back);
    recurrent_bf16_destroy(l->bf16);
    mem_free(l->blocks);
    mem_free(l->work);
    mem_free(l);
}

static enum rc recurrent_prepare(struct recurrent *recurrent,
                                 const struct recurrent_weights *weights)
{
    struct recurrent_cpu *l = cpu_recurrent_of(recurrent);
    const struct recurrent_options *o = &l->options;
    bool is_gru = o->kind == RECURRENT_GRU;
    size_t shared = is_gru ? l->gates - o->hidden : l->gates;
    struct panels_source hidden = {.b = weights->hidden, .stride = o->hidden};

    l->weights = *weights;
    memcpy(l->bias, weights->bias_input, l->gates * sizeof(float));
    for (size_t i = 0; i < shared; i++) {
        l->bias[i] += weights->bias_hidden[i];
    }
    if (is_gru) memcpy(l->candidate, weights->bias_hidden + shared, o->hidden * sizeof(float));
    if (l->bf16 != NULL) return recurrent_bf16_prepare(l->bf16, weights);
    if (o->with_gradients) {
        /* In the order in which the cells leave gradients: the candidate's first. */
        hidden.rotation = is_gru ? shared : 0;
        panels_pack_all(&l->hidden_back, &hidden);
    }
    hidden.is_transposed = true;
    panels_pack_all(&l->hidden, &hidden);
    return RC_OK;
}

static void run_grains(void *data, size_t part, size_t from, size_t to)
{
    struct pass *pass = data;
    size_t end = to * SAMPLES_GRAIN;

    (void)part;
    pass->run(pass, from * SAMPLES_GRAIN, end < pass->samples ? end : pass->samples);
}

/* All samples; bf16's products split themselves. */
static void run_samples(struct pass *pass)
{
    size_t grains = (pass->samples + SAMPLES_GRAIN - 1) / SAMPLES_GRAIN;

    if (pass->layer->bf16 != NULL) {
        pass->run(pass, 0, pass->samples);
    } else {
        cpu_split(&pass->layer->cpu->base, grains, 1, run_grains, pass);
    }
}

/* A row's values and then some: rows 4 KiB apart would all fall on one set of the cache. */
static size_t stride_of(size_t values)
{
    return (values + ROW_PADDING - 1) / ROW_PADDING * ROW_PADDING + ROW_PADDING;
}

static void clear_rows(float *rows, size_t stride, size_t from, size_t to)
{
    memset(rows + from * stride, 0, (to - from) * stride * sizeof(float));
}

/* Rows of the states to products that the next step forward needs. */
static void multiply_forward(struct pass *pass, size_t from, size_t to)
{
    struct recurrent_cpu *l = pass->layer;
    const struct states *states = &l->states;
    struct panels_product product = {
        .rows = to - from,
        .a = states->narrow + from * states->narrow_stride,
        .a_stride = states->narrow_stride,
        .c = states->wide + from * states->wide_stride,
        .c_stride = states->wide_stride,
    };

    if (l->bf16 == NULL) {
        panels_multiply_all(&l->hidden, &product);
    } else if (pass->rc == RC_OK) {
        pass->rc = recurrent_bf16_step(l->bf16, product.rows, product.a, product.c);
    }
}

/* And the gradients of gates to those of states. */
static void multiply_backward(struct pass *pass, size_t from, size_t to)
{
    struct recurrent_cpu *l = pass->layer;
    const struct states *states = &l->states;
    struct panels_product product = {
        .rows = to - from,
        .a = states->wide + from * states->wide_stride,
        .a_stride = states->wide_stride,
        .c = states->narrow + from * states->narrow_stride,
        .c_stride = states->narrow_stride,
    };

    if (l->bf16 == NULL) {
        panels_multiply_all(&l->hidden_back, &product);
    } else if (pass->rc == RC_OK) {
        pass->rc = recurrent_bf16_step_back(l->bf16, product.rows, product.a, product.c);
    }
}

static void step_forward(const struct pass *pass, size_t step, size_t sample)
{
    struct recurrent_cpu *l = pass->layer;
    const struct states *states = &l->states;
    size_t hidden = l->options.hidden, row = sample * l->options.steps + step;
    struct cell_forward cell = {
        .hidden = hidden,
        .gates = pass->gates + row * l->gates,
        .product = states->wide + sample * states->wide_stride,
        .bias = l->bias,
        .candidate = l->candidate,
        .h = states->narrow + sample * states->narrow_stride,
        .c = states->third + sample * states->narrow_stride,
    };
    const float *extra = cell.c;

    switch (l->options.kind) {
    case RECURRENT_RNN:
        cell_rnn_forward(&cell);
        return; /* the gate is the output */
    case RECURRENT_GRU:
        cell_gru_forward(&cell);
        extra = cell.product + 2 * hidden;
        break;
    case RECURRENT_LSTM:
        cell_lstm_forward(&cell);
        break;
    }
    memcpy(pass->y + row * hidden, cell.h, hidden * sizeof(float));
    if (pass->extra != NULL) {
        memcpy(pass->extra + row * hidden, extra, hidden * sizeof(float));
    }
}

static void samples_forward(struct pass *pass, size_t from, size_t to)
{
    struct recurrent_cpu *l = pass->layer;
    const struct states *states = &l->states;

    clear_rows(states->wide, states->wide_stride, from, to);
    clear_rows(states->narrow, states->narrow_stride, from, to);
    clear_rows(states->third, states->narrow_stride, from, to);
    for (size_t step = 0; step < l->options.steps; step++) {
        if (step > 0) multiply_forward(pass, from, to);
        for (size_t sample = from; sample < to; sample++) {
            step_forward(pass, step, sample);
        }
    }
}

/* The products of all steps' inputs. */
static enum rc inputs_forward(struct recurrent_cpu *l, size_t rows, const float *x, float *gates)
{
    struct gemm product = {
        .is_b_transposed = true,
        .rows = rows,
        .columns = l->gates,
        .inner = l->options.in,
        .alpha = 1.0F,
        .a = x,
        .a_stride = l->options.in,
        .b = l->weights.input,
        .b_stride = l->options.in,
        .c = gates,
        .c_stride = l->gates,
    };

    if (l->bf16 != NULL) return recurrent_bf16_inputs(l->bf16, rows, x, gates);
    return cpu_gemm(&l->cpu->base, &product);
}

static float *work_of(const struct recurrent_cpu *l)
{
    return l->work != NULL ? l->work : l->cpu->scratch;
}

static enum rc recurrent_forward(struct recurrent *recurrent, uint32_t samples, const void *x,
                                 void *y, float *saved)
{
    struct recurrent_cpu *l = cpu_recurrent_of(recurrent);
    size_t rows = (size_t)samples * l->options.steps;
    bool is_saved = saved != NULL && l->base.saved_values > 0;
    struct pass pass = {
        .layer = l,
        .run = samples_forward,
        .samples = samples,
        .x = x,
        .y = y,
        .gates = is_saved ? saved : work_of(l),
        .extra = is_saved ? saved + rows * l->gates : NULL,
    };

    CHECK(samples <= l->options.samples_max && l->weights.input != NULL);
    if (l->options.kind == RECURRENT_RNN) pass.gates = y;
    pass.rc = inputs_forward(l, rows, x, pass.gates);
    if (pass.rc == RC_OK) run_samples(&pass);
    return pass.rc;
}

static void step_backward(const struct pass *pass, size_t step, size_t sample)
{
    struct recurrent_cpu *l = pass->layer;
    const struct states *states = &l->states;
    size_t hidden = l->options.hidden, row = sample * l->options.steps + step;
    struct cell_backward cell = {
        .hidden = hidden,
        .dy = (const float *)pass->back->dy + row * hidden,
        .carry = states->narrow + sample * states->narrow_stride,
        .direct = states->third + sample * states->narrow_stride,
        .dgates = states->wide + sample * states->wide_stride,
        .before = l->zeros,
    };

    if (l->options.kind != RECURRENT_RNN) cell.gates = pass->saved_gates + row * l->gates;
    switch (l->options.kind) {
    case RECURRENT_RNN:
        cell.after = (const float *)pass->back->y + row * hidden;
        cell_rnn_backward(&cell);
        break;
    case RECURRENT_GRU:
        cell.candidate = pass->saved_extra + row * hidden;
        if (step > 0) cell.before = (const float *)pass->back->y + (row - 1) * hidden;
        cell_gru_backward(&cell);
        break;
    case RECURRENT_LSTM:
        cell.after = pass->saved_extra + row * hidden;
        if (step > 0) cell.before = cell.after - hidden;
        cell_lstm_backward(&cell);
        break;
    }
    memcpy(pass->dgates + row * l->dgates_stride, cell.dgates, l->dgates * sizeof(float));
}

static void samples_backward(struct pass *pass, size_t from, size_t to)
{
    struct recurrent_cpu *l = pass->layer;
    const struct recurrent_options *o = &l->options;
    const struct states *states = &l->states;

    clear_rows(states->narrow, states->narrow_stride, from, to);
    clear_rows(states->third, states->narrow_stride, from, to);
    for (size_t step = o->steps; step-- > 0;) {
        for (size_t sample = from; sample < to; sample++) {
            step_backward(pass, step, sample);
        }
        if (o->truncate != 0 && step % o->truncate == 0) {
            clear_rows(states->narrow, states->narrow_stride, from, to);
            clear_rows(states->third, states->narrow_stride, from, to);
        } else if (step > 0) {
            multiply_backward(pass, from, to);
        }
    }
}

/* dW[columns of the gradients from `first`] = or += (those columns)^T inputs. */
static enum rc weight_gradient(struct recurrent_cpu *l, const struct pass *pass, size_t first,
                               const struct gemm *form)
{
    struct gemm product = *form;

    product.is_a_transposed = true;
    product.inner = pass->samples * l->options.steps;
    product.alpha = 1.0F;
    product.beta = pass->back->is_first ? 0.0F : 1.0F;
    product.a = pass->dgates + first;
    product.a_stride = l->dgates_stride;
    product.b_stride = product.c_stride = product.columns;
    return cpu_gemm(&l->cpu->base, &product);
}

static void bias_gradient(float *dbias, const float *sums, size_t n, bool is_first)
{
    for (size_t i = 0; i < n; i++) {
        dbias[i] = is_first ? sums[i] : dbias[i] + sums[i];
    }
}

/* Hidden states as the steps found them: the outputs, one step later. */
static void shift_outputs(const struct recurrent_cpu *l, size_t samples, const float *y, float *to)
{
    size_t hidden = l->options.hidden, values = l->options.steps * hidden;

    for (size_t s = 0; s < samples; s++, y += values, to += values) {
        memset(to, 0, hidden * sizeof(float));
        memcpy(to + hidden, y, (values - hidden) * sizeof(float));
    }
}

static void biases_backward(struct recurrent_cpu *l, const struct pass *pass)
{
    const struct recurrent_backward *back = pass->back;
    size_t shift = l->dgates - l->gates, shared = l->gates - shift;

    memset(l->sums, 0, l->dgates_stride * sizeof(float));
    cpu_add_rows(pass->dgates, pass->samples * l->options.steps, l->dgates_stride, l->sums);
    bias_gradient(back->dbias_input, l->sums + shift, l->gates, back->is_first);
    bias_gradient(back->dbias_hidden, l->sums + shift, shared, back->is_first);
    bias_gradient(back->dbias_hidden + shared, l->sums, shift, back->is_first);
}

static enum rc weights_backward(struct recurrent_cpu *l, const struct pass *pass,
                                const float *before)
{
    const struct recurrent_backward *back = pass->back;
    size_t hidden = l->options.hidden, in = l->options.in;
    size_t rest = l->gates - hidden, shift = l->dgates - l->gates; /* gru: hidden, otherwise 0 */
    struct gemm by_input = {.rows = l->gates, .columns = in, .b = back->x, .c = back->dinput};
    struct gemm by_hidden = {.rows = l->gates, .columns = hidden, .b = before, .c = back->dhidden};
    enum rc rc = weight_gradient(l, pass, shift, &by_input);

    if (shift > 0) { /* the candidate comes first among the gradients, and last in the weights */
        by_hidden.rows = hidden;
        by_hidden.c = back->dhidden + rest * hidden;
        if (rc == RC_OK) rc = weight_gradient(l, pass, 0, &by_hidden);
        by_hidden.rows = rest;
        by_hidden.c = back->dhidden;
    }
    return rc == RC_OK ? weight_gradient(l, pass, shift, &by_hidden) : rc;
}

static enum rc inputs_backward(struct recurrent_cpu *l, const struct pass *pass)
{
    const struct recurrent_backward *back = pass->back;
    struct gemm product = {
        .rows = pass->samples * l->options.steps,
        .columns = l->options.in,
        .inner = l->gates,
        .alpha = 1.0F,
        .beta = back->adds_to_dx ? 1.0F : 0.0F,
        .a = pass->dgates + (l->dgates - l->gates),
        .a_stride = l->dgates_stride,
        .b = l->weights.input,
        .b_stride = l->options.in,
        .c = back->dx,
        .c_stride = l->options.in,
    };

    return cpu_gemm(&l->cpu->base, &product);
}

static enum rc recurrent_backward(struct recurrent *recurrent,
                                  const struct recurrent_backward *back)
{
    struct recurrent_cpu *l = cpu_recurrent_of(recurrent);
    size_t rows = (size_t)back->samples * l->options.steps;
    struct pass pass = {
        .layer = l,
        .run = samples_backward,
        .samples = back->samples,
        .back = back,
        .dgates = work_of(l),
    };
    float *before = pass.dgates + rows * l->dgates_stride;
    enum rc rc;

    CHECK(back->samples <= l->options.samples_max && l->options.with_gradients);
    CHECK(back->dx == NULL || l->options.with_input_gradient);
    if (l->base.saved_values > 0) {
        CHECK(back->saved != NULL);
        pass.saved_gates = back->saved;
        pass.saved_extra = back->saved + rows * l->gates;
    }
    run_samples(&pass);
    if (pass.rc != RC_OK) return pass.rc;
    shift_outputs(l, back->samples, back->y, before);
    biases_backward(l, &pass);
    if (l->bf16 != NULL) {
        return recurrent_bf16_gradients(l->bf16, rows, back, before, pass.dgates);
    }
    rc = weights_backward(l, &pass, before);
    if (rc == RC_OK && back->dx != NULL) rc = inputs_backward(l, &pass);
    return rc;
}

#define PASSES                                                                                     \
    .destroy = recurrent_destroy, .prepare = recurrent_prepare, .forward = recurrent_forward,      \
    .backward = recurrent_backward

static const struct recurrent_ops recurrent_float_ops = {.name = "float32", PASSES};
static const struct recurrent_ops recurrent_bf16_ops = {.name = "bfloat16", PASSES};

static enum rc reserve_products(struct recurrent_cpu *l)
{
    const struct recurrent_options *o = &l->options;
    enum panels_form form = panels_best_form();
    enum rc rc = RC_UNSUPPORTED;

    if (l->cpu->is_bf16) rc = recurrent_bf16_create(l->cpu, o, &l->bf16);
    if (rc != RC_UNSUPPORTED) return rc;
    rc = panels_init(&l->hidden, form, o->hidden, l->gates);
    if (rc == RC_OK && o->with_gradients) {
        rc = panels_init(&l->hidden_back, form, l->gates, o->hidden);
    }
    return rc;
}

static enum rc reserve_blocks(struct recurrent_cpu *l)
{
    const struct recurrent_options *o = &l->options;
    bool is_bf16 = l->bf16 != NULL; /* whose products know no strides */
    size_t wide = is_bf16 ? l->dgates : stride_of(l->dgates);
    size_t narrow = is_bf16 ? o->hidden : stride_of(o->hidden), samples = o->samples_max;
    float *at = mem_aligned((samples + 2) * (wide + 2 * narrow) * sizeof(float));

    if (at == NULL) return RC_NOMEM;
    l->blocks = at;
    l->dgates_stride = wide;
    l->states = (struct states){
        .wide = at,
        .narrow = at + samples * wide,
        .third = at + samples * (wide + narrow),
        .wide_stride = wide,
        .narrow_stride = narrow,
    };
    at += samples * (wide + 2 * narrow);
    l->bias = at;
    l->sums = at + wide;
    l->candidate = at + 2 * wide;
    l->zeros = at + 2 * wide + narrow;
    return RC_OK;
}

static enum rc reserve_work(struct recurrent_cpu *l)
{
    const struct recurrent_options *o = &l->options;
    size_t rows = (size_t)o->samples_max * o->steps, values = rows * l->gates;

    if (o->with_gradients) values = rows * (l->dgates_stride + o->hidden);
    if (l->bf16 == NULL) return cpu_scratch_reserve(l->cpu, values * sizeof(float));
    l->work = mem_aligned(values * sizeof(float));
    return l->work != NULL ? RC_OK : RC_NOMEM;
}

enum rc cpu_recurrent_create(struct backend *backend, const struct recurrent_options *options,
                             struct recurrent **recurrent)
{
    struct recurrent_cpu *l;
    size_t hidden = options->hidden;
    enum rc rc;

    CHECK(options->in > 0 && hidden > 0 && options->steps > 0 && options->samples_max > 0);
    if (options->in > VALUES_MAX || hidden > VALUES_MAX ||
        (uint64_t)options->samples_max * options->steps > INT_MAX) {
        return RC_UNSUPPORTED;
    }
    if (cpu_of(backend)->options.is_reference) {
        return reference_recurrent_create(options, recurrent);
    }
    l = mem_alloc(sizeof(*l));
    if (l == NULL) return RC_NOMEM;
    l->cpu = cpu_of(backend);
    l->options = *options;
    l->gates = recurrent_gates(options->kind) * hidden;
    l->dgates = options->kind == RECURRENT_GRU ? l->gates + hidden : l->gates;
    if (options->kind != RECURRENT_RNN) l->base.saved_values = options->steps * (l->gates + hidden);
    rc = reserve_products(l);
    if (rc == RC_OK) rc = reserve_blocks(l);
    if (rc == RC_OK) rc = reserve_work(l);
    if (rc != RC_OK) {
        recurrent_destroy(&l->base);
        return rc;
    }
    l->base.ops = l->bf16 != NULL ? &recurrent_bf16_ops : &recurrent_float_ops;
    *recurrent = &l->base;
    return RC_OK;
}

/*
 * The plain C twins of the recurrent layers: formulas as PyTorch has them, float64 throughout, one
 * sample after the other, back-propagation through time step by step. Any thread.
 */
#include "kernels/cpu/sequence/recurrent.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Parts of the workspace; what the steps leave is that of one sample. */
struct twin {
    const struct recurrent_options *o;
    const struct recurrent_weights *w;
    size_t gates, hidden, in;
    double *h;     /* [steps][hidden] */
    double *gate;  /* [steps][gates hidden] */
    double *extra; /* [steps][hidden]: lstm's cell, gru's candidate part of the hidden product */
    double *by_input, *by_hidden; /* [gates hidden]: the products, then gradients */
    double *dh, *direct, *dstate; /* [hidden] */
    double *dinput, *dhidden, *dbias_in, *dbias_h; /* sums over samples and steps */
};

static size_t twin_parts(const struct recurrent_options *o, struct twin *t, double *workspace)
{
    size_t g = recurrent_gates(o->kind), h = o->hidden, steps = o->steps, in = o->in;
    struct {
        double **part;
        size_t values;
    } parts[] = {
        {&t->h, steps * h},       {&t->gate, steps * g * h}, {&t->extra, steps * h},
        {&t->by_input, g * h},    {&t->by_hidden, g * h},    {&t->dh, h},
        {&t->direct, h},          {&t->dstate, h},           {&t->dinput, g * h * in},
        {&t->dhidden, g * h * h}, {&t->dbias_in, g * h},     {&t->dbias_h, g * h},
    };
    size_t used = 0;

    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
        if (workspace != NULL) *parts[i].part = workspace + used;
        used += parts[i].values;
    }
    return used;
}

size_t reference_recurrent_workspace(const struct recurrent_options *options)
{
    struct twin unused;

    return twin_parts(options, &unused, NULL);
}

static struct twin twin_of(const struct reference_recurrent *layer, double *workspace)
{
    struct twin t = {
        .o = &layer->options,
        .w = &layer->weights,
        .gates = recurrent_gates(layer->options.kind),
        .hidden = layer->options.hidden,
        .in = layer->options.in,
    };

    twin_parts(&layer->options, &t, workspace);
    return t;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The state before step 0 is zero. */
static double before(const double *states, size_t step, size_t hidden, size_t unit)
{
    return step == 0 ? 0.0 : states[(step - 1) * hidden + unit];
}

static void products(const struct twin *t, size_t step, const float *x)
{
    for (size_t r = 0; r < t->gates * t->hidden; r++) {
        double by_input = (double)t->w->bias_input[r], by_hidden = (double)t->w->bias_hidden[r];

        for (size_t k = 0; k < t->in; k++) {
            by_input += (double)t->w->input[r * t->in + k] * (double)x[k];
        }
        for (size_t k = 0; k < t->hidden; k++) {
            by_hidden += (double)t->w->hidden[r * t->hidden + k] * before(t->h, step, t->hidden, k);
        }
        t->by_input[r] = by_input;
        t->by_hidden[r] = by_hidden;
    }
}

static double unit_forward(const struct twin *t, size_t step, size_t j)
{
    size_t n = t->hidden;
    const double *a = t->by_input, *b = t->by_hidden;
    double *gate = t->gate + step * t->gates * n, *extra = t->extra + step * n;

    if (t->o->kind == RECURRENT_RNN) return tanh(a[j] + b[j]);
    gate[j] = sigmoid(a[j] + b[j]);
    gate[n + j] = sigmoid(a[n + j] + b[n + j]);
    if (t->o->kind == RECURRENT_GRU) {
        extra[j] = b[2 * n + j];
        gate[2 * n + j] = tanh(a[2 * n + j] + gate[j] * extra[j]);
        return (1.0 - gate[n + j]) * gate[2 * n + j] + gate[n + j] * before(t->h, step, n, j);
    }
    gate[2 * n + j] = tanh(a[2 * n + j] + b[2 * n + j]);
    gate[3 * n + j] = sigmoid(a[3 * n + j] + b[3 * n + j]);
    extra[j] = gate[n + j] * before(t->extra, step, n, j) + gate[j] * gate[2 * n + j];
    return gate[3 * n + j] * tanh(extra[j]);
}

static void sample_forward(const struct twin *t, const float *x)
{
    for (size_t step = 0; step < t->o->steps; step++) {
        products(t, step, x + step * t->in);
        for (size_t j = 0; j < t->hidden; j++) {
            t->h[step * t->hidden + j] = unit_forward(t, step, j);
        }
    }
}

void reference_recurrent_forward(const struct reference_recurrent *layer, uint32_t samples,
                                 const float *x, float *y, double *workspace)
{
    struct twin t = twin_of(layer, workspace);
    size_t in = t.o->steps * t.in, out = t.o->steps * t.hidden;

    for (size_t s = 0; s < samples; s++) {
        sample_forward(&t, x + s * in);
        for (size_t i = 0; i < out; i++) {
            y[s * out + i] = (float)t.h[i];
        }
    }
}

/* From dh, the gradient of a unit's output at a step: those of the products, and what passes to the
 * step before without a product. */
static void unit_backward(const struct twin *t, size_t step, size_t j)
{
    size_t n = t->hidden;
    const double *gate = t->gate + step * t->gates * n;
    double *a = t->by_input, *b = t->by_hidden, dh = t->dh[j];
    double extra = t->extra[step * n + j];

    t->direct[j] = 0.0;
    if (t->o->kind == RECURRENT_RNN) {
        double h = t->h[step * n + j];
        a[j] = dh * (1.0 - h * h);
    } else if (t->o->kind == RECURRENT_GRU) {
        double r = gate[j], z = gate[n + j], value = gate[2 * n + j];
        double dn = dh * (1.0 - z) * (1.0 - value * value);
        a[j] = dn * extra * r * (1.0 - r);
        a[n + j] = dh * (before(t->h, step, n, j) - value) * z * (1.0 - z);
        a[2 * n + j] = dn;
        t->direct[j] = dh * z;
    } else {
        double i = gate[j], f = gate[n + j], g = gate[2 * n + j], o = gate[3 * n + j];
        double squashed = tanh(extra);
        double dc = t->dstate[j] + dh * o * (1.0 - squashed * squashed);
        a[j] = dc * g * i * (1.0 - i);
        a[n + j] = dc * before(t->extra, step, n, j) * f * (1.0 - f);
        a[2 * n + j] = dc * i * (1.0 - g * g);
        a[3 * n + j] = dh * squashed * o * (1.0 - o);
        t->dstate[j] = dc * f;
    }
    for (size_t k = 0; k < t->gates; k++) {
        bool is_reset = t->o->kind == RECURRENT_GRU && k == 2;
        b[k * n + j] = a[k * n + j] * (is_reset ? gate[j] : 1.0);
    }
}

static void weights_backward(const struct twin *t, size_t step, const float *x)
{
    for (size_t r = 0; r < t->gates * t->hidden; r++) {
        for (size_t k = 0; k < t->in; k++) {
            t->dinput[r * t->in + k] += t->by_input[r] * (double)x[k];
        }
        for (size_t k = 0; k < t->hidden; k++) {
            t->dhidden[r * t->hidden + k] += t->by_hidden[r] * before(t->h, step, t->hidden, k);
        }
        t->dbias_in[r] += t->by_input[r];
        t->dbias_h[r] += t->by_hidden[r];
    }
}

static void input_backward(const struct twin *t, bool adds, float *dx)
{
    for (size_t k = 0; k < t->in; k++) {
        double sum = adds ? (double)dx[k] : 0.0;

        for (size_t r = 0; r < t->gates * t->hidden; r++) {
            sum += t->by_input[r] * (double)t->w->input[r * t->in + k];
        }
        dx[k] = (float)sum;
    }
}

/* The gradient that passes from `step` to the output of the step before. */
static void carry_backward(const struct twin *t, size_t step)
{
    bool is_cut = t->o->truncate != 0 && step % t->o->truncate == 0;

    for (size_t k = 0; k < t->hidden; k++) {
        t->dh[k] = is_cut ? 0.0 : t->direct[k];
        if (is_cut) t->dstate[k] = 0.0;
        for (size_t r = 0; !is_cut && r < t->gates * t->hidden; r++) {
            t->dh[k] += t->by_hidden[r] * (double)t->w->hidden[r * t->hidden + k];
        }
    }
}

static void sample_backward(const struct twin *t, const struct recurrent_backward *pass, size_t s)
{
    const float *x = pass->x, *dy = pass->dy;
    float *dx = pass->dx;

    memset(t->dh, 0, t->hidden * sizeof(*t->dh));
    memset(t->dstate, 0, t->hidden * sizeof(*t->dstate));
    for (size_t step = t->o->steps; step-- > 0;) {
        size_t row = s * t->o->steps + step;

        for (size_t j = 0; j < t->hidden; j++) {
            t->dh[j] += (double)dy[row * t->hidden + j];
            unit_backward(t, step, j);
        }
        weights_backward(t, step, x + row * t->in);
        if (dx != NULL) input_backward(t, pass->adds_to_dx, dx + row * t->in);
        carry_backward(t, step);
    }
}

static void hand_over(float *to, const double *sums, size_t count, bool is_first)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = (float)(sums[i] + (is_first ? 0.0 : (double)to[i]));
    }
}

void reference_recurrent_backward(const struct reference_recurrent *layer,
                                  const struct recurrent_backward *pass, double *workspace)
{
    struct twin t = twin_of(layer, workspace);
    size_t rows = t.gates * t.hidden;

    memset(t.dinput, 0, rows * t.in * sizeof(double));
    memset(t.dhidden, 0, rows * t.hidden * sizeof(double));
    memset(t.dbias_in, 0, rows * sizeof(double));
    memset(t.dbias_h, 0, rows * sizeof(double));
    for (size_t s = 0; s < pass->samples; s++) {
        sample_forward(&t, (const float *)pass->x + s * t.o->steps * t.in);
        sample_backward(&t, pass, s);
    }
    hand_over(pass->dinput, t.dinput, rows * t.in, pass->is_first);
    hand_over(pass->dhidden, t.dhidden, rows * t.hidden, pass->is_first);
    hand_over(pass->dbias_input, t.dbias_in, rows, pass->is_first);
    hand_over(pass->dbias_hidden, t.dbias_h, rows, pass->is_first);
}

struct recurrent_reference {
    struct recurrent base;
    struct reference_recurrent layer;
    double *workspace;
};

static struct recurrent_reference *reference_of(struct recurrent *recurrent)
{
    return (struct recurrent_reference *)recurrent;
}

static void reference_destroy(struct recurrent *recurrent)
{
    mem_free(reference_of(recurrent)->workspace);
    mem_free(recurrent);
}

static enum rc reference_prepare(struct recurrent *recurrent,
                                 const struct recurrent_weights *weights)
{
    reference_of(recurrent)->layer.weights = *weights;
    return RC_OK;
}

static enum rc reference_forward(struct recurrent *recurrent, uint32_t samples, const void *x,
                                 void *y, float *saved)
{
    struct recurrent_reference *r = reference_of(recurrent);

    (void)saved;
    CHECK(samples <= r->layer.options.samples_max);
    reference_recurrent_forward(&r->layer, samples, x, y, r->workspace);
    return RC_OK;
}

static enum rc reference_backward(struct recurrent *recurrent,
                                  const struct recurrent_backward *pass)
{
    struct recurrent_reference *r = reference_of(recurrent);

    CHECK(pass->samples <= r->layer.options.samples_max && r->layer.options.with_gradients);
    reference_recurrent_backward(&r->layer, pass, r->workspace);
    return RC_OK;
}

static const struct recurrent_ops reference_ops = {
    .name = "reference",
    .destroy = reference_destroy,
    .prepare = reference_prepare,
    .forward = reference_forward,
    .backward = reference_backward,
};

enum rc reference_recurrent_create(const struct recurrent_options *options,
                                   struct recurrent **recurrent)
{
    struct recurrent_reference *r = mem_alloc(sizeof(*r));

    if (r == NULL) return RC_NOMEM;
    r->base.ops = &reference_ops;
    r->layer.options = *options;
    r->workspace = mem_array(reference_recurrent_workspace(options), sizeof(double));
    if (r->workspace == NULL) {
        mem_free(r);
        return RC_NOMEM;
    }
    *recurrent = &r->base;
    return RC_OK;
}

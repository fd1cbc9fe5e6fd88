/*
 * The products of a recurrent layer with bfloat16 operands and float32 sums, as dense layers: the
 * one by the inputs, one of a step forward, one of a step back (with the weights transposed), and
 * one for nothing but the gradient of the hidden weights. States, cells, gates and biases stay
 * float32. gru is not among them: its two products have different gradients. Job thread.
 */
#include "kernels/cpu/sequence/recurrent.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/dense/linear_internal.h"

enum { LINE = 16 };

struct recurrent_bf16 {
    struct cpu_backend *cpu;
    size_t gates, hidden;
    struct linear *input, *step, *step_back, *gradient;
    float *transposed; /* hidden weights as [hidden][gates] */
};

void recurrent_bf16_destroy(struct recurrent_bf16 *b)
{
    if (b == NULL) return;
    struct linear *all[] = {b->input, b->step, b->step_back, b->gradient};

    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        if (all[i] != NULL) all[i]->ops->destroy(all[i]);
    }
    mem_free(b->transposed);
    mem_free(b);
}

static enum rc create_gradients(struct recurrent_bf16 *b, const struct recurrent_options *o)
{
    struct linear_options back = {.in = b->gates, .out = b->hidden, .rows_max = o->samples_max};
    struct linear_options gradient = {.in = b->hidden,
                                      .out = b->gates,
                                      .rows_max = (size_t)o->samples_max * o->steps,
                                      .with_gradients = true};
    enum rc rc = linear_bf16_create(b->cpu, &back, &b->step_back);

    if (rc == RC_OK) rc = linear_bf16_create(b->cpu, &gradient, &b->gradient);
    if (rc != RC_OK) return rc;
    b->transposed = mem_aligned(b->gates * b->hidden * sizeof(float));
    return b->transposed != NULL ? RC_OK : RC_NOMEM;
}

enum rc recurrent_bf16_create(struct cpu_backend *cpu, const struct recurrent_options *o,
                              struct recurrent_bf16 **bf16)
{
    struct recurrent_bf16 *b;
    size_t gates = (size_t)recurrent_gates(o->kind) * o->hidden;
    struct linear_options input = {.in = o->in,
                                   .out = gates,
                                   .rows_max = (size_t)o->samples_max * o->steps,
                                   .with_gradients = o->with_gradients,
                                   .with_input_gradient = o->with_input_gradient};
    struct linear_options step = {.in = o->hidden, .out = gates, .rows_max = o->samples_max};
    enum rc rc;

    if (o->kind == RECURRENT_GRU) return RC_UNSUPPORTED;
    b = mem_alloc(sizeof(*b));
    if (b == NULL) return RC_NOMEM;
    b->cpu = cpu;
    b->gates = gates;
    b->hidden = o->hidden;
    rc = linear_bf16_create(cpu, &input, &b->input);
    if (rc == RC_OK) rc = linear_bf16_create(cpu, &step, &b->step);
    if (rc == RC_OK && o->with_gradients) rc = create_gradients(b, o);
    if (rc != RC_OK) {
        recurrent_bf16_destroy(b);
        return rc;
    }
    *bf16 = b;
    return RC_OK;
}

/* to[columns][rows] from x[rows][columns], whole lines of the cache at a time. */
static void transpose(const float *x, size_t rows, size_t columns, float *to)
{
    for (size_t first = 0; first < rows; first += LINE) {
        size_t last = first + LINE < rows ? first + LINE : rows;

        for (size_t c = 0; c < columns; c++) {
            for (size_t r = first; r < last; r++) {
                to[c * rows + r] = x[r * columns + c];
            }
        }
    }
}

enum rc recurrent_bf16_prepare(struct recurrent_bf16 *b, const struct recurrent_weights *weights)
{
    enum rc rc = b->input->ops->prepare(b->input, weights->input, NULL);

    if (rc == RC_OK) rc = b->step->ops->prepare(b->step, weights->hidden, NULL);
    if (rc != RC_OK || b->transposed == NULL) return rc;
    transpose(weights->hidden, b->gates, b->hidden, b->transposed);
    return b->step_back->ops->prepare(b->step_back, b->transposed, NULL);
}

enum rc recurrent_bf16_inputs(struct recurrent_bf16 *b, size_t rows, const float *x, float *gates)
{
    return b->input->ops->forward(b->input, rows, x, NULL, gates);
}

enum rc recurrent_bf16_step(struct recurrent_bf16 *b, size_t samples, const float *h,
                            float *product)
{
    return b->step->ops->forward(b->step, samples, h, NULL, product);
}

enum rc recurrent_bf16_step_back(struct recurrent_bf16 *b, size_t samples, const float *dgates,
                                 float *carry)
{
    return b->step_back->ops->forward(b->step_back, samples, dgates, NULL, carry);
}

enum rc recurrent_bf16_gradients(struct recurrent_bf16 *b, size_t rows,
                                 const struct recurrent_backward *back, const float *before,
                                 float *dgates)
{
    struct linear_backward hidden = {
        .rows = rows,
        .x = before,
        .dy = dgates, /* left as it is: there is no activation */
        .is_first = back->is_first,
        .dweight = back->dhidden,
    };
    struct linear_backward input = {
        .rows = rows,
        .x = back->x,
        .dy = dgates,
        .dx = back->dx,
        .adds_to_dx = back->adds_to_dx,
        .is_first = back->is_first,
        .dweight = back->dinput,
    };
    enum rc rc = b->gradient->ops->backward(b->gradient, &hidden);

    return rc == RC_OK ? b->input->ops->backward(b->input, &input) : rc;
}

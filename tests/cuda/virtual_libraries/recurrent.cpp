/* Tests of the stand-in for cuDNN's recurrent layers: values against the documented formulas in
 * float64, gradients against differences of these. */
#include "tests/cuda/virtual_libraries/libraries.h"

#include <cudnn.h>
#include <math.h>

/* A layer in plain numbers. Gates as cuDNN has them; [gate][hidden][columns]. */
struct plain {
    cudnnRNNMode_t cell;
    size_t gates, input, hidden, steps, samples;
    std::vector<int> lengths;
    doubles x, hx, cx, weights[8], biases[8]; /* x: [steps][samples][input] */
};

struct outcome {
    doubles y, hy, cy;
};

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double linear(const struct plain &p, size_t id, size_t unit, const double *from)
{
    size_t columns = id < p.gates ? p.input : p.hidden;
    double sum = p.biases[id][unit];

    for (size_t i = 0; i < columns; i++) {
        sum += p.weights[id][unit * columns + i] * from[i];
    }
    return sum;
}

static void step(const struct plain &p, const double *x, double *h, double *c)
{
    doubles old(h, h + p.hidden);

    for (size_t unit = 0; unit < p.hidden; unit++) {
        double in[4], of[4];

        for (size_t gate = 0; gate < p.gates; gate++) {
            in[gate] = linear(p, gate, unit, x);
            of[gate] = linear(p, p.gates + gate, unit, old.data());
        }
        if (p.cell == CUDNN_LSTM) {
            c[unit] =
                sigmoid(in[1] + of[1]) * c[unit] + sigmoid(in[0] + of[0]) * tanh(in[2] + of[2]);
            h[unit] = sigmoid(in[3] + of[3]) * tanh(c[unit]);
        } else if (p.cell == CUDNN_GRU) {
            double r = sigmoid(in[0] + of[0]), z = sigmoid(in[1] + of[1]);
            h[unit] = (1.0 - z) * tanh(in[2] + r * of[2]) + z * old[unit];
        } else {
            h[unit] = tanh(in[0] + of[0]);
        }
    }
}

static struct outcome run(const struct plain &p)
{
    struct outcome o = {doubles(p.steps * p.samples * p.hidden), p.hx, p.cx};

    for (size_t t = 0; t < p.steps; t++) {
        for (size_t s = 0; s < p.samples; s++) {
            if (t >= static_cast<size_t>(p.lengths[s])) continue;
            step(p, &p.x[(t * p.samples + s) * p.input], &o.hy[s * p.hidden], &o.cy[s * p.hidden]);
            for (size_t unit = 0; unit < p.hidden; unit++) {
                o.y[(t * p.samples + s) * p.hidden + unit] = o.hy[s * p.hidden + unit];
            }
        }
    }
    return o;
}

/* The same on the device. */
struct layer {
    struct plain plain;
    enum value_type type;
    cudnnHandle_t handle;
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t state;
    bool is_by_sample;
    size_t weight_bytes, workspace_bytes, reserve_bytes;
    void *x_at, *y_at, *hx, *cx, *hy, *cy, *weights, *workspace, *reserve;
};

/* Between [steps][samples][width] and the layer's layout. */
static floats arrange(const struct layer &l, const floats &values, size_t width, bool is_back)
{
    const struct plain &p = l.plain;
    floats result(values.size());

    for (size_t t = 0; t < p.steps; t++) {
        for (size_t s = 0; s < p.samples; s++) {
            size_t plain_row = t * p.samples + s,
                   row = l.is_by_sample ? s * p.steps + t : plain_row;
            for (size_t i = 0; i < width; i++) {
                if (is_back)
                    result[plain_row * width + i] = values[row * width + i];
                else
                    result[row * width + i] = values[plain_row * width + i];
            }
        }
    }
    return result;
}

static doubles as_doubles(const floats &values)
{
    return doubles(values.begin(), values.end());
}

static floats as_floats(const doubles &values)
{
    return floats(values.begin(), values.end());
}

/* Weights go through cudnnGetRNNWeightParams() only; the gaps are NaN. */
static void put_weights(struct layer *l)
{
    struct plain &p = l->plain;
    std::vector<unsigned char> raw(l->weight_bytes, 0xFF);

    for (size_t id = 0; id < 2 * p.gates; id++) {
        cudnnTensorDescriptor_t matrix, bias;
        void *matrix_at, *bias_at;
        cudnnDataType_t type;
        int count, sizes[3], strides[3];

        ok(cudnnCreateTensorDescriptor(&matrix));
        ok(cudnnCreateTensorDescriptor(&bias));
        ok(cudnnGetRNNWeightParams(l->handle, l->rnn, 0, l->weight_bytes, l->weights,
                                   static_cast<int32_t>(id), matrix, &matrix_at, bias, &bias_at));
        ok(cudnnGetTensorNdDescriptor(matrix, 3, &type, &count, sizes, strides));
        assert_int_equal(sizes[1], p.hidden);
        assert_int_equal(sizes[2], id < p.gates ? p.input : p.hidden);
        assert_int_equal(strides[1], sizes[2]);
        for (size_t i = 0; i < p.weights[id].size(); i++) {
            value_put(l->type,
                      &raw[static_cast<size_t>(static_cast<char *>(matrix_at) -
                                               static_cast<char *>(l->weights))],
                      i, static_cast<float>(p.weights[id][i]));
        }
        for (size_t i = 0; i < p.hidden; i++) {
            value_put(l->type,
                      &raw[static_cast<size_t>(static_cast<char *>(bias_at) -
                                               static_cast<char *>(l->weights))],
                      i, static_cast<float>(p.biases[id][i]));
        }
        ok(cudnnDestroyTensorDescriptor(matrix));
        ok(cudnnDestroyTensorDescriptor(bias));
    }
    ok(cudaMemcpy(l->weights, raw.data(), raw.size(), cudaMemcpyHostToDevice));
}

static struct plain random_plain(uint64_t seed, cudnnRNNMode_t cell, enum value_type type)
{
    struct plain p = {};

    p.cell = cell;
    p.gates = cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1;
    p.input = 1 + random_below_of(&seed, 5);
    p.hidden = 1 + random_below_of(&seed, 5);
    p.steps = 1 + random_below_of(&seed, 5);
    p.samples = 1 + random_below_of(&seed, 3);
    for (size_t s = 0; s < p.samples; s++) {
        bool is_full = seed % 2 == 0;
        p.lengths.push_back(
            static_cast<int>(is_full ? p.steps : 1 + random_below_of(&seed, p.steps)));
    }
    p.x = as_doubles(random_values(&seed, p.steps * p.samples * p.input, type));
    p.hx = as_doubles(random_values(&seed, p.samples * p.hidden, type));
    p.cx = as_doubles(random_values(&seed, p.samples * p.hidden, type));
    for (size_t id = 0; id < 2 * p.gates; id++) {
        size_t columns = id < p.gates ? p.input : p.hidden;
        p.weights[id] = as_doubles(random_values(&seed, p.hidden * columns, type));
        p.biases[id] = as_doubles(random_values(&seed, p.hidden, type));
    }
    return p;
}

static void describe(struct layer *l, uint32_t flags)
{
    cudnnDataType_t type = l->type == VALUE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    cudnnRNNDataLayout_t layout = l->is_by_sample ? CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
                                                  : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    const struct plain &p = l->plain;
    int input = static_cast<int>(p.input), hidden = static_cast<int>(p.hidden);
    int steps = static_cast<int>(p.steps), samples = static_cast<int>(p.samples);
    const int sizes[] = {1, samples, hidden}, strides[] = {samples * hidden, hidden, 1};
    float fill = 0.0f;

    ok(cudnnSetRNNDescriptor_v8(l->rnn, CUDNN_RNN_ALGO_STANDARD, p.cell, CUDNN_RNN_DOUBLE_BIAS,
                                CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, type, CUDNN_DATA_FLOAT,
                                CUDNN_FMA_MATH, input, hidden, hidden, 1, NULL, flags));
    ok(cudnnSetRNNDataDescriptor(l->x, type, layout, steps, samples, input, p.lengths.data(),
                                 &fill));
    ok(cudnnSetRNNDataDescriptor(l->y, type, layout, steps, samples, hidden, p.lengths.data(),
                                 &fill));
    ok(cudnnSetTensorNdDescriptor(l->state, type, 3, sizes, strides));
}

static struct layer begin(uint64_t seed, cudnnRNNMode_t cell, enum value_type type)
{
    struct layer l = {};
    struct plain &p = l.plain;

    l.plain = random_plain(seed, cell, type);
    l.type = type;
    l.is_by_sample = seed % 3 != 0;
    ok(cudnnCreate(&l.handle));
    ok(cudnnCreateRNNDescriptor(&l.rnn));
    ok(cudnnCreateRNNDataDescriptor(&l.x));
    ok(cudnnCreateRNNDataDescriptor(&l.y));
    ok(cudnnCreateTensorDescriptor(&l.state));
    describe(&l, CUDNN_RNN_PADDED_IO_ENABLED);
    ok(cudnnGetRNNWeightSpaceSize(l.handle, l.rnn, &l.weight_bytes));
    ok(cudnnGetRNNTempSpaceSizes(l.handle, l.rnn, CUDNN_FWD_MODE_TRAINING, l.x, &l.workspace_bytes,
                                 &l.reserve_bytes));
    l.x_at = put(arrange(l, as_floats(p.x), p.input, false), type);
    l.y_at = room(p.steps * p.samples * p.hidden, type);
    l.hx = put(as_floats(p.hx), type);
    l.cx = put(as_floats(p.cx), type);
    l.hy = room(p.hx.size(), type);
    l.cy = room(p.hx.size(), type);
    l.weights = room_bytes(l.weight_bytes);
    l.workspace = room_bytes(l.workspace_bytes);
    l.reserve = room_bytes(l.reserve_bytes);
    put_weights(&l);
    return l;
}

static void end(struct layer *l)
{
    ok(cudnnDestroyTensorDescriptor(l->state));
    ok(cudnnDestroyRNNDataDescriptor(l->x));
    ok(cudnnDestroyRNNDataDescriptor(l->y));
    ok(cudnnDestroyRNNDescriptor(l->rnn));
    ok(cudnnDestroy(l->handle));
    release_all();
}

static cudnnStatus_t forward(struct layer *l)
{
    return cudnnRNNForward(l->handle, l->rnn, CUDNN_FWD_MODE_TRAINING, NULL, l->x, l->x_at, l->y,
                           l->y_at, l->state, l->hx, l->hy, l->state, l->cx, l->cy, l->weight_bytes,
                           l->weights, l->workspace_bytes, l->workspace, l->reserve_bytes,
                           l->reserve);
}

static void check_forward(struct layer *l)
{
    const struct plain &p = l->plain;
    struct outcome wanted = run(p);

    ok(forward(l));
    floats y = get(l->y_at, wanted.y.size(), l->type);
    compare("y", arrange(*l, y, p.hidden, true), wanted.y, l->type);
    compare("hy", get(l->hy, wanted.hy.size(), l->type), wanted.hy, l->type);
    if (p.cell == CUDNN_LSTM) {
        compare("cy", get(l->cy, wanted.cy.size(), l->type), wanted.cy, l->type);
    }
}

/* --- gradients ---------------------------------------------------------------------------------*/

struct weighing {
    floats dy, dhy, dcy;
};

static double loss(const struct plain &p, const struct weighing &w)
{
    struct outcome o = run(p);
    double sum = 0.0;

    for (size_t i = 0; i < o.y.size(); i++) {
        sum += o.y[i] * w.dy[i];
    }
    for (size_t i = 0; i < o.hy.size(); i++) {
        sum += o.hy[i] * w.dhy[i];
        if (p.cell == CUDNN_LSTM) sum += o.cy[i] * w.dcy[i];
    }
    return sum;
}

/* By differences, of `values`, which is a part of p. */
static doubles slope(struct plain *p, doubles *values, const struct weighing &w)
{
    doubles slopes(values->size());

    for (size_t i = 0; i < values->size(); i++) {
        double kept = (*values)[i], above, below;

        (*values)[i] = kept + 1e-4;
        above = loss(*p, w);
        (*values)[i] = kept - 1e-4;
        below = loss(*p, w);
        (*values)[i] = kept;
        slopes[i] = (above - below) / 2e-4;
    }
    return slopes;
}

/* Differences are right to about 1e-8. */
static void compare_slopes(const char *what, const floats &got, const doubles &wanted)
{
    double difference = 0.0, size = 1e-12;

    for (size_t i = 0; i < got.size(); i++) {
        difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        size += wanted[i] * wanted[i];
    }
    if (sqrt(difference / size) > 1e-5) {
        fail_msg("%s: normalised error %.3g", what, sqrt(difference / size));
    }
}

static void check_weight_gradients(struct layer *l, const struct weighing &w, const void *gradient)
{
    struct plain p = l->plain;

    for (size_t id = 0; id < 2 * p.gates; id++) {
        cudnnTensorDescriptor_t matrix, bias;
        void *matrix_at, *bias_at;

        ok(cudnnCreateTensorDescriptor(&matrix));
        ok(cudnnCreateTensorDescriptor(&bias));
        ok(cudnnGetRNNWeightParams(l->handle, l->rnn, 0, l->weight_bytes, gradient,
                                   static_cast<int32_t>(id), matrix, &matrix_at, bias, &bias_at));
        doubles wanted = slope(&p, &p.weights[id], w), wanted_bias = slope(&p, &p.biases[id], w);
        for (double &value : wanted) {
            value += 1.0; /* what was there before */
        }
        for (double &value : wanted_bias) {
            value += 1.0;
        }
        compare_slopes("weights", get(matrix_at, wanted.size(), VALUE_F32), wanted);
        compare_slopes("biases", get(bias_at, wanted_bias.size(), VALUE_F32), wanted_bias);
        ok(cudnnDestroyTensorDescriptor(matrix));
        ok(cudnnDestroyTensorDescriptor(bias));
    }
}

static void check_backward(uint64_t seed, struct layer *l)
{
    struct plain p = l->plain;
    struct weighing w = {random_values(&seed, p.steps * p.samples * p.hidden, VALUE_F32),
                         random_values(&seed, p.samples * p.hidden, VALUE_F32),
                         random_values(&seed, p.samples * p.hidden, VALUE_F32)};
    void *dy = put(arrange(*l, w.dy, p.hidden, false), VALUE_F32);
    void *dhy = put(w.dhy, VALUE_F32), *dcy = put(w.dcy, VALUE_F32);
    void *dx = room(p.x.size(), VALUE_F32), *dhx = room(p.hx.size(), VALUE_F32);
    void *dcx = room(p.hx.size(), VALUE_F32);
    void *gradient = put(floats(l->weight_bytes / sizeof(float), 1.0f), VALUE_F32);

    ok(cudnnRNNBackwardData_v8(l->handle, l->rnn, NULL, l->y, l->y_at, dy, l->x, dx, l->state,
                               l->hx, dhy, dhx, l->state, l->cx, dcy, dcx, l->weight_bytes,
                               l->weights, l->workspace_bytes, l->workspace, l->reserve_bytes,
                               l->reserve));
    ok(cudnnRNNBackwardWeights_v8(l->handle, l->rnn, CUDNN_WGRAD_MODE_ADD, NULL, l->x, l->x_at,
                                  l->state, l->hx, l->y, l->y_at, l->weight_bytes, gradient,
                                  l->workspace_bytes, l->workspace, l->reserve_bytes, l->reserve));
    compare_slopes("dx", arrange(*l, get(dx, p.x.size(), VALUE_F32), p.input, true),
                   slope(&p, &p.x, w));
    compare_slopes("dhx", get(dhx, p.hx.size(), VALUE_F32), slope(&p, &p.hx, w));
    if (p.cell == CUDNN_LSTM) {
        compare_slopes("dcx", get(dcx, p.cx.size(), VALUE_F32), slope(&p, &p.cx, w));
    }
    check_weight_gradients(l, w, gradient);
}

static void layers_follow_their_formulas_there_and_back(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 8) {
        for (cudnnRNNMode_t cell : {CUDNN_RNN_TANH, CUDNN_GRU, CUDNN_LSTM}) {
            struct layer l = begin(seed, cell, VALUE_F32);

            check_forward(&l);
            check_backward(seed, &l);
            end(&l);
        }
    }
}

static void bfloat16_is_close(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        for (cudnnRNNMode_t cell : {CUDNN_RNN_TANH, CUDNN_GRU, CUDNN_LSTM}) {
            struct layer l = begin(seed, cell, VALUE_BF16);
            struct outcome wanted = run(l.plain);
            double worst = 0.0;

            ok(forward(&l));
            floats hy = get(l.hy, wanted.hy.size(), VALUE_BF16);
            for (size_t i = 0; i < hy.size(); i++) {
                worst = fmax(worst, fabs(hy[i] - wanted.hy[i]));
            }
            assert_true(worst < 0.03);
            end(&l);
        }
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    struct layer l = begin(1, CUDNN_LSTM, VALUE_F32);
    size_t bytes = l.workspace_bytes;
    const int sizes[] = {1, 99, 1}, strides[] = {99, 1, 1};

    (void)state;
    l.workspace_bytes = bytes - 1;
    assert_int_equal(forward(&l), CUDNN_STATUS_BAD_PARAM);
    l.workspace_bytes = bytes;
    l.reserve_bytes--;
    assert_int_equal(forward(&l), CUDNN_STATUS_BAD_PARAM);
    l.reserve_bytes++;
    l.weight_bytes--;
    assert_int_equal(forward(&l), CUDNN_STATUS_BAD_PARAM);
    l.weight_bytes++;
    ok(forward(&l));
    describe(&l, 0); /* unpacked layouts without the flag */
    assert_int_equal(forward(&l), CUDNN_STATUS_BAD_PARAM);
    describe(&l, CUDNN_RNN_PADDED_IO_ENABLED);
    ok(cudnnSetTensorNdDescriptor(l.state, CUDNN_DATA_FLOAT, 3, sizes, strides));
    assert_int_equal(forward(&l), CUDNN_STATUS_BAD_PARAM);
    describe(&l, CUDNN_RNN_PADDED_IO_ENABLED);
    assert_int_equal(cudnnRNNBackwardWeights_v8(l.handle, l.rnn, CUDNN_WGRAD_MODE_SET, NULL, l.x,
                                                l.x_at, l.state, l.hx, l.y, l.y_at, l.weight_bytes,
                                                l.weights, l.workspace_bytes, l.workspace,
                                                l.reserve_bytes, l.reserve),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(cudnnSetRNNDescriptor_v8(l.rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_GRU,
                                              CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                                              CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                                              CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 4, 4, 0, 1,
                                              NULL, CUDNN_RNN_PADDED_IO_ENABLED),
                     CUDNN_STATUS_BAD_PARAM); /* no projection is one of the hidden size */
    end(&l);
}

static void weights_before_data(void)
{
    struct layer l = begin(1, CUDNN_GRU, VALUE_F32);
    void *gradient = room_bytes(l.weight_bytes);

    (void)forward(&l);
    (void)cudnnRNNBackwardWeights_v8(l.handle, l.rnn, CUDNN_WGRAD_MODE_ADD, NULL, l.x, l.x_at,
                                     l.state, l.hx, l.y, l.y_at, l.weight_bytes, gradient,
                                     l.workspace_bytes, l.workspace, l.reserve_bytes, l.reserve);
    (void)cudaDeviceSynchronize();
}

static void passes_out_of_order_abort(void **state)
{
    (void)state;
    aborts(weights_before_data, "has not left its reserve space");
}

struct libraries_tests libraries_recurrent(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_follow_their_formulas_there_and_back),
        cmocka_unit_test(bfloat16_is_close),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(passes_out_of_order_abort),
    };

    return {tests, sizeof(tests) / sizeof(*tests)};
}

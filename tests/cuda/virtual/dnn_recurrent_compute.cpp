/*
 * The arithmetic of the stand-in's recurrent layers, with the formulas of cudnnRNNMode_t in the
 * cuDNN API reference; for the GRU
 *     r = s(W_r x + R_r h + b), z = s(W_i x + R_i h + b), n = tanh(W_n x + r (R_n h + b_R) + b_W),
 *     h' = (1 - z) n + z h.
 * What is kept between the passes is rounded to the type of the data. Steps behind the end of a
 * sequence leave its state as it is.
 */
#include "tests/cuda/virtual/dnn_recurrent.h"

#include <math.h>

/* Sizes of a call, and where what it saved lies. */
struct cell {
    const struct rnn_call *call;
    enum value_type type;
    enum value_rounding rounding; /* of inputs of products */
    size_t gates, hidden, input, steps, samples;
};

static struct cell cell_of(const struct rnn_call *call)
{
    struct cell cell;

    cell.call = call;
    cell.type = dnn_value_type(call->rnn.type);
    cell.rounding = dnn_rounding(call->rnn.type, call->rnn.math);
    cell.gates = rnn_gates(&call->rnn);
    cell.hidden = call->rnn.hidden;
    cell.input = call->rnn.input;
    cell.steps = call->data.steps;
    cell.samples = call->data.samples;
    return cell;
}

static bool is_within(const struct cell *cell, size_t step, size_t sample)
{
    return step < static_cast<size_t>(cell->call->data.lengths[sample]);
}

static float keep(const struct cell *cell, float value)
{
    return cell->type == VALUE_BF16 ? value_round(ROUND_BF16, value) : value;
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* First value of a row of x or y. */
static size_t row_at(const struct cell *cell, size_t step, size_t sample, size_t width)
{
    bool is_by_sample = cell->call->data.layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;

    return (is_by_sample ? sample * cell->steps + step : step * cell->samples + sample) * width;
}

/* Parts of what is saved of a step of a sample, by their first value. */
enum part { PART_GATES, PART_CELL, PART_STATE, PART_TO_INPUT, PART_TO_STATE };

static float *saved_at(const struct cell *cell, size_t step, size_t sample, enum part part)
{
    char *block = static_cast<char *>(cell->call->reserve) + sizeof(struct rnn_reserve);
    float *values = reinterpret_cast<float *>(block) +
                    (step * cell->samples + sample) * rnn_saved_values(&cell->call->rnn);
    const size_t firsts[] = {0, cell->gates, cell->gates + 1, cell->gates + 2, 2 * cell->gates + 2};

    return values + firsts[part] * cell->hidden;
}

/* [steps x samples][width], step by step; zeros behind the end of a sequence. */
static std::vector<float> rows_of(const struct cell *cell, const void *block, size_t width)
{
    std::vector<float> rows(cell->steps * cell->samples * width);

    for (size_t step = 0; step < cell->steps; step++) {
        for (size_t sample = 0; sample < cell->samples; sample++) {
            if (!is_within(cell, step, sample)) continue;
            for (size_t i = 0; i < width; i++) {
                rows[(step * cell->samples + sample) * width + i] =
                    value_get(cell->type, block, row_at(cell, step, sample, width) + i);
            }
        }
    }
    return rows;
}

/* [samples][hidden] of a state; NULL: zeros. */
static std::vector<float> state_of(const struct cell *cell, const void *block)
{
    std::vector<float> state(cell->samples * cell->hidden);

    for (size_t i = 0; block != NULL && i < state.size(); i++) {
        state[i] = value_get(cell->type, block, i);
    }
    return state;
}

static void put_state(const struct cell *cell, const std::vector<float> &state, void *block)
{
    for (size_t i = 0; block != NULL && i < state.size(); i++) {
        value_put(cell->type, block, i, state[i]);
    }
}

static void round_all(const struct cell *cell, std::vector<float> *values)
{
    for (float &value : *values) {
        value = value_round(cell->rounding, value);
    }
}

/* The matrices of all gates, [gates x hidden][columns], or turned. */
static std::vector<float> weights_of(const struct cell *cell, bool is_of_state, bool is_turned)
{
    size_t columns = is_of_state ? cell->hidden : cell->input, rows = cell->gates * cell->hidden;
    std::vector<float> weights(rows * columns);

    for (size_t row = 0; row < rows; row++) {
        size_t gate = row / cell->hidden;
        struct rnn_place place;
        const char *base = static_cast<const char *>(cell->call->weights);

        rnn_find(&cell->call->rnn, gate + (is_of_state ? cell->gates : 0), &place);
        for (size_t column = 0; column < columns; column++) {
            float value =
                value_get(cell->type, base + place.matrix, row % cell->hidden * columns + column);
            weights[is_turned ? column * rows + row : row * columns + column] =
                value_round(cell->rounding, value);
        }
    }
    return weights;
}

static std::vector<float> biases_of(const struct cell *cell, bool is_of_state)
{
    std::vector<float> biases(cell->gates * cell->hidden);

    for (size_t row = 0; row < biases.size(); row++) {
        struct rnn_place place;
        const char *base = static_cast<const char *>(cell->call->weights);

        rnn_find(&cell->call->rnn, row / cell->hidden + (is_of_state ? cell->gates : 0), &place);
        biases[row] = value_get(cell->type, base + place.bias, row % cell->hidden);
    }
    return biases;
}

/* --- forward -----------------------------------------------------------------------------------*/

/* One unit: `in` and `of_state` are its products, biases added, one value a gate. */
static float step_unit(const struct cell *cell, const float *in, const float *of_state, float h,
                       float *c, float *gates, float *other)
{
    float z;

    switch (cell->call->rnn.cell) {
    case CUDNN_LSTM:
        gates[0] = keep(cell, sigmoid(in[0] + of_state[0]));
        gates[1] = keep(cell, sigmoid(in[1] + of_state[1]));
        gates[2] = keep(cell, tanhf(in[2] + of_state[2]));
        gates[3] = keep(cell, sigmoid(in[3] + of_state[3]));
        *c = keep(cell, gates[1] * *c + gates[0] * gates[2]);
        *other = *c;
        return keep(cell, gates[3] * tanhf(*c));
    case CUDNN_GRU:
        gates[0] = keep(cell, sigmoid(in[0] + of_state[0]));
        gates[1] = z = keep(cell, sigmoid(in[1] + of_state[1]));
        *other = keep(cell, of_state[2]);
        gates[2] = keep(cell, tanhf(in[2] + gates[0] * *other));
        return keep(cell, (1.0f - z) * gates[2] + z * h);
    default:
        gates[0] = keep(cell, tanhf(in[0] + of_state[0]));
        *other = 0.0f;
        return gates[0];
    }
}

static void save_unit(const struct cell *cell, size_t step, size_t sample, size_t unit,
                      const float *gates, float other, float h)
{
    if (cell->call->reserve == NULL) return;
    for (size_t gate = 0; gate < cell->gates; gate++) {
        saved_at(cell, step, sample, PART_GATES)[gate * cell->hidden + unit] = gates[gate];
    }
    saved_at(cell, step, sample, PART_CELL)[unit] = other;
    saved_at(cell, step, sample, PART_STATE)[unit] = h;
}

/* All units of all samples; `in`: this step's rows. */
static void step_all(const struct cell *cell, size_t step, const float *in,
                     const std::vector<float> &of_state, const std::vector<float> &biases,
                     const std::vector<float> &state_biases, std::vector<float> *h,
                     std::vector<float> *c)
{
    size_t width = cell->gates * cell->hidden;

    for (size_t sample = 0; sample < cell->samples; sample++) {
        if (!is_within(cell, step, sample)) continue;
        for (size_t unit = 0; unit < cell->hidden; unit++) {
            float from_input[4], from_state[4], gates[4] = {0}, other = 0.0f;
            size_t at = sample * cell->hidden + unit;

            for (size_t gate = 0; gate < cell->gates; gate++) {
                size_t row = gate * cell->hidden + unit;
                from_input[gate] = in[sample * width + row] + biases[row];
                from_state[gate] = of_state[sample * width + row] + state_biases[row];
            }
            (*h)[at] = step_unit(cell, from_input, from_state, (*h)[at], &(*c)[at], gates, &other);
            save_unit(cell, step, sample, unit, gates, other, (*h)[at]);
        }
    }
}

/* Rows behind the end of a sequence: the filling, or, where none is given, anything. */
static void put_row(const struct cell *cell, void *block, size_t step, size_t sample, size_t width,
                    const float *values)
{
    float fill = cell->call->data.has_fill ? cell->call->data.fill : NAN;

    for (size_t i = 0; i < width; i++) {
        value_put(cell->type, block, row_at(cell, step, sample, width) + i,
                  is_within(cell, step, sample) ? values[i] : fill);
    }
}

void rnn_forward(const struct rnn_call *call)
{
    struct cell cell = cell_of(call);
    size_t width = cell.gates * cell.hidden;
    std::vector<float> x = rows_of(&cell, call->x, cell.input);
    std::vector<float> turned = weights_of(&cell, true, true);
    std::vector<float> biases = biases_of(&cell, false), state_biases = biases_of(&cell, true);
    std::vector<float> h = state_of(&cell, call->hx), c = state_of(&cell, call->cx);

    round_all(&cell, &x);
    std::vector<float> in = matrix_product(x, weights_of(&cell, false, true),
                                           cell.steps * cell.samples, width, cell.input);
    for (size_t step = 0; step < cell.steps; step++) {
        std::vector<float> rounded = h;
        round_all(&cell, &rounded);
        std::vector<float> of_state =
            matrix_product(rounded, turned, cell.samples, width, cell.hidden);

        step_all(&cell, step, &in[step * cell.samples * width], of_state, biases, state_biases, &h,
                 &c);
        for (size_t sample = 0; sample < cell.samples; sample++) {
            put_row(&cell, call->y, step, sample, cell.hidden, &h[sample * cell.hidden]);
        }
    }
    put_state(&cell, h, call->hy);
    put_state(&cell, c, call->cy);
    if (call->reserve != NULL) {
        static_cast<struct rnn_reserve *>(call->reserve)->stage = RNN_FORWARD_DONE;
    }
}

/* --- backward ----------------------------------------------------------------------------------*/

/* State before a step: of h, or of the LSTM's c. */
static float before(const struct cell *cell, size_t step, size_t sample, size_t unit,
                    enum part part, const std::vector<float> &first)
{
    return step > 0 ? saved_at(cell, step - 1, sample, part)[unit]
                    : first[sample * cell->hidden + unit];
}

/* What a unit's saved values and its gradient dh (and dc) give before the gates. Returns what goes
 * straight to the state before. */
static float turn_unit(const struct cell *cell, const float *gates, float other, float h_before,
                       float c_before, float dh, float *dc, float *to_input, float *to_state)
{
    float tanh_c, r, z, n;

    switch (cell->call->rnn.cell) {
    case CUDNN_LSTM:
        tanh_c = tanhf(other);
        *dc += dh * gates[3] * (1.0f - tanh_c * tanh_c);
        to_input[0] = *dc * gates[2] * gates[0] * (1.0f - gates[0]);
        to_input[1] = *dc * c_before * gates[1] * (1.0f - gates[1]);
        to_input[2] = *dc * gates[0] * (1.0f - gates[2] * gates[2]);
        to_input[3] = dh * tanh_c * gates[3] * (1.0f - gates[3]);
        memcpy(to_state, to_input, 4 * sizeof(float));
        *dc *= gates[1];
        return 0.0f;
    case CUDNN_GRU:
        r = gates[0];
        z = gates[1];
        n = gates[2];
        to_input[2] = dh * (1.0f - z) * (1.0f - n * n);
        to_input[1] = dh * (h_before - n) * z * (1.0f - z);
        to_input[0] = to_input[2] * other * r * (1.0f - r);
        to_state[0] = to_input[0];
        to_state[1] = to_input[1];
        to_state[2] = to_input[2] * r;
        return dh * z;
    default:
        to_input[0] = to_state[0] = dh * (1.0f - gates[0] * gates[0]);
        return 0.0f;
    }
}

/* One step back; dh is of the step's state on entry, and on return what went straight on. */
static void turn_all(const struct cell *cell, size_t step, const std::vector<float> &h_first,
                     const std::vector<float> &c_first, std::vector<float> *dh,
                     std::vector<float> *dc)
{
    for (size_t sample = 0; sample < cell->samples; sample++) {
        if (!is_within(cell, step, sample)) continue;
        for (size_t unit = 0; unit < cell->hidden; unit++) {
            float gates[4], to_input[4], to_state[4];
            size_t at = sample * cell->hidden + unit;

            for (size_t gate = 0; gate < cell->gates; gate++) {
                gates[gate] = saved_at(cell, step, sample, PART_GATES)[gate * cell->hidden + unit];
            }
            (*dh)[at] = turn_unit(cell, gates, saved_at(cell, step, sample, PART_CELL)[unit],
                                  before(cell, step, sample, unit, PART_STATE, h_first),
                                  before(cell, step, sample, unit, PART_CELL, c_first), (*dh)[at],
                                  &(*dc)[at], to_input, to_state);
            for (size_t gate = 0; gate < cell->gates; gate++) {
                size_t i = gate * cell->hidden + unit;
                saved_at(cell, step, sample, PART_TO_INPUT)[i] = keep(cell, to_input[gate]);
                saved_at(cell, step, sample, PART_TO_STATE)[i] = keep(cell, to_state[gate]);
            }
        }
    }
}

/* Saved rows of one step, [samples][gates x hidden]; zeros behind the end. */
static std::vector<float> saved_rows(const struct cell *cell, size_t step, enum part part,
                                     size_t width)
{
    std::vector<float> rows(cell->samples * width);

    for (size_t sample = 0; sample < cell->samples; sample++) {
        if (!is_within(cell, step, sample)) continue;
        memcpy(&rows[sample * width], saved_at(cell, step, sample, part), width * sizeof(float));
    }
    return rows;
}

static void check_stage(const struct rnn_call *call, uint64_t wanted)
{
    const struct rnn_reserve *reserve = static_cast<const struct rnn_reserve *>(call->reserve);

    if (reserve->stage == wanted) return;
    virtual_fatal("%s: the pass before it has not left its reserve space", call->name);
}

void rnn_backward_data(const struct rnn_call *call)
{
    struct cell cell = cell_of(call);
    size_t width = cell.gates * cell.hidden;
    std::vector<float> dy = rows_of(&cell, call->dy, cell.hidden);
    std::vector<float> weights = weights_of(&cell, false, false);
    std::vector<float> state_weights = weights_of(&cell, true, false);
    std::vector<float> dh = state_of(&cell, call->dhy), dc = state_of(&cell, call->dcy);
    std::vector<float> h_first = state_of(&cell, call->hx), c_first = state_of(&cell, call->cx);

    check_stage(call, RNN_FORWARD_DONE);
    for (size_t step = cell.steps; step-- > 0;) {
        for (size_t i = 0; i < dh.size(); i++) {
            dh[i] += dy[step * dh.size() + i];
        }
        turn_all(&cell, step, h_first, c_first, &dh, &dc);
        std::vector<float> to_state = saved_rows(&cell, step, PART_TO_STATE, width);
        std::vector<float> to_input = saved_rows(&cell, step, PART_TO_INPUT, width);
        round_all(&cell, &to_state);
        round_all(&cell, &to_input);
        std::vector<float> back =
            matrix_product(to_state, state_weights, cell.samples, cell.hidden, width);
        std::vector<float> dx = matrix_product(to_input, weights, cell.samples, cell.input, width);
        for (size_t i = 0; i < dh.size(); i++) {
            dh[i] += back[i];
        }
        for (size_t sample = 0; sample < cell.samples; sample++) {
            put_row(&cell, call->dx, step, sample, cell.input, &dx[sample * cell.input]);
        }
    }
    put_state(&cell, dh, call->dhx);
    put_state(&cell, dc, call->dcx);
    static_cast<struct rnn_reserve *>(call->reserve)->stage = RNN_DATA_DONE;
}

/* gradient += sums */
static void add_values(const struct cell *cell, size_t offset, const float *sums, size_t count)
{
    char *base = static_cast<char *>(cell->call->weights) + offset;

    for (size_t i = 0; i < count; i++) {
        value_put(cell->type, base, i, value_get(cell->type, base, i) + sums[i]);
    }
}

/* One half of the weights: gates' gradients turned, [gates x hidden][rows], times [rows][columns].
 */
static void add_gradients(const struct cell *cell, bool is_of_state, std::vector<float> gates,
                          std::vector<float> rows, size_t columns)
{
    size_t width = cell->gates * cell->hidden, count = cell->steps * cell->samples;
    std::vector<float> turned(gates.size()), bias(width);

    for (size_t row = 0; row < count; row++) {
        for (size_t i = 0; i < width; i++) {
            turned[i * count + row] = value_round(cell->rounding, gates[row * width + i]);
            bias[i] += gates[row * width + i];
        }
    }
    round_all(cell, &rows);
    std::vector<float> sums = matrix_product(turned, rows, width, columns, count);
    for (size_t gate = 0; gate < cell->gates; gate++) {
        struct rnn_place place;

        rnn_find(&cell->call->rnn, gate + (is_of_state ? cell->gates : 0), &place);
        add_values(cell, place.matrix, &sums[gate * cell->hidden * columns],
                   cell->hidden * columns);
        add_values(cell, place.bias, &bias[gate * cell->hidden], cell->hidden);
    }
}

void rnn_backward_weights(const struct rnn_call *call)
{
    struct cell cell = cell_of(call);
    size_t width = cell.gates * cell.hidden;
    std::vector<float> h_first = state_of(&cell, call->hx), to_input, to_state, states;

    check_stage(call, RNN_DATA_DONE);
    for (size_t step = 0; step < cell.steps; step++) {
        std::vector<float> in = saved_rows(&cell, step, PART_TO_INPUT, width);
        std::vector<float> of = saved_rows(&cell, step, PART_TO_STATE, width);

        to_input.insert(to_input.end(), in.begin(), in.end());
        to_state.insert(to_state.end(), of.begin(), of.end());
        for (size_t sample = 0; sample < cell.samples; sample++) {
            for (size_t unit = 0; unit < cell.hidden; unit++) {
                states.push_back(is_within(&cell, step, sample)
                                     ? before(&cell, step, sample, unit, PART_STATE, h_first)
                                     : 0.0f);
            }
        }
    }
    add_gradients(&cell, false, to_input, rows_of(&cell, call->x, cell.input), cell.input);
    add_gradients(&cell, true, to_state, states, cell.hidden);
}

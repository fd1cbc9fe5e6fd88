/*
 * What a recurrent layer does between the products, one step of one sample at a time: gates, states
 * and their gradients in one pass over the row, vectorised. Formulas as PyTorch has them:
 *
 *   rnn   h = tanh(a)
 *   gru   r, z = sigmoid(a); n = tanh(W_in x + b_in + r (W_hn h + b_hn)); h = (1 - z) n + z h
 *   lstm  i, f, o = sigmoid(a); g = tanh(a); c = f c + i g; h = o tanh(c)
 *
 * with a = W_i x + b_i + W_h h + b_h. Any thread.
 */
#include "kernels/cpu/sequence/recurrent.h"

#include "kernels/cpu/math.h"

/* For the loop that follows: no row overlaps another (or only in whole, at the same unit). No
 * compiler tests that at run time for so many of them; it would rather give vectors up. */
#if defined(__clang__)
#define ROWS_ARE_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define ROWS_ARE_APART _Pragma("GCC ivdep")
#endif

FOR_EACH_CPU(extern, void, cell_rnn_forward, (const struct cell_forward *step), (step))
{
    size_t n = step->hidden;
    const float *restrict product = step->product, *restrict bias = step->bias;
    float *restrict out = step->gates, *restrict h = step->h;

    ROWS_ARE_APART
    for (size_t j = 0; j < n; j++) {
        float value = cpu_tanh(out[j] + product[j] + bias[j]);
        out[j] = value;
        h[j] = value;
    }
}

FOR_EACH_CPU(extern, void, cell_gru_forward, (const struct cell_forward *step), (step))
{
    size_t n = step->hidden;
    float *restrict reset = step->gates, *restrict update = step->gates + n;
    float *restrict candidate = step->gates + 2 * n, *restrict h = step->h;
    const float *restrict product_r = step->product, *restrict product_z = step->product + n;
    float *restrict product_n = step->product + 2 * n;
    const float *restrict bias_r = step->bias, *restrict bias_z = step->bias + n;
    const float *restrict bias_n = step->bias + 2 * n, *restrict bias_hn = step->candidate;

    ROWS_ARE_APART
    for (size_t j = 0; j < n; j++) {
        float r = cpu_sigmoid(reset[j] + product_r[j] + bias_r[j]);
        float z = cpu_sigmoid(update[j] + product_z[j] + bias_z[j]);
        float hidden_part = product_n[j] + bias_hn[j];
        float value = cpu_tanh(candidate[j] + bias_n[j] + r * hidden_part);

        reset[j] = r;
        update[j] = z;
        candidate[j] = value;
        product_n[j] = hidden_part;
        h[j] = value + z * (h[j] - value);
    }
}

FOR_EACH_CPU(extern, void, cell_lstm_forward, (const struct cell_forward *step), (step))
{
    size_t n = step->hidden;
    float *restrict input = step->gates, *restrict forget = step->gates + n;
    float *restrict cell = step->gates + 2 * n, *restrict output = step->gates + 3 * n;
    const float *restrict product_i = step->product, *restrict product_f = step->product + n;
    const float *restrict product_g = step->product + 2 * n;
    const float *restrict product_o = step->product + 3 * n;
    const float *restrict bias_i = step->bias, *restrict bias_f = step->bias + n;
    const float *restrict bias_g = step->bias + 2 * n, *restrict bias_o = step->bias + 3 * n;
    float *restrict h = step->h, *restrict c = step->c;

    ROWS_ARE_APART
    for (size_t j = 0; j < n; j++) {
        float i = cpu_sigmoid(input[j] + product_i[j] + bias_i[j]);
        float f = cpu_sigmoid(forget[j] + product_f[j] + bias_f[j]);
        float g = cpu_tanh(cell[j] + product_g[j] + bias_g[j]);
        float o = cpu_sigmoid(output[j] + product_o[j] + bias_o[j]);

        input[j] = i;
        forget[j] = f;
        cell[j] = g;
        output[j] = o;
        c[j] = f * c[j] + i * g;
    }
    ROWS_ARE_APART
    for (size_t j = 0; j < n; j++) {
        h[j] = output[j] * cpu_tanh(c[j]);
    }
}

FOR_EACH_CPU(extern, void, cell_rnn_backward, (const struct cell_backward *step), (step))
{
    size_t n = step->hidden;
    const float *restrict h = step->after, *restrict dy = step->dy, *restrict carry = step->carry;
    float *restrict dgates = step->dgates;

    ROWS_ARE_APART
    for (size_t j = 0; j < n; j++) {
        dgates[j] = (dy[j] + carry[j]) * (1.0F - h[j] * h[j]);
    }
}

FOR_EACH_CPU(extern, void, cell_gru_backward, (const struct cell_backward *step), (step))
{
    size_t n = step->hidden;
    const float *restrict reset = step->gates, *restrict update = step->gates + n;
    const float *restrict candidate = step->gates + 2 * n, *restrict part = step->candidate;
    const float *restrict before = step->before, *restrict dy = step->dy;
    const float *restrict carry = step->carry;
    float *restrict direct = step->direct, *restrict dhidden = step->dgates;
    float *restrict dreset = step->dgates + n, *restrict dupdate = step->dgates + 2 * n;
    float *restrict dinput = step->dgates + 3 * n;

    ROWS_ARE_APART
    for (size_t j = 0; j < n; j++) {
        float r = reset[j], z = update[j], value = candidate[j];
        float dh = dy[j] + carry[j] + direct[j];
        float dn = dh * (1.0F - z) * (1.0F - value * value);

        dreset[j] = dn * part[j] * r * (1.0F - r);
        dupdate[j] = dh * (before[j] - value) * z * (1.0F - z);
        dhidden[j] = dn * r;
        dinput[j] = dn;
        direct[j] = dh * z;
    }
}

FOR_EACH_CPU(extern, void, cell_lstm_backward, (const struct cell_backward *step), (step))
{
    size_t n = step->hidden;
    const float *restrict input = step->gates, *restrict forget = step->gates + n;
    const float *restrict cell = step->gates + 2 * n, *restrict output = step->gates + 3 * n;
    const float *restrict before = step->before, *restrict after = step->after;
    const float *restrict dy = step->dy, *restrict carry = step->carry;
    float *restrict direct = step->direct, *restrict dinput = step->dgates;
    float *restrict dforget = step->dgates + n, *restrict dcell = step->dgates + 2 * n;
    float *restrict doutput = step->dgates + 3 * n;

    ROWS_ARE_APART
    for (size_t j = 0; j < n; j++) {
        float i = input[j], f = forget[j], g = cell[j], o = output[j];
        float squashed = cpu_tanh(after[j]), dh = dy[j] + carry[j];
        float dc = direct[j] + dh * o * (1.0F - squashed * squashed);

        dinput[j] = dc * g * i * (1.0F - i);
        dforget[j] = dc * before[j] * f * (1.0F - f);
        dcell[j] = dc * i * (1.0F - g * g);
        doutput[j] = dh * squashed * o * (1.0F - o);
        direct[j] = dc * f;
    }
}

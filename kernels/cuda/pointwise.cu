/*
 * Activations, sums, dropout and copies: what stands between the products of a model, in one pass
 * over memory each. Formulas: kernels/cpu/dense/activation.c; float32 inside, whatever the form of
 * the activations. Which activation it is, all threads decide alike, once for each 16 bytes.
 *
 * Dropout  Philox4x32-10 (Salmon et al. 2011), the words of kernels/cpu/dense/activation.c: a
 * thread draws the four of a counter together where it has their four values.
 */
#include "kernels/cuda/each.cuh"

#include <math.h>

#define SQRT_HALF    0.70710678F
#define INV_SQRT_2PI 0.39894228F

__device__ static inline float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

__device__ static inline float normal_distribution(float x)
{
    return 0.5F + 0.5F * erff(x * SQRT_HALF);
}

/* 2 sqrt(2 / pi) (x + 0.044715 x^3), and its slope. */
__device__ static inline float gelu_gate(float x)
{
    return x * (1.5957691F + 0.07135481F * (x * x));
}

__device__ static inline float gelu_gate_slope(float x)
{
    return 1.5957691F + 0.21406444F * (x * x);
}

/* Not `> 0 ? x : 0`: a NaN has to stay one until somebody notices. */
__device__ static inline float relu(float x)
{
    return x < 0.0F ? 0.0F : x;
}

/* values[k] = f(values[k]). */
template <int N> __device__ static inline void activate(struct activation f, float *values)
{
#define EACH_VALUE(expression)                                                                     \
    for (int k = 0; k < N; k++) {                                                                  \
        float x = values[k];                                                                       \
        values[k] = (expression);                                                                  \
    }                                                                                              \
    break
    switch (f.kind) {
    case ACTIVATION_RELU:
        EACH_VALUE(relu(x));
    case ACTIVATION_LEAKY_RELU:
        EACH_VALUE(x * (x < 0.0F ? f.slope : 1.0F));
    case ACTIVATION_GELU:
        EACH_VALUE(x * normal_distribution(x));
    case ACTIVATION_GELU_TANH:
        EACH_VALUE(x * sigmoid(gelu_gate(x)));
    case ACTIVATION_SILU:
        EACH_VALUE(x * sigmoid(x));
    case ACTIVATION_SIGMOID:
        EACH_VALUE(sigmoid(x));
    case ACTIVATION_TANH:
        EACH_VALUE(tanhf(x));
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
        break;
    }
#undef EACH_VALUE
}

__device__ static inline float gelu_slope(float x)
{
    return normal_distribution(x) + x * (INV_SQRT_2PI * expf(-0.5F * (x * x)));
}

__device__ static inline float gelu_tanh_slope(float x)
{
    float s = sigmoid(gelu_gate(x));

    return s * (1.0F + x * (1.0F - s) * gelu_gate_slope(x));
}

__device__ static inline float silu_slope(float x)
{
    float s = sigmoid(x);

    return s * (1.0F + x * (1.0F - s));
}

/* gradient[k] *= f'; `from` is the input where activation_needs_input(), otherwise the output. */
template <int N>
__device__ static inline void activate_back(struct activation f, const float *from, float *gradient)
{
#define EACH_VALUE(expression)                                                                     \
    for (int k = 0; k < N; k++) {                                                                  \
        float x = from[k], dy = gradient[k];                                                       \
        gradient[k] = (expression);                                                                \
    }                                                                                              \
    break
    switch (f.kind) {
    case ACTIVATION_RELU:
        EACH_VALUE(x > 0.0F ? dy : 0.0F);
    case ACTIVATION_LEAKY_RELU:
        EACH_VALUE(dy * (x > 0.0F ? 1.0F : f.slope));
    case ACTIVATION_GELU:
        EACH_VALUE(dy * gelu_slope(x));
    case ACTIVATION_GELU_TANH:
        EACH_VALUE(dy * gelu_tanh_slope(x));
    case ACTIVATION_SILU:
        EACH_VALUE(dy * silu_slope(x));
    case ACTIVATION_SIGMOID:
        EACH_VALUE(dy * (x * (1.0F - x)));
    case ACTIVATION_TANH:
        EACH_VALUE(dy * (1.0F - x * x));
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
        break;
    }
#undef EACH_VALUE
}

/* --- activations -------------------------------------------------------------------------------*/

template <typename T> struct forward_operation {
    struct activation f;
    const T *x;
    T *y;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N];

        load_values<N>(x + i, values);
        activate<N>(f, values);
        store_values<N>(y + i, values);
    }
};

template <typename T>
static enum rc forward(struct cuda_backend *cuda, struct activation f, const T *x, T *y, size_t n)
{
    forward_operation<T> operation = {f, x, y};

    return for_each_value<access_values<T>()>(cuda, operation, n, is_aligned(x) && is_aligned(y));
}

static enum rc copy_values(struct backend *backend, const void *x, void *y, size_t n)
{
    return x == y ? RC_OK : backend->ops->copy(backend, y, x, n * backend->value_bytes);
}

enum rc cuda_activation_forward(struct backend *backend, struct activation activation,
                                const void *x, void *y, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    if (activation.kind == ACTIVATION_NONE) return copy_values(backend, x, y, n);
    WITH_ACTIVATIONS(cuda, rc = forward(cuda, activation, as<T>(x), as<T>(y), n));
    return rc;
}

enum rc cuda_relu_forward(struct backend *backend, void *x, size_t n)
{
    struct activation relu = {ACTIVATION_RELU, 0.0F};

    return cuda_activation_forward(backend, relu, x, x, n);
}

template <typename T> struct backward_operation {
    struct activation f;
    const T *from, *dy;
    T *dx;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N], gradient[N];

        load_values<N>(from + i, values);
        load_values<N>(dy + i, gradient);
        activate_back<N>(f, values, gradient);
        store_values<N>(dx + i, gradient);
    }
};

template <typename T>
static enum rc backward(struct cuda_backend *cuda, struct activation f, const T *from, const T *dy,
                        T *dx, size_t n)
{
    backward_operation<T> operation = {f, from, dy, dx};

    return for_each_value<access_values<T>()>(cuda, operation, n,
                                              is_aligned(from) && is_aligned(dy) && is_aligned(dx));
}

enum rc cuda_activation_backward(struct backend *backend, struct activation activation,
                                 const void *x, const void *y, const void *dy, void *dx, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    const void *from = activation_needs_input(activation.kind) ? x : y;
    enum rc rc;

    CHECK(from != NULL || activation.kind == ACTIVATION_NONE);
    if (activation.kind == ACTIVATION_NONE) return copy_values(backend, dy, dx, n);
    WITH_ACTIVATIONS(cuda, rc = backward(cuda, activation, as<T>(from), as<T>(dy), as<T>(dx), n));
    return rc;
}

enum rc cuda_relu_backward(struct backend *backend, const void *y, void *dy, size_t n)
{
    struct activation relu = {ACTIVATION_RELU, 0.0F};

    return cuda_activation_backward(backend, relu, NULL, y, dy, dy, n);
}

template <typename T> struct bias_operation {
    struct activation f;
    size_t columns;
    const T *x, *bias;
    T *pre, *y;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N], shifts[N];

        load_values<N>(x + i, values);
        if (bias != NULL) {
            load_values<N>(bias + i % columns, shifts);
            for (int k = 0; k < N; k++) {
                values[k] += shifts[k];
            }
        }
        if (pre != NULL) store_values<N>(pre + i, values);
        activate<N>(f, values);
        store_values<N>(y + i, values);
    }
};

template <typename T>
static enum rc bias_forward(struct cuda_backend *cuda, const bias_operation<T> &operation, size_t n)
{
    constexpr int N = access_values<T>();
    bool are_aligned = is_aligned(operation.x) && is_aligned(operation.bias) &&
                       is_aligned(operation.pre) && is_aligned(operation.y);

    return for_each_value<N>(cuda, operation, n, are_aligned && operation.columns % N == 0);
}

enum rc cuda_bias_activation(struct cuda_backend *cuda, struct activation activation, size_t rows,
                             size_t columns, const void *x, const void *bias, void *pre, void *y)
{
    enum rc rc;

    WITH_ACTIVATIONS(cuda,
                     rc = bias_forward<T>(
                         cuda, {activation, columns, as<T>(x), as<T>(bias), as<T>(pre), as<T>(y)},
                         rows * columns));
    return rc;
}

/* --- sums --------------------------------------------------------------------------------------*/

template <typename T> struct add_operation {
    const T *a, *b;
    bool with_relu;
    T *y;

    template <int N> __device__ void at(size_t i) const
    {
        float left[N], right[N];

        load_values<N>(a + i, left);
        load_values<N>(b + i, right);
        for (int k = 0; k < N; k++) {
            left[k] += right[k];
            if (with_relu) left[k] = relu(left[k]);
        }
        store_values<N>(y + i, left);
    }
};

template <typename T>
static enum rc add(struct cuda_backend *cuda, const T *a, const T *b, bool with_relu, T *y,
                   size_t n)
{
    add_operation<T> operation = {a, b, with_relu, y};

    return for_each_value<access_values<T>()>(cuda, operation, n,
                                              is_aligned(a) && is_aligned(b) && is_aligned(y));
}

enum rc cuda_add(struct backend *backend, const void *a, const void *b, bool with_relu, void *y,
                 size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    WITH_ACTIVATIONS(cuda, rc = add(cuda, as<T>(a), as<T>(b), with_relu, as<T>(y), n));
    return rc;
}

/* --- dropout -----------------------------------------------------------------------------------*/

/* Weyl steps and multipliers of Philox4x32. */
#define PHILOX_MULTIPLIER_0 UINT32_C(0xD2511F53)
#define PHILOX_MULTIPLIER_1 UINT32_C(0xCD9E8D57)
#define PHILOX_STEP_0       UINT32_C(0x9E3779B9)
#define PHILOX_STEP_1       UINT32_C(0xBB67AE85)
enum { PHILOX_ROUNDS = 10, PHILOX_WORDS = 4 };

__device__ static inline void philox(uint64_t key, uint64_t pass, uint64_t counter, uint32_t *words)
{
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = static_cast<uint32_t>(pass), c3 = static_cast<uint32_t>(pass >> 32);
    uint32_t key_0 = static_cast<uint32_t>(key), key_1 = static_cast<uint32_t>(key >> 32);

#pragma unroll
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product_0 = static_cast<uint64_t>(PHILOX_MULTIPLIER_0) * c0;
        uint64_t product_1 = static_cast<uint64_t>(PHILOX_MULTIPLIER_1) * c2;

        c0 = static_cast<uint32_t>(product_1 >> 32) ^ c1 ^ key_0;
        c2 = static_cast<uint32_t>(product_0 >> 32) ^ c3 ^ key_1;
        c1 = static_cast<uint32_t>(product_1);
        c3 = static_cast<uint32_t>(product_0);
        key_0 += PHILOX_STEP_0;
        key_1 += PHILOX_STEP_1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

template <typename T> struct dropout_operation {
    uint64_t key, pass, first;
    const uint64_t *passes;
    uint32_t threshold;
    float factor;
    const T *x;
    T *y;

    /* More values than one are whole counters. */
    template <int N> __device__ void at(size_t i) const
    {
        uint64_t now = pass + (passes != NULL ? *passes : 0), index = first + i;
        float values[N];

        load_values<N>(x + i, values);
#pragma unroll
        for (int k = 0; k < N; k += PHILOX_WORDS) {
            uint32_t words[PHILOX_WORDS], word;
            philox(key, now, (index + k) / PHILOX_WORDS, words);
            for (int w = 0; w < PHILOX_WORDS && k + w < N; w++) {
                word = N > 1 ? words[w] : pick(words, index);
                values[k + w] = word >= threshold ? values[k + w] * factor : 0.0F;
            }
        }
        store_values<N>(y + i, values);
    }

    /* An index that is not known to the compiler would bring the words to slow memory. */
    __device__ static uint32_t pick(const uint32_t *words, uint64_t index)
    {
        uint32_t low = index & 1 ? words[1] : words[0], high = index & 1 ? words[3] : words[2];

        return index & 2 ? high : low;
    }
};

template <typename T>
static enum rc drop(struct cuda_backend *cuda, const struct dropout *dropout, const T *x, T *y,
                    size_t n)
{
    uint32_t threshold = static_cast<uint32_t>(static_cast<double>(dropout->rate) * 4294967296.0);
    float factor = 1.0F / (1.0F - dropout->rate);
    bool are_aligned = is_aligned(x) && is_aligned(y) && dropout->first % PHILOX_WORDS == 0;
    dropout_operation<T> operation = {
        dropout->key, dropout->pass, dropout->first, dropout->passes, threshold, factor, x, y};

    return for_each_value<access_values<T>()>(cuda, operation, n, are_aligned);
}

enum rc cuda_dropout(struct backend *backend, const struct dropout *dropout, const void *x, void *y,
                     size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    CHECK(dropout->rate >= 0.0F && dropout->rate < 1.0F);
    WITH_ACTIVATIONS(cuda, rc = drop(cuda, dropout, as<T>(x), as<T>(y), n));
    return rc;
}

/* --- copies ------------------------------------------------------------------------------------*/

template <typename T> struct copy_operation {
    struct copy_rows copy;
    const T *x;
    T *y;

    template <int N> __device__ void at(size_t i) const
    {
        size_t row = i / copy.count, column = i - row * copy.count;
        T *to = y + row * copy.y_stride + column;
        float values[N], before[N];

        load_values<N>(x + row * copy.x_stride + column, values);
        if (copy.adds) {
            load_values<N>(to, before);
            for (int k = 0; k < N; k++) {
                values[k] += before[k];
            }
        }
        store_values<N>(to, values);
    }
};

template <typename T>
static enum rc copy_matrix(struct cuda_backend *cuda, const struct copy_rows *copy, const T *x,
                           T *y)
{
    constexpr int N = access_values<T>();
    bool are_aligned = is_aligned(x) && is_aligned(y) && copy->count % N == 0 &&
                       copy->x_stride % N == 0 && copy->y_stride % N == 0;
    copy_operation<T> operation = {*copy, x, y};

    return for_each_value<N>(cuda, operation, copy->rows * copy->count, are_aligned);
}

enum rc cuda_copy_rows(struct backend *backend, const struct copy_rows *copy, const void *x,
                       void *y)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    WITH_ACTIVATIONS(cuda, rc = copy_matrix(cuda, copy, as<T>(x), as<T>(y)));
    return rc;
}

/*
 * Optimizer steps in one pass over the flat plane, so that each value, moment and gradient crosses
 * the memory bus once. What each is, with its source, is in replica/optimizer/optimizer.c; the
 * formulas are those of kernels/cpu/optimizer.c, operation by operation. Nothing is contracted to
 * fused multiply-adds: the methods that work value by value give the processor's bits.
 *
 * Layers  LARS, LAMB and Muon get one call a tensor and need norms of it. Blocks whose number
 *         depends on the tensor's length alone leave two float64 sums each in scratch; every block
 *         of the second kernel adds these up for itself, in one order. Two launches a tensor,
 *         nothing waits, and equal calls give equal bits.
 * Copies  of parameters in bfloat16, which products read, get the new values in the same pass
 *         (copies.c), rounded as a conversion of their own would.
 * Muon    Newton-Schulz steps are products of cuBLAS between two such kernels.
 */
#include "kernels/cuda/each.cuh"

#include <cmath>

extern "C" {
#include "kernels/cpu/reference/reference.h"
}

enum { COUNT = access_values<float>(), NORM_BLOCKS = 512, SUMS = 2 };

static_assert(SUMS * NORM_BLOCKS * sizeof(double) <= VECTOR_SCRATCH_BYTES, "scratch of norms");

/* --- arithmetic that rounds after each operation -----------------------------------------------*/

__device__ static inline float plus(float a, float b)
{
    return __fadd_rn(a, b);
}

__device__ static inline float minus(float a, float b)
{
    return __fsub_rn(a, b);
}

__device__ static inline float times(float a, float b)
{
    return __fmul_rn(a, b);
}

/* beta * x + (1 - beta) * y */
__device__ static inline float blend(float beta, float x, float y)
{
    return plus(times(beta, x), times(minus(1.0F, beta), y));
}

/* a / (sqrt(square) + epsilon) */
__device__ static inline float over_root(float a, float square, float epsilon)
{
    return __fdiv_rn(a, plus(__fsqrt_rn(square), epsilon));
}

/* --- copies ------------------------------------------------------------------------------------*/

struct copy_table {
    const struct parameter_copy *spans;
    uint32_t count;
};

static struct copy_table copy_table_of(const update &update)
{
    struct copy_table table = {NULL, 0};

    if (update.copies == NULL) return table;
    table.spans = update.copies->spans;
    table.count = update.copies->count;
    return table;
}

/* Where the copy of the N values from `at` on is; NULL: not all of them are in one copy. */
template <int N> __device__ static inline bf16 *copy_of(const copy_table &table, const float *at)
{
    uint32_t low = 0, high = table.count; /* of the first that begins behind `at` */

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (table.spans[middle].from <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) return NULL;
    const struct parameter_copy span = table.spans[low - 1];
    size_t i = static_cast<size_t>(at - span.from);
    return i + N <= span.count ? static_cast<bf16 *>(span.to) + i : NULL;
}

/* `values` are what `at` has now. */
template <int N>
__device__ static inline void write_copies(const copy_table &table, const float *at,
                                           const float *values)
{
    if (table.count == 0) return;
    bf16 *to = copy_of<N>(table, at);
    if (to != NULL && reinterpret_cast<uintptr_t>(to) % (N * sizeof(bf16)) == 0) {
        store_values<N>(to, values);
        return;
    }
    for (int k = 0; N > 1 && k < N; k++) {
        to = copy_of<1>(table, at + k);
        if (to != NULL) store(to, values[k]);
    }
}

/* --- value by value ----------------------------------------------------------------------------*/

/* What a method does to one value x with gradient g and moments m and s, of which it has MOMENTS;
 * a single one is m. */
struct rule_sgd {
    static constexpr int MOMENTS = 0;

    __device__ static void step(const update &u, float g, float &, float &, float &x)
    {
        x = minus(x, times(u.rate, plus(g, times(u.decay, x))));
    }
};

struct rule_momentum {
    static constexpr int MOMENTS = 1;

    __device__ static void step(const update &u, float g, float &m, float &, float &x)
    {
        m = plus(times(u.beta, m), plus(g, times(u.decay, x)));
        x = minus(x, times(u.rate, m));
    }
};

struct rule_nesterov {
    static constexpr int MOMENTS = 1;

    __device__ static void step(const update &u, float g, float &m, float &, float &x)
    {
        g = plus(g, times(u.decay, x));
        m = plus(times(u.beta, m), g);
        x = minus(x, times(u.rate, plus(g, times(u.beta, m))));
    }
};

struct rule_adagrad {
    static constexpr int MOMENTS = 1;

    __device__ static void step(const update &u, float g, float &m, float &, float &x)
    {
        g = plus(g, times(u.decay, x));
        m = plus(m, times(g, g));
        x = minus(x, over_root(times(u.rate, g), m, u.epsilon));
    }
};

struct rule_rmsprop {
    static constexpr int MOMENTS = 1;

    __device__ static void step(const update &u, float g, float &m, float &, float &x)
    {
        g = plus(g, times(u.decay, x));
        m = blend(u.beta2, m, times(g, g));
        x = minus(x, over_root(times(u.rate, g), m, u.epsilon));
    }
};

struct rule_adam {
    static constexpr int MOMENTS = 2;

    __device__ static void step(const update &u, float g, float &m, float &s, float &x)
    {
        g = plus(g, times(u.decay, x));
        m = blend(u.beta, m, g);
        s = blend(u.beta2, s, times(g, g));
        x = minus(x, over_root(times(u.rate, m), s, u.epsilon));
    }
};

struct rule_adamw {
    static constexpr int MOMENTS = 2;

    __device__ static void step(const update &u, float g, float &m, float &s, float &x)
    {
        m = blend(u.beta, m, g);
        s = blend(u.beta2, s, times(g, g));
        x = minus(minus(x, times(u.decay, x)), over_root(times(u.rate, m), s, u.epsilon));
    }
};

/* Where the values of a call are. */
struct span {
    struct update update;
    const float *gradient;
    float *first, *second; /* moments */
    float *values;
    size_t n;
    size_t at_once; /* values in one access: COUNT where all are aligned, otherwise 1 */
    struct copy_table copies;
};

template <typename RULE> struct rule_operation {
    struct span span;

    template <int N> __device__ void at(size_t i) const
    {
        float g[N], m[N] = {}, s[N] = {}, x[N];

        load_values<N>(span.gradient + i, g);
        load_values<N>(span.values + i, x);
        if (RULE::MOMENTS > 0) load_values<N>(span.first + i, m);
        if (RULE::MOMENTS > 1) load_values<N>(span.second + i, s);
#pragma unroll
        for (int k = 0; k < N; k++) {
            RULE::step(span.update, g[k], m[k], s[k], x[k]);
        }
        if (RULE::MOMENTS > 0) store_values<N>(span.first + i, m);
        if (RULE::MOMENTS > 1) store_values<N>(span.second + i, s);
        store_values<N>(span.values + i, x);
        write_copies<N>(span.copies, span.values + i, x);
    }
};

template <typename RULE> static enum rc update_each(struct cuda_backend *cuda, const span &span)
{
    rule_operation<RULE> operation = {span};

    return for_each_value<COUNT>(cuda, operation, span.n, span.at_once > 1);
}

/* --- sums over a layer -------------------------------------------------------------------------*/

__device__ static inline void add_square(float x, double &sum)
{
    sum += static_cast<double>(x) * static_cast<double>(x);
}

/* Alignment changes how values are read and written, not who adds them. */
template <int N>
__device__ static inline void read_group(const float *x, size_t at_once, float *values)
{
    if (at_once >= N) {
        load_values<N>(x, values);
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        values[k] = x[k];
    }
}

template <int N>
__device__ static inline void write_group(float *y, size_t at_once, const float *values)
{
    if (at_once >= N) {
        store_values<N>(y, values);
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        y[k] = values[k];
    }
}

/* An operation's at<N>(i, sums) adds to two sums; partial[SUMS][NORM_BLOCKS] gets those of each
 * block. */
template <typename F> __global__ void sums_kernel(F operation, size_t n, double *partial)
{
    __shared__ double warps[THREADS / WARP];
    double sums[SUMS] = {0.0, 0.0};

    GRID_STRIDE(i, n / COUNT)
    {
        operation.template at<COUNT>(i * COUNT, sums);
    }
    GRID_STRIDE(i, n % COUNT)
    {
        operation.template at<1>(n - n % COUNT + i, sums);
    }
    for (int k = 0; k < SUMS; k++) {
        double sum = block_sum(sums[k], warps);
        if (threadIdx.x == 0) partial[k * NORM_BLOCKS + blockIdx.x] = sum;
    }
}

/* Of both sums; every thread of the block gets them. */
__device__ static inline void add_partials(const double *partial, unsigned blocks, double *sums)
{
    __shared__ double warps[THREADS / WARP];

    for (int k = 0; k < SUMS; k++) {
        double sum = 0.0;
        for (unsigned i = threadIdx.x; i < blocks; i += blockDim.x) {
            sum += partial[k * NORM_BLOCKS + i];
        }
        sums[k] = block_sum(sum, warps);
    }
}

/* A second pass whose operation is at<N>(i, factor) with one number that factor(sums) makes. */
template <typename F>
__global__ void factor_kernel(F operation, size_t n, const double *partial, unsigned blocks)
{
    __shared__ float factor;
    double sums[SUMS];

    add_partials(partial, blocks, sums);
    if (threadIdx.x == 0) factor = operation.factor(sums);
    __syncthreads();
    GRID_STRIDE(i, n / COUNT)
    {
        operation.template at<COUNT>(i * COUNT, factor);
    }
    GRID_STRIDE(i, n % COUNT)
    {
        operation.template at<1>(n - n % COUNT + i, factor);
    }
}

static unsigned sum_blocks(size_t n)
{
    size_t wanted = (n + THREADS * COUNT - 1) / (THREADS * COUNT), most = NORM_BLOCKS;

    return static_cast<unsigned>(wanted < most ? wanted : most);
}

/* Both passes; n is not 0. */
template <typename F, typename G>
static enum rc sum_and_apply(struct cuda_backend *cuda, F sums, G apply, size_t n)
{
    double *partial = static_cast<double *>(cuda->scratch);
    unsigned blocks = sum_blocks(n);
    enum rc rc;

    CUDA_TRY(cuda, launch(sums_kernel<F>, blocks, THREADS, 0, cuda->stream, sums, n, partial));
    CUDA_TRY(cuda, launch(factor_kernel<G>, blocks_for(cuda, n / COUNT + 1), THREADS, 0,
                          cuda->stream, apply, n, partial, blocks));
out:
    return rc;
}

/* --- LARS --------------------------------------------------------------------------------------*/

struct lars_norms {
    struct span span;

    template <int N> __device__ void at(size_t i, double *sums) const
    {
        float g[N], x[N];

        read_group<N>(span.values + i, span.at_once, x);
        read_group<N>(span.gradient + i, span.at_once, g);
#pragma unroll
        for (int k = 0; k < N; k++) {
            add_square(x[k], sums[0]);
            add_square(g[k], sums[1]);
        }
    }
};

struct lars_apply {
    struct span span;

    /* update_lars_rate() */
    __device__ float factor(const double *sums) const
    {
        const update &u = span.update;
        double value = sqrt(sums[0]), gradient = sqrt(sums[1]);
        double divisor = gradient + static_cast<double>(u.decay) * value + u.epsilon;

        if (!(u.trust > 0.0F) || value == 0.0 || gradient == 0.0) return u.rate;
        return static_cast<float>(static_cast<double>(u.rate) * u.trust * value / divisor);
    }

    template <int N> __device__ void at(size_t i, float rate) const
    {
        float g[N], m[N], x[N];

        read_group<N>(span.gradient + i, span.at_once, g);
        read_group<N>(span.first + i, span.at_once, m);
        read_group<N>(span.values + i, span.at_once, x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            m[k] = plus(times(span.update.beta, m[k]),
                        times(rate, plus(g[k], times(span.update.decay, x[k]))));
            x[k] = minus(x[k], m[k]);
        }
        write_group<N>(span.first + i, span.at_once, m);
        write_group<N>(span.values + i, span.at_once, x);
        write_copies<N>(span.copies, span.values + i, x);
    }
};

/* --- LAMB --------------------------------------------------------------------------------------*/

__device__ static inline float lamb_direction(const update &u, float m, float s, float x)
{
    return plus(over_root(times(u.correction, m), s, u.epsilon), times(u.decay, x));
}

/* New moments; squares of the values and of the direction, which is computed twice rather than
 * kept. */
struct lamb_moments {
    struct span span;

    template <int N> __device__ void at(size_t i, double *sums) const
    {
        const update &u = span.update;
        float g[N], m[N], s[N], x[N];

        read_group<N>(span.gradient + i, span.at_once, g);
        read_group<N>(span.first + i, span.at_once, m);
        read_group<N>(span.second + i, span.at_once, s);
        read_group<N>(span.values + i, span.at_once, x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            m[k] = blend(u.beta, m[k], g[k]);
            s[k] = blend(u.beta2, s[k], times(g[k], g[k]));
            add_square(x[k], sums[0]);
            add_square(lamb_direction(u, m[k], s[k], x[k]), sums[1]);
        }
        write_group<N>(span.first + i, span.at_once, m);
        write_group<N>(span.second + i, span.at_once, s);
    }
};

struct lamb_apply {
    struct span span;

    /* update_lamb_rate() */
    __device__ float factor(const double *sums) const
    {
        const update &u = span.update;

        if (!(u.trust > 0.0F) || sums[0] == 0.0 || sums[1] == 0.0) return u.rate;
        return static_cast<float>(static_cast<double>(u.rate) * sqrt(sums[0]) / sqrt(sums[1]));
    }

    template <int N> __device__ void at(size_t i, float rate) const
    {
        float m[N], s[N], x[N];

        read_group<N>(span.first + i, span.at_once, m);
        read_group<N>(span.second + i, span.at_once, s);
        read_group<N>(span.values + i, span.at_once, x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] = minus(x[k], times(rate, lamb_direction(span.update, m[k], s[k], x[k])));
        }
        write_group<N>(span.values + i, span.at_once, x);
        write_copies<N>(span.copies, span.values + i, x);
    }
};

/* --- Muon --------------------------------------------------------------------------------------*/

/* New momentum, and the direction, not yet orthogonal, with its squares. */
struct muon_blend {
    struct span span;
    float *direction;

    template <int N> __device__ void at(size_t i, double *sums) const
    {
        float beta = span.update.beta, pull[N], m[N];

        read_group<N>(span.gradient + i, span.at_once, pull);
        read_group<N>(span.first + i, span.at_once, m);
#pragma unroll
        for (int k = 0; k < N; k++) {
            pull[k] = times(minus(1.0F, beta), pull[k]);
            m[k] = plus(times(beta, m[k]), pull[k]);
            pull[k] = plus(pull[k], times(beta, m[k]));
            add_square(pull[k], sums[0]);
        }
        write_group<N>(span.first + i, span.at_once, m);
        write_group<N>(direction + i, span.at_once, pull);
    }
};

struct muon_normalise {
    float *direction;
    size_t at_once;

    __device__ float factor(const double *sums) const
    {
        return static_cast<float>(1.0 / (sqrt(sums[0]) + NEWTON_SCHULZ_EPSILON));
    }

    template <int N> __device__ void at(size_t i, float factor) const
    {
        float x[N];

        read_group<N>(direction + i, at_once, x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] = times(x[k], factor);
        }
        write_group<N>(direction + i, at_once, x);
    }
};

struct muon_apply {
    float rate, decay;
    const float *direction;
    float *values;
    struct copy_table copies;

    template <int N> __device__ void at(size_t i) const
    {
        float d[N], x[N];

        load_values<N>(direction + i, d);
        load_values<N>(values + i, x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] = minus(minus(x[k], times(decay, x[k])), times(rate, d[k]));
        }
        store_values<N>(values + i, x);
        write_copies<N>(copies, values + i, x);
    }
};

/* B = a I + b A */
struct muon_polynomial {
    const float *a;
    float *b;
    size_t side;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N];

        load_values<N>(a + i, values);
#pragma unroll
        for (int k = 0; k < N; k++) {
            values[k] *= static_cast<float>(NEWTON_SCHULZ_B);
            if ((i + k) % (side + 1) == 0) values[k] += static_cast<float>(NEWTON_SCHULZ_A);
        }
        store_values<N>(b + i, values);
    }
};

/* On the shorter side of X: A = X X^T, B = a I + b A + c A A, Y = B X, or the transposed form. (The
 * processor adds a X to the product instead, which here would be a copy more.) */
static enum rc newton_schulz_step(struct cuda_backend *cuda, size_t rows, size_t columns,
                                  const float *x, float *y, float *a, float *b)
{
    bool is_wide = rows <= columns;
    size_t side = is_wide ? rows : columns;
    struct gemm square = {}, polynomial = {}, product = {};
    enum rc rc;

    square.is_a_transposed = !is_wide;
    square.is_b_transposed = is_wide;
    square.rows = square.columns = square.c_stride = side;
    square.inner = is_wide ? columns : rows;
    square.alpha = 1.0F;
    square.a = square.b = x;
    square.a_stride = square.b_stride = columns;
    square.c = a;
    polynomial.rows = polynomial.columns = polynomial.inner = side;
    polynomial.a_stride = polynomial.b_stride = polynomial.c_stride = side;
    polynomial.alpha = static_cast<float>(NEWTON_SCHULZ_C);
    polynomial.beta = 1.0F;
    polynomial.a = polynomial.b = a;
    polynomial.c = b;
    product.rows = rows;
    product.columns = product.c_stride = columns;
    product.inner = side;
    product.alpha = 1.0F;
    product.a = is_wide ? b : x;
    product.b = is_wide ? x : b;
    product.a_stride = is_wide ? side : columns;
    product.b_stride = is_wide ? columns : side;
    product.c = y;
    rc = cuda_gemm(&cuda->base, &square);
    if (rc != RC_OK) return rc;
    rc = for_each_value<COUNT>(cuda, muon_polynomial{a, b, side}, side * side,
                               is_aligned(a) && is_aligned(b));
    if (rc == RC_OK) rc = cuda_gemm(&cuda->base, &polynomial);
    if (rc == RC_OK) rc = cuda_gemm(&cuda->base, &product);
    return rc;
}

static enum rc update_muon(struct cuda_backend *cuda, const span &whole)
{
    size_t n = whole.n, rows = whole.update.rows;
    CHECK(rows > 0 && n % rows == 0 && whole.update.workspace != NULL);
    size_t columns = n / rows, side = rows < columns ? rows : columns;
    float *x = whole.update.workspace, *y = x + n, *a = y + n, *b = a + side * side;
    struct span span = whole;
    enum rc rc;

    if (!is_aligned(x)) span.at_once = 1;
    rc = sum_and_apply(cuda, muon_blend{span, x}, muon_normalise{x, span.at_once}, n);
    for (int k = 0; rc == RC_OK && k < NEWTON_SCHULZ_STEPS; k++) {
        float *next = y;
        rc = newton_schulz_step(cuda, rows, columns, x, y, a, b);
        y = x;
        x = next;
    }
    if (rc != RC_OK) return rc;
    return for_each_value<COUNT>(
        cuda, muon_apply{span.update.rate, span.update.decay, x, span.values, span.copies}, n,
        is_aligned(x) && is_aligned(span.values));
}

/* --- all ---------------------------------------------------------------------------------------*/

enum rc cuda_update(struct backend *backend, const struct update *update, const float *gradient,
                    float *moments, float *values, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct span span = {*update, gradient, moments, NULL, values, n, 1, copy_table_of(*update)};

    if (n == 0) return RC_OK;
    span.update.copies = NULL; /* is the host's */
    if (is_aligned(gradient) && is_aligned(values) && is_aligned(moments)) span.at_once = COUNT;
    switch (update->kind) {
    case UPDATE_SGD:
        return update_each<rule_sgd>(cuda, span);
    case UPDATE_MOMENTUM:
        return update_each<rule_momentum>(cuda, span);
    case UPDATE_NESTEROV:
        return update_each<rule_nesterov>(cuda, span);
    case UPDATE_ADAGRAD:
        return update_each<rule_adagrad>(cuda, span);
    case UPDATE_RMSPROP:
        return update_each<rule_rmsprop>(cuda, span);
    case UPDATE_LARS:
        return sum_and_apply(cuda, lars_norms{span}, lars_apply{span}, n);
    case UPDATE_MUON:
        return update_muon(cuda, span);
    default:
        break;
    }
    span.second = moments + (update->plane == 0 ? n : update->plane);
    if (!is_aligned(span.second)) span.at_once = 1;
    switch (update->kind) {
    case UPDATE_ADAM:
        return update_each<rule_adam>(cuda, span);
    case UPDATE_ADAMW:
        return update_each<rule_adamw>(cuda, span);
    case UPDATE_LAMB:
        return sum_and_apply(cuda, lamb_moments{span}, lamb_apply{span}, n);
    default:
        CHECK(false); /* an update of a known kind */
    }
    return RC_UNSUPPORTED;
}

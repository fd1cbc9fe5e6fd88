/*
 * Layer normalisation of rows (Ba, Kiros, Hinton 2016). A team of threads, from a warp to a block,
 * holds a row in registers, 16 bytes at a time: one read, one write. Backward, with
 * hat = (x - mean) rstd and u = dy gamma:
 *     dx = rstd (u - sum u / n - hat sum (u hat) / n),
 * in the same way, while each thread adds up what its columns give to dgamma and dbeta over its
 * team's rows, at most RUN of them. Blocks leave their share in scratch; a second kernel adds up
 * the blocks in a fixed order.
 *
 * Forward, the rows may be sums of two: those of a residual block, added up and rounded as add()
 * does and put where it puts them, but read once. They may take the place of what is added, so they
 * go there when all threads have read the first value, around which sums are taken.
 *
 * Rows beyond what a block holds (16 KiB) are read again instead, and dgamma and dbeta have a
 * kernel of their own.
 *
 * Sums along a row are of x - k, k being its first value, and then of squares around the mean, in
 * float32 by pairs (a thread adds at most 32 values): small variances survive large means. Twin:
 * kernels/cpu/norm/layer.c.
 */
#include "kernels/cuda/channels.cuh"

enum { RUN = 64, HELD_MAX = 4 };

/* A block has THREADS / team rows at once. */
struct layer_rows {
    size_t rows;
    uint32_t columns, team;
    bool are_aligned; /* the parameters */
};

/* Over the threads of a team; all threads of the block call it. */
__device__ static inline float team_sum(float value, uint32_t team)
{
    __shared__ float partial[THREADS / WARP];
    uint32_t warp = threadIdx.x / WARP, warps = team / WARP;
    float sum = 0.0F;

    value = warp_sum(value);
    if (warps == 1) return value;
    __syncthreads(); /* the last call's readers are done */
    if (threadIdx.x % WARP == 0) partial[warp] = value;
    __syncthreads();
    for (uint32_t w = warp - warp % warps; w < warp - warp % warps + warps; w++) {
        sum += partial[w];
    }
    return sum;
}

/* V parameters from column `at` on. */
template <int V>
__device__ static inline void load_parameters(const float *parameters, bool are_aligned,
                                              float *values)
{
    if (are_aligned) {
        load_values<V>(parameters, values);
        return;
    }
    for (int k = 0; k < V; k++) {
        values[k] = parameters[k];
    }
}

/* The rows: x, or a + b, which x gets. */
template <typename T> struct layer_input {
    T *x;
    const T *a, *b;
};

template <typename T> __device__ static inline float rounded_sum(float a, float b)
{
    T sum;

    store(&sum, a + b);
    return load(&sum);
}

/* N accesses of V values each: of x, or of a and b. */
template <typename T, int V, int N, bool SUMS> struct held_rows {
    struct packed<T, V> first[N], second[SUMS ? N : 1];

    __device__ void read(int n, const struct layer_input<T> &input, size_t at)
    {
        first[n] = fetch<V>((SUMS ? input.a : input.x) + at);
        if constexpr (SUMS) second[n] = fetch<V>(input.b + at);
    }

    __device__ void values(int n, float *values) const
    {
        unpack(first[n], values);
        if constexpr (SUMS) {
            float more[V];
            unpack(second[n], more);
            for (int k = 0; k < V; k++) {
                values[k] = rounded_sum<T>(values[k], more[k]);
            }
        }
    }
};

template <typename T, int V, int N, bool SUMS>
static __global__ void __launch_bounds__(THREADS)
    forward_rows(struct layer_rows r, float epsilon, struct layer_input<T> input,
                 const float *gamma, const float *beta, T *y, float *mean, float *rstd)
{
    size_t row = blockIdx.x * static_cast<size_t>(THREADS / r.team) + threadIdx.x / r.team;
    uint32_t lane = threadIdx.x % r.team, columns = row < r.rows ? r.columns : 0;
    size_t from = row * r.columns;
    struct held_rows<T, V, N, SUMS> in;
    float values[N][V] = {}, pilot = 0.0F, sum = 0.0F, squares = 0.0F;

    if (columns > 0) {
        pilot = SUMS ? rounded_sum<T>(load(input.a + from), load(input.b + from))
                     : load(input.x + from);
    }
    for (int n = 0; n < N; n++) {
        uint32_t column = (lane + n * r.team) * V;
        if (column < columns) in.read(n, input, from + column);
    }
    for (int n = 0; n < N; n++) {
        if ((lane + n * r.team) * V >= columns) continue;
        in.values(n, values[n]);
        for (int k = 0; k < V; k++) {
            values[n][k] -= pilot;
            sum += values[n][k];
        }
    }
    float centre = team_sum(sum, r.team) / static_cast<float>(r.columns);
    for (int n = 0; SUMS && n < N; n++) {
        uint32_t column = (lane + n * r.team) * V;
        float sums[V];
        if (column >= columns) continue;
        in.values(n, sums);
        store_values<V>(input.x + from + column, sums);
    }
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < V && (lane + n * r.team) * V < columns; k++) {
            values[n][k] -= centre;
            squares += values[n][k] * values[n][k];
        }
    }
    float variance = team_sum(squares, r.team) / static_cast<float>(r.columns);
    float scale = 1.0F / sqrtf(variance + epsilon);
    if (lane == 0 && columns > 0) {
        mean[row] = pilot + centre;
        rstd[row] = scale;
    }
    for (int n = 0; n < N; n++) {
        uint32_t column = (lane + n * r.team) * V;
        float factors[V], shifts[V];
        if (column >= columns) continue;
        load_parameters<V>(gamma + column, r.are_aligned, factors);
        load_parameters<V>(beta + column, r.are_aligned, shifts);
        for (int k = 0; k < V; k++) {
            values[n][k] = values[n][k] * scale * factors[k] + shifts[k];
        }
        store_values<V>(y + row * r.columns + column, values[n]);
    }
}

/* What a backward kernel touches; partials: [blocks][2][columns], of dbeta and of dgamma. */
template <typename T> struct layer_backward {
    const T *x, *dy;
    T *dx; /* NULL: not wanted */
    const float *mean, *rstd, *gamma;
    bool adds;
    float *partials;
};

/* The block's share of one parameter's gradient: from teams to the first team, and out. */
template <int V, int N>
__device__ static inline void put_share(const struct layer_rows *r, float (&share)[N][V], float *to)
{
    __shared__ float lines[V][THREADS];
    uint32_t lane = threadIdx.x % r->team;

    if (r->team < THREADS) { /* then N is 1 */
        for (int k = 0; k < V; k++) {
            lines[k][threadIdx.x] = share[0][k];
        }
        __syncthreads();
        for (int k = 0; k < V; k++) {
            share[0][k] = 0.0F;
            for (uint32_t t = lane; t < THREADS; t += r->team) {
                share[0][k] += lines[k][t];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x >= r->team) return;
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < V && (lane + n * r->team) * V < r->columns; k++) {
            to[(lane + n * r->team) * V + k] = share[n][k];
        }
    }
}

/* One team's row: what it adds to the parameters' gradients, and dx. */
template <typename T, int V, int N>
__device__ static inline void backward_row(const struct layer_rows *r,
                                           const struct layer_backward<T> *b, size_t row,
                                           float (&dgamma)[N][V], float (&dbeta)[N][V])
{
    uint32_t lane = threadIdx.x % r->team, columns = row < r->rows ? r->columns : 0;
    size_t from = row * r->columns;
    struct packed<T, V> in[N], back[N];
    float hat[N][V] = {}, u[N][V] = {}, sum = 0.0F, product = 0.0F, per = 1.0F / r->columns;
    float mean = columns > 0 ? b->mean[row] : 0.0F, rstd = columns > 0 ? b->rstd[row] : 0.0F;

    for (int n = 0; n < N; n++) {
        uint32_t column = (lane + n * r->team) * V;
        if (column >= columns) continue;
        in[n] = fetch<V>(b->x + from + column);
        back[n] = fetch<V>(b->dy + from + column);
    }
    for (int n = 0; n < N; n++) {
        uint32_t column = (lane + n * r->team) * V;
        float factors[V];
        if (column >= columns) continue;
        unpack(in[n], hat[n]);
        unpack(back[n], u[n]);
        load_parameters<V>(b->gamma + column, r->are_aligned, factors);
        for (int k = 0; k < V; k++) {
            hat[n][k] = (hat[n][k] - mean) * rstd;
            dbeta[n][k] += u[n][k];
            dgamma[n][k] += u[n][k] * hat[n][k];
            u[n][k] *= factors[k];
            sum += u[n][k];
            product += u[n][k] * hat[n][k];
        }
    }
    if (b->dx == NULL) return;
    sum = team_sum(sum, r->team) * per;
    product = team_sum(product, r->team) * per;
    for (int n = 0; n < N; n++) {
        uint32_t column = (lane + n * r->team) * V;
        float before[V] = {0.0F};
        if (column >= columns) continue;
        if (b->adds) load_values<V>(b->dx + from + column, before);
        for (int k = 0; k < V; k++) {
            u[n][k] = before[k] + rstd * (u[n][k] - sum - hat[n][k] * product);
        }
        store_values<V>(b->dx + from + column, u[n]);
    }
}

template <typename T, int V, int N>
static __global__ void __launch_bounds__(THREADS)
    backward_rows(struct layer_rows r, struct layer_backward<T> b)
{
    size_t teams = THREADS / r.team, first = blockIdx.x * teams;
    float dgamma[N][V] = {}, dbeta[N][V] = {};

    for (; first < r.rows; first += gridDim.x * teams) {
        backward_row<T, V, N>(&r, &b, first + threadIdx.x / r.team, dgamma, dbeta);
    }
    put_share<V, N>(&r, dbeta, b.partials + 2 * static_cast<size_t>(blockIdx.x) * r.columns);
    put_share<V, N>(&r, dgamma, b.partials + (2 * static_cast<size_t>(blockIdx.x) + 1) * r.columns);
}

static __global__ void __launch_bounds__(WARP *WARP)
    close_parameters(const float *partials, size_t count, size_t columns, bool is_first,
                     float *dgamma, float *dbeta)
{
    size_t column = PARTIALS_COLUMN;
    double total = partials_total(partials, count, 2 * columns, column);

    if (threadIdx.y > 0 || column >= 2 * columns) return;
    float *to = column < columns ? dbeta + column : dgamma + (column - columns);
    *to = static_cast<float>((is_first ? 0.0 : static_cast<double>(*to)) + total);
}

/* --- rows that no block holds: blocks of one row -----------------------------------------------*/

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    forward_long(size_t columns, float epsilon, const T *x, const float *gamma, const float *beta,
                 T *y, float *mean, float *rstd)
{
    __shared__ double partial[THREADS / WARP];
    const T *from = x + blockIdx.x * columns;
    T *to = y + blockIdx.x * columns;
    double sum = 0.0, squares = 0.0, n = static_cast<double>(columns);
    float pilot = load(from);

    for (size_t i = threadIdx.x; i < columns; i += THREADS) {
        sum += static_cast<double>(load(from + i) - pilot);
    }
    float centre = static_cast<float>(block_sum(sum, partial) / n);
    for (size_t i = threadIdx.x; i < columns; i += THREADS) {
        float d = load(from + i) - pilot - centre;
        squares += static_cast<double>(d * d);
    }
    float scale = 1.0F / sqrtf(static_cast<float>(block_sum(squares, partial) / n) + epsilon);
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = pilot + centre;
        rstd[blockIdx.x] = scale;
    }
    for (size_t i = threadIdx.x; i < columns; i += THREADS) {
        store(to + i, (load(from + i) - pilot - centre) * scale * gamma[i] + beta[i]);
    }
}

/* A thread for each column of RUN rows; `tiles` blocks side by side have all columns. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    backward_columns(size_t rows, size_t columns, uint32_t tiles, struct layer_backward<T> b)
{
    size_t run = blockIdx.x / tiles;
    size_t column = blockIdx.x % tiles * static_cast<size_t>(THREADS) + threadIdx.x;
    size_t first = run * RUN, end = min(rows, first + RUN);
    float *to = b.partials + 2 * run * columns + column;
    float dgamma = 0.0F, dbeta = 0.0F;

    if (column >= columns) return;
#pragma unroll 4
    for (size_t row = first; row < end; row++) {
        float dy = load(b.dy + row * columns + column);
        dbeta += dy;
        dgamma += dy * ((load(b.x + row * columns + column) - b.mean[row]) * b.rstd[row]);
    }
    to[0] = dbeta;
    to[columns] = dgamma;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    backward_long(size_t columns, struct layer_backward<T> b)
{
    __shared__ double partial[THREADS / WARP];
    size_t from = blockIdx.x * columns;
    double sum = 0.0, product = 0.0, n = static_cast<double>(columns);
    float mean = b.mean[blockIdx.x], rstd = b.rstd[blockIdx.x];

    for (size_t i = threadIdx.x; i < columns; i += THREADS) {
        float u = load(b.dy + from + i) * b.gamma[i];
        sum += static_cast<double>(u);
        product += static_cast<double>(u * ((load(b.x + from + i) - mean) * rstd));
    }
    float shift = static_cast<float>(block_sum(sum, partial) / n);
    float slope = static_cast<float>(block_sum(product, partial) / n);
    for (size_t i = threadIdx.x; i < columns; i += THREADS) {
        float hat = (load(b.x + from + i) - mean) * rstd;
        float value = rstd * (load(b.dy + from + i) * b.gamma[i] - shift - hat * slope);
        store(b.dx + from + i, b.adds ? load(b.dx + from + i) + value : value);
    }
}

/* --- launches ----------------------------------------------------------------------------------*/

static uint32_t divided_up(size_t n, size_t by)
{
    return static_cast<uint32_t>((n + by - 1) / by);
}

/* The smallest team whose threads hold `held` accesses of a row at most; 0: there is none. */
static uint32_t team_for(size_t accesses, uint32_t held)
{
    uint32_t team = WARP;

    if (accesses > THREADS * HELD_MAX) return 0;
    while (team < THREADS && accesses > team * held) {
        team *= 2;
    }
    return team;
}

template <typename T, int V, bool SUMS>
static enum rc forward(struct cuda_backend *cuda, const struct layer_norm *norm,
                       const struct layer_input<T> &input, const float *gamma, const float *beta,
                       T *y, float *mean, float *rstd)
{
    uint32_t team = team_for(norm->columns / V, HELD_MAX);
    struct layer_rows r = {norm->rows, static_cast<uint32_t>(norm->columns), team,
                           is_aligned(gamma) && is_aligned(beta)};

    if (team == 0) {
        enum rc rc = !SUMS ? RC_OK
                           : cuda_add(&cuda->base, input.a, input.b, false, input.x,
                                      norm->rows * norm->columns);
        if (rc != RC_OK) return rc;
        return CUDA_CHECK(cuda,
                          launch(forward_long<T>, static_cast<unsigned>(norm->rows), THREADS, 0,
                                 cuda->stream, norm->columns, norm->epsilon,
                                 static_cast<const T *>(input.x), gamma, beta, y, mean, rstd));
    }
    uint32_t held = divided_up(norm->columns, V * team);
    return CUDA_CHECK(cuda, launch(held == 1   ? forward_rows<T, V, 1, SUMS>
                                   : held == 2 ? forward_rows<T, V, 2, SUMS>
                                               : forward_rows<T, V, HELD_MAX, SUMS>,
                                   divided_up(norm->rows, THREADS / team), THREADS, 0, cuda->stream,
                                   r, norm->epsilon, input, gamma, beta, y, mean, rstd));
}

template <typename T, bool SUMS>
static enum rc forward_any(struct cuda_backend *cuda, const struct layer_norm *norm,
                           const struct layer_input<T> &input, const float *gamma,
                           const float *beta, T *y, float *mean, float *rstd)
{
    constexpr int V = access_values<T>();
    bool is_wide = norm->columns % V == 0 && is_aligned(input.x) && is_aligned(input.a) &&
                   is_aligned(input.b) && is_aligned(y);

    return is_wide ? forward<T, V, SUMS>(cuda, norm, input, gamma, beta, y, mean, rstd)
                   : forward<T, 1, SUMS>(cuda, norm, input, gamma, beta, y, mean, rstd);
}

template <typename T>
static enum rc forward_rows_of(struct cuda_backend *cuda, const struct layer_norm *norm, const T *x,
                               const float *gamma, const float *beta, T *y, float *mean,
                               float *rstd)
{
    struct layer_input<T> input = {
        const_cast<T *>(x), NULL, NULL
    }; /* is only read */

    return forward_any<T, false>(cuda, norm, input, gamma, beta, y, mean, rstd);
}

template <typename T>
static enum rc forward_sum(struct cuda_backend *cuda, const struct layer_norm *norm,
                           const struct layer_norm_sum *pass)
{
    struct layer_input<T> input = {
        as<T>(pass->x), as<T>(pass->a), as<T>(pass->b)
    };

    return forward_any<T, true>(cuda, norm, input, pass->gamma, pass->beta, as<T>(pass->y),
                                pass->mean, pass->rstd);
}

enum rc cuda_layer_norm_forward(struct backend *backend, const struct layer_norm *norm,
                                const void *x, const float *gamma, const float *beta, void *y,
                                float *mean, float *rstd)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc = RC_OK;

    CHECK(norm->columns > 0 && norm->columns <= INT32_MAX && norm->rows <= INT32_MAX);
    if (norm->rows == 0) return RC_OK;
    WITH_ACTIVATIONS(cuda,
                     rc = forward_rows_of(cuda, norm, as<T>(x), gamma, beta, as<T>(y), mean, rstd));
    return rc;
}

enum rc cuda_layer_norm_sum_forward(struct backend *backend, const struct layer_norm *norm,
                                    const struct layer_norm_sum *pass)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc = RC_OK;

    CHECK(norm->columns > 0 && norm->columns <= INT32_MAX && norm->rows <= INT32_MAX);
    if (norm->rows == 0) return RC_OK;
    WITH_ACTIVATIONS(cuda, rc = forward_sum<T>(cuda, norm, pass));
    return rc;
}

/* Blocks of a backward pass: enough to fill the device, and so many that no team has more than RUN
 * rows. */
static uint32_t backward_blocks(const struct cuda_backend *cuda, size_t rows, uint32_t teams)
{
    uint32_t least = divided_up(rows, teams * RUN), wanted = divided_up(rows, teams * 8);

    if (wanted > 3 * cuda->multiprocessors) wanted = 3 * cuda->multiprocessors;
    return least > wanted ? least : wanted;
}

template <typename T, int V>
static enum rc backward(struct cuda_backend *cuda, const struct layer_norm *norm,
                        const struct norm_backward *pass)
{
    struct layer_backward<T> b = {
        as<T>(pass->x), as<T>(pass->dy), as<T>(pass->dx), pass->mean, pass->rstd, pass->gamma,
            pass->adds_to_dx, NULL
    };
    uint32_t team = team_for(norm->columns / V, 1);
    struct layer_rows r = {norm->rows, static_cast<uint32_t>(norm->columns), team,
                           is_aligned(pass->gamma)};
    uint32_t count =
        team == 0 ? divided_up(norm->rows, RUN) : backward_blocks(cuda, norm->rows, THREADS / team);
    enum rc rc = cuda_scratch_reserve(cuda, 2 * count * norm->columns * sizeof(float));

    if (rc != RC_OK) return rc;
    b.partials = static_cast<float *>(cuda->scratch);
    if (team == 0) {
        uint32_t tiles = divided_up(norm->columns, THREADS);
        CUDA_TRY(cuda, launch(backward_columns<T>, tiles * count, THREADS, 0, cuda->stream,
                              norm->rows, norm->columns, tiles, b));
        if (b.dx != NULL) {
            CUDA_TRY(cuda, launch(backward_long<T>, static_cast<unsigned>(norm->rows), THREADS, 0,
                                  cuda->stream, norm->columns, b));
        }
    } else {
        uint32_t held = divided_up(norm->columns, V * team);
        CUDA_TRY(cuda, launch(held == 1   ? backward_rows<T, V, 1>
                              : held == 2 ? backward_rows<T, V, 2>
                                          : backward_rows<T, V, HELD_MAX>,
                              count, THREADS, 0, cuda->stream, r, b));
    }
    CUDA_TRY(cuda, launch(close_parameters, partials_blocks(2 * norm->columns), dim3(WARP, WARP), 0,
                          cuda->stream, b.partials, count, norm->columns, pass->is_first,
                          pass->dgamma, pass->dbeta));
out:
    return rc;
}

template <typename T>
static enum rc backward_any(struct cuda_backend *cuda, const struct layer_norm *norm,
                            const struct norm_backward *pass)
{
    constexpr int V = access_values<T>();
    bool is_wide = norm->columns % V == 0 && is_aligned(pass->x) && is_aligned(pass->dy) &&
                   is_aligned(pass->dx);

    return is_wide ? backward<T, V>(cuda, norm, pass) : backward<T, 1>(cuda, norm, pass);
}

enum rc cuda_layer_norm_backward(struct backend *backend, const struct layer_norm *norm,
                                 const struct norm_backward *pass)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc = RC_OK;

    CHECK(norm->columns > 0 && norm->columns <= INT32_MAX && norm->rows <= INT32_MAX);
    CHECK(!(pass->adds_to_dx && pass->dx == pass->dy));
    if (norm->rows == 0) return RC_OK;
    WITH_ACTIVATIONS(cuda, rc = backward_any<T>(cuda, norm, pass));
    return rc;
}

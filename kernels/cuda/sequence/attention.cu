/*
 * Attention: the entries, and what surrounds the kernels proper, which are FlashAttention-2 (Dao
 * 2023, arXiv:2307.08691): attention_tensor.cu and attention_tensor_backward.cu on tensor cores for
 * bfloat16 and common head widths, attention_plain.cu for all else.
 *
 * Rotary positions (Su et al. 2021, arXiv:2104.09864): step t turns the pair (i, i + width / 2) by
 * t * 10000^(-2 i / width). Angles are taken in float64, into a table of cosines and sines; queries
 * and keys are rotated into scratch memory once, not once for every tile that reads them.
 */
#include "kernels/cuda/sequence/attention.cuh"
#include "kernels/cuda/sequence/attention_choice.h"

#include "base/check.h"

#define CACHE_BYTES ((size_t)16 << 20) /* of the second cache, for keys and values */

enum { ROPE_THREADS = 128 };

/* Where things lie in scratch memory, in bytes from its begin. */
struct attention_layout {
    size_t rotation, rotated, rows, total;
};

static size_t take(size_t *at, size_t bytes)
{
    size_t begin = *at;

    *at += (bytes + 255) / 256 * 256;
    return begin;
}

static uint32_t padded_of(const struct attention *attention)
{
    return (uint32_t)(((size_t)attention->steps + PADDING - 1) / PADDING * PADDING);
}

static struct attention_layout layout_of(const struct attention *attention, size_t value_bytes)
{
    size_t steps = attention->steps, rows = attention->samples * steps;
    size_t head_width = attention->width / attention->heads, at = 0;
    bool is_rotary = attention->is_rotary;
    struct attention_layout layout;

    layout.rotation = take(&at, is_rotary ? steps * (head_width / 2) * sizeof(float2) : 0);
    layout.rotated = take(&at, is_rotary ? rows * 2 * attention->width * value_bytes : 0);
    layout.rows = take(&at, (size_t)attention->samples * attention->heads * padded_of(attention) *
                                sizeof(struct attention_row));
    layout.total = at;
    return layout;
}

__global__ void attention_rotation_kernel(float2 *table, uint32_t steps, uint32_t half)
{
    GRID_STRIDE(i, (size_t)steps * half)
    {
        double angle = pow(10000.0, -(double)(i % half) / half) * (double)(i / half), sine, cosine;

        sincos(angle, &sine, &cosine);
        table[i] = make_float2((float)cosine, (float)sine);
    }
}

template <typename T, int PAIRS> struct alignas(PAIRS * sizeof(T)) attention_piece {
    T values[PAIRS];
};

/* Rows of pairs to be rotated. `to` may be `from`. */
struct attention_rope {
    const void *from;
    void *to;
    size_t from_stride, to_stride;
    const float2 *rotation;
    float direction; /* -1: back */
    uint32_t steps, heads, half;
};

/* A block a row; PAIRS neighbouring pairs a thread. */
template <typename T, int PAIRS>
__global__ void attention_rope_kernel(struct attention_rope rope, size_t rows)
{
    typedef attention_piece<T, PAIRS> piece;
    uint32_t pieces = rope.half / PAIRS;

    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *from = static_cast<const T *>(rope.from) + row * rope.from_stride;
        T *to = static_cast<T *>(rope.to) + row * rope.to_stride;
        const float2 *table = rope.rotation + row % rope.steps * rope.half;

        for (uint32_t i = threadIdx.x; i < rope.heads * pieces; i += blockDim.x) {
            uint32_t at = i % pieces * PAIRS;
            size_t first = (size_t)(i / pieces) * 2 * rope.half + at, second = first + rope.half;
            piece a = *reinterpret_cast<const piece *>(from + first);
            piece b = *reinterpret_cast<const piece *>(from + second);

            for (int j = 0; j < PAIRS; j++) {
                float cosine = table[at + j].x, sine = rope.direction * table[at + j].y;
                float x = load(&a.values[j]), y = load(&b.values[j]);
                store(&a.values[j], x * cosine - y * sine);
                store(&b.values[j], x * sine + y * cosine);
            }
            *reinterpret_cast<piece *>(to + first) = a;
            *reinterpret_cast<piece *>(to + second) = b;
        }
    }
}

/* A warp a query, also those of the padding: what the backward pass needs of it. */
template <typename T>
__global__ void attention_rows_kernel(struct attention_pass pass, const T *y,
                                      struct attention_row *rows)
{
    uint32_t lane = threadIdx.x % WARP;
    size_t count = (size_t)pass.sequences * pass.padded;

    for (size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / WARP; i < count;
         i += (size_t)gridDim.x * blockDim.x / WARP) {
        size_t sequence = i / pass.padded, step = i % pass.padded;
        size_t at = (sequence / pass.heads * pass.steps + step) * pass.width +
                    sequence % pass.heads * pass.head_width;
        struct attention_row row = {INFINITY, 0.0f};

        if (step < pass.steps) {
            const T *dy = static_cast<const T *>(pass.dy) + at;
            float sum = 0.0f;
            for (uint32_t d = lane; d < pass.head_width; d += WARP) {
                sum += load(dy + d) * load(y + at + d);
            }
            row.log_sum = pass.statistics[sequence * pass.steps + step] * (float)LOG2_E;
            row.delta = warp_sum(sum);
        }
        if (lane == 0) rows[i] = row;
    }
}

static unsigned rotate_blocks(const struct cuda_backend *cuda, size_t rows)
{
    size_t most = 32 * (size_t)cuda->multiprocessors;

    return (unsigned)(rows < most ? rows : most);
}

static bool is_aligned(const void *pointer, size_t bytes)
{
    return (uintptr_t)pointer % bytes == 0;
}

template <typename T>
static enum rc rotate_rows(struct cuda_backend *cuda, size_t rows, struct attention_rope rope)
{
    enum { PAIRS = 16 / sizeof(T) };
    unsigned blocks = rotate_blocks(cuda, rows);

    if (rope.half % PAIRS == 0 && is_aligned(rope.from, 16) && is_aligned(rope.to, 16)) {
        return CUDA_CHECK(cuda, launch(attention_rope_kernel<T, PAIRS>, dim3(blocks),
                                       dim3(ROPE_THREADS), 0, cuda->stream, rope, rows));
    }
    return CUDA_CHECK(cuda, launch(attention_rope_kernel<T, 1>, dim3(blocks), dim3(ROPE_THREADS), 0,
                                   cuda->stream, rope, rows));
}

static void check(const struct attention *attention)
{
    CHECK(attention->steps > 0 && attention->heads > 0 && attention->width > 0);
    CHECK(attention->width % attention->heads == 0);
    CHECK(!attention->is_rotary || attention->width / attention->heads % 2 == 0);
}

template <typename T>
static struct attention_pass pass_of(const struct cuda_backend *cuda,
                                     const struct attention *attention, const T *qkv,
                                     struct attention_layout layout)
{
    uint32_t width = attention->width, head_width = width / attention->heads;
    uint32_t sequences = attention->samples * attention->heads;
    size_t together = CACHE_BYTES / ((size_t)attention->steps * head_width * 2 * sizeof(T));
    char *scratch = static_cast<char *>(cuda->scratch);
    struct attention_pass pass = {};

    check(attention);
    CHECK(cuda->scratch_bytes >= layout.total); /* attention_reserve() was called */
    pass.queries = qkv;
    pass.keys = qkv + width;
    pass.values = qkv + 2 * (size_t)width;
    pass.query_stride = pass.value_stride = 3 * (size_t)width;
    if (attention->is_rotary) {
        const T *rotated = reinterpret_cast<const T *>(scratch + layout.rotated);
        pass.queries = rotated;
        pass.keys = rotated + width;
        pass.query_stride = 2 * (size_t)width;
        pass.rotation = reinterpret_cast<const float2 *>(scratch + layout.rotation);
    }
    pass.rows = reinterpret_cast<const struct attention_row *>(scratch + layout.rows);
    pass.steps = attention->steps;
    pass.padded = padded_of(attention);
    pass.heads = attention->heads;
    pass.head_width = head_width;
    pass.width = width;
    pass.sequences = sequences;
    pass.together = (uint32_t)(together < 1 ? 1 : together < sequences ? together : sequences);
    pass.scale = 1.0f / sqrtf((float)head_width);
    pass.scale2 = (float)(LOG2_E / sqrt((double)head_width));
    pass.is_causal = attention->is_causal;
    return pass;
}

/* Queries and keys into scratch memory, rotated. */
template <typename T>
static enum rc rope_all(struct cuda_backend *cuda, const struct attention_pass &pass, const T *qkv)
{
    struct attention_rope rope = {};
    enum rc rc;

    rope.from = qkv;
    rope.to = const_cast<void *>(pass.queries);
    rope.from_stride = pass.value_stride;
    rope.to_stride = pass.query_stride;
    rope.rotation = pass.rotation;
    rope.direction = 1.0f;
    rope.steps = pass.steps;
    rope.heads = 2 * pass.heads; /* those of keys follow those of queries */
    rope.half = pass.head_width / 2;
    CUDA_TRY(cuda,
             launch(attention_rotation_kernel,
                    dim3(blocks_for(cuda, (size_t)rope.steps * rope.half)), dim3(THREADS), 0,
                    cuda->stream, const_cast<float2 *>(pass.rotation), rope.steps, rope.half));
    rc = rotate_rows<T>(cuda, (size_t)pass.sequences / pass.heads * pass.steps, rope);
out:
    return rc;
}

static bool has_tensor(const struct cuda_backend *cuda, const struct attention_pass &pass)
{
    return cuda->is_bf16 && is_aligned(pass.queries, 16) && is_aligned(pass.values, 16) &&
           is_aligned(pass.y, 16) && is_aligned(pass.dy, 16) && is_aligned(pass.dqkv, 16) &&
           attention_tensor_has(cuda, pass.head_width);
}

/* Whether a graph takes the pass; where it leaves statistics that nobody wants is of no matter. */
static bool graph_takes(const struct attention_graph *graph, const struct attention_pass &pass)
{
    return graph != NULL && is_aligned(pass.queries, 16) && is_aligned(pass.values, 16) &&
           is_aligned(pass.y, 16) && is_aligned(pass.dy, 16) && is_aligned(pass.dqkv, 16);
}

static enum rc run_graph(struct cuda_backend *cuda, struct attention_graph *graph,
                         const struct attention_pass &pass, const void *y, size_t workspace_at)
{
    bf16 *dqkv = static_cast<bf16 *>(pass.dqkv);
    void *operands[GRAPH_OPERANDS] = {};

    operands[GRAPH_QUERIES] = const_cast<void *>(pass.queries);
    operands[GRAPH_KEYS] = const_cast<void *>(pass.keys);
    operands[GRAPH_VALUES] = const_cast<void *>(pass.values);
    operands[GRAPH_Y] = const_cast<void *>(y);
    operands[GRAPH_STATISTICS] = pass.statistics;
    operands[GRAPH_DY] = const_cast<void *>(pass.dy);
    operands[GRAPH_DQUERIES] = dqkv;
    if (dqkv != NULL) operands[GRAPH_DKEYS] = dqkv + pass.width;
    if (dqkv != NULL) operands[GRAPH_DVALUES] = dqkv + 2 * (size_t)pass.width;
    return cuda_check_dnn(
        cuda,
        attention_graph_run(graph, operands, static_cast<char *>(cuda->scratch) + workspace_at),
        "attention_graph_run", __FILE__, __LINE__);
}

template <typename T>
static enum rc forward(struct cuda_backend *cuda, const struct attention *attention,
                       struct attention_graph *graph, const T *qkv, T *y, float *statistics)
{
    struct attention_layout layout = layout_of(attention, sizeof(T));
    struct attention_pass pass = pass_of<T>(cuda, attention, qkv, layout);
    enum rc rc = RC_OK;

    pass.y = y;
    pass.statistics = statistics;
    if (attention->is_rotary) rc = rope_all<T>(cuda, pass, qkv);
    if (rc != RC_OK) return rc;
    if (graph_takes(graph, pass)) {
        if (statistics == NULL) {
            pass.statistics =
                reinterpret_cast<float *>(static_cast<char *>(cuda->scratch) + layout.rows);
        }
        return run_graph(cuda, graph, pass, y, layout.total);
    }
    return has_tensor(cuda, pass) ? attention_tensor_forward(cuda, &pass)
                                  : attention_plain_forward(cuda, &pass);
}

/* The gradients of plain kernels and graphs are those of rotated queries and keys. */
template <typename T>
static enum rc rotate_back(struct cuda_backend *cuda, const struct attention_pass &pass)
{
    struct attention_rope rope = {};

    rope.from = rope.to = pass.dqkv;
    rope.from_stride = rope.to_stride = 3 * (size_t)pass.width;
    rope.rotation = pass.rotation;
    rope.direction = -1.0f;
    rope.steps = pass.steps;
    rope.heads = 2 * pass.heads;
    rope.half = pass.head_width / 2;
    return rotate_rows<T>(cuda, (size_t)pass.sequences / pass.heads * pass.steps, rope);
}

template <typename T>
static enum rc backward(struct cuda_backend *cuda, const struct attention *attention,
                        struct attention_graph *graph, const struct attention_backward *from)
{
    struct attention_layout layout = layout_of(attention, sizeof(T));
    struct attention_pass pass = pass_of<T>(cuda, attention, as<T>(from->qkv), layout);
    enum rc rc = RC_OK;

    pass.dy = from->dy;
    pass.statistics = const_cast<float *>(from->statistics);
    pass.dqkv = from->dqkv;
    if (attention->is_rotary) rc = rope_all<T>(cuda, pass, as<T>(from->qkv));
    if (rc != RC_OK) goto out;
    if (graph_takes(graph, pass) && is_aligned(from->y, 16)) {
        rc = run_graph(cuda, graph, pass, from->y, layout.total);
        return rc == RC_OK && attention->is_rotary ? rotate_back<T>(cuda, pass) : rc;
    }
    CUDA_TRY(cuda, launch(attention_rows_kernel<T>,
                          dim3(blocks_for(cuda, (size_t)pass.sequences * pass.padded * WARP)),
                          dim3(THREADS), 0, cuda->stream, pass, as<T>(from->y),
                          const_cast<struct attention_row *>(pass.rows)));
    if (has_tensor(cuda, pass)) return attention_tensor_backward(cuda, &pass);
    rc = attention_plain_backward(cuda, &pass);
    if (rc == RC_OK && attention->is_rotary) rc = rotate_back<T>(cuda, pass);
out:
    return rc;
}

enum rc attention_forward_by(struct cuda_backend *cuda, const struct attention *attention,
                             struct attention_graph *graph, const void *qkv, void *y,
                             float *statistics)
{
    enum rc rc;

    WITH_ACTIVATIONS(cuda,
                     rc = forward<T>(cuda, attention, graph, as<T>(qkv), as<T>(y), statistics));
    return rc;
}

enum rc attention_backward_by(struct cuda_backend *cuda, const struct attention *attention,
                              struct attention_graph *graph, const struct attention_backward *pass)
{
    enum rc rc;

    WITH_ACTIVATIONS(cuda, rc = backward<T>(cuda, attention, graph, pass));
    return rc;
}

enum rc cuda_attention_forward(struct backend *backend, const struct attention *attention,
                               const void *qkv, void *y, float *statistics)
{
    struct cuda_backend *cuda = cuda_of(backend);

    if (attention->samples == 0) return RC_OK;
    return attention_forward_by(cuda, attention, attention_chosen(cuda, attention, false), qkv, y,
                                statistics);
}

enum rc cuda_attention_backward(struct backend *backend, const struct attention *attention,
                                const struct attention_backward *pass)
{
    struct cuda_backend *cuda = cuda_of(backend);

    if (attention->samples == 0) return RC_OK;
    return attention_backward_by(cuda, attention, attention_chosen(cuda, attention, true), pass);
}

size_t attention_scratch(const struct cuda_backend *cuda, const struct attention *attention)
{
    return layout_of(attention, cuda->base.value_bytes).total;
}

enum rc cuda_attention_reserve(struct backend *backend, const struct attention *attention)
{
    struct cuda_backend *cuda = cuda_of(backend);
    uint32_t head_width = attention->width / attention->heads;
    enum rc rc;

    check(attention);
    rc = cuda_scratch_reserve(cuda, attention_scratch(cuda, attention));
    if (rc == RC_OK && cuda->is_bf16 && attention_tensor_has(cuda, head_width)) {
        rc = attention_tensor_allow_forward(cuda, head_width);
        if (rc == RC_OK) rc = attention_tensor_allow_backward(cuda, head_width);
    }
    if (rc == RC_OK) attention_choose(cuda, attention);
    return rc;
}

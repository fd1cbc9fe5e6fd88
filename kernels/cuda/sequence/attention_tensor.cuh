/*
 * Tiles of attention on tensor cores, for attention_tensor.cu and attention_tensor_backward.cu.
 *
 * A block has WARPS warps; a warp has BLOCKS times 16 rows of the block's own tile to itself and
 * streams the other side's tiles past them. Sums lie in registers in the form of mma.sync's C
 * fragments: sums[m][n][j] is row 16 m + lane / 4 (+ 8 if j > 1), column 8 n + 2 (lane % 4) + j
 * % 2. Two C fragments side by side are an A fragment of the next product, so weights go from one
 * product to the next without leaving their registers (Dao 2023, arXiv:2307.08691, 3.3).
 *
 * Rows in shared memory are 16 bytes longer than their values: an odd number of such pieces, so
 * that eight rows' pieces, as ldmatrix reads them, lie in different banks for every width.
 *
 * Loops over fragments must be unrolled, else the sums leave their registers: UNROLL.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_TENSOR_CUH
#define GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_TENSOR_CUH

#include "kernels/cuda/sequence/attention.cuh"

#include <string.h>

enum { WARPS = 4, TILE_THREADS = WARPS * WARP, PIECE = 8 /* values in 16 bytes */ };

/* Values between rows in shared memory. */
template <int WIDTH> struct tile_row {
    enum { STRIDE = WIDTH + PIECE };
};

/* ROWS rows from global to shared memory, zeros from row `left` on. All threads call it. */
template <int WIDTH, int ROWS>
static __device__ inline void tile_load(bf16 *to, const bf16 *from, size_t stride, uint32_t left)
{
    enum { PIECES = WIDTH / PIECE, ALL = ROWS * PIECES };

    UNROLL
    for (int n = 0; n < (ALL + TILE_THREADS - 1) / TILE_THREADS; n++) {
        int i = n * TILE_THREADS + threadIdx.x, row = i / PIECES, piece = i % PIECES;
        bool is_there = (uint32_t)row < left;
        if (ALL % TILE_THREADS != 0 && i >= ALL) break;
        copy_async(to + row * tile_row<WIDTH>::STRIDE + piece * PIECE,
                   from + (is_there ? row : 0) * stride + piece * PIECE, is_there);
    }
}

static __device__ inline uint32_t pack_pair(float first, float second)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    uint32_t bits;

    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

/* The warp's own rows as A fragments: read once and kept where registers allow it, otherwise read
 * from shared memory for every product. */
template <int WIDTH, int BLOCKS, bool IS_KEPT> struct own_rows {
    const bf16 *lane; /* what this lane passes to ldmatrix for the first fragment */
    uint32_t kept[IS_KEPT ? WIDTH / 16 : 1][BLOCKS][4];
};

template <int WIDTH, int BLOCKS, bool IS_KEPT>
static __device__ inline void own_rows_set(own_rows<WIDTH, BLOCKS, IS_KEPT> &own, const bf16 *rows)
{
    enum { STRIDE = tile_row<WIDTH>::STRIDE };
    int lane = threadIdx.x % WARP;

    own.lane = rows + lane % 16 * STRIDE + lane / 16 * PIECE;
    if constexpr (IS_KEPT) {
        UNROLL
        for (int i = 0; i < WIDTH / 16 * BLOCKS; i++) {
            int k = i / BLOCKS, m = i % BLOCKS;
            load_matrices(own.kept[k][m], own.lane + m * 16 * STRIDE + k * 16);
        }
    }
}

/* sums = own rows times COLUMNS rows of `other`, value by value. */
template <int WIDTH, int BLOCKS, int COLUMNS, bool IS_KEPT>
static __device__ inline void multiply_rows(float (&sums)[BLOCKS][COLUMNS / 8][4],
                                            const own_rows<WIDTH, BLOCKS, IS_KEPT> &own,
                                            const bf16 *other)
{
    enum { STRIDE = tile_row<WIDTH>::STRIDE };
    int lane = threadIdx.x % WARP;

    other += (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * PIECE;
    UNROLL
    for (int m = 0; m < BLOCKS; m++) {
        UNROLL
        for (int n = 0; n < COLUMNS / 8; n++) {
            sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0.0f;
        }
    }
    UNROLL
    for (int k = 0; k < WIDTH / 16; k++) {
        uint32_t a[BLOCKS][4], b[4];
        UNROLL
        for (int m = 0; m < BLOCKS; m++) {
            if constexpr (IS_KEPT) {
                memcpy(a[m], own.kept[k][m], sizeof(a[m]));
            } else {
                load_matrices(a[m], own.lane + m * 16 * STRIDE + k * 16);
            }
        }
        UNROLL
        for (int n = 0; n < COLUMNS / 16; n++) {
            load_matrices(b, other + n * 16 * STRIDE + k * 16);
            UNROLL
            for (int m = 0; m < BLOCKS; m++) {
                mma_bf16(sums[m][2 * n], a[m], b);
                mma_bf16(sums[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* sums += weights (rounded to bfloat16) times `other`, whose rows are their columns. */
template <int WIDTH, int BLOCKS, int COLUMNS>
static __device__ inline void add_weighted(float (&sums)[BLOCKS][WIDTH / 8][4],
                                           const float (&weights)[BLOCKS][COLUMNS / 8][4],
                                           const bf16 *other)
{
    enum { STRIDE = tile_row<WIDTH>::STRIDE };
    int lane = threadIdx.x % WARP;

    other += lane % 16 * STRIDE + lane / 16 * PIECE;
    UNROLL
    for (int k = 0; k < COLUMNS / 16; k++) {
        uint32_t a[BLOCKS][4], b[4];
        UNROLL
        for (int m = 0; m < BLOCKS; m++) {
            const float *left = weights[m][2 * k], *right = weights[m][2 * k + 1];
            a[m][0] = pack_pair(left[0], left[1]);
            a[m][1] = pack_pair(left[2], left[3]);
            a[m][2] = pack_pair(right[0], right[1]);
            a[m][3] = pack_pair(right[2], right[3]);
        }
        UNROLL
        for (int n = 0; n < WIDTH / 16; n++) {
            load_matrices_transposed(b, other + k * 16 * STRIDE + n * 16);
            UNROLL
            for (int m = 0; m < BLOCKS; m++) {
                mma_bf16(sums[m][2 * n], a[m], b);
                mma_bf16(sums[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* The warp's sums to its rows in global memory, of which there are `left`, by way of its own rows
 * in shared memory, so that whole pieces are written. */
template <int WIDTH, int BLOCKS>
static __device__ inline void store_rows(const float (&sums)[BLOCKS][WIDTH / 8][4], bf16 *shared,
                                         bf16 *to, size_t stride, int left)
{
    enum { STRIDE = tile_row<WIDTH>::STRIDE, PIECES = WIDTH / PIECE };
    int lane = threadIdx.x % WARP;

    UNROLL
    for (int m = 0; m < BLOCKS; m++) {
        UNROLL
        for (int n = 0; n < WIDTH / 8; n++) {
            bf16 *at = shared + (m * 16 + lane / 4) * STRIDE + n * 8 + lane % 4 * 2;
            *reinterpret_cast<uint32_t *>(at) = pack_pair(sums[m][n][0], sums[m][n][1]);
            at += 8 * STRIDE;
            *reinterpret_cast<uint32_t *>(at) = pack_pair(sums[m][n][2], sums[m][n][3]);
        }
    }
    __syncwarp();
    for (int i = lane; i < BLOCKS * 16 * PIECES; i += WARP) {
        int row = i / PIECES, piece = i % PIECES;
        if (row < left) {
            *reinterpret_cast<uint4 *>(to + row * stride + piece * PIECE) =
                *reinterpret_cast<const uint4 *>(shared + row * STRIDE + piece * PIECE);
        }
    }
}

/* Bytes of shared memory for that many rows. */
template <int WIDTH> constexpr size_t tile_bytes(int rows)
{
    return (size_t)rows * tile_row<WIDTH>::STRIDE * sizeof(bf16);
}

/* Run `statement` with WIDTH as the head's width; nothing for widths that have no kernels. */
#define WITH_WIDTH(head_width, ...)                                                                \
    do {                                                                                           \
        switch (head_width) {                                                                      \
            WIDTH_CASE(16, __VA_ARGS__)                                                            \
            WIDTH_CASE(32, __VA_ARGS__)                                                            \
            WIDTH_CASE(64, __VA_ARGS__)                                                            \
            WIDTH_CASE(80, __VA_ARGS__)                                                            \
            WIDTH_CASE(96, __VA_ARGS__)                                                            \
            WIDTH_CASE(128, __VA_ARGS__)                                                           \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    } while (0)
#define WIDTH_CASE(width, ...)                                                                     \
    case width: {                                                                                  \
        enum { WIDTH = width };                                                                    \
        __VA_ARGS__;                                                                               \
    } break;

/* Tiles of 128 rows read the other side half as often as those of 64, but must be enough to fill
 * the device. */
static inline bool attention_is_wide(const struct cuda_backend *cuda,
                                     const struct attention_pass &pass)
{
    return pass.steps > 64 &&
           (size_t)attention_tiles(pass, 128) * pass.sequences >= cuda->multiprocessors;
}

#endif

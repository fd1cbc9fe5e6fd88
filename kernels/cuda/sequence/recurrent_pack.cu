/*
 * Between our form of sequences and parameters and cuDNN's: batches with samples or with steps in
 * front, in passing also between bfloat16 and float32; and parameters in one block of memory, where
 * the library wants each of them.
 */
#include "kernels/cuda/sequence/recurrent.h"
#include "kernels/cuda/value.cuh"

enum { ROWS = THREADS / WARP }; /* that a block copies at a time, a warp each */

/* Where a row lies with steps in front. */
__device__ static inline size_t row_at(const struct recurrent_batch &b, size_t row)
{
    size_t sample = row / b.steps, step = row % b.steps;

    return step / b.each * b.stride + (step % b.each * b.samples + sample) * b.width;
}

template <typename T> __global__ void pack_steps(struct recurrent_batch b, const T *x, float *y)
{
    size_t first = blockIdx.x * static_cast<size_t>(ROWS) + threadIdx.y;

    for (size_t row = first; row < b.samples * b.steps; row += gridDim.x * size_t(ROWS)) {
        const T *from = x + row * b.width;
        float *to = y + row_at(b, row);

        for (size_t i = threadIdx.x; i < b.width; i += WARP) {
            to[i] = load(from + i);
        }
    }
}

template <typename T>
__global__ void unpack_steps(struct recurrent_batch b, const float *x, bool adds, T *y)
{
    size_t first = blockIdx.x * static_cast<size_t>(ROWS) + threadIdx.y;

    for (size_t row = first; row < b.samples * b.steps; row += gridDim.x * size_t(ROWS)) {
        const float *from = x + row_at(b, row);
        T *to = y + row * b.width;

        for (size_t i = threadIdx.x; i < b.width; i += WARP) {
            store(to + i, adds ? load(to + i) + from[i] : from[i]);
        }
    }
}

static unsigned blocks_of(const struct cuda_backend *cuda, const struct recurrent_batch &batch)
{
    return blocks_for(cuda, batch.samples * batch.steps * WARP);
}

enum rc cuda_steps_first(struct cuda_backend *cuda, struct recurrent_batch batch, const float *x,
                         float *y)
{
    cudaError_t error;

    WITH_ACTIVATIONS(cuda, error = launch(pack_steps<T>, blocks_of(cuda, batch), dim3(WARP, ROWS),
                                          0, cuda->stream, batch, as<T>(x), y));
    return CUDA_CHECK(cuda, error);
}

enum rc cuda_samples_first(struct cuda_backend *cuda, struct recurrent_batch batch, const float *x,
                           bool adds, float *y)
{
    cudaError_t error;

    WITH_ACTIVATIONS(cuda, error = launch(unpack_steps<T>, blocks_of(cuda, batch), dim3(WARP, ROWS),
                                          0, cuda->stream, batch, x, adds, as<T>(y)));
    return CUDA_CHECK(cuda, error);
}

/* Piece blockIdx.y: to the space, or `is_out` of it. */
__global__ void copy_pieces(struct recurrent_pieces pieces, float *space, bool is_out, bool adds)
{
    float *values = pieces.piece[blockIdx.y].values;
    float *here = space + pieces.piece[blockIdx.y].at;

    GRID_STRIDE(i, pieces.piece[blockIdx.y].count)
    {
        if (is_out) {
            values[i] = adds ? values[i] + here[i] : here[i];
        } else {
            here[i] = values[i];
        }
    }
}

static enum rc copy(struct cuda_backend *cuda, const struct recurrent_pieces *pieces, float *space,
                    bool is_out, bool adds)
{
    size_t most = 1;

    for (uint32_t i = 0; i < pieces->count; i++) {
        if (pieces->piece[i].count > most) most = pieces->piece[i].count;
    }
    return CUDA_CHECK(cuda, launch(copy_pieces, dim3(blocks_for(cuda, most), pieces->count),
                                   THREADS, 0, cuda->stream, *pieces, space, is_out, adds));
}

enum rc cuda_pieces_in(struct cuda_backend *cuda, const struct recurrent_pieces *pieces,
                       float *space)
{
    return copy(cuda, pieces, space, false, false);
}

enum rc cuda_pieces_out(struct cuda_backend *cuda, const struct recurrent_pieces *pieces,
                        const float *space, bool adds)
{
    return copy(cuda, pieces, const_cast<float *>(space), true, adds);
}

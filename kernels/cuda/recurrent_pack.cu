/*
 * Between our form of sequences and parameters and cuDNN's: batches with samples or with steps in
 * front, in passing also between bfloat16 and float32; and parameters in one block of memory, where
 * the library wants each of them.
 */
#include "kernels/cuda/recurrent.h"
#include "kernels/cuda/value.cuh"

enum { ROWS = THREADS / WARP }; /* that a block copies at a time, a warp each */

/* Row (outer, inner) of x becomes row (inner, outer) of y. */
template <typename X, typename Y>
__global__ void turn_rows(const X *x, size_t outer, size_t inner, size_t width, bool adds, Y *y)
{
    size_t first = blockIdx.x * static_cast<size_t>(ROWS) + threadIdx.y;

    for (size_t row = first; row < outer * inner; row += gridDim.x * static_cast<size_t>(ROWS)) {
        const X *from = x + row * width;
        Y *to = y + (row % inner * outer + row / inner) * width;

        for (size_t i = threadIdx.x; i < width; i += WARP) {
            float value = load(from + i);
            store(to + i, adds ? load(to + i) + value : value);
        }
    }
}

template <typename X, typename Y>
static cudaError_t turn(const struct cuda_backend *cuda, const X *x, size_t outer, size_t inner,
                        size_t width, bool adds, Y *y)
{
    return launch(turn_rows<X, Y>, blocks_for(cuda, outer * inner * WARP), dim3(WARP, ROWS), 0,
                  cuda->stream, x, outer, inner, width, adds, y);
}

enum rc cuda_steps_first(struct cuda_backend *cuda, struct recurrent_batch batch, const float *x,
                         float *y)
{
    cudaError_t error;

    WITH_ACTIVATIONS(
        cuda, error = turn(cuda, as<T>(x), batch.samples, batch.steps, batch.width, false, y));
    return CUDA_CHECK(cuda, error);
}

enum rc cuda_samples_first(struct cuda_backend *cuda, struct recurrent_batch batch, const float *x,
                           bool adds, float *y)
{
    cudaError_t error;

    WITH_ACTIVATIONS(
        cuda, error = turn(cuda, x, batch.steps, batch.samples, batch.width, adds, as<T>(y)));
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

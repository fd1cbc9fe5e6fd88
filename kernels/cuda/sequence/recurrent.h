/* What recurrent.c asks of recurrent_pack.cu; nobody else includes it. */
#ifndef GRAPEVINE_KERNELS_CUDA_SEQUENCE_RECURRENT_H
#define GRAPEVINE_KERNELS_CUDA_SEQUENCE_RECURRENT_H

#include "kernels/cuda/internal.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RECURRENT_PIECES_MAX = 16 }; /* four gates of an lstm, each with two matrices and biases */

/* Stretches of the weight space and the parameters that belong there. */
struct recurrent_pieces {
    struct {
        size_t at, count; /* values */
        float *values;
    } piece[RECURRENT_PIECES_MAX];
    uint32_t count;
};

/* A batch of sequences. With steps in front it is cut into stretches of `each` steps, which begin
 * `stride` values apart. */
struct recurrent_batch {
    size_t samples, steps, width, each, stride;
};

/** y [steps][samples][width] (float32) = x [samples][steps][width] (T). */
enum rc cuda_steps_first(struct cuda_backend *cuda, struct recurrent_batch batch, const float *x,
                         float *y);
/** And back: y (T) = (or +=) x (float32). */
enum rc cuda_samples_first(struct cuda_backend *cuda, struct recurrent_batch batch, const float *x,
                           bool adds, float *y);
/** Into the weight space. */
enum rc cuda_pieces_in(struct cuda_backend *cuda, const struct recurrent_pieces *pieces,
                       float *space);
/** Out of a space of gradients: values = (or +=). */
enum rc cuda_pieces_out(struct cuda_backend *cuda, const struct recurrent_pieces *pieces,
                        const float *space, bool adds);

#ifdef __cplusplus
}
#endif

#endif

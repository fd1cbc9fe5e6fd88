/* attention_choice: our own kernels or cuDNN's graph, between attention.cu and attention_choice.c.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_CHOICE_H
#define GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_CHOICE_H

#include "kernels/cuda/internal.h"
#include "kernels/cuda/sequence/attention_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- attention_choice.c
 * -------------------------------------------------------------------------*/

/** Once per shape, at creation, behind attention_scratch() bytes of scratch reserved; never fails:
 *  whatever does, our own kernels are the choice. */
void attention_choose(struct cuda_backend *cuda, const struct attention *attention);
/** NULL: our own kernels. */
struct attention_graph *attention_chosen(const struct cuda_backend *cuda,
                                         const struct attention *attention, bool is_backward);

/* --- attention.cu
 * -------------------------------------------------------------------------------*/

/** Scratch of a pass; a graph's workspace lies behind it. */
size_t attention_scratch(const struct cuda_backend *cuda, const struct attention *attention);
/** The passes of the contract by `graph`; NULL: by our own kernels. */
MUST_USE enum rc attention_forward_by(struct cuda_backend *cuda, const struct attention *attention,
                                      struct attention_graph *graph, const void *qkv, void *y,
                                      float *statistics);
MUST_USE enum rc attention_backward_by(struct cuda_backend *cuda, const struct attention *attention,
                                       struct attention_graph *graph,
                                       const struct attention_backward *pass);

#ifdef __cplusplus
}
#endif

#endif

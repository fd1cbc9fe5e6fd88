/* reference_sequence: the plain C twins of attention, embedding and positions; see reference.h. */
#ifndef GRAPEVINE_KERNELS_CPU_REFERENCE_SEQUENCE_H
#define GRAPEVINE_KERNELS_CPU_REFERENCE_SEQUENCE_H

#include "kernels/backend.h"

/** RC_NOMEM. */
MUST_USE enum rc reference_attention_forward(const struct attention *attention, const float *qkv,
                                             float *y, float *statistics);
/** From qkv and dy alone: y and the statistics are not read. RC_NOMEM. */
MUST_USE enum rc reference_attention_backward(const struct attention *attention,
                                              const struct attention_backward *pass);
/** RC_NONFINITE: a token is no row of the table; nothing is written then. */
MUST_USE enum rc reference_embedding_forward(const struct embedding *embedding, size_t rows,
                                             const float *tokens, const float *table, float *y);
MUST_USE enum rc reference_embedding_backward(const struct embedding *embedding, size_t rows,
                                              const float *tokens, const float *dy, float *dtable);
void reference_positions_forward(const struct positions *positions, const float *x,
                                 const float *table, float *y);
void reference_positions_backward(const struct positions *positions, const float *dy,
                                  float *dtable);

#endif

/*
 * stage_weights: the weights and biases of dense layers and convolutions: plain ones, weight-
 * normalised ones (`wn=1`: what is trained is a direction v and a length g for each row), and those
 * of the embedding that a layer is tied to. Internal to linear.c and conv.c.
 */
#ifndef GRAPEVINE_REPLICA_LAYERS_WEIGHTS_H
#define GRAPEVINE_REPLICA_LAYERS_WEIGHTS_H

#include "replica/model/stage.h"

struct stage_weights {
    size_t rows, columns;     /* the weights as a matrix: a row for each output */
    float *effective, *norms; /* weight-normalised: [rows][columns], [rows]; otherwise NULL */
    float *gradient;          /* and the gradient of the effective ones, [rows][columns] */
};

struct stage_weights_shape {
    uint32_t weight[TENSOR_RANK_MAX];
    uint32_t rank;
    uint32_t bias_rank; /* the bias has the first dimensions of the weight */
    uint32_t columns;   /* values behind one output: the fan in */
};

bool stage_is_normed(const struct stage *stage);
bool stage_is_tied(const struct stage *stage);
/** Tensors in the schema, and memory of its own where they are normalised. */
MUST_USE enum rc stage_weights_create(struct model *model, struct stage *stage,
                                      const struct stage_weights_shape *shape,
                                      struct stage_weights *weights, struct fault *why);
void stage_weights_deinit(struct model *model, struct stage_weights *weights);
/** See stage_ops.start: lengths begin as those of the directions drawn, so that w = v. */
MUST_USE enum rc stage_weights_start(struct model *model, struct stage *stage,
                                     struct stage_weights *weights);
/** What products are to use until the parameters change. *bias NULL: there is none. */
MUST_USE enum rc stage_weights_take(struct model *model, struct stage *stage,
                                    struct stage_weights *weights, const float **weight,
                                    const float **bias);
/** Where slices gather the gradients; *bias NULL: there is none. */
void stage_weights_gradients(struct model *model, struct stage *stage,
                             const struct stage_weights *weights, float **weight, float **bias);
/** After the last slice: gradients of v and g of what was gathered, be it of several passes. */
MUST_USE enum rc stage_weights_close(struct model *model, struct stage *stage,
                                     struct stage_weights *weights);

#endif

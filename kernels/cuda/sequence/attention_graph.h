/*
 * attention_graph: attention in bfloat16 as a graph of operations for cuDNN, which finds one kernel
 * for all of it. Any thread, one at a time per graph.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_GRAPH_H
#define GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_GRAPH_H

#include <cudnn.h>

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The library's calls: a table, so that tests bring a library of their own. */
struct attention_graph_calls {
    cudnnStatus_t (*create)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made);
    cudnnStatus_t (*destroy)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, int64_t *got,
                         void *values);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t operands);
};

/* Rows of queries and keys, and those of values, are so many values apart; of y and dy `heads *
 * head_width`, of gradients three times that. Statistics are [samples][heads][steps]. */
struct attention_graph_shape {
    int64_t samples, heads, steps, head_width;
    int64_t query_stride, value_stride;
    bool is_causal, is_backward;
};

enum attention_graph_operand {
    GRAPH_QUERIES,
    GRAPH_KEYS,
    GRAPH_VALUES,
    GRAPH_Y,
    GRAPH_STATISTICS, /* float32: log of the sum of exp(scores) */
    GRAPH_DY,         /* this and what follows: of the backward pass only */
    GRAPH_DQUERIES,
    GRAPH_DKEYS,
    GRAPH_DVALUES,
    GRAPH_OPERANDS
};

struct attention_graph;

/** The operations, and how many configs the library knows to compute them. With a `handle` they are
 *  for its device, otherwise for the one that `device` describes (a descriptor of the library's).
 *  NULL: it has no such operations, or none for this shape, or out of memory. Release with
 *  attention_graph_destroy(); NULL is fine there. */
struct attention_graph *attention_graph_create(const struct attention_graph_calls *calls,
                                               const struct attention_graph_shape *shape,
                                               cudnnHandle_t handle,
                                               cudnnBackendDescriptor_t device);
void attention_graph_destroy(struct attention_graph *graph);
int64_t attention_graph_ways(const struct attention_graph *graph);
/** Compile the best plan whose workspace is not too large; seconds. False: there is none. */
bool attention_graph_plan(struct attention_graph *graph, size_t workspace_bytes_max);
size_t attention_graph_workspace(const struct attention_graph *graph);
/** Queue it on the stream of the handle. `operands`: 16-byte aligned memory of the device. */
cudnnStatus_t attention_graph_run(struct attention_graph *graph,
                                  void *const operands[GRAPH_OPERANDS], void *workspace);

#ifdef __cplusplus
}
#endif

#endif

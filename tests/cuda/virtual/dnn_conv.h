/* dnn_conv: what the convolutions of the stand-in for cuDNN share: see dnn_conv.cpp. */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_DNN_CONV_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_DNN_CONV_H

#include "tests/cuda/virtual/dnn.h"

enum conv_pass { PASS_FORWARD, PASS_DATA, PASS_FILTER };

/* A convolution as its descriptors give it, copied: they may be changed once a call returned. */
struct conv_shape {
    struct cudnnTensorStruct x, y; /* or their gradients */
    struct cudnnFilterStruct filter;
    struct cudnnConvolutionStruct conv;
    size_t filter_strides[4];
    size_t group_in, group_out; /* channels */
    size_t taps;                /* kernel pixels */
    size_t pixels;              /* of the output */
};

/** BAD_PARAM: they do not fit together; NOT_SUPPORTED: no algorithm takes them. */
cudnnStatus_t conv_shape_read(struct conv_shape *shape, const struct cudnnTensorStruct *x,
                              const struct cudnnFilterStruct *filter,
                              const struct cudnnConvolutionStruct *conv,
                              const struct cudnnTensorStruct *y);

struct conv_algo {
    int algo;
    cudnnDeterminism_t determinism;
    size_t workspace_bytes;
    bool is_supported;
};

/** Number `rank` in the order of the heuristic; false: there are no more. */
bool conv_algo_at(const struct conv_shape *shape, enum conv_pass pass, int rank,
                  struct conv_algo *algo);
/** NOT_SUPPORTED: not for this shape. BAD_PARAM: there is no such algorithm. */
cudnnStatus_t conv_algo_find(const struct conv_shape *shape, enum conv_pass pass, int algo,
                             struct conv_algo *found);

/* What follows y = activation(alpha conv + other_alpha other + bias) of the forward pass. */
struct conv_finish {
    const void *other, *bias; /* NULL: none */
    float other_alpha;
    bool has_relu;
};

/* output = alpha f + beta output; is_backwards: sums go from the last term to the first. */
void conv_forward(const struct conv_shape *shape, const void *x, const void *filter, float alpha,
                  float beta, const struct conv_finish *finish, void *y);
void conv_data(const struct conv_shape *shape, const void *filter, const void *dy, float alpha,
               float beta, bool is_backwards, void *dx);
void conv_filter(const struct conv_shape *shape, const void *x, const void *dy, float alpha,
                 float beta, bool is_backwards, void *dfilter);

#endif

/*
 * norm: normalisation. All on the backend unless said otherwise; float32 values, float64 sums,
 * whose terms may be added up in float32 by up to a hundred: an error of about 1e-7 of the sum of
 * their absolute values. Variances keep that precision beside large means (1000 +- 0.01: to 1e-4).
 */
#ifndef GRAPEVINE_KERNELS_NORM_H
#define GRAPEVINE_KERNELS_NORM_H

#include "kernels/image.h"

/* Batch normalisation (Ioffe, Szegedy 2015, arXiv:1502.03167) of `shape` images, or of rows as
 * images of 1 x 1, in two halves, so that the images can pass slice by slice: collect sums over all
 * slices, close them, then apply. Every array below has [channels] entries. */
struct batch_norm {
    struct image_shape shape;
    float epsilon;
    float momentum; /* running = (1 - momentum) running + momentum new */
    bool with_relu; /* max(0, .) of the result */
};

struct batch_norm_close {
    uint64_t count;          /* values per channel behind the sums */
    double *sums;            /* [2 channels]: of x, of x^2; zeroed */
    float *mean, *rstd;      /* out: of this batch; rstd = 1 / sqrt(biased variance + epsilon) */
    float *running_mean;     /* updated; NULL: not */
    float *running_variance; /* unbiased: count / (count - 1) times the batch's, if count > 1 */
};

struct batch_norm_backward {
    const void *x, *y; /* input of the normalisation; y: its output, with_relu only */
    void *dy;          /* collect, with_relu: masked in place */
    void *dx;          /* apply: may be dy */
    bool adds_to_dx;   /* dx += instead of dx = */
    const float *mean, *rstd, *gamma;
    double *sums;   /* [2 channels]: of dy, of dy (x - mean) rstd; added to by collect */
    uint64_t count; /* as in the forward pass */
};

/* Group normalisation (Wu, He 2018, arXiv:1803.08494): mean and variance of each image's groups of
 * channels / groups consecutive channels. */
struct group_norm {
    struct image_shape shape;
    uint32_t groups; /* divides the channels; up to GROUP_NORM_GROUPS_MAX */
    float epsilon;
};

enum { GROUP_NORM_GROUPS_MAX = 2048 };

struct norm_backward {
    const void *x, *dy;
    const float *mean, *rstd, *gamma; /* mean, rstd: as the forward pass left them */
    void *dx;                         /* NULL: not wanted; may be dy */
    bool adds_to_dx;                  /* dx += instead of dx =; dx is then not dy */
    bool is_first;                    /* overwrite dgamma and dbeta; otherwise they are added to */
    float *dgamma, *dbeta;
};

struct channel_affine {
    const float *mean, *rstd, *gamma, *beta; /* [channels] */
};

struct layer_norm {
    size_t rows, columns;
    float epsilon;
};

/* Layer normalisation of x = a + b. */
struct layer_norm_sum {
    const void *a, *b;
    void *x; /* gets the sum; may be a or b */
    const float *gamma, *beta;
    void *y; /* is none of the others */
    float *mean, *rstd;
};

/* A row of zeros has no direction: its weights are NaN. */
struct weight_norm_backward {
    size_t rows, columns;
    const float *v, *g, *norms, *dw;
    float *dv, *dg;
};

#endif

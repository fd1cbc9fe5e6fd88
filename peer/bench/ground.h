/*
 * bench_ground: what one benchmark of single operations runs on (peer/bench/kernels.c): memory full
 * of random numbers, as a GPU is faster on zeros, and the layer that is measured.
 */
#ifndef GRAPEVINE_PEER_BENCH_GROUND_H
#define GRAPEVINE_PEER_BENCH_GROUND_H

#include "kernels/backend.h"

enum { GROUND_BLOCKS_MAX = 20 };

struct ground {
    struct backend *backend;
    uint32_t threads; /* that host benchmarks make their backends with */
    uint32_t shrink;  /* sizes are divided by it, for tests */
    void *blocks[GROUND_BLOCKS_MAX];
    uint32_t blocks_count;
    bool is_short; /* memory is, or the device failed: some of what follows is NULL */
    float *x, *y, *dx, *dy, *pre; /* activations; of copies, bytes */
    float *weight, *dweight, *bias, *dbias, *statistics;
    struct linear *linear;
    struct conv *conv;
    struct recurrent *recurrent;
    struct snapshot *snapshot;
    struct attention attention;
    struct layer_norm layer_norm;
    struct batch_norm batch_norm;
    struct embedding embedding;
    struct device_loss loss;
    struct gemm gemm;
    struct update update;
    double *sums;
    size_t n;
    double work;    /* of one run: operations or bytes, in units of 1e9 */
    const char *by; /* who does it */
    char shape[64];
};

struct device_bench {
    const char *kernel, *unit;
    uint32_t n[4]; /* what they mean is begin's to say */
    enum rc (*begin)(struct ground *ground, const uint32_t *n);
    enum rc (*run)(struct ground *ground);
};

/** Of devices: layers, forward and backward (peer/bench/layers.c), and what is no layer
 *  (peer/bench/kernels_device.c). */
const struct device_bench *bench_layers(size_t *count);
const struct device_bench *bench_vectors(size_t *count);

/** The passes of `conv` between `x` and `y`, and what `gemm` and `update` say. */
enum rc ground_conv_forward(struct ground *ground);
enum rc ground_conv_data(struct ground *ground);
enum rc ground_conv_weights(struct ground *ground);
enum rc ground_gemm(struct ground *ground);
/** `x`: the gradient; `y`: moments; `weight`: values. */
enum rc ground_update(struct ground *ground);

/** Everything that was made for it. */
void ground_deinit(struct ground *ground);
/** Zeroed memory, or of random float32 numbers, or activations, up to 0.5; `is_short` says whether
 *  there was enough for all of them. */
void *ground_block(struct ground *ground, size_t bytes);
float *ground_values(struct ground *ground, size_t n);
float *ground_activations(struct ground *ground, size_t n);
/** n, or a part of it for tests. */
uint32_t ground_less(const struct ground *ground, uint32_t n);
/** Gigabytes of so many activations. */
double ground_giga(const struct ground *ground, double activations);

#endif

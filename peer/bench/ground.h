/*
 * bench_ground: what one benchmark of a device's operations runs on (peer/bench/kernels_device.c):
 * memory full of random numbers, as a GPU is faster on zeros, and the layer that is measured.
 */
#ifndef GRAPEVINE_PEER_BENCH_GROUND_H
#define GRAPEVINE_PEER_BENCH_GROUND_H

#include "kernels/backend.h"

enum { GROUND_BLOCKS_MAX = 20 };

struct ground {
    struct backend *backend;
    uint32_t shrink; /* sizes are divided by it, for tests */
    void *blocks[GROUND_BLOCKS_MAX];
    uint32_t blocks_count;
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

/** Layers, forward and backward: peer/bench/layers.c. */
const struct device_bench *bench_layers(size_t *count);

/** Everything that was made for it. */
void ground_deinit(struct ground *ground);
/** Zeroed memory, or of random float32 numbers, or activations, up to 0.5; NULL when memory is
 *  short or the device failed. */
void *ground_block(struct ground *ground, size_t bytes);
float *ground_values(struct ground *ground, size_t n);
float *ground_activations(struct ground *ground, size_t n);
/** n, or a part of it for tests. */
uint32_t ground_less(const struct ground *ground, uint32_t n);
/** Gigabytes of so many activations. */
double ground_giga(const struct ground *ground, double activations);

#endif

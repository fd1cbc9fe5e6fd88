/*
 * data_synthetic: families of made-up data with known answers, `--data synthetic:FAMILY`, for tests
 * and for trying things out. Every sample is a function of (seed, part, index), so a shard costs
 * nothing but itself. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_READERS_SYNTHETIC_H
#define GRAPEVINE_REPLICA_READERS_SYNTHETIC_H

#include <stdint.h>

/** The weights [outputs][features] behind `synthetic:least-squares,features=F,outputs=K` opened
 *  with `seed`: y = W x + noise. A linear layer with these weights and a zero bias is the optimum
 *  of the mean squared error over all data there could be, and its loss is noise^2; without noise
 *  it fits every sample exactly, so the optimum of any shard is the same and its loss is 0. */
void synthetic_optimum(uint64_t seed, uint32_t features, uint32_t outputs, float *weights);

#endif

/*
 * dataset: samples for training and testing, from a `--data` spec. Images stay bytes until a batch
 * is made. Training samples are grouped in blocks of DATASET_BLOCK_SAMPLES consecutive samples of a
 * seeded permutation; a replica loads only the blocks of its share, so that memory follows the
 * share and not the set.
 */
#ifndef GRAPEVINE_REPLICA_DATASET_H
#define GRAPEVINE_REPLICA_DATASET_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DATASET_BLOCK_SAMPLES = 256, DATASET_NAME_BYTES = 64 };

struct dataset_info {
    char name[DATASET_NAME_BYTES]; /* "fashion-mnist", "digits", "idx" */
    uint32_t channels, height, width;
    uint32_t classes;
    uint64_t train_samples, test_samples;
    uint32_t blocks;   /* of the training part */
    float mean, scale; /* input value = (byte / 255 - mean) * scale */
};

struct dataset;

/** Open `spec` (`digits`, `fashion-mnist`, `idx:DIR`). Reads headers and labels of the training
 *  part, no images. Errors name the file and say what to do (install dataset-fashion-mnist, or pass
 *  --data idx:DIR). `seed` orders the permutation behind the blocks. */
MUST_USE enum rc dataset_open(const char *spec, uint64_t seed, struct dataset **dataset,
                              struct fault *why);
void dataset_close(struct dataset *dataset);
const struct dataset_info *dataset_info(const struct dataset *dataset);

/* A set of samples in memory: `bytes[i * sample_bytes ...]`, `labels[i]`. */
struct samples {
    uint8_t *bytes;
    uint8_t *labels;
    size_t count;
    size_t sample_bytes; /* channels * height * width */
};

void samples_deinit(struct samples *samples);
/** Load the training blocks whose flag is set (`wanted[blocks]`), in block order, into fresh
 *  memory; on success `out` is replaced. One streaming pass over the (gzipped) files. */
MUST_USE enum rc dataset_load_blocks(struct dataset *dataset, const bool *wanted,
                                     struct samples *out, struct fault *why);
/** Load exactly the training samples listed (indices in file order, ascending), for Dirichlet. */
MUST_USE enum rc dataset_load_list(struct dataset *dataset, const uint32_t *indices, size_t count,
                                   struct samples *out, struct fault *why);
/** Load the first `samples_max` test samples (0: all). */
MUST_USE enum rc dataset_load_test(struct dataset *dataset, uint64_t samples_max,
                                   struct samples *out, struct fault *why);
/** Labels of the whole training part in file order: [train_samples]. */
const uint8_t *dataset_train_labels(const struct dataset *dataset);

#endif

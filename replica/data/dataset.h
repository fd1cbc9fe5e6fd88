/*
 * dataset: samples for training and testing, from a `--data` spec. Training samples are grouped in
 * blocks of consecutive samples of a seeded permutation; a replica loads only the blocks of its
 * shard, so that memory follows the shard and not the set. Blocks hold DATASET_BLOCK_SAMPLES, in a
 * small set fewer, so that each of many peers finds a shard, and shards are about equal.
 */
#ifndef GRAPEVINE_REPLICA_DATA_DATASET_H
#define GRAPEVINE_REPLICA_DATA_DATASET_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/rc.h"
#include "replica/data/samples.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DATASET_BLOCK_SAMPLES = 256,
    DATASET_SMALL_SAMPLES = 16384, /* below: DATASET_SMALL_BLOCKS or more, if there are samples */
    DATASET_SMALL_BLOCKS = 1024,   /* and fewer than twice as many */
    DATASET_NAME_BYTES = 64,
    DATASET_SYMBOLS_MAX = 256,
    DATASET_CONTEXT_DEFAULT = 128,
    DATASET_TOKENIZER_BYTES = 256
};

/* What a model is given: always float32. */
enum data_input {
    DATA_IMAGES,  /* [channels][height][width] */
    DATA_VECTORS, /* `channels` numbers; height and width are 1 */
    DATA_TOKENS   /* `width` whole numbers below `symbols`; channels and height are 1 */
};

/* What it is asked for. */
enum data_target {
    DATA_CLASS,      /* one of `classes` a sample */
    DATA_NEXT_TOKEN, /* at each place of the sequence the symbol that follows */
    DATA_REALS       /* `outputs` real numbers a sample: mean squared error */
};

struct dataset_info {
    char name[DATASET_NAME_BYTES]; /* "fashion-mnist", "digits", "idx", ... */
    enum data_input input;
    enum data_target target;
    bool has_bytes;   /* samples lie in memory as bytes, not as floats */
    bool is_in_files; /* tokens: they are read when a batch is made of them */
    uint32_t channels, height, width;
    uint32_t symbols;           /* tokens: how many there are; otherwise 0 */
    uint32_t classes;           /* that a label can be; DATA_REALS: 0 */
    uint32_t outputs;           /* of a model: `classes` for each label, or real values */
    uint32_t labels_per_sample; /* DATA_CLASS: 1; DATA_NEXT_TOKEN: width; DATA_REALS: 0 */
    uint64_t train_samples, test_samples;
    uint32_t blocks, block_samples; /* of the training part */
    /* [channels] each; the dataset's, alive as long as it. To evaluate a model that was trained
     * with other numbers, copy the info and point these there. See samples_gather(). */
    const float *mean, *scale;
    /* [2][channels]: means and deviations of this file's own training samples, where `mean` and
     * `scale` are made of them; NULL where they are the same for everybody (images, tokens). */
    const float *measured;
    uint8_t symbol_bytes[DATASET_SYMBOLS_MAX]; /* text: the byte of each symbol */
    /* Tokens of a tokenizer: its file where that was given (else ""), and its digest. */
    bool has_tokenizer;
    char tokenizer[DATASET_TOKENIZER_BYTES];
    struct digest tokenizer_digest;
    /* [classes] human-readable; NULL where classes are numbers. The dataset's, as above. */
    const char *const *class_words;
    /* [channels] names of a table's columns; NULL where it has none. The dataset's, as above. */
    const char *const *column_names;
};

static inline size_t dataset_values(const struct dataset_info *info)
{
    return (size_t)info->channels * info->height * info->width;
}

struct dataset;

struct dataset_options {
    uint64_t seed;       /* orders the permutation behind the blocks; draws synthetic data */
    uint32_t context;    /* tokens a sequence, as the model wants them; 0: as the spec says, or
                            DATASET_CONTEXT_DEFAULT */
    const char *columns; /* of a table: the names that a model reads, each with '\n', in its order;
                            NULL or "": all, as they stand */
    const char *tokenizer; /* of a text: the file or folder of its tokenizer; NULL or "": its bytes
                              are the tokens */
    const char *labels; /* of a table: the classes in their order, each with '\n'; a label that is
                           none of them is refused. NULL or "": those of the file, sorted */
    const char *labels_of; /* whose these are, for messages ("the model's"); NULL: they were given.
                              Static text */
    uint32_t unlabelled;   /* > 0: samples with classes of their own are taken without them, as if
                              each were the first of so many */
};

/** Open `spec` (`digits`, `fashion-mnist`, `idx:DIR`). Reads headers and labels of the training
 *  part, no images. Errors name the file and say what to do (install dataset-fashion-mnist, or pass
 *  --data idx:DIR). */
MUST_USE enum rc dataset_open(const char *spec, const struct dataset_options *options,
                              struct dataset **dataset, struct fault *why);
void dataset_close(struct dataset *dataset);
const struct dataset_info *dataset_info(const struct dataset *dataset);
/** Normalise by these, [channels] each, from the next batch on; not while one is being made. Only
 *  of data that were measured. */
void dataset_set_normal(struct dataset *dataset, const float *mean, const float *scale);

/** Load the training blocks whose flag is set (`wanted[blocks]`), in block order, into fresh
 *  memory; on success `out` is replaced. One streaming pass over the (gzipped) files. */
MUST_USE enum rc dataset_load_blocks(struct dataset *dataset, const bool *wanted,
                                     struct samples *out, struct fault *why);
/** The numbers in file order of the samples that dataset_load_blocks() loads, as they lie in its
 *  result: fresh memory. RC_NOMEM. */
MUST_USE enum rc dataset_block_numbers(const struct dataset *dataset, const bool *wanted,
                                       uint32_t **numbers);
/** The seeded permutation that blocks are cut from: order[i] is the number in file order of the
 *  i-th of `count` training samples. */
void dataset_order(uint64_t seed, uint32_t *order, size_t count);
/** Load exactly the training samples listed (indices in file order), in the order of the list.
 *  RC_FORMAT: one is not among them, or is listed twice. */
MUST_USE enum rc dataset_load_list(struct dataset *dataset, const uint32_t *indices, size_t count,
                                   struct samples *out, struct fault *why);
/** Leave of `indices` [*count] (ascending, file order) those that are in no block from `first` on.
 *  RC_NOMEM. */
MUST_USE enum rc dataset_without_blocks(const struct dataset *dataset, uint32_t first,
                                        uint32_t *indices, size_t *count);
/** So many blocks at the end of the seeded order have `samples` training samples or more; all of
 *  them, where there are not so many. */
uint32_t dataset_last_blocks(const struct dataset_info *info, uint64_t samples);
/** Load the first `samples_max` test samples (0: all). */
MUST_USE enum rc dataset_load_test(struct dataset *dataset, uint64_t samples_max,
                                   struct samples *out, struct fault *why);
/** Labels of the whole training part in file order, [train_samples], as fresh memory. RC_USAGE
 *  where samples have no class. */
MUST_USE enum rc dataset_load_labels(struct dataset *dataset, uint32_t **labels, struct fault *why);

#endif

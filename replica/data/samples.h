/*
 * samples: a set of samples in memory, kept as its source has them (bytes, symbols or floats), and
 * the host batches that are made of it: normalised float32 values, labels, targets. Whoever trains
 * or evaluates goes through samples_gather(), so the form in memory is nobody else's business.
 * Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_DATA_SAMPLES_H
#define GRAPEVINE_REPLICA_DATA_SAMPLES_H

#include "base/hash.h"
#include "base/rc.h"

#include <stddef.h>
#include <stdint.h>

struct dataset_info;

enum { TOKENS_AT_ONCE = 1024 };

/* Tokens that stay in their files until a batch is made of them. */
struct token_windows {
    /** `count` tokens, TOKENS_AT_ONCE at most, from the `first` of a window on. Any thread.
     *  RC_FORMAT: one is no token of the vocabulary, or the file has become shorter; RC_IO. */
    enum rc (*read)(const struct token_windows *from, uint32_t window, size_t first, size_t count,
                    uint32_t tokens[TOKENS_AT_ONCE]);
};

struct samples {
    size_t count; /* may be lowered to forget the last ones */
    /* The rest belongs to samples.c and to the readers of files. */
    size_t stored;     /* values a sample; where the next token is asked for one more than the
                          input has, and then there are no labels of their own */
    uint8_t *bytes;    /* [count][stored], or */
    float *floats;     /* the same, or */
    uint32_t *tokens;  /* the same, or */
    uint32_t *windows; /* [count]: where they lie in `from` */
    const struct token_windows *from; /* the source's */
    uint8_t *small_labels;            /* [count], up to 256 classes, or */
    uint32_t *large_labels;           /* the same */
    float *targets;                   /* [count][outputs] of regression */
};

/** Room for `count` samples as `info` describes them. RC_NOMEM; `samples` is then empty. */
MUST_USE enum rc samples_init(struct samples *samples, const struct dataset_info *info,
                              size_t count);
/** Fine for an empty one ({0}). */
void samples_deinit(struct samples *samples);
/** About what a sample takes in memory. */
size_t samples_bytes(const struct dataset_info *info);
/** Of what a model is asked when it is asked about these: kind and shape of input and answer, what
 *  classes and columns are called, and the inputs as they are stored, before any normalisation. Not
 *  of labels. Peers with equal digests speak of the same. Fails as samples_gather() does. */
MUST_USE enum rc samples_digest(const struct samples *samples, const struct dataset_info *info,
                                struct digest *digest);
/** For readers of files; only where samples have a class of their own. */
void samples_set_label(struct samples *samples, size_t sample, uint32_t label);

/* A batch in host memory, aligned for vectors. A NULL member is not wanted. */
struct batch {
    uint32_t rows_max, rows;
    float *values;    /* [rows][channels][height][width], or [rows][length] of tokens */
    uint32_t *labels; /* [rows][labels_per_sample] */
    float *targets;   /* [rows][outputs] */
    uint32_t *picked; /* [rows]: which of the samples they are */
    enum rc rc;       /* what samples_gather() returned */
};

/** Room for `rows_max` samples; no labels, no targets where `info` has none. RC_NOMEM; `batch` is
 *  then empty. */
MUST_USE enum rc batch_init(struct batch *batch, const struct dataset_info *info,
                            uint32_t rows_max);
void batch_deinit(struct batch *batch);

/* Which samples: order[first], order[first + 1], ... */
struct pick {
    const uint32_t *order; /* NULL: as they lie in memory */
    size_t first;
    uint32_t rows;
};

/** Make the batch of the picked samples: value = (stored - mean[c]) * scale[c], where a stored byte
 *  b of an image is b / 255; tokens are left as they are. Fails only where they are in files, see
 *  struct token_windows; the batch is then none. */
MUST_USE enum rc samples_gather(const struct samples *samples, const struct dataset_info *info,
                                struct pick pick, struct batch *batch);

#endif

/*
 * data_source: the contract between dataset.c and the forms of data (replica/readers): a source
 * describes itself once, in a struct dataset_info, and then fills in the samples that somebody
 * wants, in one pass over its files. Internal to replica.
 */
#ifndef GRAPEVINE_REPLICA_DATA_SOURCE_H
#define GRAPEVINE_REPLICA_DATA_SOURCE_H

#include "replica/data/dataset.h"
#include "replica/data/spec.h"

struct tokenizer;

enum {
    DATA_SAMPLES_MAX = 1 << 24, /* of a part */
    DATA_VALUES_MAX = 1 << 22,  /* of a sample */
    DATA_CLASSES_MAX = 1 << 16,
    DATA_SYMBOLS_MAX = 1 << 20, /* tokens */
    DATA_OUTPUTS_MAX = 1 << 12, /* real values a sample */
    DATA_TEST_EVERY = 5         /* where a file has no part for testing, every fifth sample is it */
};

#define DATA_NO_SLOT UINT32_MAX
/* Numbers in files, and factors that standardise them: their product is a float32. */
#define DATA_NUMBER_MAX 1e18

/* What to load: sample i of the part (in file order) goes to out's sample slots[i], or nowhere. */
struct data_part {
    bool is_test;
    size_t count; /* the first so many samples of the part */
    const uint32_t *slots;
};

struct data_source {
    const struct data_source_ops *ops;
    float *normal;   /* [2][channels]: means, scales; see data_source_normal() */
    float *measured; /* the same of means, deviations; NULL: see data_source_measured() */
};

struct data_source_ops {
    void (*destroy)(struct data_source *source); /* not `normal`, `measured` */
    /** Fill the samples of `out` that have a slot. Where `out` has neither bytes nor floats, only
     *  the labels; of tokens in files only which windows they are, to be read later. Files may have
     * changed since they were opened: RC_FORMAT. */
    MUST_USE enum rc (*load)(struct data_source *source, const struct data_part *part,
                             struct samples *out, struct fault *why);
};

/** An opener fills in all of `info` but blocks, outputs and labels_per_sample of classes. On
 *  failure nothing is left behind. */
typedef enum rc (*data_source_open)(const struct data_spec *spec,
                                    const struct dataset_options *options,
                                    struct dataset_info *info, struct data_source **source,
                                    struct fault *why);

enum rc digits_open_source(const struct data_spec *spec, const struct dataset_options *options,
                           struct dataset_info *info, struct data_source **source,
                           struct fault *why);
enum rc fashion_open_source(const struct data_spec *spec, const struct dataset_options *options,
                            struct dataset_info *info, struct data_source **source,
                            struct fault *why);
enum rc idx_open_source(const struct data_spec *spec, const struct dataset_options *options,
                        struct dataset_info *info, struct data_source **source, struct fault *why);
enum rc cifar_open_source(const struct data_spec *spec, const struct dataset_options *options,
                          struct dataset_info *info, struct data_source **source,
                          struct fault *why);
enum rc csv_open_source(const struct data_spec *spec, const struct dataset_options *options,
                        struct dataset_info *info, struct data_source **source, struct fault *why);
enum rc npy_open_source(const struct data_spec *spec, const struct dataset_options *options,
                        struct dataset_info *info, struct data_source **source, struct fault *why);
enum rc text_open_source(const struct data_spec *spec, const struct dataset_options *options,
                         struct dataset_info *info, struct data_source **source, struct fault *why);
/** The same text as tokens of `options`' tokenizer. */
enum rc text_tokens_open(const char *path, uint32_t context, const struct dataset_options *options,
                         struct dataset_info *info, struct data_source **source, struct fault *why);
enum rc tokens_open_source(const struct data_spec *spec, const struct dataset_options *options,
                           struct dataset_info *info, struct data_source **source,
                           struct fault *why);
enum rc synthetic_open_source(const struct data_spec *spec, const struct dataset_options *options,
                              struct dataset_info *info, struct data_source **source,
                              struct fault *why);

/** Memory for the means (0) and scales (1) of info->channels channels, and info's pointers to it.
 *  RC_NOMEM. */
MUST_USE enum rc data_source_normal(struct data_source *source, struct dataset_info *info,
                                    struct fault *why);
/** Means and scales out of `moments`, [info->channels], after data_source_normal(). RC_NOMEM. */
struct data_moments;
MUST_USE enum rc data_source_measured(struct data_source *source, struct dataset_info *info,
                                      const struct data_moments *moments, struct fault *why);
/** Frees everything, through `destroy`. NULL is fine. */
void data_source_destroy(struct data_source *source);
/** RC_NOMEM: "cannot DOING: out of memory". */
enum rc data_no_memory(struct fault *why, const char *doing);
/** One length out of what the spec says (`item`, may be NULL), what the model wants (0: anything)
 *  and a default. RC_PARSE, RC_USAGE when the first two differ. */
MUST_USE enum rc data_context(const struct data_spec *spec, const struct data_item *item,
                              uint32_t wanted, uint32_t fallback, uint32_t *context,
                              struct fault *why);

/** The tokenizer that `options` names, if it names one, and what `info` says of it: digest, file,
 *  symbols. NULL `tokenizer`: only that is wanted; otherwise tokenizer_close() it. */
MUST_USE enum rc data_tokenizer(const struct dataset_options *options, struct tokenizer **tokenizer,
                                struct dataset_info *info, struct fault *why);

/** Samples are sequences of `context` tokens, each of which asks for the next. */
void data_describe_tokens(struct dataset_info *info, const char *name, uint32_t context);

/* Sums behind a mean and a deviation, of values less the first one, which keeps digits. */
struct data_moments {
    double shift, sum, squares;
    uint64_t count;
};

void data_moments_add(struct data_moments *moments, double value);
/** The mean and the deviation, 0 where all values are equal. */
void data_moments_measure(const struct data_moments *moments, double *mean, double *deviation);
/** The scale of such a deviation: 1 / deviation (DATA_NUMBER_MAX at most), of 0 it is 1. */
float data_scale_of(double deviation);

static inline bool data_is_test(uint64_t index)
{
    return index % DATA_TEST_EVERY == 0;
}

/** Divide `count` samples into the parts of `info`. */
static inline void data_split(struct dataset_info *info, uint64_t count)
{
    info->test_samples = (count + DATA_TEST_EVERY - 1) / DATA_TEST_EVERY;
    info->train_samples = count - info->test_samples;
}

#endif

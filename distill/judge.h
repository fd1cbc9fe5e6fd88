/*
 * judge: what one model is worth on the test part of some data, and what it costs: parameters,
 * bytes of its file, operations and time of one sample. The test part is read once. The clock comes
 * from outside. Thread: the command's, one at a time; models are run by a team.
 */
#ifndef GRAPEVINE_DISTILL_JUDGE_H
#define GRAPEVINE_DISTILL_JUDGE_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/outputs.h"
#include "replica/formats/model_file.h"

struct backend;

/* Passes of one sample whose median is its latency; after half a second fewer. */
enum { JUDGE_PASSES = 101 };

struct judge_options {
    const char *data; /* --data spec; NULL: what the card says */
    const char *tokenizer;
    const struct model_card *card; /* what reads the data, for how they are opened */
    const char *card_path;
    uint64_t seed;
    uint64_t (*now_ns)(void); /* NULL: no latencies */
};

struct judged {
    struct score score;
    uint64_t parameters, flops; /* flops: forward, a sample */
    uint64_t bytes;             /* of the file */
    double latency_us;          /* median time of a sample by itself, one thread; NaN: no clock */
};

struct judge;

MUST_USE enum rc judge_open(struct backend *backend, const struct judge_options *options,
                            struct judge **judge, struct fault *why);
/** NULL is fine. */
void judge_close(struct judge *judge);
/** A model file, which fits the data: errors as of comparison_open(). */
MUST_USE enum rc judge_file(struct judge *judge, const char *path, struct judged *judged,
                            struct fault *why);
/** Its costs alone: `score` is empty. */
MUST_USE enum rc judge_costs(struct judge *judge, const char *path, struct judged *judged,
                             struct fault *why);
/** A model in memory, as its file would be: `card` is what that would say. */
MUST_USE enum rc judge_model(struct judge *judge, struct model *model,
                             const struct model_card *card, struct judged *judged,
                             struct fault *why);

#endif

/*
 * compact: a model file made smaller for use. Weights become int8 (replica/formats/packed.h), and a
 * share of them may be pruned first (prune.h): all at once, or, with fine-tuning, in steps over
 * the first half of it (Zhu, Gupta 2017, arXiv:1710.01878), after which what is gone stays gone and
 * the rest makes up for it. Fine-tuning is training as a peer does it, on labels.
 */
#ifndef GRAPEVINE_DISTILL_COMPACT_H
#define GRAPEVINE_DISTILL_COMPACT_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/outputs.h"

struct backend;
struct json;

enum compact_phase {
    COMPACT_JUDGING, /* samples done; before and after */
    COMPACT_TUNING   /* steps done */
};

struct compact_progress {
    enum compact_phase phase;
    uint64_t done, total;
    double loss; /* mean of the batches since the last call; NaN where nothing is trained */
};

struct compact_options {
    const char *path, *out_path;
    bool is_int8;
    double share;          /* of the weights to prune, in [0, 1) */
    double epochs;         /* of fine-tuning; 0: none */
    const char *data;      /* --data spec; NULL: with fine-tuning what the file was trained on, and
                              without it the model is not judged */
    const char *tokenizer; /* file; NULL: as the file states it */
    const char *optimizer, *schedule; /* NULL: as --model would, cosine */
    double lr;                        /* > 0 overrides the optimizer's; 0: a third of that */
    uint32_t batch;                   /* 0: as --model would */
    uint64_t seed;
    void (*on_progress)(void *context, const struct compact_progress *progress); /* may be NULL */
    bool (*is_stopped)(void *context); /* asked while it fine-tunes; NULL: never */
    void *context;
};

struct compact_result {
    bool is_judged;                      /* on the test part: */
    struct score before, after;          /* as given; as written */
    uint64_t samples;                    /* there are in it */
    uint64_t parameters, weights, zeros; /* zeros: of the weights, as written */
    uint64_t bytes_before, bytes;        /* of the files */
    double error; /* of the weights, by norm: what int8 changed over what was there */
    uint64_t steps;
    double lr; /* NaN: nothing was trained */
};

/** On an error nothing needs to be released. No file is changed unless all but the judgement of the
 *  new one went well. Errors name the file or the flag. RC_NONFINITE: the loss ran away;
 *  RC_CANCELLED: stopped. */
MUST_USE enum rc compact_run(struct backend *backend, const struct compact_options *options,
                             struct compact_result *out, struct fault *why);
/** As printed by `compact --json`; docs/json.md names the keys. */
struct json *compact_json(const struct compact_options *options,
                          const struct compact_result *result);

#endif

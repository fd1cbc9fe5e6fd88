/*
 * summary: what came out of a testnet, as summary.json and as one table for people. The table is
 * made from the JSON, so that it can be printed again, with a distillation beside it, long after.
 */
#ifndef GRAPEVINE_TESTNET_SUMMARY_H
#define GRAPEVINE_TESTNET_SUMMARY_H

#include "base/rc.h"
#include "distill/comparison.h"
#include "testnet/local.h"
#include "testnet/text.h"

#include <stdbool.h>

struct json;

struct summary {
    const char *model, *data, *averaging, *exchange, *codec, *topology; /* as in force */
    const char *tokenizer; /* file; NULL: as the models state it */
    uint64_t seed;
    double target_accuracy; /* 0: none */
    const struct local_result *run;
    const struct comparison *models; /* of the peers that have one; NULL: could not be evaluated */
    const uint32_t *peer_of;         /* [models->count]: whose each is, rising */
};

/** The object of summary.json. `predicts`: "class", "token" (a text's next) or "reals";
 * `bytes_sent`, `rounds_*` are sums over peers; `goodput` is the share of all trained samples that
 * no kill threw away. */
struct json *summary_json(const struct summary *summary);
/** What must always hold; false names the first that does not. Things that cannot be known (no peer
 *  said its lineage) are left out. */
bool summary_holds(const struct json *summary, const char **broken);

/** Could any model be evaluated? */
bool summary_has_scores(const struct json *summary);
/** Whether models are told apart by their loss: an accuracy says little of a text, and nothing of
 *  real values. */
bool summary_is_by_loss(const struct json *summary);
bool summary_is_of_reals(const struct json *summary);
/** A baseline's scores of all its peers; false: there is no such baseline. `key`: "alone" or
 *  "all_data". */
struct spread {
    double mean, least, most, ensemble; /* accuracy, or loss as summary_is_by_loss() has it */
    uint64_t peers;
    double seconds;
};
bool summary_baseline(const struct json *summary, const char *key, struct spread *spread);
/** Accuracies or losses, parameters, bytes, seconds in one table. `distilled`: the object of
 * `distill
 * --json`, or NULL. */
void summary_add_table(struct text *text, const struct json *summary, const struct json *distilled);

#endif

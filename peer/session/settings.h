/*
 * settings: what the peers of a swarm have in common, by the names of its flags. A running peer
 * tells them to who asks (`settings` of its status), and `grapevine join` takes them from there.
 * Nothing that is of one machine is among them: no file, no address, no device; nor is --robust, so
 * that nobody decides for others how they guard themselves.
 */
#ifndef GRAPEVINE_PEER_SESSION_SETTINGS_H
#define GRAPEVINE_PEER_SESSION_SETTINGS_H

#include "averaging/strategy/strategy.h"
#include "base/json.h"
#include "peer/cli/options.h"
#include "replica/data/dataset.h"

/* What the flags leave to others. */
struct settings_chosen {
    const struct strategy *strategy;
    const char *optimizer;
    double rate; /* in place of the optimizer's; 0: that one */
    uint32_t batch;
    const struct dataset_info *data; /* NULL: a model of no data, no labels */
};

/** What is in force; destroy with json_destroy(). */
struct json *settings_tell(const struct options *options, const struct settings_chosen *chosen);
/** --labels as data readers take them, each with a line's end; "" without. RC_LIMIT. */
MUST_USE enum rc settings_read_labels(const struct options *options, char *labels, size_t cap,
                                      struct fault *why);
/** Data that are the same on every machine: not a file of one. Others are taken from nobody. */
bool settings_is_everywhere(const char *data);
/** The classes of a table where these have names, with commas between them; else "", or where that
 * is no list, or longer than `cap`. */
void settings_classes(const struct dataset_info *data, char *text, size_t cap);
/** Set what was not given here as the peer at `from` has it by its `status`, and list it in
 * `taken`. All of it was said by somebody else: names that are none of the table are passed over,
 * and each value has to pass as one of the command line. RC_FORMAT. */
MUST_USE enum rc settings_take(struct options *options, const char *from, const struct json *status,
                               char *taken, size_t cap, struct fault *why);

#endif

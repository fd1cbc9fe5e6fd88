/* local_hear: what the peers of a testnet say on their standard output, one JSON object a line. */
#include "testnet/local_internal.h"

#include "base/json.h"
#include "peer/env/process.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t count_of(const struct json *event, const char *key, uint64_t otherwise)
{
    uint64_t value;

    return json_get_count(event, key, &value) ? value : otherwise;
}

static double real_of(const struct json *event, const char *key, double otherwise)
{
    double value;

    return json_get_real(event, key, &value) ? value : otherwise;
}

/* Neighbours are said as a count or as a list. */
static uint64_t neighbours_of(const struct json *event, uint64_t otherwise)
{
    const struct json *list = json_get(event, "neighbours");
    uint64_t count;

    if (json_get_count(event, "neighbours", &count)) return count;
    return list != NULL ? json_count(list) : otherwise;
}

/* Reports and the last line have the same keys, but for the name of own steps. Counters of traffic
 * and rounds begin at 0 with each start, samples do not. */
static void take_numbers(struct runner *runner, const struct json *event)
{
    struct local_peer *seen = &runner->seen;
    const struct local_peer *before = &runner->before;
    const char *lineage = json_get_text(event, "lineage");

    seen->step = count_of(event, "step", seen->step);
    seen->own_steps = count_of(event, "steps", count_of(event, "own_steps", seen->own_steps));
    seen->samples = count_of(event, "samples", seen->samples);
    seen->round = count_of(event, "round", seen->round);
    seen->neighbours = neighbours_of(event, seen->neighbours);
    seen->loss = real_of(event, "loss", seen->loss);
    seen->accuracy = real_of(event, "accuracy", seen->accuracy);
    seen->samples_per_s = real_of(event, "samples_per_s", seen->samples_per_s);
    seen->bytes_sent = before->bytes_sent + count_of(event, "bytes_sent", 0);
    seen->bytes_received = before->bytes_received + count_of(event, "bytes_received", 0);
    seen->rounds_ok = before->rounds_ok + count_of(event, "rounds_ok", 0);
    seen->rounds_aborted = before->rounds_aborted + count_of(event, "rounds_aborted", 0);
    seen->rss_bytes = count_of(event, "rss_bytes", seen->rss_bytes);
    if (seen->rss_bytes > seen->peak_rss_bytes) seen->peak_rss_bytes = seen->rss_bytes;
    if (lineage != NULL) snprintf(seen->lineage, sizeof seen->lineage, "%s", lineage);
}

static void check_target(struct local *local)
{
    double sum = 0;

    if (local->options->target_accuracy <= 0 || !isnan(local->target_s)) return;
    for (uint32_t i = 0; i < local->options->peers; i++) {
        sum += local->runners[i].seen.accuracy;
    }
    if (sum / local->options->peers >= local->options->target_accuracy) {
        local->target_s = local_clock(local);
    }
}

static void tell(struct local *local, uint32_t peer)
{
    const struct local_options *options = local->options;

    check_target(local);
    if (options->on_report == NULL) return;
    options->on_report(options->context, peer, &local->runners[peer].seen);
}

static void on_report(struct local *local, uint32_t peer, const struct json *event)
{
    struct runner *runner = &local->runners[peer];
    const struct local_peer *seen = &runner->seen;

    take_numbers(runner, event);
    runner->seen.goal_s = local_clock(local) + real_of(event, "time_left_s", (double)NAN);
    struct json *line = local_event(local, "report", peer);
    json_set_count(line, "step", seen->step);
    json_set_count(line, "samples", seen->samples);
    json_set_real(line, "loss", seen->loss);
    json_set_real(line, "accuracy", seen->accuracy);
    json_set_real(line, "samples_per_s", seen->samples_per_s);
    json_set_real(line, "consensus_distance", real_of(event, "consensus_distance", (double)NAN));
    json_set_count(line, "bytes_sent", seen->bytes_sent);
    json_set_count(line, "bytes_received", seen->bytes_received);
    json_set_count(line, "rounds_ok", seen->rounds_ok);
    json_set_count(line, "rounds_aborted", seen->rounds_aborted);
    json_set_count(line, "rss_bytes", seen->rss_bytes);
    local_record(local, line);
    tell(local, peer);
}

/* No point of the curves: its loss is that of the test part. */
static void on_finished(struct local *local, uint32_t peer, const struct json *event)
{
    take_numbers(&local->runners[peer], event);
    local->runners[peer].seen.has_finished = true;
    local_record(local, local_event(local, "finished", peer));
    tell(local, peer);
}

static void on_listening(struct local *local, uint32_t peer, const struct json *event)
{
    struct runner *runner = &local->runners[peer];
    const char *address = json_get_text(event, "address");
    struct fault why = {""};

    if (runner->seen.state != LOCAL_STARTING || address == NULL) return;
    snprintf(runner->seen.address, sizeof runner->seen.address, "%s", address);
    local_lines_up(local, peer);
    local_become(runner, LOCAL_TRAINING);
    local_record(local, local_event(local, "started", peer));
    for (uint32_t i = 0; i < local->options->peers && !local->is_stopping; i++) {
        if (local->runners[i].seen.state != LOCAL_WAITING) continue;
        if (local_start(local, i, &why) != RC_OK) local_fail(local, i, why.text);
    }
}

void local_hear(void *context, uint32_t child, const char *line)
{
    struct local *local = context;
    struct json *event = NULL;

    for (uint32_t i = 0; i < local->options->peers; i++) {
        struct runner *runner = &local->runners[i];
        if (runner->child != (int64_t)child) continue;
        runner->heard_ns = process_now_ns(local->host);
        if (json_parse(line, strlen(line), &event, NULL) != RC_OK) return;
        const char *kind = json_get_text(event, "event");
        if (kind != NULL && strcmp(kind, "listening") == 0) on_listening(local, i, event);
        if (kind != NULL && strcmp(kind, "report") == 0) on_report(local, i, event);
        if (kind != NULL && strcmp(kind, "finished") == 0) on_finished(local, i, event);
        break;
    }
    json_destroy(event);
}

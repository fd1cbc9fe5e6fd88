/* What a node tells about itself: reports for metrics, status for people, the book for the disk. */
#include "peer/node/internal.h"

#include <math.h>

static const char *const state_names[] = {[MEMBER_KNOWN] = "known",
                                          [MEMBER_ALIVE] = "alive",
                                          [MEMBER_SUSPECT] = "suspect",
                                          [MEMBER_DEAD] = "dead",
                                          [MEMBER_LEFT] = "left"};

enum {
    STATUS_MEMBERS_MAX = 200, /* told to who asks over a link: about what fits */
    STATUS_ROUNDS_MAX = 16
};

static double or_nan(bool is_known, double value)
{
    return is_known ? value : (double)NAN;
}

static const char *state_word(const struct node *node)
{
    static const char *const words[] = {[NODE_JOINING] = "joining",
                                        [NODE_LOADING] = "loading",
                                        [NODE_TRAINING] = "training",
                                        [NODE_LEAVING] = "leaving",
                                        [NODE_ENDED] = "ended"};

    const bool waits = node->state == NODE_TRAINING && rounds_wait_for_more(node) > 0;

    if (node->options.is_keeper && node->state == NODE_TRAINING) return "keeping";
    return waits ? "waiting" : words[node->state];
}

void node_report(const struct node *node, struct node_report *report)
{
    struct links_counts counts;
    const struct round_stats stats = rounds_stats(node);
    uint64_t epoch = node->goal.epoch_samples;

    links_counts(node->links, &counts);
    *report = (struct node_report){
        .t_s = (double)(node_now(node) - node->begun_ns) / 1e9,
        .state = state_word(node),
        .waits_for = rounds_wait_for_more(node),
        .step = node->step,
        .own_steps = node->own_steps,
        .goal_steps = node->goal.steps == UINT64_MAX ? 0 : node->goal.steps,
        .left_s = or_nan(lane_left_ms(node) > 0, (double)lane_left_ms(node) / 1e3),
        .samples = node->samples,
        /* rounds of pairs and pushes have no common number: so many were ours */
        .round = stats.counts.next_round > 0 ? stats.counts.next_round : stats.counts.rounds_ok,
        .epoch = epoch == 0 ? 0.0 : (double)node->samples / (double)epoch,
        .loss = node->watch.loss,
        .accuracy = node->watch.accuracy,
        .samples_per_s = node->watch.samples_per_s,
        .tokens_per_s = or_nan(node->options.tokens_a_sample > 0,
                               node->watch.samples_per_s * node->options.tokens_a_sample),
        .evaluation_s = (double)node->watch.evaluation_ns / (double)NS_PER_S,
        .consensus_distance = or_nan(stats.has_distance, stats.distance),
        .neighbours = node->neighbours_count,
        .bytes_sent = counts.bytes_sent,
        .bytes_received = counts.bytes_received,
        .rounds_ok = stats.counts.rounds_ok,
        .rounds_aborted = stats.counts.rounds_aborted,
        .rounds_missed = rounds_overdue_missed(node),
        .staleness = rounds_staleness(node),
        .last_abort_reason = stats.counts.last_abort,
        .period_steps = rounds_are_adaptive(node) ? rounds_every(node) : 0,
        .has_weight = stats.counts.has_weight,
        .weight = stats.counts.weight,
        .custody_weight = stats.counts.custody_weight,
        .shares_returned = stats.counts.returned,
        .shares_lost = stats.counts.in_doubt_lost,
        .guard = stats.guard,
        .verify = verify_counts(node),
    };
    models_population_report(node, report);
}

static void begin_period(struct node *node)
{
    struct watch *watch = &node->watch;

    watch->loss_sum = 0.0;
    watch->loss_steps = 0;
    watch->since_samples = node->samples;
    watch->since_ns = node_now(node);
    watch->due_ns = watch->since_ns + node->options.report_every_ns;
}

void watch_begin(struct node *node)
{
    begin_period(node);
    node->watch.loss = node->watch.accuracy = (double)NAN;
    node->watch.alone_ns = node->watch.since_ns;
}

void watch_steps(struct node *node, const struct train_report *report)
{
    node->watch.loss_sum += report->loss_sum;
    node->watch.loss_steps += report->steps;
}

void watch_report(struct node *node)
{
    struct watch *watch = &node->watch;
    struct node_report report;
    uint64_t length_ns = node_now(node) - watch->since_ns;

    if (watch->loss_steps > 0) {
        watch->loss = watch->loss_sum / watch->loss_steps;
        watch->is_loss_bad = !isfinite(watch->loss);
    }
    if (node->neighbours_count > 0) watch->alone_ns = watch->since_ns;
    if (length_ns > 0) {
        watch->samples_per_s =
            (double)(node->samples - watch->since_samples) * 1e9 / (double)length_ns;
    }
    begin_period(node);
    rounds_overdue_look(node);
    if (node->state == NODE_JOINING) return;
    node_report(node, &report);
    node->events.on_report(node->events.context, &report);
}

/* Newest first. */
static void set_rounds(const struct node *node, struct json *json)
{
    const struct recorder *recorder = round_recorder(node->round);
    struct json *rounds = json_array_create(), *reasons = json_object_create();
    const struct round_record *record;

    for (uint64_t i = 0; i < STATUS_ROUNDS_MAX; i++) {
        struct json *round;

        record = recorder_at(recorder, i);
        if (record == NULL) break;
        round = json_object_create();
        json_set_real(round, "ago_s", (double)(node_now(node) - record->ended_ns) / 1e9);
        json_set_real(round, "seconds", (double)record->length_ns / 1e9);
        json_set_count(round, "members", record->members);
        json_set_text(round, "reason", record->reason);
        json_append(rounds, round);
    }
    for (uint32_t i = 0; i < RECORDER_REASONS && recorder->reasons[i].reason != NULL; i++) {
        json_set_count(reasons, recorder->reasons[i].reason, recorder->reasons[i].count);
    }
    json_set(json, "last_rounds", rounds);
    json_set(json, "abort_reasons", reasons);
}

void watch_dump(const struct node *node)
{
    const struct round_record *record;

    if (node->round == NULL) return;
    for (uint64_t i = RECORDER_ROUNDS; i-- > 0;) {
        record = recorder_at(round_recorder(node->round), i);
        if (record == NULL) continue;
        log_info(node->options.log, "round, %.1f s ago: %s; %u members, took %.3f s",
                 (double)(node_now(node) - record->ended_ns) / 1e9,
                 record->reason == NULL ? "averaged" : record->reason, record->members,
                 (double)record->length_ns / 1e9);
    }
}

/* What a supervisor should look at: texts for people. */
static void set_alarms(const struct node *node, struct json *json)
{
    struct json *alarms = json_array_create();
    char text[ALARM_BYTES];

    if (node->watch.is_loss_bad) {
        json_append_text(alarms, "the training loss is not finite: a lower --lr may help");
    }
    if (lane_checkpoint_failures(node) > 0) {
        json_append_text(alarms,
                         "the last checkpoint could not be written (the log says why): make "
                         "room where --out is");
    }
    if (rounds_are_overdue(node, text, sizeof text)) {
        json_append_text(alarms, text);
    } else if (node->state == NODE_TRAINING && !node->options.is_keeper &&
               node->options.bootstrap_count > 0 && membership_count(node->membership) == 0 &&
               node_now(node) >= node->watch.alone_ns + OVERDUE_NS) {
        json_append_text(alarms, "no peer of --bootstrap is reached: this peer trains alone");
    }
    json_set(json, "alarms", alarms);
}

/* By which ways group rounds went, and by which rate of this peer its parts are sized. */
static void set_schedules(const struct node *node, struct json *json)
{
    struct json *schedules = json_object_create();
    const struct round_stats stats = rounds_stats(node);

    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        json_set_count(schedules, schedule_name((enum schedule)i), stats.counts.scheduled[i]);
    }
    json_set_real(json, "parts_rate", or_nan(stats.counts.rate > 0, (double)stats.counts.rate));
    json_set_text(json, "schedule",
                  stats.counts.rounds_ok > 0 ? schedule_name(stats.counts.schedule) : NULL);
    json_set(json, "schedules", schedules);
}

static const char *site_or_null(const char *site)
{
    return site[0] == '\0' ? NULL : site;
}

/* What came of asking a neighbour for its steps. */
static void set_verified(const struct node *node, struct peer_id id, struct json *json)
{
    const struct neighbour *neighbour = verify_is_on(node) ? door_neighbour(node, id) : NULL;

    if (neighbour == NULL) return;
    json_set_count(json, "verify_equal", neighbour->verify.equal);
    json_set_count(json, "verify_not_shown", neighbour->verify.unshown);
}

static struct json *member_json(const struct node *node, const struct member_view *view)
{
    uint64_t rate = rounds_line_rate(node, view->id);
    struct json *json = json_object_create();
    char id[PEER_ID_TEXT];
    struct link_view link;
    struct trust_view trusted;

    (void)trust_view(node->trust, view->id, node_now(node), &trusted); /* a clean sheet: 0 */
    peer_id_format(view->id, id);
    (void)links_peer(node->links, view->id, &link);
    json_set_text(json, "id", id);
    json_set_text(json, "address", view->address);
    json_set_text(json, "state", state_names[view->state]);
    json_set_real(json, "rtt_ms", view->rtt_ns == 0 ? (double)NAN : (double)view->rtt_ns / 1e6);
    json_set_count(json, "bytes_sent", link.bytes_sent);
    json_set_count(json, "bytes_received", link.bytes_received);
    json_set_real(json, "rate", or_nan(rate > 0, (double)rate));
    json_set_real(json, "odds", rounds_odds(node, view->id));
    json_set_text(json, "nat", nat_class_name(view->nat));
    json_set_text(json, "site", site_or_null(view->site));
    json_set_bool(json, "is_keeper", view->is_keeper);
    json_set_bool(json, "is_relayed", node_is_relayed(node, view->id));
    json_set_real(json, "score", trusted.score);
    json_set_text(json, "last_failure",
                  node->round == NULL ? NULL : round_last_failure(node->round, view->id));
    set_verified(node, view->id, json);
    return json;
}

static struct json *members_json(const struct node *node, size_t members_max)
{
    struct json *array = json_array_create();
    size_t max = membership_count(node->membership);
    struct member_view *views = mem_array(max, sizeof *views);
    size_t count = views == NULL ? 0 : membership_list(node->membership, views, max);

    for (size_t i = 0; i < count && i < members_max; i++) {
        json_append(array, member_json(node, &views[i]));
    }
    mem_free(views);
    return array;
}

/* What the links of this peer have moved and refused. */
static void set_links(const struct links_counts *counts, const struct links *links,
                      struct json *json)
{
    bool is_least, is_known;
    uint64_t rate = 0;

    is_known = links_rate(links, &rate, &is_least) && !is_least;
    json_set_real(json, "rate", or_nan(is_known, (double)rate));
    json_set_count(json, "bytes_sent", counts->bytes_sent);
    json_set_count(json, "bytes_received", counts->bytes_received);
    json_set_count(json, "handshakes_refused", counts->handshakes_refused);
    json_set_count(json, "frames_refused", counts->frames_refused);
    json_set_count(json, "handshakes_replayed", counts->gate.replayed);
}

/* What strangers cost, and what others did to us, by reason, and how often one lost its link for
 * it. */
static void set_admission(const struct node *node, const struct links_counts *counts,
                          struct json *json)
{
    struct json *admission = json_object_create(), *scores = json_object_create();
    struct json *offences = json_object_create();
    uint64_t totals[SCORE_REASONS], bans;

    trust_totals(node->trust, totals, &bans);
    for (unsigned i = 0; i < SCORE_REASONS; i++) {
        const char *reason = score_reason_name((enum score_reason)i);

        json_set_count(scores, reason, totals[i]);
        if (i != SCORE_COMMITTED) json_set_count(offences, reason, totals[i]);
    }
    json_set_count(offences, "bans", bans);
    json_set(json, "offences", offences);
    json_set_count(admission, "strangers", counts->gate.waiting);
    json_set_count(admission, "strangers_most", counts->gate.waiting_max);
    json_set_count(admission, "strangers_seen", counts->gate.entered);
    json_set_count(admission, "evicted", counts->gate.evicted);
    json_set_count(admission, "handshakes", counts->gate.answering);
    json_set_count(admission, "answered", counts->gate.answered);
    json_set_count(admission, "proved", counts->gate.proved);
    json_set_count(admission, "replayed", counts->gate.replayed + counts->replays);
    json_set_count(admission, "rationed", counts->gate.spent_prefix + counts->gate.spent_all);
    json_set_count(admission, "refused", counts->handshakes_refused);
    json_set_count(admission, "bad_frames", counts->frames_refused);
    json_set_count(admission, "bans", bans);
    json_set(admission, "scores", scores);
    json_set(json, "admission", admission);
}

char *node_status_text(const struct node *node, size_t bytes_max)
{
    size_t members = membership_count(node->membership);

    if (members > STATUS_MEMBERS_MAX) members = STATUS_MEMBERS_MAX;
    for (;;) {
        struct json *json = node_status(node, members);
        char *text = json_format(json);

        json_destroy(json);
        if (text == NULL || strlen(text) <= bytes_max) return text;
        mem_free(text);
        if (members == 0) return NULL;
        members /= 2;
    }
}

void node_report_guard(const struct node_report *report, struct json *json)
{
    json_set_count(json, "guard_judged", report->guard.judged);
    json_set_count(json, "guard_reduced", report->guard.reduced);
    json_set_count(json, "guard_refused", report->guard.refused);
    json_set_count(json, "guard_means", report->guard.means);
    json_set_count(json, "guard_means_refused", report->guard.means_refused);
}

void node_report_verify(const struct node_report *report, struct json *json)
{
    const struct verify_counts *verify = &report->verify;

    if (!verify->is_on) return;
    json_set_text(json, "verify_why_not", verify->why_not);
    json_set_count(json, "verify_members", verify->members);
    json_set_count(json, "verify_others", verify->others);
    json_set_count(json, "verify_equal", verify->equal);
    json_set_count(json, "verify_unlike", verify->unlike);
    json_set_count(json, "verify_refused", verify->refused);
    json_set_count(json, "verify_missed", verify->missed);
    json_set_count(json, "verify_unclear", verify->unclear);
    json_set_real(json, "verify_repeat_s", verify->repeat_s);
    json_set_real(json, "verify_claim_s", verify->claim_s);
}

void node_report_population(const struct node_report *report, struct json *json)
{
    if (!report->is_population) return;
    json_set_real(json, "learning_rate", report->rate);
    json_set_real(json, "weight_decay", report->decay);
    json_set_real(json, "validation_loss", report->score);
    json_set_text(json, "line", report->line);
    json_set_count(json, "copies", report->copies);
    json_set_count(json, "copies_refused", report->copies_refused);
}

void node_report_period(const struct node_report *report, struct json *json)
{
    if (report->period_steps > 0) json_set_count(json, "period_steps", report->period_steps);
}

/* What only some methods have. */
static void set_method(const struct node_report *report, struct json *json)
{
    if (report->has_weight) {
        json_set_real(json, "weight", report->weight);
        json_set_real(json, "custody_weight", report->custody_weight);
        json_set_count(json, "shares_returned", report->shares_returned);
        json_set_count(json, "shares_lost", report->shares_lost);
    }
    node_report_period(report, json);
    node_report_population(report, json);
}

struct json *node_status(const struct node *node, size_t members_max)
{
    struct json *json = json_object_create();
    struct json *neighbours = json_array_create();
    struct links_counts counts;
    struct node_report report;
    char id[PEER_ID_TEXT], digest[DIGEST_TEXT], address[ADDRESS_BYTES_MAX];

    node_report(node, &report);
    peer_id_format(node->self, id);
    door_own_address(node, address);
    digest_format(node->options.swarm->run_id, digest);
    json_set_text(json, "peer", id);
    json_set_text(json, "address", address);
    json_set_text(json, "run", digest);
    json_set_text(json, "state", report.state);
    json_set_text(json, "nat", nat_class_name(node_nat(node)));
    json_set_text(json, "site", site_or_null(node->options.site));
    json_set_real(json, "uptime_s", report.t_s);
    json_set_text(json, "model", node->options.spec);
    json_set_text(json, "averaging", node->options.strategy->text);
    if (node->options.settings != NULL)
        json_set(json, "settings", json_duplicate(node->options.settings));
    json_set_count(json, "step", report.step);
    json_set_count(json, "own_steps", report.own_steps);
    json_set_real(json, "goal_steps", or_nan(report.goal_steps > 0, (double)report.goal_steps));
    json_set_real(json, "time_left_s", report.left_s);
    json_set_count(json, "waits_for", report.waits_for);
    json_set_count(json, "samples", report.samples);
    json_set_count(json, "round", report.round);
    json_set_real(json, "loss", report.loss);
    json_set_real(json, "accuracy", report.accuracy);
    json_set_real(json, "samples_per_s", report.samples_per_s);
    json_set_real(json, "tokens_per_s", report.tokens_per_s);
    json_set_count(json, "predictions", node->watch.answers);
    json_set_real(json, "predictions_s", (double)node->watch.answering_ns / 1e9);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        peer_id_format(node->neighbours[i].id, id);
        json_append_text(neighbours, id);
    }
    json_set(json, "neighbours", neighbours);
    json_set_real(json, "consensus_distance", report.consensus_distance);
    json_set_count(json, "rounds_ok", report.rounds_ok);
    json_set_count(json, "rounds_aborted", report.rounds_aborted);
    json_set_count(json, "rounds_missed", report.rounds_missed);
    json_set_text(json, "last_abort_reason", report.last_abort_reason);
    node_report_guard(&report, json);
    node_report_verify(&report, json);
    set_method(&report, json);
    json_set_count(json, "checkpoint_failures", lane_checkpoint_failures(node));
    set_alarms(node, json);
    if (node->round != NULL) set_rounds(node, json);
    if (node->round != NULL && rounds_are_common(node)) set_schedules(node, json);
    links_counts(node->links, &counts);
    set_links(&counts, node->links, json);
    set_admission(node, &counts, json);
    json_set_count(json, "members_count", membership_count(node->membership));
    json_set(json, "members", members_json(node, members_max));
    return json;
}

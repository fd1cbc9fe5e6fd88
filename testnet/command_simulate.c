/*
 * command_simulate: a swarm in virtual time: how far apart the peers are, how good, what it costs,
 * under a network and faults of one's choice. Equal flags and seed print equal results but for the
 * seconds it took.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/units.h"
#include "peer/env/env.h"
#include "testnet/hetero_spec.h"
#include "testnet/link_spec.h"
#include "testnet/simulation.h"
#include "testnet/springs.h"

#include <math.h>
#include <stdio.h>

enum { ROUNDS_DEFAULT = 20 };

struct view {
    struct log log;
    struct json *samples; /* NULL: not wanted */
};

static struct json *sample_json(const struct simulation_sample *sample)
{
    struct json *json = json_object_create();

    json_set_real(json, "t", sample->t_s);
    json_set_count(json, "live", sample->live);
    json_set_real(json, "consensus_distance", sample->distance);
    json_set_real(json, "loss", sample->loss);
    json_set_real(json, "loss_of_average", sample->loss_of_average);
    json_set_count(json, "steps", sample->steps);
    json_set_count(json, "rounds_ok", sample->rounds_ok);
    json_set_count(json, "rounds_aborted", sample->rounds_aborted);
    json_set_count(json, "bytes", sample->bytes);
    json_set_count(json, "bytes_across", sample->bytes_across);
    json_set_count(json, "faults", sample->faults);
    return json;
}

static void on_sample(void *context, const struct simulation_sample *sample)
{
    struct view *view = context;
    char bytes[32];

    log_info(&view->log,
             "%7.1f s  %u peers  consensus distance %.4g  loss %.4g  of the average %.4g  %.1f "
             "rounds a peer  "
             "%llu aborted  %s  %llu faults",
             sample->t_s, sample->live, sample->distance, sample->loss, sample->loss_of_average,
             sample->rounds_per_peer, (unsigned long long)sample->rounds_aborted,
             units_format_bytes(sample->bytes, bytes, sizeof bytes),
             (unsigned long long)sample->faults);
    if (view->samples != NULL) json_append(view->samples, sample_json(sample));
}

static struct json *spectrum_json(const struct spectrum *spectrum)
{
    struct json *json = json_object_create();

    json_set_real(json, "rho", spectrum->rho);
    json_set_real(json, "second_eigenvalue", spectrum->second);
    json_set_real(json, "smallest_eigenvalue", spectrum->last);
    json_set_count(json, "period", spectrum->period);
    json_set_bool(json, "is_expected", spectrum->is_expected);
    return json;
}

static struct json *summary(const struct options *options, const struct strategy *strategy,
                            const struct simulation_result *result, const struct spectrum *spectrum,
                            double wall_s)
{
    struct json *json = json_object_create(), *invariants = json_object_create();
    const struct simulation_sample *last = &result->last;
    size_t peers = (size_t)options_count(options, "peers");
    char trace[24];

    snprintf(trace, sizeof trace, "%016llx", (unsigned long long)result->trace);
    json_set_count(json, "peers", peers);
    json_set_text(json, "averaging", strategy->text);
    json_set_count(json, "seed", options_count(options, "seed"));
    json_set_real(json, "virtual_s", last->t_s);
    json_set_real(json, "consensus_distance", last->distance);
    json_set_real(json, "loss", last->loss);
    json_set_real(json, "loss_of_average", last->loss_of_average);
    json_set_count(json, "steps", last->steps);
    json_set_count(json, "rounds_ok", last->rounds_ok);
    json_set_count(json, "rounds_aborted", last->rounds_aborted);
    json_set_real(json, "rounds_per_peer", last->rounds_per_peer);
    json_set_count(json, "bytes", last->bytes);
    json_set_count(json, "bytes_across", last->bytes_across);
    json_set_count(json, "faults", last->faults);
    json_set_count(json, "live", last->live);
    json_set_real(json, "spectral_gap", 1 - spectrum->rho);
    json_set(json, "spectrum", spectrum_json(spectrum));
    json_set_real(json, "contraction", result->contraction);
    json_set_real(json, "time_to_target_s", result->time_to_target_s);
    json_set_count(json, "events", result->events);
    json_set_text(json, "digest", trace);
    json_set_bool(invariants, "finite", result->is_finite);
    json_set_bool(invariants, "progress", result->has_progress);
    json_set_bool(invariants, "one_swarm", result->is_one_swarm);
    json_set(json, "invariants", invariants);
    json_set_real(json, "wall_s", wall_s);
    return json;
}

/* A round mixes by the graph's matrix and does nothing else. */
static bool is_plain(const struct simulation_options *simulation)
{
    const struct strategy *strategy = simulation->strategy;
    const struct exchange_ops *exchange = strategy->exchange;

    if (simulation->sites > 1 || strategy->topology.sites_every > 0) return false;
    if (strategy->rule != &rule_mean || strategy->tracks) return false;
    if (strategy->clips || strategy->aggregate.ops != NULL) return false;
    if (exchange->has_mirrors || exchange == &exchange_push || strategy->budget > 0) return false;
    return !exchange->is_graph || (strategy->alpha <= 0 && strategy->beta >= 1);
}

static void tell_spectrum(const struct log *log, const struct simulation_options *simulation,
                          const struct spectrum *spectrum)
{
    if (!is_plain(simulation)) {
        log_info(log, "spectral gap of the graph's mixing matrix: %.6g; a round of %s is another",
                 1 - spectrum->rho, simulation->strategy->name);
    } else if (spectrum->rho == 0 && spectrum->period > 1) {
        log_info(log, "%u rounds give the exact mean", spectrum->period);
    } else {
        log_info(log, "spectral gap %.6g: a round %s %.6g of the distance", 1 - spectrum->rho,
                 spectrum->is_expected ? "is expected to leave" : "leaves at most", spectrum->rho);
    }
}

static enum rc read_links(const struct options *options, struct simulation_options *simulation,
                          struct fault *why)
{
    const char *across = options_text(options, "link-across");
    enum rc rc = link_spec_parse("link", options_text(options, "link"), &simulation->link, why);

    simulation->across = simulation->link;
    if (rc != RC_OK || across == NULL) return rc;
    if (simulation->sites < 2) {
        return fault_set(why, RC_USAGE,
                         "--link-across is of the lines between sites, and there is one; give "
                         "--sites, too");
    }
    return link_spec_parse("link-across", across, &simulation->across, why);
}

static enum rc read_options(const struct options *options, struct strategy *strategy,
                            struct simulation_options *simulation, double *speeds,
                            struct fault *why)
{
    struct strategy_specs specs = {.averaging = options_text(options, "averaging"),
                                   .topology = options_text(options, "topology"),
                                   .exchange = options_text(options, "exchange"),
                                   .codec = options_text(options, "codec"),
                                   .rule = options_text(options, "rule"),
                                   .pace = options_text(options, "pace"),
                                   .robust = options_text(options, "robust")};
    enum rc rc;

    /* Planes that were put apart are no more than that: it is the mixing that is looked at. */
    if (options_flag(options, "still") && !options_is_set(options, "robust")) specs.robust = "none";
    rc = strategy_parse(&specs, strategy, why);
    *simulation = (struct simulation_options){.peers = (uint32_t)options_count(options, "peers"),
                                              .seed = options_count(options, "seed"),
                                              .strategy = strategy,
                                              .values = (size_t)options_count(options, "values"),
                                              .step_ns = options_ns(options, "step-time"),
                                              .rounds = options_count(options, "rounds"),
                                              .time_ns = options_ns(options, "time"),
                                              .centre_spread = options_real(options, "spread"),
                                              .target_loss = options_real(options, "target-loss"),
                                              .report_ns = options_ns(options, "report-every"),
                                              .sites = (uint32_t)options_count(options, "sites"),
                                              .is_still = options_flag(options, "still")};
    bool has_end = simulation->time_ns > 0 || simulation->target_loss > 0;

    if (simulation->rounds == 0 && !has_end) simulation->rounds = ROUNDS_DEFAULT;
    if (!strategy->is_averaging && rc == RC_OK && !has_end) {
        rc = fault_set(why, RC_USAGE, "--averaging %s has no rounds to count; say --time instead",
                       strategy->name);
    }
    if (simulation->peers == 1 && rc == RC_OK && !has_end) {
        rc = fault_set(why, RC_USAGE,
                       "--peers 1: one peer alone has no rounds to count; say --time instead, or "
                       "more --peers");
    }
    if (strategy->mixes_answers && simulation->is_still && rc == RC_OK) {
        rc = fault_set(why, RC_USAGE,
                       "--still: rounds of --averaging %s move nothing but by training; leave it "
                       "out",
                       strategy->name);
    }
    if (strategy->at_end && rc == RC_OK) {
        rc = fault_set(why, RC_USAGE,
                       "--averaging %s averages when peers have reached their goals, and simulated "
                       "ones have none; use testnet",
                       strategy->name);
    }
    if (rc == RC_OK) rc = strategy_check_peers(strategy, simulation->peers, why);
    if (rc == RC_OK) rc = simulation_check(simulation, why);
    if (rc == RC_OK) rc = springs_check(strategy, simulation->peers, why);
    if (rc == RC_OK) rc = read_links(options, simulation, why);
    if (rc == RC_OK) rc = chaos_parse(options_text(options, "chaos"), &simulation->chaos, why);
    if (rc == RC_OK) {
        rc = hetero_spec_parse(options_text(options, "hetero"), simulation->seed, speeds,
                               simulation->peers, why);
    }
    simulation->speeds = speeds;
    return rc;
}

/* The one command that shows the same again. */
static void tell_how_to_repeat(const struct options *options, const struct log *log,
                               const struct simulation_result *result)
{
    static const char *const names[] = {
        "peers",  "averaging", "topology", "exchange",    "codec",       "rule",   "pace",
        "robust", "values",    "sites",    "link-across", "step-time",   "rounds", "time",
        "link",   "chaos",     "hetero",   "spread",      "target-loss", "seed"};
    char line[1024] = "grapevine simulate";
    size_t used = strlen(line);

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const char *text = options_text(options, names[i]);
        int n;

        if (text == NULL || used >= sizeof line) continue;
        n = snprintf(line + used, sizeof line - used, " --%s '%s'", names[i], text);
        if (n > 0) used += (size_t)n;
    }
    if (options_flag(options, "still") && used < sizeof line) {
        snprintf(line + used, sizeof line - used, " --still");
    }
    log_error(log, "broken:%s%s%s; again with: %s", result->is_finite ? "" : " finite",
              result->has_progress ? "" : " progress", result->is_one_swarm ? "" : " one_swarm",
              line);
}

static enum rc run(const struct options *options, const struct log *log,
                   struct simulation_options *simulation, struct simulation_result *result,
                   struct fault *why)
{
    const struct trace_options trace = {
        .path = options_text(options, "trace"), .is_one_thread = true, .log = log};
    enum rc rc = trace.path == NULL ? RC_OK : trace_create(&trace, &simulation->trace, why);

    if (rc == RC_OK) rc = simulation_run(simulation, result, why);
    trace_destroy(simulation->trace);
    return rc;
}

int command_simulate(struct options *options)
{
    struct view view = {.log = command_log(options)};
    bool is_json = options_flag(options, "json"), holds;
    struct simulation_options simulation;
    struct simulation_result result;
    struct spectrum spectrum = {.rho = 1, .second = NAN, .last = NAN};
    struct strategy strategy;
    struct fault why = {""};
    uint64_t begun_ns = uv_clock_ns();
    struct json *json;
    double *speeds = mem_array((size_t)options_count(options, "peers"), sizeof *speeds);
    enum rc rc = RC_NOMEM;

    if (speeds != NULL) rc = read_options(options, &strategy, &simulation, speeds, &why);
    if (rc != RC_OK) {
        mem_free(speeds);
        return command_failed(rc, &why);
    }
    log_info(&view.log, "%u peers, averaging %s", simulation.peers, strategy.text);
    if (rc == RC_OK && strategy.is_averaging) rc = simulation_spectrum(&simulation, &spectrum);
    if (rc != RC_OK) return command_failed(rc, &why);
    if (strategy.is_averaging) tell_spectrum(&view.log, &simulation, &spectrum);
    if (is_json) view.samples = json_array_create();
    simulation.context = &view;
    simulation.on_sample = on_sample;
    simulation.stop = command_watch_stop(); /* what it came to by then is printed */
    rc = run(options, &view.log, &simulation, &result, &why);
    mem_free(speeds);
    if (rc != RC_OK) {
        json_destroy(view.samples);
        return command_failed(rc, &why);
    }
    on_sample(&view, &result.last);
    json =
        summary(options, &strategy, &result, &spectrum, (double)(uv_clock_ns() - begun_ns) * 1e-9);
    holds = result.is_finite && result.has_progress && result.is_one_swarm;
    if (*simulation.stop != 0) {
        log_info(&view.log, "stopped before its end; this is what it came to");
    } else if (!holds) {
        tell_how_to_repeat(options, &view.log, &result);
    }
    if (is_json) {
        json_set(json, "samples", view.samples);
        command_print_json(json);
    } else {
        printf("%.1f virtual seconds, %.1f rounds a peer, %llu aborted: consensus distance %.4g, "
               "loss %.4g, of the average %.4g\n",
               result.last.t_s, result.last.rounds_per_peer,
               (unsigned long long)result.last.rounds_aborted, result.last.distance,
               result.last.loss, result.last.loss_of_average);
        if (!isnan(result.contraction)) {
            printf("a round left %.4f of the consensus distance; %s %.4f\n", result.contraction,
                   is_plain(&simulation) ? "theory says" : "the graph's mixing matrix has",
                   spectrum.rho);
        }
        json_destroy(json);
    }
    if (*simulation.stop != 0) return 128 + (int)*simulation.stop;
    return holds ? EXIT_DONE : EXIT_INVARIANT;
}

/*
 * Which coordinates of a strategy go together: what was not given follows what was, and what
 * contradicts it is refused with a line that says what to do. Pure.
 */
#include "averaging/strategy/match.h"

#include "base/check.h"
#include "base/words.h"

#include <string.h>

/* Groups need who forms one; a pair meets anybody, or one of its neighbours in a graph. */
static bool suits(const struct exchange_ops *exchange, const struct topology *topology)
{
    bool is_graph = topology_is_graph(topology) || topology->kind == TOPOLOGY_COMPLETE;

    if (exchange->is_group) return topology_is_grouped(topology);
    if (exchange->is_graph) return is_graph && !topology_is_directed(topology);
    if (exchange == &exchange_push) return !topology_is_grouped(topology);
    return !topology_is_grouped(topology) && !topology_is_directed(topology);
}

static enum topology_kind topology_of(const struct exchange_ops *exchange)
{
    if (exchange->is_graph) return TOPOLOGY_RING;
    return exchange->is_group ? TOPOLOGY_COMPLETE : TOPOLOGY_PAIRS;
}

static const char *topologies_for(const struct exchange_ops *exchange)
{
    if (exchange->is_graph) return "a graph, such as --topology ring";
    return exchange->is_group ? "--exchange pair" : "--topology pairs";
}

/* Pairs need the pair exchange, and the other way round; what was not given follows the other. */
enum rc strategy_match_topology(const struct strategy_specs *specs, const struct method *method,
                                struct strategy *strategy, struct fault *why)
{
    enum rc rc;

    strategy->topology = method->topology;
    if (strategy->exchange != method->exchange) {
        strategy->topology.kind = topology_of(strategy->exchange);
    }
    strategy->topology_is_default = !strategy_is_given(specs->topology);
    if (strategy->topology_is_default) return RC_OK;
    rc = topology_parse(specs->topology, &strategy->topology, why);
    if (rc != RC_OK) return rc;
    if (suits(strategy->exchange, &strategy->topology)) return RC_OK;
    if (topology_is_directed(&strategy->topology)) {
        return fault_set(why, RC_USAGE,
                         "--topology %s leads one way, and the %s exchange of %s needs both; use "
                         "--topology exponential",
                         specs->topology, strategy->exchange->name, strategy->name);
    }
    if (strategy_is_given(specs->exchange) || strategy->exchange->is_graph ||
        strategy->exchange == &exchange_push) {
        return fault_set(why, RC_USAGE, "--topology %s does not go with --exchange %s; use %s",
                         specs->topology, strategy->exchange->name,
                         topologies_for(strategy->exchange));
    }
    if (strategy->rule == &rule_elastic && topology_is_graph(&strategy->topology)) {
        strategy->exchange = &exchange_edges;
        return RC_OK;
    }
    strategy->exchange = strategy->exchange->is_group ? &exchange_pair : &exchange_group;
    return RC_OK;
}

/* The push exchange has a rule of its own; it comes and goes with it. */
void strategy_follow_exchange(const struct strategy_specs *specs, struct strategy *strategy)
{
    bool is_push = strategy->exchange == &exchange_push;

    if (strategy->rule == &rule_elastic && strategy->exchange->is_graph) {
        strategy->rule = &rule_mean; /* springs along edges need no centre */
        strategy->alpha = strategy->rule_settings.share;
        strategy->beta = strategy->rule_settings.rate;
    }
    if (strategy_is_given(specs->rule) || is_push == strategy->rule->is_push) return;
    if (is_push && strategy->rule != &rule_mean) return;
    strategy->rule = is_push ? &rule_push : &rule_mean;
    strategy->steps_by_weight = is_push;
}

/* `method->beta`, but for a setting: the step towards the neighbours' copies, which are behind by
 * what the codec leaves out. Where it is too long for that, they swing. */
static enum rc match_codec(const struct method *method, struct strategy *strategy,
                           struct fault *why)
{
    if (strategy->exchange->has_mirrors) {
        codec_contract(&strategy->codec);
        if (strategy->beta == 0 || method->exchange != &exchange_mirror) {
            strategy->beta = strategy->codec.traits.step;
        }
    } else if (strategy->beta == 0) {
        strategy->beta = 1;
    }
    if (!strategy->codec.traits.is_difference || strategy->exchange->has_mirrors) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--codec %s: what is left out of a model would be lost; it is for "
                     "differences to copies, as --averaging choco has them",
                     strategy->codec.name);
}

static enum rc match_end(const struct strategy_specs *specs, const struct strategy *strategy,
                         struct fault *why)
{
    if (!strategy->at_end) return RC_OK;
    if (strategy_is_given(specs->pace)) {
        return fault_set(why, RC_USAGE,
                         "--averaging one-shot: its one round is at the end, so "
                         "--pace %s does not go with it; leave it out",
                         specs->pace);
    }
    if (strategy->exchange->is_group) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--averaging one-shot: one round of two at a time would leave "
                     "the others out; use --exchange group");
}

/* Springs to a centre whose two ends move in periods of their own. The longer is a multiple of the
 * shorter, so that where both are due both move from the old values. */
static enum rc match_pulls(const struct strategy_specs *specs, struct strategy *strategy,
                           struct fault *why)
{
    uint64_t push = strategy->every_steps, pull = strategy->pull_steps;

    if (pull == 0) return RC_OK;
    if (strategy->rule != &rule_elastic) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: push and pull are the two ends of a spring to a centre, "
                         "and %s over %s has none; leave them out, and give tau",
                         strategy->name, strategy->rule->name, strategy->exchange->name);
    }
    if (strategy_is_given(specs->pace)) {
        return fault_set(why, RC_USAGE,
                         "--pace %s does not go with the periods push and pull of --averaging %s; "
                         "give one or the other",
                         specs->pace, strategy->name);
    }
    if (push % pull != 0 && pull % push != 0) {
        return fault_set(
            why, RC_USAGE,
            "--averaging %s: push=%llu,pull=%llu: the longer period must be a multiple "
            "of the shorter",
            strategy->name, (unsigned long long)push, (unsigned long long)pull);
    }
    if (pull >= push) {
        strategy->rule_settings.pull_rounds = pull / push;
        strategy->pull_steps = 0;
    }
    return RC_OK;
}

/* Resetting them at every step would leave none. Second moments must not become negative: means are
 * taken of what nobody changes meanwhile, nothing rounds, and every member gets the same. */
static enum rc match_moments(struct strategy *strategy, struct fault *why)
{
    const bool is_each_step = strategy->every_ns == 0 && strategy->every_steps <= 1;

    if (strategy->moments == MOMENTS_KEEP || !strategy->is_averaging) return RC_OK;
    if (strategy->at_end) {
        return fault_set(why, RC_USAGE,
                         "--moments: no step follows the one round of --averaging %s; leave it out",
                         strategy->name);
    }
    if (strategy->moments == MOMENTS_RESET) {
        if (!is_each_step && strategy->chance == 0) return RC_OK;
        return fault_set(why, RC_USAGE,
                         "--moments reset: with rounds as frequent as those of --averaging %s none "
                         "would ever build up; take rounds every few steps, or --moments keep",
                         strategy->name);
    }
    if (!strategy->exchange->is_group || strategy->rule == &rule_elastic) {
        return fault_set(why, RC_USAGE,
                         "--moments average: --averaging %s does not bring its peers to one model, "
                         "exchange %s, rule %s; it is for --exchange group with rule mean, "
                         "nesterov, slow-momentum or block",
                         strategy->name, strategy->exchange->name, strategy->rule->name);
    }
    if (!strategy->codec.traits.is_lossless) {
        return fault_set(why, RC_USAGE,
                         "--moments average: --codec %s rounds, and squares would become negative; "
                         "use --codec f32",
                         strategy->codec.name);
    }
    strategy->waits = true;
    return RC_OK;
}

/* One of two neighbours who lies cannot be told from one with other data. */
static bool has_few_neighbours(const struct topology *topology)
{
    return topology->kind == TOPOLOGY_RING ||
           (topology->kind == TOPOLOGY_RANDOM && topology->degree < 3);
}

/* Sums of several members cannot be clipped one by one; and before the one round at the end no
 * distance is usual. NULL: it can. */
static const char *why_no_clip(const struct strategy *strategy)
{
    if (strategy->at_end) return "before its one round no distance is usual";
    if (!strategy->exchange->is_group || strategy->schedule == SCHEDULE_AUTO) return NULL;
    if (strategy->schedule == SCHEDULE_DIRECT) return NULL;
    return "each one's own values are needed, not sums of several; use group:direct";
}

/* auto: clip where the method can. */
static enum rc match_robust(const struct strategy_specs *specs, struct strategy *strategy,
                            struct fault *why)
{
    static const char *const names[] = {"auto", "none", "clip"};
    const char *spec = strategy_is_given(specs->robust) ? specs->robust : names[0];
    const char *reason = why_no_clip(strategy);
    char hint[WORD_HINT_BYTES];
    size_t i = 0;

    while (i < ARRAY_COUNT(names) && strcmp(spec, names[i]) != 0) {
        i++;
    }
    if (i == ARRAY_COUNT(names)) {
        return fault_set(why, RC_PARSE, "--robust %s: column 1: unknown defence%s", spec,
                         word_hint(spec, names, ARRAY_COUNT(names), NULL, hint));
    }
    if (!strategy->is_averaging || i == 1) return RC_OK;
    strategy->clips = reason == NULL;
    strategy->lacks_guard = reason != NULL || has_few_neighbours(&strategy->topology);
    if (reason == NULL || i == 0) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--robust clip does not go with --averaging %s: %s; methods such as "
                     "local-sgd, ad-psgd and dpsgd can clip",
                     strategy->name, reason);
}

static enum rc match_rule(const struct strategy *strategy, struct fault *why)
{
    const struct rule_settings *settings = &strategy->rule_settings;

    if (!strategy->rule->is_push && strategy->exchange == &exchange_push) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: exchange push gives weight away with the model, which "
                         "rule %s does not count; use --rule push-sum, or --exchange group or pair",
                         strategy->name, strategy->rule->name);
    }
    if (strategy->rule->is_push && strategy->exchange != &exchange_push) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: rule push-sum counts weight that exchange %s does not "
                         "send; use --exchange push, or another rule",
                         strategy->name, strategy->exchange->name);
    }
    if (strategy->rule->prepare != NULL && !strategy->exchange->is_graph) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: rule %s is for rounds of neighbours; use --exchange "
                         "edges, or --averaging d2",
                         strategy->name, strategy->rule->name);
    }
    if (strategy->rule->is_paired && !strategy->rule->is_push && strategy->exchange->is_graph) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: rule %s is a step that two peers take together; use "
                         "--exchange pair",
                         strategy->name, strategy->rule->name);
    }
    if (strategy->rule->is_paired && strategy->exchange->is_group) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: rule %s is a step that two peers take together; use "
                         "--exchange pair, or rule nesterov",
                         strategy->name, strategy->rule->name);
    }
    if (strategy->rule == &rule_heavy_ball &&
        settings->rate >= heavy_ball_rate_max(settings->momentum)) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: with lr %g and momentum %g peers drift apart instead of "
                         "coming together; lr must be below 2 (1 - momentum^2), here %.3g",
                         strategy->name, (double)settings->rate, (double)settings->momentum,
                         (double)heavy_ball_rate_max(settings->momentum));
    }
    if (!strategy->rule->is_outer || strategy->exchange->is_group) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--averaging %s: rule %s steps from an anchor that a whole group agrees on, "
                     "and a pair has none; use --exchange group",
                     strategy->name, strategy->rule->name);
}

/* Answers are given anew for each round: what a rule or a push keeps from round to round would be
 * of answers that nobody gives any more. */
static enum rc match_answers(struct strategy *strategy, struct fault *why)
{
    struct strategy_answers *answers = &strategy->answers;

    if (!strategy->mixes_answers) return RC_OK;
    if (strategy->exchange == &exchange_push || strategy->rule != &rule_mean) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: it takes means of answers that are given anew for each "
                         "round, and exchange %s with rule %s keeps something of earlier ones; "
                         "leave --exchange push and --rule out",
                         strategy->name, strategy->exchange->name, strategy->rule->name);
    }
    if (strategy->moments != MOMENTS_KEEP) {
        return fault_set(why, RC_USAGE,
                         "--moments: rounds of --averaging %s leave each model as it is; leave it "
                         "out",
                         strategy->name);
    }
    if (answers->relabels && answers->compress_steps == 0 && strategy->every_ns == 0) {
        answers->compress_steps = (strategy->every_steps + 1) / 2;
    }
    return RC_OK;
}

/* Who never averages has nothing that these could replace. */
static enum rc match_none(const struct strategy_specs *specs, const struct strategy *strategy,
                          struct fault *why)
{
    const struct {
        const char *flag, *value;
    } parts[] = {
        {"topology", specs->topology},
        {"exchange", specs->exchange},
        {"codec", specs->codec},
        {"rule", specs->rule},
        {"pace", specs->pace},
        {"robust", strategy_is_given(specs->robust) && specs->robust[0] == 'c' ? "clip" : NULL},
        {"moments", strategy->moments == MOMENTS_KEEP ? NULL : specs->moments}};

    for (size_t i = 0; i < ARRAY_COUNT(parts) && !strategy->is_averaging; i++) {
        if (!strategy_is_given(parts[i].value)) continue;
        return fault_set(why, RC_USAGE,
                         "--%s %s: --averaging %s never averages, so it does not go with it; "
                         "leave it out, or choose another method",
                         parts[i].flag, parts[i].value, strategy->name);
    }
    return RC_OK;
}

/* "auto" is direct where nothing else can be taken. */
static enum rc match_schedule(const struct strategy *strategy, struct fault *why)
{
    if (strategy->schedule == SCHEDULE_AUTO || strategy->schedule == SCHEDULE_DIRECT) return RC_OK;
    if (strategy_may_relay(strategy)) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--exchange group:%s: sums of several members are encoded again on their way, "
                     "and the codec would round them each time; use group:direct",
                     schedule_name(strategy->schedule));
}

enum rc strategy_match(const struct strategy_specs *specs, const struct method *method,
                       struct strategy *strategy, struct fault *why)
{
    enum rc rc = match_none(specs, strategy, why);

    if (rc == RC_OK) rc = match_codec(method, strategy, why);
    if (rc == RC_OK) rc = match_end(specs, strategy, why);
    if (rc == RC_OK) rc = match_rule(strategy, why);
    if (rc == RC_OK) rc = match_answers(strategy, why);
    if (rc == RC_OK) rc = match_pulls(specs, strategy, why);
    if (rc == RC_OK) rc = match_moments(strategy, why);
    if (rc == RC_OK) rc = match_robust(specs, strategy, why);
    if (rc == RC_OK) rc = match_schedule(strategy, why);
    return rc;
}

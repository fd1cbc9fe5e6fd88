/*
 * Which coordinates of a strategy go together: what was not given follows what was, and what
 * contradicts it is refused with a line that says what to do. Pure.
 */
#include "averaging/strategy/match.h"

#include "base/check.h"
#include "base/words.h"

#include <string.h>

enum { DEFENCES_MAX = 16 };

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
    if (strategy->topology.sites_every > 0 && !strategy->exchange->is_group &&
        !strategy->exchange->is_of_two) {
        return fault_set(why, RC_USAGE,
                         "--topology %s: only groups and pairs go by sites, and the %s exchange of "
                         "%s is of neither; leave sites: out",
                         specs->topology, strategy->exchange->name, strategy->name);
    }
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
        strategy->rule_settings = (struct rule_settings){.rate = 0};
    }
    if (strategy_is_given(specs->rule) || is_push == strategy->rule->is_push) return;
    if (is_push && strategy->rule != &rule_mean) return;
    strategy->rule = is_push ? &rule_push : &rule_mean;
    strategy->steps_by_weight = is_push;
}

/* Differences are from what all members of one group came to. A mean alone is a step of 1 to it. */
static enum rc match_feedback(struct strategy *strategy, struct fault *why)
{
    const char *reason = NULL;

    if (strategy->exchange->has_mirrors) {
        reason = "differences to copies have it already, so what a codec leaves out comes later "
                 "in any case; leave +ef out";
    } else if (!strategy->exchange->is_group) {
        reason = "it wants an anchor that a whole group agrees on; use --exchange group, or "
                 "--averaging choco, whose copies need no +ef";
    } else if (strategy->topology.kind != TOPOLOGY_COMPLETE) {
        reason = "groups that change come to anchors of their own, and it wants one that all "
                 "hold; use --topology complete";
    } else if (strategy->at_end || strategy->mixes_answers) {
        reason = "no round follows in which what is left out could come; leave +ef out";
    } else if (strategy_cover(strategy) > 1) {
        reason =
            "rounds carry a part of the model each, and what is left out is kept for all of it; "
            "leave +ef out";
    } else if (strategy->rule->prepare != NULL) {
        reason = "its rule tells others where its step leads, which is in no anchor; use --rule "
                 "nesterov, which is the same in a group of all, or leave +ef out";
    } else if (strategy->rule == &rule_elastic) {
        reason = "a spring leaves most of the difference where it is, so that would be sent "
                 "again each round; use another rule, or leave +ef out";
    }
    if (reason != NULL) {
        return fault_set(why, RC_USAGE, "--averaging %s, --codec %s: error feedback (+ef): %s",
                         strategy->name, strategy->codec_text, reason);
    }
    if (strategy->rule == &rule_mean) {
        strategy->rule = &rule_block;
        strategy->rule_settings =
            (struct rule_settings){.rate = 1, .momentum = 0, .has_momentum = true};
    }
    return RC_OK;
}

/* `method->beta`, but for a setting: the step towards the neighbours' copies, which are behind by
 * what the codec leaves out. Where it is too long for that, they swing. */
static enum rc match_codec(const struct method *method, struct strategy *strategy,
                           struct fault *why)
{
    if (strategy->exchange->has_mirrors || strategy->has_feedback) codec_contract(&strategy->codec);
    if (strategy->exchange->has_mirrors) {
        if (strategy->beta == 0 || method->exchange != &exchange_mirror) {
            strategy->beta = strategy->codec.traits.step;
        }
    } else if (strategy->beta == 0) {
        strategy->beta = 1;
    }
    if (strategy->has_feedback) return match_feedback(strategy, why);
    if (!strategy->codec.traits.is_difference || strategy->exchange->has_mirrors) return RC_OK;
    if (strategy->exchange->is_group) {
        return fault_set(why, RC_USAGE,
                         "--codec %s: what is left out of a model would be lost; with %s+ef it "
                         "comes in later rounds",
                         strategy->codec_text, strategy->codec_text);
    }
    return fault_set(why, RC_USAGE,
                     "--codec %s: what is left out of a model would be lost; it is for differences "
                     "to copies, which neighbours have with --averaging choco (or --exchange "
                     "mirror), or to an anchor, as --averaging sparseloco has it",
                     strategy->codec_text);
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

/* Moments that travel in some of the rounds. */
static enum rc match_periods(const struct strategy_specs *specs, const struct strategy *strategy,
                             struct fault *why)
{
    const char *reason = NULL;

    if (strategy->first_rounds == 0) return RC_OK;
    if (strategy_is_given(specs->moments)) {
        reason = "it says itself in which rounds moments travel; leave --moments out, or use "
                 "local-sgd";
    } else if (!strategy->exchange->is_group) {
        reason = "its moments become those of a whole group; use --exchange group";
    } else if (strategy->rule != &rule_mean) {
        reason = "moments are means, and a rule that steps would step along them as well; leave "
                 "--rule out";
    } else if (strategy->topology.kind == TOPOLOGY_GRID) {
        reason = "where lines and what travels both go by the round's number, moments would only "
                 "meet on some of the lines; leave --topology grid out";
    }
    if (reason == NULL) return RC_OK;
    return fault_set(why, RC_USAGE, "--averaging %s: %s", strategy->name, reason);
}

/* Momentum of what was sent has done its work (DGC); that asks for values that are sent whole or
 * not at all, at every step. */
static enum rc match_mask(const struct strategy *strategy, bool is_each_step, struct fault *why)
{
    const struct codec *codec = &strategy->codec;

    if (is_each_step && strategy->has_feedback && codec->traits.kept < 1 && codec->rest == NULL) {
        return RC_OK;
    }
    return fault_set(why, RC_USAGE,
                     "--moments mask: it is for single steps of which some values are sent as they "
                     "are, and --averaging %s, --codec %s are no such; use --averaging allreduce "
                     "--codec topk:0.001+ef",
                     strategy->name, strategy->codec_text);
}

/* Resetting them at every step would leave none. Second moments must not become negative: means are
 * taken of what nobody changes meanwhile, nothing rounds, and every member gets the same. */
static enum rc match_moments(const struct strategy_specs *specs, struct strategy *strategy,
                             struct fault *why)
{
    const bool is_each_step = strategy->every_ns == 0 && strategy->every_steps <= 1;
    const char *flag = strategy->first_rounds > 0 ? "moments that travel" : "--moments average";
    enum rc rc = match_periods(specs, strategy, why);

    if (rc != RC_OK) return rc;
    if (strategy->moments == MOMENTS_KEEP || !strategy->is_averaging) return RC_OK;
    if (strategy->at_end) {
        return fault_set(why, RC_USAGE,
                         "--moments: no step follows the one round of --averaging %s; leave it out",
                         strategy->name);
    }
    if (strategy->moments == MOMENTS_MASK) return match_mask(strategy, is_each_step, why);
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
    if (!strategy->codec.traits.is_lossless || strategy->has_feedback) {
        return fault_set(
            why, RC_USAGE,
            "%s: --codec %s rounds, and squares would become negative; use --codec f32", flag,
            strategy->codec_text);
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

/* An aggregate needs what each member said, of enough of them. NULL: it has that. */
static const char *why_no_aggregate(const struct strategy *strategy)
{
    const struct aggregate_ops *aggregate = strategy->aggregate.ops;
    const struct exchange_ops *exchange = strategy->exchange;

    if (exchange == &exchange_push) {
        return "what is pushed has a weight that nobody may take from it; use --robust clip, or "
               "--exchange group";
    }
    if (!exchange->is_group && !exchange->is_graph) {
        return "of two values nobody can tell which one lies; use --robust clip, or --exchange "
               "group";
    }
    if (strategy->rule == &rule_accelerated && exchange->is_graph) {
        return "rule accelerated steps along what neighbours said, which an aggregate would take "
               "the place of; use --robust clip, or --topology complete";
    }
    if (strategy->tracks || strategy->rule->sums_to_zero) {
        return "what the method keeps must add up to zero over all peers, which only means do; use "
               "--robust clip";
    }
    if (exchange->is_graph && strategy->rule != &rule_mean) {
        return "its rule makes more of what neighbours say than their average; use --robust clip";
    }
    if (exchange->is_graph && (strategy->fragments > 1 || strategy->slots > 0)) {
        return "neighbours are judged by whole models, and its rounds carry parts of them; use "
               "--robust clip";
    }
    if (exchange->is_group && strategy->schedule != SCHEDULE_AUTO &&
        strategy->schedule != SCHEDULE_DIRECT) {
        return "each one's own values are needed, not sums of several; use group:direct";
    }
    if (strategy->has_feedback) {
        return "differences are cut to what is usual among them instead, by each member itself; "
               "use "
               "--robust clip";
    }
    if (aggregate->wants_usual && strategy->at_end) {
        return "before its one round no distance is usual; use --robust median or rfa";
    }
    if (aggregate->is_by_value && strategy->mixes_answers) {
        return "of answers value by value no distribution would be left; use --robust rfa or "
               "multi-krum";
    }
    return NULL;
}

static enum rc match_aggregate(const char *spec, struct strategy *strategy, struct fault *why)
{
    const char *reason = why_no_aggregate(strategy);

    if (reason != NULL) {
        return fault_set(why, RC_USAGE, "--robust %s does not go with --averaging %s: %s", spec,
                         strategy->name, reason);
    }
    strategy->clips = why_no_clip(strategy) == NULL;
    strategy->lacks_guard = has_few_neighbours(&strategy->topology);
    return RC_OK;
}

static enum rc unknown_defence(const char *spec, const char *const *names, size_t count,
                               struct fault *why)
{
    const char *all[DEFENCES_MAX];
    char hint[WORD_HINT_BYTES];
    const struct aggregate_ops *aggregate;

    memcpy(all, names, count * sizeof *names);
    for (size_t i = 0; count < DEFENCES_MAX && (aggregate = aggregate_at(i)) != NULL; i++) {
        all[count++] = aggregate->name;
    }
    return fault_set(why, RC_PARSE, "--robust %s: column 1: unknown defence%s", spec,
                     word_hint(spec, all, count, NULL, hint));
}

/* auto: of answers the geometric median, as what one member says of each sample can be far from the
 * others' and honest, and clipping has let one liar take half of what there was to learn
 * (tests/sim/test_answers.c); else clip where the method can. */
static enum rc match_robust(const struct strategy_specs *specs, struct strategy *strategy,
                            struct fault *why)
{
    static const char *const names[] = {"auto", "none", "clip"};
    const char *spec = strategy_is_given(specs->robust) ? specs->robust : names[0];
    const char *reason;
    enum rc rc = RC_OK;
    size_t i = 0;

    while (i < ARRAY_COUNT(names) && strcmp(spec, names[i]) != 0) {
        i++;
    }
    if (i == ARRAY_COUNT(names) && !aggregate_parse(spec, &strategy->aggregate, &rc, why)) {
        return unknown_defence(spec, names, ARRAY_COUNT(names), why);
    }
    if (rc != RC_OK || !strategy->is_averaging || i == 1) return rc;
    if (i == 0 && strategy->mixes_answers) {
        strategy->aggregate = (struct aggregate){&aggregate_rfa, UINT32_MAX};
        if (why_no_aggregate(strategy) != NULL) strategy->aggregate.ops = NULL;
    }
    if (strategy->aggregate.ops != NULL) return match_aggregate(spec, strategy, why);
    reason = why_no_clip(strategy);
    strategy->clips = reason == NULL;
    strategy->lacks_guard = reason != NULL || has_few_neighbours(&strategy->topology);
    if (reason == NULL || i == 0) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--robust clip does not go with --averaging %s: %s; methods such as "
                     "local-sgd, ad-psgd and dpsgd can clip",
                     strategy->name, reason);
}

/* With weights alone an eigenvalue of a graph's matrix may be near -1, and momentum v bears none
 * below -1 / (1 + 2 v). Rings and complete graphs have none below -1/3, lazy ones none below 0. */
static float way_that_bears(const struct strategy *strategy)
{
    const struct topology *topology = &strategy->topology;
    float v = strategy->rule_settings.momentum;

    if (!strategy->exchange->is_graph || topology->is_lazy) return 1;
    if (topology->kind == TOPOLOGY_RING || topology->kind == TOPOLOGY_COMPLETE) return 1;
    return (1 + v) / (1 + 2 * v);
}

static enum rc match_accelerated(struct strategy *strategy, struct fault *why)
{
    struct rule_settings *settings = &strategy->rule_settings;
    float most = way_that_bears(strategy), momentum_max;

    if (strategy->rule != &rule_accelerated) return RC_OK;
    if (strategy->exchange->has_mirrors) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: copies of neighbours follow their models late, and the "
                         "momentum of rule accelerated would make more of that in each round; use "
                         "--exchange edges",
                         strategy->name);
    }
    if (settings->share == 0) settings->share = most;
    if (settings->share > most) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: with momentum %g the step towards all neighbours of a "
                         "graph may be no more than alpha %.3g; give less, or leave it out",
                         strategy->name, (double)settings->momentum, (double)most);
    }
    momentum_max = accelerated_momentum_max(settings->share);
    if (strategy->exchange != &exchange_pair || settings->momentum < momentum_max) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--averaging %s: with momentum %g pairs drift apart instead of coming "
                     "together; take less than %.3g, or --topology complete",
                     strategy->name, (double)settings->momentum, (double)momentum_max);
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
    if (strategy->rule->sums_to_zero && !strategy->exchange->is_graph) {
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
    if (strategy->rule == &rule_nesterov && strategy->topology.kind == TOPOLOGY_GRID) {
        return fault_set(
            why, RC_USAGE,
            "--averaging %s: momentum of lines of a grid, which meet others each time, "
            "can keep members apart for good; leave --topology grid out, or take the "
            "mean there (--averaging moshpit)",
            strategy->name);
    }
    if (!strategy->rule->is_outer || strategy->exchange->is_group) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--averaging %s: rule %s steps from an anchor that a whole group agrees on, "
                     "and a pair has none; use --exchange group",
                     strategy->name, strategy->rule->name);
}

/* Matchings are of a graph, and who has no edge in a round is in none: what a rule keeps of all
 * neighbours would be of some. */
static enum rc match_budget(const struct strategy *strategy, struct fault *why)
{
    if (strategy->budget == 0) return RC_OK;
    if (strategy->exchange == &exchange_edges && strategy->rule == &rule_mean) return RC_OK;
    return fault_set(
        why, RC_USAGE,
        "--averaging %s: a budget is of the edges of a graph, between which rounds take "
        "means, and exchange %s with rule %s does not; leave --exchange and --rule "
        "out",
        strategy->name, strategy->exchange->name, strategy->rule->name);
}

/* A period in steps that all members of a round have in common. */
static enum rc match_period(const struct strategy *strategy, struct fault *why)
{
    const char *reason = NULL;

    if (strategy->block_steps == 0) return RC_OK;
    if (strategy->every_ns > 0) {
        reason = "its periods are steps, of which the loss says how many; use --pace every=STEPS "
                 "for the first, or --averaging local-sgd";
    } else if (!strategy->exchange->is_group && !strategy->exchange->is_graph) {
        reason = "its period is one that all members of a round have in common, and two that meet "
                 "go each by its own; use --exchange group or edges";
    }
    if (reason == NULL) return RC_OK;
    return fault_set(why, RC_USAGE, "--averaging %s: %s", strategy->name, reason);
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

/* Rounds that carry a part of the model. A fragment's anchor is the same values each time; values
 * that are drawn have none in common. */
static enum rc match_parts(struct strategy *strategy, struct fault *why)
{
    const bool is_outer = strategy->rule->is_outer;
    const char *reason = NULL;

    if (strategy->fragments == 1) strategy->fragments = 0;
    if (strategy_cover(strategy) == 1) return RC_OK;
    if (strategy->exchange->is_graph || strategy->exchange == &exchange_push) {
        reason = "members of a round must agree on what it carries; use --exchange group or pair";
    } else if (strategy->rule != &rule_mean && (!is_outer || strategy->slots > 0)) {
        reason = "its rule keeps something that rounds of other values know nothing of; leave "
                 "--rule out";
    } else if (strategy->rule == &rule_elastic) {
        reason = "springs pull the whole of the model to one centre; leave --rule elastic out";
    } else if (strategy->fragments > 0 && strategy->topology.kind == TOPOLOGY_GRID) {
        reason = "where lines and fragments both go by the round's number, one would only meet the "
                 "other in part; leave --topology grid out";
    } else if (strategy->moments != MOMENTS_KEEP) {
        reason = "the optimizer's buffers are of all values; leave --moments out";
    }
    if (reason == NULL) return RC_OK;
    return fault_set(why, RC_USAGE, "--averaging %s: a round carries a part of the model, and %s",
                     strategy->name, reason);
}

/* A fragment is due every H/P steps, and no sooner than the one before it is back. */
static enum rc match_fragments(const struct strategy_specs *specs, struct strategy *strategy,
                               struct fault *why)
{
    const uint64_t fragments = strategy_cover(strategy), steps = strategy->every_steps;

    if (strategy->blends && !strategy->exchange->is_group) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: two that meet move by exact negatives, and with a they "
                         "would not; use --exchange group",
                         strategy->name);
    }
    if (strategy->waits && !(strategy->local_share > 0)) strategy->blends = false;
    if (strategy->slots > 0 || strategy_is_given(specs->pace)) return RC_OK;
    if (steps % fragments != 0) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: H=%llu is not a multiple of P=%llu: a fragment is due "
                         "every H/P steps; use another H or P",
                         strategy->name, (unsigned long long)steps, (unsigned long long)fragments);
    }
    strategy->every_steps = steps / fragments;
    if (!strategy->rule->is_outer || strategy->stale_steps == 0) return RC_OK;
    if (strategy->stale_steps < strategy->every_steps) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--averaging %s: tau=%llu steps beside a round, and after %llu the next is "
                     "due; use a tau below that",
                     strategy->name, (unsigned long long)strategy->stale_steps,
                     (unsigned long long)strategy->every_steps);
}

static bool is_defence(const char *robust)
{
    return strategy_is_given(robust) && strcmp(robust, "auto") != 0 && strcmp(robust, "none") != 0;
}

/* Who never averages has nothing that these could replace. */
static enum rc match_none(const struct strategy_specs *specs, const struct strategy *strategy,
                          struct fault *why)
{
    const struct {
        const char *flag, *value;
    } parts[] = {{"topology", specs->topology},
                 {"exchange", specs->exchange},
                 {"codec", specs->codec},
                 {"rule", specs->rule},
                 {"pace", specs->pace},
                 {"robust", is_defence(specs->robust) ? specs->robust : NULL},
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
    if (rc == RC_OK) rc = match_accelerated(strategy, why);
    if (rc == RC_OK) rc = match_budget(strategy, why);
    if (rc == RC_OK) rc = match_period(strategy, why);
    if (rc == RC_OK) rc = match_answers(strategy, why);
    if (rc == RC_OK) rc = match_parts(strategy, why);
    if (rc == RC_OK) rc = match_fragments(specs, strategy, why);
    if (rc == RC_OK) rc = match_pulls(specs, strategy, why);
    if (rc == RC_OK) rc = match_moments(specs, strategy, why);
    if (rc == RC_OK) rc = match_robust(specs, strategy, why);
    if (rc == RC_OK) rc = match_schedule(strategy, why);
    return rc;
}

/* A strategy in words: all its coordinates, as printed at the start and stored with the run. */
#include "averaging/strategy/methods.h"

#include "base/check.h"
#include "gossip/wire/limits.h"

#include <stdio.h>

static void describe_topology(const struct strategy *strategy, char text[TOPOLOGY_TEXT])
{
    if (strategy->topology.kind == TOPOLOGY_COMPLETE && strategy->topology_is_default &&
        !strategy->has_feedback) {
        snprintf(text, TOPOLOGY_TEXT, "complete up to %d peers, groups:%d beyond", COMPLETE_MAX,
                 GROUP_DEFAULT);
    } else {
        topology_format(&strategy->topology, text);
    }
}

static void describe_springs(const struct strategy *strategy, char *text, size_t cap)
{
    const struct rule_settings *settings = &strategy->rule_settings;
    const uint64_t pull = settings->pull_rounds > 1 ? settings->pull_rounds * strategy->every_steps
                                                    : strategy->pull_steps;
    char when[36] = "";

    if (pull > 0) snprintf(when, sizeof when, " every %llu steps", (unsigned long long)pull);
    if (settings->share > 0) {
        snprintf(text, cap, "elastic pull %g%s", (double)settings->share, when);
    } else {
        snprintf(text, cap, "elastic pull %g/n%s", (double)settings->rate, when);
    }
}

static void describe_rule(const struct strategy *strategy, char *text, size_t cap)
{
    const struct rule_settings *settings = &strategy->rule_settings;

    if (strategy->exchange->has_mirrors) {
        snprintf(text, cap, "%s step %g", strategy->rule->name, (double)strategy->beta);
    } else if (strategy->exchange->is_graph && strategy->alpha > 0) {
        snprintf(text, cap, "%s, elastic coupling %g", strategy->rule->name,
                 (double)strategy->alpha);
    } else if (strategy->exchange->is_graph && strategy->beta < 1) {
        snprintf(text, cap, "%s, %g of the weights", strategy->rule->name, (double)strategy->beta);
    } else if (!strategy_steps(strategy)) {
        snprintf(text, cap, "%s", strategy->rule->name);
    } else if (strategy->rule == &rule_elastic) {
        describe_springs(strategy, text, cap);
    } else if (strategy->rule == &rule_sparse) {
        snprintf(text, cap, "%s lr %g", strategy->rule->name, (double)settings->rate);
    } else if (!settings->has_momentum) {
        snprintf(text, cap, "%s lr %g momentum 1 - 1/n", strategy->rule->name,
                 (double)settings->rate);
    } else if (settings->share > 0) {
        snprintf(text, cap, "%s lr %g momentum %g alpha %g", strategy->rule->name,
                 (double)settings->rate, (double)settings->momentum, (double)settings->share);
    } else if (settings->delay > 0) {
        snprintf(text, cap, "%s lr %g momentum %g every %u rounds", strategy->rule->name,
                 (double)settings->rate, (double)settings->momentum, settings->delay);
    } else {
        snprintf(text, cap, "%s lr %g momentum %g", strategy->rule->name, (double)settings->rate,
                 (double)settings->momentum);
    }
}

static void describe_pace(const struct strategy *strategy, char *text, size_t cap)
{
    char first[64] = "";

    if (strategy->switch_steps > 0) {
        snprintf(first, sizeof first, "every step before step %llu, then ",
                 (unsigned long long)strategy->switch_steps);
    }
    if (strategy->at_end) {
        snprintf(text, cap, "once, at the end");
    } else if (strategy->every_ns != 0) {
        snprintf(text, cap, "every %.9g s", (double)strategy->every_ns * 1e-9);
    } else if (strategy->chance > 0) {
        snprintf(text, cap, "after a step with probability %g", strategy->chance);
    } else if (strategy->block_steps > 0) {
        snprintf(text, cap, "every %llu steps at first, then by the loss of each %llu",
                 (unsigned long long)strategy->every_steps,
                 (unsigned long long)strategy->block_steps);
    } else if (strategy->every_steps == 1) {
        snprintf(text, cap, "every step");
    } else {
        snprintf(text, cap, "%severy %llu steps%s", first,
                 (unsigned long long)strategy->every_steps,
                 strategy->joins_others ? " of whoever is first" : "");
    }
}

static void describe_answers(const struct strategy *strategy, char *text, size_t cap)
{
    const struct strategy_answers *answers = &strategy->answers;
    char samples[48] = "", when[48] = "";

    text[0] = '\0';
    if (!strategy->mixes_answers) return;
    if (answers->samples > 0) {
        snprintf(samples, sizeof samples, " to %llu samples", (unsigned long long)answers->samples);
    } else if (answers->share > 0) {
        snprintf(samples, sizeof samples, " to %g of the data", (double)answers->share);
    }
    if (answers->burn_steps > 0) {
        snprintf(when, sizeof when, " from step %llu", (unsigned long long)answers->burn_steps);
    } else if (answers->compress_steps > 0) {
        snprintf(when, sizeof when, " for %llu steps", (unsigned long long)answers->compress_steps);
    }
    snprintf(text, cap, " of answers%s, learned by %g%s", samples, (double)answers->weight, when);
}

void strategy_name_codec(struct strategy *strategy)
{
    char feedback[24] = "";
    int count;

    if (strategy->has_feedback && strategy->feedback_decay < 1) {
        snprintf(feedback, sizeof feedback, "+ef:%g", (double)strategy->feedback_decay);
    } else if (strategy->has_feedback) {
        snprintf(feedback, sizeof feedback, "+ef");
    }
    count = snprintf(strategy->codec_text, sizeof strategy->codec_text, "%s%s",
                     strategy->codec.name, feedback);
    CHECK(count > 0 && (size_t)count < sizeof strategy->codec_text);
}

/* " of one of 4 fragments", " of 1 in 200 values" */
static void describe_part(const struct strategy *strategy, char *text, size_t cap)
{
    text[0] = '\0';
    if (strategy_cover(strategy) == 1) return;
    if (strategy->fragments > 0) {
        snprintf(text, cap, " of one of %u fragments", strategy->fragments);
    } else {
        snprintf(text, cap, " of 1 in %u values", strategy->slots);
    }
}

/* ", moments averaged", ", moments averaged every 3 rounds, second ones every 6" */
static void describe_moments(const struct strategy *strategy, char *text, size_t cap)
{
    static const char *const words[] = {"", ", moments reset", ", moments averaged",
                                        ", moments masked"};
    char when[64] = "";

    if (strategy->first_rounds > 0) {
        snprintf(when, sizeof when, " every %u rounds, second ones every %u",
                 strategy->first_rounds, strategy->second_rounds);
    }
    snprintf(text, cap, "%s%s", words[strategy->moments], when);
}

/* What training does while a round runs. */
static void describe_waits(const struct strategy *strategy, char *text, size_t cap)
{
    char share[32] = "";

    text[0] = '\0';
    if (strategy->waits) {
        snprintf(text, cap, ", training waits");
    } else if (strategy->overlaps) {
        snprintf(text, cap, ", and steps go on till the next");
    } else if (strategy->stale_steps > 0) {
        if (strategy->blends) {
            snprintf(share, sizeof share, " that count %g", (double)strategy->local_share);
        }
        snprintf(text, cap, ", at most %llu steps%s beside a round",
                 (unsigned long long)strategy->stale_steps, share);
    }
}

void strategy_describe(struct strategy *strategy)
{
    char momentum[48] = "";
    char topology[TOPOLOGY_TEXT], pace[128], rule[96], exchange[16], waits[96], answers[160];
    char robust[32] = "clip", lead[64] = "";
    char part[40], merged[48] = "", moments[96], drawn[40] = "";
    bool is_group = strategy->exchange->is_group;

    if (strategy->is_population) {
        const struct population_settings *population = &strategy->population;

        snprintf(strategy->text, sizeof strategy->text,
                 "%s: a score every %llu steps, models better by %g %% are copied, rates begin "
                 "within a factor of %g and change by 0.8 or 1.2, or anew with probability %g",
                 strategy->name, (unsigned long long)strategy->every_steps,
                 100 * population->margin, population->spread, population->resample);
        return;
    }
    if (!strategy->is_averaging) {
        snprintf(strategy->text, sizeof strategy->text, "none");
        return;
    }
    describe_topology(strategy, topology);
    describe_pace(strategy, pace, sizeof pace);
    describe_rule(strategy, rule, sizeof rule);
    describe_answers(strategy, answers, sizeof answers);
    describe_part(strategy, part, sizeof part);
    describe_moments(strategy, moments, sizeof moments);
    snprintf(exchange, sizeof exchange, "%s%s%s", strategy->exchange->name, is_group ? ":" : "",
             is_group ? schedule_name(strategy->schedule) : "");
    describe_waits(strategy, waits, sizeof waits);
    if (strategy->aggregate.ops != NULL && strategy->aggregate.ops->is_defenceless) {
        snprintf(robust, sizeof robust, "%s", strategy->clips ? "clip" : "");
        snprintf(merged, sizeof merged, ", %s merge of %u members or more",
                 strategy->aggregate.ops->name, strategy->quorum);
    } else if (strategy->aggregate.ops != NULL) {
        aggregate_format(&strategy->aggregate, robust, sizeof robust);
    } else if (!strategy->clips) {
        robust[0] = '\0';
    }
    if (strategy->is_bounded) {
        snprintf(lead, sizeof lead, ", at most %llu steps ahead of the slowest",
                 (unsigned long long)strategy->lead_steps);
    }
    if (strategy->budget > 0) {
        snprintf(drawn, sizeof drawn, ", %g of its matchings", strategy->budget);
    }
    if (strategy->quasi_global > 0) {
        snprintf(momentum, sizeof momentum, ", quasi-global momentum %g",
                 (double)strategy->quasi_global);
    }
    snprintf(strategy->text, sizeof strategy->text,
             "%s: %s%s%s%s, exchange %s over %s%s, codec %s, rule %s%s%s%s%s%s%s", strategy->name,
             pace, lead, part, waits, exchange, topology, drawn, strategy->codec_text, rule, merged,
             answers, momentum, robust[0] == '\0' ? "" : ", robust ", robust, moments);
}

/* Rate, momentum and pull of a step that several take together: with unlike ones their anchors
 * would part in every round, though each did as it was told. */
static void describe_step(const struct strategy *strategy, char *text, size_t cap)
{
    const struct rule_settings *settings = &strategy->rule_settings;

    text[0] = '\0';
    if (!strategy_steps(strategy)) return;
    if (!settings->has_momentum && settings->share > 0) {
        snprintf(text, cap, " pull %g", (double)settings->share);
    } else if (!settings->has_momentum) {
        snprintf(text, cap, " lr %g", (double)settings->rate);
    } else if (settings->share > 0) {
        snprintf(text, cap, " lr %g momentum %g alpha %g", (double)settings->rate,
                 (double)settings->momentum, (double)settings->share);
    } else if (settings->delay > 0) {
        snprintf(text, cap, " lr %g momentum %g every %u rounds", (double)settings->rate,
                 (double)settings->momentum, settings->delay);
    } else {
        snprintf(text, cap, " lr %g momentum %g", (double)settings->rate,
                 (double)settings->momentum);
    }
}

void strategy_method(const struct strategy *strategy, const char *moments, char *text, size_t cap)
{
    char step[80], part[40], rounds[48] = "", drawn[32] = "";
    int count;

    describe_step(strategy, step, sizeof step);
    describe_part(strategy, part, sizeof part);
    if (strategy->first_rounds > 0) {
        snprintf(rounds, sizeof rounds, "%s every %u and %u rounds",
                 moments == NULL ? ", moments" : "", strategy->first_rounds,
                 strategy->second_rounds);
    }
    if (strategy->budget > 0) snprintf(drawn, sizeof drawn, " budget %g", strategy->budget);
    if (!strategy->is_averaging) {
        count = snprintf(text, cap, "wire %d, %s", WIRE_VERSION,
                         strategy->is_population ? "population" : "none");
    } else {
        count = snprintf(text, cap, "wire %d, %s%sexchange %s%s%s, codec %s%s, rule %s%s%s%s%s",
                         WIRE_VERSION, strategy->mixes_answers ? METHOD_ANSWERS : "",
                         strategy->at_end ? "once, " : "", strategy->exchange->name, drawn, part,
                         strategy->codec.name, strategy->has_feedback ? "+ef" : "",
                         strategy->tracks ? "tracking" : strategy->rule->name, step,
                         moments != NULL ? ", moments of " : "", moments != NULL ? moments : "",
                         rounds);
    }
    CHECK(count > 0 && (size_t)count < cap);
}

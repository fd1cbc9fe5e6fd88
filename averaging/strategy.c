/*
 * The table of methods and the parser of their specs. A method is a row; --topology, --exchange,
 * --codec, --rule and --pace each replace one of its coordinates. Pure.
 */
#include "averaging/strategy.h"

#include "averaging/nearest.h"
#include "base/check.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { SPEC_MAX = 128, EVERY_STEPS_MAX = 1000000, GROUP_DEFAULT = 8, COMPLETE_MAX = 16 };

/* One published method: its name, what its one number is called, and where it stands. */
struct method {
    const char *name, *key;
    bool is_averaging;
    uint64_t every_steps;
    const char *help;
};

static const struct method methods[] = {
    {"none", NULL, false, 0, "none        each peer trains alone"},
    {"local-sgd", "H", true, 16,
     "local-sgd   train H steps (16), then take the mean: H=N   Stich 2018, arXiv:1805.09767"},
};

static const struct exchange_ops *const exchanges[] = {&exchange_pair, &exchange_group};
static const struct rule_ops *const rules[] = {&rule_mean};

const char *strategy_help(size_t index)
{
    return index < ARRAY_COUNT(methods) ? methods[index].help : NULL;
}

static bool is_given(const char *spec)
{
    return spec != NULL && spec[0] != '\0';
}

/* "key=value" at `text` (a part of `spec`): `value` follows the sign. */
static enum rc split_pair(const char *flag, const char *spec, const char *text, char *key,
                          const char **value, struct fault *why)
{
    const char *sign = strchr(text, '=');
    size_t count = sign == NULL ? strlen(text) : (size_t)(sign - text);

    if (sign == NULL || count == 0 || count >= SPEC_MAX) {
        return fault_set(why, RC_PARSE, "%s %s: column %zu: expected key=value, found \"%s\"", flag,
                         spec, (size_t)(text - spec) + 1, text);
    }
    memcpy(key, text, count);
    key[count] = '\0';
    *value = sign + 1;
    return RC_OK;
}

static enum rc parse_steps(const char *flag, const char *spec, const char *value,
                           uint64_t *every_steps, struct fault *why)
{
    uint64_t steps;

    if (!units_parse_count(value, &steps) || steps == 0 || steps > EVERY_STEPS_MAX) {
        return fault_set(why, RC_PARSE,
                         "%s %s: column %zu: \"%s\" is not a count of steps from 1 "
                         "to 1000000",
                         flag, spec, (size_t)(value - spec) + 1, value);
    }
    *every_steps = steps;
    return RC_OK;
}

static enum rc parse_averaging(const char *spec, struct strategy *strategy, struct fault *why)
{
    const char *names[ARRAY_COUNT(methods)], *value = spec;
    const struct method *method = NULL;
    char name[SPEC_MAX], key[SPEC_MAX];
    size_t count = strcspn(spec, ":");
    enum rc rc;

    if (count >= SPEC_MAX) return fault_set(why, RC_PARSE, "--averaging: the name is too long");
    memcpy(name, spec, count);
    name[count] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        names[i] = methods[i].name;
        if (strcmp(name, names[i]) == 0) method = &methods[i];
    }
    if (method == NULL) {
        return fault_set(why, RC_PARSE,
                         "--averaging %s: column 1: unknown method \"%s\"; did you "
                         "mean %s? known: none, local-sgd",
                         spec, name, nearest_word(name, names, ARRAY_COUNT(methods)));
    }
    strategy->name = method->name;
    strategy->is_averaging = method->is_averaging;
    strategy->every_steps = method->every_steps;
    if (spec[count] == '\0') return RC_OK;
    if (method->key == NULL) {
        return fault_set(why, RC_PARSE, "--averaging %s: column %zu: %s takes no settings", spec,
                         count + 2, name);
    }
    rc = split_pair("--averaging", spec, spec + count + 1, key, &value, why);
    if (rc != RC_OK) return rc;
    if (strcmp(key, method->key) != 0) {
        return fault_set(why, RC_PARSE,
                         "--averaging %s: column %zu: unknown setting \"%s\"; did "
                         "you mean %s?",
                         spec, count + 2, key, method->key);
    }
    return parse_steps("--averaging", spec, value, &strategy->every_steps, why);
}

static enum rc parse_pace(const char *spec, struct strategy *strategy, struct fault *why)
{
    static const char *const keys[] = {"every", "time"};
    const char *value = spec;
    char key[SPEC_MAX];
    uint64_t ns;
    enum rc rc = split_pair("--pace", spec, spec, key, &value, why);

    if (rc != RC_OK) return rc;
    if (strcmp(key, "every") == 0) {
        return parse_steps("--pace", spec, value, &strategy->every_steps, why);
    }
    if (strcmp(key, "time") != 0) {
        return fault_set(why, RC_PARSE,
                         "--pace %s: column 1: unknown pace \"%s\"; did you mean "
                         "%s? known: every=STEPS, time=DURATION",
                         spec, key, nearest_word(key, keys, ARRAY_COUNT(keys)));
    }
    if (!units_parse_duration(value, &ns) || ns == 0) {
        return fault_set(why, RC_PARSE,
                         "--pace %s: column %zu: \"%s\" is not a duration such as "
                         "5s or 250ms",
                         spec, (size_t)(value - spec) + 1, value);
    }
    strategy->every_ns = ns;
    strategy->every_steps = 0;
    return RC_OK;
}

static enum rc parse_exchange(const char *spec, struct strategy *strategy, struct fault *why)
{
    const char *names[ARRAY_COUNT(exchanges)];

    for (size_t i = 0; i < ARRAY_COUNT(exchanges); i++) {
        names[i] = exchanges[i]->name;
        if (strcmp(names[i], spec) == 0) {
            strategy->exchange = exchanges[i];
            return RC_OK;
        }
    }
    return fault_set(why, RC_PARSE,
                     "--exchange %s: column 1: unknown exchange; did you mean %s? "
                     "known: pair, group",
                     spec, nearest_word(spec, names, ARRAY_COUNT(exchanges)));
}

static enum rc parse_rule(const char *spec, struct strategy *strategy, struct fault *why)
{
    for (size_t i = 0; i < ARRAY_COUNT(rules); i++) {
        if (strcmp(rules[i]->name, spec) == 0) {
            strategy->rule = rules[i];
            return RC_OK;
        }
    }
    return fault_set(why, RC_PARSE, "--rule %s: column 1: unknown rule; known: mean", spec);
}

/* Pairs need the pair exchange, and the other way round; what was not given follows the other. */
static enum rc match_topology(const struct strategy_specs *specs, struct strategy *strategy,
                              struct fault *why)
{
    bool is_pairs;
    enum rc rc;

    strategy->topology.kind = strategy->exchange->is_group ? TOPOLOGY_COMPLETE : TOPOLOGY_PAIRS;
    strategy->topology_is_default = !is_given(specs->topology);
    if (strategy->topology_is_default) return RC_OK;
    rc = topology_parse(specs->topology, &strategy->topology, why);
    if (rc != RC_OK) return rc;
    is_pairs = strategy->topology.kind == TOPOLOGY_PAIRS;
    if (is_pairs && !is_given(specs->exchange)) strategy->exchange = &exchange_pair;
    if (is_pairs == strategy->exchange->is_group) {
        return fault_set(why, RC_USAGE,
                         "--topology %s does not go with --exchange %s; use "
                         "%s",
                         specs->topology, strategy->exchange->name,
                         is_pairs ? "--exchange pair" : "--topology pairs");
    }
    return RC_OK;
}

static void describe_topology(const struct strategy *strategy, char *text, size_t cap)
{
    const struct topology *topology = &strategy->topology;

    if (topology->kind == TOPOLOGY_PAIRS) {
        snprintf(text, cap, "pairs");
    } else if (topology->kind == TOPOLOGY_GROUPS) {
        snprintf(text, cap, "groups:%u", topology->group_size);
    } else if (strategy->topology_is_default) {
        snprintf(text, cap, "complete up to %d peers, groups:%d beyond", COMPLETE_MAX,
                 GROUP_DEFAULT);
    } else {
        snprintf(text, cap, "complete");
    }
}

static void describe(struct strategy *strategy)
{
    char topology[64], pace[48];

    if (!strategy->is_averaging) {
        snprintf(strategy->text, sizeof strategy->text, "none");
        return;
    }
    describe_topology(strategy, topology, sizeof topology);
    if (strategy->every_ns != 0) {
        snprintf(pace, sizeof pace, "every %.9g s", (double)strategy->every_ns * 1e-9);
    } else {
        snprintf(pace, sizeof pace, "every %llu steps", (unsigned long long)strategy->every_steps);
    }
    snprintf(strategy->text, sizeof strategy->text,
             "%s: %s, exchange %s over %s, codec %s, rule %s", strategy->name, pace,
             strategy->exchange->name, topology, strategy->codec->name, strategy->rule->name);
}

enum rc strategy_parse(const struct strategy_specs *specs, struct strategy *strategy,
                       struct fault *why)
{
    struct strategy parsed = {.exchange = &exchange_group, .codec = &codec_f32, .rule = &rule_mean};
    enum rc rc;

    rc = parse_averaging(is_given(specs->averaging) ? specs->averaging : "local-sgd", &parsed, why);
    if (rc == RC_OK && is_given(specs->exchange)) {
        rc = parse_exchange(specs->exchange, &parsed, why);
    }
    if (rc == RC_OK) rc = match_topology(specs, &parsed, why);
    if (rc == RC_OK && is_given(specs->codec)) rc = codec_find(specs->codec, &parsed.codec, why);
    if (rc == RC_OK && is_given(specs->rule)) rc = parse_rule(specs->rule, &parsed, why);
    if (rc == RC_OK && is_given(specs->pace)) rc = parse_pace(specs->pace, &parsed, why);
    if (rc != RC_OK) return rc;
    describe(&parsed);
    *strategy = parsed;
    return RC_OK;
}

struct topology strategy_topology(const struct strategy *strategy, size_t members)
{
    struct topology topology = strategy->topology;

    if (strategy->topology_is_default && topology.kind == TOPOLOGY_COMPLETE &&
        members > COMPLETE_MAX) {
        topology.kind = TOPOLOGY_GROUPS;
        topology.group_size = GROUP_DEFAULT;
    }
    return topology;
}

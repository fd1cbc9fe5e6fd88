/*
 * The parser of methods' specs. A method is a row of methods.c; --topology, --exchange,
 * --codec, --rule and --pace each replace one of its coordinates. Pure.
 */
#include "averaging/strategy/match.h"

#include "averaging/codec/delta.h"
#include "averaging/codec/mask.h"
#include "base/check.h"
#include "base/units.h"
#include "base/words.h"

#include <stdio.h>
#include <string.h>

enum { SPEC_MAX = 128, EVERY_STEPS_MAX = 1000000, METHODS_MAX = 48, RULES_MAX = 16 };
enum { SAMPLES_MAX = 100000000 };

static const struct exchange_ops *const exchanges[] = {
    &exchange_pair, &exchange_group, &exchange_edges, &exchange_mirror, &exchange_push};

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

static enum rc parse_steps(const char *flag, const char *spec, const char *value, uint64_t least,
                           uint64_t *count, struct fault *why)
{
    uint64_t steps;

    if (!units_parse_count(value, &steps) || steps < least || steps > EVERY_STEPS_MAX) {
        return fault_set(why, RC_PARSE,
                         "%s %s: column %zu: \"%s\" is not a count of steps from %llu to 1000000",
                         flag, spec, (size_t)(value - spec) + 1, value, (unsigned long long)least);
    }
    *count = steps;
    return RC_OK;
}

static enum rc parse_samples(const char *spec, const char *value, uint64_t *samples,
                             struct fault *why)
{
    uint64_t count;

    if (!units_parse_count(value, &count) || count == 0 || count > SAMPLES_MAX) {
        return fault_set(why, RC_PARSE,
                         "--averaging %s: column %zu: \"%s\" is not a count of samples from 1 to "
                         "100000000",
                         spec, (size_t)(value - spec) + 1, value);
    }
    *samples = count;
    return RC_OK;
}

static enum rc parse_share(const char *spec, const char *value, const struct setting *setting,
                           float *share, struct fault *why)
{
    double number;

    if (!units_parse_share(value, &number) || number < setting->min || number > setting->max) {
        return fault_set(why, RC_PARSE,
                         "--averaging %s: column %zu: \"%s\" is not a number from %g to %g", spec,
                         (size_t)(value - spec) + 1, value, setting->min, setting->max);
    }
    *share = (float)number;
    return RC_OK;
}

static enum rc parse_chance(const char *spec, const char *value, const struct setting *setting,
                            double *chance, struct fault *why)
{
    float share = 0;
    enum rc rc = parse_share(spec, value, setting, &share, why);

    if (rc == RC_OK) *chance = (double)share;
    return rc;
}

/* Steps beside a round; with none training waits for it. */
static enum rc parse_beside(const char *spec, const char *value, struct strategy *strategy,
                            struct fault *why)
{
    enum rc rc = parse_steps("--averaging", spec, value, 0, &strategy->stale_steps, why);

    strategy->waits = rc == RC_OK && strategy->stale_steps == 0;
    return rc;
}

static enum rc parse_fragments(const char *spec, const char *value, uint32_t *fragments,
                               struct fault *why)
{
    uint64_t count;

    if (!units_parse_count(value, &count) || count == 0 || count > MASK_FRAGMENTS_MAX) {
        return fault_set(why, RC_PARSE,
                         "--averaging %s: column %zu: \"%s\" is not a count of fragments from 1 to "
                         "%d",
                         spec, (size_t)(value - spec) + 1, value, MASK_FRAGMENTS_MAX);
    }
    *fragments = (uint32_t)count;
    return RC_OK;
}

static enum rc parse_quorum(const char *spec, const char *value, uint32_t *quorum,
                            struct fault *why)
{
    uint64_t count;

    if (!units_parse_count(value, &count) || count < 2 || count > GROUP_MEMBERS_MAX) {
        return fault_set(why, RC_PARSE,
                         "--averaging %s: column %zu: \"%s\" is not a number of members from 2 to "
                         "%d",
                         spec, (size_t)(value - spec) + 1, value, GROUP_MEMBERS_MAX);
    }
    *quorum = (uint32_t)count;
    return RC_OK;
}

static enum rc parse_rounds(const char *spec, const char *value, const struct setting *setting,
                            uint32_t *rounds, struct fault *why)
{
    uint64_t count;

    if (!units_parse_count(value, &count) || (double)count < setting->min ||
        (double)count > setting->max) {
        return fault_set(
            why, RC_PARSE,
            "--averaging %s: column %zu: \"%s\" is not a number of rounds from %g to %g", spec,
            (size_t)(value - spec) + 1, value, setting->min, setting->max);
    }
    *rounds = (uint32_t)count;
    return RC_OK;
}

/* One in so many values, to the nearest whole number. */
static enum rc parse_carried(const char *spec, const char *value, const struct setting *setting,
                             uint32_t *slots, struct fault *why)
{
    float share = 0;
    enum rc rc = parse_share(spec, value, setting, &share, why);

    if (rc == RC_OK) *slots = (uint32_t)(1 / (double)share + 0.5);
    return rc;
}

static enum rc parse_order(const char *spec, const char *value, struct strategy *strategy,
                           struct fault *why)
{
    strategy->waits = strcmp(value, "atc") == 0 || strcmp(value, "a") == 0;
    strategy->overlaps = strcmp(value, "cta") == 0 || strcmp(value, "b") == 0;
    if (strategy->waits || strategy->overlaps) return RC_OK;
    return fault_set(
        why, RC_PARSE,
        "--averaging %s: column %zu: \"%s\" is neither atc (or a: adapt, then combine) "
        "nor cta (or b)",
        spec, (size_t)(value - spec) + 1, value);
}

/* Settings that are counts of steps, and NULL for all others. */
static uint64_t *steps_of(struct strategy *strategy, enum setting_kind kind)
{
    switch (kind) {
    case SETTING_EVERY:
    case SETTING_PUSH:
        return &strategy->every_steps;
    case SETTING_PULL:
        return &strategy->pull_steps;
    case SETTING_SWITCH:
        return &strategy->switch_steps;
    case SETTING_BLOCK:
        return &strategy->block_steps;
    case SETTING_LEAD:
        return &strategy->lead_steps;
    case SETTING_STALE:
        return &strategy->stale_steps;
    case SETTING_BURN:
        return &strategy->answers.burn_steps;
    case SETTING_COMPRESS:
        return &strategy->answers.compress_steps;
    default:
        return NULL;
    }
}

/* Likewise shares. */
static float *share_of(struct strategy *strategy, enum setting_kind kind)
{
    switch (kind) {
    case SETTING_RATE:
        return &strategy->rule_settings.rate;
    case SETTING_MOMENTUM:
        return &strategy->rule_settings.momentum;
    case SETTING_SHARE:
    case SETTING_WAY:
        return &strategy->rule_settings.share;
    case SETTING_QUASI:
        return &strategy->quasi_global;
    case SETTING_DECAY:
        return &strategy->feedback_decay;
    case SETTING_LOCAL:
        return &strategy->local_share;
    case SETTING_ALPHA:
        return &strategy->alpha;
    case SETTING_BETA:
        return &strategy->beta;
    case SETTING_WEIGHT:
        return &strategy->answers.weight;
    case SETTING_PART:
        return &strategy->answers.share;
    default:
        return NULL;
    }
}

/* One key=value of `spec`, both already cut out. */
static enum rc apply_setting(const char *spec, const struct setting *setting, const char *value,
                             struct strategy *strategy, struct fault *why)
{
    const bool may_be_none = setting->kind == SETTING_BURN || setting->kind == SETTING_LEAD;
    const uint64_t least = may_be_none ? 0 : 1;
    uint64_t *steps = steps_of(strategy, setting->kind);
    float *share = share_of(strategy, setting->kind);

    if (steps != NULL) return parse_steps("--averaging", spec, value, least, steps, why);
    if (setting->kind == SETTING_MOMENTUM) strategy->rule_settings.has_momentum = true;
    if (share != NULL) return parse_share(spec, value, setting, share, why);
    switch (setting->kind) {
    case SETTING_BESIDE:
        return parse_beside(spec, value, strategy, why);
    case SETTING_FRAGMENTS:
        return parse_fragments(spec, value, &strategy->fragments, why);
    case SETTING_CARRIED:
        return parse_carried(spec, value, setting, &strategy->slots, why);
    case SETTING_DELAY:
        return parse_rounds(spec, value, setting, &strategy->rule_settings.delay, why);
    case SETTING_FIRST:
        return parse_rounds(spec, value, setting, &strategy->first_rounds, why);
    case SETTING_SECOND:
        return parse_rounds(spec, value, setting, &strategy->second_rounds, why);
    case SETTING_QUORUM:
        return parse_quorum(spec, value, &strategy->quorum, why);
    case SETTING_CHANCE:
        return parse_chance(spec, value, setting, &strategy->chance, why);
    case SETTING_BUDGET:
        return parse_chance(spec, value, setting, &strategy->budget, why);
    case SETTING_MARGIN:
        return parse_chance(spec, value, setting, &strategy->population.margin, why);
    case SETTING_SPREAD:
        return parse_chance(spec, value, setting, &strategy->population.spread, why);
    case SETTING_RESAMPLE:
        return parse_chance(spec, value, setting, &strategy->population.resample, why);
    case SETTING_ORDER:
        return parse_order(spec, value, strategy, why);
    case SETTING_SAMPLES:
        return parse_samples(spec, value, &strategy->answers.samples, why);
    default:
        return RC_USAGE;
    }
}

static enum rc find_setting(const char *spec, const char *text, const struct method *method,
                            const char *key, const struct setting **found, struct fault *why)
{
    const char *keys[METHOD_KEYS_MAX];
    char hint[WORD_HINT_BYTES];
    size_t count = 0;

    for (; count < METHOD_KEYS_MAX && method->settings[count].key != NULL; count++) {
        keys[count] = method->settings[count].key;
        if (strcmp(keys[count], key) == 0) {
            *found = &method->settings[count];
            return RC_OK;
        }
    }
    return fault_set(why, RC_PARSE, "--averaging %s: column %zu: unknown setting \"%s\"%s", spec,
                     (size_t)(text - spec) + 1, key, word_hint(key, keys, count, NULL, hint));
}

/* A setting given twice, or two that say the same thing in two ways. `given`: a bit a kind. */
static enum rc check_given(const char *spec, const char *text, const char *key,
                           enum setting_kind kind, uint64_t *given, struct fault *why)
{
    static const struct {
        enum setting_kind kind, other;
    } either[] = {{SETTING_ALPHA, SETTING_BETA},
                  {SETTING_SHARE, SETTING_RATE},
                  {SETTING_EVERY, SETTING_PUSH},
                  {SETTING_EVERY, SETTING_PULL}};
    uint64_t bad = UINT64_C(1) << kind;

    for (size_t i = 0; i < ARRAY_COUNT(either); i++) {
        if (either[i].kind == kind) bad |= UINT64_C(1) << either[i].other;
        if (either[i].other == kind) bad |= UINT64_C(1) << either[i].kind;
    }
    if ((*given & bad) != 0) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s: column %zu: \"%s\" says again what an earlier setting "
                         "says; give one of them",
                         spec, (size_t)(text - spec) + 1, key);
    }
    *given |= UINT64_C(1) << kind;
    return RC_OK;
}

/* `text`: what follows the colon, "key=value,key=value". Values are looked at in place, so a comma
 * becomes the end of one in a copy of the same length. */
static enum rc parse_settings(const char *spec, const char *text, const struct method *method,
                              struct strategy *strategy, struct fault *why)
{
    char copy[SPEC_MAX], key[SPEC_MAX];
    const char *value = NULL;
    const struct setting *setting = NULL;
    uint64_t given = 0;
    enum rc rc = RC_OK;

    if (method->settings[0].key == NULL) {
        return fault_set(why, RC_PARSE, "--averaging %s: column %zu: %s takes no settings", spec,
                         (size_t)(text - spec) + 1, method->name);
    }
    while (rc == RC_OK) {
        size_t count = strcspn(text, ","), at = (size_t)(text - spec);

        memcpy(copy, spec, at + count); /* columns stay right */
        copy[at + count] = '\0';
        rc = split_pair("--averaging", copy, copy + at, key, &value, why);
        if (rc == RC_OK) rc = find_setting(spec, text, method, key, &setting, why);
        if (rc == RC_OK) rc = check_given(spec, text, key, setting->kind, &given, why);
        if (rc == RC_OK) rc = apply_setting(copy, setting, value, strategy, why);
        if (text[count] == '\0') break;
        text += count + 1;
    }
    return rc;
}

static enum rc unknown_method(const char *spec, const char *name, struct fault *why)
{
    static const struct word_synonym synonyms[] = {
        {"fedavg", "local-sgd"},      {"federated", "local-sgd"},
        {"local", "local-sgd"},       {"local-adam", "des-loc"},
        {"ddp", "allreduce"},         {"sync", "allreduce"},
        {"horovod", "allreduce"},     {"gossip", "ad-psgd"},
        {"decentralized", "dpsgd"},   {"hivemind", "moshpit"},
        {"demo", "sparseloco"},       {"dgc", "sparseloco"},
        {"sgp", "push-sum"},          {"downpour", "easgd"},
        {"choco-sgd", "choco"},       {"soup", "one-shot"},
        {"mirror", "choco"},          {"population", "pbt"},
        {"distill", "codistill"},     {"adaptive", "adacomm"},
        {"stale-synchronous", "ssp"}, {NULL, NULL},
    };
    const char *names[METHODS_MAX];
    char hint[WORD_HINT_BYTES];
    size_t count = 0;
    const struct method *method;

    for (; count < METHODS_MAX && (method = method_at(count)) != NULL; count++) {
        names[count] = method->name;
    }
    return fault_set(why, RC_PARSE, "--averaging %s: column 1: unknown method \"%s\"%s", spec, name,
                     word_hint(name, names, count, synonyms, hint));
}

static enum rc parse_averaging(const char *spec, struct strategy *strategy,
                               const struct method **found, struct fault *why)
{
    const struct method *method;
    char name[SPEC_MAX];
    size_t count = strcspn(spec, ":");

    if (strlen(spec) >= SPEC_MAX) {
        return fault_set(why, RC_PARSE, "--averaging: longer than %d characters", SPEC_MAX - 1);
    }
    memcpy(name, spec, count);
    name[count] = '\0';
    for (size_t i = 0; (method = method_at(i)) != NULL; i++) {
        if (strcmp(name, method->name) == 0) break;
    }
    if (method == NULL) return unknown_method(spec, name, why);
    strategy->name = method->name;
    strategy->is_averaging = method->is_averaging;
    strategy->is_population = method->is_population;
    strategy->population =
        (struct population_settings){.margin = 0.02, .spread = 3, .resample = 0.25};
    strategy->waits = method->waits;
    strategy->overlaps = method->overlaps;
    strategy->optimizer = method->optimizer;
    strategy->tracks = method->tracks;
    strategy->quasi_global = method->quasi_global;
    strategy->fragments = method->fragments;
    strategy->slots = method->slots;
    strategy->first_rounds = method->first_rounds;
    strategy->second_rounds = method->second_rounds;
    if (method->first_rounds > 0) strategy->moments = MOMENTS_AVERAGE;
    strategy->blends = method->blends;
    strategy->local_share = method->local_share;
    strategy->joins_others = method->joins_others;
    strategy->quorum = method->quorum;
    strategy->aggregate = (struct aggregate){method->aggregate, UINT32_MAX};
    strategy->mixes_answers = method->mixes_answers;
    strategy->answers = method->answers;
    strategy->beta = method->beta > 0 ? method->beta : method->exchange == &exchange_mirror ? 0 : 1;
    if (method->codec != NULL) strategy->codec = *method->codec;
    if (method->codec_name != NULL) {
        CHECK(codec_find(method->codec_name, &strategy->codec, NULL) == RC_OK);
    }
    strategy->has_feedback = method->feedback_decay > 0;
    strategy->feedback_decay = method->feedback_decay;
    strategy->every_steps = method->every_steps;
    strategy->block_steps = method->block_steps;
    strategy->switch_steps = method->switch_steps;
    strategy->is_bounded = method->is_bounded;
    strategy->lead_steps = method->lead_steps;
    strategy->stale_steps = method->stale_steps;
    strategy->at_end = method->at_end;
    strategy->chance = method->chance;
    strategy->budget = method->budget;
    strategy->steps_by_weight = method->steps_by_weight;
    strategy->rule = method->rule;
    strategy->rule_settings = method->rule_settings;
    if (method->exchange != NULL) strategy->exchange = method->exchange;
    *found = method;
    if (spec[count] == '\0') return RC_OK;
    return parse_settings(spec, spec + count + 1, method, strategy, why);
}

static enum rc parse_pace(const char *spec, struct strategy *strategy, struct fault *why)
{
    static const char *const keys[] = {"every", "time"};
    const char *value = spec;
    char key[SPEC_MAX], hint[WORD_HINT_BYTES];
    uint64_t ns;
    enum rc rc = split_pair("--pace", spec, spec, key, &value, why);

    if (rc != RC_OK) return rc;
    if (strcmp(key, "every") == 0) {
        return parse_steps("--pace", spec, value, 1, &strategy->every_steps, why);
    }
    if (strcmp(key, "time") != 0) {
        return fault_set(
            why, RC_PARSE,
            "--pace %s: column 1: unknown pace \"%s\"%s, as in every=STEPS and time=DURATION", spec,
            key, word_hint(key, keys, ARRAY_COUNT(keys), NULL, hint));
    }
    if (!units_parse_duration(value, &ns) || ns == 0) {
        return fault_set(why, RC_PARSE,
                         "--pace %s: column %zu: \"%s\" is not a duration such as "
                         "5s or 250ms",
                         spec, (size_t)(value - spec) + 1, value);
    }
    strategy->every_ns = ns;
    strategy->every_steps = 0;
    strategy->switch_steps = 0;
    return RC_OK;
}

/* "group:SCHEDULE" */
static enum rc parse_schedule(const char *spec, const char *text, struct strategy *strategy,
                              struct fault *why)
{
    const char *names[SCHEDULE_AUTO + 1];
    char hint[WORD_HINT_BYTES];

    for (int i = 0; i <= SCHEDULE_AUTO; i++) {
        names[i] = schedule_name((enum schedule)i);
        if (strcmp(names[i], text) != 0) continue;
        strategy->schedule = (enum schedule)i;
        return RC_OK;
    }
    return fault_set(why, RC_PARSE, "--exchange %s: column %zu: unknown schedule%s", spec,
                     (size_t)(text - spec) + 1,
                     word_hint(text, names, ARRAY_COUNT(names), NULL, hint));
}

static enum rc parse_exchange(const char *spec, struct strategy *strategy, struct fault *why)
{
    const char *names[ARRAY_COUNT(exchanges)];
    char hint[WORD_HINT_BYTES];

    for (size_t i = 0; i < ARRAY_COUNT(exchanges); i++) {
        size_t count = strlen(exchanges[i]->name);

        names[i] = exchanges[i]->name;
        if (strncmp(names[i], spec, count) != 0) continue;
        strategy->exchange = exchanges[i];
        if (spec[count] == '\0') return RC_OK;
        if (exchanges[i]->is_group && spec[count] == ':') {
            return parse_schedule(spec, spec + count + 1, strategy, why);
        }
    }
    return fault_set(why, RC_PARSE, "--exchange %s: column 1: unknown exchange%s", spec,
                     word_hint(spec, names, ARRAY_COUNT(exchanges), NULL, hint));
}

static enum rc parse_rule(const char *spec, struct strategy *strategy, struct fault *why)
{
    const char *names[RULES_MAX];
    char hint[WORD_HINT_BYTES];
    const struct rule_ops *rule;
    struct rule_settings settings;
    size_t count = 0;

    for (; count < RULES_MAX && (rule = rule_at(count, &settings)) != NULL; count++) {
        names[count] = rule->name;
        if (strcmp(rule->name, spec) != 0) continue;
        if (rule != strategy->rule) strategy->rule_settings = settings;
        strategy->rule = rule;
        return RC_OK;
    }
    return fault_set(why, RC_PARSE, "--rule %s: column 1: unknown rule%s", spec,
                     word_hint(spec, names, count, NULL, hint));
}

/* "NAME", "NAME+ef" or "NAME+ef:DECAY". A method that has error feedback keeps it. */
static enum rc parse_codec(const char *spec, struct strategy *strategy, struct fault *why)
{
    const char *suffix = strchr(spec, '+');
    size_t count = suffix == NULL ? strlen(spec) : (size_t)(suffix - spec);
    char name[STRATEGY_CODEC_TEXT];
    double decay = 1;

    if (count >= sizeof name) {
        return fault_set(why, RC_PARSE, "--codec: longer than %zu characters", sizeof name - 1);
    }
    memcpy(name, spec, count);
    name[count] = '\0';
    if (suffix != NULL) {
        bool is_named = strncmp(suffix, "+ef", 3) == 0;
        const char *value = suffix + 4;

        if (!is_named || (suffix[3] != '\0' && suffix[3] != ':')) {
            return fault_set(
                why, RC_PARSE,
                "--codec %s: column %zu: expected +ef, or +ef:DECAY, for error feedback", spec,
                count + 1);
        }
        if (suffix[3] == ':' && (!units_parse_share(value, &decay) || decay < 0 || decay > 1)) {
            return fault_set(why, RC_PARSE,
                             "--codec %s: column %zu: \"%s\" is not a number from 0 to 1", spec,
                             count + 5, value);
        }
        strategy->has_feedback = true;
        strategy->feedback_decay = (float)decay;
    }
    return codec_find(name, &strategy->codec, why);
}

static enum rc parse_moments(const char *spec, struct strategy *strategy, struct fault *why)
{
    static const char *const names[] = {"keep", "reset", "average", "mask"}; /* as enum moments */
    char hint[WORD_HINT_BYTES];

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (strcmp(spec, names[i]) != 0) continue;
        strategy->moments = (enum moments)i;
        return RC_OK;
    }
    return fault_set(why, RC_PARSE, "--moments %s: column 1: unknown choice%s", spec,
                     word_hint(spec, names, ARRAY_COUNT(names), NULL, hint));
}

enum rc strategy_parse(const struct strategy_specs *specs, struct strategy *strategy,
                       struct fault *why)
{
    struct strategy parsed = {.exchange = &exchange_group,
                              .codec = codec_f32,
                              .rule = &rule_mean,
                              .schedule = SCHEDULE_AUTO};
    const struct method *method = NULL;
    enum rc rc;

    rc = parse_averaging(strategy_is_given(specs->averaging) ? specs->averaging : "local-sgd",
                         &parsed, &method, why);
    if (rc == RC_OK && strategy_is_given(specs->exchange)) {
        rc = parse_exchange(specs->exchange, &parsed, why);
    }
    if (rc == RC_OK) rc = strategy_match_topology(specs, method, &parsed, why);
    if (rc == RC_OK && strategy_is_given(specs->codec)) {
        rc = parse_codec(specs->codec, &parsed, why);
    }
    strategy_name_codec(&parsed);
    if (rc == RC_OK && strategy_is_given(specs->rule)) rc = parse_rule(specs->rule, &parsed, why);
    if (rc == RC_OK) strategy_follow_exchange(specs, &parsed);
    if (rc == RC_OK && strategy_is_given(specs->pace)) rc = parse_pace(specs->pace, &parsed, why);
    if (rc == RC_OK && strategy_is_given(specs->moments)) {
        rc = parse_moments(specs->moments, &parsed, why);
    }
    if (rc == RC_OK) rc = strategy_match(specs, method, &parsed, why);
    if (rc != RC_OK) return rc;
    if (!strategy_may_relay(&parsed)) parsed.schedule = SCHEDULE_DIRECT;
    strategy_describe(&parsed);
    *strategy = parsed;
    return RC_OK;
}

enum rc strategy_check_peers(const struct strategy *strategy, uint64_t peers, struct fault *why)
{
    const bool is_graph = strategy->is_averaging && strategy->exchange->is_graph;

    if (strategy->has_feedback && peers > GROUP_MEMBERS_MAX) {
        return fault_set(why, RC_USAGE,
                         "--averaging %s, --codec %s: differences are from an anchor that all "
                         "members of one group hold, so for up to %d peers; use --averaging diloco "
                         "without +ef, or choco",
                         strategy->name, strategy->codec_text, GROUP_MEMBERS_MAX);
    }
    if (!is_graph || peers <= TOPOLOGY_DEGREE_MAX + 1) return RC_OK;
    if (strategy->topology.kind != TOPOLOGY_COMPLETE) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--topology complete: a peer averages with at most %d neighbours, so up to %d "
                     "peers; use --topology random:8",
                     TOPOLOGY_DEGREE_MAX, TOPOLOGY_DEGREE_MAX + 1);
}

bool strategy_is_patient(const struct strategy *strategy)
{
    return strategy->exchange->is_group && !strategy->waits && !strategy->overlaps &&
           !strategy->at_end;
}

bool strategy_steps(const struct strategy *strategy)
{
    return strategy->rule_settings.rate > 0;
}

size_t strategy_chunk_bytes(const struct strategy *strategy)
{
    const struct codec *codec = &strategy->codec;
    size_t bytes = codec->ops->bytes_max(codec, CHUNK_VALUES);

    if (!strategy->has_feedback) return bytes;
    if (bytes < CHUNK_VALUES * sizeof(float)) bytes = CHUNK_VALUES * sizeof(float); /* at first */
    return DELTA_OFFER_HEAD + bytes;
}

bool strategy_may_relay(const struct strategy *strategy)
{
    return strategy->codec.traits.is_fine && !strategy->clips && !strategy->has_feedback &&
           strategy->aggregate.ops == NULL && strategy->exchange->is_group;
}

uint32_t strategy_cover(const struct strategy *strategy)
{
    uint32_t rounds = strategy->fragments > 0 ? strategy->fragments : strategy->slots;

    return strategy->is_averaging && rounds > 1 ? rounds : 1;
}

bool strategy_has_masks(const struct strategy *strategy)
{
    return strategy_cover(strategy) > 1 || strategy->first_rounds > 0;
}

uint64_t strategy_every(const struct strategy *strategy, uint64_t step)
{
    return step < strategy->switch_steps ? 1 : strategy->every_steps;
}

struct topology strategy_topology(const struct strategy *strategy, size_t members)
{
    struct topology topology = strategy->topology;

    if (strategy->topology_is_default && topology.kind == TOPOLOGY_COMPLETE &&
        !strategy->has_feedback && members > COMPLETE_MAX) {
        topology.kind = TOPOLOGY_GROUPS;
        topology.group_size = GROUP_DEFAULT;
    }
    if (strategy->exchange->is_graph && topology.kind == TOPOLOGY_COMPLETE &&
        members > TOPOLOGY_DEGREE_MAX + 1) {
        topology.kind = TOPOLOGY_RANDOM; /* cut short, those beyond the cut would be alone */
        topology.degree = TOPOLOGY_DEGREE_MAX;
    }
    return topology;
}

/* chaos: see chaos.h. */
#include "testnet/chaos.h"

#include "base/check.h"
#include "base/units.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    const char *after; /* how the key for "until it is undone" is called */
} kinds[CHAOS_KIND_COUNT] = {
    [CHAOS_KILL] = {"kill", "restart"},
    [CHAOS_FREEZE] = {"freeze", "for"},
    [CHAOS_PARTITION] = {"partition", "for"},
    [CHAOS_SLOW] = {"slow", "for"},
};

const char *chaos_name(enum chaos_kind kind)
{
    CHECK((unsigned)kind < CHAOS_KIND_COUNT);
    return kinds[kind].name;
}

/* A word of the spec: not NUL-terminated. */
struct word {
    const char *at;
    size_t length;
};

static bool word_is(struct word word, const char *text)
{
    return strlen(text) == word.length && strncmp(word.at, text, word.length) == 0;
}

static enum rc complain(struct fault *why, const char *spec, struct word word, const char *what)
{
    return fault_set(why, RC_PARSE,
                     "--chaos, column %zu: %s '%.*s'; known are kill:mtbf=15s,restart=5s and "
                     "freeze, slow or partition:mtbf=20s,for=3s, joined with ;",
                     (size_t)(word.at - spec) + 1, what, (int)word.length, word.at);
}

static enum rc parse_pair(const char *spec, struct word pair, struct chaos_rule *rule,
                          struct fault *why)
{
    const char *equals = memchr(pair.at, '=', pair.length);
    char text[32];
    uint64_t ns;

    if (equals == NULL) return complain(why, spec, pair, "KEY=TIME expected, not");
    const struct word key = {pair.at, (size_t)(equals - pair.at)};
    const struct word value = {equals + 1, pair.length - key.length - 1};
    if (!word_is(key, "mtbf") && !word_is(key, kinds[rule->kind].after)) {
        return complain(why, spec, key, "unknown key");
    }
    if (value.length >= sizeof text) return complain(why, spec, value, "not a time:");
    memcpy(text, value.at, value.length);
    text[value.length] = '\0';
    if (!units_parse_duration(text, &ns) || ns == 0) {
        return complain(why, spec, value, "not a time above zero:");
    }
    if (word_is(key, "mtbf")) {
        rule->mtbf_ns = ns;
    } else {
        rule->after_ns = ns;
    }
    return RC_OK;
}

static enum rc parse_rule(const char *spec, struct word text, struct chaos_rule *rule,
                          struct fault *why)
{
    const char *end = text.at + text.length, *colon = memchr(text.at, ':', text.length);
    const struct word name = {text.at, colon != NULL ? (size_t)(colon - text.at) : text.length};
    int kind = 0;

    while (kind < CHAOS_KIND_COUNT && !word_is(name, kinds[kind].name)) {
        kind++;
    }
    if (kind == CHAOS_KIND_COUNT) return complain(why, spec, name, "unknown fault");
    *rule = (struct chaos_rule){.kind = (enum chaos_kind)kind};
    for (const char *at = colon != NULL ? colon + 1 : end; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const struct word pair = {at, (size_t)((comma != NULL ? comma : end) - at)};
        const enum rc rc = parse_pair(spec, pair, rule, why);
        if (rc != RC_OK) return rc;
        at = comma != NULL ? comma + 1 : end;
    }
    if (rule->mtbf_ns == 0) return complain(why, spec, text, "mtbf=TIME is missing in");
    if (rule->after_ns == 0)
        return complain(why, spec, text, "restart=TIME or for=TIME is missing in");
    return RC_OK;
}

enum rc chaos_parse(const char *spec, struct chaos *chaos, struct fault *why)
{
    struct chaos parsed = {.rules_count = 0};

    if (spec != NULL && spec[0] == '\0') spec = NULL;
    for (const char *at = spec; at != NULL;) {
        const char *semicolon = strchr(at, ';');
        const struct word text = {at, semicolon != NULL ? (size_t)(semicolon - at) : strlen(at)};
        if (parsed.rules_count == CHAOS_RULES_MAX) {
            return fault_set(why, RC_LIMIT, "--chaos: at most %d rules", CHAOS_RULES_MAX);
        }
        const enum rc rc = parse_rule(spec, text, &parsed.rules[parsed.rules_count], why);
        if (rc != RC_OK) return rc;
        parsed.rules_count++;
        at = semicolon != NULL ? semicolon + 1 : NULL;
    }
    *chaos = parsed;
    return RC_OK;
}

static void draw(struct chaos *chaos, size_t rule, uint64_t from_ns)
{
    const double wait = -log(1 - rng_unit(&chaos->rngs[rule])) * (double)chaos->rules[rule].mtbf_ns;

    chaos->next_ns[rule] = from_ns + (uint64_t)wait;
}

void chaos_begin(struct chaos *chaos, uint64_t seed, uint64_t now_ns)
{
    for (size_t r = 0; r < chaos->rules_count; r++) {
        rng_init(&chaos->rngs[r], seed, r);
        draw(chaos, r, now_ns);
    }
}

bool chaos_due(struct chaos *chaos, uint64_t now_ns, size_t *rule)
{
    for (size_t r = 0; r < chaos->rules_count; r++) {
        if (chaos->next_ns[r] > now_ns) continue;
        /* From when it was due, so that times do not depend on how often we are asked. */
        draw(chaos, r, chaos->next_ns[r]);
        *rule = r;
        return true;
    }
    return false;
}

uint32_t chaos_pick(struct chaos *chaos, size_t rule, uint32_t candidates)
{
    CHECK(rule < chaos->rules_count && candidates > 0);
    return (uint32_t)rng_below(&chaos->rngs[rule], candidates);
}

/*
 * Every method of --averaging under random accidents, on random topologies and codecs that suit it:
 * tests/sim/chaos.h says what must hold.
 *   SEED=17 TRACE=1          one seed, and everything that happens in it
 *   FIRST=1 SEEDS=2000       the campaign
 *   METHOD=osgp TOPOLOGY=ring SEEDS=100      of one method, and on one topology if it suits it
 * Rules in place of the mean (--robust) are tried where all members meet: in parts of a graph a
 * median may come to rest before all are equal.
 */
#include "tests/sim/chaos.h"

#include "averaging/strategy/methods.h"
#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS_GATE = 12 };
#else
enum { SEEDS_GATE = 200 };
#endif
enum { REPLAYS_EVERY = 40, METHODS_MAX = 64 };

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* The names of all methods that average parameters while they train. Models whose rounds mix
 * answers stay unlike each other: tests/sim/test_answers.c has faults for these. */
static uint32_t list_methods(char names[METHODS_MAX][32])
{
    uint32_t count = 0;
    const struct method *method;

    for (size_t i = 0; (method = method_at(i)) != NULL && count < METHODS_MAX; i++) {
        if (!method->is_averaging || method->at_end || method->mixes_answers) continue;
        assert_true(strlen(method->name) < 32);
        strcpy(names[count++], method->name);
    }
    return count;
}

/* As shipped, but for d2: beside clipping, of which its array takes up what is held back, 2 of 40
 * seeds leave a peer apart from the others for good (docs/methods.md states the fault). */
static bool parses(struct strategy *strategy, const char *name, const char *settings,
                   const char *topology, const char *codec)
{
    char averaging[64];
    struct strategy_specs specs = {.averaging = averaging,
                                   .topology = topology,
                                   .codec = codec,
                                   .robust = strcmp(name, "d2") == 0 ? "none" : NULL};
    struct fault why;

    snprintf(averaging, sizeof averaging, "%s%s", name, settings);
    return strategy_parse(&specs, strategy, &why) == RC_OK;
}

/* Settings with which rounds are a few steps apart, and carry all of the model soon. */
static const char *settings_of(const char *name)
{
    static const char *const settings[][2] = {{"adacomm", ":H=8,block=60"},
                                              {"streaming-diloco", ":H=8,P=4,tau=1"},
                                              {"decoupled-diloco", ":H=8,P=4,tau=1"},
                                              {"sparta", ":H=2,p=0.1"},
                                              {"loscar", ":H=4,p=0.25"}};

    for (size_t i = 0; i < ARRAY_COUNT(settings); i++) {
        if (strcmp(name, settings[i][0]) == 0) return settings[i][1];
    }
    return ":H=4";
}

/* The method, NULL: that of this seed, with rounds a few steps apart. What was drawn and does not
 * suit it is left as the method has it. */
static void choose(uint64_t seed, const char *name, struct strategy *strategy)
{
    static const char *const topologies[] = {
        NULL,          "ring",     "random:2", "torus", "hypercube",
        "exponential", "groups:3", "grid:2",   "pairs", "one-peer-exponential"};
    static const char *const codecs[] = {NULL, "f32", "f16", "int8"};
    char names[METHODS_MAX][32];
    uint32_t count = list_methods(names);
    const char *topology, *codec;
    struct rng rng;

    rng_init(&rng, seed, 0x6d657468);
    topology = topologies[rng_below(&rng, ARRAY_COUNT(topologies))];
    codec = codecs[rng_below(&rng, ARRAY_COUNT(codecs))];
    if (name == NULL) name = names[seed % count];
    if (getenv("METHOD") != NULL) name = getenv("METHOD");
    if (getenv("TOPOLOGY") != NULL) topology = getenv("TOPOLOGY");
    if (parses(strategy, name, settings_of(name), topology, codec)) return;
    if (parses(strategy, name, settings_of(name), topology, NULL)) return;
    if (parses(strategy, name, settings_of(name), NULL, codec)) return;
    if (parses(strategy, name, settings_of(name), NULL, NULL)) return;
    if (parses(strategy, name, "", topology, codec)) return;
    if (!parses(strategy, name, "", NULL, NULL)) fail_msg("%s", name);
}

/* Seeds beyond those of the gate that have failed once. */
static void what_failed_once_holds(void **state)
{
    static const struct {
        uint64_t seed;
        const char *method;
    } cases[] = {
        /* int8 gave a model's last values and its tracker's first ones one scale. */
        {1157, "gradient-tracking"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct strategy strategy;

        choose(cases[i].seed, cases[i].method, &strategy);
        chaos_live_by(cases[i].seed, &strategy, "sim_methods_chaos", NULL);
    }
}

static void methods_keep_models_whole_and_heal(void **state)
{
    uint64_t first = number_of("SEED", number_of("FIRST", 1));
    uint64_t count = getenv("SEED") != NULL ? 1 : number_of("SEEDS", SEEDS_GATE), events = 0;

    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct sim_counts counts;
        struct strategy strategy;
        uint64_t trace;

        choose(seed, NULL, &strategy);
        trace = chaos_live_by(seed, &strategy, "sim_methods_chaos", &counts);
        events += counts.events;
        if (seed % REPLAYS_EVERY == 0 && getenv("TRACE") == NULL) {
            check_seed(seed, chaos_live_by(seed, &strategy, "sim_methods_chaos", NULL) == trace);
        }
    }
    printf("%llu seeds from %llu, %llu events\n", (unsigned long long)count,
           (unsigned long long)first, (unsigned long long)events);
}

static void rules_in_place_of_the_mean_do_as_well(void **state)
{
    static const struct strategy_specs methods[] = {
        {.averaging = "local-sgd:H=4"},
        {.averaging = "diloco:H=4"},
        {.averaging = "dpsgd:H=4", .topology = "complete"},
        {.averaging = "easgd:tau=4"},
        {.averaging = "choco:H=4", .topology = "complete"}};
    static const char *const robusts[] = {"trim:1",     "median",        "krum",
                                          "multi-krum", "centered-clip", "rfa"};
    uint64_t first = number_of("SEED", number_of("FIRST", 1));
    uint64_t count =
        getenv("SEED") != NULL ? 1 : number_of("SEEDS", SEEDS_GATE < 60 ? SEEDS_GATE : 60);

    (void)state;
    if (getenv("METHOD") != NULL) skip();
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct strategy_specs specs = methods[seed % ARRAY_COUNT(methods)];
        struct strategy strategy;
        struct fault why;

        specs.robust = robusts[seed % ARRAY_COUNT(robusts)];
        if (strategy_parse(&specs, &strategy, &why) != RC_OK) fail_msg("%s", why.text);
        chaos_live_by(seed, &strategy, "sim_methods_chaos", NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_failed_once_holds),
        cmocka_unit_test(methods_keep_models_whole_and_heal),
        cmocka_unit_test(rules_in_place_of_the_mean_do_as_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Method specs: what they mean, and what is said of wrong ones. */
#include "tests/check.h"

#include "averaging/strategy/strategy.h"
#include "base/check.h"

static void the_default_is_local_sgd_over_a_group(void **state)
{
    (void)state;
    /* Nothing given: local-sgd, H = 16, group over complete, f32, mean. */
    struct strategy_specs specs = {.averaging = NULL};
    struct strategy s;
    struct fault why = {""};

    assert_int_equal(strategy_parse(&specs, &s, &why), RC_OK);
    assert_string_equal(s.name, "local-sgd");
    assert_true(s.is_averaging);
    assert_int_equal(s.every_steps, 16);
    assert_int_equal(s.every_ns, 0);
    assert_ptr_equal(s.exchange, &exchange_group);
    assert_string_equal(s.codec.name, "f32");
    assert_ptr_equal(s.rule, &rule_mean);
    assert_int_equal(strategy_topology(&s, 16).kind, TOPOLOGY_COMPLETE);
    assert_int_equal(strategy_topology(&s, 17).kind, TOPOLOGY_GROUPS);
    assert_int_equal(strategy_topology(&s, 17).group_size, 8);
    assert_string_equal(s.text,
                        "local-sgd: every 16 steps, exchange group:direct over complete up to 16 "
                        "peers, groups:8 beyond, codec f32, rule mean, robust clip");
}

static void each_coordinate_can_be_replaced(void **state)
{
    (void)state;
    /* --averaging H, --pace, --exchange, --topology, --codec, --rule. */
    struct strategy_specs specs = {
        .averaging = "local-sgd:H=4", .codec = "f16", .rule = "mean", .exchange = "pair"};
    struct strategy s;

    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(s.every_steps, 4);
    assert_ptr_equal(s.exchange, &exchange_pair);
    assert_string_equal(s.codec.name, "f16");
    assert_int_equal(strategy_topology(&s, 99).kind, TOPOLOGY_PAIRS);
    specs = (struct strategy_specs){.topology = "pairs"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_ptr_equal(s.exchange, &exchange_pair);
    specs = (struct strategy_specs){.topology = "complete", .pace = "time=5s"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(strategy_topology(&s, 99).kind, TOPOLOGY_COMPLETE); /* as asked for */
    assert_int_equal(s.every_steps, 0);
    assert_true(s.every_ns == UINT64_C(5000000000));
    specs = (struct strategy_specs){.pace = "every=32", .topology = "groups:4"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(s.every_steps, 32);
    assert_int_equal(s.topology.group_size, 4);
    specs = (struct strategy_specs){.averaging = "none"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_false(s.is_averaging);
}

static void is_refused(const struct strategy_specs *specs, enum rc rc, const char *text)
{
    struct strategy s = {.name = "untouched"};
    struct fault why = {""};

    assert_int_equal(strategy_parse(specs, &s, &why), rc);
    if (strstr(why.text, text) == NULL) fail_msg("not \"%s\": %s", text, why.text);
    assert_true(why.text[0] != '\0');
    assert_null(strchr(why.text, '\n'));
    assert_string_equal(s.name, "untouched");
}

struct refusal {
    struct strategy_specs specs;
    enum rc rc;
    const char *text;
};

static void are_refused(const struct refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        is_refused(&refusals[i].specs, refusals[i].rc, refusals[i].text);
    }
}

static void wrong_words_say_what_and_where(void **state)
{
    (void)state;
    /* Each names the flag, and the column or the nearest word; the output is untouched. */
    static const struct refusal refusals[] = {
        {{.averaging = "local-sdg"}, RC_PARSE, "did you mean local-sgd"},
        {{.averaging = "lokal"}, RC_PARSE, "--averaging lokal: column 1"},
        {{.averaging = "local-sgd:h=4"},
         RC_PARSE,
         "column 11: unknown setting \"h\"; did you mean H"},
        {{.averaging = "local-sgd:"}, RC_PARSE, "column 11: expected key=value"},
        {{.averaging = "local-sgd:H"}, RC_PARSE, "column 11: expected key=value"},
        {{.averaging = "local-sgd:H=0"}, RC_PARSE, "column 13"},
        {{.averaging = "local-sgd:H=4,"}, RC_PARSE, "column 15"},
        {{.averaging = "local-sgd:H=99999999999999999999"}, RC_PARSE, "column 13"},
        {{.averaging = "none:H=3"}, RC_PARSE, "takes no settings"},
        {{.exchange = "grupp"}, RC_PARSE, "did you mean group"},
        {{.codec = "f17"}, RC_PARSE, "did you mean f16"},
        {{.rule = "median"}, RC_PARSE, "known: mean"},
        {{.pace = "every"}, RC_PARSE, "column 1: expected key=value"},
        {{.pace = "evry=3"}, RC_PARSE, "did you mean every"},
        {{.pace = "time=soon"}, RC_PARSE, "column 6"},
        {{.pace = "time=0s"}, RC_PARSE, "column 6"},
        {{.topology = "rings"}, RC_PARSE, ""},
        {{.topology = "grid:1"}, RC_PARSE, "column 6"},
        {{.averaging = "diloco:H=5,momentum=1"}, RC_PARSE, "column 21"},
        {{.averaging = "diloco:H=5,lr=nan"}, RC_PARSE, "column 15"},
        {{.averaging = "diloco:H=5,"}, RC_PARSE, "column 12"},
        {{.averaging = "diloco:mu=1"}, RC_PARSE, "unknown setting"},
        {{.averaging = "diloco:tau=x"}, RC_PARSE, "column 12"},
        {{.averaging = "streaming-diloco:P=0"}, RC_PARSE, "column 20"},
        {{.averaging = "streaming-diloco:P=1001"}, RC_PARSE, "fragments from 1 to 1000"},
        {{.averaging = "streaming-diloco:a=1"}, RC_PARSE, "column 20"},
        {{.averaging = "decoupled-diloco:quorum=1"}, RC_PARSE, "members from 2 to"},
        {{.averaging = "decoupled-diloco:quorum=x"}, RC_PARSE, "column 25"},
        {{.averaging = "streaming-diloco:quorum=2"}, RC_PARSE, "unknown setting"},
        {{.averaging = "sparta:p=0"}, RC_PARSE, "column 10"},
        {{.averaging = "sparta:p=0.6"}, RC_PARSE, "0.0001 to 0.5"},
        {{.averaging = "dilocco"}, RC_PARSE, "did you mean diloco"},
        {{.exchange = "group:rign"}, RC_PARSE, "column 7: unknown schedule; did you mean ring?"},
        {{.exchange = "pair:ring"}, RC_PARSE, "unknown exchange"},
        {{.averaging = "choco", .codec = "topk:0.3"}, RC_PARSE, "expected topk:SHARE"},
        {{.averaging = "sparseloco:beta=2"}, RC_PARSE, "column 17"},
        {{.codec = "int8+fe"}, RC_PARSE, "column 5: expected +ef"},
        {{.codec = "int8+ef0.9"}, RC_PARSE, "column 5: expected +ef"},
        {{.codec = "int8+ef:1.5"}, RC_PARSE, "column 9: \"1.5\" is not a number from 0 to 1"},
        {{.codec = "topk:0.3+ef"}, RC_PARSE, "expected topk:SHARE"},
        {{.codec = "tokp"}, RC_PARSE, "unknown codec; did you mean topk"},
        {{.codec = "FP16"}, RC_PARSE, "unknown codec; write f16;"},
        {{.averaging = "fedavg"}, RC_PARSE, "write local-sgd; known: none"},
        {{.averaging = "ddp:H=3"}, RC_PARSE, "write allreduce;"},
        {{.topology = "grid:0"}, RC_PARSE, "--topology"},
        {{.averaging = "choco:gamma=2"}, RC_PARSE, "column 13"},
        {{.rule = "nestrov"}, RC_PARSE, "did you mean nesterov"},
        {{.topology = "random:1"}, RC_PARSE, "column 8"},
        {{.topology = "pairs,lazy"}, RC_PARSE, "column 6"},
        {{.topology = "ring,lazier"}, RC_PARSE, "column 5"},
        {{.averaging = "codistill:lambda=-1"}, RC_PARSE, "column 18"},
        {{.averaging = "codistill:samples=0"}, RC_PARSE, "column 19"},
        {{.averaging = "codistill:samples=200000000"}, RC_PARSE, "column 19"},
        {{.averaging = "codistill:burn=-1"}, RC_PARSE, "column 16"},
        {{.averaging = "codistill:share=0.5"}, RC_PARSE, "unknown setting"},
        {{.averaging = "ec-dnn:weight=1.5"}, RC_PARSE, "column 15"},
        {{.averaging = "ec-dnn:share=0"}, RC_PARSE, "column 14"},
        {{.averaging = "ec-dnn:compress=0"}, RC_PARSE, "column 17"},
    };

    are_refused(refusals, ARRAY_COUNT(refusals));
}

static void words_that_do_not_go_together_say_which(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {{.averaging = "diloco", .exchange = "pair"}, RC_USAGE, "--exchange group"},
        {{.averaging = "diloco", .topology = "grid:4"}, RC_USAGE, "take the mean there"},
        {{.averaging = "moshpit", .rule = "nesterov"}, RC_USAGE, "take the mean there"},
        {{.averaging = "streaming-diloco", .exchange = "pair"}, RC_USAGE, "--exchange group"},
        {{.averaging = "streaming-diloco", .topology = "grid:4"},
         RC_USAGE,
         "leave --topology grid"},
        {{.averaging = "streaming-diloco:H=10"}, RC_USAGE, "H=10 is not a multiple of P=4"},
        {{.averaging = "streaming-diloco:H=20"}, RC_USAGE, "use a tau below that"},
        {{.averaging = "diloco:H=10,tau=10"}, RC_USAGE, "use a tau below that"},
        {{.averaging = "streaming-diloco", .rule = "elastic"},
         RC_USAGE,
         "leave --rule elastic out"},
        {{.averaging = "streaming-diloco", .moments = "reset"}, RC_USAGE, "leave --moments out"},
        {{.averaging = "sparta", .rule = "nesterov"}, RC_USAGE, "leave --rule out"},
        {{.averaging = "sparta", .topology = "ring", .exchange = "edges"},
         RC_USAGE,
         "--exchange group or pair"},
        {{.averaging = "loscar", .exchange = "push"}, RC_USAGE, "--exchange group or pair"},
        {{.exchange = "group:ring", .codec = "int8"}, RC_USAGE, "use group:direct"},
        {{.exchange = "group:tree", .robust = "clip"}, RC_USAGE, "use group:direct"},
        {{.averaging = "noloco", .exchange = "group"}, RC_USAGE, "--exchange pair"},
        {{.averaging = "ad-psgd", .codec = "topk:0.1"}, RC_USAGE, "choco"},
        {{.averaging = "dpsgd", .codec = "topk:0.1"}, RC_USAGE, "--exchange mirror"},
        {{.averaging = "diloco", .codec = "topk:0.1"}, RC_USAGE, "with topk:0.1+ef it comes"},
        {{.averaging = "ad-psgd", .codec = "int8+ef"}, RC_USAGE, "--exchange group"},
        {{.averaging = "choco", .codec = "topk:0.1+ef"}, RC_USAGE, "leave +ef out"},
        {{.averaging = "moshpit", .codec = "int8+ef"}, RC_USAGE, "--topology complete"},
        {{.averaging = "sparseloco", .topology = "groups:4"}, RC_USAGE, "--topology complete"},
        {{.averaging = "one-shot", .codec = "int8+ef"}, RC_USAGE, "leave +ef out"},
        {{.averaging = "codistill", .codec = "int8+ef"}, RC_USAGE, "leave +ef out"},
        {{.averaging = "easgd", .codec = "int8+ef"}, RC_USAGE, "another rule"},
        {{.averaging = "streaming-diloco", .codec = "int8+ef"}, RC_USAGE, "leave +ef out"},
        {{.averaging = "sparseloco", .exchange = "group:ring"}, RC_USAGE, "use group:direct"},
        {{.averaging = "diloco", .codec = "f32+ef", .moments = "average"}, RC_USAGE, "--codec f32"},
        {{.averaging = "local-sgd", .codec = "int4"}, RC_USAGE, "+ef it comes in"},
        {{.averaging = "diloco", .codec = "topk:64/4096|int2"}, RC_USAGE, "+ef it comes in"},
        {{.averaging = "choco", .codec = "topk:0.01|f16|int8"}, RC_PARSE, "one | at the most"},
        {{.codec = "+ef"}, RC_PARSE, "a codec is missing"},
        {{.averaging = "dpsgd", .codec = "qsgd:16"}, RC_USAGE, "choco"},
        {{.averaging = "push-sum", .codec = "sign"}, RC_USAGE, "choco"},
        {{.averaging = "allreduce", .codec = "randk:0.1"}, RC_USAGE, "+ef it comes in"},
        {{.averaging = "none", .topology = "ring"}, RC_USAGE, "--topology ring"},
        {{.averaging = "none", .robust = "clip"}, RC_USAGE, "--robust clip"},
        {{.averaging = "one-shot", .robust = "clip"}, RC_USAGE, "no distance is usual"},
        {{.robust = "clips"}, RC_PARSE, "did you mean clip"},
        {{.robust = "medan"}, RC_PARSE, "did you mean median"},
        {{.robust = "trim"}, RC_PARSE, "column 5: how many may lie"},
        {{.averaging = "none", .robust = "median"}, RC_USAGE, "--robust median"},
        {{.averaging = "matcha", .exchange = "pair"}, RC_USAGE, "a budget is of the edges"},
        {{.averaging = "matcha", .rule = "exact-diffusion"}, RC_USAGE, "leave --exchange and"},
        {{.averaging = "ad-psgd", .robust = "median"}, RC_USAGE, "of two values nobody can tell"},
        {{.averaging = "noloco", .robust = "rfa"}, RC_USAGE, "use --robust clip"},
        {{.averaging = "push-sum", .robust = "trim:2"}, RC_USAGE, "has a weight"},
        {{.averaging = "d2", .robust = "krum"}, RC_USAGE, "must add up to zero"},
        {{.averaging = "gradient-tracking", .robust = "rfa"}, RC_USAGE, "must add up to zero"},
        {{.exchange = "group:tree", .robust = "median"}, RC_USAGE, "use group:direct"},
        {{.averaging = "one-shot", .robust = "centered-clip"}, RC_USAGE, "no distance is usual"},
        {{.averaging = "codistill", .robust = "median"}, RC_USAGE, "no distribution"},
        {{.averaging = "none", .pace = "every=3"}, RC_USAGE, "--pace every=3"},
        {{.averaging = "aeasgd:alpha=0.1,beta=0.2"}, RC_USAGE, "column 18: \"beta\" says again"},
        {{.averaging = "easgd:beta=0.2,rho=0.1"}, RC_USAGE, "\"rho\" says again"},
        {{.averaging = "easgd:H=2,tau=3"}, RC_USAGE, "\"tau\" says again"},
        {{.averaging = "choco:H=2,H=3"}, RC_USAGE, "column 11"},
        {{.averaging = "choco", .topology = "one-peer-exponential"}, RC_USAGE, "mirror"},
        {{.averaging = "noloco:momentum=0.9"}, RC_USAGE, "here 0.38"},
        {{.topology = "pairs", .exchange = "group"}, RC_USAGE, "--exchange pair"},
        {{.topology = "complete", .exchange = "pair"}, RC_USAGE, "--topology pairs"},
        {{.topology = "ring", .exchange = "group"}, RC_USAGE, "--exchange pair"},
        {{.topology = "one-peer-exponential", .averaging = "ad-psgd"}, RC_USAGE, "one way"},
        {{.averaging = "codistill", .exchange = "push"}, RC_USAGE, "given anew"},
        {{.averaging = "codistill", .rule = "nesterov"}, RC_USAGE, "given anew"},
        {{.averaging = "ec-dnn", .moments = "reset"}, RC_USAGE, "leave each model as it is"},
    };

    are_refused(refusals, ARRAY_COUNT(refusals));
}

static void async_diloco_says_what_it_bears(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {{.averaging = "async-diloco:N=1"}, RC_PARSE, "rounds from 2 to 1000"},
        {{.averaging = "async-diloco:lr=1.1"}, RC_PARSE, "1e-06 to 1"},
        {{.averaging = "async-diloco", .exchange = "group"}, RC_USAGE, "--exchange pair"},
        {{.averaging = "async-diloco", .topology = "ring", .exchange = "edges"},
         RC_USAGE,
         "--exchange pair"},
    };
    const struct strategy_specs specs = {.averaging = "async-diloco"};
    struct strategy s;

    are_refused(refusals, ARRAY_COUNT(refusals));
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_true(!s.waits && s.exchange == &exchange_pair);
    assert_non_null(
        strstr(s.text, "rule delayed-nesterov lr 0.7 momentum 0.5 every 4 rounds, robust clip"));
}

static void gasloc_says_what_it_bears(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {{.averaging = "gasloc:momentum=0.8"}, RC_USAGE, "less than 0.781"},
        {{.averaging = "gasloc", .exchange = "mirror"}, RC_USAGE, "use --exchange edges"},
        {{.averaging = "gasloc", .exchange = "edges", .robust = "median"},
         RC_USAGE,
         "--topology complete"},
        {{.averaging = "gasloc", .topology = "complete", .codec = "topk:0.1+ef"},
         RC_USAGE,
         "--rule nesterov"},
        {{.averaging = "gasloc:alpha=1", .exchange = "edges", .topology = "torus"},
         RC_USAGE,
         "no more than alpha 0.812"},
    };

    are_refused(refusals, ARRAY_COUNT(refusals));
}

static void aggregates_go_with_groups_and_neighbours(void **state)
{
    (void)state;
    /* Rounds of groups are direct then, and means are judged as with clip; but for the one round at
     * the end, before which no distance is usual. */
    static const struct {
        struct strategy_specs specs;
        const char *words;
        bool clips;
    } cases[] = {{{.averaging = "local-sgd", .robust = "median"}, "robust median", true},
                 {{.averaging = "diloco", .robust = "trim:2"}, "robust trim:2", true},
                 {{.averaging = "easgd", .robust = "rfa"}, "robust rfa", true},
                 {{.averaging = "dpsgd", .robust = "multi-krum:1"}, "robust multi-krum:1", true},
                 {{.averaging = "choco", .robust = "centered-clip"}, "robust centered-clip", true},
                 {{.averaging = "codistill", .robust = "rfa"}, "robust rfa", true},
                 {{.averaging = "one-shot", .robust = "krum:2"}, "robust krum:2", false}};

    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct strategy s;
        struct fault why = {""};

        if (strategy_parse(&cases[i].specs, &s, &why) != RC_OK) fail_msg("%s", why.text);
        assert_non_null(strstr(s.text, cases[i].words));
        assert_non_null(s.aggregate.ops);
        assert_true(s.clips == cases[i].clips);
        assert_false(strategy_may_relay(&s));
        if (s.exchange->is_group) assert_int_equal(s.schedule, SCHEDULE_DIRECT);
    }
}

static void periods_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {{.averaging = "easgd:tau=3,push=4"}, RC_USAGE, "\"push\" says again"},
        {{.averaging = "easgd:pull=3,H=4"}, RC_USAGE, "\"H\" says again"},
        {{.averaging = "easgd:push=4,pull=6"}, RC_USAGE, "must be a multiple"},
        {{.averaging = "easgd:push=4,pull=8", .topology = "ring"}, RC_USAGE, "has none"},
        {{.averaging = "easgd:push=4,pull=8", .rule = "nesterov"}, RC_USAGE, "has none"},
        {{.averaging = "easgd:push=4,pull=8", .pace = "every=2"}, RC_USAGE, "one or the other"},
        {{.averaging = "local-sgd:pull=8"}, RC_PARSE, "unknown setting"},
    };

    are_refused(refusals, ARRAY_COUNT(refusals));
}

static void a_graph_has_no_more_neighbours_than_a_round(void **state)
{
    (void)state;
    /* Real peers know how many they are only when they are there: testnet and simulate refuse. */
    const struct strategy_specs specs = {.averaging = "dpsgd", .topology = "complete"};
    const struct strategy_specs one_group = {.averaging = "sparseloco"};
    struct topology topology;
    struct strategy s;

    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    topology = strategy_topology(&s, 65);
    assert_true(topology.kind == TOPOLOGY_COMPLETE);
    topology = strategy_topology(&s, 66);
    assert_true(topology.kind == TOPOLOGY_RANDOM && topology.degree == 64);
    assert_int_equal(strategy_check_peers(&s, 65, NULL), RC_OK);
    assert_int_equal(strategy_check_peers(&s, 66, NULL), RC_USAGE);

    assert_int_equal(strategy_parse(&one_group, &s, NULL), RC_OK);
    assert_int_equal(strategy_topology(&s, 64).kind, TOPOLOGY_COMPLETE);
    assert_int_equal(strategy_check_peers(&s, 64, NULL), RC_OK);
    assert_int_equal(strategy_check_peers(&s, 65, NULL), RC_USAGE);
}

static void moments_go_where_rounds_replace_the_model(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {{.moments = "rset"}, RC_PARSE, "did you mean reset"},
        {{.averaging = "none", .moments = "reset"}, RC_USAGE, "--moments reset"},
        {{.averaging = "one-shot", .moments = "reset"}, RC_USAGE, "no step follows"},
        {{.averaging = "dpsgd", .moments = "reset"}, RC_USAGE, "none would ever build up"},
        {{.averaging = "gosgd", .moments = "reset"}, RC_USAGE, "none would ever build up"},
        {{.averaging = "noloco", .moments = "average"}, RC_USAGE, "exchange pair"},
        {{.averaging = "easgd", .moments = "average"}, RC_USAGE, "rule elastic"},
        {{.averaging = "diloco", .codec = "f16", .moments = "average"},
         RC_USAGE,
         "use --codec f32"},
        {{.averaging = "des-loc", .moments = "keep"}, RC_USAGE, "leave --moments out"},
        {{.averaging = "des-loc", .exchange = "pair"}, RC_USAGE, "use --exchange group"},
        {{.averaging = "des-loc", .codec = "int8"}, RC_USAGE, "use --codec f32"},
        {{.averaging = "des-loc", .codec = "int8+ef"}, RC_USAGE, "leave --rule out"},
        {{.averaging = "des-loc", .rule = "nesterov"}, RC_USAGE, "leave --rule out"},
        {{.averaging = "des-loc", .topology = "grid:4"}, RC_USAGE, "leave --topology grid out"},
        {{.averaging = "des-loc:first=0"}, RC_PARSE, "rounds from 1 to 1000"},
        {{.averaging = "des-loc:second=1001"}, RC_PARSE, "column 16"},
        {{.averaging = "allreduce", .moments = "mask"}, RC_USAGE, "topk:0.001+ef"},
        {{.averaging = "allreduce", .codec = "int4+ef", .moments = "mask"},
         RC_USAGE,
         "as they are"},
        {{.averaging = "allreduce", .codec = "topk:0.1|int8+ef", .moments = "mask"},
         RC_USAGE,
         "as they are"},
        {{.averaging = "local-sgd", .codec = "topk:0.1+ef", .moments = "mask"},
         RC_USAGE,
         "single steps"},
        {{.averaging = "choco", .codec = "topk:0.1", .moments = "mask"}, RC_USAGE, "single steps"},
    };
    const struct strategy_specs mask = {
        .averaging = "allreduce", .codec = "topk:0.01+ef", .moments = "mask"};
    const struct strategy_specs specs = {.averaging = "slowmo", .moments = "reset"},
                                average = {.averaging = "local-sgd", .moments = "average"},
                                desynced = {.averaging = "des-loc:first=2"};
    struct strategy s;
    char text[192];

    are_refused(refusals, ARRAY_COUNT(refusals));
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_true(s.moments == MOMENTS_RESET && strstr(s.text, ", moments reset") != NULL);
    assert_int_equal(strategy_parse(&average, &s, NULL), RC_OK);
    assert_true(s.moments == MOMENTS_AVERAGE && s.waits && !strategy_has_masks(&s));
    assert_int_equal(strategy_parse(&desynced, &s, NULL), RC_OK);
    assert_true(s.moments == MOMENTS_AVERAGE && s.waits && strategy_has_masks(&s));
    assert_true(s.first_rounds == 2 && s.second_rounds == 6 && strategy_cover(&s) == 1);
    assert_string_equal(s.optimizer, "adam");
    assert_non_null(strstr(s.text, ", moments averaged every 2 rounds, second ones every 6"));
    strategy_method(&s, "adam", text, sizeof text);
    assert_non_null(strstr(text, ", moments of adam every 2 and 6 rounds"));
    assert_int_equal(strategy_parse(&mask, &s, NULL), RC_OK);
    assert_true(s.moments == MOMENTS_MASK && strstr(s.text, ", moments masked") != NULL);
}

static void a_name_without_end_is_refused(void **state)
{
    (void)state;
    /* Longer than any buffer here. */
    char name[400];
    struct strategy_specs specs = {.averaging = name};
    struct strategy s;

    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_PARSE);
    memcpy(name, "local-sgd:", 10);
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_PARSE);
}

/* What a name means, in the words printed at the start. */
struct meaning {
    const char *averaging, *text;
};

static void have_meanings(const struct meaning *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct strategy_specs specs = {.averaging = cases[i].averaging, .robust = "none"};
        struct strategy s;
        struct fault why = {""};

        if (strategy_parse(&specs, &s, &why) != RC_OK) fail_msg("%s", why.text);
        assert_string_equal(s.text, cases[i].text);
    }
}

static void rounds_of_a_part_say_of_which(void **state)
{
    (void)state;
    static const struct meaning cases[] = {
        {"diloco:tau=5",
         "diloco: every 100 steps, at most 5 steps beside a round, exchange group:auto over "
         "complete up to 16 peers, groups:8 beyond, codec f32, rule nesterov lr 0.7 momentum 0.9"},
        {"streaming-diloco",
         "streaming-diloco: every 25 steps of one of 4 fragments, at most 5 steps that count 0.5 "
         "beside a round, exchange group:auto over complete up to 16 peers, groups:8 beyond, codec "
         "f32, rule nesterov lr 0.4 momentum 0.9"},
        {"streaming-diloco:P=1,tau=0,a=0",
         "streaming-diloco: every 100 steps, training waits, exchange group:auto over complete up "
         "to 16 peers, groups:8 beyond, codec f32, rule nesterov lr 0.4 momentum 0.9"},
        {"decoupled-diloco:quorum=3",
         "decoupled-diloco: every 12 steps of whoever is first of one of 4 fragments, at most 6 "
         "steps that count 0 beside a round, exchange group:direct over complete up to 16 peers, "
         "groups:8 beyond, codec f32, rule nesterov lr 0.4 momentum 0.9, radial merge of 3 members "
         "or more"},
        {"sparta",
         "sparta: every step of 1 in 200 values, at most 10 steps beside a round, exchange "
         "group:auto over complete up to 16 peers, groups:8 beyond, codec f32, rule mean"},
        {"loscar:p=0.3,tau=0",
         "loscar: every 16 steps of 1 in 3 values, training waits, exchange group:auto over "
         "complete up to 16 peers, groups:8 beyond, codec f32, rule mean"},
    };

    have_meanings(cases, ARRAY_COUNT(cases));
}

static void methods_have_the_defaults_of_their_papers(void **state)
{
    (void)state;
    static const struct meaning cases[] = {
        {"allreduce",
         "allreduce: every step, training waits, exchange group:auto over complete up to "
         "16 peers, groups:8 beyond, codec f32, rule mean"},
        {"post-local:switch=40,H=8",
         "post-local: every step before step 40, then every 8 steps, training waits, exchange "
         "group:auto over complete up to 16 peers, groups:8 beyond, codec f32, rule mean"},
        {"ad-psgd", "ad-psgd: every step, exchange pair over pairs, codec f32, rule mean"},
        {"moshpit",
         "moshpit: every 16 steps, exchange group:auto over grid:8, codec f32, rule mean"},
        {"bmuf", "bmuf: every 50 steps, training waits, exchange group:auto over complete up to 16 "
                 "peers, groups:8 beyond, codec f32, rule block lr 1 momentum 1 - 1/n"},
        {"bmuf:momentum=0.875",
         "bmuf: every 50 steps, training waits, exchange group:auto over complete "
         "up to 16 peers, groups:8 beyond, codec f32, rule block lr 1 "
         "momentum 0.875"},
        {"slowmo",
         "slowmo: every 12 steps, training waits, exchange group:auto over complete up to 16 "
         "peers, groups:8 beyond, codec f32, rule slow-momentum lr 1 momentum 0.5"},
        {"diloco:H=100,lr=0.7,momentum=0.9",
         "diloco: every 100 steps, training waits, exchange group:auto over complete up to 16 "
         "peers, "
         "groups:8 beyond, codec f32, rule nesterov lr 0.7 momentum 0.9"},
        {"sparseloco",
         "sparseloco: every 30 steps, training waits, exchange group:direct over complete, codec "
         "topk:64/4096|int2+ef:0.95, rule sparse lr 0.7"},
        {"sparseloco:H=15,lr=0.4,beta=1",
         "sparseloco: every 15 steps, training waits, exchange group:direct over complete, codec "
         "topk:64/4096|int2+ef, rule sparse lr 0.4"},
        {"easgd",
         "easgd: every 10 steps, training waits, exchange group:auto over complete up to 16 "
         "peers, groups:8 beyond, codec f32, rule elastic pull 0.9/n"},
        {"easgd:tau=16,rho=0.1",
         "easgd: every 16 steps, training waits, exchange group:auto over complete up to 16 peers, "
         "groups:8 beyond, codec f32, rule elastic pull 0.1"},
        {"easgd:push=4,pull=16",
         "easgd: every 4 steps, training waits, exchange group:auto over complete up to 16 peers, "
         "groups:8 beyond, codec f32, rule elastic pull 0.9/n every 16 steps"},
        {"easgd:push=16,pull=4,rho=0.1",
         "easgd: every 16 steps, training waits, exchange group:auto over complete up to 16 peers, "
         "groups:8 beyond, codec f32, rule elastic pull 0.1 every 4 steps"},
        {"easgd:push=4,pull=4",
         "easgd: every 4 steps, training waits, exchange group:auto over complete up to 16 peers, "
         "groups:8 beyond, codec f32, rule elastic pull 0.9/n"},
        {"choco",
         "choco: every step, and steps go on till the next, exchange mirror over ring, codec "
         "int8, rule mean step 0.8"},
        {"choco:gamma=0.3,order=a,H=4",
         "choco: every 4 steps, training waits, exchange mirror over ring, codec int8, rule mean "
         "step 0.3"},
        {"noloco", "noloco: every 50 steps, training waits, exchange pair over pairs, codec f32, "
                   "rule heavy-ball lr 0.7 momentum 0.5"},
        {"swarmsgd:p=0.25", "swarmsgd: after a step with probability 0.25, exchange pair over "
                            "pairs, codec f32, rule mean"},
        {"muloco", "muloco: every 30 steps, training waits, exchange group:auto over complete up "
                   "to 16 peers, "
                   "groups:8 beyond, codec f32, rule nesterov lr 0.9 momentum 0.8"},
        {"matcha:budget=0.25", "matcha: every step, training waits, exchange edges over ring, 0.25 "
                               "of its matchings, codec f32, rule mean"},
        {"qg-dsgdm:H=2", "qg-dsgdm: every 2 steps, training waits, exchange edges over ring, codec "
                         "f32, rule mean, quasi-global momentum 0.9"},
        {"gasloc", "gasloc: every 50 steps, training waits, exchange pair over pairs, codec f32, "
                   "rule accelerated lr 0.7 momentum 0.3 alpha 1"},
        {"codistill", "codistill: every 100 steps, exchange group:auto over complete up to 16 "
                      "peers, groups:8 beyond, codec f32, rule mean of answers, learned by 1"},
        {"codistill:H=20,samples=2000,lambda=0.5,burn=60",
         "codistill: every 20 steps, exchange group:auto over complete up to 16 peers, groups:8 "
         "beyond, codec f32, rule mean of answers to 2000 samples, learned by 0.5 from step 60"},
        {"ec-dnn", "ec-dnn: every 500 steps, exchange group:auto over complete up to 16 peers, "
                   "groups:8 beyond, codec f32, rule mean of answers to 0.7 of the data, learned "
                   "by 0.5 for 250 steps"},
        {"ec-dnn:H=9,share=0.25,weight=0.4,compress=3",
         "ec-dnn: every 9 steps, exchange group:auto over complete up to 16 peers, groups:8 "
         "beyond, codec f32, rule mean of answers to 0.25 of the data, learned by 0.4 for 3 steps"},
    };

    have_meanings(cases, ARRAY_COUNT(cases));
}

static void periods_and_bounds_say_what_they_are(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {{.averaging = "adacomm", .pace = "time=5s"}, RC_USAGE, "its periods are steps"},
        {{.averaging = "adacomm", .exchange = "pair"}, RC_USAGE, "use --exchange group or edges"},
        {{.averaging = "adacomm", .exchange = "push"}, RC_USAGE, "use --exchange group or edges"},
        {{.averaging = "adacomm:block=0"}, RC_PARSE, "not a count of steps from 1"},
        {{.averaging = "adacomm:s=4"}, RC_PARSE, "unknown setting \"s\""},
        {{.averaging = "ssp:s=-1"}, RC_PARSE, "not a count of steps"},
        {{.averaging = "ssp:s=2,s=3"}, RC_USAGE, "give one of them"},
        {{.averaging = "ssp:block=4"}, RC_PARSE, "unknown setting \"block\""},
    };
    static const struct meaning cases[] = {
        {"adacomm", "adacomm: every 20 steps at first, then by the loss of each 400, training "
                    "waits, exchange group:auto over complete up to 16 peers, groups:8 beyond, "
                    "codec f32, rule mean"},
        {"adacomm:H=8,block=100", "adacomm: every 8 steps at first, then by the loss of each 100, "
                                  "training waits, exchange group:auto over complete up to 16 "
                                  "peers, groups:8 beyond, codec f32, rule mean"},
        {"ssp", "ssp: every step, at most 4 steps ahead of the slowest, exchange pair over pairs, "
                "codec f32, rule mean"},
        {"ssp:s=0,H=2", "ssp: every 2 steps, at most 0 steps ahead of the slowest, exchange pair "
                        "over pairs, codec f32, rule mean"},
    };

    are_refused(refusals, ARRAY_COUNT(refusals));
    have_meanings(cases, ARRAY_COUNT(cases));
}

static void post_local_changes_its_pace(void **state)
{
    (void)state;
    /* A round at every step before the switch, every H steps from there on. */
    struct strategy_specs specs = {.averaging = "post-local:H=8,switch=40"};
    struct strategy s;

    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(strategy_every(&s, 0), 1);
    assert_int_equal(strategy_every(&s, 39), 1);
    assert_int_equal(strategy_every(&s, 40), 8);
    specs.pace = "every=5"; /* replaces H */
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(strategy_every(&s, 40), 5);
}

/* Of models and of answers nothing can be mixed, whatever else is alike. */
static void who_mixes_answers_says_so(void **state)
{
    struct strategy_specs models = {.averaging = "local-sgd"}, answers = {.averaging = "codistill"};
    struct strategy a, b;
    char text[2][128];

    (void)state;
    assert_int_equal(strategy_parse(&models, &a, NULL), RC_OK);
    assert_int_equal(strategy_parse(&answers, &b, NULL), RC_OK);
    assert_true(!a.mixes_answers && b.mixes_answers);
    strategy_method(&a, NULL, text[0], sizeof text[0]);
    strategy_method(&b, NULL, text[1], sizeof text[1]);
    assert_null(strstr(text[0], "answers"));
    assert_non_null(strstr(text[1], ", answers, exchange group"));
    answers.pace = "time=5s"; /* no count of steps to take half of: all of them */
    answers.averaging = "ec-dnn";
    assert_int_equal(strategy_parse(&answers, &b, NULL), RC_OK);
    assert_int_equal(b.answers.compress_steps, 0);
}

static void every_method_that_can_has_a_guard(void **state)
{
    (void)state;
    /* Whatever was not asked for: the start says so where there is none (lacks_guard). */
    static const struct {
        struct strategy_specs specs;
        bool clips, lacks_guard;
    } cases[] = {
        {{.averaging = "allreduce"}, true, false},
        {{.averaging = "diloco"}, true, false},
        {{.averaging = "sparseloco"}, true, false},
        {{.averaging = "moshpit", .robust = "auto"}, true, false},
        {{.averaging = "local-sgd", .codec = "int8"}, true, false},
        {{.averaging = "local-sgd", .exchange = "group:direct"}, true, false},
        {{.averaging = "ad-psgd"}, true, false},
        {{.averaging = "noloco"}, true, false},
        {{.averaging = "gasloc"}, true, false},
        {{.averaging = "local-sgd", .exchange = "pair"}, true, false},
        {{.averaging = "local-sgd", .exchange = "group:tree"}, false, true},
        {{.averaging = "one-shot"}, false, true},
        {{.averaging = "dpsgd"}, true, true}, /* a ring: two neighbours */
        {{.averaging = "dpsgd", .topology = "exponential"}, true, false},
        {{.averaging = "dpsgd", .topology = "random:2"}, true, true},
        {{.averaging = "dpsgd", .topology = "random:3"}, true, false},
        {{.averaging = "choco", .robust = "auto"}, true, true},
        {{.averaging = "push-sum"}, true, false},
        {{.averaging = "osgp"}, true, false},
        {{.averaging = "gosgd"}, true, false},
        {{.averaging = "d2"}, true, true},
        {{.averaging = "d2", .topology = "exponential"}, true, false},
        {{.averaging = "gradient-tracking", .topology = "exponential"}, true, false},
        {{.averaging = "codistill"}, true, false},
        {{.averaging = "ec-dnn", .exchange = "pair"}, true, false},
        {{.averaging = "none"}, false, false},
        {{.averaging = "ad-psgd", .robust = "none"}, false, false},
        {{.averaging = "gosgd", .robust = "none"}, false, false},
    };

    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct strategy s;
        struct fault why = {""};

        if (strategy_parse(&cases[i].specs, &s, &why) != RC_OK) fail_msg("%s", why.text);
        if (s.clips == cases[i].clips && s.lacks_guard == cases[i].lacks_guard) continue;
        fail_msg("case %zu, %s: clips %d, lacks %d", i, s.text, s.clips, s.lacks_guard);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_is_local_sgd_over_a_group),
        cmocka_unit_test(each_coordinate_can_be_replaced),
        cmocka_unit_test(wrong_words_say_what_and_where),
        cmocka_unit_test(words_that_do_not_go_together_say_which),
        cmocka_unit_test(async_diloco_says_what_it_bears),
        cmocka_unit_test(gasloc_says_what_it_bears),
        cmocka_unit_test(aggregates_go_with_groups_and_neighbours),
        cmocka_unit_test(periods_that_cannot_be_are_refused),
        cmocka_unit_test(a_graph_has_no_more_neighbours_than_a_round),
        cmocka_unit_test(moments_go_where_rounds_replace_the_model),
        cmocka_unit_test(a_name_without_end_is_refused),
        cmocka_unit_test(methods_have_the_defaults_of_their_papers),
        cmocka_unit_test(rounds_of_a_part_say_of_which),
        cmocka_unit_test(periods_and_bounds_say_what_they_are),
        cmocka_unit_test(post_local_changes_its_pace),
        cmocka_unit_test(who_mixes_answers_says_so),
        cmocka_unit_test(every_method_that_can_has_a_guard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

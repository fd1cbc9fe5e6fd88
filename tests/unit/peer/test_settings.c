/* What a peer tells of the swarm's settings sets the flags of who joins, and nothing else does. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/session/settings.h"

#include <stdlib.h>
#include <string.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *const no_environment[] = {NULL};

static struct options *parsed(const char *const *words)
{
    struct options *options = NULL;
    struct fault why = {""};
    int count = 0;

    while (words[count] != NULL)
        count++;
    if (options_parse(count, words, no_environment, &options, &why) != RC_OK)
        fail_msg("%s", why.text);
    return options;
}

static enum rc take(struct options *options, const char *text, struct fault *why)
{
    struct json *settings = NULL, *json = json_object_create();
    char taken[200];
    enum rc rc;

    assert_int_equal(json_parse(text, strlen(text), &settings, why), RC_OK);
    json_set(json, "settings", settings);
    rc = settings_take(options, "192.0.2.7:7077", json, taken, sizeof taken, why);
    json_destroy(json);
    return rc;
}

static struct options *joiner(void)
{
    return parsed(WORDS("join", "192.0.2.7:7077"));
}

/* What one peer tells, another one takes: the two then tell the same. */
static void what_is_told_is_taken(void **state)
{
    struct options *founder = parsed(WORDS(
        "peer", "--model", "cnn", "--averaging", "choco:H=2", "--codec", "int8", "--lr", "0.1",
        "--schedule", "step:every=30%,gamma=0.1", "--epochs", "7", "--topology", "exponential",
        "--moments", "reset", "--clip", "3", "--shard", "all", "--seed", "8", "--data",
        "fashion-mnist", "--out", "o", "--threads", "3", "--listen", "127.0.0.1:3"));
    struct options *other = joiner();
    struct strategy strategy;
    struct strategy_specs specs = {
        .averaging = "choco:H=2", .codec = "int8", .topology = "exponential"};
    struct settings_chosen chosen = {.strategy = &strategy, .optimizer = "adam", .batch = 32};
    struct fault why = {""};
    struct json *told, *again, *status = json_object_create();
    char *one, *two, taken[64];

    (void)state;
    assert_int_equal(strategy_parse(&specs, &strategy, &why), RC_OK);
    told = settings_tell(founder, &chosen);
    json_set(status, "settings", json_duplicate(told));
    one = json_format(told);
    assert_null(strstr(one, "listen"));
    assert_null(strstr(one, "threads"));
    assert_null(strstr(one, "out"));
    assert_int_equal(settings_take(other, "x:1", status, taken, sizeof taken, &why), RC_OK);
    assert_int_equal(strlen(taken), sizeof taken - 1); /* cut, not more */
    options_become_peer(other);
    assert_string_equal(options_text(other, "optimizer"), "adam");
    assert_int_equal(options_count(other, "batch"), 32);
    again = settings_tell(other, &chosen);
    two = json_format(again);
    assert_string_equal(one, two);
    mem_free(one);
    mem_free(two);
    json_destroy(told);
    json_destroy(status);
    json_destroy(again);
    options_destroy(founder);
    options_destroy(other);
}

/* A file of this machine is nobody else's business. */
static void paths_are_not_told(void **state)
{
    struct options *options = parsed(
        WORDS("peer", "--data", "text:diary.txt", "--init", "x", "--probe", "text:letters.txt"));
    struct strategy strategy = {.is_averaging = false};
    struct settings_chosen chosen = {.strategy = &strategy, .optimizer = "sgd", .batch = 1};
    struct json *told = settings_tell(options, &chosen);

    (void)state;
    assert_null(json_get(told, "data"));
    assert_null(json_get(told, "probe"));
    assert_null(json_get(told, "init"));
    assert_null(json_get(told, "codec"));
    assert_string_equal(json_get_text(told, "model"), "mlp");
    json_destroy(told);
    options_destroy(options);
}

/* Flags given here stay, one goal for all, and a rate is not taken for another optimizer. */
static void own_flags_are_stronger(void **state)
{
    struct options *options =
        parsed(WORDS("join", "x:1", "--epochs", "2", "--optimizer", "adam", "--model", "cnn"));
    struct fault why = {""};

    (void)state;
    assert_int_equal(take(options,
                          "{\"model\":\"mlp\",\"optimizer\":\"sgd\",\"lr\":\"0.5\",\"steps\":\"9\","
                          "\"seed\":\"4\",\"data\":\"digits\",\"probe\":\"digits\"}",
                          &why),
                     RC_OK);
    assert_string_equal(options_text(options, "model"), "cnn");
    assert_string_equal(options_text(options, "optimizer"), "adam");
    assert_false(options_is_set(options, "lr"));
    assert_false(options_is_set(options, "steps"));
    assert_int_equal(options_count(options, "seed"), 4);
    assert_true(options_is_set(options, "data"));
    assert_string_equal(options_text(options, "probe"), "digits");
    options_destroy(options);
}

/* Of two rates the one in force is told: --lr, whoever gave it, stands in for the optimizer's. */
static void one_rate_is_told(void **state)
{
    static const struct {
        const char *lr, *optimizer, *told;
    } cases[] = {
        {"", "momentum:lr=0.05,beta=0.9", "model mlp, optimizer momentum:lr=0.05,beta=0.9"},
        {",\"lr\":\"0.02\"", "momentum:lr=0.05,beta=0.9",
         "model mlp, optimizer momentum:beta=0.9, lr 0.02"},
        {",\"lr\":\"0.02\"", "adam:beta1=0.8,lr=0.05,beta2=0.9",
         "model mlp, optimizer adam:beta1=0.8,beta2=0.9, lr 0.02"},
        {",\"lr\":\"0.02\"", "sgd:lr=0.05", "model mlp, optimizer sgd, lr 0.02"},
        {",\"lr\":\"0.02\"", "sgd", "model mlp, optimizer sgd, lr 0.02"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct options *options = joiner();
        struct json *status = NULL;
        struct fault why = {""};
        char text[200], taken[200];

        snprintf(text, sizeof text, "{\"settings\":{\"model\":\"mlp\",\"optimizer\":\"%s\"%s}}",
                 cases[i].optimizer, cases[i].lr);
        assert_int_equal(json_parse(text, strlen(text), &status, &why), RC_OK);
        assert_int_equal(settings_take(options, "x:1", status, taken, sizeof taken, &why), RC_OK);
        assert_string_equal(taken, cases[i].told);
        assert_string_equal(options_text(options, "optimizer"), cases[i].optimizer);
        json_destroy(status);
        options_destroy(options);
    }
}

/* A rate that nobody gave is told, and not taken by who has a batch of its own: what is usual there
 * is another. A rate that somebody gave is taken whatever the batch. */
static void an_own_batch_has_its_own_usual_rate(void **state)
{
    static const char optimizer[] = "momentum:lr=0.05,beta=0.9";
    static const struct {
        const char *own, *text;
        const char *optimizer, *lr; /* as taken; NULL: not */
    } cases[] = {
        {NULL, "\"batch\":\"8\",\"lr\":\"0.00625\"", optimizer, "0.00625"},
        {"--batch", "\"batch\":\"8\",\"lr\":\"0.00625\"", NULL, NULL},
        {"--accumulate", "\"batch\":\"8\",\"lr\":\"0.00625\"", NULL, NULL},
        {"--batch", "\"batch\":\"64\"", NULL, NULL},
        {"--batch", "\"batch\":\"16\",\"accumulate\":\"16\",\"lr\":\"0.1\"", NULL, NULL},
        {"--batch", "\"batch\":\"64\",\"lr\":\"0.02\"", optimizer, "0.02"},
        {"--batch", "\"batch\":\"8\"", optimizer, NULL},
        {"--batch", "\"batch\":\"8\",\"lr\":\"much\"", optimizer, NULL},
        {"--batch", "\"lr\":\"0.00625\"", optimizer, "0.00625"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct options *options =
            parsed(WORDS("join", "x:1", cases[i].own != NULL ? cases[i].own : "--threads", "16"));
        struct fault why = {""};
        char text[200];
        enum rc rc;

        snprintf(text, sizeof text, "{\"model\":\"mlp\",\"optimizer\":\"%s\",%s}", optimizer,
                 cases[i].text);
        rc = take(options, text, &why);
        if (strstr(text, "much") != NULL) {
            assert_int_equal(rc, RC_FORMAT);
        } else {
            assert_int_equal(rc, RC_OK);
            assert_int_equal(options_is_set(options, "lr"), cases[i].lr != NULL);
            if (cases[i].lr != NULL) {
                assert_float_equal(options_real(options, "lr"), atof(cases[i].lr), 1e-7);
            }
            if (cases[i].optimizer == NULL) assert_null(options_text(options, "optimizer"));
            if (cases[i].optimizer != NULL)
                assert_string_equal(options_text(options, "optimizer"), cases[i].optimizer);
        }
        options_destroy(options);
    }
}

/* While the swarm waits for enough peers to begin, who joins waits with it; later it does not. */
static void waiting_is_taken_while_it_lasts(void **state)
{
    static const char *const texts[] = {
        "{\"waits_for\":0,\"settings\":{\"model\":\"mlp\",\"start-with\":\"3\"}}",
        "{\"waits_for\":2,\"settings\":{\"model\":\"mlp\",\"start-with\":\"3\"}}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct options *options = joiner();
        struct json *status = NULL;
        struct fault why = {""};
        char taken[200];

        assert_int_equal(json_parse(texts[i], strlen(texts[i]), &status, &why), RC_OK);
        assert_int_equal(settings_take(options, "x:1", status, taken, sizeof taken, &why), RC_OK);
        assert_int_equal(options_count(options, "start-with"), i == 0 ? 1 : 3);
        json_destroy(status);
        options_destroy(options);
    }
}

/* Whoever answers may say what it likes: no file, no address, no flag of this machine is set by it,
 * and what is no value of a flag is refused, whose fault it is being said. */
static void strangers_words_are_checked(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{}", "does not tell what it trains"},
        {"{\"model\":3}", "does not tell what it trains"},
        {"{\"model\":\"\"}", "--model: the value is empty"},
        {"{\"model\":\"a\\nb\"}", "--model: control character"},
        {"{\"model\":\"mlp\",\"batch\":\"0\"}", "--batch 0: out of range"},
        {"{\"model\":\"mlp\",\"batch\":\"1e9\"}", "--batch 1e9: not a count"},
        {"{\"model\":\"mlp\",\"moments\":\"all\"}", "--moments all: not known"},
        {"{\"model\":\"mlp\",\"time\":\"soon\"}", "--time soon: not a duration"},
    };
    struct fault why;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct options *options = joiner();

        assert_int_equal(take(options, cases[i].text, &why), RC_FORMAT);
        assert_non_null(strstr(why.text, cases[i].words));
        assert_non_null(strstr(why.text, "192.0.2.7:7077"));
        options_destroy(options);
    }
    struct options *options = joiner();

    assert_int_equal(
        take(options,
             "{\"model\":\"mlp\",\"data\":\"csv:/etc/passwd,label=0\",\"out\":\"o\","
             "\"probe\":\"csv:/etc/passwd,label=0\","
             "\"init\":\"f\",\"listen\":\"0.0.0.0:1\",\"public\":\"yes\",\"identity\":"
             "\"k\",\"swarm-key\":\"k\",\"batch\":64,\"robust\":\"none\",\"no-flag\":\"x\"}",
             &why),
        RC_OK);
    static const char *const own[] = {"data",   "probe",  "out",      "init",      "listen",
                                      "robust", "public", "identity", "swarm-key", "batch"};
    for (size_t i = 0; i < ARRAY_COUNT(own); i++)
        assert_false(options_is_set(options, own[i]));
    options_destroy(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_is_taken),
        cmocka_unit_test(paths_are_not_told),
        cmocka_unit_test(own_flags_are_stronger),
        cmocka_unit_test(one_rate_is_told),
        cmocka_unit_test(an_own_batch_has_its_own_usual_rate),
        cmocka_unit_test(waiting_is_taken_while_it_lasts),
        cmocka_unit_test(strangers_words_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

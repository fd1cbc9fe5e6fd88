/*
 * Methods are points in a product: --pace, --topology, --exchange and --rule each replace one
 * coordinate of any of them. Every combination is either refused with a line that says what to do,
 * or brings simulated peers together.
 */
#include "tests/check.h"

#include "averaging/strategy/methods.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "testnet/cluster.h"

enum { VALUES = 200, PEERS = 5, POINTS_MAX = 4096 };

static const char *const exchanges[] = {NULL, "pair", "group", "edges", "mirror", "push"};
static const char *const rules[] = {
    NULL,         "mean",     "nesterov",        "slow-momentum", "block",           "elastic",
    "heavy-ball", "push-sum", "exact-diffusion", "accelerated",   "delayed-nesterov"};
static const char *const topologies[] = {NULL,
                                         "complete",
                                         "groups:3",
                                         "grid:3",
                                         "pairs",
                                         "ring",
                                         "torus",
                                         "hypercube",
                                         "exponential",
                                         "one-peer-exponential",
                                         "dissemination",
                                         "random:2"};
static const char *const paces[] = {NULL, "every=2", "time=20ms"};

struct point {
    char method[32];
    struct strategy_specs specs; /* its averaging is `method` */
    struct strategy strategy;
};

static struct point points[POINTS_MAX];
static size_t points_count, refused_count;

static bool method_name(size_t index, char name[32])
{
    const struct method *method = method_at(index);

    if (method == NULL) return false;
    snprintf(name, 32, "%s", method->name);
    return true;
}

static bool is_same(const struct strategy *a, const struct strategy *b, bool in_all)
{
    if (a->exchange != b->exchange || a->rule != b->rule) return false;
    if (a->topology.kind != b->topology.kind) return false;
    if (!in_all) return true;
    return a->waits == b->waits && a->overlaps == b->overlaps && a->tracks == b->tracks &&
           (a->every_ns > 0) == (b->every_ns > 0) && (a->chance > 0) == (b->chance > 0) &&
           (a->alpha > 0) == (b->alpha > 0) && a->stale_steps == b->stale_steps;
}

/* A line, with something to do in it. */
static void check_refusal(const struct strategy_specs *specs, enum rc rc, const struct fault *why)
{
    static const char *const ways[] = {"use ",           "leave it out", "give ",
                                       "leave them out", "choose ",      "take ",
                                       "or rule",        "leave --",     "leave +ef out"};
    bool says = false;

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        says |= strstr(why->text, ways[i]) != NULL;
    }
    if (rc == RC_USAGE && says && strchr(why->text, '\n') == NULL) return;
    fail_msg("--averaging %s --exchange %s --rule %s --topology %s --pace %s: %d, %s",
             specs->averaging, specs->exchange, specs->rule, specs->topology, specs->pace, (int)rc,
             why->text);
}

static void look_at(const struct strategy_specs *specs, const char *method, bool in_all)
{
    struct point *point = &points[points_count];
    struct fault why = {""};
    enum rc rc;

    *point = (struct point){.specs = *specs};
    point->specs.robust = "none"; /* planes are put apart */
    snprintf(point->method, sizeof point->method, "%s", method);
    rc = strategy_parse(&point->specs, &point->strategy, &why);
    if (rc != RC_OK) {
        check_refusal(specs, rc, &why);
        refused_count++;
        return;
    }
    if (!point->strategy.is_averaging || point->strategy.at_end) return;
    for (size_t i = 0; i < points_count; i++) {
        if (is_same(&points[i].strategy, &point->strategy, in_all)) return;
    }
    assert_true(++points_count < POINTS_MAX);
}

#define EACH(i, list) (size_t i = 0; i < sizeof(list) / sizeof((list)[0]); i++)

/* Looks at every combination, for both tests. */
static int find_points(void **state)
{
    (void)state;
    const bool in_all = getenv("LONG") != NULL;
    char method[32];

    for (size_t m = 0; method_name(m, method); m++) {
        for
            EACH(e, exchanges)
            {
            for
                EACH(r, rules)
                {
                for
                    EACH(t, topologies)
                    {
                    for
                        EACH(p, paces)
                        {
                            struct strategy_specs specs = {.averaging = method,
                                                           .exchange = exchanges[e],
                                                           .rule = rules[r],
                                                           .topology = topologies[t],
                                                           .pace = paces[p]};

                            look_at(&specs, method, in_all);
                        }
                    }
                }
            }
    }
    return 0;
}

static void what_does_not_go_together_says_what_to_do(void **state)
{
    (void)state;
    printf("%zu points, %zu combinations refused\n", points_count, refused_count);
    assert_true(refused_count > 1000);
}

/* Every peer somewhere else. */
static void scatter(struct cluster *cluster)
{
    float plane[VALUES];
    struct rng rng;

    rng_init(&rng, 1, 77);
    for (uint32_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            plane[k] = (float)rng_normal(&rng);
        }
        cluster_assign(cluster, i, plane);
    }
}

/* As they are typed, to try the same with real peers. */
static void print_flags(const struct point *point)
{
    const struct strategy_specs *specs = &point->specs;
    const char *const flags[][2] = {{"exchange", specs->exchange},
                                    {"rule", specs->rule},
                                    {"topology", specs->topology},
                                    {"pace", specs->pace}};

    printf("--averaging %s", point->method);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (flags[i][1] != NULL) printf(" --%s %s", flags[i][0], flags[i][1]);
    }
    printf("\n");
}

static void what_goes_together_brings_peers_together(void **state)
{
    (void)state;
    const size_t stride = sanitized_share(2) == 2 ? 1 : 3; /* of code, others look at all of it */

    assert_true(points_count > 40);
    for (size_t i = 0; i < points_count; i += stride) {
        const struct point *point = &points[i];
        const bool has_pace = point->specs.pace != NULL || point->strategy.chance > 0;
        struct cluster_options options = {.peers = PEERS,
                                          .seed = i + 1,
                                          .averaging = point->method,
                                          .exchange = point->specs.exchange,
                                          .rule = point->specs.rule,
                                          .topology = point->specs.topology,
                                          .pace = has_pace ? point->specs.pace : "every=2",
                                          .latency_ns = NS_PER_MS,
                                          .values = VALUES,
                                          .is_quiet = true};
        struct cluster *cluster = cluster_create(&options);
        const uint32_t first = 0;
        double before, after;

        for (uint32_t k = 0; k < PEERS; k++) {
            cluster_start(cluster, k, &first, k == 0 ? 0 : 1);
        }
        if (getenv("VERBOSE") != NULL) print_flags(point);
        assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
        scatter(cluster);
        before = cluster_distance(cluster);
        assert_true(before > 10);
        for (int seconds = 0; (after = cluster_distance(cluster)) > 0.1 * before; seconds++) {
            if (seconds < 60) {
                cluster_run(cluster, NS_PER_S);
                continue;
            }
            fail_msg("%s: %g apart, then %g", point->strategy.text, before, after);
        }
        cluster_destroy(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_go_together_says_what_to_do),
        cmocka_unit_test(what_goes_together_brings_peers_together),
    };

    return cmocka_run_group_tests(tests, find_points, NULL);
}

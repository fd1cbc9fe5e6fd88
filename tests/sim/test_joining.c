/* Joining a swarm that goes on meanwhile: busy donors, donors that die, many joiners, slow links.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/wire/limits.h"
#include "peer/node/models/internal.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

enum { CHUNKS = 18, VALUES = CHUNKS * CHUNK_VALUES };
#define MODEL_BYTES ((uint64_t)VALUES * sizeof(float))
#define LINE        UINT64_C(12500000) /* bytes a second: 100 Mbit/s */

/* `donors` peers that train and average, each on a line of its own; the rest are not started. */
static struct cluster *swarm(struct cluster_options *options, uint32_t donors)
{
    struct cluster *cluster;

    options->latency_ns = NS_PER_MS;
    options->values = VALUES;
    options->centre_spread = 1.0;
    cluster = cluster_create(options);
    for (uint32_t i = 0; i < options->peers; i++) {
        sim_host_rate(cluster_world(cluster), i + 1, LINE, LINE);
    }
    swarm_start(cluster, donors);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
    cluster_run(cluster, 2 * NS_PER_S);
    return cluster;
}

static bool is_training(struct cluster *cluster, void *peer)
{
    return node_state(cluster_node(cluster, *(uint32_t *)peer)) == NODE_TRAINING;
}

/* Two donors whose rounds run back to back serve a third peer during them, and it is in within
 * seconds, with about one model's bytes. */
static void busy_donors_serve_during_their_rounds(void **state)
{
    struct cluster_options options = {
        .peers = 3, .seed = 1, .step_cost_ns = 60 * NS_PER_MS, .averaging = "local-sgd:H=1"};
    struct cluster *cluster = swarm(&options, 2);
    uint32_t first = 0, joiner = 2;
    uint64_t rounds = swarm_report(cluster, 0).rounds_ok;

    (void)state;
    cluster_start(cluster, joiner, &first, 1);
    assert_true(cluster_run_until(cluster, is_training, &joiner, 15 * NS_PER_S));
    assert_true(swarm_report(cluster, 0).rounds_ok >= rounds + 2); /* they did not wait for it */
    assert_true(swarm_report(cluster, joiner).bytes_received < MODEL_BYTES + MODEL_BYTES / 10);
    cluster_destroy(cluster);
}

static bool is_loading(struct cluster *cluster, void *peer)
{
    return node_state(cluster_node(cluster, *(uint32_t *)peer)) == NODE_LOADING;
}

/* After a group round all members hold the same: who joins loads from several, and one that dies
 * half-way costs less than a tenth of the bytes, whichever of them it is (LONG=1: each in turn). */
static void a_donor_that_dies_costs_a_tenth(void **state)
{
    const double most = 1.1;
    double worst = 0;

    (void)state;
    for (uint32_t dying = 0; dying < (getenv("LONG") == NULL ? 2 : 4); dying++) {
        struct cluster_options options = {
            .peers = 5, .seed = 2, .step_cost_ns = 100 * NS_PER_MS, .averaging = "local-sgd:H=4"};
        struct cluster *cluster = swarm(&options, 4);
        uint32_t through = (dying + 1) % 4, joiner = 4;
        double bytes;

        cluster_start(cluster, joiner, &through, 1);
        assert_true(cluster_run_until(cluster, is_loading, &joiner, 5 * NS_PER_S));
        while (swarm_report(cluster, joiner).bytes_received < MODEL_BYTES / 2) {
            cluster_run(cluster, 5 * NS_PER_MS);
        }
        assert_true(is_loading(cluster, &joiner));
        cluster_crash(cluster, dying);
        assert_true(cluster_run_until(cluster, is_training, &joiner, 60 * NS_PER_S));
        bytes = (double)swarm_report(cluster, joiner).bytes_received / (double)MODEL_BYTES;
        if (bytes > worst) worst = bytes;
        if (getenv("VERBOSE") != NULL) fprintf(stderr, "peer %u dies: %.3f\n", dying, bytes);
        cluster_destroy(cluster);
    }
    print_message("a donor dies half-way: at most %.3f times the model's bytes\n", worst);
    assert_true(worst <= most);
}

static struct backend *backend;

static struct learner *replica_of(void *context, uint32_t peer)
{
    const struct replica_options options = {.model =
                                                "linear:1024 relu linear:512 relu linear:classes",
                                            .data = "digits",
                                            .seed = 1,
                                            .stream_seed = peer,
                                            .threads = 1};

    (void)context;
    return make(backend, &options);
}

/* Bytes received, in models, by who joins `members` that average in pairs when its donor dies
 * half-way. */
static double models_received(uint32_t members)
{
    const struct cluster_options options = {.peers = members + 1,
                                            .seed = 2,
                                            .latency_ns = NS_PER_MS,
                                            .step_cost_ns = 200 * NS_PER_MS,
                                            .learner = replica_of,
                                            .averaging = "local-sgd:H=4",
                                            .exchange = "pair"};
    struct cluster *cluster = cluster_create(&options);
    uint32_t dying = 1, joiner = members;
    struct joiner_stats stats;
    double received;

    sim_host_rate(cluster_world(cluster), joiner + 1, LINE / 10, LINE / 10);
    swarm_start(cluster, members);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
    cluster_run(cluster, 5 * NS_PER_S);
    cluster_start(cluster, joiner, &dying, 1);
    do {
        cluster_run(cluster, 5 * NS_PER_MS);
        stats = joiner_stats(cluster_node(cluster, joiner)->models->joiner);
    } while (stats.total_bytes == 0 || stats.held_bytes < stats.total_bytes / 2);
    assert_true(is_loading(cluster, &joiner));
    assert_true(stats.has_donor);
    while (!peer_id_is_equal(cluster_node(cluster, dying)->self, stats.donor)) {
        dying = (dying + 1) % members;
    }
    cluster_crash(cluster, dying);
    assert_true(cluster_run_until(cluster, is_training, &joiner, 60 * NS_PER_S));
    received = (double)swarm_report(cluster, joiner).bytes_received / (double)stats.total_bytes;
    print_message("in pairs a donor of %u dies half-way: %.3f times the model's bytes\n", members,
                  received);
    cluster_destroy(cluster);
    return received;
}

/* Where pairs average no two members hold the same; a donor that dies half-way costs less than a
 * tenth all the same: another one gives the rest, and two others confirm what comes of it. Where
 * there are not two, what the first one gave is fetched anew. */
static void where_pairs_average_another_donor_goes_on(void **state)
{
    const struct cpu_backend_options on = {.threads = 1};

    (void)state;
    backend = cpu_backend_create(&on);
    assert_true(models_received(4) < 1.1);
    assert_true(models_received(3) > 1.4);
    backend_destroy(backend);
}

/* Virtual seconds that `rounds` more rounds of peer 0 take. */
static double seconds_of(struct cluster *cluster, uint64_t rounds)
{
    uint64_t until = swarm_report(cluster, 0).rounds_ok + 1, begun_ns;

    while (swarm_report(cluster, 0).rounds_ok < until) { /* to the end of one */
        cluster_run(cluster, NS_PER_MS);
    }
    begun_ns = sim_now_ns(cluster_world(cluster));
    while (swarm_report(cluster, 0).rounds_ok < until + rounds) {
        cluster_run(cluster, NS_PER_MS);
    }
    return (double)(sim_now_ns(cluster_world(cluster)) - begun_ns) / 1e9;
}

/* Eight joiners at once, all loading all the time, make the donors' rounds less than 15 %
 * longer: where rounds run back to back, and (LONG=1) where training goes on between them. */
static void eight_joiners_slow_the_rounds_little(void **state)
{
    enum { JOINERS = 8, ROUNDS = 3 };
    static const struct {
        const char *averaging;
        uint64_t line; /* of a joiner, whom a model takes longer than the scene lasts; all of them
                          together have more than the donors can give beside their rounds */
    } cases[] = {{"local-sgd:H=1", LINE / 28}, {"local-sgd:H=80", LINE / 80}};

    (void)state;
    for (size_t m = 0; m < (getenv("LONG") == NULL ? 1 : sizeof cases / sizeof cases[0]); m++) {
        struct cluster_options options = {.peers = 2 + JOINERS,
                                          .seed = 3,
                                          .step_cost_ns = 30 * NS_PER_MS,
                                          .averaging = cases[m].averaging};
        struct cluster *cluster = swarm(&options, 2);
        uint32_t first = 0;
        double alone = seconds_of(cluster, ROUNDS), beside;
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < JOINERS; i++) {
            sim_host_rate(cluster_world(cluster), 3 + i, cases[m].line, cases[m].line);
            cluster_start(cluster, 2 + i, &first, 1);
        }
        cluster_run(cluster, 3 * NS_PER_S); /* links, snapshots, and the first megabyte at once */
        for (uint32_t i = 0; i < JOINERS; i++) {
            bytes -= swarm_report(cluster, 2 + i).bytes_received;
        }
        beside = seconds_of(cluster, ROUNDS);
        for (uint32_t i = 0; i < JOINERS; i++) { /* all were there all the time */
            assert_int_equal(node_state(cluster_node(cluster, 2 + i)), NODE_LOADING);
            bytes += swarm_report(cluster, 2 + i).bytes_received;
        }
        print_message("%s, %u rounds: %.3f s alone, %.3f s while 8 join at %.2f MB/s: %+.1f %%\n",
                      cases[m].averaging, ROUNDS, alone, beside, (double)bytes / 1e6 / beside,
                      100 * (beside / alone - 1));
        assert_true(beside <= alone * 1.15);
        cluster_destroy(cluster);
    }
}

/* What the rule of a live peer keeps between rounds. */
static size_t rule_planes(struct cluster *cluster, uint32_t peer, const float **planes)
{
    return round_rule_state(cluster_node(cluster, peer)->round, planes);
}

static bool has_mixed(struct cluster *cluster, void *peer)
{
    return swarm_report(cluster, *(uint32_t *)peer).rounds_ok > 0 &&
           !round_is_active(cluster_node(cluster, 0)->round) &&
           !round_is_settling(cluster_node(cluster, 0)->round) &&
           !round_is_settling(cluster_node(cluster, *(uint32_t *)peer)->round);
}

/* Who joins an outer method takes anchor and momentum with the model: after its first round both
 * are, bit for bit, those of the others. (Where a round ends between the download and that first
 * round, they come together over the next ones, see averaging/rule/outer.c.) */
static void anchors_and_momentum_are_given_too(void **state)
{
    static const struct {
        const char *averaging;
        size_t planes;
    } methods[] = {{"diloco:H=40", 2},
                   {"slowmo:H=40", 2},
                   {"bmuf:H=40", 2},
                   {"easgd:H=40", 1},
                   {"streaming-diloco:H=80,P=2,tau=4", 2},
                   {"decoupled-diloco:H=80,P=2,tau=4", 2},
                   {"sparseloco:H=40", 1}};

    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        struct cluster_options options = {.peers = 4,
                                          .seed = 7,
                                          .values = 1000,
                                          .centre_spread = 1.0,
                                          .latency_ns = NS_PER_MS,
                                          .step_cost_ns = 50 * NS_PER_MS,
                                          .averaging = methods[m].averaging};
        struct cluster *cluster = cluster_create(&options);
        const float *ours[RULE_STATE_MAX], *theirs[RULE_STATE_MAX];
        uint32_t first = 0, joiner = 3;

        swarm_start(cluster, 3);
        cluster_run(cluster, 5 * NS_PER_S);
        cluster_start(cluster, joiner, &first, 1);
        assert_true(cluster_run_until(cluster, has_mixed, &joiner, 20 * NS_PER_S));
        assert_int_equal(rule_planes(cluster, 0, theirs), methods[m].planes);
        assert_int_equal(rule_planes(cluster, joiner, ours), methods[m].planes);
        for (size_t i = 0; i < methods[m].planes; i++) {
            assert_memory_equal(ours[i], theirs[i], options.values * sizeof(float));
        }
        cluster_destroy(cluster);
    }
}

static bool has_taken_model(struct cluster *cluster, void *peer)
{
    return node_state(cluster_node(cluster, *(uint32_t *)peer)) == NODE_TRAINING;
}

/* A model comes with what its rule keeps, but not where that holds a momentum out of all proportion
 * to what rounds move. */
static void a_wild_momentum_is_not_adopted(void **state)
{
    (void)state;
    for (int is_wild = 0; is_wild <= 1; is_wild++) {
        struct cluster_options options = {.peers = 4,
                                          .seed = 7,
                                          .values = 1000,
                                          .centre_spread = 1.0,
                                          .latency_ns = NS_PER_MS,
                                          .step_cost_ns = 50 * NS_PER_MS,
                                          .averaging = "diloco:H=200"};
        struct cluster *cluster = cluster_create(&options);
        const float *planes[RULE_STATE_MAX];
        uint32_t first = 0, joiner = 3;

        swarm_start(cluster, 3);
        assert_true(cluster_run_until(cluster, has_mixed, &first, 60 * NS_PER_S));
        cluster_run(cluster, NS_PER_S);
        for (uint32_t i = 0; i < 3 && is_wild; i++) {
            assert_int_equal(rule_planes(cluster, i, planes), 2);
            for (size_t k = 0; k < options.values; k++) {
                ((float *)(uintptr_t)planes[1])[k] = 1e6f;
            }
        }
        cluster_start(cluster, joiner, &first, 1);
        assert_int_equal(cluster_run_until(cluster, has_taken_model, &joiner, 4 * NS_PER_S),
                         !is_wild);
        if (is_wild) assert_true(node_step(cluster_node(cluster, joiner)) == 0);
        cluster_destroy(cluster);
    }
}

static bool has_one_round(struct cluster *cluster, void *peer)
{
    return swarm_report(cluster, *(uint32_t *)peer).rounds_ok > 0;
}

static bool are_one(struct cluster *cluster, void *unused)
{
    (void)unused;
    return cluster_distance(cluster) < 1e-4;
}

/* Nothing moves but by averaging, and who has just joined is far away: its first pair round takes
 * the other an eighth of the way, not half of it, and some rounds later they are one. */
static void a_joiner_weighs_little_at_first(void **state)
{
    struct cluster_options options = {.peers = 2,
                                      .seed = 8,
                                      .values = 100,
                                      .is_quiet = true,
                                      .latency_ns = NS_PER_MS,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .averaging = "local-sgd:H=8",
                                      .exchange = "pair"};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0, joiner = 1;
    float plane[100], before[100];

    (void)state;
    cluster_start(cluster, 0, &first, 0);
    cluster_run(cluster, 5 * NS_PER_S);
    cluster_start(cluster, joiner, &first, 1);
    assert_true(cluster_run_until(cluster, is_training, &joiner, 5 * NS_PER_S));
    assert_int_equal(swarm_report(cluster, joiner).rounds_ok, 0);
    cluster_plane(cluster, 0, before);
    for (size_t i = 0; i < 100; i++) {
        plane[i] = before[i] + 1.0f;
    }
    cluster_assign(cluster, joiner, plane);
    assert_true(cluster_run_until(cluster, has_one_round, &joiner, 10 * NS_PER_S));
    cluster_run(cluster, 150 * NS_PER_MS); /* applied */
    cluster_plane(cluster, 0, plane);
    assert_float_equal(plane[7] - before[7], 0.125, 1e-3);
    assert_true(cluster_run_until(cluster, are_one, NULL, 10 * NS_PER_S));
    cluster_destroy(cluster);
}

/* On a slow line the model is old when it is there: then only what changed is fetched, and once
 * more, until the joiner is near the others. LONG=1. */
static void a_slow_line_catches_up_by_difference(void **state)
{
    struct cluster_options options = {
        .peers = 4, .seed = 4, .step_cost_ns = 200 * NS_PER_MS, .averaging = "local-sgd:H=8"};
    struct cluster *cluster;
    uint32_t first = 0, joiner = 3;
    double took_s, behind_s, bytes;
    uint64_t begun_ns;

    (void)state;
    if (getenv("LONG") == NULL) skip();
    cluster = swarm(&options, 3);
    sim_host_rate(cluster_world(cluster), joiner + 1, LINE / 125, LINE / 125);
    begun_ns = sim_now_ns(cluster_world(cluster));
    cluster_start(cluster, joiner, &first, 1);
    assert_true(cluster_run_until(cluster, is_training, &joiner, 100 * NS_PER_S));
    took_s = (double)(sim_now_ns(cluster_world(cluster)) - begun_ns) / 1e9;
    behind_s = 0.2 * ((double)node_step(cluster_node(cluster, 0)) -
                      (double)node_step(cluster_node(cluster, joiner)));
    bytes = (double)swarm_report(cluster, joiner).bytes_received / (double)MODEL_BYTES;
    print_message("100 kB/s: in after %.0f s, %.1f s behind, %.2f times the model's bytes\n",
                  took_s, behind_s, bytes);
    assert_true(took_s >= 0.8 * (double)MODEL_BYTES / 100000);
    assert_true(behind_s < took_s / 3);
    assert_true(bytes < 1.7);
    cluster_destroy(cluster);
}

/* Where rounds fill the lines all the time, who joins has a fair part of them: the model is there
 * in a few times what it takes on an idle line, the changes since included. */
static void a_join_on_a_busy_line_has_its_part(void **state)
{
    enum { FEW_CHUNKS = 12 };
    struct cluster_options options = {.peers = 3,
                                      .seed = 12,
                                      .values = FEW_CHUNKS * CHUNK_VALUES,
                                      .latency_ns = NS_PER_MS,
                                      .centre_spread = 1.0,
                                      .step_cost_ns = 60 * NS_PER_MS,
                                      .averaging = "local-sgd:H=4",
                                      .exchange = "pair"};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0, joiner = 2;
    const uint64_t line = LINE / 50;
    double idle_s = (double)FEW_CHUNKS * CHUNK_VALUES * sizeof(float) / (double)line, took_s;
    uint64_t begun_ns;

    (void)state;
    for (uint32_t i = 0; i < options.peers; i++) {
        sim_host_rate(cluster_world(cluster), i + 1, line, line);
    }
    swarm_start(cluster, 2);
    cluster_run(cluster, 25 * NS_PER_S);
    assert_true(swarm_report(cluster, 0).rounds_ok > 0);
    begun_ns = sim_now_ns(cluster_world(cluster));
    cluster_start(cluster, joiner, &first, 1);
    assert_true(cluster_run_until(cluster, is_training, &joiner, 100 * NS_PER_S));
    took_s = (double)(sim_now_ns(cluster_world(cluster)) - begun_ns) / 1e9;
    print_message("joined after %.1f s; on an idle line %.1f s\n", took_s, idle_s);
    assert_true(took_s < 8 * idle_s);
    cluster_destroy(cluster);
}

/* Virtual seconds until a model is there, of a donor that is alone: it always was, or all others
 * have gone. */
static double seconds_to_join(const char *exchange, bool had_partner)
{
    struct cluster_options options = {.peers = 3,
                                      .seed = 13,
                                      .step_cost_ns = 600 * NS_PER_MS,
                                      .averaging = "local-sgd:H=4",
                                      .exchange = exchange};
    struct cluster *cluster = swarm(&options, had_partner ? 2 : 1);
    uint32_t first = 0, joiner = 2;
    uint64_t begun_ns;

    for (uint32_t i = 0; i < options.peers; i++) {
        sim_host_rate(cluster_world(cluster), i + 1, LINE / 50, LINE / 50);
    }
    cluster_run(cluster, 60 * NS_PER_S);
    assert_int_equal(swarm_report(cluster, 0).rounds_ok > 0, had_partner);
    if (had_partner) cluster_crash(cluster, 1);
    cluster_run(cluster, 60 * NS_PER_S);
    begun_ns = sim_now_ns(cluster_world(cluster));
    cluster_start(cluster, joiner, &first, 1);
    assert_true(cluster_run_until(cluster, is_training, &joiner, 100 * NS_PER_S));
    begun_ns = sim_now_ns(cluster_world(cluster)) - begun_ns;
    cluster_destroy(cluster);
    return (double)begun_ns / 1e9;
}

/* A donor whose partners have gone has no round to keep its line free for, though one is due: it
 * gives a model as fast as one that never had any. */
static void a_donor_without_partners_gives_at_full_speed(void **state)
{
    static const char *const exchanges[] = {"group", "pair"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(exchanges); i++) {
        double always = seconds_to_join(exchanges[i], false);
        double since = seconds_to_join(exchanges[i], true);

        print_message("%s: a model is there after %.1f s, after rounds with others %.1f s\n",
                      exchanges[i], always, since);
        assert_true(since < 1.5 * always);
    }
}

/* Cut off for a moment, after more than --join-timeout and most of its download, a joiner neither
 * ends nor begins anew: its donor still has what it began to give, though the swarm has trained on.
 */
static void a_joiner_that_was_cut_off_goes_on(void **state)
{
    struct cluster_options options = {.peers = 3,
                                      .seed = 9,
                                      .values = 4 * CHUNK_VALUES,
                                      .latency_ns = NS_PER_MS,
                                      .centre_spread = 1.0,
                                      .step_cost_ns = 200 * NS_PER_MS,
                                      .averaging = "local-sgd:H=8",
                                      .exchange = "pair"};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0, joiner = 2;
    double bytes;

    (void)state;
    swarm_start(cluster, 2);
    cluster_run(cluster, 4 * NS_PER_S);
    sim_host_rate(cluster_world(cluster), joiner + 1, LINE / 1000, LINE / 1000);
    cluster_start(cluster, joiner, &first, 1);
    cluster_run(cluster, 35 * NS_PER_S);
    assert_true(is_loading(cluster, &joiner));
    sim_cut(cluster_world(cluster), 1, joiner + 1);
    sim_cut(cluster_world(cluster), 2, joiner + 1);
    cluster_run(cluster, 100 * NS_PER_MS);
    assert_true(cluster_is_up(cluster, joiner));
    assert_true(cluster_run_until(cluster, is_training, &joiner, 60 * NS_PER_S));
    bytes = (double)swarm_report(cluster, joiner).bytes_received / (4.0 * CHUNK_VALUES * 4);
    assert_true(bytes < 1.6); /* a whole model, and the changes since */
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(busy_donors_serve_during_their_rounds),
        cmocka_unit_test(eight_joiners_slow_the_rounds_little),
        cmocka_unit_test(a_donor_that_dies_costs_a_tenth),
        cmocka_unit_test(where_pairs_average_another_donor_goes_on),
        cmocka_unit_test(anchors_and_momentum_are_given_too),
        cmocka_unit_test(a_wild_momentum_is_not_adopted),
        cmocka_unit_test(a_joiner_weighs_little_at_first),
        cmocka_unit_test(a_join_on_a_busy_line_has_its_part),
        cmocka_unit_test(a_donor_without_partners_gives_at_full_speed),
        cmocka_unit_test(a_joiner_that_was_cut_off_goes_on),
        cmocka_unit_test(a_slow_line_catches_up_by_difference),
    };

    if (getenv("ONLY") != NULL) cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Members that lie about their model, or give a false one: nobody's model is replaced for words. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "base/rng.h"
#include "peer/node/models/internal.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

#include <math.h>

enum { VALUES = 500 };

static struct cluster_options options_of(uint32_t peers, const char *averaging,
                                         const char *exchange)
{
    return (struct cluster_options){.peers = peers,
                                    .seed = 11,
                                    .latency_ns = NS_PER_MS,
                                    .values = VALUES,
                                    .step_cost_ns = 50 * NS_PER_MS,
                                    .centre_spread = 0.5,
                                    .averaging = averaging,
                                    .exchange = exchange};
}

static struct cluster *trained(const struct cluster_options *options, uint32_t peers)
{
    struct cluster *cluster = cluster_create(options);

    swarm_start(cluster, peers);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 4 * NS_PER_S);
    return cluster;
}

/* From here on this member's model is noise, equal at all liars. */
static void spoil(struct cluster *cluster, uint32_t peer)
{
    float plane[VALUES];
    struct rng rng;

    rng_init(&rng, 99, 0);
    for (size_t i = 0; i < VALUES; i++) {
        plane[i] = 10 * (float)rng_normal(&rng);
    }
    cluster_assign(cluster, peer, plane);
}

static void boast(struct cluster *cluster, uint32_t peer, uint64_t samples, uint64_t step)
{
    struct learner *learner = cluster_learner(cluster, peer);
    struct node *node = cluster_node(cluster, peer);

    learner->ops->set_step(learner, step);
    node->step = step;
    node->model_samples = samples;
}

static void claim(struct cluster *cluster, uint32_t peer)
{
    struct node *node = cluster_node(cluster, peer);

    node->lineage = hash_of("better", 6);
    node->models->choice.stay_ns = UINT64_MAX; /* and it stays with that */
    if (node->round != NULL) round_set_lineage(node->round, node->lineage);
    boast(cluster, peer, UINT64_C(1) << 60, UINT64_C(1) << 62);
    spoil(cluster, peer);
}

static void assert_undamaged(struct cluster *cluster, uint32_t peer, struct digest lineage)
{
    float plane[VALUES];

    assert_true(cluster_is_up(cluster, peer));
    assert_true(digest_is_equal(node_lineage(cluster_node(cluster, peer)), lineage));
    assert_true(node_step(cluster_node(cluster, peer)) < 1 << 20);
    cluster_plane(cluster, peer, plane);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(fabsf(plane[i]) < 5);
    }
}

/* The first `liars` of `peers` hold another model, as they say with 2^60 samples behind it, and
 * give it to whoever asks: nobody does, but goes on averaging. Three say the same, and would
 * confirm each other. */
static void words_replace_nobodys_model(void **state)
{
    static const struct {
        const char *exchange;
        uint32_t liars, peers;
    } cases[] = {{"group", 1, 4}, {"pair", 1, 4}, {"group", 3, 8}};

    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
        struct cluster_options options =
            options_of(cases[c].peers, "local-sgd:H=4", cases[c].exchange);
        struct cluster *cluster = trained(&options, cases[c].peers);
        uint32_t last = cases[c].peers - 1;
        struct digest lineage = node_lineage(cluster_node(cluster, last));
        uint64_t rounds;

        for (uint32_t i = 0; i < cases[c].liars; i++) {
            claim(cluster, i);
        }
        cluster_run(cluster, 15 * NS_PER_S);
        rounds = swarm_report(cluster, last).rounds_ok;
        cluster_run(cluster, 5 * NS_PER_S);
        for (uint32_t i = cases[c].liars; i < cases[c].peers; i++) {
            assert_undamaged(cluster, i, lineage);
        }
        assert_true(swarm_report(cluster, last).rounds_ok > rounds);
        cluster_destroy(cluster);
    }
}

static bool is_training(struct cluster *cluster, void *peer)
{
    return node_state(cluster_node(cluster, *(uint32_t *)peer)) == NODE_TRAINING;
}

/* A donor of the right lineage gives noise, or says that its model is at step 2^40: who joins
 * through it does not take the one, and does not believe the other. */
static void a_false_model_of_the_right_lineage_is_not_taken(void **state)
{
    (void)state;
    for (int is_noise = 0; is_noise < 2; is_noise++) {
        struct cluster_options options = options_of(5, "local-sgd:H=100000", "group");
        struct cluster *cluster = trained(&options, 4);
        uint32_t liar = 0, joiner = 4;
        struct digest lineage = node_lineage(cluster_node(cluster, 1));

        if (is_noise) {
            spoil(cluster, liar);
        } else {
            boast(cluster, liar, UINT64_C(1) << 60, UINT64_C(1) << 40);
        }
        cluster_start(cluster, joiner, &liar, 1);
        assert_true(cluster_run_until(cluster, is_training, &joiner, 20 * NS_PER_S));
        assert_undamaged(cluster, joiner, lineage);
        assert_true(node_step(cluster_node(cluster, joiner)) + 40 >
                    node_step(cluster_node(cluster, 1)));
        assert_true(cluster_node(cluster, joiner)->model_samples < 1 << 20);
        cluster_destroy(cluster);
    }
}

/* This member tells nobody what it holds, as one in a long step, or on a bad line. */
static void silence(struct cluster *cluster, uint32_t peer)
{
    struct node *node = cluster_node(cluster, peer);

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        node->neighbours[i].sketches = (struct ration){node_now(node), UINT32_MAX};
    }
}

/* A new peer whose donor gives noise, with two others there who hold that lineage: both must agree,
 * and while one of them, or both, say nothing the noise is not taken for want of an answer. */
static void a_new_peer_wants_two_witnesses_where_two_are_there(void **state)
{
    (void)state;
    for (uint32_t silent = 1; silent <= 2; silent++) {
        struct cluster_options options = options_of(4, "local-sgd:H=100000", "group");
        struct cluster *cluster = trained(&options, 3);
        uint32_t liar = 0, joiner = 3;
        struct digest lineage = node_lineage(cluster_node(cluster, 1));
        uint64_t begun_ns = sim_now_ns(cluster_world(cluster));

        cluster_start(cluster, joiner, &liar, 1);
        while (!is_training(cluster, &joiner)) {
            spoil(cluster, liar); /* it trains, and would unlearn it */
            for (uint32_t i = 1; i <= silent; i++) {
                silence(cluster, i);
            }
            cluster_run(cluster, NS_PER_MS);
            assert_true(sim_now_ns(cluster_world(cluster)) < begun_ns + 90 * NS_PER_S);
        }
        assert_undamaged(cluster, joiner, lineage);
        cluster_destroy(cluster);
    }
}

/* One member tells joiners of far more steps than there were, or of next to none. Whether it is
 * asked for the model or for its word, and however few others there are: it is not believed. */
static void one_liar_does_not_say_at_which_step_a_model_is(void **state)
{
    static const struct {
        uint32_t trained;
        uint64_t samples, step;
    } cases[] = {{2, UINT64_C(1) << 60, UINT64_C(1) << 40}, {3, 1, 1}};

    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
        for (uint32_t liar = 0; liar < cases[c].trained; liar++) {
            struct cluster_options options = options_of(4, "local-sgd:H=4", "group");
            struct cluster *cluster;
            uint32_t first = 0, joiner = cases[c].trained, honest = liar == 0 ? 1 : 0;

            options.step_cost_ns = 20 * NS_PER_MS;
            cluster = cluster_create(&options);
            swarm_start(cluster, cases[c].trained);
            cluster_run(cluster, 60 * NS_PER_S);
            boast(cluster, liar, cases[c].samples, cases[c].step);
            cluster_run(cluster, 2 * NS_PER_S);
            cluster_start(cluster, joiner, &first, 1);
            assert_true(cluster_run_until(cluster, is_training, &joiner, 20 * NS_PER_S));
            assert_true(node_step(cluster_node(cluster, joiner)) <
                        2 * node_step(cluster_node(cluster, honest)));
            assert_true(node_step(cluster_node(cluster, joiner)) >
                        node_step(cluster_node(cluster, honest)) / 2);
            cluster_destroy(cluster);
        }
    }
}

/* ---- what else comes with a model ---- */

static struct backend *backend;
static struct learner *replicas[5];

static struct learner *replica_of(void *context, uint32_t peer)
{
    const struct replica_options options = {.model = "linear:8 bn relu linear:classes",
                                            .optimizer = "adam",
                                            .data = "digits",
                                            .seed = 1,
                                            .stream_seed = peer,
                                            .batch = 8,
                                            .threads = 1};

    (void)context;
    replicas[peer] = make(backend, &options);
    return replicas[peer];
}

static double section_norm(uint32_t peer, enum section section)
{
    float *values = values_of(replicas[peer], section);
    double squares = 0;

    for (size_t i = 0; i < count_of(replicas[peer], section); i++) {
        squares += (double)values[i] * (double)values[i];
    }
    mem_free(values);
    return sqrt(squares);
}

static void scale_section(uint32_t peer, enum section section, float factor)
{
    size_t count = count_of(replicas[peer], section);
    float *values = values_of(replicas[peer], section);

    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        values[i] *= factor;
    }
    assert_int_equal(replicas[peer]->ops->assign_section(replicas[peer], section, values, count),
                     RC_OK);
    mem_free(values);
}

/* A donor's parameters are as they should be, but its optimizer's buffers are a thousand times as
 * large: they are left out. Or its running statistics are: nothing of it is taken. */
static void false_moments_and_statistics_are_not_taken(void **state)
{
    static const enum section sections[] = {SECTION_MOMENTS, SECTION_BUFFERS};

    (void)state;
    backend = cpu_backend_create(&(struct cpu_backend_options){.threads = 1});
    assert_non_null(backend);
    for (size_t i = 0; i < ARRAY_COUNT(sections); i++) {
        struct cluster_options options = options_of(5, "local-sgd:H=100000", "group");
        struct cluster *cluster;
        uint32_t liar = 0, joiner = 4;

        options.learner = replica_of;
        cluster = trained(&options, 4);
        scale_section(liar, sections[i], 1000);
        cluster_start(cluster, joiner, &liar, 1);
        assert_true(cluster_run_until(cluster, is_training, &joiner, 20 * NS_PER_S));
        assert_true(section_norm(joiner, sections[i]) < 20 * section_norm(1, sections[i]));
        cluster_destroy(cluster);
    }
    backend_destroy(backend);
}

/* A false model that two liars hold is all that a new peer hears of at first. It moves to that of
 * most as soon as it has met them. */
static void who_met_liars_first_joins_the_others(void **state)
{
    struct cluster_options options = options_of(6, "local-sgd:H=4", "group");
    struct cluster *cluster = trained(&options, 5);
    uint32_t liar = 0, joiner = 5;
    struct digest lineage = node_lineage(cluster_node(cluster, 4));

    (void)state;
    claim(cluster, 0);
    claim(cluster, 1);
    cluster_run(cluster, NS_PER_S);
    cluster_start(cluster, joiner, &liar, 1);
    cluster_run(cluster, 15 * NS_PER_S);
    assert_true(is_training(cluster, &joiner));
    assert_undamaged(cluster, joiner, lineage);
    cluster_destroy(cluster);
}

static bool has_file(struct cluster *cluster, uint32_t peer, const char *name)
{
    struct env *env = cluster_node(cluster, peer)->env;
    struct fault why;
    void *bytes = NULL;
    size_t count = 0;
    enum rc rc = env->ops->store_get(env, name, 1 << 20, &bytes, &count, &why);

    mem_free(bytes);
    return rc == RC_OK;
}

static bool is_of_one_lineage(struct cluster *cluster, void *unused)
{
    (void)unused;
    for (uint32_t i = 1; i < 4; i++) {
        if (!digest_is_equal(node_lineage(cluster_node(cluster, 0)),
                             node_lineage(cluster_node(cluster, i)))) {
            return false;
        }
    }
    return cluster_is_whole(cluster, NULL);
}

/* A peer with an old --out, of another beginning and with more samples behind it than the swarm
 * has: it gives way, not the swarm, and what it gives up stays on disk. */
static void an_old_model_gives_way_to_more_members(void **state)
{
    struct cluster_options options = options_of(4, "local-sgd:H=4", "group");
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0;
    struct digest lineage;

    (void)state;
    cluster_set_model_seed(cluster, 3, 777);
    cluster_start(cluster, 3, NULL, 0);
    cluster_run(cluster, 40 * NS_PER_S);
    cluster_crash(cluster, 3);
    swarm_start(cluster, 3);
    cluster_run(cluster, 5 * NS_PER_S);
    lineage = node_lineage(cluster_node(cluster, 0));
    cluster_start(cluster, 3, &first, 1);
    assert_true(cluster_run_until(cluster, is_of_one_lineage, NULL, 10 * NS_PER_S));
    assert_undamaged(cluster, 3, lineage);
    assert_true(has_file(cluster, 3, CHECKPOINT_STATE_BEFORE));
    assert_false(has_file(cluster, 0, CHECKPOINT_STATE_BEFORE));
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_replace_nobodys_model),
        cmocka_unit_test(a_false_model_of_the_right_lineage_is_not_taken),
        cmocka_unit_test(a_new_peer_wants_two_witnesses_where_two_are_there),
        cmocka_unit_test(one_liar_does_not_say_at_which_step_a_model_is),
        cmocka_unit_test(false_moments_and_statistics_are_not_taken),
        cmocka_unit_test(who_met_liars_first_joins_the_others),
        cmocka_unit_test(an_old_model_gives_way_to_more_members),
    };

    if (getenv("ONLY") != NULL) cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* How many steps lie between what a peer told the others and what it makes of the answer (T15). */
#include "tests/check.h"

#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

enum { VALUES = 200, PEERS = 4 };

static struct spy spy;
static uint64_t told_at[PEERS], most, rounds;

static uint64_t step_of(struct learner *learner)
{
    struct train_report report = {0};

    assert_int_equal(spy.originals.train(learner, 0, NULL, &report), RC_OK);
    return report.step;
}

static enum rc spy_export(struct learner *learner, enum section section, float *out, size_t count)
{
    if (section == SECTION_MIXED) told_at[spy_number(&spy, learner)] = step_of(learner);
    return spy.originals.export_section(learner, section, out, count);
}

static enum rc spy_import(struct learner *learner, enum section section, const float *difference,
                          size_t count)
{
    uint64_t stale = step_of(learner) - told_at[spy_number(&spy, learner)];

    rounds++;
    if (stale > most) most = stale;
    return spy.originals.import_section(learner, section, difference, count);
}

static struct learner *spied_learner(void *context, uint32_t peer)
{
    struct learner *learner = spy_on_toy(&spy, peer, VALUES, 0.001);

    (void)context;
    spy.ops.export_section = spy_export;
    spy.ops.import_section = spy_import;
    return learner;
}

/* Steps are so short that a training job holds many, and an answer takes many jobs. */
static uint64_t most_with(const char *averaging)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = 1,
                                      .averaging = averaging,
                                      .latency_ns = 20 * NS_PER_MS,
                                      .values = VALUES,
                                      .step_cost_ns = NS_PER_MS / 10,
                                      .learner = spied_learner};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, PEERS);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 2 * NS_PER_S);
    most = rounds = 0;
    cluster_run(cluster, 2 * NS_PER_S);
    cluster_destroy(cluster);
    assert_true(rounds > 50);
    return most;
}

static void no_answer_is_older_than_the_method_says(void **state)
{
    (void)state;
    static const struct {
        const char *averaging;
        uint64_t most;
    } cases[] = {{"osgp:H=1,tau=16", 16},    {"osgp:H=40,tau=8", 8},
                 {"dpsgd:H=8,order=cta", 8}, {"eamsgd:tau=5", 5},
                 {"choco:H=3", 3},           {"allreduce", 0},
                 {"diloco:H=4", 0},          {"dpsgd:order=atc", 0},
                 {"choco:H=2,order=a", 0},   {"push-sum:H=4", 0},
                 {"gradient-tracking", 0},   {"noloco:H=4", 0},
                 {"gasloc:H=4", 0},          {"qg-dsgdm:H=2", 0},
                 {"diloco:H=40,tau=8", 8},   {"sparseloco:H=40,tau=8", 8},
                 {"sparta:p=0.1,tau=6", 6},  {"loscar:H=40,tau=7", 7},
                 {"sparta:p=0.1,tau=0", 0},  {"des-loc:H=4", 0},
                 {"adacomm:H=4,block=50", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t seen = most_with(cases[i].averaging);

        if (seen > cases[i].most || (seen == 0) != (cases[i].most == 0)) {
            fail_msg("%s: %llu steps, not up to %llu", cases[i].averaging, (unsigned long long)seen,
                     (unsigned long long)cases[i].most);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_answer_is_older_than_the_method_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

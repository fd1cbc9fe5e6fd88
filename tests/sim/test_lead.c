/*
 * `ssp`: how far a peer runs ahead of the slowest (T15). The bound holds exactly, whatever delays
 * there are, and is what is reached; without it the same peers are far apart. Who stops, dies, or
 * says for ever that it stands still is left behind, and who comes back is met where the others
 * are.
 */
#include "tests/check.h"

#include "base/check.h"
#include "peer/node/internal.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

enum { VALUES = 200, PEERS = 4 };

static struct spy spy;
static struct cluster *seen;

/* As a step is begun: how far it is ahead of the slowest one's finished steps. */
static struct {
    bool is_on;
    uint64_t most, peers;
} lead;

static uint64_t slowest_but(uint32_t peer)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < lead.peers; i++) {
        struct node *node = cluster_node(seen, i);

        if (i == peer || node == NULL) continue;
        if (node_step(node) < least) least = node_step(node);
    }
    return least;
}

static enum rc spy_train(struct learner *learner, uint32_t steps, const atomic_bool *must_stop,
                         struct train_report *report)
{
    const uint32_t peer = spy_number(&spy, learner);

    if (lead.is_on && steps > 0) {
        uint64_t last = node_step(cluster_node(seen, peer)) + steps - 1, least = slowest_but(peer);

        if (last > least && last - least > lead.most) lead.most = last - least;
    }
    return spy.originals.train(learner, steps, must_stop, report);
}

static struct learner *spied_learner(void *context, uint32_t peer)
{
    struct learner *learner = spy_on_toy(&spy, peer, VALUES, 0.001);

    (void)context;
    spy.ops.train = spy_train;
    return learner;
}

static void begin(struct cluster_options options)
{
    options.peers = PEERS;
    options.values = VALUES;
    options.learner = spied_learner;
    lead.is_on = false;
    lead.most = 0;
    lead.peers = PEERS;
    seen = cluster_create(&options);
    swarm_start(seen, PEERS);
    assert_true(cluster_run_until(seen, cluster_is_whole, NULL, 20 * NS_PER_S));
}

static uint64_t step_of(uint32_t peer)
{
    return node_step(cluster_node(seen, peer));
}

/* ---- the bound ---- */

/* The slowest takes four times as long as the quickest: all go at its pace. */
static const double unlike[PEERS] = {1, 0.8, 0.5, 0.25};

static uint64_t most_ahead(const char *averaging, const char *exchange, uint64_t step_ns,
                           uint64_t seed)
{
    uint64_t before;

    begin((struct cluster_options){.seed = seed,
                                   .averaging = averaging,
                                   .exchange = exchange,
                                   .speeds = unlike,
                                   .start_with = PEERS,
                                   .latency_ns = 5 * NS_PER_MS,
                                   .jitter_ns = 20 * NS_PER_MS,
                                   .step_cost_ns = step_ns});
    cluster_run(seen, NS_PER_S); /* some have begun a moment before others */
    before = step_of(3);
    lead.is_on = true;
    cluster_run(seen, 5 * NS_PER_S);
    assert_true(step_of(3) > before + 20);
    assert_true(swarm_report(seen, 0).rounds_ok > 10);
    cluster_destroy(seen);
    return lead.most;
}

/* Long steps, one a job, and short ones, many of which are; with s = 0 all take each step together.
 */
static void nobody_is_further_ahead_than_the_method_says(void **state)
{
    static const struct {
        const char *averaging, *exchange;
        uint64_t s;
    } cases[] = {{"ssp:s=0", NULL, 0},   {"ssp:s=1", NULL, 1},        {"ssp:s=4", NULL, 4},
                 {"ssp:s=16", NULL, 16}, {"ssp:s=4,H=8", "group", 4}, {"ssp:s=4,H=4", "edges", 4},
                 {"ssp:s=4", "push", 4}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t reached = 0;

        FOR_EACH_SEED (seed, 2) {
            uint64_t step_ns = seed % 2 == 1 ? 10 * NS_PER_MS : NS_PER_MS / 2;
            uint64_t most = most_ahead(cases[i].averaging, cases[i].exchange, step_ns, seed);

            if (getenv("VERBOSE") != NULL)
                printf("%s: %llu\n", cases[i].averaging, (unsigned long long)most);
            check_seed(seed, most <= cases[i].s);
            if (most > reached) reached = most;
        }
        assert_true(reached == cases[i].s || getenv("SEED") != NULL);
    }
}

/* The control: nothing else holds them together. */
static void without_it_they_run_away(void **state)
{
    (void)state;
    assert_true(most_ahead("ad-psgd", NULL, 10 * NS_PER_MS, 1) > 100);
}

/* ---- who holds the others up ---- */

/* Steps of the slowest of those who go on, in so long. */
static uint64_t steps_in(uint64_t duration_ns, uint32_t first)
{
    uint64_t before[PEERS], least = UINT64_MAX;

    for (uint32_t i = first; i < PEERS; i++) {
        before[i] = step_of(i);
    }
    cluster_run(seen, duration_ns);
    for (uint32_t i = first; i < PEERS; i++) {
        if (step_of(i) - before[i] < least) least = step_of(i) - before[i];
    }
    return least;
}

static void begin_alike(void)
{
    begin((struct cluster_options){.seed = 1,
                                   .averaging = "ssp:s=4",
                                   .start_with = PEERS,
                                   .latency_ns = NS_PER_MS,
                                   .step_cost_ns = 10 * NS_PER_MS});
    assert_true(steps_in(4 * NS_PER_S, 0) > 300);
}

/* It stops answering at all: a process that hangs. */
static void who_hangs_is_left_behind(void **state)
{
    (void)state;
    begin_alike();
    sim_host_freeze(cluster_world(seen), 1, true);
    assert_true(steps_in(10 * NS_PER_S, 1) > 800);
    cluster_destroy(seen);
}

static void who_dies_is_left_behind_and_met_again(void **state)
{
    const uint32_t other = 1;

    (void)state;
    begin_alike();
    cluster_crash(seen, 0);
    assert_true(steps_in(10 * NS_PER_S, 1) > 800);
    cluster_start(seen, 0, &other, 1);
    assert_true(cluster_run_until(seen, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(seen, 3 * NS_PER_S);
    assert_true(steps_in(4 * NS_PER_S, 0) > 300);
    cluster_destroy(seen);
}

/* ---- who lies ---- */

enum rc __real_links_send(struct links *links, struct peer_id to, const struct message *message);
void __real_links_send_all(struct links *links, const struct message *message);
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message);
void __wrap_links_send_all(struct links *links, const struct message *message);

/* What peer 0 says of its step, with the truth and how often it was asked; NULL: the truth. */
static struct {
    uint64_t (*step)(uint64_t step, uint64_t times);
    uint64_t times;
} liar;

static bool lies(const struct links *links, struct message *message)
{
    if (liar.step == NULL || message->type != MESSAGE_PROGRESS) return false;
    if (cluster_node(seen, 0) == NULL || cluster_node(seen, 0)->links != links) return false;
    message->as.progress.step = liar.step(message->as.progress.step, liar.times++);
    return true;
}

enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message)
{
    struct message said = *message;

    (void)lies(links, &said);
    return __real_links_send(links, to, &said);
}

void __wrap_links_send_all(struct links *links, const struct message *message)
{
    struct message said = *message;

    (void)lies(links, &said);
    __real_links_send_all(links, &said);
}

static uint64_t never_moves(uint64_t step, uint64_t times)
{
    (void)step;
    (void)times;
    return 100;
}

static uint64_t crawls(uint64_t step, uint64_t times)
{
    (void)times;
    return step / 100;
}

static uint64_t jumps(uint64_t step, uint64_t times)
{
    return times % 3 == 0 ? 0 : times % 3 == 1 ? step : step / 2;
}

static uint64_t boasts(uint64_t step, uint64_t times)
{
    return times % 2 == 0 ? UINT64_MAX : step;
}

/* Of the 2,000 steps that there is time for: it costs its credit, and then next to nothing. */
static void who_lies_costs_little(void **state)
{
    static const struct {
        const char *name;
        uint64_t (*step)(uint64_t step, uint64_t times);
        uint64_t least;
    } cases[] = {{"never moves", never_moves, 1900},
                 {"crawls", crawls, 1900},
                 {"jumps", jumps, 1500},
                 {"boasts", boasts, 1800}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t steps;

        begin_alike();
        liar.step = cases[i].step;
        liar.times = 0;
        steps = steps_in(20 * NS_PER_S, 1);
        liar.step = NULL;
        printf("beside one that %s: %llu of 2000 steps\n", cases[i].name,
               (unsigned long long)steps);
        if (steps < cases[i].least) fail_msg("%s", cases[i].name);
        cluster_destroy(seen);
    }
}

/* A machine that is so many times slower, from one moment on. Up to eight times all go at its pace;
 * one that is slower than that is not what the others wait for, and whatever pace one says it has,
 * the others have a ninth of theirs. */
static void nobody_is_slowed_down_without_end(void **state)
{
    static const struct {
        double slow;
        uint64_t least, most;
    } cases[] = {{4, 400, 560},   {7, 240, 330},    {9, 222, 2000},   {12, 222, 2000},
                 {20, 222, 2000}, {50, 1000, 2000}, {100, 1500, 2000}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t steps;

        begin_alike();
        sim_host_faults(cluster_world(seen), 1)->slow = cases[i].slow;
        steps = steps_in(20 * NS_PER_S, 1);
        printf("beside one that is %g times slower: %llu of 2000 steps\n", cases[i].slow,
               (unsigned long long)steps);
        if (steps < cases[i].least || steps > cases[i].most) fail_msg("%g", cases[i].slow);
        cluster_destroy(seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_further_ahead_than_the_method_says),
        cmocka_unit_test(without_it_they_run_away),
        cmocka_unit_test(who_hangs_is_left_behind),
        cmocka_unit_test(who_dies_is_left_behind_and_met_again),
        cmocka_unit_test(who_lies_costs_little),
        cmocka_unit_test(nobody_is_slowed_down_without_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The end of a peer that averages: a last round at the goal, and no longer than it is worth. */
#include "tests/sim/finish.h"

/* What peer 3 does to its words; see the wraps. */
static struct {
    struct links *links;
    bool is_coming; /* always about to be done */
    bool is_done;   /* always, and it never has enough */
    bool is_behind; /* of no round at all */
    bool is_silent; /* its host was stopped: links stay open */
} liar;

enum rc __real_links_send(struct links *links, struct peer_id to, const struct message *message);
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message);
void __real_links_send_all(struct links *links, const struct message *message);
void __wrap_links_send_all(struct links *links, const struct message *message);

enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message)
{
    if (links == liar.links && liar.is_silent) return RC_OK;
    return __real_links_send(links, to, message);
}

void __wrap_links_send_all(struct links *links, const struct message *message)
{
    struct message changed = *message;

    if (links == liar.links && liar.is_silent) return;
    if (links == liar.links && message->type == MESSAGE_PROGRESS) {
        if (liar.is_coming) changed.as.progress.left_ms = 1;
        if (liar.is_done) changed.as.progress.is_done = true;
        if (liar.is_behind) changed.as.progress.round = 0;
    }
    __real_links_send_all(links, &changed);
}

static void create(uint64_t seed, const char *averaging, const double *speeds)
{
    finish_create(seed, averaging, speeds);
    memset(&liar, 0, sizeof liar);
}

static bool is_at_goal(struct cluster *cluster, void *context)
{
    (void)cluster;
    finish_note_ends();
    return seen.goal_ns[*(const uint32_t *)context] != 0;
}

static double spread(float planes[PEERS][VALUES])
{
    return finish_spread(planes, PEERS);
}

/* Twice three periods, and the second between two words of how far others are. A round may last as
 * long as `slowest`, the slowest peer, needs for two of its own. */
static uint64_t bound_ns(double slowest)
{
    return 2 * 3 * ((uint64_t)(2 * PERIOD_NS / slowest) + NS_PER_S);
}

static void equal_peers_end_with_one_model(void **state)
{
    (void)state;
    /* Methods in whose rounds all take part leave all with the same parameters. */
    static const char *const methods[] = {"local-sgd:H=16",
                                          "des-loc:H=16",
                                          "allreduce",
                                          "post-local:H=16,switch=90",
                                          "bmuf:H=16",
                                          "slowmo:H=12",
                                          "diloco:H=100",
                                          "diloco:H=50,tau=10",
                                          "streaming-diloco:H=48,P=3,tau=4",
                                          "decoupled-diloco:H=48,P=3,tau=4",
                                          "loscar:H=16",
                                          "sparseloco:H=30"};

    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        FOR_EACH_SEED (seed, 2) {
            create(seed, methods[m], NULL);
            swarm_start(seen.cluster, PEERS);
            finish_run(seed);
            if (!(spread(seen.at_goal) > 1e-2 && spread(seen.last) < 1e-4)) {
                fail_msg("%s: %g apart, then %g", methods[m], spread(seen.at_goal),
                         spread(seen.last));
            }
            for (uint32_t i = 0; i < PEERS; i++) {
                check_seed(seed, seen.mixed[i] >= 1 && seen.steps[i] == GOAL);
                check_seed(seed, cluster_result(seen.cluster, i)->is_goal_reached);
            }
            cluster_destroy(seen.cluster);
        }
    }
}

/* Those who are done stand together while others come with their last steps, and are far from them
 * then, or missed a round: clipping keeps nobody apart in the end. */
static void who_clips_ends_with_one_model(void **state)
{
    (void)state;
    double speeds[PEERS] = {1, 0.98, 1, 1};

    seen.robust = "auto";
    seen.peers = 3;
    FOR_EACH_SEED (seed, 16) {
        speeds[2] = 0.95 - 0.01 * (double)(seed % 16);
        create(seed, "local-sgd:H=16", speeds);
        swarm_start(seen.cluster, 3);
        finish_run(seed);
        check_seed(seed,
                   finish_spread(seen.at_goal, 3) > 1e-2 && finish_spread(seen.last, 3) < 1e-4);
        cluster_destroy(seen.cluster);
    }
    seen.robust = NULL;
    seen.peers = 0;
}

static void all_methods_end_closer(void **state)
{
    (void)state;
    /* A part of the others at a time, or a part of the way. */
    static const char *const methods[] = {
        "ad-psgd", "swarmsgd",   "ad-psgd:H=16", "moshpit:H=16", "easgd",         "dpsgd",
        "choco",   "d2",         "push-sum",     "osgp",         "gosgd:p=0.1",   "aeasgd",
        "eamsgd",  "noloco",     "async-diloco", "gasloc",       "push-sum:H=16", "sparta:p=0.1",
        "matcha",  "gossipgrad", "ssp"};

    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        create(m + 1, methods[m], NULL);
        swarm_start(seen.cluster, PEERS);
        finish_run(m);
        if (getenv("VERBOSE") != NULL) {
            printf("%s: %g apart, then %g\n", methods[m], spread(seen.at_goal), spread(seen.last));
        }
        if (!(spread(seen.last) < 0.9 * spread(seen.at_goal))) {
            fail_msg("%s: %g apart, then %g", methods[m], spread(seen.at_goal), spread(seen.last));
        }
        cluster_destroy(seen.cluster);
    }
}

/* What d2 holds against a peer's own steps must not move a peer that takes none: those who are done
 * serve rounds of those who are not, and still end as near to each other as rounds leave them. */
static void who_stands_still_stays_with_the_others(void **state)
{
    (void)state;
    static const char *const methods[] = {"d2", "gradient-tracking"};
    static const double speeds[PEERS] = {1, 0.97, 1, 0.94};

    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        uint32_t rounds = 0, once = 0; /* what a last round for each would be */

        FOR_EACH_SEED (seed, 4) {
            create(seed, methods[m], speeds);
            swarm_start(seen.cluster, PEERS);
            finish_run(seed);
            if (getenv("VERBOSE") != NULL) {
                printf("%s, %d: %g apart, then %g; rounds %u %u %u %u\n", methods[m], (int)seed,
                       spread(seen.at_goal), spread(seen.last), seen.mixed[0], seen.mixed[1],
                       seen.mixed[2], seen.mixed[3]);
            }
            if (!(spread(seen.last) < 0.5 * spread(seen.at_goal))) {
                fail_msg("%s, seed %d: %g apart, then %g", methods[m], (int)seed,
                         spread(seen.at_goal), spread(seen.last));
            }
            for (uint32_t i = 0; i < PEERS; i++) {
                rounds += seen.mixed[i];
                once++;
            }
            cluster_destroy(seen.cluster);
        }
        /* There are some without a step. A tracker's are not seen here. */
        assert_true(m > 0 || rounds > once);
    }
}

/* How far the last round took `peer`, as a part of its way to where `other` was before that. */
static double part_of_the_way(uint32_t peer, uint32_t other)
{
    double moved = 0, way = 0;

    for (size_t k = 0; k < VALUES; k++) {
        double from = (double)seen.before[peer][k], to = (double)seen.before[other][k];

        moved += ((double)seen.last[peer][k] - from) * ((double)seen.last[peer][k] - from);
        way += (to - from) * (to - from);
    }
    return sqrt(moved / way);
}

/* Peers with non-IID data, one of them late: the others have had their say when its last steps
 * come, which count no more for that. */
static void who_comes_last_counts_like_others(void **state)
{
    (void)state;
    static const double speeds[PEERS] = {1, 1, 1, 0.95};
    uint32_t stood = 0;

    FOR_EACH_SEED (seed, 8) {
        create(seed, "local-sgd:H=16", speeds);
        swarm_start(seen.cluster, PEERS);
        finish_run(seed);
        for (uint32_t i = 0; i < PEERS - 1; i++) {
            if (seen.mixed[i] < 2 || seen.mixed[PEERS - 1] == 0) continue;
            stood++;
            if (getenv("VERBOSE") != NULL) {
                printf("%d: peer %u went %.3f of the way\n", (int)seed, i,
                       part_of_the_way(i, PEERS - 1));
            }
            check_seed(seed,
                       part_of_the_way(i, PEERS - 1) < 0.45); /* a quarter, if all tell alike */
        }
        cluster_destroy(seen.cluster);
    }
    assert_true(stood > 0 || getenv("SEED") != NULL); /* not with each seed */
}

static void nobody_waits_for_long(void **state)
{
    (void)state;
    /* One after the other they come to the goal. Whoever leaves while others train has mixed with
     * them once more; the last one leaves at once. */
    static const char *const methods[] = {"local-sgd:H=16", "ad-psgd:H=16", "push-sum:H=16",
                                          "aeasgd:tau=16"};
    static const double speeds[PEERS] = {0.12, 0.5, 0.25, 1};

    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        uint32_t chances = 0, missed = 0; /* a round may fail, for reasons of its own */

        FOR_EACH_SEED (seed, 2) {
            create(seed, methods[m], speeds);
            swarm_start(seen.cluster, PEERS);
            finish_run(seed);
            for (uint32_t i = 0; i < PEERS; i++) {
                uint64_t waited_ns = seen.end_ns[i] - seen.goal_ns[i];

                if (getenv("VERBOSE") != NULL) {
                    printf("%s: peer %u waited %.2f s, %u rounds\n", methods[m], i,
                           (double)waited_ns / NS_PER_S, seen.mixed[i]);
                }
                check_seed(seed, seen.goal_ns[i] != 0 && seen.end_ns[i] >= seen.goal_ns[i]);
                if (waited_ns > bound_ns(speeds[0])) {
                    fail_msg("%s: peer %u waited %.2f s", methods[m], i,
                             (double)waited_ns / NS_PER_S);
                }
                chances += i != 0;
                missed += i != 0 && seen.mixed[i] == 0;
            }
            check_seed(seed, seen.end_ns[0] - seen.goal_ns[0] < NS_PER_S / 2);
            cluster_destroy(seen.cluster);
        }
        if (missed > chances / 6) fail_msg("%s: %u of %u missed", methods[m], missed, chances);
    }
}

static void who_dies_is_not_waited_for(void **state)
{
    (void)state;
    /* Those that are waited for lose their power at any moment of it: without a word. */
    static const double speeds[PEERS] = {1, 0.9, 1, 0.95};
    static const char *const methods[] = {"local-sgd:H=16", "ad-psgd", "dpsgd", "push-sum"};
    const uint32_t first = 0;

    FOR_EACH_SEED (seed, 8) {
        struct rng rng;

        rng_init(&rng, seed, 7);
        create(seed, methods[seed % 4], speeds);
        swarm_start(seen.cluster, PEERS);
        check_seed(seed,
                   cluster_run_until(seen.cluster, is_at_goal, (void *)&first, 60 * NS_PER_S));
        cluster_run(seen.cluster, rng_below(&rng, 400) * NS_PER_MS);
        for (uint32_t i = 1; i < PEERS; i++) {
            if (cluster_is_up(seen.cluster, i) && (seed / 4 + i) % 2 == 0) {
                cluster_crash(seen.cluster, i);
            }
        }
        finish_run(seed);
        check_seed(seed, seen.end_ns[0] - seen.goal_ns[0] < bound_ns(0.9) + 10 * NS_PER_S);
        cluster_destroy(seen.cluster);
    }
}

/* Peers of unlike speeds die and come back at any moment, most of them about when some are at their
 * goals: all end, whatever the method. SEEDS=1000 for more. */
static void whatever_happens_all_end(void **state)
{
    (void)state;
    static const char *const methods[] = {"local-sgd:H=16",
                                          "allreduce",
                                          "diloco:H=50",
                                          "ad-psgd",
                                          "moshpit:H=4",
                                          "dpsgd",
                                          "aeasgd",
                                          "choco",
                                          "push-sum",
                                          "osgp",
                                          "noloco:H=20",
                                          "async-diloco:H=20",
                                          "d2",
                                          "gasloc:H=20",
                                          "sparseloco:H=20"};

    FOR_EACH_SEED (seed, 24) {
        double speeds[PEERS];
        struct rng rng;

        rng_init(&rng, seed, 11);
        for (uint32_t i = 0; i < PEERS; i++) {
            speeds[i] = rng_below(&rng, 3) == 0 ? 0.2 + rng_unit(&rng) : 1;
        }
        seen.begins_alone = true;
        create(seed, methods[seed % ARRAY_COUNT(methods)], speeds);
        seen.begins_alone = false;
        swarm_start(seen.cluster, PEERS);
        for (int fault = 0; fault < 6; fault++) {
            uint32_t peer = (uint32_t)rng_below(&rng, PEERS), other = (peer + 1) % PEERS;

            cluster_run(seen.cluster, fault == 0 ? 2800 * NS_PER_MS : rng_below(&rng, NS_PER_S));
            if (cluster_is_up(seen.cluster, peer)) {
                cluster_crash(seen.cluster, peer);
            } else if (cluster_result(seen.cluster, peer) == NULL) {
                cluster_start(seen.cluster, peer, &other, 1);
            }
        }
        finish_run(seed);
        cluster_destroy(seen.cluster);
    }
}

struct tally {
    uint32_t chances, missed; /* last rounds */
};

static bool are_three_done(struct cluster *cluster, void *context)
{
    (void)cluster;
    (void)context;
    finish_note_ends();
    return seen.end_ns[0] != 0 && seen.end_ns[1] != 0 && seen.end_ns[2] != 0;
}

/* The first three come to their goals together, beside peer 3: have_rounds(), and none
 * stays for longer than it says: a quarter of the time since it began, or six seconds. */
static void three_end(const char *method, uint64_t seed, struct tally *tally)
{
    check_seed(seed, cluster_run_until(seen.cluster, are_three_done, NULL, 300 * NS_PER_S));
    if (getenv("VERBOSE") != NULL) {
        printf("%s, %d: %g apart, then %g\n", method, (int)seed, finish_spread(seen.at_goal, 3),
               finish_spread(seen.last, 3));
    }
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t waited_ns = seen.end_ns[i] - seen.goal_ns[i], most_ns = seen.goal_ns[i] / 4;

        if (getenv("VERBOSE") != NULL) {
            printf("  peer %u: %u rounds, left %.2f s after its goal, %.2f s after the last\n", i,
                   seen.mixed[i], (double)waited_ns / NS_PER_S,
                   (double)(seen.end_ns[i] - seen.mixed_ns[i]) / NS_PER_S);
        }
        tally->chances++;
        tally->missed += seen.mixed[i] == 0;
        if (most_ns < 6 * NS_PER_S) most_ns = 6 * NS_PER_S;
        if (waited_ns > most_ns + NS_PER_S / 2) {
            fail_msg("%s, seed %d: peer %u waited %.2f s", method, (int)seed, i,
                     (double)waited_ns / NS_PER_S);
        }
    }
    tally->missed += strcmp(method, "local-sgd:H=16") == 0 && finish_spread(seen.last, 3) > 1e-4;
}

/* A round may fail, for reasons of its own. */
static void have_rounds(const char *method, const struct tally *tally)
{
    if (getenv("VERBOSE") != NULL) {
        printf("%s: %u missed of %u\n", method, tally->missed, tally->chances);
    }
    if (tally->missed > tally->chances / 6) {
        fail_msg("%s: %u of %u missed", method, tally->missed, tally->chances);
    }
}

static void swarm_with(const char *method, uint64_t seed, const double *speeds)
{
    create(seed, method, speeds);
    swarm_start(seen.cluster, PEERS);
    liar.links = cluster_node(seen.cluster, 3)->links;
}

static void those_who_are_done_do_without_a_slow_one(void **state)
{
    (void)state;
    /* It is in no round for longer than anybody waits; or its period is longer than that. */
    static const char *const methods[] = {"local-sgd:H=16", "ad-psgd:H=16", "push-sum:H=16",
                                          "local-sgd:H=300"};
    static const double speeds[PEERS] = {1, 1, 1, 0.1};

    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        struct tally tally = {0};

        FOR_EACH_SEED (seed, 2) {
            seen.step_ns = 100 * NS_PER_MS;
            swarm_with(methods[m], seed, speeds);
            three_end(methods[m], seed, &tally);
            cluster_destroy(seen.cluster);
        }
        have_rounds(methods[m], &tally);
    }
}

static void a_liar_costs_patience_and_no_round(void **state)
{
    (void)state;
    static const char *const methods[] = {"local-sgd:H=16", "ad-psgd:H=16", "push-sum:H=16"};
    static const double speeds[PEERS] = {1, 1, 1, 0.1};

    for (size_t i = 0; i < 2 * (sizeof methods / sizeof methods[0]); i++) {
        const char *method = methods[i / 2];
        struct tally tally = {0};

        FOR_EACH_SEED (seed, 2) {
            seen.step_ns = 100 * NS_PER_MS;
            swarm_with(method, seed, speeds);
            liar.is_coming = i % 2 == 0;
            liar.is_done = i % 2 == 1;
            three_end(method, seed, &tally);
            cluster_destroy(seen.cluster);
        }
        have_rounds(method, &tally);
    }
}

static void who_falls_silent_costs_patience_and_no_round(void **state)
{
    (void)state;
    static const char *const methods[] = {"local-sgd:H=16", "ad-psgd:H=16"};
    static const double speeds[PEERS] = {1, 1, 1, 0.97};
    const uint32_t first = 0;

    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        struct tally tally = {0};

        FOR_EACH_SEED (seed, 2) {
            swarm_with(methods[m], seed, speeds);
            check_seed(seed,
                       cluster_run_until(seen.cluster, is_at_goal, (void *)&first, 60 * NS_PER_S));
            liar.is_silent = true;
            three_end(methods[m], seed, &tally);
            cluster_destroy(seen.cluster);
        }
        have_rounds(methods[m], &tally);
    }
}

static void nobody_is_left_out_of_pairs(void **state)
{
    (void)state;
    /* Three are left: two of them could do all of their rounds with each other. */
    static const double speeds[PEERS] = {1, 1, 1, 0.97};
    const uint32_t first = 0;

    struct tally tally = {0};

    FOR_EACH_SEED (seed, 6) {
        swarm_with("ad-psgd:H=16", seed, speeds);
        check_seed(seed,
                   cluster_run_until(seen.cluster, is_at_goal, (void *)&first, 60 * NS_PER_S));
        cluster_crash(seen.cluster, 3);
        liar.links = NULL;
        three_end("ad-psgd:H=16", seed, &tally);
        check_seed(seed, finish_spread(seen.last, 3) < 0.8 * finish_spread(seen.at_goal, 3));
        cluster_destroy(seen.cluster);
    }
    assert_int_equal(tally.missed, 0);
}

static void who_is_behind_holds_nobody_up(void **state)
{
    (void)state;
    /* It was in rounds before, and seems never to come to the one whose parts it could want. */
    static const double speeds[PEERS] = {1, 1, 1, 0.1};

    struct tally tally = {0};
    uint32_t late = 0;

    FOR_EACH_SEED (seed, 8) {
        seen.step_ns = 200 * NS_PER_MS;
        swarm_with("local-sgd:H=16", seed, speeds);
        liar.is_behind = true;
        three_end("local-sgd:H=16", seed, &tally);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t after_ns = seen.end_ns[i] - seen.mixed_ns[i];

            late += seen.mixed[i] > 0 && after_ns > 5 * NS_PER_S / 2;
        }
        cluster_destroy(seen.cluster);
    }
    /* Rounds with the slow one last long, and may leave a part under way for as long. */
    if (late > tally.chances / 3) fail_msg("%u of %u stayed on", late, tally.chances);
}

static void a_pause_is_no_pace(void **state)
{
    (void)state;
    const struct node *node;
    uint64_t usual_ns;

    create(1, "local-sgd:H=16", NULL);
    swarm_start(seen.cluster, PEERS);
    cluster_run(seen.cluster, 2500 * NS_PER_MS);
    node = cluster_node(seen.cluster, 0);
    usual_ns = node->lane->left.wall_ns;
    assert_true(usual_ns >= STEP_NS && usual_ns < 3 * STEP_NS);
    cluster_node(seen.cluster, 0)->lane->left.mark_ns -=
        2 * NS_PER_S; /* it was stopped for so long */
    cluster_run(seen.cluster, 50 * NS_PER_MS);
    assert_true(node->lane->left.wall_ns < 2 * usual_ns);
    cluster_destroy(seen.cluster);
}

static void a_signal_ends_the_waiting(void **state)
{
    (void)state;
    static const double speeds[PEERS] = {0.4, 0.4, 0.4, 1};
    const uint32_t first = 3;

    create(1, "diloco:H=100", speeds); /* 300 steps in common, then each its own 30 */
    swarm_start(seen.cluster, PEERS);
    cluster_node(seen.cluster, 3)->options.evaluates_at_end = true;
    seen.evaluated = 0;
    assert_true(cluster_run_until(seen.cluster, is_at_goal, (void *)&first, 60 * NS_PER_S));
    cluster_run(seen.cluster, 200 * NS_PER_MS);
    assert_true(cluster_is_up(seen.cluster, 3));
    cluster_stop(seen.cluster, 3);
    cluster_run(seen.cluster, 200 * NS_PER_MS);
    assert_false(cluster_is_up(seen.cluster, 3));
    assert_int_equal(cluster_result(seen.cluster, 3)->signal, 2);
    assert_true(cluster_result(seen.cluster, 3)->is_goal_reached);
    assert_int_equal(seen.evaluated, 0);
    cluster_destroy(seen.cluster);
}

static void what_is_finished_ends_at_once(void **state)
{
    (void)state;
    create(1, "local-sgd:H=16", NULL);
    swarm_start(seen.cluster, PEERS);
    finish_run(1);
    swarm_start(seen.cluster, PEERS); /* from their checkpoints */
    assert_true(cluster_run_until(seen.cluster, finish_is_done, NULL, NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_int_equal(seen.steps[i], 0);
        assert_true(cluster_result(seen.cluster, i)->is_goal_reached);
    }
    cluster_destroy(seen.cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_peers_end_with_one_model),
        cmocka_unit_test(who_clips_ends_with_one_model),
        cmocka_unit_test(all_methods_end_closer),
        cmocka_unit_test(who_stands_still_stays_with_the_others),
        cmocka_unit_test(who_comes_last_counts_like_others),
        cmocka_unit_test(nobody_waits_for_long),
        cmocka_unit_test(who_dies_is_not_waited_for),
        cmocka_unit_test(whatever_happens_all_end),
        cmocka_unit_test(those_who_are_done_do_without_a_slow_one),
        cmocka_unit_test(a_liar_costs_patience_and_no_round),
        cmocka_unit_test(who_falls_silent_costs_patience_and_no_round),
        cmocka_unit_test(nobody_is_left_out_of_pairs),
        cmocka_unit_test(who_is_behind_holds_nobody_up),
        cmocka_unit_test(a_pause_is_no_pace),
        cmocka_unit_test(a_signal_ends_the_waiting),
        cmocka_unit_test(what_is_finished_ends_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

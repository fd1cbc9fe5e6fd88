/*
 * Rounds in doubt, in the simulated world: the two ends lose each other between READY and COMMIT,
 * and a third peer, linked with both, is asked.
 */
#include "tests/check.h"

#include "averaging/pair/pair.h"
#include "base/bytes.h"
#include "peer/node/internal.h"
#include "peer/round/internal.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { PEERS = 3, VALUES = 40 };
#define SLICE_NS (NS_PER_MS / 4)

/* What one peer does to words that it passes on; see __wrap_links_send(). */
static struct links *liar;
static uint32_t told, committed, forged;

enum rc __real_links_send(struct links *links, struct peer_id to, const struct message *message);
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message);

/* The liar says the opposite of what was decided. */
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message)
{
    struct message changed = *message;

    uint8_t *state = &changed.as.outcome_told.word[2 * PEER_ID_BYTES + BOOT_ID_BYTES + 8];

    if (message->type != MESSAGE_OUTCOME_TOLD) return __real_links_send(links, to, message);
    told++;
    committed += *state == OUTCOME_COMMITTED;
    if (links == liar) {
        *state = *state == OUTCOME_COMMITTED ? OUTCOME_ABORTED : OUTCOME_COMMITTED;
        forged++;
    }
    return __real_links_send(links, to, &changed);
}

static struct exchange_counts counts_of(struct cluster *cluster, uint32_t peer)
{
    struct round_stats stats;

    round_stats(cluster_node(cluster, peer)->round, &stats);
    return stats.counts;
}

static struct cluster *start(uint64_t seed)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .latency_ns = 20 * NS_PER_MS,
                                      .values = VALUES,
                                      .step_cost_ns = 50 * NS_PER_MS,
                                      .is_quiet = true,
                                      .averaging = "local-sgd:H=16",
                                      .exchange = "pair"};
    struct cluster *cluster = cluster_create(&options);
    float plane[VALUES];

    swarm_start(cluster, PEERS);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 5 * NS_PER_S);
    for (uint32_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            plane[k] = (float)(1 + i);
        }
        cluster_assign(cluster, i, plane);
    }
    return cluster;
}

/* The next peer that has promised and waits for a decision; both it and the initiator as numbers.
 */
static bool is_promised(struct cluster *cluster, uint32_t *participant, uint32_t *initiator)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        const struct pair *pair =
            (const struct pair *)(const void *)cluster_node(cluster, i)->round->exchange;

        if (pair->state != PAIR_PREPARED) continue;
        *participant = i;
        for (uint32_t k = 0; k < PEERS; k++) {
            if (peer_id_is_equal(node_id(cluster_node(cluster, k)), pair->swap.other.id))
                *initiator = k;
        }
        return true;
    }
    return false;
}

/* From `later_ns` after the next promise on, the two ends no longer hear each other; whether the
 * initiator had decided, READY being on its way or COMMIT, depends on `later_ns`. The third. */
static uint32_t cut_the_promised(struct cluster *cluster, uint64_t seed, uint64_t later_ns)
{
    uint32_t participant = 0, initiator = 0;
    uint64_t spent_ns = 0;
    bool was_none = false; /* a promise that is there already may be any age */

    for (;;) {
        bool is_one = is_promised(cluster, &participant, &initiator);

        if (is_one && was_none) break;
        was_none |= !is_one;
        cluster_run(cluster, SLICE_NS);
        spent_ns += SLICE_NS;
        check_seed(seed, spent_ns < 60 * NS_PER_S);
    }
    cluster_run(cluster, later_ns);
    sim_block(cluster_world(cluster), participant + 1, initiator + 1, true);
    sim_block(cluster_world(cluster), initiator + 1, participant + 1, true);
    return PEERS - participant - initiator;
}

struct doubts {
    uint64_t resolved, lost;
};

static struct doubts doubts_of(struct cluster *cluster)
{
    struct doubts doubts = {0, 0};

    for (uint32_t i = 0; i < PEERS; i++) {
        doubts.resolved += counts_of(cluster, i).in_doubt_resolved;
        doubts.lost += counts_of(cluster, i).in_doubt_lost;
    }
    return doubts;
}

/* Whatever was decided, it is learned through the third while the two ends are apart, and the mean
 * of all is what it was. */
static void a_common_neighbour_is_asked(void **state)
{
    uint64_t commits = 0, seeds = 0;

    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = start(seed);
        double mean = cluster_mean(cluster);

        told = committed = 0;
        /* READY takes 20 ms; from then on COMMIT is on its way for as long. */
        (void)cut_the_promised(cluster, seed, (seed % 2 == 0 ? 5 : 25) * NS_PER_MS);
        cluster_run(cluster,
                    12 * NS_PER_S); /* a decision is waited for 5 s, and asked for at once */
        check_seed(seed, told > 0);
        check_seed(seed, doubts_of(cluster).resolved == 1);
        check_seed(seed, doubts_of(cluster).lost == 0);
        /* rounding moves it by 1e-6; an edge applied at one end alone by 0.04 and more */
        check_seed(seed, fabs(cluster_mean(cluster) - mean) < 1e-3);
        commits += committed > 0;
        seeds++;
        cluster_destroy(cluster);
    }
    if (seeds > 1) assert_true(commits > 0 && commits < seeds); /* both were seen */
}

/* A third that turns the word round is not believed, and known for it. */
static void a_forged_word_is_not_believed(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = start(seed);
        uint64_t counts[SCORE_REASONS], bans, broke = 0;
        uint32_t third = cut_the_promised(cluster, seed, (seed % 2 == 0 ? 5 : 25) * NS_PER_MS);

        liar = cluster_node(cluster, third)->links;
        forged = 0;
        cluster_run(cluster, 12 * NS_PER_S);
        check_seed(seed, forged > 0);
        check_seed(seed, doubts_of(cluster).resolved == 0);
        for (uint32_t i = 0; i < PEERS; i++) {
            trust_totals(cluster_node(cluster, i)->trust, counts, &bans);
            if (i != third) broke += counts[SCORE_BROKE];
        }
        check_seed(seed, broke > 0);
        liar = NULL;
        cluster_destroy(cluster);
    }
}

/* Nothing is said of rounds that are to come, of others' rounds, or for ever on. */
static void what_is_not_ours_to_say_is_not_said(void **state)
{
    struct cluster *cluster = start(9);
    struct node *node = cluster_node(cluster, 0);
    struct peer_id asker = node_id(cluster_node(cluster, 1));
    struct pair *pair = (struct pair *)(void *)node->round->exchange;
    struct message ask = {.type = MESSAGE_OUTCOME_ASK};

    (void)state;
    ask.as.outcome_ask.participant = asker;
    ask.as.outcome_ask.key.initiator = node->self;
    ask.as.outcome_ask.key.boot = node->options.boot;
    ask.as.outcome_ask.key.counter = pair->counter + 1;
    told = 0;
    assert_true(rounds_on_outcome(node, asker, &ask));
    assert_int_equal(told, 0);
    ask.as.outcome_ask.key.counter = 0;
    for (int i = 0; i < 100; i++) {
        assert_true(rounds_on_outcome(node, asker, &ask));
    }
    assert_in_range(told, 1, 4);
    cluster_run(cluster, 2 * NS_PER_S);
    told = 0;
    ask.as.outcome_ask.key.initiator = node_id(cluster_node(cluster, 2));
    ask.as.outcome_ask.participant = node_id(cluster_node(cluster, 2));
    assert_true(rounds_on_outcome(node, asker, &ask)); /* one hop, for the asker alone */
    cluster_run(cluster, NS_PER_S);
    assert_int_equal(told, 0);
    ask.as.outcome_ask.participant = asker;
    assert_true(rounds_on_outcome(node, asker, &ask));
    cluster_run(cluster, NS_PER_S);
    assert_true(told > 1); /* it answered, and that was passed on */
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_common_neighbour_is_asked),
        cmocka_unit_test(a_forged_word_is_not_believed),
        cmocka_unit_test(what_is_not_ours_to_say_is_not_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Shares of the data in a swarm too large for a full mesh: they are cut among all members, though
 * each is linked with some of them only, and follow where members come and go all the time.
 *   PEERS=1000 build/tests/sim_shares   (any number)
 */
#include "tests/check.h"

#include "replica/learners/quadratic.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { PEERS = 140, PEERS_MOST = 2048, SETTLE_S = 25, CHURN_S = 40, STEP_MS = 1000 };

/* Among how many each peer's share was cut last. */
static struct {
    struct learner *learner;
    size_t members;
    bool includes_self;
} peers[PEERS_MOST];
static struct learner_ops ops;

static uint32_t peers_count(void)
{
    const char *text = getenv("PEERS");
    uint32_t count = text == NULL ? PEERS : (uint32_t)strtoul(text, NULL, 10);

    assert_true(count <= PEERS_MOST);
    return count;
}

static enum rc count_members(struct learner *learner, struct peer_id self,
                             const struct peer_id *members, size_t members_count, struct fault *why)
{
    (void)why;
    for (uint32_t i = 0; i < PEERS_MOST; i++) {
        if (peers[i].learner != learner) continue;
        peers[i].members = members_count;
        peers[i].includes_self = false;
        for (size_t k = 0; k < members_count; k++) {
            peers[i].includes_self |= peer_id_is_equal(members[k], self);
            if (k > 0) assert_true(peer_id_compare(members[k - 1], members[k]) < 0);
        }
    }
    return RC_OK;
}

static struct learner *make_learner(void *context, uint32_t peer)
{
    struct quadratic_options options = {
        .values = 20, .seed = 1, .stream_seed = 1 + peer, .curvature = 1, .learning_rate = 0.1};

    (void)context;
    assert_int_equal(quadratic_create(&options, &peers[peer].learner), RC_OK);
    ops = *peers[peer].learner->ops;
    ops.reshard = count_members;
    peers[peer].learner->ops = &ops;
    peers[peer].members = 0;
    return peers[peer].learner;
}

/* What the epochs of all live peers are of the data together, 1 being each sample once. */
static double coverage(struct cluster *cluster, uint32_t count)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!cluster_is_up(cluster, i)) continue;
        assert_true(peers[i].members > 0 && peers[i].includes_self);
        sum += 1 / (double)peers[i].members;
    }
    return sum;
}

static void all_members_have_one_share_each(void **state)
{
    uint32_t count = peers_count(), gone = 0;
    struct cluster_options options = {.peers = count,
                                      .seed = seed_first(),
                                      .averaging = "none",
                                      .values = 20,
                                      .step_cost_ns = STEP_MS * NS_PER_MS,
                                      .latency_ns = NS_PER_MS,
                                      .learner = make_learner};
    struct cluster *cluster = cluster_create(&options);
    const uint32_t first = 0;
    double still, moving;

    (void)state;
    swarm_start(cluster, count);
    cluster_run(cluster, SETTLE_S * NS_PER_S);
    still = coverage(cluster, count);
    for (uint32_t second = 0; second < CHURN_S; second++) { /* one leaves, or comes back */
        if (second % 2 == 0) {
            gone = 1 + second * 7 % (count - 1);
            cluster_stop(cluster, gone);
        } else {
            cluster_start(cluster, gone, &first, 1);
        }
        cluster_run(cluster, NS_PER_S);
    }
    cluster_run(cluster, 5 * NS_PER_S);
    moving = coverage(cluster, count);
    printf("%u peers: an epoch of all is %.3f of the data, %.3f where a member comes or goes each "
           "second\n",
           count, still, moving);
    assert_true(fabs(still - 1) < 0.02);
    assert_true(fabs(moving - 1) < 0.02);
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_have_one_share_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

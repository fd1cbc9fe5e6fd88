/* What one member, or one address, can do to those who come, and whom it can have dialled. */
#include "tests/check.h"

#include "tests/sim/hostile.h"
#include "tests/sim/swarm.h"

#include "peer/link/internal.h"

enum { HONEST = 2, NEWCOMER = HONEST, PEERS, GUEST = PEERS, VALUES = 1000 };

static struct cluster *trained(uint64_t seed)
{
    struct cluster_options options = {.peers = PEERS,
                                      .guests = 1,
                                      .seed = seed,
                                      .latency_ns = 5 * NS_PER_MS,
                                      .values = VALUES,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .averaging = "local-sgd:H=4"};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, HONEST);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
    return cluster;
}

static void do_nothing(struct hostile *hostile, const struct hostile_target *to)
{
    (void)hostile, (void)to;
}

static enum rc refuse(void *context, struct peer_id peer, const struct hello *hello,
                      const char *address, bool is_dialled, struct fault *why)
{
    (void)context, (void)peer, (void)hello, (void)address, (void)is_dialled;
    return fault_set(why, RC_REFUSED, "nobody is wanted here");
}

static const struct hostile_behaviour refuser = {"refuses", do_nothing, NULL, false, true};

/* At an address of its own, where it can be dialled. */
static struct hostile *listener(struct cluster *cluster, uint32_t targets,
                                const struct hostile_behaviour *behaviour)
{
    struct env *env = cluster_guest(cluster, 0);
    struct hostile *hostile = hostile_create(env, cluster_swarm(cluster), cluster_strategy(cluster),
                                             VALUES, 1, targets, behaviour);
    char address[ADDRESS_BYTES_MAX], bound[ADDRESS_BYTES_MAX];
    struct fault why;

    snprintf(address, sizeof address, "sim:%u", GUEST + 1);
    assert_int_equal(env->ops->listen(env, address, bound, sizeof bound, &why), RC_OK);
    return hostile;
}

/* One address of --bootstrap that sends everybody away keeps nobody out; all of them do, at once.
 */
static void one_refusal_ends_nobody(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        const uint32_t addresses[] = {GUEST, 0};
        struct cluster *cluster = trained(seed);
        struct hostile *hostile = listener(cluster, 0, &refuser);

        hostile->links->events.on_entry = refuse;

        cluster_start(cluster, NEWCOMER, addresses, 2);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        check_seed(seed, cluster_is_up(cluster, NEWCOMER));
        cluster_crash(cluster, NEWCOMER); /* and back: the same for one with a model of its own */
        cluster_run(cluster, NS_PER_S);
        cluster_start(cluster, NEWCOMER, addresses, 2);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        check_seed(seed, cluster_is_up(cluster, NEWCOMER));
        cluster_crash(cluster, NEWCOMER);
        cluster_start(cluster, NEWCOMER, addresses, 1);
        cluster_run(cluster, 5 * NS_PER_S);
        check_seed(seed, !cluster_is_up(cluster, NEWCOMER));
        check_seed(seed, cluster_result(cluster, NEWCOMER)->rc == RC_REFUSED);
        hostile_destroy(hostile);
        cluster_destroy(cluster);
    }
}

/* A record of nobody, its signature spoilt. */
static void forge(struct hostile *hostile, const struct hostile_target *to)
{
    struct member_record record = {.incarnation = hostile->acts, .addresses_count = 0};
    struct message message = {.type = MESSAGE_GOSSIP};
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX], seed[SECRET_BYTES] = {1};
    struct identity identity;
    size_t count;

    identity_from_seed(seed, &identity);
    memcpy(record.public_key, identity.public_key, PUBLIC_KEY_BYTES);
    CHECK(record_sign(&record, &identity, hostile->swarm.run_id, bytes, sizeof bytes, &count) ==
          RC_OK);
    bytes[0] ^= 1;
    message.as.gossip.updates[0] = (struct record_ref){bytes, (uint16_t)count};
    message.as.gossip.updates_count = 1;
    hostile_say(hostile, to->id, &message);
}

static const struct hostile_behaviour forger = {.name = "forges", .act = forge};

/* Whatever a member passes on it has checked itself: who brings forged signatures is sent away. */
static void who_brings_forged_signatures_is_sent_away(void **state)
{
    struct cluster *cluster = trained(3);
    struct hostile *hostile = listener(cluster, HONEST, &forger);
    uint32_t dropped;

    (void)state;
    cluster_run(cluster, 10 * NS_PER_S);
    dropped = hostile->dropped;
    assert_in_range(dropped, HONEST, 2 * HONEST);
    cluster_run(cluster, 60 * NS_PER_S); /* it dials each second */
    assert_int_equal(hostile->dropped, dropped);
    for (uint32_t i = 0; i < HONEST; i++) {
        assert_int_equal(node_neighbours(cluster_node(cluster, i)), HONEST - 1);
    }
    hostile_destroy(hostile);
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_refusal_ends_nobody),
        cmocka_unit_test(who_brings_forged_signatures_is_sent_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Membership at size, in virtual time. The short forms gate commits; the long ones are
 *   HOURS=10 build/tests/sim_membership_scale       (nobody of 64 dies of a lossy network)
 *   MEMBERS=1000 build/tests/sim_membership_scale   (a large swarm)
 * and each prints what it measured.
 */
#include "tests/sim/membership_net.h"

static uint32_t env_number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : (uint32_t)strtoul(text, NULL, 10);
}

static struct membership_counts counts_of(const struct net *net, uint32_t index)
{
    struct membership_counts counts;

    membership_counts(net->peers[index].membership, &counts);
    return counts;
}

/* How many of those who run believe that all `others` are there, and nobody else. */
static uint32_t knowing(const struct net *net, uint32_t others)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < net->count; i++) {
        if (net->peers[i].membership == NULL || net->peers[i].is_silent) continue;
        count += counts_of(net, i).believed == others;
    }
    return count;
}

/* Run until `knowing` is as large as wanted; the seconds it took, or 0: not within `limit_ns`. */
static double run_until_known(struct net *net, uint32_t members, uint64_t limit_ns)
{
    uint64_t begun_ns = net->now_ns;

    while (knowing(net, members - 1) < members && net->now_ns < begun_ns + limit_ns) {
        net_run(net, net->now_ns + 100 * NS_PER_MS);
    }
    return knowing(net, members - 1) < members ? 0 : (double)(net->now_ns - begun_ns) / 1e9;
}

static void start_all(struct net *net)
{
    for (uint32_t i = 0; i < net->count; i++) {
        net_start(net, i, i == 0 ? 1 : (uint32_t)rng_below(&net->rng, i));
    }
}

static uint64_t deaths(const struct net *net)
{
    uint64_t died = 0;

    for (uint32_t i = 0; i < net->count; i++) {
        if (net->peers[i].membership != NULL) died += counts_of(net, i).died;
    }
    return died;
}

/* Of 64 members all know within 10 s that a process was killed, and within 25 s that a machine went
 * silent, and nobody else is given up. */
static void sixty_four_members_know_who_is_gone(void **state)
{
    struct net *net = net_create(64, seed_first());
    double killed_s, silent_s;

    (void)state;
    start_all(net);
    assert_true(run_until_known(net, 64, 10 * NS_PER_S) > 0);
    net_run(net, net->now_ns + 5 * NS_PER_S);
    net_kill(net, 7);
    killed_s = run_until_known(net, 63, 10 * NS_PER_S);
    assert_true(killed_s > 0);
    net->peers[9].is_silent = true;
    silent_s = run_until_known(net, 62, 25 * NS_PER_S);
    print_message("64 members: killed process known to all after %.1f s, silent machine %.1f s\n",
                  killed_s, silent_s);
    assert_true(silent_s > 0);
    membership_destroy(net->peers[9].membership);
    net->peers[9].membership = NULL;
    assert_int_equal(deaths(net), 62 + 62); /* each by each of the rest, once */
    net_destroy(net);
}

/* At 5 % loss, with links that stall for seconds, nobody is given up who is there. */
static void nobody_dies_of_a_lossy_network(void **state)
{
    uint64_t length_ns = (uint64_t)env_number("HOURS", 0) * 3600 * NS_PER_S;
    uint32_t members = length_ns == 0 ? 16 : 64;
    struct net *net = net_create(members, seed_first());
    uint64_t suspected = 0, messages = 0, begun_ns;

    (void)state;
    if (length_ns == 0) length_ns = 300 * NS_PER_S;
    net->loss = 0.05;
    net->latency_ns = 20 * NS_PER_MS;
    start_all(net);
    assert_true(run_until_known(net, members, 60 * NS_PER_S) > 0);
    begun_ns = net->now_ns;
    while (net->now_ns < begun_ns + length_ns) {
        net_run(net, net->now_ns + 10 * NS_PER_S);
        assert_int_equal(deaths(net), 0);
    }
    for (uint32_t i = 0; i < members; i++) {
        suspected += counts_of(net, i).suspected;
        messages += net->peers[i].messages;
    }
    print_message("%u members, %.2f h at 5 %% loss: no death, %llu suspicions, %.1f messages a "
                  "second and member\n",
                  members, (double)length_ns / 3600e9, (unsigned long long)suspected,
                  (double)messages / members / ((double)net->now_ns / 1e9));
    assert_int_equal(net->bad, 0);
    net_destroy(net);
}

static void print_traffic(struct net *net, const char *when, double seconds)
{
    uint64_t bytes = 0, most = 0;
    uint32_t links = 0, links_most = 0, running = 0;

    for (uint32_t i = 0; i < net->count; i++) {
        struct net_peer *peer = &net->peers[i];

        if (peer->membership == NULL) continue;
        running++;
        bytes += peer->bytes;
        if (peer->bytes > most) most = peer->bytes;
        links += counts_of(net, i).linked;
        if (counts_of(net, i).linked > links_most) links_most = counts_of(net, i).linked;
        peer->bytes = 0;
    }
    print_message("  %s, %.1f s: %.1f KB/s a member sent, at most %.1f; links %.1f, at most %u\n",
                  when, seconds, (double)bytes / running / seconds / 1e3,
                  (double)most / seconds / 1e3, (double)links / running, links_most);
}

/* A swarm too large for a full mesh: everyone knows everyone, with some 32 links and little traffic
 * each; a killed member is known to all. */
static void a_large_swarm_knows_itself(void **state)
{
    uint32_t members = env_number("MEMBERS", 144);
    struct net *net = net_create(members, seed_first());
    double s;

    (void)state;
    start_all(net);
    s = run_until_known(net, members, 60 * NS_PER_S);
    print_message("%u members: all known to all after %.1f s\n", members, s);
    assert_true(s > 0);
    print_traffic(net, "so far", s);
    net_run(net, net->now_ns + 10 * NS_PER_S);
    print_traffic(net, "settling", 10);
    net_run(net, net->now_ns + 10 * NS_PER_S);
    print_traffic(net, "at rest", 10);
    for (uint32_t i = 0; i < members; i++) {
        assert_true(counts_of(net, i).linked <= 64 || members <= 128);
    }
    net_kill(net, 3);
    s = run_until_known(net, members - 1, 90 * NS_PER_S);
    print_message("  killed: known to all after %.1f s\n", s);
    assert_true(s > 0);
    print_traffic(net, "meanwhile", s);
    net_destroy(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixty_four_members_know_who_is_gone),
        cmocka_unit_test(nobody_dies_of_a_lossy_network),
        cmocka_unit_test(a_large_swarm_knows_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

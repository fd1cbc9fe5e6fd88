/* sim_env: the ways and the accidents a test can choose. */
#include "tests/unit/env/sim_hosts.h"

static struct net *net_plain(uint64_t seed)
{
    struct sim_options options = {.seed = seed, .latency_ns = 10 * NS_PER_MS, .hosts_max = HOSTS};

    return net_open(&options);
}

static uint64_t step_until_frames(struct net *net, uint32_t host, unsigned count)
{
    while (net->peers[host].frames < count) {
        assert_true(sim_step(net->world));
    }
    return net->peers[host].frame_ns;
}

/* Each direction has its own latency; others keep the world's. */
static void a_path_is_one_direction(void **state)
{
    struct net *net = net_plain(1);
    struct sim_path path = {.latency_ns = 70 * NS_PER_MS};
    uint64_t begin_ns;

    (void)state;
    net_connect(net, 0, 1);
    sim_path_set(net->world, 0, 1, &path);
    begin_ns = sim_now_ns(net->world);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    send_frame(&net->peers[1], net->peers[1].link, INNER);
    assert_int_equal(step_until_frames(net, 0, 1) - begin_ns, 10 * NS_PER_MS);
    assert_int_equal(step_until_frames(net, 1, 1) - begin_ns, 70 * NS_PER_MS);
    sim_path_set(net->world, 0, 1, NULL);
    begin_ns = sim_now_ns(net->world);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    assert_int_equal(step_until_frames(net, 1, 2) - begin_ns, 10 * NS_PER_MS);
    net_destroy(net);
}

/* Two connections over one path share its rate, and two paths share the lines of their hosts. */
static void what_shares_a_line_shares_its_rate(void **state)
{
    uint64_t size = secure_record_bytes(INNER), each_ns = size * 1000;

    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* a path; a line up; a line down */
        struct net *net = net_plain(1);
        struct sim_path path = {.latency_ns = 10 * NS_PER_MS, .bytes_per_s = 1000 * 1000};
        uint64_t links[2], begin_ns;
        uint32_t senders[2] = {0, kind == 2 ? 2 : 0}, reader = kind == 1 ? 2 : 1;

        if (kind == 0) sim_path_set(net->world, 0, 1, &path);
        if (kind == 1) sim_host_rate(net->world, 0, 1000 * 1000, 0);
        if (kind == 2) sim_host_rate(net->world, 1, 0, 1000 * 1000);
        net_connect(net, 0, 1);
        links[0] = net->peers[0].link;
        net_connect(net, senders[1], reader);
        links[1] = net->peers[senders[1]].link;
        begin_ns = sim_now_ns(net->world);
        for (int i = 0; i < 2; i++) {
            send_frame(&net->peers[senders[i]], links[i], INNER);
        }
        net_wait(net, NS_PER_S);
        assert_int_equal(net->peers[reader].frame_ns - begin_ns, 2 * each_ns + 10 * NS_PER_MS);
        net_destroy(net);
    }
}

/* A lossy way loses nothing above TCP: frames come late, all of them, in order, and fewer a
 * second. */
static void loss_is_delay(void **state)
{
    uint64_t clean_ns = 0;

    (void)state;
    for (int lossy = 0; lossy < 2; lossy++) {
        struct net *net = net_plain(3);
        struct sim_path path = {.latency_ns = 10 * NS_PER_MS,
                                .bytes_per_s = 10 * 1000 * 1000,
                                .loss = lossy ? 0.05 : 0.0};
        uint64_t begin_ns = sim_now_ns(net->world), took_ns;

        net_connect(net, 0, 1);
        sim_path_set(net->world, 0, 1, &path);
        for (int i = 0; i < 100; i++) {
            send_frame(&net->peers[0], net->peers[0].link, 10000);
        }
        took_ns = step_until_frames(net, 1, 100) - begin_ns;
        if (!lossy) clean_ns = took_ns;
        if (lossy) assert_true(took_ns > clean_ns + 500 * NS_PER_MS);
        assert_int_equal(net->peers[0].lost + net->peers[1].lost, 0);
        net_destroy(net);
    }
}

/* A torn connection: over the seeds the reader gets all sorts of beginnings, but never more than
 * was sent and nothing after it was told; both ends hear of it once, in time, seldom together. */
static void a_tear_leaves_any_beginning(void **state)
{
    unsigned partial = 0, apart = 0, different = 0;
    unsigned before = 0;

    (void)state;
    FOR_EACH_SEED (seed, 50) {
        struct net *net = net_plain(seed);
        uint64_t begin_ns;
        unsigned held;

        net_connect(net, 0, 1);
        for (int i = 0; i < 20; i++) {
            send_frame(&net->peers[0], net->peers[0].link, 10000);
        }
        begin_ns = sim_now_ns(net->world);
        sim_cut_torn(net->world, 0, 1, 30 * NS_PER_MS);
        assert_int_equal(net->peers[0].lost + net->peers[1].lost, 0); /* not from inside */
        net_wait(net, NS_PER_S);
        held = net->peers[1].frames;
        check_seed(seed, held <= 20);
        partial += held > 0 && held < 20;
        different += held != before;
        before = held;
        for (int i = 0; i < 2; i++) {
            check_seed(seed, net->peers[i].lost == 1);
            check_seed(seed, net->peers[i].lost_ns <= begin_ns + 30 * NS_PER_MS);
        }
        apart += net->peers[0].lost_ns != net->peers[1].lost_ns;
        net_connect(net, 1, 0);
        check_seed(seed, net->peers[0].accepted == 1);
        net_destroy(net);
    }
    if (getenv("SEED") != NULL) return;
    assert_true(partial > sanitized_share(2) && different > sanitized_share(10));
    assert_true(apart > sanitized_share(40));
}

/* Dark connections are silent, then given up: after 20 s where something waits for an answer, after
 * 25 s where nothing does. New ones work all the while. */
static void a_dark_connection_is_given_up_in_time(void **state)
{
    struct net *net = net_plain(1);
    uint64_t begin_ns;

    (void)state;
    net_connect(net, 0, 1);
    begin_ns = sim_now_ns(net->world);
    sim_darken(net->world, 1, 0);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    net_wait(net, 19 * NS_PER_S);
    assert_int_equal(net->peers[0].lost + net->peers[1].lost, 0);
    assert_int_equal(sim_dark_count(net->world), 1);
    assert_int_equal(net->peers[1].frames, 0);
    sim_block(net->world, 0, 1, true); /* what else happens to the way changes nothing */
    sim_block(net->world, 0, 1, false);
    net_wait(net, 10 * NS_PER_S);
    assert_int_equal(net->peers[0].lost_ns - begin_ns, 20 * NS_PER_S);
    assert_int_equal(net->peers[1].lost_ns - begin_ns, 25 * NS_PER_S);
    assert_int_equal(net->peers[1].frames, 0);
    assert_int_equal(sim_dark_count(net->world), 0);
    net_connect(net, 0, 1);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    net_wait(net, NS_PER_S);
    assert_int_equal(net->peers[1].frames, 1);
    net_destroy(net);
}

/* Clocks begin anywhere, drift, and leap; alarms ring when the own clock says so. */
static void a_host_lives_by_its_own_clock(void **state)
{
    struct net *net = net_plain(1);
    struct peer *fast = &net->peers[0];
    uint64_t origin_ns = UINT64_C(1) << 50, begin_ns = sim_now_ns(net->world);

    (void)state;
    sim_clock_set(net->world, 0, origin_ns, 100000); /* a tenth too fast */
    assert_int_equal(fast->env->ops->now_ns(fast->env), origin_ns);
    fast->env->ops->wake_at(fast->env, origin_ns + 11 * NS_PER_S);
    net_wait(net, 10 * NS_PER_S - 1);
    assert_int_equal(fast->wakes, 0);
    net_wait(net, 1);
    assert_int_equal(fast->wakes, 1);
    assert_int_equal(fast->wake_ns, origin_ns + 11 * NS_PER_S);
    assert_int_equal(sim_now_ns(net->world), begin_ns + 10 * NS_PER_S);
    fast->env->ops->wake_at(fast->env, origin_ns + 3600 * NS_PER_S);
    sim_clock_set(net->world, 0, origin_ns + 4000 * NS_PER_S, -77);
    net_wait(net, 0);
    assert_int_equal(fast->wakes, 2);
    fast->env->ops->wake_at(fast->env, sim_clock_ns(net->world, 0) + NS_PER_S);
    net_wait(net, NS_PER_S);
    assert_int_equal(fast->wakes, 2); /* this clock is slow now */
    net_wait(net, NS_PER_MS);
    assert_int_equal(fast->wakes, 3);
    net_destroy(net);
}

/* A write that is interrupted leaves the old file; an interrupted append leaves a beginning. */
static void an_interrupted_write_leaves_the_old_file(void **state)
{
    struct net *net = net_plain(1);
    struct env *env = net->peers[0].env;
    struct piece old = {"old", 3}, new = {"newer", 5};
    struct fault why;
    void *bytes;
    size_t count;

    (void)state;
    assert_int_equal(env->ops->store_put(env, "file", &old, 1, &why), RC_OK);
    sim_host_faults(net->world, 0)->tears_store = true;
    assert_int_equal(env->ops->store_put(env, "file", &new, 1, &why), RC_IO);
    assert_int_equal(env->ops->store_get(env, "file", 99, &bytes, &count, &why), RC_OK);
    assert_int_equal(count, 3);
    assert_memory_equal(bytes, "old", 3);
    mem_free(bytes);
    sim_host_faults(net->world, 0)->tears_store = true;
    assert_int_equal(env->ops->store_append(env, "file", "1234", 4, 0, &why), RC_IO);
    assert_int_equal(env->ops->store_put(env, "other", &new, 1, &why), RC_OK); /* only that once */
    assert_int_equal(env->ops->store_get(env, "file", 99, &bytes, &count, &why), RC_OK);
    assert_int_equal(count, 5);
    assert_memory_equal(bytes, "old12", 5);
    mem_free(bytes);
    net_destroy(net);
}

static void what_happened_is_counted_and_printed(void **state)
{
    struct net *net = net_plain(1);
    struct sim_counts counts;
    FILE *out = tmpfile();
    char line[200];

    (void)state;
    assert_non_null(out);
    sim_trace_print(net->world, out);
    net_connect(net, 0, 1);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    net_wait(net, NS_PER_S);
    sim_counts(net->world, &counts);
    assert_int_equal(counts.frames, 1);
    assert_int_equal(counts.bytes, secure_record_bytes(INNER));
    assert_int_equal(counts.queued_bytes_max, secure_record_bytes(INNER));
    assert_int_equal(counts.connections_max, 1);
    assert_true(counts.events >= 4);
    rewind(out);
    for (int i = 0; i < 3; i++) {
        static const char *const words[] = {"host 1 accepted", "host 0 connected", "host 1 frame"};

        assert_non_null(fgets(line, sizeof line, out));
        assert_non_null(strstr(line, words[i]));
    }
    fclose(out);
    net_destroy(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_is_one_direction),
        cmocka_unit_test(what_shares_a_line_shares_its_rate),
        cmocka_unit_test(loss_is_delay),
        cmocka_unit_test(a_tear_leaves_any_beginning),
        cmocka_unit_test(a_dark_connection_is_given_up_in_time),
        cmocka_unit_test(a_host_lives_by_its_own_clock),
        cmocka_unit_test(an_interrupted_write_leaves_the_old_file),
        cmocka_unit_test(what_happened_is_counted_and_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

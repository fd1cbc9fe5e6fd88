/* sim_env: what only the simulated world promises: faults, virtual time, same seed same run. */
#include "tests/unit/env/sim_hosts.h"

static void time_on_the_way_is_latency_plus_size_over_bandwidth(void **state)
{
    /* Without jitter, to the nanosecond; the second frame waits for the first to leave. */
    struct sim_options options = {
        .seed = 1, .latency_ns = 10 * NS_PER_MS, .bytes_per_s = 1000 * 1000, .hosts_max = HOSTS};
    struct net *net = net_open(&options);
    uint64_t begin_ns, each_ns = secure_record_bytes(INNER) * 1000;

    (void)state;
    net_connect(net, 0, 1);
    begin_ns = sim_now_ns(net->world);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    while (net->peers[1].frames < 1) {
        assert_true(sim_step(net->world));
    }
    assert_int_equal(net->peers[1].frame_ns, begin_ns + each_ns + options.latency_ns);
    while (net->peers[1].frames < 2) {
        assert_true(sim_step(net->world));
    }
    assert_int_equal(net->peers[1].frame_ns, begin_ns + 2 * each_ns + options.latency_ns);
    net_destroy(net);
}

static void a_cut_loses_what_is_under_way_and_both_hear_of_it(void **state)
{
    /* Half of 100 frames got through; after the cut nothing more, one on_lost each; a new dial
     * works. */
    struct net *net = net_create(1);

    (void)state;
    net_connect(net, 0, 1);
    for (int i = 0; i < 100; i++) {
        send_frame(&net->peers[0], net->peers[0].link, 10000);
    }
    while (net->peers[1].frames < 50) {
        assert_true(sim_step(net->world));
    }
    sim_cut(net->world, 1, 0);
    net_wait(net, NS_PER_S);
    assert_int_equal(net->peers[1].frames, 50);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(net->peers[i].lost, 1);
        assert_int_equal(net->peers[i].lost_rc, RC_CLOSED);
    }
    net_connect(net, 0, 1);
    send_frame(&net->peers[0], net->peers[0].link, 100);
    net_wait(net, NS_PER_S);
    assert_int_equal(net->peers[1].frames, 51);
    net_destroy(net);
}

static void a_short_block_delays_and_a_long_one_ends_the_link(void **state)
{
    /* One-way: frames wait for 10 s and then come; blocked for good, both sides give up, in time.
     */
    struct net *net = net_create(1);

    (void)state;
    net_connect(net, 0, 1);
    sim_block(net->world, 0, 1, true);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    send_frame(&net->peers[1], net->peers[1].link, INNER); /* the other way is open */
    net_wait(net, 10 * NS_PER_S);
    assert_int_equal(net->peers[1].frames, 0);
    assert_int_equal(net->peers[0].frames, 1);
    sim_block(net->world, 0, 1, false);
    net_wait(net, 60 * NS_PER_S);
    assert_int_equal(net->peers[1].frames, 1);
    assert_int_equal(net->peers[0].lost + net->peers[1].lost, 0);
    sim_block(net->world, 0, 1, true);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    net_wait(net, 30 * NS_PER_S);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(net->peers[i].lost, 1);
        assert_int_equal(net->peers[i].lost_rc, RC_TIMEOUT);
    }
    assert_int_equal(net->peers[1].frames, 1);
    net_destroy(net);
}

static void a_dial_into_a_block_times_out(void **state)
{
    /* After 5 s, whichever direction is blocked; unknown hosts and names are not found. */
    struct net *net = net_create(1);
    struct peer *peer = &net->peers[0];
    uint64_t link, begin_ns;

    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        sim_block(net->world, way, 1 - way, true);
        begin_ns = sim_now_ns(net->world);
        assert_int_equal(peer->env->ops->dial(peer->env, "sim:1", &link), RC_OK);
        net_wait(net, 10 * NS_PER_S);
        assert_int_equal(peer->lost, way + 1);
        assert_int_equal(peer->lost_rc, RC_TIMEOUT);
        assert_int_equal(peer->lost_ns - begin_ns, 5 * NS_PER_S);
        sim_block(net->world, way, 1 - way, false);
    }
    assert_int_equal(peer->env->ops->dial(peer->env, "sim:77", &link), RC_OK);
    assert_int_equal(peer->env->ops->dial(peer->env, "example.org:1", &link), RC_OK);
    assert_int_equal(peer->lost, 2); /* not from inside the call */
    net_wait(net, NS_PER_S);
    assert_int_equal(peer->lost, 4);
    assert_int_equal(peer->lost_rc, RC_NOT_FOUND);
    net_destroy(net);
}

static void a_frozen_host_answers_nothing_and_goes_on_later(void **state)
{
    /* SIGSTOP for a minute: links stay up, frames wait, its wake-up is late but comes. */
    struct net *net = net_create(1);

    (void)state;
    net_connect(net, 0, 1);
    net->peers[1].does_answer = true;
    sim_host_freeze(net->world, 1, true);
    net->peers[1].env->ops->wake_at(net->peers[1].env, sim_now_ns(net->world) + NS_PER_S);
    for (int i = 0; i < 10; i++) {
        send_frame(&net->peers[0], net->peers[0].link, INNER);
    }
    net_wait(net, 60 * NS_PER_S);
    assert_int_equal(net->peers[1].frames + net->peers[1].wakes, 0);
    assert_int_equal(net->peers[0].frames + net->peers[0].lost, 0);
    sim_host_freeze(net->world, 1, false);
    net_wait(net, NS_PER_S);
    assert_int_equal(net->peers[1].frames, 10);
    assert_int_equal(net->peers[1].wakes, 1);
    assert_int_equal(net->peers[0].frames, 10);
    net_destroy(net);
}

static void a_frozen_reader_stops_its_sender(void **state)
{
    /* The window fills, then the queue: memory stays bounded, and all arrives in the end. */
    struct net *net = net_create(1);
    struct peer *from = &net->peers[0];
    struct blob *frame = blob_create(secure_record_bytes(100000));
    unsigned sent = 0;

    (void)state;
    memset(frame->bytes, 0, frame->count);
    store_le32(frame->bytes, 100000);
    net_connect(net, 0, 1);
    sim_host_freeze(net->world, 1, true);
    for (int i = 0; i < 100; i++) {
        while (from->env->ops->send(from->env, from->link, frame) == RC_OK) {
            sent++;
        }
        net_wait(net, NS_PER_S);
    }
    assert_true(sent * frame->count <= LINK_QUEUE_BYTES_MAX + 256 * 1024);
    from->drains = 0;
    sim_host_freeze(net->world, 1, false);
    net_wait(net, 60 * NS_PER_S);
    assert_int_equal(net->peers[1].frames, sent);
    assert_int_equal(from->drains, 1);
    blob_unref(frame);
    net_destroy(net);
}

static void a_crash_cuts_links_and_drops_timers_but_not_the_store(void **state)
{
    /* The other side hears after a latency; the new life has a fresh env, other entropy, old files.
     */
    struct net *net = net_create(1);
    struct peer *peer = &net->peers[1];
    struct env *old = peer->env;
    struct piece piece = {"kept", 4};
    uint8_t before[16], after[16];
    uint64_t link, crash_ns;
    struct fault why;
    void *bytes;
    size_t count;

    (void)state;
    net_connect(net, 0, 1);
    old->ops->entropy(old, before, sizeof before);
    assert_int_equal(old->ops->store_put(old, "file", &piece, 1, &why), RC_OK);
    old->ops->wake_at(old, sim_now_ns(net->world) + NS_PER_S);
    send_frame(&net->peers[0], net->peers[0].link, INNER);
    crash_ns = sim_now_ns(net->world);
    sim_host_crash(net->world, 1);
    sim_host_crash(net->world, 1); /* off is off */
    assert_int_equal(net->peers[0].lost, 0);
    net_wait(net, 5 * NS_PER_S);
    assert_int_equal(net->peers[0].lost, 1);
    assert_in_range(net->peers[0].lost_ns - crash_ns, 10 * NS_PER_MS, 15 * NS_PER_MS);
    assert_int_equal(peer->wakes + peer->frames + peer->lost, 0);
    assert_int_equal(old->ops->dial(old, "sim:0", &link), RC_CLOSED); /* late calls are harmless */
    old->ops->hangup(old, peer->link);
    assert_int_equal(net->peers[0].env->ops->dial(net->peers[0].env, "sim:1", &link), RC_OK);
    net_wait(net, NS_PER_S);
    assert_int_equal(net->peers[0].lost_rc, RC_REFUSED);

    peer_begin(peer, sim_host_restart(net->world, 1), 1);
    peer->env->ops->entropy(peer->env, after, sizeof after);
    assert_memory_not_equal(before, after, sizeof before);
    assert_int_equal(peer->env->ops->store_get(peer->env, "file", 10, &bytes, &count, &why), RC_OK);
    assert_int_equal(count, 4);
    mem_free(bytes);
    net_connect(net, 0, 1);
    net_destroy(net);
}

static void store_failures_are_as_many_as_asked_for(void **state)
{
    /* Two puts fail with the code asked for, the old file stays, the third works. */
    struct net *net = net_create(1);
    struct env *env = net->peers[0].env;
    struct piece pieces[2] = {{"old", 3}, {"new", 3}};
    struct fault why = {.text = ""};
    void *bytes;
    size_t count;

    (void)state;
    assert_int_equal(env->ops->store_put(env, "f", &pieces[0], 1, &why), RC_OK);
    sim_host_faults(net->world, 0)->store_failures = 2;
    sim_host_faults(net->world, 0)->store_failure = RC_DISK_FULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(env->ops->store_put(env, "f", &pieces[1], 1, &why), RC_DISK_FULL);
    }
    assert_string_not_equal(why.text, "");
    assert_int_equal(env->ops->store_get(env, "f", 10, &bytes, &count, &why), RC_OK);
    assert_memory_equal(bytes, "old", 3);
    mem_free(bytes);
    assert_int_equal(env->ops->store_put(env, "f", &pieces[1], 1, &why), RC_OK);
    net_destroy(net);
}

/* ---- jobs ---- */

struct timed_job {
    struct job job;
    struct env *env;
    uint64_t run_ns, done_ns;
};

static void timed_run(struct job *base)
{
    struct timed_job *job = (struct timed_job *)base;

    job->run_ns = job->env->ops->now_ns(job->env) + 1;
}

static void timed_done(struct job *base)
{
    struct timed_job *job = (struct timed_job *)base;

    job->done_ns = job->env->ops->now_ns(job->env);
}

static void jobs_take_their_modelled_time_and_both_times_of_running_occur(void **state)
{
    /* A slow host takes longer, lanes do not wait for each other, and over the seeds the work is
     * done now at submission and now when due. */
    unsigned early = 0, late = 0;

    (void)state;
    FOR_EACH_SEED (seed, 40) {
        struct net *net = net_create(seed);
        struct timed_job jobs[3];
        struct env *env = net->peers[2].env;

        sim_host_faults(net->world, 2)->slow = 3.0;
        for (int i = 0; i < 3; i++) {
            jobs[i] = (struct timed_job){
                .job = {.run = timed_run, .done = timed_done, .cost_ns = NS_PER_S}, .env = env};
            env->ops->submit(env, i < 2 ? LANE_TRAINING : LANE_STORE, &jobs[i].job);
        }
        net_wait(net, 10 * NS_PER_S);
        check_seed(seed, jobs[0].done_ns == 3 * NS_PER_S);
        check_seed(seed, jobs[1].done_ns == 6 * NS_PER_S);
        check_seed(seed, jobs[2].done_ns == 3 * NS_PER_S);
        check_seed(seed, jobs[0].run_ns <= jobs[1].run_ns);
        if (jobs[2].run_ns == 1) early++;
        if (jobs[2].run_ns == 3 * NS_PER_S + 1) late++;
        check_seed(seed, jobs[2].run_ns == 1 || jobs[2].run_ns == 3 * NS_PER_S + 1);
        net_destroy(net);
    }
    if (getenv("SEED") == NULL) assert_true(early > 0 && late > 0);
}

/* ---- whole runs ---- */

/* Talk, and let faults happen; the trace at the end. */
static uint64_t chaos(uint64_t seed, uint64_t faults_seed)
{
    struct net *net = net_create(seed);
    uint64_t trace, turn = faults_seed;

    for (uint32_t i = 0; i < HOSTS; i++) {
        net->peers[i].does_answer = true;
        net_connect(net, i, (i + 1) % HOSTS);
        send_frame(&net->peers[i], net->peers[i].link, INNER);
    }
    for (int i = 0; i < 60; i++) {
        uint32_t a = (uint32_t)(turn >> 8) % HOSTS, b = (uint32_t)(turn >> 16) % HOSTS;
        char address[32];
        uint64_t link;

        snprintf(address, sizeof address, "sim:%u", b);
        switch (turn % 8) {
        case 0:
            sim_cut(net->world, a, b);
            break;
        case 1:
        case 2:
            sim_block(net->world, a, b, turn % 8 == 1);
            break;
        case 3:
            sim_host_freeze(net->world, a, (turn >> 24) % 2 == 0);
            break;
        case 4:
            peer_begin(&net->peers[a], sim_host_restart(net->world, a), a);
            net->peers[a].does_answer = true;
            break;
        case 5:
            net->peers[a].env->ops->hangup(net->peers[a].env, net->peers[a].link);
            break;
        default:
            if (net->peers[a].env->ops->dial(net->peers[a].env, address, &link) == RC_OK) {
                send_frame(&net->peers[a], link, 300000);
            }
        }
        net_wait(net, (turn >> 32) % (2 * NS_PER_S));
        turn = turn * UINT64_C(6364136223846793005) + 1442695040888963407u;
    }
    trace = sim_trace(net->world);
    net_destroy(net);
    return trace;
}

static void the_same_seed_gives_the_same_run(void **state)
{
    /* Under all faults at once: equal traces for equal seeds, others for others, and no leak. */
    uint64_t last = 0;

    (void)state;
    FOR_EACH_SEED (seed, 60) {
        uint64_t first = chaos(seed, seed * 1000003);

        check_seed(seed, first == chaos(seed, seed * 1000003));
        check_seed(seed, first != chaos(seed + 1000, seed * 1000003));
        check_seed(seed, first != last);
        check_seed(seed, mem_blocks() == 0);
        last = first;
    }
}

static void an_empty_world_has_nothing_to_do(void **state)
{
    /* sim_step and sim_run say so, and time goes on all the same. */
    struct sim_options options = {.seed = 1, .hosts_max = 1};
    struct sim_world *world = sim_world_create(&options);

    (void)state;
    assert_false(sim_step(world));
    assert_false(sim_run(world, 5 * NS_PER_S));
    assert_int_equal(sim_now_ns(world), 5 * NS_PER_S);
    sim_world_destroy(world);
    sim_world_destroy(NULL);
    mem_fail_after(0);
    assert_null(sim_world_create(&options));
    mem_fail_after(1);
    assert_null(sim_world_create(&options));
    mem_fail_after(UINT64_MAX);
    assert_int_equal(mem_blocks(), 0);
}

static void a_thousand_hosts_fit(void **state)
{
    /* Each dials its eight next neighbours; one shared frame goes over every link and is never
     * copied while it waits. */
    struct sim_options options = {
        .seed = 1, .latency_ns = NS_PER_MS, .jitter_ns = NS_PER_MS, .hosts_max = 1000};
    struct sim_world *world = sim_world_create(&options);
    struct peer *peers = calloc(1000, sizeof *peers);
    struct blob *frame = blob_create(secure_record_bytes(INNER));
    unsigned frames = 0, connected = 0;

    (void)state;
    memset(frame->bytes, 0, frame->count);
    store_le32(frame->bytes, INNER);
    for (uint32_t i = 0; i < 1000; i++) {
        struct env *env = sim_host_create(world, &peers[i].host);

        peer_begin(&peers[i], env, i);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        for (uint32_t j = 1; j <= 8; j++) {
            char address[32];
            uint64_t link;

            snprintf(address, sizeof address, "sim:%u", (i + j) % 1000);
            assert_int_equal(peers[i].env->ops->dial(peers[i].env, address, &link), RC_OK);
            assert_int_equal(peers[i].env->ops->send(peers[i].env, link, frame), RC_OK);
        }
    }
    assert_int_equal(frame->references, 8001);
    (void)sim_run(world, NS_PER_S);
    for (uint32_t i = 0; i < 1000; i++) {
        frames += peers[i].frames;
        connected += peers[i].connected;
    }
    assert_int_equal(connected, 8000);
    assert_int_equal(frames, 8000);
    assert_int_equal(frame->references, 1);
    blob_unref(frame);
    sim_world_destroy(world);
    free(peers);
    assert_int_equal(mem_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_on_the_way_is_latency_plus_size_over_bandwidth),
        cmocka_unit_test(a_cut_loses_what_is_under_way_and_both_hear_of_it),
        cmocka_unit_test(a_short_block_delays_and_a_long_one_ends_the_link),
        cmocka_unit_test(a_dial_into_a_block_times_out),
        cmocka_unit_test(a_frozen_host_answers_nothing_and_goes_on_later),
        cmocka_unit_test(a_frozen_reader_stops_its_sender),
        cmocka_unit_test(a_crash_cuts_links_and_drops_timers_but_not_the_store),
        cmocka_unit_test(store_failures_are_as_many_as_asked_for),
        cmocka_unit_test(jobs_take_their_modelled_time_and_both_times_of_running_occur),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(an_empty_world_has_nothing_to_do),
        cmocka_unit_test(a_thousand_hosts_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

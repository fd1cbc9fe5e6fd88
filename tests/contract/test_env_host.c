/* The promises of peer/env/env.h about time, chance, signals, jobs and the store, on both worlds.
 */
#include "tests/contract/env_worlds.h"

#include <signal.h>

static void a_wake_up_comes_when_due_and_a_new_one_replaces_it(void **state)
{
    /* Not before its time, once, and only the last one asked for. */
    struct world *world = *state;
    struct side *side = &world->sides[0];
    uint64_t now = side->env->ops->now_ns(side->env);

    DO(side, wake_at(side->env, now + 5 * NS_PER_MS));
    DO(side, wake_at(side->env, now + 20 * NS_PER_MS));
    wait_until(world, side->wake_count == 1);
    assert_true(side->wake_ns >= now + 20 * NS_PER_MS);
    DO(side, wake_at(side->env, now + 3600 * NS_PER_S));
    DO(side, wake_at(side->env, 0)); /* long ago: as soon as possible, but not inside the call */
    assert_int_equal(side->wake_count, 1);
    wait_until(world, side->wake_count == 2);
    DO(side, wake_at(side->env, now));
    DO(side, wake_at(side->env, UINT64_MAX)); /* never */
    world_settle(world);
    assert_int_equal(side->wake_count, 2);
}

static void entropy_differs_from_draw_to_draw_and_peer_to_peer(void **state)
{
    /* Three draws of 32 bytes on two sides are all different. */
    struct world *world = *state;
    uint8_t draws[3][32];

    DO(&world->sides[0], entropy(world->sides[0].env, draws[0], 32));
    DO(&world->sides[0], entropy(world->sides[0].env, draws[1], 32));
    DO(&world->sides[1], entropy(world->sides[1].env, draws[2], 32));
    assert_memory_not_equal(draws[0], draws[1], 32);
    assert_memory_not_equal(draws[0], draws[2], 32);
    assert_memory_not_equal(draws[1], draws[2], 32);
}

static void signals_reach_the_node(void **state)
{
    /* SIGTERM becomes on_signal, on the loop. */
    struct world *world = *state;
    struct side *side = &world->sides[0];

    if (world->sim != NULL) {
        sim_signal(world->sim, world->hosts[0], SIGTERM);
    } else {
        assert_int_equal(raise(SIGTERM), 0);
    }
    wait_until(world, side->signal_count == 1);
    assert_int_equal(side->signal, SIGTERM);
}

/* ---- jobs ---- */

enum { JOBS = 60 };

struct noted_job {
    struct job job;
    struct side *side;
    unsigned number;
    enum lane lane;
    unsigned *run_last; /* of its lane: a job looks whether its predecessor has run */
    unsigned *done_last;
    unsigned *done_count;
    bool has_run, is_done;
};

static void note_run(struct job *base)
{
    struct noted_job *job = (struct noted_job *)base;

    if (*job->run_last != job->number) return; /* has_run stays false: the test sees it */
    (*job->run_last)++;
    job->has_run = true;
}

static void note_done(struct job *base)
{
    struct noted_job *job = (struct noted_job *)base;

    assert_false(job->side->is_calling);
    assert_true(job->has_run);
    assert_false(job->is_done);
    assert_int_equal(*job->done_last, job->number);
    (*job->done_last)++;
    (*job->done_count)++;
    job->is_done = true;
}

static void jobs_of_a_lane_run_and_are_done_in_order(void **state)
{
    /* Twenty jobs in each of three lanes: in order within the lane, done once, after run. */
    struct world *world = *state;
    struct side *side = &world->sides[0];
    static const uint64_t costs[] = {0, NS_PER_MS, 3 * NS_PER_MS};
    struct noted_job jobs[JOBS];
    unsigned run_last[LANE_COUNT] = {0}, done_last[LANE_COUNT] = {0}, done_count = 0;

    for (unsigned i = 0; i < JOBS; i++) {
        enum lane lane = (enum lane)(i % LANE_COUNT);

        jobs[i] = (struct noted_job){.job = {.run = note_run,
                                             .done = note_done,
                                             .cost_ns = costs[i * 7 % ARRAY_COUNT(costs)]},
                                     .side = side,
                                     .number = i / LANE_COUNT,
                                     .lane = lane,
                                     .run_last = &run_last[lane],
                                     .done_last = &done_last[lane],
                                     .done_count = &done_count};
        DO(side, submit(side->env, lane, &jobs[i].job));
    }
    assert_int_equal(done_count, 0);
    wait_until(world, done_count == JOBS);
}

struct again_job {
    struct job job;
    struct env *env;
    unsigned runs, dones;
};

static void again_run(struct job *base)
{
    ((struct again_job *)base)->runs++;
}

static void again_done(struct job *base)
{
    struct again_job *job = (struct again_job *)base;

    if (++job->dones < 5) job->env->ops->submit(job->env, LANE_STORE, base);
}

static void a_job_may_be_submitted_again_when_it_is_done(void **state)
{
    /* done() hands the same job in again, five times over. */
    struct world *world = *state;
    struct again_job job = {.job = {.run = again_run, .done = again_done, .cost_ns = 1000},
                            .env = world->sides[1].env};

    DO(&world->sides[1], submit(job.env, LANE_STORE, &job.job));
    wait_until(world, job.dones == 5);
    assert_int_equal(job.runs, 5);
}

/* ---- the store ---- */

static enum rc put_text(struct side *side, const char *name, const char *text, struct fault *why)
{
    struct piece pieces[2] = {{text, strlen(text) / 2}, {NULL, 0}};

    pieces[1].bytes = text + pieces[0].count;
    pieces[1].count = strlen(text) - pieces[0].count;
    return CALL(side, store_put(side->env, name, pieces, 2, why));
}

static void assert_stored(struct side *side, const char *name, const char *text)
{
    void *bytes = NULL;
    size_t count = 0;
    struct fault why;

    assert_int_equal(CALL(side, store_get(side->env, name, 100, &bytes, &count, &why)), RC_OK);
    assert_int_equal(count, strlen(text));
    assert_memory_equal(bytes, text, count);
    mem_free(bytes);
}

static void the_store_gives_back_what_was_put(void **state)
{
    /* Put, get, replace, append; each file on its own. */
    struct world *world = *state;
    struct side *side = &world->sides[0];
    struct fault why;

    assert_int_equal(put_text(side, "a", "first words", &why), RC_OK);
    assert_int_equal(put_text(side, "b.json", "other", &why), RC_OK);
    assert_stored(side, "a", "first words");
    assert_int_equal(put_text(side, "a", "2nd", &why), RC_OK);
    assert_stored(side, "a", "2nd");
    assert_int_equal(CALL(side, store_append(side->env, "a", " and on", 7, 0, &why)), RC_OK);
    assert_int_equal(CALL(side, store_append(side->env, "log.txt", "line\n", 5, 0, &why)), RC_OK);
    assert_stored(side, "a", "2nd and on");
    assert_stored(side, "log.txt", "line\n");
    assert_stored(side, "b.json", "other");
    for (int i = 0; i < 2; i++) { /* beyond so many bytes what was there is set aside */
        assert_int_equal(CALL(side, store_append(side->env, "log.txt", "more\n", 5, 9, &why)),
                         RC_OK);
        assert_stored(side, "log.txt", "more\n");
        assert_stored(side, "log.txt.1", i == 0 ? "line\n" : "more\n");
    }
    assert_int_equal(put_text(side, "a", "", &why), RC_OK);
    assert_stored(side, "a", "");
}

static void the_store_refuses_what_it_should(void **state)
{
    /* Missing files, files above the limit, and names that could leave the folder. */
    static const char *const names[] = {"",
                                        ".",
                                        "..",
                                        "../a",
                                        "a/b",
                                        "A",
                                        ".hidden",
                                        "a b",
                                        "a\n",
                                        ("0123456789012345678901234567890123456789"
                                         "0123456789012345678901234567890123456789")};
    struct world *world = *state;
    struct side *side = &world->sides[0];
    struct fault why;
    void *bytes = NULL;
    size_t count = 7;

    assert_int_equal(CALL(side, store_get(side->env, "none", 100, &bytes, &count, &why)),
                     RC_NOT_FOUND);
    assert_int_equal(put_text(side, "long", "eleven ch..", &why), RC_OK);
    assert_int_equal(CALL(side, store_get(side->env, "long", 10, &bytes, &count, &why)), RC_LIMIT);
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        assert_int_equal(put_text(side, names[i], "x", &why), RC_USAGE);
        assert_int_equal(CALL(side, store_get(side->env, names[i], 9, &bytes, &count, &why)),
                         RC_USAGE);
        assert_int_equal(CALL(side, store_append(side->env, names[i], "x", 1, 0, &why)), RC_USAGE);
        assert_string_not_equal(why.text, "");
    }
    assert_null(bytes);
    assert_int_equal(count, 7);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_wake_up_comes_when_due_and_a_new_one_replaces_it),
        BOTH(entropy_differs_from_draw_to_draw_and_peer_to_peer),
        BOTH(signals_reach_the_node),
        BOTH(jobs_of_a_lane_run_and_are_done_in_order),
        BOTH(a_job_may_be_submitted_again_when_it_is_done),
        BOTH(the_store_gives_back_what_was_put),
        BOTH(the_store_refuses_what_it_should),
    };

    if (argc > 1) cmocka_set_test_filter(argv[1]); /* such as "sim: *" */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

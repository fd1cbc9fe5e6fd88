/* The journal of a peer whose disk fails for a while: what there is to tell is told once, again
 * when the reason changes, and when it is over; a log that is full begins anew. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/bytes.h"
#include "peer/env/sim/env.h"
#include "peer/files/journal.h"

struct scene {
    struct sim_world *world;
    struct env *env;
    struct journal *journal;
};

static void scene_init(struct scene *scene)
{
    const struct sim_options options = {.seed = 1, .hosts_max = 1};
    const struct env_events events = {.context = NULL};
    uint32_t host;

    scene->world = sim_world_create(&options);
    assert_non_null(scene->world);
    scene->env = sim_host_create(scene->world, &host);
    scene->env->ops->set_events(scene->env, &events);
    scene->journal = journal_create(scene->env);
    assert_non_null(scene->journal);
}

static void on_idle(void *context)
{
    *(bool *)context = true;
}

/* Nothing is left to write. */
static bool is_idle(struct scene *scene)
{
    bool is_idle = false;

    journal_when_idle(scene->journal, on_idle, &is_idle);
    return is_idle;
}

static void scene_deinit(struct scene *scene)
{
    assert_true(is_idle(scene));
    journal_destroy(scene->journal);
    sim_world_destroy(scene->world);
}

/* A report's worth of writing, the first `failures` of it in vain. */
static enum journal_news write_some(struct scene *scene, uint32_t failures, enum rc rc,
                                    struct fault *why)
{
    sim_host_faults(scene->world, 0)->store_failures = failures;
    sim_host_faults(scene->world, 0)->store_failure = rc;
    journal_add(scene->journal, "log.txt", "a line", 0);
    journal_replace(scene->journal, "swarm.json", "{}");
    sim_run(scene->world, sim_now_ns(scene->world) + NS_PER_S);
    assert_true(is_idle(scene));
    return journal_news(scene->journal, why);
}

static void a_failing_disk_is_told_once(void **state)
{
    struct scene scene;
    struct fault why = {""};

    (void)state;
    scene_init(&scene);
    assert_int_equal(write_some(&scene, 0, RC_IO, &why), JOURNAL_NOTHING);
    assert_int_equal(write_some(&scene, 2, RC_DISK_FULL, &why), JOURNAL_FAILS);
    assert_non_null(strstr(why.text, "cannot write "));
    assert_int_equal(write_some(&scene, 2, RC_DISK_FULL, &why), JOURNAL_NOTHING);
    assert_int_equal(write_some(&scene, 1, RC_DISK_FULL, &why), JOURNAL_NOTHING); /* one of two */
    assert_int_equal(write_some(&scene, 2, RC_IO, &why), JOURNAL_FAILS);
    assert_int_equal(journal_news(scene.journal, &why), JOURNAL_NOTHING); /* nothing was written */
    assert_int_equal(write_some(&scene, 0, RC_IO, &why), JOURNAL_WORKS);
    assert_int_equal(write_some(&scene, 0, RC_IO, &why), JOURNAL_NOTHING);
    assert_int_equal(write_some(&scene, 2, RC_IO, &why), JOURNAL_FAILS); /* and from the start */
    scene_deinit(&scene);
}

static void a_full_log_begins_anew(void **state)
{
    struct scene scene;
    struct fault why;
    void *bytes;
    size_t count;

    (void)state;
    scene_init(&scene);
    for (int i = 0; i < 5; i++) {
        journal_add(scene.journal, "log.txt", "ten bytes", 25);
    }
    sim_run(scene.world, NS_PER_S);
    assert_int_equal(scene.env->ops->store_get(scene.env, "log.txt", 99, &bytes, &count, &why),
                     RC_OK);
    assert_int_equal(count, 10);
    mem_free(bytes);
    assert_int_equal(scene.env->ops->store_get(scene.env, "log.txt.1", 99, &bytes, &count, &why),
                     RC_OK);
    assert_int_equal(count, 20);
    mem_free(bytes);
    scene_deinit(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_disk_is_told_once),
        cmocka_unit_test(a_full_log_begins_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

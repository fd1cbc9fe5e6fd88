/* Tests of peer/files/checkpoint: a peer that goes on from its files goes on to the bit. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "peer/env/sim/env.h"
#include "peer/files/checkpoint.h"
#include "replica/learners/replica.h"

#include <math.h>

enum { BEFORE = 7, AFTER = 5 };

struct world {
    struct backend *backend;
    struct sim_world *sim;
    struct env *env;
};

static int set_up(void **state)
{
    static const struct cpu_backend_options cpu = {.threads = 1};
    static const struct sim_options sim = {.seed = 1, .hosts_max = 1};
    struct world *world = mem_alloc(sizeof *world);
    uint32_t host;

    world->backend = cpu_backend_create(&cpu);
    world->sim = sim_world_create(&sim);
    world->env = sim_host_create(world->sim, &host);
    *state = world;
    return world->backend == NULL || world->env == NULL;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    sim_world_destroy(world->sim);
    backend_destroy(world->backend);
    mem_free(world);
    return 0;
}

static struct learner *make(struct world *world, const char *model)
{
    const struct replica_options options = {.model = model,
                                            .data = "digits",
                                            .shard_of = "0/2",
                                            .seed = 3,
                                            .stream_seed = 4,
                                            .threads = 1};
    struct learner *learner = NULL;
    struct fault why = {""};

    if (replica_create(world->backend, &options, &learner, &why) != RC_OK) {
        fail_msg("%s", why.text);
    }
    return learner;
}

static void train(struct learner *learner, uint32_t steps)
{
    struct train_report report;

    assert_int_equal(learner->ops->train(learner, steps, NULL, &report), RC_OK);
    assert_int_equal(report.steps, steps);
}

static void check_equal(struct learner *a, struct learner *b, enum section section)
{
    const size_t count = a->ops->schema(a)->values[section];
    float *x = mem_array(count, sizeof(float)), *y = mem_array(count, sizeof(float));

    assert_int_equal(a->ops->export_section(a, section, x, count), RC_OK);
    assert_int_equal(b->ops->export_section(b, section, y, count), RC_OK);
    assert_memory_equal(x, y, count * sizeof(float));
    mem_free(x);
    mem_free(y);
}

static void a_resumed_peer_trains_on_to_the_bit(void **state)
{
    /* Proves: parameters, running statistics, moments and dropout's stream are all in the
     * checkpoint: steps after resuming are those of the run that was not interrupted. */
    static const char *const models[] = {
        "linear:classes",
        "conv3x3:4 bn relu globalpool linear:classes",
        "linear:16 relu dropout:0.5 linear:classes",
        "linear:16 bn:8 relu dropout:0.25 linear:classes",
    };
    static const enum section sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_MOMENTS};
    struct world *world = *state;

    for (size_t m = 0; m < ARRAY_COUNT(models); m++) {
        struct learner *whole = make(world, models[m]), *resumed = make(world, models[m]);
        const struct checkpoint saved = {.model_samples = 42, .round = 3, .own_steps = BEFORE};
        struct checkpoint loaded = {0};
        struct fault why = {""};

        train(whole, BEFORE);
        assert_int_equal(checkpoint_save(world->env, whole, &saved, NULL, NULL, &why), RC_OK);
        train(whole, AFTER);
        if (checkpoint_load(world->env, resumed, &loaded, &why) != RC_OK) fail_msg("%s", why.text);
        assert_int_equal(loaded.model_samples, 42);
        assert_int_equal(loaded.round, 3);
        assert_int_equal(loaded.own_steps, BEFORE);
        train(resumed, AFTER);
        for (size_t s = 0; s < ARRAY_COUNT(sections); s++) {
            check_equal(whole, resumed, sections[s]);
        }
        checkpoint_deinit(&loaded);
        whole->ops->destroy(whole);
        resumed->ops->destroy(resumed);
    }
}

/* A period that follows the loss: to the bit; without one there is none. */
static void a_period_goes_on(void **state)
{
    const struct period period = {.steps = 7,
                                  .own = {.loss = 0.1, .first = 2.302585, .steps = 6},
                                  .loss_sum = 1.0 / 3,
                                  .loss_steps = 11,
                                  .is_owed = true,
                                  .is_late = true};
    struct world *world = *state;
    struct learner *learner = make(world, "linear:classes");
    struct fault why = {""};

    for (int has = 0; has < 2; has++) {
        const struct checkpoint saved = {.has_period = has == 1, .period = period};
        struct checkpoint loaded = {0};

        assert_int_equal(checkpoint_save(world->env, learner, &saved, NULL, NULL, &why), RC_OK);
        assert_int_equal(checkpoint_load(world->env, learner, &loaded, &why), RC_OK);
        assert_int_equal(loaded.has_period, has);
        if (has == 1) {
            assert_int_equal(loaded.period.steps, 7);
            assert_true(loaded.period.own.loss == 0.1 && loaded.period.own.first == 2.302585);
            assert_int_equal(loaded.period.own.steps, 6);
            assert_true(loaded.period.loss_sum == 1.0 / 3 && loaded.period.loss_steps == 11);
            assert_true(loaded.period.is_owed && loaded.period.is_late);
        }
        checkpoint_deinit(&loaded);
    }
    learner->ops->destroy(learner);
}

static void another_model_and_broken_statistics_are_refused(void **state)
{
    /* Proves: statistics that are no numbers are not written over a good checkpoint, and a
     * checkpoint of another model is refused with what to do. */
    struct world *world = *state;
    struct learner *learner = make(world, "linear:8 bn linear:classes");
    struct learner *other = make(world, "linear:8 relu linear:classes");
    const struct checkpoint saved = {.own_steps = 1};
    struct checkpoint loaded = {0};
    struct fault why = {""};
    float poison[16];

    assert_int_equal(checkpoint_save(world->env, learner, &saved, NULL, NULL, &why), RC_OK);
    assert_int_equal(checkpoint_load(world->env, other, &loaded, &why), RC_MISMATCH);
    assert_non_null(strstr(why.text, "--out"));
    for (size_t i = 0; i < ARRAY_COUNT(poison); i++) {
        poison[i] = NAN;
    }
    assert_int_equal(
        learner->ops->assign_section(learner, SECTION_BUFFERS, poison, ARRAY_COUNT(poison)), RC_OK);
    assert_int_equal(checkpoint_save(world->env, learner, &saved, NULL, NULL, &why), RC_NONFINITE);
    assert_int_equal(checkpoint_load(world->env, learner, &loaded, &why), RC_OK);
    train(learner, 1);
    checkpoint_deinit(&loaded);
    learner->ops->destroy(learner);
    other->ops->destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_peer_trains_on_to_the_bit),
        cmocka_unit_test(a_period_goes_on),
        cmocka_unit_test(another_model_and_broken_statistics_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

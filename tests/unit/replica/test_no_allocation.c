/* Training takes all its memory at the start. */
#include "tests/unit/replica/learners.h"

#include "base/check.h"

/* After two steps more of them come with no memory to be had, whatever is trained, however its
 * gradients are gathered, over the border of epochs, on one thread and on two. */
static void steps_take_no_memory(void **state)
{
    static const struct {
        const char *model, *data, *optimizer, *schedule;
        uint32_t accumulate, hogwild;
    } cases[] = {
        {"mlp", "digits", "momentum", NULL, 1, 0},
        {"conv3x3:8 bn relu [ conv3x3:8 bn:4 relu ]+ maxpool2 dropout:0.2 linear:classes", "digits",
         "adamw", "cosine:warmup=3", 3, 0},
        {"conv3x3:8,groups=1,wn=1 gn:2 silu local3x3:3 avgpool2 [ linear:classes ]*3", "digits",
         "lamb", NULL, 1, 0},
        {"rows [ ln attention:2,rotary=1 ]+ gru:7 last linear:classes", "digits", "lars", NULL, 2,
         0},
        {"embed:8 positions:16 [ ln attention:2 ]+ last linear:classes,tied=1", "synthetic:parity",
         "muon", NULL, 1, 0},
        {"embed:8 lstm:9 rnn:6,truncate=3 last linear:classes", "synthetic:parity", "adam",
         "grow:every=40%,factor=2,max=4", 1, 0},
        {"linear:8 relu linear:classes", "digits", "sgd", NULL, 1, 2},
    };

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_COUNT(cases); i++) {
        bool is_wide = i % 2 == 1 && cases[i / 2].hogwild == 0;
        struct cpu_backend_options threads = {.threads = is_wide ? 2 : 1};
        struct backend *cpu = cpu_backend_create(&threads);
        struct replica_options options = {.model = cases[i / 2].model,
                                          .data = cases[i / 2].data,
                                          .optimizer = cases[i / 2].optimizer,
                                          .schedule = cases[i / 2].schedule,
                                          .shard = "all",
                                          .augment = "",
                                          .steps_total = 20,
                                          .batch = 96,
                                          .clip = 1.0,
                                          .accumulate = cases[i / 2].accumulate,
                                          .hogwild = cases[i / 2].hogwild,
                                          .prefetch = i % 2 == 0 ? PREFETCH_OFF : PREFETCH_ON,
                                          .seed = 1};
        struct learner *learner = make(cpu, &options);
        struct train_report report = {0};
        uint64_t blocks;
        enum rc rc;

        (void)train(learner, 2);
        blocks = mem_blocks();
        mem_fail_after(0);
        rc = learner->ops->train(learner, 18, NULL, &report);
        mem_fail_after(UINT64_MAX);
        if (rc != RC_OK) fail_msg("%s: %s", options.model, rc_text(rc));
        assert_int_equal(report.steps, 18);
        assert_int_equal(mem_blocks(), blocks);
        learner->ops->destroy(learner);
        backend_destroy(cpu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_take_no_memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

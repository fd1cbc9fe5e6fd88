/* A round whose exchange says what the test tells it to say, in a world whose jobs run when told.
 */
#ifndef GRAPEVINE_TESTS_UNIT_PEER_ROUND_STAGE_H
#define GRAPEVINE_TESTS_UNIT_PEER_ROUND_STAGE_H

#include "tests/check.h"

#include "base/check.h"
#include "averaging/strategy/methods.h"
#include "base/mem.h"
#include "base/norm.h"
#include "gossip/signed/hello.h"
#include "peer/round/internal.h"

#include <math.h>
#include "replica/optimizer/optimizer.h"

#include <stdio.h>

enum { VALUES = 1000, JOBS_MAX = 8 };

/* An exchange that says what the test tells it to say. */
struct puppet {
    struct exchange base;
    struct command next[2];
    uint32_t next_count, cancels, restarts;
    enum rc wants_rc;
};

static inline struct puppet *the_puppet(struct exchange *exchange)
{
    return (struct puppet *)(void *)exchange;
}

static inline struct exchange *puppet_create(const struct exchange_options *options);

static inline void puppet_destroy(struct exchange *exchange)
{
    mem_free(exchange);
}

static inline void puppet_speak(struct exchange *exchange, struct commands *out)
{
    struct puppet *puppet = the_puppet(exchange);

    for (uint32_t i = 0; i < puppet->next_count; i++) {
        struct command *command = commands_add(out, puppet->next[i].type);

        assert_non_null(command);
        *command = puppet->next[i];
    }
    puppet->next_count = 0;
}

static inline void puppet_tick(struct exchange *exchange, uint64_t now_ns, struct commands *out)
{
    (void)now_ns;
    puppet_speak(exchange, out);
}

static inline void puppet_cancel(struct exchange *exchange, const char *reason, uint64_t now_ns,
                                 struct commands *out)
{
    (void)reason;
    (void)now_ns;
    the_puppet(exchange)->cancels++;
    puppet_speak(exchange, out);
}

static inline enum rc puppet_begin(struct exchange *exchange, const struct round_members *members,
                                   uint64_t samples, uint64_t now_ns, struct commands *out)
{
    (void)samples;
    (void)now_ns;
    (void)out;
    the_puppet(exchange)->restarts += members->begins_anew;
    return RC_OK;
}

static inline void puppet_on_job_done(struct exchange *exchange, enum exchange_job job,
                                      uint32_t first, enum rc rc, struct digest hash,
                                      uint64_t now_ns, struct commands *out)
{
    (void)job;
    (void)first;
    (void)hash;
    (void)now_ns;
    assert_int_equal(rc, the_puppet(exchange)->wants_rc); /* RC_OK, but where out of memory */
    puppet_speak(exchange, out);
}

static inline enum exchange_state puppet_state(const struct exchange *exchange)
{
    (void)exchange;
    return EXCHANGE_IDLE;
}

static const struct exchange_ops puppet_ops = {.name = "puppet",
                                               .promises_max = 1,
                                               .create = puppet_create,
                                               .destroy = puppet_destroy,
                                               .tick = puppet_tick,
                                               .cancel = puppet_cancel,
                                               .on_job_done = puppet_on_job_done,
                                               .state = puppet_state};

static const struct exchange_ops graph_ops = {.name = "graph puppet",
                                              .is_graph = true,
                                              .has_mirrors = true,
                                              .promises_max = GROUP_MEMBERS_MAX,
                                              .create = puppet_create,
                                              .destroy = puppet_destroy,
                                              .tick = puppet_tick,
                                              .cancel = puppet_cancel,
                                              .begin = puppet_begin,
                                              .on_job_done = puppet_on_job_done,
                                              .state = puppet_state};

static const struct exchange_ops group_ops = {.name = "group puppet",
                                              .is_group = true,
                                              .has_mean = true,
                                              .clips_chunks = true,
                                              .create = puppet_create,
                                              .destroy = puppet_destroy,
                                              .tick = puppet_tick,
                                              .cancel = puppet_cancel,
                                              .on_job_done = puppet_on_job_done,
                                              .state = puppet_state};

/* A world whose jobs run when the test says so. */
struct stage {
    struct env env;
    struct job *jobs[JOBS_MAX];
    uint32_t jobs_count;
    struct round *round;
    struct puppet *puppet;
    struct strategy strategy;
    struct log log;
};

static inline uint64_t stage_now_ns(struct env *env)
{
    (void)env;
    return 1;
}

static inline void stage_submit(struct env *env, enum lane lane, struct job *job)
{
    struct stage *stage = (struct stage *)(void *)env;

    assert_int_equal(lane, LANE_EXCHANGE);
    assert_true(stage->jobs_count < JOBS_MAX);
    stage->jobs[stage->jobs_count++] = job;
}

static const struct env_ops stage_ops = {.now_ns = stage_now_ns, .submit = stage_submit};

static inline struct exchange *puppet_create(const struct exchange_options *options)
{
    struct puppet *puppet = mem_alloc(sizeof *puppet);

    (void)options;
    return puppet == NULL ? NULL : &puppet->base;
}

static inline void on_change(void *context)
{
    (void)context;
}

static inline void on_line(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static inline void stage_work(struct stage *stage)
{
    while (stage->jobs_count > 0) {
        struct job *job = stage->jobs[0];

        stage->jobs_count--;
        memmove(stage->jobs, stage->jobs + 1, stage->jobs_count * sizeof stage->jobs[0]);
        job->run(job);
        job->done(job);
    }
}

static inline void say(struct stage *stage, struct command command)
{
    stage->puppet->next[stage->puppet->next_count++] = command;
    round_tick(stage->round);
}

static inline struct command over(enum over_result result, bool is_late)
{
    static const uint8_t bitmap[1] = {1};
    struct command command = {.type = COMMAND_OVER};

    command.over = (struct command_over){.result = result,
                                         .is_late = is_late,
                                         .key.counter = 5,
                                         .bitmap = bitmap,
                                         .bitmap_bytes = 1,
                                         .scale = 1};
    return command;
}

static inline void stage_set_up(struct stage *stage, const struct strategy_specs *specs,
                                const struct exchange_ops *ops)
{
    struct round_options options = {.env = &stage->env,
                                    .values = VALUES,
                                    .parameters = VALUES,
                                    .log = &stage->log,
                                    .on_change = on_change};
    struct fault why;

    *stage = (struct stage){.env.ops = &stage_ops, .log = {LOG_ERROR, on_line, NULL}};
    assert_int_equal(strategy_parse(specs, &stage->strategy, &why), RC_OK);
    stage->strategy.exchange = ops;
    options.strategy = &stage->strategy;
    stage->round = round_create(&options);
    assert_non_null(stage->round);
    stage->puppet = the_puppet(stage->round->exchange);
    stage->puppet->base.ops = ops;
}

/* A round with its snapshot taken and encoded. */
static inline void stage_set(struct stage *stage, const char *codec)
{
    static const char *const name = "local-sgd";
    const struct strategy_specs specs = {.averaging = name, .exchange = "pair", .codec = codec};

    stage_set_up(stage, &specs, &puppet_ops);
}

static inline void stage_snapshot(struct stage *stage)
{
    say(stage, (struct command){.type = COMMAND_SNAPSHOT});
    assert_true(round_wants_snapshot(stage->round));
    memset(round_snapshot_buffer(stage->round), 0, VALUES * sizeof(float));
    round_on_snapshot(stage->round, RC_OK);
    stage_work(stage);
}

static inline struct command torn_edge(uint64_t counter)
{
    struct command command = {.type = COMMAND_EDGE};

    command.edge.weight = 0.25f;
    command.edge.is_in_doubt = true;
    command.edge.key.counter = counter;
    return command;
}

#endif

/*
 * Members of the library: two of them in one process, each with a trainer's thread of its own, have
 * one model in the end; what is misused is an error; what NaN does; a fork; signals.
 */
#include "tests/check.h"
#include "tests/unit/library/toy.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct trainer {
    struct toy toy;
    char config[600];
    int event;
    gv_status_view status;
};

static void *train(void *context)
{
    struct trainer *trainer = context;
    struct toy *toy = &trainer->toy;

    trainer->event = gv_open(trainer->config, &toy->member);
    if (trainer->event == 0) trainer->event = gv_start(toy->member, toy->tensors, 3);
    if (trainer->event == 0) trainer->event = toy_until(toy, GV_ENDED);
    trainer->status.size = sizeof trainer->status;
    if (trainer->event >= 0) (void)gv_status(toy->member, &trainer->status);
    if (trainer->event < 0) print_error("%s\n", gv_last_error(toy->member));
    gv_close(toy->member);
    return NULL;
}

/* Two trainers of one process pull to 1 and to 3; what they average is between. */
static void two_members_have_one_model(const char *method)
{
    static struct trainer other;
    struct toy toy;
    char config[256];
    pthread_t thread;
    gv_status_view status = {.size = sizeof status};

    toy_init(&toy, 5.0F, 1.0F);
    snprintf(config, sizeof config,
             "averaging = %s\nlisten = 127.0.0.1:0\nsteps = 60\nstart-with = 2\nquiet = yes\n",
             method);
    must(NULL, gv_open(config, &toy.member));
    must(toy.member, gv_start(toy.member, toy.tensors, 3));
    must(toy.member, gv_status(toy.member, &status));

    other = (struct trainer){.event = 0};
    toy_init(&other.toy, -7.0F, 3.0F);
    snprintf(other.config, sizeof other.config, "%sbootstrap = %s\n", config, status.address);
    assert_int_equal(pthread_create(&thread, NULL, train, &other), 0);
    assert_int_equal(toy_until(&toy, GV_ENDED), GV_ENDED);
    must(toy.member, gv_status(toy.member, &status));
    gv_close(toy.member);
    assert_int_equal(pthread_join(thread, NULL), 0);

    assert_int_equal(other.event, GV_ENDED);
    assert_true(status.rounds_ok > 0 && other.status.rounds_ok > 0);
    assert_int_equal(status.own_steps, 60);
    assert_true(status.bytes_sent > 0);
    /* Alone each would be where it is pulled to, 2 from the other. */
    for (int i = 0; i < WIDTH; i++) {
        assert_float_equal(other.toy.weight[i], toy.weight[i], 0.3F);
    }
    for (int i = 0; i < MEANS; i++) { /* one took the model of the other */
        assert_float_equal(toy.mean[i], other.toy.mean[i], 1e-5F);
        assert_float_equal(toy.variance[i], other.toy.variance[i], 1e-5F);
    }
}

static void members_average_by_local_sgd(void **state)
{
    (void)state;
    two_members_have_one_model("local-sgd:H=5");
}

static void members_average_by_diloco(void **state)
{
    (void)state;
    two_members_have_one_model("diloco:H=5");
}

/* ---- one alone ---- */

static void each_step_is_in_the_status_at_once(void **state)
{
    struct toy toy;
    gv_status_view status = {.size = sizeof status};

    (void)state;
    toy_init(&toy, 5.0F, 1.0F);
    toy_start(&toy, ALONE);
    for (uint64_t i = 1; i <= 300; i++) { /* of several series */
        assert_int_equal(toy_until(&toy, GV_STEP), GV_STEP);
        must(toy.member, toy_step(&toy));
        must(toy.member, gv_status(toy.member, &status));
        assert_int_equal(status.step, i);
        assert_int_equal(status.own_steps, i);
        assert_int_equal(status.samples, 8 * i);
    }
    gv_close(toy.member);
}

static void config_that_is_wrong_is_refused(void **state)
{
    static const struct {
        const char *config, *says;
    } wrong[] = {
        {"averagin = none\n", "averaging"},         {"batch = 4\n", "decided by the program"},
        {"dial-command = nc %h %p\n", "use proxy"}, {"model = cnn\n", "give both"},
        {"steps = many\n", "not a count"},          {"[peer\n", "config"},
    };
    gv_member *member = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(gv_open(wrong[i].config, &member), GV_USAGE);
        assert_null(member);
        assert_non_null(strstr(gv_last_error(NULL), wrong[i].says));
    }
    assert_int_equal(gv_open(NULL, &member), GV_USAGE);
    assert_int_equal(gv_open(ALONE, NULL), GV_USAGE);
}

static void methods_that_need_more_are_refused(void **state)
{
    static const char *const methods[] = {"gradient-tracking", "qg-dsgd", "codistill", "pbt"};
    struct toy toy;
    char config[128];

    (void)state;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        toy_init(&toy, 0.0F, 0.0F);
        snprintf(config, sizeof config, "averaging = %s\nlisten = 127.0.0.1:0\nquiet = yes\n",
                 methods[i]);
        must(NULL, gv_open(config, &toy.member));
        assert_int_equal(gv_start(toy.member, toy.tensors, 3), GV_USAGE);
        assert_true(gv_last_error(toy.member)[0] != '\0');
        gv_close(toy.member);
    }
}

static void tensors_that_are_wrong_are_refused(void **state)
{
    struct toy toy;

    (void)state;
    for (int i = 0; i < 6; i++) {
        toy_init(&toy, 0.0F, 0.0F);
        if (i == 0) toy.tensors[0].name = NULL;
        if (i == 1) toy.tensors[0].rank = 5;
        if (i == 2) toy.tensors[0].dtype = 9;
        if (i == 3) toy.tensors[0].shape[1] = 0;
        if (i == 4) toy.tensors[1].name = toy.tensors[0].name;
        if (i == 5) toy.tensors[0].kind = GV_BUFFER;
        must(NULL, gv_open(ALONE, &toy.member));
        assert_int_equal(gv_start(toy.member, toy.tensors, 3), GV_USAGE);
        assert_int_equal(gv_start(toy.member, toy.tensors, 3), GV_USAGE);
        assert_int_equal(gv_wait(toy.member), GV_USAGE);
        gv_close(toy.member);
    }
    assert_int_equal(gv_start(NULL, toy.tensors, 3), GV_USAGE);
}

static void calls_that_are_not_due_are_errors(void **state)
{
    struct toy toy;
    float plane[WIDTH + 2 * MEANS];
    gv_status_view status = {.size = 1};
    size_t parameters, buffers, needed;

    (void)state;
    toy_init(&toy, 0.0F, 0.0F);
    must(NULL, gv_open(ALONE, &toy.member));
    assert_int_equal(gv_poll(toy.member), GV_USAGE);
    assert_int_equal(gv_step(toy.member, 1, 0.0), GV_USAGE);
    assert_int_equal(gv_leave(toy.member), GV_USAGE);
    assert_int_equal(gv_values(toy.member, &parameters, &buffers), GV_USAGE);
    gv_close(toy.member);
    toy_start(&toy, ALONE);
    assert_int_equal(toy_until(&toy, GV_STEP), GV_STEP);
    assert_int_equal(gv_snapshot(toy.member), GV_USAGE);
    assert_int_equal(gv_snapshot_from(toy.member, plane), GV_USAGE);
    assert_int_equal(gv_apply(toy.member), GV_USAGE);
    assert_int_equal(gv_apply_into(toy.member, plane), GV_USAGE);
    assert_int_equal(gv_status(toy.member, &status), GV_USAGE);
    assert_int_equal(gv_status(toy.member, NULL), GV_USAGE);
    assert_int_equal(gv_json(toy.member, NULL, 0, &needed), GV_TOO_SMALL);
    assert_true(needed > 2);
    must(toy.member, gv_values(toy.member, &parameters, &buffers));
    assert_int_equal(parameters, WIDTH);
    assert_int_equal(buffers, 2 * MEANS);
    assert_true(toy_step(&toy) >= 0);
    must(toy.member, gv_leave(toy.member));
    assert_int_equal(toy_until(&toy, GV_ENDED), GV_ENDED);
    assert_int_equal(gv_step(toy.member, 1, 0.0), GV_USAGE);
    assert_int_equal(gv_wait(toy.member), GV_ENDED);
    gv_close(toy.member);
    gv_close(NULL);
}

static void *poll_elsewhere(void *context)
{
    struct toy *toy = context;

    toy->pull = (float)gv_poll(toy->member);
    return NULL;
}

static void another_thread_and_a_child_are_refused(void **state)
{
    struct toy toy;
    pthread_t thread;
    pid_t child;
    int status;

    (void)state;
    toy_start(&toy, ALONE);
    assert_int_equal(pthread_create(&thread, NULL, poll_elsewhere, &toy), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_float_equal(toy.pull, (float)GV_THREAD, 0.0F);
    child = fork();
    if (child == 0) {
        const int said = gv_poll(toy.member);

        gv_close(toy.member);
        _exit(said == GV_FORKED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(toy_until(&toy, GV_STEP), GV_STEP);
    gv_close(toy.member);
}

/* Nothing of the process's signals changes. */
static void signals_stay_the_programs(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
    struct sigaction now;
    struct toy toy;

    (void)state;
    toy_start(&toy, ALONE);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(sigaction(numbers[i], NULL, &now), 0);
        assert_true(now.sa_handler == SIG_DFL);
    }
    gv_close(toy.member);
}

/* A loss that is no number brings the last good values back. */
static void what_is_no_number_is_undone(void **state)
{
    struct toy toy;
    int event;

    (void)state;
    toy_start(&toy, ALONE);
    assert_int_equal(toy_until(&toy, GV_STEP), GV_STEP);
    toy.weight[7] = NAN;
    event = gv_step(toy.member, 1, (double)NAN);
    assert_true(event >= 0);
    event = gv_wait(toy.member);
    assert_int_equal(event, GV_REPLACE);
    must(toy.member, gv_apply(toy.member));
    assert_float_equal(toy.weight[7], 5.0F, 0.0F);
    gv_close(toy.member);
}

/* The same through planes, as for memory that is elsewhere; halves are converted. */
static void planes_and_halves_do_as_well(void **state)
{
    struct toy toy;
    float plane[WIDTH + 2 * MEANS] = {0};
    uint16_t halves[WIDTH] = {0x4500}; /* 5.0 */
    int event;

    (void)state;
    toy_init(&toy, 5.0F, 1.0F);
    toy.tensors[0].dtype = GV_F16;
    toy.tensors[0].values = halves;
    toy.tensors[1].values = NULL;
    must(NULL, gv_open(ALONE, &toy.member));
    must(toy.member, gv_start(toy.member, toy.tensors, 3));
    event = gv_wait(toy.member);
    assert_int_equal(event, GV_SNAPSHOT);
    assert_int_equal(gv_snapshot(toy.member), GV_USAGE); /* one is elsewhere */
    assert_int_equal(gv_snapshot_from(toy.member, NULL), GV_USAGE);
    plane[3] = 4.0F;
    must(toy.member, gv_snapshot_from(toy.member, plane));
    while ((event = gv_wait(toy.member)) == GV_SNAPSHOT) {
        must(toy.member, gv_snapshot_from(toy.member, plane));
    }
    assert_int_equal(event, GV_STEP);
    (void)gv_step(toy.member, 1, (double)INFINITY);
    assert_int_equal(gv_wait(toy.member), GV_REPLACE);
    memset(plane, 0, sizeof plane);
    must(toy.member, gv_apply_into(toy.member, plane));
    assert_float_equal(plane[3], 4.0F, 0.0F);
    gv_close(toy.member);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_average_by_local_sgd),
        cmocka_unit_test(members_average_by_diloco),
        cmocka_unit_test(each_step_is_in_the_status_at_once),
        cmocka_unit_test(config_that_is_wrong_is_refused),
        cmocka_unit_test(methods_that_need_more_are_refused),
        cmocka_unit_test(tensors_that_are_wrong_are_refused),
        cmocka_unit_test(calls_that_are_not_due_are_errors),
        cmocka_unit_test(another_thread_and_a_child_are_refused),
        cmocka_unit_test(signals_stay_the_programs),
        cmocka_unit_test(what_is_no_number_is_undone),
        cmocka_unit_test(planes_and_halves_do_as_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

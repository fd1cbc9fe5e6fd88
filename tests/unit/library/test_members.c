/*
 * Members of the library: two of them in one process, each with a trainer's thread of its own, have
 * one model in the end; what is misused is an error; what NaN does; a fork; signals.
 */
#include "tests/check.h"
#include "tests/scratch.h"

#include "include/grapevine.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WIDTH = 300, MEANS = 3 };

/* A toy: values go a tenth of the way to `pull` at each step. */
struct toy {
    float weight[WIDTH];
    float mean[MEANS], variance[MEANS];
    float pull;
    gv_tensor tensors[3];
    gv_member *member;
};

static void toy_init(struct toy *toy, float start, float pull)
{
    *toy = (struct toy){.pull = pull};
    for (int i = 0; i < WIDTH; i++) {
        toy->weight[i] = start;
    }
    for (int i = 0; i < MEANS; i++) {
        toy->mean[i] = start;
        toy->variance[i] = 1.0F;
    }
    toy->tensors[0] = (gv_tensor){"layer.weight", GV_PARAMETER, GV_F32, 2, {WIDTH / 3, 3},
                                  toy->weight};
    toy->tensors[1] = (gv_tensor){"norm.running_mean", GV_BUFFER, GV_F32, 1, {MEANS}, toy->mean};
    toy->tensors[2] =
        (gv_tensor){"norm.running_variance", GV_BUFFER, GV_F32, 1, {MEANS}, toy->variance};
}

static int toy_step(struct toy *toy)
{
    double loss = 0.0;

    for (int i = 0; i < WIDTH; i++) {
        const float apart = toy->weight[i] - toy->pull;

        loss += 0.5 * (double)(apart * apart);
        toy->weight[i] -= 0.1F * apart;
    }
    return gv_step(toy->member, 8, loss / WIDTH);
}

/* Until the end, or the first error. */
static int toy_train(struct toy *toy)
{
    int event = gv_wait(toy->member);

    while (event >= 0 && event != GV_ENDED) {
        if (event == GV_SNAPSHOT) {
            event = gv_snapshot(toy->member);
        } else if (event == GV_DIFFERENCE || event == GV_REPLACE) {
            event = gv_apply(toy->member);
        } else if (event == GV_STEP) {
            event = toy_step(toy);
            if (event != GV_WAITS) continue;
        }
        if (event >= 0) event = gv_wait(toy->member);
    }
    return event;
}

static void must(const gv_member *member, int result)
{
    if (result < 0) print_error("%d: %s\n", result, gv_last_error(member));
    assert_true(result >= 0);
}

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
    if (trainer->event == 0) trainer->event = toy_train(toy);
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
             "averaging = %s\nlisten = 127.0.0.1:0\nsteps = 60\nstart-with = 2\nverbose = yes\n",
             method);
    must(NULL, gv_open(config, &toy.member));
    must(toy.member, gv_start(toy.member, toy.tensors, 3));
    must(toy.member, gv_status(toy.member, &status));

    other = (struct trainer){.event = 0};
    toy_init(&other.toy, -7.0F, 3.0F);
    snprintf(other.config, sizeof other.config, "%sbootstrap = %s\n", config, status.address);
    assert_int_equal(pthread_create(&thread, NULL, train, &other), 0);
    assert_int_equal(toy_train(&toy), GV_ENDED);
    must(toy.member, gv_status(toy.member, &status));
    gv_close(toy.member);
    assert_int_equal(pthread_join(thread, NULL), 0);

    assert_int_equal(other.event, GV_ENDED);
    assert_true(status.rounds_ok > 0 && other.status.rounds_ok > 0);
    assert_int_equal(status.own_steps, 60);
    assert_true(status.bytes_sent > 0);
    for (int i = 0; i < WIDTH; i++) {
        assert_float_equal(toy.weight[i], 2.0F, 0.2F);
        assert_float_equal(other.toy.weight[i], toy.weight[i], 0.2F);
    }
    for (int i = 0; i < MEANS; i++) { /* the one who came took the model of the one who was there */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_average_by_local_sgd),
        cmocka_unit_test(members_average_by_diloco),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

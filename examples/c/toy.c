/*
 * toy: a program with a model and a loop of its own, a line through points, that is a member of a
 * swarm through libgrapevine. Each copy has other points; what they average is the line for all.
 *
 *     ./toy SLOPE [NAME=VALUE]...      the slope of its points; settings of the member
 *     ./toy 1 averaging=allreduce listen=:7077
 *     ./toy 2 averaging=allreduce bootstrap=192.0.2.7:7077
 *
 * A step takes a fraction of a millisecond, a round more: the method is one that steps wait for.
 */
#include <grapevine.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 200000 };

struct model {
    float weight, bias; /* alone it would come to SLOPE and 1 */
};

static volatile sig_atomic_t is_over;

static void on_signal(int number)
{
    (void)number;
    is_over = 1;
}

/* One step of gradient descent on the mean squared error. */
static double step(struct model *model, float slope)
{
    double loss = 0, by_weight = 0, by_bias = 0;

    for (int i = 0; i < POINTS; i++) {
        const float x = 2.0F * (float)i / (POINTS - 1) - 1.0F;
        const float error = model->weight * x + model->bias - (slope * x + 1.0F);

        loss += error * error / POINTS;
        by_weight += 2 * error * x / POINTS;
        by_bias += 2 * error / POINTS;
    }
    model->weight -= 0.02F * (float)by_weight;
    model->bias -= 0.02F * (float)by_bias;
    return loss;
}

int main(int count, char **words)
{
    struct model model = {1, 1};
    const gv_tensor tensors[] = {{"weight", GV_PARAMETER, GV_F32, 1, {1}, &model.weight},
                                 {"bias", GV_PARAMETER, GV_F32, 1, {1}, &model.bias}};
    char config[4096] = "";
    size_t length = 0;
    const float slope = count > 1 ? strtof(words[1], NULL) : 1.0F;
    gv_status_view status = {.size = sizeof status};
    gv_member *member = NULL;
    int event, has_left = 0;

    for (int i = 2; i < count && length < sizeof config; i++) {
        length += (size_t)snprintf(config + length, sizeof config - length, "%s\n", words[i]);
    }
    signal(SIGTERM, on_signal);
    event = gv_open(config, &member);
    if (event == 0) event = gv_start(member, tensors, 2);
    if (event == 0 && gv_status(member, &status) == 0) printf("listening on %s\n", status.address);
    while (event >= 0 && event != GV_ENDED) {
        fflush(stdout);
        if (is_over && !has_left) has_left = gv_leave(member) == 0;
        event = gv_wait(member);
        if (event == GV_INTERRUPTED) event = GV_WAITS; /* by SIGTERM: to the top of the loop */
        if (event == GV_STEP) event = gv_step(member, POINTS, step(&model, slope));
        if (event == GV_SNAPSHOT) event = gv_snapshot(member);
        if (event == GV_DIFFERENCE || event == GV_REPLACE) {
            printf(event == GV_REPLACE ? "replaced" : "averaged");
            event = gv_apply(member);
            if (event == 0) event = gv_status(member, &status);
            printf(" %g, step %llu\n", (double)model.weight, (unsigned long long)status.step);
        }
    }
    if (event < 0)
        fprintf(stderr, "toy: %s\n", gv_last_error(member));
    else
        printf("ended %g, step %llu\n", (double)model.weight, (unsigned long long)status.step);
    gv_close(member);
    return event < 0;
}

/*
 * library_cost: what gv_step() takes of a trainer's time. One member, alone, with steps of a length
 * that is waited out in a loop; most calls find nothing to be done, and the rest end a series of
 * steps (library/external.h), after which the member's threads are waited for.
 *
 *   library_cost [STEP_US [STEPS [AVERAGING]]]      1000 3000 none; 0 us: calls and nothing else
 *
 * Prints, in microseconds: calls that found nothing (median, 99 of 100, mean), and what all calls
 * and all waiting took for a step. Built on request: tests/bench/library_cost.sh.
 */
#include "include/grapevine.h"
#include "peer/env/env.h"

#include <stdio.h>
#include <stdlib.h>

enum { VALUES = 100000 };

static double now_us(void)
{
    return (double)uv_clock_ns() / 1e3;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int serve(gv_member *member)
{
    int event = gv_wait(member);

    while (event > GV_STEP && event != GV_ENDED) {
        if (event == GV_SNAPSHOT) event = gv_snapshot(member);
        if (event == GV_DIFFERENCE || event == GV_REPLACE) event = gv_apply(member);
        if (event >= 0) event = gv_wait(member);
    }
    return event;
}

int main(int count, char **words)
{
    static float values[VALUES];
    const gv_tensor tensor = {"values", GV_PARAMETER, GV_F32, 1, {VALUES}, values};
    const double step_us = count > 1 ? atof(words[1]) : 1000;
    const int steps = count > 2 ? atoi(words[2]) : 3000;
    double *quick = malloc((size_t)steps * sizeof *quick), sum = 0, spent = 0;
    char config[200];
    gv_member *member = NULL;
    int event, found = 0;

    snprintf(config, sizeof config, "averaging = %s\nlisten = 127.0.0.1:0\nquiet = yes\n",
             count > 3 ? words[3] : "none");
    event = gv_open(config, &member);
    if (event == 0) event = gv_start(member, &tensor, 1);
    if (event == 0) event = serve(member);
    for (int i = 0; i < steps && event == GV_STEP; i++) {
        const double ends_us = now_us() + step_us;
        double before, after;

        while (now_us() < ends_us)
            continue;
        before = now_us();
        event = gv_step(member, 1, 0.5);
        after = now_us();
        if (event == GV_STEP) {
            sum += quick[found++] = after - before;
        } else if (event > 0) {
            event = serve(member);
            after = now_us();
        }
        spent += after - before;
    }
    if (event < 0 || found == 0) {
        fprintf(stderr, "library_cost: %s\n", gv_last_error(member));
        return 1;
    }
    gv_close(member);
    qsort(quick, (size_t)found, sizeof *quick, by_size);
    printf("steps of %g us: gv_step() %.3f us (median; 99 of 100 within %.3f; mean %.3f) in %d of "
           "%d calls; all of it %.3f us a step\n",
           step_us, quick[found / 2], quick[found * 99 / 100], sum / found, found, steps,
           spent / steps);
    free(quick);
    return 0;
}

/* toy: a trainer for tests of the library: its values go to a number of its own. */
#ifndef GRAPEVINE_TESTS_TOY_H
#define GRAPEVINE_TESTS_TOY_H

#include "tests/check.h"

#include "include/grapevine.h"

#include <stdio.h>

enum { WIDTH = 300, MEANS = 3 };

/* A toy: values go a tenth of the way to `pull` at each step. */
struct toy {
    float weight[WIDTH];
    float mean[MEANS], variance[MEANS];
    float pull;
    gv_tensor tensors[3];
    gv_member *member;
};

static inline void toy_init(struct toy *toy, float start, float pull)
{
    *toy = (struct toy){.pull = pull};
    for (int i = 0; i < WIDTH; i++) {
        toy->weight[i] = start;
    }
    for (int i = 0; i < MEANS; i++) {
        toy->mean[i] = start;
        toy->variance[i] = 1.0F;
    }
    toy->tensors[0] =
        (gv_tensor){"layer.weight", GV_PARAMETER, GV_F32, 2, {WIDTH / 3, 3}, toy->weight};
    toy->tensors[1] = (gv_tensor){"norm.running_mean", GV_BUFFER, GV_F32, 1, {MEANS}, toy->mean};
    toy->tensors[2] =
        (gv_tensor){"norm.running_variance", GV_BUFFER, GV_F32, 1, {MEANS}, toy->variance};
}

static inline int toy_step(struct toy *toy)
{
    double loss = 0.0;

    for (int i = 0; i < WIDTH; i++) {
        const float apart = toy->weight[i] - toy->pull;

        loss += 0.5 * (double)(apart * apart);
        toy->weight[i] -= 0.1F * apart;
    }
    return gv_step(toy->member, 8, loss / WIDTH);
}

/* Does what is due, steps too, until `wanted` is; the end, or the first error. */
static inline int toy_until(struct toy *toy, int wanted)
{
    int event = gv_wait(toy->member);

    while (event >= 0 && event != GV_ENDED && event != wanted) {
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

static inline void must(const gv_member *member, int result)
{
    if (result < 0) print_error("%d: %s\n", result, gv_last_error(member));
    assert_true(result >= 0);
}

#define ALONE "averaging = none\nlisten = 127.0.0.1:0\nquiet = yes\n"

static inline void toy_start(struct toy *toy, const char *config)
{
    toy_init(toy, 5.0F, 1.0F);
    must(NULL, gv_open(config, &toy->member));
    must(toy->member, gv_start(toy->member, toy->tensors, 3));
}

#endif

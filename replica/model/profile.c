/*
 * See profile.h. Operations a second are those of forward and backward passes together: the
 * way back costs as much as the way there for the gradient of the parameters, and again for that of
 * the input where that is wanted; attention, both of whose products have two varying factors,
 * twice.
 */
#include "replica/model/profile.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "replica/model/plan.h"

#include <string.h>

struct model_profiler {
    struct model *model;
    struct profile_clock clock;
    uint32_t samples; /* of a pass, that the first thread computes */
    uint64_t steps, passes;
    int64_t parts_ns[PROFILE_PARTS];
    uint64_t (*stages_ns)[2];
    struct model_profile profile;
};

static const char *const part_names[PROFILE_PARTS] = {
    [PROFILE_PASSES] = "(passes, between layers)",
    [PROFILE_DATA] = "(data)",
    [PROFILE_LOSS] = "(loss)",
    [PROFILE_OPTIMIZER] = "(optimizer)",
    [PROFILE_CHECKS] = "(checks)",
    [PROFILE_SNAPSHOTS] = "(averaging snapshots)",
    [PROFILE_EVALUATION] = "(evaluation)",
};

static const char *const traced_names[PROFILE_PARTS] = {
    [PROFILE_PASSES] = "passes",
    [PROFILE_DATA] = "data",
    [PROFILE_LOSS] = "loss",
    [PROFILE_OPTIMIZER] = "update",
    [PROFILE_CHECKS] = "checks",
    [PROFILE_SNAPSHOTS] = "planes",
    [PROFILE_EVALUATION] = "test samples",
};

struct model_profiler *model_profiler_create(struct model *model, struct profile_clock clock,
                                             uint32_t samples, uint32_t threads)
{
    struct model_profiler *p = mem_alloc(sizeof(*p));

    CHECK(clock.now_ns != NULL && threads > 0);
    if (p == NULL) return NULL;
    p->model = model;
    p->clock = clock;
    p->samples = (samples - 1) / threads + 1;
    p->stages_ns = mem_array(model_stages(model), sizeof(*p->stages_ns));
    if (p->stages_ns == NULL) {
        mem_free(p);
        return NULL;
    }
    p->profile = (struct model_profile){clock.now_ns, clock.context, p->stages_ns};
    model_profiler_watch(p, true);
    return p;
}

void model_profiler_destroy(struct model_profiler *profiler)
{
    if (profiler == NULL) return;
    model_set_profile(profiler->model, NULL);
    mem_free(profiler->stages_ns);
    mem_free(profiler);
}

void model_profiler_reset(struct model_profiler *profiler)
{
    if (profiler == NULL) return;
    memset(profiler->parts_ns, 0, sizeof(profiler->parts_ns));
    memset(profiler->stages_ns, 0, model_stages(profiler->model) * sizeof(profiler->stages_ns[0]));
    profiler->steps = profiler->passes = 0;
}

void model_profiler_watch(struct model_profiler *profiler, bool is_watching)
{
    if (profiler == NULL) return;
    is_watching &= !profiler->clock.is_coarse;
    model_set_profile(profiler->model, is_watching ? &profiler->profile : NULL);
}

uint64_t model_profiler_now(const struct model_profiler *profiler)
{
    return profiler == NULL ? 0 : profiler->clock.now_ns(profiler->clock.context);
}

/* What ends now; how long it took. */
static int64_t end_part(const struct model_profiler *profiler, const char *name, uint64_t begin)
{
    uint64_t end = model_profiler_now(profiler);

    if (profiler->clock.on_part != NULL) {
        profiler->clock.on_part(profiler->clock.context, name, begin, end);
    }
    return (int64_t)(end - begin);
}

void model_profiler_add_pass(struct model_profiler *profiler, enum profile_pass pass,
                             uint64_t begin)
{
    static const char *const names[] = {[PASS_FORWARD] = "forward",
                                        [PASS_BACKWARD] = "backward",
                                        [PASS_BOTH] = "forward and backward"};

    if (profiler == NULL) return;
    profiler->parts_ns[PROFILE_PASSES] += end_part(profiler, names[pass], begin);
}

void model_profiler_add(struct model_profiler *profiler, enum profile_part part, uint64_t begin)
{
    if (profiler == NULL) return;
    profiler->parts_ns[part] += end_part(profiler, traced_names[part], begin);
}

void model_profiler_add_inside(struct model_profiler *profiler, enum profile_part part,
                               uint64_t begin)
{
    int64_t took;

    if (profiler == NULL) return;
    took = end_part(profiler, traced_names[part], begin);
    profiler->parts_ns[part] += took;
    profiler->parts_ns[PROFILE_PASSES] -= took;
}

void model_profiler_step(struct model_profiler *profiler, uint32_t passes)
{
    if (profiler == NULL) return;
    profiler->steps++;
    profiler->passes += passes;
}

/* --- telling ------------------------------------------------------------------------------------
 */

static void set_real(struct json *row, const char *key, double value, bool is_known)
{
    if (is_known) {
        json_set_real(row, key, value);
    } else {
        json_set_null(row, key);
    }
}

/* What is being told of whom. */
struct telling {
    const struct model_profiler *p;
    struct json *rows;
    double wall_ns;
    const char *event;
};

/* Times are microseconds; below 0: not told. */
struct told {
    const char *layer, *spec, *out;
    double forward_us, backward_us, us, gflops;
};

static void add_row(const struct telling *t, const struct told *told)
{
    struct json *row = json_object_create();
    double wall_us = t->wall_ns / 1e3 / (double)t->p->steps;

    if (t->event != NULL) json_set_text(row, "event", t->event);
    json_set_text(row, "layer", told->layer);
    json_set_text(row, "spec", told->spec);
    json_set_text(row, "out", told->out);
    set_real(row, "forward_us", told->forward_us, told->forward_us >= 0.0);
    set_real(row, "backward_us", told->backward_us, told->backward_us >= 0.0);
    json_set_real(row, "us", told->us);
    set_real(row, "share", told->us / wall_us, wall_us > 0.0);
    set_real(row, "gflops", told->gflops, told->gflops > 0.0);
    json_append(t->rows, row);
}

/* Of forward and backward, a sample. */
static double flops_of(const struct model *model, const struct stage *stage,
                       const struct model_stage *info)
{
    double times = 1.0;

    if (!model->values[stage->output].has_gradient) return (double)info->flops;
    if (stage->ops == &stage_attention_ops) return 3.0 * (double)info->flops;
    if (info->parameters > 0) times += 1.0;
    if (stage->has_input_gradient) times += 1.0;
    return times * (double)info->flops;
}

static void add_part(const struct telling *t, const char *name, double ns)
{
    const struct told told = {name, "", "", -1.0, -1.0, ns / 1e3 / (double)t->p->steps, 0.0};

    add_row(t, &told);
}

static double add_stage(const struct telling *t, uint32_t stage)
{
    const struct model_profiler *p = t->p;
    double forward = (double)p->stages_ns[stage][0], backward = (double)p->stages_ns[stage][1];
    double ns = forward + backward, scale = 1e3 * (double)p->steps;
    struct model_stage info;
    struct told told;

    model_stage(p->model, stage, &info);
    told = (struct told){info.name,        info.layer, info.out, forward / scale,
                         backward / scale, ns / scale, 0.0};
    if (ns > 0.0) {
        told.gflops = flops_of(p->model, &p->model->stages[stage], &info) * (double)p->samples *
                      (double)p->passes / ns;
    }
    add_row(t, &told);
    return ns;
}

struct json *model_profiler_rows(const struct model_profiler *p, uint64_t wall_ns,
                                 const char *event)
{
    struct telling t = {p, NULL, (double)wall_ns, event};
    double stages_ns = 0.0, sum_ns;

    if (p == NULL || p->steps == 0) return NULL;
    t.rows = json_array_create();
    for (uint32_t i = 0; i < model_stages(p->model); i++) {
        stages_ns += add_stage(&t, i);
    }
    sum_ns = stages_ns;
    for (int part = 0; part < PROFILE_PARTS; part++) {
        double ns = (double)p->parts_ns[part] - (part == PROFILE_PASSES ? stages_ns : 0.0);

        if (p->parts_ns[part] == 0) continue;
        add_part(&t, part_names[part], ns);
        sum_ns += ns;
    }
    add_part(&t, "sum", sum_ns);
    add_part(&t, "wall", t.wall_ns);
    return t.rows;
}

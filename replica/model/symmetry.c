/*
 * symmetry: see symmetry.h. Each stage that makes new channels gives each an atom; what is added
 * has its atoms united, channel by channel (union-find). Two classes of atoms may change places if
 * the same stages made them: their signatures, sums of a hash of each maker, are equal. So a
 * shortcut that widens a residual stream with zeros splits the wider one in the channels that come
 * from the narrower one and the rest, without a rule of its own.
 */
#include "replica/model/symmetry.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/model/plan.h"

#include <string.h>

struct atoms {
    uint32_t *parents;    /* union-find */
    uint64_t *signatures; /* of a root: sum of its atoms' makers */
    uint32_t count, max;
};

struct finder {
    const struct model *model;
    struct atoms atoms;
    uint32_t **values; /* [values_count]: atom of each channel; owned */
    uint32_t *widths;  /* [values_count] */
    struct symmetry *found;
    uint32_t axes_max;
    struct fault *why;
};

static uint32_t root_of(struct atoms *atoms, uint32_t atom)
{
    while (atoms->parents[atom] != atom) {
        atoms->parents[atom] = atoms->parents[atoms->parents[atom]];
        atom = atoms->parents[atom];
    }
    return atom;
}

static void unite(struct atoms *atoms, uint32_t a, uint32_t b)
{
    a = root_of(atoms, a);
    b = root_of(atoms, b);
    if (a == b) return;
    if (b < a) {
        const uint32_t t = a;
        a = b;
        b = t;
    }
    atoms->parents[b] = a;
    atoms->signatures[a] += atoms->signatures[b];
}

/* `count` new atoms of one maker into `to`; fixed ones have a maker each. */
static enum rc make_atoms(struct finder *f, uint64_t maker, bool is_fixed, uint32_t *to,
                          uint32_t count)
{
    struct atoms *atoms = &f->atoms;

    if (count > atoms->max - atoms->count) {
        const size_t max = ((size_t)atoms->count + count) * 2;
        if (max > UINT32_MAX / 2) return RC_LIMIT;
        uint32_t *parents = mem_resize(atoms->parents, max * sizeof *parents);
        if (parents == NULL) return RC_NOMEM;
        atoms->parents = parents;
        uint64_t *signatures = mem_resize(atoms->signatures, max * sizeof *signatures);
        if (signatures == NULL) return RC_NOMEM;
        atoms->signatures = signatures;
        atoms->max = (uint32_t)max;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t atom = atoms->count++;
        atoms->parents[atom] = atom;
        atoms->signatures[atom] = is_fixed ? rng_mix(atom, 1) : rng_mix(maker, 2);
        to[i] = atom;
    }
    return RC_OK;
}

/* A tensor's axis whose slots are the `width` atoms, each `repeats` times in a row. Slots hold
 * atoms until number_groups(). */
static enum rc add_axis(struct finder *f, uint32_t tensor, uint32_t axis, const uint32_t *atoms,
                        uint32_t width)
{
    struct symmetry *found = f->found;
    const uint32_t count = f->model->schema.tensors[tensor].shape[axis];
    struct symmetry_slot *slots = mem_array(count, sizeof *slots);

    CHECK(width > 0 && count % width == 0);
    if (slots == NULL) return RC_NOMEM;
    for (uint32_t s = 0; s < count; s++) {
        slots[s].member = atoms[s / (count / width)];
    }
    if (found->axes_count == f->axes_max) {
        const uint32_t max = f->axes_max * 2 + 16;
        struct symmetry_axis *axes = mem_resize(found->axes, max * sizeof *axes);
        if (axes == NULL) {
            mem_free(slots);
            return RC_NOMEM;
        }
        found->axes = axes;
        f->axes_max = max;
    }
    found->axes[found->axes_count++] = (struct symmetry_axis){tensor, axis, count, slots};
    return RC_OK;
}

/* Weights [out][in]..., and what has one number an output: biases, and sizes of `wn`. */
static enum rc find_weights(struct finder *f, const struct stage *stage, const uint32_t *in,
                            uint32_t in_width, const uint32_t *out, uint32_t out_width)
{
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < stage->tensors_count; i++) {
        rc = add_axis(f, stage->tensors[i], 0, out, out_width);
        if (rc == RC_OK && in != NULL && f->model->schema.tensors[stage->tensors[i]].rank > 1) {
            rc = add_axis(f, stage->tensors[i], 1, in, in_width);
        }
    }
    return rc;
}

static enum rc refuse(const struct finder *f, const struct stage *stage)
{
    char text[LAYER_BYTES];

    return fault_set(f->why, RC_UNSUPPORTED,
                     "%s (%s) is no layer whose channels can be matched; only dense layers, "
                     "convolutions and batch normalisation are",
                     layer_format(&stage->layer, text, sizeof text), stage->name);
}

/* New channels out of old ones: convolutions and dense layers. */
static enum rc find_mixing(struct finder *f, uint32_t number, uint32_t *out)
{
    const struct stage *stage = &f->model->stages[number];
    const uint32_t *in = f->values[stage->inputs[0]];
    const uint32_t width = f->widths[stage->inputs[0]], outs = f->widths[stage->output];
    const bool is_conv = stage->layer.kind == LAYER_CONV;
    const uint32_t groups = is_conv ? stage->layer.keys[LAYER_GROUPS] : 1;

    if (!is_conv && stage->layer.kind != LAYER_LINEAR) return refuse(f, stage);
    if (stage->partner != NO_STAGE || stage->in.steps > 0) return refuse(f, stage);
    if (groups == width && outs == width && groups > 1) { /* a filter for each channel */
        memcpy(out, in, width * sizeof *out);
        return find_weights(f, stage, NULL, 0, out, outs);
    }
    if (groups > 1) return refuse(f, stage);
    const enum rc rc =
        make_atoms(f, number, stage->output + 1 == f->model->values_count, out, outs);
    return rc == RC_OK ? find_weights(f, stage, in, width, out, outs) : rc;
}

static enum rc find_shortcut(struct finder *f, uint32_t number, uint32_t *out)
{
    const struct stage *stage = &f->model->stages[number];
    const uint32_t width = f->widths[stage->inputs[0]], outs = f->widths[stage->output];

    memcpy(out, f->values[stage->inputs[0]], width * sizeof *out);
    return make_atoms(f, number, false, out + width, outs - width);
}

static void find_concat(struct finder *f, const struct stage *stage, uint32_t *out)
{
    for (uint32_t i = 0; i < stage->inputs_count; i++) {
        const uint32_t width = f->widths[stage->inputs[i]];
        memcpy(out, f->values[stage->inputs[i]], width * sizeof *out);
        out += width;
    }
}

/* Of a stage that leaves channels where they are; several inputs are added up. */
static enum rc find_channelwise(struct finder *f, const struct stage *stage, uint32_t *out)
{
    const uint32_t width = f->widths[stage->inputs[0]];

    CHECK(width == f->widths[stage->output]);
    memcpy(out, f->values[stage->inputs[0]], width * sizeof *out);
    for (uint32_t i = 1; i < stage->inputs_count; i++) {
        for (uint32_t c = 0; c < width; c++) {
            unite(&f->atoms, out[c], f->values[stage->inputs[i]][c]);
        }
    }
    return find_weights(f, stage, NULL, 0, out, width);
}

static enum rc find_stage(struct finder *f, uint32_t number)
{
    static const struct stage_ops *const channelwise[] = {
        &stage_pool_ops,    &stage_globalpool_ops, &stage_relayout_ops,    &stage_activation_ops,
        &stage_dropout_ops, &stage_sum_ops,        &stage_batch_apply_ops, &stage_batch_collect_ops,
    };
    const struct stage *stage = &f->model->stages[number];
    uint32_t *out = mem_array(f->widths[stage->output], sizeof *out);

    if (out == NULL) return RC_NOMEM;
    f->values[stage->output] = out;
    if (stage->ops == &stage_conv_ops || stage->ops == &stage_linear_ops) {
        return find_mixing(f, number, out);
    }
    if (stage->ops == &stage_shortcut_ops) return find_shortcut(f, number, out);
    if (stage->ops == &stage_concat_ops) {
        find_concat(f, stage, out);
        return RC_OK;
    }
    for (size_t i = 0; i < ARRAY_COUNT(channelwise); i++) {
        if (stage->ops == channelwise[i]) return find_channelwise(f, stage, out);
    }
    return refuse(f, stage);
}

/* What a root is until it has a number. */
struct numbering {
    uint64_t *signatures;        /* [groups] */
    struct symmetry_slot *roots; /* [atoms]; member + 1, 0: not seen */
};

static enum rc number_root(struct finder *f, struct numbering *n, uint32_t root,
                           struct symmetry_slot *slot)
{
    struct symmetry *found = f->found;
    uint32_t g = 0;

    if (n->roots[root].member == 0) {
        while (g < found->groups_count && n->signatures[g] != f->atoms.signatures[root]) {
            g++;
        }
        if (g == found->groups_count) {
            uint32_t *groups = mem_resize(found->groups, (g + 1) * sizeof *groups);
            if (groups == NULL) return RC_NOMEM;
            found->groups = groups;
            uint64_t *signatures = mem_resize(n->signatures, (g + 1) * sizeof *signatures);
            if (signatures == NULL) return RC_NOMEM;
            n->signatures = signatures;
            groups[g] = 0;
            signatures[g] = f->atoms.signatures[root];
            found->groups_count++;
        }
        n->roots[root] = (struct symmetry_slot){g, ++found->groups[g]};
    }
    *slot = (struct symmetry_slot){n->roots[root].group, n->roots[root].member - 1};
    return RC_OK;
}

/* From atoms to groups and members. Fixed atoms, each with a signature of its own, are told apart
 * beforehand: there may be very many. */
static enum rc number_groups(struct finder *f, const bool *is_fixed)
{
    struct numbering n = {NULL, mem_array(f->atoms.count, sizeof *n.roots)};
    enum rc rc = n.roots != NULL ? RC_OK : RC_NOMEM;

    for (uint32_t i = 0; i < f->found->axes_count; i++) {
        struct symmetry_axis *axis = &f->found->axes[i];
        for (uint32_t s = 0; rc == RC_OK && s < axis->slots_count; s++) {
            const uint32_t root = root_of(&f->atoms, axis->slots[s].member);
            if (is_fixed[root]) {
                axis->slots[s] = (struct symmetry_slot){SYMMETRY_FIXED, 0};
            } else {
                rc = number_root(f, &n, root, &axis->slots[s]);
            }
        }
    }
    mem_free(n.roots);
    mem_free(n.signatures);
    return rc;
}

/* Input and answers keep their order. */
static enum rc fix_ends(struct finder *f)
{
    const uint32_t last = f->model->values_count - 1;
    bool *is_fixed = mem_array(f->atoms.count, sizeof *is_fixed);
    enum rc rc;

    if (is_fixed == NULL) return RC_NOMEM;
    for (uint32_t c = 0; c < f->widths[0]; c++) {
        is_fixed[root_of(&f->atoms, f->values[0][c])] = true;
    }
    for (uint32_t c = 0; c < f->widths[last]; c++) {
        is_fixed[root_of(&f->atoms, f->values[last][c])] = true;
    }
    rc = number_groups(f, is_fixed);
    mem_free(is_fixed);
    return rc;
}

static enum rc find_all(struct finder *f)
{
    const struct model *model = f->model;
    enum rc rc = RC_OK;

    if (f->found == NULL || f->values == NULL || f->widths == NULL) return RC_NOMEM;
    if (model->input_kind == MODEL_INPUT_TOKENS) return refuse(f, &model->stages[0]);
    for (uint32_t v = 0; v < model->values_count; v++) {
        f->widths[v] = model->values[v].shape.image.channels;
    }
    f->values[0] = mem_array(f->widths[0], sizeof **f->values);
    if (f->values[0] == NULL) return RC_NOMEM;
    rc = make_atoms(f, 0, true, f->values[0], f->widths[0]);
    for (uint32_t i = 0; rc == RC_OK && i < model->stages_count; i++) {
        rc = find_stage(f, i);
    }
    return rc == RC_OK ? fix_ends(f) : rc;
}

enum rc symmetry_create(const struct model *model, struct symmetry **symmetry, struct fault *why)
{
    struct finder f = {.model = model,
                       .values = mem_array(model->values_count, sizeof *f.values),
                       .widths = mem_array(model->values_count, sizeof *f.widths),
                       .found = mem_alloc(sizeof *f.found),
                       .why = why};
    const enum rc rc = find_all(&f);

    for (uint32_t v = 0; f.values != NULL && v < model->values_count; v++) {
        mem_free(f.values[v]);
    }
    mem_free(f.values);
    mem_free(f.widths);
    mem_free(f.atoms.parents);
    mem_free(f.atoms.signatures);
    if (rc == RC_OK) {
        *symmetry = f.found;
        return rc;
    }
    symmetry_destroy(f.found);
    return rc;
}

void symmetry_destroy(struct symmetry *symmetry)
{
    if (symmetry == NULL) return;
    for (uint32_t i = 0; i < symmetry->axes_count; i++) {
        mem_free(symmetry->axes[i].slots);
    }
    mem_free(symmetry->axes);
    mem_free(symmetry->groups);
    mem_free(symmetry);
}

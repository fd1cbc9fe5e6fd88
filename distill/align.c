/* align: see align.h. Thread: whichever averages, one at a time. */
#include "distill/align.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "distill/assignment.h"

#include <math.h>
#include <string.h>

/* An axis of a tensor seen as [outer][slots][inner]. */
struct view {
    const struct tensor *tensor;
    size_t outer, slots, inner;
};

static struct view view_of(const struct schema *schema, const struct symmetry_axis *axis)
{
    struct view view = {&schema->tensors[axis->tensor], 1, axis->slots_count, 1};

    for (uint32_t i = 0; i < view.tensor->rank; i++) {
        if (i < axis->axis) view.outer *= view.tensor->shape[i];
        if (i > axis->axis) view.inner *= view.tensor->shape[i];
    }
    return view;
}

/* The slots of a group's members on an axis: [members][each], `each` may be 0. RC_NOMEM. */
struct seats {
    uint32_t *slots;
    uint32_t each;
};

static enum rc seats_init(struct seats *seats, const struct symmetry_axis *axis, uint32_t group,
                          uint32_t members)
{
    uint32_t count = 0, *taken = mem_array(members, sizeof *taken);

    *seats = (struct seats){NULL, 0};
    if (taken == NULL) return RC_NOMEM;
    for (uint32_t s = 0; s < axis->slots_count; s++) {
        if (axis->slots[s].group == group) count++;
    }
    CHECK(count % members == 0);
    seats->each = count / members;
    seats->slots = mem_array(count, sizeof *seats->slots);
    for (uint32_t s = 0; seats->slots != NULL && s < axis->slots_count; s++) {
        const struct symmetry_slot slot = axis->slots[s];
        if (slot.group != group) continue;
        CHECK(taken[slot.member] < seats->each);
        seats->slots[(size_t)slot.member * seats->each + taken[slot.member]++] = s;
    }
    mem_free(taken);
    return seats->slots != NULL ? RC_OK : RC_NOMEM;
}

/* One axis of a tensor, in place. */
static enum rc permute_axis(const struct view *view, const struct seats *seats, uint32_t members,
                            const uint32_t *order, float *plane)
{
    const size_t row = view->slots * view->inner;
    float *was = mem_array(row, sizeof *was), *at = plane + view->tensor->offset;

    if (was == NULL) return RC_NOMEM;
    for (size_t o = 0; o < view->outer; o++, at += row) {
        memcpy(was, at, row * sizeof *was);
        for (uint32_t m = 0; m < members; m++) {
            for (uint32_t k = 0; k < seats->each; k++) {
                const size_t to = seats->slots[(size_t)m * seats->each + k];
                const size_t from = seats->slots[(size_t)order[m] * seats->each + k];
                memcpy(at + to * view->inner, was + from * view->inner, view->inner * sizeof *at);
            }
        }
    }
    mem_free(was);
    return RC_OK;
}

enum rc align_permute(const struct symmetry *symmetry, const struct schema *schema,
                      enum section section, uint32_t group, const uint32_t *order,
                      const float *from, float *to)
{
    const uint32_t members = symmetry->groups[group];
    enum rc rc = RC_OK;

    if (schema->values[section] > 0) memcpy(to, from, schema->values[section] * sizeof *to);
    for (uint32_t i = 0; rc == RC_OK && i < symmetry->axes_count; i++) {
        const struct symmetry_axis *axis = &symmetry->axes[i];
        const struct view view = view_of(schema, axis);
        struct seats seats;
        if (view.tensor->section != section) continue;
        rc = seats_init(&seats, axis, group, members);
        if (rc == RC_OK && seats.each > 0) rc = permute_axis(&view, &seats, members, order, to);
        mem_free(seats.slots);
    }
    return rc;
}

/* A matching in hand. Planes of parameters: what is to be matched as it stands, and room. */
struct matching {
    const struct symmetry *symmetry;
    const struct schema *schema;
    const float *anchor;
    float *now, *next;
    float *buffers, *next_buffers;
    double likeness, rounding; /* <anchor, now>; what is no gain */
    double *gains;             /* [widest]^2 */
    uint32_t *order;
};

/* gains[r][m] += <anchor at place r, member m>, over one of the slots that each member has. Values
 * of all members lie side by side, so that the inner loop runs over them. */
static void add_gains(const struct matching *m, const struct view *view, const struct seats *seats,
                      uint32_t members, uint32_t k, float *beside)
{
    const size_t row = view->slots * view->inner;
    const float *a = m->anchor + view->tensor->offset, *b = m->now + view->tensor->offset;

    for (size_t o = 0; o < view->outer; o++, a += row, b += row) {
        for (uint32_t j = 0; j < members; j++) {
            const float *from = b + seats->slots[(size_t)j * seats->each + k] * view->inner;
            for (size_t i = 0; i < view->inner; i++) {
                beside[i * members + j] = from[i];
            }
        }
        for (uint32_t r = 0; r < members; r++) {
            const float *at = a + seats->slots[(size_t)r * seats->each + k] * view->inner;
            double *gains = m->gains + (size_t)r * members;
            for (size_t i = 0; i < view->inner; i++) {
                const double value = (double)at[i];
                const float *others = beside + i * members;
                for (uint32_t j = 0; j < members; j++) {
                    gains[j] += value * (double)others[j];
                }
            }
        }
    }
}

static enum rc find_gains(const struct matching *m, uint32_t group)
{
    const uint32_t members = m->symmetry->groups[group];
    enum rc rc = RC_OK;

    memset(m->gains, 0, (size_t)members * members * sizeof *m->gains);
    for (uint32_t i = 0; rc == RC_OK && i < m->symmetry->axes_count; i++) {
        const struct symmetry_axis *axis = &m->symmetry->axes[i];
        const struct view view = view_of(m->schema, axis);
        struct seats seats;
        if (view.tensor->section != SECTION_PARAMETERS) continue;
        rc = seats_init(&seats, axis, group, members);
        if (rc != RC_OK || seats.each == 0) { /* the group is not on this axis */
            mem_free(seats.slots);
            continue;
        }
        float *beside = mem_array(view.inner * members, sizeof *beside);
        if (beside == NULL) rc = RC_NOMEM;
        for (uint32_t k = 0; rc == RC_OK && k < seats.each; k++) {
            add_gains(m, &view, &seats, members, k, beside);
        }
        mem_free(beside);
        mem_free(seats.slots);
    }
    return rc;
}

static double likeness(const struct matching *m, const float *a, const float *b)
{
    double sum = 0;

    for (size_t i = 0; i < m->schema->values[SECTION_PARAMETERS]; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* `is_better`: raised where the group has been permuted. Two axes of one tensor may have the same
 * group (a residual branch of one layer): then the gains are not exact, and the sum decides. */
static enum rc match_group(struct matching *m, uint32_t group, bool *is_better)
{
    enum rc rc = find_gains(m, group);
    double likeness_next;
    float *was;

    if (rc == RC_OK) rc = assignment_solve(m->gains, m->symmetry->groups[group], m->order);
    if (rc == RC_OK) {
        rc = align_permute(m->symmetry, m->schema, SECTION_PARAMETERS, group, m->order, m->now,
                           m->next);
    }
    if (rc != RC_OK) return rc;
    likeness_next = likeness(m, m->anchor, m->next);
    if (likeness_next <= m->likeness + m->rounding) return RC_OK;
    rc = align_permute(m->symmetry, m->schema, SECTION_BUFFERS, group, m->order, m->buffers,
                       m->next_buffers);
    if (rc != RC_OK) return rc;
    was = m->now, m->now = m->next, m->next = was;
    was = m->buffers, m->buffers = m->next_buffers, m->next_buffers = was;
    m->likeness = likeness_next;
    *is_better = true;
    return RC_OK;
}

static enum rc match(struct matching *m)
{
    const double size = sqrt(likeness(m, m->anchor, m->anchor) * likeness(m, m->now, m->now));
    enum rc rc = RC_OK;
    bool is_better = true;

    m->likeness = likeness(m, m->anchor, m->now);
    m->rounding = 1e-12 * size; /* a sum that differs by less is the same */
    for (int sweep = 0; rc == RC_OK && is_better && sweep < ALIGN_SWEEPS_MAX; sweep++) {
        is_better = false;
        for (uint32_t g = 0; rc == RC_OK && g < m->symmetry->groups_count; g++) {
            rc = match_group(m, g, &is_better);
        }
    }
    return rc;
}

static enum rc widest(const struct symmetry *symmetry, uint32_t *members, struct fault *why)
{
    *members = 0;
    for (uint32_t g = 0; g < symmetry->groups_count; g++) {
        if (symmetry->groups[g] > *members) *members = symmetry->groups[g];
    }
    if (*members <= ALIGN_WIDTH_MAX) return RC_OK;
    return fault_set(why, RC_LIMIT, "%u channels belong together; up to %d can be matched",
                     *members, ALIGN_WIDTH_MAX);
}

/* A copy of a plane of the model's, with finite values. */
static enum rc take(struct model *model, enum section section, float **copy, struct fault *why)
{
    const size_t count = model_schema(model)->values[section];
    const float *values = NULL;
    enum rc rc = model_host_plane(model, section, &values);

    *copy = mem_array(count, sizeof **copy);
    if (rc == RC_OK && *copy == NULL) rc = RC_NOMEM;
    if (rc == RC_OK && !floats_are_finite(values, count)) {
        return fault_set(why, RC_NONFINITE, "a parameter is not a finite number");
    }
    if (rc == RC_OK && count > 0) memcpy(*copy, values, count * sizeof **copy);
    return rc;
}

static enum rc align(struct model *model, struct matching *m, struct fault *why)
{
    uint32_t members = 0;
    enum rc rc = widest(m->symmetry, &members, why);

    if (rc != RC_OK) return rc;
    m->gains = mem_array((size_t)members * members, sizeof *m->gains);
    m->order = mem_array(members, sizeof *m->order);
    m->next = mem_array(m->schema->values[SECTION_PARAMETERS], sizeof *m->next);
    m->next_buffers = mem_array(m->schema->values[SECTION_BUFFERS], sizeof *m->next_buffers);
    if (m->gains == NULL || m->order == NULL || m->next == NULL || m->next_buffers == NULL) {
        return RC_NOMEM;
    }
    rc = take(model, SECTION_PARAMETERS, &m->now, why);
    if (rc == RC_OK) rc = take(model, SECTION_BUFFERS, &m->buffers, why);
    if (rc == RC_OK) rc = match(m);
    if (rc == RC_OK) rc = model_set_plane(model, SECTION_PARAMETERS, m->now);
    if (rc == RC_OK) rc = model_set_plane(model, SECTION_BUFFERS, m->buffers);
    return rc;
}

enum rc align_model(struct model *model, const float *anchor, struct fault *why)
{
    struct symmetry *symmetry = NULL;
    struct fault reason = {""};
    struct matching m = {.schema = model_schema(model), .anchor = anchor};
    enum rc rc = symmetry_create(model, &symmetry, &reason);

    if (rc == RC_OK) {
        m.symmetry = symmetry;
        rc = align(model, &m, &reason);
    }
    mem_free(m.now);
    mem_free(m.next);
    mem_free(m.buffers);
    mem_free(m.next_buffers);
    mem_free(m.gains);
    mem_free(m.order);
    symmetry_destroy(symmetry);
    if (rc == RC_OK) return rc;
    return fault_set(why, rc, "cannot align: %s",
                     reason.text[0] != '\0' ? reason.text : rc_text(rc));
}

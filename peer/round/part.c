/*
 * What of the plane a round carries, where it carries a part of it (averaging/codec/mask.h): the
 * one place in which values are gathered and scattered. Between the two everything works on the
 * plane of the round as if it were the whole.
 *
 *   snapshot   training lane   the learner's values -> `snapshot`            round_take()
 *   begin      exchange lane   anchor, momentum, centre -> those of the rule  round_part_begin()
 *   settled    exchange lane   and back; `difference` -> `spread`             round_part_end()
 *   apply      training lane   `spread` is added to the learner's values
 *
 * `spread` is -0 where no round is: x + -0 is x to the bit, also for x = -0, where + 0 is not.
 *
 * What a rule keeps is whole once each part has it; before, there is nothing to save or to give to
 * others. Of the centre NaN stands where no round has been: there our own values are.
 *
 * And blending (strategy.blends): what the steps beside a round added to x counts a, and what the
 * round says 1 - a: x = a x + (1 - a) y (Douillard et al. 2025, arXiv:2501.18512, section 2.2).
 * Without it both count whole, as in LOSCAR-SGD (arXiv:2605.20866): x = y + (x - snapshot).
 */
#include "peer/round/internal.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <math.h>

static bool has_parts(const struct round *round)
{
    return round->options.masks != NULL;
}

bool round_part_create(struct round *round)
{
    const struct masks *masks = round->options.masks;
    const size_t bytes = round->options.values * sizeof(float);
    const bool blends = round->options.strategy->blends;

    round->parts_count = masks == NULL ? 1 : masks_parts(masks);
    round->parts = mem_array(round->parts_count, sizeof *round->parts);
    if (round->parts == NULL) return false;
    if (masks != NULL || blends) {
        round->exported = mem_aligned(bytes);
        round->gathered = mem_aligned(round->capacity * sizeof(float));
        if (round->exported == NULL || round->gathered == NULL) return false;
    }
    if (masks == NULL) return true;
    round->spread = mem_aligned(bytes);
    if (round->spread == NULL) return false;
    for (size_t i = 0; i < round->options.values; i++) {
        round->spread[i] = -0.0f;
    }
    if (round_keeps_centre(round)) {
        round->whole_centre = mem_aligned(bytes);
        if (round->whole_centre == NULL) return false;
        round_part_forget(round);
    }
    for (size_t i = 0; round->options.strategy->rule->is_outer && i < RULE_STATE_MAX; i++) {
        round->state[i] = mem_aligned(bytes);
        round->state_part[i] = mem_aligned(round->capacity * sizeof(float));
        if (round->state[i] == NULL || round->state_part[i] == NULL) return false;
        memset(round->state_part[i], 0, round->capacity * sizeof(float));
    }
    return true;
}

void round_part_destroy(struct round *round)
{
    for (uint32_t i = 0; round->parts != NULL && i < round->parts_count; i++) {
        robust_destroy(round->parts[i].robust);
    }
    mem_free(round->parts);
    mem_free(round->exported);
    mem_free(round->gathered);
    mem_free(round->spread);
    mem_free(round->whole_centre);
    for (size_t i = 0; i < RULE_STATE_MAX; i++) {
        mem_free(round->state[i]);
        mem_free(round->state_part[i]);
    }
}

/* ---- which ---- */

static struct mask_layout layout_of(const struct round *round, struct mask mask)
{
    if (has_parts(round)) return masks_layout(round->options.masks, mask);
    return (struct mask_layout){.values = round->options.values,
                                .parameters = round->options.parameters,
                                .chunk_values = CHUNK_VALUES};
}

/* Rounds that their members number alike have no initiator in their key. */
static uint64_t origin_of(const struct round_key *key)
{
    static const struct peer_id nobody;

    if (peer_id_is_equal(key->initiator, nobody)) return 0;
    return load_le64(key->initiator.bytes) | 1;
}

void round_part_choose(struct round *round, const struct round_key *key)
{
    struct mask mask = {0};

    if (has_parts(round)) mask = masks_of(round->options.masks, origin_of(key), key->counter);
    round->mask = mask;
    round->layout = layout_of(round, mask);
    round->robust = round->parts[mask.part].robust;
}

/* ---- the snapshot ---- */

MUST_USE enum rc round_take(struct round *round, const float *live, size_t count)
{
    if (has_parts(round)) {
        masks_gather(round->options.masks, round->mask, live, count, round->exported,
                     round->snapshot);
        return RC_OK;
    }
    return count > 0 ? round_encode(round, live, count) : RC_OK;
}

/* ---- what is kept between rounds ---- */

void round_part_forget(struct round *round)
{
    for (uint32_t i = 0; i < round->parts_count; i++) {
        round->parts[i].has_state = false;
    }
    for (size_t i = 0; round->whole_centre != NULL && i < round->options.values; i++) {
        round->whole_centre[i] = NAN;
    }
}

static enum rc gather_state(struct round *round, const float *const *planes, size_t count)
{
    const float *gathered[RULE_STATE_MAX] = {NULL};

    for (size_t i = 0; i < count; i++) {
        masks_gather(round->options.masks, round->mask, planes[i], round->options.values, NULL,
                     round->state_part[i]);
        gathered[i] = round->state_part[i];
    }
    return round->options.strategy->rule->restore(round->rule, gathered, count);
}

MUST_USE enum rc round_part_restore(struct round *round, const float *const *planes, size_t count)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    enum rc rc;

    if (!has_parts(round) || !rule->is_outer) return rule->restore(round->rule, planes, count);
    CHECK(count <= RULE_STATE_MAX);
    for (size_t i = 0; i < count; i++) {
        if (!floats_are_finite(planes[i], round->options.values)) return RC_NONFINITE;
    }
    rc = gather_state(round, planes, count); /* does the rule keep so many? */
    rule->forget(round->rule);
    if (rc != RC_OK || count == 0) return rc;
    for (size_t i = 0; i < count; i++) {
        memcpy(round->state[i], planes[i], round->options.values * sizeof(float));
    }
    round->state_count = count;
    for (uint32_t i = 0; i < round->parts_count; i++) {
        round->parts[i].has_state = true;
    }
    return RC_OK;
}

size_t round_part_state(const struct round *round, const float *planes[RULE_STATE_MAX])
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (!has_parts(round) || !rule->is_outer) return rule->state(round->rule, planes);
    for (uint32_t i = 0; i < round->parts_count; i++) {
        if (!round->parts[i].has_state) return 0;
    }
    for (size_t i = 0; i < round->state_count; i++) {
        planes[i] = round->state[i];
    }
    return round->state_count;
}

static void begin_centre(struct round *round)
{
    if (round->whole_centre == NULL) return;
    masks_gather(round->options.masks, round->mask, round->whole_centre, round->options.values,
                 NULL, round->centre);
    for (size_t i = 0; i < round->layout.values; i++) {
        if (isnan(round->centre[i])) round->centre[i] = round->own[i];
    }
    round->has_centre = true;
}

void round_part_begin(struct round *round)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    const float *planes[RULE_STATE_MAX];

    if (!has_parts(round)) return;
    begin_centre(round);
    if (!rule->is_outer) return;
    rule->forget(round->rule);
    if (!round->parts[round->mask.part].has_state) return;
    for (size_t i = 0; i < round->state_count; i++) {
        planes[i] = round->state[i];
    }
    if (gather_state(round, planes, round->state_count) != RC_OK) rule->forget(round->rule);
}

/* ---- what came of it ---- */

static void spread(struct round *round, struct mask mask)
{
    const struct masks *masks = round->options.masks;

    if (round->has_spread) masks_fill(masks, round->spread_mask, -0.0f, round->spread);
    masks_scatter(masks, mask, round->difference, round->spread);
    round->spread_mask = mask;
    round->has_spread = true;
}

void round_part_late(struct round *round, struct mask mask)
{
    if (has_parts(round)) spread(round, mask);
}

void round_part_end(struct round *round)
{
    const struct rule_ops *rule = round->options.strategy->rule;
    const float *planes[RULE_STATE_MAX];
    size_t count;

    if (!has_parts(round)) return;
    spread(round, round->mask);
    if (round->whole_centre != NULL) {
        masks_scatter(round->options.masks, round->mask, round->centre, round->whole_centre);
    }
    if (!rule->is_outer) return;
    count = rule->state(round->rule, planes);
    round->parts[round->mask.part].has_state = count > 0;
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) {
        masks_scatter(round->options.masks, round->mask, planes[i], round->state[i]);
    }
    round->state_count = count;
}

const float *round_difference(const struct round *round)
{
    CHECK(round->phase == PHASE_READY);
    return has_parts(round) ? round->spread : round->difference;
}

float *round_blend_buffer(struct round *round)
{
    if (round->is_last) return NULL; /* there are no steps beside it, and no round will follow */
    return round->options.strategy->blends ? round->exported : NULL;
}

void round_blend(struct round *round, const float *live, size_t count)
{
    const float rest = 1 - round->options.strategy->local_share;
    float *now = round->gathered;

    CHECK(round->phase == PHASE_READY && round->own != NULL);
    if (has_parts(round)) {
        masks_gather(round->options.masks, round->mask, live, count, round->exported, now);
    } else {
        if (count > 0) memcpy(now, live, count * sizeof(float));
        memcpy(now + count, round->exported + count,
               (round->layout.values - count) * sizeof(float));
    }
    for (uint32_t chunk = 0; chunk < round->chunks; chunk++) {
        struct range range = round_chunk_range(round, chunk);

        if ((round->settled[chunk / 8] >> chunk % 8 & 1) == 0) continue;
        for (size_t i = range.first; i < range.first + range.count; i++) {
            round->difference[i] = rest * (round->own[i] + round->difference[i] - now[i]);
        }
    }
    if (has_parts(round)) spread(round, round->mask);
}

double round_part_scale(const struct round *round)
{
    if (!has_parts(round) || round->layout.parameters == 0) return 1;
    return (double)round->options.parameters / (double)round->layout.parameters;
}

/*
 * What is read of the model for others: a snapshot for joiners, or a sketch of it by which they can
 * say whether a donor lies. In the training lane.
 */
#include "peer/node/models/internal.h"

#include "base/floats.h"
#include "peer/download/buckets.h"
#include "base/norm.h"

#include <math.h>

/* One more section of the snapshot: takes `values`, or where they are NULL it is to be filled. */
static float *add_section(struct donor_snapshot *snapshot, uint32_t section, size_t count,
                          float *values)
{
    uint32_t at = snapshot->sections_count;

    snapshot->values[at] = values == NULL ? mem_aligned(count * sizeof(float)) : values;
    if (snapshot->values[at] == NULL) return NULL;
    snapshot->sections[at] = section;
    snapshot->counts[at] = count;
    snapshot->sections_count++;
    return snapshot->values[at];
}

/* After an outer step the model is the anchor, but for the elastic method: who joins begins there.
 */
static enum rc copy_rule(struct models_donation *donation)
{
    struct donor_snapshot *snapshot = &donation->snapshot;

    if (donation->rule_count == 0) return RC_OK;
    memcpy(snapshot->values[0], donation->rule[0],
           donation->node->schema->shared_parameters * sizeof(float));
    for (size_t i = 0; i < donation->rule_count; i++) {
        size_t count = donation->node->mixed;
        float *plane = add_section(snapshot, (uint32_t)(SECTION_RULE + i), count, NULL);

        if (plane == NULL) return RC_NOMEM;
        memcpy(plane, donation->rule[i], count * sizeof(float));
    }
    return RC_OK;
}

/* What is this peer's own is nobody else's. */
static void clear_private(const struct node *node, enum section section, float *plane)
{
    const struct schema *schema = node->schema;
    const size_t count = schema->values[section];
    const size_t each = section == SECTION_MOMENTS ? node->values : count;
    const size_t shared =
        section == SECTION_BUFFERS ? schema->shared_buffers : schema->shared_parameters;

    if (section == SECTION_INPUT || lane_shares_all(node)) return;
    for (size_t at = 0; at < count; at += each) {
        memset(plane + at + shared, 0, (each - shared) * sizeof *plane);
    }
}

enum rc models_copy(struct models_donation *donation)
{
    static const enum section all[] = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_MOMENTS,
                                       SECTION_INPUT};
    struct donor_snapshot *snapshot = &donation->snapshot;
    enum rc rc = RC_OK;

    snapshot->updates = lane_updates(donation->node);
    for (size_t i = 0; i < ARRAY_COUNT(all) && rc == RC_OK; i++) {
        size_t count = donation->node->schema->values[all[i]];
        float *agreed = all[i] == SECTION_PARAMETERS ? donation->agreed : NULL, *plane;

        if (count == 0) continue;
        plane = add_section(snapshot, all[i], count, agreed); /* parameters come first in it */
        if (plane == NULL) return RC_NOMEM;
        if (agreed != NULL) {
            donation->agreed = NULL;
        } else {
            rc = lane_export(donation->node, all[i], plane);
            if (rc == RC_OK) clear_private(donation->node, all[i], plane);
        }
    }
    return rc == RC_OK ? copy_rule(donation) : rc;
}

/* NULL: there is none of this section, or an error, in *rc. */
static float *section_now(struct node *node, enum section section, enum rc *rc)
{
    size_t count = node->schema->values[section];
    float *plane = count == 0 ? NULL : mem_aligned(count * sizeof(float));

    if (count == 0) return NULL;
    *rc = plane == NULL ? RC_NOMEM : lane_export(node, section, plane);
    if (*rc == RC_OK && !floats_are_finite(plane, count)) *rc = RC_NONFINITE;
    if (*rc == RC_OK) return plane;
    mem_free(plane);
    return NULL;
}

void models_sketch(struct border_job *job)
{
    struct node *node = job->node;
    struct sketch_answer *answer = &node->models->sketching.answer;
    uint64_t seed = node->models->sketching.asks[0].seed;
    enum rc rc = RC_OK;
    float *plane;

    memset(answer, 0, sizeof *answer);
    plane = section_now(node, SECTION_PARAMETERS, &rc);
    if (plane != NULL) {
        sketch_make(plane, node->schema->shared_parameters, seed, &answer->sketch);
    }
    mem_free(plane);
    plane = rc == RC_OK ? section_now(node, SECTION_BUFFERS, &rc) : NULL;
    if (plane != NULL) {
        sketch_make(plane, node->schema->shared_buffers, seed, &answer->buffers);
    }
    mem_free(plane);
    plane = rc == RC_OK ? section_now(node, SECTION_MOMENTS, &rc) : NULL;
    if (plane != NULL) {
        answer->moments = sqrt(norm_squared(plane, node->schema->values[SECTION_MOMENTS]));
    }
    mem_free(plane);
    job->rc = rc;
}

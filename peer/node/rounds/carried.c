/*
 * What rounds carry, where each carries a part of the model: how the learner's plane is divided. It
 * follows from the schema and the run alone, so all members divide it alike. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "base/bytes.h"

#include <string.h>

/* Tensors of one layer have names that are alike up to the last point. */
static bool is_of_layer(const struct tensor *tensor, const struct tensor *before)
{
    const char *point = strrchr(before->name, '.');
    size_t count = point == NULL ? strlen(before->name) + 1 : (size_t)(point - before->name) + 1;

    return strncmp(tensor->name, before->name, count) == 0;
}

/* Where layers end among the parameters that are shared. Returns how many there are. */
static size_t layer_ends(const struct schema *schema, size_t *ends)
{
    const struct tensor *before = NULL;
    size_t count = 0;

    for (uint32_t i = 0; i < schema->shared_tensors; i++) {
        const struct tensor *tensor = &schema->tensors[i];

        if (tensor->section != SECTION_PARAMETERS) continue;
        if (before == NULL || !is_of_layer(tensor, before)) count++;
        ends[count - 1] = tensor->offset + tensor->count;
        before = tensor;
    }
    return count;
}

/* The optimizer's first buffer, and what lies behind it; all is of the model where it has none. */
static void add_tails(const struct node *node, struct masks_options *options)
{
    const size_t moments = lane_moments_values(node);
    const size_t first = moments < node->values ? moments : node->values;
    const struct strategy *strategy = node->options.strategy;

    options->values = node->mixed;
    options->tails[0] = (struct mask_tail){first, strategy->first_rounds};
    options->tails[1] = (struct mask_tail){moments - first, strategy->second_rounds};
    options->tails_count = MASK_TAILS_MAX;
}

enum rc rounds_create_masks(struct node *node)
{
    const struct strategy *strategy = node->options.strategy;
    const struct schema *schema = node->schema;
    struct masks_options options = {.values = schema->values[SECTION_MIXED],
                                    .parameters = schema->shared_parameters,
                                    .fragments = strategy->fragments,
                                    .slots = strategy->fragments > 0 ? 0 : strategy->slots,
                                    .seed = load_le64(node->options.swarm->run_id.bytes)};
    size_t *ends;

    if (!strategy_has_masks(strategy)) return RC_OK;
    if (strategy->first_rounds > 0) add_tails(node, &options);
    ends = mem_array(schema->shared_tensors, sizeof *ends);
    if (ends == NULL) return RC_NOMEM;
    options.ends = ends;
    options.ends_count = layer_ends(schema, ends);
    node->rounds->masks = masks_create(&options);
    mem_free(ends);
    return node->rounds->masks == NULL ? RC_NOMEM : RC_OK;
}

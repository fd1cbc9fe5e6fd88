/* local_kept: what the checkpoints of a testnet's peers say. Files that cannot be read say nothing.
 */
#include "testnet/local_internal.h"

#include "replica/formats/model_file.h"
#include "replica/plane/store_safetensors.h"

#include <stdio.h>

uint64_t local_samples_kept(struct local *local, uint32_t peer)
{
    char path[LOCAL_PATH_BYTES];
    struct tensor_file *file = NULL;
    struct model_card card;
    uint64_t samples = 0;

    snprintf(path, sizeof path, "%s/peer-%03u/model.safetensors", local->options->out, peer);
    if (tensor_file_load(path, &file, NULL) == RC_OK &&
        model_card_read(file, path, &card, NULL) == RC_OK) {
        samples = card.samples;
    }
    tensor_file_destroy(file);
    return samples;
}

void local_read_lineage(struct local *local, uint32_t peer)
{
    struct local_peer *seen = &local->runners[peer].seen;
    char path[LOCAL_PATH_BYTES];
    struct tensor_file *file = NULL;

    snprintf(path, sizeof path, "%s/peer-%03u/state.safetensors", local->options->out, peer);
    if (tensor_file_load(path, &file, NULL) == RC_OK) {
        const char *lineage = tensor_file_get(file, "lineage");
        if (lineage != NULL) snprintf(seen->lineage, sizeof seen->lineage, "%s", lineage);
    }
    tensor_file_destroy(file);
}

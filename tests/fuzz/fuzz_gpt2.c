/* Any bytes as a model file in Hugging Face's names: refused with a reason, or a model that runs.
 */
#include "base/check.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/gpt2.h"
#include "replica/formats/model_file.h"
#include "replica/plane/store_safetensors.h"

#include <string.h>

static void load(const struct tensor_file *file)
{
    const struct cpu_backend_options request = {.threads = 1};
    const struct model_load_options options = {.batch_max = 1, .steps = 1};
    struct backend *backend = cpu_backend_create(&request);
    struct model *model = NULL;
    struct model_card card;
    struct fault why = {""};
    const float token = 0.0F;
    float *logits;

    CHECK(backend != NULL);
    if (model_load_with(backend, file, "fuzz", &options, &model, &card, &why) != RC_OK) {
        CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
    } else {
        logits = mem_array(card.symbols, sizeof *logits);
        CHECK(gpt2_is_form(model));
        CHECK(model_forward(model, &token, 1, false, logits) == RC_OK);
        mem_free(logits);
    }
    model_destroy(model);
    backend_destroy(backend);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tensor_file *file = NULL;
    struct fault why = {""};
    void *copy = mem_alloc(count);

    memcpy(copy, bytes, count);
    if (tensor_file_decode("fuzz", copy, count, &file, &why) != RC_OK) {
        mem_free(copy);
        return 0;
    }
    if (gpt2_is_file(file)) load(file);
    tensor_file_destroy(file);
    return 0;
}

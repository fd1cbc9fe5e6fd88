/* Any bytes as a model file, in Hugging Face's names for GPT-2 or ours, also with packed weights:
 * refused with a reason, or a model that runs (of ours: that can be packed and read again). */
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

/* Weights of a model that came from a file are finite, and so they are packed and back. */
static void pack_again(struct backend *backend, struct model *model, const struct model_card *card)
{
    struct tensor_file *file = tensor_file_create();
    struct model *again = NULL;
    struct model_card read;
    struct fault why = {""};

    CHECK(model_save_packed(model, card, card->step % 2 == 0, file) == RC_OK);
    CHECK(model_load(backend, file, "again", 1, false, &again, &read, &why) == RC_OK);
    model_destroy(again);
    tensor_file_destroy(file);
}

/* Small ones, that is: a few bytes may ask for images of millions of pixels. */
static void load_own(const struct tensor_file *file)
{
    const struct cpu_backend_options request = {.threads = 1};
    struct backend *backend = cpu_backend_create(&request);
    struct model *model = NULL;
    struct model_card card;
    struct fault why = {""};

    CHECK(backend != NULL);
    if (model_card_read(file, "fuzz", &card, &why) != RC_OK) {
        CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
    } else if (card.channels <= 8 && card.height <= 8 && card.width <= 8) {
        if (model_load(backend, file, "fuzz", 1, false, &model, &card, &why) == RC_OK)
            pack_again(backend, model, &card);
        else
            CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
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
    if (gpt2_is_file(file))
        load(file);
    else
        load_own(file);
    tensor_file_destroy(file);
    return 0;
}

/* Any text as a `--model`: what parses is written out and read again the same; what fits small data
 * is trained for a step, with and without sharing memory, to the same bits. The first byte chooses
 * the data. */
#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/model/loss.h"
#include "replica/model/plan.h"

#include <math.h>
#include <string.h>

enum { CLASSES = 3, BATCH = 3, COUNT_MAX = 24, LAYERS_FEW = 24, HEADS_MOST = 64, STEPS_MOST = 6 };
enum { VALUES_MOST = BATCH * 4 * 6 * 6, LOGITS_MOST = BATCH * STEPS_MOST * HEADS_MOST * CLASSES };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Small enough to be computed many times a second. */
static bool is_small(const struct layer_list *list)
{
    if (list->count > LAYERS_FEW) return false;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->layers[i].count > COUNT_MAX) return false;
    }
    return true;
}

static void check_round_trip(const struct layer_list *list)
{
    struct layer_list *again = mem_alloc(sizeof(*again));
    char text[LAYERS_TEXT_BYTES], twice[LAYERS_TEXT_BYTES];

    CHECK(again != NULL);
    if (layers_format(list, text, sizeof(text)) == RC_OK) {
        CHECK(layers_parse(text, CLASSES, again, NULL) == RC_OK && again->count == list->count);
        CHECK(layers_format(again, twice, sizeof(twice)) == RC_OK && strcmp(text, twice) == 0);
    }
    mem_free(again);
}

/* One step's gradient is left in the model; whether the loss is a number. */
static bool train(struct model *model, const float *input)
{
    static const uint32_t labels[LOGITS_MOST]; /* class 0 */
    float logits[LOGITS_MOST];
    uint32_t rows = BATCH * model_rows(model) * model_heads(model), correct = 0;
    double loss;

    CHECK((size_t)rows * CLASSES <= LOGITS_MOST);
    CHECK(model_forward(model, input, BATCH, true, logits) == RC_OK);
    loss = loss_cross_entropy(logits, labels, rows, CLASSES, logits, &correct);
    CHECK(model_backward(model, logits) == RC_OK);
    CHECK(model_forward(model, input, 1, false, logits) == RC_OK);
    return isfinite(loss);
}

static void fuzz_model(const char *text, uint8_t choice)
{
    struct cpu_backend_options cpu = {.threads = 1, .is_reference = (choice & 2) != 0};
    struct backend *backend = cpu_backend_create(&cpu);
    bool is_text = (choice & 1) != 0;
    struct model_options options = {.spec = text,
                                    .channels = is_text ? 1 : 1 + choice / 4 % 4,
                                    .height = is_text ? 1 : 1 + choice / 16 % 6,
                                    .width = 1 + choice / 32 % STEPS_MOST,
                                    .classes = CLASSES,
                                    .batch_max = BATCH,
                                    .with_gradients = true,
                                    .input = is_text ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE};
    struct model *shared = NULL, *apart = NULL;
    struct fault why = {""};
    float input[VALUES_MOST];
    enum rc rc;

    CHECK(backend != NULL);
    backend->pixels_per_slice = backend->rows_per_slice = 8;
    for (size_t i = 0; i < VALUES_MOST; i++) {
        input[i] = is_text ? (float)(i % CLASSES) : (float)(i % 13) / 6.0F - 1.0F;
    }
    rc = model_create(backend, &options, &shared, &why);
    CHECK(rc == RC_OK || why.text[0] != '\0');
    if (rc == RC_OK) {
        CHECK(model_create_unshared(backend, &options, &apart, &why) == RC_OK);
        if (train(shared, input) && train(apart, input)) {
            CHECK(memcmp(model_plane(shared, SECTION_GRADIENT),
                         model_plane(apart, SECTION_GRADIENT),
                         model_schema(shared)->values[SECTION_GRADIENT] * sizeof(float)) == 0);
        }
    }
    model_destroy(shared);
    model_destroy(apart);
    backend_destroy(backend);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct layer_list *list;
    struct fault why = {""};
    char *text;

    if (count == 0) return 0;
    list = mem_alloc(sizeof(*list));
    text = mem_alloc(count);
    CHECK(list != NULL && text != NULL);
    memcpy(text, bytes + 1, count - 1);
    if (layers_parse(text, CLASSES, list, &why) == RC_OK) {
        check_round_trip(list);
        if (is_small(list)) fuzz_model(text, bytes[0]);
    } else {
        CHECK(why.text[0] != '\0');
    }
    mem_free(list);
    mem_free(text);
    return 0;
}

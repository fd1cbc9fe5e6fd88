/* stage: layers that do not fit say which shapes clash, where, and what to do. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/model/model.h"

enum { WORDS_MAX = 4 };

/* Not whole sentences: which layer it is about, the code, and the figures and words that name the
 * cause and the way out. */
struct refusal {
    const char *spec;
    size_t column; /* of the layer that is to blame; 0: the list as a whole */
    enum rc rc;
    const char *words[WORDS_MAX];
};

/* Of images of 8x8 in one channel. */
static const struct refusal of_images[] = {
    {"conv3x3:8 maxpool2 maxpool2 maxpool2 maxpool2 linear:classes",
     38,
     RC_SHAPE,
     {"image of 1x1", "smaller windows"}},
    {"conv15x15:8,pad=0 linear:classes",
     1,
     RC_SHAPE,
     {"image of 8x8", "smaller filter", "larger pad"}},
    {"conv3x3:8,groups=3 linear:classes",
     1,
     RC_SHAPE,
     {"groups", "1 channels in", "8 out", "3 groups"}},
    {"linear:8 conv3x3:8 linear:classes",
     10,
     RC_SHAPE,
     {"an image", "8 values", "linear", "globalpool"}},
    {"rows conv3x3:8 linear:classes", 6, RC_SHAPE, {"an image", "8 steps of 8 values", "'rows'"}},
    {"local3x3:8,stride=2 local15x15:3,pad=0 linear:classes",
     21,
     RC_SHAPE,
     {"image of 4x4", "smaller filter", "larger pad"}},
    {"linear:8 local3x3:3 linear:classes", 10, RC_SHAPE, {"an image", "8 values"}},
    {"maxpool2,pad=2 linear:classes", 1, RC_SHAPE, {"half of its window", "pad=1"}},
    {"linear:8 avgpool2 linear:classes", 10, RC_SHAPE, {"an image", "8 values"}},
    {"globalpool globalpool linear:classes", 12, RC_SHAPE, {"an image", "1 value"}},
    {"conv3x3:8 shortcut:4 linear:classes", 11, RC_SHAPE, {"channels", "8", "conv1x1:4"}},
    {"linear:4 shortcut:4 linear:classes", 10, RC_SHAPE, {"an image", "4 values"}},
    {"rows gn:4 linear:classes", 6, RC_SHAPE, {"an image", "'ln'"}},
    {"conv3x3:8 gn:3 linear:classes", 11, RC_SHAPE, {"8 channels", "3 groups"}},
    {"conv3x3:8 ln linear:classes", 11, RC_SHAPE, {"rows", "image of 8x8x8", "'gn:1'"}},
    {"gn:2000 linear:classes", 1, RC_SHAPE, {"1 channels", "2000 groups"}},
    {"embed:8 linear:classes", 1, RC_SHAPE, {"text", "image", "--data text:FILE"}},
    {"linear:8 embed:8 linear:classes", 10, RC_SHAPE, {"first layer"}},
    {"positions:8 linear:classes",
     1,
     RC_SHAPE,
     {"a sequence", "image of 1x8x8", "embed:N", "'rows'"}},
    {"rows positions:4 linear:classes", 6, RC_SHAPE, {"too short", "8 steps", "positions:8"}},
    {"attention:4 linear:classes",
     1,
     RC_SHAPE,
     {"a sequence", "image of 1x8x8", "embed:N", "'rows'"}},
    {"rows attention:3 linear:classes", 6, RC_SHAPE, {"width of 8", "3 heads", "divides"}},
    {"rows attention:8,rotary=1 last linear:classes",
     6,
     RC_SHAPE,
     {"even width", "1 value", "number of heads"}},
    {"linear:8 lstm:4 linear:classes",
     10,
     RC_SHAPE,
     {"a sequence", "8 values", "embed:N", "'rows'"}},
    {"rows lstm:300000 last linear:classes", 6, RC_SHAPE, {"262144"}},
    {"linear:8 rows linear:classes", 10, RC_SHAPE, {"an image", "8 values"}},
    {"last linear:classes", 1, RC_SHAPE, {"a sequence", "image of 1x8x8"}},
    {"rows last last linear:classes", 11, RC_SHAPE, {"a sequence", "8 values"}},
    {"[ conv3x3:8 | conv3x3:4 ]+ linear:classes",
     25,
     RC_SHAPE,
     {"add", "image of 8x8x8", "image of 4x8x8", "shortcut:8,stride=1"}},
    {"[ conv3x3:16 | conv3x3:3 ]+ linear:classes",
     26,
     RC_SHAPE,
     {"add", "image of 16x8x8", "image of 3x8x8", "shortcut:16,stride=1"}},
    {"[ conv3x3:8 | linear:8 ]+ linear:classes",
     24,
     RC_SHAPE,
     {"add", "image of 8x8x8", "8 values", "one shape"}},
    {"[ rows lstm:8 | conv3x3:8 ]+ linear:classes",
     27,
     RC_SHAPE,
     {"add", "8 steps of 8 values", "image of 8x8x8"}},
    {"[ rows lstm:8 | rows lstm:4 ]+ last linear:classes",
     29,
     RC_SHAPE,
     {"add", "8 steps of 8 values", "8 steps of 4 values"}},
    {"[ conv3x3:8 | maxpool2 ]concat linear:classes",
     24,
     RC_SHAPE,
     {"join", "image of 8x8x8", "image of 1x4x4", "channels"}},
    {"[ rows | linear:4 ]concat linear:classes",
     19,
     RC_SHAPE,
     {"join", "8 steps of 8 values", "4 values"}},
    {"[ linear:8 | linear:9 ]+ linear:classes", 23, RC_SHAPE, {"add", "8 values", "9 values"}},
    {"[ linear:classes | linear:3 ]heads",
     29,
     RC_SHAPE,
     {"number 2", "3 values", "10 values", "linear:classes"}},
    {"[ linear:5 | linear:5 ]heads",
     23,
     RC_SHAPE,
     {"number 1", "5 values", "10 values", "linear:classes"}},
    {"linear:classes,tied=1", 1, RC_SHAPE, {"no embedding", "embed:N"}},
    {"linear:5", 0, RC_SHAPE, {"5 values", "10 values", "linear:classes"}},
    {"conv3x3:4", 0, RC_SHAPE, {"image of 4x8x8", "10 values", "linear:classes"}},
    {"rows lstm:4", 0, RC_SHAPE, {"8 steps of 4 values", "10 values", "linear:classes"}},
    {"relu", 0, RC_SHAPE, {"image of 1x8x8", "10 values", "linear:classes"}},
    {"[ linear:classes ]*2 relu", 18, RC_SHAPE, {"end of the list"}},
    {"linear:1000000 linear:1000000 linear:classes", 16, RC_LIMIT, {"2^32 parameters"}},
    {"(linear:65536)*3 linear:classes", 2, RC_LIMIT, {"2^32 parameters"}},
    {"rows", 0, RC_SHAPE, {"8 steps of 8 values", "10 values", "linear:classes"}},
};

/* Of sequences of 128 tokens. */
static const struct refusal of_tokens[] = {
    {"embed:8 positions:64 linear:classes",
     9,
     RC_SHAPE,
     {"too short", "128 steps", "positions:128"}},
    {"embed:8 embed:8 linear:classes", 9, RC_SHAPE, {"first layer"}},
    {"embed:8 attention:3 linear:classes", 9, RC_SHAPE, {"width of 8", "3 heads", "divides"}},
    {"embed:8 linear:6 linear:classes,tied=1",
     18,
     RC_SHAPE,
     {"embedding of 10 symbols", "8 values", "10 of 6", "linear:8"}},
    {"embed:8 linear:classes,tied=1 linear:classes,tied=1", 31, RC_SHAPE, {"second", "embedding"}},
    {"embed:8 linear:classes,tied=1,wn=1", 9, RC_SHAPE, {"both tied and normalised"}},
    {"embed:8 conv3x3:8 linear:classes",
     9,
     RC_SHAPE,
     {"an image", "128 steps of 8 values", "attention"}},
    {"embed:8 maxpool2 linear:classes",
     9,
     RC_SHAPE,
     {"an image", "128 steps of 8 values", "attention"}},
    {"embed:8 globalpool linear:classes",
     9,
     RC_SHAPE,
     {"an image", "128 steps of 8 values", "attention"}},
    {"embed:8 [ lstm:8 | last ]+ linear:classes",
     25,
     RC_SHAPE,
     {"add", "128 steps of 8 values", "8 values"}},
    {"embed:8 [ lstm:8 | last ]concat linear:classes",
     25,
     RC_SHAPE,
     {"join", "128 steps of 8 values", "8 values"}},
    {"embed:8 linear:5", 0, RC_SHAPE, {"128 steps of 5 values", "10 values", "linear:classes"}},
    {"embed:9 attention:3,rotary=1 linear:classes",
     9,
     RC_SHAPE,
     {"even width", "3 values", "number of heads"}},
};

static void check_says(const struct fault *why, const char *spec, const char *word)
{
    if (strstr(why->text, word) == NULL) fail_msg("%s: no \"%s\" in: %s", spec, word, why->text);
}

/* Where it is, and which layer is there: its name and size as in the list. */
static void check_place(const struct fault *why, const char *spec, size_t column)
{
    char place[64] = "--model: ", layer[64];

    if (column > 0) snprintf(place, sizeof place, "--model, column %zu: ", column);
    if (strncmp(why->text, place, strlen(place)) != 0) {
        fail_msg("%s: not \"%s...\" but: %s", spec, place, why->text);
    }
    if (column == 0) return;
    assert_true(column <= strlen(spec));
    snprintf(layer, sizeof layer, "'%.*s", (int)strcspn(spec + column - 1, " ,*)"),
             spec + column - 1);
    check_says(why, spec, layer);
}

static struct model_options options_of(const char *spec, bool is_text)
{
    return (struct model_options){.spec = spec,
                                  .channels = 1,
                                  .height = is_text ? 1 : 8,
                                  .width = is_text ? 128 : 8,
                                  .classes = 10,
                                  .batch_max = 64,
                                  .with_gradients = true,
                                  .input = is_text ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE};
}

static void check_refused(struct backend *cpu, const struct refusal *refusal, bool is_text)
{
    struct model_options options = options_of(refusal->spec, is_text);
    struct model *model = NULL;
    struct fault why = {""};
    enum rc rc = model_create(cpu, &options, &model, &why);

    if (rc != refusal->rc) fail_msg("%s: code %d, not %d", refusal->spec, rc, refusal->rc);
    check_place(&why, refusal->spec, refusal->column);
    for (size_t i = 0; i < WORDS_MAX && refusal->words[i] != NULL; i++) {
        check_says(&why, refusal->spec, refusal->words[i]);
    }
    assert_null(model);
}

static void layers_that_do_not_fit_say_so_with_their_column(void **state)
{
    struct cpu_backend_options options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&options);
    uint64_t blocks = mem_blocks();

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(of_images); i++) {
        check_refused(cpu, &of_images[i], false);
    }
    for (size_t i = 0; i < ARRAY_COUNT(of_tokens); i++) {
        check_refused(cpu, &of_tokens[i], true);
    }
    assert_true(mem_blocks() <= blocks + 2); /* scratch of the backend may have come to stay */
    backend_destroy(cpu);
}

/* Data without images, such as rows of numbers. */
static void layers_of_images_ask_numbers_for_linear(void **state)
{
    struct cpu_backend_options cpu_options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&cpu_options);
    struct model_options options = options_of("conv3x3:8 linear:classes", false);
    struct model *model = NULL;
    struct fault why = {""};

    (void)state;
    options.channels = 13;
    options.height = options.width = 1;
    assert_int_equal(model_create(cpu, &options, &model, &why), RC_SHAPE);
    check_place(&why, options.spec, 1);
    check_says(&why, options.spec, "13 values");
    check_says(&why, options.spec, "linear:N");
    backend_destroy(cpu);
}

/* As many layers as a list may have, with as many tensors as a layer may have. */
static void the_longest_lists_are_models(void **state)
{
    static const char *const specs[] = {
        "(bn)*500 linear:classes", "rows (rnn:2)*200 last linear:classes",
        "rows (attention:1)*90 last linear:classes", "(linear:2)*200 linear:classes"};
    struct cpu_backend_options cpu_options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&cpu_options);

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        struct model_options options = options_of(specs[i], false);
        struct model *model = NULL;
        struct fault why = {""};
        enum rc rc;

        options.batch_max = 2;
        options.width = 4;
        rc = model_create(cpu, &options, &model, &why);
        if (rc != RC_OK) fail_msg("%s: %s", specs[i], why.text);
        model_destroy(model);
    }
    backend_destroy(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_do_not_fit_say_so_with_their_column),
        cmocka_unit_test(layers_of_images_ask_numbers_for_linear),
        cmocka_unit_test(the_longest_lists_are_models),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

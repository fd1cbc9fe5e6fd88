/* Words for classes on their way from data into model files and back, and models made for shorter
 * sequences than their file's. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/model_file.h"
#include "replica/learners/task.h"
#include "replica/plane/store_safetensors.h"

static struct backend *backend_of_test(void)
{
    const struct cpu_backend_options request = {.threads = 1};
    struct backend *backend = cpu_backend_create(&request);

    assert_non_null(backend);
    return backend;
}

static struct model *model_of(struct backend *backend, const char *spec, enum model_input input,
                              uint32_t width)
{
    const struct model_options options = {.spec = spec,
                                          .channels = 1,
                                          .height = 1,
                                          .width = width,
                                          .classes = 3,
                                          .symbols = 3,
                                          .batch_max = 1,
                                          .seed = 4,
                                          .input = input};
    struct model *model = NULL;
    struct fault why = {""};

    assert_int_equal(model_create(backend, &options, &model, &why), RC_OK);
    return model;
}

/* The words that the card of a model on this data has. */
static void words_of(struct model *model, const char *const *words, uint32_t classes,
                     enum data_target target, char text[MODEL_WORDS_BYTES])
{
    const struct dataset_info info = {.input = DATA_VECTORS,
                                      .target = target,
                                      .channels = 1,
                                      .height = 1,
                                      .width = 4,
                                      .classes = classes,
                                      .outputs = classes,
                                      .class_words = words};
    struct model_card card;

    task_card(&info, model, &card);
    memcpy(text, card.class_words, MODEL_WORDS_BYTES);
}

static void words_that_fit_are_kept_and_others_leave_none(void **state)
{
    /* One line each; a control character, too many, none, real values: no words at all. */
    static const char *const good[] = {"ash", "beech tree", "\xC3\xA4pfel"};
    static const char *const bad[] = {"ash", "be\tech", "oak"};
    const char *many[300];
    char text[MODEL_WORDS_BYTES];
    struct backend *backend = backend_of_test();
    struct model *model = model_of(backend, "linear:classes", MODEL_INPUT_IMAGE, 4);

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(many); i++) {
        many[i] = "a word of a class";
    }
    words_of(model, good, 3, DATA_CLASS, text);
    assert_string_equal(text, "ash\nbeech tree\n\xC3\xA4pfel\n");
    words_of(model, bad, 3, DATA_CLASS, text);
    assert_string_equal(text, "");
    words_of(model, many, ARRAY_COUNT(many), DATA_CLASS, text);
    assert_string_equal(text, "");
    words_of(model, NULL, 3, DATA_CLASS, text);
    assert_string_equal(text, "");
    words_of(model, good, 3, DATA_REALS, text);
    assert_string_equal(text, "");
    model_destroy(model);
    backend_destroy(backend);
}

static void a_file_keeps_the_words_or_is_refused(void **state)
{
    /* As many lines as classes, of plain letters, no longer than a card holds. */
    static char endless[MODEL_WORDS_BYTES + 8];
    static const char *const spoiled[] = {
        "", "ash\noak\n", "ash\noak\nfir", "a\nb\nc\nd\n", "ash\n\x1b[2J\nfir\n", endless};
    struct backend *backend = backend_of_test();
    struct model *model = model_of(backend, "linear:classes", MODEL_INPUT_IMAGE, 4);
    struct tensor_file *file = tensor_file_create();
    struct model_card card = {.spec = "linear:classes",
                              .channels = 1,
                              .height = 1,
                              .width = 4,
                              .classes = 3,
                              .class_words = "ash\noak\nfir\n"};
    struct model_card read;
    struct fault why = {""};

    (void)state;
    memset(endless, 'x', sizeof endless - 4);
    memcpy(endless + sizeof endless - 8, "\n\nx\n", 5);
    assert_int_equal(model_save(model, &card, file), RC_OK);
    assert_int_equal(model_card_read(file, "x", &read, &why), RC_OK);
    assert_string_equal(read.class_words, card.class_words);
    for (size_t i = 0; i < ARRAY_COUNT(spoiled); i++) {
        assert_int_equal(tensor_file_set(file, "class_words", spoiled[i]), RC_OK);
        assert_int_equal(model_card_read(file, "x", &read, &why), RC_FORMAT);
        assert_non_null(strstr(why.text, "'class_words' are not 3 plain lines"));
    }
    tensor_file_destroy(file);
    model_destroy(model);
    backend_destroy(backend);
}

static void fewer_steps_give_the_first_rows(void **state)
{
    /* What comes later is unseen: a model for 3 of 8 steps says what the whole one says of them. */
    const struct model_load_options load = {.batch_max = 1, .steps = 3};
    const float tokens[8] = {0, 2, 1, 1, 0, 2, 2, 0};
    struct backend *backend = backend_of_test();
    struct model *model =
        model_of(backend, "embed:8 positions:8 [ ln attention:2 ]+ lstm:4 linear:classes",
                 MODEL_INPUT_TOKENS, 8);
    struct model *shorter = NULL;
    struct tensor_file *file = tensor_file_create();
    struct model_card card = {.input = MODEL_INPUT_TOKENS,
                              .channels = 1,
                              .height = 1,
                              .width = 8,
                              .classes = 3,
                              .symbols = 3,
                              .symbol_bytes = "abc"};
    float whole[8 * 3], part[3 * 3];
    struct fault why = {""};

    (void)state;
    snprintf(card.spec, sizeof card.spec, "%s", model_spec(model));
    assert_int_equal(model_save(model, &card, file), RC_OK);
    assert_int_equal(model_load_with(backend, file, "x", &load, &shorter, &card, &why), RC_OK);
    assert_int_equal(model_rows(shorter), 3);
    assert_int_equal(card.width, 8);
    assert_int_equal(model_forward(model, tokens, 1, false, whole), RC_OK);
    assert_int_equal(model_forward(shorter, tokens, 1, false, part), RC_OK);
    for (size_t i = 0; i < ARRAY_COUNT(part); i++) {
        assert_float_equal(part[i], whole[i], 1e-5F);
    }
    tensor_file_destroy(file);
    model_destroy(shorter);
    model_destroy(model);
    backend_destroy(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_that_fit_are_kept_and_others_leave_none),
        cmocka_unit_test(a_file_keeps_the_words_or_is_refused),
        cmocka_unit_test(fewer_steps_give_the_first_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

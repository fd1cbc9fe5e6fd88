/* layers: what parses, what is refused and where the error points. */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/layers.h"

#define MLP "linear:256 relu linear:128 relu linear:classes"
#define CNN "conv3x3:32 relu conv3x3:64 relu maxpool2 linear:128 relu linear:classes"

static void check_text(const char *spec, const char *expected)
{
    struct layer_list list;
    struct fault why = {""};
    char text[LAYERS_TEXT_BYTES];

    assert_int_equal(layers_parse(spec, 10, &list, &why), RC_OK);
    assert_int_equal(layers_format(&list, text, sizeof(text)), RC_OK);
    assert_string_equal(text, expected);
}

static void check_refused(const char *spec, enum rc rc, const char *expected)
{
    struct layer_list list = {.count = 77};
    struct fault why = {""};

    assert_int_equal(layers_parse(spec, 10, &list, &why), rc);
    assert_string_equal(why.text, expected);
    assert_int_equal(list.count, 77); /* untouched */
}

static void presets_stand_for_their_layer_lists(void **state)
{
    (void)state;
    check_text("mlp", MLP);
    check_text("cnn", CNN);
    assert_null(layers_preset("resnet"));
}

static void text_is_read_and_written_back(void **state)
{
    struct layer_list list;

    (void)state;
    check_text(CNN, CNN);
    check_text("  conv5x5:8\trelu  maxpool3 linear:10 ", "conv5x5:8 relu maxpool3 linear:10");
    assert_int_equal(layers_parse("linear:7 linear:classes", 12, &list, NULL), RC_OK);
    assert_int_equal(list.layers[1].width, 12);
    assert_true(list.layers[1].is_classes);
    assert_int_equal(list.layers[1].column, 10);
    assert_int_equal(layers_format(&list, (char[9]){0}, 9), RC_LIMIT);
}

static void groups_are_repeated_and_nest(void **state)
{
    (void)state;
    check_text("( linear:8 relu )*2 linear:classes", "linear:8 relu linear:8 relu linear:classes");
    check_text("((conv1x1:4)*2 relu)*2 linear:1",
               "conv1x1:4 conv1x1:4 relu conv1x1:4 conv1x1:4 relu linear:1");
}

static void errors_point_at_the_column_and_suggest(void **state)
{
    (void)state;
    check_refused("relu    cnv3x3:32", RC_PARSE,
                  "--model, column 9: unknown layer 'cnv3x3'; did you mean 'conv3x3'?");
    check_refused("liner:4", RC_PARSE,
                  "--model, column 1: unknown layer 'liner'; did you mean 'linear'?");
    check_refused("nmlp", RC_PARSE, "--model, column 1: unknown layer 'nmlp'; did you mean 'mlp'?");
    check_refused("conv3x3", RC_PARSE,
                  "--model, column 1: 'conv3x3' needs a width, such as 'conv3x3:32'");
    check_refused("linear:12x", RC_PARSE,
                  "--model, column 8: expected a width from 1 to 1048576 or 'classes'");
    check_refused("linear:0", RC_PARSE,
                  "--model, column 8: expected a width from 1 to 1048576 or 'classes'");
    check_refused("relu conv3x3:99999999999999999999", RC_PARSE,
                  "--model, column 14: expected a width from 1 to 1048576");
    check_refused("relu conv2x2:4", RC_PARSE,
                  "--model, column 6: filters are square with odd sides up to 15, such as "
                  "'conv3x3:32'");
    check_refused("conv3x5:4", RC_PARSE,
                  "--model, column 1: filters are square with odd sides up to 15, such as "
                  "'conv3x3:32'");
    check_refused("maxpool1", RC_PARSE, "--model, column 1: windows have sides from 2 to 15");
    check_refused("", RC_PARSE, "--model, column 1: the layer list is empty");
    check_refused("relu )*2", RC_PARSE, "--model, column 6: ')' without '('");
    check_refused("( relu", RC_PARSE, "--model, column 1: '(' without ')*N'");
    check_refused("(relu)", RC_PARSE, "--model, column 6: expected ')*N' with N from 1 to 256");
    check_refused("(relu)*0", RC_PARSE, "--model, column 6: expected ')*N' with N from 1 to 256");
}

static void what_has_no_limit_is_refused(void **state)
{
    char long_text[LAYERS_TEXT_BYTES + 1];

    (void)state;
    memset(long_text, ' ', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    check_refused(long_text, RC_LIMIT, "--model: longer than 2047 letters");
    check_refused("((relu)*200)*2 relu", RC_LIMIT, "--model, column 12: more than 256 layers");
    check_refused("(((((((((relu", RC_LIMIT, "--model, column 9: groups nest deeper than 8");
    mem_fail_after(0);
    check_refused("mlp", RC_NOMEM, "--model: no memory to read it");
    mem_fail_after(UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_stand_for_their_layer_lists),
        cmocka_unit_test(text_is_read_and_written_back),
        cmocka_unit_test(groups_are_repeated_and_nest),
        cmocka_unit_test(errors_point_at_the_column_and_suggest),
        cmocka_unit_test(what_has_no_limit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

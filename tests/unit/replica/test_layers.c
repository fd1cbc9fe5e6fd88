/* layers: what parses, what is refused and where the error points. */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/model/layers.h"

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
    check_text("treenet", "conv3x3:32 relu maxpool2 [ conv3x3:64 relu maxpool2 linear:64 relu "
                          "linear:classes | conv3x3:64 relu maxpool2 linear:64 relu linear:classes "
                          "| conv3x3:64 relu maxpool2 linear:64 relu linear:classes | conv3x3:64 "
                          "relu maxpool2 linear:64 relu linear:classes ]heads");
    assert_null(layers_preset("resnet", NULL));
}

static void presets_are_scaled_by_width(void **state)
{
    /* Proves: a star and a factor multiply every width but the last, rounded, at least 1, with
     * attention to a multiple of its heads; filters, strides, positions and heads stay; training is
     * the preset's. */
    static const char refused[] =
        "--model %s: behind the star stands a factor from 0.01 to 16, such as 'mlp*0.5'";
    static const char *const wrong[] = {"mlp*",     "mlp*0",  "mlp*-1", "mlp*1e1", "mlp*.5",
                                        "mlp*0.5 ", "mlp*2.", "mlp*17", "mlp*nan", "mlp*0.009"};
    struct layer_list list;
    char text[LAYERS_TEXT_BYTES];

    (void)state;
    check_text("mlp*2", "linear:512 relu linear:256 relu linear:classes");
    check_text("mlp*1", MLP);
    check_text("cnn*0.5", "conv3x3:16 relu conv3x3:32 relu maxpool2 linear:64 relu linear:classes");
    check_text("mlp*0.01", "linear:3 relu linear:1 relu linear:classes");
    assert_int_equal(layers_parse("resnet14*0.25", 10, &list, NULL), RC_OK);
    assert_int_equal(list.layers[0].count, 4);
    assert_int_equal(layers_format(&list, text, sizeof text), RC_OK);
    assert_non_null(strstr(text, "| shortcut:16,stride=2 ]+"));
    assert_int_equal(layers_parse("gpt-nano*0.3", 10, &list, NULL), RC_OK);
    assert_int_equal(layers_format(&list, text, sizeof text), RC_OK);
    assert_non_null(strstr(text, "embed:40 positions:128 [ ln attention:4 ]+ [ ln linear:152 gelu "
                                 "linear:40 ]+"));
    assert_true(layers_read_tokens("lstm*0.5"));
    assert_int_equal(layers_context("gpt-nano*0.3"), 128);
    assert_string_equal(layers_training("cnn*0.5").optimizer, layers_training("cnn").optimizer);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char expected[160];
        snprintf(expected, sizeof expected, refused, wrong[i]);
        check_refused(wrong[i], RC_PARSE, expected);
    }
}

static void text_is_read_and_written_back(void **state)
{
    struct layer_list list;

    (void)state;
    check_text(CNN, CNN);
    check_text("conv3x5:8,stride=2,pad=1,groups=4,bias=0,wn=1 local1x1:3 gn:4 bn:32 bn leaky:0.2 "
               "[ | dropout:0.5 ]+ [ gelu | silu ]concat linear:5,tied=1 lstm:7,truncate=9",
               "conv3x5:8,stride=2,pad=1,groups=4,bias=0,wn=1 local1x1:3 gn:4 bn:32 bn leaky:0.2 "
               "[ | dropout:0.5 ]+ [ gelu | silu ]concat linear:5,tied=1 lstm:7,truncate=9");
    check_text("leaky:0.00001 dropout:0.000000001 leaky leaky:0 dropout:0.123456789",
               "leaky:0.00001 dropout:0.000000001 leaky:0.01 leaky:0 dropout:0.123456789");
    check_text("  conv5x5:8\trelu  maxpool3 linear:10 ", "conv5x5:8 relu maxpool3 linear:10");
    assert_int_equal(layers_parse("linear:7 linear:classes", 12, &list, NULL), RC_OK);
    assert_int_equal(list.layers[1].count, 12);
    assert_true(list.layers[1].is_classes);
    assert_int_equal(list.layers[1].column, 10);
    assert_int_equal(layers_format(&list, (char[9]){0}, 9), RC_LIMIT);
}

static void models_say_what_data_and_training_they_want(void **state)
{
    (void)state;
    assert_int_equal(layers_context("gpt-nano"), 128);
    assert_int_equal(layers_context("lstm"), 0);
    assert_int_equal(layers_context("nonsense"), 0);
    assert_true(layers_read_tokens("lstm") && layers_read_tokens(" ([embed:4 ]+)*2"));
    assert_false(layers_read_tokens("cnn"));
    for (size_t i = 0; layers_preset_name(i) != NULL; i++) {
        struct layers_training usual = layers_training(layers_preset_name(i));
        struct layer_list list;
        assert_int_equal(layers_parse(layers_preset_name(i), 10, &list, NULL), RC_OK);
        assert_true(usual.batch > 0 && (usual.steps > 0) != (usual.epochs > 0.0));
    }
    assert_int_equal(layers_training("gpt-nano").steps, 1000);
    assert_int_equal(layers_training("rows lstm:64 last linear:classes").steps,
                     layers_training("lstm").steps);
    assert_int_equal(layers_training("embed:64 attention:4 linear:classes").batch, 32);
    assert_true(layers_training("conv3x3:4 relu linear:classes").epochs == 3.0);
    assert_true(layers_training("linear:classes").epochs == 5.0);
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
    check_refused("nmlp", RC_PARSE, "--model, column 1: unknown model 'nmlp'; did you mean 'mlp'?");
    check_refused("conv3x3", RC_PARSE,
                  "--model, column 1: 'conv' needs a number, such as 'conv3x3:32'");
    check_refused("linear:12x", RC_PARSE,
                  "--model, column 10: 'x' is more than 'linear' takes; it looks like "
                  "'linear:128'");
    check_refused("linear:0", RC_PARSE,
                  "--model, column 8: expected a number from 1 to 1048576 or 'classes'");
    check_refused("relu conv3x3:99999999999999999999", RC_PARSE,
                  "--model, column 14: expected a number from 1 to 1048576");
    check_refused("relu conv0x2:4", RC_PARSE,
                  "--model, column 6: filters have sides from 1 to 15, such as 'conv3x3:32'");
    check_refused("conv3x16:4", RC_PARSE,
                  "--model, column 1: filters have sides from 1 to 15, such as 'conv3x3:32'");
    check_refused("conv3x3:8,strid=2", RC_PARSE,
                  "--model, column 11: unknown setting 'strid'; did you mean 'stride'?");
    check_refused("conv3x3:8,stride=0", RC_PARSE,
                  "--model, column 11: stride must be from 1 to 16");
    check_refused("conv3x3:8,pad=1,pad=2", RC_PARSE, "--model, column 17: 'pad' is given twice");
    check_refused("bn,stride=2", RC_PARSE, "--model, column 4: 'bn' has no settings");
    check_refused("dropout:0.999999999", RC_PARSE,
                  "--model, column 20: expected a share from 0 to below 1");
    check_refused("dropout:1.5", RC_PARSE,
                  "--model, column 12: expected a share from 0 to below 1");
    check_refused("dropout", RC_PARSE,
                  "--model, column 1: 'dropout' needs a number, such as 'dropout:0.1'");
    check_refused("resnet2", RC_PARSE,
                  "--model, column 1: unknown model 'resnet2'; did you mean 'resnet20'?");
    check_refused("relu | relu", RC_PARSE, "--model, column 6: '|' outside of '[ ... ]'");
    check_refused("relu ]+", RC_PARSE, "--model, column 6: ']' without '['");
    check_refused("( relu ]+", RC_PARSE, "--model, column 8: ']' without '['");
    check_refused("[ relu )*2", RC_PARSE, "--model, column 8: ')' without '('");
    check_refused("[ relu", RC_PARSE, "--model, column 1: '[' without ']+'");
    check_refused("[ relu ]", RC_PARSE,
                  "--model, column 8: expected ']+' (sum), ']concat', ']heads' or ']*N' with N "
                  "heads from 1 to 16");
    check_refused("maxpool1", RC_PARSE,
                  "--model, column 1: windows have sides from 2 to 15, such as 'maxpool2'");
    check_refused("", RC_PARSE, "--model, column 1: the layer list is empty");
    check_refused("relu )*2", RC_PARSE, "--model, column 6: ')' without '('");
    check_refused("( relu", RC_PARSE, "--model, column 1: '(' without ')*N'");
    check_refused("(relu)", RC_PARSE, "--model, column 6: expected ')*N' with N from 1 to 512");
    check_refused("(relu)*0", RC_PARSE, "--model, column 6: expected ')*N' with N from 1 to 512");
}

static void what_has_no_limit_is_refused(void **state)
{
    char long_text[LAYERS_TEXT_BYTES + 1];

    (void)state;
    memset(long_text, ' ', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    check_refused(long_text, RC_LIMIT, "--model: longer than 2047 letters");
    check_refused("((relu)*400)*2 relu", RC_LIMIT, "--model, column 12: more than 512 layers");
    check_refused("(((((((((relu", RC_LIMIT, "--model, column 9: groups nest deeper than 8");
    mem_fail_after(0);
    check_refused("mlp", RC_NOMEM, "--model: no memory to read it");
    mem_fail_after(UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_stand_for_their_layer_lists),
        cmocka_unit_test(presets_are_scaled_by_width),
        cmocka_unit_test(text_is_read_and_written_back),
        cmocka_unit_test(models_say_what_data_and_training_they_want),
        cmocka_unit_test(groups_are_repeated_and_nest),
        cmocka_unit_test(errors_point_at_the_column_and_suggest),
        cmocka_unit_test(what_has_no_limit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

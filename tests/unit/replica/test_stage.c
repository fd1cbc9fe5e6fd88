/* stage: layers that do not fit say which shapes clash, where, and what to do. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/model.h"

struct refusal {
    const char *spec, *why;
};

/* Of images of 8x8 in one channel. */
static const struct refusal of_images[] = {
    {"conv3x3:8 maxpool2 maxpool2 maxpool2 maxpool2 linear:classes",
     "--model, column 38: 'maxpool2' does not fit an image of 1x1; use fewer or smaller windows, "
     "or pad=N"},
    {"conv15x15:8,pad=0 linear:classes", "--model, column 1: 'conv15x15:8,pad=0' does not fit an "
                                         "image of 8x8; use a smaller filter or a larger pad"},
    {"conv3x3:8,groups=3 linear:classes",
     "--model, column 1: 'conv3x3:8,groups=3' cannot share 1 channels in and 8 out between 3 "
     "groups; groups must divide both"},
    {"linear:8 conv3x3:8 linear:classes",
     "--model, column 10: 'conv3x3:8' needs an image, but gets 8 values; put it before the first "
     "linear layer or globalpool"},
    {"rows conv3x3:8 linear:classes",
     "--model, column 6: 'conv3x3:8' needs an image, but gets 8 steps of 8 values; put it before "
     "'rows'; text takes attention or lstm"},
    {"local3x3:8,stride=2 local15x15:3,pad=0 linear:classes",
     "--model, column 21: 'local15x15:3,pad=0' does not fit an image of 4x4; use a smaller filter "
     "or a larger pad"},
    {"linear:8 local3x3:3 linear:classes",
     "--model, column 10: 'local3x3:3' needs an image, but gets 8 values; put it before the first "
     "linear layer or globalpool"},
    {"maxpool2,pad=2 linear:classes",
     "--model, column 1: 'maxpool2,pad=2' can pad by at most half of its window: pad=1"},
    {"linear:8 avgpool2 linear:classes",
     "--model, column 10: 'avgpool2' needs an image, but gets 8 values; put it before the first "
     "linear layer or globalpool"},
    {"globalpool globalpool linear:classes",
     "--model, column 12: 'globalpool' needs an image, but gets 1 value; put it before the first "
     "linear layer or globalpool"},
    {"conv3x3:8 shortcut:4 linear:classes",
     "--model, column 11: 'shortcut:4' cannot drop channels: it gets 8; use conv1x1:4"},
    {"linear:4 shortcut:4 linear:classes",
     "--model, column 10: 'shortcut:4' needs an image, but gets 4 values; put it before the first "
     "linear layer or globalpool"},
    {"rows gn:4 linear:classes", "--model, column 6: 'gn:4' needs an image; sequences take 'ln'"},
    {"conv3x3:8 gn:3 linear:classes", "--model, column 11: 'gn:3' cannot share 8 channels between "
                                      "3 groups; groups must divide them"},
    {"conv3x3:8 ln linear:classes", "--model, column 11: 'ln' needs rows or a vector, but gets an "
                                    "image of 8x8x8; images take 'gn:1'"},
    {"gn:2000 linear:classes", "--model, column 1: 'gn:2000' cannot share 1 channels between 2000 "
                               "groups; groups must divide them"},
    {"embed:8 linear:classes", "--model, column 1: 'embed:8' reads text, but a sample of the data "
                               "is an image or numbers; leave it out, or use --data text:FILE"},
    {"linear:8 embed:8 linear:classes", "--model, column 10: 'embed:8' must be the first layer"},
    {"positions:8 linear:classes",
     "--model, column 1: 'positions:8' needs a sequence, but gets an image of 1x8x8; begin with "
     "embed:N for text, or put 'rows' behind the layers on images"},
    {"rows positions:4 linear:classes",
     "--model, column 6: 'positions:4' is too short for sequences of 8 steps; use positions:8, or "
     "data of shorter ones"},
    {"attention:4 linear:classes",
     "--model, column 1: 'attention:4' needs a sequence, but gets an image of 1x8x8; begin with "
     "embed:N for text, or put 'rows' behind the layers on images"},
    {"rows attention:3 linear:classes",
     "--model, column 6: 'attention:3' cannot share a width of 8 between 3 heads; use a number of "
     "heads that divides the width"},
    {"rows attention:8,rotary=1 last linear:classes",
     "--model, column 6: 'attention:8,rotary=1' needs heads of an even width, and they have 1 "
     "values each; use another number of heads"},
    {"linear:8 lstm:4 linear:classes",
     "--model, column 10: 'lstm:4' needs a sequence, but gets 8 values; begin with embed:N for "
     "text, or put 'rows' behind the layers on images"},
    {"rows lstm:300000 last linear:classes",
     "--model, column 6: 'lstm:300000' is wider than 262144 values"},
    {"linear:8 rows linear:classes", "--model, column 10: 'rows' needs an image, but gets 8 "
                                     "values; put it before the first linear layer or globalpool"},
    {"last linear:classes",
     "--model, column 1: 'last' needs a sequence, but gets an image of 1x8x8; begin with embed:N "
     "for text, or put 'rows' behind the layers on images"},
    {"rows last last linear:classes",
     "--model, column 11: 'last' needs a sequence, but gets 8 values; begin with embed:N for text, "
     "or put 'rows' behind the layers on images"},
    {"[ conv3x3:8 | conv3x3:4 ]+ linear:classes",
     "--model, column 25: ']+' cannot add an image of 8x8x8 and an image of 4x8x8; end the other "
     "branch with 'shortcut:8,stride=1'"},
    {"[ conv3x3:16 | conv3x3:3 ]+ linear:classes",
     "--model, column 26: ']+' cannot add an image of 16x8x8 and an image of 3x8x8; end the other "
     "branch with 'shortcut:16,stride=1'"},
    {"[ conv3x3:8 | linear:8 ]+ linear:classes",
     "--model, column 24: ']+' cannot add an image of 8x8x8 and 8 values; let all branches end in "
     "one shape (an empty branch ends in the block's input)"},
    {"[ rows lstm:8 | conv3x3:8 ]+ linear:classes",
     "--model, column 27: ']+' cannot add 8 steps of 8 values and an image of 8x8x8; let all "
     "branches end in one shape (an empty branch ends in the block's input)"},
    {"[ rows lstm:8 | rows lstm:4 ]+ last linear:classes",
     "--model, column 29: ']+' cannot add 8 steps of 8 values and 8 steps of 4 values; let all "
     "branches end in one shape (an empty branch ends in the block's input)"},
    {"[ conv3x3:8 | maxpool2 ]concat linear:classes",
     "--model, column 24: ']concat' cannot join an image of 8x8x8 and an image of 1x4x4: only "
     "their channels or values may differ"},
    {"[ rows | linear:4 ]concat linear:classes",
     "--model, column 19: ']concat' cannot join 8 steps of 8 values and 4 values: only their "
     "channels or values may differ"},
    {"[ linear:8 | linear:9 ]+ linear:classes",
     "--model, column 23: ']+' cannot add 8 values and 9 values; let all branches end in one shape "
     "(an empty branch ends in the block's input)"},
    {"[ linear:classes | linear:3 ]heads",
     "--model, column 29: ']heads' ends in a head (number 2) that gives 3 values, but the data "
     "asks for 10 values; end each head with linear:classes"},
    {"[ linear:5 | linear:5 ]heads",
     "--model, column 23: ']heads' ends in a head (number 1) that gives 5 values, but the data "
     "asks for 10 values; end each head with linear:classes"},
    {"linear:classes,tied=1", "--model, column 1: 'linear:classes,tied=1' has no embedding to be "
                              "tied to; begin with embed:N"},
    {"linear:5", "--model: the last layer gives 5 values, but the data asks for 10 values; end "
                 "with linear:classes"},
    {"conv3x3:4", "--model: the last layer gives an image of 4x8x8, but the data asks for 10 "
                  "values; end with linear:classes"},
    {"rows lstm:4", "--model: the last layer gives 8 steps of 4 values, but the data asks for 10 "
                    "values; end with linear:classes"},
    {"relu", "--model: the last layer gives an image of 1x8x8, but the data asks for 10 values; "
             "end with linear:classes"},
    {"[ linear:classes ]*2 relu", "--model, column 18: ']heads' must be the end of the list"},
    {"linear:1000000 linear:1000000 linear:classes",
     "--model, column 16: 'linear:1000000' makes the model larger than 2^32 parameters; use a "
     "smaller number"},
    {"(linear:65536)*3 linear:classes", "--model, column 2: 'linear:65536' makes the model larger "
                                        "than 2^32 parameters; use a smaller number"},
    {"rows", "--model: the last layer gives 8 steps of 8 values, but the data asks for 10 values; "
             "end with linear:classes"},
};

/* Of sequences of 128 tokens. */
static const struct refusal of_tokens[] = {
    {"embed:8 positions:64 linear:classes",
     "--model, column 9: 'positions:64' is too short for sequences of 128 steps; use "
     "positions:128, or data of shorter ones"},
    {"embed:8 embed:8 linear:classes", "--model, column 9: 'embed:8' must be the first layer"},
    {"embed:8 attention:3 linear:classes",
     "--model, column 9: 'attention:3' cannot share a width of 8 between 3 heads; use a number of "
     "heads that divides the width"},
    {"embed:8 linear:6 linear:classes,tied=1",
     "--model, column 18: 'linear:classes,tied=1' cannot be tied to an embedding of 10 symbols in "
     "8 values: it makes 10 of 6; put linear:8 before it"},
    {"embed:8 linear:classes,tied=1 linear:classes,tied=1",
     "--model, column 31: 'linear:classes,tied=1' is the second to be tied to the embedding"},
    {"embed:8 linear:classes,tied=1,wn=1",
     "--model, column 9: 'linear:classes,wn=1,tied=1' cannot be both tied and normalised"},
    {"embed:8 conv3x3:8 linear:classes",
     "--model, column 9: 'conv3x3:8' needs an image, but gets 128 steps of 8 values; put it before "
     "'rows'; text takes attention or lstm"},
    {"embed:8 maxpool2 linear:classes",
     "--model, column 9: 'maxpool2' needs an image, but gets 128 steps of 8 values; put it before "
     "'rows'; text takes attention or lstm"},
    {"embed:8 globalpool linear:classes",
     "--model, column 9: 'globalpool' needs an image, but gets 128 steps of 8 values; put it "
     "before 'rows'; text takes attention or lstm"},
    {"embed:8 [ lstm:8 | last ]+ linear:classes",
     "--model, column 25: ']+' cannot add 128 steps of 8 values and 8 values; let all branches end "
     "in one shape (an empty branch ends in the block's input)"},
    {"embed:8 [ lstm:8 | last ]concat linear:classes",
     "--model, column 25: ']concat' cannot join 128 steps of 8 values and 8 values: only their "
     "channels or values may differ"},
    {"embed:8 linear:5", "--model: the last layer gives 128 steps of 5 values, but the data asks "
                         "for 10 values; end with linear:classes"},
    {"embed:9 attention:3,rotary=1 linear:classes",
     "--model, column 9: 'attention:3,rotary=1' needs heads of an even width, and they have 3 "
     "values each; use another number of heads"},
};

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

static void check_refused(struct backend *cpu, struct refusal refusal, bool is_text)
{
    struct model_options options = options_of(refusal.spec, is_text);
    struct model *model = NULL;
    struct fault why = {""};
    enum rc rc = model_create(cpu, &options, &model, &why);

    assert_true(rc == RC_SHAPE || rc == RC_LIMIT);
    assert_string_equal(why.text, refusal.why);
    assert_null(model);
}

static void layers_that_do_not_fit_say_so_with_their_column(void **state)
{
    struct cpu_backend_options options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&options);
    uint64_t blocks = mem_blocks();

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(of_images); i++) {
        check_refused(cpu, of_images[i], false);
    }
    for (size_t i = 0; i < ARRAY_COUNT(of_tokens); i++) {
        check_refused(cpu, of_tokens[i], true);
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
    assert_string_equal(why.text, "--model, column 1: 'conv3x3:8' needs an image, but a sample of "
                                  "the data is 13 values; use linear:N");
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

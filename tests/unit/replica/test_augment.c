/* Augmentation: its words, its moves, and that a key decides everything. */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/data/augment.h"

enum { SIDE = 6, AREA = SIDE * SIDE, ROWS = 200 };

static const float means[2] = {0.5F, 0.25F}, scales[2] = {2.0F, 4.0F};

static const struct dataset_info info = {.name = "test",
                                         .input = DATA_IMAGES,
                                         .target = DATA_CLASS,
                                         .channels = 2,
                                         .height = SIDE,
                                         .width = SIDE,
                                         .classes = 2,
                                         .labels_per_sample = 1,
                                         .mean = means,
                                         .scale = scales};

/* Pixel i of channel c is 100 c + i + 1 in every image. */
static struct batch numbered(void)
{
    struct batch batch;

    assert_int_equal(batch_init(&batch, &info, ROWS), RC_OK);
    batch.rows = ROWS;
    for (int i = 0; i < ROWS * 2 * AREA; i++) {
        batch.values[i] = (float)(100 * (i / AREA % 2) + i % AREA + 1);
    }
    return batch;
}

static void make_keys(uint64_t seed, uint64_t keys[ROWS])
{
    for (uint64_t i = 0; i < ROWS; i++) {
        keys[i] = augment_key(seed, 3, i);
    }
}

/* Words in any order, separated by commas or blanks; nothing is nothing. */
static void words_are_understood(void **state)
{
    static const char *const same[] = {"crop:4,flip", "flip crop:4", " crop:4 ,, flip ",
                                       "flip,crop:4"};
    struct augment augment;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(augment_parse(same[i], &augment, NULL), RC_OK);
        assert_int_equal(augment.crop, 4);
        assert_true(augment.flip);
        assert_false(augment_is_empty(&augment));
    }
    assert_int_equal(augment_parse(NULL, &augment, NULL), RC_OK);
    assert_true(augment_is_empty(&augment));
    assert_int_equal(augment_parse("", &augment, NULL), RC_OK);
    assert_true(augment_is_empty(&augment));
}

/* Anything else is refused at its column, and data without images or of small ones as well. */
static void other_words_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } all[] = {
        {"flop", "column 1: 'flop' is unknown"},
        {"flip,flip", "column 6: 'flip' is unknown or given twice"},
        {"crop", "column 1: 'crop' is unknown"},
        {"crop:0", "column 6: crop takes 1 to 64"},
        {"flip crop:65", "column 11: crop takes 1 to 64"},
        {"crop:x", "column 6: crop takes"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "column 1"},
    };
    struct dataset_info other = info;
    struct augment augment = {.crop = 2};
    struct fault why;

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(augment_parse(all[i].text, &augment, &why), RC_PARSE);
        assert_non_null(strstr(why.text, all[i].words));
        assert_int_equal(augment.crop, 2);
    }
    assert_int_equal(augment_check(&augment, &info, &why), RC_OK);
    augment.crop = SIDE;
    assert_int_equal(augment_check(&augment, &info, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "too much for images of 6x6"));
    other.input = DATA_TOKENS;
    assert_int_equal(augment_check(&augment, &other, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "is for images"));
    augment.crop = 0;
    assert_int_equal(augment_check(&augment, &other, &why), RC_OK);
}

/* What pixel (y, x) shows after a move by (down, right); 0: black. */
static int expected(int y, int x, int down, int right, bool is_flipped)
{
    int row = y + down, column = (is_flipped ? SIDE - 1 - x : x) + right;

    return row < 0 || row >= SIDE || column < 0 || column >= SIDE ? 0 : row * SIDE + column + 1;
}

/* Whether all channels of an image show this move. */
static bool shows(const float *image, int down, int right, bool is_flipped)
{
    for (int i = 0; i < 2 * AREA; i++) {
        int c = i / AREA, pixel = expected(i % AREA / SIDE, i % SIDE, down, right, is_flipped);
        float value = pixel == 0 ? -means[c] * scales[c] : (float)(100 * c + pixel);
        if (image[i] < value || image[i] > value) return false;
    }
    return true;
}

/* Every image is one of the moves there are, all channels alike; black fills in; and over many keys
 * every move comes up. */
static void every_move_comes_up_and_no_other(void **state)
{
    const struct augment augment = {.crop = 2, .flip = true};
    float image[2 * AREA];
    int seen[5][5][2] = {{{0}}};
    uint64_t keys[ROWS];

    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct batch batch = numbered();
        make_keys(seed, keys);
        augment_batch(&augment, &info, keys, image, &batch);
        for (int r = 0; r < ROWS; r++) {
            int found = 0;
            for (int m = 0; m < 50; m++) {
                if (!shows(batch.values + r * 2 * AREA, m / 10 - 2, m / 2 % 5 - 2, m % 2)) continue;
                seen[m / 10][m / 2 % 5][m % 2]++;
                found++;
            }
            assert_int_equal(found, 1);
        }
        batch_deinit(&batch);
    }
    for (int m = 0; m < 50; m++) {
        assert_in_range(seen[m / 10][m / 2 % 5][m % 2], 3, 40); /* 16 on average */
    }
}

/* The same keys move the same way, whatever else is in the batch; other keys in other ways. */
static void the_key_alone_decides(void **state)
{
    const struct augment augment = {.crop = 2, .flip = true};
    float image[2 * AREA];
    uint64_t keys[3][ROWS];
    struct batch batches[3];

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        batches[i] = numbered();
        make_keys(i < 2 ? 7 : 8, keys[i]);
    }
    for (uint32_t r = 0; r < ROWS; r++) { /* one at a time, from the last to the first */
        struct batch one = {1,    1,    batches[1].values + (ROWS - 1 - r) * 2 * AREA, NULL, NULL,
                            NULL, RC_OK};
        augment_batch(&augment, &info, &keys[1][ROWS - 1 - r], image, &one);
    }
    augment_batch(&augment, &info, keys[0], image, &batches[0]);
    augment_batch(&augment, &info, keys[2], image, &batches[2]);
    assert_memory_equal(batches[0].values, batches[1].values, ROWS * 2 * AREA * sizeof(float));
    assert_memory_not_equal(batches[0].values, batches[2].values, ROWS * 2 * AREA * sizeof(float));
    for (int i = 0; i < 3; i++) {
        batch_deinit(&batches[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_understood),
        cmocka_unit_test(other_words_are_refused),
        cmocka_unit_test(every_move_comes_up_and_no_other),
        cmocka_unit_test(the_key_alone_decides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

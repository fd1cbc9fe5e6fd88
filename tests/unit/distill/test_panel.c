/* panel: members' answers are kept whatever becomes of them, and liars are bounded. */
#include "tests/scratch.h"

#include "base/mem.h"
#include "base/rng.h"
#include "distill/panel.h"
#include "kernels/softmax.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 20, CLASSES = 5, MEMBERS = 5 };

static const struct predictions_shape shape = {.rows = 1, .outputs = CLASSES};

static struct panel *panel_of(const char *folder, uint32_t members, uint32_t trim)
{
    const struct panel_options options = {
        .shape = shape, .samples = SAMPLES, .members = members, .trim = trim, .folder = folder};
    struct panel *panel = NULL;
    struct fault why = {""};

    if (panel_create(&options, &panel, &why) != RC_OK) fail_msg("%s", why.text);
    return panel;
}

static void say(struct panel *panel, uint32_t member, size_t sample, const float *row)
{
    uint8_t bytes[CLASSES * 2];

    predictions_encode(&shape, row, 1, bytes);
    assert_int_equal(panel_put(panel, member, sample, 1, bytes, NULL), RC_OK);
}

static void honest_row(struct rng *rng, float *row)
{
    float largest;

    for (int c = 0; c < CLASSES; c++) {
        row[c] = 2 * (float)rng_normal(rng);
    }
    (void)softmax_row(row, CLASSES, 1.0F, row, &largest);
}

/* Before the row is scaled to 1 each value is between honest ones; scaling moves all alike. */
static void one_liar_among_three_or_more_moves_values_only_within_the_honest_ones(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 200) {
        const uint32_t members = 3 + (uint32_t)(seed % 3);
        struct scratch scratch;
        struct panel *panel;
        float honest[MEMBERS][CLASSES], lie[CLASSES] = {0}, out[CLASSES];
        double low = 0, high = 0;
        struct rng rng;

        scratch_init(&scratch);
        panel = panel_of(scratch.folder, members, 1);
        rng_init(&rng, seed, 1);
        for (uint32_t m = 0; m + 1 < members; m++) {
            honest_row(&rng, honest[m]);
            say(panel, m, 3, honest[m]);
        }
        lie[seed % CLASSES] = 1;
        say(panel, members - 1, 3, lie);
        assert_int_equal(panel_get(panel, (struct pick){NULL, 3, 1}, 1.0, out), RC_OK);
        double least[CLASSES], most[CLASSES];
        for (int c = 0; c < CLASSES; c++) {
            least[c] = 1;
            most[c] = 0;
            for (uint32_t m = 0; m + 1 < members; m++) {
                least[c] = fmin(least[c], (double)honest[m][c]);
                most[c] = fmax(most[c], (double)honest[m][c]);
            }
            low += least[c];
            high += most[c];
        }
        for (int c = 0; c < CLASSES; c++) {
            check_seed(seed, (double)out[c] >= least[c] / high - 2e-3);
            check_seed(seed, (double)out[c] <= most[c] / low + 2e-3);
        }
        panel_destroy(panel);
        scratch_deinit(&scratch);
    }
}

static void without_trimming_it_is_the_mean(void **state)
{
    const float rows[3][CLASSES] = {
        {1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0.5F, 0.125F, 0.125F, 0.125F, 0.125F}};
    const float trimmed[CLASSES] = {0.5F, 0.125F, 0, 0, 0}; /* medians; over their sum */
    struct scratch scratch;
    struct panel *mean, *median;
    float out[CLASSES];

    (void)state;
    scratch_init(&scratch);
    mean = panel_of(scratch.folder, 3, 0);
    median = panel_of(scratch.folder, 3, 31);
    for (uint32_t m = 0; m < 3; m++) {
        say(mean, m, 0, rows[m]);
        say(median, m, 0, rows[m]);
    }
    assert_int_equal(panel_get(mean, (struct pick){NULL, 0, 1}, 1.0, out), RC_OK);
    for (int c = 0; c < CLASSES; c++) {
        assert_float_equal(out[c], (rows[0][c] + rows[1][c] + rows[2][c]) / 3, 1e-3);
    }
    assert_int_equal(panel_get(median, (struct pick){NULL, 0, 1}, 1.0, out), RC_OK);
    for (int c = 0; c < CLASSES; c++) {
        assert_float_equal(out[c], trimmed[c] / 0.625F, 1e-3);
    }
    panel_destroy(mean);
    panel_destroy(median);
    scratch_deinit(&scratch);
}

static void each_samples_answers_are_those_it_has(void **state)
{
    static const float a[CLASSES] = {1, 0, 0, 0, 0}, b[CLASSES] = {0, 1, 0, 0, 0};
    const uint32_t order[3] = {4, 0, 2};
    struct scratch scratch;
    struct panel *panel;
    float out[3 * CLASSES];
    uint8_t bytes[SAMPLES * CLASSES * 2];

    (void)state;
    scratch_init(&scratch);
    panel = panel_of(scratch.folder, 2, 1);
    for (size_t i = 0; i < SAMPLES; i++) {
        predictions_encode(&shape, i % 2 == 0 ? a : b, 1, bytes + i * CLASSES * 2);
    }
    assert_int_equal(panel_covered(panel, 1), 0);
    assert_int_equal(panel_put(panel, 0, 0, 5, bytes, NULL), RC_OK);
    assert_int_equal(panel_put(panel, 0, 3, 5, bytes + 3 * CLASSES * 2, NULL), RC_OK); /* again */
    assert_int_equal(panel_answered(panel, 0), 8);
    assert_int_equal(panel_covered(panel, 1), 8);
    assert_int_equal(panel_covered(panel, 2), 0);
    say(panel, 1, 0, b);
    assert_int_equal(panel_covered(panel, 2), 1);
    assert_int_equal(panel_get(panel, (struct pick){order, 0, 3}, 1.0, out), RC_OK);
    assert_true(out[0] > 0.99F && out[2 * CLASSES] > 0.99F);
    assert_float_equal(out[CLASSES], 0.5, 1e-3); /* two: their mean */
    assert_int_equal(panel_said(panel, 1, 0, out), RC_OK);
    assert_true(out[1] > 0.99F);

    memset(bytes, 0xff, sizeof bytes); /* nothing of it is kept */
    assert_int_equal(panel_put(panel, 1, 1, 5, bytes, NULL), RC_NONFINITE);
    assert_int_equal(panel_answered(panel, 1), 1);
    panel_forget(panel, 0);
    assert_int_equal(panel_answered(panel, 0), 0);
    assert_int_equal(panel_covered(panel, 1), 1);
    panel_destroy(panel);
    scratch_deinit(&scratch);
}

static void a_folder_that_is_none_is_told(void **state)
{
    const struct panel_options options = {
        .shape = shape, .samples = 1, .members = 1, .folder = "/nonexistent/folder"};
    struct panel *panel = NULL;
    struct fault why = {""};

    (void)state;
    assert_int_equal(panel_create(&options, &panel, &why), RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "cannot keep answers in /nonexistent/folder"));
    assert_null(panel);
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct scratch scratch;
    const uint64_t before = mem_blocks();

    (void)state;
    scratch_init(&scratch);
    for (uint64_t n = 0;; n++) {
        const struct panel_options options = {
            .shape = shape, .samples = 9, .members = 3, .folder = scratch.folder};
        struct panel *panel = NULL;
        struct fault why = {""};

        mem_fail_after(n);
        const enum rc rc = panel_create(&options, &panel, &why);
        mem_fail_after(UINT64_MAX);
        if (rc == RC_OK) {
            panel_destroy(panel);
            break;
        }
        assert_int_equal(rc, RC_NOMEM);
        assert_int_equal(mem_blocks(), before);
    }
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_liar_among_three_or_more_moves_values_only_within_the_honest_ones),
        cmocka_unit_test(without_trimming_it_is_the_mean),
        cmocka_unit_test(each_samples_answers_are_those_it_has),
        cmocka_unit_test(a_folder_that_is_none_is_told),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

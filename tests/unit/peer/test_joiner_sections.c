/* Which sections of a donor a joiner takes besides parameters and buffers. */
#include "tests/unit/peer/joiner_scene.h"

/* What the strategy needs besides can be asked for. */
static void moments_travel_when_wanted(void **state)
{
    struct scene *scene = scene_create();
    size_t count = 0;
    const float *moments;

    (void)state;
    joiner_options(scene->joiner)->want = 7;
    assert_int_equal(begin(scene, any_lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 0);
    moments = joiner_section(scene->joiner, SECTION_MOMENTS, &count);
    assert_int_equal(count, VALUES);
    assert_true(moments[VALUES - 1] == model_value(0, SECTION_MOMENTS, VALUES - 1));
    scene_destroy(scene);
}

static void lie_moments(struct message *message)
{
    struct message_state_manifest *manifest = &message->as.state_manifest;

    for (uint32_t i = 0; message->type == MESSAGE_STATE_MANIFEST && i < manifest->sections_count;
         i++) {
        if (manifest->sections[i] == SECTION_MOMENTS) manifest->values[i] *= 2;
    }
}

/* Who trains with another optimizer gives the model all the same: its moments stay behind. */
static void moments_of_another_optimizer_are_left_out(void **state)
{
    struct scene *scene = scene_create();
    size_t count = 0;

    (void)state;
    joiner_options(scene->joiner)->want = 7;
    scene->sites[0].twist = lie_moments;
    assert_int_equal(begin(scene, any_lineage()), RC_OK);
    scene_run(scene);
    assert_model(scene, 0);
    assert_null(joiner_section(scene->joiner, SECTION_MOMENTS, &count));
    scene_destroy(scene);
}

/* As many moments mean nothing if another method made them; those of the same one travel. */
static void moments_of_another_name_are_left_out(void **state)
{
    (void)state;
    for (int is_same = 0; is_same < 2; is_same++) {
        struct scene *scene = scene_create();
        const float *moments;
        size_t count = 0;

        joiner_options(scene->joiner)->want = 7;
        joiner_options(scene->joiner)->moments = hash_of("rmsprop", 7);
        for (size_t i = 0; i < DONORS; i++) {
            donor_set_methods(scene->sites[i].donor,
                              is_same ? hash_of("rmsprop", 7) : hash_of("momentum", 8),
                              any_lineage());
        }
        assert_int_equal(begin(scene, any_lineage()), RC_OK);
        scene_run(scene);
        assert_model(scene, 0);
        moments = joiner_section(scene->joiner, SECTION_MOMENTS, &count);
        if (is_same) assert_non_null(moments);
        if (!is_same) assert_null(moments);
        scene_destroy(scene);
    }
}

/* Planes of the rule are as large as what rounds mix, which may be more than the model; others, and
 * such as another rule made, stay behind, and the model comes all the same. */
static void planes_of_an_unlike_rule_are_left_out(void **state)
{
    enum { MIXED = VALUES + 200 };
    static const struct {
        size_t values;
        const char *rule;
        bool is_taken;
    } cases[] = {{MIXED, "bmuf", true},
                 {VALUES, "bmuf", false},
                 {MIXED + 1, "bmuf", false},
                 {MIXED, "slowmo", false}};

    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
        struct scene *scene = scene_create();

        scene->rule_values = cases[c].values;
        joiner_options(scene->joiner)->want = 31;
        joiner_options(scene->joiner)->rule = hash_of("bmuf", 4);
        joiner_options(scene->joiner)->rule_values = MIXED;
        for (size_t i = 0; i < DONORS; i++) {
            donor_set_methods(scene->sites[i].donor, any_lineage(),
                              hash_of(cases[c].rule, strlen(cases[c].rule)));
        }
        assert_int_equal(begin(scene, any_lineage()), RC_OK);
        scene_run(scene);
        assert_model(scene, 0);
        for (uint32_t s = SECTION_RULE; s <= SECTION_RULE_SECOND; s++) {
            size_t count = 1;
            const float *plane = joiner_section(scene->joiner, s, &count);

            assert_int_equal(count, cases[c].is_taken ? MIXED : 0);
            assert_int_equal(plane != NULL, cases[c].is_taken);
            if (plane != NULL) assert_true(plane[MIXED - 1] == model_value(0, s, MIXED - 1));
        }
        scene_destroy(scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_travel_when_wanted),
        cmocka_unit_test(moments_of_another_optimizer_are_left_out),
        cmocka_unit_test(moments_of_another_name_are_left_out),
        cmocka_unit_test(planes_of_an_unlike_rule_are_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests of distill/selection: greedy soups and weights by score. */
#include "tests/unit/distill/models.h"

#include "distill/comparison.h"
#include "distill/selection.h"
#include "replica/learners/replica.h"

#include <math.h>

static void weights_are_accuracy_above_chance(void **state)
{
    /* Proves: three members of ten classes at 0.4, 0.7 and 0.1 (chance) weigh 1 : 2 : nearly 0,
     * with a mean of 1; where nobody is above chance, and of one member, all are equal; real values
     * weigh by the inverse of their squared errors. */
    const struct score scores[3] = {
        {.count = 10, .correct = 4}, {.count = 10, .correct = 7}, {.count = 10, .correct = 1}};
    const struct score reals[2] = {{.count = 10, .loss_sum = 10, .is_real = true},
                                   {.count = 10, .loss_sum = 30, .is_real = true}};
    double w[3];

    (void)state;
    selection_weigh(scores, 3, 10, w);
    assert_true(fabs(w[0] - 1) < 1e-9 && fabs(w[1] - 2) < 1e-9 && w[2] > 0 && w[2] < 1e-5);
    selection_weigh(scores + 2, 1, 10, w);
    assert_true(fabs(w[0] - 1) < 1e-12);
    selection_weigh(reals, 2, 1, w);
    assert_true(fabs(w[0] - 1.5) < 1e-9 && fabs(w[1] - 0.5) < 1e-9);
}

/* A model trained for some steps from the same beginning on a stream of its own. */
static const char *trained(struct world *world, const char *name, const char *model, uint64_t seed,
                           uint64_t stream, uint32_t steps)
{
    const struct replica_options options = {.model = model,
                                            .data = "digits",
                                            .optimizer = "adam:lr=2e-3",
                                            .shard = "all",
                                            .seed = seed,
                                            .stream_seed = stream,
                                            .threads = 1};
    const char *path = scratch_path(&world->scratch, name);
    struct learner *learner = NULL;
    struct train_report report;
    struct model_card card;

    assert_int_equal(replica_create(world->backend, &options, &learner, NULL), RC_OK);
    assert_int_equal(learner->ops->train(learner, steps, NULL, &report), RC_OK);
    replica_card(learner, &card);
    assert_int_equal(model_save_as(replica_model(learner), &card, path, NULL), RC_OK);
    learner->ops->destroy(learner);
    return path;
}

static void check_greedy(struct world *world, const char *const *paths, size_t count,
                         bool with_alignment, size_t *members)
{
    const struct dataset_options opening = {.seed = 1};
    struct selection_options options = {world->backend, NULL, paths, count};
    struct selection selection;
    struct selection_soup soup;
    bool is_in[8];
    double best = 0;

    assert_int_equal(dataset_open("digits", &opening, &options.dataset, NULL), RC_OK);
    assert_int_equal(selection_init(&selection, &options, NULL), RC_OK);
    assert_int_equal(selection.part.count,
                     dataset_info(options.dataset)->train_samples / SELECTION_SHARE);
    assert_int_equal(selection_soup(&selection, with_alignment, is_in, &soup, NULL), RC_OK);
    *members = 0;
    for (size_t i = 0; i < count; i++) {
        best = fmax(best, score_accuracy(&selection.scores[i]));
        *members += is_in[i];
    }
    assert_true(score_accuracy(&soup.score) >= best);
    assert_int_equal(soup_members(soup.soup), *members);
    soup_destroy(soup.soup);
    selection_deinit(&selection);
    dataset_close(options.dataset);
}

static void a_greedy_soup_is_never_worse_than_its_best_member(void **state)
{
    /* Proves: members of one basin and of others, with and without statistics: on the part they are
     * chosen by, the soup is at least as accurate as each of them; the untrained stay out. */
    static const char *const models[] = {"linear:32 relu linear:classes",
                                         "conv3x3:4 bn relu globalpool linear:classes"};
    struct world *world = *state;

    for (int k = 0; k < 2; k++) {
        const char *paths[5] = {
            trained(world, "a", models[k], 1, 1, 60), trained(world, "b", models[k], 1, 2, 60),
            trained(world, "c", models[k], 2, 3, 60), trained(world, "d", models[k], 3, 4, 1),
            trained(world, "e", models[k], 1, 5, 40)};
        size_t members;
        check_greedy(world, paths, 5, false, &members);
        assert_true(members >= 1 && members < 5);
        check_greedy(world, paths, 5, true, &members);
    }
}

static void a_comparison_says_who_is_in_and_what_each_weighs(void **state)
{
    /* Proves: through files: the greedy average has members, its accuracy where it was chosen, and
     * is written; weights by score differ and change the ensemble; an unlike model is refused. */
    struct world *world = *state;
    const char *paths[3] = {trained(world, "a", "linear:32 relu linear:classes", 1, 1, 80),
                            trained(world, "b", "linear:32 relu linear:classes", 2, 2, 1),
                            trained(world, "c", "linear:32 relu linear:classes", 1, 3, 80)};
    struct comparison_options options = {.paths = paths,
                                         .paths_count = 3,
                                         .seed = 1,
                                         .is_greedy = true,
                                         .weighs_scores = true,
                                         .average_path = scratch_path(&world->scratch, "soup")};
    struct comparison weighted, equal;

    assert_int_equal(comparison_run(world->backend, &options, &weighted, NULL), RC_OK);
    assert_false(weighted.is_in[1]);
    assert_true(weighted.is_in[0] || weighted.is_in[2]);
    assert_true(weighted.selection > 0 && weighted.selection <= 1);
    assert_true(weighted.weights[1] < weighted.weights[0]);
    options.weighs_scores = options.is_greedy = false;
    options.average_path = NULL;
    assert_int_equal(comparison_run(world->backend, &options, &equal, NULL), RC_OK);
    assert_true(equal.is_in[1] && isnan(equal.selection));
    assert_true(fabs(equal.weights[1] - 1) <= 0);
    assert_true(fabs(score_loss(&equal.votes[VOTE_MEAN]) - score_loss(&weighted.votes[VOTE_MEAN])) >
                1e-3);
    assert_int_equal(equal.votes[VOTE_MAJORITY].correct, weighted.votes[VOTE_MAJORITY].correct);
    comparison_deinit(&weighted);
    comparison_deinit(&equal);
    paths[1] = world_file(world, "other", "linear:classes", 1);
    options.is_greedy = true;
    assert_int_equal(comparison_run(world->backend, &options, &equal, NULL), RC_OK);
    assert_false(equal.has_average);
    comparison_deinit(&equal);
}

static void short_memory_leaks_nothing(void **state)
{
    /* Proves: an allocation that fails in a greedy, aligned, weighted comparison is an error, and
     * nothing is lost. */
    struct world *world = *state;
    const char *paths[2] = {trained(world, "a", "linear:8 relu linear:classes", 1, 1, 10),
                            trained(world, "b", "linear:8 relu linear:classes", 2, 2, 10)};
    const struct comparison_options options = {.paths = paths,
                                               .paths_count = 2,
                                               .seed = 1,
                                               .samples_max = 10,
                                               .is_greedy = true,
                                               .with_alignment = true,
                                               .weighs_scores = true};
    struct comparison c;
    enum rc rc = RC_NOMEM;

    for (uint64_t n = 0; rc != RC_OK; n += 1 + n / 8) {
        const size_t before = mem_blocks();
        mem_fail_after(n);
        rc = comparison_run(world->backend, &options, &c, NULL);
        mem_fail_after(UINT64_MAX);
        if (rc != RC_OK) assert_int_equal(mem_blocks(), before);
        assert_true(n < 1000000);
    }
    comparison_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_accuracy_above_chance),
        cmocka_unit_test(a_greedy_soup_is_never_worse_than_its_best_member),
        cmocka_unit_test(a_comparison_says_who_is_in_and_what_each_weighs),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}

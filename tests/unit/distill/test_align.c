/* Tests of distill/align, distill/assignment and replica/model/symmetry: permutations that leave
 * the function, and finding them again. */
#include "tests/unit/distill/models.h"

#include "base/check.h"
#include "base/rng.h"
#include "distill/align.h"
#include "distill/assignment.h"
#include "distill/comparison.h"
#include "distill/soup.h"
#include "distill/statistics.h"
#include "replica/learners/replica.h"

#include <math.h>

/* ---- assignment ---- */

static double best_by_hand(const double *gains, uint32_t n, uint32_t row, uint32_t taken)
{
    double best = -INFINITY;

    if (row == n) return 0;
    for (uint32_t j = 0; j < n; j++) {
        if ((taken & (1u << j)) != 0) continue;
        const double sum = gains[row * n + j] + best_by_hand(gains, n, row + 1, taken | (1u << j));
        if (sum > best) best = sum;
    }
    return best;
}

static void assignments_are_the_best_there_are(void **state)
{
    /* Proves: against all permutations of up to 6 rows, with ties, each column is taken once and
     * the sum is the greatest. */
    struct rng rng;

    (void)state;
    rng_init(&rng, 7, 1);
    for (int k = 0; k < 300; k++) {
        const uint32_t n = 1 + (uint32_t)rng_below(&rng, 6);
        double gains[36], sum = 0;
        uint32_t columns[6], seen = 0;
        for (uint32_t i = 0; i < n * n; i++) {
            gains[i] = k % 3 == 0 ? (double)rng_below(&rng, 3) : rng_normal(&rng);
        }
        assert_int_equal(assignment_solve(gains, n, columns), RC_OK);
        for (uint32_t i = 0; i < n; i++) {
            seen |= 1u << columns[i];
            sum += gains[i * n + columns[i]];
        }
        assert_int_equal(seen, (1u << n) - 1);
        assert_true(fabs(sum - best_by_hand(gains, n, 0, 0)) < 1e-9);
    }
}

/* ---- permuted models ---- */

static const char *const specs[] = {
    "linear:16 relu linear:12 relu linear:classes",
    "conv3x3:6 relu conv3x3:8 relu maxpool2 linear:16 relu linear:classes",
    "conv3x3:6 bn relu conv3x3:8,bias=0 bn relu globalpool linear:classes",
    "conv3x3:4 bn relu ( [ conv3x3:4 bn relu conv3x3:4 bn ]+ relu )*2 [ conv3x3:8,stride=2 bn relu "
    "conv3x3:8 bn | shortcut:8,stride=2 ]+ relu [ conv3x3:8 bn relu conv3x3:8 bn ]+ relu "
    "[ conv3x3:10,stride=2 bn relu conv3x3:10 bn | conv1x1:10,stride=2 bn ]+ relu globalpool "
    "linear:classes",
    "[ conv3x3:3 relu | conv1x1:5 relu ]concat conv3x3:6,wn=1 relu dropout:0.1 linear:12 tanh "
    "linear:classes",
    "conv3x3:6 relu [ conv3x3:6 relu ]+ conv3x3:6,groups=6 relu maxpool2 linear:classes",
    "conv3x3:4 relu maxpool2 [ linear:8 relu linear:classes ]*3",
};

/* Statistics and scales that differ from channel to channel. */
static void stir(struct model *model, uint64_t seed)
{
    const struct schema *schema = model_schema(model);
    float *buffers = model_plane(model, SECTION_BUFFERS);
    float *parameters = model_plane(model, SECTION_PARAMETERS);
    struct rng rng;

    rng_init(&rng, seed, 2);
    for (size_t i = 0; i < schema->values[SECTION_PARAMETERS]; i++) {
        parameters[i] += 0.05F * (float)rng_normal(&rng);
    }
    for (size_t i = 0; i < schema->values[SECTION_BUFFERS]; i++) {
        buffers[i] += 0.5F * (float)rng_unit(&rng);
    }
}

/* A random permutation of each group. */
static void shuffle(struct model *model, uint64_t seed)
{
    const struct schema *schema = model_schema(model);
    struct symmetry *symmetry = NULL;
    struct rng rng;

    rng_init(&rng, seed, 3);
    assert_int_equal(symmetry_create(model, &symmetry, NULL), RC_OK);
    assert_true(symmetry->groups_count > 0);
    for (uint32_t g = 0; g < symmetry->groups_count; g++) {
        const enum section sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS};
        uint32_t order[64];
        assert_true(symmetry->groups[g] <= 64);
        for (uint32_t i = 0; i < symmetry->groups[g]; i++) {
            order[i] = i;
        }
        rng_shuffle(&rng, order, symmetry->groups[g]);
        for (int s = 0; s < 2; s++) {
            const size_t count = schema->values[sections[s]];
            float *to = mem_array(count, sizeof *to);
            assert_int_equal(align_permute(symmetry, schema, sections[s], g, order,
                                           model_plane(model, sections[s]), to),
                             RC_OK);
            assert_int_equal(model_set_plane(model, sections[s], to), RC_OK);
            mem_free(to);
        }
    }
    symmetry_destroy(symmetry);
}

enum { ROWS = 16, OUTPUTS = 10 };

static void answers_of(struct model *model, float logits[ROWS * OUTPUTS])
{
    float input[ROWS * 64];
    struct rng rng;

    rng_init(&rng, 5, 4);
    for (size_t i = 0; i < ROWS * 64; i++) {
        input[i] = (float)rng_normal(&rng);
    }
    assert_int_equal(model_forward(model, input, ROWS, false, logits), RC_OK);
}

static void a_permuted_model_computes_the_same(void **state)
{
    /* Proves: dense layers, images that become vectors, batch normalisation, residual streams that
     * widen by zeros and by 1x1 convolutions, concatenation, depthwise filters, heads, weight
     * normalisation: the answers stay to 1e-5 of the largest, and the parameters do not. */
    struct world *world = *state;

    for (size_t k = 0; k < ARRAY_COUNT(specs); k++) {
        float before[ROWS * OUTPUTS], after[ROWS * OUTPUTS], most = 0, off = 0;
        struct model_card card;
        struct model *model = world_model(world, specs[k], 1, &card);
        stir(model, k);
        answers_of(model, before);
        const float first = model_plane(model, SECTION_PARAMETERS)[0];
        float moved = 0;
        for (uint64_t seed = 0; seed < 3; seed++) {
            shuffle(model, seed);
            moved += fabsf(model_plane(model, SECTION_PARAMETERS)[0] - first);
        }
        answers_of(model, after);
        for (size_t i = 0; i < ROWS * OUTPUTS; i++) {
            most = fmaxf(most, fabsf(before[i]));
            off = fmaxf(off, fabsf(before[i] - after[i]));
        }
        if (!(off < 1e-5F * most)) fail_msg("%s: %g of %g", specs[k], off, most);
        assert_true(moved > 0);
        model_destroy(model);
    }
}

static void matching_finds_a_permutation_again(void **state)
{
    /* Proves: B = permuted A is brought back to A to the bit, parameters and statistics. */
    struct world *world = *state;

    for (size_t k = 0; k < ARRAY_COUNT(specs); k++) {
        struct model_card card;
        struct model *a = world_model(world, specs[k], 1, &card);
        struct model *b = world_model(world, specs[k], 1, &card);
        const struct schema *schema = model_schema(a);
        struct fault why = {""};
        stir(a, k);
        stir(b, k);
        shuffle(b, 9);
        if (align_model(b, model_plane(a, SECTION_PARAMETERS), &why) != RC_OK) {
            fail_msg("%s: %s", specs[k], why.text);
        }
        if (memcmp(model_plane(a, SECTION_PARAMETERS), model_plane(b, SECTION_PARAMETERS),
                   schema->values[SECTION_PARAMETERS] * sizeof(float)) != 0) {
            fail_msg("%s: not found again", specs[k]);
        }
        assert_memory_equal(model_plane(a, SECTION_BUFFERS), model_plane(b, SECTION_BUFFERS),
                            schema->values[SECTION_BUFFERS] * sizeof(float));
        model_destroy(a);
        model_destroy(b);
    }
}

static void what_has_no_such_symmetry_is_named(void **state)
{
    /* Proves: group normalisation, locally connected and sequence layers are refused by name, and
     * so is a NaN; the model stays as it was. */
    static const char *const refused[][2] = {
        {"conv3x3:8 gn:2 relu linear:classes", "gn:2"},
        {"local3x3:4 relu linear:classes", "local3x3:4"},
        {"conv3x3:8,groups=1 relu conv3x3:8,groups=2 relu linear:classes", "groups=2"},
        {"rows gru:8 last linear:classes", "rows"},
    };
    struct world *world = *state;
    struct model_card card;
    struct fault why = {""};
    char data[256];

    for (size_t k = 0; k < ARRAY_COUNT(refused); k++) {
        struct model *model = world_model(world, refused[k][0], 1, &card);
        assert_int_equal(align_model(model, model_plane(model, SECTION_PARAMETERS), &why),
                         RC_UNSUPPORTED);
        assert_non_null(strstr(why.text, refused[k][1]));
        model_destroy(model);
    }
    world_text(world, "text", 5, data);
    struct model *text = world_model_of(world, "embed:8 [ ln attention:2 ]+ linear:classes", data,
                                        8, 1, false, &card);
    assert_int_equal(align_model(text, model_plane(text, SECTION_PARAMETERS), &why),
                     RC_UNSUPPORTED);
    assert_non_null(strstr(why.text, "embed:8"));
    model_destroy(text);
    struct model *broken = world_model(world, specs[0], 1, &card);
    struct model *whole = world_model(world, specs[0], 2, &card);
    model_plane(broken, SECTION_PARAMETERS)[3] = NAN;
    assert_int_equal(align_model(broken, model_plane(whole, SECTION_PARAMETERS), &why),
                     RC_NONFINITE);
    model_destroy(broken);
    model_destroy(whole);
}

static void short_memory_leaks_nothing(void **state)
{
    /* Proves: an allocation fails, at many places: an error, nothing lost, and the model is what
     * it was. */
    struct world *world = *state;
    struct model_card card;
    struct model *a = world_model(world, specs[3], 1, &card);
    struct model *b = world_model(world, specs[3], 2, &card);
    enum rc rc = RC_NOMEM;

    for (uint64_t n = 0; rc != RC_OK; n += 1 + n / 8) {
        const size_t before = mem_blocks();
        mem_fail_after(n);
        rc = align_model(b, model_plane(a, SECTION_PARAMETERS), NULL);
        mem_fail_after(UINT64_MAX);
        assert_int_equal(mem_blocks(), before);
        assert_true(rc == RC_OK || rc == RC_NOMEM);
        assert_true(n < 100000);
    }
    model_destroy(a);
    model_destroy(b);
}

/* ---- trained models ---- */

static double loss_between(struct learner *learner, const float *a, const float *b, double share)
{
    struct model *model = replica_model(learner);
    const size_t count = model_schema(model)->values[SECTION_PARAMETERS];
    float *mixed = mem_array(count, sizeof *mixed);
    struct evaluation score;

    for (size_t i = 0; i < count; i++) {
        mixed[i] = (float)((1 - share) * (double)a[i] + share * (double)b[i]);
    }
    assert_int_equal(model_set_plane(model, SECTION_PARAMETERS, mixed), RC_OK);
    assert_int_equal(learner->ops->evaluate(learner, 0, &score), RC_OK);
    mem_free(mixed);
    return score.loss;
}

/* max over the line of L((1 - s) a + s b) - ((1 - s) L(a) + s L(b)). */
static double barrier(struct learner *learner, const float *a, const float *b)
{
    const double first = loss_between(learner, a, b, 0), last = loss_between(learner, a, b, 1);
    double most = 0;

    for (int i = 1; i < 8; i++) {
        const double s = i / 8.0;
        most = fmax(most, loss_between(learner, a, b, s) - ((1 - s) * first + s * last));
    }
    return most;
}

static void the_barrier_between_wide_nets_falls(void **state)
{
    /* Proves: of two nets 512 wide, trained alone from their own beginnings, the loss on the line
     * between them rises at least five times less once they are aligned. */
    struct world *world = *state;
    struct learner *learners[2];
    float *planes[2];
    size_t count = 0;

    for (uint64_t k = 0; k < 2; k++) {
        const struct replica_options options = {.model = "linear:512 relu linear:classes",
                                                .data = "digits",
                                                .optimizer = "adam:lr=1e-3",
                                                .shard = "all",
                                                .seed = k + 1,
                                                .stream_seed = k + 1,
                                                .threads = 1};
        struct train_report report;
        const float *values = NULL;
        assert_int_equal(replica_create(world->backend, &options, &learners[k], NULL), RC_OK);
        assert_int_equal(learners[k]->ops->train(learners[k], 300, NULL, &report), RC_OK);
        count = model_schema(replica_model(learners[k]))->values[SECTION_PARAMETERS];
        planes[k] = mem_array(count, sizeof *planes[k]);
        assert_int_equal(model_host_plane(replica_model(learners[k]), SECTION_PARAMETERS, &values),
                         RC_OK);
        memcpy(planes[k], values, count * sizeof *values);
    }
    const double before = barrier(learners[0], planes[0], planes[1]);
    assert_int_equal(model_set_plane(replica_model(learners[1]), SECTION_PARAMETERS, planes[1]),
                     RC_OK);
    assert_int_equal(align_model(replica_model(learners[1]), planes[0], NULL), RC_OK);
    const double after = barrier(learners[0], planes[0],
                                 model_plane(replica_model(learners[1]), SECTION_PARAMETERS));
    print_message("barrier %.4f, aligned %.4f\n", before, after);
    assert_true(before > 0.02 && after < before / 5);
    for (int k = 0; k < 2; k++) {
        mem_free(planes[k]);
        learners[k]->ops->destroy(learners[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignments_are_the_best_there_are),
        cmocka_unit_test(a_permuted_model_computes_the_same),
        cmocka_unit_test(matching_finds_a_permutation_again),
        cmocka_unit_test(what_has_no_such_symmetry_is_named),
        cmocka_unit_test(short_memory_leaks_nothing),
        cmocka_unit_test(the_barrier_between_wide_nets_falls),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}

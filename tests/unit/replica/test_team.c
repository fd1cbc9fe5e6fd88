/* team, workers: several threads compute what one does. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/learners/team.h"
#include "replica/learners/workers.h"
#include "replica/model/loss.h"

#include <math.h>
#include <stdatomic.h>

enum { CLASSES = 4, BATCH_MAX = 20, VALUES = 64, ROWS_MAX = BATCH_MAX * 8 * 3 };

struct tally {
    struct workers *workers;
    atomic_uint calls[WORKERS_MAX], met;
    atomic_bool is_early;
};

static void call(void *context, uint32_t number)
{
    struct tally *tally = context;

    atomic_fetch_add(&tally->calls[number], 1);
    atomic_fetch_add(&tally->met, 1);
    workers_meet(tally->workers);
    if (atomic_load(&tally->met) % workers_count(tally->workers) != 0) {
        atomic_store(&tally->is_early, true);
    }
    workers_meet(tally->workers);
}

/* Every worker runs every function once, and nobody passes a meeting before all have come. */
static void workers_run_together_and_meet(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 4; count++) {
        struct tally tally = {.workers = NULL};

        assert_int_equal(workers_create(count, &tally.workers), RC_OK);
        for (int i = 0; i < 50; i++) {
            workers_run(tally.workers, call, &tally);
        }
        for (uint32_t i = 0; i < WORKERS_MAX; i++) {
            assert_int_equal(atomic_load(&tally.calls[i]), i < count ? 50 : 0);
        }
        assert_false(atomic_load(&tally.is_early));
        workers_destroy(tally.workers);
    }
    workers_destroy(NULL);
}

/* A team with its own backend, and the data it is asked about. */
struct crew {
    struct backend *backend;
    struct team *team;
};

static struct crew crew_of(const char *spec, uint32_t threads)
{
    struct cpu_backend_options cpu = {.threads = threads};
    struct crew crew = {.backend = cpu_backend_create(&cpu)};
    struct model_options options = {.spec = spec,
                                    .channels = 1,
                                    .height = 8,
                                    .width = 8,
                                    .classes = CLASSES,
                                    .batch_max = BATCH_MAX,
                                    .seed = 3,
                                    .with_gradients = true};
    struct fault why = {""};

    assert_non_null(crew.backend);
    if (team_create(crew.backend, &options, &crew.team, &why) != RC_OK) fail_msg("%s", why.text);
    return crew;
}

static void crew_end(struct crew crew)
{
    team_destroy(crew.team);
    backend_destroy(crew.backend);
}

static double train(struct crew crew, const float *input, uint32_t batch)
{
    static const uint32_t labels[] = {2, 0, 1, 3, 1};
    float logits[ROWS_MAX * CLASSES], gradient[ROWS_MAX * CLASSES];
    uint32_t wanted[ROWS_MAX];
    struct model *model = team_model(crew.team);
    uint32_t rows = batch * model_rows(model) * model_heads(model), correct = 0;
    double loss;

    for (uint32_t i = 0; i < rows; i++) {
        wanted[i] = labels[i % ARRAY_COUNT(labels)];
    }
    assert_int_equal(team_forward(crew.team, input, batch, true, logits), RC_OK);
    loss = loss_cross_entropy(logits, wanted, rows, CLASSES, gradient, &correct);
    assert_int_equal(team_backward(crew.team, gradient, NULL, NULL), RC_OK);
    return loss;
}

static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        difference += pow((double)a[i] - (double)b[i], 2.0);
        size += (double)b[i] * (double)b[i];
    }
    return size == 0.0 ? sqrt(difference) : sqrt(difference / size);
}

static const char *const specs[] = {
    "linear:9 tanh dropout:0.3 linear:classes",
    "conv3x3:16 bn relu [ conv3x3:16 bn relu conv3x3:16 bn ]+ relu globalpool linear:classes",
    "conv3x3:6 relu maxpool2 linear:8 bn relu linear:classes",
    "rows [ ln attention:2 ]+ lstm:7 linear:classes",
    "conv3x3:4 [ gn:2 linear:classes ]*3",
};

static void check_section(struct crew alone, struct crew together, enum section section,
                          const char *spec, uint32_t batch)
{
    size_t count = model_schema(team_model(alone.team))->values[section];
    double far = count == 0 ? 0.0
                            : distance(model_plane(team_model(together.team), section),
                                       model_plane(team_model(alone.team), section), count);

    if (!(far < 2e-4)) fail_msg("%s, batch %u, section %d: %g", spec, batch, (int)section, far);
}

/* Loss, gradient and running statistics are those of one thread, whatever the batch; with fewer
 * samples than threads, too. */
static void a_team_computes_what_one_does(void **state)
{
    const uint32_t batches[] = {20, 13, 2, 1, 20};
    float input[BATCH_MAX * VALUES];
    struct rng rng;

    (void)state;
    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < ARRAY_COUNT(input); i++) {
        input[i] = (float)rng_normal(&rng);
    }
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        struct crew alone = crew_of(specs[s], 1), together = crew_of(specs[s], 3);

        assert_int_equal(team_threads(alone.team), 1);
        assert_int_equal(team_threads(together.team), 3);
        team_set_stream(alone.team, 5, 0);
        team_set_stream(together.team, 5, 0);
        for (size_t b = 0; b < ARRAY_COUNT(batches); b++) {
            double loss = train(alone, input, batches[b]);
            double other = train(together, input, batches[b]);
            if (!(fabs(loss - other) < 1e-4)) fail_msg("%s: %g, %g", specs[s], loss, other);
            if (batches[b] > 2) { /* one sample's batch statistics leave only rounding */
                check_section(alone, together, SECTION_GRADIENT, specs[s], batches[b]);
            }
            check_section(alone, together, SECTION_BUFFERS, specs[s], batches[b]);
        }
        assert_int_equal(model_passes(team_model(together.team)), ARRAY_COUNT(batches));
        crew_end(alone);
        crew_end(together);
    }
}

/* Ghost batches are whole, and so their gradients are those of one thread; where there are fewer of
 * them than threads, threads are left out. */
static void ghost_batches_stay_in_one_lane(void **state)
{
    static const struct {
        const char *spec;
        uint32_t threads; /* of 3 asked for */
    } cases[] = {{"linear:9 bn:8 tanh linear:classes", 3},
                 {"linear:9 bn:4 tanh linear:9 bn:6 tanh linear:classes", 2},
                 {"linear:9 bn:32 tanh linear:classes", 1}};
    const uint32_t batches[] = {20, 13, 2, 20};
    float input[BATCH_MAX * VALUES];
    struct rng rng;

    (void)state;
    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < ARRAY_COUNT(input); i++) {
        input[i] = (float)rng_normal(&rng);
    }
    for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
        struct crew alone = crew_of(cases[c].spec, 1), together = crew_of(cases[c].spec, 3);

        assert_int_equal(team_threads(together.team), cases[c].threads);
        for (size_t b = 0; b < ARRAY_COUNT(batches); b++) {
            double loss = train(alone, input, batches[b]);
            double other = train(together, input, batches[b]);
            if (!(fabs(loss - other) < 1e-4)) fail_msg("%s: %g, %g", cases[c].spec, loss, other);
            if (batches[b] == 2) continue; /* as above */
            check_section(alone, together, SECTION_GRADIENT, cases[c].spec, batches[b]);
        }
        crew_end(alone);
        crew_end(together);
    }
}

/* One lane's part holds a token that is none: all come back, and the next batch is computed. */
static void a_lane_that_fails_keeps_nobody_waiting(void **state)
{
    struct cpu_backend_options cpu = {.threads = 3};
    struct backend *backend = cpu_backend_create(&cpu);
    struct model_options options = {.spec = "embed:6 bn linear:5 bn linear:classes",
                                    .channels = 1,
                                    .height = 1,
                                    .width = 4,
                                    .classes = CLASSES,
                                    .batch_max = 6,
                                    .with_gradients = true,
                                    .input = MODEL_INPUT_TOKENS,
                                    .symbols = 9};
    float input[6 * 4], logits[6 * 4 * CLASSES];
    struct team *team = NULL;

    (void)state;
    assert_int_equal(team_create(backend, &options, &team, NULL), RC_OK);
    for (uint32_t wrong = 0; wrong < 6; wrong++) {
        for (size_t i = 0; i < ARRAY_COUNT(input); i++) {
            input[i] = (float)(i % 9);
        }
        input[wrong * 4 + 1] = 9.0F;
        assert_int_equal(team_forward(team, input, 6, true, logits), RC_NONFINITE);
        input[wrong * 4 + 1] = 8.0F;
        assert_int_equal(team_forward(team, input, 6, true, logits), RC_OK);
        assert_int_equal(team_backward(team, logits, NULL, NULL), RC_OK);
    }
    team_destroy(team);
    backend_destroy(backend);
}

static void evaluation_is_shared_out_too(void **state)
{
    float input[BATCH_MAX * VALUES], one[ROWS_MAX * CLASSES], three[ROWS_MAX * CLASSES];
    struct rng rng;

    (void)state;
    rng_init(&rng, 2, 0);
    for (size_t i = 0; i < ARRAY_COUNT(input); i++) {
        input[i] = (float)rng_normal(&rng);
    }
    for (size_t s = 0; s < ARRAY_COUNT(specs); s++) {
        struct crew alone = crew_of(specs[s], 1), together = crew_of(specs[s], 3);
        size_t count = (size_t)7 * model_rows(team_model(alone.team)) * CLASSES;

        assert_int_equal(team_forward(alone.team, input, 7, false, one), RC_OK);
        assert_int_equal(team_forward(together.team, input, 7, false, three), RC_OK);
        assert_true(distance(three, one, count) < 1e-5);
        crew_end(alone);
        crew_end(together);
    }
}

enum { FLAT = 1000 };

struct flat {
    struct team *team;
    atomic_uint calls[FLAT];
    double sums[4];
    enum rc rc[4];
};

static enum rc visit(void *context, const struct team_part *part)
{
    struct flat *flat = context;
    double size = (double)(part->end - part->begin);

    if (part->begin < part->end) assert_int_equal(part->begin % 16, 0);
    for (size_t i = part->begin; i < part->end; i++) {
        atomic_fetch_add(&flat->calls[i % FLAT], 1);
    }
    team_sum(flat->team, part->lane, &size, 1);
    flat->sums[part->lane] = size;
    return flat->rc[part->lane];
}

/* Parts make up the whole, meet, and the first error is told; after a backward pass, too. */
static void work_on_flat_vectors_is_shared_out(void **state)
{
    static const size_t counts[] = {0, 1, 16, 17, 100, FLAT};
    float input[BATCH_MAX * VALUES] = {0.5F};

    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct crew crew = crew_of(specs[0], threads);
        size_t gradient = model_schema(team_model(crew.team))->values[SECTION_GRADIENT];
        struct flat flat = {.team = crew.team};
        float logits[ROWS_MAX * CLASSES];

        for (size_t c = 0; c < ARRAY_COUNT(counts); c++) {
            memset(flat.calls, 0, sizeof(flat.calls));
            assert_int_equal(team_each(crew.team, counts[c], visit, &flat), RC_OK);
            for (size_t i = 0; i < FLAT; i++) {
                assert_int_equal(atomic_load(&flat.calls[i]), i < counts[c] ? 1 : 0);
            }
            for (uint32_t t = 0; t < threads; t++) {
                assert_true(flat.sums[t] == (double)counts[c]);
            }
        }
        assert_int_equal(team_forward(crew.team, input, 2, true, logits), RC_OK);
        memset(logits, 0, sizeof(logits));
        assert_int_equal(team_backward(crew.team, logits, visit, &flat), RC_OK);
        assert_true(flat.sums[threads - 1] == (double)gradient);
        flat.rc[threads - 1] = RC_DEVICE;
        assert_int_equal(team_each(crew.team, FLAT, visit, &flat), RC_DEVICE);
        flat.rc[0] = RC_NONFINITE;
        assert_int_equal(team_forward(crew.team, input, 2, true, logits), RC_OK);
        assert_int_equal(team_backward(crew.team, logits, visit, &flat), RC_NONFINITE);
        crew_end(crew);
    }
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct cpu_backend_options cpu = {.threads = 2};
    struct backend *backend = cpu_backend_create(&cpu);
    uint64_t blocks = mem_blocks();
    bool is_made = false;

    (void)state;
    for (uint64_t n = 0; !is_made; n++) {
        struct model_options options = {.spec = specs[2],
                                        .channels = 1,
                                        .height = 8,
                                        .width = 8,
                                        .classes = CLASSES,
                                        .batch_max = 4,
                                        .with_gradients = true};
        struct team *team = NULL;
        enum rc rc;

        backend->threads = 2;
        mem_fail_after(n);
        rc = team_create(backend, &options, &team, NULL);
        mem_fail_after(UINT64_MAX);
        is_made = rc == RC_OK;
        if (!is_made) assert_true(rc == RC_NOMEM && team == NULL);
        team_destroy(team);
        if (!is_made) assert_true(mem_blocks() >= blocks);
    }
    backend_destroy(backend);
    assert_true(mem_blocks() < blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_run_together_and_meet),
        cmocka_unit_test(a_team_computes_what_one_does),
        cmocka_unit_test(ghost_batches_stay_in_one_lane),
        cmocka_unit_test(a_lane_that_fails_keeps_nobody_waiting),
        cmocka_unit_test(evaluation_is_shared_out_too),
        cmocka_unit_test(work_on_flat_vectors_is_shared_out),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* task: what peers must have in common for a mean of their models to make sense; and losses that
 * the threads of a team compute in place. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/softmax.h"
#include "replica/learners/task.h"
#include "replica/model/loss.h"

#include <math.h>

/* The meaning of a model of `spec` for this data. */
static struct digest meaning_of(const char *spec, const struct dataset_info *info)
{
    struct backend *cpu = cpu_backend_create(&(struct cpu_backend_options){.threads = 1});
    struct model_options options = {.spec = spec, .batch_max = 1};
    struct fault why = {""};
    struct model *model = NULL;
    struct digest digest;

    task_describe(info, &options);
    if (model_create(cpu, &options, &model, &why) != RC_OK) fail_msg("%s", why.text);
    digest = task_meaning(info, model);
    model_set_meaning(model, digest);
    assert_true(digest_is_equal(model_schema(model)->meaning, digest));
    model_destroy(model);
    backend_destroy(cpu);
    return digest;
}

static struct dataset_info text_of(const char *symbols)
{
    struct dataset_info info = {.input = DATA_TOKENS,
                                .target = DATA_NEXT_TOKEN,
                                .channels = 1,
                                .height = 1,
                                .width = 8,
                                .labels_per_sample = 8};

    info.symbols = info.classes = info.outputs = (uint32_t)strlen(symbols);
    memcpy(info.symbol_bytes, symbols, strlen(symbols));
    return info;
}

static struct dataset_info table_of(const char *const *words)
{
    return (struct dataset_info){.input = DATA_VECTORS,
                                 .channels = 3,
                                 .height = 1,
                                 .width = 1,
                                 .classes = 2,
                                 .outputs = 2,
                                 .labels_per_sample = 1,
                                 .class_words = words};
}

/* Texts of other symbols, tables of other classes and layers that compute something else, all with
 * tensors of equal shapes, must not be mixed. */
static void equal_shapes_may_mean_different_things(void **state)
{
    static const char *const pets[] = {"cat", "dog"}, *const hats[] = {"cap", "hat"};
    struct dataset_info abc = text_of("abc"), abd = text_of("abd");
    struct dataset_info numbers = table_of(NULL), of_pets = table_of(pets),
                        of_hats = table_of(hats);
    const char *tokens = "embed:4 linear:classes", *vectors = "linear:4 relu linear:classes";
    struct digest pet_digest = meaning_of(vectors, &of_pets);

    (void)state;
    assert_false(digest_is_equal(meaning_of(tokens, &abc), meaning_of(tokens, &abd)));
    assert_false(digest_is_equal(pet_digest, meaning_of(vectors, &of_hats)));
    assert_false(digest_is_equal(pet_digest, meaning_of(vectors, &numbers)));
    assert_false(digest_is_equal(pet_digest, meaning_of("linear:4 tanh linear:classes", &of_pets)));
    numbers.target = DATA_REALS;
    assert_false(digest_is_equal(meaning_of(vectors, &numbers), pet_digest));
}

/* Samples are each peer's own: how many there are, how long sequences are, and how words for
 * images are called make no difference, nor does another way to write the same layers. */
static void what_is_each_peers_own_is_left_out(void **state)
{
    static const char *const shoes[] = {"boot", "shoe"};
    struct dataset_info ours = text_of("abc"), theirs = text_of("abc");
    struct dataset_info images = table_of(NULL), named = table_of(shoes);

    (void)state;
    theirs.width = theirs.labels_per_sample = 5;
    theirs.train_samples = 99;
    assert_true(digest_is_equal(meaning_of("embed:4 linear:classes", &ours),
                                meaning_of("  embed:4  linear:classes ", &theirs)));
    images.input = named.input = DATA_IMAGES;
    assert_true(digest_is_equal(meaning_of("linear:classes", &images),
                                meaning_of("linear:classes", &named)));
}

enum { BATCH = 13 };

/* A team, its task and a batch for it. */
struct class
{
    struct backend *backend;
    struct team *team;
    struct task task;
    struct dataset_info info;
    struct batch batch;
    float *logits, *gradient, *plane;
};

/* Of rows of numbers, or of a text; `outputs` classes, or real values. */
static struct dataset_info data_of(const char *spec, enum data_target target, uint32_t outputs)
{
    struct dataset_info info = {.input = DATA_VECTORS,
                                .target = target,
                                .channels = 9,
                                .height = 1,
                                .width = 1,
                                .classes = target == DATA_REALS ? 0 : outputs,
                                .outputs = outputs,
                                .labels_per_sample = target == DATA_REALS ? 0 : 1};

    if (strncmp(spec, "embed", 5) != 0) return info;
    info.input = DATA_TOKENS;
    info.channels = 1;
    info.width = info.labels_per_sample = 6;
    info.symbols = outputs;
    return info;
}

static void fill_batch(struct class *c)
{
    size_t values = dataset_values(&c->info);
    struct rng rng;

    rng_init(&rng, 5, 1);
    assert_int_equal(batch_init(&c->batch, &c->info, BATCH), RC_OK);
    c->batch.rows = BATCH;
    for (size_t i = 0; i < BATCH * values; i++) {
        c->batch.values[i] = c->info.input == DATA_TOKENS ? (float)rng_below(&rng, c->info.symbols)
                                                          : (float)rng_normal(&rng);
    }
    for (size_t i = 0; i < (size_t)BATCH * c->info.labels_per_sample; i++) {
        c->batch.labels[i] = i % 7 == 3 ? LABEL_IGNORE : (uint32_t)rng_below(&rng, c->info.classes);
    }
    for (size_t i = 0; c->info.target == DATA_REALS && i < (size_t)BATCH * c->info.outputs; i++) {
        c->batch.targets[i] = (float)rng_normal(&rng);
    }
}

static struct class class_of(const char *spec, struct dataset_info info, uint32_t threads)
{
    struct class c = {.info = info};
    struct model_options options = {
        .spec = spec, .batch_max = BATCH, .seed = 3, .with_gradients = true};
    struct fault why = {""};
    size_t logits;

    c.backend = cpu_backend_create(&(struct cpu_backend_options){.threads = threads});
    assert_non_null(c.backend);
    task_describe(&info, &options);
    if (team_create(c.backend, &options, &c.team, &why) != RC_OK) fail_msg("%s", why.text);
    assert_int_equal(task_init(&c.task, &info, team_model(c.team), BATCH, &why), RC_OK);
    fill_batch(&c);
    logits = task_logits(&c.task, BATCH);
    c.logits = mem_array(logits, sizeof(float));
    c.gradient = mem_array(logits, sizeof(float));
    c.plane =
        mem_array(model_schema(team_model(c.team))->values[SECTION_GRADIENT] + 1, sizeof(float));
    assert_true(c.logits != NULL && c.gradient != NULL && c.plane != NULL);
    return c;
}

static void class_end(struct class *c)
{
    mem_free(c->logits);
    mem_free(c->gradient);
    mem_free(c->plane);
    batch_deinit(&c->batch);
    task_deinit(&c->task);
    team_destroy(c->team);
    backend_destroy(c->backend);
}

static void check_score(const char *what, struct task_score in_place, struct task_score copied)
{
    if (in_place.loss != copied.loss || in_place.hits != copied.hits ||
        in_place.count != copied.count) {
        fail_msg("%s: loss %.17g, hits %llu; of a copy %.17g, %llu", what, in_place.loss,
                 (unsigned long long)in_place.hits, copied.loss, (unsigned long long)copied.hits);
    }
}

/* Copies of the whole batch's logits and gradient, in one thread; then each thread in place. */
static void check_passes(struct class *c, const char *spec)
{
    const struct batch *batch = &c->batch;
    const size_t values = model_schema(team_model(c->team))->values[SECTION_GRADIENT];
    struct task_pass pass = {.team = c->team, .batch = batch, .is_training = true};
    struct task_score copied, in_place;
    int seen = 0;

    for (; seen < 2; seen++) { /* twice: the second time memory is stale */
        team_set_stream(c->team, 7, 0);
        assert_int_equal(team_forward(c->team, batch->values, BATCH, true, c->logits), RC_OK);
        copied = task_loss(&c->task, batch, c->logits, c->gradient);
        assert_int_equal(team_backward(c->team, c->gradient, NULL, NULL), RC_OK);
        memcpy(c->plane, model_plane(team_model(c->team), SECTION_GRADIENT),
               values * sizeof(float));
        team_set_stream(c->team, 7, 0);
        assert_int_equal(task_forward(&c->task, &pass, &in_place), RC_OK);
        check_score(spec, in_place, copied);
        assert_int_equal(team_backward(c->team, NULL, NULL, NULL), RC_OK);
        assert_memory_equal(model_plane(team_model(c->team), SECTION_GRADIENT), c->plane,
                            values * sizeof(float));
    }
    pass.is_training = false;
    assert_int_equal(team_forward(c->team, batch->values, BATCH, false, c->logits), RC_OK);
    assert_int_equal(task_forward(&c->task, &pass, &in_place), RC_OK);
    check_score(spec, in_place, task_judge(&c->task, batch, c->logits));
}

static void threads_judge_their_own_rows_as_one_judges_all(void **state)
{
    static const struct {
        const char *spec;
        enum data_target target;
        uint32_t outputs;
    } all[] = {
        {"linear:9 tanh dropout:0.3 linear:classes", DATA_CLASS, 10},
        {"linear:9 bn relu linear:classes", DATA_CLASS, 70},
        {"linear:classes relu", DATA_CLASS, 40}, /* its output is kept */
        {"linear:8 [ linear:5 tanh linear:classes ]*3", DATA_CLASS, 6},
        {"embed:8 [ ln attention:2,causal=1 ]+ linear:classes", DATA_NEXT_TOKEN, 37},
        {"linear:6 tanh linear:classes", DATA_REALS, 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        for (uint32_t threads = 1; threads <= 4; threads++) {
            struct class c =
                class_of(all[i].spec, data_of(all[i].spec, all[i].target, all[i].outputs), threads);

            check_passes(&c, all[i].spec);
            class_end(&c);
        }
    }
}

/* What an objective is asked, and what it answers: a loss for each of a thread's rows. */
struct asked {
    uint32_t prepared;
    enum rc rc;
};

static enum rc on_prepare(void *context, struct task *task, const struct batch *batch)
{
    struct asked *asked = context;

    (void)task;
    (void)batch;
    asked->prepared++;
    return asked->rc;
}

static enum rc on_rows(void *context, const struct task *task, const struct batch *batch,
                       size_t first, const struct loss_rows *rows, uint64_t *hits)
{
    const struct asked *asked = context;

    assert_true(asked->prepared > 0 && first + rows->rows <= batch->rows && rows->counted > 0);
    for (size_t i = 0; i < rows->rows; i++) {
        rows->losses[i] = (double)(first + i);
        for (uint32_t o = 0; o < task->outputs; o++) {
            rows->gradient[i * task->outputs + o] = 0.0F;
        }
    }
    *hits += rows->rows;
    return RC_OK;
}

/* An objective prepares once for the batch and sees each row once; its error ends the pass. */
static void an_objective_is_asked_once_and_judges_by_threads(void **state)
{
    const char *spec = "linear:classes";

    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct class c = class_of(spec, data_of(spec, DATA_CLASS, 3), threads);
        struct asked asked = {.rc = RC_OK};
        const struct task_objective objective = {on_prepare, on_rows, &asked};
        const struct task_pass pass = {
            .team = c.team, .batch = &c.batch, .is_training = true, .objective = &objective};
        const uint32_t counted = softmax_counted(c.batch.labels, BATCH);
        struct task_score score;

        assert_int_equal(task_forward(&c.task, &pass, &score), RC_OK);
        assert_int_equal(asked.prepared, 1);
        assert_int_equal(score.hits, BATCH);
        assert_true(fabs(score.loss - BATCH * (BATCH - 1) / 2.0 / counted) < 1e-12);
        asked.rc = RC_NOMEM;
        assert_int_equal(task_forward(&c.task, &pass, &score), RC_NOMEM);
        class_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_judge_their_own_rows_as_one_judges_all),
        cmocka_unit_test(an_objective_is_asked_once_and_judges_by_threads),
        cmocka_unit_test(equal_shapes_may_mean_different_things),
        cmocka_unit_test(what_is_each_peers_own_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

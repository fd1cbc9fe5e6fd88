/*
 * A step that is repeated: see repeat.h. The replica that repeats one is the live one, with what
 * the step begins with in the place of its own, which comes back afterwards; no second model takes
 * memory. Its samples are read from the data by their numbers, so a step cannot be one on samples
 * that were made up.
 */
#include "replica/learners/repeat/repeat.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/floats.h"
#include "base/mem.h"
#include "replica/learners/replica_internal.h"

#include <math.h>
#include <string.h>

static const enum section kept[] = {SECTION_PARAMETERS, SECTION_MOMENTS, SECTION_BUFFERS,
                                    SECTION_INPUT};
enum { KEPT = sizeof kept / sizeof *kept, CHANGED = KEPT - 1 }; /* by a step: all but the input */

static const double factor_most = 1e6;

void repeat_step_deinit(struct repeat_step *step)
{
    mem_free(step->numbers);
    for (int i = 0; i < SECTION_COUNT; i++) {
        mem_free(step->planes[i]);
    }
    *step = (struct repeat_step){.samples = 0};
}

/* ---- what must be equal ---- */

static void add_word(struct hash *hash, uint64_t word)
{
    hash_update(hash, &word, sizeof word);
}

static void add_text(struct hash *hash, const char *text)
{
    hash_update(hash, text, strlen(text) + 1);
}

enum rc repeat_recipe(const struct learner *learner, struct digest *recipe)
{
    const struct replica *r = (const struct replica *)learner;
    struct hash hash;

    /* Learners that take other steps have operations of their own. */
    if (learner->ops != &replica_ops || r->device != NULL || r->beside != NULL ||
        r->objective != NULL || shard_augments(r->shard)) {
        return RC_UNSUPPORTED;
    }
    const struct dataset_info *info = dataset_info(r->dataset);
    const struct optimizer *o = &r->optimizer;
    const double numbers[] = {o->lr,    o->beta,     o->beta2,      o->epsilon, o->decay,
                              o->trust, o->adamw_lr, o->adamw_beta, r->clip};
    const struct digest schema = schema_digest(model_schema(r->model));

    hash_init(&hash);
    add_word(&hash, cpu_used);
    add_word(&hash, team_threads(r->team));
    hash_update(&hash, schema.bytes, sizeof schema.bytes);
    add_text(&hash, optimizer_name(o->kind));
    hash_update(&hash, numbers, sizeof numbers);
    add_word(&hash, r->batch);
    add_text(&hash, info->name);
    add_word(&hash, info->train_samples);
    *recipe = hash_final(&hash);
    return RC_OK;
}

/* ---- what a step begins with, and ends with ---- */

struct digest repeat_begin(const struct repeat_step *step)
{
    struct hash hash;

    hash_init(&hash);
    hash_update(&hash, step->recipe.bytes, sizeof step->recipe.bytes);
    add_word(&hash, step->step);
    add_word(&hash, step->updates);
    add_word(&hash, step->passes);
    add_word(&hash, step->stream);
    hash_update(&hash, &step->factor, sizeof step->factor);
    add_word(&hash, step->samples);
    hash_update(&hash, step->numbers, step->samples * sizeof *step->numbers);
    for (size_t i = 0; i < KEPT; i++) {
        hash_update(&hash, step->planes[kept[i]], step->values[kept[i]] * sizeof(float));
    }
    return hash_final(&hash);
}

/* `learner`: one whose steps can be repeated. */
static struct digest end_of(struct replica *r)
{
    const struct schema *schema = model_schema(r->model);
    struct hash hash;

    hash_init(&hash);
    add_word(&hash, r->step);
    add_word(&hash, r->updates);
    add_word(&hash, model_passes(r->model));
    for (size_t i = 0; i < CHANGED; i++) {
        const size_t count = schema->values[kept[i]];

        if (count == 0) continue;
        hash_update(&hash, model_values(r->model, kept[i]), count * sizeof(float));
    }
    return hash_final(&hash);
}

enum rc repeat_end(struct learner *learner, struct digest *end)
{
    struct digest recipe;
    const enum rc rc = repeat_recipe(learner, &recipe);

    if (rc == RC_OK) *end = end_of(replica_of(learner));
    return rc;
}

static enum rc take_planes(struct replica *r, struct repeat_step *step)
{
    const struct schema *schema = model_schema(r->model);

    for (size_t i = 0; i < KEPT; i++) {
        const enum section section = kept[i];
        const size_t count = schema->values[section];
        enum rc rc;

        if (count == 0) continue;
        step->planes[section] = mem_aligned(count * sizeof(float));
        if (step->planes[section] == NULL) return RC_NOMEM;
        step->values[section] = count;
        rc = r->learner.ops->export_section(&r->learner, section, step->planes[section], count);
        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}

/* All but the samples. */
static enum rc take_state(struct replica *r, struct repeat_step *step)
{
    *step = (struct repeat_step){
        .step = r->step,
        .updates = r->updates,
        .passes = model_passes(r->model),
        .stream = r->stream_seed,
        .factor = r->rate_factor * schedule_factor(&r->schedule, r->step),
    };
    return take_planes(r, step);
}

enum rc repeat_take(struct learner *learner, struct repeat_step *step)
{
    struct replica *r = replica_of(learner);
    struct repeat_step taken;
    struct digest recipe;
    enum rc rc = repeat_recipe(learner, &recipe);

    if (rc == RC_OK) rc = replica_make_ready(r);
    if (rc != RC_OK) return rc;
    const uint64_t batches = (uint64_t)r->accumulate * schedule_batches(&r->schedule, r->step);
    if (batches > REPEAT_SAMPLES_MAX / r->batch) return RC_LIMIT;
    rc = take_state(r, &taken);
    taken.recipe = recipe;
    taken.samples = (uint32_t)batches * r->batch;
    taken.numbers = mem_array(taken.samples, sizeof *taken.numbers);
    if (rc == RC_OK && taken.numbers == NULL) rc = RC_NOMEM;
    if (rc != RC_OK) {
        repeat_step_deinit(&taken);
        return rc;
    }
    shard_ahead(r->shard, taken.numbers, taken.samples);
    repeat_step_deinit(step);
    *step = taken;
    return RC_OK;
}

/* ---- again ---- */

/* Could a replica of ours begin a step so? */
static enum rc judge(struct replica *r, const struct repeat_step *step)
{
    const struct schema *schema = model_schema(r->model);
    struct digest recipe;
    enum rc rc = repeat_recipe(&r->learner, &recipe);

    if (rc != RC_OK) return rc;
    if (!digest_is_equal(recipe, step->recipe)) return RC_MISMATCH;
    if (step->samples == 0 || step->samples > REPEAT_SAMPLES_MAX || step->samples % r->batch != 0 ||
        !(step->factor >= 0.0 && step->factor <= factor_most)) {
        return RC_FORMAT;
    }
    /* Other schedules are at other batches: there is room to sum up gradients, or not. */
    if (step->samples > r->batch && r->accumulated == NULL) return RC_MISMATCH;
    for (size_t i = 0; i < KEPT; i++) {
        const size_t count = schema->values[kept[i]];

        if (step->values[kept[i]] != count) return RC_FORMAT;
        if (count > 0 && !floats_are_finite(step->planes[kept[i]], count)) return RC_FORMAT;
    }
    return RC_OK;
}

/* Load what the numbers name; `order`: [step->samples] places in it. A number may come twice, where
 * a step reaches over the end of an epoch. */
static enum rc load(struct replica *r, const struct repeat_step *step, struct samples *samples,
                    uint32_t *order)
{
    const size_t there = (size_t)dataset_info(r->dataset)->train_samples;
    uint32_t *places = mem_array(there, sizeof *places); /* zeroed; from 1 */
    uint32_t *once = mem_array(step->samples, sizeof *once);
    uint32_t count = 0;
    enum rc rc = places == NULL || once == NULL ? RC_NOMEM : RC_OK;

    for (uint32_t i = 0; i < step->samples && rc == RC_OK; i++) {
        const uint32_t number = step->numbers[i];

        if (number >= there) {
            rc = RC_FORMAT;
        } else {
            if (places[number] == 0) {
                once[count++] = number;
                places[number] = count;
            }
            order[i] = places[number] - 1;
        }
    }
    if (rc == RC_OK) rc = dataset_load_list(r->dataset, once, count, samples, NULL);
    mem_free(places);
    mem_free(once);
    return rc;
}

/* Into the place of what is there. */
static enum rc put(struct replica *r, const struct repeat_step *step)
{
    enum rc rc = RC_OK;

    for (size_t i = 0; i < CHANGED && rc == RC_OK; i++) {
        const enum section section = kept[i];

        rc = replica_assign(&r->learner, section, step->planes[section], step->values[section]);
    }
    r->step = step->step;
    r->updates = step->updates;
    team_set_stream(r->team, step->stream, step->passes);
    return rc;
}

/* One step, as the replica stands, on these samples. */
static enum rc take_again(struct replica *r, const struct repeat_step *step,
                          struct replica_given *given)
{
    struct train_report report = {0};
    struct task_score score = {0.0, 0, 0};
    enum rc rc;

    CHECK(schedule_parse("constant", 0, &r->schedule, NULL) == RC_OK);
    r->rate_factor = step->factor;
    r->accumulate = step->samples / r->batch;
    r->averaged = NULL;
    r->profiler = NULL;
    r->given = given;
    rc = replica_host_steps(r, 1, NULL, &report, &score);
    if (rc == RC_OK && !floats_are_finite(model_values(r->model, SECTION_PARAMETERS),
                                          model_schema(r->model)->values[SECTION_PARAMETERS])) {
        rc = RC_NONFINITE;
    }
    return rc;
}

static enum rc again(struct replica *r, const struct repeat_step *step, struct replica_given *given,
                     struct digest *end)
{
    const struct replica before = *r;
    const size_t inputs = step->values[SECTION_INPUT];
    struct repeat_step own;
    struct digest found;
    enum rc rc = take_state(r, &own), back;

    if (rc == RC_OK && inputs > 0 &&
        memcmp(own.planes[SECTION_INPUT], step->planes[SECTION_INPUT], inputs * sizeof(float)) !=
            0) {
        rc = RC_MISMATCH;
    }
    if (rc == RC_OK) {
        rc = put(r, step);
        if (rc == RC_OK) rc = take_again(r, step, given);
        if (rc == RC_OK) found = end_of(r);
        /* What is of the peer alone comes back; what it learnt of its data meanwhile stays. */
        r->schedule = before.schedule;
        r->rate_factor = before.rate_factor;
        r->accumulate = before.accumulate;
        r->averaged = before.averaged;
        r->profiler = before.profiler;
        r->given = NULL;
        r->samples_seen = before.samples_seen;
        back = put(r, &own);
        r->averages = before.averages;
        if (back != RC_OK) rc = back;
    }
    repeat_step_deinit(&own);
    if (rc == RC_OK) *end = found;
    return rc;
}

enum rc repeat_again(struct learner *learner, const struct repeat_step *step, struct digest *end)
{
    struct replica *r = replica_of(learner);
    struct replica_given given = {.taken = 0};
    struct samples samples = {0};
    uint32_t *order;
    enum rc rc = judge(r, step);

    if (rc != RC_OK) return rc;
    backend_bind_thread(r->backend);
    order = mem_array(step->samples, sizeof *order);
    rc = order == NULL ? RC_NOMEM : load(r, step, &samples, order);
    if (rc == RC_OK) {
        given.samples = &samples;
        given.order = order;
        rc = again(r, step, &given, end);
    }
    samples_deinit(&samples);
    mem_free(order);
    return rc;
}

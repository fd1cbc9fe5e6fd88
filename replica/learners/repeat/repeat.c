/*
 * Steps that are repeated: see repeat.h. The replica that repeats them is the live one, with the
 * state they begin with in the place of its own, which comes back afterwards; no second model takes
 * memory. Their samples are read from the data by their numbers, so none can be made up; where all
 * of them are in this peer's shard they are in memory already, and no file is read.
 */
#include "replica/learners/repeat/repeat.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/floats.h"
#include "base/hash_wide.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/learners/replica_internal.h"

#include <string.h>

static const enum section kept[] = {SECTION_PARAMETERS, SECTION_MOMENTS, SECTION_BUFFERS};
enum { KEPT = sizeof kept / sizeof *kept, LOOKED_AT = 64, TEXT_BYTES = 512 };

void repeat_state_deinit(struct repeat_state *state)
{
    for (int i = 0; i < SECTION_COUNT; i++) {
        mem_free(state->planes[i]);
    }
    *state = (struct repeat_state){.step = 0};
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

/* Of some samples, and of what they are to be taken for. */
static enum rc look_at(struct replica *r, const struct samples *samples, struct digest *digest)
{
    const struct dataset_info *info = dataset_info(r->dataset);
    struct batch batch;
    struct hash hash;
    enum rc rc = samples_digest(samples, info, digest);

    if (rc == RC_OK) rc = batch_init(&batch, info, (uint32_t)samples->count);
    if (rc != RC_OK) return rc;
    rc = samples_gather(samples, info, (struct pick){NULL, 0, (uint32_t)samples->count}, &batch);
    hash_init(&hash);
    hash_update(&hash, digest->bytes, sizeof digest->bytes);
    if (batch.labels != NULL) {
        hash_update(&hash, batch.labels,
                    samples->count * info->labels_per_sample * sizeof *batch.labels);
    }
    if (batch.targets != NULL) {
        hash_update(&hash, batch.targets, samples->count * info->outputs * sizeof *batch.targets);
    }
    batch_deinit(&batch);
    *digest = hash_final(&hash);
    return rc;
}

/* The data, as far as others have to have them: from all over the file. Once. */
static enum rc know_data(struct replica *r)
{
    const uint64_t there = dataset_info(r->dataset)->train_samples;
    uint32_t numbers[LOOKED_AT];
    struct samples samples = {0};
    size_t count = there < LOOKED_AT ? (size_t)there : LOOKED_AT;
    enum rc rc;

    if (r->has_data_digest) return RC_OK;
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (uint32_t)(i * there / count);
    }
    rc = dataset_load_list(r->dataset, numbers, count, &samples, NULL);
    if (rc == RC_OK) rc = look_at(r, &samples, &r->data_digest);
    samples_deinit(&samples);
    r->has_data_digest = rc == RC_OK;
    return rc;
}

static void add_schedule(struct hash *hash, const struct schedule *schedule)
{
    const double numbers[] = {schedule->gamma, schedule->min_share, schedule->factor,
                              schedule->batches_max};

    const bool has_end = schedule->kind == SCHEDULE_LINEAR || schedule->kind == SCHEDULE_COSINE;

    add_word(hash, schedule->kind);
    add_word(hash,
             has_end ? schedule->steps_total : 0); /* else it is of the shard, and no matter */
    add_word(hash, schedule->warmup_steps);
    add_word(hash, schedule->every_steps);
    hash_update(hash, numbers, sizeof numbers);
}

static void add_data(struct hash *hash, const struct replica *r)
{
    const struct dataset_info *info = dataset_info(r->dataset);

    add_text(hash, info->name);
    add_word(hash, info->train_samples);
    hash_update(hash, r->data_digest.bytes, sizeof r->data_digest.bytes);
    if (model_schema(r->model)->values[SECTION_INPUT] == 0) return;
    hash_update(hash, info->mean, info->channels * sizeof *info->mean);
    hash_update(hash, info->scale, info->channels * sizeof *info->scale);
}

bool repeat_is_possible(const struct learner *learner)
{
    const struct replica *r = (const struct replica *)learner;
    char text[TEXT_BYTES];

    /* Learners that take other steps have operations of their own. */
    return learner->ops == &replica_ops && r->device == NULL && r->beside == NULL &&
           r->objective == NULL && !shard_augments(r->shard) && cpu_model(text, sizeof text);
}

enum rc repeat_recipe(struct learner *learner, struct digest *recipe)
{
    struct replica *r = replica_of(learner);
    char text[TEXT_BYTES];
    struct hash hash;
    enum rc rc;

    if (!repeat_is_possible(learner)) return RC_UNSUPPORTED;
    rc = replica_make_ready(r);
    if (rc == RC_OK) rc = know_data(r);
    if (rc != RC_OK) return rc;
    const struct optimizer *o = &r->optimizer;
    const double numbers[] = {o->lr,    o->beta,     o->beta2,      o->epsilon, o->decay,
                              o->trust, o->adamw_lr, o->adamw_beta, r->clip,    r->rate_factor};
    const struct digest schema = schema_digest(model_schema(r->model));

    hash_init(&hash);
    cpu_backend_describe(text, sizeof text);
    add_text(&hash, text);
    if (!cpu_model(text, sizeof text)) return RC_UNSUPPORTED;
    add_text(&hash, text);
    add_text(&hash, __VERSION__); /* of the compiler */
    add_word(&hash, cpu_used);
    add_word(&hash, team_threads(r->team));
    hash_update(&hash, schema.bytes, sizeof schema.bytes);
    add_text(&hash, optimizer_name(o->kind));
    hash_update(&hash, numbers, sizeof numbers);
    add_schedule(&hash, &r->schedule);
    add_word(&hash, r->batch);
    add_word(&hash, r->accumulate);
    add_data(&hash, r);
    *recipe = hash_final(&hash);
    return RC_OK;
}

/* ---- a state ---- */

struct digest repeat_digest(const struct repeat_state *state)
{
    struct hash hash;

    hash_init(&hash);
    hash_update(&hash, state->recipe.bytes, sizeof state->recipe.bytes);
    add_word(&hash, state->step);
    add_word(&hash, state->updates);
    add_word(&hash, state->passes);
    add_word(&hash, state->stream);
    for (size_t i = 0; i < KEPT; i++) {
        const size_t bytes = state->values[kept[i]] * sizeof(float);
        const struct digest digest = hash_wide_of(state->planes[kept[i]], bytes);

        hash_update(&hash, digest.bytes, sizeof digest.bytes);
    }
    return hash_final(&hash);
}

static enum rc take_plane(struct replica *r, enum section section, struct repeat_state *state)
{
    const size_t count = model_schema(r->model)->values[section];

    if (count == 0) return RC_OK;
    if (state->values[section] != count) {
        mem_free(state->planes[section]);
        state->values[section] = 0;
        state->planes[section] = mem_aligned(count * sizeof(float));
        if (state->planes[section] == NULL) return RC_NOMEM;
        state->values[section] = count;
    }
    return r->learner.ops->export_section(&r->learner, section, state->planes[section], count);
}

static enum rc take_state(struct replica *r, struct repeat_state *state)
{
    enum rc rc = RC_OK;

    state->step = r->step;
    state->updates = r->updates;
    state->passes = model_passes(r->model);
    state->stream = r->stream_seed;
    shard_save(r->shard, state->place);
    for (size_t i = 0; i < KEPT && rc == RC_OK; i++) {
        rc = take_plane(r, kept[i], state);
    }
    if (rc != RC_OK) repeat_state_deinit(state);
    return rc;
}

enum rc repeat_take(struct learner *learner, struct repeat_state *state)
{
    const enum rc rc = repeat_recipe(learner, &state->recipe);

    if (rc == RC_OK) return take_state(replica_of(learner), state);
    repeat_state_deinit(state);
    return rc;
}

enum rc repeat_samples(struct learner *learner, const struct repeat_state *from,
                       const struct repeat_state *to, uint32_t *numbers, uint32_t *count)
{
    return shard_between(replica_of(learner)->shard, from->place, to->place, numbers,
                         REPEAT_SAMPLES_MAX, count);
}

/* ---- again ---- */

/* Samples of so many steps from this one on. */
static uint64_t samples_of(const struct replica *r, uint64_t step, uint32_t steps)
{
    uint64_t batches = 0;

    for (uint32_t i = 0; i < steps; i++) {
        batches += (uint64_t)r->accumulate * schedule_batches(&r->schedule, step + i);
    }
    return batches * r->batch;
}

/* Could a replica of ours have been so, and gone this way? */
static enum rc judge(struct replica *r, const struct repeat_state *from,
                     const struct repeat_way *way)
{
    const struct schema *schema = model_schema(r->model);
    struct digest recipe;
    enum rc rc = repeat_recipe(&r->learner, &recipe);

    if (rc != RC_OK) return rc;
    if (!digest_is_equal(recipe, from->recipe)) return RC_MISMATCH;
    if (way->steps == 0 || way->steps > REPEAT_STEPS_MAX || way->before > way->steps ||
        way->samples > REPEAT_SAMPLES_MAX ||
        way->samples != samples_of(r, from->step, way->steps)) {
        return RC_FORMAT;
    }
    for (size_t i = 0; i < KEPT; i++) {
        const size_t count = schema->values[kept[i]];

        if (from->values[kept[i]] != count) return RC_FORMAT;
        if (count > 0 && !floats_are_finite(from->planes[kept[i]], count)) return RC_FORMAT;
    }
    return RC_OK;
}

/* The samples of a way: read for it, or those of the shard. */
struct found {
    struct samples read; /* empty: all were there */
    uint32_t *order;     /* [way->samples]: places in these, or in the shard */
};

/* Load what the numbers name. A number may come twice, where a way reaches over the end of an
 * epoch. `places`: [there], from 1, zeroed. */
static enum rc read_samples(struct replica *r, const struct repeat_way *way, uint32_t *places,
                            struct found *found)
{
    uint32_t *once = mem_array(way->samples, sizeof *once);
    uint32_t count = 0;
    enum rc rc;

    if (once == NULL) return RC_NOMEM;
    for (uint32_t i = 0; i < way->samples; i++) {
        const uint32_t number = way->numbers[i];

        if (places[number] == 0) {
            once[count++] = number;
            places[number] = count;
        }
        found->order[i] = places[number] - 1;
    }
    rc = dataset_load_list(r->dataset, once, count, &found->read, NULL);
    mem_free(once);
    return rc;
}

static enum rc find_samples(struct replica *r, const struct repeat_way *way, struct found *found)
{
    const size_t there = (size_t)dataset_info(r->dataset)->train_samples;
    uint32_t *places;
    bool are_all_here = true;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; i < way->samples; i++) {
        if (way->numbers[i] >= there) return RC_FORMAT;
    }
    places = mem_array(there, sizeof *places);
    found->order = mem_array(way->samples, sizeof *found->order);
    if (places == NULL || found->order == NULL) rc = RC_NOMEM;
    if (rc == RC_OK) {
        shard_places(r->shard, places);
        for (uint32_t i = 0; i < way->samples && are_all_here; i++) {
            are_all_here = places[way->numbers[i]] != 0;
            found->order[i] = places[way->numbers[i]] - 1;
        }
    }
    if (rc == RC_OK && !are_all_here) {
        memset(places, 0, there * sizeof *places);
        rc = read_samples(r, way, places, found);
    }
    mem_free(places);
    return rc;
}

/* Into the place of what is there. */
static enum rc put(struct replica *r, const struct repeat_state *state)
{
    enum rc rc = RC_OK;

    for (size_t i = 0; i < KEPT && rc == RC_OK; i++) {
        rc = replica_assign(&r->learner, kept[i], state->planes[kept[i]], state->values[kept[i]]);
    }
    r->step = state->step;
    r->updates = state->updates;
    team_set_stream(r->team, state->stream, state->passes);
    return rc;
}

/* What the round before came to, beside what was told for it. `difference`: [MIXED]. */
static enum rc difference_of(struct replica *r, const float *agreed, float *difference)
{
    const size_t count = model_schema(r->model)->values[SECTION_MIXED];
    enum rc rc = r->learner.ops->export_section(&r->learner, SECTION_MIXED, difference, count);

    for (size_t i = 0; i < count && rc == RC_OK; i++) {
        difference[i] = agreed[i] - difference[i];
    }
    return rc;
}

static enum rc go(struct replica *r, const struct repeat_way *way, float *difference)
{
    const size_t mixed = model_schema(r->model)->values[SECTION_MIXED];
    struct train_report report = {0};
    struct task_score score = {0.0, 0, 0};
    enum rc rc = RC_OK;

    if (difference != NULL) {
        rc = difference_of(r, way->agreed, difference);
        if (rc == RC_OK) rc = replica_host_steps(r, way->before, NULL, &report, &score);
        if (rc == RC_OK) {
            rc = r->learner.ops->import_section(&r->learner, SECTION_MIXED, difference, mixed);
        }
    }
    if (rc == RC_OK) rc = replica_host_steps(r, way->steps, NULL, &report, &score);
    return rc;
}

/* With the samples there: away, and back. */
static enum rc go_and_return(struct replica *r, const struct repeat_state *from,
                             const struct repeat_way *way, float *difference, struct digest *end)
{
    const struct replica before = *r;
    struct repeat_state own = {.step = 0}, there = {.step = 0};
    enum rc rc = take_state(r, &own), back;

    if (rc != RC_OK) return rc;
    r->averaged = NULL;
    r->profiler = NULL;
    rc = put(r, from);
    if (rc == RC_OK) rc = go(r, way, difference);
    if (rc == RC_OK) rc = take_state(r, &there);
    if (rc == RC_OK &&
        !floats_are_finite(there.planes[SECTION_PARAMETERS], there.values[SECTION_PARAMETERS])) {
        rc = RC_NONFINITE;
    }
    if (rc == RC_OK) {
        there.recipe = from->recipe;
        there.stream = from->stream;
        *end = repeat_digest(&there);
    }
    repeat_state_deinit(&there);
    r->averaged = before.averaged;
    r->profiler = before.profiler;
    r->samples_seen = before.samples_seen;
    back = put(r, &own);
    r->averages = before.averages; /* it would begin anew with what is assigned */
    repeat_state_deinit(&own);
    return back != RC_OK ? back : rc;
}

enum rc repeat_again(struct learner *learner, const struct repeat_state *from,
                     const struct repeat_way *way, struct digest *end)
{
    struct replica *r = replica_of(learner);
    struct replica_given given = {.taken = 0};
    struct found found = {.order = NULL};
    float *difference = NULL;
    struct digest there;
    enum rc rc = judge(r, from, way);

    if (rc != RC_OK) return rc;
    backend_bind_thread(r->backend);
    rc = find_samples(r, way, &found);
    if (rc == RC_OK && way->agreed != NULL) {
        difference = mem_aligned(model_schema(r->model)->values[SECTION_MIXED] * sizeof(float));
        if (difference == NULL) rc = RC_NOMEM;
    }
    if (rc == RC_OK) {
        given.samples = found.read.count > 0 ? &found.read : shard_set(r->shard);
        given.order = found.order;
        r->given = &given;
        rc = go_and_return(r, from, way, difference, &there);
        r->given = NULL;
    }
    if (rc == RC_OK) *end = there;
    mem_free(difference);
    samples_deinit(&found.read);
    mem_free(found.order);
    return rc;
}

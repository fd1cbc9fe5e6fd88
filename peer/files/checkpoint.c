/*
 * Checkpoints: one self-contained state file plus the model for people. The state is written first:
 * a crash in between leaves an older model file beside a newer state, which only `eval` sees.
 * Blocking; runs in a job of the training lane, at a step border.
 */
#include "peer/files/checkpoint.h"

#include "base/check.h"
#include "base/crash_point.h"
#include "base/floats.h"
#include "base/mem.h"
#include "base/units.h"

#include <stdio.h>

#define STATE_FILE CHECKPOINT_STATE_FILE
#define MODEL_FILE CHECKPOINT_MODEL_FILE
#define STATE_FORM "grapevine-state-1"
#define COUNTS     "peer.counts"
#define EXCHANGE   "peer.exchange"
#define INPUT      "peer.input"
#define POPULATION "peer.population"
#define PERIOD     "peer.period"
/* Of the metadata: COUNT_OWN_STEPS at the one average of one-shot, and who averages. */
#define ONCE        "once"
#define METHOD      "method"
#define STATE_BYTES (UINT64_C(64) << 30)

enum { COUNT_SAMPLES, COUNT_ROUND, COUNT_OWN_STEPS, COUNTS_COUNT };

static enum rc add_sections(struct learner *learner, struct tensor_file *file, float *parameters,
                            float *buffers)
{
    const struct schema *schema = learner->ops->schema(learner);
    size_t values = schema->values[SECTION_PARAMETERS];
    size_t extra = schema->values[SECTION_BUFFERS];
    enum rc rc = learner->ops->export_section(learner, SECTION_PARAMETERS, parameters, values);

    if (rc == RC_OK && !floats_are_finite(parameters, values)) rc = RC_NONFINITE;
    if (rc == RC_OK) rc = tensor_file_add_f32(file, "peer.parameters", parameters, values);
    if (rc != RC_OK || extra == 0) return rc;
    rc = learner->ops->export_section(learner, SECTION_BUFFERS, buffers, extra);
    if (rc == RC_OK && !floats_are_finite(buffers, extra)) rc = RC_NONFINITE;
    if (rc == RC_OK) rc = tensor_file_add_f32(file, "peer.buffers", buffers, extra);
    return rc;
}

/* How the input is normalised, where that is the model's: `input` stays until the file is written.
 */
static enum rc add_input(struct learner *learner, struct tensor_file *file, float *input)
{
    size_t count = learner->ops->schema(learner)->values[SECTION_INPUT];
    enum rc rc;

    if (count == 0) return RC_OK;
    rc = learner->ops->export_section(learner, SECTION_INPUT, input, count);
    return rc == RC_OK ? tensor_file_add_f32(file, INPUT, input, count) : rc;
}

static const char *const rule_names[RULE_STATE_MAX] = {"rule.0", "rule.1"};

static const char *const residual_names[1] = {"residual"};

static const char *const held_names[ROUND_HELD_MAX] = {"held.0", "held.1", "held.2", "held.3",
                                                       "held.4", "held.5", "held.6", "held.7"};

static enum rc add_planes(const char *const *names, const float *const *planes, size_t count,
                          size_t values, struct tensor_file *file)
{
    enum rc rc = RC_OK;

    for (size_t i = 0; i < count && rc == RC_OK; i++) {
        rc = tensor_file_add_f32(file, names[i], planes[i], values);
    }
    return rc;
}

enum { POPULATION_RATE, POPULATION_DECAY, POPULATION_LINE, POPULATION_COPIES, POPULATION_WORDS };

/* Rates to the bit. */
static enum rc add_population(const struct checkpoint_population *population,
                              struct tensor_file *file)
{
    uint64_t words[POPULATION_WORDS] = {
        [POPULATION_LINE] = population->line, [POPULATION_COPIES] = population->copies};

    if (!population->is_there) return RC_OK;
    memcpy(&words[POPULATION_RATE], &population->rate, sizeof population->rate);
    memcpy(&words[POPULATION_DECAY], &population->decay, sizeof population->decay);
    return tensor_file_add_u64_copy(file, POPULATION, words, POPULATION_WORDS);
}

static enum rc load_population(const struct tensor_file *file,
                               struct checkpoint_population *population)
{
    const struct tensor_view *view = tensor_file_find(file, POPULATION);
    uint64_t words[POPULATION_WORDS];

    if (view == NULL) return RC_OK;
    if (strcmp(view->dtype, "U64") != 0 || view->bytes_count != sizeof words) return RC_FORMAT;
    memcpy(words, view->bytes, sizeof words);
    population->is_there = true;
    memcpy(&population->rate, &words[POPULATION_RATE], sizeof population->rate);
    memcpy(&population->decay, &words[POPULATION_DECAY], sizeof population->decay);
    population->line = words[POPULATION_LINE];
    population->copies = words[POPULATION_COPIES];
    return RC_OK;
}

enum {
    PERIOD_STEPS,
    PERIOD_LOSS,
    PERIOD_FIRST,
    PERIOD_OWN_STEPS,
    PERIOD_SUM,
    PERIOD_SUM_STEPS,
    PERIOD_OWED,
    PERIOD_LATE,
    PERIOD_WORDS
};

/* Losses to the bit. */
static enum rc add_period(const struct checkpoint *checkpoint, struct tensor_file *file)
{
    const struct period *period = &checkpoint->period;
    uint64_t words[PERIOD_WORDS] = {[PERIOD_STEPS] = period->steps,
                                    [PERIOD_OWN_STEPS] = period->own.steps,
                                    [PERIOD_SUM_STEPS] = period->loss_steps,
                                    [PERIOD_OWED] = period->is_owed,
                                    [PERIOD_LATE] = period->is_late};

    if (!checkpoint->has_period) return RC_OK;
    memcpy(&words[PERIOD_LOSS], &period->own.loss, sizeof period->own.loss);
    memcpy(&words[PERIOD_FIRST], &period->own.first, sizeof period->own.first);
    memcpy(&words[PERIOD_SUM], &period->loss_sum, sizeof period->loss_sum);
    return tensor_file_add_u64_copy(file, PERIOD, words, PERIOD_WORDS);
}

static enum rc load_period(const struct tensor_file *file, struct checkpoint *checkpoint)
{
    const struct tensor_view *view = tensor_file_find(file, PERIOD);
    struct period *period = &checkpoint->period;
    uint64_t words[PERIOD_WORDS];

    if (view == NULL) return RC_OK;
    if (strcmp(view->dtype, "U64") != 0 || view->bytes_count != sizeof words) return RC_FORMAT;
    memcpy(words, view->bytes, sizeof words);
    checkpoint->has_period = true;
    *period = (struct period){.steps = words[PERIOD_STEPS],
                              .own.steps = words[PERIOD_OWN_STEPS],
                              .loss_steps = words[PERIOD_SUM_STEPS],
                              .is_owed = words[PERIOD_OWED] != 0,
                              .is_late = words[PERIOD_LATE] != 0};
    memcpy(&period->own.loss, &words[PERIOD_LOSS], sizeof period->own.loss);
    memcpy(&period->own.first, &words[PERIOD_FIRST], sizeof period->own.first);
    memcpy(&period->loss_sum, &words[PERIOD_SUM], sizeof period->loss_sum);
    return RC_OK;
}

static enum rc add_peer(const struct checkpoint *checkpoint, struct learner *learner,
                        struct tensor_file *file)
{
    uint64_t counts[COUNTS_COUNT] = {[COUNT_SAMPLES] = checkpoint->model_samples,
                                     [COUNT_ROUND] = checkpoint->round,
                                     [COUNT_OWN_STEPS] = checkpoint->own_steps};
    struct tensor_view view = {.name = EXCHANGE, .dtype = "U8", .rank = 1};
    char text[DIGEST_TEXT], once[24];
    enum rc rc = tensor_file_set(file, "format", STATE_FORM);

    digest_format(checkpoint->lineage, text);
    if (rc == RC_OK) rc = tensor_file_set(file, "lineage", text);
    digest_format(schema_digest(learner->ops->schema(learner)), text);
    if (rc == RC_OK) rc = tensor_file_set(file, "schema", text);
    if (rc == RC_OK) rc = tensor_file_add_u64_copy(file, COUNTS, counts, COUNTS_COUNT);
    if (rc == RC_OK && checkpoint->once_steps > 0) {
        snprintf(once, sizeof once, "%llu", (unsigned long long)checkpoint->once_steps);
        rc = tensor_file_set(file, ONCE, once);
    }
    if (rc == RC_OK && checkpoint->method[0] != '\0') {
        rc = tensor_file_set(file, METHOD, checkpoint->method);
    }
    if (rc == RC_OK) rc = add_population(&checkpoint->population, file);
    if (rc == RC_OK) rc = add_period(checkpoint, file);
    if (rc != RC_OK || checkpoint->exchange_bytes == 0) return rc;
    view.shape[0] = checkpoint->exchange_bytes;
    view.bytes = checkpoint->exchange;
    view.bytes_count = checkpoint->exchange_bytes;
    return tensor_file_add(file, &view);
}

static enum rc put_file(struct env *env, const char *name, struct tensor_file *file,
                        struct fault *why)
{
    const struct piece *pieces;
    size_t pieces_count;
    enum rc rc = tensor_file_encode(file, &pieces, &pieces_count);

    if (rc != RC_OK) return fault_set(why, rc, "cannot encode %s: %s", name, rc_text(rc));
    return env->ops->store_put(env, name, pieces, pieces_count, why);
}

/* The state file, and the planes that it borrows. */
struct state_file {
    struct tensor_file *file;
    float *parameters, *buffers, *input;
};

static enum rc fill_state(struct state_file *state, struct learner *learner,
                          const struct checkpoint *checkpoint, struct fault *why)
{
    const struct schema *schema = learner->ops->schema(learner);
    struct tensor_file *file = state->file = tensor_file_create();
    enum rc rc;

    state->parameters = mem_aligned(schema->values[SECTION_PARAMETERS] * sizeof(float));
    state->buffers = mem_aligned(schema->values[SECTION_BUFFERS] * sizeof(float));
    state->input = mem_aligned(schema->values[SECTION_INPUT] * sizeof(float));
    if (file == NULL || state->parameters == NULL || state->buffers == NULL ||
        state->input == NULL) {
        return fault_set(why, RC_NOMEM, "cannot write a checkpoint: out of memory");
    }
    rc = add_peer(checkpoint, learner, file);
    if (rc == RC_OK) {
        rc = add_planes(rule_names, checkpoint->rule, checkpoint->rule_count,
                        checkpoint->rule_values, file);
    }
    if (rc == RC_OK) {
        rc = add_planes(residual_names, checkpoint->residual, checkpoint->residual_count,
                        checkpoint->rule_values, file);
    }
    if (rc == RC_OK) {
        rc = add_planes(held_names, checkpoint->held, checkpoint->held_count,
                        checkpoint->rule_values, file);
    }
    if (rc == RC_OK) rc = add_sections(learner, file, state->parameters, state->buffers);
    if (rc == RC_OK) rc = add_input(learner, file, state->input);
    if (rc == RC_OK) rc = learner->ops->save(learner, file);
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot write a checkpoint: %s", rc_text(rc));
}

static void state_file_deinit(struct state_file *state)
{
    tensor_file_destroy(state->file);
    mem_free(state->parameters);
    mem_free(state->buffers);
    mem_free(state->input);
}

static enum rc save_state(struct env *env, struct learner *learner,
                          const struct checkpoint *checkpoint, struct fault *why)
{
    struct state_file state = {0};
    enum rc rc = fill_state(&state, learner, checkpoint, why);

    if (rc == RC_OK) {
        crash_point(CRASH_CHECKPOINT_ENCODED);
        rc = put_file(env, checkpoint->is_given_up ? CHECKPOINT_STATE_BEFORE : STATE_FILE,
                      state.file, why);
    }
    state_file_deinit(&state);
    return rc;
}

/* All of them, one behind the other; NULL: out of memory. */
static uint8_t *join_pieces(const struct piece *pieces, size_t pieces_count, size_t *count)
{
    uint8_t *bytes;
    size_t at = 0;

    *count = 0;
    for (size_t i = 0; i < pieces_count; i++) {
        *count += pieces[i].count;
    }
    bytes = mem_raw(*count);
    for (size_t i = 0; i < pieces_count && bytes != NULL; i++) {
        memcpy(bytes + at, pieces[i].bytes, pieces[i].count);
        at += pieces[i].count;
    }
    return bytes;
}

enum rc checkpoint_encode(struct learner *learner, const struct checkpoint *checkpoint,
                          uint8_t **bytes, size_t *count, struct fault *why)
{
    struct state_file state = {0};
    const struct piece *pieces;
    size_t pieces_count;
    uint8_t *joined = NULL;
    enum rc rc = fill_state(&state, learner, checkpoint, why);

    if (rc == RC_OK) {
        rc = tensor_file_encode(state.file, &pieces, &pieces_count);
        if (rc == RC_OK) joined = join_pieces(pieces, pieces_count, count);
        if (joined == NULL)
            rc = fault_set(why, RC_NOMEM, "cannot write a checkpoint: out of memory");
    }
    if (rc == RC_OK) *bytes = joined;
    state_file_deinit(&state);
    return rc;
}

MUST_USE enum rc checkpoint_save(struct env *env, struct learner *learner,
                                 const struct checkpoint *checkpoint, checkpoint_model_fn model,
                                 void *context, struct fault *why)
{
    struct tensor_file *file;
    enum rc rc;

    crash_point(CRASH_CHECKPOINT_BEGUN);
    rc = save_state(env, learner, checkpoint, why);
    crash_point(CRASH_CHECKPOINT_STATE_WRITTEN);
    if (rc != RC_OK || model == NULL) return rc;
    file = tensor_file_create();
    if (file == NULL) return fault_set(why, RC_NOMEM, "cannot write the model: out of memory");
    rc = model(context, learner, file);
    if (rc == RC_OK) {
        rc = put_file(env, checkpoint->is_given_up ? CHECKPOINT_MODEL_BEFORE : MODEL_FILE, file,
                      why);
    } else {
        fault_set(why, rc, "cannot write the model: %s", rc_text(rc));
    }
    tensor_file_destroy(file);
    crash_point(CRASH_CHECKPOINT_MODEL_WRITTEN);
    return rc;
}

/* ---- loading ---- */

/* Whose bytes they are, and what to do about them. */
struct source {
    const char *name, *is_foreign, *is_of_others, *advice;
};

static const struct source of_folder = {
    .name = STATE_FILE,
    .is_foreign = "is not a grapevine checkpoint; give another --out or move it away",
    .is_of_others = "holds a model for other data than --data is now; bring the old data back, or "
                    "take another --out",
    .advice = "move it away to start over"};

static const struct source of_program = {
    .name = "the state",
    .is_foreign = "is none that gv_state() gave",
    .is_of_others = "is of a model with other tensors than were described; restore one of this "
                    "model, or none",
    .advice = "restore another, or none"};

static enum rc load_section(struct learner *learner, const struct tensor_file *file,
                            const char *name, enum section section)
{
    size_t values = learner->ops->schema(learner)->values[section];
    const struct tensor_view *view = tensor_file_find(file, name);

    if (values == 0 && view == NULL) return RC_OK;
    if (view == NULL || strcmp(view->dtype, "F32") != 0 ||
        view->bytes_count != values * sizeof(float)) {
        return RC_FORMAT;
    }
    return learner->ops->assign_section(learner, section, view->bytes, values);
}

static enum rc load_peer(const struct tensor_file *file, struct checkpoint *checkpoint)
{
    const struct tensor_view *counts = tensor_file_find(file, COUNTS);
    const struct tensor_view *exchange = tensor_file_find(file, EXCHANGE);
    const char *lineage = tensor_file_get(file, "lineage");
    const char *once = tensor_file_get(file, ONCE);
    const char *method = tensor_file_get(file, METHOD);
    uint64_t values[COUNTS_COUNT];

    if (once != NULL && !units_parse_count(once, &checkpoint->once_steps)) return RC_FORMAT;
    if (counts == NULL || strcmp(counts->dtype, "U64") != 0 ||
        counts->bytes_count != sizeof values || lineage == NULL ||
        !digest_parse(lineage, &checkpoint->lineage)) {
        return RC_FORMAT;
    }
    memcpy(values, counts->bytes, sizeof values);
    if (method != NULL) {
        snprintf(checkpoint->method, sizeof checkpoint->method, "%s", method);
    }
    checkpoint->model_samples = values[COUNT_SAMPLES];
    checkpoint->round = values[COUNT_ROUND];
    checkpoint->own_steps = values[COUNT_OWN_STEPS];
    if (load_population(file, &checkpoint->population) != RC_OK) return RC_FORMAT;
    if (load_period(file, checkpoint) != RC_OK) return RC_FORMAT;
    if (exchange == NULL || exchange->bytes_count == 0) return RC_OK;
    checkpoint->exchange = mem_alloc(exchange->bytes_count);
    if (checkpoint->exchange == NULL) return RC_NOMEM;
    memcpy(checkpoint->exchange, exchange->bytes, exchange->bytes_count);
    checkpoint->exchange_bytes = exchange->bytes_count;
    return RC_OK;
}

/* None, or planes of one size; whether they fit is for the rule or the round to say. */
static enum rc load_planes(const struct tensor_file *file, const char *const *names, size_t max,
                           struct checkpoint *checkpoint, const float **planes, float **owned,
                           size_t *planes_count)
{
    size_t count = 0, bytes = checkpoint->rule_values * sizeof(float);
    const struct tensor_view *view;

    while (count < max && (view = tensor_file_find(file, names[count])) != NULL) {
        if (bytes == 0) bytes = view->bytes_count;
        if (strcmp(view->dtype, "F32") != 0 || bytes == 0 || view->bytes_count != bytes) {
            return RC_FORMAT;
        }
        count++;
    }
    if (count == 0) return RC_OK;
    checkpoint->rule_values = bytes / sizeof(float);
    *owned = mem_aligned(count * bytes);
    if (*owned == NULL) return RC_NOMEM;
    for (size_t i = 0; i < count; i++) {
        float *plane = *owned + i * checkpoint->rule_values;

        view = tensor_file_find(file, names[i]);
        memcpy(plane, view->bytes, bytes);
        planes[i] = plane;
    }
    *planes_count = count;
    return RC_OK;
}

static enum rc load_all(struct learner *learner, const struct tensor_file *file,
                        struct checkpoint *checkpoint, const struct source *source,
                        struct fault *why)
{
    const char *form = tensor_file_get(file, "format");
    const char *schema = tensor_file_get(file, "schema");
    struct digest digest;
    enum rc rc;

    if (form == NULL || strcmp(form, STATE_FORM) != 0) {
        return fault_set(why, RC_FORMAT, "%s %s", source->name, source->is_foreign);
    }
    if (schema == NULL || !digest_parse(schema, &digest) ||
        !digest_is_equal(digest, schema_digest(learner->ops->schema(learner)))) {
        return fault_set(why, RC_MISMATCH, "%s %s", source->name, source->is_of_others);
    }
    rc = load_peer(file, checkpoint);
    if (rc == RC_OK) {
        rc = load_planes(file, rule_names, RULE_STATE_MAX, checkpoint, checkpoint->rule,
                         &checkpoint->rule_owned, &checkpoint->rule_count);
    }
    if (rc == RC_OK) {
        rc = load_planes(file, residual_names, 1, checkpoint, checkpoint->residual,
                         &checkpoint->residual_owned, &checkpoint->residual_count);
    }
    if (rc == RC_OK) {
        rc = load_planes(file, held_names, ROUND_HELD_MAX, checkpoint, checkpoint->held,
                         &checkpoint->held_owned, &checkpoint->held_count);
    }
    if (rc == RC_OK) rc = load_section(learner, file, "peer.parameters", SECTION_PARAMETERS);
    if (rc == RC_OK) rc = load_section(learner, file, "peer.buffers", SECTION_BUFFERS);
    /* A file of old has none: it goes on as it began, by its own data. */
    if (rc == RC_OK && tensor_file_find(file, INPUT) != NULL) {
        rc = load_section(learner, file, INPUT, SECTION_INPUT);
        checkpoint->has_input = true;
    }
    if (rc != RC_OK) {
        return fault_set(why, rc, "%s is incomplete: %s; %s", source->name, rc_text(rc),
                         source->advice);
    }
    return learner->ops->load(learner, file, why);
}

static enum rc take(const struct tensor_file *file, const struct source *source,
                    struct learner *learner, struct checkpoint *checkpoint, struct fault *why)
{
    struct checkpoint loaded = {0};
    enum rc rc = load_all(learner, file, &loaded, source, why);

    if (rc == RC_OK) {
        *checkpoint = loaded;
    } else {
        checkpoint_deinit(&loaded);
    }
    return rc;
}

enum rc checkpoint_take(const struct tensor_file *file, struct learner *learner,
                        struct checkpoint *checkpoint, struct fault *why)
{
    return take(file, &of_program, learner, checkpoint, why);
}

MUST_USE enum rc checkpoint_load(struct env *env, struct learner *learner,
                                 struct checkpoint *checkpoint, struct fault *why)
{
    struct tensor_file *file = NULL;
    void *bytes = NULL;
    size_t count = 0;
    enum rc rc = env->ops->store_get(env, STATE_FILE, STATE_BYTES, &bytes, &count, why);

    if (rc != RC_OK) return rc;
    rc = tensor_file_decode(STATE_FILE, bytes, count, &file, why);
    if (rc != RC_OK) {
        mem_free(bytes);
        return rc;
    }
    rc = take(file, &of_folder, learner, checkpoint, why);
    tensor_file_destroy(file);
    return rc;
}

void checkpoint_deinit(struct checkpoint *checkpoint)
{
    mem_free(checkpoint->exchange);
    checkpoint->exchange = NULL;
    checkpoint->exchange_bytes = 0;
    mem_free(checkpoint->rule_owned);
    mem_free(checkpoint->held_owned);
    mem_free(checkpoint->residual_owned);
    checkpoint->residual_owned = NULL;
    checkpoint->held_owned = NULL;
    checkpoint->held_count = 0;
    checkpoint->rule_owned = NULL;
    checkpoint->rule_count = 0;
}

/*
 * The learner of --averaging codistill and ec-dnn: a replica whose rounds mix what it answers to a
 * probe set (probe_set.h), and no parameters (mutual.h). To whoever runs rounds, keeps checkpoints
 * or hands models on, its answers are the plane: SECTION_MIXED is what it answers now, and
 * SECTION_PARAMETERS what all answered in the last round, so who joins takes that and keeps a model
 * of its own, of any layers. The model itself is saved with the rest of the learner's state.
 *
 * Codistillation learns from the probe set in an order of its own that follows from the shared
 * step, so that with rounds every H steps only the samples of the next H steps are answered anew;
 * for the others, earlier answers stand. Relabelling answers all of them each time, and learns from
 * those of its own shard, or, where the probe set is of other data, from all in batches of their
 * own. Thread: the training lane's.
 */
#include "replica/learners/replica_internal.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "replica/learners/mutual.h"
#include "replica/learners/probe_set.h"
#include "replica/model/loss.h"
#include "replica/plane/store_safetensors.h"

#include <string.h>

enum { SAMPLES_DEFAULT = 8192 };
/* Answers to as many samples by default; and 256 MB of them at most. */
#define VALUES_DEFAULT (UINT64_C(1) << 22)
#define VALUES_MOST    (UINT64_C(1) << 26)

static const char parameters_name[] = "mutual.parameters", buffers_name[] = "mutual.buffers";

struct replica_mutual {
    struct replica replica; /* first: a learner is cast back to it */
    struct learner_ops ops;
    struct mutual mutual;
    struct probe_set probe;
    struct schema schema; /* of the answers */
    size_t each;          /* values of a sample's */
    bool has_other;       /* the set is of other data than the shard */
    struct replica_beside beside;
    struct task_objective of_probe, of_shard;
    float *targets;             /* of a batch: [batch][rows][heads][outputs] */
    bool *has_target;           /* [batch] */
    uint32_t *picks;            /* [batch] of the set */
    uint32_t *found;            /* [shard's samples]: which of the set they are; PROBE_NONE */
    uint64_t found_for;         /* the shard they are of; 0: none */
    float *kept[SECTION_COUNT]; /* the last good values; NULL: none */
};

static struct replica_mutual *mutual_of(struct learner *learner)
{
    return (struct replica_mutual *)learner;
}

static const struct dataset_info *info_of(const struct replica_mutual *m)
{
    return dataset_info(m->replica.dataset);
}

/* ---- what it answers ---- */

static enum rc answer_range(struct replica_mutual *m, size_t first, size_t end)
{
    return replica_answer(&m->replica.learner, &m->probe.samples, first, end - first,
                          m->mutual.own + first * m->each);
}

/* Where in the set a step begins to learn. */
static size_t place_of(const struct replica_mutual *m, uint64_t step)
{
    const uint64_t count = m->probe.samples.count;

    return (size_t)((step % count) * (m->replica.batch % count) % count);
}

/* All, or what the next period learns from; what a round carries on is told in the next one. */
static enum rc answer(struct replica_mutual *m)
{
    const struct mutual_options *options = &m->mutual.options;
    const size_t count = m->probe.samples.count, first = place_of(m, m->replica.step);
    const uint64_t steps = options->every_steps + options->every_steps / 4; /* a round takes some */
    enum rc rc;

    if (!m->mutual.has_own || options->relabels || steps == 0 ||
        steps >= count / m->replica.batch) {
        rc = answer_range(m, 0, count);
    } else {
        const size_t end = first + (size_t)steps * m->replica.batch;

        rc = answer_range(m, first, end < count ? end : count);
        if (rc == RC_OK && end > count) rc = answer_range(m, 0, end - count);
    }
    m->mutual.has_own = rc == RC_OK; /* else some are of what is no model, and none is kept */
    if (rc != RC_OK) memset(m->mutual.own, 0, m->mutual.values * sizeof *m->mutual.own);
    return rc;
}

/* ---- what it learns from others ---- */

/* The targets of a batch's sample, the same for each head. */
static void put_targets(struct replica_mutual *m, uint32_t row, uint32_t place)
{
    const struct task *task = &m->replica.task;
    const float *from = m->mutual.targets + (size_t)place * m->each;
    float *to = m->targets + (size_t)row * m->each * task->heads;

    for (uint32_t i = 0; i < task->rows; i++, from += task->outputs) {
        for (uint32_t h = 0; h < task->heads; h++, to += task->outputs) {
            memcpy(to, from, task->outputs * sizeof *to);
        }
    }
}

static enum rc fill_beside(void *context, struct batch *batch)
{
    struct replica_mutual *m = context;
    const struct dataset_info *info = info_of(m);
    const size_t count = m->probe.samples.count, first = place_of(m, m->replica.step);
    const uint32_t rows = m->replica.batch < count ? m->replica.batch : (uint32_t)count;

    for (uint32_t i = 0; i < rows; i++) {
        m->picks[i] = (uint32_t)((first + i) % count);
    }
    const enum rc rc =
        samples_gather(&m->probe.samples, info, (struct pick){m->picks, 0, rows}, batch);
    if (rc == RC_OK && m->has_other && batch->labels != NULL) { /* of other classes, and unread */
        memset(batch->labels, 0, (size_t)rows * info->labels_per_sample * sizeof(uint32_t));
    }
    return rc;
}

static enum rc prepare_beside(void *context, struct task *task, const struct batch *batch)
{
    (void)task;
    for (uint32_t i = 0; i < batch->rows; i++) {
        put_targets(context, i, batch->picked[i]);
    }
    return RC_OK;
}

static enum rc lose_beside(void *context, const struct task *task, const struct batch *batch,
                           size_t first, const struct loss_rows *rows, uint64_t *hits)
{
    const struct replica_mutual *m = context;
    const struct loss_teaching teaching = {
        .teacher = m->targets + first * task->outputs,
        .labels = (task->heads > 1 ? task->labels : batch->labels) + first,
        .temperature = 1.0,
        .a = 1.0};

    (void)hits;
    if (task->target == DATA_REALS) {
        loss_rows_squared(rows, teaching.teacher);
    } else {
        (void)loss_rows_distillation(rows, &teaching);
    }
    return RC_OK;
}

/* Which samples of the shard are in the set: looked for again where it is another shard. */
static enum rc find_shard(struct replica_mutual *m)
{
    uint64_t words[SHARD_STATE_WORDS];
    const struct samples *samples = shard_set(m->replica.shard);

    shard_save(m->replica.shard, words);
    if (m->found != NULL && m->found_for == words[0]) return RC_OK;
    mem_free(m->found);
    m->found = mem_array(samples->count, sizeof *m->found);
    if (m->found == NULL) return RC_NOMEM;
    for (size_t i = 0; i < samples->count; i++) {
        m->found[i] = probe_set_find(&m->probe, info_of(m), samples, i);
    }
    m->found_for = words[0];
    return RC_OK;
}

static enum rc prepare_shard(void *context, struct task *task, const struct batch *batch)
{
    struct replica_mutual *m = context;
    const float weight = (float)m->mutual.options.weight;
    const enum rc rc = find_shard(m);

    for (uint32_t i = 0; rc == RC_OK && i < batch->rows; i++) {
        const uint32_t place = m->found[batch->picked[i]];

        m->has_target[i] = place != PROBE_NONE;
        if (place != PROBE_NONE) put_targets(m, i, place);
        if (task->target != DATA_REALS) continue;
        for (size_t k = i * m->each; k < (i + 1) * m->each; k++) { /* one head */
            const float said = m->has_target[i] ? m->targets[k] : batch->targets[k];
            m->targets[k] = (1.0F - weight) * batch->targets[k] + weight * said;
        }
    }
    return rc;
}

/* A row of either kind: with labels alone, or with what all answered beside them. */
static enum rc lose_shard(void *context, const struct task *task, const struct batch *batch,
                          size_t first, const struct loss_rows *rows, uint64_t *hits)
{
    const struct replica_mutual *m = context;
    const uint32_t each = task->rows * task->heads;
    const uint32_t *labels = task->heads > 1 ? task->labels : batch->labels;
    const size_t outputs = task->outputs;

    if (task->target == DATA_REALS) {
        loss_rows_squared(rows, m->targets + first * outputs);
        return RC_OK;
    }
    for (size_t i = 0; i < rows->rows; i++) {
        const size_t row = first + i;
        const struct loss_rows one = {.logits = rows->logits + i * outputs,
                                      .gradient = rows->gradient + i * outputs,
                                      .rows = 1,
                                      .outputs = task->outputs,
                                      .counted = rows->counted,
                                      .losses = rows->losses + i};
        const struct loss_teaching teaching = {.teacher = m->targets + row * outputs,
                                               .labels = labels + row,
                                               .temperature = 1.0,
                                               .a = m->mutual.options.weight};

        *hits += m->has_target[row / each] ? loss_rows_distillation(&one, &teaching)
                                           : loss_rows_cross_entropy(&one, labels + row);
    }
    return RC_OK;
}

static bool learns_of_shard(const struct replica_mutual *m)
{
    return m->mutual.options.relabels && !m->has_other;
}

/* Step by step, as what is learned from others depends on the step. Where that is nothing these are
 * a replica's own steps, to the bit. */
static enum rc run(struct replica *r, uint32_t steps, const atomic_bool *stop,
                   struct train_report *done, struct task_score *total)
{
    struct replica_mutual *m = (struct replica_mutual *)r;
    enum rc rc = RC_OK;

    while (rc == RC_OK && done->steps < steps && (stop == NULL || !atomic_load(stop))) {
        const uint32_t before = done->steps;
        const double weight = mutual_weight(&m->mutual, r->step);

        if (weight > 0.0 && learns_of_shard(m)) r->objective = &m->of_shard;
        if (weight > 0.0 && !learns_of_shard(m)) r->beside = &m->beside;
        rc = replica_host_steps(r, before + 1, stop, done, total);
        r->objective = NULL;
        r->beside = NULL;
        if (done->steps == before) break; /* stopped on its way */
    }
    return rc;
}

/* ---- what others see ---- */

static const struct schema *schema_of(const struct learner *learner)
{
    return &((const struct replica_mutual *)learner)->schema;
}

static void check_count(const struct replica_mutual *m, enum section section, size_t count)
{
    CHECK((unsigned)section < SECTION_COUNT && count == m->schema.values[section]);
}

static enum rc export_section(struct learner *learner, enum section section, float *out,
                              size_t count)
{
    struct replica_mutual *m = mutual_of(learner);
    struct model_profiler *profiler = m->replica.profiler;
    uint64_t begin = model_profiler_now(profiler);
    enum rc rc = RC_OK;

    check_count(m, section, count);
    if (section == SECTION_PARAMETERS) memcpy(out, m->mutual.targets, count * sizeof *out);
    if (section != SECTION_MIXED) return RC_OK;
    backend_bind_thread(m->replica.backend);
    model_profiler_watch(profiler, false);
    rc = answer(m);
    model_profiler_watch(profiler, true);
    model_profiler_add(profiler, PROFILE_SNAPSHOTS, begin);
    if (rc == RC_OK) memcpy(out, m->mutual.own, count * sizeof *out);
    return rc;
}

static enum rc import_section(struct learner *learner, enum section section,
                              const float *difference, size_t count)
{
    struct replica_mutual *m = mutual_of(learner);

    check_count(m, section, count);
    if (section == SECTION_MIXED) mutual_hear(&m->mutual, difference, m->replica.step);
    return RC_OK;
}

static enum rc assign_section(struct learner *learner, enum section section, const float *values,
                              size_t count)
{
    struct replica_mutual *m = mutual_of(learner);

    check_count(m, section, count);
    if (section == SECTION_PARAMETERS) mutual_take(&m->mutual, values, m->replica.step);
    return RC_OK;
}

/* Who joins takes what all answered, and then the step they are at. */
static void set_step(struct learner *learner, uint64_t step)
{
    replica_ops.set_step(learner, step);
    mutual_of(learner)->mutual.heard_step = step;
}

/* ---- what it goes back to, and what it keeps ---- */

static const enum section model_sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS};

static enum rc keep(struct learner *learner)
{
    struct replica_mutual *m = mutual_of(learner);
    struct model *model = m->replica.model;
    enum rc rc = RC_OK;

    backend_bind_thread(m->replica.backend);
    /* The good copy stays until all is known to be good. */
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(model_sections); i++) {
            const size_t count = model_schema(model)->values[model_sections[i]];
            float **copy = &m->kept[model_sections[i]];
            const float *now = NULL;

            if (count == 0) continue;
            rc = model_host_plane(model, model_sections[i], &now);
            if (rc != RC_OK) return rc;
            if (*copy == NULL) *copy = mem_aligned(count * sizeof(float));
            if (*copy == NULL) return RC_NOMEM;
            if (pass == 0 && !floats_are_finite(now, count)) return RC_NONFINITE;
            if (pass == 1) memcpy(*copy, now, count * sizeof(float));
        }
    }
    return rc;
}

static enum rc restore(struct learner *learner)
{
    struct replica_mutual *m = mutual_of(learner);
    struct replica *r = &m->replica;
    const size_t moments = model_schema(r->model)->values[SECTION_MOMENTS];
    enum rc rc = RC_OK;

    CHECK(m->kept[SECTION_PARAMETERS] != NULL);
    for (size_t i = 0; rc == RC_OK && i < ARRAY_COUNT(model_sections); i++) {
        const size_t count = model_schema(r->model)->values[model_sections[i]];

        if (count > 0)
            rc = replica_assign(learner, model_sections[i], m->kept[model_sections[i]], count);
    }
    if (rc != RC_OK || moments == 0) return rc;
    r->updates = 0; /* the moments are of none: Adam corrects anew */
    rc = r->backend->ops->zero(r->backend, model_plane(r->model, SECTION_MOMENTS),
                               moments * sizeof(float));
    return rc == RC_OK ? team_spread(r->team, SECTION_MOMENTS) : rc;
}

static enum rc save_section(struct replica_mutual *m, enum section section, const char *name,
                            struct tensor_file *file)
{
    const size_t count = model_schema(m->replica.model)->values[section];
    const float *values = NULL;
    enum rc rc;

    if (count == 0) return RC_OK;
    rc = model_host_plane(m->replica.model, section, &values);
    if (rc == RC_OK && !floats_are_finite(values, count)) rc = RC_NONFINITE;
    return rc == RC_OK ? tensor_file_add_f32(file, name, values, count) : rc;
}

static enum rc save(struct learner *learner, struct tensor_file *file)
{
    struct replica_mutual *m = mutual_of(learner);
    enum rc rc = replica_ops.save(learner, file);

    if (rc == RC_OK) rc = mutual_save(&m->mutual, file);
    if (rc == RC_OK) rc = save_section(m, SECTION_PARAMETERS, parameters_name, file);
    return rc == RC_OK ? save_section(m, SECTION_BUFFERS, buffers_name, file) : rc;
}

/* NULL and RC_OK: the model has none. */
static enum rc find_section(const struct replica_mutual *m, enum section section, const char *name,
                            const struct tensor_file *file, const float **values, struct fault *why)
{
    const size_t count = model_schema(m->replica.model)->values[section];
    const struct tensor_view *view = tensor_file_find(file, name);

    *values = NULL;
    if (count == 0 && view == NULL) return RC_OK;
    if (view == NULL || strcmp(view->dtype, "F32") != 0 ||
        view->bytes_count != count * sizeof(float)) {
        return fault_set(why, RC_MISMATCH,
                         "the checkpoint's model is another one; give the --model it was begun "
                         "with, or another --out");
    }
    *values = view->bytes;
    return RC_OK;
}

static enum rc load(struct learner *learner, const struct tensor_file *file, struct fault *why)
{
    struct replica_mutual *m = mutual_of(learner);
    const struct schema *schema = model_schema(m->replica.model);
    const float *parameters, *buffers;
    enum rc rc = find_section(m, SECTION_PARAMETERS, parameters_name, file, &parameters, why);

    if (rc == RC_OK) rc = find_section(m, SECTION_BUFFERS, buffers_name, file, &buffers, why);
    if (rc == RC_OK) rc = mutual_load(&m->mutual, file, why);
    if (rc == RC_OK) { /* it resets the exponential mean, which load() then reads */
        rc = replica_assign(learner, SECTION_PARAMETERS, parameters,
                            schema->values[SECTION_PARAMETERS]);
        if (rc == RC_OK) {
            rc = replica_assign(learner, SECTION_BUFFERS, buffers, schema->values[SECTION_BUFFERS]);
        }
        if (rc != RC_OK) fault_set(why, rc, "cannot load the model: %s", rc_text(rc));
    }
    return rc == RC_OK ? replica_ops.load(learner, file, why) : rc;
}

/* ---- life ---- */

static void destroy(struct learner *learner)
{
    struct replica_mutual *m = mutual_of(learner);

    mutual_deinit(&m->mutual);
    probe_set_deinit(&m->probe);
    schema_deinit(&m->schema);
    mem_free(m->targets);
    mem_free(m->has_target);
    mem_free(m->picks);
    mem_free(m->found);
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        mem_free(m->kept[i]);
    }
    replica_ops.destroy(learner);
}

static void replace_operations(struct replica_mutual *m)
{
    struct learner_ops *ops = &m->ops;

    *ops = replica_ops;
    ops->destroy = destroy;
    ops->schema = schema_of;
    ops->export_section = export_section;
    ops->export_view = NULL;
    ops->import_section = import_section;
    ops->assign_section = assign_section;
    ops->set_step = set_step;
    ops->moments_name = NULL; /* they are each member's own */
    ops->bound_moments = NULL;
    ops->updates = NULL;
    ops->set_updates = NULL;
    ops->save = save;
    ops->load = load;
    ops->snapshot_create = NULL;
    ops->snapshot_take = NULL;
    ops->snapshot_apply = NULL;
    ops->keeps_itself = true;
    ops->keep = keep;
    ops->restore = restore;
    m->replica.learner.ops = ops;
    m->replica.run = run;
    m->replica.objective = NULL;
    m->of_probe = (struct task_objective){prepare_beside, lose_beside, m};
    m->of_shard = (struct task_objective){prepare_shard, lose_shard, m};
}

/* How many samples are asked about. */
static enum rc count_samples(const struct replica_mutual *m, const struct mutual_options *options,
                             uint64_t *samples, struct fault *why)
{
    const uint64_t all = info_of(m)->train_samples;
    uint64_t most = VALUES_MOST / m->each, usual = VALUES_DEFAULT / m->each;

    if (m->each > VALUES_MOST) {
        return fault_set(why, RC_LIMIT,
                         "--averaging: the answer to one sample is %zu values, and answers are to "
                         "be no more than %llu; use a method that averages models",
                         m->each, (unsigned long long)VALUES_MOST);
    }
    if (usual > SAMPLES_DEFAULT) usual = SAMPLES_DEFAULT;
    *samples = options->samples > 0   ? options->samples
               : options->share > 0.0 ? (uint64_t)(options->share * (double)all + 0.5)
               : usual > 0            ? usual
                                      : 1;
    if (*samples == 0) *samples = 1;
    if (options->probe == NULL && *samples > all) *samples = all;
    if (*samples <= most) return RC_OK;
    return fault_set(why, RC_LIMIT,
                     "--averaging: answers of %zu values to %llu samples are more than %llu "
                     "values; ask about %llu samples at most",
                     m->each, (unsigned long long)*samples, (unsigned long long)VALUES_MOST,
                     (unsigned long long)most);
}

/* Answers are comparable that are to the same inputs, and of the same form and classes. */
static enum rc describe(struct replica_mutual *m, struct fault *why)
{
    const struct task *task = &m->replica.task;
    const uint32_t samples = (uint32_t)m->probe.samples.count;
    const uint32_t shape[] = {samples, task->rows, task->outputs},
                   of_reals[] = {samples, (uint32_t)m->each};
    const bool is_real = task->target == DATA_REALS; /* no distributions: not of that shape */
    const enum rc rc = schema_add(&m->schema, "answers", SECTION_PARAMETERS,
                                  is_real ? of_reals : shape, is_real ? 2 : 3);

    m->schema.meaning = m->probe.digest;
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot set up training: %s", rc_text(rc));
}

static enum rc make_room(struct replica_mutual *m, const struct mutual_options *options,
                         struct fault *why)
{
    struct replica *r = &m->replica;
    const size_t gradient = model_schema(r->model)->values[SECTION_GRADIENT] * sizeof(float);
    const bool is_real = r->task.target == DATA_REALS;
    enum rc rc = mutual_init(&m->mutual, options, m->schema.values[SECTION_PARAMETERS],
                             is_real ? 0 : r->task.outputs);

    m->targets = mem_array((size_t)r->batch * m->each * r->task.heads, sizeof *m->targets);
    m->has_target = mem_array(r->batch, sizeof *m->has_target);
    m->picks = mem_array(r->batch, sizeof *m->picks);
    if (r->accumulated == NULL && !learns_of_shard(m)) {
        r->accumulated = r->backend->ops->alloc(r->backend, gradient);
        if (r->accumulated == NULL) rc = RC_NOMEM;
    }
    if (m->targets == NULL || m->has_target == NULL || m->picks == NULL) rc = RC_NOMEM;
    m->beside =
        (struct replica_beside){fill_beside, &m->of_probe, (float)options->weight,
                                options->relabels ? 1.0F - (float)options->weight : 1.0F, m};
    if (rc == RC_OK) return rc;
    return fault_set(why, rc, "cannot set up training: out of memory; ask about fewer samples");
}

static enum rc make_probe(struct replica_mutual *m, const struct replica_options *options,
                          struct fault *why)
{
    const struct mutual_options *mutual = options->mutual;
    const struct dataset_options opening = {
        .seed = options->seed,
        .context = info_of(m)->input == DATA_TOKENS ? info_of(m)->width : 0,
        .tokenizer = options->tokenizer};
    struct probe_set_options probe = {.dataset = m->replica.dataset,
                                      .other = mutual->probe,
                                      .opening = &opening,
                                      .seed = options->seed,
                                      .finds = mutual->relabels && mutual->probe == NULL};
    enum rc rc = count_samples(m, mutual, &probe.samples, why);

    return rc == RC_OK ? probe_set_init(&m->probe, &probe, why) : rc;
}

enum rc replica_mutual_create(struct backend *backend, const struct replica_options *options,
                              struct learner **learner, struct fault *why)
{
    static const struct task_objective some = {NULL, NULL, NULL}; /* losses: on the host */
    struct replica_options mine = *options;
    struct replica *r = NULL;
    struct replica_mutual *m;
    enum rc rc;

    mine.objective = &some;
    rc = replica_make(sizeof(*m), backend, &mine, &r, why);
    if (rc != RC_OK) return rc;
    m = (struct replica_mutual *)r;
    schema_init(&m->schema);
    replace_operations(m);
    m->each = (size_t)r->task.rows * r->task.outputs;
    m->has_other = options->mutual->probe != NULL;
    rc = make_probe(m, options, why);
    if (rc == RC_OK) rc = describe(m, why);
    if (rc == RC_OK) rc = make_room(m, options->mutual, why);
    if (rc == RC_OK)
        *learner = &r->learner;
    else
        destroy(&r->learner);
    return rc;
}

/* The toy learner. One step sees one sample: a draw of the noise. Jobs of the training lane. */
#include "replica/learners/quadratic.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>
#include <string.h>

#define START_STREAM  UINT64_C(0x7175616453746172) /* "quadStar" */
#define CENTRE_STREAM UINT64_C(0x7175616443656e74) /* "quadCent" */
#define NOISE_STREAM  UINT64_C(0x717561644e6f6973) /* "quadNois" */

static const char state_name[] = "quadratic.state", model_name[] = "quadratic.model";

enum { STATE_STEP = 4, STATE_SAMPLES, STATE_WORDS }; /* after the four words of the stream */

struct quadratic {
    struct learner learner; /* first: learners are cast back */
    struct quadratic_options options;
    struct schema schema;
    float *x, *gradient, *centre; /* [values] each */
    struct rng noise;
    uint64_t step, samples;
    double rate_factor;
    struct learner_ops ops; /* with answers: those that are others then */
    struct mutual mutual;
    float *kept; /* x as it was good */
    bool is_mutual, has_kept;
};

static struct quadratic *quadratic_of(struct learner *learner)
{
    return (struct quadratic *)(void *)learner;
}

static const struct quadratic *quadratic_peek(const struct learner *learner)
{
    return (const struct quadratic *)(const void *)learner;
}

static void quadratic_destroy(struct learner *learner)
{
    struct quadratic *q = quadratic_of(learner);

    if (q == NULL) return;
    schema_deinit(&q->schema);
    mem_free(q->x);
    mem_free(q->gradient);
    mem_free(q->centre);
    mem_free(q->kept);
    mutual_deinit(&q->mutual);
    mem_free(q);
}

static const struct schema *quadratic_schema(const struct learner *learner)
{
    return &quadratic_peek(learner)->schema;
}

const float *quadratic_point(const struct learner *learner)
{
    return quadratic_peek(learner)->x;
}

const float *quadratic_centre(const struct learner *learner)
{
    return quadratic_peek(learner)->centre;
}

static struct learner_rates quadratic_rates(const struct learner *learner)
{
    return (struct learner_rates){quadratic_peek(learner)->options.learning_rate, 0.0};
}

static void quadratic_set_rates(struct learner *learner, const struct learner_rates *rates)
{
    CHECK(rates->rate > 0.0);
    quadratic_of(learner)->options.learning_rate = rates->rate;
}

static enum rc quadratic_validate(struct learner *learner, const struct learner_model *model,
                                  struct evaluation *evaluation, struct digest *part)
{
    const struct quadratic *q = quadratic_of(learner);
    const float *x = model == NULL ? q->x : model->parameters;
    double sum = 0.0;

    for (size_t i = 0; i < q->options.values; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    *evaluation = (struct evaluation){
        .samples = 1, .loss = 0.5 * q->options.curvature * sum, .accuracy = (double)NAN};
    *part = hash_of(state_name, sizeof state_name);
    return RC_OK;
}

/* Passes over whole planes, of nothing but arithmetic: with sanitizers they would be a third of
 * what a simulated swarm does. */
#define NOT_SANITIZED __attribute__((no_sanitize("address"), no_sanitize("undefined")))

NOT_SANITIZED static double loss_of(const struct quadratic *q)
{
    double sum = 0.0;

    for (size_t i = 0; i < q->options.values; i++) {
        double distance = (double)q->x[i] - (double)q->centre[i];

        sum += distance * distance;
    }
    return 0.5 * q->options.curvature * sum;
}

/* Nearly normal, mean 0: four 16-bit uniforms of one draw, summed (Irwin-Hall), in units of which
 * NOISE_UNITS are the standard deviation. A simulated swarm spends most of its time here, and a
 * true normal costs ten times as much. */
#define NOISE_UNITS 37837.22722 /* 65536 / sqrt(3) */

static double draw_noise(struct rng *rng)
{
    uint64_t draw = rng_u64(rng);
    uint64_t sum = (draw & 0xffff) + (draw >> 16 & 0xffff) + (draw >> 32 & 0xffff) + (draw >> 48);

    return (double)sum - 2.0 * 65535.0;
}

/* Beside the own gradient, that of what all said. */
static void add_teaching(const struct quadratic *q, float *gradient)
{
    const double weight = q->is_mutual ? mutual_weight(&q->mutual, q->step) : 0.0;
    const double own = q->mutual.options.relabels ? 1.0 - weight : 1.0;

    if (!(weight > 0.0)) return;
    for (size_t i = 0; i < q->options.values; i++) {
        const double apart = (double)q->x[i] - (double)q->mutual.targets[i];

        gradient[i] = (float)(own * (double)gradient[i] + weight * apart);
    }
}

/* g = h (x - c) + noise; returns the loss before the step. */
NOT_SANITIZED static double draw_gradient(struct quadratic *q, float *out)
{
    const double curvature = q->options.curvature, scale = q->options.noise / NOISE_UNITS;
    const float *x = q->x, *centre = q->centre;
    const size_t values = q->options.values;

    for (size_t i = 0; i < values; i++) {
        out[i] = (float)(curvature * ((double)x[i] - (double)centre[i]));
    }
    for (size_t i = 0; i < values && scale > 0.0; i++) {
        out[i] += (float)(scale * draw_noise(&q->noise));
    }
    add_teaching(q, out);
    q->samples++;
    return loss_of(q); /* a pass of its own, after all calls: its sum stays in a register */
}

/* RC_NONFINITE when x is no longer finite. */
NOT_SANITIZED static enum rc descend(struct quadratic *q, const float *gradient)
{
    const double rate = q->rate_factor * q->options.learning_rate;
    const size_t values = q->options.values;
    float *x = q->x;

    for (size_t i = 0; i < values; i++) {
        x[i] = (float)((double)x[i] - rate * (double)gradient[i]);
    }
    q->step++;
    return floats_are_finite(x, values) ? RC_OK : RC_NONFINITE;
}

static struct train_report report_of(const struct quadratic *q, uint32_t steps, double loss_sum)
{
    return (struct train_report){.steps = steps,
                                 .step = q->step,
                                 .samples = q->samples,
                                 .loss_sum = loss_sum,
                                 .correct_share = (double)NAN};
}

static enum rc quadratic_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                               struct train_report *report)
{
    struct quadratic *q = quadratic_of(learner);
    double loss_sum = 0.0;
    uint32_t taken = 0;

    while (taken < steps && !(stop != NULL && atomic_load(stop))) {
        double loss = draw_gradient(q, q->gradient);

        if (!isfinite(loss) || descend(q, q->gradient) != RC_OK) return RC_NONFINITE;
        loss_sum += loss;
        taken++;
    }
    *report = report_of(q, taken, loss_sum);
    return RC_OK;
}

static enum rc quadratic_gradient(struct learner *learner, float *out, struct train_report *report)
{
    struct quadratic *q = quadratic_of(learner);
    double loss = draw_gradient(q, q->gradient);

    if (!isfinite(loss)) return RC_NONFINITE;
    memcpy(out, q->gradient, q->options.values * sizeof *out);
    *report = report_of(q, 1, loss);
    return RC_OK;
}

static enum rc quadratic_step(struct learner *learner, const float *gradient)
{
    return descend(quadratic_of(learner), gradient);
}

/* NULL for a section without values. */
static float *section_of(struct quadratic *q, enum section section, size_t count)
{
    CHECK((unsigned)section < SECTION_COUNT && count == q->schema.values[section]);
    if (section == SECTION_PARAMETERS || section == SECTION_MIXED) return q->x;
    return section == SECTION_GRADIENT ? q->gradient : NULL;
}

static enum rc quadratic_export(struct learner *learner, enum section section, float *out,
                                size_t count)
{
    const float *values = section_of(quadratic_of(learner), section, count);

    if (values != NULL) memcpy(out, values, count * sizeof *out);
    return RC_OK;
}

static enum rc quadratic_import(struct learner *learner, enum section section,
                                const float *difference, size_t count)
{
    float *values = section_of(quadratic_of(learner), section, count);

    for (size_t i = 0; i < count; i++) {
        values[i] += difference[i];
    }
    return RC_OK;
}

static enum rc quadratic_assign(struct learner *learner, enum section section, const float *from,
                                size_t count)
{
    float *values = section_of(quadratic_of(learner), section, count);

    if (values != NULL) memcpy(values, from, count * sizeof *values);
    return RC_OK;
}

static void quadratic_set_step(struct learner *learner, uint64_t step)
{
    quadratic_of(learner)->step = step;
}

static enum rc quadratic_reshard(struct learner *learner, struct peer_id self,
                                 const struct peer_id *members, size_t members_count,
                                 struct fault *why)
{
    (void)learner; /* every peer has a function of its own: there is nothing to share out */
    (void)self;
    (void)members;
    (void)members_count;
    (void)why;
    return RC_OK;
}

static uint64_t quadratic_shard_samples(const struct learner *learner)
{
    (void)learner;
    return QUADRATIC_SHARD_SAMPLES;
}

static enum rc quadratic_evaluate(struct learner *learner, uint64_t samples_max,
                                  struct evaluation *evaluation)
{
    double loss = loss_of(quadratic_of(learner));

    (void)samples_max;
    if (!isfinite(loss)) return RC_NONFINITE;
    *evaluation = (struct evaluation){.samples = 1, .loss = loss, .accuracy = (double)NAN};
    return RC_OK;
}

static enum rc quadratic_save(struct learner *learner, struct tensor_file *file)
{
    const struct quadratic *q = quadratic_of(learner);
    uint64_t words[STATE_WORDS];

    memcpy(words, q->noise.state, sizeof q->noise.state);
    words[STATE_STEP] = q->step;
    words[STATE_SAMPLES] = q->samples;
    return tensor_file_add_u64_copy(file, state_name, words, STATE_WORDS);
}

static enum rc quadratic_load(struct learner *learner, const struct tensor_file *file,
                              struct fault *why)
{
    struct quadratic *q = quadratic_of(learner);
    const struct tensor_view *view = tensor_file_find(file, state_name);
    uint64_t words[STATE_WORDS];

    if (view == NULL || strcmp(view->dtype, "U64") != 0 || view->bytes_count != sizeof words) {
        return fault_set(why, RC_FORMAT, "the checkpoint holds no state of a quadratic learner");
    }
    memcpy(words, view->bytes, sizeof words);
    if ((words[0] | words[1] | words[2] | words[3]) == 0) { /* a stream of zeros for ever */
        return fault_set(why, RC_FORMAT, "the checkpoint's random stream is empty");
    }
    memcpy(q->noise.state, words, sizeof q->noise.state);
    q->step = words[STATE_STEP];
    q->samples = words[STATE_SAMPLES];
    return RC_OK;
}

static double quadratic_step_rate(const struct learner *learner)
{
    const struct quadratic *q = quadratic_peek(learner);

    return q->rate_factor * q->options.learning_rate;
}

static void quadratic_set_rate_factor(struct learner *learner, double factor)
{
    CHECK(factor > 0.0);
    quadratic_of(learner)->rate_factor = factor;
}

/* ---- with answers ---- */

static enum rc mutual_export(struct learner *learner, enum section section, float *out,
                             size_t count)
{
    struct quadratic *q = quadratic_of(learner);
    const float *from = section == SECTION_MIXED ? q->x : q->mutual.targets;

    if (section != SECTION_MIXED && section != SECTION_PARAMETERS) return RC_OK;
    CHECK(count == q->options.values);
    memcpy(out, from, count * sizeof *out);
    if (section != SECTION_MIXED) return RC_OK;
    memcpy(q->mutual.own, q->x, count * sizeof *out);
    q->mutual.has_own = true;
    return RC_OK;
}

static enum rc mutual_import(struct learner *learner, enum section section, const float *difference,
                             size_t count)
{
    struct quadratic *q = quadratic_of(learner);

    CHECK(section == SECTION_MIXED && count == q->options.values);
    mutual_hear(&q->mutual, difference, q->step);
    return RC_OK;
}

static enum rc mutual_assign(struct learner *learner, enum section section, const float *from,
                             size_t count)
{
    struct quadratic *q = quadratic_of(learner);

    if (section != SECTION_PARAMETERS) return RC_OK;
    CHECK(count == q->options.values);
    mutual_take(&q->mutual, from, q->step);
    return RC_OK;
}

static enum rc mutual_keep(struct learner *learner)
{
    struct quadratic *q = quadratic_of(learner);

    if (!floats_are_finite(q->x, q->options.values)) return RC_NONFINITE;
    memcpy(q->kept, q->x, q->options.values * sizeof *q->x);
    q->has_kept = true;
    return RC_OK;
}

static enum rc mutual_restore(struct learner *learner)
{
    struct quadratic *q = quadratic_of(learner);

    CHECK(q->has_kept);
    memcpy(q->x, q->kept, q->options.values * sizeof *q->x);
    return RC_OK;
}

static enum rc mutual_save_all(struct learner *learner, struct tensor_file *file)
{
    struct quadratic *q = quadratic_of(learner);
    enum rc rc = quadratic_save(learner, file);

    if (rc == RC_OK) rc = mutual_save(&q->mutual, file);
    return rc == RC_OK ? tensor_file_add_f32(file, model_name, q->x, q->options.values) : rc;
}

static enum rc mutual_load_all(struct learner *learner, const struct tensor_file *file,
                               struct fault *why)
{
    struct quadratic *q = quadratic_of(learner);
    const struct tensor_view *view = tensor_file_find(file, model_name);
    enum rc rc = mutual_load(&q->mutual, file, why);

    if (rc != RC_OK) return rc;
    if (view == NULL || view->bytes_count != q->options.values * sizeof *q->x) {
        return fault_set(why, RC_FORMAT, "the checkpoint holds no model of a quadratic learner");
    }
    rc = quadratic_load(learner, file, why);
    if (rc == RC_OK) memcpy(q->x, view->bytes, view->bytes_count);
    return rc;
}

static const struct learner_ops quadratic_ops = {
    .name = "quadratic",
    .destroy = quadratic_destroy,
    .schema = quadratic_schema,
    .train = quadratic_train,
    .gradient = quadratic_gradient,
    .step = quadratic_step,
    .export_section = quadratic_export,
    .import_section = quadratic_import,
    .assign_section = quadratic_assign,
    .set_step = quadratic_set_step,
    .set_rate_factor = quadratic_set_rate_factor,
    .step_rate = quadratic_step_rate,
    .rates = quadratic_rates,
    .set_rates = quadratic_set_rates,
    .validate = quadratic_validate,
    .reshard = quadratic_reshard,
    .shard_samples = quadratic_shard_samples,
    .evaluate = quadratic_evaluate,
    .save = quadratic_save,
    .load = quadratic_load,
};

static enum rc make_mutual(struct quadratic *q)
{
    if (q->options.mutual == NULL) return RC_OK;
    q->ops = quadratic_ops;
    q->ops.export_section = mutual_export;
    q->ops.import_section = mutual_import;
    q->ops.assign_section = mutual_assign;
    q->ops.keeps_itself = true;
    q->ops.keep = mutual_keep;
    q->ops.restore = mutual_restore;
    q->ops.save = mutual_save_all;
    q->ops.load = mutual_load_all;
    q->learner.ops = &q->ops;
    q->is_mutual = true;
    q->kept = mem_array(q->options.values, sizeof *q->kept);
    if (q->kept == NULL) return RC_NOMEM;

    const enum rc rc = mutual_init(&q->mutual, q->options.mutual, q->options.values, 0);
    q->options.mutual = NULL;
    return rc;
}

static void draw_normals(float *out, size_t count, double spread, uint64_t seed, uint64_t purpose)
{
    struct rng rng;

    rng_init(&rng, seed, purpose);
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)(spread * rng_normal(&rng));
    }
}

enum rc quadratic_create(const struct quadratic_options *options, struct learner **learner)
{
    struct quadratic *q = mem_alloc(sizeof *q);
    uint32_t shape;
    enum rc rc = RC_NOMEM;

    CHECK(options != NULL && options->values > 0 && options->values <= UINT32_MAX);
    CHECK(options->curvature > 0.0 && options->learning_rate > 0.0 && options->noise >= 0.0);
    if (q == NULL) return rc;
    q->learner.ops = &quadratic_ops;
    q->options = *options;
    q->rate_factor = 1.0;
    schema_init(&q->schema);
    shape = (uint32_t)options->values;
    q->x = mem_array(options->values, sizeof *q->x);
    q->gradient = mem_array(options->values, sizeof *q->gradient);
    q->centre = mem_array(options->values, sizeof *q->centre);
    if (q->x != NULL && q->gradient != NULL && q->centre != NULL) {
        rc = schema_add(&q->schema, "x", SECTION_PARAMETERS, &shape, 1);
    }
    if (rc == RC_OK) rc = make_mutual(q);
    if (rc != RC_OK) {
        quadratic_destroy(&q->learner);
        return rc;
    }
    draw_normals(q->x, options->values, 1.0, options->seed, START_STREAM);
    draw_normals(q->centre, options->values, options->centre_spread, options->stream_seed,
                 CENTRE_STREAM);
    rng_init(&q->noise, options->stream_seed, NOISE_STREAM);
    *learner = &q->learner;
    return RC_OK;
}

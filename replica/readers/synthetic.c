/*
 * `--data synthetic:FAMILY,key=value`: see synthetic.h.
 *
 *   least-squares  x: `features` normal numbers, the j-th scaled by condition^(-j / (2 (F - 1))),
 * so that the quadratic's condition number is `condition`; y = W x + noise, with `outputs` rows of
 * W spirals        2 numbers; `arms` spirals of one and a half turns around the origin are the
 *                  classes (the two-spirals problem: K. Lang, M. Witbrock 1988), blurred by `noise`
 *   parity         `length` random bits as tokens; the class is their sum modulo 2
 */
#include "replica/readers/synthetic.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/data/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WEIGHTS_STREAM UINT64_C(0x73796e7765696768) /* "synweigh" */
#define TRAIN_STREAM   UINT64_C(0x73796e0000000000) /* "syn", and the sample */
#define TEST_STREAM    UINT64_C(0x73796f0000000000)
#define TURNS          1.5

enum { TRAIN_DEFAULT = 4096, TEST_DEFAULT = 1024, LENGTH_DEFAULT = 16 };

enum family { LEAST_SQUARES, SPIRALS, PARITY, FAMILIES };

struct synthetic {
    struct data_source base; /* first: a source is cast back to this */
    enum family family;
    uint64_t seed;
    uint32_t features, outputs, arms, length;
    uint32_t train, test;
    double noise, condition;
    float *weights; /* least squares */
};

static const char *const family_names[FAMILIES] = {"least-squares", "spirals", "parity"};

void synthetic_optimum(uint64_t seed, uint32_t features, uint32_t outputs, float *weights)
{
    struct rng rng;

    rng_init(&rng, seed, WEIGHTS_STREAM);
    for (size_t i = 0; i < (size_t)features * outputs; i++) {
        weights[i] = (float)rng_normal(&rng);
    }
}

static void synthetic_destroy(struct data_source *source)
{
    mem_free(((struct synthetic *)source)->weights);
    mem_free(source);
}

static void make_least_squares(const struct synthetic *s, struct rng *rng, float *x, float *y)
{
    double step = s->features > 1 ? pow(s->condition, -0.5 / (s->features - 1)) : 1.0, size = 1.0;

    for (uint32_t j = 0; j < s->features; j++, size *= step) {
        x[j] = (float)(size * rng_normal(rng));
    }
    for (uint32_t k = 0; k < s->outputs; k++) {
        const float *weights = s->weights + (size_t)k * s->features;
        double sum = s->noise > 0.0 ? s->noise * rng_normal(rng) : 0.0;
        for (uint32_t j = 0; j < s->features; j++) {
            sum += (double)weights[j] * (double)x[j];
        }
        y[k] = (float)sum;
    }
}

static uint32_t make_spirals(const struct synthetic *s, struct rng *rng, float *x)
{
    uint32_t arm = (uint32_t)rng_below(rng, s->arms);
    double turn = 2.0 * acos(-1.0), radius = rng_unit(rng);
    double angle = turn * (TURNS * radius + (double)arm / s->arms);

    x[0] = (float)(radius * cos(angle) + s->noise * rng_normal(rng));
    x[1] = (float)(radius * sin(angle) + s->noise * rng_normal(rng));
    return arm;
}

static uint32_t make_parity(const struct synthetic *s, struct rng *rng, uint8_t *bits)
{
    uint64_t word = 0;
    uint32_t sum = 0;

    for (uint32_t i = 0; i < s->length; i++) {
        if (i % 64 == 0) word = rng_u64(rng);
        bits[i] = word >> (i % 64) & 1;
        sum ^= bits[i];
    }
    return sum;
}

/* Sample `index` of a part into its slot; `room` holds one for the times when only its label is
 * wanted. */
static void make_sample(const struct synthetic *s, const struct data_part *part, size_t index,
                        struct samples *out, void *room)
{
    uint32_t slot = part->slots[index];
    uint8_t *bytes = out->bytes != NULL ? out->bytes + slot * out->stored : room;
    float *floats = out->floats != NULL ? out->floats + slot * out->stored : room;
    struct rng rng;

    rng_init(&rng, s->seed, (part->is_test ? TEST_STREAM : TRAIN_STREAM) + index);
    switch (s->family) {
    case LEAST_SQUARES:
        make_least_squares(s, &rng, floats, out->targets + (size_t)slot * s->outputs);
        break;
    case SPIRALS:
        samples_set_label(out, slot, make_spirals(s, &rng, floats));
        break;
    default:
        samples_set_label(out, slot, make_parity(s, &rng, bytes));
    }
}

static enum rc synthetic_load(struct data_source *source, const struct data_part *part,
                              struct samples *out, struct fault *why)
{
    const struct synthetic *s = (const struct synthetic *)source;
    void *room = mem_alloc(s->length + 2 * sizeof(float));

    if (room == NULL) return data_no_memory(why, "make the data");
    for (size_t i = 0; i < part->count; i++) {
        if (part->slots[i] != DATA_NO_SLOT) make_sample(s, part, i, out, room);
    }
    mem_free(room);
    return RC_OK;
}

static const struct data_source_ops synthetic_ops = {.destroy = synthetic_destroy,
                                                     .load = synthetic_load};

static enum rc read_family(struct synthetic *s, const struct data_spec *spec,
                           const struct dataset_options *options, struct fault *why)
{
    static const char *const keys[FAMILIES][6] = {
        [LEAST_SQUARES] = {"samples", "test", "noise", "features", "outputs", "condition"},
        [SPIRALS] = {"samples", "test", "noise", "arms"},
        [PARITY] = {"samples", "test", "length"},
    };
    static const size_t keys_count[FAMILIES] = {6, 4, 3};
    const enum family f = s->family;
    enum rc rc = data_spec_check(spec, 1, "the family", keys[f], keys_count[f], NULL, why);

    s->noise = f == SPIRALS ? 0.02 : 0.0;
    s->condition = 1.0;
    s->features = 16;
    s->outputs = 1;
    s->arms = 2;
    if (rc == RC_OK) rc = data_spec_count(spec, "samples", 1, DATA_SAMPLES_MAX, &s->train, why);
    if (rc == RC_OK) rc = data_spec_count(spec, "test", 1, DATA_SAMPLES_MAX, &s->test, why);
    if (rc == RC_OK) rc = data_spec_real(spec, "noise", 0.0, 1e6, &s->noise, why);
    if (rc == RC_OK) rc = data_spec_real(spec, "condition", 1.0, 1e12, &s->condition, why);
    if (rc == RC_OK) rc = data_spec_count(spec, "features", 1, 4096, &s->features, why);
    if (rc == RC_OK) rc = data_spec_count(spec, "outputs", 1, 256, &s->outputs, why);
    if (rc == RC_OK) rc = data_spec_count(spec, "arms", 2, 256, &s->arms, why);
    if (rc != RC_OK || f != PARITY) return rc;
    return data_context(spec, data_spec_find(spec, "length"), options->context, LENGTH_DEFAULT,
                        &s->length, why);
}

static enum rc find_family(const struct data_spec *spec, enum family *family, struct fault *why)
{
    for (int f = 0; spec->files_count > 0 && f < FAMILIES; f++) {
        if (strcmp(spec->files[0], family_names[f]) != 0) continue;
        *family = (enum family)f;
        return RC_OK;
    }
    return data_spec_fault(spec, strlen(spec->kind) + 2, why,
                           "unknown family; there are least-squares, spirals and parity");
}

static void describe(const struct synthetic *s, struct dataset_info *info)
{
    snprintf(info->name, sizeof info->name, "%s", family_names[s->family]);
    info->train_samples = s->train;
    info->test_samples = s->test;
    info->height = info->width = info->channels = 1;
    if (s->family == PARITY) {
        info->input = DATA_TOKENS;
        info->has_bytes = true;
        info->width = s->length;
        info->symbols = info->classes = 2;
    } else {
        info->input = DATA_VECTORS;
        info->channels = s->family == SPIRALS ? 2 : s->features;
        info->classes = s->family == SPIRALS ? s->arms : 0;
    }
    if (s->family == LEAST_SQUARES) {
        info->target = DATA_REALS;
        info->outputs = s->outputs;
    }
}

enum rc synthetic_open_source(const struct data_spec *spec, const struct dataset_options *options,
                              struct dataset_info *info, struct data_source **source,
                              struct fault *why)
{
    struct synthetic *s = mem_alloc(sizeof *s);
    enum rc rc;

    if (s == NULL) return data_no_memory(why, "open the data");
    s->base.ops = &synthetic_ops;
    s->seed = options->seed;
    s->train = TRAIN_DEFAULT;
    s->test = TEST_DEFAULT;
    rc = find_family(spec, &s->family, why);
    if (rc == RC_OK) rc = read_family(s, spec, options, why);
    if (rc == RC_OK && s->family == LEAST_SQUARES) {
        s->weights = mem_array((size_t)s->features * s->outputs, sizeof(float));
        if (s->weights == NULL)
            rc = data_no_memory(why, "open the data");
        else
            synthetic_optimum(s->seed, s->features, s->outputs, s->weights);
    }
    if (rc == RC_OK) {
        describe(s, info);
        rc = data_source_normal(&s->base, info, why);
    }
    if (rc != RC_OK) {
        data_source_destroy(&s->base);
        return rc;
    }
    *source = &s->base;
    return RC_OK;
}

/*
 * soup: see soup.h. Values are read straight from the models' planes, in host memory.
 * Thread: whichever evaluates, one at a time.
 */
#include "distill/soup.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "distill/align.h"
#include "replica/plane/mixture.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const enum section poured[] = {SECTION_PARAMETERS, SECTION_BUFFERS}; /* in this order */

struct soup {
    struct digest schema; /* of the first member */
    char *spec;           /* of the first member, owned */
    size_t members;
    size_t counts[ARRAY_COUNT(poured)];
    double *means[ARRAY_COUNT(poured)]; /* running means, [counts] each */
    double *squares;                    /* of squared running means of the statistics */
    double spread;                      /* sum over members and parameters of squared distances */
};

struct soup *soup_create(void)
{
    return mem_alloc(sizeof(struct soup));
}

void soup_destroy(struct soup *soup)
{
    if (soup == NULL) return;
    for (size_t i = 0; i < ARRAY_COUNT(poured); i++) {
        mem_free(soup->means[i]);
    }
    mem_free(soup->squares);
    mem_free(soup->spec);
    mem_free(soup);
}

static double *copy_of(const double *values, size_t count)
{
    double *copy = mem_array(count, sizeof *copy);

    if (copy != NULL) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

/* Take the shape of the first member. On RC_NOMEM the soup is as empty as before. */
static enum rc soup_begin(struct soup *soup, struct model *model)
{
    const struct schema *schema = model_schema(model);
    char *spec = mem_string(model_spec(model));
    double *means[ARRAY_COUNT(poured)] = {NULL};
    double *squares = mem_array(schema->values[SECTION_BUFFERS], sizeof(double));
    bool is_short = spec == NULL || squares == NULL;

    for (size_t i = 0; i < ARRAY_COUNT(poured); i++) {
        means[i] = mem_array(schema->values[poured[i]], sizeof(double));
        is_short = is_short || means[i] == NULL;
    }
    if (is_short) {
        for (size_t i = 0; i < ARRAY_COUNT(poured); i++) {
            mem_free(means[i]);
        }
        mem_free(squares);
        mem_free(spec);
        return RC_NOMEM;
    }
    for (size_t i = 0; i < ARRAY_COUNT(poured); i++) {
        soup->means[i] = means[i];
        soup->counts[i] = schema->values[poured[i]];
    }
    soup->squares = squares;
    soup->spec = spec;
    soup->schema = schema_digest(schema);
    return RC_OK;
}

struct soup *soup_copy(const struct soup *soup)
{
    struct soup *copy = soup_create();
    bool is_short = copy == NULL;

    if (is_short || soup->spec == NULL) return copy;
    *copy = *soup;
    copy->spec = mem_string(soup->spec);
    copy->squares = copy_of(soup->squares, soup->counts[ARRAY_COUNT(poured) - 1]);
    is_short = copy->spec == NULL || copy->squares == NULL;
    for (size_t i = 0; i < ARRAY_COUNT(poured); i++) {
        copy->means[i] = copy_of(soup->means[i], soup->counts[i]);
        is_short = is_short || copy->means[i] == NULL;
    }
    if (!is_short) return copy;
    soup_destroy(copy);
    return NULL;
}

static enum rc check_spec(const struct soup *soup, struct model *model, struct fault *why)
{
    if (strcmp(soup->spec, model_spec(model)) == 0 &&
        digest_is_equal(soup->schema, schema_digest(model_schema(model)))) {
        return RC_OK;
    }
    return fault_set(why, RC_MISMATCH, "%s is another model than %s", model_spec(model),
                     soup->spec);
}

enum rc soup_align(const struct soup *soup, struct model *model, struct fault *why)
{
    if (soup->members == 0) return RC_OK;
    if (check_spec(soup, model, why) != RC_OK) return RC_MISMATCH;
    float *mean = mem_array(soup->counts[0], sizeof *mean);
    if (mean == NULL) return fault_set(why, RC_NOMEM, "cannot align: out of memory");
    for (size_t i = 0; i < soup->counts[0]; i++) {
        mean[i] = (float)soup->means[0][i];
    }
    const enum rc rc = align_model(model, mean, why);
    mem_free(mean);
    return rc;
}

enum rc soup_add(struct soup *soup, struct model *model, struct fault *why)
{
    CHECK(soup != NULL && model != NULL);
    const struct schema *schema = model_schema(model);
    const float *planes[SECTION_COUNT] = {NULL};

    for (size_t i = 0; i < ARRAY_COUNT(poured); i++) {
        const enum rc rc = model_host_plane(model, poured[i], &planes[poured[i]]);
        if (rc != RC_OK) return fault_set(why, rc, "cannot read the parameters: %s", rc_text(rc));
        if (!floats_are_finite(planes[poured[i]], schema->values[poured[i]])) {
            return fault_set(why, RC_NONFINITE, "a parameter is not a finite number");
        }
    }
    if (soup->spec == NULL && soup_begin(soup, model) != RC_OK) {
        return fault_set(why, RC_NOMEM, "cannot average: out of memory");
    }
    if (check_spec(soup, model, why) != RC_OK) return RC_MISMATCH;
    const double share = 1 / (double)(soup->members + 1);
    for (size_t s = 0; s < ARRAY_COUNT(poured); s++) {
        const float *values = planes[poured[s]];
        double *means = soup->means[s], spread = 0;
        for (size_t i = 0; i < soup->counts[s]; i++) {
            const double from_old = values[i] - means[i];
            means[i] += from_old * share;
            spread += from_old * (values[i] - means[i]);
        }
        if (poured[s] == SECTION_PARAMETERS) soup->spread += spread;
    }
    for (size_t i = 0; i < schema->values[SECTION_BUFFERS]; i++) {
        const double value = planes[SECTION_BUFFERS][i];
        soup->squares[i] += (value * value - soup->squares[i]) * share;
    }
    soup->members++;
    return RC_OK;
}

size_t soup_members(const struct soup *soup)
{
    return soup->members;
}

bool soup_has_statistics(const struct soup *soup)
{
    return soup->counts[ARRAY_COUNT(poured) - 1] > 0;
}

/* The variance of all members' samples together, where the mean of their variances stands now. */
static void pour_variances(const struct soup *soup, const struct schema *schema, float *buffers)
{
    const double *means = soup->means[ARRAY_COUNT(poured) - 1];

    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        const struct tensor *mean = &schema->tensors[t];
        if (!schema_is_mean(schema, t)) continue;
        for (size_t i = 0; i < mean->count; i++) {
            const size_t at = mean->offset + i, variance = mean[1].offset + i;
            buffers[variance] = (float)mixture_pool(means[variance], means[at], soup->squares[at]);
        }
    }
}

enum rc soup_pour(const struct soup *soup, struct model *model)
{
    const struct schema *schema = model_schema(model);
    enum rc rc = RC_OK;

    CHECK(soup->members > 0);
    CHECK(digest_is_equal(soup->schema, schema_digest(schema)));
    for (size_t s = 0; rc == RC_OK && s < ARRAY_COUNT(poured); s++) {
        float *values = mem_aligned(soup->counts[s] * sizeof(float));
        if (values == NULL) return RC_NOMEM;
        for (size_t i = 0; i < soup->counts[s]; i++) {
            values[i] = (float)soup->means[s][i];
        }
        if (poured[s] == SECTION_BUFFERS) pour_variances(soup, schema, values);
        rc = model_set_plane(model, poured[s], values);
        mem_free(values);
    }
    return rc;
}

double soup_distance(const struct soup *soup)
{
    return soup->members > 0 ? sqrt(soup->spread / (double)soup->members) : 0;
}

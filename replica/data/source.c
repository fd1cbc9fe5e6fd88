/* What the forms of data share: see source.h. Pure; any thread. */
#include "replica/data/source.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/tokenizer/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONTEXT_MAX = 1 << 16 };

enum rc data_no_memory(struct fault *why, const char *doing)
{
    return fault_set(why, RC_NOMEM, "cannot %s: out of memory", doing);
}

enum rc data_source_normal(struct data_source *source, struct dataset_info *info, struct fault *why)
{
    CHECK(info->channels > 0 && source->normal == NULL);
    source->normal = mem_array(info->channels, 2 * sizeof(float));
    if (source->normal == NULL) return data_no_memory(why, "open the data");
    for (uint32_t c = 0; c < info->channels; c++) {
        source->normal[info->channels + c] = 1.0F;
    }
    info->mean = source->normal;
    info->scale = source->normal + info->channels;
    return RC_OK;
}

void data_source_destroy(struct data_source *source)
{
    if (source == NULL) return;
    mem_free(source->normal);
    mem_free(source->measured);
    source->ops->destroy(source);
}

enum rc data_tokenizer(const struct dataset_options *options, struct tokenizer **tokenizer,
                       struct dataset_info *info, struct fault *why)
{
    const char *path = options->tokenizer;
    struct tokenizer *opened = NULL;
    enum rc rc;

    if (path == NULL || path[0] == '\0') return RC_OK;
    rc = tokenizer_open(path, &opened, why);
    if (rc != RC_OK) return rc;
    info->has_tokenizer = true;
    info->tokenizer_digest = tokenizer_digest(opened);
    info->symbols = tokenizer_symbols(opened);
    if (strlen(path) < sizeof info->tokenizer) {
        snprintf(info->tokenizer, sizeof info->tokenizer, "%s", path);
    }
    if (tokenizer != NULL)
        *tokenizer = opened;
    else
        tokenizer_close(opened);
    return RC_OK;
}

enum rc data_context(const struct data_spec *spec, const struct data_item *item, uint32_t wanted,
                     uint32_t fallback, uint32_t *context, struct fault *why)
{
    uint32_t given = 0;
    enum rc rc = RC_OK;

    if (item != NULL) rc = data_spec_count(spec, item->key, 1, CONTEXT_MAX, &given, why);
    if (rc != RC_OK) return rc;
    if (given != 0 && wanted != 0 && given != wanted) {
        return fault_set(why, RC_USAGE,
                         "--data %.100s: column %zu: %s=%u, but the model reads %u tokens at a "
                         "time; leave it out or change the model",
                         spec->text, item->column, item->key, given, wanted);
    }
    *context = given != 0 ? given : wanted != 0 ? wanted : fallback;
    return RC_OK;
}

void data_describe_tokens(struct dataset_info *info, const char *name, uint32_t context)
{
    snprintf(info->name, sizeof info->name, "%s", name);
    info->input = DATA_TOKENS;
    info->target = DATA_NEXT_TOKEN;
    info->channels = info->height = 1;
    info->width = context;
}

void data_moments_add(struct data_moments *moments, double value)
{
    if (moments->count == 0) moments->shift = value;
    moments->sum += value - moments->shift;
    moments->squares += (value - moments->shift) * (value - moments->shift);
    moments->count++;
}

void data_moments_measure(const struct data_moments *moments, double *mean, double *deviation)
{
    double count = moments->count > 0 ? (double)moments->count : 1.0;
    double centre = moments->sum / count;
    double variance = moments->squares / count - centre * centre;

    *mean = moments->shift + centre;
    *deviation = variance > 0.0 ? sqrt(variance) : 0.0;
}

float data_scale_of(double deviation)
{
    return deviation > 0.0 ? (float)fmin(1.0 / deviation, DATA_NUMBER_MAX) : 1.0F;
}

enum rc data_source_measured(struct data_source *source, struct dataset_info *info,
                             const struct data_moments *moments, struct fault *why)
{
    const size_t channels = info->channels;

    CHECK(source->normal != NULL && source->measured == NULL);
    source->measured = mem_array(channels, 2 * sizeof(float));
    if (source->measured == NULL) return data_no_memory(why, "open the data");
    for (size_t c = 0; c < channels; c++) {
        double mean, deviation;

        data_moments_measure(&moments[c], &mean, &deviation);
        source->normal[c] = source->measured[c] = (float)mean;
        source->normal[channels + c] = data_scale_of(deviation);
        source->measured[channels + c] = (float)deviation;
    }
    info->measured = source->measured;
    return RC_OK;
}

/*
 * What stages need when they are made: tensors, slices, initial values, and words for what does not
 * fit. Thread: the training lane's.
 */
#include "replica/model/plan.h"

#include "base/check.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define LARGE_BYTES (UINT64_C(1) << 28) /* from here on it is worth asking what there is */

enum rc stage_fault(const struct stage *stage, struct fault *why, const char *format, ...)
{
    char word[LAYER_BYTES], text[360];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    layer_format(&stage->layer, word, sizeof(word));
    if (stage->layer.column > 0) {
        return fault_set(why, RC_SHAPE, "--model, column %u: '%s' %s", stage->layer.column, word,
                         text);
    }
    return fault_set(why, RC_SHAPE, "--model: '%s' %s", word, text);
}

char *stage_shape_text(struct shape shape, char text[STAGE_SHAPE_BYTES])
{
    struct image_shape image = shape.image;

    if (shape.steps > 0) {
        snprintf(text, STAGE_SHAPE_BYTES, "%u steps of %u values", shape.steps, image.channels);
    } else if (shape.is_vector) {
        snprintf(text, STAGE_SHAPE_BYTES, "%u value%s", image.channels,
                 image.channels == 1 ? "" : "s");
    } else {
        snprintf(text, STAGE_SHAPE_BYTES, "an image of %ux%ux%u", image.channels, image.height,
                 image.width);
    }
    return text;
}

enum rc stage_needs_image(const struct stage *stage, struct fault *why)
{
    char text[STAGE_SHAPE_BYTES];

    if (stage->in.steps == 0 && !stage->in.is_vector) return RC_OK;
    if (stage->inputs[0] == 0) {
        return stage_fault(stage, why, "needs an image, but a sample of the data is %s; use %s",
                           stage_shape_text(stage->in, text),
                           stage->in.steps > 0 ? "embed:N first" : "linear:N");
    }
    return stage_fault(stage, why, "needs an image, but gets %s; put it before %s",
                       stage_shape_text(stage->in, text),
                       stage->in.steps > 0 ? "'rows'; text takes attention or lstm"
                                           : "the first linear layer or globalpool");
}

enum rc stage_needs_sequence(const struct stage *stage, struct fault *why)
{
    char text[STAGE_SHAPE_BYTES];

    if (stage->in.steps > 0) return RC_OK;
    return stage_fault(stage, why,
                       "needs a sequence, but gets %s; begin with embed:N for text, or put 'rows' "
                       "behind the layers on images",
                       stage_shape_text(stage->in, text));
}

struct init init_fan_in(size_t fan_in)
{
    return (struct init){INIT_UNIFORM, (float)(1.0 / sqrt((double)fan_in))};
}

/* Refuse `values` parameters that the machine, or the file they are in, cannot hold before anything
 * is taken for them. */
static enum rc check_room(const struct model *model, const struct stage *stage, uint64_t values,
                          struct fault *why)
{
    uint64_t bytes = values * sizeof(float) * (model->with_gradients ? 2 : 1), there;

    if (model->file_values > 0 && values > model->file_values) {
        return stage_fault(stage, why, "needs more values than the file holds");
    }
    if (bytes < LARGE_BYTES || model->leader != NULL || !model->backend->is_host) return RC_OK;
    there = mem_available();
    if (bytes <= there) return RC_OK;
    stage_fault(stage, why,
                "makes the model take %" PRIu64 " MB for parameters, and %" PRIu64
                " MB are free; use a smaller number",
                bytes >> 20, there >> 20);
    return RC_LIMIT;
}

enum rc stage_tensor(struct model *model, struct stage *stage, enum section section,
                     const char *suffix, const uint32_t *shape, uint32_t rank, struct init init,
                     struct fault *why)
{
    struct schema *schema = &model->schema;
    char name[TENSOR_NAME_BYTES];
    uint64_t count = 1;
    enum rc rc;

    CHECK(stage->tensors_count < STAGE_TENSORS_MAX);
    CHECK(schema->tensors_count < model->inits_max);
    for (uint32_t i = 0; i < rank && count < STAGE_VALUES_MAX; i++) {
        count *= shape[i];
    }
    if (count + schema->values[section] >= STAGE_VALUES_MAX) {
        stage_fault(stage, why,
                    "makes the model larger than 2^32 parameters; use a smaller number");
        return RC_LIMIT;
    }
    rc = check_room(model, stage, count + schema->values[section], why);
    if (rc != RC_OK) return rc;
    snprintf(name, sizeof(name), "%s.%s", stage->name, suffix);
    rc = schema_add(schema, name, section, shape, rank);
    if (rc != RC_OK) return fault_set(why, rc, "--model: %s", rc_text(rc));
    stage->tensors[stage->tensors_count++] = schema->tensors_count - 1;
    model->inits[schema->tensors_count - 1] = init;
    return RC_OK;
}

/* Equal slices, none larger than `most`. */
static uint32_t equal_slices(uint32_t samples, uint32_t most)
{
    uint32_t slices;

    CHECK(samples > 0 && most > 0);
    slices = (samples - 1) / most + 1;
    return (samples - 1) / slices + 1;
}

uint32_t stage_slice(const struct model *model, struct shape shape)
{
    uint32_t most = model->batch_max;

    if (shape.steps > 0) {
        most = model->backend->rows_per_slice / shape.steps;
    } else if (!shape_is_flat(shape)) {
        most = images_of_pixels(shape.image, model->backend->pixels_per_slice);
    }
    return equal_slices(model->batch_max, most == 0 ? 1 : most);
}

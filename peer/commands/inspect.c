/*
 * command_inspect: what a safetensors file holds: tensors, metadata, digest; for model files also
 * the layers, what they cost, and the memory that training takes. Or, without a file, the same of a
 * model that does not exist yet.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "replica/data/dataset.h"
#include "replica/formats/model_file.h"
#include "replica/learners/task.h"
#include "replica/model/layers.h"
#include "replica/plane/store_safetensors.h"

#include <inttypes.h>
#include <string.h>

/* Memory above this is not taken just to be measured, but extrapolated from one sample. */
#define MEASURED_BYTES_MAX (UINT64_C(1) << 30)

/* What only a model has. */
struct inspected_model {
    bool is_model;
    uint64_t parameters, flops;
    struct model_stage *stages;
    uint32_t stages_count;
    uint32_t batch; /* that the memory is for */
    bool is_extrapolated;
    struct model_memory memory; /* of training, without the optimizer's */
};

/* ---- looking ---- */

static void deinit(struct inspected_model *out)
{
    for (uint32_t i = 0; out->stages != NULL && i < out->stages_count; i++) {
        mem_free((char *)out->stages[i].name);
    }
    mem_free(out->stages);
}

/* Names are the model's, which does not live as long. */
static enum rc copy_stages(const struct model *model, struct inspected_model *out)
{
    out->stages_count = model_stages(model);
    out->stages = mem_array(out->stages_count, sizeof *out->stages);
    if (out->stages == NULL) return RC_NOMEM;
    for (uint32_t i = 0; i < out->stages_count; i++) {
        model_stage(model, i, &out->stages[i]);
        out->stages[i].name = mem_string(out->stages[i].name);
        if (out->stages[i].name == NULL) return RC_NOMEM;
    }
    return RC_OK;
}

/* Train `options`' model for one sample, and, unless that would be much, for a batch. */
static enum rc measure(struct backend *backend, struct model_options *options,
                       struct inspected_model *out, struct fault *why)
{
    struct model *model = NULL;
    enum rc rc;

    options->with_gradients = true;
    options->batch_max = 1;
    rc = model_create(backend, options, &model, why);
    if (rc != RC_OK) return rc;
    model_memory(model, &out->memory);
    out->is_model = true;
    out->parameters = model_schema(model)->values[SECTION_PARAMETERS];
    out->flops = model_flops(model);
    rc = copy_stages(model, out);
    model_destroy(model);
    if (rc != RC_OK) return fault_set(why, rc, "cannot inspect: out of memory");
    out->is_extrapolated = out->memory.unshared * out->batch > MEASURED_BYTES_MAX;
    if (out->is_extrapolated) {
        out->memory.activations *= out->batch;
        out->memory.unshared *= out->batch;
        return RC_OK;
    }
    options->batch_max = out->batch;
    rc = model_create(backend, options, &model, why);
    if (rc == RC_OK) model_memory(model, &out->memory);
    model_destroy(model);
    return rc;
}

static uint32_t batch_of(const struct options *options, const char *spec)
{
    if (options_is_set(options, "batch")) return (uint32_t)options_count(options, "batch");
    return layers_training(spec).batch;
}

static bool is_model_file(const struct tensor_file *file)
{
    struct model_card card;

    return tensor_file_get(file, "model") != NULL ||
           model_card_read(file, "", &card, NULL) == RC_OK;
}

static enum rc inspect_model(const struct options *options, const struct tensor_file *file,
                             const char *path, struct inspected_model *out, struct fault *why)
{
    struct backend *backend = NULL;
    struct model *model = NULL;
    struct model_card card;
    struct model_options request;
    enum rc rc = command_host_backend(&backend, why);

    if (rc != RC_OK) return rc;
    rc = model_load(backend, file, path, 1, false, &model, &card, why); /* is it all there? */
    model_destroy(model);
    request = (struct model_options){.spec = card.spec,
                                     .channels = card.channels,
                                     .height = card.height,
                                     .width = card.width,
                                     .classes = card.classes,
                                     .input = card.input,
                                     .symbols = card.symbols};
    if (rc == RC_OK) {
        out->batch = batch_of(options, card.spec);
        rc = measure(backend, &request, out, why);
    }
    backend_destroy(backend);
    return rc;
}

static enum rc inspect_spec(const struct options *options, const char *spec,
                            struct inspected_model *out, struct fault *why)
{
    const struct dataset_options request = {
        .seed = 1, .context = task_context(spec), .tokenizer = options_text(options, "tokenizer")};
    struct model_options model = {.spec = spec, .seed = 1};
    struct dataset *dataset = NULL;
    struct backend *backend = NULL;
    enum rc rc = dataset_open(options_text(options, "data"), &request, &dataset, why);

    if (rc == RC_OK) rc = command_host_backend(&backend, why);
    if (rc == RC_OK) {
        task_describe(dataset_info(dataset), &model);
        out->batch = batch_of(options, spec);
        rc = measure(backend, &model, out, why);
    }
    backend_destroy(backend);
    dataset_close(dataset);
    return rc;
}

/* ---- telling ---- */

static struct json *tensor_json(const struct tensor_view *view)
{
    struct json *json = json_object_create();
    struct json *shape = json_array_create();

    json_set_text(json, "name", view->name);
    json_set_text(json, "dtype", view->dtype);
    for (uint32_t i = 0; i < view->rank; i++)
        json_append_count(shape, view->shape[i]);
    json_set(json, "shape", shape);
    json_set_count(json, "bytes", view->bytes_count);
    return json;
}

/* Steps of computing that belong to a layer's other step, and cost nothing worth a line. */
static bool is_beside(const struct inspected_model *model, uint32_t i)
{
    const struct model_stage *stage = &model->stages[i];
    bool follows = i > 0 && strcmp(stage->name, stage[-1].name) == 0;
    bool precedes = i + 1 < model->stages_count && strcmp(stage->name, stage[1].name) == 0;

    return stage->parameters == 0 && stage->flops == 0 && (follows || precedes);
}

static void set_model(struct json *json, const struct inspected_model *model)
{
    const struct model_memory *memory = &model->memory;
    struct json *layers = json_array_create(), *bytes = json_object_create();

    json_set_count(json, "parameters", model->parameters);
    json_set_count(json, "flops", model->flops);
    for (uint32_t i = 0; i < model->stages_count; i++) {
        const struct model_stage *stage = &model->stages[i];
        struct json *row;
        if (is_beside(model, i)) continue;
        row = json_object_create();
        json_set_text(row, "name", stage->name);
        json_set_text(row, "layer", stage->layer);
        json_set_text(row, "output", stage->out);
        json_set_count(row, "parameters", stage->parameters);
        json_set_count(row, "flops", stage->flops);
        json_append(layers, row);
    }
    json_set(json, "layers", layers);
    json_set_count(bytes, "batch", model->batch);
    json_set_count(bytes, "parameters", memory->parameters);
    json_set_count(bytes, "gradients", memory->gradients);
    json_set_count(bytes, "buffers", memory->buffers);
    json_set_count(bytes, "activations", memory->activations);
    json_set_count(bytes, "activations_unshared", memory->unshared);
    json_set_bool(bytes, "is_extrapolated", model->is_extrapolated);
    json_set(json, "memory_bytes", bytes);
}

static void set_file(struct json *json, const struct tensor_file *file)
{
    struct json *tensors = json_array_create();
    struct json *metadata = json_object_create();
    const char *key, *value;

    for (size_t i = 0; i < tensor_file_count(file); i++)
        json_append(tensors, tensor_json(tensor_file_at(file, i)));
    for (size_t i = 0; tensor_file_metadata_at(file, i, &key, &value); i++)
        json_set_text(metadata, key, value);
    json_set(json, "tensors", tensors);
    json_set(json, "metadata", metadata);
}

static void print_json(const struct tensor_file *file, const char *path,
                       const struct inspected_model *model)
{
    struct json *json = json_object_create();

    if (file != NULL) {
        json_set_text(json, "file", path);
        json_set_text(json, "digest", tensor_file_get(file, "digest"));
    }
    if (model->is_model) set_model(json, model);
    if (file != NULL) set_file(json, file);
    command_print_json(json);
}

static void print_tensor(const struct tensor_view *view)
{
    char shape[256] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < view->rank && used < sizeof(shape); i++)
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%" PRIu64,
                                 i > 0 ? " x " : "", view->shape[i]);
    printf("  %-32s %-5s %s\n", view->name, view->dtype, shape); /* plain, or the file is refused */
}

static void print_row(const char *name, const char *layer, const char *shape, uint64_t parameters,
                      uint64_t flops)
{
    char texts[2][32];

    printf("  %-20s %-32s %-18s %14s %18s\n", name, layer, shape,
           parameters == 0 ? "-" : units_format_count(parameters, texts[0], sizeof texts[0]),
           flops == 0 ? "-" : units_format_count(flops, texts[1], sizeof texts[1]));
}

static void print_memory(const struct inspected_model *model)
{
    const struct model_memory *memory = &model->memory;
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {{"parameters", memory->parameters},
                {"gradients", memory->gradients},
                {"buffers", memory->buffers},
                {"activations", memory->activations},
                {"activations, unshared", memory->unshared}};
    char text[32];

    printf("\nmemory of training at batch %u, without what the optimizer keeps%s\n", model->batch,
           model->is_extrapolated ? "; activations at most, from one sample" : "");
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        printf("  %-24s %10s\n", rows[i].name,
               units_format_bytes(rows[i].bytes, text, sizeof text));
    }
}

static void print_model(const struct inspected_model *model)
{
    char parameters[32], flops[32];

    printf("%s parameters, %s floating point operations a sample\n",
           units_format_count(model->parameters, parameters, sizeof(parameters)),
           units_format_count(model->flops, flops, sizeof(flops)));
    printf("\n  %-20s %-32s %-18s %14s %18s\n", "name", "layer", "output", "parameters",
           "FLOPs a sample");
    for (uint32_t i = 0; i < model->stages_count; i++) {
        const struct model_stage *stage = &model->stages[i];
        if (is_beside(model, i)) continue;
        print_row(stage->name, stage->layer, stage->out, stage->parameters, stage->flops);
    }
    print_row("all", "", "", model->parameters, model->flops);
    print_memory(model);
}

/* Files come from anywhere: nothing in them reaches the terminal as a command. A line of several
 * begins where `|` stands. */
static void print_metadata(const char *key, const char *value)
{
    const char *line = value;
    char plain[PLAIN_STEP_BYTES];

    printf("  %-16s ", key);
    while (*line != '\0') {
        size_t left = strcspn(line, "\n"), taken;
        for (; left > 0; left -= taken, line += taken) {
            taken = utf8_character((const uint8_t *)line, left);
            if (taken == 0) taken = 1;
            fputs(plain_bytes(line, taken, plain, sizeof plain), stdout);
        }
        if (*line == '\n') {
            putchar('|');
            line++;
        }
    }
    putchar('\n');
}

static void print_words(const struct tensor_file *file, const char *path,
                        const struct inspected_model *model)
{
    const char *key, *value;
    char text[4096];

    if (file != NULL) puts(plain_text(path, text, sizeof text));
    if (model->is_model) print_model(model);
    if (file == NULL) return;
    puts("\ntensors");
    for (size_t i = 0; i < tensor_file_count(file); i++)
        print_tensor(tensor_file_at(file, i));
    puts("\nmetadata");
    for (size_t i = 0; tensor_file_metadata_at(file, i, &key, &value); i++)
        print_metadata(key, value);
}

int command_inspect(struct options *options)
{
    struct tensor_file *file = NULL;
    struct inspected_model model = {.is_model = false};
    struct fault why = {""};
    size_t count;
    const char *const *arguments = options_arguments(options, &count);
    const char *path = count > 0 ? arguments[0] : NULL, *spec = options_text(options, "model");
    enum rc rc = RC_OK;

    if ((path == NULL) == (spec == NULL)) {
        rc = fault_set(&why, RC_USAGE, "inspect takes a file, or --model SPEC --data SPEC");
    } else if (path == NULL) {
        rc = inspect_spec(options, spec, &model, &why);
    } else {
        rc = tensor_file_load(path, &file, &why);
        if (rc == RC_OK && is_model_file(file)) {
            rc = inspect_model(options, file, path, &model, &why);
        }
    }
    if (rc == RC_OK && options_flag(options, "json"))
        print_json(file, path, &model);
    else if (rc == RC_OK)
        print_words(file, path, &model);
    tensor_file_destroy(file);
    deinit(&model);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

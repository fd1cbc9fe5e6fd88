/*
 * command_inspect: what a safetensors file holds: tensors, metadata, digest; for model files also
 * parameters and floating point operations.
 */
#include "peer/command.h"

#include "kernels/backend.h"
#include "replica/json.h"
#include "replica/model.h"
#include "replica/store_safetensors.h"

#include "base/units.h"

#include <inttypes.h>

/* What only a model file has; parameters is 0 for any other. */
struct inspected_model {
    uint64_t parameters, flops;
};

static bool is_model_file(const struct tensor_file *file)
{
    return tensor_file_get(file, "model") != NULL;
}

static enum rc inspect_model(const struct options *options, const struct tensor_file *file,
                             const char *path, struct inspected_model *out, struct fault *why)
{
    struct backend *backend = NULL;
    struct model *model = NULL;
    struct model_card card;
    enum rc rc = command_backend(options, &backend, why);

    if (rc != RC_OK) return rc;
    rc = model_load(backend, file, path, 1, false, &model, &card, why);
    if (rc == RC_OK) {
        out->parameters = model_schema(model)->values[SECTION_PARAMETERS];
        out->flops = model_flops(model);
    }
    model_destroy(model);
    backend_destroy(backend);
    return rc;
}

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

static void print_json(const struct tensor_file *file, const char *path,
                       const struct inspected_model *model)
{
    struct json *json = json_object_create();
    struct json *tensors = json_array_create();
    struct json *metadata = json_object_create();
    const char *key, *value;

    json_set_text(json, "file", path);
    json_set_text(json, "digest", tensor_file_get(file, "digest"));
    if (model->parameters > 0) {
        json_set_count(json, "parameters", model->parameters);
        json_set_count(json, "flops", model->flops);
    }
    for (size_t i = 0; i < tensor_file_count(file); i++)
        json_append(tensors, tensor_json(tensor_file_at(file, i)));
    for (size_t i = 0; tensor_file_metadata_at(file, i, &key, &value); i++)
        json_set_text(metadata, key, value);
    json_set(json, "tensors", tensors);
    json_set(json, "metadata", metadata);
    command_print_json(json);
}

static void print_tensor(const struct tensor_view *view)
{
    char shape[256] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < view->rank && used < sizeof(shape); i++)
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%" PRIu64,
                                 i > 0 ? " x " : "", view->shape[i]);
    printf("  %-32s %-5s %s\n", view->name, view->dtype, shape);
}

static void print_words(const struct tensor_file *file, const char *path,
                        const struct inspected_model *model)
{
    char parameters[32], flops[32];
    const char *key, *value;

    puts(path);
    if (model->parameters > 0) {
        printf("%s parameters, %s floating point operations a sample\n",
               units_format_count(model->parameters, parameters, sizeof(parameters)),
               units_format_count(model->flops, flops, sizeof(flops)));
    }
    puts("\ntensors");
    for (size_t i = 0; i < tensor_file_count(file); i++)
        print_tensor(tensor_file_at(file, i));
    puts("\nmetadata");
    for (size_t i = 0; tensor_file_metadata_at(file, i, &key, &value); i++)
        printf("  %-16s %s\n", key, value);
}

int command_inspect(struct options *options)
{
    struct tensor_file *file = NULL;
    struct inspected_model model = {0};
    struct fault why = {""};
    size_t count;
    const char *path = options_arguments(options, &count)[0];
    enum rc rc = tensor_file_load(path, &file, &why);

    if (rc == RC_OK && is_model_file(file)) rc = inspect_model(options, file, path, &model, &why);
    if (rc == RC_OK && options_flag(options, "json"))
        print_json(file, path, &model);
    else if (rc == RC_OK)
        print_words(file, path, &model);
    tensor_file_destroy(file);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

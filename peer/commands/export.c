/* command_export: a model file for other programs: ONNX, or safetensors without training state. */
#include "peer/cli/command.h"

#include "base/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/formats/export_onnx.h"
#include "replica/formats/gpt2.h"
#include "replica/formats/model_file.h"
#include "replica/formats/packed.h"
#include "replica/plane/store_safetensors.h"

#include <string.h>

/* What is in hand. */
struct exporting {
    struct tensor_file *file;
    struct model *model;
    struct model_card card;
};

static enum rc write_as(const char *form, struct exporting *from, const char *path,
                        struct fault *why)
{
    struct model *model = from->model;
    const struct model_card *card = &from->card;

    if (strcmp(form, "onnx") == 0) return export_onnx(model, card, from->file, path, why);
    if (gpt2_is_form(model)) return gpt2_save(model, card, path, why);
    return model_save_as(model, card, path, why);
}

static void tell(const struct options *options, const struct exporting *from, const char *form,
                 const char *path)
{
    const bool is_onnx = strcmp(form, "onnx") == 0;
    const bool is_gpt2 = !is_onnx && gpt2_is_form(from->model);
    const bool is_int8 = is_onnx && packed_has_int8(from->file);
    struct json *json;

    if (!options_flag(options, "json")) {
        printf("%s: %s%s%s\n", path, is_onnx ? "ONNX, opset 17" : "safetensors",
               is_int8 ? ", int8 weights" : "",
               is_gpt2 ? ", in Hugging Face's names for GPT-2" : "");
        return;
    }
    json = json_object_create();
    json_set_text(json, "file", path);
    json_set_text(json, "form", form);
    json_set_text(json, "names", is_gpt2 ? "gpt2" : "grapevine");
    json_set_text(json, "weights", is_int8 ? "int8" : "f32");
    json_set_count(json, "parameters", model_schema(from->model)->values[SECTION_PARAMETERS]);
    command_print_json(json);
}

int command_export(struct options *options)
{
    const struct cpu_backend_options request = {.threads = 1}; /* whose memory is the host's */
    const char *form = options_text(options, "to"), *path = options_text(options, "out");
    struct backend *backend = NULL;
    struct exporting e = {.file = NULL};
    struct fault why = {""};
    size_t count;
    const char *from = options_arguments(options, &count)[0];
    enum rc rc = RC_OK;

    if (form == NULL || path == NULL) {
        rc =
            fault_set(&why, RC_USAGE, "export needs --to onnx or --to safetensors, and --out FILE");
        return command_failed(rc, &why);
    }
    backend = cpu_backend_create(&request);
    if (backend == NULL) rc = fault_set(&why, RC_NOMEM, "device cpu: out of memory");
    if (rc == RC_OK) rc = command_check_out(path, &from, 1, &why);
    if (rc == RC_OK) rc = tensor_file_load(from, &e.file, &why);
    if (rc == RC_OK) rc = model_load(backend, e.file, from, 1, false, &e.model, &e.card, &why);
    if (rc == RC_OK) rc = write_as(form, &e, path, &why);
    if (rc == RC_OK) tell(options, &e, form, path);
    tensor_file_destroy(e.file);
    model_destroy(e.model);
    backend_destroy(backend);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

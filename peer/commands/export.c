/*
 * command_export: a model file for other programs: ONNX, safetensors without training state, GGUF,
 * or a page that runs it in a browser.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "peer/commands/export_page.h"
#include "replica/formats/export_gguf.h"
#include "replica/formats/export_onnx.h"
#include "replica/formats/gpt2.h"
#include "replica/formats/model_file.h"
#include "replica/formats/packed.h"
#include "replica/plane/store_safetensors.h"
#include "replica/tokenizer/tokenizer.h"

#include <string.h>

enum { NAME_BYTES = 101 };

struct export
{
    const struct options *options;
    const char *from, *path;
    char name[NAME_BYTES]; /* the model's, from its file's name */
    struct tensor_file *file;
    struct model *model;
    struct model_card card;
    struct fault *why;
};

/* ---- the forms ---- */

static enum rc write_onnx(struct export *e)
{
    return export_onnx(e->model, &e->card, e->file, e->path, e->why);
}

static enum rc write_safetensors(struct export *e)
{
    if (gpt2_is_form(e->model)) return gpt2_save(e->model, &e->card, e->path, e->why);
    return model_save_as(e->model, &e->card, e->path, e->why);
}

static enum rc write_page(struct export *e)
{
    const struct export_page_options page = {
        .name = e->name,
        .folder = e->path,
        .data = options_text(e->options, "data"),
        .labels = options_text(e->options, "labels"),
        .runtime = options_text(e->options, "runtime"),
        .file = e->file,
    };

    return export_page(&page, e->model, &e->card, e->why);
}

static enum rc write_gguf(struct export *e)
{
    struct tokenizer *tokenizer = NULL;
    enum rc rc = RC_OK;

    if (gpt2_is_form(e->model)) {
        rc = command_model_tokenizer(&e->card, e->from, options_text(e->options, "tokenizer"),
                                     &tokenizer, e->why);
    }
    if (rc == RC_OK) {
        rc = export_gguf(e->model, &e->card, tokenizer, e->name, e->path, e->why);
    }
    tokenizer_close(tokenizer);
    return rc;
}

static const struct form {
    const char *name, *text;
    enum rc (*write)(struct export *e);
} forms[] = {
    {"onnx", "ONNX, opset 17", write_onnx},
    {"safetensors", "safetensors", write_safetensors},
    {"page", "a page for browsers; open its index.html", write_page},
    {"gguf", "GGUF 3, architecture gpt2, float32", write_gguf},
};

static const struct form *form_of(const struct options *options)
{
    const char *name = options_text(options, "to");

    for (size_t i = 0; name != NULL && i < ARRAY_COUNT(forms); i++) {
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    }
    return NULL;
}

/* Flags that only one form has a use for. */
static enum rc check_flags(const struct options *options, struct fault *why)
{
    static const char *const of_form[][2] = {
        {"data", "page"}, {"labels", "page"}, {"runtime", "page"}, {"tokenizer", "gguf"}};
    const struct form *form = form_of(options);

    if (form == NULL || options_text(options, "out") == NULL) {
        return fault_set(why, RC_USAGE,
                         "export needs --to onnx, safetensors, page or gguf, and --out FILE");
    }
    for (size_t i = 0; i < ARRAY_COUNT(of_form); i++) {
        if (!options_is_set(options, of_form[i][0])) continue;
        if (strcmp(form->name, of_form[i][1]) == 0) continue;
        return fault_set(why, RC_USAGE, "--%s is for --to %s", of_form[i][0], of_form[i][1]);
    }
    return RC_OK;
}

/* ---- the command ---- */

/* `a/student.safetensors` is student, `a/model.safetensors` is a. */
static void find_name(struct export *e)
{
    const char *slash = strrchr(e->from, '/'), *begin = slash == NULL ? e->from : slash + 1;
    size_t count = strcspn(begin, ".");

    if (strncmp(begin, "model.", 6) == 0 && slash != NULL) {
        for (begin = slash; begin > e->from && begin[-1] != '/';)
            begin--;
        count = (size_t)(slash - begin);
    }
    if (count == 0 || begin[0] == '.') {
        begin = "model";
        count = strlen(begin);
    }
    snprintf(e->name, sizeof e->name, "%.*s", (int)(count < NAME_BYTES ? count : NAME_BYTES - 1),
             begin);
}

static void tell(const struct export *e)
{
    const struct form *form = form_of(e->options);
    const bool is_gpt2 = form->write == write_safetensors && gpt2_is_form(e->model);
    const bool is_int8 =
        (form->write == write_onnx || form->write == write_page) && packed_has_int8(e->file);
    struct json *json;

    if (!options_flag(e->options, "json")) {
        printf("%s: %s%s%s\n", e->path, form->text, is_int8 ? ", int8 weights" : "",
               is_gpt2 ? ", in Hugging Face's names for GPT-2" : "");
        return;
    }
    json = json_object_create();
    json_set_text(json, "file", e->path);
    json_set_text(json, "form", form->name);
    json_set_text(json, "names", is_gpt2 ? "gpt2" : "grapevine");
    json_set_text(json, "weights", is_int8 ? "int8" : "f32");
    json_set_count(json, "parameters", model_schema(e->model)->values[SECTION_PARAMETERS]);
    command_print_json(json);
}

int command_export(struct options *options)
{
    const struct cpu_backend_options request = {.threads = 1}; /* whose memory is the host's */
    struct backend *backend = NULL;
    struct fault why = {""};
    struct export e = {.options = options, .why = &why};
    size_t count;
    enum rc rc = check_flags(options, &why);

    if (rc != RC_OK) return command_failed(rc, &why);
    e.from = options_arguments(options, &count)[0];
    e.path = options_text(options, "out");
    find_name(&e);
    backend = cpu_backend_create(&request);
    if (backend == NULL) rc = fault_set(&why, RC_NOMEM, "device cpu: out of memory");
    if (rc == RC_OK) rc = command_check_out(e.path, &e.from, 1, &why);
    if (rc == RC_OK) rc = tensor_file_load(e.from, &e.file, &why);
    if (rc == RC_OK) rc = model_load(backend, e.file, e.from, 1, false, &e.model, &e.card, &why);
    if (rc == RC_OK) rc = form_of(options)->write(&e);
    if (rc == RC_OK) tell(&e);
    tensor_file_destroy(e.file);
    model_destroy(e.model);
    backend_destroy(backend);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

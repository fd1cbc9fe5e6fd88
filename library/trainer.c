/*
 * The trainer of a session that is a program of somebody else's: which settings are its own to
 * decide, and what the model is, by its tensors.
 */
#include "library/member.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "peer/cli/command.h"
#include "replica/data/dataset.h"
#include "replica/formats/model_file.h"
#include "replica/learners/task.h"
#include "replica/model/layers.h"

#include <string.h>

/* ---- settings ---- */

enum rc member_check_options(const struct options *options, struct fault *why)
{
    static const char *const own[] = {"tokenizer",   "labels",
                                      "init",        "optimizer",
                                      "schedule",    "clip",
                                      "accumulate",  "hogwild",
                                      "ema",         "heads-loss",
                                      "lr",          "lr-scaling",
                                      "batch",       "shard",
                                      "shard-of",    "augment",
                                      "epochs",      "target-accuracy",
                                      "target-loss", "evaluate-samples",
                                      "device",      "threads",
                                      "precision",   "prefetch",
                                      "probe",       "profile",
                                      "share",       "moments",
                                      "audit",       "step-time",
                                      "json",        "print-config",
                                      "no-train"};

    for (size_t i = 0; i < ARRAY_COUNT(own); i++) {
        if (!options_is_set(options, own[i])) continue;
        return fault_set(why, RC_USAGE,
                         "%s: that is decided by the program that trains; leave it out", own[i]);
    }
    /* Processes of a libuv loop take the program's SIGCHLD. */
    if (options_is_set(options, "dial-command")) {
        return fault_set(why, RC_USAGE,
                         "dial-command: not within a program, whose children it would wait for; "
                         "use proxy");
    }
    if (options_is_set(options, "data") != options_is_set(options, "model")) {
        return fault_set(why, RC_USAGE,
                         "model, data: to average with native peers give both, as they have them; "
                         "else leave both out");
    }
    return RC_OK;
}

static enum rc check(struct session *session, struct options *options, struct fault *why)
{
    const struct strategy *strategy = &session->strategy;
    const char *what = NULL;

    (void)options;
    if (strategy->tracks || strategy->quasi_global != 0) what = "gradients";
    if (strategy->mixes_answers) what = "answers of the model";
    if (strategy->is_population) what = "the learning rate";
    if (strategy->moments == MOMENTS_AVERAGE) what = "the optimizer's buffers";
    if (what == NULL) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "averaging %s: it needs %s, which only a native peer has; take another "
                     "(docs/library.md lists them)",
                     strategy->name, what);
}

/* ---- the model ---- */

static size_t values_of(const gv_tensor *tensor)
{
    size_t count = 1;

    for (uint32_t i = 0; i < tensor->rank; i++) {
        count *= tensor->shape[i];
    }
    return count;
}

static enum rc check_tensor(const gv_tensor *tensor, size_t index, struct fault *why)
{
    size_t left = UINT32_MAX;

    if (tensor->name == NULL || tensor->name[0] == '\0' ||
        strnlen(tensor->name, GV_NAME_MAX + 1) > GV_NAME_MAX) {
        return fault_set(why, RC_USAGE, "tensor %zu: its name has to have 1 to %d bytes", index,
                         GV_NAME_MAX);
    }
    if (tensor->kind > GV_BUFFER || tensor->dtype > GV_BF16) {
        return fault_set(why, RC_USAGE, "tensor %s: unknown kind %u or dtype %u", tensor->name,
                         tensor->kind, tensor->dtype);
    }
    if (tensor->rank < 1 || tensor->rank > GV_RANK_MAX) {
        return fault_set(why, RC_USAGE, "tensor %s: rank %u; describe it with 1 to %d dimensions",
                         tensor->name, tensor->rank, GV_RANK_MAX);
    }
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] == 0 || tensor->shape[i] > left) {
            return fault_set(why, RC_USAGE, "tensor %s: empty, or more than 2^32 values",
                             tensor->name);
        }
        left /= tensor->shape[i];
    }
    return RC_OK;
}

/* The next tensor of the model, with the place that the schema gives it. */
static enum rc take_tensor(struct gv_member *member, const gv_tensor *tensor, struct fault *why)
{
    struct member_tensor *taken = &member->tensors[member->tensors_count];
    const bool is_buffer = tensor->kind == GV_BUFFER;
    enum rc rc;

    if (schema_find(&member->schema, tensor->name) != NULL) {
        return fault_set(why, RC_USAGE, "tensor %s: described twice", tensor->name);
    }
    rc = schema_add(&member->schema, tensor->name, is_buffer ? SECTION_BUFFERS : SECTION_PARAMETERS,
                    tensor->shape, tensor->rank);
    if (rc != RC_OK) return fault_set(why, rc, "tensor %s: %s", tensor->name, rc_text(rc));
    *taken = (struct member_tensor){.of = *tensor,
                                    .at = is_buffer ? member->buffers_count : member->parameters,
                                    .count = values_of(tensor)};
    taken->of.name = NULL;
    *(is_buffer ? &member->buffers_count : &member->parameters) += taken->count;
    member->tensors_count++;
    return RC_OK;
}

/* In the order of `native`, which has to have the same tensors. */
static enum rc take_as_native(struct gv_member *member, const struct schema *native,
                              const gv_tensor *tensors, size_t count, struct fault *why)
{
    enum rc rc = RC_OK;

    for (uint32_t t = 0; t < native->tensors_count && rc == RC_OK; t++) {
        const struct tensor *wanted = &native->tensors[t];
        const uint32_t kind = wanted->section == SECTION_BUFFERS ? GV_BUFFER : GV_PARAMETER;
        size_t i = 0;

        while (i < count && strcmp(tensors[i].name, wanted->name) != 0) {
            i++;
        }
        if (i == count) {
            return fault_set(why, RC_USAGE,
                             "the native model has a tensor %s, and none of that "
                             "name was described",
                             wanted->name);
        }
        if (tensors[i].kind != kind || tensors[i].rank != wanted->rank ||
            memcmp(tensors[i].shape, wanted->shape, wanted->rank * sizeof wanted->shape[0]) != 0) {
            return fault_set(why, RC_USAGE,
                             "tensor %s: of another kind or shape than the native model's",
                             wanted->name);
        }
        rc = take_tensor(member, &tensors[i], why);
    }
    if (rc == RC_OK && native->tensors_count != count) {
        return fault_set(why, RC_USAGE, "%zu tensors were described, and the native model has %u",
                         count, native->tensors_count);
    }
    return rc;
}

static enum rc native_model(struct gv_member *member, const gv_tensor *tensors, size_t count,
                            struct fault *why)
{
    const char *spec = options_text(member->options, "model");
    const struct dataset_options request = {.seed = 1, .context = task_context(spec)};
    struct model_options options = {.spec = spec, .seed = 1, .batch_max = 1};
    struct dataset *dataset = NULL;
    struct backend *backend = NULL;
    struct model *model = NULL;
    enum rc rc = dataset_open(options_text(member->options, "data"), &request, &dataset, why);

    if (rc == RC_OK) rc = command_host_backend(&backend, why);
    if (rc == RC_OK) {
        task_describe(dataset_info(dataset), &options);
        rc = model_create(backend, &options, &model, why);
    }
    if (rc == RC_OK && model_schema(model)->values[SECTION_INPUT] > 0) {
        rc = fault_set(why, RC_USAGE,
                       "data %s: native peers normalise its input by what they "
                       "measure together, which a program cannot; leave model and data out",
                       options_text(member->options, "data"));
    }
    if (rc == RC_OK) rc = take_as_native(member, model_schema(model), tensors, count, why);
    if (rc == RC_OK) member->schema.meaning = task_meaning(dataset_info(dataset), model);
    model_destroy(model);
    backend_destroy(backend);
    dataset_close(dataset);
    return rc;
}

enum rc member_describe(struct gv_member *member, const gv_tensor *tensors, size_t count,
                        struct fault *why)
{
    enum rc rc = RC_OK;

    schema_init(&member->schema);
    member->tensors = mem_array(count, sizeof *member->tensors);
    if (member->tensors == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    for (size_t i = 0; i < count && rc == RC_OK; i++) {
        rc = check_tensor(&tensors[i], i, why);
    }
    if (rc == RC_OK && options_is_set(member->options, "model")) {
        rc = native_model(member, tensors, count, why);
    } else {
        for (size_t i = 0; i < count && rc == RC_OK; i++) {
            rc = take_tensor(member, &tensors[i], why);
        }
    }
    if (rc == RC_OK && member->parameters == 0) {
        rc = fault_set(why, RC_USAGE, "no parameter was described: there is nothing to average");
    }
    if (rc != RC_OK) return rc;
    member->buffers = mem_array(member->buffers_count + 1, sizeof *member->buffers);
    return member->buffers != NULL ? RC_OK : fault_set(why, RC_NOMEM, "out of memory");
}

/* ---- for the session ---- */

static enum rc create(struct session *session, struct fault *why)
{
    struct gv_member *member = (struct gv_member *)session;

    return external_create(&member->schema, &session->learner, why);
}

/* The program's tensors have them. */
static enum rc begin(struct session *session, struct fault *why)
{
    (void)session;
    (void)why;
    return RC_OK;
}

static struct json *no_settings(const struct session *session)
{
    (void)session; /* who joins by them would train another model */
    return NULL;
}

static void describe(struct session *session, struct node_options *node)
{
    const struct options *options = session->options;

    node->begins_unlike = true;
    node->has_program = true;
    node->goal.steps = options_count(options, "steps");
    node->goal.time_ns = options_ns(options, "time");
    snprintf(node->spec, sizeof node->spec, "%s",
             options_is_set(options, "model") ? options_text(options, "model") : "program");
    node->serves_predictions = false;
}

static void tell_chosen(const struct session *session, char *text, size_t cap)
{
    snprintf(text, cap, "; averaging %s\n; trained by a program through libgrapevine\n",
             session->strategy.text);
}

static void on_listening(void *context, const char *address)
{
    session_listens(context, address);
}

const struct session_trainer member_trainer = {.check = check,
                                               .create = create,
                                               .begin = begin,
                                               .settings = no_settings,
                                               .describe = describe,
                                               .tell_chosen = tell_chosen,
                                               .events = {.on_listening = on_listening,
                                                          .on_report = session_on_report,
                                                          .on_state = member_on_state,
                                                          .on_ended = session_on_ended}};

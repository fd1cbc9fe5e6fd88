/* initial_model: see initial_model.h. */
#include "peer/session/initial_model.h"

#include "distill/comparison.h"
#include "replica/learners/replica.h"

#include <string.h>

enum rc initial_model_spec(struct options *options, struct fault *why)
{
    const char *path = options_text(options, "init");
    struct model_card card;
    enum rc rc;

    if (path == NULL || options_is_set(options, "model")) return RC_OK;
    rc = comparison_card(path, &card, why);
    return rc == RC_OK ? options_suppose(options, "model", card.spec, why) : rc;
}

static enum rc check_layers(const char *path, const struct model *model, const struct model *wanted,
                            struct fault *why)
{
    if (strcmp(model_spec(model), model_spec(wanted)) == 0) return RC_OK;
    return fault_set(
        why, RC_MISMATCH,
        "--init %s does not fit --model: the file has the layers %.120s; leave --model "
        "out",
        path, model_spec(model));
}

/* What was learned about inputs of one size is of less use for those of another. */
static void tell_normalisation(const char *path, const struct model *model,
                               const struct model *wanted, const struct log *log)
{
    size_t bytes = model_channels(model) * sizeof(float);

    if (memcmp(model_mean(model), model_mean(wanted), bytes) == 0 &&
        memcmp(model_scale(model), model_scale(wanted), bytes) == 0) {
        return;
    }
    log_warn(log,
             "--init %s: its inputs were normalised by other data (the first by mean %.4g, now "
             "%.4g): at first the model will do worse than it did",
             path, (double)model_mean(model)[0], (double)model_mean(wanted)[0]);
}

static enum rc assign(struct model *model, struct learner *learner)
{
    static const enum section sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS};
    enum rc rc = RC_OK;

    for (size_t i = 0; i < sizeof sections / sizeof sections[0] && rc == RC_OK; i++) {
        size_t count = model_schema(model)->values[sections[i]];
        const float *values = NULL;

        if (count == 0) continue;
        rc = model_host_plane(model, sections[i], &values);
        if (rc == RC_OK) rc = replica_begin_with(learner, sections[i], values, count);
    }
    return rc;
}

enum rc initial_model_load(const struct options *options, struct backend *backend,
                           struct learner *learner, const struct log *log, struct fault *why)
{
    const char *path = options_text(options, "init");
    struct comparison_file file = {
        .path = path, .info = replica_data(learner), .batch_max = 1, .with_gradients = false};
    const struct model *wanted = replica_model(learner);
    struct model *model = NULL;
    struct model_card card;
    enum rc rc;

    if (path == NULL) return RC_OK;
    rc = comparison_load(backend, &file, &model, &card, why);
    if (rc == RC_OK) rc = check_layers(path, model, wanted, why);
    if (rc == RC_OK) {
        rc = assign(model, learner);
        if (rc != RC_OK) fault_set(why, rc, "cannot begin from %s: %s", path, rc_text(rc));
    }
    if (rc == RC_OK) {
        tell_normalisation(path, model, wanted, log);
        log_info(log, "beginning from %s", path);
    }
    model_destroy(model);
    return rc;
}

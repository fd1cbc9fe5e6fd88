/* averaged_model: see averaged_model.h. Blocking: the command's thread, after the loop has ended.
 */
#include "peer/session/averaged_model.h"

#include "distill/comparison.h"
#include "distill/statistics.h"
#include "replica/learners/replica.h"
#include "replica/model/model.h"

#include <stdio.h>

enum { PATH_BYTES = 4096 };

/* A model of its own, as the learner's may be one of a team's. */
static enum rc create(struct backend *backend, struct learner *learner, struct model_card *card,
                      struct model **model, struct fault *why)
{
    const struct dataset_info *info = replica_data(learner);
    struct model *live = replica_model(learner);
    const float *buffers = NULL;
    struct model_options options = {
        .spec = model_spec(live), .batch_max = STATISTICS_BATCH, .with_gradients = true};
    enum rc rc;

    replica_card(learner, card);
    task_describe(info, &options);
    rc = model_create(backend, &options, model, why);
    if (rc != RC_OK) return rc;
    model_set_normalisation(*model, model_mean(live), model_scale(live));
    rc = model_host_plane(live, SECTION_BUFFERS, &buffers);
    if (rc == RC_OK) rc = model_set_plane(*model, SECTION_PARAMETERS, replica_ema(learner));
    if (rc == RC_OK) rc = model_set_plane(*model, SECTION_BUFFERS, buffers);
    return rc;
}

static enum rc estimate(struct model *model, const struct model_card *card,
                        const struct options *options, struct fault *why)
{
    struct dataset_options opening = comparison_data(card, options_count(options, "seed"));
    struct dataset *dataset = NULL;
    enum rc rc;

    opening.tokenizer = options_text(options, "tokenizer");
    if (model_schema(model)->values[SECTION_BUFFERS] == 0) return RC_OK;
    rc = dataset_open(options_text(options, "data"), &opening, &dataset, why);
    if (rc == RC_OK) rc = statistics_estimate(model, dataset, NULL, why);
    dataset_close(dataset);
    return rc;
}

enum rc averaged_model_save(const struct options *options, struct backend *backend,
                            struct learner *learner, struct fault *why)
{
    const char *out = options_text(options, "out");
    struct model *model = NULL;
    struct model_card card;
    char path[PATH_BYTES];
    enum rc rc;

    if (out == NULL || !(options_real(options, "ema") > 0) || replica_ema(learner) == NULL) {
        return RC_OK;
    }
    const int length = snprintf(path, sizeof path, "%s/" AVERAGED_MODEL_FILE, out);
    if (length < 0 || (size_t)length >= sizeof path) {
        return fault_set(why, RC_USAGE, "--out: the path is too long");
    }
    rc = create(backend, learner, &card, &model, why);
    if (rc == RC_OK) {
        rc = estimate(model, &card, options, why);
    }
    if (rc == RC_OK) rc = model_save_as(model, &card, path, why);
    model_destroy(model);
    return rc;
}

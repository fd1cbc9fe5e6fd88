/* judge: see judge.h. */
#include "testnet/judge.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "testnet/report.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

/* The models that are there, and whose they are. */
struct models {
    char (*paths)[PATH_BYTES]; /* [count] */
    const char **list;         /* into `paths`, for the comparison */
    uint32_t *peer_of;
    size_t count;
};

static void models_deinit(struct models *models)
{
    mem_free(models->paths);
    mem_free(models->list);
    mem_free(models->peer_of);
}

static enum rc models_find(struct models *models, const char *out, uint32_t peers,
                           struct fault *why)
{
    *models = (struct models){mem_array(peers, PATH_BYTES), mem_array(peers, sizeof(char *)),
                              mem_array(peers, sizeof(uint32_t)), 0};
    if (models->paths == NULL || models->list == NULL || models->peer_of == NULL) {
        return fault_set(why, RC_NOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < peers; i++) {
        char *path = models->paths[models->count];
        snprintf(path, PATH_BYTES, "%s/peer-%03u/model.safetensors", out, i);
        if (!file_is_there(path)) continue;
        models->list[models->count] = path;
        models->peer_of[models->count++] = i;
    }
    if (models->count == 0) return fault_set(why, RC_NOT_FOUND, "no peer left a model in %s", out);
    return RC_OK;
}

static enum rc compare(const struct models *models, const char *out, const struct summary *about,
                       struct comparison *comparison, struct fault *why)
{
    char average[PATH_BYTES];
    const struct cpu_backend_options device = {.threads = cpu_cores()};
    const struct comparison_options request = {
        .paths = models->list,
        .paths_count = models->count,
        .data = about->data,
        .tokenizer = about->tokenizer,
        .seed = about->seed,
        .average_path = average,
    };

    snprintf(average, sizeof average, "%s/average.safetensors", out);
    struct backend *backend = cpu_backend_create(&device);
    if (backend == NULL) return fault_set(why, RC_NOMEM, "device cpu: out of memory");
    const enum rc rc = comparison_run(backend, &request, comparison, why);
    backend_destroy(backend);
    return rc;
}

enum rc judge_run(const char *out, const struct summary *about, struct json **json,
                  struct fault *why)
{
    struct summary summary = *about;
    struct comparison comparison;
    struct models models;
    enum rc rc = models_find(&models, out, about->run->count, why);

    if (rc == RC_OK) rc = compare(&models, out, about, &comparison, why);
    summary.models = rc == RC_OK ? &comparison : NULL;
    summary.peer_of = models.peer_of;
    *json = summary_json(&summary);
    if (rc == RC_OK) comparison_deinit(&comparison);
    models_deinit(&models);
    return rc;
}

static enum rc save_summary(const char *out, const struct json *summary, struct fault *why)
{
    char path[PATH_BYTES];
    char *text = json_format_pretty(summary);

    if (text == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    const struct piece pieces[] = {{text, strlen(text)}, {"\n", 1}};
    snprintf(path, sizeof path, "%s/summary.json", out);
    const enum rc rc = file_replace(path, pieces, ARRAY_COUNT(pieces), 0644, why);
    mem_free(text);
    return rc;
}

enum rc judge_save(const char *out, const struct json *json, struct fault *why)
{
    struct report_sources sources;
    enum rc rc = save_summary(out, json, why);

    if (rc == RC_OK) rc = report_load(out, &sources, why);
    if (rc != RC_OK) return rc;
    rc = report_write(out, &sources, why);
    report_sources_deinit(&sources);
    return rc;
}

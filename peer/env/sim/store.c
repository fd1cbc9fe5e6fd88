/* sim_store: a host's files in memory. They outlive its crashes; writing can be made to fail. */
#include "peer/env/sim/world.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/env/store_name.h"

#include <stdio.h>
#include <string.h>

static struct sim_file *file_find(struct sim_host *host, const char *name)
{
    struct sim_file *file;

    TAILQ_FOREACH (file, &host->files, entry) {
        if (strcmp(file->name, name) == 0) return file;
    }
    return NULL;
}

static enum rc store_check(struct env *env, const char *name, struct fault *why)
{
    if (!sim_env_of(env)->is_alive) return fault_set(why, RC_CLOSED, "this host is off");
    return store_name_check(name, why);
}

static enum rc write_check(struct env *env, const char *name, struct fault *why)
{
    struct sim_faults *faults = &sim_env_host(env)->faults;
    enum rc rc = store_check(env, name, why);

    if (rc != RC_OK || faults->store_failures == 0) return rc;
    faults->store_failures--;
    return fault_set(why, faults->store_failure, "cannot write %.64s: %s", name,
                     rc_text(faults->store_failure));
}

/* The file of that name with room for `count` bytes in all; what it held is kept. */
static struct sim_file *file_make(struct sim_host *host, const char *name, size_t count)
{
    struct sim_file *file = file_find(host, name);

    if (file == NULL) {
        file = sim_grow(NULL, sizeof *file);
        memset(file, 0, sizeof *file);
        file->name = sim_grow(NULL, strlen(name) + 1);
        memcpy(file->name, name, strlen(name) + 1);
        TAILQ_INSERT_TAIL(&host->files, file, entry);
    }
    file->bytes = sim_grow(file->bytes, count);
    return file;
}

static void file_remove(struct sim_host *host, struct sim_file *file)
{
    TAILQ_REMOVE(&host->files, file, entry);
    mem_free(file->name);
    mem_free(file->bytes);
    mem_free(file);
}

/* It is NAME.1 from now on. */
static void file_set_aside(struct sim_host *host, struct sim_file *file)
{
    size_t bytes = strlen(file->name) + 3;
    char *name = sim_grow(NULL, bytes);
    struct sim_file *older;

    (void)snprintf(name, bytes, "%s.1", file->name);
    older = file_find(host, name);
    if (older != NULL) file_remove(host, older);
    mem_free(file->name);
    file->name = name;
}

/* What a power cut leaves of a file that was to be replaced: the old one, and beside it a beginning
 * of the new one under a name that nobody reads. */
static enum rc put_torn(struct sim_host *host, const char *name, const struct piece *pieces,
                        size_t pieces_count, struct fault *why)
{
    size_t half = pieces_count == 0 ? 0 : pieces[0].count / 2;
    struct sim_file *file;
    char beside[80];

    host->faults.tears_store = false;
    (void)snprintf(beside, sizeof beside, "%.64s.partial", name);
    file = file_make(host, beside, half);
    if (half > 0) memcpy(file->bytes, pieces[0].bytes, half);
    file->count = half;
    return fault_set(why, RC_IO, "cannot write %.64s: interrupted", name);
}

enum rc sim_env_store_put(struct env *env, const char *name, const struct piece *pieces,
                          size_t pieces_count, struct fault *why)
{
    struct sim_host *host = sim_env_host(env);
    struct sim_file *file;
    size_t total = 0;
    enum rc rc = write_check(env, name, why);

    if (rc != RC_OK) return rc;
    for (size_t i = 0; i < pieces_count; i++) {
        total += pieces[i].count;
    }
    if (host->faults.tears_store) return put_torn(host, name, pieces, pieces_count, why);
    file = file_make(host, name, total);
    file->count = 0;
    for (size_t i = 0; i < pieces_count; i++) {
        if (pieces[i].count > 0) {
            memcpy((uint8_t *)file->bytes + file->count, pieces[i].bytes, pieces[i].count);
        }
        file->count += pieces[i].count;
    }
    CHECK(file->count == total);
    return RC_OK;
}

enum rc sim_env_store_get(struct env *env, const char *name, size_t bytes_max, void **bytes,
                          size_t *count, struct fault *why)
{
    const struct sim_file *file;
    char *copy;
    enum rc rc = store_check(env, name, why);

    if (rc != RC_OK) return rc;
    file = file_find(sim_env_host(env), name);
    if (file == NULL) return fault_set(why, RC_NOT_FOUND, "cannot read %.64s: no such file", name);
    if (file->count > bytes_max) {
        return fault_set(why, RC_LIMIT, "cannot read %.64s: larger than %zu bytes", name,
                         bytes_max);
    }
    copy = mem_alloc(file->count + 1);
    if (copy == NULL) return fault_set(why, RC_NOMEM, "cannot read %.64s: no memory", name);
    if (file->count > 0) memcpy(copy, file->bytes, file->count);
    *bytes = copy;
    *count = file->count;
    return RC_OK;
}

enum rc sim_env_store_append(struct env *env, const char *name, const void *bytes, size_t count,
                             size_t bytes_max, struct fault *why)
{
    struct sim_host *host = sim_env_host(env);
    struct sim_file *old;
    struct sim_file *file;
    enum rc rc = write_check(env, name, why);

    if (rc != RC_OK) return rc;
    if (host->faults.tears_store) count /= 2;
    old = file_find(host, name);
    if (old != NULL && bytes_max > 0 && old->count > 0 && old->count + count > bytes_max) {
        file_set_aside(host, old);
        old = NULL;
    }
    file = file_make(host, name, (old == NULL ? 0 : old->count) + count);
    if (count > 0) memcpy((uint8_t *)file->bytes + file->count, bytes, count);
    file->count += count;
    if (!host->faults.tears_store) return RC_OK;
    host->faults.tears_store = false;
    return fault_set(why, RC_IO, "cannot write %.64s: interrupted", name);
}

void sim_store_deinit(struct sim_host *host)
{
    struct sim_file *file;

    while ((file = TAILQ_FIRST(&host->files)) != NULL) {
        file_remove(host, file);
    }
}

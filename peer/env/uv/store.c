/* uv_store: the store of a real peer: files in one folder. Called from jobs; touches only `folder`,
 * which never changes. */
#include "peer/env/uv/env.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/env/store_name.h"

#include <limits.h>
#include <stdio.h>

enum { STORE_FILE_MODE = 0600 }; /* keys live here too */

static enum rc store_path(struct env *env, const char *name, char path[PATH_MAX], struct fault *why)
{
    const char *folder = uv_env_of(env)->folder;
    enum rc rc;
    int length;

    if (folder == NULL) return fault_set(why, RC_UNSUPPORTED, "this peer has no folder");
    rc = store_name_check(name, why);
    if (rc != RC_OK) return rc;
    length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_MAX) {
        return fault_set(why, RC_USAGE, "cannot use folder %.200s: its path is too long", folder);
    }
    return RC_OK;
}

enum rc uv_env_store_put(struct env *env, const char *name, const struct piece *pieces,
                         size_t pieces_count, struct fault *why)
{
    char path[PATH_MAX];
    enum rc rc = store_path(env, name, path, why);

    return rc != RC_OK ? rc : file_replace(path, pieces, pieces_count, STORE_FILE_MODE, why);
}

enum rc uv_env_store_get(struct env *env, const char *name, size_t bytes_max, void **bytes,
                         size_t *count, struct fault *why)
{
    char path[PATH_MAX];
    enum rc rc = store_path(env, name, path, why);

    return rc != RC_OK ? rc : file_read(path, bytes_max, bytes, count, why);
}

enum rc uv_env_store_append(struct env *env, const char *name, const void *bytes, size_t count,
                            size_t bytes_max, struct fault *why)
{
    char path[PATH_MAX];
    enum rc rc = store_path(env, name, path, why);

    return rc != RC_OK ? rc : file_append(path, bytes, count, bytes_max, why);
}

/* peer_folder: see peer_folder.h. */
#include "peer/files/peer_folder.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "peer/files/checkpoint.h"
#include "peer/files/journal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_FILE   "config.ini"
#define IDENTITY_FILE "identity.key"

enum { PATH_BYTES = 1024, NAME_BYTES = 32 }; /* NAME: of a file in the folder */

static const char *path_in(const struct peer_folder *folder, const char *name,
                           char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", folder->path, name);
    return path;
}

static bool holds(const struct peer_folder *folder, const char *name)
{
    char path[PATH_BYTES];

    return file_is_there(path_in(folder, name, path));
}

bool peer_folder_has_checkpoint(const struct peer_folder *folder)
{
    return folder->path != NULL && holds(folder, CHECKPOINT_STATE_FILE);
}

static enum rc adopt_config(struct options *options, struct peer_folder *folder, struct fault *why)
{
    char path[PATH_BYTES];
    void *text = NULL;
    enum rc rc;

    if (!holds(folder, CONFIG_FILE)) return RC_OK;
    rc = file_read(path_in(folder, CONFIG_FILE, path), CONFIG_BYTES_MAX, &text,
                   &folder->config_bytes, why);
    if (rc != RC_OK) return rc;
    folder->config = text;
    return options_adopt(options, path, text, folder->config_bytes, why);
}

/* A checkpoint without the flags it was made with could be gone on with by other ones, without its
 * swarm's key for one. A model alone is somebody's work, and the first checkpoint would replace it.
 */
static enum rc check_run(struct peer_folder *folder, struct fault *why)
{
    folder->has_run = peer_folder_has_checkpoint(folder);
    if (folder->has_run && folder->config == NULL) {
        return fault_set(why, RC_USAGE,
                         "--out %s holds a checkpoint, but " CONFIG_FILE
                         ", which has the flags it was made with, is missing; put that file back, "
                         "or take another --out",
                         folder->path);
    }
    if (folder->has_run || !holds(folder, CHECKPOINT_MODEL_FILE)) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--out %s holds a model, but no checkpoint to resume from; to train on from "
                     "that model, take another --out and --init %s/" CHECKPOINT_MODEL_FILE,
                     folder->path, folder->path);
}

/* How much of a path is there: "" of it for a relative one at worst. */
static size_t existing_bytes(const char *path)
{
    char partial[PATH_BYTES];
    size_t there = 0;

    if (strlen(path) >= sizeof partial) return strlen(path);
    memcpy(partial, path, strlen(path) + 1);
    for (char *at = partial + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        if (!file_is_there(partial)) break;
        there = strlen(partial);
        *at = '/';
    }
    return there;
}

enum rc peer_folder_open(struct options *options, struct peer_folder *folder, struct fault *why)
{
    enum rc rc;

    *folder = (struct peer_folder){.path = options_text(options, "out"), .lock = {.fd = -1}};
    if (folder->path == NULL) return RC_OK;
    if (strlen(folder->path) > PATH_BYTES - NAME_BYTES) {
        folder->path = NULL;
        return fault_set(why, RC_USAGE, "--out: the path is too long");
    }
    folder->was_made = !file_is_there(folder->path);
    folder->parents_bytes = existing_bytes(folder->path);
    rc = file_make_folder(folder->path, why);
    if (rc == RC_OK) rc = file_lock_folder(folder->path, &folder->lock, why);
    folder->is_read_only = rc == RC_UNSUPPORTED; /* where nobody can write nobody is in the way */
    if (rc != RC_OK && !folder->is_read_only) return rc;
    folder->had_identity = holds(folder, IDENTITY_FILE);
    folder->had_config = holds(folder, CONFIG_FILE);
    rc = adopt_config(options, folder, why);
    return rc == RC_OK ? check_run(folder, why) : rc;
}

static enum rc keep_config(const struct peer_folder *folder, const struct options *options,
                           const char *chosen, struct env *env, struct fault *why)
{
    char *config = options_config_text(options);
    struct piece pieces[2];
    enum rc rc = RC_OK;

    if (config == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    pieces[0] = (struct piece){config, strlen(config)};
    pieces[1] = (struct piece){chosen, strlen(chosen)};
    if (folder->config == NULL || folder->config_bytes != pieces[0].count + pieces[1].count ||
        memcmp(folder->config, config, pieces[0].count) != 0 ||
        memcmp(folder->config + pieces[0].count, chosen, pieces[1].count) != 0) {
        rc = env->ops->store_put(env, CONFIG_FILE, pieces, 2, why);
    }
    mem_free(config);
    return rc;
}

enum rc peer_folder_keep(const struct peer_folder *folder, const struct options *options,
                         const char *chosen, struct env *env, const struct log *log,
                         const struct address_book *book, struct fault *why)
{
    enum rc rc;

    if (folder->path == NULL) return RC_OK;
    rc = keep_config(folder, options, chosen, env, why);
    if (rc == RC_OK) rc = address_book_store(env, book, why);
    if (rc == RC_OK || rc == RC_NOMEM || folder->config == NULL) return rc;
    log_warn(log, "%s; going on with what is there%s", why->text,
             folder->is_read_only ? ", and nothing new is kept" : "");
    return RC_OK;
}

/* The folder and those above it that were made for it. One with anything in it stays. */
static void remove_made(const struct peer_folder *folder)
{
    char partial[PATH_BYTES];

    if (!folder->was_made || strlen(folder->path) >= sizeof partial) return;
    memcpy(partial, folder->path, strlen(folder->path) + 1);
    while (strlen(partial) > folder->parents_bytes && rmdir(partial) == 0) {
        char *slash;
        do {
            slash = strrchr(partial, '/');
            if (slash == NULL) return;
            *slash = '\0';
        } while (slash[1] == '\0'); /* "a//b", "a/" */
    }
}

bool peer_folder_is_bare(const struct peer_folder *folder)
{
    return folder->path != NULL && !folder->had_config && !peer_folder_has_checkpoint(folder);
}

/* What a start writes before its first checkpoint. In a folder that was there before, config and
 * identity alone. */
static void remove_written(const struct peer_folder *folder)
{
    static const char *const names[] = {CONFIG_FILE, ADDRESS_BOOK_FILE, METRICS_FILE, LOG_FILE};
    const size_t count = folder->was_made ? ARRAY_COUNT(names) : 1;
    char path[PATH_BYTES];

    if (!folder->had_identity) (void)unlink(path_in(folder, IDENTITY_FILE, path));
    for (size_t i = 0; i < count; i++) {
        (void)unlink(path_in(folder, names[i], path));
    }
}

void peer_folder_close(struct peer_folder *folder, bool is_undone)
{
    char path[PATH_BYTES];

    if (folder->path == NULL) return;
    if (is_undone && folder->lock.fd >= 0 && peer_folder_is_bare(folder)) remove_written(folder);
    mem_free(folder->config);
    folder->config = NULL;
    file_lock_release(path_in(folder, "lock", path), &folder->lock,
                      is_undone && folder->lock.was_made);
    if (is_undone) remove_made(folder);
}

const char *peer_folder_identity(const struct peer_folder *folder, char *path, size_t cap)
{
    if (folder->path == NULL) return NULL;
    snprintf(path, cap, "%s/" IDENTITY_FILE, folder->path);
    return path;
}

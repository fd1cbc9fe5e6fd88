/* peer_folder: see peer_folder.h. */
#include "peer/peer_folder.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_FILE "config.ini"

enum { PATH_BYTES = 1024 };

static enum rc adopt_config(struct options *options, const char *folder, struct fault *why)
{
    static const char *const keys[] = {
        "model",      "data",    "averaging",  "topology",  "exchange", "codec",
        "rule",       "pace",    "robust",     "optimizer", "batch",    "clip",
        "accumulate", "augment", "shard",      "shard-of",  "seed",     "swarm-name",
        "precision",  "hogwild", "lr-scaling", "moments",   NULL};
    char path[PATH_BYTES];
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc;

    snprintf(path, sizeof path, "%s/" CONFIG_FILE, folder);
    if (!file_is_there(path)) return RC_OK;
    rc = file_read(path, CONFIG_BYTES_MAX, &text, &bytes, why);
    if (rc == RC_OK) rc = options_adopt(options, path, text, bytes, keys, why);
    mem_free(text);
    return rc;
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
    char identity[PATH_BYTES];
    enum rc rc;

    *folder = (struct peer_folder){.path = options_text(options, "out")};
    if (folder->path == NULL) return RC_OK;
    folder->was_made = !file_is_there(folder->path);
    folder->parents_bytes = existing_bytes(folder->path);
    rc = file_make_folder(folder->path, why);
    if (rc != RC_OK) return rc;
    folder->had_identity = file_is_there(peer_folder_identity(folder, identity, sizeof identity));
    return adopt_config(options, folder->path, why);
}

enum rc peer_folder_keep(const struct peer_folder *folder, const struct options *options,
                         const char *chosen, struct env *env, const struct address_book *book,
                         struct fault *why)
{
    struct piece pieces[2];
    char *config;
    enum rc rc;

    if (folder->path == NULL) return RC_OK;
    config = options_config_text(options);
    if (config == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    pieces[0] = (struct piece){config, strlen(config)};
    pieces[1] = (struct piece){chosen, strlen(chosen)};
    rc = env->ops->store_put(env, CONFIG_FILE, pieces, 2, why);
    mem_free(config);
    return rc == RC_OK ? address_book_store(env, book, why) : rc;
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

void peer_folder_undo(const struct peer_folder *folder)
{
    char identity[PATH_BYTES];

    if (folder->path == NULL) return;
    if (!folder->had_identity) {
        (void)unlink(peer_folder_identity(folder, identity, sizeof identity));
    }
    remove_made(folder);
}

const char *peer_folder_identity(const struct peer_folder *folder, char *path, size_t cap)
{
    if (folder->path == NULL) return NULL;
    snprintf(path, cap, "%s/identity.key", folder->path);
    return path;
}

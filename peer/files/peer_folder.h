/*
 * peer_folder: what a peer's --out remembers between starts (config.ini, swarm.json, identity.key).
 * It is locked before anything in it is read, so a folder is one process's at a time. Nothing is
 * written before all flags have proved to be of use: a mistyped one must not be what the folder
 * says from then on. Blocking: before the loop runs.
 */
#ifndef GRAPEVINE_PEER_FILES_PEER_FOLDER_H
#define GRAPEVINE_PEER_FILES_PEER_FOLDER_H

#include "base/file_lock.h"
#include "base/log.h"
#include "peer/cli/options.h"
#include "peer/files/address_book.h"

struct peer_folder {
    const char *path; /* NULL: without --out, and then nothing below does anything */
    struct file_lock lock;
    bool was_made, had_identity, had_config, is_read_only;
    bool has_run;         /* there is a checkpoint to go on from */
    size_t parents_bytes; /* so much of `path` was there before */
    char *config;         /* config.ini as it was found; NULL: there was none */
    size_t config_bytes;
};

/** Make the folder, lock it, and take from an older one's config.ini what flags have not said.
 *  RC_USAGE names the flags that say something else, or what makes the folder one that cannot be
 *  gone on with; RC_BUSY who has it. To be closed in any case. */
MUST_USE enum rc peer_folder_open(struct options *options, struct peer_folder *folder,
                                  struct fault *why);
/** Write all that is in force, where it is not written there yet, and the book with the incarnation
 *  about to be used. `chosen`: lines of comment about what the model and the method have chosen
 *  where no flag said it. In a folder that is gone on with what cannot be written is a warning. */
MUST_USE enum rc peer_folder_keep(const struct peer_folder *folder, const struct options *options,
                                  const char *chosen, struct env *env, const struct log *log,
                                  const struct address_book *book, struct fault *why);
/** Is there a checkpoint in it by now? */
bool peer_folder_has_checkpoint(const struct peer_folder *folder);
/** Nothing was learned in it: it was new, and there is no checkpoint. */
bool peer_folder_is_bare(const struct peer_folder *folder);
/** Let go of it. With `is_undone`, as the start failed, what this process has made is gone again,
 *  so that other flags may be given. */
void peer_folder_close(struct peer_folder *folder, bool is_undone);
/** "PATH/identity.key"; NULL without a folder. */
const char *peer_folder_identity(const struct peer_folder *folder, char *path, size_t cap);

#endif

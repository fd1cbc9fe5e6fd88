/*
 * peer_folder: what a peer's --out remembers between starts (config.ini, swarm.json, identity.key).
 * Nothing is written before all flags have proved to be of use: a mistyped one must not be what the
 * folder says from then on. Blocking: before the loop runs.
 */
#ifndef GRAPEVINE_PEER_PEER_FOLDER_H
#define GRAPEVINE_PEER_PEER_FOLDER_H

#include "peer/address_book.h"
#include "peer/options.h"

struct peer_folder {
    const char *path; /* NULL: without --out, and then nothing below does anything */
    bool was_made, had_identity;
    size_t parents_bytes; /* so much of `path` was there before */
};

/** Make the folder, or take from an older one's config.ini what flags have not said. RC_USAGE names
 *  the key if they say something else. */
MUST_USE enum rc peer_folder_open(struct options *options, struct peer_folder *folder,
                                  struct fault *why);
/** Write all that is in force, and the book with the incarnation about to be used. `chosen`: lines
 *  of comment about what the model and the method have chosen where no flag said it. */
MUST_USE enum rc peer_folder_keep(const struct peer_folder *folder, const struct options *options,
                                  const char *chosen, struct env *env,
                                  const struct address_book *book, struct fault *why);
/** The start failed: what was made for the folder is gone again. */
void peer_folder_undo(const struct peer_folder *folder);
/** "PATH/identity.key"; NULL without a folder. */
const char *peer_folder_identity(const struct peer_folder *folder, char *path, size_t cap);

#endif

/*
 * file_lock: a file that one process holds at a time. The kernel lets go of it when the process
 * ends, however it ends, and says who holds it, so nothing has to be written and nothing is stale.
 */
#ifndef GRAPEVINE_BASE_FILE_LOCK_H
#define GRAPEVINE_BASE_FILE_LOCK_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>

struct file_lock {
    int fd; /* -1: not held */
    bool was_made;
};

/** Take `path`, which is made where it is missing, until file_lock_release() or the end of the
 *  process. RC_BUSY: another process has it, and `holder` is its number (0: not in sight from
 *  here). RC_UNSUPPORTED: the file system is read-only. RC_IO, as other errors, with words. */
MUST_USE enum rc file_lock_take(const char *path, struct file_lock *lock, long *holder,
                                struct fault *why);
/** The same of "FOLDER/lock", for a folder given as --out: RC_BUSY comes with words that say who
 * has it. At most 1,000 bytes of `folder`. */
MUST_USE enum rc file_lock_folder(const char *folder, struct file_lock *lock, struct fault *why);
/** Let go of it; with `is_removed` the file goes, too. One that is not held is fine. */
void file_lock_release(const char *path, struct file_lock *lock, bool is_removed);

#endif

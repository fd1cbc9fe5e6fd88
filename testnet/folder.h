/*
 * folder: the folder of a testnet's run. What a testnet leaves there is known by name, so that
 * starting afresh removes that and never a file of somebody else's.
 */
#ifndef GRAPEVINE_TESTNET_FOLDER_H
#define GRAPEVINE_TESTNET_FOLDER_H

#include "base/fault.h"
#include "base/file_lock.h"
#include "base/rc.h"

#include <stdbool.h>

/* Runs for comparison have folders of their own in that of the swarm. */
#define FOLDER_ALONE    "alone"
#define FOLDER_ALL_DATA "all-data"

enum folder_wish { FOLDER_NEW, FOLDER_RESUME, FOLDER_FRESH };

/** Make `path` and lock it: it is one testnet's at a time. RC_BUSY says who has it. Where nothing
 * can be written nothing is locked. */
MUST_USE enum rc folder_lock(const char *path, struct file_lock *lock, struct fault *why);
void folder_unlock(const char *path, struct file_lock *lock);
/** Make `path`, or take it as it is (RESUME), or set aside in it what an earlier run left (FRESH),
 *  until it is clear that the new run begins. NEW needs it empty, FRESH without anything that no
 *  testnet left: RC_USAGE says what to do, and nothing was touched. */
MUST_USE enum rc folder_prepare(const char *path, enum folder_wish wish, struct fault *why);
/** The new run has begun: remove for good what was set aside. */
MUST_USE enum rc folder_settle(const char *path, struct fault *why);
/** There is no new run: remove what there is of it, and put back what was set aside. RESUME does
 *  the same for a run that was killed between the two. */
MUST_USE enum rc folder_undo(const char *path, struct fault *why);
/** Make `path`, which is a baseline's; what an earlier one left there goes. */
MUST_USE enum rc folder_empty(const char *path, struct fault *why);
/** Is anything set aside? */
bool folder_has_aside(const char *path);

#endif

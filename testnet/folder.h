/*
 * folder: the folder of a testnet's run. What a testnet leaves there is known by name, so that
 * starting afresh removes that and never a file of somebody else's.
 */
#ifndef GRAPEVINE_TESTNET_FOLDER_H
#define GRAPEVINE_TESTNET_FOLDER_H

#include "base/fault.h"
#include "base/rc.h"

enum folder_wish { FOLDER_NEW, FOLDER_RESUME, FOLDER_FRESH };

/** Make `path`, or take it as it is (RESUME), or remove what an earlier run left (FRESH). NEW and
 *  FRESH need it empty then: RC_USAGE says what to do. */
MUST_USE enum rc folder_prepare(const char *path, enum folder_wish wish, struct fault *why);

#endif

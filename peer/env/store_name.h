/* store_name: which names the store of an env takes, the same in both worlds. */
#ifndef GRAPEVINE_PEER_ENV_STORE_NAME_H
#define GRAPEVINE_PEER_ENV_STORE_NAME_H

#include "base/fault.h"
#include "base/rc.h"

enum { STORE_NAME_BYTES = 64 }; /* with NUL */

/** RC_USAGE unless it is [a-z0-9._-]+, not starting with a dot, short enough. */
MUST_USE enum rc store_name_check(const char *name, struct fault *why);

#endif

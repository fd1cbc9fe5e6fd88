/* store_name: which names the store of an env takes, the same in both worlds. */
#ifndef GRAPEVINE_PEER_ENV_STORE_NAME_H
#define GRAPEVINE_PEER_ENV_STORE_NAME_H

#include <stdbool.h>

enum { STORE_NAME_BYTES = 64 }; /* with NUL */

/** [a-z0-9._-]+, not starting with a dot, short enough. */
bool store_name_is_valid(const char *name);

#endif

/* store_name: no separators and no leading dot, so that a name can never leave the folder. */
#include "peer/env/store_name.h"

#include <string.h>

enum rc store_name_check(const char *name, struct fault *why)
{
    size_t bytes = strlen(name);

    if (bytes > 0 && bytes < STORE_NAME_BYTES && name[0] != '.' &&
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == bytes) {
        return RC_OK;
    }
    return fault_set(why, RC_USAGE,
                     "cannot store under the name '%.64s': letters a-z, digits, '.', '_', '-' only",
                     name);
}

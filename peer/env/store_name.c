/* store_name: no separators and no leading dot, so that a name can never leave the folder. */
#include "peer/env/store_name.h"

#include <string.h>

bool store_name_is_valid(const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0 || bytes >= STORE_NAME_BYTES || name[0] == '.') return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == bytes;
}

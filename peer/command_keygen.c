/* command_keygen: not in this build yet. */
#include "peer/command.h"

int command_keygen(const struct options *options)
{
    struct fault why = {"keygen: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

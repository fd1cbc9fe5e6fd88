/* command_peer: not in this build yet. */
#include "peer/command.h"

int command_peer(const struct options *options)
{
    struct fault why = {"peer: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

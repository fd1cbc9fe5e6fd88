/* command_inspect: not in this build yet. */
#include "peer/command.h"

int command_inspect(const struct options *options)
{
    struct fault why = {"inspect: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

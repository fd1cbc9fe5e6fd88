/* command_status: not in this build yet. */
#include "peer/command.h"

int command_status(const struct options *options)
{
    struct fault why = {"status: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

/* command_average: not in this build yet. */
#include "peer/command.h"

int command_average(const struct options *options)
{
    struct fault why = {"average: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

/* command_distill: not in this build yet. */
#include "peer/command.h"

int command_distill(struct options *options)
{
    struct fault why = {"distill: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

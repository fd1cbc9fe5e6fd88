/* command_eval: not in this build yet. */
#include "peer/command.h"

int command_eval(const struct options *options)
{
    struct fault why = {"eval: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

/* command_bench: not in this build yet. */
#include "peer/command.h"

int command_bench(struct options *options)
{
    struct fault why = {"bench: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

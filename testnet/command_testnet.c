/* command_testnet: not in this build yet. */
#include "peer/command.h"

int command_testnet(struct options *options)
{
    struct fault why = {"testnet: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

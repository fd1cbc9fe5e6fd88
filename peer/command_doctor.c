/* command_doctor: not in this build yet. */
#include "peer/command.h"

int command_doctor(const struct options *options)
{
    struct fault why = {"doctor: this build has no such command; update grapevine"};

    (void)options;
    return command_failed(RC_UNSUPPORTED, &why);
}

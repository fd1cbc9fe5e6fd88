/* bootstrap: the addresses to join a swarm by, from `--bootstrap HOST:PORT[,HOST:PORT...]` or, with
 *  `@FILE`, from a file of one address a line (blank lines and lines that begin with # are
 * skipped). */
#ifndef GRAPEVINE_PEER_SESSION_BOOTSTRAP_H
#define GRAPEVINE_PEER_SESSION_BOOTSTRAP_H

#include "base/fault.h"
#include "base/rc.h"
#include "gossip/wire/limits.h"

#include <stddef.h>

enum { BOOTSTRAP_MAX = 64 };

struct bootstrap {
    char addresses[BOOTSTRAP_MAX][ADDRESS_BYTES_MAX];
    size_t count;
};

/** NULL `spec`: none. RC_USAGE names the address that is wrong, and the file. */
MUST_USE enum rc bootstrap_parse(const char *spec, struct bootstrap *bootstrap, struct fault *why);

#endif

/*
 * progress: how far a long command is, on stderr: on a terminal one line that is written over,
 * elsewhere a line every ten seconds; with --quiet nothing. What is left is estimated from what is
 * done. Work of less than a second is not told of. Commands.
 */
#ifndef GRAPEVINE_PEER_CLI_PROGRESS_H
#define GRAPEVINE_PEER_CLI_PROGRESS_H

#include "peer/cli/command.h"

struct progress {
    struct log log; /* elsewhere than on a terminal */
    bool is_terminal, is_drawn;
    const char *doing; /* the phase in force; NULL: none */
    uint64_t begin_ns, told_ns;
};

void progress_init(struct progress *progress, const struct options *options);
/** `share` of `doing` (static text: "evaluating") is done; 0: nobody knows. All of it, or another
 *  `doing` than before, ends it. `detail` comes behind; "": none. Call it as often as you like. */
void progress_tell(struct progress *progress, const char *doing, double share, const char *detail);
/** All is done: say in how many seconds. */
void progress_end(struct progress *progress);
/** Make room for other lines, also on an error. Nothing is drawn afterwards until the next call. */
void progress_clear(struct progress *progress);

#endif

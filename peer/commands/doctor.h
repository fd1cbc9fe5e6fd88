/* doctor: findings about this machine and its way to the swarm, each with what to do about it. */
#ifndef GRAPEVINE_PEER_COMMANDS_DOCTOR_H
#define GRAPEVINE_PEER_COMMANDS_DOCTOR_H

#include "base/fault.h"
#include "peer/cli/options.h"
#include "peer/session/bootstrap.h"

enum verdict { VERDICT_FINE, VERDICT_NOTE, VERDICT_BROKEN };

enum { FINDINGS_MAX = 2 * BOOTSTRAP_MAX + 32 };

struct finding {
    enum verdict verdict;
    char what[96];
    char text[480]; /* how it is */
    char fix[240];  /* what to do; "": nothing */
};

struct doctor {
    const struct options *options;
    struct finding findings[FINDINGS_MAX];
    size_t findings_count;
};

/** `fix`: what to do, or "". The text is formatted; RC errors of others fit in it. */
void doctor_add(struct doctor *doctor, enum verdict verdict, const char *what, const char *fix,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
/** Bind --listen, go through the handshake with every bootstrap address, compare models, and be
 *  dialled back: within 5 seconds. Uses a key that nobody has seen, or that of --identity if the
 *  file is there. RC_USAGE and the like if the options themselves are of no use. */
MUST_USE enum rc doctor_network(struct doctor *doctor, const struct bootstrap *bootstrap,
                                struct fault *why);

#endif

/*
 * chaos: when which fault strikes a testnet, from a `--chaos` spec and a seed. Faults of a kind
 * come at exponentially distributed intervals (a Poisson process over the whole testnet, not per
 * peer) and hit one of the peers that can be hit, each as likely.
 *
 *   kill:mtbf=15s,restart=5s     SIGKILL about every 15 s; started again 5 s later
 *   freeze:mtbf=20s,for=3s       SIGSTOP, and SIGCONT 3 s later
 *   partition:mtbf=60s,for=10s   nothing passes between a random half and the rest
 *   slow:mtbf=30s,for=10s        computes ten times slower
 *
 * With real processes a slowed one is let run for a tenth of the time, and a partition is made in
 * the gates through which they dial each other (testnet/local_lines.c). Rules are joined with `;`.
 * The clock is passed in; the testnet's loop thread.
 */
#ifndef GRAPEVINE_TESTNET_CHAOS_H
#define GRAPEVINE_TESTNET_CHAOS_H

#include "base/fault.h"
#include "base/rc.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum chaos_kind { CHAOS_KILL, CHAOS_FREEZE, CHAOS_PARTITION, CHAOS_SLOW, CHAOS_KIND_COUNT };
enum { CHAOS_RULES_MAX = 8 };

struct chaos_rule {
    enum chaos_kind kind;
    uint64_t mtbf_ns;  /* mean time between faults, > 0 */
    uint64_t after_ns; /* until it is undone: restarted, thawed */
};

struct chaos {
    struct chaos_rule rules[CHAOS_RULES_MAX];
    size_t rules_count;
    struct rng rngs[CHAOS_RULES_MAX];  /* a stream a rule */
    uint64_t next_ns[CHAOS_RULES_MAX]; /* when it strikes next */
};

/** Parse `spec` (NULL or "": no faults). Errors point at the column. */
MUST_USE enum rc chaos_parse(const char *spec, struct chaos *chaos, struct fault *why);
/** Draw the first times. */
void chaos_begin(struct chaos *chaos, uint64_t seed, uint64_t now_ns);
/** Take one rule that is due; false: none. The rule's next time is drawn. */
bool chaos_due(struct chaos *chaos, uint64_t now_ns, size_t *rule);
/** One of `candidates` > 0, by the rule's own stream. */
uint32_t chaos_pick(struct chaos *chaos, size_t rule, uint32_t candidates);
const char *chaos_name(enum chaos_kind kind);

#endif

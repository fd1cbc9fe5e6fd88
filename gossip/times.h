/*
 * times: every time constant of gossip/, with its unit (the name ends in it) and its reason. What
 * follows from a rate (a token's cost, say) stays beside the rate. It leans on nothing, so each
 * folder of the module may include it.
 */
#ifndef GRAPEVINE_GOSSIP_TIMES_H
#define GRAPEVINE_GOSSIP_TIMES_H

#include "base/bytes.h"

/* What strangers may cost (door/gate.c; its rations by rate are in gate.h), and scores. */
#define GATE_HALF_FULL_NS  NS_PER_S         /* one second's worth of answers may come at once */
#define GATE_STALLED_NS    NS_PER_S         /* a handshake this old makes way for another */
#define SCORE_HALF_LIFE_NS (600 * NS_PER_S) /* of points: a fault is half forgiven */

/* What a line carries (flow/rate_meter.h). */
#define METER_BUSY_NS (20 * NS_PER_MS) /* a shorter one measures the machine, not the line */
#define METER_AGE_NS  (600 * NS_PER_S) /* an older sample says nothing: lines change */

/* Liveness: pings, silence, the peer's own health (membership/probe.c). */
#define PING_TIMEOUT_MIN_NS (500 * NS_PER_MS)      /* a busy host answers within it */
#define GOSSIP_INTERVAL_NS  (200 * NS_PER_MS)      /* news crosses 1,000 members in two seconds */
#define SILENT_MIN_NS       (3 * NS_PER_S)         /* no silence shorter than this counts */
#define SILENT_MAX_NS       (20 * NS_PER_S)        /* nor does more, before the health factor */
#define HEALTH_STEP_NS      (10 * NS_PER_S)        /* quiet, for one step of health regained */
#define DEAD_FORGOTTEN_NS   (24 * 3600 * NS_PER_S) /* a day: a host that is repaired still heals */
#define PERIOD_CHECK_NS     (5 * NS_PER_S)         /* between two looks at the median round trip */
#define RTT_WAN_NS          (60 * NS_PER_MS)       /* median round trip: the slower rhythm ... */
#define RTT_LAN_NS          (40 * NS_PER_MS)       /* ... and the quicker one again */
#define RTT_SAMPLE_MAX_NS   (60 * NS_PER_S)        /* a longer one is a host that slept */

/* Suspicion and refutation (membership/suspect.c, membership.c). */
#define SUSPECT_MIN_NS   (2 * NS_PER_S)     /* a suspect has at least this: time for one redial */
#define SUSPECT_TOLD_NS  NS_PER_S           /* between two accusations passed to their subject */
#define SELF_DOUBT_NS    (60 * NS_PER_S)    /* between doubts of ourselves on one member's word */
#define MEMBER_DAMPED_NS (10 * NS_PER_S)    /* between two changes of a member that are told on */
#define DEAD_HINT_NS     (10 * NS_PER_S)    /* between dials of the dead that others still name */
#define RENEW_GAP_NS     (5 * NS_PER_S)     /* between newer records of a member never linked ... */
#define RENEW_BURST_NS   (4 * RENEW_GAP_NS) /* ... after four at once */

/* Anti-entropy (membership/sync.c). */
#define SYNC_FIRST_NS   NS_PER_S          /* after news: others have it too by then */
#define SYNC_MAX_NS     (30 * NS_PER_S)   /* between comparisons of books where nothing changes */
#define SYNC_ASK_GAP_NS (500 * NS_PER_MS) /* between questions to new links of a large swarm */

/* Dialling (membership/dial.c, host.c). */
#define BOOTSTRAP_FIRST_NS     (100 * NS_PER_MS)  /* peers started together come up in any order */
#define BOOTSTRAP_ALONE_MAX_NS (2 * NS_PER_S)     /* a peer that is alone keeps trying quickly */
#define BOOTSTRAP_LINKED_NS    (60 * NS_PER_S)    /* swarms that never met find each other */
#define DIAL_SPREAD_NS         (50 * NS_PER_MS)   /* at random: all would dial a newcomer at once */
#define BACKOFF_FIRST_NS       NS_PER_S           /* after a dial in vain; doubled each time ... */
#define BACKOFF_MAX_NS         (60 * NS_PER_S)    /* ... up to this */
#define BACKOFF_ALONE_MAX_NS   (5 * NS_PER_S)     /* ... or this, while the peer has no link */
#define BACKOFF_VOUCHED_NS     (10 * NS_PER_S)    /* ... or this, where others reach the member */
#define DIAL_PUT_OFF_NS        (5 * NS_PER_S)     /* after a dial that there was no place for */
#define DIAL_TURN_NS           (300 * NS_PER_MS)  /* the larger id waits for the smaller's dial */
#define DIAL_LASTS_MAX_NS      (15 * NS_PER_S)    /* a dial that never ends gives its place back */
#define DIAL_GAP_NS            (NS_PER_S / 32)    /* 32 dials a second ... */
#define DIAL_BURST_NS          (64 * DIAL_GAP_NS) /* ... after 64 at once */
#define HOST_GAP_NS            NS_PER_S           /* of dials of a host where nobody was met ... */
#define HOST_AGAIN_NS          (600 * NS_PER_S)   /* ... and after eight in vain: no member's */

/* The active view of a large swarm (membership/view.c, keep.c). */
#define VIEW_TICK_NS         (500 * NS_PER_MS) /* between two looks at the number of links */
#define VIEW_PROBE_NS        (10 * NS_PER_S)   /* a random member is dialled: rumours are checked */
#define VIEW_PROBE_MISLED_NS NS_PER_S          /* likewise many, while we seem to be misled */
#define VIEW_SHUFFLE_NS      (60 * NS_PER_S)   /* one link is exchanged for another */
#define VIEW_PART_NS         NS_PER_S          /* PRUNE goes first, then the link */
#define VIEW_SETTLE_NS       (2 * NS_PER_S)    /* a new link gives its book away before its end */
#define VIEW_AVOID_MAX_NS    (600 * NS_PER_S)  /* the longest that a PRUNE keeps us from dialling */
#define VIEW_AVOID_KEPT_NS   (5 * NS_PER_S)    /* likewise of a wanted link: it may not know yet */
#define PRUNE_WAIT_MS        60000             /* ms that our PRUNE asks for: one shuffle */
#define VIEW_SMALL_NS        (10 * NS_PER_S)   /* full mesh for so long: only the met count */
#define KEPT_IN_VAIN_NS      (5 * NS_PER_S)    /* for a member nobody can dial to come for a link */

/* Dial-back (reach/reach.c). */
#define REACH_ANSWER_NS      (15 * NS_PER_S)          /* then a question counts as never asked */
#define REACH_ASK_GAP_NS     (NS_PER_S / 2)           /* between two questions of ours */
#define REACH_BUSY_NS        (45 * NS_PER_S)          /* before a busy neighbour is asked again */
#define REACH_AGAIN_NS       (600 * NS_PER_S)         /* before a witness is asked again */
#define REACH_EVIDENCE_NS    (3 * REACH_AGAIN_NS)     /* how long its evidence holds */
#define REACH_PEER_GAP_NS    (20 * NS_PER_S)          /* between dials for one asker */
#define REACH_SERVE_GAP_NS   (NS_PER_S / 2)           /* between two dials for all ... */
#define REACH_SERVE_BURST_NS (8 * REACH_SERVE_GAP_NS) /* ... after eight at once */

/* Relaying (reach/relay.c). */
#define RELAY_LEASE_NS  (600 * NS_PER_S) /* a reservation that is not renewed ends */
#define RELAY_ACCEPT_NS (5 * NS_PER_S)   /* for the target to answer */
#define RELAY_GRANT_NS  (20 * NS_PER_MS) /* between two grants at the rate of the relay */

#endif

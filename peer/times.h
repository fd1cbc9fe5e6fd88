/*
 * times: every time constant of peer/ but for peer/env, with its unit (the name ends in it) and its
 * reason. It leans on nothing, so each folder of the module may include it.
 */
#ifndef GRAPEVINE_PEER_TIMES_H
#define GRAPEVINE_PEER_TIMES_H

#include "base/bytes.h"

/* Links (link/). The first four are part of the wire (gossip/WIRE.md). */
#define LINK_REKEY_NS      (15 * 60 * NS_PER_S)    /* how long keys are used */
#define LINK_HANDSHAKE_NS  (5 * NS_PER_S)          /* from dial or accept to open */
#define LINK_DUEL_NS       (2 * NS_PER_S)          /* for one of two processes of an identity */
#define LINK_GATE_NS       (2 * NS_PER_S)          /* from accept to a whole H1 or ATTACH */
#define LINK_ATTACH_NS     (3 * NS_PER_S)          /* from wanting a bulk connection to it */
#define LINK_SPREAD_NS     (15 * NS_PER_S)         /* likewise, while another carries DATA */
#define LINK_BULK_RETRY_NS (60 * NS_PER_S)         /* after that failed */
#define LINK_BULK_IDLE_NS  (60 * NS_PER_S)         /* an unused bulk connection is closed */
#define LINK_BULK_STALE_NS (3 * LINK_BULK_IDLE_NS) /* for a last record on a slow line */
#define LINK_ORDER_NS      (20 * NS_PER_S)         /* DATA waits for earlier control messages */
#define LINK_CUT_NS        NS_PER_S                /* after the loss of a bulk connection */
#define SEAL_RETRY_NS      (100 * NS_PER_MS)       /* after a sealing without memory or place */
#define LINK_TELL_NS       (60 * NS_PER_S)         /* in which ten refusals are logged */

/* Observers (link/observer.c). */
#define OBSERVER_IDLE_NS       (60 * NS_PER_S)              /* idle: then it is closed */
#define OBSERVER_WANE_NS       (5 * NS_PER_S)               /* likewise, if another one wants in */
#define OBSERVER_ASK_NS        (NS_PER_S / 4)               /* four a second of one ... */
#define OBSERVER_ASK_BURST_NS  (4 * OBSERVER_ASK_NS)        /* ... after four at once */
#define OBSERVERS_ASK_NS       (NS_PER_S / 20)              /* twenty of all ... */
#define OBSERVERS_ASK_BURST_NS (20 * OBSERVERS_ASK_NS)      /* ... after twenty at once */
#define OBSERVER_ASK_RARE_NS   (NS_PER_S - OBSERVER_ASK_NS) /* one a second in any case */

/* Downloads: the donor (download/donor.c). */
#define DONOR_LEASE_MS  120000 /* ms after the last new thing sent the lease ends */
#define DONOR_LEASE_NS  (DONOR_LEASE_MS * NS_PER_MS)
#define DONOR_SHARED_NS (2 * NS_PER_S)   /* a younger snapshot serves the next joiner */
#define DONOR_CROWD_NS  (60 * NS_PER_S)  /* likewise where there is no room */
#define DONOR_LEFT_NS   (60 * NS_PER_S)  /* for a joiner with a lost link to return */
#define DONOR_STILL_NS  (10 * NS_PER_S)  /* a lease that stood still makes way */
#define DONOR_FAIR_NS   (60 * NS_PER_S)  /* and one older, and a second a bucket, too */
#define DONOR_LIFE_NS   (600 * NS_PER_S) /* and eight a bucket: the end in any case */
#define DONOR_GUEST_NS  (600 * NS_PER_S) /* it is remembered when a joiner came first */
#define DONOR_RETRY_MS  2000             /* ms until a refused joiner asks again */

/* Downloads: the joiner (download/joiner.c). */
#define JOINER_ANSWER_NS      (15 * NS_PER_S)   /* the donor may have to finish a step first */
#define JOINER_LISTED_NS      (5 * NS_PER_S)    /* for a page of the listing */
#define JOINER_STALLED_MIN_NS (20 * NS_PER_S)   /* eight joiners share what rounds leave */
#define JOINER_STALLED_MAX_NS (60 * NS_PER_S)   /* a donor that drips cannot stretch it */
#define JOINER_TRIAL_NS       (8 * NS_PER_S)    /* a donor's speed is measured */
#define JOINER_REST_NS        (60 * NS_PER_S)   /* a longer rest has another donor tried */
#define JOINER_SLACK_NS       (100 * NS_PER_MS) /* on top of four usual intervals between buckets */

/* The node (node/). */
#define NODE_ALARM_NS       NS_PER_MS       /* between two wake-ups */
#define NODE_PROGRESS_NS    NS_PER_S        /* neighbours hear how far we are */
#define INPUT_AGREE_NS      (10 * NS_PER_S) /* for one normalisation; then the one that most hold */
#define VERIFY_SHOW_NS      (10 * NS_PER_S) /* an asker that is silent makes way */
#define VERIFY_SLICE_NS     (250 * NS_PER_MS) /* for each, on average: who drips is given up */
#define VERIFY_ASK_NS       (20 * NS_PER_S)   /* for a slice: a long step may be in the way */
#define NODE_TRAIN_JOB_NS   (5 * NS_PER_MS)   /* aimed length of a training job */
#define NODE_PROGRAM_JOB_NS (50 * NS_PER_MS)  /* the same, where a program takes the steps */
#define NODE_GRAPH_NS       (NS_PER_S / 5)    /* between two looks at the graph of the topology */
#define NODE_AHEAD_NS       (2 * NS_PER_S)    /* between two at the groups of later rounds */
#define NODE_BEGUN_NS       (120 * NS_PER_S)  /* a peer older than this is not new */
#define NODE_JUDGE_NS       (60 * NS_PER_S)   /* certificates run out: are all still let in? */
#define NODE_RETRY_NS       NS_PER_S          /* before a failed download is begun again */
#define NODE_AVOID_NS       (5 * NS_PER_S)    /* others are asked before those it failed with */
#define NODE_PROBE_NS       NS_PER_S          /* an idle link is pinged */

/* Trust in members (node/trust.c), partners of pairs (node/partners.c). */
#define TRUST_PAUSE_NS       (2 * NS_PER_S)   /* after a proven member's first miss, else twice */
#define TRUST_PIN_NS         (60 * NS_PER_S)  /* after a promise without a decision */
#define TRUST_BAN_NS         (600 * NS_PER_S) /* after offences */
#define TRUST_FORGIVE_NS     (600 * NS_PER_S) /* without a fault: one broken promise is forgiven */
#define TRUST_FORGET_NS      (60 * NS_PER_S)  /* at least, without a fault: misses count anew */
#define TRUST_PERIOD_MAX_NS  (300 * NS_PER_S) /* longer periods do not lengthen pauses further */
#define PARTNERS_WAIT_MIN_NS (10 * NS_PER_MS) /* after three refusals; doubled each time ... */
#define PARTNERS_WAIT_MAX_NS NS_PER_S         /* ... up to this */

/* Reachability and relays (node/door). */
#define REACH_ASK_AFTER_NS (2 * NS_PER_S)  /* a link settles before it is asked to dial back */
#define RELAY_LOOK_NS      (2 * NS_PER_S)  /* between two looks at who needs a relay */
#define RELAY_ANSWER_NS    (10 * NS_PER_S) /* for a lease */
#define RELAY_REFUSED_NS   (60 * NS_PER_S) /* before a relay that refused is asked again */
#define RELAY_WISH_NS      (4 * NS_PER_S)  /* between tries for one member; doubled each time */
#define RELAY_ALONE_NS     (30 * NS_PER_S) /* without a relay: then the user hears of it */

/* Which model (node/models). */
#define MODELS_GATHER_NS    NS_PER_S        /* for links to more members that could give a model */
#define MODELS_CATCH_UP_NS  (10 * NS_PER_S) /* a longer download is behind when it is here */
#define MODELS_REQUESTS_NS  (60 * NS_PER_S) /* in which requests of one neighbour are counted */
#define MODELS_ASK_AGAIN_MS 500             /* ms until who was refused asks again */
#define CHOICE_MET_NS       NS_PER_S        /* linked for so long, a neighbour counts */
#define CHOICE_OUTVOTE_NS   NS_PER_S        /* and more must hold the other model for so long */
#define CHOICE_STAY_NS      (60 * NS_PER_S) /* after a model was given up; doubled each time */
#define CHOICE_TELL_NS      (60 * NS_PER_S) /* between two lines about others with another model */
#define MODELS_AGREED_NS    (8 * NS_PER_S)  /* for the end of a round; then as it is */
#define MODELS_ALONE_NS     (2 * NS_PER_S)  /* the same, when there has been no round yet */
#define MODELS_SKETCHES_NS  (60 * NS_PER_S) /* in which sketches of one neighbour are counted */
#define CHECK_ANSWER_NS     (2 * NS_PER_S)  /* for a sketch: then others are asked, too */
#define CHECK_HEAR_NS       NS_PER_S        /* for members that are not linked yet */
#define CHECK_PATIENT_NS    (20 * NS_PER_S) /* for answers, once all is here */
#define CHECK_LINES_NS      (5 * NS_PER_S)  /* between two lines of progress */
#define CHECK_SNAPSHOT_NS   (4 * NS_PER_S)  /* how old a snapshot can be when its manifest comes */

/* Who keeps the model and does not train (node/models/keeper.c). */
#define FOLLOW_NS        (10 * NS_PER_S)  /* between two downloads of the swarm's model */
#define HAND_OVER_NS     (10 * NS_PER_S)  /* at its goal who trains waits to be asked for it ... */
#define HAND_OVER_MAX_NS (300 * NS_PER_S) /* ... and until it is there */

/* The training lane (node/lane). */
#define SHARD_STABLE_NS (2 * NS_PER_S)    /* members must have been for so long ... */
#define SHARD_MAX_NS    (30 * NS_PER_S)   /* ... but where they never are: so often ... */
#define SHARD_FAR_NS    (5 * NS_PER_S)    /* ... and sooner while the shard is far from right */
#define ANSWER_SLICE_NS (20 * NS_PER_MS)  /* of training time at a time, for questions of others */
#define ANSWER_BURST_NS (400 * NS_PER_MS) /* of it at once, after a while without questions */
#define ANSWER_TURN_NS  (60 * NS_PER_S)   /* for one asker's samples, while others wait */
#define ANSWER_STAY_NS  (5 * NS_PER_S)    /* that its samples stay for its next question then ... */
#define ANSWER_KEEP_NS  (30 * NS_PER_S)   /* ... and in memory, if nobody asks anything */
#define KEEP_NS         (250 * NS_PER_MS) /* between two good copies: rounds may be quicker */

/* Rounds (node/rounds). */
#define BUSY_LONG_NS    (250 * NS_PER_MS) /* work longer than this is said before it begins */
#define BUSY_UNKNOWN_NS NS_PER_S          /* what an evaluation takes before there was one */
#define BUSY_PUT_OFF_NS (2 * NS_PER_S)    /* the longest that such work waits for a group */
#define START_LINKS     16 /* are enough to begin with: a large swarm is not linked in full */
#define START_HEARS_NS  (10 * NS_PER_S)        /* a member that says nothing is waited for */
#define START_LOADS_NS  (60 * NS_PER_S)        /* one that is still loading, or has another model */
#define ROUNDS_FAR_NS   (30 * NS_PER_S)        /* it is remembered that a model was too far away */
#define FINISH_MIN_NS   (6 * NS_PER_S)         /* the last round's bound: three usual pauses */
#define FINISH_MAX_NS   (600 * NS_PER_S)       /* and at most */
#define FINISH_PAUSE_NS (500 * NS_PER_MS)      /* after a missed deadline; doubled each time */
#define FINISH_RETRY_NS (100 * NS_PER_MS)      /* between two tries, and two looks */
#define ONCE_STILL_NS   (30 * NS_PER_S)        /* a member without a step is given up */
#define ONCE_MIN_NS     (60 * NS_PER_S)        /* for others, however short the own training */
#define ONCE_LINGER_NS  (10 * NS_PER_S)        /* after the average, for those without its result */
#define ONCE_HEAR_NS    (3 * NODE_PROGRESS_NS) /* a member that says nothing counts as on its way */
#define ONCE_RETRY_NS   (2 * NS_PER_S)         /* before the next try */
#define LEAD_ANSWER_NS  NS_PER_S               /* over a line, before any is measured */
#define OVERDUE_NS      (60 * NS_PER_S)        /* without a committed round: it is said */
#define OUTCOMES_NS     NS_PER_S               /* in which questions passed on are counted */

/* Peers of one name on a network (session/discover.c). */
#define DISCOVER_BEACON_NS                                                                         \
    (NS_PER_S - NS_PER_S / 10)            /* once a second, whenever it is looked at               \
                                           */
#define DISCOVER_LOOK_NS  (3 * NS_PER_S)  /* before a peer begins a swarm: two beacons at least */
#define DISCOVER_AGAIN_NS (15 * NS_PER_S) /* an address that was taken is taken again */
#define DISCOVER_OPEN_NS  (5 * NS_PER_S)  /* for it to let `join` in */

/* A service manager (session/supervisor.c), told of this peer once a second. */
#define SUPERVISOR_WATCHDOG_LEAST_NS (10 * NS_PER_S) /* a busy machine may leave out some */

/* Commands, the status page, benchmarks. */
#define POLL_BUSY_NS        (2 * NS_PER_S)     /* before a member busy with others is asked again */
#define POLL_LATER_NS       (300 * NS_PER_S)   /* the longest that a member may ask us to wait */
#define POLL_LEAST_NS       (2 * NS_PER_S)     /* half of the members took, if it was less */
#define FETCH_LIFE_NS       (120 * NS_PER_S)   /* of a member's turn to give its model ... */
#define FETCH_BUCKET_NS     (2 * NS_PER_S)     /* ... and for each bucket of it */
#define POLL_REDIAL_NS      (5 * NS_PER_S)     /* before one whose link was lost is dialled again */
#define OBSERVER_KEEP_NS    (30 * NS_PER_S)    /* asks all the same: the idle are closed at 60 s */
#define DOCTOR_LIMIT_NS     (4500 * NS_PER_MS) /* `doctor` is done within five seconds */
#define DOCTOR_DIALBACK_NS  (3000 * NS_PER_MS) /* of it, if a peer that answers says nothing */
#define DOCTOR_MULTICAST_NS (200 * NS_PER_MS)  /* for a datagram to come back on this machine */
#define DOCTOR_TICK_NS      (20 * NS_PER_MS)   /* between two looks */
#define BENCH_SILENCE_NS    (120 * NS_PER_S)   /* of all children: something is stuck */

#endif

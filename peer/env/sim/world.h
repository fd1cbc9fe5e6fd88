/*
 * sim_world: what the files of the simulated world share; private to peer/env/sim. One thread.
 *
 * A connection is two ends. Frames leave an end one at a time at the link's bandwidth, fly for the
 * latency, and wait in the other end's inbox while that is paused or the way is blocked. A window
 * of bytes sent but not read models the kernel's buffers: beyond it frames stay with the sender.
 */
#ifndef GRAPEVINE_PEER_ENV_SIM_WORLD_H
#define GRAPEVINE_PEER_ENV_SIM_WORLD_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"
#include "peer/env/frame_queue.h"
#include "peer/env/framer.h"
#include "peer/env/sim/env.h"
#include "peer/env/times.h"

#include <sys/queue.h>

enum { SIM_WINDOW_BYTES = 256 * 1024, SIM_HOSTS_MAX = 65536 };

enum sim_kind {
    SIM_SYN,       /* a dial reaches its host */
    SIM_ACCEPTED,  /* on_accepted is due */
    SIM_CONNECTED, /* on_connected is due */
    SIM_SENT,      /* a frame has left its end */
    SIM_DRAIN,     /* on_drain is due */
    SIM_ARRIVED,   /* a frame, or the end of the stream (no frame), is there */
    SIM_RESUME,    /* an inbox may be read again */
    SIM_LOST,      /* reset, refused, cut */
    SIM_LATE,      /* the deadline of a dial or of a farewell */
    SIM_STALL,     /* a blocked connection has had no answer for long */
    SIM_WAKE,
    SIM_JOB,
    SIM_SIGNAL
};

struct sim_event {
    uint64_t time_ns, sequence;
    uint64_t link; /* of the end it concerns, or 0 */
    union {
        struct blob *frame; /* SIM_ARRIVED; owned */
        struct job *job;
        uint64_t number; /* rc, signal, generation */
    };
    uint32_t host;
    uint32_t life;     /* of the host; 0: whichever it lives */
    uint32_t spent_us; /* SIM_ARRIVED: from its first bytes to its last, where lines are shared */
    enum sim_kind kind;
};

/*  DIALLING (dialler) --> OPEN --hangup--> LINGERING --end of stream sent--> GONE
 *  NONE (other end) --SYN--> OPEN     OPEN, DIALLING --lost, crash--> GONE
 *  The memory goes after the step in which both ends are GONE or NONE. */
enum sim_end_state { SIM_NONE, SIM_DIALLING, SIM_OPEN, SIM_LINGERING, SIM_GONE };

struct sim_conn;

struct sim_end {
    TAILQ_ENTRY(sim_end) entry; /* of its host, until GONE */
    struct sim_conn *conn;
    uint32_t host;
    enum sim_end_state state;
    uint64_t number;
    struct frame_queue queue; /* to send */
    size_t queued_bytes;
    uint64_t last_arrival_ns; /* at the other end: the network keeps order */
    struct frame_queue inbox; /* arrived, not read; NULL: end of stream */
    size_t unread_bytes;      /* on the way here or in the inbox */
    struct framer framer;     /* only what did not come as one whole frame */
    uint64_t sent_bytes, received_bytes, sent_at_stall_bytes;
    uint64_t begun_ns; /* when the frame that is being sent began to leave */
    uint64_t spent_ns; /* of the frame that is told of; UINT64_MAX: not known */
    uint64_t partner;  /* for a trace, as the next two: see struct tcp_link */
    uint64_t busy_ns, busy_from;
    size_t torn_bytes; /* of a torn connection: so many still arrive here */
    bool is_sending, is_paused, is_bulk, was_refused, is_accepted;
    bool was_told; /* on_accepted is out */
};
TAILQ_HEAD(sim_ends, sim_end);

struct sim_conn {
    TAILQ_ENTRY(sim_conn) grave;
    uint32_t slot;
    uint64_t serial;
    uint64_t stall; /* counts block and unblock; tells stale SIM_STALL events */
    bool is_cut;    /* nothing new passes any more, both ends will hear of it */
    bool is_dark;   /* what passes vanishes, TCP will give up */
    bool is_buried;
    struct sim_end ends[2]; /* the dialler's first */
};
TAILQ_HEAD(sim_conns, sim_conn);

struct sim_file {
    TAILQ_ENTRY(sim_file) entry;
    char *name;
    void *bytes;
    size_t count;
};
TAILQ_HEAD(sim_files, sim_file);

struct sim_lane {
    uint64_t busy_until_ns;
    struct job *first, **last; /* not yet run */
};

/* One life of a host. Kept until the world ends, so that a late call on it is harmless. */
struct sim_env {
    struct env env; /* first: the two pointers are the same */
    TAILQ_ENTRY(sim_env) entry;
    struct sim_world *world;
    uint32_t host;
    bool is_alive;   /* the host lives this life */
    bool is_stopped; /* stop() was called */
};
TAILQ_HEAD(sim_envs, sim_env);

/* Something that carries one frame after another. */
struct sim_line {
    uint64_t bytes_per_s; /* 0: no limit */
    uint64_t free_ns;     /* what is under way has passed */
};

struct sim_way {
    struct sim_path path;
    struct sim_line line;
};

struct sim_clock { /* showed local_ns when the world's showed world_ns */
    uint64_t world_ns, local_ns;
    int32_t ppm;
};

struct sim_host {
    uint32_t number, life, site;
    struct sim_env *env; /* NULL: powered off */
    struct env_events events;
    struct rng entropy, network, coin;
    struct sim_ends ends;
    uint32_t ends_count; /* known to the node */
    struct sim_lane lanes[LANE_COUNT];
    struct sim_faults faults;
    struct sim_clock clock;
    struct tracer tracer; /* of all its lives, if the world is traced */
    struct sim_line up, down;
    bool is_listening, is_frozen;
    struct sim_event *frozen; /* what came while frozen */
    size_t frozen_count, frozen_capacity;
    uint64_t wake_at_ns;      /* of the host's clock; UINT64_MAX: none */
    uint64_t wake_pending_ns; /* of the world's, when the earliest SIM_WAKE in the heap is due */
    uint64_t wake_generation;
    struct sim_files files;
};

struct sim_world {
    struct sim_options options;
    uint64_t now_ns, sequence, trace;
    struct sim_event *heap;
    size_t heap_count, heap_capacity;
    struct sim_host **hosts;
    uint32_t hosts_count;
    struct sim_envs envs;
    struct sim_conn **conns; /* by slot; NULL: free */
    uint32_t conns_capacity;
    uint32_t *free_slots;
    uint32_t free_slots_count;
    uint64_t serial;
    struct sim_conns graves;
    struct sim_way **ways; /* by (from, to); made with the first path */
    struct sim_counts counts;
    FILE *trace_out;
    uint8_t *blocked; /* a bit per (from, to); made with the first block */
    uint8_t
        *scratch; /* a frame that others hold too is copied here, since on_frame may change it */
    size_t scratch_bytes;
};

/* world.c */
/** Grown memory. The simulator is not what tests of failing allocation are about: it tries twice.
 */
void *sim_grow(void *block, size_t bytes);
/** `event` with time and sequence filled in. */
void sim_push(struct sim_world *world, uint64_t at_ns, struct sim_event event);
void sim_note(struct sim_world *world, const struct sim_event *event, const void *bytes,
              size_t count); /* into the trace */
static inline void sim_count_queued(struct sim_world *world, size_t bytes)
{
    if (bytes > world->counts.queued_bytes_max) world->counts.queued_bytes_max = bytes;
}

static inline struct sim_host *sim_host_at(struct sim_world *world, uint32_t number)
{
    CHECK(number < world->hosts_count);
    return world->hosts[number];
}

/* env.c */
/** May its node be called? */
static inline bool sim_host_hears(const struct sim_host *host)
{
    return host->env != NULL && !host->env->is_stopped;
}
void sim_host_on_event(struct sim_world *world, struct sim_host *host, struct sim_event *event);

/* net.c */
void sim_net_on_event(struct sim_world *world, struct sim_event *event);
void sim_net_host_off(struct sim_world *world, struct sim_host *host);
void sim_net_bury(struct sim_world *world); /* free what the step left behind */
void sim_net_deinit(struct sim_world *world);
void sim_net_stop(struct sim_world *world, struct sim_host *host);
MUST_USE enum rc sim_env_dial(struct env *env, const char *address, uint64_t *link);
struct sim_end *sim_end_find(struct sim_world *world, uint64_t number);
bool sim_is_blocked(const struct sim_world *world, uint32_t from, uint32_t to);
void sim_push_end(struct sim_world *world, uint64_t at_ns, enum sim_kind kind,
                  const struct sim_end *end, uint64_t number);
/** The node, if it still knows this end, is told; not from inside a call. */
void sim_end_lost(struct sim_world *world, struct sim_end *end, enum rc rc, const char *why);
void sim_end_gone(struct sim_world *world, struct sim_end *end); /* without a word */
void sim_reset_other(struct sim_world *world, struct sim_end *end);
const char *sim_lost_text(enum rc rc);

/* path.c */
/** There and back, jitter and loss aside. */
uint64_t sim_round_trip_ns(const struct sim_world *world, uint32_t from, uint32_t to);
uint64_t sim_draw_latency(struct sim_world *world, struct sim_host *from, uint32_t to);
/** How much later than that `count` bytes arrive, since TCP had to repeat itself. */
uint64_t sim_draw_loss(struct sim_world *world, struct sim_host *from, uint32_t to, size_t count);
/** When the last of `count` bytes has left `from` for `to`, which begin to leave now. */
uint64_t sim_departure_ns(struct sim_world *world, struct sim_host *from, uint32_t to,
                          size_t count);
/** When `count` bytes that come to `host` at `at_ns` are all there. */
uint64_t sim_landing_ns(struct sim_host *host, uint64_t at_ns, size_t count);
void sim_path_deinit(struct sim_world *world);

/* clock.c */
uint64_t sim_clock_show(const struct sim_clock *clock, uint64_t world_ns);
/** The first moment of the world at which the clock shows `local_ns` or more. */
uint64_t sim_clock_due(const struct sim_clock *clock, uint64_t local_ns);
/** The clock was changed: wake the node when it wants, by the new one. */
void sim_env_rearm(struct sim_host *host);

/* stream.c */
void sim_end_pump(struct sim_world *world, struct sim_end *end);
void sim_end_finish(struct sim_world *world, struct sim_end *end);
void sim_end_hangup(struct sim_world *world, struct sim_end *end);
void sim_on_sent(struct sim_world *world, struct sim_end *end);
/** Takes the frame of the event. */
void sim_on_arrived(struct sim_world *world, struct sim_end *end, const struct sim_event *event);
void sim_on_resume(struct sim_world *world, struct sim_end *end);
MUST_USE enum rc sim_env_send(struct env *env, uint64_t link, struct blob *frame);
void sim_env_hangup(struct env *env, uint64_t link);
void sim_env_set_frame_max(struct env *env, uint64_t link, size_t frame_max);
void sim_env_pause(struct env *env, uint64_t link, bool is_paused);
void sim_env_set_bulk(struct env *env, uint64_t link);
void sim_env_set_partner(struct env *env, uint64_t link, struct peer_id partner);
bool sim_env_gains_by_more(struct env *env, uint64_t link);
bool sim_env_frame_spent_ns(struct env *env, uint64_t link, uint64_t *spent_ns);
void sim_env_link_bytes(struct env *env, uint64_t link, uint64_t *sent, uint64_t *received);

/* store.c */
MUST_USE enum rc sim_env_store_put(struct env *env, const char *name, const struct piece *pieces,
                                   size_t pieces_count, struct fault *why);
MUST_USE enum rc sim_env_store_get(struct env *env, const char *name, size_t bytes_max,
                                   void **bytes, size_t *count, struct fault *why);
MUST_USE enum rc sim_env_store_append(struct env *env, const char *name, const void *bytes,
                                      size_t count, size_t bytes_max, struct fault *why);
void sim_store_deinit(struct sim_host *host);

static inline struct sim_env *sim_env_of(struct env *env)
{
    return (struct sim_env *)env;
}

static inline struct sim_host *sim_env_host(struct env *env)
{
    return sim_env_of(env)->world->hosts[sim_env_of(env)->host];
}

static inline struct sim_end *sim_end_other(const struct sim_end *end)
{
    return &end->conn->ends[end == &end->conn->ends[0] ? 1 : 0];
}

static inline struct sim_host *sim_end_host(struct sim_world *world, const struct sim_end *end)
{
    return world->hosts[end->host];
}

static inline bool sim_end_is_over(const struct sim_end *end)
{
    return end->state == SIM_GONE || end->state == SIM_NONE;
}

#endif

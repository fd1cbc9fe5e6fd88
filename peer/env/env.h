/*
 * env: a peer's whole outside world: clock, entropy, links, jobs, store. Two worlds implement it:
 * libuv TCP with threads (uv_env) and the deterministic simulator (sim_env). Swapped together, so a
 * node that runs in one runs unchanged in the other.
 *
 * Promises. It never calls back from inside a call into it. Link numbers are never reused. Frames
 * on a link arrive whole, in order, at most once. A lost link is reported exactly once (not for
 * hang-ups of our own) and nothing of it is reported afterwards. Above the queue limit send refuses
 * with RC_LIMIT and on_drain follows once there is room again. Jobs of one lane run in submission
 * order; `done` runs on the loop.
 */
#ifndef GRAPEVINE_PEER_ENV_ENV_H
#define GRAPEVINE_PEER_ENV_ENV_H

#include "base/blob.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/rc.h"
#include "peer/env/times.h"
#include "peer/env/trace.h"
#include "peer/env/way.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lane {
    LANE_TRAINING,
    LANE_EXCHANGE,
    LANE_STORE,
    LANE_SEALING, /* bulk records on their way out, and on their way in */
    LANE_OPENING,
    LANE_COUNT
};

struct job {
    void (*run)(struct job *job);  /* in the lane's thread; touches nothing the loop touches */
    void (*done)(struct job *job); /* on the loop, after run */
    uint64_t cost_ns;              /* modelled time under simulation; ignored by uv_env */
    const char *name;              /* in a trace, see trace.h; NULL: in none */
    uint64_t partner;              /* likewise: for or from whom; 0: nobody */
    uint64_t round;                /* likewise, as struct tracer has it; the env's */
    struct job *next;              /* the env's while the job is submitted */
};

enum { LINK_QUEUE_BYTES_MAX = 2 * 1024 * 1024, LINK_NONE = 0 };

enum { UV_WALL_TEXT_BYTES = 40, UV_HOST_BYTES = 48, UV_HOSTS_MAX = 16 };

struct env_events {
    void *context;
    /** Someone dialled us. `remote`: "host:port". Frames up to HANDSHAKE_BYTES_MAX until
     *  link_set_frame_max(). */
    void (*on_accepted)(void *context, uint64_t link, const char *remote);
    void (*on_connected)(void *context, uint64_t link);
    /** One whole frame (see frame_bytes()); the bytes may be changed in place and are gone after
     *  the call. */
    void (*on_frame)(void *context, uint64_t link, uint8_t *frame, size_t count);
    void (*on_drain)(void *context, uint64_t link);
    /** Dial failed, closed by the other side, reset, or a frame that broke the limit (RC_LIMIT) or
     *  the form (RC_FORMAT). `why`: for people, e.g. "connection refused". */
    void (*on_lost)(void *context, uint64_t link, enum rc rc, const char *why);
    void (*on_wake)(void *context);               /* the time set by wake_at() has come */
    void (*on_signal)(void *context, int signal); /* SIGINT, SIGTERM, SIGHUP, SIGUSR1 */
};

struct env {
    const struct env_ops *ops;
    struct tracer *tracer; /* NULL: nothing is traced */
};

struct env_ops {
    const char *name;
    uint64_t (*now_ns)(struct env *env); /* monotonic */
    void (*entropy)(struct env *env, void *out, size_t count);
    /** Who gets the events; before anything else. Copied. */
    void (*set_events)(struct env *env, const struct env_events *events);
    /** `address`: "host:port", port 0 picks one; the bound one goes to `bound`. RC_IO with a reason
     *  such as "address already in use". One listener an env. */
    MUST_USE enum rc (*listen)(struct env *env, const char *address, char *bound, size_t cap,
                               struct fault *why);
    /** Start a connection; on_connected or on_lost follows. Names are resolved off the loop. */
    MUST_USE enum rc (*dial)(struct env *env, const char *address, uint64_t *link);
    /** Takes its own reference. RC_LIMIT above LINK_QUEUE_BYTES_MAX (nothing was queued; also
     *  for a frame larger than that), RC_CLOSED. Before on_connected frames wait for the link. */
    MUST_USE enum rc (*send)(struct env *env, uint64_t link, struct blob *frame);
    /** Close after flushing what is queued (bounded by 500 ms); no event follows. */
    void (*hangup)(struct env *env, uint64_t link);
    void (*link_set_frame_max)(struct env *env, uint64_t link, size_t frame_max);
    /** Stop and go on reading, to push back on the sender. */
    void (*link_pause)(struct env *env, uint64_t link, bool is_paused);
    /** `link` carries bulk, not conversation: large buffers, a congestion control that bears loss
     *  where the system has one, and under a rate limit what the other links leave over. */
    void (*link_set_bulk)(struct env *env, uint64_t link);
    /** Of one that carries bulk: would further connections beside it carry more? So it is where the
     *  system has no congestion control that bears loss, and the way there and back is long. */
    bool (*link_gains_by_more)(struct env *env, uint64_t link);
    /** `link` is with `partner`: for a trace. The operation may be NULL. */
    void (*link_set_partner)(struct env *env, uint64_t link, struct peer_id partner);
    /** Inside on_frame of `link`: a reference to what holds the frame and nothing else, to be kept
     *  and changed instead of a copy. NULL: there is none. The operation may be NULL, too. */
    struct blob *(*frame_keep)(struct env *env, uint64_t link);
    /** Inside on_frame of `link`: how long the frame took to come in, from its first bytes to its
     *  last. False: that cannot be told. The operation may be NULL, too. */
    bool (*frame_spent_ns)(struct env *env, uint64_t link, uint64_t *spent_ns);
    /** Bytes on the wire since the start, framing included. */
    void (*link_bytes)(struct env *env, uint64_t link, uint64_t *sent, uint64_t *received);
    /** One wake-up at `at_ns` (or as soon as possible); a new call replaces the old. */
    void (*wake_at)(struct env *env, uint64_t at_ns);
    void (*submit)(struct env *env, enum lane lane, struct job *job);
    /** Store: small named files of this peer, each replaced atomically. Blocking: call from jobs,
     *  or before the loop runs. Names: [a-z0-9._-]+. RC_UNSUPPORTED without a folder. */
    MUST_USE enum rc (*store_put)(struct env *env, const char *name, const struct piece *pieces,
                                  size_t pieces_count, struct fault *why);
    MUST_USE enum rc (*store_get)(struct env *env, const char *name, size_t bytes_max, void **bytes,
                                  size_t *count, struct fault *why);
    /** A file that would grow beyond `bytes_max` (0: it may) first becomes NAME.1, in place of an
     *  older one of that name, and NAME begins anew. */
    MUST_USE enum rc (*store_append)(struct env *env, const char *name, const void *bytes,
                                     size_t count, size_t bytes_max, struct fault *why);
    /** Leave run(): on the real env the loop ends when all closing is done. Links are hung up, and
     *  no event is delivered any more, nor `done` of jobs still under way. */
    void (*stop)(struct env *env);
};

/* libuv: one loop, real sockets, a job thread for each lane in use. */
struct uv_env_options {
    const char *folder;    /* store; NULL: store calls are RC_UNSUPPORTED */
    uint64_t bytes_per_s;  /* of all links together, each way; 0: no limit */
    struct tracer *tracer; /* NULL: no trace; outlives the env. Borrowed */
    bool is_within;        /* a program of others: no signal is watched, and none is set up */
    struct way_flags way;  /* how dials go, where not straight there */
};
MUST_USE enum rc uv_env_create(const struct uv_env_options *options, struct env **env,
                               struct fault *why);
/** Run until stop(), and until jobs under way have run: none does afterwards. */
void uv_env_run(struct env *env);
/** Deliver what is due, waiting for it at most `timeout_ns`; for tests and loops of one's own. */
void uv_env_poll(struct env *env, uint64_t timeout_ns);
/** Closes everything, joins the job threads, waits for close callbacks. Jobs not begun are dropped:
 *  neither run nor done is called. NULL is fine. */
void uv_env_destroy(struct env *env);
/** The real world's clock, for those who have no env: monotonic nanoseconds. */
uint64_t uv_clock_ns(void);
/** The time of day in seconds since 1970. It may jump: only certificates look at it. */
uint64_t uv_wall_s(void);
/** The same as "2026-11-23T17:20:01.123Z", for people. */
void uv_wall_text(char text[UV_WALL_TEXT_BYTES]);
/** The first IPv4 address of this machine that is not a loopback one, into `host`. False: none. */
bool uv_host_address(char *host, size_t cap);
/** Call `on_ready` on the loop whenever `fd` can be read, and once a second in any case; for a
 *  library with a loop and deadlines of its own (libmicrohttpd). At most 8 at a time: RC_LIMIT.
 * Unwatch before closing `fd`. */
MUST_USE enum rc uv_env_watch(struct env *env, int fd, void (*on_ready)(void *context),
                              void *context);
void uv_env_unwatch(struct env *env, int fd);
/** Multicast datagrams of this machine's local networks: a socket, to be watched or waited for.
 *  RC_IO. */
MUST_USE enum rc uv_multicast_open(int *fd, struct fault *why);
void uv_multicast_close(int fd);
/** The addresses to send from for who listens on `host`: that one, or all if it is that of none
 *  ("0.0.0.0", "::"). */
uint32_t uv_multicast_hosts(const char *host, char hosts[UV_HOSTS_MAX][UV_HOST_BYTES]);
/** Hear what comes in by any interface there is now. */
void uv_multicast_join(int fd);
/** From the address `host`, by its interface. */
bool uv_multicast_send(int fd, const void *bytes, size_t count, const char *host);
/** The next one, waited for at most so long, and its length, which may be more than `cap`; `host`:
 *  where it came from. False: there is none. */
bool uv_multicast_receive(int fd, uint64_t wait_ns, void *bytes, size_t cap, size_t *count,
                          char host[UV_HOST_BYTES]);

#endif

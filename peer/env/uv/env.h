/*
 * uv_env: what the files of the libuv world share; private to peer/env/uv. Everything here
 * belongs to the loop thread, but for the parts of `struct uv_jobs` that its lock covers.
 */
#ifndef GRAPEVINE_PEER_ENV_UV_ENV_H
#define GRAPEVINE_PEER_ENV_UV_ENV_H

#include "gossip/wire/limits.h"
#include "peer/env/env.h"
#include "peer/env/frame_queue.h"
#include "peer/env/framer.h"
#include "peer/env/rate.h"
#include "peer/env/times.h"
#include "peer/env/way.h"

#include <sys/queue.h>
#include <sys/socket.h>
#include <uv.h>

enum {
    LINK_WRITES_MAX = 2,               /* uv_writes in flight */
    LINK_WRITE_FRAMES_MAX = 64,        /* gathered into one of them */
    LINK_WRITE_BYTES_MAX = 256 * 1024, /* of one; a larger frame goes in pieces */
    LINK_TARGETS_MAX = 8,              /* addresses of one name that are tried */
    LINGERING_MAX = 64,
    WATCHES_MAX = 8,
    SIGNALS_WATCHED = 4,
    DISCARD_BYTES = 64 * 1024,
    FILES_KEPT = 5 /* descriptors that no link may take: a checkpoint, the journal, the data */
};

/*  RESOLVING -> CONNECTING (to one address or several) -> TUNNELLING (with a proxy)
 *                   |                                         |
 *  accepted ----> OPEN <--------------------------------------'
 *  OPEN --hangup--> LINGERING --flushed, or 500 ms--> CLOSED
 *  RESOLVING, CONNECTING, TUNNELLING, OPEN --trouble--> FAILED --reported--> CLOSED
 *  RESOLVING, CONNECTING, TUNNELLING, FAILED --hangup--> CLOSED
 *  A CLOSED link waits for the close callbacks of its handles, then its memory goes. */
enum tcp_state {
    TCP_RESOLVING,
    TCP_CONNECTING,
    TCP_TUNNELLING,
    TCP_OPEN,
    TCP_LINGERING,
    TCP_FAILED,
    TCP_CLOSED
};

struct tcp_write {
    uv_write_t request;
    struct blob *frames[LINK_WRITE_FRAMES_MAX];
    unsigned frames_count; /* 0: not in flight */
    size_t bytes;
};

struct uv_env;

struct tcp_link {
    TAILQ_ENTRY(tcp_link) entry; /* in env->links until closed for the node, then in env->leaving */
    TAILQ_ENTRY(tcp_link) dirty; /* in env->dirty[is_bulk] while is_dirty */
    struct uv_env *env;
    uint64_t number; /* rises; the low bits are the slot */
    enum tcp_state state;
    uv_tcp_t tcp;
    uv_timer_t timer; /* next attempt and dial deadline, then linger deadline */
    uv_shutdown_t shutdown;
    struct tcp_dial *dial;  /* NULL: accepted */
    struct tcp_way *way;    /* NULL: it is direct */
    uint64_t dial_until_ms; /* of the loop's clock */
    unsigned pending;       /* handles not yet closed and a lookup not yet answered */
    struct framer framer;
    struct tcp_write writes[LINK_WRITES_MAX];
    struct frame_queue queue; /* no write was started for them, but for first_started bytes */
    size_t first_started;     /* bytes of the first of them that are written or being written */
    size_t queued_bytes;      /* of the queue and of the writes in flight */
    size_t read_portion;      /* under a rate limit: what it may still read in its turn */
    TAILQ_ENTRY(tcp_link) throttled; /* in env->throttled while is_throttled */
    uint64_t sent_bytes, received_bytes;
    uint64_t partner;            /* for a trace, as the next two */
    uint64_t busy_ns, busy_from; /* when something was queued last while nothing was, and what had
                                    been sent by then */
    uint64_t read_ns;            /* the last read */
    uint64_t begun_ns; /* the read that brought the first bytes of the frame in front; 0: that
                          cannot be told, for nobody read before */
    size_t read_room;  /* of the last read, whatever a rate limit left of it */
    enum rc lost_rc;   /* FAILED: to be reported */
    const char *lost_why;
    bool is_dirty; /* has frames that no write was started for yet */
    bool is_accepted;
    bool is_bulk;
    bool is_paused;
    bool was_full;     /* the last read: more may lie in the socket, since nobody knows when */
    bool is_drained;   /* the socket was seen empty since the frame in front, or with nothing of it
                          here the one before, began to come in */
    bool is_throttled; /* the rate limit keeps it from reading */
    bool must_resume;  /* unpaused: frames held in the framer are due */
    bool was_refused;  /* on_drain is owed */
    bool is_shutting;  /* LINGERING: all is written, our end is being closed */
    bool is_shut;      /* LINGERING: our end is closed */
    bool has_ended;    /* LINGERING: so is theirs */
    bool is_left;      /* CLOSED: nothing but a lookup that cannot be cancelled keeps it */
};
TAILQ_HEAD(tcp_links, tcp_link);

struct uv_lane {
    uv_thread_t thread;
    uv_cond_t wake;
    struct job *first, **last; /* submitted, not begun */
    struct uv_jobs *jobs;
    bool has_thread;  /* the loop's, as the next */
    unsigned unwoken; /* jobs submitted since the thread was last woken */
};

struct uv_jobs {
    uv_mutex_t lock; /* covers all below, but `async`, `tracer`, has_thread and unwoken */
    struct uv_lane lanes[LANE_COUNT];
    struct job *done_first, **done_last; /* run, `done` not yet called */
    bool is_stopping;
    uv_async_t async;
    struct tracer *tracer; /* of the env; NULL: nothing is traced */
};

struct uv_watch {
    uv_poll_t poll;
    void (*on_ready)(void *context);
    void *context;
    int fd;       /* -1: being closed */
    bool is_used; /* until its close callback */
};

struct uv_env {
    struct env env; /* first: the two pointers are the same */
    uv_loop_t loop;
    uv_timer_t wake;
    uv_idle_t defer;    /* runs once, next turn: reports what may not be reported inside a call */
    uv_prepare_t flush; /* starts writes for all frames of one turn of the loop together */
    uv_signal_t signals[SIGNALS_WATCHED];
    uv_timer_t accept_timer;
    uint64_t accepts_full_ns; /* the ration of connections taken, see gossip/flow/ration.h */
    bool accept_is_paced;
    uv_tcp_t *listener; /* freed in its close callback; NULL: not listening */
    struct uv_watch watches[WATCHES_MAX];
    uv_timer_t watch_timer;
    bool is_stopping; /* no event is delivered any more */
    bool is_within;   /* see uv_env_options */
    unsigned signals_seen;
    bool is_running;
    uint64_t wake_at_ns;
    uint64_t links_made;
    struct tcp_link *slots[CONNECTIONS_MAX];
    struct tcp_links links, leaving;
    struct tcp_links dirty[2]; /* conversation, which goes first, and bulk, in turns */
    struct tcp_links throttled;
    struct rate send_rate, receive_rate;
    uv_timer_t rate_timer; /* runs while somebody waits for either */
    uint64_t rate_due_ns;  /* UINT64_MAX: it does not */
    unsigned links_alive, lingering_count;
    unsigned links_left; /* of those alive: for the sake of a lookup, see struct tcp_link */
    struct env_events events;
    struct way way;    /* of all dials */
    unsigned children; /* of --dial-command, not yet gone */
    struct uv_jobs jobs;
    char *folder;
    uint8_t discard[DISCARD_BYTES]; /* what comes in on a link that was hung up */
};

static inline struct uv_env *uv_env_of(struct env *env)
{
    return (struct uv_env *)env;
}

/* env.c */
enum rc uv_env_rc(int status, const char **why); /* words for a libuv status */
void uv_env_defer(struct uv_env *env);           /* have tcp_report_deferred() called soon */
void uv_env_check_stopped(struct uv_env *env);   /* after a link is gone */

/* tcp.c */
/** A new link in a free slot, both handles initialised. RC_LIMIT, RC_NOMEM. */
MUST_USE enum rc tcp_link_create(struct uv_env *env, enum tcp_state state, struct tcp_link **link);
/** The connection stands: socket options, reading. */
void tcp_link_opened(struct tcp_link *link);
/** Report a loss soon. */
void tcp_link_fail(struct tcp_link *link, enum rc rc, const char *why);
void tcp_link_fail_status(struct tcp_link *link, int status); /* in words for a libuv status */
/** Forget the link now, without an event. */
void tcp_link_close(struct tcp_link *link);
void tcp_link_hangup(struct tcp_link *link);
/** One handle or lookup less; with the last the memory goes. An env that ends does not wait for
 *  lookups. */
void tcp_link_release(struct tcp_link *link);
void tcp_report_deferred(struct uv_env *env);
void tcp_flush(struct uv_env *env);
/** Read, or not, as state, pause and throttle say. */
void tcp_link_read(struct tcp_link *link);
MUST_USE enum rc uv_env_send(struct env *env, uint64_t link, struct blob *frame);
void uv_env_hangup(struct env *env, uint64_t link);
void uv_env_set_frame_max(struct env *env, uint64_t link, size_t frame_max);
void uv_env_pause(struct env *env, uint64_t link, bool is_paused);
void uv_env_set_bulk(struct env *env, uint64_t link);
bool uv_env_gains_by_more(struct env *env, uint64_t link);
struct blob *uv_env_frame_keep(struct env *env, uint64_t link);
bool uv_env_frame_spent_ns(struct env *env, uint64_t link, uint64_t *spent_ns);
void uv_env_link_bytes(struct env *env, uint64_t link, uint64_t *sent, uint64_t *received);
void uv_env_set_partner(struct env *env, uint64_t link, struct peer_id partner);

/* rate.c */
void uv_rate_init(struct uv_env *env, uint64_t bytes_per_s);
/** What `link` may write now, 0: it waits its turn, and tcp_flush() will run again by then. */
size_t uv_rate_may_send(struct uv_env *env, const struct tcp_link *link);
/** What it may read now; 0: it has been put among the throttled. */
size_t uv_rate_may_read(struct tcp_link *link);
void uv_rate_has_read(struct tcp_link *link, size_t count);
/** It is about to go. */
void uv_rate_forget(struct tcp_link *link);
/** Whether send() may queue `count` bytes more on it. */
bool uv_rate_has_room(const struct tcp_link *link, size_t count);

/* socket.c */
/** What the kernel is asked for: on a dialled connection, and on a listener for all it accepts. */
void tcp_options_set(struct uv_env *env, uv_tcp_t *tcp);
/** More, for a connection that carries bulk. */
void tcp_options_bulk(uv_tcp_t *tcp);
/** Is `socket` one of the last descriptors that this process may open? They are kept for files, so
 *  that checkpoints are written however many links there are. */
bool tcp_is_kept_for_files(uv_os_fd_t socket);

/* listen.c */
MUST_USE enum rc uv_env_listen(struct env *env, const char *address, char *bound, size_t cap,
                               struct fault *why);
void tcp_unlisten(struct uv_env *env);

/* dial.c */
MUST_USE enum rc uv_env_dial(struct env *env, const char *address, uint64_t *link);
/** The same, to addresses that are known. */
MUST_USE enum rc tcp_dial_targets(struct uv_env *env, const struct sockaddr_storage *targets,
                                  unsigned count, uint64_t *link);
/** At most `max` addresses of a lookup, families in turns, the first one's first. */
unsigned tcp_targets_choose(const struct addrinfo *found, struct sockaddr_storage *targets,
                            unsigned max);
/** No attempt goes on, no lookup matters any more. */
void tcp_dial_end(struct tcp_link *link);
bool tcp_dial_is_resolving(const struct tcp_link *link);

/* way.c */
/** What a dial that does not go straight to `target` needs. False: out of memory. */
bool tcp_way_create(struct tcp_link *link, const struct address *target);
/** The connection to the proxy stands: have it put through. */
void tcp_way_begin(struct tcp_link *link);
/** Run the command in the place of connecting. */
void tcp_way_command(struct tcp_link *link, const struct address *target);
/** The link closes: no child survives it. */
void tcp_way_end(struct tcp_link *link);
void tcp_way_destroy(struct tcp_way *way);
/** In words of who dials through something, where it is that something that failed. */
void tcp_way_explain(const struct tcp_link *link, int status, enum rc *rc, const char **why);

/* jobs.c */
MUST_USE enum rc uv_jobs_init(struct uv_env *env);
void uv_jobs_stop(struct uv_env *env); /* joins the threads; the async handle stays */
void uv_jobs_deinit(struct uv_env *env);
void uv_env_submit(struct env *env, enum lane lane, struct job *job);
/** Before the loop waits: wake the lanes that have got jobs. */
void uv_jobs_wake(struct uv_env *env);

/* store.c */
MUST_USE enum rc uv_env_store_put(struct env *env, const char *name, const struct piece *pieces,
                                  size_t pieces_count, struct fault *why);
MUST_USE enum rc uv_env_store_get(struct env *env, const char *name, size_t bytes_max, void **bytes,
                                  size_t *count, struct fault *why);
MUST_USE enum rc uv_env_store_append(struct env *env, const char *name, const void *bytes,
                                     size_t count, size_t bytes_max, struct fault *why);

#endif

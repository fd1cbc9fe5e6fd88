/*
 * grapevine: be a member of a swarm with a trainer of your own.
 *
 * A member owns one flat vector of float32 values: the parameters of a model, then its buffers
 * (running statistics), tensor after tensor in the order in which they were described. Your program
 * takes optimizer steps on tensors of its own and says so after each; the member exchanges and
 * averages with others beside it, on threads of its own, and says when it needs a copy of the
 * values, or has something to add to them. The same protocol and the same averaging methods as
 * `grapevine peer`: both may be in one swarm.
 *
 *     gv_open(config, &member);
 *     gv_start(member, tensors, count);
 *     while ((event = gv_wait(member)) >= 0 && event != GV_ENDED) {
 *         if (event == GV_SNAPSHOT) gv_snapshot(member);
 *         else if (event != GV_STEP) gv_apply(member);
 *         else do {
 *             ... one optimizer step on the tensors ...
 *         } while (gv_step(member, samples, loss) == GV_STEP);
 *     }
 *     gv_close(member);
 *
 * One thread: all calls for a member come from the thread that called gv_start(), but gv_close(),
 * which any thread may call once nobody else does. Members are independent of each other. Nothing
 * calls back into your program, nothing takes a time to wait, no signal handler is set, and every
 * signal is blocked in the library's threads. After fork() a member is its parent's: calls in the
 * child say GV_FORKED, and gv_close() there does nothing.
 *
 * Calls that can fail return a negative `enum gv_error`; gv_last_error() has the sentence. Misuse
 * is an error and never a crash, as long as pointers are what they are said to be.
 */
#ifndef GRAPEVINE_H
#define GRAPEVINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library serves programs that were built with its own number. */
#define GV_ABI 1

typedef struct gv_member gv_member;

/* What the member asks of the trainer next. */
enum gv_event {
    GV_STEP = 0,       /* take a step, and tell gv_step() */
    GV_WAITS = 1,      /* nothing before something else happens: gv_wait(), or gv_poll() again */
    GV_SNAPSHOT = 2,   /* it wants the values: gv_snapshot() */
    GV_DIFFERENCE = 3, /* it has something to add to them: gv_apply() */
    GV_REPLACE = 4,    /* it has other values for them (joined, resumed, went back): gv_apply() */
    GV_ENDED = 5,      /* it has left: at the goal, or after gv_leave() */
    GV_STATE = 6       /* what gv_ask_state() asked for: gv_state(); nobody else hears of it */
};

enum gv_error {
    GV_USAGE = -1,       /* an argument, the configuration, or a call that is not due now */
    GV_THREAD = -2,      /* called from another thread than gv_start() was */
    GV_FORKED = -3,      /* called in a child of the process that has the member */
    GV_FAILED = -4,      /* the member gave up; gv_last_error() says why */
    GV_NO_MEMORY = -5,   /* nothing has changed */
    GV_INTERRUPTED = -6, /* gv_wait(): a signal came in; call again to go on waiting */
    GV_TOO_SMALL = -7    /* the room that was given; how much is needed has been told */
};

enum gv_kind {
    GV_PARAMETER = 0, /* trained */
    GV_BUFFER = 1     /* not trained, averaged all the same. "X.running_mean" followed by
                         "X.running_variance" of the same shape are pooled: the variance of several
                         sets of samples together is more than the mean of their variances */
};

enum gv_dtype { GV_F32 = 0, GV_F16 = 1, GV_BF16 = 2 };

enum { GV_RANK_MAX = 4, GV_NAME_MAX = 63 };

/* One tensor of the model, row-major without gaps. Names, kinds, shapes and their order are what
 * members compare before they average; the dtype is each one's own. */
typedef struct gv_tensor {
    const char *name; /* at most GV_NAME_MAX bytes, no two alike; copied */
    uint32_t kind;    /* enum gv_kind */
    uint32_t dtype;   /* enum gv_dtype */
    uint32_t rank;    /* 1 to GV_RANK_MAX; of more dimensions, fold some */
    uint32_t shape[GV_RANK_MAX];
    void *values; /* host memory, yours until gv_close(); NULL: elsewhere, see gv_snapshot_from() */
} gv_tensor;

typedef struct gv_status_view {
    size_t size;        /* of this struct: set it before the call */
    uint64_t step;      /* of the swarm's model: what schedules go by */
    uint64_t own_steps; /* taken by this member */
    uint64_t samples;   /* seen by it */
    uint64_t round;     /* next one */
    uint64_t rounds_ok, rounds_aborted;
    uint64_t bytes_sent, bytes_received;
    uint32_t members;          /* linked with this one, itself included */
    double consensus_distance; /* of the last round, relative; NaN: not known yet */
    char last_abort_reason[96];
    char address[64]; /* HOST:PORT that others may give as bootstrap */
} gv_status_view;

/* The version of the library as text, and its GV_ABI. */
const char *gv_version(void);
uint32_t gv_abi(void);

/* Read `config`: lines `name = value` with the names of the flags of `grapevine peer`, such as
 * bootstrap, swarm-key, averaging, codec, topology, listen, out, steps, time, http. Flags of what
 * your program decides (optimizer, batch, device, ...) are refused. With `model` and `data` (the
 * specs of native peers) the member averages with native peers of that model; the tensors then have
 * to be the ones of docs/library.md. GV_USAGE names the line, and the nearest name. No file is
 * touched and no thread started before gv_start(). */
int gv_open(const char *config, gv_member **member);

/* Describe the model and begin: keys, folder, checkpoint, listening, joining. Once. GV_USAGE,
 * GV_FAILED (address in use, files, ...), GV_NO_MEMORY; after a failure only gv_close() is left. */
int gv_start(gv_member *member, const gv_tensor *tensors, size_t count);

/* How many values there are: the flat vector has parameters, then buffers. */
int gv_values(const gv_member *member, size_t *parameters, size_t *buffers);

/* What is to be done now: an enum gv_event; GV_WAITS where nothing is. Does not block. */
int gv_poll(gv_member *member);
/* The same, once there is something. GV_INTERRUPTED when a signal handler has run. */
int gv_wait(gv_member *member);

/* An optimizer step was taken, with so many samples and this mean loss; only after GV_STEP. What is
 * to be done next; does not block. A loss that is no number makes the member go back to the last
 * good values (GV_REPLACE). */
int gv_step(gv_member *member, uint64_t samples, double loss);

/* After GV_SNAPSHOT: the values as they are now, from the tensors' own memory, or from `plane`,
 * [parameters + buffers] float32. The memory is free again on return. */
int gv_snapshot(gv_member *member);
int gv_snapshot_from(gv_member *member, const float *plane);

/* After GV_DIFFERENCE and GV_REPLACE: change the tensors in their own memory. */
int gv_apply(gv_member *member);
/* The same for memory that is elsewhere, through `plane` [parameters + buffers] of the host.
 * GV_DIFFERENCE: it has to hold the present buffers (its parameters are not looked at); on return
 * it holds the differences that you add to the parameters, and the new buffers.
 * GV_REPLACE: it has to hold the present values; on return it holds the new ones. */
int gv_apply_into(gv_member *member, float *plane);

/* The member's own state, for a checkpoint of yours: the values, and what rounds remember (method's
 * momentum, residuals, promises, round number, lineage, counts), as the folder of `out` has them;
 * no keys. Ask between two steps and go on with gv_wait() as ever: no step is due before GV_STATE
 * is. Returns what is due next, as gv_step() does; does not block. Where GV_ENDED comes, there is
 * none. */
int gv_ask_state(gv_member *member);
/* After GV_STATE: of the values as they are now. At most `cap` bytes, `needed` in all.
 * GV_TOO_SMALL: call again with more (`state` may be NULL); else it is over, also with GV_FAILED:
 * values that are no numbers, no memory. */
int gv_state(gv_member *member, void *state, size_t cap, size_t *needed);
/* Between gv_open() and gv_start(): go on from what gv_state() gave, and not from the folder of
 * `out`. The bytes are yours again on return. GV_USAGE: truncated, changed, of another version.
 * gv_start() refuses those of another model (GV_FAILED), or of another averaging; else its first
 * GV_REPLACE brings the values. Nothing of yours is touched before. What rounds have done since the
 * state was taken is not undone at others: take the newest there is. */
int gv_restore(gv_member *member, const void *state, size_t bytes);

/* How the member is doing, as of now. */
int gv_status(gv_member *member, gv_status_view *status);
/* The same and more as JSON, as `grapevine status --json` has it (docs/network.md): at most `cap`
 * bytes with the NUL, `needed` bytes in all. GV_TOO_SMALL. Its counts of steps and samples are
 * those that the swarm has been told: of a series of about 50 ms when that has ended. */
int gv_json(gv_member *member, char *text, size_t cap, size_t *needed);

/* Say goodbye: last checkpoint, and end. Does not block: go on with gv_wait() until GV_ENDED. */
int gv_leave(gv_member *member);

/* Let go of everything. Who has not left is gone as if killed; others do not suffer. NULL is fine.
 */
void gv_close(gv_member *member);

/* What the last call that failed on this thread was about, one line; NULL: that of gv_open(). Valid
 * until the next call with the same member, or of gv_open() on this thread. Never NULL. */
const char *gv_last_error(const gv_member *member);

#ifdef __cplusplus
}
#endif

#endif

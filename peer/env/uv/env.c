/*
 * uv_env: the real world over one libuv loop: clock, entropy, wake-ups, signals, life and death of
 * the whole. Links are tcp.c and dial.c, jobs jobs.c, the store store.c.
 *
 * Shutdown is counted: every link counts its open handles and frees itself in the last close
 * callback; the env is gone when the loop has nothing left. But for lookups: one that runs cannot
 * be cancelled and may take as long as the name servers like, so nobody waits for it. Then the env
 * stays in memory, since the lookup's thread writes to it, and the process ends without waiting for
 * that thread. Loop thread only.
 */
#include "peer/env/uv/env.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIGNALS_PATIENT = 2 };

uint64_t uv_clock_ns(void)
{
    return uv_hrtime();
}

uint64_t uv_wall_s(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;
}

void uv_wall_text(char text[UV_WALL_TEXT_BYTES])
{
    struct timespec now;
    struct tm date;
    size_t length;

    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    CHECK(gmtime_r(&now.tv_sec, &date) != NULL);
    length = strftime(text, UV_WALL_TEXT_BYTES - 8, "%Y-%m-%dT%H:%M:%S", &date);
    snprintf(text + length, UV_WALL_TEXT_BYTES - length, ".%03uZ",
             (unsigned)(now.tv_nsec / 1000000) % 1000);
}

static uint64_t env_now_ns(struct env *env)
{
    (void)env;
    return uv_hrtime();
}

static void env_entropy(struct env *env, void *out, size_t count)
{
    (void)env;
    /* Without a callback it answers at once; keys made without entropy would be worse than death.
     */
    CHECK(uv_random(NULL, NULL, out, count, 0, NULL) == 0);
}

static void on_wake_timer(uv_timer_t *timer)
{
    struct uv_env *env = timer->data;

    if (env->is_stopping || env->wake_at_ns == UINT64_MAX) return;
    if (uv_hrtime() < env->wake_at_ns) {
        env->env.ops->wake_at(&env->env, env->wake_at_ns); /* the loop's clock runs in ms */
        return;
    }
    env->wake_at_ns = UINT64_MAX;
    env->events.on_wake(env->events.context);
}

static void env_wake_at(struct env *base, uint64_t at_ns)
{
    struct uv_env *env = uv_env_of(base);
    uint64_t now = uv_hrtime();
    /* Never 0: libuv runs such a timer, set again from its own callback, in the same pass, and an
     * alarm that stays in the past would keep the loop from ever polling. */
    uint64_t delay_ms = 1;

    env->wake_at_ns = at_ns;
    if (at_ns == UINT64_MAX) {
        CHECK(uv_timer_stop(&env->wake) == 0);
        return;
    }
    if (at_ns > now + NS_PER_MS) delay_ms = (at_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    uv_update_time(&env->loop); /* a long callback leaves the loop's clock behind */
    CHECK(uv_timer_start(&env->wake, on_wake_timer, delay_ms, 0) == 0);
}

/* The first asks for a goodbye and the second for a short one, but both wait for the step of a job,
 * which may take minutes; the third waits for nothing. Files are replaced whole at any moment. */
static void on_uv_signal(uv_signal_t *handle, int number)
{
    struct uv_env *env = handle->data;

    const bool is_stop = number == SIGINT || number == SIGTERM;

    if (is_stop && ++env->signals_seen > SIGNALS_PATIENT) _exit(128 + number);
    if (!env->is_stopping) env->events.on_signal(env->events.context, number);
}

static void env_set_events(struct env *base, const struct env_events *events)
{
    static const int numbers[SIGNALS_WATCHED] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    struct uv_env *env = uv_env_of(base);

    env->events = *events;
    for (int i = 0; i < SIGNALS_WATCHED && !env->is_within; i++) {
        if (events->on_signal == NULL) {
            CHECK(uv_signal_stop(&env->signals[i]) == 0);
        } else {
            CHECK(uv_signal_start(&env->signals[i], on_uv_signal, numbers[i]) == 0);
        }
    }
}

static void on_defer(uv_idle_t *idle)
{
    CHECK(uv_idle_stop(idle) == 0);
    tcp_report_deferred(idle->data);
}

void uv_env_defer(struct uv_env *env)
{
    CHECK(uv_idle_start(&env->defer, on_defer) == 0);
}

static void on_flush(uv_prepare_t *prepare)
{
    struct uv_env *env = prepare->data;

    if (env->env.tracer != NULL && !env->is_stopping) {
        trace_tick(env->env.tracer->trace, &env->env);
    }
    uv_jobs_wake(prepare->data);
    tcp_flush(prepare->data);
}

void uv_env_check_stopped(struct uv_env *env)
{
    if (env->is_stopping && env->links_alive == env->links_left) uv_stop(&env->loop);
}

static void env_stop(struct env *base)
{
    struct uv_env *env = uv_env_of(base);

    if (env->is_stopping) return;
    env->is_stopping = true;
    tcp_unlisten(env);
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        if (env->slots[i] != NULL) tcp_link_hangup(env->slots[i]);
    }
    uv_env_check_stopped(env);
}

static const struct env_ops uv_env_ops = {
    .name = "uv",
    .now_ns = env_now_ns,
    .entropy = env_entropy,
    .set_events = env_set_events,
    .listen = uv_env_listen,
    .dial = uv_env_dial,
    .send = uv_env_send,
    .hangup = uv_env_hangup,
    .link_set_frame_max = uv_env_set_frame_max,
    .link_pause = uv_env_pause,
    .link_set_bulk = uv_env_set_bulk,
    .link_set_partner = uv_env_set_partner,
    .link_gains_by_more = uv_env_gains_by_more,
    .link_bytes = uv_env_link_bytes,
    .frame_keep = uv_env_frame_keep,
    .frame_spent_ns = uv_env_frame_spent_ns,
    .wake_at = env_wake_at,
    .submit = uv_env_submit,
    .store_put = uv_env_store_put,
    .store_get = uv_env_store_get,
    .store_append = uv_env_store_append,
    .stop = env_stop,
};

/* The fixed handles cannot fail but for the async and the signals, which need file descriptors. */
static int env_init_handles(struct uv_env *env)
{
    int status = 0;

    CHECK(uv_timer_init(&env->loop, &env->wake) == 0);
    CHECK(uv_idle_init(&env->loop, &env->defer) == 0);
    CHECK(uv_prepare_init(&env->loop, &env->flush) == 0);
    CHECK(uv_prepare_start(&env->flush, on_flush) == 0);
    CHECK(uv_timer_init(&env->loop, &env->rate_timer) == 0);
    CHECK(uv_timer_init(&env->loop, &env->watch_timer) == 0);
    CHECK(uv_timer_init(&env->loop, &env->accept_timer) == 0);
    env->accept_timer.data = env;
    env->watch_timer.data = env;
    env->wake.data = env->defer.data = env->flush.data = env->rate_timer.data = env;
    for (int i = 0; i < SIGNALS_WATCHED && status == 0; i++) {
        status = uv_signal_init(&env->loop, &env->signals[i]);
        env->signals[i].data = env;
    }
    return status;
}

static void close_all_handles(uv_handle_t *handle, void *argument)
{
    (void)argument;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void loop_drain(struct uv_env *env)
{
    uv_walk(&env->loop, close_all_handles, NULL);
    while (uv_run(&env->loop, UV_RUN_DEFAULT) != 0) {
        continue; /* a stop asked for earlier ends the first run early */
    }
    CHECK(uv_loop_close(&env->loop) == 0);
}

enum rc uv_env_create(const struct uv_env_options *options, struct env **out, struct fault *why)
{
    struct uv_env *env = mem_alloc(sizeof *env);
    enum rc rc;
    int status;

    CHECK(options != NULL && out != NULL);
    if (env == NULL) return fault_set(why, RC_NOMEM, "cannot start: out of memory");
    rc = way_parse(&options->way, &env->way, why);
    if (rc != RC_OK) {
        mem_free(env);
        return rc;
    }
    if (options->folder != NULL) {
        env->folder = mem_string(options->folder);
        if (env->folder == NULL) {
            mem_free(env);
            return fault_set(why, RC_NOMEM, "cannot start: out of memory");
        }
    }
    status = uv_loop_init(&env->loop);
    if (status != 0) goto no_loop;
    /* Writing to a connection that was reset must be an error code, not the end of the process.
     * Within a program of others all signals are blocked in the loop's thread. */
    env->is_within = options->is_within;
    if (!env->is_within) CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    env->env.ops = &uv_env_ops;
    env->env.tracer = options->tracer;
    env->loop.data = env;
    env->wake_at_ns = UINT64_MAX;
    TAILQ_INIT(&env->links);
    TAILQ_INIT(&env->leaving);
    TAILQ_INIT(&env->dirty[0]);
    TAILQ_INIT(&env->dirty[1]);
    TAILQ_INIT(&env->throttled);
    status = env_init_handles(env);
    if (status == 0 && uv_jobs_init(env) != RC_OK) status = UV_EMFILE;
    if (status != 0) {
        loop_drain(env);
        goto no_loop;
    }
    uv_rate_init(env, options->bytes_per_s);
    *out = &env->env;
    return RC_OK;
no_loop:
    mem_wipe(&env->way, sizeof env->way);
    mem_free(env->folder);
    mem_free(env);
    return fault_set(why, RC_IO, "cannot start the event loop: %s", uv_strerror(status));
}

void uv_env_run(struct env *base)
{
    struct uv_env *env = uv_env_of(base);

    CHECK(!env->is_running);
    env->is_running = true;
    while (!env->is_stopping || env->links_alive > env->links_left) {
        (void)uv_run(&env->loop, UV_RUN_DEFAULT);
    }
    uv_jobs_stop(env); /* whoever ran it may now free what jobs under way worked on */
    env->is_running = false;
}

static void on_poll_timeout(uv_timer_t *timer)
{
    (void)timer;
}

void uv_env_poll(struct env *base, uint64_t timeout_ns)
{
    struct uv_env *env = uv_env_of(base);
    uv_timer_t timeout;

    CHECK(!env->is_running);
    env->is_running = true;
    if (timeout_ns == 0) {
        (void)uv_run(&env->loop, UV_RUN_NOWAIT);
    } else {
        uint64_t timeout_ms = (timeout_ns + NS_PER_MS - 1) / NS_PER_MS;

        uv_update_time(&env->loop);
        CHECK(uv_timer_init(&env->loop, &timeout) == 0);
        /* Repeating: should it fire before the loop waits, it must still end the waiting. */
        CHECK(uv_timer_start(&timeout, on_poll_timeout, timeout_ms, timeout_ms) == 0);
        (void)uv_run(&env->loop, UV_RUN_ONCE);
        uv_close((uv_handle_t *)&timeout, NULL);
        (void)uv_run(&env->loop, UV_RUN_NOWAIT); /* runs the close: the timer is on our stack */
    }
    env->is_running = false;
}

static void see_open_handle(uv_handle_t *handle, void *is_any)
{
    (void)handle;
    *(bool *)is_any = true;
}

/* The library would wait for its threads when the process ends. */
static void exit_at_once(int status, void *unused)
{
    (void)unused;
    (void)fflush(NULL); /* whoever writes results has looked at what became of them */
    _exit(status);
}

/* Give back all but the memory: lookups are under way. */
static void env_leave(struct uv_env *env)
{
    bool is_any;

    uv_walk(&env->loop, close_all_handles, NULL);
    do {
        (void)uv_run(&env->loop, UV_RUN_NOWAIT);
        is_any = false;
        uv_walk(&env->loop, see_open_handle, &is_any);
    } while (is_any);
    uv_jobs_deinit(env);
    if (!env->is_within) CHECK(on_exit(exit_at_once, NULL) == 0); /* a program ends as it likes */
}

void uv_env_destroy(struct env *base)
{
    struct uv_env *env;
    struct tcp_link *link;

    if (base == NULL) return;
    env = uv_env_of(base);
    CHECK(!env->is_running);
    env->is_stopping = true;
    uv_jobs_stop(env);
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        if (env->slots[i] != NULL) tcp_link_close(env->slots[i]);
    }
    TAILQ_FOREACH (link, &env->leaving, entry) {
        if (link->state == TCP_LINGERING) tcp_link_close(link);
    }
    tcp_unlisten(env);
    while (env->links_alive > env->links_left) {
        (void)uv_run(&env->loop, UV_RUN_ONCE); /* close callbacks */
    }
    if (env->links_alive > 0) {
        env_leave(env);
        return;
    }
    loop_drain(env);
    uv_jobs_deinit(env);
    mem_wipe(&env->way, sizeof env->way);
    mem_free(env->folder);
    mem_free(env);
}

static void on_watched(uv_poll_t *poll, int status, int ready)
{
    struct uv_watch *watch = poll->data;
    struct uv_env *env = poll->loop->data;

    (void)status; /* an error makes the descriptor readable: its owner will meet it there */
    (void)ready;
    if (!env->is_stopping) watch->on_ready(watch->context);
}

/* Libraries with a loop of their own have deadlines of their own. */
static void on_watch_timer(uv_timer_t *timer)
{
    struct uv_env *env = timer->data;
    bool is_any = false;

    for (unsigned i = 0; i < WATCHES_MAX && !env->is_stopping; i++) {
        struct uv_watch *watch = &env->watches[i];

        if (!watch->is_used || watch->fd < 0) continue;
        is_any = true;
        watch->on_ready(watch->context);
    }
    if (!is_any) CHECK(uv_timer_stop(timer) == 0);
}

enum rc uv_env_watch(struct env *base, int fd, void (*on_ready)(void *context), void *context)
{
    struct uv_env *env = uv_env_of(base);
    struct uv_watch *watch = env->watches;

    CHECK(on_ready != NULL);
    while (watch < env->watches + WATCHES_MAX && watch->is_used) {
        watch++;
    }
    if (watch == env->watches + WATCHES_MAX) return RC_LIMIT;
    if (uv_poll_init(&env->loop, &watch->poll, fd) != 0) return RC_IO;
    watch->poll.data = watch;
    watch->on_ready = on_ready;
    watch->context = context;
    watch->fd = fd;
    watch->is_used = true;
    CHECK(uv_poll_start(&watch->poll, UV_READABLE, on_watched) == 0);
    CHECK(uv_timer_start(&env->watch_timer, on_watch_timer, WATCH_MS, WATCH_MS) == 0);
    return RC_OK;
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct uv_watch *watch = handle->data;

    watch->is_used = false;
}

void uv_env_unwatch(struct env *base, int fd)
{
    struct uv_env *env = uv_env_of(base);

    for (unsigned i = 0; i < WATCHES_MAX; i++) {
        struct uv_watch *watch = &env->watches[i];

        if (!watch->is_used || watch->fd != fd) continue;
        watch->fd = -1;
        uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
    }
}

enum rc uv_env_rc(int status, const char **why)
{
    static const struct {
        int status;
        enum rc rc;
        const char *why;
    } table[] = {
        {UV_ECONNREFUSED, RC_REFUSED, "connection refused"},
        {UV_EHOSTUNREACH, RC_IO, "no route to host"},
        {UV_ENETUNREACH, RC_IO, "no route to that network"},
        {UV_EADDRINUSE, RC_IO, "address already in use"},
        {UV_EADDRNOTAVAIL, RC_IO, "this machine does not have that address"},
        {UV_EACCES, RC_IO, "permission denied"},
        {UV_ECONNRESET, RC_CLOSED, "connection reset by the other side"},
        {UV_EPIPE, RC_CLOSED, "closed by the other side"},
        {UV_EOF, RC_CLOSED, "closed by the other side"},
        {UV_ETIMEDOUT, RC_TIMEOUT, "no answer"},
        {UV_EAI_NONAME, RC_NOT_FOUND, "host name not found"},
        {UV_EAI_NODATA, RC_NOT_FOUND, "host name has no address"},
        {UV_EAI_AGAIN, RC_NOT_FOUND, "host name not found: no name server answers"},
        {UV_EAI_FAIL, RC_NOT_FOUND, "host name not found: the name server failed"},
        {UV_EMFILE, RC_LIMIT, "too many open files"},
        {UV_ENFILE, RC_LIMIT, "too many open files on this machine"},
        {UV_ENOMEM, RC_NOMEM, "out of memory"},
        {UV_ENOBUFS, RC_NOMEM, "out of memory"},
        {UV_EAFNOSUPPORT, RC_UNSUPPORTED, "this machine does not have that kind of address"},
    };

    CHECK(status < 0);
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        if (table[i].status == status) {
            *why = table[i].why;
            return table[i].rc;
        }
    }
    *why = "the operating system reported a network error";
    return RC_IO;
}

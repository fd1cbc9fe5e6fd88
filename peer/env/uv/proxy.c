/*
 * uv_proxy: see proxy.h. A connection through a gate is a pipe of two sockets and two flows, one
 * each way. What a flow reads gets a time when it arrives and waits in a queue, in order; one timer
 * writes what is due. A flow whose queue is long stops reading, as a full line would.
 *
 *   dialler --accepted--> side[0]   flow[0]: side[0] to side[1]
 *                         side[1] --connected--> the gate's process   flow[1]: back
 *
 * One thread, the loop's.
 */
#include "peer/env/proxy.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/wire/address.h"
#include "peer/env/loss.h"
#include "peer/env/uv/process.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum {
    READ_BYTES = 64 * 1024,
    QUEUE_BYTES_MAX = 1 << 20, /* of a flow; more where the line holds more */
    BACKLOG = 128
};

struct parcel {
    TAILQ_ENTRY(parcel) siblings;
    uv_write_t write;
    struct flow *flow;
    uint64_t due_ns;
    size_t count;
    uint8_t bytes[];
};

struct flow {
    struct pipe *pipe;
    uint32_t from, to; /* gates; PROXY_UNKNOWN */
    TAILQ_HEAD(, parcel) queue;
    size_t queued, writing; /* bytes waiting, and given to the system */
    uint64_t last_ns;       /* nothing overtakes */
    bool is_reading, has_ended, has_shut;
    uv_shutdown_t shutdown;
};

struct pipe {
    TAILQ_ENTRY(pipe) siblings;
    struct proxy *proxy;
    uv_tcp_t sides[2];
    struct flow flows[2]; /* [i] reads sides[i] */
    uv_connect_t connect;
    uint32_t open; /* handles not yet closed */
    bool is_connected, is_closing;
};

struct gate {
    uv_tcp_t listener;
    struct proxy *proxy;
    uint32_t number;
    char address[PROXY_ADDRESS_BYTES];
    struct sockaddr_in target;
    bool has_target;
};

struct proxy {
    struct proxy_options options;
    uv_loop_t *loop;
    struct gate *gates;
    uint64_t *lines; /* [gates * gates] when each is free again */
    bool *sides;     /* [gates] */
    bool is_parted;
    TAILQ_HEAD(, pipe) pipes;
    uv_timer_t timer;
    struct rng rng;
    double loss_bytes_per_s; /* what loss leaves of a connection's rate; 0: no limit */
    size_t queue_max;
    uint32_t open; /* handles of its own, and pipes */
    char room[READ_BYTES];
};

static uint64_t now_ns(void)
{
    return uv_hrtime();
}

/* ---- pipes and their end ---- */

static void flow_clear(struct flow *flow)
{
    struct parcel *parcel;

    while ((parcel = TAILQ_FIRST(&flow->queue)) != NULL) {
        TAILQ_REMOVE(&flow->queue, parcel, siblings);
        mem_free(parcel);
    }
}

static void on_side_closed(uv_handle_t *handle)
{
    struct pipe *pipe = handle->data;

    if (--pipe->open > 0) return;
    flow_clear(&pipe->flows[0]);
    flow_clear(&pipe->flows[1]);
    TAILQ_REMOVE(&pipe->proxy->pipes, pipe, siblings);
    pipe->proxy->open--;
    mem_free(pipe);
}

static void pipe_close(struct pipe *pipe)
{
    if (pipe->is_closing) return;
    pipe->is_closing = true;
    for (int i = 0; i < 2; i++) {
        uv_close((uv_handle_t *)&pipe->sides[i], on_side_closed);
    }
}

/* ---- when bytes arrive ---- */

static uint64_t line_pass(const struct proxy *proxy, uint64_t *free_ns, uint64_t at_ns,
                          size_t count)
{
    double rate = (double)proxy->options.bytes_per_s;

    if (proxy->loss_bytes_per_s > 0 && (rate <= 0 || proxy->loss_bytes_per_s < rate)) {
        rate = proxy->loss_bytes_per_s;
    }
    if (rate <= 0) return at_ns;
    if (*free_ns > at_ns) at_ns = *free_ns;
    *free_ns = at_ns + (uint64_t)((double)count / rate * (double)NS_PER_S);
    return *free_ns;
}

static uint64_t arrival_ns(struct flow *flow, size_t count)
{
    struct proxy *proxy = flow->pipe->proxy;
    uint64_t at_ns = now_ns(), jitter_ns = proxy->options.jitter_ns;

    if (flow->from != PROXY_UNKNOWN && flow->to != PROXY_UNKNOWN) {
        uint64_t *line = &proxy->lines[(size_t)flow->from * proxy->options.gates + flow->to];

        at_ns = line_pass(proxy, line, at_ns, count);
    }
    at_ns += proxy->options.latency_ns +
             loss_draw_ns(&proxy->rng, proxy->options.loss, 2 * proxy->options.latency_ns, count);
    if (jitter_ns > 0) at_ns += rng_below(&proxy->rng, jitter_ns + 1);
    if (at_ns < flow->last_ns) at_ns = flow->last_ns;
    flow->last_ns = at_ns;
    return at_ns;
}

static bool is_cut(const struct flow *flow)
{
    const struct proxy *proxy = flow->pipe->proxy;

    return proxy->is_parted && flow->from != PROXY_UNKNOWN && flow->to != PROXY_UNKNOWN &&
           proxy->sides[flow->from] != proxy->sides[flow->to];
}

/* ---- carrying ---- */

static void flow_read(struct flow *flow);

static void on_shut(uv_shutdown_t *request, int status)
{
    struct flow *flow = request->data;
    struct pipe *pipe = flow->pipe;

    (void)status;
    if (pipe->flows[0].has_shut && pipe->flows[1].has_shut) pipe_close(pipe);
}

static void on_written(uv_write_t *write, int status)
{
    struct parcel *parcel = write->data;
    struct flow *flow = parcel->flow;
    struct pipe *pipe = flow->pipe;

    flow->writing -= parcel->count;
    mem_free(parcel);
    if (pipe->is_closing) return;
    if (status < 0) {
        pipe_close(pipe);
        return;
    }
    flow_read(flow);
}

static uv_stream_t *flow_target(struct flow *flow)
{
    struct pipe *pipe = flow->pipe;

    return (uv_stream_t *)&pipe->sides[flow == &pipe->flows[0] ? 1 : 0];
}

/* Write what is due. False: the pipe is closing. */
static bool flow_deliver(struct flow *flow, uint64_t now)
{
    struct parcel *parcel;

    if (!flow->pipe->is_connected || is_cut(flow)) return true;
    while ((parcel = TAILQ_FIRST(&flow->queue)) != NULL && parcel->due_ns <= now &&
           flow->writing < QUEUE_BYTES_MAX) {
        uv_buf_t buffer = uv_buf_init((char *)parcel->bytes, (unsigned)parcel->count);

        TAILQ_REMOVE(&flow->queue, parcel, siblings);
        flow->queued -= parcel->count;
        flow->writing += parcel->count;
        parcel->write.data = parcel;
        if (uv_write(&parcel->write, flow_target(flow), &buffer, 1, on_written) != 0) {
            flow->writing -= parcel->count;
            mem_free(parcel);
            pipe_close(flow->pipe);
            return false;
        }
    }
    if (flow->has_ended && !flow->has_shut && TAILQ_EMPTY(&flow->queue)) {
        flow->has_shut = true;
        flow->shutdown.data = flow;
        if (uv_shutdown(&flow->shutdown, flow_target(flow), on_shut) != 0) {
            pipe_close(flow->pipe);
            return false;
        }
    }
    return true;
}

static void proxy_deliver(struct proxy *proxy);

static void on_due(uv_timer_t *timer)
{
    proxy_deliver(timer->data);
}

/* All flows: there are few, and each looks at its first parcel only. */
static void proxy_deliver(struct proxy *proxy)
{
    uint64_t now = now_ns(), next_ns = UINT64_MAX;
    struct pipe *pipe;

    TAILQ_FOREACH (pipe, &proxy->pipes, siblings) {
        for (int i = 0; i < 2 && !pipe->is_closing; i++) {
            struct flow *flow = &pipe->flows[i];
            const struct parcel *first;

            if (!flow_deliver(flow, now)) break;
            first = TAILQ_FIRST(&flow->queue);
            flow_read(flow);
            if (first == NULL || is_cut(flow) || !pipe->is_connected) continue;
            if (first->due_ns < next_ns) next_ns = first->due_ns;
        }
    }
    if (next_ns == UINT64_MAX) return;
    /* Rounded up: the loop's timers count milliseconds. */
    (void)uv_timer_start(&proxy->timer, on_due,
                         next_ns > now ? (next_ns - now + NS_PER_MS - 1) / NS_PER_MS : 1, 0);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct pipe *pipe = handle->data;

    (void)suggested;
    *buffer = uv_buf_init(pipe->proxy->room, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct pipe *pipe = stream->data;
    struct flow *flow = &pipe->flows[stream == (uv_stream_t *)&pipe->sides[0] ? 0 : 1];
    struct parcel *parcel;

    if (count == 0) return;
    if (count < 0 && count != UV_EOF) { /* the other side hears of it */
        pipe_close(pipe);
        return;
    }
    if (count == UV_EOF) {
        (void)uv_read_stop(stream);
        flow->is_reading = false;
        flow->has_ended = true;
    } else {
        parcel = mem_raw(sizeof *parcel + (size_t)count);
        if (parcel == NULL) {
            pipe_close(pipe);
            return;
        }
        parcel->flow = flow;
        parcel->count = (size_t)count;
        memcpy(parcel->bytes, buffer->base, (size_t)count);
        parcel->due_ns = arrival_ns(flow, (size_t)count);
        TAILQ_INSERT_TAIL(&flow->queue, parcel, siblings);
        flow->queued += (size_t)count;
    }
    proxy_deliver(pipe->proxy);
}

/* Start or stop reading, by how much waits. */
static void flow_read(struct flow *flow)
{
    struct pipe *pipe = flow->pipe;
    uv_stream_t *stream = (uv_stream_t *)&pipe->sides[flow == &pipe->flows[0] ? 0 : 1];
    bool wants = pipe->is_connected && !pipe->is_closing && !flow->has_ended && !is_cut(flow) &&
                 flow->queued + flow->writing < pipe->proxy->queue_max;

    if (wants == flow->is_reading) return;
    flow->is_reading = wants;
    if (!wants) {
        (void)uv_read_stop(stream);
    } else if (uv_read_start(stream, on_room, on_read) != 0) {
        pipe_close(pipe);
    }
}

/* ---- gates ---- */

static void on_connected(uv_connect_t *connect, int status)
{
    struct pipe *pipe = connect->data;

    if (pipe->is_closing) return;
    if (status < 0) {
        pipe_close(pipe);
        return;
    }
    pipe->is_connected = true;
    (void)uv_tcp_nodelay(&pipe->sides[0], 1);
    (void)uv_tcp_nodelay(&pipe->sides[1], 1);
    proxy_deliver(pipe->proxy);
}

static uint32_t dialler_of(struct proxy *proxy, const uv_tcp_t *side)
{
    struct sockaddr_storage name;
    int bytes = sizeof name;

    if (proxy->options.who == NULL ||
        uv_tcp_getpeername(side, (struct sockaddr *)&name, &bytes) != 0) {
        return PROXY_UNKNOWN;
    }
    return proxy->options.who(proxy->options.context,
                              ntohs(((const struct sockaddr_in *)(const void *)&name)->sin_port));
}

static void on_dialled(uv_stream_t *listener, int status)
{
    struct gate *gate = listener->data;
    struct proxy *proxy = gate->proxy;
    struct pipe *pipe = status < 0 ? NULL : mem_alloc(sizeof *pipe);
    uint32_t from;

    if (pipe == NULL) return; /* it stays in the system's queue, or is tried again */
    pipe->proxy = proxy;
    pipe->open = 2;
    proxy->open++;
    for (int i = 0; i < 2; i++) {
        CHECK(uv_tcp_init(proxy->loop, &pipe->sides[i]) == 0);
        pipe->sides[i].data = pipe;
        pipe->flows[i].pipe = pipe;
        TAILQ_INIT(&pipe->flows[i].queue);
    }
    TAILQ_INSERT_TAIL(&proxy->pipes, pipe, siblings);
    if (uv_accept(listener, (uv_stream_t *)&pipe->sides[0]) != 0 || !gate->has_target) {
        pipe_close(pipe);
        return;
    }
    from = dialler_of(proxy, &pipe->sides[0]);
    pipe->flows[0].from = pipe->flows[1].to = from;
    pipe->flows[0].to = pipe->flows[1].from = gate->number;
    pipe->connect.data = pipe;
    if (uv_tcp_connect(&pipe->connect, &pipe->sides[1], (const struct sockaddr *)&gate->target,
                       on_connected) != 0) {
        pipe_close(pipe);
    }
}

static enum rc gate_open(struct proxy *proxy, uint32_t number, struct fault *why)
{
    struct gate *gate = &proxy->gates[number];
    struct sockaddr_storage bound;
    struct sockaddr_in any;
    int bytes = sizeof bound, status;

    gate->proxy = proxy;
    gate->number = number;
    CHECK(uv_ip4_addr("127.0.0.1", 0, &any) == 0);
    CHECK(uv_tcp_init(proxy->loop, &gate->listener) == 0);
    gate->listener.data = gate;
    proxy->open++;
    status = uv_tcp_bind(&gate->listener, (const struct sockaddr *)&any, 0);
    if (status == 0) status = uv_listen((uv_stream_t *)&gate->listener, BACKLOG, on_dialled);
    if (status == 0) {
        status = uv_tcp_getsockname(&gate->listener, (struct sockaddr *)&bound, &bytes);
    }
    if (status != 0) {
        return fault_set(why, RC_IO, "cannot open a line for peer %u: %s", number,
                         uv_strerror(status));
    }
    snprintf(gate->address, sizeof gate->address, "127.0.0.1:%u",
             (unsigned)ntohs(((const struct sockaddr_in *)(const void *)&bound)->sin_port));
    return RC_OK;
}

/* ---- life ---- */

/* What a connection's window must hold to fill the line. */
static void set_limits(struct proxy *proxy)
{
    const struct proxy_options *options = &proxy->options;
    double round_s = 2 * (double)options->latency_ns / (double)NS_PER_S;
    double line = (double)options->bytes_per_s * round_s;

    proxy->queue_max = line > QUEUE_BYTES_MAX ? (size_t)line : QUEUE_BYTES_MAX;
    if (options->loss > 0 && round_s > 0) {
        proxy->loss_bytes_per_s = loss_rate(options->loss, round_s);
    }
}

enum rc proxy_create(struct process_host *host, const struct proxy_options *options,
                     struct proxy **out, struct fault *why)
{
    struct proxy *proxy = mem_alloc(sizeof *proxy);
    enum rc rc = RC_OK;

    CHECK(options->gates > 0);
    if (proxy == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    /* Peers are killed while bytes are on their way: an error code, not the end of this process. */
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    proxy->options = *options;
    proxy->loop = process_host_loop(host);
    TAILQ_INIT(&proxy->pipes);
    rng_init(&proxy->rng, options->seed, options->gates);
    set_limits(proxy);
    CHECK(uv_timer_init(proxy->loop, &proxy->timer) == 0);
    proxy->timer.data = proxy;
    proxy->open = 1;
    proxy->gates = mem_array(options->gates, sizeof *proxy->gates);
    proxy->lines = mem_array((size_t)options->gates * options->gates, sizeof *proxy->lines);
    proxy->sides = mem_array(options->gates, sizeof *proxy->sides);
    if (proxy->gates == NULL || proxy->lines == NULL || proxy->sides == NULL) {
        rc = fault_set(why, RC_NOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < options->gates && rc == RC_OK; i++) {
        rc = gate_open(proxy, i, why);
    }
    if (rc != RC_OK) {
        proxy_destroy(proxy);
        return rc;
    }
    *out = proxy;
    return RC_OK;
}

static void on_own_closed(uv_handle_t *handle)
{
    struct gate *gate = handle->data;

    gate->proxy->open--;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct proxy *proxy = handle->data;

    proxy->open--;
}

void proxy_destroy(struct proxy *proxy)
{
    struct pipe *pipe;

    if (proxy == NULL) return;
    uv_close((uv_handle_t *)&proxy->timer, on_timer_closed);
    for (uint32_t i = 0; proxy->gates != NULL && i < proxy->options.gates; i++) {
        if (proxy->gates[i].proxy == NULL) break;
        uv_close((uv_handle_t *)&proxy->gates[i].listener, on_own_closed);
    }
    TAILQ_FOREACH (pipe, &proxy->pipes, siblings) {
        pipe_close(pipe);
    }
    while (proxy->open > 0) {
        (void)uv_run(proxy->loop, UV_RUN_NOWAIT);
    }
    mem_free(proxy->gates);
    mem_free(proxy->lines);
    mem_free(proxy->sides);
    mem_free(proxy);
}

const char *proxy_address(const struct proxy *proxy, uint32_t gate)
{
    CHECK(gate < proxy->options.gates);
    return proxy->gates[gate].address;
}

void proxy_set_target(struct proxy *proxy, uint32_t number, const char *text)
{
    struct gate *gate = &proxy->gates[number];
    struct address address;

    CHECK(number < proxy->options.gates);
    gate->has_target = address_parse(text, &address) == RC_OK &&
                       uv_ip4_addr(address.host, address.port, &gate->target) == 0;
}

void proxy_set_sides(struct proxy *proxy, const bool *sides)
{
    proxy->is_parted = sides != NULL;
    if (sides != NULL) memcpy(proxy->sides, sides, proxy->options.gates * sizeof *sides);
    proxy_deliver(proxy);
}

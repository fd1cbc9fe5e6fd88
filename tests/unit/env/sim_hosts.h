/* sim_hosts: a few hosts of a simulated world that note what they are told. */
#ifndef GRAPEVINE_TESTS_SIM_HOSTS_H
#define GRAPEVINE_TESTS_SIM_HOSTS_H

#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"
#include "peer/env/sim/env.h"

enum { HOSTS = 4, INNER = 1000 };

struct peer {
    struct env *env;
    uint32_t host;
    uint64_t link; /* newest, either kind */
    unsigned accepted, connected, frames, lost, wakes, drains;
    uint64_t frame_ns, lost_ns, wake_ns; /* when the newest came */
    enum rc lost_rc;
    bool does_answer; /* every frame with a frame */
};

static inline void send_frame(struct peer *peer, uint64_t link, size_t inner)
{
    struct blob *frame = blob_create(secure_record_bytes(inner));

    memset(frame->bytes, 0, frame->count);
    store_le32(frame->bytes, (uint32_t)inner);
    (void)!peer->env->ops->send(peer->env, link, frame);
    blob_unref(frame);
}

static inline void on_accepted(void *context, uint64_t link, const char *remote)
{
    struct peer *peer = context;

    assert_true(strncmp(remote, "sim:", 4) == 0);
    peer->accepted++;
    peer->link = link;
    peer->env->ops->link_set_frame_max(peer->env, link, 1 << 20);
}

static inline void on_connected(void *context, uint64_t link)
{
    struct peer *peer = context;

    peer->connected++;
    peer->link = link;
    peer->env->ops->link_set_frame_max(peer->env, link, 1 << 20);
}

static inline void on_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    struct peer *peer = context;

    peer->frames++;
    peer->frame_ns = peer->env->ops->now_ns(peer->env);
    memset(frame, 0xff, count);
    if (peer->does_answer) send_frame(peer, link, INNER + peer->frames % 50);
}

static inline void on_drain(void *context, uint64_t link)
{
    (void)link;
    ((struct peer *)context)->drains++;
}

static inline void on_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    struct peer *peer = context;

    (void)link, (void)why;
    peer->lost++;
    peer->lost_rc = rc;
    peer->lost_ns = peer->env->ops->now_ns(peer->env);
}

static inline void on_wake(void *context)
{
    struct peer *peer = context;

    peer->wakes++;
    peer->wake_ns = peer->env->ops->now_ns(peer->env);
}

static inline void peer_begin(struct peer *peer, struct env *env, uint32_t host)
{
    struct env_events events = {.context = peer,
                                .on_accepted = on_accepted,
                                .on_connected = on_connected,
                                .on_frame = on_frame,
                                .on_drain = on_drain,
                                .on_lost = on_lost,
                                .on_wake = on_wake};
    char bound[32];
    struct fault why;

    memset(peer, 0, sizeof *peer);
    peer->env = env;
    peer->host = host;
    env->ops->set_events(env, &events);
    assert_int_equal(env->ops->listen(env, "0.0.0.0:7000", bound, sizeof bound, &why), RC_OK);
}

struct net {
    struct sim_world *world;
    struct peer peers[HOSTS];
};

static inline struct net *net_open(const struct sim_options *options)
{
    struct net *net = calloc(1, sizeof *net);

    assert_non_null(net);
    net->world = sim_world_create(options);
    for (uint32_t i = 0; i < HOSTS; i++) {
        uint32_t host;
        struct env *env = sim_host_create(net->world, &host);

        assert_int_equal(host, i);
        peer_begin(&net->peers[i], env, host);
    }
    return net;
}

static inline struct net *net_create(uint64_t seed)
{
    struct sim_options options = {.seed = seed,
                                  .latency_ns = 10 * NS_PER_MS,
                                  .jitter_ns = 5 * NS_PER_MS,
                                  .bytes_per_s = 10 * 1000 * 1000,
                                  .hosts_max = HOSTS};

    return net_open(&options);
}

static inline void net_destroy(struct net *net)
{
    sim_world_destroy(net->world);
    free(net);
}

static inline void net_wait(struct net *net, uint64_t ns)
{
    (void)sim_run(net->world, sim_now_ns(net->world) + ns);
}

static inline void net_connect(struct net *net, uint32_t from, uint32_t to)
{
    char address[32];
    uint64_t link;

    snprintf(address, sizeof address, "sim:%u", to);
    assert_int_equal(net->peers[from].env->ops->dial(net->peers[from].env, address, &link), RC_OK);
    net_wait(net, NS_PER_S);
    assert_int_equal(net->peers[from].link, link);
}

#endif

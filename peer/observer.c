/* An observer: one link, one question, one answer, on a loop of its own. */
#include "peer/observer.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/link.h"

#include <stdio.h>

struct observer {
    struct env *env;
    struct links *links;
    char *text;
    enum rc rc;
    bool is_done;
    uint64_t deadline_ns;
    struct fault why;
};

static void finish(struct observer *observer, enum rc rc, const char *why)
{
    if (observer->is_done) return;
    observer->is_done = true;
    observer->rc = fault_set(&observer->why, rc, "%s", why);
    observer->env->ops->stop(observer->env);
}

static void on_open(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled)
{
    struct observer *observer = context;
    struct message message = {.type = MESSAGE_STATUS_REQ};

    (void)hello;
    (void)address;
    (void)is_dialled;
    if (links_send(observer->links, peer, &message) != RC_OK) {
        finish(observer, RC_CLOSED, "the peer hung up");
    }
}

static void on_message(void *context, struct peer_id peer, const struct message *message)
{
    struct observer *observer = context;

    (void)peer;
    if (message->type != MESSAGE_STATUS || observer->is_done) return;
    observer->text = mem_alloc(message->as.status.text_bytes + 1);
    if (observer->text == NULL) {
        finish(observer, RC_NOMEM, "out of memory");
        return;
    }
    memcpy(observer->text, message->as.status.text, message->as.status.text_bytes);
    finish(observer, RC_OK, "");
}

static void on_data(void *context, struct peer_id peer, const struct inner_header *header,
                    const uint8_t *body, size_t count)
{
    (void)context;
    (void)peer;
    (void)header;
    (void)body;
    (void)count;
}

static void on_heard(void *context, struct peer_id peer)
{
    (void)context;
    (void)peer;
}

static void on_closed(void *context, struct peer_id peer, enum rc rc, const char *why)
{
    (void)peer;
    finish(context, rc, why);
}

static void on_dial_failed(void *context, const char *address, enum rc rc, const char *why,
                           const struct peer_id *peer)
{
    (void)address;
    (void)peer;
    finish(context, rc == RC_MISMATCH ? RC_REFUSED : rc, why);
}

static void env_connected(void *context, uint64_t link)
{
    links_on_connected(((struct observer *)context)->links, link);
}

static void env_accepted(void *context, uint64_t link, const char *remote)
{
    struct observer *observer = context;

    (void)remote;
    observer->env->ops->hangup(observer->env, link);
}

static void env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    links_on_frame(((struct observer *)context)->links, link, frame, count);
}

static void env_drain(void *context, uint64_t link)
{
    links_on_drain(((struct observer *)context)->links, link);
}

static void env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    links_on_lost(((struct observer *)context)->links, link, rc, why);
}

static void env_wake(void *context)
{
    struct observer *observer = context;
    uint64_t now_ns = observer->env->ops->now_ns(observer->env);

    links_tick(observer->links, now_ns);
    if (now_ns >= observer->deadline_ns) finish(observer, RC_TIMEOUT, "no answer in time");
    observer->env->ops->wake_at(observer->env, now_ns + 50 * NS_PER_MS);
}

static void env_signal(void *context, int signal)
{
    (void)signal;
    finish(context, RC_CANCELLED, "stopped");
}

static enum rc ask(struct observer *observer, const char *address, struct links_options *options)
{
    struct links_events events = {.context = observer,
                                  .on_open = on_open,
                                  .on_message = on_message,
                                  .on_data = on_data,
                                  .on_heard = on_heard,
                                  .on_bulk_drained = NULL, /* nothing bulky is ever sent */
                                  .on_closed = on_closed,
                                  .on_dial_failed = on_dial_failed};
    struct env_events env_events = {.context = observer,
                                    .on_accepted = env_accepted,
                                    .on_connected = env_connected,
                                    .on_frame = env_frame,
                                    .on_drain = env_drain,
                                    .on_lost = env_lost,
                                    .on_wake = env_wake,
                                    .on_signal = env_signal};
    enum rc rc;

    observer->env->ops->entropy(observer->env, options->hello.boot.bytes, BOOT_ID_BYTES);
    observer->links = links_create(options, &events);
    if (observer->links == NULL) return fault_set(&observer->why, RC_NOMEM, "out of memory");
    observer->env->ops->set_events(observer->env, &env_events);
    rc = links_dial(observer->links, address);
    if (rc != RC_OK) return fault_set(&observer->why, rc, "%s: %s", address, rc_text(rc));
    observer->env->ops->wake_at(observer->env, 0);
    uv_env_run(observer->env);
    return observer->rc;
}

MUST_USE enum rc observer_status(const char *address, const struct swarm_secret *swarm,
                                 uint64_t timeout_ns, char **text, struct fault *why)
{
    struct observer observer = {.rc = RC_CANCELLED};
    struct uv_env_options env_options = {.folder = NULL};
    struct links_options options = {.swarm = swarm};
    struct identity identity;
    uint8_t seed[SECRET_BYTES];
    enum rc rc = uv_env_create(&env_options, &observer.env, why);

    if (rc != RC_OK) return rc;
    observer.env->ops->entropy(observer.env, seed, sizeof seed);
    identity_from_seed(seed, &identity);
    observer.deadline_ns = observer.env->ops->now_ns(observer.env) + timeout_ns;
    options.env = observer.env;
    options.identity = &identity;
    memcpy(options.hello.public_key, identity.public_key, sizeof options.hello.public_key);
    options.hello.incarnation = 1;
    options.hello.role = HELLO_OBSERVER;
    rc = ask(&observer, address, &options);
    if (rc == RC_OK) {
        *text = observer.text;
    } else {
        mem_free(observer.text);
        fault_set(why, rc, "%s", observer.why.text);
    }
    links_destroy(observer.links);
    uv_env_destroy(observer.env);
    identity_wipe(&identity);
    return rc;
}

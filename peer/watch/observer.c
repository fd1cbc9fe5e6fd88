/* An observer: one link, a question, an answer, on a loop of its own. */
#include "peer/watch/observer.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/files/credentials.h"
#include "peer/files/keys.h"
#include "peer/link/link.h"
#include "peer/times.h"

#include <stdio.h>

struct observer {
    struct env *env;
    struct links *links;
    struct peer_id peer;
    const struct observer_options *options;
    bool (*on_status)(void *context, const char *text, size_t bytes);
    void *context;
    enum rc rc;
    bool is_done;
    uint64_t deadline_ns;       /* of the link or the answer that is awaited */
    uint64_t first_ns;          /* of the first answer; 0: it came */
    uint64_t every_ns, next_ns; /* UINT64_MAX: an answer is awaited, or no link yet */
    uint64_t asked_ns;
    struct fault why;
};

static void finish(struct observer *observer, enum rc rc, const char *why)
{
    if (observer->is_done) return;
    observer->is_done = true;
    observer->rc = fault_set(&observer->why, rc, "%s", why);
    observer->env->ops->stop(observer->env);
}

static void send_question(struct observer *observer)
{
    struct message message = {.type = MESSAGE_STATUS_REQ};

    observer->asked_ns = observer->env->ops->now_ns(observer->env);
    if (links_send(observer->links, observer->peer, &message) != RC_OK) {
        finish(observer, RC_CLOSED, "the peer closed the connection");
    }
}

static void ask(struct observer *observer)
{
    observer->next_ns = UINT64_MAX;
    observer->deadline_ns = observer->first_ns != 0 ? observer->first_ns
                                                    : observer->env->ops->now_ns(observer->env) +
                                                          observer->options->timeout_ns;
    observer->first_ns = 0;
    send_question(observer);
}

static void on_open(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled)
{
    struct observer *observer = context;

    (void)hello;
    (void)address;
    (void)is_dialled;
    observer->peer = peer;
    ask(observer);
}

static void on_message(void *context, struct peer_id peer, const struct message *message)
{
    struct observer *observer = context;

    (void)peer;
    if (message->type != MESSAGE_STATUS || observer->is_done) return;
    if (observer->next_ns != UINT64_MAX) return; /* no answer is due: it was asked to be kept */
    if (observer->on_status(observer->context, message->as.status.text,
                            message->as.status.text_bytes)) {
        observer->next_ns = observer->env->ops->now_ns(observer->env) + observer->every_ns;
        observer->deadline_ns = UINT64_MAX;
    } else {
        finish(observer, RC_OK, "");
    }
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
    if (observer->options->stop != NULL && *observer->options->stop != 0) {
        finish(observer, RC_CANCELLED, "stopped");
    }
    if (now_ns >= observer->deadline_ns) finish(observer, RC_TIMEOUT, "no answer in time");
    if (now_ns >= observer->next_ns && !observer->is_done) {
        ask(observer);
    } else if (observer->next_ns != UINT64_MAX && !observer->is_done &&
               now_ns >= observer->asked_ns + OBSERVER_KEEP_NS) {
        send_question(observer);
    }
    observer->env->ops->wake_at(observer->env, now_ns + 50 * NS_PER_MS);
}

static enum rc visit(struct observer *observer, struct links_options *options)
{
    struct links_events events = {.context = observer,
                                  .on_open = on_open,
                                  .on_message = on_message,
                                  .on_closed = on_closed,
                                  .on_dial_failed = on_dial_failed};
    struct env_events env_events = {.context = observer,
                                    .on_accepted = env_accepted,
                                    .on_connected = env_connected,
                                    .on_frame = env_frame,
                                    .on_drain = env_drain,
                                    .on_lost = env_lost,
                                    .on_wake = env_wake};
    enum rc rc;

    observer->env->ops->entropy(observer->env, options->hello.boot.bytes, BOOT_ID_BYTES);
    observer->links = links_create(options, &events);
    if (observer->links == NULL) return fault_set(&observer->why, RC_NOMEM, "out of memory");
    observer->env->ops->set_events(observer->env, &env_events);
    rc = links_dial(observer->links, observer->options->address);
    if (rc != RC_OK) {
        return fault_set(&observer->why, rc, "%s: %s", observer->options->address, rc_text(rc));
    }
    observer->env->ops->wake_at(observer->env, 0);
    uv_env_run(observer->env);
    return observer->rc;
}

static enum rc show_certificate(const struct observer_options *options,
                                const struct identity *identity, struct hello *hello,
                                struct fault *why)
{
    struct credentials_options given = {.certificate = options->certificate,
                                        .identity = identity,
                                        .run_id = options->swarm->run_id};

    return credentials_show(&given, uv_wall_s(), hello, why);
}

MUST_USE enum rc observer_watch(const struct observer_options *options, uint64_t every_ns,
                                bool (*on_status)(void *context, const char *text, size_t bytes),
                                void *context, struct fault *why)
{
    struct observer observer = {.options = options,
                                .on_status = on_status,
                                .context = context,
                                .rc = RC_CANCELLED,
                                .every_ns = every_ns,
                                .next_ns = UINT64_MAX};
    struct uv_env_options env_options = {.way = options->way};
    struct links_options links = {.swarm = options->swarm};
    struct identity identity;
    enum rc rc = uv_env_create(&env_options, &observer.env, why);

    if (rc != RC_OK) return rc;
    rc = keys_identity_there(observer.env, observer.options->identity, &identity, why);
    if (rc != RC_OK) {
        uv_env_destroy(observer.env);
        return rc;
    }
    observer.first_ns = observer.env->ops->now_ns(observer.env) + options->timeout_ns;
    observer.deadline_ns = observer.first_ns;
    if (options->open_ns > 0) observer.deadline_ns -= options->timeout_ns - options->open_ns;
    links.env = observer.env;
    links.identity = &identity;
    memcpy(links.hello.public_key, identity.public_key, sizeof links.hello.public_key);
    links.hello.incarnation = 1;
    links.hello.role = HELLO_OBSERVER;
    rc = show_certificate(options, &identity, &links.hello, why);
    if (rc == RC_OK) {
        rc = visit(&observer, &links);
        if (rc != RC_OK) fault_set(why, rc, "%s", observer.why.text);
    }
    links_destroy(observer.links);
    uv_env_destroy(observer.env);
    mem_wipe(&identity, sizeof identity);
    return rc;
}

/* The first answer is the last. */
static bool keep_text(void *context, const char *text, size_t bytes)
{
    char **kept = context;

    *kept = mem_alloc(bytes + 1);
    if (*kept != NULL) memcpy(*kept, text, bytes);
    return false;
}

MUST_USE enum rc observer_status(const struct observer_options *options, char **text,
                                 struct fault *why)
{
    char *kept = NULL;
    enum rc rc = observer_watch(options, 0, keep_text, &kept, why);

    if (rc != RC_OK) return rc;
    if (kept == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    *text = kept;
    return RC_OK;
}

/* survey: see survey.h. */
#include "peer/watch/survey.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/env/env.h"
#include "peer/files/credentials.h"
#include "peer/files/keys.h"
#include "peer/link/link.h"
#include "peer/times.h"

#include <string.h>

struct survey {
    const struct survey_options *options;
    struct env *env;
    struct links *links;
    struct inquiry *inquiry;
    struct outbox outbox;
    struct peer_id ids[SURVEY_MEMBERS_MAX];
    bool is_linked[SURVEY_MEMBERS_MAX]; /* by the peer of `ids` */
    enum rc rc;                         /* RC_OK, or what ended it early */
    struct fault why;
};

static uint64_t now(const struct survey *s)
{
    return s->env->ops->now_ns(s->env);
}

static void fail(struct survey *s, enum rc rc, const char *why)
{
    if (s->rc != RC_OK) return;
    s->rc = fault_set(&s->why, rc, "%s", why);
    s->env->ops->stop(s->env);
}

/* UINT32_MAX: nobody's. */
static uint32_t find_address(const struct survey *s, const char *address)
{
    for (uint32_t i = 0; i < s->options->members; i++) {
        if (strcmp(s->options->addresses[i], address) == 0) return i;
    }
    return UINT32_MAX;
}

static uint32_t find_id(const struct survey *s, struct peer_id id)
{
    for (uint32_t i = 0; i < s->options->members; i++) {
        if (s->is_linked[i] && peer_id_is_equal(s->ids[i], id)) return i;
    }
    return UINT32_MAX;
}

/* ---- what links tell ---- */

static void on_open(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled)
{
    struct survey *s = context;
    const uint32_t member = find_address(s, address);

    (void)hello;
    (void)is_dialled;
    if (member == UINT32_MAX) return;
    s->ids[member] = peer;
    s->is_linked[member] = true;
    s->inquiry->ops->on_open(s->inquiry, member, peer, now(s));
}

static void on_message(void *context, struct peer_id peer, const struct message *message)
{
    struct survey *s = context;
    const uint32_t member = find_id(s, peer);
    struct fault why = {""};

    if (member == UINT32_MAX) return;
    const enum rc rc = s->inquiry->ops->on_message(s->inquiry, member, message, now(s), &why);
    if (rc != RC_OK) fail(s, rc, why.text);
}

static void on_data(void *context, struct peer_id peer, const struct inner_header *header,
                    const uint8_t *body, size_t count)
{
    struct survey *s = context;
    const uint32_t member = find_id(s, peer);
    struct fault why = {""};

    if (member == UINT32_MAX || s->inquiry->ops->on_data == NULL) return;
    const enum rc rc =
        s->inquiry->ops->on_data(s->inquiry, member, header, body, count, now(s), &why);
    if (rc != RC_OK) fail(s, rc, why.text);
}

static void on_closed(void *context, struct peer_id peer, enum rc rc, const char *why)
{
    struct survey *s = context;
    const uint32_t member = find_id(s, peer);

    (void)rc;
    (void)why; /* the inquiry keeps only what outlives the link */
    if (member == UINT32_MAX) return;
    s->is_linked[member] = false;
    s->inquiry->ops->on_lost(s->inquiry, member, "its link was lost", now(s));
}

static void on_dial_failed(void *context, const char *address, enum rc rc, const char *why,
                           const struct peer_id *peer)
{
    struct survey *s = context;
    const uint32_t member = find_address(s, address);

    (void)why;
    (void)peer;
    if (member == UINT32_MAX) return;
    if (rc == RC_REPLAY) {
        s->inquiry->ops->drop(s->inquiry, member);
        return;
    }
    s->inquiry->ops->on_lost(s->inquiry, member,
                             rc == RC_REFUSED ? "it does not let this machine in"
                             : rc == RC_AUTH
                                 ? "it does not answer as a member (too busy, or of another swarm)"
                                 : "it cannot be reached",
                             now(s));
}

/* ---- what the env tells ---- */

static void dial(struct survey *s, uint32_t member)
{
    if (links_dial(s->links, s->options->addresses[member]) == RC_OK) return;
    s->inquiry->ops->on_lost(s->inquiry, member, "it cannot be reached", now(s));
}

static void move_on(struct survey *s)
{
    const struct inquiry_ops *ops = s->inquiry->ops;
    const uint64_t now_ns = now(s);
    uint32_t member;

    if (s->rc != RC_OK) return;
    links_tick(s->links, now_ns);
    ops->tick(s->inquiry, s->ids, now_ns, &s->outbox);
    for (uint32_t i = 0; i < s->outbox.count; i++) {
        const struct outbox_entry *entry = &s->outbox.entries[i];
        (void)links_send_inner(s->links, entry->to, entry->inner); /* a lost link tells itself */
    }
    outbox_clear(&s->outbox);
    if (ops->is_over(s->inquiry)) {
        s->env->ops->stop(s->env);
        return;
    }
    while (ops->next_dial(s->inquiry, now_ns, &member)) {
        dial(s, member);
    }
}

static void env_connected(void *context, uint64_t link)
{
    links_on_connected(((struct survey *)context)->links, link);
    move_on(context);
}

static void env_accepted(void *context, uint64_t link, const char *remote)
{
    struct survey *s = context;

    (void)remote;
    s->env->ops->hangup(s->env, link);
}

static void env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    links_on_frame(((struct survey *)context)->links, link, frame, count);
    move_on(context);
}

static void env_drain(void *context, uint64_t link)
{
    links_on_drain(((struct survey *)context)->links, link);
}

static void env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    links_on_lost(((struct survey *)context)->links, link, rc, why);
    move_on(context);
}

static void env_wake(void *context)
{
    struct survey *s = context;
    uint32_t there = 0;

    if (s->options->stop != NULL && *s->options->stop != 0) fail(s, RC_CANCELLED, "stopped");
    move_on(s);
    for (uint32_t i = 0; i < s->options->members; i++) {
        there += s->is_linked[i];
    }
    s->options->on_progress(s->options->context, s->inquiry->ops->progress(s->inquiry), there);
    s->env->ops->wake_at(s->env, now(s) + 50 * NS_PER_MS);
}

/* ---- the whole ---- */

static enum rc open_links(struct survey *s, struct identity *identity, struct fault *why)
{
    const struct links_events events = {.context = s,
                                        .on_open = on_open,
                                        .on_message = on_message,
                                        .on_data = on_data,
                                        .on_closed = on_closed,
                                        .on_dial_failed = on_dial_failed};
    const struct credentials_options credentials = {.certificate = s->options->certificate,
                                                    .identity = identity,
                                                    .run_id = s->options->swarm->run_id};
    struct links_options links = {.env = s->env, .identity = identity, .swarm = s->options->swarm};
    enum rc rc;

    memcpy(links.hello.public_key, identity->public_key, sizeof links.hello.public_key);
    links.hello.incarnation = 1;
    links.hello.role = HELLO_OBSERVER;
    s->env->ops->entropy(s->env, links.hello.boot.bytes, BOOT_ID_BYTES);
    rc = credentials_show(&credentials, uv_wall_s(), &links.hello, why);
    if (rc != RC_OK) return rc;
    s->links = links_create(&links, &events);
    return s->links != NULL ? RC_OK : fault_set(why, RC_NOMEM, "out of memory");
}

static void run(struct survey *s)
{
    const struct env_events events = {.context = s,
                                      .on_accepted = env_accepted,
                                      .on_connected = env_connected,
                                      .on_frame = env_frame,
                                      .on_drain = env_drain,
                                      .on_lost = env_lost,
                                      .on_wake = env_wake};

    s->env->ops->set_events(s->env, &events);
    s->env->ops->wake_at(s->env, 0);
    uv_env_run(s->env);
}

enum rc survey_run(const struct survey_options *options, struct fault *why)
{
    const struct uv_env_options env_options = {.way = options->way};
    struct survey survey = {.options = options, .inquiry = options->inquiry, .rc = RC_OK};
    struct identity identity;
    enum rc rc = uv_env_create(&env_options, &survey.env, why);

    if (rc != RC_OK) return rc;
    outbox_init(&survey.outbox);
    rc = keys_identity_there(survey.env, survey.options->identity, &identity, why);
    if (rc == RC_OK) rc = open_links(&survey, &identity, why);
    if (rc == RC_OK) {
        run(&survey);
        rc = survey.rc == RC_OK ? RC_OK : fault_set(why, survey.rc, "%s", survey.why.text);
    }
    links_destroy(survey.links);
    outbox_deinit(&survey.outbox);
    uv_env_destroy(survey.env);
    mem_wipe(&identity, sizeof identity);
    return rc;
}

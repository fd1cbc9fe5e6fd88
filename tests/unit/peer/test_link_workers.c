/* link over real sockets: records sealed and opened by the lanes' threads arrive whole and once,
 * beside control messages, renewed keys and a hang-up in the middle. The thread sanitizer's test of
 * peer/link/seal.c. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/env/env.h"
#include "peer/link/link.h"

enum { RECORDS = 120, BODY = 96 * 1024, WINDOW = 16 };
#define LIMIT_NS (120 * NS_PER_S)

struct end {
    struct env *env;
    struct links *links;
    struct identity identity;
    struct swarm_secret swarm;
    struct peer_id id, peer;
    char address[ADDRESS_BYTES_MAX];
    bool is_open, is_closed;
    uint32_t received, pings;
    bool has[RECORDS + WINDOW];
};

static void on_open(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled)
{
    struct end *end = context;

    (void)hello, (void)address, (void)is_dialled;
    end->is_open = true;
    end->peer = peer;
}

static void on_message(void *context, struct peer_id peer, const struct message *message)
{
    struct end *end = context;

    (void)peer;
    assert_int_equal(message->type, MESSAGE_SYNC_REQ);
    assert_int_equal(message->as.sync_req.page, end->pings);
    end->pings++;
}

static void on_data(void *context, struct peer_id peer, const struct inner_header *header,
                    const uint8_t *body, size_t count)
{
    struct end *end = context;

    (void)peer;
    assert_true(header->arg < end->pings); /* each is announced by a message */
    assert_true(header->arg < RECORDS + WINDOW && !end->has[header->arg]);
    assert_int_equal(header->arg, end->received);
    end->has[header->arg] = true;
    assert_int_equal(count, BODY);
    for (size_t i = 0; i < count; i += 997) {
        assert_int_equal(body[i], (uint8_t)(header->arg + i));
    }
    end->received++;
}

static void on_heard(void *context, struct peer_id peer)
{
    (void)context, (void)peer;
}

static void on_closed(void *context, struct peer_id peer, enum rc rc, const char *why)
{
    (void)peer, (void)rc, (void)why;
    ((struct end *)context)->is_closed = true;
}

static void on_dial_failed(void *context, const char *address, enum rc rc, const char *why,
                           const struct peer_id *peer)
{
    (void)context, (void)address, (void)rc, (void)peer;
    fail_msg("%s", why);
}

static void env_accepted(void *context, uint64_t link, const char *remote)
{
    links_on_accepted(((struct end *)context)->links, link, remote);
}

static void env_connected(void *context, uint64_t link)
{
    links_on_connected(((struct end *)context)->links, link);
}

static void env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    links_on_frame(((struct end *)context)->links, link, frame, count);
}

static void env_drain(void *context, uint64_t link)
{
    links_on_drain(((struct end *)context)->links, link);
}

static void env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    links_on_lost(((struct end *)context)->links, link, rc, why);
}

static void env_wake(void *context)
{
    (void)context;
}

static void end_start(struct end *end, uint8_t number)
{
    struct env_events env_events = {end,       env_accepted, env_connected, env_frame,
                                    env_drain, env_lost,     env_wake,      NULL};
    struct links_events events = {.context = end,
                                  .on_open = on_open,
                                  .on_message = on_message,
                                  .on_data = on_data,
                                  .on_heard = on_heard,
                                  .on_bulk_drained = on_heard,
                                  .on_closed = on_closed,
                                  .on_dial_failed = on_dial_failed};
    struct uv_env_options env_options = {.folder = NULL};
    struct links_options options = {.identity = &end->identity, .swarm = &end->swarm};
    uint8_t seed[SECRET_BYTES] = {number};
    struct fault why = {""};

    memset(end, 0, sizeof *end);
    assert_int_equal(uv_env_create(&env_options, &end->env, &why), RC_OK);
    identity_from_seed(seed, &end->identity);
    end->id = identity_peer_id(end->identity.public_key);
    swarm_secret_derive("workers", NULL, &end->swarm);
    end->env->ops->set_events(end->env, &env_events);
    assert_int_equal(
        end->env->ops->listen(end->env, "127.0.0.1:0", end->address, sizeof end->address, &why),
        RC_OK);
    options.env = end->env;
    options.rekey.records = 60;
    options.hello = (struct hello){.incarnation = 1, .role = HELLO_PEER, .spec = "x"};
    memcpy(options.hello.public_key, end->identity.public_key, PUBLIC_KEY_BYTES);
    memset(options.hello.boot.bytes, number, BOOT_ID_BYTES);
    end->links = links_create(&options, &events);
    assert_non_null(end->links);
}

static void turn(struct end ends[2])
{
    for (int i = 0; i < 2; i++) {
        uv_env_poll(ends[i].env, NS_PER_MS / 2);
        links_tick(ends[i].links, ends[i].env->ops->now_ns(ends[i].env));
    }
}

static void send_one(struct end *end, uint32_t number)
{
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_OFFER, .arg = number};
    struct message message = {.type = MESSAGE_SYNC_REQ};
    struct blob *body = blob_create(BODY);

    for (size_t i = 0; i < BODY; i++) {
        body->bytes[i] = (uint8_t)(number + i);
    }
    message.as.sync_req.page = number;
    assert_int_equal(links_send(end->links, end->peer, &message), RC_OK);
    assert_int_equal(links_send_bulk(end->links, end->peer, &header, body), RC_OK);
    blob_unref(body);
}

static void records_pass_the_threads_whole_and_once(void **state)
{
    struct end ends[2];
    uint32_t sent[2] = {0, 0};
    uint64_t until;

    (void)state;
    end_start(&ends[0], 1);
    end_start(&ends[1], 2);
    assert_int_equal(links_dial(ends[0].links, ends[1].address), RC_OK);
    until = uv_clock_ns() + LIMIT_NS;
    while (ends[0].received < RECORDS || ends[1].received < RECORDS) {
        assert_true(uv_clock_ns() < until);
        for (int i = 0; i < 2; i++) {
            if (ends[i].is_open && sent[i] < RECORDS + WINDOW &&
                sent[i] < ends[1 - i].received + WINDOW) {
                send_one(&ends[i], sent[i]++);
            }
        }
        turn(ends);
    }
    links_hangup(ends[0].links, ends[1].id, "it is enough"); /* with records under way */
    while (!ends[0].is_closed || !ends[1].is_closed || links_jobs(ends[0].links) > 0 ||
           links_jobs(ends[1].links) > 0) {
        assert_true(uv_clock_ns() < until);
        turn(ends);
    }
    for (int i = 0; i < 2; i++) {
        links_destroy(ends[i].links);
        uv_env_destroy(ends[i].env);
    }
    assert_int_equal(mem_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_pass_the_threads_whole_and_once)};

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

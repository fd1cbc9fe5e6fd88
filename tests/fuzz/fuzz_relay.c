/* Reachability and relays under hostile neighbours: whatever members say, in whatever order, the
 * relay's books and the circuits of a client stay within their bounds. */
#include "base/bytes.h"
#include "base/check.h"
#include "gossip/reach/reach.h"
#include "gossip/reach/relay.h"
#include "gossip/secure/secure.h"
#include "peer/env/relay/env.h"
#include "peer/env/sim/env.h"

#include <string.h>

enum { LINKS = 64 };

struct input {
    const uint8_t *bytes;
    size_t count;
};

struct scene {
    struct sim_world *world;
    struct relay *relay;
    struct reach *reach;
    struct relay_env *relay_env;
    struct outbox out;
    uint64_t links[LINKS]; /* of relay_env; 0: none */
    uint64_t sent_bytes;
};

static uint8_t next(struct input *input)
{
    if (input->count == 0) return 0;
    input->count--;
    return *input->bytes++;
}

static struct peer_id peer(uint8_t number)
{
    return (struct peer_id){{number % 8, 1}};
}

static enum rc send_data(void *context, struct peer_id to, const struct inner_header *header,
                         struct blob *body)
{
    struct scene *scene = context;

    (void)to;
    CHECK(header->flags == DATA_RELAY && body->count > 0 && body->count <= RELAY_SEGMENT_BYTES);
    scene->sent_bytes += body->count;
    return scene->sent_bytes % 7 == 0 ? RC_LIMIT : RC_OK;
}

static void remember(struct scene *scene, uint64_t link)
{
    scene->links[link % LINKS] = link;
}

static void on_accepted(void *context, uint64_t link, const char *remote)
{
    CHECK(relay_is_address(remote));
    remember(context, link);
}

static void on_connected(void *context, uint64_t link)
{
    remember(context, link);
}

static void on_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    (void)context, (void)link;
    CHECK(count >= PREFIX_BYTES);
    frame[count - 1] ^= 1; /* it may be changed */
}

static void on_drain(void *context, uint64_t link)
{
    (void)context, (void)link;
}

static void on_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    struct scene *scene = context;

    CHECK(rc != RC_OK && why != NULL);
    if (scene->links[link % LINKS] == link) scene->links[link % LINKS] = 0;
}

static void on_wake(void *context)
{
    (void)context;
}

static void on_signal(void *context, int signal)
{
    (void)context, (void)signal;
}

/* A message of the family, its numbers small, so that they meet. */
static struct message draw(struct input *input)
{
    static const uint64_t windows[] = {0, 1, 1000, RELAY_WINDOW_BYTES, UINT64_MAX};
    struct message message = {.type = (enum message_type)(MESSAGE_RELAY_RESERVE + next(input) % 5)};
    uint32_t circuit = (uint32_t)next(input) % 4 | (uint32_t)(next(input) % 2) << 31;

    switch (message.type) {
    case MESSAGE_RELAY_CONNECT:
        message.as.relay_connect.circuit = circuit;
        message.as.relay_connect.peer = peer(next(input));
        break;
    case MESSAGE_RELAY_WINDOW:
        message.as.relay_window.circuit = circuit;
        message.as.relay_window.bytes = windows[next(input) % 5];
        break;
    case MESSAGE_RELAY_STOP:
        message.as.relay_stop.circuit = circuit;
        message.as.relay_stop.code = 1 + next(input) % RELAY_BROKEN;
        break;
    default:
        message.type = MESSAGE_RELAY_RESERVE;
    }
    return message;
}

static struct inner_header draw_header(struct input *input)
{
    return (struct inner_header){.type = MESSAGE_DATA,
                                 .flags = DATA_RELAY,
                                 .arg = (uint32_t)next(input) % 4 | (uint32_t)(next(input) % 2)
                                                                        << 31,
                                 .offset = (uint32_t)next(input) * 8};
}

static void to_relay(struct scene *scene, struct input *input)
{
    struct message message = draw(input);

    relay_on_message(scene->relay, peer(next(input)), next(input) % 8 != 0, &message,
                     sim_now_ns(scene->world), &scene->out);
}

static void to_client(struct scene *scene, struct input *input)
{
    struct message message = draw(input);

    if (message.type == MESSAGE_RELAY_RESERVE) {
        relay_env_on_link_lost(scene->relay_env, peer(next(input)));
        return;
    }
    relay_env_on_message(scene->relay_env, peer(next(input)), next(input) % 8 != 0, &message);
}

static void data(struct scene *scene, struct input *input)
{
    struct inner_header header = draw_header(input), onward;
    struct peer_id from = peer(next(input)), to;
    size_t count = (size_t)next(input) * 8;

    if (count > input->count) count = input->count;
    relay_env_on_data(scene->relay_env, from, &header, input->bytes, count);
    if (relay_on_data(scene->relay, from, &header, count, &to, &onward, &scene->out)) {
        CHECK(onward.stream == 1 && !peer_id_is_equal(from, to));
    }
}

static void use_link(struct scene *scene, struct input *input)
{
    struct env *env = relay_env_env(scene->relay_env);
    uint64_t link = scene->links[next(input) % LINKS];
    char address[ADDRESS_BYTES_MAX];
    struct blob *frame;

    switch (next(input) % 5) {
    case 0:
        if (relay_env_route(scene->relay_env, peer(next(input)), peer(next(input)), address) ==
                RC_OK &&
            env->ops->dial(env, address, &link) == RC_OK) {
            remember(scene, link);
        }
        break;
    case 1:
        frame = blob_create((size_t)next(input) * 256 + 1);
        CHECK(frame != NULL);
        memset(frame->bytes, 7, frame->count);
        if (link != 0) (void)env->ops->send(env, link, frame);
        blob_unref(frame);
        break;
    case 2:
        if (link == 0) break;
        env->ops->hangup(env, link);
        scene->links[link % LINKS] = 0;
        break;
    case 3:
        if (link != 0) env->ops->link_pause(env, link, next(input) % 2 == 0);
        break;
    default:
        if (link != 0) env->ops->link_set_frame_max(env, link, secure_record_bytes(1000));
    }
}

static void reachability(struct scene *scene, struct input *input)
{
    uint64_t now_ns = sim_now_ns(scene->world);
    struct reach_link link = {.peer = peer(next(input)),
                              .listen_port = next(input),
                              .is_dialled = next(input) % 2 == 0,
                              .is_asked = next(input) % 4 != 0};
    struct message message = {.type = MESSAGE_DIALBACK_REQ};
    struct reach_probe probe;

    memcpy(link.remote, "10.0.0.1:9", 11);
    switch (next(input) % 4) {
    case 0:
        reach_on_link(scene->reach, &link, now_ns);
        break;
    case 1:
        reach_on_link_lost(scene->reach, link.peer);
        break;
    case 2:
        message.as.dialback.nonce = 1 + next(input) % 4;
        message.as.dialback.code = next(input) % 4;
        if (next(input) % 2 == 0) message.type = MESSAGE_DIALBACK;
        reach_on_message(scene->reach, link.peer, &message, now_ns, &scene->out);
        break;
    default:
        if (reach_next_probe(scene->reach, &probe)) {
            CHECK(strncmp(probe.address, "10.0.0.1:", 9) == 0);
            reach_on_probe_ended(scene->reach, probe.peer, probe.nonce, next(input) % 2 == 0,
                                 &scene->out);
        }
    }
}

static void step(struct scene *scene, struct input *input)
{
    struct relay_view view;

    switch (next(input) % 6) {
    case 0:
        to_relay(scene, input);
        break;
    case 1:
        to_client(scene, input);
        break;
    case 2:
        data(scene, input);
        break;
    case 3:
        use_link(scene, input);
        break;
    case 4:
        reachability(scene, input);
        break;
    default:
        (void)sim_run(scene->world,
                      sim_now_ns(scene->world) + (uint64_t)next(input) * 100 * NS_PER_MS);
        relay_tick(scene->relay, sim_now_ns(scene->world), &scene->out);
        reach_tick(scene->reach, sim_now_ns(scene->world), &scene->out);
        relay_env_deliver(scene->relay_env);
    }
    relay_view(scene->relay, &view);
    CHECK(view.circuits <= 16 && view.reservations <= 8);
    CHECK(relay_env_circuits(scene->relay_env) <= RELAY_ENV_CIRCUITS_MAX);
    outbox_clear(&scene->out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct sim_options sim = {.seed = 1, .hosts_max = 1};
    struct relay_options relay = relay_options_default();
    struct reach_options reach = {.seed = 1};
    struct scene scene = {.world = sim_world_create(&sim)};
    struct env_events events = {.context = &scene,
                                .on_accepted = on_accepted,
                                .on_connected = on_connected,
                                .on_frame = on_frame,
                                .on_drain = on_drain,
                                .on_lost = on_lost,
                                .on_wake = on_wake,
                                .on_signal = on_signal};
    struct relay_env_options options = {
        .self = peer(7), .outbox = &scene.out, .send_data = send_data, .context = &scene};
    struct input input = {bytes, count};
    uint32_t host;

    CHECK(scene.world != NULL);
    outbox_init(&scene.out);
    options.base = sim_host_create(scene.world, &host);
    scene.relay = relay_create(&relay, peer(6));
    scene.reach = reach_create(&reach);
    scene.relay_env = relay_env_create(&options);
    CHECK(scene.relay != NULL && scene.reach != NULL && scene.relay_env != NULL);
    relay_env_env(scene.relay_env)->ops->set_events(relay_env_env(scene.relay_env), &events);
    relay_set_open(scene.relay, true, &scene.out);
    while (input.count > 0) {
        step(&scene, &input);
    }
    relay_env_destroy(scene.relay_env);
    relay_destroy(scene.relay);
    reach_destroy(scene.reach);
    outbox_deinit(&scene.out);
    sim_world_destroy(scene.world);
    return 0;
}

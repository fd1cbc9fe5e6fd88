/*
 * One complete node in the simulated world, in training, and a member that sends what the fuzzer
 * wants: real handshake, real sealing, arbitrary records inside, in sequence, with time passing
 * between them. Whatever it says, the node goes on training and every parameter stays finite.
 *
 * Input: records of {kind u8, wait u8, type u8, length u8, bytes}: kind chooses what is sent
 * (a raw control body, a chunk, one whole inner record), wait how long the world runs before.
 */
#include "base/rng.h"
#include "peer/env/sim/env.h"
#include "peer/node/node.h"
#include "replica/learners/quadratic.h"
#include "tests/sim/hostile.h"

enum { VALUES = 40, STEPS_MAX = 64 };

struct input {
    const uint8_t *bytes;
    size_t left;
};

struct scene {
    struct sim_world *world;
    struct swarm_secret swarm;
    struct identity identity;
    struct strategy strategy;
    struct learner *learner;
    struct node *node;
    struct hostile *hostile;
    bool is_ended;
};

static uint8_t next(struct input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->bytes++;
}

/* Up to `count` bytes of what is left. */
static const uint8_t *take(struct input *input, size_t *count)
{
    const uint8_t *bytes = input->bytes;

    if (*count > input->left) *count = input->left;
    input->bytes += *count;
    input->left -= *count;
    return bytes;
}

static void be_quiet(struct hostile *hostile, const struct hostile_target *to)
{
    (void)hostile, (void)to;
}

static const struct hostile_behaviour behaviour = {"fuzzer", be_quiet, NULL, false, false};

/* ---- the honest node ---- */

static void on_listening(void *context, const char *address)
{
    (void)context, (void)address;
}

static void on_report(void *context, const struct node_report *report)
{
    (void)context, (void)report;
}

static void on_ended(void *context, const struct node_result *result)
{
    struct scene *scene = context;

    (void)result;
    scene->is_ended = true;
}

static void scene_create(struct scene *scene, bool is_pair)
{
    struct sim_options sim = {.seed = 1, .latency_ns = NS_PER_MS, .hosts_max = 3};
    struct strategy_specs specs = {.averaging = "local-sgd:H=4",
                                   .exchange = is_pair ? "pair" : "group"};
    struct quadratic_options toy = {
        .values = VALUES, .curvature = 1.0, .learning_rate = 0.05, .seed = 1, .stream_seed = 1};
    struct node_options options = {.identity = &scene->identity,
                                   .swarm = &scene->swarm,
                                   .strategy = &scene->strategy,
                                   .boot = {{1}},
                                   .incarnation = 1,
                                   .listen = "sim:1",
                                   .spec = "quadratic",
                                   .seed = 1,
                                   .batch = 1,
                                   .report_every_ns = 5 * NS_PER_S,
                                   .checkpoint_every_ns = 5 * NS_PER_S,
                                   .join_timeout_ns = 30 * NS_PER_S,
                                   .step_cost_ns = 20 * NS_PER_MS};
    struct node_events events = {.context = scene,
                                 .on_listening = on_listening,
                                 .on_report = on_report,
                                 .on_ended = on_ended};
    uint8_t seed[SECRET_BYTES] = {7};
    struct env *hosts[3];
    struct fault why;
    uint32_t unused;

    *scene = (struct scene){.world = sim_world_create(&sim)};
    CHECK(scene->world != NULL && secure_start() == RC_OK);
    for (int i = 0; i < 3; i++) {
        hosts[i] = sim_host_create(scene->world, &unused);
    }
    swarm_secret_derive("fuzz", NULL, &scene->swarm);
    identity_from_seed(seed, &scene->identity);
    CHECK(strategy_parse(&specs, &scene->strategy, &why) == RC_OK);
    CHECK(quadratic_create(&toy, &scene->learner) == RC_OK);
    CHECK(node_create(hosts[1], scene->learner, &options, &events, &scene->node, &why) == RC_OK);
    scene->hostile =
        hostile_create(hosts[2], &scene->swarm, &scene->strategy, VALUES, 1, 1, &behaviour);
    (void)sim_run(scene->world, NS_PER_S);
}

static void scene_destroy(struct scene *scene)
{
    hostile_destroy(scene->hostile);
    sim_host_crash(scene->world, 1);
    node_destroy(scene->node);
    scene->learner->ops->destroy(scene->learner);
    sim_world_destroy(scene->world);
}

/* ---- what the fuzzer says ---- */

static void send_chunk(struct scene *scene, struct input *input, size_t count)
{
    const struct hostile_target *to = &scene->hostile->targets[0];
    uint8_t flags = next(input);
    struct inner_header header = {.type = MESSAGE_DATA,
                                  .flags = flags % 3,
                                  .stream = (uint16_t)(flags >> 4),
                                  .arg = next(input) % 4};
    uint8_t whole[VALUES * sizeof(float)] = {0};
    const uint8_t *bytes = take(input, &count);
    struct blob *body;

    if (count > sizeof whole) count = sizeof whole;
    if (count > 0) memcpy(whole, bytes, count);
    body = blob_copy(whole, flags % 2 == 0 ? sizeof whole : count);
    CHECK(body != NULL);
    (void)links_send_bulk(scene->hostile->links, to->id, &header, body);
    blob_unref(body);
}

static void send_inner(struct scene *scene, struct input *input, size_t count)
{
    const uint8_t *bytes = take(input, &count);
    struct blob *inner = blob_copy(bytes, count);

    CHECK(inner != NULL);
    (void)links_send_inner(scene->hostile->links, scene->hostile->targets[0].id, inner);
    blob_unref(inner);
}

static void say(struct scene *scene, struct input *input)
{
    uint8_t kind = next(input), wait = next(input), type = next(input);
    size_t count = (size_t)next(input) + (kind & 0x80 ? 256 : 0);
    const uint8_t *bytes;

    (void)sim_run(scene->world, sim_now_ns(scene->world) + wait * 5 * NS_PER_MS);
    switch (kind % 4) {
    case 0:
        send_chunk(scene, input, count);
        break;
    case 1:
        send_inner(scene, input, count);
        break;
    default:
        bytes = take(input, &count);
        hostile_raw(scene->hostile, scene->hostile->targets[0].id, type, bytes, count);
        break;
    }
    (void)sim_run(scene->world, sim_now_ns(scene->world) + 3 * NS_PER_MS);
}

static void check_scene(struct scene *scene)
{
    float plane[VALUES];

    CHECK(!scene->is_ended);
    CHECK(scene->learner->ops->export_section(scene->learner, SECTION_PARAMETERS, plane, VALUES) ==
          RC_OK);
    for (size_t i = 0; i < VALUES; i++) {
        CHECK(isfinite(plane[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct input input = {bytes, count};
    uint64_t blocks = mem_blocks();
    struct scene scene;

    if (count == 0) return 0;
    scene_create(&scene, next(&input) % 2 == 0);
    for (int i = 0; i < STEPS_MAX && input.left > 0; i++) {
        say(&scene, &input);
    }
    (void)sim_run(scene.world, sim_now_ns(scene.world) + 2 * NS_PER_S);
    check_scene(&scene);
    scene_destroy(&scene);
    CHECK(mem_blocks() == blocks);
    return 0;
}

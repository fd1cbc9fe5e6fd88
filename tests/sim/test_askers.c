/*
 * Askers of predictions (PROBE) of one peer that trains: two with samples of their own take turns,
 * none waits for ever, one too many is told so, and training has the rest of the time. The toy
 * answers, at the virtual cost of a job of the lane.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/node/lane/internal.h"
#include "replica/data/dataset.h"
#include "tests/sim/swarm.h"

#include <string.h>

enum { SAMPLES = 4000, CLASSES = 4, WINDOW = 1000, ASKERS = 6, VALUES = 20000 };

/* One that asks for its window, slice by slice, and for the next when it is through. */
struct asker {
    struct peer_id id;
    struct message_probe probe;
    bool is_asking, is_refused;
    uint32_t answered, code;      /* code: of the refusal */
    uint64_t last_ns, longest_ns; /* between answers */
};

/* Learners and links have no context of their own. */
static struct scene {
    struct learner_ops ops;
    struct asker askers[ASKERS];
    struct cluster *cluster;
} scene;

static uint64_t now_ns(void)
{
    return node_now(cluster_node(scene.cluster, 0));
}

/* ---- the peer's side ---- */

static void answer_shape(const struct learner *learner, struct answer_shape *shape)
{
    (void)learner;
    *shape = (struct answer_shape){
        .samples = SAMPLES, .rows = 1, .outputs = CLASSES, .sample_bytes = 1024};
}

static struct digest digest_of(const uint32_t *numbers, size_t count)
{
    return hash_of(numbers, count * sizeof *numbers);
}

static enum rc load_samples(struct learner *learner, const uint32_t *numbers, size_t count,
                            struct samples *samples, struct digest *digest)
{
    (void)learner;
    *samples = (struct samples){.count = count};
    *digest = digest_of(numbers, count);
    return RC_OK;
}

static enum rc answer(struct learner *learner, const struct samples *samples, size_t first,
                      size_t count, float *out)
{
    (void)learner;
    assert_true(first + count <= samples->count);
    for (size_t i = 0; i < count * CLASSES; i++) {
        out[i] = 1.0F / CLASSES;
    }
    return RC_OK;
}

/* ---- the askers' ---- */

static void ask(struct asker *asker)
{
    struct message_probe probe = asker->probe;

    probe.at = asker->answered % WINDOW;
    probe.most = WINDOW - probe.at;
    asker->is_asking = true;
    lane_answer_hear(cluster_node(scene.cluster, 0), asker->id, &probe);
}

__typeof__(links_send) __real_links_send, __wrap_links_send;

enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message)
{
    const struct message_predictions *said = &message->as.predictions;

    for (size_t i = 0; message->type == MESSAGE_PREDICTIONS && i < ASKERS; i++) {
        struct asker *asker = &scene.askers[i];

        if (!peer_id_is_equal(asker->id, to)) continue;
        if (said->code == PREDICTIONS_LATER) return RC_OK;
        asker->is_asking = false;
        asker->is_refused = said->code != PREDICTIONS_HERE;
        asker->code = said->code;
        if (asker->is_refused) return RC_OK;
        assert_int_equal(said->at, asker->answered % WINDOW);
        assert_int_equal(said->values_bytes, said->count * CLASSES * 2);
        asker->answered += said->count;
        if (now_ns() - asker->last_ns > asker->longest_ns) {
            asker->longest_ns = now_ns() - asker->last_ns;
        }
        asker->last_ns = now_ns();
        return RC_OK;
    }
    return __real_links_send(links, to, message);
}

/* ---- what holds ---- */

static void begin(uint32_t askers)
{
    const struct cluster_options options = {.peers = 1,
                                            .seed = 1,
                                            .values = VALUES,
                                            .averaging = "none",
                                            .step_cost_ns = 50 * NS_PER_MS};
    static uint32_t order[SAMPLES];
    struct learner *learner;

    memset(&scene, 0, sizeof scene);
    scene.cluster = cluster_create(&options);
    swarm_start(scene.cluster, 1);
    cluster_run(scene.cluster, 5 * NS_PER_S);
    learner = cluster_learner(scene.cluster, 0);
    scene.ops = *learner->ops;
    scene.ops.answer_shape = answer_shape;
    scene.ops.load_samples = load_samples;
    scene.ops.answer = answer;
    learner->ops = &scene.ops;
    cluster_node(scene.cluster, 0)->options.serves_predictions = true;
    dataset_order(9, order, SAMPLES);
    for (uint32_t i = 0; i < askers; i++) {
        const uint32_t first = i % (SAMPLES / WINDOW) * WINDOW;

        scene.askers[i].id = (struct peer_id){{(uint8_t)(100 + i)}};
        scene.askers[i].last_ns = now_ns();
        scene.askers[i].probe = (struct message_probe){
            .seed = 9, .first = first, .count = WINDOW, .digest = digest_of(order + first, WINDOW)};
    }
}

/* `askers` ask whenever they have their answer. */
static void go_on(uint32_t askers, uint64_t for_ns)
{
    for (const uint64_t end_ns = now_ns() + for_ns; now_ns() < end_ns;) {
        for (uint32_t i = 0; i < askers; i++) {
            if (!scene.askers[i].is_asking) ask(&scene.askers[i]);
        }
        cluster_run(scene.cluster, 50 * NS_PER_MS);
    }
}

static void two_askers_take_turns(void **state)
{
    /* Proves: with samples of their own each has answers again within a turn of the other, and in
     * the end about as many; training goes on at 95 % of its pace or more. */
    (void)state;
    uint64_t steps;
    uint32_t least, most;

    begin(2);
    steps = cluster_node(scene.cluster, 0)->step;
    go_on(2, 300 * NS_PER_S);
    steps = cluster_node(scene.cluster, 0)->step - steps;
    least = scene.askers[0].answered < scene.askers[1].answered ? 0 : 1;
    most = 1 - least;
    print_message("%u and %u answers in five minutes, %llu steps; the longest wait %.1f s\n",
                  scene.askers[0].answered, scene.askers[1].answered, (unsigned long long)steps,
                  (double)scene.askers[least].longest_ns / 1e9);
    assert_true(scene.askers[least].answered > scene.askers[most].answered / 2);
    for (int i = 0; i < 2; i++) {
        assert_true(scene.askers[i].longest_ns <= ANSWER_TURN_NS + ANSWER_STAY_NS + 10 * NS_PER_S);
    }
    assert_true(steps >= 300 * 20 * 95 / 100);
    cluster_destroy(scene.cluster);
}

static void who_is_through_makes_way(void **state)
{
    /* Proves: an asker that has all it wants, or has gone, keeps the next one waiting for no more
     * than its samples stay. */
    (void)state;
    begin(2);
    go_on(1, 5 * NS_PER_S);
    assert_true(scene.askers[0].answered > 0);
    lane_answer_forget(cluster_node(scene.cluster, 0), scene.askers[0].id); /* its link is lost */
    ask(&scene.askers[1]);
    cluster_run(scene.cluster, ANSWER_STAY_NS + 15 * NS_PER_S);
    assert_true(scene.askers[1].answered > 0);
    cluster_destroy(scene.cluster);
}

static void one_too_many_is_told_so(void **state)
{
    /* Proves: beyond LANE_ASKERS_MAX they are busy, and are heard once somebody has gone. */
    (void)state;
    begin(LANE_ASKERS_MAX + 1);
    for (uint32_t i = 0; i <= LANE_ASKERS_MAX; i++) {
        ask(&scene.askers[i]);
    }
    assert_true(scene.askers[LANE_ASKERS_MAX].is_refused);
    assert_int_equal(scene.askers[LANE_ASKERS_MAX].code, PREDICTIONS_BUSY);
    lane_answer_forget(cluster_node(scene.cluster, 0), scene.askers[0].id);
    ask(&scene.askers[LANE_ASKERS_MAX]);
    assert_true(scene.askers[LANE_ASKERS_MAX].is_asking);
    cluster_run(scene.cluster, NS_PER_S);
    cluster_destroy(scene.cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_askers_take_turns),
        cmocka_unit_test(who_is_through_makes_way),
        cmocka_unit_test(one_too_many_is_told_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * gradient-tracking under an optimizer with momentum, run by complete peers: it is Momentum
 * Tracking to the equation, exact for peers with non-IID data, and brings peers nearer together
 * than dpsgd. Peer i has f_i(x) = h_i / 2 ||x - c_i||^2. All begin in one round, so that they can
 * be compared step by step.
 */
#include "tests/check.h"

#include "averaging/edge/edges.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "peer/node/lane/internal.h"
#include "peer/round/internal.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { PEERS = 8, VALUES = 32, STEPS = 1000, ROUNDS = 1024 };

static const double beta = 0.9, rate = 0.01;

/* What the learners do. */
static struct {
    double noise, spread, unevenness; /* of gradients, of c, of h around 1 */
    double offset;                    /* of all c */
    uint64_t begins;                  /* gradients are zero before that step */
} scene;

static struct spy spy;
static struct cluster *swarm;
static float momentum[PEERS][VALUES];
static float seen[PEERS][STEPS][VALUES];      /* x, where the gradient of a step was asked for */
static uint32_t steps[PEERS];                 /* of `seen` that are there */
static float apart_at[PEERS][ROUNDS][VALUES]; /* tracker less last gradient, by round, modulo */
static uint64_t rounds[PEERS];                /* the number of each peer's next */

static double draw(uint32_t peer, uint64_t purpose, size_t k)
{
    struct rng rng;

    rng_init(&rng, peer * 1000003u + purpose * 131u + k, 11);
    return rng_normal(&rng);
}

static double curvature(uint32_t peer)
{
    return peer % 2 == 0 ? 1 + scene.unevenness : 1 - scene.unevenness;
}

static double centre(uint32_t peer, size_t k)
{
    return scene.offset + scene.spread * draw(peer, 0, k);
}

/* Of step number `step`. */
static double gradient_at(uint32_t peer, uint64_t step, size_t k, double x)
{
    double noise = scene.noise > 0 ? scene.noise * draw(peer, step + 1, k) : 0;

    return curvature(peer) * (x - centre(peer, k)) + noise;
}

static const struct edges *edges_of_peer(uint32_t peer)
{
    return (const struct edges *)(const void *)cluster_node(swarm, peer)->round->exchange;
}

/* ---- a liar ---- */

enum { LIAR = 3, LIES_FROM = 100, LIES_UNTIL = 240 };
enum lie { ALL_HONEST, TURNED_MODEL, TENFOLD_MODEL, GROWING_TRACKER };

/* What it tells is not what it holds. */
static struct {
    enum lie lie;
    float scale; /* of the tracker it tells */
    bool has_truth;
    float truth[VALUES]; /* its tracker */
} liar;

static enum rc scene_export(struct learner *learner, enum section section, float *out, size_t count)
{
    const uint32_t peer = spy_number(&spy, learner);
    struct node *node = cluster_node(swarm, peer);
    enum rc rc = spy.originals.export_section(learner, section, out, count);

    if (rc != RC_OK || liar.lie == ALL_HONEST || peer != LIAR || section != SECTION_MIXED ||
        node == NULL || !node->lane->tracking.has_tracker || steps[LIAR] < LIES_FROM) {
        return rc;
    }
    for (size_t k = 0; k < VALUES && liar.lie != GROWING_TRACKER; k++) {
        out[k] *= liar.lie == TENFOLD_MODEL ? 10 : -1;
    }
    if (liar.lie != GROWING_TRACKER || liar.has_truth) return rc;
    memcpy(liar.truth, node->lane->tracking.tracker, sizeof liar.truth);
    liar.has_truth = true;
    liar.scale = fminf(liar.scale * 5, 1e18f);
    for (size_t k = 0; k < VALUES; k++) {
        node->lane->tracking.tracker[k] = liar.scale;
    }
    return rc;
}

/* Before its next step. */
static void know_the_truth(uint32_t peer)
{
    if (peer != LIAR || !liar.has_truth) return;
    memcpy(cluster_node(swarm, peer)->lane->tracking.tracker, liar.truth, sizeof liar.truth);
    liar.has_truth = false;
}

/* ---- learners ---- */

/* Before a step: what the rounds so far have made of the difference, to which steps add nothing. */
static void keep_apart(uint32_t peer)
{
    const struct lane_tracking *tracking = &cluster_node(swarm, peer)->lane->tracking;
    uint64_t next = edges_of_peer(peer)->counts.next_round, first = rounds[peer] + 1;

    if (!tracking->has_tracker) return;
    if (next >= ROUNDS && first <= next - ROUNDS) first = next - ROUNDS + 1;
    for (uint64_t r = first; r <= next; r++) {
        const float *before = apart_at[peer][rounds[peer] % ROUNDS]; /* numbers it went past */

        for (size_t k = 0; k < VALUES; k++) {
            apart_at[peer][r % ROUNDS][k] =
                r < next ? before[k] : tracking->tracker[k] - tracking->last[k];
        }
    }
    rounds[peer] = next;
}

static enum rc scene_gradient(struct learner *learner, float *out, struct train_report *report)
{
    const uint32_t peer = spy_number(&spy, learner);
    const struct node *node = cluster_node(swarm, peer);
    enum rc rc = spy.originals.gradient(learner, out, report);
    uint64_t step = 0;
    float x[VALUES];

    if (node != NULL && node->round != NULL) {
        step = edges_of_peer(peer)->counts.next_round;
        know_the_truth(peer);
        keep_apart(peer);
    }
    if (rc != RC_OK) return rc;
    rc = spy.originals.export_section(learner, SECTION_PARAMETERS, x, VALUES);
    for (size_t k = 0; k < VALUES; k++) {
        out[k] = step < scene.begins ? 0 : (float)gradient_at(peer, step, k, (double)x[k]);
    }
    if (step == steps[peer] && step < STEPS) memcpy(seen[peer][steps[peer]++], x, sizeof x);
    return rc;
}

static enum rc scene_step(struct learner *learner, const float *gradient)
{
    float *m = momentum[spy_number(&spy, learner)];

    for (size_t k = 0; k < VALUES; k++) {
        m[k] = (float)(beta * (double)m[k] + (double)gradient[k]);
    }
    return spy.originals.step(learner, m);
}

static enum rc scene_train(struct learner *learner, uint32_t count, const atomic_bool *stop,
                           struct train_report *report)
{
    struct train_report one, all = {0};

    while (all.steps < count && !atomic_load(stop)) {
        float gradient[VALUES];
        enum rc rc = scene_gradient(learner, gradient, &one);

        if (rc == RC_OK) rc = scene_step(learner, gradient);
        if (rc != RC_OK) return rc;
        all.steps++;
        all.step = one.step + 1;
        all.samples = one.samples;
        all.loss_sum += one.loss_sum;
    }
    *report = all;
    return RC_OK;
}

static struct learner *scene_learner(void *context, uint32_t peer)
{
    struct learner *learner = spy_on_toy(&spy, peer, VALUES, rate);

    (void)context;
    spy.ops.gradient = scene_gradient;
    spy.ops.export_section = scene_export;
    spy.ops.step = scene_step;
    spy.ops.train = scene_train;
    memset(momentum[peer], 0, sizeof momentum[peer]);
    steps[peer] = 0;
    rounds[peer] = 0;
    if (peer == LIAR) liar.has_truth = false; /* of an earlier scene */
    return learner;
}

static bool all_are_seen(struct cluster *cluster, void *unused)
{
    (void)cluster;
    (void)unused;
    for (uint32_t i = 0; i < PEERS; i++) {
        if (steps[i] < STEPS) return false;
    }
    return true;
}

static void start(const char *averaging, const double *speeds)
{
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = 1,
                                            .averaging = averaging,
                                            .topology = "ring",
                                            .latency_ns = NS_PER_MS,
                                            .values = VALUES,
                                            .speeds = speeds,
                                            .start_with = PEERS,
                                            .learner = scene_learner};

    swarm = cluster_create(&options);
    swarm_start(swarm, PEERS);
    assert_true(cluster_run_until(swarm, cluster_is_whole, NULL, 20 * NS_PER_S));
}

static void run_scene(const char *averaging)
{
    start(averaging, NULL);
    assert_true(cluster_run_until(swarm, all_are_seen, NULL, 60 * NS_PER_S));
}

static void end_scene(void)
{
    cluster_destroy(swarm);
    swarm = NULL;
}

/* The mixing matrix as the peers have it. */
static void read_weights(double w[PEERS][PEERS])
{
    struct peer_id ids[PEERS];
    struct swarm_secret secret;

    cluster_ids(PEERS, 1, ids, &secret);
    memset(w, 0, PEERS * sizeof w[0]);
    for (uint32_t i = 0; i < PEERS; i++) {
        const struct edges *edges = edges_of_peer(i);

        w[i][i] = 1;
        for (uint32_t e = 0; e < edges->edges_count; e++) {
            for (uint32_t j = 0; j < PEERS; j++) {
                if (!peer_id_is_equal(edges->edges[e].swap.other.id, ids[j])) continue;
                w[i][j] = (double)edges->edges[e].swap.weight;
                w[i][i] -= w[i][j];
            }
        }
        assert_true(fabs(w[i][i] - 1.0 / 3) < 1e-6);
    }
}

/* ---- the published equations ---- */

static double mixed(const double w[PEERS], double of[PEERS][VALUES], size_t k)
{
    double sum = 0;

    for (uint32_t j = 0; j < PEERS; j++) {
        sum += w[j] * of[j][k];
    }
    return sum;
}

/* One step of Momentum Tracking: x, u, c of all peers, in float64. */
static void published_step(double w[PEERS][PEERS], uint64_t step, double x[PEERS][VALUES],
                           double u[PEERS][VALUES], double c[PEERS][VALUES])
{
    static double stepped[PEERS][VALUES], rest[PEERS][VALUES];

    for (uint32_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            u[i][k] = beta * u[i][k] + gradient_at(i, step, k, x[i][k]);
            stepped[i][k] = x[i][k] - rate * (u[i][k] - c[i][k]);
            rest[i][k] = c[i][k] - u[i][k];
        }
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            x[i][k] = mixed(w[i], stepped, k);
            c[i][k] = mixed(w[i], rest, k) + u[i][k];
        }
    }
}

static void momentum_of_what_is_tracked_is_tracked_momentum(void **state)
{
    static double x[PEERS][VALUES], u[PEERS][VALUES], c[PEERS][VALUES];
    double w[PEERS][PEERS], worst = 0, way = 0;

    (void)state;
    if (is_only_sanitized()) skip();
    scene.noise = 0.3;
    scene.spread = 1;
    scene.unevenness = 0.8;
    run_scene("gradient-tracking");
    read_weights(w);
    for (uint32_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            x[i][k] = (double)seen[i][0][k];
        }
    }
    for (uint32_t t = 0; t < STEPS; t++) {
        for (uint32_t i = 0; i < PEERS; i++) {
            for (size_t k = 0; k < VALUES; k++) {
                worst = fmax(worst, fabs(x[i][k] - (double)seen[i][t][k]));
                way = fmax(way, fabs(x[i][k] - (double)seen[i][0][k]));
            }
        }
        published_step(w, t, x, u, c);
    }
    printf("off the published equations by %g at most, on a way of %g\n", worst, way);
    assert_true(worst < 1e-4 && way > 1); /* float32, over a thousand steps */
    end_scene();
}

/* ---- non-IID data ---- */

/* Root mean square, in the last step seen, of how far peers are from the optimum of them all. */
static double off_the_optimum(void)
{
    double sum = 0;

    for (size_t k = 0; k < VALUES; k++) {
        double optimum = 0, total = 0;

        for (uint32_t i = 0; i < PEERS; i++) {
            optimum += curvature(i) * centre(i, k);
            total += curvature(i);
        }
        for (uint32_t i = 0; i < PEERS; i++) {
            double apart = (double)seen[i][STEPS - 1][k] - optimum / total;

            sum += apart * apart;
        }
    }
    return sqrt(sum / (PEERS * VALUES));
}

static void momentum_leaves_the_exact_methods_exact(void **state)
{
    static const char *const methods[] = {"dpsgd", "d2", "gradient-tracking"};

    (void)state;
    if (is_only_sanitized()) skip();
    scene.noise = 0;
    scene.spread = 1;
    scene.unevenness = 0.8;
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        double off;

        run_scene(methods[m]);
        off = off_the_optimum();
        printf("%s off the optimum: %g\n", methods[m], off);
        assert_true(m == 0 ? off > 0.05 : off < 1e-4);
        end_scene();
    }
}

/* To whom all were alike so far, trackers of unlike peers look like anything but a model. */
static void unlike_gradients_are_no_attack(void **state)
{
    (void)state;
    if (is_only_sanitized()) skip();
    scene.noise = 0;
    scene.spread = 1;
    scene.unevenness = 0.8;
    scene.begins = 50;
    run_scene("gradient-tracking");
    assert_true(off_the_optimum() < 1e-4);
    scene.begins = 0;
    end_scene();
}

static bool has_lied_for_long(struct cluster *cluster, void *unused)
{
    (void)cluster;
    (void)unused;
    for (uint32_t i = 0; i < PEERS; i++) {
        if (i != LIAR && edges_of_peer(i)->counts.next_round < LIES_UNTIL) return false;
    }
    return true;
}

/* The toy's model is smaller than a chunk, so that one chunk holds it and the tracker: neither is
 * let pass on the other's account. */
static void lies_are_refused_or_stop_at_a_bound(void **state)
{
    static const char *const names[] = {"honest", "turned", "tenfold", "growing"};
    double x[ARRAY_COUNT(names)] = {0}, y[ARRAY_COUNT(names)] = {0};

    (void)state;
    scene.noise = scene.unevenness = 0;
    scene.spread = 0.1;
    scene.offset = 3;
    for (enum lie lie = ALL_HONEST; lie <= GROWING_TRACKER; lie++) {
        liar.lie = lie;
        liar.scale = 0.1f;
        liar.has_truth = false;
        start("gradient-tracking", NULL);
        assert_true(cluster_run_until(swarm, has_lied_for_long, NULL, 60 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            const struct node *node = cluster_node(swarm, i);
            float model[VALUES];

            if (i == LIAR) continue;
            assert_int_equal(spy.originals.export_section(node->lane->learner, SECTION_PARAMETERS,
                                                          model, VALUES),
                             RC_OK);
            for (size_t k = 0; k < VALUES; k++) {
                x[lie] = fmax(x[lie], fabs((double)model[k]));
                y[lie] = fmax(y[lie], fabs((double)node->lane->tracking.tracker[k]));
            }
        }
        printf("%s: largest value %g, of a tracker %g\n", names[lie], x[lie], y[lie]);
        end_scene();
    }
    liar.lie = ALL_HONEST;
    scene.offset = 0;
    assert_true(fabs(x[TURNED_MODEL] - 3) < 0.5 && fabs(x[TENFOLD_MODEL] - 3) < 0.5);
    assert_true(x[GROWING_TRACKER] < 100 && y[GROWING_TRACKER] < 100);
}

/* ---- noise ---- */

enum { ROWS = 4 };

/* The variance that noise of deviation 1 leaves, after mixing, in the part of the swarm that a
 * round multiplies by `l`: P = A P A' + B B' of (x, m) or (x, m, y, last g), with curvature 1. */
static double variance_of(bool tracks, double l)
{
    const double plain[ROWS][ROWS + 1] = {{l * (1 - rate), -l * rate * beta, 0, 0, -l * rate},
                                          {1, beta, 0, 0, 1}};
    const double tracking[ROWS][ROWS + 1] = {
        {l * (1 - rate), -l * rate * beta, -l * rate, l * rate, -l * rate},
        {1, beta, 1, -1, 1},
        {l, 0, l, -l, l},
        {1, 0, 0, 0, 1}};
    const double(*a)[ROWS + 1] = tracks ? tracking : plain;
    double p[ROWS][ROWS] = {{0}};

    for (int i = 0; i < 2000; i++) {
        double ap[ROWS][ROWS] = {{0}};

        for (int r = 0; r < ROWS; r++) {
            for (int s = 0; s < ROWS * ROWS; s++) {
                ap[r][s % ROWS] += a[r][s / ROWS] * p[s / ROWS][s % ROWS];
            }
        }
        for (int r = 0; r < ROWS * ROWS; r++) {
            double sum = a[r / ROWS][ROWS] * a[r % ROWS][ROWS];

            for (int s = 0; s < ROWS; s++) {
                sum += ap[r / ROWS][s] * a[r % ROWS][s];
            }
            p[r / ROWS][r % ROWS] = sum;
        }
    }
    return p[0][0];
}

/* Mean square, over peers and values, of how far peers are from their mean. */
static double theory(bool tracks)
{
    double sum = 0;

    for (int i = 1; i < PEERS; i++) {
        sum += variance_of(tracks, (1 + 2 * cos(2 * acos(-1) * i / PEERS)) / 3);
    }
    return sum / PEERS;
}

static double spread_of(uint32_t t)
{
    double sum = 0;

    for (size_t k = 0; k < VALUES; k++) {
        double mean = 0;

        for (uint32_t i = 0; i < PEERS; i++) {
            mean += (double)seen[i][t][k] / PEERS;
        }
        for (uint32_t i = 0; i < PEERS; i++) {
            double apart = (double)seen[i][t][k] - mean;

            sum += apart * apart;
        }
    }
    return sum / (PEERS * VALUES);
}

/* Noise is what IID data leave: there tracking has nothing to correct, and must not cost anything.
 * With this momentum it halves the distance: 0.25 of the variance on a ring of eight. */
static void noise_moves_peers_apart_by_what_theory_says(void **state)
{
    double expected[2];

    (void)state;
    if (is_only_sanitized()) skip();
    scene.noise = 1;
    scene.spread = scene.unevenness = 0;
    for (int tracks = 0; tracks < 2; tracks++) {
        double sum = 0;

        run_scene(tracks ? "gradient-tracking" : "dpsgd");
        for (uint32_t t = 200; t < STEPS; t++) {
            sum += spread_of(t) / (STEPS - 200);
        }
        expected[tracks] = theory(tracks);
        printf("%s: variance %g, theory %g\n", tracks ? "gradient-tracking" : "dpsgd", sum,
               expected[tracks]);
        assert_true(fabs(sum / expected[tracks] - 1) < 0.1);
        end_scene();
    }
    assert_true(expected[1] < 0.3 * expected[0]);
}

/* ---- edges that are missing ---- */

enum { LOOKED_AT = 30 };

/* How far the sum of all trackers is from that of all last gradients, against the largest of these,
 * after round number `round`. */
static double sums_apart_at(uint64_t round)
{
    double worst = 0, largest = 0;

    for (size_t k = 0; k < VALUES; k++) {
        double sum = 0;

        for (uint32_t i = 0; i < PEERS; i++) {
            if (!cluster_is_up(swarm, i)) continue;
            sum += (double)apart_at[i][round % ROUNDS][k];
            largest = fmax(largest, fabs((double)cluster_node(swarm, i)->lane->tracking.last[k]));
        }
        worst = fmax(worst, fabs(sum));
    }
    return worst / largest;
}

/* The least over the last rounds that all have behind them: one end may hear later than the other
 * that an edge counts. What was lost for good would be missing in all of them. */
static double sums_apart(void)
{
    double least = INFINITY;
    uint64_t last = UINT64_MAX;

    for (uint32_t i = 0; i < PEERS; i++) {
        if (cluster_is_up(swarm, i) && rounds[i] < last) last = rounds[i];
    }
    assert_true(last > LOOKED_AT);
    for (uint64_t round = last - LOOKED_AT; round < last; round++) {
        least = fmin(least, sums_apart_at(round));
    }
    return least;
}

static void trackers_add_up_to_gradients_whatever_is_missing(void **state)
{
    const double speeds[PEERS] = {1, 1, 1, 0.005, 1, 1, 1, 1}; /* that one takes two seconds */
    const uint32_t first = 0;
    struct node_report slow, other;
    double apart[3];

    (void)state;
    scene.noise = 0.3;
    scene.spread = 1;
    scene.unevenness = 0.8;
    start("gradient-tracking", speeds);
    cluster_run(swarm, 30 * NS_PER_S);
    slow = swarm_report(swarm, 3);
    other = swarm_report(swarm, 1);
    assert_true(other.rounds_ok > 3 * slow.rounds_ok); /* which were without it */
    apart[0] = sums_apart();
    cluster_crash(swarm, 5);
    cluster_run(swarm, 30 * NS_PER_S);
    apart[1] = sums_apart();
    cluster_start(swarm, 5, &first, 1);
    cluster_run(swarm, 60 * NS_PER_S);
    apart[2] = sums_apart();
    printf("sums of trackers and gradients apart: %g, without one %g, with it again %g\n", apart[0],
           apart[1], apart[2]);
    for (int i = 0; i < 3; i++) {
        assert_true(apart[i] < 1e-5);
    }
    end_scene();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(momentum_of_what_is_tracked_is_tracked_momentum),
        cmocka_unit_test(momentum_leaves_the_exact_methods_exact),
        cmocka_unit_test(unlike_gradients_are_no_attack),
        cmocka_unit_test(lies_are_refused_or_stop_at_a_bound),
        cmocka_unit_test(noise_moves_peers_apart_by_what_theory_says),
        cmocka_unit_test(trackers_add_up_to_gradients_whatever_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

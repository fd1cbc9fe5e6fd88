/*
 * The fault matrix: one kind of trouble at a time, at several strengths, on eight complete peers in
 * the simulated world, each cell with a verdict of the machine's own. The gate runs a few cells
 * with short spans; LONG=1 runs all, with spans as long as the promises are about.
 *   LONG=1 build/release/tests/sim_fault_matrix
 *   CELL=loss LONG=1 ...   only those whose name contains it
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/json.h"
#include "base/peer_id.h"
#include "testnet/cluster.h"

#include <math.h>

enum { PEERS = 8, QUARTER = PEERS / 4, SEEDS_LONG = 3 };
#define TICK_NS            (500 * NS_PER_MS)
#define FOR_EVER_NS        (600 * NS_PER_S)
#define FORM_NS            (60 * NS_PER_S)
#define PARTITION_HEALS_S  75.0
#define HALF_OPEN_CLOSES_S 25.0 /* TCP keepalive's, at the latest */

struct scene {
    struct cluster *cluster;
    struct sim_world *world;
    uint64_t seed;
    double period_s; /* of rounds */
    bool is_long;
    char ids[PEERS][PEER_ID_TEXT];
    bool was_dead[PEERS][PEERS]; /* [observer][subject], at the last look */
    bool was_alive[PEERS][PEERS];
    unsigned deaths; /* live peers that somebody gave up, counted once each time */
    unsigned flaps;  /* a member that was alive is not, or is again */
    char measured[120];
};

/* One cell: what is done with the scene, and whether what was promised held. */
struct cell {
    const char *name;
    bool (*run)(struct scene *scene, double amount);
    double amount;
    bool is_gate;
    const char *averaging; /* a round every 3.2 s; NULL: every 0.8 s */
};

/* ---- the scene ---- */

static struct scene *scene_create(uint64_t seed, const char *averaging)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .latency_ns = 5 * NS_PER_MS,
                                      .jitter_ns = NS_PER_MS,
                                      .values = 300,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .averaging = averaging != NULL ? averaging : "local-sgd:H=8",
                                      .exchange = seed % 2 == 0 ? "pair" : "group"};
    uint32_t first = 0;

    assert_non_null(scene);
    scene->seed = seed;
    scene->period_s = averaging != NULL ? 3.2 : 0.8;
    scene->is_long = getenv("LONG") != NULL;
    scene->cluster = cluster_create(&options);
    scene->world = cluster_world(scene->cluster);
    for (uint32_t i = 0; i < PEERS; i++) {
        cluster_start(scene->cluster, i, &first, i == 0 ? 0 : 1);
        peer_id_format(node_id(cluster_node(scene->cluster, i)), scene->ids[i]);
    }
    check_seed(seed, cluster_run_until(scene->cluster, cluster_is_whole, NULL, FORM_NS));
    cluster_run(scene->cluster, 5 * NS_PER_S);
    return scene;
}

static void scene_destroy(struct scene *scene)
{
    cluster_destroy(scene->cluster);
    free(scene);
}

static void note_member(struct scene *scene, uint32_t observer, const struct json *member)
{
    const char *id = json_get_text(member, "id"), *state = json_get_text(member, "state");

    for (uint32_t j = 0; j < PEERS; j++) {
        bool is_dead = strcmp(state, "dead") == 0 || strcmp(state, "left") == 0;
        bool is_alive = strcmp(state, "alive") == 0;

        if (strcmp(scene->ids[j], id) != 0) continue;
        scene->deaths += is_dead && !scene->was_dead[observer][j];
        scene->flaps += is_alive != scene->was_alive[observer][j];
        scene->was_dead[observer][j] = is_dead;
        scene->was_alive[observer][j] = is_alive;
    }
}

static void look(struct scene *scene)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        struct json *status;
        const struct json *members;

        if (!cluster_is_up(scene->cluster, i)) continue;
        status = node_status(cluster_node(scene->cluster, i), SIZE_MAX);
        members = json_get(status, "members");
        for (size_t k = 0; k < json_count(members); k++) {
            note_member(scene, i, json_at(members, k));
        }
        json_destroy(status);
    }
}

/* For so long, looking all the while. */
static void watch(struct scene *scene, uint64_t duration_ns)
{
    uint64_t end_ns = sim_now_ns(scene->world) + duration_ns;

    while (sim_now_ns(scene->world) < end_ns) {
        cluster_run(scene->cluster, TICK_NS);
        look(scene);
    }
}

/* Counting begins. */
static void watch_begin(struct scene *scene)
{
    look(scene);
    scene->deaths = scene->flaps = 0;
}

static double seconds_until_whole(struct scene *scene)
{
    uint64_t begin_ns = sim_now_ns(scene->world);

    if (!cluster_run_until(scene->cluster, cluster_is_whole, NULL, FOR_EVER_NS)) return INFINITY;
    return (double)(sim_now_ns(scene->world) - begin_ns) / 1e9;
}

static void all_paths(struct scene *scene, const struct sim_path *path)
{
    for (uint32_t a = 1; a <= PEERS; a++) {
        for (uint32_t b = 1; b <= PEERS; b++) {
            if (a != b) sim_path_set(scene->world, a, b, path);
        }
    }
}

static void rounds(struct scene *scene, uint64_t *ok, uint64_t *aborted)
{
    *ok = *aborted = 0;
    for (uint32_t i = 0; i < PEERS; i++) {
        struct node_report report;

        if (!cluster_is_up(scene->cluster, i)) continue;
        node_report(cluster_node(scene->cluster, i), &report);
        *ok += report.rounds_ok;
        *aborted += report.rounds_aborted;
    }
}

static void split(struct scene *scene, uint32_t first_side, bool is_on)
{
    for (uint32_t a = 1; a <= first_side; a++) {
        for (uint32_t b = first_side + 1; b <= PEERS; b++) {
            sim_block(scene->world, a, b, is_on);
            sim_block(scene->world, b, a, is_on);
        }
    }
}

#define SAY(scene, ...) (void)snprintf((scene)->measured, sizeof(scene)->measured, __VA_ARGS__)

/* ---- the cells ---- */

/* Nobody is given up wrongly; above a tenth lost, what suffered is whole soon after. */
static bool run_loss(struct scene *scene, double percent)
{
    struct sim_path path = {
        .latency_ns = 20 * NS_PER_MS, .bytes_per_s = 12500 * 1000, .loss = percent / 100.0};
    double hours = scene->is_long ? 1.0 : 1.0 / 30.0, healed;

    watch_begin(scene);
    all_paths(scene, &path);
    watch(scene, (uint64_t)(hours * 3600e9));
    all_paths(scene, NULL);
    healed = seconds_until_whole(scene);
    SAY(scene, "%u given up in %.2f node-hours, whole after %.0f s", scene->deaths, hours * PEERS,
        healed);
    if (percent <= 5.0) return scene->deaths == 0 && healed <= 1.0;
    if (percent <= 10.0) return scene->deaths <= 0.01 * hours * PEERS && healed <= 60.0;
    return healed <= 60.0;
}

/* Rounds commit over long ways as over short ones, and most of those that could be: one each period
 * and one and a half round trips, in which a round is agreed on. */
static bool run_round_trip(struct scene *scene, double ms)
{
    struct sim_path path = {.latency_ns = (uint64_t)(ms * 1e6 / 2.0)};
    uint64_t ok_before, aborted_before, ok, aborted;
    double span_s = scene->is_long ? 600 : 60, least;

    all_paths(scene, &path);
    watch(scene, 20 * NS_PER_S);
    watch_begin(scene);
    rounds(scene, &ok_before, &aborted_before);
    watch(scene, (uint64_t)(span_s * 1e9));
    rounds(scene, &ok, &aborted);
    ok -= ok_before;
    aborted -= aborted_before;
    SAY(scene, "%llu rounds kept, %llu given up, %u members given up", (unsigned long long)ok,
        (unsigned long long)aborted, scene->deaths);
    least = 0.6 * PEERS * span_s / (scene->period_s + 1.5e-3 * ms);
    return (double)ok >= least && (double)ok >= 0.99 * (double)(ok + aborted) && scene->deaths == 0;
}

/* A slow line slows rounds, not membership. */
static bool run_rate(struct scene *scene, double mbit)
{
    struct sim_path path = {.latency_ns = 20 * NS_PER_MS,
                            .bytes_per_s = (uint64_t)(mbit * 125000.0)};
    uint64_t before, ok, unused;

    watch_begin(scene);
    all_paths(scene, &path);
    rounds(scene, &before, &unused);
    watch(scene, (scene->is_long ? 600 : 60) * NS_PER_S);
    rounds(scene, &ok, &unused);
    SAY(scene, "%llu rounds kept, %u members given up", (unsigned long long)(ok - before),
        scene->deaths);
    return ok > before && scene->deaths == 0;
}

/* Two that cannot talk are members all the same: the six others see no difference, and neither is
 * anybody given up by them. */
static bool run_one_way(struct scene *scene, double unused)
{
    unsigned deaths_of_blocked = 0;

    (void)unused;
    sim_block(scene->world, 1, 2, true);
    watch(scene, 60 * NS_PER_S);
    watch_begin(scene);
    watch(scene, (scene->is_long ? 600 : 60) * NS_PER_S);
    for (uint32_t i = 2; i < PEERS; i++) {
        deaths_of_blocked += !scene->was_alive[i][0] || !scene->was_alive[i][1];
    }
    sim_block(scene->world, 1, 2, false);
    SAY(scene, "%u changes of mind, %u of 6 others miss one of the two, whole after %.0f s",
        scene->flaps, deaths_of_blocked, seconds_until_whole(scene));
    return scene->flaps == 0 && deaths_of_blocked == 0 && cluster_is_whole(scene->cluster, NULL);
}

/* Both sides go on for themselves and are one again soon after. */
static bool run_partition(struct scene *scene, double first_side)
{
    uint64_t steps[PEERS];
    bool do_all_train = true;
    double healed;

    split(scene, (uint32_t)first_side, true);
    watch(scene, (scene->is_long ? 270 : 60) * NS_PER_S);
    for (uint32_t i = 0; i < PEERS; i++) {
        steps[i] = node_step(cluster_node(scene->cluster, i));
    }
    watch(scene, 30 * NS_PER_S);
    for (uint32_t i = 0; i < PEERS; i++) {
        do_all_train &= node_step(cluster_node(scene->cluster, i)) > steps[i] + 100;
    }
    split(scene, (uint32_t)first_side, false);
    healed = seconds_until_whole(scene);
    SAY(scene, "%s, whole %.0f s after", do_all_train ? "all trained on" : "somebody stood still",
        healed);
    return do_all_train && healed <= PARTITION_HEALS_S;
}

/* A network that comes and goes: whole again soon after it stays. */
static bool run_flapping(struct scene *scene, double period_s)
{
    uint64_t half_ns = (uint64_t)(period_s * 1e9), end_ns;
    double healed;

    end_ns = sim_now_ns(scene->world) + (scene->is_long ? 600 : 60) * NS_PER_S;
    while (sim_now_ns(scene->world) < end_ns) {
        split(scene, PEERS / 2, true);
        cluster_run(scene->cluster, half_ns);
        split(scene, PEERS / 2, false);
        cluster_run(scene->cluster, half_ns);
    }
    healed = seconds_until_whole(scene);
    SAY(scene, "whole %.0f s after", healed);
    return healed <= 60.0;
}

/* All connections of one peer are forgotten by the network, without a word: both sides find out,
 * and it is back. */
static bool run_half_open(struct scene *scene, double unused)
{
    uint64_t begin_ns = sim_now_ns(scene->world);
    struct sim_counts counts;
    double closed = 0.0, healed;

    (void)unused;
    for (uint32_t b = 2; b <= PEERS; b++) {
        sim_darken(scene->world, 1, b);
    }
    if (sim_dark_count(scene->world) == 0) return false;
    while (sim_dark_count(scene->world) > 0 && closed < 120.0) {
        cluster_run(scene->cluster, TICK_NS);
        closed = (double)(sim_now_ns(scene->world) - begin_ns) / 1e9;
    }
    healed = seconds_until_whole(scene);
    sim_counts(scene->world, &counts);
    SAY(scene, "closed after %.1f s, whole %.1f s later, at most %u connections at once", closed,
        healed, counts.connections_max);
    return closed <= HALF_OPEN_CLOSES_S && healed <= 10.0 && counts.connections_max <= 4 * PEERS;
}

/* A quarter stands still: for up to 5 s nobody is given up; after longer they are back at once. */
static bool run_freeze(struct scene *scene, double s)
{
    double healed;

    watch_begin(scene);
    for (uint32_t i = 1; i <= QUARTER; i++) {
        sim_host_freeze(scene->world, i, true);
    }
    watch(scene, (uint64_t)(s * 1e9));
    for (uint32_t i = 1; i <= QUARTER; i++) {
        sim_host_freeze(scene->world, i, false);
    }
    healed = seconds_until_whole(scene);
    watch(scene, 30 * NS_PER_S);
    SAY(scene, "%u given up, whole %.1f s after", scene->deaths, healed);
    return (s > 5.0 || scene->deaths == 0) && healed <= 10.0;
}

/* A quarter computes ten times as slowly: nobody is given up, the others keep their pace. */
static bool run_slow(struct scene *scene, double factor)
{
    uint64_t span_ns = (scene->is_long ? 600 : 60) * NS_PER_S, before, alone, beside;

    before = node_step(cluster_node(scene->cluster, PEERS - 1));
    watch(scene, span_ns);
    alone = node_step(cluster_node(scene->cluster, PEERS - 1)) - before;
    watch_begin(scene);
    for (uint32_t i = 1; i <= QUARTER; i++) {
        sim_host_faults(scene->world, i)->slow = factor;
    }
    before = node_step(cluster_node(scene->cluster, PEERS - 1));
    watch(scene, span_ns);
    beside = node_step(cluster_node(scene->cluster, PEERS - 1)) - before;
    SAY(scene, "%u given up, the others' pace %.1f %%", scene->deaths,
        100.0 * (double)beside / (double)alone);
    return scene->deaths == 0 && (double)beside >= 0.97 * (double)alone;
}

/* A clock leaps, as that of a machine does which slept: back at once, nobody else is bothered. */
static bool run_leap(struct scene *scene, double hours)
{
    double healed;

    watch_begin(scene);
    sim_clock_set(scene->world, 1, sim_clock_ns(scene->world, 1) + (uint64_t)(hours * 3600e9), 0);
    cluster_run(scene->cluster, NS_PER_S);
    healed = seconds_until_whole(scene);
    watch(scene, 30 * NS_PER_S);
    SAY(scene, "%u given up, whole %.1f s after", scene->deaths, healed + 1.0);
    return scene->deaths == 0 && healed <= 10.0;
}

/* A disk that is full or broken: training goes on; what was kept before can be resumed from. */
static bool run_disk(struct scene *scene, double kind)
{
    uint32_t through = 1;
    uint64_t before, resumed;

    cluster_run(scene->cluster, 20 * NS_PER_S); /* a checkpoint was written */
    sim_host_faults(scene->world, 1)->store_failures = 1000000;
    sim_host_faults(scene->world, 1)->store_failure = kind < 1.0 ? RC_DISK_FULL : RC_IO;
    before = node_step(cluster_node(scene->cluster, 0));
    cluster_run(scene->cluster, 60 * NS_PER_S);
    if (!cluster_is_whole(scene->cluster, NULL)) return false;
    resumed = node_step(cluster_node(scene->cluster, 0)) - before;
    cluster_crash(scene->cluster, 0);
    cluster_start(scene->cluster, 0, &through, 1); /* checks what it loads */
    SAY(scene, "%llu steps without a disk, whole %.0f s after a restart",
        (unsigned long long)resumed, seconds_until_whole(scene));
    return resumed > 400 && cluster_is_whole(scene->cluster, NULL) &&
           node_step(cluster_node(scene->cluster, 0)) >= before / 2;
}

static const struct cell cells[] = {
    {"loss 0 %", run_loss, 0.0, false, NULL},
    {"loss 0.5 %", run_loss, 0.5, false, NULL},
    {"loss 1 %", run_loss, 1.0, false, NULL},
    {"loss 5 %", run_loss, 5.0, true, NULL},
    {"loss 10 %", run_loss, 10.0, false, NULL},
    {"loss 20 %", run_loss, 20.0, true, NULL},
    {"round trip 0 ms", run_round_trip, 0.0, false, NULL},
    {"round trip 20 ms", run_round_trip, 20.0, false, NULL},
    {"round trip 100 ms", run_round_trip, 100.0, false, NULL},
    {"round trip 300 ms", run_round_trip, 300.0, true, NULL},
    /* A proposal waits for answers for one pace: the pace must be longer than the way. */
    {"round trip 1000 ms", run_round_trip, 1000.0, true, "local-sgd:H=32"},
    {"rate 1000 Mbit/s", run_rate, 1000.0, false, NULL},
    {"rate 100 Mbit/s", run_rate, 100.0, false, NULL},
    {"rate 10 Mbit/s", run_rate, 10.0, false, NULL},
    {"rate 1 Mbit/s", run_rate, 1.0, true, NULL},
    {"one-way block", run_one_way, 0.0, true, NULL},
    {"partition 4/4", run_partition, 4.0, true, NULL},
    {"partition 7/1", run_partition, 7.0, false, NULL},
    {"flapping 1 s", run_flapping, 1.0, true, NULL},
    {"flapping 10 s", run_flapping, 10.0, false, NULL},
    {"half-open", run_half_open, 0.0, true, NULL},
    {"freeze 1 s", run_freeze, 1.0, false, NULL},
    {"freeze 5 s", run_freeze, 5.0, true, NULL},
    {"freeze 30 s", run_freeze, 30.0, true, NULL},
    {"slow 10x", run_slow, 10.0, true, NULL},
    {"clock leaps 1 h", run_leap, 1.0, true, NULL},
    {"clock leaps 10 years", run_leap, 87660.0, false, NULL},
    {"disk full", run_disk, 0.0, true, NULL},
    {"disk broken", run_disk, 1.0, false, NULL},
};

static bool run_cell(const struct cell *cell, uint64_t seed)
{
    struct scene *scene = scene_create(seed, cell->averaging);
    bool does_hold = cell->run(scene, cell->amount);

    printf("%-22s seed %llu  %-6s %s\n", cell->name, (unsigned long long)seed,
           does_hold ? "holds" : "FAILS", scene->measured);
    fflush(stdout);
    scene_destroy(scene);
    return does_hold;
}

static void each_trouble_costs_what_it_may(void **state)
{
    const char *only = getenv("CELL");
    bool is_long = getenv("LONG") != NULL;
    unsigned failed = 0, run = 0;

    (void)state;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        if (only != NULL && strstr(cells[i].name, only) == NULL) continue;
        if (!is_long && only == NULL && !cells[i].is_gate) continue;
        for (uint64_t seed = 1; seed <= (is_long ? SEEDS_LONG : 1); seed++) {
            /* The gate sees pairs in one cell, groups in the next. */
            failed += !run_cell(&cells[i], is_long ? seed : 1 + i % 2);
            run++;
        }
    }
    printf("%u cells, %u fail\n", run, failed);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_trouble_costs_what_it_may),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * chaos_plan: what a seed does to a swarm: who is in it, over which network, and which accidents
 * happen when. Drawn whole before the run, so that it can be printed and read.
 */
#ifndef GRAPEVINE_TESTS_SIM_CHAOS_PLAN_H
#define GRAPEVINE_TESTS_SIM_CHAOS_PLAN_H

#include "tests/check.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "testnet/cluster.h"

enum { CHAOS_PEERS_MAX = 12, CHAOS_FAULTS_MAX = 24 };

enum chaos_fault_kind {
    FAULT_CUT,       /* between a and b */
    FAULT_TEAR,      /* the same, in the middle of a frame */
    FAULT_STORM,     /* tears between any two, many a second, for a while */
    FAULT_DARK,      /* connections of a and b go silent */
    FAULT_ONE_WAY,   /* nothing from a to b for a while */
    FAULT_PARTITION, /* `side` against the rest for a while */
    FAULT_FREEZE,    /* a stands still for a while */
    FAULT_SLOW,      /* a computes slowly for a while */
    FAULT_PATH,      /* a bad way between a and b for a while */
    FAULT_LEAP,      /* a's clock leaps forward */
    FAULT_DISK,      /* a's next writes fail */
    FAULT_KILL,      /* a loses power, and is started again after a while */
    FAULT_STOP,      /* a is asked to stop, and is started again after a while */
    FAULT_KIND_COUNT
};

struct chaos_fault {
    enum chaos_fault_kind kind;
    uint64_t at_ns, until_ns; /* since the faults began */
    uint64_t next_ns;         /* of a storm */
    uint32_t a, b;
    uint32_t side; /* a bit a peer */
    struct sim_path path;
    uint64_t amount; /* notice, leap; slowness in percent; kind of disk trouble */
    bool is_on, is_over, did_hit;
};

struct chaos_plan {
    uint64_t seed;
    uint32_t peers;
    bool is_pair;
    bool does_kill; /* peers die or leave, so that what they held may be lost */
    bool is_rough;  /* faults begin with the first start */
    const char *codec;
    size_t values;
    uint32_t steps; /* between two rounds */
    uint64_t latency_ns, jitter_ns, bytes_per_s, step_cost_ns, start_spread_ns, faults_ns;
    uint32_t order[CHAOS_PEERS_MAX];    /* of starting */
    uint64_t start_ns[CHAOS_PEERS_MAX]; /* of order[i] */
    struct chaos_fault faults[CHAOS_FAULTS_MAX];
    uint32_t faults_count;
};

static const char *const chaos_fault_names[FAULT_KIND_COUNT] = {
    [FAULT_CUT] = "cut",         [FAULT_TEAR] = "tear",       [FAULT_STORM] = "storm",
    [FAULT_DARK] = "go dark",    [FAULT_ONE_WAY] = "one-way", [FAULT_PARTITION] = "split",
    [FAULT_FREEZE] = "freeze",   [FAULT_SLOW] = "slow",       [FAULT_PATH] = "bad way",
    [FAULT_LEAP] = "clock leap", [FAULT_DISK] = "disk",       [FAULT_KILL] = "kill",
    [FAULT_STOP] = "stop"};

static inline uint64_t draw_ns(struct rng *rng, uint64_t least_ns, uint64_t most_ns)
{
    return least_ns + rng_below(rng, most_ns - least_ns + 1);
}

static inline void plan_path(struct rng *rng, struct sim_path *path)
{
    static const uint64_t rates[] = {0, 125 * 1000, 1250 * 1000, 12500 * 1000};
    static const double losses[] = {0.0, 0.005, 0.05, 0.2};

    path->latency_ns = draw_ns(rng, 0, 500 * NS_PER_MS);
    path->jitter_ns = rng_below(rng, 2) == 0 ? 0 : draw_ns(rng, 0, 200 * NS_PER_MS);
    path->bytes_per_s = rates[rng_below(rng, 4)];
    path->loss = losses[rng_below(rng, 4)];
}

static inline void plan_fault(struct chaos_plan *plan, struct rng *rng, struct chaos_fault *fault)
{
    uint32_t kinds = plan->does_kill ? FAULT_KIND_COUNT : FAULT_KILL;

    fault->kind = (enum chaos_fault_kind)rng_below(rng, kinds);
    fault->at_ns = rng_below(rng, plan->faults_ns);
    fault->a = (uint32_t)rng_below(rng, plan->peers);
    fault->b = (fault->a + 1 + (uint32_t)rng_below(rng, plan->peers - 1)) % plan->peers;
    fault->side = (uint32_t)rng_below(rng, (1u << plan->peers) - 2) + 1;
    plan_path(rng, &fault->path);
    fault->until_ns = fault->at_ns;
    switch (fault->kind) {
    case FAULT_TEAR:
        fault->amount = draw_ns(rng, 0, 300 * NS_PER_MS);
        break;
    case FAULT_STORM:
        fault->amount = draw_ns(rng, 0, 20 * NS_PER_MS);
        fault->until_ns += draw_ns(rng, NS_PER_S, 6 * NS_PER_S);
        break;
    case FAULT_FREEZE:
        fault->until_ns += draw_ns(rng, 10 * NS_PER_MS, 8 * NS_PER_S);
        break;
    case FAULT_SLOW:
        fault->amount = draw_ns(rng, 200, 2000);
        fault->until_ns += draw_ns(rng, NS_PER_S, 10 * NS_PER_S);
        break;
    case FAULT_LEAP:
        fault->amount = draw_ns(rng, NS_PER_MS, 20 * NS_PER_S);
        break;
    case FAULT_DISK:
        fault->amount = rng_below(rng, 3);
        break;
    case FAULT_KILL:
    case FAULT_STOP:
        fault->until_ns += draw_ns(rng, 10 * NS_PER_MS, 8 * NS_PER_S);
        break;
    default:
        fault->until_ns += draw_ns(rng, 100 * NS_PER_MS, 12 * NS_PER_S);
        break;
    }
}

static inline void plan_make(struct chaos_plan *plan, uint64_t seed)
{
    static const char *const codecs[] = {"f32", "f16", "bf16", "int8"};
    static const uint64_t rates[] = {0, 2000 * 1000, 12500 * 1000, 125000 * 1000};
    struct rng rng;

    rng_init(&rng, seed, 0x63686173); /* "chas" */
    memset(plan, 0, sizeof *plan);
    plan->seed = seed;
    plan->peers = 3 + (uint32_t)rng_below(&rng, rng_below(&rng, 6) == 0 ? 10 : 4);
    plan->is_pair = rng_below(&rng, 2) == 0;
    plan->does_kill = rng_below(&rng, 2) == 0;
    plan->is_rough = rng_below(&rng, 4) == 0;
    plan->codec = codecs[rng_below(&rng, 4)];
    plan->values = 50 + (size_t)rng_below(&rng, 1000);
    plan->steps = 1u << rng_below(&rng, 3);
    if (rng_below(&rng, 10) == 0 && plan->peers <= 5) {
        plan->values += 40000; /* two chunks */
        plan->steps = 1;
    }
    plan->latency_ns = draw_ns(&rng, 100 * 1000, 40 * NS_PER_MS);
    plan->jitter_ns = rng_below(&rng, plan->latency_ns + 1);
    plan->bytes_per_s = rates[rng_below(&rng, 4)];
    plan->step_cost_ns = draw_ns(&rng, 200 * NS_PER_MS, 600 * NS_PER_MS) / plan->steps;
    plan->start_spread_ns = draw_ns(&rng, 0, 3 * NS_PER_S);
    plan->faults_ns = draw_ns(&rng, 3 * NS_PER_S, 15 * NS_PER_S);
    for (uint32_t i = 0; i < plan->peers; i++) {
        plan->order[i] = i;
        plan->start_ns[i] = rng_below(&rng, plan->start_spread_ns + 1);
    }
    rng_shuffle(&rng, plan->order, plan->peers);
    plan->faults_count = 1 + (uint32_t)rng_below(&rng, CHAOS_FAULTS_MAX);
    for (uint32_t i = 0; i < plan->faults_count; i++) {
        plan_fault(plan, &rng, &plan->faults[i]);
    }
}

static inline void plan_print(const struct chaos_plan *plan, FILE *out)
{
    fprintf(out,
            "seed %llu: %u peers, %s every %u, %s, %zu values, %.1f + %.1f ms, %llu bytes/s, a "
            "step %.0f ms, "
            "starts within %.1f s%s%s, %u faults in %.1f s\n",
            (unsigned long long)plan->seed, plan->peers, plan->is_pair ? "pair" : "group",
            plan->steps, plan->codec, plan->values, (double)plan->latency_ns / 1e6,
            (double)plan->jitter_ns / 1e6, (unsigned long long)plan->bytes_per_s,
            (double)plan->step_cost_ns / 1e6, (double)plan->start_spread_ns / 1e9,
            plan->is_rough ? ", rough" : "", plan->does_kill ? ", kills" : "", plan->faults_count,
            (double)plan->faults_ns / 1e9);
}

#endif

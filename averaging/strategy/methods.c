/*
 * The published methods, a row each, with the defaults of their papers. README.md of this folder
 * has the same table for readers.
 */
#include "averaging/strategy/methods.h"

#include "base/check.h"

#define OUTER_NESTEROV                                                                             \
    {                                                                                              \
        .rate = 0.7f, .momentum = 0.9f, .has_momentum = true                                       \
    }
#define OUTER_SLOW                                                                                 \
    {                                                                                              \
        .rate = 1, .momentum = 0.5f, .has_momentum = true                                          \
    }
#define OUTER_BLOCK                                                                                \
    {                                                                                              \
        .rate = 1                                                                                  \
    }
#define OUTER_ELASTIC                                                                              \
    {                                                                                              \
        .rate = 0.9f                                                                               \
    }
#define OUTER_HEAVY_BALL                                                                           \
    {                                                                                              \
        .rate = 0.7f, .momentum = 0.5f, .has_momentum = true                                       \
    }
#define OUTER_ACCELERATED                                                                          \
    {                                                                                              \
        .rate = 0.7f, .momentum = 0.3f, .has_momentum = true                                       \
    }
#define OUTER_DELAYED                                                                              \
    {                                                                                              \
        .rate = 0.7f, .momentum = 0.5f, .has_momentum = true, .delay = 4                           \
    }
#define OUTER_SPARSE                                                                               \
    {                                                                                              \
        .rate = 0.7f                                                                               \
    }
#define OUTER_STREAMING                                                                            \
    {                                                                                              \
        .rate = 0.4f, .momentum = 0.9f, .has_momentum = true                                       \
    }
#define STEPS_BESIDE                                                                               \
    {                                                                                              \
        .key = "tau", .kind = SETTING_BESIDE                                                       \
    }
#define STEPS_H                                                                                    \
    {                                                                                              \
        .key = "H", .kind = SETTING_EVERY                                                          \
    }

static const struct method methods[] = {
    /* Each peer trains alone. */
    {.name = "none", .rule = &rule_mean},
    /* Train alone, and take the mean once, when all have reached their goals. Zinkevich et al.
     * 2010, NIPS. */
    {.name = "one-shot",
     .is_averaging = true,
     .at_end = true,
     .exchange = &exchange_group,
     .rule = &rule_mean},
    /* Train H steps (16), then take the mean: H=N. Stich 2018, arXiv:1805.09767. */
    {.name = "local-sgd",
     .is_averaging = true,
     .every_steps = 16,
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .settings = {STEPS_H}},
    /* The same with Adam's moments, the first of which travel in every so manieth round (3) and the
     * second in every so manieth (6): H=N, first=N, second=N. Iacob et al. 2025,
     * arXiv:2505.22549. */
    {.name = "des-loc",
     .is_averaging = true,
     .waits = true,
     .first_rounds = 3,
     .second_rounds = 6,
     .every_steps = 16,
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .optimizer = "adam",
     .settings = {STEPS_H,
                  {.key = "first", .kind = SETTING_FIRST, .min = 1, .max = 1000},
                  {.key = "second", .kind = SETTING_SECOND, .min = 1, .max = 1000}}},
    /* Take the mean after every step, and wait for it. Goyal et al. 2017, arXiv:1706.02677. */
    {.name = "allreduce",
     .is_averaging = true,
     .waits = true,
     .every_steps = 1,
     .exchange = &exchange_group,
     .rule = &rule_mean},
    /* As allreduce for the first steps (500), then every H steps (16): H=N, switch=N. Lin et
     * al. 2018, arXiv:1808.07217. */
    {.name = "post-local",
     .is_averaging = true,
     .waits = true,
     .every_steps = 16,
     .switch_steps = 500,
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .settings = {STEPS_H, {.key = "switch", .kind = SETTING_SWITCH}}},
    /* The mean every H steps (20), of which there are fewer the lower the loss of the last block of
     * steps (400) is, waiting for it: H=N (the first), block=N. Wang and Joshi 2018,
     * arXiv:1810.08313. */
    {.name = "adacomm",
     .is_averaging = true,
     .waits = true,
     .every_steps = 20,
     .block_steps = 400,
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .settings = {STEPS_H, {.key = "block", .kind = SETTING_BLOCK}}},
    /* Meet one other half way, at every step if it has time, without waiting: H=N. Lian et al.
     * 2018, arXiv:1710.06952. */
    {.name = "ad-psgd",
     .is_averaging = true,
     .every_steps = 1,
     .exchange = &exchange_pair,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_PAIRS},
     .settings = {STEPS_H}},
    /* The same after a number of steps that chance says, of mean 1 / p (p 0.33): p=X. Nadiradze et
     * al. 2019, arXiv:1910.12308, without waiting. */
    {.name = "swarmsgd",
     .is_averaging = true,
     .every_steps = 1,
     .chance = 0.33,
     .exchange = &exchange_pair,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_PAIRS},
     .settings = {{.key = "p", .kind = SETTING_CHANCE, .min = 1e-6, .max = 1}}},
    /* As ad-psgd, but nobody begins a step that is more than s (4) ahead of the slowest neighbour:
     * s=N, H=N (1). Ho et al. 2013, NIPS, without a server. */
    {.name = "ssp",
     .is_averaging = true,
     .every_steps = 1,
     .is_bounded = true,
     .lead_steps = 4,
     .exchange = &exchange_pair,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_PAIRS},
     .settings = {{.key = "s", .kind = SETTING_LEAD}, STEPS_H}},
    /* Every H steps (16) the mean of one line of a grid of peers, another dimension each time:
     * H=N. Ryabinin et al. 2021, arXiv:2103.03239. */
    {.name = "moshpit",
     .is_averaging = true,
     .every_steps = 16,
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_GRID, .group_size = 8},
     .settings = {STEPS_H}},
    /* Block momentum every H steps (50): H=N, lr=X (1), momentum=X (1 - 1/n), tau=N (0: steps
     * beside a round). Chen and Huo 2016. */
    {.name = "bmuf",
     .is_averaging = true,
     .waits = true,
     .every_steps = 50,
     .exchange = &exchange_group,
     .rule = &rule_block,
     .rule_settings = OUTER_BLOCK,
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 10},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999},
                  STEPS_BESIDE}},
    /* Slow momentum every H steps (12): H=N, lr=X (1), momentum=X (0.5), tau=N (0: steps beside a
     * round). Wang et al. 2019, arXiv:1910.00643. */
    {.name = "slowmo",
     .is_averaging = true,
     .waits = true,
     .every_steps = 12,
     .exchange = &exchange_group,
     .rule = &rule_slow_momentum,
     .rule_settings = OUTER_SLOW,
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 10},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999},
                  STEPS_BESIDE}},
    /* An outer Nesterov step every H steps (100): H=N, lr=X (0.7), momentum=X (0.9), tau=N (0:
     * steps beside a round). Douillard et al. 2023, arXiv:2311.08105. */
    {.name = "diloco",
     .is_averaging = true,
     .waits = true,
     .every_steps = 100,
     .exchange = &exchange_group,
     .rule = &rule_nesterov,
     .rule_settings = OUTER_NESTEROV,
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 10},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999},
                  STEPS_BESIDE}},
    /* Diloco in fragments (P=4), one every H/P steps (H=100) while training goes on for tau steps
     * (5), of which a (0.5) stays: H=N, P=N, tau=N, a=X, lr=X (0.4), momentum=X (0.9). Douillard et
     * al. 2025, arXiv:2501.18512. */
    {.name = "streaming-diloco",
     .is_averaging = true,
     .stale_steps = 5,
     .fragments = 4,
     .blends = true,
     .local_share = 0.5f,
     .every_steps = 100,
     .exchange = &exchange_group,
     .rule = &rule_nesterov,
     .rule_settings = OUTER_STREAMING,
     .settings = {STEPS_H,
                  {.key = "P", .kind = SETTING_FRAGMENTS},
                  STEPS_BESIDE,
                  {.key = "a", .kind = SETTING_LOCAL, .min = 0, .max = 0.99},
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 10},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999}}},
    /* The same without waiting for anybody: a fragment (P=4) is due every H/P steps (H=48) of
     * whoever is first, and is merged with those (quorum=2) that come within the time that half of
     * them took: lengths and directions apart, by samples; steps beside it (tau=6) are overwritten
     * but for a (0). H=N, P=N, tau=N, a=X, lr=X (0.4), momentum=X (0.9), quorum=N. Decoupled
     * DiLoCo 2026, arXiv:2604.21428. */
    {.name = "decoupled-diloco",
     .is_averaging = true,
     .stale_steps = 6,
     .fragments = 4,
     .blends = true,
     .joins_others = true,
     .quorum = 2,
     .aggregate = &aggregate_radial,
     .every_steps = 48,
     .exchange = &exchange_group,
     .rule = &rule_nesterov,
     .rule_settings = OUTER_STREAMING,
     .settings = {STEPS_H,
                  {.key = "P", .kind = SETTING_FRAGMENTS},
                  STEPS_BESIDE,
                  {.key = "a", .kind = SETTING_LOCAL, .min = 0, .max = 0.99},
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 10},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999},
                  {.key = "quorum", .kind = SETTING_QUORUM}}},
    /* Diloco around Muon, with longer outer steps, every H steps (30): H=N, lr=X (0.9),
     * momentum=X (0.8). Therien et al. 2025, arXiv:2505.23725. */
    {.name = "muloco",
     .is_averaging = true,
     .waits = true,
     .every_steps = 30,
     .exchange = &exchange_group,
     .rule = &rule_nesterov,
     .rule_settings = {.rate = 0.9f, .momentum = 0.8f, .has_momentum = true},
     .optimizer = "muon:beta=0.9,wd=0.00125",
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 10},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999},
                  STEPS_BESIDE}},
    /* Differences of which the codec keeps the largest, the rest later, every H steps (30): H=N,
     * lr=X (0.7), beta=X (0.95) of what is left out, tau=N (0: steps beside a round). Sarfi et al.
     * 2025, arXiv:2508.15706. */
    {.name = "sparseloco",
     .is_averaging = true,
     .waits = true,
     .every_steps = 30,
     .exchange = &exchange_group,
     .codec_name = "topk:64/4096|int2",
     .feedback_decay = 0.95f,
     .rule = &rule_sparse,
     .rule_settings = OUTER_SPARSE,
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 10},
                  {.key = "beta", .kind = SETTING_DECAY, .min = 0, .max = 1},
                  STEPS_BESIDE}},
    /* The mean of a share p of the values (0.005) every H steps (1), each met once in 1/p rounds,
     * while training goes on for tau steps (10): H=N, p=X, tau=N. Beton et al. 2025, SPARTA,
     * OpenReview stFPf3gzq1. */
    {.name = "sparta",
     .is_averaging = true,
     .stale_steps = 10,
     .slots = 200,
     .every_steps = 1,
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .settings = {STEPS_H,
                  {.key = "p", .kind = SETTING_CARRIED, .min = 1e-4, .max = 0.5},
                  STEPS_BESIDE}},
    /* Local steps, and the mean of a share p of the values (0.1) every H steps (16), to which what
     * the tau steps beside it (8) add is added: H=N, p=X, tau=N. LOSCAR-SGD 2026,
     * arXiv:2605.20866. */
    {.name = "loscar",
     .is_averaging = true,
     .stale_steps = 8,
     .slots = 10,
     .every_steps = 16,
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .settings = {STEPS_H,
                  {.key = "p", .kind = SETTING_CARRIED, .min = 1e-4, .max = 0.5},
                  STEPS_BESIDE}},
    /* Springs to a centre that all keep, every tau steps (10): tau=N, or push=N (the centre)
     * and pull=N (the models), beta=X (0.9), or rho=X, a peer's own pull (beta/n). Zhang et al.
     * 2014, arXiv:1412.6651. */
    {.name = "easgd",
     .is_averaging = true,
     .waits = true,
     .every_steps = 10,
     .exchange = &exchange_group,
     .rule = &rule_elastic,
     .rule_settings = OUTER_ELASTIC,
     .settings = {{.key = "tau", .kind = SETTING_EVERY},
                  STEPS_H,
                  {.key = "push", .kind = SETTING_PUSH},
                  {.key = "pull", .kind = SETTING_PULL},
                  {.key = "beta", .kind = SETTING_RATE, .min = 1e-6, .max = 1},
                  {.key = "rho", .kind = SETTING_SHARE, .min = 1e-6, .max = 1}}},
    /* Mix with all neighbours in a graph after every step: H=N (1), order=atc, or cta: step
     * while mixing. Lian et al. 2017, arXiv:1705.09056. */
    {.name = "dpsgd",
     .is_averaging = true,
     .waits = true,
     .beta = 1,
     .every_steps = 1,
     .exchange = &exchange_edges,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_RING},
     .settings = {STEPS_H, {.key = "order", .kind = SETTING_ORDER}}},
    /* The same with a part of the edges in each round: the graph is split into matchings, of which
     * a share (budget 0.5) is active, each by chance, those that connect it best more often:
     * budget=X, H=N (1). Wang et al. 2019, arXiv:1905.09435. */
    {.name = "matcha",
     .is_averaging = true,
     .waits = true,
     .beta = 1,
     .budget = 0.5,
     .every_steps = 1,
     .exchange = &exchange_edges,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_RING},
     .settings = {STEPS_H, {.key = "budget", .kind = SETTING_BUDGET, .min = 0.01, .max = 1}}},
    /* Neighbours follow each other by encoded differences (int8, or fewer bits): H=N (1),
     * gamma=X (by codec), order=b, or a: wait. Koloskova et al. 2019, arXiv:1902.00340. */
    {.name = "choco",
     .is_averaging = true,
     .overlaps = true,
     .every_steps = 1,
     .exchange = &exchange_mirror,
     .codec = &codec_int8,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_RING},
     .settings = {STEPS_H,
                  {.key = "gamma", .kind = SETTING_BETA, .min = 1e-4, .max = 1},
                  {.key = "order", .kind = SETTING_ORDER}}},
    /* Give half of the model to one other every H steps (1): H=N. SGP: Assran et al. 2018,
     * arXiv:1811.10792. */
    {.name = "push-sum",
     .is_averaging = true,
     .waits = true,
     .every_steps = 1,
     .exchange = &exchange_push,
     .rule = &rule_push,
     .steps_by_weight = true,
     .topology = {.kind = TOPOLOGY_ONE_PEER},
     .settings = {STEPS_H}},
    /* Push-sum while training goes on, at most tau steps (16): H=N, tau=N. Assran et al. 2018,
     * arXiv:1811.10792. */
    {.name = "osgp",
     .is_averaging = true,
     .stale_steps = 16,
     .every_steps = 1,
     .exchange = &exchange_push,
     .rule = &rule_push,
     .steps_by_weight = true,
     .topology = {.kind = TOPOLOGY_ONE_PEER},
     .settings = {STEPS_H, {.key = "tau", .kind = SETTING_STALE}}},
    /* Push-sum to partners that rotate, while training goes on, at most tau steps (1): H=N (1),
     * tau=N. GossipGraD: Daily et al. 2018, arXiv:1803.05880. */
    {.name = "gossipgrad",
     .is_averaging = true,
     .stale_steps = 1,
     .every_steps = 1,
     .exchange = &exchange_push,
     .rule = &rule_push,
     .steps_by_weight = true,
     .topology = {.kind = TOPOLOGY_DISSEMINATION},
     .settings = {STEPS_H, {.key = "tau", .kind = SETTING_STALE}}},
    /* After a step, with probability p (0.1), give half of the weight to anybody: p=X. Blot et
     * al. 2016, arXiv:1611.09726. */
    {.name = "gosgd",
     .is_averaging = true,
     .every_steps = 1,
     .chance = 0.1,
     .exchange = &exchange_push,
     .rule = &rule_push,
     .topology = {.kind = TOPOLOGY_PAIRS},
     .settings = {{.key = "p", .kind = SETTING_CHANCE, .min = 1e-6, .max = 1}}},
    /* Springs between neighbours, every tau steps (10), without waiting: tau=N, alpha=X of
     * each, or beta=X (0.9) of the graph's weights. Zhang et al. 2014, arXiv:1412.6651. */
    {.name = "aeasgd",
     .is_averaging = true,
     .beta = 0.9f,
     .every_steps = 10,
     .exchange = &exchange_edges,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_RING},
     .settings = {{.key = "tau", .kind = SETTING_EVERY},
                  STEPS_H,
                  {.key = "alpha", .kind = SETTING_ALPHA, .min = 1e-6, .max = 1},
                  {.key = "beta", .kind = SETTING_BETA, .min = 1e-6, .max = 1}}},
    /* The same with Nesterov's momentum inside, the springs' pull taken before the steps that
     * hide it: tau=N, alpha=X, beta=X. Zhang et al. 2014, arXiv:1412.6651. */
    {.name = "eamsgd",
     .is_averaging = true,
     .overlaps = true,
     .beta = 0.9f,
     .every_steps = 10,
     .exchange = &exchange_edges,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_RING},
     .optimizer = "nesterov",
     .settings = {{.key = "tau", .kind = SETTING_EVERY},
                  STEPS_H,
                  {.key = "alpha", .kind = SETTING_ALPHA, .min = 1e-6, .max = 1},
                  {.key = "beta", .kind = SETTING_BETA, .min = 1e-6, .max = 1}}},
    /* Dpsgd without the bias of non-IID data, for two more models of memory: H=N (1). Tang et
     * al. 2018, arXiv:1803.07068. */
    {.name = "d2",
     .is_averaging = true,
     .waits = true,
     .beta = 0.5f, /* (I + W)/2: no eigenvalue below -1/3 */
     .every_steps = 1,
     .exchange = &exchange_edges,
     .rule = &rule_exact_diffusion,
     .topology = {.kind = TOPOLOGY_RING},
     .settings = {STEPS_H}},
    /* As d2, by mixing an estimate of all peers' gradient along, which the optimizer steps by:
     * twice the bytes. Nedic et al. 2016, arXiv:1607.03218; with momentum Takezawa et al. 2022,
     * arXiv:2209.15505. */
    {.name = "gradient-tracking",
     .is_averaging = true,
     .waits = true,
     .tracks = true,
     .every_steps = 1,
     .exchange = &exchange_edges,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_RING}},
    /* Dpsgd with a momentum of how the mixed model moves: H=N (1), momentum=X (0.9). Lin et al.
     * 2021, arXiv:2102.04761. */
    {.name = "qg-dsgdm",
     .is_averaging = true,
     .waits = true,
     .quasi_global = 0.9f,
     .every_steps = 1,
     .exchange = &exchange_edges,
     .rule = &rule_mean,
     .topology = {.kind = TOPOLOGY_RING},
     .optimizer = "sgd:lr=0.02",
     .settings = {STEPS_H, {.key = "momentum", .kind = SETTING_QUASI, .min = 1e-3, .max = 0.999}}},
    /* Diloco's outer step between two at a time, every H steps (50): H=N, lr=X (0.7),
     * momentum=X (0.5). Kolehmainen et al. 2025, arXiv:2506.10911. */
    {.name = "noloco",
     .is_averaging = true,
     .waits = true,
     .every_steps = 50,
     .exchange = &exchange_pair,
     .rule = &rule_heavy_ball,
     .rule_settings = OUTER_HEAVY_BALL,
     .topology = {.kind = TOPOLOGY_PAIRS},
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 2},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999}}},
    /* The same without waiting, and momentum moves in every N-th (4) of a peer's rounds: H=N, lr=X
     * (0.7), momentum=X (0.5), N=N. Liu et al. 2024, arXiv:2401.09135. */
    {.name = "async-diloco",
     .is_averaging = true,
     .every_steps = 50,
     .exchange = &exchange_pair,
     .rule = &rule_delayed_nesterov,
     .rule_settings = OUTER_DELAYED,
     .topology = {.kind = TOPOLOGY_PAIRS},
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 1e-6, .max = 1},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999},
                  {.key = "N", .kind = SETTING_DELAY, .min = 2, .max = 1000}}},
    /* Diloco's outer step along with whoever is met, every H steps (50): H=N, lr=X (0.7),
     * momentum=X (0.3), alpha=X of the way to the others (1, on graphs what momentum bears).
     * Cagnasso et al. 2026, arXiv:2606.11081. */
    {.name = "gasloc",
     .is_averaging = true,
     .waits = true,
     .every_steps = 50,
     .exchange = &exchange_pair,
     .rule = &rule_accelerated,
     .rule_settings = OUTER_ACCELERATED,
     .topology = {.kind = TOPOLOGY_PAIRS},
     .settings = {STEPS_H,
                  {.key = "lr", .kind = SETTING_RATE, .min = 0.05, .max = 10},
                  {.key = "momentum", .kind = SETTING_MOMENTUM, .min = 0, .max = 0.999},
                  {.key = "alpha", .kind = SETTING_WAY, .min = 1e-6, .max = 1}}},
    /* Each peer trains with rates of its own, and who is clearly worse copies another's model and
     * changes its rates: every=N steps to a score (100), margin=X (0.02), spread=X of the first
     * rates (3), resample=X (0.25). Jaderberg et al. 2017, arXiv:1711.09846. */
    {.name = "pbt",
     .is_population = true,
     .every_steps = 100,
     .rule = &rule_mean,
     .settings = {{.key = "every", .kind = SETTING_EVERY},
                  {.key = "margin", .kind = SETTING_MARGIN, .min = 0, .max = 0.9},
                  {.key = "spread", .kind = SETTING_SPREAD, .min = 1, .max = 1000},
                  {.key = "resample", .kind = SETTING_RESAMPLE, .min = 0, .max = 1}}},
    /* Models of any layers learn from the mean of all answers to a probe set, beside their own
     * data: H=N (100), samples=N, lambda=X (1), burn=N (0: steps without). Anil et al. 2018,
     * arXiv:1804.03235. */
    {.name = "codistill",
     .is_averaging = true,
     .every_steps = 100,
     .mixes_answers = true,
     .answers = {.weight = 1},
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .settings = {STEPS_H,
                  {.key = "samples", .kind = SETTING_SAMPLES},
                  {.key = "lambda", .kind = SETTING_WEIGHT, .min = 0, .max = 100},
                  {.key = "burn", .kind = SETTING_BURN}}},
    /* Train alone, ask all about a part of the training data, and learn their answers beside the
     * true labels: H=N (500), share=X (0.7), weight=X (0.5), compress=N (H/2: steps of each H).
     * EC-DNN: Sun et al. 2016, arXiv:1606.00575. */
    {.name = "ec-dnn",
     .is_averaging = true,
     .every_steps = 500,
     .mixes_answers = true,
     .answers = {.relabels = true, .weight = 0.5f, .share = 0.7f},
     .exchange = &exchange_group,
     .rule = &rule_mean,
     .settings = {STEPS_H,
                  {.key = "share", .kind = SETTING_PART, .min = 1e-6, .max = 1},
                  {.key = "weight", .kind = SETTING_WEIGHT, .min = 0, .max = 1},
                  {.key = "compress", .kind = SETTING_COMPRESS}}},
};

const struct method *method_at(size_t index)
{
    return index < ARRAY_COUNT(methods) ? &methods[index] : NULL;
}

const struct rule_ops *rule_at(size_t index, struct rule_settings *settings)
{
    static const struct {
        const struct rule_ops *ops;
        struct rule_settings settings;
    } rules[] = {
        {.ops = &rule_mean},
        {&rule_nesterov, OUTER_NESTEROV},
        {&rule_slow_momentum, OUTER_SLOW},
        {&rule_block, OUTER_BLOCK},
        {&rule_elastic, OUTER_ELASTIC},
        {&rule_sparse, OUTER_SPARSE},
        {&rule_heavy_ball, OUTER_HEAVY_BALL},
        {&rule_delayed_nesterov, OUTER_DELAYED},
        {&rule_accelerated, OUTER_ACCELERATED},
        {.ops = &rule_push},
        {.ops = &rule_exact_diffusion},
    };

    if (index >= ARRAY_COUNT(rules)) return NULL;
    *settings = rules[index].settings;
    return rules[index].ops;
}

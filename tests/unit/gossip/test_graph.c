/* Rows of mixing matrices: put together, they must fit each other at any number of members. */
#include "tests/check.h"

#include "base/check.h"
#include "gossip/overlay/graph.h"
#include "gossip/wire/limits.h"

#include <math.h>

enum { SWARM_MAX = 320 };

static const char *const kinds[] = {"ring",     "torus",     "hypercube",  "exponential",
                                    "random:2", "random:3",  "random:4",   "random:8",
                                    "complete", "random:5",  "groups:4",   "grid:5",
                                    "pairs",    "ring,lazy", "torus,lazy", "random:8,lazy"};

struct swarm {
    struct peer_id ids[SWARM_MAX];
    struct graph_members members;
    double w[SWARM_MAX][SWARM_MAX]; /* w[i][j]: what i takes of j */
};

static struct swarm *swarm_create(uint32_t count, uint64_t seed)
{
    struct swarm *swarm = calloc(1, sizeof *swarm);
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (size_t i = 0; i < count; i++) {
        swarm->ids[i].bytes[0] = (uint8_t)(i >> 8); /* sorted by construction */
        swarm->ids[i].bytes[1] = (uint8_t)i;
        for (size_t k = 2; k < PEER_ID_BYTES; k++) {
            swarm->ids[i].bytes[k] = (uint8_t)rng_u64(&rng);
        }
    }
    swarm->members = (struct graph_members){
        .ids = swarm->ids, .count = count, .run_id = hash_of(&seed, sizeof seed), .round = seed};
    return swarm;
}

static struct topology topology_of(const char *spec)
{
    struct topology topology;

    assert_int_equal(topology_parse(spec, &topology, NULL), RC_OK);
    return topology;
}

enum direction { BOTH, OUT, IN };

static void fill(struct swarm *swarm, const struct topology *topology, enum direction direction)
{
    for (uint32_t i = 0; i < swarm->members.count; i++) {
        memset(swarm->w[i], 0, swarm->members.count * sizeof swarm->w[i][0]);
    }
    for (uint32_t i = 0; i < swarm->members.count; i++) {
        struct graph_row row;
        enum rc rc;

        swarm->members.self = i;
        rc = direction == BOTH  ? graph_row(topology, &swarm->members, &row)
             : direction == OUT ? graph_out(topology, &swarm->members, &row)
                                : graph_in(topology, &swarm->members, &row);
        assert_int_equal(rc, RC_OK);
        swarm->w[i][i] = (double)row.self_weight;
        for (uint32_t k = 0; k < row.count; k++) {
            uint32_t other = row.edges[k].member;

            assert_true(other != i && other < swarm->members.count);
            assert_true(k == 0 || row.edges[k - 1].member < other);
            if (direction == OUT) {
                swarm->w[other][i] = (double)row.edges[k].weight;
            } else {
                swarm->w[i][other] = (double)row.edges[k].weight;
            }
        }
    }
}

static uint32_t degree_of(const struct swarm *swarm, uint32_t i)
{
    uint32_t degree = 0;

    for (uint32_t j = 0; j < swarm->members.count; j++) {
        degree += j != i && swarm->w[i][j] > 0;
    }
    return degree;
}

static bool is_connected(const struct swarm *swarm)
{
    uint32_t n = swarm->members.count, reached = 1, queue[SWARM_MAX] = {0};
    bool seen[SWARM_MAX] = {true};

    for (uint32_t at = 0; at < reached; at++) {
        for (uint32_t j = 0; j < n; j++) {
            if (seen[j] || swarm->w[queue[at]][j] <= 0) continue;
            seen[j] = true;
            queue[reached++] = j;
        }
    }
    return reached == n;
}

static void check_stochastic(const struct swarm *swarm, bool is_symmetric)
{
    uint32_t n = swarm->members.count;

    for (uint32_t i = 0; i < n; i++) {
        double row = 0, column = 0;

        for (uint32_t j = 0; j < n; j++) {
            row += swarm->w[i][j];
            column += swarm->w[j][i];
            if (is_symmetric) assert_true(swarm->w[i][j] == swarm->w[j][i]);
        }
        assert_true(fabs(row - 1) < 1e-6 && fabs(column - 1) < 1e-6);
    }
}

/* At every number of members each W is symmetric and doubly stochastic, and every graph is in one
 * piece. */
static void every_matrix_is_doubly_stochastic_for_any_number_of_members(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 200; n += n < 34 ? 1 : 23) {
        struct swarm *swarm = swarm_create(n, n);

        for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
            struct topology topology = topology_of(kinds[k]);

            fill(swarm, &topology, BOTH);
            check_stochastic(swarm, true);
            if (topology_is_graph(&topology) || topology.kind == TOPOLOGY_COMPLETE) {
                assert_true(is_connected(swarm));
            }
        }
        free(swarm);
    }
}

/* Givers and takers agree on each share, and shares of one giver make 1. */
static void pushed_shares_are_the_same_at_both_ends(void **state)
{
    static const char *const pushed[] = {"one-peer-exponential",
                                         "dissemination",
                                         "exponential",
                                         "ring",
                                         "torus",
                                         "hypercube",
                                         "random:3",
                                         "exponential,lazy"};

    (void)state;
    for (uint32_t n = 1; n <= 35; n++) {
        struct swarm *out = swarm_create(n, n), *in = swarm_create(n, n);

        for (size_t k = 0; k < ARRAY_COUNT(pushed); k++) {
            struct topology topology = topology_of(pushed[k]);

            fill(out, &topology, OUT);
            fill(in, &topology, IN);
            for (uint32_t j = 0; j < n; j++) {
                double column = 0;

                for (uint32_t i = 0; i < n; i++) {
                    assert_true(fabs(out->w[i][j] - in->w[i][j]) < 1e-6);
                    column += out->w[i][j];
                }
                assert_true(fabs(column - 1) < 1e-6);
            }
            if (k < 3) check_stochastic(out, false); /* circulant: nobody gains weight */
        }
        free(out);
        free(in);
    }
}

/* Who gives to whom in `round`. */
static uint32_t receiver_of(struct swarm *swarm, uint32_t giver, uint64_t round)
{
    const struct topology topology = topology_of("dissemination");
    struct graph_row row;

    swarm->members.self = giver;
    swarm->members.round = round;
    assert_int_equal(graph_out(&topology, &swarm->members, &row), RC_OK);
    assert_int_equal(row.count, 1);
    assert_true(row.self_weight == 0.5f);
    return row.edges[0].member;
}

/* GossipGraD: in log2 n rounds what one knows comes to all, by one order of the members; then
 * another one is drawn, and over these each other member is met about equally often. */
static void dissemination_reaches_all_and_partners_rotate(void **state)
{
    enum { N = 16, HOPS = 4, EPOCHS = 300 };
    struct swarm *swarm = swarm_create(N, 3);
    uint32_t met[N] = {0};

    (void)state;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint32_t knows = 1; /* a bit each: of what member 0 knew at first */

        for (uint64_t round = epoch * HOPS; round < (epoch + 1) * HOPS; round++) {
            uint32_t told = knows;

            for (uint32_t i = 0; i < N; i++) {
                uint32_t receiver = receiver_of(swarm, i, round);

                if ((knows >> i & 1) != 0) told |= 1u << receiver;
                met[receiver] += i == 0;
            }
            knows = told;
        }
        assert_int_equal(knows, 0xffff);
    }
    assert_int_equal(met[0], 0);
    for (uint32_t i = 1; i < N; i++) { /* of a mean of 80, by five standard deviations */
        assert_in_range(met[i], 36, 124);
    }
    free(swarm);
}

/* random:K gives exactly K neighbours to each (but one, if both numbers are odd), and others with
 * another run. */
static void random_graphs_are_regular_and_differ_by_run(void **state)
{
    (void)state;
    for (uint32_t degree = 2; degree <= 9; degree++) {
        struct topology topology = {.kind = TOPOLOGY_RANDOM, .degree = degree};

        for (uint32_t n = degree + 1; n <= 50; n++) {
            struct swarm *swarm = swarm_create(n, n);
            uint32_t fewer = 0;

            fill(swarm, &topology, BOTH);
            for (uint32_t i = 0; i < n; i++) {
                uint32_t found = degree_of(swarm, i);

                assert_true(found == degree || (found == degree - 1 && degree * n % 2 == 1));
                fewer += found != degree;
            }
            assert_int_equal(fewer, degree * n % 2);
            free(swarm);
        }
    }
    {
        struct topology topology = {.kind = TOPOLOGY_RANDOM, .degree = 4};
        struct swarm *one = swarm_create(64, 1), *other = swarm_create(64, 1);

        other->members.run_id = hash_of("another", 7);
        fill(one, &topology, BOTH);
        fill(other, &topology, BOTH);
        assert_memory_not_equal(one->w, other->w, sizeof one->w);
        free(one);
        free(other);
    }
}

/* A member that leaves a random graph changes the edges around it, not everybody's. */
static void who_leaves_a_random_graph_moves_few_edges(void **state)
{
    struct topology topology = {.kind = TOPOLOGY_RANDOM, .degree = 8};
    struct swarm *before = swarm_create(200, 3), *after = swarm_create(200, 3);
    const uint32_t gone = 77;
    uint32_t moved = 0;

    (void)state;
    memmove(&after->ids[gone], &after->ids[gone + 1], (199 - gone) * sizeof after->ids[0]);
    after->members.count = 199;
    fill(before, &topology, BOTH);
    fill(after, &topology, BOTH);
    for (uint32_t i = 0; i < 199; i++) {
        for (uint32_t j = 0; j < i; j++) {
            uint32_t a = i + (i >= gone), b = j + (j >= gone);

            moved += (before->w[a][b] > 0) != (after->w[i][j] > 0);
        }
    }
    assert_true(moved < 60); /* of 800; 4 must move */
    free(before);
    free(after);
}

/* Rows that can be checked by hand. */
static void small_graphs_have_the_weights_of_the_books(void **state)
{
    struct topology ring = topology_of("ring"), torus = topology_of("torus");
    struct topology cube = topology_of("hypercube"), lazy = topology_of("ring,lazy");
    struct swarm *swarm = swarm_create(4, 1);

    (void)state;
    fill(swarm, &ring, BOTH);
    assert_true(fabs(swarm->w[0][0] - 1.0 / 3) < 1e-7 && fabs(swarm->w[0][1] - 1.0 / 3) < 1e-7);
    assert_true(swarm->w[0][2] == 0 && fabs(swarm->w[0][3] - 1.0 / 3) < 1e-7);
    fill(swarm, &lazy, BOTH);
    assert_true(fabs(swarm->w[0][0] - 2.0 / 3) < 1e-7 && fabs(swarm->w[0][1] - 1.0 / 6) < 1e-7);
    swarm->members.count = 2; /* one neighbour with half the weight, not two edges to it */
    fill(swarm, &ring, BOTH);
    assert_true(swarm->w[0][0] == 0.5 && swarm->w[0][1] == 0.5);
    free(swarm);
    swarm = swarm_create(8, 1); /* 2 x 4: the sides of two count once; it is the 3-cube, renamed */
    fill(swarm, &torus, BOTH);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(degree_of(swarm, i), 3);
    }
    assert_true(swarm->w[0][4] == 0.25 && swarm->w[0][1] == 0.25 && swarm->w[0][3] == 0.25);
    fill(swarm, &cube, BOTH);
    assert_true(swarm->w[5][4] == 0.25 && swarm->w[5][7] == 0.25 && swarm->w[5][1] == 0.25);
    free(swarm);
}

/* Above 256 members `complete` keeps to what a peer can have links for. */
static void a_complete_graph_of_too_many_is_cut_to_the_nearest(void **state)
{
    struct topology complete = topology_of("complete");
    struct swarm *swarm = swarm_create(300, 1);

    (void)state;
    fill(swarm, &complete, BOTH);
    check_stochastic(swarm, true);
    assert_int_equal(degree_of(swarm, 0), 254);
    free(swarm);
}

static void one_peer_exponential_has_no_symmetric_matrix(void **state)
{
    struct topology topology = topology_of("one-peer-exponential");
    struct topology pairs = topology_of("pairs");
    struct swarm *swarm = swarm_create(8, 1);
    struct graph_row row;

    (void)state;
    assert_int_equal(graph_row(&topology, &swarm->members, &row), RC_USAGE);
    assert_int_equal(graph_in(&pairs, &swarm->members, &row), RC_USAGE);
    assert_int_equal(graph_out(&pairs, &swarm->members, &row), RC_OK);
    assert_int_equal(row.count, 1);
    free(swarm);
}

static void an_epoch_names_run_and_members(void **state)
{
    struct swarm *swarm = swarm_create(5, 1);
    struct digest run = swarm->members.run_id, other = hash_of("x", 1);
    struct digest epoch = graph_epoch(run, swarm->ids, 5);

    (void)state;
    assert_true(digest_is_equal(epoch, graph_epoch(run, swarm->ids, 5)));
    assert_false(digest_is_equal(epoch, graph_epoch(run, swarm->ids, 4)));
    assert_false(digest_is_equal(epoch, graph_epoch(run, swarm->ids + 1, 4)));
    assert_false(digest_is_equal(epoch, graph_epoch(other, swarm->ids, 5)));
    free(swarm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_matrix_is_doubly_stochastic_for_any_number_of_members),
        cmocka_unit_test(pushed_shares_are_the_same_at_both_ends),
        cmocka_unit_test(random_graphs_are_regular_and_differ_by_run),
        cmocka_unit_test(who_leaves_a_random_graph_moves_few_edges),
        cmocka_unit_test(small_graphs_have_the_weights_of_the_books),
        cmocka_unit_test(a_complete_graph_of_too_many_is_cut_to_the_nearest),
        cmocka_unit_test(one_peer_exponential_has_no_symmetric_matrix),
        cmocka_unit_test(dissemination_reaches_all_and_partners_rotate),
        cmocka_unit_test(an_epoch_names_run_and_members),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

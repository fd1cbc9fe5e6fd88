/* springs: see springs.h. */
#include "testnet/springs.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/overlay/graph.h"

#include <math.h>

enum { ITERATIONS = 1000 };

/* y = L x, and x' L x of an x of length 1. */
static double operate(const struct graph_row *rows, uint32_t n, const double *x, double *y)
{
    double along = 0;

    for (uint32_t i = 0; i < n; i++) {
        y[i] = rows[i].count * x[i];
        for (uint32_t k = 0; k < rows[i].count; k++) {
            y[i] -= x[rows[i].edges[k].member];
        }
        along += x[i] * y[i];
    }
    return along;
}

/* From below; L has no negative eigenvalue, so the largest is the one that is found. */
static double largest(const struct graph_row *rows, uint32_t n, double *x, double *y)
{
    double most = 0;
    struct rng rng;

    rng_init(&rng, n, 1);
    for (uint32_t i = 0; i < n; i++) {
        y[i] = rng_normal(&rng);
    }
    for (int k = 0; k < ITERATIONS; k++) {
        double square = 0;

        for (uint32_t i = 0; i < n; i++) {
            square += y[i] * y[i];
        }
        if (!(square > 0)) break;
        for (uint32_t i = 0; i < n; i++) {
            x[i] = y[i] / sqrt(square);
        }
        most = operate(rows, n, x, y);
    }
    return most;
}

static enum rc find(const struct topology *topology, uint32_t n, double *lambda)
{
    struct peer_id *ids = mem_array(n, sizeof *ids);
    struct graph_row *rows = mem_array(n, sizeof *rows);
    double *x = mem_array(n, sizeof *x), *y = mem_array(n, sizeof *y);
    struct graph_members members = {.ids = ids, .count = n};
    enum rc rc = RC_NOMEM;

    if (ids != NULL && rows != NULL && x != NULL && y != NULL) {
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = (struct peer_id){.bytes = {(uint8_t)(i >> 8), (uint8_t)i}};
        }
        rc = graph_rows(topology, &members, rows);
    }
    if (rc == RC_OK) *lambda = largest(rows, n, x, y);
    mem_free(ids);
    mem_free(rows);
    mem_free(x);
    mem_free(y);
    return rc;
}

enum rc springs_check(const struct strategy *strategy, uint32_t peers, struct fault *why)
{
    static const double rounding = 1e-4;
    struct topology topology = strategy_topology(strategy, peers);
    double alpha = (double)strategy->alpha, lambda = 0;
    char text[TOPOLOGY_TEXT];
    enum rc rc;

    if (!strategy->is_averaging || !strategy->exchange->is_graph || alpha <= 0 || peers < 2) {
        return RC_OK;
    }
    rc = find(&topology, peers, &lambda);
    if (rc != RC_OK) return fault_set(why, rc, "--topology: %s", rc_text(rc));
    if (alpha * lambda < 2 * (1 - rounding)) return RC_OK;
    topology_format(&topology, text);
    return fault_set(why, RC_USAGE,
                     "--averaging %s: an elastic coupling of %g drives %u peers apart; over "
                     "%s it must be below %.4g (2 by the largest eigenvalue of its Laplacian)",
                     strategy->name, alpha, peers, text, 2 / lambda);
}

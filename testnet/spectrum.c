/* Norms of mixing matrices: sparse rows, and Lanczos' method on them. Pure but for its memory. */
#include "testnet/spectrum.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/overlay/graph.h"

#include <math.h>
#include <string.h>

enum { STEPS_MAX = 600, PERIOD_MAX = 16, PAIRS_BEFORE = 100, PAIRS_ROUNDS = 400 };

/* W of one round by rows; `columns` and `weights` from starts[i] to starts[i + 1]. */
struct matrix {
    uint32_t n;
    uint32_t *starts; /* [n + 1] */
    uint32_t *columns;
    double *weights, *own;
};

static void matrix_deinit(struct matrix *matrix)
{
    mem_free(matrix->starts);
    mem_free(matrix->columns);
    mem_free(matrix->weights);
    mem_free(matrix->own);
}

static bool matrix_init(struct matrix *matrix, uint32_t n, const struct graph_row *rows)
{
    uint32_t edges = 0;

    for (uint32_t i = 0; i < n; i++) {
        edges += rows[i].count;
    }
    *matrix = (struct matrix){.n = n,
                              .starts = mem_array(n + 1, sizeof *matrix->starts),
                              .columns = mem_array(edges + 1, sizeof *matrix->columns),
                              .weights = mem_array(edges + 1, sizeof *matrix->weights),
                              .own = mem_array(n, sizeof *matrix->own)};
    if (matrix->starts == NULL || matrix->columns == NULL || matrix->weights == NULL ||
        matrix->own == NULL) {
        return false;
    }
    edges = 0;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;

        for (uint32_t k = 0; k < rows[i].count; k++, edges++) {
            matrix->columns[edges] = rows[i].edges[k].member;
            matrix->weights[edges] = (double)rows[i].edges[k].weight;
            sum += matrix->weights[edges];
        }
        matrix->own[i] = 1 - sum;
        matrix->starts[i + 1] = edges;
    }
    return true;
}

/* y = W x */
static void apply(const struct matrix *matrix, const double *x, double *y)
{
    for (uint32_t i = 0; i < matrix->n; i++) {
        double sum = matrix->own[i] * x[i];

        for (uint32_t k = matrix->starts[i]; k < matrix->starts[i + 1]; k++) {
            sum += matrix->weights[k] * x[matrix->columns[k]];
        }
        y[i] = sum;
    }
}

/* y = W' x */
static void apply_transposed(const struct matrix *matrix, const double *x, double *y)
{
    for (uint32_t i = 0; i < matrix->n; i++) {
        y[i] = matrix->own[i] * x[i];
    }
    for (uint32_t i = 0; i < matrix->n; i++) {
        for (uint32_t k = matrix->starts[i]; k < matrix->starts[i + 1]; k++) {
            y[matrix->columns[k]] += matrix->weights[k] * x[i];
        }
    }
}

/* One symmetric W, or the product over a period with its transpose. */
struct chain {
    struct matrix rounds[PERIOD_MAX];
    uint32_t period, n;
    double *spare; /* [n] */
};

static void operate(const struct chain *chain, const double *x, double *y)
{
    if (chain->period == 1) {
        apply(&chain->rounds[0], x, y);
        return;
    }
    memcpy(y, x, chain->n * sizeof y[0]);
    for (uint32_t i = 0; i < chain->period; i++) {
        apply(&chain->rounds[i], y, chain->spare);
        memcpy(y, chain->spare, chain->n * sizeof y[0]);
    }
    for (uint32_t i = chain->period; i > 0; i--) {
        apply_transposed(&chain->rounds[i - 1], y, chain->spare);
        memcpy(y, chain->spare, chain->n * sizeof y[0]);
    }
}

/* ---- Lanczos ---- */

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Take the mean out, and what lies in the directions before; twice, for rounding. */
static void make_orthogonal(double *x, const double *basis, uint32_t directions, uint32_t n)
{
    for (int pass = 0; pass < 2; pass++) {
        double mean = 0;

        for (uint32_t i = 0; i < n; i++) {
            mean += x[i] / n;
        }
        for (uint32_t i = 0; i < n; i++) {
            x[i] -= mean;
        }
        for (uint32_t k = 0; k < directions; k++) {
            const double *direction = basis + (size_t)k * n;
            double share = dot(x, direction, n);

            for (uint32_t i = 0; i < n; i++) {
                x[i] -= share * direction[i];
            }
        }
    }
}

/* How many eigenvalues of the tridiagonal matrix lie below `bound` (Sturm's sequence). */
static uint32_t count_below(const double *diagonal, const double *beside, uint32_t m, double bound)
{
    uint32_t count = 0;
    double pivot = 1;

    for (uint32_t i = 0; i < m; i++) {
        double square = i == 0 ? 0 : beside[i - 1] * beside[i - 1];

        pivot = diagonal[i] - bound - (i == 0 ? 0 : square / pivot);
        if (pivot == 0) pivot = 1e-300;
        count += pivot < 0;
    }
    return count;
}

/* The `index`-th smallest of its eigenvalues, all of which lie within [-1, 1]. */
static double eigenvalue(const double *diagonal, const double *beside, uint32_t m, uint32_t index)
{
    double low = -1.01, high = 1.01;

    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;

        if (count_below(diagonal, beside, m, middle) > index) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return (low + high) / 2;
}

/* Smallest and largest eigenvalue orthogonal to the mean. False: no memory. */
static bool lanczos(const struct chain *chain, double *least, double *most)
{
    uint32_t n = chain->n, steps = n - 1 < STEPS_MAX ? n - 1 : STEPS_MAX, m = 0;
    double *basis = mem_array((size_t)(steps + 1) * n, sizeof *basis);
    double diagonal[STEPS_MAX], beside[STEPS_MAX], norm, before[2] = {2, 2};
    struct rng rng;

    if (basis == NULL) return false;
    rng_init(&rng, n, 1);
    for (uint32_t i = 0; i < n; i++) {
        basis[i] = rng_normal(&rng);
    }
    make_orthogonal(basis, basis, 0, n);
    norm = sqrt(dot(basis, basis, n));
    for (uint32_t i = 0; i < n; i++) {
        basis[i] /= norm;
    }
    while (m < steps) {
        double *now = basis + (size_t)m * n, *next = now + n;

        operate(chain, now, next);
        diagonal[m] = dot(now, next, n);
        make_orthogonal(next, basis, m + 1, n);
        norm = sqrt(dot(next, next, n));
        beside[m++] = norm;
        if (m % 10 == 0 || m == steps || norm < 1e-12) {
            *least = eigenvalue(diagonal, beside, m, 0);
            *most = eigenvalue(diagonal, beside, m, m - 1);
            if (norm < 1e-12) break; /* all that the start holds a share of has been found */
            if (fabs(*least - before[0]) + fabs(*most - before[1]) < 1e-12) break;
            before[0] = *least;
            before[1] = *most;
        }
        for (uint32_t i = 0; i < n; i++) {
            next[i] /= norm;
        }
    }
    mem_free(basis);
    return true;
}

/* ---- circulant matrices ---- */

/* Does every row hold what the first one does, so many places on? */
static bool is_circulant(const struct matrix *matrix)
{
    uint32_t n = matrix->n, degree = matrix->starts[1];

    for (uint32_t i = 1; i < n; i++) {
        if (matrix->starts[i + 1] - matrix->starts[i] != degree) return false;
        for (uint32_t k = matrix->starts[i]; k < matrix->starts[i + 1]; k++) {
            uint32_t hop = (matrix->columns[k] + n - i) % n, at = 0;

            while (at < degree && matrix->columns[at] != hop) {
                at++;
            }
            if (at == degree || matrix->weights[at] != matrix->weights[k]) return false;
        }
    }
    return true;
}

static void by_fourier(const struct matrix *matrix, double *least, double *most)
{
    uint32_t n = matrix->n;

    *least = 1;
    *most = -1;
    for (uint32_t k = 1; k < n; k++) {
        double value = matrix->own[0];

        for (uint32_t at = 0; at < matrix->starts[1]; at++) {
            uint32_t turns = (uint32_t)((uint64_t)matrix->columns[at] * k % n);

            value += matrix->weights[at] * cos(2 * M_PI * turns / n);
        }
        *least = fmin(*least, value);
        *most = fmax(*most, value);
    }
}

/* ---- topologies ---- */

static uint32_t period_of(const struct topology *topology, uint32_t n)
{
    uint32_t period = 1;

    if (topology_is_directed(topology)) { /* ... by hops of 1, 2, 4, ... */
        while ((1u << period) < n) {
            period++;
        }
    } else if (topology->kind == TOPOLOGY_GRID) {
        for (uint64_t cells = topology->group_size; cells < n; cells *= topology->group_size) {
            period++;
        }
    }
    return period;
}

static enum rc fill(struct matrix *matrix, const struct topology *topology,
                    struct graph_members *members, struct graph_row *rows)
{
    enum rc rc = RC_OK;

    if (topology_is_directed(topology)) {
        for (members->self = 0; members->self < members->count && rc == RC_OK; members->self++) {
            rc = graph_in(topology, members, &rows[members->self]);
        }
    } else {
        rc = graph_rows(topology, members, rows);
    }
    if (rc != RC_OK) return rc;
    return matrix_init(matrix, members->count, rows) ? RC_OK : RC_NOMEM;
}

/* ---- pairs of neighbours ---- */

struct meeting {
    uint32_t a, b;
};

/* Take the mean out of x and what it is by from all; the square of its length before that. */
static double normalize(double *x, uint32_t n)
{
    double mean = 0, square = 0;

    for (uint32_t i = 0; i < n; i++) {
        mean += x[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        x[i] -= mean;
        square += x[i] * x[i];
    }
    for (uint32_t i = 0; i < n && square > 0; i++) {
        x[i] /= sqrt(square);
    }
    return square;
}

/* Each edge in a drawn order, unless one of its ends was taken: how many there were. */
static uint32_t meet(struct meeting *edges, uint32_t count, bool *is_taken, uint32_t n, double *x,
                     struct rng *rng)
{
    uint32_t pairs = 0;

    memset(is_taken, 0, n * sizeof is_taken[0]);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = i + (uint32_t)rng_below(rng, count - i);
        struct meeting edge = edges[place];

        edges[place] = edges[i];
        edges[i] = edge;
        if (is_taken[edge.a] || is_taken[edge.b]) continue;
        is_taken[edge.a] = is_taken[edge.b] = true;
        x[edge.a] = x[edge.b] = (x[edge.a] + x[edge.b]) / 2;
        pairs++;
    }
    return pairs;
}

/* No closed form is known to us for what matchings drawn on a graph leave in the long run (the
 * second eigenvalue of E W is but a bound), so it is drawn and measured, a round being one pair for
 * each peer. */
static enum rc measure_pairs(const struct matrix *matrix, struct spectrum *spectrum)
{
    uint32_t n = matrix->n, count = 0;
    struct meeting *edges = mem_array(matrix->starts[n] + 1, sizeof *edges);
    bool *is_taken = mem_array(n, sizeof *is_taken);
    double *x = mem_array(n, sizeof *x), logs = 0, rounds = 0, square = 1;
    struct rng rng;

    rng_init(&rng, n, 2);
    for (uint32_t i = 0; x != NULL && edges != NULL && is_taken != NULL && i < n; i++) {
        x[i] = rng_normal(&rng);
        for (uint32_t k = matrix->starts[i]; k < matrix->starts[i + 1]; k++) {
            if (matrix->columns[k] > i) {
                edges[count++] = (struct meeting){i, matrix->columns[k]};
            }
        }
    }
    for (int round = -PAIRS_BEFORE; count > 0 && square > 0 && round < PAIRS_ROUNDS; round++) {
        uint32_t pairs = meet(edges, count, is_taken, n, x, &rng);

        square = normalize(x, n);
        if (round < 0) continue;
        logs += log(square) / 2;
        rounds += 2.0 * pairs / n;
    }
    spectrum->rho = square > 0 && rounds > 0 ? exp(logs / rounds) : 0;
    spectrum->is_expected = true;
    mem_free(edges);
    mem_free(is_taken);
    mem_free(x);
    return count > 0 ? RC_OK : RC_NOMEM;
}

/* ---- all together ---- */

static enum rc measure(struct chain *chain, struct spectrum *spectrum)
{
    double least, most, norm;

    if (chain->period == 1 && is_circulant(&chain->rounds[0])) {
        by_fourier(&chain->rounds[0], &least, &most);
    } else if (!lanczos(chain, &least, &most)) {
        return RC_NOMEM;
    }
    norm = fmax(fabs(most), fabs(least));
    if (chain->period == 1) {
        spectrum->second = most;
        spectrum->last = least;
    } else {
        norm = sqrt(norm);
    }
    if (norm < 1e-6) norm = 0; /* what rounding leaves of an exact mean */
    spectrum->rho = pow(norm, 1.0 / chain->period);
    return RC_OK;
}

static enum rc of_rounds(const struct topology *topology, bool by_pairs,
                         struct graph_members *members, struct spectrum *spectrum)
{
    struct chain chain = {.n = members->count, .spare = mem_array(members->count, sizeof(double))};
    struct graph_row *rows = mem_array(members->count, sizeof *rows);
    uint32_t period = period_of(topology, members->count);
    enum rc rc = chain.spare == NULL || rows == NULL ? RC_NOMEM : RC_OK;

    CHECK(period <= PERIOD_MAX);
    for (uint32_t i = 0; i < period && rc == RC_OK; i++) {
        members->round = i;
        rc = fill(&chain.rounds[i], topology, members, rows);
        if (rc == RC_OK) chain.period++;
    }
    spectrum->period = by_pairs ? 0 : period;
    if (rc == RC_OK) {
        rc = by_pairs ? measure_pairs(&chain.rounds[0], spectrum) : measure(&chain, spectrum);
    }
    for (uint32_t i = 0; i < period; i++) {
        matrix_deinit(&chain.rounds[i]);
    }
    mem_free(chain.spare);
    mem_free(rows);
    return rc;
}

enum rc spectrum_of(const struct topology *topology, bool by_pairs, struct digest run_id,
                    const struct peer_id *ids, uint32_t count, struct spectrum *spectrum)
{
    struct graph_members members = {.ids = ids, .count = count, .run_id = run_id};
    double n = count;

    CHECK(count > 0);
    *spectrum = (struct spectrum){.second = NAN, .last = NAN};
    if (count == 1) return RC_OK;
    if (topology->kind == TOPOLOGY_PAIRS || topology->kind == TOPOLOGY_GROUPS) {
        double groups = (double)topology_groups(topology, count);

        spectrum->is_expected = groups > 1;
        spectrum->rho = sqrt((groups - 1) / (n - 1));
        return RC_OK;
    }
    return of_rounds(topology, by_pairs && topology_is_graph(topology), &members, spectrum);
}

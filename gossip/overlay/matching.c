/* See matching.h. Pure but for scratch memory; any thread. */
#include "gossip/overlay/matching.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    TUNED_MAX = 24,  /* members: with more, chances are equal */
    CLIMBS = 40,     /* steps of the ascent */
    SWEEPS_MAX = 30, /* of rotations; about six do */
    GRAINS = 4096    /* chances are whole parts of 1, so that rounding elsewhere is of no effect */
};
static const double least_share = 0.1; /* of the budget, of each chance */
static const double least_gain = 1.001;

#define NOBODY UINT16_MAX

/* ---- colouring ---- */

struct colouring {
    uint32_t n, colours;
    uint16_t *mates; /* [n][colours]: the other end of a member's edge of that colour; or NOBODY */
    uint16_t *path;  /* [n] */
    uint16_t *fan;   /* [colours] */
    bool *is_in_fan; /* [n] */
};

static uint16_t *mate(const struct colouring *colouring, uint32_t member, uint32_t colour)
{
    return &colouring->mates[(size_t)member * colouring->colours + colour];
}

static bool is_free(const struct colouring *colouring, uint32_t member, uint32_t colour)
{
    return *mate(colouring, member, colour) == NOBODY;
}

static uint32_t free_colour(const struct colouring *colouring, uint32_t member)
{
    uint32_t colour = 0;

    while (!is_free(colouring, member, colour)) {
        colour++; /* there is one more than it has edges */
    }
    return colour;
}

static uint32_t colour_of(const struct colouring *colouring, uint32_t a, uint32_t b)
{
    uint32_t colour = 0;

    while (*mate(colouring, a, colour) != b) {
        colour++;
    }
    return colour;
}

static void paint(struct colouring *colouring, uint32_t a, uint32_t b, uint32_t colour)
{
    CHECK(is_free(colouring, a, colour) && is_free(colouring, b, colour));
    *mate(colouring, a, colour) = (uint16_t)b;
    *mate(colouring, b, colour) = (uint16_t)a;
}

static void wipe(struct colouring *colouring, uint32_t a, uint32_t b, uint32_t colour)
{
    *mate(colouring, a, colour) = *mate(colouring, b, colour) = NOBODY;
}

/* Neighbours of `hub` from `first` on, the edge to each of a colour that the one before it has not.
 */
static uint32_t spread_fan(struct colouring *colouring, uint32_t hub, uint32_t first)
{
    uint16_t *fan = colouring->fan;
    uint32_t count = 1, colour = 0;

    fan[0] = (uint16_t)first;
    while (colour < colouring->colours) {
        uint16_t next = *mate(colouring, hub, colour);

        if (next == NOBODY || colouring->is_in_fan[next] ||
            !is_free(colouring, fan[count - 1], colour)) {
            colour++;
            continue;
        }
        colouring->is_in_fan[next] = true;
        fan[count++] = next;
        colour = 0; /* all of them again, beside the new last one */
    }
    for (uint32_t i = 0; i < count; i++) {
        colouring->is_in_fan[fan[i]] = false;
    }
    return count;
}

/* Swap two colours along the path that begins at `from` with `colour`; `other` is free there. */
static void invert_path(struct colouring *colouring, uint32_t from, uint32_t colour, uint32_t other)
{
    const uint32_t colours[2] = {colour, other};
    uint32_t count = 1;
    uint16_t next;

    colouring->path[0] = (uint16_t)from;
    while ((next = *mate(colouring, colouring->path[count - 1], colours[(count - 1) % 2])) !=
           NOBODY) {
        colouring->path[count++] = next;
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        wipe(colouring, colouring->path[i], colouring->path[i + 1], colours[i % 2]);
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        paint(colouring, colouring->path[i], colouring->path[i + 1], colours[(i + 1) % 2]);
    }
}

/* Each edge of the fan up to `last` takes the colour of the next, and that one `colour`. */
static void turn_fan(struct colouring *colouring, uint32_t hub, uint32_t last, uint32_t colour)
{
    const uint16_t *fan = colouring->fan;

    for (uint32_t i = 0; i < last; i++) {
        uint32_t next = colour_of(colouring, hub, fan[i + 1]);

        wipe(colouring, hub, fan[i + 1], next);
        paint(colouring, hub, fan[i], next);
    }
    paint(colouring, hub, fan[last], colour);
}

static void colour_edge(struct colouring *colouring, uint32_t hub, uint32_t to)
{
    uint32_t count = spread_fan(colouring, hub, to), last = 0;
    uint32_t ours = free_colour(colouring, hub);
    uint32_t theirs = free_colour(colouring, colouring->fan[count - 1]);

    if (ours != theirs) invert_path(colouring, hub, theirs, ours);
    /* The path may have changed what is free in the fan: it is good up to where it did. */
    while (!is_free(colouring, colouring->fan[last], theirs)) {
        last++;
        CHECK(last < count);
        CHECK(is_free(colouring, colouring->fan[last - 1],
                      colour_of(colouring, hub, colouring->fan[last])));
    }
    turn_fan(colouring, hub, last, theirs);
}

static void colouring_destroy(struct colouring *colouring)
{
    mem_free(colouring->mates);
    mem_free(colouring->path);
    mem_free(colouring->fan);
    mem_free(colouring->is_in_fan);
}

static bool colouring_create(struct colouring *colouring, const struct graph_row *rows, uint32_t n)
{
    uint32_t degree = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].count > degree) degree = rows[i].count;
    }
    *colouring = (struct colouring){.n = n, .colours = degree + 1};
    colouring->mates = mem_array((size_t)n * colouring->colours, sizeof *colouring->mates);
    colouring->path = mem_array(n, sizeof *colouring->path);
    colouring->fan = mem_array(colouring->colours, sizeof *colouring->fan);
    colouring->is_in_fan = mem_array(n, sizeof *colouring->is_in_fan);
    if (colouring->mates == NULL || colouring->path == NULL) return false;
    if (colouring->fan == NULL || colouring->is_in_fan == NULL) return false;
    memset(colouring->mates, 0xff, (size_t)n * colouring->colours * sizeof *colouring->mates);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < rows[i].count; k++) {
            if (rows[i].edges[k].member > i) colour_edge(colouring, i, rows[i].edges[k].member);
        }
    }
    return true;
}

/* Colours that are used, the last ones may not be. */
static uint32_t colours_used(const struct colouring *colouring)
{
    for (uint32_t colour = colouring->colours; colour > 0; colour--) {
        for (uint32_t i = 0; i < colouring->n; i++) {
            if (!is_free(colouring, i, colour - 1)) return colour;
        }
    }
    return 0;
}

/* ---- chances ---- */

struct climb {
    const struct colouring *colouring;
    uint32_t count;                       /* matchings */
    double matrix[TUNED_MAX][TUNED_MAX];  /* sum p_k L_k; made diagonal */
    double vectors[TUNED_MAX][TUNED_MAX]; /* in the columns */
    double gradient[MATCHINGS_MAX];
};

static void fill_matrix(struct climb *climb, const double *chances)
{
    memset(climb->matrix, 0, sizeof climb->matrix);
    memset(climb->vectors, 0, sizeof climb->vectors);
    for (uint32_t i = 0; i < climb->colouring->n; i++) {
        climb->vectors[i][i] = 1;
        for (uint32_t k = 0; k < climb->count; k++) {
            uint16_t other = *mate(climb->colouring, i, k);

            if (other == NOBODY) continue;
            climb->matrix[i][i] += chances[k];
            climb->matrix[i][other] -= chances[k];
        }
    }
}

/* Columns p and q, or rows, by an angle of cosine c and sine s. */
static void rotate(double *p, double *q, uint32_t n, uint32_t stride, double c, double s)
{
    for (uint32_t i = 0; i < n * stride; i += stride) {
        double a = p[i], b = q[i];

        p[i] = c * a - s * b;
        q[i] = s * a + c * b;
    }
}

/* Jacobi's rotations, until what is beside the diagonal is nothing. */
static void make_diagonal(struct climb *climb)
{
    uint32_t n = climb->colouring->n;
    double beside = 1;

    for (uint32_t sweep = 0; sweep < SWEEPS_MAX && beside > 1e-9; sweep++) {
        beside = 0;
        for (uint32_t p = 0; p < n; p++) {
            for (uint32_t q = p + 1; q < n; q++) {
                double value = climb->matrix[p][q], angle, c, s;

                beside = fmax(beside, fabs(value));
                if (fabs(value) < 1e-12) continue;
                angle = atan2(2 * value, climb->matrix[q][q] - climb->matrix[p][p]) / 2;
                c = cos(angle);
                s = sin(angle);
                rotate(&climb->matrix[0][p], &climb->matrix[0][q], n, TUNED_MAX, c, s);
                rotate(climb->matrix[p], climb->matrix[q], n, 1, c, s);
                rotate(&climb->vectors[0][p], &climb->vectors[0][q], n, TUNED_MAX, c, s);
            }
        }
    }
}

/* The place of the second smallest value. */
static uint32_t second_of(const struct climb *climb)
{
    uint32_t least = 0, second = 1;

    for (uint32_t i = 1; i < climb->colouring->n; i++) {
        if (climb->matrix[i][i] < climb->matrix[least][least]) {
            second = least;
            least = i;
        } else if (i == 1 || climb->matrix[i][i] < climb->matrix[second][second]) {
            second = i;
        }
    }
    return second;
}

/* The second smallest eigenvalue with these chances, and its supergradient v' L_k v. */
static double connectivity(struct climb *climb, const double *chances)
{
    uint32_t n = climb->colouring->n, second;

    fill_matrix(climb, chances);
    make_diagonal(climb);
    second = second_of(climb);
    for (uint32_t k = 0; k < climb->count; k++) {
        climb->gradient[k] = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint16_t other = *mate(climb->colouring, i, k);
            double across =
                other == NOBODY ? 0 : climb->vectors[i][second] - climb->vectors[other][second];

            climb->gradient[k] += across * across / 2; /* each edge is met from both ends */
        }
    }
    return climb->matrix[second][second];
}

static double clamped(double value, double least)
{
    return value < least ? least : value > 1 ? 1 : value;
}

/* The nearest chances that add up to budget M: a shift of all, by bisection. */
static void project(double *chances, uint32_t count, double budget)
{
    double low = -2, high = 2;

    for (int i = 0; i < 60; i++) {
        double shift = (low + high) / 2, sum = 0;

        for (uint32_t k = 0; k < count; k++) {
            sum += clamped(chances[k] + shift, least_share * budget);
        }
        if (sum < budget * count) {
            low = shift;
        } else {
            high = shift;
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        chances[k] = clamped(chances[k] + low, least_share * budget);
    }
}

static void climb_step(struct climb *climb, double *chances, double length)
{
    double most = 0, mean = 0;

    for (uint32_t k = 0; k < climb->count; k++) {
        mean += climb->gradient[k] / climb->count;
    }
    for (uint32_t k = 0; k < climb->count; k++) {
        most = fmax(most, fabs(climb->gradient[k] - mean));
    }
    for (uint32_t k = 0; k < climb->count && most > 0; k++) {
        chances[k] += length * (climb->gradient[k] - mean) / most;
    }
}

/* Supergradient ascent (the eigenvalue is concave in the chances), the best that was met. */
static enum rc find_chances(const struct colouring *colouring, double budget,
                            struct matchings *matchings)
{
    struct climb *climb;
    double chances[MATCHINGS_MAX], best;

    for (uint32_t k = 0; k < matchings->count; k++) {
        matchings->chances[k] = (float)budget;
        chances[k] = budget;
    }
    if (colouring->n > TUNED_MAX || matchings->count < 2 || budget >= 1) return RC_OK;
    climb = mem_alloc(sizeof *climb);
    if (climb == NULL) return RC_NOMEM;
    climb->colouring = colouring;
    climb->count = matchings->count;
    best = least_gain * connectivity(climb, chances);
    for (uint32_t step = 1; step <= CLIMBS; step++) {
        double value;

        climb_step(climb, chances, budget / 4 / sqrt(step));
        project(chances, climb->count, budget);
        value = connectivity(climb, chances);
        if (!(value > best)) continue;
        best = value;
        for (uint32_t k = 0; k < climb->count; k++) {
            matchings->chances[k] = (float)(floor(chances[k] * GRAINS + 0.5) / GRAINS);
        }
    }
    mem_free(climb);
    return RC_OK;
}

/* ---- a member's edges ---- */

static struct matching_set set_of(const struct colouring *colouring, uint32_t member)
{
    struct matching_set set = {{0}};

    for (uint32_t k = 0; k < colouring->colours; k++) {
        if (!is_free(colouring, member, k)) set.words[k / 64] |= UINT64_C(1) << k % 64;
    }
    return set;
}

static enum rc find(const struct graph_row *rows, const struct graph_members *members,
                    double budget, struct matchings *matchings, struct matching_edge *edges)
{
    const uint32_t self = members->self;
    struct colouring colouring;
    enum rc rc = RC_NOMEM;

    for (uint32_t i = 0; i < members->count; i++) {
        if (rows[i].count > TOPOLOGY_DEGREE_MAX) return RC_LIMIT;
    }
    if (colouring_create(&colouring, rows, members->count)) {
        matchings->count = colours_used(&colouring);
        rc = find_chances(&colouring, budget, matchings);
        for (uint32_t k = 0; k < rows[self].count; k++) {
            uint32_t other = rows[self].edges[k].member;

            edges[k] = (struct matching_edge){.matching = colour_of(&colouring, self, other),
                                              .own = set_of(&colouring, self),
                                              .theirs = set_of(&colouring, other)};
        }
    }
    colouring_destroy(&colouring);
    return rc;
}

enum rc matchings_find(const struct topology *topology, const struct graph_members *members,
                       double budget, struct matchings *matchings, struct matching_edge *edges)
{
    struct graph_row *rows = mem_array(members->count, sizeof *rows);
    enum rc rc;

    CHECK(budget > 0 && budget <= 1);
    *matchings = (struct matchings){.seed = load_le64(members->run_id.bytes),
                                    .share = topology->is_lazy ? 0.5f : 1};
    if (rows == NULL) return RC_NOMEM;
    rc = graph_rows(topology, members, rows);
    if (rc == RC_OK) rc = find(rows, members, budget, matchings, edges);
    mem_free(rows);
    return rc;
}

/* ---- rounds ---- */

bool matching_is_active(const struct matchings *matchings, uint64_t round, uint32_t matching)
{
    uint64_t coin = rng_mix(rng_mix(matchings->seed, round), matching);

    return (double)(coin >> 11) * 0x1p-53 < (double)matchings->chances[matching];
}

static uint32_t active_in(const struct matchings *matchings, uint64_t round,
                          const struct matching_set *set)
{
    uint32_t count = 0;

    for (uint32_t k = 0; k < matchings->count; k++) {
        if ((set->words[k / 64] >> k % 64 & 1) == 0) continue;
        count += matching_is_active(matchings, round, k);
    }
    return count;
}

float matching_weight(const struct matchings *matchings, uint64_t round,
                      const struct matching_edge *edge)
{
    uint32_t own, theirs;

    if (!matching_is_active(matchings, round, edge->matching)) return 0;
    own = active_in(matchings, round, &edge->own);
    theirs = active_in(matchings, round, &edge->theirs);
    return matchings->share / (float)(1 + (own > theirs ? own : theirs));
}

/*
 * Rows of mixing matrices. Members are numbered by the order of their ids, and a graph is a rule on
 * those numbers, so all derive the same one. Metropolis-Hastings weights (Xiao, Boyd 2004) need no
 * more than both ends' degrees and are symmetric on any graph, so the rows of all together are
 * doubly stochastic even where the members do not fill the figure, as on a torus of a prime number.
 *
 * `random` is a union of circles, each through all members in an order of its own (Hamiltonian
 * cycles drawn at random, as good as random regular graphs: Friedman 2008, "A proof of Alon's
 * second eigenvalue conjecture"), plus a matching if the degree is odd. An order is that of hashes
 * of run and id, so who comes or goes changes the edges next to it alone. Edges that two circles
 * share are swapped away.
 *
 * Pure but for scratch memory of `random`; any thread.
 */
#include "gossip/overlay/graph.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)GRAPH_EDGES_MAX < (int)LINKS_MAX, "an edge needs a link");
_Static_assert((int)GROUP_MEMBERS_MAX <= (int)GRAPH_EDGES_MAX, "a group fits a row");
_Static_assert(MEMBERS_MAX <= UINT16_MAX, "places are kept in 16 bits");

/* ---- sets of neighbours ---- */

struct neighbours {
    uint32_t count;
    uint32_t places[GRAPH_EDGES_MAX];
};

/* Keeps `set` ascending and without doubles or the peer itself. */
static void add(struct neighbours *set, uint32_t self, uint32_t place)
{
    uint32_t at = set->count;

    if (place == self) return;
    while (at > 0 && set->places[at - 1] > place) {
        at--;
    }
    if (at > 0 && set->places[at - 1] == place) return;
    CHECK(set->count < GRAPH_EDGES_MAX);
    memmove(&set->places[at + 1], &set->places[at], (set->count - at) * sizeof set->places[0]);
    set->places[at] = place;
    set->count++;
}

/* Both neighbours of `at` on a circle of `size` cells; cell k is the member first + k * stride. */
static void add_circle(struct neighbours *set, uint32_t self, uint32_t first, uint32_t stride,
                       uint32_t size, uint32_t at)
{
    add(set, self, first + (at + 1) % size * stride);
    add(set, self, first + (at + size - 1) % size * stride);
}

/* Columns of the torus for n members: so that rows are full and at most twice as long as there are
 * rows, or else about sqrt(n). */
static uint32_t torus_columns(uint32_t n)
{
    uint32_t root = 1;

    while ((root + 1) * (root + 1) <= n) {
        root++;
    }
    for (uint32_t rows = root; rows > 0; rows--) {
        if (n % rows == 0 && n / rows <= 2 * rows) return n / rows;
    }
    return root * root == n ? root : root + 1;
}

static void add_torus(struct neighbours *set, uint32_t n, uint32_t self)
{
    uint32_t columns = torus_columns(n), row = self / columns, column = self % columns;
    uint32_t in_row = n - row * columns < columns ? n - row * columns : columns;
    uint32_t in_column = (n - column - 1) / columns + 1;

    add_circle(set, self, row * columns, 1, in_row, column);
    add_circle(set, self, column, columns, in_column, row);
}

static void add_complete(struct neighbours *set, uint32_t n, uint32_t self)
{
    uint32_t reach = (GRAPH_EDGES_MAX - 1) / 2;

    if (n <= GRAPH_EDGES_MAX + 1) {
        for (uint32_t place = 0; place < n; place++) {
            add(set, self, place);
        }
        return;
    }
    for (uint32_t k = 1; k <= reach; k++) {
        add(set, self, (self + k) % n);
        add(set, self, (self + n - k) % n);
    }
}

static void add_rule(struct neighbours *set, enum topology_kind kind, uint32_t n, uint32_t self)
{
    switch (kind) {
    case TOPOLOGY_RING:
        add_circle(set, self, 0, 1, n, self);
        break;
    case TOPOLOGY_TORUS:
        add_torus(set, n, self);
        break;
    case TOPOLOGY_HYPERCUBE:
        for (uint32_t bit = 1; bit < n; bit *= 2) {
            if ((self ^ bit) < n) add(set, self, self ^ bit);
        }
        break;
    case TOPOLOGY_EXPONENTIAL:
        for (uint32_t hop = 1; hop < n; hop *= 2) {
            add(set, self, (self + hop) % n);
            add(set, self, (self + n - hop) % n);
        }
        break;
    case TOPOLOGY_COMPLETE:
        add_complete(set, n, self);
        break;
    default:
        CHECK(false); /* not a rule on places */
    }
}

/* ---- random regular graphs ---- */

struct seat {
    uint64_t key;
    uint32_t place;
};

/* The neighbours of all, `degree` cells each, of which `counts` are taken. */
struct table {
    uint32_t n, degree;
    uint16_t *cells;    /* [n][degree] */
    uint8_t *counts;    /* [n] */
    struct seat *order; /* [n] of the circle being laid */
};

static int seat_compare(const void *a, const void *b)
{
    const struct seat *left = a, *right = b;

    if (left->key != right->key) return left->key < right->key ? -1 : 1;
    return left->place < right->place ? -1 : left->place > right->place;
}

static bool is_edge(const struct table *table, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < table->counts[a]; i++) {
        if (table->cells[(size_t)a * table->degree + i] == b) return true;
    }
    return false;
}

static void add_edge(struct table *table, uint32_t a, uint32_t b)
{
    CHECK(table->counts[a] < table->degree && table->counts[b] < table->degree);
    table->cells[(size_t)a * table->degree + table->counts[a]++] = (uint16_t)b;
    table->cells[(size_t)b * table->degree + table->counts[b]++] = (uint16_t)a;
}

static void draw_order(struct table *table, const struct graph_members *members, uint64_t circle)
{
    uint64_t salt = rng_mix(load_le64(members->run_id.bytes), circle);

    for (uint32_t i = 0; i < table->n; i++) {
        const uint8_t *id = members->ids[i].bytes;

        table->order[i].key = rng_mix(rng_mix(salt, load_le64(id)), load_le64(id + 8));
        table->order[i].place = i;
    }
    qsort(table->order, table->n, sizeof table->order[0], seat_compare);
}

/* Does the circle (or, `step` 2, the matching) lay a new edge from seat `at` to the next? */
static bool is_new(const struct table *table, uint32_t at, uint32_t step)
{
    uint32_t n = table->n, next = (at + 1) % n;

    if (step == 2 && (at % 2 != 0 || next == 0)) return true; /* no edge of the matching */
    return !is_edge(table, table->order[at].place, table->order[next].place);
}

static bool suits(const struct table *table, uint32_t seat, uint32_t step)
{
    return is_new(table, seat, step) && is_new(table, (seat + table->n - 1) % table->n, step);
}

/* Swap the member behind each doubled edge with the next one in the order for which all edges of
 * both are new. False: there is none, the graph is too small for chance. */
static bool swap_doubles_away(struct table *table, uint32_t step)
{
    uint32_t n = table->n;

    for (uint32_t at = 0; at < n; at++) {
        uint32_t seat = (at + 1) % n, other;

        if (is_new(table, at, step)) continue;
        for (other = (seat + 1) % n; other != seat; other = (other + 1) % n) {
            struct seat swapped = table->order[seat];

            table->order[seat] = table->order[other];
            table->order[other] = swapped;
            if (suits(table, seat, step) && suits(table, other, step)) break;
            table->order[other] = table->order[seat];
            table->order[seat] = swapped;
        }
        if (other == seat) return false;
    }
    return true;
}

static bool lay_circles(struct table *table, const struct graph_members *members)
{
    uint32_t n = table->n, circles = table->degree / 2;

    for (uint32_t circle = 0; circle < circles; circle++) {
        draw_order(table, members, circle);
        if (!swap_doubles_away(table, 1)) return false;
        for (uint32_t at = 0; at < n; at++) {
            add_edge(table, table->order[at].place, table->order[(at + 1) % n].place);
        }
    }
    if (table->degree % 2 == 0) return true;
    draw_order(table, members, circles);
    if (!swap_doubles_away(table, 2)) return false;
    for (uint32_t at = 0; at + 1 < n; at += 2) {
        add_edge(table, table->order[at].place, table->order[at + 1].place);
    }
    return true;
}

/* Few members: one circle in a drawn order, each linked with those up to degree / 2 seats away and,
 * if the degree is odd, with the one opposite. */
static void lay_chords(struct table *table, const struct graph_members *members)
{
    uint32_t n = table->n, half = n / 2;
    const struct seat *order = table->order;

    memset(table->counts, 0, n);
    draw_order(table, members, 0);
    for (uint32_t hop = 1; hop <= table->degree / 2; hop++) {
        for (uint32_t at = 0; at < n; at++) {
            add_edge(table, order[at].place, order[(at + hop) % n].place);
        }
    }
    for (uint32_t at = 0; table->degree % 2 != 0 && at < half; at++) {
        add_edge(table, order[at].place, order[at + half].place);
    }
}

static bool table_create(struct table *table, const struct graph_members *members, uint32_t degree)
{
    uint32_t n = members->count;

    *table = (struct table){.n = n,
                            .degree = degree,
                            .cells = mem_array((size_t)n * degree, sizeof *table->cells),
                            .counts = mem_array(n, sizeof *table->counts),
                            .order = mem_array(n, sizeof *table->order)};
    if (table->cells == NULL || table->counts == NULL || table->order == NULL) return false;
    /* With so few members that most draws clash, chance has nothing to choose from anyway. */
    if (n < 2 * degree + 2 || !lay_circles(table, members)) lay_chords(table, members);
    return true;
}

static void table_destroy(struct table *table)
{
    mem_free(table->cells);
    mem_free(table->counts);
    mem_free(table->order);
}

/* ---- rows ---- */

struct neighbourhood {
    struct neighbours set;
    uint32_t degrees[GRAPH_EDGES_MAX]; /* of those in `set` */
};

static void take_random(const struct table *table, uint32_t self, struct neighbourhood *around)
{
    around->set.count = 0;
    for (uint32_t i = 0; i < table->counts[self]; i++) {
        add(&around->set, self, table->cells[(size_t)self * table->degree + i]);
    }
    for (uint32_t i = 0; i < around->set.count; i++) {
        around->degrees[i] = table->counts[around->set.places[i]];
    }
}

static enum rc find_random(uint32_t degree, const struct graph_members *members,
                           struct neighbourhood *around)
{
    struct table table;
    enum rc rc = RC_NOMEM;

    if (table_create(&table, members, degree)) {
        take_random(&table, members->self, around);
        rc = RC_OK;
    }
    table_destroy(&table);
    return rc;
}

static enum rc find_neighbours(const struct topology *topology, const struct graph_members *members,
                               struct neighbourhood *around)
{
    enum topology_kind kind = topology->kind;
    uint32_t n = members->count;

    around->set.count = 0;
    if (n == 1) return RC_OK;
    if (kind == TOPOLOGY_RANDOM) {
        if (n > topology->degree + 1) return find_random(topology->degree, members, around);
        kind = TOPOLOGY_COMPLETE;
    }
    add_rule(&around->set, kind, n, members->self);
    for (uint32_t i = 0; i < around->set.count; i++) {
        struct neighbours theirs = {0};

        add_rule(&theirs, kind, n, around->set.places[i]);
        around->degrees[i] = theirs.count;
    }
    return RC_OK;
}

static uint32_t place_of(const struct graph_members *members, struct peer_id id)
{
    uint32_t low = 0, high = members->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (peer_id_compare(members->ids[middle], id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    CHECK(low < members->count && peer_id_is_equal(members->ids[low], id));
    return low;
}

static bool is_by_groups(const struct topology *topology)
{
    return topology->kind == TOPOLOGY_GROUPS || topology->kind == TOPOLOGY_GRID ||
           topology->kind == TOPOLOGY_PAIRS;
}

static void find_group(const struct topology *topology, const struct graph_members *members,
                       struct neighbourhood *around)
{
    struct peer_id group[GROUP_MEMBERS_MAX];
    size_t count =
        topology_group(topology, members->run_id, members->round, members->ids[members->self],
                       members->ids, members->count, group, GROUP_MEMBERS_MAX);

    around->set.count = 0;
    for (size_t i = 0; i < count; i++) {
        add(&around->set, members->self, place_of(members, group[i]));
    }
    for (uint32_t i = 0; i < around->set.count; i++) {
        around->degrees[i] = around->set.count;
    }
}

/* What is left is kept. */
static void finish(const struct topology *topology, struct graph_row *row)
{
    double sum = 0;

    for (uint32_t i = 0; i < row->count; i++) {
        if (topology->is_lazy) row->edges[i].weight /= 2;
        CHECK(row->edges[i].weight > 0);
        sum += (double)row->edges[i].weight;
    }
    CHECK(sum < 1 + 1e-6);
    row->self_weight = (float)fmax(1 - sum, 0);
}

static void weigh(const struct topology *topology, const struct neighbourhood *around,
                  struct graph_row *row)
{
    row->count = around->set.count;
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t most =
            around->degrees[i] > around->set.count ? around->degrees[i] : around->set.count;

        row->edges[i] = (struct graph_edge){around->set.places[i], 1.0f / (float)(1 + most)};
    }
    finish(topology, row);
}

static void check_members(const struct graph_members *members)
{
    CHECK(members->count > 0 && members->count <= MEMBERS_MAX);
    CHECK(members->self < members->count);
}

enum rc graph_row(const struct topology *topology, const struct graph_members *members,
                  struct graph_row *row)
{
    struct neighbourhood around;
    enum rc rc = RC_OK;

    check_members(members);
    if (topology_is_directed(topology)) return RC_USAGE;
    if (is_by_groups(topology)) {
        find_group(topology, members, &around);
    } else {
        rc = find_neighbours(topology, members, &around);
    }
    if (rc != RC_OK) return rc;
    weigh(topology, &around, row);
    return RC_OK;
}

enum rc graph_rows(const struct topology *topology, const struct graph_members *members,
                   struct graph_row *rows)
{
    struct graph_members view = *members;
    struct table table;
    enum rc rc = RC_OK;

    if (topology->kind == TOPOLOGY_RANDOM && members->count > topology->degree + 1) {
        struct neighbourhood around;

        if (table_create(&table, members, topology->degree)) {
            for (uint32_t i = 0; i < members->count; i++) {
                take_random(&table, i, &around);
                weigh(topology, &around, &rows[i]);
            }
        } else {
            rc = RC_NOMEM;
        }
        table_destroy(&table);
        return rc;
    }
    for (view.self = 0; view.self < view.count && rc == RC_OK; view.self++) {
        rc = graph_row(topology, &view, &rows[view.self]);
    }
    return rc;
}

/* The rounds after which who passes on what it has to those 1, 2, 4, ... further has told all. */
static uint32_t hops_of(uint32_t n)
{
    uint32_t hops = 0;

    for (uint32_t hop = 1; hop < n; hop *= 2) {
        hops++;
    }
    return hops;
}

/* The hop of the round along an order that is drawn anew when all hops have had their turn. */
static enum rc add_drawn_hop(const struct graph_members *members, bool is_in,
                             struct neighbours *set)
{
    uint32_t n = members->count, hops = hops_of(n), hop, at = 0;
    struct table table = {.n = n};

    if (hops == 0) return RC_OK;
    table.order = mem_array(n, sizeof *table.order);
    if (table.order == NULL) return RC_NOMEM;
    draw_order(&table, members, members->round / hops);
    while (table.order[at].place != members->self) {
        at++;
    }
    hop = 1u << members->round % hops;
    add(set, members->self, table.order[(at + (is_in ? n - hop : hop)) % n].place);
    mem_free(table.order);
    return RC_OK;
}

/* Hops 2^k, all of them or that of the round; `is_in`: against their direction. */
static void add_hops(const struct topology *topology, const struct graph_members *members,
                     bool is_in, struct neighbours *set)
{
    uint32_t n = members->count, self = members->self, hops = hops_of(n), chosen;

    if (hops == 0) return;
    chosen = (uint32_t)(members->round % hops);
    for (uint32_t k = 0; k < hops; k++) {
        uint32_t hop = 1u << k;

        if (topology->kind == TOPOLOGY_ONE_PEER && k != chosen) continue;
        add(set, self, (self + (is_in ? n - hop : hop)) % n);
    }
}

static enum rc push_row(const struct topology *topology, const struct graph_members *members,
                        bool is_in, struct graph_row *row)
{
    struct neighbourhood around = {.set = {0}};
    bool is_hops = topology->kind == TOPOLOGY_EXPONENTIAL || topology->kind == TOPOLOGY_ONE_PEER;
    enum rc rc = RC_OK;

    check_members(members);
    if (is_hops) {
        add_hops(topology, members, is_in, &around.set);
        for (uint32_t i = 0; i < around.set.count; i++) {
            around.degrees[i] = around.set.count; /* circulant: that of all */
        }
    } else if (topology->kind == TOPOLOGY_DISSEMINATION) {
        rc = add_drawn_hop(members, is_in, &around.set);
        around.degrees[0] = 1;
    } else if (is_by_groups(topology)) {
        find_group(topology, members, &around);
    } else {
        rc = find_neighbours(topology, members, &around);
    }
    if (rc != RC_OK) return rc;
    row->count = around.set.count;
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t degree = is_in ? around.degrees[i] : around.set.count; /* the giver's */

        row->edges[i] = (struct graph_edge){around.set.places[i], 1.0f / (float)(1 + degree)};
    }
    if (is_in) {
        for (uint32_t i = 0; topology->is_lazy && i < row->count; i++) {
            row->edges[i].weight /= 2;
        }
        row->self_weight = 1.0f / (float)(1 + row->count);
        if (topology->is_lazy) row->self_weight = (1 + row->self_weight) / 2;
    } else {
        finish(topology, row);
    }
    return RC_OK;
}

enum rc graph_out(const struct topology *topology, const struct graph_members *members,
                  struct graph_row *row)
{
    if (topology->kind == TOPOLOGY_PAIRS && members->count > 1) {
        uint64_t draw = rng_mix(load_le64(members->run_id.bytes), members->round);
        struct rng rng;
        uint32_t other;

        check_members(members);
        rng_init(&rng, draw, load_le64(members->ids[members->self].bytes));
        other = (uint32_t)rng_below(&rng, members->count - 1);
        row->count = 1;
        row->edges[0] = (struct graph_edge){other + (other >= members->self), 0.5f};
        row->self_weight = 0.5f;
        return RC_OK;
    }
    return push_row(topology, members, false, row);
}

enum rc graph_in(const struct topology *topology, const struct graph_members *members,
                 struct graph_row *row)
{
    if (topology->kind == TOPOLOGY_PAIRS) return RC_USAGE;
    return push_row(topology, members, true, row);
}

struct digest graph_epoch(struct digest run_id, const struct peer_id *ids, uint32_t count)
{
    struct hash hash;

    hash_init(&hash);
    hash_update(&hash, run_id.bytes, sizeof run_id.bytes);
    hash_update(&hash, ids, count * sizeof ids[0]); /* bytes without gaps */
    return hash_final(&hash);
}

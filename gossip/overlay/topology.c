/*
 * With whom a peer mixes in a round. Everyone sorts the same members by a hash that changes with
 * the round, so all agree on the groups without a word: neighbours in that order form one group.
 * Over the rounds every pair meets, which is what makes small groups approach the mean of all
 * (random grouping as in Ryabinin et al. 2021, "Moshpit SGD", arXiv:2103.03239).
 *
 * Who is linked with all others knows who is there, and the order is cut into equal runs. In a
 * larger swarm somebody comes or goes all the time, some know it later than others, and one member
 * more would shift the bounds of all groups after it. There a group is all whose hashes begin with
 * the same bits, one more bit as long as that leaves enough on either side of it: a trie whose
 * leaves split and join by themselves, as buckets do in Kademlia (Maymounkov and Mazieres 2002) or
 * in extendible hashing. Who disagree about a member then disagree about its own group, and now
 * and then about whether that is split.
 *
 * With `grid` the members, sorted by id, fill a grid, and each round takes the lines of one
 * dimension, as in Moshpit SGD: when all cells are taken, as many rounds as dimensions give
 * everyone the exact mean. Pure; any thread.
 */
#include "gossip/overlay/topology.h"

#include "base/bytes.h"
#include "base/check.h"
#include "gossip/wire/limits.h"

#include <stdio.h>

enum { LINKS_VIEW = 32, DRAWS_MAX = TOPOLOGY_AHEAD_MAX / 2, PREFIX_BITS = 64 };

/* A member and its place in the order of this round. */
struct seat {
    struct digest key;
    struct peer_id id;
};

/* The names without a number; those with one follow in `sized`. */
static const struct {
    const char *name;
    enum topology_kind kind;
} plain[] = {
    {"complete", TOPOLOGY_COMPLETE},
    {"pairs", TOPOLOGY_PAIRS},
    {"ring", TOPOLOGY_RING},
    {"torus", TOPOLOGY_TORUS},
    {"hypercube", TOPOLOGY_HYPERCUBE},
    {"exponential", TOPOLOGY_EXPONENTIAL},
    {"one-peer-exponential", TOPOLOGY_ONE_PEER},
    {"dissemination", TOPOLOGY_DISSEMINATION},
};

static const struct {
    const char *prefix, *number;
    enum topology_kind kind;
    uint32_t max;
} sized[] = {
    {"groups:", "group size", TOPOLOGY_GROUPS, GROUP_MEMBERS_MAX},
    {"grid:", "side", TOPOLOGY_GRID, GROUP_MEMBERS_MAX},
    {"random:", "number of neighbours", TOPOLOGY_RANDOM, TOPOLOGY_DEGREE_MAX},
};

/* The number of `sized[which]`, that follows the colon and ends `spec` or the part before ",lazy".
 */
static enum rc parse_sized(const char *spec, size_t end, size_t which, struct topology *topology,
                           struct fault *why)
{
    size_t begin = strlen(sized[which].prefix), i = begin;
    uint32_t size = 0;

    for (; i < end && spec[i] >= '0' && spec[i] <= '9' && size <= sized[which].max; i++) {
        size = size * 10 + (uint32_t)(spec[i] - '0');
    }
    if (i == begin || i != end || size < 2 || size > sized[which].max) {
        return fault_set(why, RC_PARSE,
                         "--topology \"%.40s\", column %zu: the %s must be a number from 2 to %u",
                         spec, begin + 1, sized[which].number, sized[which].max);
    }
    *topology = (struct topology){.kind = sized[which].kind};
    if (topology->kind == TOPOLOGY_RANDOM) {
        topology->degree = size;
    } else {
        topology->group_size = size;
    }
    return RC_OK;
}

static enum rc parse_name(const char *spec, size_t end, struct topology *topology,
                          struct fault *why)
{
    for (size_t i = 0; i < ARRAY_COUNT(plain); i++) {
        if (strlen(plain[i].name) != end || strncmp(spec, plain[i].name, end) != 0) continue;
        *topology = (struct topology){.kind = plain[i].kind};
        return RC_OK;
    }
    for (size_t i = 0; i < ARRAY_COUNT(sized); i++) {
        if (strncmp(spec, sized[i].prefix, strlen(sized[i].prefix)) != 0) continue;
        return parse_sized(spec, end, i, topology, why);
    }
    return fault_set(why, RC_PARSE,
                     "--topology \"%.32s\", column 1: unknown; known are complete, groups:SIZE, "
                     "grid:SIZE, pairs, ring, torus, hypercube, exponential, one-peer-exponential, "
                     "dissemination, random:DEGREE",
                     spec);
}

/* ",sites:EVERY", which begins at `*end` and ends what is left of `spec`, or the part before it. */
static enum rc parse_sites(const char *spec, size_t *end, struct topology *topology,
                           struct fault *why)
{
    static const char word[] = ",sites:";
    size_t begin = *end + sizeof word - 1, i = begin;
    uint32_t every = 0;

    if (topology_is_graph(topology) || strncmp(spec + *end, word, sizeof word - 1) != 0) {
        return RC_OK;
    }
    for (; spec[i] >= '0' && spec[i] <= '9' && every <= TOPOLOGY_SITES_MAX; i++) {
        every = every * 10 + (uint32_t)(spec[i] - '0');
    }
    if (i == begin || (spec[i] != '\0' && spec[i] != ',') || every < 1 ||
        every > TOPOLOGY_SITES_MAX) {
        return fault_set(
            why, RC_PARSE,
            "--topology \"%.40s\", column %zu: the rounds of which one is of all sites "
            "must be a number from 1 to %d",
            spec, begin + 1, (int)TOPOLOGY_SITES_MAX);
    }
    topology->sites_every = every;
    *end = i;
    return RC_OK;
}

/* What follows the name: ",lazy" of graphs, ",uniform" of pairs, ",sites:EVERY" of what is no
 * graph.
 */
static enum rc parse_option(const char *spec, size_t end, struct topology *topology,
                            struct fault *why)
{
    bool is_lazy;
    enum rc rc;

    if (topology->kind == TOPOLOGY_PAIRS && strncmp(spec + end, ",uniform", 8) == 0) {
        topology->is_uniform = true;
        end += 8;
    }
    rc = parse_sites(spec, &end, topology, why);
    if (rc != RC_OK || spec[end] == '\0') return rc;
    is_lazy = strcmp(spec + end, ",lazy") == 0;
    if (is_lazy && !topology_is_graph(topology)) {
        return fault_set(why, RC_PARSE,
                         "--topology \"%.40s\", column %zu: only graphs have lazy weights: ring, "
                         "torus, hypercube, exponential, one-peer-exponential, dissemination, "
                         "random:DEGREE",
                         spec, end + 1);
    }
    if (!is_lazy) {
        return fault_set(why, RC_PARSE, "--topology \"%.40s\", column %zu: expected \"%s\"", spec,
                         end + 1,
                         topology->kind == TOPOLOGY_PAIRS ? ",uniform\" or \",sites:EVERY"
                         : topology_is_grouped(topology)  ? ",sites:EVERY"
                                                          : ",lazy");
    }
    topology->is_lazy = true;
    return RC_OK;
}

enum rc topology_parse(const char *spec, struct topology *topology, struct fault *why)
{
    struct topology parsed;
    size_t end;
    enum rc rc;

    CHECK(spec != NULL && topology != NULL);
    end = strcspn(spec, ",");
    rc = parse_name(spec, end, &parsed, why);
    if (rc == RC_OK) rc = parse_option(spec, end, &parsed, why);
    if (rc == RC_OK) *topology = parsed;
    return rc;
}

void topology_format(const struct topology *topology, char text[TOPOLOGY_TEXT])
{
    char option[32], sites[20] = ""; /* of the longest words and numbers */

    if (topology->sites_every > 0) {
        snprintf(sites, sizeof sites, ",sites:%u", topology->sites_every);
    }
    snprintf(option, sizeof option, "%s%s",
             topology->is_lazy      ? ",lazy"
             : topology->is_uniform ? ",uniform"
                                    : "",
             sites);
    for (size_t i = 0; i < ARRAY_COUNT(plain); i++) {
        if (plain[i].kind != topology->kind) continue;
        snprintf(text, TOPOLOGY_TEXT, "%s%s", plain[i].name, option);
        return;
    }
    for (size_t i = 0; i < ARRAY_COUNT(sized); i++) {
        if (sized[i].kind != topology->kind) continue;
        snprintf(text, TOPOLOGY_TEXT, "%s%u%s", sized[i].prefix,
                 topology->kind == TOPOLOGY_RANDOM ? topology->degree : topology->group_size,
                 option);
    }
}

bool topology_is_grouped(const struct topology *topology)
{
    return topology->kind == TOPOLOGY_COMPLETE || topology->kind == TOPOLOGY_GROUPS ||
           topology->kind == TOPOLOGY_GRID;
}

bool topology_is_graph(const struct topology *topology)
{
    return !topology_is_grouped(topology) && topology->kind != TOPOLOGY_PAIRS;
}

bool topology_is_directed(const struct topology *topology)
{
    return topology->kind == TOPOLOGY_ONE_PEER || topology->kind == TOPOLOGY_DISSEMINATION;
}

static int seat_compare(const void *a, const void *b)
{
    const struct seat *left = a, *right = b;
    int order = memcmp(left->key.bytes, right->key.bytes, DIGEST_BYTES);

    return order != 0 ? order : peer_id_compare(left->id, right->id);
}

static struct digest seat_key(struct digest run_id, uint64_t round, struct peer_id id)
{
    struct hash hash;
    uint8_t number[8];

    store_le64(number, round);
    hash_init(&hash);
    hash_update(&hash, run_id.bytes, sizeof(run_id.bytes));
    hash_update(&hash, number, sizeof(number));
    hash_update(&hash, id.bytes, sizeof(id.bytes));
    return hash_final(&hash);
}

/* A remainder too large to be spread one each makes a group of its own. */
static size_t groups_of(size_t members, size_t size)
{
    size_t groups = members / size;

    return groups == 0 || members % size > groups ? groups + 1 : groups;
}

/* The run of seats [first, first + count) that `place` belongs to. `count` members make as many
 * groups as give the wanted size best; the remainder goes one each to the first groups. No group
 * has fewer than two members while there are two. */
static void run_bounds(size_t members, size_t size, size_t place, size_t *first, size_t *count)
{
    size_t groups = groups_of(members, size);
    size_t base = members / groups, larger = members % groups;

    if (place < larger * (base + 1)) {
        *count = base + 1;
        *first = place / (base + 1) * (base + 1);
    } else {
        *count = base;
        *first = larger * (base + 1) + (place - larger * (base + 1)) / base * base;
    }
}

/* Members whose keys first differ from ours in one bit, and how many of them come before us. */
struct branch {
    size_t count, below;
};

static size_t first_difference(const struct digest *a, const struct digest *b)
{
    for (size_t i = 0; i < PREFIX_BITS / 8; i++) {
        unsigned apart = a->bytes[i] ^ b->bytes[i];

        if (apart != 0) return 8 * i + (size_t)__builtin_clz(apart << 24);
    }
    return PREFIX_BITS - 1;
}

/* Likewise of a large swarm, at most `most` seats: all that share a prefix with us. It has one bit
 * more as long as both halves keep two thirds of `size`, and so holds about `size` on average. What
 * is too large all the same, as its halves are too unlike, is cut into runs. */
static void prefix_bounds(const struct branch branches[PREFIX_BITS], size_t members, size_t size,
                          size_t most, size_t place, size_t *first, size_t *count)
{
    size_t least = size < 3 ? 2 : (2 * size + 1) / 3, start = 0, inside = members;

    for (size_t bit = 0; bit < PREFIX_BITS; bit++) {
        size_t others = branches[bit].count;

        if (others < least || inside - others < least) break;
        inside -= others;
        start += branches[bit].below;
    }
    CHECK(start <= place && place < start + inside);
    *first = 0;
    *count = inside;
    if (inside > most) run_bounds(inside, size, place - start, first, count);
    *first += start;
}

/* The largest group size that is asked for, such that a group and its one extra member fit; of a
 * large swarm, one twice as large. */
static size_t wanted_size(const struct topology *topology, size_t members, size_t max)
{
    size_t cap = max < GROUP_MEMBERS_MAX ? max : GROUP_MEMBERS_MAX;
    size_t size = topology->kind == TOPOLOGY_COMPLETE ? members
                  : topology->kind == TOPOLOGY_GROUPS ? topology->group_size
                                                      : 2;

    if (members <= cap) return size;
    CHECK(cap >= 4); /* a pair and one more when their number is odd, or twice that */
    if (members > TOPOLOGY_RUNS) return size < cap / 2 ? size : cap / 2;
    return size < cap ? size : cap - 1;
}

size_t topology_groups(const struct topology *topology, size_t members_count)
{
    size_t size = wanted_size(topology, members_count, GROUP_MEMBERS_MAX);

    if (members_count == 0) return 0;
    return members_count > TOPOLOGY_RUNS ? members_count / size : groups_of(members_count, size);
}

/* Insert into a sorted run of at most `max` seats that keeps the smallest (or the largest) ones. */
static void keep_nearest(struct seat *seats, size_t *count, size_t max, const struct seat *seat,
                         bool keeps_smallest)
{
    size_t place = *count;

    if (max == 0) return;
    if (*count == max) {
        const struct seat *farthest = keeps_smallest ? &seats[max - 1] : &seats[0];

        if ((seat_compare(seat, farthest) < 0) != keeps_smallest) return;
        if (!keeps_smallest) memmove(seats, seats + 1, (max - 1) * sizeof(seats[0]));
        (*count)--;
        place = *count;
    }
    while (place > 0 && seat_compare(seat, &seats[place - 1]) < 0) {
        seats[place] = seats[place - 1];
        place--;
    }
    seats[place] = *seat;
    (*count)++;
}

/* The grid for so many members: the fewest dimensions of sides up to `size`, then the shortest side
 * that does, so that cells stay empty only where the number asks for it. */
static void grid_shape(size_t members, size_t size, size_t *side, size_t *dimensions)
{
    size_t cells = size;

    *dimensions = 1;
    for (; cells < members; cells *= size) {
        (*dimensions)++;
    }
    for (*side = 2;; (*side)++) {
        cells = 1;
        for (size_t i = 0; i < *dimensions; i++) {
            cells *= *side;
        }
        if (cells >= members) return;
    }
}

/* The line of the grid through `place` in the dimension whose turn it is, in proposing order. */
static size_t grid_group(const struct topology *topology, struct digest run_id, uint64_t round,
                         size_t place, const struct peer_id *members, size_t members_count,
                         struct peer_id *group, size_t max)
{
    size_t size = topology->group_size < max ? topology->group_size : max;
    size_t side, dimensions, stride = 1, count = 0;
    struct seat line[GROUP_MEMBERS_MAX];

    grid_shape(members_count, size, &side, &dimensions);
    for (size_t i = 0; i < round % dimensions; i++) {
        stride *= side;
    }
    for (size_t i = 0, at = place - place / stride % side * stride; i < side; i++, at += stride) {
        struct seat seat;

        if (at >= members_count) break;
        seat = (struct seat){.key = seat_key(run_id, round, members[at]), .id = members[at]};
        keep_nearest(line, &count, GROUP_MEMBERS_MAX, &seat, true);
    }
    for (size_t i = 0; i < count; i++) {
        group[i] = line[i].id;
    }
    return count;
}

size_t topology_group(const struct topology *topology, struct digest run_id, uint64_t round,
                      struct peer_id self, const struct peer_id *members, size_t members_count,
                      struct peer_id *group, size_t max)
{
    struct seat own = {.key = seat_key(run_id, round, self), .id = self};
    struct seat below[GROUP_MEMBERS_MAX], above[GROUP_MEMBERS_MAX];
    struct branch branches[PREFIX_BITS] = {{0}};
    size_t place = 0, size, most, first, count, below_count = 0, above_count = 0;
    bool is_large = members_count > TOPOLOGY_RUNS;

    if (topology->kind == TOPOLOGY_GRID) {
        while (place < members_count && !peer_id_is_equal(members[place], self)) {
            place++;
        }
        CHECK(place < members_count && max >= 2);
        return grid_group(topology, run_id, round, place, members, members_count, group, max);
    }
    size = wanted_size(topology, members_count, max);
    most = is_large ? 2 * size : size + 1;
    for (size_t i = 0; i < members_count; i++) {
        struct seat seat = {.key = seat_key(run_id, round, members[i]), .id = members[i]};
        struct branch *branch = &branches[first_difference(&seat.key, &own.key)];
        int order = seat_compare(&seat, &own);

        place += order < 0;
        branch->count += order != 0;
        branch->below += order < 0;
        if (order < 0) keep_nearest(below, &below_count, most, &seat, false);
        if (order > 0) keep_nearest(above, &above_count, most, &seat, true);
    }
    CHECK(place < members_count); /* `self` is among the members */
    if (is_large) {
        prefix_bounds(branches, members_count, size, most, place, &first, &count);
    } else {
        run_bounds(members_count, size, place, &first, &count);
    }
    CHECK(count <= max && count <= GROUP_MEMBERS_MAX && place - first <= below_count);
    for (size_t i = 0; i < count; i++) { /* those below are the nearest, too: the last ones */
        size_t at = first + i;

        group[i] = at < place    ? below[below_count - (place - at)].id
                   : at == place ? self
                                 : above[at - place - 1].id;
    }
    return count;
}

/* Four groups of eight are as many links as an active view has. */
static uint32_t draws_of(const struct topology *topology)
{
    uint32_t others = topology->kind == TOPOLOGY_GROUPS ? topology->group_size - 1 : LINKS_VIEW;
    uint32_t draws = LINKS_VIEW / others;

    return draws < 1 ? 1 : draws < DRAWS_MAX ? draws : DRAWS_MAX;
}

uint64_t topology_draw(const struct topology *topology, uint64_t round)
{
    uint64_t draws = draws_of(topology), which = round % draws;

    if (topology->kind == TOPOLOGY_GRID) return round;
    return (round / draws + which * TOPOLOGY_TURNS / draws) / TOPOLOGY_TURNS * draws + which;
}

uint32_t topology_ahead(const struct topology *topology)
{
    return topology->kind == TOPOLOGY_GRID ? TOPOLOGY_AHEAD_MAX : 2 * draws_of(topology);
}

struct topology_level topology_level(uint32_t every, uint64_t round)
{
    if (every == 0) return (struct topology_level){false, round};
    if (round % every == every - 1) return (struct topology_level){false, round / every};
    return (struct topology_level){true, round - round / every};
}

uint64_t topology_edge(struct digest run_id, uint64_t period, struct peer_id a, struct peer_id b)
{
    uint64_t seed = rng_mix(load_le64(run_id.bytes), period);

    return rng_mix(seed, rng_mix(seed, load_le64(a.bytes)) + rng_mix(seed, load_le64(b.bytes)));
}

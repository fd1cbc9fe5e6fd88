/*
 * With whom a peer mixes in a round. Everyone sorts the same members by a hash that changes with
 * the round, so all agree on the groups without a word: neighbours in that order form one group.
 * Over the rounds every pair meets, which is what makes small groups approach the mean of all
 * (random grouping as in Ryabinin et al. 2021, "Moshpit SGD", arXiv:2103.03239). With `grid` the
 * members, sorted by id, fill a grid, and each round takes the lines of one dimension, as in the
 * same paper: when all cells are taken, as many rounds as dimensions give everyone the exact mean.
 * Pure; any thread.
 */
#include "gossip/topology.h"

#include "base/bytes.h"
#include "base/check.h"
#include "gossip/wire/limits.h"

#define GROUPS_PREFIX "groups:"
#define GRID_PREFIX   "grid:"

/* A member and its place in the order of this round. */
struct seat {
    struct digest key;
    struct peer_id id;
};

/* `text` follows the colon of `spec`. */
static enum rc parse_group_size(const char *spec, const char *text, enum topology_kind kind,
                                struct topology *topology, struct fault *why)
{
    uint32_t size = 0;
    size_t i;

    for (i = 0; text[i] >= '0' && text[i] <= '9' && size <= GROUP_MEMBERS_MAX; i++) {
        size = size * 10 + (uint32_t)(text[i] - '0');
    }
    if (i == 0 || text[i] != '\0' || size < 2 || size > GROUP_MEMBERS_MAX) {
        return fault_set(why, RC_PARSE,
                         "topology \"%.40s\", column %zu: the %s must be a number from 2 to %d",
                         spec, (size_t)(text - spec) + 1,
                         kind == TOPOLOGY_GRID ? "side" : "group size", (int)GROUP_MEMBERS_MAX);
    }
    *topology = (struct topology){.kind = kind, .group_size = size};
    return RC_OK;
}

enum rc topology_parse(const char *spec, struct topology *topology, struct fault *why)
{
    CHECK(spec != NULL && topology != NULL);
    if (strcmp(spec, "complete") == 0) {
        *topology = (struct topology){.kind = TOPOLOGY_COMPLETE};
        return RC_OK;
    }
    if (strcmp(spec, "pairs") == 0) {
        *topology = (struct topology){.kind = TOPOLOGY_PAIRS};
        return RC_OK;
    }
    if (strncmp(spec, GROUPS_PREFIX, strlen(GROUPS_PREFIX)) == 0) {
        return parse_group_size(spec, spec + strlen(GROUPS_PREFIX), TOPOLOGY_GROUPS, topology, why);
    }
    if (strncmp(spec, GRID_PREFIX, strlen(GRID_PREFIX)) == 0) {
        return parse_group_size(spec, spec + strlen(GRID_PREFIX), TOPOLOGY_GRID, topology, why);
    }
    return fault_set(why, RC_PARSE,
                     "topology \"%.32s\", column 1: unknown; known are complete, groups:SIZE, "
                     "grid:SIZE, pairs",
                     spec);
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

/* The run of seats [first, first + count) that `place` belongs to. `count` members make as many
 * groups as give the wanted size best; the remainder goes one each to the first groups. No group
 * has fewer than two members while there are two. */
static void group_bounds(size_t members, size_t size, size_t place, size_t *first, size_t *count)
{
    size_t groups = members / size, base, larger;

    /* A remainder too large to be spread one each makes a group of its own. */
    if (groups == 0 || members % size > groups) groups++;
    base = members / groups;
    larger = members % groups;
    if (place < larger * (base + 1)) {
        *count = base + 1;
        *first = place / (base + 1) * (base + 1);
    } else {
        *count = base;
        *first = larger * (base + 1) + (place - larger * (base + 1)) / base * base;
    }
}

/* The largest group size that is asked for, such that a group and its one extra member fit. */
static size_t wanted_size(const struct topology *topology, size_t members, size_t max)
{
    size_t cap = max < GROUP_MEMBERS_MAX ? max : GROUP_MEMBERS_MAX;
    size_t size = topology->kind == TOPOLOGY_COMPLETE ? members
                  : topology->kind == TOPOLOGY_GROUPS ? topology->group_size
                                                      : 2;

    if (members <= cap) return size;
    CHECK(cap >= 3); /* a pair and one more when their number is odd */
    return size < cap ? size : cap - 1;
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
    size_t place = 0, first, count, below_count = 0, above_count = 0;

    if (topology->kind == TOPOLOGY_GRID) {
        while (place < members_count && !peer_id_is_equal(members[place], self)) {
            place++;
        }
        CHECK(place < members_count && max >= 2);
        return grid_group(topology, run_id, round, place, members, members_count, group, max);
    }
    for (size_t i = 0; i < members_count; i++) {
        struct seat seat = {.key = seat_key(run_id, round, members[i]), .id = members[i]};

        if (seat_compare(&seat, &own) < 0) place++;
    }
    CHECK(place < members_count); /* `self` is among the members */
    group_bounds(members_count, wanted_size(topology, members_count, max), place, &first, &count);
    CHECK(count <= max && count <= GROUP_MEMBERS_MAX);
    for (size_t i = 0; i < members_count; i++) {
        struct seat seat = {.key = seat_key(run_id, round, members[i]), .id = members[i]};
        int order = seat_compare(&seat, &own);

        if (order < 0) keep_nearest(below, &below_count, place - first, &seat, false);
        if (order > 0) keep_nearest(above, &above_count, first + count - 1 - place, &seat, true);
    }
    for (size_t i = 0; i < below_count; i++) {
        group[i] = below[i].id;
    }
    group[below_count] = self;
    for (size_t i = 0; i < above_count; i++) {
        group[below_count + 1 + i] = above[i].id;
    }
    return below_count + 1 + above_count;
}

bool topology_partner(struct peer_id self, const struct peer_id *members, size_t members_count,
                      struct rng *rng, struct peer_id *partner)
{
    size_t others = 0;

    for (size_t i = 0; i < members_count; i++) {
        if (peer_id_is_equal(members[i], self)) continue;
        others++;
        if (rng_below(rng, others) == 0) *partner = members[i];
    }
    return others > 0;
}

/* gather: see gather.h. */
#include "averaging/aggregate/gather.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/floats.h"
#include "base/mem.h"
#include "base/norm.h"

#include <math.h>
#include <string.h>
#include <sys/queue.h>

struct gathered {
    SLIST_ENTRY(gathered) next;
    struct gather_member member;
    const float *values; /* borrowed, or what follows */
    float copy[];
};

/* By rising id. */
SLIST_HEAD(gathered_list, gathered);

struct gather {
    struct aggregate aggregate;
    uint32_t chunks;
    size_t values;
    struct gathered_list *lists; /* [chunks]; that of neighbours' planes is the first */
    struct gathered *slots[GATHER_SLOTS_MAX];
    struct gathered_list spare; /* planes of rounds before, for the next: new memory is slow */
    float radius;               /* that the edges taken in this round go by */
};

struct gather *gather_create(const struct aggregate *aggregate, uint32_t chunks, size_t values)
{
    struct gather *gather = mem_alloc(sizeof *gather);

    if (gather == NULL) return NULL;
    CHECK(aggregate->ops != NULL && chunks > 0);
    gather->aggregate = *aggregate;
    gather->chunks = chunks;
    gather->values = values;
    gather->lists = mem_array(chunks, sizeof *gather->lists);
    if (gather->lists != NULL) return gather;
    mem_free(gather);
    return NULL;
}

static void clear(struct gather *gather, struct gathered_list *list)
{
    struct gathered *item;

    while ((item = SLIST_FIRST(list)) != NULL) {
        SLIST_REMOVE_HEAD(list, next);
        if (list != &gather->spare && gather->values > 0 && item->values == item->copy) {
            SLIST_INSERT_HEAD(&gather->spare, item, next);
        } else {
            mem_free(item);
        }
    }
}

void gather_begin(struct gather *gather)
{
    for (uint32_t i = 0; i < gather->chunks; i++) {
        clear(gather, &gather->lists[i]);
    }
    gather->radius = 0;
}

void gather_destroy(struct gather *gather)
{
    if (gather == NULL) return;
    gather_begin(gather);
    clear(gather, &gather->spare);
    for (uint32_t i = 0; i < GATHER_SLOTS_MAX; i++) {
        mem_free(gather->slots[i]);
    }
    mem_free(gather->lists);
    mem_free(gather);
}

/* ---- rows ---- */

/* RC_OK: `item` is among them. */
static enum rc insert(struct gathered_list *list, struct gathered *item)
{
    struct gathered *at, *before = NULL;
    uint32_t count = 0;

    SLIST_FOREACH(at, list, next)
    {
        int order = peer_id_compare(at->member.id, item->member.id);

        if (order == 0) return RC_REPLAY;
        if (order < 0) before = at;
        count++;
    }
    if (count == AGGREGATE_ROWS_MAX) return RC_LIMIT;
    if (before == NULL) {
        SLIST_INSERT_HEAD(list, item, next);
    } else {
        SLIST_INSERT_AFTER(before, item, next);
    }
    return RC_OK;
}

/* By what clip leaves of each: fewer than three, or a rule that is no defence. */
static uint32_t combine_clipped(const struct aggregate *aggregate, struct aggregate_rows *rows,
                                const struct gathered_list *list, float *out)
{
    const struct gathered *item;
    uint32_t k = 0, clipped = 0;

    SLIST_FOREACH(item, list, next)
    {
        float share = item->member.share;

        clipped += share < 1;
        if (share <= 0) continue;
        rows->values[k] = item->values;
        rows->weights[k++] = share * item->member.weight;
    }
    rows->members = k;
    if (k == 0) return clipped;
    if (aggregate->ops->is_defenceless) {
        (void)aggregate->ops->combine(rows, aggregate->faults, out);
    } else {
        aggregate_mean(rows, out);
    }
    return clipped;
}

static enum rc combine(const struct gather *gather, const struct gathered_list *list,
                       struct aggregate_rows *rows, float *out, struct gather_count *done)
{
    const struct aggregate *aggregate = &gather->aggregate;
    const struct gathered *item;

    SLIST_FOREACH(item, list, next)
    {
        rows->values[rows->members] = item->values;
        rows->weights[rows->members++] = item->member.weight;
    }
    if (rows->members == 0) return RC_NOT_FOUND;
    done->judged = rows->members;
    done->reduced = rows->members < AGGREGATE_ROWS_LEAST || aggregate->ops->is_defenceless
                        ? combine_clipped(aggregate, rows, list, out)
                        : aggregate->ops->combine(rows, aggregate->faults, out);
    if (rows->members == 0) return RC_NOT_FOUND;
    return floats_are_finite(out, rows->count) ? RC_OK : RC_NONFINITE;
}

/* ---- groups ---- */

enum rc gather_add(struct gather *gather, uint32_t chunk, const struct gather_member *member,
                   const float *values, size_t count, bool stays)
{
    struct gathered *item;
    enum rc rc;

    CHECK(chunk < gather->chunks && member->weight > 0);
    item = mem_raw(sizeof *item + (stays ? 0 : count * sizeof(float)));
    if (item == NULL) return RC_NOMEM;
    item->member = *member;
    item->values = values;
    if (!stays) item->values = memcpy(item->copy, values, count * sizeof(float));
    rc = insert(&gather->lists[chunk], item);
    if (rc != RC_OK) mem_free(item);
    return rc;
}

enum rc gather_reduce(struct gather *gather, uint32_t chunk, const float *centre, float radius,
                      size_t count, float *out, struct gather_count *done)
{
    struct aggregate_rows rows = {.count = count, .centre = centre, .radius = radius};
    enum rc rc;

    CHECK(chunk < gather->chunks);
    rc = combine(gather, &gather->lists[chunk], &rows, out, done);
    clear(gather, &gather->lists[chunk]);
    return rc;
}

/* ---- neighbours ---- */

static struct gathered *plane_get(struct gather *gather)
{
    struct gathered *item = SLIST_FIRST(&gather->spare);

    if (item == NULL) return mem_raw(sizeof *item + gather->values * sizeof(float));
    SLIST_REMOVE_HEAD(&gather->spare, next);
    return item;
}

enum rc gather_stage(struct gather *gather, uint32_t slot, size_t first, const float *own,
                     const float *values, size_t count, float *squared)
{
    struct gathered *item;

    CHECK(slot < GATHER_SLOTS_MAX);
    if (first > gather->values || count > gather->values - first) return RC_SHAPE;
    if (gather->slots[slot] == NULL) gather->slots[slot] = plane_get(gather);
    item = gather->slots[slot];
    if (item == NULL) return RC_NOMEM;
    memcpy(item->copy + first, values, count * sizeof(float));
    *squared = (float)norm_squared_apart(values, own, count);
    return RC_OK;
}

/* A neighbour that is there twice, or one too many, is none: the exchange has each once. */
void gather_take(struct gather *gather, uint32_t slot, const struct gather_member *member,
                 float radius)
{
    struct gathered *item;

    CHECK(slot < GATHER_SLOTS_MAX);
    item = gather->slots[slot];
    if (item == NULL) return; /* a plane without values */
    item->member = *member;
    item->values = item->copy;
    gather->radius = radius;
    if (insert(&gather->lists[0], item) == RC_OK) gather->slots[slot] = NULL;
}

FOR_EACH_CPU(static, void, pull, (float scale, const float *own, size_t count, float *to),
             (scale, own, count, to))
{
    for (size_t i = 0; i < count; i++) {
        to[i] = scale * (to[i] - own[i]);
    }
}

/* The sum of the weights of neighbours' edges, on the scale of a mean of all alike. */
static float scale_of(const struct gathered_list *list)
{
    const struct gathered *item;
    float sum = 0, neighbours = 0;

    SLIST_FOREACH(item, list, next)
    {
        sum += item->member.weight;
        neighbours++;
    }
    return neighbours == 0 ? 0 : fminf(sum * (neighbours + 1) / neighbours, 1);
}

void gather_settle(struct gather *gather, struct peer_id self, const float *own, float *difference,
                   struct gather_count *done)
{
    struct aggregate_rows rows = {.count = gather->values, .centre = own, .radius = gather->radius};
    struct gathered_list *list = &gather->lists[0];
    const struct gather_member us = {.id = self, .weight = 1, .share = 1};
    float scale = scale_of(list);
    struct gathered *item;
    enum rc rc = scale > 0 ? RC_OK : RC_NOT_FOUND;

    SLIST_FOREACH(item, list, next) item->member.weight = 1;
    if (rc == RC_OK) rc = gather_add(gather, 0, &us, own, gather->values, true);
    if (rc == RC_OK) rc = combine(gather, list, &rows, difference, done);
    clear(gather, list);
    if (rc == RC_OK) pull(scale, own, gather->values, difference);
    if (rc == RC_OK && floats_are_finite(difference, gather->values)) return;
    memset(difference, 0, gather->values * sizeof(float));
}

/* buckets: how the sections of a model are cut for a download. Pure. */
#ifndef GRAPEVINE_PEER_DOWNLOAD_BUCKETS_H
#define GRAPEVINE_PEER_DOWNLOAD_BUCKETS_H

#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a method that keeps something between rounds has: planes of SECTION_MIXED's size, numbered
 * beside enum section. */
enum { SECTION_RULE = 6, SECTION_RULE_SECOND = 7 };

struct bucket_map {
    uint32_t sections;
    uint32_t first[STATE_SECTIONS_MAX + 1]; /* bucket of each section; the last entry: how many */
    size_t values[STATE_SECTIONS_MAX];
};

/* One bucket: `count` values of section number `section` of the map from `offset` on. */
struct bucket_span {
    uint32_t section;
    size_t offset, count;
};

/** False if there is nothing, or more than CHUNKS_MAX buckets of it, or an empty section. */
bool bucket_map_init(struct bucket_map *map, const size_t *values, uint32_t sections);
static inline uint32_t bucket_map_count(const struct bucket_map *map)
{
    return map->first[map->sections];
}
/** `bucket` below bucket_map_count(). */
struct bucket_span bucket_map_span(const struct bucket_map *map, uint32_t bucket);

/** sum[i] = base[i] + change[i], rounded alike wherever it is computed; `sum` may be either. */
void bucket_add(const float *base, const float *change, float *sum, size_t count);
/** The bit of an enum section in message_state_req's `want`; 0: it never travels. */
uint32_t bucket_section_bit(uint32_t section);

#endif

/* Sections one after another, each in buckets of CHUNK_VALUES values, its last one shorter. */
#include "peer/download/buckets.h"

#include "base/check.h"
#include "replica/plane/plane.h"

_Static_assert((int)SECTION_COUNT <= (int)SECTION_RULE &&
                   (int)SECTION_RULE_SECOND < (int)STATE_SECTIONS_MAX,
               "each kind of section has a number of its own");

/* Values travel as the bytes of little-endian IEEE floats. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "big-endian machines are not supported");

bool bucket_map_init(struct bucket_map *map, const size_t *values, uint32_t sections)
{
    struct bucket_map made = {.sections = sections};

    if (sections == 0 || sections > STATE_SECTIONS_MAX) return false;
    for (uint32_t i = 0; i < sections; i++) {
        size_t buckets = values[i] / CHUNK_VALUES + (values[i] % CHUNK_VALUES != 0);

        if (buckets == 0 || buckets > CHUNKS_MAX - made.first[i]) return false;
        made.values[i] = values[i];
        made.first[i + 1] = made.first[i] + (uint32_t)buckets;
    }
    *map = made;
    return true;
}

struct bucket_span bucket_map_span(const struct bucket_map *map, uint32_t bucket)
{
    struct bucket_span span = {.count = CHUNK_VALUES};

    CHECK(bucket < bucket_map_count(map));
    while (bucket >= map->first[span.section + 1]) {
        span.section++;
    }
    span.offset = (size_t)(bucket - map->first[span.section]) * CHUNK_VALUES;
    if (map->values[span.section] - span.offset < span.count) {
        span.count = map->values[span.section] - span.offset;
    }
    return span;
}

void bucket_add(const float *base, const float *change, float *sum, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum[i] = base[i] + change[i];
    }
}

uint32_t bucket_section_bit(uint32_t section)
{
    switch (section) {
    case SECTION_PARAMETERS:
        return 1;
    case SECTION_BUFFERS:
        return 2;
    case SECTION_MOMENTS:
        return 4;
    case SECTION_RULE:
        return 8;
    case SECTION_RULE_SECOND:
        return 16;
    case SECTION_INPUT:
        return 32;
    default:
        return 0;
    }
}

/* bytes: little-endian numbers in and out of byte strings, the byte order of every wire and file.
 */
#ifndef GRAPEVINE_BASE_BYTES_H
#define GRAPEVINE_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

static inline uint16_t load_le16(const void *from)
{
    const uint8_t *b = from;
    return (uint16_t)(b[0] | (unsigned)b[1] << 8);
}

static inline uint32_t load_le32(const void *from)
{
    const uint8_t *b = from;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t load_le64(const void *from)
{
    return (uint64_t)load_le32(from) | (uint64_t)load_le32((const uint8_t *)from + 4) << 32;
}

static inline void store_le16(void *to, uint16_t value)
{
    uint8_t *b = to;
    b[0] = (uint8_t)value;
    b[1] = (uint8_t)(value >> 8);
}

static inline void store_le32(void *to, uint32_t value)
{
    uint8_t *b = to;
    for (int i = 0; i < 4; i++) {
        b[i] = (uint8_t)(value >> 8 * i);
    }
}

static inline void store_le64(void *to, uint64_t value)
{
    uint8_t *b = to;
    for (int i = 0; i < 8; i++) {
        b[i] = (uint8_t)(value >> 8 * i);
    }
}

#endif

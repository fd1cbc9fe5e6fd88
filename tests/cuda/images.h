/*
 * images: random images of any layout for the parity tests: one pixel, odd channels, blocks of all
 * kinds, and memory that begins on 16 bytes or just behind.
 */
#ifndef GRAPEVINE_TESTS_CUDA_IMAGES_H
#define GRAPEVINE_TESTS_CUDA_IMAGES_H

#include "tests/cuda/parity.h"

#include "base/check.h"

static inline uint32_t between(struct parity *p, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(&p->rng, high - low + 1);
}

/* Plain, channels-last, or any block that divides the channels. */
static inline uint32_t random_block(struct parity *p, uint32_t channels)
{
    uint32_t block = channels, kind = between(p, 0, 9);

    if (kind < 4) return 1;
    if (kind < 8) return channels;
    do {
        block = between(p, 1, channels);
    } while (channels % block != 0);
    return block;
}

static inline struct image_shape random_image(struct parity *p)
{
    static const uint32_t channels[] = {1, 3, 5, 8, 16, 24, 33, 40, 64, 72, 300};
    struct image_shape shape = {.channels = channels[rng_below(&p->rng, ARRAY_COUNT(channels))]};
    uint32_t kind = between(p, 0, 5);

    shape.height = between(p, 1, 9);
    shape.width = between(p, 1, 11);
    if (kind == 0) shape.height = shape.width = 1;
    if (kind == 1) shape.height = shape.width = 8;
    if (kind == 2) shape.height = shape.width = 4;
    shape.block = random_block(p, shape.channels);
    return shape;
}

/* Images of which several blocks of threads get a share. */
static const struct image_shape images_large[] = {
    {64, 16, 24, 64}, {3, 48, 40, 1}, {24, 20, 20, 8}, {5, 31, 29, 5}};

/* How many values behind an aligned address a case has its activations. */
static inline size_t random_offset(struct parity *p)
{
    return between(p, 0, 2) == 0 ? 1 : 0;
}

/* Room for n activations, poisoned. */
static inline float *image_room(struct parity *p, size_t offset, size_t n)
{
    return backend_at(p->device, parity_room(p, n + offset), offset);
}

static inline float *image_put(struct parity *p, size_t offset, const float *from, size_t n)
{
    float *to = image_room(p, offset, n);

    parity_ok(p, p->device->ops->to_activations(p->device, parity_put_values(p, from, n), to, n));
    return to;
}

static inline void *image_get(struct parity *p, const void *from, size_t bytes)
{
    void *to = parity_host(p, bytes);

    parity_ok(p, p->device->ops->download(p->device, to, from, bytes));
    return to;
}

/* Two blocks of the device hold the same bits. */
static inline void image_check_bits(struct parity *p, uint64_t seed, const void *a, const void *b,
                                    size_t bytes)
{
    p->checks++;
    check_seed(seed, memcmp(image_get(p, a, bytes), image_get(p, b, bytes), bytes) == 0);
}

/* Between the cases of a test: all memory goes, the backends stay. */
static inline void image_clear(struct parity *p)
{
    for (uint32_t i = 0; i < p->blocks_count; i++) {
        p->device->ops->free(p->device, p->blocks[i]);
    }
    for (uint32_t i = 0; i < p->kept_count; i++) {
        free(p->kept[i]);
    }
    p->blocks_count = p->kept_count = 0;
}

static inline void image_check_host(enum rc rc)
{
    assert_int_equal(rc, RC_OK);
}

#endif

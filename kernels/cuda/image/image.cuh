/*
 * image: where the values of images lie, whatever their blocks, for kernels with a thread for each
 * value (or for some channels side by side) of one side. Indices have 32 bits: a launch gets as
 * many images as that allows, and divisions become multiplications (Granlund, Montgomery 1994,
 * "Division by invariant integers using multiplication"), exact below 2^31.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_IMAGE_IMAGE_CUH
#define GRAPEVINE_KERNELS_CUDA_IMAGE_IMAGE_CUH

#include "kernels/cuda/packed.cuh"

struct divisor {
    uint32_t by, factor, shift;
};

static inline struct divisor divisor_of(uint32_t by)
{
    struct divisor d = {by, 0, 0};

    CHECK(by > 0 && by <= INT32_MAX);
    while ((1ULL << d.shift) < by) {
        d.shift++;
    }
    d.factor = static_cast<uint32_t>((((1ULL << d.shift) - by) << 32) / by + 1);
    return d;
}

__device__ static inline uint32_t quotient(uint32_t n, struct divisor d)
{
    uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(n) * d.factor) >> 32);

    return (high + n) >> d.shift;
}

/* n becomes the quotient; the remainder is the result. */
__device__ static inline uint32_t divide(uint32_t *n, struct divisor d)
{
    uint32_t before = *n;

    *n = quotient(before, d);
    return before - *n * d.by;
}

struct image_layout {
    uint32_t values; /* of an image */
    uint32_t pixels;
    struct divisor block, groups, height, width;
};

struct image_position {
    uint32_t image, channel, row, column;
};

static inline struct image_layout image_layout_of(struct image_shape shape)
{
    struct image_layout layout;

    CHECK(image_values(shape) <= INT32_MAX && shape.channels % shape.block == 0);
    layout.values = static_cast<uint32_t>(image_values(shape));
    layout.pixels = shape.height * shape.width;
    layout.block = divisor_of(shape.block);
    layout.groups = divisor_of(shape.channels / shape.block);
    layout.height = divisor_of(shape.height);
    layout.width = divisor_of(shape.width);
    return layout;
}

/* Whose value is at index `at` of several images. */
__device__ static inline struct image_position image_position_of(const struct image_layout *l,
                                                                 uint32_t at)
{
    struct image_position position;

    position.channel = divide(&at, l->block);
    position.column = divide(&at, l->width);
    position.row = divide(&at, l->height);
    position.channel += divide(&at, l->groups) * l->block.by;
    position.image = at;
    return position;
}

/* Index of the first pixel of a channel. */
__device__ static inline uint32_t image_channel_at(const struct image_layout *l, uint32_t image,
                                                   uint32_t channel)
{
    uint32_t group = channel, lane = divide(&group, l->block);

    return image * l->values + group * l->pixels * l->block.by + lane;
}

/* And from there to another. */
__device__ static inline uint32_t image_pixel_at(const struct image_layout *l, uint32_t row,
                                                 uint32_t column)
{
    return (row * l->width.by + column) * l->block.by;
}

/* Images that one launch may take, the larger side having `values` each. */
static inline uint32_t images_per_launch(size_t values)
{
    CHECK(values > 0 && values <= INT32_MAX);
    return static_cast<uint32_t>(INT32_MAX / values);
}

static inline unsigned blocks_of_items(size_t items)
{
    return static_cast<unsigned>((items + THREADS - 1) / THREADS);
}

#define THREAD_ITEM (blockIdx.x * static_cast<uint32_t>(THREADS) + threadIdx.x)

#endif

/* vec: a run of float32 numbers that knows the device it lives on; cvec is its read-only twin. */
#ifndef GRAPEVINE_KERNELS_VEC_H
#define GRAPEVINE_KERNELS_VEC_H

#include <stddef.h>

struct backend;

struct vec {
    struct backend *on;
    float *data;
    size_t count;
};

struct cvec {
    struct backend *on;
    const float *data;
    size_t count;
};

static inline struct cvec cvec_of(struct vec v)
{
    return (struct cvec){v.on, v.data, v.count};
}

#endif

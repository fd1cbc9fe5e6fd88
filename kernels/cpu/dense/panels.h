/*
 * panels: products C = A B whose factor B was rewritten ("packed") once into the order in which the
 * register tiles read it: panels of columns, in each all columns of a row side by side. It pays
 * where B serves many products (weights in a training step), and where a library would pack for
 * little arithmetic. Any thread; what a part computes does not depend on the cut.
 */
#ifndef GRAPEVINE_KERNELS_CPU_DENSE_PANELS_H
#define GRAPEVINE_KERNELS_CPU_DENSE_PANELS_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>

/* Who multiplies. Each machine has all forms up to panels_best_form(); those of tiles agree to the
 * bit. */
enum panels_form { PANELS_PLAIN, PANELS_AVX2, PANELS_AVX512, PANELS_FORMS };

struct panels {
    enum panels_form form;
    size_t inner, columns; /* B is [inner][columns] */
    size_t width;          /* columns of a panel; what the last one has too many is not defined */
    float *values;         /* [panels][inner][width] */
};

struct panels_source {
    const float *b;
    size_t stride;
    bool is_transposed; /* stored as [columns][inner] */
    size_t rotation;    /* not transposed: row k of B is the stored row (k + rotation) % inner */
};

struct panels_product {
    size_t rows;
    const float *a;
    size_t a_stride;
    bool is_a_transposed; /* stored as [inner][rows] */
    float *c;
    size_t c_stride;
    bool adds;         /* C += A B */
    const float *bias; /* [columns], the sums start from it; NULL: none, and none with `adds` */
    bool with_relu;    /* max(0, .) of the sums; NaN stays */
};

enum panels_form panels_best_form(void);
/** Values of memory that a packed B takes. */
size_t panels_values(enum panels_form form, size_t inner, size_t columns);
/** In memory of the caller, of panels_values(), on a line of the cache; no deinit is due. */
struct panels panels_in(enum panels_form form, size_t inner, size_t columns, float *values);
/** RC_NOMEM. */
MUST_USE enum rc panels_init(struct panels *panels, enum panels_form form, size_t inner,
                             size_t columns);
/** Fine on what is all zeros, too. */
void panels_deinit(struct panels *panels);

size_t panels_count(const struct panels *panels);
/** Panels [from, to) of B. */
void panels_pack(const struct panels *panels, const struct panels_source *source, size_t from,
                 size_t to);
void panels_pack_all(const struct panels *panels, const struct panels_source *source);
/** The columns of panels [from, to) of C. Rows may be split among threads as well. */
void panels_multiply(const struct panels *panels, const struct panels_product *product, size_t from,
                     size_t to);
void panels_multiply_all(const struct panels *panels, const struct panels_product *product);

/** Values of scratch memory for the next. */
size_t panels_once_values(enum panels_form form, size_t inner, size_t columns);
/** A product with a B that serves no other, packed block by block. `b` without rotation. Any cut
 *  into rows, and into columns, gives the same bits, those of panels_multiply(). */
void panels_multiply_once(enum panels_form form, const struct panels_source *b, size_t inner,
                          size_t columns, const struct panels_product *product, float *scratch);

#endif

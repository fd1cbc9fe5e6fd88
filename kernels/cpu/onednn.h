/*
 * What the files that call oneDNN share: its engine, return codes, rewriting of layouts, and what
 * its versions 2 and 3 say differently. Version 3 names what callers hold; onednn_v2.c and
 * onednn_v3.c do the rest, and only the one for the installed version has anything in it.
 */
#ifndef GRAPEVINE_KERNELS_CPU_ONEDNN_H
#define GRAPEVINE_KERNELS_CPU_ONEDNN_H

#ifdef GRAPEVINE_HAS_DNNL

#include "kernels/cpu/internal.h"

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR == 2
typedef const dnnl_memory_desc_t *const_dnnl_memory_desc_t; /* it has no name for it */
#endif

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* Done to each value of a result before it is written. */
enum onednn_after { ONEDNN_NOTHING, ONEDNN_RELU, ONEDNN_ADD /* what was there */ };

/* One direction of a convolution. Of a gradient: the form of the gradient. */
struct onednn_convolution {
    dnnl_prop_kind_t direction;
    dnnl_alg_kind_t algorithm;
    const_dnnl_memory_desc_t x, weights, y;
    const_dnnl_memory_desc_t bias; /* NULL: none */
    dnnl_dims_t strides, padding;
    dnnl_dims_t gaps;              /* of dilation, counted from 0 */
    dnnl_primitive_desc_t forward; /* backward: the forward direction, as described */
};

/* How a form cuts a matrix: `count` blocks inside one another, the outermost first, of
 * sizes[i] values along dimension axes[i]. */
struct onednn_blocks {
    int count;
    const dnnl_dim_t *dims, *padded, *strides, *sizes, *axes;
};

/** RC_UNSUPPORTED: the library has no such thing. */
enum rc onednn_rc(dnnl_status_t status);
/** Shape, type and layout of values; dnnl_format_tag_any leaves the layout to the library. */
MUST_USE enum rc onednn_form_create(int count, const dnnl_dims_t dims, dnnl_data_type_t type,
                                    dnnl_format_tag_t tag, const_dnnl_memory_desc_t *form);
/** Not for forms that a primitive was asked for, which are its own. NULL is fine. */
void onednn_form_destroy(const_dnnl_memory_desc_t form);
/** False: the form is none of blocks. Its arrays last as long as the form. */
bool onednn_form_blocks(const_dnnl_memory_desc_t form, struct onednn_blocks *blocks);
/** With scratch memory from us. */
MUST_USE enum rc onednn_attributes_create(enum onednn_after after,
                                          dnnl_primitive_attr_t *attributes);
MUST_USE enum rc onednn_after_append(enum onednn_after after, dnnl_post_ops_t list);
/** The library's choice for a convolution, and for C = A B. */
MUST_USE enum rc onednn_convolution_describe(struct onednn *onednn,
                                             const struct onednn_convolution *convolution,
                                             dnnl_primitive_attr_t attributes,
                                             dnnl_primitive_desc_t *description);
MUST_USE enum rc onednn_matmul_describe(struct onednn *onednn,
                                        const const_dnnl_memory_desc_t forms[3],
                                        dnnl_primitive_attr_t attributes,
                                        dnnl_primitive_desc_t *description);
/** A primitive that rewrites values of one form (layout, type) in another, or adds them there. */
MUST_USE enum rc onednn_reorder_create(struct onednn *onednn, const_dnnl_memory_desc_t from,
                                       const_dnnl_memory_desc_t to, bool adds,
                                       dnnl_primitive_t *reorder);
MUST_USE enum rc onednn_run(struct onednn *onednn, dnnl_primitive_t primitive,
                            const dnnl_exec_arg_t *args, int count);
/** Put `values` under a memory object; the library only reads what it is told to read. */
void onednn_point(dnnl_memory_t memory, const void *values);

#endif
#endif

/* What the files that call oneDNN 2.x share: its engine, return codes, rewriting of layouts. */
#ifndef GRAPEVINE_KERNELS_CPU_ONEDNN_H
#define GRAPEVINE_KERNELS_CPU_ONEDNN_H

#ifdef GRAPEVINE_HAS_DNNL

#include "kernels/cpu/internal.h"

#include <oneapi/dnnl/dnnl.h>

_Static_assert(DNNL_VERSION_MAJOR == 2, "the 3.x interface has no operation descriptors");

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/** RC_UNSUPPORTED: the library has no such thing. */
enum rc onednn_rc(dnnl_status_t status);
/** Relu after the sum, and scratch memory from us. */
MUST_USE enum rc onednn_attributes_create(bool with_relu, dnnl_primitive_attr_t *attributes);
/** A primitive that rewrites values of one form (layout, type) in another, or adds them there. */
MUST_USE enum rc onednn_reorder_create(struct onednn *onednn, const dnnl_memory_desc_t *from,
                                       const dnnl_memory_desc_t *to, bool adds,
                                       dnnl_primitive_t *reorder);
MUST_USE enum rc onednn_run(struct onednn *onednn, dnnl_primitive_t primitive,
                            const dnnl_exec_arg_t *args, int count);
/** Put `values` under a memory object; the library only reads what it is told to read. */
void onednn_point(dnnl_memory_t memory, const void *values);

#endif
#endif

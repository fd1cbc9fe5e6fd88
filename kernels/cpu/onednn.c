/*
 * oneDNN: its engine and stream, sgemm, and the small change of calling it. Every call waits
 * for its end, so the library is as synchronous as a C function. Scratch memory comes from us: one
 * buffer of the backend, shared by all primitives.
 */
#include "kernels/cpu/onednn.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/internal.h"

#ifndef GRAPEVINE_HAS_DNNL

struct onednn *onednn_create(void)
{
    return NULL;
}

void onednn_destroy(struct onednn *onednn)
{
    (void)onednn;
}

enum rc onednn_gemm(const struct gemm *gemm)
{
    (void)gemm;
    return RC_UNSUPPORTED;
}

const char *onednn_version(void)
{
    return NULL;
}

#else

#define TEXT_OF(x)            #x
#define VERSION_TEXT(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

struct onednn *onednn_create(void)
{
    struct onednn *onednn = mem_alloc(sizeof(*onednn));

    if (onednn == NULL) return NULL;
    if (dnnl_engine_create(&onednn->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
        onednn_destroy(onednn);
        return NULL;
    }
    return onednn;
}

void onednn_destroy(struct onednn *onednn)
{
    if (onednn == NULL) return;
    if (onednn->stream != NULL) dnnl_stream_destroy(onednn->stream);
    if (onednn->engine != NULL) dnnl_engine_destroy(onednn->engine);
    mem_free(onednn);
}

const char *onednn_version(void)
{
    return VERSION_TEXT(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
}

enum rc onednn_rc(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success:
        return RC_OK;
    case dnnl_out_of_memory:
        return RC_NOMEM;
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return RC_UNSUPPORTED;
    default:
        return RC_DEVICE;
    }
}

enum rc onednn_gemm(const struct gemm *g)
{
#if defined(__x86_64__)
    return onednn_rc(dnnl_sgemm(g->is_a_transposed ? 'T' : 'N', g->is_b_transposed ? 'T' : 'N',
                                (dnnl_dim_t)g->rows, (dnnl_dim_t)g->columns, (dnnl_dim_t)g->inner,
                                g->alpha, g->a, (dnnl_dim_t)g->a_stride, g->b,
                                (dnnl_dim_t)g->b_stride, g->beta, g->c, (dnnl_dim_t)g->c_stride));
#else
    (void)g;
    return RC_UNSUPPORTED; /* it is a plain loop there */
#endif
}

enum rc onednn_attributes_create(enum onednn_after after, dnnl_primitive_attr_t *attributes)
{
    dnnl_post_ops_t list = NULL;
    enum rc rc = onednn_rc(dnnl_primitive_attr_create(attributes));

    if (rc != RC_OK) return rc;
    rc = onednn_rc(dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user));
    if (rc != RC_OK || after == ONEDNN_NOTHING) return rc;
    rc = onednn_rc(dnnl_post_ops_create(&list));
    if (rc == RC_OK) rc = onednn_after_append(after, list);
    if (rc == RC_OK) rc = onednn_rc(dnnl_primitive_attr_set_post_ops(*attributes, list));
    if (list != NULL) dnnl_post_ops_destroy(list);
    return rc;
}

enum rc onednn_reorder_create(struct onednn *onednn, const_dnnl_memory_desc_t from,
                              const_dnnl_memory_desc_t to, bool adds, dnnl_primitive_t *reorder)
{
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t description = NULL;
    enum rc rc = onednn_attributes_create(adds ? ONEDNN_ADD : ONEDNN_NOTHING, &attributes);

    if (rc == RC_OK) { /* it needs little, and nobody here counts it */
        rc = onednn_rc(
            dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_library));
    }
    if (rc == RC_OK) {
        rc = onednn_rc(dnnl_reorder_primitive_desc_create(&description, from, onednn->engine, to,
                                                          onednn->engine, attributes));
    }
    if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
    if (rc != RC_OK) return rc;
    rc = onednn_rc(dnnl_primitive_create(reorder, description));
    dnnl_primitive_desc_destroy(description);
    return rc;
}

enum rc onednn_run(struct onednn *onednn, dnnl_primitive_t primitive, const dnnl_exec_arg_t *args,
                   int count)
{
    dnnl_status_t status = dnnl_primitive_execute(primitive, onednn->stream, count, args);

    if (status == dnnl_success) status = dnnl_stream_wait(onednn->stream);
    return status == dnnl_success ? RC_OK : RC_DEVICE;
}

void onednn_point(dnnl_memory_t memory, const void *values)
{
    CHECK(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)values) == dnnl_success);
}

#endif

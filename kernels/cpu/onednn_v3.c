/* oneDNN 3: a form is a handle, an operation is described and chosen in one. See onednn.h. */
#include "kernels/cpu/onednn.h"

#ifdef GRAPEVINE_HAS_DNNL
#if DNNL_VERSION_MAJOR == 3

#include "base/check.h"

enum rc onednn_form_create(int count, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag, const_dnnl_memory_desc_t *form)
{
    dnnl_memory_desc_t made = NULL;
    enum rc rc = onednn_rc(dnnl_memory_desc_create_with_tag(&made, count, dims, type, tag));

    if (rc == RC_OK) *form = made;
    return rc;
}

void onednn_form_destroy(const_dnnl_memory_desc_t form)
{
    if (form != NULL) (void)dnnl_memory_desc_destroy((dnnl_memory_desc_t)(uintptr_t)form);
}

bool onednn_form_blocks(const_dnnl_memory_desc_t form, struct onednn_blocks *blocks)
{
    const struct {
        dnnl_query_t what;
        const dnnl_dim_t **to;
    } arrays[] = {{dnnl_query_dims, &blocks->dims},
                  {dnnl_query_padded_dims, &blocks->padded},
                  {dnnl_query_strides, &blocks->strides},
                  {dnnl_query_inner_blks, &blocks->sizes},
                  {dnnl_query_inner_idxs, &blocks->axes}};
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    int32_t count = 0;

    if (dnnl_memory_desc_query(form, dnnl_query_format_kind, &kind) != dnnl_success ||
        kind != dnnl_blocked ||
        dnnl_memory_desc_query(form, dnnl_query_inner_nblks_s32, &count) != dnnl_success) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_COUNT(arrays); i++) {
        const dnnl_dims_t *values = NULL;
        if (dnnl_memory_desc_query(form, arrays[i].what, &values) != dnnl_success) return false;
        *arrays[i].to = *values;
    }
    blocks->count = count;
    return true;
}

enum rc onednn_after_append(enum onednn_after after, dnnl_post_ops_t list)
{
    if (after == ONEDNN_ADD) {
        return onednn_rc(dnnl_post_ops_append_sum(list, 1.0F, 0, dnnl_data_type_undef));
    }
    return onednn_rc(dnnl_post_ops_append_eltwise(list, dnnl_eltwise_relu, 0.0F, 0.0F));
}

enum rc onednn_convolution_describe(struct onednn *onednn, const struct onednn_convolution *c,
                                    dnnl_primitive_attr_t attributes,
                                    dnnl_primitive_desc_t *description)
{
    if (c->direction == dnnl_backward_data) {
        return onednn_rc(dnnl_convolution_backward_data_primitive_desc_create(
            description, onednn->engine, c->algorithm, c->x, c->weights, c->y, c->strides, c->gaps,
            c->padding, c->padding, c->forward, attributes));
    }
    if (c->direction == dnnl_backward_weights) {
        return onednn_rc(dnnl_convolution_backward_weights_primitive_desc_create(
            description, onednn->engine, c->algorithm, c->x, c->weights, c->bias, c->y, c->strides,
            c->gaps, c->padding, c->padding, c->forward, attributes));
    }
    return onednn_rc(dnnl_convolution_forward_primitive_desc_create(
        description, onednn->engine, c->direction, c->algorithm, c->x, c->weights, c->bias, c->y,
        c->strides, c->gaps, c->padding, c->padding, attributes));
}

enum rc onednn_matmul_describe(struct onednn *onednn, const const_dnnl_memory_desc_t forms[3],
                               dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *description)
{
    return onednn_rc(dnnl_matmul_primitive_desc_create(description, onednn->engine, forms[0],
                                                       forms[1], NULL, forms[2], attributes));
}

#endif
#endif

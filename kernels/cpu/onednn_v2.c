/* oneDNN 2: a form is a value, an operation is described before it is chosen. See onednn.h. */
#include "kernels/cpu/onednn.h"

#ifdef GRAPEVINE_HAS_DNNL
#if DNNL_VERSION_MAJOR == 2

#include "base/mem.h"

enum rc onednn_form_create(int count, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag, const_dnnl_memory_desc_t *form)
{
    dnnl_memory_desc_t *made = mem_alloc(sizeof(*made));
    enum rc rc;

    if (made == NULL) return RC_NOMEM;
    rc = onednn_rc(dnnl_memory_desc_init_by_tag(made, count, dims, type, tag));
    if (rc == RC_OK) {
        *form = made;
    } else {
        mem_free(made);
    }
    return rc;
}

void onednn_form_destroy(const_dnnl_memory_desc_t form)
{
    mem_free((void *)(uintptr_t)form);
}

bool onednn_form_blocks(const_dnnl_memory_desc_t form, struct onednn_blocks *blocks)
{
    const dnnl_blocking_desc_t *own = &form->format_desc.blocking;

    if (form->format_kind != dnnl_blocked) return false;
    *blocks = (struct onednn_blocks){own->inner_nblks, form->dims,      form->padded_dims,
                                     own->strides,     own->inner_blks, own->inner_idxs};
    return true;
}

enum rc onednn_after_append(enum onednn_after after, dnnl_post_ops_t list)
{
    if (after == ONEDNN_ADD) return onednn_rc(dnnl_post_ops_append_sum(list, 1.0F));
    return onednn_rc(dnnl_post_ops_append_eltwise(list, 1.0F, dnnl_eltwise_relu, 0.0F, 0.0F));
}

enum rc onednn_convolution_describe(struct onednn *onednn, const struct onednn_convolution *c,
                                    dnnl_primitive_attr_t attributes,
                                    dnnl_primitive_desc_t *description)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t status;

    if (c->direction == dnnl_backward_data) {
        status = dnnl_dilated_convolution_backward_data_desc_init(&operation, c->algorithm, c->x,
                                                                  c->weights, c->y, c->strides,
                                                                  c->gaps, c->padding, c->padding);
    } else if (c->direction == dnnl_backward_weights) {
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &operation, c->algorithm, c->x, c->weights, c->bias, c->y, c->strides, c->gaps,
            c->padding, c->padding);
    } else {
        status = dnnl_dilated_convolution_forward_desc_init(
            &operation, c->direction, c->algorithm, c->x, c->weights, c->bias, c->y, c->strides,
            c->gaps, c->padding, c->padding);
    }
    if (status != dnnl_success) return onednn_rc(status);
    return onednn_rc(dnnl_primitive_desc_create(description, &operation, attributes, onednn->engine,
                                                c->forward));
}

enum rc onednn_matmul_describe(struct onednn *onednn, const const_dnnl_memory_desc_t forms[3],
                               dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *description)
{
    dnnl_matmul_desc_t operation;
    dnnl_status_t status = dnnl_matmul_desc_init(&operation, forms[0], forms[1], NULL, forms[2]);

    if (status != dnnl_success) return onednn_rc(status);
    return onednn_rc(
        dnnl_primitive_desc_create(description, &operation, attributes, onednn->engine, NULL));
}

#endif
#endif

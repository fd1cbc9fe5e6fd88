/*
 * What we call of oneDNN 3, declared: for compiling against it where version 2 is installed
 * (tests/onednn_v3/test.sh). From its public documentation
 * (https://uxlfoundation.github.io/oneDNN), and compared with version 3.7. Names and types only:
 * nothing is linked or run, so the values of constants are not the library's. Never installed, and
 * never on the path of a build.
 */
#ifndef GRAPEVINE_TESTS_ONEDNN_V3_H
#define GRAPEVINE_TESTS_ONEDNN_V3_H

#include <stddef.h>
#include <stdint.h>

#define DNNL_VERSION_MAJOR 3
#define DNNL_VERSION_MINOR 7
#define DNNL_VERSION_PATCH 0

#define DNNL_MEMORY_NONE (NULL)

enum {
    DNNL_ARG_SRC,
    DNNL_ARG_FROM = DNNL_ARG_SRC,
    DNNL_ARG_DST,
    DNNL_ARG_TO = DNNL_ARG_DST,
    DNNL_ARG_WEIGHTS,
    DNNL_ARG_BIAS,
    DNNL_ARG_SCRATCHPAD,
    DNNL_ARG_DIFF_SRC,
    DNNL_ARG_DIFF_DST,
    DNNL_ARG_DIFF_WEIGHTS,
    DNNL_ARG_DIFF_BIAS,
};

typedef enum {
    dnnl_success,
    dnnl_out_of_memory,
    dnnl_invalid_arguments,
    dnnl_unimplemented,
} dnnl_status_t;

typedef enum { dnnl_data_type_undef, dnnl_bf16, dnnl_f32 } dnnl_data_type_t;
typedef enum { dnnl_format_kind_undef, dnnl_format_kind_any, dnnl_blocked } dnnl_format_kind_t;
typedef enum {
    dnnl_format_tag_undef,
    dnnl_format_tag_any,
    dnnl_a,
    dnnl_ab,
    dnnl_ba,
    dnnl_nchw,
    dnnl_nhwc,
    dnnl_nChw8c,
    dnnl_nChw16c,
    dnnl_oihw,
    dnnl_goihw,
} dnnl_format_tag_t;
typedef enum { dnnl_forward_training, dnnl_backward_data, dnnl_backward_weights } dnnl_prop_kind_t;
typedef enum {
    dnnl_alg_kind_undef,
    dnnl_convolution_direct,
    dnnl_convolution_winograd,
    dnnl_eltwise_relu,
} dnnl_alg_kind_t;
typedef enum { dnnl_any_engine, dnnl_cpu } dnnl_engine_kind_t;
typedef enum { dnnl_stream_default_flags = 1 } dnnl_stream_flags_t;
typedef enum { dnnl_scratchpad_mode_library, dnnl_scratchpad_mode_user } dnnl_scratchpad_mode_t;
typedef enum {
    dnnl_cpu_isa_default,
    dnnl_cpu_isa_avx512_core_bf16,
    dnnl_cpu_isa_avx512_core_amx,
} dnnl_cpu_isa_t;
typedef enum {
    dnnl_query_undef,
    dnnl_query_impl_info_str,
    dnnl_query_src_md,
    dnnl_query_diff_src_md,
    dnnl_query_weights_md,
    dnnl_query_diff_weights_md,
    dnnl_query_dst_md,
    dnnl_query_diff_dst_md,
    dnnl_query_scratchpad_md,
    dnnl_query_dims,
    dnnl_query_padded_dims,
    dnnl_query_strides,
    dnnl_query_format_kind,
    dnnl_query_inner_nblks_s32,
    dnnl_query_inner_blks,
    dnnl_query_inner_idxs,
} dnnl_query_t;

enum { DNNL_MAX_NDIMS = 12 };
typedef int64_t dnnl_dim_t;
typedef dnnl_dim_t dnnl_dims_t[DNNL_MAX_NDIMS];

/* Handles, each with its twin that only reads. */
#define HANDLE(name)                                                                               \
    typedef struct name *name##_t;                                                                 \
    typedef const struct name *const_##name##_t
HANDLE(dnnl_engine);
HANDLE(dnnl_memory);
HANDLE(dnnl_memory_desc);
HANDLE(dnnl_post_ops);
HANDLE(dnnl_primitive);
HANDLE(dnnl_primitive_attr);
HANDLE(dnnl_primitive_desc);
HANDLE(dnnl_stream);
#undef HANDLE

typedef struct {
    int arg;
    dnnl_memory_t memory;
} dnnl_exec_arg_t;

dnnl_cpu_isa_t dnnl_get_effective_cpu_isa(void);
dnnl_status_t dnnl_engine_create(dnnl_engine_t *made, dnnl_engine_kind_t kind, size_t number);
dnnl_status_t dnnl_engine_destroy(dnnl_engine_t engine);
dnnl_status_t dnnl_stream_create(dnnl_stream_t *made, dnnl_engine_t engine, unsigned flags);
dnnl_status_t dnnl_stream_destroy(dnnl_stream_t stream);
dnnl_status_t dnnl_stream_wait(dnnl_stream_t stream);
dnnl_status_t dnnl_sgemm(char a_turned, char b_turned, dnnl_dim_t rows, dnnl_dim_t columns,
                         dnnl_dim_t inner, float alpha, const float *a, dnnl_dim_t a_stride,
                         const float *b, dnnl_dim_t b_stride, float beta, float *c,
                         dnnl_dim_t c_stride);

dnnl_status_t dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *made, int count,
                                               const dnnl_dims_t dims, dnnl_data_type_t type,
                                               dnnl_format_tag_t tag);
dnnl_status_t dnnl_memory_desc_destroy(dnnl_memory_desc_t form);
dnnl_status_t dnnl_memory_desc_query(const_dnnl_memory_desc_t form, dnnl_query_t what,
                                     void *answer);
size_t dnnl_memory_desc_get_size(const_dnnl_memory_desc_t form);
int dnnl_memory_desc_equal(const_dnnl_memory_desc_t one, const_dnnl_memory_desc_t other);
dnnl_status_t dnnl_memory_create(dnnl_memory_t *made, const_dnnl_memory_desc_t form,
                                 dnnl_engine_t engine, void *values);
dnnl_status_t dnnl_memory_destroy(dnnl_memory_t memory);
dnnl_status_t dnnl_memory_set_data_handle(dnnl_memory_t memory, void *values);

dnnl_status_t dnnl_post_ops_create(dnnl_post_ops_t *made);
dnnl_status_t dnnl_post_ops_destroy(dnnl_post_ops_t list);
dnnl_status_t dnnl_post_ops_append_sum(dnnl_post_ops_t list, float scale, int32_t zero_point,
                                       dnnl_data_type_t type);
dnnl_status_t dnnl_post_ops_append_eltwise(dnnl_post_ops_t list, dnnl_alg_kind_t algorithm,
                                           float alpha, float beta);
dnnl_status_t dnnl_primitive_attr_create(dnnl_primitive_attr_t *made);
dnnl_status_t dnnl_primitive_attr_destroy(dnnl_primitive_attr_t attributes);
dnnl_status_t dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t attributes,
                                                      dnnl_scratchpad_mode_t mode);
dnnl_status_t dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t attributes,
                                               const_dnnl_post_ops_t list);

dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t *made, dnnl_engine_t engine, dnnl_prop_kind_t direction,
    dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t x, const_dnnl_memory_desc_t weights,
    const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t y, const dnnl_dims_t strides,
    const dnnl_dims_t gaps, const dnnl_dims_t before, const dnnl_dims_t after,
    const_dnnl_primitive_attr_t attributes);
dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t *made, dnnl_engine_t engine, dnnl_alg_kind_t algorithm,
    const_dnnl_memory_desc_t dx, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t dy,
    const dnnl_dims_t strides, const dnnl_dims_t gaps, const dnnl_dims_t before,
    const dnnl_dims_t after, const_dnnl_primitive_desc_t forward,
    const_dnnl_primitive_attr_t attributes);
dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t *made, dnnl_engine_t engine, dnnl_alg_kind_t algorithm,
    const_dnnl_memory_desc_t x, const_dnnl_memory_desc_t dweights, const_dnnl_memory_desc_t dbias,
    const_dnnl_memory_desc_t dy, const dnnl_dims_t strides, const dnnl_dims_t gaps,
    const dnnl_dims_t before, const dnnl_dims_t after, const_dnnl_primitive_desc_t forward,
    const_dnnl_primitive_attr_t attributes);
dnnl_status_t dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *made, dnnl_engine_t engine,
                                                const_dnnl_memory_desc_t a,
                                                const_dnnl_memory_desc_t b,
                                                const_dnnl_memory_desc_t bias,
                                                const_dnnl_memory_desc_t c,
                                                const_dnnl_primitive_attr_t attributes);
dnnl_status_t
dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t *made, const_dnnl_memory_desc_t from,
                                   dnnl_engine_t from_engine, const_dnnl_memory_desc_t to,
                                   dnnl_engine_t to_engine, const_dnnl_primitive_attr_t attributes);
dnnl_status_t dnnl_primitive_desc_destroy(dnnl_primitive_desc_t description);
dnnl_status_t dnnl_primitive_desc_query(const_dnnl_primitive_desc_t description, dnnl_query_t what,
                                        int index, void *answer);
const_dnnl_memory_desc_t dnnl_primitive_desc_query_md(const_dnnl_primitive_desc_t description,
                                                      dnnl_query_t what, int index);
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *made, const_dnnl_primitive_desc_t from);
dnnl_status_t dnnl_primitive_destroy(dnnl_primitive_t primitive);
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int count, const dnnl_exec_arg_t *args);

#endif

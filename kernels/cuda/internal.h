/*
 * What the files of kernels/cuda share; nobody else includes it. C files decide, .cu files hold
 * kernels and their launchers; both include this.
 *
 * Streams  everything is queued on `stream`, in the order of calls; snapshots have a second one.
 * Errors   CUDA_TRY and its like: the text of the first failure stays in cuda->why, the call
 *          returns RC_DEVICE (RC_NOMEM where memory was short). A device that failed is lost: every
 *          later call fails at once.
 * Memory   taken at creation. Scratch is one block per backend, for use within a single call; as
 *          calls run in order, all share it.
 * Recording  while cuda->is_recording, calls go into a graph: no synchronisation, no allocation.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_INTERNAL_H
#define GRAPEVINE_KERNELS_CUDA_INTERNAL_H

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/check.h"
#include "kernels/cuda/cuda_backend.h"

struct cuda_group;       /* all_reduce.c: backends of one replica on several devices */
struct cuda_upload;      /* upload.c: memory that uploads pass through */
struct cuda_choice;      /* error.c: what was chosen, for people */
struct attention_choice; /* attention_choice.c: who computes attention of some shape */

struct cuda_backend {
    struct backend base; /* first */
    int device;
    bool is_bf16; /* activations and operands of products are bfloat16 */
    bool is_recording;
    bool is_lost;
    char why[512]; /* of the first failure */
    uint32_t multiprocessors;
    size_t shared_bytes_max; /* of a block, if it asks */
    int capability;          /* 10 * major + minor */
    cudaStream_t stream;
    cublasHandle_t blas;
    cublasLtHandle_t blas_lt;
    cudnnHandle_t dnn;
    void *blas_workspace;
    size_t blas_workspace_bytes;
    void *scratch;
    size_t scratch_bytes;
    uint32_t scratch_generation; /* counts its moves: recordings hold its address */
    struct cuda_upload *upload;
    cudaEvent_t paces[2]; /* ends of the last steps */
    uint32_t pace_next;
    struct cuda_group *group;           /* NULL: one device */
    uint32_t rank;                      /* in the group */
    struct attention_choice *attention; /* a list */
    struct cuda_choice *choices;        /* a list */
    cudaStream_t beside;                /* of a group's: sums beside the calls on `stream` */
    cudaEvent_t forked, joined;
};

static inline struct cuda_backend *cuda_of(struct backend *backend)
{
    return (struct cuda_backend *)backend;
}

/* error.c: the text of a failed call, and what it means. RC_OK passes. */
enum rc cuda_check(struct cuda_backend *cuda, cudaError_t error, const char *call, const char *file,
                   int line);
enum rc cuda_check_blas(struct cuda_backend *cuda, cublasStatus_t status, const char *call,
                        const char *file, int line);
enum rc cuda_check_dnn(struct cuda_backend *cuda, cudnnStatus_t status, const char *call,
                       const char *file, int line);
/** The same for a library that has a `text` for what is wrong; NULL passes. */
enum rc cuda_check_text(struct cuda_backend *cuda, const char *text, const char *call,
                        const char *file, int line);
/** Remember a choice that people may want to know; equal ones are counted. */
void cuda_tell(struct cuda_backend *cuda, const char *text);
const char *cuda_choice(struct backend *backend, uint32_t i, uint32_t *times);
void cuda_forget_choices(struct cuda_backend *cuda);

/* `rc` and a label `out` are the caller's. Each is a statement. */
#define TRY_(check, cuda, call)                                                                    \
    do {                                                                                           \
        rc = check((cuda), (call), #call, __FILE__, __LINE__);                                     \
        if (rc != RC_OK) goto out;                                                                 \
    } while (0)
#define CUDA_TRY(cuda, call) TRY_(cuda_check, cuda, call)
#define BLAS_TRY(cuda, call) TRY_(cuda_check_blas, cuda, call)
#define DNN_TRY(cuda, call)  TRY_(cuda_check_dnn, cuda, call)
/* For launchers that are one launch: `return CUDA_CHECK(cuda, launch(...));` */
#define CUDA_CHECK(cuda, call) cuda_check((cuda), (call), #call, __FILE__, __LINE__)

/** Grow the scratch memory; its contents and address change. Creation time only. RC_NOMEM. */
MUST_USE enum rc cuda_scratch_reserve(struct cuda_backend *cuda, size_t bytes);

/* vector.cu: float32 unless T is said. Scratch that norms and from_bytes() need at least. */
enum { VECTOR_SCRATCH_BYTES = 65536 };
enum rc cuda_from_bytes(struct backend *backend, const uint8_t *bytes, float factor, float offset,
                        float *values, size_t n);
enum rc cuda_axpy(struct backend *backend, float a, const float *x, float *y, size_t n);
enum rc cuda_scale(struct backend *backend, float a, float *x, size_t n);
enum rc cuda_add_difference(struct backend *backend, float a, const float *x, const float *base,
                            float *y, size_t n);
enum rc cuda_squared_norm(struct backend *backend, const float *x, size_t n, double *result);
enum rc cuda_is_finite(struct backend *backend, const float *x, size_t n, bool *result);
enum rc cuda_clip(struct backend *backend, float limit, float *x, size_t n);
enum rc cuda_to_activations(struct backend *backend, const float *x, void *y, size_t n);
enum rc cuda_store(struct backend *backend, uint64_t *counter, uint64_t value);
/** y (bfloat16) = x (float32): operands of products. */
enum rc cuda_to_bf16(struct cuda_backend *cuda, const float *x, void *y, size_t n);
/** y (float32) = x (bfloat16), or += it. */
enum rc cuda_from_bf16(struct cuda_backend *cuda, const void *x, bool adds, float *y, size_t n);
/** sums[column] = (or +=) over rows of x[rows][columns] (T), `stride` values apart. */
enum rc cuda_column_sums(struct cuda_backend *cuda, const void *x, size_t rows, size_t columns,
                         size_t stride, bool adds, float *sums);
/** Bytes of scratch it uses. */
size_t cuda_column_sums_scratch(const struct cuda_backend *cuda, size_t rows, size_t columns);

/* pointwise.cu: T. */
enum rc cuda_relu_forward(struct backend *backend, void *x, size_t n);
enum rc cuda_relu_backward(struct backend *backend, const void *y, void *dy, size_t n);
enum rc cuda_add(struct backend *backend, const void *a, const void *b, bool with_relu, void *y,
                 size_t n);
enum rc cuda_activation_forward(struct backend *backend, struct activation activation,
                                const void *x, void *y, size_t n);
enum rc cuda_activation_backward(struct backend *backend, struct activation activation,
                                 const void *x, const void *y, const void *dy, void *dx, size_t n);
enum rc cuda_dropout(struct backend *backend, const struct dropout *dropout, const void *x, void *y,
                     size_t n);
enum rc cuda_copy_rows(struct backend *backend, const struct copy_rows *copy, const void *x,
                       void *y);
/** y[rows][columns] (T) = f(x + bias); bias (T) NULL: none. `pre` NULL, or gets x + bias. x may be
 *  y or pre. */
enum rc cuda_bias_activation(struct cuda_backend *cuda, struct activation activation, size_t rows,
                             size_t columns, const void *x, const void *bias, void *pre, void *y);

/* linear.c */
enum rc cuda_gemm(struct backend *backend, const struct gemm *gemm);
enum rc cuda_linear_create(struct backend *backend, const struct linear_options *options,
                           struct linear **linear);

/* conv.c, conv_local.cu */
enum rc cuda_conv_create(struct backend *backend, const struct conv_options *options,
                         struct conv **conv);
enum rc cuda_conv_local_create(struct cuda_backend *cuda, const struct conv_options *options,
                               struct conv **conv);

/* cuda/image/pool.cu, cuda/image/layout.cu, cuda/image/average.cu, cuda/image/channels.cu */
enum rc cuda_pool_forward(struct backend *backend, const struct pool_options *options,
                          uint32_t images, const void *x, void *y, uint8_t *winner);
enum rc cuda_pool_backward(struct backend *backend, const struct pool_options *options,
                           uint32_t images, const void *dy, const uint8_t *winner, void *dx);
enum rc cuda_relayout(struct backend *backend, struct image_shape from, uint32_t to_block,
                      uint32_t images, const void *x, void *y);
enum rc cuda_global_average_forward(struct backend *backend, struct image_shape in, uint32_t images,
                                    const void *x, void *y);
enum rc cuda_global_average_backward(struct backend *backend, struct image_shape in,
                                     uint32_t images, const void *dy, void *dx);
enum rc cuda_subsample_forward(struct backend *backend, const struct subsample *options,
                               uint32_t images, const void *x, void *y);
enum rc cuda_subsample_backward(struct backend *backend, const struct subsample *options,
                                uint32_t images, const void *dy, void *dx);
/** Filters [out][in][height][width] (float32) to [out][height][width][in] (T). */
enum rc cuda_filters_to_last(struct cuda_backend *cuda, size_t out, size_t in, size_t pixels,
                             const float *plain, void *last);
/** And gradients back: plain = (or +=) last. */
enum rc cuda_filters_from_last(struct cuda_backend *cuda, size_t out, size_t in, size_t pixels,
                               const void *last, bool adds, float *plain);
/** sums[channel] = (or +=) over images and pixels of dy (T). */
enum rc cuda_channel_sums(struct cuda_backend *cuda, struct image_shape shape, uint32_t images,
                          const void *dy, bool adds, float *sums);
size_t cuda_channel_sums_scratch(const struct cuda_backend *cuda, struct image_shape shape,
                                 uint32_t images);
/** y (T) += bias[channel], then max(0, .) if wanted, in place. */
enum rc cuda_channel_bias(struct cuda_backend *cuda, struct image_shape shape, uint32_t images,
                          const float *bias, bool with_relu, void *y);

/* cuda/norm/batch.cu */
enum rc cuda_batch_norm_collect(struct backend *backend, const struct batch_norm *norm,
                                uint32_t images, const void *x, double *sums);
enum rc cuda_batch_norm_close(struct backend *backend, const struct batch_norm *norm,
                              const struct batch_norm_close *close);
enum rc cuda_batch_norm_rstd(struct backend *backend, const struct batch_norm *norm,
                             const float *variance, float *rstd);
enum rc cuda_batch_norm_apply(struct backend *backend, const struct batch_norm *norm,
                              uint32_t images, const void *x, const struct channel_affine *affine,
                              void *y);
enum rc cuda_batch_norm_backward_collect(struct backend *backend, const struct batch_norm *norm,
                                         uint32_t images, const struct batch_norm_backward *pass);
enum rc cuda_batch_norm_backward_close(struct backend *backend, const struct batch_norm *norm,
                                       const double *sums, bool is_first, float *dgamma,
                                       float *dbeta);
enum rc cuda_batch_norm_backward_apply(struct backend *backend, const struct batch_norm *norm,
                                       uint32_t images, const struct batch_norm_backward *pass);

/* cuda/norm/group.cu, cuda/norm/layer.cu, cuda/norm/weight.cu */
enum rc cuda_group_norm_forward(struct backend *backend, const struct group_norm *norm,
                                uint32_t images, const void *x, const float *gamma,
                                const float *beta, void *y, float *mean, float *rstd);
enum rc cuda_group_norm_backward(struct backend *backend, const struct group_norm *norm,
                                 uint32_t images, const struct norm_backward *pass);
enum rc cuda_layer_norm_forward(struct backend *backend, const struct layer_norm *norm,
                                const void *x, const float *gamma, const float *beta, void *y,
                                float *mean, float *rstd);
enum rc cuda_layer_norm_sum_forward(struct backend *backend, const struct layer_norm *norm,
                                    const struct layer_norm_sum *pass);
enum rc cuda_layer_norm_backward(struct backend *backend, const struct layer_norm *norm,
                                 const struct norm_backward *pass);
enum rc cuda_weight_norm_forward(struct backend *backend, size_t rows, size_t columns,
                                 const float *v, const float *g, float *w, float *norms);
enum rc cuda_weight_norm_backward(struct backend *backend, const struct weight_norm_backward *pass);

/* sequence.cu */
enum rc cuda_embedding_forward(struct backend *backend, const struct embedding *embedding,
                               size_t rows, const float *tokens, const float *table, void *y);
enum rc cuda_embedding_backward(struct backend *backend, const struct embedding *embedding,
                                size_t rows, const float *tokens, const void *dy, float *dtable);
enum rc cuda_positions_forward(struct backend *backend, const struct positions *positions,
                               const void *x, const float *table, void *y);
enum rc cuda_positions_backward(struct backend *backend, const struct positions *positions,
                                const void *dy, float *dtable);

/* attention.cu (entries), attention_plain.cu, attention_tensor.cu, attention_tensor_backward.cu
 * (kernels), attention_graph.c (cuDNN), attention_choice.c (which) */
enum rc cuda_attention_forward(struct backend *backend, const struct attention *attention,
                               const void *qkv, void *y, float *statistics);
enum rc cuda_attention_backward(struct backend *backend, const struct attention *attention,
                                const struct attention_backward *pass);
enum rc cuda_attention_reserve(struct backend *backend, const struct attention *attention);
/** Release what was chosen, while the library is still there. */
void cuda_attention_forget(struct cuda_backend *cuda);

/* recurrent.c */
enum rc cuda_recurrent_create(struct backend *backend, const struct recurrent_options *options,
                              struct recurrent **recurrent);

/* loss.cu */
enum rc cuda_cross_entropy(struct backend *backend, const struct device_loss *loss);
enum rc cuda_squared_error(struct backend *backend, const struct device_loss *loss);

/* copies.c: copies of parameters in bfloat16. */
struct parameter_copies {
    struct parameter_copy *spans; /* on the device, in order of `from` */
    uint32_t count;
};
enum rc cuda_copies_create(struct backend *backend, const struct parameter_copy *copies,
                           uint32_t count, struct parameter_copies **made);
void cuda_copies_destroy(struct backend *backend, struct parameter_copies *copies);

/* optimizer.cu */
enum rc cuda_update(struct backend *backend, const struct update *update, const float *gradient,
                    float *moments, float *values, size_t n);

/* codec.cu: chunk by chunk on `stream`; `bad` (device) is set to 1 if a value is not finite. */
enum rc cuda_encode(struct cuda_backend *cuda, cudaStream_t stream, enum codec_format format,
                    const float *in, size_t values, size_t chunk_values, uint8_t *out,
                    uint32_t *bad);

/* snapshot.c */
enum rc cuda_snapshot_create(struct backend *backend, const struct snapshot_options *options,
                             struct snapshot **snapshot);

/* record.c */
enum rc cuda_record_begin(struct backend *backend);
enum rc cuda_record_end(struct backend *backend, struct recording **recording);
enum rc cuda_replay(struct backend *backend, struct recording *recording);
void cuda_recording_destroy(struct backend *backend, struct recording *recording);

/* upload.c */
MUST_USE enum rc cuda_upload_create(struct cuda_backend *cuda);
void cuda_upload_destroy(struct cuda_backend *cuda); /* NULL is fine */
enum rc cuda_upload_bytes(struct backend *backend, void *to, const void *from, size_t bytes);

/* backend.c: on one device. */
enum rc cuda_single_create(uint32_t device, bool is_bf16, struct backend **backend,
                           struct fault *why);

/* all_reduce.c */
/** One for each of several devices, the first of which hands out the others as siblings. */
enum rc cuda_group_create(const struct cuda_backend_options *options, struct backend **first,
                          struct fault *why);
enum rc cuda_all_reduce(struct backend *backend, float *x, size_t n);
enum rc cuda_all_reduce_begin(struct backend *backend, float *x, size_t n);
enum rc cuda_all_reduce_end(struct backend *backend);
void cuda_all_reduce_abort(struct backend *backend);
struct backend *cuda_sibling(struct backend *backend);
/** For a device that failed: no other may wait for it any longer. Their next all-reduce fails. */
void cuda_group_abort(struct cuda_backend *cuda);
/** The next rank leaves; the last one takes the group along. */
void cuda_group_leave(struct cuda_backend *cuda);

#ifdef __cplusplus
}
#endif

#endif

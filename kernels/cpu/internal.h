/* What the files of kernels/cpu share; nobody else includes it. */
#ifndef GRAPEVINE_KERNELS_CPU_INTERNAL_H
#define GRAPEVINE_KERNELS_CPU_INTERNAL_H

#include "base/cpu.h"
#include "kernels/cpu/cpu_backend.h"

struct onednn;

struct cpu_backend {
    struct backend base;
    struct cpu_backend_options options;
    struct onednn *onednn; /* NULL: not built in, not wanted, or it would not start */
    bool is_bf16;          /* products and convolutions take bfloat16 operands */
    const char *precision_reason;
    float *scratch; /* shared by all operations of this backend */
    size_t scratch_bytes;
    float *room; /* where products pack their factors; NULL: those are the libraries' */
};

static inline struct cpu_backend *cpu_of(struct backend *backend)
{
    return (struct cpu_backend *)backend;
}

/** Grow the scratch memory; its contents and address change. Creation time only. */
MUST_USE enum rc cpu_scratch_reserve(struct cpu_backend *backend, size_t bytes);

/* gemm.c */
/** Creation time; RC_NOMEM. */
MUST_USE enum rc cpu_gemm_reserve(struct cpu_backend *backend);
enum rc cpu_gemm(struct backend *backend, const struct gemm *gemm);

/* linear.c */
enum rc cpu_linear_create(struct backend *backend, const struct linear_options *options,
                          struct linear **linear);

/* vector.c */
enum rc cpu_from_bytes(struct backend *backend, const uint8_t *bytes, float factor, float offset,
                       float *values, size_t n);
enum rc cpu_axpy(struct backend *backend, float a, const float *x, float *y, size_t n);
enum rc cpu_scale(struct backend *backend, float a, float *x, size_t n);
enum rc cpu_add_difference(struct backend *backend, float a, const float *x, const float *base,
                           float *y, size_t n);
enum rc cpu_squared_norm(struct backend *backend, const float *x, size_t n, double *result);
enum rc cpu_is_finite(struct backend *backend, const float *x, size_t n, bool *result);
enum rc cpu_relu_forward(struct backend *backend, void *x, size_t n);
enum rc cpu_relu_backward(struct backend *backend, const void *y, void *dy, size_t n);
void cpu_add_rows(const float *x, size_t rows, size_t columns, float *sums);

/* attention.c, attention_backward.c */
enum rc cpu_attention_forward(struct backend *backend, const struct attention *attention,
                              const void *qkv, void *y, float *statistics);
enum rc cpu_attention_backward(struct backend *backend, const struct attention *attention,
                               const struct attention_backward *pass);
enum rc cpu_attention_reserve(struct backend *backend, const struct attention *attention);

/* embedding.c */
enum rc cpu_embedding_forward(struct backend *backend, const struct embedding *embedding,
                              size_t rows, const float *tokens, const float *table, void *y);
enum rc cpu_embedding_backward(struct backend *backend, const struct embedding *embedding,
                               size_t rows, const float *tokens, const void *dy, float *dtable);
enum rc cpu_positions_forward(struct backend *backend, const struct positions *positions,
                              const void *x, const float *table, void *y);
enum rc cpu_positions_backward(struct backend *backend, const struct positions *positions,
                               const void *dy, float *dtable);

/* loss.c */
enum rc cpu_cross_entropy(struct backend *backend, const struct device_loss *loss);
enum rc cpu_squared_error(struct backend *backend, const struct device_loss *loss);

/* optimizer.c */
enum rc cpu_update(struct backend *backend, const struct update *update, const float *gradient,
                   float *moments, float *values, size_t n);

/* pool.c */
enum rc cpu_pool_forward(struct backend *backend, const struct pool_options *options,
                         uint32_t images, const void *x, void *y, uint8_t *winner);
enum rc cpu_pool_backward(struct backend *backend, const struct pool_options *options,
                          uint32_t images, const void *dy, const uint8_t *winner, void *dx);
enum rc cpu_relayout(struct backend *backend, struct image_shape from, uint32_t to_block,
                     uint32_t images, const void *x, void *y);

/* pool_global.c */
enum rc cpu_global_average_forward(struct backend *backend, struct image_shape in, uint32_t images,
                                   const void *x, void *y);
enum rc cpu_global_average_backward(struct backend *backend, struct image_shape in, uint32_t images,
                                    const void *dy, void *dx);
enum rc cpu_subsample_forward(struct backend *backend, const struct subsample *options,
                              uint32_t images, const void *x, void *y);
enum rc cpu_subsample_backward(struct backend *backend, const struct subsample *options,
                               uint32_t images, const void *dy, void *dx);

/* conv_*.c */
enum rc conv_im2col_create(struct cpu_backend *backend, const struct conv_options *options,
                           struct conv **conv);
enum rc conv_local_create(struct cpu_backend *backend, const struct conv_options *options,
                          struct conv **conv);
/** RC_UNSUPPORTED when the library has no fast form for this shape. */
enum rc conv_onednn_create(struct cpu_backend *backend, const struct conv_options *options,
                           struct conv **conv);
/** RC_UNSUPPORTED but for 3x3 windows one pixel apart on whole blocks of channels, with AVX2 or
 *  AVX-512. */
enum rc conv_winograd_create(struct cpu_backend *backend, const struct conv_options *options,
                             struct conv **conv);
/* A call of backward_weights(). */
struct conv_gradients {
    struct image_shape out;
    const float *x, *dy;
    bool is_first;
    float *dweight, *dbias;
};

/** Whether a first layer's weights get their gradient from conv_first_weights(), with scratch
 * memory of so many bytes. */
bool conv_first_serves(const struct conv_options *options, struct image_shape out);
size_t conv_first_scratch(const struct cpu_backend *backend, const struct conv_options *options);
void conv_first_weights(struct cpu_backend *backend, const struct conv_options *options,
                        const struct conv_gradients *gradients);
enum rc conv_reference_create(struct cpu_backend *backend, const struct conv_options *options,
                              struct conv **conv);
/** NULL where oneDNN is not built in or does not start. */
struct onednn *onednn_create(void);
void onednn_destroy(struct onednn *onednn);
/** gemm by oneDNN; RC_UNSUPPORTED where it is not built in. */
enum rc onednn_gemm(const struct gemm *gemm);
/** "2.6.3", or NULL where it is not built in. */
const char *onednn_version(void);

#endif

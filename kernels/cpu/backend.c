/*
 * The CPU backend: its table, memory, and the choice of who convolves. One pool of threads,
 * OpenMP's, serves us and oneDNN; its size is a property of the calling thread, so every job thread
 * binds itself on entry.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/dense/activation.h"
#include "kernels/cpu/dense/bf16.h"
#include "kernels/cpu/dense/blas.h"
#include "kernels/cpu/norm/internal.h"
#include "kernels/cpu/sequence/recurrent.h"
#include "kernels/softmax.h"

#include <stdio.h>
#include <string.h>

#include <cblas.h>
#include <omp.h>

/* A slice's activations stay in the cache; smaller images come in larger slices, because large
 * filters are transformed once a call. */
enum { PIXELS_PER_SLICE = 8192, ROWS_PER_SLICE = 512 };

static void cpu_destroy(struct backend *backend)
{
    struct cpu_backend *cpu = cpu_of(backend);

    onednn_destroy(cpu->onednn);
    mem_free(cpu->scratch);
    mem_free(cpu->room);
    mem_free(cpu);
}

static void cpu_bind_thread(struct backend *backend)
{
    omp_set_num_threads((int)backend->threads);
}

static struct backend *cpu_sibling(struct backend *backend)
{
    struct cpu_backend_options options = cpu_of(backend)->options;

    options.threads = 1;
    options.forces_bf16 = cpu_backend_is_bf16(backend); /* measured once */
    if (!options.forces_bf16) options.precision = PRECISION_F32;
    return cpu_backend_create(&options);
}

static void *cpu_alloc(struct backend *backend, size_t bytes)
{
    (void)backend;
    return mem_aligned(bytes);
}

static void cpu_free(struct backend *backend, void *block)
{
    (void)backend;
    mem_free(block);
}

static enum rc cpu_copy(struct backend *backend, void *to, const void *from, size_t bytes)
{
    (void)backend;
    memcpy(to, from, bytes);
    return RC_OK;
}

static enum rc cpu_zero(struct backend *backend, void *block, size_t bytes)
{
    (void)backend;
    memset(block, 0, bytes);
    return RC_OK;
}

static void conv_check(const struct conv_options *o)
{
    struct image_shape out = conv_out_shape(o);

    CHECK(o->images > 0 && o->kernel_height > 0 && o->kernel_width > 0 && o->out_channels > 0);
    CHECK(o->stride > 0 && o->dilation > 0 && o->groups > 0 && out.height > 0 && out.width > 0);
    CHECK(o->in.channels % o->groups == 0 && o->out_channels % o->groups == 0);
    CHECK(o->in.channels % o->in.block == 0 && (!o->is_local || o->groups == 1));
}

/* In float32, which is as good for who asked for bf16 unless matrix units multiply that. */
static bool may_take_winograd(const struct cpu_backend *cpu)
{
    return cpu->options.convolution == CPU_CONVOLUTION_AUTO && !(cpu->is_bf16 && cpu_has(CPU_AMX));
}

static enum rc cpu_conv_create(struct backend *backend, const struct conv_options *options,
                               struct conv **conv)
{
    struct cpu_backend *cpu = cpu_of(backend);
    enum rc rc;

    conv_check(options);
    if (cpu->options.is_reference) return conv_reference_create(cpu, options, conv);
    if (options->is_local) return conv_local_create(cpu, options, conv);
    if (may_take_winograd(cpu)) {
        rc = conv_winograd_create(cpu, options, conv);
        if (rc != RC_UNSUPPORTED) return rc;
    }
    if (cpu->onednn != NULL) {
        rc = conv_onednn_create(cpu, options, conv);
        if (rc != RC_UNSUPPORTED) return rc;
    }
    return conv_im2col_create(cpu, options, conv);
}

enum rc cpu_scratch_reserve(struct cpu_backend *backend, size_t bytes)
{
    float *grown;

    if (bytes <= backend->scratch_bytes) return RC_OK;
    grown = mem_aligned(bytes);
    if (grown == NULL) return RC_NOMEM;
    mem_free(backend->scratch);
    backend->scratch = grown;
    backend->scratch_bytes = bytes;
    return RC_OK;
}

static const struct backend_ops cpu_ops = {
    .name = "cpu",
    .destroy = cpu_destroy,
    .bind_thread = cpu_bind_thread,
    .sibling = cpu_sibling,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .from_bytes = cpu_from_bytes,
    .axpy = cpu_axpy,
    .scale = cpu_scale,
    .add_difference = cpu_add_difference,
    .squared_norm = cpu_squared_norm,
    .is_finite = cpu_is_finite,
    .gemm = cpu_gemm,
    .linear_create = cpu_linear_create,
    .relu_forward = cpu_relu_forward,
    .relu_backward = cpu_relu_backward,
    .add = cpu_add,
    .activation_forward = cpu_activation_forward,
    .activation_backward = cpu_activation_backward,
    .dropout = cpu_dropout,
    .copy_rows = cpu_copy_rows,
    .conv_create = cpu_conv_create,
    .pool_forward = cpu_pool_forward,
    .pool_backward = cpu_pool_backward,
    .relayout = cpu_relayout,
    .global_average_forward = cpu_global_average_forward,
    .global_average_backward = cpu_global_average_backward,
    .subsample_forward = cpu_subsample_forward,
    .subsample_backward = cpu_subsample_backward,
    .batch_norm_collect = cpu_batch_norm_collect,
    .batch_norm_close = cpu_batch_norm_close,
    .batch_norm_rstd = cpu_batch_norm_rstd,
    .batch_norm_apply = cpu_batch_norm_apply,
    .batch_norm_backward_collect = cpu_batch_norm_backward_collect,
    .batch_norm_backward_close = cpu_batch_norm_backward_close,
    .batch_norm_backward_apply = cpu_batch_norm_backward_apply,
    .group_norm_forward = cpu_group_norm_forward,
    .group_norm_backward = cpu_group_norm_backward,
    .layer_norm_forward = cpu_layer_norm_forward,
    .layer_norm_backward = cpu_layer_norm_backward,
    .weight_norm_forward = cpu_weight_norm_forward,
    .weight_norm_backward = cpu_weight_norm_backward,
    .embedding_forward = cpu_embedding_forward,
    .embedding_backward = cpu_embedding_backward,
    .positions_forward = cpu_positions_forward,
    .positions_backward = cpu_positions_backward,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .attention_reserve = cpu_attention_reserve,
    .recurrent_create = cpu_recurrent_create,
    .cross_entropy = cpu_cross_entropy,
    .squared_error = cpu_squared_error,
    .update = cpu_update,
};

struct backend *cpu_backend_create(const struct cpu_backend_options *options)
{
    struct cpu_backend *cpu = mem_alloc(sizeof(*cpu));

    if (cpu == NULL) return NULL;
    cpu->options = *options;
    cpu->base.ops = &cpu_ops;
    cpu->base.threads = options->threads == 0 ? 1 : options->threads;
    cpu->base.pixels_per_slice = PIXELS_PER_SLICE;
    cpu->base.rows_per_slice = ROWS_PER_SLICE;
    cpu->base.value_bytes = sizeof(float);
    cpu->base.is_host = true;
    if (!options->is_reference && cpu_gemm_reserve(cpu) != RC_OK) {
        mem_free(cpu);
        return NULL;
    }
    blas_begin();
    if (options->convolution == CPU_CONVOLUTION_AUTO && !options->is_reference) {
        cpu->onednn = onednn_create();
    }
    cpu->precision_reason = "float32: it was asked for";
    if (options->precision == PRECISION_BF16) bf16_decide(cpu);
    return &cpu->base;
}

bool cpu_backend_is_bf16(const struct backend *backend)
{
    return ((const struct cpu_backend *)backend)->is_bf16;
}

const char *cpu_backend_precision_reason(const struct backend *backend)
{
    return ((const struct cpu_backend *)backend)->precision_reason;
}

void cpu_backend_describe(char *text, size_t cap)
{
    const char *onednn = onednn_version();
    char used[64];

    cpu_describe(used, sizeof(used));
    snprintf(text, cap, "%s, %s, %s%s", used, openblas_get_config(),
             onednn != NULL ? "oneDNN " : "no oneDNN", onednn != NULL ? onednn : "");
}

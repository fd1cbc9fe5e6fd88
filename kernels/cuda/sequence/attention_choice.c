/*
 * Who computes attention of a shape: our own kernels, or cuDNN by a graph (attention_graph.c). The
 * graph's kernels use what came with Hopper and ours do not, so it may be faster where there is
 * much to do. It is tried once, when a layer is created: it must be compiled, give what our kernels
 * give (on values that are made up), give equal bits when called twice, and take less than LIMIT of
 * their time, so that noise does not choose. Whatever fails on the way, our own kernels it is.
 */
#include "kernels/cuda/sequence/attention_choice.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WORK_MIN            ((double)(1 << 30)) /* products of a pass; below, little is to be won */
#define WORKSPACE_BYTES_MAX ((size_t)256 << 20)
#define COMPARED_MAX        ((size_t)4 << 20) /* values */
#define ERROR_MAX           2e-2              /* normalised; either form is 5e-3 from the truth */
#define LIMIT               0.9

enum { RUNS = 5, PATTERN = 65521 /* values; a prime: no two rows are equal */ };

struct attention_choice {
    struct attention_choice *next;
    struct attention attention;
    struct attention_graph *graphs[2]; /* forward, backward; NULL: our own kernels */
    char text[320];
};

/* Memory of a trial. */
struct trial {
    struct cuda_backend *cuda;
    const struct attention *attention;
    size_t values; /* of y */
    void *block;   /* of the device: all of these */
    float *qkv, *y, *dy, *dqkv, *statistics;
    uint16_t *results[2]; /* of the host: ours, the graph's */
    cudaEvent_t begin, end;
};

static const struct attention_graph_calls library = {
    .create = cudnnBackendCreateDescriptor,
    .destroy = cudnnBackendDestroyDescriptor,
    .set = cudnnBackendSetAttribute,
    .get = cudnnBackendGetAttribute,
    .finalize = cudnnBackendFinalize,
    .execute = cudnnBackendExecute,
};

static bool is_same(const struct attention *a, const struct attention *b)
{
    return a->samples == b->samples && a->steps == b->steps && a->width == b->width &&
           a->heads == b->heads && a->is_causal == b->is_causal && a->is_rotary == b->is_rotary;
}

static struct attention_choice *choice_of(const struct cuda_backend *cuda,
                                          const struct attention *attention)
{
    struct attention_choice *choice = cuda->attention;

    while (choice != NULL && !is_same(&choice->attention, attention)) {
        choice = choice->next;
    }
    return choice;
}

/* --- a trial ----------------------------------------------------------------------------------*/

/* Sums of four uniform values, of variance 1, as bfloat16; splitmix-like steps. */
static void make_up(uint16_t *values, size_t n)
{
    uint64_t state = 1;

    for (size_t i = 0; i < n; i++) {
        float sum = 0.0F;
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(state >> 40) / (float)(1 << 24) - 0.5F;
        }
        values[i] = (uint16_t)(float_bits(sum * sqrtf(3.0F)) >> 16);
    }
}

/* The same pattern again and again. */
static bool fill(const struct trial *t, void *to, size_t n)
{
    const size_t pattern_bytes = PATTERN * sizeof(uint16_t);
    size_t bytes = n * sizeof(uint16_t);
    char *at = to;

    for (size_t done = 0; done < bytes; done += pattern_bytes) {
        size_t count = bytes - done < pattern_bytes ? bytes - done : pattern_bytes;
        if (cudaMemcpyAsync(at + done, t->results[0], count, cudaMemcpyHostToDevice,
                            t->cuda->stream) != cudaSuccess) {
            return false;
        }
    }
    return cudaStreamSynchronize(t->cuda->stream) == cudaSuccess;
}

static void trial_end(struct trial *t)
{
    if (t->begin != NULL) (void)cudaEventDestroy(t->begin);
    if (t->end != NULL) (void)cudaEventDestroy(t->end);
    if (t->block != NULL) (void)cudaFree(t->block);
    mem_free(t->results[0]);
    mem_free(t->results[1]);
    (void)cudaGetLastError(); /* a shortage of memory is not the next call's matter */
}

static bool trial_begin(struct trial *t)
{
    size_t statistics = attention_statistics(t->attention) * sizeof(float);
    size_t bytes = 8 * t->values * sizeof(uint16_t) + statistics, free_bytes = 0, all = 0;
    char *block;

    for (size_t i = 0; i < 2; i++) {
        t->results[i] = mem_array(COMPARED_MAX, sizeof(uint16_t));
        if (t->results[i] == NULL) return false;
    }
    if (cudaMemGetInfo(&free_bytes, &all) != cudaSuccess) return false;
    if (free_bytes / 2 < bytes + WORKSPACE_BYTES_MAX) return false;
    if (cudaMalloc(&t->block, bytes) != cudaSuccess) return false;
    block = t->block;
    t->qkv = (float *)(void *)block; /* rows of width are multiples of 16 bytes: all are aligned */
    t->dqkv = (float *)(void *)(block + 6 * t->values);
    t->y = (float *)(void *)(block + 12 * t->values);
    t->dy = (float *)(void *)(block + 14 * t->values);
    t->statistics = (float *)(void *)(block + 16 * t->values);
    make_up(t->results[0], PATTERN);
    return cudaEventCreate(&t->begin) == cudaSuccess && cudaEventCreate(&t->end) == cudaSuccess &&
           fill(t, t->qkv, 3 * t->values) && fill(t, t->dy, t->values);
}

static enum rc trial_run(const struct trial *t, struct attention_graph *graph, bool is_backward)
{
    struct attention_backward pass = {
        .qkv = t->qkv,
        .y = t->y,
        .dy = t->dy,
        .statistics = t->statistics,
        .dqkv = t->dqkv,
    };

    if (is_backward) return attention_backward_by(t->cuda, t->attention, graph, &pass);
    return attention_forward_by(t->cuda, t->attention, graph, t->qkv, t->y, t->statistics);
}

/* What a run leaves, or as much of it as is compared; nothing is left from the run before. */
static bool trial_result(const struct trial *t, struct attention_graph *graph, bool is_backward,
                         uint16_t *result)
{
    size_t n = is_backward ? 3 * t->values : t->values;
    void *from = is_backward ? t->dqkv : t->y;
    cudaStream_t stream = t->cuda->stream;

    if (cudaMemsetAsync(from, 0xFF, n * sizeof(uint16_t), stream) != cudaSuccess) return false;
    if (n > COMPARED_MAX) n = COMPARED_MAX;
    return trial_run(t, graph, is_backward) == RC_OK &&
           cudaMemcpyAsync(result, from, n * sizeof(uint16_t), cudaMemcpyDeviceToHost, stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess;
}

static float of_bf16(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float number;

    memcpy(&number, &bits, sizeof(number));
    return number;
}

/* NULL: the graph computes what our kernels do. Otherwise what is wrong with it. */
static const char *trial_compare(const struct trial *t, struct attention_graph *graph,
                                 bool is_backward)
{
    size_t n = is_backward ? 3 * t->values : t->values;
    uint16_t *ours = t->results[0], *theirs = t->results[1];
    double difference = 0.0, size = 0.0;

    if (n > COMPARED_MAX) n = COMPARED_MAX;
    if (!trial_result(t, NULL, is_backward, ours)) return "a failed trial";
    if (!trial_result(t, graph, is_backward, theirs)) return "not of cuDNN, which failed";
    for (size_t i = 0; i < n; i++) {
        double wanted = (double)of_bf16(ours[i]), d = (double)of_bf16(theirs[i]) - wanted;
        difference += d * d;
        size += wanted * wanted;
    }
    if (!(difference <= ERROR_MAX * ERROR_MAX * size)) return "not of cuDNN, which errs";
    if (!trial_result(t, graph, is_backward, ours)) return "not of cuDNN, which failed";
    if (memcmp(ours, theirs, n * sizeof(uint16_t)) != 0) return "not of cuDNN, whose bits vary";
    return NULL;
}

/* Milliseconds of a run; negative: it failed. */
static float trial_ms(const struct trial *t, struct attention_graph *graph, bool is_backward)
{
    cudaStream_t stream = t->cuda->stream;
    float ms = 0.0F;

    if (cudaEventRecord(t->begin, stream) != cudaSuccess) return -1.0F;
    for (int i = 0; i < RUNS; i++) {
        if (trial_run(t, graph, is_backward) != RC_OK) return -1.0F;
    }
    if (cudaEventRecord(t->end, stream) != cudaSuccess) return -1.0F;
    if (cudaEventSynchronize(t->end) != cudaSuccess) return -1.0F;
    if (cudaEventElapsedTime(&ms, t->begin, t->end) != cudaSuccess) return -1.0F;
    return ms / (float)RUNS;
}

/* --- the choice -------------------------------------------------------------------------------*/

static struct attention_graph *graph_of(struct cuda_backend *cuda,
                                        const struct attention *attention, bool is_backward)
{
    const struct attention_graph_shape shape = {
        .samples = attention->samples,
        .heads = attention->heads,
        .steps = attention->steps,
        .head_width = attention->width / attention->heads,
        .query_stride = (attention->is_rotary ? 2 : 3) * (int64_t)attention->width,
        .value_stride = 3 * (int64_t)attention->width,
        .is_causal = attention->is_causal,
        .is_backward = is_backward,
    };
    struct attention_graph *graph = attention_graph_create(&library, &shape, cuda->dnn, NULL);

    if (graph != NULL && attention_graph_plan(graph, WORKSPACE_BYTES_MAX)) return graph;
    attention_graph_destroy(graph);
    return NULL;
}

/* Appends ", backward by cuDNN (0.2 ms, not 0.3 ms)" or the like. */
static void choose_pass(struct attention_choice *choice, const struct trial *t,
                        struct attention_graph *graph, bool is_backward)
{
    const char *pass = is_backward ? ", backward" : ", forward";
    size_t used = strlen(choice->text), cap = sizeof(choice->text) - used;
    char *text = choice->text + used;
    const char *wrong = "not of cuDNN, which has none";
    size_t scratch = attention_scratch(t->cuda, t->attention);
    float ours, theirs;

    if (graph != NULL) {
        wrong = "not of cuDNN, for lack of memory";
        if (cuda_scratch_reserve(t->cuda, scratch + attention_graph_workspace(graph)) == RC_OK) {
            wrong = trial_compare(t, graph, is_backward);
        }
    }
    if (wrong != NULL) {
        snprintf(text, cap, "%s by our own kernels (%s)", pass, wrong);
        attention_graph_destroy(graph);
        return;
    }
    ours = trial_ms(t, NULL, is_backward);
    theirs = trial_ms(t, graph, is_backward);
    if (theirs > 0.0F && theirs < (float)LIMIT * ours) {
        choice->graphs[is_backward] = graph;
        snprintf(text, cap, "%s by cuDNN (%.3f ms, ours %.3f ms)", pass, (double)theirs,
                 (double)ours);
        return;
    }
    snprintf(text, cap, "%s by our own kernels (%.3f ms, cuDNN %.3f ms)", pass, (double)ours,
             (double)theirs);
    attention_graph_destroy(graph);
}

static void choose_by_trial(struct cuda_backend *cuda, struct attention_choice *choice)
{
    const struct attention *attention = &choice->attention;
    struct attention_graph *graphs[] = {graph_of(cuda, attention, false),
                                        graph_of(cuda, attention, true)};
    struct trial trial = {.cuda = cuda, .attention = attention};
    struct cuda_group *group = cuda->group;
    size_t used = strlen(choice->text);
    char why[sizeof(cuda->why)];

    trial.values = (size_t)attention->samples * attention->steps * attention->width;
    memcpy(why, cuda->why, sizeof(why));
    cuda->group = NULL; /* a refusal on trial is nothing that other GPUs must know */
    if ((graphs[0] != NULL || graphs[1] != NULL) && trial_begin(&trial)) {
        choose_pass(choice, &trial, graphs[0], false);
        choose_pass(choice, &trial, graphs[1], true);
    } else {
        attention_graph_destroy(graphs[0]);
        attention_graph_destroy(graphs[1]);
        snprintf(choice->text + used, sizeof(choice->text) - used,
                 ", by our own kernels (cuDNN has none, or out of memory)");
    }
    trial_end(&trial);
    if (cudaStreamSynchronize(cuda->stream) == cudaSuccess) { /* what failed did no harm */
        memcpy(cuda->why, why, sizeof(why));
        cuda->is_lost = false;
    }
    cuda->group = group;
    if (cuda->is_lost) cuda_group_abort(cuda);
}

static void choose(struct cuda_backend *cuda, struct attention_choice *choice)
{
    const struct attention *attention = &choice->attention;
    uint32_t head_width = attention->width / attention->heads;
    double work =
        (double)attention->samples * attention->steps * attention->steps * attention->width;
    size_t used;

    snprintf(choice->text, sizeof(choice->text), "attention of %u x %u steps, %u heads of %u%s%s",
             attention->samples, attention->steps, attention->heads, head_width,
             attention->is_causal ? ", causal" : "", attention->is_rotary ? ", rotary" : "");
    used = strlen(choice->text);
    if (cuda->is_bf16 && work >= WORK_MIN && head_width % 8 == 0 && !cuda->is_lost) {
        choose_by_trial(cuda, choice);
    } else {
        snprintf(choice->text + used, sizeof(choice->text) - used, ", by our own kernels");
    }
}

void attention_choose(struct cuda_backend *cuda, const struct attention *attention)
{
    struct attention_choice *choice = choice_of(cuda, attention), **at = &cuda->attention;

    if (choice == NULL) {
        choice = mem_alloc(sizeof(*choice));
        if (choice == NULL) return;
        choice->attention = *attention;
        choose(cuda, choice);
    } else {
        while (*at != choice) {
            at = &(*at)->next;
        }
        *at = choice->next;
    }
    choice->next = cuda->attention; /* the last one comes first */
    cuda->attention = choice;
    cuda_tell(cuda, choice->text);
}

struct attention_graph *attention_chosen(const struct cuda_backend *cuda,
                                         const struct attention *attention, bool is_backward)
{
    struct attention_choice *choice = choice_of(cuda, attention);

    return choice != NULL ? choice->graphs[is_backward] : NULL;
}

void cuda_attention_forget(struct cuda_backend *cuda)
{
    while (cuda->attention != NULL) {
        struct attention_choice *choice = cuda->attention;

        cuda->attention = choice->next;
        attention_graph_destroy(choice->graphs[0]);
        attention_graph_destroy(choice->graphs[1]);
        mem_free(choice);
    }
}

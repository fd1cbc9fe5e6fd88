/*
 * Uploads that wait for nothing: they pass through page-locked pieces, so that a caller may change
 * its memory at once while the copy waits for its turn. All but short ones cross the bus on a
 * stream of their own, while earlier calls still compute, and land beside where they belong; only
 * the copy from there waits for its turn. There is room for LANDINGS of LANDING_BYTES_MAX, taken
 * when first wanted: up to so much a step, uploads overlap with the step before.
 */
#include "base/mem.h"
#include "kernels/cuda/internal.h"

#include <string.h>

enum { PIECES = 8, LANDINGS = 4 };
#define PIECE_BYTES       ((size_t)2 << 20)
#define LANDING_BYTES_MAX ((size_t)64 << 20)
#define SHORT_BYTES       ((size_t)64 << 10) /* below, a second stream is not worth its calls */

/* Memory of the device. */
struct landing {
    void *block;
    size_t bytes;
    cudaEvent_t crossed; /* all of it is there */
    cudaEvent_t taken;   /* it may be used again */
};

struct cuda_upload {
    cudaStream_t stream;
    uint8_t *pieces;          /* page-locked */
    cudaEvent_t sent[PIECES]; /* the piece is free */
    uint32_t next_piece, next_landing;
    struct landing landings[LANDINGS];
};

/* At most a piece, on `stream`. */
static enum rc send(struct cuda_backend *cuda, cudaStream_t stream, void *to, const void *from,
                    size_t bytes)
{
    struct cuda_upload *upload = cuda->upload;
    uint32_t i = upload->next_piece;
    uint8_t *piece = upload->pieces + i * PIECE_BYTES;
    enum rc rc;

    upload->next_piece = (i + 1) % PIECES;
    CUDA_TRY(cuda, cudaEventSynchronize(upload->sent[i]));
    memcpy(piece, from, bytes);
    CUDA_TRY(cuda, cudaMemcpyAsync(to, piece, bytes, cudaMemcpyHostToDevice, stream));
    CUDA_TRY(cuda, cudaEventRecord(upload->sent[i], stream));
out:
    return rc;
}

static enum rc grow(struct cuda_backend *cuda, struct landing *landing, size_t bytes)
{
    enum rc rc = RC_OK;

    if (bytes <= landing->bytes) return RC_OK;
    CUDA_TRY(cuda, cudaFree(landing->block)); /* waits for its users */
    *landing = (struct landing){.crossed = landing->crossed, .taken = landing->taken};
    CUDA_TRY(cuda, cudaMalloc(&landing->block, bytes));
    landing->bytes = bytes;
out:
    return rc;
}

/* At most LANDING_BYTES_MAX. */
static enum rc land(struct cuda_backend *cuda, void *to, const char *from, size_t bytes)
{
    struct cuda_upload *upload = cuda->upload;
    struct landing *landing = &upload->landings[upload->next_landing];
    enum rc rc = grow(cuda, landing, bytes);

    if (rc != RC_OK) return rc;
    upload->next_landing = (upload->next_landing + 1) % LANDINGS;
    CUDA_TRY(cuda, cudaStreamWaitEvent(upload->stream, landing->taken, 0));
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t count = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        rc = send(cuda, upload->stream, (char *)landing->block + at, from + at, count);
        if (rc != RC_OK) return rc;
    }
    CUDA_TRY(cuda, cudaEventRecord(landing->crossed, upload->stream));
    CUDA_TRY(cuda, cudaStreamWaitEvent(cuda->stream, landing->crossed, 0));
    CUDA_TRY(cuda,
             cudaMemcpyAsync(to, landing->block, bytes, cudaMemcpyDeviceToDevice, cuda->stream));
    CUDA_TRY(cuda, cudaEventRecord(landing->taken, cuda->stream));
out:
    return rc;
}

enum rc cuda_upload_bytes(struct backend *backend, void *to, const void *from, size_t bytes)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc = RC_OK;

    CHECK(!cuda->is_recording);
    if (bytes == 0) return RC_OK;
    if (bytes <= SHORT_BYTES) return send(cuda, cuda->stream, to, from, bytes);
    for (size_t at = 0; rc == RC_OK && at < bytes; at += LANDING_BYTES_MAX) {
        size_t count = bytes - at < LANDING_BYTES_MAX ? bytes - at : LANDING_BYTES_MAX;
        rc = land(cuda, (char *)to + at, (const char *)from + at, count);
    }
    return rc;
}

enum rc cuda_upload_create(struct cuda_backend *cuda)
{
    struct cuda_upload *upload = mem_alloc(sizeof(*upload));
    enum rc rc = RC_NOMEM;

    if (upload == NULL) return RC_NOMEM;
    cuda->upload = upload;
    CUDA_TRY(cuda, cudaMallocHost((void **)&upload->pieces, PIECES * PIECE_BYTES));
    CUDA_TRY(cuda, cudaStreamCreateWithFlags(&upload->stream, cudaStreamNonBlocking));
    for (size_t i = 0; i < PIECES; i++) {
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&upload->sent[i], cudaEventDisableTiming));
    }
    for (size_t i = 0; i < LANDINGS; i++) {
        struct landing *landing = &upload->landings[i];
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&landing->crossed, cudaEventDisableTiming));
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&landing->taken, cudaEventDisableTiming));
    }
out:
    return rc;
}

void cuda_upload_destroy(struct cuda_backend *cuda)
{
    struct cuda_upload *upload = cuda->upload;

    if (upload == NULL) return;
    if (upload->stream != NULL) (void)cudaStreamSynchronize(upload->stream);
    for (size_t i = 0; i < PIECES; i++) {
        if (upload->sent[i] != NULL) (void)cudaEventDestroy(upload->sent[i]);
    }
    for (size_t i = 0; i < LANDINGS; i++) {
        struct landing *landing = &upload->landings[i];
        if (landing->crossed != NULL) (void)cudaEventDestroy(landing->crossed);
        if (landing->taken != NULL) (void)cudaEventDestroy(landing->taken);
        (void)cudaFree(landing->block);
    }
    if (upload->stream != NULL) (void)cudaStreamDestroy(upload->stream);
    if (upload->pieces != NULL) (void)cudaFreeHost(upload->pieces);
    mem_free(upload);
    cuda->upload = NULL;
}

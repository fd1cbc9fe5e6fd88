/*
 * Snapshots: kernels/snapshot.h says what they are. A copy of the plane is kept on the device; when
 * it is fetched, piece by piece is encoded there (codec.cu) and copied to page-locked memory, the
 * next piece while the last one travels:
 *
 *   compute stream   steps | take, take, seal |  steps ...                          apply | steps
 *   encoding                                  | encode 0 | encode 1 | encode 2 ...
 *   copying                                              | copy 0   | copy 1 ...   put
 *
 * Order   between streams by events only, so that take() and apply() never wait on the host. The
 *         two streams of our own have the lowest priority: training comes first.
 * Threads take(), take_host(), seal() and apply() belong to the backend's thread, the others to
 *         another one, whose failures are noted in a backend of its own (`aside`): a text must
 *         not be written by two threads. The next call of the backend's thread passes it on.
 * Memory  of the device: two planes and up to 32 MiB; page-locked: two encoded planes and as much.
 */
#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SLOTS = 2 }; /* of everything that is used in turn */
#define PIECE_BYTES_MAX ((size_t)16 << 20)
#define PIECES_LEAST    4 /* of a plane, so that something overlaps also with small ones */

struct snapshot_cuda {
    struct snapshot base; /* first */
    struct cuda_backend *cuda;
    struct cuda_backend aside; /* the same device for the other thread */
    atomic_bool is_lost_aside; /* aside.why is written and stays */
    struct snapshot_options options;
    size_t chunks, chunk_bytes, piece_chunks, part_values;
    cudaStream_t encoding, copying;

    float *plane;           /* on the device: what take() copied */
    uint8_t *pieces[SLOTS]; /* on the device: encoded, on their way */
    uint32_t *bad;          /* on the device: a value is not finite */
    float *difference;      /* on the device: what put() brought */

    uint8_t *encoded[SLOTS]; /* page-locked: chunks of the last fetch(), and of the one before */
    float *parts[SLOTS];     /* page-locked: what put() sends */
    uint32_t *bad_here;      /* page-locked */
    uint32_t encoded_slot, part_slot;

    cudaEvent_t sealed;        /* the plane is whole */
    cudaEvent_t is_read;       /* and has been encoded */
    cudaEvent_t ready[SLOTS];  /* a piece is encoded */
    cudaEvent_t copied[SLOTS]; /* and has left */
    cudaEvent_t fetched;       /* all of them have */
    cudaEvent_t sent[SLOTS];   /* a part has left */
    cudaEvent_t put;           /* all of them have */
    cudaEvent_t applied;       /* the difference has been read */
};

static struct snapshot_cuda *snapshot_of(struct snapshot *snapshot)
{
    return (struct snapshot_cuda *)snapshot;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- the backend's thread ----------------------------------------------------------------------*/

static enum rc enter(struct snapshot_cuda *s)
{
    struct cuda_backend *cuda = s->cuda;

    CHECK(!cuda->is_recording);
    if (atomic_load(&s->is_lost_aside) && !cuda->is_lost) {
        memcpy(cuda->why, s->aside.why, sizeof(cuda->why));
        cuda->is_lost = true;
        cuda_group_abort(cuda); /* nobody has told the others yet */
    }
    return CUDA_CHECK(cuda, cudaSetDevice(cuda->device));
}

static enum rc copy_in(struct snapshot_cuda *s, size_t first, const float *from, size_t count,
                       enum cudaMemcpyKind kind)
{
    struct cuda_backend *cuda = s->cuda;
    enum rc rc = enter(s);

    CHECK(first <= s->options.values && count <= s->options.values - first);
    if (rc != RC_OK || count == 0) return rc;
    CUDA_TRY(cuda, cudaStreamWaitEvent(cuda->stream, s->is_read, 0)); /* by the fetch before */
    CUDA_TRY(cuda,
             cudaMemcpyAsync(s->plane + first, from, count * sizeof(float), kind, cuda->stream));
    if (kind == cudaMemcpyHostToDevice) CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream));
out:
    return rc;
}

static enum rc snapshot_take(struct snapshot *snapshot, size_t first, const float *from,
                             size_t count)
{
    return copy_in(snapshot_of(snapshot), first, from, count, cudaMemcpyDeviceToDevice);
}

static enum rc snapshot_take_host(struct snapshot *snapshot, size_t first, const float *from,
                                  size_t count)
{
    return copy_in(snapshot_of(snapshot), first, from, count, cudaMemcpyHostToDevice);
}

static enum rc snapshot_seal(struct snapshot *snapshot)
{
    struct snapshot_cuda *s = snapshot_of(snapshot);
    enum rc rc = enter(s);

    if (rc != RC_OK) return rc;
    return CUDA_CHECK(s->cuda, cudaEventRecord(s->sealed, s->cuda->stream));
}

static enum rc snapshot_apply(struct snapshot *snapshot, size_t first, float *y, size_t count)
{
    struct snapshot_cuda *s = snapshot_of(snapshot);
    struct cuda_backend *cuda = s->cuda;
    enum rc rc = enter(s);

    CHECK(first <= s->options.values && count <= s->options.values - first);
    if (rc != RC_OK || count == 0) return rc;
    CUDA_TRY(cuda, cudaStreamWaitEvent(cuda->stream, s->put, 0));
    rc = cuda_axpy(&cuda->base, 1.0F, s->difference + first, y, count);
    if (rc != RC_OK) return rc;
    CUDA_TRY(cuda, cudaEventRecord(s->applied, cuda->stream));
out:
    return rc;
}

/* --- the other thread --------------------------------------------------------------------------*/

static enum rc leave(struct snapshot_cuda *s, enum rc rc)
{
    if (s->aside.is_lost) atomic_store(&s->is_lost_aside, true);
    return rc;
}

/* Chunks [first, first + count). What waits for an event that was never recorded waits for
 * nothing. */
static enum rc send_piece(struct snapshot_cuda *s, size_t first, size_t count, size_t slot)
{
    struct cuda_backend *cuda = &s->aside;
    const struct snapshot_options *o = &s->options;
    size_t begin = first * o->chunk_values;
    size_t values = smaller(count * o->chunk_values, o->values - begin);
    size_t whole = values / o->chunk_values;
    size_t bytes = whole * s->chunk_bytes + codec_bytes(o->format, values % o->chunk_values);
    enum rc rc;

    CUDA_TRY(cuda, cudaStreamWaitEvent(s->encoding, s->copied[slot], 0));
    rc = cuda_encode(cuda, s->encoding, o->format, s->plane + begin, values, o->chunk_values,
                     s->pieces[slot], s->bad);
    if (rc != RC_OK) return rc;
    CUDA_TRY(cuda, cudaEventRecord(s->ready[slot], s->encoding));
    CUDA_TRY(cuda, cudaStreamWaitEvent(s->copying, s->ready[slot], 0));
    CUDA_TRY(cuda, cudaMemcpyAsync(s->encoded[s->encoded_slot] + first * s->chunk_bytes,
                                   s->pieces[slot], bytes, cudaMemcpyDeviceToHost, s->copying));
    CUDA_TRY(cuda, cudaEventRecord(s->copied[slot], s->copying));
out:
    return rc;
}

static enum rc snapshot_fetch(struct snapshot *snapshot)
{
    struct snapshot_cuda *s = snapshot_of(snapshot);
    struct cuda_backend *cuda = &s->aside;
    enum rc rc;

    s->encoded_slot = (s->encoded_slot + 1) % SLOTS;
    CUDA_TRY(cuda, cudaSetDevice(cuda->device));
    CUDA_TRY(cuda, cudaStreamWaitEvent(s->encoding, s->sealed, 0));
    CUDA_TRY(cuda, cudaMemsetAsync(s->bad, 0, sizeof(*s->bad), s->encoding));
    for (size_t chunk = 0, i = 0; chunk < s->chunks; chunk += s->piece_chunks, i++) {
        rc = send_piece(s, chunk, smaller(s->piece_chunks, s->chunks - chunk), i % SLOTS);
        if (rc != RC_OK) goto out;
    }
    CUDA_TRY(cuda, cudaEventRecord(s->is_read, s->encoding));
    CUDA_TRY(cuda, cudaStreamWaitEvent(s->copying, s->is_read, 0));
    CUDA_TRY(cuda, cudaMemcpyAsync(s->bad_here, s->bad, sizeof(*s->bad), cudaMemcpyDeviceToHost,
                                   s->copying));
    CUDA_TRY(cuda, cudaEventRecord(s->fetched, s->copying));
    CUDA_TRY(cuda, cudaEventSynchronize(s->fetched));
    if (*s->bad_here != 0) rc = RC_NONFINITE;
out:
    return leave(s, rc);
}

static const uint8_t *snapshot_chunk(struct snapshot *snapshot, size_t i, size_t *bytes)
{
    struct snapshot_cuda *s = snapshot_of(snapshot);
    const struct snapshot_options *o = &s->options;

    CHECK(i < s->chunks);
    *bytes = codec_bytes(o->format, smaller(o->chunk_values, o->values - i * o->chunk_values));
    return s->encoded[s->encoded_slot] + i * s->chunk_bytes;
}

/* Values [at, at + count): while they are copied to page-locked memory the part before travels. */
static enum rc send_part(struct snapshot_cuda *s, const float *difference, size_t at, size_t count)
{
    struct cuda_backend *cuda = &s->aside;
    uint32_t slot = s->part_slot;
    enum rc rc;

    s->part_slot = (slot + 1) % SLOTS;
    CUDA_TRY(cuda, cudaEventSynchronize(s->sent[slot]));
    memcpy(s->parts[slot], difference + at, count * sizeof(float));
    CUDA_TRY(cuda, cudaMemcpyAsync(s->difference + at, s->parts[slot], count * sizeof(float),
                                   cudaMemcpyHostToDevice, s->copying));
    CUDA_TRY(cuda, cudaEventRecord(s->sent[slot], s->copying));
out:
    return rc;
}

static enum rc snapshot_put(struct snapshot *snapshot, const float *difference, size_t values)
{
    struct snapshot_cuda *s = snapshot_of(snapshot);
    struct cuda_backend *cuda = &s->aside;
    enum rc rc;

    CHECK(values <= s->options.values);
    CUDA_TRY(cuda, cudaSetDevice(cuda->device));
    CUDA_TRY(cuda, cudaStreamWaitEvent(s->copying, s->applied, 0)); /* the one before was read */
    for (size_t at = 0; at < values; at += s->part_values) {
        rc = send_part(s, difference, at, smaller(s->part_values, values - at));
        if (rc != RC_OK) goto out;
    }
    CUDA_TRY(cuda, cudaEventRecord(s->put, s->copying));
    CUDA_TRY(cuda, cudaEventSynchronize(s->put));
out:
    return leave(s, rc);
}

/* --- life --------------------------------------------------------------------------------------*/

static void destroy_event(cudaEvent_t event)
{
    if (event != NULL) (void)cudaEventDestroy(event);
}

static void destroy_stream(cudaStream_t stream)
{
    if (stream == NULL) return;
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
}

static void snapshot_destroy(struct snapshot *snapshot)
{
    struct snapshot_cuda *s = snapshot_of(snapshot);

    if (s == NULL) return;
    (void)cudaSetDevice(s->cuda->device);
    (void)cudaStreamSynchronize(s->cuda->stream); /* takes and applies still queued */
    destroy_stream(s->encoding);
    destroy_stream(s->copying);
    for (size_t i = 0; i < SLOTS; i++) {
        (void)cudaFree(s->pieces[i]);
        (void)cudaFreeHost(s->encoded[i]);
        (void)cudaFreeHost(s->parts[i]);
        destroy_event(s->ready[i]);
        destroy_event(s->copied[i]);
        destroy_event(s->sent[i]);
    }
    (void)cudaFree(s->plane);
    (void)cudaFree(s->bad);
    (void)cudaFree(s->difference);
    (void)cudaFreeHost(s->bad_here);
    destroy_event(s->sealed);
    destroy_event(s->is_read);
    destroy_event(s->fetched);
    destroy_event(s->put);
    destroy_event(s->applied);
    mem_free(s);
}

static const struct snapshot_ops snapshot_ops = {
    .destroy = snapshot_destroy,
    .take = snapshot_take,
    .take_host = snapshot_take_host,
    .seal = snapshot_seal,
    .fetch = snapshot_fetch,
    .chunk = snapshot_chunk,
    .put = snapshot_put,
    .apply = snapshot_apply,
};

static void measure(struct snapshot_cuda *s)
{
    const struct snapshot_options *o = &s->options;
    size_t most;

    s->chunks = (o->values + o->chunk_values - 1) / o->chunk_values;
    s->chunk_bytes = codec_bytes(o->format, o->chunk_values);
    most = PIECE_BYTES_MAX / s->chunk_bytes;
    s->piece_chunks = smaller((s->chunks + PIECES_LEAST - 1) / PIECES_LEAST, most);
    if (s->piece_chunks == 0) s->piece_chunks = 1;
    s->part_values =
        smaller((o->values + PIECES_LEAST - 1) / PIECES_LEAST, PIECE_BYTES_MAX / sizeof(float));
    if (s->part_values == 0) s->part_values = 1;
}

/* At least a byte, so that nothing is NULL. */
static enum rc lock_pages(struct cuda_backend *cuda, size_t bytes, void **block)
{
    enum rc rc = CUDA_CHECK(cuda, cudaMallocHost(block, bytes > 0 ? bytes : 1));

    if (rc == RC_NOMEM) {
        snprintf(cuda->why, sizeof(cuda->why),
                 "GPU %d: the system does not give it %zu MiB of page-locked memory for snapshots",
                 cuda->device, (bytes >> 20) + 1);
    }
    return rc;
}

/* Those that the host waits for let it sleep. */
static enum rc make_events(struct snapshot_cuda *s)
{
    struct cuda_backend *cuda = s->cuda;
    const unsigned plain = cudaEventDisableTiming, sleeps = plain | cudaEventBlockingSync;
    enum rc rc;

    CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->sealed, plain));
    CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->is_read, plain));
    CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->applied, plain));
    CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->fetched, sleeps));
    CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->put, sleeps));
    for (size_t i = 0; i < SLOTS; i++) {
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->ready[i], plain));
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->copied[i], plain));
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&s->sent[i], sleeps));
    }
out:
    return rc;
}

static enum rc make_streams(struct snapshot_cuda *s)
{
    struct cuda_backend *cuda = s->cuda;
    int least = 0, greatest = 0;
    enum rc rc;

    CUDA_TRY(cuda, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cuda, cudaStreamCreateWithPriority(&s->encoding, cudaStreamNonBlocking, least));
    CUDA_TRY(cuda, cudaStreamCreateWithPriority(&s->copying, cudaStreamNonBlocking, least));
out:
    return rc;
}

static enum rc take_memory(struct snapshot_cuda *s)
{
    struct cuda_backend *cuda = s->cuda;
    size_t plane_bytes = (s->options.values > 0 ? s->options.values : 1) * sizeof(float);
    size_t part_bytes = s->part_values * sizeof(float);
    enum rc rc;

    CUDA_TRY(cuda, cudaMalloc((void **)&s->plane, plane_bytes));
    CUDA_TRY(cuda, cudaMalloc((void **)&s->difference, plane_bytes));
    CUDA_TRY(cuda, cudaMalloc((void **)&s->bad, sizeof(*s->bad)));
    CUDA_TRY(cuda, cudaMemsetAsync(s->plane, 0, plane_bytes, cuda->stream));
    CUDA_TRY(cuda, cudaMemsetAsync(s->difference, 0, plane_bytes, cuda->stream));
    rc = lock_pages(cuda, sizeof(*s->bad_here), (void **)&s->bad_here);
    for (size_t i = 0; i < SLOTS && rc == RC_OK; i++) {
        CUDA_TRY(cuda, cudaMalloc((void **)&s->pieces[i], s->piece_chunks * s->chunk_bytes));
        rc = lock_pages(cuda, s->chunks * s->chunk_bytes, (void **)&s->encoded[i]);
        if (rc == RC_OK) rc = lock_pages(cuda, part_bytes, (void **)&s->parts[i]);
    }
out:
    return rc;
}

enum rc cuda_snapshot_create(struct backend *backend, const struct snapshot_options *options,
                             struct snapshot **snapshot)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct snapshot_cuda *s = mem_alloc(sizeof(*s));
    enum rc rc = RC_NOMEM;

    CHECK(!cuda->is_recording && options->chunk_values > 0);
    if (s == NULL) return RC_NOMEM;
    s->base.ops = &snapshot_ops;
    s->cuda = cuda;
    s->aside.device = cuda->device;
    s->options = *options;
    atomic_init(&s->is_lost_aside, false);
    measure(s);
    CUDA_TRY(cuda, cudaSetDevice(cuda->device));
    rc = make_streams(s);
    if (rc == RC_OK) rc = make_events(s);
    if (rc == RC_OK) rc = take_memory(s);
    if (rc != RC_OK) goto out;
    CUDA_TRY(cuda, cudaEventRecord(s->applied, cuda->stream)); /* put() is behind the zeros */
    *snapshot = &s->base;
    return RC_OK;
out:
    snapshot_destroy(&s->base);
    return rc;
}

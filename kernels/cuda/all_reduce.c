/*
 * Several GPUs of one machine as one replica: a backend for each, joined by NCCL (ncclAllReduce(),
 * a sum in place). Each rank has a thread of its own, and a stream, and may record its calls into a
 * graph of its own; ranks meet when their streams come to the call, so that all must make the same
 * calls in the same order.
 *
 * Beside   sums may also go on a stream of their own, beside the calls that follow: it waits for
 *          those before, and who needs the sums has the first stream wait for it. Calls of NCCL
 *          still run one after the other on each rank.
 *
 * NCCL     is opened when a group is made: one GPU does without it, and so do machines that lack
 * it.
 *
 * Threads  ranks share the group only: counts and communicators, which are atomic. The backend of
 *          rank 0 is there first; the others wait in the group until they are asked for.
 * Failure  the kernel of a rank spins until its peers have come. So a rank that fails aborts the
 *          communicators of all, which lets the others go on to their next all-reduce and fail
 *          there. To abort frees a communicator, so a call that another thread has entered comes
 *          out first: it only queues, in an instant, unless NCCL hangs in it, and then after
 *          CALL_MS the abort is what ends it.
 * Ending   communicators are destroyed by the last rank that leaves; recordings, which hold on to
 *          them, must be gone by then, or NCCL waits for them.
 */
#include "base/mem.h"
#include "kernels/cuda/internal.h"

#include <dlfcn.h>
#include <nccl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>

enum { CALL_MS = 10000 };

/* The calls of the library. */
struct nccl {
    __typeof__(ncclCommInitAll) *init_all;
    __typeof__(ncclAllReduce) *all_reduce;
    __typeof__(ncclCommAbort) *abort;
    __typeof__(ncclCommDestroy) *destroy;
    __typeof__(ncclGetErrorString) *error_string;
    __typeof__(ncclGetLastError) *last_error;
};

struct cuda_group {
    struct nccl nccl;
    uint32_t ranks;
    atomic_uint present; /* backends that have not left */
    atomic_uint handed;  /* ranks given out, rank 0 among them */
    _Atomic(ncclComm_t) comms[CUDA_DEVICES_MAX];
    atomic_bool is_calling[CUDA_DEVICES_MAX];  /* the rank is within a call of NCCL */
    struct backend *waiting[CUDA_DEVICES_MAX]; /* not given out yet */
};

#ifdef GRAPEVINE_VIRTUAL_DEVICE
static enum rc nccl_open(struct nccl *nccl, struct fault *why)
{
    (void)why;
    *nccl = (struct nccl){ncclCommInitAll, ncclAllReduce,      ncclCommAbort,
                          ncclCommDestroy, ncclGetErrorString, ncclGetLastError};
    return RC_OK;
}
#else
/* It stays open until the process ends. */
static enum rc nccl_open(struct nccl *nccl, struct fault *why)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    const char *reason = library == NULL ? dlerror() : NULL;
    const struct {
        const char *name;
        void **call;
    } wanted[] = {
        {"ncclCommInitAll", (void **)&nccl->init_all},
        {"ncclAllReduce", (void **)&nccl->all_reduce},
        {"ncclCommAbort", (void **)&nccl->abort},
        {"ncclCommDestroy", (void **)&nccl->destroy},
        {"ncclGetErrorString", (void **)&nccl->error_string},
        {"ncclGetLastError", (void **)&nccl->last_error},
    };

    for (size_t i = 0; library != NULL && i < ARRAY_COUNT(wanted); i++) {
        *wanted[i].call = dlsym(library, wanted[i].name);
        if (*wanted[i].call == NULL) reason = wanted[i].name;
    }
    if (reason == NULL) return RC_OK;
    return fault_set(why, RC_UNSUPPORTED, "several GPUs need NCCL: %s", reason);
}
#endif

/* Its later calls find no communicator: it says that it calls, and then looks for one. */
static void wait_for_call(const struct cuda_group *group, uint32_t rank)
{
    for (int ms = 0; ms < CALL_MS && atomic_load(&group->is_calling[rank]); ms++) {
        (void)poll(NULL, 0, 1);
    }
}

static void group_abort(struct cuda_group *group)
{
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        ncclComm_t comm = atomic_exchange(&group->comms[rank], NULL);
        if (comm == NULL) continue;
        wait_for_call(group, rank);
        (void)group->nccl.abort(comm);
    }
}

void cuda_group_abort(struct cuda_backend *cuda)
{
    if (cuda->group != NULL) group_abort(cuda->group);
}

static enum rc other_failed(struct cuda_backend *cuda)
{
    if (cuda->why[0] == '\0') {
        snprintf(cuda->why, sizeof(cuda->why), "GPU %d: another GPU of the replica failed",
                 cuda->device);
    }
    cuda->is_lost = true;
    return RC_DEVICE;
}

static enum rc reduce_on(struct cuda_backend *cuda, cudaStream_t stream, float *x, size_t n)
{
    struct cuda_group *group = cuda->group;
    ncclComm_t comm;
    ncclResult_t result = ncclSuccess;
    enum rc rc;

    if (cuda->is_lost) {
        cuda_group_abort(cuda);
        return RC_DEVICE;
    }
    if (group == NULL || n == 0) return RC_OK;
    atomic_store(&group->is_calling[cuda->rank], true);
    comm = atomic_load(&group->comms[cuda->rank]);
    if (comm != NULL) {
        result = group->nccl.all_reduce(x, x, n, ncclFloat32, ncclSum, comm, stream);
    }
    atomic_store(&group->is_calling[cuda->rank], false);
    if (comm == NULL) return other_failed(cuda);
    rc = cuda_check_text(cuda, result == ncclSuccess ? NULL : group->nccl.error_string(result),
                         "ncclAllReduce", __FILE__, __LINE__);
    if (cuda->is_lost) cuda_group_abort(cuda); /* but not if it could not be recorded */
    return rc;
}

enum rc cuda_all_reduce(struct backend *backend, float *x, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);

    return reduce_on(cuda, cuda->stream, x, n);
}

enum rc cuda_all_reduce_begin(struct backend *backend, float *x, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    if (cuda->group == NULL || n == 0) return RC_OK;
    CUDA_TRY(cuda, cudaEventRecord(cuda->forked, cuda->stream));
    CUDA_TRY(cuda, cudaStreamWaitEvent(cuda->beside, cuda->forked, 0));
    rc = reduce_on(cuda, cuda->beside, x, n);
out:
    return rc;
}

enum rc cuda_all_reduce_end(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    if (cuda->group == NULL) return RC_OK;
    CUDA_TRY(cuda, cudaEventRecord(cuda->joined, cuda->beside));
    CUDA_TRY(cuda, cudaStreamWaitEvent(cuda->stream, cuda->joined, 0));
out:
    return rc;
}

void cuda_all_reduce_abort(struct backend *backend)
{
    cuda_group_abort(cuda_of(backend));
}

struct backend *cuda_sibling(struct backend *backend)
{
    struct cuda_group *group = cuda_of(backend)->group;
    struct backend *sibling;
    uint32_t rank;

    if (group == NULL) return NULL;
    rank = atomic_fetch_add(&group->handed, 1);
    if (rank >= group->ranks) {
        atomic_fetch_sub(&group->handed, 1);
        return NULL;
    }
    sibling = group->waiting[rank];
    group->waiting[rank] = NULL;
    return sibling;
}

void cuda_group_leave(struct cuda_backend *cuda)
{
    struct cuda_group *group = cuda->group;

    if (group == NULL) return;
    if (cuda->is_lost) group_abort(group);
    cuda->group = NULL;
    for (uint32_t rank = 1; cuda->rank == 0 && rank < group->ranks; rank++) {
        backend_destroy(group->waiting[rank]); /* which nobody asked for; they leave, too */
        group->waiting[rank] = NULL;
    }
    cuda->base.ops->bind_thread(&cuda->base); /* its device again, after theirs */
    if (atomic_fetch_sub(&group->present, 1) > 1) return;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        ncclComm_t comm = atomic_exchange(&group->comms[rank], NULL);
        if (comm != NULL) (void)group->nccl.destroy(comm);
    }
    mem_free(group);
}

/* Of a rank, for sums beside its other calls: they keep others waiting, so they go first. */
static enum rc take_stream(struct cuda_backend *cuda)
{
    int least = 0, greatest = 0;
    enum rc rc;

    cuda->base.ops->bind_thread(&cuda->base);
    CUDA_TRY(cuda, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cuda, cudaStreamCreateWithPriority(&cuda->beside, cudaStreamNonBlocking, greatest));
    CUDA_TRY(cuda, cudaEventCreateWithFlags(&cuda->forked, cudaEventDisableTiming));
    CUDA_TRY(cuda, cudaEventCreateWithFlags(&cuda->joined, cudaEventDisableTiming));
out:
    return rc;
}

/* The communicators, and with them the group's members. */
static enum rc group_join(struct cuda_group *group, struct backend *const *backends,
                          const struct cuda_backend_options *options, struct fault *why)
{
    ncclComm_t comms[CUDA_DEVICES_MAX] = {NULL};
    int devices[CUDA_DEVICES_MAX];
    ncclResult_t result;
    enum rc rc = nccl_open(&group->nccl, why);

    if (rc != RC_OK) return rc;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        struct cuda_backend *cuda = cuda_of(backends[rank]);
        devices[rank] = (int)options->devices[rank];
        rc = take_stream(cuda);
        if (rc != RC_OK) return fault_set(why, rc, "%s", cuda->why);
    }
    result = group->nccl.init_all(comms, (int)group->ranks, devices);
    if (result != ncclSuccess) {
        return fault_set(why, RC_DEVICE, "NCCL cannot join %u GPUs: %s: %s", group->ranks,
                         group->nccl.error_string(result), group->nccl.last_error(NULL));
    }
    atomic_init(&group->present, group->ranks);
    atomic_init(&group->handed, 1);
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        struct cuda_backend *cuda = cuda_of(backends[rank]);

        atomic_init(&group->comms[rank], comms[rank]);
        group->waiting[rank] = rank > 0 ? backends[rank] : NULL;
        cuda->group = group;
        cuda->rank = rank;
        cuda->base.is_apart = true;
        cuda->base.threads = rank > 0 ? 1 : group->ranks;
    }
    return RC_OK;
}

enum rc cuda_group_create(const struct cuda_backend_options *options, struct backend **first,
                          struct fault *why)
{
    struct backend *backends[CUDA_DEVICES_MAX] = {NULL};
    struct cuda_group *group = mem_alloc(sizeof(*group));
    enum rc rc = RC_OK;

    if (group == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    CHECK(options->devices_count > 0 && options->devices_count <= CUDA_DEVICES_MAX);
    group->ranks = options->devices_count;
    for (uint32_t rank = 0; rc == RC_OK && rank < group->ranks; rank++) {
        rc = cuda_single_create(options->devices[rank], options->is_bf16, &backends[rank], why);
    }
    if (rc == RC_OK) rc = group_join(group, backends, options, why);
    if (rc == RC_OK) {
        backends[0]->ops->bind_thread(backends[0]); /* the caller's device is the first again */
        *first = backends[0];
        return RC_OK;
    }
    for (uint32_t rank = group->ranks; rank-- > 0;) {
        backend_destroy(backends[rank]);
    }
    mem_free(group);
    return rc;
}

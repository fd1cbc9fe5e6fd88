/*
 * A stand-in for NCCL 2.28 within one process, after nccl.h and the NCCL user guide: communicators,
 * groups of calls, and all-reduce.
 *
 * The ranks of a clique meet at their n-th calls as their streams run them: none goes on before all
 * have come, so that a rank that never calls is a deadlock, as on GPUs, and what differs between
 * the ranks aborts. Sums go by rank, so that all get equal bits. Calls may be captured: a graph
 * meets the other ranks' each time that it runs. Destroying a communicator that graphs still refer
 * to would never return, so it aborts; so does aborting one that another thread is in a call with.
 */
#include "tests/cuda/virtual/library.h"
#include "tests/cuda/virtual/state.h"

#include <atomic>
#include <chrono>
#include <nccl.h>
#include <stdio.h>

static const int JOIN_SECONDS = 60, RANKS_MAX = 64;

/* One all-reduce: where the ranks meet. */
struct meeting {
    size_t count, arrived, taken;
    ncclDataType_t type;
    ncclRedOp_t operation;
    const void *from[RANKS_MAX];
    std::vector<float> result;
};

struct clique {
    std::mutex mutex;
    std::condition_variable joined;
    int ranks, members;
    bool is_aborted;
    int devices[RANKS_MAX]; /* -1: not joined yet */
    std::map<uint64_t, struct meeting> meetings;
};

/* A queued or captured call; runs once, or as often as its graph. */
struct turn {
    bool has_arrived;
    uint64_t number; /* of the meeting */
};

struct ncclComm {
    std::shared_ptr<struct clique> clique;
    int rank, device;
    std::atomic<int> calls; /* that threads are in */
    uint64_t next;          /* number of the next meeting, counted as calls run */
    std::vector<std::weak_ptr<struct turn>> turns;
};

struct group {
    int depth;
    std::vector<std::function<ncclResult_t()>> calls;
    ncclResult_t result;
};

static thread_local char last_error[160];

static struct group &current_group(void)
{
    static thread_local struct group group;

    return group;
}

static ncclResult_t refuse(ncclResult_t result, const char *reason)
{
    snprintf(last_error, sizeof(last_error), "%s", reason);
    if (current_group().depth > 0) current_group().result = result;
    return result;
}

static ncclResult_t enter(void)
{
    if (virtual_call() == cudaSuccess) return ncclSuccess;
    return refuse(ncclUnhandledCudaError, "the device is lost");
}

extern "C" const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

extern "C" const char *ncclGetLastError(ncclComm_t comm)
{
    return last_error;
}

extern "C" ncclResult_t ncclGetVersion(int *version)
{
    if (version == NULL) return refuse(ncclInvalidArgument, "version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* --- groups ------------------------------------------------------------------------------------*/

extern "C" ncclResult_t ncclGroupStart(void)
{
    current_group().depth++;
    return ncclSuccess;
}

/* Everything is done here; the first error is the group's. */
extern "C" ncclResult_t ncclGroupEnd(void)
{
    struct group &group = current_group();
    ncclResult_t result;

    if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd() without a group");
    if (--group.depth > 0) return ncclSuccess;
    std::vector<std::function<ncclResult_t()>> calls = std::move(group.calls);
    group.calls.clear();
    result = group.result;
    group.result = ncclSuccess;
    for (auto &call : calls) {
        if (result == ncclSuccess) result = call();
    }
    return result;
}

static ncclResult_t now_or_in_group(std::function<ncclResult_t()> call)
{
    struct group &group = current_group();

    if (group.depth == 0) return call();
    group.calls.push_back(std::move(call));
    return ncclSuccess;
}

/* --- communicators -----------------------------------------------------------------------------*/

static std::shared_ptr<struct clique> clique_create(int ranks)
{
    std::shared_ptr<struct clique> clique = std::make_shared<struct clique>();

    clique->ranks = ranks;
    for (int &device : clique->devices) {
        device = -1;
    }
    return clique;
}

static ncclComm_t join(const std::shared_ptr<struct clique> &clique, int rank, int device)
{
    ncclComm_t comm = new ncclComm();

    comm->clique = clique;
    comm->rank = rank;
    comm->device = device;
    clique->devices[rank] = device;
    clique->members++;
    clique->joined.notify_all();
    return comm;
}

static bool has_device(const struct clique *clique, int device)
{
    for (int other : clique->devices) {
        if (other == device) return true;
    }
    return false;
}

extern "C" ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    ncclResult_t result = enter();
    int devices = 0;

    if (result != ncclSuccess) return result;
    if (comms == NULL || ndev < 1 || ndev > RANKS_MAX) {
        return refuse(ncclInvalidArgument, "comm or ndev");
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess) return refuse(ncclUnhandledCudaError, "count");
    std::shared_ptr<struct clique> clique = clique_create(ndev);
    for (int rank = 0; rank < ndev; rank++) {
        int device = devlist != NULL ? devlist[rank] : rank;
        if (device < 0 || device >= devices)
            return refuse(ncclUnhandledCudaError, "no such device");
        if (has_device(clique.get(), device)) return refuse(ncclInvalidUsage, "duplicate GPU");
        clique->devices[rank] = device;
    }
    for (int rank = 0; rank < ndev; rank++) {
        comms[rank] = join(clique, rank, clique->devices[rank]);
    }
    return ncclSuccess;
}

static std::mutex &cliques_mutex(void)
{
    static std::mutex mutex;

    return mutex;
}

/* By unique id, of cliques that wait for ranks. */
static std::map<uint64_t, std::shared_ptr<struct clique>> &waiting_cliques(void)
{
    static std::map<uint64_t, std::shared_ptr<struct clique>> cliques;

    return cliques;
}

extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static uint64_t ids;
    std::lock_guard<std::mutex> lock(cliques_mutex());

    if (id == NULL) return refuse(ncclInvalidArgument, "uniqueId is NULL");
    memset(id, 0, sizeof(*id));
    ids++;
    memcpy(id->internal, &ids, sizeof(ids));
    return ncclSuccess;
}

/* Joins; whether all are there is waited for apart, so that a group can join several ranks. */
static ncclResult_t join_by_id(ncclComm_t *comm, int ranks, uint64_t id, int rank, int device,
                               std::shared_ptr<struct clique> *joined)
{
    std::lock_guard<std::mutex> lock(cliques_mutex());
    std::shared_ptr<struct clique> &clique = waiting_cliques()[id];

    if (clique == NULL) clique = clique_create(ranks);
    std::lock_guard<std::mutex> clique_lock(clique->mutex);
    if (clique->ranks != ranks || clique->devices[rank] >= 0) {
        return refuse(ncclInvalidArgument, "nranks or rank differ from what others passed");
    }
    if (has_device(clique.get(), device)) return refuse(ncclInvalidUsage, "duplicate GPU");
    *comm = join(clique, rank, device);
    *joined = clique;
    if (clique->members == ranks) waiting_cliques().erase(id);
    return ncclSuccess;
}

static ncclResult_t wait_for_all(struct clique *clique)
{
    std::unique_lock<std::mutex> lock(clique->mutex);

    if (!clique->joined.wait_for(lock, std::chrono::seconds(JOIN_SECONDS),
                                 [clique] { return clique->members == clique->ranks; })) {
        virtual_fatal("ncclCommInitRank: %d of %d ranks came", clique->members, clique->ranks);
    }
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                         int rank)
{
    ncclResult_t result = enter();
    std::shared_ptr<struct clique> clique;
    uint64_t id;

    if (result != ncclSuccess) return result;
    if (comm == NULL || nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks) {
        return refuse(ncclInvalidArgument, "comm, nranks or rank");
    }
    memcpy(&id, commId.internal, sizeof(id));
    result = join_by_id(comm, nranks, id, rank, virtual_stream_device(NULL), &clique);
    if (result != ncclSuccess) return result;
    return now_or_in_group([clique] { return wait_for_all(clique.get()); });
}

extern "C" ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                               int rank, ncclConfig_t *config)
{
    const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;

    if (config != NULL && (config->magic != initial.magic || config->size != initial.size)) {
        return refuse(ncclInvalidArgument, "the configuration is not initialised");
    }
    if (config != NULL && config->blocking == 0) {
        return refuse(ncclInvalidUsage, "the stand-in has blocking communicators only");
    }
    return ncclCommInitRank(comm, nranks, commId, rank);
}

extern "C" ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return comm != NULL ? enter() : refuse(ncclInvalidArgument, "comm is NULL");
}

extern "C" ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm == NULL) return ncclSuccess;
    (void)virtual_call();
    for (const std::weak_ptr<struct turn> &turn : comm->turns) {
        if (turn.expired() || virtual_is_lost()) continue;
        virtual_fatal("ncclCommDestroy: calls of rank %d are queued or in a graph", comm->rank);
    }
    delete comm;
    return ncclSuccess;
}

/* Wakes up the ranks that wait for this one. */
extern "C" ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (comm == NULL) return ncclSuccess;
    (void)virtual_call();
    if (comm->calls > 0) virtual_fatal("ncclCommAbort: a call of rank %d goes on", comm->rank);
    {
        std::lock_guard<std::mutex> lock(comm->clique->mutex);
        comm->clique->is_aborted = true;
    }
    delete comm;
    {
        virtual_lock lock(state().mutex);
        state().changed.notify_all();
    }
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    if (comm == NULL || result == NULL) return refuse(ncclInvalidArgument, "comm or asyncError");
    *result = virtual_is_lost() ? ncclUnhandledCudaError : ncclSuccess;
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    if (comm == NULL || count == NULL) return refuse(ncclInvalidArgument, "comm or count");
    *count = comm->clique->ranks;
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    if (comm == NULL || device == NULL) return refuse(ncclInvalidArgument, "comm or device");
    *device = comm->device;
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (comm == NULL || rank == NULL) return refuse(ncclInvalidArgument, "comm or rank");
    *rank = comm->rank;
    return ncclSuccess;
}

/* --- all-reduce --------------------------------------------------------------------------------*/

struct all_reduce {
    ncclComm_t comm;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t operation;
    std::shared_ptr<struct clique> clique; /* outlives an aborted comm */
    std::shared_ptr<struct turn> turn;
};

static enum value_type type_of(ncclDataType_t type)
{
    return type == ncclBfloat16 ? VALUE_BF16 : VALUE_F32;
}

static float combine(ncclRedOp_t operation, float a, float b)
{
    switch (operation) {
    case ncclProd:
        return a * b;
    case ncclMax:
        return a > b ? a : b;
    case ncclMin:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

/* The first that goes on computes what all get; inputs are as they were, for no rank has written.
 */
static void compute(const struct clique *clique, struct meeting *meeting)
{
    enum value_type type = type_of(meeting->type);

    meeting->result.resize(meeting->count);
    for (size_t i = 0; i < meeting->count; i++) {
        float value = value_get(type, meeting->from[0], i);
        for (int rank = 1; rank < clique->ranks; rank++) {
            value = combine(meeting->operation, value, value_get(type, meeting->from[rank], i));
        }
        if (meeting->operation == ncclAvg) value /= static_cast<float>(clique->ranks);
        meeting->result[i] = value;
    }
}

static bool is_ready(const struct all_reduce *call)
{
    struct clique *clique = call->clique.get();
    std::lock_guard<std::mutex> lock(clique->mutex);

    if (clique->is_aborted) return true;
    if (!call->turn->has_arrived) {
        call->turn->has_arrived = true;
        call->turn->number = call->comm->next++;
        struct meeting &meeting = clique->meetings[call->turn->number];
        if (meeting.arrived > 0 && (meeting.count != call->count || meeting.type != call->type ||
                                    meeting.operation != call->operation)) {
            virtual_fatal("ncclAllReduce: rank %d disagrees with others on what is reduced",
                          call->comm->rank);
        }
        meeting.count = call->count;
        meeting.type = call->type;
        meeting.operation = call->operation;
        meeting.from[call->comm->rank] = call->from;
        meeting.arrived++;
    }
    return clique->meetings[call->turn->number].arrived == static_cast<size_t>(clique->ranks);
}

static void run(const struct all_reduce *call)
{
    struct clique *clique = call->clique.get();
    std::lock_guard<std::mutex> lock(clique->mutex);

    if (clique->is_aborted) return;
    struct meeting &meeting = clique->meetings[call->turn->number];
    if (meeting.taken++ == 0) compute(clique, &meeting);
    for (size_t i = 0; i < call->count; i++) {
        value_put(type_of(call->type), call->to, i, meeting.result[i]);
    }
    call->turn->has_arrived = false;
    if (meeting.taken == static_cast<size_t>(clique->ranks)) {
        clique->meetings.erase(call->turn->number);
    }
}

static ncclResult_t all_reduce_queue(struct all_reduce call, cudaStream_t stream)
{
    std::vector<std::weak_ptr<struct turn>> alive;

    call.turn = std::make_shared<struct turn>();
    for (const std::weak_ptr<struct turn> &turn : call.comm->turns) {
        if (!turn.expired()) alive.push_back(turn);
    }
    alive.push_back(call.turn);
    call.comm->turns = alive;
    return virtual_queue_when(
               stream, [call] { return is_ready(&call); }, [call] { run(&call); }) == cudaSuccess
               ? ncclSuccess
               : refuse(ncclUnhandledCudaError, "launch");
}

static ncclResult_t all_reduce(const void *sendbuff, void *recvbuff, size_t count,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    size_t bytes;

    if (datatype < 0 || datatype >= ncclNumTypes || op < 0 || op >= ncclNumOps) {
        return refuse(ncclInvalidArgument, "datatype or op");
    }
    if (datatype != ncclFloat32 && datatype != ncclBfloat16) {
        return refuse(ncclInvalidUsage, "the stand-in reduces float32 and bfloat16 only");
    }
    if (virtual_stream_device(stream) != comm->device) {
        return refuse(ncclUnhandledCudaError, "a stream of another device");
    }
    bytes = count * value_bytes(type_of(datatype));
    library_reach("ncclAllReduce", "sendbuff", sendbuff, bytes, comm->device);
    library_reach("ncclAllReduce", "recvbuff", recvbuff, bytes, comm->device);
    if (sendbuff != recvbuff) library_apart("ncclAllReduce", recvbuff, bytes, sendbuff, bytes);
    struct all_reduce call = {comm, sendbuff, recvbuff, count, datatype, op, comm->clique, {}};
    return now_or_in_group([call, stream] { return all_reduce_queue(call, stream); });
}

void (*virtual_nccl_inside)(void);

extern "C" ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream)
{
    ncclResult_t result = enter();

    if (result != ncclSuccess) return result;
    if (comm == NULL || sendbuff == NULL || recvbuff == NULL) {
        return refuse(ncclInvalidArgument, "comm, sendbuff or recvbuff is NULL");
    }
    comm->calls++;
    if (virtual_nccl_inside != NULL) virtual_nccl_inside();
    result = all_reduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
    comm->calls--;
    return result;
}

/* Tests of the stand-in for NCCL. */
#include "tests/cuda/virtual_libraries/libraries.h"

#include <nccl.h>
#include <thread>

enum { RANKS = 2, COUNT = 1000 };

static void *put_on(int device, const floats &values)
{
    void *block;

    ok(cudaSetDevice(device));
    block = put(values, VALUE_F32);
    ok(cudaSetDevice(0));
    return block;
}

static void make_streams(cudaStream_t streams[RANKS])
{
    for (int rank = 0; rank < RANKS; rank++) {
        ok(cudaSetDevice(rank));
        ok(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
    }
    ok(cudaSetDevice(0));
}

/* The sum of both, and in equal bits. */
static void check_sums(void *const blocks[RANKS], const floats values[RANKS], size_t n)
{
    ok(cudaSetDevice(0));
    floats first = get(blocks[0], n, VALUE_F32);
    ok(cudaSetDevice(1));
    floats second = get(blocks[1], n, VALUE_F32);
    ok(cudaSetDevice(0));
    assert_memory_equal(first.data(), second.data(), n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        assert_true(first[i] == values[0][i] + values[1][i]);
    }
}

static void end(ncclComm_t comms[RANKS], cudaStream_t streams[RANKS])
{
    for (int rank = 0; rank < RANKS; rank++) {
        ok(cudaSetDevice(rank));
        ok(cudaStreamSynchronize(streams[rank]));
        ok(ncclCommDestroy(comms[rank]));
        ok(cudaStreamDestroy(streams[rank]));
    }
    ok(cudaSetDevice(0));
    release_all();
}

static void a_group_of_calls_from_one_thread_sums(void **state)
{
    (void)state;
    FOR_EACH_SEED (first, 5) {
        uint64_t seed = first;
        ncclComm_t comms[RANKS];
        cudaStream_t streams[RANKS];
        floats values[RANKS] = {random_values(&seed, COUNT, VALUE_F32),
                                random_values(&seed, COUNT, VALUE_F32)};
        void *blocks[RANKS] = {put_on(0, values[0]), put_on(1, values[1])};

        make_streams(streams);
        ok(ncclCommInitAll(comms, RANKS, NULL));
        ok(ncclGroupStart());
        for (int rank = 0; rank < RANKS; rank++) {
            ok(ncclAllReduce(blocks[rank], blocks[rank], COUNT, ncclFloat, ncclSum, comms[rank],
                             streams[rank]));
        }
        ok(ncclGroupEnd());
        check_sums(blocks, values, COUNT);
        end(comms, streams);
    }
}

static void run_rank(ncclUniqueId id, int rank, void *block, ncclResult_t *result)
{
    ncclComm_t comm;
    cudaStream_t stream;

    *result = ncclInternalError;
    if (cudaSetDevice(rank) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess) return;
    *result = ncclCommInitRank(&comm, RANKS, id, rank);
    for (int i = 0; *result == ncclSuccess && i < 3; i++) {
        *result =
            ncclAllReduce(block, block, COUNT, ncclFloat, i < 2 ? ncclMax : ncclSum, comm, stream);
    }
    if (cudaStreamSynchronize(stream) != cudaSuccess) *result = ncclUnhandledCudaError;
    if (*result == ncclSuccess) *result = ncclCommDestroy(comm);
    if (cudaStreamDestroy(stream) != cudaSuccess) *result = ncclUnhandledCudaError;
}

static void ranks_on_threads_of_their_own_meet(void **state)
{
    (void)state;
    FOR_EACH_SEED (first, 5) {
        uint64_t seed = first;
        ncclResult_t results[RANKS];
        ncclUniqueId id;
        floats a = random_values(&seed, COUNT, VALUE_F32);
        floats b = random_values(&seed, COUNT, VALUE_F32), most[RANKS];
        void *blocks[RANKS] = {put_on(0, a), put_on(1, b)};

        most[0] = a;
        for (size_t i = 0; i < COUNT; i++) {
            if (b[i] > a[i]) most[0][i] = b[i];
        }
        most[1] = most[0];
        ok(ncclGetUniqueId(&id));
        std::thread other(run_rank, id, 1, blocks[1], &results[1]);
        run_rank(id, 0, blocks[0], &results[0]);
        other.join();
        ok(results[0]);
        ok(results[1]);
        ok(cudaSetDevice(0));
        check_sums(blocks, most, COUNT);
        release_all();
    }
}

static void graphs_meet_each_time_that_they_run(void **state)
{
    ncclComm_t comms[RANKS];
    cudaStream_t streams[RANKS];
    cudaGraphExec_t execs[RANKS];
    floats ones(COUNT, 1.0f), wanted[RANKS] = {floats(COUNT, 4.0f), floats(COUNT, 4.0f)};
    void *blocks[RANKS] = {put_on(0, ones), put_on(1, ones)};

    (void)state;
    make_streams(streams);
    ok(ncclCommInitAll(comms, RANKS, NULL));
    for (int rank = 0; rank < RANKS; rank++) {
        cudaGraph_t graph;

        ok(cudaSetDevice(rank));
        ok(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
        ok(ncclAllReduce(blocks[rank], blocks[rank], COUNT, ncclFloat, ncclSum, comms[rank],
                         streams[rank]));
        ok(cudaStreamEndCapture(streams[rank], &graph));
        ok(cudaGraphInstantiate(&execs[rank], graph, 0));
        ok(cudaGraphDestroy(graph));
    }
    for (int turn = 0; turn < 3; turn++) { /* 1 + 1, 2 + 2, 4 + 4 */
        for (int rank = 0; rank < RANKS; rank++) {
            ok(cudaSetDevice(rank));
            ok(cudaGraphLaunch(execs[rank], streams[rank]));
        }
    }
    check_sums(blocks, wanted, COUNT);
    for (cudaGraphExec_t exec : execs) {
        ok(cudaGraphExecDestroy(exec));
    }
    end(comms, streams);
}

static void what_does_not_fit_is_refused(void **state)
{
    const int twice[] = {0, 0}, far[] = {0, 9};
    ncclComm_t comms[RANKS], one;
    cudaStream_t streams[RANKS];
    ncclConfig_t config = {};
    ncclUniqueId id;
    float *x = static_cast<float *>(room_bytes(64));

    (void)state;
    make_streams(streams);
    assert_int_equal(ncclCommInitAll(comms, RANKS, twice), ncclInvalidUsage);
    assert_int_equal(ncclCommInitAll(comms, RANKS, far), ncclUnhandledCudaError);
    assert_int_equal(ncclCommInitAll(comms, 0, NULL), ncclInvalidArgument);
    ok(ncclGetUniqueId(&id));
    assert_int_equal(ncclCommInitRankConfig(&one, 1, id, 0, &config), ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    ok(ncclCommInitAll(comms, RANKS, NULL));
    assert_int_equal(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, NULL, NULL), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(NULL, x, 4, ncclFloat, ncclSum, comms[0], NULL),
                     ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(x, x, 4, ncclNumTypes, ncclSum, comms[0], NULL),
                     ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comms[0], streams[1]),
                     ncclUnhandledCudaError);
    end(comms, streams);
}

static void sum_different_counts(void)
{
    ncclComm_t comms[RANKS];
    cudaStream_t streams[RANKS];
    void *blocks[RANKS] = {put_on(0, floats(8)), put_on(1, floats(8))};

    make_streams(streams);
    (void)ncclCommInitAll(comms, RANKS, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        (void)ncclAllReduce(blocks[rank], blocks[rank], 4 + static_cast<size_t>(rank), ncclFloat,
                            ncclSum, comms[rank], streams[rank]);
    }
    (void)cudaStreamSynchronize(streams[0]);
}

static void destroy_while_a_graph_is_there(void)
{
    ncclComm_t comm;
    cudaStream_t stream;
    cudaGraph_t graph;
    void *x = put_on(0, floats(8));

    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    (void)ncclCommInitAll(&comm, 1, NULL);
    (void)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    (void)ncclAllReduce(x, x, 8, ncclFloat, ncclSum, comm, stream);
    (void)cudaStreamEndCapture(stream, &graph);
    (void)ncclCommDestroy(comm);
}

static void what_would_hang_aborts(void **state)
{
    (void)state;
    aborts(sum_different_counts, "disagrees with others");
    aborts(destroy_while_a_graph_is_there, "are queued or in a graph");
}

struct libraries_tests libraries_nccl(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_of_calls_from_one_thread_sums),
        cmocka_unit_test(ranks_on_threads_of_their_own_meet),
        cmocka_unit_test(graphs_meet_each_time_that_they_run),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(what_would_hang_aborts),
    };

    return {tests, sizeof(tests) / sizeof(*tests)};
}

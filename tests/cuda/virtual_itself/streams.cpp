/* Streams, events, copies, graphs. */
#include "tests/cuda/virtual_itself/itself.h"

#include <thread>

enum { COUNT = 256 };

static __global__ void add(float *x, float value)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] += value;
}

static __global__ void times(float *x, float value)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] *= value;
}

struct streams {
    cudaStream_t a, b;
    float *x, *pinned; /* COUNT zeros on the device; page-locked */
};

static struct streams streams_begin(uint64_t seed)
{
    struct streams s = {};

    itself_begin(seed);
    ok(cudaStreamCreateWithFlags(&s.a, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&s.b, cudaStreamNonBlocking));
    s.x = static_cast<float *>(itself_take(COUNT * sizeof(float)));
    ok(cudaMallocHost(reinterpret_cast<void **>(&s.pinned), COUNT * sizeof(float)));
    ok(cudaMemset(s.x, 0, COUNT * sizeof(float)));
    ok(cudaDeviceSynchronize());
    return s;
}

static void streams_end(struct streams *s)
{
    ok(cudaFreeHost(s->pinned));
    ok(cudaFree(s->x));
    ok(cudaStreamDestroy(s->a));
    ok(cudaStreamDestroy(s->b));
    itself_end();
}

/* --- laziness ----------------------------------------------------------------------------------*/

static void results_are_not_there_before_one_waits(void **test_state)
{
    (void)test_state;
    struct streams s = streams_begin(1);
    s.pinned[0] = 7.0f;
    ok(launch(add, 1, COUNT, 0, s.a, s.x, 5.0f));
    ok(cudaMemcpyAsync(s.pinned, s.x, sizeof(float), cudaMemcpyDeviceToHost, s.a));
    assert_true(s.pinned[0] == 7.0f);
    ok(cudaStreamSynchronize(s.a));
    assert_true(s.pinned[0] == 5.0f);
    streams_end(&s);
}

static void page_locked_memory_is_read_when_the_copy_runs(void **test_state)
{
    float plain = 1.0f, got[2];

    (void)test_state;
    struct streams s = streams_begin(1);
    s.pinned[0] = 1.0f;
    ok(cudaMemcpyAsync(s.x, s.pinned, sizeof(float), cudaMemcpyHostToDevice, s.a));
    ok(cudaMemcpyAsync(s.x + 1, &plain, sizeof(float), cudaMemcpyHostToDevice, s.a));
    s.pinned[0] = plain = 2.0f; /* too early, and in time */
    itself_get(got, s.x, sizeof(got));
    assert_true(got[0] == 2.0f && got[1] == 1.0f);
    streams_end(&s);
}

static void polling_comes_to_an_end(void **test_state)
{
    cudaEvent_t event;
    int polls = 0;

    (void)test_state;
    struct streams s = streams_begin(1);
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(cudaEventQuery(event)); /* never recorded */
    ok(launch(add, 1, COUNT, 0, s.a, s.x, 5.0f));
    ok(cudaEventRecord(event, s.a));
    while (cudaEventQuery(event) == cudaErrorNotReady) {
        polls++;
    }
    assert_true(polls > 0);
    ok(cudaStreamQuery(s.a));
    assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
    ok(cudaEventDestroy(event));
    streams_end(&s);
}

/* --- order -------------------------------------------------------------------------------------*/

/* (0 + 3) * 2 on two streams. */
static float add_and_multiply(uint64_t seed, bool has_event)
{
    cudaEvent_t event;
    float got;
    struct streams s = streams_begin(seed);

    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(launch(add, 1, COUNT, 0, s.a, s.x, 3.0f));
    ok(cudaEventRecord(event, s.a));
    if (has_event) ok(cudaStreamWaitEvent(s.b, event, 0));
    ok(launch(times, 1, COUNT, 0, s.b, s.x, 2.0f));
    ok(cudaEventDestroy(event)); /* what waits for it goes on waiting */
    itself_get(&got, s.x, sizeof(got));
    streams_end(&s);
    return got;
}

static void events_order_streams_and_nothing_else_does(void **test_state)
{
    int wrong = 0;

    (void)test_state;
    FOR_EACH_SEED (seed, 20) {
        check_seed(seed, add_and_multiply(seed, true) == 6.0f);
        wrong += add_and_multiply(seed, false) != 6.0f;
    }
    assert_true(wrong > 2 || getenv("SEED") != NULL);
}

static void the_legacy_stream_waits_for_blocking_ones_and_they_for_it(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 20) {
        cudaStream_t blocking;
        float got;
        struct streams s = streams_begin(seed);
        ok(cudaStreamCreate(&blocking));
        ok(launch(add, 1, COUNT, 0, blocking, s.x, 3.0f));
        ok(launch(times, 1, COUNT, 0, NULL, s.x, 2.0f));
        ok(launch(add, 1, COUNT, 0, blocking, s.x, 1.0f));
        itself_get(&got, s.x, sizeof(got));
        check_seed(seed, got == 7.0f);
        ok(cudaStreamDestroy(blocking));
        streams_end(&s);
    }
}

static void callbacks_run_in_their_turn(void **test_state)
{
    (void)test_state;
    struct streams s = streams_begin(1);
    ok(launch(add, 1, COUNT, 0, s.a, s.x, 3.0f));
    ok(cudaMemcpyAsync(s.pinned, s.x, sizeof(float), cudaMemcpyDeviceToHost, s.a));
    ok(cudaLaunchHostFunc(
        s.a,
        [](void *context) {
            float *value = static_cast<float *>(context);
            *value *= 10.0f;
        },
        s.pinned));
    ok(cudaStreamSynchronize(s.a));
    assert_true(s.pinned[0] == 30.0f);
    streams_end(&s);
}

/* --- graphs ------------------------------------------------------------------------------------*/

static void a_captured_stream_runs_when_its_graph_does(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 5) {
        struct streams s = streams_begin(seed);
        cudaGraphExec_t exec;
        cudaGraph_t graph;
        cudaEvent_t event;
        size_t nodes = 0;
        float got;

        ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        ok(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
        assert_true(virtual_is_capturing(s.a));
        ok(launch(add, 1, COUNT, 0, s.a, s.x, 3.0f));
        ok(cudaEventRecord(event, s.a)); /* over to the other stream, and back */
        ok(cudaStreamWaitEvent(s.b, event, 0));
        ok(launch(times, 1, COUNT, 0, s.b, s.x, 2.0f));
        ok(cudaEventRecord(event, s.b));
        ok(cudaStreamWaitEvent(s.a, event, 0));
        ok(cudaMemcpyAsync(s.pinned, s.x, sizeof(float), cudaMemcpyDeviceToHost, s.a));
        ok(cudaStreamEndCapture(s.a, &graph));
        ok(cudaGraphGetNodes(graph, NULL, &nodes));
        check_seed(seed, nodes == 3);
        ok(cudaGraphInstantiate(&exec, graph, 0));
        ok(cudaGraphDestroy(graph));
        itself_get(&got, s.x, sizeof(got));
        check_seed(seed, got == 0.0f);
        ok(cudaGraphLaunch(exec, s.b));
        ok(cudaGraphLaunch(exec, s.b));
        ok(cudaStreamSynchronize(s.b));
        check_seed(seed, s.pinned[0] == 18.0f);
        ok(cudaGraphExecDestroy(exec));
        ok(cudaEventDestroy(event));
        streams_end(&s);
    }
}

static void waiting_spoils_a_capture(void **test_state)
{
    enum cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    void *block;

    (void)test_state;
    struct streams s = streams_begin(1);
    for (int way = 0; way < 4; way++) {
        float plain = 0.0f;
        cudaError_t error = cudaSuccess;
        ok(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
        if (way == 0) error = cudaStreamSynchronize(s.a);
        if (way == 1) error = cudaDeviceSynchronize();
        if (way == 2) error = cudaMalloc(&block, 16);
        if (way == 3) error = cudaMemcpyAsync(s.x, &plain, 4, cudaMemcpyHostToDevice, s.a);
        assert_int_equal(error, cudaErrorStreamCaptureUnsupported);
        ok(cudaStreamIsCapturing(s.a, &status));
        assert_int_equal(status, cudaStreamCaptureStatusInvalidated);
        assert_int_equal(launch(add, 1, COUNT, 0, s.a, s.x, 3.0f),
                         cudaErrorStreamCaptureInvalidated);
        assert_int_equal(cudaStreamEndCapture(s.a, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
    }
    ok(cudaStreamSynchronize(s.a));
    (void)cudaGetLastError();
    streams_end(&s);
}

static void a_stream_that_is_not_joined_spoils_a_capture(void **test_state)
{
    cudaGraph_t graph;
    cudaEvent_t event;

    (void)test_state;
    struct streams s = streams_begin(1);
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
    ok(cudaEventRecord(event, s.a));
    ok(cudaStreamWaitEvent(s.b, event, 0));
    ok(launch(add, 1, COUNT, 0, s.b, s.x, 3.0f));
    assert_int_equal(cudaEventQuery(event), cudaErrorCapturedEvent);
    assert_int_equal(cudaStreamEndCapture(s.a, &graph), cudaErrorStreamCaptureUnjoined);
    (void)cudaGetLastError();
    ok(cudaEventDestroy(event));
    streams_end(&s);
}

/* --- several devices ---------------------------------------------------------------------------*/

/* Each of two threads queues on its device work that waits for the other's. */
static void devices_wait_for_each_other_whoever_comes_first(void **test_state)
{
    struct virtual_options options = {};
    int arrived = 0, met[2] = {0, 0}; /* written by work only, which runs one at a time */

    (void)test_state;
    options.devices = 2;
    options.memory_bytes = 1 << 20;
    options.capability = 90;
    options.seed = 1;
    itself_begin_with(options);
    auto run = [&](int device) {
        cudaStream_t stream;
        ok(cudaSetDevice(device));
        ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        assert_int_equal(virtual_stream_device(stream), device);
        for (int turn = 1; turn <= 50; turn++) {
            ok(virtual_queue(stream, [&arrived] { arrived++; }));
            ok(virtual_queue_when(
                stream, [&arrived, turn] { return arrived >= 2 * turn; },
                [&met, device] { met[device]++; }));
            if (turn % 7 == 0) ok(cudaStreamSynchronize(stream));
        }
        ok(cudaStreamSynchronize(stream));
        ok(cudaStreamDestroy(stream));
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    assert_int_equal(met[0], 50);
    assert_int_equal(met[1], 50);
    itself_end();
}

static void devices_do_not_share_streams_or_memory(void **test_state)
{
    struct virtual_options options = {};
    cudaStream_t stream;
    cudaEvent_t event;
    int can = 0;
    float *x, *y, value = 4.0f, got = 0.0f;

    (void)test_state;
    options.devices = 2;
    options.memory_bytes = 1 << 20;
    options.capability = 90;
    itself_begin_with(options);
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    x = static_cast<float *>(itself_take(4));
    ok(cudaMemcpy(x, &value, 4, cudaMemcpyHostToDevice));
    assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
    ok(cudaSetDevice(1));
    y = static_cast<float *>(itself_take(4));
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_int_equal(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(launch(add, 1, 1, 0, stream, x, 1.0f), cudaErrorInvalidResourceHandle);
    ok(cudaDeviceCanAccessPeer(&can, 1, 0));
    assert_int_equal(can, 1);
    ok(cudaMemcpyPeerAsync(y, 1, x, 0, 4, NULL));
    itself_get(&got, y, 4);
    assert_true(got == 4.0f);
    itself_aborts(
        [] {
            void *mine = itself_take(4);
            ok(cudaSetDevice(0));
            (void)launch(add, 1, 1, 0, NULL, static_cast<float *>(mine), 1.0f);
            (void)cudaDeviceSynchronize();
        },
        "points to memory of device 1");
    (void)cudaGetLastError();
    ok(cudaFree(y));
    ok(cudaEventDestroy(event));
    ok(cudaSetDevice(0));
    ok(cudaFree(x));
    ok(cudaStreamDestroy(stream));
    itself_end();
}

struct itself_tests itself_streams(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_not_there_before_one_waits),
        cmocka_unit_test(page_locked_memory_is_read_when_the_copy_runs),
        cmocka_unit_test(polling_comes_to_an_end),
        cmocka_unit_test(events_order_streams_and_nothing_else_does),
        cmocka_unit_test(the_legacy_stream_waits_for_blocking_ones_and_they_for_it),
        cmocka_unit_test(callbacks_run_in_their_turn),
        cmocka_unit_test(a_captured_stream_runs_when_its_graph_does),
        cmocka_unit_test(waiting_spoils_a_capture),
        cmocka_unit_test(a_stream_that_is_not_joined_spoils_a_capture),
        cmocka_unit_test(devices_wait_for_each_other_whoever_comes_first),
        cmocka_unit_test(devices_do_not_share_streams_or_memory),
    };

    return {tests, sizeof(tests) / sizeof(tests[0])};
}

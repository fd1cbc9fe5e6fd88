/*
 * state: of the virtual runtime, shared by its files. One lock guards all of it and is held while
 * work is run, by whichever host thread waits for something.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_STATE_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_STATE_H

#include "tests/cuda/virtual/runtime.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

enum { DEVICES_MAX = 16 };

typedef std::unique_lock<std::mutex> virtual_lock;

/* What streams hold, and graphs. */
struct virtual_work {
    std::function<bool()> is_ready; /* empty: always */
    std::function<void()> run;
    bool is_host; /* a callback of the program's: run without the lock */
};

struct virtual_item {
    virtual_work work;
    uint64_t ticket; /* in order of queueing, over all streams */
};

/* A capture under way, or the graph it became. */
struct CUgraph_st {
    std::vector<virtual_work> nodes; /* in an order that keeps all dependencies */
};

struct virtual_capture {
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    std::set<struct CUstream_st *> streams; /* origin too */
    std::set<struct CUstream_st *> apart;   /* forked, not joined yet */
    enum cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_invalid;
};

struct CUgraphExec_st {
    std::vector<virtual_work> nodes;
    int device;
};

struct CUstream_st {
    int device, priority;
    unsigned flags;
    bool is_legacy, is_busy, is_released; /* released: goes when it is empty */
    std::deque<virtual_item> items;
    virtual_capture *capture; /* NULL: none */
};

/* Outlives the event while work refers to it. */
struct virtual_event {
    uint64_t recorded, finished; /* tickets of records */
    double time_ms;
};

struct CUevent_st {
    int device;
    unsigned flags;
    std::shared_ptr<virtual_event> state;
    virtual_capture *capture; /* the last record was into one; only compared */
    struct CUstream_st *captured_in;
};

struct virtual_block {
    size_t bytes;
    int device;
};

struct virtual_state {
    std::mutex mutex;
    std::condition_variable changed; /* something was queued or has ended */
    bool is_configured;
    struct virtual_options options;
    uint64_t calls, calls_at_configure, kernels, tickets, random, queued;
    bool is_lost;
    std::set<struct CUstream_st *> streams; /* legacy ones too */
    std::set<struct CUevent_st *> events;
    std::set<struct CUgraph_st *> graphs;
    std::set<struct CUgraphExec_st *> execs;
    std::set<virtual_capture *> captures;
    struct CUstream_st *legacy[DEVICES_MAX];
    bool has_peer[DEVICES_MAX][DEVICES_MAX];                       /* [who][whose memory] */
    std::map<std::pair<int, const void *>, size_t> shared_allowed; /* (device, kernel) */
    uint64_t lazy_left; /* calls until the pace changes */
    bool is_eager;
};

struct virtual_state &state(void);
int &current_device(void); /* of the calling thread */
bool &in_work(void);       /* is the calling thread running work? Then it holds the lock. */

/* runtime.cpp. Every API call begins with enter(), and ends in fail() if it fails: the error is
 * remembered for cudaGetLastError(). */
cudaError_t enter(virtual_lock &lock);
cudaError_t fail(cudaError_t error);
/* Prints what the caller did wrong. */
cudaError_t misuse(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint64_t random_below(uint64_t bound);

/* stream.cpp */
struct CUstream_st *stream_of(cudaStream_t stream); /* fatal: no such stream */
cudaError_t queue(virtual_lock &lock, struct CUstream_st *stream, virtual_work work);
/* Runs what it takes until `is_done`; an error if the device is lost on the way. */
cudaError_t run_until(virtual_lock &lock, const std::function<bool()> &is_done,
                      struct CUstream_st *wanted);
cudaError_t run_all(virtual_lock &lock, int device); /* -1: of all devices */
void drop_all(void);

/* crash.cpp: while work runs, a signal that ends the program says which kernel it was. */
void crash_watch(void);
void crash_unwatch(void);

/* graph.cpp: may `stream` (NULL: none in particular) be synchronised with now? Otherwise what is
 * captured is invalid from here on. */
cudaError_t capture_forbids(struct CUstream_st *stream);
cudaError_t capture_record(struct CUstream_st *stream, virtual_work work);
cudaError_t capture_event(struct CUstream_st *stream, struct CUevent_st *event);
cudaError_t capture_wait(struct CUstream_st *stream, struct CUevent_st *event);

/* memory.cpp */
void memory_open(void);
void memory_close(void);
void memory_check(void); /* red zones */
void memory_release_all(int device);
bool memory_find(const void *at, virtual_block *block, const unsigned char **begin);
bool memory_is_pinned(const void *at, size_t bytes);
void memory_check_pointer(const void *at, int device, bool is_certain, const char *kernel,
                          unsigned argument);
/* Where a bad address lies, for messages. */
std::string memory_describe(const void *at);

#endif

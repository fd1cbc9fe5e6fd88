/*
 * Threads of a block as fibers. A thread runs until it must wait for others: at a barrier, or at a
 * warp intrinsic until the lanes of its mask have come. Then the next thread that can run goes on,
 * or one that has not begun begins on a free fiber. A thread that never waits is a mere function
 * call: one fiber runs all such threads, of all blocks, one after the other.
 *
 * The order in which warps, lanes and blocks begin is forward, backward or in strides, by the seed,
 * so that code that depends on it gives different results. Waiting for what cannot come is an abort
 * with a list of who waits where.
 */
#include "tests/cuda/virtual/block.h"

#include "tests/cuda/virtual/fibers.h"
#include "tests/cuda/virtual/runtime.h"

#include <stdio.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

enum { WARP = 32, WARPS_MAX = BLOCK_THREADS_MAX / WARP, SHARED_MARGIN = 256 };
enum thread_state : uint8_t { UNBORN, CAN_RUN, AT_BARRIER, AT_WARP, ENDED };

struct thread {
    uint3 index;
    unsigned number; /* in the block */
    thread_state state;
    bool may_miss;
    struct fiber *fiber; /* while it has begun and not ended */
    unsigned mask;       /* at a warp intrinsic; from here on */
    void *part;
    virtual_meet meet;
    const char *what, *file; /* these two also at a barrier */
    int line;
};

struct warp {
    unsigned live;    /* lanes that exist and have not ended */
    unsigned waiting; /* AT_WARP */
};

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
unsigned char *virtual_shared_memory;

static struct thread threads[BLOCK_THREADS_MAX];
static struct warp warps[WARPS_MAX];
static uint16_t order[BLOCK_THREADS_MAX]; /* in which threads begin */
static struct {
    const virtual_kernel *kernel;
    const kernel_facts *facts;
    struct thread *running, *handed; /* handed: to the fiber that is switched to, to begin */
    unsigned threads, born, live, at_barrier;
    int votes, result;                              /* of __syncthreads_count() */
    uint16_t queue[BLOCK_THREADS_MAX], head, tail;  /* of those that CAN_RUN; a ring */
    uint64_t block, blocks, position, stride, seed; /* `position` is the block's number */
    struct fiber *host, *entering;
    struct fiber *free[BLOCK_THREADS_MAX + 1];
    unsigned free_count, fibers;
} b;
alignas(128) static unsigned char shared[BLOCK_SHARED_BYTES_MAX + 2 * SHARED_MARGIN + 16];

static uint64_t block_random(uint64_t bound) /* splitmix64 */
{
    uint64_t z = b.seed += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % bound;
}

std::string block_where(void)
{
    char text[160];

    if (b.kernel == NULL) return "";
    snprintf(text, sizeof(text), ", block (%u, %u, %u), thread (%u, %u, %u)", blockIdx.x,
             blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    return b.facts->name + text;
}

/* --- shared memory -----------------------------------------------------------------------------*/

/* What is beyond the bytes of the launch is watched: by AddressSanitizer, or for changes. */
static void shared_open(size_t bytes)
{
    virtual_shared_memory = shared + SHARED_MARGIN + 16; /* aligned to 16 and no more */
#if defined(__SANITIZE_ADDRESS__)
    ASAN_POISON_MEMORY_REGION(shared, sizeof(shared));
    ASAN_UNPOISON_MEMORY_REGION(virtual_shared_memory, bytes);
#else
    memset(virtual_shared_memory - SHARED_MARGIN, 0xFF, SHARED_MARGIN);
    memset(virtual_shared_memory + bytes, 0xFF, SHARED_MARGIN);
#endif
}

static void shared_check(void)
{
#if !defined(__SANITIZE_ADDRESS__)
    const unsigned char *after = virtual_shared_memory + b.kernel->shared_bytes;

    for (int i = 0; i < SHARED_MARGIN; i += 8) {
        uint64_t low, high;
        memcpy(&low, virtual_shared_memory - SHARED_MARGIN + i, sizeof(low));
        memcpy(&high, after + i, sizeof(high));
        if (low == UINT64_MAX && high == UINT64_MAX) continue;
        virtual_fatal("%s wrote %s its %zu bytes of shared memory", block_where().c_str(),
                      low == UINT64_MAX ? "behind" : "before", b.kernel->shared_bytes);
    }
#endif
}

/* Not memset(): AddressSanitizer's own has an opinion on static variables' red zones. */
__attribute__((no_sanitize_address)) static void shared_poison(void)
{
    memset(virtual_shared_memory, 0xFF, b.kernel->shared_bytes);
    for (const kernel_region &region : b.facts->statics) {
        volatile unsigned char *at = region.at;
        for (size_t i = 0; i < region.bytes; i++) {
            at[i] = 0xFF;
        }
    }
}

bool block_is_shared(const void *address, size_t bytes)
{
    const unsigned char *at = static_cast<const unsigned char *>(address);

    if (b.kernel == NULL) return false;
    if (at >= virtual_shared_memory &&
        at + bytes <= virtual_shared_memory + b.kernel->shared_bytes) {
        return true;
    }
    for (const kernel_region &region : b.facts->statics) {
        if (at >= region.at && at + bytes <= region.at + region.bytes) return true;
    }
    return false;
}

/* --- who runs ----------------------------------------------------------------------------------*/

static void make_ready(struct thread *t)
{
    t->state = CAN_RUN;
    b.queue[b.tail++ % BLOCK_THREADS_MAX] = static_cast<uint16_t>(t->number);
}

static struct thread *next_thread(void)
{
    if (b.handed != NULL) {
        struct thread *t = b.handed;
        b.handed = NULL;
        return t;
    }
    if (b.head != b.tail) return &threads[b.queue[b.head++ % BLOCK_THREADS_MAX]];
    if (b.born < b.threads) return &threads[order[b.born++]];
    return NULL;
}

static void report_deadlock(void)
{
    unsigned shown = 0;

    fprintf(stderr, "virtual device: %s: threads wait for others that never come:\n",
            b.facts->name.c_str());
    for (unsigned i = 0; i < b.threads && shown < 64; i++) {
        const struct thread *t = &threads[i];
        if (t->state != AT_BARRIER && t->state != AT_WARP) continue;
        fprintf(stderr, "    thread %u (warp %u, lane %u) at %s, mask %08x, %s:%d\n", i, i / WARP,
                i % WARP, t->what, t->state == AT_WARP ? t->mask : 0xFFFFFFFFu, t->file, t->line);
        shown++;
    }
    virtual_fatal("%u of %u threads of block (%u, %u, %u) have ended, %u wait", b.threads - b.live,
                  b.threads, blockIdx.x, blockIdx.y, blockIdx.z, b.live);
}

static void fiber_main(void);

static struct fiber *free_fiber(void)
{
    struct fiber *fiber;

    if (b.free_count > 0) return b.free[--b.free_count];
    fiber = fiber_create(fiber_main, b.fibers++);
    b.entering = fiber;
    return fiber;
}

/* The running thread waits, in a state that somebody will change. */
static void wait_here(void)
{
    struct thread *me = b.running, *next = next_thread();

    if (next == NULL) report_deadlock();
    if (next->fiber == NULL) {
        b.handed = next;
        fiber_switch(me->fiber, free_fiber());
    } else {
        fiber_switch(me->fiber, next->fiber);
    }
    b.running = me;
    threadIdx = me->index;
}

/* --- meeting -----------------------------------------------------------------------------------*/

static void barrier_release(void)
{
    const struct thread *first = NULL;
    unsigned from = static_cast<unsigned>(block_random(b.threads));

    for (unsigned i = 0; i < b.threads; i++) {
        struct thread *t = &threads[order[(i + from) % b.threads]];
        if (t->state != AT_BARRIER) continue;
        if (first == NULL) first = t;
        if (t->line != first->line ||
            (t->file != first->file && strcmp(t->file, first->file) != 0)) {
            virtual_fatal("%s: threads %u and %u of a block are at different barriers, %s:%d and "
                          "%s:%d",
                          b.facts->name.c_str(), first->number, t->number, first->file, first->line,
                          t->file, t->line);
        }
        if (t == b.running) {
            t->state = CAN_RUN;
        } else {
            make_ready(t);
        }
    }
    b.result = b.votes;
    b.votes = 0;
    b.at_barrier = 0;
}

int virtual_barrier(int predicate, const char *file, int line)
{
    struct thread *me = b.running;

    me->state = AT_BARRIER;
    me->what = "__syncthreads";
    me->file = file;
    me->line = line;
    b.votes += predicate;
    if (++b.at_barrier == b.live) {
        barrier_release();
    } else {
        wait_here();
    }
    return b.result;
}

/* Have all lanes come that `first` waits for? Then they meet and go on. */
static bool warp_meets(struct warp *w, struct thread *first)
{
    unsigned needed = first->mask & w->live;
    struct thread *lanes = &threads[first->number / WARP * WARP];
    void *parts[WARP];

    if ((w->waiting & needed) != needed) return false;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if ((needed >> lane & 1u) == 0) continue;
        if (lanes[lane].mask != first->mask) return false;
        if (lanes[lane].meet != first->meet) {
            virtual_fatal("%s: lanes of a warp are at different intrinsics, %s at %s:%d and %s at "
                          "%s:%d",
                          b.facts->name.c_str(), first->what, first->file, first->line,
                          lanes[lane].what, lanes[lane].file, lanes[lane].line);
        }
        parts[lane] = lanes[lane].part;
    }
    first->meet(parts, needed);
    w->waiting &= ~needed;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if ((needed >> lane & 1u) == 0) continue;
        if (&lanes[lane] == b.running) {
            lanes[lane].state = CAN_RUN;
        } else {
            make_ready(&lanes[lane]);
        }
    }
    return true;
}

void virtual_warp(unsigned mask, void *part, virtual_meet meet, bool may_miss, const char *what,
                  const char *file, int line)
{
    struct thread *me = b.running;
    struct warp *w = &warps[me->number / WARP];
    unsigned lane = me->number % WARP;

    if ((mask >> lane & 1u) == 0) {
        virtual_fatal("%s: %s at %s:%d: mask %08x leaves out lane %u, which calls it",
                      block_where().c_str(), what, file, line, mask, lane);
    }
    if ((mask & ~w->live) != 0 && !may_miss) {
        virtual_fatal("%s: %s at %s:%d: mask %08x names lanes %08x, which have ended or never were",
                      block_where().c_str(), what, file, line, mask, mask & ~w->live);
    }
    me->mask = mask;
    me->part = part;
    me->meet = meet;
    me->may_miss = may_miss;
    me->what = what;
    me->file = file;
    me->line = line;
    me->state = AT_WARP;
    w->waiting |= 1u << lane;
    if (!warp_meets(w, me)) wait_here();
}

unsigned virtual_lane(void)
{
    return b.running->number % WARP;
}

unsigned virtual_thread(void)
{
    return b.running->number;
}

/* --- from begin to end -------------------------------------------------------------------------*/

static void thread_end(struct thread *t)
{
    struct warp *w = &warps[t->number / WARP];
    unsigned bit = 1u << t->number % WARP;

    t->state = ENDED;
    t->fiber = NULL;
    b.running = NULL;
    w->live &= ~bit;
    b.live--;
    for (unsigned lane = 0; w->waiting >> lane != 0 && lane < WARP; lane++) {
        struct thread *other = &threads[t->number / WARP * WARP + lane];
        if ((w->waiting >> lane & 1u) == 0 || (other->mask & bit) == 0) continue;
        if (!other->may_miss) {
            virtual_fatal("%s: lane %u has ended, and lane %u waits for it in %s at %s:%d",
                          b.facts->name.c_str(), t->number % WARP, lane, other->what, other->file,
                          other->line);
        }
        if (warp_meets(w, other)) break; /* the others with that mask went along */
    }
    if (b.live > 0 && b.at_barrier == b.live) barrier_release();
}

static void begin_block(void)
{
    uint64_t rest = b.position;

    blockIdx.x = static_cast<unsigned>(rest % gridDim.x);
    rest /= gridDim.x;
    blockIdx.y = static_cast<unsigned>(rest % gridDim.y);
    blockIdx.z = static_cast<unsigned>(rest / gridDim.y);
    b.live = b.threads;
    b.born = 0;
    for (unsigned i = 0; i < b.threads; i++) {
        threads[i].state = UNBORN;
    }
    for (unsigned w = 0; w * WARP < b.threads; w++) {
        unsigned lanes = b.threads - w * WARP;
        warps[w].live = lanes >= WARP ? 0xFFFFFFFFu : (1u << lanes) - 1;
        warps[w].waiting = 0;
    }
    shared_poison();
}

static bool next_block(void)
{
    virtual_copies_forget();
    shared_check();
    if (++b.block == b.blocks) return false;
    b.position += b.stride;
    if (b.position >= b.blocks) b.position -= b.blocks;
    begin_block();
    return true;
}

static void fiber_main(void)
{
    struct fiber *self = b.entering;

    fiber_entered();
    for (;;) {
        struct thread *t = next_thread();
        if (t == NULL) {
            if (b.live > 0) report_deadlock();
            if (next_block()) continue;
            b.free[b.free_count++] = self;
            fiber_switch(self, b.host);
        } else if (t->fiber != NULL) {
            b.free[b.free_count++] = self;
            fiber_switch(self, t->fiber);
        } else {
            t->fiber = self;
            t->state = CAN_RUN;
            b.running = t;
            threadIdx = t->index;
            b.kernel->thread();
            thread_end(t);
        }
    }
}

/* A stride that visits all of `count`: 1, -1 or any that has no factor in common. */
static uint64_t stride_of(uint64_t count)
{
    uint64_t choice = block_random(3), stride;

    if (count < 3 || choice == 0) return 1 % count;
    if (choice == 1) return count - 1;
    for (;;) {
        uint64_t a = stride = 1 + block_random(count - 1), c = count;
        while (a != 0) {
            uint64_t rest = c % a;
            c = a;
            a = rest;
        }
        if (c == 1) return stride;
    }
}

/* Whole warps in one order, the lanes of each in another. */
static void order_threads(void)
{
    unsigned count = (b.threads + WARP - 1) / WARP, n = 0;
    uint64_t stride = stride_of(count), lane_stride = stride_of(WARP);
    uint64_t warp = block_random(count), lane = block_random(WARP);

    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < WARP; j++) {
            if (warp * WARP + lane < b.threads) {
                order[n++] = static_cast<uint16_t>(warp * WARP + lane);
            }
            lane = (lane + lane_stride) % WARP;
        }
        warp = (warp + stride) % count;
    }
}

void block_run_grid(const virtual_kernel &kernel, uint64_t seed)
{
    struct fiber host = {};

    blockDim = kernel.block;
    gridDim = kernel.grid;
    b.kernel = &kernel;
    b.facts = &kernel_facts_of(kernel.address);
    b.seed = seed;
    b.threads = blockDim.x * blockDim.y * blockDim.z;
    b.blocks = static_cast<uint64_t>(gridDim.x) * gridDim.y * gridDim.z;
    b.stride = stride_of(b.blocks);
    b.position = block_random(b.blocks);
    b.block = 0;
    b.head = b.tail = 0;
    b.host = &host;
    for (unsigned i = 0; i < b.threads; i++) {
        threads[i].number = i;
        threads[i].fiber = NULL;
        threads[i].index.x = i % blockDim.x;
        threads[i].index.y = i / blockDim.x % blockDim.y;
        threads[i].index.z = i / blockDim.x / blockDim.y;
    }
    order_threads();
    shared_open(kernel.shared_bytes);
    begin_block();
    fiber_switch(&host, free_fiber());
    b.kernel = NULL;
}

/*
 * collective: what several threads of a block do together: barriers, warp intrinsics, matrix
 * fragments, asynchronous copies. Each lane comes with its own part; the last one to arrive does
 * the work for all of them, and everyone goes on.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_COLLECTIVE_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

/* Where a call stands in the source, for messages and to tell one barrier from another. */
#define VIRTUAL_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* parts[lane] for the lanes of `mask`. */
typedef void (*virtual_meet)(void *const parts[32], unsigned mask);

/* Lanes meet where mask and `meet` are equal. `may_miss`: lanes that exited are not waited for. */
void virtual_warp(unsigned mask, void *part, virtual_meet meet, bool may_miss, const char *what,
                  const char *file, int line);
/* Counts of `predicate` over the block. */
int virtual_barrier(int predicate, const char *file, int line);
unsigned virtual_lane(void);
unsigned virtual_thread(void); /* its number in the block */
void virtual_mma(float c[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line);
void virtual_load_matrices(uint32_t r[4], const void *row, bool is_transposed, const char *file,
                           int line);
void virtual_copy_async(void *to, const void *from, bool is_wanted, const char *file, int line);
void virtual_copy_async_commit(void);
void virtual_copy_async_wait(unsigned pending_max);
void virtual_copies_forget(void); /* a block ends */

/* --- barriers ----------------------------------------------------------------------------------*/

static inline void __syncthreads(VIRTUAL_HERE)
{
    (void)virtual_barrier(0, file, line);
}

static inline int __syncthreads_count(int predicate, VIRTUAL_HERE)
{
    return virtual_barrier(predicate != 0, file, line);
}

static inline int __syncthreads_or(int predicate, VIRTUAL_HERE)
{
    return virtual_barrier(predicate != 0, file, line) > 0;
}

static inline int __syncthreads_and(int predicate, VIRTUAL_HERE)
{
    return virtual_barrier(predicate == 0, file, line) == 0;
}

static inline void virtual_meet_nothing(void *const[32], unsigned)
{
}

static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, VIRTUAL_HERE)
{
    virtual_warp(mask, NULL, virtual_meet_nothing, true, "__syncwarp", file, line);
}

static inline void __threadfence(void)
{
}

static inline void __threadfence_block(void)
{
}

/* --- shuffles ----------------------------------------------------------------------------------*/

template <typename T> struct virtual_shuffle {
    T value, result;
    unsigned source; /* lane */
};

template <typename T> void virtual_meet_shuffle(void *const parts[32], unsigned mask)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        if ((mask >> lane & 1u) == 0) continue;
        virtual_shuffle<T> *part = static_cast<virtual_shuffle<T> *>(parts[lane]);
        if (mask >> part->source & 1u) {
            part->result = static_cast<virtual_shuffle<T> *>(parts[part->source])->value;
        } else { /* undefined on a GPU */
            memset(static_cast<void *>(&part->result), 0xFF, sizeof(part->result));
        }
    }
}

template <typename T>
T virtual_shuffle_from(unsigned mask, T value, unsigned source, const char *file, int line)
{
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "what lanes can exchange");
    static_assert(std::is_trivially_copyable<T>::value, "plain values only");
    virtual_shuffle<T> part = {value, value, source};

    virtual_warp(mask, &part, virtual_meet_shuffle<T>, false, "__shfl_sync", file, line);
    return part.result;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, VIRTUAL_HERE)
{
    unsigned lane = virtual_lane(), inner = static_cast<unsigned>(width) - 1;

    return virtual_shuffle_from(
        mask, value, (lane & ~inner) | (static_cast<unsigned>(source) & inner), file, line);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, VIRTUAL_HERE)
{
    unsigned lane = virtual_lane(), inner = static_cast<unsigned>(width) - 1;

    return virtual_shuffle_from(mask, value, (lane & inner) < delta ? lane : lane - delta, file,
                                line);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, VIRTUAL_HERE)
{
    unsigned lane = virtual_lane(), inner = static_cast<unsigned>(width) - 1;

    return virtual_shuffle_from(mask, value, (lane & inner) + delta > inner ? lane : lane + delta,
                                file, line);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, VIRTUAL_HERE)
{
    unsigned lane = virtual_lane(), last = lane | (static_cast<unsigned>(width) - 1);
    unsigned source = (lane ^ static_cast<unsigned>(lanes)) & 31u;

    return virtual_shuffle_from(mask, value, source > last ? lane : source, file, line);
}

/* --- votes and reductions ----------------------------------------------------------------------*/

struct virtual_vote {
    unsigned is_set, result;
};

static inline void virtual_meet_vote(void *const parts[32], unsigned mask)
{
    unsigned result = 0;

    for (unsigned lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1u) {
            result |= static_cast<virtual_vote *>(parts[lane])->is_set << lane;
        }
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1u) static_cast<virtual_vote *>(parts[lane])->result = result;
    }
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, VIRTUAL_HERE)
{
    virtual_vote part = {predicate != 0, 0};

    virtual_warp(mask, &part, virtual_meet_vote, false, "__ballot_sync", file, line);
    return part.result;
}

static inline int __any_sync(unsigned mask, int predicate, VIRTUAL_HERE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, VIRTUAL_HERE)
{
    return __ballot_sync(mask, predicate, file, line) == mask;
}

/* --- matrices and copies, as launch.h has them -------------------------------------------------*/

static inline void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2], VIRTUAL_HERE)
{
    virtual_mma(c, a, b, file, line);
}

static inline void load_matrices(uint32_t r[4], const void *row, VIRTUAL_HERE)
{
    virtual_load_matrices(r, row, false, file, line);
}

static inline void load_matrices_transposed(uint32_t r[4], const void *row, VIRTUAL_HERE)
{
    virtual_load_matrices(r, row, true, file, line);
}

static inline void copy_async(void *to, const void *from, bool wanted, VIRTUAL_HERE)
{
    virtual_copy_async(to, from, wanted, file, line);
}

static inline void copy_async_commit(void)
{
    virtual_copy_async_commit();
}

template <int n> inline void copy_async_wait(void)
{
    virtual_copy_async_wait(n);
}

#endif

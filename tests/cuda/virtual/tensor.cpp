/*
 * Tensor core operations and asynchronous copies. Layouts of fragments are those of the PTX ISA:
 * "Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix" and "cp.async".
 *
 * Copies land no sooner than in the wait of the thread that asked for them; until then what they
 * will overwrite is poisoned, as it may be overwritten at any time.
 */
#include "tests/cuda/virtual/block.h"
#include "tests/cuda/virtual/runtime.h"

#include <vector>

enum { LANES = 32, ROWS = 16, COLUMNS = 8, INNER = 16, COPY_BYTES = 16 };

/* --- mma.m16n8k16 ------------------------------------------------------------------------------*/

struct mma_part {
    float *c;
    const uint32_t *a, *b;
};

static float low_bf16(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

static float high_bf16(uint32_t pair)
{
    return __uint_as_float(pair & 0xFFFF0000u);
}

static void mma_gather(void *const parts[LANES], float a[ROWS][INNER], float b[INNER][COLUMNS])
{
    for (int lane = 0; lane < LANES; lane++) {
        const mma_part *part = static_cast<const mma_part *>(parts[lane]);
        int group = lane / 4, pair = 2 * (lane % 4);
        for (int r = 0; r < 4; r++) { /* rows of the upper half, then lower; columns likewise */
            int row = group + (r % 2) * 8, column = pair + (r / 2) * 8;
            a[row][column] = low_bf16(part->a[r]);
            a[row][column + 1] = high_bf16(part->a[r]);
        }
        for (int r = 0; r < 2; r++) {
            b[pair + 8 * r][group] = low_bf16(part->b[r]);
            b[pair + 8 * r + 1][group] = high_bf16(part->b[r]);
        }
    }
}

static void meet_mma(void *const parts[LANES], unsigned mask)
{
    float a[ROWS][INNER], b[INNER][COLUMNS], sums[ROWS][COLUMNS] = {{0.0f}};

    (void)mask;
    mma_gather(parts, a, b);
    for (int row = 0; row < ROWS; row++) {
        for (int k = 0; k < INNER; k++) {
            for (int column = 0; column < COLUMNS; column++) {
                sums[row][column] += a[row][k] * b[k][column];
            }
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        float *c = static_cast<const mma_part *>(parts[lane])->c;
        for (int i = 0; i < 4; i++) {
            c[i] += sums[lane / 4 + (i / 2) * 8][2 * (lane % 4) + i % 2];
        }
    }
}

void virtual_mma(float c[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line)
{
    mma_part part = {c, a, b};

    virtual_warp(0xFFFFFFFFu, &part, meet_mma, false, "mma_bf16", file, line);
}

/* --- ldmatrix.x4 -------------------------------------------------------------------------------*/

struct matrices_part {
    uint32_t *r;
    const void *row; /* lane % 8 of matrix lane / 8 */
};

static uint16_t matrix_value(void *const parts[LANES], int matrix, int row, int column)
{
    const matrices_part *part = static_cast<const matrices_part *>(parts[8 * matrix + row]);
    uint16_t value;

    memcpy(&value, static_cast<const unsigned char *>(part->row) + 2 * column, sizeof(value));
    return value;
}

static void meet_matrices(void *const parts[LANES], unsigned mask)
{
    (void)mask;
    for (int lane = 0; lane < LANES; lane++) {
        int row = lane / 4, column = 2 * (lane % 4);
        for (int m = 0; m < 4; m++) {
            static_cast<matrices_part *>(parts[lane])->r[m] =
                matrix_value(parts, m, row, column) |
                static_cast<uint32_t>(matrix_value(parts, m, row, column + 1)) << 16;
        }
    }
}

static void meet_matrices_transposed(void *const parts[LANES], unsigned mask)
{
    (void)mask;
    for (int lane = 0; lane < LANES; lane++) {
        int column = lane / 4, row = 2 * (lane % 4);
        for (int m = 0; m < 4; m++) {
            static_cast<matrices_part *>(parts[lane])->r[m] =
                matrix_value(parts, m, row, column) |
                static_cast<uint32_t>(matrix_value(parts, m, row + 1, column)) << 16;
        }
    }
}

static void need_shared(const void *address, const char *what, const char *file, int line)
{
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) {
        virtual_fatal("%s: %s at %s:%d: the address is not a multiple of 16", block_where().c_str(),
                      what, file, line);
    }
    if (!block_is_shared(address, 16)) {
        virtual_fatal("%s: %s at %s:%d: not within shared memory", block_where().c_str(), what,
                      file, line);
    }
}

void virtual_load_matrices(uint32_t r[4], const void *row, bool is_transposed, const char *file,
                           int line)
{
    matrices_part part = {r, row};

    need_shared(row, "load_matrices", file, line);
    virtual_warp(0xFFFFFFFFu, &part, is_transposed ? meet_matrices_transposed : meet_matrices,
                 false, "load_matrices", file, line);
}

/* --- cp.async ----------------------------------------------------------------------------------*/

struct pending_copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;
};

static struct {
    std::vector<pending_copy> pending;
    unsigned groups; /* committed */
} copies[BLOCK_THREADS_MAX];
static bool has_copies; /* in this block */

void virtual_copy_async(void *to, const void *from, bool is_wanted, const char *file, int line)
{
    unsigned thread = virtual_thread();

    need_shared(to, "copy_async", file, line);
    if (is_wanted && reinterpret_cast<uintptr_t>(from) % COPY_BYTES != 0) {
        virtual_fatal("%s: copy_async at %s:%d: the source is not a multiple of 16",
                      block_where().c_str(), file, line);
    }
    if (is_wanted && !virtual_is_device_memory(from, COPY_BYTES, -1)) {
        virtual_fatal("%s: copy_async at %s:%d: the source is not memory of the device",
                      block_where().c_str(), file, line);
    }
    memset(to, 0xFF, COPY_BYTES);
    copies[thread].pending.push_back({to, is_wanted ? from : NULL, copies[thread].groups});
    has_copies = true;
}

void virtual_copy_async_commit(void)
{
    copies[virtual_thread()].groups++;
    has_copies = true;
}

void virtual_copy_async_wait(unsigned pending_max)
{
    auto &mine = copies[virtual_thread()];
    size_t kept = 0;

    for (const pending_copy &copy : mine.pending) {
        if (copy.group + pending_max >= mine.groups) { /* may still be on its way: so it is */
            mine.pending[kept++] = copy;
        } else if (copy.from == NULL) {
            memset(copy.to, 0, COPY_BYTES);
        } else {
            memcpy(copy.to, copy.from, COPY_BYTES);
        }
    }
    mine.pending.resize(kept);
}

void virtual_copies_forget(void)
{
    if (!has_copies) return;
    for (auto &thread : copies) {
        thread.pending.clear();
        thread.groups = 0;
    }
    has_copies = false;
}

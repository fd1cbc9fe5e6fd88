/* The heap's door: zeroed, counted, aligned, and failing on request. */
#include "tests/check.h"

#include "base/mem.h"

#include <stdbool.h>

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

/* Fresh memory is zeroed and counted until it is freed. */
static void blocks_are_zeroed_and_counted(void **state)
{
    uint64_t before = mem_blocks();
    unsigned char *a = mem_alloc(1000), *b = mem_array(10, 100), *c = mem_aligned(1000);
    char *d = mem_string("hello");

    (void)state;
    assert_true(is_zero(a, 1000) && is_zero(b, 1000) && is_zero(c, 1000));
    assert_string_equal(d, "hello");
    assert_int_equal(mem_blocks(), before + 4);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
    mem_free(NULL);
    assert_int_equal(mem_blocks(), before);
}

/* Vectors are aligned to 64 bytes whatever their size. */
static void aligned_blocks_are_aligned(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 300; bytes += 13) {
        void *block = mem_aligned(bytes);

        assert_int_equal((uintptr_t)block % 64, 0);
        mem_free(block);
    }
}

/* Sizes of nothing are valid, sizes beyond the address space are refused. */
static void extreme_sizes_are_answered(void **state)
{
    void *nothing = mem_alloc(0);

    (void)state;
    assert_non_null(nothing);
    mem_free(nothing);
    assert_null(mem_array(SIZE_MAX / 2, 3));
    assert_null(mem_aligned(SIZE_MAX - 8));
}

/* Resizing keeps the bytes; a failed resize leaves the old block whole. */
static void resizing_keeps_the_bytes(void **state)
{
    uint64_t before = mem_blocks();
    char *block = mem_resize(NULL, 4), *wider;

    (void)state;
    memcpy(block, "abc", 4);
    wider = mem_resize(block, 4000);
    assert_non_null(wider);
    assert_string_equal(wider, "abc");
    mem_fail_after(0);
    assert_null(mem_resize(wider, 8000));
    assert_string_equal(wider, "abc");
    wider = mem_resize(wider, 0);
    assert_non_null(wider);
    assert_int_equal(mem_blocks(), before + 1);
    mem_free(wider);
    assert_int_equal(mem_blocks(), before);
}

/* The allocation asked for fails, of every kind, and only that one. */
static void the_nth_allocation_fails_once(void **state)
{
    uint64_t before = mem_blocks();

    (void)state;
    for (uint64_t n = 0; n < 4; n++) {
        void *blocks[4];

        mem_fail_after(n);
        blocks[0] = mem_alloc(8);
        blocks[1] = mem_array(2, 8);
        blocks[2] = mem_aligned(8);
        blocks[3] = mem_string("x");
        for (uint64_t i = 0; i < 4; i++) {
            assert_true((blocks[i] == NULL) == (i == n));
            mem_free(blocks[i]);
        }
    }
    mem_fail_after(UINT64_MAX);
    assert_int_equal(mem_blocks(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_and_counted),
        cmocka_unit_test(aligned_blocks_are_aligned),
        cmocka_unit_test(extreme_sizes_are_answered),
        cmocka_unit_test(resizing_keeps_the_bytes),
        cmocka_unit_test(the_nth_allocation_fails_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

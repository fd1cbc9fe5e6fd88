/* Counted byte strings. */
#include "tests/check.h"

#include "base/blob.h"
#include "base/mem.h"

/* A blob lives exactly as long as its last reference. */
static void the_last_reference_frees(void **state)
{
    uint64_t before = mem_blocks();
    struct blob *blob = blob_copy("hello", 5);

    (void)state;
    assert_int_equal(blob->count, 5);
    assert_memory_equal(blob->bytes, "hello", 5);
    assert_ptr_equal(blob_ref(blob), blob);
    blob_unref(blob);
    assert_int_equal(mem_blocks(), before + 1);
    assert_memory_equal(blob->bytes, "hello", 5);
    blob_unref(blob);
    blob_unref(NULL);
    assert_int_equal(mem_blocks(), before);
}

/* An empty blob is a blob. */
static void empty_blobs_are_fine(void **state)
{
    struct blob *blob = blob_copy(NULL, 0);

    (void)state;
    assert_non_null(blob);
    assert_int_equal(blob->count, 0);
    blob_unref(blob);
}

/* Without memory, or beyond the address space, there is no blob. */
static void short_memory_gives_null(void **state)
{
    (void)state;
    mem_fail_after(0);
    assert_null(blob_create(10));
    mem_fail_after(0);
    assert_null(blob_copy("x", 1));
    mem_fail_after(UINT64_MAX);
    assert_null(blob_create(SIZE_MAX));
    assert_null(blob_create(SIZE_MAX - 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_reference_frees),
        cmocka_unit_test(empty_blobs_are_fine),
        cmocka_unit_test(short_memory_gives_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

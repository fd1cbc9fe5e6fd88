/* frame_queue: order, growth, references. */
#include "tests/check.h"

#include "base/mem.h"
#include "peer/env/frame_queue.h"

static void frames_come_out_in_the_order_they_went_in(void **state)
{
    /* Through growth and wrapping round, against a plain count. */
    struct frame_queue queue = {0};
    uint8_t in = 0, out = 0;

    (void)state;
    for (unsigned turn = 0; turn < 100; turn++) {
        for (unsigned i = 0; i < turn % 7 + 3; i++) {
            assert_int_equal(frame_queue_push(&queue, blob_copy(&in, 1)), RC_OK);
            in++;
        }
        for (unsigned i = 0; i < turn % 5 + 2; i++) {
            struct blob *frame = frame_queue_pop(&queue);

            assert_int_equal(frame->bytes[0], out++);
            blob_unref(frame);
        }
        assert_int_equal((uint8_t)(in - out), (uint8_t)queue.count);
    }
    assert_int_equal(frame_queue_first(&queue)->bytes[0], out);
    frame_queue_deinit(&queue);
    assert_int_equal(mem_blocks(), 0);
}

static void a_frame_can_be_put_before_all_others(void **state)
{
    /* In an empty queue, in a full one, and NULL too. */
    struct frame_queue queue = {0};

    (void)state;
    for (uint8_t i = 40; i > 0; i--) {
        assert_int_equal(frame_queue_push_first(&queue, blob_copy(&i, 1)), RC_OK);
    }
    assert_int_equal(frame_queue_push_first(&queue, NULL), RC_OK);
    assert_null(frame_queue_pop(&queue));
    for (uint8_t i = 1; i <= 40; i++) {
        struct blob *frame = frame_queue_pop(&queue);

        assert_int_equal(frame->bytes[0], i);
        blob_unref(frame);
    }
    frame_queue_deinit(&queue);
}

static void without_memory_a_push_fails_and_changes_nothing(void **state)
{
    /* The caller keeps its reference. */
    struct frame_queue queue = {0};
    struct blob *frame = blob_create(1);

    (void)state;
    mem_fail_after(0);
    assert_int_equal(frame_queue_push(&queue, frame), RC_NOMEM);
    mem_fail_after(0);
    assert_int_equal(frame_queue_push_first(&queue, frame), RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    assert_int_equal(queue.count, 0);
    assert_int_equal(frame_queue_push(&queue, frame), RC_OK);
    frame_queue_clear(&queue);
    assert_int_equal(queue.count, 0);
    frame_queue_deinit(&queue);
    assert_int_equal(mem_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_out_in_the_order_they_went_in),
        cmocka_unit_test(a_frame_can_be_put_before_all_others),
        cmocka_unit_test(without_memory_a_push_fails_and_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The outbox: encodes at once, is bounded, counts what it drops, leaks nothing. */
#include "tests/check.h"

#include "base/mem.h"
#include "gossip/flow/outbox.h"

static const struct peer_id someone = {{1, 2, 3}};

/* What is added is encoded then and there, so what it borrowed may go. */
static void messages_are_encoded_when_they_are_added(void **state)
{
    struct message message = {.type = MESSAGE_PING, .as.ping = {.seq = 77, .updates_count = 1}};
    uint8_t record[4] = {9, 9, 9, 9};
    struct outbox outbox;
    struct message back;
    struct blob *inner;

    (void)state;
    outbox_init(&outbox);
    message.as.ping.updates[0] = (struct record_ref){.bytes = record, .bytes_count = 4};
    outbox_add(&outbox, someone, &message);
    memset(record, 0, sizeof record);
    memset(&message, 0, sizeof message);
    assert_int_equal(outbox.count, 1);
    assert_true(peer_id_is_equal(outbox.entries[0].to, someone));
    inner = outbox.entries[0].inner;
    assert_int_equal(message_decode(MESSAGE_PING, inner->bytes + INNER_HEADER_BYTES,
                                    inner->count - INNER_HEADER_BYTES, &back),
                     RC_OK);
    assert_int_equal(back.as.ping.seq, 77);
    assert_int_equal(back.as.ping.updates[0].bytes_count, 4);
    assert_int_equal(back.as.ping.updates[0].bytes[3], 9);
    outbox_deinit(&outbox);
}

/* OUTBOX_MAX messages are kept, the rest is counted, and an emptied outbox takes them again. */
static void what_does_not_fit_is_counted(void **state)
{
    const struct message fin = {.type = MESSAGE_FIN};
    uint64_t blocks = mem_blocks();
    struct outbox outbox;

    (void)state;
    outbox_init(&outbox);
    for (int i = 0; i < OUTBOX_MAX + 5; i++) {
        outbox_add(&outbox, someone, &fin);
    }
    assert_int_equal(outbox.count, OUTBOX_MAX);
    assert_int_equal(outbox.dropped, 5);
    outbox_clear(&outbox);
    assert_int_equal(outbox.count, 0);
    outbox_add(&outbox, someone, &fin);
    assert_int_equal(outbox.count, 1);
    assert_int_equal(outbox.dropped, 5);
    outbox_deinit(&outbox);
    assert_int_equal(mem_blocks(), blocks);
}

/* A blob that was taken is the taker's. */
static void a_taken_message_outlives_the_outbox(void **state)
{
    const struct message fin = {.type = MESSAGE_FIN};
    uint64_t blocks = mem_blocks();
    struct outbox outbox;
    struct blob *taken;

    (void)state;
    outbox_init(&outbox);
    outbox_add(&outbox, someone, &fin);
    taken = outbox.entries[0].inner;
    outbox.entries[0].inner = NULL;
    outbox_deinit(&outbox);
    assert_int_equal(taken->bytes[0], MESSAGE_FIN);
    blob_unref(taken);
    assert_int_equal(mem_blocks(), blocks);
}

/* Whichever allocation fails, that message is dropped and counted and the others stand. */
static void a_failing_allocation_drops_one_message(void **state)
{
    const struct message fin = {.type = MESSAGE_FIN};

    (void)state;
    for (uint64_t after = 0; after < 24; after++) {
        uint64_t blocks = mem_blocks();
        struct outbox outbox;

        outbox_init(&outbox);
        mem_fail_after(after);
        for (int i = 0; i < 20; i++) {
            outbox_add(&outbox, someone, &fin);
        }
        mem_fail_after(UINT64_MAX);
        assert_int_equal(outbox.dropped,
                         after < 22 ? 1 : 0); /* 20 blobs, the list made and grown */
        assert_int_equal(outbox.count + outbox.dropped, 20);
        outbox_deinit(&outbox);
        assert_int_equal(mem_blocks(), blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_encoded_when_they_are_added),
        cmocka_unit_test(what_does_not_fit_is_counted),
        cmocka_unit_test(a_taken_message_outlives_the_outbox),
        cmocka_unit_test(a_failing_allocation_drops_one_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

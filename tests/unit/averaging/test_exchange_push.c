/* What a receiver of shares remembers of its senders, and says when they ask. */
#include "tests/check.h"

#include "averaging/exchange_push.h"
#include "base/bytes.h"
#include "base/mem.h"

static struct round_key key_of(uint32_t sender, uint64_t counter)
{
    struct round_key key = {.counter = counter};

    store_le32(key.initiator.bytes, sender + 1);
    store_le32(key.boot.bytes, sender + 1);
    return key;
}

static struct exchange *start(void)
{
    struct exchange_options options = {.self = {{255, 255, 255, 255}}, .chunks = 1, .alpha = 0.5f};
    struct exchange *exchange = exchange_push.create(&options);

    assert_non_null(exchange);
    return exchange;
}

/* What becomes of its first share, as `sender` hears it. */
static enum applied_state ask(struct exchange *exchange, uint32_t sender)
{
    struct message message = {.type = MESSAGE_APPLIED_REQ};
    struct round_key key = key_of(sender, 1);
    enum applied_state state = APPLIED_PENDING;
    struct commands out;

    commands_init(&out);
    message.as.outcome_req.key = key;
    key.boot.bytes[9] = 1; /* it has started again since, so no new mark is made */
    assert_int_equal(
        exchange->ops->on_message(exchange, key.initiator, key.boot, &message, 1, &out), RC_OK);
    for (uint32_t i = 0; i < out.count; i++) {
        if (out.items[i].message.type != MESSAGE_APPLIED) continue;
        state = (enum applied_state)out.items[i].message.as.applied.state;
    }
    commands_deinit(&out);
    return state;
}

/* More senders than there are marks: what gave way is not denied for as long as somebody may still
 * ask for it, also after a restart; who never sent, is told so all the time. */
static void who_is_forgotten_is_not_mistaken_for_who_never_sent(void **state)
{
    enum { LATE = 40, SENDERS = PUSH_MARKS_MAX + LATE, STRANGER = 100000 };
    struct exchange *exchange = start(), *again = start();
    uint8_t *saved;
    size_t count;

    (void)state;
    for (uint32_t i = 0; i < SENDERS; i++) {
        struct round_key key = key_of(i, 1);

        push_mark_applied(push_of(exchange), &key);
    }
    assert_int_equal(exchange->ops->save(exchange, &saved, &count), RC_OK);
    assert_int_equal(again->ops->load(again, saved, count), RC_OK);
    assert_int_equal(again->ops->load(again, saved, count - 8), RC_FORMAT);
    mem_free(saved);
    for (uint32_t i = 0; i < SENDERS; i++) {
        assert_int_equal(ask(exchange, i), i < LATE ? APPLIED_FORGOTTEN : APPLIED_YES);
        assert_int_equal(ask(again, i), i < LATE ? APPLIED_FORGOTTEN : APPLIED_YES);
    }
    assert_int_equal(ask(exchange, STRANGER), APPLIED_NO);
    assert_int_equal(ask(again, STRANGER), APPLIED_NO);
    for (uint32_t i = SENDERS; i < SENDERS + PUSH_GONE_MAX; i++) {
        struct round_key key = key_of(i, 1);

        push_mark_applied(push_of(exchange), &key);
    }
    assert_int_equal(ask(exchange, LATE - 1), APPLIED_NO); /* too long ago */
    assert_int_equal(ask(exchange, SENDERS - 1), APPLIED_FORGOTTEN);
    exchange->ops->destroy(exchange);
    again->ops->destroy(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_forgotten_is_not_mistaken_for_who_never_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

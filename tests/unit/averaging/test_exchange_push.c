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

/* `sender` offers a share, and sends it 10 ms after it may if it `keeps_its_word`. False: it was
 * refused. */
static bool offer(struct exchange *exchange, uint32_t sender, uint64_t counter, uint64_t now_ns,
                  bool keeps_its_word)
{
    struct message message = {.type = MESSAGE_SHARE};
    struct round_key key = key_of(sender, counter);
    struct chunk_ref chunk = {
        .from = key.initiator, .kind = DATA_OFFER, .stream = (uint16_t)counter};
    const uint64_t sent_ns = now_ns + 10 * NS_PER_MS;
    bool is_refused;
    struct commands out;
    float weight;

    commands_init(&out);
    push_of(exchange)->weight = 1; /* or it grows, and shares are too small for it */
    message.as.share.key = key;
    message.as.share.lineage = (struct digest){{9}};
    message.as.share.chunks = 1;
    message.as.share.weight = 0.5f;
    is_refused = exchange->ops->on_message(exchange, key.initiator, key.boot, &message, now_ns,
                                           &out) != RC_OK;
    if (!is_refused) {
        exchange->ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, (struct digest){{0}}, now_ns,
                                   &out);
    }
    if (!is_refused && keeps_its_word) {
        assert_int_equal(exchange->ops->on_chunk(exchange, &chunk, &weight), RC_OK);
        exchange->ops->on_chunk_checked(exchange, &chunk, RC_OK, (struct digest){{0}}, 0, sent_ns,
                                        &out);
        assert_false(exchange->ops->is_active(exchange));
    }
    commands_deinit(&out);
    return !is_refused;
}

/* A share that is promised and never sent holds the round, and who waits for it, no longer than
 * first chunks use to take, and less and less often. One that keeps its word is let in all the
 * time, also once it has failed to. */
static void a_promise_that_is_not_kept_holds_nobody_for_long(void **state)
{
    enum { LIAR = 1, HONEST = 2, RUN_S = 1200 };
    struct exchange *exchange = start();
    uint64_t now_ns = NS_PER_S, held_ns = 0, counter = 0;
    struct commands out;

    (void)state;
    commands_init(&out);
    exchange->ops->set_lineage(exchange, (struct digest){{9}}, &out);
    for (int i = 0; i < 12; i++, now_ns += NS_PER_S) {
        assert_true(offer(exchange, HONEST, ++counter, now_ns, true));
    }
    while (now_ns < RUN_S * NS_PER_S) {
        if (!offer(exchange, LIAR, ++counter, now_ns, false)) {
            assert_true(offer(exchange, HONEST, ++counter, now_ns, true));
            now_ns += NS_PER_S;
            continue;
        }
        assert_true(exchange->ops->is_active(exchange));
        assert_in_range(exchange->ops->next_ns(exchange), now_ns + NS_PER_MS,
                        now_ns + 8 * NS_PER_S);
        held_ns += exchange->ops->next_ns(exchange) - now_ns;
        now_ns = exchange->ops->next_ns(exchange);
        exchange->ops->tick(exchange, now_ns, &out);
        assert_false(exchange->ops->is_active(exchange));
    }
    assert_in_range(held_ns, NS_PER_S, 60 * NS_PER_S);
    now_ns += RUN_S * NS_PER_S * 4;
    assert_true(offer(exchange, LIAR, ++counter, now_ns, true));
    assert_true(offer(exchange, LIAR, ++counter, now_ns + NS_PER_S, true));
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_promise_that_is_not_kept_holds_nobody_for_long),
        cmocka_unit_test(who_is_forgotten_is_not_mistaken_for_who_never_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a receiver of shares remembers of its senders, and says when they ask. */
#include "tests/check.h"

#include "averaging/pair/pair.h"
#include "averaging/push/push.h"
#include "base/bytes.h"
#include "base/mem.h"

#include <math.h>

static struct round_key key_of(uint32_t sender, uint64_t counter)
{
    struct round_key key = {.counter = counter};

    store_le32(key.initiator.bytes, sender + 1);
    store_le32(key.boot.bytes, sender + 1);
    return key;
}

static struct exchange *start_with(uint32_t chunks,
                                   enum standing (*standing)(void *context, struct peer_id id))
{
    struct exchange_options options = {
        .self = {{255, 255, 255, 255}}, .chunks = chunks, .standing = standing};
    struct exchange *exchange = exchange_push.create(&options);

    assert_non_null(exchange);
    return exchange;
}

static struct exchange *start(void)
{
    return start_with(1, NULL);
}

static enum standing nobody_is_proven(void *context, struct peer_id id)
{
    (void)context;
    (void)id;
    return STANDING_NEW;
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
    store_le32(saved, 1); /* as it was before who is forgotten was told apart */
    assert_int_equal(again->ops->load(again, saved, count), RC_MISMATCH);
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

/* `sender` offers a share that weighs `offered`. False: it was refused. */
static bool promise(struct exchange *exchange, uint32_t sender, uint64_t counter, float offered,
                    uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_SHARE};
    struct round_key key = key_of(sender, counter);
    bool is_refused;
    struct commands out;

    commands_init(&out);
    message.as.share.key = key;
    message.as.share.lineage = (struct digest){{9}};
    message.as.share.chunks = push_of(exchange)->options.chunks;
    message.as.share.weight = offered;
    is_refused = exchange->ops->on_message(exchange, key.initiator, key.boot, &message, now_ns,
                                           &out) != RC_OK;
    if (!is_refused) {
        exchange->ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, (struct digest){{0}}, now_ns,
                                   &out);
    }
    commands_deinit(&out);
    return !is_refused;
}

/* The first `count` of the chunks it promised. */
static void deliver(struct exchange *exchange, uint32_t sender, uint64_t counter, uint32_t count,
                    uint64_t now_ns)
{
    struct round_key key = key_of(sender, counter);
    struct chunk_ref chunk = {
        .from = key.initiator, .kind = DATA_OFFER, .stream = exchange_stream(&key)};
    struct commands out;
    struct chunk_use use;

    commands_init(&out);
    for (; chunk.chunk < count; chunk.chunk++) {
        assert_int_equal(exchange->ops->on_chunk(exchange, &chunk, &use), RC_OK);
        assert_int_equal(exchange->ops->on_chunk(exchange, &chunk, &use), RC_REPLAY);
        exchange->ops->on_chunk_checked(exchange, &chunk, RC_OK, (struct digest){{0}}, 0, now_ns,
                                        &out);
    }
    assert_true(exchange_is_active(exchange) == (count < push_of(exchange)->options.chunks));
    commands_deinit(&out);
}

/* The share that is awaited does not come: how long it held the round. */
static uint64_t wait_in_vain(struct exchange *exchange, uint64_t now_ns)
{
    uint64_t next_ns = exchange->ops->next_ns(exchange);
    struct commands out;

    commands_init(&out);
    assert_true(exchange_is_active(exchange) && next_ns > now_ns);
    exchange->ops->tick(exchange, next_ns, &out);
    assert_false(exchange_is_active(exchange));
    commands_deinit(&out);
    return next_ns - now_ns;
}

/* Both: it is sent 10 ms after it may be if it `keeps_its_word`. */
static bool offer_of(struct exchange *exchange, uint32_t sender, uint64_t counter, float offered,
                     uint64_t now_ns, bool keeps_its_word)
{
    struct push *push = push_of(exchange);

    /* It has been given as much, and others are light: test_push_accounts.c is about the rest. */
    push->accounts[0] = (struct push_account){.id = key_of(sender, 1).initiator, .had = 1e9};
    push->accounts[1] = push->accounts[2] = (struct push_account){.given = 1, .claimed = 1};
    push->accounts_count = 3;
    if (!promise(exchange, sender, counter, offered, now_ns)) return false;
    if (keeps_its_word) {
        deliver(exchange, sender, counter, push_of(exchange)->options.chunks,
                now_ns + 10 * NS_PER_MS);
    }
    return true;
}

static bool offer(struct exchange *exchange, uint32_t sender, uint64_t counter, uint64_t now_ns,
                  bool keeps_its_word)
{
    push_of(exchange)->weight = 1; /* or it grows, and shares are too small for it */
    return offer_of(exchange, sender, counter, 0.5f, now_ns, keeps_its_word);
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
        assert_true(exchange_is_active(exchange));
        assert_in_range(exchange->ops->next_ns(exchange), now_ns + NS_PER_MS,
                        now_ns + 8 * NS_PER_S);
        held_ns += exchange->ops->next_ns(exchange) - now_ns;
        now_ns = exchange->ops->next_ns(exchange);
        exchange->ops->tick(exchange, now_ns, &out);
        assert_false(exchange_is_active(exchange));
    }
    assert_in_range(held_ns, NS_PER_S, 60 * NS_PER_S);
    now_ns += RUN_S * NS_PER_S * 4;
    assert_true(offer(exchange, LIAR, ++counter, now_ns, true));
    assert_true(offer(exchange, LIAR, ++counter, now_ns + NS_PER_S, true));
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* Nor does one that keeps its word every other time, or four times of five. */
static void good_shares_in_between_do_not_make_up_for_broken_promises(void **state)
{
    enum { LIAR = 1, HONEST = 2, RUN_S = 1200 };

    (void)state;
    for (uint32_t good = 1; good <= 4; good += 3) {
        struct exchange *exchange = start();
        uint64_t now_ns = NS_PER_S, held_ns = 0, counter = 0;
        struct commands out;
        uint32_t kept = good;

        commands_init(&out);
        exchange->ops->set_lineage(exchange, (struct digest){{9}}, &out);
        for (int i = 0; i < 12; i++, now_ns += NS_PER_S) {
            assert_true(offer(exchange, HONEST, ++counter, now_ns, true));
        }
        while (now_ns < RUN_S * NS_PER_S) {
            if (!offer(exchange, LIAR, ++counter, now_ns, kept < good)) {
                assert_true(offer(exchange, HONEST, ++counter, now_ns, true));
                now_ns += NS_PER_S;
            } else if (kept++ < good) {
                now_ns += 100 * NS_PER_MS;
            } else {
                uint64_t took_ns = wait_in_vain(exchange, now_ns);

                held_ns += took_ns;
                now_ns += took_ns;
                kept = 0;
            }
        }
        assert_in_range(held_ns, NS_PER_S, (good == 1 ? 60 : RUN_S / 3) * NS_PER_S);
        commands_deinit(&out);
        exchange->ops->destroy(exchange);
    }
}

/* Whom we do not know may hold a share back after its first chunk, under any number of names: what
 * others are given is no more for it. */
static void strangers_teach_nobody_patience(void **state)
{
    enum { HONEST = 2, NAMES = 60, CHUNKS = 2 };
    const struct peer_id one = {{1}};
    struct exchange *exchange = start_with(CHUNKS, nobody_is_proven);
    struct push *push = push_of(exchange);
    uint64_t now_ns = NS_PER_S, counter = 0, before_ns;
    struct commands out;

    (void)state;
    commands_init(&out);
    exchange->ops->set_lineage(exchange, (struct digest){{9}}, &out);
    for (int i = 0; i < 12; i++, now_ns += NS_PER_S) {
        assert_true(offer(exchange, HONEST, ++counter, now_ns, true));
    }
    before_ns = push_share_wait_ns(push, one);
    for (uint32_t i = 0; i < NAMES; i++) {
        push->weight = 1;
        assert_true(promise(exchange, 100 + i, ++counter, 0.5f, now_ns));
        deliver(exchange, 100 + i, counter, 1, now_ns + 399 * NS_PER_MS);
        now_ns += wait_in_vain(exchange, now_ns) + NS_PER_S;
        if (i % 3 != 0) continue; /* most of what is heard is theirs */
        assert_true(offer(exchange, HONEST, ++counter, now_ns, true));
        now_ns += NS_PER_S;
    }
    assert_true(push_share_wait_ns(push, one) <= before_ns);
    assert_true(deadline_median(&push->firsts, 0) <= 10 * NS_PER_MS);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

static enum standing only_2_is_proven(void *context, struct peer_id id)
{
    (void)context;
    return load_le32(id.bytes) == 2 + 1 ? STANDING_PROVEN : STANDING_NEW;
}

/* Nor do names that promise and send nothing, many in a row, make us forget what shares take. */
static void strangers_make_nobody_forget(void **state)
{
    enum { HONEST = 2, NAMES = 40 };
    struct exchange *exchange = start_with(1, only_2_is_proven);
    uint64_t now_ns = NS_PER_S, counter = 0;
    struct commands out;

    (void)state;
    commands_init(&out);
    exchange->ops->set_lineage(exchange, (struct digest){{9}}, &out);
    for (int i = 0; i < 12; i++, now_ns += NS_PER_S) {
        assert_true(offer(exchange, HONEST, ++counter, now_ns, true));
    }
    for (uint32_t i = 0; i < NAMES; i++, now_ns += NS_PER_S) {
        push_of(exchange)->weight = 1;
        assert_true(promise(exchange, 100 + i, ++counter, 0.5f, now_ns));
        assert_true(wait_in_vain(exchange, now_ns) <= NS_PER_S);
    }
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* All have become slower than anybody is waited for: that is found out. */
static void a_swarm_that_gets_slower_goes_on(void **state)
{
    enum { SENDERS = 3, SLOW_S = 5, MEASURED = 40 };
    struct exchange *exchange = start_with(1, nobody_is_proven);
    uint64_t now_ns = NS_PER_S, counter = 0, taken = 0, broken = 0;
    struct commands out;

    (void)state;
    commands_init(&out);
    exchange->ops->set_lineage(exchange, (struct digest){{9}}, &out);
    for (uint32_t i = 0; i < 40; i++, now_ns += NS_PER_S) {
        assert_true(offer(exchange, i % SENDERS, ++counter, now_ns, true));
    }
    for (uint32_t i = 0; taken < MEASURED; i++, now_ns += NS_PER_S) {
        assert_true(now_ns < 3600 * NS_PER_S);
        push_of(exchange)->weight = 1;
        if (!promise(exchange, i % SENDERS, ++counter, 0.5f, now_ns)) continue;
        if (exchange->ops->next_ns(exchange) > now_ns + SLOW_S * NS_PER_S) {
            now_ns += SLOW_S * NS_PER_S;
            deliver(exchange, i % SENDERS, counter, 1, now_ns);
            taken++;
        } else {
            now_ns += wait_in_vain(exchange, now_ns);
            broken++;
        }
    }
    assert_in_range(broken, 1, 16);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

static void assert_resumes(struct exchange *exchange)
{
    struct exchange *again = start();
    uint8_t *saved;
    size_t count;

    assert_int_equal(exchange->ops->save(exchange, &saved, &count), RC_OK);
    assert_int_equal(again->ops->load(again, saved, count), RC_OK);
    assert_true(push_held_weight(push_of(again)) == push_held_weight(push_of(exchange)));
    again->ops->destroy(again);
    mem_free(saved);
}

static struct push_custody *give(struct exchange *exchange, uint32_t index, float weight)
{
    struct push *push = push_of(exchange);

    push->custody[index] =
        (struct push_custody){.is_used = true,
                              .key = {push->options.self, push->options.boot, index + 1},
                              .to = key_of(index, 1).initiator,
                              .weight = weight,
                              .since_ns = 1,
                              .ask_ns = UINT64_MAX};
    push->weight -= (double)weight;
    return &push->custody[index];
}

/* Shares each as heavy as may be make nobody hold so much that it could not go on from its own
 * checkpoint, nor do they when what it has given away comes back. */
static void who_is_given_too_much_can_still_resume(void **state)
{
    enum { GIVER = 9, SHARES = 40 };
    struct exchange *exchange = start();
    struct push *push = push_of(exchange);
    uint64_t now_ns = NS_PER_S;
    uint32_t taken = 0;
    struct commands out;

    (void)state;
    commands_init(&out);
    exchange->ops->set_lineage(exchange, (struct digest){{9}}, &out);
    for (uint32_t i = 1; i <= SHARES; i++, now_ns += NS_PER_S) {
        float most = (float)fmin(4 * push->weight, WEIGHT_MOST);

        taken += offer_of(exchange, GIVER, i, most, now_ns, true);
        assert_true(push_held_weight(push) <= WEIGHT_MOST);
        assert_resumes(exchange);
        if (i % 8 == 0) (void)give(exchange, i / 8 % SHARES_MAX, (float)(push->weight / 2));
    }
    assert_in_range(taken, 6, SHARES - 6);
    push->weight = WEIGHT_MOST - 2; /* exactly */
    memset(push->custody, 0, sizeof push->custody);
    assert_false(offer_of(exchange, GIVER, SHARES + 1, WEIGHT_MOST / 2, now_ns, true));
    push->weight = WEIGHT_MOST / 2;
    assert_true(offer_of(exchange, GIVER, SHARES + 2, WEIGHT_MOST / 2, now_ns, true));
    assert_true(push->weight == WEIGHT_MOST);
    give(exchange, 0, WEIGHT_MOST / 4)->is_returned = true;
    (void)give(exchange, 1, WEIGHT_MOST / 4);
    assert_false(offer_of(exchange, GIVER, SHARES + 3, WEIGHT_MOST / 8, now_ns, true));
    push->custody[0].ask_ns = 0;
    exchange->ops->tick(exchange, now_ns, &out);
    exchange->ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, (struct digest){{0}}, now_ns,
                               &out);
    exchange->ops->on_job_done(exchange, JOB_ABSORB_HELD, 0, RC_OK, (struct digest){{0}}, now_ns,
                               &out);
    assert_true(push->weight == WEIGHT_MOST / 4 * 3);
    assert_resumes(exchange);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* A SHARE of `sender` with this counter, and nothing after it. */
static enum rc announce(struct exchange *exchange, uint32_t sender, uint64_t counter,
                        uint64_t now_ns, struct commands *out)
{
    struct message message = {.type = MESSAGE_SHARE};
    struct round_key key = key_of(sender, counter);

    message.as.share.key = key;
    message.as.share.lineage = (struct digest){{9}};
    message.as.share.chunks = 1;
    message.as.share.weight = 0.5f;
    commands_clear(out);
    return exchange->ops->on_message(exchange, key.initiator, key.boot, &message, now_ns, out);
}

/* What was taken, and what we said that we had not, is never taken afterwards, nor after a restart:
 * its sender has it back by then. */
static void old_shares_are_not_taken_again(void **state)
{
    enum { TAKEN = 2, DENIED = 7 };
    struct exchange *exchange = start(), *again = start();
    struct message question = {.type = MESSAGE_APPLIED_REQ};
    struct round_key denied = key_of(DENIED, 3);
    struct commands out;
    uint8_t *saved;
    size_t count;
    double weight;

    (void)state;
    commands_init(&out);
    exchange->ops->set_lineage(exchange, (struct digest){{9}}, &out);
    again->ops->set_lineage(again, (struct digest){{9}}, &out);
    assert_true(offer(exchange, TAKEN, 1, NS_PER_S, true));
    question.as.outcome_req.key = denied;
    commands_clear(&out);
    assert_int_equal(exchange->ops->on_message(exchange, denied.initiator, denied.boot, &question,
                                               2 * NS_PER_S, &out),
                     RC_OK);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.items[0].message.as.applied.state, APPLIED_NO);
    assert_int_equal(exchange->ops->save(exchange, &saved, &count), RC_OK);
    assert_int_equal(again->ops->load(again, saved, count), RC_OK);
    mem_free(saved);
    for (int i = 0; i < 2; i++) {
        struct exchange *asked = i == 0 ? exchange : again;

        weight = push_of(asked)->weight;
        assert_int_equal(announce(asked, TAKEN, 1, 3 * NS_PER_S, &out), RC_REPLAY);
        assert_int_equal(out.count, 0); /* neither ACCEPT nor REJECT */
        assert_int_equal(announce(asked, DENIED, 3, 3 * NS_PER_S, &out), RC_REPLAY);
        assert_int_equal(announce(asked, DENIED, 2, 3 * NS_PER_S, &out), RC_REPLAY);
        assert_false(exchange_is_active(asked));
        assert_true(push_of(asked)->weight == weight);
        assert_int_equal(announce(asked, DENIED, 4, 3 * NS_PER_S, &out), RC_OK);
        assert_true(exchange_is_active(asked));
        asked->ops->cancel(asked, "the test goes on", 3 * NS_PER_S, &out);
        assert_true(offer(asked, TAKEN, 2, 5 * NS_PER_S, true));
    }
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
    again->ops->destroy(again);
}

/* Late shares are noted as twice what they were waited for: that has an end. */
static void waits_do_not_double_for_ever(void **state)
{
    struct exchange *exchange = start();
    struct push *push = push_of(exchange);

    (void)state;
    for (int i = 0; i < 100; i++) {
        deadline_add(&push->rounds, 2 * push_share_wait_ns(push, (struct peer_id){{1}}));
    }
    assert_int_equal(push_share_wait_ns(push, (struct peer_id){{1}}), 600 * NS_PER_S);
    exchange->ops->destroy(exchange);
}

static uint64_t drips(void *context, struct peer_id peer)
{
    (void)context;
    (void)peer;
    return 1;
}

static void a_slow_line_is_not_waited_for_beyond_the_cap(void **state)
{
    struct exchange_options options = {
        .self = {{255}}, .chunks = 60000, .chunk_bytes = 125000, .line = drips};
    struct exchange *push = exchange_push.create(&options);
    struct exchange *pair = exchange_pair.create(&options);

    (void)state;
    assert_int_equal(push_share_wait_ns(push_of(push), (struct peer_id){{1}}), 600 * NS_PER_S);
    assert_int_equal(pair_round_wait_ns((const struct pair *)pair, (struct peer_id){{1}}),
                     600 * NS_PER_S);
    push->ops->destroy(push);
    pair->ops->destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_given_too_much_can_still_resume),
        cmocka_unit_test(a_promise_that_is_not_kept_holds_nobody_for_long),
        cmocka_unit_test(good_shares_in_between_do_not_make_up_for_broken_promises),
        cmocka_unit_test(strangers_teach_nobody_patience),
        cmocka_unit_test(strangers_make_nobody_forget),
        cmocka_unit_test(a_swarm_that_gets_slower_goes_on),
        cmocka_unit_test(a_slow_line_is_not_waited_for_beyond_the_cap),
        cmocka_unit_test(old_shares_are_not_taken_again),
        cmocka_unit_test(waits_do_not_double_for_ever),
        cmocka_unit_test(who_is_forgotten_is_not_mistaken_for_who_never_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which of several proposals of one round a member follows, and when. */
#include "tests/unit/averaging/group_steps.h"

#include "base/bytes.h"

static void a_member_joins_one_form_a_ballot_and_only_rising_ones(void **state)
{
    (void)state;
    /* Peer 3 is ready: it joins ballot 1 of peer 2, not another ballot 1 nor ballot 0, but 2. */
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct commands out;
    struct exchange *exchange = start(&exchange_group, 3, 6, &out);
    static const struct {
        uint8_t from;
        uint32_t ballot;
        enum rc rc;
        uint64_t now_ns; /* the last two: our window is over */
    } steps[] = {{2, 1, RC_OK, 2},    {2, 1, RC_REPLAY, 2},        {1, 1, RC_STALE, 2},
                 {1, 0, RC_STALE, 2}, {1, 2, RC_OK, 2 * NS_PER_S}, {2, 1, RC_STALE, 2 * NS_PER_S}};

    assert_int_equal(exchange_group.begin(exchange, &members, 0, 1, &out), RC_OK);
    assert_int_equal(out.count, 0); /* the third waits */
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct message form = form_from(steps[i].from, 6, steps[i].ballot);

        commands_clear(&out);
        assert_int_equal(exchange_group.on_message(exchange, id_of(steps[i].from),
                                                   boot_of(steps[i].from), &form, steps[i].now_ns,
                                                   &out),
                         steps[i].rc);
        assert_int_equal(sent(&out, MESSAGE_JOIN) != NULL, steps[i].rc == RC_OK);
    }
    exchange_group.destroy(exchange);
    commands_deinit(&out);
}

/* Whatever its ballot, a proposal waits for the window of the one that was joined, and is taken up
 * then if that has not started; and none leaps so high that ballots could be used up. */
static void a_higher_ballot_waits_for_the_earlier_window(void **state)
{
    (void)state;
    for (int has_started = 0; has_started <= 1; has_started++) {
        struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
        struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
        struct round_members members = {.ids = ids, .boots = boots, .count = 3};
        const struct exchange_ops *ops = &exchange_group;
        struct commands out;
        struct exchange *exchange = start(ops, 3, 6, &out);
        struct message form = form_from(1, 6, 0);

        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
        assert_int_equal(ops->on_message(exchange, ids[0], boots[0], &form, 2, &out), RC_OK);
        commands_clear(&out);
        form = form_from(2, 6, 200);
        assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &form, 3, &out), RC_STALE);
        assert_int_equal(sent(&out, MESSAGE_ABORT)->as.abort.code, ABORT_PROTOCOL);
        commands_clear(&out);
        form = form_from(2, 6, 1);
        assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &form, 4, &out), RC_OK);
        assert_int_equal(out.count, 0); /* it is remembered */
        if (has_started) {
            form = form_from(1, 6, 0);
            form.type = MESSAGE_START;
            assert_int_equal(ops->on_message(exchange, ids[0], boots[0], &form, 5, &out), RC_OK);
            assert_non_null(find(&out, COMMAND_SNAPSHOT));
        } else {
            ops->tick(exchange, ops->next_ns(exchange), &out);
            assert_int_equal(sent(&out, MESSAGE_JOIN)->as.join.ballot, 1);
            assert_int_equal(sent(&out, MESSAGE_ABORT)->as.abort.key.initiator.bytes[0], 1);
        }
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

/* Nor does one that has been joined by others give its own up for another in its window, whatever
 * the round of that. */
static void a_proposer_keeps_what_others_joined_for_its_window(void **state)
{
    (void)state;
    for (uint64_t ahead = 0; ahead <= 1; ahead++) {
        struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
        struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
        struct round_members members = {.ids = ids, .boots = boots, .count = 3};
        const struct exchange_ops *ops = &exchange_group;
        struct message form = form_from(3, 6, 2), join = {.type = MESSAGE_JOIN};
        struct commands out;
        struct exchange *exchange = start(ops, 1, 6, &out);

        form.as.form.round += ahead;
        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
        assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &join, 2, &out), RC_OK);
        commands_clear(&out);
        assert_int_equal(ops->on_message(exchange, ids[2], boots[2], &form, 3, &out), RC_OK);
        assert_int_equal(out.count, 0);
        ops->tick(exchange, ops->next_ns(exchange), &out);
        assert_int_equal(sent(&out, MESSAGE_START)->as.form.members_count, 2);
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

/* Of two proposers whom nobody has joined the one with the lower ballot goes on; and who joined the
 * other is told, and comes to it. */
static void the_earlier_of_two_goes_on(void **state)
{
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    const struct exchange_ops *ops = &exchange_group;
    struct message first = form_from(1, 6, 0), second = form_from(2, 6, 1);
    struct message back = {.type = MESSAGE_ABORT};
    struct commands out;
    struct exchange *exchange = start(ops, 2, 6, &out);

    (void)state;
    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    ops->tick(exchange, ops->next_ns(exchange), &out);
    assert_int_equal(sent(&out, MESSAGE_FORM)->as.form.ballot, 1);
    commands_clear(&out);
    assert_int_equal(ops->on_message(exchange, ids[0], boots[0], &first, 2 * NS_PER_S, &out),
                     RC_OK);
    assert_int_equal(sent(&out, MESSAGE_JOIN)->as.join.ballot, 0);
    ops->destroy(exchange);
    commands_deinit(&out);
    exchange = start(ops, 3, 6, &out);
    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &second, 2, &out), RC_OK);
    assert_int_equal(ops->on_message(exchange, ids[0], boots[0], &first, 3, &out), RC_STALE);
    commands_clear(&out);
    back.as.abort.key = (struct round_key){ids[1], boots[1], 0};
    back.as.abort.code = ABORT_PROTOCOL;
    assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &back, 4, &out), RC_OK);
    assert_int_equal(sent(&out, MESSAGE_JOIN)->as.join.ballot, 0);
    assert_int_equal(find(&out, COMMAND_SEND)->to.bytes[0], 1);
    ops->destroy(exchange);
    commands_deinit(&out);
}

/* However many a liar sends: the next ballot is never more than a step above the last. */
static void ballots_cannot_be_used_up(void **state)
{
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    const struct exchange_ops *ops = &exchange_group;
    struct commands out;
    struct exchange *exchange = start(ops, 3, 6, &out);
    uint64_t now_ns = 1;

    (void)state;
    assert_int_equal(ops->begin(exchange, &members, 0, now_ns, &out), RC_OK);
    for (uint32_t ballot = 0; ballot < 4096; ballot += ballot < 256 ? 1 : 97) {
        struct message form = form_from(2, 6, ballot);

        (void)!ops->on_message(exchange, ids[1], boots[1], &form, ++now_ns, &out);
        commands_clear(&out);
    }
    for (int i = 0; i < 8 && sent(&out, MESSAGE_FORM) == NULL; i++) { /* it does not start */
        commands_clear(&out);
        now_ns = ops->next_ns(exchange);
        ops->tick(exchange, now_ns, &out);
    }
    assert_int_equal(sent(&out, MESSAGE_FORM)->as.form.round, 0);
    assert_in_range(sent(&out, MESSAGE_FORM)->as.form.ballot, 256, 256 + GROUP_BALLOT_STEP + 1);
    ops->destroy(exchange);
    commands_deinit(&out);
}

/* Who joins and turns away, over and over, does not teach how long answers take: or windows would
 * be as one member likes, too short for the others or as long as can be. */
static void one_member_teaches_one_arrival_a_proposal(void **state)
{
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    const struct exchange_ops *ops = &exchange_group;
    struct message join = {.type = MESSAGE_JOIN}, abort = {.type = MESSAGE_ABORT};
    struct commands out;
    struct exchange *exchange = start(ops, 1, 6, &out);

    (void)state;
    abort.as.abort.key = (struct round_key){ids[0], boots[0], 0};
    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t now_ns = NS_PER_S / 10 + i;

        assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &join, now_ns, &out), RC_OK);
        assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &abort, now_ns, &out), RC_OK);
    }
    assert_int_equal(((const struct group *)(const void *)exchange)->arrivals.count, 1);
    ops->destroy(exchange);
    commands_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_joins_one_form_a_ballot_and_only_rising_ones),
        cmocka_unit_test(a_higher_ballot_waits_for_the_earlier_window),
        cmocka_unit_test(a_proposer_keeps_what_others_joined_for_its_window),
        cmocka_unit_test(the_earlier_of_two_goes_on),
        cmocka_unit_test(ballots_cannot_be_used_up),
        cmocka_unit_test(one_member_teaches_one_arrival_a_proposal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

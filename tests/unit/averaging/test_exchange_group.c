/* Single steps of group rounds that random runs seldom reach, played by hand. */
#include "tests/unit/averaging/group_steps.h"

#include "base/bytes.h"
#include "base/check.h"

static void a_start_we_turned_from_is_answered_with_abort(void **state)
{
    (void)state;
    /* Peer 3 joined 2, then 1; the START of 2 that still counts on it is told so, once. */
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct commands out;
    struct exchange *exchange = start(&exchange_group, 3, 6, &out);
    struct message form = form_from(2, 6, 1);
    const uint64_t late_ns = 2 * NS_PER_S; /* the window of the first is over */

    assert_int_equal(exchange_group.begin(exchange, &members, 0, 1, &out), RC_OK);
    assert_int_equal(exchange_group.on_message(exchange, id_of(2), boot_of(2), &form, 2, &out),
                     RC_OK);
    form = form_from(1, 6, 2);
    assert_int_equal(
        exchange_group.on_message(exchange, id_of(1), boot_of(1), &form, late_ns, &out), RC_OK);
    for (int i = 0; i < 2; i++) {
        form = form_from(2, 6, 1);
        form.type = MESSAGE_START;
        commands_clear(&out);
        assert_int_equal(
            exchange_group.on_message(exchange, id_of(2), boot_of(2), &form, late_ns, &out),
            RC_STALE);
        assert_int_equal(sent(&out, MESSAGE_ABORT) != NULL, i == 0);
        assert_null(find(&out, COMMAND_SNAPSHOT));
    }
    form = form_from(1, 6, 2);
    form.type = MESSAGE_START;
    assert_int_equal(
        exchange_group.on_message(exchange, id_of(1), boot_of(1), &form, late_ns, &out), RC_OK);
    assert_non_null(find(&out, COMMAND_SNAPSHOT));
    exchange_group.destroy(exchange);
    commands_deinit(&out);
}

/* Peer 3 cannot relay. It says so in JOIN, and a START that says ring all the same is refused
 * aloud: nobody waits for it, and it does not wait either, nor count it against the proposer. */
static void a_schedule_that_cannot_be_followed_is_refused_aloud(void **state)
{
    (void)state;
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct commands out;
    struct exchange *exchange = start(&exchange_group, 3, 6, &out);
    const struct exchange_ops *ops = &exchange_group;
    struct message form = form_from(1, 6, 0);
    uint32_t told = 0;

    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &form, 2, &out), RC_OK);
    assert_int_equal(sent(&out, MESSAGE_JOIN)->as.join.only_direct, 1);
    commands_clear(&out);
    form.type = MESSAGE_START;
    form.as.form.schedule = SCHEDULE_RING;
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &form, 3, &out), RC_MISMATCH);
    for (uint32_t i = 0; i < out.count; i++) {
        if (out.items[i].type != COMMAND_SEND || out.items[i].message.type != MESSAGE_ABORT)
            continue;
        told |= 1u << out.items[i].to.bytes[0];
    }
    assert_int_equal(told, 1u << 1 | 1u << 2);
    assert_null(find(&out, COMMAND_SNAPSHOT));
    ops->tick(exchange, ops->next_ns(exchange), &out);
    assert_null(find(&out, COMMAND_SCORE));
    assert_non_null(sent(&out, MESSAGE_FORM)); /* it is its turn: it had not waited for START */
    ops->destroy(exchange);
    commands_deinit(&out);
}

/* A proposer that may relay, told to take the ring, takes the direct way where one member must. */
static void one_that_is_only_direct_makes_the_round_direct(void **state)
{
    (void)state;
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct exchange_options options = {.self = ids[0],
                                       .boot = boots[0],
                                       .chunks = 6,
                                       .may_relay = true,
                                       .schedule = SCHEDULE_RING};
    const struct exchange_ops *ops = &exchange_group;

    for (uint8_t only_direct = 0; only_direct <= 1; only_direct++) {
        struct exchange *exchange = ops->create(&options);
        struct digest lineage = {{9}};
        struct commands out;

        assert_non_null(exchange);
        commands_init(&out);
        ops->set_lineage(exchange, lineage, &out);
        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
        assert_non_null(sent(&out, MESSAGE_FORM));
        for (uint8_t i = 1; i < 3; i++) {
            struct message join = {.type = MESSAGE_JOIN};

            join.as.join.only_direct = i == 2 ? only_direct : 0;
            assert_int_equal(ops->on_message(exchange, ids[i], boots[i], &join, 2, &out), RC_OK);
        }
        assert_int_equal(sent(&out, MESSAGE_START)->as.form.schedule,
                         only_direct ? SCHEDULE_DIRECT : SCHEDULE_RING);
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

/* With a quorum of three a round in which one takes part is not begun, and that one is told at
 * once; with two it is. */
static void a_round_begins_with_its_quorum(void **state)
{
    (void)state;
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct exchange_options options = {.self = ids[0], .boot = boots[0], .chunks = 6};
    const struct exchange_ops *ops = &exchange_group;

    for (options.quorum = 2; options.quorum <= 3; options.quorum++) {
        struct exchange *exchange = ops->create(&options);
        struct digest lineage = {{9}};
        struct message join = {.type = MESSAGE_JOIN}, no = {.type = MESSAGE_ABORT};
        struct commands out;

        assert_non_null(exchange);
        commands_init(&out);
        ops->set_lineage(exchange, lineage, &out);
        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
        assert_int_equal(ops->on_message(exchange, ids[1], boots[1], &join, 2, &out), RC_OK);
        commands_clear(&out);
        no.as.abort.key = (struct round_key){ids[0], boots[0], 0};
        assert_int_equal(ops->on_message(exchange, ids[2], boots[2], &no, 3, &out), RC_OK);
        assert_int_equal(sent(&out, MESSAGE_START) != NULL, options.quorum == 2);
        assert_int_equal(sent(&out, MESSAGE_ABORT) != NULL, options.quorum == 3);
        assert_int_equal(find(&out, COMMAND_SNAPSHOT) != NULL, options.quorum == 2);
        assert_int_equal(ops->state(exchange), options.quorum == 2 ? EXCHANGE_RUNS : EXCHANGE_IDLE);
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

static void a_mean_with_a_wrong_hash_loses_its_part_only(void **state)
{
    (void)state;
    /* Three members, six chunks: 1's part comes with a hash that does not fit; 2's is fine. */
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct digest hashes[2] = {{{1}}, {{2}}};
    struct commands out;
    struct exchange *exchange = start(&exchange_group, 3, 6, &out);
    const struct exchange_ops *ops = &exchange_group;
    struct message form = form_from(1, 6, 0);
    struct chunk_use use;

    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &form, 2, &out), RC_OK);
    form.type = MESSAGE_START;
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &form, 2, &out), RC_OK);
    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, 3, &out);
    ops->on_job_done(exchange, JOB_ABSORB_OWN, 4, RC_OK, nothing, 3, &out);
    for (uint8_t owner = 1; owner <= 2; owner++) {
        struct message mean = {.type = MESSAGE_MEAN};

        for (uint32_t i = 0; i < 2; i++) { /* its contribution to our part, then its mean */
            struct chunk_ref offer = {id_of(owner), DATA_OFFER, stream_from(1, 0), 4 + i};
            struct chunk_ref agreed = {id_of(owner), DATA_MEAN, stream_from(1, 0),
                                       2u * (owner - 1u) + i};

            assert_int_equal(ops->on_chunk(exchange, &offer, &use), RC_OK);
            assert_int_equal(ops->on_chunk(exchange, &offer, &use), RC_REPLAY);
            ops->on_chunk_checked(exchange, &offer, RC_OK, nothing, 0, 4, &out);
            assert_int_equal(ops->on_chunk(exchange, &offer, &use), RC_REPLAY);
            assert_int_equal(ops->on_chunk(exchange, &agreed, &use), RC_OK);
            assert_int_equal(ops->on_chunk(exchange, &agreed, &use), RC_REPLAY);
            ops->on_chunk_checked(exchange, &agreed, RC_OK, hashes[i], 0, 4, &out);
            assert_int_equal(ops->on_chunk(exchange, &agreed, &use), RC_REPLAY);
            agreed.chunk = 2u * (2u - owner) + i; /* of another's part */
            assert_int_equal(ops->on_chunk(exchange, &agreed, &use), RC_FORMAT);
            offer.chunk = 0; /* not of our part */
            assert_int_equal(ops->on_chunk(exchange, &offer, &use), RC_FORMAT);
        }
        mean.as.mean.stream = stream_from(1, 0);
        mean.as.mean.part = owner - 1u;
        mean.as.mean.contributors = 7;
        mean.as.mean.hash = hash_of(hashes, sizeof hashes);
        mean.as.mean.hash.bytes[0] ^= owner == 1;
        assert_int_equal(ops->on_message(exchange, id_of(owner), boot_of(owner), &mean, 4, &out),
                         RC_OK);
    }
    assert_int_equal(find(&out, COMMAND_SCORE)->score, SCORE_BROKE);
    commands_clear(&out);
    ops->on_job_done(exchange, JOB_REDUCE, 4, RC_OK, nothing, 5, &out);
    ops->on_job_done(exchange, JOB_REDUCE, 5, RC_OK, nothing, 5, &out);
    assert_int_equal(find(&out, COMMAND_OVER)->over.result, OVER_COMMITTED);
    assert_int_equal(find(&out, COMMAND_OVER)->over.bitmap[0], 0x3c); /* all but chunks 0 and 1 */
    exchange_group.destroy(exchange);
    commands_deinit(&out);
}

/* In a ring nobody can have a mean before our sum has gone up: who sends one is not listened to. */
static void a_mean_before_our_sum_is_refused(void **state)
{
    (void)state;
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct exchange_options options = {
        .self = ids[2], .boot = boots[2], .chunks = 6, .may_relay = true};
    const struct exchange_ops *ops = &exchange_group;
    struct exchange *exchange = ops->create(&options);
    struct message form = form_from(1, 6, 0), credit = {.type = MESSAGE_CREDIT};
    const struct command *range;
    struct chunk_ref mean;
    struct commands out;
    struct chunk_use use;

    assert_non_null(exchange);
    commands_init(&out);
    ops->set_lineage(exchange, (struct digest){{9}}, &out);
    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    assert_int_equal(ops->on_message(exchange, ids[0], boots[0], &form, 2, &out), RC_OK);
    assert_int_equal(sent(&out, MESSAGE_JOIN)->as.join.only_direct, 0);
    form.type = MESSAGE_START;
    form.as.form.schedule = SCHEDULE_RING;
    assert_int_equal(ops->on_message(exchange, ids[0], boots[0], &form, 2, &out), RC_OK);
    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, 3, &out);
    for (uint32_t i = 0; i < 12; i++) {
        mean = (struct chunk_ref){ids[i / 6], DATA_MEAN, stream_from(1, 0), i % 6};
        assert_int_equal(ops->on_chunk(exchange, &mean, &use), RC_FORMAT);
    }
    credit.as.credit.stream = stream_from(1, 0);
    credit.as.credit.start = group_start_digest(&form.as.form);
    credit.as.credit.chunks = 4; /* one of them is whom our sums go to */
    for (uint32_t i = 0; i < 2; i++) {
        (void)!ops->on_message(exchange, ids[i], boots[i], &credit, 4, &out);
    }
    range = find(&out, COMMAND_SEND_RANGE);
    assert_non_null(range);
    mean = (struct chunk_ref){range->to, DATA_MEAN, stream_from(1, 0), range->first};
    assert_int_equal(ops->on_chunk(exchange, &mean, &use), RC_OK);
    ops->destroy(exchange);
    commands_deinit(&out);
}

/* A member says nothing of its method in rounds that it did not say at the door, but may lie: what
 * it proposes by another codec is answered, not joined. */
static void another_codec_is_not_joined(void **state)
{
    (void)state;
    struct message form = form_from(1, 6, 1);
    struct commands out;
    struct exchange *exchange = start(&exchange_group, 3, 6, &out);

    snprintf(form.as.form.codec, sizeof form.as.form.codec, "int8.other");
    assert_int_equal(exchange_group.on_message(exchange, id_of(1), boot_of(1), &form, 2, &out),
                     RC_MISMATCH);
    assert_int_equal(sent(&out, MESSAGE_ABORT)->as.abort.code, ABORT_PROTOCOL);
    assert_null(sent(&out, MESSAGE_JOIN));
    exchange_group.destroy(exchange);
    commands_deinit(&out);
}

/* What options a peer of a method has for which nobody stands still. */
static struct exchange *start_patient(uint8_t self, const bool *busy, struct commands *out)
{
    struct exchange_options options = {.self = id_of(self),
                                       .boot = boot_of(self),
                                       .chunks = 6,
                                       .is_patient = true,
                                       .is_busy = busy};
    struct exchange *exchange = exchange_group.create(&options);

    assert_non_null(exchange);
    commands_init(out);
    exchange_group.set_lineage(exchange, (struct digest){{9}}, out);
    return exchange;
}

/* Past its window, peer 1's proposal stays open: it keeps nobody from anything, a late JOIN starts
 * it, with one more window for the third; and something long takes it back. */
static void a_proposal_that_nobody_joined_stays_open(void **state)
{
    (void)state;
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    const struct exchange_ops *ops = &exchange_group;

    for (int is_long = 0; is_long < 2; is_long++) {
        struct message join = {.type = MESSAGE_JOIN};
        struct commands out;
        bool is_busy = false;
        struct exchange *exchange = start_patient(1, &is_busy, &out);
        uint64_t window_ns, late_ns;

        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
        assert_non_null(sent(&out, MESSAGE_FORM));
        assert_true(ops->state(exchange) != EXCHANGE_LINGERS);
        window_ns = ops->next_ns(exchange);
        commands_clear(&out);
        ops->tick(exchange, window_ns, &out);
        assert_int_equal(out.count, 0);
        assert_true(exchange_is_active(exchange) && ops->state(exchange) == EXCHANGE_LINGERS);
        late_ns = window_ns + 300 * NS_PER_MS;
        assert_true(ops->next_ns(exchange) > late_ns);
        if (is_long) {
            is_busy = true;
            ops->tick(exchange, late_ns, &out);
            assert_false(exchange_is_active(exchange));
            assert_int_equal(sent(&out, MESSAGE_ABORT)->as.abort.key.initiator.bytes[0], 1);
        } else {
            assert_int_equal(ops->on_message(exchange, id_of(2), boot_of(2), &join, late_ns, &out),
                             RC_OK);
            assert_null(sent(&out, MESSAGE_START)); /* peer 3 may be as late */
            assert_true(ops->state(exchange) != EXCHANGE_LINGERS);
            ops->tick(exchange, ops->next_ns(exchange), &out);
            assert_int_equal(sent(&out, MESSAGE_START)->as.form.members_count, 2);
        }
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

/* For its proposer's own period, however long and though it has seen no round yet: or two with long
 * periods, each open at another time, would never meet. */
static void a_proposal_stays_open_for_a_period(void **state)
{
    (void)state;
    struct peer_id ids[2] = {id_of(1), id_of(2)};
    struct boot_id boots[2] = {boot_of(1), boot_of(2)};
    const uint64_t period_ns = 25 * NS_PER_S;
    struct round_members members = {.ids = ids, .boots = boots, .count = 2, .period_ns = period_ns};
    const struct exchange_ops *ops = &exchange_group;
    struct commands out;
    struct exchange *exchange = start_patient(1, NULL, &out);
    uint64_t now_ns = 1;

    for (int i = 0; i < 3; i++) {
        uint64_t begun_ns = now_ns;

        assert_int_equal(ops->begin(exchange, &members, 0, now_ns, &out), RC_OK);
        while (exchange_is_active(exchange)) {
            now_ns = ops->next_ns(exchange);
            ops->tick(exchange, now_ns, &out);
        }
        assert_true(now_ns - begun_ns > period_ns && now_ns - begun_ns < 2 * period_ns);
        now_ns +=
            (uint64_t)i * NS_PER_MS; /* begun again at once, or a little later: no pace is seen */
    }
    ops->destroy(exchange);
    commands_deinit(&out);
}

/* The ballot before is left without a word: ABORT names none, so it would decline the new one. */
static void who_proposes_anew_is_not_told_that_the_old_one_is_left(void **state)
{
    (void)state;
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct commands out;
    struct exchange *exchange = start(&exchange_group, 3, 6, &out);
    const struct exchange_ops *ops = &exchange_group;
    static const struct {
        uint8_t from;
        bool is_told;
    } steps[] = {{1, false}, {1, false}, {2, true}, {2, false}};

    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    for (uint32_t i = 0; i < ARRAY_COUNT(steps); i++) {
        struct message form = form_from(steps[i].from, 6, i);
        uint8_t from = steps[i].from;

        commands_clear(&out);
        assert_int_equal(
            ops->on_message(exchange, id_of(from), boot_of(from), &form, (i + 1) * NS_PER_S, &out),
            RC_OK);
        assert_int_equal(sent(&out, MESSAGE_JOIN)->as.join.ballot, i);
        assert_int_equal(sent(&out, MESSAGE_ABORT) != NULL, steps[i].is_told);
    }
    ops->destroy(exchange);
    commands_deinit(&out);
}

static bool is_invited(const struct exchange *exchange, uint64_t now_ns)
{
    struct exchange_counts counts;

    exchange->ops->counts(exchange, &counts);
    return now_ns <= counts.invited_until_ns;
}

/* What stands open is joined from the border on, until its proposer takes it back. */
static void an_open_proposal_invites(void **state)
{
    (void)state;
    struct message form = form_from(1, 6, 0), taken_back = {.type = MESSAGE_ABORT};
    const struct exchange_ops *ops = &exchange_group;
    struct commands out;
    struct exchange *exchange = start_patient(3, NULL, &out);
    uint64_t soon_ns = 1500 * NS_PER_MS, late_ns = 20 * NS_PER_S;

    form.as.form.deadline_ms = 1;
    assert_false(is_invited(exchange, 1));
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &form, 2, &out), RC_OK);
    assert_true(is_invited(exchange, soon_ns)); /* it stays open, as ours would */
    assert_false(is_invited(exchange, late_ns));
    taken_back.as.abort.key = (struct round_key){.initiator = id_of(1), .boot = boot_of(1)};
    assert_int_equal(ops->on_message(exchange, id_of(2), boot_of(2), &taken_back, 3, &out),
                     RC_STALE);
    assert_true(is_invited(exchange, soon_ns)); /* by its proposer alone */
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &taken_back, 3, &out), RC_OK);
    assert_false(is_invited(exchange, soon_ns));
    ops->destroy(exchange);
    commands_deinit(&out);
}

/* While the lane is busy nobody waits for a snapshot of ours: what is proposed, and what was heard
 * and not joined yet, is declined at once. Afterwards proposals are remembered again. */
static void a_busy_member_declines_at_once(void **state)
{
    (void)state;
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct commands out;
    bool is_busy = false;
    struct exchange *exchange = start_patient(3, &is_busy, &out);
    const struct exchange_ops *ops = &exchange_group;
    struct message form = form_from(1, 6, 0);

    ops->on_link_up(exchange, id_of(1), boot_of(1), 1, &out);
    ops->on_link_up(exchange, id_of(2), boot_of(2), 1, &out);
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &form, 1, &out), RC_OK);
    assert_int_equal(out.count, 0); /* remembered */
    is_busy = true;
    ops->tick(exchange, 2, &out);
    assert_non_null(sent(&out, MESSAGE_ABORT));
    assert_true(boot_id_is_equal(sent(&out, MESSAGE_ABORT)->as.abort.key.boot, boot_of(1)));
    commands_clear(&out);
    form = form_from(2, 6, 1);
    assert_int_equal(ops->on_message(exchange, id_of(2), boot_of(2), &form, 3, &out), RC_BUSY);
    assert_true(peer_id_is_equal(sent(&out, MESSAGE_ABORT)->as.abort.key.initiator, id_of(2)));
    assert_null(sent(&out, MESSAGE_JOIN));
    commands_clear(&out);
    is_busy = false;
    assert_int_equal(ops->begin(exchange, &members, 0, 5, &out), RC_OK);
    assert_null(sent(&out, MESSAGE_JOIN)); /* both know that it will not come */
    form = form_from(1, 6, 2);
    assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &form, 6, &out), RC_OK);
    assert_non_null(sent(&out, MESSAGE_JOIN));
    exchange_group.destroy(exchange);
    commands_deinit(&out);
}

/* Whatever round number others tell, the numbers are not used up: no FORM may leap further. */
static void round_numbers_cannot_be_used_up_by_others(void **state)
{
    struct commands out;
    struct exchange *exchange = start(&exchange_group, 1, 4, &out);
    struct message message = {.type = MESSAGE_FORM};
    struct exchange_counts counts;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        exchange->ops->set_round(exchange, UINT64_MAX / 2);
    }
    exchange->ops->counts(exchange, &counts);
    assert_true(counts.next_round < UINT64_C(1) << 48);
    message.as.form =
        (struct message_form){.round = UINT64_MAX / 2,
                              .chunks = 4,
                              .lineage = {{9}},
                              .members = {{id_of(2), boot_of(2)}, {id_of(1), boot_of(1)}},
                              .members_count = 2};
    assert_int_equal(exchange->ops->on_message(exchange, id_of(2), boot_of(2), &message, 1, &out),
                     RC_FORMAT);
    message.as.form.round = counts.next_round + 7; /* one that is ahead is followed */
    assert_int_equal(exchange->ops->on_message(exchange, id_of(2), boot_of(2), &message, 1, &out),
                     RC_OK);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* Peer 3 hears of round `ahead` later than its next one, in a proposal to all or, without it, in a
 * START. */
static enum rc hear_of(struct exchange *exchange, enum message_type type, uint64_t ahead,
                       uint64_t now_ns, struct commands *out)
{
    struct message message = form_from(2, 6, 1);
    struct exchange_counts counts;

    exchange->ops->counts(exchange, &counts);
    message.type = type;
    message.as.form.round = counts.next_round + ahead;
    if (type == MESSAGE_START) message.as.form.members_count = 2;
    commands_clear(out);
    return exchange->ops->on_message(exchange, id_of(2), boot_of(2), &message, now_ns, out);
}

static uint64_t next_round(const struct exchange *exchange)
{
    struct exchange_counts counts;

    exchange->ops->counts(exchange, &counts);
    return counts.next_round;
}

/* Join what peer 2 proposes so far ahead, and see it start; nobody but us comes to it. */
static enum rc take_part(struct exchange *exchange, uint64_t ahead, uint64_t now_ns,
                         struct commands *out)
{
    struct peer_id ids[3] = {id_of(1), id_of(2), id_of(3)};
    struct boot_id boots[3] = {boot_of(1), boot_of(2), boot_of(3)};
    struct round_members members = {.ids = ids, .boots = boots, .count = 3};
    struct message start = form_from(2, 6, 1);
    enum rc rc;

    start.type = MESSAGE_START;
    start.as.form.round = next_round(exchange) + ahead;
    assert_int_equal(exchange->ops->begin(exchange, &members, 0, now_ns, out), RC_OK);
    rc = hear_of(exchange, MESSAGE_FORM, ahead, now_ns, out);
    if (rc == RC_OK) {
        assert_int_equal(
            exchange->ops->on_message(exchange, id_of(2), boot_of(2), &start, now_ns, out), RC_OK);
        assert_non_null(find(out, COMMAND_SNAPSHOT));
    } else { /* and is told, so that it does not wait */
        assert_int_equal(sent(out, MESSAGE_ABORT)->as.abort.code, ABORT_PROTOCOL);
    }
    exchange->ops->cancel(exchange, "the test goes on", now_ns, out);
    return rc;
}

/* What others say of rounds to come takes a peer ahead by so much, and then no faster than its own
 * rounds and time go by; a round that it takes part in is believed, but a leap only now and then.
 */
static void words_take_nobody_far_ahead(void **state)
{
    static const enum message_type types[] = {MESSAGE_FORM, MESSAGE_START};
    const uint64_t leap = UINT64_C(1) << 20;

    (void)state;
    for (size_t t = 0; t < ARRAY_COUNT(types); t++) {
        struct commands out;
        struct exchange *exchange = start(&exchange_group, 3, 6, &out);
        uint64_t now_ns = 1000 * NS_PER_S, first;

        for (int i = 0; i < 1000; i++) { /* for ten seconds */
            (void)!hear_of(exchange, types[t], 1 + 7 * (uint64_t)i % 1000, now_ns, &out);
            now_ns += 10 * NS_PER_MS;
        }
        assert_in_range(next_round(exchange), 500,
                        GROUP_ROUND_NEAR + (UINT64_C(10) * GROUP_AHEAD_SECOND) + 1);
        first = next_round(exchange);
        assert_int_equal(take_part(exchange, 300, now_ns, &out), RC_OK);
        assert_int_equal(next_round(exchange), first + 301);
        assert_int_equal(take_part(exchange, leap, now_ns, &out), RC_STALE);
        now_ns += 200 * NS_PER_S;
        first = next_round(exchange);
        assert_int_equal(take_part(exchange, leap, now_ns, &out), RC_OK);
        assert_int_equal(next_round(exchange), first + leap + 1);
        assert_int_equal(take_part(exchange, leap, now_ns, &out), RC_STALE);
        assert_int_equal(take_part(exchange, 1, now_ns, &out), RC_OK);
        commands_deinit(&out);
        exchange->ops->destroy(exchange);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_we_turned_from_is_answered_with_abort),
        cmocka_unit_test(a_schedule_that_cannot_be_followed_is_refused_aloud),
        cmocka_unit_test(one_that_is_only_direct_makes_the_round_direct),
        cmocka_unit_test(a_round_begins_with_its_quorum),
        cmocka_unit_test(a_mean_with_a_wrong_hash_loses_its_part_only),
        cmocka_unit_test(a_mean_before_our_sum_is_refused),
        cmocka_unit_test(a_proposal_that_nobody_joined_stays_open),
        cmocka_unit_test(a_proposal_stays_open_for_a_period),
        cmocka_unit_test(who_proposes_anew_is_not_told_that_the_old_one_is_left),
        cmocka_unit_test(an_open_proposal_invites),
        cmocka_unit_test(a_busy_member_declines_at_once),
        cmocka_unit_test(another_codec_is_not_joined),
        cmocka_unit_test(round_numbers_cannot_be_used_up_by_others),
        cmocka_unit_test(words_take_nobody_far_ahead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

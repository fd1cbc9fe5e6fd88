/* What members make of rounds that have begun: who leaves them, and whose come to nothing, as a
 * habit; and that nobody can have another charged for it. */
#include "tests/unit/averaging/steps.h"

#include "averaging/group/group.h"

#include "base/bytes.h"
#include "base/check.h"

enum { MEMBERS = 5, SELF = 4, SAMPLES = 300 };

static const struct exchange_ops *ops = &exchange_group;

struct scene {
    struct exchange *exchange;
    struct commands out;
    uint64_t now_ns, round;
    struct message start; /* of the latest round */
    uint64_t stream;
};

static uint8_t outcast; /* STANDING_OUT; 0: nobody */

static enum standing all_but_the_outcast(void *context, struct peer_id id)
{
    (void)context;
    return id.bytes[0] == outcast && outcast != 0 ? STANDING_OUT : STANDING_PROVEN;
}

static void begin(struct scene *s, uint32_t chunks)
{
    const struct exchange_options options = {.self = id_of(SELF),
                                             .boot = boot_of(SELF),
                                             .chunks = chunks,
                                             .standing = all_but_the_outcast};

    *s = (struct scene){.now_ns = NS_PER_S, .round = 10};
    s->exchange = ops->create(&options);
    assert_non_null(s->exchange);
    commands_init(&s->out);
    ops->set_lineage(s->exchange, (struct digest){{9}}, &s->out);
}

static void end(struct scene *s)
{
    ops->destroy(s->exchange);
    commands_deinit(&s->out);
}

static enum rc tell(struct scene *s, uint8_t from, const struct message *message)
{
    s->now_ns += NS_PER_MS;
    return ops->on_message(s->exchange, id_of(from), boot_of(from), message, s->now_ns, &s->out);
}

/* We begin a round, and hear FORM of all, `proposer` first, the others by number. Its answer. */
static enum rc form_of(struct scene *s, uint8_t proposer)
{
    static uint8_t statements[MEMBERS * STATEMENT_BYTES];
    struct peer_id ids[MEMBERS];
    struct boot_id boots[MEMBERS];
    struct round_members members = {.ids = ids, .boots = boots, .count = MEMBERS};
    struct message_form *form = &s->start.as.form;

    s->round++;
    ops->set_round(s->exchange, s->round);
    s->start = (struct message){.type = MESSAGE_FORM};
    form->round = s->round;
    form->chunks = ((struct group *)(void *)s->exchange)->options.chunks;
    form->lineage = (struct digest){{9}};
    form->deadline_ms = 1000;
    ids[0] = id_of(proposer);
    for (uint8_t i = 1, at = 1; i <= MEMBERS; i++) {
        if (i != proposer) ids[at++] = id_of(i);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        boots[i] = boot_of(ids[i].bytes[0]);
        form->members[form->members_count++] = (struct member_ref){ids[i], boots[i]};
        store_le64(statements + (size_t)i * STATEMENT_BYTES, SAMPLES);
        store_le64(statements + (size_t)i * STATEMENT_BYTES + 8, 0);
    }
    form->statements = statements;
    assert_int_equal(ops->begin(s->exchange, &members, SAMPLES, s->now_ns, &s->out), RC_OK);
    return tell(s, proposer, &s->start);
}

/* That and START: the last owns the only chunk there may be. `without` 0, or one who is not in it.
 */
static void round_of(struct scene *s, uint8_t proposer, uint8_t without)
{
    struct message_form *form = &s->start.as.form;

    s->now_ns += 20 * NS_PER_S; /* FORM without START is long ago */
    assert_int_equal(form_of(s, proposer), RC_OK);
    s->start.type = MESSAGE_START;
    if (without != 0) {
        uint32_t at = 0;

        while (form->members[at].id.bytes[0] != without) {
            at++;
        }
        memmove(form->members + at, form->members + at + 1,
                (--form->members_count - at) * sizeof *form->members);
    }
    form->statements_bytes = form->members_count * STATEMENT_BYTES;
    s->stream = group_stream(form->members[0], s->round);
    commands_clear(&s->out);
    assert_int_equal(tell(s, proposer, &s->start), RC_OK);
}

static void snapshot(struct scene *s)
{
    assert_non_null(find(&s->out, COMMAND_SNAPSHOT));
    ops->on_job_done(s->exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, s->now_ns, &s->out);
}

/* By ABORT, by CANCEL, or by its link. */
static void leave(struct scene *s, uint8_t member, int how)
{
    struct message message = {.type = how == 0 ? MESSAGE_ABORT : MESSAGE_CANCEL};

    if (how == 0) {
        message.as.abort.key.initiator = s->start.as.form.members[0].id;
        message.as.abort.key.boot = s->start.as.form.members[0].boot;
        message.as.abort.key.counter = s->round;
        message.as.abort.code = ABORT_LOCAL;
    } else {
        message.as.cancel.stream = s->stream;
        message.as.cancel.code = CANCEL_START;
    }
    if (how == 2) {
        ops->on_link_lost(s->exchange, id_of(member), s->now_ns, &s->out);
        ops->on_link_up(s->exchange, id_of(member), boot_of(member), s->now_ns, &s->out);
    } else {
        assert_int_equal(tell(s, member, &message), RC_OK);
    }
}

static bool is_charged(const struct scene *s, uint8_t member)
{
    for (uint32_t i = 0; i < s->out.count; i++) {
        const struct command *command = &s->out.items[i];

        if (command->type == COMMAND_SCORE && score_is_fault(command->score)) {
            return command->to.bytes[0] == member;
        }
    }
    return false;
}

static uint32_t heard(const struct scene *s, enum message_type type)
{
    uint32_t to = 0;

    for (uint32_t i = 0; i < s->out.count; i++) {
        const struct command *command = &s->out.items[i];

        if (command->type == COMMAND_SEND && command->message.type == type) {
            to |= 1u << command->to.bytes[0];
        }
    }
    return to;
}

/* One that leaves the part it was given, whoever proposes, is charged with the third, and each
 * further one; where its link is lost, which may be our fault, with the fifth. */
static void who_leaves_its_part_again_and_again_is_charged(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct scene s;

        begin(&s, 1);
        for (int i = 1; i <= 6; i++) {
            round_of(&s, (uint8_t)(1 + i % 3), 0);
            snapshot(&s);
            leave(&s, 5, how);
            assert_int_equal(is_charged(&s, 5), i >= (how == 2 ? 5 : 3));
            ops->cancel(s.exchange, "test", s.now_ns, &s.out);
        }
        end(&s);
    }
}

/* ...and who has no part leaves it to nobody: honest members leave for reasons of their own. */
static void who_has_no_part_may_leave(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 1);
    for (int i = 1; i <= 6; i++) {
        round_of(&s, (uint8_t)(1 + i % 2), 0);
        snapshot(&s);
        leave(&s, 3, 0);
        assert_int_equal(heard(&s, MESSAGE_ABORT), 0);
        assert_false(is_charged(&s, 3));
        ops->cancel(s.exchange, "test", s.now_ns, &s.out);
    }
    end(&s);
}

/* A proposer that tells one member something else has that one part from us in each of its rounds:
 * it is charged itself, when nothing comes of these, and over new links, too. */
static void a_proposer_can_have_nobody_charged(void **state)
{
    (void)state;
    for (int is_relinked = 0; is_relinked < 2; is_relinked++) {
        struct scene s;
        int charged = 0;

        begin(&s, 1);
        for (int i = 1; i <= 8; i++) {
            round_of(&s, 1, 0);
            snapshot(&s);
            leave(&s, 5, 1);
            assert_false(is_charged(&s, 5));
            charged += is_charged(&s, 1);
            assert_int_equal(charged, i == 8);
            assert_false(exchange_is_active(s.exchange));
            if (is_relinked) leave(&s, 1, 2);
        }
        end(&s);
    }
}

/* Whoever begins without us, who had joined, is charged with the eighth in a row, over new links.
 */
static void who_invites_in_vain_is_charged_over_new_links(void **state)
{
    struct scene s;
    int charged = 0;

    (void)state;
    begin(&s, 1);
    for (int i = 1; i <= 8; i++) {
        round_of(&s, 1, SELF);
        assert_null(find(&s.out, COMMAND_SNAPSHOT));
        charged += is_charged(&s, 1);
        assert_int_equal(charged, i == 8);
        ops->cancel(s.exchange, "test", s.now_ns, &s.out);
        leave(&s, 1, 2);
    }
    end(&s);
}

/* We have no part, and wait for one: its owner hears which START we have, and so says if its own is
 * another. */
static void who_owns_nothing_shows_its_start(void **state)
{
    struct scene s;
    const struct group *group;
    struct message credit = {.type = MESSAGE_CREDIT};

    (void)state;
    begin(&s, 1);
    group = (const struct group *)(const void *)s.exchange;
    round_of(&s, 1, 0);
    snapshot(&s);
    assert_int_equal(heard(&s, MESSAGE_CREDIT), 1u << 5);
    assert_int_equal(sent(&s.out, MESSAGE_CREDIT)->as.credit.chunks, 0);
    credit.as.credit = sent(&s.out, MESSAGE_CREDIT)->as.credit;
    commands_clear(&s.out);
    assert_int_equal(tell(&s, 2, &credit), RC_OK); /* from one that owns nothing either */
    assert_false(group->parties[1].is_dropped);
    assert_int_equal(s.out.count, 0);
    credit.as.credit.start.bytes[0] ^= 1;
    assert_int_equal(tell(&s, 2, &credit), RC_MISMATCH);
    assert_int_equal(heard(&s, MESSAGE_CANCEL), 1u << 2);
    end(&s);
}

/* Who was told that we are in its round, which we were told of without it, hears so. */
static void who_is_not_in_our_start_hears_so(void **state)
{
    struct message credit = {.type = MESSAGE_CREDIT};
    struct scene s;

    (void)state;
    begin(&s, 1);
    round_of(&s, 1, 3);
    credit.as.credit.stream = s.stream;
    commands_clear(&s.out);
    assert_int_equal(tell(&s, 3, &credit), RC_MISMATCH);
    assert_int_equal(heard(&s, MESSAGE_CANCEL), 1u << 3);
    end(&s);
}

/* One whose link was not there yet at START is lost to us, and need not wait for us. */
static void whose_link_is_newer_than_start_hears_so(void **state)
{
    struct message credit = {.type = MESSAGE_CREDIT};
    struct scene s;

    (void)state;
    begin(&s, 1);
    round_of(&s, 1, 0);
    leave(&s, 3, 2);
    snapshot(&s);
    credit.as.credit.stream = s.stream;
    credit.as.credit.start = group_start_digest(&s.start.as.form);
    commands_clear(&s.out);
    assert_int_equal(tell(&s, 3, &credit), RC_STALE);
    assert_int_equal(heard(&s, MESSAGE_ABORT), 1u << 3);
    end(&s);
}

/* Whoever we leave out has our values all the same: so nobody who leaves another out seems to
 * leave. */
static void who_is_left_out_has_our_values(void **state)
{
    struct message credit = {.type = MESSAGE_CREDIT};
    struct scene s;
    const struct group *group;

    (void)state;
    begin(&s, 2 * MEMBERS);
    group = (const struct group *)(const void *)s.exchange;
    outcast = 3;
    round_of(&s, 1, 0);
    snapshot(&s);
    outcast = 0;
    assert_int_equal(heard(&s, MESSAGE_ABORT), 0);
    assert_int_equal(heard(&s, MESSAGE_CREDIT), 1u << 1 | 1u << 2 | 1u << 5);
    assert_true(group->parties[2].part == PART_LOST && group->parties[2].is_dropped);
    credit.as.credit.stream = s.stream;
    credit.as.credit.start = group_start_digest(&s.start.as.form);
    credit.as.credit.chunks = 2;
    assert_int_equal(tell(&s, 3, &credit), RC_OK);
    assert_int_equal(find(&s.out, COMMAND_SEND_RANGE)->to.bytes[0], 3);
    assert_int_equal(find(&s.out, COMMAND_SEND_RANGE)->count, 2);
    end(&s);
}

/* A part that was returned makes up for a quarter of one that was left. */
static void parts_returned_make_up_for_parts_left(void **state)
{
    static struct conduct conduct;

    (void)state;
    for (uint8_t i = 1; i < 100; i++) {
        assert_false(conduct_left(&conduct, id_of(1), CONDUCT_WORD, id_of(2 + i % 2), false));
        for (int k = 0; k < 4; k++) {
            conduct_returned(&conduct, id_of(1));
        }
    }
    assert_false(conduct_left(&conduct, id_of(1), CONDUCT_WORD, id_of(2), true));
    assert_false(conduct_left(&conduct, id_of(1), CONDUCT_WORD, id_of(2), true));
    assert_true(conduct_left(&conduct, id_of(1), CONDUCT_WORD, id_of(2), true)); /* ours all */
}

/* Full, it forgets whoever did least, and never more than one. */
static void a_crowd_does_not_make_it_forget(void **state)
{
    static struct conduct conduct;

    (void)state;
    for (int i = 0; i < 3; i++) {
        (void)conduct_vain(&conduct, id_of(1), true);
    }
    for (uint32_t i = 2; i < 1000; i++) {
        struct peer_id id = {{(uint8_t)i, (uint8_t)(i >> 8), 1}};

        assert_false(conduct_vain(&conduct, id, true));
    }
    for (int i = 4; i <= 8; i++) {
        assert_int_equal(conduct_vain(&conduct, id_of(1), true), i == 8);
    }
}

/* We have joined, again and again, what it does not start: it keeps us from others, also if it
 * drops its link in between. */
static void a_new_link_is_no_new_account(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 1);
    for (int i = 1; i <= 9; i++) {
        enum rc rc = form_of(&s, 1);

        assert_true((rc == RC_LIMIT) == (i == 9));
        assert_true(is_charged(&s, 1) == (i == 9));
        leave(&s, 1, 2);
        ops->cancel(s.exchange, "the next", s.now_ns, &s.out);
        commands_clear(&s.out);
    }
    end(&s);
}

/* What we decline keeps us from nobody: its proposer, who cannot know, is not charged. */
static void what_is_declined_charges_nobody(void **state)
{
    struct scene s;
    struct message form;

    (void)state;
    begin(&s, 1);
    round_of(&s, 1, 0);
    form = s.start;
    form.type = MESSAGE_FORM;
    form.as.form.statements_bytes = 0;
    commands_clear(&s.out);
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(tell(&s, 1, &form), RC_STALE); /* of the round that we are in */
    }
    assert_false(is_charged(&s, 1));
    end(&s);
}

/* Everybody declines all we propose unread, as who pauses us does: we go no higher than those can
 * follow who know of none of it. */
static void who_is_paused_can_be_followed_afterwards(void **state)
{
    const struct round_members all = {(const struct peer_id[]){id_of(1), id_of(SELF)},
                                      (const struct boot_id[]){boot_of(1), boot_of(SELF)},
                                      .count = 2};
    struct scene s;
    struct message no = {.type = MESSAGE_ABORT}, yes = {.type = MESSAGE_JOIN};
    uint32_t ballot = 0;

    (void)state;
    begin(&s, 1);
    for (int i = 1; i <= 1000; i++) {
        const struct message *form;

        s.now_ns += 10 * NS_PER_S;
        assert_int_equal(ops->begin(s.exchange, &all, SAMPLES, s.now_ns, &s.out), RC_OK);
        s.now_ns += 10 * NS_PER_S; /* the turn of who is before us */
        ops->tick(s.exchange, s.now_ns, &s.out);
        form = sent(&s.out, MESSAGE_FORM);
        assert_non_null(form);
        assert_true(form->as.form.ballot >= ballot);
        ballot = form->as.form.ballot;
        assert_true(ballot <= GROUP_BALLOT_STEP);
        no.as.abort = (struct message_abort){
            .key = {id_of(SELF), boot_of(SELF), form->as.form.round}, .code = ABORT_PROTOCOL};
        yes.as.join = (struct message_join){.round = form->as.form.round, .ballot = ballot};
        commands_clear(&s.out);
        if (i < 1000) assert_int_equal(tell(&s, 1, &no), RC_OK);
    }
    assert_int_equal(ballot, GROUP_BALLOT_STEP);
    assert_int_equal(tell(&s, 1, &yes), RC_OK);
    assert_non_null(sent(&s.out, MESSAGE_START));
    end(&s);
}

/* Proposals that do not start, one after the other; one each five seconds is nothing. */
static void who_proposes_without_end_is_charged(void **state)
{
    static struct conduct conduct;

    (void)state;
    for (uint64_t i = 1; i <= 9; i++) {
        assert_int_equal(conduct_form(&conduct, id_of(1), true, i * NS_PER_MS), i == 9);
        assert_int_equal(conduct_form(&conduct, id_of(2), false, i * NS_PER_MS), i == 5 || i == 8);
        assert_false(conduct_form(&conduct, id_of(3), true, i * 5 * NS_PER_S));
        assert_false(conduct_form(&conduct, id_of(4), true, i * NS_PER_MS));
        conduct_start(&conduct, id_of(4));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_leaves_its_part_again_and_again_is_charged),
        cmocka_unit_test(who_has_no_part_may_leave),
        cmocka_unit_test(a_proposer_can_have_nobody_charged),
        cmocka_unit_test(who_invites_in_vain_is_charged_over_new_links),
        cmocka_unit_test(who_owns_nothing_shows_its_start),
        cmocka_unit_test(who_is_not_in_our_start_hears_so),
        cmocka_unit_test(whose_link_is_newer_than_start_hears_so),
        cmocka_unit_test(who_is_left_out_has_our_values),
        cmocka_unit_test(parts_returned_make_up_for_parts_left),
        cmocka_unit_test(a_crowd_does_not_make_it_forget),
        cmocka_unit_test(a_new_link_is_no_new_account),
        cmocka_unit_test(what_is_declined_charges_nobody),
        cmocka_unit_test(who_is_paused_can_be_followed_afterwards),
        cmocka_unit_test(who_proposes_without_end_is_charged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

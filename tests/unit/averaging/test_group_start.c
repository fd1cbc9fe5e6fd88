/* A group round belongs to nobody: what a proposer can say in START, and to whom. */
#include "tests/unit/averaging/steps.h"

#include "averaging/group/group.h"

#include "base/bytes.h"
#include "base/check.h"

enum { MEMBERS = 5, SELF = 5, CHUNKS = 20, ROUND = 70000, SAMPLES = 300 };

#define MS(x) ((x)*NS_PER_MS)

struct scene {
    struct exchange *exchange;
    struct commands out;
    struct message start; /* of peer 1, who proposes */
    uint8_t statements[MEMBERS * STATEMENT_BYTES];
    uint64_t stream;
};

static const struct exchange_ops *ops = &exchange_group;

static void say(struct scene *s, uint8_t member, uint64_t samples, uint64_t rate)
{
    store_le64(s->statements + (member - 1) * STATEMENT_BYTES, samples);
    store_le64(s->statements + (member - 1) * STATEMENT_BYTES + 8, rate);
}

static enum rc tell(struct scene *s, uint8_t from, const struct message *message, uint64_t now_ns)
{
    return ops->on_message(s->exchange, id_of(from), boot_of(from), message, now_ns, &s->out);
}

/* Peer 5 of five is ready, and has joined what peer 1 proposes. */
static void joined(struct scene *s)
{
    struct peer_id ids[MEMBERS];
    struct boot_id boots[MEMBERS];
    struct round_members members = {.ids = ids, .boots = boots, .count = MEMBERS};
    struct message_form *form = &s->start.as.form;

    memset(s, 0, sizeof *s);
    s->exchange = start(ops, SELF, CHUNKS, &s->out);
    ops->set_round(s->exchange, ROUND);
    s->start.type = MESSAGE_FORM;
    *form = (struct message_form){.round = ROUND, .chunks = CHUNKS, .lineage = {{9}}};
    form->deadline_ms = 1000;
    for (uint8_t i = 1; i <= MEMBERS; i++) {
        ids[i - 1] = id_of(i);
        boots[i - 1] = boot_of(i);
        form->members[form->members_count++] = (struct member_ref){id_of(i), boot_of(i)};
        say(s, i, SAMPLES, 0);
    }
    assert_int_equal(ops->begin(s->exchange, &members, SAMPLES, 1, &s->out), RC_OK);
    assert_int_equal(tell(s, 1, &s->start, MS(1)), RC_OK);
    assert_int_equal(sent(&s->out, MESSAGE_JOIN)->as.join.samples, SAMPLES);
    s->start.type = MESSAGE_START;
    form->statements = s->statements;
    form->statements_bytes = sizeof s->statements;
    s->stream = group_stream(form->members[0], ROUND);
    commands_clear(&s->out);
}

static void started(struct scene *s)
{
    joined(s);
    assert_int_equal(tell(s, 1, &s->start, MS(2)), RC_OK);
    assert_non_null(find(&s->out, COMMAND_SNAPSHOT));
    commands_clear(&s->out);
}

static void end(struct scene *s)
{
    ops->destroy(s->exchange);
    commands_deinit(&s->out);
}

/* CREDIT of a member that was told the same, or something else. */
static enum rc allow(struct scene *s, uint8_t from, bool is_unlike, uint64_t now_ns)
{
    struct message credit = {.type = MESSAGE_CREDIT};

    credit.as.credit.stream = s->stream;
    credit.as.credit.chunks = 1;
    credit.as.credit.start = group_start_digest(&s->start.as.form);
    credit.as.credit.start.bytes[7] ^= is_unlike;
    return tell(s, from, &credit, now_ns);
}

static enum rc cancel(struct scene *s, uint8_t from, uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_CANCEL};

    message.as.cancel.stream = s->stream;
    message.as.cancel.code = CANCEL_START;
    return tell(s, from, &message, now_ns);
}

/* One bit a peer, by its number. */
static uint32_t heard(const struct commands *out, enum message_type type)
{
    uint32_t to = 0;

    for (uint32_t i = 0; i < out->count; i++) {
        const struct command *command = &out->items[i];

        if (command->type == COMMAND_SEND && command->message.type == type) {
            to |= 1u << command->to.bytes[0];
        }
    }
    return to;
}

static uint32_t charged(const struct commands *out)
{
    uint32_t who = 0;

    for (uint32_t i = 0; i < out->count; i++) {
        if (out->items[i].type == COMMAND_SCORE && score_is_fault(out->items[i].score)) {
            who |= 1u << out->items[i].to.bytes[0];
        }
    }
    return who;
}

/* Whatever of it is changed, it is refused, all in it hear so, and its proposer is charged. */
static void a_start_that_says_of_us_what_we_never_said_is_refused(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++) {
        struct scene s;

        joined(&s);
        say(&s, SELF, what == 0 ? SAMPLES - 1 : SAMPLES, (uint64_t)what);
        assert_int_equal(tell(&s, 1, &s.start, MS(2)), RC_FORMAT);
        assert_null(find(&s.out, COMMAND_SNAPSHOT));
        assert_int_equal(heard(&s.out, MESSAGE_CANCEL), 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
        assert_int_equal(charged(&s.out), 1u << 1);
        end(&s);
    }
}

static void statements_are_as_many_as_members(void **state)
{
    struct scene s;

    (void)state;
    joined(&s);
    s.start.as.form.statements_bytes -= STATEMENT_BYTES;
    assert_int_equal(tell(&s, 1, &s.start, MS(2)), RC_FORMAT);
    assert_null(find(&s.out, COMMAND_SNAPSHOT));
    end(&s);
}

/* What it says of itself makes the proposer own no more, and count no more, than the median. */
static void a_greedy_proposer_gets_an_equal_part(void **state)
{
    struct scene s;
    const struct group *group;

    (void)state;
    joined(&s);
    say(&s, 1, UINT64_MAX, UINT64_MAX);
    for (uint8_t i = 2; i < SELF; i++) {
        say(&s, i, SAMPLES, 1000000);
    }
    assert_int_equal(tell(&s, 1, &s.start, MS(2)), RC_OK);
    group = (const struct group *)(const void *)s.exchange;
    assert_int_equal(group->parties[0].count, CHUNKS / MEMBERS);
    assert_true(group->parties[0].weight == 1);
    end(&s);
    joined(&s); /* and another that lies no more than two equal parts, and twice the weight */
    say(&s, 3, UINT64_MAX, UINT64_MAX);
    for (uint8_t i = 1; i < SELF; i++) {
        if (i != 3) say(&s, i, SAMPLES, 1000000);
    }
    assert_int_equal(tell(&s, 1, &s.start, MS(2)), RC_OK);
    group = (const struct group *)(const void *)s.exchange;
    assert_in_range(group->parties[2].count, 1, 2 * CHUNKS / MEMBERS);
    assert_true(group->parties[2].weight == 2);
    end(&s);
}

/* Two with unlike STARTs part at once, and no word of one member is held against anybody. */
static void who_was_told_something_else_is_let_go_unscored(void **state)
{
    (void)state;
    for (int when = 0; when < 3; when++) { /* its CREDIT before our START, after; its word */
        struct scene s;
        const struct group *group;
        struct chunk_ref chunk = {.from = id_of(3), .kind = DATA_OFFER, .chunk = 19};
        struct chunk_use use;

        joined(&s);
        chunk.stream = s.stream;
        if (when == 0) assert_int_equal(allow(&s, 3, true, MS(2)), RC_OK);
        assert_int_equal(tell(&s, 1, &s.start, MS(3)), RC_OK);
        if (when == 1) assert_int_equal(allow(&s, 3, true, MS(4)), RC_MISMATCH);
        if (when == 2) assert_int_equal(cancel(&s, 3, MS(4)), RC_OK);
        assert_int_equal(allow(&s, 2, false, MS(4)), RC_OK);
        ops->on_job_done(s.exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, MS(5), &s.out);
        group = (const struct group *)(const void *)s.exchange;
        assert_true(group->parties[2].is_dropped && group->parties[2].part == PART_LOST);
        assert_true(group->parties[1].part == PART_OPEN);
        assert_int_equal(ops->on_chunk(s.exchange, &chunk, &use), RC_STALE);
        chunk.kind = DATA_MEAN;
        chunk.chunk = 0; /* of another's part, as we see it */
        assert_int_equal(ops->on_chunk(s.exchange, &chunk, &use), RC_STALE);
        assert_int_equal(charged(&s.out), 0);
        assert_int_equal(heard(&s.out, MESSAGE_CANCEL), when == 2 ? 0 : 1u << 3);
        end(&s);
    }
}

/* Where most were told something else, or it contradicts itself, its proposer is charged, once. */
static void a_proposer_that_tells_unlike_things_is_charged(void **state)
{
    struct scene s;

    (void)state;
    started(&s);
    assert_int_equal(allow(&s, 3, true, MS(4)), RC_MISMATCH);
    assert_int_equal(charged(&s.out), 0);
    assert_int_equal(cancel(&s, 4, MS(4)), RC_OK);
    assert_int_equal(charged(&s.out), 1u << 1);
    commands_clear(&s.out);
    assert_int_equal(cancel(&s, 4, MS(4)), RC_OK);
    assert_int_equal(cancel(&s, 2, MS(4)), RC_OK);
    assert_int_equal(charged(&s.out), 0);
    end(&s);
    started(&s);
    assert_int_equal(allow(&s, 1, true, MS(4)), RC_MISMATCH);
    assert_int_equal(charged(&s.out), 1u << 1);
    end(&s);
}

/* A member that is allowed chunks has been told of a START. Who has none says so a moment later, to
 * it alone, and goes on waiting: it is no more than a word. */
static void who_was_not_told_says_so(void **state)
{
    struct scene s;

    (void)state;
    joined(&s);
    assert_int_equal(allow(&s, 3, false, MS(10)), RC_OK);
    assert_true(ops->next_ns(s.exchange) <= MS(200));
    ops->tick(s.exchange, MS(100), &s.out);
    assert_int_equal(s.out.count, 0);
    ops->tick(s.exchange, ops->next_ns(s.exchange), &s.out);
    assert_int_equal(heard(&s.out, MESSAGE_CANCEL), 1u << 3);
    assert_int_equal(sent(&s.out, MESSAGE_CANCEL)->as.cancel.stream, s.stream);
    assert_true(ops->next_ns(s.exchange) > MS(200));
    commands_clear(&s.out);
    assert_int_equal(tell(&s, 1, &s.start, MS(250)), RC_OK); /* it was on its way */
    assert_non_null(find(&s.out, COMMAND_SNAPSHOT));
    assert_true(((struct group *)(void *)s.exchange)->parties[2].is_dropped);
    end(&s);
    joined(&s); /* START does not come at all: that is its proposer's fault */
    assert_int_equal(allow(&s, 3, false, MS(10)), RC_OK);
    ops->tick(s.exchange, ops->next_ns(s.exchange), &s.out);
    ops->tick(s.exchange, ops->next_ns(s.exchange), &s.out);
    assert_int_equal(charged(&s.out), 1u << 1);
    end(&s);
}

/* Listed in a START of which it never heard, a member says so as soon as somebody counts on it. */
static void credit_of_an_unknown_round_is_answered(void **state)
{
    struct scene s;

    (void)state;
    joined(&s);
    s.stream = group_stream((struct member_ref){id_of(2), boot_of(2)}, ROUND);
    assert_int_equal(allow(&s, 3, false, MS(2)), RC_STALE);
    assert_int_equal(heard(&s.out, MESSAGE_CANCEL), 1u << 3);
    end(&s);
}

/* Neither of the same round by another proposer, nor of one 2^16 rounds ago, nor of its earlier
 * life. */
static void chunks_of_another_round_do_not_count(void **state)
{
    const struct member_ref proposer = {id_of(1), boot_of(1)};
    struct scene s;
    struct chunk_ref chunk = {.from = id_of(2), .kind = DATA_OFFER, .chunk = 19};
    const uint64_t others[] = {ROUND, ROUND - 65536,
                               group_stream((struct member_ref){id_of(2), boot_of(2)}, ROUND),
                               group_stream((struct member_ref){id_of(1), boot_of(9)}, ROUND),
                               group_stream(proposer, ROUND - 65536)};
    struct chunk_use use;

    (void)state;
    started(&s);
    ops->on_job_done(s.exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, MS(5), &s.out);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        chunk.stream = others[i];
        assert_int_equal(ops->on_chunk(s.exchange, &chunk, &use), RC_STALE);
    }
    chunk.stream = s.stream;
    assert_int_equal(ops->on_chunk(s.exchange, &chunk, &use), RC_OK);
    end(&s);
}

/* The digest is of all that a START settles. */
static void unlike_starts_have_unlike_digests(void **state)
{
    struct scene s;
    struct digest digests[6];

    (void)state;
    joined(&s);
    for (size_t i = 0; i < ARRAY_COUNT(digests); i++) {
        struct message_form form = s.start.as.form;

        form.round += i == 1;
        form.ballot += i == 2;
        form.schedule = i == 3;
        if (i == 4) { /* permuted */
            form.members[1] = s.start.as.form.members[2];
            form.members[2] = s.start.as.form.members[1];
        }
        if (i == 5) form.members_count--;
        digests[i] = group_start_digest(&form);
        for (size_t k = 0; k < i; k++) {
            assert_false(digest_is_equal(digests[k], digests[i]));
        }
    }
    say(&s, 2, SAMPLES, 1);
    assert_false(digest_is_equal(group_start_digest(&s.start.as.form), digests[0]));
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_says_of_us_what_we_never_said_is_refused),
        cmocka_unit_test(statements_are_as_many_as_members),
        cmocka_unit_test(a_greedy_proposer_gets_an_equal_part),
        cmocka_unit_test(who_was_told_something_else_is_let_go_unscored),
        cmocka_unit_test(a_proposer_that_tells_unlike_things_is_charged),
        cmocka_unit_test(who_was_not_told_says_so),
        cmocka_unit_test(credit_of_an_unknown_round_is_answered),
        cmocka_unit_test(chunks_of_another_round_do_not_count),
        cmocka_unit_test(unlike_starts_have_unlike_digests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

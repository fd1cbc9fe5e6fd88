/* Single steps of the two protocols that random runs seldom reach, played by hand. */
#include "tests/unit/averaging/steps.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>

/* ---- pair ---- */

/* An initiator (1) and a participant (2) of a plane of one chunk. */
struct duo {
    const struct exchange_ops *ops;
    struct exchange *ends[2];
    struct commands out[2];
    uint64_t now_ns;
    struct round_key key;
};

/* Everything each has to say goes to the other, but for `lost`; jobs are done at once. */
static void duo_talk(struct duo *duo, enum message_type lost)
{
    for (int i = 0; i < 40; i++) {
        int from = i % 2, to = 1 - from;
        struct commands said = duo->out[from];

        commands_init(&duo->out[from]);
        for (uint32_t k = 0; k < said.count; k++) {
            const struct command *c = &said.items[k];
            struct chunk_ref chunk = {id_of((uint8_t)(from + 1)), c->buffer, c->stream, 0};
            struct chunk_use use;

            if (c->type == COMMAND_SEND && c->message.type != lost) {
                (void)!duo->ops->on_message(duo->ends[to], id_of((uint8_t)(from + 1)),
                                            boot_of((uint8_t)(from + 1)), &c->message, duo->now_ns,
                                            &duo->out[to]);
            } else if (c->type == COMMAND_SNAPSHOT) {
                duo->ops->on_job_done(duo->ends[from], JOB_SNAPSHOT, 0, RC_OK, nothing, duo->now_ns,
                                      &duo->out[from]);
            } else if (c->type == COMMAND_SEND_RANGE) {
                assert_int_equal(duo->ops->on_chunk(duo->ends[to], &chunk, &use), RC_OK);
                duo->ops->on_chunk_checked(duo->ends[to], &chunk, RC_OK, nothing, 4, duo->now_ns,
                                           &duo->out[to]);
            }
        }
        commands_deinit(&said);
    }
}

static struct duo duo_begun(enum message_type lost)
{
    static struct peer_id partner;
    static struct boot_id boot;
    struct round_members members = {.ids = &partner, .boots = &boot, .count = 1};
    struct duo duo = {.ops = &exchange_pair, .now_ns = NS_PER_S};

    partner = id_of(2);
    boot = boot_of(2);
    for (uint8_t i = 0; i < 2; i++) {
        duo.ends[i] = start(&exchange_pair, (uint8_t)(i + 1), 1, &duo.out[i]);
    }
    assert_int_equal(duo.ops->begin(duo.ends[0], &members, 0, duo.now_ns, &duo.out[0]), RC_OK);
    duo.key = sent(&duo.out[0], MESSAGE_OFFER)->as.offer.key;
    duo_talk(&duo, lost);
    return duo;
}

static void duo_end(struct duo *duo)
{
    for (int i = 0; i < 2; i++) {
        duo->ops->destroy(duo->ends[i]);
        commands_deinit(&duo->out[i]);
    }
}

static const struct message *ask(struct duo *duo)
{
    struct message message = {.type = MESSAGE_OUTCOME_REQ};

    message.as.outcome_req.key = duo->key;
    commands_clear(&duo->out[0]);
    assert_int_equal(duo->ops->on_message(duo->ends[0], id_of(2), boot_of(2), &message, duo->now_ns,
                                          &duo->out[0]),
                     RC_OK);
    return sent(&duo->out[0], MESSAGE_OUTCOME);
}

static void an_undecided_initiator_says_so_and_a_decided_one_what(void **state)
{
    (void)state;
    /* OUTCOME_REQ: while READY has not come UNKNOWN, after COMMIT the commitment, after an abort
     * ABORTED; to anyone but the participant not what was committed. */
    struct message other = {.type = MESSAGE_OUTCOME_REQ};
    struct duo duo = duo_begun(MESSAGE_READY);

    assert_int_equal(ask(&duo)->as.outcome.state, OUTCOME_UNKNOWN);
    duo.ops->cancel(duo.ends[0], "stopping", duo.now_ns, &duo.out[0]);
    assert_int_equal(ask(&duo)->as.outcome.state, OUTCOME_ABORTED);
    duo_end(&duo);

    duo = duo_begun(MESSAGE_COMMIT);
    assert_int_equal(ask(&duo)->as.outcome.state, OUTCOME_COMMITTED);
    other.as.outcome_req.key = duo.key;
    commands_clear(&duo.out[0]);
    assert_int_equal(
        duo.ops->on_message(duo.ends[0], id_of(3), boot_of(3), &other, duo.now_ns, &duo.out[0]),
        RC_OK);
    assert_int_equal(sent(&duo.out[0], MESSAGE_OUTCOME)->as.outcome.state, OUTCOME_ABORTED);
    other.as.outcome_req.key.initiator = id_of(3);
    assert_int_equal(
        duo.ops->on_message(duo.ends[0], id_of(2), boot_of(2), &other, duo.now_ns, &duo.out[0]),
        RC_MISMATCH);
    duo_end(&duo);
}

static void a_lost_commit_is_asked_for_and_applied_late_once(void **state)
{
    (void)state;
    /* The participant's deadline makes it a doubt; its question brings the commitment, half the
     * distance (alpha); a second answer changes nothing. */
    struct duo duo = duo_begun(MESSAGE_COMMIT);
    const struct command *over;
    struct message answer;

    duo.now_ns = duo.ops->next_ns(duo.ends[1]);
    duo.ops->tick(duo.ends[1], duo.now_ns, &duo.out[1]);
    over = find(&duo.out[1], COMMAND_OVER);
    assert_int_equal(over->over.result, OVER_IN_DOUBT);
    assert_true(over->over.scale == 1);
    assert_non_null(sent(&duo.out[1], MESSAGE_OUTCOME_REQ));
    assert_false(exchange_is_active(duo.ends[1])); /* it can go on with others */
    answer = *ask(&duo);
    for (int i = 0; i < 2; i++) {
        commands_clear(&duo.out[1]);
        assert_int_equal(duo.ops->on_message(duo.ends[1], id_of(1), boot_of(1), &answer, duo.now_ns,
                                             &duo.out[1]),
                         i == 0 ? RC_OK : RC_STALE);
        over = find(&duo.out[1], COMMAND_OVER);
        assert_int_equal(over != NULL, i == 0);
        if (i > 0) continue;
        assert_true(over->over.is_late);
        assert_int_equal(over->over.result, OVER_COMMITTED);
        assert_true(over->over.scale == 0.5f);
    }
    duo_end(&duo);
}

static void only_who_decides_can_say_so(void **state)
{
    (void)state;
    struct duo duo = duo_begun(MESSAGE_COMMIT);
    struct message commit = {.type = MESSAGE_COMMIT};

    commit.as.commit.key = duo.key;
    commands_clear(&duo.out[1]);
    assert_int_equal(
        duo.ops->on_message(duo.ends[1], id_of(3), boot_of(3), &commit, duo.now_ns, &duo.out[1]),
        RC_FORMAT); /* not the initiator */
    assert_null(find(&duo.out[1], COMMAND_OVER));
    assert_int_equal(
        duo.ops->on_message(duo.ends[1], id_of(1), boot_of(1), &commit, duo.now_ns, &duo.out[1]),
        RC_OK);
    assert_int_equal(find(&duo.out[1], COMMAND_OVER)->over.result, OVER_COMMITTED);
    duo_end(&duo);
}

/* READY with another distance than the initiator measured, or with none: ABORT_NORMS. */
static void distances_that_differ_abort_before_the_decision(void **state)
{
    static const float others[] = {5, 3.9f, 0, NAN}; /* the initiator has 4 */

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        struct duo duo = duo_begun(MESSAGE_READY);
        struct message ready = {.type = MESSAGE_READY};

        ready.as.ready.key = duo.key;
        ready.as.ready.squared = others[i];
        assert_int_equal(
            duo.ops->on_message(duo.ends[0], id_of(2), boot_of(2), &ready, duo.now_ns, &duo.out[0]),
            RC_OK);
        assert_int_equal(sent(&duo.out[0], MESSAGE_ABORT)->as.abort.code, ABORT_NORMS);
        assert_int_equal(find(&duo.out[0], COMMAND_OVER)->over.result, OVER_ABORTED);
        duo_end(&duo);
    }
}

/* A word that values are too far away is passed on only of the round that runs with its sender. */
static void too_far_is_believed_of_a_round_that_runs(void **state)
{
    struct duo duo = duo_begun(MESSAGE_READY);
    struct message message = {.type = MESSAGE_ABORT};

    (void)state;
    message.as.abort.key = duo.key;
    message.as.abort.key.counter++;
    message.as.abort.code = ABORT_FAR;
    commands_clear(&duo.out[0]);
    (void)!duo.ops->on_message(duo.ends[0], id_of(2), boot_of(2), &message, duo.now_ns,
                               &duo.out[0]);
    message.as.abort.key = duo.key;
    (void)!duo.ops->on_message(duo.ends[0], id_of(3), boot_of(3), &message, duo.now_ns,
                               &duo.out[0]);
    assert_null(find(&duo.out[0], COMMAND_SCORE));
    assert_int_equal(
        duo.ops->on_message(duo.ends[0], id_of(2), boot_of(2), &message, duo.now_ns, &duo.out[0]),
        RC_OK);
    assert_non_null(find(&duo.out[0], COMMAND_SCORE));
    assert_int_equal(find(&duo.out[0], COMMAND_SCORE)->score, SCORE_NO_FAULT);
    duo_end(&duo);
}

static void outcomes_survive_a_restart_through_the_checkpoint(void **state)
{
    (void)state;
    /* A new life that loaded them still answers for the old one; without them it knows nothing. */
    struct duo duo = duo_begun(MESSAGE_COMMIT);
    uint8_t *saved = NULL;
    size_t count = 0;

    assert_int_equal(duo.ops->save(duo.ends[0], &saved, &count), RC_OK);
    for (int pass = 0; pass < 2; pass++) {
        duo.ops->destroy(duo.ends[0]);
        commands_deinit(&duo.out[0]);
        duo.ends[0] = start(&exchange_pair, 1, 1, &duo.out[0]);
        if (pass == 0) assert_int_equal(duo.ops->load(duo.ends[0], saved, count), RC_OK);
        assert_int_equal(ask(&duo)->as.outcome.state,
                         pass == 0 ? OUTCOME_COMMITTED : OUTCOME_ABORTED);
    }
    mem_free(saved);
    duo_end(&duo);
}

/* Two chunks: the first one twice is not both of them. */
static void a_chunk_that_comes_twice_counts_once(void **state)
{
    (void)state;
    struct peer_id partner = id_of(2);
    struct boot_id boot = boot_of(2);
    struct round_members members = {.ids = &partner, .boots = &boot, .count = 1};
    const struct exchange_ops *ops = &exchange_pair;
    struct commands outs[2], *out = &outs[1];
    struct exchange *first = start(ops, 1, 2, &outs[0]), *second = start(ops, 2, 2, out);
    struct message offer;
    struct chunk_ref chunk = {.from = id_of(1), .kind = DATA_OFFER};
    struct chunk_use use;

    assert_int_equal(ops->begin(first, &members, 0, NS_PER_S, &outs[0]), RC_OK);
    offer = *sent(&outs[0], MESSAGE_OFFER);
    chunk.stream = exchange_stream(&offer.as.offer.key);
    assert_int_equal(ops->on_message(second, id_of(1), boot_of(1), &offer, NS_PER_S, out), RC_OK);
    assert_non_null(sent(out, MESSAGE_ACCEPT));
    ops->on_job_done(second, JOB_SNAPSHOT, 0, RC_OK, nothing, NS_PER_S, out);
    commands_clear(out);
    assert_int_equal(ops->on_chunk(second, &chunk, &use), RC_OK);
    assert_int_equal(ops->on_chunk(second, &chunk, &use), RC_REPLAY);
    ops->on_chunk_checked(second, &chunk, RC_OK, nothing, 4, NS_PER_S, out);
    assert_int_equal(ops->on_chunk(second, &chunk, &use), RC_REPLAY);
    assert_null(sent(out, MESSAGE_READY));
    chunk.chunk = 1;
    assert_int_equal(ops->on_chunk(second, &chunk, &use), RC_OK);
    ops->on_chunk_checked(second, &chunk, RC_OK, nothing, 4, NS_PER_S, out);
    assert_non_null(sent(out, MESSAGE_READY));
    ops->destroy(first);
    ops->destroy(second);
    commands_deinit(&outs[0]);
    commands_deinit(out);
}

/* ---- push ---- */

/* A checkpoint of peer 1, a share of whose to peer 2 is on its way. */
static void save_in_mid_share(uint8_t **saved, size_t *count)
{
    struct commands out;
    struct exchange *exchange = start(&exchange_push, 1, 4, &out);
    struct peer_id to = id_of(2);
    struct boot_id boot = boot_of(2);
    struct round_members members = {.ids = &to, .boots = &boot, .count = 1};
    struct message message = {.type = MESSAGE_ACCEPT};

    exchange->ops->on_link_up(exchange, to, boot, 1, &out);
    assert_int_equal(exchange->ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    message.as.accept.key = sent(&out, MESSAGE_SHARE)->as.share.key;
    message.as.accept.alpha = 0.5f;
    assert_int_equal(exchange->ops->on_message(exchange, to, boot, &message, 2, &out), RC_OK);
    exchange->ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, 3, &out);
    assert_int_equal(exchange->ops->save(exchange, saved, count), RC_OK);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* What of a share that failed still waits in the link's queue would be in the way of the next. */
static void a_share_that_fails_is_not_sent_to_its_end(void **state)
{
    struct commands out;
    struct exchange *exchange = start(&exchange_push, 1, 4, &out);
    struct peer_id to = id_of(2);
    struct boot_id boot = boot_of(2);
    struct round_members members = {.ids = &to, .boots = &boot, .count = 1};
    struct message message = {.type = MESSAGE_ACCEPT};
    struct round_key key;
    uint64_t stream;

    (void)state;
    exchange->ops->on_link_up(exchange, to, boot, 1, &out);
    assert_int_equal(exchange->ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    key = sent(&out, MESSAGE_SHARE)->as.share.key;
    message.as.accept.key = key;
    message.as.accept.alpha = 0.5f;
    assert_int_equal(exchange->ops->on_message(exchange, to, boot, &message, 2, &out), RC_OK);
    exchange->ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, 3, &out);
    message = (struct message){.type = MESSAGE_CREDIT};
    message.as.credit.stream = exchange_stream(&key);
    message.as.credit.chunks = 2;
    assert_int_equal(exchange->ops->on_message(exchange, to, boot, &message, 4, &out), RC_OK);
    assert_non_null(find(&out, COMMAND_SEND_RANGE));
    stream = find(&out, COMMAND_SEND_RANGE)->stream;
    commands_clear(&out);
    exchange->ops->cancel(exchange, "stopping", 5, &out);
    assert_non_null(find(&out, COMMAND_STOP_RANGE));
    assert_int_equal(find(&out, COMMAND_STOP_RANGE)->stream, stream);
    assert_int_equal(find(&out, COMMAND_STOP_RANGE)->buffer, DATA_OFFER);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* Nor two custodies of one share, which would come back twice, nor weights that no swarm has. */
static void a_checkpoint_that_lies_of_mass_is_refused(void **state)
{
    enum { HEAD = 32, CUSTODY = 72, AT_WEIGHT = 24, AT_CUSTODY_WEIGHT = 64 };
    static const double heavy[] = {0, -1, 2097152.0, NAN, INFINITY};
    struct commands out;
    struct exchange *exchange = start(&exchange_push, 1, 4, &out);
    uint8_t *saved, changed[HEAD + 2 * CUSTODY];
    size_t count;

    (void)state;
    save_in_mid_share(&saved, &count);
    assert_int_equal(count, HEAD + CUSTODY);
    for (size_t i = 0; i < ARRAY_COUNT(heavy); i++) {
        float light = (float)heavy[i];

        memcpy(changed, saved, count);
        memcpy(changed + AT_WEIGHT, &heavy[i], sizeof heavy[i]);
        assert_int_equal(exchange->ops->load(exchange, changed, count), RC_FORMAT);
        memcpy(changed, saved, count);
        memcpy(changed + HEAD + AT_CUSTODY_WEIGHT, &light, sizeof light);
        assert_int_equal(exchange->ops->load(exchange, changed, count), RC_FORMAT);
    }
    memcpy(changed, saved, count);
    memcpy(changed + count, saved + HEAD, CUSTODY);
    store_le32(changed + 4, 2);
    assert_int_equal(exchange->ops->load(exchange, changed, count + CUSTODY), RC_FORMAT);
    changed[count + 36]++; /* the share after it */
    assert_int_equal(exchange->ops->load(exchange, changed, count + CUSTODY), RC_OK);
    mem_free(saved);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

static void who_starts_again_asks_twice_before_silence_counts(void **state)
{
    uint8_t *saved;
    size_t count;
    struct commands out;
    struct exchange *exchange = start(&exchange_push, 1, 4, &out);
    uint64_t now_ns = NS_PER_S;

    (void)state;
    save_in_mid_share(&saved, &count);
    assert_int_equal(exchange->ops->load(exchange, saved, count), RC_OK);
    mem_free(saved);
    exchange->ops->tick(exchange, now_ns, &out);
    commands_clear(&out);
    /* Linked, but not training yet: it asks, and the answer goes past it. */
    exchange->ops->on_link_up(exchange, id_of(2), boot_of(2), now_ns, &out);
    assert_non_null(sent(&out, MESSAGE_APPLIED_REQ));
    commands_clear(&out);
    for (uint32_t asked = 0; asked < 2; asked++) {
        now_ns = exchange->ops->next_ns(exchange);
        exchange->ops->tick(exchange, now_ns, &out);
        assert_non_null(sent(&out, MESSAGE_APPLIED_REQ));
        assert_int_equal(find(&out, COMMAND_SCORE) != NULL, asked == 1);
        commands_clear(&out);
    }
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_undecided_initiator_says_so_and_a_decided_one_what),
        cmocka_unit_test(a_lost_commit_is_asked_for_and_applied_late_once),
        cmocka_unit_test(only_who_decides_can_say_so),
        cmocka_unit_test(distances_that_differ_abort_before_the_decision),
        cmocka_unit_test(too_far_is_believed_of_a_round_that_runs),
        cmocka_unit_test(outcomes_survive_a_restart_through_the_checkpoint),
        cmocka_unit_test(a_chunk_that_comes_twice_counts_once),
        cmocka_unit_test(a_share_that_fails_is_not_sent_to_its_end),
        cmocka_unit_test(a_checkpoint_that_lies_of_mass_is_refused),
        cmocka_unit_test(who_starts_again_asks_twice_before_silence_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

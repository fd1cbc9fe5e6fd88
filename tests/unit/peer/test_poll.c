/* poll: members are asked slice by slice, each at its own pace; who dies keeps its say, who lies or
 * falls silent costs a bounded wait, and nobody can make us keep more than was asked for. */
#include "tests/scratch.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "peer/download/poll.h"
#include "peer/times.h"

#include <string.h>

enum { SAMPLES = 500, WINDOW = 200, CLASSES = 4, ASKED_MAX = 8 };

struct scene {
    struct scratch scratch;
    struct panel *panel;
    struct poll *poll;
    uint64_t now_ns;
    uint32_t members;
    struct message asked[ASKED_MAX]; /* the latest question to each */
    bool is_asked[ASKED_MAX];
    uint32_t questions[ASKED_MAX];
    struct digest digests[3];
};

static const struct predictions_shape shape = {.rows = 1, .outputs = CLASSES};

static void begin(struct scene *s, uint32_t members)
{
    memset(s, 0, sizeof *s);
    scratch_init(&s->scratch);
    s->now_ns = NS_PER_S;
    s->members = members;
    const struct panel_options panel = {.shape = shape,
                                        .samples = SAMPLES,
                                        .members = members,
                                        .trim = 1,
                                        .folder = s->scratch.folder};
    assert_int_equal(panel_create(&panel, &s->panel, NULL), RC_OK);
    for (int w = 0; w < 3; w++) {
        s->digests[w].bytes[0] = (uint8_t)(w + 1);
    }
    const struct poll_options options = {.shape = shape,
                                         .seed = 7,
                                         .samples = SAMPLES,
                                         .window = WINDOW,
                                         .digests = s->digests,
                                         .members = members,
                                         .trim = 1,
                                         .silence_ns = 30 * NS_PER_S,
                                         .panel = s->panel};
    s->poll = poll_create(&options, s->now_ns);
    assert_non_null(s->poll);
}

static void end(struct scene *s)
{
    poll_destroy(s->poll);
    panel_destroy(s->panel);
    scratch_deinit(&s->scratch);
}

static void collect(struct scene *s)
{
    struct message message;
    uint32_t member;

    poll_tick(s->poll, s->now_ns);
    while (poll_next_question(s->poll, s->now_ns, &member, &message)) {
        assert_true(member < s->members && message.type == MESSAGE_PROBE);
        assert_int_equal(message.as.probe.seed, 7);
        assert_true(message.as.probe.first % WINDOW == 0 && message.as.probe.first < SAMPLES);
        assert_int_equal(message.as.probe.digest.bytes[0], message.as.probe.first / WINDOW + 1);
        assert_true(message.as.probe.first + message.as.probe.count <= SAMPLES);
        assert_true(message.as.probe.at + message.as.probe.most <= message.as.probe.count);
        s->asked[member] = message;
        s->is_asked[member] = true;
        s->questions[member]++;
    }
}

static struct message_predictions answer_to(const struct message *message, uint32_t count,
                                            const uint8_t *bytes)
{
    return (struct message_predictions){.first = message->as.probe.first,
                                        .at = message->as.probe.at,
                                        .count = count,
                                        .step = 42,
                                        .values = bytes,
                                        .values_bytes = count * CLASSES * 2};
}

/* `most` samples of what it is asked. */
static void answer(struct scene *s, uint32_t member, uint32_t most)
{
    static const float even[CLASSES] = {0.7F, 0.1F, 0.1F, 0.1F};
    static uint8_t bytes[SAMPLES * CLASSES * 2];
    const uint32_t wanted = s->asked[member].as.probe.most;

    assert_true(s->is_asked[member]);
    s->is_asked[member] = false;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        predictions_encode(&shape, even, 1, bytes + i * CLASSES * 2);
    }
    const struct message_predictions said =
        answer_to(&s->asked[member], most < wanted ? most : wanted, bytes);
    assert_int_equal(poll_on_answer(s->poll, member, &said, s->now_ns, NULL), RC_OK);
}

static struct poll_view view_of(const struct scene *s, uint32_t member)
{
    struct poll_view view;

    poll_view(s->poll, member, &view);
    return view;
}

/* All that is asked is answered, `most` at a time and `each_ns` later, by members from `first` on.
 */
static void run(struct scene *s, uint32_t first, uint32_t most, uint64_t each_ns, uint32_t turns)
{
    for (uint32_t t = 0; t < turns && !poll_is_over(s->poll); t++) {
        s->now_ns += each_ns;
        collect(s);
        for (uint32_t m = first; m < s->members; m++) {
            if (s->is_asked[m] && view_of(s, m).state == INQUIRY_ASKING) answer(s, m, most);
        }
        collect(s);
    }
}

static void all_members_answer_all_samples(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 3);
    collect(&s);
    assert_int_equal(s.questions[0], 0); /* not before there is a link */
    for (uint32_t m = 0; m < 3; m++) {
        poll_on_open(s.poll, m, s.now_ns);
    }
    run(&s, 0, 33, NS_PER_MS, 1000);
    assert_true(poll_is_over(s.poll));
    for (uint32_t m = 0; m < 3; m++) {
        assert_int_equal(view_of(&s, m).state, INQUIRY_DONE);
        assert_int_equal(view_of(&s, m).answered, SAMPLES);
        assert_int_equal(view_of(&s, m).step, 42);
        assert_int_equal(s.questions[m], 7 + 7 + 4); /* 33 at a time of 200, 200, 100 */
    }
    assert_int_equal(poll_usable(s.poll), SAMPLES);
    assert_float_equal(poll_progress(s.poll), 1, 1e-9);
    end(&s);
}

static void who_dies_keeps_its_say_and_the_others_go_on(void **state)
{
    struct scene s;
    uint32_t member;

    (void)state;
    begin(&s, 4);
    for (uint32_t m = 0; m < 4; m++) {
        poll_on_open(s.poll, m, s.now_ns);
    }
    run(&s, 0, 50, NS_PER_MS, 3);
    poll_on_lost(s.poll, 0, "its link was lost", s.now_ns);
    poll_on_lost(s.poll, 1, "its link was lost", s.now_ns);
    assert_false(poll_next_dial(s.poll, s.now_ns, &member)); /* not at once */
    run(&s, 2, 50, NS_PER_MS, 100);
    assert_true(poll_is_over(s.poll)); /* two are left: no more is to be had */
    assert_int_equal(view_of(&s, 0).state, INQUIRY_LOST);
    assert_int_equal(view_of(&s, 0).answered, 150);
    assert_int_equal(view_of(&s, 3).answered, SAMPLES);
    assert_int_equal(poll_usable(s.poll), SAMPLES);
    assert_int_equal(panel_covered(s.panel, 4), 150);
    end(&s);
}

static void who_comes_back_goes_on_where_it_was(void **state)
{
    struct scene s;
    uint32_t member = 9, asked;

    (void)state;
    begin(&s, 2);
    poll_on_open(s.poll, 0, s.now_ns);
    poll_on_open(s.poll, 1, s.now_ns);
    run(&s, 0, 50, NS_PER_MS, 2);
    poll_on_lost(s.poll, 1, "its link was lost", s.now_ns);
    s.now_ns += POLL_REDIAL_NS;
    assert_true(poll_next_dial(s.poll, s.now_ns, &member));
    assert_int_equal(member, 1);
    assert_false(poll_next_dial(s.poll, s.now_ns, &member)); /* once */
    asked = s.questions[1];
    poll_on_open(s.poll, 1, s.now_ns);
    collect(&s);
    assert_int_equal(s.questions[1], asked + 1);
    assert_int_equal(s.asked[1].as.probe.at, 100);
    for (int i = 0; i < 3; i++) { /* three more times, and no more */
        poll_on_lost(s.poll, 1, "its link was lost", s.now_ns);
        s.now_ns += POLL_REDIAL_NS;
        assert_int_equal(poll_next_dial(s.poll, s.now_ns, &member), i < 2);
    }
    end(&s);
}

static void a_member_that_is_much_slower_is_not_waited_for(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 4);
    for (uint32_t m = 0; m < 4; m++) {
        poll_on_open(s.poll, m, s.now_ns);
    }
    collect(&s);
    answer(&s, 0, 1); /* a drop, and then no more */
    run(&s, 1, 50, 100 * NS_PER_MS, 10);
    assert_int_equal(view_of(&s, 1).state, INQUIRY_DONE);
    assert_false(poll_is_over(s.poll)); /* as long again, and two seconds at least */
    s.now_ns += 1900 * NS_PER_MS;
    collect(&s);
    assert_false(poll_is_over(s.poll));
    s.now_ns += 300 * NS_PER_MS;
    collect(&s);
    assert_true(poll_is_over(s.poll));
    assert_int_equal(view_of(&s, 0).state, INQUIRY_LATE);
    assert_int_equal(view_of(&s, 0).answered, 1);
    end(&s);
}

/* A liar that is quick and a friend cannot have an honest member cut off: without its answers a lie
 * is not bounded, and then samples without them are not learned from. */
static void who_is_needed_to_bound_a_liar_is_waited_for_longer(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 3);
    for (uint32_t m = 0; m < 3; m++) {
        poll_on_open(s.poll, m, s.now_ns);
    }
    run(&s, 1, 50, 100 * NS_PER_MS, 10); /* two are done after a second */
    collect(&s);
    for (int i = 0; i < 150; i++) { /* the third has answered 300 of 500 fifteen seconds later */
        s.now_ns += 100 * NS_PER_MS;
        collect(&s);
        assert_false(poll_is_over(s.poll));
        answer(&s, 0, 2);
        collect(&s);
    }
    s.now_ns += 1500 * NS_PER_MS;
    collect(&s);
    assert_true(poll_is_over(s.poll));
    assert_int_equal(view_of(&s, 0).state, INQUIRY_LATE);
    assert_int_equal(poll_usable(s.poll), 300);
    end(&s);
}

static void silence_of_all_ends(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 3);
    poll_on_open(s.poll, 0, s.now_ns);
    poll_on_open(s.poll, 1, s.now_ns);
    collect(&s);
    answer(&s, 1, 60);
    s.now_ns += 29 * NS_PER_S;
    collect(&s);
    assert_false(poll_is_over(s.poll));
    s.now_ns += 2 * NS_PER_S;
    collect(&s);
    assert_true(poll_is_over(s.poll));
    assert_non_null(view_of(&s, 0).why);
    assert_non_null(view_of(&s, 2).why);
    assert_int_equal(poll_usable(s.poll), 60);
    end(&s);
}

/* Who says that it needs a minute has it, once before each answer, and not for ever. */
static void who_needs_time_to_load_has_it(void **state)
{
    struct message_predictions later;
    struct scene s;

    (void)state;
    begin(&s, 1);
    poll_on_open(s.poll, 0, s.now_ns);
    collect(&s);
    later = answer_to(&s.asked[0], 0, NULL);
    later.code = PREDICTIONS_LATER;
    later.wait_ms = 60000;
    assert_int_equal(poll_on_answer(s.poll, 0, &later, s.now_ns, NULL), RC_OK);
    s.now_ns += 89 * NS_PER_S;
    collect(&s);
    assert_false(poll_is_over(s.poll));
    answer(&s, 0, 50);
    collect(&s);
    later.at = 50; /* before the next one */
    assert_int_equal(poll_on_answer(s.poll, 0, &later, s.now_ns, NULL), RC_OK);
    s.now_ns += 59 * NS_PER_S;
    assert_int_equal(poll_on_answer(s.poll, 0, &later, s.now_ns, NULL), RC_OK); /* a second time */
    assert_int_equal(view_of(&s, 0).state, INQUIRY_ASKING);
    s.now_ns += 29 * NS_PER_S;
    collect(&s);
    assert_false(poll_is_over(s.poll));
    s.now_ns += 3 * NS_PER_S;
    collect(&s);
    assert_true(poll_is_over(s.poll));
    end(&s);

    begin(&s, 1);
    poll_on_open(s.poll, 0, s.now_ns);
    collect(&s);
    later = answer_to(&s.asked[0], 0, NULL);
    later.code = PREDICTIONS_LATER;
    later.wait_ms = UINT32_MAX;
    assert_int_equal(poll_on_answer(s.poll, 0, &later, s.now_ns, NULL), RC_OK);
    s.now_ns += POLL_LATER_NS + 31 * NS_PER_S;
    collect(&s);
    assert_true(poll_is_over(s.poll));
    end(&s);
}

static void nobody_to_be_reached_ends_at_last(void **state)
{
    struct scene s;
    uint32_t member;

    (void)state;
    begin(&s, 2);
    for (int i = 0; i < 4; i++) {
        assert_false(poll_is_over(s.poll));
        poll_on_lost(s.poll, 0, "it cannot be reached", s.now_ns);
        poll_on_lost(s.poll, 1, "it cannot be reached", s.now_ns);
        s.now_ns += POLL_REDIAL_NS;
        collect(&s);
        while (poll_next_dial(s.poll, s.now_ns, &member)) {
        }
    }
    assert_true(poll_is_over(s.poll));
    assert_int_equal(poll_usable(s.poll), 0);
    end(&s);
}

static void refusals_are_told_apart(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 4);
    for (uint32_t m = 0; m < 4; m++) {
        poll_on_open(s.poll, m, s.now_ns);
    }
    collect(&s);
    for (uint32_t m = 0; m < 4; m++) {
        struct message_predictions said = answer_to(&s.asked[m], 0, NULL);
        said.code = PREDICTIONS_OTHER_DATA + m;
        assert_int_equal(poll_on_answer(s.poll, m, &said, s.now_ns, NULL), RC_OK);
    }
    assert_non_null(strstr(view_of(&s, 0).why, "other data"));
    assert_non_null(strstr(view_of(&s, 1).why, "gives no predictions"));
    assert_non_null(strstr(view_of(&s, 3).why, "too large"));
    assert_int_equal(view_of(&s, 2).state, INQUIRY_ASKING); /* busy: again later */
    collect(&s);
    assert_int_equal(s.questions[2], 1);
    s.now_ns += POLL_BUSY_NS;
    collect(&s);
    assert_int_equal(s.questions[2], 2);
    end(&s);
}

/* What a hostile member may send, each kind by a member of its own. */
static void rubbish_too_much_and_what_nobody_asked_for_strike_all_it_said(void **state)
{
    static const float even[CLASSES] = {0.25F, 0.25F, 0.25F, 0.25F};
    static uint8_t rubbish[SAMPLES * CLASSES * 2 + 1], sound[SAMPLES * CLASSES * 2];
    struct scene s;

    (void)state;
    begin(&s, 6);
    memset(rubbish, 0x3c, sizeof rubbish); /* probabilities of e */
    for (uint32_t i = 0; i < SAMPLES; i++) {
        predictions_encode(&shape, even, 1, sound + i * CLASSES * 2);
    }
    for (uint32_t m = 0; m < 6; m++) {
        poll_on_open(s.poll, m, s.now_ns);
    }
    run(&s, 0, 50, NS_PER_MS, 1);
    for (uint32_t m = 0; m < 5; m++) {
        struct message_predictions said = answer_to(&s.asked[m], 10, rubbish);
        if (m == 1) said.count = said.values_bytes = 0;
        if (m == 2) said.values_bytes++;
        if (m == 3) said.count = s.asked[m].as.probe.most + 1;
        if (m == 3) said.values_bytes = said.count * CLASSES * 2;
        if (m == 3) said.values = sound;
        if (m == 4) said.at += 7;
        for (int i = 0; i < (m == 4 ? 17 : 1); i++) {
            assert_int_equal(view_of(&s, m).state, INQUIRY_ASKING);
            assert_int_equal(poll_on_answer(s.poll, m, &said, s.now_ns, NULL), RC_OK);
        }
        assert_int_equal(view_of(&s, m).state, INQUIRY_BAD);
        assert_int_equal(view_of(&s, m).answered, 0);
        assert_non_null(view_of(&s, m).why);
        poll_on_open(s.poll, m, s.now_ns); /* it does not come back */
        assert_int_equal(view_of(&s, m).state, INQUIRY_BAD);
    }
    run(&s, 5, 50, NS_PER_MS, 100);
    assert_true(poll_is_over(s.poll));
    assert_int_equal(view_of(&s, 5).answered, SAMPLES);
    end(&s);
}

/* Whatever comes in whatever order: it ends, and nobody has said more than there is. */
static void it_ends_whatever_members_send(void **state)
{
    static uint8_t bytes[WINDOW * CLASSES * 2];

    (void)state;
    FOR_EACH_SEED (seed, 100) {
        struct scene s;
        struct rng rng;
        uint32_t member;

        begin(&s, 5);
        rng_init(&rng, seed, 1);
        for (int i = 0; i < 3000 && !poll_is_over(s.poll); i++) {
            const uint32_t m = (uint32_t)rng_below(&rng, 5);
            s.now_ns += rng_below(&rng, 200) * NS_PER_MS;
            collect(&s);
            (void)poll_next_dial(s.poll, s.now_ns, &member);
            switch (rng_below(&rng, 8)) {
            case 0:
                poll_on_open(s.poll, m, s.now_ns);
                break;
            case 1:
                if (rng_below(&rng, 20) == 0) poll_on_lost(s.poll, m, "lost", s.now_ns);
                break;
            case 2: {
                struct message_predictions said =
                    answer_to(&s.asked[m], (uint32_t)rng_below(&rng, WINDOW), bytes);
                said.at += (uint32_t)rng_below(&rng, 2);
                if (rng_below(&rng, 50) != 0) break;
                assert_int_equal(poll_on_answer(s.poll, m, &said, s.now_ns, NULL), RC_OK);
                break;
            }
            default:
                if (s.is_asked[m] && view_of(&s, m).state == INQUIRY_ASKING) {
                    answer(&s, m, 1 + (uint32_t)rng_below(&rng, 100));
                }
            }
            for (uint32_t k = 0; k < 5; k++) {
                check_seed(seed, view_of(&s, k).answered <= SAMPLES);
            }
        }
        s.now_ns += 31 * NS_PER_S;
        collect(&s);
        check_seed(seed, poll_is_over(s.poll));
        check_seed(seed, poll_usable(s.poll) <= SAMPLES);
        end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_answer_all_samples),
        cmocka_unit_test(who_dies_keeps_its_say_and_the_others_go_on),
        cmocka_unit_test(who_comes_back_goes_on_where_it_was),
        cmocka_unit_test(a_member_that_is_much_slower_is_not_waited_for),
        cmocka_unit_test(who_is_needed_to_bound_a_liar_is_waited_for_longer),
        cmocka_unit_test(silence_of_all_ends),
        cmocka_unit_test(who_needs_time_to_load_has_it),
        cmocka_unit_test(nobody_to_be_reached_ends_at_last),
        cmocka_unit_test(refusals_are_told_apart),
        cmocka_unit_test(rubbish_too_much_and_what_nobody_asked_for_strike_all_it_said),
        cmocka_unit_test(it_ends_whatever_members_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

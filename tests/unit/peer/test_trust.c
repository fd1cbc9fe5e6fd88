/* Faults are remembered, weighed, and forgotten in time. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/node/trust.h"

static struct peer_id make_id(uint32_t number)
{
    struct peer_id id = {{0}};

    store_le32(id.bytes, number);
    return id;
}

/* Nobody is under suspicion who did nothing, and praise is no fault. */
static void a_peer_without_faults_is_trusted(void **state)
{
    struct trust *trust = trust_create();

    (void)state;
    trust_note(trust, make_id(1), SCORE_COMMITTED, 0);
    trust_note(trust, make_id(1), SCORE_COMMITTED, 0);
    assert_true(trust_may_mix(trust, make_id(1), 0));
    assert_false(trust_is_refused(trust, make_id(1), 0));
    trust_destroy(trust);
}

/* Each missed deadline in a row pauses rounds for twice as long as the one before. */
static void misses_pause_for_longer_and_longer(void **state)
{
    struct trust *trust = trust_create();
    uint64_t now_ns = NS_PER_S;

    (void)state;
    for (uint64_t pause_s = 4; pause_s <= 1024; pause_s *= 2) {
        trust_note(trust, make_id(1), SCORE_LATE, now_ns);
        assert_false(trust_may_mix(trust, make_id(1), now_ns + pause_s * NS_PER_S - 1));
        now_ns += pause_s * NS_PER_S;
        assert_true(trust_may_mix(trust, make_id(1), now_ns));
        assert_true(trust_may_mix(trust, make_id(2), now_ns));
    }
    trust_note(trust, make_id(1), SCORE_LATE, now_ns);
    assert_true(trust_may_mix(trust, make_id(1), now_ns + 1024 * NS_PER_S)); /* and not for ever */
    assert_false(trust_is_refused(trust, make_id(1), now_ns));
    trust_destroy(trust);
}

/* What ended a pause for values too far away ends no other. */
static void only_pauses_for_distance_end_early(void **state)
{
    struct trust *trust = trust_create();

    (void)state;
    trust_near_again(trust, make_id(9)); /* nothing is known of it */
    trust_note(trust, make_id(1), SCORE_CLIPPED, NS_PER_S);
    assert_false(trust_may_mix(trust, make_id(1), 2 * NS_PER_S));
    trust_near_again(trust, make_id(1));
    assert_true(trust_may_mix(trust, make_id(1), 2 * NS_PER_S));
    trust_note(trust, make_id(2), SCORE_LATE, NS_PER_S);
    trust_note(trust, make_id(2), SCORE_CLIPPED, NS_PER_S);
    trust_near_again(trust, make_id(2));
    assert_false(trust_may_mix(trust, make_id(2), 5 * NS_PER_S - 1));
    assert_true(trust_may_mix(trust, make_id(2), 5 * NS_PER_S));
    trust_note(trust, make_id(3), SCORE_NOT_FINITE, NS_PER_S);
    trust_note(trust, make_id(3), SCORE_NOT_FINITE, NS_PER_S);
    trust_near_again(trust, make_id(3));
    assert_false(trust_may_mix(trust, make_id(3), 500 * NS_PER_S));
    trust_destroy(trust);
}

/* Near the end pauses for missed deadlines are over, later ones are short, and others are not. */
static void pauses_for_missed_deadlines_end_early_at_the_end(void **state)
{
    const uint64_t half_ns = NS_PER_S / 2;
    struct trust *trust = trust_create();
    uint64_t now_ns = NS_PER_S;

    (void)state;
    trust_set_period(trust, 30 * NS_PER_S);
    trust_note(trust, make_id(1), SCORE_LATE, now_ns);
    trust_note(trust, make_id(2), SCORE_CLIPPED, now_ns);
    trust_note(trust, make_id(3), SCORE_NOT_FINITE, now_ns);
    trust_note(trust, make_id(4), SCORE_SILENT, now_ns);
    assert_false(trust_may_mix(trust, make_id(1), now_ns));
    trust_end_pauses(trust, half_ns, now_ns);
    assert_true(trust_may_mix(trust, make_id(1), now_ns));
    for (uint32_t i = 2; i <= 4; i++) {
        assert_false(trust_may_mix(trust, make_id(i), now_ns + 10 * NS_PER_S));
    }
    for (uint64_t pause_ns = half_ns; pause_ns <= 8 * half_ns; pause_ns *= 2) {
        trust_note(trust, make_id(1), SCORE_LATE, now_ns);
        assert_false(trust_may_mix(trust, make_id(1), now_ns + pause_ns - 1));
        now_ns += pause_ns;
        assert_true(trust_may_mix(trust, make_id(1), now_ns));
    }
    trust_note(trust, make_id(5), SCORE_CLIPPED, now_ns);
    assert_false(trust_may_mix(trust, make_id(5), now_ns + 10 * NS_PER_S));
    trust_destroy(trust);
}

/* Where rounds are far apart a pause is as much longer: two of them at first, twice as many for who
 * has proven nothing. */
static void pauses_are_counted_in_rounds(void **state)
{
    struct trust *trust = trust_create();
    uint64_t now_ns = NS_PER_S;

    (void)state;
    trust_set_period(trust, 30 * NS_PER_S);
    for (uint64_t pause_s = 120; pause_s <= 120 * 256; pause_s *= 2) {
        trust_note(trust, make_id(1), SCORE_LATE, now_ns);
        assert_false(trust_may_mix(trust, make_id(1), now_ns + pause_s * NS_PER_S - 1));
        now_ns += pause_s * NS_PER_S;
        assert_true(trust_may_mix(trust, make_id(1), now_ns));
    }
    trust_set_period(trust, UINT64_MAX); /* within bounds, whatever is measured */
    trust_note(trust, make_id(2), SCORE_LATE, now_ns);
    assert_true(trust_may_mix(trust, make_id(2), now_ns + 1200 * NS_PER_S));
    trust_destroy(trust);
}

/* After a minute without a fault the next miss is a first one again. */
static void misses_are_forgotten_after_good_rounds(void **state)
{
    struct trust *trust = trust_create();
    uint64_t now_ns = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        trust_note(trust, make_id(1), SCORE_LATE, now_ns);
        assert_false(trust_may_mix(trust, make_id(1), now_ns + 4 * NS_PER_S - 1));
        assert_true(trust_may_mix(trust, make_id(1), now_ns + 4 * NS_PER_S));
        now_ns += 100 * NS_PER_S;
    }
    trust_destroy(trust);
}

/* Ten rounds kept make a peer proven; each time it fails then, the next time takes twice as many.
 */
static void proof_is_earned_by_rounds_kept(void **state)
{
    struct trust *trust = trust_create();
    uint64_t now_ns = NS_PER_S;

    (void)state;
    assert_false(trust_is_proven(trust, make_id(1)));
    for (uint32_t needed = 10; needed <= 80; needed *= 2) {
        for (uint32_t i = 0; i < needed; i++) {
            assert_false(trust_is_proven(trust, make_id(1)));
            trust_note(trust, make_id(1), SCORE_COMMITTED, now_ns);
        }
        assert_true(trust_is_proven(trust, make_id(1)));
        assert_true(trust_may_mix(trust, make_id(1), now_ns));
        trust_note(trust, make_id(1), SCORE_LATE, now_ns);
        assert_false(trust_is_proven(trust, make_id(1)));
        if (needed == 10) { /* its first pause is the short one */
            assert_false(trust_may_mix(trust, make_id(1), now_ns + 2 * NS_PER_S - 1));
            assert_true(trust_may_mix(trust, make_id(1), now_ns + 2 * NS_PER_S));
        }
        now_ns += 600 * NS_PER_S - 1;
    }
    trust_destroy(trust);
}

/* One NaN is an accident; a second one, or a violation, ends rounds; more of it ends the link. */
static void offences_end_rounds_and_then_the_link(void **state)
{
    struct trust *trust = trust_create();

    (void)state;
    trust_note(trust, make_id(1), SCORE_NOT_FINITE, 0);
    assert_true(trust_may_mix(trust, make_id(1), 4 * NS_PER_S));
    trust_note(trust, make_id(1), SCORE_NOT_FINITE, 3 * NS_PER_S);
    assert_false(trust_may_mix(trust, make_id(1), 500 * NS_PER_S));
    assert_false(trust_is_refused(trust, make_id(1), 3 * NS_PER_S));
    trust_note(trust, make_id(1), SCORE_NOT_FINITE, 4 * NS_PER_S);
    assert_true(trust_is_refused(trust, make_id(1), 500 * NS_PER_S));
    assert_false(trust_is_refused(trust, make_id(1), 604 * NS_PER_S));
    trust_note(trust, make_id(2), SCORE_BROKE, 0);
    assert_false(trust_may_mix(trust, make_id(2), 500 * NS_PER_S));
    trust_destroy(trust);
}

/* The score halves every ten minutes: an offence a day is no reason to part. */
static void old_offences_weigh_less(void **state)
{
    struct trust *trust = trust_create();

    (void)state;
    for (uint64_t day = 0; day < 30; day++) {
        uint64_t now_ns = day * 86400 * NS_PER_S;

        trust_note(trust, make_id(1), SCORE_NOT_FINITE, now_ns);
        assert_false(trust_is_refused(trust, make_id(1), now_ns));
        assert_true(trust_may_mix(trust, make_id(1), now_ns + 601 * NS_PER_S));
    }
    trust_destroy(trust);
}

/* However many ids there are, memory is what it was; the newest faults are kept. */
static void many_ids_take_no_more_memory(void **state)
{
    struct trust *trust = trust_create();
    uint64_t blocks = mem_blocks();

    (void)state;
    for (uint32_t i = 0; i < 5000; i++) {
        trust_note(trust, make_id(i), SCORE_BROKE, i);
    }
    assert_int_equal(mem_blocks(), blocks);
    assert_true(trust_may_mix(trust, make_id(0), 5000));
    assert_false(trust_may_mix(trust, make_id(4999), 5000));
    assert_false(trust_may_mix(trust, make_id(4500), 5000));
    trust_destroy(trust);
}

/* Who loses his link again loses it for twice as long; what we hold of him can be read. */
static void bans_double(void **state)
{
    struct trust *trust = trust_create();
    struct trust_view view;
    uint64_t now_ns = 0, counts[SCORE_REASONS], bans;

    (void)state;
    assert_false(trust_view(trust, make_id(1), 0, &view));
    for (uint64_t ban = 0; ban < 4; ban++) {
        trust_note(trust, make_id(1), SCORE_BROKE, now_ns);
        trust_note(trust, make_id(1), SCORE_BROKE, now_ns);
        assert_true(trust_is_refused(trust, make_id(1), now_ns + (600 * NS_PER_S << ban) - 1));
        assert_false(trust_is_refused(trust, make_id(1), now_ns + (600 * NS_PER_S << ban)));
        now_ns += 6 * 3600 * NS_PER_S;
    }
    assert_true(trust_view(trust, make_id(1), now_ns, &view));
    assert_true(view.bans == 4 && view.counts[SCORE_BROKE] == 8 && view.score > -1.0);
    trust_note(trust, make_id(2), SCORE_LATE, now_ns);
    trust_totals(trust, counts, &bans);
    assert_true(bans == 4 && counts[SCORE_BROKE] == 8 && counts[SCORE_LATE] == 1);
    trust_destroy(trust);
}

/* Without memory there is no table. */
static void short_memory_is_survived(void **state)
{
    (void)state;
    mem_fail_after(0);
    assert_null(trust_create());
    mem_fail_after(UINT64_MAX);
    trust_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_without_faults_is_trusted),
        cmocka_unit_test(misses_pause_for_longer_and_longer),
        cmocka_unit_test(only_pauses_for_distance_end_early),
        cmocka_unit_test(pauses_for_missed_deadlines_end_early_at_the_end),
        cmocka_unit_test(pauses_are_counted_in_rounds),
        cmocka_unit_test(misses_are_forgotten_after_good_rounds),
        cmocka_unit_test(proof_is_earned_by_rounds_kept),
        cmocka_unit_test(offences_end_rounds_and_then_the_link),
        cmocka_unit_test(old_offences_weigh_less),
        cmocka_unit_test(many_ids_take_no_more_memory),
        cmocka_unit_test(bans_double),
        cmocka_unit_test(short_memory_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

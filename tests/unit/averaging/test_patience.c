/* The ledger of how long one member may have the others wait: what is charged, given back, rests.
 */
#include "tests/unit/averaging/steps.h"

#include "averaging/core/patience.h"

#include "base/bytes.h"

#define MS(x)    ((x)*NS_PER_MS)
#define SEC(x)   ((x)*NS_PER_S)
#define SLACK_NS SEC(3)

enum { REST_SLACKS = 4, REST_MOST_SLACKS = 16, BACK = 8 };

static const struct patience empty = {.pace_ns = SEC(1), .credit_ns = SLACK_NS};

static uint64_t left(const struct patience *patience, uint8_t peer, uint64_t now_ns)
{
    return patience_left_ns(patience, id_of(peer), false, now_ns);
}

static uint64_t left_of_new(const struct patience *patience, uint8_t peer, uint64_t now_ns)
{
    return patience_left_ns(patience, id_of(peer), true, now_ns);
}

static void charge(struct patience *patience, uint8_t peer, uint64_t free_ns, uint64_t now_ns)
{
    const struct patience_wait wait = {.peer = id_of(peer), .free_ns = free_ns};

    patience_charge(patience, &wait, now_ns);
}

static void charge_new(struct patience *patience, uint8_t peer, uint64_t free_ns, uint64_t now_ns)
{
    const struct patience_wait wait = {.peer = id_of(peer), .is_new = true, .free_ns = free_ns};

    patience_charge(patience, &wait, now_ns);
}

static void charge_come(struct patience *patience, uint8_t peer, uint64_t free_ns, uint64_t now_ns)
{
    const struct patience_wait wait = {.peer = id_of(peer), .has_come = true, .free_ns = free_ns};

    patience_charge(patience, &wait, now_ns);
}

static bool rests(const struct patience *patience, uint8_t peer, uint64_t now_ns)
{
    return patience_rests(patience, id_of(peer), now_ns);
}

static bool is_barred(const struct patience *patience, uint8_t peer, uint64_t now_ns)
{
    return patience_bars(patience, id_of(peer), now_ns);
}

static void credit_is_three_paces_within_bounds(void **state)
{
    static const struct {
        uint64_t pace_ns, credit_ns;
    } cases[] = {{0, SEC(4)}, /* not known */
                 {MS(100), MS(500)},  {MS(200), MS(600)},   {SEC(1), SEC(3)},
                 {SEC(2), SEC(4)},    {SEC(64), SEC(4)},    {SEC(160), SEC(10)},
                 {SEC(480), SEC(30)}, {SEC(4800), SEC(30)}, {UINT64_MAX, SEC(30)}};
    struct patience patience = empty;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        patience_begin(&patience, cases[i].pace_ns);
        assert_true(patience.credit_ns == cases[i].credit_ns);
    }
}

static void as_long_again_as_half_took_is_free(void **state)
{
    static const struct {
        uint64_t since_ns, half_ns, usual_ns, pace_ns, free_ns;
    } cases[] = {
        {SEC(10), SEC(12), 0, SEC(1), SEC(14)},
        {SEC(10), SEC(12), SEC(3), SEC(1), SEC(16)}, /* it usually takes longer */
        {SEC(10), SEC(10), 0, SEC(8), SEC(11)},      /* an eighth of a pace */
        {SEC(10), SEC(10) + MS(500), 0, SEC(8), SEC(11) + MS(500)},
        {SEC(10), 0, 0, MS(80), SEC(10) + MS(10)}, /* half before the begin */
        {SEC(10), 0, UINT64_MAX, SEC(1), UINT64_MAX},
        {UINT64_MAX - 1, UINT64_MAX, 0, SEC(1), UINT64_MAX},
    };
    struct patience patience = empty;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        patience_begin(&patience, cases[i].pace_ns);
        assert_true(patience_free_ns(&patience, cases[i].since_ns, cases[i].half_ns,
                                     cases[i].usual_ns) == cases[i].free_ns);
    }
}

static void what_is_free_costs_nothing(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(10) - 1);
    charge(&patience, 1, SEC(10), SEC(10));
    assert_true(left(&patience, 1, SEC(10)) == SLACK_NS);
}

/* A round may say of a member twice that it was late: of its contribution, and of its part. */
static void the_same_time_is_charged_once(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(11));
    assert_true(left(&patience, 1, SEC(11)) == SLACK_NS - SEC(1));
    charge(&patience, 1, SEC(10), SEC(11));
    assert_true(left(&patience, 1, SEC(11)) == SLACK_NS - SEC(1));
    charge(&patience, 1, SEC(10), SEC(12)); /* the second from 11 to 12 only */
    assert_true(left(&patience, 1, SEC(12)) == SLACK_NS - SEC(2) + SEC(1) / BACK);
    assert_true(left(&patience, 2, SEC(12)) == SLACK_NS); /* nobody else */
}

/* ...nor is it lateness without credit: one stumble is not two. */
static void the_same_time_begins_no_rest(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge_come(&patience, 1, SEC(10), SEC(13));
    charge_come(&patience, 1, SEC(11), SEC(13)); /* its part */
    assert_false(rests(&patience, 1, SEC(13)));
}

/* Who sees a member in one of four of its waits takes what it sees for all of them. */
static void few_waits_count_for_all(void **state)
{
    const struct patience_wait wait = {.peer = id_of(1), .free_ns = SEC(10), .times = 4};
    struct patience patience = empty;

    (void)state;
    patience_charge(&patience, &wait, SEC(10) + MS(500));
    assert_true(left(&patience, 1, SEC(10) + MS(500)) == SLACK_NS - SEC(2));
    patience_charge(&patience, &wait, UINT64_MAX - 1); /* bounded as ever */
    assert_true(left(&patience, 1, UINT64_MAX - 1) == 0);
}

static void time_gives_an_eighth_back(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(12));
    assert_true(left(&patience, 1, SEC(12)) == SLACK_NS - SEC(2));
    assert_true(left(&patience, 1, SEC(20)) == SLACK_NS - SEC(1));
    assert_true(left(&patience, 1, SEC(28)) == SLACK_NS);
    assert_true(left(&patience, 1, SEC(2800)) == SLACK_NS); /* and no more than that */
}

/* However late it was, it owes no more than its credit. */
static void a_debt_is_bounded(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(1000));
    assert_true(left(&patience, 1, SEC(1000)) == 0);
    assert_true(left(&patience, 1, SEC(1008)) == SEC(1));
}

/* What used it up costs the credit; the next time begins the rest. */
static void who_is_late_without_credit_rests(void **state)
{
    struct patience patience = empty;
    const uint64_t over_ns = SEC(15) + REST_SLACKS * SLACK_NS;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(13));
    assert_true(left(&patience, 1, SEC(13)) == 0);
    assert_false(rests(&patience, 1, SEC(13)));
    charge(&patience, 1, SEC(15), SEC(15)); /* at once: there is no more wait for it */
    assert_true(rests(&patience, 1, SEC(15)) && rests(&patience, 1, over_ns - 1));
    assert_false(is_barred(&patience, 1, SEC(15)));
    assert_true(left(&patience, 1, over_ns - 1) == 0);
    assert_false(rests(&patience, 1, over_ns));
    assert_true(left(&patience, 1, over_ns) == SLACK_NS / 4);
    assert_false(rests(&patience, 2, SEC(15)));
}

/* A member that lets a sliver of its credit stand may not go on so for ever. */
static void nearly_all_of_it_is_all(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(10) + SLACK_NS - SLACK_NS / 8);
    charge(&patience, 1, SEC(14), SEC(14));
    assert_true(rests(&patience, 1, SEC(14)));
    patience = empty;
    charge(&patience, 1, SEC(10), SEC(10) + SLACK_NS - SLACK_NS / 8 - 1);
    charge(&patience, 1, SEC(14), SEC(14));
    assert_false(rests(&patience, 1, SEC(14)));
}

/* A frozen member that is back, and stumbles much later, is waited for again. */
static void with_half_of_the_credit_back_nothing_is_held_against_it(void **state)
{
    struct patience patience = empty;
    const uint64_t half_back_ns = SEC(13) + BACK * SLACK_NS / 2;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(13));
    charge(&patience, 1, half_back_ns, half_back_ns);
    assert_false(rests(&patience, 1, half_back_ns));
    assert_true(left(&patience, 1, half_back_ns) == SLACK_NS / 2);
}

static void one_rest_soon_after_another_is_twice_as_long(void **state)
{
    struct patience patience = empty;
    uint64_t now_ns = SEC(10), slacks = REST_SLACKS, waited_ns = 0;

    (void)state;
    for (int i = 0; i < 8; i++) {
        uint64_t over_ns;

        waited_ns += left(&patience, 1, now_ns);
        charge(&patience, 1, now_ns, now_ns + left(&patience, 1, now_ns));
        now_ns += SLACK_NS;
        charge(&patience, 1, now_ns, now_ns);
        over_ns = now_ns + slacks * SLACK_NS;
        assert_true(rests(&patience, 1, over_ns - 1) && !rests(&patience, 1, over_ns));
        now_ns = over_ns;
        if (slacks < REST_MOST_SLACKS) slacks *= 2;
    }
    assert_true(waited_ns == SLACK_NS + 7 * (SLACK_NS / 4));
}

static void a_rest_long_ago_is_forgotten(void **state)
{
    struct patience patience = empty;
    uint64_t over_ns, long_after_ns;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(13));
    charge(&patience, 1, SEC(14), SEC(14));
    over_ns = SEC(14) + REST_SLACKS * SLACK_NS;
    long_after_ns = over_ns + 4 * REST_SLACKS * SLACK_NS;
    charge(&patience, 1, long_after_ns - SLACK_NS - 1, long_after_ns - 1);
    charge(&patience, 1, long_after_ns, long_after_ns);
    assert_true(rests(&patience, 1, long_after_ns + REST_SLACKS * SLACK_NS - 1));
    assert_false(rests(&patience, 1, long_after_ns + REST_SLACKS * SLACK_NS));
}

static void who_came_and_then_had_others_wait_is_barred(void **state)
{
    struct patience patience = empty;
    const uint64_t again_ns = SEC(15) + 2 * REST_SLACKS * SLACK_NS;

    (void)state;
    charge_come(&patience, 1, SEC(10), SEC(13));
    assert_false(is_barred(&patience, 1, SEC(13))); /* once */
    charge_come(&patience, 1, SEC(14), SEC(14));
    assert_true(is_barred(&patience, 1, SEC(14)));
    assert_true(is_barred(&patience, 1, SEC(14) + REST_SLACKS * SLACK_NS - 1));
    assert_false(is_barred(&patience, 1, SEC(14) + REST_SLACKS * SLACK_NS));
    /* One that rests comes where it is there when the others are, but must not be late then. */
    patience = empty;
    charge(&patience, 1, SEC(10), SEC(13));
    charge(&patience, 1, SEC(14), SEC(14));
    charge(&patience, 1, SEC(14), SEC(14)); /* not to have come costs nothing more */
    assert_false(is_barred(&patience, 1, SEC(13)));
    charge_come(&patience, 1, SEC(14), SEC(15));
    assert_true(is_barred(&patience, 1, again_ns - 1));
    assert_false(is_barred(&patience, 1, again_ns));
    charge_come(&patience, 1, SEC(14), SEC(15)); /* no longer */
    assert_false(is_barred(&patience, 1, again_ns));
}

/* New names are no new credit: two for all of them, and one each. */
static void those_that_are_new_have_a_common_credit(void **state)
{
    struct patience patience = empty;
    uint64_t now_ns = SEC(10), waited_ns = 0;

    (void)state;
    for (uint8_t peer = 1; peer <= 100; peer++) {
        uint64_t wait_ns = left_of_new(&patience, peer, now_ns);

        charge_new(&patience, peer, now_ns, now_ns + wait_ns);
        now_ns += wait_ns;
        waited_ns += wait_ns;
    }
    /* Two, and an eighth of the time meanwhile. */
    assert_true(waited_ns >= 2 * SLACK_NS);
    assert_true(waited_ns <= 2 * SLACK_NS + 2 * SLACK_NS / (BACK - 1) + MS(1));
    assert_true(left(&patience, 101, now_ns) == SLACK_NS); /* who is proven does not pay for them */
    /* Several that are new and late at once: their common time is charged once. */
    patience = empty;
    for (uint8_t peer = 1; peer <= 3; peer++) {
        charge_new(&patience, peer, SEC(10), SEC(12));
    }
    assert_true(patience.of_new.ns == SEC(2));
    assert_true(left_of_new(&patience, 1, SEC(12)) == SLACK_NS - SEC(2));
    assert_true(left_of_new(&patience, 4, SEC(12)) == SLACK_NS);
    assert_true(left_of_new(&patience, 1, SEC(12)) == left(&patience, 1, SEC(12)));
}

/* The smallest debt gives way: a flood of names does not wash away what one owes. */
static void a_full_table_keeps_what_is_owed_most(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(12));
    for (uint8_t peer = 2; peer <= PATIENCE_PEERS_MAX; peer++) {
        charge(&patience, peer, SEC(11), SEC(12));
    }
    for (uint8_t peer = 100; peer < 200; peer++) { /* each in the place of one before it */
        charge(&patience, peer, SEC(12) - MS(1), SEC(12));
        assert_true(left(&patience, peer, SEC(12)) == SLACK_NS - MS(1));
    }
    assert_true(left(&patience, 99, SEC(12)) == SLACK_NS);
    assert_true(left(&patience, 1, SEC(12)) == SLACK_NS - SEC(2));
    assert_true(left(&patience, 3, SEC(12)) == SLACK_NS - SEC(1));
}

/* ...nor ends a rest, however much others owe. */
static void a_full_table_keeps_rests(void **state)
{
    struct patience patience = empty;

    (void)state;
    charge(&patience, 1, SEC(10), SEC(13));
    charge_come(&patience, 1, SEC(14), SEC(14));
    assert_true(is_barred(&patience, 1, SEC(14)));
    for (uint8_t peer = 2; peer < 200; peer++) {
        charge(&patience, peer, SEC(11), SEC(14));
    }
    assert_true(is_barred(&patience, 1, SEC(14)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credit_is_three_paces_within_bounds),
        cmocka_unit_test(as_long_again_as_half_took_is_free),
        cmocka_unit_test(what_is_free_costs_nothing),
        cmocka_unit_test(the_same_time_is_charged_once),
        cmocka_unit_test(the_same_time_begins_no_rest),
        cmocka_unit_test(few_waits_count_for_all),
        cmocka_unit_test(time_gives_an_eighth_back),
        cmocka_unit_test(a_debt_is_bounded),
        cmocka_unit_test(who_is_late_without_credit_rests),
        cmocka_unit_test(nearly_all_of_it_is_all),
        cmocka_unit_test(with_half_of_the_credit_back_nothing_is_held_against_it),
        cmocka_unit_test(one_rest_soon_after_another_is_twice_as_long),
        cmocka_unit_test(a_rest_long_ago_is_forgotten),
        cmocka_unit_test(who_came_and_then_had_others_wait_is_barred),
        cmocka_unit_test(those_that_are_new_have_a_common_credit),
        cmocka_unit_test(a_full_table_keeps_what_is_owed_most),
        cmocka_unit_test(a_full_table_keeps_rests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

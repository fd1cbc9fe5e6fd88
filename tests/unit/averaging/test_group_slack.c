/* How long a proposer waits for members that come late, over many rounds, whatever they do. */
#include "tests/unit/averaging/group_steps.h"

#include "averaging/group/group.h"

#include "base/bytes.h"

enum { MEMBERS = 8, BAD = MEMBERS - 1, ROUNDS = 200, RESTS = 6 };

#define PACE_NS  NS_PER_S
#define SLACK_NS (3 * PACE_NS)
#define FREE_NS  (PACE_NS / 8)

enum behaviour { IN_TIME, NEVER, LATE, DECLINES_LATE, HANGS_UP_LATE, EVERY_SECOND, NEW_NAMES };

static enum standing named_are_new(void *context, struct peer_id id)
{
    (void)context;
    /* Nobody keeps a record of itself. */
    return id.bytes[0] > MEMBERS || id.bytes[0] == 1 ? STANDING_NEW : STANDING_PROVEN;
}

static uint8_t number_of(uint8_t i, enum behaviour behaviour, uint32_t round)
{
    bool is_renamed = i == BAD && behaviour == NEW_NAMES;

    return (uint8_t)(is_renamed ? MEMBERS + 1 + round : i + 1u);
}

/* What the last member does when it is waited for no more, but for a moment. */
static void be_late(struct exchange *exchange, enum behaviour behaviour, uint64_t round,
                    uint64_t now_ns, struct commands *out)
{
    const struct exchange_ops *ops = exchange->ops;
    struct message join = {.type = MESSAGE_JOIN}, no = {.type = MESSAGE_ABORT};

    join.as.join.round = round;
    no.as.abort.key =
        (struct round_key){.initiator = id_of(1), .boot = boot_of(1), .counter = round};
    switch (behaviour) {
    case LATE:
        (void)!ops->on_message(exchange, id_of(MEMBERS), boot_of(MEMBERS), &join, now_ns, out);
        break;
    case DECLINES_LATE:
        (void)!ops->on_message(exchange, id_of(MEMBERS), boot_of(MEMBERS), &no, now_ns, out);
        break;
    case HANGS_UP_LATE:
        ops->on_link_lost(exchange, id_of(MEMBERS), now_ns, out);
        break;
    case IN_TIME:
    case NEVER:
    case EVERY_SECOND:
    case NEW_NAMES:
        break;
    }
}

/* From FORM to START, summed up. The first wait beyond the window is kept in `first_ns`. */
static uint64_t waited_over_rounds(enum behaviour behaviour, uint64_t *first_ns)
{
    struct exchange_options options = {
        .self = id_of(1), .boot = boot_of(1), .chunks = 6, .standing = named_are_new};
    struct exchange *exchange = exchange_group.create(&options);
    struct peer_id ids[MEMBERS];
    struct boot_id boots[MEMBERS];
    struct round_members members = {ids, boots, MEMBERS, .period_ns = PACE_NS};
    struct commands out;
    uint64_t now_ns = NS_PER_S, waited_ns = 0;

    assert_non_null(exchange);
    commands_init(&out);
    exchange_group.set_lineage(exchange, (struct digest){{9}}, &out);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t form_ns = now_ns;

        for (uint8_t i = 0; i < MEMBERS; i++) {
            ids[i] = id_of(number_of(i, behaviour, round));
            boots[i] = boot_of(number_of(i, behaviour, round));
        }
        commands_clear(&out);
        assert_int_equal(exchange_group.begin(exchange, &members, 0, now_ns, &out), RC_OK);
        assert_non_null(sent(&out, MESSAGE_FORM));
        now_ns += NS_PER_MS;
        for (uint8_t i = BAD; i > 0; i--) { /* one that rests is in time only before the last */
            bool comes =
                i < BAD || behaviour == IN_TIME || (behaviour == EVERY_SECOND && round % 2 == 0);
            struct message join = {.type = MESSAGE_JOIN};

            join.as.join.round = round;
            if (!comes) continue;
            assert_int_equal(
                exchange_group.on_message(exchange, ids[i], boots[i], &join, now_ns, &out), RC_OK);
        }
        if (find(&out, COMMAND_SNAPSHOT) == NULL) {
            now_ns = exchange_group.next_ns(exchange) - 1;
            be_late(exchange, behaviour, round, now_ns, &out);
        }
        if (find(&out, COMMAND_SNAPSHOT) == NULL) exchange_group.tick(exchange, ++now_ns, &out);
        assert_non_null(find(&out, COMMAND_SNAPSHOT)); /* with or without it */
        waited_ns += now_ns - form_ns;
        if (*first_ns == 0) *first_ns = waited_ns;
        exchange_group.cancel(exchange, "over", now_ns, &out);
        now_ns += PACE_NS;
    }
    exchange_group.destroy(exchange);
    commands_deinit(&out);
    return waited_ns;
}

static void a_late_member_is_waited_for_until_its_slack_is_used_up(void **state)
{
    /* Its credit, what is free until it rests, and a quarter of the credit after each rest: of 12,
     * 24 and then 48 s. */
    static const uint64_t credit_ns = SLACK_NS + 2 * FREE_NS + RESTS * (SLACK_NS / 4 + 2 * FREE_NS);
    static const struct {
        const char *text;
        enum behaviour behaviour;
        uint64_t most_ns;
    } cases[] = {{"in time", IN_TIME, 0},
                 {"never", NEVER, credit_ns},
                 {"late", LATE, credit_ns},
                 {"declines late", DECLINES_LATE, credit_ns},
                 {"hangs up late", HANGS_UP_LATE, credit_ns},
                 {"every second", EVERY_SECOND, credit_ns}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t first_ns = 0, waited_ns = waited_over_rounds(cases[i].behaviour, &first_ns);

        printf("  %-14s %.1f s in %d rounds, %.1f s in the first\n", cases[i].text,
               (double)waited_ns / 1e9, ROUNDS, (double)first_ns / 1e9);
        assert_true(waited_ns <= cases[i].most_ns * 8 / 7 + ROUNDS * NS_PER_MS);
        if (i > 0 && cases[i].behaviour != EVERY_SECOND) {
            assert_true(first_ns + 2 >= SLACK_NS);
        }
    }
}

static void nor_are_new_names_new_credit(void **state)
{
    uint64_t first_ns = 0, waited_ns = waited_over_rounds(NEW_NAMES, &first_ns);

    (void)state;
    printf("  new names      %.1f s in %d rounds\n", (double)waited_ns / 1e9, ROUNDS);
    assert_true(waited_ns <= 4 * SLACK_NS + ROUNDS * (FREE_NS + NS_PER_MS));
}

/* A FORM of 2 is joined, taken back at once, and the windows until the next proposal pass. True: it
 * was not joined. */
static bool takes_back(struct exchange *exchange, uint32_t ballot, uint64_t *now_ns,
                       struct commands *out)
{
    struct message form = form_from(2, 6, ballot), no = {.type = MESSAGE_ABORT};
    struct peer_id ids[] = {id_of(2), id_of(1), id_of(3)};
    struct boot_id boots[] = {boot_of(2), boot_of(1), boot_of(3)};
    const struct round_members members = {ids, boots, 3, .period_ns = PACE_NS / 20};
    const struct exchange_ops *ops = exchange->ops;
    bool is_refused;

    commands_clear(out);
    assert_int_equal(ops->begin(exchange, &members, 0, *now_ns, out), RC_OK);
    no.as.abort.key = (struct round_key){.initiator = id_of(2), .boot = boot_of(2)};
    is_refused = ops->on_message(exchange, ids[0], boots[0], &form, *now_ns, out) != RC_OK;
    (void)!ops->on_message(exchange, ids[0], boots[0], &no, *now_ns + NS_PER_MS, out);
    for (uint64_t at_ns; sent(out, MESSAGE_FORM) == NULL; ops->tick(exchange, at_ns, out)) {
        at_ns = ops->next_ns(exchange);
        if (at_ns > *now_ns) *now_ns = at_ns;
    }
    ops->cancel(exchange, "over", *now_ns, out);
    *now_ns += PACE_NS / 20;
    return is_refused;
}

/* ...in every round, which costs each a window or two until nobody joins it any more. */
static void who_takes_proposals_back_is_barred(void **state)
{
    struct exchange_options options = {.self = id_of(1), .boot = boot_of(1), .chunks = 6};
    struct exchange *exchange = exchange_group.create(&options);
    uint64_t now_ns = NS_PER_S;
    uint32_t joined = 0;
    struct commands out;

    (void)state;
    assert_non_null(exchange);
    commands_init(&out);
    exchange_group.set_lineage(exchange, (struct digest){{9}}, &out);
    for (uint32_t i = 0; i < ROUNDS; i++) { /* we propose after it, with the next ballot */
        joined += !takes_back(exchange, 2 * i, &now_ns, &out);
    }
    printf("  taken back     joined in %u of %d rounds\n", joined, ROUNDS);
    assert_in_range(joined, 2, ROUNDS / 4);
    exchange_group.destroy(exchange);
    commands_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_member_is_waited_for_until_its_slack_is_used_up),
        cmocka_unit_test(nor_are_new_names_new_credit),
        cmocka_unit_test(who_takes_proposals_back_is_barred),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* How long members that come late are waited for, over many rounds, whatever they do: by a proposer
 * until START, and in the data phase by each. */
#include "tests/unit/averaging/steps.h"

#include "averaging/exchange_group.h"

#include "base/bytes.h"

enum { MEMBERS = 8, BAD = MEMBERS - 1, ROUNDS = 200 };

#define PACE_NS  NS_PER_S
#define SLACK_NS (3 * PACE_NS)

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

/* From FORM to START, summed up. The first wait beyond the grace is kept in `first_ns`. */
static uint64_t waited_over_rounds(enum behaviour behaviour, uint64_t *first_ns)
{
    struct exchange_options options = {.self = id_of(1),
                                       .boot = boot_of(1),
                                       .chunks = 6,
                                       .alpha = 0.5f,
                                       .standing = named_are_new};
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
        for (uint8_t i = 1; i < MEMBERS; i++) {
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
    /* Two slacks, four of those that are new; then an eighth of a pace for each round in time. The
     * first window is a second, later ones are never below 100 ms. */
    static const struct {
        const char *text;
        enum behaviour behaviour;
        uint64_t most_ns;
    } cases[] = {{"in time", IN_TIME, ROUNDS * NS_PER_MS},
                 {"never", NEVER, 2 * SLACK_NS},
                 {"late", LATE, 2 * SLACK_NS + ROUNDS / 2 * PACE_NS / 8},
                 {"declines late", DECLINES_LATE, 2 * SLACK_NS},
                 {"hangs up late", HANGS_UP_LATE, 2 * SLACK_NS},
                 {"every second", EVERY_SECOND, 2 * SLACK_NS + ROUNDS / 2 * PACE_NS / 8},
                 {"new names", NEW_NAMES, 4 * SLACK_NS}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t first_ns = 0, waited_ns = waited_over_rounds(cases[i].behaviour, &first_ns);

        printf("  %-14s %.1f s in %d rounds, %.1f s in the first\n", cases[i].text,
               (double)waited_ns / 1e9, ROUNDS, (double)first_ns / 1e9);
        assert_true(waited_ns <= cases[i].most_ns + NS_PER_S + ROUNDS * (100 * NS_PER_MS + 1));
        if (i > 0 && cases[i].behaviour != EVERY_SECOND) {
            assert_true(first_ns + 2 >= SLACK_NS);
        }
    }
}

/* ---- the data phase ---- */

#define LAST_MOMENT UINT64_MAX
#define MS(x)       ((x)*NS_PER_MS)

/* When what is owed is there, from START on: everything of the others, the last member's
 * contribution to our part, and the part that is its. Before `quick` rounds all of it is at once.
 */
struct data_case {
    const char *text;
    uint64_t others_ns, contribution_ns, part_ns;
    uint32_t most_8ths; /* of a pace, a round; 0: exactly as late as it is */
    bool is_every_second;
    bool is_patient; /* training goes on meanwhile */
    uint8_t members;
    uint32_t quick;
    uint32_t chunk_bytes;
};

/* Each part has one chunk. */
static void contribute(struct exchange *exchange, uint8_t i, uint64_t round, uint64_t now_ns,
                       struct commands *out)
{
    const struct chunk_ref offer = {id_of(i + 1u), DATA_OFFER, (uint16_t)round, 0};
    float weight;

    assert_int_equal(exchange->ops->on_chunk(exchange, &offer, &weight), RC_OK);
    exchange->ops->on_chunk_checked(exchange, &offer, RC_OK, nothing, 0, now_ns, out);
}

static void return_part(struct exchange *exchange, uint8_t i, uint64_t round, uint64_t now_ns,
                        struct commands *out)
{
    const struct exchange_ops *ops = exchange->ops;
    const struct chunk_ref agreed = {id_of(i + 1u), DATA_MEAN, (uint16_t)round, i};
    const struct digest hash = {{i}};
    struct message mean = {.type = MESSAGE_MEAN};
    float weight;

    assert_int_equal(ops->on_chunk(exchange, &agreed, &weight), RC_OK);
    ops->on_chunk_checked(exchange, &agreed, RC_OK, hash, 0, now_ns, out);
    mean.as.mean.round = round;
    mean.as.mean.part = i;
    mean.as.mean.contributors = 3; /* it and we */
    mean.as.mean.hash = hash_of(&hash, sizeof hash);
    assert_int_equal(ops->on_message(exchange, agreed.from, boot_of(i + 1u), &mean, now_ns, out),
                     RC_OK);
}

/* Returns when it is: `when_ns` after the start, less `early_ns`, or just before somebody is given
 * up. */
static uint64_t pass(struct exchange *exchange, uint64_t start_ns, uint64_t when_ns,
                     uint64_t early_ns, struct commands *out)
{
    uint64_t end_ns = start_ns + when_ns;

    if (when_ns == LAST_MOMENT) return exchange->ops->next_ns(exchange) - 1;
    if (when_ns != 0) end_ns -= early_ns;
    for (uint64_t next_ns; (next_ns = exchange->ops->next_ns(exchange)) <= end_ns;) {
        exchange->ops->tick(exchange, next_ns, out);
        assert_true(exchange->ops->next_ns(exchange) > next_ns);
    }
    return end_ns;
}

/* From START to the end. What is late comes by up to `early_ns` earlier. */
static uint64_t data_round(struct exchange *exchange, const struct data_case *this, bool is_quick,
                           uint64_t early_ns, uint64_t start_ns, struct commands *out)
{
    const struct exchange_ops *ops = exchange->ops;
    uint64_t round = sent(out, MESSAGE_START)->as.form.round, now_ns;
    uint8_t last = (uint8_t)(this->members - 1);

    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, start_ns, out);
    ops->on_job_done(exchange, JOB_ABSORB_OWN, 0, RC_OK, nothing, start_ns, out);
    now_ns = pass(exchange, start_ns, is_quick ? 0 : this->others_ns, early_ns, out);
    for (uint8_t i = 1; i < last; i++) {
        contribute(exchange, i, round, now_ns, out);
        return_part(exchange, i, round, now_ns, out);
    }
    now_ns = pass(exchange, start_ns, is_quick ? 0 : this->contribution_ns, early_ns, out);
    contribute(exchange, last, round, now_ns, out);
    ops->on_job_done(exchange, JOB_REDUCE, 0, RC_OK, nothing, now_ns, out);
    assert_null(find(out, COMMAND_OVER));
    if (is_quick || this->part_ns != 0) {
        now_ns = pass(exchange, start_ns, is_quick ? 0 : this->part_ns, early_ns, out);
    }
    return_part(exchange, last, round, now_ns, out);
    assert_int_equal(find(out, COMMAND_OVER)->over.result, OVER_COMMITTED);
    for (uint32_t i = 0; i < out->count; i++) {
        assert_true(out->items[i].type != COMMAND_SCORE || out->items[i].score > 0);
    }
    return now_ns - start_ns;
}

static uint64_t data_waited_over_rounds(const struct data_case *this)
{
    struct exchange_options options = {.self = id_of(1),
                                       .boot = boot_of(1),
                                       .chunks = this->members,
                                       .chunk_bytes = this->chunk_bytes,
                                       .alpha = 0.5f,
                                       .is_patient = this->is_patient,
                                       .standing = named_are_new};
    const struct exchange_ops *ops = &exchange_group;
    struct exchange *exchange = ops->create(&options);
    struct peer_id ids[MEMBERS];
    struct boot_id boots[MEMBERS];
    struct round_members members = {ids, boots, this->members, .period_ns = PACE_NS};
    struct commands out;
    uint64_t now_ns = NS_PER_S, waited_ns = 0;

    assert_non_null(exchange);
    commands_init(&out);
    ops->set_lineage(exchange, (struct digest){{9}}, &out);
    for (uint8_t i = 0; i < this->members; i++) {
        ids[i] = id_of(i + 1u);
        boots[i] = boot_of(i + 1u);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bool is_quick = round < this->quick || (this->is_every_second && round % 2 == 1);
        uint64_t took_ns;

        commands_clear(&out);
        assert_int_equal(ops->begin(exchange, &members, 0, now_ns, &out), RC_OK);
        for (uint8_t i = 1; i < this->members; i++) {
            struct message join = {.type = MESSAGE_JOIN};

            join.as.join.round = round;
            assert_int_equal(ops->on_message(exchange, ids[i], boots[i], &join, now_ns, &out),
                             RC_OK);
        }
        took_ns = data_round(exchange, this, is_quick, round % 3 * MS(50), now_ns, &out);
        waited_ns += took_ns;
        now_ns += took_ns + PACE_NS;
    }
    ops->destroy(exchange);
    commands_deinit(&out);
    return waited_ns;
}

/* Nobody can teach us to wait for it longer and longer. */
static void a_member_makes_data_phases_no_longer_than_it_may(void **state)
{
    /* A pace, and an eighth that rounds in time give back; a part may be later by what an owner
     * may wait. Where training goes on a pace is two. Of two nobody can say who is slow. */
    static const struct data_case cases[] = {
        {"contribution", 0, LAST_MOMENT, 0, 9, .members = MEMBERS},
        {"part", 0, 0, LAST_MOMENT, 13, .members = MEMBERS},
        {"both", 0, LAST_MOMENT, LAST_MOMENT, 20, .members = MEMBERS},
        {"every second", 0, LAST_MOMENT, 0, 5, .is_every_second = true, .members = MEMBERS},
        {"beside training", 0, LAST_MOMENT, LAST_MOMENT, 36, .is_patient = true,
         .members = MEMBERS},
        {"of two", 0, LAST_MOMENT, 0, 32, .members = 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t waited_ns = data_waited_over_rounds(&cases[i]);

        printf("  %-16s %.1f s in %d rounds\n", cases[i].text, (double)waited_ns / 1e9, ROUNDS);
        /* The first windows are wide, and slack is used up once. */
        assert_true(waited_ns <= ROUNDS * (cases[i].most_8ths * PACE_NS / 8) + 8 * SLACK_NS);
    }
}

/* ...and nobody who means well is given up, or it would show in a score. */
static void who_is_as_slow_as_it_may_be_is_waited_for(void **state)
{
    static const struct data_case cases[] = {
        {"all become slow", MS(2000), MS(2200), MS(2200), .members = MEMBERS, .quick = 50},
        {"of two", 0, MS(2200), MS(2200), .members = 2, .quick = 50},
        {"an owner that waited", 0, 0, MS(900), .members = MEMBERS, .quick = 50},
        /* 6.25 MB over 10 Mbit/s. */
        {"a slow line", 0, MS(4900), MS(5000), .members = MEMBERS, .chunk_bytes = 781250},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t waited_ns = data_waited_over_rounds(&cases[i]);

        printf("  %-20s %.1f s in %d rounds\n", cases[i].text, (double)waited_ns / 1e9, ROUNDS);
        assert_true(waited_ns >= (ROUNDS - cases[i].quick) * (cases[i].part_ns - MS(100)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_member_is_waited_for_until_its_slack_is_used_up),
        cmocka_unit_test(a_member_makes_data_phases_no_longer_than_it_may),
        cmocka_unit_test(who_is_as_slow_as_it_may_be_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* How long members that come late in the data phase of a group are waited for, over many rounds. */
#include "tests/unit/averaging/steps.h"

#include "averaging/group/group.h"

#include "base/bytes.h"

enum { MEMBERS = 8, ROUNDS = 200, RESTS = 6 };

#define PACE_NS     NS_PER_S
#define SLACK_NS    (3 * PACE_NS)
#define FREE_NS     (PACE_NS / 4) /* or an eighth, of a contribution */
#define LAST_MOMENT UINT64_MAX
#define MS(x)       ((x)*NS_PER_MS)

/* When what is owed is there, from START on: everything of the others, and of those that are late
 * their contributions to our part, and the parts that are theirs. */
struct waits_case {
    const char *text;
    uint64_t others_ns, contribution_ns, part_ns; /* of the part 0: with the contribution */
    uint32_t most_8ths;                           /* of a pace, a round, besides their credit */
    uint8_t members;
    uint8_t late;         /* so many, the last ones, all alike */
    bool are_new;         /* they are not proven */
    bool is_patient;      /* training goes on meanwhile */
    bool owns_none;       /* we have no part */
    bool lies;            /* they say that nobody else but we contributed to theirs */
    uint32_t quick;       /* rounds first in which nobody is late */
    uint32_t every;       /* then they are late once in so many */
    uint32_t chunk_bytes; /* of the only chunk in each part */
};

static enum standing high_ids_are_new(void *context, struct peer_id id)
{
    (void)context;
    /* Nobody keeps a record of itself. */
    return id.bytes[0] > MEMBERS || id.bytes[0] == 1 ? STANDING_NEW : STANDING_PROVEN;
}

static uint8_t first_late(const struct waits_case *this)
{
    return (uint8_t)(this->members - this->late);
}

static uint8_t number_of(const struct waits_case *this, uint8_t i)
{
    return (uint8_t)(i + 1 + (i >= first_late(this) && this->are_new ? MEMBERS : 0));
}

static uint64_t stream_of(uint64_t round)
{
    return group_stream((struct member_ref){id_of(1), boot_of(1)}, round);
}

static void contribute(struct exchange *exchange, const struct waits_case *this, uint8_t i,
                       uint64_t round, uint64_t now_ns, struct commands *out)
{
    const struct chunk_ref offer = {
        .from = id_of(number_of(this, i)), .kind = DATA_OFFER, .stream = stream_of(round)};
    struct chunk_use use;

    if (this->owns_none) return;
    assert_int_equal(exchange->ops->on_chunk(exchange, &offer, &use), RC_OK);
    exchange->ops->on_chunk_checked(exchange, &offer, RC_OK, nothing, 0, now_ns, out);
}

static void return_part(struct exchange *exchange, const struct waits_case *this, uint8_t i,
                        uint64_t round, uint64_t now_ns, struct commands *out)
{
    const struct exchange_ops *ops = exchange->ops;
    const uint8_t number = number_of(this, i);
    const struct chunk_ref agreed = {.from = id_of(number),
                                     .kind = DATA_MEAN,
                                     .stream = stream_of(round),
                                     .chunk = this->owns_none ? i - 1u : i};
    const struct digest hash = {{i}};
    struct message mean = {.type = MESSAGE_MEAN};
    struct chunk_use use;

    assert_int_equal(ops->on_chunk(exchange, &agreed, &use), RC_OK);
    ops->on_chunk_checked(exchange, &agreed, RC_OK, hash, 0, now_ns, out);
    mean.as.mean.stream = stream_of(round);
    mean.as.mean.part = i;
    mean.as.mean.contributors = (UINT64_C(1) << this->members) - 1;
    if (this->lies && i >= first_late(this)) mean.as.mean.contributors = 1 | UINT64_C(1) << i;
    mean.as.mean.hash = hash_of(&hash, sizeof hash);
    assert_int_equal(ops->on_message(exchange, agreed.from, boot_of(number), &mean, now_ns, out),
                     RC_OK);
}

/* Returns when it is: `when_ns` after the start, or just before somebody is given up. */
static uint64_t pass(struct exchange *exchange, uint64_t start_ns, uint64_t now_ns,
                     uint64_t when_ns, struct commands *out)
{
    uint64_t end_ns = start_ns + when_ns;

    if (when_ns == LAST_MOMENT) end_ns = exchange->ops->next_ns(exchange) - 1;
    if (end_ns < now_ns) return now_ns;
    for (uint64_t next_ns; (next_ns = exchange->ops->next_ns(exchange)) <= end_ns;) {
        exchange->ops->tick(exchange, next_ns, out);
        assert_true(exchange->ops->next_ns(exchange) > next_ns);
    }
    return end_ns;
}

/* From START to the end. What is late does not take the same time in each round. */
static uint64_t data_round(struct exchange *exchange, const struct waits_case *this,
                           uint32_t number, uint64_t start_ns, struct commands *out)
{
    const struct exchange_ops *ops = exchange->ops;
    const bool is_quick = number < this->quick || number % this->every != 0;
    const uint64_t early_ns = number % 3 * MS(50);
    uint64_t round = sent(out, MESSAGE_START)->as.form.round, now_ns;
    uint64_t times[] = {this->others_ns, this->contribution_ns, this->part_ns};

    for (size_t i = 0; i < 3; i++) {
        if (is_quick) times[i] = 0;
        if (times[i] != 0 && times[i] != LAST_MOMENT) times[i] -= early_ns;
    }
    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, start_ns, out);
    ops->on_job_done(exchange, JOB_ABSORB_OWN, 0, RC_OK, nothing, start_ns, out);
    now_ns = pass(exchange, start_ns, start_ns, times[0], out);
    for (uint8_t i = 1; i < first_late(this); i++) {
        contribute(exchange, this, i, round, now_ns, out);
        return_part(exchange, this, i, round, now_ns, out);
    }
    now_ns = pass(exchange, start_ns, now_ns, times[1], out);
    for (uint8_t i = first_late(this); i < this->members; i++) {
        contribute(exchange, this, i, round, now_ns, out);
    }
    if (!this->owns_none) ops->on_job_done(exchange, JOB_REDUCE, 0, RC_OK, nothing, now_ns, out);
    assert_null(find(out, COMMAND_OVER));
    if (times[2] != 0) now_ns = pass(exchange, start_ns, now_ns, times[2], out);
    for (uint8_t i = first_late(this); i < this->members; i++) {
        return_part(exchange, this, i, round, now_ns, out);
    }
    assert_int_equal(find(out, COMMAND_OVER)->over.result, OVER_COMMITTED);
    for (uint32_t i = 0; i < out->count; i++) { /* nobody was given up */
        assert_true(out->items[i].type != COMMAND_SCORE || out->items[i].score == SCORE_COMMITTED);
    }
    return now_ns - start_ns;
}

static bool has_all(const struct waits_case *this, const struct commands *out)
{
    const struct message *start = sent(out, MESSAGE_START);

    return start != NULL && start->as.form.members_count == this->members;
}

/* `without`: so many rounds did not have all. */
static uint64_t waited_over_rounds(const struct waits_case *this, uint32_t *without)
{
    struct exchange_options options = {.self = id_of(1),
                                       .boot = boot_of(1),
                                       .chunks = this->members - (this->owns_none ? 1u : 0u),
                                       .chunk_bytes = this->chunk_bytes,
                                       .is_patient = this->is_patient,
                                       .standing = high_ids_are_new};
    const struct exchange_ops *ops = &exchange_group;
    struct exchange *exchange = ops->create(&options);
    struct peer_id ids[MEMBERS];
    struct boot_id boots[MEMBERS];
    struct round_members members = {ids, boots, this->members, .period_ns = PACE_NS};
    struct commands out;
    uint64_t now_ns = NS_PER_S, waited_ns = 0;

    *without = 0;
    assert_non_null(exchange);
    commands_init(&out);
    ops->set_lineage(exchange, (struct digest){{9}}, &out);
    for (uint8_t i = 0; i < this->members; i++) {
        ids[i] = id_of(number_of(this, i));
        boots[i] = boot_of(number_of(this, i));
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t took_ns;

        commands_clear(&out);
        assert_int_equal(ops->begin(exchange, &members, 0, now_ns, &out), RC_OK);
        for (uint8_t i = this->members - 1; i > 0; i--) { /* one that rests must not be last */
            struct message join = {.type = MESSAGE_JOIN};
            enum rc rc;

            join.as.join.round = round;
            rc = ops->on_message(exchange, ids[i], boots[i], &join, now_ns, &out);
            if (rc != RC_OK && i < first_late(this)) {
                fail_msg("%s, round %u: member %u is left out", this->text, round, i);
            }
        }
        if (has_all(this, &out)) {
            took_ns = data_round(exchange, this, round, now_ns, &out);
        } else { /* a late one is barred: what the others do does not hang on it */
            ops->cancel(exchange, "over", now_ns, &out);
            took_ns = 0;
            (*without)++;
        }
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
    /* Its credit, what is free until it rests, and a quarter of the credit after each rest; a part
     * may be later by what an owner may wait. Of two nobody can say who is slow. */
    static const struct waits_case cases[] = {
        {"contribution", 0, LAST_MOMENT, 0, 0, MEMBERS, 1, .every = 1},
        {"part", 0, 0, LAST_MOMENT, 0, MEMBERS, 1, .every = 1},
        {"both", 0, LAST_MOMENT, LAST_MOMENT, 0, MEMBERS, 1, .every = 1},
        {"every second", 0, LAST_MOMENT, 0, 0, MEMBERS, 1, .every = 2},
        {"new", 0, LAST_MOMENT, 0, 0, MEMBERS, 1, .are_new = true, .every = 1},
        {"beside training", 0, LAST_MOMENT, LAST_MOMENT, 0, MEMBERS, 1, .is_patient = true,
         .every = 1},
        {"to one without a part", 0, 0, LAST_MOMENT, 0, MEMBERS, 1, .owns_none = true, .every = 1},
        {"of two", 0, LAST_MOMENT, 0, 32, 2, 1, .every = 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t without;
        uint64_t waited_ns = waited_over_rounds(&cases[i], &without);
        uint64_t most_ns = ROUNDS * (cases[i].most_8ths * PACE_NS / 8);

        printf("  %-21s %.1f s in %d rounds, %u without it\n", cases[i].text,
               (double)waited_ns / 1e9, ROUNDS, without);
        most_ns += SLACK_NS + RESTS * (SLACK_NS / 4 + 2 * FREE_NS) + 2 * FREE_NS;
        assert_true(waited_ns <= most_ns * 8 / 7); /* what is waited gives back as well */
    }
}

static void expect_all_in_all_rounds(const struct waits_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t without;
        uint64_t waited_ns = waited_over_rounds(&cases[i], &without);

        printf("  %-21s %.1f s in %d rounds, %u without it\n", cases[i].text,
               (double)waited_ns / 1e9, ROUNDS, without);
        assert_int_equal(without, 0);
    }
}

/* ...and nobody who means well is given up, or it would show in a score. */
static void who_is_as_slow_as_it_may_be_is_waited_for(void **state)
{
    static const struct waits_case cases[] = {
        {"all become slow", MS(2000), MS(2200), 0, 0, MEMBERS, 1, .quick = 50, .every = 1},
        {"of two", 0, MS(2200), 0, 0, 2, 1, .quick = 50, .every = 1},
        {"an owner that stumbles", 0, 0, MS(900), 0, MEMBERS, 1, .quick = 50, .every = 10},
        /* 6.25 MB over 10 Mbit/s. */
        {"a slow line", MS(700), MS(4900), MS(5000), 0, MEMBERS, 1, .every = 1,
         .chunk_bytes = 781250},
        /* Less than an eighth of 22 s, which is back until the next. */
        {"bursts", 0, MS(2000), 0, 0, MEMBERS, 3, .quick = 50, .every = 20},
    };

    (void)state;
    expect_all_in_all_rounds(cases, sizeof cases / sizeof cases[0]);
}

static void so_it_is_where_we_own_no_part(void **state)
{
    static const struct waits_case all_slow = {
        "all, and we own none", MS(2000),    MS(2200),  0, 0, MEMBERS, 1,
        .owns_none = true,      .quick = 50, .every = 1};

    (void)state;
    expect_all_in_all_rounds(&all_slow, 1);
}

/* ...or it had all others left out. */
static void one_owner_does_not_say_who_was_late(void **state)
{
    static const struct waits_case lies = {
        "an owner lies", 0,         0, LAST_MOMENT, 0, MEMBERS, 1, .owns_none = true,
        .lies = true,    .every = 1};
    uint32_t without;

    (void)state;
    (void)waited_over_rounds(&lies, &without); /* nobody else is left out */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_makes_data_phases_no_longer_than_it_may),
        cmocka_unit_test(who_is_as_slow_as_it_may_be_is_waited_for),
        cmocka_unit_test(so_it_is_where_we_own_no_part),
        cmocka_unit_test(one_owner_does_not_say_who_was_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

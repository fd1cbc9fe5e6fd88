/* How long rounds of neighbours wait for one of them that is late at any point, over many rounds.
 */
#include "tests/unit/averaging/steps.h"

#include "averaging/edge/edges.h"

#include "base/bytes.h"

enum { SELF = 4, BAD = 8, OTHERS = 3, ROUNDS = 200, RESTS = 6 };

#define PACE_NS  NS_PER_S
#define SLACK_NS (3 * PACE_NS)
#define TOOK_NS  (10 * NS_PER_MS)

enum behaviour { IN_TIME, SILENT, OPENS_LATE, SENDS_NOTHING, NO_WORD, STUMBLES };

struct waits_case {
    const char *text;
    enum behaviour behaviour;
    uint8_t bad; /* its number: below SELF it decides, and owes COMMIT; else READY */
    bool is_alone;
    uint64_t late_ns;
};

struct swarm {
    struct exchange *exchange;
    struct edges *edges;
    struct commands out;
    uint64_t now_ns;
    uint32_t met; /* rounds in which the edge with the bad one counts */
};

static void say(struct swarm *swarm, uint8_t peer, const struct message *message)
{
    (void)!swarm->exchange->ops->on_message(swarm->exchange, id_of(peer), boot_of(peer), message,
                                            swarm->now_ns, &swarm->out);
}

static void come(struct swarm *swarm, uint8_t peer, uint64_t round)
{
    struct message message = {.type = MESSAGE_EDGE_OPEN};

    message.as.edge_open =
        (struct message_edge_open){.round = round, .weight = 0.25f, .chunks = 1, .lineage = {{9}}};
    say(swarm, peer, &message);
}

/* Its only chunk, and all we may send to it. */
static void send_plane(struct swarm *swarm, uint8_t peer, uint64_t round)
{
    const struct chunk_ref chunk = {
        .from = id_of(peer),
        .kind = DATA_OFFER,
        .stream = exchange_stream(&(struct round_key){id_of(peer), boot_of(peer), round})};
    struct message credit = {.type = MESSAGE_CREDIT};
    struct chunk_use use;

    credit.as.credit.stream = swarm->edges->stream;
    credit.as.credit.chunks = 1;
    say(swarm, peer, &credit);
    if (swarm->exchange->ops->on_chunk(swarm->exchange, &chunk, &use) != RC_OK) return;
    swarm->exchange->ops->on_chunk_checked(swarm->exchange, &chunk, RC_OK, nothing, 0,
                                           swarm->now_ns, &swarm->out);
}

static void decide(struct swarm *swarm, uint8_t peer, uint64_t round)
{
    struct message message = {.type = peer < SELF ? MESSAGE_COMMIT : MESSAGE_READY};
    uint8_t decider = peer < SELF ? peer : SELF;
    struct round_key key = {id_of(decider), boot_of(decider), round};

    if (peer < SELF) {
        message.as.commit.key = key;
    } else {
        message.as.ready.key = key;
    }
    say(swarm, peer, &message);
}

static uint8_t number_of(const struct waits_case *this, uint32_t i)
{
    static const uint8_t honest[OTHERS] = {3, 5, 6};

    return i == 0 ? this->bad : honest[i - 1];
}

static bool has_met(const struct swarm *swarm, uint8_t peer)
{
    for (uint32_t i = 0; i < swarm->out.count; i++) {
        const struct command *command = &swarm->out.items[i];

        if (command->type == COMMAND_EDGE && peer_id_is_equal(command->to, id_of(peer)) &&
            !command->edge.is_in_doubt) {
            return true;
        }
    }
    return false;
}

static void pass(struct swarm *swarm, uint64_t until_ns)
{
    const struct exchange_ops *ops = swarm->exchange->ops;

    for (uint64_t next;
         swarm->edges->is_active && (next = ops->next_ns(swarm->exchange)) <= until_ns;) {
        if (next > swarm->now_ns) swarm->now_ns = next;
        ops->tick(swarm->exchange, swarm->now_ns, &swarm->out);
    }
    if (swarm->edges->is_active) swarm->now_ns = until_ns;
}

static void play_bad(struct swarm *swarm, const struct waits_case *this, uint32_t number,
                     uint64_t round)
{
    uint64_t begun_ns = swarm->now_ns - TOOK_NS;
    bool stumbles = this->behaviour == STUMBLES && number % 20 == 10;

    if (this->behaviour == SILENT) return;
    if (this->behaviour == OPENS_LATE || stumbles) pass(swarm, begun_ns + this->late_ns);
    come(swarm, this->bad, round);
    if (this->behaviour == SENDS_NOTHING) return;
    send_plane(swarm, this->bad, round);
    if (this->behaviour == NO_WORD) return;
    decide(swarm, this->bad, round);
}

static void play(struct swarm *swarm, const struct waits_case *this, uint32_t number)
{
    struct peer_id ids[OTHERS + 1];
    struct boot_id boots[OTHERS + 1];
    float weights[OTHERS + 1];
    uint32_t count = this->is_alone ? 1 : OTHERS + 1;
    struct round_members members = {
        .ids = ids, .boots = boots, .weights = weights, .count = count, .period_ns = PACE_NS};
    uint64_t round;

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = id_of(number_of(this, i));
        boots[i] = boot_of(number_of(this, i));
        weights[i] = 0.125f;
    }
    commands_clear(&swarm->out);
    assert_int_equal(
        swarm->exchange->ops->begin(swarm->exchange, &members, 0, swarm->now_ns, &swarm->out),
        RC_OK);
    swarm->exchange->ops->on_job_done(swarm->exchange, JOB_SNAPSHOT, 0, RC_OK, nothing,
                                      swarm->now_ns, &swarm->out);
    round = swarm->edges->round;
    swarm->now_ns += TOOK_NS;
    for (uint32_t i = 1; i < count; i++) {
        come(swarm, number_of(this, i), round);
        send_plane(swarm, number_of(this, i), round);
        if (i + 1 < count) decide(swarm, number_of(this, i), round);
    }
    if (this->behaviour == IN_TIME) play_bad(swarm, this, number, round);
    if (count > 1) decide(swarm, number_of(this, count - 1), round);
    if (this->behaviour != IN_TIME) play_bad(swarm, this, number, round);
    pass(swarm, swarm->now_ns + 600 * NS_PER_S);
    assert_false(swarm->edges->is_active);
    for (uint32_t i = 1; i < count; i++) { /* whatever one does, those of the others count */
        assert_true(has_met(swarm, number_of(this, i)));
    }
    swarm->met += has_met(swarm, this->bad);
}

/* How long all rounds took. */
static uint64_t waited_over_rounds(struct swarm *swarm, const struct waits_case *this)
{
    struct exchange_options options = {.self = id_of(SELF), .boot = boot_of(SELF), .chunks = 1};
    uint64_t waited_ns = 0;

    *swarm = (struct swarm){.exchange = exchange_edges.create(&options), .now_ns = NS_PER_S};
    assert_non_null(swarm->exchange);
    swarm->edges = (struct edges *)(void *)swarm->exchange;
    commands_init(&swarm->out);
    exchange_edges.set_lineage(swarm->exchange, (struct digest){{9}}, &swarm->out);
    for (uint32_t i = 0; i <= OTHERS; i++) {
        uint8_t peer = number_of(this, i);

        exchange_edges.on_link_up(swarm->exchange, id_of(peer), boot_of(peer), 1, &swarm->out);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t begun_ns = swarm->now_ns;

        play(swarm, this, i);
        waited_ns += swarm->now_ns - begun_ns;
        swarm->now_ns += PACE_NS;
    }
    exchange_edges.destroy(swarm->exchange);
    commands_deinit(&swarm->out);
    return waited_ns;
}

static void a_late_neighbour_costs_its_credit_once(void **state)
{
    static const struct waits_case cases[] = {
        {"in time", IN_TIME, BAD, false, 0},
        {"silent", SILENT, BAD, false, 0},
        {"silent, decides", SILENT, 1, false, 0},
        {"opens late", OPENS_LATE, BAD, false, 2 * NS_PER_S},
        {"opens, sends nothing", SENDS_NOTHING, BAD, false, 0},
        {"no READY", NO_WORD, BAD, false, 0},
        {"no COMMIT", NO_WORD, 1, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct swarm swarm;
        uint64_t waited_ns = waited_over_rounds(&swarm, &cases[i]);
        /* What is free until it rests, its credit, and a quarter of it after each rest. */
        uint64_t most_ns = SLACK_NS + RESTS * SLACK_NS / 4 + 2 * (RESTS + 1) * PACE_NS / 8;

        printf("  %-21s %.1f s in %d rounds, met in %u\n", cases[i].text, (double)waited_ns / 1e9,
               ROUNDS, swarm.met);
        assert_true(waited_ns <=
                    (cases[i].behaviour == IN_TIME ? 0 : most_ns * 8 / 7) + ROUNDS * 2 * TOOK_NS);
        if (cases[i].behaviour == IN_TIME) assert_int_equal(swarm.met, ROUNDS);
    }
}

/* Ten times: within what earlier rounds have taught it is waited for, else it misses that round. */
static void one_that_stumbles_is_met_again(void **state)
{
    static const struct waits_case cases[] = {
        {"stumbles", STUMBLES, BAD, false, 900 * NS_PER_MS},
        {"stumbles for longer", STUMBLES, BAD, false, 2 * NS_PER_S},
    };
    struct swarm swarm;

    (void)state;
    (void)waited_over_rounds(&swarm, &cases[0]);
    assert_int_equal(swarm.met, ROUNDS);
    (void)waited_over_rounds(&swarm, &cases[1]);
    assert_in_range(swarm.met, ROUNDS - 10, ROUNDS);
}

/* Of two nobody can say who is late. */
static void the_only_neighbour_is_not_left_out(void **state)
{
    static const struct waits_case late = {"opens late", OPENS_LATE, BAD, true, 2 * NS_PER_S};
    struct swarm swarm;

    (void)state;
    (void)waited_over_rounds(&swarm, &late);
    assert_int_equal(swarm.met, ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_neighbour_costs_its_credit_once),
        cmocka_unit_test(one_that_stumbles_is_met_again),
        cmocka_unit_test(the_only_neighbour_is_not_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

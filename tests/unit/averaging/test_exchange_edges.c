/* Rounds of neighbours, played by hand against one end: what a neighbour that lies can do. */
#include "tests/check.h"

#include "averaging/edge/edges.h"
#include "base/bytes.h"
#include "base/mem.h"

enum { CHUNKS = 2, LIAR = 2, HONEST = 3, ROUNDS = 5000, BURST = 32, EPOCH = 8 };

static struct peer_id id_of(uint8_t number)
{
    return (struct peer_id){{number}};
}

static struct boot_id boot_of(uint8_t number)
{
    return (struct boot_id){{number}};
}

static struct exchange *start(struct commands *out)
{
    struct exchange_options options = {
        .self = id_of(1), .boot = boot_of(1), .chunks = CHUNKS, .has_memory = true};
    struct exchange *exchange = exchange_edges.create(&options);

    assert_non_null(exchange);
    commands_init(out);
    exchange->ops->set_lineage(exchange, (struct digest){{9}}, out);
    for (uint8_t peer = LIAR; peer <= HONEST; peer++) {
        exchange->ops->on_link_up(exchange, id_of(peer), boot_of(peer), 1, out);
    }
    return exchange;
}

/* `peer` comes to our next round, having begun anew for the `generation`th time. */
static void come(struct exchange *exchange, uint8_t peer, uint64_t generation, uint64_t now_ns,
                 struct commands *out)
{
    struct message message = {.type = MESSAGE_EDGE_OPEN};
    struct exchange_counts counts;

    exchange->ops->counts(exchange, &counts);
    message.as.edge_open.round = counts.next_round;
    message.as.edge_open.weight = 0.25f;
    message.as.edge_open.generation = generation;
    message.as.edge_open.chunks = CHUNKS;
    message.as.edge_open.lineage = (struct digest){{9}};
    assert_int_equal(
        exchange->ops->on_message(exchange, id_of(peer), boot_of(peer), &message, now_ns, out),
        RC_OK);
}

/* A round with both that comes to nothing. True: what was kept is void. */
static bool play(struct exchange *exchange, uint8_t epoch, uint64_t now_ns, uint32_t *scored,
                 struct commands *out)
{
    struct peer_id ids[] = {id_of(LIAR), id_of(HONEST)};
    struct boot_id boots[] = {boot_of(LIAR), boot_of(HONEST)};
    float weights[] = {0.25f, 0.25f};
    struct round_members members = {
        .ids = ids, .boots = boots, .weights = weights, .count = 2, .epoch = {{epoch}}};
    bool is_void = false;

    assert_int_equal(exchange->ops->begin(exchange, &members, 0, now_ns, out), RC_OK);
    for (size_t i = 0; i < out->count; i++) {
        const struct command *command = &out->items[i];

        is_void |= command->type == COMMAND_FORGET;
        if (command->type != COMMAND_SCORE) continue;
        assert_true(peer_id_is_equal(command->to, id_of(LIAR)));
        assert_true(score_is_fault(command->score));
        (*scored)++;
    }
    exchange->ops->cancel(exchange, "the test goes on", now_ns, out);
    commands_clear(out);
    return is_void;
}

/* One neighbour says in every round that it began anew, and hangs up now and then: nearly all
 * rounds keep what they have. When members come or go it is believed some times more; one that
 * never did so is believed at once all the same. */
static void one_neighbour_cannot_void_the_memory_for_ever(void **state)
{
    struct commands out;
    struct exchange *exchange = start(&out);
    uint64_t now_ns = NS_PER_S, generation = 1;
    uint32_t voided = 0, scored = 0, last = 0, again = 0;

    (void)state;
    for (uint32_t i = 0; i < ROUNDS + 100; i++, now_ns += NS_PER_MS) {
        generation = ((struct edges *)(void *)exchange)->generation;
        if (i % 10 == 9) {
            exchange->ops->on_link_lost(exchange, id_of(LIAR), now_ns, &out);
            exchange->ops->on_link_up(exchange, id_of(LIAR), boot_of(LIAR), now_ns, &out);
        }
        come(exchange, LIAR, generation + 1, now_ns, &out);
        come(exchange, HONEST, generation, now_ns, &out);
        if (!play(exchange, i < ROUNDS ? 0 : 1, now_ns, &scored, &out)) continue;
        if (i < ROUNDS) {
            voided++;
            last = i;
        } else {
            again++;
        }
    }
    assert_in_range(voided, BURST, BURST + 9); /* 32, 64, ... 4,096 rounds apart */
    assert_true(last > BURST);                 /* it may again, now and then */
    assert_in_range(scored, 2, 12);
    assert_in_range(again, EPOCH, EPOCH + 2);
    come(exchange, LIAR, generation + 1, now_ns, &out);
    come(exchange, HONEST, generation + 1, now_ns, &out);
    assert_true(play(exchange, 1, now_ns, &scored, &out));
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* Nor with the help of one that tells of members it invents, so that there are others in every
 * round. */
static void nor_while_members_seem_to_come_and_go(void **state)
{
    struct commands out;
    struct exchange *exchange = start(&out);
    uint64_t now_ns = NS_PER_S;
    uint32_t voided = 0, scored = 0, late = 0;

    (void)state;
    for (uint32_t i = 0; i < ROUNDS; i++, now_ns += NS_PER_MS) {
        uint64_t generation = ((struct edges *)(void *)exchange)->generation;

        come(exchange, LIAR, generation + 1, now_ns, &out);
        come(exchange, HONEST, generation, now_ns, &out);
        if (!play(exchange, (uint8_t)i, now_ns, &scored, &out)) continue;
        voided++;
        late += i >= ROUNDS / 2;
    }
    /* 32, and with each of the ten allowances eight and up to five: 32, 64, ... rounds apart. */
    assert_in_range(voided, BURST + 4 * EPOCH, BURST + 10 * (EPOCH + 5));
    assert_in_range(late, EPOCH, 4 * (EPOCH + 5));
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* Of a plane of two chunks the first one twice is not both of them. */
static void a_chunk_that_comes_twice_counts_once(void **state)
{
    struct peer_id ids[] = {id_of(HONEST)};
    struct boot_id boots[] = {boot_of(HONEST)};
    float weights[] = {0.25f};
    struct chunk_use use;
    struct round_members members = {.ids = ids, .boots = boots, .weights = weights, .count = 1};
    struct commands out;
    struct exchange *exchange = start(&out);
    const struct exchange_ops *ops = exchange->ops;
    struct chunk_ref chunk = {.from = id_of(HONEST), .kind = DATA_OFFER};
    uint32_t chunks, streams;

    (void)state;
    come(exchange, HONEST, ((struct edges *)(void *)exchange)->generation, 2, &out);
    assert_int_equal(ops->begin(exchange, &members, 0, 3, &out), RC_OK);
    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, (struct digest){{0}}, 4, &out);
    ops->allowed(exchange, &chunks, &streams);
    assert_int_equal(chunks, CHUNKS); /* both were granted */
    chunk.stream = exchange_stream(&(struct round_key){id_of(HONEST), boot_of(HONEST),
                                                       ((struct edges *)(void *)exchange)->round});
    assert_int_equal(ops->on_chunk(exchange, &chunk, &use), RC_OK);
    assert_int_equal(ops->on_chunk(exchange, &chunk, &use), RC_REPLAY);
    ops->on_chunk_checked(exchange, &chunk, RC_OK, (struct digest){{0}}, 0, 5, &out);
    assert_int_equal(ops->on_chunk(exchange, &chunk, &use), RC_REPLAY);
    ops->allowed(exchange, &chunks, &streams);
    assert_int_equal(chunks, 1);
    assert_int_equal(streams, 1);
    chunk.chunk = 1;
    assert_int_equal(ops->on_chunk(exchange, &chunk, &use), RC_OK);
    ops->on_chunk_checked(exchange, &chunk, RC_OK, (struct digest){{0}}, 0, 5, &out);
    ops->allowed(exchange, &chunks, &streams);
    assert_int_equal(streams, 0);
    commands_deinit(&out);
    ops->destroy(exchange);
}

static uint32_t scores_of_zero(const struct commands *out)
{
    uint32_t count = 0;

    for (size_t i = 0; i < out->count; i++) {
        count += out->items[i].type == COMMAND_SCORE && out->items[i].score == SCORE_NO_FAULT;
    }
    return count;
}

/* A word that our values are too far away is passed on only of an edge that both have opened. */
static void too_far_is_believed_of_an_edge_that_runs(void **state)
{
    struct peer_id ids[] = {id_of(LIAR), id_of(HONEST)};
    struct boot_id boots[] = {boot_of(LIAR), boot_of(HONEST)};
    float weights[] = {0.25f, 0.25f};
    struct round_members members = {
        .ids = ids, .boots = boots, .weights = weights, .count = 2, .epoch = {{1}}};
    struct message message = {.type = MESSAGE_ABORT};
    struct commands out;
    struct exchange *exchange = start(&out);
    struct edges *edges = (struct edges *)(void *)exchange;

    (void)state;
    come(exchange, HONEST, 0, NS_PER_S, &out);
    assert_int_equal(exchange->ops->begin(exchange, &members, 0, NS_PER_S, &out), RC_OK);
    message.as.abort.code = ABORT_FAR;
    message.as.abort.key = edges_find(edges, id_of(HONEST))->swap.key;
    message.as.abort.key.counter++;
    (void)!exchange->ops->on_message(exchange, id_of(HONEST), boot_of(HONEST), &message, NS_PER_S,
                                     &out);
    message.as.abort.key = edges_find(edges, id_of(LIAR))->swap.key;
    assert_int_equal(
        exchange->ops->on_message(exchange, id_of(LIAR), boot_of(LIAR), &message, NS_PER_S, &out),
        RC_OK);
    assert_int_equal(scores_of_zero(&out), 0); /* it has not come to the round */
    message.as.abort.key = edges_find(edges, id_of(HONEST))->swap.key;
    assert_int_equal(exchange->ops->on_message(exchange, id_of(HONEST), boot_of(HONEST), &message,
                                               NS_PER_S, &out),
                     RC_OK);
    assert_int_equal(scores_of_zero(&out), 1);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

/* The first round from `from` on that the one matching is, or is not, active in. */
static uint64_t next_round(const struct matchings *matchings, uint64_t from, bool is_active)
{
    while (matching_is_active(matchings, from, 0) != is_active) {
        from++;
    }
    return from;
}

/* Where rounds have a part of the edges, a neighbour that had none with us on its way to a later
 * round waits there, and we come to it in our turn; past a round of our edge it is followed. */
static void who_is_ahead_is_followed_past_a_round_of_the_edge_alone(void **state)
{
    struct commands out;
    struct exchange *exchange = start(&out);
    const struct matchings matchings = {.seed = 5, .count = 1, .chances = {0.5f}, .share = 1};
    const struct matching_edge matched = {.own = {{1}}, .theirs = {{1}}};
    struct peer_id ids[] = {id_of(HONEST)};
    struct boot_id boots[] = {boot_of(HONEST)};
    float weights[] = {0.25f};
    const struct round_members members = {.ids = ids,
                                          .boots = boots,
                                          .weights = weights,
                                          .count = 1,
                                          .matchings = &matchings,
                                          .matched = &matched};
    struct message message = {.type = MESSAGE_EDGE_OPEN};
    uint64_t idle = next_round(&matchings, 1, false), met = next_round(&matchings, idle, true);
    uint64_t passed = next_round(&matchings, met + 1, true), idles = 0;
    uint64_t further = next_round(&matchings, passed + 1, true);
    const struct edges *edges = (const struct edges *)(const void *)exchange;

    (void)state;
    exchange->ops->set_round(exchange, idle);
    message.as.edge_open = (struct message_edge_open){
        .round = met, .weight = 0.25f, .chunks = CHUNKS, .lineage = {{9}}};
    assert_int_equal(
        exchange->ops->on_message(exchange, id_of(HONEST), boot_of(HONEST), &message, 2, &out),
        RC_OK);
    for (; edges->counts.next_round < met; idles++) {
        assert_int_equal(exchange->ops->begin(exchange, &members, 0, 3, &out), RC_NOT_FOUND);
        assert_int_equal(out.count, 0); /* nobody is refused */
    }
    assert_int_equal(idles, met - idle);
    assert_int_equal(edges->counts.rounds_idle, idles);
    assert_int_equal(exchange->ops->begin(exchange, &members, 0, 4, &out), RC_OK);
    assert_int_equal(edges->round, met);
    assert_true(edges->edges[0].state != EDGE_WAITING && edges->edges[0].swap.weight == 0.25f);
    exchange->ops->cancel(exchange, "the test goes on", 5, &out);
    message.as.edge_open.round = further;
    assert_int_equal(
        exchange->ops->on_message(exchange, id_of(HONEST), boot_of(HONEST), &message, 6, &out),
        RC_OK);
    assert_int_equal(exchange->ops->begin(exchange, &members, 0, 7, &out), RC_OK);
    assert_int_equal(edges->round, further);
    commands_deinit(&out);
    exchange->ops->destroy(exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_that_comes_twice_counts_once),
        cmocka_unit_test(too_far_is_believed_of_an_edge_that_runs),
        cmocka_unit_test(one_neighbour_cannot_void_the_memory_for_ever),
        cmocka_unit_test(nor_while_members_seem_to_come_and_go),
        cmocka_unit_test(who_is_ahead_is_followed_past_a_round_of_the_edge_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

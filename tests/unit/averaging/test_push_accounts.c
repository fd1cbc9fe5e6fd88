/* Weight that was minted counts for about as much as one member gives; shares that honest members
 * give are hardly ever cut. Whole swarms of accounts, in which weights alone move. */
#include "tests/check.h"

#include "averaging/push/push.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MEMBERS_MAX_HERE = 24, LIAR = 0 };

enum graph { ANYBODY, EXPONENTIAL, RING, GRAPHS };

struct swarm {
    uint32_t members, silent; /* those before `silent` give nothing */
    enum graph graph;
    bool has_liar, has_slow;
    bool liar_refuses;  /* every share */
    uint32_t liar_pace; /* shares that it gives where others give one */
    struct push *peers[MEMBERS_MAX_HERE];
    uint32_t periods[MEMBERS_MAX_HERE];
    struct rng rng;
    double given[MEMBERS_MAX_HERE]; /* to honest ones */
    uint64_t shares, whole;         /* of honest ones: offered, and taken as offered */
};

static struct peer_id id_of(uint32_t number)
{
    return (struct peer_id){{(uint8_t)(number + 1)}};
}

static struct swarm swarm_of(uint32_t members, enum graph graph, uint64_t seed)
{
    struct swarm swarm = {.members = members, .graph = graph};

    rng_init(&swarm.rng, seed, graph);
    for (uint32_t i = 0; i < members; i++) {
        struct exchange_options options = {.self = id_of(i), .chunks = 1};
        struct exchange *exchange = exchange_push.create(&options);

        assert_non_null(exchange);
        swarm.peers[i] = push_of(exchange);
    }
    return swarm;
}

static void swarm_end(struct swarm *swarm)
{
    for (uint32_t i = 0; i < swarm->members; i++) {
        exchange_push.destroy(&swarm->peers[i]->base);
    }
}

static uint32_t receiver_of(struct swarm *swarm, uint32_t from)
{
    uint32_t n = swarm->members, steps = 1, period = swarm->periods[from]++;

    if (swarm->graph == RING) return (from + (period % 2 == 0 ? 1 : n - 1)) % n;
    if (swarm->graph == ANYBODY) {
        return (from + 1 + (uint32_t)rng_below(&swarm->rng, n - 1)) % n;
    }
    while (1u << steps < n) {
        steps++;
    }
    return (from + (1u << period % steps)) % n;
}

/* What is not taken stays. A liar claims as much as there can be, and takes what it gets. */
static void give(struct swarm *swarm, uint32_t from)
{
    uint32_t to = receiver_of(swarm, from);
    struct push *sender = swarm->peers[from], *receiver = swarm->peers[to];
    bool is_liar = swarm->has_liar && from == LIAR, is_to_liar = swarm->has_liar && to == LIAR;
    double offered = is_liar ? WEIGHT_MOST : sender->weight / 2, taken = offered, most;
    double allowed = push_account_allows(receiver, id_of(from));

    if (to == from || offered * 32 < receiver->weight) return;
    if (is_to_liar && swarm->liar_refuses) return;
    push_account_claimed(receiver, id_of(from), 2 * offered);
    most = fmin(offered, 4 * receiver->weight);
    taken = most;
    if (taken > allowed) taken = allowed > taken / 8 ? allowed : 0;
    if (!is_liar) swarm->shares++;
    if (!is_liar) swarm->whole += taken >= most;
    if (taken <= 0) return;
    if (!is_liar) sender->weight -= taken;
    push_account_had(sender, id_of(to), taken);
    if (is_to_liar) return;
    push_account_given(receiver, id_of(from), taken);
    receiver->weight += taken;
    push_account_weigh(receiver);
    swarm->given[from] += taken;
}

static void run(struct swarm *swarm, uint32_t rounds)
{
    for (uint32_t k = 0; k < rounds * swarm->members; k++) {
        uint32_t from = (uint32_t)rng_below(&swarm->rng, swarm->members);
        uint32_t times = swarm->has_liar && from == LIAR ? swarm->liar_pace : 1;

        if (from < swarm->silent) continue;
        if (swarm->has_slow && from == 1 && rng_below(&swarm->rng, 10) > 0) continue;
        for (uint32_t i = 0; i < times; i++) {
            give(swarm, from);
        }
    }
}

static void honest_shares_are_hardly_ever_cut(void **state)
{
    (void)state;
    for (int graph = 0; graph < GRAPHS; graph++) {
        for (uint32_t members = 2; members <= MEMBERS_MAX_HERE; members *= 2) {
            for (int slow = 0; slow < 2; slow++) {
                struct swarm swarm = swarm_of(members, (enum graph)graph, 7);
                double sum = 0, whole;

                swarm.has_slow = slow == 1;
                run(&swarm, 2000);
                for (uint32_t i = 0; i < members; i++) {
                    sum += swarm.peers[i]->weight;
                }
                assert_float_equal((float)sum, (float)members, 1e-3f);
                whole = (double)swarm.whole / (double)swarm.shares;
                if (whole < 0.99 || (members <= 4 && whole < 1)) {
                    fail_msg("graph %d, %u members, slow %d: %g", graph, members, slow, whole);
                }
                if (getenv("VERBOSE") != NULL) {
                    printf("graph %d, %u members, slow %d: %.3f whole\n", graph, members, slow,
                           whole);
                }
                swarm_end(&swarm);
            }
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const double *first = a, *second = b;

    return (*first > *second) - (*first < *second);
}

static void check_minted(struct swarm *swarm, const char *how)
{
    double honest = 0, weights[MEMBERS_MAX_HERE], median;
    uint32_t others = swarm->members - 1;

    for (uint32_t i = 0; i < others; i++) {
        honest += swarm->given[1 + i] / others;
        weights[i] = swarm->peers[1 + i]->weight;
    }
    qsort(weights, others, sizeof *weights, by_size);
    median = weights[others / 2];
    if (getenv("VERBOSE") != NULL) {
        printf("graph %d, %u members, %s: it gave %.1f times what others gave; median weight "
               "%.2f; %.3f of their shares whole\n",
               swarm->graph, swarm->members, how, swarm->given[LIAR] / honest, median,
               (double)swarm->whole / (double)swarm->shares);
    }
    if (!(swarm->given[LIAR] < 4 * honest)) fail_msg("%s: %g", how, swarm->given[LIAR] / honest);
    if (!(median < 16)) fail_msg("graph %d, %s: %g each", swarm->graph, how, median);
}

/* However often it gives, and whether it takes what it is given or not. */
static void who_mints_weight_counts_as_a_few(void **state)
{
    static const struct {
        const char *name;
        uint32_t pace;
        bool refuses;
    } ways[] = {
        {"as they do", 1, false}, {"twenty times as often", 20, false}, {"it takes none", 1, true}};

    (void)state;
    for (int graph = 0; graph < GRAPHS; graph++) {
        for (uint32_t members = 4; members <= MEMBERS_MAX_HERE; members *= 2) {
            for (size_t i = 0; i < ARRAY_COUNT(ways); i++) {
                struct swarm swarm = swarm_of(members, (enum graph)graph, 7);

                swarm.has_liar = true;
                swarm.liar_pace = ways[i].pace;
                swarm.liar_refuses = ways[i].refuses;
                run(&swarm, 2000);
                check_minted(&swarm, ways[i].name);
                swarm_end(&swarm);
            }
        }
    }
}

/* Shares that come leave accounts as they are; those of ours that arrive halve them. */
static void nobody_ages_its_own_account(void **state)
{
    struct exchange_options options = {.self = id_of(1), .chunks = 1};
    struct push *push = push_of(exchange_push.create(&options));

    (void)state;
    push->weight = 8;
    push_account_given(push, id_of(3), 1);
    for (int i = 0; i < 1000; i++) {
        push_account_given(push, id_of(2), 0.007);
    }
    assert_true(push_account_allows(push, id_of(2)) < 0);
    for (int i = 0; i < 64; i++) {
        push_account_had(push, id_of(4), 0.1);
    }
    assert_float_equal((float)push_account_allows(push, id_of(2)), 0.5f, 1e-6f); /* 4 - 3.5 */
    exchange_push.destroy(&push->base);
}

/* One that says to be heavy moves nobody; where most do, weight was minted. */
static void who_is_among_heavy_ones_weighs_less(void **state)
{
    struct exchange_options options = {.self = id_of(1), .chunks = 1};
    struct push *push = push_of(exchange_push.create(&options));

    (void)state;
    push->weight = 32;
    for (uint32_t i = 2; i < 6; i++) {
        push_account_claimed(push, id_of(i), i == 2 ? 1000 : 8);
        push_account_given(push, id_of(i), 1);
    }
    push_account_weigh(push);
    assert_float_equal((float)push->weight, 32, 1e-6f);
    push_account_claimed(push, id_of(3), 16);
    push_account_claimed(push, id_of(4), 16);
    push_account_weigh(push);
    assert_float_equal((float)push->weight, 16, 1e-6f); /* the median is 16, twice what can be */
    exchange_push.destroy(&push->base);
}

/* As an exchange obeys it: the part that is not taken stays with the sender, by ACCEPT's alpha. */
static void what_is_not_taken_is_left_with_the_sender(void **state)
{
    struct exchange_options options = {.self = id_of(1), .chunks = 1};
    struct exchange *exchange = exchange_push.create(&options);
    struct push *push = push_of(exchange);
    struct message message = {.type = MESSAGE_SHARE};
    struct round_key key = {.initiator = id_of(2), .counter = 1};
    struct commands out;

    (void)state;
    commands_init(&out);
    exchange_push.set_lineage(exchange, (struct digest){{9}}, &out);
    exchange_push.on_link_up(exchange, key.initiator, key.boot, 1, &out);
    push->weight = 4;
    push_account_had(push, key.initiator, 5);
    push_account_given(push, id_of(3), 0.5);
    push_account_given(push, key.initiator, 8);
    message.as.share.key = key;
    message.as.share.lineage = (struct digest){{9}};
    message.as.share.chunks = 1;
    message.as.share.weight = 2;
    assert_int_equal(exchange_push.on_message(exchange, key.initiator, key.boot, &message, 2, &out),
                     RC_OK);
    assert_true(out.items[0].message.type == MESSAGE_ACCEPT);
    assert_float_equal(out.items[0].message.as.accept.alpha, 0.25f, 1e-6f); /* 1 of 2 */
    assert_float_equal(push->in_weight, 1, 1e-6f);
    exchange_push.cancel(exchange, "given up", 3, &out);
    push_account_given(push, key.initiator, 1);
    message.as.share.key.counter = 2;
    assert_int_equal(exchange_push.on_message(exchange, key.initiator, key.boot, &message, 4, &out),
                     RC_BUSY);
    exchange_push.destroy(exchange);
    commands_deinit(&out);
}

/* Whom we do not hear we do not feed, and not for ever. */
static void who_is_put_off_gets_nothing_meanwhile(void **state)
{
    struct exchange_options options = {.self = id_of(1), .chunks = 1};
    struct exchange *exchange = exchange_push.create(&options);
    struct push *push = push_of(exchange);
    struct peer_id to = id_of(2);
    struct boot_id boot = {{0}};
    struct round_members members = {.ids = &to, .boots = &boot, .count = 1};
    struct commands out;

    (void)state;
    commands_init(&out);
    exchange_push.set_lineage(exchange, (struct digest){{9}}, &out);
    push->from = (struct member_ref){to, boot};
    push->now_ns = 1000 * NS_PER_S;
    push->in_begun_ns = 400 * NS_PER_S;
    for (int i = 0; i < 40; i++) {
        push_kept_waiting(push);
    }
    assert_int_equal(exchange_push.begin(exchange, &members, 0, 1001 * NS_PER_S, &out), RC_BUSY);
    assert_false(push->is_running);
    assert_int_equal(push->counts.rounds_skipped, 1);
    assert_true(push_is_put_off(push, to));
    assert_int_equal(
        exchange_push.begin(exchange, &members, 0, (1000 + 32 * 600 + 1) * NS_PER_S, &out), RC_OK);
    exchange_push.destroy(exchange);
    commands_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_shares_are_hardly_ever_cut),
        cmocka_unit_test(who_mints_weight_counts_as_a_few),
        cmocka_unit_test(nobody_ages_its_own_account),
        cmocka_unit_test(who_is_among_heavy_ones_weighs_less),
        cmocka_unit_test(what_is_not_taken_is_left_with_the_sender),
        cmocka_unit_test(who_is_put_off_gets_nothing_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * A liar among complete peers under random accidents: what one member says, leaves out or delays
 * while links break, hosts freeze and others die, ends no honest peer, leaves no value that is not
 * finite, and when the faults are over all honest peers average again. Where it tells the truth
 * about values, models stay whole as well, and the honest meet at one.
 *   SEED=17 TRACE=1          one seed, and everything that happens in it
 *   FIRST=1 SEEDS=2000       the campaign
 *   METHOD=ad-psgd:H=4 LIE=silent SEEDS=100      of one of either
 */
#include "tests/sim/chaos.h"
#include "tests/sim/lies.h"

#include "averaging/strategy/strategy.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS_GATE = 8 };
#else
enum { SEEDS_GATE = 60 };
#endif

/* One that was fooled while links were broken needs three honest holders of another model to take
 * it (peer/node/models/choice.c): a donor and two witnesses. */
enum { PEERS_LEAST = 5 };

static const struct evil_behaviour *lie; /* of this seed */

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void begin_to_lie(struct node *node)
{
    evil_begin(node, lie);
}

static enum evil_exchange exchange_of(const struct strategy *strategy)
{
    if (strategy->exchange->is_group) return EVIL_GROUP;
    if (strategy->exchange->has_mirrors) return EVIL_MIRROR;
    if (strategy->exchange->is_graph) return EVIL_EDGES;
    return strategy->rule->is_push ? EVIL_PUSH : EVIL_PAIR;
}

/* The method and the lie of a seed. */
static void choose(uint64_t seed, struct strategy *strategy)
{
    static const char *const methods[] = {"local-sgd:H=4", "ad-psgd:H=4",  "dpsgd:H=4",
                                          "diloco:H=8",    "push-sum:H=4", "allreduce",
                                          "sparseloco:H=8"};
    const char *named = getenv("LIE");
    struct strategy_specs specs = {.averaging = methods[seed % ARRAY_COUNT(methods)]};
    struct fault why;
    struct rng rng;

    if (getenv("METHOD") != NULL) specs.averaging = getenv("METHOD");
    assert_int_equal(strategy_parse(&specs, strategy, &why), RC_OK);
    rng_init(&rng, seed, 0x6c696172);
    do {
        lie = named != NULL ? lies_find(named) : &lies[1 + rng_below(&rng, ARRAY_COUNT(lies) - 1)];
        assert_non_null(lie);
    } while (named == NULL && (lie->exchanges & exchange_of(strategy)) == 0);
}

static void a_liar_ends_nobody_and_stops_nothing(void **state)
{
    uint64_t first = number_of("SEED", number_of("FIRST", 1));
    uint64_t count = getenv("SEED") != NULL ? 1 : number_of("SEEDS", SEEDS_GATE);
    uint32_t played = 0;

    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        uint64_t blocks = mem_blocks();
        struct strategy strategy;
        struct chaos_liar liar = {.begin = begin_to_lie, .end = evil_end};
        struct chaos chaos = {.strategy = &strategy, .program = "sim_chaos_liars", .liar = &liar};

        plan_make(&chaos.plan, seed);
        if (chaos.plan.peers < PEERS_LEAST) continue;
        played++;
        choose(seed, &strategy);
        liar.peer = chaos.plan.order[1]; /* not the founder, whom all others dial */
        liar.is_of_values = lie->on_plane != NULL || lie->on_chunk != NULL ||
                            lie->on_donation != NULL || lie->on_start != NULL;
        if (getenv("VERBOSE") != NULL) {
            printf("seed %llu: %s beside %s\n", (unsigned long long)seed, strategy.text, lie->name);
        }
        chaos_live_as(&chaos, seed);
        cluster_destroy(chaos.cluster);
        free(chaos.plane);
        check_seed(seed, mem_blocks() == blocks);
    }
    printf("%llu seeds from %llu, %u of them with peers enough\n", (unsigned long long)count,
           (unsigned long long)first, played);
    assert_true(played > 0 || count == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_liar_ends_nobody_and_stops_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

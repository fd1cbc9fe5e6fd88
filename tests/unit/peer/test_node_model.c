/* Which model wins: who holds how many, what counts as one, and who is moved by words alone. */
#include "tests/check.h"

#include "base/mem.h"
#include "peer/node/models/internal.h"

enum { NEIGHBOURS = 5 };

static uint64_t the_time_ns = 1000 * NS_PER_S;

static uint64_t now_ns(struct env *env)
{
    (void)env;
    return the_time_ns;
}

static const struct env_ops ops = {.now_ns = now_ns};

/* The first `far` of `count` neighbours say that they are far ahead; with the last `near` rounds
 * went well. */
static bool gives_way(uint32_t count, uint32_t far, uint32_t near)
{
    struct env env = {.ops = &ops};
    struct node *node = mem_alloc(sizeof *node);
    bool is_giving_way;

    assert_non_null(node);
    node->env = &env;
    node->trust = trust_create();
    node->models = mem_alloc(sizeof *node->models);
    assert_true(node->trust != NULL && node->models != NULL);
    node->model_samples = 1000;
    node->lineage = (struct digest){{9}};
    node->neighbours_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct neighbour *other = &node->neighbours[i];

        other->id = (struct peer_id){{(uint8_t)(i + 1)}};
        other->has_progress = true;
        other->progress.is_serving = true;
        other->progress.lineage = node->lineage;
        other->progress.samples = i < far ? UINT64_C(1) << 40 : 1000;
        if (i < far) other->far_ns = the_time_ns - NS_PER_S;
        for (int k = 0; k < 20 && i >= count - near; k++) {
            trust_note(node->trust, other->id, SCORE_COMMITTED, the_time_ns);
        }
    }
    is_giving_way = models_most_are_far(node);
    trust_destroy(node->trust);
    mem_free(node->models);
    mem_free(node);
    return is_giving_way;
}

static void one_alone_makes_nobody_give_its_model_up(void **state)
{
    (void)state;
    assert_false(gives_way(NEIGHBOURS, 1, 0));
    assert_false(gives_way(NEIGHBOURS, 1, 4));
    assert_false(gives_way(NEIGHBOURS, 2, 3)); /* two beside a swarm of our age that averages */
    assert_false(gives_way(NEIGHBOURS, 2, 2));
    assert_true(gives_way(NEIGHBOURS, 2, 1));
    assert_true(gives_way(NEIGHBOURS, 3, 2));
    assert_true(gives_way(NEIGHBOURS, 5, 0));
    assert_true(gives_way(1, 1, 0)); /* there is nobody else */
}

/* ---- models of unlike beginnings ---- */

static const struct digest ours = {{9}}, larger = {{10}}, smaller = {{8}};

struct crowd {
    uint32_t count, places; /* holders, and the hosts they are on; 0: one each */
    uint64_t samples, step;
};

static struct node *node_create_in(enum node_state state, uint64_t samples)
{
    struct node *node = mem_alloc(sizeof *node);
    static struct env env = {.ops = &ops};
    static struct strategy strategy = {.every_steps = 4};

    assert_non_null(node);
    node->env = &env;
    node->trust = trust_create();
    node->models = mem_alloc(sizeof *node->models);
    assert_true(node->trust != NULL && node->models != NULL);
    node->state = state;
    node->lineage = ours;
    node->model_samples = samples;
    node->begun_ns = the_time_ns - 1000 * NS_PER_S;
    node->options.strategy = &strategy;
    return node;
}

static void add(struct node *node, struct digest lineage, struct crowd crowd)
{
    for (uint32_t i = 0; i < crowd.count; i++) {
        uint32_t at = node->neighbours_count++;
        struct neighbour *other = &node->neighbours[at];

        other->id = (struct peer_id){{(uint8_t)(at + 1)}};
        other->linked_ns = the_time_ns - 100 * NS_PER_S;
        other->place = crowd.places == 0 ? 100 + at : 1000 + i % crowd.places;
        other->has_progress = true;
        other->progress.is_serving = true;
        other->progress.lineage = lineage;
        other->progress.samples = crowd.samples;
        other->progress.step = crowd.step;
    }
}

static void node_free(struct node *node)
{
    trust_destroy(node->trust);
    mem_free(node->models);
    mem_free(node);
}

/* Two looks, the second a while later. */
static bool takes(struct node *node, struct digest lineage)
{
    struct models_wanted wanted;
    bool is_taken;

    (void)models_choose(node, &wanted);
    the_time_ns += 2 * NS_PER_S;
    is_taken =
        models_choose(node, &wanted) == CHOSEN_OTHER && digest_is_equal(wanted.lineage, lineage);
    node_free(node);
    return is_taken;
}

/* In training, with `own` that hold our model. */
static bool gives_up(uint32_t own, struct digest lineage, uint32_t theirs, uint32_t places)
{
    struct node *node = node_create_in(NODE_TRAINING, 1000);

    add(node, ours, (struct crowd){.count = own, .samples = 1000});
    add(node, lineage, (struct crowd){theirs, places, UINT64_C(1) << 60, UINT64_C(1) << 60});
    return takes(node, lineage);
}

static void more_members_take_a_model_from_who_trains(void **state)
{
    (void)state;
    assert_false(gives_up(0, smaller, 1, 0)); /* whatever it says of itself */
    assert_false(gives_up(0, smaller, 2, 0)); /* one would give it, one confirm it */
    assert_true(gives_up(0, larger, 3, 0));
    assert_true(gives_up(1, larger, 3, 0));
    assert_false(gives_up(2, larger, 3, 0)); /* equal halves: the smaller lineage stays */
    assert_true(gives_up(2, smaller, 3, 0));
    assert_false(gives_up(3, smaller, 3, 0));
    assert_false(gives_up(12, smaller, 3, 0)); /* three of sixteen */
    assert_true(gives_up(5, larger, 20, 0));
    assert_false(gives_up(5, larger, 20, 1)); /* twenty identities of one host */
    assert_false(gives_up(5, smaller, 20, 4));
    assert_true(gives_up(5, larger, 20, 5));
}

/* For a moment more are seen than there are: only what lasts counts. */
static void a_moment_moves_nobody(void **state)
{
    struct node *node = node_create_in(NODE_TRAINING, 1000);
    struct models_wanted wanted;

    (void)state;
    add(node, larger, (struct crowd){.count = 4, .samples = 1000});
    assert_int_equal(models_choose(node, &wanted), CHOSEN_OURS);
    the_time_ns += NS_PER_S / 2;
    assert_int_equal(models_choose(node, &wanted), CHOSEN_OURS);
    node->neighbours[0].progress.is_serving = node->neighbours[1].progress.is_serving = false;
    assert_int_equal(models_choose(node, &wanted), CHOSEN_OURS);
    node->neighbours[0].progress.is_serving = node->neighbours[1].progress.is_serving = true;
    the_time_ns += NS_PER_S - 1;
    assert_int_equal(models_choose(node, &wanted), CHOSEN_OURS);
    for (uint32_t i = 0; i < 4; i++) { /* linked a moment ago */
        node->neighbours[i].linked_ns = the_time_ns;
    }
    the_time_ns += NS_PER_S / 2;
    assert_int_equal(models_choose(node, &wanted), CHOSEN_OURS);
    node_free(node);
}

/* Who has nothing takes the trained model that most hold; where nobody has trained, the initial
 * one of most. */
static void a_new_peer_goes_with_most(void **state)
{
    struct node *node = node_create_in(NODE_JOINING, 0);

    (void)state;
    add(node, smaller, (struct crowd){.count = 1, .samples = UINT64_C(1) << 60});
    assert_true(takes(node, smaller)); /* there is no other */
    node = node_create_in(NODE_JOINING, 0);
    add(node, smaller, (struct crowd){.count = 1, .samples = UINT64_C(1) << 60});
    add(node, larger, (struct crowd){.count = 2, .samples = 5});
    assert_true(takes(node, larger));
    node = node_create_in(NODE_JOINING, 0);
    add(node, smaller, (struct crowd){.count = 1, .samples = UINT64_C(1) << 60});
    add(node, ours, (struct crowd){.count = 2, .samples = 5});
    assert_true(takes(node, ours));
    node = node_create_in(NODE_JOINING, 0);
    add(node, smaller, (struct crowd){.count = 1});
    add(node, ours, (struct crowd){.count = 1});
    assert_false(takes(node, smaller));
    node = node_create_in(NODE_JOINING, 0);
    add(node, smaller, (struct crowd){.count = 1});
    assert_true(takes(node, smaller));
    node = node_create_in(NODE_JOINING, 0);
    add(node, larger, (struct crowd){.count = 1});
    assert_false(takes(node, larger));
}

/* Identities cost nothing, hosts do: of one host four count, before all are counted. */
static void invented_members_do_not_outvote_hosts(void **state)
{
    static const struct crowd invented = {20, 1, UINT64_C(1) << 60, UINT64_C(1) << 60};
    struct node *node = node_create_in(NODE_JOINING, 0);

    (void)state;
    add(node, smaller, invented);
    add(node, larger, (struct crowd){.count = 5, .samples = 5});
    assert_true(takes(node, larger));
    node = node_create_in(NODE_JOINING, 0);
    add(node, smaller, (struct crowd){.count = 5, .places = 1, .samples = 5});
    add(node, larger, invented); /* each on one host: nothing tells which are invented */
    assert_true(takes(node, larger));
    node = node_create_in(NODE_JOINING, 1000);
    add(node, smaller, invented);
    add(node, ours, (struct crowd){.count = 5, .samples = 5});
    assert_false(takes(node, smaller));
}

/* Who restarts with a model of many samples gives way to more than itself, and to one only if that
 * has the more samples; and takes the swarm's if the median has come 50 rounds farther. */
static void who_restarts_goes_with_most(void **state)
{
    struct node *node = node_create_in(NODE_JOINING, 1000);

    (void)state;
    add(node, larger, (struct crowd){.count = 2, .samples = 5});
    assert_true(takes(node, larger));
    node = node_create_in(NODE_JOINING, 1000);
    add(node, smaller, (struct crowd){.count = 1, .samples = 5});
    assert_false(takes(node, smaller));
    node = node_create_in(NODE_JOINING, 1000);
    add(node, larger, (struct crowd){.count = 1, .samples = 5000});
    assert_true(takes(node, larger));
    node = node_create_in(NODE_JOINING, 1000);
    add(node, ours, (struct crowd){.count = 1, .samples = 5, .step = UINT64_MAX / 2});
    add(node, ours, (struct crowd){.count = 2, .samples = 5, .step = 200});
    assert_false(takes(node, ours));
    node = node_create_in(NODE_JOINING, 1000);
    add(node, ours, (struct crowd){.count = 1, .samples = 5, .step = 7});
    add(node, ours, (struct crowd){.count = 2, .samples = 5, .step = 201});
    assert_true(takes(node, ours));
}

/* A model is on its way for the word of the one that was heard first. Others come. */
static bool goes_on(struct digest lineage, uint64_t step_least, struct crowd wanted,
                    struct crowd others)
{
    struct node *node = node_create_in(NODE_LOADING, 1000);
    bool is_wrong;

    node->models->wanted.lineage = lineage;
    node->models->wanted.step_least = step_least;
    add(node, lineage, wanted);
    add(node, ours, others);
    is_wrong = models_chose_wrong(node);
    node_free(node);
    return !is_wrong;
}

static void who_was_heard_first_does_not_decide_for_a_restarted_peer(void **state)
{
    const struct crowd boaster = {.count = 1, .samples = 5, .step = UINT64_MAX / 2};
    const struct crowd two = {.count = 2, .samples = 5, .step = 500};
    const struct crowd one_near = {.count = 1, .samples = 5, .step = 7};
    const struct crowd two_near = {.count = 2, .samples = 5, .step = 7}, nobody = {.count = 0};

    (void)state;
    assert_true(goes_on(ours, 201, boaster, nobody));
    assert_false(goes_on(ours, 201, boaster, one_near));
    assert_true(goes_on(ours, 201, two, one_near));
    assert_true(goes_on(ours, 201, nobody, nobody)); /* all links are lost, for a moment */
    assert_true(goes_on(smaller, 0, boaster, nobody));
    assert_false(goes_on(smaller, 0, boaster, one_near));
    assert_true(goes_on(smaller, 0, two, one_near));
    assert_false(goes_on(smaller, 0, two, two_near));
    assert_true(goes_on(smaller, 0, nobody, nobody));
}

/* IPv4 by address, IPv6 by network, and names, which cost nothing, are all one. */
static void a_host_is_one_whatever_its_ports(void **state)
{
    (void)state;
    assert_true(door_place("10.0.0.1:80") == door_place("10.0.0.1:9999"));
    assert_true(door_place("10.0.0.1:80") != door_place("10.0.0.2:80"));
    assert_true(door_place("[2001:db8::1]:80") == door_place("[2001:db8::2]:81"));
    assert_true(door_place("[2001:db8::1]:80") != door_place("[2001:db9::1]:80"));
    assert_true(door_place("a.example:80") == door_place("b.example:81"));
    assert_true(door_place("10.0.0.1.example:80") == door_place("b.example:81"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_alone_makes_nobody_give_its_model_up),
        cmocka_unit_test(more_members_take_a_model_from_who_trains),
        cmocka_unit_test(a_moment_moves_nobody),
        cmocka_unit_test(a_new_peer_goes_with_most),
        cmocka_unit_test(invented_members_do_not_outvote_hosts),
        cmocka_unit_test(who_restarts_goes_with_most),
        cmocka_unit_test(who_was_heard_first_does_not_decide_for_a_restarted_peer),
        cmocka_unit_test(a_host_is_one_whatever_its_ports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

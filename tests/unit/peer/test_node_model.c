/* Who has just begun, and is told that its model is too far from others: does it give way? */
#include "tests/check.h"

#include "base/mem.h"
#include "peer/node_internal.h"

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
    assert_non_null(node->trust);
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
    is_giving_way = node_most_are_far(node);
    trust_destroy(node->trust);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_alone_makes_nobody_give_its_model_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Groups of a swarm that is not linked in full, as one peer draws them. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/node/rounds/internal.h"

#include <stdio.h>

enum { OTHERS = 140, SIZE = 8 };

struct stage {
    struct env env;
    struct swarm_secret swarm;
    struct identity self, others[OTHERS];
    struct peer_id ids[OTHERS];
    struct strategy strategy;
    struct outbox out;
    struct node node;
    struct rounds rounds;
    struct draws draws;
};

static uint64_t the_time_ns;

static uint64_t now_ns(struct env *env)
{
    (void)env;
    return the_time_ns;
}

static const struct env_ops ops = {.now_ns = now_ns};

/* Somebody linked tells of another member. */
static void tell_of(struct stage *stage, const struct identity *identity)
{
    struct member_record record = {.incarnation = 1, .addresses_count = 1};
    struct message message = {.type = MESSAGE_GOSSIP};
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count = 0;

    memcpy(record.public_key, identity->public_key, PUBLIC_KEY_BYTES);
    snprintf(record.addresses[0], ADDRESS_BYTES_MAX, "sim:%u", load_le16(identity->public_key));
    assert_int_equal(
        record_sign(&record, identity, stage->swarm.run_id, bytes, SIGNED_RECORD_BYTES_MAX, &count),
        RC_OK);
    message.as.gossip.updates_count = 1;
    message.as.gossip.updates[0].bytes = bytes;
    message.as.gossip.updates[0].bytes_count = (uint16_t)count;
    assert_int_equal(membership_on_message(stage->node.membership, stage->ids[0], &message,
                                           the_time_ns, &stage->out),
                     RC_OK);
}

static struct stage *stage_create(void)
{
    struct stage *stage = mem_alloc(sizeof *stage);
    struct strategy_specs specs = {.topology = "groups:8"};
    struct fault why = {""};
    uint8_t seed[SECRET_BYTES] = {7};

    assert_non_null(stage);
    assert_int_equal(secure_start(), RC_OK);
    the_time_ns = 1000 * NS_PER_S;
    stage->env.ops = &ops;
    stage->swarm.run_id = hash_of("swarm", 5);
    assert_int_equal(strategy_parse(&specs, &stage->strategy, &why), RC_OK);
    identity_from_seed(seed, &stage->self);
    for (uint32_t i = 0; i < OTHERS; i++) {
        store_le32(seed + 1, i + 1);
        identity_from_seed(seed, &stage->others[i]);
        stage->ids[i] = identity_peer_id(stage->others[i].public_key);
    }
    outbox_init(&stage->out);
    stage->node.rounds = &stage->rounds;
    stage->node.env = &stage->env;
    stage->node.self = identity_peer_id(stage->self.public_key);
    stage->node.options.swarm = &stage->swarm;
    stage->node.options.strategy = &stage->strategy;
    const struct membership_options options = {.probe_interval_ns = NS_PER_S,
                                               .members_max = 1000,
                                               .identity = &stage->self,
                                               .run_id = stage->swarm.run_id,
                                               .incarnation = 1,
                                               .addresses = {"sim:9999"},
                                               .addresses_count = 1,
                                               .seed = 3};
    stage->node.membership = membership_create(&options);
    assert_non_null(stage->node.membership);
    membership_on_link_up(stage->node.membership, stage->ids[0], stage->others[0].public_key,
                          (struct boot_id){{1}}, "sim:1", the_time_ns, &stage->out);
    for (uint32_t i = 1; i < OTHERS - 1; i++) {
        tell_of(stage, &stage->others[i]);
    }
    assert_true(draws_are_needed(&stage->node));
    return stage;
}

static void stage_destroy(struct stage *stage)
{
    membership_destroy(stage->node.membership);
    outbox_deinit(&stage->out);
    mem_free(stage);
}

/* A round that found no memory for its groups has none; the next look has. */
static void groups_are_drawn_once_there_is_memory(void **state)
{
    struct stage *stage = stage_create();
    struct peer_id group[GROUP_MEMBERS_MAX];

    (void)state;
    mem_fail_after(0);
    assert_int_equal(draws_find(&stage->draws, &stage->node, 5, group), 0);
    mem_fail_after(UINT64_MAX);
    assert_in_range(draws_find(&stage->draws, &stage->node, 5, group), SIZE, SIZE + 1);
    stage_destroy(stage);
}

/* While members come and go the group at hand follows them at once, and those that only say which
 * links to make do not: all of them are a hash of each member each. */
static void groups_of_later_rounds_are_drawn_anew_less_often(void **state)
{
    struct stage *stage = stage_create();
    const struct draws *draws = &stage->draws;
    struct peer_id group[GROUP_MEMBERS_MAX];
    uint64_t made_ns = the_time_ns;
    uint32_t fresh = 0, all = 0;

    (void)state;
    assert_true(draws_find(&stage->draws, &stage->node, 5, group) >= SIZE);
    tell_of(stage, &stage->others[OTHERS - 1]);
    the_time_ns += NODE_GRAPH_NS - 1;
    assert_true(draws_find(&stage->draws, &stage->node, 5, group) >= SIZE);
    the_time_ns += 1;
    for (int look = 0; look < 2; look++) {
        assert_true(draws_find(&stage->draws, &stage->node, 5, group) >= SIZE);
        for (size_t i = fresh = all = 0; i < TOPOLOGY_AHEAD_MAX; i++) {
            all += draws->drawn[i].count > 0;
            fresh += draws->drawn[i].count > 0 && draws->drawn[i].made_ns > made_ns;
        }
        assert_in_range(all, 4, 8);
        assert_int_equal(fresh, look == 0 ? 1 : all);
        the_time_ns = made_ns + NODE_AHEAD_NS;
    }
    stage_destroy(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_drawn_once_there_is_memory),
        cmocka_unit_test(groups_of_later_rounds_are_drawn_anew_less_often),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which links of a large swarm are given up. */
#include "tests/unit/gossip/membership_scene.h"

enum { MEMBERS = 140, FIRST = 40 };

static struct other members[MEMBERS];

/* Linked with more than a full mesh has. */
static void scene_of_many(struct scene *scene)
{
    scene_create(scene, 256);
    for (uint8_t i = 0; i < MEMBERS; i++) {
        char address[ADDRESS_BYTES_MAX];

        make_other(&members[i], i);
        snprintf(address, sizeof address, "o%d.example:1", i);
        link_up(scene, &members[i], "");
        tell(scene, &members[i], &members[i], 1, false, address);
    }
    outbox_clear(&scene->out);
}

/* Who of the first so many that are pruned has an even number; `pruned`: how many are. */
static uint32_t even_among_pruned(struct scene *scene, uint32_t most, uint32_t *pruned)
{
    uint32_t even = 0;

    *pruned = 0;
    for (int tenths = 0; tenths < 100 && *pruned < most; tenths++) {
        scene->now_ns += 100 * NS_PER_MS;
        for (uint8_t i = 0; i < MEMBERS; i++) {
            membership_on_heard(scene->membership, members[i].id, scene->now_ns);
        }
        outbox_clear(&scene->out);
        membership_tick(scene->membership, scene->now_ns, &scene->out);
        for (uint32_t k = 0; k < scene->out.count; k++) {
            const struct outbox_entry *entry = &scene->out.entries[k];

            if (entry->inner->bytes[0] != MESSAGE_PRUNE || *pruned == most) continue;
            for (uint8_t i = 0; i < MEMBERS; i++) {
                even += i % 2 == 0 && peer_id_is_equal(entry->to, members[i].id);
            }
            (*pruned)++;
        }
    }
    return even;
}

/* Slow lines are given up before others, but for one choice in two that looks at no line; without
 * slow ones all go alike. */
static void slow_links_are_given_up_first(void **state)
{
    struct scene scene;
    uint32_t pruned;

    (void)state;
    for (int is_marked = 0; is_marked < 2; is_marked++) {
        uint32_t even;

        scene_of_many(&scene);
        for (uint8_t i = 0; i < MEMBERS && is_marked; i += 2) {
            membership_set_slow(scene.membership, members[i].id, true);
        }
        even = even_among_pruned(&scene, FIRST, &pruned);
        assert_int_equal(pruned, FIRST);
        assert_in_range(even, is_marked ? 25 : 10, is_marked ? FIRST - 1 : 30); /* 30 and 20 */
        scene_destroy(&scene);
    }
    scene_of_many(&scene);
    membership_set_slow(scene.membership, (struct peer_id){{9}}, true); /* nobody */
    membership_set_slow(scene.membership, members[0].id, true);
    membership_set_slow(scene.membership, members[0].id, false);
    assert_in_range(even_among_pruned(&scene, FIRST, &pruned), 10, 30);
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_links_are_given_up_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

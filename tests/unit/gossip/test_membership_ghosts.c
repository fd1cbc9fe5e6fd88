/* Members that do not exist, told of by somebody who is linked: how soon a peer of a swarm too
 * large for a full mesh reckons with them no more. */
#include "tests/unit/gossip/membership_scene.h"

#include "gossip/membership/internal.h"

#include <stdio.h>

enum { LINKED = 40, GHOSTS = 300, GHOSTS_A_SECOND = 30, FORGOTTEN = 8 };

static struct other ghosts[GHOSTS];

static void ghosts_make(void)
{
    for (uint32_t i = 0; i < GHOSTS; i++) {
        uint8_t seed[SECRET_BYTES] = {0xee, 1};

        store_le32(seed + 2, i);
        identity_from_seed(seed, &ghosts[i].identity);
        ghosts[i].id = identity_peer_id(ghosts[i].identity.public_key);
    }
}

static void tell_of_ghost(struct scene *scene, const struct other *ghost, enum nat_class nat,
                          uint32_t number)
{
    struct member_record record = {.incarnation = 1, .nat = nat, .addresses_count = 1};
    struct scene_record bytes;

    memcpy(record.public_key, ghost->identity.public_key, PUBLIC_KEY_BYTES);
    snprintf(record.addresses[0], ADDRESS_BYTES_MAX, "ghost.example:%u", 1 + number);
    assert_int_equal(record_sign(&record, &ghost->identity, scene->run_id, bytes.bytes,
                                 sizeof bytes.bytes, &bytes.count),
                     RC_OK);
    assert_int_equal(gossip(scene, &scene->others[0], &bytes), RC_OK);
}

/* Those who are linked go on to be heard; whoever is dialled is not there. How many were. */
static uint32_t live(struct scene *scene, uint64_t duration_ns)
{
    uint64_t end_ns = scene->now_ns + duration_ns;
    uint32_t dials = 0;

    while (scene->now_ns < end_ns) {
        for (uint32_t i = 0; i < LINKED; i++) {
            membership_on_heard(scene->membership, scene->others[i].id, scene->now_ns);
        }
        run(scene, scene->now_ns + 500 * NS_PER_MS, &dials, NULL);
    }
    return dials;
}

static uint32_t likely(const struct scene *scene)
{
    struct membership_counts counts;

    membership_counts(scene->membership, &counts);
    return counts.likely;
}

static void linked_with_some(struct scene *scene)
{
    scene_create(scene, 4096);
    ghosts_make();
    for (uint32_t i = 0; i < LINKED; i++) {
        char address[ADDRESS_BYTES_MAX];

        snprintf(address, sizeof address, "real.example:%u", 1 + i);
        link_up(scene, &scene->others[i], address);
        tell(scene, &scene->others[i], &scene->others[i], 5, false, address);
    }
}

/* Hundreds of them at addresses where nobody is: in two minutes. */
static void invented_members_are_found_out(void **state)
{
    struct scene scene;
    uint32_t seconds = 0;

    (void)state;
    linked_with_some(&scene);
    for (uint32_t i = 0; i < GHOSTS; i++) {
        tell_of_ghost(&scene, &ghosts[i], NAT_UNKNOWN, i);
        if (i % GHOSTS_A_SECOND == 0) (void)live(&scene, NS_PER_S);
    }
    assert_true(likely(&scene) > 128);
    for (; likely(&scene) > LINKED && seconds < 600; seconds++) {
        (void)live(&scene, NS_PER_S);
    }
    print_message("%d invented members were found out in %u s\n", GHOSTS, seconds);
    assert_in_range(seconds, 0, 120);
    scene_destroy(&scene);
}

/* One that is said to dial and not to be dialled, and whose link is wanted: after it has not come
 * for a while. */
static void who_never_comes_for_a_wanted_link_is_found_out(void **state)
{
    struct scene scene;
    uint32_t before;

    (void)state;
    linked_with_some(&scene);
    for (uint32_t i = 0; i < 3 * GHOSTS_A_SECOND; i++) {
        tell_of_ghost(&scene, &ghosts[i], NAT_OUTBOUND, i);
        if (i % GHOSTS_A_SECOND == 0) (void)live(&scene, NS_PER_S);
    }
    before = likely(&scene);
    assert_true(before > 128);
    membership_keep(scene.membership, &ghosts[7].id, 1, scene.now_ns);
    (void)live(&scene, 4 * NS_PER_S);
    assert_int_equal(likely(&scene), before);
    (void)live(&scene, 8 * NS_PER_S);
    assert_int_equal(likely(&scene), before - 1);
    scene_destroy(&scene);
}

/* Met once, and not linked any more. */
static void meet(struct scene *scene, const struct other *other, const char *address)
{
    struct message message = {.type = MESSAGE_PRUNE};

    link_up(scene, other, address);
    tell(scene, other, other, 5, false, address);
    assert_int_equal(
        membership_on_message(scene->membership, other->id, &message, scene->now_ns, &scene->out),
        RC_OK);
    membership_on_link_lost(scene->membership, other->id, scene->now_ns);
    assert_int_equal(state_of(scene, other), MEMBER_KNOWN);
}

/* Who was told of and is not there is no reason for ever to dial nobody of those met: views go on
 * to mix. The other invented ones are said to be dialled by nobody; they make the swarm large. */
static void after_a_member_that_is_not_there_views_go_on_to_mix(void **state)
{
    struct scene scene;
    uint32_t dials;

    (void)state;
    linked_with_some(&scene);
    for (uint32_t i = 1; i < 6 * GHOSTS_A_SECOND; i++) {
        tell_of_ghost(&scene, &ghosts[i], NAT_OUTBOUND, i);
        if (i % GHOSTS_A_SECOND == 0) (void)live(&scene, NS_PER_S);
    }
    (void)live(&scene, NS_PER_S);
    for (uint32_t i = LINKED; i < OTHERS; i++) {
        char address[ADDRESS_BYTES_MAX];

        snprintf(address, sizeof address, "met.example:%u", 1 + i);
        meet(&scene, &scene.others[i], address);
    }
    tell_of_ghost(&scene, &ghosts[0], NAT_UNKNOWN, 0);
    (void)live(&scene, 150 * NS_PER_S);
    assert_true(book_find(&scene.membership->book, ghosts[0].id)->vain == VAIN_MAX);
    dials = live(&scene, 60 * NS_PER_S);
    assert_in_range(dials, 4, 10); /* one each ten seconds */
    scene_destroy(&scene);
}

/* A full book forgets members; that is not to have found them. */
static void whom_the_book_forgets_was_not_found(void **state)
{
    struct scene scene;
    struct book *book;

    (void)state;
    linked_with_some(&scene);
    book = &scene.membership->book;
    for (uint32_t i = 0; i <= FORGOTTEN; i++) {
        tell_of_ghost(&scene, &ghosts[i], NAT_UNKNOWN, i);
    }
    for (uint32_t i = 0; i < VAIN_MAX; i++) {
        book_tried_in_vain(book, book_find(book, ghosts[0].id));
    }
    assert_int_equal(book->tried & 0xff, 3);
    for (uint32_t i = 1; i <= FORGOTTEN; i++) {
        book_remove(scene.membership, book_find(book, ghosts[i].id));
    }
    assert_int_equal(book->tried & 0xff, 3);
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invented_members_are_found_out),
        cmocka_unit_test(who_never_comes_for_a_wanted_link_is_found_out),
        cmocka_unit_test(after_a_member_that_is_not_there_views_go_on_to_mix),
        cmocka_unit_test(whom_the_book_forgets_was_not_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

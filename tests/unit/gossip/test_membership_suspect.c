/*
 * What is said against members, and by whom: accusations, indirect probes, refutation, and how a
 * book of invented members is kept small.
 */
#include "tests/unit/gossip/membership_scene.h"
#include "tests/signed.h"

static void accuse_as(const struct scene *scene, const struct other *accuser,
                      const struct other *subject, uint64_t incarnation,
                      uint8_t bytes[ACCUSATION_BYTES])
{
    struct accusation accusation = {.accuser = accuser->id,
                                    .subject = subject->id,
                                    .boot = subject->boot,
                                    .accuser_incarnation = 1,
                                    .incarnation = incarnation};

    accusation_sign(&accusation, &accuser->identity, scene->run_id, bytes);
}

static enum rc say(struct scene *scene, const struct other *from, const uint8_t *bytes)
{
    struct message message = {.type = MESSAGE_ACCUSE};

    message.as.accuse.accusations = bytes;
    message.as.accuse.accusations_bytes = ACCUSATION_BYTES;
    return membership_on_message(scene->membership, from->id, &message, scene->now_ns, &scene->out);
}

/* `accuser` accuses `subject` of not answering, by way of `from`. */
static void accuse(struct scene *scene, const struct other *from, const struct other *accuser,
                   const struct other *subject, uint64_t incarnation)
{
    uint8_t bytes[ACCUSATION_BYTES];

    accuse_as(scene, accuser, subject, incarnation, bytes);
    assert_int_equal(say(scene, from, bytes), RC_OK);
}

/* Linked members with a record each. */
static void scene_of(struct scene *scene, uint8_t count)
{
    char address[ADDRESS_BYTES_MAX];

    scene_create(scene, 256);
    for (uint8_t i = 0; i < count; i++) {
        snprintf(address, sizeof address, "o%d.example:1", i);
        link_up(scene, &scene->others[i], address);
        tell(scene, &scene->others[i], &scene->others[i], 1, false, address);
    }
    outbox_clear(&scene->out);
}

/* Run while members `first` to `last` keep talking. */
static void run_beside(struct scene *scene, uint64_t seconds, uint8_t first, uint8_t last)
{
    for (uint64_t tenths = 10 * seconds; tenths > 0; tenths--) {
        for (uint8_t i = first; i <= last; i++) {
            membership_on_heard(scene->membership, scene->others[i].id, scene->now_ns);
        }
        run(scene, scene->now_ns + 100 * NS_PER_MS, NULL, NULL);
    }
}

static struct membership_counts counts_of(const struct scene *scene)
{
    struct membership_counts counts;

    membership_counts(scene->membership, &counts);
    return counts;
}

/* Whoever has a link that speaks is not impressed by any number of accusers: it tells the accused,
 * and nobody else. */
static void words_do_not_kill_a_linked_member(void **state)
{
    struct scene scene;
    struct message message;

    (void)state;
    scene_of(&scene, 10);
    for (uint8_t i = 1; i < 10; i++) {
        accuse(&scene, &scene.others[i], &scene.others[i], &scene.others[0], 1);
    }
    assert_true(said(&scene, &scene.others[0], MESSAGE_ACCUSE, &message));
    assert_int_equal(message.as.accuse.accusations_bytes, ACCUSATION_BYTES);
    for (uint8_t i = 1; i < 10; i++) {
        assert_false(said(&scene, &scene.others[i], MESSAGE_ACCUSE, &message));
    }
    run_beside(&scene, 300, 0, 9);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_ALIVE);
    assert_int_equal(counts_of(&scene).suspected, 0);
    scene_destroy(&scene);
}

/* Accused ourselves we sign a higher incarnation at once, distrust ourselves a little, and however
 * often we are accused, rise no more than once in ten seconds. */
static void the_accused_refutes(void **state)
{
    struct scene scene;
    struct message message;
    struct member_record record;

    (void)state;
    scene_of(&scene, 4);
    accuse(&scene, &scene.others[1], &scene.others[2], &scene.self, 9); /* an old story */
    assert_int_equal(membership_incarnation(scene.membership), 10);
    accuse(&scene, &scene.others[1], &scene.others[2], &scene.self, 10);
    assert_int_equal(membership_incarnation(scene.membership), 11);
    assert_int_equal(counts_of(&scene).health, 1);
    run_beside(&scene, 1, 0, 3);
    accuse(&scene, &scene.others[1], &scene.others[3], &scene.self, 11);
    assert_int_equal(membership_incarnation(scene.membership), 11); /* not yet */
    outbox_clear(&scene.out);
    run_beside(&scene, 10, 0, 3);
    assert_int_equal(membership_incarnation(scene.membership), 12);
    assert_int_equal(counts_of(&scene).refuted, 2);
    /* and whoever links with us hears it first */
    outbox_clear(&scene.out);
    link_up(&scene, &scene.others[5], "");
    assert_true(said(&scene, &scene.others[5], MESSAGE_GOSSIP, &message));
    assert_int_equal(record_open(message.as.gossip.updates[0].bytes,
                                 message.as.gossip.updates[0].bytes_count, scene.run_id, &record),
                     RC_OK);
    assert_int_equal(record.incarnation, 12);
    scene_destroy(&scene);
}

/* One member that accuses us of everything we sign, for minutes, makes us rise and hardly doubt
 * ourselves; whoever forges or is unknown not even that. */
static void one_accuser_does_not_ruin_our_health(void **state)
{
    struct scene scene;
    uint8_t bytes[ACCUSATION_BYTES];
    uint64_t before;

    (void)state;
    scene_of(&scene, 4);
    accuse(&scene, &scene.others[1], &scene.others[50], &scene.self, 10);
    accuse_as(&scene, &scene.others[2], &scene.self, 10, bytes);
    bytes[ACCUSATION_BYTES - 1] ^= 1;
    assert_int_equal(say(&scene, &scene.others[1], bytes), RC_AUTH);
    accuse_as(&scene, &scene.others[2], &scene.others[3], 1, bytes);
    bytes[ACCUSATION_BYTES - 1] ^= 1; /* nor is a forgery passed on to whom it accuses */
    assert_int_equal(say(&scene, &scene.others[1], bytes), RC_AUTH);
    assert_int_equal(membership_incarnation(scene.membership), 10);
    assert_int_equal(counts_of(&scene).health, 0);
    for (uint32_t second = 0; second < 120; second++) {
        before = membership_incarnation(scene.membership);
        accuse(&scene, &scene.others[1], &scene.others[1], &scene.self, before);
        run_beside(&scene, 1, 0, 3);
        assert_true(counts_of(&scene).health <= 1);
    }
    assert_in_range(membership_incarnation(scene.membership), 11, 10 + 13);
    scene_destroy(&scene);
}

/* A member we never met that rises without end: a few of its records are passed on. */
static void a_rising_stranger_is_damped(void **state)
{
    struct scene scene;
    struct member_view view;

    (void)state;
    scene_of(&scene, 2);
    for (uint64_t i = 1; i <= 100; i++) {
        tell(&scene, &scene.others[0], &scene.others[60], i, false, "s.example:1");
    }
    assert_true(find(&scene, &scene.others[60], &view));
    assert_in_range(view.incarnation, 3, 8);
    run_beside(&scene, 30, 0, 1);
    tell(&scene, &scene.others[0], &scene.others[60], 200, false, "s.example:1");
    assert_true(find(&scene, &scene.others[60], &view));
    assert_int_equal(view.incarnation, 200);
    scene_destroy(&scene);
}

/* However often it is pinged, a member is told news at the rhythm of an honest one. */
static void a_flood_of_pings_does_not_eat_the_news(void **state)
{
    struct scene scene;
    struct message ping = {.type = MESSAGE_PING}, ack;
    uint32_t told = 0;

    (void)state;
    scene_of(&scene, 4);
    for (uint64_t i = 1; i <= 50; i++) {
        ping.as.ping.seq = i;
        outbox_clear(&scene.out);
        assert_int_equal(membership_on_message(scene.membership, scene.others[1].id, &ping,
                                               scene.now_ns, &scene.out),
                         RC_OK);
        assert_true(said(&scene, &scene.others[1], MESSAGE_ACK, &ack));
        assert_int_equal(ack.as.ping.seq, i);
        told += ack.as.ping.updates_count > 0;
    }
    assert_int_equal(told, 1);
    scene_destroy(&scene);
}

/* A member we are not linked with is suspected when accused, given up when three agree and it says
 * nothing, and forgiven when it signs a newer record. `enough`: how many accuse. */
static void hearsay(uint8_t accusers, bool refutes, enum member_state end)
{
    struct scene scene;
    struct other *subject;

    scene_of(&scene, 12);
    subject = &scene.others[50];
    tell(&scene, &scene.others[0], subject, 3, false, "s.example:1");
    for (uint8_t i = 0; i < accusers; i++) {
        accuse(&scene, &scene.others[11], &scene.others[i], subject, 3);
        accuse(&scene, &scene.others[10], &scene.others[i], subject, 3); /* twice is once */
    }
    assert_int_equal(state_of(&scene, subject), MEMBER_SUSPECT);
    run_beside(&scene, 2, 0, 11);
    if (refutes) tell(&scene, &scene.others[5], subject, 4, false, "s.example:1");
    run_beside(&scene, 14, 0, 11); /* six periods by the logarithm of 14 members, and the dials */
    assert_int_equal(state_of(&scene, subject), end);
    scene_destroy(&scene);
}

static void hearsay_kills_by_three_and_not_by_less(void **state)
{
    (void)state;
    hearsay(3, false, MEMBER_DEAD);
    hearsay(1, false, MEMBER_SUSPECT);
    hearsay(3, true, MEMBER_KNOWN);
}

/* Accusations by unknown, minted or gone members, of other lives, and forged ones count nothing. */
static void not_everyone_is_a_witness(void **state)
{
    struct scene scene;
    struct other *subject, ghost;
    uint8_t bytes[ACCUSATION_BYTES];

    (void)state;
    scene_of(&scene, 6);
    subject = &scene.others[50];
    tell(&scene, &scene.others[0], subject, 3, false, "s.example:1");
    tell(&scene, &scene.others[0], &scene.others[60], 1, false, "m.example:1");
    accuse(&scene, &scene.others[0], &scene.others[60], subject, 3); /* minted: nobody met it */
    accuse(&scene, &scene.others[0], &scene.others[70], subject, 3); /* unknown */
    accuse(&scene, &scene.others[0], &scene.others[1], subject, 2);  /* an older record */
    accuse(&scene, &scene.others[0], &scene.others[1], subject, 4);  /* one nobody has seen */
    accuse(&scene, &scene.others[0], subject, subject, 3);           /* itself */
    ghost = *subject;
    ghost.boot.bytes[3] = 9;
    accuse(&scene, &scene.others[0], &scene.others[1], &ghost, 3); /* another life */
    tell(&scene, &scene.others[0], &scene.others[2], 2, true, "o2.example:1");
    accuse(&scene, &scene.others[0], &scene.others[2], subject, 3); /* it has left */
    assert_int_equal(state_of(&scene, subject), MEMBER_KNOWN);
    accuse_as(&scene, &scene.others[1], subject, 3, bytes);
    bytes[ACCUSATION_BYTES - 1] ^= 1;
    assert_int_equal(say(&scene, &scene.others[0], bytes), RC_AUTH);
    assert_int_equal(state_of(&scene, subject), MEMBER_KNOWN);
    scene_destroy(&scene);
}

/* A silent member is asked for through three others. If one reaches it, it is not suspected, only
 * the link is given up; if none does, we accuse it in signed words. */
static void a_silent_member_is_asked_for(bool is_reached)
{
    struct scene scene;
    struct message message;
    struct other *silent;
    uint32_t asked = 0;
    uint64_t until_ns;

    scene_of(&scene, 8);
    silent = &scene.others[0];
    until_ns = scene.now_ns + 8 * NS_PER_S;
    while (scene.now_ns < until_ns) {
        run_beside(&scene, 0, 1, 7);
        for (uint8_t i = 1; i < 8; i++) {
            struct message answer = {.type = is_reached ? MESSAGE_ACK : MESSAGE_NACK};

            membership_on_heard(scene.membership, scene.others[i].id, scene.now_ns);
            if (!said(&scene, &scene.others[i], MESSAGE_PING_REQ, &message)) continue;
            assert_true(peer_id_is_equal(message.as.ping_req.target, silent->id));
            asked++;
            if (is_reached) {
                answer.as.ping.seq = message.as.ping_req.seq;
            } else {
                answer.as.nack.seq = message.as.ping_req.seq;
            }
            assert_int_equal(membership_on_message(scene.membership, scene.others[i].id, &answer,
                                                   scene.now_ns, &scene.out),
                             RC_OK);
        }
        outbox_clear(&scene.out);
        run(&scene, membership_next_ns(scene.membership), NULL, NULL);
    }
    assert_true(asked >= 6);
    assert_int_equal(counts_of(&scene).accused, is_reached ? 0 : 1);
    assert_int_equal(state_of(&scene, silent), is_reached ? MEMBER_KNOWN : MEMBER_SUSPECT);
    assert_int_equal(counts_of(&scene).health, 0); /* they did answer us */
    scene_destroy(&scene);
}

static void silence_is_checked_through_others(void **state)
{
    (void)state;
    a_silent_member_is_asked_for(true);
    a_silent_member_is_asked_for(false);
}

/* Asked for another we probe it, and pass on its answer or that there was none. */
static void a_proxy_says_what_it_found(void **state)
{
    struct scene scene;
    struct message request = {.type = MESSAGE_PING_REQ}, message;

    (void)state;
    scene_of(&scene, 3);
    request.as.ping_req.seq = 5;
    request.as.ping_req.target = scene.others[1].id;
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &request,
                                           scene.now_ns, &scene.out),
                     RC_FORMAT); /* such a number is a PING's */
    request.as.ping_req.seq = UINT64_C(1) << 63 | 5;
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &request,
                                           scene.now_ns, &scene.out),
                     RC_OK);
    assert_true(said(&scene, &scene.others[1], MESSAGE_PING, &message));
    message.type = MESSAGE_ACK;
    message.as.ping.updates_count = 0;
    outbox_clear(&scene.out);
    assert_int_equal(membership_on_message(scene.membership, scene.others[1].id, &message,
                                           scene.now_ns, &scene.out),
                     RC_OK);
    assert_true(said(&scene, &scene.others[0], MESSAGE_ACK, &message));
    assert_true(message.as.ping.seq == request.as.ping_req.seq);
    outbox_clear(&scene.out);
    request.as.ping_req.target = scene.others[9].id; /* nobody we know */
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &request,
                                           scene.now_ns, &scene.out),
                     RC_OK);
    assert_true(said(&scene, &scene.others[0], MESSAGE_NACK, &message));
    scene_destroy(&scene);
}

/* One member tells of ten thousand it made up: a quarter of the book at most, and those who were
 * met stay. */
static void invented_members_do_not_fill_the_book(void **state)
{
    struct scene scene;
    struct membership *m;
    enum { INVENTED = 3000, ROOM = 1024 };

    (void)state;
    scene_of(&scene, 1);
    scene.options.members_max = ROOM;
    m = membership_create(&scene.options);
    assert_non_null(m);
    membership_destroy(scene.membership);
    scene.membership = m;
    for (uint8_t i = 0; i < 20; i++) {
        link_up(&scene, &scene.others[i], "");
    }
    for (uint32_t i = 0; i < INVENTED; i++) {
        uint8_t seed[SECRET_BYTES] = {(uint8_t)i, (uint8_t)(i >> 8), 99};
        struct other minted;

        identity_from_seed(seed, &minted.identity);
        minted.id = identity_peer_id(minted.identity.public_key);
        minted.boot = scene.self.boot;
        tell(&scene, &scene.others[0], &minted, 1, false, "10.0.0.1:1");
        outbox_clear(&scene.out);
    }
    assert_true(membership_count(scene.membership) <= 20 + ROOM / 4);
    for (uint8_t i = 0; i < 20; i++) {
        assert_int_equal(state_of(&scene, &scene.others[i]), MEMBER_ALIVE);
    }
    scene_destroy(&scene);
}

/* A pruned link is no death: both sides know each other as before, and wait before dialling. */
static void a_pruned_link_is_no_death(void **state)
{
    struct scene scene;
    struct message message = {.type = MESSAGE_PRUNE};
    uint32_t dials = 0, hangups = 0;

    (void)state;
    scene_of(&scene, 2);
    message.as.prune.wait_ms = 20000;
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &message,
                                           scene.now_ns, &scene.out),
                     RC_OK);
    membership_on_link_lost(scene.membership, scene.others[0].id, scene.now_ns);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_KNOWN);
    for (int i = 0; i < 19; i++) {
        membership_on_heard(scene.membership, scene.others[1].id, scene.now_ns);
        run(&scene, scene.now_ns + NS_PER_S, &dials, &hangups);
    }
    assert_int_equal(dials, 0);
    assert_int_equal(counts_of(&scene).suspected, 0);
    membership_on_heard(scene.membership, scene.others[1].id, scene.now_ns);
    run(&scene, scene.now_ns + 3 * NS_PER_S, &dials, &hangups);
    assert_true(dials >= 1);
    scene_destroy(&scene);
}

/* Forged accusations are refused, and cost so many checks a second and no more; then others' words
 * count as before. */
static void forged_words_cost_a_bounded_number_of_checks(void **state)
{
    enum { FORGED = 1000, CHECKS_MOST = 256 };
    struct scene scene;
    uint8_t bytes[ACCUSATION_BYTES];
    uint32_t checked = 0;

    (void)state;
    scene_of(&scene, 4);
    accuse_as(&scene, &scene.others[2], &scene.self, 10, bytes);
    for (uint32_t i = 0; i < FORGED; i++) {
        store_le32(bytes + ACCUSATION_BYTES - 4, i); /* no two alike */
        checked += say(&scene, &scene.others[1], bytes) == RC_AUTH;
    }
    assert_in_range(checked, 1, CHECKS_MOST);
    assert_int_equal(membership_incarnation(scene.membership), 10);
    accuse(&scene, &scene.others[3], &scene.others[2], &scene.self, 10); /* another link */
    assert_int_equal(membership_incarnation(scene.membership), 11);
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_words_cost_a_bounded_number_of_checks),
        cmocka_unit_test(words_do_not_kill_a_linked_member),
        cmocka_unit_test(the_accused_refutes),
        cmocka_unit_test(one_accuser_does_not_ruin_our_health),
        cmocka_unit_test(a_rising_stranger_is_damped),
        cmocka_unit_test(a_flood_of_pings_does_not_eat_the_news),
        cmocka_unit_test(hearsay_kills_by_three_and_not_by_less),
        cmocka_unit_test(not_everyone_is_a_witness),
        cmocka_unit_test(silence_is_checked_through_others),
        cmocka_unit_test(a_proxy_says_what_it_found),
        cmocka_unit_test(invented_members_do_not_fill_the_book),
        cmocka_unit_test(a_pruned_link_is_no_death),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

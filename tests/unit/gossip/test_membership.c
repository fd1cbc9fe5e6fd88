/* One membership, its messages made by hand. Whole swarms are in tests/property/test_membership.c.
 */
#include "tests/unit/gossip/membership_scene.h"
#include "tests/signed.h"

/* A new link is greeted with our own record and the question for the other's book. */
static void a_link_is_greeted_with_our_record_and_a_question(void **state)
{
    struct scene scene;
    struct message message;
    struct member_record record = {0};
    struct member_view view = {0};

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "zero.example:1");
    assert_true(said(&scene, &scene.others[0], MESSAGE_SYNC_REQ, &message));
    assert_int_equal(message.as.sync_req.page, 0);
    assert_true(said(&scene, &scene.others[0], MESSAGE_GOSSIP, &message));
    assert_int_equal(record_open(message.as.gossip.updates[0].bytes,
                                 message.as.gossip.updates[0].bytes_count, scene.run_id, &record),
                     RC_OK);
    assert_int_equal(record.incarnation, 10);
    assert_string_equal(record.addresses[0], "self.example:7000");
    assert_int_equal(membership_list(scene.membership, &view, 1), 1);
    assert_int_equal(view.state, MEMBER_ALIVE);
    assert_true(view.is_linked);
    assert_string_equal(view.address, "zero.example:1");
    scene_destroy(&scene);
}

/* An address of ours that nobody could read does not spoil the record. */
static void unreadable_addresses_of_ours_are_left_out(void **state)
{
    struct scene scene;
    struct membership *odd;

    (void)state;
    scene_create(&scene, 64);
    snprintf(scene.options.addresses[0], ADDRESS_BYTES_MAX, "127.0.0.1:0");
    for (uint32_t i = 1; i < RECORD_ADDRESSES_MAX; i++) { /* and four long ones do not fit */
        memset(scene.options.addresses[i], 'a', ADDRESS_BYTES_MAX - 4);
        memcpy(scene.options.addresses[i] + ADDRESS_BYTES_MAX - 4, ":99", 4);
    }
    scene.options.addresses_count = RECORD_ADDRESSES_MAX;
    odd = membership_create(&scene.options);
    assert_non_null(odd);
    membership_destroy(odd);
    scene_destroy(&scene);
}

/* A PING is answered by its number; an ACK measures the round trip. */
static void pings_are_answered_and_measured(void **state)
{
    struct scene scene;
    struct message message = {.type = MESSAGE_PING}, ping;
    struct member_view view = {0};

    (void)state;
    scene_create(&scene, 64);
    message.as.ping.seq = 77;
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &message,
                                           scene.now_ns, &scene.out),
                     RC_NOT_FOUND);
    link_up(&scene, &scene.others[0], "");
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &message,
                                           scene.now_ns, &scene.out),
                     RC_OK);
    assert_true(said(&scene, &scene.others[0], MESSAGE_ACK, &message));
    assert_int_equal(message.as.ping.seq, 77);
    while (!said(&scene, &scene.others[0], MESSAGE_PING, &ping)) {
        run(&scene, membership_next_ns(scene.membership), NULL, NULL);
    }
    scene.now_ns += 40 * NS_PER_MS;
    message = (struct message){.type = MESSAGE_ACK};
    message.as.ping.seq = ping.as.ping.seq + 1; /* never asked */
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &message,
                                           scene.now_ns, &scene.out),
                     RC_OK);
    assert_true(find(&scene, &scene.others[0], &view));
    assert_int_equal(view.rtt_ns, 0);
    for (int twice = 0; twice < 2; twice++) { /* the second one is a replay */
        message.as.ping.seq = ping.as.ping.seq;
        assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &message,
                                               scene.now_ns + 10 * (uint64_t)twice * NS_PER_S,
                                               &scene.out),
                         RC_OK);
        assert_true(find(&scene, &scene.others[0], &view));
        assert_int_equal(view.rtt_ns, 40 * NS_PER_MS);
    }
    message.type = MESSAGE_START;
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &message,
                                           scene.now_ns, &scene.out),
                     RC_UNSUPPORTED);
    scene_destroy(&scene);
}

/* Records are believed for their signature: a changed byte, another swarm's, or rubbish is refused
 * and changes nothing. */
static void forged_records_are_refused(void **state)
{
    struct scene scene;
    struct scene_record record;
    struct digest run_id;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "");
    sign(&scene, &scene.others[1], 1, false, "one.example:1", &record);
    record.bytes[record.count / 2] ^= 1;
    assert_int_not_equal(gossip(&scene, &scene.others[0], &record), RC_OK);
    run_id = scene.run_id;
    scene.run_id = hash_of("other", 5);
    sign(&scene, &scene.others[1], 1, false, "one.example:1", &record);
    scene.run_id = run_id;
    assert_int_equal(gossip(&scene, &scene.others[0], &record), RC_AUTH);
    memset(record.bytes, 0xc1, sizeof(record.bytes));
    assert_int_equal(gossip(&scene, &scene.others[0], &record), RC_FORMAT);
    assert_int_equal(membership_count(scene.membership), 1);
    scene_destroy(&scene);
}

/* What one member says of another is passed on and dialled; newer replaces older, never the other
 * way; a farewell ends it. */
static void newer_records_replace_older_ones(void **state)
{
    struct scene scene;
    struct member_view view = {0};

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "");
    tell(&scene, &scene.others[0], &scene.others[1], 5, false, "new.example:1");
    assert_int_equal(state_of(&scene, &scene.others[1]), MEMBER_KNOWN);
    tell(&scene, &scene.others[0], &scene.others[1], 4, false, "old.example:1");
    assert_true(find(&scene, &scene.others[1], &view));
    assert_string_equal(view.address, "new.example:1");
    tell(&scene, &scene.others[0], &scene.others[1], 5 + (1 << 21), false, "far.example:1");
    assert_true(find(&scene, &scene.others[1], &view));
    assert_int_equal(view.incarnation, 5); /* too far a jump, from a third party */
    tell(&scene, &scene.others[0], &scene.others[1], 6, true, "new.example:1");
    assert_int_equal(state_of(&scene, &scene.others[1]), MEMBER_LEFT);
    tell(&scene, &scene.others[0], &scene.others[1], 7, false, "new.example:1");
    assert_int_equal(state_of(&scene, &scene.others[1]), MEMBER_KNOWN); /* it is back */
    tell(&scene, &scene.others[0], &scene.others[2], 7, true, "gone.example:1");
    assert_false(find(&scene, &scene.others[2], &view)); /* who cares */
    link_up(&scene, &scene.others[1], "");
    tell(&scene, &scene.others[1], &scene.others[1], 5 + (1 << 21), false, "far.example:1");
    assert_true(find(&scene, &scene.others[1], &view));
    assert_int_equal(view.incarnation, 5 + (1 << 21)); /* its own word counts */
    tell(&scene, &scene.others[1], &scene.others[1], 6, false, "older.example:1");
    assert_true(find(&scene, &scene.others[1], &view));
    assert_int_equal(view.incarnation, 5 + (1 << 21)); /* an older one of its own does not */
    assert_string_equal(view.address, "far.example:1");
    scene_destroy(&scene);
}

/* An old record of ourselves that outranks us is outbid; one that is absurd is not. */
static void we_outbid_our_own_ghost(void **state)
{
    struct scene scene;
    struct other ghost;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "");
    ghost = scene.self;
    ghost.boot.bytes[5] = 9;
    tell(&scene, &scene.others[0], &ghost, 3, true, "self.example:7000");
    assert_int_equal(membership_incarnation(scene.membership), 10);
    tell(&scene, &scene.others[0], &ghost, 10, false, "self.example:7000");
    assert_int_equal(membership_incarnation(scene.membership), 11);
    tell(&scene, &scene.others[0], &ghost, 500, true, "self.example:7000");
    assert_int_equal(membership_incarnation(scene.membership), 501);
    tell(&scene, &scene.others[0], &ghost, UINT64_MAX, true, "self.example:7000");
    assert_int_equal(membership_incarnation(scene.membership), 501);
    assert_int_equal(membership_count(scene.membership), 1); /* we are not in our own book */
    scene_destroy(&scene);
}

/* A silent link is suspected, hung up once, redialled, and its peer given up when that fails. */
static void silence_leads_to_suspicion_and_death(void **state)
{
    struct scene scene;
    struct membership_counts counts;
    uint32_t dials = 0, hangups = 0;
    uint64_t begun_ns;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "zero.example:1");
    begun_ns = scene.now_ns;
    run(&scene, begun_ns + 3 * NS_PER_S, &dials, &hangups);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_ALIVE);
    run(&scene, begun_ns + 5 * NS_PER_S, &dials, &hangups);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_SUSPECT);
    assert_int_equal(hangups, 1);
    membership_counts(scene.membership, &counts);
    assert_int_equal(counts.suspected, 1);
    membership_on_link_lost(scene.membership, scene.others[0].id, scene.now_ns); /* again: fine */
    run(&scene, begun_ns + 15 * NS_PER_S, &dials, &hangups);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_DEAD);
    assert_true(dials >= 2);
    assert_int_equal(hangups, 1);
    link_up(&scene, &scene.others[0], "");
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_ALIVE);
    scene_destroy(&scene);
}

/* Words in the last moment save a suspect whose link is not hung up yet. */
static void a_suspect_that_speaks_is_alive(void **state)
{
    struct scene scene;
    struct peer_id silent;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "");
    while (state_of(&scene, &scene.others[0]) == MEMBER_ALIVE) {
        scene.now_ns = membership_next_ns(scene.membership);
        membership_tick(scene.membership, scene.now_ns, &scene.out);
    }
    membership_on_heard(scene.membership, scene.others[0].id, scene.now_ns);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_ALIVE);
    assert_false(membership_next_hangup(scene.membership, &silent));
    scene_destroy(&scene);
}

/* A peer that was itself not running for a while blames nobody for the silence. */
static void our_own_sleep_is_nobodys_silence(void **state)
{
    struct scene scene;
    struct peer_id silent;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "");
    run(&scene, scene.now_ns + 2 * NS_PER_S, NULL, NULL);
    membership_on_heard(scene.membership, scene.others[0].id, scene.now_ns);
    scene.now_ns += 60 * NS_PER_S;
    membership_tick(scene.membership, scene.now_ns, &scene.out);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_ALIVE);
    assert_false(membership_next_hangup(scene.membership, &silent));
    scene_destroy(&scene);
}

/* Addresses that are ours, twice the same or too many are not dialled; what answers as ourselves is
 * dialled once, what answers as a linked peer not while it is linked. */
static void pointless_addresses_are_not_dialled_for_ever(void **state)
{
    struct scene scene;
    char address[ADDRESS_BYTES_MAX];

    (void)state;
    scene_create(&scene, 64);
    membership_add_bootstrap(scene.membership, "self.example:7000");
    assert_false(membership_next_dial(scene.membership, scene.now_ns, address));
    membership_add_bootstrap(scene.membership, "me.example:7000");
    membership_add_bootstrap(scene.membership, "me.example:7000");
    assert_true(membership_next_dial(scene.membership, scene.now_ns, address));
    assert_string_equal(address, "me.example:7000");
    assert_false(membership_next_dial(scene.membership, scene.now_ns, address));
    membership_on_link_duplicate(scene.membership, address, scene.self.id, scene.now_ns);
    for (int i = 0; i < 1000; i++) {
        scene.now_ns += NS_PER_S;
        assert_false(membership_next_dial(scene.membership, scene.now_ns, address));
    }
    link_up(&scene, &scene.others[0], "");
    membership_add_bootstrap(scene.membership, "zero.example:1");
    assert_true(membership_next_dial(scene.membership, scene.now_ns, address));
    membership_on_link_duplicate(scene.membership, address, scene.others[0].id, scene.now_ns);
    for (int i = 0; i < 1000; i++) {
        scene.now_ns += NS_PER_S;
        membership_on_heard(scene.membership, scene.others[0].id, scene.now_ns);
        assert_false(membership_next_dial(scene.membership, scene.now_ns, address));
    }
    for (int i = 0; i < MEMBERSHIP_BOOTSTRAPS_MAX + 10; i++) {
        snprintf(address, sizeof(address), "b%d.example:1", i);
        membership_add_bootstrap(scene.membership, address);
    }
    scene_destroy(&scene);
}

/* While alone, a bootstrap address is tried soon and then at least every 2.5 s, for ever. */
static void a_lonely_peer_keeps_knocking(void **state)
{
    struct scene scene;
    uint32_t dials = 0;
    uint64_t begun_ns;

    (void)state;
    scene_create(&scene, 64);
    begun_ns = scene.now_ns;
    membership_add_bootstrap(scene.membership, "dead.example:1");
    run(&scene, begun_ns + NS_PER_S, &dials, NULL);
    assert_true(dials >= 3 && dials <= 6);
    dials = 0;
    run(&scene, begun_ns + 1001 * NS_PER_S, &dials, NULL);
    assert_true(dials >= 400 && dials <= 700);
    scene_destroy(&scene);
}

/* A member may put any address into its record; we do not become its hammer. */
static void dials_are_bounded_in_number_and_rate(void **state)
{
    struct scene scene;
    char address[ADDRESS_BYTES_MAX];
    uint32_t dials = 0;

    (void)state;
    scene_create(&scene, OTHERS);
    link_up(&scene, &scene.others[0], "");
    for (uint8_t i = 1; i < OTHERS; i++) {
        snprintf(address, sizeof(address), "192.0.2.%d:1", i);
        tell(&scene, &scene.others[0], &scene.others[i], 1, false, address);
    }
    scene.now_ns += NS_PER_S;
    while (membership_next_dial(scene.membership, scene.now_ns, address)) {
        dials++;
    }
    assert_true(dials >= 4 && dials <= 32); /* in the air at once */
    dials = 0;
    membership_on_heard(scene.membership, scene.others[0].id, scene.now_ns);
    run(&scene, scene.now_ns + NS_PER_S, &dials, NULL);
    assert_true(dials <= 64 + 33);
    scene_destroy(&scene);
}

/* The book is bounded: strangers cannot push out the living, but the dead make room. */
static void a_full_book_keeps_the_living(void **state)
{
    struct scene scene;
    struct member_view view = {0};

    (void)state;
    scene_create(&scene, 3);
    link_up(&scene, &scene.others[0], "");
    for (uint8_t i = 1; i < 6; i++) {
        tell(&scene, &scene.others[0], &scene.others[i], 1, false, "x.example:1");
    }
    assert_int_equal(membership_count(scene.membership), 3);
    assert_true(find(&scene, &scene.others[2], &view));
    tell(&scene, &scene.others[0], &scene.others[1], 2, true, "x.example:1");
    tell(&scene, &scene.others[0], &scene.others[5], 1, false, "x.example:1");
    assert_true(find(&scene, &scene.others[5], &view));
    assert_false(find(&scene, &scene.others[1], &view));
    assert_true(find(&scene, &scene.others[0], &view));
    link_up(&scene, &scene.self, ""); /* a copy of our key is no member */
    assert_false(find(&scene, &scene.self, &view));
    link_up(&scene, &scene.others[9], ""); /* who is met takes the place of who is rumoured */
    assert_true(find(&scene, &scene.others[9], &view));
    link_up(&scene, &scene.others[8], "");
    link_up(&scene, &scene.others[7], ""); /* a link without room: nothing breaks */
    assert_false(find(&scene, &scene.others[7], &view));
    membership_on_heard(scene.membership, scene.others[7].id, scene.now_ns);
    membership_on_link_lost(scene.membership, scene.others[7].id, scene.now_ns);
    for (uint8_t i = 7; i < 10; i++) {
        assert_true(i == 7 || find(&scene, &scene.others[i], &view));
    }
    scene_destroy(&scene);
}

/* The book is given away page by page and asked for likewise; a page that cannot be is refused. */
static void the_book_travels_in_pages(void **state)
{
    struct scene scene;
    struct message message = {.type = MESSAGE_SYNC_REQ}, page;
    uint32_t records = 0;

    (void)state;
    scene_create(&scene, OTHERS);
    link_up(&scene, &scene.others[0], "");
    for (uint8_t i = 1; i < OTHERS; i++) {
        tell(&scene, &scene.others[0], &scene.others[i], 1, false, "x.example:1");
    }
    for (uint32_t i = 0; i < 3; i++) {
        bool is_there;

        outbox_clear(&scene.out);
        message.as.sync_req.page = i;
        assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &message,
                                               scene.now_ns, &scene.out),
                         RC_OK);
        is_there = said(&scene, &scene.others[0], MESSAGE_SYNC, &page);
        assert_int_equal(is_there, i < 2);
        if (!is_there) break;
        assert_int_equal(page.as.sync.pages, 2);
        records += page.as.sync.records_count;
    }
    assert_int_equal(records, OTHERS); /* ours and 99 others' */
    outbox_clear(&scene.out);
    page = (struct message){.type = MESSAGE_SYNC};
    page.as.sync.pages = 2;
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &page,
                                           scene.now_ns, &scene.out),
                     RC_OK);
    assert_true(said(&scene, &scene.others[0], MESSAGE_SYNC_REQ, &message));
    assert_int_equal(message.as.sync_req.page, 1);
    page.as.sync.page = 2;
    assert_int_equal(membership_on_message(scene.membership, scene.others[0].id, &page,
                                           scene.now_ns, &scene.out),
                     RC_FORMAT);
    scene_destroy(&scene);
}

/* One link may not have us serve pages without end. */
static void pages_are_served_at_a_bounded_rate(void **state)
{
    struct scene scene;
    struct message message = {.type = MESSAGE_SYNC_REQ};
    uint32_t served = 0;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "");
    while (membership_on_message(scene.membership, scene.others[0].id, &message, scene.now_ns,
                                 &scene.out) == RC_OK) {
        assert_true(++served < 1000);
    }
    assert_true(served >= MEMBERS_MAX / SYNC_RECORDS_MAX);
    scene_destroy(&scene);
}

/* Goodbye: the member has left, its link's end changes nothing, and it is not dialled. */
static void goodbye_is_final_until_a_new_link(void **state)
{
    struct scene scene;
    uint32_t dials = 0;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "zero.example:1");
    membership_on_goodbye(scene.membership, scene.others[0].id, scene.now_ns);
    membership_on_goodbye(scene.membership, scene.others[1].id, scene.now_ns); /* unknown */
    membership_on_link_lost(scene.membership, scene.others[0].id, scene.now_ns);
    run(&scene, scene.now_ns + 500 * NS_PER_S, &dials, NULL);
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_LEFT);
    assert_int_equal(dials, 0);
    run(&scene, scene.now_ns + 25 * 3600 * NS_PER_S, &dials, NULL);
    assert_int_equal(membership_count(scene.membership), 0); /* forgotten after a day */
    scene_destroy(&scene);
}

/* A member whose farewell came by others but whose link stays open is hung up. */
static void those_who_left_do_not_keep_their_link(void **state)
{
    struct scene scene;
    uint32_t hangups = 0;

    (void)state;
    scene_create(&scene, 64);
    link_up(&scene, &scene.others[0], "");
    tell(&scene, &scene.others[0], &scene.others[0], 2, true, "x.example:1");
    assert_int_equal(state_of(&scene, &scene.others[0]), MEMBER_LEFT);
    run(&scene, scene.now_ns + 10 * NS_PER_S, NULL, &hangups);
    assert_int_equal(hangups, 1);
    scene_destroy(&scene);
}

/* Our own farewell is signed, outranks us, and nothing happens afterwards. */
static void after_our_farewell_nothing_happens(void **state)
{
    struct scene scene;
    struct message message;
    struct member_record record = {0};
    char address[ADDRESS_BYTES_MAX];

    (void)state;
    scene_create(&scene, 64);
    membership_add_bootstrap(scene.membership, "b.example:1");
    link_up(&scene, &scene.others[0], "");
    outbox_clear(&scene.out);
    membership_farewell(scene.membership, &scene.out);
    assert_true(said(&scene, &scene.others[0], MESSAGE_GOSSIP, &message));
    assert_int_equal(record_open(message.as.gossip.updates[0].bytes,
                                 message.as.gossip.updates[0].bytes_count, scene.run_id, &record),
                     RC_OK);
    assert_true(record.has_left);
    assert_int_equal(record.incarnation, 11);
    outbox_clear(&scene.out);
    membership_on_link_lost(scene.membership, scene.others[0].id, scene.now_ns);
    membership_tick(scene.membership, scene.now_ns + 100 * NS_PER_S, &scene.out);
    assert_int_equal(scene.out.count, 0);
    assert_false(membership_next_dial(scene.membership, scene.now_ns + 100 * NS_PER_S, address));
    assert_true(membership_next_ns(scene.membership) == UINT64_MAX);
    scene_destroy(&scene);
}

static void tell_site(struct scene *scene, const struct other *about, uint64_t incarnation,
                      const char *site)
{
    struct member_record record = {.boot = about->boot, .incarnation = incarnation};
    struct scene_record bytes;

    memcpy(record.public_key, about->identity.public_key, PUBLIC_KEY_BYTES);
    memcpy(record.site, site, strlen(site));
    assert_int_equal(record_sign(&record, &about->identity, scene->run_id, bytes.bytes,
                                 sizeof(bytes.bytes), &bytes.count),
                     RC_OK);
    assert_int_equal(gossip(scene, &scene->others[0], &bytes), RC_OK);
}

/* Who is near says the same site as we do, in its newest record; of the unknown nothing is known,
 * and those who say nothing are near each other. */
static void members_are_near_as_their_records_say(void **state)
{
    struct scene scene;
    struct message message;
    struct member_record record = {0};
    struct member_view view = {0};

    (void)state;
    scene_create(&scene, 64);
    membership_destroy(scene.membership);
    memcpy(scene.options.site, "berlin", 7);
    scene.membership = membership_create(&scene.options);
    assert_non_null(scene.membership);
    link_up(&scene, &scene.others[0], "");
    assert_true(said(&scene, &scene.others[0], MESSAGE_GOSSIP, &message));
    assert_int_equal(record_open(message.as.gossip.updates[0].bytes,
                                 message.as.gossip.updates[0].bytes_count, scene.run_id, &record),
                     RC_OK);
    assert_string_equal(record.site, "berlin");
    assert_true(membership_is_near(scene.membership, scene.self.id));
    assert_false(membership_is_near(scene.membership, scene.others[0].id)); /* no record yet */
    assert_false(membership_is_near(scene.membership, scene.others[1].id));
    tell_site(&scene, &scene.others[1], 1, "berlin");
    tell_site(&scene, &scene.others[2], 1, "berlin2");
    tell_site(&scene, &scene.others[3], 1, "");
    assert_true(membership_is_near(scene.membership, scene.others[1].id));
    assert_false(membership_is_near(scene.membership, scene.others[2].id));
    assert_false(membership_is_near(scene.membership, scene.others[3].id));
    assert_true(find(&scene, &scene.others[2], &view));
    assert_string_equal(view.site, "berlin2");
    tell_site(&scene, &scene.others[1], 2, "tokyo"); /* it has moved */
    assert_false(membership_is_near(scene.membership, scene.others[1].id));
    scene_destroy(&scene);

    scene_create(&scene, 64); /* we say nothing */
    link_up(&scene, &scene.others[0], "");
    tell_site(&scene, &scene.others[1], 1, "berlin");
    assert_true(membership_is_near(scene.membership, scene.others[0].id));
    assert_false(membership_is_near(scene.membership, scene.others[1].id));
    scene_destroy(&scene);
}

/* Short memory: no membership, or a record less, and no crash. */
static void short_memory_loses_a_record_and_no_more(void **state)
{
    struct scene scene;

    (void)state;
    scene_create(&scene, 64);
    for (uint64_t after = 0; after < 2; after++) {
        mem_fail_after(after);
        assert_null(membership_create(&scene.options));
        mem_fail_after(UINT64_MAX);
    }
    mem_fail_after(0);
    link_up(&scene, &scene.others[0], "");
    mem_fail_after(UINT64_MAX);
    assert_int_equal(membership_count(scene.membership), 0);
    link_up(&scene, &scene.others[0], "");
    mem_fail_after(0);
    tell(&scene, &scene.others[0], &scene.others[1], 1, false, "x.example:1");
    mem_fail_after(UINT64_MAX);
    assert_int_equal(membership_count(scene.membership), 1);
    tell(&scene, &scene.others[0], &scene.others[1], 1, false, "x.example:1");
    assert_int_equal(membership_count(scene.membership), 2);
    membership_destroy(NULL);
    scene_destroy(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_is_greeted_with_our_record_and_a_question),
        cmocka_unit_test(unreadable_addresses_of_ours_are_left_out),
        cmocka_unit_test(pings_are_answered_and_measured),
        cmocka_unit_test(forged_records_are_refused),
        cmocka_unit_test(newer_records_replace_older_ones),
        cmocka_unit_test(we_outbid_our_own_ghost),
        cmocka_unit_test(silence_leads_to_suspicion_and_death),
        cmocka_unit_test(a_suspect_that_speaks_is_alive),
        cmocka_unit_test(our_own_sleep_is_nobodys_silence),
        cmocka_unit_test(pointless_addresses_are_not_dialled_for_ever),
        cmocka_unit_test(a_lonely_peer_keeps_knocking),
        cmocka_unit_test(dials_are_bounded_in_number_and_rate),
        cmocka_unit_test(a_full_book_keeps_the_living),
        cmocka_unit_test(the_book_travels_in_pages),
        cmocka_unit_test(pages_are_served_at_a_bounded_rate),
        cmocka_unit_test(goodbye_is_final_until_a_new_link),
        cmocka_unit_test(those_who_left_do_not_keep_their_link),
        cmocka_unit_test(after_our_farewell_nothing_happens),
        cmocka_unit_test(members_are_near_as_their_records_say),
        cmocka_unit_test(short_memory_loses_a_record_and_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

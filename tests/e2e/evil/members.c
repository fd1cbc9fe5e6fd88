/* Those with the swarm's key: what they send is sealed, and wrong inside. */
#include "tests/e2e/evil/evil.h"

#include "gossip/signed/accusation.h"
#include "gossip/signed/record.h"

#include <arpa/inet.h>
#include <unistd.h>

enum { FLOOD = 200 };

/* ---- records that are wrong in themselves ---- */

/* One bit of a sealed record is another. */
static void flip_a_bit(struct member *member)
{
    uint8_t inner[INNER_HEADER_BYTES + 1] = {MESSAGE_STATUS_REQ}, frame[64];

    inner[INNER_HEADER_BYTES] = 0x80;
    CHECK(secure_seal(member->secure, inner, sizeof inner, NULL, 0, frame) == RC_OK);
    frame[RECORD_HEADER_BYTES + member->acts % sizeof inner] ^= 4;
    (void)evil_write(member->fd, frame, secure_record_bytes(sizeof inner));
}

/* The same sealed record twice: the counter that it was sealed with is over. */
static void set_the_counter_back(struct member *member)
{
    uint8_t inner[INNER_HEADER_BYTES + 1] = {MESSAGE_STATUS_REQ}, frame[64];

    inner[INNER_HEADER_BYTES] = 0x80;
    CHECK(secure_seal(member->secure, inner, sizeof inner, NULL, 0, frame) == RC_OK);
    (void)evil_write(member->fd, frame, secure_record_bytes(sizeof inner));
    (void)evil_write(member->fd, frame, secure_record_bytes(sizeof inner));
}

static void lie_about_epoch(struct member *member)
{
    uint8_t frame[64] = {20, 0, 0, 0, 77};

    (void)evil_write(member->fd, frame, secure_record_bytes(20));
}

static void send_reserved_bits(struct member *member)
{
    uint8_t frame[64] = {16, 0, 0, 0, 0, 1, 2, 3};

    (void)evil_write(member->fd, frame, secure_record_bytes(16));
}

static void send_short_bomb(struct member *member)
{
    (void)member_raw(member, MESSAGE_PING, "\xdd\xff\xff\xff\xff", 5);
}

static void send_long_bomb(struct member *member)
{
    uint8_t body[155];

    for (int i = 0; i < 31; i++) {
        memcpy(body + 5 * i, "\xdd\x00\x00\x10\x00", 5);
    }
    (void)member_raw(member, MESSAGE_GOSSIP, body, sizeof body);
}

static void nest_deeply(struct member *member)
{
    uint8_t body[40];

    memset(body, 0x91, sizeof body);
    body[0] = 0x81; /* a map whose key 40 nobody knows */
    body[1] = 40;
    body[sizeof body - 1] = 0xc0;
    (void)member_raw(member, MESSAGE_PING, body, sizeof body);
}

static void repeat_a_key(struct member *member)
{
    (void)member_raw(member, MESSAGE_ERROR, "\x83\x00\x01\x00\x01\x01\xa1x", 8);
}

static void send_unknown_type(struct member *member)
{
    (void)member_raw(member, (uint8_t)(200 + member->acts % 50), "\x80", 1);
}

static void send_too_much_control(struct member *member)
{
    static const uint8_t body[CONTROL_BYTES_MAX + 1];

    (void)member_raw(member, MESSAGE_STATUS, body, sizeof body);
}

/* ---- lies about members ---- */

static void accuse_everybody(struct member *member)
{
    static uint8_t bytes[8][ACCUSATION_BYTES];
    struct message message = {.type = MESSAGE_ACCUSE};

    for (int i = 0; i < 8; i++) {
        struct accusation accusation = {.accuser = identity_peer_id(member->identity.public_key),
                                        .subject = member->remote_id,
                                        .boot = member->remote.boot,
                                        .accuser_incarnation = 1,
                                        .incarnation = member->remote.incarnation};

        if (i > 0) evil_entropy(accusation.subject.bytes, sizeof accusation.subject.bytes);
        accusation_sign(&accusation, &member->identity, member->evil->swarm.run_id, bytes[i]);
    }
    message.as.accuse.accusations = bytes[0];
    message.as.accuse.accusations_bytes = sizeof bytes;
    (void)member_say(member, &message);
}

/* Sixteen members with good signatures that do not exist. */
static void invent(struct member *member, const char *address, uint64_t incarnation, bool is_fresh)
{
    uint8_t bytes[GOSSIP_UPDATES_MAX][SIGNED_RECORD_BYTES_MAX], seed[SECRET_BYTES];
    struct message message = {.type = MESSAGE_GOSSIP};

    for (uint32_t i = 0; i < GOSSIP_UPDATES_MAX; i++) {
        struct member_record record = {.incarnation = incarnation + i, .addresses_count = 1};
        struct identity identity = member->identity;
        size_t count;

        evil_entropy(seed, sizeof seed);
        if (is_fresh) identity_from_seed(seed, &identity);
        memcpy(record.public_key, identity.public_key, PUBLIC_KEY_BYTES);
        memcpy(record.boot.bytes, member->boot.bytes, BOOT_ID_BYTES);
        snprintf(record.addresses[0], ADDRESS_BYTES_MAX, "%s", address);
        CHECK(record_sign(&record, &identity, member->evil->swarm.run_id, bytes[i], sizeof bytes[i],
                          &count) == RC_OK);
        message.as.gossip.updates[i] = (struct record_ref){bytes[i], (uint16_t)count};
    }
    message.as.gossip.updates_count = GOSSIP_UPDATES_MAX;
    (void)member_say(member, &message);
}

static void invent_members(struct member *member)
{
    for (int i = 0; i < 8; i++) {
        invent(member, "127.0.0.1:1", 1, true);
    }
}

static void jump_far_ahead(struct member *member)
{
    invent(member, "127.0.0.1:1", UINT64_C(1) << 63, member->acts % 2 == 0);
}

/* Members whose address is a third party's, which they are to dial for us. */
static void point_at_a_victim(struct member *member)
{
    char address[ADDRESS_BYTES_MAX];

    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(member->evil->victim.sin_port));
    invent(member, address, member->acts + 1, true);
}

/* ---- floods ---- */

static void flood_gossip(struct member *member)
{
    struct message message = {.type = MESSAGE_SYNC_REQ};

    for (uint32_t i = 0; i < FLOOD; i++) {
        message.as.sync_req.page = i;
        if (!member_say(member, &message)) return;
    }
}

static void flood_pings(struct member *member)
{
    struct message message = {.type = MESSAGE_PING};

    for (uint32_t i = 0; i < FLOOD; i++) {
        message.as.ping.seq = i;
        if (!member_say(member, &message)) return;
    }
}

static void ask_for_state(struct member *member)
{
    struct message message = {.type = MESSAGE_STATE_REQ};

    message.as.state_req.want = 7;
    for (uint32_t i = 0; i < FLOOD; i++) {
        if (!member_say(member, &message)) return;
    }
}

/* Megabytes that nobody gave credit for. */
static void overrun_credit(struct member *member)
{
    for (uint32_t i = 0; i < 16; i++) {
        if (!member_data(member, i % 2 == 0 ? DATA_OFFER : DATA_STATE, (uint16_t)i, i, 1 << 20)) {
            return;
        }
    }
}

static void drip_data(struct member *member)
{
    (void)member_data(member, DATA_OFFER, (uint16_t)member->form.round, 0, 4);
}

/* ---- rounds ---- */

static struct round_key key_of(const struct member *member)
{
    return (struct round_key){identity_peer_id(member->identity.public_key), member->boot,
                              member->acts + 1};
}

static void offer(struct member *member, float alpha)
{
    struct message message = {.type = MESSAGE_OFFER};
    struct message_offer *o = &message.as.offer;

    o->key = key_of(member);
    o->step = member->progress.step;
    o->schema = member->remote.schema;
    o->lineage = member->progress.lineage;
    snprintf(o->codec, sizeof o->codec, "f32.");
    o->chunks = 1;
    o->alpha = alpha;
    o->deadline_ms = 60000;
    (void)member_say(member, &message);
}

static void offer_and_be_silent(struct member *member)
{
    offer(member, 0.5f);
}

static void promise_and_be_silent(struct member *member)
{
    struct message message = {.type = MESSAGE_READY};

    offer(member, 0.5f);
    message.as.ready.key = key_of(member);
    (void)member_say(member, &message);
}

static void commit_unasked(struct member *member)
{
    struct message message = {.type = MESSAGE_COMMIT};

    if (member->acts % 2 == 0) offer(member, 0.5f);
    message.as.commit.key = key_of(member);
    (void)member_say(member, &message);
}

static void storm_of_aborts(struct member *member)
{
    struct message message = {.type = MESSAGE_ABORT};

    for (uint32_t i = 0; i < FLOOD; i++) {
        message.as.abort.key = key_of(member);
        message.as.abort.key.counter = i;
        message.as.abort.code = ABORT_PROTOCOL;
        if (!member_say(member, &message)) return;
    }
}

/* Joins every round, and says nothing more. */
static void join_and_be_silent(struct member *member)
{
    struct message message = {.type = MESSAGE_JOIN}, progress = {.type = MESSAGE_PROGRESS};

    progress.as.progress = member->progress;
    (void)member_say(member, &progress);
    if (!member->has_form) return;
    message.as.join.round = member->form.round;
    message.as.join.ballot = member->form.ballot;
    message.as.join.samples = UINT64_MAX;
    (void)member_say(member, &message);
    member->has_form = false;
}

/* An OFFER whose mixing weight is not a number. */
static void offer_nan(struct member *member)
{
    static uint8_t inner[CONTROL_BYTES_MAX];
    struct message message = {.type = MESSAGE_OFFER};
    size_t count;

    message.as.offer.key = key_of(member);
    snprintf(message.as.offer.codec, sizeof message.as.offer.codec, "f32.");
    message.as.offer.chunks = 1;
    message.as.offer.alpha = 0.5f;
    CHECK(message_encode(&message, inner, sizeof inner, &count) == RC_OK);
    for (size_t i = INNER_HEADER_BYTES; i + 5 <= count; i++) {
        if (inner[i] == 0xca) memcpy(inner + i + 1, "\x7f\xc0\x00\x00", 4);
    }
    (void)member_raw(member, MESSAGE_OFFER, inner + INNER_HEADER_BYTES, count - INNER_HEADER_BYTES);
}

static void say_goodbye(struct member *member)
{
    struct message message = {.type = MESSAGE_GOAWAY};

    message.as.goaway.reason = GOAWAY_LEAVING;
    (void)member_say(member, &message);
}

static void do_nothing(struct member *member)
{
    (void)member;
}

const struct behaviour behaviours[] = {
    {"idle", hold_idle, NULL, false},
    {"drip", drip_slowly, NULL, true},
    {"garbage", send_garbage, NULL, false},
    {"no-key", knock_without_key, NULL, true},
    {"replay", replay_first, NULL, true},
    {"greet-and-wait", greet_and_wait, NULL, true},
    {"oversized", send_oversized, NULL, true},
    {"reflect", reflect, NULL, true},
    {"low-order", greet_with_low_order, NULL, true},
    {"old-version", greet_in_old_version, NULL, true},
    {"bulk-forged", forge_bulk, NULL, true},
    {"bit-flip", NULL, flip_a_bit, true},
    {"counter-reset", NULL, set_the_counter_back, true},
    {"old-epoch", NULL, lie_about_epoch, true},
    {"reserved-bits", NULL, send_reserved_bits, true},
    {"bomb-5-bytes", NULL, send_short_bomb, true},
    {"bomb-155-bytes", NULL, send_long_bomb, true},
    {"deep-nesting", NULL, nest_deeply, true},
    {"duplicate-keys", NULL, repeat_a_key, true},
    {"unknown-type", NULL, send_unknown_type, true},
    {"too-much-control", NULL, send_too_much_control, true},
    {"offer-nan", NULL, offer_nan, true},
    {"accuse-all", NULL, accuse_everybody, false},
    {"incarnation-2^63", NULL, jump_far_ahead, false},
    {"fake-members", NULL, invent_members, false},
    {"victim-address", NULL, point_at_a_victim, false},
    {"sync-flood", NULL, flood_gossip, false},
    {"ping-flood", NULL, flood_pings, false},
    {"state-flood", NULL, ask_for_state, false},
    {"credit-overrun", NULL, overrun_credit, false},
    {"slow-data", NULL, drip_data, false},
    {"never-ready", NULL, offer_and_be_silent, false},
    {"ready-then-silence", NULL, promise_and_be_silent, false},
    {"commit-unasked", NULL, commit_unasked, false},
    {"abort-storm", NULL, storm_of_aborts, false},
    {"join-and-silence", NULL, join_and_be_silent, false},
    {"relay-abuse", NULL, abuse_relay, false},
    {"bulk-hoard", NULL, hoard_bulks, false},
    {"status-flood", NULL, flood_status, false},
    {"dialback-flood", NULL, flood_dialbacks, false},
    {"goodbyes", NULL, say_goodbye, true},
    {"clone", NULL, do_nothing, false},
};
const size_t behaviours_count = sizeof behaviours / sizeof *behaviours;

/*
 * Events in any order at one membership: links, losses, records true and false, silence, dials that
 * end in every way. Nothing may crash or grow, and after every step the queries must agree.
 */
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/membership/membership.h"

#include <stdio.h>

enum { OTHERS = 6, LIVES = 4, BOOK = 4 };

struct record {
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count;
};

struct world { /* made once: signing is slow */
    struct identity identities[OTHERS + 1];
    struct peer_id ids[OTHERS + 1];
    struct record records[OTHERS + 1][LIVES][2];
    uint8_t accusations[OTHERS][OTHERS + 1][LIVES][ACCUSATION_BYTES]; /* by whom, of whom, when */
    struct digest run_id;
};

static const uint64_t incarnations[LIVES] = {1, 2, 1000, UINT64_MAX};

struct input {
    const uint8_t *bytes;
    size_t left;
};

static uint8_t next(struct input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->bytes++;
}

static void accusations_make(struct world *world, uint8_t by)
{
    for (uint8_t of = 0; of <= OTHERS; of++) {
        for (uint8_t life = 0; life < LIVES; life++) {
            struct accusation accusation = {.accuser = world->ids[by],
                                            .subject = world->ids[of],
                                            .boot = {{of == OTHERS ? 0 : life}},
                                            .incarnation =
                                                of == OTHERS ? 5U + life : incarnations[life]};

            accusation_sign(&accusation, &world->identities[by], world->run_id,
                            world->accusations[by][of][life]);
        }
    }
}

static void world_make(struct world *world)
{
    CHECK(secure_start() == RC_OK);
    world->run_id = hash_of("fuzz", 4);
    for (uint8_t i = 0; i <= OTHERS; i++) {
        uint8_t seed[SECRET_BYTES] = {i};

        identity_from_seed(seed, &world->identities[i]);
        world->ids[i] = identity_peer_id(world->identities[i].public_key);
        for (uint8_t life = 0; life < LIVES; life++) {
            for (int left = 0; left < 2; left++) {
                struct record *out = &world->records[i][life][left];
                struct member_record record = {.boot = {{life}},
                                               .incarnation = incarnations[life],
                                               .has_left = left == 1,
                                               .addresses_count = 1U + life % 2};

                memcpy(record.public_key, world->identities[i].public_key, PUBLIC_KEY_BYTES);
                snprintf(record.addresses[0], ADDRESS_BYTES_MAX, "h%d:1", i);
                snprintf(record.addresses[1], ADDRESS_BYTES_MAX, "h%d:2", life);
                CHECK(record_sign(&record, &world->identities[i], world->run_id, out->bytes,
                                  sizeof(out->bytes), &out->count) == RC_OK);
            }
        }
    }
    for (uint8_t i = 0; i < OTHERS; i++) {
        accusations_make(world, i);
    }
}

static void hear(struct membership *m, struct world *world, struct input *input, uint64_t now_ns,
                 struct outbox *out)
{
    static const enum message_type types[] = {MESSAGE_PING,     MESSAGE_ACK,    MESSAGE_GOSSIP,
                                              MESSAGE_SYNC_REQ, MESSAGE_SYNC,   MESSAGE_NACK,
                                              MESSAGE_PING_REQ, MESSAGE_ACCUSE, MESSAGE_PRUNE};
    struct message message = {.type = types[next(input) % ARRAY_COUNT(types)]};
    struct peer_id from = world->ids[next(input) % OTHERS];
    uint8_t who = next(input), how = next(input);
    struct record record = world->records[who % (OTHERS + 1)][how % LIVES][how >> 7];
    struct record_ref ref = {record.bytes, (uint16_t)record.count};
    enum rc rc;

    if ((how & 0x60) == 0x60) record.bytes[next(input)] ^= 0x10; /* a forgery */
    switch (message.type) {
    case MESSAGE_SYNC_REQ:
        message.as.sync_req.page = who;
        break;
    case MESSAGE_PING_REQ:
        message.as.ping_req.seq = (uint64_t)(how >> 1) << 57 | who;
        message.as.ping_req.target = world->ids[how % (OTHERS + 1)];
        break;
    case MESSAGE_NACK:
        message.as.nack.seq = UINT64_C(1) << 63 | (how & 15);
        break;
    case MESSAGE_ACCUSE:
        message.as.accuse.accusations =
            world->accusations[who % OTHERS][how % (OTHERS + 1)][(how >> 3) % LIVES];
        message.as.accuse.accusations_bytes = ACCUSATION_BYTES;
        break;
    case MESSAGE_PRUNE:
        message.as.prune.wait_ms = (uint32_t)how << 10;
        break;
    case MESSAGE_SYNC:
        message.as.sync =
            (struct message_sync){.page = who & 7, .pages = how & 7, .records = {ref}};
        message.as.sync.records_count = 1;
        break;
    case MESSAGE_GOSSIP:
        message.as.gossip = (struct message_gossip){.updates = {ref}, .updates_count = 1};
        break;
    default:
        message.as.ping = (struct message_ping){.seq = how & 15, .updates = {ref}};
        if (message.type == MESSAGE_ACK && (how & 0x40) != 0) {
            message.as.ping.seq |= UINT64_C(1) << 63; /* an indirect probe's */
        }
        message.as.ping.updates_count = who & 1;
        break;
    }
    rc = membership_on_message(m, from, &message, now_ns, out);
    (void)rc; /* every answer is fine, as long as nothing breaks */
}

/* Tick, hang up, dial. A dial that fails at once (true) may call for another pass. */
static bool pass(struct membership *m, struct input *input, uint64_t now_ns, struct outbox *out,
                 char flying[][ADDRESS_BYTES_MAX], uint32_t *flying_count)
{
    char address[ADDRESS_BYTES_MAX];
    struct peer_id silent;
    bool has_failed = false;

    membership_tick(m, now_ns, out);
    while (membership_next_hangup(m, &silent)) {
    }
    while (membership_next_dial(m, now_ns, address)) {
        if (*flying_count < 16 && (next(input) & 1) != 0) {
            memcpy(flying[(*flying_count)++], address, ADDRESS_BYTES_MAX);
        } else {
            membership_on_dial_failed(m, address, now_ns);
            has_failed = true;
        }
    }
    CHECK(has_failed || membership_next_ns(m) > now_ns);
    return has_failed;
}

static void settle(struct membership *m, struct input *input, uint64_t now_ns, struct outbox *out,
                   char flying[][ADDRESS_BYTES_MAX], uint32_t *flying_count)
{
    struct member_view views[BOOK + 1];
    size_t count;

    for (uint32_t passes = 0; pass(m, input, now_ns, out, flying, flying_count); passes++) {
        CHECK(passes < 64); /* a failed dial is not due again at once, for ever */
    }
    count = membership_list(m, views, BOOK + 1);
    CHECK(count <= BOOK && count == membership_count(m));
    for (size_t i = 0; i < count; i++) {
        CHECK(views[i].state != MEMBER_ALIVE || views[i].is_linked);
        CHECK(!views[i].is_linked || views[i].state == MEMBER_ALIVE ||
              views[i].state == MEMBER_LEFT);
        CHECK(i == 0 || peer_id_compare(views[i - 1].id, views[i].id) < 0);
    }
    outbox_clear(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct world world;
    static bool is_made;
    struct input input = {bytes, count};
    struct outbox out;
    struct membership *m;
    uint64_t now_ns = NS_PER_S, blocks;
    char flying[16][ADDRESS_BYTES_MAX];
    uint32_t flying_count = 0;
    struct membership_options options = {
        .probe_interval_ns = NS_PER_S, .members_max = BOOK, .incarnation = 5, .seed = 1};

    if (!is_made) world_make(&world);
    is_made = true;
    blocks = mem_blocks();
    outbox_init(&out);
    options.identity = &world.identities[OTHERS];
    options.run_id = world.run_id;
    m = membership_create(&options);
    CHECK(m != NULL);
    membership_add_bootstrap(m, "h0:1");
    while (input.left > 0) {
        uint8_t what = next(&input), who = next(&input) % OTHERS;
        struct boot_id boot = {{what}};

        switch (what % 8) {
        case 0:
            membership_on_link_up(m, world.ids[who], world.identities[who].public_key, boot,
                                  flying_count > 0 ? flying[--flying_count] : "", now_ns, &out);
            break;
        case 1:
            membership_on_link_lost(m, world.ids[who], now_ns);
            break;
        case 2:
            membership_on_heard(m, world.ids[who], now_ns);
            break;
        case 3:
            membership_on_goodbye(m, world.ids[who], now_ns);
            break;
        case 4:
            if (flying_count > 0) membership_on_dial_failed(m, flying[--flying_count], now_ns);
            break;
        case 5:
            if (flying_count > 0) {
                membership_on_link_duplicate(m, flying[--flying_count], world.ids[what % 7],
                                             now_ns);
            }
            break;
        case 6:
            now_ns += (uint64_t)who * who * who * 37 * NS_PER_MS;
            break;
        default:
            hear(m, &world, &input, now_ns, &out);
            break;
        }
        if ((what & 0x80) == 0) settle(m, &input, now_ns, &out, flying, &flying_count);
    }
    if ((count & 3) == 3) membership_farewell(m, &out);
    membership_destroy(m);
    outbox_deinit(&out);
    CHECK(mem_blocks() == blocks);
    return 0;
}

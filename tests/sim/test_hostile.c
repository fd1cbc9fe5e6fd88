/* One member of the swarm means harm: the others train and average on, undamaged. */
#include "tests/check.h"

#include "tests/sim/swarm.h"
#include "tests/sim/hostile.h"

#include "averaging/group/group.h"

#include "gossip/signed/manifest.h"
#include "peer/node/internal.h"

enum { HONEST = 3, VALUES = CHUNK_VALUES + 100, CHUNKS = 2, FLOODS = 200 };

/* What must be left of 60 (pairs: 40) rounds and 300 steps, the worst attacks included. How much
 * one member of eight may cost is measured in test_hostile_rounds.c. */
enum { ROUNDS_LEAST = 10, STEPS_LEAST = 100, BLOCKS_MORE = 2000 };
enum { INVENTED_MORE = HONEST * MEMBERS_MAX / 4 * 2 }; /* of each book one may fill a quarter */

/* ---- frames and records that are wrong in themselves ---- */

static void lie_about_length(struct hostile *hostile, const struct hostile_target *to)
{
    uint8_t frame[64] = {0};

    store_le32(frame, hostile->acts % 2 == 0 ? 0x7fffffff : 0xffffffff);
    hostile_wire(hostile, to, frame, sizeof frame);
}

static void lie_short(struct hostile *hostile, const struct hostile_target *to)
{
    uint8_t frame[64] = {0};

    store_le32(frame, hostile->acts % 4); /* shorter than any record, then rubbish as a header */
    memset(frame + RECORD_HEADER_BYTES, 0xa5, sizeof frame - RECORD_HEADER_BYTES);
    hostile_wire(hostile, to, frame, sizeof frame);
}

static void send_reserved_bits(struct hostile *hostile, const struct hostile_target *to)
{
    uint8_t frame[40] = {16, 0, 0, 0, 0, 1, 2, 3};

    hostile_wire(hostile, to, frame, sizeof frame);
}

static void send_short_bomb(struct hostile *hostile, const struct hostile_target *to)
{
    hostile_raw(hostile, to->id, MESSAGE_PING, "\xdd\xff\xff\xff\xff", 5);
}

static void send_map_bomb(struct hostile *hostile, const struct hostile_target *to)
{
    hostile_raw(hostile, to->id, MESSAGE_OFFER, "\xdf\x0f\xff\xff\xff", 5);
}

static void send_nested_bomb(struct hostile *hostile, const struct hostile_target *to)
{
    uint8_t body[155];

    for (int i = 0; i < 31; i++) {
        memcpy(body + 5 * i, "\xdd\x00\x00\x10\x00", 5);
    }
    hostile_raw(hostile, to->id, MESSAGE_GOSSIP, body, sizeof body);
}

static void send_unknown_type(struct hostile *hostile, const struct hostile_target *to)
{
    hostile_raw(hostile, to->id, (uint8_t)(200 + hostile->acts % 50), "\x80", 1);
}

static void send_duplicate_keys(struct hostile *hostile, const struct hostile_target *to)
{
    hostile_raw(hostile, to->id, MESSAGE_ERROR, "\x83\x00\x01\x00\x01\x01\xa1x", 8);
}

static void send_oversized_control(struct hostile *hostile, const struct hostile_target *to)
{
    static const uint8_t body[CONTROL_BYTES_MAX + 1];

    hostile_raw(hostile, to->id, MESSAGE_STATUS, body, sizeof body);
}

/* ---- chunks nobody asked for ---- */

static void send_bad_chunks(struct hostile *hostile, const struct hostile_target *to)
{
    static const uint32_t chunks[] = {0, 0, 1, CHUNKS, UINT32_MAX};
    struct inner_header header = {.type = MESSAGE_DATA, .flags = (uint8_t)(hostile->acts % 2)};
    uint64_t round = hostile->heard.round;

    for (uint32_t i = 0; i < 5; i++) {
        header.arg = chunks[i];
        for (uint64_t back = 0; back < 3; back++) { /* to come, now, closed */
            header.stream = (uint16_t)(round + 1 - back);
            hostile_data(hostile, to->id, &header, chunks[i] == 1 ? 100 : CHUNK_VALUES, NAN);
            hostile_data(hostile, to->id, &header, 7, 1.0f);
        }
    }
    header.offset = UINT32_MAX;
    hostile_data(hostile, to->id, &header, CHUNK_VALUES, 1.0f);
    header.flags = DATA_STATE;
    header.offset = 0;
    hostile_data(hostile, to->id, &header, CHUNK_VALUES, NAN);
}

/* ---- pair rounds out of order ---- */

static struct round_key some_key(struct hostile *hostile, const struct hostile_target *to)
{
    struct round_key key = {.initiator = identity_peer_id(hostile->identity.public_key),
                            .boot = hostile->boot,
                            .counter = hostile->acts};

    if (hostile->acts % 3 == 1) key.initiator = to->id;
    if (hostile->acts % 3 == 2) key.counter = UINT64_MAX;
    return key;
}

static void send_promises_without_offers(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = {.type = MESSAGE_READY};

    message.as.ready.key = some_key(hostile, to);
    message.as.ready.squared = (float)(hostile->acts % 5);
    hostile_say(hostile, to->id, &message);
    message = (struct message){.type = MESSAGE_COMMIT};
    message.as.commit.key = some_key(hostile, to);
    hostile_say(hostile, to->id, &message);
    message = (struct message){.type = MESSAGE_OUTCOME};
    message.as.outcome.key = some_key(hostile, to);
    message.as.outcome.state = OUTCOME_COMMITTED;
    hostile_say(hostile, to->id, &message);
    message = (struct message){.type = MESSAGE_OUTCOME_REQ};
    message.as.outcome_req.key = some_key(hostile, to);
    hostile_say(hostile, to->id, &message);
    message = (struct message){.type = MESSAGE_ACCEPT};
    message.as.accept.key = some_key(hostile, to);
    message.as.accept.alpha = 0.5f;
    message.as.accept.credit = CHUNKS_MAX;
    hostile_say(hostile, to->id, &message);
}

static struct message an_offer(struct hostile *hostile)
{
    struct message message = {.type = MESSAGE_OFFER};

    message.as.offer.key.initiator = identity_peer_id(hostile->identity.public_key);
    message.as.offer.key.boot = hostile->boot;
    message.as.offer.key.counter = hostile->acts;
    message.as.offer.schema = hostile->schema;
    message.as.offer.lineage = hostile->heard.lineage;
    memcpy(message.as.offer.codec, "f32.", 5);
    message.as.offer.chunks = hostile_chunks(hostile);
    message.as.offer.alpha = 0.5f;
    message.as.offer.deadline_ms = 5000;
    return message;
}

/* It offers, and never goes on: nobody may wait for it longer than a deadline. */
static void offer_and_be_silent(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = an_offer(hostile);

    hostile_say(hostile, to->id, &message);
}

static void offer_nan(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = an_offer(hostile);

    hostile_say_float(hostile, to->id, &message, NAN);
}

static void storm_of_aborts(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = {.type = MESSAGE_ABORT};

    message.as.abort.code = ABORT_PROTOCOL;
    for (uint32_t i = 0; i < FLOODS; i++) {
        message.as.abort.key = some_key(hostile, to);
        message.as.abort.key.counter = hostile->heard.round + i % 3;
        hostile_say(hostile, to->id, &message);
    }
}

/* ---- group rounds ---- */

static struct message a_form(struct hostile *hostile, enum message_type type, uint64_t round)
{
    struct message message = {.type = type};
    struct message_form *form = &message.as.form;

    form->round = round;
    form->ballot = 1 + hostile->acts % 200;
    form->schema = hostile->schema;
    form->lineage = hostile->heard.lineage;
    memcpy(form->codec, "f32.", 5);
    form->chunks = hostile_chunks(hostile);
    form->deadline_ms = 600000;
    form->members[0].id = identity_peer_id(hostile->identity.public_key);
    form->members[0].boot = hostile->boot;
    form->members_count = 1;
    for (uint32_t i = 0; i < hostile->targets_count; i++) {
        if (!hostile->targets[i].is_open) continue;
        form->members[form->members_count].id = hostile->targets[i].id;
        form->members[form->members_count++].boot = hostile->targets[i].boot;
    }
    return message;
}

static void form_with_strangers(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = a_form(hostile, MESSAGE_FORM, hostile->heard.round + 1);

    for (uint32_t i = 0; message.as.form.members_count < GROUP_MEMBERS_MAX; i++) {
        memset(message.as.form.members[message.as.form.members_count++].id.bytes, (int)(1 + i),
               sizeof(struct peer_id));
    }
    hostile_say(hostile, to->id, &message);
    message.as.form.members_count = 1; /* and without the receiver */
    hostile_say(hostile, to->id, &message);
}

static void form_absurd_rounds(struct hostile *hostile, const struct hostile_target *to)
{
    static const uint64_t rounds[] = {UINT64_MAX, UINT64_MAX / 2, UINT64_MAX / 2 - 1, 0};
    struct message message = a_form(hostile, MESSAGE_FORM, rounds[hostile->acts % 4]);

    hostile_say(hostile, to->id, &message);
    message.type = MESSAGE_START;
    hostile_say(hostile, to->id, &message);
}

static void start_without_right(struct hostile *hostile, const struct hostile_target *to)
{
    for (uint64_t ahead = 0; ahead < 3; ahead++) {
        struct message message = a_form(hostile, MESSAGE_START, hostile->heard.round + ahead);

        message.as.form.ballot = GROUP_MEMBERS_MAX;
        if (hostile->has_form) message.as.form = hostile->form;
        hostile_say(hostile, to->id, &message);
    }
}

static void note_form(struct hostile *hostile, struct peer_id from, const struct message *message)
{
    (void)from;
    if (message->type != MESSAGE_FORM && message->type != MESSAGE_START) return;
    hostile->form = message->as.form;
    hostile->form.statements = NULL; /* the message's own, gone with it */
    hostile->form.statements_bytes = 0;
    hostile->has_form = true;
}

/* Invites everybody again and again and never starts. */
static void propose_for_ever(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = a_form(hostile, MESSAGE_FORM, hostile->heard.round);

    hostile_say(hostile, to->id, &message);
    message.as.form.round++;
    hostile_say(hostile, to->id, &message);
}

static void do_nothing(struct hostile *hostile, const struct hostile_target *to)
{
    (void)hostile, (void)to;
}

static void join(struct hostile *hostile, struct peer_id to, const struct message_form *form)
{
    struct message message = {.type = MESSAGE_JOIN};

    message.as.join.round = form->round;
    message.as.join.ballot = form->ballot;
    message.as.join.samples = UINT32_MAX;
    hostile_say(hostile, to, &message);
}

/* Joins, then keeps quiet: its part and its contribution are missing. */
static void join_and_be_silent(struct hostile *hostile, struct peer_id from,
                               const struct message *message)
{
    if (message->type == MESSAGE_FORM) join(hostile, from, &message->as.form);
}

/* Joins; then every owner gets NaN for its part, and everyone a mean that is none. */
static void join_and_lie(struct hostile *hostile, struct peer_id from,
                         const struct message *message)
{
    const struct message_form *form = &message->as.form;
    struct inner_header header = {.type = MESSAGE_DATA};
    uint64_t stream;

    if (message->type == MESSAGE_FORM) join(hostile, from, form);
    if (message->type != MESSAGE_START) return;
    stream = group_stream(form->members[0], form->round);
    inner_header_set_stream(&header, stream);
    for (uint32_t i = 0; i < hostile->targets_count; i++) {
        const struct hostile_target *to = &hostile->targets[i];
        struct message lie = {.type = MESSAGE_CREDIT};

        if (!to->is_open) continue;
        lie.as.credit.stream = stream;
        lie.as.credit.start = group_start_digest(form);
        lie.as.credit.chunks = CHUNKS_MAX;
        hostile_say(hostile, to->id, &lie);
        for (header.arg = 0; header.arg < hostile_chunks(hostile); header.arg++) {
            size_t count = header.arg + 1 == hostile_chunks(hostile) ? 100 : CHUNK_VALUES;

            header.flags = DATA_OFFER;
            hostile_data(hostile, to->id, &header, count, NAN);
            header.flags = DATA_MEAN;
            hostile_data(hostile, to->id, &header, count, 1e30f);
        }
        lie = (struct message){.type = MESSAGE_MEAN};
        lie.as.mean.stream = stream;
        lie.as.mean.contributors = UINT64_MAX;
        lie.as.mean.hash = hash_of("lie", 3);
        for (lie.as.mean.part = 0; lie.as.mean.part < form->members_count; lie.as.mean.part++) {
            hostile_say(hostile, to->id, &lie);
        }
    }
}

/* ---- progress and models ---- */

static void boast(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = {.type = MESSAGE_PROGRESS};

    message.as.progress = hostile->heard;
    message.as.progress.samples = UINT64_MAX - hostile->acts % 2;
    message.as.progress.step = UINT64_MAX;
    message.as.progress.round = UINT64_MAX / 2 - hostile->acts % 2;
    hostile_say(hostile, to->id, &message);
}

static void claim_another_model(struct hostile *hostile, const struct hostile_target *to)
{
    (void)to;
    hostile->said = hostile->heard;
    hostile->said.samples = UINT64_MAX;
    hostile->said.lineage = hash_of("better", 6);
    hostile->said.is_serving = true;
    hostile->has_lie = true;
}

static struct message a_manifest(struct hostile *hostile)
{
    struct message message = {.type = MESSAGE_STATE_MANIFEST};
    struct message_state_manifest *manifest = &message.as.state_manifest;

    manifest->lease = 1;
    manifest->samples = manifest->step = manifest->round = UINT64_MAX / 2;
    manifest->schema = hostile->schema;
    manifest->lineage = hash_of("better", 6);
    manifest->sections_count = 1;
    manifest->sections[0] = SECTION_PARAMETERS;
    manifest->values[0] = hostile->values;
    manifest->buckets = hostile_chunks(hostile);
    manifest->pages = 1;
    manifest->lease_ms = 60000;
    manifest_sign(manifest, &hostile->identity, hostile->swarm.run_id);
    return message;
}

/* A donor whose root does not cover its pages. */
static void donate_wrong_root(struct hostile *hostile, struct peer_id from,
                              const struct message *message)
{
    static const uint8_t hashes[CHUNKS * DIGEST_BYTES];
    struct message answer = a_manifest(hostile);

    if (message->type == MESSAGE_STATE_REQ) hostile_say(hostile, from, &answer);
    if (message->type != MESSAGE_MANIFEST_REQ) return;
    answer = (struct message){.type = MESSAGE_MANIFEST_PAGE};
    answer.as.manifest_page.lease = 1;
    answer.as.manifest_page.hashes = hashes;
    answer.as.manifest_page.hashes_bytes = sizeof hashes;
    hostile_say(hostile, from, &answer);
}

/* A donor whose hashes are right and whose buckets are NaN. */
static void donate_nan(struct hostile *hostile, struct peer_id from, const struct message *message)
{
    static float plane[VALUES];
    uint8_t hashes[CHUNKS * DIGEST_BYTES];
    struct message answer = a_manifest(hostile);

    for (size_t i = 0; i < VALUES; i++) {
        plane[i] = NAN;
    }
    for (size_t i = 0; i < CHUNKS; i++) {
        struct digest hash = hash_of(plane, (i + 1 < CHUNKS ? CHUNK_VALUES : 100) * sizeof(float));

        memcpy(hashes + i * DIGEST_BYTES, hash.bytes, DIGEST_BYTES);
    }
    answer.as.state_manifest.root = hash_of(hashes, sizeof hashes);
    manifest_sign(&answer.as.state_manifest, &hostile->identity, hostile->swarm.run_id);
    if (message->type == MESSAGE_STATE_REQ) hostile_say(hostile, from, &answer);
    if (message->type == MESSAGE_MANIFEST_REQ) {
        answer = (struct message){.type = MESSAGE_MANIFEST_PAGE};
        answer.as.manifest_page.lease = 1;
        answer.as.manifest_page.hashes = hashes;
        answer.as.manifest_page.hashes_bytes = sizeof hashes;
        hostile_say(hostile, from, &answer);
    }
    if (message->type == MESSAGE_BUCKET_REQ) {
        struct inner_header header = {
            .type = MESSAGE_DATA, .flags = DATA_STATE, .stream = 1, .arg = 0};

        hostile_data(hostile, from, &header, CHUNK_VALUES, NAN);
    }
}

static void flood_of_requests(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = {.type = MESSAGE_STATE_REQ};

    for (uint32_t i = 0; i < FLOODS; i++) {
        message.as.state_req.want = 1 + 2 * (i % 4);
        hostile_say(hostile, to->id, &message);
    }
}

static void request_out_of_range(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = {.type = MESSAGE_STATE_REQ};

    message.as.state_req.want = 1;
    if (hostile->acts % 20 == 1) hostile_say(hostile, to->id, &message);
    message = (struct message){.type = MESSAGE_BUCKET_REQ};
    for (uint32_t lease = 0; lease < 4; lease++) {
        message.as.bucket_req.lease = lease;
        message.as.bucket_req.index = hostile->acts % 2 == 0 ? CHUNKS_MAX - 1 : 1;
        message.as.bucket_req.count = hostile->acts % 2 == 0 ? 1 : CHUNKS_MAX - 1;
        hostile_say(hostile, to->id, &message);
        message.as.bucket_req.index = 0;
        message.as.bucket_req.count = CHUNKS; /* in range, again and again */
        hostile_say(hostile, to->id, &message);
    }
    message = (struct message){.type = MESSAGE_MANIFEST_REQ};
    message.as.manifest_req.page = 9;
    hostile_say(hostile, to->id, &message);
}

/* ---- membership ---- */

static void storm_of_goodbyes(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = {.type = MESSAGE_GOAWAY};

    message.as.goaway.reason = GOAWAY_FAILED;
    message.as.goaway.retry_ms = UINT32_MAX;
    for (uint32_t i = 0; i < FLOODS; i++) {
        hostile_say(hostile, to->id, &message);
    }
}

static void flood_of_pings(struct hostile *hostile, const struct hostile_target *to)
{
    struct message message = {.type = MESSAGE_PING};

    for (uint32_t i = 0; i < FLOODS; i++) {
        message.as.ping.seq = i % 2 == 0 ? UINT64_MAX : i;
        hostile_say(hostile, to->id, &message);
    }
    message.type = MESSAGE_ACK;
    hostile_say(hostile, to->id, &message);
}

/* Members that do not exist, each with a good signature of its own. */
static void gossip_inventions(struct hostile *hostile, const struct hostile_target *to)
{
    uint8_t bytes[GOSSIP_UPDATES_MAX][SIGNED_RECORD_BYTES_MAX];
    struct message message = {.type = MESSAGE_GOSSIP};

    for (uint32_t i = 0; i < GOSSIP_UPDATES_MAX; i++) {
        struct member_record record = {.incarnation = UINT64_MAX, .addresses_count = 1};
        struct identity identity;
        uint8_t seed[SECRET_BYTES] = {0};
        size_t count;

        store_le64(seed, (uint64_t)hostile->acts * GOSSIP_UPDATES_MAX + i);
        identity_from_seed(seed, &identity);
        memcpy(record.public_key, identity.public_key, PUBLIC_KEY_BYTES);
        snprintf(record.addresses[0], ADDRESS_BYTES_MAX, "sim:%u", 1 + i % HONEST);
        CHECK(record_sign(&record, &identity, hostile->swarm.run_id, bytes[i], sizeof bytes[i],
                          &count) == RC_OK);
        message.as.gossip.updates[i] = (struct record_ref){bytes[i], (uint16_t)count};
    }
    message.as.gossip.updates_count = GOSSIP_UPDATES_MAX;
    hostile_say(hostile, to->id, &message);
}

/* ---- more than was allowed ---- */

enum { UNASKED = 70 }; /* records of 128 KiB in one act */

static void flood(struct hostile *hostile, const struct hostile_target *to, enum data_kind kind)
{
    struct inner_header header = {.type = MESSAGE_DATA, .flags = (uint8_t)kind, .arg = CHUNKS};

    for (uint32_t i = 0; i < UNASKED; i++) {
        header.stream = (uint16_t)(2 * i);
        hostile_data(hostile, to->id, &header, kind == DATA_RELAY ? 8000 : CHUNK_VALUES, 1.0f);
    }
}

static void flood_of_chunks(struct hostile *hostile, const struct hostile_target *to)
{
    flood(hostile, to, DATA_OFFER);
}

static void flood_of_buckets(struct hostile *hostile, const struct hostile_target *to)
{
    flood(hostile, to, DATA_STATE);
}

static void flood_of_relayed(struct hostile *hostile, const struct hostile_target *to)
{
    for (int i = 0; i < 4; i++) {
        flood(hostile, to, DATA_RELAY);
    }
}

/* ---- one attack after the other ---- */

static const struct hostile_behaviour behaviours[] = {
    {"says nothing at all", do_nothing, NULL, false, true},
    {"frames longer than they may be", lie_about_length, NULL, true, false},
    {"frames shorter than they say", lie_short, NULL, true, false},
    {"reserved bits in a frame", send_reserved_bits, NULL, true, false},
    {"an array of 2^32-1 in five bytes", send_short_bomb, NULL, true, false},
    {"a map of 2^28-1 in five bytes", send_map_bomb, NULL, true, false},
    {"arrays 31 deep", send_nested_bomb, NULL, true, false},
    {"unknown types", send_unknown_type, NULL, true, false},
    {"a key twice", send_duplicate_keys, NULL, true, false},
    {"a control record too large", send_oversized_control, NULL, true, false},
    {"chunks nobody asked for", send_bad_chunks, NULL, false, false},
    {"READY, COMMIT, OUTCOME without OFFER", send_promises_without_offers, NULL, false, false},
    {"OFFER, then silence", offer_and_be_silent, NULL, false, false},
    {"OFFER of NaN", offer_nan, NULL, true, false},
    {"aborts", storm_of_aborts, NULL, false, false},
    {"FORM with strangers", form_with_strangers, NULL, false, false},
    {"FORM and START of absurd rounds", form_absurd_rounds, NULL, false, false},
    {"START it may not send", start_without_right, note_form, false, false},
    {"FORM without end", propose_for_ever, NULL, false, false},
    {"JOIN, then silence", do_nothing, join_and_be_silent, false, false},
    {"JOIN, then NaN and false means", do_nothing, join_and_lie, false, false},
    {"absurd progress", boast, NULL, false, true},
    {"another model, never given", claim_another_model, NULL, false, false},
    {"another model, wrong root", claim_another_model, donate_wrong_root, false, false},
    {"another model, of NaN", claim_another_model, donate_nan, false, false},
    {"requests without end", flood_of_requests, NULL, false, false},
    {"requests out of range", request_out_of_range, NULL, false, false},
    {"goodbyes", storm_of_goodbyes, NULL, true, false},
    {"pings without end", flood_of_pings, NULL, false, false},
    {"members that do not exist", gossip_inventions, NULL, false, false},
    {"chunks without credit", flood_of_chunks, NULL, true, false},
    {"buckets without credit", flood_of_buckets, NULL, true, false},
    {"relayed bytes without credit", flood_of_relayed, NULL, true, false},
};

static void total(struct cluster *cluster, uint64_t *rounds, uint64_t *steps)
{
    *rounds = *steps = 0;
    for (uint32_t i = 0; i < HONEST; i++) {
        struct node_report report;

        assert_true(cluster_is_up(cluster, i));
        node_report(cluster_node(cluster, i), &report);
        *rounds += report.rounds_ok;
        *steps += report.step;
    }
}

/* All parameters are finite and near the optimum they train towards; the rounds are real ones. */
static void check_planes(struct cluster *cluster, const char *name)
{
    static float plane[VALUES];

    for (uint32_t i = 0; i < HONEST; i++) {
        struct round_stats stats;

        round_stats(cluster_node(cluster, i)->round, &stats);
        if (stats.counts.next_round >= 10000) fail_msg("%s: peer %u leaped ahead", name, i);
        cluster_plane(cluster, i, plane);
        for (size_t k = 0; k < VALUES; k++) {
            if (isfinite(plane[k]) && fabsf(plane[k]) < 10.0f) continue;
            fail_msg("%s: value %zu of peer %u is %g", name, k, i, (double)plane[k]);
        }
    }
}

static void attack(const struct hostile_behaviour *behaviour, const char *exchange)
{
    struct cluster_options options = {.peers = HONEST,
                                      .guests = 1,
                                      .seed = 7,
                                      .latency_ns = NS_PER_MS,
                                      .values = VALUES,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .centre_spread = 0.5,
                                      .averaging = "local-sgd:H=4",
                                      .exchange = exchange};
    uint64_t blocks = mem_blocks(), before, rounds, rounds_later, steps, steps_later;
    struct cluster *cluster = cluster_create(&options);
    struct hostile *hostile;
    bool is_long =
        behaviour->act == claim_another_model; /* downloads are tried again later and later */

    swarm_start(cluster, HONEST);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
    before = mem_blocks();
    hostile = hostile_create(cluster_guest(cluster, 0), cluster_swarm(cluster),
                             cluster_strategy(cluster), VALUES, 1, HONEST, behaviour);
    /* those that cannot be told at once are left out more and more as they fail */
    cluster_run(cluster, behaviour->is_dropped ? 5 * NS_PER_S : (is_long ? 40 : 20) * NS_PER_S);
    total(cluster, &rounds, &steps);
    cluster_run(cluster, (is_long ? 20 : 10) * NS_PER_S);
    total(cluster, &rounds_later, &steps_later);
    if (getenv("VERBOSE") != NULL) {
        fprintf(stderr, "%-40s %s: rounds %llu, steps %llu, dropped %u, blocks %+lld\n",
                behaviour->name, exchange, (unsigned long long)(rounds_later - rounds),
                (unsigned long long)(steps_later - steps), hostile->dropped,
                (long long)(mem_blocks() - before));
    }
    if (rounds_later < rounds + ROUNDS_LEAST || steps_later < steps + STEPS_LEAST) {
        fail_msg("%s, %s: %llu rounds and %llu steps", behaviour->name, exchange,
                 (unsigned long long)(rounds_later - rounds),
                 (unsigned long long)(steps_later - steps));
    }
    if (behaviour->is_dropped && hostile->dropped == 0) fail_msg("%s: kept", behaviour->name);
    if (mem_blocks() >
        before + BLOCKS_MORE + (behaviour->act == gossip_inventions ? INVENTED_MORE : 0)) {
        fail_msg("%s: %llu blocks more", behaviour->name, (unsigned long long)mem_blocks());
    }
    check_planes(cluster, behaviour->name);
    hostile_destroy(hostile);
    cluster_destroy(cluster);
    assert_int_equal(mem_blocks(), blocks);
}

/* Whatever a member says, the others of a group train and average on. */
static void groups_go_on_beside_a_hostile_member(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(behaviours); i++) {
        if (getenv("ONLY") != NULL && strtoull(getenv("ONLY"), NULL, 10) != i) continue;
        attack(&behaviours[i], "group");
    }
}

/* Does it speak of pair rounds? The rest is the same for both exchanges. */
static bool is_of_pairs(const struct hostile_behaviour *behaviour)
{
    return behaviour->act == send_bad_chunks || behaviour->act == send_promises_without_offers ||
           behaviour->act == offer_and_be_silent || behaviour->act == storm_of_aborts ||
           behaviour->act == boast;
}

/* The same with pairs. */
static void pairs_go_on_beside_a_hostile_member(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(behaviours); i++) {
        if (getenv("ONLY") != NULL && strtoull(getenv("ONLY"), NULL, 10) != i) continue;
        if (!is_of_pairs(&behaviours[i])) continue;
        attack(&behaviours[i], "pair");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_go_on_beside_a_hostile_member),
        cmocka_unit_test(pairs_go_on_beside_a_hostile_member),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

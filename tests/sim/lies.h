/*
 * lies: what one member of a swarm may do to the others without being an outsider: it runs the
 * shipping node, holds the swarm's key, trains, answers, and lies in one way. In simulated swarms
 * (sim_liars) and as a real process (tests/liar) alike.
 *
 * Lies about values are told where a round takes the model, so the liar measures distances to its
 * lie itself and all that it says fits together. What it takes back from the round is corrected by
 * how much it lied: it follows the swarm, and its lies stay as large as they are meant to be.
 */
#ifndef GRAPEVINE_TESTS_SIM_LIES_H
#define GRAPEVINE_TESTS_SIM_LIES_H

#include "tests/sim/lies_rounds.h"

#include "averaging/push/push.h"
#include "gossip/signed/accusation.h"
#include "gossip/signed/record.h"
#include "peer/round/internal.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- lies about the model, told in rounds ---- */

static inline void lie_zero(struct evil *e, float *plane, size_t count)
{
    (void)e;
    memset(plane, 0, count * sizeof *plane);
}

static inline void lie_scaled(struct evil *e, float *plane, size_t count)
{
    (void)e;
    for (size_t i = 0; i < count; i++) {
        plane[i] *= 2;
    }
}

static inline void lie_turned(struct evil *e, float *plane, size_t count)
{
    (void)e;
    for (size_t i = 0; i < count; i++) {
        plane[i] = -plane[i];
    }
}

static inline void lie_stale(struct evil *e, float *plane, size_t count)
{
    memcpy(plane, e->first, count * sizeof *plane);
}

/* Another model of the same size. */
static inline void lie_another(struct evil *e, float *plane, size_t count)
{
    float far = (float)lies_norm(plane, NULL, count);

    for (size_t i = 0; i < count; i++) {
        plane[i] = far * e->direction[i];
    }
}

/* What it learned since the last round, so many times. */
static inline void lie_steps(struct evil *e, float *plane, size_t count, float times)
{
    for (size_t i = 0; i < count; i++) {
        plane[i] = e->base[i] + times * (plane[i] - e->base[i]);
    }
}

static inline void lie_huge_step(struct evil *e, float *plane, size_t count)
{
    lie_steps(e, plane, count, 100);
}

static inline void lie_reversed(struct evil *e, float *plane, size_t count)
{
    lie_steps(e, plane, count, -1);
}

/* The same in the other direction, a thousandfold; but where it believes a part of its own lie, as
 * among neighbours, its steps grow with it, and are to stay numbers. */
static inline void lie_reversed_far(struct evil *e, float *plane, size_t count)
{
    double far = lies_norm(plane, e->base, count);

    lie_steps(e, plane, count, far * 1000 > 1e4 ? (float)(-1e4 / far) : -1000);
}

/* As far as an honest step goes, always the same way. */
static inline void lie_drift(struct evil *e, float *plane, size_t count)
{
    float far = (float)lies_norm(plane, e->base, count);

    for (size_t i = 0; i < count; i++) {
        plane[i] = e->base[i] + far * e->direction[i];
    }
}

/* ---- lies in what is sent ---- */

static inline bool lie_nan(struct evil *e, struct peer_id to, struct inner_header *header,
                           struct blob **body)
{
    (void)e, (void)to, (void)header;
    *body = evil_floats((*body)->count, NAN);
    return true;
}

/* What others are to take over as the mean of its part. */
static inline bool lie_zero_part(struct evil *e, struct peer_id to, struct inner_header *header,
                                 struct blob **body)
{
    (void)e, (void)to;
    if (header->flags == DATA_MEAN) *body = evil_floats((*body)->count, 0);
    return true;
}

static inline bool lie_another_part(struct evil *e, struct peer_id to, struct inner_header *header,
                                    struct blob **body)
{
    struct blob *other;
    size_t n = (*body)->count / sizeof(float);

    (void)e, (void)to;
    if (header->flags != DATA_MEAN) return true;
    other = blob_create((*body)->count);
    CHECK(other != NULL);
    for (size_t i = 0; i < n; i++) {
        memcpy(other->bytes + i * sizeof(float), (*body)->bytes + (n - 1 - i) * sizeof(float),
               sizeof(float));
    }
    *body = other;
    return true;
}

/* ---- lies of a proposer ---- */

/* The quickest by far, so that its part is the largest that may be. */
static inline void lie_greedy(struct evil *e, struct message_form *start, uint8_t *statements)
{
    for (uint32_t i = 0; i < start->members_count; i++) {
        uint8_t *its = statements + (size_t)i * STATEMENT_BYTES;

        if (peer_id_is_equal(start->members[i].id, e->node->self)) store_le64(its + 8, UINT64_MAX);
    }
    start->schedule = SCHEDULE_DIRECT;
}

/* It has seen more samples than all, so that its model counts for more. */
static inline void lie_weighty(struct evil *e, struct message_form *start, uint8_t *statements)
{
    for (uint32_t i = 0; i < start->members_count; i++) {
        uint8_t *its = statements + (size_t)i * STATEMENT_BYTES;

        if (peer_id_is_equal(start->members[i].id, e->node->self)) store_le64(its, UINT64_MAX);
    }
    start->schedule = SCHEDULE_DIRECT;
}

/* Others said next to nothing. */
static inline void lie_belittle(struct evil *e, struct message_form *start, uint8_t *statements)
{
    for (uint32_t i = 0; i < start->members_count; i++) {
        uint8_t *its = statements + (size_t)i * STATEMENT_BYTES;
        bool is_self = peer_id_is_equal(start->members[i].id, e->node->self);

        store_le64(its, is_self ? 1000000 : 1);
        store_le64(its + 8, is_self ? 1000000000 : 1);
    }
    start->schedule = SCHEDULE_DIRECT;
}

static inline bool lie_to_half(struct evil *e, struct peer_id to, struct message *message)
{
    (void)e;
    return message->type != MESSAGE_START || to.bytes[0] % 2 == message->as.form.round % 2;
}

/* To each another statement of its own, so that each reckons with other parts. */
static inline bool lie_unlike(struct evil *e, struct peer_id to, struct message *message)
{
    static uint8_t statements[GROUP_MEMBERS_MAX * STATEMENT_BYTES];
    struct message_form *form = &message->as.form;

    if (message->type != MESSAGE_START) return true;
    memcpy(statements, form->statements, form->statements_bytes);
    for (uint32_t i = 0; i < form->members_count; i++) {
        uint8_t *its = statements + (size_t)i * STATEMENT_BYTES;

        if (!peer_id_is_equal(form->members[i].id, e->node->self)) continue;
        store_le64(its, UINT64_C(1) << to.bytes[0] % 40);
        store_le64(its + 8, UINT64_C(1) << to.bytes[1] % 40);
    }
    form->statements = statements;
    form->schedule = SCHEDULE_DIRECT;
    return true;
}

/* To each another order of the members, so that they own other parts. */
static inline bool lie_permuted(struct evil *e, struct peer_id to, struct message *message)
{
    struct message_form *form = &message->as.form;
    struct member_ref members[GROUP_MEMBERS_MAX];

    (void)e;
    if (message->type != MESSAGE_START) return true;
    memcpy(members, form->members, sizeof members);
    for (uint32_t i = 0; i < form->members_count; i++) {
        form->members[i] = members[(i + to.bytes[0]) % form->members_count];
    }
    return true;
}

/* ---- lies about weight and generations ---- */

/* Its weight is what it says, whatever it has given away. */
static inline void mint_weight(struct evil *e, uint64_t now_ns)
{
    const struct round *round = e->node->round;

    (void)now_ns;
    if (round == NULL || round->ops != &exchange_push) return;
    ((struct push *)(void *)round->exchange)->weight = 16;
}

static inline bool lie_generation(struct evil *e, struct peer_id to, struct message *message)
{
    (void)to;
    if (message->type == MESSAGE_EDGE_OPEN) message->as.edge_open.generation += e->acts;
    return true;
}

static inline bool lie_ahead(struct evil *e, struct peer_id to, struct message *message)
{
    (void)to;
    if (message->type == MESSAGE_EDGE_OPEN) message->as.edge_open.round += e->acts % 5;
    if (message->type == MESSAGE_FORM) message->as.form.round += e->acts % 5;
    if (message->type == MESSAGE_PROGRESS) message->as.progress.round += e->acts % 5;
    return true;
}

/* ---- lies about which model is the swarm's ---- */

static inline void lies_noise(float *values, size_t count)
{
    uint32_t state = 12345;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)((double)(state >> 8) / (1 << 24) - 0.5) * 20;
    }
}

static inline void donate_noise(struct evil *e, struct donor_snapshot *snapshot)
{
    (void)e;
    for (uint32_t i = 0; i < snapshot->sections_count; i++) {
        if (snapshot->sections[i] != SECTION_PARAMETERS) continue;
        lies_noise(snapshot->values[i], snapshot->counts[i]);
    }
}

static inline void donate_counts(struct evil *e, struct donor_snapshot *snapshot)
{
    (void)e;
    snapshot->step = UINT64_C(1) << 62;
    snapshot->samples = UINT64_C(1) << 62;
}

static inline void donate_moments(struct evil *e, struct donor_snapshot *snapshot)
{
    (void)e;
    for (uint32_t i = 0; i < snapshot->sections_count; i++) {
        if (snapshot->sections[i] == SECTION_PARAMETERS) continue;
        for (size_t k = 0; k < snapshot->counts[i]; k++) {
            snapshot->values[i][k] = k % 2 == 0 ? 1e6f : 1;
        }
    }
}

/* Every second a new model of its own, which all the world has worked on. */
static inline void claim_lineage(struct evil *e, uint64_t now_ns)
{
    struct node *node = e->node;

    if (node->state != NODE_TRAINING || !node->has_lineage || node->own_steps == 0) return;
    if (e->due_ns == 0) e->due_ns = now_ns + NS_PER_S;
    if (now_ns < e->due_ns) return;
    e->due_ns = now_ns + NS_PER_S;
    node->lineage = hash_of(&now_ns, sizeof now_ns);
    node->model_samples = (node->model_samples | UINT64_C(1) << 40) * 2;
}

/* ---- lies about how good its model is ---- */

/* The best of all, of any step, with rates to ruin whoever takes them. */
static inline bool boast(struct evil *e, struct peer_id to, struct message *message)
{
    (void)e, (void)to;
    if (message->type != MESSAGE_SCORE) return true;
    message->as.score.loss = 0;
    message->as.score.step = UINT64_C(1) << 62;
    message->as.score.rate = 1e30f;
    message->as.score.decay = 1e30f;
    return true;
}

/* ---- what stalls ---- */

static inline void take_leases(struct evil *e, uint64_t now_ns)
{
    struct message ask = {.type = MESSAGE_STATE_REQ}, renew = {.type = MESSAGE_MANIFEST_REQ};

    if (e->node->state != NODE_TRAINING || now_ns < e->due_ns) return;
    e->due_ns = now_ns + 3 * NS_PER_S;
    ask.as.state_req.want = 7;
    evil_say_all(&ask);
    for (uint32_t i = 0; i < e->leases_count; i++) {
        renew.as.manifest_req.lease = e->leases[i].lease;
        evil_say(e->leases[i].donor, &renew);
    }
}

/* Members with good signatures that are nobody. */
static inline void invent_members(struct evil *e)
{
    static uint8_t bytes[GOSSIP_UPDATES_MAX][SIGNED_RECORD_BYTES_MAX];
    struct message message = {.type = MESSAGE_GOSSIP};
    struct node *node = e->node;

    for (uint32_t i = 0; i < GOSSIP_UPDATES_MAX; i++) {
        struct member_record record = {.incarnation = 1, .addresses_count = 1};
        struct identity identity;
        uint8_t seed[SECRET_BYTES];
        size_t count;

        node->env->ops->entropy(node->env, seed, sizeof seed);
        identity_from_seed(seed, &identity);
        memcpy(record.public_key, identity.public_key, PUBLIC_KEY_BYTES);
        record.boot = node->options.boot;
        snprintf(record.addresses[0], ADDRESS_BYTES_MAX, "127.0.0.1:%u", 1 + i);
        CHECK(record_sign(&record, &identity, node->options.swarm->run_id, bytes[i],
                          sizeof bytes[i], &count) == RC_OK);
        message.as.gossip.updates[i] = (struct record_ref){bytes[i], (uint16_t)count};
    }
    message.as.gossip.updates_count = GOSSIP_UPDATES_MAX;
    evil_say_all(&message);
}

/* Everybody is dead, it says; `is_forged`: and says so in another's name, badly. */
static inline void accuse_all(struct evil *e, bool is_forged, int times)
{
    static uint8_t bytes[16][ACCUSATION_BYTES];
    struct message message = {.type = MESSAGE_ACCUSE};
    struct node *node = e->node;
    uint32_t count = 0;

    for (; count < node->neighbours_count && count < ARRAY_COUNT(bytes); count++) {
        struct accusation accusation = {.accuser = node->self,
                                        .subject = node->neighbours[count].id,
                                        .boot = node->neighbours[count].boot,
                                        .accuser_incarnation = node->options.incarnation,
                                        .incarnation = 1};

        accusation_sign(&accusation, node->options.identity, node->options.swarm->run_id,
                        bytes[count]);
        if (is_forged) bytes[count][ACCUSATION_BYTES - 1] ^= 1;
    }
    message.as.accuse.accusations = bytes[0];
    message.as.accuse.accusations_bytes = (uint32_t)(count * ACCUSATION_BYTES);
    for (int i = 0; i < times && count > 0; i++) {
        evil_say_all(&message);
    }
}

static inline void accuse_truly(struct evil *e)
{
    accuse_all(e, false, 1);
}

static inline void accuse_falsely(struct evil *e)
{
    accuse_all(e, true, 20);
}

/* Every answer nearly a second late. */
static inline bool answer_late(struct evil *e, struct peer_id to, struct message *message)
{
    switch (message->type) {
    case MESSAGE_JOIN:
    case MESSAGE_ACCEPT:
    case MESSAGE_EDGE_OPEN:
        break;
    default:
        return true;
    }
    if (e->late_count == ARRAY_COUNT(e->late)) return true;
    e->late[e->late_count].to = to;
    e->late[e->late_count].message = *message;
    e->late[e->late_count++].due_ns = node_now(e->node) + 900 * NS_PER_MS;
    return false;
}

static inline bool is_of_a_round(const struct message *message)
{
    return message->type >= MESSAGE_OFFER && message->type <= MESSAGE_CANCEL;
}

static inline bool say_nothing(struct evil *e, struct peer_id to, struct message *message)
{
    (void)e, (void)to;
    return !is_of_a_round(message);
}

static inline bool only_promise(struct evil *e, struct peer_id to, struct message *message)
{
    (void)e, (void)to;
    switch (message->type) {
    case MESSAGE_FORM:
    case MESSAGE_START:
    case MESSAGE_JOIN:
    case MESSAGE_OFFER:
    case MESSAGE_ACCEPT:
    case MESSAGE_SHARE:
    case MESSAGE_EDGE_OPEN:
    case MESSAGE_MIRROR:
        return true;
    default:
        return !is_of_a_round(message);
    }
}

/* All of its values, and then no word of what became of it. */
static inline bool decide_nothing(struct evil *e, struct peer_id to, struct message *message)
{
    (void)e, (void)to;
    switch (message->type) {
    case MESSAGE_COMMIT:
    case MESSAGE_OUTCOME:
    case MESSAGE_SHARE_ACK:
    case MESSAGE_APPLIED:
    case MESSAGE_MEAN:
    case MESSAGE_ABORT:
        return false;
    default:
        return true;
    }
}

static inline bool send_no_chunk(struct evil *e, struct peer_id to, struct inner_header *header,
                                 struct blob **body)
{
    (void)e, (void)to, (void)header, (void)body;
    return false;
}

static const struct evil_behaviour lies[] = {
    {.name = "honest", .exchanges = EVIL_ALL}, /* for comparison */
    /* of values, in rounds */
    {.name = "zero-model", .exchanges = EVIL_ALL, .on_plane = lie_zero},
    {.name = "scaled-model", .exchanges = EVIL_ALL, .on_plane = lie_scaled},
    {.name = "sign-flipped-model", .exchanges = EVIL_ALL, .on_plane = lie_turned},
    {.name = "stale-model", .exchanges = EVIL_ALL, .on_plane = lie_stale},
    {.name = "random-model", .exchanges = EVIL_ALL, .on_plane = lie_another},
    {.name = "nan", .exchanges = EVIL_ALL, .on_chunk = lie_nan},
    {.name = "huge-step", .exchanges = EVIL_ALL, .on_plane = lie_huge_step},
    {.name = "drift", .exchanges = EVIL_ALL, .on_plane = lie_drift},
    {.name = "reversed-step", .exchanges = EVIL_ALL, .on_plane = lie_reversed},
    {.name = "reversed-step-1000", .exchanges = EVIL_ALL, .on_plane = lie_reversed_far},
    {.name = "zero-part", .exchanges = EVIL_GROUP, .on_chunk = lie_zero_part},
    {.name = "random-part", .exchanges = EVIL_GROUP, .on_chunk = lie_another_part},
    /* of a proposer */
    {.name = "ballot-200", .exchanges = EVIL_GROUP, .proposes = true},
    {.name = "greedy-start",
     .exchanges = EVIL_GROUP,
     .proposes = true,
     .on_start = lie_greedy,
     .on_chunk = lie_zero_part},
    {.name = "weighty-start",
     .exchanges = EVIL_GROUP,
     .proposes = true,
     .on_start = lie_weighty,
     .on_plane = lie_another},
    {.name = "belittling-start",
     .exchanges = EVIL_GROUP,
     .proposes = true,
     .on_start = lie_belittle,
     .on_chunk = lie_zero_part},
    {.name = "selective-start", .exchanges = EVIL_GROUP, .proposes = true, .on_send = lie_to_half},
    {.name = "unlike-start", .exchanges = EVIL_GROUP, .proposes = true, .on_send = lie_unlike},
    {.name = "permuted-start", .exchanges = EVIL_GROUP, .proposes = true, .on_send = lie_permuted},
    {.name = "apart-start",
     .exchanges = EVIL_GROUP,
     .on_tick = propose_apart,
     .on_round = start_apart},
    {.name = "left-out",
     .exchanges = EVIL_GROUP,
     .on_tick = propose_to_all,
     .on_round = start_without},
    {.name = "left-out-relinking",
     .exchanges = EVIL_GROUP,
     .on_tick = propose_relinking,
     .on_round = start_without},
    /* of taking part */
    {.name = "leaves-rounds", .exchanges = EVIL_ALL, .on_tick = leave_rounds},
    {.name = "leaves-parts", .exchanges = EVIL_GROUP, .on_tick = leave_parts},
    {.name = "leaves-by-cancel",
     .exchanges = EVIL_GROUP,
     .on_tick = leave_rounds,
     .on_send = leave_by_cancel},
    {.name = "leaves-links", .exchanges = EVIL_GROUP, .on_tick = leave_links},
    /* of weight and generations */
    {.name = "minted-shares",
     .exchanges = EVIL_PUSH,
     .on_tick = mint_weight,
     .on_plane = lie_another},
    {.name = "raised-generation", .exchanges = EVIL_EDGES, .on_send = lie_generation},
    {.name = "rounds-ahead", .exchanges = EVIL_GROUP | EVIL_EDGES, .on_send = lie_ahead},
    /* of which model is the swarm's */
    {.name = "false-lineage",
     .exchanges = EVIL_ALL,
     .on_tick = claim_lineage,
     .on_donation = donate_noise},
    {.name = "donor-values", .exchanges = EVIL_ALL, .on_donation = donate_noise},
    {.name = "donor-counts", .exchanges = EVIL_ALL, .on_donation = donate_counts},
    {.name = "donor-moments", .exchanges = EVIL_ALL, .on_donation = donate_moments},
    /* of how good it is (--averaging pbt), which no exchange hears */
    {.name = "boasts", .on_send = boast, .on_donation = donate_noise},
    {.name = "boasts-counts", .on_send = boast, .on_donation = donate_counts},
    {.name = "boasts-only", .on_send = boast, .is_mean = true},
    /* of time */
    {.name = "leases", .exchanges = EVIL_ALL, .on_tick = take_leases},
    {.name = "invented-members", .exchanges = EVIL_ALL, .each_second = invent_members},
    {.name = "accusations", .exchanges = EVIL_ALL, .each_second = accuse_truly},
    {.name = "forged-accusations", .exchanges = EVIL_ALL, .each_second = accuse_falsely},
    {.name = "error-to-newcomers", .exchanges = EVIL_ALL, .refuses = true},
    {.name = "just-in-time",
     .exchanges = EVIL_GROUP | EVIL_PAIR | EVIL_EDGES | EVIL_MIRROR,
     .on_send = answer_late},
    {.name = "silent", .exchanges = EVIL_ALL, .on_send = say_nothing, .on_chunk = send_no_chunk},
    {.name = "silent-after-join",
     .exchanges = EVIL_ALL,
     .on_send = only_promise,
     .on_chunk = send_no_chunk},
    {.name = "silent-after-data", .exchanges = EVIL_ALL, .on_send = decide_nothing},
};

static inline const struct evil_behaviour *lies_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(lies); i++) {
        if (strcmp(lies[i].name, name) == 0) return &lies[i];
    }
    return NULL;
}

#endif

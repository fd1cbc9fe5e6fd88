/* lies_rounds: of lies.h, those of members that leave group rounds, or begin them for nobody. */
#ifndef GRAPEVINE_TESTS_SIM_LIES_ROUNDS_H
#define GRAPEVINE_TESTS_SIM_LIES_ROUNDS_H

#include "tests/sim/liar.h"

#include "peer/round/internal.h"

/* ---- who leaves ---- */

static inline struct group *group_at_work(struct evil *e)
{
    struct round *round = e->node->round;
    struct group *group;

    if (round == NULL || round->ops != &exchange_group) return NULL;
    group = (struct group *)(void *)round->exchange;
    return group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA ? group : NULL;
}

/* No sooner begun than left. */
static inline void leave_rounds(struct evil *e, uint64_t now_ns)
{
    struct round *round = e->node->round;

    (void)now_ns;
    if (round == NULL) return;
    if (round->ops == &exchange_group ? group_at_work(e) != NULL : round_is_active(round)) {
        round_cancel(round, "a lie");
    }
}

/* ...but only where it was given a part. */
static inline void leave_parts(struct evil *e, uint64_t now_ns)
{
    const struct group *group = group_at_work(e);

    (void)now_ns;
    if (group != NULL && group->parties[group->self].count > 0) {
        round_cancel(e->node->round, "a lie");
    }
}

/* "I have no such START." */
static inline bool leave_by_cancel(struct evil *e, struct peer_id to, struct message *message)
{
    uint64_t stream;

    (void)e, (void)to;
    if (message->type != MESSAGE_ABORT || message->as.abort.code != ABORT_LOCAL) return true;
    stream = exchange_stream(&message->as.abort.key);
    memset(message, 0, sizeof *message);
    message->type = MESSAGE_CANCEL;
    message->as.cancel.stream = stream;
    message->as.cancel.code = CANCEL_START;
    return true;
}

static inline void leave_links(struct evil *e, uint64_t now_ns)
{
    const struct group *group = group_at_work(e);
    struct peer_id ids[GROUP_MEMBERS_MAX];
    uint32_t count = 0;

    if (group == NULL || now_ns < e->due_ns) return;
    e->due_ns = now_ns + NS_PER_S / 4;
    for (; count < group->parties_count; count++) {
        ids[count] = group->parties[count].ref.id;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!peer_id_is_equal(ids[i], e->node->self)) links_hangup(e->node->links, ids[i], "a lie");
    }
}

/* ---- who proposes ---- */

static inline struct message good_form(struct evil *e)
{
    struct message message = evil_form(evil_round(), 60);
    const struct group *group = (const struct group *)(const void *)e->node->round->exchange;

    memcpy(message.as.form.codec, group->options.codec, sizeof message.as.form.codec);
    return message;
}

/* A proposal for each victim, of itself, that one, and another, who is told of yet another. */
static inline struct message own_form(struct evil *e, uint32_t victim)
{
    const struct neighbour *all = e->node->neighbours;
    const struct neighbour *other = &all[(victim + 1) % e->node->neighbours_count];
    struct message message = good_form(e);
    struct message_form *form = &message.as.form;

    form->members_count = 3;
    form->members[1] = (struct member_ref){all[victim].id, all[victim].boot};
    form->members[2] = (struct member_ref){other->id, other->boot};
    return message;
}

static inline bool may_propose(struct evil *e, uint64_t now_ns)
{
    const struct node *node = e->node;

    if (node->round == NULL || node->state != NODE_TRAINING || node->neighbours_count < 2) {
        return false;
    }
    if (now_ns < e->due_ns) return false;
    e->due_ns = now_ns + NS_PER_S / 10;
    evil = e;
    return true;
}

static inline void propose_apart(struct evil *e, uint64_t now_ns)
{
    if (!may_propose(e, now_ns)) return;
    for (uint32_t i = 0; i < e->node->neighbours_count; i++) {
        struct message form = own_form(e, i);

        evil_say(e->node->neighbours[i].id, &form);
    }
}

static inline void propose_to_all(struct evil *e, uint64_t now_ns)
{
    struct message form;

    if (!may_propose(e, now_ns)) return;
    form = good_form(e);
    evil_say_all(&form);
}

/* START for who has joined, saying of all what it said of itself. */
static inline void start_for(struct evil *e, struct peer_id to, const struct message_join *join,
                             struct message *start)
{
    uint8_t statements[GROUP_MEMBERS_MAX * STATEMENT_BYTES];
    struct message_form *form = &start->as.form;

    for (uint32_t k = 0; k < form->members_count; k++) {
        store_le64(statements + k * STATEMENT_BYTES, join->samples);
        store_le64(statements + k * STATEMENT_BYTES + 8, join->rate);
    }
    start->type = MESSAGE_START;
    form->round = join->round;
    form->ballot = join->ballot;
    form->statements = statements;
    form->statements_bytes = form->members_count * STATEMENT_BYTES;
    evil = e;
    evil_say(to, start);
}

/* Whoever joins has its own START. */
static inline bool start_apart(struct evil *e, struct peer_id from, const struct message *message)
{
    const struct node *node = e->node;

    if (message->type != MESSAGE_JOIN) return true;
    for (uint32_t i = 0; i < node->neighbours_count && node->neighbours_count > 1; i++) {
        struct message start;

        evil = e;
        if (!peer_id_is_equal(node->neighbours[i].id, from)) continue;
        start = own_form(e, i);
        start_for(e, from, &message->as.join, &start);
    }
    return false;
}

/* ...in which it is not. */
static inline bool start_without(struct evil *e, struct peer_id from, const struct message *message)
{
    struct message start;
    struct message_form *form = &start.as.form;

    if (message->type != MESSAGE_JOIN) return true;
    evil = e;
    start = good_form(e);
    for (uint32_t i = 0; i < form->members_count; i++) {
        if (!peer_id_is_equal(form->members[i].id, from)) continue;
        form->members[i] = form->members[--form->members_count];
    }
    start_for(e, from, &message->as.join, &start);
    return false;
}

/* ...on links that are new each time. */
static inline void propose_relinking(struct evil *e, uint64_t now_ns)
{
    struct peer_id ids[LINKS_MAX];
    uint32_t count = 0;

    propose_to_all(e, now_ns);
    if (e->due_ns != now_ns + NS_PER_S / 10 || ++e->proposed % 4 != 0) return;
    for (; count < e->node->neighbours_count; count++) {
        ids[count] = e->node->neighbours[count].id;
    }
    for (uint32_t i = 0; i < count; i++) {
        links_hangup(e->node->links, ids[i], "a lie");
    }
}

#endif

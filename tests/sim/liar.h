/*
 * liar: where lies.h takes hold of the shipping node, beside what evil.h does: the model that its
 * rounds take and give back, what joiners are given, who is let in, what it proposes. The linker
 * hands these calls to us (--wrap, tests/CMakeLists.txt); honest nodes pass unchanged.
 */
#ifndef GRAPEVINE_TESTS_SIM_LIAR_H
#define GRAPEVINE_TESTS_SIM_LIAR_H

#include "tests/sim/evil.h"

#include "averaging/group/group.h"

/* Of the types that they stand for, whatever becomes of these. */
__typeof__(lane_plane_export) __real_lane_plane_export, __wrap_lane_plane_export;
__typeof__(lane_plane_import) __real_lane_plane_import, __wrap_lane_plane_import;
__typeof__(models_copy) __real_models_copy, __wrap_models_copy;
__typeof__(door_on_entry) __real_door_on_entry, __wrap_door_on_entry;
__typeof__(models_on_message) __real_models_on_message, __wrap_models_on_message;
__typeof__(rounds_on_message) __real_rounds_on_message, __wrap_rounds_on_message;
__typeof__(links_tick) __real_links_tick, __wrap_links_tick;
__typeof__(group_form_begin) __real_group_form_begin, __wrap_group_form_begin;
__typeof__(group_plan_choose) __real_group_plan_choose, __wrap_group_plan_choose;

static inline struct evil *lies_of(const struct node *node)
{
    for (uint32_t i = 0; i < evils_count; i++) {
        if (evils[i].node == node) return &evils[i];
    }
    return NULL;
}

static inline struct evil *lies_of_group(const struct group *group)
{
    for (uint32_t i = 0; i < evils_count; i++) {
        if (peer_id_is_equal(evils[i].node->self, group->options.self)) return &evils[i];
    }
    return NULL;
}

/* What every member tells the others in rounds, for liars who are told by each other what all say:
 * a test that has some sets it. In the training lane. */
static void (*lies_overheard)(const struct node *node, const float *plane, size_t count);

/* ---- where the node is held ---- */

static inline float *lies_plane(size_t count)
{
    float *plane = mem_array(count, sizeof *plane);

    CHECK(plane != NULL);
    return plane;
}

static inline double lies_norm(const float *a, const float *b, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        double apart = (double)a[i] - (b == NULL ? 0 : (double)b[i]);

        sum += apart * apart;
    }
    return sqrt(sum);
}

static inline void lies_planes(struct evil *e, const float *truth, size_t count)
{
    double norm;

    e->count = count;
    e->lied = lies_plane(count);
    e->base = lies_plane(count);
    e->first = lies_plane(count);
    e->direction = lies_plane(count);
    memcpy(e->first, truth, count * sizeof(float));
    memcpy(e->base, truth, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        e->direction[i] = (float)((i * 2654435761u >> 7) % 2001) / 1000 - 1;
    }
    norm = lies_norm(e->direction, NULL, count);
    for (size_t i = 0; i < count; i++) {
        e->direction[i] = (float)((double)e->direction[i] / norm);
    }
}

enum rc __wrap_lane_plane_export(struct node *node, float *out, bool may_view, const float **view,
                                 size_t *count)
{
    struct evil *e = lies_of(node);
    bool lies = e != NULL && e->behaviour->on_plane != NULL;
    enum rc rc = __real_lane_plane_export(node, out, may_view && !lies, view, count);

    if (rc == RC_OK && lies_overheard != NULL && e == NULL) {
        lies_overheard(node, *view != NULL ? *view : out, node->mixed);
    }
    if (rc != RC_OK || !lies) return rc;
    if (e->lied == NULL) lies_planes(e, out, node->mixed);
    memcpy(e->lied, out, e->count * sizeof(float));
    e->behaviour->on_plane(e, out, e->count);
    for (size_t i = 0; i < e->count; i++) {
        float truth = e->lied[i];

        e->lied[i] = out[i] - truth;
        e->base[i] = truth; /* until a round has moved it */
    }
    return rc;
}

enum rc __wrap_lane_plane_import(struct node *node, const float *difference)
{
    struct evil *e = lies_of(node);
    float *corrected;
    enum rc rc;

    if (e == NULL || e->lied == NULL) return __real_lane_plane_import(node, difference);
    corrected = lies_plane(e->count);
    for (size_t i = 0; i < e->count; i++) { /* 0: of a chunk that was missed */
        corrected[i] = difference[i] == 0 ? 0 : difference[i] + e->lied[i];
        e->base[i] += corrected[i];
    }
    e->has_base = true;
    rc = __real_lane_plane_import(node, corrected);
    mem_free(corrected);
    return rc;
}

enum rc __wrap_models_copy(struct models_donation *donation)
{
    struct evil *e = lies_of(donation->node);
    enum rc rc;

    /* Who lies in rounds is no donor, too: those are other liars. */
    if (e != NULL && e->behaviour->on_plane != NULL) return RC_NOMEM;
    rc = __real_models_copy(donation);
    if (rc == RC_OK && e != NULL && e->behaviour->on_donation != NULL) {
        e->behaviour->on_donation(e, &donation->snapshot);
    }
    return rc;
}

enum rc __wrap_door_on_entry(void *context, struct peer_id peer, const struct hello *hello,
                             const char *address, bool is_dialled, struct fault *why)
{
    struct evil *e = lies_of(context);

    /* Once it is in itself. */
    if (e != NULL && e->behaviour->refuses && e->node->state == NODE_TRAINING && !is_dialled) {
        return fault_set(why, RC_REFUSED, "this swarm is closed; leave");
    }
    return __real_door_on_entry(context, peer, hello, address, is_dialled, why);
}

void __wrap_models_on_message(struct node *node, struct peer_id from, const struct message *message)
{
    struct evil *e = lies_of(node);

    if (e != NULL && message->type == MESSAGE_STATE_REQ) {
        e->asked++;
        if (e->behaviour->is_mean) return;
    }
    if (e != NULL && message->type == MESSAGE_STATE_MANIFEST && node->state == NODE_TRAINING) {
        uint32_t at = 0;

        while (at < e->leases_count && !peer_id_is_equal(e->leases[at].donor, from)) {
            at++;
        }
        if (at == e->leases_count && at < ARRAY_COUNT(e->leases)) e->leases_count++;
        if (at < ARRAY_COUNT(e->leases)) {
            e->leases[at].donor = from;
            e->leases[at].lease = message->as.state_manifest.lease;
        }
    }
    __real_models_on_message(node, from, message);
}

void __wrap_rounds_on_message(struct node *node, struct peer_id from, const struct message *message)
{
    struct evil *e = lies_of(node);

    if (e != NULL && e->behaviour->on_round != NULL && !e->behaviour->on_round(e, from, message)) {
        return;
    }
    __real_rounds_on_message(node, from, message);
}

static inline void lies_late(struct evil *e, uint64_t now_ns)
{
    for (uint32_t i = 0; i < e->late_count;) {
        if (now_ns < e->late[i].due_ns) {
            i++;
            continue;
        }
        (void)__real_links_send(e->node->links, e->late[i].to, &e->late[i].message);
        e->late[i] = e->late[--e->late_count];
    }
}

void __wrap_links_tick(struct links *links, uint64_t now_ns)
{
    if (evil_is(links)) {
        struct evil *e = evil;

        lies_late(e, now_ns);
        if (e->behaviour->on_tick != NULL) e->behaviour->on_tick(e, now_ns);
    }
    __real_links_tick(links, now_ns);
}

/* First in the order, and above every ballot but the last few. */
void __wrap_group_form_begin(struct group *group, struct commands *out)
{
    struct evil *e = lies_of_group(group);

    if (e != NULL && e->behaviour->proposes && group->order_count > 0) {
        struct member_ref self = group->order[group->order_self];

        group->order[group->order_self] = group->order[0];
        group->order[0] = self;
        group->order_self = 0;
        group->promised = (struct promised){group->round, 200};
    }
    __real_group_form_begin(group, out);
}

void __wrap_group_plan_choose(struct group *group, struct message_form *start)
{
    struct evil *e = lies_of_group(group);

    __real_group_plan_choose(group, start);
    if (e == NULL || e->behaviour->on_start == NULL) return;
    e->behaviour->on_start(e, start, group->statements);
}

#endif

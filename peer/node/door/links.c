/*
 * What links tell the node: who is there and who is gone, which dials failed, and what came, each
 * message handed to the machine that it is for.
 */
#include "peer/env/relay/env.h"
#include "peer/link/crash_messages.h"
#include "peer/node/door/internal.h"

#include <stdio.h>

struct neighbour *door_neighbour(const struct node *node, struct peer_id id)
{
    uint32_t key = load_le32(id.bytes);

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        if (node->neighbour_keys[i] != key) continue;
        if (peer_id_is_equal(node->neighbours[i].id, id)) {
            return (struct neighbour *)&node->neighbours[i]; /* whose node may change it */
        }
    }
    return NULL;
}

struct peer_id *door_everyone(const struct node *node, size_t *count)
{
    struct membership_counts counts;
    struct peer_id *ids;

    membership_counts(node->membership, &counts);
    ids = mem_array(counts.believed + 1, sizeof *ids);
    if (ids == NULL) return NULL;
    *count = membership_likely(node->membership, ids, counts.believed);
    *count = peer_id_insert(ids, *count, node->self);
    return ids;
}

/* ---- what links tell ---- */

/* What was under way on a link is lost with it. */
static void tell_lost(struct node *node, struct peer_id peer)
{
    if (node->round != NULL) round_on_link_lost(node->round, peer);
    models_on_link_lost(node, peer);
}

static void on_open(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled)
{
    struct node *node = context;
    struct neighbour *neighbour;
    char id[PEER_ID_TEXT];
    bool is_new;

    door_reach_on_open(node, peer, hello, address, is_dialled);
    if (hello->role == HELLO_OBSERVER) return; /* it asks, we answer; it is no member */
    if (trust_is_refused(node->trust, peer, node_now(node))) {
        if (is_dialled) membership_on_dial_failed(node->membership, address, node_now(node));
        links_hangup(node->links, peer,
                     "it broke the rules too often, and is shut out for a while");
        return;
    }
    neighbour = door_neighbour(node, peer);
    is_new = neighbour == NULL;
    if (is_new) {
        CHECK(node->neighbours_count < LINKS_MAX);
        node->neighbour_keys[node->neighbours_count] = load_le32(peer.bytes);
        neighbour = &node->neighbours[node->neighbours_count++];
    } else { /* the link was replaced */
        door_relay_on_closed(node, peer);
        tell_lost(node, peer);
    }
    *neighbour = (struct neighbour){.id = peer,
                                    .boot = hello->boot,
                                    .is_relayed = relay_is_address(address),
                                    .is_keeper = (hello->features & FEATURE_KEEPER) != 0,
                                    .place = door_place(address),
                                    .linked_ns = node_now(node),
                                    .moved_ns = node_now(node)};
    if (!neighbour->is_relayed) membership_met_at(node->membership, address, node_now(node));
    membership_on_link_up(node->membership, peer, hello->public_key, hello->boot,
                          is_dialled && !neighbour->is_relayed ? address : "", node_now(node),
                          &node->outbox);
    if (node->round != NULL) round_on_link_up(node->round, peer, hello->boot);
    models_tell(node, &peer);
    peer_id_format(peer, id);
    log_line(node->options.log, is_new ? LOG_INFO : LOG_DEBUG,
             "linked with %s (peer %.8s, %u in all)", address, id, node->neighbours_count);
}

static void on_closed(void *context, struct peer_id peer, enum rc rc, const char *why)
{
    struct node *node = context;
    struct neighbour *neighbour = door_neighbour(node, peer);
    char id[PEER_ID_TEXT];

    (void)rc;
    reach_on_link_lost(node->door->reach, peer);
    lane_answer_forget(node, peer);
    verify_on_link_lost(node, peer);
    if (neighbour == NULL) { /* an observer */
        models_on_link_lost(node, peer);
        return;
    }
    door_relay_on_closed(node, peer);
    node->neighbours_count--;
    node->neighbour_keys[neighbour - node->neighbours] =
        node->neighbour_keys[node->neighbours_count];
    *neighbour = node->neighbours[node->neighbours_count];
    membership_on_link_lost(node->membership, peer, node_now(node));
    tell_lost(node, peer);
    peer_id_format(peer, id);
    log_info(node->options.log, "link with peer %.8s closed: %s (%u in all)", id, why,
             node->neighbours_count);
}

/* Have all of --bootstrap, but this peer itself, answered alike, each so often in a row? Nobody
 * else is asked: what an address from an earlier run says, or one that others told of, ends
 * nothing. */
static bool all_bootstraps_say(const struct node *node, enum rc rc, uint32_t times)
{
    uint32_t others = 0;

    for (uint32_t i = 0; i < node->door->bootstrap_count; i++) {
        const struct bootstrap_try *bootstrap = &node->door->bootstrap[i];

        if (bootstrap->is_self) continue;
        if (bootstrap->failures < times || bootstrap->rc != rc) return false;
        others++;
    }
    return others > 0;
}

/* Some failures do not heal by trying again: say so at once, unless someone may yet let us in. A
 * busy peer may close a handshake, or answer it too late: once is no proof of a wrong key. */
static void bootstrap_failed(struct node *node, const char *address, enum rc rc, const char *why)
{
    bool is_final = rc == RC_MISMATCH || rc == RC_REFUSED;

    for (uint32_t i = 0; i < node->door->bootstrap_count; i++) {
        struct bootstrap_try *bootstrap = &node->door->bootstrap[i];

        if (strcmp(bootstrap->address, address) != 0) continue;
        bootstrap->failures = bootstrap->rc == rc ? bootstrap->failures + 1 : 1;
        bootstrap->rc = rc;
        snprintf(bootstrap->why, sizeof bootstrap->why, "%s", why);
    }
    if (node->state != NODE_JOINING || node->neighbours_count > 0) return;
    if (rc == RC_AUTH && node->options.resume == NULL && !node->options.is_bootstrap_heard) {
        is_final = all_bootstraps_say(node, rc, NODE_HANDSHAKE_TRIES);
    } else if (is_final) {
        is_final = all_bootstraps_say(node, rc, 1);
    }
    if (is_final) node_fail(node, rc, why);
}

/* RC_LIMIT: it is this peer that has no place, and nothing was learned of the other. */
static void dial_ended(struct node *node, const char *address, enum rc rc)
{
    if (rc == RC_LIMIT) {
        membership_on_dial_put_off(node->membership, address, node_now(node));
    } else {
        membership_on_dial_failed(node->membership, address, node_now(node));
    }
}

static void on_dial_failed(void *context, const char *address, enum rc rc, const char *why,
                           const struct peer_id *peer)
{
    struct node *node = context;

    if (rc != RC_REPLAY) {
        dial_ended(node, address, rc);
        if (rc == RC_REFUSED) {
            log_warn(node->options.log, "%s", why);
        } else {
            log_debug(node->options.log, "%s", why);
        }
        bootstrap_failed(node, address, rc, why);
        return;
    }
    CHECK(peer != NULL);
    membership_on_link_duplicate(node->membership, address, *peer, node_now(node));
    if (!peer_id_is_equal(*peer, node->self)) return;
    for (uint32_t i = 0; i < node->door->bootstrap_count; i++) {
        if (strcmp(node->door->bootstrap[i].address, address) == 0)
            node->door->bootstrap[i].is_self = true;
    }
}

void door_dial_due(struct node *node, uint64_t now_ns)
{
    char address[ADDRESS_BYTES_MAX];

    while (node->state < NODE_LEAVING && membership_next_dial(node->membership, now_ns, address)) {
        enum rc rc = links_dial(node->links, address);

        if (rc != RC_OK) {
            dial_ended(node, address, rc);
            bootstrap_failed(node, address, rc, rc_text(rc));
        }
    }
}

static void on_heard(void *context, struct peer_id peer)
{
    struct node *node = context;

    membership_on_heard(node->membership, peer, node_now(node));
}

static void send_status(struct node *node, struct peer_id to)
{
    char *text = node_status_text(node, STATUS_BYTES_MAX);
    struct message message = {.type = MESSAGE_STATUS};

    if (text != NULL) {
        message.as.status.text = text;
        message.as.status.text_bytes = (uint32_t)strlen(text);
        (void)links_send(node->links, to, &message);
    }
    mem_free(text);
}

static void on_progress(struct node *node, struct peer_id from,
                        const struct message_progress *progress)
{
    struct neighbour *neighbour = door_neighbour(node, from);

    if (neighbour == NULL) return;
    if (progress->step != neighbour->progress.step) neighbour->moved_ns = node_now(node);
    rounds_busy_hear(node, neighbour, progress);
    models_hear(node, neighbour, progress);
    if (node->round != NULL && node->has_lineage && node->state == NODE_TRAINING &&
        digest_is_equal(progress->lineage, node->lineage)) {
        round_set_number(node->round, models_round_believed(node));
    }
    models_decide(node);
}

static void on_member_message(struct node *node, struct peer_id from, const struct message *message)
{
    enum rc rc =
        membership_on_message(node->membership, from, message, node_now(node), &node->outbox);

    if (rc == RC_OK) return;
    log_debug(node->options.log, "%s refused: %s", message_type_name(message->type), rc_text(rc));
    /* Whatever a member passes on it has checked itself. */
    if (rc == RC_AUTH || rc == RC_FORMAT) door_score(node, from, SCORE_BROKE);
}

static void on_message(void *context, struct peer_id from, const struct message *message)
{
    struct node *node = context;

    crash_message_received((uint8_t)message->type);
    if (message->type == MESSAGE_STATUS_REQ) {
        send_status(node, from);
    } else if (message->type == MESSAGE_PROBE) {
        lane_answer_hear(node, from, &message->as.probe);
    } else if (door_reach_on_message(node, from, message)) {
        return;
    } else if (door_neighbour(node, from) == NULL) {
        models_on_visit(node, from, message);
    } else if (door_relay_on_message(node, from, message) ||
               rounds_on_outcome(node, from, message)) {
        return;
    } else if (message->type == MESSAGE_ERROR) {
        log_warn(node->options.log, "a neighbour ends its link with this peer: %s",
                 message->as.error.text);
        links_hangup(node->links, from, "it ended the link");
    } else if (message->type >= MESSAGE_PING && message->type <= MESSAGE_PRUNE) {
        on_member_message(node, from, message);
    } else if (message->type == MESSAGE_PROGRESS) {
        on_progress(node, from, &message->as.progress);
    } else if (message->type == MESSAGE_GOAWAY) {
        membership_on_goodbye(node->membership, from, node_now(node));
        if (node->round != NULL) round_on_link_lost(node->round, from);
        links_hangup(node->links, from,
                     message->as.goaway.reason == GOAWAY_FINISHED ? "it reached its goal"
                                                                  : "it left the swarm");
    } else if (message->type >= MESSAGE_OFFER && message->type <= MESSAGE_CANCEL) {
        rounds_on_message(node, from, message);
    } else if (message->type >= MESSAGE_CLAIM && message->type <= MESSAGE_REVEAL) {
        verify_on_message(node, from, message);
    } else if (message->type >= MESSAGE_STATE_REQ && message->type <= MESSAGE_SCORE) {
        models_on_message(node, from, message);
    }
}

static void on_data(void *context, struct peer_id from, const struct inner_header *header,
                    const uint8_t *body, size_t count)
{
    struct node *node = context;

    if (door_neighbour(node, from) == NULL) return;
    crash_data_received(header->flags);
    if (header->flags == DATA_RELAY) {
        door_relay_on_data(node, from, header, body, count);
    } else if (header->flags == DATA_STATE) {
        models_on_bucket(node, from, header, body, count);
    } else if (node->round != NULL && node->state == NODE_TRAINING) {
        door_on_chunk(node, from, header, body, count);
    }
}

static void on_bulk_drained(void *context, struct peer_id peer)
{
    models_donate(context, peer);
}

struct links_events door_links_events(struct node *node)
{
    return (struct links_events){.context = node,
                                 .on_open = on_open,
                                 .on_message = on_message,
                                 .on_data = on_data,
                                 .on_heard = on_heard,
                                 .on_bulk_drained = on_bulk_drained,
                                 .on_work = node_continue,
                                 .on_closed = on_closed,
                                 .on_dial_failed = on_dial_failed,
                                 .on_dialback = door_reach_on_dialback,
                                 .on_probe_ended = door_reach_on_probe_ended,
                                 .on_entry = door_on_entry,
                                 .is_known = door_is_known,
                                 .on_violation = door_on_violation};
}

/* ---- what the env tells: each event ends in node_continue() ---- */

static void on_env_accepted(void *context, uint64_t link, const char *remote)
{
    struct node *node = context;

    links_on_accepted(node->links, link, remote);
    node_continue(node);
}

static void on_env_connected(void *context, uint64_t link)
{
    struct node *node = context;

    links_on_connected(node->links, link);
    node_continue(node);
}

static void on_env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    struct node *node = context;

    links_on_frame(node->links, link, frame, count);
    node_continue(node);
}

static void on_env_drain(void *context, uint64_t link)
{
    struct node *node = context;

    links_on_drain(node->links, link);
    node_continue(node);
}

static void on_env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    struct node *node = context;

    links_on_lost(node->links, link, rc, why);
    node_continue(node);
}

struct env_events door_env_events(struct node *node)
{
    return (struct env_events){.context = node,
                               .on_accepted = on_env_accepted,
                               .on_connected = on_env_connected,
                               .on_frame = on_env_frame,
                               .on_drain = on_env_drain,
                               .on_lost = on_env_lost,
                               .on_wake = node_continue,
                               .on_signal = door_on_signal};
}

/*
 * What became of a pair round, asked and told through a common neighbour, when the link between the
 * two is gone: network docs, "rounds in doubt". One hop each way: a question is passed on for the
 * participant itself only, and an answer from the initiator itself only. The initiator signs, and
 * whoever passes its word on has checked it. At most OUTCOMES_PER_S of either from one neighbour.
 * Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "gossip/signed/outcome.h"
#include "peer/times.h"

enum { OUTCOMES_PER_S = 4 };

static void answer(struct node *node, struct peer_id to, const struct message_outcome_ask *ask)
{
    struct outcome_word word = {.key = ask->key, .participant = ask->participant};
    struct message message = {.type = MESSAGE_OUTCOME_TOLD};

    if (node->round == NULL ||
        !round_outcome(node->round, &word.key, word.participant, &word.state)) {
        return;
    }
    outcome_sign(&word, node->options.identity, node->options.swarm->run_id,
                 message.as.outcome_told.word);
    (void)links_send(node->links, to, &message); /* it asks again */
}

static void on_ask(struct node *node, struct peer_id from, const struct message *message)
{
    const struct message_outcome_ask *ask = &message->as.outcome_ask;

    if (peer_id_is_equal(ask->key.initiator, node->self)) {
        answer(node, from, ask);
    } else if (peer_id_is_equal(ask->participant, from) &&
               door_neighbour(node, ask->key.initiator) != NULL) {
        (void)links_send(node->links, ask->key.initiator, message);
    }
}

static void on_told(struct node *node, struct peer_id from, const struct message *message)
{
    struct outcome_word word;
    enum rc rc = outcome_verify(message->as.outcome_told.word, node->options.swarm->run_id, &word);

    if (rc != RC_OK) { /* who sends it has signed it, or should have looked */
        door_score(node, from, SCORE_BROKE);
    } else if (peer_id_is_equal(word.participant, node->self)) {
        rc = node->round == NULL ? RC_STALE : round_told(node->round, &word.key, word.state);
    } else if (peer_id_is_equal(word.key.initiator, from) &&
               door_neighbour(node, word.participant) != NULL) {
        (void)links_send(node->links, word.participant, message);
    }
    if (rc != RC_OK) log_debug(node->options.log, "an outcome refused: %s", rc_text(rc));
}

bool rounds_on_outcome(struct node *node, struct peer_id from, const struct message *message)
{
    struct neighbour *neighbour = door_neighbour(node, from);

    if (message->type != MESSAGE_OUTCOME_ASK && message->type != MESSAGE_OUTCOME_TOLD) return false;
    if (neighbour == NULL ||
        !door_ration(&neighbour->outcomes, node_now(node), OUTCOMES_NS, OUTCOMES_PER_S)) {
        return true;
    }
    if (message->type == MESSAGE_OUTCOME_ASK) {
        on_ask(node, from, message);
    } else {
        on_told(node, from, message);
    }
    return true;
}

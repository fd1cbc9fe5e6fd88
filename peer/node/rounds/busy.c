/*
 * busy: while the training lane does something long (an evaluation, or what lasted long before), no
 * snapshot can be taken, and a group that counted on one would wait for it. So neighbours are told
 * (PROGRESS), leave this peer out of what they begin, and what they have proposed already is
 * declined at once (see exchange.h, is_busy); such a job is put off a little while a group forms.
 * Where rounds are farther apart than the job is long, it is waited for as before: being left out
 * of one of few rounds costs more.
 *
 * Evaluations fall together: who hears that a neighbour begins one, and has one due before half of
 * its own period is over, has it now. Then nobody takes steps alone meanwhile. That is worth it now
 * and then only: a member that says it all the time makes nobody evaluate more than a seventh
 * oftener. Pairs and graphs need none of this: nobody but the two ends waits. Loop thread only.
 */
#include "peer/node/rounds/internal.h"

#include "peer/times.h"

enum { MOVE_PERIODS = 4 }; /* reports from one evaluation that was moved to the next */

static bool meets_groups(const struct node *node)
{
    return node->round != NULL && node->rounds->inner->is_common && pace_has_periods(node);
}

static uint8_t busy_with(const struct node *node, enum border_kind kind)
{
    uint64_t usual_ns = node->rounds->busy.took_ns[kind];

    if (!meets_groups(node) || node->state != NODE_TRAINING) return BUSY_NOT;
    if (kind == BORDER_EVALUATION) {
        if (usual_ns == 0) usual_ns = BUSY_UNKNOWN_NS;
        return usual_ns > node->rounds->period_ns ? BUSY_EVALUATING : BUSY_SHORTLY;
    }
    if (kind != BORDER_CHECKPOINT && kind != BORDER_RESHARD) return BUSY_NOT;
    return usual_ns >= BUSY_LONG_NS && usual_ns > node->rounds->period_ns ? BUSY_LONG : BUSY_NOT;
}

static bool takes_part(uint8_t busy)
{
    return busy == BUSY_NOT || busy == BUSY_SHORTLY;
}

void rounds_busy_begin(struct node *node, enum border_kind kind)
{
    node->rounds->busy.told = busy_with(node, kind);
    if (node->rounds->busy.told == BUSY_NOT) return;
    if (!takes_part(node->rounds->busy.told)) round_set_busy(node->round, true);
    models_tell(node, NULL);
}

void rounds_busy_end(struct node *node, enum border_kind kind, uint64_t took_ns)
{
    node->rounds->busy.took_ns[kind] = took_ns;
    node->rounds->busy.long_jobs += kind != BORDER_STEPS && took_ns > node->step_ns;
    if (node->rounds->busy.told == BUSY_NOT) return;
    if (!takes_part(node->rounds->busy.told)) round_set_busy(node->round, false);
    node->rounds->busy.told = BUSY_NOT;
    models_tell(node, NULL);
}

static bool is_evaluating(const struct message_progress *progress)
{
    return progress->busy == BUSY_EVALUATING || progress->busy == BUSY_SHORTLY;
}

void rounds_busy_hear(struct node *node, const struct neighbour *from,
                      const struct message_progress *progress)
{
    bool begins = is_evaluating(progress) && !is_evaluating(&from->progress);
    struct rounds_busy *busy = &node->rounds->busy;
    struct watch *watch = &node->watch;
    uint64_t now_ns = node_now(node), every_ns = node->options.report_every_ns;
    uint64_t due_ns = watch->due_ns > watch->evaluate_ns ? watch->due_ns : watch->evaluate_ns;

    if (watch->pause_ns > every_ns) every_ns = watch->pause_ns;
    if (!begins || busy->told != BUSY_NOT || !meets_groups(node)) return;
    if (!digest_is_equal(progress->lineage, node->lineage) || node->own_steps == 0) return;
    if (due_ns <= now_ns || due_ns > now_ns + every_ns / 2) return;
    if (busy->moved_ns != 0 && now_ns < busy->moved_ns + MOVE_PERIODS * every_ns) return;
    watch->due_ns = watch->evaluate_ns = busy->moved_ns = now_ns;
}

/* A group forms in a round trip once its members' answers are known, but at first, or beside who is
 * silent, it takes as long as the first window: nobody's reports or checkpoints wait for that. */
uint64_t rounds_busy_put_off_ns(const struct node *node)
{
    uint64_t most_ns = node->options.report_every_ns / 2;

    if (node->round == NULL || !round_is_forming(node->round)) return 0;
    return most_ns < BUSY_PUT_OFF_NS ? most_ns : BUSY_PUT_OFF_NS;
}

bool rounds_busy_leaves(const struct node *node, const struct neighbour *other)
{
    return meets_groups(node) && !takes_part(other->progress.busy);
}

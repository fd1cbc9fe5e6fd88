/*
 * Rounds of neighbours, where they differ from the journey of round.c: what arrives is staged apart
 * for each neighbour, and counts neighbour by neighbour as the exchange says. Their jobs stand in
 * the same lane as all others, so a slot is taken before its next owner's chunks come into it.
 */
#include "peer/round/internal.h"

#include "base/check.h"

void round_edge_prepare(struct round *round, const struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (rule->prepare != NULL) rule->prepare(round->rule, round->snapshot, job->has_moved);
}

/* As if the edge had been cut; but the other end has gone half the way, so what the rule keeps no
 * longer adds up with its. */
static void lose_share(struct round *round)
{
    bool is_short = false;

    for (int i = 0; i < ROUND_DOUBTS_MAX; i++) {
        is_short |= !round->doubts[i].is_used;
    }
    log_warn(round->options.log, "a neighbour's share is lost: %s",
             is_short ? "out of memory" : "too many of unknown outcome wait to be applied");
    round->begins_anew = true;
}

void round_edge(struct round *round, const struct command *command)
{
    const struct command_edge *edge = &command->edge;
    struct round_job *job;

    /* Of no sum: what was not there in time is as if it had been cut, and nothing is owed. */
    if (edge->is_in_doubt && round->gather != NULL) return;
    job = round_job_promised(round, WORK_EDGE, round->options.values);
    if (job != NULL && edge->is_in_doubt) {
        job->doubt = round_doubt_add(round, &edge->key);
        if (job->doubt == NULL) {
            round_job_free(job);
            job = NULL;
        }
    }
    if (job == NULL) {
        lose_share(round);
        return;
    }
    if (!edge->is_in_doubt) round->has_taken = true;
    job->slot = edge->slot;
    job->weight = edge->weight;
    job->passes = edge->passes;
    job->chunk.from = command->to;
    job->whole = edge->whole;
    job->radius = edge->radius;
    job->shared = edge->shared;
    if (job->doubt != NULL) job->doubt->is_settling = true;
    round_job_submit(round, job);
}

void round_edge_run(struct round *round, struct round_job *job)
{
    const struct rule_ops *rule = round->options.strategy->rule;

    if (round->gather != NULL) {
        round_guard_take(round, job);
    } else if (job->doubt != NULL) {
        rule->keep(round->rule, job->slot, job->weight, job->doubt->difference);
    } else if (job->passes) {
        rule->pass(round->rule, job->slot, job->weight, job->shared);
    } else {
        rule->take(round->rule, job->slot, job->weight);
    }
}

void round_edge_done(struct round_job *job)
{
    if (job->doubt == NULL) return;
    job->doubt->is_settling = false;
    if (job->doubt->is_dropped) round_doubt_clear(job->round, job->doubt);
}

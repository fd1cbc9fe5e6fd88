/*
 * Rounds in a trace (peer/env/trace.h): each a row of its own from when this peer was ready for it
 * to its end, with what came of it, and the instants at which it began, was formed and ended. The
 * number is that of the swarm where all count alike, else of this peer's own rounds. Loop thread.
 */
#include "peer/round/internal.h"

/* Of the round that runs, as spans have it. */
static uint64_t number_of(const struct round *round)
{
    struct exchange_counts counts;

    if (round->ops->set_round == NULL) return round->traced + 1;
    round->ops->counts(round->exchange, &counts);
    return round->ops->is_graph ? counts.next_round : counts.next_round + 1;
}

static void instant(const struct round *round, const char *name, const char *detail)
{
    const struct tracer *tracer = round->options.env->tracer;

    trace_instant(
        tracer, TRACE_LOOP,
        &(struct trace_span){
            .name = name, .detail = detail, .begin_ns = round_now(round), .round = tracer->round});
}

static void over(struct round *round, uint64_t number, const char *detail)
{
    const struct tracer *tracer = round->options.env->tracer;

    trace_apart(tracer, TRACE_LOOP, round->traced,
                &(struct trace_span){.name = "round",
                                     .detail = detail,
                                     .begin_ns = round->traced_ns,
                                     .end_ns = round_now(round),
                                     .round = number});
    round->traced_ns = 0;
}

void round_trace(struct round *round)
{
    struct tracer *tracer = round->options.env->tracer;
    bool is_active;

    if (tracer == NULL) return;
    is_active = exchange_is_active(round->exchange);
    if (is_active == (round->traced_ns != 0)) return;
    if (is_active) {
        round->traced++;
        round->traced_ns = round_now(round);
        tracer->round = number_of(round);
        instant(round, "round begins", NULL);
    } else {
        over(round, tracer->round, "nobody else was ready");
    }
}

void round_trace_formed(struct round *round)
{
    struct tracer *tracer = round->options.env->tracer;

    if (tracer == NULL) return;
    round_trace(round);
    tracer->round = number_of(round);
    instant(round, "round formed", NULL);
}

void round_trace_over(struct round *round, const struct command_over *command)
{
    static const char *const names[] = {[OVER_COMMITTED] = "round commits",
                                        [OVER_ABORTED] = "round aborts",
                                        [OVER_IN_DOUBT] = "round in doubt"};
    struct tracer *tracer = round->options.env->tracer;

    if (tracer == NULL) return;
    if (round->ops->set_round != NULL) tracer->round = command->round + 1;
    instant(round, names[command->result], command->reason);
    if (round->traced_ns == 0) return;
    over(round, tracer->round,
         command->result == OVER_COMMITTED ? "committed"
         : command->reason != NULL         ? command->reason
                                           : "aborted");
}

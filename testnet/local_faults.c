/* local_faults: what chaos does to the peers of a testnet. */
#include "testnet/local_internal.h"

#include "base/check.h"
#include "base/json.h"
#include "peer/env/process.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

enum { SLOWER = 10 };

/* What it last said, and what it will have done since at the speed it said. */
static uint64_t samples_now(const struct runner *runner, uint64_t now)
{
    const double silent_s = now > runner->heard_ns ? (double)(now - runner->heard_ns) / 1e9 : 0;
    const double since = silent_s * runner->seen.samples_per_s;

    return runner->seen.samples + (isfinite(since) && since > 0 ? (uint64_t)since : 0);
}

static void strike(struct local *local, uint32_t peer, const struct chaos_rule *rule, uint64_t now)
{
    struct runner *runner = &local->runners[peer];
    const double after_s = (double)rule->after_ns / 1e9;

    local->faults++;
    if (rule->kind == CHAOS_KILL) {
        runner->is_ours_to_kill = true;
        runner->restart_ns = now + rule->after_ns;
        runner->killed_samples = samples_now(runner, now);
        process_signal(local->host, (uint32_t)runner->child, SIGKILL);
        local_note(local, false, "chaos: peer %u killed, back in %.3g s", peer, after_s);
    } else if (rule->kind == CHAOS_SLOW) {
        runner->seen.is_slow = true;
        runner->quick_ns = now + rule->after_ns;
        local_note(local, false, "chaos: peer %u ten times slower for %.3g s", peer, after_s);
    } else {
        runner->seen.is_frozen = true;
        runner->thaw_ns = now + rule->after_ns;
        process_signal(local->host, (uint32_t)runner->child, SIGSTOP);
        local_note(local, false, "chaos: peer %u frozen for %.3g s", peer, after_s);
    }
    struct json *event = local_event(local, "fault", peer);
    json_set_text(event, "kind", chaos_name(rule->kind));
    local_record(local, event);
}

/* A tick in ten: the whole process, its network too, as on a machine that is busy. */
void local_pace_slow(struct local *local, uint64_t now)
{
    for (uint32_t i = 0; i < local->options->peers && !local->is_stopping; i++) {
        struct runner *runner = &local->runners[i];
        bool holds;

        if (runner->seen.is_slow && now >= runner->quick_ns) runner->seen.is_slow = false;
        holds = runner->seen.is_slow && (local->ticks + i) % SLOWER != 0;
        if (holds == runner->is_held || !runner_is_running(runner) || runner->seen.is_frozen) {
            continue;
        }
        runner->is_held = holds;
        runner->heard_ns = now;
        process_signal(local->host, (uint32_t)runner->child, holds ? SIGSTOP : SIGCONT);
    }
}

/* --time is the end for all: nobody is hit who could not be back by then. */
static bool is_over_in_time(const struct local *local, const struct chaos_rule *rule, uint64_t now)
{
    const uint64_t end_ns = local->begin_ns + local->options->goal_ns;

    return local->options->goal_ns == 0 || now + rule->after_ns + LOCAL_COME_BACK_NS <= end_ns;
}

void local_cause_faults(struct local *local, uint64_t now)
{
    size_t rule;

    while (!local->is_stopping && chaos_due(&local->chaos, now, &rule)) {
        uint32_t victims[1024], count = 0;

        local->faults_due++;
        if (!is_over_in_time(local, &local->chaos.rules[rule], now)) continue;
        if (local->chaos.rules[rule].kind == CHAOS_PARTITION) {
            if (local->whole_ns == 0) local_part(local, &local->chaos.rules[rule], now);
            continue;
        }
        for (uint32_t i = 0; i < local->options->peers && count < ARRAY_COUNT(victims); i++) {
            const struct runner *runner = &local->runners[i];
            if (runner->seen.state == LOCAL_TRAINING && !runner->seen.is_frozen &&
                !runner->seen.is_slow && !runner->is_ours_to_kill) {
                victims[count++] = i;
            }
        }
        if (count < 2) continue;
        strike(local, victims[chaos_pick(&local->chaos, rule, count)], &local->chaos.rules[rule],
               now);
    }
}

void local_tell_spared(struct local *local)
{
    if (local->options->chaos.rules_count == 0 || local->faults > 0 || local->signal != 0) return;
    if (local->faults_due == 0) {
        local_note(local, false,
                   "chaos: no fault struck, as none was due: mtbf is the mean time "
                   "between two, so give a shorter one, or a longer run");
        return;
    }
    local_note(local, false,
               "chaos: no fault struck: whenever one was due (%u times) fewer than two peers could "
               "be hit, or it would not have been over in time before the end",
               local->faults_due);
}

#!/bin/bash
# mutants: do the tests notice when a promise is broken? Small mistakes, each put into a copy of the
# sources, alone; the test that watches over it is built and must fail. Not part of the gate.
#   tests/mutants.sh [PATTERN]      only those whose file, test or words match (grep -E)
#     OUT=DIR   the copy and its build, kept for the next time (default build/mutants)
# Prints a line each: killed, SURVIVED, STALE (the source has changed: mend the row) or NO BUILD; the
# exit code is 1 unless all were killed. About 20 s each on two cores; ccache is used where it is.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
for tool in cmake ninja tar sed; do
    command -v $tool >/dev/null || { echo "mutants.sh: $tool is not installed" >&2; exit 2; }
done
pattern=${1:-.}
out=${OUT:-build/mutants}
mkdir -p "$out" && out=$(realpath "$out")

# FILE @ TEST @ what is wrong @ the edit (sed -E)
mutants() {
    cat <<'EOF'
averaging/core/transfer.c @ property_pair @ one decides before all chunks are there @ s/return in->done == in->chunks;/return in->done + 1 >= in->chunks;/
averaging/core/transfer.c @ unit_averaging_exchange_decisions @ a chunk is counted twice @ s/if \(in->states\[chunk->chunk\] != CHUNK_NONE\) return RC_REPLAY;//
averaging/pair/pair.c @ property_pair @ one decides without the other's word @ s/if \(swap->is_decider && !swap->has_ready\) return;//
averaging/core/commands.c @ unit_averaging_streams @ rounds are named by their counters alone @ s/return load_le64\(digest.bytes\) . STREAM_MAX;/return (void)digest, (uint16_t)key->counter;/
averaging/edge/data.c @ unit_averaging_streams @ a neighbour's rounds of all its lives are one @ s/edge->swap.other.id, edge->swap.other.boot, edges->round/edge->swap.other.id, edges->options.boot, edges->round/
averaging/core/swap.c @ unit_averaging_exchange_edges_clip @ an edge counts whole, however far @ s/return robust_weight\(sqrtf\(swap_squared\(swap\)\), swap->radius\);/return 1;/
averaging/core/swap.c @ unit_averaging_exchange_edges_clip @ rules keep what one end alone counts @ s/return swap->keeps \&\& /return false \&\& swap->keeps \&\& /
averaging/edge/begin.c @ unit_averaging_exchange_edges_clip @ ...as the other radius is not asked for @ s/link->radius < edge->swap.radius \? link->radius : edge->swap.radius/edge->swap.radius/
averaging/edge/begin.c @ unit_averaging_exchange_edges @ who waits further on is followed @ s/if \(!has_round\(edges, edge, edges->counts.next_round, link->round\)\) continue;//
gossip/overlay/matching.c @ unit_gossip_matching @ chances stay equal @ s/if \(!\(value > best\)\) continue;/continue;/
gossip/overlay/matching.c @ unit_gossip_matching @ a weight goes by one end @ s/own > theirs \? own : theirs/theirs/
gossip/overlay/graph.c @ unit_gossip_graph @ partners do not rotate @ s/members->round \/ hops\)/0 * hops)/
averaging/strategy/period.c @ unit_averaging_period @ a period may get longer @ s/if \(!\(steps < \(double\)now\)\) return .*/if (false) return now;/
averaging/strategy/period.c @ unit_averaging_period @ the highest that is said counts @ s/values\[\(known - 1\) \/ 2\]/values[known - 1]/
averaging/strategy/period.c @ unit_averaging_period @ the first who speaks decides @ s/told->steps == 0 \? now :/told->steps == 0 ? unknown + 0 * now :/
peer/node/rounds/adapt.c @ sim_adaptive @ a restart begins with a long period again @ s/if \(period_resume\(.*return RC_OK;/if (node != NULL) return RC_OK;/
peer/node/rounds/adapt.c @ sim_adaptive @ what is said half way counts @ s/^    if \(round_is_active\(node->round\)\) return;/    adapt_hear(node);\n&/
peer/node/rounds/lead.c @ sim_lead @ one runs a step too far ahead @ s/lead_steps\), 1\);/lead_steps), 2);/
peer/node/rounds/lead.c @ sim_lead @ who has stopped is waited for without end @ s/^    lead->is_out = true;//
averaging/rule/exact.c @ unit_averaging_neighbours @ exact diffusion keeps what one end alone counts @ s/edge_sum_add\(&rule->edges, slot, weight, rule->passing\)/edge_sum_add(\&rule->edges, slot, weight, rule->kept)/
averaging/rule/mean.c @ unit_averaging_neighbours @ ...and a tracker @ s/- model\}, shared\)/- model}, shared - shared + weight)/
averaging/core/swap.c @ unit_averaging_exchange_edges_clip @ what is decided late counts whole @ s/doubt.weight = swap->weight \* swap_scale\(swap\);/doubt.weight = swap->weight;/
averaging/core/robust.c @ unit_averaging_exchange_edges_clip @ before a radius is known all is let in @ s/plane_factor \* robust_median\(history\) : 0;/plane_factor * robust_median(history) : 1e30f;/
peer/round/edges.c @ unit_peer_round_promises @ a checkpoint may lack an edge that counts @ s/if \(!edge->is_in_doubt\) round->has_taken = true;//
peer/round/round.c @ unit_peer_round_promises @ nothing is held back for what is promised @ s/rc == RC_OK \&\& round_reserve\(round\)/rc == RC_OK/
peer/node/lane/evaluate.c @ sim_node @ evaluation takes what time it likes @ s/PAUSE_LENGTHS \* took_ns/4 * took_ns/
peer/node/door/credit.c @ sim_hostile_rounds @ what comes late has no end @ s/return neighbour->late_bytes > LATE_PLANES.*/return false;/
averaging/group/data.c @ unit_averaging_exchange_group @ a mean is taken again and again @ s/if \(group->means\[chunk\] != CHUNK_NONE\) return RC_REPLAY;//
library/state.c @ unit_library_state @ a state that is damaged is decoded @ s/!digest_is_equal\(said, hash_of\(state, count\)\)/false/
peer/session/session.c @ unit_library_state @ a state of another method is taken @ s/strcmp\(session->checkpoint\.method, method\) == 0/true/
library/external.c @ unit_library_state @ who asks for a state may be asked for a step first @ s/if \(e->is_stepping\) tell_steps\(e\);//
peer/session/settings.c @ unit_peer_settings @ who is asked says which file is read @ s/if \(strcmp\(name, "data"\) == 0 \&\& !is_everywhere\(text\)\) continue;//
peer/session/settings.c @ unit_peer_settings @ a batch of its own has the rate of another @ s/if \(own_rate \&\& \(/if (false \&\& (/
replica/optimizer/optimizer.c @ unit_replica_optimizer @ a usual rate does not follow the batch @ s/ratio < 1 \? ratio : sqrt\(ratio\)/1/
gossip/membership/keep.c @ sim_keepers @ graphs are made with who does not train @ s/if \(member_brief\(member\)->is_keeper\) continue;//
peer/node/lane/train.c @ sim_keepers @ the last to train is gone before its model is kept @ s/ \&\& !models_stay\(node\)//
peer/node/models/keeper.c @ sim_keepers @ what is kept lacks the last round @ s/return following->has_last \? node->step \+ 1 : node->step;/return node->step + 1;/
peer/node/rounds/round.c @ sim_keepers @ who does not train is waited for at the start @ s/if \(other->is_keeper\) return false;//
peer/session/settings.c @ unit_peer_settings @ a goal of its own is one of several @ s/kind == GOAL \&\& own_goal\)/kind == GOAL \&\& !own_goal)/
peer/session/settings.c @ unit_peer_settings @ the path of the data is told @ s/return is_everywhere\(text\) . text : NULL;/return text;/
averaging/push/push.c @ sim_liars @ shares are not clipped @ s/\.clips_chunks = true,/.clips_chunks = false,/
averaging/strategy/match.c @ contract_strategy @ the start does not warn of a ring @ s/reason != NULL \|\| has_few_neighbours.*/reason != NULL;/
averaging/push/accounts.c @ unit_averaging_push_accounts @ who mints weight gives what it likes @ s/ \+ CREDIT - given,/ + CREDIT,/
averaging/push/accounts.c @ unit_averaging_push_accounts @ what is minted adds up for ever @ s/if \(usual <= HEAVY\) return;/return;/
averaging/push/accounts.c @ unit_averaging_push_accounts @ who gives more often ages its account @ s/account->used = push->given;/account->used = push->given;\n    if (++push->given % HALF_LIFE == 0) accounts_scale(push, 0.5);/; s/^void push_account_claimed/static void accounts_scale(struct push *push, double factor);\nvoid push_account_claimed/
averaging/push/accounts.c @ unit_averaging_push_accounts @ one that claims much moves what others weigh @ s/values\[\(count - 1\) \/ 2\]/values[count - 1]/
averaging/group/data.c @ unit_averaging_exchange_group @ a part is summed twice @ s/if \(has_bit\(group->arrived\[chunk\], index\)\) return RC_REPLAY;//
averaging/core/patience.c @ unit_averaging_patience @ time is charged twice @ s/since_ns = deadline_most\(wait->free_ns, debt->until_ns\)/since_ns = wait->free_ns/
averaging/core/patience.c @ unit_averaging_patience @ nothing is given back @ s/\(now_ns - debt->since_ns\) \/ share/0/
averaging/core/patience.c @ unit_averaging_patience @ rests do not grow @ s/debt->rest_ns = is_again .*/debt->rest_ns = 0 * is_again;/
averaging/core/patience.c @ unit_averaging_patience @ nobody is barred @ s/debt->is_barred = has_come;/debt->is_barred = false \&\& has_come;/
averaging/core/patience.c @ unit_averaging_patience @ a new name is new credit @ s/if \(!is_new\) return left;/if (is_new || !is_new) return left;/
averaging/core/patience.c @ unit_averaging_edges_waits @ ...nor a neighbour @ s/debt->rest_until_ns = deadline_after\(now_ns, debt->rest_ns\)/debt->rest_until_ns = 0/
averaging/edge/wait.c @ unit_averaging_edges_waits @ who has neighbours wait is not charged @ s/if \(half_ns\(edges, edge\) == 0\) return;/return;/
averaging/group/form_wait.c @ unit_averaging_group_slack @ who does not answer is not charged @ s/group_charge\(group, id, false, 1, free_ns\(group\)\);/(void)id;/
averaging/group/form_wait.c @ sim_waiting_groups @ nobody has credit @ s/credit_ns = deadline_most\(credit_ns, forming_credit_ns.*/(void)forming_credit_ns;/
averaging/group/data_wait.c @ unit_averaging_group_waits @ who has a data phase wait is not charged @ s/group_charge\(group, group->parties\[index\].*/(void)index, (void)is_seen, (void)times;/
averaging/group/form_wait.c @ unit_averaging_group_slack @ who takes proposals back is asked again and again @ s/group->vain_of, group->is_taken_back, 1,/group->vain_of, false, 1,/
averaging/group/data_wait.c @ sim_hostile_rounds @ a member has its credit with each owner anew @ s/group->parties_count \/ owners/1/
averaging/core/patience.c @ unit_averaging_patience @ few waits do not count for all @ s/ \* deadline_most\(wait->times, 1\);/;/
averaging/group/data_wait.c @ unit_averaging_group_waits @ no room for a slow line @ s/return deadline_least\(SLOW_LINE_TIMES \* took_ns, line_ns\(group\)\);/return 0 * took_ns * line_ns(group);/
averaging/group/data_wait.c @ unit_averaging_group_waits @ all are late with the half of them @ s/^    stage->half_ns = group->now_ns;//
averaging/group/data_wait.c @ unit_averaging_group_waits @ owners may not wait for others @ s/free_ns\(group, gathered_ns\(group\), group->given.usual_ns\)\)/0 * gathered_ns(group))/
averaging/group/data_wait.c @ unit_averaging_group_waits @ one owner has others left out @ s/if \(\(uint32_t\)__builtin_popcountll\(missing\) > .*/(void)few;/
averaging/core/transfer.c @ unit_averaging_exchange_edges @ a neighbour's chunk is taken twice @ s/if \(in->states\[chunk->chunk\] != CHUNK_NONE\) return RC_REPLAY;//
averaging/push/push.c @ unit_averaging_exchange_push @ a share is taken again after a restart @ s/if \(push_mark_is_old\(push, &share->key\)\) return RC_REPLAY;//
averaging/core/transfer.c @ unit_averaging_exchange_push @ a chunk of a share is taken twice @ s/if \(in->states\[chunk->chunk\] != CHUNK_NONE\) return RC_REPLAY;//
averaging/rule/mean.c @ contract_rule @ what was agreed is agreed again @ s/if \(is_any_agreed\(rule, range\)\) return RC_REPLAY;//
averaging/core/deadline.c @ unit_averaging_deadline @ the lower of two medians @ s/count, count \/ 2\);/count, (count - 1) \/ 2);/
averaging/core/deadline.c @ unit_averaging_deadline @ a window below its floor @ s/, deadline_most\(floor, least_ns\)\);/, 0 * deadline_most(floor, least_ns));/
averaging/aggregate/trim.c @ unit_averaging_aggregate @ one liar more than half stays in @ s/faults < most . faults : most/faults < most ? faults - 1 : most - 1/
averaging/aggregate/krum.c @ unit_averaging_aggregate @ the farthest has a vote, too @ s/score\(apart\[a\], a, n, n - faults - 2\)/score(apart[a], a, n, n - 1)/
averaging/aggregate/centered_clip.c @ unit_averaging_aggregate @ who is far pulls as far @ s/pulls\[k\] \*= rows->radius \/ distance;//
averaging/aggregate/rfa.c @ unit_averaging_aggregate @ who is far counts as who is near @ s/fmaxf\(distances->of\[k\], least\)/least/g
averaging/aggregate/radial.c @ unit_averaging_aggregate @ directions count as far as members went @ s/\(double\)rows->weights\[k\] \/ apart/(double)rows->weights[k]/
averaging/group/form.c @ unit_averaging_exchange_group @ a round begins with fewer than its quorum @ s/ \|\| start.members_count < group->options.quorum//
peer/node/rounds/group.c @ sim_unlike @ rounds of others are not joined early @ s/strategy->joins_others \&\& since > 0/false \&\& since > 0/
averaging/aggregate/gather.c @ unit_averaging_gather @ the order of arrival counts @ s/if \(order < 0\) before = at;/before = at;/
averaging/aggregate/gather.c @ unit_averaging_gather @ of two the farther one counts whole @ s/= share \* item->member.weight/= item->member.weight/
averaging/core/robust.c @ unit_averaging_robust @ distances that are no numbers are noted @ s/if \(!\(distance >= 0\) \|\| !isfinite\(distance\)\) return;//
averaging/core/robust.c @ sim_liars @ means are taken over however far they are @ s/if \(chunk->is_mean\) return takes_mean.*$/if (chunk->is_mean) return RC_OK;/
averaging/core/robust.c @ unit_averaging_robust @ what is far counts as what is near @ s/: share \* share \* share;/: share;/
averaging/core/robust.c @ sim_liars @ ...and so where data are unlike @ s/: share \* share \* share;/: share;/
averaging/core/robust.c @ unit_averaging_robust @ whoever was alone does not come back @ s/if \(!robust->is_last\) robust_note\(history/if (!robust->is_last \&\& !(chunk->is_mean \&\& distance > radius)) robust_note(history/
peer/node/rounds/round.c @ sim_liars @ who is left out has those wait who joined it @ s/answer.type = MESSAGE_ABORT;/return;/
averaging/core/robust.c @ sim_methods_chaos @ pairs that are equal never let one come back @ s/own_least = 1.0f \/ 8/own_least = 0/
averaging/core/robust.c @ unit_averaging_robust @ at the goal, models that are equal teach @ s/if \(!robust->is_last\) robust_note/robust_note/
peer/node/rounds/finish.c @ sim_finish_pauses @ who is done leaves though another missed the round @ s/\(is_behind \|\| !progress->is_settled\)/(is_behind \&\& !progress->is_settled)/
peer/node/rounds/finish.c @ sim_finish_pauses @ a last round lacks one who is done @ s/is_settled \&\& others->missing == 0/is_settled/
peer/node/rounds/finish.c @ sim_finish_pauses @ who missed a deadline is not waited for @ s/trust_end_pauses\(.*//
peer/node/trust.c @ unit_peer_trust @ pauses from before last to the end @ s/if \(known->late_ns > now_ns\) known->late_ns = now_ns;//
peer/node/trust.c @ unit_peer_trust @ offences are forgiven at the end @ s/reason == SCORE_LATE      \?/reason != SCORE_CLIPPED   ?/
peer/link/handshake.c @ unit_peer_link @ unlike builds hear of methods @ s/wire_version\(it\) != wire_version\(other\)/false/
averaging/core/robust.c @ unit_averaging_robust @ at the goal, rounds by the dozen add up @ s/seen->left -= distance \/ radius;//
averaging/core/robust.c @ unit_averaging_robust @ at the goal one mean moves us by all that is left @ s/fminf\(seen->left, radii_at_once\)/seen->left/
averaging/core/robust.c @ unit_averaging_robust @ whoever missed rounds stays behind @ s/fminf\(fmaxf\(since, 1\), rounds_most\)/1/
averaging/core/robust.c @ unit_averaging_robust @ the one that has more to learn is far from all @ s/member_least = 1.0f \/ 256/member_least = 0/
peer/round/centre.c @ sim_liars @ in groups each judges around its own model @ s/return round->centre == NULL \? own : round->centre \+ range.first;/return (void)round, (void)range, own;/
peer/round/over.c @ sim_liars @ a last round may leave us with values of our own @ s/round->stats.unagreed \+= round->has_refused;//
peer/node/rounds/border.c @ sim_finish_pauses @ a round at the goal is one like others @ s/node->step, node->goal.is_reached/node->step, false/
averaging/strategy/match.c @ contract_strategy @ auto means none @ s/strategy->clips = reason == NULL;/strategy->clips = i == 2;/
averaging/core/robust.c @ unit_averaging_robust @ ...and so is the mean that it taught @ s/mean_least = 1.0f \/ 32/mean_least = 0/
averaging/core/robust.c @ unit_averaging_robust @ long steps make room for longer ones @ s/return norm == 0 \? radius : fminf/return norm >= 0 ? radius : fminf/
averaging/core/robust.c @ sim_liars @ at the goal a mean may be as far as before @ s/robust->is_last \? mean_least_at_goal : mean_least/mean_least/
averaging/core/robust.c @ unit_averaging_robust @ what is usual of planes has no bound @ s/fminf\(fmaxf\(usual, bounds->least\), bounds->most\)/fmaxf(usual, bounds->least)/
averaging/core/robust.c @ unit_averaging_robust @ the gate lets everything in that is not learned yet @ s/if \(norms < gate_least\) return gate_least;/if (norms < gate_least) return 1e30f;/
averaging/core/weights.c @ unit_averaging_weights @ a proposer counts as much as it says @ s/if \(count > 0 \&\& weights\[0\] > WEIGHT_ONE\).*//
averaging/core/schedule.c @ unit_averaging_schedule @ one member may own the plane @ s/^    parts_cap\(plan, plan->count\);//
averaging/group/start.c @ unit_averaging_group_start @ nobody looks for its own words in START @ s/return said.samples == group->stated.samples.*/return true;/
averaging/group/start.c @ unit_averaging_group_start @ one member has any proposer charged @ s/unlike < 2 \|\| 2 \* unlike <= others/unlike < 1/
averaging/group/start.c @ unit_averaging_group_start @ who was told nothing says nothing @ s/if \(group->now_ns < start_due_ns\(group, i\)\) continue;/continue;/
averaging/group/data.c @ unit_averaging_group_start @ CREDIT of another START is taken @ s/if \(!digest_is_equal\(credit->start, group->start\)\) \{/if (false) {/
averaging/group/conduct.c @ unit_averaging_group_conduct @ one proposer has members charged @ s/if \(!is_ours \&\& peer_id_is_equal.*/(void)is_ours;/
averaging/group/conduct.c @ unit_averaging_group_conduct @ who leaves its parts is never charged @ s/if \(of->left <= LEFT_MAX\) return false;/return false;/
averaging/group/conduct.c @ unit_averaging_group_conduct @ ...but for each time it stumbles @ s/of->left > 0\) of->left--;/false) of->left--;/
averaging/group/conduct.c @ unit_averaging_group_conduct @ a crowd of names makes what one did forgotten @ s/if \(sum\(\&conduct->of\[i\]\) < sum\(least\)\)/if (i == 1)/
averaging/group/data.c @ unit_averaging_group_conduct @ who owns nothing does not show its START @ s/^        show_start\(group.*//
averaging/group/data.c @ unit_averaging_group_conduct @ whom we leave out takes us for one that leaves @ s/\(to->part != PART_OPEN \&\& !to->is_out\)/to->part != PART_OPEN/
averaging/group/data.c @ unit_averaging_group_conduct @ rounds that come to nothing are free @ s/^        group_came_to_nothing\(group, out\);//
averaging/group/data.c @ unit_averaging_group_conduct @ who came too late is not told @ s/if \(!to->is_linked\) \{/if (false) {/
peer/node/rounds/round.c @ sim_hostile_starts @ who is loading has others wait @ s/if \(message->type == MESSAGE_CREDIT\) refuse_credit.*//
averaging/group/form.c @ unit_averaging_group_conduct @ proposals without a START are free @ s/if \(proposes_in_vain\(.*\) return RC_LIMIT;//
averaging/group/group.c @ unit_averaging_group_conduct @ a member of another START is not told @ s/if \(!group_form_has\(\&group->form, from\)\) \{/if (false) {/
averaging/group/turn.c @ unit_averaging_group_turns @ a higher ballot is followed at once @ s/if \(group->now_ns >= deadline_after\(group->form_ns.*/return false;/
averaging/group/turn.c @ unit_averaging_group_turns @ one FORM takes ballots as high as it likes @ s/return form->ballot > GROUP_BALLOT_STEP.*/return (void)is_known, false;/
averaging/group/form.c @ unit_averaging_group_turns @ one member teaches windows by joining again and again @ s/ && !group->invited\[index\]\.has_declined\) \{/) {/
averaging/core/weights.c @ unit_averaging_weights @ weights without an upper limit @ s/while \(weight < WEIGHT_MAX \&\& ratio/while (ratio/
gossip/membership/membership.c @ unit_gossip_membership @ old records replace new ones @ s/if \(record->incarnation < known->incarnation\) return false;//
gossip/membership/membership.c @ unit_gossip_membership @ a rumour may jump to any incarnation @ s/return is_from_subject \|\| record->incarnation - known->incarnation <= INCARNATION_JUMP;/return true;/
gossip/membership/suspect.c @ unit_gossip_membership_suspect @ an accusation outlives its incarnation @ s/if \(accusation->incarnation != member_brief\(subject\)->incarnation\) return false;//
gossip/membership/suspect.c @ unit_gossip_membership_suspect @ the dead may accuse @ s/if \(accuser->state == MEMBER_DEAD \|\| accuser->state == MEMBER_LEFT\) return false;//
gossip/door/gate.c @ unit_gossip_gate @ one prefix may spend what it likes @ s/if \(!ration_has\(ration->full_ns, now_ns, PREFIX_COST_NS, PREFIX_FULL_NS\)\) \{/if (owed > UINT64_MAX - 1) {/
gossip/door/gate.c @ unit_gossip_gate @ known peers wait behind strangers @ s/^    if \(is_known \&\&$/    if (is_known \&\& common == 0 \&\&/
gossip/flow/credit.c @ unit_gossip_credit @ more is granted than is left @ s/if \(room > left\) room = left;//
gossip/wire/scan.c @ unit_gossip_scan @ nesting is not limited @ s/if \(depth == SCAN_DEPTH_MAX\) return RC_LIMIT;/if (depth == SCAN_DEPTH_MAX) depth--;/
gossip/signed/record.c @ unit_gossip_record @ a signed record may have any length @ s/ \|\| count > SIGNED_RECORD_BYTES_MAX\) return RC_FORMAT;/) return RC_FORMAT;/
base/file_lock.c @ unit_base_file_lock @ a removed lock file is taken for the one that is there @ s/error == 0 \&\& is_still_there\(lock->fd, path\)/error == 0/
peer/env/uv/socket.c @ unit_env_uv_dial @ links may take the last descriptors @ s/\(rlim_t\)socket \+ FILES_KEPT >= limit.rlim_cur/(rlim_t)socket > limit.rlim_cur/
peer/env/trace.c @ unit_env_trace @ a full ring loses what is not read yet @ s/if \(in - out >= trace->options.events_max\)/if (in - out >= 2 * trace->options.events_max)/
peer/env/trace.c @ unit_env_trace @ a trace has no bound @ s/return trace->bytes \+ trace->used \+ bytes \+ TAIL_BYTES <= trace->options.bytes_max;/return trace->bytes + trace->used + bytes + TAIL_BYTES > 0;/
peer/env/trace.c @ unit_env_trace @ a disk that fails is told again and again @ s/trace->is_told = true;//
peer/env/trace.c @ unit_env_trace @ texts are not escaped @ s/out\[used\+\+\] = '\\\\';/;/
gossip/signed/record.c @ unit_gossip_record @ a site of another is not looked at @ s/ \|\| !site_is_valid\(parsed.site\)//
gossip/overlay/topology.c @ unit_gossip_topology @ rounds of all have no numbers of their own @ s/return \(struct topology_level\)\{false, round \/ every\};/return (struct topology_level){false, round};/
gossip/membership/membership.c @ unit_gossip_membership @ all are near @ s/return member != NULL \&\& memcmp\(member_brief\(member\)->site, m->options.site, SITE_BYTES\) == 0;/return member != NULL;/
peer/node/rounds/sites.c @ sim_sites @ rounds never stay at a site @ s/every = TOPOLOGY_SITES;/every = 1;/
peer/files/journal.c @ unit_peer_journal @ a full disk is told again and again @ s/failed == RC_OK \|\| failed == told/failed == RC_OK/
base/file.c @ unit_base_file @ a log grows without end @ s/before.st_size \+ count > bytes_max/before.st_size > UINT64_MAX - 1/
peer/link/tell.c @ unit_peer_link @ each refusal of a holder of the key has a line in the log @ s/links->told < TOLD_A_MINUTE/true/
peer/node/models/choice.c @ sim_restart @ who began a moment sooner counts as far ahead @ s/is_fresh\(node\) \? other->first_step : other->progress.step/other->progress.step/
peer/cli/options_file.c @ unit_peer_options @ another value of a run's flag is taken @ s/row->kept != OF_RUN\) continue;/row->kept != OF_RUN || true) continue;/
peer/cli/options_file.c @ unit_peer_options @ earlier goals stay beside a new one @ s/if \(row->kept == OF_GOAL \&\& has_new_goal\) continue;//
peer/cli/options_file.c @ unit_peer_options @ what may change is forgotten where it is not given @ s/row->kept == OF_START \|\| row->kept == WORD_ONLY/row->kept != OF_RUN/
peer/download/joiner_loading.c @ unit_peer_joiner @ a bucket's hash is not looked at @ s/if \(!digest_is_equal\(hash_of\(bytes, count\), \*expected\)\) return RC_AUTH;//
peer/download/joiner_loading.c @ unit_peer_joiner @ a download may hold NaN @ s/if \(!floats_are_finite\(to, values\)\) return RC_NONFINITE;//
peer/download/joiner_listing.c @ unit_peer_joiner @ another model's manifest is taken @ s/if \(!digest_is_equal\(manifest->schema, joiner->schema\)\) return RC_MISMATCH;//
peer/node/models/choice.c @ unit_peer_node_model @ who trains gives its model up for one who boasts @ s/HOLDERS_LEAST = 3/HOLDERS_LEAST = 1/
peer/node/models/choice.c @ unit_peer_node_model @ many identities of one host outvote a swarm @ s/return theirs\.places >= ours\.places;/return true;/
peer/node/models/choice.c @ unit_peer_node_model @ both of two halves give way @ s/if \(theirs\.met == own \&\& !is_smaller\(lineage, node->lineage\)\) return false;//
peer/node/models/choice.c @ unit_peer_node_model @ a moment is enough @ s/return now_ns >= choice->since_ns \+ CHOICE_OUTVOTE_NS;/return true;/
peer/node/models/choice.c @ unit_peer_node_model @ one boaster calls a restarted peer behind @ s/return items\[\(count - 1\) \/ 2\];/return items[count - 1];/
peer/node/models/choice.c @ sim_restart @ an untrained model is mixed in @ s/is_behind\(node\) \&\& !has_mixed/is_behind(node) \&\& has_mixed/
peer/node/models/check.c @ sim_hostile_models @ the donor's step is believed @ s/^    return middle;/    return value;/
peer/node/models/choice.c @ unit_peer_node_model @ who was heard first decides where others are as far as we @ s/ && step < node->models->wanted.step_least;/ \&\& step == UINT64_MAX;/
peer/node/models/choice.c @ unit_peer_node_model @ ...or hold the same model @ s/count_holders\(node, node->models->wanted.lineage\)\.all <= ours;/false;/
peer/node/models/check.c @ sim_hostile_models @ one of two witnesses says at which step a model is @ s/models_median\(said, count \+ 1\)/models_median(said, count > 0 ? count : 1)/
peer/node/models/check.c @ sim_hostile_models @ a new peer takes what two that are there do not confirm @ s/taking->others < WITNESSES \? 0 : WITNESSES/0/
peer/node/models/check.c @ sim_hostile_models @ running statistics are not compared @ s/check_buffers\(node\) != RC_OK/check_buffers(node) == RC_NOMEM/
peer/node/models/check.c @ sim_hostile_models @ moments of any size are taken @ s/leaves_moments = (.*) > most;/leaves_moments = \1 < 0 * most;/
peer/node/models/check.c @ sim_hostile_models @ nobody is waited for who could say that a donor lies @ s/return counts\.believed > models_heard\(node\) .*/return false;/
peer/node/models/take.c @ sim_hostile_models @ what is given up is not kept @ s/if \(!taking->keeps\) return;/return;/
replica/optimizer/optimizer.c @ unit_replica_optimizer @ a donor's moments may divide by nothing @ s/moments\[i\] = fmaxf\(-limit, fminf\(limit, moments\[i\]\)\);/(void)limit;/
peer/download/sketch.c @ unit_peer_sketch @ one of two members is enough @ s/opinion->agreed >= 2 \&\& 2 \* opinion->agreed > count/opinion->agreed >= 1/
testnet/folder.c @ unit_testnet_folder @ a folder is two testnets' at a time @ s/rc = file_lock_folder\(path, lock, why\);/rc = RC_OK;/
peer/download/joiner.c @ unit_peer_joiner @ the next donor of unlike values begins anew @ s/joiner->options\.mixes \&\& !joiner->is_catching_up/false/
peer/download/joiner.c @ unit_peer_joiner @ of a mixture that is not confirmed nothing is kept @ s/if \(unmix\(joiner, source\)\)/if (false)/
peer/download/joiner.c @ unit_peer_joiner @ what changed since is fetched for a mixture @ s/source == NULL \|\| joiner->is_mixed/source == NULL/
peer/node/models/check.c @ sim_joining @ a mixture is taken though nobody confirms it @ s/taking->is_mixed \|\| //
peer/node/rounds/round.c @ sim_joining @ who has nobody to average with keeps its line free for rounds @ s/if \(!has_partners\(node\)\) return false;//
peer/node/models/models.c @ sim_joining @ --join-timeout counts from the begin @ s/now_ns >= node->models->answered_ns \+ node/now_ns >= node->begun_ns + node/
peer/download/donor.c @ unit_peer_donor @ who stands still keeps its place @ s/return now_ns >= lease->moved_ns \+ DONOR_STILL_NS \|\| /return /
peer/download/donor.c @ unit_peer_donor @ who was cut off begins anew @ s/return lease != NULL \&\& lease->state == LEASE_LEFT/return false \&\& lease->state == LEASE_LEFT/
peer/download/donor_serve.c @ unit_peer_donor @ a lease lasts for what was sent before @ s/if \(\(lease->is_sent\[\*bucket \/ 8\] .*/{/
gossip/membership/dial.c @ sim_restart @ the address of a lost identity is dialled again and again @ s/if \(\(was_there \|\| !is_taken/if ((was_there || true || !is_taken/
peer/download/donor_snapshot.c @ unit_peer_donor @ a snapshot with NaN is given away @ s/if \(!floats_are_finite\(snapshot->values\[i\], snapshot->counts\[i\]\)\) return RC_NONFINITE;//
gossip/secure/beacon.c @ unit_gossip_beacon @ a beacon is taken from elsewhere @ s/strlen\(host\)/0 * strlen(host)/
peer/node/door/links.c @ sim_outcomes @ the round does not hear of a lost link @ /^static void tell_lost/,/^}/s/if \(node->round != NULL\) round_on_link_lost\(node->round, peer\);//
peer/node/door/links.c @ sim_door @ one refusal ends a newcomer @ s/if \(bootstrap->failures < times \|\| bootstrap->rc != rc\) return false;//
peer/node/door/links.c @ sim_door @ forged signatures are free @ s/if \(rc == RC_AUTH \|\| rc == RC_FORMAT\) door_score.*//
gossip/membership/suspect.c @ unit_gossip_membership_suspect @ accusations are checked without limit @ s/if \(!membership_may_check\(word->from, now_ns\)\) return RC_NOT_FOUND;//
gossip/membership/dial.c @ unit_gossip_membership_hosts @ hosts have no budget @ s/if \(index == 0\) return HOST_FREE;/return HOST_FREE;/
gossip/membership/host.c @ unit_gossip_membership_hosts @ a host is never given up @ s/if \(tries->failures < FAILURES_MAX\) tries->failures\+\+;//
gossip/membership/host.c @ unit_gossip_membership_hosts @ strange names are dialled side by side @ s/is_name_in_the_air\(&m->dialler\) \?/false ?/
gossip/membership/host.c @ unit_gossip_membership_hosts @ members of one host wait for each other @ s/^        tries->is_met = true;//
gossip/membership/view.c @ sim_hostile @ invented members are averaged with @ s/m->book.met < MEMBERSHIP_MESH \&\& is_being_misled\(&m->book\)/false/
peer/node/door/admission.c @ unit_peer_node_admission @ a dialled address is taken for the owner's machine @ s/ \&\& !is_dialled//
peer/link/observer.c @ unit_peer_link_observer @ one host keeps all observers out @ s/if \(is_local\(link\) \|\| most > here\) return pick;/if (is_local(link)) return pick;/
peer/link/observer.c @ unit_peer_link_observer @ one asker uses up all answers @ s/if \(!has_all_credit \&\& !is_rare/if (!has_all_credit/
gossip/reach/reach.c @ sim_reach @ the only witness says nothing @ s/witnesses_of_kind\(reach, are_wide\) == 1/witnesses_of_kind(reach, are_wide) == 0/
gossip/reach/reach.c @ unit_gossip_reach @ a neighbour next door passes for one outside @ s/witness->is_near = is_private\(host\);//
gossip/reach/reach.c @ unit_gossip_reach @ the only witness's word lasts @ s/reached > 0 \&\& reach->is_by_one/false/
peer/node/door/relay.c @ sim_reach @ the dead are not reached for @ s/\(void\)reach_some\(node, views, count, true, 1, now_ns\);//
peer/node/door/relay.c @ sim_reach @ nobody hears that there is no relay @ s/^        tell_if_alone\(node, now_ns\);//
gossip/membership/probe.c @ sim_partition @ the silent are asked whether others are silent @ s/if \(must_answer \&\& !is_answering\(m, member, now_ns\)\) continue;//
peer/env/framer.c @ unit_env_framer @ a stranger holds a buffer for members @ s/framer->frame_max < FRAMER_BYTES_SMALL \? framer->frame_max : //
peer/env/uv/env.c @ unit_env_uv_dial @ a lookup is waited for at the end @ s/env->links_alive > env->links_left\) \{/env->links_alive > 0) {/
peer/node/door/links.c @ sim_cold_start @ a dial that failed is never tried again @ /^static void dial_ended/,/^}/s/membership_on_dial_failed\(.*//
peer/node/models/take.c @ sim_moments @ a joiner's moments are of as many updates as the model has steps @ s/joiner_manifest\(node->models->joiner\)->updates/node->models->taking.step/
peer/download/joiner_listing.c @ unit_peer_joiner @ a donor may say any count of updates @ s/manifest->updates > UINT64_MAX . 2/false/
averaging/codec/lowrank.c @ unit_averaging_lowrank @ one pass is enough @ s/PASSES = 2,/PASSES = 1,/
averaging/codec/lowrank.c @ unit_averaging_lowrank @ columns are not taken from each other @ s/turn < 2 \* k;/turn < 0 * k;/
averaging/codec/lowrank.c @ unit_averaging_lowrank @ products may be no numbers @ s/return floats_are_finite\(out, values\) . RC_OK : RC_NONFINITE;/return RC_OK;/
peer/node/lane/moments.c @ sim_moments @ momentum goes on where a value was sent @ s/if \(residual\[i\] == 0\) moments/if (residual[i] > 1e30f) moments/
peer/node/lane/moments.c @ sim_moments @ Adam's correction outlives the moments it corrects @ s/learner->set_updates\(node->lane->learner, 0\);/(void)learner;/
replica/model/build.c @ unit_replica_model @ what is dropped hangs on the processor's layout @ s/enum rc rc = relayout\(b, layer, 1\);/enum rc rc = RC_OK;/
replica/formats/export_gguf.c @ contract_gguf @ tensors do not begin where the file says @ s/\*offset \+= bytes \+ fill;/*offset += bytes;/
replica/formats/export_gguf.c @ contract_gguf @ a key is not counted @ s/bytes \+ 16, g->head.keys\)/bytes + 16, g->head.keys - 1)/
replica/formats/export_gguf.c @ contract_gguf @ a backslash stands for itself @ s/ \&\& byte != '\\\\'//
base/base64.c @ unit_base_base64 @ one byte is written as two @ s/if \(count < 2\) text.*//
replica/tokenizer/merger.c @ unit_replica_tokenizer @ a pair is joined that has become another @ s/m->tokens\[place\] != merge->left \|\| next/next/
replica/tokenizer/tokenizer.c @ unit_replica_tokenizer @ a character that is cut between two pieces is bad bytes @ s/stretch->end - run.end >= CHARACTER_BYTES;/true;/
replica/tokenizer/tokenizer.c @ unit_replica_tokenizer @ an added token that is cut between two pieces is none @ s/if \(!is_last \&\& longest > 0/if (false \&\& longest > 0/
replica/tokenizer/pattern.c @ unit_replica_tokenizer @ a piece ends a word @ s/is_whole \? 0 : PCRE2_PARTIAL_HARD/0/
replica/tokenizer/pattern.c @ unit_replica_tokenizer @ any pattern is taken @ s/if \(i == ARRAY_COUNT\(known\)\)/if (false)/
replica/tokenizer/tokenizer.c @ unit_replica_tokenizer @ a long word ends where a piece does @ s/count = MERGER_WORD_BYTES;/count -= 1;/
replica/readers/tokens.c @ unit_replica_data_tokens @ numbers that are no tokens are trained on @ s/if \(tokens\[i\] >= t->symbols\) rc = RC_FORMAT;//
replica/readers/tokens.c @ unit_replica_data_tokens @ windows reach into the next file @ s/form\.tokens - 1\) \/ t->context : 0;/form.tokens) \/ t->context : 0;/
replica/data/samples.c @ unit_replica_data_tokens @ a label is the token itself @ s/labels\[first \+ i - 1\] = tokens\[i\]/labels[first + i - 1] = tokens[i > 0 ? i - 1 : 0]/
replica/readers/image_file.c @ unit_replica_image_file @ 16 bits are taken for linear light @ s/png->flags \|= PNG_IMAGE_FLAG_16BIT_sRGB;/(void)0;/
replica/optimizer/schedule.c @ unit_replica_schedule @ the rate falls below its minimum @ s/return schedule->min_share \+ rest \* \(1\.0 - progress_at/return rest * (1.0 - progress_at/
replica/model/loss.c @ unit_distill_distill @ soft targets are not weighed by the temperature squared @ s/a \* teaching->temperature \* teaching->temperature;/a * teaching->temperature;/
kernels/cpu/optimizer.c @ unit_replica_optimizer @ adam forgets its second moment @ s/float s = beta2 \* second\[i\] \+ \(1\.0F - beta2\) \* \(g \* g\);/float s = g * g;/
kernels/cpu/norm/batch.c @ unit_kernels_norm_batch @ running variances are those of the batch @ s/close->count > 1 \? variance \* n \/ \(n - 1\.0\) : variance;/variance;/
replica/model/model.c @ unit_replica_forward @ what was packed once stays, whatever the parameters @ s/model->prepared == now\)/model->prepared != 0)/
replica/model/model.c @ unit_replica_forward @ weights are packed with each pass @ s/if \(rc == RC_OK && !is_training\) model->prepared = now;//
replica/layers/attention_steps.c @ unit_replica_forward @ a step does not see itself @ s/seen = position \+ 1;/seen = position > 0 ? position : 1;/
replica/layers/recurrent.c @ unit_replica_forward @ a text goes on with the state of the one before @ s/if \(stage_position\(model, pass\) == 0\) memset\(.*;//
replica/layers/sequence.c @ unit_replica_replica_train @ a text's model sees what it is asked for @ s/stage->layer\.keys\[LAYER_CAUSAL\] == 1,/false,/
kernels/cpu/dense/activation.c @ unit_kernels_activation @ what dropout leaves is not scaled @ s/float factor = 1\.0F \/ \(1\.0F - dropout->rate\);/float factor = 1.0F;/
kernels/cpu/dense/activation.c @ unit_kernels_activation @ relu passes gradients on that are not its own @ s/return y > 0\.0F \? dy : 0\.0F;/return y >= 0.0F ? dy : 0.0F;/
distill/distill.c @ unit_distill_distill @ the control has the student's rate only @ s/lr = factors\[i\] \* out->lr;/lr = 0 * factors[i] + out->lr;/
distill/distill.c @ unit_distill_distill @ a student that says the same of all is saved @ s/if \(rc == RC_OK\) rc = check_learnt\(.*;/(void)check_learnt;/
distill/distill.c @ unit_distill_distill @ a batch has more samples than there are @ s/if \(l->student.batch > samples\)/if (samples == 0)/
distill/generations.c @ unit_distill_generations @ every generation begins alike @ s/request.student_seed = .*;/request.student_seed = options->seed;/
averaging/core/population.c @ unit_averaging_population @ a model that is younger is copied @ s/other->step >= population->own.step/other->step >= 0/
averaging/core/population.c @ unit_averaging_population @ rates that others say are taken as they are @ s/population->own.rates = bounded_rates\(population, told->rates\);/population->own.rates = told->rates;/
averaging/core/population.c @ unit_averaging_population @ who lies again is not left alone for longer @ s/watched->refused < POPULATION_DOUBLINGS_MAX/watched->refused < 1/
replica/model/loss.c @ unit_replica_loss @ each head learns as much of the ensemble's loss @ s/exp\(losses\[best\] - losses\[m\]\)/1.0/
replica/learners/replica_validate.c @ unit_replica_validate @ a model that was validated stays @ s/back = write_all\(&r->learner, \(const float \*const \*\)own\);/back = RC_OK;/
replica/learners/repeat/repeat.c @ unit_replica_repeat @ who repeats steps keeps the model of the other @ s/back = put\(r, &own\);/back = RC_OK;/
replica/learners/repeat/repeat.c @ unit_replica_repeat @ moments are not part of a state @ s/kept\[\] = \{SECTION_PARAMETERS, SECTION_MOMENTS, SECTION_BUFFERS\}/kept[] = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_BUFFERS}/
replica/learners/repeat/repeat.c @ unit_replica_repeat @ a round comes in at the end of an interval @ s/replica_host_steps\(r, way->before, NULL/replica_host_steps(r, way->steps, NULL/
replica/learners/repeat/repeat.c @ unit_replica_repeat @ rates of the optimizer are not compared @ s/hash_update\(&hash, numbers, sizeof numbers\);/hash_update(\&hash, numbers, 0);/
replica/learners/repeat/repeat.c @ unit_replica_repeat @ fewer samples than steps take are let in @ s/way->samples != samples_of/way->samples > samples_of/
peer/node/verify/check.c @ sim_verify @ a state that was not claimed is taken @ s/if \(!digest_is_equal\(repeat_digest\(&from\), check->from.state\)\) return;//
peer/node/verify/check.c @ sim_verify @ steps that lead elsewhere are as good @ s/!digest_is_equal\(check->end, check->to.state\)/false/
peer/node/verify/claim.c @ sim_verify @ a model that was replaced is claimed to be trained @ s/is_void = true;/is_void = false;/g
peer/node/verify/reveal.c @ sim_verify @ who was shown all keeps others out @ s/if \(showing->at == showing->count\) verify_showing_end\(node->verify\);//
replica/data/shard.c @ unit_replica_repeat @ samples of another shard are named @ s/if \(!is_of_this_shard\(shard, from\) \|\| !is_of_this_shard\(shard, to\)\) return RC_STALE;//
replica/plane/plane.c @ unit_replica_plane @ a trunk has one layer more @ s/begun > layers/begun > layers + 1/
averaging/rule/heavy_ball.c @ unit_averaging_rule_heavy_ball @ the pull is twice the paper's @ s/own\[i\] - anchor\[i\] \+ difference\[i\]/own[i] - anchor[i] + 2 * difference[i]/
averaging/rule/heavy_ball.c @ unit_averaging_rule_heavy_ball @ the stable rate is taken from another formula @ s/return 2 \* \(1 - momentum \* momentum\);/return 2 * (1 - momentum);/
averaging/rule/accelerated.c @ unit_averaging_rule_accelerated @ momentum is that of z @ s/\(gain \+ pull\)/(gain)/
averaging/rule/accelerated.c @ unit_averaging_rule_accelerated @ a late edge counts without its momentum @ s/\(1 \+ v\) \* pull/pull/
averaging/rule/accelerated.c @ unit_averaging_rule_accelerated @ what a codec takes away is told never @ s/before \+ gain \/ rate/before + gain/
base/file.c @ unit_base_file @ what a killed writer left stays behind the new bytes @ s/ \|\| ftruncate\(fd, 0\) != 0\) return errno;/) return errno;/
base/rng.c @ unit_base_rng @ no draw is above 6 @ s/return draw % bound;/return draw % bound % 7;/
base/rng.c @ unit_base_rng @ the lower half of a large bound is drawn twice as often @ s/while \(draw >= limit\);/while (draw > limit + bound);/
replica/learners/mutual.c @ unit_replica_mutual @ what is no distribution is learned @ s/if \(!is_sound\) row\[i\] = .*;//
replica/learners/mutual.c @ unit_replica_mutual @ what nobody has said is learned @ s/if \(!mutual->has_targets \|\| step/if (step/
replica/learners/mutual.c @ unit_replica_mutual @ ec-dnn learns for ever @ s/step - mutual->heard_step < options->compress_steps/true/
replica/learners/replica_mutual.c @ unit_replica_mutual @ a model that is no number is kept to go back to @ s/if \(pass == 0 \&\& !floats_are_finite\(now, count\)\) return RC_NONFINITE;//
averaging/core/robust.c @ unit_averaging_robust @ who knows nothing hears nobody @ s/if \(robust->outputs > 0\) return sqrtf.*;//
distill/outputs.c @ unit_distill_outputs @ a border of two bins of confidence belongs to the upper one @ s/ceil\(confidence \* SCORE_BINS\) - 1/floor(confidence * SCORE_BINS)/
distill/ensemble.c @ unit_distill_ensemble @ who is sure of a row weighs as anybody does @ s/\(by_confidence \? confidence\(logits, classes\) : 1\)/(by_confidence ? 1.0F + 0 * confidence(logits, classes) : 1)/
distill/answer_file.c @ unit_distill_answers @ damaged answers teach @ s/return digest_is_equal\(hash_final\(&hash\), expected\) \? RC_OK/return digest_is_equal(hash_final(\&hash), expected) || true ? RC_OK/
distill/answer_file.c @ unit_distill_answers @ what the likeliest leave is given to nobody @ s/rest \/ all \/ \(form->outputs - top\)/0 * rest/
distill/student_state.c @ unit_distill_distill @ a student goes on with another training @ s/if \(!says\(file, "question", question\)/if ((!says(file, "question", question) \&\& false)/
replica/data/dataset.c @ unit_distill_distill @ labels of other data are learned from @ s/samples_set_label\(&loaded, i, 0\);/(void)i;/
distill/selection.c @ unit_distill_selection @ a greedy soup keeps whoever comes @ s/is_good = rc == RC_OK && compare.*;/is_good = rc == RC_OK;/
distill/align.c @ unit_distill_align @ statistics stay where they were when channels move @ s/was = m->buffers, .*;/(void)was;/
replica/learners/replica_state.c @ unit_replica_replica @ a resumed run begins its mean over the steps anew @ s/r->averages = averages;/r->averages = 0 * averages;/
distill/ensemble.c @ unit_distill_panel @ what a liar says of a class counts in full @ s/if \(e->options.trim > 0\) \{/if (e->options.trim > 1000) {/
distill/predictions.c @ unit_distill_predictions @ a class may be told twice @ s/ \|\| row\[class\] != INFINITY//
distill/predictions.c @ unit_distill_predictions @ probabilities may add up to anything @ s/if \(sum < sum_least \|\| sum > sum_most\) return RC_FORMAT;//
peer/download/fetch.c @ unit_peer_fetch @ models of all members are in memory at once @ s/slots_taken\(f\) == AT_ONCE/slots_taken(f) > FETCH_MEMBERS_MAX/
peer/download/fetch.c @ unit_peer_fetch @ who is busy is given up @ s/m->ask_ns = now_ns \+ POLL_BUSY_NS;/m->ask_ns = UINT64_MAX;/
peer/download/donor.c @ unit_peer_donor @ who is no member keeps a member waiting @ s/if \(lease->is_visitor\) return true;//
distill/ensemble.c @ unit_distill_ensemble @ of a few answers none is left out @ s/drop = \(members - 1\) \/ 2;/drop = 0 * members;/
peer/download/poll.c @ unit_peer_poll @ a member may answer more than it is asked @ s/answer->count == 0 \|\| answer->count > m->most/answer->count == 0/
peer/download/poll.c @ unit_peer_poll @ a liar that is quick has an honest member cut off @ s/panel_covered\(p->options.panel, answers_wanted\(p\)\) == p->options.samples/true/
peer/download/poll.c @ unit_peer_poll @ who asks for time has it again and again @ s/if \(m->put_off == m->window \+ 1\) return;//
replica/formats/packed.c @ unit_replica_packed @ a scale is any number @ s/if \(isfinite\(scales\[c\]\) && scales\[c\] > 0\.0F\) continue;/if (scales[c] > -1e30F || true) continue;/
replica/formats/packed.c @ unit_replica_packed @ -128 is read @ s/q\[i\] >= -PACKED_MOST/q[i] < 127 || q[i] >= -PACKED_MOST/
replica/formats/packed.c @ unit_replica_packed @ there are as many values as there are, whatever the mask says @ s/count_bits\(mask, bytes\)\)/count_bits(mask, bytes) * 0 + p->values->shape[0])/
replica/formats/packed.c @ unit_replica_packed @ int8 values are cut off, not rounded @ s/rintf\(values\[i\] \/ scales\[c\]\)/truncf(values[i] \/ scales[c])/
replica/formats/packed.c @ unit_replica_packed @ zeros are left out where that takes more room @ s/mask_bytes\(count\) \+ kept \* width < count \* width/kept * width < count * width + mask_bytes(count)/
distill/prune.c @ unit_distill_prune @ magnitudes of unlike layers are compared as they are @ s/\(float\)\(ranked\[i\]\.square \/ larger\)/ranked[i].square/
distill/prune.c @ unit_distill_prune @ of equal weights all go @ s/bits == border && rank == 0/bits == border \&\& rank == UINT64_MAX/
distill/compact.c @ unit_distill_compact @ what was pruned trains on @ s/^    prune_apply\(c->keeps, c->parameters, count\);$//
distill/compact.c @ unit_distill_compact @ few steps prune less than was asked for @ s/\(double\)\(last \+ 1\);/(double)(last + CUTS);/
distill/ensemble.c @ unit_distill_ensemble @ votes for a class do not add up @ s/(sums\[VOTE_MAJORITY\].*) \+= 1;/\1 = 1;/
distill/ensemble.c @ unit_distill_ensemble @ who is sure has more votes @ s/if \(vote != VOTE_MAJORITY\) return argmax/if (vote != VOTE_COUNT) return argmax/
kernels/cpu/sequence/attention_product.h @ unit_kernels_attention @ a register tile over the mask's edge reads what nobody wrote @ s/return round_up\(query \+ LANES, ROWS\);/return query + LANES;/
kernels/cpu/sequence/attention_product.c @ unit_kernels_attention @ a query sees the key behind it @ s/first \+ k - query\);/first + k - query - 1);/
replica/learners/task.c @ unit_replica_task @ each thread judges by the first rows' labels @ s/j->labels \+ first\)/j->labels)/
replica/learners/task.c @ unit_replica_task @ each thread's mean is of its own rows @ s/\.counted = j->counted,/.counted = outputs->samples * j->each,/
replica/model/memory.c @ unit_replica_model @ the gradient lies where a stage reads the output again @ s/if \(model->stages\[output->producer\]\.keeps_output \|\| /if (/
replica/model/memory.c @ property_memory_plan @ what a branch ends in spoils the gradient of what it begins with @ s/!model->stages\[maker\]\.leaves_dy \|\| //
kernels/cpu/sequence/attention.c @ unit_kernels_attention @ earlier sums keep their weight when a larger score comes @ s/f->sums\[q \* padded \+ d\] \*= f->factor\[q\];/(void)f->factor;/
kernels/cpu/dense/panels.c @ unit_kernels_panels @ a block of the inner index forgets those before it @ s/\.adds = p->adds \|\| block->k > 0,/.adds = p->adds,/
kernels/cpu/dense/panels.c @ unit_kernels_panels @ relu is taken of what is not the whole sum @ s/p->with_relu && block->k \+ block->inner == panels->inner/p->with_relu/
kernels/cpu/dense/dots.c @ unit_kernels_dots @ what does not fill a vector is left out @ s/for \(size_t k = whole; k < g->inner; k\+\+\)/for (size_t k = g->inner; k < g->inner; k++)/
kernels/cpu/dense/linear.c @ unit_kernels_linear @ a layer goes on with the weights it packed first @ s/l->own_forward\.is_current = l->own_backward\.is_current = false;//
kernels/cpu/dense/activation.c @ unit_kernels_activation @ leaky relu passes all on at 0 @ s/return dy \* \(y > 0\.0F \? 1\.0F : slope\);/return dy * (y >= 0.0F ? 1.0F : slope);/
replica/model/stage.c @ unit_replica_stage @ another column is to blame @ s/"--model, column %u: '%s' %s", stage->layer\.column,/"--model, column %u: '%s' %s", stage->layer.column + 1,/
testnet/local.c @ unit_testnet_local @ a peer's last words are the first it wrote @ s/newline != NULL \? newline \+ 1 : text;/newline != NULL ? text : text;/
testnet/local.c @ unit_testnet_local @ who comes back to nobody has failed @ s/\} else if \(has_met_nobody\(local, runner, runner->seen\.exit_code\)\) \{/} else if (has_met_nobody(local, runner, 0)) {/
testnet/local_hear.c @ unit_testnet_local @ what a killed peer sent is forgotten @ s/seen->bytes_sent = before->bytes_sent \+ /seen->bytes_sent = /
testnet/summary.c @ unit_testnet_report @ a lone peer without a model does not count @ s/sum \+= score; \/\*.*/sum += isnan(score) ? 0 : score;/
testnet/folder.c @ unit_testnet_folder @ a run for comparison outlives its swarm @ s/is_peer_folder\(name\) \|\| is_baseline\(name\)/is_peer_folder(name)/
testnet/summary.c @ unit_testnet_report @ unlike lineages are not noticed @ s/are_equal = are_equal \&\& strcmp\(first, lineage\) == 0;/are_equal = true;/
testnet/local_faults.c @ unit_testnet_local @ that no fault was due is not told from none that found anybody @ s/if \(local->faults_due == 0\)/if (false)/
testnet/local_faults.c @ unit_testnet_local @ faults outlast --time @ s/if \(!is_over_in_time\(.*continue;//
kernels/cpu/image/winograd_passes.h @ unit_kernels_conv_own @ what hangs over an image is its border again @ s/- \(i >= from && i < to\)/- (i >= 0 \&\& from < to)/
kernels/cpu/image/conv_winograd.c @ unit_kernels_conv_own @ blocks of tiles forget those before @ s/\.adds = g->first > 0,/.adds = false,/
kernels/cpu/image/conv_first.c @ unit_kernels_conv_own @ a slice forgets those before @ s/f->adds \? filters\[i\] \+ sum : sum/sum/
EOF
}

scratch=$out/source
fresh() { # the copy is what git knows here, and what it does not ignore
    mkdir -p "$scratch"
    comm -z -13 <(git ls-files -z --cached --others --exclude-standard | sort -z) \
        <(find "$scratch" -type f -printf '%P\0' | sort -z) | (cd "$scratch" && xargs -0r rm --) # or CMake finds it
    git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
        [ -f "$file" ] && ! cmp -s "$file" "$scratch/$file" && printf '%s\0' "$file"
    done | tar -c --null -T - | tar -x -m -C "$scratch"
}
fresh
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
if ! cmake -S "$scratch" -B "$out/b" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGRAPEVINE_USE_CUDA=OFF -DGRAPEVINE_WERROR=OFF \
    "${launcher[@]}" >"$out/log" 2>&1; then
    tail "$out/log"
    exit 2
fi

killed=0
others=0
while IFS='@' read -r file test words edit; do
    file=${file// /} test=${test// /} words=${words# } words=${words% } edit=${edit# }
    [ -f "$scratch/$file" ] || { others=$((others + 1)); echo "STALE     $file: there is none"; continue; }
    cp "$scratch/$file" "$out/original" # and not from here: it may be worked on meanwhile
    sed -E "$edit" "$out/original" >"$out/mutant"
    if cmp -s "$out/mutant" "$out/original"; then
        verdict=STALE
    else
        cp "$out/mutant" "$scratch/$file"
        if ! ninja -C "$out/b" "$test" >"$out/log" 2>&1; then
            verdict='NO BUILD'
        elif (cd "$scratch" && timeout -s KILL 300 "$out/b/tests/$test") >"$out/log" 2>&1; then
            verdict=SURVIVED
        else
            verdict=killed
        fi
        cp "$out/original" "$scratch/$file"
    fi
    if [ "$verdict" = killed ]; then killed=$((killed + 1)); else others=$((others + 1)); fi
    printf '%-9s %s: %s (%s)\n' "$verdict" "$file" "$words" "$test"
done < <(mutants | grep -E -- "$pattern")
echo "$killed killed, $others not"
[ "$others" -eq 0 ] && [ "$killed" -gt 0 ]

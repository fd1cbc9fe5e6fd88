/*
 * By which schedule a group round goes, and with which parts. Loop thread; pure.
 *
 * Rates are measured by those who receive, for a sender sees its buffers and not the way: in direct
 * rounds an owner notes how fast each member's chunks came in, from the first to the last, and
 * tells it so in MEAN. What all owners saw of us together is what we sent out, what we saw of all
 * members is what we took in (each flow counts at most FLOW_TIMES the median one, so that a liar
 * moves little), and the smaller of the two is what we say in JOIN: the best of the last rounds,
 * for whatever else is slow only ever makes it less. A limit the user set is never exceeded.
 *
 * START passes on what all its members said in JOIN, and each computes weights, rates and parts
 * from these words by itself (weights.h, schedule.h): its proposer can lie of itself alone, as each
 * member sees whether its own words are there. Members about as fast as each other get equal parts,
 * and one that says more than is true no more than two median members would. It is late then, and
 * soon left out (peer/node/trust.h).
 *
 * Schedules other than direct are for swarms where nothing goes wrong: after one has failed, the
 * next CAUTION_FIRST rounds that we propose are direct, then twice as many, and so on.
 */
#include "averaging/group/group.h"

#include "averaging/core/weights.h"

#include "base/bytes.h"
#include "base/check.h"

#include <string.h>

enum {
    FLOW_CHUNKS = 3, /* fewer say little, and the last of a plane is shorter */
    FLOW_TIMES = 4,
    RATE_ROUNDS = 32,   /* what is older says nothing */
    MEASURE_EVERY = 16, /* of our own accord: a direct round, to measure again */
    CAUTION_FIRST = 4,
    CAUTION_MAX = 64
};
/* The wire says any number; beyond this they are all the same: 1 TB/s. */
#define RATE_CAP UINT64_C(1000000000000)

/* ---- what was measured ---- */

/* The lower of two in the middle of those above zero; 0: there is none. Sorts. */
static uint64_t median_known(uint64_t *values, uint32_t count)
{
    uint32_t zeros = 0;

    deadline_sort(values, count);
    while (zeros < count && values[zeros] == 0) {
        zeros++;
    }
    return zeros == count ? 0 : values[zeros + (count - zeros - 1) / 2];
}

uint64_t group_rate_of(const struct group *group, uint32_t index)
{
    const struct party *party = &group->parties[index];
    uint64_t bytes, took = party->until_ns - party->since_ns, rate;

    if (group_relays(group) || party->done < FLOW_CHUNKS || took == 0) return 0;
    bytes = (uint64_t)(party->done - 1) * group->options.chunk_bytes;
    rate = (uint64_t)((double)bytes * NS_PER_S / (double)took);
    return rate < RATE_CAP ? rate : RATE_CAP;
}

/* All flows together, none of them counted as much more than the median one. */
static uint64_t together(uint64_t *flows, uint32_t count)
{
    uint64_t most = median_known(flows, count), sum = 0;

    most = most < RATE_CAP ? FLOW_TIMES * most : RATE_CAP;
    for (uint32_t i = 0; i < count; i++) {
        sum += flows[i] < most ? flows[i] : most;
    }
    return sum < RATE_CAP ? sum : RATE_CAP;
}

static void measure(struct group *group)
{
    struct group_rates *seen = &group->rates_seen;
    uint64_t in[GROUP_MEMBERS_MAX], out[GROUP_MEMBERS_MAX], taken, given;
    uint32_t count = 0;

    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (i == group->self) continue;
        in[count] = group_rate_of(group, i);
        out[count++] = group->parties[i].rate;
    }
    taken = together(in, count);
    given = together(out, count);
    if (taken == 0 || (given > 0 && given < taken)) taken = given;
    if (taken == 0) return;
    seen->recent[seen->next] = taken;
    seen->next = (seen->next + 1) % GROUP_RATES;
    if (seen->count < GROUP_RATES) seen->count++;
    seen->round = group->round;
}

uint64_t group_rate(const struct group *group)
{
    const struct group_rates *seen = &group->rates_seen;
    uint64_t most = group->options.rate_max, best = 0;

    if (seen->count > 0 && group->round - seen->round <= RATE_ROUNDS) {
        for (uint32_t i = 0; i < seen->count; i++) {
            if (seen->recent[i] > best) best = seen->recent[i];
        }
    }
    return most > 0 && (best == 0 || best > most) ? most : best;
}

void group_plan_learn(struct group *group, bool has_committed)
{
    if (group->state == GROUP_DATA && has_committed) {
        group->counts.scheduled[group->plan.schedule]++;
        group->counts.schedule = group->plan.schedule;
    }
    if (!group_relays(group)) {
        if (group->state == GROUP_DATA && has_committed) measure(group);
    } else if (has_committed && !group->has_failed) {
        if (group->caution > 0) group->caution--; /* trust comes back slower than it goes */
    } else {
        group->caution = group->caution == 0 ? CAUTION_FIRST : 2 * group->caution;
        if (group->caution > CAUTION_MAX) group->caution = CAUTION_MAX;
        group->direct_until = group->round + 1 + group->caution;
    }
}

/* ---- what START says ---- */

enum rc group_plan_check(const struct group *group, const struct message_form *start)
{
    if (start->schedule >= SCHEDULE_COUNT ||
        start->statements_bytes != start->members_count * STATEMENT_BYTES) {
        return RC_FORMAT;
    }
    return start->schedule == SCHEDULE_DIRECT || group->options.may_relay ? RC_OK : RC_MISMATCH;
}

static enum schedule schedule_of(struct group *group, const struct message_form *start)
{
    uint64_t stated[GROUP_MEMBERS_MAX] = {0}, chunk_ns[GROUP_MEMBERS_MAX], middle;
    const struct exchange_options *options = &group->options;
    uint8_t rates[GROUP_MEMBERS_MAX];
    uint32_t n = start->members_count;

    if (!options->may_relay || options->schedule == SCHEDULE_DIRECT) return SCHEDULE_DIRECT;
    if (start->round < group->direct_until) return SCHEDULE_DIRECT;
    for (uint32_t i = 0; i < n; i++) {
        if (exchange_standing(&group->options, start->members[i].id) == STANDING_OUT)
            return SCHEDULE_DIRECT;
        stated[i] = group_statement(start, i).rate;
    }
    if (options->schedule != SCHEDULE_AUTO) return options->schedule;
    weights_of_rates(stated, n, rates);
    middle = median_known(stated, n);
    if (middle == 0 || n < 3 || start->round % MEASURE_EVERY == 0) return SCHEDULE_DIRECT;
    for (uint32_t i = 0; i < n; i++) { /* who is not measured is like the others */
        uint64_t rate = group_statement(start, i).rate;

        if (rate == 0 || rate > RATE_CAP) rate = rate == 0 ? middle : RATE_CAP;
        chunk_ns[i] = (uint64_t)options->chunk_bytes * NS_PER_S / rate + 1;
    }
    return schedule_choose(n, options->chunks, rates, group->answer_ns / 2, chunk_ns);
}

void group_plan_choose(struct group *group, struct message_form *start)
{
    start->schedule = (uint8_t)schedule_of(group, start);
}

/* Of all whose values are in the sum that a child gives us. */
static void weights_fill(struct group *group)
{
    uint32_t at = 0;

    for (uint32_t part = 0; part < group->parties_count; part++) {
        uint64_t children = group->parties[part].children;

        group->parties[part].below_at = at;
        for (uint32_t child = 0; children >> child != 0 && child < group->parties_count; child++) {
            uint64_t below = schedule_below(&group->plan, part, child);
            float weight = 0;

            if ((children >> child & 1) == 0) continue;
            for (uint32_t i = 0; i < group->parties_count; i++) {
                if ((below >> i & 1) != 0) weight += group->parties[i].weight; /* 1/16ths: exact */
            }
            CHECK(at < GROUP_MEMBERS_MAX);
            group->below[at++] = weight;
        }
    }
}

float group_weight_below(const struct group *group, uint32_t part, uint32_t child)
{
    const struct party *party = &group->parties[part];
    uint64_t before = party->children & ((UINT64_C(1) << child) - 1);

    CHECK((party->children >> child & 1) != 0);
    return group->below[party->below_at + (uint32_t)__builtin_popcountll(before)];
}

void group_plan_begin(struct group *group, const struct message_form *start)
{
    uint64_t samples[GROUP_MEMBERS_MAX], stated[GROUP_MEMBERS_MAX];
    uint8_t weights[GROUP_MEMBERS_MAX], rates[GROUP_MEMBERS_MAX];
    struct schedule_plan *plan = &group->plan;

    for (uint32_t i = 0; i < start->members_count; i++) {
        samples[i] = group_statement(start, i).samples;
        stated[i] = group_statement(start, i).rate;
    }
    weights_of_samples(samples, start->members_count, weights);
    weights_of_rates(stated, start->members_count, rates);
    schedule_make(plan, (enum schedule)start->schedule, start->members_count, group->options.chunks,
                  rates);
    group->has_failed = group->has_refused = false;
    group->dropped = 0;
    for (uint32_t i = 0; i < group->parties_count; i++) {
        struct party *part = &group->parties[i];

        part->weight = (float)weights[i] / WEIGHT_ONE;
        part->first = plan->first[i];
        part->count = plan->count[i];
        part->parent = schedule_parent(plan, i, group->self);
        if (part->count == 0) {
            part->part = PART_COMMITTED;
            continue;
        }
        part->children = schedule_children(plan, i, group->self);
        if (i != group->self) group->parties[part->parent].owed += part->count;
        for (uint32_t j = 0; j < group->parties_count; j++) {
            if ((part->children >> j & 1) != 0) group->parties[j].awaited += part->count;
        }
    }
    weights_fill(group);
}

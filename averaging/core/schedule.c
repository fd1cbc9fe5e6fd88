/* schedule: see schedule.h. Loop thread; pure. */
#include "averaging/core/schedule.h"

#include "base/check.h"

#include <stddef.h>
#include <string.h>

static const char *const names[] = {"direct", "ring", "halving", "tree", "auto"};

const char *schedule_name(enum schedule schedule)
{
    CHECK(schedule <= SCHEDULE_AUTO);
    return names[schedule];
}

static uint32_t largest_power_of_two(uint32_t n)
{
    uint32_t power = 1;

    while (power <= n / 2) {
        power *= 2;
    }
    return power;
}

/* ---- parts ---- */

/*
 * Direct: member m, which owns the share p of the plane of size S, sends and receives
 * S (1 + (n - 2) p): its values to the other owners and means to all, or the other way round. The
 * longest of S (1 + (n - 2) p_m) / rate_m is least where all with a share need the same time T:
 *   p_m = (T rate_m - 1) / (n - 2),   T = (n - 2 + k) / (sum of the rates of the k that have one)
 * and who is too slow for that has none (as hivemind balances its averaging, where this is a linear
 * program). Times n - 2 and the sum, shares are whole numbers. k = n for equal rates: equal shares.
 */
static void shares_by_rate(const struct schedule_plan *plan, const uint8_t *rates, uint64_t *shares)
{
    uint64_t n = plan->members, sum = 0, k = 0;

    for (uint32_t at = 0; at < plan->members; at++) {
        uint64_t rate = rates[plan->member[at]];

        if (k > 0 && (n - 2 + k) * rate <= sum) break; /* the faster ones are done before */
        sum += rate;
        k++;
    }
    for (uint32_t m = 0; m < plan->members; m++) {
        uint64_t earned = (n - 2 + k) * rates[m];

        shares[m] = plan->place[m] < k && earned > sum ? earned - sum : 0;
    }
}

static void shares_fill(const struct schedule_plan *plan, const uint8_t *rates, uint64_t *shares)
{
    uint32_t core = largest_power_of_two(plan->members);

    for (uint32_t m = 0; m < plan->members; m++) {
        shares[m] = 1;
        if (plan->schedule == SCHEDULE_HALVING) shares[m] = plan->place[m] < core;
    }
    if (plan->schedule == SCHEDULE_DIRECT && rates != NULL && plan->members > 2) {
        shares_by_rate(plan, rates, shares);
    }
}

/* Nobody owns more than two equal parts would be, whatever is said of rates: what is beyond goes to
 * the others, the fastest first, each an equal part of what is left as far as it has room. */
static void parts_cap(const struct schedule_plan *plan, uint32_t *counts)
{
    uint32_t n = plan->members, most = (uint32_t)((2 * (uint64_t)plan->chunks + n - 1) / n);
    uint32_t left = 0;

    for (uint32_t m = 0; m < n; m++) {
        if (counts[m] <= most) continue;
        left += counts[m] - most;
        counts[m] = most;
    }
    while (left > 0) { /* ends: all have room for twice the plane */
        for (uint32_t at = 0; at < n && left > 0; at++) {
            uint32_t *count = &counts[plan->member[at]], more = (left + n - at - 1) / (n - at);

            if (more > most - *count) more = most - *count;
            *count += more;
            left -= more;
        }
    }
}

static void parts_fill(struct schedule_plan *plan, const uint64_t *shares)
{
    uint64_t total = 0, before = 0;
    uint32_t at = 0;

    for (uint32_t m = 0; m < plan->members; m++) {
        total += shares[m];
    }
    CHECK(total > 0);
    for (uint32_t m = 0; m < plan->members; m++) { /* bounds at the running sum, rounded down */
        uint32_t first = (uint32_t)(plan->chunks * before / total);

        before += shares[m];
        plan->count[m] = (uint32_t)(plan->chunks * before / total) - first;
    }
    parts_cap(plan, plan->count);
    for (uint32_t m = 0; m < plan->members; m++) {
        plan->first[m] = at;
        at += plan->count[m];
    }
    CHECK(at == plan->chunks);
}

void schedule_make(struct schedule_plan *plan, enum schedule schedule, uint32_t members,
                   uint32_t chunks, const uint8_t *rates)
{
    uint64_t shares[GROUP_MEMBERS_MAX];

    CHECK(members >= 1 && members <= GROUP_MEMBERS_MAX && chunks <= CHUNKS_MAX);
    CHECK(schedule < SCHEDULE_COUNT);
    memset(plan, 0, sizeof *plan);
    plan->schedule = schedule;
    plan->members = members;
    plan->chunks = chunks;
    for (uint32_t m = 0; m < members; m++) {
        uint32_t at = m;

        CHECK(rates == NULL || rates[m] > 0);
        for (; rates != NULL && at > 0 && rates[plan->member[at - 1]] < rates[m]; at--) {
            plan->member[at] = plan->member[at - 1];
        }
        plan->member[at] = (uint8_t)m;
    }
    for (uint32_t at = 0; at < members; at++) {
        plan->place[plan->member[at]] = (uint8_t)at;
    }
    shares_fill(plan, rates, shares);
    parts_fill(plan, shares);
}

uint32_t schedule_part(const struct schedule_plan *plan, uint32_t chunk)
{
    CHECK(chunk < plan->chunks);
    for (uint32_t m = 0; m < plan->members; m++) {
        if (chunk - plan->first[m] < plan->count[m] && chunk >= plan->first[m]) return m;
    }
    CHECK(false);
    return 0;
}

/* ---- ways ---- */

static uint32_t parent_place(enum schedule schedule, uint32_t members, uint32_t root, uint32_t at)
{
    uint32_t core = largest_power_of_two(members), apart;

    switch (schedule) {
    case SCHEDULE_RING:
        return (at + 1) % members;
    case SCHEDULE_HALVING:
        if (at >= core) return at - core; /* folded in */
        apart = at ^ root; /* halving: the longest distance first, each time half as far */
        return at ^ largest_power_of_two(apart);
    case SCHEDULE_TREE: /* a heap, turned until its root is the owner */
        return (((at + members - root) % members - 1) / 2 + root) % members;
    case SCHEDULE_DIRECT:
    case SCHEDULE_COUNT:
        break;
    }
    return root;
}

uint32_t schedule_parent(const struct schedule_plan *plan, uint32_t part, uint32_t member)
{
    CHECK(part < plan->members && member < plan->members);
    if (member == part || plan->schedule == SCHEDULE_DIRECT) return part;
    if (plan->count[part] == 0) return part; /* no tree, and none is needed */
    return plan->member[parent_place(plan->schedule, plan->members, plan->place[part],
                                     plan->place[member])];
}

uint64_t schedule_children(const struct schedule_plan *plan, uint32_t part, uint32_t member)
{
    uint64_t children = 0;

    for (uint32_t m = 0; m < plan->members; m++) {
        if (m == part || schedule_parent(plan, part, m) != member) continue;
        children |= UINT64_C(1) << m;
    }
    return children;
}

uint64_t schedule_below(const struct schedule_plan *plan, uint32_t part, uint32_t member)
{
    uint64_t below = 0;

    for (uint32_t m = 0; m < plan->members; m++) {
        uint32_t at = m;

        while (at != member && at != part) {
            at = schedule_parent(plan, part, at);
        }
        if (at == member) below |= UINT64_C(1) << m;
    }
    return below;
}

/* ---- what it takes ---- */

struct loads { /* chunks of each member */
    uint64_t in[GROUP_MEMBERS_MAX], out[GROUP_MEMBERS_MAX];
    bool passes[GROUP_MEMBERS_MAX];
};

static uint32_t largest_part(const struct schedule_plan *plan)
{
    uint32_t largest = 0;

    for (uint32_t m = 1; m < plan->members; m++) {
        if (plan->count[m] > plan->count[largest]) largest = m;
    }
    return largest;
}

static void loads_fill(const struct schedule_plan *plan, struct loads *loads)
{
    memset(loads, 0, sizeof *loads);
    for (uint32_t part = 0; part < plan->members; part++) {
        uint32_t count = plan->count[part];

        for (uint32_t m = 0; m < plan->members && count > 0; m++) {
            uint32_t parent = schedule_parent(plan, part, m);

            if (m == part) continue;
            loads->out[m] += count; /* the sum, up; the mean comes back */
            loads->in[m] += count;
            loads->in[parent] += count;
            loads->out[parent] += count;
            loads->passes[parent] = true;
        }
    }
}

/* Of one chunk: until `member` has the sums of its children, who send when they have theirs; it
 * takes in one after the other. As deep as the tree. */
static uint64_t climb_ns(const struct schedule_plan *plan, uint32_t part, uint32_t member,
                         uint64_t latency_ns, uint64_t chunk_ns)
{
    uint64_t children = schedule_children(plan, part, member), came[GROUP_MEMBERS_MAX], ends = 0;
    uint32_t count = 0;

    for (uint32_t m = 0; m < plan->members; m++) {
        uint64_t at;
        uint32_t i = count;

        if ((children >> m & 1) == 0) continue;
        at = climb_ns(plan, part, m, latency_ns, chunk_ns) + latency_ns;
        for (; i > 0 && came[i - 1] > at; i--) {
            came[i] = came[i - 1];
        }
        came[i] = at;
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        ends = (ends > came[i] ? ends : came[i]) + chunk_ns;
    }
    return ends;
}

uint64_t schedule_cost_ns(const struct schedule_plan *plan, uint64_t latency_ns,
                          const uint64_t *chunk_ns)
{
    struct loads loads;
    uint32_t root = largest_part(plan);
    uint64_t busiest = 0, beta = 0, children, counted = 0;

    if (plan->chunks == 0 || plan->members < 2) return 0;
    loads_fill(plan, &loads);
    for (uint32_t m = 0; m < plan->members; m++) {
        uint64_t chunks = loads.in[m] > loads.out[m] ? loads.in[m] : loads.out[m];

        if (chunks * chunk_ns[m] > busiest) busiest = chunks * chunk_ns[m];
        if (loads.passes[m] && chunk_ns[m] > beta) beta = chunk_ns[m];
    }
    for (children = schedule_children(plan, root, root); children != 0; children &= children - 1) {
        counted += beta;
    }
    return busiest + 2 * climb_ns(plan, root, root, latency_ns, beta) - counted;
}

enum schedule schedule_choose(uint32_t members, uint32_t chunks, const uint8_t *rates,
                              uint64_t latency_ns, const uint64_t *chunk_ns)
{
    enum schedule best = SCHEDULE_DIRECT;
    uint64_t least = 0;

    for (int s = SCHEDULE_DIRECT; s < SCHEDULE_COUNT; s++) {
        struct schedule_plan plan;
        uint64_t cost;

        schedule_make(&plan, (enum schedule)s, members, chunks, rates);
        cost = schedule_cost_ns(&plan, latency_ns, chunk_ns);
        if (s == SCHEDULE_DIRECT) {
            least = cost / 5 * 4;
        } else if (cost < least) {
            best = (enum schedule)s;
            least = cost;
        }
    }
    return best;
}

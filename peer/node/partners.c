/* See partners.h. */
#include "peer/node/partners.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "gossip/overlay/topology.h"
#include "peer/node/preference.h"
#include "peer/times.h"

#include <math.h>

enum { FAILURES_MAX = 3, WAITS_MAX = 3 }; /* so many failures in a row, and it waits */

static bool was_tried(const struct partners *partners, struct peer_id id)
{
    for (uint32_t i = 0; i < partners->tried_count; i++) {
        if (peer_id_is_equal(partners->tried[i], id)) return true;
    }
    return false;
}

/* What an offer is ranked by: where all are alike, any order is by the edge itself. */
static double rank_of(uint64_t edge, uint8_t rarity)
{
    double unit = (double)(edge >> 11) * 0x1p-53;

    return -log1p(-unit) * (double)(UINT64_C(1) << 2 * rarity);
}

static bool draw_untried(const struct partners *partners, const struct partner_list *list,
                         struct peer_id *partner)
{
    bool is_equal =
        list->rarity == NULL || preference_is_off(list->run_id, partners->period, PREFERENCE_PAIRS);
    uint64_t least = 0;
    double first = 0;
    bool has_any = false;

    for (size_t i = 0; i < list->count; i++) {
        uint64_t edge = topology_edge(list->run_id, partners->period, list->self, list->ids[i]);
        double rank = is_equal ? 0 : rank_of(edge, list->rarity[i]);

        if (peer_id_is_equal(list->ids[i], list->self)) continue;
        if (has_any && (rank > first || (rank >= first && edge >= least))) continue;
        if (was_tried(partners, list->ids[i])) continue;
        least = edge;
        first = rank;
        *partner = list->ids[i];
        has_any = true;
    }
    return has_any;
}

bool partners_draw(struct partners *partners, const struct partner_list *list, uint64_t period,
                   uint64_t now_ns, struct peer_id *partner)
{
    if (now_ns < partners->wait_ns) return false;
    if (period != partners->period) partners->tried_count = 0;
    partners->period = period;
    if (!draw_untried(partners, list, partner)) {
        partners->tried_count = 0;
        if (!draw_untried(partners, list, partner)) return false;
    }
    partners->spread = rng_mix(partners->spread, load_le64(list->self.bytes));
    if (partners->tried_count < LINKS_MAX) partners->tried[partners->tried_count++] = *partner;
    return true;
}

void partners_failed(struct partners *partners, uint64_t retry_ns, uint64_t now_ns)
{
    uint64_t wait_ns;

    if (partners->failures == 0 || retry_ns < partners->soonest_ns) partners->soonest_ns = retry_ns;
    if (++partners->failures < FAILURES_MAX) return;
    partners->failures = 0;
    wait_ns = partners->soonest_ns > now_ns ? partners->soonest_ns - now_ns : 0;
    if (wait_ns < PARTNERS_WAIT_MIN_NS << partners->waits) {
        wait_ns = PARTNERS_WAIT_MIN_NS << partners->waits;
    }
    if (wait_ns > PARTNERS_WAIT_MAX_NS) wait_ns = PARTNERS_WAIT_MAX_NS;
    if (partners->waits < WAITS_MAX) partners->waits++;
    /* Two that always ask at the same time would refuse each other for ever. */
    partners->wait_ns = now_ns + wait_ns + partners->spread % wait_ns;
}

void partners_met(struct partners *partners)
{
    partners->failures = partners->waits = 0;
    partners->wait_ns = 0;
}

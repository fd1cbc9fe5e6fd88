/* A ledger of time by peer. Pure. */
#include "averaging/core/patience.h"

#include "averaging/core/times.h"

enum {
    PACES = 3,
    LONG_SHARE = 16,
    FREE_SHARE = 8,      /* of a pace */
    BACK_SHARE = 8,      /* of the time that passes; */
    BACK_NEW_SHARE = 64, /* to all that are new together */
    NEW_CREDITS = 2,
    SPENT_SHARE = 8, /* of the credit, or less, is as good as nothing */
    REST_FIRST = 4,  /* credits */
    REST_MOST = 16,
    REST_AGAIN = 4, /* so many rests later it is forgotten */
    REST_SHARE = 4  /* of the credit is there afterwards */
};

void patience_begin(struct patience *patience, uint64_t pace_ns)
{
    uint64_t pace = pace_ns > 0 ? pace_ns : PACE_UNKNOWN_NS;
    uint64_t some = PACES * deadline_least(pace, CREDIT_USUAL_NS);
    uint64_t credit = deadline_most(deadline_least(some, CREDIT_USUAL_NS), CREDIT_LEAST_NS);

    patience->pace_ns = pace;
    patience->credit_ns = deadline_least(deadline_most(credit, pace / LONG_SHARE), CREDIT_MOST_NS);
}

uint64_t patience_free_ns(const struct patience *patience, uint64_t since_ns, uint64_t half_ns,
                          uint64_t usual_ns)
{
    uint64_t took = deadline_most(half_ns > since_ns ? half_ns - since_ns : 0, usual_ns);
    uint64_t again = deadline_most(took, patience->pace_ns / FREE_SHARE);

    return deadline_after(deadline_after(since_ns, took), again);
}

static const struct patience_debt *debt_seen(const struct patience *patience, struct peer_id peer)
{
    static const struct patience_debt none;

    for (uint32_t i = 0; i < PATIENCE_PEERS_MAX; i++) {
        const struct patience_debt *debt = &patience->debts[i];

        if (debt->ns > 0 && peer_id_is_equal(debt->peer, peer)) return debt;
    }
    return &none;
}

static uint64_t debt_ns(const struct patience_debt *debt, uint64_t now_ns)
{
    uint64_t share = debt->is_common ? BACK_NEW_SHARE : BACK_SHARE;
    uint64_t back = now_ns > debt->since_ns ? (now_ns - debt->since_ns) / share : 0;

    return debt->ns - deadline_least(debt->ns, back);
}

/* With the table full the smallest debt gives way, and rests last. */
static uint64_t weight_of(const struct patience_debt *debt, uint64_t now_ns)
{
    return now_ns < debt->rest_until_ns ? UINT64_MAX : debt_ns(debt, now_ns);
}

/* Where the debt of `peer` is written. */
static struct patience_debt *debt_of(struct patience *patience, struct peer_id peer,
                                     uint64_t now_ns)
{
    struct patience_debt *place = &patience->debts[0];

    for (uint32_t i = 0; i < PATIENCE_PEERS_MAX; i++) {
        struct patience_debt *debt = &patience->debts[i];

        if (peer_id_is_equal(debt->peer, peer)) return debt;
        if (weight_of(debt, now_ns) < weight_of(place, now_ns)) place = debt;
    }
    *place = (struct patience_debt){.peer = peer};
    return place;
}

static uint64_t left_of(const struct patience_debt *debt, uint64_t credit_ns, uint64_t now_ns)
{
    return credit_ns - deadline_least(credit_ns, debt_ns(debt, now_ns));
}

bool patience_rests(const struct patience *patience, struct peer_id peer, uint64_t now_ns)
{
    return now_ns < debt_seen(patience, peer)->rest_until_ns;
}

bool patience_bars(const struct patience *patience, struct peer_id peer, uint64_t now_ns)
{
    return debt_seen(patience, peer)->is_barred && patience_rests(patience, peer, now_ns);
}

uint64_t patience_left_ns(const struct patience *patience, struct peer_id peer, bool is_new,
                          uint64_t now_ns)
{
    uint64_t credit_ns = patience->credit_ns;
    uint64_t left = left_of(debt_seen(patience, peer), credit_ns, now_ns);

    if (patience_rests(patience, peer, now_ns)) return 0;
    if (!is_new) return left;
    return deadline_least(left, left_of(&patience->of_new, NEW_CREDITS * credit_ns, now_ns));
}

static void owe(struct patience_debt *debt, const struct patience_wait *wait, uint64_t credit_ns,
                uint64_t now_ns)
{
    uint64_t since_ns = deadline_most(wait->free_ns, debt->until_ns), late_ns;

    if (now_ns <= since_ns) return;
    late_ns = deadline_least(now_ns - since_ns, credit_ns) * deadline_most(wait->times, 1);
    debt->ns = deadline_least(deadline_after(debt_ns(debt, now_ns), late_ns), credit_ns);
    debt->is_spent = debt->ns >= credit_ns - credit_ns / SPENT_SHARE;
    debt->since_ns = debt->until_ns = now_ns;
}

static void rest(struct patience_debt *debt, bool has_come, uint64_t credit_ns, uint64_t now_ns)
{
    bool is_again = now_ns < deadline_after(debt->rest_until_ns, REST_AGAIN * debt->rest_ns);

    debt->rest_ns = is_again ? deadline_least(2 * debt->rest_ns, REST_MOST * credit_ns) : 0;
    debt->rest_ns = deadline_most(REST_FIRST * credit_ns, debt->rest_ns);
    debt->rest_until_ns = deadline_after(now_ns, debt->rest_ns);
    debt->is_barred = has_come;
    debt->is_spent = false;
    debt->ns = credit_ns - credit_ns / REST_SHARE;
    debt->since_ns = debt->rest_until_ns;
    debt->until_ns = now_ns;
}

/* A rest begins with the second time that it is late without credit: one that had to wait itself
 * for another, whose credit is used up with it as soon as its own is with us, is in time then. */
void patience_charge(struct patience *patience, const struct patience_wait *wait, uint64_t now_ns)
{
    uint64_t credit_ns = patience->credit_ns;
    struct patience_debt *debt;

    if (now_ns < wait->free_ns) return;
    debt = debt_of(patience, wait->peer, now_ns);
    if (now_ns < debt->rest_until_ns) {
        if (wait->has_come && !debt->is_barred) rest(debt, true, credit_ns, now_ns);
    } else if (wait->free_ns >= debt->until_ns && debt->is_spent &&
               2 * debt_ns(debt, now_ns) > credit_ns) {
        rest(debt, wait->has_come, credit_ns, now_ns);
    } else {
        owe(debt, wait, credit_ns, now_ns);
    }
    if (!wait->is_new) return;
    patience->of_new.is_common = true;
    owe(&patience->of_new, wait, NEW_CREDITS * credit_ns, now_ns);
}

/* See trust.h. A fixed table; when it is full whoever did no wrong is forgotten first, then the
 * fault longest ago. */
#include "peer/node/trust.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/times.h"

enum { KNOWN_MAX = 512, OFFENCE = -50, DOUBLINGS_MAX = 8 };
enum { PROVEN_ROUNDS = 10 }; /* kept in a row; twice as many after each time it broke its word */
enum { PAUSE_PERIODS = 2, FORGET_PERIODS = 16 };

struct known {
    struct peer_id peer;
    struct score_sum score;
    uint32_t misses;
    uint32_t bans;
    uint32_t kept;     /* rounds since the latest fault */
    uint32_t broken;   /* times it was proven and failed */
    uint64_t fault_ns; /* the latest fault */
    uint64_t late_ns;  /* no round before, after missed deadlines; so the next two */
    uint64_t far_ns;   /* after values too far away */
    uint64_t ban_ns;   /* after offences, and promises without a decision */
    uint64_t link_ns;  /* no link before */
};

struct trust {
    uint64_t keys[KNOWN_MAX]; /* the first bytes of their ids: they are looked for often */
    struct known known[KNOWN_MAX];
    uint32_t count; /* of them are used, the first */
    uint64_t totals[SCORE_REASONS], bans;
    uint64_t period_ns;
    uint64_t first_ns; /* in place of usual pauses; 0: those */
};

struct trust *trust_create(void)
{
    return mem_alloc(sizeof(struct trust));
}

void trust_destroy(struct trust *trust)
{
    mem_free(trust);
}

static struct known *find(const struct trust *trust, struct peer_id peer)
{
    uint64_t key = load_le64(peer.bytes);

    for (uint32_t i = 0; i < trust->count; i++) {
        if (trust->keys[i] != key) continue;
        if (peer_id_is_equal(trust->known[i].peer, peer)) return (struct known *)&trust->known[i];
    }
    return NULL;
}

static bool gives_way(const struct known *known, const struct known *to)
{
    bool is_good = known->fault_ns == 0, is_other_good = to->fault_ns == 0;

    if (is_good != is_other_good) return is_good;
    return known->fault_ns < to->fault_ns;
}

static struct known *find_or_add(struct trust *trust, struct peer_id peer)
{
    struct known *least = &trust->known[0];
    struct known *found = find(trust, peer);

    if (found != NULL) return found;
    if (trust->count < KNOWN_MAX) {
        least = &trust->known[trust->count++];
    } else {
        for (uint32_t i = 1; i < KNOWN_MAX; i++) {
            if (gives_way(&trust->known[i], least)) least = &trust->known[i];
        }
    }
    trust->keys[least - trust->known] = load_le64(peer.bytes);
    *least = (struct known){.peer = peer};
    return least;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* No round before. */
static uint64_t mix_ns(const struct known *known)
{
    return later(later(known->late_ns, known->far_ns), known->ban_ns);
}

static bool is_proven(const struct known *known)
{
    return known->kept >= (uint32_t)PROVEN_ROUNDS << known->broken;
}

void trust_set_period(struct trust *trust, uint64_t period_ns)
{
    trust->period_ns = period_ns < TRUST_PERIOD_MAX_NS ? period_ns : TRUST_PERIOD_MAX_NS;
}

static void miss(const struct trust *trust, struct known *known, enum score_reason reason,
                 uint64_t now_ns)
{
    uint64_t *until_ns = reason == SCORE_LATE      ? &known->late_ns
                         : reason == SCORE_CLIPPED ? &known->far_ns
                                                   : &known->ban_ns;
    uint64_t first_ns = later(reason == SCORE_SILENT ? TRUST_PIN_NS : TRUST_PAUSE_NS,
                              PAUSE_PERIODS * trust->period_ns);
    bool is_short = trust->first_ns != 0 && until_ns == &known->late_ns;
    uint64_t pause_ns = (is_short ? trust->first_ns : first_ns) << known->misses;

    if (!is_proven(known)) {
        if (!is_short) pause_ns *= 2;
    } else if (known->broken < DOUBLINGS_MAX) {
        known->broken++;
    }
    known->kept = 0;
    if (known->misses < DOUBLINGS_MAX) known->misses++;
    *until_ns = later(*until_ns, now_ns + pause_ns);
}

/* An offence was noted: does it end rounds, or the link? */
static void judge(struct trust *trust, struct known *known, uint64_t now_ns)
{
    double score = score_now(&known->score, now_ns);
    uint32_t doublings = known->bans < DOUBLINGS_MAX ? known->bans : DOUBLINGS_MAX;

    if (score < SCORE_MIX_LEAST) {
        known->ban_ns = later(known->ban_ns, now_ns + TRUST_BAN_NS);
    }
    if (score >= SCORE_LINK_LEAST || now_ns < known->link_ns) return;
    known->link_ns = now_ns + (TRUST_BAN_NS << doublings);
    known->bans++;
    trust->bans++;
}

void trust_note(struct trust *trust, struct peer_id peer, enum score_reason reason, uint64_t now_ns)
{
    struct known *known = find_or_add(trust, peer);
    uint64_t quiet_ns;

    score_note(&known->score, reason, now_ns);
    trust->totals[reason]++;
    if (score_points(reason) >= 0) {
        if (known->kept < UINT32_MAX) known->kept++;
        return;
    }
    quiet_ns = now_ns - later(known->fault_ns, mix_ns(known) < now_ns ? mix_ns(known) : now_ns);
    if (quiet_ns > later(TRUST_FORGET_NS, FORGET_PERIODS * trust->period_ns)) known->misses = 0;
    for (uint64_t past = now_ns - known->fault_ns; past >= TRUST_FORGIVE_NS && known->broken > 0;
         past -= TRUST_FORGIVE_NS) {
        known->broken--;
    }
    known->fault_ns = now_ns;
    miss(trust, known, reason, now_ns);
    if (score_points(reason) <= OFFENCE) judge(trust, known, now_ns);
}

void trust_end_pauses(struct trust *trust, uint64_t first_ns, uint64_t now_ns)
{
    trust->first_ns = first_ns;
    for (uint32_t i = 0; i < KNOWN_MAX; i++) {
        struct known *known = &trust->known[i];

        known->misses = 0;
        if (known->late_ns > now_ns) known->late_ns = now_ns;
    }
}

void trust_near_again(struct trust *trust, struct peer_id peer)
{
    struct known *known = find(trust, peer);

    if (known != NULL) known->far_ns = 0;
}

bool trust_may_mix(const struct trust *trust, struct peer_id peer, uint64_t now_ns)
{
    const struct known *known = find(trust, peer);

    return known == NULL || now_ns >= mix_ns(known);
}

bool trust_is_proven(const struct trust *trust, struct peer_id peer)
{
    const struct known *known = find(trust, peer);

    return known != NULL && is_proven(known);
}

bool trust_is_refused(const struct trust *trust, struct peer_id peer, uint64_t now_ns)
{
    const struct known *known = find(trust, peer);

    return known != NULL && now_ns < known->link_ns;
}

bool trust_view(const struct trust *trust, struct peer_id peer, uint64_t now_ns,
                struct trust_view *view)
{
    const struct known *known = find(trust, peer);

    *view = (struct trust_view){.score = 0.0};
    if (known == NULL) return false;
    view->score = score_now(&known->score, now_ns);
    memcpy(view->counts, known->score.counts, sizeof view->counts);
    view->mix_ns = mix_ns(known);
    view->link_ns = known->link_ns;
    view->bans = known->bans;
    return true;
}

void trust_totals(const struct trust *trust, uint64_t counts[SCORE_REASONS], uint64_t *bans)
{
    memcpy(counts, trust->totals, sizeof trust->totals);
    *bans = trust->bans;
}

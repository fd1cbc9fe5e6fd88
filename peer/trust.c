/* See trust.h. A fixed table; when it is full the fault longest ago is forgotten. */
#include "peer/trust.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

enum { FAULTY_MAX = 512, OFFENCE = -50, MIX_LEAST = -50, LINK_LEAST = -100, DOUBLINGS_MAX = 8 };
#define PAUSE_NS  (2 * NS_PER_S)   /* after the first miss */
#define BAN_NS    (600 * NS_PER_S) /* after offences */
#define FORGET_NS (60 * NS_PER_S)  /* at least so long without a fault, and misses count anew */
#define HALF_NS   (600 * NS_PER_S) /* half-life of the score */

struct faulty {
    struct peer_id peer;
    bool is_used;
    double score;
    uint32_t misses;
    uint64_t noted_ns; /* the latest fault */
    uint64_t mix_ns;   /* no round before */
    uint64_t link_ns;  /* no link before */
};

struct trust {
    struct faulty faulty[FAULTY_MAX];
};

struct trust *trust_create(void)
{
    return mem_alloc(sizeof(struct trust));
}

void trust_destroy(struct trust *trust)
{
    mem_free(trust);
}

static const struct faulty *find(const struct trust *trust, struct peer_id peer)
{
    for (uint32_t i = 0; i < FAULTY_MAX; i++) {
        const struct faulty *faulty = &trust->faulty[i];

        if (faulty->is_used && peer_id_is_equal(faulty->peer, peer)) return faulty;
    }
    return NULL;
}

static struct faulty *find_or_add(struct trust *trust, struct peer_id peer)
{
    struct faulty *oldest = &trust->faulty[0];
    const struct faulty *found = find(trust, peer);

    if (found != NULL) return &trust->faulty[found - trust->faulty];
    for (uint32_t i = 0; i < FAULTY_MAX; i++) {
        struct faulty *faulty = &trust->faulty[i];

        if (!faulty->is_used) {
            oldest = faulty;
            break;
        }
        if (faulty->noted_ns < oldest->noted_ns) oldest = faulty;
    }
    *oldest = (struct faulty){.peer = peer, .is_used = true};
    return oldest;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void miss(struct faulty *faulty, uint64_t now_ns)
{
    uint64_t pause_ns = PAUSE_NS << faulty->misses;

    if (faulty->misses < DOUBLINGS_MAX) faulty->misses++;
    faulty->mix_ns = later(faulty->mix_ns, now_ns + pause_ns);
}

void trust_note(struct trust *trust, struct peer_id peer, int32_t score, uint64_t now_ns)
{
    struct faulty *faulty;
    uint64_t quiet_ns;

    if (score >= 0) return;
    faulty = find_or_add(trust, peer);
    quiet_ns = now_ns - later(faulty->noted_ns, faulty->mix_ns < now_ns ? faulty->mix_ns : now_ns);
    if (quiet_ns > FORGET_NS) faulty->misses = 0;
    for (uint64_t past = now_ns - faulty->noted_ns; past >= HALF_NS && faulty->score < -1.0;
         past -= HALF_NS) {
        faulty->score /= 2.0;
    }
    faulty->score += score;
    faulty->noted_ns = now_ns;
    miss(faulty, now_ns);
    if (score <= OFFENCE && faulty->score < MIX_LEAST) faulty->mix_ns = now_ns + BAN_NS;
    if (score <= OFFENCE && faulty->score < LINK_LEAST) faulty->link_ns = now_ns + BAN_NS;
}

bool trust_may_mix(const struct trust *trust, struct peer_id peer, uint64_t now_ns)
{
    const struct faulty *faulty = find(trust, peer);

    return faulty == NULL || now_ns >= faulty->mix_ns;
}

bool trust_is_refused(const struct trust *trust, struct peer_id peer, uint64_t now_ns)
{
    const struct faulty *faulty = find(trust, peer);

    return faulty != NULL && now_ns < faulty->link_ns;
}

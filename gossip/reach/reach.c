/*
 * Dial-back and what is concluded from it. The idea is that of AutoNAT in libp2p (specs/autonat),
 * reduced to one address that the asked side has seen for itself. One slot a neighbour, kept for a
 * while after its link has gone, because its evidence still holds. Loop thread.
 */
#include "gossip/reach/reach.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/flow/ration.h"
#include "gossip/times.h"
#include "gossip/wire/address.h"

#include <stdio.h>

enum { PROBES_MAX = 4, WITNESSES_NEEDED = 2, WITNESSES_MAX = 128 };

enum evidence { EVIDENCE_NONE, EVIDENCE_REACHED, EVIDENCE_FAILED };

struct witness {
    bool is_used, is_linked, is_asked, is_dialled;
    struct peer_id peer;
    char target[ADDRESS_BYTES_MAX];   /* to dial it back; "": no way to tell */
    char observed[ADDRESS_BYTES_MAX]; /* host only: where it sees us */
    uint64_t ask_ns;                  /* not before */
    uint64_t nonce;                   /* of the open question; 0: none */
    uint64_t asked_ns;
    enum evidence evidence;
    bool is_near; /* it is in a private network itself, so it sees no public address of ours */
    bool is_wide; /* the evidence is about a public address */
    uint64_t evidence_ns;
    uint64_t served_ns; /* when we last dialled for it; 0: never */
};

struct reach {
    struct reach_options options;
    struct rng rng;
    struct witness witnesses[WITNESSES_MAX];
    struct reach_probe probes[PROBES_MAX];
    bool is_probe_used[PROBES_MAX], is_probe_taken[PROBES_MAX];
    uint64_t next_ask_ns, serve_credit_ns;
    uint64_t now_ns;  /* of the last tick or event: evidence is judged by it */
    uint64_t next_ns; /* nothing is due before; 0: look */
    enum nat_class nat;
    bool is_by_one; /* OUTBOUND, as the only one there was to ask says */
};

struct reach *reach_create(const struct reach_options *options)
{
    struct reach *reach = mem_alloc(sizeof *reach);

    if (reach == NULL) return NULL;
    reach->options = *options;
    rng_init(&reach->rng, options->seed, 0x7265616368);
    return reach;
}

void reach_destroy(struct reach *reach)
{
    mem_free(reach);
}

static struct witness *find(struct reach *reach, struct peer_id peer)
{
    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        struct witness *witness = &reach->witnesses[i];

        if (witness->is_used && peer_id_is_equal(witness->peer, peer)) return witness;
    }
    return NULL;
}

/* A free slot, or that of the oldest evidence: of one who left, if there is any. */
static struct witness *take(struct reach *reach)
{
    struct witness *oldest = NULL;

    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        struct witness *witness = &reach->witnesses[i];

        if (!witness->is_used) return witness;
        if (oldest == NULL || witness->is_linked < oldest->is_linked ||
            (witness->is_linked == oldest->is_linked &&
             witness->evidence_ns < oldest->evidence_ns)) {
            oldest = witness;
        }
    }
    return oldest;
}

/* Everything before the port: "[::1]" of "[::1]:7000". */
static void copy_host(const char *address, char host[ADDRESS_BYTES_MAX])
{
    const char *colon = strrchr(address, ':');
    int count = colon == NULL ? 0 : (int)(colon - address);

    snprintf(host, ADDRESS_BYTES_MAX, "%.*s", count, address);
}

/* Addresses that mean something in one network only. Names are taken for public ones. */
static bool is_private(const char *host)
{
    unsigned a, b, c, d;
    char more;

    if (sscanf(host, "%3u.%3u.%3u.%3u%c", &a, &b, &c, &d, &more) == 4) {
        return a == 10 || a == 127 || a == 0 || (a == 172 && b >= 16 && b < 32) ||
               (a == 192 && b == 168) || (a == 169 && b == 254) || (a == 100 && b >= 64 && b < 128);
    }
    if (host[0] != '[') return false;
    return strcmp(host, "[::1]") == 0 || strncasecmp(host, "[fe8", 4) == 0 ||
           strncasecmp(host, "[fe9", 4) == 0 || strncasecmp(host, "[fea", 4) == 0 ||
           strncasecmp(host, "[feb", 4) == 0 || strncasecmp(host, "[fc", 3) == 0 ||
           strncasecmp(host, "[fd", 3) == 0;
}

static bool is_wide(const struct witness *witness)
{
    if (witness->is_near) return false; /* whatever it says */
    return witness->observed[0] == '\0' || !is_private(witness->observed);
}

static uint64_t soon(struct reach *reach, uint64_t now_ns)
{
    uint64_t after = reach->options.ask_after_ns;

    return now_ns + after + (after == 0 ? 0 : rng_below(&reach->rng, after));
}

static void count(const struct reach *reach, bool is_wide, uint32_t *reached, uint32_t *failed)
{
    *reached = *failed = 0;
    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        const struct witness *witness = &reach->witnesses[i];

        if (!witness->is_used || witness->evidence == EVIDENCE_NONE) continue;
        if (witness->is_wide != is_wide) continue;
        if (reach->now_ns > witness->evidence_ns + REACH_EVIDENCE_NS) continue;
        *reached += witness->evidence == EVIDENCE_REACHED;
        *failed += witness->evidence == EVIDENCE_FAILED;
    }
}

/* Those who see us at a public address, if there are any, else the others. Which they are. */
static bool count_best(const struct reach *reach, uint32_t *reached, uint32_t *failed)
{
    count(reach, true, reached, failed);
    if (*reached + *failed > 0) return true;
    count(reach, false, reached, failed);
    return false;
}

/* All who can tell, or could if they were asked. */
static uint32_t witnesses_of_kind(const struct reach *reach, bool are_wide)
{
    uint32_t could = 0;

    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        const struct witness *witness = &reach->witnesses[i];

        if (!witness->is_used || is_wide(witness) != are_wide) continue;
        could += (witness->is_linked && witness->is_asked) || witness->evidence != EVIDENCE_NONE;
    }
    return could;
}

/* A class, once found, holds until two witnesses say otherwise. Where there is only one to ask, its
 * failure is believed: a swarm of one peer that can be dialled and several that cannot has no more
 * for each of those. If it lies, the first other one that reaches us ends that. */
static void judge(struct reach *reach)
{
    uint32_t reached, failed;
    bool are_wide = count_best(reach, &reached, &failed);

    if (reached >= WITNESSES_NEEDED) {
        reach->nat = NAT_PUBLIC;
        reach->is_by_one = false;
    } else if (reached == 0 && failed >= WITNESSES_NEEDED) {
        reach->nat = NAT_OUTBOUND;
        reach->is_by_one = false;
    } else if (reached > 0 && reach->is_by_one) {
        reach->nat = NAT_UNKNOWN;
        reach->is_by_one = false;
    } else if (reached == 0 && failed == 1 && reach->nat == NAT_UNKNOWN &&
               witnesses_of_kind(reach, are_wide) == 1) {
        reach->nat = NAT_OUTBOUND;
        reach->is_by_one = true;
    }
}

static void testify(struct reach *reach, struct witness *witness, enum evidence evidence,
                    uint64_t now_ns)
{
    reach->now_ns = now_ns;
    witness->nonce = 0;
    witness->evidence = evidence;
    witness->evidence_ns = now_ns;
    witness->is_wide = is_wide(witness);
    witness->ask_ns = now_ns + REACH_AGAIN_NS + rng_below(&reach->rng, REACH_AGAIN_NS / 4);
    judge(reach);
}

void reach_on_link(struct reach *reach, const struct reach_link *link, uint64_t now_ns)
{
    struct witness *witness = find(reach, link->peer);
    char host[ADDRESS_BYTES_MAX];

    if (witness == NULL) {
        witness = take(reach);
        *witness = (struct witness){.is_used = true, .peer = link->peer};
    }
    reach->next_ns = 0;
    witness->is_linked = true;
    witness->is_asked = link->is_asked;
    witness->is_dialled = link->is_dialled;
    witness->nonce = 0;
    copy_host(link->observed, witness->observed);
    witness->target[0] = '\0';
    copy_host(link->remote, host);
    witness->is_near = is_private(host);
    if (!link->is_dialled && link->listen_port != 0 && host[0] != '\0') {
        int length = snprintf(witness->target, sizeof witness->target, "%s:%u", host,
                              (unsigned)link->listen_port);
        if (length >= (int)sizeof witness->target || !address_is_valid(witness->target)) {
            witness->target[0] = '\0';
        }
    }
    if (!link->is_asked) return;
    if (!link->is_dialled) {
        testify(reach, witness, EVIDENCE_REACHED, now_ns);
    } else if (witness->evidence == EVIDENCE_NONE) {
        witness->ask_ns = soon(reach, now_ns);
    }
}

void reach_on_link_lost(struct reach *reach, struct peer_id peer)
{
    struct witness *witness = find(reach, peer);

    if (witness == NULL) return;
    witness->is_linked = false;
    witness->nonce = 0;
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        if (reach->is_probe_used[i] && !reach->is_probe_taken[i] &&
            peer_id_is_equal(reach->probes[i].peer, peer)) {
            reach->is_probe_used[i] = false;
        }
    }
    if (witness->evidence == EVIDENCE_NONE) witness->is_used = false;
    judge(reach); /* the one that is left may be the only one now */
}

/* ---- for others ---- */

static void answer(struct outbox *out, struct peer_id to, uint64_t nonce, enum dialback_code code)
{
    struct message message = {.type = MESSAGE_DIALBACK};

    message.as.dialback.nonce = nonce;
    message.as.dialback.code = code;
    outbox_add(out, to, &message);
}

static void on_request(struct reach *reach, struct witness *from, uint64_t nonce, uint64_t now_ns,
                       struct outbox *out)
{
    bool is_often = from->served_ns != 0 && now_ns < from->served_ns + REACH_PEER_GAP_NS;

    if (from->target[0] == '\0') {
        answer(out, from->peer, nonce, DIALBACK_NO_PORT);
        return;
    }
    if (is_often || !ration_has(reach->serve_credit_ns, now_ns, 0, REACH_SERVE_BURST_NS)) {
        answer(out, from->peer, nonce, DIALBACK_BUSY);
        return;
    }
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        if (reach->is_probe_used[i]) continue;
        reach->is_probe_used[i] = true;
        reach->is_probe_taken[i] = false;
        reach->probes[i] = (struct reach_probe){.peer = from->peer, .nonce = nonce};
        memcpy(reach->probes[i].address, from->target, ADDRESS_BYTES_MAX);
        from->served_ns = now_ns;
        ration_take(&reach->serve_credit_ns, now_ns, REACH_SERVE_GAP_NS);
        return;
    }
    answer(out, from->peer, nonce, DIALBACK_BUSY);
}

bool reach_next_probe(struct reach *reach, struct reach_probe *probe)
{
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        if (!reach->is_probe_used[i] || reach->is_probe_taken[i]) continue;
        reach->is_probe_taken[i] = true;
        *probe = reach->probes[i];
        return true;
    }
    return false;
}

static void probe_end(struct reach *reach, struct peer_id peer, uint64_t nonce,
                      enum dialback_code code, struct outbox *out)
{
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        if (!reach->is_probe_taken[i] || reach->probes[i].nonce != nonce) continue;
        if (!peer_id_is_equal(reach->probes[i].peer, peer)) continue;
        reach->is_probe_used[i] = reach->is_probe_taken[i] = false;
        answer(out, peer, nonce, code);
        return;
    }
}

void reach_on_probe_ended(struct reach *reach, struct peer_id peer, uint64_t nonce, bool is_reached,
                          struct outbox *out)
{
    probe_end(reach, peer, nonce, is_reached ? DIALBACK_REACHED : DIALBACK_FAILED, out);
}

void reach_on_probe_unmade(struct reach *reach, struct peer_id peer, uint64_t nonce,
                           struct outbox *out)
{
    probe_end(reach, peer, nonce, DIALBACK_BUSY, out);
}

/* ---- for ourselves ---- */

static void on_answer(struct reach *reach, struct witness *from,
                      const struct message_dialback *dialback, uint64_t now_ns)
{
    if (from->nonce == 0 || from->nonce != dialback->nonce) return; /* arrived, or never asked */
    switch (dialback->code) {
    case DIALBACK_FAILED:
        testify(reach, from, EVIDENCE_FAILED, now_ns);
        return;
    case DIALBACK_BUSY:
        from->nonce = 0;
        from->ask_ns = now_ns + REACH_BUSY_NS + rng_below(&reach->rng, REACH_BUSY_NS);
        return;
    case DIALBACK_NO_PORT:
        from->nonce = 0;
        from->ask_ns = now_ns + REACH_AGAIN_NS;
        return;
    default:
        return; /* REACHED: the nonce itself is on its way */
    }
}

void reach_on_message(struct reach *reach, struct peer_id from, const struct message *message,
                      uint64_t now_ns, struct outbox *out)
{
    struct witness *witness = find(reach, from);

    if (witness == NULL || !witness->is_linked) return;
    reach->next_ns = 0;
    if (message->type == MESSAGE_DIALBACK_REQ) {
        on_request(reach, witness, message->as.dialback.nonce, now_ns, out);
    } else {
        CHECK(message->type == MESSAGE_DIALBACK);
        on_answer(reach, witness, &message->as.dialback, now_ns);
    }
}

void reach_on_arrived(struct reach *reach, struct peer_id peer, uint64_t nonce, uint64_t now_ns)
{
    struct witness *witness = find(reach, peer);

    if (witness == NULL || nonce == 0 || witness->nonce != nonce) return;
    reach->next_ns = 0;
    testify(reach, witness, EVIDENCE_REACHED, now_ns);
}

/* Is another question worth it? Until the class is known, and then one a witness now and then. */
static bool may_ask(const struct witness *witness)
{
    return witness->is_used && witness->is_linked && witness->is_asked && witness->is_dialled &&
           witness->nonce == 0;
}

static uint32_t fresh_count(const struct reach *reach, bool is_wide_only, uint64_t now_ns)
{
    uint32_t fresh = 0;

    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        const struct witness *witness = &reach->witnesses[i];

        if (!witness->is_used || (is_wide_only && !is_wide(witness))) continue;
        fresh += witness->nonce != 0 || (witness->evidence != EVIDENCE_NONE &&
                                         now_ns < witness->evidence_ns + REACH_AGAIN_NS);
    }
    return fresh;
}

static void ask(struct reach *reach, struct witness *witness, uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_DIALBACK_REQ};

    do {
        witness->nonce = rng_u64(&reach->rng);
    } while (witness->nonce == 0);
    witness->asked_ns = now_ns;
    message.as.dialback.nonce = witness->nonce;
    outbox_add(out, witness->peer, &message);
    reach->next_ask_ns = now_ns + REACH_ASK_GAP_NS;
}

/* Enough is known without `next`: two fresh witnesses as good as it, and a class, or four of any.
 */
static bool is_settled(const struct reach *reach, const struct witness *next, uint64_t now_ns)
{
    uint32_t fresh = fresh_count(reach, is_wide(next), now_ns);

    return fresh >= 2 * WITNESSES_NEEDED ||
           (fresh >= WITNESSES_NEEDED && reach->nat != NAT_UNKNOWN);
}

/* Whom to ask now, or NULL; questions nobody answered are taken back. */
static struct witness *next_due(struct reach *reach, uint64_t now_ns)
{
    struct witness *due = NULL;

    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        struct witness *witness = &reach->witnesses[i];

        if (witness->is_used && witness->nonce != 0 &&
            now_ns >= witness->asked_ns + REACH_ANSWER_NS) {
            witness->nonce = 0;
            witness->ask_ns = now_ns + REACH_BUSY_NS;
        }
        if (!may_ask(witness) || now_ns < witness->ask_ns) continue;
        if (due == NULL || witness->ask_ns < due->ask_ns) due = witness;
    }
    return due;
}

static uint64_t next_ns(const struct reach *reach)
{
    uint64_t next_ns = UINT64_MAX;

    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        const struct witness *witness = &reach->witnesses[i];
        uint64_t at_ns = UINT64_MAX;

        if (!witness->is_used) continue;
        if (witness->nonce != 0) {
            at_ns = witness->asked_ns + REACH_ANSWER_NS;
        } else if (may_ask(witness)) {
            at_ns = witness->ask_ns > reach->next_ask_ns ? witness->ask_ns : reach->next_ask_ns;
        }
        if (at_ns < next_ns) next_ns = at_ns;
    }
    return next_ns;
}

void reach_tick(struct reach *reach, uint64_t now_ns, struct outbox *out)
{
    struct witness *due;

    if (now_ns < reach->next_ns) return;
    reach->now_ns = now_ns;
    while ((due = next_due(reach, now_ns)) != NULL && now_ns >= reach->next_ask_ns) {
        if (is_settled(reach, due, now_ns)) {
            due->ask_ns = now_ns + REACH_AGAIN_NS / 4 + rng_below(&reach->rng, REACH_AGAIN_NS / 4);
        } else {
            ask(reach, due, now_ns, out);
        }
    }
    reach->next_ns = next_ns(reach);
}

uint64_t reach_next_ns(const struct reach *reach)
{
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        if (reach->is_probe_used[i] && !reach->is_probe_taken[i]) return 0;
    }
    return reach->next_ns;
}

/* ---- what was found ---- */

enum nat_class reach_class(const struct reach *reach)
{
    return reach->nat;
}

/* The host that most neighbours we dialled name, if at least two do. */
static void most_observed(const struct reach *reach, char observed[ADDRESS_BYTES_MAX])
{
    uint32_t most = WITNESSES_NEEDED - 1;

    observed[0] = '\0';
    for (uint32_t i = 0; i < WITNESSES_MAX; i++) {
        const struct witness *one = &reach->witnesses[i];
        uint32_t votes = 0;

        if (!one->is_used || !one->is_linked || !one->is_dialled) continue;
        if (one->observed[0] == '\0') continue;
        for (uint32_t j = 0; j < WITNESSES_MAX; j++) {
            const struct witness *other = &reach->witnesses[j];

            if (!other->is_used || !other->is_linked || !other->is_dialled) continue;
            votes += strcmp(one->observed, other->observed) == 0;
        }
        if (votes <= most) continue;
        most = votes;
        memcpy(observed, one->observed, ADDRESS_BYTES_MAX);
    }
}

void reach_view(const struct reach *reach, struct reach_view *view)
{
    view->nat = reach->nat;
    (void)count_best(reach, &view->reached, &view->failed);
    most_observed(reach, view->observed);
}

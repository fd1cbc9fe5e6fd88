/*
 * The active view of a swarm too large for a full mesh: links to some 32 members, eight of them
 * dialled by us at least, so that nobody can surround us by dialling in; the two oldest of those
 * are anchors and stay. One link a minute is given up for another, and every ten seconds a random
 * member is dialled, so that views mix and no rumour goes unchecked for ever. Links that were seen
 * to be slow go first, so that a view comes to hold mostly quick ones. After HyParView (Leitao,
 * Pereira, Rodrigues 2007), which has the polite end of a link too: who is pruned is told so, and
 * neither side takes it for a death. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "gossip/times.h"

enum {
    LINKS = 32,       /* aimed at */
    LINKS_SLACK = 8,  /* more than that many above and some are pruned */
    OUTBOUND_MIN = 8, /* of them dialled by us */
    AT_ONCE = 8,      /* dials or prunes a tick */
    ANCHORS = 2,
    PRUNE_EQUAL = 2, /* one in so many is pruned whatever its line carries */
    LEAVE_AT = MEMBERSHIP_MESH + 1
};

uint32_t view_members(const struct membership *m)
{
    return m->view.is_small ? m->book.met : m->book.counted - m->book.vain;
}

/* Of the latest eight whom we knew by hearsay, and dialled, some were not there; or of all we know.
 * Who else is not? */
static bool is_being_misled(const struct book *book)
{
    return __builtin_popcount(book->tried & 0xff) >= 2 || book->vain > book->counted / 8;
}

/* Whom to average with: of a small swarm those that were met. So it is, too, where somebody tells
 * of members that are not there before this peer knows how large its swarm is: it has met no more
 * than fit a small one, and goes by those until it has found out about the others. */
static bool is_by_met(const struct membership *m)
{
    return m->view.is_small ||
           (m->book.met > 0 && m->book.met < MEMBERSHIP_MESH && is_being_misled(&m->book));
}

/* One can be told of any number of members at once. A peer that was linked with all it knew
 * believes in more only when it has met them, which in a full mesh is soon; one that comes to a
 * large swarm is not linked with all it hears of for as long. */
static void check_small(struct membership *m)
{
    struct view *view = &m->view;

    if (view->is_partial || m->linked_count == 0) {
        view->is_small = false;
        view->small_ns = 0;
    } else if (!view->is_small && view_members(m) + 1 > MEMBERSHIP_MESH) {
        view->small_ns = 0;
    } else if (view->small_ns == 0) {
        view->small_ns = m->tick_ns;
    } else if (m->tick_ns >= view->small_ns + VIEW_SMALL_NS) {
        view->is_small = true;
    }
    m->book.changes += m->book.is_by_met != is_by_met(m);
    m->book.is_by_met = is_by_met(m);
}

void view_check(struct membership *m)
{
    uint32_t members;

    check_small(m);
    members = view_members(m) + 1;
    if (!m->view.is_partial && members > FULL_MESH_MAX) {
        m->view.is_partial = true;
        m->view.tick_ns = 0;
        membership_wake(m, m->tick_ns);
    } else if (m->view.is_partial && members < LEAVE_AT) {
        m->view.is_partial = false;
        for (uint32_t i = 0; i < m->book.count; i++) {
            struct member *member = m->book.entries[i].member;

            if (member->state == MEMBER_KNOWN && member->contact == NULL) {
                dialler_call(m, member, m->tick_ns);
            }
        }
    }
}

/* How many links are there to stay, and how many of them we dialled. */
static uint32_t links_count(const struct membership *m, uint32_t *outbound)
{
    uint32_t count = 0;

    *outbound = 0;
    for (uint32_t i = 0; i < m->linked_count; i++) {
        const struct member *member = m->linked[i].member;

        if (member->contact->is_parting || member->contact->wants_hangup) continue;
        if (member->state != MEMBER_ALIVE) continue;
        count++;
        *outbound += member->contact->is_outbound;
    }
    return count;
}

/* The oldest links we dialled; the list of links is in order of age. */
static bool is_anchor(const struct membership *m, const struct member *member)
{
    uint32_t older = 0;

    if (!member->contact->is_outbound) return false;
    for (uint32_t i = 0; i < member->contact->place; i++) {
        const struct contact *other = m->linked[i].member->contact;

        older += other->is_outbound && !other->is_parting;
    }
    return older < ANCHORS;
}

/* Slow lines first, but every second time whichever: the view stays a mixed one, and members with
 * quick lines alone cannot get hold of more than twice their share of it. */
static bool prune_one(struct membership *m, bool spares_outbound, uint64_t now_ns,
                      struct outbox *out)
{
    struct message message = {.type = MESSAGE_PRUNE};
    struct member *pick = NULL, *slow = NULL;
    uint64_t candidates = 0, slow_ones = 0;

    for (uint32_t i = 0; i < m->linked_count; i++) {
        struct member *member = m->linked[i].member;
        const struct contact *contact = member->contact;

        if (member->state != MEMBER_ALIVE || contact->is_parting || contact->wants_hangup) continue;
        if (now_ns < contact->up_ns + VIEW_SETTLE_NS || (spares_outbound && contact->is_outbound)) {
            continue;
        }
        if (member->is_kept || is_anchor(m, member)) continue;
        candidates++;
        if (rng_below(&m->rng, candidates) == 0) pick = member;
        if (contact->is_slow && rng_below(&m->rng, ++slow_ones) == 0) slow = member;
    }
    if (slow != NULL && rng_below(&m->rng, PRUNE_EQUAL) != 0) pick = slow;
    if (pick == NULL) return false;
    pick->contact->is_parting = true;
    pick->contact->part_ns = now_ns + VIEW_PART_NS;
    membership_look(m, pick);
    message.as.prune.wait_ms = PRUNE_WAIT_MS;
    outbox_add(out, pick->id, &message);
    return true;
}

static bool is_candidate(const struct member *member, uint64_t now_ns)
{
    return member->state == MEMBER_KNOWN && member->contact == NULL && !member->is_dialling &&
           !member->is_chosen && member_brief(member)->nat != NAT_OUTBOUND &&
           now_ns >= member->avoid_ns && member->record != NULL;
}

/* Is there anybody, never met, of whom dials have yet to tell? If not, what the latest ones told is
 * no reason to go on, or it would be one for ever. */
static bool has_untried(const struct membership *m, uint64_t now_ns)
{
    for (uint32_t i = 0; i < m->book.count; i++) {
        const struct member *member = m->book.entries[i].member;

        if (!member->is_hearsay || member->vain == VAIN_MAX) continue;
        if (member->is_chosen || member->is_dialling || is_candidate(member, now_ns)) return true;
    }
    return false;
}

/* Dial up to `count` random members, half of them among those met before: whoever fills books with
 * invented members does not fill our view. To find out who does not exist: those never met alone,
 * first those that were not dialled in vain yet. */
static void dial_some(struct membership *m, uint32_t count, bool is_misled, uint64_t now_ns)
{
    struct member *picks[2][AT_ONCE];
    uint64_t seen[2] = {0, 0};
    uint32_t taken[2] = {0, 0}, under_way = 0;

    if (count > AT_ONCE) count = AT_ONCE;
    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.entries[i].member;
        unsigned kind = is_misled ? member->vain < VAIN_MAX : member->is_hearsay;

        under_way += member->is_chosen;
        if (!is_candidate(member, now_ns) || (is_misled && !member->is_hearsay)) continue;
        if (!dialler_may_dial(m, member, now_ns)) continue; /* it would keep a place from others */
        seen[kind]++;
        if (taken[kind] < AT_ONCE) {
            picks[kind][taken[kind]++] = member;
        } else {
            uint64_t place = rng_below(&m->rng, seen[kind]);

            if (place < AT_ONCE) picks[kind][place] = member;
        }
    }
    for (uint32_t i = 0; i < count && under_way < DIALS_MAX; i++) {
        unsigned kind = is_misled ? 1 : (unsigned)rng_below(&m->rng, 2);

        if (taken[kind] == 0) kind = 1 - kind;
        if (taken[kind] == 0) return;
        dialler_pick(m, picks[kind][--taken[kind]], now_ns);
        under_way++;
    }
}

void view_soon(struct membership *m, uint64_t now_ns)
{
    if (m->view.tick_ns <= now_ns) return;
    m->view.tick_ns = now_ns;
    membership_wake(m, now_ns);
}

/* Those that are to be linked whatever the view has. */
static void dial_kept(struct membership *m, uint64_t now_ns)
{
    uint32_t dialled = 0;

    for (uint32_t i = 0; i < m->kept_count && dialled < AT_ONCE; i++) {
        struct member *member = m->kept[i];

        if (!is_candidate(member, now_ns)) continue;
        /* The other end wants the link, too. */
        if (now_ns < member->kept_ns + dialler_turn_ns(m, member)) continue;
        dialler_pick(m, member, now_ns);
        dialled++;
    }
}

static void find_out(struct membership *m, uint64_t now_ns)
{
    if (now_ns < m->view.doubt_ns || !is_being_misled(&m->book)) return;
    if (!has_untried(m, now_ns)) m->book.tried = 0;
    if (!is_being_misled(&m->book)) return;
    m->view.doubt_ns = now_ns + membership_jitter(m, VIEW_PROBE_MISLED_NS);
    dial_some(m, AT_ONCE, true, now_ns);
}

void view_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    struct view *view = &m->view;
    uint32_t outbound, links;

    view_check(m);
    if (!view->is_partial || now_ns < view->tick_ns) return;
    view->tick_ns = now_ns + membership_jitter(m, VIEW_TICK_NS);
    dial_kept(m, now_ns);
    kept_tick(m, now_ns);
    links = links_count(m, &outbound);
    if (links > LINKS + LINKS_SLACK) {
        for (uint32_t i = 0; i < AT_ONCE && links > LINKS; i++) {
            if (!prune_one(m, outbound <= OUTBOUND_MIN, now_ns, out)) break;
            links = links_count(m, &outbound);
        }
    } else if (links < LINKS) {
        dial_some(m, LINKS - links, false, now_ns);
    } else if (outbound < OUTBOUND_MIN) {
        dial_some(m, OUTBOUND_MIN - outbound, false, now_ns);
    }
    if (view->shuffle_ns == 0) view->shuffle_ns = now_ns + membership_jitter(m, VIEW_SHUFFLE_NS);
    if (now_ns >= view->shuffle_ns) {
        view->shuffle_ns = now_ns + membership_jitter(m, VIEW_SHUFFLE_NS);
        if (links >= LINKS) (void)prune_one(m, false, now_ns, out);
    }
    if (now_ns >= view->probe_ns) {
        view->probe_ns = now_ns + membership_jitter(m, VIEW_PROBE_NS);
        dial_some(m, 1, false, now_ns);
    }
    find_out(m, now_ns);
}

uint64_t view_next(const struct membership *m)
{
    return m->view.is_partial ? m->view.tick_ns : UINT64_MAX;
}

void view_on_pruned(struct membership *m, struct member *member, uint32_t wait_ms, uint64_t now_ns)
{
    uint64_t wait_ns = wait_ms * NS_PER_MS,
             most_ns = member->is_kept ? VIEW_AVOID_KEPT_NS : VIEW_AVOID_MAX_NS;

    member->avoid_ns = now_ns + (wait_ns < most_ns ? wait_ns : most_ns);
    if (member->state != MEMBER_ALIVE) return;
    member->contact->is_parting = true;
    membership_hangup(m, member);
    membership_wake(m, now_ns);
}

void membership_set_slow(struct membership *m, struct peer_id id, bool is_slow)
{
    struct member *member = book_find(&m->book, id);

    if (member != NULL && member->contact != NULL) member->contact->is_slow = is_slow;
}

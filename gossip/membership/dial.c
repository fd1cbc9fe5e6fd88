/*
 * Whom a membership wants dialled, and when. Bootstrap addresses: quickly (100 ms growing to 2 s)
 * while this peer is alone and at first, because those started together may come up in any order;
 * later once a minute, which is how swarms that never met find each other.
 * Members without a link: at once, then with a back-off from 1 s to 60 s; those believed dead that
 * reached its end, one at random a minute, which is how partitions heal. Of two peers that learn of
 * each other the one with the smaller id dials first, because that is the link both would keep.
 * Who says that it can only dial out is left to dial us: it is tried once a minute, in case it is
 * wrong or in the same room; and whoever is outbound-only itself dials all others first.
 * A member can name any address in its record, so dials are bounded in number and in rate, in all
 * and for each host (host.c). Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/flow/ration.h"
#include "gossip/times.h"

#include <stdio.h>

enum {
    BOOTSTRAP_TRIES = 20, /* quick ones, for an address that never answered */
    BACKOFF_FIRST_S = BACKOFF_FIRST_NS / NS_PER_S,
    BACKOFF_MAX_S = BACKOFF_MAX_NS / NS_PER_S
};

uint64_t membership_jitter(struct membership *m, uint64_t base_ns)
{
    return base_ns - base_ns / 4 + rng_below(&m->rng, base_ns / 2 + 1);
}

static bool is_alone(const struct membership *m)
{
    return m->linked_count == 0;
}

static void dialler_wake(struct membership *m, uint64_t at_ns)
{
    if (at_ns < m->dialler.next_ns) m->dialler.next_ns = at_ns;
}

static void copy_address(char to[ADDRESS_BYTES_MAX], const char *from)
{
    memset(to, 0, ADDRESS_BYTES_MAX);
    snprintf(to, ADDRESS_BYTES_MAX, "%s", from);
}

void membership_add_bootstrap(struct membership *m, const char *address)
{
    struct dialler *d = &m->dialler;
    struct bootstrap *entry;

    CHECK(address != NULL && address[0] != '\0');
    if (strlen(address) >= ADDRESS_BYTES_MAX) return;
    if (d->bootstraps_count == MEMBERSHIP_BOOTSTRAPS_MAX) return;
    for (uint32_t i = 0; i < m->options.addresses_count; i++) {
        if (strcmp(m->options.addresses[i], address) == 0) return;
    }
    for (uint32_t i = 0; i < d->bootstraps_count; i++) {
        if (strcmp(d->bootstraps[i].address, address) == 0) return;
    }
    entry = &d->bootstraps[d->bootstraps_count++];
    *entry = (struct bootstrap){.backoff_ns = BOOTSTRAP_FIRST_NS};
    copy_address(entry->address, address);
    dialler_wake(m, 0);
}

/* The other side will not be dialled, or not first. */
uint64_t dialler_turn_ns(const struct membership *m, const struct member *member)
{
    bool is_first = peer_id_compare(m->self_id, member->id) < 0;

    if (member_brief(member)->nat == NAT_OUTBOUND) {
        return m->nat == NAT_OUTBOUND ? BACKOFF_FIRST_NS : BACKOFF_MAX_NS;
    }
    return is_first || m->nat == NAT_OUTBOUND ? 0 : DIAL_TURN_NS;
}

static uint64_t backoff_ns(const struct member *member, uint64_t cap_ns)
{
    return member->backoff_s * NS_PER_S < cap_ns ? member->backoff_s * NS_PER_S : cap_ns;
}

void dialler_at(struct membership *m, struct member *member, uint64_t at_ns)
{
    bool has_dial = at_ns != UINT64_MAX;

    if ((member->dial_ns != UINT64_MAX) != has_dial) book_set_dial(&m->book, member, has_dial);
    member->dial_ns = at_ns;
    dialler_wake(m, at_ns);
}

void dialler_call(struct membership *m, struct member *member, uint64_t now_ns)
{
    uint64_t spread = rng_below(&m->rng, DIAL_SPREAD_NS);

    member->failures = 0;
    member->backoff_s = member_brief(member)->nat == NAT_OUTBOUND ? BACKOFF_MAX_S : BACKOFF_FIRST_S;
    if (m->view.is_partial && member->state == MEMBER_KNOWN) return; /* the view picks */
    dialler_at(m, member, now_ns + spread + dialler_turn_ns(m, member));
}

void dialler_retry(struct membership *m, struct member *member, uint64_t now_ns)
{
    uint64_t wait = backoff_ns(member, BACKOFF_VOUCHED_NS);

    if (m->view.is_partial) return;
    dialler_at(m, member,
               now_ns + membership_jitter(m, wait > BACKOFF_FIRST_NS ? wait : BACKOFF_FIRST_NS));
}

void dialler_pick(struct membership *m, struct member *member, uint64_t now_ns)
{
    member->is_chosen = true;
    member->address_next = 0;
    dialler_at(m, member, now_ns);
}

void dialler_on_alone(struct membership *m, uint64_t now_ns)
{
    struct dialler *d = &m->dialler;

    for (uint32_t i = 0; i < d->bootstraps_count; i++) {
        struct bootstrap *entry = &d->bootstraps[i];
        uint64_t soon = now_ns + membership_jitter(m, BOOTSTRAP_FIRST_NS);

        entry->backoff_ns = BOOTSTRAP_FIRST_NS;
        if (entry->dial_ns > soon) entry->dial_ns = soon;
    }
    hosts_forgive(m);
    m->heal_ns = now_ns + membership_jitter(m, BACKOFF_ALONE_MAX_NS);
    dialler_wake(m, now_ns);
    membership_wake(m, m->heal_ns);
}

void dialler_heal(struct membership *m, uint64_t now_ns)
{
    struct member *chosen = NULL;
    uint64_t candidates = 0;

    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.entries[i].member;

        if (member->state != MEMBER_DEAD || member->contact != NULL || member->dial_ns <= now_ns) {
            continue;
        }
        if (member_brief(member)->nat == NAT_OUTBOUND && !is_alone(m))
            continue; /* it will dial, if it lives */
        candidates++;
        if (rng_below(&m->rng, candidates) == 0) chosen = member;
    }
    if (chosen != NULL) dialler_at(m, chosen, now_ns);
    m->heal_ns = now_ns + membership_jitter(m, is_alone(m) ? BACKOFF_ALONE_MAX_NS : BACKOFF_MAX_NS);
}

static struct dial *dial_find(struct dialler *d, const char *address)
{
    for (uint32_t i = 0; i < DIALS_MAX; i++) {
        if (d->dials[i].address[0] != '\0' && strcmp(d->dials[i].address, address) == 0) {
            return &d->dials[i];
        }
    }
    return NULL;
}

static struct bootstrap *bootstrap_find(struct dialler *d, const char *address)
{
    for (uint32_t i = 0; i < d->bootstraps_count; i++) {
        if (strcmp(d->bootstraps[i].address, address) == 0) return &d->bootstraps[i];
    }
    return NULL;
}

static void bootstrap_again(struct membership *m, struct bootstrap *entry, uint64_t now_ns)
{
    bool is_given_up = entry->failures >= BOOTSTRAP_TRIES;
    uint64_t cap = is_given_up && !is_alone(m) ? BOOTSTRAP_LINKED_NS : BOOTSTRAP_ALONE_MAX_NS;
    uint64_t wait = entry->backoff_ns < cap ? entry->backoff_ns : cap;

    if (entry->failures == 0) {
        wait = BOOTSTRAP_LINKED_NS; /* just reached: its member is dialled now */
    }
    entry->dial_ns = now_ns + membership_jitter(m, wait);
    entry->backoff_ns = entry->backoff_ns < cap / 2 ? entry->backoff_ns * 2 : cap;
    dialler_wake(m, entry->dial_ns);
}

/* Move to the next of a member's addresses; false: that was the last one. */
static bool next_address(struct member *member)
{
    for (uint32_t i = member->address_next + 1; i < ADDRESSES_MAX; i++) {
        const char *address = member_address(member, i);

        if (address == NULL) continue;
        if (member->reached != NULL && strcmp(address, member->reached) == 0) continue;
        member->address_next = (uint8_t)i;
        return true;
    }
    member->address_next = 0;
    return false;
}

/* A member nobody here ever reached. Others are asked for it, if there are any; in a large swarm
 * it is not worth the question. */
static void give_up(struct membership *m, struct member *member, uint64_t now_ns)
{
    bool is_rumour = member->is_hearsay && m->book.counted >= FULL_MESH_MAX;

    if (m->view.is_partial ? !member->is_hearsay : m->linked_count > 0 && !is_rumour) {
        if (!m->view.is_partial) suspect(m, member, true, false, now_ns);
        return;
    }
    membership_become(m, member, MEMBER_DEAD, now_ns);
}

static void member_dial_failed(struct membership *m, struct member *member, uint64_t now_ns)
{
    uint64_t cap = is_alone(m) ? BACKOFF_ALONE_MAX_NS : BACKOFF_MAX_NS;

    if (member->contact != NULL) return;
    if (next_address(member)) {
        dialler_at(m, member, now_ns);
        return;
    }
    if (member->failures < UINT16_MAX) member->failures++;
    member->is_chosen = false;
    book_tried_in_vain(&m->book, member);
    if (m->view.is_partial && member->state == MEMBER_KNOWN) {
        dialler_at(m, member, UINT64_MAX);
        if (member->failures >= KNOWN_FAILURES_MAX) give_up(m, member, now_ns);
        return;
    }
    if (member->state == MEMBER_DEAD && member->backoff_s >= BACKOFF_MAX_S) {
        dialler_at(m, member, UINT64_MAX); /* healing only, from here on */
        return;
    }
    dialler_at(m, member, now_ns + membership_jitter(m, backoff_ns(member, cap)));
    if (member->backoff_s < BACKOFF_MAX_S) member->backoff_s = (uint8_t)(member->backoff_s * 2);
    if (member->state == MEMBER_SUSPECT) membership_wake(m, now_ns + 1); /* it may be over now */
    if (member->state == MEMBER_KNOWN && member->failures >= KNOWN_FAILURES_MAX) {
        give_up(m, member, now_ns);
    }
}

/* Give the slot back; the member it was for, if any. */
static struct member *dial_end(struct membership *m, struct dial *dial)
{
    struct member *member = dial->has_id ? book_find(&m->book, dial->id) : NULL;

    if (member != NULL) member->is_dialling = false;
    *dial = (struct dial){.address = ""};
    dialler_wake(m, 0); /* a slot is free: look again who waits */
    return member;
}

void membership_on_dial_failed(struct membership *m, const char *address, uint64_t now_ns)
{
    struct dial *dial = dial_find(&m->dialler, address);
    struct bootstrap *entry = bootstrap_find(&m->dialler, address);
    struct member *member;

    if (dial == NULL) return;
    host_on_failed(m, dial, now_ns);
    member = dial_end(m, dial);
    if (member != NULL) member_dial_failed(m, member, now_ns);
    if (entry == NULL) return;
    entry->failures++;
    bootstrap_again(m, entry, now_ns);
}

void membership_on_dial_put_off(struct membership *m, const char *address, uint64_t now_ns)
{
    struct dial *dial = dial_find(&m->dialler, address);
    struct bootstrap *entry = bootstrap_find(&m->dialler, address);
    struct member *member = dial != NULL ? dial_end(m, dial) : NULL;
    uint64_t at_ns = now_ns + membership_jitter(m, DIAL_PUT_OFF_NS);

    if (member != NULL) dialler_at(m, member, at_ns);
    if (entry != NULL) entry->dial_ns = at_ns;
    dialler_wake(m, at_ns);
}

void dialler_on_reached(struct membership *m, const char *address, struct peer_id id,
                        uint64_t now_ns)
{
    struct dial *dial = dial_find(&m->dialler, address);
    struct bootstrap *entry = bootstrap_find(&m->dialler, address);
    struct member *member = dial != NULL ? dial_end(m, dial) : NULL;

    host_on_reached(m, address, now_ns);
    if (member != NULL && !peer_id_is_equal(member->id, id)) { /* somebody else lives there now */
        if (member->reached != NULL && strcmp(member->reached, address) == 0) {
            hosts_count(&m->book, member, false);
            mem_free(member->reached);
            member->reached = NULL;
            hosts_count(&m->book, member, true);
        }
        member_dial_failed(m, member, now_ns);
    }
    if (member != NULL && member->contact != NULL) member->is_chosen = false;
    if (member != NULL && peer_id_is_equal(member->id, id) && member->contact == NULL) {
        dialler_at(m, member, now_ns + membership_jitter(m, BACKOFF_FIRST_NS));
    }
    if (entry == NULL) return;
    entry->is_self = peer_id_is_equal(id, m->self_id);
    entry->has_id = true;
    entry->id = id;
    entry->backoff_ns = BOOTSTRAP_FIRST_NS;
    entry->failures = 0;
    bootstrap_again(m, entry, now_ns);
}

void membership_on_link_duplicate(struct membership *m, const char *address, struct peer_id id,
                                  uint64_t now_ns)
{
    dialler_on_reached(m, address, id, now_ns);
}

/* When a dial in the air expires, if that is before `at_ns`. */
static uint64_t earliest_end(const struct dialler *d, uint64_t at_ns)
{
    for (uint32_t i = 0; i < DIALS_MAX; i++) {
        if (d->dials[i].address[0] != '\0' && d->dials[i].until_ns < at_ns) {
            at_ns = d->dials[i].until_ns;
        }
    }
    return at_ns;
}

void dialler_expire(struct membership *m, uint64_t now_ns)
{
    if (now_ns < m->dialler.ends_ns) return;
    for (uint32_t i = 0; i < DIALS_MAX; i++) {
        struct dial *dial = &m->dialler.dials[i];
        char address[ADDRESS_BYTES_MAX];

        if (dial->address[0] == '\0' || now_ns < dial->until_ns) continue;
        copy_address(address, dial->address);
        membership_on_dial_failed(m, address, now_ns);
    }
    m->dialler.ends_ns = earliest_end(&m->dialler, UINT64_MAX);
}

/* A free slot, or NULL and when to look again. */
static struct dial *dial_slot(struct dialler *d, uint64_t now_ns, uint64_t *again_ns)
{
    *again_ns = UINT64_MAX;
    if (!ration_has(d->credit_ns, now_ns, 0, DIAL_BURST_NS)) {
        *again_ns = d->credit_ns - DIAL_BURST_NS;
        return NULL;
    }
    for (uint32_t i = 0; i < DIALS_MAX; i++) {
        if (d->dials[i].address[0] == '\0') return &d->dials[i];
        if (d->dials[i].until_ns < *again_ns) *again_ns = d->dials[i].until_ns;
    }
    return NULL;
}

/* Its address to dial now; NULL: none. */
static const char *current_address(struct member *member)
{
    const char *address = member_address(member, member->address_next);

    if (address != NULL || !next_address(member)) return address;
    return member_address(member, member->address_next);
}

/* What a dial to its address number `index` may cost now; where it was once reached, nothing. */
static enum host_standing standing_at(struct membership *m, const struct member *member,
                                      uint32_t index, uint64_t now_ns, uint64_t *at_ns)
{
    if (index == 0) return HOST_FREE;
    return host_standing(m, member_address(member, index), now_ns, at_ns);
}

/* When its address may be dialled; another of its addresses goes first if this one has to wait. */
static uint64_t budget_ns(struct membership *m, struct member *member, uint64_t now_ns)
{
    uint8_t first = member->address_next;
    uint64_t at_ns = now_ns, later_ns;

    if (standing_at(m, member, first, now_ns, &at_ns) != HOST_LATER) return 0;
    while (next_address(member)) {
        if (standing_at(m, member, member->address_next, now_ns, &later_ns) != HOST_LATER) return 0;
    }
    member->address_next = first;
    return at_ns;
}

bool dialler_may_dial(struct membership *m, struct member *member, uint64_t now_ns)
{
    return current_address(member) == NULL || budget_ns(m, member, now_ns) <= now_ns;
}

static bool wants_dial(const struct membership *m, const struct member *member)
{
    if (member->contact != NULL || member->is_dialling) return false;
    if (member->state == MEMBER_KNOWN) return !m->view.is_partial || member->is_chosen;
    return member->state == MEMBER_SUSPECT || member->state == MEMBER_DEAD;
}

static bool bootstrap_wants_dial(const struct membership *m, const struct bootstrap *entry)
{
    const struct member *member = entry->has_id ? book_find(&m->book, entry->id) : NULL;

    return !entry->is_self && (member == NULL || member->contact == NULL);
}

/* The one due first, among those not in the air; their earliest time goes to *at_ns. */
static void dial_choose(struct membership *m, uint64_t now_ns, struct bootstrap **entry,
                        struct member **member, uint64_t *at_ns)
{
    *entry = NULL;
    *member = NULL;
    *at_ns = UINT64_MAX;
    for (uint32_t i = 0; i < m->dialler.bootstraps_count; i++) {
        struct bootstrap *candidate = &m->dialler.bootstraps[i];

        if (candidate->dial_ns >= *at_ns || !bootstrap_wants_dial(m, candidate)) continue;
        if (dial_find(&m->dialler, candidate->address) != NULL) continue;
        *entry = candidate;
        *at_ns = candidate->dial_ns;
    }
    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *candidate = m->book.entries[i].member;
        uint64_t due_ns, budgeted_ns;

        if (!m->book.entries[i].has_dial) continue;
        due_ns = candidate->dial_ns;
        if (due_ns >= *at_ns || !wants_dial(m, candidate)) continue;
        if (current_address(candidate) == NULL) continue;
        budgeted_ns = budget_ns(m, candidate, now_ns);
        if (budgeted_ns > due_ns) due_ns = budgeted_ns;
        if (due_ns >= *at_ns) continue;
        if (dial_find(&m->dialler, current_address(candidate)) != NULL) continue;
        *member = candidate;
        *entry = NULL;
        *at_ns = due_ns;
    }
}

/* Is somebody linked there? */
static bool is_taken(const struct membership *m, const char *address)
{
    for (uint32_t i = 0; i < m->linked_count; i++) {
        const struct member *other = m->linked[i].member;

        if (other->reached != NULL && strcmp(other->reached, address) == 0) return true;
    }
    return false;
}

/* Who was not last met there is not dialled where somebody linked was: it would only replace that
 * link; and nobody is where dials were in vain too often. It counts as dialled, or thousands would
 * be passed over in one go. */
static bool is_passed_over(struct membership *m, struct member *member, uint64_t now_ns)
{
    const char *address = member == NULL ? NULL : current_address(member);
    bool was_there;
    uint64_t unused;

    if (member == NULL) return false;
    was_there = member->reached != NULL && strcmp(member->reached, address) == 0;
    if ((was_there || !is_taken(m, address)) &&
        standing_at(m, member, member->address_next, now_ns, &unused) != HOST_SPENT) {
        return false;
    }
    ration_take(&m->dialler.credit_ns, now_ns, DIAL_GAP_NS);
    member_dial_failed(m, member, now_ns);
    return true;
}

bool membership_next_dial(struct membership *m, uint64_t now_ns, char address[ADDRESS_BYTES_MAX])
{
    struct dialler *d = &m->dialler;
    struct bootstrap *entry;
    struct member *member;
    struct dial *dial;
    uint64_t at_ns;

    if (m->is_leaving || now_ns < d->next_ns) return false;
    dialler_expire(m, now_ns);
    do {
        dial = dial_slot(d, now_ns, &at_ns);
        if (dial == NULL) {
            d->next_ns = at_ns;
            return false;
        }
        dial_choose(m, now_ns, &entry, &member, &at_ns);
        if (at_ns > now_ns) {
            d->next_ns = earliest_end(d, at_ns);
            return false;
        }
    } while (is_passed_over(m, member, now_ns));
    CHECK((entry != NULL) != (member != NULL));
    *dial = (struct dial){.has_id = member != NULL, .until_ns = now_ns + DIAL_LASTS_MAX_NS};
    if (dial->until_ns < d->ends_ns) d->ends_ns = dial->until_ns;
    if (member != NULL) {
        dial->id = member->id;
        member->is_dialling = true;
        copy_address(address, current_address(member)); /* dial_choose() saw that it has one */
    } else {
        copy_address(address, entry->address);
    }
    copy_address(dial->address, address);
    if (member != NULL &&
        standing_at(m, member, member->address_next, now_ns, &at_ns) == HOST_STRANGE) {
        host_on_dial(m, dial, now_ns);
    }
    ration_take(&d->credit_ns, now_ns, DIAL_GAP_NS);
    return true;
}

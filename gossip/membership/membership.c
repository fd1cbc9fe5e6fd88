/*
 * Who is in the swarm and who is alive: the life of a member and what is learned about it.
 *
 *   KNOWN --link--> ALIVE --silent, lost--> SUSPECT --in vain--> DEAD       any --farewell--> LEFT
 *     |  ^                                   |  ^                  |
 *     |  '--somebody reaches it, it refutes--'  |                  |
 *     '--accused, never reached-----------------'  ALIVE <--link-- any
 *
 * Probing and dissemination follow SWIM (Das, Gupta, Motivala 2002), suspicion Lifeguard (Dadgar,
 * Phillips, Currey 2018, arXiv:1707.00788): a link that is silent is probed through three others
 * first, a suspect has the longer to answer the fewer members agree, and a peer that runs late, is
 * accused itself or gets no answer from its proxies distrusts itself. Where we differ: probes run
 * over authenticated links, so an open link that speaks is proof, and no rumour stands against it;
 * an accusation is signed and void once its subject has signed a higher incarnation. Limits follow
 * the measured round trip, so none has to be configured. Anti-entropy after a link opens, and now
 * and then afterwards, repairs what gossip missed.
 *
 * Probes and the clock are in probe.c, indirect ones in inquiry.c, suspicion
 * in suspect.c, anti-entropy in sync.c, dials in dial.c, swarms
 * too large for a full mesh in view.c. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/flow/ration.h"
#include "gossip/times.h"
#include "gossip/wire/address.h"

#include <stdio.h>

#define INCARNATION_JUMP (UINT64_C(1) << 20)

enum {
    BETTER_RECORDS_MAX = 8, /* answers to one page */
    BETTER_WORDS_MAX = 8,
    /* Signatures of unasked news and of accusations; gossip and probes carry some 100 records. */
    CHECKED_PER_S = 256
};

void membership_wake(struct membership *m, uint64_t at_ns)
{
    if (at_ns < m->next_ns) m->next_ns = at_ns;
}

void membership_look(struct membership *m, const struct member *member)
{
    if (member->contact != NULL) m->linked[member->contact->place].due_ns = 0;
}

void membership_become(struct membership *m, struct member *member, enum member_state state,
                       uint64_t now_ns)
{
    if (member->state == state) return;
    CHECK(state != MEMBER_ALIVE || member->contact != NULL);
    if (member->state == MEMBER_SUSPECT) {
        STAILQ_REMOVE(&m->suspects, member, member, in_suspects);
        m->suspects_count--;
    }
    if (state == MEMBER_SUSPECT) {
        STAILQ_INSERT_TAIL(&m->suspects, member, in_suspects);
        m->suspects_count++;
    } else if (state != MEMBER_DEAD) { /* what was said against the dead can be shown */
        words_clear(m, member);
    }
    if (state == MEMBER_DEAD) { /* its record is no news to anybody, what is said of it still is */
        member->transmits_left = 0;
        pending_settle(m, member);
    }
    m->counts.suspected += state == MEMBER_SUSPECT;
    m->counts.died += state == MEMBER_DEAD;
    member->state = state;
    member->since_ns = now_ns;
    member->failures = 0;
    book_count(&m->book, member);
    membership_look(m, member);
}

/* Sign our own record as it is now and send it round. */
static void publish_self(struct membership *m, bool has_left)
{
    struct membership_options *options = &m->options;
    struct member_record record = {
        .boot = options->boot, .incarnation = options->incarnation, .has_left = has_left};
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count = 0;
    enum rc rc;

    record.nat = m->nat;
    record.features = options->features;
    memcpy(record.public_key, options->identity->public_key, PUBLIC_KEY_BYTES);
    memcpy(record.addresses, options->addresses, sizeof(record.addresses));
    record.addresses_count = options->addresses_count;
    memcpy(record.site, options->site, SITE_BYTES);
    do { /* four long host names do not fit: the last ones stay away */
        rc = record_sign(&record, options->identity, options->run_id, bytes, sizeof(bytes), &count);
    } while (rc == RC_LIMIT && record.addresses_count-- > 0);
    CHECK(rc == RC_OK);
    signed_record_fill(m->self.record, &record, bytes, count);
    pending_add(m, &m->self);
}

/* A record may not carry what others would refuse to read, such as port 0. */
static void keep_valid_addresses(struct membership_options *options)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < options->addresses_count; i++) {
        if (!address_is_valid(options->addresses[i])) continue;
        memmove(options->addresses[count++], options->addresses[i], ADDRESS_BYTES_MAX);
    }
    options->addresses_count = count;
}

struct membership *membership_create(const struct membership_options *options)
{
    struct membership *m = mem_alloc(sizeof(*m));

    CHECK(options->identity != NULL && options->probe_interval_ns > 0);
    CHECK(options->addresses_count <= RECORD_ADDRESSES_MAX);
    if (m == NULL) return NULL;
    m->options = *options;
    keep_valid_addresses(&m->options);
    m->self.record = mem_alloc(sizeof(*m->self.record) + SIGNED_RECORD_ROOM);
    if (m->self.record == NULL || book_init(m) != RC_OK) {
        mem_free(m->self.record);
        mem_free(m);
        return NULL;
    }
    STAILQ_INIT(&m->suspects);
    rng_init(&m->rng, options->seed, 0x6d656d62);
    m->self_id = identity_peer_id(options->identity->public_key);
    m->self.id = m->self_id;
    m->period_ns = options->probe_interval_ns;
    m->next_ns = UINT64_MAX;
    m->dialler.next_ns = m->dialler.ends_ns = UINT64_MAX;
    m->dialler.hosts_seed = rng_mix(options->shelf_seed, options->seed);
    m->sync_interval_ns = SYNC_FIRST_NS;
    m->sync_ns = UINT64_MAX;
    m->heal_ns = UINT64_MAX;
    m->refute_at_ns = UINT64_MAX;
    publish_self(m, false);
    return m;
}

void membership_destroy(struct membership *m)
{
    if (m == NULL) return;
    book_deinit(m);
    mem_free(m->self.record);
    mem_free(m);
}

/* --- what is learned ------------------------------------------------------------------------- */

void membership_on_news(struct membership *m, uint64_t now_ns)
{
    uint64_t soon = SYNC_FIRST_NS * (1 + m->book.counted / SYNC_BUCKETS);

    view_check(m);
    if (m->sync_interval_ns > soon) m->sync_interval_ns = soon;
    if (m->linked_count > 0 && m->sync_ns > now_ns + soon) m->sync_ns = now_ns + soon;
    if (m->gossip_ns < now_ns) m->gossip_ns = now_ns;
    membership_wake(m, m->gossip_ns);
    membership_wake(m, m->sync_ns);
}

/* Somebody holds an old record of us that outranks ours, from a life whose counter was lost or of
 * the same number, or accuses the one we have: ours must rise above it, but not for everyone's word
 * at once. A jump too far is no counter's doing: left alone. */
bool membership_refute(struct membership *m, uint64_t claimed, uint64_t now_ns)
{
    if (m->is_leaving || claimed < m->options.incarnation) return false;
    if (claimed - m->options.incarnation > INCARNATION_JUMP || claimed == UINT64_MAX) return false;
    if (claimed == m->options.incarnation && m->refuted_ns > 0 &&
        now_ns < m->refuted_ns + MEMBER_DAMPED_NS) {
        m->refute_at_ns = m->refuted_ns + MEMBER_DAMPED_NS;
        membership_wake(m, m->refute_at_ns);
        return false;
    }
    m->refute_at_ns = UINT64_MAX;
    m->refuted_ns = now_ns;
    m->counts.refuted++;
    m->options.incarnation = claimed + 1;
    publish_self(m, false);
    membership_on_news(m, now_ns);
    return true;
}

void membership_set_reach(struct membership *m, enum nat_class nat,
                          const char (*addresses)[ADDRESS_BYTES_MAX], uint32_t count,
                          uint64_t now_ns)
{
    struct membership_options news = m->options;

    CHECK(count <= RECORD_ADDRESSES_MAX);
    memset(news.addresses, 0, sizeof(news.addresses));
    for (uint32_t i = 0; i < count; i++) {
        memcpy(news.addresses[i], addresses[i], ADDRESS_BYTES_MAX);
    }
    news.addresses_count = count;
    keep_valid_addresses(&news);
    if (m->is_leaving ||
        (nat == m->nat && news.addresses_count == m->options.addresses_count &&
         memcmp(news.addresses, m->options.addresses, sizeof(news.addresses)) == 0)) {
        return;
    }
    m->options = news;
    m->options.incarnation++;
    m->nat = nat;
    publish_self(m, false);
    membership_on_news(m, now_ns);
}

/* A live member passes on the record of one we gave up: worth a dial, now and then. */
static void on_hint(struct membership *m, struct member *member, uint64_t now_ns)
{
    if (member->state != MEMBER_DEAD || member->contact != NULL || member->is_dialling) return;
    if (member->dial_ns <= now_ns + DEAD_HINT_NS || now_ns < member->since_ns + DEAD_HINT_NS) {
        return;
    }
    member->since_ns = now_ns;
    dialler_pick(m, member, now_ns);
}

/* Does `record` replace what we have? */
static bool is_newer(const struct member *member, const struct record_brief *record,
                     bool is_from_subject)
{
    const struct record_brief *known = member_brief(member);

    if (member->record == NULL) return true;
    if (record->incarnation == known->incarnation) { /* it restarted and lost count */
        return is_from_subject && !boot_id_is_equal(record->boot, known->boot);
    }
    if (record->incarnation < known->incarnation) return false;
    return is_from_subject || record->incarnation - known->incarnation <= INCARNATION_JUMP;
}

/* Takes the reference. */
static void commit_record(struct membership *m, struct member *member, struct signed_record *record,
                          uint64_t now_ns)
{
    bool was_accused = member->words != NULL || member->state == MEMBER_DEAD;

    book_keep(m, member, record);
    pending_add(m, member);
    if (record->brief.has_left) {
        membership_become(m, member, MEMBER_LEFT, now_ns);
    } else if (member->contact == NULL) {
        if (was_accused) member->refuted_ns = now_ns;
        if (member->state != MEMBER_SUSPECT || was_accused) {
            membership_become(m, member, MEMBER_KNOWN, now_ns);
        }
        member->address_next = 0;
        dialler_call(m, member, now_ns);
    } else {
        words_clear(m, member);
    }
    membership_on_news(m, now_ns);
}

/* Who sent this page lags behind: answer with what we know better. */
static void know_better(struct membership *m, struct peer_id to, struct member *member,
                        uint64_t incarnation, uint32_t *answers, struct outbox *out)
{
    uint64_t known = member_brief(member)->incarnation;

    if (out == NULL || *answers >= BETTER_RECORDS_MAX + BETTER_WORDS_MAX) return;
    if (member->record == NULL || known < incarnation) return;
    if (known > incarnation) {
        if (member->state == MEMBER_DEAD) return;
        membership_send_record(m, to, member, out);
    } else if (member->state == MEMBER_DEAD && member->words != NULL) {
        words_send(m, to, member, out);
    } else {
        return;
    }
    (*answers)++;
}

/* An invented member could rise without end, and everyone would pass each of its records on. An
 * honest one rises once in ten seconds; whoever misses a record gets it by anti-entropy. */
static bool is_rising_too_fast(const struct member *member, uint64_t now_ns)
{
    return member->is_hearsay && !ration_has(member->renewed_ns, now_ns, 0, RENEW_BURST_NS);
}

bool membership_may_check(struct member *from, uint64_t now_ns)
{
    struct contact *contact = from == NULL ? NULL : from->contact;

    if (contact == NULL) return true;
    if (now_ns - contact->checked_ns >= NS_PER_S) {
        contact->checked_ns = now_ns;
        contact->checked = 0;
    }
    return contact->checked++ < CHECKED_PER_S;
}

/* A record that is not the one we have of its subject. `known`: it is on the shelf, so its
 * signature was checked; NULL: `said` is what it claims. */
static enum rc absorb_other(struct membership *m, struct peer_id from, const struct record_ref *ref,
                            struct signed_record *known, const struct member_record *said,
                            uint32_t *answers, uint64_t now_ns, struct outbox *out)
{
    struct peer_id id = known != NULL ? known->id : identity_peer_id(said->public_key);
    struct record_brief brief = known != NULL ? known->brief : record_brief_of(said);
    struct member *member = book_find(&m->book, id);

    if (member != NULL && !is_newer(member, &brief, peer_id_is_equal(from, id))) {
        know_better(m, from, member, brief.incarnation, answers, out);
        return RC_OK;
    }
    if (member == NULL && (brief.has_left || book_is_full_for(m, from)) &&
        !peer_id_is_equal(id, m->self_id)) {
        return RC_OK;
    }
    if (member != NULL && !peer_id_is_equal(from, id) && is_rising_too_fast(member, now_ns)) {
        return RC_OK;
    }
    if (out == NULL && !membership_may_check(book_find(&m->book, from), now_ns)) return RC_OK;
    if (known == NULL) {
        enum rc rc =
            record_verify(ref->bytes, ref->bytes_count, m->options.run_id, said->public_key);

        if (rc != RC_OK) return rc;
    }
    if (peer_id_is_equal(id, m->self_id)) {
        if (brief.incarnation > m->options.incarnation ||
            !boot_id_is_equal(brief.boot, m->options.boot) || brief.has_left) {
            m->refuted_ns = 0; /* another life of ours: at once */
            (void)membership_refute(m, brief.incarnation, now_ns);
        }
        return RC_OK;
    }
    known = known != NULL ? signed_record_ref(known)
                          : shelf_put(m->book.shelf, said, ref->bytes, ref->bytes_count);
    if (known == NULL) return RC_OK;
    if (member == NULL) member = book_add(m, id, &from, now_ns);
    if (member == NULL) {
        shelf_unref(m->book.shelf, known);
        return RC_OK;
    }
    ration_take(&member->renewed_ns, now_ns, RENEW_GAP_NS);
    commit_record(m, member, known, now_ns);
    return RC_OK;
}

static bool is_own(const struct membership *m, const struct record_ref *ref)
{
    const struct signed_record *own = m->self.record;

    return own->count == ref->bytes_count && memcmp(own->bytes, ref->bytes, own->count) == 0;
}

static enum rc absorb_record(struct membership *m, struct peer_id from,
                             const struct record_ref *ref, uint32_t *answers, uint64_t now_ns,
                             struct outbox *out)
{
    struct signed_record *known = shelf_find(m->book.shelf, ref->bytes, ref->bytes_count);
    struct member *member = known == NULL ? NULL : book_find(&m->book, known->id);
    struct member_record said;

    if (is_own(m, ref)) return RC_OK;
    if (member != NULL && member->record == known) {
        on_hint(m, member, now_ns);
        know_better(m, from, member, known->brief.incarnation, answers, out);
        return RC_OK;
    }
    if (known == NULL) {
        enum rc rc = record_peek(ref->bytes, ref->bytes_count, &said);

        if (rc != RC_OK) return rc;
    }
    return absorb_other(m, from, ref, known, &said, answers, now_ns, out);
}

enum rc membership_absorb(struct membership *m, struct peer_id from, const struct record_ref *refs,
                          uint32_t count, uint64_t now_ns, struct outbox *out)
{
    uint32_t answers = 0;

    for (uint32_t i = 0; i < count; i++) {
        enum rc rc = absorb_record(m, from, &refs[i], &answers, now_ns, out);

        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}

/* --- links ----------------------------------------------------------------------------------- */

void membership_send_record(struct membership *m, struct peer_id to, const struct member *of,
                            struct outbox *out)
{
    struct message message = {.type = MESSAGE_GOSSIP};

    (void)m;
    message.as.gossip.updates[0].bytes = of->record->bytes;
    message.as.gossip.updates[0].bytes_count = of->record->count;
    message.as.gossip.updates_count = 1;
    outbox_add(out, to, &message);
}

static bool contact_open(struct membership *m, struct member *member, bool is_outbound,
                         uint64_t now_ns)
{
    struct contact *contact = member->contact;

    if (contact == NULL) {
        if (m->linked_count == LINKS_MAX) return false;
        contact = mem_alloc(sizeof(*contact));
        if (contact == NULL) return false;
        member->contact = contact;
        contact->place = m->linked_count;
        m->linked[m->linked_count++].member = member;
    } else if (contact->wants_hangup) {
        m->hangups_count--;
    }
    *contact = (struct contact){.is_outbound = is_outbound,
                                .place = contact->place,
                                .up_ns = now_ns,
                                .part_ns = UINT64_MAX,
                                .silent_ns = now_ns,
                                .ping_ns = now_ns + rng_below(&m->rng, m->period_ns)};
    membership_look(m, member);
    return true;
}

static void remember_address(struct membership *m, struct member *member, const char *address)
{
    char *copy;

    if (address[0] == '\0' || strlen(address) >= ADDRESS_BYTES_MAX) return;
    if (member->reached != NULL && strcmp(member->reached, address) == 0) return;
    copy = mem_string(address);
    if (copy == NULL) return;
    hosts_count(&m->book, member, false);
    mem_free(member->reached);
    member->reached = copy;
    hosts_count(&m->book, member, true);
}

void membership_on_link_up(struct membership *m, struct peer_id id, const uint8_t *public_key,
                           struct boot_id boot, const char *address, uint64_t now_ns,
                           struct outbox *out)
{
    struct peer_id proved = identity_peer_id(public_key);
    struct member *member = book_find(&m->book, id);

    CHECK(peer_id_is_equal(proved, id));
    if (member == NULL && !peer_id_is_equal(id, m->self_id)) member = book_add(m, id, NULL, now_ns);
    if (member == NULL || !contact_open(m, member, address[0] != '\0', now_ns)) {
        dialler_on_reached(m, address, id, now_ns); /* no room, or somebody with our key */
        return;
    }
    book_proved(&m->book, member);
    member->contact->boot = boot;
    member->heard_ns = now_ns;
    member->rtt = (struct rtt){0};
    member->backoff_s = 0;
    dialler_at(m, member, UINT64_MAX);
    member->address_next = 0;
    if (member->words != NULL && member->state == MEMBER_SUSPECT) words_send(m, id, member, out);
    membership_become(m, member, MEMBER_ALIVE, now_ns);
    dialler_on_reached(m, address, id, now_ns);
    remember_address(m, member, address);
    membership_send_record(m, id, &m->self, out);
    if (m->book.counted < SYNC_BUCKETS || now_ns >= m->asked_ns + SYNC_ASK_GAP_NS) {
        sync_ask(m, member, now_ns, out); /* of a large book one at a time is enough */
    }
    if (m->sync_ns == UINT64_MAX) m->sync_ns = now_ns + membership_jitter(m, SYNC_FIRST_NS);
    if (m->heal_ns == UINT64_MAX) dialler_heal(m, now_ns);
    membership_wake(m, now_ns);
}

static void contact_close(struct membership *m, struct member *member)
{
    CHECK(member->contact != NULL && m->linked_count > 0);
    if (member->contact->wants_hangup) m->hangups_count--;
    m->linked_count--;
    for (uint32_t i = member->contact->place; i < m->linked_count; i++) {
        m->linked[i] = m->linked[i + 1];
        m->linked[i].member->contact->place = i;
    }
    mem_free(member->contact);
    member->contact = NULL;
}

static void unlink_member(struct membership *m, struct member *member, bool was_reset,
                          uint64_t now_ns)
{
    bool was_parting = member->contact->is_parting;

    if (member->state == MEMBER_ALIVE && !was_parting) {
        suspect(m, member, true, was_reset, now_ns);
    } else if (member->state == MEMBER_ALIVE) {
        membership_become(m, member, MEMBER_KNOWN, now_ns);
    }
    contact_close(m, member);
    if (member->state == MEMBER_SUSPECT) {
        dialler_call(m, member, now_ns);
    } else if (member->state == MEMBER_KNOWN && !m->view.is_partial) {
        dialler_call(m, member, member->avoid_ns > now_ns ? member->avoid_ns : now_ns);
    }
    if (m->linked_count == 0) {
        m->sync_ns = UINT64_MAX;
        dialler_on_alone(m, now_ns);
    }
    membership_wake(m, now_ns + 1);
}

void membership_on_link_lost(struct membership *m, struct peer_id id, uint64_t now_ns)
{
    struct member *member = book_find(&m->book, id);

    if (member != NULL && member->contact != NULL) unlink_member(m, member, true, now_ns);
}

void membership_hangup(struct membership *m, struct member *member)
{
    CHECK(member->contact != NULL);
    if (member->contact->wants_hangup) return;
    member->contact->wants_hangup = true;
    m->hangups_count++;
}

bool membership_next_hangup(struct membership *m, struct peer_id *id)
{
    if (m->hangups_count == 0) return false;
    for (uint32_t i = 0; i < m->linked_count; i++) {
        struct member *member = m->linked[i].member;

        if (!member->contact->wants_hangup) continue;
        *id = member->id;
        unlink_member(m, member, false, m->tick_ns);
        return true;
    }
    CHECK(false);
    return false;
}

void membership_on_heard(struct membership *m, struct peer_id id, uint64_t now_ns)
{
    struct member *member = book_find(&m->book, id);

    if (member == NULL || member->contact == NULL) return;
    member->heard_ns = now_ns;
    member->contact->silent_ns = now_ns;
    if (!member->contact->wants_hangup || member->state == MEMBER_LEFT) return;
    if (member->contact->is_parting) return;
    member->contact->wants_hangup = false; /* just in time */
    m->hangups_count--;
    membership_become(m, member, MEMBER_ALIVE, now_ns);
    membership_look(m, member);
    membership_wake(m, now_ns);
}

void membership_on_goodbye(struct membership *m, struct peer_id id, uint64_t now_ns)
{
    struct member *member = book_find(&m->book, id);

    if (member == NULL) return;
    if (member->contact != NULL && member->contact->wants_hangup) {
        member->contact->wants_hangup = false;
        m->hangups_count--;
    }
    membership_become(m, member, MEMBER_LEFT, now_ns);
}

void membership_farewell(struct membership *m, struct outbox *out)
{
    m->options.incarnation++;
    publish_self(m, true);
    m->is_leaving = true;
    m->next_ns = UINT64_MAX;
    m->dialler.next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < m->linked_count; i++) {
        membership_send_record(m, m->linked[i].member->id, &m->self, out);
    }
}

/* --- for readers ----------------------------------------------------------------------------- */

uint64_t membership_answer_ns(const struct membership *m, struct peer_id id)
{
    const struct member *member = book_find(&m->book, id);

    return member == NULL ? 0 : member->rtt.peak_ns + member->rtt.peak_ns / 4;
}

static void view_fill(const struct member *member, struct member_view *view)
{
    const struct record_brief *brief = member_brief(member);
    const struct contact *contact = member->contact;

    *view = (struct member_view){.id = member->id,
                                 .boot = contact == NULL ? brief->boot : contact->boot,
                                 .incarnation = brief->incarnation,
                                 .state = member->state,
                                 .rtt_ns = member->rtt.srtt_ns,
                                 .heard_ns = member->heard_ns,
                                 .is_linked = contact != NULL,
                                 .nat = brief->nat,
                                 .is_keeper = brief->is_keeper};
    memcpy(view->site, brief->site, SITE_BYTES);
    for (uint32_t i = 0; i < ADDRESSES_MAX; i++) {
        const char *address = member_address(member, i);

        if (address == NULL) continue;
        snprintf(view->address, sizeof(view->address), "%s", address);
        break;
    }
}

size_t membership_list(const struct membership *m, struct member_view *views, size_t max)
{
    size_t count = m->book.count < max ? m->book.count : max;

    for (size_t i = 0; i < count; i++) {
        view_fill(m->book.entries[i].member, &views[i]);
    }
    return count;
}

bool membership_is_near(const struct membership *m, struct peer_id id)
{
    const struct member *member = book_find(&m->book, id);

    if (peer_id_is_equal(id, m->self_id)) return true;
    return member != NULL && memcmp(member_brief(member)->site, m->options.site, SITE_BYTES) == 0;
}

size_t membership_count(const struct membership *m)
{
    return m->book.count;
}

uint64_t membership_incarnation(const struct membership *m)
{
    return m->options.incarnation;
}

void membership_counts(const struct membership *m, struct membership_counts *counts)
{
    *counts = m->counts;
    counts->believed = m->book.counted;
    counts->likely = view_members(m);
    counts->linked = m->linked_count;
    counts->health = m->health;
}

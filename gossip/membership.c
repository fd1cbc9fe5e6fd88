/*
 * Who is in the swarm and who is alive: the life of a member and what is learned about it. Probes
 * and gossip rounds are in membership_probe.c, dials in membership_dial.c.
 *
 *   KNOWN --link--> ALIVE --silent, lost--> SUSPECT --in vain--> DEAD       any --farewell--> LEFT
 *     '--never reached--> DEAD               |  ^                  |
 *                        ALIVE <----link-----'--'------link--------'        newer record: KNOWN
 *
 * Probing and dissemination follow SWIM (Das, Gupta, Motivala 2002), except that evidence here is
 * direct only: every peer judges its own links and nobody's word makes another dead. As in
 * Lifeguard (Dadgar, Phillips, Currey 2018, arXiv:1707.00788) a peer that runs late distrusts
 * itself first: its limits widen and the time it slept counts against nobody. Limits follow the
 * measured round trip, so none has to be configured. Anti-entropy after a link opens, and now and
 * then afterwards, repairs what gossip missed. Loop thread.
 */
#include "gossip/membership_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/address.h"

#define HINT_GAP         (10 * NS_PER_S)
#define INCARNATION_JUMP (UINT64_C(1) << 20)

void membership_wake(struct membership *m, uint64_t at_ns)
{
    if (at_ns < m->next_ns) m->next_ns = at_ns;
}

void membership_become(struct membership *m, struct member *member, enum member_state state,
                       uint64_t now_ns)
{
    if (member->state == state) return;
    CHECK(state != MEMBER_ALIVE || member->is_linked);
    if (member->state == MEMBER_ALIVE || state == MEMBER_ALIVE) m->epoch++;
    if (state == MEMBER_DEAD) pending_remove(m, member); /* no news to anybody */
    member->state = state;
    member->since_ns = now_ns;
    member->failures = 0;
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
    memcpy(record.public_key, options->identity->public_key, PUBLIC_KEY_BYTES);
    memcpy(record.addresses, options->addresses, sizeof(record.addresses));
    record.addresses_count = options->addresses_count;
    do { /* four long host names do not fit: the last ones stay away */
        rc = record_sign(&record, options->identity, options->run_id, bytes, sizeof(bytes), &count);
    } while (rc == RC_LIMIT && record.addresses_count-- > 0);
    CHECK(rc == RC_OK);
    book_keep(&m->book, &m->self, &record, bytes, count);
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
    if (book_init(&m->book, options->members_max) != RC_OK) {
        mem_free(m);
        return NULL;
    }
    rng_init(&m->rng, options->seed, 0x6d656d62);
    m->self_id = identity_peer_id(options->identity->public_key);
    m->self.id = m->self_id;
    m->self.boot = options->boot;
    m->self.is_linked = true; /* so that nothing ever wants to dial or forget it */
    m->next_ns = UINT64_MAX;
    m->dialler.next_ns = UINT64_MAX;
    m->sync_interval_ns = MEMBERSHIP_SYNC_FIRST;
    m->sync_ns = UINT64_MAX;
    m->heal_ns = UINT64_MAX;
    publish_self(m, false);
    return m;
}

void membership_destroy(struct membership *m)
{
    if (m == NULL) return;
    book_deinit(&m->book);
    mem_free(m);
}

/* --- what is learned ------------------------------------------------------------------------- */

static void on_news(struct membership *m, uint64_t now_ns)
{
    m->sync_interval_ns = MEMBERSHIP_SYNC_FIRST;
    if (m->linked_count > 0 && m->sync_ns > now_ns + MEMBERSHIP_SYNC_FIRST)
        m->sync_ns = now_ns + MEMBERSHIP_SYNC_FIRST;
    if (m->gossip_ns < now_ns) m->gossip_ns = now_ns;
    membership_wake(m, m->gossip_ns);
    membership_wake(m, m->sync_ns);
}

/* Somebody holds an old record of us that outranks ours: from a life whose counter was lost, or of
 * the same number. Ours must rise above it. A jump too far is no counter's doing: left alone. */
static void contradict(struct membership *m, uint64_t claimed, uint64_t now_ns)
{
    if (m->is_leaving || claimed < m->options.incarnation) return;
    if (claimed - m->options.incarnation > INCARNATION_JUMP || claimed == UINT64_MAX) return;
    m->options.incarnation = claimed + 1;
    publish_self(m, false);
    on_news(m, now_ns);
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
    on_news(m, now_ns);
}

/* A live member passes on the record of one we gave up: worth a dial, now and then. */
static void on_hint(struct membership *m, struct member *member, uint64_t now_ns)
{
    if (member->state != MEMBER_DEAD || member->is_linked || member->is_dialling) return;
    if (member->dial_ns <= now_ns + HINT_GAP || now_ns < member->since_ns + HINT_GAP) return;
    member->since_ns = now_ns;
    member->dial_ns = now_ns;
    if (m->dialler.next_ns > now_ns) m->dialler.next_ns = now_ns;
}

/* Does `record` replace what we have? */
static bool is_newer(const struct member *member, const struct member_record *record,
                     bool is_from_subject)
{
    if (member->bytes_count == 0) return true;
    if (record->incarnation == member->incarnation) { /* it restarted and lost count */
        return is_from_subject && !boot_id_is_equal(record->boot, member->record_boot);
    }
    if (record->incarnation < member->incarnation) return false;
    return is_from_subject || record->incarnation - member->incarnation <= INCARNATION_JUMP;
}

static void commit_record(struct membership *m, struct peer_id from, struct peer_id id,
                          const struct member_record *record, const struct record_ref *ref,
                          uint64_t now_ns)
{
    struct member *member = book_find(&m->book, id);

    if (member == NULL && record->has_left) return;
    if (member == NULL) member = book_add(m, id, now_ns);
    if (member == NULL) return;
    if (!is_newer(member, record, peer_id_is_equal(from, id))) return;
    book_keep(&m->book, member, record, ref->bytes, ref->bytes_count);
    pending_add(m, member);
    if (record->has_left) {
        membership_become(m, member, MEMBER_LEFT, now_ns);
    } else if (!member->is_linked) {
        if (member->state != MEMBER_SUSPECT) membership_become(m, member, MEMBER_KNOWN, now_ns);
        member->address_next = 0;
        dialler_call(m, member, now_ns);
    }
    on_news(m, now_ns);
}

enum rc membership_absorb(struct membership *m, struct peer_id from, const struct record_ref *refs,
                          uint32_t count, uint64_t now_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        struct member *known = book_seen(&m->book, refs[i].bytes, refs[i].bytes_count);
        struct member_record record;
        struct peer_id id;
        enum rc rc;

        if (known != NULL) {
            on_hint(m, known, now_ns);
            continue;
        }
        rc = record_open(refs[i].bytes, refs[i].bytes_count, m->options.run_id, &record);
        if (rc != RC_OK) return rc;
        id = identity_peer_id(record.public_key);
        if (peer_id_is_equal(id, m->self_id)) {
            contradict(m, record.incarnation, now_ns);
        } else {
            commit_record(m, from, id, &record, &refs[i], now_ns);
        }
    }
    return RC_OK;
}

/* --- links ----------------------------------------------------------------------------------- */

void membership_ask_page(struct member *member, uint32_t page, struct outbox *out)
{
    struct message message = {.type = MESSAGE_SYNC_REQ};

    message.as.sync_req.page = page;
    member->sync_page = page;
    outbox_add(out, member->id, &message);
}

static void send_own_record(struct membership *m, struct peer_id to, struct outbox *out)
{
    struct message message = {.type = MESSAGE_GOSSIP};

    message.as.gossip.updates[0].bytes = m->self.bytes;
    message.as.gossip.updates[0].bytes_count = (uint16_t)m->self.bytes_count;
    message.as.gossip.updates_count = 1;
    outbox_add(out, to, &message);
}

void membership_on_link_up(struct membership *m, struct peer_id id, const uint8_t *public_key,
                           struct boot_id boot, const char *address, uint64_t now_ns,
                           struct outbox *out)
{
    struct peer_id proved = identity_peer_id(public_key);
    struct member *member = book_find(&m->book, id);

    CHECK(peer_id_is_equal(proved, id));
    if (member == NULL && !peer_id_is_equal(id, m->self_id)) member = book_add(m, id, now_ns);
    if (member == NULL) { /* no room, or somebody with a copy of our key */
        dialler_on_reached(m, address, id, now_ns);
        return;
    }
    if (!member->is_linked) m->linked_count++;
    if (member->wants_hangup) m->hangups_count--;
    member->is_linked = true;
    member->wants_hangup = false;
    member->boot = boot;
    member->heard_ns = now_ns;
    member->silent_ns = now_ns;
    member->ping_ns = now_ns + rng_below(&m->rng, m->options.probe_interval_ns);
    member->ping_seq = 0;
    memset(member->ping_sent_ns, 0, sizeof(member->ping_sent_ns));
    member->measured_ns = 0;
    member->rtt = (struct rtt){0};
    member->backoff_ns = 0;
    member->dial_ns = UINT64_MAX;
    member->address_next = 0;
    membership_become(m, member, MEMBER_ALIVE, now_ns);
    dialler_on_reached(m, address, id, now_ns);
    if (address[0] != '\0' && strlen(address) < ADDRESS_BYTES_MAX) {
        memset(member->addresses[0], 0, ADDRESS_BYTES_MAX);
        memcpy(member->addresses[0], address, strlen(address));
    }
    send_own_record(m, id, out);
    membership_ask_page(member, 0, out);
    if (m->sync_ns == UINT64_MAX) m->sync_ns = now_ns + membership_jitter(m, MEMBERSHIP_SYNC_FIRST);
    if (m->heal_ns == UINT64_MAX) dialler_heal(m, now_ns);
    membership_wake(m, now_ns);
}

static void unlink_member(struct membership *m, struct member *member, uint64_t now_ns)
{
    CHECK(member->is_linked && m->linked_count > 0);
    if (member->wants_hangup) m->hangups_count--;
    member->is_linked = false;
    member->wants_hangup = false;
    m->linked_count--;
    if (member->state == MEMBER_ALIVE) membership_become(m, member, MEMBER_SUSPECT, now_ns);
    if (member->state == MEMBER_SUSPECT) {
        member->since_ns = now_ns;
        dialler_call(m, member, now_ns);
    }
    if (m->linked_count == 0) {
        m->sync_ns = UINT64_MAX;
        dialler_on_alone(m, now_ns);
    }
    if (member->state == MEMBER_SUSPECT) membership_wake(m, membership_dead_ns(m, member));
}

void membership_on_link_lost(struct membership *m, struct peer_id id, uint64_t now_ns)
{
    struct member *member = book_find(&m->book, id);

    if (member != NULL && member->is_linked) unlink_member(m, member, now_ns);
}

bool membership_next_hangup(struct membership *m, struct peer_id *id)
{
    if (m->hangups_count == 0) return false;
    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.members[i];

        if (!member->wants_hangup) continue;
        *id = member->id;
        unlink_member(m, member, m->tick_ns);
        return true;
    }
    CHECK(false);
    return false;
}

void membership_on_heard(struct membership *m, struct peer_id id, uint64_t now_ns)
{
    struct member *member = book_find(&m->book, id);

    if (member == NULL || !member->is_linked) return;
    member->heard_ns = now_ns;
    member->silent_ns = now_ns;
    if (!member->wants_hangup || member->state != MEMBER_SUSPECT) return;
    member->wants_hangup = false; /* just in time */
    m->hangups_count--;
    membership_become(m, member, MEMBER_ALIVE, now_ns);
    membership_wake(m, now_ns);
}

void membership_on_goodbye(struct membership *m, struct peer_id id, uint64_t now_ns)
{
    struct member *member = book_find(&m->book, id);

    if (member == NULL) return;
    if (member->wants_hangup) m->hangups_count--;
    member->wants_hangup = false;
    membership_become(m, member, MEMBER_LEFT, now_ns);
}

void membership_farewell(struct membership *m, struct outbox *out)
{
    m->options.incarnation++;
    publish_self(m, true);
    m->is_leaving = true;
    m->next_ns = UINT64_MAX;
    m->dialler.next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < m->book.count; i++) {
        if (m->book.members[i]->is_linked) send_own_record(m, m->book.members[i]->id, out);
    }
}

/* --- for readers ----------------------------------------------------------------------------- */

static void view_fill(const struct member *member, struct member_view *view)
{
    const char *address = "";

    for (uint32_t i = 0; i < ADDRESSES_MAX && address[0] == '\0'; i++) {
        address = member->addresses[i];
    }
    *view = (struct member_view){.id = member->id,
                                 .boot = member->boot,
                                 .incarnation = member->incarnation,
                                 .state = member->state,
                                 .rtt_ns = member->rtt.srtt_ns,
                                 .heard_ns = member->heard_ns,
                                 .is_linked = member->is_linked,
                                 .nat = member->nat};
    memcpy(view->address, address, strlen(address) + 1);
}

size_t membership_alive(const struct membership *m, struct member_view *views, size_t max)
{
    size_t count = 0;

    for (uint32_t i = 0; i < m->book.count && count < max; i++) {
        const struct member *member = m->book.members[i];

        if (member->state == MEMBER_ALIVE) view_fill(member, &views[count++]);
    }
    return count;
}

size_t membership_list(const struct membership *m, struct member_view *views, size_t max)
{
    size_t count = m->book.count < max ? m->book.count : max;

    for (size_t i = 0; i < count; i++) {
        view_fill(m->book.members[i], &views[i]);
    }
    return count;
}

size_t membership_count(const struct membership *m)
{
    return m->book.count;
}

uint64_t membership_epoch(const struct membership *m)
{
    return m->epoch;
}

uint64_t membership_incarnation(const struct membership *m)
{
    return m->options.incarnation;
}

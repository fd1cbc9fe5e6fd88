/*
 * The book of a membership: every member known, sorted by id, with its newest signed record; the
 * list of records that are on their way to others (infection-style dissemination, Das, Gupta,
 * Motivala 2002, "SWIM", section 4.1: each is sent about 4 log10(n + 1) times by each who has it);
 * and the round-trip estimator (Jacobson 1988, as in RFC 6298). Loop thread.
 */
#include "gossip/membership_internal.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>

enum { TRANSMITS_MIN = 3 };

#define RTT_SAMPLE_MAX (60 * NS_PER_S)

_Static_assert((BOOK_SEEN_SLOTS & (BOOK_SEEN_SLOTS - 1)) == 0, "slots are masked out of a hash");

enum rc book_init(struct book *book, uint32_t members_max)
{
    CHECK(members_max > 0 && members_max <= MEMBERS_MAX);
    book->members = mem_array(members_max, sizeof(book->members[0]));
    if (book->members == NULL) return RC_NOMEM;
    book->max = members_max;
    return RC_OK;
}

void book_deinit(struct book *book)
{
    for (uint32_t i = 0; i < book->count; i++) {
        mem_free(book->members[i]);
    }
    mem_free(book->members);
    book->members = NULL;
    book->count = 0;
}

/* Where `id` is, or where it would have to be inserted. */
static uint32_t book_place(const struct book *book, struct peer_id id, bool *is_there)
{
    uint32_t low = 0, high = book->count;

    *is_there = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = peer_id_compare(book->members[middle]->id, id);

        if (order == 0) {
            *is_there = true;
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct member *book_find(const struct book *book, struct peer_id id)
{
    bool is_there;
    uint32_t place = book_place(book, id, &is_there);

    return is_there ? book->members[place] : NULL;
}

static bool is_gone(const struct member *member)
{
    return !member->is_linked && (member->state == MEMBER_DEAD || member->state == MEMBER_LEFT);
}

/* Strangers' records can fill the book, so what is known to be gone longest makes room; a live
 * member never does. */
static bool book_make_room(struct membership *m)
{
    struct member *oldest = NULL;

    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.members[i];

        if (!is_gone(member)) continue;
        if (oldest == NULL || member->since_ns < oldest->since_ns) oldest = member;
    }
    if (oldest == NULL) return false;
    book_remove(m, oldest);
    return true;
}

struct member *book_add(struct membership *m, struct peer_id id, uint64_t now_ns)
{
    struct book *book = &m->book;
    struct member *member;
    bool is_there;
    uint32_t place;

    if (book->count == book->max && !book_make_room(m)) return NULL;
    member = mem_alloc(sizeof(*member));
    if (member == NULL) return NULL;
    place = book_place(book, id, &is_there);
    CHECK(!is_there);
    memmove(book->members + place + 1, book->members + place,
            (book->count - place) * sizeof(book->members[0]));
    book->members[place] = member;
    book->count++;
    member->id = id;
    member->state = MEMBER_KNOWN;
    member->since_ns = now_ns;
    member->dial_ns = UINT64_MAX;
    return member;
}

static uint64_t bytes_hash(const uint8_t *bytes, size_t count)
{
    struct digest digest = hash_of(bytes, count);

    return load_le64(digest.bytes);
}

void book_remove(struct membership *m, struct member *member)
{
    struct book *book = &m->book;
    struct seen *seen;
    bool is_there;
    uint32_t place = book_place(book, member->id, &is_there);

    CHECK(is_there && book->members[place] == member && !member->is_linked);
    pending_remove(m, member);
    seen = &book->seen[bytes_hash(member->bytes, member->bytes_count) & (BOOK_SEEN_SLOTS - 1)];
    if (seen->member == member) seen->member = NULL;
    book->count--;
    memmove(book->members + place, book->members + place + 1,
            (book->count - place) * sizeof(book->members[0]));
    mem_free(member);
}

struct member *book_seen(const struct book *book, const uint8_t *bytes, size_t count)
{
    uint64_t hash = bytes_hash(bytes, count);
    const struct seen *seen = &book->seen[hash & (BOOK_SEEN_SLOTS - 1)];
    struct member *member = seen->member;

    if (member == NULL || seen->hash != hash || member->bytes_count != count) return NULL;
    return memcmp(member->bytes, bytes, count) == 0 ? member : NULL;
}

void book_keep(struct book *book, struct member *member, const struct member_record *record,
               const uint8_t *bytes, size_t count)
{
    uint64_t old = bytes_hash(member->bytes, member->bytes_count), hash = bytes_hash(bytes, count);

    CHECK(count > 0 && count <= sizeof(member->bytes));
    if (book->seen[old & (BOOK_SEEN_SLOTS - 1)].member == member) {
        book->seen[old & (BOOK_SEEN_SLOTS - 1)].member = NULL;
    }
    memcpy(member->bytes, bytes, count);
    member->bytes_count = count;
    book->seen[hash & (BOOK_SEEN_SLOTS - 1)] = (struct seen){.hash = hash, .member = member};
    member->record_boot = record->boot;
    member->incarnation = record->incarnation;
    member->has_left = record->has_left;
    member->nat = (enum nat_class)record->nat;
    if (!member->is_linked) member->boot = record->boot; /* a link is the better witness */
    for (uint32_t i = 0; i < RECORD_ADDRESSES_MAX; i++) {
        char *to = member->addresses[i + 1];

        memset(to, 0, ADDRESS_BYTES_MAX);
        if (i < record->addresses_count) memcpy(to, record->addresses[i], ADDRESS_BYTES_MAX);
        to[ADDRESS_BYTES_MAX - 1] = '\0';
    }
}

void pending_remove(struct membership *m, struct member *member)
{
    member->transmits_left = 0;
    if (!member->is_pending) return;
    for (uint32_t i = 0; i < m->pending_count; i++) {
        if (m->pending[i] != member) continue;
        m->pending[i] = m->pending[--m->pending_count];
        break;
    }
    member->is_pending = false;
}

void pending_add(struct membership *m, struct member *member)
{
    uint32_t transmits = (uint32_t)ceil(4.0 * log10((double)m->linked_count + 2.0));

    CHECK(member->bytes_count > 0);
    if (!member->is_pending && m->pending_count == PENDING_MAX) {
        struct member *most_sent = m->pending[0];

        for (uint32_t i = 1; i < m->pending_count; i++) {
            if (m->pending[i]->transmits_left < most_sent->transmits_left) {
                most_sent = m->pending[i];
            }
        }
        pending_remove(m, most_sent);
    }
    member->transmits_left = transmits > TRANSMITS_MIN ? transmits : TRANSMITS_MIN;
    if (!member->is_pending) m->pending[m->pending_count++] = member;
    member->is_pending = true;
}

uint32_t pending_take(struct membership *m, struct peer_id to, struct record_ref *refs,
                      uint32_t max)
{
    uint32_t count = 0;

    /* A walk round the list from where the last one stopped: all get their turn. Backwards, so that
     * taking one out of the list moves only one that was visited. */
    for (uint32_t left = m->pending_count; left > 0 && count < max; left--) {
        struct member *member;

        if (m->pending_at == 0 || m->pending_at > m->pending_count) {
            m->pending_at = m->pending_count;
        }
        member = m->pending[--m->pending_at];
        if (peer_id_is_equal(member->id, to)) continue;
        refs[count].bytes = member->bytes;
        refs[count].bytes_count = (uint16_t)member->bytes_count;
        count++;
        if (--member->transmits_left == 0) pending_remove(m, member);
    }
    return count;
}

void rtt_sample(struct rtt *rtt, uint64_t sample_ns)
{
    uint64_t sample = sample_ns < RTT_SAMPLE_MAX ? sample_ns : RTT_SAMPLE_MAX, error;

    if (sample == 0) sample = 1; /* 0 means: not measured */
    if (rtt->srtt_ns == 0) {
        rtt->srtt_ns = sample;
        rtt->rttvar_ns = sample / 2;
        return;
    }
    error = sample > rtt->srtt_ns ? sample - rtt->srtt_ns : rtt->srtt_ns - sample;
    rtt->rttvar_ns = rtt->rttvar_ns - rtt->rttvar_ns / 4 + error / 4;
    rtt->srtt_ns = rtt->srtt_ns - rtt->srtt_ns / 8 + sample / 8;
    if (rtt->srtt_ns == 0) rtt->srtt_ns = 1;
}

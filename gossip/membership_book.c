/*
 * The book of a membership: every member known, sorted by id, with its newest signed record; the
 * digest of it that tells two books apart; the list of news on its way to others (infection-style
 * dissemination, Das, Gupta, Motivala 2002, "SWIM", section 4.1: each is sent about 4 log10(n + 1)
 * times by each who has it); and the round-trip estimator (Jacobson 1988, as in RFC 6298).
 *
 * Records are signed by their subjects, so a hostile member can mint as many as it likes. Three
 * rules bound what they do: the book has one size; one source may tell of a quarter of it that
 * nobody here ever met; and somebody met takes the place of somebody rumoured. Loop thread.
 */
#include "gossip/membership_internal.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>

enum { TRANSMITS_MIN = 3, HEARSAY_MIN = FULL_MESH_MAX, SEEN_PER_MEMBER = 2 };

#define RTT_SAMPLE_MAX (60 * NS_PER_S)

enum rc book_init(struct book *book, uint32_t members_max)
{
    uint32_t slots = 64;

    CHECK(members_max > 0 && members_max <= MEMBERS_MAX);
    while (slots < SEEN_PER_MEMBER * members_max) {
        slots *= 2;
    }
    book->members = mem_array(members_max, sizeof(book->members[0]));
    book->seen = book->members == NULL ? NULL : mem_array(slots, sizeof(book->seen[0]));
    if (book->seen == NULL) {
        mem_free(book->members);
        return RC_NOMEM;
    }
    book->seen_mask = slots - 1;
    book->max = members_max;
    return RC_OK;
}

static void member_free(struct member *member)
{
    mem_free(member->bytes);
    mem_free(member->reached);
    mem_free(member->contact);
    mem_free(member->words);
    mem_free(member);
}

void book_deinit(struct book *book)
{
    for (uint32_t i = 0; i < book->count; i++) {
        member_free(book->members[i]);
    }
    mem_free(book->members);
    mem_free(book->seen);
    book->members = NULL;
    book->seen = NULL;
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

/* What a full book can do without, worst first; 0: nothing. */
static uint32_t worthlessness(const struct member *member, bool is_for_a_link)
{
    if (member->contact != NULL) return 0;
    if (member->state == MEMBER_DEAD || member->state == MEMBER_LEFT) {
        return member->is_hearsay ? 3 : 2;
    }
    return is_for_a_link && member->is_hearsay && !member->is_dialling ? 1 : 0;
}

static bool book_make_room(struct membership *m, bool is_for_a_link)
{
    struct member *worst = NULL;
    uint32_t most = 0;

    for (uint32_t i = 0; i < m->book.count; i++) {
        struct member *member = m->book.members[i];
        uint32_t worth = worthlessness(member, is_for_a_link);

        if (worth == 0 || worth < most) continue;
        if (worth == most && member->since_ns >= worst->since_ns) continue;
        worst = member;
        most = worth;
    }
    if (worst == NULL) return false;
    book_remove(m, worst);
    return true;
}

bool book_is_full_for(const struct membership *m, struct peer_id from)
{
    uint32_t share = m->book.max / 4 > HEARSAY_MIN ? m->book.max / 4 : HEARSAY_MIN;

    return m->book.hearsay[from.bytes[0]] >= share;
}

struct member *book_add(struct membership *m, struct peer_id id, const struct peer_id *from,
                        uint64_t now_ns)
{
    struct book *book = &m->book;
    struct member *member;
    bool is_there;
    uint32_t place;

    if (from != NULL && book_is_full_for(m, *from)) return NULL;
    if (book->count == book->max && !book_make_room(m, from == NULL)) return NULL;
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
    member->is_hearsay = true;
    member->source = from != NULL ? from->bytes[0] : id.bytes[0];
    book->hearsay[member->source]++;
    return member;
}

void book_proved(struct book *book, struct member *member)
{
    if (!member->is_hearsay) return;
    CHECK(book->hearsay[member->source] > 0);
    book->hearsay[member->source]--;
    member->is_hearsay = false;
}

static void book_unsee(struct book *book, const struct member *member)
{
    struct seen *seen = &book->seen[member->hash & book->seen_mask];

    if (seen->member == member) seen->member = NULL;
}

void book_remove(struct membership *m, struct member *member)
{
    struct book *book = &m->book;
    bool is_there;
    uint32_t place = book_place(book, member->id, &is_there);

    CHECK(is_there && book->members[place] == member && member->contact == NULL);
    membership_become(m, member, MEMBER_LEFT, member->since_ns);
    pending_remove(m, member);
    book_proved(book, member);
    book_unsee(book, member);
    hosts_count(book, member, false);
    book->count--;
    memmove(book->members + place, book->members + place + 1,
            (book->count - place) * sizeof(book->members[0]));
    member_free(member);
}

static uint64_t bytes_hash(const uint8_t *bytes, size_t count)
{
    struct digest digest = hash_of(bytes, count);

    return load_le64(digest.bytes);
}

struct member *book_seen(const struct book *book, const uint8_t *bytes, size_t count)
{
    uint64_t hash = bytes_hash(bytes, count);
    const struct seen *seen = &book->seen[hash & book->seen_mask];
    struct member *member = seen->member;

    if (member == NULL || seen->hash != hash || member->bytes_count != count) return NULL;
    return memcmp(member->bytes, bytes, count) == 0 ? member : NULL;
}

void book_count(struct book *book, struct member *member)
{
    bool counts = member->bytes != NULL && !member->has_left && member->state != MEMBER_DEAD &&
                  member->state != MEMBER_LEFT;
    uint32_t part = counts ? (uint32_t)(member->hash >> 32) | 1 : 0;

    if (part == member->counted) return;
    book->changes += (part != 0) != (member->counted != 0);
    book->counted += part != 0;
    book->counted -= member->counted != 0;
    book->digest[member->id.bytes[0] >> 2] ^= member->counted ^ part;
    member->counted = part;
}

enum rc book_keep(struct membership *m, struct member *member, const struct member_record *record,
                  const uint8_t *bytes, size_t count)
{
    struct book *book = &m->book;

    CHECK(count > 0 && count <= SIGNED_RECORD_BYTES_MAX);
    if (member == &m->self) {
        member->bytes = m->self_bytes;
    } else {
        uint8_t *copy = mem_raw(count);

        if (copy == NULL) return RC_NOMEM;
        book_unsee(book, member);
        hosts_count(book, member, false);
        mem_free(member->bytes);
        member->bytes = copy;
    }
    memcpy(member->bytes, bytes, count);
    member->bytes_count = (uint32_t)count;
    member->hash = bytes_hash(bytes, count);
    member->record_boot = record->boot;
    member->incarnation = record->incarnation;
    member->has_left = record->has_left;
    member->nat = (enum nat_class)record->nat;
    if (member->contact == NULL) member->boot = record->boot; /* a link is the better witness */
    if (member == &m->self) return RC_OK;
    hosts_count(book, member, true);
    book->seen[member->hash & book->seen_mask] =
        (struct seen){.hash = member->hash, .member = member};
    book_count(book, member);
    return RC_OK;
}

bool member_address(const struct member *member, uint32_t index, char address[ADDRESS_BYTES_MAX])
{
    struct member_record record;

    CHECK(index < ADDRESSES_MAX);
    memset(address, 0, ADDRESS_BYTES_MAX);
    if (index == 0) {
        if (member->reached != NULL) snprintf(address, ADDRESS_BYTES_MAX, "%s", member->reached);
    } else if (member->bytes != NULL) {
        if (record_peek(member->bytes, member->bytes_count, &record) != RC_OK) return false;
        if (index <= record.addresses_count) {
            memcpy(address, record.addresses[index - 1], ADDRESS_BYTES_MAX);
        }
    }
    return address[0] != '\0';
}

/* --- news ------------------------------------------------------------------------------------ */

static bool has_news(const struct member *member)
{
    return member->transmits_left > 0 ||
           (member->words != NULL && member->words->transmits_left > 0);
}

static void pending_drop(struct membership *m, struct member *member)
{
    if (!member->is_pending) return;
    for (uint32_t i = 0; i < m->pending_count; i++) {
        if (m->pending[i] != member) continue;
        m->pending[i] = m->pending[--m->pending_count];
        break;
    }
    member->is_pending = false;
}

void pending_remove(struct membership *m, struct member *member)
{
    member->transmits_left = 0;
    if (member->words != NULL) member->words->transmits_left = 0;
    pending_drop(m, member);
}

void pending_settle(struct membership *m, struct member *member)
{
    if (!has_news(member)) pending_drop(m, member);
}

static uint32_t transmits(const struct membership *m)
{
    uint32_t count = (uint32_t)ceil(4.0 * log10((double)m->book.counted + 2.0));

    return count > TRANSMITS_MIN ? count : TRANSMITS_MIN;
}

static void pending_list(struct membership *m, struct member *member)
{
    if (member->is_pending) return;
    if (m->pending_count == PENDING_MAX) {
        struct member *most_sent = m->pending[0];

        for (uint32_t i = 1; i < m->pending_count; i++) {
            if (m->pending[i]->transmits_left < most_sent->transmits_left) {
                most_sent = m->pending[i];
            }
        }
        pending_remove(m, most_sent);
    }
    m->pending[m->pending_count++] = member;
    member->is_pending = true;
}

void pending_add(struct membership *m, struct member *member)
{
    CHECK(member->bytes != NULL);
    pending_list(m, member);
    member->transmits_left = transmits(m);
}

void pending_add_words(struct membership *m, struct member *member)
{
    CHECK(member->words != NULL);
    pending_list(m, member);
    member->words->transmits_left = transmits(m);
}

/* The next of a walk round the list from where the last one stopped: all get their turn. Backwards,
 * so that taking one out of the list moves only one that was visited. */
static struct member *pending_next(struct membership *m)
{
    if (m->pending_at == 0 || m->pending_at > m->pending_count) m->pending_at = m->pending_count;
    return m->pending[--m->pending_at];
}

uint32_t pending_take(struct membership *m, struct peer_id to, struct record_ref *refs,
                      uint32_t max)
{
    uint32_t count = 0;

    for (uint32_t left = m->pending_count; left > 0 && count < max; left--) {
        struct member *member = pending_next(m);

        if (member->transmits_left == 0 || peer_id_is_equal(member->id, to)) continue;
        refs[count].bytes = member->bytes;
        refs[count].bytes_count = (uint16_t)member->bytes_count;
        count++;
        member->transmits_left--;
        if (!has_news(member)) pending_drop(m, member);
    }
    return count;
}

uint32_t pending_take_words(struct membership *m, uint8_t bytes[ACCUSATIONS_MAX * ACCUSATION_BYTES],
                            uint32_t max)
{
    uint32_t count = 0;

    CHECK(max <= ACCUSATIONS_MAX);
    for (uint32_t left = m->pending_count; left > 0; left--) {
        struct member *member = pending_next(m);
        struct words *words = member->words;
        uint32_t all;

        if (words == NULL || words->transmits_left == 0) continue;
        all = words->others_count + words->has_own;
        if (count + all > max) continue;
        memcpy(bytes + count * ACCUSATION_BYTES, words->others,
               (size_t)words->others_count * ACCUSATION_BYTES);
        count += words->others_count;
        if (words->has_own)
            memcpy(bytes + count++ * ACCUSATION_BYTES, words->own, ACCUSATION_BYTES);
        words->transmits_left--;
        if (!has_news(member)) pending_drop(m, member);
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

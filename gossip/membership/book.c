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
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/times.h"

#include <math.h>
#include <stdio.h>

enum { TRANSMITS_MIN = 3, HEARSAY_MIN = FULL_MESH_MAX, CAPACITY_FIRST = 16 };

enum rc book_init(struct membership *m)
{
    const struct membership_options *options = &m->options;
    struct book *book = &m->book;

    CHECK(options->members_max > 0 && options->members_max <= MEMBERS_MAX);
    book->max = options->members_max;
    book->shelf = verified_shelf(options->verified, options->run_id);
    if (book->shelf == NULL) book->shelf = book->own_shelf = shelf_create(options->shelf_seed);
    return book->shelf == NULL ? RC_NOMEM : RC_OK;
}

static void member_free(struct membership *m, struct member *member)
{
    shelf_unref(m->book.shelf, member->record);
    words_free(m, member);
    mem_free(member->reached);
    mem_free(member->contact);
    mem_free(member);
}

void book_deinit(struct membership *m)
{
    struct book *book = &m->book;

    for (uint32_t i = 0; i < book->count; i++) {
        member_free(m, book->entries[i].member);
    }
    mem_free(book->entries);
    shelf_destroy(book->own_shelf);
    book->entries = NULL;
    book->own_shelf = NULL;
    book->count = 0;
}

const struct record_brief *member_brief(const struct member *member)
{
    static const struct record_brief nothing = {.nat = NAT_UNKNOWN};

    return member->record == NULL ? &nothing : &member->record->brief;
}

/* The first bytes of an id as a number, which is in the order of ids. Ids are hashes, so it says
 * about where in the book one is. */
static uint32_t id_number(struct peer_id id)
{
    return (uint32_t)id.bytes[0] << 24 | (uint32_t)id.bytes[1] << 16 | (uint32_t)id.bytes[2] << 8 |
           id.bytes[3];
}

/* Where `id` is, or where it would have to be inserted: first near where it would be if ids were
 * spread evenly, twice as far away each time; ids that somebody chose cost a few steps more. */
static uint32_t book_place(const struct book *book, struct peer_id id, bool *is_there)
{
    uint32_t key = id_number(id), low = 0, high = book->count, reach = 4;
    uint32_t middle = (uint32_t)((uint64_t)key * book->count >> 32);

    *is_there = false;
    while (low < high) {
        const struct entry *entry = &book->entries[middle];
        int order = entry->key < key ? -1 : entry->key > key;

        if (order == 0) order = peer_id_compare(entry->member->id, id);
        if (order == 0) {
            *is_there = true;
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
            middle = high - low > 2 * reach ? low + reach : low + (high - low) / 2;
        } else {
            high = middle;
            middle = high - low > 2 * reach ? high - reach : low + (high - low) / 2;
        }
        reach *= 2;
    }
    return low;
}

struct member *book_find(const struct book *book, struct peer_id id)
{
    bool is_there;
    uint32_t place = book_place(book, id, &is_there);

    return is_there ? book->entries[place].member : NULL;
}

void book_set_dial(struct book *book, const struct member *member, bool has_dial)
{
    bool is_there;
    uint32_t place = book_place(book, member->id, &is_there);

    CHECK(is_there);
    book->entries[place].has_dial = has_dial;
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
        struct member *member = m->book.entries[i].member;
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

/* Is there room in the table for one more? */
static bool book_grow(struct book *book)
{
    uint32_t capacity = book->capacity == 0 ? CAPACITY_FIRST : book->capacity * 2;
    struct entry *entries;

    if (book->count < book->capacity) return true;
    if (capacity > book->max) capacity = book->max;
    entries = mem_resize(book->entries, capacity * sizeof(book->entries[0]));
    if (entries == NULL) return false;
    book->entries = entries;
    book->capacity = capacity;
    return true;
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
    if (!book_grow(book)) return NULL;
    member = mem_alloc(sizeof(*member));
    if (member == NULL) return NULL;
    place = book_place(book, id, &is_there);
    CHECK(!is_there);
    memmove(book->entries + place + 1, book->entries + place,
            (book->count - place) * sizeof(book->entries[0]));
    book->entries[place] = (struct entry){.member = member, .key = id_number(id)};
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

static void hearsay_end(struct book *book, struct member *member)
{
    if (!member->is_hearsay) return;
    CHECK(book->hearsay[member->source] > 0);
    book->hearsay[member->source]--;
    member->is_hearsay = false;
    member->vain = 0;
    book_count(book, member);
}

void book_proved(struct book *book, struct member *member)
{
    if (member->is_hearsay) book->tried = book->tried << 1;
    hearsay_end(book, member);
}

bool member_is_likely(const struct member *member)
{
    return member->counted != 0 && member->vain < VAIN_MAX;
}

void book_tried_in_vain(struct book *book, struct member *member)
{
    if (!member->is_hearsay || member->vain == VAIN_MAX) return;
    member->vain++;
    book->tried = book->tried << 1 | 1;
    book_count(book, member);
}

/* Is it one of those met, or of those dialled in vain? */
static void count_standing(struct book *book, struct member *member)
{
    bool is_met = member->counted != 0 && !member->is_hearsay;
    bool is_vain = member->counted != 0 && member->vain == VAIN_MAX;

    if (is_met == member->is_met && is_vain == member->is_vain) return;
    book->changes += is_vain != member->is_vain || (book->is_by_met && is_met != member->is_met);
    book->met += is_met;
    book->met -= member->is_met;
    book->vain += is_vain;
    book->vain -= member->is_vain;
    member->is_met = is_met;
    member->is_vain = is_vain;
}

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

static void pending_remove(struct membership *m, struct member *member)
{
    member->transmits_left = 0;
    if (member->words != NULL) member->words->transmits_left = 0;
    pending_drop(m, member);
}

void book_remove(struct membership *m, struct member *member)
{
    struct book *book = &m->book;
    bool is_there;
    uint32_t place = book_place(book, member->id, &is_there);

    CHECK(is_there && book->entries[place].member == member && member->contact == NULL);
    if (member->is_kept) kept_forget(m, member);
    membership_become(m, member, MEMBER_LEFT, member->since_ns);
    pending_remove(m, member);
    hearsay_end(book, member); /* forgotten, not found: says nothing of who is there */
    hosts_count(book, member, false);
    book->count--;
    memmove(book->entries + place, book->entries + place + 1,
            (book->count - place) * sizeof(book->entries[0]));
    member_free(m, member);
}

void book_count(struct book *book, struct member *member)
{
    bool counts = member->record != NULL && !member->record->brief.has_left &&
                  member->state != MEMBER_DEAD && member->state != MEMBER_LEFT;
    uint32_t part = counts ? (uint32_t)(member->record->hash >> 32) | 1 : 0;

    book->changes += (part != 0) != (member->counted != 0);
    book->counted += part != 0;
    book->counted -= member->counted != 0;
    book->digest[member->id.bytes[0] >> 2] ^= member->counted ^ part;
    member->counted = part;
    count_standing(book, member);
}

void book_keep(struct membership *m, struct member *member, struct signed_record *record)
{
    CHECK(member != &m->self);
    m->book.changes += member_brief(member)->is_keeper != record->brief.is_keeper;
    hosts_count(&m->book, member, false);
    shelf_unref(m->book.shelf, member->record);
    member->record = record;
    hosts_count(&m->book, member, true);
    book_count(&m->book, member);
}

const char *member_address(const struct member *member, uint32_t index)
{
    CHECK(index < ADDRESSES_MAX);
    if (index == 0) return member->reached;
    return member->record == NULL ? NULL : signed_record_address(member->record, index - 1);
}

/* --- news ------------------------------------------------------------------------------------ */

void pending_settle(struct membership *m, struct member *member)
{
    if (!has_news(member)) pending_drop(m, member);
}

static uint8_t transmits(const struct membership *m)
{
    uint8_t count = (uint8_t)ceil(4.0 * log10((double)m->book.counted + 2.0));

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
    CHECK(member->record != NULL);
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
        refs[count].bytes = member->record->bytes;
        refs[count].bytes_count = member->record->count;
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
    if (m->words_count == 0) return 0;
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
    uint64_t sample = sample_ns < RTT_SAMPLE_MAX_NS ? sample_ns : RTT_SAMPLE_MAX_NS, error;

    if (sample == 0) sample = 1; /* 0 means: not measured */
    rtt->peak_ns = sample > rtt->peak_ns ? sample : rtt->peak_ns - (rtt->peak_ns - sample) / 4;
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

/*
 * Anti-entropy: now and then two linked members compare their books. The asker sends a digest, one
 * number for each of 64 buckets of ids (XOR of the records' hashes); the answer is what the other
 * has in the buckets that differ, page by page. Who answers a page that lags behind is told what it
 * does not know: newer records, farewells, and what is said against the dead. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "gossip/times.h"

enum { SYNC_PAGES_PER_S = 160, PAGES_DUE_MAX = 4 };

/* Our book's digest with ourselves in it. */
static void digest_store(const struct membership *m, uint8_t digest[SYNC_DIGEST_BYTES])
{
    for (uint32_t i = 0; i < SYNC_BUCKETS; i++) {
        uint32_t own =
            i == m->self_id.bytes[0] >> 2 ? (uint32_t)(m->self.record->hash >> 32) | 1 : 0;

        store_le32(digest + (size_t)4 * i, m->book.digest[i] ^ own);
    }
}

static void ask_page(struct member *member, uint32_t page, struct outbox *out)
{
    struct message message = {.type = MESSAGE_SYNC_REQ};

    message.as.sync_req.digest = member->contact->digest;
    message.as.sync_req.digest_bytes = SYNC_DIGEST_BYTES;
    message.as.sync_req.page = page;
    member->contact->sync_page = page;
    if (member->contact->pages_due < PAGES_DUE_MAX) member->contact->pages_due++;
    outbox_add(out, member->id, &message);
}

void sync_ask(struct membership *m, struct member *member, uint64_t now_ns, struct outbox *out)
{
    CHECK(member->contact != NULL);
    m->asked_ns = now_ns;
    digest_store(m, member->contact->digest);
    ask_page(member, 0, out);
}

/* Records worth giving away: not those of the dead, or they would never be forgotten; but a member
 * may always see what is said about itself. */
static bool is_shared(const struct member *member, struct peer_id with)
{
    if (member->record == NULL) return false;
    return member->counted != 0 || peer_id_is_equal(member->id, with);
}

/* Each second of a link serves so many pages: more than a book has, less than a flood. */
static bool may_serve(struct contact *contact, uint64_t now_ns)
{
    if (now_ns - contact->serve_ns >= NS_PER_S) {
        contact->serve_ns = now_ns;
        contact->served = contact->relayed = 0;
    }
    return contact->served++ < SYNC_PAGES_PER_S;
}

enum rc sync_on_request(struct membership *m, struct member *from,
                        const struct message_sync_req *request, uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_SYNC};
    struct message_sync *sync = &message.as.sync;
    uint64_t first = (uint64_t)request->page * SYNC_RECORDS_MAX;
    uint8_t ours[SYNC_DIGEST_BYTES];
    uint32_t shared = 0;

    if (!may_serve(from->contact, now_ns)) return RC_LIMIT;
    digest_store(m, ours);
    if (request->digest_bytes > 0 && memcmp(ours, request->digest, SYNC_DIGEST_BYTES) == 0) {
        return RC_OK;
    }
    for (uint32_t i = 0; i <= m->book.count; i++) { /* our own record, then the book's */
        const struct member *member = i == 0 ? &m->self : m->book.entries[i - 1].member;
        uint32_t first_byte = i == 0 ? m->self_id.bytes[0] : m->book.entries[i - 1].key >> 24;
        size_t bucket = (size_t)4 * (first_byte >> 2);

        if (request->digest_bytes > 0 && memcmp(ours + bucket, request->digest + bucket, 4) == 0) {
            continue;
        }
        if (member != &m->self && !is_shared(member, from->id)) continue;
        if (shared >= first && shared < first + SYNC_RECORDS_MAX) {
            sync->records[sync->records_count].bytes = member->record->bytes;
            sync->records[sync->records_count].bytes_count = member->record->count;
            sync->records_count++;
        }
        shared++;
    }
    sync->page = request->page;
    sync->pages = (shared + SYNC_RECORDS_MAX - 1) / SYNC_RECORDS_MAX;
    if (sync->page < sync->pages) outbox_add(out, from->id, &message);
    return RC_OK;
}

enum rc sync_on_page(struct membership *m, struct member *from, const struct message_sync *sync,
                     uint64_t now_ns, struct outbox *out)
{
    uint32_t pages_max = MEMBERS_MAX / SYNC_RECORDS_MAX + 1;
    bool is_asked = sync->page == from->contact->sync_page;
    enum rc rc;

    if (sync->page >= sync->pages || sync->pages > pages_max) return RC_FORMAT;
    if (from->contact->pages_due == 0) return RC_OK; /* not asked for */
    from->contact->pages_due--;
    rc = membership_absorb(m, from->id, sync->records, sync->records_count, now_ns, out);
    if (rc == RC_OK && is_asked && sync->page + 1 < sync->pages && from->contact != NULL) {
        ask_page(from, sync->page + 1, out);
    }
    return rc;
}

void sync_tick(struct membership *m, uint64_t now_ns, struct outbox *out)
{
    struct member *member;

    if (now_ns < m->sync_ns) return;
    member = probe_random(m, NULL, 0, NULL);
    if (member != NULL) sync_ask(m, member, now_ns, out);
    m->sync_ns = now_ns + membership_jitter(m, m->sync_interval_ns);
    if (m->sync_interval_ns < SYNC_MAX_NS) m->sync_interval_ns *= 2;
    if (m->sync_interval_ns > SYNC_MAX_NS) m->sync_interval_ns = SYNC_MAX_NS;
}

/* failures: two small tables and no memory of its own. */
#include "peer/round/failures.h"

#include "base/check.h"

static struct failure *find(struct failures *failures, struct peer_id peer)
{
    for (uint32_t i = 0; i < FAILURES_MAX; i++) {
        struct failure *entry = &failures->entries[i];

        if (entry->reason != NULL && peer_id_is_equal(entry->peer, peer)) return entry;
    }
    return NULL;
}

static bool is_partner(const struct failures *failures, struct peer_id peer)
{
    for (uint32_t i = 0; i < failures->partners_count; i++) {
        if (peer_id_is_equal(failures->partners[i], peer)) return true;
    }
    return false;
}

void failures_partner(struct failures *failures, struct peer_id peer)
{
    if (failures->partners_count == FAILURE_PARTNERS_MAX || is_partner(failures, peer)) return;
    failures->partners[failures->partners_count++] = peer;
}

void failures_note(struct failures *failures, struct peer_id peer, const char *reason,
                   uint64_t now_ns)
{
    struct failure *entry = find(failures, peer);

    CHECK(reason != NULL);
    if (entry == NULL) { /* a free one, else the oldest */
        entry = failures->entries;
        for (uint32_t i = 0; i < FAILURES_MAX && entry->reason != NULL; i++) {
            struct failure *other = &failures->entries[i];

            if (other->reason == NULL || other->at_ns < entry->at_ns) entry = other;
        }
    }
    *entry = (struct failure){peer, reason, now_ns, true};
}

void failures_link_lost(struct failures *failures, struct peer_id peer, uint64_t now_ns)
{
    if (is_partner(failures, peer)) failures_note(failures, peer, "the link was lost", now_ns);
}

void failures_round_over(struct failures *failures, const char *reason, uint64_t now_ns)
{
    for (uint32_t i = 0; i < failures->partners_count; i++) {
        struct failure *entry = find(failures, failures->partners[i]);

        if (entry != NULL && entry->is_fresh) continue; /* it has a reason of its own */
        if (reason != NULL) {
            failures_note(failures, failures->partners[i], reason, now_ns);
        } else if (entry != NULL) {
            *entry = (struct failure){.reason = NULL};
        }
    }
    failures->partners_count = 0;
    for (uint32_t i = 0; i < FAILURES_MAX; i++) {
        failures->entries[i].is_fresh = false;
    }
}

const struct failure *failures_find(const struct failures *failures, struct peer_id peer)
{
    return find((struct failures *)failures, peer);
}

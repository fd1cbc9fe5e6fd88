/*
 * The epochs of a session: its dialler renews the keys when they have been in use for long, or for
 * much (see gossip/secure/secure.c for what is sent). The other side only sees to it that this
 * happens: at twice the limits either of them ends the link. Loop thread.
 */
#include "peer/link/internal.h"

#include "base/mem.h"

#include <string.h>

static void link_new_epoch(struct links *links, struct link *link)
{
    link->epoch_ns = link_now(links);
    link->epoch_bytes = 0;
    link->spread_ns = 0; /* its bulk connections are new, too */
}

/* How often the limits went into what the keys were used for, time aside. */
static bool is_used_up(const struct links *links, const struct link *link, uint64_t times)
{
    const struct link_rekey *limits = &links->options.rekey;
    const struct bulk *bulk;

    if (link->epoch_bytes / times >= limits->bytes) return true;
    if (secure_records(link->secure) / times >= limits->records) return true;
    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        uint64_t records = bulk->sent > bulk->received ? bulk->sent : bulk->received;

        if (bulk->attach.epoch == secure_session(link->secure)->epoch &&
            records / times >= limits->records) {
            return true;
        }
    }
    return false;
}

static bool is_opening_bulk(const struct link *link)
{
    const struct bulk *bulk;

    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        if (bulk->state < BULK_OPEN) return true;
    }
    return false;
}

static void link_rekey(struct links *links, struct link *link)
{
    struct message message = {.type = MESSAGE_REKEY};
    uint8_t seed[SECRET_BYTES];

    links->options.env->ops->entropy(links->options.env, seed, sizeof seed);
    message.as.rekey.epoch = secure_session(link->secure)->epoch + 1;
    secure_rekey_start(link->secure, seed, message.as.rekey.key);
    mem_wipe(seed, sizeof seed);
    if (links_send(links, link->peer, &message) != RC_OK) link->is_closing = true;
}

void link_rekey_tick(struct links *links, struct link *link, uint64_t now_ns)
{
    uint64_t used_ns = now_ns > link->epoch_ns ? now_ns - link->epoch_ns : 0;

    /* Most links rest most of the time, and their sessions lie elsewhere in memory. */
    if (!link->is_current || (!link->is_used && used_ns < links->options.rekey.ns)) return;
    if (secure_session(link->secure)->state != SECURE_OPEN) return;
    if (used_ns >= 2 * links->options.rekey.ns || is_used_up(links, link, 2)) {
        link->is_closing = true; /* dial again */
        return;
    }
    link->is_used = is_used_up(links, link, 1);
    if (used_ns < links->options.rekey.ns && !link->is_used) return;
    if (secure_may_rekey(link->secure) && !is_opening_bulk(link)) link_rekey(links, link);
}

uint64_t link_rekey_next_ns(const struct links *links, const struct link *link, uint64_t now_ns)
{
    uint64_t due_ns = link->epoch_ns + links->options.rekey.ns;

    if (!link->is_current) return UINT64_MAX;
    if (!link->is_used && now_ns < due_ns) return due_ns;
    if (secure_session(link->secure)->state != SECURE_OPEN) return UINT64_MAX;
    /* While it is under way, or the other side's to do, only the end is left to wait for. */
    if (!secure_may_rekey(link->secure) || is_opening_bulk(link)) {
        return is_used_up(links, link, 2) ? 0 : due_ns + links->options.rekey.ns;
    }
    return is_used_up(links, link, 1) ? 0 : due_ns;
}

static enum rc link_answer(struct links *links, struct link *link,
                           const struct message_rekey *asked)
{
    struct message message = {.type = MESSAGE_REKEY_ACK};
    uint8_t seed[SECRET_BYTES];
    enum rc rc;

    links->options.env->ops->entropy(links->options.env, seed, sizeof seed);
    message.as.rekey.epoch = asked->epoch;
    rc = secure_rekey_answer(link->secure, asked->epoch, asked->key, seed, message.as.rekey.key);
    mem_wipe(seed, sizeof seed);
    if (rc != RC_OK) return rc;
    return links_send(links, link->peer, &message); /* sealed last with the old key */
}

void link_on_rekey(struct links *links, struct link *link, const struct message *message)
{
    const struct message_rekey *rekey = &message->as.rekey;
    enum rc rc = message->type == MESSAGE_REKEY
                     ? link_answer(links, link, rekey)
                     : secure_rekey_finish(link->secure, rekey->epoch, rekey->key);

    if (rc != RC_OK) {
        links->counts.frames_refused++;
        link_hangup(links, link, rc, "it broke the protocol");
        return;
    }
    link_new_epoch(links, link);
    link_resume(links, link);
}

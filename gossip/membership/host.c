/*
 * Which hosts are known to be members': for rationing handshakes. Names are not looked up, so an
 * address is known only where it is written in digits on both sides. Asked for every stranger, so
 * the book keeps counts by a hash of the host; two hosts that share one are known together, which
 * costs nothing but a ration.
 *
 * And what dials may cost a host where nobody was ever met: a member can name any address in its
 * record, and invent members that do, so each peer that is told would dial a third party. One dial
 * a second goes to such a host, whatever the port; after eight in vain one in ten minutes, until
 * somebody is met there, or this peer loses all its links, which says that it may be its own
 * network that has changed. The budget is of addresses and not of members: identities cost nothing.
 * Free of it are hosts in digits where somebody was met, either way, those of --bootstrap, and our
 * own. A host in digits is one however it is written. A name can lead anywhere, at any time, and
 * has to be looked up: all names where nobody was met share one dial a second and one at a time,
 * and who answers gives back what its dial cost, so that an honest swarm of names is linked as fast
 * as its members answer. Loop thread.
 */
#include "gossip/membership/internal.h"

#include "base/check.h"
#include "gossip/times.h"
#include "gossip/wire/address.h"

#include <string.h>

enum { FAILURES_MAX = 8 };

/* The bytes before the port, colon included; 0: there is no port. */
static size_t host_bytes(const char *address)
{
    const char *end = strrchr(address, ':');

    return end == NULL ? 0 : (size_t)(end - address) + 1;
}

/* FNV-1a. */
static uint32_t host_slot(const char *address, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint8_t)address[i]) * UINT64_C(0x100000001b3);
    }
    return (uint32_t)(hash >> 32) % HOST_SLOTS;
}

void hosts_count(struct book *book, const struct member *member, bool is_added)
{
    for (uint32_t i = 0; i < ADDRESSES_MAX; i++) {
        const char *address = member_address(member, i);
        size_t count;
        uint32_t slot;

        if (address == NULL) continue;
        count = host_bytes(address);
        if (count == 0) continue;
        slot = host_slot(address, count);
        if (is_added) {
            book->hosts[slot]++;
        } else {
            CHECK(book->hosts[slot] > 0);
            book->hosts[slot]--;
        }
    }
}

bool membership_knows_host(const struct membership *membership, const char *address)
{
    const struct dialler *dialler = &membership->dialler;
    size_t count = host_bytes(address);

    if (count == 0) return false;
    for (uint32_t i = 0; i < dialler->bootstraps_count; i++) {
        if (strncmp(dialler->bootstraps[i].address, address, count) == 0) return true;
    }
    return membership->book.hosts[host_slot(address, count)] > 0;
}

/* ---- dials ---- */

struct host {
    uint8_t bytes[ADDRESS_BYTES_MAX]; /* four or sixteen of an address, or a name */
    size_t count;
    bool is_name;
};

/* Of "host:port"; names in small letters and without a last point. */
static void host_parse(const char *address, struct host *host)
{
    size_t count = host_bytes(address);

    *host = (struct host){.is_name = false};
    host->count = address_host_number(address, host->bytes);
    if (host->count > 0) return;
    host->is_name = true;
    count = count == 0 ? 0 : count - 1; /* the colon */
    if (count > 0 && address[count - 1] == '.') count--;
    if (count > sizeof host->bytes) count = sizeof host->bytes;
    for (; host->count < count; host->count++) {
        uint8_t letter = (uint8_t)address[host->count];

        if (letter >= 'A' && letter <= 'Z') letter = (uint8_t)(letter - 'A' + 'a');
        host->bytes[host->count] = letter;
    }
}

static bool is_same_host(const struct host *a, const char *address)
{
    struct host b;

    host_parse(address, &b);
    return a->is_name == b.is_name && a->count == b.count &&
           memcmp(a->bytes, b.bytes, a->count) == 0;
}

/* Of --bootstrap, or ours: not a word of others. */
static bool is_given(const struct membership *m, const struct host *host)
{
    for (uint32_t i = 0; i < m->options.addresses_count; i++) {
        if (is_same_host(host, m->options.addresses[i])) return true;
    }
    for (uint32_t i = 0; i < m->dialler.bootstraps_count; i++) {
        if (is_same_host(host, m->dialler.bootstraps[i].address)) return true;
    }
    return false;
}

/* Nobody outside can tell which hosts share their places. */
static uint64_t host_hash(const struct dialler *d, const struct host *host)
{
    uint64_t hash = rng_mix(d->hosts_seed, host->count);

    for (size_t i = 0; i < host->count; i++) {
        hash = rng_mix(hash, host->bytes[i]);
    }
    return hash;
}

static struct host_tries *tries_find(struct dialler *d, const struct host *host)
{
    uint64_t hash = host_hash(d, host);
    struct host_tries *first = &d->tries[hash % (TRIES_SLOTS / HOST_WAYS) * HOST_WAYS];
    uint32_t tag = (uint32_t)(hash >> 32) | 1;

    for (int i = 0; i < HOST_WAYS; i++) {
        if (first[i].tag == tag) return &first[i];
    }
    return NULL;
}

/* Places are few: whom nobody was met at goes first, then what is longest over. */
static bool goes_before(const struct host_tries *a, const struct host_tries *b)
{
    if ((a->tag == 0) != (b->tag == 0)) return a->tag == 0;
    if (a->is_met != b->is_met) return b->is_met;
    return a->next_ns < b->next_ns;
}

static struct host_tries *tries_of(struct dialler *d, const struct host *host)
{
    uint64_t hash = host_hash(d, host);
    struct host_tries *first = &d->tries[hash % (TRIES_SLOTS / HOST_WAYS) * HOST_WAYS];
    struct host_tries *tries = tries_find(d, host), *least = first;

    if (tries != NULL) return tries;
    for (int i = 1; i < HOST_WAYS; i++) {
        if (goes_before(&first[i], least)) least = &first[i];
    }
    *least = (struct host_tries){.tag = (uint32_t)(hash >> 32) | 1};
    return least;
}

static bool is_name_in_the_air(const struct dialler *d)
{
    for (uint32_t i = 0; i < DIALS_MAX; i++) {
        if (d->dials[i].address[0] != '\0' && d->dials[i].is_looked_up) return true;
    }
    return false;
}

enum host_standing host_standing(struct membership *m, const char *address, uint64_t now_ns,
                                 uint64_t *at_ns)
{
    const struct host_tries *tries;
    struct host host;

    host_parse(address, &host);
    tries = tries_find(&m->dialler, &host);
    if ((tries != NULL && tries->is_met) || is_given(m, &host)) return HOST_FREE;
    if (tries != NULL && now_ns < tries->next_ns) {
        if (tries->failures >= FAILURES_MAX) return HOST_SPENT;
        *at_ns = tries->next_ns;
        return HOST_LATER;
    }
    if (!host.is_name) return HOST_STRANGE;
    *at_ns = is_name_in_the_air(&m->dialler) ? now_ns + HOST_GAP_NS : m->dialler.names_ns;
    return *at_ns > now_ns ? HOST_LATER : HOST_STRANGE;
}

void host_on_dial(struct membership *m, struct dial *dial, uint64_t now_ns)
{
    struct host host;

    host_parse(dial->address, &host);
    dial->is_budgeted = true;
    dial->is_looked_up = host.is_name;
    tries_of(&m->dialler, &host)->next_ns = now_ns + HOST_GAP_NS;
    if (host.is_name) m->dialler.names_ns = now_ns + HOST_GAP_NS;
}

void host_on_failed(struct membership *m, const struct dial *dial, uint64_t now_ns)
{
    struct host_tries *tries;
    struct host host;

    if (!dial->is_budgeted) return;
    host_parse(dial->address, &host);
    tries = tries_of(&m->dialler, &host);
    if (tries->failures < FAILURES_MAX) tries->failures++;
    if (tries->failures == FAILURES_MAX) tries->next_ns = now_ns + HOST_AGAIN_NS;
}

void host_on_reached(struct membership *m, const char *address, uint64_t now_ns)
{
    struct host_tries *tries;
    struct host host;

    if (address[0] == '\0') return;
    host_parse(address, &host);
    tries = tries_of(&m->dialler, &host);
    tries->failures = 0;
    tries->next_ns = now_ns;
    if (host.is_name) {
        m->dialler.names_ns = now_ns;
    } else {
        tries->is_met = true;
    }
}

void hosts_forgive(struct membership *m)
{
    for (uint32_t i = 0; i < TRIES_SLOTS; i++) {
        struct host_tries *tries = &m->dialler.tries[i];

        if (tries->is_met) continue;
        tries->failures = 0;
        tries->next_ns = 0;
    }
}

void membership_met_at(struct membership *m, const char *address, uint64_t now_ns)
{
    struct host host;

    host_parse(address, &host);
    if (!host.is_name) host_on_reached(m, address, now_ns);
}

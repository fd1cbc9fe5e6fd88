/* beacon: see beacon.h. */
#include "gossip/secure/beacon.h"

#include "base/check.h"

#include <sodium.h>
#include <string.h>

enum { MAGIC_BYTES = 8, PORT_AT = 8, NAME_AT = 10, START_AT = 26, MAC_AT = 42 };
enum { TAG_BYTES = START_AT - NAME_AT, MAC_BYTES = BEACON_BYTES - MAC_AT };

static const uint8_t magic[MAGIC_BYTES] = {'g', 'v', 'h', 'e', 'r', 'e', 0, 2};
static const char name_label[] = "name/1", mac_label[] = "beacon/2";

_Static_assert(TAG_BYTES >= crypto_generichash_BYTES_MIN, "a hash as short as that");
_Static_assert(START_AT + BEACON_START_BYTES == MAC_AT, "fields meet");

static void name_tag(const char *name, uint8_t tag[TAG_BYTES])
{
    crypto_generichash_state state;

    CHECK(crypto_generichash_init(&state, NULL, 0, TAG_BYTES) == 0);
    CHECK(crypto_generichash_update(&state, (const uint8_t *)name_label, sizeof name_label) == 0);
    CHECK(crypto_generichash_update(&state, (const uint8_t *)name, strlen(name)) == 0);
    CHECK(crypto_generichash_final(&state, tag, TAG_BYTES) == 0);
}

static void sign(const uint8_t *bytes, const struct swarm_secret *swarm, const char *host,
                 uint8_t mac[MAC_BYTES])
{
    crypto_generichash_state state;

    CHECK(crypto_generichash_init(&state, swarm->secret, SECRET_BYTES, MAC_BYTES) == 0);
    CHECK(crypto_generichash_update(&state, (const uint8_t *)mac_label, sizeof mac_label - 1) == 0);
    CHECK(crypto_generichash_update(&state, bytes, MAC_AT) == 0);
    CHECK(crypto_generichash_update(&state, (const uint8_t *)host, strlen(host)) == 0);
    CHECK(crypto_generichash_final(&state, mac, MAC_BYTES) == 0);
    sodium_memzero(&state, sizeof state);
}

void beacon_write(const struct beacon *beacon, const char *name, const struct swarm_secret *swarm,
                  const char *host, uint8_t bytes[BEACON_BYTES])
{
    CHECK(beacon->port != 0 && strlen(name) <= BEACON_NAME_MAX);
    memcpy(bytes, magic, MAGIC_BYTES);
    bytes[PORT_AT] = (uint8_t)(beacon->port >> 8);
    bytes[PORT_AT + 1] = (uint8_t)beacon->port;
    name_tag(name, bytes + NAME_AT);
    memcpy(bytes + START_AT, beacon->start, BEACON_START_BYTES);
    sign(bytes, swarm, host, bytes + MAC_AT);
}

enum rc beacon_read(const uint8_t *bytes, size_t count, const char *name,
                    const struct swarm_secret *swarm, const char *host, struct beacon *beacon)
{
    uint8_t tag[TAG_BYTES], mac[MAC_BYTES];
    uint16_t port;

    if (count != BEACON_BYTES || memcmp(bytes, magic, MAGIC_BYTES) != 0) return RC_FORMAT;
    port = (uint16_t)(bytes[PORT_AT] << 8 | bytes[PORT_AT + 1]);
    if (port == 0) return RC_FORMAT;
    name_tag(name, tag);
    if (memcmp(tag, bytes + NAME_AT, TAG_BYTES) != 0) return RC_MISMATCH;
    sign(bytes, swarm, host, mac);
    if (sodium_memcmp(mac, bytes + MAC_AT, MAC_BYTES) != 0) return RC_AUTH;
    beacon->port = port;
    memcpy(beacon->start, bytes + START_AT, BEACON_START_BYTES);
    return RC_OK;
}

/* Chained hashing, seeded; the table doubles as it fills. Loop thread. */
#include "gossip/membership/shelf.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

enum { SLOTS_FIRST = 64 };

struct shelf {
    struct signed_record **slots;
    size_t slots_count; /* a power of two */
    size_t count;
    uint64_t seed;
};

struct shelf *shelf_create(uint64_t seed)
{
    struct shelf *shelf = mem_alloc(sizeof *shelf);

    if (shelf == NULL) return NULL;
    shelf->seed = seed;
    shelf->slots_count = SLOTS_FIRST;
    shelf->slots = mem_array(shelf->slots_count, sizeof *shelf->slots);
    if (shelf->slots != NULL) return shelf;
    mem_free(shelf);
    return NULL;
}

void shelf_destroy(struct shelf *shelf)
{
    if (shelf == NULL) return;
    CHECK(shelf->count == 0);
    mem_free(shelf->slots);
    mem_free(shelf);
}

size_t shelf_count(const struct shelf *shelf)
{
    return shelf->count;
}

static uint64_t key_of(const struct shelf *shelf, const uint8_t *bytes, size_t count)
{
    uint64_t key = rng_mix(shelf->seed, count);
    size_t at;

    for (at = 0; at + 8 <= count; at += 8) {
        key = rng_mix(key, load_le64(bytes + at));
    }
    for (; at < count; at++) {
        key = rng_mix(key, bytes[at]);
    }
    return key;
}

static struct signed_record *find(const struct shelf *shelf, uint64_t key, const uint8_t *bytes,
                                  size_t count)
{
    struct signed_record *record = shelf->slots[key & (shelf->slots_count - 1)];

    while (record != NULL && (record->key != key || record->count != count ||
                              memcmp(record->bytes, bytes, count) != 0)) {
        record = record->next;
    }
    return record;
}

struct signed_record *shelf_find(const struct shelf *shelf, const uint8_t *bytes, size_t count)
{
    if (count == 0 || count > SIGNED_RECORD_BYTES_MAX) return NULL;
    return find(shelf, key_of(shelf, bytes, count), bytes, count);
}

/* Where there is no memory for it chains are longer for a while, that is all. */
static void grow(struct shelf *shelf)
{
    size_t slots_count = shelf->slots_count * 2;
    struct signed_record **slots = mem_array(slots_count, sizeof *slots);

    if (slots == NULL) return;
    for (size_t i = 0; i < shelf->slots_count; i++) {
        struct signed_record *record, *next;

        for (record = shelf->slots[i]; record != NULL; record = next) {
            next = record->next;
            record->next = slots[record->key & (slots_count - 1)];
            slots[record->key & (slots_count - 1)] = record;
        }
    }
    mem_free(shelf->slots);
    shelf->slots = slots;
    shelf->slots_count = slots_count;
}

static size_t address_bytes(const struct member_record *said, uint32_t index)
{
    return strnlen(said->addresses[index], ADDRESS_BYTES_MAX - 1) + 1;
}

void signed_record_fill(struct signed_record *record, const struct member_record *said,
                        const uint8_t *bytes, size_t count)
{
    struct digest digest = hash_of(bytes, count);
    size_t at = count;

    CHECK(count > 0 && count <= SIGNED_RECORD_BYTES_MAX);
    CHECK(said->addresses_count <= RECORD_ADDRESSES_MAX);
    memset(record, 0, sizeof *record);
    memcpy(record->bytes, bytes, count);
    for (uint32_t i = 0; i < said->addresses_count; i++) {
        size_t length = address_bytes(said, i);

        memcpy(record->bytes + at, said->addresses[i], length - 1);
        record->bytes[at + length - 1] = '\0';
        record->address_at[i] = (uint16_t)at;
        at += length;
    }
    record->count = (uint16_t)count;
    record->hash = load_le64(digest.bytes);
    record->id = identity_peer_id(said->public_key);
    record->brief = record_brief_of(said);
    record->references = 1;
}

static struct signed_record *record_create(const struct member_record *said, const uint8_t *bytes,
                                           size_t count)
{
    struct signed_record *record;
    size_t all = sizeof *record + count;

    for (uint32_t i = 0; i < said->addresses_count; i++) {
        all += address_bytes(said, i);
    }
    record = mem_raw(all);
    if (record != NULL) signed_record_fill(record, said, bytes, count);
    return record;
}

struct signed_record *shelf_put(struct shelf *shelf, const struct member_record *said,
                                const uint8_t *bytes, size_t count)
{
    uint64_t key = key_of(shelf, bytes, count);
    struct signed_record *record = find(shelf, key, bytes, count);

    CHECK(count > 0 && count <= SIGNED_RECORD_BYTES_MAX);
    if (record != NULL) return signed_record_ref(record);
    record = record_create(said, bytes, count);
    if (record == NULL) return NULL;
    if (shelf->count >= shelf->slots_count) grow(shelf);
    record->key = key;
    record->next = shelf->slots[key & (shelf->slots_count - 1)];
    shelf->slots[key & (shelf->slots_count - 1)] = record;
    shelf->count++;
    return record;
}

struct signed_record *signed_record_ref(struct signed_record *record)
{
    CHECK(record->references > 0 && record->references < UINT32_MAX);
    record->references++;
    return record;
}

void shelf_unref(struct shelf *shelf, struct signed_record *record)
{
    struct signed_record **at;

    if (record == NULL) return;
    CHECK(record->references > 0);
    if (--record->references > 0) return;
    at = &shelf->slots[record->key & (shelf->slots_count - 1)];
    while (*at != record) {
        CHECK(*at != NULL);
        at = &(*at)->next;
    }
    *at = record->next;
    shelf->count--;
    mem_free(record);
}

struct record_brief record_brief_of(const struct member_record *record)
{
    struct record_brief brief = {.boot = record->boot,
                                 .incarnation = record->incarnation,
                                 .nat = (enum nat_class)record->nat,
                                 .has_left = record->has_left,
                                 .is_keeper = (record->features & FEATURE_KEEPER) != 0};

    memcpy(brief.site, record->site, SITE_BYTES);
    return brief;
}

const char *signed_record_address(const struct signed_record *record, uint32_t index)
{
    CHECK(index < RECORD_ADDRESSES_MAX);
    return record->address_at[index] == 0 ? NULL
                                          : (const char *)record->bytes + record->address_at[index];
}

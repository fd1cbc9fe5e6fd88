/*
 * shelf: signed member records, each kept once however many hold it. A record on a shelf was
 * verified and read before it got there, so its next copies cost a hash and no signature. One
 * peer's shelf holds what its book does; the many peers of a simulation share one (see
 * gossip/membership/verified.h), or their books would be most of its memory. Loop thread.
 */
#ifndef GRAPEVINE_GOSSIP_MEMBERSHIP_SHELF_H
#define GRAPEVINE_GOSSIP_MEMBERSHIP_SHELF_H

#include "gossip/signed/record.h"
#include "gossip/wire/limits.h"

struct record_brief { /* what rumours are weighed by */
    struct boot_id boot;
    uint64_t incarnation;
    enum nat_class nat;
    bool has_left;  /* it is a farewell */
    bool is_keeper; /* FEATURE_KEEPER */
    char site[SITE_BYTES];
};

struct signed_record { /* never changed once it is made */
    struct signed_record *next;
    uint64_t key;  /* of the shelf's own table */
    uint64_t hash; /* the first of the bytes' BLAKE2b hash: what books are compared by */
    struct peer_id id;
    struct record_brief brief;
    uint32_t references;
    uint16_t count;                            /* bytes as signed */
    uint16_t address_at[RECORD_ADDRESSES_MAX]; /* in `bytes`, behind the record; 0: no more */
    uint8_t bytes[];
};

enum { /* of any record's bytes and addresses */
       SIGNED_RECORD_ROOM = SIGNED_RECORD_BYTES_MAX + RECORD_ADDRESSES_MAX * ADDRESS_BYTES_MAX
};

struct shelf;

/** `seed`: so that nobody can choose records that fall on one place. NULL: no memory. */
struct shelf *shelf_create(uint64_t seed);
/** All references must have been given back. */
void shelf_destroy(struct shelf *shelf);
/** The record that these very bytes are; NULL: not here. Borrowed. */
struct signed_record *shelf_find(const struct shelf *shelf, const uint8_t *bytes, size_t count);
/** A record that its subject signed (or this peer), as read from `bytes`. NULL: no memory; else the
 *  caller has a reference. */
struct signed_record *shelf_put(struct shelf *shelf, const struct member_record *record,
                                const uint8_t *bytes, size_t count);
/** Likewise into the caller's own, on no shelf, with SIGNED_RECORD_ROOM `bytes`. */
void signed_record_fill(struct signed_record *record, const struct member_record *said,
                        const uint8_t *bytes, size_t count);
struct signed_record *signed_record_ref(struct signed_record *record);
/** NULL is fine. */
void shelf_unref(struct shelf *shelf, struct signed_record *record);
/** Different records there are. */
size_t shelf_count(const struct shelf *shelf);

struct record_brief record_brief_of(const struct member_record *record);
/** Its address number `index` of RECORD_ADDRESSES_MAX; NULL: none. Borrowed from the record. */
const char *signed_record_address(const struct signed_record *record, uint32_t index);

#endif

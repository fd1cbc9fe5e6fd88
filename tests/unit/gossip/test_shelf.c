/* The shelf: each record once, for as long as somebody holds it. */
#include "tests/check.h"

#include "base/hash.h"
#include "base/mem.h"
#include "gossip/membership/shelf.h"
#include "gossip/membership/verified.h"

enum { MANY = 1000 };

/* Nobody verifies here, so any bytes do; they tell records apart. */
static size_t make(uint32_t number, struct member_record *said, uint8_t *bytes)
{
    memset(said, 0, sizeof *said);
    memset(said->public_key, 1 + (int)(number % 100), PUBLIC_KEY_BYTES);
    said->incarnation = number;
    said->nat = NAT_PUBLIC;
    said->addresses_count = number % (RECORD_ADDRESSES_MAX + 1);
    for (uint32_t i = 0; i < said->addresses_count; i++) {
        snprintf(said->addresses[i], ADDRESS_BYTES_MAX, "10.0.%u.%u:%u", number, i, 7000 + i);
    }
    memset(bytes, (int)(number % 7), SIGNED_RECORD_BYTES_MAX);
    memcpy(bytes + 9, &number, sizeof number);
    return 65 + number % (SIGNED_RECORD_BYTES_MAX - 64);
}

static struct signed_record *put(struct shelf *shelf, uint32_t number)
{
    struct member_record said;
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count = make(number, &said, bytes);

    return shelf_put(shelf, &said, bytes, count);
}

static struct signed_record *find(const struct shelf *shelf, uint32_t number)
{
    struct member_record said;
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count = make(number, &said, bytes);

    return shelf_find(shelf, bytes, count);
}

static void says_what_was_put(const struct signed_record *record, uint32_t number)
{
    struct member_record said;
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count = make(number, &said, bytes);
    struct digest hash = hash_of(bytes, count);

    assert_int_equal(record->count, count);
    assert_memory_equal(record->bytes, bytes, count);
    assert_memory_equal(&record->hash, hash.bytes, 8); /* little-endian machines run the tests */
    assert_true(peer_id_is_equal(record->id, identity_peer_id(said.public_key)));
    assert_int_equal(record->brief.incarnation, number);
    assert_int_equal(record->brief.nat, NAT_PUBLIC);
    assert_false(record->brief.has_left);
    for (uint32_t i = 0; i < RECORD_ADDRESSES_MAX; i++) {
        const char *address = signed_record_address(record, i);

        if (i < said.addresses_count) {
            assert_string_equal(address, said.addresses[i]);
        } else {
            assert_null(address);
        }
    }
}

static void equal_bytes_are_one_record(void **state)
{
    struct shelf *shelf = shelf_create(1);
    struct signed_record *first = put(shelf, 5), *again = put(shelf, 5), *other = put(shelf, 6);

    (void)state;
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    assert_int_equal(shelf_count(shelf), 2);
    shelf_unref(shelf, first);
    assert_ptr_equal(find(shelf, 5), again);
    shelf_unref(shelf, again);
    assert_null(find(shelf, 5)); /* with the last who holds it */
    assert_int_equal(shelf_count(shelf), 1);
    shelf_unref(shelf, other);
    shelf_unref(shelf, NULL);
    shelf_destroy(shelf);
    shelf_destroy(NULL);
}

/* Through several doublings, in and out in different orders. */
static void many_records_stay_what_they_are(void **state)
{
    struct shelf *shelf = shelf_create(7);
    static struct signed_record *records[MANY];

    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        records[i] = put(shelf, i);
    }
    assert_int_equal(shelf_count(shelf), MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_ptr_equal(find(shelf, i), records[i]);
        says_what_was_put(records[i], i);
    }
    for (uint32_t i = 0; i < MANY; i += 2) {
        shelf_unref(shelf, records[i]);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        assert_ptr_equal(find(shelf, i), i % 2 == 0 ? NULL : records[i]);
    }
    for (uint32_t i = 1; i < MANY; i += 2) {
        shelf_unref(shelf, records[i]);
    }
    assert_int_equal(shelf_count(shelf), 0);
    shelf_destroy(shelf);
}

/* Whatever a stranger sends may be looked for. */
static void no_record_has_such_a_length(void **state)
{
    struct shelf *shelf = shelf_create(1);
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX + 1] = {0};

    (void)state;
    assert_null(shelf_find(shelf, bytes, 0));
    assert_null(shelf_find(shelf, bytes, sizeof bytes));
    shelf_destroy(shelf);
}

static void short_memory_leaves_it_as_it_was(void **state)
{
    struct shelf *shelf;
    struct signed_record *record;

    (void)state;
    for (uint64_t after = 0; after < 2; after++) {
        mem_fail_after(after);
        assert_null(shelf_create(1));
    }
    mem_fail_after(UINT64_MAX);
    shelf = shelf_create(1);
    mem_fail_after(0);
    assert_null(put(shelf, 1));
    mem_fail_after(UINT64_MAX);
    assert_int_equal(shelf_count(shelf), 0);
    record = put(shelf, 1);
    says_what_was_put(record, 1);
    shelf_unref(shelf, record);
    shelf_destroy(shelf);
}

/* What was verified for one run says nothing in another. */
static void a_shelf_is_of_one_run(void **state)
{
    struct verified *verified = verified_create(16);
    struct digest one = {{1}}, two = {{2}};
    struct shelf *shelf = verified_shelf(verified, one);

    (void)state;
    assert_non_null(shelf);
    assert_ptr_equal(verified_shelf(verified, one), shelf);
    assert_null(verified_shelf(verified, two));
    assert_null(verified_shelf(NULL, one));
    verified_destroy(verified);
    verified_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_bytes_are_one_record),
        cmocka_unit_test(many_records_stay_what_they_are),
        cmocka_unit_test(no_record_has_such_a_length),
        cmocka_unit_test(short_memory_leaves_it_as_it_was),
        cmocka_unit_test(a_shelf_is_of_one_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

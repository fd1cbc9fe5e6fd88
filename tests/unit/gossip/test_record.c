/* Signed member records and the form of addresses. */
#include "tests/check.h"
#include "tests/signed.h"

#include "base/check.h"
#include "gossip/wire/address.h"

struct scene {
    struct identity identity;
    struct digest run_id;
    struct member_record record;
    uint8_t bytes[SIGNED_RECORD_BYTES_MAX];
    size_t count;
};

static void scene_make(struct scene *scene)
{
    uint8_t seed[SECRET_BYTES] = {9};

    memset(scene, 0, sizeof *scene);
    identity_from_seed(seed, &scene->identity);
    memset(scene->run_id.bytes, 2, DIGEST_BYTES);
    memcpy(scene->record.public_key, scene->identity.public_key, PUBLIC_KEY_BYTES);
    memset(scene->record.boot.bytes, 3, BOOT_ID_BYTES);
    scene->record.incarnation = UINT64_C(1) << 40;
    scene->record.features = 5;
    scene->record.nat = NAT_OUTBOUND;
    scene->record.has_left = true;
    snprintf(scene->record.addresses[0], sizeof scene->record.addresses[0], "%s",
             "peer.example:7077");
    snprintf(scene->record.addresses[1], sizeof scene->record.addresses[1], "%s",
             "[2001:db8::1]:7077");
    scene->record.addresses_count = 2;
}

static enum rc sign(struct scene *scene)
{
    return record_sign(&scene->record, &scene->identity, scene->run_id, scene->bytes,
                       sizeof scene->bytes, &scene->count);
}

static void strcpy_site(char site[SITE_BYTES], const char *text)
{
    memset(site, 0, SITE_BYTES);
    memcpy(site, text, strlen(text));
}

/* A site is a short word and NUL to its end, from a person as from another peer. */
static void sites_of_another_form_are_refused(void **state)
{
    static const char *const good[] = {"a", "Berlin-2", "rack_7.b", "123456789012345"};
    static const char *const wrong[] = {"",    "1234567890123456", "two words",
                                        "a/b", "\xc3\xa4",         "a\n"};
    struct scene scene;
    char site[SITE_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        assert_int_equal(site_parse(good[i], site, NULL), RC_OK);
        assert_string_equal(site, good[i]);
        assert_true(site_is_valid(site));
    }
    strcpy_site(site, "kept");
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        struct fault why = {""};

        assert_int_equal(site_parse(wrong[i], site, &why), RC_PARSE);
        assert_non_null(strstr(why.text, "--site"));
        assert_string_equal(site, "kept");
    }
    scene_make(&scene);
    memset(scene.record.site, 'a', SITE_BYTES); /* no end */
    assert_int_equal(sign(&scene), RC_FORMAT);
    strcpy_site(scene.record.site, "a");
    scene.record.site[5] = 'b'; /* something behind it */
    assert_int_equal(sign(&scene), RC_FORMAT);
    strcpy_site(scene.record.site, "a b");
    assert_int_equal(sign(&scene), RC_FORMAT);
}

/* One that was signed all the same is not read. */
static void a_signed_site_of_another_form_is_not_read(void **state)
{
    struct member_record record;
    struct scene scene;
    uint8_t *at = NULL;

    (void)state;
    scene_make(&scene);
    strcpy_site(scene.record.site, "MARK");
    assert_int_equal(sign(&scene), RC_OK);
    for (size_t i = 0; i + SITE_BYTES <= scene.count; i++) {
        if (memcmp(scene.bytes + i, "MARK", 4) == 0) at = scene.bytes + i;
    }
    assert_non_null(at);
    assert_int_equal(record_peek(scene.bytes, scene.count, &record), RC_OK);
    assert_string_equal(record.site, "MARK");
    at[1] = ' ';
    assert_int_equal(record_peek(scene.bytes, scene.count, &record), RC_FORMAT);
    at[1] = 'A';
    memset(at, 'x', SITE_BYTES);
    assert_int_equal(record_peek(scene.bytes, scene.count, &record), RC_FORMAT);
}

/* A record comes out as it went in, with no address and with four. */
static void a_record_comes_out_as_it_went_in(void **state)
{
    (void)state;
    for (uint32_t addresses = 0; addresses <= RECORD_ADDRESSES_MAX; addresses += 2) {
        struct member_record record;
        struct scene scene;

        memset(&record, 0, sizeof record);
        scene_make(&scene);
        for (uint32_t i = 0; i < RECORD_ADDRESSES_MAX; i++) {
            memset(scene.record.addresses[i], 0, ADDRESS_BYTES_MAX);
            if (i < addresses) {
                snprintf(scene.record.addresses[i], ADDRESS_BYTES_MAX, "10.0.0.%u:700%u", i, i);
            }
        }
        scene.record.addresses_count = addresses;
        if (addresses > 0) strcpy_site(scene.record.site, "Berlin.2_a-b");
        assert_int_equal(sign(&scene), RC_OK);
        assert_int_equal(record_open(scene.bytes, scene.count, scene.run_id, &record), RC_OK);
        assert_memory_equal(&record, &scene.record, sizeof record);
    }
}

/* One bit changed anywhere makes a record worthless. */
static void a_changed_bit_anywhere_is_noticed(void **state)
{
    struct member_record record;
    struct scene scene;

    (void)state;
    scene_make(&scene);
    assert_int_equal(sign(&scene), RC_OK);
    for (size_t bit = 0; bit < 8 * scene.count; bit++) {
        enum rc rc;

        scene.bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        rc = record_open(scene.bytes, scene.count, scene.run_id, &record);
        assert_true(rc == RC_AUTH || (rc == RC_FORMAT && bit / 8 >= SIGNATURE_BYTES));
        scene.bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    assert_int_equal(record_open(scene.bytes, scene.count, scene.run_id, &record), RC_OK);
}

/* A record of another run does not verify. */
static void a_record_of_another_run_is_refused(void **state)
{
    struct member_record record;
    struct scene scene;

    (void)state;
    scene_make(&scene);
    assert_int_equal(sign(&scene), RC_OK);
    scene.run_id.bytes[0] ^= 1;
    assert_int_equal(record_open(scene.bytes, scene.count, scene.run_id, &record), RC_AUTH);
}

/* A record signed with somebody else's key does not verify as ours. */
static void a_record_signed_by_another_is_refused(void **state)
{
    uint8_t seed[SECRET_BYTES] = {10};
    struct member_record record;
    struct scene scene;
    uint8_t *key;

    (void)state;
    scene_make(&scene);
    identity_from_seed(seed, &scene.identity);
    memcpy(scene.record.public_key, scene.identity.public_key, PUBLIC_KEY_BYTES);
    assert_int_equal(sign(&scene), RC_OK);
    key = memmem(scene.bytes, scene.count, scene.identity.public_key, PUBLIC_KEY_BYTES);
    assert_non_null(key);
    seed[0] = 9;
    identity_from_seed(seed, &scene.identity);
    memcpy(key, scene.identity.public_key, PUBLIC_KEY_BYTES);
    assert_int_equal(record_open(scene.bytes, scene.count, scene.run_id, &record), RC_AUTH);
}

/* Cut anywhere, too long, or with a byte more: refused, and nothing is written. */
static void cut_and_overlong_records_are_refused(void **state)
{
    uint8_t longer[SIGNED_RECORD_BYTES_MAX + 1] = {0};
    struct member_record record, untouched;
    struct scene scene;

    (void)state;
    scene_make(&scene);
    assert_int_equal(sign(&scene), RC_OK);
    memset(&record, 0xaa, sizeof record);
    untouched = record;
    memcpy(longer, scene.bytes, scene.count);
    for (size_t cut = 0; cut < scene.count; cut++) {
        assert_int_equal(record_open(scene.bytes, cut, scene.run_id, &record), RC_FORMAT);
    }
    assert_int_equal(record_open(longer, scene.count + 1, scene.run_id, &record), RC_FORMAT);
    assert_int_equal(record_open(longer, sizeof longer, scene.run_id, &record), RC_FORMAT);
    assert_memory_equal(&record, &untouched, sizeof record);
}

/* Unknown keys may fill a record up to its length and no further; what is longer is not looked at,
 * by those that read nor by who verifies. */
static void a_record_is_limited_in_length(void **state)
{
    uint8_t longer[SIGNED_RECORD_BYTES_MAX + 80] = {0};
    struct member_record record;
    struct scene scene;

    (void)state;
    scene_make(&scene);
    assert_int_equal(sign(&scene), RC_OK);
    for (size_t total = SIGNED_RECORD_BYTES_MAX; total <= SIGNED_RECORD_BYTES_MAX + 1; total++) {
        size_t extra = total - scene.count - 3;

        memset(longer, 0, sizeof longer);
        memcpy(longer, scene.bytes, scene.count);
        longer[SIGNATURE_BYTES]++; /* one pair more: key 63, a bin of zeros */
        longer[scene.count] = 0x3f;
        longer[scene.count + 1] = 0xc4;
        longer[scene.count + 2] = (uint8_t)extra;
        assert_int_equal(record_peek(longer, total, &record),
                         total == SIGNED_RECORD_BYTES_MAX ? RC_OK : RC_FORMAT);
        assert_int_equal(record_verify(longer, total, scene.run_id, scene.record.public_key),
                         total == SIGNED_RECORD_BYTES_MAX ? RC_AUTH : RC_FORMAT);
    }
    assert_int_equal(record_verify(longer, sizeof longer, scene.run_id, scene.record.public_key),
                     RC_FORMAT);
}

/* Four addresses of full length do not fit in a record, and a small buffer is an error. */
static void what_does_not_fit_is_an_error(void **state)
{
    struct scene scene;
    size_t needed;

    (void)state;
    scene_make(&scene);
    assert_int_equal(sign(&scene), RC_OK);
    needed = scene.count;
    for (size_t cap = 0; cap < needed; cap++) {
        assert_int_equal(record_sign(&scene.record, &scene.identity, scene.run_id, scene.bytes, cap,
                                     &scene.count),
                         RC_LIMIT);
    }
    for (uint32_t i = 0; i < RECORD_ADDRESSES_MAX; i++) {
        memset(scene.record.addresses[i], 'a', ADDRESS_BYTES_MAX - 3);
        memcpy(scene.record.addresses[i] + ADDRESS_BYTES_MAX - 3, ":1", 3);
    }
    scene.record.addresses_count = RECORD_ADDRESSES_MAX;
    assert_int_equal(sign(&scene), RC_LIMIT);
}

/* A record with an address that is none is neither signed nor, signed by a liar, taken. */
static void a_record_with_a_bad_address_is_refused(void **state)
{
    struct member_record record;
    struct scene scene;
    uint8_t *at;

    (void)state;
    scene_make(&scene);
    snprintf(scene.record.addresses[1], sizeof scene.record.addresses[1], "%s", "no port");
    assert_int_equal(sign(&scene), RC_FORMAT);
    scene_make(&scene);
    assert_int_equal(sign(&scene), RC_OK);
    at = memmem(scene.bytes, scene.count, "peer.example", 12);
    assert_non_null(at);
    at[4] = ' ';
    identity_sign(&scene.identity, "record/1", scene.run_id, scene.bytes + SIGNATURE_BYTES,
                  scene.count - SIGNATURE_BYTES, scene.bytes);
    assert_int_equal(record_open(scene.bytes, scene.count, scene.run_id, &record), RC_FORMAT);
    at[4] = '-';
    identity_sign(&scene.identity, "record/1", scene.run_id, scene.bytes + SIGNATURE_BYTES,
                  scene.count - SIGNATURE_BYTES, scene.bytes);
    assert_int_equal(record_open(scene.bytes, scene.count, scene.run_id, &record), RC_OK);
}

/* Addresses that can be dialled have the form, and whatever else people and liars write does not.
 */
static void addresses_have_one_form(void **state)
{
    static const char *const good[] = {
        "a:1",     "127.0.0.1:7077",     "peer.example:65535",   "my_host-2:80",
        "[::1]:1", "[2001:db8::1]:7077", "[::ffff:192.0.2.1]:5", "[fe80::1%eth0]:9"};
    static const char *const bad[] = {
        "",
        ":",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:99999",
        "a:123456",
        "a:01",
        "a:1 ",
        " a:1",
        "a b:1",
        "a:1:2",
        "::1:80",
        "[::1]",
        "[::1]:",
        "[::1]1",
        "[]:1",
        "[12]:1",
        "[::1%]:1",
        "[::g]:1",
        "a;b:1",
        "a$b:1",
        "-a:1",
        "a\n:1",
        "a/b:1",
        "\xc3\xa4:1",
        "a:-1",
        "a:+1",
        "0123456789012345678901234567890123456789012345678901234567890123:1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        assert_true(address_is_valid(good[i]));
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_false(address_is_valid(bad[i]));
    }
}

/* Which number a host is, however it is written, and which mean this machine. A name never does,
 * whatever it begins with. */
static void hosts_in_digits_are_numbers(void **state)
{
    static const struct {
        const char *address;
        size_t count;
        bool is_loopback;
    } examples[] = {
        {"127.0.0.1:1", 4, true},
        {"127.255.3.4:1", 4, true},
        {"[::1]:1", 16, true},
        {"[0:0:0::1]:1", 16, true},
        {"[::1%lo]:1", 16, true},
        {"[::ffff:127.0.0.1]:1", 4, true},
        {"10.0.0.1:1", 4, false},
        {"[::2]:1", 16, false},
        {"[::ffff:10.0.0.1]:1", 4, false},
        {"127.0.0.1.evil.example:1", 0, false},
        {"127.evil.example:1", 0, false},
        {"127.1:1", 0, false},
        {"localhost:1", 0, false},
        {"2130706433:1", 0, false},
        {"[::1", 0, false},
        {"127.0.0.1", 0, false},
        {"", 0, false},
        {"sim:127", 0, false},
    };
    uint8_t number[HOST_NUMBER_BYTES_MAX], other[HOST_NUMBER_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(examples); i++) {
        assert_int_equal(address_host_number(examples[i].address, number), examples[i].count);
        assert_int_equal(address_is_loopback(examples[i].address), examples[i].is_loopback);
    }
    assert_int_equal(address_host_number("192.0.2.7:1", number), 4);
    assert_int_equal(address_host_number("[::FFFF:c000:207]:9", other), 4);
    assert_memory_equal(number, other, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_in_digits_are_numbers),
        cmocka_unit_test(a_record_comes_out_as_it_went_in),
        cmocka_unit_test(a_changed_bit_anywhere_is_noticed),
        cmocka_unit_test(a_record_of_another_run_is_refused),
        cmocka_unit_test(a_record_signed_by_another_is_refused),
        cmocka_unit_test(sites_of_another_form_are_refused),
        cmocka_unit_test(a_signed_site_of_another_form_is_not_read),
        cmocka_unit_test(cut_and_overlong_records_are_refused),
        cmocka_unit_test(a_record_is_limited_in_length),
        cmocka_unit_test(what_does_not_fit_is_an_error),
        cmocka_unit_test(a_record_with_a_bad_address_is_refused),
        cmocka_unit_test(addresses_have_one_form),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The handshake payload: what it carries, whom it binds, what is refused. */
#include "tests/check.h"
#include "tests/signed.h"

#include "base/check.h"
#include "base/rng.h"

struct scene {
    struct identity identity;
    struct digest run_id;
    uint8_t key[PUBLIC_KEY_BYTES];
    struct hello hello;
    uint8_t bytes[HELLO_BYTES_MAX];
    size_t count;
};

static void scene_make(struct scene *scene)
{
    uint8_t seed[SECRET_BYTES] = {1};

    memset(scene, 0, sizeof *scene);
    identity_from_seed(seed, &scene->identity);
    memset(scene->run_id.bytes, 2, DIGEST_BYTES);
    memset(scene->key, 3, sizeof scene->key);
    memcpy(scene->hello.public_key, scene->identity.public_key, PUBLIC_KEY_BYTES);
    memset(scene->hello.boot.bytes, 4, BOOT_ID_BYTES);
    scene->hello.incarnation = 5;
    scene->hello.features = 6;
    scene->hello.suites = SUITE_CHACHA20POLY1305 | SUITE_AES256GCM;
    scene->hello.role = HELLO_PEER;
    scene->hello.listen_port = 7077;
    scene->hello.dialback = 8;
    snprintf(scene->hello.observed, sizeof scene->hello.observed, "%s", "192.0.2.1:50000");
    memset(scene->hello.schema.bytes, 7, DIGEST_BYTES);
    snprintf(scene->hello.spec, sizeof scene->hello.spec, "%s", "conv3x3:32 relu linear:10");
}

static enum rc encode(struct scene *scene)
{
    return hello_encode(&scene->hello, &scene->identity, scene->run_id, scene->key, scene->bytes,
                        sizeof scene->bytes, &scene->count);
}

static enum rc decode(const struct scene *scene, struct hello *hello)
{
    return hello_decode(scene->bytes, scene->count, scene->run_id, scene->key, hello);
}

/* A hello comes out as it went in. */
static void a_hello_comes_out_as_it_went_in(void **state)
{
    struct scene scene;
    struct hello hello;

    (void)state;
    memset(&hello, 0, sizeof hello);
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    assert_int_equal(decode(&scene, &hello), RC_OK);
    assert_memory_equal(&hello, &scene.hello, sizeof hello);
}

/* The largest hello there can be fits in a handshake message. */
static void the_largest_hello_fits(void **state)
{
    struct scene scene;
    struct hello hello;

    (void)state;
    scene_make(&scene);
    scene.hello.incarnation = UINT64_MAX;
    scene.hello.features = scene.hello.suites = UINT32_MAX;
    scene.hello.role = HELLO_OBSERVER;
    scene.hello.listen_port = UINT16_MAX;
    memset(scene.hello.spec, 'x', HELLO_SPEC_MAX - 1);
    memset(scene.hello.method, 'y', HELLO_METHOD_MAX - 1);
    memset(scene.hello.observed, 'h', ADDRESS_BYTES_MAX - 1);
    memcpy(scene.hello.observed + ADDRESS_BYTES_MAX - 7, ":65535", 7);
    scene.hello.certificate_bytes = CERTIFICATE_BYTES_MAX;
    memset(scene.hello.certificate, 0xc3, CERTIFICATE_BYTES_MAX);
    assert_int_equal(encode(&scene), RC_OK);
    assert_int_equal(decode(&scene, &hello), RC_OK);
    assert_string_equal(hello.observed, scene.hello.observed);
    assert_int_equal(hello.certificate_bytes, CERTIFICATE_BYTES_MAX);
    assert_memory_equal(hello.certificate, scene.hello.certificate, CERTIFICATE_BYTES_MAX);
}

/* Too little room is an error for every room too little. */
static void a_buffer_that_is_short_is_an_error(void **state)
{
    struct scene scene;
    size_t count = 0;

    (void)state;
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    for (size_t cap = 0; cap < scene.count; cap++) {
        assert_int_equal(hello_encode(&scene.hello, &scene.identity, scene.run_id, scene.key,
                                      scene.bytes, cap, &count),
                         RC_LIMIT);
    }
}

/* The signature ties the identity to this static key, this run and this boot id. */
static void a_hello_of_another_key_run_or_boot_is_refused(void **state)
{
    struct scene scene, other;
    struct hello hello;

    (void)state;
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    other = scene;
    other.key[0] ^= 1;
    assert_int_equal(decode(&other, &hello), RC_AUTH);
    other = scene;
    other.run_id.bytes[31] ^= 1;
    assert_int_equal(decode(&other, &hello), RC_AUTH);
    other = scene;
    for (size_t i = 0; i + BOOT_ID_BYTES <= other.count; i++) {
        if (memcmp(other.bytes + i, scene.hello.boot.bytes, BOOT_ID_BYTES) == 0) {
            other.bytes[i] ^= 1;
            break;
        }
    }
    assert_int_equal(decode(&other, &hello), RC_AUTH);
}

/* Cut anywhere, or with a byte more, a hello is refused and nothing is written. */
static void a_cut_or_longer_hello_is_refused(void **state)
{
    struct scene scene;
    struct hello hello, untouched;

    (void)state;
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    memset(&hello, 0xaa, sizeof hello);
    untouched = hello;
    for (size_t cut = 0; cut < scene.count; cut++) {
        assert_int_equal(hello_decode(scene.bytes, cut, scene.run_id, scene.key, &hello),
                         RC_FORMAT);
    }
    assert_int_equal(hello_decode(scene.bytes, scene.count + 1, scene.run_id, scene.key, &hello),
                     RC_FORMAT);
    assert_int_equal(
        hello_decode(scene.bytes, HELLO_BYTES_MAX + 1, scene.run_id, scene.key, &hello), RC_FORMAT);
    assert_memory_equal(&hello, &untouched, sizeof hello);
}

/* Where `needle` stands in the encoded hello. */
static uint8_t *find(struct scene *scene, const void *needle, size_t count)
{
    uint8_t *at = memmem(scene->bytes, scene->count, needle, count);

    assert_non_null(at);
    return at;
}

/* A role nobody knows, an address that is none and text that does not print are refused. */
static void values_out_of_range_are_refused(void **state)
{
    struct scene scene;
    struct hello hello;

    (void)state;
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    find(&scene, "linear:10\x0c", 10)[10] = HELLO_OBSERVER + 1; /* key 12, after the spec */
    assert_int_equal(decode(&scene, &hello), RC_FORMAT);
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    *find(&scene, "192.0.2.1:50000", 15) = ' ';
    assert_int_equal(decode(&scene, &hello), RC_FORMAT);
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    *find(&scene, "conv3x3", 7) = 0x1b;
    assert_int_equal(decode(&scene, &hello), RC_FORMAT);
}

/* An address we saw in a form we do not repeat is left out; text that does not print becomes '?'.
 */
static void what_must_not_travel_is_cleaned(void **state)
{
    struct scene scene;
    struct hello hello;

    (void)state;
    scene_make(&scene);
    snprintf(scene.hello.observed, sizeof scene.hello.observed, "%s", "somewhere");
    snprintf(scene.hello.spec, sizeof scene.hello.spec, "%s", "a\nb");
    assert_int_equal(encode(&scene), RC_OK);
    assert_int_equal(decode(&scene, &hello), RC_OK);
    assert_string_equal(hello.observed, "");
    assert_string_equal(hello.spec, "a?b");
}

/* One changed bit is noticed or changes only what the signature leaves to Noise. */
static void changed_bits_never_change_who_is_meant(void **state)
{
    struct scene scene;
    size_t accepted = 0;

    (void)state;
    scene_make(&scene);
    assert_int_equal(encode(&scene), RC_OK);
    for (size_t bit = 0; bit < 8 * scene.count; bit++) {
        struct hello hello;

        scene.bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        if (decode(&scene, &hello) == RC_OK) {
            accepted++;
            assert_memory_equal(hello.public_key, scene.hello.public_key, PUBLIC_KEY_BYTES);
            assert_memory_equal(&hello.boot, &scene.hello.boot, sizeof hello.boot);
        }
        scene.bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    assert_true(accepted < 8 * scene.count / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_comes_out_as_it_went_in),
        cmocka_unit_test(the_largest_hello_fits),
        cmocka_unit_test(a_buffer_that_is_short_is_an_error),
        cmocka_unit_test(a_hello_of_another_key_run_or_boot_is_refused),
        cmocka_unit_test(a_cut_or_longer_hello_is_refused),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(what_must_not_travel_is_cleaned),
        cmocka_unit_test(changed_bits_never_change_who_is_meant),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

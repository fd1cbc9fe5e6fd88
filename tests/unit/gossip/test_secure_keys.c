/* Identities, signatures, swarm secrets and the two key files. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"

static const uint8_t swarm_key[SECRET_BYTES] = "thirty-two bytes shared by all..";

/* What is signed under one label, or for one run, is not signed under another, nor with a moved
 * border. */
static void signatures_do_not_cross_labels(void **state)
{
    uint8_t seed[SECRET_BYTES] = {5}, signature[SIGNATURE_BYTES], long_text[SIGNED_BYTES_MAX] = {0};
    const struct digest run = {{1}}, other = {{2}};
    struct identity identity;

    (void)state;
    identity_from_seed(seed, &identity);
    identity_sign(&identity, "one", run, "bytes", 5, signature);
    assert_true(identity_verify(identity.public_key, "one", run, "bytes", 5, signature));
    assert_false(identity_verify(identity.public_key, "two", run, "bytes", 5, signature));
    assert_false(identity_verify(identity.public_key, "one", other, "bytes", 5, signature));
    assert_false(identity_verify(identity.public_key, "oneb", run, "ytes", 4, signature));
    assert_false(identity_verify(identity.public_key, "one", run, "bytes", 4, signature));
    assert_false(
        identity_verify(identity.public_key, "one", run, long_text, sizeof long_text, signature));
    signature[0] ^= 1;
    assert_false(identity_verify(identity.public_key, "one", run, "bytes", 5, signature));
    mem_wipe(&identity, sizeof identity);
    for (size_t i = 0; i < SIGN_SECRET_BYTES; i++) {
        assert_int_equal(identity.secret_key[i], 0);
    }
}

/* What the key file writes it reads, with one line end of either kind or none. */
static void key_files_are_read_as_they_are_written(void **state)
{
    uint8_t seed[SECRET_BYTES], key[SECRET_BYTES];
    struct identity made, read;
    char text[KEY_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        seed[i] = (uint8_t)(i * 11);
    }
    identity_from_seed(seed, &made);
    identity_format(seed, text, sizeof text);
    assert_int_equal(strlen(text), 20 + 1 + 64 + 1);
    assert_int_equal(identity_parse(text, strlen(text), &read, NULL), RC_OK);
    assert_memory_equal(&made, &read, sizeof made);
    assert_int_equal(identity_parse(text, strlen(text) - 1, &read, NULL), RC_OK);
    memcpy(text + strlen(text) - 1, "\r\n", 3);
    assert_int_equal(identity_parse(text, strlen(text), &read, NULL), RC_OK);
    swarm_key_format(seed, text, sizeof text);
    assert_int_equal(swarm_key_parse(text, strlen(text), key, NULL), RC_OK);
    assert_memory_equal(key, seed, sizeof key);
}

/* A key file with anything else in it is refused, with a reason that holds none of the key. */
static void damaged_key_files_are_refused_with_a_reason(void **state)
{
    static const char *const texts[] = {
        "",
        "\n",
        "hello",
        "grapevine-identity-1",
        "grapevine-identity-1 ",
        "grapevine-identity-2 0011223344556677001122334455667700112233445566770011223344556677",
        "grapevine-swarm-key-1 0011223344556677001122334455667700112233445566770011223344556677",
        "grapevine-identity-1 001122334455667700112233445566770011223344556677001122334455667",
        "grapevine-identity-1 00112233445566770011223344556677001122334455667700112233445566771",
        "grapevine-identity-1 0011223344556677001122334455667700112233445566770011223344556677 ",
        "grapevine-identity-1 0011223344556677001122334455667700112233445566770011223344556677\n\n",
        "grapevine-identity-1  01122334455667700112233445566770011223344556677001122334455667",
        "grapevine-identity-1 0x11223344556677001122334455667700112233445566770011223344556677",
        " grapevine-identity-1 0011223344556677001122334455667700112233445566770011223344556677",
    };
    struct identity identity;
    uint8_t key[SECRET_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct fault why = {""};

        assert_int_equal(identity_parse(texts[i], strlen(texts[i]), &identity, &why), RC_PARSE);
        assert_non_null(strstr(why.text, "identity file"));
        assert_null(strstr(why.text, "112233"));
        assert_null(strchr(why.text, '\n'));
        if (i != 6)
            assert_int_equal(swarm_key_parse(texts[i], strlen(texts[i]), key, &why), RC_PARSE);
    }
}

/* A swarm is its name and key; without a key the name alone decides, and says that it is public. */
static void swarms_are_told_apart_by_name_and_key(void **state)
{
    struct swarm_secret a, b, open_a, open_b;

    (void)state;
    swarm_secret_derive("a", swarm_key, &a);
    swarm_secret_derive("b", swarm_key, &b);
    swarm_secret_derive("a", NULL, &open_a);
    swarm_secret_derive("b", NULL, &open_b);
    assert_false(digest_is_equal(a.run_id, b.run_id));
    assert_true(digest_is_equal(a.run_id, open_a.run_id));
    assert_memory_equal(a.secret, swarm_key, SECRET_BYTES);
    assert_memory_not_equal(open_a.secret, open_b.secret, SECRET_BYTES);
    assert_memory_not_equal(open_a.secret, open_a.run_id.bytes, SECRET_BYTES);
    assert_true(open_a.is_public && !a.is_public);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_do_not_cross_labels),
        cmocka_unit_test(key_files_are_read_as_they_are_written),
        cmocka_unit_test(damaged_key_files_are_refused_with_a_reason),
        cmocka_unit_test(swarms_are_told_apart_by_name_and_key),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

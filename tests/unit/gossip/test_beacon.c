/* beacon: the bytes are those of its description, and nothing else passes. */
#include "tests/check.h"

#include "base/check.h"
#include "base/rng.h"
#include "gossip/secure/beacon.h"

#include <string.h>

static const struct beacon ours = {
    .port = 7077, .start = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

static const char here[] = "192.0.2.7";

static struct swarm_secret secret_of(const char *name, uint8_t key_byte)
{
    uint8_t key[SECRET_BYTES];
    struct swarm_secret secret;

    memset(key, key_byte, sizeof key);
    swarm_secret_derive(name, key_byte == 0 ? NULL : key, &secret);
    return secret;
}

static void a_beacon_has_these_bytes(void **state)
{
    /* Proves: a golden vector, made by Python's hashlib: blake2b(b"name/1\0ward", digest_size=16),
     * blake2b(b"beacon/2" + the 42 bytes before + b"192.0.2.7", key=the swarm's secret,
     * digest_size=32); and it is read back. */
    (void)state;
    static const char golden[] =
        "67766865726500021ba5e7fc532533ba1f5d702f8e21530e8d050102030405060708090a0b0c0d0e0f100b7743"
        "146b96c2a34a21fe13cf7386495146d2854da8e0d2ee04765e28aa9241";
    const struct swarm_secret secret = {.secret = {7}};
    uint8_t bytes[BEACON_BYTES];
    char text[2 * BEACON_BYTES + 1];
    struct beacon read = {0};

    beacon_write(&ours, "ward", &secret, here, bytes);
    for (size_t i = 0; i < BEACON_BYTES; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    assert_string_equal(text, golden);
    assert_int_equal(beacon_read(bytes, sizeof bytes, "ward", &secret, here, &read), RC_OK);
    assert_int_equal(read.port, 7077);
    assert_memory_equal(read.start, ours.start, sizeof read.start);
}

static void names_keys_and_swarms_are_told_apart(void **state)
{
    /* Proves: another name is RC_MISMATCH; the same name with another key, none, or another name of
     * the swarm RC_AUTH; nothing is written then. */
    (void)state;
    const struct swarm_secret secret = secret_of("s", 1);
    const struct swarm_secret others[] = {secret_of("s", 2), secret_of("s", 0), secret_of("t", 0)};
    uint8_t bytes[BEACON_BYTES];
    struct beacon read = {0};

    beacon_write(&ours, "ward", &secret, here, bytes);
    assert_int_equal(beacon_read(bytes, sizeof bytes, "war", &secret, here, &read), RC_MISMATCH);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        assert_int_equal(beacon_read(bytes, sizeof bytes, "ward", &others[i], here, &read),
                         RC_AUTH);
    }
    assert_int_equal(read.port, 0);
}

static void one_sent_again_from_elsewhere_is_refused(void **state)
{
    /* Proves: the host is under the MAC, all of it and no more. */
    (void)state;
    static const char *const others[] = {"192.0.2.8", "192.0.2.70", "192.0.2.", ""};
    const struct swarm_secret secret = secret_of("s", 1);
    uint8_t bytes[BEACON_BYTES];
    struct beacon read = {0};

    beacon_write(&ours, "ward", &secret, here, bytes);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        assert_int_equal(beacon_read(bytes, sizeof bytes, "ward", &secret, others[i], &read),
                         RC_AUTH);
    }
    assert_int_equal(read.port, 0);
}

static void nothing_else_passes(void **state)
{
    /* Proves: any other length, and any bit turned, is refused; so are random bytes. */
    (void)state;
    const struct swarm_secret secret = secret_of("s", 1);
    uint8_t bytes[BEACON_BYTES + 1] = {0};
    struct beacon read = {0};
    struct rng rng;

    beacon_write(&ours, "ward", &secret, here, bytes);
    for (size_t count = 0; count <= sizeof bytes; count++) {
        if (count == BEACON_BYTES) continue;
        assert_int_equal(beacon_read(bytes, count, "ward", &secret, here, &read), RC_FORMAT);
    }
    for (size_t bit = 0; bit < 8 * (size_t)BEACON_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(beacon_read(bytes, BEACON_BYTES, "ward", &secret, here, &read), RC_OK);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    rng_init(&rng, 1, 1);
    for (int i = 0; i < 1000; i++) {
        for (size_t k = 8; k < BEACON_BYTES; k++) {
            bytes[k] = (uint8_t)rng_u64(&rng);
        }
        assert_int_not_equal(beacon_read(bytes, BEACON_BYTES, "ward", &secret, here, &read), RC_OK);
    }
    assert_int_equal(read.port, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beacon_has_these_bytes),
        cmocka_unit_test(names_keys_and_swarms_are_told_apart),
        cmocka_unit_test(one_sent_again_from_elsewhere_is_refused),
        cmocka_unit_test(nothing_else_passes),
    };

    return secure_start() == RC_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}

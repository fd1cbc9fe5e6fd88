/*
 * The handshake against the published cacophony vector for Noise_XXpsk3_25519_ChaChaPoly_SHA512
 * (facts, typed in): three handshake messages, the handshake hash, three transport messages.
 */
#include "tests/check.h"

#include "gossip/secure/noise.h"
#include "gossip/secure/secure.h"

#include <sodium.h>

static const char prologue_hex[] = "4a6f686e2047616c74";
static const char psk_hex[] = "54686973206973206d7920417573747269616e20706572737065637469766521";
static const char initiator_static_hex[] =
    "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1";
static const char initiator_ephemeral_hex[] =
    "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
static const char responder_static_hex[] =
    "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893";
static const char responder_ephemeral_hex[] =
    "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";
static const char hash_hex[] = "7c3c9f1c6bf6df12019313e7e5ed88a9fd9fbd3bf9b9a3f41989446da5226a12"
                               "8b5e91171ec81074de864386ac70fa712f216a96e64862ad992e766b038cb8cf";

static const struct {
    const char *payload, *sealed;
} messages[] = {
    {"4c756477696720766f6e204d69736573",
     "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944634d3d6eb7eb4f1d66fb1c92cb37"
     "1889048a7a4307def12417b49d58fd070ecd"},
    {"4d757272617920526f746862617264",
     "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d5a5a3aa181cbf0410add27aa660"
     "4ad56aedc4ffd73d2cca8d98300a17a21efe9cafb1166e854bbb3f1fef6bfb183d37940f87b581a7065c58543d00"
     "1575ef79bb1b8c1b646d068fa4519568a0a507"},
    {"462e20412e20486179656b",
     "27c8ea0ffea3c27d7553e0ef8d6ea8c55ef33327b36043dd2e9bbf13f0472b6bb10cd95b5ef4ad4606eff0ccc25a"
     "6f87bc92c403eeda28f6bba95c86d2b9c5e7083a94b9ad3c743b26d124"},
    {"4361726c204d656e676572", "f63969a0b8d38b5a066ddf598e87d4ad59fb01e32c0e1faeee3f8d"},
    {"4a65616e2d426170746973746520536179",
     "b9e0a25348481baa0c7325a0bdbd0dc93612e352c2e79307a9aac47120d8c36277"},
    {"457567656e2042f6686d20766f6e2042617765726b",
     "32dd9c9bc3276c1e3eafaf4bd6bd1dcb75992d776ce5b731c3b3a0342c6f88322301fd5fbb"},
};

static size_t unhex(const char *hex, uint8_t *bytes, size_t cap)
{
    size_t count = 0;

    assert_int_equal(sodium_hex2bin(bytes, cap, hex, strlen(hex), NULL, &count, NULL), 0);
    return count;
}

static void make(struct noise *noise, bool is_initiator)
{
    uint8_t prologue[16], psk[32], key[32], ephemeral[32];
    size_t prologue_bytes = unhex(prologue_hex, prologue, sizeof prologue);

    unhex(psk_hex, psk, sizeof psk);
    unhex(is_initiator ? initiator_static_hex : responder_static_hex, key, sizeof key);
    unhex(is_initiator ? initiator_ephemeral_hex : responder_ephemeral_hex, ephemeral,
          sizeof ephemeral);
    noise_init(noise, &(struct noise_options){.is_initiator = is_initiator,
                                              .prologue = prologue,
                                              .prologue_bytes = prologue_bytes,
                                              .psk = psk,
                                              .static_secret = key,
                                              .ephemeral_secret = ephemeral});
}

/* One handshake message through both sides; it must be the published one. */
static void pass(struct noise *from, struct noise *to, size_t i)
{
    uint8_t payload[64], expected[256], sent[256], got[64];
    size_t payload_bytes = unhex(messages[i].payload, payload, sizeof payload);
    size_t expected_bytes = unhex(messages[i].sealed, expected, sizeof expected);
    size_t sent_bytes = 0, got_bytes = 0;

    assert_int_equal(noise_write(from, payload, payload_bytes, sent, sizeof sent, &sent_bytes),
                     RC_OK);
    assert_int_equal(sent_bytes, expected_bytes);
    assert_memory_equal(sent, expected, expected_bytes);
    assert_int_equal(noise_read(to, sent, sent_bytes, got, sizeof got, &got_bytes), RC_OK);
    assert_int_equal(got_bytes, payload_bytes);
    assert_memory_equal(got, payload, payload_bytes);
}

/* Every byte of the published vector comes out, and both sides end with the same hash and keys. */
static void the_published_vector_is_reproduced(void **state)
{
    struct noise initiator, responder;
    uint8_t hash[64], keys[3][32], same[3][32];

    (void)state;
    make(&initiator, true);
    make(&responder, false);
    pass(&initiator, &responder, 0);
    pass(&responder, &initiator, 1);
    assert_false(noise_is_done(&initiator));
    pass(&initiator, &responder, 2);
    assert_true(noise_is_done(&initiator) && noise_is_done(&responder));
    assert_int_equal(unhex(hash_hex, hash, sizeof hash), sizeof hash);
    assert_memory_equal(initiator.hash, hash, sizeof hash);
    assert_memory_equal(responder.hash, hash, sizeof hash);

    noise_split(&initiator, keys[0], keys[1], keys[2]);
    noise_split(&responder, same[0], same[1], same[2]);
    assert_memory_equal(keys, same, sizeof keys);
    for (size_t i = 3; i < 6; i++) { /* transport: responder's first, then in turn */
        uint8_t payload[64], expected[128], sealed[128], nonce[12] = {0};
        size_t payload_bytes = unhex(messages[i].payload, payload, sizeof payload);
        size_t expected_bytes = unhex(messages[i].sealed, expected, sizeof expected);

        nonce[4] = i == 5 ? 1 : 0;
        crypto_aead_chacha20poly1305_ietf_encrypt(sealed, NULL, payload, payload_bytes, NULL, 0,
                                                  NULL, nonce, i == 4 ? keys[0] : keys[1]);
        assert_int_equal(expected_bytes, payload_bytes + 16);
        assert_memory_equal(sealed, expected, expected_bytes);
    }
    noise_deinit(&initiator);
    noise_deinit(&responder);
}

/* A message that is too short for its fixed parts, or whose payload has no room, is refused. */
static void short_messages_and_short_buffers_are_refused(void **state)
{
    struct noise initiator, responder;
    uint8_t sent[256], got[64];
    size_t sent_bytes = 0, got_bytes = 0;

    (void)state;
    make(&initiator, true);
    assert_int_equal(noise_write(&initiator, NULL, 0, sent, NOISE_OVERHEAD_1 - 1, &sent_bytes),
                     RC_LIMIT);
    make(&initiator, true);
    assert_int_equal(noise_write(&initiator, sent, 2, sent, NOISE_OVERHEAD_1 + 1, &sent_bytes),
                     RC_LIMIT);
    for (size_t cut = 0; cut < NOISE_OVERHEAD_1; cut++) {
        make(&responder, false);
        assert_int_equal(noise_read(&responder, sent, cut, got, sizeof got, &got_bytes), RC_FORMAT);
        assert_false(noise_is_done(&responder));
    }
    make(&initiator, true);
    make(&responder, false);
    memset(got, 7, sizeof got);
    assert_int_equal(noise_write(&initiator, got, 5, sent, sizeof sent, &sent_bytes), RC_OK);
    assert_int_equal(noise_read(&responder, sent, sent_bytes, got, 4, &got_bytes), RC_LIMIT);
    noise_deinit(&initiator);
}

/* Points of low order, which would make the shared secret known to all, are refused on both sides.
 */
static void points_of_low_order_are_refused(void **state)
{
    static const char *const points[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };

    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        struct noise initiator, responder, liar;
        uint8_t sent[256], got[64], zero[sizeof responder] = {0};
        size_t sent_bytes = 0, got_bytes = 0;

        make(&liar, true);
        make(&responder, false);
        unhex(points[i], liar.own_ephemeral.public_key, 32);
        assert_int_equal(noise_write(&liar, NULL, 0, sent, sizeof sent, &sent_bytes), RC_OK);
        assert_int_equal(noise_read(&responder, sent, sent_bytes, got, sizeof got, &got_bytes),
                         RC_OK);
        assert_int_equal(noise_write(&responder, NULL, 0, sent, sizeof sent, &sent_bytes), RC_AUTH);
        responder.is_failed = false; /* the only thing a wiped state still says */
        assert_memory_equal(&responder, zero, sizeof zero);

        make(&initiator, true);
        make(&liar, false);
        assert_int_equal(noise_write(&initiator, NULL, 0, sent, sizeof sent, &sent_bytes), RC_OK);
        assert_int_equal(noise_read(&liar, sent, sent_bytes, got, sizeof got, &got_bytes), RC_OK);
        unhex(points[i], liar.own_ephemeral.public_key, 32);
        assert_int_equal(noise_write(&liar, NULL, 0, sent, sizeof sent, &sent_bytes), RC_OK);
        assert_int_equal(noise_read(&initiator, sent, sent_bytes, got, sizeof got, &got_bytes),
                         RC_AUTH);
        noise_deinit(&liar);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vector_is_reproduced),
        cmocka_unit_test(short_messages_and_short_buffers_are_refused),
        cmocka_unit_test(points_of_low_order_are_refused),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

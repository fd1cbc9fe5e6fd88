/* Digests: the published function, in pieces, and as text. */
#include "tests/check.h"

#include "base/hash_wide.h"

/* BLAKE2b-256 of nothing and of "abc" are the known values. */
static void hash_is_blake2b_256(void **state)
{
    char text[DIGEST_TEXT];

    (void)state;
    digest_format(hash_of("", 0), text);
    assert_string_equal(text, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
    digest_format(hash_of("abc", 3), text);
    assert_string_equal(text, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

/* However a text is cut into updates, its digest is the same. */
static void pieces_hash_like_the_whole(void **state)
{
    uint8_t bytes[1000];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7);
    }
    for (size_t step = 1; step < sizeof bytes; step += 61) {
        struct hash hash;

        hash_init(&hash);
        for (size_t at = 0; at < sizeof bytes; at += step) {
            hash_update(&hash, bytes + at, sizeof bytes - at < step ? sizeof bytes - at : step);
        }
        hash_update(&hash, NULL, 0);
        assert_true(digest_is_equal(hash_final(&hash), hash_of(bytes, sizeof bytes)));
    }
}

/* A digest survives text, in either case of letters. */
static void text_reads_back(void **state)
{
    struct digest digest = hash_of("x", 1), read;
    char text[DIGEST_TEXT];

    (void)state;
    digest_format(digest, text);
    assert_true(digest_parse(text, &read));
    assert_true(digest_is_equal(digest, read));
    for (char *c = text; *c != '\0'; c++) {
        if (*c >= 'a') *c = (char)(*c - 'a' + 'A');
    }
    assert_true(digest_parse(text, &read));
    assert_true(digest_is_equal(digest, read));
}

/* Anything but exactly 64 hexadecimal digits is refused and leaves the output alone. */
static void other_text_is_refused(void **state)
{
    struct digest digest = hash_of("y", 1), kept = digest;
    char text[DIGEST_TEXT + 1];

    (void)state;
    digest_format(digest, text);
    text[10] = 'g';
    assert_false(digest_parse(text, &digest));
    text[10] = '\0';
    assert_false(digest_parse(text, &digest));
    text[10] = '0';
    memcpy(text + 64, "0", 2);
    assert_false(digest_parse(text, &digest));
    assert_false(digest_parse("", &digest));
    assert_true(digest_is_equal(digest, kept));
}

/* Whatever the length and the place, eight leaves at a time give what the library gives one by one;
 * and what that is stays what it is. */
static void leaves_side_by_side_are_the_same(void **state)
{
    static uint8_t bytes[9 * 1024 + 16];
    char text[DIGEST_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    for (size_t count = 0; count + 8 <= sizeof bytes; count += count % 1024 == 0 ? 1 : 1023) {
        struct digest wide = hash_wide_of(bytes + count % 7, count);
        assert_true(digest_is_equal(wide, hash_wide_plain(bytes + count % 7, count)));
        bytes[count / 2] ^= 1;
        assert_false(digest_is_equal(wide, hash_wide_of(bytes + count % 7, count)) && count > 16);
        bytes[count / 2] ^= 1;
    }
    digest_format(hash_wide_of(bytes, 2048), text);
    assert_string_equal(text, "e9f0ea779e26b0430cf68759f0fce6b73fae334ee14da704ec1a8ce5e3b5dbb4");
    digest_format(hash_wide_of(bytes, 100), text);
    assert_string_equal(text, "ccc52bbabb709ff4df85f863a8561563949b9642018ec375ff2c73f96c6c4787");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_blake2b_256),
        cmocka_unit_test(pieces_hash_like_the_whole),
        cmocka_unit_test(text_reads_back),
        cmocka_unit_test(other_text_is_refused),
        cmocka_unit_test(leaves_side_by_side_are_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

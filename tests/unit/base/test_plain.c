/* plain: what a terminal obeys is written out, everything else stays as it is. */
#include "tests/check.h"

#include "base/plain.h"
#include "base/rng.h"

static void check(const char *text, const char *wanted)
{
    char to[256];

    assert_string_equal(plain_text(text, to, sizeof to), wanted);
    assert_true(plain_is_so(text) == (strcmp(text, wanted) == 0));
}

static void what_is_text_stays(void **state)
{
    (void)state;
    check("", "");
    check("dense1.weight, 100 % of it \\ \\x1b", "dense1.weight, 100 % of it \\ \\x1b");
    check("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x8d\x87",
          "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x8d\x87");
    check("\xc2\xa0 \xef\xbf\xbd", "\xc2\xa0 \xef\xbf\xbd"); /* next to the controls, U+FFFD */
}

static void what_is_obeyed_is_written_out(void **state)
{
    (void)state;
    check("\x1b[31m\x07\x7f\n\t\r", "\\x1b[31m\\x07\\x7f\\x0a\\x09\\x0d");
    check("\xc2\x9b"
          "2J\xc2\x80\xc2\x9f",
          "\\xc2\\x9b2J\\xc2\\x80\\xc2\\x9f"); /* C1: CSI */
    check("a\xe2\x80\xae"
          "b\xe2\x81\xa6\xd8\x9c",
          "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6\\xd8\\x9c");
    check("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\x8f", "\\xe2\\x80\\xa8\\xe2\\x80\\xa9\\xe2\\x80\\x8f");
}

static void what_is_no_utf8_is_written_out(void **state)
{
    (void)state;
    check("\x80\xff\x9b", "\\x80\\xff\\x9b");
    check("\xc3", "\\xc3"); /* cut */
    check("\xe2\x82x", "\\xe2\\x82x");
    check("\xc0\x9b\xc1\xbf", "\\xc0\\x9b\\xc1\\xbf"); /* longer than need be */
    check("\xe0\x82\x9b\xf0\x80\x82\x9b", "\\xe0\\x82\\x9b\\xf0\\x80\\x82\\x9b");
    check("\xed\xa0\x80\xf4\x90\x80\x80",
          "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"); /* surrogate, beyond */
}

static void bytes_may_hold_nuls_and_text_is_cut_between_characters(void **state)
{
    char to[8];

    (void)state;
    assert_string_equal(plain_bytes("a\0b", 3, to, sizeof to), "a\\x00b");
    assert_string_equal(plain_text("abcdef\xc3\xaf", to, sizeof to), "abcdef");
    assert_string_equal(plain_text("abcde\xc3\xaf", to, sizeof to), "abcde\xc3\xaf");
    assert_string_equal(plain_text("abcd\x1b", to, sizeof to), "abcd");
    assert_string_equal(plain_text("abc", to, 1), "");
}

static void stream(const char *bytes, size_t count, char *all)
{
    struct plain_stream said = {{0}, 0};
    char step[PLAIN_STEP_BYTES];

    all[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        plain_stream_take(&said, (uint8_t)bytes[i], step);
        strcat(all, step);
    }
    plain_stream_end(&said, step);
    strcat(all, step);
}

static void a_stream_shows_characters_when_they_are_whole(void **state)
{
    static const char text[] = "a\xc3\xaf\n\tb\xe2\x82\xac\x1b[0m\xe2\x82\n\xf0\x9f\x8d";
    struct plain_stream said = {{0}, 0};
    char all[256], step[PLAIN_STEP_BYTES];

    (void)state;
    plain_stream_take(&said, 0xc3, step);
    assert_string_equal(step, "");
    plain_stream_take(&said, 0xaf, step);
    assert_string_equal(step, "\xc3\xaf");
    stream(text, sizeof text - 1, all);
    assert_string_equal(all, "a\xc3\xaf\n\tb\xe2\x82\xac\\x1b[0m\\xe2\\x82\n\\xf0\\x9f\\x8d");
}

/* Of any bytes: the result is plain, once more it stays, and a stream says the same but for lines.
 */
static void any_bytes_become_plain(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 200) {
        static const char often[] = "\x1b\xc2\x9b\xe2\x80\xae\xf0\x9f\x8d\x87\xed\xa0 \xc3\xaf";
        char bytes[64], once[4 * 64 + 1], twice[4 * 64 + 1], said[4 * 64 + 1];
        struct rng rng;
        size_t count;

        rng_init(&rng, seed, 1);
        count = (size_t)rng_below(&rng, sizeof bytes);
        for (size_t i = 0; i < count; i++) {
            bytes[i] = rng_below(&rng, 3) == 0 ? (char)rng_below(&rng, 256)
                                               : often[rng_below(&rng, sizeof often - 1)];
            if (bytes[i] == '\n' || bytes[i] == '\t') bytes[i] = ' ';
        }
        plain_bytes(bytes, count, once, sizeof once);
        check_seed(seed, plain_is_so(once));
        check_seed(seed, strcmp(plain_text(once, twice, sizeof twice), once) == 0);
        stream(bytes, count, said);
        check_seed(seed, strcmp(said, once) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_text_stays),
        cmocka_unit_test(what_is_obeyed_is_written_out),
        cmocka_unit_test(what_is_no_utf8_is_written_out),
        cmocka_unit_test(bytes_may_hold_nuls_and_text_is_cut_between_characters),
        cmocka_unit_test(a_stream_shows_characters_when_they_are_whole),
        cmocka_unit_test(any_bytes_become_plain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

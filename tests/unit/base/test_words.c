/* The distance of words is what a typist's mistakes are, and the nearest word has the least. */
#include "tests/check.h"

#include "base/check.h"
#include "base/words.h"

static void each_mistake_counts_once(void **state)
{
    (void)state;
    assert_int_equal(word_distance("steps", "steps"), 0);
    assert_int_equal(word_distance("steps", "stpes"), 1);
    assert_int_equal(word_distance("steps", "step"), 1);
    assert_int_equal(word_distance("steps", "stepss"), 1);
    assert_int_equal(word_distance("steps", "stops"), 1);
    assert_int_equal(word_distance("", "abc"), 3);
    assert_int_equal(word_distance("abc", ""), 3);
    assert_int_equal(word_distance("kitten", "sitting"), 3);
}

static void words_without_end_are_cut(void **state)
{
    char a[200], b[200];

    (void)state;
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    a[sizeof a - 1] = b[sizeof b - 1] = '\0';
    assert_int_equal(word_distance(a, b), 64);
    assert_int_equal(word_distance(a, a + 100), 0); /* 64 and more of the same letter */
}

static void the_first_of_the_nearest_is_it(void **state)
{
    static const char *const words[] = {"ring", "grid", "rind", "complete"};

    (void)state;
    assert_string_equal(word_nearest("rign", words, ARRAY_COUNT(words)), "ring");
    assert_string_equal(word_nearest("rin", words, ARRAY_COUNT(words)), "ring");
    assert_string_equal(word_nearest("compelte", words, ARRAY_COUNT(words)), "complete");
    assert_string_equal(word_nearest("", words, 1), "ring");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mistake_counts_once),
        cmocka_unit_test(words_without_end_are_cut),
        cmocka_unit_test(the_first_of_the_nearest_is_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
    assert_null(word_nearest("", words, 1));
    assert_string_equal(word_nearest("h", (const char *const[]){"tau", "H"}, 2), "H");
    assert_null(word_nearest("ddp", (const char *const[]){"d2", "dpsgd"}, 2));
}

/* A hint says what others' word means here, else what the hand meant, else only what there is. */
static void a_hint_knows_what_others_say(void **state)
{
    static const char *const words[] = {"ring", "complete"};
    static const struct word_synonym synonyms[] = {{"all", "complete"}, {NULL, NULL}};
    char hint[WORD_HINT_BYTES];
    const char *many[80];

    (void)state;
    assert_string_equal(word_hint("ALL", words, 2, synonyms, hint),
                        "; write complete; known: ring, complete");
    assert_string_equal(word_hint("rign", words, 2, synonyms, hint),
                        "; did you mean ring? known: ring, complete");
    assert_string_equal(word_hint("torus", words, 2, NULL, hint), "; known: ring, complete");
    for (size_t i = 0; i < ARRAY_COUNT(many); i++)
        many[i] = "complete";
    assert_int_equal(strlen(word_hint("x", many, ARRAY_COUNT(many), NULL, hint)),
                     WORD_HINT_BYTES - 1); /* cut */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mistake_counts_once),
        cmocka_unit_test(words_without_end_are_cut),
        cmocka_unit_test(the_first_of_the_nearest_is_it),
        cmocka_unit_test(a_hint_knows_what_others_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

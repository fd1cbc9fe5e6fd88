/* Bytes as text. */
#include "tests/check.h"

#include "base/base64.h"

#include <string.h>

static void the_examples_of_the_standard_come_out(void **state)
{
    /* RFC 4648, section 10, and the two characters that are neither letters nor digits. */
    static const char *const examples[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xef\xbe\xff", "/+++/w=="},
    };
    char text[16];

    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        const size_t length = base64_length(strlen(examples[i][0]));
        assert_int_equal(length, strlen(examples[i][1]));
        memset(text, '#', sizeof text);
        base64_encode(examples[i][0], strlen(examples[i][0]), text);
        assert_memory_equal(text, examples[i][1], length);
        assert_int_equal(text[length], '#'); /* and nothing behind it */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_examples_of_the_standard_come_out)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

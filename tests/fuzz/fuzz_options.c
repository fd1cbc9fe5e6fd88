/*
 * fuzz_options: configuration files and command lines of arbitrary bytes. Whatever is accepted must
 * print as a configuration that reads back to the same; --bootstrap lists are parsed on the way.
 */
#include "peer/cli/options_table.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/session/bootstrap.h"

#include <string.h>

static const char *const no_environment[] = {NULL};

static struct options *create(void)
{
    const char *words[] = {"testnet"};
    struct options *options = NULL;
    struct fault why = {""};
    enum rc rc = options_parse(1, words, no_environment, &options, &why);

    CHECK(rc == RC_OK);
    return options;
}

static void fuzz_file(const char *text, size_t count)
{
    struct options *options = create(), *again = create();
    struct fault why = {""};

    if (options_read_config(options, "run.ini", text, count, &why) == RC_OK) {
        char *printed = options_config_text(options), *reprinted;
        enum rc rc = options_read_config(again, "again.ini", printed, strlen(printed), &why);

        /* Only a value without a place to wrap it can be too long for a line. */
        CHECK(rc == RC_OK || strstr(why.text, "longer than") != NULL);
        reprinted = options_config_text(again);
        CHECK(rc != RC_OK || strcmp(printed, reprinted) == 0);
        mem_free(printed);
        mem_free(reprinted);
    } else {
        CHECK(why.text[0] != '\0');
    }
    options_destroy(options);
    options_destroy(again);
}

/** Lines of the input become words of a command line. */
static void fuzz_words(const char *input, size_t count)
{
    enum { WORDS_MAX = 16 };
    const char *words[WORDS_MAX];
    char *text = mem_alloc(count + 1);
    struct options *options = NULL;
    struct fault why = {""};
    int words_count = 0;

    CHECK(text != NULL);
    memcpy(text, input, count);
    for (char *at = text; words_count < WORDS_MAX && at < text + count; at += strlen(at) + 1) {
        char *end = strchr(at, '\n');

        if (end != NULL) *end = '\0';
        words[words_count++] = at;
    }
    if (options_parse(words_count, words, no_environment, &options, &why) == RC_OK)
        options_destroy(options);
    else
        CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
    mem_free(text);
}

static void fuzz_bootstrap(const char *input, size_t count)
{
    struct bootstrap bootstrap;
    struct fault why = {""};
    char *text = mem_alloc(count + 1);

    CHECK(text != NULL);
    memcpy(text, input, count);
    if (text[0] != '@' && bootstrap_parse(text, &bootstrap, &why) == RC_OK)
        CHECK(bootstrap.count > 0 && bootstrap.count <= BOOTSTRAP_MAX);
    mem_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const char *input = (const char *)bytes + 1;

    if (count == 0) return 0;
    if (bytes[0] % 3 == 0)
        fuzz_file(input, count - 1);
    else if (bytes[0] % 3 == 1)
        fuzz_words(input, count - 1);
    else if (memchr(input, '\0', count - 1) == NULL)
        fuzz_bootstrap(input, count - 1);
    return 0;
}

/*
 * golden: text a test produces and a file in the tree must contain, between a line with
 * "golden: NAME" and the next line with "golden: end". Run the test with GOLDEN_WRITE=1 to put the
 * new text there, then read the difference before committing it.
 */
#ifndef GRAPEVINE_TESTS_GOLDEN_H
#define GRAPEVINE_TESTS_GOLDEN_H

#include "tests/check.h"

struct golden {
    char text[128 * 1024];
    size_t count;
};

__attribute__((format(printf, 2, 3))) static inline void golden_print(struct golden *golden,
                                                                      const char *format, ...)
{
    va_list arguments;
    int count;

    va_start(arguments, format);
    count = vsnprintf(golden->text + golden->count, sizeof golden->text - golden->count, format,
                      arguments);
    va_end(arguments);
    assert_true(count >= 0 && (size_t)count < sizeof golden->text - golden->count);
    golden->count += (size_t)count;
}

/* Offset, sixteen bytes, and those that are letters. */
static inline void golden_hexdump(struct golden *golden, const uint8_t *bytes, size_t count)
{
    for (size_t at = 0; at < count; at += 16) {
        size_t n = count - at < 16 ? count - at : 16;

        golden_print(golden, "%04zx ", at);
        for (size_t i = 0; i < 16; i++) {
            if (i < n) {
                golden_print(golden, " %02x", bytes[at + i]);
            } else {
                golden_print(golden, "   ");
            }
        }
        golden_print(golden, "  ");
        for (size_t i = 0; i < n; i++) {
            char c = (char)bytes[at + i];

            golden_print(golden, "%c", c >= ' ' && c <= '~' && c != '`' ? c : '.');
        }
        golden_print(golden, "\n");
    }
}

static inline char *golden_read(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 512 * 1024);

    assert_non_null(text);
    assert_non_null(file);
    *count = fread(text, 1, 512 * 1024 - 1, file);
    assert_true(*count < 512 * 1024 - 1);
    fclose(file);
    return text;
}

static inline void golden_compare(const struct golden *golden, const char *path, const char *name)
{
    size_t count = 0;
    char mark[64], *text = golden_read(path, &count), *from, *to;

    snprintf(mark, sizeof mark, "golden: %s", name);
    from = strstr(text, mark);
    assert_non_null(from);
    from = strchr(from, '\n');
    assert_non_null(from);
    from++;
    to = strstr(from, "golden: end");
    assert_non_null(to);
    while (to > from && to[-1] != '\n') {
        to--;
    }
    if (getenv("GOLDEN_WRITE") != NULL) {
        FILE *file = fopen(path, "wb");

        assert_non_null(file);
        fwrite(text, 1, (size_t)(from - text), file);
        fwrite(golden->text, 1, golden->count, file);
        fwrite(to, 1, count - (size_t)(to - text), file);
        assert_int_equal(fclose(file), 0);
    } else if ((size_t)(to - from) != golden->count ||
               memcmp(from, golden->text, golden->count) != 0) {
        fprintf(stderr, "%s, section \"%s\", should be:\n%s", path, name, golden->text);
        fail_msg("the file differs; GOLDEN_WRITE=1 writes the new text");
    }
    free(text);
}

#endif

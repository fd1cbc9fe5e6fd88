/* Any bytes as a tokenizer's file: refused with a reason, or one that gives a text back. */
#include "base/check.h"
#include "base/mem.h"
#include "replica/tokenizer/internal.h"

#include <string.h>

static void encode(const struct tokenizer *t)
{
    static const char text[] = "hello, w\xc3\xb6rld's  12\xff<|endoftext|>aaaaaaab\n";
    struct token_list list = {NULL, 0, 0};
    size_t at = 0, count;

    if (tokenizer_encode(t, text, sizeof text, &list) == RC_OK) {
        for (size_t i = 0; i < list.count; i++) {
            const uint8_t *bytes = tokenizer_bytes(t, list.tokens[i], &count);
            CHECK(bytes != NULL && at + count <= sizeof text);
            CHECK(memcmp(bytes, text + at, count) == 0);
            at += count;
        }
        CHECK(at == sizeof text);
    }
    token_list_deinit(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    for (int form = 0; form < 3; form++) {
        struct tokenizer *t = mem_alloc(sizeof *t);
        char *text = mem_alloc(count + 1); /* with the NUL of file_read() */
        struct fault why = {""};
        enum rc rc;

        memcpy(text, bytes, count);
        t->end = TOKENIZER_NO_TOKEN;
        if (form == 0)
            rc = tokenizer_read_json(t, text, count, &why);
        else if (form == 1)
            rc = tokenizer_read_merges(t, text, count, NULL, 0, &why);
        else
            rc = tokenizer_read_merges(t, "", 0, text, count, &why);
        if (rc == RC_OK)
            encode(t);
        else
            CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
        mem_free(text);
        tokenizer_close(t);
    }
    return 0;
}

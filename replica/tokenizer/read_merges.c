/*
 * Reader of GPT-2's own files: vocab.bpe (merges.txt elsewhere), of which each line joins two
 * tokens, and encoder.json (vocab.json), which numbers them. Without the latter the numbers follow
 * from how GPT-2 made it: the 256 bytes in the order of its alphabet, then what the merges make, in
 * their order, then <|endoftext|>.
 */
#include "replica/tokenizer/internal.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const char end_of_text[] = "<|endoftext|>";

static enum rc number_bytes(struct vocabulary *vocabulary)
{
    uint8_t order[256];
    enum rc rc = RC_OK;

    spelling_order(order);
    for (uint32_t i = 0; rc == RC_OK && i < 256; i++) {
        rc = vocabulary_add(vocabulary, i, &order[i], 1, false);
    }
    return rc;
}

static enum rc number_all(struct tokenizer *t, const char *text, size_t count, struct fault *why)
{
    struct json *json = NULL;
    struct fault reason = {""};
    const char *key;
    const struct json *value;
    void *cursor;
    enum rc rc = json_parse_large(text, count, &json, &reason);

    if (rc != RC_OK) {
        return fault_set(why, rc, "the numbers of its tokens beside it: %.200s", reason.text);
    }
    if (!json_is_an_object(json)) rc = RC_FORMAT;
    value = json_member_first(json, &key, &cursor);
    for (; rc == RC_OK && value != NULL; value = json_member_next(json, &key, &cursor)) {
        struct spelling spelling;
        uint64_t number;
        if (!json_count_of(value, &number) || number >= VOCABULARY_TOKENS_MAX ||
            !spelling_read(key, strlen(key), &spelling)) {
            rc = RC_FORMAT;
        } else if (strcmp(key, end_of_text) == 0 || spelling.is_literal) {
            rc = tokenizer_add(t, (uint32_t)number, key, why);
        } else {
            rc = vocabulary_add(&t->vocabulary, (uint32_t)number, spelling.bytes, spelling.count,
                                false);
        }
        if (rc != RC_OK && (why == NULL || why->text[0] == '\0')) {
            rc = fault_set(why, rc, "beside it, token '%.60s' has no number of its own", key);
        }
    }
    json_destroy(json);
    if (rc == RC_OK || (why != NULL && why->text[0] != '\0')) return rc;
    return fault_set(why, rc, "the numbers of its tokens beside it are no JSON object");
}

/* `left right`: both tokens, and their join, which gets the next number where none is known. */
static enum rc read_merge(struct vocabulary *v, const char *line, size_t count, bool numbers_it)
{
    const char *space = memchr(line, ' ', count);
    struct spelling left, right;
    struct merge merge;
    enum rc rc = RC_OK;

    if (space == NULL || !spelling_read(line, (size_t)(space - line), &left) ||
        !spelling_read(space + 1, count - (size_t)(space + 1 - line), &right) || left.is_literal ||
        right.is_literal || left.count + right.count > sizeof left.bytes) {
        return RC_FORMAT;
    }
    merge.left = vocabulary_find(v, left.bytes, left.count);
    merge.right = vocabulary_find(v, right.bytes, right.count);
    memcpy(left.bytes + left.count, right.bytes, right.count);
    if (numbers_it) {
        rc = vocabulary_add(v, v->count, left.bytes, left.count + right.count, false);
    }
    if (rc != RC_OK) return rc;
    merge.result = vocabulary_find(v, left.bytes, left.count + right.count);
    if (merge.left == VOCABULARY_NONE || merge.right == VOCABULARY_NONE ||
        merge.result == VOCABULARY_NONE) {
        return RC_FORMAT;
    }
    return vocabulary_merge(v, merge);
}

enum rc tokenizer_read_merges(struct tokenizer *t, const char *text, size_t count,
                              const char *numbers, size_t numbers_count, struct fault *why)
{
    const char *at = text, *end = text + count;
    const bool numbers_it = numbers == NULL;
    size_t line = 1;
    enum rc rc =
        numbers_it ? number_bytes(&t->vocabulary) : number_all(t, numbers, numbers_count, why);

    if (rc != RC_OK && numbers_it) return fault_set(why, rc, "out of memory");
    if (rc != RC_OK) return rc;
    for (; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop != NULL ? stop : end) - at);

        if (length > 0 && at[length - 1] == '\r') length--;
        if (length > 0 && !(line == 1 && strncmp(at, "#version", 8) == 0)) {
            rc = read_merge(&t->vocabulary, at, length, numbers_it);
        }
        if (rc == RC_NOMEM || rc == RC_LIMIT) return fault_set(why, rc, "%s", rc_text(rc));
        if (rc != RC_OK) {
            return fault_set(why, rc,
                             "line %zu is not a BPE merge (\"token token\", both known); it must "
                             "be a tokenizer.json, or a vocab.bpe or merges.txt of byte-level BPE",
                             line);
        }
        at = stop != NULL ? stop + 1 : end;
    }
    if (numbers_it) rc = tokenizer_add(t, t->vocabulary.count, end_of_text, why);
    return rc == RC_OK ? tokenizer_complete(t, pattern_gpt2, why) : rc;
}

/*
 * tokenizer: which file it is read from, and a text on its way through it. A text is cut first at
 * added tokens (as "<|endoftext|>"), then into runs of valid UTF-8 and bytes that are none, then
 * into words by the pattern. All of this depends on what follows, so an encoder holds back what is
 * not sure yet.
 */
#include "replica/tokenizer/internal.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/plain.h"
#include "replica/tokenizer/merger.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHARACTER_BYTES = 4, LIST_LEAST = 1024 };

/* ---- from a file ---- */

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    vocabulary_deinit(&tokenizer->vocabulary);
    pattern_destroy(tokenizer->pattern);
    mem_free(tokenizer->added);
    mem_free(tokenizer);
}

enum rc tokenizer_add(struct tokenizer *t, uint32_t token, const char *text, struct fault *why)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    uint32_t *grown;
    enum rc rc;

    for (size_t i = 0; i < t->added_count; i++) {
        size_t count;
        const uint8_t *bytes = vocabulary_bytes(&t->vocabulary, t->added[i], &count);
        if (count != strlen(text) || memcmp(bytes, text, count) != 0) continue;
        return fault_set(why, RC_FORMAT, "its added token '%.60s' has two numbers, %u and %u", text,
                         t->added[i], token);
    }
    rc = vocabulary_add(&t->vocabulary, token, text, strlen(text), true);

    if (rc != RC_OK) {
        return fault_set(why, rc, "its added token '%.60s' is empty, too long or one too many",
                         text);
    }
    if (t->added_count == TOKENIZER_ADDED_MAX) {
        return fault_set(why, RC_LIMIT, "it has more than %d added tokens", TOKENIZER_ADDED_MAX);
    }
    grown = mem_resize(t->added, (t->added_count + 1) * sizeof *grown);
    if (grown == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    t->added = grown;
    t->added[t->added_count++] = token;
    t->begins[(uint8_t)text[0]] = true;
    if (strlen(text) > t->added_bytes) t->added_bytes = strlen(text);
    for (size_t i = 0; i < ARRAY_COUNT(ends) && t->end == TOKENIZER_NO_TOKEN; i++) {
        if (strcmp(text, ends[i]) == 0) t->end = token;
    }
    return RC_OK;
}

/* By insertion: there are a few, or they stand in order. */
static void sort_added(struct tokenizer *t)
{
    const struct token *tokens = t->vocabulary.tokens;

    for (size_t i = 1; i < t->added_count; i++) {
        const uint32_t token = t->added[i];
        size_t at = i;
        for (; at > 0 && tokens[t->added[at - 1]].count < tokens[token].count; at--) {
            t->added[at] = t->added[at - 1];
        }
        t->added[at] = token;
    }
}

enum rc tokenizer_complete(struct tokenizer *t, const char *pattern, struct fault *why)
{
    static const char purpose[] = "grapevine tokenizer 1";
    const uint8_t first = t->whole_first ? 1 : 0;
    struct hash hash;
    unsigned byte;
    enum rc rc = vocabulary_complete(&t->vocabulary, &byte);

    if (rc == RC_FORMAT && byte < 256) {
        return fault_set(why, rc, "it has no token for byte 0x%02x, so it is not byte-level", byte);
    }
    if (rc == RC_FORMAT) return fault_set(why, rc, "two of its merges join the same tokens");
    if (rc != RC_OK) return fault_set(why, rc, "out of memory");
    rc = pattern_create(pattern, true, &t->pattern, why);
    if (rc != RC_OK) return rc;
    sort_added(t);
    hash_init(&hash);
    hash_update(&hash, purpose, sizeof purpose);
    hash_update(&hash, pattern, strlen(pattern) + 1);
    hash_update(&hash, &first, 1);
    vocabulary_hash(&t->vocabulary, &hash);
    t->digest = hash_final(&hash);
    return RC_OK;
}

bool tokenizer_find(const char *folder, char *found, size_t bytes)
{
    static const char *const names[] = {"tokenizer.json", "vocab.bpe", "merges.txt"};

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const int length = snprintf(found, bytes, "%s%s", folder, names[i]);
        if (length > 0 && (size_t)length < bytes && file_is_regular(found)) return true;
    }
    return false;
}

/* The file that `path` means: nothing that others may be asked to wait for, as a pipe. */
static enum rc choose_file(const char *path, char chosen[PATH_MAX], struct fault *why)
{
    char folder[PATH_MAX];
    struct stat at;

    if (snprintf(chosen, PATH_MAX, "%s", path) >= PATH_MAX ||
        snprintf(folder, sizeof folder, "%s/", path) >= PATH_MAX) {
        return file_fault(why, "read", path, ENAMETOOLONG);
    }
    if (stat(path, &at) != 0) return file_fault(why, "read", path, errno);
    if (S_ISREG(at.st_mode)) return RC_OK;
    if (!S_ISDIR(at.st_mode)) {
        return fault_set(why, RC_FORMAT, "cannot read %s: it is no regular file", path);
    }
    if (tokenizer_find(folder, chosen, PATH_MAX)) return RC_OK;
    return fault_set(why, RC_NOT_FOUND,
                     "cannot use %s: the folder has no tokenizer.json, vocab.bpe or merges.txt",
                     path);
}

/* The numbers of a vocab.bpe's tokens, where they stand beside it. */
static enum rc read_numbers(const char *path, void **text, size_t *count, struct fault *why)
{
    static const char *const names[] = {"encoder.json", "vocab.json"};
    const char *slash = strrchr(path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash + 1 - path);
    char beside[PATH_MAX];

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (snprintf(beside, sizeof beside, "%.*s%s", folder, path, names[i]) >= PATH_MAX) break;
        if (!file_is_regular(beside)) continue;
        return file_read(beside, TOKENIZER_FILE_BYTES, text, count, why);
    }
    return RC_OK;
}

static enum rc read_forms(struct tokenizer *t, const char *path, struct fault *why)
{
    void *text = NULL, *numbers = NULL;
    size_t count = 0, numbers_count = 0, blank;
    struct fault reason = {""};
    enum rc rc = file_read(path, TOKENIZER_FILE_BYTES, &text, &count, why);

    if (rc != RC_OK) return rc;
    blank = strspn(text, " \t\r\n");
    if (((char *)text)[blank] == '{') {
        rc = tokenizer_read_json(t, text, count, &reason);
    } else {
        rc = read_numbers(path, &numbers, &numbers_count, why);
        if (rc == RC_OK) {
            rc = tokenizer_read_merges(t, text, count, numbers, numbers_count, &reason);
        }
    }
    mem_free(text);
    mem_free(numbers);
    if (rc == RC_OK || reason.text[0] == '\0') return rc;
    return fault_set(why, rc, "cannot use %s: %s", path, reason.text);
}

enum rc tokenizer_open(const char *path, struct tokenizer **tokenizer, struct fault *why)
{
    struct tokenizer *opened = mem_alloc(sizeof *opened);
    char chosen[PATH_MAX];
    enum rc rc;

    if (opened == NULL) return fault_set(why, RC_NOMEM, "cannot use %s: out of memory", path);
    opened->end = TOKENIZER_NO_TOKEN;
    rc = choose_file(path, chosen, why);
    if (rc == RC_OK) rc = read_forms(opened, chosen, why);
    if (rc == RC_OK)
        *tokenizer = opened;
    else
        tokenizer_close(opened);
    return rc;
}

uint32_t tokenizer_symbols(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.count;
}

struct digest tokenizer_digest(const struct tokenizer *tokenizer)
{
    return tokenizer->digest;
}

uint32_t tokenizer_end(const struct tokenizer *tokenizer)
{
    return tokenizer->end;
}

const uint8_t *tokenizer_bytes(const struct tokenizer *tokenizer, uint32_t token, size_t *count)
{
    return vocabulary_bytes(&tokenizer->vocabulary, token, count);
}

bool tokenizer_is_added(const struct tokenizer *tokenizer, uint32_t token)
{
    return token < tokenizer->vocabulary.count && tokenizer->vocabulary.tokens[token].is_apart;
}

bool tokenizer_merge(const struct tokenizer *tokenizer, size_t rank, uint32_t pair[2])
{
    const struct vocabulary *v = &tokenizer->vocabulary;

    if (rank >= v->merges_count) return false;
    pair[0] = v->merges[rank].left;
    pair[1] = v->merges[rank].right;
    return true;
}

bool tokenizer_is_gpt2s(const struct tokenizer *tokenizer)
{
    return pattern_text(tokenizer->pattern) == pattern_gpt2 && !tokenizer->whole_first;
}

/* ---- tokens ---- */

enum rc token_list_add(struct token_list *list, uint32_t token)
{
    if (list->count == list->cap) {
        size_t cap = list->cap < LIST_LEAST ? LIST_LEAST : 2 * list->cap;
        uint32_t *grown = mem_resize(list->tokens, cap * sizeof *grown);
        if (grown == NULL) return RC_NOMEM;
        list->tokens = grown;
        list->cap = cap;
    }
    list->tokens[list->count++] = token;
    return RC_OK;
}

void token_list_deinit(struct token_list *list)
{
    mem_free(list->tokens);
    *list = (struct token_list){NULL, 0, 0};
}

/* ---- a text ---- */

struct encoder {
    const struct tokenizer *tokenizer;
    struct matcher *matcher;
    struct merger *merger;
    uint8_t *held; /* what is not encoded yet */
    size_t count, cap;
    struct token_list *out; /* of the call */
};

/* What of the held text is looked at. */
struct stretch {
    size_t end;
    bool is_whole; /* nothing follows that could belong to its last word */
};

struct encoder *encoder_create(const struct tokenizer *tokenizer)
{
    struct encoder *made = mem_alloc(sizeof *made);

    if (made == NULL) return NULL;
    made->tokenizer = tokenizer;
    made->matcher = matcher_create(tokenizer->pattern);
    made->merger = merger_create(&tokenizer->vocabulary, tokenizer->whole_first);
    if (made->matcher != NULL && made->merger != NULL) return made;
    encoder_destroy(made);
    return NULL;
}

void encoder_destroy(struct encoder *encoder)
{
    if (encoder == NULL) return;
    matcher_destroy(encoder->matcher);
    merger_destroy(encoder->merger);
    mem_free(encoder->held);
    mem_free(encoder);
}

static enum rc put_word(struct encoder *e, size_t at, size_t bytes)
{
    size_t tokens = 0;
    const uint32_t *word = merger_word(e->merger, e->held + at, bytes, &tokens);

    if (word == NULL) return RC_NOMEM;
    for (size_t i = 0; i < tokens; i++) {
        if (token_list_add(e->out, word[i]) != RC_OK) return RC_NOMEM;
    }
    return RC_OK;
}

/* How much of `count` bytes of valid UTF-8 a word is looked for in: whole characters. */
static size_t look_ahead(const uint8_t *text, size_t count)
{
    if (count <= MERGER_WORD_BYTES) return count;
    count = MERGER_WORD_BYTES;
    while ((text[count] & 0xC0) == 0x80) { /* within a character */
        count--;
    }
    return count;
}

/* Words of valid UTF-8 from *at on; *at moves behind the last one that is sure. A word that would
 * depend on more than MERGER_WORD_BYTES is what it were if the text ended there, so that pieces
 * make no difference to it either. */
static enum rc put_words(struct encoder *e, const struct stretch *run, size_t *at)
{
    enum rc rc = RC_OK;

    while (rc == RC_OK && *at < run->end) {
        const uint8_t *text = e->held + *at;
        const size_t left = run->end - *at, seen = look_ahead(text, left);
        const bool is_cut = left >= MERGER_WORD_BYTES;
        size_t word = 0;

        rc = matcher_word(e->matcher, text, seen, run->is_whole && seen == left, &word);
        if (rc == RC_OK && word == 0 && !is_cut) return RC_OK;
        if (rc == RC_OK && word == 0) rc = matcher_word(e->matcher, text, seen, true, &word);
        if (rc == RC_OK) rc = put_word(e, *at, word);
        *at += word;
    }
    return rc;
}

/* Text without added tokens. */
static enum rc put_text(struct encoder *e, const struct stretch *stretch, size_t *at)
{
    enum rc rc = RC_OK;

    while (rc == RC_OK && *at < stretch->end) {
        struct stretch run = {*at, stretch->is_whole};
        size_t taken = 0;

        while (run.end < stretch->end) {
            taken = utf8_character(e->held + run.end, stretch->end - run.end);
            if (taken == 0) break;
            run.end += taken;
        }
        /* A character may be cut in two; what is surely none ends the word before it. */
        if (run.end < stretch->end) {
            run.is_whole = stretch->is_whole || stretch->end - run.end >= CHARACTER_BYTES;
        }
        rc = put_words(e, &run, at);
        if (rc != RC_OK || *at < run.end) return rc;
        if (*at == stretch->end || !run.is_whole) return RC_OK;
        rc = token_list_add(e->out, e->tokenizer->vocabulary.of_byte[e->held[*at]]);
        ++*at;
    }
    return rc;
}

/* Where the next added token begins; `count` where there is none. */
static size_t find_added(const struct encoder *e, size_t from, uint32_t *token)
{
    const struct tokenizer *t = e->tokenizer;

    for (size_t at = from; t->added_count > 0 && at < e->count; at++) {
        if (!t->begins[e->held[at]]) continue;
        for (size_t i = 0; i < t->added_count; i++) {
            size_t count;
            const uint8_t *bytes = vocabulary_bytes(&t->vocabulary, t->added[i], &count);
            if (count > e->count - at || memcmp(bytes, e->held + at, count) != 0) continue;
            *token = t->added[i];
            return at;
        }
    }
    return e->count;
}

/* All that is sure. */
static enum rc put_held(struct encoder *e, bool is_last, size_t *done)
{
    const size_t longest = e->tokenizer->added_bytes;
    enum rc rc = RC_OK;

    *done = 0;
    while (rc == RC_OK && *done < e->count) {
        uint32_t token = 0;
        size_t stop = find_added(e, *done, &token), count;
        struct stretch text = {stop, is_last || stop < e->count};

        /* An added token may have begun, or be the beginning of a longer one. */
        if (!is_last && longest > 0 && stop + longest > e->count) {
            stop = e->count;
            text.end = e->count > longest - 1 ? e->count - (longest - 1) : 0;
            text.is_whole = false;
        }
        rc = put_text(e, &text, done);
        if (rc != RC_OK || *done < stop || stop == e->count) break;
        rc = token_list_add(e->out, token);
        (void)vocabulary_bytes(&e->tokenizer->vocabulary, token, &count);
        *done += count;
    }
    return rc;
}

enum rc encoder_add(struct encoder *e, const void *bytes, size_t count, bool is_last,
                    struct token_list *out)
{
    size_t done;
    enum rc rc;

    if (e->count + count > e->cap) {
        const size_t cap = 2 * (e->count + count);
        uint8_t *grown = mem_resize(e->held, cap);
        if (grown == NULL) return RC_NOMEM;
        e->held = grown;
        e->cap = cap;
    }
    if (count > 0) memcpy(e->held + e->count, bytes, count);
    e->count += count;
    e->out = out;
    rc = put_held(e, is_last, &done);
    if (rc != RC_OK) return rc;
    CHECK(done <= e->count && (!is_last || done == e->count));
    if (done > 0 && done < e->count) memmove(e->held, e->held + done, e->count - done);
    e->count -= done;
    return RC_OK;
}

enum rc tokenizer_encode(const struct tokenizer *tokenizer, const void *bytes, size_t count,
                         struct token_list *out)
{
    struct encoder *encoder = encoder_create(tokenizer);
    enum rc rc = encoder == NULL ? RC_NOMEM : encoder_add(encoder, bytes, count, true, out);

    encoder_destroy(encoder);
    return rc;
}

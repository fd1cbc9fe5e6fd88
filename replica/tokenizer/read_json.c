/*
 * Reader of tokenizer.json, the form of Hugging Face's tokenizers library: byte-level BPE as GPT-2
 * and Llama 3 have it. What would make other tokens of a text than this program does is refused by
 * its name; what concerns only the library's users (padding, post-processing, decoding) is skipped.
 */
#include "replica/tokenizer/internal.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

/* Is the field there, and no null? */
static bool is_set(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    bool is_true = false;

    if (value == NULL) return false;
    if (json_get_bool(object, key, &is_true)) return is_true;
    if (json_get_text(object, key) != NULL) return json_get_text(object, key)[0] != '\0';
    return json_is_an_object(value) || json_is_an_array(value) || json_real_of(value, &(double){0});
}

static const char *type_of(const struct json *object)
{
    const char *type = json_get_text(object, "type");

    return type != NULL ? type : "without a type";
}

/* ---- how words are found ---- */

static enum rc read_byte_level(const struct json *step, bool *has_pattern, struct fault *why)
{
    *has_pattern = true; /* the library's default */
    (void)json_get_bool(step, "use_regex", has_pattern);
    if (!is_set(step, "add_prefix_space")) return RC_OK;
    return fault_set(why, RC_UNSUPPORTED,
                     "its pre-tokenizer puts a space in front of a text (add_prefix_space), which "
                     "is not read");
}

static enum rc read_split(const struct json *step, const char **pattern, struct fault *why)
{
    const char *behavior = json_get_text(step, "behavior");
    const bool is_inverted = is_set(step, "invert");
    const char *text = json_get_text(json_get(step, "pattern"), "Regex");

    if (text == NULL) {
        return fault_set(why, RC_UNSUPPORTED,
                         "its pre-tokenizer splits at a plain string; only a Regex is read");
    }
    /* To drop what lies between words is the same, as patterns that are known leave nothing there.
     */
    if (behavior == NULL || (strcmp(behavior, "Isolated") != 0 || is_inverted)) {
        if (behavior == NULL || strcmp(behavior, "Removed") != 0 || !is_inverted) {
            return fault_set(why, RC_UNSUPPORTED,
                             "its pre-tokenizer splits with behavior '%.20s'; only Isolated is "
                             "read",
                             behavior != NULL ? behavior : "");
        }
    }
    *pattern = text;
    return RC_OK;
}

/* One step alone, or a list of a Split and a ByteLevel that has no pattern. */
static enum rc read_words(const struct json *root, const char **pattern, struct fault *why)
{
    const struct json *pre = json_get(root, "pre_tokenizer");
    const struct json *steps = json_get(pre, "pretokenizers");
    const bool is_list = strcmp(type_of(pre), "Sequence") == 0 && json_is_an_array(steps);
    const size_t count = is_list ? json_count(steps) : 1;
    bool is_byte_level = false, has_pattern = false;
    enum rc rc = RC_OK;

    *pattern = NULL;
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        const struct json *step = is_list ? json_at(steps, i) : pre;
        const char *type = type_of(step);

        if (strcmp(type, "ByteLevel") == 0 && !is_byte_level) {
            rc = read_byte_level(step, &has_pattern, why);
            is_byte_level = true;
        } else if (strcmp(type, "Split") == 0 && *pattern == NULL && !is_byte_level) {
            rc = read_split(step, pattern, why);
        } else {
            return fault_set(why, RC_UNSUPPORTED,
                             "its pre-tokenizer has a step '%.30s'; only ByteLevel, and one Split "
                             "before it, are read",
                             type);
        }
    }
    if (rc != RC_OK) return rc;
    if (!is_byte_level || has_pattern == (*pattern != NULL)) {
        return fault_set(why, RC_UNSUPPORTED,
                         "its pre-tokenizer is not ByteLevel with one pattern, its own or a "
                         "Split's");
    }
    if (has_pattern) *pattern = pattern_gpt2;
    return RC_OK;
}

/* ---- tokens ---- */

static enum rc read_added(struct tokenizer *t, const struct json *root, struct fault *why)
{
    static const char *const strange[] = {"lstrip", "rstrip", "single_word"};
    const struct json *list = json_get(root, "added_tokens");
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < json_count(list); i++) {
        const struct json *token = json_at(list, i);
        const char *content = json_get_text(token, "content");
        uint64_t number;

        if (content == NULL || !json_get_count(token, "id", &number) ||
            number >= VOCABULARY_TOKENS_MAX) {
            return fault_set(why, RC_FORMAT, "added token %zu has no content or no id", i + 1);
        }
        for (size_t s = 0; s < sizeof strange / sizeof strange[0]; s++) {
            if (!is_set(token, strange[s])) continue;
            return fault_set(why, RC_UNSUPPORTED,
                             "its added token '%.60s' is looked for with %s, which is not read",
                             content, strange[s]);
        }
        rc = tokenizer_add(t, (uint32_t)number, content, why);
    }
    return rc;
}

/* Added tokens stand in the vocabulary, too, or only in their own list. */
static bool is_added(const struct tokenizer *t, uint64_t number, const char *text)
{
    size_t count;
    const uint8_t *bytes;

    if (number >= t->vocabulary.count) return false;
    bytes = vocabulary_bytes(&t->vocabulary, (uint32_t)number, &count);
    return bytes != NULL && strlen(text) == count && memcmp(bytes, text, count) == 0;
}

static enum rc read_vocabulary(struct tokenizer *t, const struct json *vocabulary,
                               struct fault *why)
{
    const char *key;
    void *cursor;
    const struct json *value = json_member_first(vocabulary, &key, &cursor);
    enum rc rc = RC_OK;

    for (; value != NULL; value = json_member_next(vocabulary, &key, &cursor)) {
        struct spelling spelling;
        uint64_t number;

        if (!json_count_of(value, &number) || number >= VOCABULARY_TOKENS_MAX ||
            !spelling_read(key, strlen(key), &spelling)) {
            return fault_set(why, RC_FORMAT,
                             "its token '%.60s' is longer than %d bytes, or has no number below %d",
                             key, VOCABULARY_TOKEN_BYTES, VOCABULARY_TOKENS_MAX);
        }
        if (is_added(t, number, key)) continue;
        rc = vocabulary_add(&t->vocabulary, (uint32_t)number, spelling.bytes, spelling.count,
                            spelling.is_literal);
        if (rc == RC_FORMAT) {
            return fault_set(why, rc, "its token '%.60s' has no number of its own", key);
        }
        if (rc != RC_OK) return fault_set(why, rc, "%s", rc_text(rc));
    }
    return RC_OK;
}

/* ---- merges ---- */

/* Its two halves: a pair of strings, or one with a space between. */
static bool split_merge(const struct json *merge, struct spelling halves[2])
{
    const char *text = json_text_of(merge), *space = text != NULL ? strchr(text, ' ') : NULL;

    if (text != NULL) {
        return space != NULL && spelling_read(text, (size_t)(space - text), &halves[0]) &&
               spelling_read(space + 1, strlen(space + 1), &halves[1]);
    }
    if (!json_is_an_array(merge) || json_count(merge) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        text = json_text_of(json_at(merge, i));
        if (text == NULL || !spelling_read(text, strlen(text), &halves[i])) return false;
    }
    return true;
}

static enum rc read_merge(struct vocabulary *v, const struct json *from)
{
    struct spelling halves[2];
    struct merge merge;
    size_t count;

    if (!split_merge(from, halves) || halves[0].is_literal || halves[1].is_literal) {
        return RC_FORMAT;
    }
    count = halves[0].count + halves[1].count;
    if (count > sizeof halves[0].bytes) return RC_FORMAT;
    merge.left = vocabulary_find(v, halves[0].bytes, halves[0].count);
    merge.right = vocabulary_find(v, halves[1].bytes, halves[1].count);
    memcpy(halves[0].bytes + halves[0].count, halves[1].bytes, halves[1].count);
    merge.result = vocabulary_find(v, halves[0].bytes, count);
    if (merge.left == VOCABULARY_NONE || merge.right == VOCABULARY_NONE ||
        merge.result == VOCABULARY_NONE) {
        return RC_FORMAT;
    }
    return vocabulary_merge(v, merge);
}

static enum rc read_merges(struct tokenizer *t, const struct json *merges, struct fault *why)
{
    for (size_t i = 0; i < json_count(merges); i++) {
        enum rc rc = read_merge(&t->vocabulary, json_at(merges, i));
        if (rc == RC_FORMAT) {
            return fault_set(why, rc, "merge %zu is not two tokens that are known and make a third",
                             i + 1);
        }
        if (rc != RC_OK) return fault_set(why, rc, "%s", rc_text(rc));
    }
    return RC_OK;
}

/* ---- all of it ---- */

/* What would make other tokens of a text. */
static enum rc check_model(const struct json *root, const struct json *model, struct fault *why)
{
    static const char *const strange[] = {"byte_fallback", "continuing_subword_prefix",
                                          "end_of_word_suffix", "dropout"};

    if (model == NULL) {
        return fault_set(why, RC_FORMAT,
                         "it is no tokenizer.json: it has no 'model'; of an encoder.json or "
                         "vocab.json take the vocab.bpe or merges.txt beside it");
    }
    if (is_set(model, "type") && strcmp(type_of(model), "BPE") != 0) {
        return fault_set(why, RC_UNSUPPORTED, "its model is %.30s; only byte-level BPE is read",
                         type_of(model));
    }
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        double zero = 1;
        if (!is_set(model, strange[i])) continue;
        if (json_get_real(model, strange[i], &zero) && zero == 0) continue;
        return fault_set(why, RC_UNSUPPORTED, "its model has %s, which is not read", strange[i]);
    }
    if (is_set(root, "normalizer")) {
        return fault_set(why, RC_UNSUPPORTED,
                         "it changes a text before it reads it (normalizer %.30s), which is not "
                         "done",
                         type_of(json_get(root, "normalizer")));
    }
    if (!json_is_an_object(json_get(model, "vocab")) ||
        !json_is_an_array(json_get(model, "merges"))) {
        return fault_set(why, RC_UNSUPPORTED, "its model has no vocab and merges as BPE has them");
    }
    return RC_OK;
}

enum rc tokenizer_read_json(struct tokenizer *t, const char *text, size_t count, struct fault *why)
{
    struct json *root = NULL;
    const struct json *model;
    const char *pattern = NULL;
    enum rc rc = json_parse_large(text, count, &root, why);

    if (rc != RC_OK) return rc;
    model = json_get(root, "model");
    rc = check_model(root, model, why);
    if (rc == RC_OK) rc = read_words(root, &pattern, why);
    if (rc == RC_OK) rc = read_added(t, root, why);
    if (rc == RC_OK) rc = read_vocabulary(t, json_get(model, "vocab"), why);
    if (rc == RC_OK) rc = read_merges(t, json_get(model, "merges"), why);
    (void)json_get_bool(model, "ignore_merges", &t->whole_first);
    if (rc == RC_OK) rc = tokenizer_complete(t, pattern, why);
    json_destroy(root);
    return rc;
}

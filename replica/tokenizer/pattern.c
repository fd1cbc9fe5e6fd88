/*
 * pattern: the one door to PCRE2. A text that comes piece by piece is matched by its hard partial
 * matching: as soon as a match could go on, or a look ahead reaches the end, it asks for more, so
 * that words are the same wherever the pieces end. \s and \S are written as \p{White_Space}, which
 * PCRE2's own \s is but for one code point (U+180E).
 */
#include "replica/tokenizer/pattern.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/plain.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#define MARKS "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define FRONT "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

const char pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* As they stand in files. One more must begin a word at every character, and must not go back over
 * a text more than once for each of its alternatives. */
static const char *const known[] = {
    pattern_gpt2,
    /* GPT-4's, Llama 3's */
    SHORT "|" FRONT "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" MARKS,
    /* Qwen 2's: each digit alone */
    SHORT "|" FRONT "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" MARKS,
    /* GPT-4o's: capitals begin words */
    FRONT UPPER "*" LOWER "+" SHORT "?|" FRONT UPPER "+" LOWER "*" SHORT "?|\\p{N}{1,3}"
                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" MARKS,
    /* Mistral's of 2024: GPT-4o's without contractions, each digit alone */
    FRONT UPPER "*" LOWER "+|" FRONT UPPER "+" LOWER "*|\\p{N}"
                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" MARKS,
};

struct pattern {
    pcre2_code *code;
    const char *text;
};

struct matcher {
    const pcre2_code *code;
    pcre2_match_data *data;
};

const char *pattern_known(size_t i)
{
    return i < ARRAY_COUNT(known) ? known[i] : NULL;
}

/* `text` with White_Space in place of \s. */
static char *spell_spaces(const char *text)
{
    static const char *const classes[] = {"\\p{White_Space}", "\\P{White_Space}"};
    const size_t each = strlen(classes[0]), count = strlen(text);
    char *spelt = mem_alloc(count * each + 1);
    size_t at = 0;

    if (spelt == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
        const bool is_escape = text[i] == '\\' && i + 1 < count;
        if (is_escape && (text[i + 1] == 's' || text[i + 1] == 'S')) {
            memcpy(spelt + at, classes[text[i + 1] == 'S'], each);
            at += each;
            i++;
            continue;
        }
        spelt[at++] = text[i];
        if (is_escape) spelt[at++] = text[++i];
    }
    return spelt;
}

enum rc pattern_create(const char *text, bool with_jit, struct pattern **pattern, struct fault *why)
{
    struct pattern *made;
    PCRE2_SIZE where = 0;
    size_t i = 0;
    int error = 0;
    char *spelt;

    while (i < ARRAY_COUNT(known) && strcmp(known[i], text) != 0) {
        i++;
    }
    if (i == ARRAY_COUNT(known)) {
        return fault_set(why, RC_UNSUPPORTED,
                         "its words are found by the pattern '%.80s'; only those of GPT-2, GPT-4 "
                         "(Llama 3), GPT-4o, Qwen 2 and Mistral are read",
                         text);
    }
    spelt = spell_spaces(text);
    made = mem_alloc(sizeof *made);
    if (spelt != NULL && made != NULL) {
        made->code = pcre2_compile((PCRE2_SPTR)spelt, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, NULL);
    }
    mem_free(spelt);
    if (made == NULL || made->code == NULL) {
        pattern_destroy(made);
        return fault_set(why, RC_NOMEM, "out of memory");
    }
    /* Where a system allows no code made at run time, patterns are interpreted. */
    if (with_jit) (void)pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    made->text = known[i];
    *pattern = made;
    return RC_OK;
}

const char *pattern_text(const struct pattern *pattern)
{
    return pattern->text;
}

void pattern_destroy(struct pattern *pattern)
{
    if (pattern == NULL) return;
    pcre2_code_free(pattern->code);
    mem_free(pattern);
}

struct matcher *matcher_create(const struct pattern *pattern)
{
    struct matcher *made = mem_alloc(sizeof *made);

    if (made == NULL) return NULL;
    made->code = pattern->code;
    made->data = pcre2_match_data_create(1, NULL);
    if (made->data != NULL) return made;
    matcher_destroy(made);
    return NULL;
}

void matcher_destroy(struct matcher *matcher)
{
    if (matcher == NULL) return;
    pcre2_match_data_free(matcher->data);
    mem_free(matcher);
}

enum rc matcher_word(struct matcher *matcher, const uint8_t *text, size_t count, bool is_whole,
                     size_t *word)
{
    const uint32_t options = PCRE2_NO_UTF_CHECK | (is_whole ? 0 : PCRE2_PARTIAL_HARD);
    int rc;

    CHECK(count > 0);
    *word = 0;
    rc = pcre2_match(matcher->code, text, count, 0, options, matcher->data, NULL);
    if (rc == PCRE2_ERROR_PARTIAL && !is_whole) return RC_OK;
    if (rc < 0) return RC_NOMEM; /* a known pattern matches everything, far below other limits */
    *word = pcre2_get_ovector_pointer(matcher->data)[1];
    CHECK(*word > 0 && *word <= count);
    return RC_OK;
}

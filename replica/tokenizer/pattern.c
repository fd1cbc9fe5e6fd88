/*
 * pattern: the one door to PCRE2. A text that comes piece by piece is matched by its hard partial
 * matching: as soon as a match could go on, or a look ahead reaches the end, it asks for more, so
 * that words are the same wherever the pieces end. \s and \S are written as \p{White_Space}, which
 * PCRE2's own \s is but for one code point (U+180E). Steps of a match are limited, as patterns come
 * from files.
 */
#include "replica/tokenizer/pattern.h"

#include "base/check.h"
#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { STEPS_MAX = 1000000, HEAP_KIB_MAX = 64 * 1024, REASON_BYTES = 128 };

const char pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct pattern {
    pcre2_code *code;
};

struct matcher {
    const pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

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

enum rc pattern_create(const char *text, struct pattern **pattern, struct fault *why)
{
    char *spelt = spell_spaces(text);
    struct pattern *made = mem_alloc(sizeof *made);
    uint32_t behind = 0;
    PCRE2_SIZE where = 0;
    int error = 0;
    enum rc rc = RC_OK;

    if (spelt == NULL || made == NULL) {
        rc = fault_set(why, RC_NOMEM, "out of memory");
        goto out;
    }
    made->code =
        pcre2_compile((PCRE2_SPTR)spelt, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, NULL);
    if (made->code == NULL) {
        PCRE2_UCHAR reason[REASON_BYTES] = "";
        (void)pcre2_get_error_message(error, reason, sizeof reason);
        rc = fault_set(why, RC_PARSE, "its pattern '%.80s' cannot be read: %s", text,
                       (const char *)reason);
        goto out;
    }
    (void)pcre2_pattern_info(made->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    if (behind > 0) {
        rc = fault_set(why, RC_UNSUPPORTED, "its pattern '%.80s' looks behind, which is not read",
                       text);
        goto out;
    }
    /* Where a system allows no code made at run time, patterns are interpreted. */
    (void)pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    *pattern = made;
    made = NULL;
out:
    pattern_destroy(made);
    mem_free(spelt);
    return rc;
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
    made->context = pcre2_match_context_create(NULL);
    if (made->data == NULL || made->context == NULL) {
        matcher_destroy(made);
        return NULL;
    }
    (void)pcre2_set_match_limit(made->context, STEPS_MAX);
    (void)pcre2_set_heap_limit(made->context, HEAP_KIB_MAX);
    return made;
}

void matcher_destroy(struct matcher *matcher)
{
    if (matcher == NULL) return;
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    mem_free(matcher);
}

enum match matcher_next(struct matcher *matcher, const uint8_t *text, size_t count, size_t from,
                        bool is_whole, size_t *begin, size_t *end)
{
    const uint32_t options =
        PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (is_whole ? 0 : PCRE2_PARTIAL_HARD);
    const PCRE2_SIZE *found;
    int rc;

    CHECK(from <= count);
    rc = pcre2_match(matcher->code, text, count, from, options, matcher->data, matcher->context);
    if (rc == PCRE2_ERROR_PARTIAL) return MATCH_MORE;
    if (rc == PCRE2_ERROR_NOMATCH) return is_whole ? MATCH_NONE : MATCH_MORE;
    if (rc < 0) return MATCH_TOO_LONG;
    found = pcre2_get_ovector_pointer(matcher->data);
    if (found[0] < from || found[1] <= found[0] || found[1] > count) return MATCH_TOO_LONG;
    *begin = found[0];
    *end = found[1];
    return MATCH_WORD;
}

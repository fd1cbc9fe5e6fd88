/*
 * pattern: the regular expression that cuts a text into words before tokens are looked for, with
 * Unicode's classes (PCRE2). White space is Unicode's White_Space, as for the tokenizers library.
 */
#ifndef GRAPEVINE_REPLICA_TOKENIZER_PATTERN_H
#define GRAPEVINE_REPLICA_TOKENIZER_PATTERN_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PATTERN_BYTES_MAX = 4096 };

/** GPT-2's: contractions, words, numbers, other signs, each with a space in front, and spaces. */
extern const char pattern_gpt2[];

struct pattern; /* immutable */
struct matcher; /* room for one thread's matches */

/** RC_PARSE: PCRE2 cannot read it; RC_UNSUPPORTED: it looks behind, which a text that comes piece
 *  by piece cannot have; RC_NOMEM. */
MUST_USE enum rc pattern_create(const char *text, struct pattern **pattern, struct fault *why);
void pattern_destroy(struct pattern *pattern);

/** NULL: out of memory. Keeps `pattern`. */
struct matcher *matcher_create(const struct pattern *pattern);
void matcher_destroy(struct matcher *matcher);

enum match {
    MATCH_WORD,
    MATCH_MORE,    /* the text goes on, and what comes next decides */
    MATCH_NONE,    /* from here to the end nothing matches */
    MATCH_TOO_LONG /* it takes more steps than any sensible pattern */
};

/** The first match of `text`, valid UTF-8, at or behind `from`; never empty. `is_whole`: nothing
 *  follows it. */
enum match matcher_next(struct matcher *matcher, const uint8_t *text, size_t count, size_t from,
                        bool is_whole, size_t *begin, size_t *end);

#endif

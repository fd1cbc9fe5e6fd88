/*
 * pattern: the regular expression that cuts a text into words before tokens are looked for, with
 * Unicode's classes (PCRE2). White space is Unicode's White_Space, as for the tokenizers library.
 * Only patterns of public tokenizers are known: a word of each begins wherever the one before ends,
 * and is found in steps of the order of its length, which nobody could say of any other.
 */
#ifndef GRAPEVINE_REPLICA_TOKENIZER_PATTERN_H
#define GRAPEVINE_REPLICA_TOKENIZER_PATTERN_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** GPT-2's: contractions, words, numbers, other signs, each with a space in front, and spaces. */
extern const char pattern_gpt2[];

struct pattern; /* immutable */
struct matcher; /* room for one thread's matches */

/** The i-th that is known; NULL behind the last. */
const char *pattern_known(size_t i);
/** RC_UNSUPPORTED: it is none of those known; RC_NOMEM. `with_jit`: as machine code where a system
 *  allows it, which finds the same words sooner. */
MUST_USE enum rc pattern_create(const char *text, bool with_jit, struct pattern **pattern,
                                struct fault *why);
void pattern_destroy(struct pattern *pattern);
/** That of pattern_known() which it is. */
const char *pattern_text(const struct pattern *pattern);

/** NULL: out of memory. Keeps `pattern`. */
struct matcher *matcher_create(const struct pattern *pattern);
void matcher_destroy(struct matcher *matcher);

/** The bytes of the word with which `text`, valid UTF-8 and not empty, begins; 0: it goes on, and
 *  what comes next decides. `is_whole`: nothing follows `text`. RC_NOMEM. */
MUST_USE enum rc matcher_word(struct matcher *matcher, const uint8_t *text, size_t count,
                              bool is_whole, size_t *word);

#endif

/*
 * tokenizer: text as tokens, by the byte-level BPE of GPT-2 and its kin (Radford et al. 2019), read
 * from the files in which they are published. Any bytes are encoded and come back as they were:
 * what is no UTF-8 becomes tokens of single bytes. A tokenizer is immutable; any thread.
 */
#ifndef GRAPEVINE_REPLICA_TOKENIZER_TOKENIZER_H
#define GRAPEVINE_REPLICA_TOKENIZER_TOKENIZER_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_NO_TOKEN UINT32_MAX

struct tokenizer;

/** Read `path`: a tokenizer.json; a vocab.bpe or merges.txt, with encoder.json or vocab.json beside
 *  it, or else numbered as GPT-2 numbers its tokens; or a folder with one of them. RC_NOT_FOUND,
 *  RC_FORMAT, RC_UNSUPPORTED (named), RC_LIMIT, RC_NOMEM, RC_IO. */
MUST_USE enum rc tokenizer_open(const char *path, struct tokenizer **tokenizer, struct fault *why);
/** The first of tokenizer.json, vocab.bpe and merges.txt that is a file in `folder`, which is "" or
 *  ends with '/'. False: there is none. */
bool tokenizer_find(const char *folder, char *found, size_t bytes);
/** NULL is fine. */
void tokenizer_close(struct tokenizer *tokenizer);
/** How many numbers there are: all are below. */
uint32_t tokenizer_symbols(const struct tokenizer *tokenizer);
/** Of everything that decides what a text becomes: equal digests, equal tokens. */
struct digest tokenizer_digest(const struct tokenizer *tokenizer);
/** The token that ends a text; TOKENIZER_NO_TOKEN: there is none. */
uint32_t tokenizer_end(const struct tokenizer *tokenizer);
/** What a token stands for; no bytes where the number has no token. */
const uint8_t *tokenizer_bytes(const struct tokenizer *tokenizer, uint32_t token, size_t *count);

/* For who writes tokenizers in other forms: */

enum { TOKENIZER_SPELLING_BYTES = 2048 }; /* of any token's bytes, spelt */

/** A token that is looked for in texts as it stands, and no merge leads to. */
bool tokenizer_is_added(const struct tokenizer *tokenizer, uint32_t token);
/** The two tokens of a merge, in the order in which they were learned; false past the last. */
bool tokenizer_merge(const struct tokenizer *tokenizer, size_t rank, uint32_t pair[2]);
/** Its words are those of GPT-2's pattern, and of each the pair of the lowest rank is joined first,
 *  whether the word is a token or not. */
bool tokenizer_is_gpt2s(const struct tokenizer *tokenizer);
/** Bytes as such files spell them, a character of UTF-8 each, without NUL; returns how many bytes
 *  that takes, up to twice `count`. */
size_t tokenizer_spell(const uint8_t *bytes, size_t count, char *text);

/* Numbers of tokens, one after another. All zero at first. */
struct token_list {
    uint32_t *tokens;
    size_t count, cap;
};

/** RC_NOMEM. */
MUST_USE enum rc token_list_add(struct token_list *list, uint32_t token);
void token_list_deinit(struct token_list *list);

/* A text that comes piece by piece; one thread. Its tokens are the same wherever the pieces end. Of
 * a word of more than 256 KiB the first so many bytes, in whole characters, are one. */
struct encoder;

/** Keeps `tokenizer`. NULL: out of memory. */
struct encoder *encoder_create(const struct tokenizer *tokenizer);
void encoder_destroy(struct encoder *encoder);
/** Append the tokens that are sure by now; `is_last` ends the text, and another may begin.
 *  RC_NOMEM. */
MUST_USE enum rc encoder_add(struct encoder *encoder, const void *bytes, size_t count, bool is_last,
                             struct token_list *out);
/** A whole text at once. */
MUST_USE enum rc tokenizer_encode(const struct tokenizer *tokenizer, const void *bytes,
                                  size_t count, struct token_list *out);

#endif

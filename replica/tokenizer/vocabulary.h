/*
 * vocabulary: the tokens of a byte-level BPE, each a run of bytes with a number, and the merges in
 * the order in which they were learned. Filled once from a file, then only read; any thread.
 */
#ifndef GRAPEVINE_REPLICA_TOKENIZER_VOCABULARY_H
#define GRAPEVINE_REPLICA_TOKENIZER_VOCABULARY_H

#include "base/hash.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VOCABULARY_TOKENS_MAX = 1 << 20,
    VOCABULARY_MERGES_MAX = 1 << 20,
    VOCABULARY_TOKEN_BYTES = 1024 /* of one token at most */
};

#define VOCABULARY_NONE UINT32_MAX

/* Two tokens that become one. */
struct merge {
    uint32_t left, right, result;
};

struct token {
    size_t at; /* in `bytes` */
    uint16_t count;
    bool is_there; /* numbers may have gaps */
    bool is_apart; /* no merge leads to it, and no word is it: an added token */
};

struct vocabulary {
    struct token *tokens;
    uint32_t count, cap; /* numbers are below `count` */
    uint8_t *bytes;
    size_t bytes_count, bytes_cap;
    uint32_t *by_bytes; /* hash table of numbers, [slots]; VOCABULARY_NONE: empty */
    uint32_t slots, filled;
    struct merge *merges;
    uint32_t merges_count, merges_cap;
    uint32_t *by_pair; /* hash table of ranks, [pair_slots] */
    uint32_t pair_slots;
    uint32_t of_byte[256]; /* the token of each byte alone */
};

/** Fine for an empty one ({0}). */
void vocabulary_deinit(struct vocabulary *vocabulary);
/** RC_FORMAT: the number has a token, or the bytes have a number; RC_LIMIT; RC_NOMEM. */
MUST_USE enum rc vocabulary_add(struct vocabulary *vocabulary, uint32_t number, const void *bytes,
                                size_t count, bool is_apart);
/** The token that is these bytes, of those that words are made of; VOCABULARY_NONE: there is none.
 */
uint32_t vocabulary_find(const struct vocabulary *vocabulary, const void *bytes, size_t count);
const uint8_t *vocabulary_bytes(const struct vocabulary *vocabulary, uint32_t number,
                                size_t *count);
/** The next merge. RC_LIMIT, RC_NOMEM. */
MUST_USE enum rc vocabulary_merge(struct vocabulary *vocabulary, struct merge merge);
/** After the last merge. RC_FORMAT: a byte has no token (`*byte`), or a pair is merged twice
 *  (`*byte` is 256). RC_NOMEM. */
MUST_USE enum rc vocabulary_complete(struct vocabulary *vocabulary, unsigned *byte);
/** The rank of the merge of two tokens; VOCABULARY_NONE: they are not merged. */
uint32_t vocabulary_rank(const struct vocabulary *vocabulary, uint32_t left, uint32_t right);
/** Everything that decides which numbers a text becomes. */
void vocabulary_hash(const struct vocabulary *vocabulary, struct hash *hash);

#endif

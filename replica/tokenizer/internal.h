/*
 * What a tokenizer is made of, for those that read it from files. Nothing outside this folder
 * includes it.
 */
#ifndef GRAPEVINE_REPLICA_TOKENIZER_INTERNAL_H
#define GRAPEVINE_REPLICA_TOKENIZER_INTERNAL_H

#include "replica/tokenizer/pattern.h"
#include "replica/tokenizer/tokenizer.h"
#include "replica/tokenizer/vocabulary.h"

enum { TOKENIZER_FILE_BYTES = 64 << 20, TOKENIZER_ADDED_MAX = 4096 };

struct tokenizer {
    struct vocabulary vocabulary;
    struct pattern *pattern;
    bool whole_first; /* "ignore_merges": a word that is a token stays one */
    uint32_t *added;  /* tokens that are looked for before anything else, the longest first */
    size_t added_count, added_bytes; /* bytes of the longest */
    bool begins[256];                /* an added token begins with this byte */
    struct digest digest;
    uint32_t end;
};

/** Put in the pattern and what follows from all parts. `pattern` is its text as published. */
MUST_USE enum rc tokenizer_complete(struct tokenizer *tokenizer, const char *pattern,
                                    struct fault *why);
/** A token that is looked for in texts as it stands. */
MUST_USE enum rc tokenizer_add(struct tokenizer *tokenizer, uint32_t token, const char *text,
                               struct fault *why);

/* A token as files spell it, with a character for each byte, as bytes: see alphabet.c. */
struct spelling {
    uint8_t bytes[VOCABULARY_TOKEN_BYTES];
    size_t count;
    bool is_literal; /* a character of it is none of the alphabet: the text as it stands */
};

/** False: it is too long or empty. */
bool spelling_read(const char *text, size_t count, struct spelling *spelling);
/** The bytes in the order in which GPT-2 numbers them. */
void spelling_order(uint8_t order[256]);

/** Fill in vocabulary, added tokens and all; the caller closes what was begun. `why` is the reason
 *  alone, without the file. */
MUST_USE enum rc tokenizer_read_json(struct tokenizer *tokenizer, const char *text, size_t count,
                                     struct fault *why);
/** The same of a vocab.bpe; `numbers` is the text of the encoder.json beside it, or NULL. */
MUST_USE enum rc tokenizer_read_merges(struct tokenizer *tokenizer, const char *text, size_t count,
                                       const char *numbers, size_t numbers_count,
                                       struct fault *why);

#endif

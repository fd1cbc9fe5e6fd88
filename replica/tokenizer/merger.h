/*
 * merger: the tokens of one word. Byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909) over
 * bytes, as GPT-2 has it: of all neighbours that some merge joins, those of the lowest rank are
 * joined first, the leftmost of them first. A heap of the pairs that may be joined makes it
 * O(n log n); short words are remembered. One thread.
 */
#ifndef GRAPEVINE_REPLICA_TOKENIZER_MERGER_H
#define GRAPEVINE_REPLICA_TOKENIZER_MERGER_H

#include "replica/tokenizer/vocabulary.h"

enum { MERGER_WORD_BYTES = 256 * 1024 };

struct merger;

/** Keeps `vocabulary`. `whole_first`: a word that is a token is not merged (Llama 3). NULL: out of
 *  memory. */
struct merger *merger_create(const struct vocabulary *vocabulary, bool whole_first);
void merger_destroy(struct merger *merger);
/** The tokens of a word of 1 to MERGER_WORD_BYTES bytes; they stay until the next call. NULL: out
 *  of memory. */
const uint32_t *merger_word(struct merger *merger, const uint8_t *word, size_t count,
                            size_t *tokens);

#endif

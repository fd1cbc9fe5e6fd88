/*
 * token_file: files of token numbers, little-endian, 16 or 32 bits each. llm.c's have a header of
 * 256 words: magic number, version, count; ours say after these how many numbers there may be, and
 * the digest of the tokenizer, which others pass over. Without a header (nanoGPT) a file is numbers
 * from its first byte.
 */
#ifndef GRAPEVINE_REPLICA_READERS_TOKEN_FILE_H
#define GRAPEVINE_REPLICA_READERS_TOKEN_FILE_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_HEADER_BYTES = 1024 };

struct token_form {
    uint32_t width;   /* bytes a number: 2 or 4; as read: 0, where the file has no header */
    uint32_t symbols; /* all numbers are below; 0: not said */
    uint64_t tokens, offset;
    bool has_digest;
    struct digest digest; /* of the tokenizer */
};

/** What the first bytes of a file of `bytes` bytes say; `head` has TOKEN_HEADER_BYTES of them, or
 *  all. RC_FORMAT: a header that the rest contradicts. */
MUST_USE enum rc token_form_read(const uint8_t *head, uint64_t bytes, struct token_form *form,
                                 struct fault *why);
/** The header for `form`; `offset` is not read. Up to INT32_MAX tokens. */
void token_form_write(const struct token_form *form, uint8_t head[TOKEN_HEADER_BYTES]);

#endif

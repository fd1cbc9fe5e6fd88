/*
 * export_gguf: a language model of GPT-2's form as a GGUF file, version 3, for llama.cpp and its
 * kin: architecture "gpt2", all values float32, the tokens and merges of its tokenizer inside.
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Commands.
 */
#ifndef GRAPEVINE_REPLICA_FORMATS_EXPORT_GGUF_H
#define GRAPEVINE_REPLICA_FORMATS_EXPORT_GGUF_H

#include "base/fault.h"
#include "base/rc.h"

struct model;
struct model_card;
struct tokenizer;

/** `tokenizer`: the model's, NULL where its tokens are bytes or nobody knows what they are. `name`
 *  is told to who opens the file. RC_UNSUPPORTED: the model is of another form, or the tokenizer's
 *  words are not found as GPT-2's; RC_NOMEM, RC_DISK_FULL, RC_IO. The model lies in memory of the
 *  host. */
MUST_USE enum rc export_gguf(const struct model *model, const struct model_card *card,
                             const struct tokenizer *tokenizer, const char *name, const char *path,
                             struct fault *why);

#endif

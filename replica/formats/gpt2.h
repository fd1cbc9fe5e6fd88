/*
 * gpt2: models of GPT-2's form (Radford et al. 2019) in the names of Hugging Face's files
 * (transformer.h.0.attn.c_attn.weight, ...): read as any model file is, and written by `export --to
 * safetensors`. Their dense layers ("Conv1D") hold [in][out] where ours hold [out][in]. Commands.
 */
#ifndef GRAPEVINE_REPLICA_FORMATS_GPT2_H
#define GRAPEVINE_REPLICA_FORMATS_GPT2_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stdint.h>

struct model;
struct model_card;
struct tensor_file;

struct gpt2_form {
    uint32_t layers, heads, width, inner, context, symbols;
    bool is_tied;
    bool is_exact; /* GELU; otherwise by tanh, as in GPT-2 itself */
};

/** Whether the tensors have Hugging Face's names for GPT-2, with or without `transformer.`. */
bool gpt2_is_file(const struct tensor_file *file);
/** The card of such a file: layers, width and context from its shapes; heads from its metadata
 *  (n_head) or of 64 values each; GELU by tanh unless they say activation_function "gelu".
 *  RC_FORMAT, RC_SHAPE. */
MUST_USE enum rc gpt2_card_read(const struct tensor_file *file, const char *name,
                                struct model_card *card, struct fault *why);
/** Fill the parameters of a model that was created from that card. F32, F16 and BF16; RC_FORMAT,
 *  RC_SHAPE, RC_NONFINITE, RC_NOMEM. */
MUST_USE enum rc gpt2_fill(struct model *model, const struct tensor_file *file, const char *name,
                           struct fault *why);
/** Whether the model has the form that such files hold. */
bool gpt2_is_form(const struct model *model);
/** The same; `form` is then what it is. */
bool gpt2_form_of(const struct model *model, struct gpt2_form *form);
/** Write it to `path` under those names, with what is needed to read it back in the metadata. */
MUST_USE enum rc gpt2_save(const struct model *model, const struct model_card *card,
                           const char *path, struct fault *why);

#endif

/*
 * model_file: models as files, and what a file says about its model. Files of GPT-2's form in
 * Hugging Face's names (gpt2.h) are model files, too.
 */
#ifndef GRAPEVINE_REPLICA_FORMATS_MODEL_FILE_H
#define GRAPEVINE_REPLICA_FORMATS_MODEL_FILE_H

#include "base/hash.h"
#include "replica/model/model.h"

struct tensor_file;

enum {
    MODEL_SYMBOLS_MAX = 256,
    MODEL_TOKENIZER_BYTES = 256,
    MODEL_PATH_BYTES = 4096,
    MODEL_WORDS_BYTES = 2048,
    MODEL_COLUMNS_BYTES = 8192
};

/* What a model file says about itself, besides its tensors. */
struct model_card {
    char spec[2048];
    char data[256]; /* the --data spec it was trained on */
    enum model_input input;
    bool is_regression; /* `classes` real values */
    uint32_t channels, height, width, classes, symbols;
    uint8_t symbol_bytes[MODEL_SYMBOLS_MAX]; /* text: the byte of each symbol */
    bool has_symbol_bytes;                   /* as read: the bytes are known, and all different */
    char class_words[MODEL_WORDS_BYTES];     /* of each class a word and '\n'; "": numbers */
    char column_words[MODEL_COLUMNS_BYTES];  /* the same of each number read; "": by place */
    bool has_tokenizer;                      /* its tokens are those of a tokenizer */
    char tokenizer[MODEL_TOKENIZER_BYTES];   /* the file it was read from; "": not known */
    struct digest tokenizer_digest;
    uint64_t step, samples;
    uint64_t input_members, input_samples; /* input.mean and input.scale are of so many members of a
                                              swarm and their samples; 0: they are the data's */
};

/** Add parameters, buffers and card to `file` (values borrowed). */
MUST_USE enum rc model_save(struct model *model, const struct model_card *card,
                            struct tensor_file *file);
/** The same with weights in less room (packed.h): as int8, or as they are but for zeros. */
MUST_USE enum rc model_save_packed(struct model *model, const struct model_card *card, bool is_int8,
                                   struct tensor_file *file);
/** As model_save(), as a file of its own, replaced as one. */
MUST_USE enum rc model_save_as(struct model *model, const struct model_card *card, const char *path,
                               struct fault *why);
/** Read and check the card of a model file: RC_FORMAT and what is missing or out of range. */
MUST_USE enum rc model_card_read(const struct tensor_file *file, const char *name,
                                 struct model_card *card, struct fault *why);
/** Rebuild a model from its file; every tensor must be there with its shape and be finite. */
MUST_USE enum rc model_load(struct backend *backend, const struct tensor_file *file,
                            const char *name, uint32_t batch_max, bool with_gradients,
                            struct model **model, struct model_card *card, struct fault *why);

/** How files say which tokenizer a card has: two entries of the metadata, or none. */
MUST_USE enum rc model_tokenizer_write(const struct model_card *card, struct tensor_file *file);
/** RC_FORMAT: they are there and malformed. */
MUST_USE enum rc model_tokenizer_read(const struct tensor_file *file, const char *name,
                                      struct model_card *card, struct fault *why);

/** Where the tokenizer of a model is: `given` (may be NULL), or the file that its card states, or
 *  one in the folder of the model file. False, and `found` is "": there is none. */
bool model_tokenizer_find(const struct model_card *card, const char *path, const char *given,
                          char found[MODEL_PATH_BYTES]);
/** RC_MISMATCH: the model was trained with another one, with none, or with one that is not at hand
 *  (`digest` is NULL), and what to do. */
MUST_USE enum rc model_tokenizer_check(const struct model_card *card, const char *path,
                                       const struct digest *digest, struct fault *why);

struct model_load_options {
    uint32_t batch_max;
    bool with_gradients;
    uint32_t steps;   /* of the sequences, up to card.width; 0: card.width */
    bool is_stepwise; /* see model_options */
};
/** The same, for sequences shorter than the model was trained on. */
MUST_USE enum rc model_load_with(struct backend *backend, const struct tensor_file *file,
                                 const char *name, const struct model_load_options *options,
                                 struct model **model, struct model_card *card, struct fault *why);

#endif

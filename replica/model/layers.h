/*
 * layers: the layer list of `--model`: words such as `conv3x3:32 bn relu maxpool2 linear:classes`,
 * groups repeated as `( ... )*3`, blocks of branches as `[ ... | ... ]+`, and the presets that
 * stand for a list. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_MODEL_LAYERS_H
#define GRAPEVINE_REPLICA_MODEL_LAYERS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum layer_kind {
    LAYER_CONV,
    LAYER_LOCAL, /* locally connected: a convolution whose filters differ from pixel to pixel */
    LAYER_MAXPOOL,
    LAYER_AVGPOOL,
    LAYER_GLOBALPOOL,
    LAYER_SHORTCUT,
    LAYER_BATCH_NORM,
    LAYER_GROUP_NORM,
    LAYER_LAYER_NORM,
    LAYER_ACTIVATION,
    LAYER_DROPOUT,
    LAYER_LINEAR,
    LAYER_EMBED,
    LAYER_POSITIONS,
    LAYER_ATTENTION,
    LAYER_RECURRENT,
    LAYER_ROWS,
    LAYER_LAST,
    LAYER_OPEN,   /* `[` */
    LAYER_BRANCH, /* `|` */
    LAYER_SUM,    /* `]+` */
    LAYER_CONCAT, /* `]concat` */
    LAYER_HEADS   /* `]heads`, and `]*N` for N equal ones */
};

enum layer_key {
    LAYER_STRIDE,
    LAYER_PAD,
    LAYER_DILATION,
    LAYER_GROUPS,
    LAYER_BIAS,
    LAYER_WN, /* weight normalisation */
    LAYER_TIED,
    LAYER_ROTARY,
    LAYER_CAUSAL,
    LAYER_TRUNCATE,
    LAYER_KEYS
};

enum { LAYERS_MAX = 512, LAYER_WIDTH_MAX = 1 << 20, LAYERS_TEXT_BYTES = 2048, LAYER_BYTES = 96 };

struct layer {
    enum layer_kind kind;
    uint32_t variant;       /* enum activation_kind or enum recurrent_kind */
    uint32_t height, width; /* of a filter or window */
    /* Behind the colon: channels, outputs, hidden values, heads, groups, steps, samples. */
    uint32_t count;
    double real; /* the same for dropout (rate) and leaky (slope) */
    uint32_t keys[LAYER_KEYS];
    uint32_t given;  /* bit k: key k stands in the spec; the others have their defaults */
    bool is_classes; /* the count was written `classes` */
    uint32_t column; /* in the spec as given; 0 when it came from a preset */
};

struct layer_list {
    struct layer layers[LAYERS_MAX];
    uint32_t count;
};

/** RC_PARSE with the column, RC_LIMIT. */
MUST_USE enum rc layers_parse(const char *spec, uint32_t classes, struct layer_list *list,
                              struct fault *why);
/** The list as text with presets and groups written out; RC_LIMIT when `cap` does not hold it. */
MUST_USE enum rc layers_format(const struct layer_list *list, char *text, size_t cap);
/** `conv3x3:32` and the like into `text`, for messages. Returns `text`. */
char *layer_format(const struct layer *layer, char *text, size_t cap);
#define LAYERS_FACTOR_MIN 0.01
#define LAYERS_FACTOR_MAX 16.0
/** The layer list a preset stands for, of `mlp` or `mlp*0.5`; NULL if `name` is none. `factor` (may
 *  be NULL) is what stands behind the star, 1 without one, 0 if it is no number in the bounds. */
const char *layers_preset(const char *name, double *factor);
/** Multiply the widths of all layers but the last, each rounded to the nearest number, at least 1;
 *  with attention to the nearest multiple of its heads. */
void layers_scale(struct layer_list *list, double factor);
/** Name of preset number `i`; NULL behind the last. */
const char *layers_preset_name(size_t i);
/** What a preset is trained with unless told otherwise, and for how long: `steps`, or `epochs`
 * where that is 0; enough to be good, not enough to bore. Layer lists get what the preset gets that
 * they resemble. */
struct layers_training {
    const char *optimizer;
    uint32_t batch;
    uint32_t steps;
    double epochs;
};
struct layers_training layers_training(const char *spec);
/** Whether the spec or preset begins with an embedding: its data are tokens. */
bool layers_read_tokens(const char *spec);
/** Steps of the sequences that a spec or preset has learned positions for; 0: any number, or it
 *  cannot be parsed. */
uint32_t layers_context(const char *spec);

static inline bool layer_has(const struct layer *layer, enum layer_key key)
{
    return (layer->given & (1u << key)) != 0;
}

#endif

/*
 * layers: the layer list of `--model`: words such as `conv3x3:32 relu maxpool2 linear:classes`,
 * groups repeated as `( ... )*3`, and the presets that stand for a list. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_LAYERS_H
#define GRAPEVINE_REPLICA_LAYERS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum layer_kind { LAYER_CONV, LAYER_RELU, LAYER_MAXPOOL, LAYER_LINEAR };

enum { LAYERS_MAX = 256, LAYER_WIDTH_MAX = 1 << 20, LAYERS_TEXT_BYTES = 2048 };

struct layer {
    enum layer_kind kind;
    uint32_t size;   /* conv: side of the filter; maxpool: side of the window */
    uint32_t width;  /* conv: output channels; linear: outputs */
    bool is_classes; /* the width was written `classes` */
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
/** The layer list a preset stands for; NULL if `name` is none. */
const char *layers_preset(const char *name);

#endif

/*
 * random_model: layer lists that fit together, from a seed: images and sequences, nested blocks,
 * every kind of layer. For tests that ask something of all models.
 */
#ifndef GRAPEVINE_TESTS_PROPERTY_RANDOM_MODEL_H
#define GRAPEVINE_TESTS_PROPERTY_RANDOM_MODEL_H

#include "base/check.h"
#include "base/rng.h"
#include "replica/model/model.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { RANDOM_MODEL_CLASSES = 4, RANDOM_MODEL_SYMBOLS = 9 };

enum random_form { FORM_IMAGE, FORM_VECTOR, FORM_SEQUENCE };

struct random_model {
    char spec[LAYERS_TEXT_BYTES];
    struct model_options options; /* .spec is the one above */
    struct rng rng;
    enum random_form form;
    uint32_t channels, height, width; /* of the values now; channels also of vectors and rows */
    uint32_t depth;                   /* of blocks around */
};

static inline uint32_t pick(struct random_model *m, uint32_t below)
{
    return (uint32_t)rng_below(&m->rng, below);
}

static inline void say(struct random_model *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void say(struct random_model *m, const char *format, ...)
{
    size_t at = strlen(m->spec);
    va_list arguments;

    if (at > 0) m->spec[at++] = ' ';
    va_start(arguments, format);
    vsnprintf(m->spec + at, sizeof(m->spec) - at, format, arguments);
    va_end(arguments);
}

static inline const char *random_activation(struct random_model *m)
{
    static const char *const names[] = {"relu", "relu",    "leaky:0.2", "gelu",
                                        "silu", "sigmoid", "tanh"};

    return names[pick(m, ARRAY_COUNT(names))];
}

static inline uint32_t divisor_of(struct random_model *m, uint32_t n)
{
    uint32_t d = 1 + pick(m, n < 8 ? n : 8);

    while (n % d != 0) {
        d--;
    }
    return d;
}

/* A convolution that keeps the image's size, or halves it. */
static inline void random_conv(struct random_model *m, bool keeps_shape)
{
    static const uint32_t widths[] = {3, 4, 8, 16, 32};
    uint32_t to = keeps_shape ? m->channels : widths[pick(m, ARRAY_COUNT(widths))];
    uint32_t side = 1 + 2 * pick(m, 3), stride = keeps_shape ? 1 : 1 + pick(m, 2);
    uint32_t groups = divisor_of(m, m->channels);

    if (pick(m, 3) > 0 || to % groups != 0) groups = 1;
    if (!keeps_shape && pick(m, 8) == 0) {
        to = 3;
        say(m, "local3x3:%u,stride=%u", to, stride);
    } else {
        say(m, "conv%ux%u:%u,stride=%u,groups=%u,wn=%d", side, side, to, stride, groups,
            pick(m, 6) == 0);
    }
    m->channels = to;
    m->height = (m->height - 1) / stride + 1;
    m->width = (m->width - 1) / stride + 1;
    if (pick(m, 2) == 0) say(m, pick(m, 3) == 0 ? "bn:5" : "bn");
    if (pick(m, 2) == 0) say(m, "%s", random_activation(m));
}

static inline void random_pool(struct random_model *m)
{
    if (m->height < 2 || m->width < 2) return;
    say(m, "%spool2", pick(m, 2) == 0 ? "max" : "avg");
    m->height /= 2;
    m->width /= 2;
}

static inline void random_image_layer(struct random_model *m, bool keeps_shape)
{
    switch (pick(m, keeps_shape ? 6 : 9)) {
    case 0:
        say(m, "gn:%u", divisor_of(m, m->channels));
        break;
    case 1:
        say(m, "bn");
        break;
    case 2:
        say(m, "%s", random_activation(m));
        break;
    case 3:
        say(m, "%spool3,stride=1,pad=1", pick(m, 2) == 0 ? "max" : "avg");
        break;
    case 6:
        random_pool(m);
        break;
    case 7:
        say(m, "shortcut:%u", m->channels + 8 * pick(m, 2));
        sscanf(strrchr(m->spec, ':'), ":%u", &m->channels);
        break;
    default:
        random_conv(m, keeps_shape);
        break;
    }
}

static inline void random_dense(struct random_model *m, uint32_t to)
{
    static const char *const keys[] = {"", "", ",wn=1", ",bias=0"};

    say(m, "linear:%u%s", to, keys[pick(m, ARRAY_COUNT(keys))]);
    m->channels = to;
    m->form = m->form == FORM_IMAGE ? FORM_VECTOR : m->form;
    if (pick(m, 4) == 0) say(m, "bn");
    if (pick(m, 2) == 0) say(m, "%s", random_activation(m));
}

static inline void random_flat_layer(struct random_model *m, bool keeps_shape)
{
    uint32_t to = keeps_shape ? m->channels : 4 + 4 * pick(m, 4);
    bool is_sequence = m->form == FORM_SEQUENCE;

    switch (pick(m, is_sequence ? 7 : 4)) {
    case 0:
        say(m, "ln");
        break;
    case 1:
        say(m, "dropout:0.%u", 1 + pick(m, 5));
        break;
    case 2:
        say(m, "%s", random_activation(m));
        break;
    case 4:
        say(m, "attention:%u,causal=%u,rotary=%d", divisor_of(m, m->channels), pick(m, 2), 0);
        break;
    case 5:
    case 6:
        m->channels = to;
        if (pick(m, 3) == 0) {
            say(m, "positions:%u", 8 + pick(m, 3));
            m->channels = m->channels == to ? to : m->channels;
        }
        say(m, "%s:%u", (const char *[]){"rnn", "gru", "lstm"}[pick(m, 3)], to);
        break;
    default:
        random_dense(m, to);
        break;
    }
}

static inline void random_layer(struct random_model *m, bool keeps_shape);

/* `[ ... | ... ]+` of branches that keep the shape, or `]concat`. */
static inline void random_block(struct random_model *m, bool keeps_shape)
{
    bool is_sum = keeps_shape || pick(m, 3) > 0;
    uint32_t branches = 1 + pick(m, 3), before = m->channels, channels = 0;

    m->depth++;
    say(m, "[");
    for (uint32_t i = 0; i < branches; i++) {
        uint32_t layers = pick(m, 4);
        m->channels = before;
        if (i > 0) say(m, "|");
        for (uint32_t l = 0; l < layers; l++) {
            random_layer(m, true);
        }
        channels += m->channels;
    }
    say(m, is_sum ? "]+" : "]concat");
    m->channels = is_sum ? before : channels;
    m->depth--;
    if (pick(m, 2) == 0) say(m, "relu");
}

static inline void random_layer(struct random_model *m, bool keeps_shape)
{
    if (m->depth < 2 && m->channels <= 64 && strlen(m->spec) < 600 && pick(m, 5) == 0) {
        random_block(m, keeps_shape);
    } else if (m->form == FORM_IMAGE) {
        random_image_layer(m, keeps_shape);
    } else {
        random_flat_layer(m, keeps_shape);
    }
}

/* From images to what a last layer can read; sequences may end in one answer a sample. */
static inline void random_end(struct random_model *m)
{
    uint32_t heads = pick(m, 5) == 0 ? 1 + pick(m, 3) : 0;

    if (m->form == FORM_SEQUENCE && pick(m, 2) == 0) {
        say(m, "last");
        m->form = FORM_VECTOR;
    }
    if (heads > 0) {
        say(m, "[ linear:8 %s linear:classes ]*%u", random_activation(m), heads);
    } else {
        say(m, "linear:classes");
    }
}

static inline void random_input(struct random_model *m)
{
    bool is_tokens = pick(m, 4) == 0;

    m->channels = pick(m, 2) == 0 ? 1 : 3;
    m->height = 3 + pick(m, 6);
    m->width = 3 + pick(m, 6);
    m->form = FORM_IMAGE;
    m->options.input = is_tokens ? MODEL_INPUT_TOKENS : MODEL_INPUT_IMAGE;
    if (is_tokens) {
        m->channels = m->height = 1;
        m->options.symbols = RANDOM_MODEL_SYMBOLS;
    }
    m->options.channels = m->channels;
    m->options.height = m->height;
    m->options.width = m->width;
    if (is_tokens) {
        m->channels = 4 + 4 * pick(m, 3);
        say(m, "embed:%u", m->channels);
        m->form = FORM_SEQUENCE;
        if (pick(m, 2) == 0) say(m, "positions:%u", m->width + pick(m, 3));
    }
}

static inline void random_model_init(struct random_model *m, uint64_t seed)
{
    uint32_t layers;

    *m =
        (struct random_model){.options = {.classes = RANDOM_MODEL_CLASSES, .with_gradients = true}};
    rng_init(&m->rng, seed, 0);
    m->options.seed = seed;
    m->options.batch_max = 1 + pick(m, 40);
    m->options.spec = m->spec;
    random_input(m);
    layers = 1 + pick(m, 5);
    for (uint32_t i = 0; i < layers && strlen(m->spec) < 600; i++) {
        random_layer(m, false);
    }
    if (m->form == FORM_IMAGE && pick(m, 3) == 0) {
        say(m, "rows");
        m->channels *= m->width;
        m->form = FORM_SEQUENCE;
        random_flat_layer(m, false);
    } else if (m->form == FORM_IMAGE && pick(m, 2) == 0) {
        say(m, "globalpool");
        m->form = FORM_VECTOR;
    } else if (m->form == FORM_IMAGE) {
        random_dense(m, 8);
    }
    for (uint32_t i = pick(m, 3); i > 0; i--) {
        random_layer(m, false);
    }
    random_end(m);
}

#endif

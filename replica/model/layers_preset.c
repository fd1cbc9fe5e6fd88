/*
 * The presets of `--model`. The residual nets are those of He et al. 2015 (arXiv:1512.03385): 20 is
 * the CIFAR form with parameter-free shortcuts, 14 its smaller sister, 18 the wider one with a 3x3
 * stem. The language models are GPT-2's form (Radford et al. 2019): normalisation in front of each
 * branch, GELU, exact in nano and micro, which do not tie their head to the embedding, and by tanh
 * in GPT-2's own.
 */
#include "replica/model/layers.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STAGE(channels, more)                                                                      \
    "[ conv3x3:" channels ",stride=2 bn relu conv3x3:" channels " bn | shortcut:" channels         \
    ",stride=2 ]+ relu ( [ conv3x3:" channels " bn relu conv3x3:" channels " bn ]+ relu )*" more   \
    " "
#define STEM(more) "conv3x3:16 bn relu ( [ conv3x3:16 bn relu conv3x3:16 bn ]+ relu )*" more " "
#define WIDE(channels)                                                                             \
    "[ conv3x3:" channels ",stride=2 bn relu conv3x3:" channels " bn | conv1x1:" channels          \
    ",stride=2 bn ]+ relu [ conv3x3:" channels " bn relu conv3x3:" channels " bn ]+ relu "
#define BLOCKS(heads, width, wider, gelu, layers)                                                  \
    "( [ ln attention:" heads " ]+ [ ln linear:" wider " " gelu " linear:" width " ]+ )*" layers   \
    " ln "

#define ADAMW(rate) "adamw:lr=" rate ",beta1=0.9,beta2=0.95,wd=0.1"

static const struct layers_training dense = {"momentum:lr=0.05,beta=0.9", 64, 0, 5.0};
static const struct layers_training filters = {"momentum:lr=0.02,beta=0.9", 64, 0, 3.0};
static const struct layers_training residual = {"momentum:lr=0.1,beta=0.9,wd=1e-4", 64, 0, 10.0};
static const struct layers_training gates = {"adam:lr=1e-3", 32, 1000, 0.0};
static const struct layers_training language = {ADAMW("1e-3"), 32, 1000, 0.0};
static const struct layers_training large = {ADAMW("1e-4"), 4, 100, 0.0}; /* fine-tuning */

static const struct preset {
    const char *name, *spec;
    const struct layers_training *training;
} presets[] = {
    {"mlp", "linear:256 relu linear:128 relu linear:classes", &dense},
    {"cnn", "conv3x3:32 relu conv3x3:64 relu maxpool2 linear:128 relu linear:classes", &filters},
    {"resnet14", STEM("2") STAGE("32", "1") STAGE("64", "1") "globalpool linear:classes",
     &residual},
    {"resnet18",
     "conv3x3:64 bn relu ( [ conv3x3:64 bn relu conv3x3:64 bn ]+ relu )*2 " WIDE("128") WIDE("256")
         WIDE("512") "globalpool linear:classes",
     &residual},
    {"resnet20", STEM("3") STAGE("32", "2") STAGE("64", "2") "globalpool linear:classes",
     &residual},
    {"lstm", "embed:256 lstm:256 lstm:256 linear:classes", &gates},
    {"gpt-nano",
     "embed:128 positions:128 " BLOCKS("4", "128", "512", "gelu", "4") "linear:classes,bias=0",
     &language},
    {"gpt-micro",
     "embed:256 positions:256 " BLOCKS("8", "256", "1024", "gelu", "6") "linear:classes,bias=0",
     &language},
    {"gpt2-small",
     "embed:768 positions:1024 " BLOCKS("12", "768", "3072", "gelu-tanh",
                                        "12") "linear:classes,bias=0,tied=1",
     &large},
    {"treenet",
     "conv3x3:32 relu maxpool2 [ conv3x3:64 relu maxpool2 linear:64 relu "
     "linear:classes ]*4",
     &filters},
};

/* Digits with a point in them or not, the whole text. 0: it is none, or out of bounds. */
static double parse_factor(const char *text)
{
    static const char digits[] = "0123456789";
    const size_t whole = strspn(text, digits);
    const size_t behind = text[whole] == '.' ? strspn(text + whole + 1, digits) : 0;
    const size_t length = whole + (behind > 0 ? behind + 1 : 0);

    if (whole == 0 || length > 12 || text[length] != '\0') return 0;
    const double factor = strtod(text, NULL);
    return factor >= LAYERS_FACTOR_MIN && factor <= LAYERS_FACTOR_MAX ? factor : 0;
}

/* `mlp` or `mlp*0.5`. */
static const struct preset *find(const char *spec, double *factor)
{
    for (size_t i = 0; i < ARRAY_COUNT(presets); i++) {
        const size_t length = strlen(presets[i].name);
        if (strncmp(presets[i].name, spec, length) != 0) continue;
        if (spec[length] != '\0' && spec[length] != '*') continue;
        if (factor != NULL) *factor = spec[length] == '*' ? parse_factor(spec + length + 1) : 1;
        return &presets[i];
    }
    return NULL;
}

const char *layers_preset(const char *name, double *factor)
{
    const struct preset *preset = find(name, factor);

    return preset != NULL ? preset->spec : NULL;
}

static bool is_scaled(const struct layer *layer)
{
    static const enum layer_kind wide[] = {LAYER_CONV,   LAYER_LOCAL, LAYER_SHORTCUT,
                                           LAYER_LINEAR, LAYER_EMBED, LAYER_RECURRENT};

    for (size_t i = 0; i < ARRAY_COUNT(wide); i++) {
        if (layer->kind == wide[i]) return !layer->is_classes;
    }
    return false;
}

void layers_scale(struct layer_list *list, double factor)
{
    uint32_t multiple = 1;

    for (uint32_t i = 0; i < list->count; i++) {
        if (list->layers[i].kind == LAYER_ATTENTION) multiple = list->layers[i].count;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct layer *layer = &list->layers[i];
        if (!is_scaled(layer)) continue;
        const double wanted = floor(layer->count * factor / multiple + 0.5);
        layer->count = multiple * (wanted < 1 ? 1 : (uint32_t)wanted);
    }
}

const char *layers_preset_name(size_t i)
{
    return i < ARRAY_COUNT(presets) ? presets[i].name : NULL;
}

struct layers_training layers_training(const char *spec)
{
    static const char *const recurrent[] = {"rnn:", "gru:", "lstm:"};
    const struct preset *preset = find(spec, NULL);

    if (preset != NULL) return *preset->training;
    if (strstr(spec, "attention:") != NULL) return language;
    if (strstr(spec, "embed:") != NULL) return gates;
    for (size_t i = 0; i < ARRAY_COUNT(recurrent); i++) {
        if (strstr(spec, recurrent[i]) != NULL) return gates;
    }
    if (strstr(spec, "conv") != NULL) return filters;
    return dense;
}

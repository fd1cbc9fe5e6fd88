/*
 * The presets of `--model`. The residual nets are those of He et al. 2015 (arXiv:1512.03385): 20 is
 * the CIFAR form with parameter-free shortcuts, 14 its smaller sister, 18 the wider one with a 3x3
 * stem. The language models are GPT-2's form (Radford et al. 2019): normalisation in front of each
 * branch, GELU, exact in nano and micro, which do not tie their head to the embedding, and by tanh
 * in GPT-2's own.
 */
#include "replica/model/layers.h"

#include "base/check.h"

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

const char *layers_preset(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(presets); i++) {
        if (strcmp(presets[i].name, name) == 0) return presets[i].spec;
    }
    return NULL;
}

const char *layers_preset_name(size_t i)
{
    return i < ARRAY_COUNT(presets) ? presets[i].name : NULL;
}

struct layers_training layers_training(const char *spec)
{
    static const char *const recurrent[] = {"rnn:", "gru:", "lstm:"};

    for (size_t i = 0; i < ARRAY_COUNT(presets); i++) {
        if (strcmp(presets[i].name, spec) == 0) return *presets[i].training;
    }
    if (strstr(spec, "attention:") != NULL) return language;
    if (strstr(spec, "embed:") != NULL) return gates;
    for (size_t i = 0; i < ARRAY_COUNT(recurrent); i++) {
        if (strstr(spec, recurrent[i]) != NULL) return gates;
    }
    if (strstr(spec, "conv") != NULL) return filters;
    return dense;
}

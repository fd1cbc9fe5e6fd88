/*
 * Names, defaults and numbers of the optimizers. k counts updates from 1, g is the gradient.
 *
 * - momentum, nesterov: m = beta m + g; x -= lr m, or x -= lr (g + beta m): the form that keeps the
 *   rate outside (Polyak 1964; Sutskever et al. 2013), no dampening.
 * - adagrad: s += g^2; x -= lr g / (sqrt(s) + eps) (Duchi, Hazan, Singer 2011).
 * - rmsprop: s = a s + (1 - a) g^2; x as above (Tieleman, Hinton 2012). Without bias
 *   correction the first step is lr / sqrt(1 - a), so warm up.
 * - adam: Kingma, Ba 2014, arXiv:1412.6980; the bias correction is folded into rate and epsilon:
 *   rate m^ / (sqrt(s^) + eps) = (rate sqrt(c2) / c1) m / (sqrt(s) + eps sqrt(c2)),
 *   ci = 1 - betai^k.
 * - adamw: adam after x *= 1 - lr wd (Loshchilov, Hutter 2017, arXiv:1711.05101).
 * - lars, per tensor: v = beta v + lr ratio (g + wd x); x -= v, with
 *   ratio = trust |x| / (|g| + wd |x| + eps). The rate is inside the velocity, as in You, Gitman,
 *   Ginsburg 2017, arXiv:1708.03888; variants with it outside differ once the rate changes.
 * - lamb, per tensor: r = m^ / (sqrt(s^) + eps) + wd x; x -= lr |x| / |r| r, with the bias
 *   correction (You et al. 2019, arXiv:1904.00962).
 * - muon: m = beta m + (1 - beta) g; U = orthogonalised (1 - beta) g + beta m;
 *   x = x (1 - lr wd) - lr sqrt(max(1, rows / columns)) U for hidden matrices, adamw for the rest
 *   (Jordan et al. 2024).
 *
 * Biases and norm parameters (tensors of rank 1) have no ratio and no decay under lars and lamb.
 */
#include "replica/optimizer/optimizer.h"

#include "base/check.h"
#include "base/spec.h"
#include "replica/optimizer/lbfgs.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const char *const names[OPTIMIZER_COUNT] = {
    [UPDATE_SGD] = "sgd",         [UPDATE_MOMENTUM] = "momentum", [UPDATE_NESTEROV] = "nesterov",
    [UPDATE_ADAGRAD] = "adagrad", [UPDATE_RMSPROP] = "rmsprop",   [UPDATE_ADAM] = "adam",
    [UPDATE_ADAMW] = "adamw",     [UPDATE_LARS] = "lars",         [UPDATE_LAMB] = "lamb",
    [UPDATE_MUON] = "muon",       [OPTIMIZER_LBFGS] = "lbfgs",
};

static const struct optimizer defaults[OPTIMIZER_COUNT] = {
    [UPDATE_SGD] = {.lr = 0.05},
    [UPDATE_MOMENTUM] = {.lr = 0.02, .beta = 0.9},
    [UPDATE_NESTEROV] = {.lr = 0.02, .beta = 0.9},
    [UPDATE_ADAGRAD] = {.lr = 0.01, .epsilon = 1e-10},
    [UPDATE_RMSPROP] = {.lr = 1e-3, .beta2 = 0.99, .epsilon = 1e-8},
    [UPDATE_ADAM] = {.lr = 1e-3, .beta = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
    [UPDATE_ADAMW] = {.lr = 1e-3, .beta = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .decay = 0.01},
    [UPDATE_LARS] = {.lr = 0.1, .beta = 0.9, .trust = 0.02, .epsilon = 1e-8},
    [UPDATE_LAMB] = {.lr = 5e-3, .beta = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .decay = 0.01},
    [UPDATE_MUON] = {.lr = 0.02,
                     .beta = 0.95,
                     .beta2 = 0.95,
                     .epsilon = 1e-8,
                     .adamw_lr = 1e-3,
                     .adamw_beta = 0.9},
    [OPTIMIZER_LBFGS] = {.lr = 1.0, .history = 10.0, .tries = 25.0},
};

/* A key, the optimizers that know it, its range [low, high). */
struct key {
    const char *name;
    unsigned kinds;
    size_t offset;
    double low, high;
    bool is_low_open;
};

#define KIND(kind)  (1u << UPDATE_##kind)
#define ALL_KINDS   ((1u << OPTIMIZER_COUNT) - 1u)
#define LBFGS_KIND  (1u << OPTIMIZER_LBFGS)
#define ADAM_KINDS  (KIND(ADAM) | KIND(ADAMW) | KIND(LAMB))
#define FORCE_KINDS (KIND(MOMENTUM) | KIND(NESTEROV) | KIND(LARS) | KIND(MUON))
#define ROOT_KINDS  (ADAM_KINDS | KIND(ADAGRAD) | KIND(RMSPROP) | KIND(LARS) | KIND(MUON))
#define FIELD(name) offsetof(struct optimizer, name)

static const struct key keys[] = {
    {"lr", ALL_KINDS, FIELD(lr), 0.0, 1e6, true},
    {"wd", ALL_KINDS, FIELD(decay), 0.0, 1e3, false},
    {"beta", FORCE_KINDS, FIELD(beta), 0.0, 1.0, false},
    {"alpha", KIND(RMSPROP), FIELD(beta2), 0.0, 1.0, false},
    {"beta1", ADAM_KINDS, FIELD(beta), 0.0, 1.0, false},
    {"beta1", KIND(MUON), FIELD(adamw_beta), 0.0, 1.0, false},
    {"beta2", ADAM_KINDS | KIND(MUON), FIELD(beta2), 0.0, 1.0, false},
    {"eps", ROOT_KINDS, FIELD(epsilon), 0.0, 1.0, true},
    {"trust", KIND(LARS), FIELD(trust), 0.0, 1e3, true},
    {"adamw-lr", KIND(MUON), FIELD(adamw_lr), 0.0, 1e6, true},
    {"history", LBFGS_KIND, FIELD(history), 1.0, LBFGS_HISTORY_MAX + 1.0, false},
    {"tries", LBFGS_KIND, FIELD(tries), 3.0, LBFGS_TRIES_MAX + 1.0, false},
};

bool optimizer_is_full_batch(const struct optimizer *optimizer)
{
    return (unsigned)optimizer->kind == OPTIMIZER_LBFGS;
}

const char *optimizer_name(enum update_kind kind)
{
    CHECK((unsigned)kind < OPTIMIZER_COUNT);
    return names[kind];
}

uint32_t optimizer_planes(enum update_kind kind)
{
    CHECK((unsigned)kind < OPTIMIZER_COUNT);
    if ((unsigned)kind == OPTIMIZER_LBFGS) return 0; /* what it keeps is its own */
    switch (kind) {
    case UPDATE_SGD:
        return 0;
    case UPDATE_MOMENTUM:
    case UPDATE_NESTEROV:
    case UPDATE_ADAGRAD:
    case UPDATE_RMSPROP:
    case UPDATE_LARS:
        return 1;
    default: /* muon's second plane is for what adamw trains */
        return 2;
    }
}

static enum rc set_item(struct optimizer *optimizer, const struct spec_item *item,
                        struct fault *why)
{
    const char *known[ARRAY_COUNT(keys)];
    size_t known_count = 0;

    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        const struct key *key = &keys[i];
        bool is_in_range = item->value < key->high &&
                           (key->is_low_open ? item->value > key->low : item->value >= key->low);
        if ((key->kinds & 1u << optimizer->kind) == 0) continue;
        known[known_count++] = key->name;
        if (strcmp(key->name, item->key) != 0) continue;
        if (!is_in_range) {
            return fault_set(why, RC_PARSE,
                             "--optimizer, column %zu: %s must be %s %g and below %g",
                             item->value_column, key->name, key->is_low_open ? "above" : "at least",
                             key->low, key->high);
        }
        memcpy((char *)optimizer + key->offset, &item->value, sizeof(item->value));
        return RC_OK;
    }
    return spec_unknown("--optimizer", item->column, "key", item->key, known, known_count, why);
}

enum rc optimizer_parse(const char *text, struct optimizer *optimizer, struct fault *why)
{
    struct spec spec;
    struct optimizer parsed;
    size_t kind = 0;
    enum rc rc = spec_parse("--optimizer", text, &spec, why);

    if (rc != RC_OK) return rc;
    while (kind < OPTIMIZER_COUNT && strcmp(names[kind], spec.name) != 0) {
        kind++;
    }
    if (kind == OPTIMIZER_COUNT) {
        return spec_unknown("--optimizer", 1, "optimizer", spec.name, names, OPTIMIZER_COUNT, why);
    }
    parsed = defaults[kind];
    parsed.kind = (enum update_kind)kind;
    for (size_t i = 0; i < spec.items_count; i++) {
        rc = set_item(&parsed, &spec.items[i], why);
        if (rc != RC_OK) return rc;
    }
    *optimizer = parsed;
    return RC_OK;
}

double optimizer_usual_rate(const char *text, uint64_t samples, uint64_t usual)
{
    struct optimizer optimizer;
    struct fault why;
    double ratio;

    CHECK(usual > 0 && optimizer_parse(text, &optimizer, &why) == RC_OK);
    ratio = (double)samples / (double)usual;
    switch (optimizer.kind) {
    case UPDATE_SGD:
    case UPDATE_MOMENTUM:
    case UPDATE_NESTEROV:
        return optimizer.lr * (ratio < 1 ? ratio : sqrt(ratio));
    default:
        return optimizer.lr;
    }
}

static void bound_squares(float *squares, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(squares[i] > 0)) squares[i] = 0;
    }
}

/* By Cauchy and Schwarz the first moment is at most (1 - b1) / sqrt((1 - b2) (1 - b1^2 / b2)) times
 * the root of the second, whatever the gradients were, and so are means of both over peers; twice
 * that, for rounding. With b1^2 >= b2 there is no such limit. */
void optimizer_bound_moments(const struct optimizer *optimizer, float *moments, size_t n)
{
    double room =
        (1 - optimizer->beta2) * (1 - optimizer->beta * optimizer->beta / optimizer->beta2);
    float most;

    if (optimizer->kind == UPDATE_ADAGRAD || optimizer->kind == UPDATE_RMSPROP) {
        bound_squares(moments, n);
    }
    if (optimizer_planes(optimizer->kind) < 2) return;
    bound_squares(moments + n, n);
    if (optimizer->kind == UPDATE_MUON || !(room > 0)) return;
    most = (float)(2 * (1 - optimizer->beta) / sqrt(room));
    for (size_t i = 0; i < n; i++) {
        float limit = most * sqrtf(moments[n + i]);

        moments[i] = fmaxf(-limit, fminf(limit, moments[i]));
    }
}

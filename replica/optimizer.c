/*
 * Optimizers. Momentum is in the form that keeps the rate outside: m = beta m + g, x -= rate m
 * (Polyak 1964; Nesterov's variant as in Sutskever et al. 2013). Adam: Kingma, Ba 2014,
 * arXiv:1412.6980; its bias correction is folded into rate and epsilon:
 * rate m^ / (sqrt(s^) + eps) = (rate sqrt(c2) / c1) m / (sqrt(s) + eps sqrt(c2)), ci = 1 - betai^k.
 */
#include "replica/optimizer.h"

#include "base/check.h"
#include "replica/spec.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const char *const names[UPDATE_COUNT] = {
    [UPDATE_SGD] = "sgd",
    [UPDATE_MOMENTUM] = "momentum",
    [UPDATE_NESTEROV] = "nesterov",
    [UPDATE_ADAM] = "adam",
};

static const struct optimizer defaults[UPDATE_COUNT] = {
    [UPDATE_SGD] = {.kind = UPDATE_SGD, .lr = 0.05},
    [UPDATE_MOMENTUM] = {.kind = UPDATE_MOMENTUM, .lr = 0.02, .beta = 0.9},
    [UPDATE_NESTEROV] = {.kind = UPDATE_NESTEROV, .lr = 0.02, .beta = 0.9},
    [UPDATE_ADAM] = {.kind = UPDATE_ADAM, .lr = 1e-3, .beta = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
};

/* A key, the optimizers that know it, its range [low, high). */
struct key {
    const char *name;
    unsigned kinds;
    size_t offset;
    double low, high;
    bool is_low_open;
};

#define KIND(kind) (1u << UPDATE_##kind)
#define ALL_KINDS  (KIND(SGD) | KIND(MOMENTUM) | KIND(NESTEROV) | KIND(ADAM))

static const struct key keys[] = {
    {"lr", ALL_KINDS, offsetof(struct optimizer, lr), 0.0, 1e6, true},
    {"decay", ALL_KINDS, offsetof(struct optimizer, decay), 0.0, 1e3, false},
    {"beta", KIND(MOMENTUM) | KIND(NESTEROV), offsetof(struct optimizer, beta), 0.0, 1.0, false},
    {"beta1", KIND(ADAM), offsetof(struct optimizer, beta), 0.0, 1.0, false},
    {"beta2", KIND(ADAM), offsetof(struct optimizer, beta2), 0.0, 1.0, false},
    {"eps", KIND(ADAM), offsetof(struct optimizer, epsilon), 0.0, 1.0, true},
};

const char *optimizer_name(enum update_kind kind)
{
    CHECK(kind < UPDATE_COUNT);
    return names[kind];
}

uint32_t optimizer_planes(enum update_kind kind)
{
    CHECK(kind < UPDATE_COUNT);
    if (kind == UPDATE_SGD) return 0;
    return kind == UPDATE_ADAM ? 2 : 1;
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
    while (kind < UPDATE_COUNT && strcmp(names[kind], spec.name) != 0) {
        kind++;
    }
    if (kind == UPDATE_COUNT) {
        return spec_unknown("--optimizer", 1, "optimizer", spec.name, names, UPDATE_COUNT, why);
    }
    parsed = defaults[kind];
    for (size_t i = 0; i < spec.items_count; i++) {
        rc = set_item(&parsed, &spec.items[i], why);
        if (rc != RC_OK) return rc;
    }
    *optimizer = parsed;
    return RC_OK;
}

struct update optimizer_update(const struct optimizer *optimizer, double rate, uint64_t count)
{
    struct update update = {
        .kind = optimizer->kind,
        .rate = (float)rate,
        .beta = (float)optimizer->beta,
        .beta2 = (float)optimizer->beta2,
        .epsilon = (float)optimizer->epsilon,
        .decay = (float)optimizer->decay,
    };

    CHECK(count > 0);
    if (optimizer->kind == UPDATE_ADAM) {
        double c1 = 1.0 - pow(optimizer->beta, (double)count);
        double c2 = 1.0 - pow(optimizer->beta2, (double)count);
        update.rate = (float)(rate * sqrt(c2) / c1);
        update.epsilon = (float)(optimizer->epsilon * sqrt(c2));
    }
    return update;
}

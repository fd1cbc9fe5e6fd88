/* settings: see settings.h. */
#include "peer/session/settings.h"

#include "base/check.h"
#include "base/plain.h"
#include "base/units.h"
#include "replica/data/dataset.h"
#include "replica/model/layers.h"
#include "replica/optimizer/optimizer.h"
#include "replica/tokenizer/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 80, NUMBER_BYTES = 24, LABELS_TOLD_BYTES = 4096 };

static const char tokenizer_key[] = "tokenizer_hash";

enum kind {
    ALWAYS,  /* told even where nobody gave it */
    GIVEN,   /* told if it was given; else all peers have the same default */
    WAITING, /* the same, and taken only while that peer itself waits for more */
    GOAL     /* as GIVEN; one goal that is given here replaces all of them */
};

static const struct {
    const char *name;
    enum kind kind;
} rows[] = {
    {"data", GIVEN},       {"labels", ALWAYS},
    {"model", ALWAYS},     {"averaging", ALWAYS},
    {"topology", GIVEN},   {"exchange", GIVEN},
    {"codec", GIVEN},      {"rule", GIVEN},
    {"share", GIVEN},      {"heads-loss", GIVEN},
    {"pace", GIVEN},       {"moments", GIVEN},
    {"optimizer", GIVEN},  {"lr", GIVEN},
    {"lr-scaling", GIVEN}, {"schedule", ALWAYS},
    {"batch", GIVEN},      {"accumulate", GIVEN},
    {"clip", GIVEN},       {"augment", GIVEN},
    {"shard", ALWAYS},     {"seed", ALWAYS},
    {"steps", GOAL},       {"epochs", GOAL},
    {"time", GOAL},        {"target-accuracy", GOAL},
    {"target-loss", GOAL}, {"start-with", WAITING},
    {"probe", GIVEN},
};

bool settings_is_everywhere(const char *data)
{
    return strcmp(data, "digits") == 0 || strcmp(data, "fashion-mnist") == 0;
}

void settings_classes(const struct dataset_info *data, char *text, size_t cap)
{
    size_t at = 0;
    const bool has_words = data != NULL && data->input == DATA_VECTORS && data->class_words != NULL;

    text[0] = '\0';
    for (uint32_t i = 0; has_words && i < data->classes; i++) {
        const char *word = data->class_words[i];

        if (strchr(word, ',') == NULL && strchr(word, '\n') == NULL) {
            at += (size_t)snprintf(text + at, cap - at, "%s%s", i > 0 ? "," : "", word);
            if (at < cap) continue;
        }
        text[0] = '\0';
        return;
    }
}

enum rc settings_read_labels(const struct options *options, char *labels, size_t cap,
                             struct fault *why)
{
    const char *text = options_text(options, "labels");
    const size_t length = text == NULL ? 0 : strlen(text);

    labels[0] = '\0';
    if (text == NULL) return RC_OK;
    if (length + 2 > cap || strchr(text, '\n') != NULL) {
        return fault_set(why, RC_LIMIT, "--labels: more than %zu bytes, or with a line's end",
                         cap - 2);
    }
    for (size_t i = 0; i <= length; i++) {
        labels[i] = text[i] == ',' ? '\n' : text[i];
    }
    labels[length] = '\n';
    labels[length + 1] = '\0';
    return RC_OK;
}

/* What of a row is told; NULL: nothing. It may be in `space`. */
static const char *told(const struct options *options, const struct settings_chosen *chosen,
                        size_t row, char space[LABELS_TOLD_BYTES])
{
    const char *name = rows[row].name, *text = options_text(options, name);

    if (strcmp(name, "probe") == 0 && text == NULL) return NULL;
    if (strcmp(name, "data") == 0 || strcmp(name, "probe") == 0) {
        return settings_is_everywhere(text) ? text : NULL;
    }
    if (strcmp(name, "labels") == 0) {
        settings_classes(chosen->data, space, LABELS_TOLD_BYTES);
        return space[0] == '\0' ? NULL : space;
    }
    if (strcmp(name, "optimizer") == 0) return chosen->optimizer;
    if (strcmp(name, "codec") == 0) {
        return chosen->strategy->is_averaging ? chosen->strategy->codec_text : NULL;
    }
    if (strcmp(name, "batch") == 0) {
        snprintf(space, NUMBER_BYTES, "%u", chosen->batch);
        return space;
    }
    if (strcmp(name, "lr") == 0 && text == NULL && chosen->rate > 0) {
        snprintf(space, NUMBER_BYTES, "%.8g", chosen->rate);
        return space;
    }
    return rows[row].kind == ALWAYS || options_is_set(options, name) ? text : NULL;
}

struct json *settings_tell(const struct options *options, const struct settings_chosen *chosen)
{
    struct json *json = json_object_create();
    char space[LABELS_TOLD_BYTES];

    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const char *text = told(options, chosen, i, space);

        if (text != NULL) json_set_text(json, rows[i].name, text);
    }
    if (chosen->data != NULL && chosen->data->has_tokenizer) {
        char digest[DIGEST_TEXT];
        digest_format(chosen->data->tokenizer_digest, digest);
        json_set_text(json, tokenizer_key, digest);
    }
    return json;
}

/* A swarm that reads texts with a tokenizer: who joins needs the same. Tokens in files know theirs,
 * and peers compare at the door. */
static enum rc check_tokenizer(const struct options *options, const char *from,
                               const struct json *settings, struct fault *why)
{
    static const char tokens[] = "tokens:";
    const char *wanted = json_get_text(settings, tokenizer_key);
    const char *path = options_text(options, "tokenizer"), *data = options_text(options, "data");
    struct tokenizer *tokenizer = NULL;
    struct digest digest, own;
    enum rc rc;

    if (wanted == NULL || !digest_parse(wanted, &digest)) return RC_OK;
    if (path == NULL && strncmp(data, tokens, strlen(tokens)) == 0) return RC_OK;
    if (path == NULL) {
        return fault_set(why, RC_USAGE,
                         "the swarm at %s reads text with a tokenizer (hash %.16s); pass it with "
                         "--tokenizer FILE",
                         from, wanted);
    }
    rc = tokenizer_open(path, &tokenizer, why);
    if (rc != RC_OK) return rc;
    own = tokenizer_digest(tokenizer);
    tokenizer_close(tokenizer);
    if (digest_is_equal(own, digest)) return RC_OK;
    return fault_set(why, RC_MISMATCH,
                     "--tokenizer %.80s is another one than that of the swarm at %s (hash %.16s)",
                     path, from, wanted);
}

static bool has_goal(const struct options *options)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (rows[i].kind == GOAL && options_is_set(options, rows[i].name)) return true;
    }
    return false;
}

/* The optimizer without a rate that --lr stands in for: `momentum:lr=0.05,beta=0.9`. */
static const char *without_rate(const char *text, char *space, size_t cap)
{
    const char *kind_end = strchr(text, ':');
    size_t at;

    if (kind_end == NULL) return text;
    at = (size_t)snprintf(space, cap, "%.*s", (int)(kind_end - text), text);
    for (const char *item = kind_end, *next; item != NULL && at < cap; item = next) {
        next = strchr(item + 1, ',');
        if (strncmp(item + 1, "lr=", 3) == 0) continue;
        const int length = next != NULL ? (int)(next - item - 1) : (int)strlen(item + 1);
        const char mark = strchr(space, ':') == NULL ? ':' : ',';
        at += (size_t)snprintf(space + at, cap - at, "%c%.*s", mark, length, item + 1);
    }
    return space;
}

/* Nobody gave the rate that is told: it is the usual one of steps on so many samples. */
static bool is_rate_usual(const struct json *settings)
{
    const char *optimizer = json_get_text(settings, "optimizer"),
               *batch = json_get_text(settings, "batch"),
               *accumulate = json_get_text(settings, "accumulate"),
               *rate = json_get_text(settings, "lr");
    const struct layers_training usual = layers_training(json_get_text(settings, "model"));
    uint64_t samples = 0, batches = 1;
    double told = optimizer_usual_rate(usual.optimizer, usual.batch, usual.batch);

    if (optimizer == NULL || strcmp(optimizer, usual.optimizer) != 0) return false;
    if (batch == NULL || !units_parse_count(batch, &samples)) return false;
    if (accumulate != NULL && !units_parse_count(accumulate, &batches)) return false;
    if (rate != NULL && !units_parse_share(rate, &told)) return false;
    return fabs(told / optimizer_usual_rate(optimizer, samples * batches, usual.batch) - 1) < 1e-6;
}

static void list(const char *name, const char *text, char *taken, size_t cap)
{
    char shown[SHOWN_BYTES];
    size_t used = strlen(taken);

    snprintf(taken + used, cap - used, "%s%s %s", used > 0 ? ", " : "", name,
             plain_text(text, shown, sizeof shown));
}

enum rc settings_take(struct options *options, const char *from, const struct json *status,
                      char *taken, size_t cap, struct fault *why)
{
    const struct json *settings = json_get(status, "settings");
    uint64_t waits_for = 0;
    const bool own_goal = has_goal(options), own_optimizer = options_is_set(options, "optimizer");
    struct fault wrong;
    char shown[SHOWN_BYTES];
    bool own_rate = options_is_set(options, "batch") || options_is_set(options, "accumulate");

    CHECK(cap > 0);
    taken[0] = '\0';
    (void)json_get_count(status, "waits_for", &waits_for);
    if (settings == NULL || json_get_text(settings, "model") == NULL) {
        return fault_set(why, RC_FORMAT,
                         "%s does not tell what it trains; give the swarm's flags to 'grapevine "
                         "peer --bootstrap %s'",
                         from, from);
    }
    own_rate = own_rate && is_rate_usual(settings); /* what is usual at our batch is another one */
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const char *name = rows[i].name, *text = json_get_text(settings, name);

        if (text == NULL || options_is_set(options, name)) continue;
        if (own_rate && (strcmp(name, "optimizer") == 0 || strcmp(name, "lr") == 0)) continue;
        if (rows[i].kind == GOAL && own_goal) continue;
        if (rows[i].kind == WAITING && waits_for == 0) continue;
        if (strcmp(name, "lr") == 0 && own_optimizer) continue; /* it was for another one */
        if (strcmp(name, "data") == 0 && !settings_is_everywhere(text)) continue;
        if (strcmp(name, "probe") == 0 && !settings_is_everywhere(text)) continue;
        if (options_suppose(options, name, text, &wrong) != RC_OK) {
            return fault_set(why, RC_FORMAT, "%s tells what is no setting: --%s", from, wrong.text);
        }
        if (strcmp(name, "optimizer") == 0 &&
            (options_is_set(options, "lr") || json_get_text(settings, "lr") != NULL)) {
            text = without_rate(text, shown, sizeof shown);
        }
        list(name, text, taken, cap);
    }
    return check_tokenizer(options, from, settings, why);
}

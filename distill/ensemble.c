/*
 * ensemble: see ensemble.h. Sums are kept per row and class in float32: at most a few thousand
 * members of values in [0, 1] (or of logits) lose nothing that an accuracy could show.
 * Thread: whichever evaluates, one at a time.
 */
#include "distill/ensemble.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

struct ensemble {
    struct ensemble_options options;
    uint32_t *members;       /* [rows]: how many answered */
    float *weights;          /* [rows]: the sum of their weights */
    float weight;            /* of the next */
    float *sums[VOTE_COUNT]; /* [rows, classes] each; NULL when not wanted */
    float *ends; /* [rows, classes][2][trim]: the least values, the largest last, and the largest of
                    the others, the least last; what is in neither is in the sum */
};

static const char *const vote_names[VOTE_COUNT] = {"mean", "logits", "vote"};

bool vote_parse(const char *text, enum vote *vote)
{
    CHECK(text != NULL && vote != NULL);
    for (int i = 0; i < VOTE_COUNT; i++) {
        if (strcmp(text, vote_names[i]) == 0) {
            *vote = (enum vote)i;
            return true;
        }
    }
    return false;
}

const char *vote_name(enum vote vote)
{
    CHECK((unsigned)vote < VOTE_COUNT);
    return vote_names[vote];
}

/* A vote breaks its ties by summed probability, so it needs those sums as well. */
static bool keeps(const struct ensemble_options *options, int vote)
{
    return options->wants[vote] || (vote == VOTE_MEAN && options->wants[VOTE_MAJORITY]);
}

/* What comes is what a mean is taken of. */
static bool takes_values(const struct ensemble_options *options)
{
    return options->is_real || options->is_said;
}

size_t ensemble_row_bytes(const struct ensemble_options *options)
{
    size_t bytes = sizeof(uint32_t) + sizeof(float);

    for (int i = 0; i < VOTE_COUNT; i++) {
        if (keeps(options, i)) bytes += options->classes * sizeof(float);
    }
    return bytes + 2 * (size_t)options->trim * options->classes * sizeof(float);
}

struct ensemble *ensemble_create(const struct ensemble_options *options)
{
    CHECK(options->classes > 0 && options->temperature > 0);
    CHECK(options->trim == 0 || !options->by_confidence);
    CHECK(!takes_values(options) || (options->wants[VOTE_MEAN] && !options->wants[VOTE_LOGITS] &&
                                     !options->wants[VOTE_MAJORITY] && !options->by_confidence));
    struct ensemble *e = mem_alloc(sizeof *e);

    if (e == NULL) return NULL;
    e->options = *options;
    e->members = mem_array(options->rows, sizeof *e->members);
    e->weights = mem_array(options->rows, sizeof *e->weights);
    e->weight = 1;
    bool is_short = e->members == NULL || e->weights == NULL;
    if (options->trim > 0) {
        e->ends = mem_array(options->rows * options->classes, 2 * options->trim * sizeof(float));
        is_short = is_short || e->ends == NULL;
    }
    for (int i = 0; i < VOTE_COUNT; i++) {
        if (!keeps(options, i)) continue;
        e->sums[i] = mem_array(options->rows, options->classes * sizeof(float));
        is_short = is_short || e->sums[i] == NULL;
    }
    if (is_short) {
        ensemble_destroy(e);
        return NULL;
    }
    return e;
}

void ensemble_destroy(struct ensemble *ensemble)
{
    if (ensemble == NULL) return;
    for (int i = 0; i < VOTE_COUNT; i++) {
        mem_free(ensemble->sums[i]);
    }
    mem_free(ensemble->ends);
    mem_free(ensemble->members);
    mem_free(ensemble->weights);
    mem_free(ensemble);
}

static uint32_t argmax(const float *values, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < count; i++) {
        if (values[i] > values[best]) best = i;
    }
    return best;
}

/* sum of exp((logits - max) / temperature); the caller divides by it. */
static double exponentials(const float *logits, uint32_t classes, double temperature, double *max)
{
    double sum = 0;

    *max = logits[argmax(logits, classes)];
    for (uint32_t c = 0; c < classes; c++) {
        sum += exp((logits[c] - *max) / temperature);
    }
    return sum;
}

static float confidence(const float *logits, uint32_t classes)
{
    double max;

    return (float)(1 / exponentials(logits, classes, 1, &max));
}

void ensemble_clear(struct ensemble *ensemble)
{
    const struct ensemble_options *o = &ensemble->options;

    memset(ensemble->members, 0, o->rows * sizeof *ensemble->members);
    memset(ensemble->weights, 0, o->rows * sizeof *ensemble->weights);
    for (int i = 0; i < VOTE_COUNT; i++) {
        if (ensemble->sums[i] == NULL) continue;
        memset(ensemble->sums[i], 0, o->rows * o->classes * sizeof(float));
    }
}

void ensemble_softmax(const float *logits, size_t rows, uint32_t classes, double temperature,
                      float *probabilities)
{
    CHECK(temperature > 0 && classes > 0);
    for (size_t r = 0; r < rows; r++) {
        double max, sum = exponentials(logits, classes, temperature, &max);
        for (uint32_t c = 0; c < classes; c++) {
            probabilities[c] = (float)(exp((logits[c] - max) / temperature) / sum);
        }
        logits += classes;
        probabilities += classes;
    }
}

void ensemble_weigh(struct ensemble *ensemble, double weight)
{
    CHECK(weight > 0 && (ensemble->options.trim == 0 || weight == 1));
    ensemble->weight = (float)weight;
}

/* `value` takes its place among `count` values, the one to go first last; that one is returned. */
static float displace(float *ends, uint32_t count, float value, bool goes_if_large)
{
    for (uint32_t i = 0; i < count; i++) {
        const float held = ends[i];
        if (goes_if_large ? value >= held : value <= held) continue;
        ends[i] = value;
        value = held;
    }
    return value;
}

/* One more value of a row's class, which `heard` members have answered before. Where an end is not
 * full yet, its last places hold nothing. */
static void add_trimmed(struct ensemble *e, size_t at, uint32_t heard, float value)
{
    const uint32_t trim = e->options.trim, low = heard < trim ? heard : trim;
    const uint32_t high = heard - low < trim ? heard - low : trim;
    float *ends = e->ends + 2 * trim * at;

    value = displace(ends, low, value, true);
    if (low < trim) {
        ends[low] = value;
        return;
    }
    value = displace(ends + trim, high, value, false);
    if (high < trim) {
        ends[trim + high] = value;
    } else {
        e->sums[VOTE_MEAN][at] += value;
    }
}

/* One more probability, or real value, of a row's class. */
static void add(struct ensemble *e, size_t row, uint32_t class, float weight, float value)
{
    const size_t at = row * e->options.classes + class;

    if (e->options.trim > 0) {
        add_trimmed(e, at, e->members[row], value);
    } else {
        e->sums[VOTE_MEAN][at] += weight * value;
    }
}

/* The mean without the `trim` outermost at each end; of few members one or two are left, and the
 * ends together are all that they said, in order. */
static float trimmed_mean(const struct ensemble *e, size_t at, uint32_t members)
{
    const uint32_t trim = e->options.trim, drop = (members - 1) / 2;
    const float *ends = e->ends + 2 * trim * at;
    double sum = 0;

    if (members > 2 * trim) return e->sums[VOTE_MEAN][at] / (float)(members - 2 * trim);
    for (uint32_t i = drop; i < members - drop; i++) {
        sum += (double)(i < trim ? ends[i] : ends[trim + (members - 1 - i)]);
    }
    return (float)(sum / (members - 2 * drop));
}

/* What members say of a class, up to a factor that the row has in common. */
static float together(const struct ensemble *e, size_t row, uint32_t class)
{
    const size_t at = row * e->options.classes + class;

    return e->options.trim > 0 ? trimmed_mean(e, at, e->members[row]) : e->sums[VOTE_MEAN][at];
}

/* Members that each know another class leave next to nothing: even then it is a distribution. */
static void settle_trimmed(const struct ensemble *e, size_t row, float *out)
{
    const uint32_t classes = e->options.classes;
    double sum = 0;

    for (uint32_t c = 0; c < classes; c++) {
        out[c] = trimmed_mean(e, row * classes + c, e->members[row]);
        sum += (double)out[c];
    }
    for (uint32_t c = 0; !e->options.is_real && c < classes; c++) {
        out[c] = sum > 1e-30 ? (float)((double)out[c] / sum) : 1.0F / (float)classes;
    }
}

void ensemble_absorb(struct ensemble *ensemble, size_t first, size_t rows, const float *logits)
{
    CHECK(first + rows <= ensemble->options.rows);
    const uint32_t classes = ensemble->options.classes;
    const double temperature = ensemble->options.temperature;
    const bool by_confidence = ensemble->options.by_confidence;
    const bool has_values = takes_values(&ensemble->options);

    for (size_t r = 0; r < rows; r++, logits += classes) {
        const size_t at = (first + r) * classes;
        const float weight = ensemble->weight * (by_confidence ? confidence(logits, classes) : 1);
        ensemble->weights[first + r] += weight;
        if (ensemble->sums[VOTE_MAJORITY] != NULL) {
            ensemble->sums[VOTE_MAJORITY][at + argmax(logits, classes)] += 1;
        }
        for (uint32_t c = 0; has_values && c < classes; c++) {
            add(ensemble, first + r, c, weight, logits[c]);
        }
        if (ensemble->sums[VOTE_MEAN] != NULL && !has_values) {
            double max, sum = exponentials(logits, classes, temperature, &max);
            for (uint32_t c = 0; c < classes; c++) {
                add(ensemble, first + r, c, weight,
                    (float)(exp((logits[c] - max) / temperature) / sum));
            }
        }
        for (uint32_t c = 0; ensemble->sums[VOTE_LOGITS] != NULL && c < classes; c++) {
            ensemble->sums[VOTE_LOGITS][at + c] += weight * logits[c];
        }
        ensemble->members[first + r]++;
    }
}

void ensemble_settle(const struct ensemble *ensemble, enum vote vote, size_t first, size_t rows,
                     float *probabilities)
{
    CHECK((unsigned)vote < VOTE_COUNT && ensemble->sums[vote] != NULL);
    CHECK(first + rows <= ensemble->options.rows);
    const uint32_t classes = ensemble->options.classes;

    for (size_t r = 0; r < rows; r++, probabilities += classes) {
        const float *sums = ensemble->sums[vote] + (first + r) * classes;
        const float members = vote == VOTE_MAJORITY ? (float)ensemble->members[first + r]
                                                    : ensemble->weights[first + r];
        CHECK(members > 0);
        if (vote == VOTE_MEAN && ensemble->options.trim > 0) {
            settle_trimmed(ensemble, first + r, probabilities);
            continue;
        }
        for (uint32_t c = 0; c < classes; c++) {
            probabilities[c] = sums[c] / members;
        }
        if (vote == VOTE_LOGITS) {
            ensemble_softmax(probabilities, 1, classes, ensemble->options.temperature,
                             probabilities);
        }
    }
}

uint32_t ensemble_winner(const struct ensemble *ensemble, enum vote vote, size_t row)
{
    CHECK((unsigned)vote < VOTE_COUNT && ensemble->sums[vote] != NULL);
    CHECK(row < ensemble->options.rows && ensemble->members[row] > 0);
    const uint32_t classes = ensemble->options.classes;
    const float *sums = ensemble->sums[vote] + row * classes;
    uint32_t best = 0;

    for (uint32_t c = 1; c < classes; c++) {
        const bool is_tied = vote == VOTE_MEAN || (vote == VOTE_MAJORITY && sums[c] >= sums[best]);
        const bool is_first = vote != VOTE_MEAN && sums[c] > sums[best];
        if (is_first || (is_tied && together(ensemble, row, c) > together(ensemble, row, best))) {
            best = c;
        }
    }
    return best;
}

/*
 * L-BFGS: see lbfgs.h. The direction comes from the two-loop recursion, scaled by s y / y y of the
 * last pair. The line search brackets a point that satisfies the strong Wolfe conditions (Nocedal,
 * Wright, algorithms 3.5 and 3.6) and closes in by minima of cubics (their 3.59), kept off the
 * ends. A pair enters the history only if it shows positive curvature. Where no lower point is
 * found, the history is dropped, and the next step goes down the gradient.
 */
#include "replica/optimizer/lbfgs.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>
#include <string.h>

/* Of the Wolfe conditions: how much the loss must fall, and how flat it must get. */
#define SUFFICIENT 1e-4
#define FLAT       0.9
#define CURVATURE  1e-10 /* least s y / y y of a pair */

enum { PLANES_BESIDES = 3 }; /* start, its gradient, direction */
enum lbfgs_word { WORD_HISTORY, WORD_NEXT, WORD_USED, WORD_CURRENT, WORD_LOSS, LBFGS_WORDS };

struct lbfgs {
    struct lbfgs_options options;
    size_t count;
    float *pairs;        /* [history][2][count]: s, y */
    double *rho, *alpha; /* [history]: 1 / s y; of the recursion */
    uint32_t next, used; /* slot of the next pair; how many there are */
    float *start, *gradient, *direction;
    double loss;     /* at `values`, with `gradient` */
    bool is_current; /* both are known */
};

/* A point on the line from the start. */
struct trial {
    double a, loss, slope;
};

struct search {
    struct lbfgs *l;
    const struct lbfgs_problem *problem;
    struct trial start;
    struct trial last; /* where the values are */
    uint32_t tries;    /* left */
    uint32_t evaluations;
};

static double dot(const float *a, const float *b, size_t n)
{
    double sums[8] = {0.0}, sum = 0.0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            sums[k] += (double)a[i + k] * (double)b[i + k];
        }
    }
    for (; i < n; i++) {
        sums[0] += (double)a[i] * (double)b[i];
    }
    for (size_t k = 0; k < 8; k++) {
        sum += sums[k];
    }
    return sum;
}

static void add_scaled(float *y, double a, const float *x, size_t n)
{
    float factor = (float)a;

    for (size_t i = 0; i < n; i++) {
        y[i] += factor * x[i];
    }
}

static float *step_of(const struct lbfgs *l, uint32_t slot)
{
    return l->pairs + (size_t)slot * 2 * l->count;
}

static float *change_of(const struct lbfgs *l, uint32_t slot)
{
    return step_of(l, slot) + l->count;
}

enum rc lbfgs_create(const struct lbfgs_options *options, size_t count, struct lbfgs **lbfgs,
                     struct fault *why)
{
    size_t planes = 2 * (size_t)options->history + PLANES_BESIDES;
    struct lbfgs *l;

    CHECK(options->history > 0 && options->history <= LBFGS_HISTORY_MAX);
    CHECK(options->tries > 0 && options->tries <= LBFGS_TRIES_MAX && count > 0);
    if (count > LBFGS_VALUES_MAX / planes) {
        return fault_set(why, RC_LIMIT,
                         "--optimizer lbfgs: %zu parameters times %zu planes are more than %d "
                         "values; use a smaller history= or another optimizer",
                         count, planes, LBFGS_VALUES_MAX);
    }
    l = mem_alloc(sizeof(*l));
    if (l == NULL) return fault_set(why, RC_NOMEM, "--optimizer lbfgs: out of memory");
    l->options = *options;
    l->count = count;
    l->pairs = mem_array(2 * (size_t)options->history, count * sizeof(float));
    l->rho = mem_array(options->history, sizeof(*l->rho));
    l->alpha = mem_array(options->history, sizeof(*l->alpha));
    l->start = mem_array(count, sizeof(float));
    l->gradient = mem_array(count, sizeof(float));
    l->direction = mem_array(count, sizeof(float));
    if (l->pairs == NULL || l->rho == NULL || l->alpha == NULL || l->start == NULL ||
        l->gradient == NULL || l->direction == NULL) {
        lbfgs_destroy(l);
        return fault_set(why, RC_NOMEM, "--optimizer lbfgs: out of memory; use a smaller history=");
    }
    *lbfgs = l;
    return RC_OK;
}

void lbfgs_destroy(struct lbfgs *lbfgs)
{
    if (lbfgs == NULL) return;
    mem_free(lbfgs->pairs);
    mem_free(lbfgs->rho);
    mem_free(lbfgs->alpha);
    mem_free(lbfgs->start);
    mem_free(lbfgs->gradient);
    mem_free(lbfgs->direction);
    mem_free(lbfgs);
}

void lbfgs_moved(struct lbfgs *lbfgs)
{
    lbfgs->is_current = false;
}

void lbfgs_forget(struct lbfgs *lbfgs)
{
    lbfgs->is_current = false;
    lbfgs->next = lbfgs->used = 0;
}

/* --- the direction ------------------------------------------------------------------------------
 */

/* direction = -H gradient, H the inverse Hessian as the pairs have it (algorithm 7.4). */
static void find_direction(struct lbfgs *l)
{
    uint32_t history = l->options.history;
    float *d = l->direction;

    for (size_t i = 0; i < l->count; i++) {
        d[i] = -l->gradient[i];
    }
    for (uint32_t k = 1; k <= l->used; k++) { /* newest first */
        uint32_t slot = (l->next + history - k) % history;
        l->alpha[slot] = l->rho[slot] * dot(step_of(l, slot), d, l->count);
        add_scaled(d, -l->alpha[slot], change_of(l, slot), l->count);
    }
    if (l->used > 0) {
        uint32_t slot = (l->next + history - 1) % history;
        const float *y = change_of(l, slot);
        float scale = (float)(1.0 / (l->rho[slot] * dot(y, y, l->count)));
        for (size_t i = 0; i < l->count; i++) {
            d[i] *= scale;
        }
    }
    for (uint32_t k = l->used; k >= 1; k--) { /* oldest first */
        uint32_t slot = (l->next + history - k) % history;
        double beta = l->rho[slot] * dot(change_of(l, slot), d, l->count);
        add_scaled(d, l->alpha[slot] - beta, step_of(l, slot), l->count);
    }
}

/* Remember the way from the start to where the values are. */
static void learn_pair(struct lbfgs *l, const struct lbfgs_problem *problem)
{
    float *s = step_of(l, l->next), *y = change_of(l, l->next);
    double curvature;

    for (size_t i = 0; i < l->count; i++) {
        s[i] = problem->values[i] - l->start[i];
        y[i] = problem->gradient[i] - l->gradient[i];
    }
    curvature = dot(s, y, l->count);
    if (!(curvature > CURVATURE * dot(y, y, l->count)) || !isfinite(1.0 / curvature)) return;
    l->rho[l->next] = 1.0 / curvature;
    l->next = (l->next + 1) % l->options.history;
    if (l->used < l->options.history) l->used++;
}

/* --- the line search ----------------------------------------------------------------------------
 */

/* Go to start + a direction. A loss that is no number counts as one that is too high. */
static enum rc visit(struct search *search, double a)
{
    struct lbfgs *l = search->l;
    const struct lbfgs_problem *problem = search->problem;
    double loss = 0.0;
    enum rc rc;

    CHECK(search->tries > 0);
    search->tries--;
    search->evaluations++;
    memcpy(problem->values, l->start, l->count * sizeof(float));
    add_scaled(problem->values, a, l->direction, l->count);
    rc = problem->evaluate(problem->context, &loss);
    if (rc != RC_OK && rc != RC_NONFINITE) return rc;
    search->last = (struct trial){a, loss, dot(problem->gradient, l->direction, l->count)};
    if (rc != RC_OK || !isfinite(loss) || !isfinite(search->last.slope)) {
        search->last.loss = search->last.slope = (double)INFINITY;
    }
    return RC_OK;
}

static bool is_low(const struct search *search, struct trial trial)
{
    const struct trial *start = &search->start;

    return trial.loss <= start->loss + SUFFICIENT * trial.a * start->slope;
}

static bool is_flat(const struct search *search, struct trial trial)
{
    return fabs(trial.slope) <= -FLAT * search->start.slope;
}

/* The minimum of the cubic through two points and their slopes, kept within shares [least, most]
 * of the way from p to q; `otherwise` of the way where there is none. */
static double cubic_minimum(struct trial p, struct trial q, double least, double most,
                            double otherwise)
{
    double width = q.a - p.a, share = otherwise;
    double d1 = p.slope + q.slope - 3.0 * (p.loss - q.loss) / (p.a - q.a);
    double square = d1 * d1 - p.slope * q.slope;

    if (isfinite(square) && square >= 0.0) {
        double d2 = copysign(sqrt(square), width);
        double at = q.a - width * (q.slope + d2 - d1) / (q.slope - p.slope + 2.0 * d2);
        share = (at - p.a) / width;
    }
    if (!isfinite(share)) share = otherwise;
    if (share < least) share = least;
    if (share > most) share = most;
    return p.a + share * width;
}

/* Between `low`, the best so far, and `high` there are points that will do: find one (algorithm
 * 3.6), or stay with `low`. */
static enum rc close_in(struct search *search, struct trial low, struct trial high)
{
    while (search->tries > 1 && fabs(high.a - low.a) > 1e-12 * fabs(low.a + high.a)) {
        enum rc rc = visit(search, cubic_minimum(low, high, 0.1, 0.9, 0.5));
        struct trial now = search->last;

        if (rc != RC_OK) return rc;
        if (!is_low(search, now) || now.loss >= low.loss) {
            high = now;
            continue;
        }
        if (is_flat(search, now)) return RC_OK;
        if (now.slope * (high.a - low.a) >= 0.0) high = low;
        low = now;
    }
    if (low.a > 0.0 && search->last.a != low.a) return visit(search, low.a);
    if (low.a > 0.0) return RC_OK;
    search->last.loss = (double)INFINITY; /* nothing was found */
    return RC_OK;
}

/* Widen the step until what will do is behind it (algorithm 3.5). */
static enum rc search_line(struct search *search, double first)
{
    struct trial before = search->start;
    double a = first;

    while (search->tries > 1) {
        enum rc rc = visit(search, a);
        struct trial now = search->last;

        if (rc != RC_OK) return rc;
        if (!is_low(search, now) || (before.a > 0.0 && now.loss >= before.loss)) {
            return close_in(search, before, now);
        }
        if (is_flat(search, now)) return RC_OK;
        if (now.slope >= 0.0) return close_in(search, now, before);
        a = cubic_minimum(before, now, 1.1, 10.0, 2.0);
        before = now;
    }
    return RC_OK; /* still falling: good enough */
}

/* --- a step -------------------------------------------------------------------------------------
 */

static enum rc begin(struct search *search)
{
    struct lbfgs *l = search->l;
    const struct lbfgs_problem *problem = search->problem;
    enum rc rc = RC_OK;

    if (!l->is_current) {
        rc = problem->evaluate(problem->context, &l->loss);
        if (rc == RC_OK && !isfinite(l->loss)) rc = RC_NONFINITE;
        if (rc != RC_OK) return rc;
        search->evaluations++;
        memcpy(l->gradient, problem->gradient, l->count * sizeof(float));
    }
    memcpy(l->start, problem->values, l->count * sizeof(float));
    find_direction(l);
    search->start = (struct trial){0.0, l->loss, dot(l->gradient, l->direction, l->count)};
    if (l->used > 0 && !(search->start.slope < 0.0)) { /* rounding: begin anew */
        lbfgs_forget(l);
        find_direction(l);
        search->start.slope = dot(l->gradient, l->direction, l->count);
    }
    return RC_OK;
}

/* The length tried first: without history, no value moves by more than about `rate`. */
static double first_length(const struct lbfgs *l, double rate)
{
    double sum = 0.0;

    if (l->used > 0) return rate;
    for (size_t i = 0; i < l->count; i++) {
        sum += fabs((double)l->gradient[i]);
    }
    return sum > 1.0 ? rate / sum : rate;
}

enum rc lbfgs_step(struct lbfgs *lbfgs, const struct lbfgs_problem *problem, double rate,
                   struct lbfgs_report *report)
{
    struct lbfgs *l = lbfgs;
    struct search search = {.l = l, .problem = problem, .tries = l->options.tries};
    bool has_moved = false;
    enum rc rc = begin(&search);

    if (rc == RC_OK && search.start.slope < 0.0) {
        rc = search_line(&search, first_length(l, rate));
        has_moved = rc == RC_OK && search.last.loss <= search.start.loss && search.last.a > 0.0;
    }
    l->is_current = rc == RC_OK;
    if (rc != RC_OK) return rc;
    *report = (struct lbfgs_report){l->loss, l->loss, search.evaluations, has_moved};
    if (!has_moved) {
        memcpy(problem->values, l->start, l->count * sizeof(float));
        l->next = l->used = 0;
        return RC_OK;
    }
    learn_pair(l, problem);
    l->loss = report->after = search.last.loss;
    memcpy(l->gradient, problem->gradient, l->count * sizeof(float));
    return RC_OK;
}

/* --- its state ----------------------------------------------------------------------------------
 */

enum rc lbfgs_save(const struct lbfgs *lbfgs, struct tensor_file *file)
{
    const struct lbfgs *l = lbfgs;
    uint64_t words[LBFGS_WORDS] = {[WORD_HISTORY] = l->options.history,
                                   [WORD_NEXT] = l->next,
                                   [WORD_USED] = l->used,
                                   [WORD_CURRENT] = l->is_current};
    enum rc rc;

    memcpy(&words[WORD_LOSS], &l->loss, sizeof(l->loss));
    rc = tensor_file_add_u64_copy(file, "lbfgs.state", words, LBFGS_WORDS);
    if (rc == RC_OK && l->used > 0) {
        rc = tensor_file_add_f32(file, "lbfgs.pairs", l->pairs, (size_t)l->used * 2 * l->count);
    }
    if (rc != RC_OK || !l->is_current) return rc;
    return tensor_file_add_f32(file, "lbfgs.gradient", l->gradient, l->count);
}

/* `count` finite float32 values, or NULL. */
static const void *find_values(const struct tensor_file *file, const char *name, size_t count)
{
    const struct tensor_view *view = tensor_file_find(file, name);

    if (view == NULL || strcmp(view->dtype, "F32") != 0 ||
        view->bytes_count != count * sizeof(float)) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)view->bytes + i * sizeof(value), sizeof(value));
        if (!isfinite(value)) return NULL;
    }
    return view->bytes;
}

/* 1 / s y of each pair in `pairs`, into `rho`. False: one is none. */
static bool weigh_pairs(struct lbfgs *l, const char *pairs, uint32_t used, double *rho)
{
    size_t bytes = l->count * sizeof(float);

    for (uint32_t i = 0; i < used; i++) { /* the file need not be aligned */
        memcpy(l->start, pairs + (size_t)i * 2 * bytes, bytes);
        memcpy(l->direction, pairs + ((size_t)i * 2 + 1) * bytes, bytes);
        rho[i] = 1.0 / dot(l->start, l->direction, l->count);
        if (!(rho[i] > 0.0) || !isfinite(rho[i])) return false;
    }
    return true;
}

enum rc lbfgs_load(struct lbfgs *lbfgs, const struct tensor_file *file, struct fault *why)
{
    struct lbfgs *l = lbfgs;
    const struct tensor_view *state = tensor_file_find(file, "lbfgs.state");
    uint64_t words[LBFGS_WORDS];
    const void *pairs = NULL, *gradient = NULL;
    double loss;
    bool is_whole;

    if (state == NULL || strcmp(state->dtype, "U64") != 0 || state->bytes_count != sizeof(words)) {
        return fault_set(why, RC_FORMAT, "the checkpoint holds no state of lbfgs");
    }
    memcpy(words, state->bytes, sizeof(words));
    memcpy(&loss, &words[WORD_LOSS], sizeof(loss));
    if (words[WORD_HISTORY] != l->options.history) {
        return fault_set(why, RC_MISMATCH,
                         "the checkpoint was written with another history= of "
                         "--optimizer lbfgs");
    }
    is_whole = words[WORD_USED] <= l->options.history && words[WORD_CURRENT] <= 1 &&
               isfinite(loss) && words[WORD_NEXT] < l->options.history &&
               (words[WORD_USED] == l->options.history || words[WORD_NEXT] == words[WORD_USED]);
    if (is_whole && words[WORD_USED] > 0) {
        pairs = find_values(file, "lbfgs.pairs", (size_t)words[WORD_USED] * 2 * l->count);
        is_whole = pairs != NULL && weigh_pairs(l, pairs, (uint32_t)words[WORD_USED], l->alpha);
    }
    if (is_whole && words[WORD_CURRENT] == 1) {
        gradient = find_values(file, "lbfgs.gradient", l->count);
        is_whole = gradient != NULL;
    }
    if (!is_whole) return fault_set(why, RC_FORMAT, "the checkpoint's state of lbfgs is damaged");
    l->next = (uint32_t)words[WORD_NEXT];
    l->used = (uint32_t)words[WORD_USED];
    l->is_current = words[WORD_CURRENT] == 1;
    l->loss = loss;
    memcpy(l->rho, l->alpha, l->used * sizeof(*l->rho));
    if (pairs != NULL) memcpy(l->pairs, pairs, (size_t)l->used * 2 * l->count * sizeof(float));
    if (gradient != NULL) memcpy(l->gradient, gradient, l->count * sizeof(float));
    return RC_OK;
}

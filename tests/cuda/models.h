/*
 * models: what tests of whole models on a device share: data to learn from, learners from one seed
 * on the device and on the processor, and the course of their training.
 */
#ifndef GRAPEVINE_TESTS_CUDA_MODELS_H
#define GRAPEVINE_TESTS_CUDA_MODELS_H

#include "tests/cuda/parity.h"
#include "tests/cuda/virtual/runtime.h"
#include "tests/scratch.h"
#include "tests/unit/replica/learners.h"

#include "base/check.h"

enum { COURSE_STEPS_MAX = 64, TEXT_BYTES = 24 * 1024 };

/* What only the virtual device can be told; NULL in programs for a real one. */
#pragma weak cudaDeviceSynchronize
#pragma weak cudaSetDevice
#pragma weak virtual_configure
#pragma weak virtual_options_default
#pragma weak virtual_memory_used

/* Where a learner lives. The twin is the processor again, in plain C: the same sums in another
 * order, so what the two differ by is what rounding alone may do to a model. */
enum side { ON_DEVICE, ON_PROCESSOR, ON_TWIN };

static inline struct backend *side_open(enum side side, bool is_bf16)
{
    struct cpu_backend_options cpu = {.threads = 1, .is_reference = side == ON_TWIN};
    struct fault why = {0};
    struct backend *backend =
        side == ON_DEVICE ? parity_device(1, is_bf16, &why) : cpu_backend_create(&cpu);

    if (backend == NULL) fail_msg("%s", why.text);
    return backend;
}

/* Words in a random order, each letter kept or not by a rule: text that can be learned. */
static inline const char *text_made(struct scratch *scratch)
{
    static const char *const words[] = {"the ", "vine ",  "grows ",  "over ", "a wall, ",
                                        "and ", "its ",   "grapes ", "are ",  "heavy. ",
                                        "Who ", "picks ", "them? ",  "One ",  "neighbour. "};
    char *text = calloc(TEXT_BYTES + 16, 1);
    struct rng rng;
    size_t length = 0;

    assert_non_null(text);
    rng_init(&rng, 5, 0);
    while (length < TEXT_BYTES) {
        const char *word = words[rng_below(&rng, ARRAY_COUNT(words))];
        memcpy(text + length, word, strlen(word));
        length += strlen(word);
    }
    scratch_write(scratch, "text", text, length);
    free(text);
    return scratch_path(scratch, "text");
}

/* --- a course of training
 * -----------------------------------------------------------------------*/

struct course {
    uint32_t steps;
    double loss[COURSE_STEPS_MAX];
    double correct_share; /* of the last step */
    size_t parameters, buffers;
    float *start, *end, *statistics; /* parameters before and after; SECTION_BUFFERS after */
};

static inline struct course course_of(struct learner *learner, uint32_t steps)
{
    struct course course = {.steps = steps};

    assert_true(steps <= COURSE_STEPS_MAX);
    course.parameters = count_of(learner, SECTION_PARAMETERS);
    course.buffers = count_of(learner, SECTION_BUFFERS);
    course.start = values_of(learner, SECTION_PARAMETERS);
    for (uint32_t i = 0; i < steps; i++) {
        struct train_report report = train(learner, 1);
        course.loss[i] = report.loss_sum;
        course.correct_share = report.correct_share;
    }
    course.end = values_of(learner, SECTION_PARAMETERS);
    course.statistics = course.buffers > 0 ? values_of(learner, SECTION_BUFFERS) : NULL;
    return course;
}

/** A learner made, trained and gone. */
static inline struct course course_on(enum side side, bool is_bf16,
                                      const struct replica_options *options, uint32_t steps)
{
    struct backend *backend = side_open(side, is_bf16);
    struct learner *learner = make(backend, options);
    struct course course = course_of(learner, steps);

    learner->ops->destroy(learner);
    backend_destroy(backend);
    return course;
}

static inline void course_end(struct course *course)
{
    mem_free(course->start);
    mem_free(course->end);
    mem_free(course->statistics);
}

/* How far two courses are apart. */
struct apart {
    double loss;       /* the most in one step, in units of the first loss */
    double parameters; /* in units of the way that the parameters went */
    double statistics; /* normalised */
};

static inline double way_of(const struct course *course)
{
    double squares = 0.0;

    for (size_t i = 0; i < course->parameters; i++) {
        double d = (double)course->end[i] - (double)course->start[i];
        squares += d * d;
    }
    return sqrt(squares);
}

static inline struct apart courses_apart(const struct course *got, const struct course *wanted)
{
    struct apart apart = {0.0, 0.0, 0.0};
    double squares = 0.0;

    assert_int_equal(got->parameters, wanted->parameters);
    assert_int_equal(got->buffers, wanted->buffers);
    /* Lengths of weight-normalised rows are computed where the model lives; all else is drawn. */
    assert_true(parity_error(got->start, wanted->start, got->parameters) < 1e-6);
    for (uint32_t i = 0; i < wanted->steps; i++) {
        double d = fabs(got->loss[i] - wanted->loss[i]) / wanted->loss[0];
        if (!(d <= apart.loss)) apart.loss = d; /* NaN stays */
    }
    for (size_t i = 0; i < wanted->parameters; i++) {
        double d = (double)got->end[i] - (double)wanted->end[i];
        squares += d * d;
    }
    apart.parameters = sqrt(squares) / way_of(wanted);
    if (wanted->buffers > 0) {
        apart.statistics = parity_error(got->statistics, wanted->statistics, wanted->buffers);
    }
    return apart;
}

/* --- step by step
 * -------------------------------------------------------------------------------*/

static inline void take_over(struct learner *to, struct learner *from)
{
    static const enum section sections[] = {SECTION_PARAMETERS, SECTION_BUFFERS, SECTION_MOMENTS};

    for (size_t i = 0; i < ARRAY_COUNT(sections); i++) {
        size_t count = count_of(from, sections[i]);
        float *values = values_of(from, sections[i]);
        assert_int_equal(to->ops->assign_section(to, sections[i], values, count), RC_OK);
        mem_free(values);
    }
}

struct step_errors {
    double loss, statistics;        /* the largest of a step, as in struct apart */
    double parameters, half_within; /* of the step's way: the largest, and the median */
};

static inline int compare_errors(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/** The same steps on both sides, each from the processor's state, so that nothing adds up: for nets
 *  in which rounding grows from step to step. The first one is from where both are. */
static inline struct step_errors learners_apart(struct learner *got, struct learner *wanted,
                                                uint32_t steps)
{
    struct step_errors most = {0.0, 0.0, 0.0, 0.0};
    double parameters[COURSE_STEPS_MAX];

    assert_true(steps > 0 && steps <= COURSE_STEPS_MAX);
    for (uint32_t i = 0; i < steps; i++) {
        struct course a, b;
        struct apart apart;
        if (i > 0) take_over(got, wanted);
        a = course_of(got, 1);
        b = course_of(wanted, 1);
        apart = courses_apart(&a, &b);
        assert_false(isnan(apart.loss) || isnan(apart.parameters) || isnan(apart.statistics));
        most.loss = fmax(most.loss, apart.loss);
        most.statistics = fmax(most.statistics, apart.statistics);
        parameters[i] = apart.parameters;
        course_end(&a);
        course_end(&b);
    }
    qsort(parameters, steps, sizeof(*parameters), compare_errors);
    most.parameters = parameters[steps - 1];
    most.half_within = parameters[steps / 2];
    return most;
}

static inline struct step_errors steps_apart(enum side side, const struct replica_options *options,
                                             uint32_t steps)
{
    struct backend *device = side_open(side, false), *host = side_open(ON_PROCESSOR, false);
    struct learner *got = make(device, options), *wanted = make(host, options);
    struct step_errors most;

    take_over(got, wanted);
    most = learners_apart(got, wanted, steps);
    got->ops->destroy(got);
    wanted->ops->destroy(wanted);
    backend_destroy(device);
    backend_destroy(host);
    return most;
}

#endif

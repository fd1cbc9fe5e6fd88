/* What tests of replicas share: making, training, comparing, saving and resuming them. */
#ifndef GRAPEVINE_TESTS_LEARNERS_H
#define GRAPEVINE_TESTS_LEARNERS_H

#include "tests/check.h"

#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/learners/replica.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>

static inline int make_backend(void **state)
{
    struct cpu_backend_options options = {.threads = 1};

    *state = cpu_backend_create(&options);
    return *state == NULL;
}

static inline int drop_backend(void **state)
{
    backend_destroy(*state);
    return 0;
}

static inline struct learner *make(struct backend *cpu, const struct replica_options *options)
{
    struct learner *learner = NULL;
    struct fault why = {""};

    if (replica_create(cpu, options, &learner, &why) != RC_OK) fail_msg("%s", why.text);
    return learner;
}

static inline size_t count_of(struct learner *learner, enum section section)
{
    return learner->ops->schema(learner)->values[section];
}

static inline float *values_of(struct learner *learner, enum section section)
{
    size_t count = count_of(learner, section);
    float *values = mem_array(count, sizeof(float));

    assert_int_equal(learner->ops->export_section(learner, section, values, count), RC_OK);
    return values;
}

static inline struct train_report train(struct learner *learner, uint32_t steps)
{
    struct train_report report = {0};

    assert_int_equal(learner->ops->train(learner, steps, NULL, &report), RC_OK);
    assert_int_equal(report.steps, steps);
    return report;
}

static inline void check_equal(struct learner *a, struct learner *b)
{
    float *x = values_of(a, SECTION_PARAMETERS), *y = values_of(b, SECTION_PARAMETERS);

    assert_memory_equal(x, y, count_of(a, SECTION_PARAMETERS) * sizeof(float));
    mem_free(x);
    mem_free(y);
}

static inline struct tensor_file *saved(struct learner *learner)
{
    struct tensor_file *file = tensor_file_create(), *read = NULL;
    const struct piece *pieces = NULL;
    size_t count = 0, bytes = 0, at = 0;
    uint8_t *all;

    assert_int_equal(learner->ops->save(learner, file), RC_OK);
    assert_int_equal(tensor_file_encode(file, &pieces, &count), RC_OK);
    for (size_t i = 0; i < count; i++) {
        bytes += pieces[i].count;
    }
    all = mem_alloc(bytes);
    for (size_t i = 0; i < count; i++) {
        memcpy(all + at, pieces[i].bytes, pieces[i].count);
        at += pieces[i].count;
    }
    assert_int_equal(tensor_file_decode("state", all, bytes, &read, NULL), RC_OK);
    tensor_file_destroy(file);
    return read;
}

/* A fresh learner with another's parameters and saved state. */
static inline struct learner *resumed(struct backend *cpu, const struct replica_options *options,
                                      const float *parameters, const struct tensor_file *file)
{
    struct learner *learner = make(cpu, options);
    struct fault why = {""};

    assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, parameters,
                                                  count_of(learner, SECTION_PARAMETERS)),
                     RC_OK);
    if (learner->ops->load(learner, file, &why) != RC_OK) fail_msg("%s", why.text);
    return learner;
}

/* The largest difference of two learners' parameters. */
static inline double distance(struct learner *a, struct learner *b)
{
    size_t count = count_of(a, SECTION_PARAMETERS);
    float *x = values_of(a, SECTION_PARAMETERS), *y = values_of(b, SECTION_PARAMETERS);
    double most = 0.0;

    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
    }
    mem_free(x);
    mem_free(y);
    return most;
}

#endif

/*
 * Optimizer updates in one pass over the flat plane, so that each value, moment and gradient
 * crosses the memory bus once. The formulas are those of reference_update(), operation by
 * operation: both give the same bits.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "kernels/cpu/reference.h"

#include <math.h>

FOR_EACH_CPU static void update_sgd(const struct update *update, const float *restrict gradient,
                                    float *restrict values, size_t n)
{
    float rate = update->rate, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        values[i] -= rate * (gradient[i] + decay * values[i]);
    }
}

FOR_EACH_CPU static void update_momentum(const struct update *update,
                                         const float *restrict gradient, float *restrict moments,
                                         float *restrict values, size_t n)
{
    float rate = update->rate, beta = update->beta, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float m = beta * moments[i] + (gradient[i] + decay * values[i]);
        moments[i] = m;
        values[i] -= rate * m;
    }
}

FOR_EACH_CPU static void update_nesterov(const struct update *update,
                                         const float *restrict gradient, float *restrict moments,
                                         float *restrict values, size_t n)
{
    float rate = update->rate, beta = update->beta, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i] + decay * values[i];
        float m = beta * moments[i] + g;
        moments[i] = m;
        values[i] -= rate * (g + beta * m);
    }
}

FOR_EACH_CPU static void update_adam(const struct update *update, const float *restrict gradient,
                                     float *restrict first, float *restrict second,
                                     float *restrict values, size_t n)
{
    float rate = update->rate, beta = update->beta, beta2 = update->beta2;
    float epsilon = update->epsilon, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i] + decay * values[i];
        float m = beta * first[i] + (1.0F - beta) * g;
        float s = beta2 * second[i] + (1.0F - beta2) * (g * g);
        first[i] = m;
        second[i] = s;
        values[i] -= rate * m / (sqrtf(s) + epsilon);
    }
}

enum rc cpu_update(struct backend *backend, const struct update *update, const float *gradient,
                   float *moments, float *values, size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_update(update, gradient, moments, values, n);
        return RC_OK;
    }
    switch (update->kind) {
    case UPDATE_SGD:
        update_sgd(update, gradient, values, n);
        break;
    case UPDATE_MOMENTUM:
        update_momentum(update, gradient, moments, values, n);
        break;
    case UPDATE_NESTEROV:
        update_nesterov(update, gradient, moments, values, n);
        break;
    case UPDATE_ADAM:
        update_adam(update, gradient, moments, moments + n, values, n);
        break;
    case UPDATE_COUNT:
    default:
        CHECK(false); /* an update of a known kind */
    }
    return RC_OK;
}

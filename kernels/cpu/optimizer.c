/*
 * Optimizer updates in one pass over the flat plane, so that each value, moment and gradient
 * crosses the memory bus once. The formulas are those of reference_update(), operation by
 * operation: both give the same bits, but for LARS, LAMB and Muon, whose norms and products are
 * summed in another order. LAMB computes its direction twice rather than store it.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "kernels/cpu/reference/reference.h"

#include <math.h>
#include <string.h>

enum { LAMB_BLOCK = 1024 };

FOR_EACH_CPU(static, void, update_sgd,
             (const struct update *update, const float *restrict gradient, float *restrict values,
              size_t n),
             (update, gradient, values, n))
{
    float rate = update->rate, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        values[i] -= rate * (gradient[i] + decay * values[i]);
    }
}

FOR_EACH_CPU(static, void, update_momentum,
             (const struct update *update, const float *restrict gradient, float *restrict moments,
              float *restrict values, size_t n),
             (update, gradient, moments, values, n))
{
    float rate = update->rate, beta = update->beta, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float m = beta * moments[i] + (gradient[i] + decay * values[i]);
        moments[i] = m;
        values[i] -= rate * m;
    }
}

FOR_EACH_CPU(static, void, update_nesterov,
             (const struct update *update, const float *restrict gradient, float *restrict moments,
              float *restrict values, size_t n),
             (update, gradient, moments, values, n))
{
    float rate = update->rate, beta = update->beta, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i] + decay * values[i];
        float m = beta * moments[i] + g;
        moments[i] = m;
        values[i] -= rate * (g + beta * m);
    }
}

FOR_EACH_CPU(static, void, update_adam,
             (const struct update *update, const float *restrict gradient, float *restrict first,
              float *restrict second, float *restrict values, size_t n),
             (update, gradient, first, second, values, n))
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

FOR_EACH_CPU(static, void, update_adagrad,
             (const struct update *update, const float *restrict gradient, float *restrict moments,
              float *restrict values, size_t n),
             (update, gradient, moments, values, n))
{
    float rate = update->rate, epsilon = update->epsilon, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i] + decay * values[i];
        float s = moments[i] + g * g;
        moments[i] = s;
        values[i] -= rate * g / (sqrtf(s) + epsilon);
    }
}

FOR_EACH_CPU(static, void, update_rmsprop,
             (const struct update *update, const float *restrict gradient, float *restrict moments,
              float *restrict values, size_t n),
             (update, gradient, moments, values, n))
{
    float rate = update->rate, beta2 = update->beta2;
    float epsilon = update->epsilon, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i] + decay * values[i];
        float s = beta2 * moments[i] + (1.0F - beta2) * (g * g);
        moments[i] = s;
        values[i] -= rate * g / (sqrtf(s) + epsilon);
    }
}

FOR_EACH_CPU(static, void, update_adamw,
             (const struct update *update, const float *restrict gradient, float *restrict first,
              float *restrict second, float *restrict values, size_t n),
             (update, gradient, first, second, values, n))
{
    float rate = update->rate, beta = update->beta, beta2 = update->beta2;
    float epsilon = update->epsilon, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i];
        float m = beta * first[i] + (1.0F - beta) * g;
        float s = beta2 * second[i] + (1.0F - beta2) * (g * g);
        first[i] = m;
        second[i] = s;
        values[i] = (values[i] - decay * values[i]) - rate * m / (sqrtf(s) + epsilon);
    }
}

FOR_EACH_CPU(static, void, apply_lars,
             (const struct update *update, float rate, const float *restrict gradient,
              float *restrict moments, float *restrict values, size_t n),
             (update, rate, gradient, moments, values, n))
{
    float beta = update->beta, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float m = beta * moments[i] + rate * (gradient[i] + decay * values[i]);
        moments[i] = m;
        values[i] -= m;
    }
}

static enum rc update_lars(struct backend *backend, const struct update *update,
                           const float *gradient, float *moments, float *values, size_t n)
{
    double value_squares = 0.0, gradient_squares = 0.0;
    enum rc rc = RC_OK;

    if (update->trust > 0.0F) {
        rc = cpu_squared_norm(backend, values, n, &value_squares);
        if (rc == RC_OK) rc = cpu_squared_norm(backend, gradient, n, &gradient_squares);
    }
    if (rc != RC_OK) return rc;
    apply_lars(update, update_lars_rate(update, sqrt(value_squares), sqrt(gradient_squares)),
               gradient, moments, values, n);
    return RC_OK;
}

FOR_EACH_CPU(static, void, lamb_block,
             (const struct update *update, const float *restrict gradient, float *restrict first,
              float *restrict second, const float *restrict values, float *restrict direction,
              size_t n),
             (update, gradient, first, second, values, direction, n))
{
    float beta = update->beta, beta2 = update->beta2, correction = update->correction;
    float epsilon = update->epsilon, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i];
        float m = beta * first[i] + (1.0F - beta) * g;
        float s = beta2 * second[i] + (1.0F - beta2) * (g * g);
        first[i] = m;
        second[i] = s;
        direction[i] = correction * m / (sqrtf(s) + epsilon) + decay * values[i];
    }
}

/* New moments, and the squared norm of the direction, which is at hand for a block only. */
static enum rc lamb_moments(struct backend *backend, const struct update *update,
                            const float *gradient, float *first, float *second, const float *values,
                            size_t n, double *squares)
{
    float direction[LAMB_BLOCK];
    enum rc rc = RC_OK;

    *squares = 0.0;
    for (size_t i = 0; rc == RC_OK && i < n; i += LAMB_BLOCK) {
        size_t count = n - i < LAMB_BLOCK ? n - i : LAMB_BLOCK;
        double part = 0.0;
        lamb_block(update, gradient + i, first + i, second + i, values + i, direction, count);
        rc = cpu_squared_norm(backend, direction, count, &part);
        *squares += part;
    }
    return rc;
}

FOR_EACH_CPU(static, void, apply_lamb,
             (const struct update *update, float rate, const float *restrict first,
              const float *restrict second, float *restrict values, size_t n),
             (update, rate, first, second, values, n))
{
    float correction = update->correction, epsilon = update->epsilon, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        float r = correction * first[i] / (sqrtf(second[i]) + epsilon) + decay * values[i];
        values[i] -= rate * r;
    }
}

static enum rc update_lamb(struct backend *backend, const struct update *update,
                           const float *gradient, float *first, float *second, float *values,
                           size_t n)
{
    double value_squares = 0.0, direction_squares = 0.0;
    enum rc rc =
        lamb_moments(backend, update, gradient, first, second, values, n, &direction_squares);

    if (rc == RC_OK) rc = cpu_squared_norm(backend, values, n, &value_squares);
    if (rc != RC_OK) return rc;
    apply_lamb(update, update_lamb_rate(update, sqrt(value_squares), sqrt(direction_squares)),
               first, second, values, n);
    return RC_OK;
}

FOR_EACH_CPU(static, void, blend_muon,
             (const struct update *update, const float *restrict gradient, float *restrict moments,
              float *restrict direction, size_t n),
             (update, gradient, moments, direction, n))
{
    float beta = update->beta;

    for (size_t i = 0; i < n; i++) {
        float pull = (1.0F - beta) * gradient[i];
        float m = beta * moments[i] + pull;
        moments[i] = m;
        direction[i] = pull + beta * m;
    }
}

FOR_EACH_CPU(static, void, apply_muon,
             (const struct update *update, const float *restrict direction, float *restrict values,
              size_t n),
             (update, direction, values, n))
{
    float rate = update->rate, decay = update->decay;

    for (size_t i = 0; i < n; i++) {
        values[i] = (values[i] - decay * values[i]) - rate * direction[i];
    }
}

/* On the shorter side of X: A = X X^T, B = b A + c A A, Y = a X + B X, or the transposed form. */
static enum rc newton_schulz_step(struct backend *backend, size_t rows, size_t columns,
                                  const float *x, float *y, float *a, float *b)
{
    bool is_wide = rows <= columns;
    size_t side = is_wide ? rows : columns;
    struct gemm product = {.is_a_transposed = !is_wide,
                           .is_b_transposed = is_wide,
                           .rows = side,
                           .columns = side,
                           .inner = is_wide ? columns : rows,
                           .alpha = 1.0F,
                           .a = x,
                           .b = x,
                           .c = a,
                           .a_stride = columns,
                           .b_stride = columns,
                           .c_stride = side};
    enum rc rc = cpu_gemm(backend, &product);

    if (rc != RC_OK) return rc;
    memcpy(b, a, side * side * sizeof(*b));
    product = (struct gemm){.rows = side,
                            .columns = side,
                            .inner = side,
                            .alpha = (float)NEWTON_SCHULZ_C,
                            .beta = (float)NEWTON_SCHULZ_B,
                            .a = a,
                            .b = a,
                            .c = b,
                            .a_stride = side,
                            .b_stride = side,
                            .c_stride = side};
    rc = cpu_gemm(backend, &product);
    if (rc != RC_OK) return rc;
    memcpy(y, x, rows * columns * sizeof(*y));
    product = (struct gemm){.rows = rows,
                            .columns = columns,
                            .inner = side,
                            .alpha = 1.0F,
                            .beta = (float)NEWTON_SCHULZ_A,
                            .a = is_wide ? b : x,
                            .b = is_wide ? x : b,
                            .c = y,
                            .a_stride = side,
                            .b_stride = columns,
                            .c_stride = columns};
    return cpu_gemm(backend, &product);
}

static enum rc update_muon(struct backend *backend, const struct update *update,
                           const float *gradient, float *moments, float *values, size_t n)
{
    size_t rows = update->rows, columns = n / rows, side = rows < columns ? rows : columns;
    float *x = update->workspace, *y = x + n, *a = y + n, *b = a + side * side;
    double squares = 0.0;
    enum rc rc;

    blend_muon(update, gradient, moments, x, n);
    rc = cpu_squared_norm(backend, x, n, &squares);
    if (rc == RC_OK) {
        rc = cpu_scale(backend, (float)(1.0 / (sqrt(squares) + NEWTON_SCHULZ_EPSILON)), x, n);
    }
    for (int k = 0; rc == RC_OK && k < NEWTON_SCHULZ_STEPS; k++) {
        float *next = y;
        rc = newton_schulz_step(backend, rows, columns, x, y, a, b);
        y = x;
        x = next;
    }
    if (rc == RC_OK) apply_muon(update, x, values, n);
    return rc;
}

enum rc cpu_update(struct backend *backend, const struct update *update, const float *gradient,
                   float *moments, float *values, size_t n)
{
    size_t plane = update->plane == 0 ? n : update->plane;

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
    case UPDATE_ADAGRAD:
        update_adagrad(update, gradient, moments, values, n);
        break;
    case UPDATE_RMSPROP:
        update_rmsprop(update, gradient, moments, values, n);
        break;
    case UPDATE_ADAM:
        update_adam(update, gradient, moments, moments + plane, values, n);
        break;
    case UPDATE_ADAMW:
        update_adamw(update, gradient, moments, moments + plane, values, n);
        break;
    case UPDATE_LARS:
        return update_lars(backend, update, gradient, moments, values, n);
    case UPDATE_LAMB:
        return update_lamb(backend, update, gradient, moments, moments + plane, values, n);
    case UPDATE_MUON:
        CHECK(update->rows > 0 && n % update->rows == 0 && update->workspace != NULL);
        return update_muon(backend, update, gradient, moments, values, n);
    case UPDATE_COUNT:
    default:
        CHECK(false); /* an update of a known kind */
    }
    return RC_OK;
}

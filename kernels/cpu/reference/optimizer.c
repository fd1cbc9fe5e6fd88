/*
 * The oracle's optimizer steps; what each is, with its source, is in replica/optimizer/optimizer.c.
 * Rates and norms are float64, everything else as a fused kernel would do it, in float32.
 *
 * Layer-wise ratios (LARS, LAMB) are 1 where a norm is 0: a tensor that starts at zero would
 * otherwise never move, and one without gradient would divide by zero.
 *
 * Muon makes its direction orthogonal by five Newton-Schulz steps of a quintic with these
 * coefficients (Jordan et al. 2024). They trade convergence to 1 for speed: singular values end
 * between about 0.5 and 1.5.
 */
#include "kernels/cpu/reference/reference.h"

#include "base/check.h"

#include <math.h>

/* X -> a X + (b A + c A A) X with A = X X^T, on whichever side is shorter. */
static void newton_schulz_step(size_t rows, size_t columns, const float *x, float *y, float *a,
                               float *b)
{
    bool is_wide = rows <= columns;
    size_t side = is_wide ? rows : columns, inner = is_wide ? columns : rows;
    const struct gemm square = {.is_a_transposed = !is_wide,
                                .is_b_transposed = is_wide,
                                .rows = side,
                                .columns = side,
                                .inner = inner,
                                .alpha = 1.0F,
                                .a = x,
                                .b = x,
                                .c = a,
                                .a_stride = columns,
                                .b_stride = columns,
                                .c_stride = side};

    reference_gemm(&square);
    for (size_t i = 0; i < side; i++) {
        for (size_t j = 0; j < side; j++) {
            double sum = 0.0;
            for (size_t k = 0; k < side; k++) {
                sum += (double)a[i * side + k] * (double)a[k * side + j];
            }
            b[i * side + j] =
                (float)(NEWTON_SCHULZ_B * (double)a[i * side + j] + NEWTON_SCHULZ_C * sum);
        }
    }
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            double sum = NEWTON_SCHULZ_A * (double)x[i * columns + j];
            for (size_t k = 0; k < side; k++) {
                sum += is_wide ? (double)b[i * side + k] * (double)x[k * columns + j]
                               : (double)x[i * columns + k] * (double)b[k * side + j];
            }
            y[i * columns + j] = (float)sum;
        }
    }
}

/* Five Newton-Schulz steps on the matrix that `workspace` begins with; the result lies in the
 * workspace, too. */
static float *newton_schulz(size_t rows, size_t columns, float *workspace)
{
    size_t n = rows * columns, side = rows < columns ? rows : columns;
    float *x = workspace, *y = x + n, *a = y + n, *b = a + side * side;
    double norm = sqrt(reference_squared_norm(x, n)) + NEWTON_SCHULZ_EPSILON;

    for (size_t i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] / norm);
    }
    for (int k = 0; k < NEWTON_SCHULZ_STEPS; k++) {
        float *next = y;
        newton_schulz_step(rows, columns, x, y, a, b);
        y = x;
        x = next;
    }
    return x;
}

static void update_muon(const struct update *update, const float *gradient, float *moments,
                        float *values, size_t n)
{
    const float *direction;

    for (size_t i = 0; i < n; i++) {
        float pull = (1.0F - update->beta) * gradient[i];
        moments[i] = update->beta * moments[i] + pull;
        update->workspace[i] = pull + update->beta * moments[i];
    }
    direction = newton_schulz(update->rows, n / update->rows, update->workspace);
    for (size_t i = 0; i < n; i++) {
        values[i] = (values[i] - update->decay * values[i]) - update->rate * direction[i];
    }
}

float update_lars_rate(const struct update *update, double value_norm, double gradient_norm)
{
    double divisor = gradient_norm + (double)update->decay * value_norm + (double)update->epsilon;

    if (!(update->trust > 0.0F) || value_norm == 0.0 || gradient_norm == 0.0) return update->rate;
    return (float)((double)update->rate * (double)update->trust * value_norm / divisor);
}

float update_lamb_rate(const struct update *update, double value_norm, double direction_norm)
{
    if (!(update->trust > 0.0F) || value_norm == 0.0 || direction_norm == 0.0) return update->rate;
    return (float)((double)update->rate * value_norm / direction_norm);
}

static void update_lars(const struct update *update, const float *gradient, float *moments,
                        float *values, size_t n)
{
    float rate = update_lars_rate(update, sqrt(reference_squared_norm(values, n)),
                                  sqrt(reference_squared_norm(gradient, n)));

    for (size_t i = 0; i < n; i++) {
        moments[i] = update->beta * moments[i] + rate * (gradient[i] + update->decay * values[i]);
        values[i] -= moments[i];
    }
}

static float lamb_direction(const struct update *update, float first, float second, float value)
{
    return update->correction * first / (sqrtf(second) + update->epsilon) + update->decay * value;
}

static void update_lamb(const struct update *update, const float *gradient, float *first,
                        float *second, float *values, size_t n)
{
    double squares = 0.0;
    float rate;

    for (size_t i = 0; i < n; i++) {
        float g = gradient[i], r;
        first[i] = update->beta * first[i] + (1.0F - update->beta) * g;
        second[i] = update->beta2 * second[i] + (1.0F - update->beta2) * (g * g);
        r = lamb_direction(update, first[i], second[i], values[i]);
        squares += (double)r * (double)r;
    }
    rate = update_lamb_rate(update, sqrt(reference_squared_norm(values, n)), sqrt(squares));
    for (size_t i = 0; i < n; i++) {
        values[i] -= rate * lamb_direction(update, first[i], second[i], values[i]);
    }
}

static void update_plain(const struct update *update, const float *gradient, float *moments,
                         float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = gradient[i] + update->decay * values[i];

        switch (update->kind) {
        case UPDATE_SGD:
            values[i] -= update->rate * g;
            break;
        case UPDATE_MOMENTUM:
            moments[i] = update->beta * moments[i] + g;
            values[i] -= update->rate * moments[i];
            break;
        case UPDATE_NESTEROV:
            moments[i] = update->beta * moments[i] + g;
            values[i] -= update->rate * (g + update->beta * moments[i]);
            break;
        case UPDATE_ADAGRAD:
            moments[i] = moments[i] + g * g;
            values[i] -= update->rate * g / (sqrtf(moments[i]) + update->epsilon);
            break;
        case UPDATE_RMSPROP:
            moments[i] = update->beta2 * moments[i] + (1.0F - update->beta2) * (g * g);
            values[i] -= update->rate * g / (sqrtf(moments[i]) + update->epsilon);
            break;
        default:
            CHECK(false); /* one of those above */
        }
    }
}

static void update_adam(const struct update *update, const float *gradient, float *first,
                        float *second, float *values, size_t n)
{
    bool is_decoupled = update->kind == UPDATE_ADAMW;

    for (size_t i = 0; i < n; i++) {
        float g = is_decoupled ? gradient[i] : gradient[i] + update->decay * values[i];
        float shrink = is_decoupled ? update->decay * values[i] : 0.0F;

        first[i] = update->beta * first[i] + (1.0F - update->beta) * g;
        second[i] = update->beta2 * second[i] + (1.0F - update->beta2) * (g * g);
        values[i] =
            (values[i] - shrink) - update->rate * first[i] / (sqrtf(second[i]) + update->epsilon);
    }
}

void reference_update(const struct update *update, const float *gradient, float *moments,
                      float *values, size_t n)
{
    size_t plane = update->plane == 0 ? n : update->plane;

    switch (update->kind) {
    case UPDATE_SGD:
    case UPDATE_MOMENTUM:
    case UPDATE_NESTEROV:
    case UPDATE_ADAGRAD:
    case UPDATE_RMSPROP:
        update_plain(update, gradient, moments, values, n);
        break;
    case UPDATE_ADAM:
    case UPDATE_ADAMW:
        update_adam(update, gradient, moments, moments + plane, values, n);
        break;
    case UPDATE_LARS:
        update_lars(update, gradient, moments, values, n);
        break;
    case UPDATE_LAMB:
        update_lamb(update, gradient, moments, moments + plane, values, n);
        break;
    case UPDATE_MUON:
        CHECK(update->rows > 0 && n % update->rows == 0 && update->workspace != NULL);
        update_muon(update, gradient, moments, values, n);
        break;
    case UPDATE_COUNT:
    default:
        CHECK(false); /* an update of a known kind */
    }
}

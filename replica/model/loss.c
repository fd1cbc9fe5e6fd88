/*
 * Losses on a model's outputs in host memory: softmax cross-entropy with labels, and distillation
 * (Hinton, Vinyals, Dean 2015, arXiv:1503.02531): (1 - a) CE + a T^2 KL(teacher_T || student_T),
 * whose second gradient is a T (student_T - teacher_T). T^2 keeps both gradients of one size when T
 * changes. Rows labelled LABEL_IGNORE count nowhere.
 */
#include "replica/model/loss.h"

#include "base/check.h"
#include "kernels/softmax.h"

#include <math.h>
#include <string.h>

static double mean_of(double sum, uint32_t counted)
{
    return counted > 0 ? sum / counted : 0.0;
}

double loss_cross_entropy(const float *logits, const uint32_t *labels, uint32_t batch,
                          uint32_t classes, float *gradient, uint32_t *correct)
{
    CHECK(batch > 0);
    return mean_of(softmax_cross_entropy(logits, labels, batch, classes, gradient, correct),
                   softmax_counted(labels, batch));
}

uint32_t loss_rows_cross_entropy(const struct loss_rows *rows, const uint32_t *labels)
{
    return softmax_label_losses(&(struct softmax_rows){
        .logits = rows->logits,
        .labels = labels,
        .rows = rows->rows,
        .classes = rows->outputs,
        .counted = rows->counted,
        .gradient = rows->gradient,
        .losses = rows->losses,
    });
}

bool heads_loss_parse(const char *text, enum heads_loss *loss)
{
    static const char *const names[HEADS_LOSSES] = {"mean", "ensemble", "oracle"};

    for (int i = 0; i < HEADS_LOSSES; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *loss = (enum heads_loss)i;
        return true;
    }
    return false;
}

/* Of heads with these losses: the loss of all, and what each one's gradient is multiplied by, which
 * the mean has as 1. exp(-loss) is the probability of the right class; the least loss goes out of
 * the sum first, so that no other underflows with it. */
static double share(const double *losses, uint32_t heads, enum heads_loss kind, double *shares)
{
    double sum = 0;
    uint32_t best = 0;

    for (uint32_t m = 1; m < heads; m++) {
        if (losses[m] < losses[best]) best = m;
    }
    for (uint32_t m = 0; m < heads; m++) {
        shares[m] = kind == HEADS_ORACLE ? m == best : exp(losses[best] - losses[m]);
        sum += shares[m];
    }
    for (uint32_t m = 0; m < heads; m++) {
        shares[m] *= heads / sum;
    }
    return kind == HEADS_ORACLE ? losses[best] : losses[best] - log(sum / heads);
}

uint32_t loss_rows_heads(const struct loss_rows *rows, const uint32_t *labels, uint32_t heads,
                         enum heads_loss loss)
{
    const uint32_t hits = loss_rows_cross_entropy(rows, labels);

    CHECK(heads > 1 && heads <= HEADS_MAX && rows->rows % heads == 0);
    for (size_t r = 0; r < rows->rows && loss != HEADS_MEAN; r += heads) {
        double *losses = rows->losses + r, shares[HEADS_MAX];
        float *gradient = rows->gradient != NULL ? rows->gradient + r * rows->outputs : NULL;
        const double all = share(losses, heads, loss, shares);

        for (uint32_t m = 0; m < heads; m++) {
            losses[m] = labels[r] == LABEL_IGNORE ? 0 : all;
            for (uint32_t c = 0; gradient != NULL && c < rows->outputs; c++) {
                gradient[m * rows->outputs + c] *= (float)shares[m];
            }
        }
    }
    return hits;
}

uint32_t loss_rows_distillation(const struct loss_rows *rows, const struct loss_teaching *teaching)
{
    double a = teaching->a, scale = a * teaching->temperature * teaching->temperature;
    uint32_t hits = 0;

    for (size_t r = 0; r < rows->rows; r++) {
        size_t at = r * rows->outputs;
        struct softmax_sums sums = softmax_mixture(&(struct softmax_mixture){
            .logits = rows->logits + at,
            .targets = teaching->teacher + at,
            .labels = teaching->labels + r,
            .rows = 1,
            .classes = rows->outputs,
            .counted = rows->counted,
            .temperature = teaching->temperature,
            .hard_share = 1.0 - a,
            .soft_share = scale,
            .gradient = rows->gradient != NULL ? rows->gradient + at : NULL,
        });
        rows->losses[r] = (1.0 - a) * sums.hard + scale * (sums.soft - sums.entropy);
        hits += sums.correct;
    }
    return hits;
}

double loss_distillation(const float *logits, const float *teacher, const uint32_t *labels,
                         uint32_t batch, uint32_t classes, double temperature, double a,
                         float *gradient, uint32_t *correct)
{
    uint32_t counted = softmax_counted(labels, batch);
    double sum = 0.0, loss;

    CHECK(batch > 0 && classes > 0 && temperature > 0.0);
    *correct = 0;
    for (size_t r = 0; r < batch; r++) {
        size_t at = r * classes;
        const struct loss_rows row = {.logits = logits + at,
                                      .gradient = gradient != NULL ? gradient + at : NULL,
                                      .rows = 1,
                                      .outputs = classes,
                                      .counted = counted,
                                      .losses = &loss};
        const struct loss_teaching teaching = {teacher + at, labels + r, temperature, a};

        *correct += loss_rows_distillation(&row, &teaching);
        sum += loss;
    }
    return mean_of(sum, counted);
}

void loss_rows_squared(const struct loss_rows *rows, const float *targets)
{
    double factor = 2.0 / ((double)rows->counted * rows->outputs);

    for (size_t r = 0; r < rows->rows; r++) {
        double sum = 0.0;
        for (size_t i = r * rows->outputs; i < (r + 1) * rows->outputs; i++) {
            double difference = (double)rows->logits[i] - (double)targets[i];
            sum += difference * difference;
            if (rows->gradient != NULL) rows->gradient[i] = (float)(factor * difference);
        }
        rows->losses[r] = sum / rows->outputs;
    }
}

double loss_squared(const float *predicted, const float *targets, uint32_t rows, uint32_t outputs,
                    float *gradient)
{
    double sum = 0.0, loss;

    CHECK(rows > 0 && outputs > 0);
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * outputs;
        const struct loss_rows row = {.logits = predicted + at,
                                      .gradient = gradient != NULL ? gradient + at : NULL,
                                      .rows = 1,
                                      .outputs = outputs,
                                      .counted = rows,
                                      .losses = &loss};

        loss_rows_squared(&row, targets + at);
        sum += loss;
    }
    return sum / rows;
}

void loss_merge_heads(const float *logits, size_t rows, uint32_t heads, uint32_t classes,
                      float *merged)
{
    CHECK(heads > 0 && classes > 0);
    for (size_t r = 0; r < rows; r++) {
        softmax_merge(logits + r * heads * classes, heads, classes, merged + r * classes);
    }
}

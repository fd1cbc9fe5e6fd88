/*
 * training: see training.h. Steps are taken in stretches, between which it is asked whether to
 * stop; a stretch takes a few seconds at most, however slow a step is.
 */
#include "distill/training.h"

#include "base/bytes.h"
#include "distill/student_state.h"

#include <stdio.h>

enum { STRETCH_MAX = 64 };
#define STRETCH_NS (2 * NS_PER_S)
#define KEEP_NS    (30 * NS_PER_S)

static uint64_t now(const struct training *t)
{
    return t->now_ns != NULL ? t->now_ns() : 0;
}

static enum rc keep(const struct training *t, struct fault *why)
{
    if (t->state_path == NULL) return RC_OK;
    return student_state_save(t->state_path, t->student, t->question, why);
}

/* Where an earlier try was. */
static enum rc resume(struct training *t, struct fault *why)
{
    struct train_report report;
    struct fault reason = {""};
    enum rc rc = t->state_path != NULL
                     ? student_state_load(t->state_path, t->student, t->question, &reason)
                     : RC_NOT_FOUND;

    t->resumed = 0;
    if (rc == RC_MISMATCH && t->on_other != NULL) t->on_other(t->context);
    if (rc == RC_NOT_FOUND || rc == RC_MISMATCH) return RC_OK;
    if (rc != RC_OK) return fault_set(why, rc, "%s; move it away to start over", reason.text);
    rc = t->student->ops->train(t->student, 0, NULL, &report); /* only says where it is */
    if (rc != RC_OK) return fault_set(why, rc, "cannot train the student: %s", rc_text(rc));
    t->resumed = report.step < t->steps ? report.step : t->steps;
    return RC_OK;
}

/* Twice as many steps while they are quick, half of them where they are not. */
static uint32_t next_stretch(uint32_t stretch, uint64_t took_ns)
{
    if (took_ns > STRETCH_NS) return stretch > 1 ? stretch / 2 : 1;
    return stretch < STRETCH_MAX / 2 ? 2 * stretch : STRETCH_MAX;
}

static enum rc stop(const struct training *t, uint64_t done, struct fault *why)
{
    const enum rc rc = keep(t, why);

    if (rc != RC_OK) return rc;
    return fault_set(why, RC_CANCELLED,
                     t->state_path != NULL
                         ? "stopped after %llu of %llu steps; the same command goes on from there"
                         : "stopped after %llu of %llu steps",
                     (unsigned long long)done, (unsigned long long)t->steps);
}

enum rc training_run(struct training *t, struct fault *why)
{
    enum rc rc = resume(t, why);
    uint64_t kept_ns = now(t);
    uint32_t stretch = STRETCH_MAX / 8;

    for (uint64_t done = t->resumed; rc == RC_OK && done < t->steps;) {
        const uint64_t left = t->steps - done, begin_ns = now(t);
        struct train_report report;
        if (t->is_stopped != NULL && t->is_stopped(t->context)) return stop(t, done, why);
        rc = t->student->ops->train(t->student, left < stretch ? (uint32_t)left : stretch, NULL,
                                    &report);
        if (rc != RC_OK) {
            return fault_set(why, rc, "cannot train the student: %s", rc_text(rc));
        }
        done += report.steps;
        t->on_steps(t->context, done, report.loss_sum / report.steps);
        const uint64_t end_ns = now(t);
        stretch = next_stretch(stretch, end_ns - begin_ns);
        if (end_ns - kept_ns < KEEP_NS && done < t->steps) continue;
        rc = keep(t, why);
        kept_ns = end_ns;
    }
    return rc;
}

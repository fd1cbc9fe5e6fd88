/* distill_result: what came out of a distillation, and how it is said. */
#include "distill/distill_internal.h"

#include "base/json.h"

#include <math.h>

bool distill_is_better(const struct evaluation *a, const struct evaluation *b)
{
    return isnan(a->accuracy) || isnan(b->accuracy) ? a->loss < b->loss : a->accuracy > b->accuracy;
}

bool distill_labels_win(const struct distill_result *result)
{
    return result->has_baseline && distill_is_better(&result->labels_only, &result->student);
}

void distill_result_deinit(struct distill_result *result)
{
    comparison_deinit(&result->teachers);
    lineup_deinit(&result->lineup);
}

struct json *distill_json(const struct distill_result *r)
{
    struct json *json = json_object_create(), *accuracy = json_array_create();
    struct json *loss = json_array_create(), *calibration = json_array_create();

    for (size_t i = 0; i < r->teachers.count; i++) {
        json_append_real(accuracy, score_accuracy(&r->teachers.models[i]));
        json_append_real(loss, score_loss(&r->teachers.models[i]));
        json_append_real(calibration, score_calibration(&r->teachers.models[i]));
    }
    json_set_count(json, "teachers", r->teachers.count);
    json_set(json, "teacher_accuracy", accuracy);
    json_set(json, "teacher_loss", loss);
    json_set(json, "teacher_calibration_error", calibration);
    json_set_real(json, "ensemble_accuracy", score_accuracy(&r->teachers.votes[r->vote]));
    json_set_real(json, "ensemble_loss", score_loss(&r->teachers.votes[r->vote]));
    json_set_real(json, "ensemble_calibration_error",
                  score_calibration(&r->teachers.votes[r->vote]));
    json_set_real(json, "average_model_accuracy", score_accuracy(&r->teachers.average));
    json_set_real(json, "average_model_loss", score_loss(&r->teachers.average));
    json_set_real(json, "average_model_calibration_error", score_calibration(&r->teachers.average));
    json_set_real(json, "student_accuracy", r->student.accuracy);
    json_set_real(json, "student_loss", r->student.loss);
    json_set_real(json, "student_calibration_error", score_calibration(&r->student_judged.score));
    if (r->has_baseline) {
        json_set_real(json, "labels_only_accuracy", r->labels_only.accuracy);
        json_set_real(json, "labels_only_loss", r->labels_only.loss);
        json_set_real(json, "labels_only_calibration_error",
                      score_calibration(&r->labels_only_judged.score));
        json_set_real(json, "labels_only_lr", r->labels_only_lr);
        json_set_bool(json, "labels_only_wins", distill_labels_win(r));
    }
    json_set_count(json, "student_parameters", r->student_parameters);
    json_set_count(json, "teacher_parameters", r->teacher_parameters);
    json_set_real(json, "compression",
                  (double)r->teacher_parameters / (double)r->student_parameters);
    json_set_text(json, "student", r->student_spec);
    json_set_text(json, "vote", vote_name(r->vote));
    if (r->trim > 0) json_set_count(json, "trim", r->trim);
    json_set_real(json, "temperature", r->temperature);
    json_set_real(json, "alpha", r->alpha);
    json_set_count(json, "steps", r->steps);
    json_set_count(json, "samples", r->samples);
    json_set_count(json, "samples_all", r->samples_all);
    json_set_real(json, "lr", r->lr);
    json_set_text(json, "targets", r->is_hard ? "hard" : "soft");
    if (r->transfer[0] != '\0') json_set_text(json, "transfer", r->transfer);
    json_set_bool(json, "answers_reused", r->answers_were_there);
    json_set_real(json, "answering_s", r->answering_s);
    json_set_real(json, "learning_s", r->learning_s);
    if (r->has_baseline) json_set_real(json, "labels_only_s", r->labels_only_s);
    json_set_count(json, "resumed_steps", r->resumed_steps);
    json_set(json, "models", lineup_json(&r->lineup));
    return json;
}

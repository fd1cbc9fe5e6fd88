/* student_state: see student_state.h. Thread: the command's. */
#include "distill/student_state.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "replica/plane/store_safetensors.h"

#include <string.h>
#include <unistd.h>

static const char form[] = "grapevine-student-1";

static const struct {
    enum section section;
    const char *name;
} kept[] = {
    {SECTION_PARAMETERS, "student.parameters"},
    {SECTION_BUFFERS, "student.buffers"},
    {SECTION_INPUT, "student.input"},
};
enum { KEPT = ARRAY_COUNT(kept) };

static enum rc describe(struct tensor_file *file, const struct learner *student,
                        struct digest question)
{
    char text[DIGEST_TEXT];
    enum rc rc = tensor_file_set(file, "format", form);

    digest_format(question, text);
    if (rc == RC_OK) rc = tensor_file_set(file, "question", text);
    digest_format(schema_digest(student->ops->schema(student)), text);
    return rc == RC_OK ? tensor_file_set(file, "schema", text) : rc;
}

enum rc student_state_save(const char *path, struct learner *student, struct digest question,
                           struct fault *why)
{
    const struct schema *schema = student->ops->schema(student);
    struct tensor_file *file = tensor_file_create();
    float *values[KEPT] = {NULL};
    enum rc rc = file != NULL ? describe(file, student, question) : RC_NOMEM;

    for (size_t i = 0; rc == RC_OK && i < KEPT; i++) {
        const size_t count = schema->values[kept[i].section];
        if (count == 0) continue;
        values[i] = mem_aligned(count * sizeof *values[i]);
        rc = values[i] == NULL
                 ? RC_NOMEM
                 : student->ops->export_section(student, kept[i].section, values[i], count);
        if (rc == RC_OK) rc = tensor_file_add_f32(file, kept[i].name, values[i], count);
    }
    if (rc == RC_OK) rc = student->ops->save(student, file);
    if (rc != RC_OK) {
        fault_set(why, rc, "cannot keep the student's training: %s", rc_text(rc));
    } else {
        rc = tensor_file_save(file, path, why);
    }
    tensor_file_destroy(file);
    for (size_t i = 0; i < KEPT; i++) {
        mem_free(values[i]);
    }
    return rc;
}

static bool says(const struct tensor_file *file, const char *key, struct digest digest)
{
    const char *text = tensor_file_get(file, key);
    struct digest said;

    return text != NULL && digest_parse(text, &said) && digest_is_equal(said, digest);
}

/* All sections, before any is taken. */
static enum rc find_sections(const struct tensor_file *file, const struct schema *schema,
                             const struct tensor_view *views[KEPT])
{
    for (size_t i = 0; i < KEPT; i++) {
        const size_t count = schema->values[kept[i].section];
        views[i] = count > 0 ? tensor_file_find(file, kept[i].name) : NULL;
        if (count == 0) continue;
        if (views[i] == NULL || strcmp(views[i]->dtype, "F32") != 0 ||
            views[i]->bytes_count != count * sizeof(float)) {
            return RC_FORMAT;
        }
        for (size_t k = 0; k < count; k++) {
            const float value = load_le_float((const uint8_t *)views[i]->bytes + k * sizeof(float));
            if (!floats_are_finite(&value, 1)) return RC_NONFINITE;
        }
    }
    return RC_OK;
}

static enum rc take(struct learner *student, const struct tensor_file *file,
                    const struct tensor_view *const views[KEPT], struct fault *why)
{
    const struct schema *schema = student->ops->schema(student);
    enum rc rc = student->ops->load(student, file, why);

    for (size_t i = 0; rc == RC_OK && i < KEPT; i++) {
        const size_t count = schema->values[kept[i].section];
        float *values = count > 0 ? mem_aligned(count * sizeof *values) : NULL;
        if (count == 0) continue;
        if (values == NULL) return fault_set(why, RC_NOMEM, "cannot distil: out of memory");
        memcpy(values, views[i]->bytes, count * sizeof *values);
        rc = student->ops->assign_section(student, kept[i].section, values, count);
        if (rc != RC_OK) fault_set(why, rc, "cannot go on with the student: %s", rc_text(rc));
        mem_free(values);
    }
    return rc;
}

enum rc student_state_load(const char *path, struct learner *student, struct digest question,
                           struct fault *why)
{
    const struct schema *schema = student->ops->schema(student);
    const struct tensor_view *views[KEPT];
    struct tensor_file *file = NULL;
    enum rc rc = tensor_file_load(path, &file, why);

    if (rc != RC_OK) return rc;
    const char *said = tensor_file_get(file, "format");
    if (said == NULL || strcmp(said, form) != 0) {
        rc = fault_set(why, RC_FORMAT, "%s holds no student in training", path);
    } else if (!says(file, "question", question) || !says(file, "schema", schema_digest(schema))) {
        rc = fault_set(why, RC_MISMATCH, "%s is of another training", path);
    } else if ((rc = find_sections(file, schema, views)) != RC_OK) {
        rc = fault_set(why, rc, "%s is damaged", path);
    } else {
        rc = take(student, file, views, why);
    }
    tensor_file_destroy(file);
    return rc;
}

void student_state_remove(const char *path)
{
    unlink(path);
}

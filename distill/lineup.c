/* lineup: see lineup.h. */
#include "distill/lineup.h"

#include "base/json.h"
#include "base/mem.h"

#include <math.h>

static void row_deinit(struct lineup_row *row)
{
    mem_free(row->name);
    mem_free(row->file);
    mem_free(row->command);
}

enum rc lineup_add(struct lineup *lineup, const char *name, const char *file, const char *command,
                   const struct judged *judged)
{
    struct lineup_row *rows = mem_resize(lineup->rows, (lineup->count + 1) * sizeof *rows);
    struct lineup_row row = {.name = mem_string(name), .judged = *judged};

    if (rows != NULL) lineup->rows = rows;
    if (file != NULL) row.file = mem_string(file);
    if (command != NULL) row.command = mem_string(command);
    if (rows == NULL || row.name == NULL || (file != NULL && row.file == NULL) ||
        (command != NULL && row.command == NULL)) {
        row_deinit(&row);
        return RC_NOMEM;
    }
    rows[lineup->count++] = row;
    return RC_OK;
}

void lineup_deinit(struct lineup *lineup)
{
    for (size_t i = 0; i < lineup->count; i++) {
        row_deinit(&lineup->rows[i]);
    }
    mem_free(lineup->rows);
    *lineup = (struct lineup){NULL, 0};
}

struct json *lineup_json(const struct lineup *lineup)
{
    struct json *json = json_array_create();

    for (size_t i = 0; i < lineup->count; i++) {
        const struct judged *judged = &lineup->rows[i].judged;
        struct json *row = json_object_create();
        json_set_text(row, "name", lineup->rows[i].name);
        json_set_text(row, "file", lineup->rows[i].file);
        json_set_count(row, "parameters", judged->parameters);
        json_set_count(row, "bytes", judged->bytes);
        json_set_count(row, "flops", judged->flops);
        json_set_real(row, "accuracy", score_accuracy(&judged->score));
        json_set_real(row, "loss", score_loss(&judged->score));
        json_set_real(row, "calibration_error", score_calibration(&judged->score));
        json_set_real(row, "latency_us", judged->latency_us);
        json_set_text(row, "command", lineup->rows[i].command);
        json_append(json, row);
    }
    return json;
}

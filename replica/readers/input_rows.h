/*
 * input_rows: what a user wants predictions for, row by row, as float32 values that are not
 * normalised yet: a picture, rows of a CSV file, a .npy array, or images of an IDX file. Memory is
 * bounded by a row. Commands.
 */
#ifndef GRAPEVINE_REPLICA_READERS_INPUT_ROWS_H
#define GRAPEVINE_REPLICA_READERS_INPUT_ROWS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stdint.h>

/* What a model reads. */
struct input_shape {
    uint32_t channels, height, width;
};

struct input_rows;

/** The form follows from the name's ending: .csv, .npy, picture (image_file.h), otherwise IDX.
 *  Bytes of images, IDX and .npy become 0 to 1; other numbers are taken as they are. RC_SHAPE: of
 *  another size than the model reads. Otherwise what the form's reader returns. */
MUST_USE enum rc input_rows_open(const char *path, struct input_shape wanted,
                                 struct input_rows **rows, struct fault *why);
/** A CSV's columns are looked up in its first row, if that is no numbers, by these names, each with
 *  '\n' (kept until the rows are closed); others are skipped. Before the first row is read. */
void input_rows_name(struct input_rows *rows, const char *columns);
/** NULL is fine. */
void input_rows_close(struct input_rows *rows);
/** The next row into values[channels * height * width]; *is_there false: there are no more. */
MUST_USE enum rc input_rows_next(struct input_rows *rows, float *values, bool *is_there,
                                 struct fault *why);
/** How much of the file has been read, from 0 to 1. */
double input_rows_share(const struct input_rows *rows);

#endif

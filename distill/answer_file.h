/*
 * answer_file: what teachers said about many samples, in a file that is mapped and read in any
 * order, however large it is. A row is one prediction: of a sample, or of one step of a text.
 *
 *   header  ANSWER_HEADER bytes: magic, version, outputs, top, whether values are real, rows, rows
 *           that are there, the digest of the question, and that of those rows' bytes
 *   rows    each of answer_row_bytes(), in the order of the samples asked about:
 *           all outputs    float16 each
 *           the likeliest  `top` ids, ascending (uint16, uint32 above 65,536 outputs), then
 *                           their float16
 *           real values    float32 each
 *
 * Of a large vocabulary only the `top` likeliest are kept; what they leave of 1 is spread evenly
 * over all others. The gradient of T^2 KL by a logit is T (student_T - teacher_T) (loss.h), so it
 * is exact, to float16, for every symbol kept and for the sum over the others; each of these is
 * wrong by at most T times the rest. Scaling the kept ones up to 1 instead would be wrong for all,
 * and teach the student that the others never happen.
 *
 * The question (whose digest is in the header) is who was asked what: another one has another
 * answer. A file is written as PATH.part, whose space is reserved before anybody is asked, and
 * becomes PATH when it is complete; who was interrupted goes on after the last
 * answer_writer_keep(). Blocking file access: commands only, one thread.
 */
#ifndef GRAPEVINE_DISTILL_ANSWER_FILE_H
#define GRAPEVINE_DISTILL_ANSWER_FILE_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ANSWER_HEADER = 160,
    ANSWER_TOP_MAX = 1024 /* of more outputs not all can be kept */
};

struct answer_form {
    uint32_t outputs; /* of a row */
    uint32_t top;     /* that are kept, the likeliest; `outputs`: all */
    bool is_real;     /* real values, not probabilities: all, as float32 */
};

size_t answer_row_bytes(const struct answer_form *form);
/** One row: probabilities, or real values, [outputs], finite. */
void answer_encode(const struct answer_form *form, const float *row, uint8_t *bytes);
/** ...and back; probabilities sum to 1. RC_FORMAT: bytes that answer_encode() does not write. */
MUST_USE enum rc answer_decode(const struct answer_form *form, const uint8_t *bytes, float *row);

struct answer_file_options {
    const char *path;
    struct answer_form form;
    uint64_t rows;
    struct digest question;
};

struct answer_file;

/** Map a complete file. RC_NOT_FOUND: there is none. RC_MISMATCH: answers to another question.
 *  RC_FORMAT: damaged or cut short. RC_USAGE: a file of another kind, which must not be replaced.
 */
MUST_USE enum rc answer_file_open(const struct answer_file_options *options,
                                  struct answer_file **file, struct fault *why);
/** NULL is fine. */
void answer_file_close(struct answer_file *file);
/** Row number `row` into `out` [outputs]. RC_FORMAT: it is damaged. */
MUST_USE enum rc answer_file_get(const struct answer_file *file, uint64_t row, float *out);

struct answer_writer;

/** Begin PATH.part, or go on with it: `*done` rows are there. RC_DISK_FULL before anything is
 *  asked; RC_BUSY: another program is writing it. Nothing is left behind on an error. */
MUST_USE enum rc answer_writer_open(const struct answer_file_options *options,
                                    struct answer_writer **writer, uint64_t *done,
                                    struct fault *why);
/** The next row, as answer_encode() takes it. */
MUST_USE enum rc answer_writer_add(struct answer_writer *writer, const float *row,
                                   struct fault *why);
/** All rows so far outlast a crash of the program. */
MUST_USE enum rc answer_writer_keep(struct answer_writer *writer, struct fault *why);
/** Every row is there: PATH is the file from now on. Frees `writer`, also on an error. */
MUST_USE enum rc answer_writer_finish(struct answer_writer *writer, struct fault *why);
/** Give up; with `keeps` PATH.part stays, to go on with. NULL is fine. */
void answer_writer_abandon(struct answer_writer *writer, bool keeps);
/** Remove PATH and PATH.part, as far as they are there. */
void answer_file_remove(const char *path);

#endif

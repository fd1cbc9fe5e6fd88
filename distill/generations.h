/*
 * generations: born-again networks (Furlanello et al. 2018, arXiv:1805.04770). The first student
 * learns from the teachers as ever; each later one begins anew, with weights and an order of its
 * own, and learns from the student before it, and from the labels. What all generations say
 * together is an ensemble, and is judged beside them.
 *
 * Where we differ: the paper's networks are as large as their teacher; here all students are of
 * --student, which may be smaller than the teachers, and are as large as each other.
 */
#ifndef GRAPEVINE_DISTILL_GENERATIONS_H
#define GRAPEVINE_DISTILL_GENERATIONS_H

#include "distill/distill.h"

enum { GENERATIONS_MAX = 32, GENERATIONS_PATH_BYTES = 1024 };

struct generations {
    struct distill_result result; /* as of the first, but its student is that of the last one */
    struct comparison students;   /* of each generation, and their ensemble, on the test part;
                                    empty where there is but one */
};

/** The file of generation `number` (from 1 on) of `count`: the last one is `out_path` itself, those
 *  before have their number before the file's ending. RC_USAGE: the path is too long. */
MUST_USE enum rc generations_path(const char *out_path, size_t number, size_t count,
                                  char path[GENERATIONS_PATH_BYTES], struct fault *why);
/** distill_run(), `count` times, 1 to GENERATIONS_MAX; `options->out_path` is not NULL. Each file
 *  is written when its student is done: on an error those of earlier generations stay. */
MUST_USE enum rc generations_run(struct backend *backend, const struct distill_options *options,
                                 size_t count, struct generations *out, struct fault *why);
void generations_deinit(struct generations *generations);
/** distill_json(), and `generations` and `generations_ensemble`. */
struct json *generations_json(const struct generations *generations);

#endif

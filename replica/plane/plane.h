/*
 * plane: all numbers of a replica as flat float32 vectors, one per section, plus a table of named
 * tensors. The table (schema) is what peers must agree on; its digest is the schema hash on the
 * wire.
 */
#ifndef GRAPEVINE_REPLICA_PLANE_PLANE_H
#define GRAPEVINE_REPLICA_PLANE_PLANE_H

#include "base/hash.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum section {
    SECTION_PARAMETERS, /* what is trained and averaged */
    SECTION_GRADIENT,   /* same shape as PARAMETERS */
    SECTION_MOMENTS,    /* optimizer buffers: a whole number of planes of PARAMETERS' size */
    SECTION_BUFFERS,    /* running statistics, counters */
    SECTION_MIXED,      /* what rounds exchange: PARAMETERS, then BUFFERS in a form of which means
                           make sense (replica/plane/mixture.h). Only exported and imported */
    SECTION_INPUT,      /* where the data's own numbers normalise the input: means, scales (one each
                           a channel), then INPUT_TAIL values. Fixed for the life of a model, so no
                           round touches it. Only exported and assigned */
    SECTION_COUNT
};

enum { TENSOR_NAME_BYTES = 64, TENSOR_RANK_MAX = 4 };

/* The end of SECTION_INPUT: of how many members and of how many samples it is, and what whoever
 * gives models away writes behind that; 0 at first. */
enum { INPUT_MEMBERS, INPUT_SAMPLES, INPUT_WORDS, INPUT_TAIL = INPUT_WORDS + 16 };

/* Members and samples that a float32 can say. */
#define INPUT_COUNT_MAX 1e15F

/** Can it be a SECTION_INPUT: all finite, scales above 0, counts of at least 1? */
bool input_is_sound(const float *section, size_t channels);

struct tensor {
    char name[TENSOR_NAME_BYTES]; /* "dense1.weight" */
    enum section section;         /* PARAMETERS or BUFFERS */
    uint32_t rank;
    uint32_t shape[TENSOR_RANK_MAX]; /* row-major, unused entries 0 */
    size_t offset;                   /* first value within its section */
    size_t count;                    /* values: product of shape */
};

struct schema {
    struct tensor *tensors; /* in layer order; owned */
    uint32_t tensors_count;
    uint32_t tensors_max;
    size_t values[SECTION_COUNT]; /* of each section; GRADIENT equals PARAMETERS */
    /* What SECTION_MIXED is of: all, or the first of them (schema_set_trunk). */
    size_t shared_parameters, shared_buffers;
    uint32_t shared_tensors;
    struct digest meaning; /* of what is computed with them, and of what; zero: anything */
};

void schema_init(struct schema *schema);
void schema_deinit(struct schema *schema);
/** Append one tensor at the end of its section. RC_NOMEM, RC_LIMIT, RC_SHAPE on an empty shape. */
MUST_USE enum rc schema_add(struct schema *schema, const char *name, enum section section,
                            const uint32_t *shape, uint32_t rank);
/** Layers with parameters: tensors whose names are alike up to the last point. */
uint32_t schema_layers(const struct schema *schema);
/** SECTION_MIXED is from now on of the first `layers` of these alone, and of their statistics.
 *  False: the model has no more than that. */
bool schema_set_trunk(struct schema *schema, uint32_t layers);
/** Whether it is a running mean, with its variance in the tensor behind it: named `X.running_mean`
 *  and `X.running_variance`, equally many values. */
bool schema_is_mean(const struct schema *schema, uint32_t tensor);
/** NULL if there is none of that name. */
const struct tensor *schema_find(const struct schema *schema, const char *name);
/** Over names, shapes, order, sections and meaning: equal digests mean planes can be mixed. */
struct digest schema_digest(const struct schema *schema);

#endif

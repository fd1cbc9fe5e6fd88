/*
 * onnx: a file in the Open Neural Network Exchange form, put together piece by piece: nodes,
 * constant tensors, inputs and outputs. Knows the form and nothing of our models; export_onnx.c
 * does. Commands.
 *
 * Errors  running out of memory is remembered: every call after it does nothing, and onnx_save()
 *         returns RC_NOMEM.
 */
#ifndef GRAPEVINE_REPLICA_FORMATS_ONNX_H
#define GRAPEVINE_REPLICA_FORMATS_ONNX_H

#include "base/fault.h"
#include "base/rc.h"

#include <stddef.h>
#include <stdint.h>

enum { ONNX_NAME_BYTES = 64, ONNX_INPUTS_MAX = 16, ONNX_OPSET = 17, ONNX_RANK_MAX = 4 };
enum onnx_type { ONNX_FLOAT = 1, ONNX_INT8 = 3, ONNX_INT64 = 7 };
#define ONNX_BATCH INT64_C(-1) /* as a dimension: any number of samples */

/* What flows between nodes goes by name. */
struct onnx_name {
    char text[ONNX_NAME_BYTES];
};

struct onnx_attribute {
    const char *name;
    enum { ONNX_INT, ONNX_REAL, ONNX_INTS } kind;
    int64_t integer;
    float real;
    const int64_t *integers;
    size_t count;
};

struct onnx_shape {
    uint32_t rank;
    int64_t extents[ONNX_RANK_MAX];
};

struct onnx_node {
    const char *op; /* "Conv" */
    const struct onnx_name *inputs;
    size_t inputs_count;
    const struct onnx_name *outputs;
    size_t outputs_count;
    const struct onnx_attribute *attributes;
    size_t attributes_count;
};

struct onnx;

/** NULL when out of memory. */
struct onnx *onnx_create(void);
/** NULL is fine. */
void onnx_destroy(struct onnx *onnx);
/** A name that nothing else has. */
struct onnx_name onnx_fresh(struct onnx *onnx);
/** Nodes come in the order of computing. */
void onnx_add_node(struct onnx *onnx, const struct onnx_node *node);
/** Constants. float32 values are borrowed until onnx_destroy(), the _copy form copies them. */
void onnx_add_f32(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                  const float *values);
void onnx_add_f32_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                       const float *values);
void onnx_add_i8_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                      const int8_t *values);
void onnx_add_i64_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                       const int64_t *values);
void onnx_add_input(struct onnx *onnx, const char *name, enum onnx_type type,
                    struct onnx_shape shape);
void onnx_add_output(struct onnx *onnx, const char *name, enum onnx_type type,
                     struct onnx_shape shape);
void onnx_set(struct onnx *onnx, const char *key, const char *value);
/** RC_NOMEM; RC_LIMIT above the form's 2 GiB; RC_DISK_FULL, RC_IO. */
MUST_USE enum rc onnx_save(struct onnx *onnx, const char *path, struct fault *why);

#endif

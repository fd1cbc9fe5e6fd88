/*
 * export_onnx_plan: what the files of the ONNX export share. Internal to export_onnx*.c.
 *
 * The form of a value follows from its shape: images are [batch][channels][height][width], vectors
 * (also images of one pixel) [batch][channels], sequences [batch][steps][channels].
 */
#ifndef GRAPEVINE_REPLICA_FORMATS_EXPORT_ONNX_PLAN_H
#define GRAPEVINE_REPLICA_FORMATS_EXPORT_ONNX_PLAN_H

#include "replica/formats/onnx.h"
#include "replica/model/plan.h"

struct export
{
    struct model *model;
    const struct tensor_file *file; /* where it came from, whose int8 weights stay so; NULL */
    int8_t *int8;                   /* room for any of these */
    struct onnx *onnx;
    struct onnx_name *at;  /* [values]: where each value of the model is found */
    bool *is_written;      /* [tensors of the schema] */
    struct onnx_name mask; /* of causal attention; "" until one needed it */
    uint32_t masked_steps;
    struct fault *why;
};

/** Emit what computes `stage`, and say where its value is. */
enum rc export_attention(struct export *e, const struct stage *stage);
enum rc export_recurrent(struct export *e, const struct stage *stage);
enum rc export_positions(struct export *e, const struct stage *stage);
enum rc export_embedding(struct export *e, const struct stage *stage);
/** The mean of the heads' probabilities, as a logarithm. */
struct onnx_name export_heads(struct export *e, struct onnx_name x, struct shape shape);

struct onnx_name export_op(struct export *e, const char *op, const struct onnx_name *inputs,
                           size_t inputs_count, const struct onnx_attribute *attributes,
                           size_t attributes_count);
struct onnx_name export_unary(struct export *e, const char *op, struct onnx_name x);
struct onnx_name export_binary(struct export *e, const char *op, struct onnx_name x,
                               struct onnx_name y);
struct onnx_name export_transpose(struct export *e, struct onnx_name x, const int64_t *order,
                                  size_t rank);
/** Extents of 0 stay as they are. */
struct onnx_name export_reshape(struct export *e, struct onnx_name x, const int64_t *extents,
                                size_t rank);
struct onnx_name export_integers(struct export *e, const int64_t *values, size_t count);
struct onnx_name export_constant(struct export *e, const float *values, struct onnx_shape shape);
/** int8 values, and the scale of each part along `axis`, multiplied out as `name`. */
void export_int8(struct export *e, struct onnx_name name, struct onnx_shape shape,
                 const int8_t *values, uint32_t axis, const float *scales);
struct onnx_name export_number(struct export *e, float value);
/** Tensor `i` of the stage, by its name in model files; written when it is first asked for. */
struct onnx_name export_tensor(struct export *e, const struct stage *stage, uint32_t i);
/** Where the stage's input `i` is. */
struct onnx_name export_input(const struct export *e, const struct stage *stage, uint32_t i);
void export_output(struct export *e, const struct stage *stage, struct onnx_name name);

#endif

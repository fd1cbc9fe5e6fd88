/*
 * The ONNX form: protocol buffers (https://protobuf.dev/programming-guides/encoding) of the
 * messages in onnx.proto (https://github.com/onnx/onnx, IR version 8). A message is written into a
 * buffer and then, behind its length, into its parent's; the values of large tensors are not
 * copied but become pieces of the file. Commands.
 */
#include "replica/formats/onnx.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

#include "version.h"

#include <stdio.h>
#include <string.h>

enum { IR_VERSION = 8, WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_32 = 5 };
#define FILE_BYTES_MAX ((size_t)INT32_MAX)

/* Field numbers of onnx.proto. */
enum {
    MODEL_IR = 1,
    MODEL_PRODUCER = 2,
    MODEL_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_METADATA = 14
};
enum { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_TENSOR = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_REAL = 2,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20
};
enum { TYPE_OF_REAL = 1, TYPE_OF_INT = 2, TYPE_OF_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum {
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_ELEMENT = 1,
    TENSOR_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_PARAM = 2
};

struct buffer {
    uint8_t *bytes;
    size_t count, max;
};

/* A constant: its message up to the values, and the values. */
struct constant {
    struct buffer head;
    const void *values;
    void *copy; /* of the _copy form, or NULL */
    size_t values_bytes;
};

struct onnx {
    enum rc rc;
    uint64_t names, nodes_count;
    struct buffer nodes, ends, metadata; /* fields of the graph, and of the model */
    struct constant *constants;
    size_t constants_count, constants_max;
    struct buffer head; /* of the file */
    struct piece *pieces;
};

struct onnx *onnx_create(void)
{
    return mem_alloc(sizeof(struct onnx));
}

void onnx_destroy(struct onnx *onnx)
{
    if (onnx == NULL) return;
    for (size_t i = 0; i < onnx->constants_count; i++) {
        mem_free(onnx->constants[i].head.bytes);
        mem_free(onnx->constants[i].copy);
    }
    mem_free(onnx->constants);
    mem_free(onnx->nodes.bytes);
    mem_free(onnx->ends.bytes);
    mem_free(onnx->metadata.bytes);
    mem_free(onnx->head.bytes);
    mem_free(onnx->pieces);
    mem_free(onnx);
}

struct onnx_name onnx_fresh(struct onnx *onnx)
{
    struct onnx_name name;

    snprintf(name.text, sizeof name.text, "t%llu", (unsigned long long)onnx->names++);
    return name;
}

/* ---- protocol buffers ---- */

static void append(struct onnx *onnx, struct buffer *to, const void *bytes, size_t count)
{
    size_t wider = to->max == 0 ? 256 : to->max;
    uint8_t *grown;

    if (onnx->rc != RC_OK || count == 0) return;
    while (wider - to->count < count) {
        wider *= 2;
    }
    if (wider != to->max) {
        grown = mem_resize(to->bytes, wider);
        if (grown == NULL) {
            onnx->rc = RC_NOMEM;
            return;
        }
        to->bytes = grown;
        to->max = wider;
    }
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
}

/* Seven bits a byte, the lowest first; the highest bit says that more follow. */
static void put_varint(struct onnx *onnx, struct buffer *to, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;

    do {
        bytes[count++] = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    append(onnx, to, bytes, count);
}

static void put_tag(struct onnx *onnx, struct buffer *to, uint32_t field, uint32_t wire)
{
    put_varint(onnx, to, (uint64_t)field << 3 | wire);
}

static void put_int(struct onnx *onnx, struct buffer *to, uint32_t field, int64_t value)
{
    put_tag(onnx, to, field, WIRE_VARINT);
    put_varint(onnx, to, (uint64_t)value);
}

static void put_real(struct onnx *onnx, struct buffer *to, uint32_t field, float value)
{
    uint8_t bytes[4];
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    store_le32(bytes, bits);
    put_tag(onnx, to, field, WIRE_32);
    append(onnx, to, bytes, sizeof bytes);
}

static void put_bytes(struct onnx *onnx, struct buffer *to, uint32_t field, const void *bytes,
                      size_t count)
{
    put_tag(onnx, to, field, WIRE_BYTES);
    put_varint(onnx, to, count);
    append(onnx, to, bytes, count);
}

static void put_text(struct onnx *onnx, struct buffer *to, uint32_t field, const char *text)
{
    put_bytes(onnx, to, field, text, strlen(text));
}

/* `message` becomes a field, and is released. */
static void put_message(struct onnx *onnx, struct buffer *to, uint32_t field,
                        struct buffer *message)
{
    put_bytes(onnx, to, field, message->bytes, message->count);
    mem_free(message->bytes);
    *message = (struct buffer){NULL, 0, 0};
}

/* ---- nodes, values, constants ---- */

static void put_attribute(struct onnx *onnx, struct buffer *node,
                          const struct onnx_attribute *attribute)
{
    static const int64_t types[] = {
        [ONNX_INT] = TYPE_OF_INT, [ONNX_REAL] = TYPE_OF_REAL, [ONNX_INTS] = TYPE_OF_INTS};
    struct buffer message = {NULL, 0, 0};

    put_text(onnx, &message, ATTRIBUTE_NAME, attribute->name);
    if (attribute->kind == ONNX_INT) put_int(onnx, &message, ATTRIBUTE_INT, attribute->integer);
    if (attribute->kind == ONNX_REAL) put_real(onnx, &message, ATTRIBUTE_REAL, attribute->real);
    for (size_t i = 0; attribute->kind == ONNX_INTS && i < attribute->count; i++) {
        put_int(onnx, &message, ATTRIBUTE_INTS, attribute->integers[i]);
    }
    put_int(onnx, &message, ATTRIBUTE_TYPE, types[attribute->kind]);
    put_message(onnx, node, NODE_ATTRIBUTE, &message);
}

void onnx_add_node(struct onnx *onnx, const struct onnx_node *node)
{
    struct buffer message = {NULL, 0, 0};
    char name[ONNX_NAME_BYTES];

    CHECK(node->inputs_count <= ONNX_INPUTS_MAX && node->outputs_count > 0);
    for (size_t i = 0; i < node->inputs_count; i++) {
        put_text(onnx, &message, NODE_INPUT, node->inputs[i].text);
    }
    for (size_t i = 0; i < node->outputs_count; i++) {
        put_text(onnx, &message, NODE_OUTPUT, node->outputs[i].text);
    }
    snprintf(name, sizeof name, "%s_%llu", node->op, (unsigned long long)++onnx->nodes_count);
    put_text(onnx, &message, NODE_NAME, name);
    put_text(onnx, &message, NODE_OP, node->op);
    for (size_t i = 0; i < node->attributes_count; i++) {
        put_attribute(onnx, &message, &node->attributes[i]);
    }
    put_message(onnx, &onnx->nodes, GRAPH_NODE, &message);
}

static void add_value(struct onnx *onnx, uint32_t field, const char *name, enum onnx_type type,
                      struct onnx_shape shape)
{
    struct buffer dims = {NULL, 0, 0}, tensor = {NULL, 0, 0}, kind = {NULL, 0, 0};
    struct buffer value = {NULL, 0, 0};

    for (uint32_t i = 0; i < shape.rank; i++) {
        struct buffer dim = {NULL, 0, 0};
        if (shape.extents[i] == ONNX_BATCH)
            put_text(onnx, &dim, DIM_PARAM, "batch");
        else
            put_int(onnx, &dim, DIM_VALUE, shape.extents[i]);
        put_message(onnx, &dims, SHAPE_DIM, &dim);
    }
    put_int(onnx, &tensor, TENSOR_ELEMENT, (int64_t)type);
    put_message(onnx, &tensor, TENSOR_SHAPE, &dims);
    put_message(onnx, &kind, TYPE_TENSOR, &tensor);
    put_text(onnx, &value, VALUE_NAME, name);
    put_message(onnx, &value, VALUE_TYPE, &kind);
    put_message(onnx, &onnx->ends, field, &value);
}

void onnx_add_input(struct onnx *onnx, const char *name, enum onnx_type type,
                    struct onnx_shape shape)
{
    add_value(onnx, GRAPH_INPUT, name, type, shape);
}

void onnx_add_output(struct onnx *onnx, const char *name, enum onnx_type type,
                     struct onnx_shape shape)
{
    add_value(onnx, GRAPH_OUTPUT, name, type, shape);
}

static size_t values_of(struct onnx_shape shape)
{
    size_t count = 1;

    for (uint32_t i = 0; i < shape.rank; i++) {
        CHECK(shape.extents[i] >= 0);
        count *= (size_t)shape.extents[i];
    }
    return count;
}

static struct constant *add_constant(struct onnx *onnx, struct onnx_name name, enum onnx_type type,
                                     struct onnx_shape shape)
{
    struct constant *constant;

    if (onnx->constants_count == onnx->constants_max && onnx->rc == RC_OK) {
        size_t wider = onnx->constants_max == 0 ? 64 : 2 * onnx->constants_max;
        struct constant *grown = mem_resize(onnx->constants, wider * sizeof *grown);
        if (grown == NULL) {
            onnx->rc = RC_NOMEM;
        } else {
            onnx->constants = grown;
            onnx->constants_max = wider;
        }
    }
    if (onnx->rc != RC_OK) return NULL;
    constant = &onnx->constants[onnx->constants_count++];
    *constant = (struct constant){.values = NULL};
    for (uint32_t i = 0; i < shape.rank; i++) {
        put_int(onnx, &constant->head, TENSOR_DIMS, shape.extents[i]);
    }
    put_int(onnx, &constant->head, TENSOR_TYPE, (int64_t)type);
    put_text(onnx, &constant->head, TENSOR_NAME, name.text);
    constant->values_bytes = values_of(shape) * (type == ONNX_FLOAT ? 4 : 8);
    put_tag(onnx, &constant->head, TENSOR_RAW, WIRE_BYTES);
    put_varint(onnx, &constant->head, constant->values_bytes);
    return constant;
}

static void copy_values(struct onnx *onnx, struct constant *constant, const void *values)
{
    if (constant == NULL) return;
    constant->copy = mem_raw(constant->values_bytes);
    constant->values = constant->copy;
    if (constant->copy == NULL)
        onnx->rc = RC_NOMEM;
    else
        memcpy(constant->copy, values, constant->values_bytes);
}

void onnx_add_f32(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                  const float *values)
{
    struct constant *constant = add_constant(onnx, name, ONNX_FLOAT, shape);

    if (constant != NULL) constant->values = values;
}

void onnx_add_f32_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                       const float *values)
{
    copy_values(onnx, add_constant(onnx, name, ONNX_FLOAT, shape), values);
}

void onnx_add_i64_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                       const int64_t *values)
{
    copy_values(onnx, add_constant(onnx, name, ONNX_INT64, shape), values);
}

void onnx_set(struct onnx *onnx, const char *key, const char *value)
{
    struct buffer entry = {NULL, 0, 0};

    put_text(onnx, &entry, ENTRY_KEY, key);
    put_text(onnx, &entry, ENTRY_VALUE, value);
    put_message(onnx, &onnx->metadata, MODEL_METADATA, &entry);
}

/* ---- the file ---- */

static size_t varint_bytes(uint64_t value)
{
    size_t count = 1;

    for (; value > 0x7F; value >>= 7) {
        count++;
    }
    return count;
}

/* Its bytes as a field of the graph, without tag and length. */
static size_t message_bytes(const struct constant *constant)
{
    return constant->head.count + constant->values_bytes;
}

/* All up to the constants. The graph's length counts them, too. */
static void put_head(struct onnx *onnx)
{
    struct buffer opset = {NULL, 0, 0}, name = {NULL, 0, 0};
    size_t graph = onnx->nodes.count + onnx->ends.count;

    for (size_t i = 0; i < onnx->constants_count; i++) {
        size_t bytes = message_bytes(&onnx->constants[i]);
        graph += 1 + varint_bytes(bytes) + bytes;
    }
    put_int(onnx, &onnx->head, MODEL_IR, IR_VERSION);
    put_text(onnx, &onnx->head, MODEL_PRODUCER, "grapevine");
    put_text(onnx, &onnx->head, MODEL_VERSION, GRAPEVINE_VERSION);
    put_text(onnx, &opset, OPSET_DOMAIN, "");
    put_int(onnx, &opset, OPSET_VERSION, ONNX_OPSET);
    put_message(onnx, &onnx->head, MODEL_OPSET, &opset);
    append(onnx, &onnx->head, onnx->metadata.bytes, onnx->metadata.count);
    put_text(onnx, &name, GRAPH_NAME, "grapevine");
    put_tag(onnx, &onnx->head, MODEL_GRAPH, WIRE_BYTES);
    put_varint(onnx, &onnx->head, graph + name.count);
    append(onnx, &onnx->head, name.bytes, name.count);
    append(onnx, &onnx->head, onnx->nodes.bytes, onnx->nodes.count);
    append(onnx, &onnx->head, onnx->ends.bytes, onnx->ends.count);
    mem_free(name.bytes);
}

/* Tag and length in front of each constant's message. */
static void wrap_constants(struct onnx *onnx)
{
    for (size_t i = 0; i < onnx->constants_count && onnx->rc == RC_OK; i++) {
        struct constant *constant = &onnx->constants[i];
        struct buffer whole = {NULL, 0, 0};
        put_tag(onnx, &whole, GRAPH_TENSOR, WIRE_BYTES);
        put_varint(onnx, &whole, message_bytes(constant));
        append(onnx, &whole, constant->head.bytes, constant->head.count);
        mem_free(constant->head.bytes);
        constant->head = whole;
    }
}

enum rc onnx_save(struct onnx *onnx, const char *path, struct fault *why)
{
    size_t count = 0, bytes;

    CHECK(onnx->pieces == NULL); /* once */
    put_head(onnx);
    wrap_constants(onnx);
    onnx->pieces = mem_array(1 + 2 * onnx->constants_count, sizeof *onnx->pieces);
    if (onnx->pieces == NULL || onnx->rc != RC_OK) {
        return fault_set(why, RC_NOMEM, "cannot write %s: out of memory", path);
    }
    onnx->pieces[count++] = (struct piece){onnx->head.bytes, onnx->head.count};
    bytes = onnx->head.count;
    for (size_t i = 0; i < onnx->constants_count; i++) {
        const struct constant *constant = &onnx->constants[i];
        onnx->pieces[count++] = (struct piece){constant->head.bytes, constant->head.count};
        onnx->pieces[count++] = (struct piece){constant->values, constant->values_bytes};
        bytes += message_bytes(constant);
    }
    if (bytes > FILE_BYTES_MAX) {
        return fault_set(why, RC_LIMIT,
                         "cannot write %s: an ONNX file holds at most 2 GiB; use --to safetensors",
                         path);
    }
    return file_replace(path, onnx->pieces, count, 0644, why);
}

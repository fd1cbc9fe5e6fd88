/*
 * The ONNX form: the messages of onnx.proto, put together in memory and written by protobuf-c. The
 * values of large tensors are not copied but become pieces of the file. Commands.
 */
#include "replica/formats/onnx.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "replica/formats/onnx.pb-c.h"

#include "version.h"

#include <stdio.h>
#include <string.h>

enum { IR_VERSION = 8, APART_BYTES_MIN = 4096 };
#define FILE_BYTES_MAX ((size_t)INT32_MAX)

/* Memory that lasts as long as the file is in the making. */
struct kept {
    struct kept *next;
    max_align_t bytes[];
};

struct onnx {
    enum rc rc;
    uint64_t names;
    struct kept *kept;
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
};

static void *take(struct onnx *onnx, size_t bytes)
{
    struct kept *kept = onnx->rc == RC_OK ? mem_alloc(sizeof *kept + bytes) : NULL;

    if (kept == NULL) {
        onnx->rc = RC_NOMEM;
        return NULL;
    }
    kept->next = onnx->kept;
    onnx->kept = kept;
    return kept->bytes;
}

static void *take_copy(struct onnx *onnx, const void *bytes, size_t count)
{
    void *copy = take(onnx, count);

    return copy == NULL || count == 0 ? copy : memcpy(copy, bytes, count);
}

static char *take_text(struct onnx *onnx, const char *text)
{
    return take_copy(onnx, text, strlen(text) + 1);
}

/* Append `item` to a repeated field, whose room doubles whenever its count is a power of two. */
static void add(struct onnx *onnx, void *list, size_t *count, void *item)
{
    void **items;

    memcpy(&items, list, sizeof items);
    if ((*count & (*count - 1)) == 0) {
        void **wider = take(onnx, (*count == 0 ? 1 : 2 * *count) * sizeof *wider);
        if (wider == NULL) return;
        if (*count > 0) memcpy(wider, items, *count * sizeof *wider);
        items = wider;
        memcpy(list, &items, sizeof items);
    }
    if (onnx->rc == RC_OK) items[(*count)++] = item;
}

/* A message of a kind, as its initial value says. */
#define TAKE(onnx, type, initial) ((type *)take_copy(onnx, &(const type)initial, sizeof(type)))

struct onnx *onnx_create(void)
{
    struct onnx *onnx = mem_alloc(sizeof *onnx);
    Onnx__OperatorSetIdProto *opset;

    if (onnx == NULL) return NULL;
    onnx->model = (Onnx__ModelProto)ONNX__MODEL_PROTO__INIT;
    onnx->graph = (Onnx__GraphProto)ONNX__GRAPH_PROTO__INIT;
    onnx->model.has_ir_version = true;
    onnx->model.ir_version = IR_VERSION;
    onnx->model.producer_name = take_text(onnx, "grapevine");
    onnx->model.producer_version = take_text(onnx, GRAPEVINE_VERSION);
    onnx->model.graph = &onnx->graph;
    onnx->graph.name = take_text(onnx, "grapevine");
    opset = TAKE(onnx, Onnx__OperatorSetIdProto, ONNX__OPERATOR_SET_ID_PROTO__INIT);
    if (opset != NULL) {
        opset->domain = take_text(onnx, "");
        opset->has_version = true;
        opset->version = ONNX_OPSET;
    }
    add(onnx, &onnx->model.opset_import, &onnx->model.n_opset_import, opset);
    return onnx;
}

void onnx_destroy(struct onnx *onnx)
{
    if (onnx == NULL) return;
    while (onnx->kept != NULL) {
        struct kept *next = onnx->kept->next;
        mem_free(onnx->kept);
        onnx->kept = next;
    }
    mem_free(onnx);
}

struct onnx_name onnx_fresh(struct onnx *onnx)
{
    struct onnx_name name;

    snprintf(name.text, sizeof name.text, "t%llu", (unsigned long long)onnx->names++);
    return name;
}

/* ---- nodes, values, constants ---- */

static Onnx__AttributeProto *take_attribute(struct onnx *onnx, const struct onnx_attribute *from)
{
    static const Onnx__AttributeProto__AttributeType types[] = {
        [ONNX_INT] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT,
        [ONNX_REAL] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT,
        [ONNX_INTS] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS};
    Onnx__AttributeProto *attribute = TAKE(onnx, Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);

    if (attribute == NULL) return NULL;
    attribute->name = take_text(onnx, from->name);
    attribute->has_type = true;
    attribute->type = types[from->kind];
    attribute->has_i = from->kind == ONNX_INT;
    attribute->i = from->integer;
    attribute->has_f = from->kind == ONNX_REAL;
    attribute->f = from->real;
    if (from->kind == ONNX_INTS) {
        attribute->n_ints = from->count;
        attribute->ints = take_copy(onnx, from->integers, from->count * sizeof *from->integers);
    }
    return attribute;
}

void onnx_add_node(struct onnx *onnx, const struct onnx_node *from)
{
    Onnx__NodeProto *node = TAKE(onnx, Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
    char name[ONNX_NAME_BYTES];

    CHECK(from->inputs_count <= ONNX_INPUTS_MAX && from->outputs_count > 0);
    if (node == NULL) return;
    for (size_t i = 0; i < from->inputs_count; i++) {
        add(onnx, &node->input, &node->n_input, take_text(onnx, from->inputs[i].text));
    }
    for (size_t i = 0; i < from->outputs_count; i++) {
        add(onnx, &node->output, &node->n_output, take_text(onnx, from->outputs[i].text));
    }
    snprintf(name, sizeof name, "%s_%zu", from->op, onnx->graph.n_node + 1);
    node->name = take_text(onnx, name);
    node->op_type = take_text(onnx, from->op);
    for (size_t i = 0; i < from->attributes_count; i++) {
        add(onnx, &node->attribute, &node->n_attribute, take_attribute(onnx, &from->attributes[i]));
    }
    add(onnx, &onnx->graph.node, &onnx->graph.n_node, node);
}

static Onnx__TensorShapeProto *take_shape(struct onnx *onnx, struct onnx_shape from)
{
    Onnx__TensorShapeProto *shape =
        TAKE(onnx, Onnx__TensorShapeProto, ONNX__TENSOR_SHAPE_PROTO__INIT);

    for (uint32_t i = 0; shape != NULL && i < from.rank; i++) {
        Onnx__TensorShapeProto__Dimension *dim = TAKE(onnx, Onnx__TensorShapeProto__Dimension,
                                                      ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);
        if (dim == NULL) return NULL;
        dim->has_dim_value = from.extents[i] != ONNX_BATCH;
        dim->dim_value = from.extents[i];
        if (!dim->has_dim_value) dim->dim_param = take_text(onnx, "batch");
        add(onnx, &shape->dim, &shape->n_dim, dim);
    }
    return shape;
}

static Onnx__ValueInfoProto *take_value(struct onnx *onnx, const char *name, enum onnx_type type,
                                        struct onnx_shape shape)
{
    Onnx__ValueInfoProto *value = TAKE(onnx, Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
    Onnx__TypeProto *kind = TAKE(onnx, Onnx__TypeProto, ONNX__TYPE_PROTO__INIT);
    Onnx__TypeProto__Tensor *tensor =
        TAKE(onnx, Onnx__TypeProto__Tensor, ONNX__TYPE_PROTO__TENSOR__INIT);

    if (onnx->rc != RC_OK) return NULL;
    tensor->has_elem_type = true;
    tensor->elem_type = (int32_t)type;
    tensor->shape = take_shape(onnx, shape);
    kind->tensor_type = tensor;
    value->name = take_text(onnx, name);
    value->type = kind;
    return value;
}

void onnx_add_input(struct onnx *onnx, const char *name, enum onnx_type type,
                    struct onnx_shape shape)
{
    add(onnx, &onnx->graph.input, &onnx->graph.n_input, take_value(onnx, name, type, shape));
}

void onnx_add_output(struct onnx *onnx, const char *name, enum onnx_type type,
                     struct onnx_shape shape)
{
    add(onnx, &onnx->graph.output, &onnx->graph.n_output, take_value(onnx, name, type, shape));
}

static void add_constant(struct onnx *onnx, struct onnx_name name, enum onnx_type type,
                         struct onnx_shape shape, const void *values, bool is_copied)
{
    Onnx__TensorProto *tensor = TAKE(onnx, Onnx__TensorProto, ONNX__TENSOR_PROTO__INIT);
    size_t bytes = type == ONNX_INT8 ? 1 : type == ONNX_FLOAT ? 4 : 8;

    if (tensor == NULL) return;
    for (uint32_t i = 0; i < shape.rank; i++) {
        CHECK(shape.extents[i] >= 0);
        bytes *= (size_t)shape.extents[i];
    }
    tensor->n_dims = shape.rank;
    tensor->dims = take_copy(onnx, shape.extents, shape.rank * sizeof *shape.extents);
    tensor->has_data_type = true;
    tensor->data_type = (int32_t)type;
    tensor->name = take_text(onnx, name.text);
    tensor->has_raw_data = true;
    tensor->raw_data.len = bytes;
    tensor->raw_data.data = is_copied ? take_copy(onnx, values, bytes) : (uint8_t *)values;
    add(onnx, &onnx->graph.initializer, &onnx->graph.n_initializer, tensor);
}

void onnx_add_f32(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                  const float *values)
{
    add_constant(onnx, name, ONNX_FLOAT, shape, values, false);
}

void onnx_add_f32_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                       const float *values)
{
    add_constant(onnx, name, ONNX_FLOAT, shape, values, true);
}

void onnx_add_i8_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                      const int8_t *values)
{
    add_constant(onnx, name, ONNX_INT8, shape, values, true);
}

void onnx_add_i64_copy(struct onnx *onnx, struct onnx_name name, struct onnx_shape shape,
                       const int64_t *values)
{
    add_constant(onnx, name, ONNX_INT64, shape, values, true);
}

void onnx_set(struct onnx *onnx, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *entry =
        TAKE(onnx, Onnx__StringStringEntryProto, ONNX__STRING_STRING_ENTRY_PROTO__INIT);

    if (entry == NULL) return;
    entry->key = take_text(onnx, key);
    entry->value = take_text(onnx, value);
    add(onnx, &onnx->model.metadata_props, &onnx->model.n_metadata_props, entry);
}

/* ---- the file ---- */

/* What protobuf-c packs: what is large stays where it is, the rest is put together in `small`. */
struct writer {
    ProtobufCBuffer base; /* first: cast back */
    uint8_t *small;
    size_t used;
    struct piece *pieces;
    size_t count;
};

static void on_packed(ProtobufCBuffer *buffer, size_t count, const uint8_t *bytes)
{
    struct writer *w = (struct writer *)buffer;
    struct piece *last = w->count > 0 ? &w->pieces[w->count - 1] : NULL;

    if (count < APART_BYTES_MIN) {
        bytes = memcpy(w->small + w->used, bytes, count);
        w->used += count;
        if (last != NULL && (const uint8_t *)last->bytes + last->count == bytes) {
            last->count += count;
            return;
        }
    }
    w->pieces[w->count++] = (struct piece){bytes, count};
}

enum rc onnx_save(struct onnx *onnx, const char *path, struct fault *why)
{
    const Onnx__GraphProto *graph = &onnx->graph;
    const size_t bytes = protobuf_c_message_get_packed_size(&onnx->model.base);
    struct writer w = {.base = {on_packed}};
    size_t small = bytes;

    if (onnx->rc == RC_OK && bytes > FILE_BYTES_MAX) {
        return fault_set(why, RC_LIMIT,
                         "cannot write %s: an ONNX file holds at most 2 GiB; use --to safetensors",
                         path);
    }
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const size_t count = graph->initializer[i]->raw_data.len;
        if (count >= APART_BYTES_MIN) small -= count;
    }
    w.small = take(onnx, small);
    w.pieces = take(onnx, (2 * (graph->n_initializer + onnx->model.n_metadata_props) + 1) *
                              sizeof *w.pieces);
    if (onnx->rc != RC_OK) {
        return fault_set(why, RC_NOMEM, "cannot write %s: out of memory", path);
    }
    protobuf_c_message_pack_to_buffer(&onnx->model.base, &w.base);
    return file_replace(path, w.pieces, w.count, 0644, why);
}

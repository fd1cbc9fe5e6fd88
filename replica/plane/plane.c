/* The table of named tensors that peers must agree on. Pure; built once, then only read. */
#include "replica/plane/plane.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>

enum { TENSORS_MAX = 65536, TENSORS_START = 16 };

bool input_is_sound(const float *section, size_t channels)
{
    const float *counts = section + 2 * channels;

    for (size_t i = 0; i < 2 * channels + INPUT_TAIL; i++) {
        if (!isfinite(section[i])) return false;
        if (i >= channels && i < 2 * channels && section[i] <= 0.0F) return false;
    }
    return counts[INPUT_MEMBERS] >= 1.0F && counts[INPUT_MEMBERS] <= INPUT_COUNT_MAX &&
           counts[INPUT_SAMPLES] >= 1.0F && counts[INPUT_SAMPLES] <= INPUT_COUNT_MAX;
}

void schema_init(struct schema *schema)
{
    memset(schema, 0, sizeof *schema);
}

void schema_deinit(struct schema *schema)
{
    mem_free(schema->tensors);
    schema_init(schema);
}

static enum rc make_room(struct schema *schema)
{
    uint32_t wider = schema->tensors_max == 0 ? TENSORS_START : schema->tensors_max * 2;
    struct tensor *grown;

    if (schema->tensors_count < schema->tensors_max) return RC_OK;
    if (schema->tensors_count >= TENSORS_MAX) return RC_LIMIT;
    grown = mem_resize(schema->tensors, wider * sizeof *grown);
    if (grown == NULL) return RC_NOMEM;
    schema->tensors = grown;
    schema->tensors_max = wider;
    return RC_OK;
}

enum rc schema_add(struct schema *schema, const char *name, enum section section,
                   const uint32_t *shape, uint32_t rank)
{
    struct tensor tensor = {.section = section, .rank = rank, .count = 1};
    size_t total, bytes, mixed;
    enum rc rc;

    CHECK(schema != NULL && name != NULL && name[0] != '\0');
    CHECK(section == SECTION_PARAMETERS || section == SECTION_BUFFERS);
    if (strlen(name) >= sizeof tensor.name || rank > TENSOR_RANK_MAX) return RC_LIMIT;
    if (rank == 0) return RC_SHAPE;
    if (schema_find(schema, name) != NULL) return RC_MISMATCH;
    memcpy(tensor.name, name, strlen(name) + 1);
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] == 0) return RC_SHAPE;
        if (__builtin_mul_overflow(tensor.count, shape[i], &tensor.count)) return RC_LIMIT;
        tensor.shape[i] = shape[i];
    }
    tensor.offset = schema->values[section];
    if (__builtin_add_overflow(tensor.offset, tensor.count, &total)) return RC_LIMIT;
    if (__builtin_mul_overflow(total, sizeof(float), &bytes)) return RC_LIMIT;
    if (__builtin_mul_overflow(tensor.count, 2, &mixed) ||
        __builtin_add_overflow(schema->values[SECTION_MIXED], mixed, &mixed) ||
        __builtin_mul_overflow(mixed, sizeof(float), &bytes)) {
        return RC_LIMIT;
    }
    rc = make_room(schema);
    if (rc != RC_OK) return rc;
    schema->tensors[schema->tensors_count++] = tensor;
    schema->values[section] = total;
    if (section == SECTION_PARAMETERS) schema->values[SECTION_GRADIENT] = total;
    schema->values[SECTION_MIXED] += tensor.count;
    if (schema->tensors_count > 1 && schema_is_mean(schema, schema->tensors_count - 2)) {
        schema->values[SECTION_MIXED] += tensor.count; /* the squares of the means */
    }
    schema->shared_parameters = schema->values[SECTION_PARAMETERS];
    schema->shared_buffers = schema->values[SECTION_BUFFERS];
    schema->shared_tensors = schema->tensors_count;
    return RC_OK;
}

/* Of another layer than the tensor with parameters before it. */
static bool begins_layer(const struct schema *schema, uint32_t index)
{
    const struct tensor *tensor = &schema->tensors[index], *before = NULL;
    const char *point = strrchr(tensor->name, '.');
    size_t length = point == NULL ? strlen(tensor->name) : (size_t)(point - tensor->name) + 1;

    if (tensor->section != SECTION_PARAMETERS) return false;
    for (uint32_t i = 0; i < index; i++) {
        if (schema->tensors[i].section == SECTION_PARAMETERS) before = &schema->tensors[i];
    }
    return before == NULL || strncmp(before->name, tensor->name, length) != 0;
}

uint32_t schema_layers(const struct schema *schema)
{
    uint32_t layers = 0;

    for (uint32_t i = 0; i < schema->tensors_count; i++) {
        layers += begins_layer(schema, i);
    }
    return layers;
}

/* Tensors are in layer order, so those of a trunk are the first in each section. */
bool schema_set_trunk(struct schema *schema, uint32_t layers)
{
    uint32_t begun = 0, end = 0;
    size_t counts[SECTION_COUNT] = {0}, squares = 0;

    if (layers == 0 || layers >= schema_layers(schema)) return false;
    while (end < schema->tensors_count) {
        begun += begins_layer(schema, end);
        if (begun > layers) break;
        counts[schema->tensors[end].section] += schema->tensors[end].count;
        if (schema_is_mean(schema, end)) squares += schema->tensors[end].count;
        end++;
    }
    schema->shared_tensors = end;
    schema->shared_parameters = counts[SECTION_PARAMETERS];
    schema->shared_buffers = counts[SECTION_BUFFERS];
    schema->values[SECTION_MIXED] = counts[SECTION_PARAMETERS] + counts[SECTION_BUFFERS] + squares;
    return true;
}

/* The part of a name behind its last point. */
static bool has_suffix(const char *name, const char *suffix)
{
    const char *point = strrchr(name, '.');

    return point != NULL && strcmp(point + 1, suffix) == 0;
}

bool schema_is_mean(const struct schema *schema, uint32_t tensor)
{
    const struct tensor *mean = &schema->tensors[tensor], *variance = mean + 1;

    CHECK(tensor < schema->tensors_count);
    return tensor + 1 < schema->tensors_count && mean->section == SECTION_BUFFERS &&
           variance->section == SECTION_BUFFERS && mean->count == variance->count &&
           has_suffix(mean->name, "running_mean") && has_suffix(variance->name, "running_variance");
}

const struct tensor *schema_find(const struct schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->tensors_count; i++) {
        if (strcmp(schema->tensors[i].name, name) == 0) return &schema->tensors[i];
    }
    return NULL;
}

static void hash_number(struct hash *hash, uint32_t number)
{
    uint8_t bytes[4];

    store_le32(bytes, number);
    hash_update(hash, bytes, sizeof bytes);
}

struct digest schema_digest(const struct schema *schema)
{
    static const char purpose[] = "grapevine schema 2";
    struct hash hash;

    hash_init(&hash);
    hash_update(&hash, purpose, sizeof purpose);
    hash_update(&hash, schema->meaning.bytes, sizeof schema->meaning.bytes);
    hash_number(&hash, schema->tensors_count);
    for (uint32_t i = 0; i < schema->tensors_count; i++) {
        const struct tensor *tensor = &schema->tensors[i];
        uint32_t length = (uint32_t)strlen(tensor->name);

        hash_number(&hash, length); /* lengths first: no two tables share a byte string */
        hash_update(&hash, tensor->name, length);
        hash_number(&hash, (uint32_t)tensor->section);
        hash_number(&hash, tensor->rank);
        for (uint32_t k = 0; k < tensor->rank; k++) {
            hash_number(&hash, tensor->shape[k]);
        }
    }
    return hash_final(&hash);
}

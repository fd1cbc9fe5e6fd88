/* The table of named tensors. */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/plane/plane.h"

#include <stdbool.h>

static const uint32_t shape_2x3[] = {2, 3};

/* Tensors lie one after the other within their section; gradients follow parameters. */
static void tensors_follow_each_other_in_their_section(void **state)
{
    static const uint32_t four[] = {4}, cube[] = {2, 2, 2, 2};
    struct schema schema;

    (void)state;
    schema_init(&schema);
    assert_int_equal(schema_add(&schema, "a", SECTION_PARAMETERS, shape_2x3, 2), RC_OK);
    assert_int_equal(schema_add(&schema, "stat", SECTION_BUFFERS, four, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "b", SECTION_PARAMETERS, cube, 4), RC_OK);
    assert_int_equal(schema.tensors_count, 3);
    assert_int_equal(schema_find(&schema, "a")->offset, 0);
    assert_int_equal(schema_find(&schema, "a")->count, 6);
    assert_int_equal(schema_find(&schema, "stat")->offset, 0);
    assert_int_equal(schema_find(&schema, "b")->offset, 6);
    assert_int_equal(schema_find(&schema, "b")->shape[3], 2);
    assert_null(schema_find(&schema, "c"));
    assert_int_equal(schema.values[SECTION_PARAMETERS], 22);
    assert_int_equal(schema.values[SECTION_GRADIENT], 22);
    assert_int_equal(schema.values[SECTION_BUFFERS], 4);
    assert_int_equal(schema.values[SECTION_MOMENTS], 0);
    schema_deinit(&schema);
}

/* What cannot be a tensor is refused with its code, and the table stays as it was. */
static void impossible_tensors_are_refused(void **state)
{
    static const uint32_t empty[] = {2, 0}, huge[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    static const uint32_t half[] = {UINT32_MAX, 1u << 31};
    struct schema schema;
    char name[TENSOR_NAME_BYTES + 1];

    (void)state;
    schema_init(&schema);
    assert_int_equal(schema_add(&schema, "a", SECTION_PARAMETERS, shape_2x3, 2), RC_OK);
    assert_int_equal(schema_add(&schema, "a", SECTION_BUFFERS, shape_2x3, 2), RC_MISMATCH);
    assert_int_equal(schema_add(&schema, "b", SECTION_PARAMETERS, shape_2x3, 0), RC_SHAPE);
    assert_int_equal(schema_add(&schema, "b", SECTION_PARAMETERS, empty, 2), RC_SHAPE);
    assert_int_equal(schema_add(&schema, "b", SECTION_PARAMETERS, huge, 5), RC_LIMIT);
    assert_int_equal(schema_add(&schema, "b", SECTION_PARAMETERS, huge, 3), RC_LIMIT);
    assert_int_equal(schema_add(&schema, "b", SECTION_PARAMETERS, half, 2), RC_LIMIT);
    memset(name, 'n', sizeof name);
    name[TENSOR_NAME_BYTES] = '\0';
    assert_int_equal(schema_add(&schema, name, SECTION_PARAMETERS, shape_2x3, 2), RC_LIMIT);
    name[TENSOR_NAME_BYTES - 1] = '\0';
    assert_int_equal(schema.tensors_count, 1);
    assert_int_equal(schema.values[SECTION_PARAMETERS], 6);
    assert_int_equal(schema_add(&schema, name, SECTION_PARAMETERS, shape_2x3, 2), RC_OK);
    schema_deinit(&schema);
}

/* When memory runs out while the table grows, what was in it stays. */
static void short_memory_keeps_the_table(void **state)
{
    uint64_t before = mem_blocks();
    struct schema schema;
    char name[16];
    uint32_t added = 0;

    (void)state;
    schema_init(&schema);
    mem_fail_after(1); /* the first growth is fine */
    for (;;) {
        snprintf(name, sizeof name, "t%u", added);
        if (schema_add(&schema, name, SECTION_PARAMETERS, shape_2x3, 2) != RC_OK) break;
        added++;
    }
    assert_true(added > 0);
    assert_int_equal(schema.tensors_count, added);
    assert_int_equal(schema.values[SECTION_PARAMETERS], added * 6);
    assert_int_equal(schema_add(&schema, name, SECTION_PARAMETERS, shape_2x3, 2), RC_OK);
    schema_deinit(&schema);
    assert_int_equal(mem_blocks(), before);
}

static struct digest digest_of(const char *first, const char *second, enum section section,
                               const uint32_t *shape, uint32_t rank)
{
    struct schema schema;
    struct digest digest;

    schema_init(&schema);
    assert_int_equal(schema_add(&schema, first, section, shape, rank), RC_OK);
    assert_int_equal(schema_add(&schema, second, SECTION_PARAMETERS, shape_2x3, 2), RC_OK);
    digest = schema_digest(&schema);
    schema_deinit(&schema);
    return digest;
}

/* The digest sees names, order, shapes, ranks, sections and meaning, and nothing else. */
static void the_digest_sees_every_difference(void **state)
{
    static const uint32_t shape_3x2[] = {3, 2}, six[] = {6}, six_ones[] = {6, 1};
    struct schema bare;
    struct digest digests[7], plain;

    (void)state;
    schema_init(&bare);
    plain = schema_digest(&bare);
    bare.meaning.bytes[31] = 1;
    assert_false(digest_is_equal(plain, schema_digest(&bare)));
    digests[0] = digest_of("a", "b", SECTION_PARAMETERS, shape_2x3, 2);
    digests[1] = digest_of("b", "a", SECTION_PARAMETERS, shape_2x3, 2);
    digests[2] = digest_of("a", "b", SECTION_BUFFERS, shape_2x3, 2);
    digests[3] = digest_of("a", "b", SECTION_PARAMETERS, shape_3x2, 2);
    digests[4] = digest_of("a", "b", SECTION_PARAMETERS, six, 1);
    digests[5] = digest_of("a", "b", SECTION_PARAMETERS, six_ones, 2);
    digests[6] = digest_of("a", "bc", SECTION_PARAMETERS, shape_2x3, 2);
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < i; k++) {
            assert_false(digest_is_equal(digests[i], digests[k]));
        }
    }
    assert_true(digest_is_equal(digests[0], digest_of("a", "b", SECTION_PARAMETERS, shape_2x3, 2)));
}

/* Of a trunk rounds have the first layers' parameters and statistics; no trunk is all, or nothing.
 */
static void a_trunk_is_the_first_layers(void **state)
{
    static const uint32_t four[] = {4};
    struct schema schema;

    (void)state;
    schema_init(&schema);
    assert_int_equal(schema_add(&schema, "conv1.weight", SECTION_PARAMETERS, shape_2x3, 2), RC_OK);
    assert_int_equal(schema_add(&schema, "norm1.scale", SECTION_PARAMETERS, four, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "norm1.shift", SECTION_PARAMETERS, four, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "norm1.running_mean", SECTION_BUFFERS, four, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "norm1.running_variance", SECTION_BUFFERS, four, 1),
                     RC_OK);
    assert_int_equal(schema_add(&schema, "norm10.scale", SECTION_PARAMETERS, four, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "norm10.running_mean", SECTION_BUFFERS, four, 1), RC_OK);
    assert_int_equal(schema_add(&schema, "norm10.running_variance", SECTION_BUFFERS, four, 1),
                     RC_OK);
    assert_int_equal(schema_layers(&schema), 3);
    assert_int_equal(schema.shared_parameters, 18);
    assert_int_equal(schema.shared_buffers, 16);
    assert_int_equal(schema.values[SECTION_MIXED], 18 + 16 + 8);
    assert_false(schema_set_trunk(&schema, 0));
    assert_false(schema_set_trunk(&schema, 3));
    assert_false(schema_set_trunk(&schema, UINT32_MAX));
    assert_int_equal(schema.values[SECTION_MIXED], 18 + 16 + 8);
    assert_true(schema_set_trunk(&schema, 2));
    assert_int_equal(schema.shared_parameters, 14);
    assert_int_equal(schema.shared_buffers, 8);
    assert_int_equal(schema.shared_tensors, 5);
    assert_int_equal(schema.values[SECTION_MIXED], 14 + 8 + 4);
    assert_true(schema_set_trunk(&schema, 1));
    assert_int_equal(schema.shared_parameters, 6);
    assert_int_equal(schema.values[SECTION_MIXED], 6);
    schema_deinit(&schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trunk_is_the_first_layers),
        cmocka_unit_test(tensors_follow_each_other_in_their_section),
        cmocka_unit_test(impossible_tensors_are_refused),
        cmocka_unit_test(short_memory_keeps_the_table),
        cmocka_unit_test(the_digest_sees_every_difference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

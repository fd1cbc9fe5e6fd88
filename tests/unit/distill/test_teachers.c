/* Tests of distill/teachers: files, peers' folders, runs' folders. */
#include "tests/scratch.h"

#include "base/file.h"
#include "base/mem.h"
#include "distill/teachers.h"

static void make(struct scratch *scratch, const char *folder, const char *file)
{
    char name[128];

    assert_int_equal(file_make_folder(scratch_path(scratch, folder), NULL), RC_OK);
    snprintf(name, sizeof name, "%s/%s", folder, file);
    scratch_write(scratch, name, "x", 1);
}

static void a_run_folder_means_the_models_of_its_peers_by_name(void **state)
{
    /* Proves: peer-* with a model are taken, sorted; others are not. */
    (void)state;
    struct scratch scratch;
    struct teachers teachers;

    scratch_init(&scratch);
    make(&scratch, "peer-002", "model.safetensors");
    make(&scratch, "peer-000", "model.safetensors");
    make(&scratch, "peer-001", "log.txt");
    make(&scratch, "other", "model.safetensors");
    assert_int_equal(teachers_find(scratch.folder, &teachers, NULL), RC_OK);
    assert_int_equal(teachers.count, 2);
    assert_non_null(strstr(teachers.paths[0], "peer-000/model.safetensors"));
    assert_non_null(strstr(teachers.paths[1], "peer-002/model.safetensors"));
    teachers_deinit(&teachers);
    scratch_deinit(&scratch);
}

static void files_and_peers_folders_keep_the_order_they_were_named_in(void **state)
{
    /* Proves: a list of a file and a peer's folder gives both, in that order. */
    (void)state;
    struct scratch scratch;
    struct teachers teachers;
    char list[256];

    scratch_init(&scratch);
    make(&scratch, "a", "model.safetensors");
    scratch_write(&scratch, "z.safetensors", "x", 1);
    snprintf(list, sizeof list, "%s/z.safetensors,%s/a", scratch.folder, scratch.folder);
    assert_int_equal(teachers_find(list, &teachers, NULL), RC_OK);
    assert_int_equal(teachers.count, 2);
    assert_non_null(strstr(teachers.paths[0], "z.safetensors"));
    assert_non_null(strstr(teachers.paths[1], "a/model.safetensors"));
    teachers_deinit(&teachers);
    scratch_deinit(&scratch);
}

static void what_is_not_there_is_named(void **state)
{
    /* Proves: an empty folder, a missing file and an empty name are errors that say so. */
    (void)state;
    struct scratch scratch;
    struct teachers teachers;
    struct fault why = {""};

    scratch_init(&scratch);
    assert_int_equal(teachers_find(scratch.folder, &teachers, &why), RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "peer-*"));
    assert_int_equal(teachers_find("/no/such/model", &teachers, &why), RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "/no/such/model"));
    assert_int_equal(teachers_find("", &teachers, &why), RC_USAGE);
    assert_int_equal(teachers.count, 0);
    scratch_deinit(&scratch);
}

static void short_memory_leaks_nothing(void **state)
{
    /* Proves: each allocation may fail and nothing stays behind. */
    (void)state;
    struct scratch scratch;
    struct teachers teachers;
    enum rc rc = RC_NOMEM;

    scratch_init(&scratch);
    make(&scratch, "peer-000", "model.safetensors");
    for (uint64_t n = 0; rc != RC_OK; n++) {
        const uint64_t before = mem_blocks();
        mem_fail_after(n);
        rc = teachers_find(scratch.folder, &teachers, NULL);
        mem_fail_after(UINT64_MAX);
        teachers_deinit(&teachers);
        assert_int_equal(mem_blocks(), before);
        assert_true(n < 100);
    }
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_folder_means_the_models_of_its_peers_by_name),
        cmocka_unit_test(files_and_peers_folders_keep_the_order_they_were_named_in),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

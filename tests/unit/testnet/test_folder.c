/* Tests of testnet/folder: what is removed, and above all what is not. */
#include "tests/scratch.h"

#include "base/file.h"
#include "testnet/folder.h"

static void fill(struct scratch *scratch)
{
    assert_int_equal(file_make_folder(scratch_path(scratch, "peer-000"), NULL), RC_OK);
    scratch_write(scratch, "peer-000/model.safetensors", "x", 1);
    scratch_write(scratch, "peer-000/log.txt", "x", 1);
    scratch_write(scratch, "summary.json", "{}", 2);
}

static void a_folder_in_use_needs_a_wish(void **state)
{
    /* Proves: a non-empty folder is refused, and the line names both ways out; an empty or a new
     * one is fine. */
    (void)state;
    struct scratch scratch;
    struct fault why = {""};

    scratch_init(&scratch);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_NEW, NULL), RC_OK);
    assert_int_equal(folder_prepare(scratch_path(&scratch, "a/b"), FOLDER_NEW, NULL), RC_OK);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_NEW, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "--resume"));
    assert_non_null(strstr(why.text, "--fresh"));
    scratch_deinit(&scratch);
}

static void resuming_keeps_everything(void **state)
{
    /* Proves: --resume removes nothing. */
    (void)state;
    struct scratch scratch;

    scratch_init(&scratch);
    fill(&scratch);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_RESUME, NULL), RC_OK);
    assert_true(file_is_there(scratch_path(&scratch, "peer-000/model.safetensors")));
    assert_true(file_is_there(scratch_path(&scratch, "summary.json")));
    scratch_deinit(&scratch);
}

static void a_fresh_start_removes_what_a_testnet_left(void **state)
{
    /* Proves: after --fresh the folder is empty. */
    (void)state;
    struct scratch scratch;

    scratch_init(&scratch);
    fill(&scratch);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_FRESH, NULL), RC_OK);
    assert_int_equal(scratch_count(&scratch), 0);
    scratch_deinit(&scratch);
}

static void files_of_others_are_never_removed(void **state)
{
    /* Proves: a stranger's file or folder stays and makes the start fail by its name. */
    (void)state;
    struct scratch scratch;
    struct fault why = {""};

    scratch_init(&scratch);
    fill(&scratch);
    scratch_write(&scratch, "thesis.tex", "x", 1);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_FRESH, &why), RC_USAGE);
    assert_non_null(strstr(why.text, "thesis.tex"));
    assert_true(file_is_there(scratch_path(&scratch, "thesis.tex")));
    assert_int_equal(file_make_folder(scratch_path(&scratch, "peer-001/sub"), NULL), RC_OK);
    assert_int_not_equal(folder_prepare(scratch.folder, FOLDER_FRESH, &why), RC_OK);
    assert_non_null(strstr(why.text, "peer-001"));
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_in_use_needs_a_wish),
        cmocka_unit_test(resuming_keeps_everything),
        cmocka_unit_test(a_fresh_start_removes_what_a_testnet_left),
        cmocka_unit_test(files_of_others_are_never_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

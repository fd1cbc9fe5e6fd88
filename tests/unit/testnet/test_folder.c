/* Tests of testnet/folder: what is removed, and above all what is not. */
#include "tests/scratch.h"

#include "base/file.h"
#include "testnet/folder.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void a_folder_is_one_testnets_at_a_time(void **state)
{
    /* Proves: while one process has the folder another is told which; what the first makes of it is
     * as empty as before once it has let go. */
    (void)state;
    struct scratch scratch;
    struct file_lock lock;
    struct fault why = {""};
    char holder[40];
    int status;

    scratch_init(&scratch);
    assert_int_equal(folder_lock(scratch.folder, &lock, NULL), RC_OK);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_NEW, NULL), RC_OK);
    snprintf(holder, sizeof holder, "in use by process %ld;", (long)getpid());
    if (fork() == 0) {
        struct file_lock second;
        enum rc rc = folder_lock(scratch.folder, &second, &why);
        _exit(rc == RC_BUSY && strstr(why.text, holder) != NULL && second.fd == -1 ? 0 : 1);
    }
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
    folder_unlock(scratch.folder, &lock);
    assert_int_equal(scratch_count(&scratch), 0);
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

static void baselines_go_with_their_run(void **state)
{
    /* Proves: --fresh removes the runs for comparison with the rest, down to their folders; one
     * that is made anew begins empty; a stranger's file in one stays, and so does its folder. */
    (void)state;
    struct scratch scratch;

    scratch_init(&scratch);
    fill(&scratch);
    assert_int_equal(folder_empty(scratch_path(&scratch, "alone"), NULL), RC_OK);
    assert_int_equal(file_make_folder(scratch_path(&scratch, "alone/peer-000"), NULL), RC_OK);
    scratch_write(&scratch, "alone/peer-000/model.safetensors", "x", 1);
    scratch_write(&scratch, "alone/summary.json", "{}", 2);
    assert_int_equal(folder_empty(scratch_path(&scratch, "alone"), NULL), RC_OK);
    assert_false(file_is_there(scratch_path(&scratch, "alone/peer-000")));
    assert_false(file_is_there(scratch_path(&scratch, "alone/summary.json")));
    scratch_write(&scratch, "alone/events.jsonl", "x", 1);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_FRESH, NULL), RC_OK);
    assert_int_equal(folder_settle(scratch.folder, NULL), RC_OK);
    assert_int_equal(scratch_count(&scratch), 0);
    assert_int_equal(folder_empty(scratch_path(&scratch, "all-data"), NULL), RC_OK);
    scratch_write(&scratch, "all-data/mine.txt", "x", 1);
    assert_int_equal(folder_undo(scratch.folder, NULL), RC_IO);
    assert_true(file_is_there(scratch_path(&scratch, "all-data/mine.txt")));
    scratch_deinit(&scratch);
}

static void a_fresh_start_removes_what_a_testnet_left(void **state)
{
    /* Proves: once a --fresh run has begun, nothing is left of the earlier one; nothing is set
     * aside where there was none. */
    (void)state;
    struct scratch scratch;

    scratch_init(&scratch);
    fill(&scratch);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_FRESH, NULL), RC_OK);
    assert_false(file_is_there(scratch_path(&scratch, "peer-000")));
    assert_true(folder_has_aside(scratch.folder));
    assert_int_equal(folder_settle(scratch.folder, NULL), RC_OK);
    assert_int_equal(scratch_count(&scratch), 0);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_FRESH, NULL), RC_OK);
    assert_int_equal(folder_settle(scratch.folder, NULL), RC_OK);
    assert_int_equal(scratch_count(&scratch), 0);
    scratch_deinit(&scratch);
}

/* What fill() has made is there, and nothing of a later run. */
static void check_earlier(struct scratch *scratch)
{
    assert_true(file_is_there(scratch_path(scratch, "peer-000/model.safetensors")));
    assert_true(file_is_there(scratch_path(scratch, "peer-000/log.txt")));
    assert_true(file_is_there(scratch_path(scratch, "summary.json")));
    assert_false(file_is_there(scratch_path(scratch, "peer-000/stderr.txt")));
    assert_false(folder_has_aside(scratch->folder));
}

static void what_never_began_leaves_the_earlier_run(void **state)
{
    /* Proves: undone, or killed and begun afresh again, or killed and resumed, a run that never
     * began is gone and the earlier one is back; one that began is never replaced by what a kill
     * left of a removal. */
    (void)state;
    struct scratch scratch;

    scratch_init(&scratch);
    fill(&scratch);
    for (int times = 0; times < 2; times++) {
        assert_int_equal(folder_prepare(scratch.folder, FOLDER_FRESH, NULL), RC_OK);
        assert_int_equal(file_make_folder(scratch_path(&scratch, "peer-000"), NULL), RC_OK);
        assert_int_equal(file_make_folder(scratch_path(&scratch, "peer-001"), NULL), RC_OK);
        scratch_write(&scratch, "peer-000/stderr.txt", "x", 1);
    }
    assert_int_equal(folder_undo(scratch.folder, NULL), RC_OK);
    check_earlier(&scratch);
    assert_int_equal(scratch_count(&scratch), 2);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_FRESH, NULL), RC_OK);
    assert_int_equal(file_make_folder(scratch_path(&scratch, "peer-000"), NULL), RC_OK);
    scratch_write(&scratch, "peer-000/stderr.txt", "x", 1);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_RESUME, NULL), RC_OK);
    check_earlier(&scratch);
    assert_int_equal(file_make_folder(scratch_path(&scratch, ".removed/peer-000"), NULL), RC_OK);
    scratch_write(&scratch, ".removed/peer-000/stderr.txt", "x", 1);
    assert_int_equal(folder_prepare(scratch.folder, FOLDER_RESUME, NULL), RC_OK);
    check_earlier(&scratch);
    assert_int_equal(scratch_count(&scratch), 2);
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
    assert_true(file_is_there(scratch_path(&scratch, "peer-000/model.safetensors")));
    assert_int_equal(unlink(scratch_path(&scratch, "thesis.tex")), 0);
    assert_int_equal(file_make_folder(scratch_path(&scratch, "peer-001/sub"), NULL), RC_OK);
    assert_int_not_equal(folder_prepare(scratch.folder, FOLDER_FRESH, &why), RC_OK);
    assert_non_null(strstr(why.text, "peer-001"));
    assert_true(file_is_there(scratch_path(&scratch, "peer-000/model.safetensors")));
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_in_use_needs_a_wish),
        cmocka_unit_test(a_folder_is_one_testnets_at_a_time),
        cmocka_unit_test(resuming_keeps_everything),
        cmocka_unit_test(baselines_go_with_their_run),
        cmocka_unit_test(a_fresh_start_removes_what_a_testnet_left),
        cmocka_unit_test(what_never_began_leaves_the_earlier_run),
        cmocka_unit_test(files_of_others_are_never_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

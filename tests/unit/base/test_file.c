/* Whole files: replaced at once or not at all, read within limits. */
#include "tests/scratch.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { READ_MAX = 1 << 20, BIG_BYTES = 512 * 1024 };

static enum rc replace_text(const char *path, const char *text, struct fault *why)
{
    struct piece piece = {text, strlen(text)};

    return file_replace(path, &piece, 1, 0644, why);
}

static void check_content(const char *path, const char *expected)
{
    void *bytes;
    size_t count;

    assert_int_equal(file_read(path, READ_MAX, &bytes, &count, NULL), RC_OK);
    assert_int_equal(count, strlen(expected));
    assert_string_equal((char *)bytes, expected); /* and the NUL byte past the end */
    mem_free(bytes);
}

/* Pieces are written in order, with the mode asked for, over whatever was there, and nothing else
 * stays in the folder. */
static void replacing_writes_the_pieces(void **state)
{
    struct piece pieces[] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
    struct scratch scratch;
    struct stat status;
    const char *path;

    (void)state;
    scratch_init(&scratch);
    path = scratch_path(&scratch, "key");
    assert_int_equal(replace_text(path, "a much longer old content", NULL), RC_OK);
    assert_int_equal(file_replace(path, pieces, 3, 0600, NULL), RC_OK);
    check_content(path, "one two");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(scratch_count(&scratch), 1);
    assert_int_equal(file_replace(path, NULL, 0, 0644, NULL), RC_OK);
    check_content(path, "");
    scratch_deinit(&scratch);
}

/* What a kill left behind under the temporary name does not hinder or leak into the next file. */
static void leftovers_of_a_kill_are_reused(void **state)
{
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    scratch_write(&scratch, "f.tmp", "torn and longer than what follows", 33);
    assert_int_equal(replace_text(scratch_path(&scratch, "f"), "new", NULL), RC_OK);
    check_content(scratch_path(&scratch, "f"), "new");
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_deinit(&scratch);
}

/* Where a file cannot be written the reason names it and its cause. */
static void impossible_places_are_named(void **state)
{
    struct scratch scratch;
    struct fault why;
    char endless[8192];

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(replace_text(scratch_path(&scratch, "none/f"), "x", &why), RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "none/f: no such file"));
    assert_int_equal(file_make_folder(scratch_path(&scratch, "full/of"), &why), RC_OK);
    assert_int_equal(replace_text(scratch_path(&scratch, "full"), "x", &why), RC_IO);
    assert_non_null(strstr(why.text, "is a directory"));
    assert_int_equal(scratch_count(&scratch), 1); /* no full.tmp */
    assert_int_equal(symlink("/dev/null", scratch_path(&scratch, "link.tmp")), 0);
    assert_int_equal(replace_text(scratch_path(&scratch, "link"), "x", &why), RC_IO);
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_int_equal(replace_text(endless, "x", &why), RC_IO);
    scratch_deinit(&scratch);
}

/* Runs in a child: 0 when a file too large for the limit was refused and the old one kept. */
static int try_beyond_file_size_limit(struct scratch *scratch)
{
    struct rlimit limit = {4096, 4096};
    char *big = calloc(1, BIG_BYTES);
    struct piece piece = {big, BIG_BYTES};
    struct fault why = {""};
    enum rc rc;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    rc = file_replace(scratch_path(scratch, "f"), &piece, 1, 0644, &why);
    free(big);
    return rc == RC_IO && strstr(why.text, "file too large") != NULL ? 0 : 1;
}

/* A file above the process's size limit leaves the old one and no temporary one. */
/* What cannot be replaced is known beforehand, and asking changes nothing. */
static void a_place_can_be_tried_without_writing(void **state)
{
    struct scratch scratch;
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    scratch_write(&scratch, "here", "old", 3);
    assert_int_equal(file_check_replace(scratch_path(&scratch, "here"), &why), RC_OK);
    check_content(scratch_path(&scratch, "here"), "old");
    assert_int_equal(file_check_replace(scratch_path(&scratch, "new"), &why), RC_OK);
    assert_false(file_is_there(scratch_path(&scratch, "new")));
    assert_false(file_is_there(scratch_path(&scratch, "new.tmp")));
    assert_int_not_equal(file_check_replace(scratch_path(&scratch, "none/new"), &why), RC_OK);
    assert_non_null(strstr(why.text, "none/new"));
    assert_int_not_equal(file_check_replace(scratch_path(&scratch, "here/new"), &why), RC_OK);
    assert_int_equal(file_make_folder(scratch_path(&scratch, "folder"), NULL), RC_OK);
    assert_int_not_equal(file_check_replace(scratch_path(&scratch, "folder"), &why), RC_OK);
    scratch_deinit(&scratch);
}

static void a_size_limit_keeps_the_old_file(void **state)
{
    struct scratch scratch;
    pid_t child;
    int status;

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(replace_text(scratch_path(&scratch, "f"), "old", NULL), RC_OK);
    child = fork();
    if (child == 0) _exit(try_beyond_file_size_limit(&scratch));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    check_content(scratch_path(&scratch, "f"), "old");
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_deinit(&scratch);
}

/* Runs in a child with mounts of its own: a disk of 128 KiB. 77: not allowed to mount. */
static int try_on_a_full_disk(struct scratch *scratch)
{
    char *big = calloc(1, BIG_BYTES), kept[4] = "";
    struct piece piece = {big, BIG_BYTES};
    struct fault why = {""};
    const char *path = scratch_path(scratch, "f");
    FILE *file;

    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", scratch->folder, "tmpfs", 0, "size=128k") != 0) {
        return 77;
    }
    if (replace_text(path, "old", NULL) != RC_OK) return 1;
    if (file_replace(path, &piece, 1, 0644, &why) != RC_DISK_FULL) return 2;
    if (strstr(why.text, "no space left on device") == NULL) return 3;
    if (scratch_count(scratch) != 1) return 4;
    file = fopen(path, "rb");
    if (file == NULL || fread(kept, 1, 3, file) != 3 || strcmp(kept, "old") != 0) return 5;
    fclose(file);
    if (file_append(path, big, BIG_BYTES, 0, &why) != RC_DISK_FULL) return 6;
    file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || ftell(file) != 3) return 7;
    fclose(file);
    free(big);
    return 0;
}

/* On a full disk the old file stays whole, nothing else stays, and half a line is taken back. */
static void a_full_disk_keeps_the_old_file(void **state)
{
    struct scratch scratch;
    pid_t child;
    int status;

    (void)state;
    scratch_init(&scratch);
    child = fork();
    if (child == 0) _exit(try_on_a_full_disk(&scratch));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    scratch_deinit(&scratch);
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: this user may not mount a small disk\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void replace_for_ever(const char *path, char letter)
{
    char *big = malloc(BIG_BYTES);
    struct piece piece = {big, BIG_BYTES};

    memset(big, letter, BIG_BYTES);
    while (file_replace(path, &piece, 1, 0644, NULL) == RC_OK) {
    }
    _exit(1); /* seen by the parent: it should have been killed */
}

/* Two writers at once, killed in the middle: every reading in between and after is of one whole
 * file of one of them. */
static void readers_never_see_a_torn_file(void **state)
{
    struct scratch scratch;
    const char *path;
    pid_t children[2];

    (void)state;
    scratch_init(&scratch);
    path = scratch_path(&scratch, "f");
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) replace_for_ever(path, (char)('a' + i));
    }
    while (!file_is_there(path)) {
        sched_yield();
    }
    for (int i = 0; i < 60; i++) {
        void *bytes;
        size_t count;

        if (i == 50) { /* the last readings are of what the killed ones left */
            for (int k = 0; k < 2; k++) {
                int status;

                kill(children[k], SIGKILL);
                assert_int_equal(waitpid(children[k], &status, 0), children[k]);
                assert_true(WIFSIGNALED(status));
            }
        }
        assert_int_equal(file_read(path, READ_MAX, &bytes, &count, NULL), RC_OK);
        assert_int_equal(count, BIG_BYTES);
        assert_memory_equal(bytes, (char *)bytes + 1, BIG_BYTES - 1);
        mem_free(bytes);
    }
    assert_int_equal(replace_text(path, "after", NULL), RC_OK); /* a dead writer's lock is gone */
    check_content(path, "after");
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_deinit(&scratch);
}

/* Reading stops at the limit, whatever size the file system reports. */
static void reading_respects_the_limit(void **state)
{
    struct scratch scratch;
    struct fault why;
    void *bytes = &why;
    size_t count = 99;

    (void)state;
    scratch_init(&scratch);
    scratch_write(&scratch, "f", "12345", 5);
    assert_int_equal(file_read(scratch_path(&scratch, "f"), 4, &bytes, &count, &why), RC_LIMIT);
    assert_non_null(strstr(why.text, "limit of 4 bytes"));
    assert_int_equal(file_read("/dev/zero", 100000, &bytes, &count, &why), RC_LIMIT);
    assert_ptr_equal(bytes, &why);
    assert_int_equal(count, 99);
    assert_int_equal(file_read(scratch_path(&scratch, "f"), 5, &bytes, &count, &why), RC_OK);
    assert_int_equal(count, 5);
    mem_free(bytes);
    assert_int_equal(file_read("/proc/self/status", READ_MAX, &bytes, &count, &why), RC_OK);
    assert_true(count > 100);
    mem_free(bytes);
    scratch_deinit(&scratch);
}

/* A file that is not there, a folder and short memory each have their code and words. */
static void unreadable_files_are_named(void **state)
{
    uint64_t before = mem_blocks();
    struct fault why;
    void *bytes;
    size_t count;

    (void)state;
    assert_int_equal(file_read("/nonexistent/x", 10, &bytes, &count, &why), RC_NOT_FOUND);
    assert_string_equal(why.text, "cannot read /nonexistent/x: no such file");
    assert_int_equal(file_read("/tmp", 10, &bytes, &count, &why), RC_IO);
    assert_string_equal(why.text, "cannot read /tmp: is a directory");
    for (uint64_t n = 0; n < 2; n++) { /* the first block, and growing it */
        mem_fail_after(n);
        assert_int_equal(file_read("/dev/zero", READ_MAX, &bytes, &count, &why), RC_NOMEM);
    }
    mem_fail_after(UINT64_MAX);
    assert_int_equal(mem_blocks(), before);
}

/* Appending adds to the end and makes the file; where it cannot, it says so. */
static void appending_adds_at_the_end(void **state)
{
    struct scratch scratch;
    struct fault why;

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(file_append(scratch_path(&scratch, "f"), "a\n", 2, 0, &why), RC_OK);
    assert_int_equal(file_append(scratch_path(&scratch, "f"), "b\n", 2, 0, &why), RC_OK);
    check_content(scratch_path(&scratch, "f"), "a\nb\n");
    assert_int_equal(file_append(scratch.folder, "b\n", 2, 0, &why), RC_IO);
    assert_int_equal(file_append("/dev/full", "b\n", 2, 0, &why), RC_DISK_FULL);
    assert_string_equal(why.text, "cannot append to /dev/full: no space left on device");
    scratch_deinit(&scratch);
}

/* What would grow too large is kept under another name, once, and begins anew. */
static void a_file_that_is_full_is_set_aside(void **state)
{
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    for (int i = 0; i < 7; i++) {
        char line[4] = {(char)('a' + i), '\n'};

        assert_int_equal(file_append(scratch_path(&scratch, "f"), line, 2, 5, NULL), RC_OK);
    }
    check_content(scratch_path(&scratch, "f"), "g\n");
    check_content(scratch_path(&scratch, "f.1"), "e\nf\n");
    assert_int_equal(scratch_count(&scratch), 2);
    assert_int_equal(file_append(scratch_path(&scratch, "f"), "a long line\n", 12, 5, NULL), RC_OK);
    check_content(scratch_path(&scratch, "f"), "a long line\n");
    scratch_deinit(&scratch);
}

/* Folders are made with their parents, again without complaint, but not over a file. */
static void folders_are_made_with_parents(void **state)
{
    struct scratch scratch;
    struct fault why;
    char endless[8192];

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(file_make_folder(scratch_path(&scratch, "a/b/c"), &why), RC_OK);
    assert_int_equal(file_make_folder(scratch_path(&scratch, "a/b/c/"), &why), RC_OK);
    assert_int_equal(file_make_folder("/", &why), RC_OK);
    scratch_write(&scratch, "a/f", "x", 1);
    assert_true(file_is_there(scratch_path(&scratch, "a/b/c")));
    assert_true(file_is_there(scratch_path(&scratch, "a/f")));
    assert_false(file_is_there(scratch_path(&scratch, "a/g")));
    assert_int_equal(file_make_folder(scratch_path(&scratch, "a/f"), &why), RC_IO);
    assert_non_null(strstr(why.text, "not a directory"));
    assert_int_equal(file_make_folder(scratch_path(&scratch, "a/f/g"), &why), RC_IO);
    assert_int_equal(file_make_folder("", &why), RC_NOT_FOUND);
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_int_equal(file_make_folder(endless, &why), RC_IO);
    scratch_deinit(&scratch);
}

/* Causes fall into the codes that callers tell apart. */
static void causes_have_codes(void **state)
{
    (void)state;
    assert_int_equal(file_fault(NULL, "read", "x", ENOENT), RC_NOT_FOUND);
    assert_int_equal(file_fault(NULL, "read", "x", ENOSPC), RC_DISK_FULL);
    assert_int_equal(file_fault(NULL, "read", "x", EDQUOT), RC_DISK_FULL);
    assert_int_equal(file_fault(NULL, "read", "x", ENOMEM), RC_NOMEM);
    assert_int_equal(file_fault(NULL, "read", "x", EACCES), RC_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replacing_writes_the_pieces),
        cmocka_unit_test(leftovers_of_a_kill_are_reused),
        cmocka_unit_test(impossible_places_are_named),
        cmocka_unit_test(a_place_can_be_tried_without_writing),
        cmocka_unit_test(a_size_limit_keeps_the_old_file),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
        cmocka_unit_test(readers_never_see_a_torn_file),
        cmocka_unit_test(reading_respects_the_limit),
        cmocka_unit_test(unreadable_files_are_named),
        cmocka_unit_test(appending_adds_at_the_end),
        cmocka_unit_test(a_file_that_is_full_is_set_aside),
        cmocka_unit_test(folders_are_made_with_parents),
        cmocka_unit_test(causes_have_codes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

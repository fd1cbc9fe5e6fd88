/* A lock file: one process at a time, told who, and free again however the holder ends. */
#include "tests/scratch.h"

#include "base/file_lock.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

static enum rc take(struct scratch *scratch, struct file_lock *lock, long *holder)
{
    struct fault why = {""};

    return file_lock_take(scratch_path(scratch, "lock"), lock, holder, &why);
}

/* A child that takes the lock, says so, and waits to be killed. */
static pid_t start_holder(struct scratch *scratch)
{
    struct file_lock lock;
    long holder;
    int told[2];
    char byte = 0;
    pid_t child;

    assert_int_equal(pipe(told), 0);
    child = fork();
    if (child == 0) {
        if (take(scratch, &lock, &holder) == RC_OK && write(told[1], "y", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(told[0], &byte, 1), 1);
    close(told[0]);
    close(told[1]);
    return child;
}

/* Who comes second learns who is there, and changes nothing; SIGKILL leaves nothing behind that
 * would keep the next one out. */
static void one_process_holds_it(void **state)
{
    struct scratch scratch;
    struct file_lock lock;
    long holder = -1;
    pid_t child;
    int status;

    (void)state;
    scratch_init(&scratch);
    child = start_holder(&scratch);
    assert_int_equal(take(&scratch, &lock, &holder), RC_BUSY);
    assert_int_equal(holder, child);
    assert_int_equal(lock.fd, -1);
    assert_false(lock.was_made);
    assert_int_equal(scratch_count(&scratch), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(take(&scratch, &lock, &holder), RC_OK);
    assert_false(lock.was_made);
    file_lock_release(scratch_path(&scratch, "lock"), &lock, false);
    assert_int_equal(scratch_count(&scratch), 1);
    file_lock_release(scratch_path(&scratch, "lock"), &lock, true); /* not held: not removed */
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_deinit(&scratch);
}

/* Many at the same instant, who remove the file as they leave: never two at a time. */
static void never_two_at_a_time(void **state)
{
    enum { CHILDREN = 6, TURNS = 3000 };
    struct scratch scratch;
    pid_t children[CHILDREN];
    atomic_int *inside =
        mmap(NULL, sizeof *inside, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_ptr_not_equal(inside, MAP_FAILED);
    scratch_init(&scratch);
    for (int c = 0; c < CHILDREN; c++) {
        children[c] = fork();
        if (children[c] != 0) continue;
        for (int i = 0; i < TURNS; i++) {
            struct file_lock lock;
            long holder;
            enum rc rc = take(&scratch, &lock, &holder);

            if (rc == RC_BUSY) continue;
            if (rc != RC_OK || atomic_fetch_add(inside, 1) != 0) _exit(1);
            sched_yield();
            atomic_fetch_sub(inside, 1);
            file_lock_release(scratch_path(&scratch, "lock"), &lock, true);
        }
        _exit(0);
    }
    for (int c = 0; c < CHILDREN; c++) {
        int status;

        assert_int_equal(waitpid(children[c], &status, 0), children[c]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    scratch_deinit(&scratch);
}

/* A link is not followed, a pipe not waited for, a folder that is not there said. */
static void other_things_of_its_name_are_refused(void **state)
{
    struct scratch scratch;
    struct file_lock lock;
    struct fault why = {""};
    long holder;

    (void)state;
    scratch_init(&scratch);
    scratch_write(&scratch, "precious", "x", 1);
    assert_int_equal(symlink("precious", scratch_path(&scratch, "lock")), 0);
    assert_int_equal(take(&scratch, &lock, &holder), RC_IO);
    assert_int_equal(unlink(scratch_path(&scratch, "lock")), 0);
    assert_int_equal(mkfifo(scratch_path(&scratch, "lock"), 0600), 0);
    assert_int_equal(take(&scratch, &lock, &holder), RC_IO);
    assert_int_equal(lock.fd, -1);
    assert_int_equal(file_lock_take(scratch_path(&scratch, "no/lock"), &lock, &holder, &why),
                     RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "cannot lock "));
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_holds_it),
        cmocka_unit_test(never_two_at_a_time),
        cmocka_unit_test(other_things_of_its_name_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

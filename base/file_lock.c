/*
 * POSIX record locks (fcntl): unlike flock() they tell who holds them, and they work over NFS. They
 * belong to the process, so nothing else in it may open the file: closing it there would let go.
 */
#include "base/file_lock.h"

#include "base/check.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100 };

/* 0 or an errno value. Never follows a link, and never waits for a pipe's other end. */
static int open_it(const char *path, struct file_lock *lock)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat status;

    lock->fd = open(path, flags | O_CREAT | O_EXCL, 0600);
    lock->was_made = lock->fd >= 0;
    if (lock->fd < 0 && errno == EEXIST) lock->fd = open(path, flags);
    if (lock->fd < 0) return errno;
    if (fstat(lock->fd, &status) == 0 && S_ISREG(status.st_mode)) return 0;
    close(lock->fd);
    lock->fd = -1;
    return EINVAL;
}

/* Whoever held it before may have removed it between our opening and our locking it. */
static bool is_still_there(int fd, const char *path)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* 0, EAGAIN where another process has it, or another errno value. */
static int lock_it(int fd, long *holder)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_SETLK, &range) == 0) return 0;
    if (errno != EACCES && errno != EAGAIN) return errno;
    range = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_GETLK, &range) != 0) return errno;
    if (range.l_type == F_UNLCK) return EINTR; /* it has just let go */
    *holder = range.l_pid > 0 ? (long)range.l_pid : 0;
    return EAGAIN;
}

enum rc file_lock_take(const char *path, struct file_lock *lock, long *holder, struct fault *why)
{
    int error = EINTR;

    CHECK(path != NULL && lock != NULL && holder != NULL);
    *holder = 0;
    for (int i = 0; i < TRIES && (error == EINTR || error == ENOENT); i++) {
        error = open_it(path, lock);
        if (error != 0) continue;
        error = lock_it(lock->fd, holder);
        if (error == 0 && is_still_there(lock->fd, path)) return RC_OK;
        if (error == 0) error = EINTR;
        close(lock->fd);
        lock->fd = -1;
    }
    lock->was_made = false;
    if (error == EAGAIN || error == EINTR) return RC_BUSY;
    if (error == EROFS) return RC_UNSUPPORTED;
    return file_fault(why, "lock", path, error);
}

enum rc file_lock_folder(const char *folder, struct file_lock *lock, struct fault *why)
{
    char path[1024];
    long holder;
    int length = snprintf(path, sizeof path, "%s/lock", folder);
    enum rc rc;

    CHECK(length > 0 && (size_t)length < sizeof path);
    rc = file_lock_take(path, lock, &holder, why);
    if (rc != RC_BUSY) return rc;
    if (holder == 0) {
        return fault_set(why, rc,
                         "--out %s is in use by a process that runs elsewhere; stop it, or take "
                         "another --out",
                         folder);
    }
    return fault_set(why, rc, "--out %s is in use by process %ld; stop it, or take another --out",
                     folder, holder);
}

void file_lock_release(const char *path, struct file_lock *lock, bool is_removed)
{
    if (lock->fd < 0) return;
    if (is_removed) (void)unlink(path); /* while it is ours */
    close(lock->fd);
    lock->fd = -1;
}

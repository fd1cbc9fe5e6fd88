/* scratch: a folder of its own for one test, removed with all that is in it. */
#ifndef GRAPEVINE_TESTS_SCRATCH_H
#define GRAPEVINE_TESTS_SCRATCH_H

#include "tests/check.h"

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

struct scratch {
    char folder[64];
    char path[4][320]; /* scratch_path() hands these out in turn */
    unsigned turn;
};

static inline void scratch_init(struct scratch *scratch)
{
    memset(scratch, 0, sizeof *scratch);
    snprintf(scratch->folder, sizeof scratch->folder, "/tmp/grapevine-test-XXXXXX");
    assert_non_null(mkdtemp(scratch->folder));
}

/* FOLDER/NAME; good until the fourth call from now. */
static inline const char *scratch_path(struct scratch *scratch, const char *name)
{
    char *path = scratch->path[scratch->turn++ % 4];
    size_t folder = strlen(scratch->folder);

    assert_true(folder + strlen(name) + 2 <= sizeof scratch->path[0]);
    memcpy(path, scratch->folder, folder);
    path[folder] = '/';
    memcpy(path + folder + 1, name, strlen(name) + 1);
    return path;
}

static inline void scratch_write(struct scratch *scratch, const char *name, const void *bytes,
                                 size_t count)
{
    FILE *file = fopen(scratch_path(scratch, name), "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Entries of the folder, without "." and "..". */
static inline size_t scratch_count(const struct scratch *scratch)
{
    DIR *folder = opendir(scratch->folder);
    size_t count = 0;

    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) count++;
    }
    closedir(folder);
    return count;
}

static inline int scratch_remove(const char *path, const struct stat *status, int kind,
                                 struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline void scratch_deinit(struct scratch *scratch)
{
    nftw(scratch->folder, scratch_remove, 8, FTW_DEPTH | FTW_PHYS);
}

#endif

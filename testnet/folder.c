/* folder: see folder.h. Blocking file access: commands only. */
#include "testnet/folder.h"

#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The earlier run, and what is left of one while it is removed: renamed first, so that a kill never
 * leaves half of a run to be put back. */
#define ASIDE   ".earlier"
#define REMOVED ".removed"
#define LOCK    "lock"

enum { PATH_BYTES = 1400, PATH_MOST = 900 };

static const char *const own_files[] = {
    "summary.json", "events.jsonl",        "report.html",
    "distill.json", "average.safetensors", "student.safetensors",
};

/* peer-000 and the like. */
static bool is_peer_folder(const char *name)
{
    if (strncmp(name, "peer-", 5) != 0 || strlen(name) < 8) return false;
    for (const char *at = name + 5; *at != '\0'; at++) {
        if (!isdigit((unsigned char)*at)) return false;
    }
    return true;
}

static bool is_baseline(const char *name)
{
    return strcmp(name, FOLDER_ALONE) == 0 || strcmp(name, FOLDER_ALL_DATA) == 0;
}

static bool is_own(const char *name)
{
    for (size_t i = 0; i < sizeof own_files / sizeof own_files[0]; i++) {
        if (strcmp(name, own_files[i]) == 0) return true;
    }
    return is_peer_folder(name) || is_baseline(name);
}

/* All plain files of a peer's folder, then the folder. A peer makes no folders in it. */
static enum rc remove_peer(const char *path, struct fault *why)
{
    DIR *dir = opendir(path);
    enum rc rc = RC_OK;

    if (dir == NULL) return file_fault(why, "read", path, errno);
    for (struct dirent *entry = readdir(dir); rc == RC_OK && entry != NULL; entry = readdir(dir)) {
        char file[PATH_BYTES + 600];
        struct stat status;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (lstat(file, &status) != 0 || S_ISDIR(status.st_mode)) continue;
        if (unlink(file) != 0) rc = file_fault(why, "remove", file, errno);
    }
    closedir(dir);
    if (rc == RC_OK && rmdir(path) != 0) rc = file_fault(why, "remove", path, errno);
    return rc;
}

static enum rc remove_run(const char *folder, struct fault *why);

/* `name` is one of ours. */
static enum rc remove_one(const char *folder, const char *name, struct fault *why)
{
    char path[PATH_BYTES + 300];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (is_baseline(name)) { /* which has none in it */
        const enum rc rc = file_is_there(path) ? remove_run(path, why) : RC_OK;
        if (rc != RC_OK || rmdir(path) == 0 || errno == ENOENT) return rc;
        return file_fault(why, "remove", path, errno);
    }
    if (is_peer_folder(name)) return file_is_there(path) ? remove_peer(path, why) : RC_OK;
    if (unlink(path) != 0 && errno != ENOENT) return file_fault(why, "remove", path, errno);
    return RC_OK;
}

static enum rc remove_run(const char *folder, struct fault *why)
{
    DIR *dir = opendir(folder);
    enum rc rc = RC_OK;

    if (dir == NULL) return file_fault(why, "read", folder, errno);
    for (struct dirent *entry = readdir(dir); rc == RC_OK && entry != NULL; entry = readdir(dir)) {
        if (is_own(entry->d_name)) rc = remove_one(folder, entry->d_name, why);
    }
    closedir(dir);
    return rc;
}

/* What is ours, from one folder to the other, in place of what has its name there; without anything
 * to move the other is not made. */
static enum rc move_run(const char *from, const char *to, struct fault *why)
{
    char old[PATH_BYTES + 300], new[PATH_BYTES + 300];
    DIR *dir = opendir(from);
    enum rc rc = RC_OK;

    if (dir == NULL) return file_fault(why, "read", from, errno);
    for (struct dirent *entry = readdir(dir); rc == RC_OK && entry != NULL; entry = readdir(dir)) {
        if (!is_own(entry->d_name)) continue;
        rc = file_make_folder(to, why);
        if (rc == RC_OK) rc = remove_one(to, entry->d_name, why);
        if (rc != RC_OK) break;
        snprintf(old, sizeof old, "%s/%s", from, entry->d_name);
        snprintf(new, sizeof new, "%s/%s", to, entry->d_name);
        if (rename(old, new) != 0) rc = file_fault(why, "move", old, errno);
    }
    closedir(dir);
    return rc;
}

/* A peer makes no folders in its own. */
static bool has_folder(const char *path)
{
    DIR *dir = opendir(path);
    bool has = false;

    if (dir == NULL) return false;
    for (struct dirent *entry = readdir(dir); !has && entry != NULL; entry = readdir(dir)) {
        char inner[PATH_BYTES + 600];
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        has = lstat(inner, &status) == 0 && S_ISDIR(status.st_mode);
    }
    closedir(dir);
    return has;
}

/* What no testnet left, or, for NEW, anything. */
static enum rc find_stranger(const char *folder, bool knows_own, char *name, size_t cap,
                             struct fault *why)
{
    DIR *dir = opendir(folder);

    name[0] = '\0';
    if (dir == NULL) return file_fault(why, "read", folder, errno);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        const char *entry_name = entry->d_name;
        char path[PATH_BYTES + 300];
        if (strcmp(entry_name, ".") == 0 || strcmp(entry_name, "..") == 0) continue;
        if (strcmp(entry_name, LOCK) == 0) continue; /* ours, of now or from before a kill */
        snprintf(path, sizeof path, "%s/%s", folder, entry_name);
        if (knows_own && (strcmp(entry_name, ASIDE) == 0 || strcmp(entry_name, REMOVED) == 0)) {
            continue;
        }
        if (knows_own && is_own(entry_name) && !(is_peer_folder(entry_name) && has_folder(path))) {
            continue;
        }
        snprintf(name, cap, "%s", entry_name);
        break;
    }
    closedir(dir);
    return RC_OK;
}

/* What a kill has left of a removal. */
static enum rc finish_removal(const char *folder, struct fault *why)
{
    char removed[PATH_BYTES];

    snprintf(removed, sizeof removed, "%s/" REMOVED, folder);
    if (!file_is_there(removed)) return RC_OK;
    const enum rc rc = remove_run(removed, why);
    if (rc != RC_OK || rmdir(removed) == 0) return rc;
    return file_fault(why, "remove", removed, errno);
}

enum rc folder_empty(const char *path, struct fault *why)
{
    const enum rc rc = file_make_folder(path, why);

    return rc == RC_OK ? remove_run(path, why) : rc;
}

bool folder_has_aside(const char *path)
{
    char aside[PATH_BYTES];

    snprintf(aside, sizeof aside, "%s/" ASIDE, path);
    return file_is_there(aside);
}

/* What is set aside already is the run that last began: what came after it can go. */
static enum rc set_aside(const char *path, struct fault *why)
{
    char aside[PATH_BYTES];

    if (folder_has_aside(path)) return remove_run(path, why);
    snprintf(aside, sizeof aside, "%s/" ASIDE, path);
    return move_run(path, aside, why);
}

static enum rc put_back(const char *path, struct fault *why)
{
    char aside[PATH_BYTES];

    snprintf(aside, sizeof aside, "%s/" ASIDE, path);
    if (!file_is_there(aside)) return RC_OK;
    const enum rc rc = move_run(aside, path, why);
    if (rc != RC_OK || rmdir(aside) == 0) return rc;
    return file_fault(why, "remove", aside, errno);
}

enum rc folder_settle(const char *path, struct fault *why)
{
    char aside[PATH_BYTES], removed[PATH_BYTES];

    if (!folder_has_aside(path)) return RC_OK;
    snprintf(aside, sizeof aside, "%s/" ASIDE, path);
    snprintf(removed, sizeof removed, "%s/" REMOVED, path);
    if (rename(aside, removed) != 0) return file_fault(why, "move", aside, errno);
    return finish_removal(path, why);
}

enum rc folder_undo(const char *path, struct fault *why)
{
    const enum rc rc = remove_run(path, why);

    return rc == RC_OK ? put_back(path, why) : rc;
}

enum rc folder_lock(const char *path, struct file_lock *lock, struct fault *why)
{
    enum rc rc;

    lock->fd = -1;
    if (strlen(path) > PATH_MOST) return fault_set(why, RC_USAGE, "--out: the path is too long");
    rc = file_make_folder(path, why);
    if (rc == RC_OK) rc = file_lock_folder(path, lock, why);
    return rc == RC_UNSUPPORTED ? RC_OK : rc;
}

void folder_unlock(const char *path, struct file_lock *lock)
{
    char file[PATH_BYTES];

    snprintf(file, sizeof file, "%s/" LOCK, path);
    file_lock_release(file, lock, lock->was_made);
}

enum rc folder_prepare(const char *path, enum folder_wish wish, struct fault *why)
{
    char name[300] = "";

    if (strlen(path) > PATH_MOST) return fault_set(why, RC_USAGE, "--out: the path is too long");
    enum rc rc = file_make_folder(path, why);
    if (rc == RC_OK && wish != FOLDER_RESUME) {
        rc = find_stranger(path, wish == FOLDER_FRESH, name, sizeof name, why);
    }
    if (rc == RC_OK && name[0] == '\0') {
        rc = finish_removal(path, why);
        if (rc == RC_OK && wish == FOLDER_FRESH) return set_aside(path, why);
        return rc == RC_OK && wish == FOLDER_RESUME ? put_back(path, why) : rc;
    }
    if (rc != RC_OK) return rc;
    if (wish == FOLDER_FRESH) {
        return fault_set(why, RC_USAGE,
                         "%s holds %s, which no testnet left there; choose another --out", path,
                         name);
    }
    return fault_set(why, RC_USAGE,
                     "%s is not empty; say --resume to go on with it, --fresh to start over, or "
                     "choose another --out",
                     path);
}

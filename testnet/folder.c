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

enum { PATH_BYTES = 1400 };

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

/* All plain files of a peer's folder, then the folder. A peer makes no folders in it. */
static enum rc remove_peer(const char *path, struct fault *why)
{
    DIR *dir = opendir(path);
    enum rc rc = RC_OK;

    if (dir == NULL) return file_fault(why, "read", path, errno);
    for (struct dirent *entry = readdir(dir); rc == RC_OK && entry != NULL; entry = readdir(dir)) {
        char file[PATH_BYTES + 300];
        struct stat status;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (lstat(file, &status) != 0 || S_ISDIR(status.st_mode)) continue;
        if (unlink(file) != 0) rc = file_fault(why, "remove", file, errno);
    }
    closedir(dir);
    if (rc == RC_OK && rmdir(path) != 0) rc = file_fault(why, "remove", path, errno);
    return rc;
}

static enum rc remove_run(const char *folder, struct fault *why)
{
    char path[PATH_BYTES];
    enum rc rc = RC_OK;

    for (size_t i = 0; i < sizeof own_files / sizeof own_files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, own_files[i]);
        if (unlink(path) != 0 && errno != ENOENT) return file_fault(why, "remove", path, errno);
    }
    DIR *dir = opendir(folder);
    if (dir == NULL) return file_fault(why, "read", folder, errno);
    for (struct dirent *entry = readdir(dir); rc == RC_OK && entry != NULL; entry = readdir(dir)) {
        if (!is_peer_folder(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        rc = remove_peer(path, why);
    }
    closedir(dir);
    return rc;
}

static enum rc find_stranger(const char *folder, char *name, size_t cap, struct fault *why)
{
    DIR *dir = opendir(folder);

    name[0] = '\0';
    if (dir == NULL) return file_fault(why, "read", folder, errno);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(name, cap, "%s", entry->d_name);
        break;
    }
    closedir(dir);
    return RC_OK;
}

enum rc folder_prepare(const char *path, enum folder_wish wish, struct fault *why)
{
    char name[300];

    if (strlen(path) > 900) return fault_set(why, RC_USAGE, "--out: the path is too long");
    enum rc rc = file_make_folder(path, why);
    if (rc != RC_OK || wish == FOLDER_RESUME) return rc;
    if (wish == FOLDER_FRESH) rc = remove_run(path, why);
    if (rc == RC_OK) rc = find_stranger(path, name, sizeof name, why);
    if (rc != RC_OK || name[0] == '\0') return rc;
    if (wish == FOLDER_FRESH) {
        return fault_set(why, RC_USAGE,
                         "%s holds %s, which no testnet left there; choose another --out", path,
                         name);
    }
    return fault_set(why, RC_USAGE,
                     "%s is not empty; say --resume to go on with it, --fresh to begin anew, or "
                     "choose another --out",
                     path);
}

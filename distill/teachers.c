/* teachers: see teachers.h. Blocking file access: commands only. */
#include "distill/teachers.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char model_name[] = "model.safetensors";

static enum rc teachers_add(struct teachers *teachers, const char *path, struct fault *why)
{
    if (teachers->count >= TEACHERS_MAX) {
        return fault_set(why, RC_LIMIT, "too many models: at most %d", TEACHERS_MAX);
    }
    char **paths = mem_resize(teachers->paths, (teachers->count + 1) * sizeof *paths);
    if (paths == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    teachers->paths = paths;
    paths[teachers->count] = mem_string(path);
    if (paths[teachers->count] == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    teachers->count++;
    return RC_OK;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All FOLDER/peer-NAME/model.safetensors, sorted. */
static enum rc add_run(struct teachers *teachers, const char *folder, struct fault *why)
{
    const size_t first = teachers->count;
    enum rc rc = RC_OK;
    DIR *dir = opendir(folder);

    if (dir == NULL) return file_fault(why, "read", folder, errno);
    for (struct dirent *entry = readdir(dir); rc == RC_OK && entry != NULL; entry = readdir(dir)) {
        char path[PATH_MAX];
        if (strncmp(entry->d_name, "peer-", 5) != 0) continue;
        const int n = snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, model_name);
        if (n < 0 || (size_t)n >= sizeof path || !file_is_there(path)) continue;
        rc = teachers_add(teachers, path, why);
    }
    closedir(dir);
    if (rc != RC_OK) return rc;
    if (teachers->count == first) {
        return fault_set(why, RC_NOT_FOUND,
                         "no models in %s: neither %s nor peer-*/%s is there; name model files or "
                         "the folder of a run",
                         folder, model_name, model_name);
    }
    qsort(teachers->paths + first, teachers->count - first, sizeof *teachers->paths, compare_paths);
    return RC_OK;
}

static enum rc add_entry(struct teachers *teachers, const char *entry, struct fault *why)
{
    struct stat status;
    char path[PATH_MAX];

    if (entry[0] == '\0') return fault_set(why, RC_USAGE, "an empty name in the list of models");
    if (stat(entry, &status) != 0) return file_fault(why, "read", entry, errno);
    if (!S_ISDIR(status.st_mode)) return teachers_add(teachers, entry, why);
    const int n = snprintf(path, sizeof path, "%s/%s", entry, model_name);
    if (n < 0 || (size_t)n >= sizeof path) return fault_set(why, RC_LIMIT, "%s: too long", entry);
    if (file_is_there(path)) return teachers_add(teachers, path, why);
    return add_run(teachers, entry, why);
}

enum rc teachers_find(const char *text, struct teachers *teachers, struct fault *why)
{
    CHECK(text != NULL && teachers != NULL);
    char *words = mem_string(text);
    enum rc rc = RC_OK;

    *teachers = (struct teachers){NULL, 0};
    if (words == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    for (char *word = words; rc == RC_OK && word != NULL;) {
        char *comma = strchr(word, ',');
        if (comma != NULL) *comma = '\0';
        rc = add_entry(teachers, word, why);
        word = comma != NULL ? comma + 1 : NULL;
    }
    mem_free(words);
    if (rc != RC_OK) teachers_deinit(teachers);
    return rc;
}

void teachers_deinit(struct teachers *teachers)
{
    for (size_t i = 0; i < teachers->count; i++) {
        mem_free(teachers->paths[i]);
    }
    mem_free(teachers->paths);
    *teachers = (struct teachers){NULL, 0};
}

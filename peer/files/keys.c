/* Key files. Secrets are wiped on every way out, and what is handed out lies in memory that is not
 * swapped, where that is allowed. Blocking: before the loop runs. */
#include "peer/files/keys.h"

#include "base/file.h"
#include "base/mem.h"
#include "peer/env/env.h"

#include <string.h>

enum { KEY_FILE_BYTES_MAX = 4096, KEY_TEXT_BYTES = 160, KEY_FILE_MODE = 0600 };

static enum rc make_identity(struct env *env, const char *path, struct identity *identity,
                             struct fault *why)
{
    uint8_t seed[SECRET_BYTES];
    char text[KEY_TEXT_BYTES];
    enum rc rc = RC_OK;

    env->ops->entropy(env, seed, sizeof seed);
    identity_from_seed(seed, identity);
    if (path != NULL) {
        struct piece piece = {text, 0};

        identity_format(seed, text, sizeof text);
        piece.count = strlen(text);
        rc = file_replace(path, &piece, 1, KEY_FILE_MODE, why);
    }
    mem_wipe(seed, sizeof seed);
    mem_wipe(text, sizeof text);
    return rc;
}

enum rc keys_identity(struct env *env, const char *path, struct identity *identity,
                      struct fault *why)
{
    struct fault parse = {""};
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc;

    mem_lock(identity, sizeof *identity);
    if (path == NULL || !file_is_there(path)) return make_identity(env, path, identity, why);
    rc = file_read(path, KEY_FILE_BYTES_MAX, &text, &bytes, why);
    if (rc != RC_OK) return rc;
    rc = identity_parse(text, bytes, identity, &parse);
    if (rc != RC_OK) {
        fault_set(why, rc, "cannot use the identity %s: %s; make one with 'grapevine keygen'", path,
                  parse.text);
    }
    mem_wipe(text, bytes);
    mem_free(text);
    return rc;
}

enum rc keys_identity_there(struct env *env, const char *path, struct identity *identity,
                            struct fault *why)
{
    if (path != NULL && !file_is_there(path)) {
        return fault_set(why, RC_IO,
                         "cannot read the identity %s: no such file; make one with 'grapevine "
                         "keygen'",
                         path);
    }
    return keys_identity(env, path, identity, why);
}

enum rc keys_swarm(const char *name, const char *key_path, struct swarm_secret *secret,
                   struct fault *why)
{
    struct fault parse = {""};
    uint8_t key[SECRET_BYTES];
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc;

    mem_lock(secret, sizeof *secret);
    if (key_path == NULL) {
        swarm_secret_derive(name, NULL, secret);
        return RC_OK;
    }
    rc = file_read(key_path, KEY_FILE_BYTES_MAX, &text, &bytes, &parse);
    if (rc != RC_OK) {
        return fault_set(
            why, rc,
            "--swarm-key: %s; make one with 'grapevine keygen --swarm-key --out FILE', "
            "or copy that of another peer",
            parse.text);
    }
    rc = swarm_key_parse(text, bytes, key, &parse);
    if (rc == RC_OK) {
        swarm_secret_derive(name, key, secret);
    } else {
        fault_set(why, rc,
                  "cannot use --swarm-key %s: %s; make one with 'grapevine keygen "
                  "--swarm-key'",
                  key_path, parse.text);
    }
    mem_wipe(key, sizeof key);
    mem_wipe(text, bytes);
    mem_free(text);
    return rc;
}

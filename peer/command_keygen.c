/*
 * command_keygen: makes a peer's identity or a swarm's key. Entropy is the system's, through the
 * env; the key is wiped from memory afterwards.
 */
#include "peer/command.h"

#include "base/check.h"
#include "base/file.h"
#include "gossip/wire/secure.h"
#include "peer/env/env.h"
#include "replica/json.h"

#include <string.h>

enum { KEY_TEXT_BYTES = 160, KEY_FILE_MODE = 0600 };

struct new_key {
    const char *path;
    bool is_swarm_key;
    uint8_t seed[SECRET_BYTES];
    char text[KEY_TEXT_BYTES];
};

static enum rc draw_seed(uint8_t seed[SECRET_BYTES], struct fault *why)
{
    struct uv_env_options options = {.folder = NULL};
    struct env *env = NULL;
    enum rc rc = uv_env_create(&options, &env, why);

    if (rc != RC_OK) return rc;
    env->ops->entropy(env, seed, SECRET_BYTES);
    uv_env_destroy(env);
    return RC_OK;
}

static enum rc write_key(struct new_key *key, struct fault *why)
{
    struct piece piece;
    enum rc rc;

    if (file_is_there(key->path))
        return fault_set(why, RC_IO,
                         "cannot write %s: the file is there already; remove it or "
                         "choose another --out",
                         key->path);
    rc = secure_start();
    if (rc != RC_OK) return fault_set(why, rc, "keygen: libsodium does not start; reinstall it");
    rc = draw_seed(key->seed, why);
    if (rc != RC_OK) return rc;
    if (key->is_swarm_key)
        swarm_key_format(key->seed, key->text, sizeof(key->text));
    else
        identity_format(key->seed, key->text, sizeof(key->text));
    piece = (struct piece){key->text, strlen(key->text)};
    return file_replace(key->path, &piece, 1, KEY_FILE_MODE, why);
}

static void report(const struct options *options, const struct new_key *key)
{
    char id[PEER_ID_TEXT] = "";

    if (!key->is_swarm_key) {
        struct identity identity;

        identity_from_seed(key->seed, &identity);
        peer_id_format(identity_peer_id(identity.public_key), id);
        identity_wipe(&identity);
    }
    if (options_flag(options, "json")) {
        struct json *json = json_object_create();

        json_set_text(json, "file", key->path);
        json_set_text(json, "peer", key->is_swarm_key ? NULL : id);
        command_print_json(json);
    } else if (key->is_swarm_key) {
        printf("%s\n", key->path);
    } else {
        printf("%s %s\n", key->path, id);
    }
}

int command_keygen(struct options *options)
{
    struct new_key key = {.is_swarm_key = options_flag(options, "swarm-key")};
    struct fault why = {""};
    enum rc rc;

    key.path = options_text(options, "out");
    if (key.path == NULL) key.path = key.is_swarm_key ? "swarm.key" : "identity.key";
    rc = write_key(&key, &why);
    if (rc == RC_OK) report(options, &key);
    explicit_bzero(&key, sizeof(key));
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

/*
 * command_keygen: makes a peer's identity, a swarm's key, or what a swarm's owner signs:
 * certificates and deny lists. Entropy is the system's, through the env; secrets are wiped from
 * memory afterwards.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "gossip/door/admission.h"
#include "peer/env/env.h"
#include "peer/files/keys.h"

#include <string.h>

enum { KEY_FILE_MODE = 0600, SIGNED_FILE_MODE = 0644, SECONDS_PER_DAY = 24 * 60 * 60 };

/* What is made, and what there is to say of it. */
struct product {
    const char *path;                                   /* NULL: nothing is made */
    char id[PEER_ID_TEXT], public_key[PUBLIC_KEY_TEXT]; /* "": it has none */
    uint64_t serial;                                    /* 0: likewise */
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

static enum rc write_new(const char *path, const char *text, unsigned mode, struct fault *why)
{
    struct piece piece = {text, strlen(text)};

    if (file_is_there(path)) {
        return fault_set(why, RC_IO,
                         "cannot write %s: the file is there already; remove it or "
                         "choose another --out",
                         path);
    }
    return file_replace(path, &piece, 1, mode, why);
}

static void describe(const struct identity *identity, struct product *product)
{
    peer_id_format(identity_peer_id(identity->public_key), product->id);
    public_key_format(identity->public_key, product->public_key);
}

static enum rc make_key(bool is_swarm_key, struct product *product, struct fault *why)
{
    uint8_t seed[SECRET_BYTES];
    char text[KEY_TEXT_MAX] = "";
    struct identity identity;
    enum rc rc = draw_seed(seed, why);

    if (rc == RC_OK && is_swarm_key) swarm_key_format(seed, text, sizeof text);
    if (rc == RC_OK && !is_swarm_key) {
        identity_format(seed, text, sizeof text);
        identity_from_seed(seed, &identity);
        describe(&identity, product);
        mem_wipe(&identity, sizeof identity);
    }
    if (rc == RC_OK) rc = write_new(product->path, text, KEY_FILE_MODE, why);
    mem_wipe(seed, sizeof seed);
    mem_wipe(text, sizeof text);
    return rc;
}

/* An identity that must be there already; keys_identity() would make one. */
static enum rc read_identity(const char *flag, const char *path, struct identity *identity,
                             struct fault *why)
{
    if (path == NULL) {
        return fault_set(why, RC_USAGE, "%s FILE is missing: the owner's identity", flag);
    }
    if (!file_is_there(path)) {
        return fault_set(why, RC_USAGE, "%s %s: there is no such file", flag, path);
    }
    return keys_identity(NULL, path, identity, why);
}

static enum rc make_certificate(const struct options *options, const struct identity *owner,
                                struct digest run_id, struct product *product, struct fault *why)
{
    const char *key = options_text(options, "certificate");
    uint64_t now_s = uv_wall_s();
    struct certificate certificate = {
        .role = strcmp(options_text(options, "role"), "peer") == 0 ? HELLO_PEER : HELLO_OBSERVER,
        .not_before_s = now_s,
        .not_after_s = now_s + options_count(options, "days") * SECONDS_PER_DAY,
        .serial = product->serial};
    char text[CERTIFICATE_TEXT_MAX];

    if (strlen(key) != PUBLIC_KEY_TEXT - 1 ||
        !public_key_parse(key, strlen(key), certificate.public_key)) {
        return fault_set(why, RC_USAGE,
                         "--certificate %.80s: not a public key, which is 64 hexadecimal digits "
                         "('grapevine keygen --show FILE' prints it)",
                         key);
    }
    certificate_sign(&certificate, owner, run_id);
    certificate_format(&certificate, text);
    return write_new(product->path, text, SIGNED_FILE_MODE, why);
}

static enum rc make_deny(const struct options *options, const struct identity *owner,
                         struct digest run_id, struct product *product, struct fault *why)
{
    const char *path = options_text(options, "deny");
    struct deny_list deny = {.serial = 0};
    struct fault parse = {""};
    char *text;
    void *keys = NULL;
    size_t bytes = 0;
    enum rc rc = file_read(path, LIST_BYTES_MAX, &keys, &bytes, why);

    if (rc != RC_OK) return rc;
    rc = deny_make(keys, bytes, product->serial, owner, run_id, &deny, &parse);
    mem_free(keys);
    if (rc != RC_OK) return fault_set(why, rc, "--deny %s: %s", path, parse.text);
    text = deny_format(&deny);
    rc = text == NULL ? fault_set(why, RC_NOMEM, "out of memory")
                      : write_new(product->path, text, SIGNED_FILE_MODE, why);
    mem_free(text);
    deny_list_deinit(&deny);
    return rc;
}

static enum rc make_signed(const struct options *options, struct product *product,
                           struct fault *why)
{
    struct swarm_secret swarm;
    struct identity owner;
    enum rc rc = read_identity("--sign-with", options_text(options, "sign-with"), &owner, why);

    if (rc != RC_OK) return rc;
    swarm_secret_derive(options_text(options, "swarm-name"), NULL, &swarm); /* for its run id */
    product->serial =
        options_is_set(options, "serial") ? options_count(options, "serial") : uv_wall_s();
    rc = options_text(options, "certificate") != NULL
             ? make_certificate(options, &owner, swarm.run_id, product, why)
             : make_deny(options, &owner, swarm.run_id, product, why);
    mem_wipe(&owner, sizeof owner);
    mem_wipe(&swarm, sizeof swarm);
    return rc;
}

static enum rc show(const struct options *options, struct product *product, struct fault *why)
{
    struct identity identity;
    enum rc rc = read_identity("--show", options_text(options, "show"), &identity, why);

    if (rc != RC_OK) return rc;
    describe(&identity, product);
    mem_wipe(&identity, sizeof identity);
    return RC_OK;
}

static void report(const struct options *options, const struct product *product)
{
    bool has_key = product->public_key[0] != '\0';

    if (options_flag(options, "json")) {
        struct json *json = json_object_create();

        json_set_text(json, "file", product->path);
        json_set_text(json, "peer", has_key ? product->id : NULL);
        json_set_text(json, "public_key", has_key ? product->public_key : NULL);
        if (product->serial > 0) json_set_count(json, "serial", product->serial);
        command_print_json(json);
        return;
    }
    if (product->path != NULL) printf("%s%s", product->path, has_key ? " " : "\n");
    if (has_key) printf("%s\npublic key %s\n", product->id, product->public_key);
}

int command_keygen(struct options *options)
{
    bool is_swarm_key = options_flag(options, "swarm-key");
    bool is_certificate = options_text(options, "certificate") != NULL;
    bool is_deny = options_text(options, "deny") != NULL;
    bool is_shown = options_text(options, "show") != NULL;
    struct product product = {.path = options_text(options, "out")};
    struct fault why = {""};
    enum rc rc = secure_start();

    if (rc != RC_OK) fault_set(&why, rc, "keygen: libsodium does not start; reinstall it");
    if (rc == RC_OK && is_swarm_key + is_certificate + is_deny + is_shown > 1) {
        rc = fault_set(&why, RC_USAGE,
                       "--swarm-key, --certificate, --deny and --show: one of them at a time");
    }
    if (product.path == NULL) {
        product.path = is_swarm_key     ? "swarm.key"
                       : is_certificate ? "member.cert"
                       : is_deny        ? "deny.list"
                                        : "identity.key";
    }
    if (is_shown) product.path = NULL;
    if (rc == RC_OK) {
        rc = is_shown                    ? show(options, &product, &why)
             : is_certificate || is_deny ? make_signed(options, &product, &why)
                                         : make_key(is_swarm_key, &product, &why);
    }
    if (rc == RC_OK) report(options, &product);
    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

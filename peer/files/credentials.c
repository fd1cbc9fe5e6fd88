/* See credentials.h. */
#include "peer/files/credentials.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>

#define DENY_FILE "deny.list"

enum { CERTIFICATE_FILE_BYTES_MAX = 4096 };

static enum rc read_text(const char *flag, const char *path, size_t bytes_max, void **text,
                         size_t *bytes, struct fault *why)
{
    struct fault cause = {""};
    enum rc rc = file_read(path, bytes_max, text, bytes, &cause);

    return rc == RC_OK ? rc : fault_set(why, rc, "%s: %s", flag, cause.text);
}

static enum rc read_allow(const struct credentials *credentials, struct key_list *list,
                          struct fault *why)
{
    const char *path = credentials->options.allow;
    struct fault parse = {""};
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc = read_text("--allow", path, LIST_BYTES_MAX, &text, &bytes, why);

    if (rc != RC_OK) return rc;
    rc = allow_parse(text, bytes, list, &parse);
    if (rc != RC_OK) fault_set(why, rc, "--allow %s: %s", path, parse.text);
    mem_free(text);
    return rc;
}

/* Take the list in `text` into force; `name` is its file's. */
static enum rc take_deny(struct credentials *credentials, const char *name, const char *text,
                         size_t bytes, struct fault *why)
{
    struct admission *admission = &credentials->admission;
    struct deny_list deny;
    struct fault parse = {""};
    enum rc rc = deny_parse(text, bytes, admission->authority, admission->run_id, &deny, &parse);

    if (rc == RC_OK) rc = admission_take_deny(admission, &deny, &parse);
    return rc == RC_OK ? rc : fault_set(why, rc, "--deny %s: %s", name, parse.text);
}

/* What an earlier run kept. A damaged one is an error: it may have been damaged on purpose. */
static enum rc read_kept_deny(struct credentials *credentials, struct fault *why)
{
    struct env *env = credentials->options.env;
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc = env->ops->store_get(env, DENY_FILE, LIST_BYTES_MAX, &text, &bytes, why);

    if (rc == RC_NOT_FOUND || rc == RC_UNSUPPORTED) return RC_OK;
    if (rc == RC_OK) rc = take_deny(credentials, DENY_FILE " in --out", text, bytes, why);
    mem_free(text);
    return rc;
}

static enum rc keep_deny(const struct credentials *credentials, struct fault *why)
{
    struct env *env = credentials->options.env;
    char *text = deny_format(&credentials->admission.deny);
    struct piece piece;
    enum rc rc;

    if (text == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    piece = (struct piece){text, strlen(text)};
    rc = env->ops->store_put(env, DENY_FILE, &piece, 1, why);
    mem_free(text);
    return rc == RC_UNSUPPORTED ? RC_OK : rc;
}

/* The file of --deny; at the start an older one than was kept is fine, and not used. */
static enum rc read_deny(struct credentials *credentials, bool is_start, struct fault *why)
{
    const char *path = credentials->options.deny;
    uint64_t before = credentials->admission.deny.serial;
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc = read_text("--deny", path, LIST_BYTES_MAX, &text, &bytes, why);

    if (rc != RC_OK) return rc;
    rc = take_deny(credentials, path, text, bytes, why);
    mem_free(text);
    if (rc == RC_STALE && is_start) {
        log_warn(credentials->options.log, "%s; the newer list of --out stays in force", why->text);
        return RC_OK;
    }
    if (rc != RC_OK || credentials->admission.deny.serial == before) return rc;
    return keep_deny(credentials, why);
}

static enum rc read_certificate(struct credentials *credentials, uint64_t wall_s, struct fault *why)
{
    const struct credentials_options *options = &credentials->options;
    struct certificate certificate;
    struct fault parse = {""};
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc = read_text("--certificate", options->certificate, CERTIFICATE_FILE_BYTES_MAX, &text,
                           &bytes, why);

    if (rc != RC_OK) return rc;
    rc = certificate_parse(text, bytes, &certificate, &parse);
    mem_free(text);
    if (rc == RC_OK &&
        memcmp(certificate.public_key, options->identity->public_key, PUBLIC_KEY_BYTES) != 0) {
        rc = fault_set(&parse, RC_USAGE, "it is for another key than this peer's --identity");
    }
    if (rc == RC_OK && options->authority != NULL &&
        !certificate_verify(&certificate, credentials->admission.authority, options->run_id)) {
        rc = fault_set(&parse, RC_USAGE,
                       "not signed by the key of --authority for this --swarm-name");
    }
    if (rc == RC_OK) rc = certificate_check_time(&certificate, wall_s, &parse);
    if (rc != RC_OK) {
        return fault_set(why, rc, "--certificate %s: %s", options->certificate, parse.text);
    }
    certificate_encode(&certificate, credentials->certificate);
    credentials->certificate_bytes = sizeof credentials->certificate;
    return RC_OK;
}

static enum rc take_authority(struct credentials *credentials, struct fault *why)
{
    const struct credentials_options *options = &credentials->options;
    struct admission *admission = &credentials->admission;

    if (options->authority == NULL) {
        if (options->deny == NULL) return RC_OK;
        return fault_set(why, RC_USAGE, "--deny needs --authority, whose key signed the list");
    }
    if (strlen(options->authority) != PUBLIC_KEY_TEXT - 1 ||
        !public_key_parse(options->authority, PUBLIC_KEY_TEXT - 1, admission->authority)) {
        return fault_set(why, RC_USAGE,
                         "--authority %.80s: not a public key, which is 64 hexadecimal digits "
                         "('grapevine keygen --show FILE' prints it)",
                         options->authority);
    }
    if (options->certificate == NULL && options->deny == NULL) {
        return fault_set(why, RC_USAGE,
                         "--authority alone does nothing: pass --certificate FILE too, so "
                         "that every member needs one, or --deny FILE");
    }
    admission->has_authority = options->certificate != NULL;
    return RC_OK;
}

enum rc credentials_init(struct credentials *credentials, const struct credentials_options *options,
                         uint64_t wall_s, struct fault *why)
{
    struct admission *admission = &credentials->admission;
    enum rc rc;

    *credentials = (struct credentials){.options = *options};
    admission->run_id = options->run_id;
    rc = take_authority(credentials, why);
    if (rc == RC_OK && options->certificate != NULL)
        rc = read_certificate(credentials, wall_s, why);
    if (rc == RC_OK && options->allow != NULL) {
        rc = read_allow(credentials, &admission->allow, why);
        admission->has_allow = rc == RC_OK;
    }
    if (rc == RC_OK && options->authority != NULL) rc = read_kept_deny(credentials, why);
    if (rc == RC_OK && options->deny != NULL) rc = read_deny(credentials, true, why);
    return rc;
}

enum rc credentials_show(const struct credentials_options *options, uint64_t wall_s,
                         struct hello *hello, struct fault *why)
{
    struct credentials credentials = {.options = *options};
    enum rc rc = take_authority(&credentials, why);

    if (rc != RC_OK || options->certificate == NULL) return rc;
    rc = read_certificate(&credentials, wall_s, why);
    if (rc != RC_OK) return rc;
    hello->certificate_bytes = (uint32_t)credentials.certificate_bytes;
    memcpy(hello->certificate, credentials.certificate, credentials.certificate_bytes);
    return RC_OK;
}

void credentials_deinit(struct credentials *credentials)
{
    admission_deinit(&credentials->admission);
}

void credentials_reload(struct credentials *credentials)
{
    const struct log *log = credentials->options.log;
    struct admission *admission = &credentials->admission;
    struct key_list allow;
    struct fault why = {""};

    if (credentials->options.allow != NULL) {
        if (read_allow(credentials, &allow, &why) == RC_OK) {
            key_list_deinit(&admission->allow);
            admission->allow = allow;
            log_info(log, "read again: %zu keys in --allow", allow.count);
        } else {
            log_error(log, "%s; the list in force stays", why.text);
        }
    }
    if (credentials->options.deny != NULL) {
        if (read_deny(credentials, false, &why) == RC_OK) {
            log_info(log, "read again: %zu keys in --deny, serial %llu", admission->deny.keys.count,
                     (unsigned long long)admission->deny.serial);
        } else {
            log_error(log, "%s; the list in force stays", why.text);
        }
    }
}

/* See admission.h. What is parsed is complete before anything of it is used. */
#include "gossip/door/admission.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char deny_word[] = "grapevine-deny-1";
static const char deny_label[] = "deny/1";

void key_list_deinit(struct key_list *list)
{
    mem_free(list->keys);
    *list = (struct key_list){.keys = NULL};
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, PUBLIC_KEY_BYTES);
}

bool key_list_has(const struct key_list *list, const uint8_t key[PUBLIC_KEY_BYTES])
{
    if (list->count == 0) return false;
    return bsearch(key, list->keys, list->count, PUBLIC_KEY_BYTES, compare_keys) != NULL;
}

static void key_list_sort(struct key_list *list)
{
    size_t kept = 0;

    if (list->count == 0) return;
    qsort(list->keys, list->count, PUBLIC_KEY_BYTES, compare_keys);
    for (size_t i = 1; i < list->count; i++) {
        if (memcmp(list->keys[kept], list->keys[i], PUBLIC_KEY_BYTES) == 0) continue;
        kept++;
        memmove(list->keys[kept], list->keys[i], PUBLIC_KEY_BYTES);
    }
    list->count = kept + 1;
}

/* ---- lines ---- */

struct lines {
    const char *at;
    size_t left;
    uint32_t number; /* of the line taken last, from 1 */
};

/* The next line, without its end and the blanks at both of its ends. */
static bool next_line(struct lines *lines, const char **from, size_t *count)
{
    const char *end;

    if (lines->left == 0) return false;
    end = memchr(lines->at, '\n', lines->left);
    *from = lines->at;
    *count = end == NULL ? lines->left : (size_t)(end - lines->at);
    lines->at += *count + (end != NULL);
    lines->left -= *count + (end != NULL);
    lines->number++;
    while (*count > 0 && ((*from)[*count - 1] == ' ' || (*from)[*count - 1] == '\t' ||
                          (*from)[*count - 1] == '\r')) {
        (*count)--;
    }
    while (*count > 0 && (**from == ' ' || **from == '\t')) {
        (*from)++;
        (*count)--;
    }
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '#';
}

static enum rc take_key(const struct lines *lines, const char *from, size_t count,
                        struct key_list *list, size_t max, struct fault *why)
{
    if (list->count == max) {
        return fault_set(why, RC_LIMIT, "line %u: more than %zu keys", lines->number, max);
    }
    if (!public_key_parse(from, count, list->keys[list->count]) ||
        (count > PUBLIC_KEY_TEXT - 1 && !is_blank(from[PUBLIC_KEY_TEXT - 1]))) {
        return fault_set(why, RC_PARSE,
                         "line %u: does not begin with a public key, which is 64 hexadecimal "
                         "digits ('grapevine keygen' prints it)",
                         lines->number);
    }
    list->count++;
    return RC_OK;
}

/* Room for as many keys as `bytes` can hold. */
static enum rc list_init(struct key_list *list, size_t bytes, size_t max, struct fault *why)
{
    size_t count = bytes / (PUBLIC_KEY_TEXT - 1) + 1;

    *list = (struct key_list){.keys = NULL};
    if (bytes > LIST_BYTES_MAX) {
        return fault_set(why, RC_LIMIT, "longer than %d bytes", LIST_BYTES_MAX);
    }
    list->keys = mem_array(count < max ? count : max, sizeof *list->keys);
    return list->keys != NULL ? RC_OK : fault_set(why, RC_NOMEM, "out of memory");
}

static enum rc keys_parse(const char *text, size_t bytes, size_t max, struct key_list *list,
                          struct fault *why)
{
    struct lines lines = {text, bytes, 0};
    struct key_list parsed;
    const char *from;
    size_t count;
    enum rc rc = list_init(&parsed, bytes, max, why);

    while (rc == RC_OK && next_line(&lines, &from, &count)) {
        if (count > 0 && from[0] != '#') rc = take_key(&lines, from, count, &parsed, max, why);
    }
    if (rc != RC_OK) {
        key_list_deinit(&parsed);
        return rc;
    }
    key_list_sort(&parsed);
    *list = parsed;
    return RC_OK;
}

enum rc allow_parse(const char *text, size_t bytes, struct key_list *list, struct fault *why)
{
    struct key_list parsed;
    enum rc rc = keys_parse(text, bytes, ALLOW_KEYS_MAX, &parsed, why);

    if (rc != RC_OK) return rc;
    if (parsed.count == 0) {
        key_list_deinit(&parsed);
        return fault_set(why, RC_PARSE,
                         "there is no key in it, so nobody could join; write one a line");
    }
    *list = parsed;
    return RC_OK;
}

/* ---- the deny list ---- */

void deny_list_deinit(struct deny_list *deny)
{
    key_list_deinit(&deny->keys);
    deny->serial = 0;
}

/* What is signed in the place of the run id: a hash of it, serial and sorted keys, for the list may
 * be longer than a signed text. */
static struct digest deny_digest(const struct deny_list *deny, struct digest run_id)
{
    struct hash hash;
    uint8_t serial[8];

    store_le64(serial, deny->serial);
    hash_init(&hash);
    hash_update(&hash, run_id.bytes, sizeof run_id.bytes);
    hash_update(&hash, serial, sizeof serial);
    if (deny->keys.count > 0) {
        hash_update(&hash, deny->keys.keys, deny->keys.count * PUBLIC_KEY_BYTES);
    }
    return hash_final(&hash);
}

enum rc deny_make(const char *text, size_t bytes, uint64_t serial, const struct identity *authority,
                  struct digest run_id, struct deny_list *deny, struct fault *why)
{
    struct deny_list made = {.serial = serial};
    struct digest digest;
    enum rc rc = keys_parse(text, bytes, DENY_KEYS_MAX, &made.keys, why);

    CHECK(serial > 0);
    if (rc != RC_OK) return rc;
    digest = deny_digest(&made, run_id);
    identity_sign(authority, deny_label, digest, "", 0, made.signature);
    *deny = made;
    return RC_OK;
}

static bool begins_with(const char *from, size_t count, const char *word)
{
    return count >= strlen(word) && memcmp(from, word, strlen(word)) == 0;
}

static bool take_serial(const char *from, size_t count, uint64_t *serial)
{
    static const char word[] = "serial ";
    size_t at = sizeof word - 1;

    *serial = 0;
    if (!begins_with(from, count, word) || count == at || from[at] == '0') return false;
    for (; at < count; at++) {
        uint64_t digit = (uint64_t)(from[at] - '0');

        if (from[at] < '0' || from[at] > '9' || *serial > (UINT64_MAX - digit) / 10) return false;
        *serial = *serial * 10 + digit;
    }
    return true;
}

static enum rc deny_lines(struct lines *lines, struct deny_list *deny, struct fault *why)
{
    static const char word[] = "signature ";
    const char *from = "";
    size_t count = 0;
    enum rc rc = RC_OK;

    if (!next_line(lines, &from, &count) || count != strlen(deny_word) ||
        memcmp(from, deny_word, count) != 0) {
        return fault_set(why, RC_PARSE,
                         "not a deny list: it does not begin with the line \"%s\"; make one with "
                         "'grapevine keygen --deny'",
                         deny_word);
    }
    if (!next_line(lines, &from, &count) || !take_serial(from, count, &deny->serial)) {
        return fault_set(why, RC_PARSE, "line 2: not \"serial N\" with a number above 0");
    }
    while (next_line(lines, &from, &count)) {
        if (begins_with(from, count, word)) {
            if (!signature_parse(from + strlen(word), count - strlen(word), deny->signature) ||
                lines->left > 0) {
                break;
            }
            return RC_OK;
        }
        rc = take_key(lines, from, count, &deny->keys, DENY_KEYS_MAX, why);
        if (rc != RC_OK) return rc;
    }
    return fault_set(why, RC_PARSE, "it does not end with a line \"signature\": copy it again");
}

enum rc deny_parse(const char *text, size_t bytes, const uint8_t authority[PUBLIC_KEY_BYTES],
                   struct digest run_id, struct deny_list *deny, struct fault *why)
{
    struct lines lines = {text, bytes, 0};
    struct deny_list parsed = {.serial = 0};
    struct digest digest;
    enum rc rc = list_init(&parsed.keys, bytes, DENY_KEYS_MAX, why);

    if (rc == RC_OK) rc = deny_lines(&lines, &parsed, why);
    if (rc == RC_OK) {
        key_list_sort(&parsed.keys);
        digest = deny_digest(&parsed, run_id);
        if (!identity_verify(authority, deny_label, digest, "", 0, parsed.signature)) {
            rc = fault_set(why, RC_AUTH,
                           "not signed by the key of --authority for this --swarm-name");
        }
    }
    if (rc != RC_OK) {
        deny_list_deinit(&parsed);
        return rc;
    }
    *deny = parsed;
    return RC_OK;
}

char *deny_format(const struct deny_list *deny)
{
    size_t cap = strlen(deny_word) + 64 + SIGNATURE_TEXT + deny->keys.count * PUBLIC_KEY_TEXT;
    char signature[SIGNATURE_TEXT], *text = mem_array(cap, 1), *at = text;

    if (text == NULL) return NULL;
    signature_format(deny->signature, signature);
    at += snprintf(at, cap, "%s\nserial %llu\n", deny_word, (unsigned long long)deny->serial);
    for (size_t i = 0; i < deny->keys.count; i++) {
        public_key_format(deny->keys.keys[i], at);
        at += PUBLIC_KEY_TEXT;
        at[-1] = '\n';
    }
    (void)snprintf(at, cap - (size_t)(at - text), "signature %s\n", signature);
    return text;
}

/* ---- judging ---- */

void admission_deinit(struct admission *admission)
{
    key_list_deinit(&admission->allow);
    deny_list_deinit(&admission->deny);
}

static enum rc check_certificate(const struct admission *admission, const struct hello *hello,
                                 uint64_t wall_s, struct fault *why)
{
    struct certificate certificate;

    if (hello->certificate_bytes == 0) {
        return fault_set(why, RC_REFUSED,
                         "this swarm's members need a --certificate, which its owner makes with "
                         "'grapevine keygen --certificate'");
    }
    if (certificate_decode(hello->certificate, hello->certificate_bytes, hello->public_key,
                           &certificate) != RC_OK) {
        return fault_set(why, RC_REFUSED, "the certificate has a form that is not known here");
    }
    if (!certificate_verify(&certificate, admission->authority, admission->run_id)) {
        return fault_set(why, RC_REFUSED,
                         "the certificate is for another key or --swarm-name, or not signed by "
                         "this swarm's owner");
    }
    if (certificate.role == HELLO_OBSERVER && hello->role != HELLO_OBSERVER) {
        return fault_set(why, RC_REFUSED, "the certificate is for an observer only");
    }
    return certificate_check_time(&certificate, wall_s, why);
}

enum rc admission_check(const struct admission *admission, const struct hello *hello,
                        uint64_t wall_s, struct fault *why)
{
    char key[PUBLIC_KEY_TEXT];

    public_key_format(hello->public_key, key);
    if (admission->deny.serial > 0 && key_list_has(&admission->deny.keys, hello->public_key)) {
        return fault_set(why, RC_REFUSED, "the key %s is on the swarm's deny list", key);
    }
    if (admission->has_allow && !key_list_has(&admission->allow, hello->public_key)) {
        return fault_set(why, RC_REFUSED, "the key %s is not on the --allow list", key);
    }
    if (!admission->has_authority) return RC_OK;
    return check_certificate(admission, hello, wall_s, why);
}

static bool is_same_list(const struct deny_list *a, const struct deny_list *b)
{
    return a->keys.count == b->keys.count &&
           (a->keys.count == 0 ||
            memcmp(a->keys.keys, b->keys.keys, a->keys.count * PUBLIC_KEY_BYTES) == 0);
}

enum rc admission_take_deny(struct admission *admission, struct deny_list *next, struct fault *why)
{
    struct deny_list *deny = &admission->deny;
    uint64_t serial = next->serial;

    CHECK(serial > 0);
    if (serial > deny->serial) {
        deny_list_deinit(deny);
        *deny = *next;
        *next = (struct deny_list){.serial = 0};
        return RC_OK;
    }
    if (serial == deny->serial && is_same_list(deny, next)) {
        deny_list_deinit(next);
        return RC_OK;
    }
    deny_list_deinit(next);
    return fault_set(why, RC_STALE,
                     "its serial is %llu and that of the list in force is %llu: a new list needs a "
                     "higher one",
                     (unsigned long long)serial, (unsigned long long)deny->serial);
}

/* address_book: JSON in and out; whoever can write the file gets at most some dials in vain. */
#include "peer/files/address_book.h"

#include "base/json.h"
#include "base/mem.h"
#include "gossip/wire/address.h"

#include <string.h>

enum { FILE_BYTES_MAX = 64 * 1024 };

#define INCARNATION_MAX (UINT64_C(1) << 62)

static bool add(char (*list)[ADDRESS_BYTES_MAX], size_t *count, size_t max, const char *address)
{
    if (*count == max || !address_is_valid(address)) return false;
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(list[i], address) == 0) return false;
    }
    memset(list[*count], 0, ADDRESS_BYTES_MAX);
    memcpy(list[(*count)++], address, strlen(address));
    return true;
}

bool address_book_add(struct address_book *book, const char *address)
{
    return add(book->addresses, &book->count, ADDRESS_BOOK_MAX, address);
}

bool address_book_add_anchor(struct address_book *book, const char *address)
{
    return add(book->anchors, &book->anchors_count, ADDRESS_BOOK_ANCHORS_MAX, address);
}

/* A list of addresses, or none at all. */
static enum rc read_list(const struct json *json, const char *key, struct address_book *book,
                         bool (*take)(struct address_book *, const char *), size_t max,
                         struct fault *why)
{
    const struct json *list = json_get(json, key);
    size_t count;

    if (list == NULL) return RC_OK;
    if (!json_is_an_array(list)) return fault_set(why, RC_PARSE, "'%s' is no list", key);
    count = json_count(list);
    if (count > max) return fault_set(why, RC_LIMIT, "more than %zu %s", max, key);
    for (size_t i = 0; i < count; i++) {
        const char *address = json_text_of(json_at(list, i));

        if (address == NULL || !address_is_valid(address)) {
            return fault_set(why, RC_PARSE, "entry %zu of '%s' is not HOST:PORT", i + 1, key);
        }
        (void)take(book, address); /* twice the same is once */
    }
    return RC_OK;
}

enum rc address_book_parse(const char *text, size_t bytes, struct address_book *book,
                           struct fault *why)
{
    struct address_book parsed = {.incarnation = 0};
    struct json *json = NULL;
    enum rc rc;

    if (bytes > FILE_BYTES_MAX) return fault_set(why, RC_LIMIT, "it is too large");
    rc = json_parse(text, bytes, &json, why);
    if (rc != RC_OK) return rc;
    if (!json_is_an_object(json)) {
        rc = fault_set(why, RC_PARSE, "it is no object");
    } else if (!json_get_count(json, "incarnation", &parsed.incarnation) ||
               parsed.incarnation > INCARNATION_MAX) {
        rc = fault_set(why, RC_PARSE, "'incarnation' is missing or out of range");
    }
    if (rc == RC_OK) {
        rc = read_list(json, "anchors", &parsed, address_book_add_anchor, ADDRESS_BOOK_ANCHORS_MAX,
                       why);
    }
    if (rc == RC_OK) {
        rc = read_list(json, "addresses", &parsed, address_book_add, ADDRESS_BOOK_MAX, why);
    }
    json_destroy(json);
    if (rc == RC_OK) *book = parsed;
    return rc;
}

char *address_book_format(const struct address_book *book)
{
    struct json *json = json_object_create();
    struct json *addresses = json_array_create(), *anchors = json_array_create();
    char *text;

    for (size_t i = 0; i < book->count; i++) {
        json_append_text(addresses, book->addresses[i]);
    }
    for (size_t i = 0; i < book->anchors_count; i++) {
        json_append_text(anchors, book->anchors[i]);
    }
    json_set_count(json, "incarnation", book->incarnation);
    json_set(json, "anchors", anchors);
    json_set(json, "addresses", addresses);
    text = json_format_pretty(json);
    json_destroy(json);
    return text;
}

enum rc address_book_load(struct env *env, const struct log *log, struct address_book *book,
                          struct fault *why)
{
    void *text = NULL;
    size_t bytes = 0;
    enum rc rc;

    memset(book, 0, sizeof *book);
    rc = env->ops->store_get(env, ADDRESS_BOOK_FILE, FILE_BYTES_MAX, &text, &bytes, why);
    if (rc == RC_NOT_FOUND) return RC_OK;
    if (rc == RC_OK) {
        rc = address_book_parse(text, bytes, book, why);
        mem_free(text);
    }
    if (rc == RC_OK || rc == RC_IO || rc == RC_NOMEM || rc == RC_UNSUPPORTED) return rc;
    log_warn(log,
             "%s in --out is damaged (%s) and is left out: the swarm can only be found by "
             "--bootstrap",
             ADDRESS_BOOK_FILE, why == NULL ? rc_text(rc) : why->text);
    return RC_OK;
}

enum rc address_book_store(struct env *env, const struct address_book *book, struct fault *why)
{
    char *text = address_book_format(book);
    struct piece piece;
    enum rc rc;

    if (text == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    piece = (struct piece){text, strlen(text)};
    rc = env->ops->store_put(env, ADDRESS_BOOK_FILE, &piece, 1, why);
    mem_free(text);
    return rc;
}

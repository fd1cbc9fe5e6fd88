/* bootstrap: splits and checks; no name is looked up here. */
#include "peer/session/bootstrap.h"

#include "base/file.h"
#include "base/mem.h"
#include "gossip/wire/address.h"

#include <string.h>

enum { BOOTSTRAP_FILE_BYTES_MAX = 64 * 1024 };

static enum rc add(struct bootstrap *bootstrap, const char *from, size_t count, struct fault *why)
{
    char *address = bootstrap->addresses[bootstrap->count];
    struct address parsed;

    if (bootstrap->count == BOOTSTRAP_MAX)
        return fault_set(why, RC_USAGE, "--bootstrap: more than %d addresses; a few are enough",
                         BOOTSTRAP_MAX);
    if (count == 0)
        return fault_set(why, RC_USAGE,
                         "--bootstrap: an address is empty; write HOST:PORT with "
                         "commas between");
    if (count >= ADDRESS_BYTES_MAX)
        return fault_set(why, RC_USAGE,
                         "--bootstrap %.*s...: longer than %d bytes; use a shorter "
                         "name or its number",
                         40, from, ADDRESS_BYTES_MAX - 1);
    memcpy(address, from, count);
    address[count] = '\0';
    if (address_parse(address, &parsed) != RC_OK || parsed.port == 0)
        return fault_set(why, RC_USAGE,
                         "--bootstrap %s: not HOST:PORT; write it like "
                         "192.0.2.7:7077",
                         address);
    bootstrap->count++;
    return RC_OK;
}

static enum rc parse_list(const char *text, struct bootstrap *bootstrap, struct fault *why)
{
    for (;;) {
        size_t count = strcspn(text, ",");
        enum rc rc = add(bootstrap, text, count, why);

        if (rc != RC_OK || text[count] == '\0') return rc;
        text += count + 1;
    }
}

static enum rc parse_lines(const char *text, struct bootstrap *bootstrap, struct fault *why)
{
    while (*text != '\0') {
        size_t count = strcspn(text, "\r\n");
        enum rc rc = RC_OK;

        while (count > 0 && (text[0] == ' ' || text[0] == '\t')) {
            text++;
            count--;
        }
        if (count > 0 && text[0] != '#') {
            size_t used = count;

            while (text[used - 1] == ' ' || text[used - 1] == '\t')
                used--;
            rc = add(bootstrap, text, used, why);
        }
        if (rc != RC_OK) return rc;
        text += count;
        text += strspn(text, "\r\n");
    }
    return RC_OK;
}

static enum rc parse_file(const char *path, struct bootstrap *bootstrap, struct fault *why)
{
    void *text = NULL;
    size_t bytes;
    enum rc rc = file_read(path, BOOTSTRAP_FILE_BYTES_MAX, &text, &bytes, why);

    if (rc == RC_OK) rc = parse_lines(text, bootstrap, why);
    if (rc == RC_OK && bootstrap->count == 0)
        rc = fault_set(why, RC_USAGE,
                       "--bootstrap @%s: there is no address in it; write one a "
                       "line, HOST:PORT",
                       path);
    mem_free(text);
    return rc == RC_OK || rc == RC_NOMEM ? rc : RC_USAGE;
}

enum rc bootstrap_parse(const char *spec, struct bootstrap *bootstrap, struct fault *why)
{
    struct bootstrap parsed = {.count = 0};
    enum rc rc = RC_OK;

    if (spec != NULL && spec[0] == '@')
        rc = parse_file(spec + 1, &parsed, why);
    else if (spec != NULL)
        rc = parse_list(spec, &parsed, why);
    if (rc == RC_OK) *bootstrap = parsed;
    return rc;
}

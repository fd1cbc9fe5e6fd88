/*
 * fuzz_library: what a program hands over to the library before a member starts: the text of its
 * settings, and bytes that are said to be a state, here behind a hash that fits. Nothing is
 * started: no file, no socket, no thread.
 */
#include "include/grapevine.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

enum { MARK_BYTES = 8 };

static void says_why(const gv_member *member)
{
    const char *why = gv_last_error(member);

    CHECK(why[0] != '\0' && strchr(why, '\n') == NULL);
}

static void fuzz_config(const uint8_t *input, size_t count)
{
    gv_member *member = NULL;
    char *text = mem_alloc(count + 1);

    CHECK(text != NULL);
    memcpy(text, input, count);
    if (gv_open(text, &member) < 0) {
        CHECK(member == NULL);
        says_why(NULL);
    } else {
        CHECK(member != NULL && gv_poll(member) == GV_USAGE); /* not started */
    }
    gv_close(member);
    mem_free(text);
}

static void fuzz_state(const uint8_t *input, size_t count)
{
    uint8_t *state = mem_alloc(MARK_BYTES + DIGEST_BYTES + count);
    const struct digest digest = hash_of(input, count);
    gv_member *member = NULL;

    CHECK(state != NULL && gv_open("averaging = none\n", &member) == 0);
    memcpy(state, "gvstate1", MARK_BYTES);
    memcpy(state + MARK_BYTES, digest.bytes, DIGEST_BYTES);
    memcpy(state + MARK_BYTES + DIGEST_BYTES, input, count);
    if (gv_restore(member, state, MARK_BYTES + DIGEST_BYTES + count) < 0) says_why(member);
    gv_close(member);
    mem_free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    if (bytes[0] == 's') {
        fuzz_state(bytes + 1, count - 1);
    } else {
        fuzz_config(bytes, count);
    }
    return 0;
}

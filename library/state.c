/*
 * The state that a program keeps in a checkpoint of its own: the bytes of the member's checkpoint
 * file (peer/files/checkpoint.h), behind a mark of the form and a hash of all that follows:
 *
 *   0   8   "gvstate1"
 *   8  32   BLAKE2b-256 of the rest
 *  40       the file: safetensors, with the schema's digest and the method's name in its metadata
 *
 * What comes in is hostile: the hash is looked at first, then the file is decoded, and whether it
 * is of this model and method is seen by gv_start(), before any value reaches the program.
 */
#include "library/member.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>
#include <unistd.h>

enum { MARK_BYTES = 8, HEAD_BYTES = MARK_BYTES + DIGEST_BYTES };

static const char mark[MARK_BYTES + 1] = "gvstate1";

/* In the loop's thread. */
void member_on_state(void *context, uint8_t *bytes, size_t count, const struct fault *why)
{
    struct gv_member *member = context;

    CHECK(pthread_mutex_lock(&member->lock) == 0);
    mem_free(member->state);
    member->state = bytes;
    member->state_bytes = count;
    member->state_why = *why;
    CHECK(pthread_mutex_unlock(&member->lock) == 0);
    external_resume(member->session.learner);
}

int gv_ask_state(gv_member *member)
{
    const int error = member_enter(member, "gv_ask_state");
    struct learner *learner;

    if (error != 0) return error;
    learner = member->session.learner;
    if (!external_is_over(learner)) {
        external_pause(learner);
        member_call(member, CALL_STATE);
    }
    return member_event(member, external_next(learner));
}

/* There is one: into `bytes`, if it has room. */
static int give(gv_member *member, uint8_t *bytes, size_t cap, size_t *needed)
{
    struct digest digest;

    if (needed != NULL) *needed = HEAD_BYTES + member->state_bytes;
    if (bytes == NULL || cap < HEAD_BYTES + member->state_bytes) {
        return member_refuse(member, GV_TOO_SMALL, "gv_state", "more bytes are needed");
    }
    digest = hash_of(member->state, member->state_bytes);
    memcpy(bytes, mark, MARK_BYTES);
    memcpy(bytes + MARK_BYTES, digest.bytes, DIGEST_BYTES);
    memcpy(bytes + HEAD_BYTES, member->state, member->state_bytes);
    return 0;
}

int gv_state(gv_member *member, void *state, size_t cap, size_t *needed)
{
    int error = member_enter(member, "gv_state");

    if (error != 0) return error;
    if (external_next(member->session.learner) != EXTERNAL_STATE) {
        return member_refuse(member, GV_USAGE, "gv_state",
                             "it is not due; call gv_ask_state(), and go on until GV_STATE is");
    }
    CHECK(pthread_mutex_lock(&member->lock) == 0);
    if (member->state != NULL) {
        error = give(member, state, cap, needed);
    } else {
        error = member_refuse(member, GV_FAILED, "gv_state", member->state_why.text);
    }
    if (error != GV_TOO_SMALL) {
        mem_free(member->state);
        member->state = NULL;
        external_state_taken(member->session.learner);
    }
    CHECK(pthread_mutex_unlock(&member->lock) == 0);
    return error;
}

/* What is behind the head, decoded. */
static enum rc decode(const uint8_t *state, size_t count, struct tensor_file **file,
                      struct fault *why)
{
    struct digest said;
    void *bytes;
    enum rc rc;

    if (count < HEAD_BYTES || memcmp(state, mark, MARK_BYTES) != 0) {
        return fault_set(why, RC_USAGE,
                         "gv_restore: these bytes are no state of this version of grapevine; give "
                         "what gv_state() gave, whole");
    }
    memcpy(said.bytes, state + MARK_BYTES, DIGEST_BYTES);
    state += HEAD_BYTES;
    count -= HEAD_BYTES;
    if (!digest_is_equal(said, hash_of(state, count))) {
        return fault_set(why, RC_USAGE,
                         "gv_restore: the state is damaged or not whole; take an earlier one, or "
                         "begin without");
    }
    bytes = mem_raw(count);
    if (bytes == NULL) return fault_set(why, RC_NOMEM, "gv_restore: out of memory");
    memcpy(bytes, state, count);
    rc = tensor_file_decode("the state", bytes, count, file, why);
    if (rc == RC_OK) return rc;
    mem_free(bytes);
    return rc == RC_NOMEM ? rc : RC_USAGE;
}

int gv_restore(gv_member *member, const void *state, size_t bytes)
{
    struct tensor_file *file = NULL;
    enum rc rc;

    if (member == NULL) return GV_USAGE;
    if (member->process != getpid()) return GV_FORKED;
    if (member->is_started || state == NULL) {
        return member_refuse(member, GV_USAGE, "gv_restore",
                             member->is_started ? "call it before gv_start()" : "state is NULL");
    }
    rc = decode(state, bytes, &file, &member->why);
    if (rc != RC_OK) return member_error(rc);
    tensor_file_destroy(member->session.given);
    member->session.given = file;
    return 0;
}

/*
 * Where an interval began, shown to one that asks: its state and the numbers of its samples, as
 * bytes, slice by slice, each asked for. One asker at a time, and each byte of a claim once, so
 * whoever asks costs no more memory than one state and no more of the line than that; who is silent
 * makes way.
 */
#include "peer/node/verify/internal.h"

static const enum section shown[] = {SECTION_PARAMETERS, SECTION_MOMENTS, SECTION_BUFFERS};

size_t verify_bytes(const struct schema *schema, uint32_t samples)
{
    size_t values = 0;

    for (size_t i = 0; i < ARRAY_COUNT(shown); i++) {
        values += schema->values[shown[i]];
    }
    return VERIFY_HEAD + samples * sizeof(uint32_t) + values * sizeof(float);
}

bool verify_head(const struct schema *schema, const uint8_t *head, uint64_t total,
                 uint32_t *samples)
{
    const uint64_t count = load_le64(head + (VERIFY_WORDS - 1) * 8);

    if (count > REPEAT_SAMPLES_MAX || total != verify_bytes(schema, (uint32_t)count)) return false;
    *samples = (uint32_t)count;
    return true;
}

void verify_read(const struct schema *schema, uint8_t *bytes, struct repeat_state *state,
                 struct repeat_way *way)
{
    uint8_t *at = bytes + VERIFY_HEAD;

    state->step = load_le64(bytes);
    state->updates = load_le64(bytes + 8);
    state->passes = load_le64(bytes + 16);
    state->stream = load_le64(bytes + 24);
    way->samples = (uint32_t)load_le64(bytes + 32);
    way->numbers = (const uint32_t *)(const void *)at;
    at += way->samples * sizeof(uint32_t);
    for (size_t i = 0; i < ARRAY_COUNT(shown); i++) {
        const size_t count = schema->values[shown[i]];

        state->values[shown[i]] = count;
        if (count > 0) state->planes[shown[i]] = (float *)(void *)at;
        at += count * sizeof(float);
    }
}

void verify_showing_end(struct verify *verify)
{
    mem_free(verify->showing.bytes);
    verify->showing = (struct verify_showing){.is_wanted = false};
}

bool verify_is_showing(const struct verify *verify)
{
    return !verify->showing.is_wanted && verify->showing.bytes != NULL; /* else a job has it */
}

static void answer(struct node *node, struct peer_id to, const struct message_reveal *reveal)
{
    const struct message message = {.type = MESSAGE_REVEAL, .as.reveal = *reveal};

    (void)links_send(node->links, to, &message); /* who is gone asks no more */
}

static void send_slice(struct node *node)
{
    struct verify_showing *showing = &node->verify->showing;
    const size_t left = showing->count - showing->at;
    const size_t count = left < REVEAL_BYTES_MAX ? left : REVEAL_BYTES_MAX;

    answer(node, showing->to,
           &(struct message_reveal){.number = showing->number,
                                    .at = showing->at,
                                    .total = showing->count,
                                    .bytes = showing->bytes + showing->at,
                                    .bytes_bytes = (uint32_t)count});
    showing->at += count;
    showing->until_ns = node_now(node) + VERIFY_SHOW_NS;
    if (showing->at == showing->count) verify_showing_end(node->verify);
}

/* The claim before the last is where the last interval begins. */
static bool has_begin(const struct verify *verify, uint64_t number)
{
    return verify->claims.has_interval && number + 1 == verify->claims.number;
}

void verify_on_reveal_req(struct node *node, struct peer_id from,
                          const struct message_reveal_req *request)
{
    struct verify *verify = node->verify;
    struct verify_showing *showing = &verify->showing;
    struct message_reveal no = {.number = request->number, .at = request->at, .code = REVEAL_GONE};
    const bool is_its = showing->number == request->number && peer_id_is_equal(showing->to, from);
    const bool is_ready = verify_is_showing(verify);

    if (is_its && is_ready && request->at > 0 && request->at == showing->at) {
        send_slice(node);
        return;
    }
    if (request->at > 0 || is_its || !has_begin(verify, request->number)) {
        answer(node, from, &no);
        return;
    }
    if (showing->is_wanted || is_ready) {
        no.code = REVEAL_BUSY;
        answer(node, from, &no);
        return;
    }
    *showing = (struct verify_showing){.is_wanted = true,
                                       .to = from,
                                       .number = request->number,
                                       .until_ns = node_now(node) + VERIFY_SHOW_NS};
}

/* ---- the bytes ---- */

static bool is_due(struct node *node)
{
    return verify_is_on(node) && node->verify->showing.is_wanted;
}

static enum rc write_bytes(struct learner *learner, const struct verify_claims *claims,
                           struct verify_showing *showing)
{
    const struct schema *schema = learner->ops->schema(learner);
    const struct repeat_state *from = &claims->states[1 - claims->last];
    uint32_t *numbers = mem_array(REPEAT_SAMPLES_MAX, sizeof *numbers);
    uint32_t samples = 0;
    uint8_t *to;
    enum rc rc = numbers == NULL ? RC_NOMEM
                                 : repeat_samples(learner, from, &claims->states[claims->last],
                                                  numbers, &samples);

    if (rc == RC_OK) {
        showing->count = verify_bytes(schema, samples);
        showing->bytes = mem_alloc(showing->count);
        if (showing->bytes == NULL) rc = RC_NOMEM;
    }
    if (rc == RC_OK) {
        const uint64_t words[VERIFY_WORDS] = {from->step, from->updates, from->passes, from->stream,
                                              samples};
        to = showing->bytes;
        for (size_t i = 0; i < VERIFY_WORDS; i++, to += 8) {
            store_le64(to, words[i]);
        }
        memcpy(to, numbers, samples * sizeof *numbers);
        to += samples * sizeof *numbers;
        for (size_t i = 0; i < ARRAY_COUNT(shown); i++) {
            const size_t bytes = from->values[shown[i]] * sizeof(float);

            if (bytes > 0) memcpy(to, from->planes[shown[i]], bytes);
            to += bytes;
        }
    }
    mem_free(numbers);
    return rc;
}

static void run(struct border_job *job)
{
    struct verify *verify = job->node->verify;

    job->rc = RC_STALE;
    if (!has_begin(verify, verify->showing.number)) return; /* another snapshot came between */
    job->rc = write_bytes(lane_learner(job->node), &verify->claims, &verify->showing);
}

static void done(struct node *node, struct border_job *job)
{
    struct verify_showing *showing = &node->verify->showing;

    showing->is_wanted = false;
    if (job->rc == RC_OK) {
        send_slice(node);
        return;
    }
    answer(node, showing->to,
           &(struct message_reveal){.number = showing->number, .code = REVEAL_GONE});
    verify_showing_end(node->verify);
}

const struct border_work border_reveal = {
    .name = "reveal", .states = BORDER_TRAINING, .when = is_due, .run = run, .done = done};

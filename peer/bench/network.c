/*
 * Loopback throughput: see network.h. Two envs: the sender's on the calling thread; the
 * receiver's is made and run inside a job of the sender's, which gives it a thread. The receiver
 * takes the time, hangs up when it has enough samples, and its job's end ends the sender. They
 * share only what is fixed before the job starts.
 */
#include "peer/bench/network.h"

#include "base/blob.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "gossip/secure/secure.h"
#include "peer/bench/train.h"
#include "peer/env/env.h"

#include <string.h>

enum { SAMPLES = 21, SUITES_MAX = 3, SIZES_MAX = 4, FRAME_MAX = 2 * BULK_BYTES_MAX };

struct sender {
    struct env *env;
    struct secure *secure; /* NULL: plain */
    struct blob *plain;    /* the frame that is sent over and over, or whose payload is sealed */
    struct blob *held;     /* refused: the next to go */
    size_t payload_bytes;
    uint64_t link;
};

struct receiver {
    struct job job;
    struct sender *sender;
    struct env *env;
    struct secure *secure;
    char address[ADDRESS_BYTES_MAX]; /* of the sender, which listens */
    uint64_t sample_ns, begin_ns, bytes;
    double rates[SAMPLES]; /* 10^9 bytes a second; the first is warming up */
    uint32_t rates_count;
    size_t payload_bytes;
    enum rc rc;
    struct fault why;
};

/* ---- sending ---- */

static struct blob *next_frame(struct sender *sender)
{
    uint8_t head[INNER_HEADER_BYTES] = {0};
    struct blob *frame;

    if (sender->secure == NULL) return blob_ref(sender->plain);
    frame = blob_create(secure_record_bytes(sizeof head + sender->payload_bytes));
    if (frame == NULL) return NULL;
    if (secure_seal(sender->secure, head, sizeof head, sender->plain->bytes, sender->payload_bytes,
                    frame->bytes) != RC_OK) {
        blob_unref(frame); /* the key is used up */
        return NULL;
    }
    return frame;
}

/* Until the queue is full; the frame that found no room is kept, for its nonce is used. */
static void send_some(struct sender *sender)
{
    enum rc rc;

    do {
        struct blob *frame = sender->held != NULL ? sender->held : next_frame(sender);

        sender->held = NULL;
        rc = frame == NULL ? RC_NOMEM : sender->env->ops->send(sender->env, sender->link, frame);
        if (rc == RC_LIMIT) {
            sender->held = frame;
            return;
        }
        blob_unref(frame);
    } while (rc == RC_OK);
    sender->env->ops->hangup(sender->env, sender->link); /* which tells the receiver */
}

static void sender_on_accepted(void *context, uint64_t link, const char *remote)
{
    struct sender *sender = context;

    (void)remote;
    sender->link = link;
    send_some(sender);
}

static void sender_on_drain(void *context, uint64_t link)
{
    (void)link;
    send_some(context);
}

static void on_frame_unwanted(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    (void)context, (void)link, (void)frame, (void)count;
}

static void on_connected_unused(void *context, uint64_t link)
{
    (void)context, (void)link;
}

static void sender_on_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    (void)context, (void)link, (void)rc, (void)why; /* the receiver's job ends the loop */
}

static void on_wake_unused(void *context)
{
    (void)context;
}

/* ---- receiving ---- */

static void receiver_end(struct receiver *receiver, enum rc rc, const char *why)
{
    if (rc != RC_OK) {
        receiver->rc = fault_set(&receiver->why, rc, "cannot measure the network: %s", why);
    }
    receiver->env->ops->stop(receiver->env);
}

static void receiver_on_accepted(void *context, uint64_t link, const char *remote)
{
    struct receiver *receiver = context;

    (void)remote;
    receiver->env->ops->hangup(receiver->env, link);
}

static void receiver_on_connected(void *context, uint64_t link)
{
    struct receiver *receiver = context;

    receiver->env->ops->link_set_frame_max(receiver->env, link, FRAME_MAX);
    receiver->begin_ns = receiver->env->ops->now_ns(receiver->env);
}

static void receiver_on_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    struct receiver *receiver = context;
    uint64_t now_ns = receiver->env->ops->now_ns(receiver->env);
    const uint8_t *inner;
    size_t inner_count;

    (void)link;
    if (receiver->secure != NULL &&
        secure_open(receiver->secure, frame, count, &inner, &inner_count) != RC_OK) {
        receiver_end(receiver, RC_AUTH, "a record does not open");
        return;
    }
    receiver->bytes += receiver->payload_bytes;
    if (now_ns - receiver->begin_ns < receiver->sample_ns) return;
    receiver->rates[receiver->rates_count++] =
        (double)receiver->bytes / (double)(now_ns - receiver->begin_ns);
    receiver->begin_ns = now_ns;
    receiver->bytes = 0;
    if (receiver->rates_count == SAMPLES) receiver_end(receiver, RC_OK, NULL);
}

static void receiver_on_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    (void)link;
    receiver_end(context, rc, why);
}

/* The deadline: a machine that cannot do one frame a sample ends here. */
static void receiver_on_wake(void *context)
{
    receiver_end(context, RC_TIMEOUT, "too slow for samples of this length; give it more seconds");
}

static void receiver_run(struct job *job)
{
    struct receiver *receiver = (struct receiver *)job;
    const struct uv_env_options options = {.folder = NULL};
    const struct env_events events = {.context = receiver,
                                      .on_accepted = receiver_on_accepted,
                                      .on_connected = receiver_on_connected,
                                      .on_frame = receiver_on_frame,
                                      .on_drain = on_connected_unused,
                                      .on_lost = receiver_on_lost,
                                      .on_wake = receiver_on_wake};
    uint64_t link;

    receiver->rc = uv_env_create(&options, &receiver->env, &receiver->why);
    if (receiver->rc != RC_OK) return;
    receiver->env->ops->set_events(receiver->env, &events);
    receiver->env->ops->wake_at(receiver->env, receiver->env->ops->now_ns(receiver->env) +
                                                   3 * SAMPLES * receiver->sample_ns +
                                                   10 * NS_PER_S);
    receiver->rc = receiver->env->ops->dial(receiver->env, receiver->address, &link);
    if (receiver->rc == RC_OK) uv_env_run(receiver->env);
    uv_env_destroy(receiver->env);
}

static void receiver_done(struct job *job)
{
    struct receiver *receiver = (struct receiver *)job;

    receiver->sender->env->ops->stop(receiver->sender->env);
}

/* ---- one row ---- */

struct row {
    const char *what;
    uint32_t suite; /* 0: plain */
    size_t payload_bytes;
    uint64_t sample_ns;
};

/* Two sessions that have shaken hands in memory, and what they borrow. */
struct sessions {
    struct swarm_secret swarm;
    struct static_key keys[2];
    struct secure *both[2];
    struct aes_gcm *fast;
};

static enum rc sessions_make(struct env *env, uint32_t suite, struct sessions *sessions)
{
    struct secure_options options[2];
    struct secure **both = sessions->both;
    uint8_t frame[2][HANDSHAKE_BYTES_MAX], seed[SECRET_BYTES];
    size_t count[2];
    enum rc rc = RC_OK;

    swarm_secret_derive("bench", NULL, &sessions->swarm);
    sessions->fast = aes_gcm_create();
    for (int i = 0; i < 2; i++) {
        env->ops->entropy(env, seed, sizeof seed);
        static_key_from_seed(seed, &sessions->keys[i]);
        options[i] = (struct secure_options){.is_initiator = i == 0,
                                             .swarm = &sessions->swarm,
                                             .key = &sessions->keys[i],
                                             .payload = (const uint8_t *)"",
                                             .payload_bytes = 0,
                                             .fast = sessions->fast};
        env->ops->entropy(env, options[i].ephemeral_seed, SECRET_BYTES);
        both[i] = secure_create(&options[i]);
        if (both[i] == NULL) rc = RC_NOMEM;
    }
    if (rc == RC_OK) rc = secure_greet(both[0], frame[0], &count[0]);
    for (int turn = 1; rc == RC_OK && count[(turn + 1) % 2] > 0; turn++) {
        rc = secure_answer(both[turn % 2], frame[(turn + 1) % 2], count[(turn + 1) % 2],
                           frame[turn % 2], &count[turn % 2]);
    }
    for (int i = 0; i < 2 && rc == RC_OK; i++) {
        if (secure_session(both[i])->state != SECURE_OPEN) return RC_AUTH;
        secure_choose_suite(both[i], suite);
    }
    return rc;
}

static struct blob *plain_make(size_t payload_bytes)
{
    struct blob *plain = blob_create(secure_record_bytes(INNER_HEADER_BYTES + payload_bytes));

    if (plain == NULL) return NULL;
    memset(plain->bytes, 0, RECORD_HEADER_BYTES);
    for (size_t i = RECORD_HEADER_BYTES; i < plain->count; i++) {
        plain->bytes[i] = (uint8_t)(i * 31);
    }
    store_le32(plain->bytes, (uint32_t)(INNER_HEADER_BYTES + payload_bytes));
    return plain;
}

static void row_add(struct json *rows, const struct row *row, struct receiver *receiver)
{
    struct bench_spread spread = bench_spread_of(receiver->rates + 1, receiver->rates_count - 1);
    struct json *object = json_object_create();

    json_set_text(object, "what", row->what);
    json_set_count(object, "frame_bytes", row->payload_bytes);
    json_set_real(object, "gb_per_s", spread.median);
    json_set_real(object, "q1", spread.q1);
    json_set_real(object, "q3", spread.q3);
    json_append(rows, object);
}

static enum rc row_run(const struct row *row, struct sender *sender, struct receiver *receiver,
                       struct fault *why)
{
    const struct env_events events = {.context = sender,
                                      .on_accepted = sender_on_accepted,
                                      .on_connected = on_connected_unused,
                                      .on_frame = on_frame_unwanted,
                                      .on_drain = sender_on_drain,
                                      .on_lost = sender_on_lost,
                                      .on_wake = on_wake_unused};
    struct sessions sessions = {.both = {NULL, NULL}};
    enum rc rc = RC_OK;

    if (row->suite != 0) rc = sessions_make(sender->env, row->suite, &sessions);
    sender->secure = sessions.both[0];
    receiver->secure = sessions.both[1];
    sender->plain = plain_make(row->payload_bytes);
    if (rc == RC_OK && sender->plain == NULL) rc = RC_NOMEM;
    if (rc != RC_OK) {
        rc = fault_set(why, rc, "cannot measure the network: %s", rc_text(rc));
        goto out;
    }
    sender->env->ops->set_events(sender->env, &events);
    rc = sender->env->ops->listen(sender->env, "127.0.0.1:0", receiver->address,
                                  sizeof receiver->address, why);
    if (rc != RC_OK) goto out;
    sender->env->ops->submit(sender->env, LANE_EXCHANGE, &receiver->job);
    uv_env_run(sender->env);
    rc = receiver->rc;
    if (rc != RC_OK) *why = receiver->why;
out:
    blob_unref(sender->held);
    secure_destroy(sessions.both[0]);
    secure_destroy(sessions.both[1]);
    aes_gcm_destroy(sessions.fast);
    return rc;
}

static enum rc row_measure(const struct row *row, struct json *rows, struct fault *why)
{
    const struct uv_env_options options = {.folder = NULL};
    struct sender sender = {.payload_bytes = row->payload_bytes};
    struct receiver receiver = {.job = {.run = receiver_run, .done = receiver_done},
                                .sender = &sender,
                                .sample_ns = row->sample_ns,
                                .payload_bytes = row->payload_bytes};
    enum rc rc = uv_env_create(&options, &sender.env, why);

    if (rc != RC_OK) return rc;
    rc = row_run(row, &sender, &receiver, why);
    uv_env_destroy(sender.env);
    blob_unref(sender.plain); /* writes that were under way held it until now */
    if (rc == RC_OK) row_add(rows, row, &receiver);
    return rc;
}

/* ---- all rows ---- */

enum rc bench_network(const struct bench_network_options *options, struct json **out,
                      struct fault *why)
{
    static const uint32_t sizes[SIZES_MAX] = {4096, 65536, 131072, 1048576};
    static const struct {
        const char *what;
        uint32_t suite;
    } suites[SUITES_MAX] = {{"plain", 0},
                            {"chacha20-poly1305", SUITE_CHACHA20POLY1305},
                            {"aes-256-gcm", SUITE_AES256GCM}};
    uint32_t sizes_count = options->bytes_per_frame == 0 ? SIZES_MAX : 1;
    double seconds = options->seconds > 0.0 ? options->seconds : 5.0;
    struct json *rows;
    enum rc rc = secure_start();

    if (rc != RC_OK) return fault_set(why, rc, "cannot measure the network: no libsodium");
    if (options->bytes_per_frame > BULK_BYTES_MAX - INNER_HEADER_BYTES) {
        return fault_set(why, RC_USAGE, "cannot send frames of %u bytes: at most %d",
                         options->bytes_per_frame, BULK_BYTES_MAX - INNER_HEADER_BYTES);
    }
    rows = json_array_create();
    for (uint32_t i = 0; i < SUITES_MAX * sizes_count && rc == RC_OK; i++) {
        uint32_t suite = suites[i / sizes_count].suite;
        struct row row = {suites[i / sizes_count].what, suite,
                          sizes_count == 1 ? options->bytes_per_frame : sizes[i % sizes_count],
                          (uint64_t)(seconds * 1e9 / (SUITES_MAX * sizes_count) / SAMPLES)};

        if (suite != 0 && (secure_suites() & suite) == 0) continue;
        rc = row_measure(&row, rows, why);
    }
    if (rc != RC_OK) {
        json_destroy(rows);
        return rc;
    }
    *out = rows;
    return RC_OK;
}

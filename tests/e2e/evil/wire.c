/* How evil talks: plain sockets, our own sealing. */
#include "tests/e2e/evil/evil.h"
#include "tests/signed.h"

#include "peer/env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS (10 * NS_PER_S) /* for an answer that is due: machines may be slow */

uint64_t evil_now(void)
{
    return uv_clock_ns();
}

bool evil_is_over(const struct evil *evil)
{
    return evil_now() >= evil->end_ns;
}

void evil_entropy(void *out, size_t count)
{
    FILE *file = fopen("/dev/urandom", "rb");

    CHECK(file != NULL && fread(out, 1, count, file) == count);
    fclose(file);
}

void evil_pause(uint64_t ns)
{
    (void)poll(NULL, 0, (int)(ns / NS_PER_MS));
}

int evil_connect(struct evil *evil)
{
    /* On loopback from a neighbourhood of our own: who opens many keeps out others of his own. */
    struct sockaddr_in own = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0) return -1;
    if (evil->target.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
        own.sin_addr.s_addr = htonl(0x7f420606); /* 127.66.6.6 */
        (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int));
        (void)bind(fd, (struct sockaddr *)&own, sizeof own); /* else from where we are */
    }
    if (connect(fd, (const struct sockaddr *)&evil->target, sizeof evil->target) != 0) {
        close(fd);
        evil->refused++;
        return -1;
    }
    evil->connections++;
    return fd;
}

bool evil_write(int fd, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    while (count > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        ssize_t sent = send(fd, at, count, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent > 0) {
            at += sent;
            count -= (size_t)sent;
        } else if (errno != EAGAIN || poll(&ready, 1, (int)(PATIENCE_NS / NS_PER_MS)) <= 0) {
            return false; /* gone, or it does not read any more */
        }
    }
    return true;
}

long evil_read(int fd, void *bytes, size_t cap, uint64_t timeout_ns)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    ssize_t count;

    if (poll(&ready, 1, (int)(timeout_ns / NS_PER_MS)) <= 0) return -1;
    count = recv(fd, bytes, cap, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return -1;
    return count > 0 ? (long)count : 0;
}

void evil_first_message(const struct evil *evil, uint8_t out[H1_BYTES])
{
    struct static_key key;
    struct secure_options options = {.is_initiator = true, .swarm = &evil->swarm, .key = &key};
    uint8_t longer[HANDSHAKE_BYTES_MAX];
    struct secure *secure;
    size_t count = 0;

    evil_entropy(options.ephemeral_seed, sizeof options.ephemeral_seed);
    static_key_from_seed(options.ephemeral_seed, &key);
    secure = secure_create(&options);
    CHECK(secure != NULL && secure_greet(secure, longer, &count) == RC_OK && count == H1_BYTES);
    memcpy(out, longer, H1_BYTES);
    secure_destroy(secure);
}

/* ---- members ---- */

/* One frame; NULL: gone, or nothing in time (then *is_late). */
static uint8_t *read_frame(struct member *member, uint64_t timeout_ns, size_t *count, bool *is_late)
{
    uint64_t end_ns = evil_now() + timeout_ns;

    *is_late = false;
    for (;;) {
        uint8_t *frame, *room;
        size_t room_bytes;
        uint64_t now_ns = evil_now();
        long got;

        if (framer_next(&member->framer, &frame, count) != RC_OK) return NULL;
        if (frame != NULL) return frame;
        CHECK(framer_room(&member->framer, &room, &room_bytes) == RC_OK);
        got = evil_read(member->fd, room, room_bytes, now_ns < end_ns ? end_ns - now_ns : 0);
        if (got == 0) return NULL;
        if (got < 0) {
            *is_late = true;
            return NULL;
        }
        framer_fill(&member->framer, (size_t)got);
    }
}

static bool begin(struct member *member, const struct hello *hello)
{
    struct evil *evil = member->evil;
    uint8_t payload[HELLO_BYTES_MAX], out[HANDSHAKE_BYTES_MAX], *frame;
    struct secure_options options = {
        .is_initiator = true, .swarm = &evil->swarm, .key = &member->key, .payload = payload};
    const struct secure_session *session;
    size_t count = 0;
    bool is_late;

    evil_entropy(options.ephemeral_seed, sizeof options.ephemeral_seed);
    static_key_from_seed(options.ephemeral_seed, &member->key);
    evil_entropy(options.ephemeral_seed, sizeof options.ephemeral_seed);
    CHECK(hello_encode(hello, &member->identity, evil->swarm.run_id, member->key.public_key,
                       payload, sizeof payload, &options.payload_bytes) == RC_OK);
    member->secure = secure_create(&options);
    CHECK(member->secure != NULL && secure_greet(member->secure, out, &count) == RC_OK);
    member->fd = evil_connect(evil);
    if (member->fd < 0 || !evil_write(member->fd, out, count)) return false;
    frame = read_frame(member, PATIENCE_NS, &count, &is_late);
    if (frame == NULL || secure_answer(member->secure, frame, count, out, &count) != RC_OK) {
        return false;
    }
    session = secure_session(member->secure);
    if (hello_decode(session->remote_payload, session->remote_payload_bytes, evil->swarm.run_id,
                     session->remote_key, &member->remote) != RC_OK) {
        return false;
    }
    member->remote_id = identity_peer_id(member->remote.public_key);
    secure_choose_suite(member->secure, member->remote.suites);
    framer_deinit(&member->framer);
    framer_init(&member->framer, secure_record_bytes(BULK_BYTES_MAX));
    return evil_write(member->fd, out, count);
}

static void forget(struct member *member)
{
    if (member->fd >= 0) close(member->fd);
    member->fd = -1;
    secure_destroy(member->secure);
    member->secure = NULL;
    framer_deinit(&member->framer);
    framer_init(&member->framer, HANDSHAKE_BYTES_MAX);
}

static bool take(struct member *member, uint8_t *frame, size_t count, struct message *message)
{
    struct inner_header header;
    const uint8_t *inner;
    size_t inner_count;

    return secure_open(member->secure, frame, count, &inner, &inner_count) == RC_OK &&
           inner_header_decode(inner, inner_count, &header) == RC_OK &&
           header.type != MESSAGE_DATA &&
           message_decode((enum message_type)header.type, inner + INNER_HEADER_BYTES,
                          inner_count - INNER_HEADER_BYTES, message) == RC_OK;
}

static bool is_let_in(struct member *member)
{
    struct message message;
    size_t count;
    bool is_late;
    uint8_t *frame = read_frame(member, PATIENCE_NS, &count, &is_late);

    if (frame == NULL || !take(member, frame, count, &message)) return false;
    if (message.type == MESSAGE_HELLO_OK) return true;
    if (message.type == MESSAGE_ERROR) {
        snprintf(member->refusal, sizeof member->refusal, "%s", message.as.error.text);
    }
    return false;
}

bool member_open(struct evil *evil, struct member *member)
{
    struct hello hello = {.incarnation = 1, .suites = secure_suites(), .role = HELLO_OBSERVER};
    uint8_t seed[SECRET_BYTES];

    *member = (struct member){.evil = evil, .fd = -1};
    framer_init(&member->framer, HANDSHAKE_BYTES_MAX);
    evil_entropy(seed, sizeof seed);
    identity_from_seed(seed, &member->identity);
    evil_entropy(member->boot.bytes, sizeof member->boot.bytes);
    memcpy(hello.public_key, member->identity.public_key, PUBLIC_KEY_BYTES);
    hello.boot = member->boot;
    if (!begin(member, &hello)) return false; /* only to learn what model they train */
    forget(member);
    if (evil->has_identity) member->identity = evil->identity;
    memcpy(hello.public_key, member->identity.public_key, PUBLIC_KEY_BYTES);
    hello.role = HELLO_PEER;
    hello.schema = member->remote.schema;
    memcpy(hello.spec, member->remote.spec, sizeof hello.spec);
    memcpy(hello.method, member->remote.method, sizeof hello.method);
    return begin(member, &hello) && is_let_in(member);
}

void member_close(struct member *member)
{
    forget(member);
    framer_deinit(&member->framer);
}

static bool send_record(struct member *member, const struct inner_header *header, uint8_t type,
                        const void *body, size_t count)
{
    uint8_t head[INNER_HEADER_BYTES], *frame = malloc(secure_record_bytes(sizeof head + count));
    bool is_sent;

    CHECK(frame != NULL);
    inner_header_encode(header, head);
    head[0] = type;
    CHECK(secure_seal(member->secure, head, sizeof head, body, count, frame) == RC_OK);
    is_sent = evil_write(member->fd, frame, secure_record_bytes(sizeof head + count));
    free(frame);
    member->evil->sent++;
    return is_sent;
}

bool member_raw(struct member *member, uint8_t type, const void *body, size_t count)
{
    struct inner_header header = {.type = MESSAGE_PING};

    return send_record(member, &header, type, body, count);
}

bool member_data(struct member *member, enum data_kind kind, uint16_t stream, uint32_t chunk,
                 size_t count)
{
    struct inner_header header = {
        .type = MESSAGE_DATA, .flags = (uint8_t)kind, .stream = stream, .arg = chunk};
    uint8_t *body = calloc(1, count);
    bool is_sent;

    CHECK(body != NULL);
    is_sent = send_record(member, &header, MESSAGE_DATA, body, count);
    free(body);
    return is_sent;
}

bool member_say(struct member *member, const struct message *message)
{
    static uint8_t inner[CONTROL_BYTES_MAX];
    size_t count;

    CHECK(message_encode(message, inner, sizeof inner, &count) == RC_OK);
    return member_raw(member, (uint8_t)message->type, inner + INNER_HEADER_BYTES,
                      count - INNER_HEADER_BYTES);
}

static bool heed(struct member *member, const struct message *message)
{
    struct message ack = {.type = MESSAGE_ACK};

    if (message->type == MESSAGE_FORM || message->type == MESSAGE_START) {
        member->form = message->as.form;
        member->has_form = true;
    }
    if (message->type == MESSAGE_PROGRESS) member->progress = message->as.progress;
    if (message->type != MESSAGE_PING) return true;
    ack.as.ping.seq = message->as.ping.seq;
    return member_say(member, &ack);
}

bool member_listen(struct member *member, uint64_t ns)
{
    uint64_t end_ns = evil_now() + ns;
    bool is_late = false;

    do {
        uint64_t now_ns = evil_now();
        struct message message;
        size_t count;
        uint8_t *frame =
            read_frame(member, now_ns < end_ns ? end_ns - now_ns : 0, &count, &is_late);

        if (frame == NULL) return is_late;
        if (take(member, frame, count, &message) && !heed(member, &message)) return false;
    } while (evil_now() < end_ns);
    return true;
}

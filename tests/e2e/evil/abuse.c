/*
 * Members that use what is meant for guests: relaying, bulk connections, questions for the status
 * and for being dialled back, more often than anybody needs.
 */
#include "tests/e2e/evil/evil.h"

#include "gossip/secure/attach.h"

#include <unistd.h>

enum { ABUSE = 200, BULKS = 16 };

/* Circuits to members there are not, bytes on circuits there are not, and windows without end. */
void abuse_relay(struct member *member)
{
    struct message reserve = {.type = MESSAGE_RELAY_RESERVE};
    struct message connect = {.type = MESSAGE_RELAY_CONNECT};
    struct message window = {.type = MESSAGE_RELAY_WINDOW};

    for (uint32_t i = 0; i < ABUSE; i++) {
        uint32_t circuit = (uint32_t)member->acts * ABUSE + i;

        if (!member_say(member, &reserve)) return;
        connect.as.relay_connect.circuit = circuit;
        evil_entropy(connect.as.relay_connect.peer.bytes,
                     sizeof connect.as.relay_connect.peer.bytes);
        if (i % 2 == 0) connect.as.relay_connect.peer = member->remote_id;
        if (!member_say(member, &connect)) return;
        window.as.relay_window.circuit = circuit;
        window.as.relay_window.bytes = UINT64_MAX;
        window.as.relay_window.is_from_relay = i % 3 == 0;
        if (!member_say(member, &window)) return;
        if (!member_data(member, DATA_RELAY, (uint16_t)circuit, circuit, 4096)) return;
    }
}

/* Opens bulk connections of its session, each as it should be, and sends nothing on them. */
void hoard_bulks(struct member *member)
{
    static uint32_t number;
    struct attach attach = {.epoch = secure_session(member->secure)->epoch};
    const uint8_t *exporter = secure_exporter(member->secure, attach.epoch);
    int fds[BULKS];

    if (exporter == NULL) return;
    if (member->acts == 0) number = 0;
    memcpy(attach.session_id, secure_session(member->secure)->session_id, SESSION_ID_BYTES);
    for (uint32_t i = 0; i < BULKS; i++) {
        uint8_t frame[ATTACH_BYTES];

        attach.number = number;
        number += 2;
        evil_entropy(attach.nonces[0], ATTACH_NONCE_BYTES);
        attach_ask(&attach, exporter, true, frame);
        fds[i] = evil_connect(member->evil);
        if (fds[i] >= 0) (void)evil_write(fds[i], frame, sizeof frame);
    }
    (void)member_listen(member, 50 * NS_PER_MS);
    for (uint32_t i = 0; i < BULKS; i++) {
        if (fds[i] >= 0) close(fds[i]);
    }
}

/* Wants to be a bulk connection of a session it does not know. Over when it is closed. */
void forge_bulk(struct evil *evil)
{
    while (!evil_is_over(evil)) {
        struct attach attach = {.number = 2};
        uint8_t exporter[SECRET_BYTES], frame[ATTACH_BYTES], byte;
        int fd = evil_connect(evil);

        if (fd < 0) continue;
        evil_entropy(exporter, sizeof exporter);
        evil_entropy(attach.session_id, sizeof attach.session_id);
        attach_ask(&attach, exporter, true, frame);
        evil->sent++;
        if (evil_write(fd, frame, sizeof frame) &&
            evil_read(fd, &byte, sizeof byte, 60 * NS_PER_S) == 0) {
            evil->dropped++;
        }
        close(fd);
    }
}

void flood_status(struct member *member)
{
    struct message message = {.type = MESSAGE_STATUS_REQ};

    for (uint32_t i = 0; i < ABUSE; i++) {
        if (!member_say(member, &message)) return;
    }
}

void flood_dialbacks(struct member *member)
{
    struct message message = {.type = MESSAGE_DIALBACK_REQ};

    for (uint32_t i = 0; i < ABUSE; i++) {
        evil_entropy(&message.as.dialback.nonce, sizeof message.as.dialback.nonce);
        message.as.dialback.nonce |= 1;
        if (!member_say(member, &message)) return;
    }
}

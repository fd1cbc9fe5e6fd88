/* Those outside the gate: they hold no key, or use it for a first message only. */
#include "tests/e2e/evil/evil.h"

#include "gossip/secure/noise.h"

#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

/* Many connections and not a word; those that are closed are opened again. */
void hold_idle(struct evil *evil)
{
    struct pollfd *held = calloc(evil->count, sizeof *held);

    CHECK(held != NULL);
    for (uint32_t i = 0; i < evil->count; i++) {
        held[i] = (struct pollfd){.fd = evil_connect(evil), .events = POLLIN};
    }
    printf("holding %u\n", evil->count);
    fflush(stdout);
    while (!evil_is_over(evil)) {
        (void)poll(held, evil->count, 100);
        for (uint32_t i = 0; i < evil->count; i++) {
            if (held[i].fd >= 0 && held[i].revents == 0) continue;
            if (held[i].fd >= 0) {
                close(held[i].fd);
                evil->dropped++;
            }
            held[i].fd = evil_connect(evil);
        }
        evil_pause(100 * NS_PER_MS);
    }
    free(held);
}

/* Writes `bytes` on a fresh connection and waits to be hung up on; how much was answered. */
static size_t try(struct evil *evil, const void *bytes, size_t count)
{
    int fd = evil_connect(evil);
    uint8_t answer[HANDSHAKE_BYTES_MAX];
    size_t answered = 0;
    long got;

    if (fd < 0) return 0;
    (void)evil_write(fd, bytes, count);
    evil->sent++;
    while ((got = evil_read(fd, answer, sizeof answer, 20 * NS_PER_S)) > 0) {
        answered += (size_t)got;
    }
    if (got == 0) evil->dropped++;
    close(fd);
    return answered;
}

/* A valid first message, a byte at a time, slower than the gate waits. */
void drip_slowly(struct evil *evil)
{
    uint8_t first[H1_BYTES];

    while (!evil_is_over(evil)) {
        int fd = evil_connect(evil);

        evil_first_message(evil, first);
        for (size_t i = 0; fd >= 0 && i < sizeof first; i++) {
            uint8_t byte;

            if (!evil_write(fd, first + i, 1)) break;
            if (evil_read(fd, &byte, 1, 100 * NS_PER_MS) == 0) {
                evil->dropped++;
                break;
            }
        }
        if (fd >= 0) close(fd);
        if (evil->dropped > 0) return;
    }
}

/* As fast as one process can. */
void send_garbage(struct evil *evil)
{
    uint8_t bytes[H1_BYTES];

    while (!evil_is_over(evil)) {
        int fd = evil_connect(evil);

        if (fd < 0) continue;
        evil_entropy(bytes, sizeof bytes);
        if (evil->sent % 2 == 0) memcpy(bytes, "GRPV\x01\x01\x40", 8);
        (void)evil_write(fd, bytes, sizeof bytes);
        evil->sent++;
        close(fd);
    }
}

/* A first message of another swarm: it has the form, and no gate lets it in. */
void knock_without_key(struct evil *evil)
{
    struct evil other = *evil;
    uint8_t first[H1_BYTES];

    swarm_secret_derive("another swarm", NULL, &other.swarm);
    evil_first_message(&other, first);
    do {
        CHECK(try(evil, first, sizeof first) == 0); /* strangers hear nothing */
    } while (!evil_is_over(evil));
}

/* One valid first message, over and over: it is answered once. */
void replay_first(struct evil *evil)
{
    uint8_t first[H1_BYTES];
    size_t answers = 0;

    evil_first_message(evil, first);
    do {
        answers += try(evil, first, sizeof first) > 0;
    } while (!evil_is_over(evil) || evil->sent < 3);
    CHECK(answers <= 1);
}

void greet_and_wait(struct evil *evil)
{
    uint8_t first[H1_BYTES];

    while (!evil_is_over(evil)) {
        evil_first_message(evil, first);
        (void)try(evil, first, sizeof first); /* hung up on when the handshake's time is over */
        if (evil->dropped > 0) return;
    }
}

void send_oversized(struct evil *evil)
{
    static const uint8_t frames[][16] = {{0xff, 0xff, 0xff, 0xff},
                                         {0xff, 0xff, 0xff, 0x7f},
                                         {0, 0, 0x10, 0},
                                         "GRPV\x01\x01\xff\xff"};

    for (uint32_t i = 0; !evil_is_over(evil) || i < 4; i++) {
        CHECK(try(evil, frames[i % 4], sizeof frames[0]) == 0);
    }
}

/* Their own messages, sent back to them. */
void reflect(struct evil *evil)
{
    while (!evil_is_over(evil)) {
        uint8_t bytes[HANDSHAKE_BYTES_MAX];
        int fd = evil_connect(evil);
        long count;

        if (fd < 0) continue;
        evil_first_message(evil, bytes);
        (void)evil_write(fd, bytes, H1_BYTES);
        while ((count = evil_read(fd, bytes, sizeof bytes, 20 * NS_PER_S)) > 0) {
            evil->sent++;
            if (!evil_write(fd, bytes, (size_t)count)) break;
        }
        if (count == 0) evil->dropped++;
        close(fd);
        if (evil->dropped > 0) return;
    }
}

/* The MAC that lets a first message through the gate. */
static void seal_gate(const struct evil *evil, uint8_t first[H1_BYTES])
{
    uint8_t key[SECRET_BYTES];

    CHECK(crypto_generichash(key, sizeof key, (const uint8_t *)"gate", 4, evil->swarm.secret,
                             SECRET_BYTES) == 0);
    CHECK(crypto_generichash(first + H1_BYTES - 16, 16, first, H1_BYTES - 16, key, sizeof key) ==
          0);
}

/* A key of low order, which would make the shared secret one that everybody knows. */
void greet_with_low_order(struct evil *evil)
{
    while (!evil_is_over(evil) || evil->sent < 2) {
        uint8_t prologue[WIRE_MAGIC_BYTES + 1 + DIGEST_BYTES] = {'G', 'R', 'P', 'V', WIRE_MAJOR};
        uint8_t seed[SECRET_BYTES], first[H1_BYTES] = "GRPV\x01\x01\x40";
        struct noise noise;
        size_t count;

        evil_entropy(seed, sizeof seed);
        memcpy(prologue + WIRE_MAGIC_BYTES + 1, evil->swarm.run_id.bytes, DIGEST_BYTES);
        noise_init(&noise, &(struct noise_options){.is_initiator = true,
                                                   .prologue = prologue,
                                                   .prologue_bytes = sizeof prologue,
                                                   .psk = evil->swarm.secret,
                                                   .static_secret = seed,
                                                   .ephemeral_secret = seed});
        memset(noise.own_ephemeral.public_key, 0, NOISE_KEY_BYTES);
        noise.own_ephemeral.public_key[0] = (uint8_t)(evil->sent % 2); /* orders 4 and 1 */
        CHECK(noise_write(&noise, NULL, 0, first + PREFIX_BYTES, NOISE_OVERHEAD_1, &count) ==
              RC_OK);
        seal_gate(evil, first);
        CHECK(try(evil, first, sizeof first) == 0);
        if (evil->sent >= 2) return; /* from here on they would be replays */
    }
}

void greet_in_old_version(struct evil *evil)
{
    uint8_t first[H1_BYTES];

    do {
        evil_first_message(evil, first);
        first[4] = WIRE_MAJOR + 1;
        seal_gate(evil, first);
        CHECK(try(evil, first, sizeof first) == 0);
    } while (!evil_is_over(evil));
}

/*
 * aes_gcm: AES-256-GCM by the Intel IPsec multi-buffer library, where it was found at build time
 * and fits the processor: the same bytes as libsodium's, several times as fast on records of bulk.
 * One of these per table of links, shared by its sealers; it is only read, so any thread may use
 * it.
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_AES_GCM_H
#define GRAPEVINE_GOSSIP_SECURE_AES_GCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AES_GCM_KEY_BYTES = 32, AES_GCM_NONCE_BYTES = 12, AES_GCM_TAG_BYTES = 16 };

struct aes_gcm;

/* A key made ready, of whichever library; aligned to 64 bytes. */
struct aes_gcm_schedule {
    _Alignas(64) uint8_t bytes[1024];
};

/** NULL: not built in, another kind of processor, or no memory; then libsodium does it. Takes
 * almost a millisecond: the library tests itself. */
struct aes_gcm *aes_gcm_create(void);
void aes_gcm_destroy(struct aes_gcm *gcm);
void aes_gcm_expand(const struct aes_gcm *gcm, const uint8_t key[AES_GCM_KEY_BYTES],
                    struct aes_gcm_schedule *schedule);
/** head || tail into `out`, the tag behind it. Pieces may not overlap `out`, unless they already
 *  stand at their places in it. */
void aes_gcm_seal(const struct aes_gcm *gcm, const struct aes_gcm_schedule *schedule,
                  const uint8_t nonce[AES_GCM_NONCE_BYTES], const void *aad, size_t aad_count,
                  const void *head, size_t head_count, const void *tail, size_t tail_count,
                  uint8_t *out);
/** Open `count` bytes, the tag not counted, in place. False: they are not what was sealed, and have
 *  been wiped. */
bool aes_gcm_open(const struct aes_gcm *gcm, const struct aes_gcm_schedule *schedule,
                  const uint8_t nonce[AES_GCM_NONCE_BYTES], const void *aad, size_t aad_count,
                  uint8_t *sealed, size_t count);

#endif

/*
 * AES-256-GCM by libipsec-mb. Its manager is 200 KB of queues that nothing here uses, so only the
 * six functions that it chose for this processor are kept. Any thread.
 */
#include "gossip/secure/aes_gcm.h"

#if defined(GRAPEVINE_HAS_IPSEC_MB)

#include "base/mem.h"

#include <intel-ipsec-mb.h>
#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(struct gcm_key_data) <= sizeof(struct aes_gcm_schedule), "a key fits");

struct aes_gcm {
    aes_gcm_pre_t expand;
    aes_gcm_init_t begin;
    aes_gcm_enc_dec_update_t encrypt, decrypt;
    aes_gcm_enc_dec_finalize_t end_encryption, end_decryption;
};

struct aes_gcm *aes_gcm_create(void)
{
    struct aes_gcm *gcm;
    IMB_MGR *manager;

    if (crypto_aead_aes256gcm_is_available() == 0) return NULL; /* it would be emulated */
    manager = alloc_mb_mgr(0);
    if (manager == NULL) return NULL;
    init_mb_mgr_auto(manager, NULL);
    gcm = imb_get_errno(manager) == 0 ? mem_alloc(sizeof *gcm) : NULL;
    if (gcm != NULL) {
        *gcm = (struct aes_gcm){.expand = manager->gcm256_pre,
                                .begin = manager->gcm256_init,
                                .encrypt = manager->gcm256_enc_update,
                                .decrypt = manager->gcm256_dec_update,
                                .end_encryption = manager->gcm256_enc_finalize,
                                .end_decryption = manager->gcm256_dec_finalize};
    }
    free_mb_mgr(manager);
    return gcm;
}

void aes_gcm_destroy(struct aes_gcm *gcm)
{
    mem_free(gcm);
}

static const struct gcm_key_data *key_of(const struct aes_gcm_schedule *schedule)
{
    return (const struct gcm_key_data *)(const void *)schedule->bytes;
}

void aes_gcm_expand(const struct aes_gcm *gcm, const uint8_t key[AES_GCM_KEY_BYTES],
                    struct aes_gcm_schedule *schedule)
{
    gcm->expand(key, (struct gcm_key_data *)(void *)schedule->bytes);
}

void aes_gcm_seal(const struct aes_gcm *gcm, const struct aes_gcm_schedule *schedule,
                  const uint8_t nonce[AES_GCM_NONCE_BYTES], const void *aad, size_t aad_count,
                  const void *head, size_t head_count, const void *tail, size_t tail_count,
                  uint8_t *out)
{
    const struct gcm_key_data *key = key_of(schedule);
    struct gcm_context_data context;

    gcm->begin(key, &context, nonce, aad, aad_count);
    if (head_count > 0) gcm->encrypt(key, &context, out, head, head_count);
    if (tail_count > 0) gcm->encrypt(key, &context, out + head_count, tail, tail_count);
    gcm->end_encryption(key, &context, out + head_count + tail_count, AES_GCM_TAG_BYTES);
    sodium_memzero(&context, sizeof context);
}

bool aes_gcm_open(const struct aes_gcm *gcm, const struct aes_gcm_schedule *schedule,
                  const uint8_t nonce[AES_GCM_NONCE_BYTES], const void *aad, size_t aad_count,
                  uint8_t *sealed, size_t count)
{
    const struct gcm_key_data *key = key_of(schedule);
    struct gcm_context_data context;
    uint8_t tag[AES_GCM_TAG_BYTES];
    bool is_right;

    gcm->begin(key, &context, nonce, aad, aad_count);
    if (count > 0) gcm->decrypt(key, &context, sealed, sealed, count);
    gcm->end_decryption(key, &context, tag, sizeof tag);
    is_right = sodium_memcmp(tag, sealed + count, sizeof tag) == 0;
    /* Unlike libsodium it decrypts before it knows; nobody shall read what was not sealed. */
    if (!is_right) memset(sealed, 0, count);
    sodium_memzero(&context, sizeof context);
    return is_right;
}

#else

struct aes_gcm *aes_gcm_create(void)
{
    return NULL;
}

void aes_gcm_destroy(struct aes_gcm *gcm)
{
    (void)gcm;
}

/* Nobody has one to call these with. */
void aes_gcm_expand(const struct aes_gcm *gcm, const uint8_t key[AES_GCM_KEY_BYTES],
                    struct aes_gcm_schedule *schedule)
{
    (void)gcm, (void)key, (void)schedule;
}

void aes_gcm_seal(const struct aes_gcm *gcm, const struct aes_gcm_schedule *schedule,
                  const uint8_t nonce[AES_GCM_NONCE_BYTES], const void *aad, size_t aad_count,
                  const void *head, size_t head_count, const void *tail, size_t tail_count,
                  uint8_t *out)
{
    (void)gcm, (void)schedule, (void)nonce, (void)aad, (void)aad_count;
    (void)head, (void)head_count, (void)tail, (void)tail_count, (void)out;
}

bool aes_gcm_open(const struct aes_gcm *gcm, const struct aes_gcm_schedule *schedule,
                  const uint8_t nonce[AES_GCM_NONCE_BYTES], const void *aad, size_t aad_count,
                  uint8_t *sealed, size_t count)
{
    (void)gcm, (void)schedule, (void)nonce, (void)aad, (void)aad_count, (void)sealed, (void)count;
    return false;
}

#endif

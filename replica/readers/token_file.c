/* token_file: see token_file.h. The two magic numbers are those of llm.c's data_common.py. */
#include "replica/readers/token_file.h"

#include "base/bytes.h"
#include "base/check.h"

#include <inttypes.h>
#include <string.h>

enum {
    MAGIC_16 = 20240520,
    VERSION_16 = 1,
    MAGIC_32 = 20240801,
    VERSION_32 = 7,
    /* Words of the header; the digest takes eight. */
    AT_MAGIC = 0,
    AT_VERSION = 1,
    AT_COUNT = 2,
    AT_SYMBOLS = 3,
    AT_DIGEST = 4
};

static uint32_t word(const uint8_t *head, size_t at)
{
    return load_le32(head + 4 * at);
}

enum rc token_form_read(const uint8_t *head, uint64_t bytes, struct token_form *form,
                        struct fault *why)
{
    const uint32_t magic = bytes >= TOKEN_HEADER_BYTES ? word(head, AT_MAGIC) : 0;
    const bool is_wide = magic == MAGIC_32;

    *form = (struct token_form){.width = 0};
    if (magic != MAGIC_16 && magic != MAGIC_32) return RC_OK;
    if (word(head, AT_VERSION) != (is_wide ? VERSION_32 : VERSION_16)) {
        return fault_set(why, RC_FORMAT, "its header has version %u, not %d",
                         word(head, AT_VERSION), is_wide ? VERSION_32 : VERSION_16);
    }
    form->width = is_wide ? 4 : 2;
    form->offset = TOKEN_HEADER_BYTES;
    form->tokens = word(head, AT_COUNT);
    form->symbols = word(head, AT_SYMBOLS);
    memcpy(form->digest.bytes, head + 4 * AT_DIGEST, DIGEST_BYTES);
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        form->has_digest |= form->digest.bytes[i] != 0;
    }
    if (form->tokens * form->width == bytes - TOKEN_HEADER_BYTES) return RC_OK;
    return fault_set(why, RC_FORMAT,
                     "its header says %" PRIu64 " tokens of %u bytes, and %" PRIu64
                     " bytes follow: it is not whole",
                     form->tokens, form->width, bytes - TOKEN_HEADER_BYTES);
}

void token_form_write(const struct token_form *form, uint8_t head[TOKEN_HEADER_BYTES])
{
    CHECK((form->width == 2 || form->width == 4) && form->tokens <= INT32_MAX);
    memset(head, 0, TOKEN_HEADER_BYTES);
    store_le32(head + 4 * AT_MAGIC, form->width == 4 ? MAGIC_32 : MAGIC_16);
    store_le32(head + 4 * AT_VERSION, form->width == 4 ? VERSION_32 : VERSION_16);
    store_le32(head + 4 * AT_COUNT, (uint32_t)form->tokens);
    store_le32(head + 4 * AT_SYMBOLS, form->symbols);
    if (form->has_digest) memcpy(head + 4 * AT_DIGEST, form->digest.bytes, DIGEST_BYTES);
}

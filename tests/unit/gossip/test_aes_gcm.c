/* AES-256-GCM of the two libraries: either reads what the other wrote, and the bytes are equal. */
#include "tests/check.h"

#include "base/check.h"
#include "gossip/secure/secure.h"
#include "gossip/secure/sealer.h"

#include <stdlib.h>

enum { RECORD_MAX = BULK_BYTES_MAX + RECORD_HEADER_BYTES + RECORD_TAG_BYTES };

struct both {
    struct aes_gcm *fast;
    struct sealer *sealers[2]; /* libsodium's, the fast one */
    uint8_t *plain, *frames[2];
};

static int both_create(void **state)
{
    static const uint8_t root[SEALER_ROOT_BYTES] = {1, 2, 3};
    struct both *both = calloc(1, sizeof *both);

    assert_int_equal(secure_start(), RC_OK);
    *state = both;
    both->fast = aes_gcm_create();
    both->plain = malloc(RECORD_MAX);
    for (size_t i = 0; i < RECORD_MAX; i++) {
        both->plain[i] = (uint8_t)(i * 13 + i / 256);
    }
    for (int i = 0; i < 2; i++) {
        both->frames[i] = malloc(RECORD_MAX);
        both->sealers[i] = sealer_create(i == 0 ? NULL : both->fast);
        if ((secure_suites() & SUITE_AES256GCM) == 0) continue;
        sealer_set(both->sealers[i], SUITE_AES256GCM, root, 7);
    }
    return 0;
}

static int both_destroy(void **state)
{
    struct both *both = *state;

    for (int i = 0; i < 2; i++) {
        sealer_destroy(both->sealers[i]);
        free(both->frames[i]);
    }
    aes_gcm_destroy(both->fast);
    free(both->plain);
    free(both);
    return 0;
}

static void must_have_fast(const struct both *both)
{
    if (both->fast == NULL) skip(); /* not built in, or not this processor */
}

/* Every length around the block sizes, in every split of the two pieces, and the largest. */
static void either_library_reads_what_the_other_wrote(void **state)
{
    static const size_t sizes[] = {0,    1,    15,   16,    17,    31,     64,
                                   100,  255,  256,  257,   1023,  1040,   4096,
                                   4097, 8191, 9999, 65552, 99999, 131088, BULK_BYTES_MAX};
    static const size_t heads[] = {0, 1, INNER_HEADER_BYTES, 33};
    struct both *both = *state;

    must_have_fast(both);
    for (size_t s = 0; s < ARRAY_COUNT(sizes) * ARRAY_COUNT(heads); s++) {
        size_t count = sizes[s / ARRAY_COUNT(heads)], head = heads[s % ARRAY_COUNT(heads)];
        size_t frame = secure_record_bytes(count), inner_count;
        const uint8_t *inner;

        if (head > count) continue;
        for (int i = 0; i < 2; i++) {
            sealer_seal(both->sealers[i], s, both->plain, head, both->plain + head, count - head,
                        both->frames[i]);
        }
        assert_memory_equal(both->frames[0], both->frames[1], frame);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(
                sealer_open(both->sealers[i], s, both->frames[i], frame, &inner, &inner_count),
                RC_OK);
            assert_int_equal(inner_count, count);
            assert_memory_equal(inner, both->plain, count);
        }
    }
}

/* A bit of the text or of the tag, and the number: the text is not handed out, not even in part. */
static void a_changed_bit_is_noticed_and_nothing_is_left_to_read(void **state)
{
    enum { COUNT = 300 };
    struct both *both = *state;
    size_t frame = secure_record_bytes(COUNT), inner_count;
    const uint8_t *inner;

    must_have_fast(both);
    for (size_t at = RECORD_HEADER_BYTES; at <= frame; at++) {
        uint8_t *bytes = both->frames[1];

        sealer_seal(both->sealers[1], 5, both->plain, COUNT, NULL, 0, bytes);
        if (at < frame) bytes[at] ^= (uint8_t)(1U << at % 8);
        assert_int_equal(
            sealer_open(both->sealers[1], at == frame ? 6 : 5, bytes, frame, &inner, &inner_count),
            RC_AUTH);
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(bytes[RECORD_HEADER_BYTES + i], 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(either_library_reads_what_the_other_wrote, both_create,
                                        both_destroy),
        cmocka_unit_test_setup_teardown(a_changed_bit_is_noticed_and_nothing_is_left_to_read,
                                        both_create, both_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

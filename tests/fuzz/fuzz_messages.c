/*
 * The type in the first byte, a body in the rest. What is decoded can be encoded, and that decodes
 * and encodes to the same bytes again: nothing a peer sends can make us abort or change meaning.
 */
#include "base/check.h"
#include "gossip/wire/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t first[CONTROL_BYTES_MAX], second[CONTROL_BYTES_MAX];
    size_t first_count = 0, second_count = 0;
    struct message message, again;

    if (size == 0) return 0;
    if (message_decode((enum message_type)data[0], data + 1, size - 1, &message) != RC_OK) return 0;
    CHECK(message_encode(&message, first, sizeof first, &first_count) == RC_OK);
    CHECK(message_decode(message.type, first + INNER_HEADER_BYTES, first_count - INNER_HEADER_BYTES,
                         &again) == RC_OK);
    CHECK(message_encode(&again, second, sizeof second, &second_count) == RC_OK);
    CHECK(first_count == second_count && memcmp(first, second, first_count) == 0);
    return 0;
}

/* Any text as the address book of a peer; what is taken is within bounds and can be written and
 * read again. */
#include "base/check.h"
#include "base/mem.h"
#include "gossip/wire/address.h"
#include "peer/files/address_book.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct address_book book, again;
    struct fault why = {""};
    char *text;

    if (address_book_parse((const char *)bytes, count, &book, &why) != RC_OK) {
        CHECK(why.text[0] != '\0');
        return 0;
    }
    CHECK(book.count <= ADDRESS_BOOK_MAX && book.anchors_count <= ADDRESS_BOOK_ANCHORS_MAX);
    for (size_t i = 0; i < book.count; i++) {
        CHECK(address_is_valid(book.addresses[i]));
    }
    text = address_book_format(&book);
    CHECK(text != NULL);
    CHECK(address_book_parse(text, strlen(text), &again, NULL) == RC_OK);
    CHECK(memcmp(&book, &again, sizeof book) == 0);
    mem_free(text);
    return 0;
}

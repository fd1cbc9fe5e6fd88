/* Any bytes as a file of tensors; every byte a view promises is read. */
#include "base/check.h"
#include "base/mem.h"
#include "replica/plane/store_safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tensor_file *file = NULL;
    struct fault why = {""};
    const struct piece *pieces;
    size_t pieces_count;
    void *copy = mem_alloc(count);
    unsigned sum = 0;

    memcpy(copy, bytes, count);
    if (tensor_file_decode("fuzz", copy, count, &file, &why) != RC_OK) {
        CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
        mem_free(copy);
        return 0;
    }
    for (size_t i = 0; i < tensor_file_count(file); i++) {
        const struct tensor_view *view = tensor_file_at(file, i);
        const uint8_t *values = view->bytes;

        CHECK(tensor_file_find(file, view->name) == view);
        for (size_t k = 0; k < view->bytes_count; k++) {
            sum += values[k];
        }
    }
    CHECK(sum <= 255 * count);
    CHECK(tensor_file_encode(file, &pieces, &pieces_count) == RC_OK);
    CHECK(pieces_count == tensor_file_count(file) + 1);
    tensor_file_destroy(file);
    return 0;
}

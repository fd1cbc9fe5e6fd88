/* Any bytes as an IDX file, plain or gzipped; the first byte says which of the four it should be.
 */
#include "base/check.h"
#include "base/mem.h"
#include "replica/readers/idx.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { READ_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct data_stream *stream = NULL;
    struct idx_header header;
    struct fault why = {""};
    char path[IDX_PATH_BYTES];
    uint64_t values;
    int fd;

    if (count == 0) return 0;
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, bytes + 1, count - 1) == (ssize_t)(count - 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (idx_open(path, (enum idx_file)(bytes[0] % IDX_FILES), &stream, &header, &why) == RC_OK) {
        CHECK(header.count > 0 && header.count <= IDX_SAMPLES_MAX);
        CHECK(header.height <= IDX_SIDE_MAX && header.width <= IDX_SIDE_MAX);
        values = (uint64_t)header.count * header.height * header.width;
        if (values <= READ_MAX) {
            uint8_t *buffer = mem_alloc((size_t)values);
            enum rc rc = data_stream_read(stream, buffer, (size_t)values, &why);

            if (rc == RC_OK) rc = data_stream_finish(stream, &why);
            CHECK(rc == RC_OK || why.text[0] != '\0');
            mem_free(buffer);
        }
        data_stream_close(stream);
    } else {
        CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
    }
    close(fd);
    return 0;
}
